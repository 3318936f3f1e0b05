"""OpenStreetMap extracts, ``.osm`` or ``.osm.xml`` plain or packed, through SUMO's netconvert.

netconvert knows what is hard about OpenStreetMap: default speeds and lanes, turn restrictions,
ramps, junctions drawn as several nodes, traffic lights. It comes with the ``[sumo]`` extra.

Heights are the nodes' ``ele`` tags, if the roads have them. netconvert puts a node without one at
0 m, a cliff: so a map with heights here and there is refused. A map without any gives a flat network,
and so does one whose heights are not asked for.
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
    """The roads of a map that passenger cars may use; ``elevation``: tiles in place of ``ele`` tags.

    ``flat`` leaves heights out. ``timeout``: seconds after which netconvert is stopped. ``cache``: as
    for ``read_network``.
    """
    path, heights = Path(path), elevation is None and not flat
    require_file(path)
    require_extra("sumo", "sumo")
    known_as = name or bare_name(path)

    def converted() -> RoadNetwork:
        with TemporaryDirectory(prefix="superarm-") as folder:
            net = _converted(path, folder, heights, timeout)
            try:
                return read_sumo(net, known_as)
            except (InputError, FileNotFoundError) as error:
                message = f"{path}: netconvert made no usable network from it: {error}"
                raise InputError(message) from None

    network = read_cached(
        path,
        converted,
        name=known_as,
        options={
            "reader": "osm",
            "netconvert": [*_OPTIONS, _netconvert_version()],
            "heights": heights,
        },
        variant="heights" if heights else "level",
        least_edges=1,  # it is converting that takes long
        enabled=cache,
    )
    return network if elevation is None else with_heights(network, elevation)


def kept_osm(path: str | Path, folder: str | Path, *, heights: bool = True) -> Path:
    """The ``.net.xml`` that SUMO drives on, made of a map once and then found by the map's content.

    ``folder``: where it is kept. ``heights``: whether ``ele`` tags count.
    """
    path = Path(path)
    require_file(path)
    require_extra("sumo", "sumo")
    made_of = sha256(path.read_bytes())
    made_of.update(repr((_OPTIONS, heights, _netconvert_version())).encode())
    kept = Path(folder) / made_of.hexdigest() / f"{bare_name(path)}.net.xml"
    if not kept.is_file():
        with TemporaryDirectory(prefix="superarm-") as temporary:
            net = _converted(path, temporary, heights)
            try:
                atomic_write(kept, net.read_bytes())
            except OSError as error:
                raise FileError(
                    f"{path}: the converted SUMO network cannot be cached in {folder} ({error}); set "
                    "XDG_CACHE_HOME to a writable folder"
                ) from error
    return kept


def _netconvert_version() -> str:
    """What converted networks are cached by: another version of netconvert converts anew."""
    try:
        return version("eclipse-sumo")
    except PackageNotFoundError:
        message = "the package eclipse-sumo is missing, though a module sumo is there"
        raise MissingExtraError(f"{message}; run: {install_line('sumo')}") from None


def _converted(path: Path, folder: str, heights: bool, timeout: float = 600.0) -> Path:
    plain, net = Path(folder) / "map.osm", Path(folder) / "map.net.xml"
    with plain.open("wb") as copy:
        found = _Map(path, copy_to=copy)
    files = (f"--osm-files={plain.name}", f"--output-file={net.name}")
    options = (
        (*_OPTIONS, "--osm.elevation") if heights and found.has_heights() else _OPTIONS
    )
    convert(path, [*files, *options], folder, timeout)
    return net


class _Map:
    """What a map says about heights; reading it also finds what is not XML before netconvert does."""

    def __init__(self, path: Path, copy_to: BinaryIO) -> None:
        self._file = XmlFile(path, root="osm")
        self._known: set[str] = set()
        self._with_height: set[str] = set()
        self._on_roads: set[str] = set()
        self._node: str | None = None
        self._way: list[str] | None = None
        self._drivable = False
        self._file.read(self._start, self._end, copy_to=copy_to)
        self._on_roads &= self._known
        if not self._on_roads:
            raise InputError(f"{path}: the map contains no roads for cars")

    def has_heights(self) -> bool:
        """Whether the roads have heights; an error where only some of them do."""
        total, tagged = len(self._on_roads), len(self._on_roads & self._with_height)
        if 0 < tagged < total:
            raise InputError(
                f"{self._file.path}: only {tagged} of {total} road nodes have a height (an ele tag); "
                "pass elevation= (--elevation) with SRTM tiles to replace them, or flat=True (--flat) "
                "to ignore heights"
            )
        return tagged > 0

    def _start(self, tag: str, attributes: Attributes) -> None:
        if tag == "node":
            self._node = attributes["id"]
            self._known.add(self._node)
        elif tag == "way":
            self._way, self._drivable = [], False
        elif tag == "nd" and self._way is not None:
            self._way.append(attributes["ref"])
        elif tag == "tag":
            self._tag(attributes["k"], attributes["v"])

    def _tag(self, key: str, value: str) -> None:
        if key == "ele" and self._node is not None and _METRES.fullmatch(value):
            self._with_height.add(self._node)
        elif key == "highway":
            self._drivable = value in _ROADS

    def _end(self, tag: str) -> None:
        if tag == "node":
            self._node = None
        elif tag == "way":
            self._on_roads.update(self._way or () if self._drivable else ())
            self._way = None
