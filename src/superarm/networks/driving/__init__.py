"""Trips driven in SUMO (extra ``sumo``): what each edge of a route costs a simulated vehicle.

``driver`` runs the simulation, ``apart`` keeps one trip from leaving traces in the next, ``ledger``
books energy to edges, ``passable`` checks routes before anything starts, ``traffic`` fills the roads
with other cars.
"""

from .driver import LONGEST_STEP as LONGEST_STEP
from .driver import Drive as Drive
from .driver import Driver as Driver
from .traffic import Traffic as Traffic
