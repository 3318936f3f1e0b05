"""``python -m bench.hours_picture CITY FILE.svg``: a road's profile over the day, with its band.

The road is the one of the log whose expected seconds change most over the day. Dots are measured
drives; the band is the 95 % interval of the road's mean at each hour, without the noise of single drives.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.roads.energy import Vehicle
from superarm.roads.networks import LineGraph
from superarm.roads.posterior import RoadGP
from superarm.roads.problems.fleet_model import duration_rows, road_rows
from superarm.roads.rows import with_hours

from .hours import (
    CITIES,
    LEVEL_OF_HOUR,
    PER_HOUR,
    DrivenTrip,
    Fleets,
    Level,
    compare,
)

_HOURS = np.linspace(0.0, 24.0, 193)
_NEW_VEHICLE = 999
_LEAST_DRIVES = 60
_WIDTH_95 = 1.96  # standard deviations


class Profile(NamedTuple):
    """A quantity of a road over the day, at each of ``_HOURS``."""

    mean: Floats
    std: Floats


def busiest_road(fleets: Fleets, log: Sequence[DrivenTrip]) -> int:
    """The road whose seconds change most over the day, among those that were driven often.

    Args:
        fleets: Both.
        log: The trips that they learned.
    """
    routes = np.concatenate([trip.route for trip in log])
    edges, counts = np.unique(routes, return_counts=True)
    often = edges[counts >= _LEAST_DRIVES]
    graph = fleets.world.graph
    changes = []
    for edge in often.tolist():
        profile = seconds_over_day(graph, fleets.with_hours, edge)
        changes.append(profile.mean.max() - profile.mean.min())
    return int(often[np.argmax(changes)])


def seconds_over_day(graph: LineGraph, gp: RoadGP, edge: int) -> Profile:
    """How many seconds a road takes.

    Args:
        graph: The roads.
        gp: What a fleet with hours has learned.
        edge: The road.
    """
    assert gp.durations is not None
    rows = duration_rows(graph, _rows(graph, edge))
    return _predict(gp.durations, rows)


def energy_over_day(graph: LineGraph, gp: RoadGP, edge: int) -> Profile:
    """How many Wh a road takes, for a car that is new to the fleet.

    Args:
        graph: The roads.
        gp: What a fleet with hours has learned.
        edge: The road.
    """
    stored = float(Vehicle().potential(graph.rise[edge]))
    profile = _predict(gp, _rows(graph, edge))
    return profile._replace(mean=profile.mean + stored)


def _rows(graph: LineGraph, edge: int) -> Floats:
    edges = np.full(len(_HOURS), edge)
    rows = road_rows(graph, Vehicle(), _NEW_VEHICLE, edges)
    return with_hours(rows, _HOURS)


def _predict(gp: RoadGP, rows: Floats) -> Profile:
    prediction = gp.predict(rows)
    assert prediction.std is not None
    return Profile(prediction.mean, prediction.std)


def draw(fleets: Fleets, log: Sequence[DrivenTrip], path: Path) -> None:
    """Draw the profile of one road.

    Args:
        fleets: Both.
        log: The trips that they learned.
        path: The picture.
    """
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    mpl.rcParams["svg.hashsalt"] = "hours"
    graph = fleets.world.graph
    edge = busiest_road(fleets, log)
    gp = fleets.with_hours
    figure, (top, bottom) = plt.subplots(2, 1, sharex=True, figsize=(8.0, 6.4))
    _draw_band(top, seconds_over_day(graph, gp, edge), "seconds")
    _draw_band(bottom, energy_over_day(graph, gp, edge), "Wh, by a car of 1,830 kg")
    _draw_drives(top, graph, log, edge)
    empty_road = graph.travel_time[edge]
    top.axhline(empty_road, color="0.5", linestyle=":", linewidth=1.0)
    top.annotate("empty road", (0.1, empty_road), va="bottom", color="0.4")
    city = fleets.world.city.name.capitalize()
    top.set_title(
        f"{city}: edge {graph.ids[edge]}, {graph.length[edge]:.0f} m. "
        "Line: learned mean; band: its 95 %\ninterval; dots: drives of the log; grey: hours of high demand",
        fontsize=10,
        loc="left",
    )
    bottom.set_xlabel("hour of the day")
    bottom.set_xticks(range(0, 25, 3))
    bottom.set_xlim(0.0, 24.0)
    figure.tight_layout()
    # Without its date a picture is the same each time.
    metadata = {"Date": None} if path.suffix == ".svg" else None
    figure.savefig(path, metadata=metadata)
    plt.close(figure)


def _draw_band(axes: Any, profile: Profile, label: str) -> None:
    for hour, level in enumerate(LEVEL_OF_HOUR):
        if level == Level.HIGH:
            axes.axvspan(hour, hour + 1, color="0.93", zorder=0, linewidth=0)
    half_width = _WIDTH_95 * profile.std
    lower = profile.mean - half_width
    upper = profile.mean + half_width
    axes.fill_between(_HOURS, lower, upper, alpha=0.3)
    axes.plot(_HOURS, profile.mean)
    axes.set_ylabel(label)
    axes.grid(alpha=0.3)


def _draw_drives(
    axes: Any, graph: LineGraph, log: Sequence[DrivenTrip], edge: int
) -> None:
    """Draw what the road took, less what its turn takes on average on empty roads."""
    hours = []
    seconds = []
    for trip in log:
        turns = graph.turn_numbers(trip.route)
        turn_seconds = np.append(graph.turn_seconds[turns], 0.0)
        for place in np.flatnonzero(trip.route == edge).tolist():
            seconds_before = trip.seconds[:place].sum()
            hour = trip.hour + seconds_before / 3600.0
            hours.append(hour % 24.0)
            seconds.append(trip.seconds[place] - turn_seconds[place])
    axes.plot(hours, seconds, ".", color="0.25", markersize=3)


def main() -> None:
    name, path = sys.argv[1:3]
    city = next(city for city in CITIES if city.name == name)
    comparison = compare(city, PER_HOUR)
    draw(comparison.fleets, comparison.log, Path(path))


if __name__ == "__main__":
    main()
