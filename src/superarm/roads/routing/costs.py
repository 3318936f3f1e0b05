"""What routes cost by one source of energies, and the searches by these costs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from superarm.core import Floats
from superarm.core.normal import rectified_mean
from superarm.roads.networks import LineGraph
from superarm.roads.policies.navigation import Routing

from .energy_beliefs import EdgeEnergies, EnergySource, When
from .hourly_energies import HourlyEnergies
from .prices import Plan
from .search import Ends, Search

_MOST_PLANS = 32  # times of departure for which costs are cached

MakeSearch = Callable[[Floats, Floats], Search]
"""Makes the search by costs of edges, (n,), and of turns, (c,)."""


class Costs:
    """The costs of routes by one source; they never change, so that every answer is consistent.

    Args:
        graph: The roads.
        source: The energies.
        routing: How negative edge costs are handled.
        make_search: Makes their searches.
    """

    def __init__(
        self,
        graph: LineGraph,
        source: EnergySource,
        routing: Routing,
        make_search: MakeSearch,
    ) -> None:
        self.source = source
        self._graph = graph
        self._routing = routing
        self._make_search = make_search
        self._plans: dict[When | None, Plan] = {}

    def plan(self, when: When | None) -> Plan:
        """The energies at this time, and their searches; cached.

        Args:
            when: The time of departure.
        """
        key = when if self.source.timed else None
        if key not in self._plans:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            self._plans[key] = self._make_plan(self.source.energies(key))
        return self._plans[key]

    def plan_from(self, start: Ends, when: When | None) -> Plan:
        """The same for routes from one place: at the hour at which each edge is reached, if it matters.

        Args:
            start: Where routes begin.
            when: The time of departure.
        """
        source = self.source
        if when is None or not isinstance(source, HourlyEnergies):
            return self.plan(when)
        turn_seconds = self._graph.turn_seconds
        fastest = Search(
            self._graph,
            source.seconds(when),
            turn_seconds,
            backend="numpy",
            form="landmarks",
        )
        delays = fastest.reached(start)
        return self._make_plan(source.energies(when, delays))

    def prepare_like(self, other: Costs) -> None:
        """Compute the plans that other costs have, with their landmarks and hierarchies.

        Args:
            other: Costs on the same roads.
        """
        for when, plan in list(other._plans.items()):
            own = self.plan(when)
            own.search.prepare_like(plan.search)
            own.uncredited.prepare_like(plan.uncredited)

    def _make_plan(self, energies: EdgeEnergies) -> Plan:
        graph = self._graph
        per_metre = 0.0
        noise_std = energies.noise_std
        if self._routing == "potential":
            per_metre = float(self.source.vehicle.potential(1.0))
            # What the noise adds (E[max(0, X)] rather than the mean) would only make routes of few long
            # edges look good: potential routing does without.
            noise_std = 0.0
        mean = energies.mean  # m, (n,)
        turn_costs = energies.turn_costs  # t, (c,)
        potentials = per_metre * graph.rise  # Δh, (n,)
        costs = rectified_mean(mean - potentials, noise_std)  # c, (n,)
        uncredited = np.maximum(mean, 0.0)
        is_cut = mean < potentials
        return Plan(
            energies=energies,
            search=self._make_search(costs, turn_costs),
            uncredited=self._make_search(uncredited, turn_costs),
            cut_edges=int(np.count_nonzero(is_cut)),
            per_metre=per_metre,
        )
