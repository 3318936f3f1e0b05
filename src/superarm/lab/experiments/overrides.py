"""Settings from ``--set``: what a command writes, and the sweeps that come of it."""

from __future__ import annotations

import itertools
import math
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from superarm.core.errors import SpecError
from superarm.core.inputs import as_plain

_MOST_SETTINGS = 10_000  # every one is built before anything runs


def expand_settings(
    overrides: Mapping[str, Any],
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Split settings into fixed ones and the cross product of the swept ones.

    Args:
        overrides: parameters and their values; a list of values is a sweep.

    >>> expand_settings({"delta": 0.1, "xi": [0.01, 0.1]})
    ({'delta': 0.1}, [{'xi': 0.01}, {'xi': 0.1}])
    """
    fixed = {}
    swept = {}
    for key, value in overrides.items():
        if isinstance(value, list):
            swept[key] = value
        else:
            fixed[key] = value
    _check_sweeps(swept)
    combinations = itertools.product(*swept.values())
    return fixed, [dict(zip(swept, values, strict=True)) for values in combinations]


def _check_sweeps(swept: Mapping[str, list[Any]]) -> None:
    for key, values in swept.items():
        if not values:
            raise SpecError(f"setting {key!r} is []; a sweep needs at least one value")
    count = math.prod(len(values) for values in swept.values())
    if count > _MOST_SETTINGS:
        sizes = [f"{len(values):,} values of {key}" for key, values in swept.items()]
        raise SpecError(
            f"a run may have at most {_MOST_SETTINGS:,} settings, got {count:,} "
            f"({' × '.join(sizes)}); sweep fewer values, or split it into several runs"
        )
    for key, values in swept.items():
        if _has_repeats(values):
            raise SpecError(
                f"setting {key!r} is {values!s:.200}: a value is repeated; give each once"
            )


def _has_repeats(values: Sequence[Any]) -> bool:
    """Whether a value occurs twice; values may be tables, which cannot be hashed."""
    return any(value in values[:place] for place, value in enumerate(values))


def parse_overrides(texts: Sequence[str]) -> dict[str, Any]:
    """Every ``key=value`` of a command, with TOML values; a bare word is a string.

    Args:
        texts: what stands after each ``--set``.

    >>> parse_overrides(["lengthscale=[0.1, 0.2]", "source=synthetic"])
    {'lengthscale': [0.1, 0.2], 'source': 'synthetic'}
    """
    overrides: dict[str, Any] = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not key or not value:
            raise SpecError(
                f"--set {text!r}: write key=value, for example --set lengthscale=0.2"
            )
        if key in overrides:
            raise SpecError(
                f"--set {key} is given twice; a list sweeps: --set '{key}=[…, …]'"
            )
        overrides[key] = _parse_value(key, value)
    return overrides


def _parse_value(key: str, text: str) -> Any:
    """One TOML value, or a bare word."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        # Not only bad syntax: also integers of thousands of digits.
        if not _is_bare_word(text):
            raise SpecError(f"--set {key}: {text!r:.60} is not a TOML value") from None
        return text
    if set(parsed) != {"value"}:
        raise SpecError(f"--set {key}: {text!r:.60} is more than one TOML value")
    as_plain(parsed["value"], f"--set {key}")
    return parsed["value"]


def _is_bare_word(text: str) -> bool:
    letters = text.replace("-", "").replace("_", "")
    return letters.isalnum() and not text.isdigit()
