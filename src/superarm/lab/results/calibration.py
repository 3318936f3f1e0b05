"""Whether forecasts were true: shares of rewards inside the intervals of audited policies.

=================  ==============================================================
p                  nominal level of a central interval, one of ``LEVELS``
c                  ``observed``: share of arms, or of choices, inside their intervals
m                  how many arms or choices were judged
d                  inside or not (1 or 0), minus c
D                  design effect: by how much the variance of c is larger than that of
                   m independent arms or choices
N                  ``effective``: m/D, of how many independent ones c says as much
=================  ==============================================================

A choice is what the arms of a round make together: on roads a trip, whose arms are edges.

If a policy's model is right, then whatever it has seen so far, the next reward lies inside its
p-interval with probability p. So successive choices are uncorrelated, although all of them meet one
truth. Arms of one choice are not, nor are choices of the same round and seed in the settings of a
sweep, which share their noise: what one round of one seed holds is a *group*. Whether the *truth* lies
inside is no new question in the next round, nor in the next setting: there all of a seed is a group.
So it is where feedback comes late or is lost: choices that are made before it are wrong together.

Between groups nothing is correlated, so that m² Var(c) = Σ_groups Var(Σ d), and the design effect is
D = Σ_groups (Σ d)² / Σ d² [kish1965survey], corrected for the mean of G groups by G/(G − 1); at least
1, and at most what it is where all of a group lies inside or outside together. A share near 1 shows
little of D (of five seeds at 100 % all d are 0), so that the largest D of all levels counts: what
goes together at 95 % goes together at 50 %, too. Where each group is a single choice, D is 1.

If the intervals were right, c N would be a binomial count of N at p; its exact tails fit shares near 1,
where a normal approximation does not. D itself is an estimate from G groups; the tail's quantile is
therefore taken as that of Student's t with G − 1 degrees of freedom. ``away`` is the result, as
standard errors of a normal distribution that are as unlikely.

All shares of a run are judged at once: with a right model, one or more of them is called wrong with a
probability of at most 5 %, after Bonferroni, however they depend on each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from superarm.core import AT_95, LEVELS, QUANTILES, Floats, Ints
from superarm.lab.simulation.run import Run

from .formats import count_text
from .pictures import Chart, Picture, Series
from .settings import feedback_at_once
from .styles import PolicyStyle, policy_styles

# The largest share of runs with a right model in which a share is called wrong.
_FALSE_ALARMS = 0.05


class IntervalCoverage(NamedTuple):
    """How many of the intervals of one level contained what they forecast.

    Args:
        level: The nominal share, p.
        observed: The share inside, c.
        judged: The number of arms or choices that were forecast, m.
        effective: The number of independent ones with as much evidence, N.
        groups: The number of groups from which ``effective`` was estimated; 0 where it is
            known.
        seeds: The number of seeds that were judged as one observation each; 0 where
            rounds were.
    """

    level: float
    observed: float
    judged: int
    effective: float
    groups: int = 0
    seeds: int = 0

    @property
    def stderr(self) -> float:
        """The standard error of ``observed``, if the intervals were right."""
        return float(np.sqrt(self.level * (1.0 - self.level) / self.effective))

    @property
    def away(self) -> float:
        """Observed minus nominal, in standard errors of a normal that are as unlikely.

        NaN for one seed judged as one observation, which is no evidence about others.
        """
        from scipy.special import ndtri, stdtr

        if self.seeds == 1:
            return float("nan")
        tail = min(1.0, self._tail())
        errors = max(0.0, -float(ndtri(tail)))
        if self.groups and errors > 0.0:
            student_tail = stdtr(self.groups - 1, -errors)
            errors = -float(ndtri(student_tail))
        difference = self.observed - self.level
        return float(np.copysign(errors, difference))

    def _tail(self) -> float:
        """The probability of a share at least as far from its level, on the same side.

        Exact binomial tails, P(X ≥ x) = I_p(x, N − x + 1), also where x and N are no
        integers.
        """
        from scipy.special import betainc

        inside = self.observed * self.effective
        outside = (1.0 - self.observed) * self.effective
        if self.observed >= self.level:
            if inside <= 0.0:
                return 1.0
            return float(betainc(inside, outside + 1.0, self.level))
        if outside <= 0.0:
            return 1.0
        return float(betainc(outside, inside + 1.0, 1.0 - self.level))


def chance_limit(shares: int) -> float:
    """Standard errors that chance explains where several shares are judged at once.

    Args:
        shares: The number of shares.

    >>> [round(chance_limit(shares), 2) for shares in (1, 15, 135)]
    [1.96, 2.94, 3.56]
    """
    from scipy.special import ndtri

    return -float(ndtri(_FALSE_ALARMS / (2.0 * max(shares, 1))))


class JudgedShare(NamedTuple):
    """One share that can be judged."""

    policy: str
    subject: str  # arms, first choices, choices, or the truth of them
    coverage: IntervalCoverage


def judged_shares(calibrations: Mapping[str, Calibration]) -> list[JudgedShare]:
    """All shares that can be judged.

    Args:
        calibrations: Coverage by policy.
    """
    shares = []
    for policy, calibration in calibrations.items():
        for subject, levels in calibration.items():
            shares += [
                JudgedShare(policy, subject, coverage)
                for coverage in levels
                if coverage.seeds != 1
            ]
    return shares


class Words(NamedTuple):
    """What a run calls an arm, a choice, their reward, and arms chosen for the first time."""

    arm: str = "arm"
    choice: str = "choice"
    reward: str = "reward"
    first: str = "first choices"

    @property
    def arms(self) -> str:
        """Rewards of single arms."""
        return f"{self.arm}s"

    @property
    def choices(self) -> str:
        """Total rewards of choices."""
        return f"{self.choice}s"

    @property
    def true_arms(self) -> str:
        """Expected rewards of single arms, by the intervals of the latent mean."""
        return f"truth of {self.arm}s"

    @property
    def true_choices(self) -> str:
        """Expected rewards of choices, by the intervals of the latent mean."""
        return f"truth of {self.choice}s"

    @property
    def measured(self) -> tuple[str, ...]:
        """Subjects of coverage that are observed."""
        return self.arms, self.first, self.choices

    @property
    def true(self) -> tuple[str, ...]:
        """Subjects of coverage that only a simulation knows."""
        return self.true_arms, self.true_choices


ON_ROADS = Words("edge", "trip", "energy", "first visits")


def words_of(run: Run) -> Words:
    """The words of a run.

    Args:
        run: The run.
    """
    return Words() if run.road_map() is None else ON_ROADS


Calibration = Mapping[str, tuple[IntervalCoverage, ...]]
"""One policy's coverage at each of ``LEVELS``, by subject; empty where that is unknown."""
_FAR = 0.05  # a share so far from its level matters to those who rely on it


class _Audits(NamedTuple):
    """The judged rounds of one policy, of one cell or of several."""

    within: Floats  # (rounds, levels)
    first: Floats  # (rounds, levels)
    firsts: Floats  # (rounds,)
    score: Floats
    true_within: Floats  # (rounds, levels)
    true_score: Floats
    sizes: Ints  # how many arms were chosen in each round
    rounds: Ints  # numbers of the rounds, different for different seeds
    seeds: Ints  # whose each round is


def calibrations(run: Run) -> dict[str, Calibration]:
    """Coverage of each policy with recorded forecasts, all settings and seeds together.

    Args:
        run: The run.
    """
    indices = range(len(run.settings))
    words = words_of(run)
    at_once = all(feedback_at_once(run, index) for index in indices)
    by_policy: dict[str, Calibration] = {}
    for policy in run.policies:
        cells = []
        for index, seed in product(indices, run.seeds):
            audits = _read_audits(run, policy, index, seed)
            if audits is not None:
                cells.append(audits)
        if cells:
            fields = zip(*cells, strict=True)
            joined = _Audits(*(np.concatenate(field) for field in fields))
            by_policy[policy] = _calibration(joined, words, at_once)
    return by_policy


def _read_audits(run: Run, policy: str, index: int, seed: int) -> _Audits | None:
    """The judged rounds of a cell; ``None`` where there are none."""
    arrays = run.audit(policy, index, seed)
    if arrays is None:
        return None
    judged = np.isfinite(arrays["score"])
    if not judged.any():
        return None

    def column(name: str) -> Floats:
        values: Floats = arrays[name][judged].astype(np.float64)
        return values

    choices = run.choices(policy, index, seed)[judged]
    rounds = seed * run.rounds + np.flatnonzero(judged)
    return _Audits(
        within=column("within"),
        first=column("first"),
        firsts=column("firsts"),
        score=column("score"),
        true_within=column("true_within"),
        true_score=column("true_score"),
        sizes=(choices >= 0).sum(axis=1),
        rounds=rounds,
        seeds=np.full(len(rounds), seed),
    )


def _calibration(audits: _Audits, words: Words, at_once: bool) -> Calibration:
    """Coverage by subject.

    ``at_once``: whether a policy knew all rewards of a round before the next.
    """
    late = not at_once
    sizes = audits.sizes
    seeds = audits.seeds
    groups = audits.rounds if at_once else seeds
    arms: tuple[IntervalCoverage, ...] = ()
    true_arms: tuple[IntervalCoverage, ...] = ()
    if not (sizes == 1).all():  # else arms are choices
        arms = _shares(audits.within, sizes, groups, of_seeds=late)
        true_arms = _shares(audits.true_within, sizes, seeds, of_seeds=True)
    new = audits.firsts > 0
    first = _shares(audits.first[new], audits.firsts[new], groups[new], of_seeds=late)
    ones = np.ones(len(sizes))
    within = _within(audits.score)
    choices = _shares(within, ones, groups, of_seeds=late)
    true_within = _within(audits.true_score)
    true_choices = _shares(true_within, ones, seeds, of_seeds=True)
    return {
        words.arms: arms,
        words.first: first,
        words.choices: choices,
        words.true_arms: true_arms,
        words.true_choices: true_choices,
    }


def _shares(
    inside: Floats, sizes: Floats | Ints, groups: Ints, *, of_seeds: bool = False
) -> tuple[IntervalCoverage, ...]:
    """Coverage at every level.

    Args:
        inside: Shares inside the intervals, of each row, (rows, levels).
        sizes: The number of arms or choices of each row, (rows,).
        groups: The group of each row, whose rows may depend on each other, (rows,).
        of_seeds: Whether groups are seeds.
    """
    count = int(sizes.sum())
    if not count or not np.isfinite(inside).all():
        return ()
    observed = sizes @ inside / count  # c, (levels,)
    sums = sizes[:, None] * (inside - observed)  # Σ d of each row
    squares = count * observed * (1.0 - observed)  # Σ d² of all, as d + c is 1 or 0
    distinct, numbers = np.unique(groups, return_inverse=True)
    members = np.zeros(len(distinct))
    np.add.at(members, numbers, sizes)
    totals = np.zeros((len(distinct), len(LEVELS)))
    np.add.at(totals, numbers, sums)
    known = bool((members == 1).all())
    design = 1.0 if known else _design_effect(totals, squares, members)
    coverages = []
    for level, share in zip(LEVELS, observed.tolist(), strict=True):
        coverage = IntervalCoverage(
            level=level,
            observed=share,
            judged=count,
            effective=count / design,
            groups=0 if known else len(distinct),
            seeds=len(distinct) if of_seeds else 0,
        )
        coverages.append(coverage)
    return tuple(coverages)


def _design_effect(totals: Floats, squares: Floats, members: Floats) -> float:
    """D, the largest of all levels.

    Args:
        totals: Σ d of each group, (groups, levels).
        squares: Σ d², (levels,).
        members: The number of arms or choices of each group, (groups,).
    """
    groups = len(totals)
    # The limit is reached where all of a group are inside or outside at once.
    mean_size = members @ members / members.sum()  # weighted by size
    limit = max(1.0, float(mean_size))
    varied = squares > 0.0
    if groups == 1 or not varied.any():
        return limit
    # As for any variance about the mean of so many groups.
    correction = groups / (groups - 1.0)
    corrected = correction * np.sum(totals**2, axis=0)
    effects = corrected[varied] / squares[varied]
    return float(np.clip(effects.max(), 1.0, limit))


def _within(scores: Floats) -> Floats:
    """Whether scores lie inside their intervals, NaN where unknown, (n, levels)."""
    inside = np.abs(scores)[:, None] <= QUANTILES
    return np.where(np.isnan(scores)[:, None], np.nan, inside)


def calibration_verdict(calibrations: Mapping[str, Calibration]) -> str:
    """Say in plain words whether the intervals have the right coverage.

    Args:
        calibrations: Coverage by policy.
    """
    shares = judged_shares(calibrations)
    if not shares:
        return "One seed cannot show whether the intervals have the right coverage."
    limit = chance_limit(len(shares))
    near = sum(abs(share.coverage.away) <= 2.0 for share in shares)
    far = [share for share in shares if abs(share.coverage.away) > limit]
    text = (
        f"{near} of {count_text(len(shares), 'share')} lie within two standard errors of their nominal "
        f"level; among so many, chance puts the farthest up to {limit:.2g} away in 19 of 20 runs"
    )
    if not far:
        return f"The intervals have the right coverage: {text}."
    return f"Not all intervals have the right coverage: {text}. Beyond chance: {_far_text(far)}."


def _far_text(shares: Sequence[JudgedShare]) -> str:
    """Shares beyond chance, by policy, subject and side."""
    texts: dict[str, list[str]] = {}
    for policy, subject, coverage in shares:
        side = "too narrow" if coverage.away < 0.0 else "too wide"
        observed = f"{100 * coverage.observed:.1f} %"
        text = f"{observed} inside the {100 * coverage.level:.0f} % interval"
        texts.setdefault(f"{policy} ({subject}) {side}", []).append(text)
    return "; ".join(f"{name}: {', '.join(parts)}" for name, parts in texts.items())


def calibration_picture(run: Run) -> Picture | None:
    """Draw shares inside intervals, minus their levels; ``None`` where none were recorded.

    Args:
        run: The run.
    """
    by_policy = calibrations(run)
    subjects = next(iter(by_policy.values()), {})
    panels = []
    for subject in subjects:
        coverages = {
            policy: calibration[subject] for policy, calibration in by_policy.items()
        }
        if any(coverages.values()):
            panels.append(_calibration_panel(run, subject, coverages))
    if not panels:
        return None
    caption = (
        "Share that fell inside the intervals, minus the nominal share; ± 2 standard errors. "
        "Below zero, the intervals are too narrow. Labels: share inside the 95 % interval."
    )
    return Picture(name="calibration", panels=tuple(panels), caption=caption, columns=3)


def _calibration_panel(
    run: Run, subject: str, coverages: Mapping[str, tuple[IntervalCoverage, ...]]
) -> Chart:
    styles = policy_styles(run.policies)
    nominal = 100.0 * np.asarray(LEVELS)
    series = [Series("nominal", nominal, np.zeros_like(nominal), PolicyStyle(7, 2))]
    for policy, levels in coverages.items():
        if levels:
            label = f"{policy}  {100.0 * _at_95(levels).observed:.1f}"
            away = [100.0 * (level.observed - level.level) for level in levels]
            half = np.array([200.0 * level.stderr for level in levels])
            curve = Series(label, nominal, np.array(away), styles[policy], half)
            series.append(curve)
    return Chart(
        series=tuple(series),
        title=subject,
        x_label="interval (%)",
        y_label="share inside minus nominal (percentage points)",
        markers=True,
        x_places=tuple(nominal.tolist()),
    )


def _at_95(coverages: Sequence[IntervalCoverage]) -> IntervalCoverage:
    """The coverage of the 95 % intervals."""
    return next(each for each in coverages if each.level == LEVELS[AT_95])


def forecast_warnings(run: Run) -> list[str]:
    """A line for each policy whose 95 % intervals contained far too few choices.

    Args:
        run: The run.
    """
    words = words_of(run)
    coverages = {}
    for policy, calibration in calibrations(run).items():
        levels = calibration[words.choices]
        if levels:
            coverages[policy] = _at_95(levels)
    limit = chance_limit(len(coverages))
    warnings = []
    for policy, coverage in coverages.items():
        far = coverage.observed < coverage.level - _FAR
        if far and coverage.away < -limit:
            count = count_text(coverage.judged, words.choice)
            warnings.append(
                f"forecasts of {policy} are too narrow: {100 * coverage.observed:.0f} % of "
                f"{count} fell inside the 95 % interval; do not rely on them"
            )
    return warnings
