"""GP-MD and its baselines: against Algorithm 1 written out, propensities, episodes, restarts."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from superarm.core import Arms, Feedback, Offer, Posterior
from superarm.core.errors import (
    ConflictError,
    InputError,
    ShapeError,
    StateError,
    UnknownArmError,
)
from superarm.core.states import state_from_bytes, state_to_bytes
from superarm.kernels import Matern, SquaredExponential, Temporal
from superarm.lab.problems import DriftingFunction, MovementField
from superarm.lab.simulation import simulate
from superarm.models import Model
from superarm.movement import Forest, PointMetric
from superarm.movement.carrying import Walk
from superarm.oracles import TopK
from superarm.policies import cgp_lcb, gp_md, md_known, minc_known, offline, stationary
from superarm.policies.tree_index import TreeIndexPolicy
from superarm.policies.tree_policy import TreePolicy
from superarm.posteriors import (
    ChangeDetecting,
    Refitting,
    Resetting,
    Separate,
    StreamingGP,
)
from superarm.rules import UCB, Fixed


def world(**options: Any) -> MovementField:
    defaults = {"seed": 5, "horizon": 40, "side": 3, "contexts": 4, "episode": 5}
    return MovementField(**{**defaults, **options})


def played(
    policy: Any, problem: MovementField, steps: range, rng: np.random.Generator
) -> list[tuple[Offer, Any]]:
    """Rounds played; ``rng`` decides, and noise is drawn from a separate stream."""
    action, rounds = None, []
    for step in steps:
        offer = problem.offer(step).after(action)
        decision = policy.decide(offer, rng)
        policy.commit(decision)
        noise = problem.noise(offer, np.random.default_rng(step))
        policy.learn(offer, decision, problem.feedback(offer, decision, noise), rng)
        action = decision.action
        rounds.append((offer, decision))
    return rounds


@pytest.mark.parametrize("update", ["episode", "step", "first"])
def test_gp_md_is_algorithm_1_written_out(update: Any) -> None:
    """ "first" learns immediately only in the first episode."""
    problem = world()
    options = {"first_episode": "step"} if update == "first" else {"update": update}
    policy = gp_md(problem.model, trees=3, kappa=1.5, **options)  # type: ignore[arg-type]
    mine, rng = np.random.default_rng(8), np.random.default_rng(8)
    model, n = problem.model, len(problem.metric)
    forest: Forest | None = None
    X, y = np.empty((0, 3)), np.empty(0)
    X_old, y_old = X, y
    action = None
    rounds = played(policy, problem, range(1, 21), rng)
    for step in range(1, 21):
        offer = problem.offer(step).after(action)
        if forest is None:
            forest = Forest.grow(problem.metric, mine, trees=3, kappa=1.5)
        if offer.begins:
            walk_state = forest.begin(
                int(np.asarray(offer.previous_action)[0]), (step - 1) // 5
            )
            X_old, y_old = X, y
        at_once = update == "step" or (update == "first" and step <= 5)
        if at_once:
            X_old, y_old = X, y
        arms = offer.arms.features  # eq. 5
        K = model.kernel(X_old, X_old) + model.noise_variance * np.eye(len(X_old))
        k = model.kernel(arms, X_old)
        mean = model.mean + k @ np.linalg.solve(K, y_old - model.mean)
        variance = model.kernel.diag(arms) - np.sum(
            k * np.linalg.solve(K, k.T).T, axis=1
        )
        lcb = mean - 2.0 * np.sqrt(variance)
        move = forest.move(walk_state, lcb, mine, from_action=at_once)
        walk_state = move.walk_state
        action = np.array([walk_state.action])
        _, decision = rounds[step - 1]
        assert decision.positions.tolist() == [walk_state.action]
        assert decision.desirability == pytest.approx(-lcb[walk_state.action], abs=1e-8)
        assert decision.mean == pytest.approx(mean[walk_state.action], abs=1e-8)
        assert decision.std == pytest.approx(
            np.sqrt(variance[walk_state.action]), abs=1e-6
        )
        assert decision.carry.scalars["distance"] == pytest.approx(
            move.distance, abs=1e-6
        )
        np.testing.assert_allclose(
            decision.carry.arrays["distribution"], move.distribution, atol=1e-6
        )
        noise = problem.noise(offer, np.random.default_rng(step))
        X = np.vstack([X, arms[walk_state.action]])
        y = np.append(
            y, problem.means(offer)[walk_state.action] + noise[walk_state.action]
        )
    assert n == 9


def test_the_width_of_lemma_1() -> None:
    problem = world()
    model = replace(problem.model, norm_bound=1.5, noise_bound=0.3)
    policy = gp_md(model, width="lemma-1", delta=0.05, gain="growth")
    gamma = policy.rule.gamma
    expected = 1.5 + 0.3 / np.sqrt(model.noise_variance) * np.sqrt(
        2.0 * np.log(1.0 / 0.05) + 2.0 * gamma(6)
    )
    assert policy.rule.schedule.width(7, gamma) == pytest.approx(expected, rel=1e-12)
    with pytest.raises(InputError, match="norm_bound"):
        gp_md(replace(problem.model, norm_bound=None), width="lemma-1")
    with pytest.raises(InputError, match="width"):
        gp_md(problem.model, width="lemma-2")


@pytest.mark.slow
def test_propensities_are_true() -> None:
    """Repeated decisions from one state: frequencies against stated propensities."""
    problem = world()
    policy = gp_md(problem.model, trees=2)
    first = played(policy, problem, range(1, 8), np.random.default_rng(0))
    assert first[0][1].propensity is None  # trees were drawn with it
    assert all(decision.propensity is not None for _, decision in first[1:])
    for step in (8, 11):  # within an episode, and where one begins
        offer = problem.offer(step).after(first[-1][1].action)
        draws, rng = 4000, np.random.default_rng(1)
        propensities: dict[int, float] = {}
        seen: dict[int, int] = {}
        for _ in range(draws):
            decision = policy.decide(offer, rng)
            action = int(decision.positions[0])
            assert decision.propensity is not None
            propensities.setdefault(action, decision.propensity)
            assert decision.propensity == propensities[action]
            seen[action] = seen.get(action, 0) + 1
        assert sum(propensities.values()) <= 1.0 + 1e-9
        for (
            action,
            p,
        ) in propensities.items():  # five standard errors: once in a million
            assert (
                abs(seen[action] / draws - p)
                < 5.0 * np.sqrt(p * (1.0 - p) / draws) + 1e-12
            )


def test_expected_costs_are_those_of_the_distribution() -> None:
    """Over many walks with known costs, mean costs match their expectations."""
    problem = world()
    walks, rounds = 200, 10
    paid, expected = np.zeros((walks, rounds)), np.zeros((walks, rounds))
    forest = Forest.grow(problem.metric, np.random.default_rng(0))
    for walk in range(walks):
        policy = md_known(problem.model, problem=problem)
        # The same tree for all: only what is drawn on it differs.
        policy._walk = Walk(forest, -1, forest.begin(None), 0)
        rng = np.random.default_rng((1, walk))
        for place, (offer, decision) in enumerate(
            played(policy, problem, range(1, rounds + 1), rng)
        ):
            feedback = Feedback(positions=decision.positions, rewards=np.zeros(1))
            metrics = problem.metrics(offer, decision, feedback)
            paid[walk, place] = metrics["total_cost"]
            expected[walk, place] = metrics["expected_total_cost"]
    # Expectations do not depend on what is drawn (eqs. 16 to 18): with known costs all walks agree.
    np.testing.assert_allclose(
        expected, expected[0] + np.zeros_like(expected), atol=1e-12
    )
    error = paid.std(axis=0, ddof=1) / np.sqrt(walks)
    assert (np.abs(paid.mean(axis=0) - expected[0]) < 5.0 * error + 1e-9).all()


def test_decide_has_no_side_effects_and_commit_is_idempotent() -> None:
    problem = world()
    policy = gp_md(problem.model)
    played(policy, problem, range(1, 8), np.random.default_rng(0))
    before = state_to_bytes(policy.state())
    offer = problem.offer(8).after(np.array([0]))
    decision = policy.decide(offer, np.random.default_rng(2))
    policy.decide(offer, np.random.default_rng(3))
    assert state_to_bytes(policy.state()) == before
    policy.commit(decision)
    once = state_to_bytes(policy.state())
    policy.commit(decision)
    assert state_to_bytes(policy.state()) == once != before


@pytest.mark.parametrize("update", ["episode", "step"])
@pytest.mark.parametrize("stop", [1, 5, 7, 10])
def test_restart_does_not_change_decisions(update: Any, stop: int) -> None:
    problem = world()
    uninterrupted = gp_md(problem.model, trees=2, update=update)
    straight = played(uninterrupted, problem, range(1, 16), np.random.default_rng(4))
    policy = gp_md(problem.model, trees=2, update=update)
    rng = np.random.default_rng(4)
    first = played(policy, problem, range(1, stop + 1), rng)
    restored = gp_md(problem.model, trees=2, update=update).restored(
        state_from_bytes(state_to_bytes(policy.state()))
    )
    action = first[-1][1].action
    for step in range(stop + 1, 16):
        offer = problem.offer(step).after(action)
        decision = restored.decide(offer, rng)
        restored.commit(decision)
        noise = problem.noise(offer, np.random.default_rng(step))
        restored.learn(offer, decision, problem.feedback(offer, decision, noise), rng)
        action = decision.action
        known = straight[step - 1][1]
        assert decision.positions.tolist() == known.positions.tolist()
        # A restored posterior equals the other up to rounding.
        assert decision.propensity == pytest.approx(known.propensity, abs=1e-6)


def test_late_rewards_are_learned_when_the_next_episode_begins() -> None:
    problem = world()
    policy = gp_md(problem.model)
    rng = np.random.default_rng(0)
    offers = [problem.offer(step) for step in range(1, 12)]
    decisions, action = [], None
    for offer in offers[:7]:
        decisions.append(policy.decide(offer.after(action), rng))
        policy.commit(decisions[-1])
        action = decisions[-1].action
    assert policy.posterior.count == 0
    for place in (6, 0, 3):  # in any order
        decision = decisions[place]
        policy.learn(
            offers[place],
            decision,
            Feedback(positions=decision.positions, rewards=np.ones(1)),
            rng,
        )
    assert policy.posterior.count == 0
    begins = policy.decide(offers[10], rng)
    assert policy.posterior.count == 0  # decided, not committed
    policy.commit(begins)
    assert policy.posterior.count == 3


def test_walk_continues_from_an_operators_action() -> None:
    problem = world()
    policy = md_known(problem.model, problem=problem)
    played(policy, problem, range(1, 3), np.random.default_rng(0))
    assert policy._walk is not None
    forest, _, walk_state, _ = policy._walk
    for elsewhere in range(9):
        offer = problem.offer(3).after(np.array([elsewhere]))
        decision = policy.decide(offer, np.random.default_rng(1))
        there = walk_state._replace(action=elsewhere)
        move = forest.move(there, problem.means(offer), np.random.default_rng(1))
        assert decision.positions.tolist() == [move.walk_state.action]
        assert decision.propensity == move.probability
    chosen = [
        policy.decide(
            problem.offer(3).after(np.array([action])), np.random.default_rng(1)
        ).positions[0]
        for action in range(9)
    ]
    assert len(set(chosen)) > 1
    with pytest.raises(UnknownArmError, match="previous action"):
        policy.decide(problem.offer(3).after(np.array([9])), np.random.default_rng(1))
    with pytest.raises(InputError, match="2 arms"):
        policy.decide(
            problem.offer(3).after(np.array([1, 2])), np.random.default_rng(1)
        )


def test_first_step_is_free_without_a_start() -> None:
    points = np.linspace(0.0, 1.0, 4)[:, None]
    model = Model(
        kernel=SquaredExponential(), noise_variance=0.1, oracle=TopK(k=1), horizon=5,
        direction="minimize", metric=PointMetric(points=points),
    )  # fmt: skip
    policy = gp_md(model)
    decision = policy.decide(
        Offer(step=1, arms=Arms.numbered(points)), np.random.default_rng(0)
    )
    assert decision.carry is not None
    assert decision.carry.scalars["distance"] == 0.0
    policy.commit(decision)
    with pytest.raises(ShapeError, match="metric is over 4"):
        policy.decide(
            Offer(step=2, arms=Arms.numbered(points[:2])), np.random.default_rng(0)
        )


def test_one_action_only() -> None:
    points = np.zeros((1, 1))
    model = Model(
        kernel=SquaredExponential(), noise_variance=0.1, oracle=TopK(k=1), horizon=5,
        direction="minimize", metric=PointMetric(points=points),
    )  # fmt: skip
    policy = gp_md(model)
    offer = Offer(step=1, arms=Arms.numbered(points), previous_action=[0], begins=True)
    decision = policy.decide(offer, np.random.default_rng(0))
    assert decision.positions.tolist() == [0]


def test_gp_md_maximises_when_the_model_does() -> None:
    points = np.linspace(0.0, 1.0, 5)[:, None]
    model = Model(
        kernel=SquaredExponential(lengthscale=0.2), noise_variance=1e-4, oracle=TopK(k=1), horizon=60,
        metric=PointMetric(points=points, scale=1e-3),
    )  # fmt: skip
    policy = gp_md(model, update="step")
    rng, before = np.random.default_rng(0), np.array([0])
    for step in range(1, 61):
        offer = Offer(step=step, arms=Arms.numbered(points), previous_action=before)
        decision = policy.decide(offer, rng)
        policy.commit(decision)
        rewards = np.where(decision.positions == 3, 1.0, 0.0)
        policy.learn(
            offer,
            decision,
            Feedback(positions=decision.positions, rewards=rewards),
            rng,
        )
        before = decision.positions
    assert before.tolist() == [3]


def test_clipped_bounds_are_not_below_zero() -> None:
    problem = world()
    clipped, plain = (
        gp_md(problem.model, width=4.0, clip=clip) for clip in (True, False)
    )
    offer = problem.offer(1)
    values = [
        policy._score_actions(offer, True, np.random.default_rng(0))[0]
        for policy in (clipped, plain)
    ]
    assert values[1].max() > 0.0  # before any data a lower bound of the cost is below 0
    np.testing.assert_array_equal(values[0], np.minimum(values[1], 0.0))


def test_gp_md_composes_with_a_forgetting_posterior() -> None:
    drifting = DriftingFunction(seed=1, horizon=60, side=4, epsilon=0.2)
    model = replace(
        drifting.model, metric=PointMetric(points=drifting.offer(1).arms.features)
    )
    policy = gp_md(model, posterior="drifting", update="step")
    assert isinstance(policy, TreeIndexPolicy)
    assert type(policy.posterior).__name__ == "DriftingGP"
    run = simulate(drifting, {"gp-md": policy}, rounds=60, seed=1)
    assert np.isfinite(run["gp-md"].series["regret"]).all()
    assert policy.posterior.count == 60
    drifting_model = replace(model, drift=Temporal(epsilon=0.5))
    assert gp_md(drifting_model, posterior="drifting").posterior.drift.epsilon == 0.5


def test_baselines_match_their_names() -> None:
    problem = world()
    policies = {
        "stationary": stationary(problem.model),
        "minc-known": minc_known(problem.model, problem=problem),
        "offline": offline(problem.model, problem=problem),
        "cgp-lcb": cgp_lcb(problem.model),
    }
    traces = simulate(problem, policies, rounds=40, seed=5)
    starts = [
        int(np.asarray(problem.offer(1 + 5 * m).previous_action)[0]) for m in range(8)
    ]
    assert traces["stationary"].choices[:, 0].tolist() == np.repeat(starts, 5).tolist()
    assert not traces["stationary"].series["movement_cost"].any()
    least = [
        int(np.argmin(problem.means(problem.offer(step)))) for step in range(1, 41)
    ]
    assert traces["minc-known"].choices[:, 0].tolist() == least
    np.testing.assert_allclose(traces["offline"].series["regret"], 0.0, atol=1e-12)
    for name in ("stationary", "minc-known", "cgp-lcb"):
        sums = traces[name].series["regret"].reshape(8, 5).sum(axis=1)
        assert (
            sums >= -1e-12
        ).all()  # nothing beats the cheapest way through an episode


def test_offline_policy_requires_movement_costs() -> None:
    drifting = DriftingFunction(seed=1, horizon=10, side=4)
    with pytest.raises(InputError, match="movement-field"):
        offline(drifting.model, problem=drifting)
    with pytest.raises(InputError, match="metric"):
        gp_md(drifting.model)


def test_concurrent_decisions_see_a_consistent_walk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After every single thing that ``commit`` writes, a decision is the one of before or after it."""
    problem = world()
    policy = md_known(problem.model, problem=problem, trees=3)
    later = problem.offer(7).after(np.array([2]))

    def answer() -> bytes:
        """Of the trees and the walk; new trees are drawn where none are known."""
        decision = policy.decide(later, np.random.default_rng(5))
        assert decision.carry is not None
        return state_to_bytes(decision.carry)

    seen: list[bytes] = []

    def write(self: Any, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        seen.append(answer())

    rng, writes = np.random.default_rng(0), 0
    for step in (
        1,
        2,
        6,
    ):  # trees are drawn, the walk continues, another one begins on another tree
        offer = problem.offer(step)
        decision = policy.decide(
            offer if offer.begins else offer.after(np.array([1])), rng
        )
        before = answer()
        with monkeypatch.context() as watched:
            watched.setattr(TreePolicy, "__setattr__", write)
            policy.commit(decision)
        assert seen
        assert set(seen) <= {before, answer()}
        writes += len(seen)
        seen.clear()
    assert writes == 3


@pytest.mark.parametrize(
    "wrong", [{"tau": 1.005}, {"tau": 1e7}, {"kappa": 0.5}, {"trees": 10_001}]
)
def test_trees_that_could_not_be_drawn_are_refused_at_once(wrong: Any) -> None:
    problem = world()
    with pytest.raises(InputError, match=next(iter(wrong))):
        gp_md(problem.model, **wrong)
    with pytest.raises(InputError, match=next(iter(wrong))):
        md_known(problem.model, problem=problem, **wrong)


def test_damaged_walks_are_refused() -> None:
    problem = world()
    policy = gp_md(problem.model)
    played(policy, problem, range(1, 4), np.random.default_rng(0))
    state = policy.state()
    walk = state.parts["walk"]
    for changed in (
        {"tree": 1}, {"action": 9}, {"action": 1.5}, {"walk": -2}, {"trees": 0}, {"trees": 2},
    ):  # fmt: skip
        bad = replace(walk, scalars={**walk.scalars, **changed})
        with pytest.raises(StateError):
            gp_md(problem.model).restored(
                replace(state, parts={**state.parts, "walk": bad})
            )
    for changed in (
        {"q": walk.arrays["q"] * 2.0},
        {"q": -walk.arrays["q"]},
        {"q": walk.arrays["q"][1:]},
        {"parent-0": walk.arrays["parent-0"][::-1].copy()},
        {"weight-0": -walk.arrays["weight-0"]},
        {"leaf-0": walk.arrays["leaf-0"] * 0},
    ):
        bad = replace(walk, arrays={**walk.arrays, **changed})
        with pytest.raises(StateError):
            gp_md(problem.model).restored(
                replace(state, parts={**state.parts, "walk": bad})
            )
    assert len(state.arrays["held_noise"]) == 3
    for changed in (
        {"held_noise": -state.arrays["held_noise"]},
        {"held_noise": state.arrays["held_noise"][1:]},
        {"held_rewards": state.arrays["held_rewards"][1:]},
        {"held_rewards": state.arrays["held_rewards"] * np.nan},
    ):
        with pytest.raises(StateError):
            gp_md(problem.model).restored(
                replace(state, arrays={**state.arrays, **changed})
            )
    decision = policy.decide(
        problem.offer(4).after(np.array([0])), np.random.default_rng(0)
    )
    before = state_to_bytes(policy.state())
    for carry in (
        None,
        replace(decision.carry, kind="other"),
        replace(walk, scalars={}),
    ):
        with pytest.raises((InputError, StateError)):
            policy.commit(replace(decision, carry=carry))
    assert state_to_bytes(policy.state()) == before
    assert np.isfinite(policy.forest.stretch()).all()


def test_foreign_decisions_are_rejected_without_side_effects() -> None:
    problem = world()
    policy, other = gp_md(problem.model, trees=2), cgp_lcb(problem.model)
    rounds = played(policy, problem, range(1, 8), np.random.default_rng(0))
    offer = problem.offer(8).after(rounds[-1][1].action)
    decision = policy.decide(offer, np.random.default_rng(1))
    assert decision.carry is not None
    elsewhere = (decision.positions + 1) % 9
    before = state_to_bytes(policy.state())
    # Where probabilities are off by less than is seen at one vertex, but not in a product of them.
    off = replace(
        decision.carry, arrays={"q": decision.carry.arrays["q"] * (1.0 + 0.9e-9)}
    )
    for refused, error, message in (
        (
            other.decide(offer, np.random.default_rng(1)),
            InputError,
            "another policy made it",
        ),
        (replace(decision, carry=None), InputError, "another policy made it"),
        (replace(decision, positions=elsewhere), InputError, "changed on the way"),
        (replace(decision, step=9), InputError, "changed on the way"),
        (replace(decision, carry=off), StateError, "do not sum to 1"),
    ):
        with pytest.raises(error, match=message):
            policy.commit(refused)
        assert state_to_bytes(policy.state()) == before


def test_walk_rejects_earlier_decisions() -> None:
    """Decisions of the past, of this episode and the one before, with and without trees."""
    problem = world()
    policy = gp_md(problem.model, trees=2)
    rounds = played(policy, problem, range(1, 8), np.random.default_rng(0))
    restored = policy.restored(state_from_bytes(state_to_bytes(policy.state())))
    for walker in (policy, restored):
        before = state_to_bytes(walker.state())
        for _, late in rounds[:-1]:
            with pytest.raises(
                ConflictError, match=f"step {late.step} comes after that of step 7"
            ):
                walker.commit(late)
        walker.commit(rounds[-1][1])
        assert state_to_bytes(walker.state()) == before


def test_reads_during_a_commit_are_consistent() -> None:
    problem = world()
    calls = 0

    class Watched(TreeIndexPolicy):
        """Another thread may ask between any two changes: here it does."""

        watched = False

        def __setattr__(self, name: str, value: object) -> None:
            nonlocal calls
            super().__setattr__(name, value)
            if Watched.watched:
                calls += 1
                self.decide(
                    problem.offer(3).after(np.array([0])), np.random.default_rng(calls)
                )

    policy = Watched(**gp_md(problem.model, trees=2).parameters())
    for step in (1, 2, 6):
        decision = policy.decide(
            problem.offer(step).after(np.array([0])), np.random.default_rng(step)
        )
        Watched.watched = True
        policy.commit(decision)
        Watched.watched = False
    assert calls >= 6


def test_tau_is_checked_when_the_policy_is_made() -> None:
    with pytest.raises(InputError, match=r"tau must be .*, got 1\.005"):
        gp_md(world().model, tau=1.005)


def test_feedback_that_could_not_be_learned_is_rejected_immediately() -> None:
    problem = world()
    policy = gp_md(problem.model)
    rounds = played(policy, problem, range(1, 8), np.random.default_rng(0))
    offer = problem.offer(8).after(rounds[-1][1].action)
    decision = policy.decide(offer, np.random.default_rng(1))
    policy.commit(decision)
    before = state_to_bytes(policy.state())
    for noise in (1e-200, 1e200):
        feedback = Feedback(
            positions=decision.positions,
            rewards=np.ones(1),
            noise_variance=np.array([noise]),
        )
        with pytest.raises(InputError, match="noise_variance"):
            policy.learn(offer, decision, feedback, np.random.default_rng(2))
        assert state_to_bytes(policy.state()) == before
    for name, value in (
        ("held_noise", -1.0),
        ("held_noise", 1e200),
        ("held_rewards", 1e200),
    ):
        state = policy.state()
        damaged = replace(state, arrays={**state.arrays, name: np.full(2, value)})
        with pytest.raises(StateError, match="damaged"):
            policy.restored(damaged)
    policy.commit(policy.decide(problem.offer(11), np.random.default_rng(3)))
    assert policy.posterior.count == 7


def test_arms_of_one_episode_have_the_same_columns() -> None:
    """Before the first observation, the posterior has no number of columns."""
    points = np.linspace(0.0, 1.0, 4)[:, None]
    model = Model(
        kernel=SquaredExponential(), noise_variance=0.1, oracle=TopK(k=1), horizon=5,
        direction="minimize", metric=PointMetric(points=points),
    )  # fmt: skip
    policy, rng = gp_md(model), np.random.default_rng(0)
    for step, features in ((1, points), (2, np.tile(points, 2))):
        offer = Offer(step=step, arms=Arms.numbered(features))
        decision = policy.decide(offer, rng)
        policy.commit(decision)
        feedback = Feedback(positions=decision.positions, rewards=np.ones(1))
        if step == 1:
            policy.learn(offer, decision, feedback, rng)
    with pytest.raises(ShapeError, match="feature columns"):
        policy.learn(offer, decision, feedback, rng)
    policy.commit(
        policy.decide(Offer(step=3, arms=Arms.numbered(points), begins=True), rng)
    )
    assert policy.posterior.count == 1


def test_held_rewards_of_another_shape_are_damage() -> None:
    problem = world()
    policy = gp_md(problem.model)
    played(policy, problem, range(1, 8), np.random.default_rng(0))
    state = policy.state()
    assert sorted(state.arrays) == ["held_keys", "held_noise", "held_rewards"]
    odd = (np.array(1.0), np.zeros(0), np.full((2, 9), 5.0), np.array(["a"] * 5))
    walk = state.part("walk")
    for array in odd:
        for name in state.arrays:
            with pytest.raises(StateError):
                policy.restored(replace(state, arrays={**state.arrays, name: array}))
        for name in walk.arrays:
            part = replace(walk, arrays={**walk.arrays, name: array})
            with pytest.raises(StateError):
                policy.restored(replace(state, parts={**state.parts, "walk": part}))


def test_rewards_that_are_held_are_copies() -> None:
    problem, rng = world(), np.random.default_rng(0)
    policy, buffer = gp_md(problem.model), np.ones(1)
    for step in (1, 2):
        decision = policy.decide(problem.offer(step), rng)
        policy.commit(decision)
        feedback = Feedback(positions=decision.positions, rewards=buffer)
        policy.learn(problem.offer(step), decision, feedback, rng)
        buffer[0] += 1.0
    np.testing.assert_array_equal(policy.state().arrays["held_rewards"], [1.0, 2.0])


@pytest.mark.parametrize("update", ["episode", "step"])
def test_expected_costs_average_over_all_walks(update: Any) -> None:
    """Every walk through an episode, weighted by its probability: costs and expectations."""
    problem = world(seed=6, side=2, episode=3, contexts=2, rho=3.0)

    def new_policy() -> TreeIndexPolicy:
        return gp_md(problem.model, update=update, width=0.2, kappa=8.0)

    def ways(policy: Any, action: Any, step: int) -> np.ndarray[Any, Any]:
        """Mass, cost and expected cost over all continuations."""
        if step > 6:
            return np.array([1.0, 0.0, 0.0])
        offer, decisions, total = problem.offer(step).after(action), {}, np.zeros(3)
        for seed in range(150):  # draws until all that is not very improbable was there
            decision = policy.decide(offer, np.random.default_rng(seed))
            decisions.setdefault(int(decision.positions[0]), decision)
        for decision in decisions.values():
            feedback = problem.feedback(offer, decision, np.zeros(4))
            metrics = problem.metrics(offer, decision, feedback)
            after = new_policy().restored(policy.state())
            after.commit(decision)
            after.learn(offer, decision, feedback, np.random.default_rng(0))
            remaining = ways(after, decision.action, step + 1)
            here = (
                np.array([0.0, metrics["total_cost"], metrics["expected_total_cost"]])
                * remaining[0]
            )
            total += decision.propensity * (remaining + here)
        return total

    policy = new_policy()
    action = played(policy, problem, range(1, 4), np.random.default_rng(0))[-1][
        1
    ].action
    mass, paid, expected = ways(policy, action, 4)
    assert mass > 0.9999
    # What was not found may cost at most the range of f and the diameter in each of three rounds.
    assert (
        abs(paid - expected)
        < (1.0 - mass) * 3.0 * (0.75 + problem.metric.distances.max()) + 1e-9
    )
    assert paid > 0.0


def test_rewards_held_indefinitely_raise_a_warning() -> None:
    """Without episodes, rewards held for the next episode are never learned."""
    points = np.linspace(0.0, 1.0, 3)[:, None]
    model = Model(
        kernel=SquaredExponential(), noise_variance=0.1, oracle=TopK(k=1), horizon=2000,
        direction="minimize", metric=PointMetric(points=points),
    )  # fmt: skip
    policy, rng, arms = gp_md(model), np.random.default_rng(0), Arms.numbered(points)

    def play(steps: range) -> None:
        for step in steps:
            offer = Offer(step=step, arms=arms, previous_action=[0])
            decision = policy.decide(offer, rng)
            policy.commit(decision)
            policy.learn(
                offer,
                decision,
                Feedback(positions=decision.positions, rewards=np.ones(1)),
                rng,
            )

    play(range(1, 1000))
    before = state_to_bytes(policy.state())
    offer = Offer(step=999, arms=arms, previous_action=[0])
    decision = policy.decide(replace(offer, step=1000), rng)
    policy.commit(decision)
    taken = state_to_bytes(policy.state())
    reward = Feedback(positions=decision.positions, rewards=np.ones(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="1000 rewards"):
            policy.learn(replace(offer, step=1000), decision, reward, rng)
    assert (
        state_to_bytes(policy.state()) == taken != before
    )  # nothing was learned by halves
    with pytest.warns(UserWarning, match=r"1000 rewards .* use update='step'"):
        policy.learn(replace(offer, step=1000), decision, reward, rng)
    play(range(1001, 1010))  # once


def test_one_action_a_round() -> None:
    problem = world()
    with pytest.raises(InputError, match="one action a round"):
        gp_md(replace(problem.model, oracle=TopK(k=2)))
    with pytest.raises(InputError, match="composed"):
        md_known(replace(problem.model, oracle=TopK(k=2)), problem=problem)


def test_rewards_beyond_the_posteriors_capacity_are_rejected_on_arrival() -> None:
    """Not when the next episode begins: then no decision could be made any more."""
    points = np.linspace(0.0, 1.0, 4)[:, None]
    policy = TreeIndexPolicy(
        posterior=StreamingGP(Matern(nu=0.5, lengthscale=0.1), 0.1, most_exact=3),
        rule=UCB(schedule=Fixed(value=1.0)),
        metric=PointMetric(points=points),
    )
    arms, rng = Arms.numbered(points), np.random.default_rng(0)
    refused = 0
    for step in range(1, 9):
        offer = Offer(step=step, arms=arms, begins=step % 2 == 1)
        decision = policy.decide(offer, rng)
        policy.commit(decision)
        feedback = Feedback(positions=decision.positions, rewards=np.ones(1))
        if step <= 3:
            policy.learn(offer, decision, feedback, rng)
            continue
        with pytest.raises(InputError, match=r"most_exact = 3.*give inducing=1000"):
            policy.learn(offer, decision, feedback, rng)
        refused += 1
    assert (policy.posterior.count, refused) == (3, 5)


@pytest.mark.parametrize(
    ("wrap", "learned"),
    [
        pytest.param(
            lambda gp: Resetting(gp, block=6),
            [1, 2, 3, 7, 8, 9, 13, 14, 15],
            id="resetting",
        ),
        pytest.param(ChangeDetecting, [1, 2, 3], id="change-detecting"),
        pytest.param(
            lambda gp: Refitting(gp, every=100, most=100), [1, 2, 3], id="refitting"
        ),
        # Refitting keeps the last two observations, so that there is always room for two more.
        pytest.param(
            lambda gp: Refitting(gp, every=2, most=2, work=100),
            [*range(1, 17)],
            id="refitting-few",
        ),
    ],
)
def test_wrapped_posteriors_reject_rewards_beyond_capacity_on_arrival(
    wrap: Callable[[StreamingGP], Posterior], learned: list[int]
) -> None:
    points = np.linspace(0.0, 1.0, 4)[:, None]
    policy = TreeIndexPolicy(
        posterior=wrap(StreamingGP(Matern(nu=0.5, lengthscale=0.1), 0.1, most_exact=3)),
        rule=UCB(schedule=Fixed(value=1.0)),
        metric=PointMetric(points=points),
    )
    arms, rng = Arms.numbered(points), np.random.default_rng(0)
    for step in range(1, 17):
        offer = Offer(step=step, arms=arms, begins=step % 2 == 1)
        decision = policy.decide(offer, rng)
        policy.commit(decision)
        feedback = Feedback(positions=decision.positions, rewards=np.ones(1))
        if step in learned:
            policy.learn(offer, decision, feedback, rng)
            continue
        with pytest.raises(InputError, match="most_exact = 3"):
            policy.learn(offer, decision, feedback, rng)


def test_separate_learners_reject_rewards_beyond_capacity_on_arrival() -> None:
    points = np.arange(2.0)[:, None]
    inside = StreamingGP(Matern(nu=0.5, lengthscale=0.1), 0.1, most_exact=2)
    gp = Separate(inside, column=0)
    gp.observe(points[[0, 0]], [1.0, 2.0])
    gp.check_room(points[[1, 1]], [1.0, 2.0])
    with pytest.raises(InputError, match="3 observations are more than most_exact = 2"):
        gp.check_room(points[[1, 0]], [1.0, 2.0], [0.1, 0.2])


def test_capacity_freed_by_an_alarm_is_used() -> None:
    inside = StreamingGP(Matern(nu=0.5, lengthscale=0.1), 0.1, most_exact=3)
    gp = ChangeDetecting(inside, run_length=10.0)
    gp.observe([[0.0, step] for step in (1, 2, 3)], [0.1, -0.1, 0.0])
    with pytest.raises(InputError, match="most_exact = 3"):
        gp.check_room([[0.0, 4]], [0.0])
    gp.check_room([[0.0, 4]], [50.0])  # so far off that all before it is forgotten
    assert gp.count == 3


def test_algorithm_1_keeps_its_start_in_the_first_episode_unless_warm_started() -> None:
    """Before data all lower bounds are equal, and equal costs move nothing."""
    moves = {}
    for first in ("episode", "step"):
        problem = world(rho=50.0, horizon=10)
        policy = gp_md(problem.model, first_episode=first, kappa=20.0)  # type: ignore[arg-type]
        rounds = played(policy, problem, range(1, 6), np.random.default_rng(0))
        start = int(np.asarray(rounds[0][0].previous_action)[0])
        assert policy.posterior.count == (0 if first == "episode" else 5)
        moves[first] = sum(
            int(decision.positions[0]) != start for _, decision in rounds
        )
    assert moves["episode"] == 0
    assert moves["step"] > 0
    with pytest.raises(InputError, match="first_episode"):
        gp_md(world().model, first_episode="never")  # type: ignore[arg-type]


def test_the_walk_state_is_where_the_walk_is() -> None:
    problem = world()
    policy = gp_md(problem.model)
    assert policy.walk_state is None
    rounds = played(policy, problem, range(1, 4), np.random.default_rng(0))
    assert policy.walk_state is not None
    assert policy.walk_state.action == int(rounds[-1][1].positions[0])
