"""A fleet's belief about its roads and vehicles."""

from superarm.roads.rows import noise_parts as noise_parts
from superarm.roads.rows import terms_of as terms_of

from .borders import Borders as Borders
from .coverage import IntervalCalibration as IntervalCalibration
from .coverage import TrackRecord as TrackRecord
from .motion import sections_of as sections_of
from .motion import with_motion as with_motion
from .names import VehicleNames as VehicleNames
from .names import vehicle_number as vehicle_number
from .posterior import RoadGP as RoadGP
from .trips import Trips as Trips
