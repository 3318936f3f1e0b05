"""Whether forecasts were true: shares of rewards inside the intervals of audited policies. Numpy only.

=================  ==============================================================
p                  nominal level of a central interval: 50, 90, 95 %
observed           share of arms, or of choices, inside their intervals
stderr             of ``observed`` if the intervals were right
d                  inside or not, minus p
=================  ==============================================================

A choice is what the arms of a round make together: on roads a trip, whose arms are edges.

Why the standard errors hold. If a policy's model is right, then whatever it has seen so far, the next
reward lies inside its p-interval with probability p. The d of successive choices are therefore
uncorrelated, although all of them meet one truth: for choices the error is binomial, √(p(1−p)/T). Arms
of one choice are not independent of each other, so for arms all that is seen in one round of one seed
counts as one observation: √(Σ (Σ d)²) / Σ 1, the inner sum over its arms; likewise for arms that are
chosen for the first time, where noise hides the forecast least. The settings of a sweep share the noise
of each seed and round: they are summed inside the square, and Σ (Σ d)² − Σ d² is added for choices
where it is positive. Whether the *truth* lies inside is no new question in the next round, nor in the
next setting: there a seed counts as one observation, and the error is that of the mean over seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from superarm.core import LEVELS, QUANTILES, Floats, Ints
from superarm.simulation.trace import Run

from .curves import PolicyStyle, counted, mean_stderr, policy_styles
from .pictures import Chart, Picture, Series

OFF = 3.0  # standard errors by which a share may differ from its level before it is called wrong


class Coverage(NamedTuple):
    """How many of the intervals of one level held what they were made for."""

    level: float
    observed: float
    stderr: float
    judged: int  # how many arms or choices were forecast
    seeds: int = 0  # how many seeds the error is taken over; 0 where it is taken over rounds

    @property
    def away(self) -> float:
        """Observed minus nominal, in standard errors; NaN for one seed, which has none.

        Errors over a few seeds are uncertain themselves: what Student's t makes of them, as the
        standard errors that are as unlikely under a normal distribution.
        """
        from scipy.special import ndtri, stdtr

        difference = self.observed - self.level
        if self.seeds == 1 or difference == 0.0:
            return float("nan") if self.seeds == 1 else 0.0
        errors = abs(difference) / self.stderr if self.stderr > 0.0 else float("inf")
        if self.seeds:
            errors = -float(ndtri(stdtr(self.seeds - 1, -errors)))
        return float(np.copysign(errors, difference))


class Words(NamedTuple):
    """What a run calls an arm, a choice, what they yield, and arms chosen for the first time."""

    arm: str = "arm"
    choice: str = "choice"
    reward: str = "reward"
    first: str = "first choices"

    @property
    def measured(self) -> tuple[str, ...]:
        return f"{self.arm}s", self.first, f"{self.choice}s"

    @property
    def true(self) -> tuple[str, ...]:
        """Expected rewards, by the intervals of the latent mean."""
        return f"truth of {self.arm}s", f"truth of {self.choice}s"


ON_ROADS = Words("edge", "trip", "energy", "first visits")


def words_of(run: Run) -> Words:
    return Words() if run.road_map() is None else ON_ROADS


Calibration = Mapping[str, tuple[Coverage, ...]]
"""One policy's coverage at 50, 90 and 95 %, by what it is about; empty where that is not known."""
_AUDITED = ("within", "first", "firsts", "score", "true_within", "true_score")
_FAR = 0.05  # a share so far from its level matters to whoever relies on it


def calibrations(run: Run) -> dict[str, Calibration]:
    """Coverage of every policy whose forecasts were recorded, all settings and seeds together."""
    found: dict[str, Calibration] = {}
    words = words_of(run)
    for policy in run.policies:
        cells, seeds = [], []
        for index, seed in product(range(len(run.settings)), run.seeds):
            audit = run.audit(policy, index, seed)
            if audit is not None and (judged := np.isfinite(audit["score"])).any():
                sizes = (run.choices(policy, index, seed)[judged] >= 0).sum(axis=1)
                told = {name: audit[name][judged].astype(np.float64) for name in _AUDITED}
                rounds = seed * run.rounds + np.flatnonzero(judged)  # of all seeds, each its own
                cells.append({**told, "sizes": sizes, "rounds": rounds})
                seeds.append(seed)
        if cells:
            joined = {name: np.concatenate([cell[name] for cell in cells]) for name in cells[0]}
            rounds, sizes, fresh = joined["rounds"], joined["sizes"], joined["firsts"] > 0
            firsts = joined["first"][fresh], joined["firsts"][fresh], rounds[fresh]
            arms = [cell["sizes"] @ cell["true_within"] / cell["sizes"].sum() for cell in cells]
            choices = [_within(cell["true_score"]).mean(axis=0) for cell in cells]
            single = bool((sizes == 1).all())  # arms are choices, which tell all
            every = (
                () if single else _arm_coverage(joined["within"], sizes, rounds),
                _arm_coverage(*firsts),
                _choice_coverage(joined["score"], rounds),
                () if single else _true_coverage(arms, seeds, int(sizes.sum())),
                _true_coverage(choices, seeds, len(sizes)),
            )
            found[policy] = dict(zip(words.measured + words.true, every, strict=True))
    return found


def _true_coverage(shares: Sequence[Floats], seeds: Sequence[int], count: int) -> tuple[Coverage, ...]:
    """From one share per run: the mean over a seed's settings first, as they share their truth."""
    if not np.isfinite(shares).all():
        return ()
    every, owners = np.array(shares), np.array(seeds)
    each = np.array([every[owners == seed].mean(axis=0) for seed in dict.fromkeys(seeds)])
    return _coverage(*mean_stderr(each), count, len(each))


def _arm_coverage(inside: Floats, sizes: Ints, rounds: Ints) -> tuple[Coverage, ...]:
    count = int(sizes.sum())
    if not count:
        return ()
    observed = sizes @ inside / count
    away = sizes[:, None] * (inside - np.asarray(LEVELS))
    return _coverage(observed, np.sqrt(_squares(away, rounds)) / count, count)


def _choice_coverage(scores: Floats, rounds: Ints) -> tuple[Coverage, ...]:
    levels, count, inside = np.asarray(LEVELS), len(scores), _within(scores)
    away = inside - levels
    shared = np.maximum(0.0, _squares(away, rounds) - np.sum(away**2, axis=0)) / count
    return _coverage(inside.mean(axis=0), np.sqrt((levels * (1 - levels) + shared) / count), count)


def _squares(away: Floats, rounds: Ints) -> Floats:
    """Σ (Σ d)², the inner sum over all that one round of one seed holds."""
    different, places = np.unique(rounds, return_inverse=True)
    sums = np.zeros((len(different), len(LEVELS)))
    np.add.at(sums, places, away)
    return np.asarray(np.sum(sums**2, axis=0))


def _within(scores: Floats) -> Floats:
    """Whether each lies inside its interval of every level, NaN where nobody knows, (n, levels)."""
    return np.where(np.isnan(scores)[:, None], np.nan, np.abs(scores)[:, None] <= QUANTILES)


def _coverage(observed: Floats, stderr: Floats, count: int, seeds: int = 0) -> tuple[Coverage, ...]:
    values = zip(LEVELS, observed.tolist(), stderr.tolist(), strict=True)
    return tuple(Coverage(level, share, error, count, seeds) for level, share, error in values)


def calibration_verdict(found: Mapping[str, Calibration]) -> str:
    """In plain words, whether the intervals cover what they should."""
    every = [
        (policy, what, coverage)
        for policy, calibration in found.items()
        for what, levels in calibration.items()
        for coverage in levels
        if coverage.seeds != 1
    ]
    near = sum(abs(coverage.away) <= 2.0 for _, _, coverage in every)
    far = [each for each in every if abs(each[2].away) > OFF]
    text = (
        f"{near} of {len(every)} shares lie within two standard errors of their nominal level and "
        f"{len(every) - len(far)} within three (if they were independent, about 19 of 20 "
        "would lie within two; they are not, because chance is the same for all policies)"
    )
    if not far:
        return f"The intervals cover what they should: {text}."
    groups: dict[str, list[str]] = {}
    for policy, what, coverage in far:
        side = "too narrow" if coverage.away < 0.0 else "too wide"
        share = f"{100 * coverage.observed:.1f} % inside the {100 * coverage.level:.0f} % interval"
        groups.setdefault(f"{policy} ({what}) {side}: ", []).append(share)
    told = "; ".join(name + ", ".join(shares) for name, shares in groups.items())
    return f"Not all intervals cover what they should: {text}. Outside three standard errors: {told}."


def calibration_picture(run: Run) -> Picture | None:
    """Shares inside intervals, against what they should be; None where no forecasts were recorded."""
    found, styles = calibrations(run), policy_styles(run.policies)
    nominal = 100.0 * np.asarray(LEVELS)
    axes: dict[str, Any] = {"x_label": "interval (%)"}
    axes["y_label"] = "share inside minus nominal (percentage points)"
    panels = []
    for what in next(iter(found.values()), {}):
        series = [Series("nominal", nominal, np.zeros_like(nominal), PolicyStyle(7, 2))]
        for policy, calibration in found.items():
            if levels := calibration[what]:
                label = f"{policy}  {100.0 * levels[-1].observed:.1f}"
                away = np.array([100.0 * (each.observed - each.level) for each in levels])
                half = np.array([200.0 * each.stderr for each in levels])
                series.append(Series(label, nominal, away, styles[policy], half))
        if series[1:]:
            panels.append(Chart(series=tuple(series), title=what, **axes, markers=True))
    caption = (
        "Share that fell inside the intervals, minus the nominal share; ± 2 standard errors. "
        "Below zero, the intervals are too narrow. Labels: share inside the 95 % interval."
    )
    picture = Picture(name="calibration", panels=tuple(panels), caption=caption, columns=3)
    return picture if panels else None


def forecast_warnings(run: Run) -> list[str]:
    """One line for each policy whose 95 % intervals held far fewer choices than they should."""
    words = words_of(run)
    return [
        f"forecasts of {policy} are too narrow: {100 * share.observed:.0f} % of "
        f"{counted(share.judged, words.choice)} fell inside the 95 % interval; do not rely on them"
        for policy, calibration in calibrations(run).items()
        for share in calibration[words.measured[-1]][-1:]
        if share.away < -OFF and share.observed < share.level - _FAR
    ]
