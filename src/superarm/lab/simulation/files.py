"""Files of a run: whole or not at all, JSON and ``.npz`` without pickles, one writer at a time."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from superarm.core.compressed import npz_names, read_npz
from superarm.core.errors import ConflictError, FileError, InputError, StateError
from superarm.core.files import open_locked, read_text
from superarm.core.inputs import as_plain

LOCK = ".lock"
FOLDERS_OF_ANY = ("cells", "timings")
FOLDERS_OF_AUDITED = (*FOLDERS_OF_ANY, "audits", "states")
"""Where a finished cell has a file: of a policy whose forecasts are audited, of any other."""
FOLDERS_OF_CELLS = (*FOLDERS_OF_AUDITED, "left")
FOLDERS = (*FOLDERS_OF_CELLS, "maps", "truths", "trees")
EARLIER = "earlier"
"""Where the cells of a shorter run wait to be gone on with."""
_TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{8}\.tmp")
_MOST, _MOST_PER_ROUND = 1 << 28, 1 << 14
"""Bytes of one file of JSON or arrays: 256 MiB, and for arrays 4,096 arms more for each round."""


@contextmanager
def run_lock(directory: Path) -> Iterator[None]:
    """Hold the directory for one process at a time; a lock dies with its process."""
    path = directory / LOCK
    try:
        file = open_locked(path, wait=False)
    except BlockingIOError:
        raise ConflictError(
            f"another process is running in {directory}; wait for it, or choose another --out"
        ) from None
    with file:
        try:
            yield
        finally:
            with suppress(
                OSError
            ):  # Windows removes no open file: there the empty file remains
                path.unlink()


def remove_temporaries(directory: Path) -> None:
    """Remove what ``atomic_write`` left behind in a run whose process was killed."""
    for folder in (directory, *(directory / name for name in FOLDERS)):
        for path in folder.glob(".*.tmp"):
            if _TEMPORARY.fullmatch(path.name):
                path.unlink(missing_ok=True)


def set_aside(directory: Path) -> None:
    """Move the cells of a run to where a longer one goes on with them; the cell itself goes first."""
    for folder in FOLDERS_OF_CELLS:
        (directory / EARLIER / folder).mkdir(parents=True, exist_ok=True)
        for path in (directory / folder).glob("*.npz"):
            path.replace(directory / EARLIER / folder / path.name)
    for folder in (
        "truths",
        "trees",
    ):  # of some of the rounds, and with the probabilities of the last
        for path in (directory / folder).glob("*.npz"):
            path.unlink()


def is_temporary(name: str, of: Collection[str]) -> bool:
    """Whether ``atomic_write`` was about to write one of these files under this name."""
    parts = _TEMPORARY.fullmatch(name)
    return parts is not None and parts["name"] in of


def json_bytes(value: object) -> bytes:
    """One line of strict JSON: numpy numbers as numbers, what is not finite as null."""
    return (
        json.dumps(as_plain(value), ensure_ascii=False, allow_nan=False).encode()
        + b"\n"
    )


def npz_bytes(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Compressed arrays; numpy dates every member 1980-01-01, so equal arrays give equal bytes."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def read_arrays(
    path: Path, *, only: str | None = None, rounds: int = 0
) -> dict[str, NDArray[Any]]:
    """The arrays of one file of a run of so many rounds, or just one of them."""
    most = _MOST + _MOST_PER_ROUND * rounds
    with _opened(path) as file:
        arrays = read_npz(file, most=most, wanted=lambda name: only in (None, name))
    if only is not None and only not in arrays:
        raise InputError(f"{path} has no {only!r}; it has {sorted(array_names(path))}")
    return arrays


def array_names(path: Path) -> list[str]:
    """The names of the arrays of one file of a run."""
    with _opened(path) as file:
        return npz_names(file)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """A file for reading; errors in it name it."""
    if not path.is_file():
        raise StateError(f"{path} is missing; run again with --resume to make it")
    try:
        with path.open("rb") as file:
            yield file
    except (InputError, OSError) as error:
        raise damaged(path, str(error)) from error


def damaged(path: Path, what: str) -> StateError:
    """The error for a file of a run that is not as it was written."""
    return StateError(
        f"{path} is damaged: {what}; delete it and run again with --resume"
    )


def read_json(path: Path) -> Any:
    """The JSON in a file of a run."""
    try:
        return json.loads(read_text(path, most=_MOST))
    except FileNotFoundError:
        raise StateError(
            f"{path.parent} has no {path.name}; give the directory that `superarm run --out` wrote"
        ) from None
    except FileError as error:
        raise StateError(f"{error}; run again into a new directory") from error
    except (OSError, ValueError, RecursionError) as error:
        raise StateError(
            f"{path} cannot be read ({error}); run again into a new directory"
        ) from error
