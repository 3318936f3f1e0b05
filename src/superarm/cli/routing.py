"""What ``route`` does: one trip, asked for in words and told for reading."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from superarm.core import QUANTILES
from superarm.core.errors import SpecError, UnknownArmError
from superarm.lab.experiments import parse_overrides
from superarm.lab.results.formats import count_text
from superarm.lab.simulation.run import trip_scores
from superarm.roads.energy import Vehicle
from superarm.roads.posterior import TrackRecord
from superarm.roads.routing import (
    INTERVAL,
    Equipped,
    Leg,
    RouteAnswer,
    Router,
    read_closures,
    read_vehicle,
)

from .common import check_elevation, check_file, check_network, say

_MOST_ROWS = 24


def ask(
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
    """The route; a name that is not there is a slip in the command."""
    check_network(net)
    check_elevation(elevation)
    check_file("--close-file", close_file)
    check_file("--state", state)
    settings = parse_overrides(overrides) | ({} if flat is None else {"flat": flat})
    equipped = Equipped() if vehicle is None else read_vehicle(vehicle)
    options |= {"elevation": elevation, "state": state, **equipped._asdict()}
    router = Router(net, settings=settings, record=_record(state), **options)
    try:
        closed = [*close]
        if close_file is not None:
            closed += (along := router.closed_by(read_closures(close_file)))
            if not along:
                advice = "in GeoJSON, longitude comes before latitude"
                say(
                    f"superarm: {close_file} closes no edge of this network; {advice}",
                    err=True,
                )
        asked: dict[str, Any] = {"closed": closed, "depart": depart, "charge": charge}
        return router.route(start, goal, **asked, anyway=anyway)
    except UnknownArmError as error:
        raise SpecError(str(error)) from error


def _record(state: Path | None) -> TrackRecord | None:
    """How often the 95 % interval of a trip held in the run that the state belongs to."""
    scores = None if state is None else trip_scores(state)
    if scores is None or not len(scores):
        return None
    inside = np.count_nonzero(np.abs(scores) <= QUANTILES[-1])
    return TrackRecord(len(scores), inside / len(scores))


def print_route(answer: RouteAnswer) -> None:
    """The roads in order, and the sums."""
    from .visible import make_console, print_table

    console = make_console()
    ids = answer.ids()
    heads = ("road", "edges", "m", "km/h", "rise, m", "Wh")
    title = f"{answer.graph.network.name}: {ids[0]} → {ids[-1]}"
    print_table(heads, _shortened(_roads(answer)), title=title, right=1)
    best = answer.best
    lines = [
        *(
            f"{end} {told}"
            for end, told in zip(("from", "to"), answer.places, strict=True)
            if told
        ),
        _vehicle(answer),
        f"{len(ids)} edges, {best.length / 1000:.2f} km, {best.seconds / 60:.1f} min on empty roads, "
        f"{best.climb:.0f} m of climbing",
        f"expected energy {_signed(best.energy)} Wh, 95 % interval "
        f"{_signed(best.energy - best.spread)} to {_signed(best.energy + best.spread)} Wh",
        f"  ({INTERVAL})",
        *_track_record(answer),
        *_battery(answer),
        *_conditions(answer),
        *(_comparison(name, leg, best) for name, leg in answer.others.items()),
        *_cautions(answer),
        f"learned from {count_text(answer.observations, 'measurement')}"
        if answer.observations
        else "from the energy model alone; --state FILE uses what a run or a fleet has learned",
    ]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _vehicle(answer: RouteAnswer) -> str:
    """For whom the route was found, and what is known of it."""
    name, vehicle, trips = answer.vehicle
    told = f"vehicle {name}" if name else "a vehicle"
    told += f" of {vehicle.mass:,.0f} kg"
    if (
        vehicle == Vehicle() and not answer.observations
    ):  # a state that has learned knows its own
        return f"{told}, the default; --vehicle FILE describes another"
    if trips is None:
        return told
    if not trips:
        return f"{told}; the state has no trips of this vehicle and uses those of other vehicles"
    return f"{told}; the state has {count_text(trips, 'trip')} of this vehicle"


def _battery(answer: RouteAnswer) -> list[str]:
    """What is left at arrival, and what keeps it from being more."""
    if answer.charge is None:
        return []
    told = answer.charge.as_json(answer.ids())
    lines = [
        f"battery: {told['charge_wh']:.0f} Wh at the start, {_signed(told['arrival_wh'])} Wh at "
        f"arrival, 95 % interval {_signed(told['arrival_low_wh'])} to "
        f"{_signed(told['arrival_high_wh'])} Wh"
    ]
    if told["lost_wh"] > 0.0:
        lines.append(
            f"  {told['lost_wh']:.0f} Wh recovered downhill are lost, because the battery is full"
        )
    if told["missing_wh"] > 0.0:
        lines.append(
            f"  it may run empty: at 95 % as little as {_signed(told['lowest_wh'])} Wh after edge "
            f"{told['lowest_at']}, {told['missing_wh']:.0f} Wh below the reserve of "
            f"{told['reserve_wh']:.0f} Wh"
        )
    return lines


def _conditions(answer: RouteAnswer) -> list[str]:
    """What was asked for beside the ends."""
    closed = [f"{count_text(answer.closed, 'edge')} closed"] * bool(answer.closed)
    unused = f"departure at {answer.depart} ignored: energies do not depend on it here"
    return closed + [unused] * (answer.depart is not None and not answer.timed)


def _track_record(answer: RouteAnswer) -> list[str]:
    """Whether to trust the interval, judged by how earlier trips fared."""
    if answer.record is None:
        return []
    trips, inside = answer.record
    told = f"  of {count_text(trips, 'trip')} judged, {100.0 * inside:.0f} % fell inside their 95 % interval"
    return [told if answer.record.holds else f"{told}: do not rely on this interval"]


def _cautions(answer: RouteAnswer) -> list[str]:
    """What keeps the route from being the one of least expected energy."""
    some = f"{answer.cut_edges} of the network's {len(answer.graph)} edge costs were clipped"
    cut = (
        "to their height potential"
        if answer.routing == "potential"
        else "to a small positive cost, because rectified routing cannot use energy recovered downhill"
    )
    flat = (
        "all roads count as level: the file has no heights, or you passed --flat (--elevation PATH "
        "adds heights)"
    )
    clipped = f"the route may be slightly suboptimal: {some} {cut}"
    return [clipped] * bool(answer.cut_edges) + [flat] * answer.flat


def _comparison(name: str, leg: Leg, best: Leg) -> str:
    same = leg.edges.tolist() == best.edges.tolist()
    if same and leg.shares.tolist() == best.shares.tolist():
        return f"the {name} route is the same"
    return (
        f"the {name} route: {_signed(leg.energy)} Wh ({_signed(leg.energy - best.energy, '+')}), "
        f"{leg.length / 1000:.2f} km, {leg.seconds / 60:.1f} min"
    )


def _signed(energy: float, plus: str = "") -> str:
    return f"{energy:{plus}.0f}".replace("-", "−")


def _roads(answer: RouteAnswer) -> list[list[str]]:
    """Edges in a row that are pieces of one road, ``-123#0`` and ``-123#1``, are one line."""
    graph, best, rows = answer.graph, answer.best, []
    columns = (best.edges, best.metres, best.rises, answer.means)
    pieces = zip(*(column.tolist() for column in columns), strict=True)
    for _, group in groupby(
        pieces, key=lambda piece: graph.ids[piece[0]].partition("#")[0]
    ):
        edges, metres, rises, energies = zip(*group, strict=True)
        first, last = graph.ids[edges[0]], graph.ids[edges[-1]]
        limits = sorted({f"{3.6 * graph.speed[edge]:.0f}" for edge in edges}, key=float)
        rows.append(
            [
                _road_name(
                    answer, edges[0], first if len(edges) == 1 else f"{first} … {last}"
                ),
                str(len(edges)),
                f"{sum(metres):.0f}",
                limits[0] if len(limits) == 1 else f"{limits[0]}–{limits[-1]}",
                f"{round(sum(rises)):+d}",
                f"{sum(energies):.1f}",
            ]
        )
    return rows


def _road_name(answer: RouteAnswer, edge: int, ids: str) -> str:
    names = answer.graph.network.street_names
    name = "" if names is None else names[answer.graph.edges[edge]]
    return f"{name} ({ids})" if name else ids


def _shortened(rows: list[list[str]]) -> list[list[str]]:
    """The ends of a long route; ``--json`` has it whole."""
    if len(rows) <= _MOST_ROWS:
        return rows
    half = _MOST_ROWS // 2
    between = rows[half:-half]
    sums = [sum(float(row[column]) for row in between) for column in (1, 2, 4, 5)]
    told = [f"{sums[0]:.0f}", f"{sums[1]:.0f}", "", f"{sums[2]:+.0f}", f"{sums[3]:.1f}"]
    return [*rows[:half], [f"… {len(between)} more …", *told], *rows[-half:]]
