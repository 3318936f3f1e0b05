"""The works that users meet, by title and year; :file:`docs/refs.bib` has the rest of each entry."""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files

_TITLES = tomllib.loads(
    files(__package__).joinpath("papers.toml").read_text(encoding="utf-8")
)


def spelled_out(text: str) -> str:
    """Keys of papers in a docstring replaced by their titles.

    >>> spelled_out("Improved GP-UCB [chowdhury2017kernelized, Algorithm 1].")
    'Improved GP-UCB [On Kernelized Multi-armed Bandits (2017), Algorithm 1].'
    """
    return re.sub(
        r"\b[a-z]+\d{4}[a-z]+\b", lambda found: _TITLES.get(found[0], found[0]), text
    )
