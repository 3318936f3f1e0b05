"""Every policy meets the same offers and the same noise, whatever else runs and in what order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from superarm.core import (
    Arms,
    Best,
    Decision,
    Direction,
    Feedback,
    Floats,
    Guarantee,
    Offer,
    State,
    registry,
)
from superarm.core.errors import ConflictError, InputError
from superarm.core.states import state_to_bytes as state_bytes
from superarm.core.streams import stream
from superarm.lab.problems import FiniteProblem
from superarm.lab.simulation import Trace, runner, simulate

CHANGING = {"name": "crowdsourcing", "source": "synthetic", "k": 3, "workers": 15}
FIXED = {"name": "gp-function", "arms": 20}
NAMES = ("oclok-ucb", "gp-ts", "random")


def problem_of(spec: Mapping[str, Any], seed: int = 5) -> Any:
    return registry.build("problem", spec, seed=seed, horizon=60)


def run(
    spec: Mapping[str, Any], names: tuple[str, ...], rounds: int = 30, seed: int = 5
) -> dict[str, Trace]:
    problem = problem_of(spec, seed)
    policies = {
        name: registry.build(
            "policy",
            {"name": name} | ({"scaled": False} if name == "gp-ts" else {}),
            model=problem.model,
        )
        for name in names
    }
    return simulate(problem, policies, rounds=rounds, seed=seed)


def same(one: Trace, other: Trace) -> bool:
    return (
        one.choices.tobytes() == other.choices.tobytes()
        and one.series.keys() == other.series.keys()
        and all(
            one.series[key].tobytes() == other.series[key].tobytes()
            for key in one.series
        )
    )


@pytest.mark.parametrize("spec", [CHANGING, FIXED], ids=lambda spec: spec["name"])
def test_policies_do_not_affect_each_other(spec: Mapping[str, Any]) -> None:
    together = run(spec, NAMES)
    reversed_order = run(spec, NAMES[::-1])
    for name in NAMES:
        assert same(together[name], reversed_order[name])
        assert same(together[name], run(spec, (name,))[name])
    assert not same(together["random"], together["gp-ts"])
    assert not same(run(spec, ("random",), seed=6)["random"], together["random"])


@pytest.mark.parametrize("numbers", [1, 50, 400, 1 << 30])
@pytest.mark.parametrize("spec", [CHANGING, FIXED], ids=lambda spec: spec["name"])
def test_block_size_does_not_matter(
    spec: Mapping[str, Any], numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run(spec, NAMES)
    monkeypatch.setattr(runner, "_BLOCK_NUMBERS", numbers)
    repeated = run(spec, NAMES)
    assert all(same(expected[name], repeated[name]) for name in NAMES)


def test_a_longer_run_begins_like_a_shorter_one() -> None:
    short, long = run(CHANGING, NAMES, rounds=10), run(CHANGING, NAMES, rounds=30)
    for name in NAMES:
        np.testing.assert_array_equal(
            short[name].series["regret"], long[name].series["regret"][:10]
        )


class Costs:
    """Three arms whose costs are 1, 2, 3; records its draws."""

    direction: Direction = "minimize"

    def __init__(self) -> None:
        self.arms = Arms(ids=["a", "b", "c"], features=[[0.0], [1.0], [2.0]])

    def offer(self, step: int) -> Offer:
        return Offer(step=step, arms=self.arms)

    def noise(self, offer: Offer, rng: np.random.Generator) -> Floats:
        return rng.standard_normal(3)

    def feedback(self, offer: Offer, decision: Decision, noise: Floats) -> Feedback:
        positions = decision.positions
        rewards = np.array([1.0, 2.0, 3.0])[positions] + noise[positions]
        return Feedback(positions=positions, rewards=rewards)

    def value(self, offer: Offer, decision: Decision) -> float:
        return float(np.array([1.0, 2.0, 3.0])[decision.positions].sum())

    def best(self, offer: Offer) -> Best:
        return Best(1.0)

    def metrics(
        self, offer: Offer, decision: Decision, feedback: Feedback
    ) -> Mapping[str, float]:
        return {"paid": float(feedback.rewards.sum())} if offer.step % 2 else {}


class Scripted:
    """Plays given positions and records its feedback and random numbers."""

    exchangeable = True

    def __init__(
        self,
        plan: list[list[int]],
        deterministic: bool,
        propensities: Sequence[float | None] = (),
    ) -> None:
        self.plan = plan
        self.propensities = propensities
        self.deterministic = deterministic
        self.calls: list[str] = []
        self.rewards: list[Floats] = []
        self.draws: list[tuple[float, float]] = []
        self._drawn = 0.0

    def decide(self, offer: Offer, rng: np.random.Generator) -> Decision:
        self.calls.append("decide")
        self._drawn = 0.0 if self.deterministic else rng.random()
        positions = np.array(self.plan[offer.step - 1], dtype=np.intp)
        known = self.propensities[offer.step - 1] if self.propensities else None
        return Decision(
            step=offer.step, action=None, positions=positions, propensity=known
        )

    def commit(self, decision: Decision) -> None:
        self.calls.append("commit")

    def learn(
        self,
        offer: Offer,
        decision: Decision,
        feedback: Feedback,
        rng: np.random.Generator,
    ) -> None:
        self.calls.append("learn")
        self.rewards.append(feedback.rewards)
        self.draws.append((self._drawn, 0.0 if self.deterministic else rng.random()))

    def state(self) -> State:
        return State(kind="scripted", schema=1)

    def restored(self, state: State) -> Scripted:
        return self


PLAN = [[0], [1, 2], [2], [0, 1, 2]]


@pytest.mark.parametrize(
    ("direction", "expected"),
    [
        (
            "minimize",
            [1.0 - 4.0, 5.0 - 4.0, 3.0 - 4.0, 6.0 - 4.0],
        ),  # a cost: the optimum over α
        (
            "maximize",
            [1.0 - 1.0, 1.0 - 5.0, 1.0 - 3.0, 1.0 - 6.0],
        ),  # a reward: α × the optimum
    ],
)
def test_alpha_regret_uses_the_oracles_guarantee(
    direction: Direction, expected: list[float]
) -> None:
    """The optimum is 2, of which the oracle promises a half: to cost at most 4, or to earn 1."""

    class Promised(Costs):
        def best(self, offer: Offer) -> Best:
            return Best(1.0, Guarantee(alpha=0.5), optimum=2.0)

    problem = Promised()
    problem.direction = direction
    trace = simulate(problem, {"mine": Scripted(PLAN, True)}, rounds=4, seed=0)["mine"]
    np.testing.assert_array_equal(trace.series["alpha_regret"], expected)


@pytest.mark.parametrize(
    ("known", "recorded"),
    [
        ([1.0] * 4, False),
        ([None] * 4, False),
        ([1.0, None] * 2, True),
        ([0.5, 1.0] * 2, True),
    ],
)
def test_propensities_are_recorded_unless_all_are_1_or_unknown(
    known: list[float | None], recorded: bool
) -> None:
    policy = Scripted(PLAN, deterministic=False, propensities=known)
    propensities = simulate(Costs(), {"me": policy}, rounds=4, seed=9)[
        "me"
    ].propensities
    assert (propensities is not None) == recorded
    if propensities is not None:
        np.testing.assert_array_equal(
            propensities,
            [np.nan if propensity is None else propensity for propensity in known],
        )


def test_streams_are_those_of_the_definition() -> None:
    policy = Scripted(PLAN, deterministic=False)
    trajectory = simulate(Costs(), {"me": policy}, rounds=4, seed=9)["me"]
    assert policy.calls == ["decide", "commit", "learn"] * 4
    for step, positions in enumerate(PLAN, start=1):
        noise = stream(9, "noise", step).standard_normal(3)
        expected = np.array([1.0, 2.0, 3.0])[positions] + noise[positions]
        np.testing.assert_array_equal(policy.rewards[step - 1], expected)
        assert policy.draws[step - 1] == (
            stream(9, "policy:me", step).random(),
            stream(9, "learn:me", step).random(),
        )
        if step % 2:
            assert trajectory.series["paid"][step - 1] == float(expected.sum())
        else:
            assert trajectory.series["paid"][step - 1] == 0.0
    assert trajectory.series["regret"].tolist() == [
        0.0,
        4.0,
        2.0,
        5.0,
    ]  # costs above the best
    assert trajectory.choices.tolist() == [
        [0, -1, -1],
        [1, 2, -1],
        [2, -1, -1],
        [0, 1, 2],
    ]
    assert trajectory.choices.dtype == np.int32
    assert trajectory.seconds.shape == (4,)
    assert (trajectory.seconds >= 0.0).all()


def test_deterministic_policies_ignore_generators() -> None:
    policies = {flag: Scripted(PLAN, deterministic=flag) for flag in (True, False)}
    runs = simulate(
        Costs(), {"yes": policies[True], "no": policies[False]}, rounds=4, seed=9
    )
    assert same(runs["yes"], runs["no"])
    for one, other in zip(policies[True].rewards, policies[False].rewards, strict=True):
        np.testing.assert_array_equal(one, other)


# --- blocks of rounds at once ------------------------------------------------------------


class Gated(FiniteProblem):
    """From round 3 on half of the arms at a time, and a metric: a table shows neither."""

    __slots__ = ()

    def offer(self, step: int) -> Offer:
        available = np.arange(len(self.arms)) % 2 == step % 2
        return Offer(
            step=step, arms=self.arms, available=None if step < 3 else available
        )

    def metrics(
        self, offer: Offer, decision: Decision, feedback: Feedback
    ) -> Mapping[str, float]:
        return {"reward": float(feedback.rewards.sum())}


class HasMetrics(FiniteProblem):
    """The same arms in every round, with a metric."""

    __slots__ = ()

    def metrics(
        self, offer: Offer, decision: Decision, feedback: Feedback
    ) -> Mapping[str, float]:
        return {"reward": float(feedback.rewards.sum())}


def from_finite(kind: type[FiniteProblem]) -> FiniteProblem:
    problem = problem_of(FIXED)
    return kind(
        arms=problem.arms,
        truth=problem.truth,
        noise_std=problem.noise_std,
        model=problem.model,
    )


def watched_and_not(problem: Any) -> tuple[dict[str, Trace], dict[str, Trace]]:
    runs = []
    for watch in (None, lambda *_: None):
        policies = {
            name: registry.build("policy", name, model=problem.model)
            for name in ("igp-ucb", "gp-ts")
        }
        runs.append(simulate(problem, policies, rounds=30, seed=5, watch=watch))
    return runs[0], runs[1]


@pytest.mark.parametrize("kind", [FiniteProblem, Gated, HasMetrics])
def test_a_watched_run_is_the_same(kind: type[FiniteProblem]) -> None:
    unwatched, watched = watched_and_not(from_finite(kind))
    for name, trajectory in unwatched.items():
        assert same(trajectory, watched[name])
        assert ("reward" in trajectory.series) == (kind is not FiniteProblem)


@pytest.mark.parametrize(
    "extra",
    [
        {"available": np.arange(20) > 3},
        {"structure": "s"},
        {"time": 1.0},
        {"previous_action": "p"},
    ],
    ids=lambda extra: next(iter(extra)),
)
def test_rounds_that_differ_by_more_than_noise_form_no_table(
    extra: dict[str, Any],
) -> None:
    class Odd(FiniteProblem):
        __slots__ = ()

        def table(self, noise: Floats) -> Floats:
            raise AssertionError("there is no table")

        def offer(self, step: int) -> Offer:
            return Offer(step=step, arms=self.arms, **(extra if step == 7 else {}))

    problem = from_finite(Odd)
    policy = registry.build("policy", "igp-ucb", model=problem.model)
    choices = simulate(problem, {"a": policy}, rounds=9, seed=5)["a"].choices
    assert choices.shape == (9, 1)


def test_the_table_is_made_once_for_all_policies() -> None:
    shapes = []

    class Counted(FiniteProblem):
        __slots__ = ()

        def table(self, noise: Floats) -> Floats:
            shapes.append(noise.shape)
            return self.truth + noise

    problem = from_finite(Counted)
    policies = {
        label: registry.build("policy", "igp-ucb", model=problem.model)
        for label in ("a", "b", "c")
    }
    runs = simulate(problem, policies, rounds=30, seed=5)
    assert shapes == [(30, 20)]
    assert same(runs["a"], runs["c"])


def test_a_table_is_not_played_twice_by_one_policy() -> None:
    """Its rounds are already learned: continuing would count every reward twice."""
    problem = from_finite(FiniteProblem)
    policy = registry.build("policy", "igp-ucb", model=problem.model)
    simulate(problem, {"a": policy}, rounds=30, seed=5)
    before = state_bytes(policy.state())
    with pytest.raises(ConflictError, match="learned already"):
        simulate(problem, {"a": policy}, rounds=30, seed=6)
    assert state_bytes(policy.state()) == before
    policy.restored(policy.state())


def test_mistakes_and_failures_surface() -> None:
    with pytest.raises(InputError, match=r"rounds must be .*, got 0"):
        simulate(Costs(), {}, rounds=0, seed=0)
    assert simulate(Costs(), {}, rounds=2, seed=0) == {}
    with pytest.raises(IndexError):
        simulate(
            Costs(), {"short": Scripted(PLAN[:1], deterministic=True)}, rounds=2, seed=0
        )
    with pytest.raises(
        InputError, match=r"policy 'a' is 3, which has no deterministic, .*learn, state"
    ):
        simulate(Costs(), {"a": 3}, rounds=1, seed=0)  # type: ignore[dict-item]
    with pytest.raises(InputError, match=r"seed must be .*, got -1"):
        simulate(Costs(), {}, rounds=1, seed=-1)
