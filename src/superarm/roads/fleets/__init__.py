"""A fleet's own log: trips as they were metered, checked, and learned from once."""

from superarm.roads.posterior import vehicle_number

from .checks import Finding, LogFindings, check_log
from .learning import Lesson, fleet_policy, learn_trips, road_mismatch
from .reading import Energy
from .records import LoggedTrip, TripSection
from .tables import read_trips

__all__ = [
    "Energy",
    "Finding",
    "Lesson",
    "LogFindings",
    "LoggedTrip",
    "TripSection",
    "check_log",
    "fleet_policy",
    "learn_trips",
    "read_trips",
    "road_mismatch",
    "vehicle_number",
]
