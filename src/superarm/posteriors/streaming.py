"""Exact Gaussian-process regression on a growing stream of changing arms.

Notation

=========  =======================================================================
``N``      observations so far, ``m`` arms asked about, ``k`` arms observed at once
``X, y``   what was observed, (N, d) and (N,); ``D`` the noise variances
``L``      chol(k(X, X) + D), lower
``z``      L⁻¹ (y − prior mean), (N,)
``W``      rows w with L wᵀ = k(X, x): one per arm, (m, N)
``Φ, r``   exact finite-rank features of the kernel, (m, r), where it has them
``S, w``   posterior root and mean of the features' weights, (r, r) and (r,)
=========  =======================================================================

Cholesky form: mean = W z, variance = k(x, x) − Σ W². The rows W of arms that are then observed
*are* the new rows of L, so learning is nearly free after deciding.

Finite-rank form: k(x, x′) = Φ(x)·Φ(x′) up to a proven error, reported as ``tolerance``; the
posterior is Bayesian linear regression on r features, mean = Φ w, root = Φ S, and its cost no
longer grows with N. It is used when it exists and r < N / 2.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import numpy as np

from superarm.core import Arms, Floats, State, as_features
from superarm.errors import InputError, NotPositiveDefiniteError, ShapeError, StateError
from superarm.kernels import Covariance, FeatureMap, Kernel
from superarm.linalg import GrowingCholesky, cholesky, root_update, solve_lower
from superarm.registry import register

from .base import GaussianPosterior, kernel_from, kernel_spec

Form = Literal["auto", "cholesky", "finite-rank"]
MeanFunction = float | Callable[[Floats], Floats]

FEATURE_TOLERANCE = 1e-13
"""Largest error of a kernel value, relative to the prior variance, in finite-rank form."""
_RANK_PER_OBSERVATION = 0.5
_LARGEST_MATCH = 1 << 20
"""Pairs of arms up to which those observed are looked for among those asked about."""


class _Solved(NamedTuple):
    """The arms asked about last: what a belief about them, or an observation of them, needs again."""

    version: int
    keys: Floats  # (m, d), a copy: the caller's array may change
    rows: Floats  # (m, N) solved rows W, or (m, r) rows of Φ S
    mean: Floats  # (m,) without the prior mean


@register("posterior", "streaming")
class StreamingGP(GaussianPosterior):
    """Exact posterior for arms that change from round to round.

    >>> from superarm.kernels import SquaredExponential
    >>> gp = StreamingGP(kernel=SquaredExponential(lengthscale=0.3), noise_variance=0.01)
    >>> gp.observe([[0.0], [0.5]], [1.0, -1.0])
    >>> mean, std = gp.predict([[0.0], [0.4]])
    >>> mean.round(2).tolist(), std.round(2).tolist()
    ([0.99, -0.7], [0.1, 0.28])
    """

    kind = "streaming-gp"

    def __init__(
        self,
        kernel: Covariance,
        noise_variance: float,
        mean: MeanFunction = 0.0,
        *,
        form: Form = "auto",
    ) -> None:
        super().__init__(noise_variance=noise_variance)
        if form not in ("auto", "cholesky", "finite-rank"):
            raise InputError(f"form is {form!r}; choose 'auto', 'cholesky' or 'finite-rank'")
        self.kernel = kernel
        self.mean = mean if callable(mean) else _as_mean(mean)
        self._wanted: Form = form
        self._data = _Data()
        self._factor = GrowingCholesky()
        self._z = np.empty(0)
        self._weights: _Weights | None = None
        self._solved: _Solved | None = None
        self._reconsider_at = 64  # observations at which the cheaper form is looked for next

    # --- what it is now --------------------------------------------------------------------

    @property
    def form(self) -> Literal["cholesky", "finite-rank"]:
        """Which form is in use."""
        return "cholesky" if self._weights is None else "finite-rank"

    @property
    def rank(self) -> int:
        """Columns of the matrix in use: N in Cholesky form, r in finite-rank form."""
        return len(self._factor) if self._weights is None else self._weights.features.rank

    @property
    def tolerance(self) -> float:
        """Proven bound on the error of any kernel value; 0 in Cholesky form."""
        return 0.0 if self._weights is None else self._weights.features.error

    @property
    def observed(self) -> tuple[Floats, Floats, Floats]:
        """Everything observed so far: arms (N, d), rewards (N,), noise variances (N,)."""
        return self._data.arms, self._data.rewards, self._data.noise

    # --- hooks -----------------------------------------------------------------------------

    def keys(self, arms: Arms) -> Floats:
        return self._check_columns(arms.features)

    def _as_keys(self, arms: Any) -> Floats:
        return self._check_columns(as_features(arms, "arms"))

    def _check_columns(self, features: Floats) -> Floats:
        if self.count and features.shape[1] != self._data.arms.shape[1]:
            raise ShapeError(
                f"arms have {features.shape[1]} feature columns, but those observed before "
                f"have {self._data.arms.shape[1]}"
            )
        return features

    def _prior_mean(self, keys: Floats) -> Floats | float:
        if not callable(self.mean):
            return self.mean
        values = np.asarray(self.mean(keys), dtype=np.float64)
        if values.shape != (len(keys),) or not np.isfinite(values).all():
            raise InputError("the mean function must return one finite number per arm")
        return values

    def _solve(self, keys: Floats) -> _Solved:
        """Working rows of these arms: computed once for mean, covariance, samples and ``observe``."""
        solved = self._solved
        if solved is not None and solved.version == self.version and np.array_equal(solved.keys, keys):
            return solved
        if self._weights is not None and not self._weights.features.covers(keys):
            self._enter_best_form(also=keys)
        if self._weights is None:
            rows = self._factor.solve_rows(np.ascontiguousarray(self.kernel(keys, self._data.arms)))
            mean = rows @ self._z
        else:
            features = self._weights.features(keys)
            rows = features @ self._weights.root
            mean = features @ self._weights.mean
        self._solved = _Solved(self.version, keys.copy(), rows, mean)
        return self._solved

    def _moments(self, keys: Floats) -> tuple[Floats, Floats]:
        prior = self._prior_mean(keys)
        if not self.count:
            return np.zeros(len(keys)) + prior, np.array(self.kernel.diag(keys), dtype=np.float64)
        solved = self._solve(keys)
        squares = np.einsum("ij,ij->i", solved.rows, solved.rows)
        variance = squares if self._weights is not None else self.kernel.diag(keys) - squares
        return solved.mean + prior, variance

    def _covariance(self, keys: Floats) -> Floats:
        if not self.count:
            return np.array(self.kernel(keys), dtype=np.float64)
        rows = self._solve(keys).rows
        return rows @ rows.T if self._weights is not None else self.kernel(keys) - rows @ rows.T

    def _draw(self, keys: Floats, rng: np.random.Generator, size: int) -> Floats:
        if self._weights is None or not self.count:
            return super()._draw(keys, rng, size)
        rows = self._solve(keys).rows
        return rng.standard_normal((size, rows.shape[1])) @ rows.T

    def _prior_scale(self, keys: Floats) -> float:
        return float(np.max(self.kernel.diag(keys), initial=0.0))

    def _incumbent(self, sign: float) -> float:
        # μ(x_i) = y_i − D_i α_i with α = (K + D)⁻¹(y − prior): no covariance is needed again.
        arms, rewards, noise = self.observed
        if self._weights is None:
            from scipy.linalg import solve_triangular

            alpha = solve_triangular(
                self._factor.factor, self._z, lower=True, trans=1, check_finite=False
            )
            return float(np.max(sign * (rewards - noise * alpha)))
        means = self._weights.features(arms) @ self._weights.mean + self._prior_mean(arms)
        return float(np.max(sign * means))

    def _absorb(self, keys: Floats, rewards: Floats, noise: Floats) -> float:
        residual = rewards - self._prior_mean(keys)
        if self._wanted == "finite-rank" and self._weights is None:
            self._enter_best_form(also=keys)  # before anything changes: it may refuse
        rows, mean = self._solved_for(keys)
        innovation = residual - mean
        if self._weights is None:
            information = self._append(keys, rows, innovation, noise)
        else:
            information = self._weights.condition(rows, innovation, noise)
        self._data.append(keys, rewards, noise)
        self._solved = None
        if self._weights is None and len(self._data) >= self._reconsider_at:
            # The data are in: whatever the other form says, this one is exact and stays.
            with suppress(NotPositiveDefiniteError):
                self._enter_best_form()
        return information

    def _append(self, keys: Floats, rows: Floats, innovation: Floats, noise: Floats) -> float:
        schur = self.kernel(keys) - rows @ rows.T
        schur[np.diag_indices_from(schur)] += noise
        corner = cholesky(schur, "the covariance of the observed arms")
        fresh = solve_lower(corner, innovation)
        self._factor.append(rows, corner)
        self._z = np.concatenate([self._z, fresh])
        return float(np.log(np.diagonal(corner)).sum() - 0.5 * np.log(noise).sum())

    def _solved_for(self, keys: Floats) -> tuple[Floats, Floats]:
        """Working rows and means of arms to be observed, from the last question if it held them."""
        if not len(self._data) and self._weights is None:
            return np.empty((len(keys), 0)), np.zeros(len(keys))
        solved = self._solved
        if (
            solved is not None
            and solved.version == self.version
            and len(keys) * len(solved.keys) <= _LARGEST_MATCH
        ):
            same = (keys[:, None, :] == solved.keys[None, :, :]).all(axis=2)  # (k, m)
            if same.any(axis=1).all():
                where = same.argmax(axis=1)
                return solved.rows[where], solved.mean[where]
        solved = self._solve(keys)
        return solved.rows, solved.mean

    # --- choice of form --------------------------------------------------------------------

    def _enter_best_form(self, also: Floats | None = None) -> None:
        """Take the cheaper form for everything observed; both are exact."""
        count = len(self._data)
        self._reconsider_at = count + max(count // 4, 32)
        limit = 4096 if self._wanted == "finite-rank" else int(_RANK_PER_OBSERVATION * count)
        weights = self._fit_weights(limit, also) if limit else None
        if weights is None and self._wanted == "finite-rank":
            raise InputError(
                "this kernel has no finite-rank form on these arms: it is not smooth enough, or its "
                "lengthscale is too short for their spread; use form='auto'"
            )
        if weights is None and self._weights is not None:
            self._refactorise()
        elif weights is not None:
            self._factor, self._z = GrowingCholesky(1), np.empty(0)
        self._weights = weights

    def _fit_weights(self, limit: int, also: Floats | None) -> _Weights | None:
        if self._wanted == "cholesky" or not isinstance(self.kernel, Kernel):
            return None
        arms, rewards, noise = self.observed
        known = arms
        if also is not None:
            known = np.vstack([arms, also]) if len(arms) else also
        lower, upper = _box(known)
        scale = float(np.max(self.kernel.diag(known)))
        features = self.kernel.features(lower, upper, FEATURE_TOLERANCE * scale, max_rank=limit)
        if features is None:
            return None
        if not len(arms):
            return _Weights(features, np.eye(features.rank), np.zeros(features.rank))
        return _Weights.fitted(features, arms, rewards - self._prior_mean(arms), noise)

    def _refactorise(self) -> None:
        arms, rewards, noise = self.observed
        L = cholesky(self.kernel(arms) + np.diag(noise), "the covariance of the observed arms")
        self._factor = GrowingCholesky(len(L))
        self._factor.append(np.empty((len(L), 0)), L)
        self._z = solve_lower(L, rewards - self._prior_mean(arms))

    # --- state -----------------------------------------------------------------------------

    def state(self) -> State:
        arms, rewards, noise = self.observed
        return State(
            kind=self.kind,
            schema=self.schema,
            scalars={
                "kernel": kernel_spec(self.kernel),
                "noise_variance": self.noise_variance,
                "mean": None if callable(self.mean) else self.mean,
                "form": self._wanted,
                "count": self.count,
                "information_gain": self.information_gain,
            },
            arrays={"arms": arms.copy(), "rewards": rewards.copy(), "noise": noise.copy()},
        )

    @classmethod
    def from_state(
        cls, state: State, kernel: Covariance | None = None, mean: MeanFunction | None = None
    ) -> StreamingGP:
        """The posterior that ``state`` was taken from, factorised anew."""
        cls._check_state(state, cls.kind)
        prior_mean = state.scalar("mean") if mean is None else mean
        if prior_mean is None:
            raise StateError(
                "the prior mean is a function, which no state holds; pass it: from_state(…, mean=…)"
            )
        posterior = cls(
            kernel_from(state, kernel),
            state.scalar("noise_variance"),
            prior_mean,
            form=state.scalar("form"),
        )
        if state.scalar("count"):
            posterior.observe(state.array("arms"), state.array("rewards"), state.array("noise"))
        return posterior._restore_counts(state)


class _Data:
    """Observed arms, rewards and noise in buffers that double."""

    def __init__(self) -> None:
        self._arms = np.empty((0, 0))
        self._rewards = np.empty(0)
        self._noise = np.empty(0)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def arms(self) -> Floats:
        return self._arms[: self._size]

    @property
    def rewards(self) -> Floats:
        return self._rewards[: self._size]

    @property
    def noise(self) -> Floats:
        return self._noise[: self._size]

    def append(self, arms: Floats, rewards: Floats, noise: Floats) -> None:
        grown = self._size + len(rewards)
        if grown > len(self._rewards):
            capacity = max(2 * len(self._rewards), grown, 256)
            columns = arms.shape[1]
            bigger = np.empty((capacity, columns)), np.empty(capacity), np.empty(capacity)
            if self._size:
                for new, old in zip(bigger, (self.arms, self.rewards, self.noise), strict=True):
                    new[: self._size] = old
            self._arms, self._rewards, self._noise = bigger
        fresh = slice(self._size, grown)
        self._arms[fresh], self._rewards[fresh], self._noise[fresh] = arms, rewards, noise
        self._size = grown


class _Weights:
    """Bayesian linear regression on the kernel's exact features, in square-root form."""

    def __init__(self, features: FeatureMap, root: Floats, mean: Floats) -> None:
        self.features = features
        self.root = root
        self.mean = mean

    @classmethod
    def fitted(cls, features: FeatureMap, arms: Floats, residual: Floats, noise: Floats) -> _Weights:
        """The weights' posterior given everything at once."""
        Phi = features(arms)
        weighted = Phi / noise[:, None]
        precision = Phi.T @ weighted
        precision[np.diag_indices_from(precision)] += 1.0
        L = cholesky(precision, "the precision of the features' weights")
        root = np.ascontiguousarray(solve_lower(L, np.eye(len(L))).T)  # L⁻ᵀ: root rootᵀ = precision⁻¹
        return cls(features, root, root @ (root.T @ (weighted.T @ residual)))

    def condition(self, rows: Floats, innovation: Floats, noise: Floats) -> float:
        """Learn from arms whose rows of Φ S are given."""
        update = root_update(self.root, rows, noise)
        self.mean = self.mean + update.gain @ innovation
        self.root -= update.downdate @ rows
        return update.information


def _as_mean(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = np.nan
    if not np.isfinite(number):
        raise InputError(f"mean is {value!r}; it must be a finite number or a function of the arms")
    return number


def _box(arms: Floats) -> tuple[Floats, Floats]:
    """A box around the arms with room to spare, so that it is rarely outgrown."""
    lower, upper = arms.min(axis=0), arms.max(axis=0)
    margin = 0.05 * (upper - lower) + 1e-12 * np.maximum(1.0, np.abs(upper))
    return lower - margin, upper + margin
