"""Roads by name or from files, and the trips of the experiments on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from superarm.core.data_files import find
from superarm.core.errors import FileError, InputError
from superarm.core.inputs import as_count
from superarm.oracles import Trip
from superarm.roads.networks import (
    LineGraph,
    RoadNetwork,
    generate_city,
    read_network,
    suggest_trip,
)
from superarm.roads.networks.elevation import at_one_height
from superarm.roads.networks.road import Uturns

REAL_NETWORKS = {"luxembourg": "luxembourg-roads", "monaco": "monaco-roads"}
"""Networks by name, and the data sets that hold them."""
_HEIGHT = 2  # column of ``RoadNetwork.junctions``


class Roads(NamedTuple):
    """A network as one vehicle class sees it, and where it came from."""

    graph: LineGraph
    description: str  # where it came from


class NamedTrip(NamedTuple):
    """A network by name or path, and the ids of a trip's first and last edge where they are named."""

    network: str
    start: str | None
    goal: str | None


ROUTES: Mapping[str, NamedTrip] = {
    "luxembourg-a": NamedTrip("luxembourg", "-31118#2", "--32646#1"),
    "luxembourg-b": NamedTrip("luxembourg", "-30436#5", "-30946#0"),
    "luxembourg-c": NamedTrip("luxembourg", "-30558", "-32888#0"),
    "luxembourg-d": NamedTrip("luxembourg", "-32166#0", "--32940#0"),
    "monaco-a": NamedTrip("monaco", "152903", "-153355#0"),
    "monaco-b": NamedTrip("monaco", "153569#1", "152459#1"),
}
"""The routes of the experiments. The pairs printed for Monaco exist only on Luxembourg: C and D."""


def load_roads(
    network: str,
    *,
    uturns: Uturns = True,
    edges: int = 2000,
    city_seed: int = 0,
    elevation: str | None = None,
    flat: bool = False,
    vehicle_class: str = "passenger",
    junctions: bool = False,
) -> Roads:
    """The roads of "luxembourg", "monaco", a generated "city", or of a file or folder.

    Luxembourg and Monaco are read from tables, or with ``junctions`` from their SUMO files. Roads are
    cached for other seeds and policies until their file changes.

    Args:
        network: A name, or the path of a network file or folder.
        uturns: Whether U-turns are allowed: true, false, or "dead-ends".
        edges: About how many edges a generated city has.
        city_seed: Seed of the generated city.
        elevation: An SRTM tile or a folder of them; their heights replace the network's.
        flat: Whether to ignore heights.
        vehicle_class: Vehicle class that the roads must admit.
        junctions: Whether to read what lies within junctions, too.
    """
    _require_kind("flat", flat, bool, "true or false")
    _require_kind("network", network, str, "a name, or the path of a network file")
    if elevation is not None:
        what = "the path of a tile, or of a folder of them"
        _require_kind("elevation", elevation, str, what)
    if uturns != "dead-ends":
        _require_kind("uturns", uturns, bool, "true, false or 'dead-ends'")
    as_count(edges, "edges", least=1)
    as_count(city_seed, "city_seed", least=0)
    return _load_roads(
        network=network,
        vehicle_class=vehicle_class,
        uturns=uturns,
        edges=edges,
        city_seed=city_seed,
        elevation=elevation,
        flat=flat,
        junctions=junctions,
        network_stamps=_file_stamps(network),
        elevation_stamps=() if elevation is None else _file_stamps(elevation),
    )


def _require_kind(name: str, value: Any, kind: type, words: str) -> None:
    """Refuse a parameter of another kind, which may come from a file."""
    if not isinstance(value, kind) or value == "":
        raise InputError(f"{name} must be {words}, got {value!r}")


class FileStamp(NamedTuple):
    """What changes when a file is written."""

    name: str
    modified: int  # ns
    size: int


def _file_stamps(path: str) -> tuple[FileStamp, ...]:
    """The stamps of the files of a network; none where there are no files."""
    place = Path(path)
    stamps = []
    try:
        files = [place]
        if place.is_dir():
            files = sorted(place.iterdir())
        for file in files:
            if file.is_file():
                stat = file.stat()
                stamp = FileStamp(file.name, stat.st_mtime_ns, stat.st_size)
                stamps.append(stamp)
    except OSError:
        return ()  # does not exist, or no file can have this name: reading it raises the error
    return tuple(stamps)


@lru_cache(maxsize=4)
def _load_roads(
    *,
    network: str,
    vehicle_class: str,
    uturns: Uturns,
    edges: int,
    city_seed: int,
    elevation: str | None,
    flat: bool,
    junctions: bool,
    network_stamps: tuple[FileStamp, ...],
    elevation_stamps: tuple[FileStamp, ...],  # so that new tiles are read again
) -> Roads:
    if network == "city":
        if elevation is not None:
            raise InputError(
                "a generated city has no geographic location; omit elevation"
            )
        city = generate_city(edges=edges, seed=city_seed)
        if flat:
            city = at_one_height(city)
        graph = city.line_graph(vehicle_class, uturns=uturns)
        return Roads(graph, f"a generated city (city seed {city_seed}), synthetic data")
    if network in REAL_NETWORKS:
        path = _data_file(network, junctions=junctions)
        description = f"the road network of {network.capitalize()}"
    else:
        path = Path(network)
        description = f"the road network in {path.name}"
        if not network_stamps:
            names = ", ".join([*REAL_NETWORKS, "city"])
            raise InputError(
                f"{network!r} is neither a file nor a known network ({names})"
            )
    try:
        roads = read_network(path, elevation=elevation, flat=flat)
    except InputError as error:
        raise FileError(str(error)) from error
    if network in REAL_NETWORKS:
        roads = replace(roads, name=network.capitalize())
    graph = roads.line_graph(vehicle_class, uturns=uturns)
    return Roads(graph, description)


def _data_file(network: str, *, junctions: bool) -> Path:
    """The tables of a real network, or its SUMO file, which describes its junctions."""
    data_set = REAL_NETWORKS[network]
    tables = find(data_set).parent
    if junctions:
        return find(data_set, ending=".net.xml.xz")
    return tables


def trip_ends(graph: LineGraph, start: str | None, goal: str | None) -> Trip:
    """The numbers of the first and last edge; a far pair is chosen where none is named.

    Args:
        graph: The roads.
        start: Id of the first edge.
        goal: Id of the last edge.
    """
    if (start is None) != (goal is None):
        raise InputError("name both start and goal, or neither")
    if start is None or goal is None:
        start, goal = suggest_trip(graph)
    start_edge = graph.number(start)
    goal_edge = graph.number(goal)
    return Trip(start=start_edge, goal=goal_edge)


def is_level(network: RoadNetwork) -> bool:
    """Whether all junctions lie at one height.

    Args:
        network: The roads.
    """
    heights = network.junctions[:, _HEIGHT]
    return float(np.ptp(heights)) == 0.0
