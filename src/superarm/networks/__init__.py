"""Road networks: records, readers, generated cities, line graphs, and what driving costs."""

from .city import generate_city as generate_city
from .elevation import Tile as Tile
from .elevation import with_heights as with_heights
from .energy import RoadEnergy as RoadEnergy
from .energy import Vehicle as Vehicle
from .gps import MatchedTrace as MatchedTrace
from .gps import energies_along as energies_along
from .gps import match_trace as match_trace
from .kinematics import drive_time as drive_time
from .netconvert import write_sumo as write_sumo
from .openstreetmap import read_osm as read_osm
from .reading import read_network as read_network
from .road import LineGraph as LineGraph
from .road import RoadNetwork as RoadNetwork
from .road_map import RoadMap as RoadMap
from .scales import RoadScales as RoadScales
from .sumo_net import read_sumo as read_sumo
from .tables import read_tables as read_tables
from .trips import suggest_trip as suggest_trip
