"""Docstrings explain every parameter of a part, and every public name has one."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

import superarm
from superarm.core.docstrings import parameter_descriptions, prose
from superarm.core.registry import families, find, names, parameters_of

# Before any test registers parts of its own.
PARTS = {family: names(family) for family in families()}


class Base:
    """A base.

    Args:
        first: The first
            of two.
        second: Replaced below.
    """


class Derived(Base):
    """A class.

    It has sentences.

    Args:
        second: The second, "a: b".
        third: The third.

    >>> Derived.__name__
    'Derived'
    """


def test_descriptions_are_inherited_and_joined() -> None:
    assert parameter_descriptions(Derived) == {
        "first": "The first of two.",
        "second": 'The second, "a: b".',
        "third": "The third.",
    }
    assert prose(Derived) == "A class.\n\nIt has sentences."
    assert parameter_descriptions(lambda: None) == {}


def _takes_any(*values: int, **options: int) -> None:
    """Take anything.

    Args:
        *values: Some values.
        **options: Some options.
    """


def test_stars_are_not_part_of_a_name() -> None:
    assert parameter_descriptions(_takes_any) == {
        "values": "Some values.",
        "options": "Some options.",
    }


@pytest.mark.parametrize("family", PARTS)
def test_every_parameter_of_a_part_is_described(family: str) -> None:
    for name in PARTS[family]:
        part = find(family, name)
        if not part.__module__.startswith("superarm."):
            continue  # another test in this process registered it
        described = parameter_descriptions(part)
        missing = [
            parameter
            for parameter in parameters_of(family, name)
            if parameter not in described
        ]
        assert not missing, (
            f"{part.__module__}.{part.__qualname__} does not describe {missing}"
        )


def public_members() -> Iterator[tuple[str, Any]]:
    for info in pkgutil.walk_packages(superarm.__path__, "superarm."):
        if any(word.startswith("_") for word in info.name.split(".")):
            continue
        try:
            module = importlib.import_module(info.name)
        except ImportError:  # an extra is not installed
            continue
        for name, member in vars(module).items():
            own = getattr(member, "__module__", None) == info.name
            if (
                own
                and not name.startswith("_")
                and (inspect.isclass(member) or inspect.isfunction(member))
            ):
                yield f"{info.name}.{name}", member


def test_every_public_class_and_function_has_a_docstring() -> None:
    assert not [name for name, member in public_members() if not inspect.getdoc(member)]
