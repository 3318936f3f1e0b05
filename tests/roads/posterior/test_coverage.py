"""Widths of calibrated intervals: guarantees for any trips, and for normal ones."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtri

from superarm.core import AT_95, LEVELS, QUANTILES, Floats, State
from superarm.core.errors import InputError, StateError
from superarm.roads.posterior import TrackRecord
from superarm.roads.posterior import coverage as module
from superarm.roads.posterior.coverage import (
    _PRIOR_SCORES,
    _STEP,
    _WIDER,
    IntervalCalibration,
)

KEPT = 200


def judged(
    scores: Any, coverage: IntervalCalibration | None = None
) -> tuple[IntervalCalibration, Floats]:
    """Trips of one score each, and which intervals held it, (T, levels)."""
    coverage, inside = IntervalCalibration(KEPT) if coverage is None else coverage, []
    for score in scores:
        inside.append(score <= coverage.widths())
        coverage.judge(np.array([score]))
    return coverage, np.array(inside, dtype=np.float64)


def test_constants_chosen_on_roads() -> None:
    """On Monaco, Luxembourg and a generated city; all else here holds for other numbers, too."""
    chosen = (
        module._PRIOR_SCORES,
        module._WIDER,
        module._STEP,
        module._RECENT,
        module._HIGHEST,
    )
    assert chosen == (20.0, 1.2, 0.05, 100, 0.9995)


def test_before_the_first_trip_intervals_are_wider_than_a_normals() -> None:
    """The share of supposed scores below them is the level plus that of the one score to come."""
    widths = IntervalCalibration(KEPT).widths()
    assert (widths > _WIDER * QUANTILES).all()
    shares = 2.0 * (1.0 - 0.5 - 0.5 * np.array(LEVELS))  # above
    level = 1.0 - (shares * (_PRIOR_SCORES + 1.0) - 1.0) / _PRIOR_SCORES
    expected = _WIDER * ndtri(0.5 + 0.5 * level)
    below_95 = slice(AT_95)  # from there on, the supposed scores are too coarse
    np.testing.assert_allclose(widths[below_95], expected[below_95], rtol=0.02)
    assert IntervalCalibration(KEPT).track_record == TrackRecord(0, 1.0)
    assert IntervalCalibration(KEPT).track_record.holds


def test_widths_are_quantiles_of_the_scores() -> None:
    """Quantiles of the stored and the prior scores, by sorting."""
    rng = np.random.default_rng(0)
    coverage, _ = judged(np.abs(rng.standard_t(4, 300)))
    arrays = coverage.arrays("x")
    supposed = [_WIDER * ndtri(0.5 + 0.5 * (rank + 0.5) / 200) for rank in range(200)]
    table = [(float(score), 1.0) for score in arrays["x_scores"]]
    table = sorted(table + [(float(score), _PRIOR_SCORES / 200) for score in supposed])
    assert len(table) == 400
    for level, width in zip(arrays["x_levels"], coverage.widths(), strict=True):
        running = zip(table, accumulate(weight for _, weight in table), strict=True)
        wanted = min(max(level, 0.0), 0.9995) * (KEPT + _PRIOR_SCORES + 1.0)
        below = [score for (score, _), sum_of in running if sum_of >= wanted]
        assert width == (below[0] if below else table[-1][0])


def share_off(inside: Floats) -> Floats:
    return np.abs(inside.mean(axis=0) - LEVELS)


@given(
    seed=st.integers(0, 2**32 - 1),
    trips=st.integers(1, 400),
    how=st.sampled_from(["out", "in", "alternately", "in runs", "by chance"]),
)
@pytest.mark.slow
def test_miss_rate_is_bounded_for_any_trips(seed: int, trips: int, how: str) -> None:
    """(1 + 1/step)/T off at most, for an adversary who knows the widths. It must leave room: scores
    above the least supposed one and not above the largest are within some interval and without another.

    The level moves by step · (promised − held), so that Σ (promised − held) is the way that it has
    gone, over the step; and it stays within [−step, 1 + step]: at 1 all that has room is held, at 0
    nothing is.
    """
    rng, coverage, inside = np.random.default_rng(seed), IntervalCalibration(KEPT), []
    low, high = (float(_WIDER * ndtri(0.5 + 0.5 * rank / 200)) for rank in (0.6, 199.5))
    for trip in range(trips):
        widths = coverage.widths()
        covered = {
            "out": False,
            "in": True,
            "alternately": trip % 2 == 0,
            "in runs": trip // 17 % 2 == 0,
            "by chance": bool(rng.random() < 0.5),
        }[how]
        aim = widths[int(rng.integers(len(LEVELS)))]
        score = float(np.clip(aim if covered else np.nextafter(aim, np.inf), low, high))
        inside.append(score <= widths)
        coverage.judge(np.array([score]))
    shares = np.array(inside, dtype=np.float64)
    levels = coverage.arrays("x")["x_levels"]
    way = (levels - LEVELS) / (_STEP * trips)
    np.testing.assert_allclose(shares.mean(axis=0) - LEVELS, -way, atol=1e-9)
    assert (levels >= -_STEP).all()
    assert (levels <= 1.0 + _STEP).all()
    assert (share_off(shares) <= (1.0 + 1.0 / _STEP) / trips + 1e-9).all()


def test_scores_above_all_earlier_ones_are_always_missed() -> None:
    """No finite interval holds them: the promise ends where scores outgrow all that is remembered."""
    _, inside = judged(10.0 * 1.5 ** np.arange(60))
    assert not inside.any()


@pytest.mark.parametrize("scores", [10.0 * 1.5 ** np.arange(60), np.zeros(60)])
def test_levels_recover_after_scores_beyond_all_intervals(scores: Floats) -> None:
    """Scores beyond all intervals, or within all: once they are normal, levels are back in 60 trips."""
    coverage, _ = judged(scores)
    levels = coverage.arrays("x")["x_levels"]
    assert (levels >= -_STEP).all()
    assert (levels <= 1.0 + _STEP).all()
    normal = np.abs(np.random.default_rng(3).standard_normal(KEPT))
    _, inside = judged(normal, judged(normal, coverage)[0])
    assert (share_off(inside) <= (1.0 + 2.0 * _STEP) / (_STEP * KEPT)).all()


def test_levels_leave_their_range_by_a_step_at_most() -> None:
    """Between 0 and −step a level can still come back by the way that it went."""
    coverage = IntervalCalibration(KEPT)
    for level, expected in ((0.01, -0.015), (-0.04, -_STEP)):
        coverage._levels = np.full(len(LEVELS), level)
        coverage.judge(np.zeros(1))  # within the narrowest interval
        assert coverage._levels[LEVELS.index(0.5)] == pytest.approx(expected)


@pytest.mark.parametrize("spread", [0.5, 1.0, 2.0])
def test_normal_scores_have_nominal_coverage(spread: float) -> None:
    """The bound of any trips, which is 1.05 % of 2,000; no score outgrew all that were remembered."""
    scores = spread * np.abs(np.random.default_rng(1).standard_normal(2000))
    coverage, inside = judged(scores)
    assert (share_off(inside) <= (1.0 + 1.0 / _STEP) / 2000).all()
    assert coverage.track_record.trips == 100
    assert coverage.track_record.inside == pytest.approx(inside[-100:, AT_95].mean())
    assert coverage.track_record.holds


def test_a_change_is_followed() -> None:
    """Scores that become four times as large are soon covered."""
    rng = np.random.default_rng(2)
    coverage, _ = judged(np.abs(rng.standard_normal(300)))
    coverage, inside = judged(4.0 * np.abs(rng.standard_normal(400)), coverage)
    assert inside[:20, AT_95].mean() < 0.9
    assert inside[-200:, AT_95].mean() > 0.9
    assert (
        share_off(inside) <= (1.0 + 2.0 / _STEP) / 400
    ).all()  # from any level that it may have


def test_roads_count_as_a_share_of_their_trip() -> None:
    coverage = IntervalCalibration(5)
    widths = coverage.widths()
    coverage.judge(np.array([0.0, widths[0], widths[1], 99.0]))
    arrays = coverage.arrays("x")
    shares = np.full(len(LEVELS), 0.75)
    shares[0] = 0.5
    np.testing.assert_allclose(arrays["x_inside"], [shares])
    np.testing.assert_allclose(
        arrays["x_levels"],
        np.array(LEVELS) + _STEP * (np.array(LEVELS) - shares),
    )
    coverage.judge(np.array([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(
        coverage.arrays("x")["x_scores"], [widths[1], 99.0, 1.0, 2.0, 3.0]
    )


@pytest.mark.parametrize(
    ("trips", "inside", "holds"), [(0, 1.0, True), (10, 0.8, True), (10, 0.7, False), (100, 0.89, True),
                                   (100, 0.88, False), (100, 1.0, True)]
)  # fmt: skip
def test_a_share_too_low_to_be_chance_is_not_trusted(
    trips: int, inside: float, holds: bool
) -> None:
    """More than three standard errors below 95 %."""
    assert TrackRecord(trips, inside).holds is holds


def test_restored_coverage_continues() -> None:
    rng = np.random.default_rng(3)
    one, _ = judged(np.abs(rng.standard_normal(250)))
    other = IntervalCalibration(KEPT)
    other.remember(State(kind="any", schema=1, arrays=one.arrays("x")), "x")
    for score in np.abs(rng.standard_normal(20)):
        np.testing.assert_array_equal(one.widths(), other.widths())
        one.judge(np.array([score]))
        other.judge(np.array([score]))
    assert one.track_record == other.track_record


def test_a_state_is_the_callers_own() -> None:
    one, _ = judged([1.0, 2.0])
    arrays = {name: values.copy() for name, values in one.arrays("x").items()}
    other = IntervalCalibration(KEPT)
    other.remember(State(kind="any", schema=1, arrays=arrays), "x")
    arrays["x_levels"][...] = np.nan
    assert np.isfinite(other.widths()).all()


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("scores", np.ones(KEPT + 1)),
        ("scores", np.array([-1.0])),
        ("scores", np.array([np.nan])),
        ("scores", np.ones((2, 2))),
        ("levels", np.ones(len(LEVELS) - 1)),
        ("levels", np.full(len(LEVELS), np.inf)),
        ("inside", np.ones((101, len(LEVELS)))),
        ("inside", np.ones((5, len(LEVELS) - 1))),
        ("inside", np.full((5, len(LEVELS)), 1.5)),
        ("inside", np.full((5, len(LEVELS)), -0.5)),
    ],
)
def test_an_impossible_state_is_refused(name: str, values: Floats) -> None:
    one, _ = judged([1.0, 2.0])
    damaged = State(
        kind="any", schema=1, arrays={**one.arrays("x"), f"x_{name}": values}
    )
    with pytest.raises((StateError, InputError)):
        IntervalCalibration(KEPT).remember(damaged, "x")


def test_intervals_are_calibrated_hour_by_hour() -> None:
    """A jam makes trips at eight six times as uncertain as at twenty: one width serves neither.

    Weights of scores by their hour at least halve what either hour's coverage is off. The rest is due to
    the prior scores, which are 2.4 times as wide as those at twenty, and to the level that both share.
    """
    rng = np.random.default_rng(0)
    stds = {8.0: 3.0, 20.0: 0.5}
    shares = {}
    for uses_hours in (True, False):
        calibration = IntervalCalibration(200)
        inside: dict[float, list[bool]] = {hour: [] for hour in stds}
        for number in range(3200):
            hour = (8.0, 20.0)[number % 2]
            known_hour = hour if uses_hours else None
            score = abs(rng.normal(0.0, stds[hour]))
            if number >= 200:
                width = calibration.widths(known_hour)[AT_95]
                inside[hour].append(bool(score <= width))
            calibration.judge(np.array([score]), known_hour)
        shares[uses_hours] = [float(np.mean(inside[hour])) for hour in stds]
    away = np.abs(np.array([shares[True], shares[False]]) - 0.95)
    assert (away[0] < 0.5 * away[1]).all(), shares


def test_hours_of_scores_are_saved() -> None:
    calibration = IntervalCalibration(200)
    for number in range(30):
        hour = None if number % 3 == 0 else float(number % 24)
        calibration.judge(np.array([0.1 * number]), hour)
    arrays = calibration.arrays("trips")
    state = State(kind="test", schema=1, arrays=arrays)
    other = IntervalCalibration(200)
    other.remember(state, "trips")
    for hour in (None, 0.0, 7.5, 23.9):
        np.testing.assert_array_equal(other.widths(hour), calibration.widths(hour))
