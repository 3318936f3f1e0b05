"""``python -m bench.hours_picture CITY FILE.svg``: a road's profile over the day, with its band.

The road is the one of the log whose expected seconds change most over the day. Dots are what was
measured; the band is the 95 % interval of the road's mean at each hour, without the noise of single drives.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

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
    LEVELS,
    PER_HOUR,
    Driven,
    Fleets,
    compare,
)

_HOURS = np.linspace(0.0, 24.0, 193)
_NEW_VEHICLE = 999
_LEAST_DRIVES = 60


def busiest_road(fleets: Fleets, driven: list[Driven]) -> int:
    """The road whose seconds change most over the day, among those that were driven often."""
    edges, counts = np.unique(
        np.concatenate([trip.route for trip in driven]), return_counts=True
    )
    often = edges[counts >= _LEAST_DRIVES]
    graph = fleets.world.graph
    changes = []
    for edge in often.tolist():
        mean, _ = seconds_over_day(graph, fleets.with_hours, edge)
        changes.append(mean.max() - mean.min())
    return int(often[np.argmax(changes)])


def seconds_over_day(graph: LineGraph, gp: RoadGP, edge: int) -> tuple[Floats, Floats]:
    """Mean and standard deviation of a road's seconds at each of ``_HOURS``."""
    assert gp.durations is not None
    return _over_day(gp.durations, duration_rows(graph, _rows(graph, edge)))


def energy_over_day(graph: LineGraph, gp: RoadGP, edge: int) -> tuple[Floats, Floats]:
    """The same of its energy, Wh, for a car that is new to the fleet."""
    stored = float(Vehicle().potential(graph.rise[edge]))
    mean, std = _over_day(gp, _rows(graph, edge))
    return mean + stored, std


def _rows(graph: LineGraph, edge: int) -> Floats:
    edges = np.full(len(_HOURS), edge)
    return with_hours(road_rows(graph, Vehicle(), _NEW_VEHICLE, edges), _HOURS)


def _over_day(gp: RoadGP, rows: Floats) -> tuple[Floats, Floats]:
    predicted = gp.predict(rows)
    assert predicted.std is not None
    return predicted.mean, predicted.std


def draw(fleets: Fleets, driven: list[Driven], path: Path) -> None:
    """Draw the profile of one road.

    Args:
        fleets: What was learned.
        driven: From what.
        path: The picture.
    """
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    mpl.rcParams["svg.hashsalt"] = "hours"
    graph = fleets.world.graph
    edge = busiest_road(fleets, driven)
    gp = fleets.with_hours
    figure, (top, bottom) = plt.subplots(2, 1, sharex=True, figsize=(8.0, 6.4))
    _panel(top, *seconds_over_day(graph, gp, edge), "seconds")
    _panel(bottom, *energy_over_day(graph, gp, edge), "Wh, by a car of 1,830 kg")
    _dots(top, graph, driven, edge)
    top.axhline(graph.travel_time[edge], color="0.5", linestyle=":", linewidth=1.0)
    top.annotate("empty road", (0.1, graph.travel_time[edge]), va="bottom", color="0.4")
    length = f"{graph.length[edge]:.0f} m"
    top.set_title(
        f"{fleets.world.city.name.capitalize()}: edge {graph.ids[edge]}, {length}. "
        "Line: learned mean; band: its 95 %\ninterval; dots: drives of the log; grey: hours of high demand",
        fontsize=10,
        loc="left",
    )
    bottom.set_xlabel("hour of the day")
    bottom.set_xticks(range(0, 25, 3))
    bottom.set_xlim(0.0, 24.0)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def _panel(axes: Any, mean: Floats, std: Floats, label: str) -> None:
    for hour, level in enumerate(LEVEL_OF_HOUR):
        if LEVELS[level] == "high":
            axes.axvspan(hour, hour + 1, color="0.93", zorder=0, linewidth=0)
    axes.fill_between(_HOURS, mean - 1.96 * std, mean + 1.96 * std, alpha=0.3)
    axes.plot(_HOURS, mean)
    axes.set_ylabel(label)
    axes.grid(alpha=0.3)


def _dots(axes: Any, graph: LineGraph, driven: list[Driven], edge: int) -> None:
    """What the road took, less what its turn takes on average on empty roads."""
    hours = []
    seconds = []
    for trip in driven:
        turns = graph.turn_numbers(trip.route)
        of_turns = np.append(graph.turn_seconds[turns], 0.0)
        for place in np.flatnonzero(trip.route == edge).tolist():
            begin = trip.hour + trip.seconds[:place].sum() / 3600.0
            hours.append(begin % 24.0)
            seconds.append(trip.seconds[place] - of_turns[place])
    axes.plot(hours, seconds, ".", color="0.25", markersize=3)


def main() -> None:
    name, path = sys.argv[1:3]
    city = next(city for city in CITIES if city.name == name)
    compared = compare(city, PER_HOUR)
    draw(compared.fleets, compared.log, Path(path))


if __name__ == "__main__":
    main()
