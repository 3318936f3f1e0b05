"""What values a part declares its parameters to be, checked and in words."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from superarm.core.display import shorten
from superarm.core.errors import SpecError

from .catalogue import is_registered

_NoneType = type(None)
_INTEGERS = (int, np.integer)
_LARGEST_INTEGER = 2**63 - 1
_FLOATS = (int, np.integer, float, np.floating)
_LARGEST_FLOAT = sys.float_info.max

_WORDS: dict[type, str] = {
    float: "a number",
    int: "a whole number",
    bool: "true or false",
    str: "text",
    _NoneType: "left out",
}
_OPTIONAL = " (optional)"  # follows the kind of a parameter that may be None
_PLURALS: dict[type, str] = {
    float: "numbers",
    int: "whole numbers",
    str: "text",
}


@functools.cache  # looking them up takes longer than building most parts
def kinds_of(part: Callable[..., Any]) -> dict[str, Any]:
    """The types that a class or function declares for its parameters.

    Args:
        part: The class or function.
    """
    declares_in_init = inspect.isclass(part) and not dataclasses.is_dataclass(part)
    try:
        return get_type_hints(part.__init__ if declares_in_init else part)
    except NameError:
        # A part of the user's own may import its types for type checkers only.
        return {}


def require_kind(value: Any, kind: Any, name: str) -> None:
    """Raise an error that calls ``value`` by ``name`` unless it is of the declared ``kind``.

    Args:
        value: What the user wrote.
        kind: The declared type.
        name: What the error calls the value.

    >>> require_kind("0.5", float, "noise_scale")
    Traceback (most recent call last):
    superarm.core.errors.SpecError: noise_scale must be a number, got '0.5'
    """
    if _is_kind(value, kind):
        return
    too_large = type(value) is int and _is_kind(0, kind)
    requirement = "smaller" if too_large else in_words(kind).removesuffix(_OPTIONAL)
    raise SpecError(f"{name} must be {requirement}, got {shorten(value, 80)}")


def in_words(kind: Any) -> str:  # noqa: PLR0911 (one for each kind)
    """What to call values of a declared type, such as "a list of numbers".

    Args:
        kind: The declared type.
    """
    origin = get_origin(kind)
    arguments = get_args(kind)
    if origin in (Union, UnionType):
        return _union_in_words(arguments)
    if origin is Literal:
        choices = ", ".join(map(repr, arguments))
        return f"one of {choices}" if len(arguments) > 1 else choices
    if origin in (tuple, Sequence):
        return _list_in_words(arguments[0])
    if origin is Mapping:
        return _table_in_words(arguments[1])
    if _is_dataclass_type(kind) and not is_registered(kind):
        return f"a {kind.__name__} (no spec can hold one: pass the object to build())"
    if kind is Any:
        return "anything"
    if origin is np.ndarray:
        return "numbers"
    return _WORDS.get(kind, "a spec: a table with `name`")


def _union_in_words(options: tuple[Any, ...]) -> str:
    words = [in_words(option) for option in options if option is not _NoneType]
    text = " or ".join(dict.fromkeys(words))
    if _NoneType in options:
        text += _OPTIONAL
    return text


def _list_in_words(item_kind: Any) -> str:
    plural = _PLURALS.get(item_kind)
    return f"a list of {plural}" if plural else f"a list, each {in_words(item_kind)}"


def _table_in_words(item_kind: Any) -> str:
    if item_kind is Any:
        return "a table"
    return f"a table, each entry {in_words(item_kind)}"


def _is_kind(value: Any, kind: Any) -> bool:  # noqa: PLR0911 (one for each kind)
    """Whether a value is of the declared kind. Whether it makes sense, the part itself checks."""
    origin = get_origin(kind)
    arguments = get_args(kind)
    if origin in (Union, UnionType):
        return any(_is_kind(value, option) for option in arguments)
    if origin in (tuple, Sequence):
        is_list = isinstance(value, list | tuple)
        return is_list and all(_is_kind(item, arguments[0]) for item in value)
    if origin is Mapping:
        is_table = isinstance(value, Mapping)
        return is_table and all(_is_kind(item, arguments[1]) for item in value.values())
    if kind is int:
        return _is_number(value, _INTEGERS, _LARGEST_INTEGER)
    if kind is float:
        return _is_number(value, _FLOATS, _LARGEST_FLOAT)
    plain_kind = str if origin is Literal else kind
    if plain_kind in _WORDS or _is_dataclass_type(plain_kind):
        return isinstance(value, plain_kind)
    return True


def _is_number(value: Any, number_types: tuple[type, ...], largest: float) -> bool:
    if isinstance(value, bool) or not isinstance(value, number_types):
        return False
    return not (isinstance(value, int) and abs(value) > largest)


def _is_dataclass_type(kind: Any) -> bool:
    return inspect.isclass(kind) and dataclasses.is_dataclass(kind)
