"""Short texts for records and parts: one line, and in notebooks a small table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from html import escape
from typing import Any

import numpy as np

_LONGEST = 60  # characters of a value
_FEW = 6  # entries of an array that are shown


def shorten(value: object, most: int = _LONGEST) -> str:
    """The beginning of a value's ``repr``: a value from outside may be too large or deep for all of it.

    Args:
        value: Any value.
        most: The most characters.

    >>> shorten([1, 2, 3]), shorten(16**9999)
    ('[1, 2, 3]', 'an int that is too large to show')
    """
    kind = type(value).__name__
    try:
        return f"{value!r:.{most}}"
    except ValueError:
        # Python refuses to write out integers of thousands of digits.
        return f"an {kind} that is too large to show"
    except RecursionError:
        return f"a {kind} that is nested too deeply"


class Displayable:
    """A record or part with a short ``repr``, however much it contains."""

    __slots__ = ()

    def _display_fields(self) -> Mapping[str, Any]:
        """Values to show, by name; ``None`` is left out. By default the fields of a dataclass."""
        record: Any = self
        return {
            item.name: getattr(self, item.name) for item in fields(record) if item.repr
        }

    def _texts(self) -> dict[str, str]:
        return {
            name: _brief(value)
            for name, value in self._display_fields().items()
            if value is not None
        }

    def __repr__(self) -> str:
        arguments = [f"{name}={text}" for name, text in self._texts().items()]
        return f"{type(self).__name__}({', '.join(arguments)})"

    def _repr_html_(self) -> str:
        rows = [
            f"<tr><th>{name}</th><td>{escape(text)}</td></tr>"
            for name, text in self._texts().items()
        ]
        caption = f"<caption>{type(self).__name__}</caption>"
        return f"<table>{caption}{''.join(rows)}</table>"


def _brief(value: Any) -> str:
    if isinstance(value, np.ndarray):
        if value.dtype == np.bool_:
            return f"{np.count_nonzero(value)} of {value.size}"
        if value.ndim != 1 or len(value) > _FEW:
            return f"array of shape {value.shape}"
        return np.array2string(value, precision=4, separator=", ")
    if isinstance(value, Mapping):
        keys = ", ".join(map(str, value))
        text = f"{{{keys}}}"
    else:
        text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
