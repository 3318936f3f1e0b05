"""States as bytes and files: strict JSON and ``.npz`` without pickles, in one file.

A restored part is the part it was taken from up to rounding: it is computed anew from what was
observed, so that its numbers agree to about 1e-12, not to the bit.
"""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np

from .core import State
from .errors import InputError, StateError
from .packed import DAMAGE, read_npz

_HEAD = "state.json"
_ARRAY = "array:"
_MOST = 1 << 31
"""2 GiB: 15,000 arms of which 1,000 were visited take less than a tenth of it."""


def state_to_bytes(state: State) -> bytes:
    """The whole state; equal states give equal bytes."""
    head = {"kind": state.kind, "schema": state.schema, "scalars": dict(state.scalars)}
    text = json.dumps(head, sort_keys=True, allow_nan=False).encode()
    arrays = {f"{_ARRAY}{name}": np.asarray(state.arrays[name]) for name in sorted(state.arrays)}
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **{_HEAD: np.frombuffer(text, dtype=np.uint8)}, **arrays)
    return buffer.getvalue()


def state_from_bytes(data: bytes) -> State:
    """The state that these bytes hold, or :class:`StateError` if they hold none.

    Nothing in it is compressed, so that it takes no more memory than ``data`` themselves.
    """
    try:
        members = read_npz(io.BytesIO(data))
        head = json.loads(members.pop(_HEAD).tobytes())
        if strangers := sorted(name for name in members if not name.startswith(_ARRAY)):
            raise InputError(f"it holds {strangers!r:.80}, which no state has")
        if not isinstance(head["scalars"], dict) or not isinstance(head["kind"], str):
            raise TypeError(head["kind"])
        arrays = {name.removeprefix(_ARRAY): array for name, array in members.items()}
        return State(kind=head["kind"], schema=head["schema"], scalars=head["scalars"], arrays=arrays)
    except DAMAGE as error:
        told = str(error) if isinstance(error, InputError) else type(error).__name__
        raise StateError(f"this is no saved state, or a damaged one: {told}") from error


def save_state(state: State, path: Path | str) -> None:
    """Write the state to a file."""
    Path(path).write_bytes(state_to_bytes(state))


def load_state(path: Path | str) -> State:
    """Read a state from a file that :func:`save_state` wrote; it may have 2 GiB at most."""
    path = Path(path)
    try:
        if path.exists() and not path.is_file():  # a device or a pipe may never end
            raise StateError(f"{path} is not a file; states of a run lie in its folder states/")
        with path.open("rb") as file:
            data = file.read(_MOST + 1)
    except OSError as error:
        raise StateError(
            f"{path} cannot be read: {error.strerror}; states of a run lie in its folder states/"
        ) from error
    if len(data) > _MOST:
        raise StateError(f"{path} has more than {_MOST} bytes; no state is that large")
    try:
        return state_from_bytes(data)
    except StateError as error:
        raise StateError(
            f"{path}: {error}; states of a run lie in its folder states/, one for each cell"
        ) from error
