"""``python -m bench.fleet FOLDER NAME=NETWORK[@TILES] …``: fleets on empty roads and in traffic.

Each city, traffic and seed is one file in FOLDER, which is left out where it exists already: what was
interrupted goes on. ``python -m bench.fleet FOLDER`` alone prints the tables of what is there.

- *energy*: Wh a trip from the 21st on, above that of the informed prior, driven on the same day; and
  of the first 20. *best driven*: of all routes that anybody drove between two places, the one that
  needed least on those days, over all of them.
- *coverage*: share of edges and trips inside the intervals of ``LEVELS``, forecast beforehand.

With ``--ways`` the cautious learner learns in four ways: twenty vehicles together, each alone, together
from the energies of whole trips, and together with feedback an hour late. *Error*: root mean square of
the trips' forecasts, Wh, on the first three trips of each vehicle and afterwards.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from superarm.core import AT_95, QUANTILES, levels_text
from superarm.core.registry import build
from superarm.lab.simulation import simulate
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
FIRST = 20  # trips of which exploration is forgiven
CANDIDATES = 4  # routes between two places of which the best driven is sought


def one_seed(problem: Fleet, names: list[str], rounds: int) -> dict[str, Any]:
    """Every policy's rounds, and the best driven routes."""
    found: dict[str, Any] = {}
    routes: dict[int, dict[tuple[int, ...], list[float]]] = {}
    best = np.array(
        [problem.best(problem.offer(step)).value for step in range(1, rounds + 1)]
    )
    for name in names:
        policy = build("policy", {**LEARNERS, **OTHERS}[name], model=problem.model)
        trace = simulate(problem, {name: policy}, rounds=rounds, seed=problem.seed)[
            name
        ]
        assert trace.seconds is not None
        assert trace.choices is not None
        found[name] = {
            "above": trace.series["regret"].tolist(),
            "energy": trace.series["true_energy"].tolist(),
            "seconds": float(np.mean(trace.seconds)),
        }
        if trace.audit is not None and name in LEARNERS:
            found[name] |= {
                each: trace.audit[each].tolist() for each in ("within", "score")
            }
        for step in range(1, rounds + 1):
            route = tuple(
                edge for edge in trace.choices[step - 1].tolist() if edge >= 0
            )
            above = routes.setdefault(problem.journey(step).trip, {}).setdefault(
                route, []
            )
            above.append(float(trace.series["regret"][step - 1]))
    found["best driven"] = {"above": best_driven(problem, routes, best).tolist()}
    return found


WAYS: Mapping[str, Mapping[str, Any]] = {
    "together": {},
    "alone": {"separate": True},
    "trip totals": {"seen": "trips"},
    "an hour late": {"late": 3600.0},
}


def one_way(options: Mapping[str, Any], separate: bool, rounds: int) -> dict[str, Any]:
    """A cautious learner's rounds, and how far its forecasts were off."""
    problem = Fleet(horizon=rounds, **options)
    policy = build("policy", LEARNERS["cautious"], model=problem.model)
    if separate:
        policy = wrapped(policy, {"name": "separate", "column": int(Column.VEHICLE)})
    errors: list[float] = []
    count: dict[int, int] = {}
    early: list[bool] = []

    def watch(
        name: str, offer: Any, decision: Any, feedback: Any, forecast: Any
    ) -> None:
        vehicle = problem.journey(offer.step).vehicle
        count[vehicle] = count.get(vehicle, 0) + 1
        early.append(count[vehicle] <= 3)
        errors.append(float(feedback.rewards.sum() - forecast.mean.sum()))

    trace = simulate(
        problem, {"one": policy}, rounds=rounds, seed=problem.seed, watch=watch
    )["one"]
    assert trace.audit is not None
    measurements = {
        "above": trace.series["regret"].tolist(),
        "errors": errors,
        "early": early,
    }
    return measurements | {
        key: trace.audit[key].tolist() for key in ("within", "score")
    }


def print_ways(folder: Path) -> None:
    heads = (
        "city",
        "way",
        "above informed: first 3",
        "after",
        "error: first 3",
        "after",
        "trips in 95 %",
    )
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name, ways in cells(folder):
        for way, seeds in ways.items():
            above, errors, score = (
                np.array([seed[each] for seed in seeds])
                for each in ("above", "errors", "score")
            )
            early = np.array([seed["early"] for seed in seeds])
            sizes = [np.sqrt(np.mean(errors[where] ** 2)) for where in (early, ~early)]
            shares = [above[where].mean() for where in (early, ~early)]
            inside = 100 * np.mean(
                np.abs(score[np.isfinite(score)]) <= QUANTILES[AT_95]
            )
            print(
                f"| {name} | {way} | {shares[0]:+.1f} | {shares[1]:+.1f} | {sizes[0]:.1f} | "
                f"{sizes[1]:.1f} | {inside:.1f} |"
            )


def best_driven(problem: Fleet, routes: Mapping[int, Any], best: Any) -> Any:
    """Energy of the best route of each pair above the informed prior's, round by round."""
    above = np.zeros(len(best))
    for pair, driven in routes.items():
        steps = [
            step
            for step in range(1, len(best) + 1)
            if problem.journey(step).trip == pair
        ]
        likely = sorted(driven, key=lambda route: float(np.mean(driven[route])))[
            :CANDIDATES
        ]
        energies = (
            np.array(
                [
                    [problem.energies(step, route).sum() for step in steps]
                    for route in likely
                ]
            )
            - best[np.array(steps) - 1]
        )
        above[np.array(steps) - 1] = energies[energies.mean(axis=1).argmin()]
    return above


def cells(folder: Path) -> Iterator[tuple[str, dict[str, list[Any]]]]:
    """Each city and traffic with its seeds, by policy."""
    groups: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("*.json")):
        groups.setdefault(path.stem.rsplit("-", 1)[0], []).append(path)
    for name, paths in groups.items():
        seeds = [json.loads(path.read_text()) for path in paths]
        yield (
            name,
            {
                policy: [seed[policy] for seed in seeds if policy in seed]
                for policy in seeds[0]
            },
        )


def print_tables(folder: Path) -> None:
    print(
        "| city | policy | Wh a trip | above informed, first 20 | after | 95 % of it | seeds |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, policies in cells(folder):
        for policy, seeds in policies.items():
            first = np.array([np.mean(seed["above"][:FIRST]) for seed in seeds])
            after = np.array([np.mean(seed["above"][FIRST:]) for seed in seeds])
            energy = (
                np.mean([np.mean(seed["energy"]) for seed in seeds])
                if "energy" in seeds[0]
                else None
            )
            half = (
                2.776 * after.std(ddof=1) / np.sqrt(len(after))
                if len(after) > 1
                else float("nan")
            )
            energy_text = "" if energy is None else f"{energy:.0f}"
            print(
                f"| {name} | {policy} | {energy_text} | {first.mean():+.1f} | {after.mean():+.1f} | "
                f"± {half:.1f} | {len(seeds)} |"
            )
    heads = (
        "city",
        "policy",
        f"edges in {levels_text()}",
        f"trips in {levels_text()}",
        "trips",
    )
    print(f"\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name, policies in cells(folder):
        for policy, seeds in policies.items():
            if "score" not in seeds[0]:
                continue
            within = np.nanmean(
                np.concatenate([np.array(seed["within"]) for seed in seeds]), axis=0
            )
            scores = np.abs(np.concatenate([seed["score"] for seed in seeds]))
            scores = scores[np.isfinite(scores)]
            trips = [(scores <= each).mean() for each in QUANTILES]
            edges = ", ".join(f"{100 * each:.1f}" for each in within)
            trip_shares = ", ".join(f"{100 * share:.1f}" for share in trips)
            print(f"| {name} | {policy} | {edges} | {trip_shares} | {len(scores)} |")


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
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    for seed in range(asked.seeds):
        for traffic in asked.traffic:
            for city in asked.cities:
                name, _, place = city.partition("=")
                network, _, tiles = place.partition("@")
                path = asked.folder / f"{name}-{traffic:g}-{seed}.json"
                if path.exists():
                    continue
                options = {
                    "seed": seed,
                    "network": network,
                    "elevation": tiles or None,
                    "informed": not asked.uninformed,
                    "traffic": traffic,
                    "moments": asked.moments,
                    "cache": str(asked.folder / f"{name}-{traffic:g}.sqlite"),
                }
                if asked.ways:
                    found = {
                        way: one_way(
                            {**options, **_without_separate(more)},
                            "separate" in more,
                            asked.rounds,
                        )
                        for way, more in WAYS.items()
                    }
                else:
                    problem = Fleet(horizon=asked.rounds, **options)
                    found = one_seed(problem, asked.policies.split(","), asked.rounds)
                path.write_text(json.dumps(found))
                print(path.name, flush=True)
    (print_ways if asked.ways else print_tables)(asked.folder)


def _without_separate(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key != "separate"}


if __name__ == "__main__":
    main()
