"""``python -m bench.country_fleet [--network country:100000] [--trips 2000]``: learn on a country, then route.

A router finds routes between random places by the energy model. A fleet of 20 vehicles drives their first 60
roads; the energies are a draw of the prior with noise. A policy learns the log. Then the router is refreshed
with its state in the background, while another thread asks it for routes. Prints one line of JSON. Times are
of one processor, except *refresh* and those of routes meanwhile, which are of the clock:

*prepare*            the hierarchy of the energy model, order and contraction included
*learn*              the whole log
*refresh*            from the call until the new energies are used
*routes meanwhile*   how many routes the other thread got, and the median and the longest time of one
*first route*        the first with its interval by the new energies, which makes the preconditioner
*route, ms*          another one
"""

from __future__ import annotations

import argparse
import json
import resource
from threading import Event, Thread
from time import perf_counter, process_time
from typing import Any

import numpy as np

from superarm.core.streams import stream
from superarm.roads.policies import route_greedy
from superarm.roads.problems.fleet import fleet_model
from superarm.roads.routing import Router

from .hierarchy import network_named, seconds
from .large_fleets import Size, driven_log

_LONGEST = 60
_VEHICLES = 20
_ROUTES = 50


def measured(name: str, trips: int) -> dict[str, Any]:
    """The numbers of one network."""
    rng = stream(0, "country fleet", trips)
    router = Router(network_named(name), search="hierarchy")
    graph = router.graph
    prepare_seconds, _ = seconds(lambda: router.prepare(compared=False))

    def pair() -> list[str]:
        return [graph.ids[edge] for edge in rng.integers(len(graph), size=2).tolist()]

    chosen = [router.route(*pair()).best.edges[:_LONGEST] for _ in range(trips // 4)]
    visited = len(np.unique(np.concatenate(chosen)))
    log = driven_log(graph, chosen, Size(len(graph), visited, trips, _VEHICLES), rng)
    policy = route_greedy(
        fleet_model(graph, refit=0, form="sparse"), routing="rectified"
    )
    posterior: Any = policy.posterior
    learn_seconds, _ = seconds(lambda: posterior.observe_trips(log))
    state = policy.state()
    pairs = [pair() for _ in range(_ROUTES)]
    times: list[float] = []
    is_over = Event()

    def ask() -> None:
        while not is_over.is_set():
            begin = perf_counter()
            router.route(*pairs[len(times) % len(pairs)])
            times.append(1e3 * (perf_counter() - begin))

    asking = Thread(target=ask)
    asking.start()
    begin = perf_counter()
    try:
        router.refresh(state).result()
    finally:
        refresh_seconds = perf_counter() - begin
        is_over.set()
        asking.join()
    # The first one makes the preconditioner, which a state does not contain.
    first_seconds, _ = seconds(lambda: router.route(*pairs[0]).best.spread)
    begin = process_time()
    for start, goal in pairs:
        _ = router.route(start, goal).best.spread
    route_seconds = process_time() - begin
    return {
        "network": name,
        "edges": len(graph),
        "visited": visited,
        "trips": trips,
        "form": posterior.form,
        "prepare, s": prepare_seconds,
        "learn, s": learn_seconds,
        "refresh, s": refresh_seconds,
        "routes meanwhile": len(times),
        "route meanwhile, ms": float(np.median(times)),
        "longest meanwhile, ms": max(times),
        "first route, s": first_seconds,
        "route, ms": 1e3 * route_seconds / len(pairs),
        "memory, GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.country_fleet")
    parser.add_argument("--network", default="country:100000")
    parser.add_argument("--trips", type=int, default=2000)
    options = parser.parse_args()
    print(json.dumps(measured(options.network, options.trips), allow_nan=False))


if __name__ == "__main__":
    main()
