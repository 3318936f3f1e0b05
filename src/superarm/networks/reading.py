"""A road network from whatever holds it."""

from __future__ import annotations

from pathlib import Path

from superarm.errors import InputError, MissingDataError

from .elevation import Tiles, with_heights
from .openstreetmap import read_osm
from .road import RoadNetwork
from .sumo_net import read_sumo
from .tables import read_tables

_PACKED = ("", ".gz", ".xz")
_SUMO = tuple(f".net.xml{packed}" for packed in _PACKED)
_OSM = tuple(f"{suffix}{packed}" for suffix in (".osm", ".osm.xml") for packed in _PACKED)


def read_network(path: str | Path, *, elevation: Tiles | None = None) -> RoadNetwork:
    """The network in a folder of csv tables, a SUMO ``.net.xml`` or an OpenStreetMap ``.osm`` file.

    Files may be packed (``.gz``, ``.xz``). OpenStreetMap needs the ``[sumo]`` extra.
    ``elevation``: SRTM tiles whose heights take the place of the network's own.
    """
    path = Path(path)
    name = path.name.lower()
    if not path.exists():
        raise MissingDataError(f"there is no file or folder {path}; check the path")
    if path.is_file() and name.endswith(_OSM):
        return read_osm(path, elevation=elevation)
    if path.is_dir():
        network = read_tables(path)
    elif name.endswith(_SUMO):
        network = read_sumo(path)
    else:
        raise InputError(
            f"{path} cannot be read as a road network; it can be a folder with nodes.csv, edges.csv "
            "and connections.csv, a SUMO network (.net.xml), or an OpenStreetMap extract (.osm, "
            ".osm.xml), the files plain or packed (.gz, .xz)"
        )
    return network if elevation is None else with_heights(network, elevation)
