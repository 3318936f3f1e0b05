"""Road networks written to files: csv tables, and networks for SUMO.

A network for SUMO is three plain XML files (nodes, edges, connections), which need nothing but this
module; SUMO's own ``netconvert`` (extra ``sumo``) builds a ``.net.xml`` from them. Every edge has one
lane, so that a connection of ours is a connection of theirs, and nothing is guessed: no turn is added,
no junction joined, no coordinate moved.
"""

from __future__ import annotations

import csv
import gzip
import io
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np

from superarm.core import Floats
from superarm.errors import InputError, require_extra

from .road import VEHICLE_CLASSES, RoadNetwork

_DIGITS = 6
_NETCONVERT_OPTIONS = (
    "--offset.disable-normalization=true",
    "--no-turnarounds.except-deadend=true",
    f"--precision={_DIGITS}",
    "--output.original-names=false",
    "--roundabouts.guess=false",
    "--no-warnings=true",
)


# --- tables -------------------------------------------------------------------------------


def write_tables(network: RoadNetwork, folder: str | Path) -> Path:
    """nodes, edges and connections as ``.csv.gz`` in a folder, for :func:`read_tables`; the folder.

    Numbers are written in full: reading them back gives the same network. The tables know passenger
    cars only, and no shapes. Equal networks give equal files.
    """
    cars, turns = network.permits.get("passenger"), network.turn_permits.get("passenger")
    if cars is None or turns is None:
        raise InputError(
            f"{network.name} says nothing of vehicle class 'passenger', which tables are about; "
            f"it knows {sorted(network.permits)}"
        )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    junction, edge = network.junction_ids, network.edge_ids
    places = (
        network.junctions
        if network.lon_lat is None
        else np.hstack([network.junctions, network.lon_lat])
    )
    columns = ["x", "y", "z"] if network.lon_lat is None else ["x", "y", "z", "lon", "lat"]
    _write_table(
        folder / "nodes.csv.gz",
        ["id", *columns],
        ([name, *map(repr, row)] for name, row in zip(junction, places.tolist(), strict=True)),
    )
    _write_table(
        folder / "edges.csv.gz",
        ["id", "from", "to", "length_m", "speed_mps", "passenger"],
        (
            [name, junction[tail], junction[head], repr(length), repr(speed), int(may)]
            for name, tail, head, length, speed, may in zip(
                edge,
                network.tail.tolist(),
                network.head.tolist(),
                network.length.tolist(),
                network.speed.tolist(),
                cars.tolist(),
                strict=True,
            )
        ),
    )
    _write_table(
        folder / "connections.csv.gz",
        ["from", "to", "passenger"],
        (
            [edge[first], edge[second], int(may)]
            for (first, second), may in zip(network.connections.tolist(), turns.tolist(), strict=True)
        ),
    )
    return folder


def _write_table(path: Path, header: list[str], rows: Iterable[list[Any]]) -> None:
    # Without a file name and a time inside, so that the bytes depend on the rows alone.
    with (
        path.open("wb") as file,
        gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=6, mtime=0) as packed,
        io.TextIOWrapper(packed, encoding="utf-8", newline="") as text,
    ):
        writer = csv.writer(text)
        writer.writerow(header)
        writer.writerows(rows)


# --- SUMO ---------------------------------------------------------------------------------


def write_sumo_plain(network: RoadNetwork, prefix: str | Path) -> tuple[Path, Path, Path]:
    """``prefix.nod.xml``, ``.edg.xml`` and ``.con.xml``: what ``netconvert`` makes networks of."""
    prefix = Path(prefix)
    prefix.parent.mkdir(parents=True, exist_ok=True)
    paths = tuple(prefix.with_name(f"{prefix.name}.{kind}.xml") for kind in ("nod", "edg", "con"))
    nodes, edges, connections = paths
    _write_xml(nodes, "nodes", _nodes(network))
    _write_xml(edges, "edges", _edges(network))
    _write_xml(connections, "connections", _connections(network))
    return nodes, edges, connections


def write_sumo(network: RoadNetwork, path: str | Path) -> Path:
    """A ``.net.xml`` or ``.net.xml.gz`` that SUMO drives on and :func:`read_sumo` reads; the path.

    Ids, turns, lengths, speeds, heights and permissions are kept; numbers to six decimals. Needs
    the extra ``sumo``.
    """
    path = Path(path)
    if not path.name.endswith((".net.xml", ".net.xml.gz")):
        raise InputError(f"{path}: a SUMO network is named .net.xml or .net.xml.gz")
    program = Path(require_extra("sumo", "sumo").SUMO_HOME) / "bin" / "netconvert"
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        nodes, edges, connections = write_sumo_plain(network, Path(folder) / "plain")
        files = [f"-n={nodes}", f"-e={edges}", f"-x={connections}", f"-o={path}"]
        done = subprocess.run(
            [str(program), *files, *_NETCONVERT_OPTIONS], capture_output=True, text=True, check=False
        )
    if done.returncode != 0:
        raise InputError(f"netconvert can not make {path} of {network.name}: {done.stderr.strip()}")
    return path


def _write_xml(path: Path, root: str, elements: Iterable[str]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(f'<?xml version="1.0" encoding="UTF-8"?>\n<{root}>\n')
        file.writelines(f"    <{element}/>\n" for element in elements)
        file.write(f"</{root}>\n")


def _nodes(network: RoadNetwork) -> Iterator[str]:
    for name, (x, y, z) in zip(network.junction_ids, network.junctions.tolist(), strict=True):
        yield f"node id={quoteattr(name)} x={_quoted(x)} y={_quoted(y)} z={_quoted(z)}"


def _edges(network: RoadNetwork) -> Iterator[str]:
    junction, allowed = network.junction_ids, _allowed(network.permits, len(network.edge_ids))
    z = network.junctions[:, 2]
    for number, name in enumerate(network.edge_ids):
        tail, head = network.tail[number], network.head[number]
        course = ""
        if network.shapes is not None and len(network.shapes[number]) > 2:
            course = f" shape={quoteattr(_climbing(network.shapes[number], z[tail], z[head]))}"
        yield (
            f"edge id={quoteattr(name)} "
            f"from={quoteattr(junction[tail])} to={quoteattr(junction[head])} "
            f'numLanes="1" speed={_quoted(network.speed[number])} '
            f"length={_quoted(network.length[number])}{allowed[number]}{course}"
        )


def _connections(network: RoadNetwork) -> Iterator[str]:
    """Every connection, and for edges that have none a line that says so."""
    edge = network.edge_ids
    first, second = network.connections.T
    allowed = [""] * len(first)
    said = _allowed(network.turn_permits, len(first))
    lanes = {who: may[first] & may[second] for who, may in network.permits.items()}
    for number, of_lanes in enumerate(_allowed(lanes, len(first))):
        if said[number] != of_lanes:
            allowed[number] = said[number]
    for one, other, classes in zip(first.tolist(), second.tolist(), allowed, strict=True):
        ends = f"from={quoteattr(edge[one])} to={quoteattr(edge[other])}"
        yield f'connection {ends} fromLane="0" toLane="0"{classes}'
    for number in np.setdiff1d(np.arange(len(edge)), first).tolist():
        yield f"connection from={quoteattr(edge[number])}"


def _allowed(permits: Any, count: int) -> Sequence[str]:
    """For each edge or turn the attribute that says who may use it; nothing where everybody may."""
    known = [who for who in VEHICLE_CLASSES if who in permits]
    code = np.zeros(count, dtype=np.intp)
    for place, who in enumerate(known):
        code |= permits[who].astype(np.intp) << place
    words = {}
    for value in np.unique(code).tolist():
        classes = [who for place, who in enumerate(known) if value >> place & 1]
        if len(classes) == len(VEHICLE_CLASSES):
            words[value] = ""
        else:
            words[value] = f' allow="{" ".join(classes)}"' if classes else ' disallow="all"'
    return [words[value] for value in code.tolist()]


def _climbing(shape: Floats, begin: float, end: float) -> str:
    """A shape with heights that rise evenly along it."""
    along = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(shape, axis=0).T))])
    heights = begin + (end - begin) * along / max(along[-1], 1e-9)
    return " ".join(
        f"{x:.{_DIGITS}f},{y:.{_DIGITS}f},{z:.{_DIGITS}f}"
        for (x, y), z in zip(shape, heights, strict=True)
    )


def _quoted(value: float) -> str:
    return f'"{value:.{_DIGITS}f}"'
