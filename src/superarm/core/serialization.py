"""Records as JSON and back, exactly: no pickle, and no class is looked up by a name from outside.

=====================  ================================================================
JSON itself            ``None``, bool, int, finite floats, text, lists, dicts with text keys
``{"$float": "nan"}``  a float that is not finite
``{"$tuple": […]}``    a tuple
``{"$dict": [[k, v]]}``  a dict whose keys are not all text
``{"$array": […]}``    a numpy array: dtype, shape, entries in a row
``{"$scalar": […]}``   a numpy number: dtype, value
``{"$record": name}``  a record of the flow, or a registered structure such as ``Trip``
=====================  ================================================================

Specs with arrays go the same way.

>>> import json
>>> text = json.dumps(to_json((1, -0.0, np.array([[2]], dtype=np.int8))))
>>> from_json(json.loads(text))
(1, -0.0, array([[2]], dtype=int8))
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import SpecError, StateError, SuperarmError
from .inputs import as_count, require_type
from .records import Arms, Decision, Feedback, Offer
from .registry import build, family_of, find
from .state import State

MOST_DEPTH = 64
_MOST_BITS = 8192
_MOST_TEXT_BYTES = 1 << 26
_DTYPE = re.compile(r"[<>|](b1|[iu][1248]|f[248]|U[0-9]{1,5})")
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}

Keep = Callable[[NDArray[Any]], str]
"""Puts an array elsewhere and returns the name under which it can be found."""
Find = Callable[[str], NDArray[Any]]


def to_json(value: object, keep: Keep | None = None) -> Any:
    """``value`` as something that ``json.dumps`` takes; ``keep`` may put arrays elsewhere."""
    return _encoded(value, 0, keep)


def from_json(data: object, find: Find | None = None) -> Any:
    """What :func:`to_json` was given, or :class:`StateError` for data that it cannot have made.

    Text arrays in it take 64 MiB together at most; all else is in proportion to the data.
    """
    try:
        return _decoded(data, 0, _Reading(find))
    except (TypeError, ValueError, KeyError, ArithmeticError, SuperarmError) as error:
        if isinstance(error, StateError):
            raise
        raise StateError(f"these data cannot be read: {error}") from error


# --- writing -------------------------------------------------------------------------------


def _encoded(value: Any, depth: int, keep: Keep | None) -> Any:  # noqa: PLR0911 (one for each kind)
    if depth > MOST_DEPTH:
        raise SpecError(
            f"the value is nested more than {MOST_DEPTH} levels deep; make it flatter"
        )
    kind, below = type(value), depth + 1
    if value is None or kind in (bool, str):
        return value
    if kind is int:
        if value.bit_length() > _MOST_BITS:
            raise SpecError(
                f"a number has {value.bit_length()} bits; {_MOST_BITS} is the most"
            )
        return value
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if kind is list:
        return [_encoded(item, below, keep) for item in value]
    if kind is tuple:
        return {"$tuple": [_encoded(item, below, keep) for item in value]}
    if isinstance(value, Mapping):
        if all(type(key) is str and not key.startswith("$") for key in value):
            return {key: _encoded(item, below, keep) for key, item in value.items()}
        return {
            "$dict": [
                [_encoded(each, below, keep) for each in pair] for pair in value.items()
            ]
        }
    if kind is np.ndarray:
        if keep is not None and _DTYPE.fullmatch(value.dtype.str):
            return {"$array": keep(value)}
        return {"$array": [value.dtype.str, list(value.shape), _entries(value)]}
    if isinstance(value, np.generic):
        return {"$scalar": [value.dtype.str, _entries(np.asarray(value))[0]]}
    return _encoded_record(value, below, keep)


def _encoded_record(value: Any, depth: int, keep: Keep | None) -> dict[str, Any]:
    kind: type = type(value)
    name = kind.__name__.lower()
    if _RECORDS.get(name) is not kind:
        family, name = family_of(value) or ("", "")
        if family != "structure" or not is_dataclass(value):
            raise SpecError(
                f"a value of type {kind.__name__} cannot be written as JSON: use numbers, text, "
                'tuples, lists, dicts and arrays, or a frozen dataclass with @register("structure", …)'
            )
    if isinstance(value, Arms):
        held = {"ids": list(value.ids), "features": value.features}
    else:
        held = {
            item.name: getattr(value, item.name) for item in fields(value) if item.init
        }
    return {
        "$record": name,
        **{key: _encoded(item, depth, keep) for key, item in held.items()},
    }


def _entries(array: NDArray[Any]) -> list[Any]:
    if not _DTYPE.fullmatch(array.dtype.str):
        raise SpecError(
            f"an array of {array.dtype} cannot be written as JSON; use numbers or text"
        )
    entries: list[Any] = array.ravel().tolist()
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        return [entry if math.isfinite(entry) else repr(entry) for entry in entries]
    return entries


# --- reading -------------------------------------------------------------------------------


class _Reading:
    """One reading of data: where arrays are found, and how many bytes text arrays may still take."""

    def __init__(self, find: Find | None) -> None:
        self.find, self.text_left = find, _MOST_TEXT_BYTES


def _decoded(data: Any, depth: int, reading: _Reading) -> Any:
    if depth > MOST_DEPTH:
        raise StateError(f"these data are nested more than {MOST_DEPTH} levels deep")
    kind, below = type(data), depth + 1
    if data is None or kind in (bool, int, float, str):
        return data
    if kind is list:
        return [_decoded(item, below, reading) for item in data]
    if kind is not dict:
        raise StateError(
            f"these data hold a value of type {kind.__name__}, which JSON does not have"
        )
    tag = next((key for key in data if type(key) is not str or key.startswith("$")), "")
    if tag == "":
        return {key: _decoded(item, below, reading) for key, item in data.items()}
    if tag == "$record":
        held = {
            key: _decoded(item, below, reading)
            for key, item in data.items()
            if key != tag
        }
        return _decoded_record(data[tag], held)
    if len(data) > 1 or tag not in _TAGS:
        raise StateError(f"these data hold {str(tag)[:60]!r}, which means nothing here")
    return _TAGS[tag](data[tag], below, reading)


def _decoded_tuple(data: Any, depth: int, reading: _Reading) -> tuple[Any, ...]:
    require_type(data, list, "a tuple in these data")
    return tuple(_decoded(item, depth, reading) for item in data)


def _decoded_dict(data: Any, depth: int, reading: _Reading) -> dict[Any, Any]:
    require_type(data, list, "a dict in these data")
    for pair in data:
        require_type(pair, list, "an entry of a dict in these data")
    pairs = [
        (_decoded(key, depth, reading), _decoded(item, depth, reading))
        for key, item in data
    ]
    made = dict(pairs)
    if len(made) < len(pairs):
        raise StateError("a dict in these data has a key twice")
    return made


def _decoded_array(data: Any, depth: int, reading: _Reading) -> NDArray[Any]:
    if reading.find is not None and isinstance(data, str):
        return reading.find(data)
    dtype, shape, entries = data
    if type(dtype) is not str or not _DTYPE.fullmatch(dtype):
        raise StateError(
            f"an array has the dtype {str(dtype)[:60]!r}; it must hold numbers or text"
        )
    require_type(shape, list, "the shape of an array")
    require_type(entries, list, "what an array holds")
    kind = np.dtype(dtype)
    if not all(type(size) is int and size >= 0 for size in shape) or math.prod(
        shape
    ) != len(entries):
        raise StateError(
            f"an array of {len(entries)} entries cannot have the shape {str(shape)[:60]}"
        )
    if kind.kind == "f":
        entries = [
            _NOT_FINITE.get(each, each) if type(each) is str else each
            for each in entries
        ]
    if not all(type(each) in _ENTRIES[kind.kind] for each in entries):
        raise StateError(f"an array of {dtype} holds values of another type")
    if kind.kind in "iu" and entries:
        limits = np.iinfo(kind)
        if min(entries) < limits.min or max(entries) > limits.max:
            raise StateError(f"an array of {dtype} holds a number that does not fit")
    if kind.kind == "U":
        # What is declared, which may be far more than is held.
        reading.text_left -= len(entries) * kind.itemsize
        if reading.text_left < 0:
            raise StateError(
                f"arrays of text in these data take more than {_MOST_TEXT_BYTES} bytes"
            )
        if max(map(len, entries), default=0) * 4 > kind.itemsize:
            raise StateError(f"an array of {dtype} holds longer text")
    with np.errstate(over="raise"):  # a number that does not fit a smaller float
        return np.array(entries, dtype=kind).reshape(shape)


def _decoded_scalar(data: Any, depth: int, reading: _Reading) -> Any:
    dtype, value = data
    return _decoded_array([dtype, [], [value]], depth, reading)[()]


_ENTRIES = {"b": (bool,), "i": (int,), "u": (int,), "f": (float, int), "U": (str,)}
_TAGS: dict[str, Callable[[Any, int, _Reading], Any]] = {
    "$float": lambda data, depth, reading: _NOT_FINITE[data],
    "$tuple": _decoded_tuple,
    "$dict": _decoded_dict,
    "$array": _decoded_array,
    "$scalar": _decoded_scalar,
}


_KINDS: tuple[Callable[..., Any], ...] = (Arms, Offer, Decision, Feedback, State)
_RECORDS = {kind.__name__.lower(): kind for kind in _KINDS}


def _check_record(record: Any, held: Mapping[str, Any]) -> None:
    """What a record takes on trust from those who write Python, but not from data."""
    if isinstance(record, Arms):
        require_type(held["ids"], list, "ids")
    elif isinstance(record, Decision):
        chosen = record.positions
        require_type(held["positions"], np.ndarray, "positions")
        if chosen.min(initial=0) < 0:
            raise StateError("the positions of a decision must be 0 or more")
        for name in ("mean", "std", "desirability"):
            values = getattr(record, name)
            plain = isinstance(values, np.ndarray) and values.dtype.kind in "fiu"
            if values is not None and not (plain and values.shape == chosen.shape):
                raise StateError(
                    f"the {name} of a decision must be one number for each of its arms"
                )
        as_count(record.version, "version", 0)
    elif isinstance(record, State):
        require_type(record.kind, str, "kind")
        as_count(record.schema, "schema", 0)
        kinds = {
            "scalars": object,
            "arrays": np.ndarray,
            "parts": State,
            "spec": object,
        }
        for name, kind in kinds.items():
            table = held.get(name, {})
            if table is not None or name != "spec":
                require_type(table, dict, name)
                for key, value in table.items():
                    require_type(key, str, f"a name in {name}")
                    require_type(value, kind, f"{name}.{key}"[:60])


def _decoded_record(name: Any, held: dict[str, Any]) -> Any:
    if type(name) is not str:
        raise StateError("a record in these data has no name")
    if name in _RECORDS:
        try:
            record = _RECORDS[name](**held)
            _check_record(record, held)
        except (TypeError, ValueError, KeyError) as error:
            raise StateError(
                f"the {name} in these data cannot be read: {error}"
            ) from error
        return record
    try:
        find(
            "structure", name
        )  # the registry looks at installed packages only for what it lacks
    except SpecError:
        told = (
            f"there is no record {name[:60]!r} here; register it as a structure first"
        )
        raise StateError(told) from None
    return build("structure", name, **held)
