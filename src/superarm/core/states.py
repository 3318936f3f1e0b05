"""States as bytes and files: strict JSON and ``.npz`` without pickles, in one file.

A state says what made it: :func:`load` gives a policy back from its file alone, and the state of
another kernel, rule or oracle is refused (:func:`check_spec`). A restored part equals the part that its
state was taken from, up to rounding, and goes on as that would: what draws depend on is kept where it
cannot be computed anew from what was observed.
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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .compressed import read_npz
from .errors import FileError, InputError, StateError
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
_ASKED_AGAIN = 32  # times its size that a file's arrays may be asked for: policies on roads ask 3 times
_MOST = (
    1 << 31
)  # 2 GiB: 15,000 arms of which 1,000 were visited take less than a tenth of it


def state_to_bytes(state: State) -> bytes:
    """The whole state; equal states give equal bytes."""
    require_type(state, State, "state")
    arrays: dict[str, NDArray[Any]] = {}

    def keep(array: NDArray[Any]) -> str:
        """Named by its content and kept once: specs repeat what their parts are made of."""
        plain = np.ascontiguousarray(array).reshape(array.shape)
        content = sha256(plain.data)
        content.update(f"{plain.dtype.str} {plain.shape}".encode())
        arrays[content.hexdigest()] = plain
        return content.hexdigest()

    text = json.dumps(to_json(state, keep), sort_keys=True, allow_nan=False).encode()
    buffer = io.BytesIO()
    head = {_HEAD: np.frombuffer(text, dtype=np.uint8)}
    np.savez(buffer, allow_pickle=False, **head, **dict(sorted(arrays.items())))
    return buffer.getvalue()


def state_from_bytes(data: bytes) -> State:
    """The state that these bytes hold, or :class:`StateError` if they hold none.

    Nothing in them is compressed, so that the state takes no more memory than ``data``.
    """
    asked: set[str] = set()
    left = _ASKED_AGAIN * len(data)

    def find(name: str) -> NDArray[Any]:
        """Parts may share an array, but each makes a copy of its own."""
        nonlocal left
        left -= arrays[name].nbytes
        if left < 0:
            raise InputError("its parts refer to the same arrays too often")
        asked.add(name)
        return arrays[name]

    try:
        arrays = read_npz(io.BytesIO(data))
        state = from_json(json.loads(arrays.pop(_HEAD).tobytes()), find)
        if not isinstance(state, State):
            raise InputError(f"it contains a {type(state).__name__}")
        if strangers := sorted(set(arrays) - asked):
            raise InputError(
                f"it contains {strangers!r:.80}, which nothing in it refers to"
            )
        return state
    except (ValueError, KeyError, RecursionError) as error:
        raise StateError(
            f"this is not a saved state, or it is damaged: {error}"
        ) from error


# --- what made a state ---------------------------------------------------------------------


def check_spec(state: State, part: object) -> None:
    """Refuse the state of a part with other parameters; the error names the first that differs.

    Parameters that were added after the state was saved count as left out: they have their defaults.
    """
    if state.spec is None:
        raise StateError(f"this {state.kind!r} state is damaged: it has no spec")
    family, _ = family_of(part) or (None, None)
    _refuse_unknown(state.spec, family, f"this {state.kind!r} state")
    found = contradiction(part, state.spec)
    if found is not None:
        message = f"this {state.kind!r} state does not match this {type(part).__name__}: {found}"
        raise StateError(f"{message}; restore it into one with the same parameters")


def _refuse_unknown(spec: Any, family: str | None, label: str) -> None:
    for place in unknown_parameters(spec, family):
        raise StateError(
            f"{label} has the unknown parameter {place}; if a newer version saved it, upgrade "
            "superarm, or the package that provides the part"
        )


def load(path: Path | str) -> Policy:
    """Load the policy that ``policy.save(path)`` wrote, ready to decide and to learn."""
    return loaded(load_state(path), str(path))


def loaded(state: State, label: str = "this state") -> Policy:
    """The policy that this state was taken from, built from the spec in it."""
    require_type(
        state, State, "state", "; superarm.core.states.load_state reads one from a file"
    )
    names("policy")  # imports all parts, and with them their migrations
    state = migrated(state, "policy")
    if state.spec is None:
        raise StateError(f"{label} is damaged: it has no spec of its policy")
    for where, kind in foreign_parts(state.spec):
        raise StateError(
            f"the {where} of the policy in {label} has type {kind}, which cannot be saved; build the "
            "same policy again and call policy.restored(superarm.core.states.load_state(path))"
        )
    if _has_world(state.spec):
        raise StateError(f"{label} contains a problem, which no policy may contain")
    _refuse_unknown(state.spec, "policy", label)
    try:
        policy: Policy = build("policy", state.spec)
    except _NONSENSE as error:
        advice = (
            "If it has parts of your own, import the module that registers them first"
        )
        raise StateError(
            f"{label} does not describe a policy: {error}. {advice}"
        ) from error
    try:
        return policy.restored(state)
    except StateError:
        raise
    except _NONSENSE as error:
        raise StateError(f"{label} is damaged: {error}") from error


# What parts raise that are made of, or restored from, what nobody has written.
_NONSENSE = (
    ValueError,
    TypeError,
    ArithmeticError,
    LookupError,
    AttributeError,
    MemoryError,
)


def _has_world(spec: Any) -> bool:
    """Whether a problem is in a spec: to make one may take hours, and files of its choice."""
    if isinstance(spec, Mapping):
        held = [value for key, value in spec.items() if key == "problem"]
        named = any(isinstance(value, Mapping | str) for value in held)
        return (
            named
            or spec.get("family") == "problem"
            or any(map(_has_world, spec.values()))
        )
    return isinstance(spec, list) and any(map(_has_world, spec))


# --- files ---------------------------------------------------------------------------------


def save_state(state: State, path: Path | str) -> None:
    """Write the state to a file, whole or not at all; it may have 2 GiB at most."""
    path = as_path(path, "path")
    data = state_to_bytes(state)
    if len(data) > _MOST:
        raise StateError(
            f"the state has {len(data):,} bytes; a file may have at most {_MOST:,}"
        )
    atomic_write(path, data, follow=True)


def load_state(path: Path | str) -> State:
    """Read a state from a file that :func:`save_state` wrote; it may have 2 GiB at most."""
    path = as_path(path, "path")
    try:
        return state_from_bytes(read_bytes(path, most=_MOST))
    except FileError as error:  # which names the file
        advice = (
            "; choose a file in its states/ folder"
            if (path / "states").is_dir()
            else ""
        )
        raise StateError(f"{error}{advice}") from error
    except (OSError, StateError) as error:
        told = error.strerror if isinstance(error, OSError) else error
        raise StateError(f"{path} cannot be read: {told}") from error


@contextmanager
def held_alone(path: Path | str) -> Iterator[None]:
    """Wait until no other process holds this file: who reads, learns and writes must not overlap.

    The lock is an empty neighbour, because the file itself is replaced when it is written. It remains,
    unless there is still no file when the lock ends. A link and the file that it leads to share their
    neighbour.
    """
    path = _end_of(as_path(path, "path"))
    path.parent.mkdir(parents=True, exist_ok=True)
    neighbour = path.with_name(f".{path.name}.lock")
    with open_locked(neighbour):
        try:
            yield
        finally:
            if not path.exists():
                with suppress(OSError):  # Windows removes no open file
                    neighbour.unlink()


def _end_of(path: Path) -> Path:
    """Where a link leads to, perhaps to no file yet; any other path as it is."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def atomic_write(path: Path | str, data: bytes, *, follow: bool = False) -> None:
    """Write the file whole or not at all: a temporary neighbour takes its place once it is on disk.

    A file that is replaced keeps its mode.

    Args:
        path: The file; its folder is created if need be.
        data: What it will hold.
        follow: Whether a link stays a link, and the file that it leads to is written. By default the
            link is replaced: a run that somebody else made could hold one that leads anywhere.
    """
    path = as_path(path, "path")
    if follow:
        path = _end_of(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            with suppress(
                FileNotFoundError
            ):  # a new file has the mode that umask gives it
                if not path.is_symlink():
                    temporary.chmod(
                        stat.S_IMODE(path.stat().st_mode)
                    )  # before anyone can read it
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(
            error, OSError
        ):  # a full disk names no file, and others the temporary one
            raise OSError(
                error.errno, error.strerror or str(error), str(path)
            ) from error
        raise
    with suppress(
        OSError
    ):  # the renaming itself must be on disk, too; not every system can
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
