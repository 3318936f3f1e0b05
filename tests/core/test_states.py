"""Saving, loading and restoring states, and rejecting invalid ones."""

from __future__ import annotations

import datetime
import os
import pickle
import stat
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

import superarm
from superarm import Arms, Feedback, IndexPolicy, Offer, State
from superarm.core.errors import (
    ConflictError,
    ForgottenError,
    InputError,
    SpecError,
    StateError,
)
from superarm.core.serialization import from_json, to_json
from superarm.core.states import (
    atomic_write,
    file_lock,
    load_state,
    loaded,
    save_state,
    state_from_bytes,
    state_to_bytes,
)
from superarm.core.tables import Encoding
from superarm.kernels import Constant, Matern, Periodic, SquaredExponential, Temporal
from superarm.oracles import TopK
from superarm.policies import ScorePolicy, Uniform
from superarm.posteriors import (
    ChangeDetecting,
    DriftingGP,
    FiniteGP,
    Resetting,
    StreamingGP,
)
from superarm.rules import UCB, Fixed, Greedy

SMOOTH = SquaredExponential(lengthscale=0.4)
ROUGH = Matern(nu=1.5, lengthscale=0.5)
ARMS = np.linspace(0.0, 1.0, 7)[:, None]


def policy_of(posterior: Any = None) -> IndexPolicy:
    gp = StreamingGP(SMOOTH, 0.1) if posterior is None else posterior
    return IndexPolicy(
        posterior=gp, rule=UCB(schedule=Fixed(value=2.0)), oracle=TopK(k=2)
    )


def played(policy: IndexPolicy, first: int = 1, rounds: int = 5) -> list[list[int]]:
    """Its choices in these rounds."""
    choices = []
    for step in range(first, first + rounds):
        rng = np.random.default_rng(step)
        offer = Offer(step=step, arms=Arms.numbered(ARMS))
        decision = policy.decide(offer, rng)
        policy.commit(decision)
        rewards = np.sin(6.0 * ARMS[decision.positions, 0]) + 0.1 * rng.normal(size=2)
        policy.learn(
            offer,
            decision,
            Feedback(positions=decision.positions, rewards=rewards),
            rng,
        )
        choices.append(decision.positions.tolist())
    return choices


# --- bytes -----------------------------------------------------------------------------------

NAMES = st.text(max_size=8)
NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70), st.floats(), st.booleans(), st.none(), NAMES
)
VALUES = st.recursive(
    NUMBERS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.one_of(NAMES, st.integers()), inner, max_size=3),
    ),
    max_leaves=8,
)
ARRAYS = arrays_of.arrays(
    dtype=st.sampled_from(["<f8", "<f4", "<i8", "|u1", "|b1", "<U3"]),
    shape=arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
)
LEAVES = st.builds(
    State,
    kind=NAMES,
    schema=st.integers(0, 2**53),
    scalars=st.dictionaries(NAMES, VALUES, max_size=3),
    arrays=st.dictionaries(NAMES, ARRAYS, max_size=3),
    spec=st.none() | st.dictionaries(NAMES, VALUES | ARRAYS, max_size=3),
)
STATES = st.recursive(
    LEAVES,
    lambda inner: st.builds(
        State,
        kind=NAMES,
        schema=st.integers(0, 9),
        parts=st.dictionaries(NAMES, inner, max_size=2),
        spec=st.none(),
    ),
    max_leaves=3,
)


def same(one: Any, other: Any) -> bool:
    """To the bit and to the type; NaN is like NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, State):
        names = ("kind", "schema", "scalars", "arrays", "parts", "spec")
        return all(same(getattr(one, name), getattr(other, name)) for name in names)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(
            same(one[key], other[key]) for key in one
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray):
        alike = one.dtype == other.dtype and one.shape == other.shape
        return alike and one.tobytes() == other.tobytes()
    return repr(one) == repr(other)


@given(STATES)
def test_state_round_trips_through_bytes(state: State) -> None:
    data = state_to_bytes(state)
    restored = state_from_bytes(data)
    assert same(restored, state)
    assert state_to_bytes(restored) == data


# --- wrong arguments --------------------------------------------------------------------------


@pytest.mark.parametrize("path", [None, 0, [], b"x.npz", "", "a\0b"])
def test_invalid_paths_are_rejected(path: Any) -> None:
    policy = policy_of()
    state = policy.state()
    for use in (
        policy.save,
        superarm.load,
        load_state,
        lambda target: save_state(state, target),
    ):
        with pytest.raises(InputError, match="path is"):
            use(path)
    with pytest.raises(InputError, match="path is"):
        atomic_write(path, b"")


@pytest.mark.parametrize("state", [None, "x", {}, [], 0])
def test_only_states_are_saved_and_loaded(state: Any, tmp_path: Path) -> None:
    for use in (
        state_to_bytes,
        loaded,
        lambda value: save_state(value, tmp_path / "x.npz"),
    ):
        with pytest.raises(InputError, match="state is"):
            use(state)
    assert not list(tmp_path.iterdir())


# --- what could be saved and not be loaded ------------------------------------------------------


def test_steps_are_noted_once() -> None:
    policy = policy_of()
    policy.note_steps([3, 4])
    before = state_to_bytes(policy.state())
    for steps, error in (
        ([7, 7], ConflictError),
        ([8, 4], ConflictError),
        ([9, 0], InputError),
        ([9, 2**60], InputError),
        ([9, 1.5], InputError),
    ):
        with pytest.raises(error, match="step"):
            policy.note_steps(steps)  # type: ignore[arg-type]
        assert state_to_bytes(policy.state()) == before
    policy.note_steps([7, 5])
    restored = loaded(policy.state())
    assert isinstance(restored, IndexPolicy)
    assert [step for step in range(1, 10) if restored.has_learned(step)] == [3, 4, 5, 7]


@pytest.mark.parametrize(
    "wrapper", [lambda gp: Resetting(gp, block=5), ChangeDetecting]
)
def test_blocks_and_steps_end_where_floats_skip_numbers(wrapper: Any) -> None:
    gp = wrapper(FiniteGP(ROUGH, ARMS, 0.1))
    last = 2.0**53
    gp.observe([[0, last]], [1.0])
    restored = wrapper(FiniteGP(ROUGH, ARMS, 0.1)).restored(gp.state())
    np.testing.assert_allclose(
        restored.predict([[0, last]]).mean, gp.predict([[0, last]]).mean
    )
    with pytest.raises(InputError, match="a float skips numbers"):
        gp.observe([[0, 2.0 * last]], [1.0])


# --- drift --------------------------------------------------------------------------------------

DRIFTS = {
    "temporal": Temporal(epsilon=0.9),
    "matern-1/2": Matern(nu=0.5, lengthscale=1.0),
    "matern-3/2": Matern(nu=1.5, lengthscale=1.0),
    "periodic": Periodic(period=5.0, lengthscale=2.0),
    "constant": Constant(variance=2.0),
    "sum": Temporal(epsilon=0.9) + Matern(nu=0.5, lengthscale=1.0),
    "product": Temporal(epsilon=0.9) * Periodic(period=5.0, lengthscale=2.0),
}


@pytest.mark.parametrize("drift", DRIFTS)
def test_a_drifting_policy_can_be_pickled(drift: str) -> None:
    policy = policy_of(
        DriftingGP(ROUGH, ARMS, 0.1, drift=DRIFTS[drift], time_tolerance=1e-6)
    )
    played(policy)
    unpickled = pickle.loads(pickle.dumps(policy))
    assert played(unpickled, 6) == played(policy, 6)


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["kalman", "visited", "folded"])
@pytest.mark.parametrize("drift", ["temporal", "matern-3/2"])
def test_restored_posterior_answers_about_the_same_times(form: Any, drift: str) -> None:
    gp = DriftingGP(ROUGH, ARMS, 0.5, drift=DRIFTS[drift], form=form)
    rng = np.random.default_rng(0)
    for step in range(300):
        gp.observe([[int(rng.integers(7)), step]], [float(rng.normal())])
    restored = DriftingGP.from_state(state_from_bytes(state_to_bytes(gp.state())))

    def answer(posterior: DriftingGP, time: float) -> Any:
        keys = np.column_stack([np.arange(7), np.full(7, time)])
        try:
            return posterior.predict(keys, return_cov=True)
        except ForgottenError:
            return None

    def assert_alike(times: Any) -> int:
        """How many of these times are answered, by both."""
        answered = 0
        for time in times:
            ours, theirs = answer(gp, time), answer(restored, time)
            assert (ours is None) == (theirs is None), time
            if ours is not None:
                answered += 1
                # ε · condition, 1 + N s/σ² with N ≈ 100 remembered, s = 1, σ² = ½; a hundredfold.
                np.testing.assert_allclose(theirs.mean, ours.mean, atol=1e-11)
                np.testing.assert_allclose(theirs.cov, ours.cov, atol=1e-11)
        return answered

    recent = np.arange(180.0, 306.0, 6.0)
    compared = assert_alike(recent)
    assert 0 < compared < len(recent), (
        "some are forgotten, and some before the last are not"
    )
    assert compared > 1
    late = [[3, 290.5]], [2.0]
    gp.observe(*late)
    restored.observe(*late)
    assert assert_alike(recent) == compared


def test_state_without_a_checkpoint_predicts_the_present() -> None:
    """As version 0.1.0 saved it."""
    gp = DriftingGP(ROUGH, ARMS, 0.5, drift=Temporal(epsilon=0.9))
    for step in range(300):
        gp.observe([[step % 7, step]], [1.0])
    state = gp.state()
    assert set(state.parts) == {"checkpoint"}
    old = State(
        kind=state.kind,
        schema=state.schema,
        scalars=state.scalars,
        arrays=state.arrays,
        spec=state.spec,
    )
    restored = DriftingGP.from_state(old)
    now = np.column_stack([np.arange(7), np.full(7, 300.0)])
    np.testing.assert_array_equal(restored.predict(now).mean, gp.predict(now).mean)
    with pytest.raises(ForgottenError):
        restored.predict([[0, 298.0]])


# --- the machine --------------------------------------------------------------------------------


def test_policy_restores_on_the_chosen_backend(tmp_path: Path) -> None:
    policy = policy_of(FiniteGP(ROUGH, ARMS, 0.1, backend="numpy"))
    played(policy)
    policy.save(tmp_path / "a.npz")
    restored: Any = superarm.load(tmp_path / "a.npz")
    assert restored.posterior.backend == "numpy"
    assert not restored.posterior.compiled
    assert played(restored, 6) == played(policy, 6)
    # A spec does not depend on the machine: a state may be restored into another backend.
    if find_spec("numba") is not None:
        compiled = FiniteGP(ROUGH, ARMS, 0.1, backend="numba")
        assert compiled.restored(policy.posterior.state()).backend == "numba"
    automatic = FiniteGP(ROUGH, ARMS, 0.1)
    assert "backend" not in automatic.state().scalars


def test_state_loads_without_its_backend(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gp = FiniteGP(ROUGH, ARMS, 0.1, backend="numpy")
    gp.observe([1], [1.0])
    state = gp.state()
    scalars = {**state.scalars, "backend": "numba"}
    compiled = State(
        kind=state.kind,
        schema=2,
        scalars=scalars,
        arrays=state.arrays,
        parts=state.parts,
        spec=state.spec,
    )
    for module in ("superarm.core.compiling", "superarm.posteriors.finite.posterior"):
        monkeypatch.setattr(f"{module}.find_spec", lambda name: None)
    restored = FiniteGP.from_state(compiled)
    assert (restored.backend, restored.compiled) == ("auto", False)
    np.testing.assert_allclose(restored.predict([0]).mean, gp.predict([0]).mean)
    with pytest.raises(StateError, match="no backend 'abacus'"):
        FiniteGP.from_state(
            State(
                kind=state.kind,
                schema=2,
                scalars={**scalars, "backend": "abacus"},
                spec=state.spec,
            )
        )


# --- an encoding ---------------------------------------------------------------------------------

ROWS = [
    {"id": "a", "size": 2.0, "colour": "red", "grid": (0, 1)},
    {"id": "b", "size": 3.5, "colour": "blue", "grid": (1, 1)},
]
COLUMNS = ["size", "colour", "grid"]


@pytest.mark.parametrize("coding", ["one-hot", "index"])
def test_encoding_is_restored_with_its_policy(coding: Any, tmp_path: Path) -> None:
    policy = policy_of()
    policy.encoding = encoding = Encoding.of(ROWS, COLUMNS, coding=coding)
    path = tmp_path / "mine.npz"
    for _ in range(2):  # it survives saving a loaded policy
        policy.save(path)
        restored: Any = superarm.load(path)
        assert restored.encoding == encoding
        policy = restored
    np.testing.assert_array_equal(
        restored.encoding.features(ROWS), encoding.features(ROWS)
    )
    assert restored.restored(restored.state()).encoding == encoding
    plain = policy_of()
    assert plain.encoding is None
    assert plain.restored(restored.state()).encoding == encoding
    assert restored.restored(plain.state()).encoding == encoding


def test_encoding_is_restored_for_policies_that_do_not_learn(tmp_path: Path) -> None:
    policy = ScorePolicy(score=Uniform(), oracle=TopK(k=1))
    policy.encoding = Encoding.of(ROWS, COLUMNS)
    policy.save(tmp_path / "a.npz")
    restored: Any = superarm.load(tmp_path / "a.npz")
    assert restored.encoding == policy.encoding


def test_unserializable_encodings_are_rejected_immediately() -> None:
    policy = policy_of()
    days = [{"day": datetime.date(2024, 1, day)} for day in (1, 2)]
    with pytest.raises(SpecError, match="date"):
        policy.encoding = Encoding.of(days)
    with pytest.raises(InputError, match="encoding is"):
        policy.encoding = {"columns": ["size"]}  # type: ignore[assignment]
    assert policy.encoding is None
    state = policy.state()
    for encoding in (
        {"columns": ("a",)},
        [],
        {"columns": (), "categories": {}, "coding": "one-hot"},
    ):
        damaged = State(
            kind=state.kind,
            schema=state.schema,
            scalars={**state.scalars, "encoding": encoding},
            parts=state.parts,
            spec=state.spec,
        )
        with pytest.raises(StateError, match="damaged"):
            loaded(damaged)


def test_offer_and_decision_can_be_stored_for_late_feedback(tmp_path: Path) -> None:
    import json

    policy = policy_of()
    played(policy)
    offer, rng = Offer(step=6, arms=Arms.numbered(ARMS)), np.random.default_rng(0)
    decision = policy.decide(offer, rng)
    policy.commit(decision)
    (tmp_path / "6.json").write_text(json.dumps(to_json([offer, decision])))
    policy.save(tmp_path / "mine.npz")
    restored: Any = superarm.load(tmp_path / "mine.npz")
    offer, decision = from_json(json.loads((tmp_path / "6.json").read_text()))
    feedback = Feedback(positions=decision.positions, rewards=[0.5, 0.2])
    for learner in (policy, restored):
        learner.learn(offer, decision, feedback, rng)
    assert played(restored, 7) == played(policy, 7)


# --- files -----------------------------------------------------------------------------------


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "store" / "real.npz", tmp_path / "link.npz"
    real.parent.mkdir()
    link.symlink_to(Path("store") / "real.npz")
    policy = policy_of()
    for first in (1, 6):  # at first, the file is not there yet
        policy.save(link)
        assert link.is_symlink()
        assert not real.is_symlink()
        assert real.read_bytes() == state_to_bytes(policy.state())
        assert superarm.load(link).state().scalar("version") == policy.version
        played(policy, first)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["link.npz", "store"]
    assert [file.name for file in real.parent.iterdir()] == ["real.npz"]
    with file_lock(link):
        assert (real.parent / ".real.npz.lock").exists()


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_a_file_that_is_replaced_keeps_its_mode(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    policy_of().save(path)
    umask = os.umask(0o027)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    path.chmod(mode)
    policy_of().save(path)
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert superarm.load(path).state().kind == "index-policy"
    greedy = IndexPolicy(
        posterior=StreamingGP(SMOOTH, 0.1), rule=Greedy(), oracle=TopK()
    )
    greedy.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == mode


# --- checked values ------------------------------------------------------------------------


def state_with(scalar: Any, array: Any) -> State:
    return State(
        kind="example", schema=1, scalars={"x": scalar}, arrays={"x": np.array(array)}
    )


def test_a_state_returns_checked_values() -> None:
    state = state_with(3, [0, 2])
    assert state.count("x") == 3
    assert state.number("x", 0.0, 3.0) == 3.0
    assert state.positions("x").tolist() == [0, 2]
    assert state.vector("x", 2).tolist() == [0.0, 2.0]
    assert state_with(3, [[1.0, 2.0]]).matrix("x", 2).tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize(
    "read",
    [
        lambda state: state.count("x", 0),
        lambda state: state.number("x", 0.0),
        lambda state: state.positions("x"),
        lambda state: state.vector("x"),
        lambda state: state.matrix("x"),
    ],
)
def test_values_that_do_not_fit_are_refused_by_name(read: Any) -> None:
    """−1.5 is neither a count nor above 0; an array without an axis is neither a vector nor a matrix."""
    with pytest.raises(InputError, match=r"^x "):
        read(state_with(-1.5, np.nan))
    with pytest.raises(StateError, match="lacks 'x'"):
        read(State(kind="example", schema=1))
