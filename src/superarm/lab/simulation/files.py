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

from superarm.core import files
from superarm.core.compressed import npz_names, read_npz
from superarm.core.errors import ConflictError, FileError, InputError, StateError
from superarm.core.files import open_locked
from superarm.core.inputs import as_plain

LOCK = ".lock"
FOLDERS_OF_ANY = ("cells", "timings")
"""Where every finished cell has a file."""
FOLDERS_OF_AUDITED = (*FOLDERS_OF_ANY, "audits", "states")
"""Where a finished cell of a policy whose forecasts are audited has a file."""
STATELESS = "stateless.json"
"""Lists cells, by name, that are finished although their states were left out to save space."""
FOLDERS_OF_CELLS = (*FOLDERS_OF_AUDITED, "left")
FOLDERS = (*FOLDERS_OF_CELLS, "maps", "truths", "trees")
EARLIER = "earlier"
"""Where the cells of a shorter run wait for a longer one to resume them."""
_TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{8}\.tmp")
_MOST = 1 << 28  # bytes of one file of JSON or arrays: 256 MiB
_MOST_PER_ROUND = 1 << 14  # more bytes of arrays for each round: 4,096 arms


@contextmanager
def run_lock(directory: Path) -> Iterator[None]:
    """Lock the directory for one process at a time; a lock dies with its process.

    Args:
        directory: The run's folder.
    """
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
            # Windows removes no open file: the empty file remains.
            with suppress(OSError):
                path.unlink()


def remove_temporaries(directory: Path) -> None:
    """Remove what ``atomic_write`` left behind in a run whose process was killed.

    Args:
        directory: The run's folder.
    """
    folders = [directory]
    folders += [directory / name for name in FOLDERS]
    for folder in folders:
        for path in folder.glob(".*.tmp"):
            if _TEMPORARY.fullmatch(path.name):
                path.unlink(missing_ok=True)


def set_aside(directory: Path) -> None:
    """Move the cells of a run to where a longer one resumes them, the cell itself first.

    Args:
        directory: The run's folder.
    """
    for folder in FOLDERS_OF_CELLS:
        target = directory / EARLIER / folder
        target.mkdir(parents=True, exist_ok=True)
        for path in (directory / folder).glob("*.npz"):
            path.replace(target / path.name)
    # Truths show some of the rounds, trees the probabilities of the last one.
    for folder in ("truths", "trees"):
        for path in (directory / folder).glob("*.npz"):
            path.unlink()


def stateless_cells(directory: Path) -> frozenset[str]:
    """Names of the cells whose states were left out of this run.

    Args:
        directory: The run's folder.
    """
    path = directory / STATELESS
    if not path.is_file():
        return frozenset()
    names = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise FileError(f"{path} must contain a list of names of cells")
    return frozenset(names)


def is_temporary(name: str, files: Collection[str]) -> bool:
    """Whether ``atomic_write`` uses this name while it writes one of these files.

    Args:
        name: The name of a file.
        files: Names of files that may have been written.
    """
    match = _TEMPORARY.fullmatch(name)
    return match is not None and match["name"] in files


def json_bytes(value: object) -> bytes:
    """Encode a value as a line of strict JSON: NumPy numbers as numbers, NaN as null.

    Args:
        value: Plain data and arrays.
    """
    text = json.dumps(as_plain(value), ensure_ascii=False, allow_nan=False)
    return text.encode() + b"\n"


def npz_bytes(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Compress arrays.

    NumPy dates every member 1980-01-01, so equal arrays give equal bytes.

    Args:
        arrays: Arrays by name.
    """
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def read_arrays(
    path: Path, *, only: str | None = None, rounds: int = 0
) -> dict[str, NDArray[Any]]:
    """Read the arrays of one file of a run, or just one of them.

    Args:
        path: The file.
        only: The name of the array to read; ``None`` for all.
        rounds: Rounds of the run, which limit the file's size.
    """
    most = _MOST + _MOST_PER_ROUND * rounds
    with _open_file(path) as file:
        arrays = read_npz(file, most=most, wanted=lambda name: only in (None, name))
    if only is not None and only not in arrays:
        names = sorted(array_names(path))
        raise InputError(f"{path} has no {only!r}; it has {names}")
    return arrays


def array_names(path: Path) -> list[str]:
    """Read the names of the arrays of one file of a run.

    Args:
        path: The file.
    """
    with _open_file(path) as file:
        return npz_names(file)


@contextmanager
def _open_file(path: Path) -> Iterator[BinaryIO]:
    """A file for reading; errors in it name it."""
    if not path.is_file():
        raise StateError(f"{path} is missing; run again with --resume to make it")
    try:
        with path.open("rb") as file:
            yield file
    except (InputError, OSError) as error:
        raise damaged(path, str(error)) from error


def check_array(
    array: NDArray[Any] | None,
    shape: tuple[int, ...],
    path: Path,
    name: str,
    kinds: str = "fiu",
    *,
    allow_nan: bool = False,
    allow_infinity: bool = False,
) -> NDArray[Any]:
    """Return an array of a file, or raise :class:`StateError` if it is not as expected.

    Args:
        array: The array; ``None`` where the file lacks it.
        shape: The shape that it must have.
        path: The file, for error messages.
        name: The array's name, for error messages.
        kinds: Letters of the kinds of numbers that it may have.
        allow_nan: Whether it may have NaN.
        allow_infinity: Whether it may have infinite numbers.
    """
    if array is None or array.shape != shape or array.dtype.kind not in kinds:
        raise damaged(path, f"{name!r} must be numbers of shape {shape}")
    nan = not allow_nan and np.isnan(array).any()
    infinite = not allow_infinity and np.isinf(array).any()
    if nan or infinite:
        raise damaged(path, f"{name!r} holds NaN or infinity")
    return array


def damaged(path: Path, description: str) -> StateError:
    """The error for a file of a run that is not as it was written.

    Args:
        path: The file.
        description: What is wrong with it.
    """
    return StateError(
        f"{path} is damaged: {description}; delete it and run again with --resume"
    )


def read_json(path: Path) -> Any:
    """Read the JSON in a file of a run.

    Args:
        path: The file.
    """
    if not path.exists():
        raise StateError(
            f"{path.parent} has no {path.name}; give the directory that `superarm run --out` wrote"
        )
    try:
        return files.read_json(path, most=_MOST)
    except FileError as error:
        raise StateError(f"{error}; run again into a new directory") from error
