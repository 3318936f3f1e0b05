"""Where real data are: a catalogue of data sets, and the folders in which their files are looked for.

superarm ships no data: terms differ from set to set (:func:`describe` states them). A file is
looked for in ``$SUPERARM_DATA``, then in ``../shared/data`` beside a checkout, then in the
user's cache; the first folder that contains it wins.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from .errors import InputError, MissingDataError, SpecError


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """One set of real data: what it is, where it comes from, and under which terms."""

    name: str
    files: tuple[
        str, ...
    ]  # paths under a data folder; the first is the one that :func:`find` returns
    origin: str
    terms: str
    whole: bool = (
        False  # whether its files refer to each other: a folder must hold all of them
    )
    size: str = ""  # of the download and of the files on disk, where they are large
    command: str = ""  # downloads and unpacks it, where one command line does


_TABLES = tomllib.loads(
    files(__package__).joinpath("datasets.toml").read_text(encoding="utf-8")
)
_DATASETS = {
    name: Dataset(
        name=name, **{**_TABLES[name], "files": tuple(_TABLES[name]["files"])}
    )
    for name in _TABLES
}


def describe() -> list[Dataset]:
    """Every data set that superarm can read."""
    return list(_DATASETS.values())


def search_path() -> list[Path]:
    """The folders in which data are looked for, in order."""
    folders: list[Path] = []
    if chosen := os.environ.get("SUPERARM_DATA"):
        folders.append(Path(chosen).expanduser())
        if not folders[0].is_dir():
            raise InputError(f"SUPERARM_DATA is {chosen}, but there is no such folder")
    root = Path(__file__).resolve().parents[3]
    if (root / "pyproject.toml").is_file() and (root / "src" / "superarm").is_dir():
        folders.append(root.parent / "shared" / "data")
    cache = os.environ.get("XDG_CACHE_HOME")
    folders.append(
        (Path(cache) if cache else Path("~/.cache").expanduser()) / "superarm"
    )
    return folders


def find(name: str, *, ending: str = "") -> Path:
    """A file of a data set, or :class:`MissingDataError` saying how to get it.

    The main one; with ``ending`` the first of the set's own list whose name ends so.
    """
    dataset = _DATASETS.get(name)
    if dataset is None:
        raise SpecError(f"unknown data set {name!r}; choose one of {sorted(_DATASETS)}")
    file = next((file for file in dataset.files if file.endswith(ending)), None)
    if file is None:
        raise InputError(
            f"no file of {name} ends in {ending!r}; it consists of {list(dataset.files)}"
        )
    needed, folders = dataset.files if dataset.whole else (file,), search_path()
    for folder in folders:
        if all((folder / each).is_file() for each in needed):
            return folder / file
    file = " beside ".join(needed)
    looked = ", ".join(str(folder) for folder in folders)
    command = (
        f" With SUPERARM_DATA set, this command gets it: {dataset.command}"
        if dataset.command
        else ""
    )
    size = f" Size: {dataset.size}." if dataset.size else ""
    raise MissingDataError(
        f"{name}: {file} was not found (looked in {looked}). Get it from its origin — "
        f"{dataset.origin} — and put it under one of these folders, or set SUPERARM_DATA to the "
        f"folder that holds {file}. Terms: {dataset.terms}.{size}{command}"
    )
