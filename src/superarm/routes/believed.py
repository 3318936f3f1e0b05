"""What is believed of the energies of all edges: by the model alone, or by what was learned.

A :class:`Source` answers for one vehicle, at any time of departure, with what is :class:`Known`.
Nothing else here knows how it was learned: a new kind of belief is a new source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, time
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from superarm.core import LEVELS, QUANTILES, Floats, Forecast, Ints, Offer, Oracle, State
from superarm.errors import InputError, StateError
from superarm.kernels import Periodic
from superarm.networks import LineGraph, RoadEnergy, Vehicle
from superarm.oracles import ShortestPath
from superarm.policies.base import IndexPolicy
from superarm.posteriors import DriftingGP, Wrapping
from superarm.problems.road_models import road_arms, road_prior
from superarm.registry import Described, describe, difference
from superarm.simulation.trace import Run, cell_name, read_spec
from superarm.states import load_state, loaded

HALF_WIDTH = float(QUANTILES[-1])  # of the central 95 % interval, in standard deviations
SCALES = ("prior_scale", "noise_scale")

When = datetime | time
"""A time of departure: of a day, or of any day."""


class TrackRecord(NamedTuple):
    """How often the 95 % interval of a policy's own trips held, by the record of its run."""

    trips: int
    inside: float  # share of the trips

    @property
    def holds(self) -> bool:
        """Whether the share is at most three standard errors below 95 %."""
        level = LEVELS[-1]
        return self.inside >= level - 3.0 * float(np.sqrt(level * (1.0 - level) / self.trips))


@dataclass(frozen=True, kw_only=True, eq=False)
class Known:
    """What is believed of all edges, for one vehicle at one time."""

    mean: Floats  # expected energy of each edge, Wh, (n,)
    turn_costs: Floats  # what each turn adds, Wh, (c,): 0 where it is learned with the edges
    noise_std: float  # of one edge on one trip, Wh
    spreads: Callable[[Ints], Floats]
    """Of a trip over these edges: half-widths of the 95 % intervals of what its first 1, 2, …, k edges
    cost together, (k,)."""
    observations: int = 0  # how many energies of edges were measured


class Source(Protocol):
    """What answers for one vehicle at any time."""

    vehicle: Vehicle
    timed: bool  # whether the time of departure makes a difference
    record: TrackRecord | None  # how forecasts of this kind have fared

    def known(self, depart: When | None) -> Known: ...


# --- by the energy model alone -------------------------------------------------------------


class ByModel:
    """The prior without the network's kernel, which takes long to make on a large one."""

    timed = False
    record: TrackRecord | None = None

    def __init__(self, graph: LineGraph, vehicle: Vehicle, settings: Mapping[str, Any]) -> None:
        self.vehicle, self._graph = vehicle, graph
        self._prior = road_prior(
            graph, vehicle, **{key: settings[key] for key in SCALES if key in settings}
        )
        self._lengthscale = settings.get("lengthscale", 1.0)

    def known(self, depart: When | None) -> Known:
        prior, graph = self._prior, self._graph
        return Known(
            mean=prior.energies.values,
            turn_costs=self.vehicle.turn_energy(graph),
            noise_std=prior.noise_std,
            spreads=lambda edges: spreads(prior.forecast(graph, edges, self._lengthscale)),
        )


def spreads(forecast: Forecast) -> Floats:
    """Half-widths of the 95 % intervals of the sums of a forecast's first 1, 2, …, k arms, (k,)."""
    latent = np.diagonal(forecast.cov.cumsum(axis=0).cumsum(axis=1))
    noise = forecast.noise_std**2 * np.eye(len(latent)) if forecast.noise_cov is None else forecast.noise_cov
    XX


# --- by what was learned -------------------------------------------------------------------


class Learned:
    """The posterior of a policy that finds routes; it brings its vehicle with it."""

    def __init__(self, state: str | Path | State) -> None:
        self.label = "this state" if isinstance(state, State) else str(state)
        policy = loaded(state if isinstance(state, State) else load_state(state), self.label)
        inside: object = policy.posterior if isinstance(policy, IndexPolicy) else None
        while isinstance(inside, Wrapping):
            inside = inside.posterior
        energy = inside.parameters().get("mean") if isinstance(inside, Described) else None
        if not isinstance(policy, IndexPolicy) or not isinstance(energy, RoadEnergy):
            raise StateError(
                f"{self.label} was not learned by a policy that finds routes on a road network"
            )
        self.vehicle, self._energy, self._policy = energy.vehicle, energy, policy
        self._hours = _trips_a_day(inside)
        self.timed = self._hours is not None
        self.record = None if isinstance(state, State) else _record(Path(state).absolute())
        self._graph: LineGraph | None = None

    def unlike(self, graph: LineGraph) -> str | None:
        """How these roads differ from those it was learned on, in words."""
        there = _arrays(self._energy, self._policy.oracle)
        return difference(_arrays(graph, ShortestPath(successors=graph.turn_graph)), there)

    def on(self, graph: LineGraph) -> Learned:
        """Asked about these roads from now on."""
        self._graph = graph
        return self

    def known(self, depart: When | None) -> Known:
        assert self._graph is not None
        policy, graph = self._policy, self._graph
        offer = Offer(step=self._step(depart), arms=road_arms(graph))
        try:
            mean = policy.posterior.belief(offer).mean
        except InputError as error:
            raise StateError(
                f"{self.label} was learned where conditions change from trip to trip; a route cannot "
                f"be found without them ({error})"
            ) from error
        return Known(
            mean=mean,
            turn_costs=np.zeros(len(graph.turns)),
            noise_std=policy.posterior.noise_std,
            spreads=lambda edges: spreads(policy.forecast(offer, edges)),
            observations=policy.posterior.count,
        )

    def _step(self, depart: When | None) -> int:
        """The next round, as energies may drift; the next at that hour where it is known to matter."""
        step = self._policy.last_step + 1
        if depart is None or self._hours is None:
            return step
        share = (depart.hour + depart.minute / 60.0) / 24.0
        return step + (round(share * self._hours) - (step - 1)) % self._hours  # the first is at 0:00


def _trips_a_day(posterior: object) -> int | None:
    """The period of what comes back in a drift, in rounds: those are the trips of a day."""
    kernels: list[Any] = [posterior.drift] if isinstance(posterior, DriftingGP) else []
    for kernel in kernels:  # which grows
        if isinstance(kernel, Periodic):
            return round(float(np.ravel(kernel.period)[0]))
        kernels += getattr(kernel, "kernels", ())
    return None


def _record(state: Path) -> TrackRecord | None:
    """What the run that this state lies in says of its policy's forecasts, all seeds together."""
    directory = state.parents[1]
    if state.parent.name != "states" or not (directory / "run.json").is_file():
        return None
    run = Run(directory, read_spec(directory))  # it may still be under way
    for policy in run.policies:
        for index in range(len(run.settings)):
            if state.stem in {cell_name(policy, index, seed) for seed in run.seeds}:
                audits = [run.audit(policy, index, seed) for seed in run.seeds]
                scores = np.concatenate([[], *(each["score"] for each in audits if each is not None)])
                scores = np.abs(scores[np.isfinite(scores)])
                inside = np.count_nonzero(scores <= HALF_WIDTH)
                return TrackRecord(len(scores), inside / len(scores)) if len(scores) else None
    return None


def _arrays(roads: LineGraph | RoadEnergy, oracle: Oracle) -> dict[str, Any]:
    """What makes two networks the same: the roads, and the turns between them."""
    turns = describe(oracle).get("successors", {}).get("turns")
    return {name: getattr(roads, name) for name in ("length", "speed", "rise")} | {"turns": turns}
