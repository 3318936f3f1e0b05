"""States as bytes and files: strict JSON and ``.npz`` without pickles, in one file.

A state contains the spec of its part: :func:`load` rebuilds a policy from its file alone, and the
state of another kernel, rule or oracle is refused (:func:`check_spec`). A restored part equals the
original up to rounding and continues as that would: what draws depend on is saved where it cannot be
recomputed from the observations.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from .compressed import read_npz
from .errors import FileError, InputError, StateError, SuperarmError
from .files import open_locked, read_bytes
from .inputs import as_path, require_type
from .migrations import migrated
from .protocols import Policy
from .registry import (
    build,
    contradiction,
    family_of,
    foreign_parts,
    names,
    unknown_parameters,
)
from .serialization import from_json, to_json
from .state import State

_HEAD = "state.json"
# How many times a file's size its parts may copy from its arrays; policies on roads need 3.
_MOST_COPIES = 32
# 2 GiB: 15,000 arms of which 1,000 were visited take less than a tenth of it.
_MOST = 1 << 31


def state_to_bytes(state: State) -> bytes:
    """The state as bytes; equal states give equal bytes.

    Args:
        state: A state of any part.
    """
    require_type(state, State, "state")
    arrays: dict[str, NDArray[Any]] = {}

    def store(array: NDArray[Any]) -> str:
        """Store an array once under a name made from its content: specs repeat arrays of parts."""
        plain = np.ascontiguousarray(array).reshape(array.shape)
        content = sha256(plain.data)
        content.update(f"{plain.dtype.str} {plain.shape}".encode())
        name = content.hexdigest()
        arrays[name] = plain
        return name

    structure = to_json(state, store)
    text = json.dumps(structure, sort_keys=True, allow_nan=False).encode()
    members = {_HEAD: np.frombuffer(text, dtype=np.uint8)}
    for name in sorted(arrays):
        members[name] = arrays[name]
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **members)
    return buffer.getvalue()


def state_from_bytes(data: bytes) -> State:
    """The state that bytes represent, or :class:`StateError` if they represent none.

    Nothing in them is compressed, so that the state takes no more memory than ``data``.

    Args:
        data: What :func:`state_to_bytes` returned.
    """
    return _parse_state(data, "this")


def _parse_state(data: bytes, label: str) -> State:
    """The state that bytes represent; errors call the bytes ``label``."""
    try:
        arrays = read_npz(io.BytesIO(data))
        text = arrays.pop(_HEAD).tobytes()
        reader = _ArrayReader(arrays, most_bytes=_MOST_COPIES * len(data))
        state = from_json(json.loads(text), reader.find)
        if not isinstance(state, State):
            raise InputError(f"it contains a {type(state).__name__}")
        if unused := sorted(set(arrays) - reader.used):
            raise InputError(
                f"it contains {unused!r:.80}, which nothing in it refers to"
            )
        return state
    except (ValueError, KeyError, RecursionError) as error:
        raise StateError(
            f"{label} is not a saved state, or it is damaged ({error})"
        ) from error


class _ArrayReader:
    """Finds arrays by name. Parts may share an array, but each copies it, so copies are limited."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]], most_bytes: int) -> None:
        self._arrays = arrays
        self._bytes_left = most_bytes
        self.used: set[str] = set()

    def find(self, name: str) -> NDArray[Any]:
        array = self._arrays[name]
        self._bytes_left -= array.nbytes
        if self._bytes_left < 0:
            raise InputError("its parts refer to the same arrays too often")
        self.used.add(name)
        return array


# --- from states to parts ------------------------------------------------------------------


def check_spec(state: State, part: object) -> None:
    """Refuse the state of a part with other parameters; the error names the first that differs.

    Parameters that were added after the state was saved have their defaults.

    Args:
        state: The state.
        part: The part that is about to restore it.
    """
    if state.spec is None:
        raise StateError(f"this {state.kind!r} state is damaged: it has no spec")
    family, _ = family_of(part) or (None, None)
    _refuse_unknown(state.spec, family, f"this {state.kind!r} state")
    message = contradiction(part, state.spec)
    if message is not None:
        raise StateError(
            f"this {state.kind!r} state does not match this {type(part).__name__}: {message}; "
            "restore it into one with the same parameters"
        )


def _refuse_unknown(spec: Any, family: str | None, label: str) -> None:
    first_unknown = next(unknown_parameters(spec, family), None)
    if first_unknown is not None:
        raise StateError(
            f"{label} has the unknown parameter {first_unknown}; if a newer version saved it, upgrade "
            "superarm, or the package that provides the part"
        )


def load(path: Path | str) -> Policy:
    """Load the policy that ``policy.save(path)`` wrote, ready to decide and to learn.

    Args:
        path: The file.
    """
    return loaded(load_state(path), str(path))


def loaded(state: State, label: str = "this state") -> Policy:
    """The policy of a state, built from the spec in it.

    Args:
        state: A policy's state.
        label: What errors call it, such as the name of its file.
    """
    require_type(
        state, State, "state", "; superarm.core.states.load_state reads one from a file"
    )
    names("policy")  # imports all parts, and with them their migrations
    state = migrated(state, "policy")
    if state.spec is None:
        raise StateError(f"{label} is damaged: it has no spec of its policy")
    first_foreign = next(foreign_parts(state.spec), None)
    if first_foreign is not None:
        place, type_name = first_foreign
        raise StateError(
            f"the {place} of the policy in {label} has type {type_name}, which cannot be saved; build "
            "the same policy again and call "
            "policy.restored(superarm.core.states.load_state(path))"
        )
    if _contains_problem(state.spec):
        raise StateError(f"{label} contains a problem, which no policy may contain")
    _refuse_unknown(state.spec, "policy", label)
    try:
        policy: Policy = build("policy", state.spec)
    except _INVALID_DATA_ERRORS as error:
        raise StateError(
            f"{label} does not describe a policy: {error}. "
            "If it has parts of your own, import the module that registers them first"
        ) from error
    try:
        return policy.restored(state)
    except StateError:
        raise
    except _INVALID_DATA_ERRORS as error:
        raise StateError(f"{label} is damaged: {error}") from error


# What parts raise when they are built or restored from invalid data.
_INVALID_DATA_ERRORS = (
    ValueError,
    TypeError,
    ArithmeticError,
    LookupError,
    AttributeError,
    MemoryError,
)


def _contains_problem(spec: Any) -> bool:
    """Whether a spec contains a problem: building one may take hours, and read files of its choice."""
    if isinstance(spec, list):
        return any(map(_contains_problem, spec))
    if not isinstance(spec, Mapping):
        return False
    if spec.get("family") == "problem":
        return True
    if isinstance(spec.get("problem"), Mapping | str):
        return True
    return any(map(_contains_problem, spec.values()))


# --- files ---------------------------------------------------------------------------------


def save_state(state: State, path: Path | str) -> None:
    """Write the state to a file, completely or not at all.

    Args:
        state: A state of at most 2 GiB.
        path: The file; its folder is created if it does not exist.
    """
    path = as_path(path, "path")
    data = state_to_bytes(state)
    if len(data) > _MOST:
        raise StateError(
            f"the state has {len(data):,} bytes; a file may have at most {_MOST:,}"
        )
    atomic_write(path, data, follow=True)


def load_state(path: Path | str) -> State:
    """Read a state from a file.

    Args:
        path: A file of at most 2 GiB that :func:`save_state` wrote.
    """
    path = as_path(path, "path")
    try:
        data = read_bytes(path, most=_MOST)
    except FileError as error:  # which names the file
        is_run = (path / "states").is_dir()
        advice = "; choose a file in its states/ folder" if is_run else ""
        raise StateError(f"{error}{advice}") from error
    except OSError as error:
        raise StateError(f"{path} cannot be read: {error.strerror}") from error
    return _parse_state(data, str(path))


@contextmanager
def file_lock(path: Path | str) -> Iterator[None]:
    """Lock a file against other processes, from reading it to writing it back.

    Processes wait on an empty ``.NAME.lock`` beside the file, because the file itself is replaced when
    it is written. The lock file remains, unless the file does not exist when the lock ends. A link and
    its target share one lock file.

    Args:
        path: The file, which need not exist yet.
    """
    path = _resolve_link(as_path(path, "path"))
    path.parent.mkdir(parents=True, exist_ok=True)
    lock_path = path.with_name(f".{path.name}.lock")
    with open_locked(lock_path):
        try:
            yield
        finally:
            if not path.exists():
                with suppress(OSError):  # Windows removes no open file
                    lock_path.unlink()


def _resolve_link(path: Path) -> Path:
    """The target of a link, which need not exist; any other path as it is."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def atomic_write(path: Path | str, data: bytes, *, follow: bool = False) -> None:
    """Write a file completely or not at all: a temporary file replaces it once it is on disk.

    A file that is replaced keeps its mode.

    Args:
        path: The file; its folder is created if it does not exist.
        data: The new content.
        follow: Whether a link stays a link and its target is written. By default the link is
            replaced: a run that somebody else made could contain a link to anywhere.
    """
    with atomic_file(path, follow=follow) as file:
        file.write(data)


@contextmanager
def atomic_file(path: Path | str, *, follow: bool = False) -> Iterator[BinaryIO]:
    """Open a file to be written completely or not at all, for content that comes piece by piece.

    A file that is replaced keeps its mode. An error inside the block leaves it as it was.

    Args:
        path: The file; its folder is created if it does not exist.
        follow: Whether a link stays a link and its target is written; see :func:`atomic_write`.
    """
    path = as_path(path, "path")
    if follow:
        path = _resolve_link(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            # Before there is anything to read.
            _copy_mode(path, temporary)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and not isinstance(error, SuperarmError):
            # A full disk names no file, and other errors name the temporary one.
            reason = error.strerror or str(error)
            raise OSError(error.errno, reason, str(path)) from error
        raise
    _sync_folder(path.parent)


def _copy_mode(source: Path, target: Path) -> None:
    """Give a file the mode of another; without the other, it keeps the mode of new files."""
    if source.is_symlink():
        return
    with suppress(FileNotFoundError):
        mode = stat.S_IMODE(source.stat().st_mode)
        target.chmod(mode)


def _sync_folder(folder: Path) -> None:
    """Write a renaming in a folder to disk, on systems that can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
