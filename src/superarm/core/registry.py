"""Parts by name: one registry of plain JSON specs for TOML files, command line and service.

A spec is a mapping ``{"name": …, parameter: value, …}``; parameters may themselves be specs.

>>> kernel = build("kernel", {"name": "squared-exponential", "lengthscale": 0.2})
>>> spec_of(kernel)["lengthscale"]
0.2

A part joins with a decorator on a frozen dataclass or on a factory function::

    @register("rule", "greedy")
    @dataclass(frozen=True, kw_only=True)
    class Greedy: ...

A part that is no such dataclass, or is made of other things than its fields, is :class:`HasParameters` and
states its parameters itself. Specs hold plain JSON and numpy arrays; ``superarm.core.serialization``
turns arrays
into JSON and back. A part that is not registered (a function, a kernel of scikit-learn) has no spec:
:func:`describe` names its type instead.

Nothing is ever imported by a name that comes from outside: packages that fill families are listed here.
Further parts come from what the user imports, and from installed packages with an entry point in the
group ``superarm.parts``, which are looked at when parts are listed or a name is not known.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib
import inspect
import sys
from abc import ABC
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from types import UnionType
from typing import (
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from .display import Displayable
from .errors import SpecError, warn
from .protocols import (
    Oracle,
    Policy,
    Posterior,
    Problem,
    Reward,
    Rule,
    Schedule,
    SwitchingCost,
)


class _Family(NamedTuple):
    """A kind of part."""

    description: str
    packages: tuple[str, ...]  # import them, and all parts of the family are registered
    protocol: type | None = None  # what its parts promise


_FAMILIES: dict[str, _Family] = {
    "kernel": _Family(
        "how similar two arms are: the covariance of the Gaussian process",
        ("superarm.kernels",),
    ),
    "network": _Family(
        "graphs for kernels and oracles",
        ("superarm.core.graphs",),
    ),
    "mean": _Family(
        "what is believed about an arm before anything is seen",
        ("superarm.models", "superarm.roads.energy"),
    ),
    "gain": _Family(
        "how fast the information gain γ may grow, for widths and bounds",
        ("superarm.rules.information",),
    ),
    "posterior": _Family(
        "what is believed once rewards have been seen",
        ("superarm.posteriors", "superarm.roads.posterior"),
        Posterior,
    ),
    "schedule": _Family(
        "how wide confidence bounds are in round t",
        ("superarm.rules",),
        Schedule,
    ),
    "rule": _Family(
        "turns a belief into one desirability per arm",
        ("superarm.rules",),
        Rule,
    ),
    "oracle": _Family(
        "finds the best feasible combination of arms",
        ("superarm.oracles",),
        Oracle,
    ),
    "reward": _Family(
        "what a combination is worth, given what its arms yield",
        ("superarm.rewards",),
        Reward,
    ),
    "switching": _Family(
        "what it costs to leave the previous action",
        ("superarm.movement",),
        SwitchingCost,
    ),
    "metric": _Family(
        "what it costs to go from one action to the next",
        ("superarm.movement",),
    ),
    "decision_set": _Family(
        "which of the arms on offer a policy may choose from",
        ("superarm.policies",),
    ),
    "encoding": _Family(
        "how columns of a table become features",
        ("superarm.core.tables",),
    ),
    "score": _Family(
        "desirabilities that are not learned, for baselines",
        ("superarm.policies",),
    ),
    "policy": _Family(
        "decides, learns and decides again: the algorithms, ready to run",
        ("superarm.policies", "superarm.roads.policies"),
        Policy,
    ),
    "problem": _Family(
        "worlds to learn in: they make offers and answer decisions",
        ("superarm.lab.problems", "superarm.roads.problems"),
        Problem,
    ),
    "structure": _Family(
        "what an offer tells the oracle besides its arms",
        ("superarm.oracles", "superarm.core.graphs"),
    ),
    "vehicle": _Family(
        "how much energy roads take",
        ("superarm.roads.energy",),
    ),
    "scales": _Family(
        "how wrong energy models may be, and how much trips differ",
        ("superarm.roads.energy",),
    ),
}
# Which family a nested spec belongs to, by the name of the parameter that holds it.
_FAMILY_OF = {family: family for family in _FAMILIES}
_FAMILY_OF |= {"kernels": "kernel", "gamma": "gain", "successors": "network"}
_ABOUT = ("family", "name", "foreign")  # what a spec says besides its parameters
# Stands for a parameter that one of two specs does not have.
_MISSING = type("missing", (), {"__repr__": lambda self: "missing"})()
_FEW = 8  # so many choices fit into an error
_parts: dict[str, dict[str, Callable[..., Any]]] = {family: {} for family in _FAMILIES}
_names: dict[object, tuple[str, str]] = {}

Part = TypeVar("Part", bound=Callable[..., Any])


class HasParameters(Displayable, ABC):
    """A part that states what it is made of."""

    def parameters(self) -> Mapping[str, Any]:
        """Values, arrays and parts by parameter name: made of these, an equal part comes out.

        Attributes of these names, unless a part says otherwise.
        """
        return {
            name: getattr(self, name)
            for name in inspect.signature(type(self)).parameters
        }

    def _display_fields(self) -> Mapping[str, Any]:
        return self.parameters()


def register(family: str, name: str) -> Callable[[Part], Part]:
    """Decorator: make a class or factory buildable as ``name`` of ``family``."""
    if family not in _FAMILIES:
        raise SpecError(f"unknown family {family!r}; choose one of {sorted(_FAMILIES)}")

    def add(part: Part) -> Part:
        known = _parts[family].get(name)
        if known is not None and known is not part:
            raise SpecError(f"{family} {name!r} is registered already")
        _parts[family][name] = part
        _names[part] = (family, name)
        protocol = _FAMILIES[family].protocol
        if inspect.isclass(part) and protocol is not None:
            _inherit_docs(part, protocol)
        return part

    return add


def _inherit_docs(part: type, protocol: type) -> None:
    """Give methods without a docstring that of the protocol, so that ``help`` is never empty.

    Parts do not derive from their protocol, so Python itself has nowhere to inherit from.
    """
    for name, promised in vars(protocol).items():
        owner = next((each for each in part.__mro__ if name in vars(each)), None)
        if owner is None or name.startswith("_") or not inspect.getdoc(promised):
            continue
        method = vars(owner)[name]
        if inspect.isfunction(method) and inspect.getdoc(getattr(part, name)) is None:
            method.__doc__ = promised.__doc__


def forget_unimported() -> None:
    """Remove what modules registered that failed later; those are not kept in ``sys.modules``."""
    for members in _parts.values():
        for name in [
            each for each, part in members.items() if part.__module__ not in sys.modules
        ]:
            _names.pop(members.pop(name), None)


def families() -> list[str]:
    """The names of all families, sorted."""
    return sorted(_FAMILIES)


def family_description(family: str) -> str:
    """What the parts of a family are for, in a few words.

    Args:
        family: Its name.
    """
    return _FAMILIES[family].description


def names(family: str) -> list[str]:
    """Every registered name of a family, sorted."""
    _import_installed()
    return sorted(_members(family))


def parameters_of(family: str, name: str) -> dict[str, Any]:
    """A part's parameters and their defaults (``inspect.Parameter.empty`` where required)."""
    taken = inspect.signature(find(family, name)).parameters.values()
    named = (
        each
        for each in taken
        if each.kind in (each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD)
    )
    return {each.name: each.default for each in named}


def build(family: str, spec: Mapping[str, Any] | str, **given: Any) -> Any:
    """The part that ``spec`` describes. ``given`` adds parameters that a spec cannot hold."""
    if isinstance(spec, str):
        spec = {"name": spec}
    if not isinstance(spec, Mapping):
        raise SpecError(
            f"a {family} spec is a name or a table with a name, not {spec!r}"
        )
    if "foreign" in spec:
        told = f"the {family} is of type {spec['foreign']}, which has no spec to build it from"
        raise SpecError(f"{told}; pass the object itself")
    if "name" not in spec:
        raise SpecError(f"a {family} spec needs a name; choose one of {names(family)}")
    name = spec["name"]
    part, built = find(family, name), built_parameters(spec)
    check_parameters(family, name, built)
    parameters, empty = {**given, **built}, inspect.Parameter.empty
    needed = (
        key for key, default in parameters_of(family, name).items() if default is empty
    )
    if missing := [key for key in needed if key not in parameters]:
        raise SpecError(f"{family} {name!r} needs {', '.join(missing)}")
    return part(**parameters)


def built_parameters(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters in a spec, with the parts among them built; objects in it stay as they are."""
    own = {key: value for key, value in spec.items() if key not in _ABOUT}
    try:
        return {
            key: _build_nested(value, _FAMILY_OF.get(key)) for key, value in own.items()
        }
    except RecursionError:
        raise SpecError("the spec is nested too deeply") from None


def check_parameters(
    family: str, name: str, parameters: Mapping[str, Any], besides: Container[str] = ()
) -> None:
    """Refuse a parameter that a part does not take, or ``besides`` takes from elsewhere, and values of
    other kinds than it declares."""
    accepted = [key for key in parameters_of(family, name) if key not in besides]
    kinds = kinds_of(find(family, name))
    for key, value in parameters.items():
        if key not in accepted:
            told = suggestion(
                key, accepted, "it takes", command=f"superarm show {family}/{name}"
            )
            raise SpecError(f"{family} {name!r} has no parameter {key!r}; {told}")
        require_kind(value, kinds.get(key, Any), f"{family} {name!r}: {key}")


@functools.cache  # looking them up takes longer than making most parts
def kinds_of(part: Callable[..., Any]) -> dict[str, Any]:
    """What a class or function declares its parameters to be."""
    plain = inspect.isclass(part) and not dataclasses.is_dataclass(part)
    try:
        return get_type_hints(part.__init__ if plain else part)
    except (
        NameError
    ):  # a part that someone added imports its types for type checkers alone
        return {}


def require_kind(value: Any, kind: Any, name: str) -> None:
    """Raise an error that calls ``value`` by ``name`` unless it is of the declared ``kind``.

    >>> require_kind("0.5", float, "noise_scale")
    Traceback (most recent call last):
    superarm.core.errors.SpecError: noise_scale is '0.5'; it must be a number
    """
    if not _is_of(value, kind):
        large = type(value) is int and _is_of(0, kind)
        raise SpecError(
            f"{name} is {value!r:.80}; it must be {'smaller' if large else in_words(kind)}"
        )


_WORDS = {float: "a number", int: "a whole number", bool: "true or false", str: "text"}
_WORDS[type(None)] = "left out"
_MANY = {float: "numbers", int: "whole numbers", str: "text"}


def _is_of(value: Any, kind: Any) -> bool:
    """Whether a value is of the declared kind; whether it is a good one, the part itself judges."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_is_of(value, each) for each in inner)
    if origin in (tuple, Sequence):
        return isinstance(value, list | tuple) and all(
            _is_of(item, inner[0]) for item in value
        )
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            _is_of(item, inner[1]) for item in value.values()
        )
    if kind is int or kind is float:
        numbers = (
            int | np.integer if kind is int else int | np.integer | float | np.floating
        )
        most = 2**63 - 1 if kind is int else sys.float_info.max
        large = isinstance(value, int) and abs(value) > most
        return isinstance(value, numbers) and not isinstance(value, bool) and not large
    plain = str if origin is Literal else kind
    own = inspect.isclass(plain) and dataclasses.is_dataclass(plain)
    return (plain not in _WORDS and not own) or isinstance(value, plain)


def in_words(kind: Any) -> str:  # noqa: PLR0911 (one for each kind)
    """What a declared kind of value is called."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        told = " or ".join(
            dict.fromkeys(in_words(each) for each in inner if each is not type(None))
        )
        return told + ", or left out" * (type(None) in inner)
    if origin is Literal:
        return f"{'one of ' if len(inner) > 1 else ''}{', '.join(map(repr, inner))}"
    if origin in (tuple, Sequence):
        many = _MANY.get(inner[0])
        return f"a list of {many}" if many else f"a list, each {in_words(inner[0])}"
    if origin is Mapping:
        return (
            "a table"
            if inner[1] is Any
            else f"a table, each entry {in_words(inner[1])}"
        )
    if inspect.isclass(kind) and dataclasses.is_dataclass(kind) and kind not in _names:
        return f"a {kind.__name__}, which no spec holds: pass the object to build()"
    if origin is np.ndarray or kind is Any:
        return "anything" if origin is None else "numbers"
    return _WORDS.get(kind, "a table with a name")


def spec_of(part: Any) -> dict[str, Any]:
    """The spec of a part that is made only of registered parts, plain values and arrays."""
    return _spec(part, strict=True)


def describe(part: Any) -> dict[str, Any]:
    """The part's spec for a state: a part inside it that has none becomes ``{"foreign": its type}``."""
    return _spec(part, strict=False)


def has_spec(part: object) -> bool:
    """Whether this is a registered part: it has a spec if its own parts have."""
    return type(part) in _names


def family_of(part: object) -> tuple[str, str] | None:
    """The family and the name under which the part's class is registered."""
    return _names.get(type(part))


def family_of_parameter(name: object) -> str | None:
    """The family that a spec under this name belongs to, where it does not say so itself."""
    return _FAMILY_OF.get(name) if isinstance(name, str) else None


def foreign_parts(spec: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """Every part in a spec that has none, by its place, and its type."""
    if isinstance(spec, Mapping):
        if "foreign" in spec:
            yield where or "class", str(spec["foreign"])
        for key, value in spec.items():
            yield from foreign_parts(value, f"{where}.{key}" if where else str(key))
    elif isinstance(spec, list):
        for at, value in enumerate(spec):
            yield from foreign_parts(value, f"{where}[{at}]")


def difference(here: Any, there: Any, where: str = "") -> str | None:
    """The first difference between a spec and that of a state, in words; ``None`` if there is none."""
    pairs = _pairs(here, there, where)
    if pairs is not None:
        found_in = (difference(ours, theirs, place) for place, ours, theirs in pairs)
        return next((found for found in found_in if found is not None), None)
    alike = type(here) is type(there) or {type(here), type(there)} == {int, float}
    if (
        alike
        and not isinstance(here, np.ndarray)
        and (here == there or repr(here) == repr(there))
    ):
        return None  # NaN is like NaN
    return f"{where or 'it'} is {_value_text(here)} here and {_value_text(there)} in the state"


def contradiction(part: Any, spec: Any) -> str | None:
    """The first parameter of ``part`` that contradicts the spec in a state, in words; or ``None``.

    A parameter that the spec lacks was added after the state was saved, and has its default.
    """
    here = describe(part)
    if isinstance(spec, Mapping) and "family" in spec and type(part) in _names:
        here = {
            "family": _names[type(part)][0],
            **here,
        }  # as where it is a part of another
    return difference(here, completed(spec, part))


def completed(spec: Any, part: Any) -> Any:
    """The spec in a state of ``part``, with the parameters that were added after it was saved.

    They get the defaults of today, in parts of the part, too. A parameter without a default stays
    missing.
    """
    if (
        isinstance(spec, list)
        and isinstance(part, list | tuple)
        and len(spec) == len(part)
    ):
        return [
            completed(item, inside) for item, inside in zip(spec, part, strict=True)
        ]
    if not isinstance(spec, Mapping):
        return spec
    parameters = _parameters(part)
    identity = {key: spec[key] for key in ("name", "foreign") if key in spec}
    if parameters is None or identity != _identity(part):
        return spec
    held = {
        key: completed(value, parameters[key]) if key in parameters else value
        for key, value in spec.items()
    }
    added = [key for key in parameters if key not in spec]
    return {**held, **_defaults(part, parameters, added)} if added else held


def _defaults(
    part: Any, parameters: Mapping[str, Any], names: Sequence[str]
) -> dict[str, Any]:
    """What these parameters of ``part`` would be if they were left out, as a spec holds it."""
    declared = inspect.signature(type(part)).parameters
    optional = [
        name
        for name in names
        if name in declared and declared[name].default is not inspect.Parameter.empty
    ]
    plain = {name: _plain(declared[name].default, strict=False) for name in optional}
    present = {name: _plain(parameters[name], strict=False) for name in optional}
    if difference(present, plain) is None:
        return plain
    # A constructor may replace a default, as ``None`` by a kernel: make a part to find out.
    others = {name: value for name, value in parameters.items() if name not in optional}
    made = _parameters(type(part)(**others)) or {}
    return {name: _plain(made[name], strict=False) for name in optional if name in made}


def unknown_parameters(
    spec: Any, family: str | None = None, where: str = ""
) -> Iterator[str]:
    """Where a spec gives a registered part a parameter that the part does not take."""
    if isinstance(spec, list):
        for at, item in enumerate(spec):
            yield from unknown_parameters(item, family, f"{where}[{at}]")
    if not isinstance(spec, Mapping):
        return
    family, name = spec.get("family", family), spec.get("name")
    taken: Container[str] | None = None
    if isinstance(family, str) and isinstance(name, str) and family in _FAMILIES:
        taken = parameters_of(family, name) if name in _members(family) else None
    for key, value in spec.items():
        place = f"{where}.{key}" if where else str(key)
        if taken is not None and key not in taken and key not in _ABOUT:
            yield place
        yield from unknown_parameters(value, _FAMILY_OF.get(key), place)


def _pairs(here: Any, there: Any, where: str) -> Iterable[tuple[str, Any, Any]] | None:
    """What two specs consist of, by place; ``None`` where they are compared as they are."""
    if isinstance(here, Mapping) and isinstance(there, Mapping):
        keys = [key for key in (*_ABOUT, *here, *there) if key in here or key in there]
        below = [
            where if key in _ABOUT else f"{where}.{key}" if where else str(key)
            for key in keys
        ]
        found = ((here.get(key, _MISSING), there.get(key, _MISSING)) for key in keys)
        return ((place, *pair) for place, pair in zip(below, found, strict=True))
    if isinstance(here, list) and isinstance(there, list) and len(here) == len(there):
        return ((f"{where}[{at}]", here[at], there[at]) for at in range(len(here)))
    arrays = isinstance(here, np.ndarray) and isinstance(there, np.ndarray)
    if arrays and here.shape == there.shape and here.dtype.kind == there.dtype.kind:
        unlike = map(tuple, np.argwhere(here != there).tolist())
        return ((f"{where}{[*at]}", here[at].item(), there[at].item()) for at in unlike)
    return None


def _value_text(value: Any) -> str:
    if isinstance(value, Mapping):
        return repr(value.get("name", value.get("foreign", "a table")))
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    return repr(value) if len(repr(value)) <= 60 else f"{value!r:.57}…"


def _spec(part: Any, *, strict: bool) -> dict[str, Any]:
    kind, entry, parameters = type(part), _names.get(type(part)), _parameters(part)
    if strict and (entry is None or parameters is None):
        told = "only registered parts do; pass the object itself where it is needed"
        raise SpecError(f"{kind.__name__} has no JSON spec: {told}")
    plain = {key: _plain(value, strict) for key, value in (parameters or {}).items()}
    return _identity(part) | plain


def _identity(part: Any) -> dict[str, Any]:
    """What a spec says about a part besides its parameters."""
    kind, entry = type(part), _names.get(type(part))
    return (
        {"name": entry[1]}
        if entry
        else {"foreign": f"{kind.__module__}.{kind.__qualname__}"}
    )


def _parameters(part: Any) -> Mapping[str, Any] | None:
    """What a part was made of, by name; ``None`` for a part that does not say."""
    if isinstance(part, HasParameters):
        return part.parameters()
    if type(part) in _names and dataclasses.is_dataclass(part):
        return {
            item.name: getattr(part, item.name)
            for item in dataclasses.fields(part)
            if item.init
        }
    return None


def _members(family: Any) -> dict[str, Callable[..., Any]]:
    if not isinstance(family, str) or family not in _FAMILIES:
        raise SpecError(f"unknown family {family!r}; choose one of {sorted(_FAMILIES)}")
    for package in _FAMILIES[family].packages:
        importlib.import_module(package)
    return _parts[family]


def find(family: str, name: Any) -> Callable[..., Any]:
    """The class or function that was registered by this name."""
    members = _members(family)
    if not isinstance(name, str) or (name not in members and name not in names(family)):
        told = suggestion(name, members, command=f"superarm list {family}")
        raise SpecError(
            f"unknown {family} {name!r}; {told} (--import FILE.py adds your own)"
        )
    return members[name]


@functools.cache  # once in a process
def _import_installed() -> None:
    """Import what installed packages offer; what cannot be imported is told and left out."""
    from importlib.metadata import entry_points

    for entry in entry_points(group="superarm.parts"):
        try:
            entry.load()
        except Exception as error:
            forget_unimported()
            told = f"the installed parts {entry.value!r} are left out: they cannot be imported: {error}"
            warn(told, RuntimeWarning)


def suggestion(
    word: object,
    choices: Iterable[str],
    otherwise: str = "choose one of",
    *,
    command: str = "",
) -> str:
    """Words to end an error with: the choice that was probably meant, if any, then all of them.

    Of a choice ``group/name`` the name is enough. ``command`` prints the choices where they are many.
    """
    known = sorted(choices)
    forms = [
        (form, each)
        for each in known
        for form in dict.fromkeys((each, each.rpartition("/")[2]))
    ]
    close = difflib.get_close_matches(
        str(word).lower(), [form for form, _ in forms], n=1
    )
    meant = " or ".join(repr(each) for form, each in forms if form in close)
    listed = f"{otherwise} {', '.join(known)}"
    told = f"`{command}` lists them" if command and len(known) > _FEW else listed
    return (f"did you mean {meant}? " if meant else "") + told


def _build_nested(value: Any, family: str | None = None) -> Any:
    """Specs inside specs: of the family they name, or of the one their parameter implies."""
    if isinstance(value, Mapping):
        family = value.get("family", family)
        if "foreign" in value or (family is not None and "name" in value):
            return build(family or "part", value)
        return {
            key: _build_nested(item, _FAMILY_OF.get(key)) for key, item in value.items()
        }
    if isinstance(value, list):
        return [_build_nested(item, family) for item in value]
    return value


def _plain(value: Any, strict: bool) -> Any:  # noqa: PLR0911 (one for each kind)
    if type(value) in _names:
        return {"family": _names[type(value)][0], **_spec(value, strict=strict)}
    if type(value) is np.ndarray and value.dtype.kind in "biufU":
        kept = value.view()
        kept.flags.writeable = False
        return kept
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [_plain(item, strict) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item, strict) for key, item in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if not strict:
        return _spec(value, strict=False)
    raise SpecError(f"a value of type {type(value).__name__} cannot be part of a spec")
