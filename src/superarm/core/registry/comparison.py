"""Specs compared: with those of a state, with what parts take, and with what can be built.

A *place* is where a value stands in a spec, such as ``posterior.kernel.lengthscale[1]``.
"""

from __future__ import annotations

import inspect
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .catalogue import family_of, members_of, parameters_of
from .family_table import FAMILIES, family_of_parameter
from .specs import IDENTITY_KEYS, describe, identity_of, plain, stated_parameters

_LONGEST_VALUE = 60  # characters of a value in an error message
_TEXTS = {str}
_NUMBERS = {int, float}  # not bool: True is not 1


class _Missing:
    """Stands for a parameter that one of two specs lacks."""

    def __repr__(self) -> str:
        return "missing"


_MISSING = _Missing()


class _Pair(NamedTuple):
    """Two values that stand at the same place in two specs."""

    place: str
    current: Any
    saved: Any


# --- differences ---------------------------------------------------------------------------


def difference(current: Any, saved: Any, place: str = "") -> str | None:
    """The first difference between a spec and that of a state, in words; ``None`` if there is none.

    Args:
        current: The spec of the part.
        saved: The spec in the state.
        place: Where both stand in larger specs.
    """
    pairs = _pairs(current, saved, place)
    if pairs is not None:
        for pair in pairs:
            message = difference(pair.current, pair.saved, pair.place)
            if message is not None:
                return message
        return None
    if _are_equal_values(current, saved):
        return None
    subject = place or "it"
    return f"{subject} is {_value_text(current)} here and {_value_text(saved)} in the state"


def contradiction(part: Any, spec: Any) -> str | None:
    """The first parameter of a part that contradicts the spec in a state, in words; or ``None``.

    A parameter that the spec lacks was added after the state was saved, and has its default.

    Args:
        part: The part.
        spec: The spec in the state.
    """
    current = describe(part)
    entry = family_of(part)
    if isinstance(spec, Mapping) and "family" in spec and entry is not None:
        # Specs of parts inside another part also name their family.
        family, _ = entry
        current = {"family": family, **current}
    return difference(current, completed(spec, part))


def _pairs(current: Any, saved: Any, place: str) -> Iterator[_Pair] | None:
    """The contents of two containers of one kind, pair by pair; ``None`` for anything else."""
    if isinstance(current, Mapping) and isinstance(saved, Mapping):
        return _pairs_in_tables(current, saved, place)
    if isinstance(current, list) and isinstance(saved, list):
        same_length = len(current) == len(saved)
        return _pairs_in_lists(current, saved, place) if same_length else None
    if isinstance(current, np.ndarray) and isinstance(saved, np.ndarray):
        same_shape = current.shape == saved.shape
        same_kind = current.dtype.kind == saved.dtype.kind
        if same_shape and same_kind:
            return _unequal_entries(current, saved, place)
    return None


def _pairs_in_tables(
    current: Mapping[str, Any], saved: Mapping[str, Any], place: str
) -> Iterator[_Pair]:
    # Identity first: of two different parts, the names are the difference that matters.
    for key in dict.fromkeys((*IDENTITY_KEYS, *current, *saved)):
        if key in current or key in saved:
            key_place = place if key in IDENTITY_KEYS else _below(place, key)
            current_value = current.get(key, _MISSING)
            saved_value = saved.get(key, _MISSING)
            yield _Pair(key_place, current_value, saved_value)


def _pairs_in_lists(
    current: list[Any], saved: list[Any], place: str
) -> Iterator[_Pair]:
    if _are_equal_plain_lists(current, saved):
        return
    for index, (item, saved_item) in enumerate(zip(current, saved, strict=True)):
        yield _Pair(f"{place}[{index}]", item, saved_item)


def _are_equal_plain_lists(current: list[Any], saved: list[Any]) -> bool:
    """Whether both are texts alone, or numbers alone, and equal: a short way for long lists."""
    types = {*map(type, current), *map(type, saved)}
    return (types <= _TEXTS or types <= _NUMBERS) and current == saved


def _unequal_entries(current: Any, saved: Any, place: str) -> Iterator[_Pair]:
    for index in np.argwhere(current != saved).tolist():
        entry = tuple(index)
        yield _Pair(f"{place}{index}", current[entry].item(), saved[entry].item())


def _are_equal_values(current: Any, saved: Any) -> bool:
    if isinstance(current, np.ndarray):
        return False
    types = {type(current), type(saved)}
    if len(types) > 1 and types != {int, float}:
        return False
    # The text of NaN equals that of NaN.
    return bool(current == saved) or repr(current) == repr(saved)


def _value_text(value: Any) -> str:
    if isinstance(value, Mapping):
        return repr(value.get("name", value.get("foreign", "a table")))
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}…"


def _below(place: str, key: object) -> str:
    return f"{place}.{key}" if place else str(key)


# --- parameters that were added later ------------------------------------------------------


def completed(spec: Any, part: Any) -> Any:
    """The spec in a state of ``part``, with the parameters that were added after it was saved.

    They get today's defaults, in nested parts too. A parameter without a default stays missing.

    Args:
        spec: The spec in the state.
        part: A part of the same kind, built today.
    """
    if isinstance(spec, list):
        if not isinstance(part, list | tuple) or len(spec) != len(part):
            return spec
        return [
            completed(item, item_part)
            for item, item_part in zip(spec, part, strict=True)
        ]
    if not isinstance(spec, Mapping):
        return spec
    parameters = stated_parameters(part)
    identity = {key: spec[key] for key in ("name", "foreign") if key in spec}
    if parameters is None or identity != identity_of(part):
        return spec
    complete: dict[str, Any] = {}
    for key, value in spec.items():
        is_parameter = key in parameters
        complete[key] = completed(value, parameters[key]) if is_parameter else value
    added = [key for key in parameters if key not in spec]
    if added:
        complete |= _defaults(part, parameters, added)
    return complete


def _defaults(
    part: Any, parameters: Mapping[str, Any], names: Sequence[str]
) -> dict[str, Any]:
    """What these parameters of ``part`` would be if they were left out, as a spec contains it."""
    declared = inspect.signature(type(part)).parameters
    optional = [
        name
        for name in names
        if name in declared and declared[name].default is not inspect.Parameter.empty
    ]
    defaults = {name: plain(declared[name].default, strict=False) for name in optional}
    present = {name: plain(parameters[name], strict=False) for name in optional}
    if difference(present, defaults) is None:
        return defaults
    # A constructor may replace a default, as ``None`` by a kernel: build a part to find out.
    others = {name: value for name, value in parameters.items() if name not in optional}
    built = stated_parameters(type(part)(**others)) or {}
    return {
        name: plain(built[name], strict=False) for name in optional if name in built
    }


# --- what cannot be built ------------------------------------------------------------------


def foreign_parts(spec: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """The place and the type of every part in a spec that cannot be built from it.

    Args:
        spec: The spec.
        place: Where it stands in a larger one.
    """
    if isinstance(spec, Mapping):
        if "foreign" in spec:
            yield place or "class", str(spec["foreign"])
        for key, value in spec.items():
            yield from foreign_parts(value, _below(place, key))
    elif isinstance(spec, list):
        for index, value in enumerate(spec):
            yield from foreign_parts(value, f"{place}[{index}]")


def unknown_parameters(
    spec: Any, family: str | None = None, place: str = ""
) -> Iterator[str]:
    """The places in a spec of parameters that the registered part does not take.

    Args:
        spec: The spec.
        family: Its family, where the spec does not name it.
        place: Where it stands in a larger one.
    """
    if isinstance(spec, list):
        for index, item in enumerate(spec):
            yield from unknown_parameters(item, family, f"{place}[{index}]")
    if not isinstance(spec, Mapping):
        return
    accepted = _accepted_parameters(spec.get("family", family), spec.get("name"))
    for key, value in spec.items():
        key_place = _below(place, key)
        if accepted is not None and key not in accepted and key not in IDENTITY_KEYS:
            yield key_place
        yield from unknown_parameters(value, family_of_parameter(key), key_place)


def _accepted_parameters(family: Any, name: Any) -> Container[str] | None:
    """The parameters of a part; ``None`` where no part has this name."""
    if not isinstance(family, str) or not isinstance(name, str):
        return None
    if family not in FAMILIES or name not in members_of(family):
        return None
    return parameters_of(family, name)
