"""Routes on a road network, by the energy model or by what was learned: ``superarm route``."""

from .answers import INTERVAL as INTERVAL
from .answers import Leg as Leg
from .answers import RouteAnswer as RouteAnswer
from .battery import Battery as Battery
from .battery import VehicleFile as VehicleFile
from .battery import read_vehicle as read_vehicle
from .battery import read_vehicles as read_vehicles
from .closures import read_closures as read_closures
from .energy_beliefs import EnergySource as EnergySource
from .router import NETWORKS as NETWORKS
from .router import Router as Router
from .router import find_route as find_route
