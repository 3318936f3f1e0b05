"""Do shipped experiments give the numbers that an earlier commit gives?

Every experiment is run on both sides by ``superarm run``, with its first seed and few rounds. All arrays
in the cells of a run (regret, choices, metrics) are compared bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superarm.lab.experiments import experiment_ids

from .sides import Side

ROUNDS = 24
"""Rounds of an experiment, unless ``--rounds`` says otherwise."""
FEWER_ROUNDS = {"navigation/svgp": 12}
"""Rounds of experiments whose rounds take seconds."""


class Answer(NamedTuple):
    """What the comparison of one experiment found."""

    experiment: str
    rounds: int
    cells: int
    differences: list[str]  # one line for each array or cell that differs

    @property
    def verdict(self) -> str:
        if self.differences:
            return "different"
        return "the same" if self.cells else "not run"


def differences_of(old: Path, new: Path) -> list[str]:
    """The arrays of a cell that differ, each with the first round in which it does.

    Args:
        old: The cell's file from the earlier commit.
        new: The cell's file from this checkout.
    """
    differences = []
    with np.load(old) as earlier, np.load(new) as present:
        for name in sorted({*earlier.files, *present.files}):
            label = f"{new.stem}: {name}"
            if name not in earlier.files or name not in present.files:
                differences.append(f"{label} is on one side only")
                continue
            before = earlier[name]
            after = present[name]
            if before.dtype != after.dtype or before.shape != after.shape:
                differences.append(
                    f"{label} was {before.dtype} {before.shape}, is {after.dtype} {after.shape}"
                )
            elif before.tobytes() != after.tobytes():
                step = _first_difference(before, after)
                differences.append(f"{label} differs from round {step} on")
    return differences


def _first_difference(before: NDArray[Any], after: NDArray[Any]) -> int:
    """The first round, from 1, in which arrays of one type and shape have other bits."""
    bytes_before = np.frombuffer(before.tobytes(), np.uint8)
    bytes_after = np.frombuffer(after.tobytes(), np.uint8)
    first_byte = int(np.argmax(bytes_before != bytes_after))
    return first_byte // (before.nbytes // len(before)) + 1


def compare_runs(old: Path, new: Path) -> tuple[int, list[str]]:
    """Compare all cells of two runs: how many there are, and what differs.

    Args:
        old: The run's folder from the earlier commit.
        new: The run's folder from this checkout.
    """
    earlier = {path.name for path in (old / "cells").glob("*.npz")}
    present = {path.name for path in (new / "cells").glob("*.npz")}
    differences = [f"{name} is on one side only" for name in sorted(earlier ^ present)]
    shared = sorted(earlier & present)
    for name in shared:
        differences += differences_of(old / "cells" / name, new / "cells" / name)
    return len(shared), differences


def compare_experiment(old: Side, new: Side, name: str, rounds: int) -> Answer:
    """Run one experiment on both sides and compare.

    Args:
        old: The earlier commit.
        new: This checkout.
        name: The experiment's id.
        rounds: How many rounds.
    """
    with TemporaryDirectory() as folder:
        errors = []
        outs = []
        for label, side in (("old", old), ("new", new)):
            out = Path(folder) / label
            outs.append(out)
            done = side.run(
                [
                    *(
                        "superarm",
                        "run",
                        name,
                        "--quiet",
                        "--jobs",
                        "1",
                        "--seeds",
                        "1",
                    ),
                    *("--rounds", str(rounds), "--out", str(out)),
                ]
            )
            if done.returncode:
                errors.append(done.stderr.strip().rpartition("\n")[2])
        if len(errors) == 2:  # data or a library is missing on both sides
            print(f"{name} does not run here: {errors[1]}", flush=True)
            return Answer(name, rounds, cells=0, differences=[])
        if errors:
            return Answer(name, rounds, cells=0, differences=errors)
        cells, differences = compare_runs(*outs)
    return Answer(name, rounds, cells, differences)


def compare_experiments(
    old: Side, new: Side, names: Sequence[str], rounds: int | None
) -> bool:
    """Print one line for every experiment; returns whether none differs.

    Args:
        old: The earlier commit.
        new: This checkout.
        names: Ids of experiments; all shipped ones where empty.
        rounds: How many rounds; ``None``: the defaults above.
    """
    print("| experiment | rounds | cells | numbers |\n|---|---:|---:|---|", flush=True)
    agrees = True
    for name in names or experiment_ids():
        count = rounds or FEWER_ROUNDS.get(name, ROUNDS)
        answer = compare_experiment(old, new, name, count)
        print(f"| {name} | {count} | {answer.cells} | {answer.verdict} |", flush=True)
        for difference in answer.differences:
            print(f"  {difference}", flush=True)
        agrees = agrees and not answer.differences
    return agrees
