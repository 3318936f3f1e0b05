"""Energies of all edges that a policy has learned."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from superarm.core import AT_95, Arms, Floats, Forecast, Offer, State
from superarm.core.errors import InputError, StateError
from superarm.core.registry import HasParameters, describe, difference
from superarm.core.states import load_state, loaded
from superarm.kernels import Periodic
from superarm.oracles import ShortestPath
from superarm.policies import IndexPolicy
from superarm.posteriors import DriftingGP, Wrapping
from superarm.roads.energy import RoadEnergy, Vehicle
from superarm.roads.fleets import road_mismatch
from superarm.roads.networks import LineGraph
from superarm.roads.networks.road import Uturns
from superarm.roads.posterior import RoadGP, TrackRecord, noise_parts
from superarm.roads.problems.fleet_model import road_rows
from superarm.roads.problems.road_models import road_arms

from .battery import VEHICLE
from .energy_beliefs import EdgeEnergies, EnergySource, RouteParts, When

_HOURS_PER_DAY = 24.0
_MISMATCHES = {
    "length": "the lengths of roads differ",
    "speed": "speed limits differ",
    "rise": "heights differ, or only one network has heights",
    "turns": "the turns between roads differ",
}


class LearnedEnergies(ABC):
    """Energies that a policy has learned on its own roads.

    Args:
        policy: The policy.
        label: What errors call its state.
        record: The coverage of its forecasts, where it is known.
    """

    timed = False
    vehicle: Vehicle
    trips: int | None = None
    uturns: tuple[Uturns, ...] = (True, False, "dead-ends")
    """What its roads may allow, the likeliest first."""

    def __init__(
        self, policy: IndexPolicy, label: str, record: TrackRecord | None
    ) -> None:
        self._policy = policy
        self.label = label
        self.record = record
        self._graph: LineGraph | None = None

    @abstractmethod
    def prepare_intervals(self) -> None:
        """Compute what the intervals of all routes share, so that the first does not wait for it."""

    @abstractmethod
    def mismatch(self, graph: LineGraph) -> str | None:
        """How these roads differ from those it was learned on, in words; ``None``: they do not.

        Args:
            graph: The roads.
        """

    def on(self, graph: LineGraph) -> EnergySource:
        """Use these roads from now on; returns the source itself.

        Args:
            graph: The roads.
        """
        self._graph = graph
        return self

    @abstractmethod
    def energies(self, depart: When | None) -> EdgeEnergies: ...


class VehicleEnergies(LearnedEnergies):
    """Energies by a posterior whose prior mean is the energy model's for one vehicle.

    Args:
        energy: The prior mean, with its vehicle and roads.
        trips_a_day: The period of the drift, in rounds; ``None`` if energies have none.
        learned: Arguments of :class:`LearnedEnergies`.
    """

    def __init__(
        self, energy: RoadEnergy, trips_a_day: int | None, **learned: Any
    ) -> None:
        super().__init__(**learned)
        self.vehicle = energy.vehicle
        self._energy = energy
        self._trips_a_day = trips_a_day
        self.timed = trips_a_day is not None

    def prepare_intervals(self) -> None:
        """Nothing: they share nothing."""

    def mismatch(self, graph: LineGraph) -> str | None:
        edges = len(self._energy.length)
        if len(graph) != edges:
            return f"that one has {edges:,} edges, this one {len(graph):,}"
        oracle = ShortestPath(successors=graph.turn_graph)
        successors = describe(oracle)["successors"]
        learned_successors = describe(self._policy.oracle).get("successors", {})
        ours = {
            "length": graph.length,
            "speed": graph.speed,
            "rise": graph.rise,
            "turns": successors["turns"],
        }
        theirs = {
            "length": self._energy.length,
            "speed": self._energy.speed,
            "rise": self._energy.rise,
            "turns": learned_successors.get("turns"),
        }
        for key, message in _MISMATCHES.items():
            if difference(ours[key], theirs[key]):
                return message
        return None

    def energies(self, depart: When | None) -> EdgeEnergies:
        assert self._graph is not None
        policy = self._policy
        posterior = policy.posterior
        offer = Offer(step=self._step(depart), arms=road_arms(self._graph))
        try:
            mean = posterior.belief(offer).mean
        except InputError as error:
            raise StateError(
                f"{self.label} was learned with conditions that change from trip to trip; `route` does "
                f"not have them, so it cannot use this state ({error})"
            ) from error

        def spread(parts: RouteParts) -> float:
            forecast = policy.forecast(offer, parts.edges)
            return _half_width(forecast, parts.shares)

        return EdgeEnergies(
            mean=mean,
            turn_costs=np.zeros(len(self._graph.turns)),
            noise_std=posterior.noise_std,
            spread=spread,
            observations=posterior.count,
        )

    def _step(self, depart: When | None) -> int:
        """The next round, as energies may drift; the next at that hour where the hour matters."""
        step = self._policy.last_step + 1
        if depart is None or self._trips_a_day is None:
            return step
        hours = depart.hour + depart.minute / 60.0
        trip_of_day = round(hours / _HOURS_PER_DAY * self._trips_a_day)
        # The first trip of a day is at 0:00.
        trips_so_far = step - 1
        wait = (trip_of_day - trips_so_far) % self._trips_a_day
        return step + wait


class FleetEnergies(LearnedEnergies):
    """Energies by a fleet's posterior, for any vehicle: by its name, or for a new one.

    Args:
        fleet: The fleet's posterior, which the policy's may wrap.
        vehicle: The vehicle; by default a car.
        name: Its name in the fleet's log; without one it is the log's unnamed vehicle.
        learned: Arguments of :class:`LearnedEnergies`.
    """

    uturns = ("dead-ends", True, False)

    def __init__(
        self, fleet: RoadGP, vehicle: Vehicle | None, name: str | None, **learned: Any
    ) -> None:
        super().__init__(**learned)
        self._fleet = fleet
        self.vehicle = vehicle or Vehicle()
        self._number = fleet.vehicle_names.number(name or "")
        self.trips = fleet.trips_of(self._number)

    def mismatch(self, graph: LineGraph) -> str | None:
        return road_mismatch(self._fleet, graph)

    def prepare_intervals(self) -> None:
        assert self._graph is not None
        posterior = self._policy.posterior
        if isinstance(posterior, RoadGP) and not posterior.has_hours:
            # Its sparse form solves with a factor, which the first total makes.
            one_road = np.zeros(1, dtype=np.intp)
            posterior.total(
                road_rows(self._graph, self.vehicle, self._number, one_road)
            )

    def energies(self, depart: When | None) -> EdgeEnergies:
        assert self._graph is not None
        graph = self._graph
        posterior = self._policy.posterior
        rows = road_rows(graph, self.vehicle, self._number)
        arms = Arms(ids=graph.ids, features=rows)
        offer = Offer(step=self._policy.last_step + 1, arms=arms)
        belief = posterior.belief(offer)
        stored = self.vehicle.potential(graph.rise)
        return EdgeEnergies(
            mean=belief.mean + stored,
            turn_costs=self.vehicle.turn_energy(graph),
            noise_std=posterior.noise_std,
            spread=lambda parts: self._spread(offer, rows, parts),
            observations=posterior.count,
        )

    def _spread(self, offer: Offer, rows: Floats, parts: RouteParts) -> float:
        """Half-width of the 95 % interval of what these parts cost together, Wh."""
        partial, noise = parts.rows(rows)
        if not len(partial):
            return 0.0
        posterior = self._policy.posterior
        if isinstance(posterior, RoadGP):
            _, trip_widths = posterior.widths(partial)
            width = float(trip_widths[AT_95])
            _, std = posterior.total(partial)
        else:
            forecast = self._forecast(offer, partial)
            width = float(forecast.total_widths[AT_95])
            _, std = forecast.total()
            if forecast.noise_cov is None:
                # The same noise for every edge, whole or not.
                not_driven = len(partial) - float(parts.shares.sum())
                variance = std**2 - not_driven * forecast.noise_std**2
                return width * float(np.sqrt(variance))
        # The posterior multiplies the noise's standard deviation by α, not its variance.
        squared_scales = np.square(self._fleet.fitted.noise_scales)
        more_parts = noise - noise_parts(partial)
        more_noise = more_parts @ squared_scales
        variance = std**2 + more_noise.sum()
        return width * float(np.sqrt(variance))

    def _forecast(self, offer: Offer, rows: Floats) -> Forecast:
        """The forecast of these rows together."""
        count = len(rows)
        # Numbers as ids: an edge may be driven twice.
        ids = tuple(str(number) for number in range(count))
        arms = Arms(ids=ids, features=rows)
        route_offer = replace(offer, arms=arms)
        return self._policy.forecast(route_offer, np.arange(count))


def _half_width(forecast: Forecast, shares: Floats) -> float:
    """Half-width of the 95 % interval of Σ α·(what an edge costs), where noise adds up in variance."""
    noise_cov = forecast.noise_cov
    if noise_cov is None:
        noise_variance = forecast.noise_std**2 * float(shares.sum())
    else:
        roots = np.sqrt(shares)
        noise_variance = float(roots @ noise_cov @ roots)
    belief_variance = float(shares @ forecast.cov @ shares)
    variance = belief_variance + noise_variance
    std = float(np.sqrt(max(variance, 0.0)))
    width = float(forecast.total_widths[AT_95])
    return width * std


# --- states ----------------------------------------------------------------------------------


def read_learned(
    state: str | Path | State,
    vehicle: Vehicle | None,
    name: str | None,
    record: TrackRecord | None,
) -> LearnedEnergies:
    """The energies of a state, which must be a fleet's where a vehicle is set.

    Args:
        state: The state of a policy, or its file.
        vehicle: The vehicle; by default the state's own.
        name: The vehicle's name in a fleet's log.
        record: The coverage of the policy's forecasts, where it is known.
    """
    label = "this state"
    if not isinstance(state, State):
        label = str(state)
        state = load_state(state)
    policy = loaded(state, label)
    if not isinstance(policy, IndexPolicy):
        raise _no_route_policy(label)
    posterior: object = policy.posterior
    while isinstance(posterior, Wrapping):
        posterior = posterior.posterior
    if isinstance(posterior, RoadGP):
        if isinstance(policy.posterior, RoadGP) and posterior.track_record.trips:
            # Of the latest trips, wherever they were driven.
            record = posterior.track_record
        fleet_energies = FleetEnergies
        if posterior.has_hours:
            from .hourly_energies import HourlyEnergies

            fleet_energies = HourlyEnergies
        return fleet_energies(
            posterior, vehicle, name, policy=policy, label=label, record=record
        )
    energy = None
    if isinstance(posterior, HasParameters):
        energy = posterior.parameters().get("mean")
    if not isinstance(energy, RoadEnergy):
        raise _no_route_policy(label)
    if vehicle is not None and vehicle != energy.vehicle:
        own_values = vars(energy.vehicle)
        values = vars(vehicle)
        differing = [key for key in VEHICLE if values[key] != own_values[key]]
        raise StateError(fixed_by_state(label, differing[0]))
    return VehicleEnergies(
        energy, _trips_a_day(posterior), policy=policy, label=label, record=record
    )


def _no_route_policy(label: str) -> StateError:
    return StateError(
        f"{label} is not the state of a policy that finds routes on a road network"
    )


def fixed_by_state(label: str, key: str) -> str:
    """The message for a parameter that a state fixes.

    Args:
        label: What the message calls the state.
        key: The parameter.
    """
    return f"{label} has its own vehicle and model, so you cannot set {key}; omit it"


def _trips_a_day(posterior: object) -> int | None:
    """The period of a periodic drift, in rounds: those are the trips of a day."""
    if not isinstance(posterior, DriftingGP):
        return None
    for kernel in _nested_kernels(posterior.drift):
        if isinstance(kernel, Periodic):
            return round(float(np.ravel(kernel.period)[0]))
    return None


def _nested_kernels(kernel: Any) -> Iterator[Any]:
    """A kernel and all kernels that it is made of, level by level."""
    kernels = [kernel]
    for outer in kernels:  # the list grows meanwhile
        yield outer
        kernels += getattr(outer, "kernels", ())
