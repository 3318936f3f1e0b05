"""superarm learns while it decides among combinations.

Names and modules load when they are first used, so that ``import superarm`` costs almost nothing:
after ``import superarm as sa``, ``sa.kernels.Matern(…)`` works.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._version import __version__ as __version__

if TYPE_CHECKING:  # what editors and type checkers see; a test compares it with what there is
    from . import datasets as datasets
    from . import errors as errors
    from . import experiments as experiments
    from . import fleets as fleets
    from . import graphs as graphs
    from . import kernels as kernels
    from . import models as models
    from . import movement as movement
    from . import networks as networks
    from . import oracles as oracles
    from . import plotting as plotting
    from . import policies as policies
    from . import posteriors as posteriors
    from . import problems as problems
    from . import records as records
    from . import registry as registry
    from . import report as report
    from . import results as results
    from . import rewards as rewards
    from . import routes as routes
    from . import rules as rules
    from . import simulation as simulation
    from . import states as states
    from . import tables as tables
    from . import testing as testing
    from . import theory as theory
    from .core import Arms as Arms
    from .core import Decision as Decision
    from .core import Feedback as Feedback
    from .core import Offer as Offer
    from .core import State as State
    from .errors import SuperarmError as SuperarmError
    from .models import Model as Model
    from .policies import IndexPolicy as IndexPolicy
    from .records import from_json as from_json
    from .records import to_json as to_json
    from .registry import build as build
    from .registry import spec_of as spec_of
    from .simulation import simulate as simulate
    from .states import load as load

_HOMES = {
    **dict.fromkeys(("Arms", "Decision", "Feedback", "Offer", "State"), "core"),
    **dict.fromkeys(("build", "spec_of"), "registry"),
    **dict.fromkeys(("from_json", "to_json"), "records"),
    "SuperarmError": "errors",
    "IndexPolicy": "policies",
    "Model": "models",
    "load": "states",
    "simulate": "simulation",
}
__all__ = sorted(["__version__", *_HOMES])  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    if name in _modules():
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_modules()})


def _modules() -> list[str]:
    import pkgutil

    return [each.name for each in pkgutil.iter_modules(__path__) if not each.name.startswith("_")]
