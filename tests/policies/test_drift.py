"""TV-GP-UCB and R-GP-UCB: their choices by the paper's formulas, and the length of a block."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from superarm.core import Decision, Offer
from superarm.errors import InputError
from superarm.kernels import Empirical
from superarm.policies import r_gp_ucb, tv_gp_ucb
from superarm.policies.drift import BLOCKS, block_length
from superarm.problems import DriftingFunction, traffic_series
from superarm.rules import UCB, InBlock, LogarithmicUCB
from superarm.simulation import simulate


@pytest.mark.parametrize("kernel", ["squared-exponential", "matern"])
def test_choices_by_whole_matrices(kernel: str) -> None:
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
            rows, times, epsilon = chosen[first:t], np.arange(first, t), 0.1 if name == "tv" else 0.0
            apart = np.abs(np.subtract.outer(times, times))
            K = model.kernel(arms[rows]) * (1 - epsilon) ** (apart / 2) + 0.01 * np.eye(len(rows))
            k = model.kernel(arms, arms[rows]) * (1 - epsilon) ** ((t - times) / 2)
            mean = k @ np.linalg.solve(K, rewards[first:t])
            variance = 1.0 - np.einsum("ij,ji->i", k, np.linalg.solve(K, k.T))
            index = mean + math.sqrt(0.8 * math.log(4.0 * (t + 1))) * np.sqrt(np.maximum(variance, 0.0))
            assert index[chosen[t]] == pytest.approx(index.max(), abs=1e-7)


def _rewards(world: DriftingFunction, chosen: np.ndarray) -> np.ndarray:
    from superarm.streams import Streams

    streams, found = Streams(0, "noise"), []
    for step, row in enumerate(chosen.tolist(), start=1):
        offer = Offer(step=step, arms=world.offer(step).arms)
        noise = world.noise(offer, streams.at(step))
        decision = Decision(step=step, action=None, positions=np.array([row]))
        found.append(world.feedback(offer, decision, noise).rewards[0])
    return np.array(found)


def test_blocks_by_hand() -> None:
    """12 · 0.01^{−1/4} = 37.9; c = 6/(5 + 6), 24 · 0.01^{−1/(4 − 6/11)} = 91.0."""
    smooth = DriftingFunction(seed=0, horizon=500, side=3, epsilon=0.01).model
    rough = DriftingFunction(seed=0, horizon=500, side=3, epsilon=0.01, kernel="matern").model
    assert block_length(smooth, 0.01) == 38
    assert block_length(rough, 0.01) == math.ceil(24.0 * 0.01 ** (-11.0 / 38.0)) == 92
    assert block_length(smooth, 1e-9) == 500 == block_length(rough, 0.0)


def test_the_block_by_cross_validation() -> None:
    """Each day left out in turn, as one would by hand: mean and covariance of the others, every N."""
    world = traffic_series(seed=0, horizon=30, source="synthetic")
    past = world.model.past
    assert past is not None
    model = dataclasses.replace(world.model, past=past[:3, :20])
    policy = r_gp_ucb(model, block="learned", c1=0.2, c2=0.4)
    days, found = past[:3, :20], {}
    for block in BLOCKS:
        total = 0.0
        for day in range(3):
            others = np.concatenate([days[each] for each in range(3) if each != day])
            centred = others - others.mean(axis=0)
            told = dataclasses.replace(
                model,
                kernel=Empirical(covariance=centred.T @ centred / (len(others) - 1)),
                mean=others.mean(axis=0),
            )
            left_out = dataclasses.replace(
                world, readings=days[day], start=np.ones(50, dtype=bool), model=told
            )
            mine = {"r": r_gp_ucb(told, block=block, c1=0.2, c2=0.4)}
            total += simulate(left_out, mine, rounds=20, seed=0)["r"].series["regret"].sum()
        found[block] = total / 60
    best = min(found, key=lambda block: found[block])
    assert policy.posterior.block == best  # type: ignore[attr-defined]
    assert policy.settled.startswith(f"N = {best} by cross-validation, each of 3 past days left out")
    for block, regret in found.items():
        assert f"{block}: {regret:.3g}" in policy.settled
    assert found[30] == found[144]  # longer than a day

    for past in (None, model.past[:1]):
        with pytest.raises(
            InputError, match=r"needs two past days or more: give block, or Model\(past=…\)"
        ):
            r_gp_ucb(dataclasses.replace(model, past=past), block="learned")
    with pytest.raises(InputError, match="block is 'best'; choose"):
        r_gp_ucb(model, block="best")
    assert not r_gp_ucb(model, block=3).settled


def test_the_step_within_a_block() -> None:
    model = DriftingFunction(seed=0, horizon=30, side=3, epsilon=0.1).model
    policy = r_gp_ucb(model, block=8, in_block=True)
    assert policy.rule == UCB(schedule=InBlock(schedule=LogarithmicUCB(c1=0.8, c2=4.0), block=8))


def test_drift_must_be_known() -> None:
    model = dataclasses.replace(DriftingFunction(seed=0, horizon=5, side=3).model, drift=None)
    for make in (tv_gp_ucb, r_gp_ucb):
        with pytest.raises(InputError, match=r"give epsilon, or Model\(drift=…\)"):
            make(model)
    with pytest.raises(InputError, match="needs fixed arms"):
        tv_gp_ucb(dataclasses.replace(model, arms=None), epsilon=0.1)


def test_a_truth_that_drifts_as_the_paper_says() -> None:
    """f_{t+1} − √(1 − ε) f_t is √ε times a draw of variance 1, independent of what was."""
    world = DriftingFunction(seed=3, horizon=400, side=4, epsilon=0.2, lengthscale=0.05)
    truths = np.array([world.means(world.offer(step)) for step in range(1, 401)])
    fresh = (truths[1:] - math.sqrt(0.8) * truths[:-1]) / math.sqrt(0.2)
    # 6,384 numbers that hardly know of each other: five standard errors of a mean square.
    count = fresh.size
    assert abs(np.mean(fresh**2) - 1.0) < 5.0 * math.sqrt(2.0 / count)
    assert abs(np.mean(truths**2) - 1.0) < 5.0 * math.sqrt(2.0 / count * 9.0)  # 9 rounds are one
    assert abs(np.mean(fresh * truths[:-1])) < 5.0 / math.sqrt(count)
    shorter = DriftingFunction(seed=3, horizon=5, side=4, epsilon=0.2, lengthscale=0.05)
    np.testing.assert_array_equal(shorter.means(shorter.offer(5)), truths[4])
