"""OpenStreetMap extracts, ``.osm`` or ``.osm.xml`` plain or packed, through SUMO's netconvert.

netconvert knows what is hard about OpenStreetMap: default speeds and lanes, turn restrictions,
ramps, junctions drawn as several nodes, traffic lights. It comes with the ``[sumo]`` extra.

Heights are the nodes' ``ele`` tags, if the roads have them. netconvert puts a node without one at
0 m, a cliff: so the few gaps of a map with heights are filled from their neighbours along the
roads, and a map with heights here and there is refused. A map without any gives a flat network.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, TextIO

from superarm.errors import InputError, MissingExtraError, require_extra

from ._xml import Attributes, XmlFile, bare_name
from .elevation import Tiles, with_heights
from .road import RoadNetwork
from .sumo_net import read_sumo

_OPTIONS = (
    "--proj.utm",  # metres, and a way back to longitude and latitude
    "--keep-edges.by-vclass=passenger",
    "--geometry.remove",  # a node between two like pieces of road is a bend, not a junction
    "--ramps.guess",
    "--roundabouts.guess",
    "--junctions.join",
    "--tls.guess-signals",
    "--tls.discard-simple",
    "--tls.join",
    "--tls.default-type=actuated",
    "--osm.turn-lanes",
    "--xml-validation=never",
)
_ROADS = frozenset(
    f"{road}{link}"
    for road in ("motorway", "trunk", "primary", "secondary", "tertiary")
    for link in ("", "_link")
) | {"unclassified", "residential", "living_street", "service", "road"}
_METRES = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*m?\s*", re.ASCII)
_ENOUGH = 0.9
"""The share of a map's road nodes that must have heights for the gaps to be filled."""
_ERROR_LINES = 10


def read_osm(
    path: str | Path, *, elevation: Tiles | None = None, name: str | None = None, timeout: float = 600.0
) -> RoadNetwork:
    """The roads of a map that passenger cars may use; ``elevation``: tiles in place of ``ele`` tags.

    ``timeout``: seconds after which netconvert is stopped.
    """
    path = Path(path)
    program = _netconvert()
    with TemporaryDirectory(prefix="superarm-") as folder:
        plain, net = Path(folder) / "map.osm", Path(folder) / "map.net.xml"
        with plain.open("wb") as copy:
            found = _Map(path, copy_to=copy)
        heights = elevation is None and found.has_heights()
        if heights and (gaps := found.gaps()):
            plain = _filled(plain, gaps)
        files = (f"--osm-files={plain.name}", f"--output-file={net.name}")
        options = (*_OPTIONS, "--osm.elevation") if heights else _OPTIONS
        _convert(path, [str(program), *files, *options], folder, timeout)
        try:
            network = read_sumo(net, name or bare_name(path))
        except (InputError, FileNotFoundError) as error:
            raise InputError(f"{path}: netconvert made no usable network of it: {error}") from None
    return network if elevation is None else with_heights(network, elevation)


def _netconvert() -> Path:
    home = Path(require_extra("sumo", "sumo").SUMO_HOME)
    program = home / "bin" / ("netconvert.exe" if os.name == "nt" else "netconvert")
    if not program.is_file():
        raise MissingExtraError(f"{program} is missing; run: pip install 'superarm[sumo]'")
    return program


def _convert(path: Path, command: list[str], folder: str, timeout: float) -> None:
    """Run netconvert in ``folder``, where names hold nothing that it could take for more."""
    home = str(Path(command[0]).parents[1])
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            check=False,
            env={**os.environ, "SUMO_HOME": home},
            encoding="utf-8",
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        raise InputError(
            f"{path}: netconvert not done after {timeout:g} s; raise timeout, or cut the map smaller"
        ) from None
    if done.returncode:
        words = [line for line in done.stderr.splitlines() if not line.startswith("Warning")]
        said = "\n".join(words[-_ERROR_LINES:]) or "nothing"
        raise InputError(f"{path}: netconvert failed (exit code {done.returncode}) and said:\n{said}")


@dataclass(slots=True)
class _Way:
    nodes: list[str] = field(default_factory=list)
    road: bool = False


class _Map:
    """What a map says about heights; reading it also finds what is not XML before netconvert does."""

    def __init__(self, path: Path, copy_to: BinaryIO) -> None:
        self._file = XmlFile(path, root="osm")
        self._nodes: set[str] = set()
        self._heights: dict[str, float] = {}
        self._roads: list[list[str]] = []
        self._node: str | None = None
        self._way: _Way | None = None
        self._file.read(self._start, self._end, copy_to=copy_to)
        known = self._nodes
        self._roads = [[node for node in road if node in known] for road in self._roads]
        self._on_roads = {node for road in self._roads for node in road}
        if not self._on_roads:
            raise InputError(f"{path}: the map holds no roads for cars")

    def has_heights(self) -> bool:
        """Whether the roads have heights; an error where only some of them do."""
        total = len(self._on_roads)
        tagged = sum(node in self._heights for node in self._on_roads)
        if tagged == 0:
            return False
        if tagged < _ENOUGH * total:
            raise InputError(
                f"{self._file.path}: only {tagged} of {total} road nodes have a height (an ele tag); "
                "give elevation= with SRTM tiles, which replaces them, or remove the ele tags"
            )
        return True

    def gaps(self) -> dict[str, float]:
        """Heights for road nodes without one: the mean of their neighbours', from the rims inward."""
        heights = {node: self._heights[node] for node in self._on_roads if node in self._heights}
        mean = sum(heights.values()) / len(heights)
        beside: dict[str, set[str]] = {node: set() for node in self._on_roads if node not in heights}
        for road in self._roads:
            for first, second in pairwise(road):
                for node, other in ((first, second), (second, first)):
                    if node in beside:
                        beside[node].add(other)
        filled: dict[str, float] = {}
        while beside:
            near = {
                node: [heights[other] for other in others if other in heights]
                for node, others in beside.items()
            }
            layer = {node: sum(values) / len(values) for node, values in near.items() if values}
            layer = layer or dict.fromkeys(beside, mean)  # roads of which no node has a height
            heights |= layer
            filled |= layer
            beside = {node: others for node, others in beside.items() if node not in layer}
        return filled

    def _start(self, tag: str, attributes: Attributes) -> None:
        try:
            if tag == "node":
                self._node = attributes["id"]
                self._nodes.add(self._node)
            elif tag == "way":
                self._way = _Way()
            elif tag == "nd" and self._way is not None:
                self._way.nodes.append(attributes["ref"])
            elif tag == "tag":
                self._tag(attributes["k"], attributes["v"])
        except KeyError as error:
            raise self._file.fault(f"<{tag}> lacks the attribute {error.args[0]!r}") from None

    def _tag(self, key: str, value: str) -> None:
        if key == "ele" and self._node is not None and (match := _METRES.fullmatch(value)):
            self._heights[self._node] = float(match[1])
        elif key == "highway" and self._way is not None:
            self._way.road = value in _ROADS

    def _end(self, tag: str) -> None:
        if tag == "node":
            self._node = None
        elif tag == "way" and self._way is not None:
            if self._way.road:
                self._roads.append(self._way.nodes)
            self._way = None


def _filled(plain: Path, heights: dict[str, float]) -> Path:
    """The map again, with these nodes' heights written in."""
    target = plain.with_name("filled.osm")
    with target.open("w", encoding="utf-8") as file:
        _Rewriter(plain, heights, file)
    return target


class _Rewriter:
    def __init__(self, path: Path, heights: dict[str, float], target: TextIO) -> None:
        from xml.sax.saxutils import quoteattr

        self._heights, self._write, self._quoted = heights, target.write, quoteattr
        self._replaced = self._dropped = False
        self._write("<osm>\n")
        XmlFile(path, root="osm").read(self._start, self._end)

    def _start(self, tag: str, attributes: Attributes) -> None:
        if tag == "node":
            self._replaced = attributes["id"] in self._heights
        self._dropped = self._replaced and tag == "tag" and attributes.get("k") == "ele"
        if self._dropped:  # a height that could not be understood
            return
        words = [tag, *(f"{key}={self._quoted(value)}" for key, value in attributes.items())]
        self._write(f"<{' '.join(words)}>")
        if tag == "node" and self._replaced:
            self._write(f'<tag k="ele" v="{self._heights[attributes["id"]]:.3f}"/>')

    def _end(self, tag: str) -> None:
        if tag == "node":
            self._replaced = False
        if not self._dropped:
            self._write(f"</{tag}>\n")
        self._dropped = False
