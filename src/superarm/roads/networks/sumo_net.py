"""SUMO networks, ``.net.xml`` plain or packed, in one pass and without SUMO.

What becomes of the file:

- *Edges* are those one can drive on: of ``function`` "normal" (or none) and "connector", which is
  a road that stands for many. What lies inside a junction (internal, crossing, walkingarea) is not.
- *Length and speed limit* are those of lane 0, as everywhere in SUMO.
- *Heights* are the junctions' ``z``; SUMO leaves it out where it is 0.
- *Who may drive*: an edge permits a class if one of its lanes does. A turn permits it if, for
  one of its connections, the lane it leaves, the lane it enters and the lane between do. SUMO
  repeats the defaults of a ``<type>`` in every lane, so that types need not be read.
- *Turns* lead over the lanes within the junction, one after another: lengths add up, and the speed is
  that of driving each at its limit. Where several lanes lead from one edge into another, it is the
  first that passenger cars may use: SUMO's cars keep to the right.
- *Signals* run the last of their programs, with the durations that it states.
- *Shapes* are the edge's own, or else lane 0's; *street names* are the edges' ``name``.
- *Longitude and latitude* are known where the network is in UTM; otherwise there are none.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from superarm.core import Bools, Floats, Ints
from superarm.core.errors import InputError

from ._xml import bare_name
from .geography import from_utm
from .road import VEHICLE_CLASSES, RoadNetwork
from .sumo_file import SumoFile
from .sumo_turns import SumoTurns


def read_sumo(path: str | Path, name: str | None = None) -> RoadNetwork:
    """Read a SUMO network.

    Args:
        path: A ``.net.xml``, ``.net.xml.gz`` or ``.net.xml.xz`` file.
        name: The network's name; by default that of the file.
    """
    return _build_network(SumoFile(path), name)


def _build_network(file: SumoFile, name: str | None) -> RoadNetwork:
    edges = list(file.edges.values())
    tail, head = _find_ends(file)
    lengths = [edge.length for edge in edges]
    speeds = [edge.speed for edge in edges]
    masks = [edge.permits() for edge in edges]
    street_names = tuple(edge.name for edge in edges)
    turns = SumoTurns(file)
    connections = np.array(list(turns.masks), dtype=np.intp)
    turn_masks = np.array(list(turns.masks.values()), dtype=np.intp)
    wait = np.zeros(len(turns.masks))
    stop = np.zeros(len(turns.masks))
    for number, signal in turns.signals.items():
        wait[number] = signal.wait
        stop[number] = signal.stop
    junctions = np.array(list(file.junctions.values()))
    return RoadNetwork(
        name=name or bare_name(file.path),
        junction_ids=tuple(file.junctions),
        junctions=junctions,
        edge_ids=tuple(file.edges),
        tail=tail,
        head=head,
        length=np.array(lengths),
        speed=np.array(speeds),
        permits=_by_class(np.array(masks)),
        connections=connections.reshape(-1, 2),
        turn_permits=_by_class(turn_masks),
        lon_lat=_find_lon_lat(file, junctions[:, :2]),
        shapes=_parse_shapes(file),
        turn_length=np.array(turns.length),
        turn_speed=np.array(turns.speed),
        turn_wait=wait,
        turn_stop=stop,
        turn_entry=np.array(turns.entry),
        signals=turns.signals,
        street_names=street_names if any(street_names) else None,
    )


def _find_ends(file: SumoFile) -> tuple[Ints, Ints]:
    """Return the numbers of the junctions where each edge begins and ends, (m,) each."""
    numbers = {key: number for number, key in enumerate(file.junctions)}
    tail = np.empty(len(file.edges), dtype=np.intp)
    head = np.empty(len(file.edges), dtype=np.intp)
    for row, (key, edge) in enumerate(file.edges.items()):
        for junction in (edge.tail, edge.head):
            if junction not in numbers:
                raise file.fault(
                    f"edge {key!r} names junction {junction!r}, which is not in the file",
                    edge.line,
                )
        tail[row] = numbers[edge.tail]
        head[row] = numbers[edge.head]
    return tail, head


def _parse_shapes(file: SumoFile) -> tuple[Floats, ...]:
    courses: list[Floats] = []
    for key, edge in file.edges.items():
        shape = edge.shape or ""
        points = [point.split(",") for point in shape.split()]
        course = _parse_pairs([coordinates[:2] for coordinates in points])
        if len(course) < 2:
            raise file.fault(
                f"the shape of edge {key!r} is not a list of two or more points x,y or x,y,z",
                edge.line,
            )
        courses.append(course)
    return tuple(courses)


def _find_lon_lat(file: SumoFile, places: Floats) -> Floats | None:
    """Return where the junctions are on Earth; ``None`` for a network that is not in UTM."""
    attributes, line = file.location
    zone = _utm_zone(attributes.get("projParameter", "!"))
    if zone is None:
        return None
    text = attributes.get("netOffset", "missing")
    offset = _parse_pairs([text.split(",")])
    if offset.shape != (1, 2):
        raise file.fault(f"netOffset must be two numbers x,y, got {text!r}", line)
    try:
        return from_utm(places - offset, abs(zone), south=zone < 0)
    except InputError as error:
        raise file.fault(
            f"netOffset {text!r} places a junction nowhere: {error}", line
        ) from None


def _parse_pairs(pairs: list[list[str]]) -> Floats:
    """Return pairs of finite numbers, (k, 2); nothing if one of them is something else."""
    try:
        numbers = np.array([[float(x), float(y)] for x, y in pairs])
    except ValueError:
        return np.empty(0)
    if not np.isfinite(numbers).all():
        return np.empty(0)
    return numbers


def _by_class(masks: Ints) -> dict[str, Bools]:
    flags = {}
    for bit, vehicle_class in enumerate(VEHICLE_CLASSES):
        bits = masks >> bit & 1
        flags[vehicle_class] = bits.astype(bool)
    return flags


def _utm_zone(projection: str) -> int | None:
    """Return the zone of a PROJ string, negative in the south; ``None`` if it is not UTM on WGS 84."""
    words = {}
    for word in projection.split():
        key, _, value = word.partition("=")
        words[key] = value
    ellipsoid = words.get("+ellps", words.get("+datum", "WGS84"))
    is_utm = words.get("+proj") == "utm" and ellipsoid in ("WGS84", "GRS80")
    is_metric = words.get("+units", "m") == "m"
    zone = words.get("+zone", "")
    is_number = zone.isascii() and zone.isdigit()
    if not (is_utm and is_metric and is_number and 1 <= int(zone[:3]) <= 60):
        return None
    number = int(zone)
    if "+south" in words:
        return -number
    return number
