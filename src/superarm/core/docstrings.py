"""What docstrings explain: the parameters of classes and functions, from their section ``Args:``."""

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
    described: dict[str, str] = {}
    owners = reversed(part.__mro__) if inspect.isclass(part) else [part]
    for owner in owners:
        own_docstring = (
            vars(owner).get("__doc__") if inspect.isclass(owner) else owner.__doc__
        )
        described.update(_argument_section(own_docstring or ""))
    return described


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


def _argument_section(docstring: str) -> dict[str, str]:
    text = inspect.cleandoc(docstring)
    heading = _HEADING.search(text)
    if heading is None:
        return {}
    section = text[heading.end() :].lstrip("\n").partition("\n\n")[0]
    entries = _ENTRY.split("\n" + section)[1:]
    names = entries[0::2]
    descriptions = entries[1::2]
    return {
        name.lstrip("*"): " ".join(description.split())
        for name, description in zip(names, descriptions, strict=True)
    }
