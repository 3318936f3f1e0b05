"""The forms of :class:`superarm.posteriors.StreamingGP`; notation as in ``posterior.py``."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Literal, NamedTuple, Self

import numpy as np

from superarm.core import Covariance, Floats, Ints, State
from superarm.core.errors import NotPositiveDefiniteError, StateError
from superarm.core.inputs import as_features, as_vector
from superarm.core.linalg import (
    GrowingCholesky,
    add_to_diagonal,
    cholesky,
    information,
    root_update,
    shallow_copy,
    solve_lower,
    threads_for,
    with_room,
)
from superarm.core.threads import blas_threads_for
from superarm.kernels import FeatureMap, Kernel
from superarm.posteriors.rows import ObservedData, information_in
from superarm.posteriors.summaries import BLOCK, PointSummary, spread_points
from superarm.posteriors.variances import (
    SURE_NOISE,
    check_means,
    constant_variance,
    largest_variance,
    prior_variance,
)

FormName = Literal["cholesky", "finite-rank", "inducing"]

FEATURE_ERROR = 1e-13  # largest of a kernel value, relative to the prior variance, in finite-rank form
_SCHEMA = 1
_ROUNDED_FEATURES = (
    16  # by how many two processors may differ: those next to the tolerance
)
_SAME_FEATURES = (
    1e-6  # how far means may be off, relative, before a state's features are other ones
)
_NOISE_PER_ERROR = 1e4
"""Noise that the finite-rank form needs, in errors δ of a kernel value. They move K + D by δ per
entry, which moves the mean by up to δ N/λ and a variance by up to δ N s/λ of what they are, for
noise λ and prior variances s. Rounding of the weights' precision, of condition N s/λ, is within
that, because δ is at least ε s. Against 50 digits a std is then right to 5e-5 and better."""


class CholeskyForm:
    """L = chol(k(X, X) + D) and z = L⁻¹(y − prior mean); holds for every arm.

    A form never changes: ``conditioned`` gives its successor, which writes into rows that no other
    form reads.
    """

    name: FormName = "cholesky"
    tolerance = least_noise = (
        0.0  # bound on a kernel value's error; noise for which it has the digits
    )

    def __init__(
        self, kernel: Covariance, data: ObservedData, capacity: int = 256
    ) -> None:
        self._kernel, self._data = kernel, data
        self._copies = None if isinstance(kernel, Kernel) else True
        self._factor = GrowingCholesky(capacity)
        self._z = np.empty(capacity)
        self._warned = False  # that means have lost their digits

    @classmethod
    def fitted_to(
        cls, kernel: Covariance, data: ObservedData, residual: Floats
    ) -> CholeskyForm:
        """Everything factorised at once."""
        arms, _, noise = data.view()
        L = cholesky(
            kernel(arms) + np.diag(noise), "the covariance of the observed arms"
        )
        form = cls(kernel, data, len(L))
        form._factor.append(np.empty((len(L), 0)), L)
        form._z[:] = solve_lower(L, residual)
        return form

    @property
    def rank(self) -> int:
        return len(self._factor)

    def covers(self, keys: Floats) -> bool:
        return True

    def solve(self, keys: Floats) -> Solved:
        """What is known of these arms."""
        size = len(self._factor)
        if not size:
            return Solved(self, np.empty((len(keys), 0)), np.zeros(len(keys)))
        # Solved in place: a copy, unless the array is surely a new one.
        known = self._kernel(keys, self._data.arms)
        cross = np.array(known, dtype=np.float64, order="C", copy=self._copies)
        rows = self._factor.solve_rows(cross)
        return Solved(self, rows, rows @ self._z[:size])

    def variance(self, keys: Floats, rows: Floats) -> Floats:
        level = constant_variance(self._kernel)
        prior = prior_variance(self._kernel, keys) if level is None else level
        return np.asarray(prior - np.vecdot(rows, rows))

    def covariance(self, keys: Floats, rows: Floats, at: Ints | None = None) -> Floats:
        """Covariance of the arms at these places, or of all, with all of them, (k, m)."""
        if at is not None:
            return self._kernel(keys[at], keys) - rows[at] @ rows.T
        with threads_for(len(rows) * rows.size):
            return self._kernel(keys) - rows @ rows.T

    def conditioned(self, fresh: Fresh, data: ObservedData) -> Conditioned:
        """What is known once these rewards are learned; ``data`` holds them, too."""
        keys, rows, innovation, noise = fresh
        schur = self.covariance(keys, rows)
        add_to_diagonal(schur, noise)
        # What is left of a variance may be all rounding: jitter is measured by the prior's size.
        scale = largest_variance(self._kernel, keys) + noise.item(noise.argmax())
        corner = cholesky(schur, "the covariance of the observed arms", scale)
        solved = solve_lower(corner, innovation)
        size, grown = len(self._factor), len(self._factor) + len(solved)
        form = shallow_copy(self)
        form._data = data
        least = noise.item(noise.argmin())
        form._warned = self._warned or self._few_digits(
            solved, least, scale, innovation
        )
        form._factor = self._factor.extended(rows, corner)
        form._z = with_room(self._z, size, grown)
        form._z[size:grown] = solved
        return Conditioned(form, information(corner, noise))

    def _few_digits(
        self, solved: Floats, noise: float, scale: float, innovation: Floats
    ) -> bool:
        """Warn where means lose their digits for lack of noise; says whether it did."""
        if noise >= SURE_NOISE * scale:
            return False
        z = self._z[: len(self._factor)]
        misfit = float(z @ z + solved @ solved)
        # Those asked about lie about as far from 0 as the rewards do, which were told last.
        return check_means(misfit, noise, scale, float(np.abs(innovation).max()))

    def fitted(self) -> Floats:
        """Posterior means of everything observed, without the prior mean, (N,)."""
        # K α = (y − prior) − D α with α = (K + D)⁻¹(y − prior), and L z = y − prior.
        z, L = self._z[: len(self._factor)], self._factor.factor
        alpha = solve_lower(L, z, transposed=True)
        return np.asarray(L @ z - self._data.view().noise * alpha)


class FiniteRankForm:
    """Bayesian linear regression on the kernel's exact features, in square-root form.

    Its rows are a root of the covariance.
    """

    name: FormName = "finite-rank"

    def __init__(
        self,
        features: FeatureMap,
        wanted: float,
        root: Floats,
        weights: Floats,
        data: ObservedData,
    ) -> None:
        self._features, self._data = features, data
        self._wanted = wanted  # the tolerance that the features were made for
        self._root, self._weights = root, weights
        self.tolerance = features.error
        self.least_noise = _NOISE_PER_ERROR * features.error

    @classmethod
    def fitted_to(
        cls, features: FeatureMap, wanted: float, data: ObservedData, residual: Floats
    ) -> FiniteRankForm:
        """The weights' posterior given everything at once."""
        rank = features.rank
        if not len(data):
            return cls(features, wanted, np.eye(rank), np.zeros(rank), data)
        arms, _, noise = data.view()
        Phi = features(arms)
        weighted = Phi / noise[:, None]
        with blas_threads_for(rank * Phi.size):
            precision = Phi.T @ weighted
        precision[np.diag_indices_from(precision)] += 1.0
        L = cholesky(precision, "the precision of the features' weights")
        root = np.ascontiguousarray(
            solve_lower(L, np.eye(rank)).T
        )  # L⁻ᵀ: root rootᵀ = precision⁻¹
        return cls(
            features, wanted, root, root @ (root.T @ (weighted.T @ residual)), data
        )

    def state(self) -> State:
        """The box of the features and what is known of their weights: draws depend on both."""
        box = {"lower": self._features.lower, "upper": self._features.upper}
        held = {**box, "root": self._root, "weights": self._weights}
        arrays = {name: array.copy() for name, array in held.items()}
        scalars = {"tolerance": self._wanted}
        return State(kind=self.name, schema=_SCHEMA, scalars=scalars, arrays=arrays)

    @classmethod
    def from_state(
        cls,
        state: State,
        kernel: Kernel,
        data: ObservedData,
        residual: Floats,
        most: int,
    ) -> FiniteRankForm:
        """The form that ``state`` was taken from, with the same kernel and data.

        Another processor may round the features into other signs, or keep one more of the smallest.
        A posterior of its weights then means nothing here, and is computed anew from the data.
        ``most`` limits the features that are tried, and so what a damaged state may cost.
        """
        state.require(cls.name, _SCHEMA, "the finite-rank form")
        wanted = state.scalar("tolerance")
        weights = as_vector(state.array("weights"), "weights").copy()
        rank = len(weights)
        root = np.array(as_features(state.array("root"), "root", rank), order="C")
        lower = as_vector(state.array("lower"), "lower", data.columns)
        upper = as_vector(state.array("upper"), "upper", data.columns)
        features = kernel.features(lower, upper, wanted, most + _ROUNDED_FEATURES)
        damaged = "this state is damaged: its features are not those of the kernel"
        if (
            features is None
            or len(root) != rank
            or abs(features.rank - rank) > _ROUNDED_FEATURES
        ):
            raise StateError(damaged)
        is_precise = wanted <= 1.000001 * FEATURE_ERROR * features.largest
        if not is_precise or not features.covers(data.view().arms):
            raise StateError(damaged)
        form = cls(features, wanted, root, weights, data)
        if features.rank == rank and form._is_posterior(residual):
            return form
        return cls.fitted_to(features, wanted, data, residual)

    def _is_posterior(self, residual: Floats) -> bool:
        """Whether weights and root are the posterior of the data, in these features.

        With P = I + Φᵀ D⁻¹ Φ, the weights w and the root R fulfil P w = Φᵀ D⁻¹ residual and
        R Rᵀ P v = v for every v; one random v is tried. Differences count as far as they move means.
        """
        arms, _, noise = self._data.view()
        Phi = self._features(arms)
        weighted = Phi / noise[:, None]
        w, R = self._weights, self._root
        gradient = weighted.T @ (residual - Phi @ w) - w
        of_means = Phi @ (R @ (R.T @ gradient))
        v = np.random.default_rng(0).standard_normal(self.rank)
        values = Phi @ v
        of_root = Phi @ (R @ (R.T @ (weighted.T @ values + v)) - v)
        return bool(
            np.abs(of_means).max() <= _SAME_FEATURES * np.abs(residual).max()
            and np.abs(of_root).max() <= _SAME_FEATURES * np.abs(values).max()
        )

    @property
    def rank(self) -> int:
        return self._features.rank

    def covers(self, keys: Floats) -> bool:
        return self._features.covers(keys)

    def solve(self, keys: Floats) -> Solved:
        Phi = self._features(keys)
        return Solved(self, Phi @ self._root, Phi @ self._weights)

    def variance(self, keys: Floats, rows: Floats) -> Floats:
        return np.asarray(np.einsum("ij,ij->i", rows, rows))

    def covariance(self, keys: Floats, rows: Floats, at: Ints | None = None) -> Floats:
        return (rows if at is None else rows[at]) @ rows.T

    def conditioned(self, fresh: Fresh, data: ObservedData) -> Conditioned:
        """What is known once these rewards are learned; ``data`` holds them, too."""
        from scipy.linalg.blas import dgemm

        update = root_update(self._root, fresh.rows, fresh.noise)
        form = shallow_copy(self)
        form._data = data
        form._weights = self._weights + update.gain @ fresh.innovation
        # In place, on the transposes, which is how BLAS reads C-ordered arrays.
        downdate, rows = update.downdate.T, fresh.rows.T
        last = partial(dgemm, -1.0, rows, downdate, 1.0, self._root.T, overwrite_c=1)
        return Conditioned(form, update.information, last)

    def fitted(self) -> Floats:
        return self._features(self._data.view().arms) @ self._weights


class InducingForm:
    """Observations summed up in inducing points that stay: approximate, and cheap for any number.

    Its rows are [P, R] of ``summaries.py``.
    """

    name: FormName = "inducing"
    least_noise = 0.0

    def __init__(
        self, summary: PointSummary, data: ObservedData, chosen_at: int
    ) -> None:
        self._summary, self._data = summary, data
        self.chosen_at = chosen_at  # observations from which the points were chosen

    @classmethod
    def fitted_to(
        cls,
        kernel: Covariance,
        most: int,
        also: Floats,
        data: ObservedData,
        residual: Floats,
    ) -> InducingForm:
        """Up to ``most`` points among what was observed and ``also``; all observations at once."""
        arms, _, noise = data.view()
        known = np.vstack([arms, also]) if len(arms) else also
        summary = PointSummary(kernel, known[spread_points(kernel, known, most)])
        if len(arms):
            summary.add(arms, residual, noise)
        return cls(summary, data, len(known))

    def state(self) -> State:
        summary, scalars = (
            self._summary,
            {"lost": self._summary.lost, "chosen_at": self.chosen_at},
        )
        arrays = {
            name: getattr(summary, name).copy()
            for name in ("points", "precision", "told")
        }
        return State(kind=self.name, schema=_SCHEMA, scalars=scalars, arrays=arrays)

    @classmethod
    def from_state(
        cls, state: State, kernel: Covariance, data: ObservedData, most: int
    ) -> Self:
        """The form that ``state`` was taken from, with the same kernel and data."""
        state.require(cls.name, _SCHEMA, "the inducing form")
        points = as_features(state.array("points"), "points", data.columns)
        told = as_vector(state.array("told"), "told", len(points)).copy()
        precision = np.array(
            as_features(state.array("precision"), "precision", len(points))
        )
        lost, chosen_at = state.scalar("lost"), state.scalar("chosen_at")
        square = 0 < len(points) <= most and precision.shape == (
            len(points),
            len(points),
        )
        chosen = type(chosen_at) is int and len(points) <= chosen_at <= len(data)
        if not (square and chosen and type(lost) is float and lost >= 0.0):
            raise StateError(
                "this state is damaged: its inducing points are impossible"
            )
        summary = PointSummary(kernel, points.copy())
        try:
            summary.resume(precision, told, lost)
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

    def solve(self, keys: Floats) -> Solved:
        asked = self._summary.ask(keys)
        rows = np.hstack([asked.prior_rows.T, asked.rows.T])
        return Solved(self, rows, self._summary.weights @ asked.rows)

    def variance(self, keys: Floats, rows: Floats) -> Floats:
        squares = rows**2
        squares[:, : self.rank] *= -1.0
        return np.asarray(
            prior_variance(self._summary.kernel, keys) + squares.sum(axis=1)
        )

    def covariance(self, keys: Floats, rows: Floats, at: Ints | None = None) -> Floats:
        some = slice(None) if at is None else at
        prior, learned = rows[:, : self.rank], rows[:, self.rank :]
        covariance = np.array(self._summary.kernel(keys[some], keys), dtype=np.float64)
        covariance += learned[some] @ learned.T - prior[some] @ prior.T
        return covariance

    def conditioned(self, fresh: Fresh, data: ObservedData) -> Conditioned:
        """What is known once these rewards are learned; ``data`` holds them, too."""
        keys, rows, innovation, noise = fresh
        information = information_in(self.covariance(keys, rows), noise)
        residual = innovation + rows[:, self.rank :] @ self._summary.weights
        form = InducingForm(copy(self._summary), data, self.chosen_at)
        form._summary.add(keys, residual, noise)
        return Conditioned(form, information)

    def fitted(self) -> Floats:
        arms = self._data.view().arms
        starts = range(0, len(arms), BLOCK)
        return np.concatenate([self.solve(arms[at : at + BLOCK]).mean for at in starts])


AnyForm = CholeskyForm | FiniteRankForm | InducingForm


class Solved(NamedTuple):
    """What a form knows of arms: a belief about them, or an observation of them, needs it again."""

    form: AnyForm
    rows: Floats  # (m, N) solved rows W, (m, r) rows of Φ S, or (m, 2s) rows [P, R]
    mean: Floats  # (m,) without the prior mean


class Fresh(NamedTuple):
    """Rewards to be learned."""

    keys: Floats  # (k, d) arms
    rows: Floats  # what the form knows of them, as in ``Solved``
    innovation: Floats  # (k,) rewards without what was expected
    noise: Floats  # (k,) variances


class Conditioned(NamedTuple):
    """A form that has learned more."""

    form: AnyForm
    information: float  # nats
    last: Callable[[], object] | None = (
        None  # to be called when it is adopted, in the same step
    )
