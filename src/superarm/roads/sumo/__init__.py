"""Trips driven in SUMO (extra ``sumo``): how a car moves along a route, and what that costs.

``driver`` runs the simulation, ``drive`` is its result with its cost for a vehicle, ``drive_cache``
saves drives in a file. ``isolation`` keeps one trip from affecting the next, ``edge_times`` finds when
each edge was passed, ``plain_network`` and ``passable`` prepare networks and routes, ``traffic`` adds
other cars.
"""

from .drive import Drive as Drive
from .driver import LONGEST_STEP as LONGEST_STEP
from .driver import Driver as Driver
from .traffic import Traffic as Traffic
