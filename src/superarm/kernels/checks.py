"""Checks of the fields of kernels, for their ``__post_init__``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from superarm.core.errors import InputError, ShapeError
from superarm.core.inputs import as_count, as_number, as_scale, is_listed

from .base import FIXED, Kernel


def set_positive(
    kernel: Kernel, *names: str, per_column: Sequence[str] = (), or_zero: bool = False
) -> None:
    """Check hyper-parameters and their bounds.

    Args:
        kernel: The kernel.
        *names: Names of its hyper-parameters.
        per_column: Those that may have one number per column.
        or_zero: Whether 0 is allowed.
    """
    for name in names:
        value = getattr(kernel, name)
        label = f"{type(kernel).__name__}.{name}"
        if or_zero and as_number(value, label, 0.0) == 0.0:
            checked: Any = 0.0
        elif name in per_column and is_listed(value):
            checked = _as_scales(value, label)
        else:
            checked = as_scale(value, label)
        object.__setattr__(kernel, name, checked)
        set_bounds(kernel, f"{name}_bounds")


def _as_scales(values: Any, label: str) -> tuple[float, ...]:
    if len(values) == 0:
        raise ShapeError(f"{label} is empty; give a number, or one per column")
    scales = []
    for i, value in enumerate(values):
        scale = as_scale(value, f"{label}[{i}]")
        scales.append(scale)
    return tuple(scales)


def set_bounds(kernel: Kernel, name: str) -> None:
    """Check a field of bounds: 0 < lower ≤ upper, or ``"fixed"``.

    Args:
        kernel: The kernel.
        name: Name of the field.
    """
    value = getattr(kernel, name)
    label = f"{type(kernel).__name__}.{name}"
    if isinstance(value, str) and value == FIXED:
        return
    if not is_listed(value) or len(value) != 2:
        raise InputError(f"{label} is {value!r:.60}; give (lower, upper) or 'fixed'")
    lower = as_scale(value[0], f"{label}[0]")
    upper = as_scale(value[1], f"{label}[1]")
    if lower > upper:
        raise InputError(
            f"{label} is ({lower:g}, {upper:g}); the lower one comes first"
        )
    object.__setattr__(kernel, name, (lower, upper))


def set_columns(kernel: Kernel) -> None:
    """Check the field ``columns``.

    Args:
        kernel: The kernel.
    """
    value: Any = kernel.columns
    if value is None:
        return
    label = f"{type(kernel).__name__}.columns"
    columns = tuple(value) if is_listed(value) else (value,)
    if not columns:
        raise InputError(f"{label} is empty; name at least one column")
    checked = tuple(as_count(column, label, 0) for column in columns)
    if len(set(checked)) != len(checked):
        raise InputError(f"{label} names a column twice: {list(checked)}")
    object.__setattr__(kernel, "columns", checked)
