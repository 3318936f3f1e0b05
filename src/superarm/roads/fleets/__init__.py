"""A fleet's own log: trips as they were metered, checked, and learned from once."""

from superarm.roads.posterior import vehicle_number

from .checks import Finding, LogFindings, check_log
from .learning import Lesson, LoggedTrip, Section, fleet_policy, learn_trips, read_trips, unlike_roads
from .reading import Energy

__all__ = [
    "Energy",
    "Finding",
    "Lesson",
    "LogFindings",
    "LoggedTrip",
    "Section",
    "check_log",
    "fleet_policy",
    "learn_trips",
    "read_trips",
    "unlike_roads",
    "vehicle_number",
]
