"""Roads: networks, energy, routing, fleets and their logs, and problems and policies on roads.

Rooms load when they are first used: ``superarm.roads.networks.read_network(…)`` works after
``import superarm``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from superarm._lazy import lazy_names

if TYPE_CHECKING:  # rooms load when they are first used
    from . import energy as energy
    from . import fleets as fleets
    from . import gps as gps
    from . import models as models
    from . import networks as networks
    from . import policies as policies
    from . import posterior as posterior
    from . import problems as problems
    from . import routing as routing
    from . import rows as rows
    from . import sumo as sumo

_ROOMS = (
    "energy",
    "fleets",
    "gps",
    "models",
    "networks",
    "policies",
    "posterior",
    "problems",
    "routing",
    "rows",
    "sumo",
)
__getattr__, __dir__ = lazy_names(__name__, {}, _ROOMS)
