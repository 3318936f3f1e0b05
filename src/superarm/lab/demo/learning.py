"""One traveller learns, and every trip becomes a frame to show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from superarm.core import AT_95, QUANTILES, Decision, Feedback, Forecast, Ints, Offer
from superarm.core.normal import rectified_mean
from superarm.core.road_map import RoadMap
from superarm.lab.experiments import Experiment
from superarm.lab.simulation import simulate
from superarm.models.worlds import RouteWorld

LEARNER = "gp-ts"
# Of the central 95 % interval, in standard deviations.
_HALF_WIDTH = float(QUANTILES[AT_95])


@dataclass(frozen=True, kw_only=True, eq=False)
class Frame:
    """One trip: its route, its forecast and its energy.

    Args:
        step: The number of the trip, from 1.
        route: Numbers of its edges, (k,).
        new_edges: Those of them that no earlier trip used.
        tried: The number of edges used so far.
        energy: Energy of the trip in Wh, noise included.
        forecast: Its forecast in Wh.
        spread: Half-width of the forecast's 95 % interval in Wh.
        regret: The expected energy above that of the best route, in Wh.
    """

    step: int
    route: Ints
    new_edges: Ints
    tried: int
    energy: float
    forecast: float
    spread: float
    regret: float


@dataclass(frozen=True, kw_only=True, eq=False)
class City:
    """What stays the same from trip to trip.

    Args:
        roads: The map.
        known: Expected energy of some routes that need no learning, in Wh, by name.
    """

    roads: RoadMap
    known: Mapping[str, float]


def make_world(experiment: Experiment, *, rounds: int, seed: int) -> RouteWorld:
    """Build the demo's city.

    Args:
        experiment: The experiment that describes it.
        rounds: The number of trips.
        seed: The seed of the roads' energies.
    """
    problem = experiment.build_problem(seed=seed, horizon=rounds)
    assert isinstance(problem, RouteWorld)
    return problem


def describe_city(problem: RouteWorld) -> City:
    """Return the map, and the energy of routes that need no learning.

    Args:
        problem: The demo's problem.
    """
    costs = {
        "fastest": problem.known_costs["travel_time"],
        "shortest": problem.known_costs["length"],
        "prior": rectified_mean(problem.known_costs["energy"], problem.noise_std),
        "best": rectified_mean(problem.energies, problem.noise_std),
    }
    known = {}
    for name, cost in costs.items():
        route = problem.cheapest(cost)
        known[name] = float(problem.energies[route].sum())
    return City(roads=problem.road_map(), known=known)


def learn(
    experiment: Experiment,
    problem: RouteWorld,
    *,
    rounds: int,
    seed: int,
    show: Callable[[Frame], None] = lambda frame: None,
) -> list[Frame]:
    """Let the learner travel, and return its trips.

    Args:
        experiment: The experiment that describes the learner.
        problem: The demo's problem.
        rounds: The number of trips.
        seed: The seed of noise and learner.
        show: Called after every trip.
    """
    frames: list[Frame] = []
    tried: set[int] = set()

    def watch(
        name: str,
        offer: Offer,
        decision: Decision,
        feedback: Feedback,
        forecast: Forecast | None,
    ) -> None:
        assert forecast is not None  # the runner audits every learner on roads
        route = decision.positions.tolist()
        new_edges = [edge for edge in route if edge not in tried]
        tried.update(new_edges)
        mean, std = forecast.total()
        frame = Frame(
            step=offer.step,
            route=decision.positions,
            new_edges=np.array(new_edges, dtype=np.intp),
            tried=len(tried),
            energy=float(feedback.rewards.sum()),
            forecast=mean,
            spread=_HALF_WIDTH * std,
            regret=problem.value(offer, decision) - problem.best(offer).value,
        )
        frames.append(frame)
        show(frame)

    policy = experiment.build_policy(LEARNER, problem)
    simulate(problem, {LEARNER: policy}, rounds=rounds, seed=seed, watch=watch)
    return frames
