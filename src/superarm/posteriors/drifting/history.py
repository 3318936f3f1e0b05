"""What a drifting posterior has learned, in one record that never changes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from superarm.posteriors.observations import ObservationBuffer, Observations

from .form import Form
from .keys import times_of


class History(NamedTuple):
    """The present form, and all that late feedback and questions about the past need."""

    form: Form
    data: ObservationBuffer  # what is remembered, in the order of time
    checkpoints: list[Form]  # earlier forms, in the order of time
    least_noise: float  # the smallest noise variance so far
    forgotten: float = -np.inf  # observations until this time are forgotten
    forgotten_information: float = 0.0  # which they gave, nats

    @property
    def remembered(self) -> Observations:
        """Observations that are not forgotten, without a copy."""
        return self.data.view()

    @property
    def has_forgotten(self) -> bool:
        """Whether any observation is forgotten."""
        return self.forgotten > -np.inf

    @property
    def earliest_form(self) -> Form:
        """The form from which questions about the past start, where something is forgotten."""
        # States of version 0.1.0 hold no checkpoint.
        return self.checkpoints[0] if self.checkpoints else self.form

    def checkpoints_before(self, time: float) -> list[Form]:
        """Checkpoints of before this time, in a new list.

        Args:
            time: The time.
        """
        return [form for form in self.checkpoints if form.time < time]

    def since(self, time: float) -> Observations:
        """Remembered observations of after this time.

        Args:
            time: The time.
        """
        remembered = self.remembered
        is_later = times_of(remembered.arms) > time
        return remembered.part(is_later)


def merge_by_time(earlier: Observations, new: Observations) -> Observations:
    """All observations in the order of time.

    Args:
        earlier: Observations in the order of time.
        new: Further ones, in the order of time.
    """
    both = new.after(earlier)
    order = np.argsort(times_of(both.arms), kind="stable")
    return both.part(order)
