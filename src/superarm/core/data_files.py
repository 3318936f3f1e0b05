"""A catalogue of data sets, and the folders in which their files are searched.

superarm ships no data: terms differ from set to set (:func:`describe` states them). A file is searched
in ``$SUPERARM_DATA``, then in ``../shared/data`` beside a checkout, then in the user's cache; the first
folder that contains it wins.
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
    files: tuple[str, ...]
    """Paths under a data folder; :func:`find` returns the first by default."""
    origin: str
    terms: str
    needs_all_files: bool = False
    """Whether its files refer to each other: then one folder must contain all of them."""
    size: str = ""
    """The size of the download and of the files on disk, where they are large."""
    command: str = ""
    """Downloads and unpacks it, where one command line does."""


def _read_catalogue() -> dict[str, Dataset]:
    catalogue = files(__package__).joinpath("datasets.toml")
    tables = tomllib.loads(catalogue.read_text(encoding="utf-8"))
    datasets: dict[str, Dataset] = {}
    for name, table in tables.items():
        fields = {**table, "files": tuple(table["files"])}
        datasets[name] = Dataset(name=name, **fields)
    return datasets


_DATASETS = _read_catalogue()


def describe() -> list[Dataset]:
    """Every data set that superarm can read."""
    return list(_DATASETS.values())


def search_path() -> list[Path]:
    """The folders in which data are searched, in order."""
    folders: list[Path] = []
    if chosen := os.environ.get("SUPERARM_DATA"):
        folder = Path(chosen).expanduser()
        if not folder.is_dir():
            raise InputError(f"SUPERARM_DATA is {chosen}, but there is no such folder")
        folders.append(folder)
    root = Path(__file__).resolve().parents[3]
    is_checkout = (root / "pyproject.toml").is_file()
    if is_checkout and (root / "src" / "superarm").is_dir():
        folders.append(root.parent / "shared" / "data")
    cache = os.environ.get("XDG_CACHE_HOME")
    cache_folder = Path(cache) if cache else Path("~/.cache").expanduser()
    folders.append(cache_folder / "superarm")
    return folders


def find(name: str, *, ending: str = "") -> Path:
    """A file of a data set, or :class:`MissingDataError` that explains how to get it.

    Args:
        name: The data set.
        ending: The end of the file's name; by default the set's first file.
    """
    dataset = _DATASETS.get(name)
    if dataset is None:
        raise SpecError(
            f"unknown data set {name!r}; choose one of {', '.join(sorted(_DATASETS))}"
        )
    file = next((file for file in dataset.files if file.endswith(ending)), None)
    if file is None:
        raise InputError(
            f"no file of {name} ends in {ending!r}; it consists of {list(dataset.files)}"
        )
    needed = dataset.files if dataset.needs_all_files else (file,)
    folders = search_path()
    for folder in folders:
        if all((folder / path).is_file() for path in needed):
            return folder / file
    raise MissingDataError(_how_to_get(dataset, needed, folders))


def _how_to_get(dataset: Dataset, needed: tuple[str, ...], folders: list[Path]) -> str:
    searched = " or ".join(str(folder) for folder in folders)
    if dataset.command:
        size = f" ({dataset.size})" if dataset.size else ""
        advice = f"Set SUPERARM_DATA to a folder, then run: {dataset.command}{size}"
    else:
        advice = (
            f"Get {' and '.join(needed)} ({dataset.origin}), and set SUPERARM_DATA to the folder that "
            "contains this path"
        )
    return (
        f"{dataset.name} was not found in {searched}. {advice}. Terms: {dataset.terms}"
    )
