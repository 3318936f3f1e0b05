"""What figures and reports of runs on roads share: numbers read from traces. Numpy only.

=================  ==============================================================
n                  edges of the road map; an edge is an arm
p                  nominal level of a central interval: 50, 90, 95 %
visits             how often each edge was driven on, (n,)
observed           share of edges, or of trips, inside their intervals
stderr             of ``observed`` if the intervals were right
β_t                squared width: the index is mean − √β_t·std
=================  ==============================================================

Why the standard errors hold. If a policy's model is right, then whatever it has seen so far, the
next reward lies inside its p-interval with probability p. The differences "inside or not, minus p"
of successive trips are therefore uncorrelated, although all of them meet one fixed truth: for trips
the error is binomial, √(p(1−p)/T). Edges of one trip are not independent of each other, so for
edges a trip counts as one observation: √(Σ k_t²(w_t − p)²) / Σ k_t with w_t the share of its k_t edges;
likewise for edges that are driven on for the first time, where noise hides the forecast least. Whether
the *truth* lies inside is no new question on the next trip: there a whole run counts as one
observation, and the error is that of the mean over runs (seeds and settings).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
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
    if "true_energy" not in run.metrics:
        return {}
    tenth = max(1, run.rounds // 10)
    span = counted(tenth, "round") if tenth > 1 else "round"
    known = ("fastest", "prior", "shortest")
    reference = next((policy for policy in known if policy in run.policies), run.policies[0])

    def energy(policy: str, start: int = 0, stop: int | None = None) -> Floats:
        return per_round(run, policy, setting_index, "true_energy", start, stop)

    rows = {
        policy: {
            run.metric("true_energy").text: average(energy(policy)),
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

    @property
    def away(self) -> float:
        """Observed minus nominal, in standard errors."""
        return (self.observed - self.level) / self.stderr if self.stderr > 0.0 else 0.0


MEASURED = ("edges", "first visits", "trips")
TRUE = ("truth of edges", "truth of trips")
"""Expected energies, by the intervals of the latent mean."""
Calibration = Mapping[str, tuple[Coverage, ...]]
"""One policy's coverage at 50, 90 and 95 %, by what it is about; empty where that is not known."""


def calibrations(run: Run) -> dict[str, Calibration]:
    """Coverage of every policy whose forecasts were recorded, all settings and seeds together."""
    found: dict[str, Calibration] = {}
    for policy in run.policies:
        cells = []
        for index in range(len(run.settings)):
            for seed in run.seeds:
                audit = run.audit(policy, index, seed)
                if audit is not None and np.isfinite(audit["score"]).any():
                    judged = np.isfinite(audit["score"])
                    sizes = (run.choices(policy, index, seed)[judged] >= 0).sum(axis=1)
                    told = {name: audit[name][judged].astype(np.float64) for name in _AUDITED}
                    cells.append({**told, "sizes": sizes})
        if cells:
            joined = {name: np.concatenate([cell[name] for cell in cells]) for name in cells[0]}
            fresh = joined["firsts"] > 0
            truths = [(_within(cell["true_score"]), np.ones_like(cell["sizes"])) for cell in cells]
            found[policy] = {
                "edges": _edge_coverage(joined["within"], joined["sizes"]),
                "first visits": _edge_coverage(joined["first"][fresh], joined["firsts"][fresh]),
                "trips": _trip_coverage(joined["score"]),
                "truth of edges": _true_coverage([(c["true_within"], c["sizes"]) for c in cells]),
                "truth of trips": _true_coverage(truths),
            }
    return found


_AUDITED = ("within", "first", "firsts", "score", "true_within", "true_score")


def _true_coverage(cells: Sequence[tuple[Any, Ints]]) -> tuple[Coverage, ...]:
    """Shares of each run, all of them weighted alike; the error is that of their mean."""
    shares = np.array([sizes @ inside / sizes.sum() for inside, sizes in cells])
    if not len(shares) or not np.isfinite(shares).all():
        return ()
    observed, stderr = mean_stderr(shares)
    return _coverage(observed, stderr, int(sum(sizes.sum() for _, sizes in cells)))


def _edge_coverage(inside: Floats, sizes: Ints) -> tuple[Coverage, ...]:
    count = int(sizes.sum())
    if not count:
        return ()
    observed = sizes @ inside / count
    away = sizes[:, None] * (inside - np.asarray(LEVELS))
    return _coverage(observed, np.sqrt(np.sum(away**2, axis=0)) / count, count)


def _trip_coverage(scores: Floats) -> tuple[Coverage, ...]:
    levels, count = np.asarray(LEVELS), len(scores)
    return _coverage(_within(scores).mean(axis=0), np.sqrt(levels * (1 - levels) / count), count)


def _within(scores: Floats) -> Floats:
    """Whether each lies inside its interval of every level, NaN where nobody knows, (n, levels)."""
    column = scores[:, None]
    return np.where(np.isnan(column), np.nan, np.abs(column) <= QUANTILES)


def _coverage(observed: Floats, stderr: Floats, count: int) -> tuple[Coverage, ...]:
    values = zip(LEVELS, observed.tolist(), stderr.tolist(), strict=True)
    return tuple(Coverage(level, share, error, count) for level, share, error in values)


def calibration_verdict(found: Mapping[str, Calibration]) -> str:
    """In plain words, whether the intervals cover what they should."""
    every = [
        (policy, what, coverage)
        for policy, calibration in found.items()
        for what in MEASURED
        for coverage in calibration[what]
    ]
    near = sum(abs(coverage.away) <= 2.0 for _, _, coverage in every)
    far = [each for each in every if abs(each[2].away) > OFF]
    text = (
        f"{near} of {len(every)} shares lie within two standard errors of their nominal level and "
        f"{len(every) - len(far)} within three (if they were independent, about 19 of 20 "
        "would lie within two; they are not, because all policies meet the same noise)"
    )
    if not far:
        return f"The intervals cover what they should: {text}."
    groups: dict[tuple[str, str], list[Coverage]] = {}
    for policy, what, coverage in far:
        side = "too narrow" if coverage.away < 0.0 else "too wide"
        groups.setdefault((f"{policy} ({what})", side), []).append(coverage)
    told = "; ".join(
        f"{name} {side}: "
        + ", ".join(
            f"{100 * each.observed:.1f} % inside the {100 * each.level:.0f} % interval"
            for each in levels
        )
        for (name, side), levels in groups.items()
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
                title=what,
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
    """One line for each policy whose 95 % intervals held far fewer trips than they should."""
    return [
        f"forecasts of {policy} are too narrow: {100 * trips.observed:.0f} % of "
        f"{counted(trips.judged, 'trip')} fell inside the 95 % interval; do not rely on them"
        for policy, calibration in calibrations(run).items()
        for trips in calibration["trips"][-1:]
        if trips.away < -OFF and trips.observed < trips.level - _FAR
    ]


_FAR = 0.05
"""A share so far from its level matters to whoever relies on it, however sure the difference is."""
