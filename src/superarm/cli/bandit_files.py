"""Inputs of the live commands: specs, arms, constraints and rewards, from files and arguments."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from superarm.core.errors import FileError, SpecError, StateError
from superarm.core.files import read_json, read_text, read_toml
from superarm.core.serialization import from_json
from superarm.core.tables import Encoding
from superarm.live.verbs import BanditVerbs

from .common import check_file

_MOST_BYTES = 1 << 28  # of a file


def read_spec(path: Path) -> Any:
    """The spec of a bandit.

    Args:
        path: The file, .json or .toml.
    """
    check_file("--spec", path)
    if path.suffix == ".toml":
        return read_toml(path, "a bandit's spec")
    return read_json(path, _MOST_BYTES, "a bandit's spec")


def read_structure(path: Path | None) -> Any:
    """The constraints of a round.

    Args:
        path: The file, .json; ``None``: there are none.
    """
    if path is None:
        return None
    check_file("--structure", path)
    table = read_json(path, _MOST_BYTES, "a structure")
    try:
        return from_json(table)
    except StateError as error:
        raise FileError(f"{path}: {error}") from error


def read_rewards(words: Sequence[str]) -> dict[str, float]:
    """Rewards by arm, from words such as ``mocha=0.7``.

    Args:
        words: The words.
    """
    rewards: dict[str, float] = {}
    for word in words:
        arm, _, number = word.rpartition("=")
        if not arm:
            raise SpecError(
                f"rewards must be ARM=REWARD, such as mocha=0.7, got {word!r}"
            )
        if arm in rewards:
            raise SpecError(f"{arm!r} has two rewards; name each arm once")
        try:
            rewards[arm] = float(number)
        except ValueError:
            message = f"the reward of {arm!r} must be a number, got {number!r}"
            raise SpecError(message) from None
    return rewards


# --- arms ----------------------------------------------------------------------------------


def read_arms(path: Path | None, bandit: BanditVerbs) -> Any:
    """The arms on offer: JSON as it is, or a table with a row for each arm.

    Args:
        path: The file, .json or .csv; ``None``: the named arms.
        bandit: The bandit that chooses among them; its spec defines the columns.
    """
    if path is None:
        return None
    check_file("--arms", path)
    if path.suffix == ".json":
        return read_json(path, _MOST_BYTES, "arms")
    if path.suffix != ".csv":
        raise SpecError(f"--arms {path}: pass a .json or .csv file")
    spec = bandit.spec
    rows = _rows_by_id(path, spec.id_column)
    if spec.encoding is None:
        return {arm: _features(arm, row, path) for arm, row in rows.items()}
    return {arm: _values(row, spec.encoding) for arm, row in rows.items()}


def _rows_by_id(path: Path, id_column: str) -> dict[str, dict[str, str]]:
    """The rows of a table without their ids, by id."""
    try:
        text = read_text(path, _MOST_BYTES).removeprefix("\ufeff")
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        lines = [line for line in reader if line]
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileError(f"{path} cannot be read as a csv table: {error}") from error
    if not lines or lines[0].count(id_column) != 1:
        raise FileError(
            f"{path}: the header must have exactly one column {id_column!r}"
        )
    columns = lines[0]
    rows: dict[str, dict[str, str]] = {}
    for cells in lines[1:]:
        if len(cells) != len(columns):
            raise FileError(
                f"{path}: the row {','.join(cells)!r:.60} has {len(cells)} cells, but the header has "
                f"{len(columns)} columns"
            )
        row = dict(zip(columns, cells, strict=True))
        arm = row.pop(id_column)
        if arm in rows:
            raise FileError(f"{path}: two rows have the id {arm!r}; ids must be unique")
        rows[arm] = row
    return rows


def _features(arm: str, row: Mapping[str, str], path: Path) -> list[float]:
    """The cells of a row as numbers, in the order of the columns."""
    features = []
    for column, cell in row.items():
        try:
            features.append(float(cell))
        except ValueError:
            raise FileError(
                f"{path}: column {column!r} of arm {arm!r} must be a number, got {cell!r:.60}; text "
                "needs an encoding in the bandit's spec"
            ) from None
    return features


def _values(row: Mapping[str, str], encoding: Encoding) -> dict[str, Any]:
    """The cells of a row as an encoding expects them: categories, otherwise numbers."""
    values: dict[str, Any] = {}
    for column, cell in row.items():
        categories = encoding.categories.get(column)
        if categories is None:
            values[column] = _number_or_text(cell)
        else:
            by_text = {str(category): category for category in categories}
            values[column] = by_text.get(cell, cell)
    return values


def _number_or_text(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell
