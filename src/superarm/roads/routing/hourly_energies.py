"""Energies of a fleet whose roads have a profile over the day, at the hour at which each is reached.

A search prices each road at one hour: that at which the fastest way from the start reaches it, by what
was learned of the roads' seconds at the time of departure. The route that is found, and those that it is
compared with, are then priced by the hours along them. Where the fastest way to a road is much faster
than the cheapest, the search prices it a little early.

Without a time of departure, energies are those of the day's mean, and intervals cover the whole day.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from superarm.core import AT_95, Arms, Floats, Offer
from superarm.core.caching import cached_property
from superarm.roads.posterior import RoadGP
from superarm.roads.problems.fleet_model import duration_rows, road_rows
from superarm.roads.rows import ANY_HOUR, Column, with_hours

from .energy_beliefs import EdgeEnergies, RouteForecast, RouteParts, When
from .learned_energies import FleetEnergies

_HOURS = 24.0
_OVER_THE_DAY = np.arange(0.0, _HOURS, 2.0)
_LEAST_SHARE = 0.1  # of the seconds on empty roads: no road is passed in less
_CORRECTIONS = 3  # of the hours along a route by the seconds at these hours


class _Seconds(NamedTuple):
    """How long a route takes, s."""

    mean: float
    spread: float  # half-width of the 95 % interval


class HourlyEnergies(FleetEnergies):
    """Energies by a fleet's posterior with hours, for any vehicle; the arguments are those of its base."""

    timed = True

    def seconds(self, depart: When) -> Floats:
        """Expected seconds of every road at the hour of departure, without turns, (n,).

        Args:
            depart: The time of departure.
        """
        assert self._graph is not None
        return self._seconds_of(self._rows(_hour_of(depart)))

    def energies(
        self, depart: When | None, delays: Floats | float = 0.0
    ) -> EdgeEnergies:
        """The energies of all edges.

        Args:
            depart: The time of departure; ``None``: at any time of the day.
            delays: Seconds after the departure at which each edge is reached, (n,).
        """
        graph = self._graph
        assert graph is not None
        hours: Floats | float = ANY_HOUR
        if depart is not None:
            hours = (_hour_of(depart) + np.asarray(delays) / 3600.0) % _HOURS
        posterior = self._policy.posterior
        offer = self._offer(self._rows(hours))
        stored = self.vehicle.potential(graph.rise)

        def along(parts: RouteParts) -> RouteForecast:
            rows = self._rows_along(parts, depart)
            belief = posterior.belief(self._offer(rows))
            means = parts.shares * (belief.mean + stored[parts.edges])
            seconds = self._route_seconds(rows, parts)
            if seconds is None:
                return RouteForecast(means, None, None)
            return RouteForecast(means, seconds.mean, seconds.spread)

        return EdgeEnergies(
            mean=posterior.belief(offer).mean + stored,
            turn_costs=self.vehicle.turn_energy(graph),
            noise_std=posterior.noise_std,
            spread=lambda parts: self._hourly_spread(parts, depart),
            observations=posterior.count,
            along=along,
        )

    # --- rows --------------------------------------------------------------------------------

    def _rows(self, hours: Floats | float) -> Floats:
        """Rows of all roads at these hours, (n, 10)."""
        return with_hours(self._rows_without_hours, hours)

    @cached_property
    def _rows_without_hours(self) -> Floats:
        assert self._graph is not None
        return road_rows(self._graph, self.vehicle, self._number)

    def _offer(self, rows: Floats) -> Offer:
        # Numbers as ids: an edge may be driven twice.
        arms = Arms.numbered(rows)
        return Offer(step=self._policy.last_step + 1, arms=arms)

    def _rows_along(self, parts: RouteParts, depart: When | None) -> Floats:
        """Rows of a route's edges, in its order, at the hours along it, (k, 10).

        An edge that is driven twice has two rows, each with its own hour.
        """
        without_hours = self._rows_without_hours[parts.edges]
        if depart is None:
            return with_hours(without_hours, ANY_HOUR)
        assert self._graph is not None
        hour = _hour_of(depart)
        rows = with_hours(without_hours, hour)
        turns = self._graph.turn_numbers(parts.edges)
        turn_seconds = np.append(self._graph.turn_seconds[turns], 0.0)
        for _ in range(_CORRECTIONS):
            seconds = parts.shares * self._seconds_of(rows) + turn_seconds
            before = np.cumsum(seconds) - seconds
            rows[:, Column.HOUR] = (hour + before / 3600.0) % _HOURS
        return rows

    # --- durations ---------------------------------------------------------------------------

    def _seconds_of(self, rows: Floats) -> Floats:
        """Expected seconds of these rows, without turns, (k,)."""
        assert self._graph is not None
        durations = duration_rows(self._graph, rows)
        least = _LEAST_SHARE * durations[:, Column.EXPECTED]
        learned = self._durations.predict(durations, return_std=False).mean
        return np.maximum(learned, least)

    @property
    def _durations(self) -> RoadGP:
        assert self._fleet.durations is not None
        return self._fleet.durations

    def _route_seconds(self, rows: Floats, parts: RouteParts) -> _Seconds | None:
        """How long a route takes; ``None`` where the log had no durations.

        Args:
            rows: Rows of the route's edges, (k, 10).
            parts: The route.
        """
        assert self._graph is not None
        durations = self._durations
        if not durations.trips:
            return None
        local = _numbered_along(parts)
        partial, _ = local.rows(duration_rows(self._graph, rows))
        turns = self._graph.turn_numbers(parts.edges)
        mean = float(self._graph.turn_seconds[turns].sum())
        if not len(partial):
            return _Seconds(mean, 0.0)
        of_roads, std = durations.total(partial)
        _, widths = durations.widths(partial)
        return _Seconds(mean + of_roads, float(widths[AT_95]) * std)

    # --- intervals ---------------------------------------------------------------------------

    def _hourly_spread(self, parts: RouteParts, depart: When | None) -> float:
        """Half-width of the 95 % interval of what these parts cost together, Wh."""
        local = _numbered_along(parts)
        if depart is not None:
            rows = self._rows_along(parts, depart)
            return self._spread(self._offer(rows), rows, local)
        without_hours = self._rows_without_hours[parts.edges]
        squares = []
        means = []
        for hour in _OVER_THE_DAY.tolist():
            rows = with_hours(without_hours, hour)
            squares.append(self._spread(self._offer(rows), rows, local) ** 2)
            of_edges = self._fleet.predict(rows, return_std=False).mean
            means.append(float(parts.shares @ of_edges))
        _, widths = self._fleet.widths()
        between = widths[AT_95] ** 2 * np.var(means)
        return float(np.sqrt(np.mean(squares) + between))


def _numbered_along(parts: RouteParts) -> RouteParts:
    """The same parts, with edges numbered by their place on the route: those of rows along it."""
    return parts._replace(edges=np.arange(len(parts.edges)))


def _hour_of(depart: When) -> float:
    """The hour of the day, 0 to 24."""
    return depart.hour + depart.minute / 60.0 + depart.second / 3600.0
