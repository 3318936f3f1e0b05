"""superarm learns while it decides among combinations.

Names and modules load when they are first used, so that ``import superarm`` costs almost nothing:
after ``import superarm as sa``, ``sa.kernels.Matern(…)`` works.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._lazy import lazy_names
from ._version import __version__ as __version__

if (
    TYPE_CHECKING
):  # what editors and type checkers see; a test compares it with what there is
    from . import client as client
    from . import core as core
    from . import kernels as kernels
    from . import lab as lab
    from . import live as live
    from . import models as models
    from . import movement as movement
    from . import oracles as oracles
    from . import policies as policies
    from . import posteriors as posteriors
    from . import rewards as rewards
    from . import roads as roads
    from . import rules as rules
    from . import testing as testing
    from .core import Arms as Arms
    from .core import Decision as Decision
    from .core import Feedback as Feedback
    from .core import Offer as Offer
    from .core import State as State
    from .core.errors import SuperarmError as SuperarmError
    from .core.registry import build as build
    from .core.registry import register as register
    from .core.registry import spec_of as spec_of
    from .core.serialization import from_json as from_json
    from .core.serialization import to_json as to_json
    from .core.states import load as load
    from .lab.simulation import simulate as simulate
    from .live import create_bandit as create_bandit
    from .live import load_bandit as load_bandit
    from .models import Model as Model
    from .policies import IndexPolicy as IndexPolicy

_HOMES = {
    "Arms": "core",
    "Decision": "core",
    "Feedback": "core",
    "Offer": "core",
    "State": "core",
    "SuperarmError": "core.errors",
    "build": "core.registry",
    "register": "core.registry",
    "spec_of": "core.registry",
    "from_json": "core.serialization",
    "to_json": "core.serialization",
    "load": "core.states",
    "simulate": "lab.simulation",
    "create_bandit": "live",
    "load_bandit": "live",
    "Model": "models",
    "IndexPolicy": "policies",
}
__all__ = sorted(["__version__", *_HOMES])  # noqa: PLE0605
_ROOMS = (
    "cli",
    "client",
    "core",
    "kernels",
    "lab",
    "live",
    "models",
    "movement",
    "oracles",
    "policies",
    "posteriors",
    "rewards",
    "roads",
    "rules",
    "testing",
)
__getattr__, __dir__ = lazy_names(__name__, _HOMES, _ROOMS)
