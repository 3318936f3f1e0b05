"""Road networks: records, readers, generated cities and line graphs."""

from .city import generate_city as generate_city
from .elevation import Tile as Tile
from .elevation import with_heights as with_heights
from .line_graph import LineGraph as LineGraph
from .netconvert import write_sumo as write_sumo
from .openstreetmap import read_osm as read_osm
from .reading import read_network as read_network
from .road import RoadNetwork as RoadNetwork
from .road_map import road_map as road_map
from .sumo_net import read_sumo as read_sumo
from .tables import read_tables as read_tables
from .trips import suggest_trip as suggest_trip
