"""Advice for names that do not exist: the probable one, and the choices."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MOST_LISTED = 8  # this many choices fit into an error message


def suggestion(
    word: object,
    choices: Iterable[str],
    otherwise: str = "choose one of",
    *,
    command: str = "",
) -> str:
    """The end of an error message: the choice that was probably meant, then all choices.

    Args:
        word: What the user wrote.
        choices: Valid names. For a choice ``group/name``, writing the name suffices for a match.
        otherwise: Words that introduce the list of choices.
        command: A command that prints the choices; named in place of a long list.

    >>> suggestion("matren", ["matern", "linear"])
    "did you mean 'matern'? choose one of linear, matern"
    """
    names = sorted(choices)
    listing = f"{otherwise} {', '.join(names)}"
    if command and len(names) > _MOST_LISTED:
        listing = f"`{command}` lists them"
    meant = _probable_names(str(word).lower(), names)
    if not meant:
        return listing
    return f"did you mean {' or '.join(map(repr, meant))}? {listing}"


def _probable_names(word: str, names: list[str]) -> list[str]:
    """The names that contain the spelling closest to a word, in full or after their last slash."""
    names_by_spelling: dict[str, list[str]] = {}
    for name in names:
        short_name = name.rpartition("/")[2]
        for spelling in dict.fromkeys((name, short_name)):
            names_by_spelling.setdefault(spelling, []).append(name)
    # One spelling, which several groups may share.
    closest = difflib.get_close_matches(word, list(names_by_spelling), n=1)
    if not closest:
        return []
    return names_by_spelling[closest[0]]
