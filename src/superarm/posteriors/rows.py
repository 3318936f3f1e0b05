"""What posteriors share that call arms by their feature rows: checks of rows, prior means."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats, Offer
from superarm.errors import InputError, ShapeError
from superarm.inputs import LARGEST, as_features
from superarm.linalg import cholesky

from .base import GaussianPosterior

MeanFunction = float | Callable[[Floats], Floats]


class _Rooted(NamedTuple):
    """The arms drawn last, with a root of their covariance."""

    written: int
    keys: Floats  # (m, d), a copy: the caller's array may change
    root: Floats  # (m, r)


class RowPosterior(GaussianPosterior):
    """A posterior whose keys are feature rows, all of one width.

    With ``timed`` the last column of a key is the time of its offer (the step, where an offer has
    no time), for kernels that let what was seen grow old.
    """

    _rooted: _Rooted | None = None
    timed: bool = False

    @property
    @abstractmethod
    def _columns(self) -> int | None:
        """Feature columns of what was observed; ``None`` before that."""

    def keys(self, offer: Offer) -> Floats:
        features = offer.arms.features
        if self.timed:
            features = np.column_stack([features, np.full(len(features), offer.moment)])
        return self._check_columns(features)

    def _as_keys(self, arms: Any) -> Floats:
        return self._check_columns(as_features(arms, "arms"))

    def _check_columns(self, features: Floats) -> Floats:
        columns = self._columns
        if columns is not None and features.shape[1] != columns:
            raise ShapeError(
                f"arms have {features.shape[1]} feature columns, but those observed before "
                f"have {columns}"
            )
        return features

    def _root(self, keys: Floats) -> Floats:
        """As every posterior has it, but kept: many draws of one belief are usual."""
        known, written = self._rooted, self._turns.written
        if known is None or known.written != written or not np.array_equal(known.keys, keys):
            known = _Rooted(written, keys.copy(), super()._root(keys))
            self._rooted = known
        return known.root


def as_mean_function(mean: Any) -> MeanFunction:
    """``mean`` as a finite number, or the function of the arms that it is."""
    if callable(mean):
        function: MeanFunction = mean
        return function
    try:
        number = float(mean)
    except (TypeError, ValueError):
        number = np.nan
    if not abs(number) <= LARGEST:
        raise InputError(
            f"mean is {mean!r}; it must be a number below {LARGEST:g} or a function of the arms"
        )
    return number


def mean_at(mean: MeanFunction, keys: Floats) -> Floats:
    """The prior mean of these arms, (m,)."""
    if not callable(mean):
        return np.full(len(keys), mean)
    values = np.array(mean(keys), dtype=np.float64)
    if values.shape != (len(keys),) or not np.isfinite(values).all():
        raise InputError("the mean function must return one finite number per arm")
    return values


def information_in(covariance: Floats, noise: Floats) -> float:
    """½ ln det(I + D^{-½} Σ D^{-½}): what observing arms with this covariance tells, nats."""
    weight = 1.0 / np.sqrt(noise)
    seen = np.eye(len(noise)) + covariance * np.outer(weight, weight)
    factor = cholesky(seen, "the covariance of the observed arms")
    return max(0.0, float(np.log(np.diagonal(factor)).sum()))
