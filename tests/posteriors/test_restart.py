"""A policy restored from its state decides like one that was never interrupted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sample_posteriors import Maker, fading_kernel, posterior_makers, rough_kernel

from superarm.core import Arms, Decision, Feedback, Floats, Offer, State
from superarm.core.errors import InputError, StateError
from superarm.core.states import state_from_bytes, state_to_bytes
from superarm.core.streams import stream
from superarm.kernels import SquaredExponential
from superarm.oracles import TopK
from superarm.policies import IndexPolicy
from superarm.posteriors import (
    ChangeDetecting,
    DriftingGP,
    FiniteGP,
    IndependentGaussian,
    Refitting,
    SparseVariational,
    StreamingGP,
)
from superarm.posteriors.finite.root import RootEngine
from superarm.rules import Thompson
from superarm.testing import raises

NOISE = 0.05
SIDE = np.linspace(0.0, 1.0, 6)
GRID = np.stack(np.meshgrid(SIDE, SIDE), axis=-1).reshape(
    -1, 2
)  # symmetric, so many arms tie
SMOOTH = SquaredExponential(lengthscale=0.5)
ROUGH = rough_kernel()

SHARED = posterior_makers(GRID, NOISE, inducing=20, block=20)
MAKERS: dict[str, Maker] = {
    "streaming, cholesky": SHARED["streaming, cholesky"],
    "streaming, cholesky, smooth": lambda: StreamingGP(SMOOTH, NOISE, form="cholesky"),
    "streaming, finite-rank": lambda: StreamingGP(SMOOTH, NOISE, form="finite-rank"),
    "streaming, inducing": lambda: StreamingGP(ROUGH, NOISE, most_exact=3, inducing=20),
    "streaming, auto": lambda: StreamingGP(SquaredExponential(lengthscale=3.0), NOISE),
    "root, numpy": SHARED["root, numpy"],
    "root, compiled": lambda: FiniteGP(
        SMOOTH, GRID, NOISE, form="root", backend="auto"
    ),
    "visited": SHARED["visited"],
    "independent": lambda: IndependentGaussian(np.ones(len(GRID)), NOISE, arms=GRID),
    "inducing": SHARED["inducing"],
    "drifting": SHARED["drifting"],
    "streaming, forgetting": lambda: StreamingGP(
        fading_kernel(epsilon=0.3), NOISE, timed=True, forget=1e-3
    ),
    "resetting": SHARED["resetting"],
    "change-detecting": lambda: ChangeDetecting(
        FiniteGP(ROUGH, GRID, 0.01), run_length=100.0
    ),
    "refitting": lambda: Refitting(DriftingGP(ROUGH, GRID, NOISE), every=30, most=60),
    "streaming, both": lambda: ChangeDetecting(
        Refitting(StreamingGP(ROUGH, NOISE), every=30)
    ),
    "variational": lambda: SparseVariational(
        ROUGH, NOISE, inducing=20, batch=40, natural_rate=0.5
    ),
}
CHANGING = ("streaming", "variational")
pytestmark = pytest.mark.filterwarnings("ignore:more than 3 observations")


def policy_of(posterior: Any, k: int = 2) -> IndexPolicy:
    return IndexPolicy(
        posterior=posterior, rule=Thompson(mode="joint"), oracle=TopK(k=k)
    )


def truth(features: Floats) -> Floats:
    value: Floats = np.sin(5.0 * features[:, 0]) + np.cos(4.0 * features[:, 1])
    return value


def offer_at(step: int, changing: bool) -> Offer:
    if not changing:
        return Offer(step=step, arms=Arms.numbered(GRID))
    rows = stream(3, "offer", step).permutation(len(GRID))[:20]
    return Offer(step=step, arms=Arms(ids=rows.tolist(), features=GRID[rows]))


class Player:
    """A policy and its decisions without feedback; every seventh round's feedback is late."""

    def __init__(self, policy: IndexPolicy, changing: bool) -> None:
        self.policy = policy
        self.changing = changing
        self.waiting: list[tuple[Offer, Decision]] = []

    def round(self, step: int) -> list[int]:
        offer = offer_at(step, self.changing)
        decision = self.policy.decide(offer, stream(0, "decide", step))
        self.policy.commit(decision)
        self.waiting.append((offer, decision))
        if step % 7:
            for arrival in self.waiting:
                self._learn(*arrival)
            self.waiting.clear()
        return [int(position) for position in decision.positions]

    def _learn(self, offer: Offer, decision: Decision) -> None:
        positions, step = decision.positions, offer.step
        noise = stream(0, "noise", step).standard_normal(len(positions)) * np.sqrt(
            NOISE
        )
        feedback = Feedback(
            positions=positions, rewards=truth(offer.arms.features[positions]) + noise
        )
        self.policy.learn(offer, decision, feedback, stream(0, "learn", step))

    def saved_and_loaded(self) -> Player:
        state = state_from_bytes(state_to_bytes(self.policy.state()))
        restored = Player(self.policy.restored(state), self.changing)
        restored.waiting = self.waiting.copy()
        return restored


@pytest.mark.thorough
@pytest.mark.parametrize("name", MAKERS)
def test_restored_policy_decides_like_an_uninterrupted_one(name: str) -> None:
    """Ten copies, restored at different rounds, decide alike for the next ten rounds."""
    player = Player(policy_of(MAKERS[name]()), name.startswith(CHANGING))
    copies: list[tuple[int, Player]] = []
    pending = 0
    same = total = 0
    for step in range(1, 91):
        decided = player.round(step)
        for last, copy in copies:
            if step <= last:
                total += 1
                same += copy.round(step) == decided
        if step % 8 == 0 and len(copies) < 10:
            copies.append((step + 10, player.saved_and_loaded()))
            engine = getattr(player.policy.posterior, "_engine", None)
            pending += isinstance(engine, RootEngine) and engine._count > 0
    assert (same, total) == (100, 100)
    if name.startswith("root"):
        assert pending > 3  # also with observations not yet folded into the root


def test_restored_posterior_keeps_its_form() -> None:
    gp = MAKERS["streaming, auto"]()
    rng = np.random.default_rng(0)
    for _ in range(40):
        gp.observe(rng.random((2, 2)), rng.random(2))
        restored = gp.restored(state_from_bytes(state_to_bytes(gp.state())))
        assert (restored.form, restored.rank) == (gp.form, gp.rank)
        assert state_to_bytes(restored.state()) == state_to_bytes(gp.state())
    assert gp.form == "finite-rank"


def test_restored_root_form_continues_bit_for_bit() -> None:
    gp = MAKERS["root, numpy"]()
    rng = np.random.default_rng(0)
    for count in (1, 3, 40, 1, 2):
        gp.observe(rng.integers(0, len(GRID), count), rng.random(count))
        restored = gp.restored(state_from_bytes(state_to_bytes(gp.state())))
        assert state_to_bytes(restored.state()) == state_to_bytes(gp.state())
        for posterior in (gp, restored):
            posterior.observe([7], [0.25])
        assert state_to_bytes(restored.state()) == state_to_bytes(gp.state())


@pytest.mark.parametrize(
    "name", ["root, numpy", "root, compiled", "streaming, finite-rank"]
)
@pytest.mark.parametrize("lengthscale", [0.501, 0.8])
def test_state_with_another_kernel_is_recomputed(name: str, lengthscale: float) -> None:
    """Cached factors of one kernel are not used for another."""
    arms = np.arange(5) if name.startswith("root") else GRID[:5]
    gp = MAKERS[name]()
    gp.observe(arms, np.arange(5.0))
    other = SquaredExponential(
        lengthscale=lengthscale
    )  # the smooth posteriors have 0.5
    restored = type(gp).from_state(gp.state(), kernel=other)
    expected = (
        FiniteGP(other, GRID, NOISE, form="root")
        if name.startswith("root")
        else StreamingGP(other, NOISE, form="finite-rank")
    )
    expected.observe(arms, np.arange(5.0))
    everything = np.arange(len(GRID)) if name.startswith("root") else GRID
    np.testing.assert_allclose(
        restored.predict(everything).mean, expected.predict(everything).mean, atol=1e-9
    )


def damaged(part: State, **arrays: Any) -> State:
    return replace(part, arrays={**part.arrays, **arrays})


def _root_damage(part: State) -> dict[str, State]:
    arrays = part.arrays
    return {
        "NaN": damaged(part, root=arrays["root"] * np.nan),
        "too few rows": damaged(part, root=arrays["root"][:-1]),
        "too many columns": damaged(part, root=np.zeros((len(GRID), len(GRID) + 1))),
        "another root": damaged(part, root=2.0 * arrays["root"]),
        "negative variance": damaged(part, variance=-arrays["variance"]),
        "short mean": damaged(part, mean=arrays["mean"][1:]),
        "text": damaged(part, mean=np.array(["a"] * len(GRID))),
        "arm 99": damaged(part, pending=arrays["pending"] + 99),
        "one arm twice": damaged(part, pending=arrays["pending"] * 0),
        "no integers": damaged(part, pending=arrays["pending"] + 0.5),
        "weights below 0": damaged(part, pending_weight=-arrays["pending_weight"]),
        "more weight than seen": damaged(
            part, pending_weight=9.0 * arrays["pending_weight"]
        ),
        "columns of others": damaged(part, columns=arrays["columns"][:1]),
        "nothing left until a fold": replace(part, scalars={"until_fold": 0}),
        "a fold in words": replace(part, scalars={"until_fold": "soon"}),
        "no root": replace(
            part, arrays={k: v for k, v in arrays.items() if k != "root"}
        ),
        "nothing": replace(part, arrays={}),
    }


def _feature_damage(part: State) -> dict[str, State]:
    arrays = part.arrays
    return {
        "NaN": damaged(part, root=arrays["root"] * np.nan),
        "a smaller root": damaged(part, root=arrays["root"][:-1]),
        "fewer weights": damaged(part, weights=arrays["weights"][:-1]),
        "a box elsewhere": damaged(
            part, lower=arrays["lower"] + 9.0, upper=arrays["upper"] + 9.0
        ),
        "a box inside out": damaged(part, lower=arrays["upper"], upper=arrays["lower"]),
        "a huge box": damaged(
            part, lower=arrays["lower"] - 1e9, upper=arrays["upper"] + 1e9
        ),
        "more columns": damaged(part, lower=np.zeros(3), upper=np.ones(3)),
        "a coarse tolerance": replace(part, scalars={"tolerance": 0.5}),
        "twice the tolerance": replace(
            part, scalars={"tolerance": 2.0 * part.scalars["tolerance"]}
        ),
        "a negative tolerance": replace(part, scalars={"tolerance": -1.0}),
        "a tolerance in words": replace(part, scalars={"tolerance": "fine"}),
        "nothing": replace(part, arrays={}),
    }


def _points_damage(part: State) -> dict[str, State]:
    arrays = part.arrays
    many = np.random.default_rng(0).random((21, 2))
    return {
        "NaN": damaged(part, precision=arrays["precision"] * np.nan),
        "no information": damaged(part, precision=-arrays["precision"]),
        "a smaller matrix": damaged(part, precision=arrays["precision"][:-1]),
        "fewer points": damaged(part, points=arrays["points"][:-1]),
        "more points than wanted": damaged(
            part, points=many, told=np.zeros(21), precision=np.eye(21)
        ),
        "no points": damaged(
            part,
            points=arrays["points"][:0],
            told=arrays["told"][:0],
            precision=np.empty((0, 0)),
        ),
        "more columns": damaged(part, points=np.zeros((len(arrays["points"]), 3))),
        "a negative error": replace(part, scalars={**part.scalars, "lost": -1.0}),
        "an error in words": replace(part, scalars={**part.scalars, "lost": "small"}),
        "points chosen later": replace(part, scalars={**part.scalars, "chosen_at": 5}),
        "points chosen from fewer": replace(
            part, scalars={**part.scalars, "chosen_at": 1}
        ),
        "nothing": replace(part, arrays={}),
    }


@pytest.mark.parametrize(
    ("name", "part", "damage"),
    [
        ("root, numpy", "engine", _root_damage),
        ("root, compiled", "engine", _root_damage),
        ("streaming, finite-rank", "features", _feature_damage),
        ("streaming, inducing", "inducing", _points_damage),
    ],
)
def test_damaged_state_is_rejected(name: str, part: str, damage: Any) -> None:
    gp = MAKERS[name]()
    arms = [3, 1, 4, 1] if part == "engine" else GRID[[3, 1, 4, 1]]
    gp.observe(arms, [1.0, 2.0, 3.0, 4.0])
    state = gp.state()
    assert gp.restored(state).count == 4
    for what, harmed in damage(state.parts[part]).items():
        with raises(StateError, what):
            gp.restored(replace(state, parts={part: harmed}))
    with pytest.raises(StateError, match=f"lacks '{part}'"):
        gp.restored(replace(state, parts={}))


@pytest.mark.parametrize("name", ["root, numpy", "visited", "independent"])
@pytest.mark.parametrize("weight", [-1.0, 1e-200, np.nan])
def test_impossible_weights_are_rejected(name: str, weight: float) -> None:
    gp = MAKERS[name]()
    gp.observe([3, 1], [1.0, 2.0])
    state = gp.state()
    weights = state.array("weight").copy()
    weights[3] = weight
    with pytest.raises((StateError, InputError)):
        gp.restored(damaged(state, weight=weights))


@pytest.mark.parametrize(
    "change",
    [
        {"in_use": "dense"},
        {"in_use": "cholesky"},
        {"reconsider_at": None},
        {"count": 3},
        {"count": 0},
        {"count": -1},
        {"information_gain": np.nan},
        {"information_gain": np.inf},
        {"information_gain": None},
    ],
    ids=str,
)
def test_impossible_streaming_state_is_rejected(change: dict[str, Any]) -> None:
    gp = MAKERS["streaming, finite-rank"]()
    gp.observe(GRID[:4], [1.0, 2.0, 3.0, 4.0])
    state = gp.state()
    with pytest.raises(StateError):
        gp.restored(replace(state, scalars={**state.scalars, **change}))
