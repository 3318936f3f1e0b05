"""A road network from a file or folder of any known kind."""

from __future__ import annotations

from pathlib import Path

from superarm.core.errors import InputError, MissingDataError

from ._xml import bare_name
from .cache import read_cached
from .elevation import Tiles, at_one_height, with_heights
from .openstreetmap import OSM_FILES, read_osm
from .road import RoadNetwork
from .sumo_net import read_sumo
from .tables import read_tables

SUMO_FILES = (".net.xml", ".net.xml.gz", ".net.xml.xz")
"""How the names of SUMO networks end."""


def read_network(
    path: str | Path,
    *,
    elevation: Tiles | None = None,
    flat: bool = False,
    cache: bool | None = None,
) -> RoadNetwork:
    """Read a folder of csv tables, a SUMO ``.net.xml`` or an OpenStreetMap ``.osm`` file.

    Args:
        path: The folder or file; files may be packed (``.gz``, ``.xz``). OpenStreetMap needs the
            ``[sumo]`` extra.
        elevation: SRTM tiles whose heights replace the network's own.
        flat: Whether all roads are at one height.
        cache: Whether to cache the network beside its file until the file changes
            (:mod:`superarm.roads.networks.cache`); by default unless ``SUPERARM_CACHE`` is 0.
    """
    if flat and elevation is not None:
        raise InputError("pass either elevation or flat, not both")
    path = Path(path)
    name = path.name.lower()
    if not path.exists():
        raise MissingDataError(f"{path}: file not found")
    if path.is_file() and name.endswith(OSM_FILES):
        return read_osm(path, elevation=elevation, flat=flat, cache=cache)
    if path.is_dir():
        network = read_tables(path)
    elif name.endswith(SUMO_FILES):
        network = read_cached(
            path,
            lambda: read_sumo(path),
            name=bare_name(path),
            options={"reader": "sumo"},
            enabled=cache,
        )
    else:
        raise InputError(
            f"{path} cannot be read as a road network; pass a folder with nodes.csv, edges.csv "
            "and connections.csv, a SUMO network (.net.xml), or an OpenStreetMap extract (.osm, "
            ".osm.xml), the files plain or packed (.gz, .xz)"
        )
    if flat:
        return at_one_height(network)
    if elevation is not None:
        return with_heights(network, elevation)
    return network
