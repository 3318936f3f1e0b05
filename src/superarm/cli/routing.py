"""The command ``route``: one trip from the options of the command line, printed for reading."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from superarm.core import AT_95, QUANTILES
from superarm.core.errors import SpecError, UnknownArmError
from superarm.lab.experiments import parse_overrides
from superarm.lab.results.formats import count_text
from superarm.lab.simulation.trip_scores import trip_scores
from superarm.roads.energy import Vehicle
from superarm.roads.posterior import TrackRecord
from superarm.roads.routing import (
    INTERVAL,
    Leg,
    RouteAnswer,
    Router,
    VehicleFile,
    read_closures,
    read_vehicle,
)

from .common import check_elevation, check_file, check_network, say

_MOST_ROWS = 24  # of a printed route


class _RoadRow(NamedTuple):
    """A line of a printed route: consecutive edges of one road, rounded as they are printed."""

    name: str
    edges: int
    metres: int
    speed_limits: str  # km/h
    rise: int  # m
    energy: float  # Wh

    def cells(self) -> list[str]:
        return [
            self.name,
            str(self.edges),
            str(self.metres),
            self.speed_limits,
            f"{self.rise:+d}",
            f"{self.energy:.1f}",
        ]


def find_route(
    net: str,
    start: str,
    goal: str,
    *,
    state: Path | None,
    vehicle: str | None,
    close: Sequence[str],
    close_file: Path | None,
    elevation: Path | None,
    flat: bool | None,
    overrides: Sequence[str],
    depart: str | None,
    charge: str | None,
    anyway: bool,
    **options: Any,
) -> RouteAnswer:
    """Find the route that the options of the command line describe.

    Args:
        net: The name of a network, or its file.
        start: Where the trip begins: an edge, a coordinate or a street.
        goal: Where it ends.
        state: What a run or a fleet has learned.
        vehicle: A file of vehicles, perhaps with a name.
        close: Closed edges or streets.
        close_file: Closed roads as GeoJSON.
        elevation: Heights for the network.
        flat: Whether all roads count as level.
        overrides: Settings as ``KEY=VALUE``.
        depart: When the trip begins.
        charge: The battery's charge at the start.
        anyway: Whether to return a route on which the charge may fall below the reserve.
        options: Further options of the router.
    """
    check_network(net)
    check_elevation(elevation)
    check_file("--close-file", close_file)
    check_file("--state", state)
    settings = parse_overrides(overrides)
    if flat is not None:
        settings |= {"flat": flat}
    equipped = VehicleFile() if vehicle is None else read_vehicle(vehicle)
    options |= {"elevation": elevation, "state": state, **equipped._asdict()}
    router = Router(net, settings=settings, record=_record(state), **options)
    try:
        closed = [*close]
        if close_file is not None:
            closed += _closed_by_file(router, close_file)
        return router.route(
            start, goal, closed=closed, depart=depart, charge=charge, anyway=anyway
        )
    except UnknownArmError as error:
        raise SpecError(str(error)) from error


def _closed_by_file(router: Router, path: Path) -> Sequence[str]:
    closed = router.closed_by(read_closures(path))
    if not closed:
        say(
            f"superarm: {path} closes no edge of this network; "
            "in GeoJSON, longitude comes before latitude",
            err=True,
        )
    return closed


def _record(state: Path | None) -> TrackRecord | None:
    """How often the 95 % interval contained the energy of a trip in the state's run."""
    scores = None if state is None else trip_scores(state)
    if scores is None or not len(scores):
        return None
    inside = np.count_nonzero(np.abs(scores) <= QUANTILES[AT_95])
    return TrackRecord(len(scores), inside / len(scores))


def print_route(answer: RouteAnswer) -> None:
    """Print the roads in order, and the totals.

    Args:
        answer: The route.
    """
    from .visible import make_console, print_table

    ids = answer.ids()
    heads = ("road", "edges", "m", "km/h", "rise, m", "Wh")
    title = f"{answer.graph.network.name}: {ids[0]} → {ids[-1]}"
    print_table(heads, _shortened_cells(_road_rows(answer)), title=title, right=1)
    console = make_console()
    for line in _lines(answer):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _lines(answer: RouteAnswer) -> list[str]:
    """The lines below the table."""
    best = answer.best
    lines = []
    for word, place in zip(("from", "to"), answer.places, strict=True):
        if place:
            lines.append(f"{word} {place}")
    lowest = best.energy - best.spread
    highest = best.energy + best.spread
    lines += [
        _vehicle(answer),
        f"{len(answer.ids())} edges, {best.length / 1000:.2f} km, "
        f"{best.seconds / 60:.1f} min on empty roads, {best.climb:.0f} m of climbing",
        f"expected energy {_signed(best.energy)} Wh, 95 % interval "
        f"{_signed(lowest)} to {_signed(highest)} Wh",
        f"  ({INTERVAL})",
    ]
    lines += _learned_time(answer)
    lines += _track_record(answer)
    lines += _battery(answer)
    lines += _conditions(answer)
    lines += [_comparison(name, leg, best) for name, leg in answer.others.items()]
    lines += _cautions(answer)
    if answer.observations:
        lines.append(f"learned from {count_text(answer.observations, 'measurement')}")
    else:
        lines.append(
            "from the energy model alone; --state FILE uses the learned state of a run or a fleet"
        )
    return lines


def _vehicle(answer: RouteAnswer) -> str:
    """The vehicle of the route, and how many of its trips the state contains."""
    name, vehicle, trips = answer.vehicle
    description = f"vehicle {name}" if name else "a vehicle"
    description += f" of {vehicle.mass:,.0f} kg"
    # A state that has learned contains its own vehicle.
    if vehicle == Vehicle() and not answer.observations:
        return f"{description}, the default; --vehicle FILE describes another"
    if trips is None:
        return description
    if not trips:
        return f"{description}; the state has no trips of this vehicle, so it uses other vehicles' trips"
    return f"{description}; the state has {count_text(trips, 'trip')} of this vehicle"


def _battery(answer: RouteAnswer) -> list[str]:
    """The charge at arrival, and what reduces it."""
    if answer.charge is None:
        return []
    charge = answer.charge.as_json(answer.ids())
    lines = [
        f"battery: {charge['charge_wh']:.0f} Wh at the start, {_signed(charge['arrival_wh'])} Wh at "
        f"arrival, 95 % interval {_signed(charge['arrival_low_wh'])} to "
        f"{_signed(charge['arrival_high_wh'])} Wh"
    ]
    if charge["lost_wh"] > 0.0:
        lines.append(
            f"  {charge['lost_wh']:.0f} Wh recovered downhill are lost, because the battery is full"
        )
    if charge["missing_wh"] > 0.0:
        lowest = f"{charge['lowest_wh']:,.0f}"
        lines.append(
            f"  it may fall below the reserve of {charge['reserve_wh']:,.0f} Wh: as little as "
            f"{lowest} Wh (95 %) after edge {charge['lowest_at']}"
        )
    return lines


def _learned_time(answer: RouteAnswer) -> list[str]:
    """How long the route takes at the hour of departure, where that was learned."""
    best = answer.best
    seconds = best.learned_seconds
    if seconds is None or best.seconds_spread is None:
        return []
    when = "over the day"
    if answer.depart is not None:
        when = f"departing at {answer.depart}"
    least = max(seconds - best.seconds_spread, 0.0) / 60.0
    most = (seconds + best.seconds_spread) / 60.0
    return [
        f"expected time {seconds / 60.0:.1f} min {when}, 95 % interval {least:.1f} to {most:.1f} min"
    ]


def _conditions(answer: RouteAnswer) -> list[str]:
    """The options besides the ends."""
    lines = []
    if answer.closed:
        lines.append(f"{count_text(answer.closed, 'edge')} closed")
    if answer.depart is not None and not answer.timed:
        lines.append(
            f"departure at {answer.depart} ignored: these energies do not depend on the time"
        )
    return lines


def _track_record(answer: RouteAnswer) -> list[str]:
    """Whether to trust the interval, by how earlier trips compare with theirs."""
    if answer.record is None:
        return []
    trips, share_inside = answer.record
    line = (
        f"  coverage: {100.0 * share_inside:.0f} % of {count_text(trips, 'trip')} "
        "fell inside their 95 % interval"
    )
    if not answer.record.holds:
        line += ": do not rely on this interval"
    return [line]


def _cautions(answer: RouteAnswer) -> list[str]:
    """Reasons why the route may not be the one of least expected energy."""
    lines = []
    if answer.cut_edges:
        limit = "to their height potential"
        if answer.routing != "potential":
            limit = (
                "to a small positive cost, because rectified routing cannot use energy recovered "
                "downhill"
            )
        lines.append(
            f"the route may be slightly suboptimal: the costs of {answer.cut_edges} of the network's "
            f"{len(answer.graph)} edges were clipped {limit}"
        )
    if answer.flat:
        lines.append(
            "all roads count as level: the file has no heights, or you passed --flat; --elevation PATH "
            "adds heights"
        )
    return lines


def _comparison(name: str, leg: Leg, best: Leg) -> str:
    same_edges = leg.edges.tolist() == best.edges.tolist()
    if same_edges and leg.shares.tolist() == best.shares.tolist():
        return f"the {name} route is the same"
    more = _signed(leg.energy - best.energy, "+")
    return (
        f"the {name} route: {_signed(leg.energy)} Wh ({more}), "
        f"{leg.length / 1000:.2f} km, {leg.seconds / 60:.1f} min"
    )


def _signed(energy: float, plus: str = "") -> str:
    text = f"{energy:{plus}.0f}"
    return text.replace("-", "−")


def _road_rows(answer: RouteAnswer) -> list[_RoadRow]:
    """Consecutive pieces of one road, such as ``-123#0`` and ``-123#1``, are one row."""
    ids = answer.graph.ids
    best = answer.best
    edges = best.edges.tolist()
    metres = best.metres.tolist()
    rises = best.rises.tolist()
    energies = answer.means.tolist()

    def road_of(index: int) -> str:
        edge_id: str = ids[edges[index]]
        return edge_id.partition("#")[0]

    rows = []
    for _, group in groupby(range(len(edges)), key=road_of):
        indices = list(group)
        pieces = [edges[index] for index in indices]
        row = _RoadRow(
            name=_road_name(answer, pieces),
            edges=len(pieces),
            metres=round(sum(metres[index] for index in indices)),
            speed_limits=_speed_limits(answer, pieces),
            rise=round(sum(rises[index] for index in indices)),
            energy=round(sum(energies[index] for index in indices), 1),
        )
        rows.append(row)
    return rows


def _road_name(answer: RouteAnswer, edges: list[int]) -> str:
    """The street, if it has a name, and the ids of its first and last edge."""
    graph = answer.graph
    ids: str = graph.ids[edges[0]]
    if len(edges) > 1:
        ids = f"{ids} … {graph.ids[edges[-1]]}"
    street_names = graph.network.street_names
    if street_names is None:
        return ids
    name = street_names[graph.edges[edges[0]]]
    return f"{name} ({ids})" if name else ids


def _speed_limits(answer: RouteAnswer, edges: list[int]) -> str:
    limits = {f"{3.6 * answer.graph.speed[edge]:.0f}" for edge in edges}
    lowest = min(limits, key=float)
    highest = max(limits, key=float)
    return lowest if lowest == highest else f"{lowest}–{highest}"


def _shortened_cells(rows: list[_RoadRow]) -> list[list[str]]:
    """The cells of a route; of a long one, both ends and a sum of the rows between."""
    if len(rows) > _MOST_ROWS:
        half = _MOST_ROWS // 2
        between = rows[half:-half]
        rows = [*rows[:half], _sum_of_rows(between), *rows[-half:]]
    return [row.cells() for row in rows]


def _sum_of_rows(rows: list[_RoadRow]) -> _RoadRow:
    return _RoadRow(
        name=f"… {len(rows)} more …",
        edges=sum(row.edges for row in rows),
        metres=sum(row.metres for row in rows),
        speed_limits="",
        rise=sum(row.rise for row in rows),
        energy=sum(row.energy for row in rows),
    )
