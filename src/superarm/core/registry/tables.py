"""Tables from TOML and JSON files, checked against the types that they may hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from superarm.core.errors import SpecError

from .kinds import require_kind
from .suggestions import suggestion


def check_table(
    table: Mapping[str, Any],
    kinds: Mapping[str, Any],
    where: str,
    *,
    required: Iterable[str] = (),
    read_elsewhere: Iterable[str] = (),
) -> None:
    """Refuse a table with an unknown key, a value of another type or a key missing.

    Args:
        table: The table.
        kinds: The type of each key's value.
        where: The table's place, with which error messages begin.
        required: Keys that the table must have.
        read_elsewhere: Keys that were valid, but have already been taken out of the table; error
            messages suggest them too.

    >>> check_table({"mas": 1650.0}, {"mass": float, "drag": float}, "van.toml")
    Traceback (most recent call last):
    superarm.core.errors.SpecError: van.toml: unknown key 'mas'; did you mean 'mass'? choose one of drag, mass
    """
    for key, value in table.items():
        if key not in kinds:
            advice = suggestion(key, [*kinds, *read_elsewhere])
            raise SpecError(f"{where}: unknown key {key!r}; {advice}")
        require_kind(value, kinds[key], f"{where}: {key}")
    for key in required:
        if key not in table:
            raise SpecError(f"{where}: {key!r} is missing")
