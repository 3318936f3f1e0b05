"""A finished run: its spec, and its cells stacked over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats
from superarm.core.capabilities import OWN_METRICS, Metric
from superarm.core.display import Displayable
from superarm.core.errors import InputError, SpecError, StateError, require_extra
from superarm.core.registry import require_kind
from superarm.core.road_map import RoadMap
from superarm.core.states import atomic_write
from superarm.movement import Tree

from .audit import audit_shapes
from .files import array_names, check_array, json_bytes, read_arrays, read_json
from .illustrations import (
    TreeMasses,
    TruthRecord,
    read_road_map,
    read_tree,
    read_tree_masses,
    read_truth,
)
from .run_spec import METRIC_KINDS, Drawing, read_spec
from .trace import RESERVED, cell_name

# Tables of summary.json: the type of each key of their rows.
_SUMMARY_KINDS: dict[str, dict[str, Any]] = {
    "claims": {"text": str, "verdict": str, "evidence": str},
    "rows": {
        "policy": str,
        "metric": str,
        "setting": Mapping[str, Any],
        "mean": float | None,
        "stderr": float | None,
    },
    "not_judged": {"text": str, "needs": Sequence[str]},
}


class Run(Displayable):
    """A finished run. It reads arrays when you first use them.

    Args:
        directory: The run's folder.
        spec: The content of its ``run.json``.
    """

    experiment: str
    title: str
    policies: tuple[str, ...]
    settings: tuple[Mapping[str, Any], ...]
    rounds: int
    seeds: range
    horizons: tuple[int, ...]
    """Lengths of shorter runs in which some policies planned for that horizon."""
    # Arrays of all seeds, by name, policy and setting.
    _stacks: dict[tuple[str, str, int], NDArray[Any]]

    def __init__(self, directory: Path, spec: Mapping[str, Any]) -> None:
        self.directory = directory
        self.spec = spec
        self.experiment = spec["experiment"]
        self.title = spec.get("title") or self.experiment
        self.policies = tuple(spec["policies"])
        self.settings = tuple(spec["settings"])
        self.rounds = spec["rounds"]
        first_seed = spec["first_seed"]
        self.seeds = range(first_seed, first_seed + spec["seeds"])
        self.horizons = tuple(spec.get("horizons", ()))
        self._stacks = {}

    @classmethod
    def load(cls, directory: Path | str) -> Self:
        """Open a run; every cell must exist.

        Args:
            directory: The run's folder.
        """
        run = cls(Path(directory), read_spec(directory))
        files = (run.directory / "cells").glob("*.npz")
        present = {path.stem for path in files}
        missing = [name for name in run.cells if name not in present]
        if missing:
            raise StateError(
                f"the run in {directory} is unfinished: {len(missing)} of {len(run.cells)} cells are "
                f"missing, first {missing[0]}; finish it with the same command and --resume"
            )
        return run

    def _display_fields(self) -> Mapping[str, Any]:
        """The experiment, its policies and the run's sizes."""
        return {
            "experiment": self.experiment,
            "policies": list(self.policies),
            "settings": len(self.settings),
            "seeds": len(self.seeds),
            "rounds": self.rounds,
        }

    # --- what run.json and summary.json contain ------------------------------------------

    @property
    def cells(self) -> tuple[str, ...]:
        """Names of all cells: settings outermost, seeds innermost."""
        keys = product(range(len(self.settings)), self.policies, self.seeds)
        return tuple(cell_name(policy, index, seed) for index, policy, seed in keys)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics that every setting has: ``regret``, then the others by name."""
        common = self.metrics_at(0)
        for index in range(1, len(self.settings)):
            metrics = self.metrics_at(index)
            common = tuple(name for name in common if name in metrics)
        return common

    def metrics_at(self, setting_index: int) -> tuple[str, ...]:
        """Metrics of one setting: problems differ where they are swept.

        Args:
            setting_index: The setting's position in the run.
        """
        policy = self.policies[0]
        seed = self.seeds[0]
        path = self._path("cells", policy, setting_index, seed)
        others = set(array_names(path)) - RESERVED - {"regret"}
        return ("regret", *sorted(others))

    def interpretations(self, setting_index: int) -> Mapping[str, str]:
        """How the problem of a setting describes itself, and how it reads unclear points.

        Args:
            setting_index: The setting's position in the run.
        """
        descriptions: Sequence[Mapping[str, str]] = self.spec.get("settled", ())
        return descriptions[setting_index] if descriptions else {}

    def shared_data(self, setting_index: int) -> float:
        """The mean share of a seed's records that another seed of the setting uses, too.

        Args:
            setting_index: The setting's position in the run.
        """
        shares: Sequence[float] = self.spec.get("shared_data", ())
        return shares[setting_index] if shares else 0.0

    def independent_seeds(self, setting_index: int) -> float:
        """How many independent seeds all seeds of a setting are worth at most.

        ∞ where that is open.

        Args:
            setting_index: The setting's position in the run.
        """
        counts: Sequence[float | None] = self.spec.get("independent_seeds", ())
        if not counts:
            return np.inf
        count = counts[setting_index]
        return np.inf if count is None else count

    def metric(self, name: str, setting_index: int) -> Metric:
        """How to read a metric in a setting; by its name where nobody described it.

        Args:
            name: The metric's name.
            setting_index: The setting's position in the run.
        """
        descriptions = self.spec.get("metrics")
        if descriptions:
            description = descriptions[setting_index].get(name)
            if description is not None:
                fields = {key: description[key] for key in METRIC_KINDS}
                return Metric(**fields)
        undescribed = Metric(name.replace("_", " "))
        return OWN_METRICS.get(name, undescribed)

    @property
    def derived(self) -> list[dict[str, str]]:
        """Rows of the summary that can be followed round by round.

        Each has a ``name`` and a ``metric``. A ratio to a policy of the run has
        ``versus``, too; the others are means over rounds.
        """
        rows = []
        for row in self.spec.get("derived", ()):
            name = row.get("name")
            metric = row.get("metric", "regret")
            versus = row.get("versus")
            if not isinstance(name, str) or metric not in self.metrics:
                continue
            if versus in self.policies:
                rows.append({"name": name, "metric": metric, "versus": versus})
            elif versus is None and row.get("per_round"):
                rows.append({"name": name, "metric": metric})
        return rows

    @property
    def chart(self) -> Drawing:
        """Options of the experiment's charts."""
        return Drawing(**self.spec.get("chart", {}))

    @property
    def summary(self) -> Mapping[str, Any]:
        """What the command printed: rows and claims, checked."""
        path = self.directory / "summary.json"
        summary: dict[str, Any] = read_json(path)
        try:
            require_kind(summary, Mapping[str, Any], "what it holds")
            for name, kinds in _SUMMARY_KINDS.items():
                _check_table(summary.get(name), name, kinds)
        except SpecError as error:
            raise StateError(f"{path}: {error}; run again with --resume") from None
        return summary

    def at_horizon(self, horizon: int) -> Run:
        """The run of one of :attr:`horizons`.

        Args:
            horizon: Its length in rounds.
        """
        return Run.load(self.directory / "horizons" / str(horizon))

    # --- what cells contain --------------------------------------------------------------

    def to_frame(self) -> Any:
        """A pandas table of totals: one row per setting, policy, seed and metric."""
        pandas = require_extra("pandas", "frame")
        rows = []
        for index, setting in enumerate(self.settings):
            for policy, metric in product(self.policies, self.metrics_at(index)):
                totals = self.cumulative(policy, index, metric)[:, -1]
                for seed, total in zip(self.seeds, totals, strict=True):
                    row = {
                        **setting,
                        "policy": policy,
                        "seed": seed,
                        "metric": metric,
                        "total": float(total),
                    }
                    rows.append(row)
        return pandas.DataFrame(rows)

    def cumulative(
        self, policy: str, setting_index: int = 0, metric: str = "regret"
    ) -> Floats:
        """Running totals of a metric, (seeds, T).

        Args:
            policy: A policy's name.
            setting_index: The setting's position in the run.
            metric: One of :attr:`metrics`.
        """
        if metric in RESERVED:
            raise InputError(
                f"{metric!r} is not a metric of rounds; this run has {list(self.metrics)}"
            )
        return self._stack(metric, policy, setting_index)

    def seconds(self, policy: str, setting_index: int = 0) -> NDArray[np.float32]:
        """Time that the policy took in each round, in seconds, (seeds, T).

        Args:
            policy: A policy's name.
            setting_index: The setting's position in the run.
        """
        return self._stack("seconds", policy, setting_index)

    def is_timed(self, setting_index: int = 0) -> bool:
        """Whether a setting has its times: a run may have been copied without them.

        Args:
            setting_index: The setting's position in the run.
        """
        for policy, seed in product(self.policies, self.seeds):
            path = self._path("timings", policy, setting_index, seed)
            if not path.exists():
                return False
        return True

    def seconds_per_round(self, policy: str, setting_index: int = 0) -> float:
        """Mean time of a round over seeds and rounds, in seconds.

        Leaves out rounds that compile code and fill caches: the first one, or the first
        block where many are played in one call, whose rounds share its time equally.

        Args:
            policy: A policy's name.
            setting_index: The setting's position in the run.
        """
        return float(self.seconds_of_seeds(policy, setting_index).mean())

    def seconds_of_seeds(self, policy: str, setting_index: int = 0) -> Floats:
        """The mean of :meth:`seconds_per_round` for every seed by itself, (seeds,).

        Args:
            policy: A policy's name.
            setting_index: The setting's position in the run.
        """
        seconds = self.seconds(policy, setting_index)
        means = [_mean_after_first_block(of_seed) for of_seed in seconds]
        return np.array(means)

    def audit(
        self, policy: str, setting_index: int, seed: int
    ) -> dict[str, NDArray[Any]] | None:
        """Arrays that :mod:`superarm.lab.simulation.audit` describes.

        ``None`` where they were not recorded.

        Args:
            policy: A policy's name.
            setting_index: The setting's position in the run.
            seed: One of :attr:`seeds`.
        """
        path = self._path("audits", policy, setting_index, seed)
        if not path.exists():
            return None
        arrays = read_arrays(path, rounds=self.rounds)
        for name, shape in audit_shapes(self.rounds).items():
            # Scores may be NaN or infinite; a count is unknown at worst.
            check_array(
                arrays.get(name),
                shape,
                path,
                name,
                kinds="f",
                allow_nan=True,
                allow_infinity=name != "firsts",
            )
        return arrays

    def choices(self, policy: str, setting_index: int, seed: int) -> NDArray[np.int32]:
        """Chosen positions, (T, k), padded with −1.

        Args:
            policy: A policy's name.
            setting_index: The setting's position in the run.
            seed: One of :attr:`seeds`.
        """
        return self._array("choices", policy, setting_index, seed)

    def propensities(self, policy: str, setting_index: int, seed: int) -> Floats | None:
        """Probability of each round's action, (T,), NaN where unknown; see :class:`Trace`.

        Args:
            policy: A policy's name.
            setting_index: The setting's position in the run.
            seed: One of :attr:`seeds`.
        """
        path = self._path("cells", policy, setting_index, seed)
        if "propensities" not in array_names(path):
            return None
        return self._array("propensities", policy, setting_index, seed)

    def _path(self, folder: str, policy: str, setting_index: int, seed: int) -> Path:
        if policy not in self.policies:
            raise InputError(
                f"policy {policy!r} is not in this run; it has {list(self.policies)}"
            )
        if not 0 <= setting_index < len(self.settings):
            raise InputError(
                f"setting {setting_index} is not in this run of {len(self.settings)} settings"
            )
        return self.directory / folder / f"{cell_name(policy, setting_index, seed)}.npz"

    def _array(
        self, name: str, policy: str, setting_index: int, seed: int
    ) -> NDArray[Any]:
        folder = "timings" if name == "seconds" else "cells"
        path = self._path(folder, policy, setting_index, seed)
        rounds = self.rounds
        array = read_arrays(path, only=name, rounds=rounds)[name]
        if name == "choices":
            width = array.size // rounds
            return check_array(array, (rounds, width), path, name, "i")
        unknown_is_nan = name == "propensities"
        return check_array(array, (rounds,), path, name, allow_nan=unknown_is_nan)

    def _stack(self, name: str, policy: str, setting_index: int) -> NDArray[Any]:
        """The array of all seeds, (seeds, T): running totals, unless it holds seconds."""
        key = (name, policy, setting_index)
        if key not in self._stacks:
            arrays = [self._array(*key, seed) for seed in self.seeds]
            stack = np.stack(arrays)
            if name != "seconds":
                np.cumsum(stack, axis=1, out=stack)
            stack.flags.writeable = False
            self._stacks[key] = stack
        return self._stacks[key]

    # --- what charts show beside the cells -----------------------------------------------

    def road_map(self, setting_index: int = 0) -> RoadMap | None:
        """The roads that the arms of a setting are; ``None`` where they are no roads.

        Args:
            setting_index: The setting's position in the run.
        """
        return read_road_map(self.directory, setting_index)

    def tree(self, setting_index: int = 0) -> Tree | None:
        """A tree over the actions; ``None`` where none was recorded.

        Args:
            setting_index: The setting's position in the run.
        """
        return read_tree(self.directory, setting_index)

    def tree_masses(self, setting_index: int = 0) -> TreeMasses | None:
        """The tree that a policy walks on, and its probabilities.

        ``None`` where none was recorded.

        Args:
            setting_index: The setting's position in the run.
        """
        return read_tree_masses(self.directory, setting_index, self.policies)

    def truth(self, setting_index: int = 0) -> TruthRecord | None:
        """The first seed's truth; ``None`` where it was not recorded.

        Args:
            setting_index: The setting's position in the run.
        """
        return read_truth(self.directory, setting_index, self.rounds)


def _check_table(table: Any, name: str, kinds: Mapping[str, Any]) -> None:
    """Refuse a table of a summary that is none, or whose rows have values of other types."""
    require_kind(table, Sequence[Mapping[str, Any]], repr(name))
    for row in table:
        for key, kind in kinds.items():
            value = row.get(key)
            require_kind(value, kind, f"{key!r} in {name!r}")


def _mean_after_first_block(seconds: NDArray[np.float32]) -> float:
    """The mean time of rounds after the first block; of all where there is one block only.

    Args:
        seconds: The time of each round, equal within a block, (T,).
    """
    differs = seconds != seconds[0]
    later = np.logical_or.accumulate(differs)
    if not later.any():
        later[:] = True
    return float(seconds[later].mean(dtype=float))


def write_cells(run: Run) -> None:
    """Write ``cells.jsonl``: each cell's totals in a row, by setting, policy and seed.

    Args:
        run: The finished run.
    """
    indices = range(len(run.settings))
    rows = []
    for index, policy, seed in product(indices, sorted(run.policies), run.seeds):
        path = run._path("cells", policy, index, seed)
        row: dict[str, Any] = {
            "cell": path.stem,
            "policy": policy,
            "seed": seed,
            "setting": run.settings[index],
        }
        metrics = set(array_names(path)) - RESERVED
        for metric in sorted(metrics):
            values = run._array(metric, policy, index, seed)
            row[metric] = float(values.sum())
        rows.append(json_bytes(row))
    atomic_write(run.directory / "cells.jsonl", b"".join(rows))
