"""Problems on roads: one traveller, a fleet, and trips driven in SUMO."""

from .fleet import Fleet as Fleet
from .navigation import Navigation as Navigation
from .sumo import SumoNavigation as SumoNavigation
