"""Gaussian-process regression on a fixed arm set whose rewards drift [bogunovic2016time, eqs. 7, 8].

Notation

=========  =======================================================================
``n``      arms; ``K`` their prior covariance, (n, n), of which columns are made when they are needed
``ε``      drift per unit of time: f_{t+1} = √(1 − ε) f_t + √ε g_{t+1}
``τ``      the time of what is held; at t ≥ τ only d = (1 − ε)^{(t−τ)/2} of it is left
``a``      posterior mean at τ without the prior mean, (n,)
``W``      (n, m): the posterior covariance at τ is K − W Wᵀ
``c``      (m,): what is left of the columns of W, which are stored as they were made
=========  =======================================================================

Time folds into factors: (1 − ε)^Δ (K − W Wᵀ) + (1 − (1 − ε)^Δ) K = K − d² W Wᵀ, and the mean
becomes d a. An observation of arm x at t adds the column P_x/s with s² = P_xx + noise, where
P_x = K_x − W W_xᵀ, and moves the mean by it. A round costs n m. Old columns fade; from time to time W
is rotated so that what has faded can be left out, ``TRUNCATION`` of the prior variance at most.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats, Ints, Offer, State
from superarm.errors import InputError, StateError
from superarm.inputs import as_count, as_features, as_number, as_vector
from superarm.kernels import Covariance, Kernel, Temporal
from superarm.kernels.base import as_covariance
from superarm.linalg import with_room
from superarm.registry import register

from .base import GaussianPosterior, Memory
from .fixed import FixedArms, as_rows
from .variances import prior_variance

TRUNCATION = 1e-12
"""Largest error of any covariance by what is left out, relative to the largest prior variance."""
_NEGLIGIBLE = 1e-13
"""What is left of an observation that is not kept for feedback from before it."""
_ROOM = 64


class _Folded:
    """Mean and covariance at one time, for all arms; see the module."""

    def __init__(self, n: int) -> None:
        self.time = -np.inf
        self.mean = np.zeros(n)  # a
        self.lost = np.zeros(n)  # the diagonal of W Wᵀ at τ
        self.error = 0.0  # bound on the error of any entry of W Wᵀ at τ
        self._W = np.empty((_ROOM, n))  # one row per column of W: rows are contiguous
        self._left = np.empty(_ROOM)  # c
        self.rank = 0
        self.compact_at = 2 * _ROOM

    @property
    def columns(self) -> Floats:
        """W at τ, as rows, (m, n)."""
        return self._left[: self.rank, None] * self._W[: self.rank]

    def arrays(self) -> dict[str, Floats]:
        """What :meth:`of` makes the same numbers from."""
        kept = {"columns": self._W[: self.rank], "left": self._left[: self.rank]}
        return {"posterior_mean": self.mean, "lost": self.lost, **kept}

    @classmethod
    def of(
        cls,
        time: float,
        error: float,
        compact_at: int,
        mean: Floats,
        lost: Floats,
        columns: Floats,
        left: Floats,
    ) -> _Folded:
        folded = cls(len(mean))
        folded.time, folded.error, folded.compact_at = time, error, compact_at
        folded.mean, folded.lost = mean.copy(), lost.copy()
        folded._W, folded._left, folded.rank = columns.copy(), left.copy(), len(columns)
        return folded

    def pass_time(self, time: float, epsilon: float) -> None:
        if self.rank:
            left = float(remaining(epsilon, time - self.time))
            self.mean *= left
            self.lost *= left**2
            self.error *= left**2
            self._left[: self.rank] *= left
        self.time = time

    def explained(self, rows: Ints) -> Floats:
        """Rows of W Wᵀ at τ, (k, n)."""
        W, squared = self._W[: self.rank], self._left[: self.rank] ** 2
        found: Floats = (W[:, rows] * squared[:, None]).T @ W
        return found

    def observe(self, row: int, reward: float, noise: float, prior_column: Floats) -> float:
        """``reward`` is without the prior mean; returns the information gained."""
        posterior = prior_column - self.explained(np.array([row]))[0]  # P_x
        # What is left of a variance may be all rounding.
        variance = max(float(posterior[row]), 0.0)
        scale = np.sqrt(variance + noise)
        column = posterior / scale
        self.mean += column * ((reward - self.mean[row]) / scale)
        self.lost += column**2
        self._W = with_room(self._W, self.rank, self.rank + 1)
        self._left = with_room(self._left, self.rank, self.rank + 1)
        self._W[self.rank], self._left[self.rank] = column, 1.0
        self.rank += 1
        return float(np.log(scale) - 0.5 * np.log(noise))

    def compact(self, largest: float) -> None:
        """Leave out what has faded; ``largest`` is the largest prior variance."""
        if self.rank < self.compact_at:
            return
        W = self.columns
        values, vectors = np.linalg.eigh(W @ W.T)
        allowed = TRUNCATION * largest - self.error
        dropped = np.cumsum(np.maximum(values, 0.0))  # the smallest first
        first = int(np.searchsorted(dropped, allowed, side="right"))
        if first:
            # Any entry of what is left out is at most its largest eigenvalue, at most their sum.
            self.error += float(dropped[first - 1])
        kept = len(values) - first
        self._W[:kept] = vectors[:, first:].T @ W
        self._left[:kept] = 1.0
        self.rank = kept
        self.compact_at = 2 * kept + _ROOM


class _History(NamedTuple):
    rows: Ints
    times: Floats
    rewards: Floats
    noise: Floats


def remaining(epsilon: float, elapsed: float | Floats) -> Any:
    """(1 − ε)^{Δ/2}: the correlation of a reward with what it was."""
    return np.exp(0.5 * np.log1p(-epsilon) * elapsed)


@register("posterior", "drifting")
class DriftingGP(GaussianPosterior):
    """Exact posterior over fixed arms whose rewards drift: each step keeps √(1 − ε) of them.

    Keys are rows of two numbers, an arm's row number and a time. Several rewards may come at one time,
    times may be missing or irregular, and feedback may come late: it is learned as of its own time.
    ``drift`` is a kernel of time alone: Temporal(epsilon=…) is the drift of the paper.

    >>> from superarm.kernels import SquaredExponential, Temporal
    >>> drift = Temporal(epsilon=0.1)
    >>> gp = DriftingGP(SquaredExponential(), [[0.0], [1.0]], noise_variance=0.01, drift=drift)
    >>> gp.observe([[0, 1.0]], [2.0])
    >>> gp.predict([[0, 1.0], [0, 8.0], [0, 80.0]]).mean.round(2).tolist()
    [1.98, 1.37, 0.03]
    """

    kind = "drifting-gp"

    def __init__(
        self,
        kernel: Covariance,
        arms: Any,
        noise_variance: float,
        mean: Any = 0.0,
        *,
        drift: Kernel | None = None,
    ) -> None:
        super().__init__(noise_variance=noise_variance)
        self.kernel = as_covariance(kernel, "kernel")
        self._fixed = FixedArms(as_features(arms, "arms").copy())
        n = len(self._fixed.features)
        if n == 0:
            raise InputError("arms is empty; give at least one")
        values = mean(self._fixed.features) if callable(mean) else mean
        spread = np.full(n, values) if np.ndim(values) == 0 else values
        self.prior_mean = as_vector(spread, "mean", n).copy()
        self._mean = mean
        self.drift = Temporal() if drift is None else drift
        if not isinstance(self.drift, Temporal):
            raise InputError(f"drift is {drift!r:.60}; give Temporal(epsilon=0.01)")
        self.epsilon = self.drift.epsilon
        self._variance = np.asarray(prior_variance(self.kernel, self._fixed.features), dtype=np.float64)
        self._columns: dict[int, Floats] = {}
        self._folded = _Folded(n)
        self._history = _History(np.empty(0, dtype=np.intp), np.empty(0), np.empty(0), np.empty(0))

    @property
    def rank(self) -> int:
        """Columns of the matrix in use."""
        return self._folded.rank

    @property
    def tolerance(self) -> float:
        """Proven bound on the error of any entry of the posterior covariance, besides rounding."""
        return self._folded.error

    def parameters(self) -> Mapping[str, Any]:
        return {
            "kernel": self.kernel,
            "arms": self._fixed.features,
            "noise_variance": self.noise_variance,
            "mean": self._mean,
            "drift": self.drift,
        }

    # --- hooks -----------------------------------------------------------------------------

    def keys(self, offer: Offer) -> Floats:
        rows = self._fixed.locate(offer.arms).keys
        return np.column_stack([rows, np.full(len(rows), float(offer.moment))])

    def _as_keys(self, arms: Any) -> Floats:
        keys = as_features(arms, "arms", 2)
        rows = keys[:, 0]
        if (rows != np.floor(rows)).any() or (np.abs(rows) > 2**53).any():
            raise InputError("arms must be rows of a row number and a time, as in [[3, 10.0]]")
        as_rows(rows.astype(np.intp), len(self.prior_mean))
        return keys

    def _split(self, keys: Floats) -> tuple[Ints, Floats]:
        """Row numbers and times, none before what is held."""
        rows, times = keys[:, 0].astype(np.intp), keys[:, 1]
        if len(times) and times.min() < self._folded.time:
            raise InputError(
                f"time {times.min():g} is before the last observation, at {self._folded.time:g}: what "
                "was can be learned late, but not asked about"
            )
        return rows, times

    def _decay(self, times: Floats) -> Floats:
        if not self._folded.rank:
            return np.zeros(times.shape)
        return np.asarray(remaining(self.epsilon, times - self._folded.time))

    def _moments(self, keys: Floats) -> tuple[Floats, Floats]:
        rows, times = self._split(keys)
        left, folded = self._decay(times), self._folded
        mean = self.prior_mean[rows] + left * folded.mean[rows]
        return mean, self._variance[rows] - left**2 * folded.lost[rows]

    def _covariance(self, keys: Floats) -> Floats:
        return self._cross(keys, np.arange(len(keys)))

    def _cross(self, keys: Floats, at: Ints) -> Floats:
        rows, times = self._split(keys)
        features = self._fixed.features
        found = np.array(self.kernel(features[rows[at]], features[rows]), dtype=np.float64)
        folded = self._folded
        if folded.rank:
            W = folded.columns[:, rows]
            # As of the earlier of two times; the later one remembers a part of it.
            left = self._decay(np.minimum.outer(times[at], times))
            found -= left**2 * (W[:, at].T @ W)
        apart = np.abs(np.subtract.outer(times[at], times))
        if apart.any():
            found *= remaining(self.epsilon, apart)
        return found

    def _prior_scale(self, keys: Floats) -> float:
        return float(self._variance.max())

    def _prior_column(self, row: int) -> Floats:
        if row not in self._columns:
            features = self._fixed.features
            self._columns[row] = np.asarray(self.kernel(features[row : row + 1], features))[0]
        return self._columns[row]

    def _absorb(
        self, keys: Floats, rewards: Floats, noise: Floats, rng: np.random.Generator | None
    ) -> float:
        rows, times = keys[:, 0].astype(np.intp), keys[:, 1]
        order = np.argsort(times, kind="stable")
        fresh = _History(rows[order], times[order], rewards[order], noise[order])
        for row in set(fresh.rows.tolist()):
            self._prior_column(row)  # a kernel of the user's own may raise, and nothing has changed yet
        history = self._extended(fresh)
        if fresh.times[0] >= self._folded.time:
            information = self._fold(self._folded, fresh)
        else:  # late: from the start, as if it had come in time
            folded = _Folded(len(self.prior_mean))
            before = self._fold(_Folded(len(self.prior_mean)), self._history)
            information = self._fold(folded, history) - before
            self._folded = folded
        self._history = history
        return information

    def _fold(self, folded: _Folded, history: _History) -> float:
        information, largest = 0.0, float(self._variance.max())
        for row, time, reward, noise in zip(*(part.tolist() for part in history), strict=True):
            folded.pass_time(time, self.epsilon)
            column = self._prior_column(row)
            information += folded.observe(row, reward - self.prior_mean[row], noise, column)
            folded.compact(largest)
        return information

    def _extended(self, fresh: _History) -> _History:
        """All that is remembered, in the order of time, without what no longer matters."""
        joined = _History(*(np.concatenate(pair) for pair in zip(self._history, fresh, strict=True)))
        order = np.argsort(joined.times, kind="stable")
        kept = order[remaining(self.epsilon, joined.times.max() - joined.times[order]) > _NEGLIGIBLE]
        return _History(*(part[kept] for part in joined))

    def _incumbent(self, sign: float) -> float:
        rows = np.unique(self._history.rows)
        means = self.prior_mean[rows] + self._folded.mean[rows]
        return float(np.max(sign * means))

    # --- state -----------------------------------------------------------------------------

    def _memory(self) -> Memory:
        folded = self._folded
        if not self.count:
            return Memory(self._history._asdict())
        scalars = {"time": folded.time, "error": folded.error, "compact_at": folded.compact_at}
        return Memory({**self._history._asdict(), **folded.arrays()}, scalars)

    def _remember(self, state: State) -> None:
        """The same numbers go on: rounding does not grow with restarts."""
        if not self.count:
            return
        n, times = len(self.prior_mean), as_vector(state.array("times"), "times")
        rows = as_rows(state.array("rows"), n)
        rewards, noise = (
            as_vector(state.array(name), name, len(times)) for name in ("rewards", "noise")
        )
        columns = as_features(state.array("columns"), "columns", n)
        left = as_vector(state.array("left"), "left", len(columns))
        mean, lost = (as_vector(state.array(name), name, n) for name in ("posterior_mean", "lost"))
        time, error = (as_number(state.scalar(name), name) for name in ("time", "error"))
        compact_at = as_count(state.scalar("compact_at"), "compact_at", len(columns))
        if (
            not 0 < len(times) <= self.count
            or len(rows) != len(times)
            or (np.diff(times) < 0.0).any()
            or time != times[-1]
            or not (noise > 0.0).all()
            or not 0.0 <= error <= TRUNCATION * self._variance.max()
        ):
            raise StateError("this state is damaged: its observations are impossible")
        self._history = _History(rows, times, rewards, noise)
        self._folded = _Folded.of(time, error, compact_at, mean, lost, columns, left)
