"""What routes cost: energies at one time of departure, and the battery along a route."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from superarm.core import Floats
from superarm.roads.networks import LineGraph

from .answers import Leg
from .battery import Battery, Charge
from .energy_beliefs import EdgeEnergies
from .search import RoutePath, Search


class Plan(NamedTuple):
    """The energies at one time of departure, and the searches by them."""

    energies: EdgeEnergies
    search: Search
    uncredited: Search  # counts on nothing that is won back
    cut_edges: int
    per_metre: float  # Wh of potential in a metre of height; 0 with rectified routing


class PricedRoute(NamedTuple):
    """A route, the energy of each of its edges, and the battery along it."""

    leg: Leg
    means: Floats
    charge: Charge | None

    @property
    def missing(self) -> float:
        """Wh by which the reserve may be touched."""
        return 0.0 if self.charge is None else self.charge.missing

    @property
    def needs_alternative(self) -> bool:
        """Whether a route that counts on nothing won back may be better."""
        if self.charge is None:
            return False
        return self.charge.lost > 0.0 or self.charge.missing > 0.0


def shortfall(route: PricedRoute) -> tuple[float, float]:
    """What makes a route worse: how much is missing; then, how little remains at arrival.

    Args:
        route: A route with the battery along it.
    """
    assert route.charge is not None
    return route.charge.missing, -float(route.charge.level[-1])


def describe_shortfall(priced: PricedRoute, graph: LineGraph, battery: Battery) -> str:
    """Where the charge may fall below the reserve, and what to do.

    Args:
        priced: The route, with the battery along it.
        graph: The roads.
        battery: The battery.
    """
    charge = priced.charge
    assert charge is not None
    leg = priced.leg
    count = charge.worst  # edges up to the worst place
    stretch = RoutePath(leg.edges[:count], leg.shares[:count])
    kilometres = replace(leg, way=stretch).length / 1000.0
    worst_edge = leg.edges[max(count - 1, 0)]
    worst = graph.ids[worst_edge]
    needed = float(charge.level[0]) + charge.missing
    advice = "Charge on the way"
    if needed <= battery.capacity and charge.lost == 0.0:
        advice = f"Start with at least {needed:,.0f} Wh"
    return (
        f"the charge may fall below the reserve of {battery.reserve:,.0f} Wh: after edge "
        f"{worst} ({kilometres:.2f} km) it is {charge.level[count]:,.0f} Wh, 95 % interval down to "
        f"{charge.lowest:,.0f} Wh. {advice}, or pass --anyway (anyway=True)"
    )
