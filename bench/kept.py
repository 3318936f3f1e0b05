"""Cells of a run that takes many hours, kept in the repository for another machine to resume.

::

    python -m bench.kept save RUN FOLDER --commit HASH  # cells, timings, audits; no states, which are large
    python -m bench.kept check FOLDER                   # replays first rounds with the present code
    python -m bench.kept restore FOLDER OUT             # then: superarm run EXPERIMENT --out OUT --resume

``superarm run --resume`` refuses the restored run if the experiment's parameters differ from those in its
``run.json``. That the code still decides the same, ``check`` shows: it compares choices and regret bit for
bit, or says in which round they differ first.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np

from superarm.core.states import atomic_write
from superarm.lab.experiments import Plan, load_experiment
from superarm.lab.simulation import cell_name, simulate
from superarm.lab.simulation.files import STATELESS, json_bytes, read_arrays

_FOLDERS = ("cells", "timings", "audits")
_COMMIT = "commit.txt"


class Cell(NamedTuple):
    """One policy in one setting with one seed."""

    policy: str
    setting_index: int
    seed: int

    @property
    def name(self) -> str:
        return cell_name(*self)


def plan_of(folder: Path) -> Plan:
    """The plan of a run that overrides nothing.

    Args:
        folder: A run's folder, or a kept one.
    """
    spec = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    experiment = load_experiment(spec["experiment"])
    return Plan.make(
        experiment,
        out=folder,
        rounds=spec["rounds"],
        seeds=spec["seeds"],
        first_seed=spec["first_seed"],
    )


def finished(plan: Plan) -> list[Cell]:
    """The cells of a run that are complete, setting by setting."""
    cells = []
    for index in range(len(plan.settings)):
        for seed in range(plan.first_seed, plan.first_seed + plan.seeds):
            for policy in plan.policies:
                cell = Cell(policy, index, seed)
                if (plan.out / "cells" / f"{cell.name}.npz").is_file():
                    cells.append(cell)
    return cells


def save(run: Path, folder: Path, policies: tuple[str, ...], commit: str) -> int:
    """Copy finished cells without their states; returns how many.

    Args:
        run: The run's folder.
        folder: Where they are kept; what is there already stays.
        policies: The policies whose cells are kept; all where empty.
        commit: The commit whose code played them, for the reader.
    """
    plan = plan_of(run)
    cells = [cell for cell in finished(plan) if not policies or cell.policy in policies]
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(run / "run.json", folder / "run.json")
    for name in _FOLDERS:
        (folder / name).mkdir(exist_ok=True)
        for cell in cells:
            source = run / name / f"{cell.name}.npz"
            if source.is_file():
                shutil.copyfile(source, folder / name / source.name)
    (folder / _COMMIT).write_text(f"{commit}\n", encoding="utf-8")
    return len(cells)


def restore(folder: Path, out: Path) -> int:
    """Make a run of kept cells that ``superarm run --resume`` completes; returns how many there are.

    Args:
        folder: Where cells are kept.
        out: The run's folder, which must not exist.
    """
    cells = finished(plan_of(folder))
    out.mkdir(parents=True)
    for name in _FOLDERS:
        shutil.copytree(folder / name, out / name)
    names = sorted(cell.name for cell in cells)
    atomic_write(out / STATELESS, json_bytes(names))
    shutil.copyfile(folder / "run.json", out / "run.json")
    return len(cells)


def first_difference(plan: Plan, cell: Cell, rounds: int) -> int | None:
    """The first of the cell's first rounds in which this code decides otherwise; ``None`` if none.

    Args:
        plan: The plan of the folder where cells are kept.
        cell: Which cell to replay.
        rounds: How many rounds.
    """
    experiment = plan.variants[cell.setting_index]
    world = experiment.build_problem(seed=cell.seed, horizon=plan.horizon)
    policy = experiment.build_policy(cell.policy, world)
    traces = simulate(world, {cell.policy: policy}, rounds=rounds, seed=cell.seed)
    replayed = traces[cell.policy]
    kept = read_arrays(plan.out / "cells" / f"{cell.name}.npz", rounds=plan.rounds)
    assert replayed.choices is not None
    # Rows are filled with -1 up to the longest route of all rounds.
    for step in range(rounds):
        now = replayed.choices[step]
        then = kept["choices"][step]
        same_choice = np.array_equal(now[now >= 0], then[then >= 0])
        same_regret = replayed.series["regret"][step] == kept["regret"][step]
        if not (same_choice and same_regret):
            return step + 1
    return None


def check(folder: Path, rounds: int, count: int) -> bool:
    """Replay some cells, the first of each policy; prints one line each.

    Args:
        folder: Where cells are kept.
        rounds: How many rounds of each.
        count: How many cells of each policy.
    """
    plan = plan_of(folder)
    by_policy: dict[str, list[Cell]] = {}
    for cell in finished(plan):
        by_policy.setdefault(cell.policy, []).append(cell)
    same = True
    for cells in by_policy.values():
        for cell in cells[:count]:
            step = first_difference(plan, cell, rounds)
            same = same and step is None
            result = "the same" if step is None else f"differs in round {step}"
            print(f"{cell.name}, {rounds} rounds: {result}")
    return same


def main() -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.kept", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    saving = commands.add_parser("save")
    saving.add_argument("run", type=Path)
    saving.add_argument("folder", type=Path)
    saving.add_argument("--commit", required=True, help="whose code played the cells")
    saving.add_argument("--policies", default="", help="only these, with commas")
    restoring = commands.add_parser("restore")
    restoring.add_argument("folder", type=Path)
    restoring.add_argument("out", type=Path)
    checking = commands.add_parser("check")
    checking.add_argument("folder", type=Path)
    checking.add_argument("--rounds", type=int, default=30)
    checking.add_argument("--cells", type=int, default=1, help="of each policy")
    arguments = parser.parse_args()
    if arguments.command == "save":
        policies = tuple(name for name in arguments.policies.split(",") if name)
        print(
            save(arguments.run, arguments.folder, policies, arguments.commit), "cells"
        )
    elif arguments.command == "restore":
        print(restore(arguments.folder, arguments.out), "cells")
    else:
        return 0 if check(arguments.folder, arguments.rounds, arguments.cells) else 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
