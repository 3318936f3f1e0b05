"""Parts by name: one registry of plain JSON specs for TOML files, command line and service.

A spec is a mapping ``{"name": …, parameter: value, …}``; parameters may themselves be specs.

>>> kernel = build("kernel", {"name": "squared-exponential", "lengthscale": 0.2})
>>> spec_of(kernel)["lengthscale"]
0.2

A part joins with a decorator on a frozen dataclass or on a factory function::

    @register("rule", "greedy")
    @dataclass(frozen=True, kw_only=True)
    class Greedy: ...

Nothing is ever imported by a name that comes from outside: the families and the packages
that fill them are listed here.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from .errors import SpecError

_FAMILIES: dict[str, str] = {
    "kernel": "superarm.kernels",
    "gain": "superarm.theory",
    "posterior": "superarm.posteriors",
    "schedule": "superarm.rules",
    "rule": "superarm.rules",
    "oracle": "superarm.oracles",
    "policy": "superarm.policies",
    "problem": "superarm.problems",
}
_FAMILY_OF = {
    "kernel": "kernel",
    "kernels": "kernel",
    "schedule": "schedule",
    "gamma": "gain",
    "rule": "rule",
    "oracle": "oracle",
}
"""Which family a nested spec belongs to, by the name of the parameter that holds it."""
_parts: dict[str, dict[str, Callable[..., Any]]] = {family: {} for family in _FAMILIES}
_names: dict[object, tuple[str, str]] = {}

Part = TypeVar("Part", bound=Callable[..., Any])


def register(family: str, name: str) -> Callable[[Part], Part]:
    """Decorator: make a class or factory buildable as ``name`` of ``family``."""
    if family not in _FAMILIES:
        raise SpecError(f"unknown family {family!r}; choose one of {sorted(_FAMILIES)}")

    def add(part: Part) -> Part:
        known = _parts[family].get(name)
        if known is not None and known is not part:
            raise SpecError(f"{family} {name!r} is registered already")
        _parts[family][name] = part
        _names[part] = (family, name)
        return part

    return add


def names(family: str) -> list[str]:
    """Every registered name of a family, sorted."""
    return sorted(_members(family))


def parameters_of(family: str, name: str) -> dict[str, Any]:
    """A part's parameters and their defaults (``inspect.Parameter.empty`` where required)."""
    signature = inspect.signature(_find(family, name))
    return {
        parameter.name: parameter.default
        for parameter in signature.parameters.values()
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    }


def build(family: str, spec: Mapping[str, Any] | str, **given: Any) -> Any:
    """The part that ``spec`` describes. ``given`` adds parameters that a spec cannot hold."""
    if isinstance(spec, str):
        spec = {"name": spec}
    if not isinstance(spec, Mapping):
        raise SpecError(f"a {family} spec is a name or a table with a name, not {spec!r}")
    if "name" not in spec:
        raise SpecError(f"a {family} spec needs a name; choose one of {names(family)}")
    name = spec["name"]
    part = _find(family, name)
    accepted = parameters_of(family, name)
    parameters: dict[str, Any] = dict(given)
    for key, value in spec.items():
        if key == "name":
            continue
        if key not in accepted:
            raise SpecError(
                f"{family} {name!r} has no parameter {key!r}; it takes {sorted(accepted)}"
                + _suggestion(key, accepted)
            )
        parameters[key] = _build_nested(value, _FAMILY_OF.get(key))
        check_parameter(family, name, key, parameters[key])
    missing = [
        key
        for key, default in accepted.items()
        if default is inspect.Parameter.empty and key not in parameters
    ]
    if missing:
        raise SpecError(f"{family} {name!r} needs {', '.join(missing)}")
    return part(**parameters)


def check_parameter(family: str, name: str, key: str, value: Any) -> None:
    """An error that names the parameter unless ``value`` is of the kind that the part declares."""
    require_kind(value, kinds_of(_find(family, name)).get(key, Any), f"{family} {name!r}: {key}")


def kinds_of(part: Callable[..., Any]) -> dict[str, Any]:
    """What a class or function declares its parameters to be."""
    plain = inspect.isclass(part) and not dataclasses.is_dataclass(part)
    try:
        return get_type_hints(part.__init__ if plain else part)
    except NameError:  # a part that someone added imports its types for type checkers alone
        return {}


def require_kind(value: Any, kind: Any, name: str) -> None:
    """An error that calls ``value`` by ``name`` unless it is of the declared ``kind``.

    >>> require_kind("0.5", float, "noise_scale")
    Traceback (most recent call last):
    superarm.errors.SpecError: noise_scale is '0.5'; it must be a number
    """
    if not _is_of(value, kind):
        large = type(value) is int and _is_of(0, kind)
        raise SpecError(f"{name} is {value!r:.80}; it must be {'smaller' if large else _words(kind)}")


_WORDS = {
    float: "a number",
    int: "a whole number",
    bool: "true or false",
    str: "text",
    type(None): "left out",
}


def _is_of(value: Any, kind: Any) -> bool:
    """Whether a value can be what is declared; *which* number, text or part it is, its user says."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_is_of(value, each) for each in inner)
    if origin in (tuple, Sequence):
        return isinstance(value, list | tuple) and all(_is_of(item, inner[0]) for item in value)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(_is_of(item, inner[1]) for item in value.values())
    if kind is int or kind is float:
        numbers = int | np.integer if kind is int else int | np.integer | float | np.floating
        most = 2**63 - 1 if kind is int else sys.float_info.max
        large = isinstance(value, int) and abs(value) > most
        return isinstance(value, numbers) and not isinstance(value, bool) and not large
    plain = str if origin is Literal else kind
    return plain not in _WORDS or isinstance(value, plain)


def _words(kind: Any) -> str:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_words(each) for each in inner))
    if origin is Literal:
        return f"one of {', '.join(map(repr, inner))}"
    if origin in (tuple, Sequence):
        return f"a list, each {_words(inner[0])}"
    if origin is Mapping:
        return "a table" if inner[1] is Any else f"a table, each entry {_words(inner[1])}"
    return _WORDS.get(kind, "a table with a name")


def spec_of(part: Any) -> dict[str, Any]:
    """The JSON spec of a part that was built from registered dataclasses."""
    entry = _names.get(type(part))
    if entry is None or not dataclasses.is_dataclass(part):
        raise SpecError(
            f"{type(part).__name__} has no JSON spec: only registered parts do; "
            "pass the object itself where it is needed"
        )
    spec: dict[str, Any] = {"name": entry[1]}
    for item in dataclasses.fields(part):
        if item.init:
            spec[item.name] = _plain(getattr(part, item.name))
    return spec


def _members(family: Any) -> dict[str, Callable[..., Any]]:
    if not isinstance(family, str) or family not in _FAMILIES:
        raise SpecError(f"unknown family {family!r}; choose one of {sorted(_FAMILIES)}")
    importlib.import_module(_FAMILIES[family])
    return _parts[family]


def _find(family: str, name: Any) -> Callable[..., Any]:
    members = _members(family)
    if not isinstance(name, str) or name not in members:
        raise SpecError(
            f"unknown {family} {name!r}; choose one of {sorted(members)}"
            + _suggestion(str(name), members)
        )
    return members[name]


def _suggestion(word: str, choices: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(word, list(choices), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _build_nested(value: Any, family: str | None = None) -> Any:
    """Specs inside specs: of the family they name, or of the one their parameter implies."""
    if isinstance(value, Mapping):
        family = value.get("family", family)
        if family is not None and "name" in value:
            return build(family, {key: item for key, item in value.items() if key != "family"})
        return {key: _build_nested(item, _FAMILY_OF.get(key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_build_nested(item, family) for item in value]
    return value


def _plain(value: Any) -> Any:
    if type(value) in _names:
        return {"family": _names[type(value)][0], **spec_of(value)}
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise SpecError(f"a {type(value).__name__} cannot be written as JSON")
