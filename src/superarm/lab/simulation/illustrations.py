"""What charts show beside the cells: maps of roads, the truth, and trees over actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats, Ints
from superarm.core.errors import InputError, ShapeError, StateError
from superarm.core.inputs import as_vector
from superarm.core.road_map import RoadMap
from superarm.core.states import atomic_write
from superarm.movement import Tree

from .files import check_array, damaged, npz_bytes, read_arrays

_ROUNDING = 1e-9  # by which a probability may exceed 1


class TruthRecord(NamedTuple):
    """Expected rewards of fixed arms as they change: m rounds, n arms of d columns."""

    rounds: Ints  # (m,)
    values: Floats  # (m, n)
    places: Floats  # the features of the arms, (n, d)


class TreeMasses(NamedTuple):
    """The tree that a policy walks on, and its probabilities after the last round."""

    tree: Tree
    q: Floats  # (v,), of each vertex given its parent
    policy: str


def write_illustration(
    directory: Path | str, setting_index: int, content: RoadMap | TruthRecord | Tree
) -> None:
    """Write the roads of a setting, the first seed's truth, or a tree over the actions.

    Args:
        directory: The run's folder.
        setting_index: The setting's position in the run.
        content: What charts show.
    """
    if isinstance(content, RoadMap):
        folder = "maps"
        arrays = content.as_arrays()
    elif isinstance(content, TruthRecord):
        folder = "truths"
        arrays = content._asdict()
    else:
        folder = "trees"
        arrays = _tree_arrays(content)
    path = Path(directory) / folder / f"s{setting_index}.npz"
    atomic_write(path, npz_bytes(arrays))


def write_masses(
    directory: Path | str,
    setting_index: int,
    policies: Sequence[str],
    masses: TreeMasses,
) -> None:
    """Write the tree that a policy walks on, with its probabilities.

    Args:
        directory: The run's folder.
        setting_index: The setting's position in the run.
        policies: Names of the run's policies, in its order.
        masses: The tree, its probabilities, and the policy's name.
    """
    arrays = _tree_arrays(masses.tree)
    arrays["q"] = masses.q
    arrays["policy"] = np.array(list(policies).index(masses.policy))
    path = Path(directory) / "trees" / f"q{setting_index}.npz"
    atomic_write(path, npz_bytes(arrays))


def read_road_map(directory: Path, setting_index: int) -> RoadMap | None:
    """Read the roads of a setting; ``None`` where its arms are no roads.

    Args:
        directory: The run's folder.
        setting_index: The setting's position in the run.
    """
    path = directory / "maps" / f"s{setting_index}.npz"
    if not path.exists():
        return None
    arrays = read_arrays(path)
    try:
        return RoadMap.from_arrays(arrays)
    except StateError as error:
        raise damaged(path, str(error)) from None


def read_tree(directory: Path, setting_index: int) -> Tree | None:
    """Read a setting's tree over the actions; ``None`` where none was recorded.

    Args:
        directory: The run's folder.
        setting_index: The setting's position in the run.
    """
    path = directory / "trees" / f"s{setting_index}.npz"
    if not path.exists():
        return None
    arrays = read_arrays(path)
    try:
        return _tree_from_arrays(arrays)
    except InputError as error:
        raise damaged(path, str(error)) from None


def read_tree_masses(
    directory: Path, setting_index: int, policies: Sequence[str]
) -> TreeMasses | None:
    """Read what :func:`write_masses` wrote; ``None`` where none was recorded.

    Args:
        directory: The run's folder.
        setting_index: The setting's position in the run.
        policies: Names of the run's policies, in its order.
    """
    path = directory / "trees" / f"q{setting_index}.npz"
    if not path.exists():
        return None
    arrays = read_arrays(path)
    try:
        tree = _tree_from_arrays(arrays)
        q = as_vector(arrays.get("q", np.nan), "q", len(tree.parent))
    except (InputError, ShapeError) as error:
        raise damaged(path, str(error)) from None
    number = arrays.get("policy", np.array(-1))
    if number.size != 1 or not 0 <= int(number) < len(policies):
        raise damaged(path, "its policy is not in the run")
    if q.min() < 0.0 or q.max() > 1.0 + _ROUNDING:
        raise damaged(path, "q has values outside [0, 1]")
    return TreeMasses(tree, q, policies[int(number)])


def read_truth(directory: Path, setting_index: int, rounds: int) -> TruthRecord | None:
    """Read the first seed's truth; ``None`` where it was not recorded.

    Args:
        directory: The run's folder.
        setting_index: The setting's position in the run.
        rounds: Rounds of the run, which limit the file's size.
    """
    path = directory / "truths" / f"s{setting_index}.npz"
    if not path.exists():
        return None
    arrays = read_arrays(path, rounds=rounds)
    truth = TruthRecord(
        rounds=_array_or_nan(arrays, "rounds"),
        values=_array_or_nan(arrays, "values"),
        places=_array_or_nan(arrays, "places"),
    )
    m = max(1, len(truth.rounds))
    n = max(1, len(truth.places))
    d = max(1, truth.places.size // n)
    check_array(truth.rounds, (m,), path, "rounds", "fi")
    check_array(truth.values, (m, n), path, "values", "fi")
    check_array(truth.places, (n, d), path, "places", "fi")
    if (np.diff(truth.rounds, prepend=0) <= 0).any():
        raise damaged(path, "'rounds' must rise from 1 on")
    return truth


def _tree_arrays(tree: Tree) -> dict[str, NDArray[Any]]:
    return {"parent": tree.parent, "weight": tree.weight, "leaf": tree.leaf}


def _tree_from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Tree:
    return Tree(
        parent=_array_or_nan(arrays, "parent"),
        weight=_array_or_nan(arrays, "weight"),
        leaf=_array_or_nan(arrays, "leaf"),
    )


def _array_or_nan(arrays: Mapping[str, NDArray[Any]], name: str) -> NDArray[Any]:
    """An array of a file; NaN, which no check accepts, where it is missing."""
    return np.atleast_1d(arrays.get(name, np.nan))
