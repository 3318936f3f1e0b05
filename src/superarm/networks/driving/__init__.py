"""Trips driven in SUMO (extra ``sumo``): how a car moves along a route, and what that costs.

``driver`` runs the simulation, ``drive`` is what comes of it and says what it costs a vehicle, ``kept``
keeps drives in a file. ``apart`` keeps one trip from leaving traces in the next, ``ledger`` finds when
each edge was passed, ``plain`` and ``passable`` see to networks and routes before anything starts,
``traffic`` fills the roads with other cars.
"""

from .drive import Drive as Drive
from .driver import LONGEST_STEP as LONGEST_STEP
from .driver import Driver as Driver
from .traffic import Traffic as Traffic
