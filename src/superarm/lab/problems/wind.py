"""How high should an airborne wind turbine fly? Section 4 of *Movement Penalized Bayesian Optimization
with Application to Wind Energy Systems* (2022).

Actions are altitudes and contexts are hours of the day. E is what an altitude generates in an hour, in
rated hours: a share of the rated power. Service costs ρ times what the best altitude would have
generated in addition, and moving costs energy, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from superarm.core import Arms, Decision, Feedback, Floats, Offer, Rng
from superarm.core.capabilities import Metric
from superarm.core.data_files import find
from superarm.core.errors import InputError
from superarm.core.inputs import as_count, as_number, read_only, require_choice
from superarm.core.registry import register
from superarm.core.streams import stream
from superarm.kernels import Periodic, SquaredExponential
from superarm.lab.datasets import LIDAR_HEIGHTS, load_lidar_winds, load_wind_shapes
from superarm.models import Model
from superarm.models.worlds import SharedData, store
from superarm.movement import PointMetric
from superarm.oracles import TopK

from .movement import MovementProblem
from .sources import from_source

_HOURS = 24


@dataclass(frozen=True, kw_only=True, eq=False)
class WindDays:
    """Wind speeds by day, hour and altitude, in m/s."""

    altitudes: Floats  # (n,), in m, rising
    speeds: Floats  # (days, 24, n)
    origin: str


def power(
    speeds: Floats, cut_in: float = 3.0, rated: float = 12.0, cut_out: float = 25.0
) -> Floats:
    """The share of its rated power that a turbine yields at these wind speeds, in m/s.

    Energy rises with the cube of the speed, from none at ``cut_in`` to all at ``rated``; above
    ``cut_out`` the turbine stands still.

    >>> power(np.array([2.0, 3.0, 12.0, 25.0, 26.0]))
    array([0., 0., 1., 1., 0.])
    """
    cubes = np.clip(speeds, cut_in, rated) ** 3
    return np.where(speeds > cut_out, 0.0, (cubes - cut_in**3) / (rated**3 - cut_in**3))


@register("problem", "wind")
@dataclass(frozen=True, kw_only=True, eq=False)
class Wind(MovementProblem, SharedData):
    """The altitude of an airborne wind turbine, hour by hour; climbing and descending take energy.

    A day is an episode, which begins at the altitude where the previous day ended. Seeds draw their
    days from the same few weeks of one site, so that two seeds have many days in common.

    Args:
        profile: 25 levels up to 1600 m (era5), or the nine heights that a lidar measured (lidar).
        rho: Ρ: the weight of the energy that the wind yields, relative to the energy that moving
            takes.
        readings: Whether costs depend on the hour of the day alone, and differences between days
            are noise (daily), or every single hour has costs of its own (hourly).
        move_cost: What it costs to move from the lowest altitude to the highest, in rated hours:
            hours at the rated power.
        cut_in: Wind speed below which nothing is generated, in m/s.
        rated: Wind speed from which the rated power is generated, in m/s.
        cut_out: Wind speed above which nothing is generated, in m/s.
        days: How many days a run has, drawn from the complete ones; what learners are told comes
            from the others.
        source: Real data, synthetic data of the same shape, or auto: real where available.
    """

    unit: ClassVar[str] = "rated h"
    profile: str = "era5"
    rho: float = 1.0
    readings: str = "daily"
    move_cost: float = 0.5
    cut_in: float = 3.0
    rated: float = 12.0
    cut_out: float = 25.0
    days: int = 40
    source: str = "auto"
    _complete_days: int = field(
        init=False, repr=False
    )  # from which the run's are drawn
    _arms: list[Arms] = field(init=False, repr=False)  # by hour
    _energies: Floats = field(init=False, repr=False)  # (T, n), ρE
    _costs: Floats = field(init=False, repr=False)  # (T, n), f
    _noise: Floats = field(init=False, repr=False)  # (T, n)

    def __post_init__(self) -> None:
        named = ("rho", "move_cost", "cut_in", "rated", "cut_out")
        rho, move_cost, *speeds = (
            as_number(getattr(self, key), key, 1e-40, 1e40) for key in named
        )
        require_choice(self.readings, "readings", ("daily", "hourly"))
        require_choice(self.profile, "profile", ("era5", "lidar"))
        if sorted(set(speeds)) != speeds:
            told = f"cut_in, rated and cut_out are {speeds}"
            raise InputError(f"{told}; each must be above the one before")
        wind = from_source(
            self.source,
            lambda: _real_days(self.profile, find("wind-profiles")),
            lambda: _made_days(self.profile),
        )
        days = as_count(
            self.days, "days", 1, len(wind.speeds) - 2
        )  # two are left to learn from
        if as_count(self.horizon, "horizon") > _HOURS * days:
            raise InputError(
                f"horizon is {self.horizon}, but {days} days have {_HOURS * days} hours"
            )
        chosen = np.sort(
            stream(self.seed, "truth", 0).permutation(len(wind.speeds))[:days]
        )
        E = power(wind.speeds, *speeds)[chosen]
        loss = E.max(axis=2, keepdims=True) - E
        noise, daily = np.zeros_like(E), self.readings == "daily"
        if daily:
            noise = loss - loss.mean(axis=0)
            E = np.broadcast_to(E.mean(axis=0), E.shape)
            loss = E.max(axis=2, keepdims=True) - E
        n, altitudes, others = (
            len(wind.altitudes),
            wind.altitudes,
            len(wind.speeds) - days,
        )
        rows, fit = (
            _rows(altitudes),
            _fitted(wind, tuple(chosen.tolist()), tuple(speeds)),
        )
        noise_variance = rho**2 * fit.noise_variance
        metric = PointMetric(
            points=altitudes[:, None], scale=move_cost / float(np.ptp(altitudes))
        )
        store(
            self,
            model=Model(
                kernel=rho**2 * fit.space * fit.time,
                noise_variance=noise_variance,
                oracle=TopK(k=1),
                horizon=self.horizon,
                mean=rho * fit.mean,
                arms=rows,
                direction="minimize",
                most_arms=n,
                metric=metric,
            ),
            interpretations={
                "data": wind.origin,
                "days": f"{days} of {len(wind.speeds)} complete days, drawn with the seed, in order; "
                f"two seeds have {100 * days / len(wind.speeds):.0f} % of them in common, on average",
                "power": f"share of the rated power: 0 below {speeds[0]:g} m/s, rising with the cube "
                f"of the speed up to {speeds[1]:g} m/s, 1 up to {speeds[2]:g} m/s, 0 above",
                "truth": f"f = ρ (max E − E) with ρ = {rho:g}, the maximum over altitudes; E is "
                + (
                    "the mean of the run's days at that hour"
                    if daily
                    else "that of every single hour"
                ),
                "readings": "ρ (max E − E) of the day itself, less its mean at the hour's best "
                "altitude: the noise is the day's own deviation"
                if daily
                else "f itself, without noise; it is a different function in every hour",
                "moving": f"{move_cost:g} rated hours for the whole range; each metre costs the same",
                "episodes": "a day each, from the altitude where the previous day ended; the first day "
                "begins at the lowest altitude",
                "kernel": f"squared exponential in ln(altitude), lengthscale "
                f"{fit.space.lengthscale:.3g}, times periodic in the hour, lengthscale "
                f"{fit.time.lengthscale:.3g}; these, the variance and the prior mean are the most "
                f"likely given the mean losses of the {others} complete days that are not in the run",
                "noise": f"σ = {noise_variance**0.5:.3g} in the model: how much losses of those days "
                "differ at the same hour and altitude",
                "regret": "against the cheapest way through all rounds, found with all costs known: "
                "eq. 3 with α = 1, β = 0 and one episode, because days begin where a policy left off; "
                "in a single round it may be negative",
            },
            _complete_days=len(wind.speeds),
            _arms=[
                Arms(
                    ids=[f"{each:g} m" for each in altitudes],
                    features=rows[first : first + n],
                )
                for first in range(0, _HOURS * n, n)
            ],
            **{
                name: read_only(rho * table.reshape(-1, n))
                for name, table in (
                    ("_energies", E),
                    ("_costs", loss),
                    ("_noise", noise),
                )
            },
        )
        self._check_regret()

    @property
    def span(self) -> int:
        return self.horizon

    @property
    def shared_data(self) -> float:
        return self.days / self._complete_days

    def offer(self, step: int) -> Offer:
        hour = (step - 1) % _HOURS
        start = np.zeros(1, dtype=np.intp) if step == 1 else None
        arms = self._arms[hour]
        return Offer(step=step, arms=arms, previous_action=start, begins=hour == 0)

    def means(self, offer: Offer) -> Floats:
        return self._of(self._costs, offer)

    def noise(self, offer: Offer, rng: Rng) -> Floats:
        return self._of(self._noise, offer)

    def _of(self, table: Floats, offer: Offer) -> Floats:
        if offer.step > len(table):
            raise InputError(
                f"step is {offer.step}, but {self.days} days have {len(table)} hours"
            )
        return np.asarray(table[offer.step - 1])

    @property
    def measures(self) -> Mapping[str, Metric]:
        costs = super().measures
        costs = {**costs, "total_cost": costs["total_cost"]._replace(headline=False)}
        return {
            "energy": Metric("energy", self.unit, better="up", headline=True),
            **costs,
        }

    def metrics(
        self, offer: Offer, decision: Decision, feedback: Feedback
    ) -> Mapping[str, float]:
        """Beside the costs ``energy``: what was generated, times ρ, less what moving took."""
        costs = super().metrics(offer, decision, feedback)
        generated = float(self._of(self._energies, offer)[decision.positions[0]])
        return {"energy": generated - costs["movement_cost"], **costs}


def _rows(altitudes: Floats) -> Floats:
    """Features of all arms, hour by hour, (24 n, 2): ln(altitude) and hour."""
    hours, heights = np.meshgrid(np.arange(_HOURS), np.log(altitudes), indexing="ij")
    return read_only(np.column_stack([heights.ravel(), hours.ravel()]))


class _Fit(NamedTuple):
    """What the other days say of losses, for ρ = 1."""

    space: SquaredExponential
    time: Periodic
    mean: float
    noise_variance: float
    misfit: float  # minus the log-likelihood, but for a constant


@lru_cache(maxsize=64)  # it is the same for any ρ
def _fitted(wind: WindDays, used: tuple[int, ...], curve: tuple[float, ...]) -> _Fit:
    """The hyper-parameters under which the mean losses of days that are not used are most likely.

    These are a whole table, (24, n): with K₁ = UAUᵀ over hours and K₂ = VBVᵀ over altitudes, their
    covariance is diagonal once they are turned into UᵀYV. The noise is given.
    """
    from scipy.optimize import minimize

    E = power(np.delete(wind.speeds, used, axis=0), *curve)
    loss = E.max(axis=2, keepdims=True) - E
    if not loss.any():
        raise InputError(
            f"with cut_in, rated and cut_out {curve} no altitude is better than another"
        )
    Y, noise_variance = loss.mean(axis=0), float(loss.var(axis=0, ddof=1).mean())
    rows, n = _rows(wind.altitudes), len(wind.altitudes)

    def fit(theta: Floats) -> _Fit:
        """With these logarithms of two lengthscales and the variance."""
        along, round_the_clock, variance = np.exp(theta)
        space = SquaredExponential(lengthscale=along, variance=variance, columns=(0,))
        time = Periodic(period=float(_HOURS), lengthscale=round_the_clock, columns=(1,))
        (A, U), (B, V) = (
            np.linalg.eigh(time(rows[::n])),
            np.linalg.eigh(space(rows[:n])),
        )
        spectrum = np.maximum(np.outer(A, B), 0.0) + noise_variance / len(E)
        ones, turned = np.outer(U.sum(axis=0), V.sum(axis=0)), U.T @ Y @ V
        mean = float((ones * turned / spectrum).sum() / (ones**2 / spectrum).sum())
        misfit = ((turned - mean * ones) ** 2 / spectrum + np.log(spectrum)).sum() / 2.0
        return _Fit(space, time, mean, noise_variance, float(misfit))

    def misfit(theta: Floats) -> float:
        return fit(theta).misfit

    ends = [(-3.0, 3.0), (-3.0, 3.0), (-12.0, 3.0)]
    start = np.log([1.0, 1.0, 0.05])
    best = minimize(
        misfit, start, method="Nelder-Mead", bounds=ends, options={"xatol": 1e-6}
    )
    return fit(best.x)


# --- days, real and synthetic ------------------------------------------------------------


@lru_cache(maxsize=2)
def _real_days(profile: str, path: Path) -> WindDays:
    """The file at this path, and those beside it, which the loaders find."""
    lidar, shapes = load_lidar_winds(), load_wind_shapes()
    dates, day = np.unique(lidar.hours.astype("datetime64[D]"), return_inverse=True)
    counts = np.zeros((len(dates), _HOURS), dtype=np.intp)
    np.add.at(counts, (day, lidar.hours.astype(np.int64) % _HOURS), 1)
    complete = (counts == 1).all(axis=1)
    speeds = lidar.speeds[complete[day]].reshape(-1, _HOURS, len(LIDAR_HEIGHTS))
    origin = f"a lidar, January to March 2020, {len(speeds)} days of {len(dates)} with every hour once"
    if profile == "lidar":
        origin += ": the nine heights from 40 to 200 m as they were measured"
        return WindDays(
            altitudes=np.array(LIDAR_HEIGHTS, float), speeds=speeds, origin=origin
        )
    at_100, at_200 = (speeds[..., LIDAR_HEIGHTS.index(height)] for height in (100, 200))
    shares = shapes.shares.sum(axis=2)
    known = np.flatnonzero(shares.sum(axis=0))
    middles = 0.5 * (shapes.bins[1:] + shapes.bins[:-1])[known]
    nearest = np.abs(at_200[..., None] - middles).argmin(axis=2)
    chances = np.cumsum(shares[:, known], axis=0) / shares[:, known].sum(
        axis=0
    )  # (8, bins)
    drawn = stream(0, "wind-shapes", 0).random((len(speeds), 1))
    shape = (drawn > chances[:, nearest]).sum(axis=0)
    relative = [
        np.interp(shapes.levels, shapes.heights, each)
        / np.interp(100.0, shapes.heights, each)
        for each in shapes.speeds
    ]
    return WindDays(
        altitudes=shapes.levels,
        speeds=at_100[..., None] * np.array(relative)[shape],
        origin=f"{origin}: its speed at 100 m times one of eight shapes of ERA5 profiles at 52° N, "
        "4° E. Shapes are drawn once for all seeds, by how often each occurs at the hour's speed at "
        "200 m, from one random number per day, so that they change with the wind; above 500 m, where "
        "they end, speeds stay the same",
    )


@cache
def _made_days(profile: str) -> WindDays:
    """A boundary layer that is deep by day and shallow by night, with a jet at its top in the night.

    Below its top speeds follow a power law, steeper at night; above it the wind is that of the weather,
    which changes slowly.
    """
    from scipy.signal import lfilter

    altitudes = (
        np.geomspace(10.0, 1600.0, 25)
        if profile == "era5"
        else np.linspace(40.0, 200.0, 9)
    )
    count, memory, early = (
        72,
        0.98,
        10,
    )  # early days are left out: there the weather has settled
    normals = stream(0, "made-wind", 0).standard_normal((early + count) * _HOURS)
    weather = lfilter([np.sqrt(1.0 - memory**2)], [1.0, -memory], normals)[
        early * _HOURS :
    ]
    night = 0.5 + 0.5 * np.cos(
        2.0 * np.pi * (np.arange(_HOURS)[:, None] - 3.0) / _HOURS
    )  # 1 at 3 am
    top = 1200.0 * 0.25**night
    below = (np.minimum(altitudes, top) / top) ** (0.1 + 0.2 * night)
    jet = 0.25 * night * np.exp(-2.0 * np.log(altitudes / top) ** 2)
    speeds = 9.0 * np.exp(0.45 * weather).reshape(count, _HOURS, 1) * (below + jet)
    origin = (
        f"{count} days of a boundary layer with a jet at night, {len(altitudes)} altitudes from "
        f"{altitudes[0]:g} to {altitudes[-1]:g} m, synthetic data"
    )
    return WindDays(altitudes=altitudes, speeds=speeds, origin=origin)
