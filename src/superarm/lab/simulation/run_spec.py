"""The description of a run, ``run.json``: write it, read it and check it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from superarm.core.capabilities import Metric
from superarm.core.errors import SpecError, StateError
from superarm.core.inputs import as_plain
from superarm.core.registry import check_table, require_kind
from superarm.core.states import atomic_write

from .files import json_bytes, read_json
from .trace import cell_name

SCHEMA = 2
MOST_CELLS = 10**7
"""Policies × settings × seeds of the largest run."""
METRIC_KINDS = get_type_hints(Metric)
"""The type of each field of a metric's description."""
_REQUIRED: dict[str, Any] = {
    "experiment": str,
    "rounds": int,
    "first_seed": int,
    "seeds": int,
    "policies": Sequence[str],
    "settings": Sequence[Mapping[str, Any]],
}
_OPTIONAL: dict[str, Any] = {
    "title": str,
    "paper": str,
    "figure": str,
    "version": str,
    "overrides": Mapping[str, Any],
    "parameters": Mapping[str, Any],
    "horizons": Sequence[int],
    "derived": Sequence[Mapping[str, Any]],
    "chart": Mapping[str, Any],
    "states": Mapping[str, Mapping[str, Any]],
    "audited": Sequence[str],
    "imports": Sequence[str],
}
# These have one entry for each setting.
_PER_SETTING: dict[str, Any] = {
    "settled": Sequence[Mapping[str, str]],
    "metrics": Sequence[Mapping[str, Mapping[str, Any]]],
    "noise_variance": Sequence[float | None],
    "shared_data": Sequence[float],
    "independent_seeds": Sequence[float | None],
}


class Drawing(NamedTuple):
    """Options of an experiment's charts, its table ``[chart]``.

    Args:
        band: Band around means: their standard error, or the standard deviation between
            seeds.
        marks: Values of a swept number that a chart points out, by their labels.
        truth: How the first seed's truth is drawn, if at all: over the arms in a few
            rounds, or over rounds.
        curves: Running totals to draw: each has a ``metric``, and ``where`` selects
            settings.
        tree: Whether to draw a random tree over the actions, where moving between them
            costs.
    """

    band: Literal["stderr", "std"] = "stderr"
    marks: Mapping[str, float] = MappingProxyType({})
    truth: Literal["", "functions", "series"] = ""
    curves: Sequence[Mapping[str, Any]] = ()
    tree: bool = False


_CHART_KINDS = get_type_hints(Drawing)
_CURVE_KINDS: dict[str, Any] = {"metric": str, "where": Mapping[str, Any]}


def write_spec(directory: Path | str, spec: Mapping[str, Any]) -> None:
    """Write ``run.json``, after the checks that reading it makes.

    Args:
        directory: The run's folder.
        spec: The description, without its schema number.
    """
    path = Path(directory) / "run.json"
    complete = {"schema": SCHEMA, **spec}
    _check_spec(as_plain(complete), path)
    atomic_write(path, json_bytes(complete))


def read_spec(directory: Path | str) -> Mapping[str, Any]:
    """Read and check ``run.json``.

    Args:
        directory: The run's folder.
    """
    path = Path(directory) / "run.json"
    return _check_spec(read_json(path), path)


def check_chart(chart: Mapping[str, Any], where: str) -> None:
    """Refuse a table ``[chart]`` that is no :class:`Drawing`.

    Args:
        chart: The table.
        where: The table's place, for error messages.
    """
    check_table(chart, _CHART_KINDS, where)
    for key, value in chart.items():
        _check_choice(key, value, where)
    for curve in chart.get("curves", ()):
        check_table(curve, _CURVE_KINDS, f"{where}: curves", required=["metric"])


def _check_choice(key: str, value: Any, where: str) -> None:
    kind = _CHART_KINDS[key]
    if get_origin(kind) is not Literal:
        return
    options = get_args(kind)
    if value not in options:
        choices = " or ".join(repr(option) for option in options if option)
        raise SpecError(f"{where}: {key} is {value!r}; choose {choices}")


def _check_spec(spec: Any, path: Path) -> Mapping[str, Any]:
    """Return the spec, or raise :class:`StateError`."""
    schema = spec.get("schema") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or schema is None:
        raise StateError(
            f"{path} is not the description of a run (no schema); run again into a new directory"
        )
    if schema != SCHEMA:
        raise StateError(
            f"{path} has schema {schema!r}; this version of superarm reads schema {SCHEMA}"
        )
    try:
        _check_kinds(spec)
        _check_sharing(spec)
        check_chart(spec.get("chart", {}), "'chart'")
        _check_parameters(spec)
        _check_metrics(spec)
    except SpecError as error:
        raise StateError(
            f"{path}: {error}; restore the file, or run again into a new directory"
        ) from None
    _check_sizes(spec, path)
    _check_policy_names(spec, path)
    return spec


def _check_kinds(spec: Mapping[str, Any]) -> None:
    kinds = {**_REQUIRED, **_OPTIONAL, **_PER_SETTING}
    for key, kind in kinds.items():
        value = spec.get(key)
        if key in spec or key in _REQUIRED:
            require_kind(value, kind, repr(key))
        if key in spec and key in _PER_SETTING:
            settings = spec["settings"]
            if len(spec[key]) != len(settings):
                raise SpecError(f"{key!r} must have one entry for each setting")


def _check_sharing(spec: Mapping[str, Any]) -> None:
    """Check the data that seeds have in common."""
    for share in spec.get("shared_data", ()):
        if not 0.0 <= share < 1.0:
            raise SpecError("'shared_data' must have shares from 0 to below 1")
    for count in spec.get("independent_seeds", ()):
        if count is not None and not count >= 0.0:
            raise SpecError(
                "'independent_seeds' must have numbers of at least 0, or null"
            )


def _check_parameters(spec: Mapping[str, Any]) -> None:
    parameters = spec.get("parameters", {})
    problem = parameters.get("problem", {})
    policies = parameters.get("policies", {})
    require_kind(problem, Mapping[str, Any], "'problem'")
    require_kind(policies, Mapping[str, Mapping[str, Any]], "'policies'")


def _check_metrics(spec: Mapping[str, Any]) -> None:
    for metrics in spec.get("metrics", ()):
        for key, kind in METRIC_KINDS.items():
            for name, description in metrics.items():
                value = description.get(key)
                require_kind(value, kind, f"{key!r} of metric {name!r}")


def _check_sizes(spec: Mapping[str, Any], path: Path) -> None:
    rounds: int = spec["rounds"]
    seeds: int = spec["seeds"]
    policies = len(spec["policies"])
    settings = len(spec["settings"])
    sizes = (rounds, seeds, policies, settings)
    if min(sizes) < 1 or spec["first_seed"] < 0:
        raise StateError(
            f"{path}: it has {sizes} rounds, seeds, policies and settings, from seed "
            f"{spec['first_seed']}; there must be one of each, and no seed below 0"
        )
    if prod((seeds, policies, settings)) > MOST_CELLS:
        raise StateError(
            f"{path}: a run may have at most {MOST_CELLS:,} cells, and this has more"
        )


def _check_policy_names(spec: Mapping[str, Any], path: Path) -> None:
    owners: dict[str, str] = {}  # of file names
    for policy in spec["policies"]:
        owner = owners.setdefault(cell_name(policy, 0, 0), policy)
        if owner is not policy:
            raise StateError(
                f"{path}: the policies {owner!r} and {policy!r} would share their files; rename one"
            )
