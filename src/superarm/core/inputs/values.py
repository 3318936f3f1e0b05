"""Checks of all other values: choices, types, parts, paths, generators and plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, time
from math import isfinite
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from superarm.core.errors import InputError, SpecError


def require_choice(value: Any, name: str, choices: Sequence[str]) -> None:
    """Refuse a value that is not one of a few texts.

    Args:
        value: What the user chose.
        name: What errors call it.
        choices: The texts to choose from.
    """
    if isinstance(value, str) and value in choices:
        return
    *others, last = map(repr, choices)
    choices_text = f"{', '.join(others)} or {last}" if others else last
    raise InputError(f"{name} is {value!r:.60}; choose {choices_text}")


def as_time_of_day(value: Any, name: str) -> time | datetime:
    """Text as a time, perhaps with a date.

    Python also reads a year or a date without a time: "2025" as 20:25, and a day as its midnight. Such
    text is refused, because nobody means that.

    Args:
        value: HH:MM, HH:MM:SS, or a date and time in ISO 8601.
        name: What errors call it.
    """
    if isinstance(value, str):
        has_date_and_time = len(value) > len("2025-03-14")
        with suppress(ValueError):
            if value[2:3] == ":":
                return time.fromisoformat(value)
            if has_date_and_time:
                return datetime.fromisoformat(value)
    raise InputError(
        f"{name} must be HH:MM, HH:MM:SS, or a date and time such as 2025-03-14T08:30, got {value!r:.60}"
    )


def require_type(value: Any, kind: type, name: str, advice: str = "") -> None:
    """Refuse a value of another type.

    Args:
        value: Any object.
        kind: The type that it must have.
        name: What errors call it.
        advice: The end of the error, such as an example.
    """
    if not isinstance(value, kind):
        raise InputError(
            f"{name} is {value!r:.60}, of type {type(value).__name__}; "
            f"it must be of type {kind.__name__}{advice}"
        )


def require_part(
    part: object,
    protocol: Any,
    name: str,
    *,
    kind: str = "",
    optional: bool = False,
) -> None:
    """Refuse what is no part of a protocol: a class, a bare name, a spec that was not built.

    Args:
        part: Any object.
        protocol: A runtime-checkable protocol, such as ``Oracle``, or ``collections.abc.Callable``.
        name: What errors call the part.
        kind: What such parts are called; ``name`` by default.
        optional: Whether ``None`` is allowed.

    >>> require_part(3, Mapping, "oracle")
    Traceback (most recent call last):
    superarm.core.errors.InputError: oracle must be an oracle with the methods of \
collections.abc.Mapping (in a spec, a table with its name: {"name": …}), got 3
    """
    if part is None and optional:
        return
    if isinstance(part, protocol) and not isinstance(part, type):
        return
    noun = kind or name
    article = "an" if noun[0] in "aeiou" else "a"
    raise InputError(
        f"{name} must be {article} {noun} with the methods of "
        f"{protocol.__module__}.{protocol.__name__} (in a spec, a table with its name: "
        f'{{"name": …}}), got {part!r:.60}'
    )


def as_path(value: Any, name: str) -> Path:
    """Value as the path of a file.

    Args:
        value: A text or a path.
        name: What errors call it.
    """
    if not isinstance(value, str | PathLike) or isinstance(value, bytes):
        raise InputError(
            f"{name} is {value!r:.60}; give the path of a file, as text or a Path"
        )
    text = fspath(value)
    if not isinstance(text, str) or not text or "\0" in text:
        raise InputError(f"{name} is {value!r:.60}; no file can have this path")
    return Path(text)


def as_generator(rng: Any) -> np.random.Generator:
    """The generator itself, once it is known to be one.

    Args:
        rng: A generator of numpy.
    """
    if not isinstance(rng, np.random.Generator):
        raise InputError(
            f"rng is {rng!r:.60}; pass a generator: numpy.random.default_rng(seed)"
        )
    return rng


def as_plain(value: Any, where: str | None = None) -> Any:
    """Value as JSON represents it: numpy's numbers as numbers, infinity and NaN as null.

    Args:
        value: A plain value, an array, or a container of these.
        where: What errors call it. With it, nothing is converted: what JSON lacks is refused.
    """
    if isinstance(value, Mapping):
        table: dict[str, Any] = {}
        for key, item in value.items():
            item_where = f"{where}: {key}" if where else where
            table[str(key)] = as_plain(item, item_where)
        return table
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [as_plain(item, where) for item in value]
    if where is not None:
        _require_plain(value, where)
        return value
    if isinstance(value, np.ndarray | np.generic):
        return as_plain(value.tolist())
    if isinstance(value, float) and not isfinite(value):
        return None
    return value


def _require_plain(value: Any, where: str) -> None:
    if isinstance(value, float) and not isfinite(value):
        raise SpecError(f"{where}: {value!r} is not a finite number")
    if not isinstance(value, str | int | float | None):
        raise SpecError(
            f"{where}: {value!s} is a {type(value).__name__}; use text or numbers"
        )
