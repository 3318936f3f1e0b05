"""OpenStreetMap extracts, ``.osm`` or ``.osm.xml`` plain or packed, through SUMO's netconvert.

netconvert handles what is hard about OpenStreetMap: default speeds and lanes, turn restrictions,
ramps, junctions drawn as several nodes, traffic lights. It comes with the ``[sumo]`` extra.

Heights are the nodes' ``ele`` tags, if the roads have them. netconvert puts a node without one at
0 m, a cliff: so a map with heights here and there is refused. A map without any gives a flat network,
and so does one that is read without heights.
"""

from __future__ import annotations

import re
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from superarm.core.errors import (
    FileError,
    InputError,
    MissingExtraError,
    install_line,
    require_extra,
)
from superarm.core.states import atomic_write

from ._xml import Attributes, XmlFile, bare_name, require_file
from .cache import read_cached
from .elevation import Tiles, with_heights
from .netconvert import convert
from .road import RoadNetwork
from .sumo_net import read_sumo

OSM_FILES = tuple(
    f"{suffix}{packed}"
    for suffix in (".osm", ".osm.xml")
    for packed in ("", ".gz", ".xz")
)
"""How the names of OpenStreetMap extracts end."""
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
    "--output.street-names",
)
_ROADS = frozenset(
    f"{road}{link}"
    for road in ("motorway", "trunk", "primary", "secondary", "tertiary")
    for link in ("", "_link")
) | {"unclassified", "residential", "living_street", "service", "road"}
_METRES = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*m?\s*", re.ASCII)


def read_osm(
    path: str | Path,
    *,
    elevation: Tiles | None = None,
    flat: bool = False,
    name: str | None = None,
    timeout: float = 600.0,
    cache: bool | None = None,
) -> RoadNetwork:
    """Read the roads of a map that passenger cars may use.

    Args:
        path: An ``.osm`` or ``.osm.xml`` file, plain or packed.
        elevation: SRTM tiles whose heights replace ``ele`` tags.
        flat: Whether to leave heights out.
        name: The network's name; by default that of the file.
        timeout: Seconds after which netconvert is stopped.
        cache: Whether to cache the network, as for ``read_network``.
    """
    path = Path(path)
    heights = elevation is None and not flat
    require_file(path)
    require_extra("sumo", "sumo")
    network_name = name or bare_name(path)
    options = {
        "reader": "osm",
        "netconvert": [*_OPTIONS, _netconvert_version()],
        "heights": heights,
    }

    def read_converted() -> RoadNetwork:
        with TemporaryDirectory(prefix="superarm-") as folder:
            net = _convert_map(path, folder, heights, timeout)
            try:
                return read_sumo(net, network_name)
            except (InputError, FileNotFoundError) as error:
                message = f"{path}: netconvert made no usable network from it: {error}"
                raise InputError(message) from None

    network = read_cached(
        path,
        read_converted,
        name=network_name,
        options=options,
        variant="heights" if heights else "level",
        least_edges=1,  # it is converting that takes long
        enabled=cache,
    )
    if elevation is None:
        return network
    return with_heights(network, elevation)


def kept_osm(path: str | Path, folder: str | Path, *, heights: bool = True) -> Path:
    """Convert a map once to a ``.net.xml`` that SUMO drives on; return its path.

    The converted network is cached by the content of the map.

    Args:
        path: An ``.osm`` or ``.osm.xml`` file, plain or packed.
        folder: The folder of the cache.
        heights: Whether ``ele`` tags count.
    """
    path = Path(path)
    require_file(path)
    require_extra("sumo", "sumo")
    settings = (_OPTIONS, heights, _netconvert_version())
    digest = sha256(path.read_bytes())
    digest.update(repr(settings).encode())
    converted = Path(folder) / digest.hexdigest() / f"{bare_name(path)}.net.xml"
    if not converted.is_file():
        with TemporaryDirectory(prefix="superarm-") as temporary:
            net = _convert_map(path, temporary, heights)
            try:
                atomic_write(converted, net.read_bytes())
            except OSError as error:
                raise FileError(
                    f"{path}: superarm cannot cache the converted network in {folder} ({error}); set "
                    "XDG_CACHE_HOME to a writable folder"
                ) from error
    return converted


def _netconvert_version() -> str:
    """Return the version that converted networks are cached by: another one converts anew."""
    try:
        return version("eclipse-sumo")
    except PackageNotFoundError:
        message = "the package eclipse-sumo is missing, although a module sumo exists"
        raise MissingExtraError(message, install_line("sumo")) from None


def _convert_map(
    path: Path, folder: str, heights: bool, timeout: float = 600.0
) -> Path:
    plain = Path(folder) / "map.osm"
    net = Path(folder) / "map.net.xml"
    with plain.open("wb") as copy:
        road_map = _Map(path, copy_to=copy)
    options = [f"--osm-files={plain.name}", f"--output-file={net.name}", *_OPTIONS]
    if heights and road_map.has_heights():
        options.append("--osm.elevation")
    convert(path, options, folder, timeout)
    return net


class _Map:
    """The heights of a map. Reading it also finds what is not XML before netconvert does.

    Args:
        path: The map.
        copy_to: Where to write the unpacked map.
    """

    def __init__(self, path: Path, copy_to: BinaryIO) -> None:
        self._file = XmlFile(path, root="osm")
        self._nodes: set[str] = set()
        self._nodes_with_height: set[str] = set()
        self._road_nodes: set[str] = set()
        self._open_node: str | None = None
        self._open_way: list[str] | None = None
        self._is_road = False  # whether the open way is one
        self._file.read(self._start, self._end, copy_to=copy_to)
        self._road_nodes &= self._nodes
        if not self._road_nodes:
            raise InputError(f"{path}: the map contains no roads for cars")

    def has_heights(self) -> bool:
        """Return whether the roads have heights; raise an error where only some of them do."""
        total = len(self._road_nodes)
        tagged = len(self._road_nodes & self._nodes_with_height)
        if 0 < tagged < total:
            raise InputError(
                f"{self._file.path}: only {tagged} of {total} road nodes have a height (an ele tag); "
                "pass elevation= (--elevation) with SRTM tiles to replace them, or flat=True (--flat) "
                "to ignore heights"
            )
        return tagged > 0

    def _start(self, tag: str, attributes: Attributes) -> None:
        if tag == "node":
            self._open_node = attributes["id"]
            self._nodes.add(self._open_node)
        elif tag == "way":
            self._open_way = []
            self._is_road = False
        elif tag == "nd" and self._open_way is not None:
            self._open_way.append(attributes["ref"])
        elif tag == "tag":
            self._read_tag(attributes["k"], attributes["v"])

    def _read_tag(self, key: str, value: str) -> None:
        if key == "highway":
            self._is_road = value in _ROADS
        elif key == "ele" and self._open_node is not None and _METRES.fullmatch(value):
            self._nodes_with_height.add(self._open_node)

    def _end(self, tag: str) -> None:
        if tag == "node":
            self._open_node = None
        elif tag == "way":
            if self._open_way is not None and self._is_road:
                self._road_nodes.update(self._open_way)
            self._open_way = None
