"""Which data a problem with ``source="auto"`` would use, settled once for all who build it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from superarm.datasets import load_cmu_light, load_intel_temperature, load_tokyo_checkins
from superarm.errors import MissingDataError
from superarm.registry import parameters_of

_LOADERS = {
    "crowdsourcing": load_tokyo_checkins,
    "temperature-sensors": load_intel_temperature,
    "light-sensors": load_cmu_light,
}


def settle_source(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """The problem's spec with ``source`` "auto" replaced by "real" or "synthetic".

    Other specs come back as they are.
    """
    load = _LOADERS.get(spec["name"])
    if load is None or spec.get("source", parameters_of("problem", spec["name"])["source"]) != "auto":
        return spec
    try:
        load()
    except MissingDataError:
        return {**spec, "source": "synthetic"}
    return {**spec, "source": "real"}
