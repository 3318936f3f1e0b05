"""Road networks: records, readers, generated cities, line graphs, and what driving costs."""

from .city import generate_city
from .elevation import Tile, with_heights
from .energy import RoadEnergy, Vehicle
from .openstreetmap import read_osm
from .reading import read_network
from .road import LineGraph, RoadNetwork
from .road_map import RoadMap
from .sumo_net import read_sumo
from .tables import read_tables
from .trips import suggest_trip
from .writing import write_sumo

__all__ = [
    "LineGraph",
    "RoadEnergy",
    "RoadMap",
    "RoadNetwork",
    "Tile",
    "Vehicle",
    "generate_city",
    "read_network",
    "read_osm",
    "read_sumo",
    "read_tables",
    "suggest_trip",
    "with_heights",
    "write_sumo",
]
