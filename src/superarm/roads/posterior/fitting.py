"""The scales under which the latest trips are most likely.

Σ_j s_j² M_j is the covariance of the rewards: each scale s_j multiplies a matrix of its own, which
stays while the scales are searched. What is minimised is −log p(y) − log of a log-normal prior about
the initial scales, a factor of e wide: a few trips move them a little, many move them where they
belong. ``noise_share`` is not fitted: most roads of most trips are forecast to a tenth of a Wh, which
would make it vanish, and then the few that are not would outweigh the totals of trips. For the same
reason ``motion`` may grow, but not fall below its initial value: few speeds at borders are far from
expected. ``motion`` and ``motion_trip`` stay where no reward holds what is stored in motion.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.core.errors import NotPositiveDefiniteError
from superarm.core.linalg import cholesky, solve_lower
from superarm.roads.energy.scales import RoadScales
from superarm.roads.rows import Column, noise_parts, terms_of

from .engine import RoadEngine
from .information import residuals
from .log import Trips

_PRIOR_WIDTH = 1.0  # of the logarithm of a scale
_NOISE_SHARE = 21  # its place in ``RoadScales.as_vector``
_MOTION = 22
_REACH = 6.0  # how far the logarithm of a scale may be from its initial value


class _Covariance(NamedTuple):
    """The covariance of rewards as a function of the scales."""

    parts: Floats  # M_j: what the square of each scale multiplies, (22 or 24, M, M)
    stated: Floats  # noise that was stated, (M,)
    borders: Floats | None  # covariance that is known of motion, (M, M)

    def at(self, variances: Floats) -> Floats:
        """The covariance under these squares of the scales, (M, M)."""
        covariance = np.tensordot(variances, self.parts, 1)
        covariance[np.diag_indices_from(covariance)] += self.stated
        if self.borders is not None:
            covariance += self.borders
        return covariance


def fit_scales(
    engine: RoadEngine, trips: Trips, initial: RoadScales, most: int
) -> RoadScales:
    """The most likely scales, searched from those of the engine.

    Args:
        engine: Its roads include those of the trips.
        trips: What the scales are fitted to.
        initial: The centre of the prior.
        most: How many likelihoods may be computed.
    """
    from scipy.optimize import minimize

    model = _covariance_of(engine, trips)
    residual = residuals(trips)
    fitted_count = len(model.parts)  # all scales, or all but the two of motion
    centre = np.log(initial.as_vector()[:fitted_count])
    start = np.log(engine.scales.as_vector()[:fitted_count])

    def loss(point: Floats) -> tuple[float, Floats]:
        """−log p and its gradient by the logarithms of the scales."""
        variances = np.exp(2.0 * point)
        covariance = model.at(variances)
        away = (point - centre) / _PRIOR_WIDTH
        try:
            L = cholesky(covariance, "the covariance of the latest trips")
        except NotPositiveDefiniteError:
            return math.inf, np.zeros(len(point))
        inverse = solve_lower(L, solve_lower(L, np.eye(len(L))), transposed=True)
        alpha = inverse @ residual
        value = 0.5 * float(residual @ alpha) + float(np.log(np.diagonal(L)).sum())
        dlog_p = inverse - np.outer(alpha, alpha)
        slope = variances * np.tensordot(model.parts, dlog_p, 2)
        return value + 0.5 * float(away @ away), slope + away / _PRIOR_WIDTH

    place = np.arange(fitted_count)
    may_not_fall = np.isin(place, [_NOISE_SHARE, _MOTION])
    lower = centre - np.where(may_not_fall, 0.0, _REACH)
    upper = centre + np.where(place == _NOISE_SHARE, 0.0, _REACH)
    result = minimize(
        loss,
        np.clip(start, lower, upper),
        jac=True,
        method="L-BFGS-B",
        bounds=list(zip(lower, upper, strict=True)),
        options={"maxfun": most},
    )
    not_fitted = engine.scales.as_vector()[fitted_count:]
    return RoadScales.of(np.concatenate([np.exp(result.x), not_fitted]))


def _covariance_of(engine: RoadEngine, trips: Trips) -> _Covariance:
    """24 parts where rewards hold what is stored in motion, otherwise 22."""
    count = len(trips.rewards)
    counts, near, sizes = engine.slots.counted_roads(trips)
    terms = trips.summed(terms_of(trips.keys))  # (M, 5)
    shared = np.where(trips.alone[:, None], 0.0, terms)
    same_trip = trips.trip[:, None] == trips.trip
    has_model_noise = trips.noise == 0.0
    noise = trips.summed(noise_parts(trips.keys))  # (M, 4)
    noise = np.where(has_model_noise[:, None], noise, 0.0)

    parts = [counts.T @ near @ counts]
    parts.append(counts.T @ counts)
    parts.append(counts.T @ (np.square(sizes)[:, None] * counts))
    parts += [np.outer(term, term) for term in terms.T]
    parts += _same_vehicle(trips)
    parts += [np.where(same_trip, np.outer(term, term), 0.0) for term in shared.T]
    parts += [np.diag(variance) for variance in noise.T]
    borders = None
    if trips.borders:
        crossed = np.where(trips.alone, 0.0, trips.crossing(trips.borders.size))
        parts.append(trips.across(np.square(trips.borders.size)))
        parts.append(np.where(same_trip, np.outer(crossed, crossed), 0.0))
        borders = trips.across(trips.borders.variance)
    return _Covariance(
        parts=np.array(parts).reshape(-1, count, count),
        stated=np.where(has_model_noise, 0.0, trips.noise),
        borders=borders,
    )


def _same_vehicle(trips: Trips) -> list[Floats]:
    """For each term, how rewards covary that owe it to the same vehicle, five of (M, M)."""
    from scipy.sparse import csr_array

    vehicles = trips.keys[:, Column.VEHICLE]
    distinct, whose = np.unique(vehicles, return_inverse=True)
    shape = (len(trips.rewards), len(distinct))
    covariances = []
    for term in terms_of(trips.keys).T:
        by_vehicle = csr_array((term, (trips.of, whose)), shape=shape)
        covariances.append((by_vehicle @ by_vehicle.T).toarray())
    return covariances
