"""Frozen records of arrays: checked once, then read-only."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from superarm.core.errors import InputError, ShapeError


class Rebuildable:
    """A dataclass whose copies and pickles are built from the same values, checked and frozen."""

    def __reduce__(self) -> Any:
        record: Any = self
        values = {}
        for item in fields(record):
            if item.init:
                value = getattr(self, item.name)
                if isinstance(value, Mapping):
                    # A read-only view of a mapping cannot be pickled.
                    value = dict(value)
                values[item.name] = value
        return _build, (type(self), values)


def _build(kind: Callable[..., Any], values: Mapping[str, Any]) -> Any:
    return kind(**values)


def set_fields(record: object, **values: object) -> None:
    """Set fields of a frozen dataclass while it is built."""
    for name, value in values.items():
        object.__setattr__(record, name, value)


def freeze(values: Any, kind: Any, shape: tuple[int, ...], name: str) -> Any:
    """Return a read-only copy of an array, or raise an error if it is not one.

    Args:
        values: The array, or lists of numbers.
        kind: The type of its values: ``np.float64``, ``np.intp`` or ``np.bool_``.
        shape: The shape that it must have.
        name: What errors call it.
    """
    try:
        array = np.asarray(values)
    except ValueError:
        raise ShapeError(
            f"{name} must have shape {shape}, got rows of different lengths"
        ) from None
    if kind is np.float64 and array.size and array.dtype.kind not in "biuf":
        raise InputError(f"{name} must hold numbers, not {array.dtype} values")
    if kind is np.intp and array.size and array.dtype.kind not in "iu":
        raise InputError(f"{name} must hold whole numbers, not {array.dtype} values")
    copy = np.array(array, dtype=kind)
    is_empty = copy.size == 0 and math.prod(shape) == 0
    if is_empty:  # an empty list has one axis
        copy = copy.reshape(shape)
    if copy.shape != shape:
        raise ShapeError(f"{name} must have shape {shape}, got {copy.shape}")
    copy.flags.writeable = False
    return copy
