"""What ``learn`` does: a fleet's log becomes what its routes are found by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from superarm.core.errors import FileError, InputError, SpecError, StateError
from superarm.core.files import require_regular
from superarm.core.states import held_alone, load
from superarm.lab.results.formats import count_text
from superarm.policies.base import IndexPolicy
from superarm.roads.energy import Vehicle
from superarm.roads.energy.scales import Outliers
from superarm.roads.fleets import Energy, Lesson, LoggedTrip, learn_trips, read_trips
from superarm.roads.networks import LineGraph
from superarm.roads.problems.road_models import load_roads
from superarm.roads.routing import read_vehicles

from .common import check_elevation, check_file, check_network

_MOST_TOLD = 5
_DONE = {"keep": "given full weight", "weigh": "given less weight", "refuse": "dropped"}


def learn(
    net: str,
    trips: tuple[Path, ...],
    state: Path,
    *,
    vehicles: Path | None,
    elevation: Path | None,
    flat: bool | None,
    outliers: Outliers | None,
    accept_unlikely: bool = False,
    energy: Energy = "auto",
) -> tuple[Lesson, LineGraph]:
    """Learn from tables of trips what the state does not hold yet, and write it back."""
    check_network(net)
    check_elevation(elevation)
    for table in trips:
        check_file("--trips", table)
    check_file("--vehicles", vehicles)
    if state.is_dir():
        raise SpecError(f"--state must be a file; {state} is a folder")
    if state.exists():
        require_regular(
            state
        )  # before it is locked: a lock beside a device would remain
    place = None if elevation is None else str(elevation)
    graph = load_roads(
        net, uturns="dead-ends", elevation=place, flat=bool(flat), junctions=True
    ).graph
    known = {} if vehicles is None else read_vehicles(vehicles)
    told = {name: each.vehicle or Vehicle() for name, each in known.items()}
    logged = [trip for path in trips for trip in read_trips(path, graph)]
    if strange := sorted({trip.vehicle for trip in logged} - set(told)) if told else []:
        name = strange[0] or "(none)"
        raise SpecError(
            f"{vehicles} does not describe vehicle {name!r}; add a table for it"
        )
    given: dict[str, Any] = {"accept_unlikely": accept_unlikely}
    if outliers is not None:
        given["outliers"] = outliers
    try:
        with held_alone(state):
            return _learned(
                state, graph, logged, vehicles=told, energy=energy, **given
            ), graph
    except OSError as error:
        raise FileError(
            f"{state} cannot be written: {error.strerror or error}"
        ) from error


def _learned(
    state: Path, graph: LineGraph, trips: list[LoggedTrip], **options: Any
) -> Lesson:
    policy = None
    if state.exists():
        found = load(state)
        if not isinstance(found, IndexPolicy):
            raise StateError(
                f"{state} is not a fleet's state; choose another file for --state"
            )
        policy = found
    lesson = learn_trips(graph, trips, policy=policy, **options)
    if lesson.refused and not lesson.trips and not lesson.known:
        name, why = next(iter(lesson.refused.items()))
        count = count_text(len(lesson.refused), "trip")
        raise InputError(
            f"nothing could be learned from {count}; the first, {name!r}: {why}"
        )
    if lesson.trips:
        lesson.policy.save(state)
    return lesson


def print_lesson(lesson: Lesson, graph: LineGraph, state: Path) -> None:
    """What was learned, for reading."""
    from .visible import make_console

    gp, console = lesson.posterior, make_console()
    lines = [f"learned from {count_text(lesson.trips, 'trip')}; {count_text(gp.trips, 'trip')} in all, on "
             f"{len(gp.visited)} of {len(graph)} edges"]  # fmt: skip
    if lesson.raw:
        lines.append(
            f"energies of {count_text(lesson.raw, 'trip')} look raw: they include kinetic energy "
            "(--energy net overrides this)"
        )
    if lesson.known:
        lines.append(
            f"skipped {count_text(lesson.known, 'trip')} with names that were already learned"
        )
    lines += [f"Warning: {warning}" for warning in lesson.warnings[:_MOST_TOLD]]
    if len(lesson.warnings) > _MOST_TOLD:
        lines.append(
            f"  … {len(lesson.warnings) - _MOST_TOLD} more warnings (--json has all)"
        )
    if lesson.refused:
        lines.append(f"could not learn {count_text(len(lesson.refused), 'trip')}:")
        lines += [
            f"  {name}: {why}"
            for name, why in list(lesson.refused.items())[:_MOST_TOLD]
        ]
        if len(lesson.refused) > _MOST_TOLD:
            lines.append("  … (--json has all)")
    if gp.outlying:
        count = count_text(gp.outlying, "outlier")
        latest = "; the latest:" if gp.flagged else ""
        lines.append(f"{count} among all energies so far, {_DONE[gp.outliers]}{latest}")
        for each in gp.flagged[-_MOST_TOLD:]:
            ids = [graph.ids[edge] for edge in each.edges.tolist()]
            place = (
                ids[0] if len(ids) == 1 else f"{ids[0]} … {ids[-1]} ({len(ids)} edges)"
            )
            away = f"{each.score:.1f} standard deviations from the forecast"
            lines.append(
                f"  {place}: {each.reward:.1f} Wh without turns and heights, {away}"
            )
    if gp.trips:
        scales = gp.fitted
        lines.append(
            f"roads differ from the energy model by {scales.own:.1f} Wh an edge, plus "
            f"{scales.near:.1f} Wh shared by neighbours; drives of one edge differ by "
            f"{scales.noise:.1f} Wh plus {100.0 * scales.noise_share:.0f} % of its energy for "
            "rolling, drag and height, and more on slow edges"
        )
    held = gp.held
    if held.trips:
        told = f"{100.0 * held.inside:.0f} % of the last {held.trips} trips lay inside their"
        if held.trips == 1:
            told = (
                f"the one trip judged lay {'inside' if held.inside else 'outside'} its"
            )
        told += " 95 % interval"
        lines.append(told if held.holds else f"{told}: do not rely on intervals yet")
    lines.append(
        f"State: {state}"
        if state.exists()
        else "nothing was learned, so no state was written"
    )
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
