"""Real data where they are available, otherwise synthetic ones: what ``source`` means."""

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

    An ``edition`` "auto" of real data is replaced by the one that is found. Other specs come back as
    they are.
    """
    name = spec["name"]
    if name not in _DATA:
        return spec
    default = parameters_of("problem", name)
    data = _DATA[name]
    if "edition" in default:
        edition = edition_of(spec.get("edition", default["edition"]))
        data = _EDITIONS[edition]
    interpretations = dict(spec)
    source = spec.get("source", default["source"])
    if source == "auto":
        source = "real" if _is_found(data) else "synthetic"
        interpretations["source"] = source
    if (
        "edition" in default
        and source == "real"
        and spec.get("edition", "auto") == "auto"
    ):
        interpretations["edition"] = edition
    return interpretations


def edition_of(edition: str) -> str:
    """ "25m" or "small"; "auto" is the 25M edition where it is found, else the small one."""
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
