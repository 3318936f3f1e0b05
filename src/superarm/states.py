"""States as bytes and files: strict JSON and ``.npz`` without pickles, in one file.

A restored part is the part it was taken from up to rounding: it is computed anew from what was
observed, so that its numbers agree to about 1e-12, not to the bit.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from pathlib import Path

import numpy as np

from .core import State
from .errors import StateError

_HEAD = "state.json"
# What numpy, zipfile and json raise for bytes that are cut off, changed or of another kind.
_DAMAGE = (
    *(OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error),
    *(NotImplementedError, RuntimeError, RecursionError, MemoryError, AttributeError),
)


def state_to_bytes(state: State) -> bytes:
    """The whole state; equal states give equal bytes."""
    head = {"kind": state.kind, "schema": state.schema, "scalars": dict(state.scalars)}
    text = json.dumps(head, sort_keys=True, allow_nan=False).encode()
    arrays = {f"array:{name}": np.asarray(state.arrays[name]) for name in sorted(state.arrays)}
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **{_HEAD: np.frombuffer(text, dtype=np.uint8)}, **arrays)
    return buffer.getvalue()


def state_from_bytes(data: bytes) -> State:
    """The state that these bytes hold, or :class:`StateError` if they hold none."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            head = json.loads(archive[_HEAD].tobytes())
            arrays = {
                name.removeprefix("array:"): archive[name] for name in archive.files if name != _HEAD
            }
        if not isinstance(head["scalars"], dict) or not isinstance(head["kind"], str):
            raise TypeError(head["kind"])
        return State(kind=head["kind"], schema=head["schema"], scalars=head["scalars"], arrays=arrays)
    except _DAMAGE as error:
        raise StateError(f"this is no saved state, or a damaged one: {type(error).__name__}") from error


def save_state(state: State, path: Path | str) -> None:
    """Write the state to a file."""
    Path(path).write_bytes(state_to_bytes(state))


def load_state(path: Path | str) -> State:
    """Read a state from a file that :func:`save_state` wrote."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise StateError(
            f"{path} cannot be read: {error.strerror}; states of a run lie in its folder states/"
        ) from error
    try:
        return state_from_bytes(data)
    except StateError as error:
        raise StateError(
            f"{path}: {error}; states of a run lie in its folder states/, one for each cell"
        ) from error
