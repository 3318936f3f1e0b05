"""A run on disk: write a cell, read it back, and see all cells as one run.

docs/architecture.md shows how it lies there. Every file appears whole or not at all. The other files
of a cell are written before the cell itself: a cell that is there is finished.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import product
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Self, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats, Ints, State
from superarm.core.capabilities import OWN_METRICS, Metric
from superarm.core.display import Displayable
from superarm.core.errors import (
    InputError,
    ShapeError,
    SpecError,
    StateError,
    require_extra,
)
from superarm.core.inputs import as_plain, as_vector
from superarm.core.registry import require_kind, suggestion
from superarm.core.road_map import RoadMap
from superarm.core.states import atomic_write, load_state, state_to_bytes
from superarm.movement import Tree
from superarm.movement.tree import TREE_ARRAYS

from .audit import audit_shapes
from .files import array_names, damaged, json_bytes, npz_bytes, read_arrays, read_json

SCHEMA = 2
_RESERVED = frozenset({"choices", "propensities", "seconds"})
_FIELDS = frozenset({"cell", "policy", "seed", "setting"})  # of a row of cells.jsonl
_REQUIRED: dict[str, Any] = {
    **{"experiment": str, "rounds": int, "first_seed": int, "seeds": int},
    **{"policies": Sequence[str], "settings": Sequence[Mapping[str, Any]]},
}
_OPTIONAL: dict[str, Any] = {
    **dict.fromkeys(("title", "paper", "figure", "version"), str),
    **dict.fromkeys(("overrides", "parameters"), Mapping[str, Any]),
    "horizons": Sequence[int],
    "derived": Sequence[Mapping[str, Any]],
    "chart": Mapping[str, Any],
    "states": Mapping[str, Mapping[str, Any]],
    **dict.fromkeys(("audited", "imports"), Sequence[str]),
}
_OF_SETTINGS: dict[str, Any] = {  # one for each
    "settled": Sequence[Mapping[str, str]],
    "metrics": Sequence[Mapping[str, Mapping[str, Any]]],
    "noise_variance": Sequence[float | None],
    "shared_data": Sequence[float],
    "independent_seeds": Sequence[float | None],
}
_METRIC_KINDS = get_type_hints(Metric)
_NOT_FINITE = (np.isnan, np.isinf)


class Drawing(NamedTuple):
    """What an experiment wants of its charts: its table ``[chart]``."""

    band: Literal["stderr", "std"] = "stderr"
    """Around means: their standard error, or the standard deviation between seeds."""
    marks: Mapping[str, float] = MappingProxyType({})
    """Values of a swept number that are pointed out, by what is said of them."""
    truth: Literal["", "functions", "series"] = ""
    """How the first seed's truth is drawn, if at all: over the arms in a few rounds, or over rounds."""
    curves: Sequence[Mapping[str, Any]] = ()
    """Running totals that are drawn: each of a ``metric``, in the settings that ``where`` names."""
    tree: bool = False
    """Whether a random tree over the actions is drawn, where moving between them costs."""


_CHART_KINDS = get_type_hints(Drawing)


class TruthRecord(NamedTuple):
    """Expected rewards of fixed arms as they change: m rounds, n arms of d columns."""

    rounds: Ints  # (m,)
    values: Floats  # (m, n)
    places: Floats  # the features of the arms, (n, d)


class TreeMasses(NamedTuple):
    """The tree that a policy walks on, and its conditional probabilities after a run's last round."""

    tree: Tree
    q: Floats  # (v,), of each vertex given its parent
    policy: str


_SUMMARY: dict[str, dict[str, Any]] = {
    "claims": dict.fromkeys(("text", "verdict", "evidence"), str),
    "rows": {
        **{"policy": str, "metric": str, "setting": Mapping[str, Any]},
        **{"mean": float | None, "stderr": float | None},
    },
    "not_judged": {"text": str, "needs": Sequence[str]},
}
MOST_CELLS = 10**7
"""Policies × settings × seeds of the largest run."""
_MANGLED = re.compile(r"-[0-9a-f]{8}\Z")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """What one policy did in one setting with one seed and how it fared, round by round."""

    policy: str
    setting_index: int = 0
    seed: int
    series: Mapping[str, Floats]
    """Per-round (not cumulative) metrics by name, each (T,); always holds ``regret``."""
    choices: NDArray[np.int32] | None = None  # chosen positions, (T, k), padded with −1
    propensities: Floats | None = None
    """Probability of each round's action, (T,), NaN where it is not known; ``None`` where it is 1 in
    every round, or known in none."""
    seconds: NDArray[np.float32] | None = None
    """Time that the policy took to decide and learn in each round, (T,)."""
    audit: Mapping[str, NDArray[Any]] | None = None
    """Arrays that :mod:`superarm.lab.simulation.audit` describes, for an additive problem."""
    state: State | None = (
        None  # what the policy had learned at the end, for an additive problem
    )
    left: State | None = None
    """What a longer run needs beside it to go on: feedback on its way, and the last action."""

    def __post_init__(self) -> None:
        if "regret" not in self.series:
            raise InputError(
                f"the series {sorted(self.series)} lack 'regret', which every trace has"
            )
        if reserved := (_RESERVED | _FIELDS).intersection(self.series):
            raise InputError(
                f"{sorted(reserved)} cannot be the name of a metric; rename it"
            )
        rounds = len(np.atleast_1d(self.series["regret"]))
        for name, values in self.series.items():
            as_vector(values, name, rounds)
        width = (
            1
            if self.choices is None or self.choices.ndim != 2
            else self.choices.shape[1]
        )
        shapes = {
            "choices": (rounds, width),
            "propensities": (rounds,),
            "seconds": (rounds,),
        }
        found = {
            name: array for name in shapes if (array := getattr(self, name)) is not None
        }
        if self.audit is not None:
            shapes |= audit_shapes(rounds)
            found |= {name: self.audit.get(name) for name in audit_shapes(rounds)}
        for name, array in found.items():
            if np.shape(array) != shapes[name]:
                raise ShapeError(
                    f"{name} has shape {np.shape(array)}; it must be {shapes[name]}"
                )

    @property
    def rounds(self) -> int:
        return len(self.series["regret"])

    @property
    def name(self) -> str:
        """The cell's name on disk."""
        return cell_name(self.policy, self.setting_index, self.seed)


def cell_name(policy: str, setting_index: int, seed: int) -> str:
    """A file-system safe name, different for different cells.

    >>> cell_name("igp-ucb", 0, 3)
    'igp-ucb.s0.seed00003'
    """
    safe = re.sub(r"[^a-z0-9_-]+", "_", policy.lower())[:80]
    # Keeps "GP" and "gp" apart where the file system ignores case.
    if safe != policy or _MANGLED.search(safe):
        safe = f"{safe}-{zlib.crc32(policy.encode('utf-8', 'surrogatepass')):08x}"
    return f"{safe}.s{setting_index}.seed{seed:05d}"


def write_spec(directory: Path | str, spec: Mapping[str, Any]) -> None:
    """Write ``run.json``, after the same checks that reading it makes."""
    path, complete = Path(directory) / "run.json", {"schema": SCHEMA, **spec}
    _check_spec(as_plain(complete), path)
    atomic_write(path, json_bytes(complete))


def write_trace(directory: Path | str, trace: Trace) -> Path:
    """Write one cell, its timing first; equal traces give equal bytes."""
    directory, name = Path(directory), f"{trace.name}.npz"
    if trace.seconds is not None:
        atomic_write(
            directory / "timings" / name, npz_bytes({"seconds": trace.seconds})
        )
    if trace.audit is not None:
        atomic_write(directory / "audits" / name, npz_bytes(trace.audit))
    if trace.state is not None:
        state = state_to_bytes(trace.state)
        atomic_write(directory / "states" / name, state)
        if trace.left is not None:  # it names the state that it belongs to
            scalars = {**trace.left.scalars, "state": sha256(state).hexdigest()}
            atomic_write(
                directory / "left" / name,
                state_to_bytes(replace(trace.left, scalars=scalars)),
            )
    arrays: dict[str, NDArray[Any]] = {
        key: np.asarray(trace.series[key], dtype=np.float64)
        for key in sorted(trace.series)
    }
    beside = {"choices": trace.choices, "propensities": trace.propensities}
    arrays |= {key: array for key, array in beside.items() if array is not None}
    path = directory / "cells" / name
    atomic_write(path, npz_bytes(arrays))
    return path


def read_trace(
    directory: Path, policy: str, setting_index: int, seed: int, rounds: int
) -> Trace:
    """A cell with all that it takes to go on in a run of so many rounds, or :class:`StateError`."""
    file = f"{cell_name(policy, setting_index, seed)}.npz"
    cells, *beside = (
        directory / folder / file for folder in ("cells", "timings", "audits")
    )
    arrays = read_arrays(cells, rounds=rounds)
    seconds, audit = (read_arrays(path, rounds=rounds) for path in beside)
    left = load_state(directory / "left" / file)
    state = load_state(path := directory / "states" / file)
    if left.scalar("state") != sha256(path.read_bytes()).hexdigest():
        raise StateError(f"{path} does not match its cell")
    try:
        return Trace(
            policy=policy,
            setting_index=setting_index,
            seed=seed,
            series={name: arrays[name] for name in arrays if name not in _RESERVED},
            choices=arrays["choices"],
            propensities=arrays.get("propensities"),
            seconds=seconds["seconds"],
            audit=audit,
            state=state,
            left=left,
        )
    except (KeyError, InputError) as error:
        raise damaged(cells, str(error)) from None


def write_shown(
    directory: Path | str, setting_index: int, shown: RoadMap | TruthRecord | Tree
) -> None:
    """Write the roads of a setting, the first seed's truth, or a tree over the actions."""
    if isinstance(shown, RoadMap):
        name, arrays = "maps", shown.as_arrays()
    elif isinstance(shown, TruthRecord):
        name, arrays = "truths", shown._asdict()
    else:
        name, arrays = "trees", {key: getattr(shown, key) for key in TREE_ARRAYS}
    folder = Path(directory) / name
    atomic_write(folder / f"s{setting_index}.npz", npz_bytes(arrays))


def write_masses(
    directory: Path | str,
    setting_index: int,
    policies: Sequence[str],
    masses: TreeMasses,
) -> None:
    """Write the tree that a policy walks on, with its probabilities."""
    arrays = {key: getattr(masses.tree, key) for key in TREE_ARRAYS}
    arrays |= {"q": masses.q, "policy": np.array(list(policies).index(masses.policy))}
    atomic_write(Path(directory) / "trees" / f"q{setting_index}.npz", npz_bytes(arrays))


def write_cells(run: Run) -> None:
    """Write ``cells.jsonl``: each cell's totals in one row, sorted by setting, policy and seed."""
    rows = []
    for index, policy, seed in product(
        range(len(run.settings)), sorted(run.policies), run.seeds
    ):
        name = cell_name(policy, index, seed)
        kept = sorted(
            set(array_names(run.directory / "cells" / f"{name}.npz")) - _RESERVED
        )
        totals = {
            key: float(run._array(key, policy, index, seed).sum()) for key in kept
        }
        row = {
            "cell": name,
            "policy": policy,
            "seed": seed,
            "setting": run.settings[index],
            **totals,
        }
        rows.append(json_bytes(row))
    atomic_write(run.directory / "cells.jsonl", b"".join(rows))


class Run(Displayable):
    """A finished run: its spec, and its cells stacked over seeds. Arrays are read when first used."""

    def __init__(self, directory: Path, spec: Mapping[str, Any]) -> None:
        self.directory = directory
        self.spec = spec
        self.experiment: str = spec["experiment"]
        self.title: str = spec.get("title") or self.experiment
        self.policies: tuple[str, ...] = tuple(spec["policies"])
        self.settings: tuple[Mapping[str, Any], ...] = tuple(spec["settings"])
        self.rounds: int = spec["rounds"]
        self.seeds = range(spec["first_seed"], spec["first_seed"] + spec["seeds"])
        self.horizons: tuple[int, ...] = tuple(spec.get("horizons", ()))
        """Lengths of shorter runs of some policies that were told to plan for no more."""
        self._stacks: dict[tuple[str, str, int], NDArray[Any]] = {}

    @classmethod
    def load(cls, directory: Path | str) -> Self:
        """Open the run; every cell must be there."""
        run = cls(Path(directory), read_spec(directory))
        present = {path.stem for path in (run.directory / "cells").glob("*.npz")}
        missing = [name for name in run.cells if name not in present]
        if missing:
            raise StateError(
                f"the run in {directory} is unfinished: {len(missing)} of {len(run.cells)} cells are "
                f"missing, first {missing[0]}; finish it with the same command and --resume"
            )
        return run

    def _display_fields(self) -> Mapping[str, Any]:
        """Sizes, and whom it is about."""
        sizes = {
            "settings": len(self.settings),
            "seeds": len(self.seeds),
            "rounds": self.rounds,
        }
        return {"experiment": self.experiment, "policies": list(self.policies), **sizes}

    @property
    def cells(self) -> tuple[str, ...]:
        """Names of all cells: settings outermost, seeds innermost."""
        keys = product(range(len(self.settings)), self.policies, self.seeds)
        return tuple(cell_name(policy, index, seed) for index, policy, seed in keys)

    @property
    def metrics(self) -> tuple[str, ...]:
        """What the rounds of every setting were measured by: ``regret``, then the others by name."""
        first, *others = (self.metrics_at(index) for index in range(len(self.settings)))
        return tuple(name for name in first if all(name in each for each in others))

    def metrics_at(self, setting_index: int) -> tuple[str, ...]:
        """What the rounds of one setting were measured by: problems differ where they are swept."""
        names = array_names(
            self._path("cells", self.policies[0], setting_index, self.seeds[0])
        )
        return ("regret", *sorted(set(names) - _RESERVED - {"regret"}))

    def interpretations(self, setting_index: int) -> Mapping[str, str]:
        """What the problem of a setting says of itself, and how unclear points were read."""
        told: Sequence[Mapping[str, str]] = self.spec.get("settled", ())
        return told[setting_index] if told else {}

    def shared_data(self, setting_index: int) -> float:
        """The share of a seed's records that another seed of the setting uses, too, on average."""
        shares: Sequence[float] = self.spec.get("shared_data", ())
        return shares[setting_index] if shares else 0.0

    def independent_seeds(self, setting_index: int) -> float:
        """How many independent seeds all seeds of a setting are worth at most; ∞ where that is open."""
        counts: Sequence[float | None] = self.spec.get("independent_seeds", ())
        count = counts[setting_index] if counts else None
        return np.inf if count is None else count

    def metric(self, name: str, setting_index: int) -> Metric:
        """How a metric is read in a setting; one that nobody described, by its name."""
        described = self.spec.get("metrics")
        if described and (told := described[setting_index].get(name)) is not None:
            return Metric(**{key: told[key] for key in _METRIC_KINDS})
        return OWN_METRICS.get(name, Metric(name.replace("_", " ")))

    @property
    def derived(self) -> list[dict[str, str]]:
        """Rows that can be followed round by round: ``name``, ``metric``, and ``versus`` where they
        are ratios to a policy that was run, not means over rounds."""
        found = []
        for each in self.spec.get("derived", ()):
            name, metric, versus = (
                each.get("name"),
                each.get("metric", "regret"),
                each.get("versus"),
            )
            if isinstance(name, str) and metric in self.metrics:
                if versus in self.policies:
                    found.append({"name": name, "metric": metric, "versus": versus})
                elif versus is None and each.get("per_round"):
                    found.append({"name": name, "metric": metric})
        return found

    @property
    def chart(self) -> Drawing:
        """What the experiment wants of its charts."""
        return Drawing(**self.spec.get("chart", {}))

    @property
    def summary(self) -> Mapping[str, Any]:
        """What the command printed: rows and claims, checked."""
        path = self.directory / "summary.json"
        told: dict[str, Any] = read_json(path)
        try:
            require_kind(told, Mapping[str, Any], "what it holds")
            for name, kinds in _SUMMARY.items():
                require_kind(told.get(name), Sequence[Mapping[str, Any]], repr(name))
                for each, (key, kind) in product(told[name], kinds.items()):
                    require_kind(each.get(key), kind, f"{key!r} in {name!r}")
        except SpecError as error:
            raise StateError(f"{path}: {error}; run again with --resume") from None
        return told

    def at_horizon(self, horizon: int) -> Run:
        """The run of one of :attr:`horizons`."""
        return Run.load(self.directory / "horizons" / str(horizon))

    def to_frame(self) -> Any:
        """A pandas table of totals: one row per setting, policy, seed and metric."""
        pandas = require_extra("pandas", "frame")
        return pandas.DataFrame(
            [
                {
                    **setting,
                    "policy": policy,
                    "seed": seed,
                    "metric": metric,
                    "total": float(total),
                }
                for index, setting in enumerate(self.settings)
                for policy in self.policies
                for metric in self.metrics_at(index)
                for seed, total in zip(
                    self.seeds,
                    self.cumulative(policy, index, metric)[:, -1],
                    strict=True,
                )
            ]
        )

    def cumulative(
        self, policy: str, setting_index: int = 0, metric: str = "regret"
    ) -> Floats:
        """Running totals of a metric, (seeds, T)."""
        if metric in _RESERVED:
            raise InputError(
                f"{metric!r} is not a metric of rounds; this run has {list(self.metrics)}"
            )
        return self._stack(metric, policy, setting_index)

    def seconds(self, policy: str, setting_index: int = 0) -> NDArray[np.float32]:
        """Time that the policy took in each round, (seeds, T)."""
        return self._stack("seconds", policy, setting_index)

    def is_timed(self, setting_index: int = 0) -> bool:
        """Whether the times of a setting are there: a run may have been copied without them."""
        cells = product(self.policies, self.seeds)
        return all(
            self._path("timings", name, setting_index, seed).exists()
            for name, seed in cells
        )

    def seconds_per_round(self, policy: str, setting_index: int = 0) -> float:
        """Mean over seeds and rounds, without those in which code is compiled and caches are filled.

        These are the first round, or the first block of rounds where many are played in one call:
        each round of a block has the same share of its time.
        """
        return float(self.seconds_of_seeds(policy, setting_index).mean())

    def seconds_of_seeds(self, policy: str, setting_index: int = 0) -> Floats:
        """The same for every seed by itself, (seeds,)."""
        seconds = self.seconds(policy, setting_index)
        later = np.logical_or.accumulate(seconds != seconds[:, :1], axis=1)
        later[~later.any(axis=1)] = True
        return np.array(
            [
                each[kept].mean(dtype=float)
                for each, kept in zip(seconds, later, strict=True)
            ]
        )

    def audit(
        self, policy: str, setting_index: int, seed: int
    ) -> dict[str, NDArray[Any]] | None:
        """What :mod:`superarm.lab.simulation.audit` describes; ``None`` where it was not recorded."""
        path = self._path("audits", policy, setting_index, seed)
        if not path.exists():
            return None
        arrays = read_arrays(path, rounds=self.rounds)
        for name, shape in audit_shapes(self.rounds).items():
            refused = (np.isinf,) if name == "firsts" else ()  # a score may be anything
            _checked(arrays.get(name), shape, path, name, "f", refused)
        return arrays

    def choices(self, policy: str, setting_index: int, seed: int) -> NDArray[np.int32]:
        """Chosen positions, (T, k), padded with −1."""
        return self._array("choices", policy, setting_index, seed)

    def propensities(self, policy: str, setting_index: int, seed: int) -> Floats | None:
        """Probability of each round's action, (T,), NaN where it is not known; see :class:`Trace`."""
        if "propensities" not in array_names(
            self._path("cells", policy, setting_index, seed)
        ):
            return None
        return self._array("propensities", policy, setting_index, seed)

    def road_map(self, setting_index: int = 0) -> RoadMap | None:
        """The roads that the arms of a setting are; ``None`` where they are no roads."""
        path = self.directory / "maps" / f"s{setting_index}.npz"
        arrays = read_arrays(path) if path.exists() else None
        try:
            return None if arrays is None else RoadMap.from_arrays(arrays)
        except StateError as error:
            raise damaged(path, str(error)) from None

    def tree(self, setting_index: int = 0) -> Tree | None:
        """A tree over the actions; ``None`` where none was recorded."""
        path = self.directory / "trees" / f"s{setting_index}.npz"
        if not path.exists():
            return None
        arrays = read_arrays(path)
        try:
            return Tree(
                **{key: np.atleast_1d(arrays.get(key, np.nan)) for key in TREE_ARRAYS}
            )
        except InputError as error:
            raise damaged(path, str(error)) from None

    def tree_masses(self, setting_index: int = 0) -> TreeMasses | None:
        """The tree that a policy walks on, and its probabilities; ``None`` where none was recorded."""
        path = self.directory / "trees" / f"q{setting_index}.npz"
        if not path.exists():
            return None
        arrays = read_arrays(path)
        try:
            tree = Tree(
                **{key: np.atleast_1d(arrays.get(key, np.nan)) for key in TREE_ARRAYS}
            )
            q = as_vector(arrays.get("q", np.nan), "q", len(tree.parent))
        except (InputError, ShapeError) as error:
            raise damaged(path, str(error)) from None
        number = arrays.get("policy", np.array(-1))
        if number.size != 1 or not 0 <= int(number) < len(self.policies):
            raise damaged(path, "its policy is not in the run")
        if q.min() < 0.0 or q.max() > 1.0 + 1e-9:
            raise damaged(path, "q has values outside [0, 1]")
        return TreeMasses(tree, q, self.policies[int(number)])

    def truth(self, setting_index: int = 0) -> TruthRecord | None:
        """What there was to be found with the first seed; ``None`` where it was not recorded."""
        path = self.directory / "truths" / f"s{setting_index}.npz"
        if not path.exists():
            return None
        arrays = read_arrays(path, rounds=self.rounds)
        truth = TruthRecord(
            *(np.atleast_1d(arrays.get(name, np.nan)) for name in TruthRecord._fields)
        )
        m, n = (max(1, len(each)) for each in (truth.rounds, truth.places))
        shapes = (m,), (m, n), (n, max(1, truth.places.size // n))
        for name, array, shape in zip(TruthRecord._fields, truth, shapes, strict=True):
            _checked(array, shape, path, name, "fi")
        if (np.diff(truth.rounds, prepend=0) <= 0).any():
            raise damaged(path, "'rounds' must rise from 1 on")
        return truth

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
        array = read_arrays(path, only=name, rounds=self.rounds)[name]
        columns = (array.size // self.rounds,) if name == "choices" else ()
        kinds = "i" if name == "choices" else "fiu"
        refused = (
            (np.isinf,) if name == "propensities" else _NOT_FINITE
        )  # one that is not known is NaN
        return _checked(array, (self.rounds, *columns), path, name, kinds, refused)

    def _stack(self, name: str, policy: str, setting_index: int) -> NDArray[Any]:
        key = (name, policy, setting_index)
        if key not in self._stacks:
            stacked = np.stack([self._array(*key, seed) for seed in self.seeds])
            if name != "seconds":
                np.cumsum(stacked, axis=1, out=stacked)
            stacked.flags.writeable = False
            self._stacks[key] = stacked
        return self._stacks[key]


def _checked(
    array: NDArray[Any] | None,
    shape: tuple[int, ...],
    path: Path,
    name: str,
    kinds: str = "fiu",
    refused: tuple[np.ufunc, ...] = _NOT_FINITE,
) -> NDArray[Any]:
    if array is None or array.shape != shape or array.dtype.kind not in kinds:
        raise damaged(path, f"{name!r} must be numbers of shape {shape}")
    if any(test(array).any() for test in refused):
        raise damaged(path, f"{name!r} holds NaN or infinity")
    return array


def check_chart(told: Mapping[str, Any], where: str) -> None:
    """Refuse a table ``[chart]`` that is no :class:`Drawing`."""
    for key, value in told.items():
        if key not in _CHART_KINDS:
            raise SpecError(
                f"{where} has no {key!r}; {suggestion(key, [*_CHART_KINDS], 'it has')}"
            )
        require_kind(value, kind := _CHART_KINDS[key], f"{where}: {key}")
        if get_origin(kind) is Literal and value not in get_args(kind):
            choices = " or ".join(map(repr, filter(None, get_args(kind))))
            raise SpecError(f"{where}: {key} is {value!r}; choose {choices}")
    for curve in told.get("curves", ()):
        if not {"metric"} <= set(curve) <= {"metric", "where"}:
            raise SpecError(
                f"{where}: a curve has a metric and may have where; this has {[*curve]}"
            )
        require_kind(curve["metric"], str, f"{where}: the metric of a curve")
        require_kind(curve.get("where", {}), Mapping[str, Any], f"{where}: where")


def read_spec(directory: Path | str) -> Mapping[str, Any]:
    """What ``run.json`` says, checked."""
    path = Path(directory) / "run.json"
    return _check_spec(read_json(path), path)


def _check_sharing(spec: Mapping[str, Any]) -> None:
    """What seeds have in common must make sense."""
    if not all(0.0 <= share < 1.0 for share in spec.get("shared_data", ())):
        raise SpecError("'shared_data' must have shares from 0 to below 1")
    if not all(
        count is None or count >= 0.0 for count in spec.get("independent_seeds", ())
    ):
        raise SpecError("'independent_seeds' must have numbers of at least 0, or null")


def _check_spec(spec: Any, path: Path) -> Mapping[str, Any]:
    if not isinstance(spec, dict) or spec.get("schema") != SCHEMA:
        found = spec.get("schema") if isinstance(spec, dict) else None
        raise StateError(
            f"{path} has schema {found!r}; this version of superarm reads schema {SCHEMA}"
        )
    try:
        for key, kind in {**_REQUIRED, **_OPTIONAL, **_OF_SETTINGS}.items():
            if key in spec or key in _REQUIRED:
                require_kind(spec.get(key), kind, repr(key))
            if (
                key in spec
                and key in _OF_SETTINGS
                and len(spec[key]) != len(spec["settings"])
            ):
                raise SpecError(f"{key!r} must have one entry for each setting")
        _check_sharing(spec)
        check_chart(spec.get("chart", {}), "'chart'")
        parameters = spec.get("parameters", {})
        require_kind(parameters.get("problem", {}), Mapping[str, Any], "'problem'")
        require_kind(
            parameters.get("policies", {}),
            Mapping[str, Mapping[str, Any]],
            "'policies'",
        )
        for metrics, (key, kind) in product(
            spec.get("metrics", ()), _METRIC_KINDS.items()
        ):
            for name, told in metrics.items():
                require_kind(told.get(key), kind, f"{key!r} of metric {name!r}")
    except SpecError as error:
        raise StateError(f"{path}: {error}; undo the change, or run again") from None
    sizes = (
        spec["rounds"],
        spec["seeds"],
        len(spec["policies"]),
        len(spec["settings"]),
    )
    if min(*sizes, spec["first_seed"] + 1) < 1:
        raise StateError(
            f"{path}: it has {sizes} rounds, seeds, policies and settings, from seed "
            f"{spec['first_seed']}; there must be one of each, and no seed below 0"
        )
    if prod(sizes[1:]) > MOST_CELLS:
        raise StateError(
            f"{path}: a run may have at most {MOST_CELLS:,} cells, and this has more"
        )
    owners: dict[str, str] = {}
    for policy in spec["policies"]:
        other = owners.setdefault(cell_name(policy, 0, 0), policy)
        if other is not policy:
            raise StateError(
                f"{path}: the policies {other!r} and {policy!r} would share their files; rename one"
            )
    return spec


def trip_scores(state: Path) -> Floats | None:
    """Standardised forecast errors of the trips of a saved policy, over all seeds of its run.

    Args:
        state: A file in the folder ``states`` of a run. ``None`` is returned for any other file.
    """
    directory = state.absolute().parents[1]
    if (
        state.absolute().parent.name != "states"
        or not (directory / "run.json").is_file()
    ):
        return None
    run = Run(directory, read_spec(directory))  # it may still be under way
    for policy in run.policies:
        for index in range(len(run.settings)):
            if state.stem not in {cell_name(policy, index, seed) for seed in run.seeds}:
                continue
            audits = [run.audit(policy, index, seed) for seed in run.seeds]
            scores = np.concatenate(
                [[], *(audit["score"] for audit in audits if audit is not None)]
            )
            return np.asarray(scores[np.isfinite(scores)])
    return None
