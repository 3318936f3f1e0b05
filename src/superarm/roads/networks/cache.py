"""Networks that were read once, kept beside their files.

Reading a network takes as long as all else that a route needs, and converting a map from OpenStreetMap
far longer. So what was read of ``town.net.xml`` is kept in ``.town.net.xml.superarm.npz`` in the same
folder, and used as long as file, options and version are the same.

- *Found by content*: the SHA-256 of the file, with the reader's options and the version of superarm. A
  file that changes while it is read is not kept.
- *Never trusted*: plain arrays without pickle, none larger than the cache's own file, which may have at
  most 100 times the size of the network's. They go through all checks of a network. Only a regular
  file is opened, and only one that belongs to the user or to the owner of the network. What is damaged,
  old or strange is ignored, and written anew.
- *Never in the way*: it is written whole or not at all, and where it cannot be written, it is not.

``SUPERARM_CACHE=0`` in the environment, or ``read_network(…, cache=False)``, neither reads nor writes.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from superarm._version import __version__
from superarm.core import Bools, Ints
from superarm.core.compressed import read_npz
from superarm.core.errors import InputError
from superarm.roads.energy.junctions import Signal

from .road import LIMITS, TURN_COLUMNS, RoadNetwork

Arrays = dict[str, NDArray[Any]]

_FORMAT = 1  # raise it when readers read otherwise, or arrays mean something else
_GROWTH, _SMALL = (
    100,
    1 << 26,
)  # how many times the network's size a cache may have; or 64 MiB
_LARGEST = (
    1 << 33
)  # bytes of a network's file: 8 GiB, beyond which its content is not compared
_LEAST_EDGES = 1000  # a network of fewer is read in no time
_CHUNK = 1 << 20
_PLAIN = ("junctions", "tail", "head", "length", "speed", "connections")
_NUMBERS = ("tail", "head", "connections")
_OPTIONAL = ("lon_lat", *TURN_COLUMNS)
_OF_SIGNALS = (
    "signal_turns",
    "signal_cycle",
    "signal_offset",
    "signal_yields",
    "signal_reds",
)


def cached(
    path: Path,
    read: Callable[[], RoadNetwork],
    *,
    name: str,
    options: Mapping[str, Any],
    variant: str = "",
    least_edges: int = _LEAST_EDGES,
    wanted: bool | None = None,
) -> RoadNetwork:
    """The network in a file: from its cache, or else as ``read`` reads it, and then kept.

    Args:
        path: the network's file.
        read: reads it anew.
        name: of the network, which a cache does not hold.
        options: all that reading depends on beside the file, as JSON.
        variant: part of the cache's name where one file is read in several ways.
        least_edges: networks of fewer edges are not kept.
        wanted: whether a cache is read and written; ``None``: unless ``SUPERARM_CACHE`` is 0.
    """
    if wanted is None:
        wanted = os.environ.get("SUPERARM_CACHE", "1") != "0"
    if not wanted or not path.is_file() or path.stat().st_size > _LARGEST:
        return read()
    content = _digest(path)
    key = json.dumps(
        {
            "format": _FORMAT,
            "superarm": __version__,
            "content": content,
            "options": dict(options),
        },
        sort_keys=True,
    )
    place = cache_place(path, variant)
    found = _found(place, path, key, name)
    if found is not None:
        return found
    network = read()
    if len(network.edge_ids) >= least_edges and os.access(path.parent, os.W_OK):
        try:
            if _digest(path) == content:
                _write(place, _packed(network, key))
        except (
            OSError,
            ValueError,
        ):  # a full disk, or an id that is no text: then there is no cache
            pass
    return network


def cache_place(path: Path, variant: str = "") -> Path:
    """Where a network that was read is kept."""
    return path.with_name(f".{path.name}{variant and f'.{variant}'}.superarm.npz")


def _digest(path: Path) -> str:
    digest = sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _write(place: Path, data: bytes) -> None:
    """Whole or not at all. A link in its place is replaced, and what it leads to is not touched."""
    temporary = place.with_name(f"{place.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
        os.replace(temporary, place)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def _found(place: Path, path: Path, key: str, name: str) -> RoadNetwork | None:
    """What is kept for this key, if there is something and it is a network."""
    try:
        with _opened(place, path) as file:
            arrays = read_npz(file)
            if _text(arrays, "key") != key:
                return None
            return _unpacked(arrays, name)
    except (InputError, OSError, ValueError, KeyError, TypeError, OverflowError):
        return None


def _opened(place: Path, path: Path) -> BinaryIO:
    """A regular file of ours, or of the network's owner, of a size that such a cache can have."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    handle = os.open(place, flags | getattr(os, "O_BINARY", 0))
    file = os.fdopen(handle, "rb")
    try:
        facts, source = os.fstat(handle), path.stat()
        if not stat.S_ISREG(facts.st_mode):
            raise InputError("it is not a regular file")
        if hasattr(os, "geteuid") and facts.st_uid not in (os.geteuid(), source.st_uid):
            raise InputError("it belongs to somebody else")
        if facts.st_size > max(_SMALL, _GROWTH * source.st_size):
            raise InputError("it is far too large")
    except BaseException:
        file.close()
        raise
    return file


# --- as arrays -----------------------------------------------------------------------------


def _packed(network: RoadNetwork, key: str) -> bytes:
    arrays: Arrays = {name: getattr(network, name) for name in _PLAIN}
    arrays |= {
        name: getattr(network, name)
        for name in _OPTIONAL
        if getattr(network, name) is not None
    }
    for name in ("permits", "turn_permits"):
        flags: Mapping[str, Bools] = getattr(network, name)
        arrays |= _as_text(f"{name}_classes", flags)
        count = len(network.edge_ids) if name == "permits" else len(network.connections)
        arrays[name] = np.array(list(flags.values()), dtype=np.bool_).reshape(
            len(flags), count
        )
    arrays |= _as_text("junction_ids", network.junction_ids)
    arrays |= _as_text("edge_ids", network.edge_ids)
    if network.street_names is not None:
        arrays |= _as_text("street_names", network.street_names)
    if network.shapes is not None:
        arrays["shape_counts"] = np.array(
            [len(shape) for shape in network.shapes], dtype=np.int64
        )
        arrays["shapes"] = np.concatenate([*network.shapes, np.empty((0, 2))])
    signals = network.signals.values()
    reds = [red for signal in signals for red in signal.reds]
    arrays["signal_turns"] = np.array(list(network.signals), dtype=np.int64)
    arrays["signal_cycle"] = np.array(
        [signal.cycle for signal in signals], dtype=np.float64
    )
    arrays["signal_offset"] = np.array(
        [signal.offset for signal in signals], dtype=np.float64
    )
    arrays["signal_yields"] = np.array(
        [signal.yields for signal in signals], dtype=np.bool_
    )
    arrays["signal_reds"] = np.array(
        [len(signal.reds) for signal in signals], dtype=np.int64
    )
    arrays["reds"] = np.array(reds, dtype=np.float64).reshape(-1, 2)
    arrays["key"] = np.frombuffer(key.encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _unpacked(arrays: Arrays, name: str) -> RoadNetwork:
    """The network of these arrays, checked as any other; an error if they are none."""
    parts: dict[str, Any] = {each: arrays[each] for each in _PLAIN}
    parts |= {each: arrays[each] for each in _OPTIONAL if each in arrays}
    for each, values in parts.items():
        if values.dtype != (np.intp if each in _NUMBERS else np.float64):
            raise InputError(f"{each} holds {values.dtype} values")
    for each in ("permits", "turn_permits"):
        if arrays[each].dtype != np.bool_ or arrays[each].ndim != 2:
            raise InputError(f"{each} are not true or false, class by class")
        parts[each] = dict(
            zip(_texts(arrays, f"{each}_classes"), arrays[each], strict=True)
        )
    return RoadNetwork(
        name=name,
        junction_ids=_texts(arrays, "junction_ids"),
        edge_ids=_texts(arrays, "edge_ids"),
        **parts,
        shapes=_shapes(arrays) if "shapes" in arrays else None,
        signals=_signals(arrays),
        street_names=_texts(arrays, "street_names")
        if "street_names" in arrays
        else None,
    )


def _shapes(arrays: Arrays) -> tuple[NDArray[np.float64], ...]:
    points, counts = arrays["shapes"], arrays["shape_counts"]
    if (
        points.dtype != np.float64
        or points.shape[1:] != (2,)
        or not np.isfinite(points).all()
    ):
        raise InputError("its shapes are not points")
    return tuple(
        points[begin:end] for begin, end in _stretches(counts, len(points), least=2)
    )


def _signals(arrays: Arrays) -> dict[int, Signal]:
    turns, cycle, offset, yields, counts = (arrays[each] for each in _OF_SIGNALS)
    reds = arrays["reds"]
    if not (
        turns.ndim == 1
        and turns.dtype == np.int64
        and len(np.unique(turns)) == len(turns)
    ):
        raise InputError("its signals are not of different turns")
    if len(turns) and not (
        turns.min() >= 0 and turns.max() < len(arrays["connections"])
    ):
        raise InputError("its signals are not of its turns")
    kinds = [(cycle, np.float64), (offset, np.float64), (yields, np.bool_)]
    if any(each.shape != turns.shape or each.dtype != kind for each, kind in kinds):
        raise InputError("its signals are not all described")
    if reds.dtype != np.float64 or reds.shape[1:] != (2,):
        raise InputError("its signals have no times")
    most = LIMITS["place"][1]
    good = (cycle > 0.0) & (cycle <= most) & (np.abs(offset) <= most)
    if not (
        good.all() and (np.abs(reds) <= most).all() and (reds[:, 0] <= reds[:, 1]).all()
    ):
        raise InputError("its signals show red at impossible times")
    times: list[list[float]] = reds.tolist()
    stretches = _stretches(counts, len(reds), least=0)
    return {
        turn: Signal(cycle, offset, tuple((a, b) for a, b in times[begin:end]), yields)
        for turn, cycle, offset, yields, (begin, end) in zip(
            turns.tolist(),
            cycle.tolist(),
            offset.tolist(),
            yields.tolist(),
            stretches,
            strict=True,
        )
    }


def _stretches(counts: Ints, total: int, least: int) -> list[tuple[int, int]]:
    """Where each of several parts begins and ends among all, by how many each has."""
    if (
        counts.ndim != 1
        or counts.dtype != np.int64
        or (len(counts) and counts.min() < least)
    ):
        raise InputError("its parts have no lengths")
    if len(counts) and counts.max() > total:
        raise InputError("its parts are longer than the whole")
    ends = np.cumsum(counts)
    if (int(ends[-1]) if len(ends) else 0) != total:
        raise InputError("its parts do not make up the whole")
    return list(zip((ends - counts).tolist(), ends.tolist(), strict=True))


def _as_text(name: str, words: Iterable[str]) -> Arrays:
    """Words as the bytes of one text, and how many characters each has."""
    words = list(words)
    return {
        name: np.frombuffer("".join(words).encode(), dtype=np.uint8),
        f"{name}_counts": np.array([len(word) for word in words], dtype=np.int64),
    }


def _text(arrays: Arrays, name: str) -> str:
    if arrays[name].dtype != np.uint8 or arrays[name].ndim != 1:
        raise InputError(f"{name} is no text")
    return arrays[name].tobytes().decode()


def _texts(arrays: Arrays, name: str) -> tuple[str, ...]:
    text: Sequence[Any] = _text(arrays, name)
    stretches = _stretches(arrays[f"{name}_counts"], len(text), least=0)
    return tuple(str(text[begin:end]) for begin, end in stretches)
