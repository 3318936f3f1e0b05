"""Files of a run: whole or not at all, JSON and ``.npz`` without pickles, one writer at a time."""

from __future__ import annotations

import io
import json
import math
import re
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superarm.errors import ConflictError, InputError, StateError
from superarm.states import atomic_write as atomic_write  # noqa: PLC0414 (a run is written by it)

LOCK = ".lock"
FOLDERS_OF_ANY = ("cells", "timings")
FOLDERS_OF_AUDITED = (*FOLDERS_OF_ANY, "audits", "states")
"""Where a finished cell has a file: of a policy whose forecasts are audited, of any other."""
FOLDERS = (*FOLDERS_OF_AUDITED, "maps")
_TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{8}\.tmp")
# What numpy and zipfile raise for files that are cut off, overwritten or of another kind.
_DAMAGE = (
    *(OSError, TypeError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error),
    *(NotImplementedError, RuntimeError, MemoryError),
)


@contextmanager
def run_lock(directory: Path) -> Iterator[None]:
    """Hold the directory for one process at a time; a lock dies with its process."""
    path = directory / LOCK
    with path.open("ab") as file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # not on this system
            pass
        except OSError:
            raise ConflictError(
                f"another process is running in {directory}; wait for it, or choose another --out"
            ) from None
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def remove_temporaries(directory: Path | str) -> None:
    """Remove what :func:`atomic_write` left behind in a run whose process was killed."""
    for folder in (Path(directory), *(Path(directory) / name for name in FOLDERS)):
        for path in folder.glob(".*.tmp"):
            if _TEMPORARY.fullmatch(path.name):
                path.unlink(missing_ok=True)


def is_temporary(name: str, of: Collection[str]) -> bool:
    """Whether :func:`atomic_write` was about to write one of these files under this name."""
    parts = _TEMPORARY.fullmatch(name)
    return parts is not None and parts["name"] in of


def json_bytes(value: object) -> bytes:
    """One line of strict JSON: numpy numbers as numbers, what is not finite as null."""
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False).encode() + b"\n"


def npz_bytes(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Compressed arrays; numpy dates every member 1980-01-01, so equal arrays give equal bytes."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def plain(value: Any) -> Any:
    """What JSON can hold: lists, objects with text keys, null for what is not finite."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_arrays(
    path: Path, *, only: str | None = None, names_only: bool = False
) -> dict[str, NDArray[Any]]:
    """The arrays of one file; just one of them, or just their names with empty arrays."""
    if not path.is_file():
        raise StateError(f"{path} is missing; run again with --resume to make it")
    try:
        # numpy leaves a damaged file open when it is given the path
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            if names_only:
                return {name: np.empty(0) for name in archive.files}
            if only is not None and only not in archive.files:
                raise InputError(f"{path} has no {only!r}; it has {sorted(archive.files)}")
            return {name: archive[name] for name in ([only] if only else archive.files)}
    except InputError:
        raise
    except _DAMAGE as error:
        raise StateError(
            f"{path} is damaged ({type(error).__name__}); delete it and run again with --resume"
        ) from error


def read_json(path: Path) -> Any:
    """The JSON in a file of a run."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StateError(
            f"{path.parent} has no {path.name}; give the directory that `superarm run --out` wrote"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise StateError(f"{path} cannot be read ({error}); run again into a new directory") from error
