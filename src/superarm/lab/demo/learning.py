"""One traveller learns, and every trip becomes a frame to show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from superarm.core import QUANTILES, Decision, Feedback, Forecast, Ints, Offer
from superarm.core.normal import rectified_mean
from superarm.core.road_map import RoadMap
from superarm.lab.experiments import Experiment
from superarm.lab.simulation import simulate
from superarm.models.worlds import RouteWorld

LEARNER = "gp-ts"
_HALF_WIDTH = float(
    QUANTILES[-1]
)  # of the central 95 % interval, in standard deviations


@dataclass(frozen=True, kw_only=True, eq=False)
class Frame:
    """One trip: where it went, what was expected of it, and what it cost."""

    step: int
    route: Ints  # numbers of the edges, (k,)
    fresh: Ints  # those of them that no earlier trip used
    tried: int  # how many edges have been used so far
    energy: float  # Wh that the trip took, noise included
    forecast: float  # Wh that was expected of it beforehand
    spread: float  # half-width of the 95 % interval of that forecast, Wh
    regret: float


@dataclass(frozen=True, kw_only=True, eq=False)
class City:
    """What stays the same from trip to trip."""

    roads: RoadMap
    known: Mapping[
        str, float
    ]  # expected energy of some routes that need no learning, Wh by name


def make_world(experiment: Experiment, *, rounds: int, seed: int) -> RouteWorld:
    """The demo's city with a truth of this seed."""
    problem = experiment.build_problem(seed=seed, horizon=rounds)
    assert isinstance(problem, RouteWorld)
    return problem


def describe_city(problem: RouteWorld) -> City:
    """The map, and what routes cost that need no learning."""
    costs = {
        "fastest": problem.known_costs["travel_time"],
        "shortest": problem.known_costs["length"],
        "prior": rectified_mean(problem.known_costs["energy"], problem.noise_std),
        "best": rectified_mean(problem.energies, problem.noise_std),
    }
    routes = {name: problem.cheapest(cost) for name, cost in costs.items()}
    known = {
        name: float(problem.energies[route].sum()) for name, route in routes.items()
    }
    return City(roads=problem.road_map(), known=known)


def learn(
    experiment: Experiment,
    problem: RouteWorld,
    *,
    rounds: int,
    seed: int,
    show: Callable[[Frame], None] = lambda frame: None,
) -> list[Frame]:
    """Let the learner travel; ``show`` is called after every trip."""
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
        fresh = [edge for edge in decision.positions.tolist() if edge not in tried]
        tried.update(fresh)
        mean, std = forecast.total()
        frame = Frame(
            step=offer.step,
            route=decision.positions,
            fresh=np.array(fresh, dtype=np.intp),
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
