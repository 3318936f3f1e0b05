"""Road networks as three tables: nodes.csv, edges.csv and connections.csv, plain or gzipped.

Nodes may have ``lon`` and ``lat``, edges the ``name`` of their street. Connections may describe how one
drives there: ``length_m``, ``speed_mps``, ``wait_s``, ``stop`` and ``entry_mps``, the columns of turns
of ``RoadNetwork``.
"""

from __future__ import annotations

import csv
import zlib
from collections.abc import Callable, Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from superarm.core import Bools
from superarm.core.compressed import open_packed
from superarm.core.errors import InputError, MissingDataError

from .road import RoadNetwork, parse_limited

Value = TypeVar("Value")
_COLUMNS = {
    "nodes": ("id", "x", "y", "z"),
    "edges": ("id", "from", "to", "length_m", "speed_mps", "passenger"),
    "connections": ("from", "to", "passenger"),
}
# Optional columns of connections, by the names that RoadNetwork has for them.
_TURN_COLUMNS = {
    "turn_length": "length_m",
    "turn_speed": "speed_mps",
    "turn_wait": "wait_s",
    "turn_stop": "stop",
    "turn_entry": "entry_mps",
}


def read_tables(folder: str | Path, name: str | None = None) -> RoadNetwork:
    """Read the network in a folder of csv files; an error names the file and the line.

    Args:
        folder: Holds nodes.csv, edges.csv and connections.csv, plain or gzipped.
        name: The network's name; by default that of the folder.
    """
    folder = Path(folder)
    nodes = _read_table(folder, "nodes")
    edges = _read_table(folder, "edges")
    turns = _read_table(folder, "connections")
    node_numbers = {row["id"]: number for number, row in enumerate(nodes)}
    edge_numbers = {row["id"]: number for number, row in enumerate(edges)}
    tail = [row.known("from", node_numbers, "node") for row in edges]
    head = [row.known("to", node_numbers, "node") for row in edges]
    _require_meeting(edges, turns, edge_numbers)
    optional = _read_optional(nodes, edges, turns)
    junctions = np.array([row.place() for row in nodes])
    lengths = [row.limited("length_m", "length") for row in edges]
    speeds = [row.limited("speed_mps", "speed") for row in edges]
    permits = _read_permits(edges)
    connections = [row.connection(edge_numbers) for row in turns]
    return RoadNetwork(
        name=name or folder.name,
        junction_ids=tuple(row["id"] for row in nodes),
        junctions=junctions.reshape(-1, 3),
        edge_ids=tuple(row["id"] for row in edges),
        tail=np.array(tail, dtype=np.intp),
        head=np.array(head, dtype=np.intp),
        length=np.array(lengths),
        speed=np.array(speeds),
        permits=permits,
        connections=np.array(connections, dtype=np.intp),
        turn_permits=_read_permits(turns),
        **optional,
    )


def _read_optional(
    nodes: list[_Row], edges: list[_Row], turns: list[_Row]
) -> dict[str, Any]:
    """Return the optional columns that the tables have, by their names in a network."""
    columns: dict[str, Any] = {}
    for column, key in _TURN_COLUMNS.items():
        if turns and key in turns[0]:
            values = [row.limited(key, column) for row in turns]
            columns[column] = np.array(values)
    if edges and "name" in edges[0]:
        columns["street_names"] = tuple(row["name"] for row in edges)
    if nodes and {"lon", "lat"} <= nodes[0].keys():
        columns["lon_lat"] = np.array([row.lon_lat() for row in nodes])
    return columns


def _read_permits(rows: list[_Row]) -> dict[str, Bools]:
    flags = [row.flag("passenger") for row in rows]
    return {"passenger": np.array(flags, dtype=bool)}


class _Row(dict[str, str]):
    """A line of a table, by column."""

    where: str
    """The file and the line, for errors."""

    def require_new_id(self, ids: set[str]) -> None:
        """Raise an error if this row's id is among ``ids``; otherwise add it."""
        if "id" not in self:
            return
        name = self["id"]
        if name in ids:
            raise InputError(f"{self.where}: id {name!r} appears more than once")
        ids.add(name)

    def limited(self, key: str, limits: str) -> float:
        """Return the number in a column, within the limits of this name."""
        return self._parse(key, lambda text: parse_limited(text, limits))

    def flag(self, key: str) -> bool:
        """Return whether a column holds 1."""
        return self._parse(key, {"0": False, "1": True}.__getitem__, "0 or 1")

    def known(self, key: str, numbers: dict[str, int], what: str) -> int:
        """Return the number of the id in a column."""
        return self._parse(key, numbers.__getitem__, f"a known {what}")

    def place(self) -> tuple[float, float, float]:
        """Return x, y and z of a node."""
        x = self.limited("x", "place")
        y = self.limited("y", "place")
        z = self.limited("z", "height")
        return x, y, z

    def lon_lat(self) -> tuple[float, float]:
        """Return longitude and latitude of a node."""
        longitude = self.limited("lon", "lon")
        latitude = self.limited("lat", "lat")
        return longitude, latitude

    def connection(self, edge_numbers: dict[str, int]) -> tuple[int, int]:
        """Return the numbers of the edges that a connection joins."""
        first = self.known("from", edge_numbers, "edge")
        second = self.known("to", edge_numbers, "edge")
        return first, second

    def _parse(
        self, key: str, parse: Callable[[str], Value], expected: str = ""
    ) -> Value:
        """Parse a column; by default the error of ``parse`` describes what is expected."""
        try:
            return parse(self[key])
        except (ValueError, KeyError) as error:
            raise InputError(
                f"{self.where}: {key} must be {expected or error}, got {self[key]!r}"
            ) from None


def _require_meeting(
    edges: list[_Row], turns: list[_Row], edge_numbers: dict[str, int]
) -> None:
    for row in turns:
        first, second = row.connection(edge_numbers)
        end = edges[first]["to"]
        begin = edges[second]["from"]
        if end != begin:
            raise InputError(
                f"{row.where}: the turn from {row['from']!r} to {row['to']!r} joins edges that do "
                f"not meet: one ends at {end!r}, the other begins at {begin!r}"
            )


def _read_table(folder: Path, table: str) -> list[_Row]:
    path = _find_file(folder, table)
    rows = _read_rows(path, _COLUMNS[table])
    return list(rows)


def _find_file(folder: Path, table: str) -> Path:
    for suffix in (".csv.gz", ".csv"):
        path = folder / f"{table}{suffix}"
        if path.is_file():
            return path
    raise MissingDataError(
        f"{folder} holds no {table}.csv or {table}.csv.gz; a network needs one"
    )


def _read_rows(path: Path, required: tuple[str, ...]) -> Iterator[_Row]:
    try:
        with (
            open_packed(path) as unpacked,
            TextIOWrapper(unpacked, encoding="utf-8-sig", newline="") as lines,
        ):
            reader = csv.reader(lines, strict=True)
            header = next(reader, [])
            _check_header(path, header, required)
            ids: set[str] = set()
            for values in reader:
                where = f"{path}: line {reader.line_num}"
                if len(values) != len(header):
                    raise InputError(
                        f"{where} has {len(values)} values for {len(header)} columns"
                    )
                row = _Row(zip(header, values, strict=True))
                row.where = where
                row.require_new_id(ids)
                yield row
    except (csv.Error, UnicodeDecodeError, OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: not a readable table: {error}") from None


def _check_header(path: Path, header: list[str], required: tuple[str, ...]) -> None:
    if len(set(header)) != len(header):
        raise InputError(f"{path}: line 1 names a column twice: {header!s:.200}")
    missing = [key for key in required if key not in header]
    if missing:
        raise InputError(
            f"{path}: line 1 lacks the columns {missing}; it has {header!s:.200}"
        )
