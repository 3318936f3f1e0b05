"""Rewards that are far from what the others of their trip suggest."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.errors import NotPositiveDefiniteError
from superarm.roads.energy.scales import Outliers
from superarm.roads.rows import edges_of

from .noise import TripNoise
from .trips import Trips


class Outlier(NamedTuple):
    """A reward that is far from what was expected of it."""

    edges: Ints  # the roads that it is the sum of
    reward: float
    score: float  # in standard deviations


def outlier_scores(residual: Floats, covariance: Floats, limit: float) -> Floats:
    """How far each outlier is from what the others of its trip suggest, in its std; 0: none, (M,).

    Worst first: the neighbours of an outlier are not judged by it, or they would become outliers, too.

    Args:
        residual: Rewards of a trip less their means, (M,).
        covariance: Their covariance, noise included, (M, M).
        limit: Scores above this many standard deviations are outliers.
    """
    outlier_score = np.zeros(len(residual))
    remaining = np.arange(len(residual))
    while len(remaining):
        block = covariance[np.ix_(remaining, remaining)]
        scores = _leave_one_out_scores(residual[remaining], block)
        worst = int(np.argmax(scores))
        if not scores[worst] > limit:
            break
        outlier = remaining[worst]
        outlier_score[outlier] = scores[worst]
        remaining = np.delete(remaining, worst)
    return outlier_score


def _leave_one_out_scores(residual: Floats, covariance: Floats) -> Floats:
    """How far each residual is from what all others suggest, in its standard deviations, (k,)."""
    try:
        inverse = np.linalg.inv(covariance)
    except np.linalg.LinAlgError:
        raise NotPositiveDefiniteError(
            "the covariance of a trip's rewards cannot be inverted; arms differ by too many "
            "orders of magnitude"
        ) from None
    # (inverse · residual)ᵢ / √inverseᵢᵢ
    weighted = np.abs(inverse @ residual)
    precision_root = np.sqrt(np.diagonal(inverse))
    scores: Floats = weighted / precision_root
    return scores


def list_outliers(trip: Trips, scores: Floats, limit: float) -> tuple[Outlier, ...]:
    """The outliers of a trip."""
    edges = edges_of(trip.keys)
    outliers = []
    for reward in np.flatnonzero(scores > limit).tolist():
        arms = trip.reward_of_arm == reward
        outlier = Outlier(
            edges=edges[arms],
            reward=float(trip.rewards[reward]),
            score=float(scores[reward]),
        )
        outliers.append(outlier)
    return tuple(outliers)


def treat_outliers(
    trip: Trips,
    scores: Floats,
    limit: float,
    how: Outliers,
    noise: TripNoise,
) -> Trips:
    """A trip as it is learned.

    Args:
        trip: One trip.
        scores: Its :func:`outlier_scores`, (M,).
        limit: Scores above this many standard deviations are outliers.
        how: Whether outliers are kept, weighed by noise that grows with their score, or refused.
        noise: The noise of trips.
    """
    is_outlier = scores > limit
    if how == "refuse":
        return trip.without(is_outlier)
    if how == "keep":
        return trip
    factor = (scores / limit) ** 2
    variance = noise.own_variance(trip) * factor
    if trip.borders:
        # A reward that its neighbours' motion cannot explain is a slip of its own.
        motion_cov = trip.across(noise.border_variance(trip))
        variance += np.diagonal(motion_cov) * factor
    treated = np.where(is_outlier, variance, trip.noise)
    return trip._replace(noise=treated)
