"""Cells of a run on disk: write what one policy did with one seed, and read it back.

docs/architecture.md shows the layout. Every file appears whole or not at all. A cell's
other files are written before the cell itself: a cell that exists is finished.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats, State
from superarm.core.errors import InputError, ShapeError, StateError
from superarm.core.inputs import as_vector
from superarm.core.states import atomic_write, load_state, state_to_bytes

from .audit import audit_shapes
from .files import damaged, npz_bytes, read_arrays

RESERVED = frozenset({"choices", "propensities", "seconds"})
"""Arrays of a cell that are no metrics."""
CELL_FIELDS = frozenset({"cell", "policy", "seed", "setting"})
"""Keys of a row of ``cells.jsonl`` that are no metrics."""
_LONGEST_NAME = 80  # characters of a policy's name in a file name
_MANGLED = re.compile(r"-[0-9a-f]{8}\Z")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """What one policy did in one setting with one seed, round by round.

    Args:
        policy: The policy's name in the run.
        setting_index: The setting's position in the run.
        seed: The seed of the world.
        series: Metrics of each round (not cumulative) by name, each (T,). ``regret`` is
            always among them.
        choices: Chosen positions, (T, k), padded with −1.
        propensities: Probability of each round's action, (T,), NaN where it is unknown.
            ``None`` if it is 1 in every round, or unknown in every round.
        seconds: Time that the policy took to decide and learn in each round, (T,).
        audit: Arrays that :mod:`superarm.lab.simulation.audit` describes; additive
            problems only.
        state: What the policy had learned at the end; additive problems only.
        resume_state: What a longer run needs beside ``state``: feedback on its way, and
            the last action.
    """

    policy: str
    setting_index: int = 0
    seed: int
    series: Mapping[str, Floats]
    choices: NDArray[np.int32] | None = None
    propensities: Floats | None = None
    seconds: NDArray[np.float32] | None = None
    audit: Mapping[str, NDArray[Any]] | None = None
    state: State | None = None
    resume_state: State | None = None

    def __post_init__(self) -> None:
        if "regret" not in self.series:
            raise InputError(
                f"the series {sorted(self.series)} lack 'regret', which every trace has"
            )
        reserved = (RESERVED | CELL_FIELDS).intersection(self.series)
        if reserved:
            raise InputError(
                f"{sorted(reserved)} cannot be the name of a metric; rename it"
            )
        rounds = len(np.atleast_1d(self.series["regret"]))
        for name, values in self.series.items():
            as_vector(values, name, rounds)
        self._check_shapes(rounds)

    def _check_shapes(self, rounds: int) -> None:
        choices = self.choices
        if choices is not None:
            # Any number of columns will do, one for each arm of the largest choice.
            width = choices.shape[1] if choices.ndim == 2 else 1
            _require_shape("choices", choices, (rounds, width))
        if self.propensities is not None:
            _require_shape("propensities", self.propensities, (rounds,))
        if self.seconds is not None:
            _require_shape("seconds", self.seconds, (rounds,))
        if self.audit is not None:
            shapes = audit_shapes(rounds)
            for name, shape in shapes.items():
                array = self.audit.get(name)
                _require_shape(name, array, shape)

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return len(self.series["regret"])

    @property
    def name(self) -> str:
        """The cell's name on disk."""
        return cell_name(self.policy, self.setting_index, self.seed)


def _require_shape(
    name: str, array: NDArray[Any] | None, shape: tuple[int, ...]
) -> None:
    actual = () if array is None else np.shape(array)
    if actual != shape:
        raise ShapeError(f"{name} must have shape {shape}, got {actual}")


def cell_name(policy: str, setting_index: int, seed: int) -> str:
    """Return a file-system safe name, different for different cells.

    Args:
        policy: The policy's name in the run.
        setting_index: The setting's position in the run.
        seed: The seed of the world.

    >>> cell_name("igp-ucb", 0, 3)
    'igp-ucb.s0.seed00003'
    """
    safe = re.sub(r"[^a-z0-9_-]+", "_", policy.lower())
    safe = safe[:_LONGEST_NAME]
    # Keeps "GP" and "gp" apart where the file system ignores case.
    if safe != policy or _MANGLED.search(safe):
        checksum = zlib.crc32(policy.encode("utf-8", "surrogatepass"))
        safe = f"{safe}-{checksum:08x}"
    return f"{safe}.s{setting_index}.seed{seed:05d}"


def write_trace(directory: Path | str, trace: Trace) -> Path:
    """Write one cell, its timing first; equal traces give equal bytes.

    Args:
        directory: The run's folder.
        trace: What the cell contains.
    """
    directory = Path(directory)
    file = f"{trace.name}.npz"
    if trace.seconds is not None:
        timing = npz_bytes({"seconds": trace.seconds})
        atomic_write(directory / "timings" / file, timing)
    if trace.audit is not None:
        atomic_write(directory / "audits" / file, npz_bytes(trace.audit))
    if trace.state is not None:
        state = state_to_bytes(trace.state)
        atomic_write(directory / "states" / file, state)
        if trace.resume_state is not None:
            resume_state = _name_policy_state(trace.resume_state, state)
            atomic_write(directory / "left" / file, state_to_bytes(resume_state))
    path = directory / "cells" / file
    atomic_write(path, npz_bytes(_cell_arrays(trace)))
    return path


def _name_policy_state(resume_state: State, policy_state: bytes) -> State:
    """Add the checksum of the policy's state, without which it is of no use."""
    checksum = sha256(policy_state).hexdigest()
    scalars = {**resume_state.scalars, "state": checksum}
    return replace(resume_state, scalars=scalars)


def _cell_arrays(trace: Trace) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    for name in sorted(trace.series):
        values = trace.series[name]
        arrays[name] = np.asarray(values, dtype=np.float64)
    if trace.choices is not None:
        arrays["choices"] = trace.choices
    if trace.propensities is not None:
        arrays["propensities"] = trace.propensities
    return arrays


def read_trace(
    directory: Path, policy: str, setting_index: int, seed: int, rounds: int
) -> Trace:
    """Read a cell with everything that a longer run needs to resume from it.

    Raises :class:`StateError` if any of it is missing or damaged.

    Args:
        directory: The run's folder.
        policy: The policy's name in the run.
        setting_index: The setting's position in the run.
        seed: The seed of the world.
        rounds: Rounds of the run that wants to resume, which limit the files' size.
    """
    file = f"{cell_name(policy, setting_index, seed)}.npz"
    cell_path = directory / "cells" / file
    state_path = directory / "states" / file
    arrays = read_arrays(cell_path, rounds=rounds)
    timing = read_arrays(directory / "timings" / file, rounds=rounds)
    audit = read_arrays(directory / "audits" / file, rounds=rounds)
    resume_state = load_state(directory / "left" / file)
    state = load_state(state_path)
    if resume_state.scalar("state") != sha256(state_path.read_bytes()).hexdigest():
        raise StateError(f"{state_path} does not match its cell")
    series = {name: arrays[name] for name in arrays if name not in RESERVED}
    try:
        return Trace(
            policy=policy,
            setting_index=setting_index,
            seed=seed,
            series=series,
            choices=arrays["choices"],
            propensities=arrays.get("propensities"),
            seconds=timing["seconds"],
            audit=audit,
            state=state,
            resume_state=resume_state,
        )
    except (KeyError, InputError) as error:
        raise damaged(cell_path, str(error)) from None
