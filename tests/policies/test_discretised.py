"""Grids that grow finer: what stands for them, wherever the arms lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from superarm.core import Arms, Decision, Feedback, Offer, State
from superarm.kernels import SquaredExponential
from superarm.models import Model
from superarm.oracles import TopK
from superarm.policies import DiscretisedPolicy
from superarm.registry import build


class Listener:
    """Takes the first available arm and remembers what it was offered and taught."""

    deterministic = True
    exchangeable = True

    def __init__(self) -> None:
        self.offers: list[Offer] = []
        self.told: list[Any] = []

    def decide(self, offer: Offer, rng: np.random.Generator) -> Decision:
        self.offers.append(offer)
        first = 0 if offer.available is None else int(offer.available.argmax())
        return Decision(step=offer.step, action=first, positions=np.array([first]))

    def commit(self, decision: Decision) -> None:
        self.told.append(decision)

    def learn(
        self, offer: Offer, decision: Decision, feedback: Feedback, rng: np.random.Generator
    ) -> None:
        self.told.append((offer, decision, feedback))

    def state(self) -> State:
        return State(kind="listener", schema=1)

    def restored(self, state: State) -> Listener:
        return self


def on(points: Any, policy: Any = None, norm_bound: float = 1.0) -> DiscretisedPolicy:
    lower = points.min(axis=0)
    side = float((points.max(axis=0) - lower).max())
    return DiscretisedPolicy(
        policy or Listener(), norm_bound=norm_bound, lipschitz=2.0, lower=lower, side=side
    )


BOXES = [(0.0, 1.0), (-1.0, 1.0), (-7.0, -5.0), (100.0, 100.5)]


@pytest.mark.parametrize("dimension", [1, 2, 3])
@pytest.mark.parametrize(("low", "high"), BOXES)
def test_every_arm_is_near_a_kept_one(low: float, high: float, dimension: int) -> None:
    points = np.random.default_rng(dimension).uniform(low, high, (400, dimension))
    policy, arms = on(points), Arms.numbered(points)
    assert 0 < policy.kept(arms, 1).sum() < len(arms)
    for step in (1, 2, 3):
        kept = points[policy.kept(arms, step)]
        distances = np.abs(points[:, None, :] - kept[None, :, :]).sum(axis=2).min(axis=1)
        assert 1.0 * 2.0 * distances.max() <= 1.0 / step**2 + 1e-12  # B L ‖x − [x]_t‖₁ ≤ 1/t²


@pytest.mark.parametrize(("low", "high"), BOXES)
def test_where_the_arms_lie_does_not_matter(low: float, high: float) -> None:
    unit = np.random.default_rng(0).random((60, 2))
    moved = low + unit
    for step in (1, 2):
        here = on(unit).kept(Arms.numbered(unit), step)
        there = on(moved).kept(Arms.numbered(moved), step)
        np.testing.assert_array_equal(here, there)


def test_extents_that_differ_and_arms_all_in_one_place() -> None:
    points = np.random.default_rng(1).random((50, 2)) * [4.0, 0.01]
    kept = on(points).kept(Arms.numbered(points), 1)
    assert np.ptp(points[kept, 0]) > 3.0
    single = np.full((3, 2), -2.0)
    assert on(single).kept(Arms.numbered(single), 5).sum() == 1


@pytest.mark.parametrize("step", [1, 2, 50])
def test_only_available_arms_are_offered(step: int) -> None:
    points = np.linspace(-1.0, 1.0, 41)[:, None]
    inner = Listener()
    policy = on(points, inner)
    available = np.arange(41) >= 30
    policy.decide(
        Offer(step=step, arms=Arms.numbered(points), available=available), np.random.default_rng(0)
    )
    (offer,) = inner.offers
    assert offer.available is not None
    assert offer.available.any()
    assert not (offer.available & ~available).any()
    if step == 50:
        np.testing.assert_array_equal(offer.available, available)
    assert available.sum() == 11  # what is handed in is not written to


def test_all_arms_are_offered_once_the_grid_is_fine() -> None:
    points = np.linspace(-1.0, 1.0, 21)[:, None]
    inner = Listener()
    policy = on(points, inner)
    sizes = []
    for step in range(1, 12):
        offer = Offer(step=step, arms=Arms.numbered(points), time=0.5, previous_action="last")
        policy.decide(offer, np.random.default_rng(0))
        seen = inner.offers[-1]
        assert (seen.step, seen.time, seen.previous_action) == (step, 0.5, "last")
        sizes.append(21 if seen.available is None else int(seen.available.sum()))
    assert sizes[0] < 21
    assert sizes == sorted(sizes)
    assert inner.offers[-1] is offer
    wide = np.random.default_rng(0).random((30, 6))
    assert on(wide, norm_bound=9.0).kept(Arms.numbered(wide), 1).all()  # a grid too large to build


def test_commitments_and_lessons_pass_through() -> None:
    points = np.linspace(0.0, 1.0, 5)[:, None]
    inner = Listener()
    policy = on(points, inner)
    offer, rng = Offer(step=1, arms=Arms.numbered(points)), np.random.default_rng(0)
    decision = policy.decide(offer, rng)
    policy.commit(decision)
    feedback = Feedback(positions=decision.positions, rewards=np.array([1.0]))
    policy.learn(offer, decision, feedback, rng)
    assert inner.told[0] is decision
    assert inner.told[1] == (offer, decision, feedback)
    assert policy.state().part("policy").kind == "listener"
    assert policy.deterministic


@pytest.mark.parametrize("shift", [0.0, -1.0, -3.0])
def test_gp_ts_on_shifted_arms(shift: float) -> None:
    points = np.random.default_rng(2).random((30, 2)) + shift
    model = Model(
        kernel=SquaredExponential(lengthscale=0.5),
        noise_variance=0.01,
        oracle=TopK(k=1),
        horizon=10,
        arms=points,
        norm_bound=1.0,
        noise_bound=0.1,
        gain={"name": "constant", "value": 1.0},
    )
    policy = build("policy", {"name": "gp-ts", "decision_set": "discretised"}, model=model)
    arms = Arms.numbered(points)
    assert 1 < policy.kept(arms, 1).sum() < 30
    chosen = policy.decide(Offer(step=1, arms=arms), np.random.default_rng(0)).positions
    assert policy.kept(arms, 1)[chosen].all()
