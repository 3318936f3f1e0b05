"""How a run lies on disk: write a cell, read it back, and see all cells as one run.

::

    OUT/run.json            what was run (schema 1): experiment, rounds, seeds, policies, settings, …
    OUT/cells/<cell>.npz    one per (policy, setting, seed): "regret" (T,) and further metrics by
                            name, per round; "choices" (T, k), padded with -1; "propensities" (T,)
                            where any known one is below 1
    OUT/timings/<cell>.npz  "seconds" (T,): apart, so that traces are byte-identical between runs
    OUT/audits/<cell>.npz   whether forecasts were true, and what was believed at the end: see audit.py
    OUT/states/<cell>.npz   what was learned, as ``superarm.states`` writes it
    OUT/maps/s<setting>.npz the roads that the arms are, where they are roads
    OUT/cells.jsonl         one flat row per cell, written once all cells are there
    OUT/summary.json        the object that the command prints

Every file appears whole or not at all. The other files of a cell are written before the cell
itself: a cell that is there is finished. Audits, states and maps are there where the problem has
fixed arms whose rewards add up; traces do without them.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Self, get_type_hints

import numpy as np
from numpy.typing import NDArray

from superarm.capabilities import OWN_METRICS, Metric
from superarm.core import Floats, State
from superarm.errors import InputError, ShapeError, SpecError, StateError
from superarm.inputs import as_plain, as_vector
from superarm.networks import RoadMap
from superarm.registry import require_kind
from superarm.states import state_to_bytes

from .audit import audit_shapes
from .files import array_names, atomic_write, json_bytes, npz_bytes, read_arrays, read_json

SCHEMA = 1
_RESERVED = frozenset({"choices", "propensities", "seconds"})
_REQUIRED: dict[str, type] = {
    "experiment": str,
    "rounds": int,
    "first_seed": int,
    "seeds": int,
    "policies": list,
    "settings": list,
}
_OPTIONAL: dict[str, Any] = {
    **dict.fromkeys(("title", "paper", "figure", "description", "version"), str),
    "overrides": Mapping[str, Any],
    "parameters": Mapping[str, Any],
    "settled": Mapping[str, str],
    "metrics": Mapping[str, Mapping[str, Any]],
    "audited": Sequence[str],
    "noise_variance": Sequence[float | None],
}
_METRIC_KINDS = get_type_hints(Metric)
_MOST_CELLS = 10**7
_MANGLED = re.compile(r"-[0-9a-f]{8}\Z")
_NAME = re.compile(r"(?P<policy>.+)\.s(?P<setting>\d+)\.seed(?P<seed>\d{5,})")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """One policy in one setting with one seed, round by round."""

    policy: str
    setting: Mapping[str, Any]
    """The swept keys and their values; empty when nothing is swept."""
    setting_index: int
    seed: int
    series: Mapping[str, Floats]
    """Per-round (not cumulative) metrics by name, each (T,); always holds ``regret``."""
    choices: NDArray[np.int32] | None = None
    """Chosen positions, (T, k), padded with -1."""
    propensities: Floats | None = None
    """Probability of each round's action, (T,), NaN where it is not known."""
    seconds: NDArray[np.float32] | None = None
    """Time that the policy took in each round, (T,)."""
    audit: Mapping[str, NDArray[Any]] | None = None
    """Arrays that :mod:`superarm.simulation.audit` describes."""
    state: State | None = None
    """What the policy had learned at the end."""

    def __post_init__(self) -> None:
        if "regret" not in self.series:
            raise InputError(f"the series {sorted(self.series)} lack 'regret', which every trace has")
        if reserved := _RESERVED.intersection(self.series):
            raise InputError(f"{sorted(reserved)} cannot be the name of a metric; rename it")
        rounds = len(np.atleast_1d(self.series["regret"]))
        for name, values in self.series.items():
            as_vector(values, name, rounds)
        if self.choices is not None and (self.choices.ndim != 2 or len(self.choices) != rounds):
            raise ShapeError(f"choices has shape {self.choices.shape}; it must be ({rounds}, k)")
        if self.seconds is not None:
            as_vector(self.seconds, "seconds", rounds)
        if self.propensities is not None and self.propensities.shape != (rounds,):
            raise ShapeError(f"propensities has shape {self.propensities.shape}, not ({rounds},)")

    @property
    def name(self) -> str:
        """The cell's name on disk."""
        return cell_name(self.policy, self.setting_index, self.seed)

    @property
    def rounds(self) -> int:
        return len(self.series["regret"])


def cell_name(policy: str, setting_index: int, seed: int) -> str:
    """A file-system safe name, different for different cells.

    >>> cell_name("igp-ucb", 0, 3)
    'igp-ucb.s0.seed00003'
    """
    safe = re.sub(r"[^a-z0-9_-]+", "_", policy.lower())[:80]
    if safe != policy or _MANGLED.search(
        safe
    ):  # keeps "GP" and "gp" apart where the file system ignores case
        safe = f"{safe}-{zlib.crc32(policy.encode()):08x}"
    return f"{safe}.s{setting_index}.seed{seed:05d}"


def write_spec(directory: Path | str, spec: Mapping[str, Any]) -> None:
    """Write ``run.json``, after the same checks that reading it makes."""
    path = Path(directory) / "run.json"
    complete = {"schema": SCHEMA, **spec}
    _check_spec(as_plain(complete), path)
    atomic_write(path, json_bytes(complete))


def write_trace(directory: Path | str, trace: Trace) -> Path:
    """Write one cell, its timing first; equal traces give equal bytes."""
    directory = Path(directory)
    name = f"{trace.name}.npz"
    if trace.seconds is not None:
        seconds = np.asarray(trace.seconds, dtype=np.float32)
        atomic_write(directory / "timings" / name, npz_bytes({"seconds": seconds}))
    if trace.audit is not None:
        atomic_write(directory / "audits" / name, npz_bytes(trace.audit))
    if trace.state is not None:
        atomic_write(directory / "states" / name, state_to_bytes(trace.state))
    arrays: dict[str, NDArray[Any]] = {
        key: np.asarray(trace.series[key], dtype=np.float64) for key in sorted(trace.series)
    }
    if trace.choices is not None:
        arrays["choices"] = np.asarray(trace.choices, dtype=np.int32)
    if trace.propensities is not None:
        arrays["propensities"] = np.asarray(trace.propensities, dtype=np.float64)
    path = directory / "cells" / name
    atomic_write(path, npz_bytes(arrays))
    return path


def write_map(directory: Path | str, setting_index: int, roads: RoadMap) -> None:
    """Write the roads of a setting."""
    path = Path(directory) / "maps" / f"s{setting_index}.npz"
    atomic_write(path, npz_bytes(roads.as_arrays()))


def read_trace(directory: Path | str, name: str) -> Trace:
    """Read one cell of the run in ``directory`` by its name."""
    return _read_cell(Path(directory), read_spec(directory), name)


def write_cells(directory: Path | str) -> Path:
    """Write ``cells.jsonl``: each cell's totals in one row, sorted by setting, policy and seed."""
    run = Run.load(directory)
    rows = []
    for index, policy, seed in product(range(len(run.settings)), sorted(run.policies), run.seeds):
        name = cell_name(policy, index, seed)
        trace = _read_cell(run.directory, run.spec, name)
        totals = {key: float(trace.series[key].sum()) for key in sorted(trace.series)}
        row = {"cell": name, "policy": policy, "seed": seed, "setting": dict(trace.setting), **totals}
        rows.append(json_bytes(row))
    path = run.directory / "cells.jsonl"
    atomic_write(path, b"".join(rows))
    return path


class Run:
    """A finished run: its spec, and its cells stacked over seeds. Arrays are read when first used."""

    def __init__(self, directory: Path, spec: Mapping[str, Any]) -> None:
        self.directory = directory
        self.spec = spec
        self._stacks: dict[tuple[str, str, int, str], NDArray[Any]] = {}

    @classmethod
    def load(cls, directory: Path | str) -> Self:
        """Open the run; every cell must be there."""
        directory = Path(directory)
        run = cls(directory, read_spec(directory))
        cells = directory / "cells"
        present = {path.stem for path in cells.glob("*.npz")} if cells.is_dir() else set()
        missing = [name for name in run.cells if name not in present]
        if missing:
            raise StateError(
                f"the run in {directory} is unfinished: {len(missing)} of {len(run.cells)} cells are "
                f"missing, first {missing[0]}; finish it with the same command and --resume"
            )
        return run

    def __repr__(self) -> str:
        return (
            f"Run({self.experiment!r}, policies={len(self.policies)}, settings={len(self.settings)}, "
            f"seeds={len(self.seeds)}, rounds={self.rounds})"
        )

    @property
    def experiment(self) -> str:
        return str(self.spec["experiment"])

    @property
    def title(self) -> str:
        return str(self.spec.get("title") or self.experiment)

    @property
    def policies(self) -> tuple[str, ...]:
        return tuple(self.spec["policies"])

    @property
    def settings(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(self.spec["settings"])

    @property
    def rounds(self) -> int:
        return int(self.spec["rounds"])

    @property
    def seeds(self) -> range:
        first = int(self.spec["first_seed"])
        return range(first, first + int(self.spec["seeds"]))

    @property
    def cells(self) -> tuple[str, ...]:
        """Names of all cells: settings outermost, seeds innermost."""
        keys = product(range(len(self.settings)), self.policies, self.seeds)
        return tuple(cell_name(policy, index, seed) for index, policy, seed in keys)

    @property
    def metrics(self) -> tuple[str, ...]:
        """What every round was measured by: ``regret``, then the others by name."""
        names = array_names(self.directory / "cells" / f"{self.cells[0]}.npz")
        return ("regret", *sorted(set(names) - _RESERVED - {"regret"}))

    def metric(self, name: str) -> Metric:
        """How a metric is read; one that nobody described, by its name."""
        told = self.spec.get("metrics", {}).get(name)
        if told is not None:
            return Metric(**{key: told[key] for key in _METRIC_KINDS})
        return OWN_METRICS.get(name, Metric(name.replace("_", " ")))

    @property
    def traces(self) -> tuple[Trace, ...]:
        """Every cell in full, in the order of :attr:`cells`; read anew each time."""
        return tuple(_read_cell(self.directory, self.spec, name) for name in self.cells)

    @property
    def summary(self) -> Mapping[str, Any]:
        """What the command printed: rows and claims."""
        value = read_json(self.directory / "summary.json")
        if not isinstance(value, dict):
            raise StateError(f"{self.directory / 'summary.json'} must hold one JSON object; run again")
        return value

    def cumulative(self, policy: str, setting_index: int = 0, metric: str = "regret") -> Floats:
        """Running totals of a metric, (seeds, T)."""
        if metric in _RESERVED:
            raise InputError(f"{metric!r} is not a metric of rounds; this run has {list(self.metrics)}")
        return self._stack("cells", policy, setting_index, metric)

    def seconds(self, policy: str, setting_index: int = 0) -> NDArray[np.float32]:
        """Time that the policy took in each round, (seeds, T)."""
        return self._stack("timings", policy, setting_index, "seconds")

    def audit(self, policy: str, setting_index: int, seed: int) -> dict[str, NDArray[Any]] | None:
        """What :mod:`superarm.simulation.audit` describes; ``None`` where it was not recorded."""
        path = self.directory / "audits" / f"{cell_name(policy, setting_index, seed)}.npz"
        if not path.exists():
            return None
        arrays = read_arrays(path, rounds=self.rounds)
        for name, shape in audit_shapes(self.rounds).items():
            if name not in arrays or arrays[name].shape != shape or arrays[name].dtype.kind != "f":
                raise StateError(
                    f"{path} is damaged: {name!r} must be numbers of shape {shape}; delete it and run "
                    "again with --resume"
                )
        return arrays

    def choices(self, policy: str, setting_index: int, seed: int) -> NDArray[np.int32]:
        """Chosen positions, (T, k), padded with −1."""
        path = self.directory / "cells" / f"{cell_name(policy, setting_index, seed)}.npz"
        chosen: NDArray[np.int32] = read_arrays(path, only="choices", rounds=self.rounds)["choices"]
        if chosen.ndim != 2 or len(chosen) != self.rounds or chosen.dtype.kind != "i":
            raise StateError(
                f"{path} is damaged: choices has shape {chosen.shape} for {self.rounds} rounds; delete "
                "it and run again with --resume"
            )
        return chosen

    def road_map(self, setting_index: int = 0) -> RoadMap | None:
        """The roads that the arms of a setting are; ``None`` where they are no roads."""
        path = self.directory / "maps" / f"s{setting_index}.npz"
        return RoadMap.from_arrays(read_arrays(path)) if path.exists() else None

    def _stack(self, folder: str, policy: str, setting_index: int, metric: str) -> NDArray[Any]:
        if policy not in self.policies:
            raise InputError(f"policy {policy!r} is not in this run; it has {list(self.policies)}")
        if not 0 <= setting_index < len(self.settings):
            raise InputError(
                f"setting {setting_index} is not in this run of {len(self.settings)} settings"
            )
        key = (folder, policy, setting_index, metric)
        if key not in self._stacks:
            rows = []
            for seed in self.seeds:
                path = self.directory / folder / f"{cell_name(policy, setting_index, seed)}.npz"
                arrays = read_arrays(path, only=metric, rounds=self.rounds)
                _check_length(arrays[metric], self.rounds, path, metric)
                rows.append(arrays[metric])
            stacked = np.stack(rows)
            if folder == "cells":
                np.cumsum(stacked, axis=1, out=stacked)
            stacked.flags.writeable = False
            self._stacks[key] = stacked
        return self._stacks[key]


def _check_length(array: NDArray[Any], rounds: int, path: Path, name: str) -> None:
    if array.ndim == 0 or len(array) != rounds or array.dtype.kind not in "fiu":
        raise StateError(
            f"{path}: {name} has shape {array.shape} but the run has {rounds} rounds; "
            "delete the file and run again with --resume"
        )


def _read_cell(directory: Path, spec: Mapping[str, Any], name: str) -> Trace:
    parts = _NAME.fullmatch(name)
    index, seed = (int(parts["setting"]), int(parts["seed"])) if parts else (-1, -1)
    policy = next((each for each in spec["policies"] if cell_name(each, index, seed) == name), None)
    seeds = range(spec["first_seed"], spec["first_seed"] + spec["seeds"])
    if policy is None or index >= len(spec["settings"]) or seed not in seeds:
        raise InputError(f"cell {name!r} is not part of the run in {directory}")
    path, rounds = directory / "cells" / f"{name}.npz", spec["rounds"]
    arrays = read_arrays(path, rounds=rounds)
    for key, array in arrays.items():
        _check_length(array, rounds, path, key)
    timing = directory / "timings" / f"{name}.npz"
    choices, propensities = arrays.pop("choices", None), arrays.pop("propensities", None)
    try:
        return Trace(
            policy=policy,
            setting=spec["settings"][index],
            setting_index=index,
            seed=seed,
            series=arrays,
            choices=choices,
            propensities=propensities,
            seconds=read_arrays(timing, only="seconds", rounds=rounds)["seconds"]
            if timing.exists()
            else None,
        )
    except InputError as error:
        raise StateError(f"{path}: {error}; delete it and run again with --resume") from error


def read_spec(directory: Path | str) -> Mapping[str, Any]:
    """What ``run.json`` says, checked."""
    path = Path(directory) / "run.json"
    return _check_spec(read_json(path), path)


def _check_spec(spec: Any, path: Path) -> Mapping[str, Any]:
    if not isinstance(spec, dict) or spec.get("schema") != SCHEMA:
        found = spec.get("schema") if isinstance(spec, dict) else None
        raise StateError(f"{path} has schema {found!r}; this version of superarm reads schema {SCHEMA}")
    for key, kind in _REQUIRED.items():
        if not isinstance(spec.get(key), kind) or isinstance(spec[key], bool):
            raise StateError(f"{path}: {key!r} must be a {kind.__name__}, not {spec.get(key)!r}")
    if not all(isinstance(policy, str) for policy in spec["policies"]) or not spec["policies"]:
        raise StateError(f"{path}: 'policies' must be a list of names, at least one")
    if not all(isinstance(setting, dict) for setting in spec["settings"]) or not spec["settings"]:
        raise StateError(
            f"{path}: 'settings' must be a list of objects, one empty when nothing is swept"
        )
    if min(spec["rounds"], spec["seeds"], spec["first_seed"] + 1) < 1:
        raise StateError(f"{path}: 'rounds' and 'seeds' must be at least 1, 'first_seed' at least 0")
    if spec["seeds"] * len(spec["policies"]) * len(spec["settings"]) > _MOST_CELLS:
        raise StateError(f"{path}: it names more than {_MOST_CELLS} cells, which no run has")
    try:
        for key, kind in _OPTIONAL.items():
            if key in spec:
                require_kind(spec[key], kind, repr(key))
        parameters = spec.get("parameters", {})
        require_kind(parameters.get("problem", {}), Mapping[str, Any], "'problem'")
        require_kind(parameters.get("policies", {}), Mapping[str, Mapping[str, Any]], "'policies'")
        for name, told in spec.get("metrics", {}).items():
            for key, kind in _METRIC_KINDS.items():
                require_kind(told.get(key), kind, f"{key!r} of metric {name!r}")
    except SpecError as error:
        raise StateError(f"{path}: {error}; undo the change, or run again") from None
    return spec
