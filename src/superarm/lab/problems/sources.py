"""The parameter ``source``: real data where they are available, otherwise synthetic ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from superarm.core.data_files import find
from superarm.core.errors import MissingDataError
from superarm.core.inputs import require_choice
from superarm.core.registry import parameters_of

_DATA = {
    "crowdsourcing": "tokyo-checkins",
    "temperature-sensors": "intel-temperature",
    "light-sensors": "cmu-light",
    "temperature-series": "intel-temperature",
    "traffic-series": "metr-la-week",
    "movies": "movielens",
    "wind": "wind-profiles",
}
_EDITIONS = {"25m": "movielens-25m", "small": "movielens"}
Data = TypeVar("Data")


def from_source(
    source: str, real: Callable[[], Data], synthetic: Callable[[], Data]
) -> Data:
    """Load data as ``source`` says.

    Args:
        source: "real", with an error where data are missing; "synthetic"; or "auto", real
            data if there are any.
        real: Loads real data.
        synthetic: Generates synthetic data.
    """
    require_choice(source, "source", ("auto", "real", "synthetic"))
    if source != "synthetic":
        try:
            return real()
        except MissingDataError:
            if source == "real":
                raise
    return synthetic()


def settle_source(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Replace ``source`` "auto" in a problem's spec by "real" or "synthetic".

    An ``edition`` "auto" of real data is replaced by the one that is available. Other specs
    are returned unchanged.

    Args:
        spec: The problem's spec.
    """
    name = spec["name"]
    if name not in _DATA:
        return spec
    defaults = parameters_of("problem", name)
    has_editions = "edition" in defaults
    data = _DATA[name]
    if has_editions:
        edition = edition_of(spec.get("edition", defaults["edition"]))
        data = _EDITIONS[edition]
    resolved = dict(spec)
    source = spec.get("source", defaults["source"])
    if source == "auto":
        source = "real" if _is_found(data) else "synthetic"
        resolved["source"] = source
    if has_editions and source == "real" and spec.get("edition", "auto") == "auto":
        resolved["edition"] = edition
    return resolved


def edition_of(edition: str) -> str:
    """Return "25m" or "small".

    Args:
        edition: One of them, or "auto": the 25M edition if it is available, else the small
            one.
    """
    require_choice(edition, "edition", ("auto", *_EDITIONS))
    if edition != "auto":
        return edition
    return "25m" if _is_found(_EDITIONS["25m"]) else "small"


def _is_found(data: str) -> bool:
    try:
        find(data)
    except MissingDataError:
        return False
    return True
