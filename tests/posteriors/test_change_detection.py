"""Change detection: delays, false alarms and retained observations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from sample_posteriors import fading_kernel, rough_kernel

from superarm.core import Arms, Feedback, Floats, Offer
from superarm.core.errors import InputError, StateError
from superarm.core.states import state_from_bytes, state_to_bytes
from superarm.kernels import SquaredExponential, Temporal
from superarm.oracles import TopK
from superarm.policies import IndexPolicy, wrapped
from superarm.posteriors import (
    Alarm,
    ChangeDetecting,
    DriftingGP,
    FiniteGP,
    IndependentGaussian,
    Refitting,
    StreamingGP,
)
from superarm.rules import UCB, Fixed

NOISE = 0.05
ARMS = np.random.default_rng(0).random((6, 2))
KERNEL = rough_kernel(0.4)
FADING = fading_kernel(0.4, epsilon=0.02)
INSIDE: dict[str, Any] = {
    "finite": lambda: FiniteGP(KERNEL, ARMS, NOISE),
    "streaming": lambda: StreamingGP(KERNEL, NOISE),
    "drifting": lambda: DriftingGP(KERNEL, ARMS, NOISE, drift=Temporal(epsilon=0.02)),
    "forgetting": lambda: StreamingGP(FADING, NOISE, timed=True, forget=1e-3),
    "refitting": lambda: Refitting(FiniteGP(KERNEL, ARMS, NOISE), every=10),
}


def offer(step: int) -> Offer:
    return Offer(step=step, arms=Arms.numbered(ARMS))


def detector(**options: Any) -> ChangeDetecting:
    return ChangeDetecting(IndependentGaussian(np.ones(6), NOISE, arms=ARMS), **options)


# --- run lengths -------------------------------------------------------------------------


def simulated(spread: float, gp: ChangeDetecting, count: int) -> Floats:
    """Observations until an alarm, by the definition of CUSUM."""
    rng, rho = np.random.default_rng(2), gp.scale
    S, steps, alive, run_lengths = np.zeros(count), 0, np.arange(count), np.zeros(count)
    while len(alive):
        steps += 1
        z = spread * rng.standard_normal(len(alive))
        S = np.maximum(0.0, S + 0.5 * z**2 * (1.0 - 1.0 / rho**2) - math.log(rho))
        done = math.log(gp.run_length) <= S
        run_lengths[alive[done]] = steps
        alive, S = alive[~done], S[~done]
    return run_lengths


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("run_length", "scale"), [(100.0, 3.0), (300.0, 2.0), (30.0, 10.0)]
)
def test_run_length_and_delays(run_length: float, scale: float) -> None:
    """Within 5 standard errors of the simulated mean, and the chain's own 0.2 %."""
    gp = detector(run_length=run_length, scale=scale)
    for spread in (1.0, 1.5, scale, 2.0 * scale):
        run_lengths = simulated(spread, gp, 4000)
        error = 5.0 * run_lengths.std() / math.sqrt(len(run_lengths))
        assert (
            abs(run_lengths.mean() - gp.until_alarm(spread))
            < error + 0.002 * run_lengths.mean()
        )
    assert gp.until_alarm() >= run_length  # what is promised
    drift = 0.5 * scale**2 * (1.0 - scale**-2) - math.log(scale)
    assert gp.until_alarm(scale) > math.log(run_length) / drift  # and S overshoots


def test_the_defaults() -> None:
    gp = detector()
    assert gp.until_alarm() == pytest.approx(153_700, rel=0.002)
    assert [round(gp.until_alarm(spread), 1) for spread in (2.0, 3.0, 5.0)] == [
        14.9,
        5.1,
        2.5,
    ]


@pytest.mark.slow
def test_innovations_are_those_of_a_simulated_run() -> None:
    """Rewards drawn from the prior: alarms come as rarely as run_length promises, and more often
    after a change. 60 runs of 40 observations with run_length 100: if the mean run length is
    ARL = 1480, alarms in 2,400 observations have mean 1.6 at most; 9 are 5.8 deviations away.
    """
    K, rng, alarms, noticed = KERNEL(ARMS), np.random.default_rng(0), 0, 0
    root = np.linalg.cholesky(K + 1e-12 * np.eye(6))
    for _ in range(60):
        gp = ChangeDetecting(FiniteGP(KERNEL, ARMS, NOISE), run_length=100.0)
        f = root @ rng.standard_normal(6)
        for step in range(1, 61):
            if step == 41:
                alarms += len(gp.alarms)
                f = (
                    -3.0 * np.abs(f) - 3.0
                )  # far from what was: |f| changes by 3 at least
            rows = rng.integers(0, 6, 2)
            rewards = f[rows] + math.sqrt(NOISE) * rng.standard_normal(2)
            gp.observe(gp.keys(offer(step))[rows], rewards)
        noticed += any(alarm.step > 40 for alarm in gp.alarms)
    assert alarms < 9
    assert noticed == 60


# --- learned observations ----------------------------------------------------------------


def path(inside: Any, keys: Any, rewards: Any) -> list[float]:
    """Squares of whitened innovations, one observation at a time."""
    squares = []
    for row in range(len(rewards)):
        mean, cov = inside.predict(keys[[row]], return_cov=True)
        squares.append(float((rewards[row] - mean[0]) ** 2 / (cov[0, 0] + NOISE)))
        inside.observe(keys[[row]], rewards[[row]], [NOISE])
    return squares


@pytest.mark.parametrize(
    (
        "name",
        "at_once",
    ),  # when hyper-parameters are fitted depends on how many come at once
    [
        (name, count)
        for name in INSIDE
        for count in (1, 4, 40)
        if name != "refitting" or count == 1
    ],
)
def test_change_detection_matches_a_slow_implementation(
    name: str, at_once: int
) -> None:
    """One observation at a time; everything since the statistic left 0 is relearned by hand."""
    rng = np.random.default_rng(3)
    gp = ChangeDetecting(INSIDE[name](), run_length=50.0, scale=2.0)
    steps, rows = np.arange(1, 41), rng.integers(0, 6, 40)
    rewards = np.where(steps < 21, 1.0, -2.0) + 0.2 * rng.standard_normal(40)
    own = np.array(
        [gp.keys(offer(step))[row] for step, row in zip(steps, rows, strict=True)]
    )
    for part in np.array_split(np.arange(40), 40 // at_once):
        gp.observe(own[part], rewards[part], np.full(len(part), NOISE))

    inside, S, begin, alarms = INSIDE[name](), 0.0, 0, []
    keys = np.array(
        [inside.keys(offer(step))[row] for step, row in zip(steps, rows, strict=True)]
    )
    for index in range(40):
        square = path(inside, keys[[index]], rewards[[index]])[0]
        S = max(0.0, S + 0.5 * square * (1.0 - 1.0 / 4.0) - math.log(2.0))
        if S == 0.0:
            begin = index + 1
        if math.log(50.0) <= S:
            alarms.append(Alarm(step=index + 1, since=begin + 1))
            inside = INSIDE[name]()
            since = slice(begin, index + 1)
            inside.observe(
                keys[since], rewards[since], np.full(index + 1 - begin, NOISE)
            )
            S, begin = 0.0, index + 1
    assert gp.alarms == tuple(alarms)
    assert alarms
    assert gp._statistic == pytest.approx(S, abs=1e-8)
    now = offer(41)
    np.testing.assert_allclose(gp.belief(now).mean, inside.belief(now).mean, atol=1e-8)
    np.testing.assert_allclose(gp.belief(now).cov, inside.belief(now).cov, atol=1e-8)
    restored = gp.restored(state_from_bytes(state_to_bytes(gp.state())))
    assert (restored.alarms, restored._statistic, restored.ignored) == (
        gp.alarms,
        gp._statistic,
        0,
    )
    np.testing.assert_allclose(restored.belief(now).cov, gp.belief(now).cov, atol=1e-12)


def test_restored_detector_raises_the_same_alarms() -> None:
    rng, gps = (
        np.random.default_rng(5),
        [detector(run_length=20.0), detector(run_length=20.0)],
    )
    for step in range(1, 80):
        row, reward = (
            int(rng.integers(6)),
            float(rng.standard_normal() * (1 + 4 * (step % 30 > 20))),
        )
        for gp in gps:
            gp.observe([[row, step]], [reward])
        gps[0] = gps[0].restored(state_from_bytes(state_to_bytes(gps[0].state())))
        assert state_to_bytes(gps[0].state()) == state_to_bytes(gps[1].state())
    assert len(gps[0].alarms) > 1


def test_feedback_from_before_a_change_is_counted_and_not_used() -> None:
    gp = ChangeDetecting(INSIDE["finite"]())
    for step in range(1, 11):
        gp.observe([[0, step]], [0.5 if step < 8 else -9.0])
    (alarm,) = gp.alarms
    assert alarm == Alarm(step=8, since=8)
    with_late = [[1, 7], [2, 11], [3, 3]]
    gp.observe(with_late, [1.0, 2.0, 3.0])
    reference = INSIDE["finite"]()
    reference.observe([0, 0, 0, 2], [-9.0, -9.0, -9.0, 2.0])
    assert (gp.count, gp.ignored) == (13, 2)
    np.testing.assert_allclose(
        gp.belief(offer(12)).mean, reference.belief(offer(12)).mean, atol=1e-12
    )
    assert not gp.exchangeable


def test_bad_parameters_and_states() -> None:
    for options in ({"run_length": 1.0}, {"scale": 1.0}, {"run_length": float("inf")}):
        with pytest.raises(InputError):
            detector(**options)
    with pytest.raises(InputError, match="spread"):
        detector().until_alarm(0.0)
    for coarse in ({"scale": 1.1}, {"run_length": 1e13}):
        with pytest.raises(InputError, match=next(iter(coarse))):
            detector(**coarse).until_alarm()
    gp = detector()
    for bad in ([0], [[0, 1.5]], [[0, -1]], [[0, 1, 1]], [[0.5, 1]]):
        with pytest.raises(InputError):
            gp.observe(bad, [1.0])
    gp.observe([[0, 1], [0, 2]], [2.0, -9.0])
    gp.observe([[0, 3]], [-4.0])
    state = gp.state()
    assert len(gp.alarms) == 1
    for changes in (
        {"arrays": {**state.arrays, "alarms": np.array([[1.5, 1.0]])}},
        {"scalars": {**state.scalars, "statistic": 99.0}},
        {
            "scalars": {**state.scalars, "statistic": 1.0},
            "arrays": {"alarms": np.zeros((0, 2))},
        },
    ):
        parts: dict[str, Any] = {
            "scalars": state.scalars,
            "arrays": state.arrays,
            "parts": state.parts,
            **changes,
        }
        with pytest.raises(StateError):
            gp.restored(
                type(state)(kind=state.kind, schema=1, spec=state.spec, **parts)
            )


def test_inner_error_has_no_side_effects() -> None:
    gp = ChangeDetecting(StreamingGP(SquaredExponential(), NOISE, most_exact=3))
    gp.observe([[0.1, 1], [0.2, 2]], [0.0, 0.1])
    before = state_to_bytes(gp.state())
    with pytest.raises(InputError, match="most_exact"):
        gp.observe([[0.3, 3], [0.4, 3]], [0.0, 0.0])
    assert state_to_bytes(gp.state()) == before


@pytest.mark.slow
def test_change_detection_reduces_regret() -> None:
    """Twelve problems in which all rewards are redrawn halfway; paired, 4 standard errors apart."""
    kernel, rounds, lost = SquaredExponential(lengthscale=0.3), 120, []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        places = rng.random((30, 2))
        root = np.linalg.cholesky(kernel(places) + 1e-8 * np.eye(30))
        truths, noise = (
            root @ rng.standard_normal((30, 2)),
            0.1 * rng.standard_normal(rounds),
        )
        arms, regrets = Arms.numbered(places), []
        for wrappers in ([], ["change-detecting"]):
            policy = wrapped(
                IndexPolicy(
                    posterior=FiniteGP(kernel, places, 0.01),
                    rule=UCB(schedule=Fixed(value=2.0)),
                    oracle=TopK(k=1),
                ),
                *wrappers,
            )
            regret = 0.0
            for step in range(1, rounds + 1):
                truth, now = (
                    truths[:, int(step > rounds // 2)],
                    Offer(step=step, arms=arms),
                )
                decision = policy.decide(now, rng)
                policy.commit(decision)
                positions = decision.positions
                seen = Feedback(
                    positions=positions, rewards=truth[positions] + noise[step - 1]
                )
                policy.learn(now, decision, seen, rng)
                regret += float(truth.max() - truth[positions[0]])
            regrets.append(regret)
        lost.append(regrets[0] - regrets[1])
    assert np.mean(lost) > 4.0 * np.std(lost) / math.sqrt(len(lost) - 1)


def test_forgotten_observations_raise_no_alarm() -> None:
    """A time whose rewards have faded: irrelevant now, not learned, but counted."""
    inside = DriftingGP(KERNEL, ARMS, NOISE, drift=Temporal(epsilon=0.5))
    gp = ChangeDetecting(inside)
    for step in range(1, 400):
        gp.observe([[0, step, step]], [0.0])
    before = gp.predict([[0, 400, 400]])
    gp.observe([[0, 2, 400]], [1000.0])
    assert (gp.alarms, gp.ignored, gp.count) == ((), 1, 400)
    np.testing.assert_array_equal(gp.predict([[0, 400, 400]]).mean, before.mean)
    gp.observe([[0, 400, 400], [0, 2, 400]], [1000.0, 1000.0])
    assert (gp.alarms, gp.ignored) == ((Alarm(400, 400),), 2)
