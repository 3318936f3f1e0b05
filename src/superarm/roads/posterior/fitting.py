"""The scales under which the latest trips are most likely.

Σ_j s_j² M_j is the covariance of the rewards: each scale s_j multiplies a matrix of its own, which
stays while the scales are searched. What is minimised is −log p(y) − log of a log-normal prior about
the scales given, a factor of e wide: a few trips move them a little, many move them where they belong.
``noise_share`` stays as it is given: most roads of most trips are told to a tenth of a Wh, which would
have it vanish, and then the few that are not would outweigh what whole trips tell. For the same reason
``motion`` may grow, but not fall below what is given: few speeds at borders are far from expected.
``motion`` and ``motion_trip`` stay where no reward holds what is stored in motion.
"""

from __future__ import annotations

import math

import numpy as np

from superarm.core import Floats
from superarm.core.errors import NotPositiveDefiniteError
from superarm.core.linalg import cholesky, solve_lower
from superarm.roads.energy.scales import RoadScales

from .engine import EXPECTED, VEHICLE, RoadEngine, noise_parts, terms_of
from .log import Trips

_PRIOR_WIDTH = 1.0  # of the logarithm of a scale
_NOISE_SHARE, _MOTION = 21, 22  # their places in ``RoadScales.as_vector``
_REACH = 6.0  # how far the logarithm of a scale may be from the one given


def fit_scales(
    engine: RoadEngine, trips: Trips, given: RoadScales, most: int
) -> RoadScales:
    """Searched from the engine's own scales with at most so many likelihoods."""
    from scipy.optimize import minimize

    parts, stated = _parts(engine, trips)
    known = trips.across(trips.borders.variance) if trips.borders else None
    residual = trips.rewards - trips.summed(trips.keys[:, EXPECTED])
    searched = len(parts)  # all scales, or all but the two of motion
    centre = np.log(given.as_vector()[:searched])
    start = np.log(engine.scales.as_vector()[:searched])

    def loss(point: Floats) -> tuple[float, Floats]:
        variances = np.exp(2.0 * point)
        covariance = np.tensordot(variances, parts, 1)
        covariance[np.diag_indices_from(covariance)] += stated
        if known is not None:
            covariance += known
        away = (point - centre) / _PRIOR_WIDTH
        try:
            L = cholesky(covariance, "the covariance of the latest trips")
        except NotPositiveDefiniteError:
            return math.inf, np.zeros(len(point))
        inverse = solve_lower(L, solve_lower(L, np.eye(len(L))), transposed=True)
        alpha = inverse @ residual
        value = 0.5 * float(residual @ alpha) + float(np.log(np.diagonal(L)).sum())
        slope = variances * np.tensordot(parts, inverse - np.outer(alpha, alpha), 2)
        return value + 0.5 * float(away @ away), slope + away / _PRIOR_WIDTH

    place = np.arange(searched)
    least = centre - np.where(np.isin(place, [_NOISE_SHARE, _MOTION]), 0.0, _REACH)
    largest = centre + np.where(place == _NOISE_SHARE, 0.0, _REACH)
    first, bounds = (
        np.clip(start, least, largest),
        list(zip(least, largest, strict=True)),
    )
    found = minimize(
        loss,
        first,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxfun": most},
    )
    rest = engine.scales.as_vector()[searched:]
    return RoadScales.of(np.concatenate([np.exp(found.x), rest]))


def _parts(engine: RoadEngine, trips: Trips) -> tuple[Floats, Floats]:
    """What each scale's square multiplies, and noise that was stated, (M,).

    (24, M, M) where rewards hold what is stored in motion; otherwise (22, M, M).
    """
    terms, n = terms_of(trips.keys), len(trips.rewards)
    counts, near, sizes = engine.near_between(trips)
    own = trips.noise == 0.0
    of_all = trips.summed(terms)
    shared = np.where(trips.alone[:, None], 0.0, of_all)
    together = trips.trip[:, None] == trips.trip
    noise = np.where(own[:, None], trips.summed(noise_parts(trips.keys)), 0.0)
    parts = [
        counts.T @ near @ counts,
        counts.T @ counts,
        counts.T @ (np.square(sizes)[:, None] * counts),
        *(np.outer(each, each) for each in of_all.T),
        *_of_vehicles(trips, terms),
        *(np.where(together, np.outer(each, each), 0.0) for each in shared.T),
        *map(np.diag, noise.T),
    ]
    if trips.borders:
        crossed = np.where(trips.alone, 0.0, trips.crossing(trips.borders.size))
        parts.append(trips.across(np.square(trips.borders.size)))
        parts.append(np.where(together, np.outer(crossed, crossed), 0.0))
    return np.array(parts).reshape(-1, n, n), np.where(own, 0.0, trips.noise)


def _of_vehicles(trips: Trips, terms: Floats) -> list[Floats]:
    """Of each term, how rewards covary that owe it to the same vehicle, five of (M, M)."""
    from scipy.sparse import csr_array

    vehicles, who = np.unique(trips.keys[:, VEHICLE], return_inverse=True)
    shape = (len(trips.rewards), len(vehicles))
    by_vehicle = [csr_array((term, (trips.of, who)), shape=shape) for term in terms.T]
    return [(each @ each.T).toarray() for each in by_vehicle]
