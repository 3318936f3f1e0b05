"""What figures and reports of runs on roads share: numbers read from traces. Numpy only.

=================  ==============================================================
n                  edges of the road map; an edge is an arm
p                  nominal level of a central interval: 50, 90, 95 %
visits             how often each edge was driven on, (n,)
observed           share of edges, or of trips, inside their intervals
stderr             of ``observed`` if the intervals were right
d                  inside or not, minus p
β_t                squared width: the index is mean − √β_t·std
=================  ==============================================================

Why the standard errors hold. If a policy's model is right, then whatever it has seen so far, the
next reward lies inside its p-interval with probability p. The d of successive trips are therefore
uncorrelated, although all of them meet one fixed truth: for trips the error is binomial, √(p(1−p)/T).
Edges of one trip are not independent of each other, so for edges all that is seen in one round of one
seed counts as one observation: √(Σ (Σ d)²) / Σ 1, the inner sum over its edges; likewise for edges
that are driven on for the first time, where noise hides the forecast least. The settings of a sweep
share the noise of each seed and round: they are summed inside the square, and Σ (Σ d)² − Σ d²
is added for trips where it is positive. Whether the *truth* lies inside is no new question on the
next trip, nor in the next setting: there a seed counts as one observation, and the error is that of
the mean over seeds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats, Ints
from superarm.networks import RoadMap
from superarm.registry import require_kind
from superarm.rules import BayesianGPUCB, BayesUCBQuantile
from superarm.simulation.audit import LEVELS, QUANTILES
from superarm.simulation.trace import Run

from .curves import Average, PolicyStyle, average, counted, mean_stderr, per_round, policy_styles
from .pictures import Chart, Picture, Series

METHODS = ("gp-ucb", "gp-bucb", "gp-ts", "bi-ucb", "bi-bucb", "bi-ts")
"""The six methods of Bayesian Analysis of Combinatorial Gaussian Process Bandits (2025)."""
OFF = 3.0
"""Standard errors by which a share may differ from its level before it is called wrong."""


# --- trips -------------------------------------------------------------------------------


def trip_settings(run: Run) -> list[int]:
    """One setting for each trip of the run, the first of those that differ in other things alone."""
    found: dict[tuple[bytes, int, int], int] = {}
    for index in range(len(run.settings)):
        roads = run.road_map(index)
        if roads is not None:
            found.setdefault(trip_key(roads), index)
    return list(found.values())


def trip_key(roads: RoadMap) -> tuple[bytes, int, int]:
    """Equal for the same trip on the same network; the first part tells networks apart."""
    return roads.points.tobytes(), roads.start, roads.goal


def trip_name(run: Run, setting_index: int) -> str:
    """``Luxembourg A`` where the problem names a route, else the run's own name."""
    problem = (run.spec.get("parameters") or {}).get("problem") or {}
    setting = run.settings[setting_index]
    route = setting.get("route", setting.get("problem.route", problem.get("route")))
    if not isinstance(route, str) or not route:
        return run.experiment
    place, _, letter = route.rpartition("-")
    return f"{place.title()} {letter.upper()}" if place and len(letter) == 1 else route


def visits(run: Run, policy: str, setting_index: int, seed: int, edges: int) -> Ints:
    """How often each edge was driven on, (n,)."""
    chosen = run.choices(policy, setting_index, seed).ravel()
    return np.bincount(chosen[chosen >= 0], minlength=edges)


def usual_route(run: Run, policy: str, setting_index: int, seed: int) -> Ints:
    """The route driven most often in the last tenth of the rounds; of several, the latest."""
    late = run.choices(policy, setting_index, seed)[: -max(1, run.rounds // 10) - 1 : -1]
    routes = Counter(tuple(row[row >= 0].tolist()) for row in late)  # ties keep their order
    return np.array(routes.most_common(1)[0][0], dtype=np.intp)


def best_policy(run: Run, setting_index: int) -> str:
    """The policy of least regret over the last tenth of the rounds; of several, the first."""
    start = run.rounds - max(1, run.rounds // 10)
    return min(
        run.policies,
        key=lambda policy: float(per_round(run, policy, setting_index, "regret", start).mean()),
    )


def trip_energies(run: Run, setting_index: int) -> dict[str, dict[str, Average]]:
    """Every policy's energy per trip by what it is told of, least first; empty if not recorded."""
    if "true_energy" not in run.metrics_at(setting_index):
        return {}
    tenth = max(1, run.rounds // 10)
    span = counted(tenth, "round") if tenth > 1 else "round"
    known = ("fastest", "prior", "shortest")
    reference = next((policy for policy in known if policy in run.policies), run.policies[0])

    def energy(policy: str, start: int = 0, stop: int | None = None) -> Floats:
        return per_round(run, policy, setting_index, "true_energy", start, stop)

    rows = {
        policy: {
            run.metric("true_energy", setting_index).text: average(energy(policy)),
            # Seed by seed: truths differ more than policies do.
            f"difference from {reference}": average(energy(policy) - energy(reference)),
            f"first {span}": average(energy(policy, 0, tenth)),
            f"last {span}": average(energy(policy, run.rounds - tenth)),
        }
        for policy in run.policies
    }
    return dict(sorted(rows.items(), key=lambda row: next(iter(row[1].values())).mean))


def main_policies(run: Run) -> list[str]:
    """What one figure of maps shows: every policy of a small run, else the six ``METHODS``."""
    methods = [policy for policy in METHODS if policy in run.policies]
    return (
        methods if methods and len(run.policies) > len(METHODS) else list(run.policies[: len(METHODS)])
    )


# --- calibration -------------------------------------------------------------------------


class Coverage(NamedTuple):
    """How many of the intervals of one level held what they were made for."""

    level: float
    observed: float
    stderr: float
    judged: int
    """How many edges or trips were forecast."""
    seeds: int = 0
    """How many seeds the error is taken over; 0 where it is taken over rounds."""

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
        return errors if difference > 0.0 else -errors


MEASURED = ("edges", "first visits", "trips")
TRUE = ("truth of edges", "truth of trips")
"""Expected energies, by the intervals of the latent mean."""
Calibration = Mapping[str, tuple[Coverage, ...]]
"""One policy's coverage at 50, 90 and 95 %, by what it is about; empty where that is not known."""


def calibrations(run: Run) -> dict[str, Calibration]:
    """Coverage of every policy whose forecasts were recorded, all settings and seeds together."""
    found: dict[str, Calibration] = {}
    for policy in run.policies:
        cells, seeds = [], []
        for index in range(len(run.settings)):
            for seed in run.seeds:
                audit = run.audit(policy, index, seed)
                if audit is not None and np.isfinite(audit["score"]).any():
                    judged = np.isfinite(audit["score"])
                    sizes = (run.choices(policy, index, seed)[judged] >= 0).sum(axis=1)
                    told = {name: audit[name][judged].astype(np.float64) for name in _AUDITED}
                    rounds = seed * run.rounds + np.flatnonzero(judged)  # of all seeds, each its own
                    cells.append({**told, "sizes": sizes, "rounds": rounds})
                    seeds.append(seed)
        if cells:
            joined = {name: np.concatenate([cell[name] for cell in cells]) for name in cells[0]}
            rounds, fresh = joined["rounds"], joined["firsts"] > 0
            firsts = joined["first"][fresh], joined["firsts"][fresh], rounds[fresh]
            edges = [cell["sizes"] @ cell["true_within"] / cell["sizes"].sum() for cell in cells]
            trips = [_within(cell["true_score"]).mean(axis=0) for cell in cells]
            sizes = joined["sizes"]
            found[policy] = {
                "edges": _edge_coverage(joined["within"], sizes, rounds),
                "first visits": _edge_coverage(*firsts),
                "trips": _trip_coverage(joined["score"], rounds),
                "truth of edges": _true_coverage(edges, seeds, int(sizes.sum())),
                "truth of trips": _true_coverage(trips, seeds, len(sizes)),
            }
    return found


_AUDITED = ("within", "first", "firsts", "score", "true_within", "true_score")


def _true_coverage(shares: Sequence[Floats], seeds: Sequence[int], count: int) -> tuple[Coverage, ...]:
    """From one share per run: the mean over a seed's settings first, as they share their truth."""
    if not np.isfinite(shares).all():
        return ()
    every, owners = np.array(shares), np.array(seeds)
    each = np.array([every[owners == seed].mean(axis=0) for seed in dict.fromkeys(seeds)])
    return _coverage(*mean_stderr(each), count, len(each))


def _edge_coverage(inside: Floats, sizes: Ints, rounds: Ints) -> tuple[Coverage, ...]:
    count = int(sizes.sum())
    if not count:
        return ()
    observed = sizes @ inside / count
    away = sizes[:, None] * (inside - np.asarray(LEVELS))
    return _coverage(observed, np.sqrt(_squares(away, rounds)) / count, count)


def _trip_coverage(scores: Floats, rounds: Ints) -> tuple[Coverage, ...]:
    levels, count, inside = np.asarray(LEVELS), len(scores), _within(scores)
    away = inside - levels
    shared = np.maximum(0.0, _squares(away, rounds) - np.sum(away**2, axis=0)) / count
    return _coverage(inside.mean(axis=0), np.sqrt((levels * (1 - levels) + shared) / count), count)


def _squares(away: Floats, rounds: Ints) -> Floats:
    """Σ (Σ d)², the inner sum over all that one round of one seed holds."""
    different, places = np.unique(rounds, return_inverse=True)
    sums = np.zeros((len(different), len(LEVELS)))
    np.add.at(sums, places, away)
    squares: Floats = np.sum(sums**2, axis=0)
    return squares


def _within(scores: Floats) -> Floats:
    """Whether each lies inside its interval of every level, NaN where nobody knows, (n, levels)."""
    column = scores[:, None]
    return np.where(np.isnan(column), np.nan, np.abs(column) <= QUANTILES)


def _coverage(observed: Floats, stderr: Floats, count: int, seeds: int = 0) -> tuple[Coverage, ...]:
    values = zip(LEVELS, observed.tolist(), stderr.tolist(), strict=True)
    return tuple(Coverage(level, share, error, count, seeds) for level, share, error in values)


def on_roads(run: Run) -> bool:
    return "distinct_edges" in run.metrics_at(0)


def called(run: Run, what: str) -> str:
    """What edges and trips are called where arms are not roads."""
    if on_roads(run):
        return what
    return {"edges": "arms", "first visits": "first choices", "trips": "rounds"}.get(what, what)


def calibration_verdict(
    found: Mapping[str, Calibration], name: Callable[[str], str] = lambda what: what
) -> str:
    """In plain words, whether the intervals cover what they should; ``name`` calls edges and trips."""
    every = [
        (policy, what, coverage)
        for policy, calibration in found.items()
        for what in MEASURED + TRUE
        for coverage in calibration[what]
        if coverage.seeds != 1
    ]
    near = sum(abs(coverage.away) <= 2.0 for _, _, coverage in every)
    far = [each for each in every if abs(each[2].away) > OFF]
    text = (
        f"{near} of {len(every)} shares lie within two standard errors of their nominal level and "
        f"{len(every) - len(far)} within three (if they were independent, about 19 of 20 "
        "would lie within two; they are not, because all policies meet the same noise and truths)"
    )
    if not far:
        return f"The intervals cover what they should: {text}."
    groups: dict[tuple[str, str], list[Coverage]] = {}
    for policy, what, coverage in far:
        side = "too narrow" if coverage.away < 0.0 else "too wide"
        groups.setdefault((f"{policy} ({name(what)})", side), []).append(coverage)
    told = "; ".join(
        f"{whose} {side}: "
        + ", ".join(
            f"{100 * each.observed:.1f} % inside the {100 * each.level:.0f} % interval"
            for each in levels
        )
        for (whose, side), levels in groups.items()
    )
    return f"Not all intervals cover what they should: {text}. Outside three standard errors: {told}."


def calibration_picture(run: Run) -> Picture | None:
    """Shares inside intervals, against what they should be; None where no forecasts were recorded."""
    found = calibrations(run)
    styles = policy_styles(run.policies)
    nominal = 100.0 * np.asarray(LEVELS)
    right = Series("nominal", nominal, np.zeros_like(nominal), PolicyStyle(7, 2))
    panels = []
    for what in MEASURED + TRUE:
        lines = [
            Series(
                f"{policy}  {100.0 * levels[-1].observed:.1f}",
                nominal,
                np.array([100.0 * (each.observed - each.level) for each in levels]),
                styles[policy],
                np.array([200.0 * each.stderr for each in levels]),
            )
            for policy, calibration in found.items()
            if (levels := calibration[what])
        ]
        if lines:
            chart = Chart(
                series=(right, *lines),
                title=called(run, what),
                x_label="interval (%)",
                y_label="share inside minus nominal (percentage points)",
                markers=True,
            )
            panels.append(chart)
    caption = (
        "Share that fell inside the intervals, minus the nominal share; ± 2 standard errors. "
        "Below zero, the intervals are too narrow. Labels: share inside the 95 % interval."
    )
    picture = Picture(name="calibration", panels=tuple(panels), caption=caption, columns=3)
    return picture if panels else None


# --- widths ------------------------------------------------------------------------------


Schedule = BayesianGPUCB | BayesUCBQuantile
_OPTIONS: dict[str, tuple[type[Schedule], tuple[str, ...]]] = {
    "route-ucb": (BayesianGPUCB, ("scale",)),
    "route-bucb": (BayesUCBQuantile, ("omega", "xi")),
}


def schedule_of(run: Run, policy: str, setting_index: int, arms: int) -> Schedule | None:
    """The very schedule that a route policy has on ``arms`` edges; ``None`` for other policies."""
    policies = (run.spec.get("parameters") or {}).get("policies") or {}
    options: Mapping[str, Any] = policies.get(policy) or {}
    kind, names = _OPTIONS.get(str(options.get("policy", policy)), (None, ()))
    setting = run.settings[setting_index]
    given = {}
    for name in names:
        value = setting.get(f"{policy}.{name}", setting.get(name, options.get(name, 1.0)))
        require_kind(value, float, f"{run.directory / 'run.json'}: {policy}.{name}")
        given[name] = float(value)
    return kind(arms=arms, **given) if kind else None


def compares_schedules(run: Run) -> bool:
    """Whether the run holds several parametrisations of one schedule, as Fig. 3 does."""
    found = {schedule_of(run, policy, 0, arms=1) for policy in run.policies}
    return None not in found and len(found) > len({type(each) for each in found})


def forecast_warnings(run: Run) -> list[str]:
    """One line for each policy whose 95 % intervals held far fewer outcomes than they should."""
    return [
        f"forecasts of {policy} are too narrow: {100 * trips.observed:.0f} % of "
        f"{counted(trips.judged, 'outcome')} fell inside the 95 % interval; do not rely on them"
        for policy, calibration in calibrations(run).items()
        for trips in calibration["trips"][-1:]
        if trips.away < -OFF and trips.observed < trips.level - _FAR
    ]


_FAR = 0.05
"""A share so far from its level matters to whoever relies on it, however sure the difference is."""
