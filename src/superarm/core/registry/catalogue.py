"""The catalogue of parts: which class or function has which name in which family."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from superarm.core.errors import SpecError, UnknownPartError, warn

from .family_table import FAMILIES
from .suggestions import suggestion

_parts: dict[str, dict[str, Callable[..., Any]]] = {family: {} for family in FAMILIES}
# Family and name of every registered class and function.
_names: dict[object, tuple[str, str]] = {}

Part = TypeVar("Part", bound=Callable[..., Any])


def register(family: str, name: str) -> Callable[[Part], Part]:
    """Decorator: make a class or factory buildable as ``name`` of ``family``.

    Args:
        family: The family, such as "kernel".
        name: The name in specs, in small letters with hyphens.
    """
    _require_family(family)

    def add(part: Part) -> Part:
        registered = _parts[family].get(name)
        if registered is not None and registered is not part:
            raise SpecError(f"{family} {name!r} is registered already")
        _parts[family][name] = part
        _names[part] = (family, name)
        protocol = FAMILIES[family].protocol
        if inspect.isclass(part) and protocol is not None:
            _inherit_docs(part, protocol)
        return part

    return add


def _inherit_docs(part: type, protocol: type) -> None:
    """Copy docstrings of the protocol to methods that have none, so that ``help`` is never empty.

    Parts do not derive from their protocol, so Python itself has nowhere to inherit from.
    """
    for name, promise in vars(protocol).items():
        if name.startswith("_") or not inspect.getdoc(promise):
            continue
        method = _defined_attribute(part, name)
        if not inspect.isfunction(method):
            continue
        if inspect.getdoc(getattr(part, name)) is None:
            method.__doc__ = promise.__doc__


def _defined_attribute(part: type, name: str) -> object:
    """The attribute as a class or one of its bases defines it, not bound; ``None`` if none does."""
    for owner in part.__mro__:
        if name in vars(owner):
            return vars(owner)[name]
    return None


def forget_unimported() -> None:
    """Remove the parts of modules that failed to import, which ``sys.modules`` does not contain."""
    for members in _parts.values():
        unimported = [
            name for name, part in members.items() if part.__module__ not in sys.modules
        ]
        for name in unimported:
            part = members.pop(name)
            _names.pop(part, None)


def names(family: str) -> list[str]:
    """Every registered name of a family, sorted.

    Args:
        family: The family, such as "kernel".
    """
    _import_installed()
    return sorted(members_of(family))


def find(family: str, name: Any) -> Callable[..., Any]:
    """The class or function that is registered under this name.

    Args:
        family: The family, such as "kernel".
        name: The name in the family.
    """
    members = members_of(family)
    if not isinstance(name, str) or (name not in members and name not in names(family)):
        advice = suggestion(name, members, command=f"superarm list {family}")
        raise UnknownPartError(
            f"unknown {family} {name!r}; {advice}",
            command_advice=advice,
            plain_advice=suggestion(name, members),
        )
    return members[name]


def parameters_of(family: str, name: str) -> dict[str, Any]:
    """A part's parameters and their defaults (``inspect.Parameter.empty`` where required).

    Args:
        family: The family, such as "kernel".
        name: The name in the family.
    """
    named_kinds = (
        inspect.Parameter.KEYWORD_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
    signature = signature_of(find(family, name))
    return {
        parameter.name: parameter.default
        for parameter in signature.parameters.values()
        if parameter.kind in named_kinds
    }


def signature_of(part: Callable[..., Any]) -> inspect.Signature:
    """The signature of a class or function.

    Args:
        part: The class or function itself.
    """
    # A class whose constructor was replaced has another signature.
    constructor = getattr(part, "__init__", None)
    return _cached_signature(part, constructor)


@functools.cache  # a spec needs it for every part, and again for every state
def _cached_signature(part: Callable[..., Any], _: object) -> inspect.Signature:
    return inspect.signature(part)


def members_of(family: Any) -> dict[str, Callable[..., Any]]:
    """The parts of a family by name, once the packages that contain them are imported.

    Args:
        family: The family, such as "kernel".
    """
    _require_family(family)
    for package in FAMILIES[family].packages:
        importlib.import_module(package)
    return _parts[family]


def family_of(part: object) -> tuple[str, str] | None:
    """The family and the name under which the part's class is registered.

    Args:
        part: An object of the class.
    """
    return _names.get(type(part))


def has_spec(part: object) -> bool:
    """Whether this is a registered part: it has a spec if its own parts have one.

    Args:
        part: An object of any class.
    """
    return type(part) in _names


def is_registered(kind: object) -> bool:
    """Whether a class or function is in the catalogue.

    Args:
        kind: The class or function itself.
    """
    return kind in _names


def _require_family(family: Any) -> None:
    if not isinstance(family, str) or family not in FAMILIES:
        raise SpecError(
            f"unknown family {family!r}; choose one of {', '.join(sorted(FAMILIES))}"
        )


@functools.cache  # once in a process
def _import_installed() -> None:
    """Import the parts of installed packages; warn about those that cannot be imported."""
    from importlib.metadata import entry_points

    for entry in entry_points(group="superarm.parts"):
        try:
            entry.load()
        except Exception as error:
            forget_unimported()
            message = (
                f"the installed parts {entry.value!r} are left out: "
                f"they cannot be imported: {error}"
            )
            warn(message, RuntimeWarning)
