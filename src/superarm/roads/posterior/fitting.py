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
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from superarm.core import Bools, Floats, Ints
from superarm.core.errors import NotPositiveDefiniteError
from superarm.core.linalg import cholesky, solve_lower
from superarm.roads.energy.scales import HourlyScales, RoadScales
from superarm.roads.rows import noise_parts, terms_of

from .engine_protocol import Engine
from .hourly_sums import CountsByHour
from .information import residuals
from .matrices import half_log_det
from .trips import Trips

_PRIOR_WIDTH = 1.0  # of the logarithm of a scale
_NOISE_SHARE = 21  # its place in ``RoadScales.as_vector``
_MOTION = 22
_REACH = 6.0  # how far the logarithm of a scale may be from its initial value


class _Covariance(NamedTuple):
    """The covariance of rewards as a function of the scales."""

    # M_j: what the square of each fitted scale multiplies, (22 to 32, M, M)
    parts: Floats
    places: Ints  # of these scales in ``as_vector``, (22 to 32,)
    stated: Floats  # noise that was stated, (M,)
    borders: Floats | None  # covariance that is known of motion, (M, M)

    def under(self, variances: Floats) -> Floats:
        """The covariance under these squares of the scales, (M, M)."""
        covariance = np.tensordot(variances, self.parts, 1)
        diagonal = np.diag_indices_from(covariance)
        covariance[diagonal] += self.stated
        if self.borders is not None:
            covariance += self.borders
        return covariance


@dataclass(frozen=True)
class _Loss:
    """−log p(y) − log of the prior, by the logarithms of the scales."""

    model: _Covariance
    residual: Floats  # y − expected, (M,)
    centre: Floats  # of the prior, (k,)

    def __call__(self, point: Floats) -> tuple[float, Floats]:
        """The loss and its gradient."""
        variances = np.exp(2.0 * point)
        covariance = self.model.under(variances)
        try:
            L = cholesky(covariance, "the covariance of the latest trips")
        except NotPositiveDefiniteError:
            return math.inf, np.zeros(len(point))
        identity = np.eye(len(L))
        L_inverse = solve_lower(L, identity)
        inverse = solve_lower(L, L_inverse, transposed=True)
        alpha = inverse @ self.residual
        quadratic = 0.5 * float(self.residual @ alpha)
        value = quadratic + float(half_log_det(L))
        # Twice d(value)/d(covariance), of which each part's gradient is a sum.
        by_covariance = inverse - np.outer(alpha, alpha)
        by_variance = np.tensordot(self.model.parts, by_covariance, 2)
        slope = variances * by_variance

        away = (point - self.centre) / _PRIOR_WIDTH
        penalty = 0.5 * float(away @ away)
        return value + penalty, slope + away / _PRIOR_WIDTH


def fit_scales(
    engine: Engine,
    trips: Trips,
    initial: RoadScales,
    most: int,
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
    places = model.places  # all scales, or all but the two of motion
    current = engine.scales.as_vector()
    centre = np.log(initial.as_vector()[places])
    start = np.log(current[places])
    lower, upper = _bounds(centre, places)
    result = minimize(
        _Loss(model, residuals(trips), centre),
        np.clip(start, lower, upper),
        jac=True,
        method="L-BFGS-B",
        bounds=list(zip(lower, upper, strict=True)),
        options={"maxfun": most},
    )
    current[places] = np.exp(result.x)
    return type(initial).from_vector(current, like=initial)


def _bounds(centre: Floats, places: Ints) -> tuple[Floats, Floats]:
    """The lowest and highest logarithms of the scales."""
    is_fixed = places == _NOISE_SHARE
    may_not_fall = is_fixed | (places == _MOTION)
    reach_down = np.where(may_not_fall, 0.0, _REACH)
    reach_up = np.where(is_fixed, 0.0, _REACH)
    lower = centre - reach_down
    upper = centre + reach_up
    return lower, upper


def _covariance_of(engine: Engine, trips: Trips) -> _Covariance:
    """24 parts where rewards hold what is stored in motion, otherwise 22; 8 more with hours."""
    has_model_noise = trips.noise == 0.0
    parts = _road_parts(engine, trips)
    parts += _fleet_parts(trips)
    parts += _vehicle_parts(trips)
    parts += _trip_parts(trips)
    parts += _noise_parts(trips, has_model_noise)
    borders = None
    if trips.borders:
        parts += _motion_parts(trips)
        borders = trips.across(trips.borders.variance)
    places = np.arange(len(parts))
    if isinstance(engine.scales, HourlyScales):
        of_hours = _hour_parts(engine, trips)
        parts += of_hours
        first = len(RoadScales().as_vector())
        places = np.append(places, first + np.arange(len(of_hours)))
    count = len(trips.rewards)
    return _Covariance(
        parts=np.array(parts).reshape(-1, count, count),
        places=places,
        stated=np.where(has_model_noise, 0.0, trips.noise),
        borders=borders,
    )


# --- parts, in the order of the scales -----------------------------------------------------


def _road_parts(engine: Engine, trips: Trips) -> list[Floats]:
    """What near², own² and share² multiply, three of (M, M)."""
    counts, near, sizes = engine.counted_roads(trips)
    squared_sizes = np.square(sizes)[:, None]
    return [
        near,
        counts.T @ counts,
        counts.T @ (squared_sizes * counts),
    ]


def _hour_parts(engine: Engine, trips: Trips) -> list[Floats]:
    """What near_hour², own_hour², share_hour² and fleet_hour² multiply, eight of (M, M)."""
    assert isinstance(engine, CountsByHour)
    by_hour = engine.counted_by_hour(trips)
    _, rewards, functions = by_hour.counts.shape
    squared_sizes = np.square(by_hour.sizes)[:, None]
    own_part = np.zeros((rewards, rewards))
    share_part = np.zeros((rewards, rewards))
    for function in range(functions):
        counts = np.ascontiguousarray(by_hour.counts[:, :, function])
        own_part += counts.T @ counts
        share_part += counts.T @ (squared_sizes * counts)
    by_term = by_hour.terms.transpose(1, 0, 2)
    fleet_parts = [term @ term.T for term in by_term]
    return [by_hour.near, own_part, share_part, *fleet_parts]


def _fleet_parts(trips: Trips) -> list[Floats]:
    """For each term, how rewards covary that all owe it to the fleet, five of (M, M)."""
    return [np.outer(term, term) for term in trips.terms.T]


def _vehicle_parts(trips: Trips) -> list[Floats]:
    """For each term, how rewards covary that owe it to the same vehicle, five of (M, M)."""
    from scipy.sparse import csr_array

    vehicles, vehicle_of_arm = trips.drivers
    places = (trips.reward_of_arm, vehicle_of_arm)
    shape = (len(trips.rewards), len(vehicles))
    covariances = []
    for term in terms_of(trips.keys).T:
        by_vehicle = csr_array((term, places), shape=shape)
        covariance = by_vehicle @ by_vehicle.T
        covariances.append(covariance.toarray())
    return covariances


def _trip_parts(trips: Trips) -> list[Floats]:
    """For each term, how rewards covary that owe it to the same trip, five of (M, M)."""
    terms = trips.terms
    unshared = trips.unshared[:, None]
    shared = np.where(unshared, 0.0, terms)  # (M, 5)
    covariances = []
    for term in shared.T:
        covariance = _within_trips(trips, term)
        covariances.append(covariance)
    return covariances


def _within_trips(trips: Trips, values: Floats) -> Floats:
    """The outer product of values, (M,), between rewards of the same trip only, (M, M)."""
    same_trip = trips.trip[:, None] == trips.trip
    return np.where(same_trip, np.outer(values, values), 0.0)


def _noise_parts(trips: Trips, has_model_noise: Bools) -> list[Floats]:
    """What the square of each scale of the noise multiplies, four of (M, M)."""
    of_arms = noise_parts(trips.keys)
    of_rewards = trips.summed(of_arms)  # (M, 4)
    has_model_noise = has_model_noise[:, None]
    modelled = np.where(has_model_noise, of_rewards, 0.0)
    return [np.diag(variance) for variance in modelled.T]


def _motion_parts(trips: Trips) -> list[Floats]:
    """What motion² and motion_trip² multiply, two of (M, M)."""
    sizes = trips.borders.size
    by_border = trips.across(np.square(sizes))
    crossing = trips.crossing(sizes)
    shared = np.where(trips.unshared, 0.0, crossing)
    by_trip = _within_trips(trips, shared)
    return [by_border, by_trip]
