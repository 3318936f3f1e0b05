"""Experiments from files: those that ship with superarm, and TOML files of your own."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NamedTuple

from superarm.core.errors import SpecError
from superarm.core.files import read_toml
from superarm.core.plugins import import_parts
from superarm.core.registry import names, require_kind, suggestion
from superarm.lab.simulation.lateness import Lateness

from .claims import policies_of
from .parts import own_parameters, policy_spec
from .spec import Experiment

_SHARED_BASE = "navigation/_route"
"""A file that several experiments extend; it is no experiment itself."""


def experiment_ids() -> list[str]:
    """Every experiment that ships with superarm."""
    root = resources.files(__package__)
    groups = [folder for folder in root.iterdir() if folder.is_dir()]
    ids = []
    for group in groups:
        ids += [f"{group.name}/{stem}" for stem in _experiments_in(group)]
    return sorted(ids)


def _experiments_in(group: Traversable) -> list[str]:
    """The stems of the TOML files in a folder; those with an underscore are only extended."""
    return [
        file.name.removesuffix(".toml")
        for file in group.iterdir()
        if file.name.endswith(".toml") and not file.name.startswith("_")
    ]


def load_experiment(name: str) -> Experiment:
    """An experiment by id, or from a TOML file of your own.

    Args:
        name: an id such as "kernelized/gp-se", or a path that ends with ".toml".
    """
    if name.endswith(".toml"):
        path = Path(name)
        if not path.exists():
            raise SpecError(f"{name}: file not found")
        return _parse(path, name)
    ids = experiment_ids()
    if name not in ids:
        advice = suggestion(name, ids, command="superarm list experiments")
        raise SpecError(f"unknown experiment {name!r}; {advice}")
    return _parse(_shipped(name), name)


def _shipped(name: str) -> Traversable:
    group, _, stem = name.partition("/")
    return resources.files(__package__) / group / f"{stem}.toml"


# --- reading a file ------------------------------------------------------------------------


def _read(source: Path | Traversable, where: str) -> dict[str, Any]:
    """The tables of a file, over those of the shipped one that it ``extends``."""
    tables = _read_toml(source)
    if isinstance(source, Path):
        _import_parts(tables.pop("imports", []), source.parent, where)
    base_name = tables.pop("extends", None)
    if base_name is None:
        return tables
    known_bases = [*experiment_ids(), _SHARED_BASE]
    if base_name not in known_bases:
        advice = suggestion(base_name, known_bases, command="superarm list experiments")
        raise SpecError(f"{where}: extends is {base_name!r}; {advice}")
    base = _read(_shipped(base_name), base_name)
    return _merge(base, tables)


def _read_toml(source: Path | Traversable) -> dict[str, Any]:
    if isinstance(source, Path):
        return read_toml(source, content="an experiment")
    return tomllib.loads(source.read_text(encoding="utf-8"))


def _import_parts(sources: Any, folder: Path, where: str) -> None:
    """Import modules, and Python files beside the user's own TOML file."""
    require_kind(sources, Sequence[str], f"{where}: imports")
    for source in sources:
        if source.endswith(".py"):
            import_parts(folder / source)
        else:
            import_parts(source)


def _merge(base: Mapping[str, Any], tables: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of a file over those of its base; tables are merged one level deep."""
    merged = {**base, **tables}
    for key in merged:
        base_table = base.get(key)
        table = tables.get(key)
        if isinstance(base_table, Mapping) and isinstance(table, Mapping):
            merged[key] = {**base_table, **table}
    return merged


# --- checking what only a file as a whole can get wrong ------------------------------------


class _Reference(NamedTuple):
    """Names in one part of a file that must exist elsewhere in it."""

    part: str
    names: Sequence[str]


def _parse(source: Path | Traversable, where: str) -> Experiment:
    tables = _read(source, where)
    try:
        experiment = Experiment.from_mapping(tables, where)
    except RecursionError:
        raise SpecError(f"{where}: tables are nested too deeply") from None
    _check_policies(experiment, where)
    _check_parameters(experiment, where)
    return experiment


def _check_policies(experiment: Experiment, where: str) -> None:
    """Refuse a claim, rerun or derived row about a policy that does not exist."""
    known = sorted({*experiment.policies, *experiment.on_request, *names("policy")})
    for part, policies in _policy_references(experiment):
        for name in policies:
            if name not in known:
                advice = suggestion(name, known, command="superarm list policy")
                raise SpecError(
                    f"{where}: {part} is about {name!r}, which is not a policy here; {advice}"
                )


def _policy_references(experiment: Experiment) -> Iterator[_Reference]:
    for claim in experiment.claims:
        yield _Reference(f"claim {claim['text']!r}", policies_of(claim))
    yield _Reference("rerun", list(experiment.rerun))
    compared = [row for row in experiment.derived if "versus" in row]
    rivals = [row["versus"] for row in compared]
    yield _Reference("derived", rivals)


def _check_parameters(experiment: Experiment, where: str) -> None:
    """Refuse a claim or curve about a parameter that no setting can have."""
    known = _setting_keys(experiment)
    for part, keys in _parameter_references(experiment):
        for key in keys:
            if key not in known:
                raise SpecError(
                    f"{where}: {part}: {key!r} is not a parameter here; "
                    f"{suggestion(key, known)}"
                )


def _parameter_references(experiment: Experiment) -> Iterator[_Reference]:
    for claim in experiment.claims:
        yield _Reference(f"claim {claim['text']!r}", _keys_named_in(claim))
    for curve in experiment.chart.get("curves", ()):
        yield _Reference("[chart]: curves", _keys_named_in(curve))


def _keys_named_in(table: Mapping[str, Any]) -> list[str]:
    keys = list(table.get("where", ()))
    if table.get("key"):
        keys.append(table["key"])
    return keys


def _setting_keys(experiment: Experiment) -> set[str]:
    """What a setting of the experiment can name: parameters, alone or as ``owner.parameter``."""
    keys = set(experiment.sweep)
    problem_keys = own_parameters("problem", experiment.problem["name"])
    keys.update(problem_keys)
    keys.update(_dotted("problem", ["name", *problem_keys]))
    policies = {**experiment.on_request, **experiment.policies}
    for name, options in policies.items():
        spec = policy_spec(name, options)
        policy_keys = own_parameters("policy", spec["name"])
        keys.update(policy_keys)
        keys.update(_dotted(name, policy_keys))
    feedback_keys = [field.name for field in fields(Lateness)]
    keys.update(_dotted("feedback", feedback_keys))
    return keys - {"name"}


def _dotted(owner: str, keys: Iterable[str]) -> list[str]:
    return [f"{owner}.{key}" for key in keys]
