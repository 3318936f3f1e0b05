"""Road networks as plain arrays in the bytes of an ``.npz`` file, without pickle.

Arrays that were read go through all checks of a network: a file is never trusted.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superarm.core import Bools, Ints
from superarm.core.errors import InputError
from superarm.roads.energy.junctions import Signal

from .road import LIMITS, TURN_COLUMNS, RoadNetwork

Arrays = dict[str, NDArray[Any]]

_FLOAT_FIELDS = ("junctions", "length", "speed")
_NUMBER_FIELDS = ("tail", "head", "connections")
_OPTIONAL_FIELDS = ("lon_lat", *TURN_COLUMNS)


def pack_network(network: RoadNetwork, key: str) -> bytes:
    """Return a network as the bytes of an ``.npz`` file.

    Args:
        network: The network; its name is left out.
        key: A text to store beside it.
    """
    arrays: Arrays = {
        "junctions": network.junctions,
        "tail": network.tail,
        "head": network.head,
        "length": network.length,
        "speed": network.speed,
        "connections": network.connections,
    }
    if network.lon_lat is not None:
        arrays["lon_lat"] = network.lon_lat
    arrays |= network.known_turn_columns()
    edges = len(network.edge_ids)
    turns = len(network.connections)
    arrays |= _pack_permits("permits", network.permits, edges)
    arrays |= _pack_permits("turn_permits", network.turn_permits, turns)
    arrays |= _pack_texts("junction_ids", network.junction_ids)
    arrays |= _pack_texts("edge_ids", network.edge_ids)
    if network.street_names is not None:
        arrays |= _pack_texts("street_names", network.street_names)
    if network.shapes is not None:
        counts = [len(shape) for shape in network.shapes]
        arrays["shape_counts"] = np.array(counts, dtype=np.int64)
        arrays["shapes"] = np.concatenate([*network.shapes, np.empty((0, 2))])
    arrays |= _pack_signals(network.signals)
    arrays["key"] = np.frombuffer(key.encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


@contextmanager
def _input_errors() -> Iterator[None]:
    """Whatever strange arrays raise becomes an ``InputError``."""
    try:
        yield
    except InputError:
        raise
    except KeyError as error:
        raise InputError(f"its array {error} is missing") from error
    except (TypeError, ValueError, IndexError, OverflowError) as error:
        raise InputError(f"its arrays are not those of a network: {error}") from error


@_input_errors()
def unpack_network(arrays: Arrays, name: str) -> RoadNetwork:
    """Return the network of these arrays, or raise ``InputError`` if they are none.

    Args:
        arrays: The arrays of :func:`pack_network`.
        name: The network's name.
    """
    parts: dict[str, Any] = {}
    for field in (*_FLOAT_FIELDS, *_NUMBER_FIELDS):
        parts[field] = arrays[field]
    for field in _OPTIONAL_FIELDS:
        if field in arrays:
            parts[field] = arrays[field]
    for field, values in parts.items():
        kind = np.intp if field in _NUMBER_FIELDS else np.float64
        if values.dtype != kind:
            raise InputError(f"{field} holds {values.dtype} values")
    if "shapes" in arrays:
        parts["shapes"] = _unpack_shapes(arrays)
    if "street_names" in arrays:
        parts["street_names"] = _unpack_texts(arrays, "street_names")
    return RoadNetwork(
        name=name,
        junction_ids=_unpack_texts(arrays, "junction_ids"),
        edge_ids=_unpack_texts(arrays, "edge_ids"),
        permits=_unpack_permits(arrays, "permits"),
        turn_permits=_unpack_permits(arrays, "turn_permits"),
        signals=_unpack_signals(arrays),
        **parts,
    )


# --- permits -------------------------------------------------------------------------------


def _pack_permits(name: str, permits: Mapping[str, Bools], count: int) -> Arrays:
    rows = list(permits.values())
    flags = np.array(rows, dtype=np.bool_)
    arrays = _pack_texts(f"{name}_classes", permits)
    arrays[name] = flags.reshape(len(rows), count)
    return arrays


def _unpack_permits(arrays: Arrays, name: str) -> dict[str, Bools]:
    flags = arrays[name]
    if flags.dtype != np.bool_ or flags.ndim != 2:
        raise InputError(f"{name} are not true or false, class by class")
    classes = _unpack_texts(arrays, f"{name}_classes")
    return dict(zip(classes, flags, strict=True))


# --- shapes --------------------------------------------------------------------------------


def _unpack_shapes(arrays: Arrays) -> tuple[NDArray[np.float64], ...]:
    points = arrays["shapes"]
    is_float = points.dtype == np.float64
    is_pairs = points.shape[1:] == (2,)
    if not (is_float and is_pairs and np.isfinite(points).all()):
        raise InputError("its shapes are not points")
    counts = arrays["shape_counts"]
    parts = _parts(counts, len(points), least=2)
    return tuple(points[part] for part in parts)


# --- signals -------------------------------------------------------------------------------


def _pack_signals(signals: Mapping[int, Signal]) -> Arrays:
    cycles = []
    offsets = []
    yields = []
    counts = []
    reds: list[tuple[float, float]] = []
    for signal in signals.values():
        cycles.append(signal.cycle)
        offsets.append(signal.offset)
        yields.append(signal.yields)
        counts.append(len(signal.reds))
        reds.extend(signal.reds)
    return {
        "signal_turns": np.array(list(signals), dtype=np.int64),
        "signal_cycle": np.array(cycles, dtype=np.float64),
        "signal_offset": np.array(offsets, dtype=np.float64),
        "signal_yields": np.array(yields, dtype=np.bool_),
        "signal_reds": np.array(counts, dtype=np.int64),
        "reds": np.array(reds, dtype=np.float64).reshape(-1, 2),
    }


def _unpack_signals(arrays: Arrays) -> dict[int, Signal]:
    _check_signals(arrays)
    turns = arrays["signal_turns"].tolist()
    cycles = arrays["signal_cycle"].tolist()
    offsets = arrays["signal_offset"].tolist()
    yielding = arrays["signal_yields"].tolist()
    reds = [(begin, end) for begin, end in arrays["reds"].tolist()]
    parts = _parts(arrays["signal_reds"], len(reds), least=0)
    rows = zip(turns, cycles, offsets, yielding, parts, strict=True)
    signals = {}
    for turn, cycle, offset, yields, part in rows:
        signals[turn] = Signal(cycle, offset, tuple(reds[part]), yields)
    return signals


def _check_signals(arrays: Arrays) -> None:
    turns = arrays["signal_turns"]
    cycle = arrays["signal_cycle"]
    offset = arrays["signal_offset"]
    yields = arrays["signal_yields"]
    reds = arrays["reds"]
    is_numbers = turns.ndim == 1 and turns.dtype == np.int64
    if not is_numbers or len(np.unique(turns)) != len(turns):
        raise InputError("its signals are not of different turns")
    connections = len(arrays["connections"])
    is_turn = (turns >= 0) & (turns < connections)
    if not is_turn.all():
        raise InputError("its signals are not of its turns")
    columns = [(cycle, np.float64), (offset, np.float64), (yields, np.bool_)]
    for column, kind in columns:
        if column.shape != turns.shape or column.dtype != kind:
            raise InputError("its signals are not all described")
    if reds.dtype != np.float64 or reds.shape[1:] != (2,):
        raise InputError("its signals have no times")
    _, most = LIMITS["signal_time"]
    is_possible = (cycle > 0.0) & (cycle <= most)
    is_possible &= np.abs(offset) <= most
    begin, end = reds.T
    is_time = np.abs(reds) <= most
    is_ordered = begin <= end
    if not (is_possible.all() and is_time.all() and is_ordered.all()):
        raise InputError("its signals show red at impossible times")


# --- texts and parts -----------------------------------------------------------------------


def _pack_texts(name: str, words: Iterable[str]) -> Arrays:
    """Return words as the bytes of one text, and how many characters each has."""
    words = list(words)
    text = "".join(words)
    counts = [len(word) for word in words]
    return {
        name: np.frombuffer(text.encode(), dtype=np.uint8),
        f"{name}_counts": np.array(counts, dtype=np.int64),
    }


@_input_errors()
def unpack_text(arrays: Arrays, name: str) -> str:
    """Return the text of an array of bytes, or raise ``InputError`` if it is none."""
    array = arrays[name]
    if array.dtype != np.uint8 or array.ndim != 1:
        raise InputError(f"{name} is no text")
    return array.tobytes().decode()


def _unpack_texts(arrays: Arrays, name: str) -> tuple[str, ...]:
    text = unpack_text(arrays, name)
    counts = arrays[f"{name}_counts"]
    parts = _parts(counts, len(text), least=0)
    return tuple(map(text.__getitem__, parts))


def _parts(counts: Ints, total: int, least: int) -> list[slice]:
    """Return where each of several parts is among all, by how many each has."""
    is_numbers = counts.ndim == 1 and counts.dtype == np.int64
    if not is_numbers or (counts < least).any():
        raise InputError("its parts have no lengths")
    # Before they are added up, which could overflow.
    if (counts > total).any():
        raise InputError("its parts are longer than the whole")
    ends = np.cumsum(counts)
    end = int(ends[-1]) if len(ends) else 0
    if end != total:
        raise InputError("its parts do not make up the whole")
    starts = ends - counts
    return list(map(slice, starts.tolist(), ends.tolist()))
