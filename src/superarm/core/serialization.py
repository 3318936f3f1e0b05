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

Specs with arrays are encoded in the same way.

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
"""Levels of nesting."""
_MOST_BITS = 8192  # of an integer
_MOST_TEXT_BYTES = 1 << 26  # of all text arrays together
_DTYPE = re.compile(r"[<>|](b1|[iu][1248]|f[248]|U[0-9]{1,5})")
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}

Store = Callable[[NDArray[Any]], str]
"""Stores an array elsewhere and returns the name by which it can be found."""
Find = Callable[[str], NDArray[Any]]
"""Returns the array that was stored under a name."""


def to_json(value: object, store: Store | None = None) -> Any:
    """Value as something that ``json.dumps`` accepts.

    Args:
        value: A record, a plain value, an array, or a container of these.
        store: Stores arrays elsewhere; by default they become lists.
    """
    return _Encoder(store).encode(value, 0)


def from_json(data: object, find: Find | None = None) -> Any:
    """The value that :func:`to_json` encoded; :class:`StateError` for data that it cannot have written.

    Text arrays take 64 MiB together at most; everything else is in proportion to the data.

    Args:
        data: What ``json.loads`` returned.
        find: Finds arrays that were stored elsewhere.
    """
    try:
        return _Decoder(find).decode(data, 0)
    except (TypeError, ValueError, KeyError, ArithmeticError, SuperarmError) as error:
        if isinstance(error, StateError):
            raise
        raise StateError(f"these data cannot be read: {error}") from error


_RECORD_TYPES: tuple[Callable[..., Any], ...] = (
    Arms,
    Offer,
    Decision,
    Feedback,
    State,
)
_RECORDS = {kind.__name__.lower(): kind for kind in _RECORD_TYPES}


# --- writing -------------------------------------------------------------------------------


class _Encoder:
    """Turns values into JSON."""

    def __init__(self, store: Store | None) -> None:
        self._store = store

    def encode(self, value: Any, depth: int) -> Any:
        if depth > MOST_DEPTH:
            raise SpecError(
                f"the value is nested more than {MOST_DEPTH} levels deep; make it flatter"
            )
        kind = type(value)
        if value is None or kind in (bool, str):
            return value
        if kind is int:
            return _check_size(value)
        if kind is float:
            return value if math.isfinite(value) else {"$float": repr(value)}
        if isinstance(value, np.ndarray | np.generic):
            return self._encode_numbers(value, depth)
        return self._encode_container(value, depth + 1)

    def _encode_container(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is list:
            return [self.encode(item, depth) for item in value]
        if kind is tuple:
            return {"$tuple": [self.encode(item, depth) for item in value]}
        if isinstance(value, Mapping):
            return self._encode_mapping(value, depth)
        return self._encode_record(value, depth)

    def _encode_mapping(self, table: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        if all(type(key) is str and not key.startswith("$") for key in table):
            return {key: self.encode(item, depth) for key, item in table.items()}
        pairs = []
        for key, item in table.items():
            pairs.append([self.encode(key, depth), self.encode(item, depth)])
        return {"$dict": pairs}

    def _encode_numbers(self, value: Any, depth: int) -> dict[str, Any]:
        dtype = value.dtype.str
        if isinstance(value, np.generic):
            entries = _entries(np.asarray(value))
            return {"$scalar": [dtype, entries[0]]}
        if type(value) is not np.ndarray:  # such as a masked array
            return self._encode_record(value, depth + 1)
        if self._store is not None and _DTYPE.fullmatch(dtype):
            return {"$array": self._store(value)}
        shape = list(value.shape)
        return {"$array": [dtype, shape, _entries(value)]}

    def _encode_record(self, value: Any, depth: int) -> dict[str, Any]:
        encoded: dict[str, Any] = {"$record": _record_name(value)}
        for name, item in _record_fields(value).items():
            encoded[name] = self.encode(item, depth)
        return encoded


def _check_size(number: int) -> int:
    bits = number.bit_length()
    if bits > _MOST_BITS:
        raise SpecError(f"a number has {bits} bits; {_MOST_BITS} is the most")
    return number


def _record_name(value: Any) -> str:
    kind: type = type(value)
    name = kind.__name__.lower()
    if _RECORDS.get(name) is kind:
        return name
    family, name = family_of(value) or ("", "")
    if family != "structure" or not is_dataclass(value):
        raise SpecError(
            f"a value of type {kind.__name__} cannot be written as JSON: use numbers, text, "
            'tuples, lists, dicts and arrays, or a frozen dataclass with @register("structure", …)'
        )
    return name


def _record_fields(value: Any) -> dict[str, Any]:
    if isinstance(value, Arms):
        return {"ids": list(value.ids), "features": value.features}
    if isinstance(value, Decision):
        return _decision_fields(value)
    return {item.name: getattr(value, item.name) for item in fields(value) if item.init}


def _decision_fields(decision: Decision) -> dict[str, Any]:
    contents = {item.name: getattr(decision, item.name) for item in fields(decision)}
    if decision.guarantee is None:
        del contents["guarantee"]  # as earlier versions wrote it
    else:
        contents["guarantee"] = tuple(decision.guarantee)
    return contents


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

_ENTRY_TYPES = {
    "b": frozenset({bool}),
    "i": frozenset({int}),
    "u": frozenset({int}),
    "f": frozenset({float, int}),
    "U": frozenset({str}),
}
_BYTES_PER_CHARACTER = 4  # of numpy's text


class _Decoder:
    """Turns JSON into values, and limits the memory that text arrays take."""

    def __init__(self, find: Find | None) -> None:
        self._find = find
        self._text_bytes_left = _MOST_TEXT_BYTES
        self._tags: dict[str, Callable[[Any, int], Any]] = {
            "$float": self._decode_float,
            "$tuple": self._decode_tuple,
            "$dict": self._decode_dict,
            "$array": self._decode_array,
            "$scalar": self._decode_scalar,
        }

    def decode(self, data: Any, depth: int) -> Any:
        if depth > MOST_DEPTH:
            raise StateError(
                f"these data are nested more than {MOST_DEPTH} levels deep"
            )
        kind = type(data)
        if data is None or kind in (bool, int, float, str):
            return data
        if kind is list:
            return [self.decode(item, depth + 1) for item in data]
        if kind is dict:
            return self._decode_table(data, depth + 1)
        raise StateError(
            f"these data hold a value of type {kind.__name__}, which JSON does not have"
        )

    def _decode_table(self, data: dict[Any, Any], depth: int) -> Any:
        tags = [key for key in data if _is_tag(key)]
        if not tags:
            return {key: self.decode(item, depth) for key, item in data.items()}
        tag = tags[0]
        if tag == "$record":
            contents = {
                key: self.decode(item, depth)
                for key, item in data.items()
                if key != tag
            }
            return _decode_record(data[tag], contents)
        if len(data) > 1 or tag not in self._tags:
            raise StateError(
                f"these data hold {str(tag)[:60]!r}, which means nothing here"
            )
        return self._tags[tag](data[tag], depth)

    def _decode_float(self, data: Any, depth: int) -> float:
        return _NOT_FINITE[data]

    def _decode_tuple(self, data: Any, depth: int) -> tuple[Any, ...]:
        require_type(data, list, "a tuple in these data")
        return tuple(self.decode(item, depth) for item in data)

    def _decode_dict(self, data: Any, depth: int) -> dict[Any, Any]:
        require_type(data, list, "a dict in these data")
        for pair in data:
            require_type(pair, list, "an entry of a dict in these data")
        table: dict[Any, Any] = {}
        for key, item in data:
            decoded_key = self.decode(key, depth)
            table[decoded_key] = self.decode(item, depth)
        if len(table) < len(data):
            raise StateError("a dict in these data has a key twice")
        return table

    def _decode_scalar(self, data: Any, depth: int) -> Any:
        dtype, value = data
        return self._decode_array([dtype, [], [value]], depth)[()]

    def _decode_array(self, data: Any, depth: int) -> NDArray[Any]:
        if self._find is not None and isinstance(data, str):
            return self._find(data)
        dtype_name, shape, entries = data
        if type(dtype_name) is not str or not _DTYPE.fullmatch(dtype_name):
            raise StateError(
                f"an array must hold numbers or text, got the dtype {str(dtype_name)[:60]!r}"
            )
        _check_shape(shape, entries)
        dtype = np.dtype(dtype_name)
        if dtype.kind == "f":
            entries = [_decode_entry(entry) for entry in entries]
        entry_types = _ENTRY_TYPES[dtype.kind]
        if not entry_types.issuperset(map(type, entries)):
            raise StateError(f"an array of {dtype_name} holds values of another type")
        if dtype.kind in "iu" and entries:
            limits = np.iinfo(dtype)
            if min(entries) < limits.min or max(entries) > limits.max:
                raise StateError(
                    f"an array of {dtype_name} holds a number that does not fit"
                )
        if dtype.kind == "U":
            self._check_text(entries, dtype)
        with np.errstate(over="raise"):  # a number that does not fit a smaller float
            return np.array(entries, dtype=dtype).reshape(shape)

    def _check_text(self, entries: list[str], dtype: np.dtype[Any]) -> None:
        # What is declared may be far more than the entries need.
        self._text_bytes_left -= len(entries) * dtype.itemsize
        if self._text_bytes_left < 0:
            raise StateError(
                f"arrays of text in these data take more than {_MOST_TEXT_BYTES} bytes"
            )
        longest = max(map(len, entries), default=0)
        if longest * _BYTES_PER_CHARACTER > dtype.itemsize:
            raise StateError(f"an array of {dtype.str} holds longer text")


def _is_tag(key: Any) -> bool:
    return type(key) is not str or key.startswith("$")


def _check_shape(shape: Any, entries: Any) -> None:
    require_type(shape, list, "the shape of an array")
    require_type(entries, list, "what an array holds")
    valid = all(type(size) is int and size >= 0 for size in shape)
    if not valid or math.prod(shape) != len(entries):
        raise StateError(
            f"an array of {len(entries)} entries cannot have the shape {str(shape)[:60]}"
        )


def _decode_entry(entry: Any) -> Any:
    """An entry of an array of floats: one that is not finite is a text."""
    return _NOT_FINITE.get(entry, entry) if type(entry) is str else entry


def _decode_record(name: Any, contents: dict[str, Any]) -> Any:
    if type(name) is not str:
        raise StateError("a record in these data has no name")
    if name in _RECORDS:
        try:
            record = _RECORDS[name](**contents)
            _check_record(record, contents)
        except (TypeError, ValueError, KeyError) as error:
            raise StateError(
                f"the {name} in these data cannot be read: {error}"
            ) from error
        return record
    try:
        # The registry imports installed packages only for names that it lacks.
        find("structure", name)
    except SpecError:
        raise StateError(
            f"there is no record {name[:60]!r} here; register it as a structure first"
        ) from None
    return build("structure", name, **contents)


def _check_record(record: Any, contents: Mapping[str, Any]) -> None:
    """Check what a record trusts Python code to pass correctly, but must not trust data for."""
    if isinstance(record, Arms):
        require_type(contents["ids"], list, "ids")
    elif isinstance(record, Decision):
        _check_decision(record, contents)
    elif isinstance(record, State):
        _check_state(record, contents)


def _check_decision(decision: Decision, contents: Mapping[str, Any]) -> None:
    require_type(contents["positions"], np.ndarray, "positions")
    if decision.positions.min(initial=0) < 0:
        raise StateError("the positions of a decision must be 0 or more")
    numbers_by_name = {
        "mean": decision.mean,
        "std": decision.std,
        "desirability": decision.desirability,
    }
    for name, numbers in numbers_by_name.items():
        if numbers is not None and not _are_numbers(numbers, decision.positions.shape):
            raise StateError(
                f"the {name} of a decision must be one number for each of its arms"
            )
    as_count(decision.version, "version", 0)


def _are_numbers(values: object, shape: tuple[int, ...]) -> bool:
    if not isinstance(values, np.ndarray) or values.shape != shape:
        return False
    return values.dtype.kind in "fiu"


def _check_state(state: State, contents: Mapping[str, Any]) -> None:
    require_type(state.kind, str, "kind")
    as_count(state.schema, "schema", 0)
    _check_entries("scalars", contents.get("scalars", {}), object)
    _check_entries("arrays", contents.get("arrays", {}), np.ndarray)
    _check_entries("parts", contents.get("parts", {}), State)
    spec = contents.get("spec")
    if spec is not None:
        _check_entries("spec", spec, object)


def _check_entries(name: str, table: Any, kind: type) -> None:
    require_type(table, dict, name)
    for key, value in table.items():
        require_type(key, str, f"a name in {name}")
        require_type(value, kind, f"{name}.{key}"[:60])
