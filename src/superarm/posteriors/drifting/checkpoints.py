"""Earlier forms from which late feedback is learned, and the one that states hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from superarm.core import State
from superarm.core.errors import InputError, StateError
from superarm.core.inputs import as_vector
from superarm.core.migrations import migration

from .form import Form

CHECKPOINT_KIND = "drifting-checkpoint"
CHECKPOINT_SCHEMA = 2
# Times between two checkpoints.
_EVERY = 32


def checkpoint_due(form: Form, time: float) -> bool:
    """Whether a form should become a checkpoint before it moves to this time."""
    return time > form.time and form.steps > 0 and form.steps % _EVERY == 0


def thin_out(checkpoints: list[Form]) -> None:
    """Remove all but the first and the last of every doubling of age: few, dense near the end."""
    newest = checkpoints[-1].steps
    bands: dict[int, list[Form]] = {}  # by the logarithm of their age
    for checkpoint in checkpoints:
        age = newest - checkpoint.steps
        bands.setdefault(age.bit_length(), []).append(checkpoint)
    remaining = []
    for band in bands.values():
        remaining.append(band[0])
        if len(band) > 1:
            remaining.append(band[-1])
    checkpoints[:] = remaining


def checkpoint_state(form: Form) -> State:
    """What a state holds of a checkpoint."""
    return State(
        kind=CHECKPOINT_KIND,
        schema=CHECKPOINT_SCHEMA,
        scalars={"in_use": form.name, **form.scalars()},
        arrays={name: array.copy() for name, array in form.arrays().items()},
    )


@migration("drifting-gp", 2)
@migration(CHECKPOINT_KIND, 1)
def _use_one_decay(state: State) -> State:
    """Earlier, each column of a folded form had a decay of its own, and G was one matrix."""
    arrays = dict(state.arrays)
    scalars = {**state.scalars, "left": 1.0}
    if "left" in arrays:
        try:
            columns = state.matrix("columns")
            decays = as_vector(arrays.pop("left"), "left", len(columns))
        except InputError as error:
            raise StateError(f"this state is damaged: {error}") from error
        arrays["columns"] = decays[:, None] * columns
        scalars["rank"] = len(columns)
    if "G" in arrays:
        arrays["recent"] = np.empty((0, 0))
    return replace(state, schema=state.schema + 1, scalars=scalars, arrays=arrays)
