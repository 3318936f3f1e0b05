"""Real data where they are available, otherwise synthetic ones: what ``source`` means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from superarm.datasets import find
from superarm.errors import MissingDataError
from superarm.inputs import require_choice
from superarm.registry import parameters_of

_DATA = {
    "crowdsourcing": "tokyo-checkins",
    "temperature-sensors": "intel-temperature",
    "light-sensors": "cmu-light",
    "temperature-series": "intel-temperature",
    "traffic-series": "metr-la-week",
    "movies": "movielens",
    "wind": "wind-profiles",
}
Data = TypeVar("Data")


def from_source(source: str, real: Callable[[], Data], synthetic: Callable[[], Data]) -> Data:
    """ "real" data or an error where they are missing, "synthetic" ones, or "auto": either."""
    require_choice(source, "source", ("auto", "real", "synthetic"))
    if source != "synthetic":
        try:
            return real()
        except MissingDataError:
            if source == "real":
                raise
    return synthetic()


def settle_source(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """The problem's spec with ``source`` "auto" replaced by "real" or "synthetic".

    Other specs come back as they are.
    """
    name = spec["name"]
    if name not in _DATA or spec.get("source", parameters_of("problem", name)["source"]) != "auto":
        return spec
    try:
        find(_DATA[name])
    except MissingDataError:
        return {**spec, "source": "synthetic"}
    return {**spec, "source": "real"}
