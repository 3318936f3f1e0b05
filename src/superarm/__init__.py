"""superarm learns while it decides among combinations.

Names load when they are first used, so that ``import superarm`` costs almost nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
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
    "Arms": "core",
    "Decision": "core",
    "Feedback": "core",
    "Offer": "core",
    "State": "core",
    "SuperarmError": "errors",
    "IndexPolicy": "policies",
    "Model": "models",
    "build": "registry",
    "from_json": "records",
    "load": "states",
    "simulate": "simulation",
    "spec_of": "registry",
    "to_json": "records",
}
__all__ = [
    "__version__",
    "Arms",
    "Decision",
    "Feedback",
    "IndexPolicy",
    "Model",
    "Offer",
    "State",
    "SuperarmError",
    "build",
    "from_json",
    "load",
    "simulate",
    "spec_of",
    "to_json",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
