"""The command ``learn``: energies of roads from a fleet's log of trips."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from superarm.core.errors import FileError, InputError, SpecError, StateError
from superarm.core.files import require_regular
from superarm.core.states import file_lock, load
from superarm.lab.results.formats import count_text
from superarm.policies import IndexPolicy
from superarm.roads.energy import HourlyScales, Vehicle
from superarm.roads.energy.scales import Outliers
from superarm.roads.fleets import Energy, Lesson, LoggedTrip, learn_trips, read_trips
from superarm.roads.networks import LineGraph
from superarm.roads.problems.road_models import load_roads
from superarm.roads.routing import read_vehicles

from .common import check_elevation, check_file, check_network

_MOST_LISTED = 5  # warnings, refused trips or outliers
_TREATMENTS = {
    "keep": "with full weight",
    "weigh": "with less weight",
    "refuse": "dropped",
}


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
    hours: bool | None = None,
    half_life: float | None = None,
) -> tuple[Lesson, LineGraph]:
    """Learn the trips that the state does not contain yet, and save the state.

    Args:
        net: The name of a network, or its file.
        trips: Tables of trips.
        state: The state file, which need not exist.
        vehicles: A TOML file with a table for each vehicle.
        elevation: Heights for the network.
        flat: Whether all roads count as level.
        outliers: How to treat outliers; by default as the state does.
        accept_unlikely: Whether to learn trips that look wrong.
        energy: Whether energies include kinetic energy.
        hours: Whether roads have a profile over the day; by default as in the state.
        half_life: Later trips after which a trip counts half; by default as in the state.
    """
    check_network(net)
    check_elevation(elevation)
    for table in trips:
        check_file("--trips", table)
    check_file("--vehicles", vehicles)
    if state.is_dir():
        raise SpecError(f"--state must be a file; {state} is a folder")
    if state.exists():
        # Before it is locked: a lock beside a device would remain.
        require_regular(state)
    graph = _load_graph(net, elevation, flat=bool(flat))
    vehicle_of = _vehicles_by_name(vehicles)
    logged = [trip for path in trips for trip in read_trips(path, graph)]
    if vehicle_of:
        _check_vehicles(logged, vehicle_of, vehicles)
    options: dict[str, Any] = {"accept_unlikely": accept_unlikely}
    if outliers is not None:
        options["outliers"] = outliers
    if half_life is not None:
        options["half_life"] = half_life
    try:
        with file_lock(state):
            lesson = _learn_and_save(
                state,
                graph,
                logged,
                vehicles=vehicle_of,
                energy=energy,
                hours=hours,
                **options,
            )
    except OSError as error:
        raise FileError(
            f"{state} cannot be written: {error.strerror or error}"
        ) from error
    return lesson, graph


def _load_graph(net: str, elevation: Path | None, *, flat: bool) -> LineGraph:
    heights = None if elevation is None else str(elevation)
    roads = load_roads(
        net, uturns="dead-ends", elevation=heights, flat=flat, junctions=True
    )
    return roads.graph


def _vehicles_by_name(path: Path | None) -> dict[str, Vehicle]:
    if path is None:
        return {}
    return {
        name: equipped.vehicle or Vehicle()
        for name, equipped in read_vehicles(path).items()
    }


def _check_vehicles(
    trips: list[LoggedTrip], vehicle_of: Mapping[str, Vehicle], path: Path | None
) -> None:
    undescribed = sorted({trip.vehicle for trip in trips} - set(vehicle_of))
    if undescribed:
        name = undescribed[0] or "(none)"
        raise SpecError(
            f"{path} does not describe vehicle {name!r}; add a table for it"
        )


def _learn_and_save(
    state: Path, graph: LineGraph, trips: list[LoggedTrip], **options: Any
) -> Lesson:
    policy = None
    if state.exists():
        loaded_policy = load(state)
        if not isinstance(loaded_policy, IndexPolicy):
            raise StateError(
                f"{state} is not a fleet's state; choose another file for --state"
            )
        policy = loaded_policy
    lesson = learn_trips(graph, trips, policy=policy, **options)
    if lesson.refused and not lesson.trips and not lesson.known:
        name, reason = next(iter(lesson.refused.items()))
        count = count_text(len(lesson.refused), "trip")
        raise InputError(f"cannot learn any of {count}; the first, {name!r}: {reason}")
    if lesson.trips:
        lesson.policy.save(state)
    return lesson


def print_lesson(lesson: Lesson, graph: LineGraph, state: Path) -> None:
    """Print what was learned.

    Args:
        lesson: The result of learning.
        graph: The network.
        state: The state file.
    """
    from .visible import make_console

    lines = [
        *_trip_lines(lesson, graph),
        *_warning_lines(lesson),
        *_refusal_lines(lesson),
        *_outlier_lines(lesson, graph),
        *_scale_lines(lesson),
        *_coverage_lines(lesson),
    ]
    if state.exists():
        lines.append(f"State: {state}")
    else:
        lines.append("no trips learned, so no state written")
    console = make_console()
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _trip_lines(lesson: Lesson, graph: LineGraph) -> list[str]:
    gp = lesson.posterior
    learned = count_text(lesson.trips, "trip")
    if lesson.parts > lesson.trips:
        learned += f" (as {lesson.parts:,}: a trip that jumps counts as several)"
    total = count_text(gp.trips, "trip")
    edges = f"{len(gp.visited):,} of {len(graph):,} edges"
    lines = [f"learned {learned}; the state now has {total} on {edges}"]
    if lesson.raw:
        lines.append(
            f"energies of {count_text(lesson.raw, 'trip')} look raw: they include kinetic energy "
            "(--energy net overrides this)"
        )
    if lesson.known:
        lines.append(
            f"skipped {count_text(lesson.known, 'trip')}, which the state already has by name"
        )
    return lines


def _warning_lines(lesson: Lesson) -> list[str]:
    lines = [f"Warning: {warning}" for warning in lesson.warnings[:_MOST_LISTED]]
    hidden = len(lesson.warnings) - _MOST_LISTED
    if hidden > 0:
        lines.append(f"  … {hidden} more warnings (--json has all)")
    return lines


def _refusal_lines(lesson: Lesson) -> list[str]:
    if not lesson.refused:
        return []
    lines = [f"could not learn {count_text(len(lesson.refused), 'trip')}:"]
    for name, reason in list(lesson.refused.items())[:_MOST_LISTED]:
        lines.append(f"  {name}: {reason}")
    if len(lesson.refused) > _MOST_LISTED:
        lines.append("  … (--json has all)")
    return lines


def _outlier_lines(lesson: Lesson, graph: LineGraph) -> list[str]:
    gp = lesson.posterior
    if not gp.outlying:
        return []
    count = count_text(gp.outlying, "outlier")
    latest = "; the latest:" if gp.flagged else ""
    treatment = _TREATMENTS[gp.outliers]
    lines = [f"{count} so far, {treatment}{latest}"]
    for outlier in gp.flagged[-_MOST_LISTED:]:
        ids = [graph.ids[edge] for edge in outlier.edges.tolist()]
        place = ids[0]
        if len(ids) > 1:
            place = f"{ids[0]} … {ids[-1]} ({len(ids)} edges)"
        lines.append(
            f"  {place}: {outlier.reward:.1f} Wh (excluding turns and climbing), "
            f"{outlier.score:.1f} standard deviations from the forecast"
        )
    return lines


def _scale_lines(lesson: Lesson) -> list[str]:
    """How much roads differ from the energy model, and drives of one road from each other."""
    gp = lesson.posterior
    if not gp.trips:
        return []
    scales = gp.fitted
    lines = [
        f"Roads deviate from the energy model by {scales.own:.1f} Wh per edge, plus "
        f"{scales.near:.1f} Wh shared with neighbours.",
        f"Repeated drives over an edge vary by {scales.noise:.1f} Wh plus "
        f"{100.0 * scales.noise_share:.0f} % of its energy, more on slow edges.",
    ]
    if isinstance(scales, HourlyScales):
        durations = 0 if gp.durations is None else gp.durations.trips
        lines.append(
            f"Over the day, an edge deviates from its mean by {scales.own_hour:.1f} Wh, plus "
            f"{scales.near_hour:.1f} Wh shared with neighbours. The state has durations of "
            f"{count_text(durations, 'trip')}."
        )
    return lines


def _coverage_lines(lesson: Lesson) -> list[str]:
    """How many of the latest trips lay inside their interval."""
    record = lesson.posterior.track_record
    if not record.trips:
        return []
    if record.trips == 1:
        side = "inside" if record.inside else "outside"
        line = f"coverage: the one trip judged fell {side} its 95 % interval"
    else:
        line = (
            f"coverage: {100.0 * record.inside:.0f} % of the last {record.trips} trips fell inside "
            "their 95 % interval"
        )
    if not record.holds:
        line += ": do not rely on intervals yet"
    return [line]
