"""Names of bandits, tenants and tokens: they are part of URLs and of what people type."""

from __future__ import annotations

import re

from superarm.core.errors import InputError

NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
"""The names that are allowed, as a regular expression."""


def require_name(name: object, what: str) -> None:
    """Refuse a name that does not fit a URL.

    Args:
        name: The name.
        what: What it names.
    """
    if not isinstance(name, str) or re.fullmatch(NAME, name) is None:
        raise InputError(
            f"{what} must be 1 to 100 letters, digits, '.', '_' or '-', beginning with a letter or "
            f"digit, got {name!r:.60}"
        )
