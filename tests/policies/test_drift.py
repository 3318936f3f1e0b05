"""TV-GP-UCB and R-GP-UCB: their choices by the paper's formulas, and the length of a block.

The genie of appendix F, and other policies over the drifting posterior.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from superarm.core import Decision, Offer
from superarm.core.errors import InputError
from superarm.core.registry import build
from superarm.core.states import state_from_bytes, state_to_bytes
from superarm.kernels import Empirical, Temporal
from superarm.lab.problems import DriftingFunction, traffic_series
from superarm.lab.simulation import simulate
from superarm.policies import IndexPolicy, genie, r_gp_ucb, tv_gp_ucb, wrapped
from superarm.policies.drift import BLOCKS, block_length
from superarm.posteriors import DriftingGP, StreamingGP
from superarm.rules import UCB, InBlock, LogarithmicUCB


@pytest.mark.parametrize("kernel", ["squared-exponential", "matern"])
def test_choices_match_dense_matrices(kernel: str) -> None:
    """Eqs. 7 and 8 over all data for TV-GP-UCB, over those of the block for R-GP-UCB; ties go first."""
    world = DriftingFunction(seed=0, horizon=30, side=7, epsilon=0.1, kernel=kernel)  # type: ignore[arg-type]
    model, arms = world.model, world.model.arms
    assert arms is not None
    policies = {
        "tv": tv_gp_ucb(model),
        "r": r_gp_ucb(model, block=8),
        "static": tv_gp_ucb(model, epsilon=0),
    }
    traces = simulate(world, policies, rounds=30, seed=0)
    for name, trace in traces.items():
        chosen = trace.choices[:, 0]
        rewards = _rewards(world, chosen)
        for t in range(1, 30):
            first = 8 * (t // 8) if name == "r" else 0
            rows, times, epsilon = (
                chosen[first:t],
                np.arange(first, t),
                0.1 if name == "tv" else 0.0,
            )
            apart = np.abs(np.subtract.outer(times, times))
            K = model.kernel(arms[rows]) * (1 - epsilon) ** (apart / 2) + 0.01 * np.eye(
                len(rows)
            )
            k = model.kernel(arms, arms[rows]) * (1 - epsilon) ** ((t - times) / 2)
            mean = k @ np.linalg.solve(K, rewards[first:t])
            variance = 1.0 - np.einsum("ij,ji->i", k, np.linalg.solve(K, k.T))
            index = mean + math.sqrt(0.8 * math.log(4.0 * (t + 1))) * np.sqrt(
                np.maximum(variance, 0.0)
            )
            assert index[chosen[t]] == pytest.approx(index.max(), abs=1e-7)


def _rewards(world: DriftingFunction, chosen: np.ndarray) -> np.ndarray:
    from superarm.core.streams import Streams

    streams, rewards = Streams(0, "noise"), []
    for step, row in enumerate(chosen.tolist(), start=1):
        offer = Offer(step=step, arms=world.offer(step).arms)
        noise = world.noise(offer, streams.at(step))
        decision = Decision(step=step, action=None, positions=np.array([row]))
        rewards.append(world.feedback(offer, decision, noise).rewards[0])
    return np.array(rewards)


def test_blocks_by_hand() -> None:
    """12 · 0.01^{−1/4} = 37.9; c = 6/(5 + 6), 24 · 0.01^{−1/(4 − 6/11)} = 91.0."""
    smooth = DriftingFunction(seed=0, horizon=500, side=3, epsilon=0.01).model
    rough = DriftingFunction(
        seed=0, horizon=500, side=3, epsilon=0.01, kernel="matern"
    ).model
    assert block_length(smooth, 0.01) == 38
    assert block_length(rough, 0.01) == math.ceil(24.0 * 0.01 ** (-11.0 / 38.0)) == 92
    assert block_length(smooth, 1e-9) == 500 == block_length(rough, 0.0)


@pytest.mark.slow
def test_the_block_by_cross_validation() -> None:
    """Leave-one-day-out by hand: mean and covariance of the other days, for every N."""
    world = traffic_series(seed=0, horizon=30, source="synthetic")
    past = world.model.past
    assert past is not None
    model = dataclasses.replace(world.model, past=past[:3, :20])
    policy = r_gp_ucb(model, block="learned", c1=0.2, c2=0.4)
    days, averages = past[:3, :20], {}
    for block in BLOCKS:
        total = 0.0
        for day in range(3):
            others = np.concatenate([days[other] for other in range(3) if other != day])
            centred = others - others.mean(axis=0)
            assumed = dataclasses.replace(
                model,
                kernel=Empirical(covariance=centred.T @ centred / (len(others) - 1)),
                mean=others.mean(axis=0),
            )
            left_out = dataclasses.replace(
                world, readings=days[day], start=np.ones(50, dtype=bool), model=assumed
            )
            mine = {"r": r_gp_ucb(assumed, block=block, c1=0.2, c2=0.4)}
            total += (
                simulate(left_out, mine, rounds=20, seed=0)["r"].series["regret"].sum()
            )
        averages[block] = total / 60
    best = min(averages, key=lambda block: averages[block])
    assert policy.posterior.block == best  # type: ignore[attr-defined]
    assert policy.interpretations.startswith(
        f"N = {best}, chosen by cross-validation: each of 3 past days"
    )
    for block, regret in averages.items():
        assert f"{block}: {regret:.3g}" in policy.interpretations
    assert averages[30] == averages[144]  # longer than a day

    for past in (None, model.past[:1]):
        with pytest.raises(
            InputError,
            match=r"at least two past days; give block as a number, or Model\(past=…\)",
        ):
            r_gp_ucb(dataclasses.replace(model, past=past), block="learned")
    with pytest.raises(InputError, match="block is 'best'; choose"):
        r_gp_ucb(model, block="best")
    assert not r_gp_ucb(model, block=3).interpretations


def test_the_step_within_a_block() -> None:
    model = DriftingFunction(seed=0, horizon=30, side=3, epsilon=0.1).model
    policy = r_gp_ucb(model, block=8, in_block=True)
    assert policy.rule == UCB(
        schedule=InBlock(schedule=LogarithmicUCB(c1=0.8, c2=4.0), block=8)
    )


def test_drift_must_be_known() -> None:
    model = replace(DriftingFunction(seed=0, horizon=5, side=3).model, drift=None)
    with pytest.raises(InputError, match=r"give epsilon, or Model\(drift=Temporal"):
        r_gp_ucb(model)
    for spec in ("tv-gp-ucb", {"name": "gp-bucb", "posterior": "drifting"}):
        with pytest.raises(InputError, match=r"Model\(drift=…\), such as Temporal"):
            build("policy", spec, model=model)
    with pytest.raises(InputError, match="needs fixed arms"):
        tv_gp_ucb(replace(model, arms=None), epsilon=0.1)


def test_truth_drifts_as_in_the_paper() -> None:
    """f_{t+1} − √(1 − ε) f_t is √ε times a draw of variance 1, independent of what was."""
    world = DriftingFunction(seed=3, horizon=400, side=4, epsilon=0.2, lengthscale=0.05)
    truths = np.array([world.means(world.offer(step)) for step in range(1, 401)])
    innovations = (truths[1:] - math.sqrt(0.8) * truths[:-1]) / math.sqrt(0.2)
    # 6,384 nearly independent numbers: five standard errors of a mean square.
    count = innovations.size
    assert abs(np.mean(innovations**2) - 1.0) < 5.0 * math.sqrt(2.0 / count)
    assert abs(np.mean(truths**2) - 1.0) < 5.0 * math.sqrt(
        2.0 / count * 9.0
    )  # 9 rounds are one
    assert abs(np.mean(innovations * truths[:-1])) < 5.0 / math.sqrt(count)
    shorter = DriftingFunction(seed=3, horizon=5, side=4, epsilon=0.2, lengthscale=0.05)
    np.testing.assert_array_equal(shorter.means(shorter.offer(5)), truths[4])


# --- the drifting posterior under other rules ----------------------------------------------


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (
            {"name": "gp-ts", "scaled": False},
            {"name": "drifting-function", "side": 6, "k": 3},
        ),
        ({"name": "gp-bucb"}, {"name": "drifting-function", "side": 6, "k": 3}),
        ({"name": "gp-ucb-bayesian"}, {"name": "drifting-function", "side": 6}),
        ({"name": "route-ts"}, {"name": "navigation", "edges": 300}),
        ({"name": "route-bucb"}, {"name": "navigation", "edges": 300}),
    ],
    ids=lambda spec: spec["name"],
)
def test_any_rule_over_the_drifting_posterior(
    spec: dict[str, Any], problem: dict[str, Any]
) -> None:
    """Its belief is that of DriftingGP on the same data, and its restored state continues alike."""
    world = build("problem", problem, seed=2, horizon=12)
    model = replace(world.model, drift=Temporal(epsilon=0.2))
    policy = build("policy", {**spec, "posterior": "drifting"}, model=model)
    plain = DriftingGP(
        model.kernel,
        model.arms,
        model.noise_variance,
        model.mean,
        drift=Temporal(epsilon=0.2),
    )
    for step in range(1, 9):
        rng, offer = np.random.default_rng(step), world.offer(step)
        restored = policy.restored(state_from_bytes(state_to_bytes(policy.state())))
        decision = policy.decide(offer, np.random.default_rng(step))
        same = restored.decide(offer, np.random.default_rng(step))
        np.testing.assert_array_equal(same.positions, decision.positions)
        policy.commit(decision)
        feedback = world.feedback(offer, decision, world.noise(offer, rng))
        policy.learn(offer, decision, feedback, rng)
        plain.observe(plain.keys(offer)[feedback.positions], feedback.rewards)
    later = world.offer(9)
    belief, expected = policy.posterior.belief(later), plain.belief(later)
    scale = max(1.0, float(np.abs(expected.mean).max()))
    np.testing.assert_allclose(belief.mean, expected.mean, atol=1e-9 * scale)
    np.testing.assert_allclose(belief.std, expected.std, atol=1e-9 * scale)


def test_the_drift_of_the_model_counts() -> None:
    """The problem states the learner's assumptions; the truth does not change."""
    options: dict[str, Any] = {"seed": 1, "horizon": 5, "side": 4, "epsilon": 0.1}
    true, assumed = (
        DriftingFunction(**options),
        DriftingFunction(**options, assumed_epsilon=0.5),
    )
    for step in (1, 5):
        np.testing.assert_array_equal(
            true.means(true.offer(step)), assumed.means(assumed.offer(step))
        )
    for model, epsilon in ((true.model, 0.1), (assumed.model, 0.5)):
        assert model.drift == Temporal(epsilon=epsilon)
        assert (
            _drift(tv_gp_ucb(model))
            == _drift(build("policy", _BUCB, model=model))
            == model.drift
        )
    assert _drift(tv_gp_ucb(assumed.model, epsilon=0.0)) == Temporal(epsilon=0.0)
    assert "assume" not in true.interpretations["truth"]
    assert assumed.interpretations["truth"].endswith("; learners assume ε = 0.5")
    with pytest.raises(InputError, match=r"assumed_epsilon must be .*, got 2"):
        DriftingFunction(**options, assumed_epsilon=2)


_BUCB = {"name": "gp-bucb", "posterior": "drifting"}


def _drift(policy: IndexPolicy) -> object:
    assert isinstance(policy.posterior, DriftingGP)
    return policy.posterior.drift


# --- the genie -----------------------------------------------------------------------------


def test_the_genie_plays_the_best_arms_of_the_round_before() -> None:
    world = DriftingFunction(seed=0, horizon=20, side=6, epsilon=0.3, k=2)
    trace = simulate(
        world, {"genie": genie(world.model, problem=world)}, rounds=20, seed=0
    )["genie"]
    assert trace.choices[0].tolist() == [
        0,
        1,
    ]  # the prior mean is 0 everywhere: the first arms
    for step in range(2, 21):
        before = world.means(world.offer(step - 1))
        assert (
            trace.choices[step - 1].tolist()
            == np.argsort(-before, kind="stable")[:2].tolist()
        )
    assert trace.propensities is None  # all are 1


def test_genie_uses_the_prior_mean_in_round_1() -> None:
    world = DriftingFunction(seed=0, horizon=5, side=3)
    offer, rng = world.offer(1), np.random.default_rng(0)
    means = (np.arange(9.0), lambda rows: rows[:, 0] + 2.0 * rows[:, 1], 1.5)
    for mean, best in zip(means, (8, 8, 0), strict=True):
        object.__setattr__(world, "model", replace(world.model, mean=mean))
        assert genie(world.model, problem=world).decide(
            offer, rng
        ).positions.tolist() == [best]


def test_genie_without_drift_and_with_changing_arms() -> None:
    """A problem that is played as a table: round 1 is not the others."""
    fixed = build("problem", {"name": "gp-function", "arms": 30}, seed=4, horizon=10)
    trace = simulate(
        fixed, {"it": genie(fixed.model, problem=fixed)}, rounds=10, seed=4
    )["it"]
    best = int(np.argmax(fixed.means(fixed.offer(1))))
    assert best != 0
    assert trace.choices[:, 0].tolist() == [0] + [best] * 9
    changing = build(
        "problem", {"name": "crowdsourcing", "source": "synthetic"}, seed=0, horizon=5
    )
    with pytest.raises(InputError, match="fixed arms"):
        genie(changing.model, problem=changing)


@pytest.mark.slow
def test_the_genie_is_a_line_below_tv_gp_ucb() -> None:
    """Appendix F: E[r_t] of the genie is the least there is, given f_{t−1}, from round 2 on.

    So its mean regret over independent seeds is below TV-GP-UCB's unless chance moves the mean of 30
    paired differences by as much as they lie apart; asked for is a distance of 5 standard errors. The
    function moves in every step, so that its best arm is not always that of the round before.
    """
    differences, regrets = [], []
    for seed in range(30):
        world = DriftingFunction(seed=seed, horizon=60, side=10, epsilon=0.1)
        policies = {
            "tv": tv_gp_ucb(world.model),
            "genie": genie(world.model, problem=world),
        }
        traces = simulate(world, policies, rounds=60, seed=seed)
        tv, least = (
            traces[name].series["regret"][1:].sum() for name in ("tv", "genie")
        )
        differences.append(tv - least)
        regrets.append(least)
        assert least >= 0.0
    assert min(regrets) >= 0.0 < max(regrets)
    assert np.mean(differences) > 5.0 * np.std(differences, ddof=1) / math.sqrt(30.0)
    assert np.mean(regrets) > 5.0 * np.std(regrets, ddof=1) / math.sqrt(30.0)


def test_policies_unaware_of_drift_state_it() -> None:
    """In the report, under its name: "auto" is an exact posterior of rewards that stay."""
    model = DriftingFunction(seed=0, horizon=5, side=5).model
    for posterior in ("auto", "finite", "streaming"):
        policy = build(
            "policy", {"name": "gp-greedy", "posterior": posterior}, model=model
        )
        for player in (policy, wrapped(policy, {"name": "resetting", "block": 3})):
            assert "does not know how rewards drift" in player.interpretations
    drift_aware = build(
        "policy", {"name": "gp-bucb", "posterior": "drifting"}, model=model
    )
    still = build("policy", {"name": "gp-bucb"}, model=replace(model, drift=None))
    assert (
        drift_aware.interpretations
        == still.interpretations
        == tv_gp_ucb(model).interpretations
        == ""
    )


def test_tv_gp_ucb_by_cholesky_factors_is_the_same_algorithm() -> None:
    world = DriftingFunction(seed=0, horizon=25, side=6, epsilon=0.05)
    policies = [tv_gp_ucb(world.model), tv_gp_ucb(world.model, form="cholesky")]
    posteriors = [policy.posterior for policy in policies]
    rng = np.random.default_rng(0)
    for step in range(1, 26):
        offer = world.offer(step)
        beliefs = [posterior.belief(offer) for posterior in posteriors]
        np.testing.assert_allclose(beliefs[0].mean, beliefs[1].mean, atol=1e-6)
        np.testing.assert_allclose(beliefs[0].std, beliefs[1].std, atol=1e-6)
        chosen = rng.integers(0, 36, 1)
        for posterior in posteriors:
            posterior.observe(posterior.keys(offer)[chosen], world.means(offer)[chosen])
    assert policies[1].rule == policies[0].rule
    assert isinstance(policies[1].posterior, StreamingGP)
    assert policies[1].posterior.form == "cholesky"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mean": np.zeros(36)}, "no prior mean per arm"),
        ({"drift": None}, "known epsilon"),
        ({"arms": None}, "fixed arms"),
    ],
)
def test_cholesky_factors_need_a_drift_and_fixed_arms(
    changes: dict[str, Any], message: str
) -> None:
    model = DriftingFunction(seed=0, horizon=5, side=6).model
    with pytest.raises(InputError, match=message):
        tv_gp_ucb(replace(model, **changes), form="cholesky")
    with pytest.raises(InputError, match="form"):
        tv_gp_ucb(model, form="other")  # type: ignore[arg-type]
