"""Titles and years of cited papers; :file:`docs/refs.bib` has the complete entries."""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files

_TITLES = tomllib.loads(
    files(__package__).joinpath("papers.toml").read_text(encoding="utf-8")
)


def spelled_out(text: str) -> str:
    """Replace keys of papers by their titles.

    Args:
        text: A docstring.

    >>> spelled_out("Improved GP-UCB [chowdhury2017kernelized, Algorithm 1].")
    'Improved GP-UCB [On Kernelized Multi-armed Bandits (2017), Algorithm 1].'
    """

    def title(key: re.Match[str]) -> str:
        return str(_TITLES.get(key[0], key[0]))

    return re.sub(r"\b[a-z]+\d{4}[a-z]+\b", title, text)
