"""What driving costs an electric vehicle: along edges, through junctions, and how wrong that may be."""

from .drives import drive_time as drive_time
from .scales import DurationScales as DurationScales
from .scales import HourlyScales as HourlyScales
from .scales import RoadScales as RoadScales
from .vehicle import RoadEnergy as RoadEnergy
from .vehicle import Vehicle as Vehicle
