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
    from .policies import IndexPolicy as IndexPolicy
    from .problems import Model as Model
    from .simulation import simulate as simulate

_HOMES = {
    "Arms": "core",
    "Decision": "core",
    "Feedback": "core",
    "Offer": "core",
    "State": "core",
    "SuperarmError": "errors",
    "IndexPolicy": "policies",
    "Model": "problems",
    "simulate": "simulation",
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
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
