"""What is believed of the energies of all edges: by the model alone, or by what was learned.

A :class:`Source` answers for one vehicle, at any time of departure, with what is :class:`EdgeEnergies`.
Nothing else here knows how it was learned: a new kind of belief is a new source.

An edge may be driven in part, a share α of it. What a road costs beyond the model is taken to be spread
evenly along it, and the noise of a drive to be independent along it: the mean and the standard
deviation of the belief are multiplied by α, and so is the variance of the noise. Signals behind an edge
add noise where they are passed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, time
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from superarm.core import Arms, Floats, Forecast, Ints, Offer, State
from superarm.core.errors import InputError, StateError
from superarm.core.registry import HasParameters, describe, difference
from superarm.core.states import load_state, loaded
from superarm.kernels import Periodic
from superarm.oracles import ShortestPath
from superarm.policies.base import IndexPolicy
from superarm.posteriors import DriftingGP, Wrapping
from superarm.roads.energy import RoadEnergy, RoadScales, Vehicle
from superarm.roads.fleets import road_mismatch
from superarm.roads.networks import LineGraph
from superarm.roads.networks.road import Uturns
from superarm.roads.posterior import (
    IntervalCalibration,
    RoadGP,
    TrackRecord,
    noise_parts,
    terms_of,
)
from superarm.roads.problems.fleet import road_rows, road_sizes
from superarm.roads.problems.road_models import road_arms
from superarm.roads.rows import Column, NoiseColumn, edges_of, scale_energies

from .battery import VEHICLE
from .search import RoutePath

_LEAST_SHARE = 1e-6  # of an edge: less of it is left out
When = datetime | time
"""A time of departure: of a day, or of any day."""


class Parts(NamedTuple):
    """Of a route, or of how it begins: its edges and how much of each is driven."""

    edges: Ints  # (k,)
    shares: Floats  # α, 0 to 1, (k,)
    passed: Floats  # 1 where the junction behind the edge is passed; 0 where the route ends before it, (k,)

    @classmethod
    def of(cls, way: RoutePath) -> Parts:
        """All of a route; one that ends with a whole edge counts the junction behind it as passed."""
        passed = np.ones(len(way.edges))
        passed[-1] = way.shares[-1] >= 1.0
        return cls(way.edges, way.shares, passed)

    def first(self, count: int) -> Parts:
        """The first edges alone."""
        return Parts(self.edges[:count], self.shares[:count], self.passed[:count])

    def rows(self, rows: Floats) -> tuple[Floats, Floats]:
        """The rows of these parts, (k, 9), and what the variance of their noise is made of, (k, 4).

        ``rows``: those of all whole edges (``road_rows``). Parts next to nothing are left out.
        """
        kept = self.shares > _LEAST_SHARE
        part, share, passed = (
            rows[self.edges[kept]],
            self.shares[kept],
            self.passed[kept],
        )
        part[:, Column.STOPS] *= passed
        noise = noise_parts(part) * share[:, None]
        noise[:, NoiseColumn.STOPS] = part[:, Column.STOPS]
        scale_energies(part, share)
        return part, noise


@dataclass(frozen=True, kw_only=True, eq=False)
class EdgeEnergies:
    """What is believed of all edges, for one vehicle at one time."""

    mean: Floats  # expected energy of each edge, Wh, (n,)
    turn_costs: (
        Floats  # what each turn adds, Wh, (c,): 0 where it is learned with the edges
    )
    noise_std: float  # of one edge on one trip, Wh
    spread: Callable[[Parts], float]
    """Half-width of the 95 % interval of what these parts of edges cost together on one trip."""
    observations: int = 0  # how many energies of edges or trips were measured


class Source(Protocol):
    """What answers for one vehicle at any time."""

    vehicle: Vehicle
    timed: bool  # whether the time of departure makes a difference
    record: TrackRecord | None  # how forecasts of this kind have fared
    trips: (
        int | None
    )  # of this vehicle that were learned; None where vehicles are not told apart

    def known(self, depart: When | None) -> EdgeEnergies: ...


def _spread(forecast: Forecast, shares: Floats) -> float:
    """Half-width of the 95 % interval of Σ α·(what an edge costs), where noise adds up in variance."""
    noise = forecast.noise_cov
    if noise is None:
        noise_variance = forecast.noise_std**2 * float(shares.sum())
    else:
        noise_variance = float(np.sqrt(shares) @ noise @ np.sqrt(shares))
    variance = float(shares @ forecast.cov @ shares) + noise_variance
    return float(forecast.total_widths[-1]) * float(np.sqrt(max(variance, 0.0)))


# --- by the energy model alone -------------------------------------------------------------


class ByModel:
    """What a fleet knows before its first trip, without the network's kernel, which takes long."""

    timed = False
    record: TrackRecord | None = None
    trips: int | None = None

    def __init__(self, graph: LineGraph, vehicle: Vehicle) -> None:
        self.vehicle, self._graph = vehicle, graph

    def known(self, depart: When | None) -> EdgeEnergies:
        graph, vehicle, scales = self._graph, self.vehicle, RoadScales()
        energies = vehicle.energy(graph.length, graph.speed, graph.rise)
        rows, sizes = (
            road_rows(graph, replace(vehicle, recuperation="multiply"), 0),
            road_sizes(graph),
        )
        width = float(IntervalCalibration(1).widths()[-1])  # as before the first trip

        def spread(parts: Parts) -> float:
            part, noise = parts.rows(rows)
            driven = sizes[edges_of(part)]
            return width * float(
                np.sqrt(scales.trip_variance(terms_of(part), noise, driven))
            )

        turn_costs, noise_std = vehicle.turn_energy(graph), scales.noise
        return EdgeEnergies(
            mean=energies, turn_costs=turn_costs, noise_std=noise_std, spread=spread
        )


# --- by what was learned -------------------------------------------------------------------


class LearnedEnergies(ABC):
    """What a policy has learned; it knows its roads by itself."""

    timed = False
    vehicle: Vehicle
    trips: int | None = None
    uturns: tuple[Uturns, ...] = (
        True,
        False,
        "dead-ends",
    )  # what its roads may be like

    def __init__(
        self, policy: IndexPolicy, label: str, record: TrackRecord | None
    ) -> None:
        self._policy, self.label, self.record = policy, label, record
        self._graph: LineGraph | None = None

    @abstractmethod
    def mismatch(self, graph: LineGraph) -> str | None:
        """How these roads differ from those it was learned on, in words."""

    def on(self, graph: LineGraph) -> Source:
        """Asked about these roads from now on."""
        self._graph = graph
        return self

    @abstractmethod
    def known(self, depart: When | None) -> EdgeEnergies: ...


class OfOneVehicle(LearnedEnergies):
    """A posterior whose prior mean is the energy model's for a vehicle: it brings that with it."""

    def __init__(
        self, energy: RoadEnergy, trips_a_day: int | None, **learned: Any
    ) -> None:
        super().__init__(**learned)
        self.vehicle, self._energy, self._trips_a_day = (
            energy.vehicle,
            energy,
            trips_a_day,
        )
        self.timed = trips_a_day is not None

    def mismatch(self, graph: LineGraph) -> str | None:
        names = ("length", "speed", "rise")
        ours, theirs = (
            {name: getattr(each, name) for name in names}
            for each in (graph, self._energy)
        )
        ours["turns"] = describe(ShortestPath(successors=graph.turn_graph))[
            "successors"
        ]["turns"]
        theirs["turns"] = (
            describe(self._policy.oracle).get("successors", {}).get("turns")
        )
        return difference(ours, theirs)

    def known(self, depart: When | None) -> EdgeEnergies:
        assert self._graph is not None
        policy, graph = self._policy, self._graph
        offer = Offer(step=self._step(depart), arms=road_arms(graph))
        try:
            mean = policy.posterior.belief(offer).mean
        except InputError as error:
            raise StateError(
                f"{self.label} was learned with conditions that change from trip to trip; route does "
                f"not know them, so it cannot use this state ({error})"
            ) from error
        return EdgeEnergies(
            mean=mean,
            turn_costs=np.zeros(len(graph.turns)),
            noise_std=policy.posterior.noise_std,
            spread=lambda parts: _spread(
                policy.forecast(offer, parts.edges), parts.shares
            ),
            observations=policy.posterior.count,
        )

    def _step(self, depart: When | None) -> int:
        """The next round, as energies may drift; the next at that hour where it is known to matter."""
        step = self._policy.last_step + 1
        if depart is None or self._trips_a_day is None:
            return step
        share = (depart.hour + depart.minute / 60.0) / 24.0
        wanted = round(share * self._trips_a_day)  # the first is at 0:00
        return step + (wanted - (step - 1)) % self._trips_a_day


class OfFleet(LearnedEnergies):
    """A fleet's posterior, which answers for any vehicle: by its name, or for one not seen yet."""

    uturns = ("dead-ends", True, False)

    def __init__(
        self, inside: RoadGP, vehicle: Vehicle | None, name: str | None, **learned: Any
    ) -> None:
        super().__init__(**learned)
        self._inside, self.vehicle = inside, vehicle or Vehicle()
        self._number = inside.vehicle_names.number(
            name or ""
        )  # in a log, trips without a name are one vehicle's
        self.trips = inside.trips_of(self._number)

    def mismatch(self, graph: LineGraph) -> str | None:
        return road_mismatch(self._inside, graph)

    def known(self, depart: When | None) -> EdgeEnergies:
        assert self._graph is not None
        policy, graph, posterior = self._policy, self._graph, self._policy.posterior
        rows = road_rows(graph, self.vehicle, self._number)
        offer = Offer(
            step=policy.last_step + 1, arms=Arms(ids=graph.ids, features=rows)
        )

        def spread(parts: Parts) -> float:
            part, noise = parts.rows(rows)
            if not len(part):
                return 0.0
            if isinstance(posterior, RoadGP):
                width, std = float(posterior.widths()[1][-1]), posterior.total(part)[1]
            else:
                names = tuple(map(str, range(len(part))))  # an edge may be driven twice
                few = replace(offer, arms=Arms(ids=names, features=part))
                forecast = policy.forecast(few, np.arange(len(part)))
                width, std = float(forecast.total_widths[-1]), forecast.total()[1]
                if (
                    forecast.noise_cov is None
                ):  # the same noise for every edge, whole or not
                    spared = len(part) - float(parts.shares.sum())
                    return width * float(
                        np.sqrt(std**2 - spared * forecast.noise_std**2)
                    )
            # The posterior multiplies the noise's standard deviation by α, not its variance.
            added = (noise - noise_parts(part)) @ np.square(
                self._inside.fitted.of_noise
            )
            return width * float(np.sqrt(std**2 + added.sum()))

        return EdgeEnergies(
            mean=posterior.belief(offer).mean + self.vehicle.potential(graph.rise),
            turn_costs=self.vehicle.turn_energy(graph),
            noise_std=posterior.noise_std,
            spread=spread,
            observations=posterior.count,
        )


def read_learned(
    state: str | Path | State,
    vehicle: Vehicle | None,
    name: str | None,
    record: TrackRecord | None,
) -> LearnedEnergies:
    """What a state holds; it refuses another vehicle than its own, unless it knows many."""
    label = "this state" if isinstance(state, State) else str(state)
    policy = loaded(state if isinstance(state, State) else load_state(state), label)
    inside: object = policy.posterior if isinstance(policy, IndexPolicy) else None
    while isinstance(inside, Wrapping):
        inside = inside.posterior
    energy = (
        inside.parameters().get("mean") if isinstance(inside, HasParameters) else None
    )
    if isinstance(policy, IndexPolicy) and isinstance(inside, RoadGP):
        if isinstance(policy.posterior, RoadGP) and policy.posterior.held.trips:
            record = (
                policy.posterior.held
            )  # of the latest trips, wherever they were driven
        return OfFleet(inside, vehicle, name, policy=policy, label=label, record=record)
    if not isinstance(policy, IndexPolicy) or not isinstance(energy, RoadEnergy):
        raise StateError(
            f"{label} is not the state of a policy that finds routes on a road network"
        )
    if vehicle not in (None, energy.vehicle):
        mismatch = (
            key
            for key in VEHICLE
            if getattr(vehicle, key) != getattr(energy.vehicle, key)
        )
        raise StateError(own_model(label, next(mismatch)))
    return OfOneVehicle(
        energy, _trips_a_day(inside), policy=policy, label=label, record=record
    )


def own_model(label: str, key: str) -> str:
    """What is told to whom sets what a state brings with it."""
    return f"{label} has its own vehicle and model, so {key} cannot be set; omit it"


def _trips_a_day(posterior: object) -> int | None:
    """The period of what comes back in a drift, in rounds: those are the trips of a day."""
    kernels: list[Any] = [posterior.drift] if isinstance(posterior, DriftingGP) else []
    for kernel in kernels:  # which grows
        if isinstance(kernel, Periodic):
            return round(float(np.ravel(kernel.period)[0]))
        kernels += getattr(kernel, "kernels", ())
    return None
