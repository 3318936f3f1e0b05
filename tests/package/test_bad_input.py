"""Input that was once accepted silently or crashed is rejected without side effects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from superarm import Arms, Feedback, IndexPolicy, Offer
from superarm.core import State
from superarm.core.errors import (
    InfeasibleError,
    InputError,
    NotFiniteError,
    ShapeError,
    SpecError,
    StateError,
)
from superarm.core.inputs import as_number
from superarm.core.states import (
    load_state,
    save_state,
    state_from_bytes,
    state_to_bytes,
)
from superarm.kernels import Columns, Matern, Periodic, SquaredExponential
from superarm.lab.experiments import load_experiment
from superarm.oracles import TopK
from superarm.posteriors import FiniteGP, IndependentGaussian, StreamingGP
from superarm.rules import UCB, Fixed, Greedy

SMOOTH = SquaredExponential(lengthscale=0.3)
RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    "rewards",
    [
        np.ma.array([1.0, 999.0], mask=[0, 1]),
        np.array([1.0 + 2.0j, 0.0]),
        np.array(["1", "2"]),
        np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[D]"),
        [10**400, 1.0],
    ],
    ids=["masked", "complex", "text", "dates", "too large for a float"],
)
def test_non_numeric_input_is_rejected(rewards: Any) -> None:
    gp = StreamingGP(SMOOTH, 0.1)
    with pytest.raises(InputError, match="rewards"):
        gp.observe([[0.0], [1.0]], rewards)
    assert gp.count == 0


def test_masks_are_not_dropped() -> None:
    one, two = (
        np.ma.array([1.0], mask=[True]),
        np.ma.array([1.0, 9.0], mask=[False, True]),
    )
    row = np.ma.array([0], mask=[True])
    fixed = FiniteGP(SMOOTH, [[0.0], [1.0]], 0.1)
    stream = StreamingGP(SMOOTH, 0.1)
    for refused in (
        lambda: fixed.observe([0], one),
        lambda: fixed.observe(row, [1.0]),
        lambda: fixed.observe([0, 1], two),
        lambda: fixed.predict(row),
        lambda: fixed.observe([0], [1.0], one),
        lambda: fixed.play_table(
            np.ma.array(np.ones((2, 2)), mask=np.eye(2)), np.ones(2)
        ),
        lambda: fixed.play_table(np.ones((2, 2)), two),
        lambda: fixed.play_table([two, two], np.ones(2)),
        lambda: stream.observe([one], [1.0]),
        lambda: FiniteGP(SMOOTH, [[0.0]], 0.1, mean=np.ma.masked),
        lambda: FiniteGP(SMOOTH, [[0.0]], np.ma.masked),
    ):
        with pytest.raises(InputError):
            refused()
    assert fixed.count == stream.count == 0
    fixed.observe(np.ma.array([0]), np.ma.array([1.0]))  # nothing is masked
    assert fixed.count == 1


@pytest.mark.parametrize(
    "number", ["1.5", b"1.5", np.bytes_(b"1.5"), None, True, [1.5]]
)
def test_text_is_not_a_number(number: Any) -> None:
    with pytest.raises(InputError, match="must be a number"):
        as_number(number, "it")


@pytest.mark.parametrize("size", [None, 1.5, True, 0, "2"])
def test_draws_reject_invalid_sizes(size: Any) -> None:
    with pytest.raises(InputError, match=r"size must be a whole number of at least 1"):
        StreamingGP(SMOOTH, 0.1).sample([[0.0]], RNG, size)


@pytest.mark.parametrize("rng", [None, 42, np.random.RandomState(0)], ids=str)
def test_draws_reject_invalid_generators(rng: Any) -> None:
    gp = FiniteGP(SMOOTH, [[0.0], [1.0]], 0.1)
    belief = gp.belief(Offer(step=1, arms=Arms.numbered([[0.0], [1.0]])))
    for draw in (
        lambda: gp.sample([0], rng),
        lambda: belief.sample(rng),
        lambda: belief.condition(np.array([0])).sample(rng),
    ):
        with pytest.raises(InputError, match="default_rng"):
            draw()


class Remembering:
    """A foreign kernel that returns the same array every time."""

    def __init__(self) -> None:
        self.kept: dict[bytes, Any] = {}

    def __call__(self, X: Any, Y: Any = None) -> Any:
        other = X if Y is None else Y
        key = X.tobytes() + b"|" + other.tobytes()
        if key not in self.kept:
            self.kept[key] = SMOOTH(X, other)
        return self.kept[key]

    def diag(self, X: Any) -> Any:
        return SMOOTH.diag(X)


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_foreign_kernels_arrays_are_not_overwritten(wrapped: bool) -> None:
    kernel: Any = Remembering()
    if wrapped:
        kernel = 2.0 * Columns(kernel=kernel, columns=(0,))
    gp = StreamingGP(kernel, 0.1)
    gp.observe([[0.0], [0.5]], [1.0, -1.0])
    first = gp.predict([[0.2]]).mean.copy()
    gp.predict([[0.7]])
    np.testing.assert_array_equal(gp.predict([[0.2]]).mean, first)


@pytest.mark.parametrize("form", ["root", "visited"])
def test_sums_that_would_overflow_are_refused(form: Any) -> None:
    gp = FiniteGP(SMOOTH, [[0.0], [1.0]], 1.0, form=form)
    gp.observe([0], [1e100])
    gp.observe([0], [1e100])
    before = state_to_bytes(gp.state())
    for reward in (1.1e100, -1.5e308):
        with pytest.raises(InputError, match="rewards holds"):
            gp.observe([0], [reward])
        with pytest.raises(InputError, match="rewards holds"):
            gp.play_table(np.full((3, 2), reward), np.ones(3))
    assert state_to_bytes(gp.state()) == before
    assert np.isfinite(gp.predict([0, 1]).mean).all()
    with pytest.raises(InputError, match="mean holds"):
        FiniteGP(SMOOTH, [[0.0], [1.0]], 1.0, mean=[0.0, -1e200], form=form)
    with pytest.raises(InputError, match="mean must be"):
        StreamingGP(SMOOTH, 1.0, mean=1e200)


@pytest.mark.parametrize("noise", [1e-320, 1e-101, 1e101, 1.7e308])
def test_noise_too_small_or_large_to_divide_by_is_refused(noise: float) -> None:
    with pytest.raises(InputError, match="choose units"):
        FiniteGP(SMOOTH, [[0.0]], noise)
    for posterior in (IndependentGaussian([1.0], 1.0), FiniteGP(SMOOTH, [[0.0]], 1.0)):
        with pytest.raises(InputError, match="choose units"):
            posterior.observe([0], [0.0], [noise])
        assert (posterior.count, posterior.information_gain) == (0, 0.0)
    with pytest.raises(InputError, match="choose units"):
        IndependentGaussian([1.0, noise], 1.0)


def changed(state: State, **entries: Any) -> State:
    scalars = {
        **state.scalars,
        **{k: v for k, v in entries.items() if k in state.scalars},
    }
    arrays = {**state.arrays, **{k: v for k, v in entries.items() if k in state.arrays}}
    return State(kind=state.kind, schema=state.schema, scalars=scalars, arrays=arrays)


@pytest.mark.parametrize(
    "damage",
    [{"count": 0}, {"count": -5}, {"count": "abc"}, {"information_gain": float("nan")}],
    ids=str,
)
def test_damaged_states_of_streams_are_refused(damage: dict[str, Any]) -> None:
    gp = StreamingGP(SMOOTH, 0.1)
    gp.observe([[0.0], [1.0]], [1.0, 2.0])
    with pytest.raises(StateError, match="damaged"):
        StreamingGP.from_state(changed(gp.state(), **damage))


@pytest.mark.parametrize(
    "damage",
    [
        {"weight": np.ones(1)},
        {"weight": np.array([-1.0, 1.0])},
        {"weight": np.array([np.nan, 1.0])},
        {"weight": np.array([1e-310, 0.0])},
        {"weight": np.array([1e-200, 0.0])},
        {"weighted_rewards": np.ones(7)},
        {"count": None},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["finite", "independent"])
def test_damaged_states_of_fixed_arms_are_refused(
    kind: str, damage: dict[str, Any]
) -> None:
    posterior: Any = (
        FiniteGP(SMOOTH, [[0.0], [1.0]], 0.1)
        if kind == "finite"
        else IndependentGaussian([1.0, 1.0], 0.1)
    )
    posterior.observe([0], [1.0])
    with pytest.raises((StateError, InputError)):
        type(posterior).from_state(changed(posterior.state(), **damage))


def test_states_are_files_without_pickles(tmp_path: Any) -> None:
    gp = StreamingGP(SMOOTH, 0.1)
    gp.observe([[0.0], [1.0]], [1.0, 2.0])
    save_state(gp.state(), tmp_path / "gp.state")
    restored = StreamingGP.from_state(load_state(tmp_path / "gp.state"))
    np.testing.assert_allclose(
        restored.predict([[0.4]]).mean, gp.predict([[0.4]]).mean, atol=1e-12
    )
    for rubbish in (
        b"",
        b"PK\x03\x04",
        b"\x80\x04N.",
        state_to_bytes(gp.state())[:200],
    ):
        with pytest.raises(StateError, match="saved state"):
            state_from_bytes(rubbish)
    with pytest.raises(StateError, match="cannot be read"):
        load_state(tmp_path / "nothing")


def test_rescored_desirabilities_are_checked() -> None:
    values = np.array([1.0, 2.0, 3.0])
    with pytest.raises(InfeasibleError):
        TopK(k=3).select(values, None, RNG, lambda chosen: np.full(3, -np.inf))
    with pytest.raises(NotFiniteError):
        TopK(k=2).select(values, None, RNG, lambda chosen: np.full(3, np.nan))
    sizes: list[int] = []
    TopK(k=2).select(
        values, None, RNG, lambda chosen: sizes.append(len(chosen)) or values
    )
    assert sizes == [1]  # no question after the last choice


def test_parts_are_checked_when_a_policy_is_made() -> None:
    posterior, rule = StreamingGP(SMOOTH, 0.1), UCB(schedule=Fixed(value=1.0))
    parts: dict[str, Any] = {"posterior": posterior, "rule": rule, "oracle": TopK()}
    for name, wrong in (("posterior", 1), ("rule", UCB), ("oracle", "top-k")):
        with pytest.raises(InputError, match=f"{name} must be .*superarm.core.*, got "):
            IndexPolicy(**{**parts, name: wrong})


def test_a_rule_must_score_every_arm() -> None:
    class Short(Greedy):
        def desirability(self, belief: Any, step: int, rng: Any) -> Any:
            return belief.mean[:-1]

    policy = IndexPolicy(
        posterior=StreamingGP(SMOOTH, 0.1), rule=Short(), oracle=TopK()
    )
    with pytest.raises(ShapeError, match="Short returned"):
        policy.decide(Offer(step=1, arms=Arms.numbered([[0.0], [1.0]])), RNG)


def test_records_reject_invalid_values() -> None:
    arms = Arms.numbered([[0.0]])
    for step in (0, 1.5, "1", None):
        with pytest.raises(InputError, match=r"step must be a whole number from 1"):
            Offer(step=step, arms=arms)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"Arms\.numbered"):
        Offer(step=1, arms=np.zeros((2, 1)))  # type: ignore[arg-type]
    wrong: Any
    for wrong in ([0.0], [True], ["0"], np.ma.array([0], mask=[1]), [[0]], 0):
        with pytest.raises(InputError, match="positions"):
            Feedback(positions=wrong, rewards=np.zeros(1))
    assert Feedback(positions=[0], rewards=[1]).positions.dtype == np.intp  # type: ignore[arg-type]


def test_no_covariance_at_all_is_a_covariance() -> None:
    from superarm.kernels import Linear

    gp = FiniteGP(Linear(), [[0.0]], 0.1)
    assert gp.predict([0]).mean.tolist() == [0.0]
    assert StreamingGP(Linear(), 0.1).sample([[0.0]], RNG).tolist() == [[0.0]]


def test_read_only_tables_are_played() -> None:
    pytest.importorskip("numba", reason="numba is not installed")
    gp = FiniteGP(SMOOTH, [[0.0], [1.0]], 0.1)
    table = np.ones((4, 2))
    table.flags.writeable = False
    assert len(gp.play_table(table, np.ones(4))) == 4


@pytest.mark.parametrize("kernel", [SquaredExponential, Matern, Periodic])
@pytest.mark.parametrize("lengthscale", [1e-200, 1e300])
def test_lengthscales_whose_squares_fit_no_float_are_refused(
    kernel: Any, lengthscale: float
) -> None:
    with pytest.raises(InputError, match="choose units"):
        kernel(lengthscale=lengthscale)


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5, 3.1])
@pytest.mark.filterwarnings("ignore:overflow")
def test_extremely_distant_arms_are_uncorrelated(nu: float) -> None:
    K = Matern(nu=nu)(np.array([[0.0], [1e200]]))
    np.testing.assert_array_equal(K, np.eye(2))


def test_absurd_nesting_is_a_bad_file(tmp_path: Any) -> None:
    path = tmp_path / "deep.toml"
    path.write_text("x." + ".".join("a" * 3000) + " = 1\n")
    with pytest.raises(SpecError):
        load_experiment(str(path))
