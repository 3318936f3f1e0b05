"""Road networks as three tables: nodes.csv, edges.csv and connections.csv, plain or gzipped.

Nodes may have ``lon`` and ``lat``, edges the ``name`` of their street, connections what driving there
means: ``length_m``, ``speed_mps``, ``wait_s``, ``stop`` and ``entry_mps``, as ``RoadNetwork`` has them.
"""

from __future__ import annotations

import csv
import zlib
from collections.abc import Callable, Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from superarm.core.compressed import open_packed
from superarm.core.errors import InputError, MissingDataError

from .road import TURN_COLUMNS, RoadNetwork, parse_limited

Value = TypeVar("Value")
_COLUMNS = {
    "nodes": ("id", "x", "y", "z"),
    "edges": ("id", "from", "to", "length_m", "speed_mps", "passenger"),
    "connections": ("from", "to", "passenger"),
}
_OF_TURNS = dict(
    zip(
        TURN_COLUMNS,
        ("length_m", "speed_mps", "wait_s", "stop", "entry_mps"),
        strict=True,
    )
)
_PLACE = (("x", "place"), ("y", "place"), ("z", "height"))


def read_tables(folder: str | Path, name: str | None = None) -> RoadNetwork:
    """The network in a folder of csv files; an error names the file and the line."""
    folder = Path(folder)
    nodes, edges, turns = (
        list(_rows(_file(folder, kind), keys)) for kind, keys in _COLUMNS.items()
    )
    junction = {row["id"]: number for number, row in enumerate(nodes)}
    edge = {row["id"]: number for number, row in enumerate(edges)}
    tail, head = (
        [row.known(end, junction, "node") for row in edges] for end in ("from", "to")
    )
    _require_meeting(edges, turns, edge)
    placed = bool(nodes) and {"lon", "lat"} <= nodes[0].keys()
    told: dict[str, Any] = {
        name: np.array([row.limited(key, name) for row in turns])
        for name, key in _OF_TURNS.items()
        if turns and key in turns[0]
    }
    if edges and "name" in edges[0]:
        told["street_names"] = tuple(row["name"] for row in edges)
    degrees = [
        [row.limited(key, key) for key in ("lon", "lat")] for row in nodes if placed
    ]
    return RoadNetwork(
        name=name or folder.name,
        junction_ids=tuple(row["id"] for row in nodes),
        junctions=np.array(
            [[row.limited(*each) for each in _PLACE] for row in nodes]
        ).reshape(-1, 3),
        edge_ids=tuple(row["id"] for row in edges),
        tail=np.array(tail, dtype=np.intp),
        head=np.array(head, dtype=np.intp),
        length=np.array([row.limited("length_m", "length") for row in edges]),
        speed=np.array([row.limited("speed_mps", "speed") for row in edges]),
        permits={
            "passenger": np.array([row.flag("passenger") for row in edges], dtype=bool)
        },
        connections=np.array(
            [[row.known(end, edge, "edge") for end in ("from", "to")] for row in turns],
            dtype=np.intp,
        ),
        turn_permits={
            "passenger": np.array([row.flag("passenger") for row in turns], dtype=bool)
        },
        lon_lat=np.array(degrees) if placed else None,
        **told,
    )


class _Row(dict[str, str]):
    """A line of a table that knows where it stands."""

    where: str

    def limited(self, key: str, what: str) -> float:
        return self._parsed(key, lambda text: parse_limited(text, what))

    def flag(self, key: str) -> bool:
        return self._parsed(key, {"0": False, "1": True}.__getitem__, "0 or 1")

    def known(self, key: str, numbers: dict[str, int], what: str) -> int:
        return self._parsed(key, numbers.__getitem__, f"a known {what}")

    def _parsed(
        self, key: str, parse: Callable[[str], Value], wanted: str = ""
    ) -> Value:
        try:
            return parse(self[key])
        except (ValueError, KeyError) as error:
            told = f"{self.where}: {key} is {self[key]!r}; it must be {wanted or error}"
            raise InputError(told) from None


def _require_meeting(
    edges: list[_Row], turns: list[_Row], number: dict[str, int]
) -> None:
    for row in turns:
        first = edges[row.known("from", number, "edge")]
        second = edges[row.known("to", number, "edge")]
        if first["to"] != second["from"]:
            raise InputError(
                f"{row.where}: the turn from {first['id']!r} to {second['id']!r} joins edges that do "
                f"not meet: one ends at {first['to']!r}, the other begins at {second['from']!r}"
            )


def _file(folder: Path, table: str) -> Path:
    for suffix in (".csv.gz", ".csv"):
        path = folder / f"{table}{suffix}"
        if path.is_file():
            return path
    raise MissingDataError(
        f"{folder} holds no {table}.csv or {table}.csv.gz; a network needs one"
    )


def _rows(path: Path, needed: tuple[str, ...]) -> Iterator[_Row]:
    try:
        with (
            open_packed(path) as unpacked,
            TextIOWrapper(unpacked, encoding="utf-8-sig", newline="") as lines,
        ):
            reader = csv.reader(lines, strict=True)
            header = next(reader, [])
            if len(set(header)) != len(header):
                raise InputError(
                    f"{path}: line 1 names a column twice: {header!s:.200}"
                )
            missing = [key for key in needed if key not in header]
            if missing:
                raise InputError(
                    f"{path}: line 1 lacks the columns {missing}; it has {header!s:.200}"
                )
            seen: set[str] = set()
            for values in reader:
                if len(values) != len(header):
                    raise InputError(
                        f"{path}: line {reader.line_num} has {len(values)} values for "
                        f"{len(header)} columns"
                    )
                row = _Row(zip(header, values, strict=True))
                row.where = f"{path}: line {reader.line_num}"
                if row.get("id") in seen:
                    raise InputError(
                        f"{row.where}: id {row['id']!r} appears more than once"
                    )
                seen.update([row["id"]] if "id" in row else [])
                yield row
    except (csv.Error, UnicodeDecodeError, OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: not a readable table: {error}") from None
