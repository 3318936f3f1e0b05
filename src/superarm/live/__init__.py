"""Live bandits: ask, act, tell, with every event in a journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from superarm._lazy import lazy_names

if TYPE_CHECKING:
    from .answers import Answer as Answer
    from .bandit import Bandit as Bandit
    from .bandits import create_bandit as create_bandit
    from .bandits import load_bandit as load_bandit
    from .off_policy import Estimate as Estimate
    from .shadow_report import ShadowReport as ShadowReport
    from .spec import BanditSpec as BanditSpec
    from .storage import Storage as Storage
    from .tables import Export as Export

_HOMES = {
    "Answer": "answers",
    "Bandit": "bandit",
    "BanditSpec": "spec",
    "Estimate": "off_policy",
    "Export": "tables",
    "ShadowReport": "shadow_report",
    "Storage": "storage",
    "create_bandit": "bandits",
    "load_bandit": "bandits",
}
__all__ = sorted(_HOMES)  # noqa: PLE0605
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
