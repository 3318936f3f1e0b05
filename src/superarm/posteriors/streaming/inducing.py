"""The inducing form: observations summed up in a few points. Approximate."""

from __future__ import annotations

from copy import copy
from typing import Self

import numpy as np

from superarm.core import Covariance, Floats, Ints, State
from superarm.core.errors import NotPositiveDefiniteError, StateError
from superarm.posteriors.observations import ObservationBuffer
from superarm.posteriors.rows import information_in
from superarm.posteriors.summaries import BLOCK, PointSummary, spread_points
from superarm.posteriors.variances import prior_variance

from .form import FORM_SCHEMA, ArmSolution, Form, NewRewards, Update


class InducingForm(Form):
    """Observations summed up in fixed inducing points: approximate, and cheap for any number.

    Its rows are [P, R] of ``summaries.py``.
    """

    name = "inducing"

    def __init__(
        self, summary: PointSummary, data: ObservationBuffer, chosen_at: int
    ) -> None:
        self._summary = summary
        self._data = data
        self.chosen_at = chosen_at  # observations from which the points were chosen

    @classmethod
    def fit(
        cls,
        kernel: Covariance,
        most: int,
        new_arms: Floats,
        data: ObservationBuffer,
        residual: Floats,
    ) -> InducingForm:
        """The form of all observations, with points among their arms and the new ones.

        Args:
            kernel: The kernel.
            most: Most inducing points.
            new_arms: Arms that will be observed next, (k, d).
            data: The observations.
            residual: Their rewards without the prior mean, (N,).
        """
        arms, _, noise = data.view()
        candidates = np.vstack([arms, new_arms]) if len(arms) else new_arms
        chosen = spread_points(kernel, candidates, most)
        points = candidates[chosen]
        summary = PointSummary(kernel, points)
        if len(arms):
            summary.add(arms, residual, noise)
        return cls(summary, data, len(candidates))

    def state(self) -> State:
        """The inducing points, and what is known at them."""
        summary = self._summary
        return State(
            kind=self.name,
            schema=FORM_SCHEMA,
            scalars={"lost": summary.lost, "chosen_at": self.chosen_at},
            arrays={
                "points": summary.points.copy(),
                "precision": summary.precision.copy(),
                "told": summary.weighted_residual.copy(),
            },
        )

    @classmethod
    def from_state(
        cls, state: State, kernel: Covariance, data: ObservationBuffer, most: int
    ) -> Self:
        """The form that ``state`` was taken from.

        Args:
            state: What :meth:`state` returned.
            kernel: The same kernel.
            data: The same observations.
            most: Most inducing points.
        """
        state.require(cls.name, FORM_SCHEMA, "the inducing form")
        points = state.matrix("points", data.columns)
        count = len(points)
        weighted_rewards = state.vector("told", count)
        precision = state.matrix("precision", count)
        lost = state.scalar("lost")
        chosen_at = state.scalar("chosen_at")
        has_shape = 0 < count <= most and precision.shape == (count, count)
        has_choice = type(chosen_at) is int and count <= chosen_at <= len(data)
        has_loss = type(lost) is float and lost >= 0.0
        if not (has_shape and has_choice and has_loss):
            raise StateError(
                "this state is damaged: its inducing points are impossible"
            )
        summary = PointSummary(kernel, points.copy())
        try:
            summary.resume(np.array(precision), np.array(weighted_rewards), lost)
        except NotPositiveDefiniteError:
            raise StateError(
                "this state is damaged: its precision is not positive"
            ) from None
        return cls(summary, data, chosen_at)

    @property
    def rank(self) -> int:
        return len(self._summary.points)

    @property
    def tolerance(self) -> float:
        """Largest error of a kernel value between arms that were observed."""
        return self._summary.lost

    def covers(self, keys: Floats) -> bool:
        return True

    def solve(self, keys: Floats) -> ArmSolution:
        prior_rows, rows = self._summary.solve(keys)  # P and R, (s, m)
        mean = self._summary.weights @ rows
        both = np.hstack([prior_rows.T, rows.T])  # [P, R], (m, 2s)
        return ArmSolution(self, both, mean)

    def variance(self, keys: Floats, rows: Floats) -> Floats:
        # k(x, x) − Σ P² + Σ R²
        squares = rows**2
        squares[:, : self.rank] *= -1.0
        change = squares.sum(axis=1)
        prior = prior_variance(self._summary.kernel, keys)
        return np.asarray(prior + change)

    def covariance(
        self, keys: Floats, rows: Floats, positions: Ints | None = None
    ) -> Floats:
        # k(x, x′) − PᵀP + RᵀR
        chosen = slice(None) if positions is None else positions
        P, R = self._split(rows)
        prior = self._summary.kernel(keys[chosen], keys)
        covariance = np.array(prior, dtype=np.float64)
        added = R[chosen] @ R.T
        explained = P[chosen] @ P.T
        covariance += added - explained
        return covariance

    def _split(self, rows: Floats) -> tuple[Floats, Floats]:
        """P and R, (m, s) each, from rows [P, R]."""
        P = rows[:, : self.rank]
        R = rows[:, self.rank :]
        return P, R

    def condition(self, new: NewRewards, data: ObservationBuffer) -> Update:
        keys, rows, innovation, noise = new
        covariance = self.covariance(keys, rows)
        information = information_in(covariance, noise)
        _, R = self._split(rows)
        expected = R @ self._summary.weights
        residual = innovation + expected
        summary = copy(self._summary)
        summary.add(keys, residual, noise)
        form = InducingForm(summary, data, self.chosen_at)
        return Update(form, information)

    def fitted_means(self) -> Floats:
        arms = self._data.view().arms
        means = []
        for start in range(0, len(arms), BLOCK):
            block = arms[start : start + BLOCK]
            means.append(self.solve(block).mean)
        return np.concatenate(means)
