"""Audits: coverage against a slow count, and Lemma A.12 on every recorded run."""

from __future__ import annotations

import numpy as np
import pytest

from superarm.core import AT_95, Arms, Decision, Feedback, Forecast, Offer
from superarm.core.states import state_from_bytes, state_to_bytes
from superarm.kernels import SquaredExponential
from superarm.lab.simulation import simulate
from superarm.lab.simulation.audit import LEVELS, QUANTILES, Audit, _normal_score
from superarm.lab.theory import variance_sum_bound
from superarm.oracles import TopK
from superarm.policies import IndexPolicy
from superarm.posteriors import StreamingGP
from superarm.roads.policies import (
    known_cost,
    route_bucb,
    route_greedy,
    route_ts,
    route_ucb,
)
from superarm.roads.problems import Navigation
from superarm.rules import Greedy

ROUNDS = 30


@pytest.fixture(scope="module")
def world() -> Navigation:
    return Navigation(seed=1, horizon=ROUNDS, edges=300)


@pytest.fixture(scope="module")
def played(world):
    model = world.model
    policies = {
        "gp-ts": route_ts(model),
        "gp-ts-joint": route_ts(model, mode="joint"),
        "gp-ucb": route_ucb(model),
        "gp-bucb": route_bucb(model),
        "gp-greedy": route_greedy(model),
        "bi-ts": route_ts(model, posterior="independent"),
        "shortest": known_cost(model, cost="length"),
    }
    return simulate(world, policies, rounds=ROUNDS, seed=1)


def test_quantiles_are_those_of_the_levels() -> None:
    from scipy.stats import norm

    np.testing.assert_allclose(
        QUANTILES, norm.ppf(0.5 + np.array(LEVELS) / 2.0), rtol=1e-12
    )
    assert list(LEVELS) == sorted(LEVELS)  # as scores of other widths need it


def test_a_forecast_adds_up() -> None:
    cov = np.array([[2.0, 0.5], [0.5, 1.0]])
    mean, std = Forecast(np.array([1.0, 2.0]), cov, 0.5).total()
    assert mean == 3.0
    assert std == pytest.approx(np.sqrt(4.0 + 2 * 0.25))


def test_stated_noise_replaces_the_models_noise() -> None:
    cov, noise = (
        np.array([[2.0, 0.5], [0.5, 1.0]]),
        np.array([[3.0, 0.25], [0.25, 0.5]]),
    )
    forecast = Forecast(np.array([1.0, 2.0]), cov, 7.0, noise_cov=noise)
    np.testing.assert_allclose(forecast.stds(), np.sqrt([5.0, 1.5]))
    assert forecast.total() == (3.0, pytest.approx(np.sqrt(4.0 + 4.0)))


def test_scores_of_other_widths_are_as_far_out_as_a_normals() -> None:
    """At each width a normal's at that level; between them linear, beyond them in proportion."""
    assert _normal_score(-1.3, QUANTILES) == -1.3
    widths = 2.0 ** np.arange(len(LEVELS))  # 1, 2, 4, …
    between = 0.5 * (widths[:-1] + widths[1:])
    quantiles_between = 0.5 * (QUANTILES[:-1] + QUANTILES[1:])
    for sign in (1.0, -1.0):
        for width, quantile in zip(widths, QUANTILES, strict=True):
            assert _normal_score(sign * width, widths) == pytest.approx(sign * quantile)
        for width, quantile in zip(between, quantiles_between, strict=True):
            assert _normal_score(sign * width, widths) == pytest.approx(sign * quantile)
        assert _normal_score(sign * 0.5, widths) == pytest.approx(
            sign * 0.5 * QUANTILES[0]
        )
        widest = widths[-1]
        assert _normal_score(sign * 1.5 * widest, widths) == pytest.approx(
            sign * 1.5 * QUANTILES[-1]
        )
    assert _normal_score(0.0, widths) == 0.0


@pytest.mark.parametrize("summed", [False, True])
def test_forecasts_are_judged_by_their_own_widths(summed) -> None:
    """Arms by those of arms, totals by those of totals; of sums nothing is known of single arms."""
    policy = IndexPolicy(
        posterior=StreamingGP(SquaredExponential(), 1.0),
        rule=Greedy(),
        oracle=TopK(k=2),
    )
    # The narrowest holds no reward, the widest both, all others one.
    of_arms, expected_within = np.ones(len(LEVELS)), np.full(len(LEVELS), 0.5)
    of_arms[[0, -1]], expected_within[[0, -1]] = (0.1, 3.0), (0.0, 1.0)
    of_totals = 2.0 ** np.arange(1, 1 + len(LEVELS))  # 2, 4, 8, …
    forecast = Forecast(
        np.zeros(2),
        np.zeros((2, 2)),
        9.0,
        np.diag([1.0, 4.0]),
        widths=of_arms,
        total_widths=of_totals,
    )
    offer = Offer(step=1, arms=Arms.numbered(np.arange(5.0)[:, None]))
    rewards, positions = np.array([1.5, 1.5]), np.arange(2)
    seen = (
        Feedback(
            positions=positions,
            rewards=rewards.sum(keepdims=True),
            sums=np.zeros(2, dtype=int),
        )
        if summed
        else Feedback(positions=positions, rewards=rewards)
    )
    audit = Audit(policy, 1)
    audit.record(
        forecast, Decision(step=1, action=None, positions=positions), seen, None
    )
    arrays = audit.arrays(offer)
    expected = 3.0 / np.sqrt(5.0) / 2.0 * QUANTILES[0]
    assert arrays["score"][0] == pytest.approx(expected, rel=1e-6)
    if summed:
        expected_within[:] = np.nan
    np.testing.assert_array_equal(arrays["within"][0], expected_within)


def test_only_what_learns_is_audited(played) -> None:
    assert played["shortest"].audit is None
    assert played["shortest"].state is None
    for name in set(played) - {"shortest"}:
        assert played[name].audit is not None


def test_audit_matches_a_slow_replay(world, played) -> None:
    trajectory = played["gp-ts"]
    policy = route_ts(world.model)
    from superarm.core.streams import Streams

    noises = Streams(1, "noise")
    driven: set[int] = set()
    for step in range(1, ROUNDS + 1):
        offer = world.offer(step)
        row = trajectory.choices[step - 1]
        route = row[row >= 0].astype(np.intp)
        decision = Decision(step=step, action=None, positions=route)
        feedback = world.feedback(offer, decision, world.noise(offer, noises.at(step)))
        rewards = feedback.rewards
        mean, cov = policy.posterior.predict(route, return_cov=True)
        noise = world.model.noise_variance
        for level, width in enumerate(QUANTILES):
            inside = [
                abs(rewards[i] - mean[i]) <= width * np.sqrt(cov[i, i] + noise)
                for i in range(len(route))
            ]
            assert trajectory.audit["within"][step - 1, level] == pytest.approx(
                np.mean(inside)
            )
            first_driven = [
                inside[i] for i in range(len(route)) if route[i] not in driven
            ]
            assert trajectory.audit["firsts"][step - 1] == len(first_driven)
            if first_driven:
                assert trajectory.audit["first"][step - 1, level] == pytest.approx(
                    np.mean(first_driven)
                )
            true = np.abs(world.energies[route] - mean) <= width * np.sqrt(
                np.diagonal(cov)
            )
            assert trajectory.audit["true_within"][step - 1, level] == pytest.approx(
                np.mean(true)
            )
        driven |= set(route.tolist())
        off = (world.energies[route].sum() - mean.sum()) / np.sqrt(cov.sum())
        assert trajectory.audit["true_score"][step - 1] == pytest.approx(
            off, rel=1e-4, abs=1e-5
        )
        spread = np.sqrt(cov.sum() + len(route) * noise)
        score = (rewards.sum() - mean.sum()) / spread
        assert trajectory.audit["score"][step - 1] == pytest.approx(
            score, rel=1e-4, abs=1e-5
        )
        largest = np.linalg.eigvalsh(cov)[-1]
        assert trajectory.audit["largest_eigenvalue"][step - 1] == pytest.approx(
            largest, rel=1e-5
        )
        before = policy.information_gain
        policy.commit(decision)
        policy.learn(offer, decision, feedback, noises.at(1))
        gained = policy.information_gain - before
        assert trajectory.audit["information"][step - 1] == pytest.approx(
            gained, rel=1e-4, abs=1e-6
        )
    belief = policy.posterior.belief(offer)
    np.testing.assert_allclose(trajectory.audit["std"], belief.std, rtol=1e-4)
    np.testing.assert_allclose(
        trajectory.audit["mean"], belief.mean, rtol=1e-4, atol=1e-3
    )


def test_forecasts_are_judged_where_all_arms_were_seen() -> None:
    """One reward of three is not a total, but it adds information."""
    policy = IndexPolicy(
        posterior=StreamingGP(SquaredExponential(), 0.1),
        rule=Greedy(),
        oracle=TopK(k=3),
    )
    audit = Audit(policy, 4)
    for step, count in ((1, 3), (2, 1), (3, 0), (4, 3)):
        offer = Offer(step=step, arms=Arms.numbered(np.arange(5.0)[:, None]))
        decision = policy.decide(offer, np.random.default_rng(0))
        forecast = policy.forecast(offer, decision.positions)
        feedback = Feedback(
            positions=decision.positions[:count], rewards=np.ones(count)
        )
        policy.commit(decision)
        policy.learn(offer, decision, feedback, np.random.default_rng(0))
        audit.record(forecast, decision, feedback, None)
    arrays = audit.arrays(offer)
    for name in ("score", "variance", "largest_eigenvalue"):
        assert np.isnan(arrays[name]).tolist() == [False, True, True, False], name
    assert np.isnan(arrays["within"]).all(axis=1).tolist() == [False, True, True, False]
    assert (arrays["information"] > 0.0).tolist() == [True, True, False, True]


def test_zero_variance_and_wrong_mean_is_infinitely_far() -> None:
    """Two arms without variance; the truth of their sum is above, below and at what is forecast."""
    policy = IndexPolicy(
        posterior=StreamingGP(SquaredExponential(), 0.1),
        rule=Greedy(),
        oracle=TopK(k=2),
    )
    audit = Audit(policy, 3)
    forecast = Forecast(mean=np.array([1.0, 2.0]), cov=np.zeros((2, 2)), noise_std=0.5)
    for step, truth in enumerate(([1.0, 2.5], [0.5, 2.0], [1.0, 2.0]), start=1):
        decision = Decision(step=step, action=None, positions=np.array([0, 1]))
        feedback = Feedback(positions=decision.positions, rewards=np.array([1.5, 2.5]))
        audit.record(forecast, decision, feedback, np.array(truth))
    arrays = audit.arrays(Offer(step=3, arms=Arms.numbered(np.zeros((2, 1)))))
    assert arrays["true_score"].tolist() == [np.inf, -np.inf, 0.0]
    # Each round one energy or both are hit exactly; the total's score is 1 / √(2 × 0.25).
    for level in range(len(LEVELS)):
        np.testing.assert_array_equal(arrays["true_within"][:, level], [0.5, 0.5, 1.0])
    np.testing.assert_allclose(arrays["score"], 2.0**0.5, rtol=1e-6)


def test_lemma_a12_holds_in_every_run(world, played) -> None:
    for name, trajectory in played.items():
        if trajectory.audit is None:
            continue
        used = float(trajectory.audit["variance"].sum(dtype=float))
        allowed = variance_sum_bound(
            float(trajectory.audit["information"].sum(dtype=float)),
            largest_eigenvalue=float(trajectory.audit["largest_eigenvalue"].max()),
            noise_variance=world.model.noise_variance,
        )
        assert used <= allowed * (1.0 + 1e-5), name


def test_learned_posterior_can_be_resumed(world, played) -> None:
    state = state_from_bytes(state_to_bytes(played["gp-ts"].state))
    policy = route_ts(world.model).restored(state)
    belief = policy.beliefs(world.offer(1))
    np.testing.assert_allclose(
        belief.mean, played["gp-ts"].audit["mean"], rtol=1e-4, atol=1e-3
    )


def test_noise_cannot_hide_a_posterior_without_variance(world) -> None:
    """Its observed shares of edges barely move; of first visits and of the truth they collapse."""
    policy = route_ts(world.model)
    sure, honest = Audit(policy, ROUNDS), Audit(policy, ROUNDS)
    rng = np.random.default_rng(0)
    for step in range(1, ROUNDS + 1):
        offer = world.offer(step)
        decision = policy.decide(offer, rng)
        forecast = policy.forecast(offer, decision.positions)
        feedback = world.feedback(offer, decision, world.noise(offer, rng))
        policy.commit(decision)
        policy.learn(offer, decision, feedback, rng)
        honest.record(forecast, decision, feedback, world.truth(offer))
        sure.record(
            forecast._replace(cov=0.0 * forecast.cov),
            decision,
            feedback,
            world.truth(offer),
        )
    good, bad = (auditor.arrays(offer) for auditor in (honest, sure))
    # The truth is N(mean, cov) given what was seen; with no variance no energy is hit.
    assert bad["true_within"].max() == 0.0
    assert np.nanmean(good["true_within"][:, AT_95]) > 0.75
    assert (
        np.nanmean(bad["first"][:, AT_95]) < np.nanmean(good["first"][:, AT_95]) - 0.15
    )


@pytest.mark.thorough
def test_well_specified_intervals_have_nominal_coverage() -> None:
    # 12 seeds x 30 trips; given the past a trip is inside its 90 % interval with probability 0.9,
    # so the number inside is a sum of martingale differences: 5 standard deviations of a binomial.
    limit = QUANTILES[LEVELS.index(0.90)]
    inside = trips = 0
    for seed in range(12):
        world = Navigation(seed=seed, horizon=ROUNDS, edges=300)
        audit = simulate(
            world, {"gp-ts": route_ts(world.model)}, rounds=ROUNDS, seed=seed
        )["gp-ts"].audit
        inside += int((np.abs(audit["score"]) <= limit).sum())
        trips += ROUNDS
    assert abs(inside - 0.9 * trips) < 5.0 * np.sqrt(0.09 * trips)


def test_watcher_receives_the_forecast_made_before_feedback(world, played) -> None:
    """The forecasts behind the audit; none for a policy without forecasts."""
    recorded = {}

    def watch(name, offer, decision, feedback, forecast) -> None:
        recorded[name, offer.step] = (feedback, forecast)

    policies = {
        "gp-ts": route_ts(world.model),
        "shortest": known_cost(world.model, cost="length"),
    }
    simulate(world, policies, rounds=3, seed=1, watch=watch)
    assert all(recorded["shortest", step][1] is None for step in (1, 2, 3))
    for step in (1, 2, 3):
        feedback, forecast = recorded["gp-ts", step]
        mean, std = forecast.total()
        score = (feedback.rewards.sum() - mean) / std
        assert score == pytest.approx(
            played["gp-ts"].audit["score"][step - 1], rel=1e-5
        )


def test_arms_are_counted_when_they_are_first_tried() -> None:
    world = Navigation(seed=0, horizon=6, network="city", edges=200)
    trace = simulate(world, {"gp-ts": route_ts(world.model)}, rounds=6, seed=0)["gp-ts"]
    seen: set[int] = set()
    assert trace.choices is not None
    for row, count in zip(
        trace.choices.tolist(), trace.series["distinct_edges"], strict=True
    ):
        new = {edge for edge in row if edge >= 0} - seen
        assert count == len(new)
        seen |= new
    assert len(seen) > 20
