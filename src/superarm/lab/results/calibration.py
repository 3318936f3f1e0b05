"""Whether forecasts were true: shares of rewards inside the intervals of audited policies. Numpy only.

=================  ==============================================================
p                  nominal level of a central interval: 50, 90, 95 %
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
little of D (of five seeds at 100 % all d are 0), so that the largest D of the three levels counts: what
goes together at 95 % goes together at 50 %, too. Where each group is a single choice, D is 1.

If the intervals were right, c N would be a binomial count of N at p; its exact tails fit shares near 1,
where a normal approximation does not. D itself is an estimate from G groups; the tail's quantile is
therefore taken as that of Student's t with G − 1 degrees of freedom. ``away`` is the result, as
standard errors of a normal distribution that are as unlikely.

All shares of a run are judged at once: with a right model, one or more of them is called wrong with a
probability of at most 5 %, after Bonferroni, however they depend on each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from superarm.core import LEVELS, QUANTILES, Floats, Ints
from superarm.lab.simulation.run import Run

from .formats import count_text
from .pictures import Chart, Picture, Series
from .settings import feedback_at_once
from .styles import PolicyStyle, policy_styles

_FALSE_ALARMS = (
    0.05  # at most so many runs with a right model have a share that is called wrong
)


class IntervalCoverage(NamedTuple):
    """How many of the intervals of one level held what they were made for."""

    level: float
    observed: float
    judged: int  # how many arms or choices were forecast
    effective: float  # how many independent ones would say as much
    groups: int = 0  # from how many ``effective`` was estimated; 0 where it is known
    seeds: int = (
        0  # how many seeds were judged as one observation each; 0 where rounds were
    )

    @property
    def stderr(self) -> float:
        """Of ``observed``, if the intervals were right."""
        return float(np.sqrt(self.level * (1.0 - self.level) / self.effective))

    @property
    def away(self) -> float:
        """Observed minus nominal, in standard errors that are as unlikely under a normal distribution;
        NaN for one seed judged as one observation, which says nothing about others."""
        from scipy.special import betainc, ndtri, stdtr

        if self.seeds == 1:
            return float("nan")
        inside, outside = (
            self.observed * self.effective,
            (1.0 - self.observed) * self.effective,
        )
        # Exact binomial tails, P(X ≥ x) = I_p(x, N − x + 1), also where x and N are no whole numbers.
        if self.observed >= self.level:
            tail = betainc(inside, outside + 1.0, self.level) if inside > 0.0 else 1.0
        else:
            tail = (
                betainc(outside, inside + 1.0, 1.0 - self.level)
                if outside > 0.0
                else 1.0
            )
        errors = max(0.0, -float(ndtri(min(1.0, tail))))
        if self.groups:
            errors = -float(ndtri(stdtr(self.groups - 1, -errors))) if errors else 0.0
        return float(np.copysign(errors, self.observed - self.level))


def chance_limit(shares: int) -> float:
    """Standard errors that chance explains where so many shares are judged at once.

    >>> [round(chance_limit(shares), 2) for shares in (1, 15, 135)]
    [1.96, 2.94, 3.56]
    """
    from scipy.special import ndtri

    return -float(ndtri(_FALSE_ALARMS / (2.0 * max(shares, 1))))


def judged_shares(
    found: Mapping[str, Calibration],
) -> list[tuple[str, str, IntervalCoverage]]:
    """Policy, what it is about, and share: all that can be judged."""
    return [
        (policy, what, coverage)
        for policy, calibration in found.items()
        for what, levels in calibration.items()
        for coverage in levels
        if coverage.seeds != 1
    ]


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


Calibration = Mapping[str, tuple[IntervalCoverage, ...]]
"""One policy's coverage at 50, 90 and 95 %, by what it is about; empty where that is not known."""
_AUDITED = ("within", "first", "firsts", "score", "true_within", "true_score")
_FAR = 0.05  # a share so far from its level matters to whoever relies on it


def calibrations(run: Run) -> dict[str, Calibration]:
    """Coverage of every policy whose forecasts were recorded, all settings and seeds together."""
    found: dict[str, Calibration] = {}
    words = words_of(run)
    at_once = all(feedback_at_once(run, index) for index in range(len(run.settings)))
    for policy in run.policies:
        cells, seeds = [], []
        for index, seed in product(range(len(run.settings)), run.seeds):
            audit = run.audit(policy, index, seed)
            if audit is not None and (judged := np.isfinite(audit["score"])).any():
                sizes = (run.choices(policy, index, seed)[judged] >= 0).sum(axis=1)
                told = {
                    name: audit[name][judged].astype(np.float64) for name in _AUDITED
                }
                rounds = seed * run.rounds + np.flatnonzero(
                    judged
                )  # of all seeds, each its own
                cells.append({**told, "sizes": sizes, "rounds": rounds})
                seeds.append(seed)
        if cells:
            joined = {
                name: np.concatenate([cell[name] for cell in cells])
                for name in cells[0]
            }
            owners = np.repeat(seeds, [len(cell["rounds"]) for cell in cells])
            found[policy] = _calibration(joined, owners, words, at_once)
    return found


def _calibration(
    cells: Mapping[str, Any], seeds: Ints, words: Words, at_once: bool
) -> Calibration:
    """Of the judged rounds of all seeds and settings.

    Args:
        cells: what was recorded of each round.
        seeds: whose each round is.
        words: what arms and choices are called.
        at_once: whether a policy knew all rewards of a round before the next.
    """
    sizes, fresh = cells["sizes"], cells["firsts"] > 0
    groups = cells["rounds"] if at_once else seeds
    single = bool((sizes == 1).all())  # arms are choices, which tell all
    ones = np.ones(len(sizes))
    every = (
        () if single else _shares(cells["within"], sizes, groups, of_seeds=not at_once),
        _shares(
            cells["first"][fresh],
            cells["firsts"][fresh],
            groups[fresh],
            of_seeds=not at_once,
        ),
        _shares(_within(cells["score"]), ones, groups, of_seeds=not at_once),
        () if single else _shares(cells["true_within"], sizes, seeds, of_seeds=True),
        _shares(_within(cells["true_score"]), ones, seeds, of_seeds=True),
    )
    return dict(zip(words.measured + words.true, every, strict=True))


def _shares(
    inside: Floats, sizes: Floats, groups: Ints, *, of_seeds: bool = False
) -> tuple[IntervalCoverage, ...]:
    """Coverage at every level.

    Args:
        inside: shares inside the intervals, of each row, (rows, levels).
        sizes: of how many arms or choices each is, (rows,).
        groups: rows of one group may depend on each other, (rows,).
        of_seeds: whether groups are seeds.
    """
    count = int(sizes.sum())
    if not count or not np.isfinite(inside).all():
        return ()
    observed = sizes @ inside / count  # (levels,)
    sums = sizes[:, None] * (inside - observed)  # Σ d of each row
    squares = (
        count * observed * (1.0 - observed)
    )  # Σ d² of all, as each is 1 or 0 before
    different, places = np.unique(groups, return_inverse=True)
    members = np.zeros(len(different))
    np.add.at(members, places, sizes)
    totals = np.zeros((len(different), len(LEVELS)))
    np.add.at(totals, places, sums)
    known = bool((members == 1).all())
    design = 1.0 if known else _design_effect(totals, squares, members)
    seeds = len(different) if of_seeds else 0
    return tuple(
        IntervalCoverage(
            level, share, count, count / design, 0 if known else len(different), seeds
        )
        for level, share in zip(LEVELS, observed.tolist(), strict=True)
    )


def _design_effect(totals: Floats, squares: Floats, members: Floats) -> float:
    """The largest of all levels, from Σ d of each group, (groups, levels), Σ d², (levels,), and how
    many arms or choices each group holds, (groups,)."""
    groups = len(totals)
    most = float(
        members @ members / members.sum()
    )  # where all of a group are inside or outside at once
    varied = squares > 0.0
    if groups == 1 or not varied.any():
        return max(1.0, most)
    # As for any variance about the mean of so many groups.
    corrected = groups / (groups - 1.0) * np.sum(totals**2, axis=0)
    return float(
        np.clip((corrected[varied] / squares[varied]).max(), 1.0, max(1.0, most))
    )


def _within(scores: Floats) -> Floats:
    """Whether each lies inside its interval of every level, NaN where nobody knows, (n, levels)."""
    return np.where(
        np.isnan(scores)[:, None], np.nan, np.abs(scores)[:, None] <= QUANTILES
    )


def calibration_verdict(found: Mapping[str, Calibration]) -> str:
    """In plain words, whether the intervals cover what they should."""
    every = judged_shares(found)
    if not every:
        return "One seed cannot say whether the intervals cover what they should."
    limit = chance_limit(len(every))
    near = sum(abs(coverage.away) <= 2.0 for _, _, coverage in every)
    far = [share for share in every if abs(share[2].away) > limit]
    text = (
        f"{near} of {count_text(len(every), 'share')} lie within two standard errors of their nominal "
        f"level; among so many, chance puts the farthest up to {limit:.2g} away in 19 of 20 runs"
    )
    if not far:
        return f"The intervals cover what they should: {text}."
    groups: dict[str, list[str]] = {}
    for policy, what, coverage in far:
        side = "too narrow" if coverage.away < 0.0 else "too wide"
        share = f"{100 * coverage.observed:.1f} % inside the {100 * coverage.level:.0f} % interval"
        groups.setdefault(f"{policy} ({what}) {side}: ", []).append(share)
    told = "; ".join(name + ", ".join(shares) for name, shares in groups.items())
    return f"Not all intervals cover what they should: {text}. Beyond chance: {told}."


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
                away = np.array(
                    [100.0 * (each.observed - each.level) for each in levels]
                )
                half = np.array([200.0 * each.stderr for each in levels])
                series.append(Series(label, nominal, away, styles[policy], half))
        if series[1:]:
            panels.append(Chart(series=tuple(series), title=what, **axes, markers=True))
    caption = (
        "Share that fell inside the intervals, minus the nominal share; ± 2 standard errors. "
        "Below zero, the intervals are too narrow. Labels: share inside the 95 % interval."
    )
    picture = Picture(
        name="calibration", panels=tuple(panels), caption=caption, columns=3
    )
    return picture if panels else None


def forecast_warnings(run: Run) -> list[str]:
    """One line for each policy whose 95 % intervals held far fewer choices than they should."""
    words, found = words_of(run), calibrations(run)
    shares = {
        policy: calibration[words.measured[-1]][-1:]
        for policy, calibration in found.items()
    }
    limit = chance_limit(sum(map(len, shares.values())))
    return [
        f"forecasts of {policy} are too narrow: {100 * share.observed:.0f} % of "
        f"{count_text(share.judged, words.choice)} fell inside the 95 % interval; do not rely on them"
        for policy, every in shares.items()
        for share in every
        if share.away < -limit and share.observed < share.level - _FAR
    ]
