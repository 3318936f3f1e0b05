"""States as bytes and files: strict JSON and ``.npz`` without pickles, in one file.

A restored part is the part it was taken from up to rounding, and it goes on as that would: what
draws depend on is kept where it cannot be computed anew from what was observed.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

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
    arrays: dict[str, Any] = {}
    text = json.dumps(_head(state, "array:", arrays), sort_keys=True, allow_nan=False).encode()
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **{_HEAD: np.frombuffer(text, dtype=np.uint8)}, **arrays)
    return buffer.getvalue()


def state_from_bytes(data: bytes) -> State:
    """The state that these bytes hold, or :class:`StateError` if they hold none."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            head = json.loads(archive[_HEAD].tobytes())
            arrays = {name: archive[name] for name in archive.files if name != _HEAD}
        state = _state(head, "array:", arrays)
        if arrays:  # all that are referred to were taken out
            raise TypeError(f"nothing refers to {next(iter(arrays))}")
        return state
    except _DAMAGE as error:
        raise StateError(f"this is no saved state, or a damaged one: {type(error).__name__}") from error


def _head(state: State, prefix: str, arrays: dict[str, Any]) -> dict[str, Any]:
    """All but the arrays, which are put into ``arrays`` under the path of their part."""
    for name in sorted(state.arrays):
        arrays[prefix + name] = np.asarray(state.arrays[name])
    return {
        "kind": state.kind,
        "schema": state.schema,
        "scalars": dict(state.scalars),
        "arrays": sorted(state.arrays),
        "parts": {
            name: _head(part, f"{prefix}{name}/", arrays) for name, part in sorted(state.parts.items())
        },
    }


def _state(head: Any, prefix: str, arrays: dict[str, Any]) -> State:
    """The state that a head describes; its arrays are taken out of ``arrays``."""
    if not isinstance(head["scalars"], dict) or not isinstance(head["kind"], str):
        raise TypeError(head["kind"])
    return State(
        kind=head["kind"],
        schema=head["schema"],
        scalars=head["scalars"],
        arrays={name: arrays.pop(prefix + name) for name in head["arrays"]},
        parts={name: _state(part, f"{prefix}{name}/", arrays) for name, part in head["parts"].items()},
    )


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
