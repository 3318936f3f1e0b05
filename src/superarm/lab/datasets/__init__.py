"""Readers of the data sets that :mod:`superarm.core.data_files` finds.

They return what a file contains, unrepaired. A damaged file is refused, with its name and
line in the message.
"""

from .cmu_light import LightReadings as LightReadings
from .cmu_light import load_cmu_light as load_cmu_light
from .intel import INTEL_MOTES as INTEL_MOTES
from .intel import load_intel_temperature as load_intel_temperature
from .metr_la import TrafficSpeeds as TrafficSpeeds
from .metr_la import load_metr_la as load_metr_la
from .movielens import Ratings as Ratings
from .movielens import load_movielens as load_movielens
from .movielens_25m import load_movielens_25m as load_movielens_25m
from .tokyo import load_tokyo_checkins as load_tokyo_checkins
from .wind import LIDAR_HEIGHTS as LIDAR_HEIGHTS
from .wind import LidarWinds as LidarWinds
from .wind import WindShapes as WindShapes
from .wind import load_lidar_winds as load_lidar_winds
from .wind import load_wind_shapes as load_wind_shapes
