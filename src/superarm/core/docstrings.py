"""Descriptions of parameters, from the section ``Args:`` of docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

_HEADING = re.compile(r"^Args:$", re.MULTILINE)
_ENTRY = re.compile(r"^    (\*{0,2}\w+): ", re.MULTILINE)


def parameter_descriptions(part: Callable[..., Any]) -> dict[str, str]:
    """The description of every parameter that a class or function explains.

    A class inherits the descriptions of its bases.

    Args:
        part: The class or function.

    >>> sorted(parameter_descriptions(parameter_descriptions))
    ['part']
    """
    if not inspect.isclass(part):
        return _argument_section(part.__doc__)
    descriptions: dict[str, str] = {}
    for owner in reversed(part.__mro__):
        docstring = vars(owner).get("__doc__")  # its own, not an inherited one
        descriptions.update(_argument_section(docstring))
    return descriptions


def prose(part: object) -> str:
    """The docstring without the section ``Args:`` and without examples.

    Args:
        part: What has the docstring.
    """
    docstring = inspect.getdoc(part) or ""
    paragraphs = docstring.split("\n\n")
    sentences = [
        paragraph
        for paragraph in paragraphs
        if not paragraph.startswith(("Args:", ">>>"))
    ]
    return "\n\n".join(sentences)


def _argument_section(docstring: str | None) -> dict[str, str]:
    text = inspect.cleandoc(docstring or "")
    heading = _HEADING.search(text)
    if heading is None:
        return {}
    after_heading = text[heading.end() :].lstrip("\n")
    section, _, _ = after_heading.partition("\n\n")
    # Text before the first entry, then names and descriptions in turn.
    _, *pieces = _ENTRY.split("\n" + section)
    names = pieces[0::2]
    texts = pieces[1::2]
    descriptions: dict[str, str] = {}
    for name, text in zip(names, texts, strict=True):
        words = text.split()
        descriptions[name.lstrip("*")] = " ".join(words)
    return descriptions
