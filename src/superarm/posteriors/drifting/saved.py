"""What saved states hold of a drifting posterior."""

from __future__ import annotations

from typing import Any

import numpy as np

from superarm.core import Floats, State
from superarm.core.errors import StateError
from superarm.posteriors.base import Memory
from superarm.posteriors.observations import ObservationBuffer, Observations

from .checkpoints import CHECKPOINT_KIND, CHECKPOINT_SCHEMA, checkpoint_state
from .factory import FormFactory
from .form import LEAST_DECAY, TRUNCATION, Form
from .history import History
from .keys import LATEST, times_of


def history_memory(history: History) -> Memory:
    """What a state holds of a history with observations.

    Args:
        history: The history.
    """
    form = history.form
    arrays = history.remembered._asdict() | form.arrays()
    scalars: dict[str, Any] = form.scalars()
    scalars["forgotten_information"] = history.forgotten_information
    scalars["forgotten"] = history.forgotten if history.has_forgotten else None
    scalars["least_noise"] = history.least_noise
    parts: dict[str, State] = {}
    if history.has_forgotten and history.checkpoints:
        # Questions about the past start here: earlier observations are gone.
        parts["checkpoint"] = checkpoint_state(history.checkpoints[0])
    return Memory(arrays, scalars, parts)


def with_saved_observations(
    history: History, state: State, keys: Floats, count: int
) -> History:
    """A history with what a state remembers, whose form has not learned it yet.

    Args:
        history: A history without observations.
        state: The state.
        keys: Its arms, already validated.
        count: How many observations the posterior has learned, with those forgotten.
    """
    observed = Observations.from_state(state, keys)
    times = times_of(observed.arms)
    now = state.number("time")
    forgotten = history.forgotten
    if state.scalar("forgotten") is not None:
        forgotten = state.number("forgotten", most=now)
    forgotten_information = state.number("forgotten_information", 0.0)
    has_count = 0 < len(times) <= count
    is_ascending = has_count and not (np.diff(times) < 0.0).any()
    if not (is_ascending and forgotten < times[0] and now == times[-1]):
        raise StateError("this state is damaged: its observations are impossible")
    most_noise = float(observed.noise.min())
    least_noise = state.number("least_noise", 0.0, most_noise)
    return history._replace(
        data=ObservationBuffer(*observed),
        least_noise=least_noise,
        forgotten=forgotten,
        forgotten_information=forgotten_information,
    )


def with_saved_forms(
    history: History, state: State, forms: FormFactory
) -> History | None:
    """A history with the form and the checkpoint of a state of the same posterior.

    ``None`` where the basis is not this posterior's: another processor may round features into
    other signs, or keep one more of the smallest.

    Args:
        history: What the state remembers.
        state: The state.
        forms: Creates the forms of the posterior.
    """
    form = _saved_form(state, forms, history.least_noise)
    if form is None:
        return None
    checkpoints: list[Form] = []
    if "checkpoint" in state.parts:  # states of earlier versions hold none
        checkpoint = _saved_checkpoint(state.part("checkpoint"), forms, history)
        checkpoints.append(checkpoint)
    return history._replace(form=form, checkpoints=checkpoints)


def _saved_form(state: State, forms: FormFactory, least_noise: float) -> Form | None:
    """The form in a state: of the kind of a new one, or folded; ``None`` for another basis."""
    form = _empty_form(state, forms, least_noise)
    form.time = state.number("time", -LATEST, LATEST)
    most_error = TRUNCATION * forms.largest_variance
    form.error = state.number("error", 0.0, most_error)
    form.steps = state.count("steps")
    _set_saved_blocks(form, state)
    return form if form.resume(state) else None


def _set_saved_blocks(form: Form, state: State) -> None:
    """Set the mean and the diagonal blocks of Λ that a state holds."""
    s, n = form.shape
    mean = state.matrix("a", n)
    reduction = state.matrix("known", n)
    if len(mean) != s or len(reduction) != s * s:
        raise StateError("this state is damaged: it belongs to another kernel of time")
    blocks = reduction.reshape(s, s, n)
    decay = state.number("left", LEAST_DECAY, 1.0)
    form.set_blocks(mean.copy(), blocks.copy(), decay)


def _empty_form(state: State, forms: FormFactory, least_noise: float) -> Form:
    """A form of the state's kind that has learned nothing."""
    new_form = forms.new_form(least_noise)
    folded_form = forms.folded_form()
    in_use = state.scalar("in_use")
    if in_use == folded_form.name:
        return folded_form
    if in_use == new_form.name:
        return new_form
    raise StateError("this state is damaged: its form is impossible")


def _saved_checkpoint(state: State, forms: FormFactory, history: History) -> Form:
    """The checkpoint in a state."""
    state.require(CHECKPOINT_KIND, CHECKPOINT_SCHEMA, "DriftingGP")
    checkpoint = _saved_form(state, forms, history.least_noise)
    if checkpoint is None:
        raise StateError("this state is damaged: its checkpoint has another basis")
    checkpoint.information = history.forgotten_information
    if checkpoint.time != history.forgotten:
        raise StateError("this state is damaged: its checkpoint is of another time")
    return checkpoint
