"""A fleet's belief about its roads and vehicles."""

from .coverage import Held as Held
from .log import Trips as Trips
from .posterior import Flagged as Flagged
from .posterior import RoadGP as RoadGP
