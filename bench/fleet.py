"""``python -m bench.fleet FOLDER NAME=NETWORK[@TILES] …``: fleets on empty roads and in traffic.

Each city, traffic and seed is one file in FOLDER. Files that exist are not made again, so an interrupted
run resumes. ``python -m bench.fleet FOLDER`` alone prints the tables of the stored files.

- *energy*: Wh a trip from the 21st on, above that of the informed prior, driven on the same day; and
  of the first 20. *best driven*: of all routes that any policy drove between two places, the one that
  needed least on those days, over all of them.
- *coverage*: share of edges and trips inside the intervals of ``LEVELS``, forecast beforehand.

With ``--ways`` the cautious learner learns in four ways: twenty vehicles together, each alone, together
from the energies of whole trips, and together with feedback an hour late. *Error*: root mean square of
the trips' forecasts, Wh, on the first three trips of each vehicle and afterwards.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from superarm.core import AT_95, QUANTILES, Floats, levels_text
from superarm.core.registry import build
from superarm.lab.results.averages import noise_limit
from superarm.lab.simulation import Trace, simulate
from superarm.policies.wrapping import wrapped
from superarm.roads.problems import Fleet
from superarm.roads.rows import Column

LEARNERS: Mapping[str, Mapping[str, Any]] = {
    "cautious": {"name": "route-cautious"},
    "greedy": {"name": "route-greedy", "spread": "none"},
    "thompson": {"name": "route-ts", "mode": "joint", "spread": "none"},
    "bayes-ucb": {"name": "route-bucb", "spread": "none"},
}
OTHERS: Mapping[str, Mapping[str, Any]] = {
    "informed": {"name": "informed"},
    "prior": {"name": "prior", "spread": "none"},
    "fastest": {"name": "known-cost", "cost": "travel_time"},
}
POLICIES = {**LEARNERS, **OTHERS}
BEST_DRIVEN = "best driven"
FIRST = 20  # trips of which exploration is forgiven
CANDIDATES = 4  # routes between two places of which the best driven is sought
_EARLY_TRIPS = 3  # of each vehicle

Route = tuple[int, ...]


# --- records -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PolicyResult:
    """What one policy did in one seed, trip by trip.

    Args:
        above: Wh above the informed prior on the same day.
        energy: Wh; ``None`` for the best driven routes.
        seconds: Mean time that the policy took to decide and learn.
        within: Shares of each trip's edges inside the intervals of ``LEVELS``; learners only.
        score: Errors of the trips' forecasts in standard deviations; learners only.
    """

    above: list[float]
    energy: list[float] | None = None
    seconds: float | None = None
    within: list[list[float]] | None = None
    score: list[float] | None = None


@dataclass(frozen=True, kw_only=True)
class WayResult:
    """What the cautious learner did in one way and seed, trip by trip.

    Args:
        above: Wh above the informed prior on the same day.
        errors: What trips needed less their forecasts, Wh.
        early: Whether a trip is one of its vehicle's first three.
        within: Shares of each trip's edges inside the intervals of ``LEVELS``.
        score: Errors of the trips' forecasts in standard deviations.
    """

    above: list[float]
    errors: list[float]
    early: list[bool]
    within: list[list[float]]
    score: list[float]


Record = TypeVar("Record", PolicyResult, WayResult)


class Group(NamedTuple, Generic[Record]):
    """One policy or way in one city and traffic, seed by seed."""

    city: str
    name: str
    seeds: list[Record]


class Drive(NamedTuple):
    """A route that a policy chose."""

    pair: int  # of places
    route: Route
    above: float  # Wh above the informed prior


def as_json(record: PolicyResult | WayResult) -> dict[str, Any]:
    """The fields that have a value.

    Args:
        record: What to store.
    """
    return {name: value for name, value in asdict(record).items() if value is not None}


def stored_groups(folder: Path, record: type[Record]) -> Iterator[Group[Record]]:
    """Read the groups of a folder, city by city.

    Args:
        folder: Has a file for each city, traffic and seed.
        record: What to read. Further fields are ignored, so ways have policies' tables too.
    """
    known = [field.name for field in fields(record)]
    paths: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(folder.glob("*.json")):
        city = path.stem.rsplit("-", 1)[0]
        paths[city].append(path)
    for city, city_paths in paths.items():
        seeds = [json.loads(path.read_text()) for path in city_paths]
        for name in seeds[0]:
            records = []
            for seed in seeds:
                if name in seed:
                    values = _only(seed[name], known)
                    records.append(record(**values))
            yield Group(city, name, records)


def _only(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: values[name] for name in names if name in values}


# --- policies ------------------------------------------------------------------------------


def one_seed(
    problem: Fleet, names: Sequence[str], rounds: int
) -> dict[str, PolicyResult]:
    """Play every policy, and find the best driven routes.

    Args:
        problem: The fleet, with its seed.
        names: Which of ``POLICIES``.
        rounds: How many trips.
    """
    results: dict[str, PolicyResult] = {}
    drives: list[Drive] = []
    for name in names:
        policy = build("policy", POLICIES[name], model=problem.model)
        traces = simulate(problem, {name: policy}, rounds=rounds, seed=problem.seed)
        trace = traces[name]
        results[name] = policy_result(trace)
        drives += chosen_routes(problem, trace)
    results[BEST_DRIVEN] = PolicyResult(above=best_driven(problem, drives, rounds))
    return results


def policy_result(trace: Trace) -> PolicyResult:
    """What is stored of a policy.

    Args:
        trace: What it did.
    """
    assert trace.seconds is not None
    within = None
    score = None
    if trace.audit is not None and trace.policy in LEARNERS:
        within = trace.audit["within"].tolist()
        score = trace.audit["score"].tolist()
    return PolicyResult(
        above=trace.series["regret"].tolist(),
        energy=trace.series["true_energy"].tolist(),
        seconds=float(np.mean(trace.seconds)),
        within=within,
        score=score,
    )


def chosen_routes(problem: Fleet, trace: Trace) -> list[Drive]:
    """The routes of a policy, trip by trip.

    Args:
        problem: The fleet.
        trace: What the policy did.
    """
    assert trace.choices is not None
    drives = []
    for index, choice in enumerate(trace.choices.tolist()):
        pair = problem.journey(index + 1).trip
        route = tuple(edge for edge in choice if edge >= 0)
        above = float(trace.series["regret"][index])
        drives.append(Drive(pair, route, above))
    return drives


def best_driven(problem: Fleet, drives: Iterable[Drive], rounds: int) -> list[float]:
    """Wh of the best route of each pair above the informed prior's, trip by trip.

    Args:
        problem: The fleet.
        drives: The routes of all policies.
        rounds: How many trips.
    """
    above_by_pair: dict[int, dict[Route, list[float]]] = defaultdict(dict)
    for drive in drives:
        above_by_route = above_by_pair[drive.pair]
        above_by_route.setdefault(drive.route, []).append(drive.above)

    steps_by_pair: dict[int, list[int]] = defaultdict(list)
    for step in range(1, rounds + 1):
        steps_by_pair[problem.journey(step).trip].append(step)

    above = np.zeros(rounds)
    for pair, above_by_route in above_by_pair.items():
        steps = steps_by_pair[pair]
        candidates = _least_driven(above_by_route)
        excess = np.array(
            [_above_informed(problem, route, steps) for route in candidates]
        )
        best = excess.mean(axis=1).argmin()
        above[np.array(steps) - 1] = excess[best]
    values: list[float] = above.tolist()
    return values


def _least_driven(above_by_route: Mapping[Route, list[float]]) -> list[Route]:
    """The routes that needed least on the days on which they were driven."""

    def mean_above(route: Route) -> float:
        return float(np.mean(above_by_route[route]))

    return sorted(above_by_route, key=mean_above)[:CANDIDATES]


def _above_informed(problem: Fleet, route: Route, steps: Sequence[int]) -> Floats:
    """Wh of a route above the informed prior's, on the days of these trips."""
    energies = [problem.energies(step, route).sum() for step in steps]
    informed = [problem.best(problem.offer(step)).value for step in steps]
    above: Floats = np.array(energies) - np.array(informed)
    return above


def print_tables(folder: Path) -> None:
    """Print energies and coverage of all policies.

    Args:
        folder: Has the stored files.
    """
    groups = list(stored_groups(folder, PolicyResult))
    _print_head(
        "city",
        "policy",
        "Wh a trip",
        "above informed, first 20",
        "after",
        "95 % of it",
        "seeds",
    )
    for group in groups:
        _print_energies(group)
    print()
    _print_head(
        "city",
        "policy",
        f"edges in {levels_text()}",
        f"trips in {levels_text()}",
        "trips",
    )
    for group in groups:
        if group.seeds[0].score is not None:
            _print_coverage(group)


def _print_head(*names: str) -> None:
    _print_row(*names)
    print(f"|{'---|' * len(names)}")


def _print_row(*cells: str) -> None:
    print(f"| {' | '.join(cells)} |")


def _print_energies(group: Group[PolicyResult]) -> None:
    first = np.array([np.mean(seed.above[:FIRST]) for seed in group.seeds])
    after = np.array([np.mean(seed.above[FIRST:]) for seed in group.seeds])
    energies = [np.mean(seed.energy) for seed in group.seeds if seed.energy is not None]
    energy = f"{np.mean(energies):.0f}" if energies else ""
    half_width = _half_width(after)
    _print_row(
        group.city,
        group.name,
        energy,
        f"{first.mean():+.1f}",
        f"{after.mean():+.1f}",
        f"± {half_width:.1f}",
        str(len(group.seeds)),
    )


def _half_width(values: Floats) -> float:
    """Half of the 95 % interval of a mean over seeds, by Student's t; NaN for one seed."""
    if len(values) < 2:
        return float("nan")
    stderr = values.std(ddof=1) / np.sqrt(len(values))
    return float(noise_limit(len(values)) * stderr)


def _print_coverage(group: Group[PolicyResult]) -> None:
    within = np.concatenate([np.array(seed.within) for seed in group.seeds])
    edges = np.nanmean(within, axis=0)
    scores = np.concatenate([np.array(seed.score) for seed in group.seeds])
    errors = np.abs(scores[np.isfinite(scores)])
    trips = [(errors <= quantile).mean() for quantile in QUANTILES]
    _print_row(
        group.city,
        group.name,
        _percents(edges),
        _percents(trips),
        str(len(errors)),
    )


def _percents(shares: Iterable[float]) -> str:
    return ", ".join(f"{100 * share:.1f}" for share in shares)


# --- ways to learn -------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Way:
    """How the cautious learner learns.

    Args:
        separate: Whether each vehicle learns alone.
        options: Of :class:`Fleet`.
    """

    separate: bool = False
    options: Mapping[str, Any]


WAYS: Mapping[str, Way] = {
    "together": Way(options={}),
    "alone": Way(separate=True, options={}),
    "trip totals": Way(options={"seen": "trips"}),
    "an hour late": Way(options={"late": 3600.0}),
}


def one_way(options: Mapping[str, Any], way: Way, rounds: int) -> WayResult:
    """Play the cautious learner in one way, and note the errors of its forecasts.

    Args:
        options: Of :class:`Fleet`.
        way: How it learns.
        rounds: How many trips.
    """
    problem = Fleet(horizon=rounds, **options, **way.options)
    policy = build("policy", LEARNERS["cautious"], model=problem.model)
    if way.separate:
        policy = wrapped(policy, {"name": "separate", "column": int(Column.VEHICLE)})
    errors: list[float] = []
    early: list[bool] = []
    trips_by_vehicle: Counter[int] = Counter()

    def watch(
        name: str, offer: Any, decision: Any, feedback: Any, forecast: Any
    ) -> None:
        vehicle = problem.journey(offer.step).vehicle
        trips_by_vehicle[vehicle] += 1
        early.append(trips_by_vehicle[vehicle] <= _EARLY_TRIPS)
        errors.append(float(feedback.rewards.sum() - forecast.mean.sum()))

    traces = simulate(
        problem, {"one": policy}, rounds=rounds, seed=problem.seed, watch=watch
    )
    trace = traces["one"]
    assert trace.audit is not None
    return WayResult(
        above=trace.series["regret"].tolist(),
        errors=errors,
        early=early,
        within=trace.audit["within"].tolist(),
        score=trace.audit["score"].tolist(),
    )


def print_ways(folder: Path) -> None:
    """Print energies, errors and coverage of all ways.

    Args:
        folder: Has the stored files.
    """
    _print_head(
        "city",
        "way",
        "above informed: first 3",
        "after",
        "error: first 3",
        "after",
        "trips in 95 %",
    )
    for group in stored_groups(folder, WayResult):
        above = np.array([seed.above for seed in group.seeds])
        errors = np.array([seed.errors for seed in group.seeds])
        early = np.array([seed.early for seed in group.seeds])
        scores = np.array([seed.score for seed in group.seeds])
        scores = np.abs(scores[np.isfinite(scores)])
        inside = 100 * np.mean(scores <= QUANTILES[AT_95])
        early_error = np.sqrt(np.mean(errors[early] ** 2))
        later_error = np.sqrt(np.mean(errors[~early] ** 2))
        _print_row(
            group.city,
            group.name,
            f"{above[early].mean():+.1f}",
            f"{above[~early].mean():+.1f}",
            f"{early_error:.1f}",
            f"{later_error:.1f}",
            f"{inside:.1f}",
        )


# --- command line --------------------------------------------------------------------------


def measure(
    arguments: argparse.Namespace, options: Mapping[str, Any]
) -> dict[str, Any]:
    """The content of one file.

    Args:
        arguments: Of the command line.
        options: Of :class:`Fleet`.
    """
    rounds = arguments.rounds
    if arguments.ways:
        return {
            name: as_json(one_way(options, way, rounds)) for name, way in WAYS.items()
        }
    problem = Fleet(horizon=rounds, **options)
    results = one_seed(problem, arguments.policies.split(","), rounds)
    return {name: as_json(result) for name, result in results.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0] if __doc__ else None
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("cities", nargs="*", metavar="NAME=NETWORK[@TILES]")
    parser.add_argument("--traffic", type=float, nargs="*", default=[0.0])
    parser.add_argument("--moments", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--ways", action="store_true")
    parser.add_argument(
        "--uninformed",
        action="store_true",
        help="forecasts without vehicle descriptions",
    )
    parser.add_argument("--policies", default="cautious,greedy,informed,prior,fastest")
    arguments = parser.parse_args()
    folder = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    cases = itertools.product(
        range(arguments.seeds), arguments.traffic, arguments.cities
    )
    for seed, traffic, city in cases:
        name, _, place = city.partition("=")
        network, _, tiles = place.partition("@")
        path = folder / f"{name}-{traffic:g}-{seed}.json"
        if path.exists():
            continue
        options = {
            "seed": seed,
            "network": network,
            "elevation": tiles or None,
            "informed": not arguments.uninformed,
            "traffic": traffic,
            "moments": arguments.moments,
            "cache": str(folder / f"{name}-{traffic:g}.sqlite"),
        }
        path.write_text(json.dumps(measure(arguments, options)))
        print(path.name, flush=True)
    if arguments.ways:
        print_ways(folder)
    else:
        print_tables(folder)


if __name__ == "__main__":
    main()
