"""Specs: plain data from which parts are built, and the data of a part that exists."""

from __future__ import annotations

import dataclasses
import inspect
from abc import ABC
from collections.abc import Container, Iterable, Mapping
from typing import Any

import numpy as np

from superarm.core.display import Displayable
from superarm.core.errors import SpecError

from .catalogue import (
    family_of,
    find,
    has_spec,
    names,
    parameters_of,
    signature_of,
)
from .family_table import FAMILIES, family_of_parameter
from .kinds import kinds_of, require_kind
from .suggestions import suggestion

# Keys of a spec that are not parameters of the part.
IDENTITY_KEYS = ("family", "name", "foreign")


class HasParameters(Displayable, ABC):
    """A part that reports the parameters it was built from."""

    def parameters(self) -> Mapping[str, Any]:
        """Values, arrays and parts by parameter name, from which an equal part can be built.

        By default, the attributes named like the constructor's parameters.
        """
        return {
            name: getattr(self, name) for name in signature_of(type(self)).parameters
        }

    def _display_fields(self) -> Mapping[str, Any]:
        return self.parameters()


# --- from specs to parts -------------------------------------------------------------------


def build(family: str, spec: Mapping[str, Any] | str, **extra: Any) -> Any:
    """The part that a spec describes.

    Args:
        family: The family of the part, such as "kernel".
        spec: A name, or a table with a name and parameters.
        extra: Parameters that a spec cannot contain, such as a model; the spec overrides them.
    """
    if isinstance(spec, str):
        spec = {"name": spec}
    if not isinstance(spec, Mapping):
        raise SpecError(
            f"a {family} spec is a name or a table with a name, not {spec!r}"
        )
    if "foreign" in spec:
        raise SpecError(
            f"the {family} is of type {spec['foreign']}, which has no spec to build it from; "
            "pass the object itself"
        )
    if "name" not in spec:
        raise SpecError(
            f"a {family} spec needs a name; choose one of {', '.join(names(family))}"
        )
    name = spec["name"]
    part = find(family, name)
    from_spec = built_parameters(spec)
    check_parameters(family, name, from_spec)
    parameters = {**extra, **from_spec}
    missing = [
        key
        for key, default in parameters_of(family, name).items()
        if default is inspect.Parameter.empty and key not in parameters
    ]
    if missing:
        raise SpecError(f"{family} {name!r} needs {', '.join(missing)}")
    return part(**parameters)


def built_parameters(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters in a spec, with nested specs built; objects stay as they are.

    Args:
        spec: A table with a name and parameters.
    """
    parameters = {key: spec[key] for key in spec if key not in IDENTITY_KEYS}
    try:
        return {
            key: _build_nested(value, family_of_parameter(key))
            for key, value in parameters.items()
        }
    except RecursionError:
        raise SpecError("the spec is nested too deeply") from None


def _build_nested(value: Any, family: str | None = None) -> Any:
    """Build specs inside specs: of the family they name, or of the one their parameter implies."""
    if isinstance(value, list):
        return [_build_nested(item, family) for item in value]
    if not isinstance(value, Mapping):
        return value
    family = value.get("family", family)
    if "foreign" in value or (family is not None and "name" in value):
        return build(family or "part", value)
    return {
        key: _build_nested(item, family_of_parameter(key))
        for key, item in value.items()
    }


def check_parameters(
    family: str, name: str, parameters: Mapping[str, Any], besides: Container[str] = ()
) -> None:
    """Refuse parameters that a part does not take, and values of other types than it declares.

    Args:
        family: The family of the part, such as "kernel".
        name: Its name in the family.
        parameters: What a spec contains for it.
        besides: Parameters that the part gets from elsewhere, which a spec must not contain.
    """
    accepted = [key for key in parameters_of(family, name) if key not in besides]
    kinds = kinds_of(find(family, name))
    for key, value in parameters.items():
        if key not in accepted:
            raise _no_parameter(family, name, key, accepted)
        require_kind(value, kinds.get(key, Any), f"{family} {name!r}: {key}")


def _no_parameter(
    family: str, name: str, key: str, accepted: Iterable[str]
) -> SpecError:
    """The error for a parameter that a part does not take."""
    message = f"{family} {name!r} has no parameter {key!r}"
    own_advice = FAMILIES[family].advice.get(key)
    if own_advice is not None:
        return SpecError(f"{message}; {own_advice}")
    command = f"superarm show {family}/{name}"
    advice = suggestion(key, accepted, "it takes", command=command)
    return SpecError(
        f"{message}; {advice}",
        command_advice=advice,
        plain_advice=suggestion(key, accepted, "it takes"),
    )


# --- from parts to specs -------------------------------------------------------------------


def spec_of(part: Any) -> dict[str, Any]:
    """The spec of a part that consists only of registered parts, plain values and arrays.

    Args:
        part: A registered part.
    """
    return _spec(part, strict=True)


def describe(part: Any) -> dict[str, Any]:
    """The part's spec for a state: a part inside it without a spec becomes ``{"foreign": its type}``.

    Args:
        part: Any object.
    """
    return _spec(part, strict=False)


def identity_of(part: Any) -> dict[str, str]:
    """The entries of a spec that identify a part: its name, or the type of one without a spec.

    Args:
        part: Any object.
    """
    entry = family_of(part)
    if entry is not None:
        _, name = entry
        return {"name": name}
    kind = type(part)
    return {"foreign": f"{kind.__module__}.{kind.__qualname__}"}


def stated_parameters(part: Any) -> Mapping[str, Any] | None:
    """The parameters that a part was built from, by name; ``None`` for one that reports none.

    Args:
        part: Any object.
    """
    if isinstance(part, HasParameters):
        return part.parameters()
    if has_spec(part) and dataclasses.is_dataclass(part):
        return {
            field.name: getattr(part, field.name)
            for field in dataclasses.fields(part)
            if field.init
        }
    return None


def plain(value: Any, *, strict: bool) -> Any:  # noqa: PLR0911 (one for each kind)
    """A parameter's value as a spec contains it.

    Args:
        value: A part, a plain value, an array, or a container of these.
        strict: Whether to refuse what has no spec; if not, only its type is recorded.
    """
    entry = family_of(value)
    if entry is not None:
        family, _ = entry
        return {"family": family, **_spec(value, strict=strict)}
    if type(value) is np.ndarray and value.dtype.kind in "biufU":
        view = value.view()
        view.flags.writeable = False
        return view
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [plain(item, strict=strict) for item in value]
    if isinstance(value, Mapping):
        return {str(key): plain(item, strict=strict) for key, item in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if not strict:
        return _spec(value, strict=False)
    raise SpecError(f"a value of type {type(value).__name__} cannot be part of a spec")


def _spec(part: Any, *, strict: bool) -> dict[str, Any]:
    parameters = stated_parameters(part)
    if strict and (not has_spec(part) or parameters is None):
        raise SpecError(
            f"{type(part).__name__} has no JSON spec: only registered parts do; "
            "pass the object itself where it is needed"
        )
    spec: dict[str, Any] = {**identity_of(part)}
    for name, value in (parameters or {}).items():
        spec[name] = plain(value, strict=strict)
    return spec
