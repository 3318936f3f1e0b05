"""How high should an airborne wind turbine fly? Section 4 of *Movement Penalized Bayesian
Optimization with Application to Wind Energy Systems* (2022).

Actions are altitudes and contexts are hours of the day. E is the energy that an altitude
generates in an hour, in rated hours: a share of the rated power. Service costs ρ times what
the best altitude would have generated in addition. Moving costs energy, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from superarm.core import Arms, Decision, Feedback, Floats, Offer, Rng
from superarm.core.capabilities import Metric
from superarm.core.data_files import find
from superarm.core.errors import InputError
from superarm.core.inputs import as_count, as_number, read_only, require_choice
from superarm.core.registry import register
from superarm.core.streams import stream
from superarm.models import Model
from superarm.models.worlds import SharedData, store
from superarm.movement import PointMetric
from superarm.oracles import TopK

from .movement import MovementProblem
from .sources import from_source
from .wind_days import HOURS, WindDays, power, real_days, synthetic_days
from .wind_fit import LossFit, altitude_rows, fit_losses


class _Tables(NamedTuple):
    """Energies and losses of a run's days for ρ = 1, (days, 24, n) each."""

    energies: Floats  # E
    losses: Floats  # max E − E
    noise: Floats  # by which losses of a day differ


@register("problem", "wind")
@dataclass(frozen=True, kw_only=True, eq=False)
class Wind(MovementProblem, SharedData):
    """The altitude of an airborne wind turbine, hour by hour; climbing and descending take energy.

    A day is an episode, which begins at the altitude where the previous day ended. Seeds draw
    their days from the same few weeks of one site, so that two seeds have many days in common.

    Args:
        profile: 25 levels up to 1600 m (era5), or the nine heights that a lidar measured
            (lidar).
        rho: The weight ρ of the energy that the wind yields, relative to the energy that
            moving takes.
        readings: Whether costs depend on the hour of the day alone, and differences between
            days are noise (daily), or every single hour has costs of its own (hourly).
        move_cost: The cost of moving from the lowest altitude to the highest, in rated hours:
            hours at the rated power.
        cut_in: Wind speed below which nothing is generated, in m/s.
        rated: Wind speed from which the rated power is generated, in m/s.
        cut_out: Wind speed above which nothing is generated, in m/s.
        days: The number of days of a run, drawn from the complete ones; the learner's model
            is fitted to the others.
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
    # The number of days from which those of the run are drawn.
    _complete_days: int = field(init=False, repr=False)
    _arms: list[Arms] = field(init=False, repr=False)  # by hour
    _energies: Floats = field(init=False, repr=False)  # (T, n), ρE
    _costs: Floats = field(init=False, repr=False)  # (T, n), f
    _noise: Floats = field(init=False, repr=False)  # (T, n)

    def __post_init__(self) -> None:
        rho = as_number(self.rho, "rho", 1e-40, 1e40)
        move_cost = as_number(self.move_cost, "move_cost", 1e-40, 1e40)
        curve = self._power_curve()
        require_choice(self.readings, "readings", ("daily", "hourly"))
        require_choice(self.profile, "profile", ("era5", "lidar"))
        cut_in, rated, cut_out = curve
        if not cut_in < rated < cut_out:
            raise InputError(f"cut_in, rated and cut_out must increase, got {[*curve]}")
        wind = from_source(
            self.source,
            lambda: real_days(self.profile, find("wind-profiles")),
            lambda: synthetic_days(self.profile),
        )
        complete = len(wind.speeds)
        days = as_count(self.days, "days", 1, complete - 2)  # two are left to fit
        if as_count(self.horizon, "horizon") > HOURS * days:
            raise InputError(
                f"horizon is {self.horizon}, but {days} days have {HOURS * days} hours"
            )
        rng = stream(self.seed, "truth", 0)
        order = rng.permutation(complete)
        drawn = np.sort(order[:days])
        energies = power(wind.speeds, *curve)  # (complete, 24, n)
        tables = self._tables(energies[drawn])
        fit = fit_losses(wind, tuple(drawn.tolist()), curve)
        n = len(wind.altitudes)
        rows = altitude_rows(wind.altitudes)
        store(
            self,
            model=self._model(wind, fit, rows, rho, move_cost),
            interpretations=self._interpretations(wind, fit, days, rho, move_cost),
            _complete_days=complete,
            _arms=_arms_by_hour(wind.altitudes, rows),
            _energies=read_only(rho * tables.energies.reshape(-1, n)),
            _costs=read_only(rho * tables.losses.reshape(-1, n)),
            _noise=read_only(rho * tables.noise.reshape(-1, n)),
        )
        self._check_regret()

    def _power_curve(self) -> tuple[float, float, float]:
        """Wind speeds of cut-in, rated power and cut-out, in m/s."""
        return (
            as_number(self.cut_in, "cut_in", 1e-40, 1e40),
            as_number(self.rated, "rated", 1e-40, 1e40),
            as_number(self.cut_out, "cut_out", 1e-40, 1e40),
        )

    @property
    def _is_daily(self) -> bool:
        return self.readings == "daily"

    def _tables(self, E: Floats) -> _Tables:
        highest = E.max(axis=2, keepdims=True)
        loss = highest - E
        if not self._is_daily:
            no_noise = np.zeros_like(E)
            return _Tables(E, loss, no_noise)
        mean_loss = loss.mean(axis=0)
        noise = loss - mean_loss
        mean_E = np.broadcast_to(E.mean(axis=0), E.shape)
        highest = mean_E.max(axis=2, keepdims=True)
        return _Tables(mean_E, highest - mean_E, noise)

    def _model(
        self, wind: WindDays, fit: LossFit, rows: Floats, rho: float, move_cost: float
    ) -> Model:
        altitudes = wind.altitudes
        scale = move_cost / float(np.ptp(altitudes))
        return Model(
            kernel=rho**2 * fit.space * fit.time,
            noise_variance=rho**2 * fit.noise_variance,
            oracle=TopK(k=1),
            horizon=self.horizon,
            mean=rho * fit.mean,
            arms=rows,
            direction="minimize",
            most_arms=len(altitudes),
            metric=PointMetric(points=altitudes[:, None], scale=scale),
        )

    def _interpretations(
        self, wind: WindDays, fit: LossFit, days: int, rho: float, move_cost: float
    ) -> Mapping[str, str]:
        cut_in, rated, cut_out = self._power_curve()
        complete = len(wind.speeds)
        noise_std = (rho**2 * fit.noise_variance) ** 0.5
        if self._is_daily:
            truth = "the mean of the run's days at that hour"
            readings = (
                "ρ (max E − E) of the day itself, less its mean at the hour's best "
                "altitude: the noise is the day's own deviation"
            )
        else:
            truth = "that of every single hour"
            readings = (
                "f itself, without noise; it is a different function in every hour"
            )
        return {
            "data": wind.origin,
            "days": f"{days} of {complete} complete days, drawn with the seed, in order; "
            f"two seeds have {100 * days / complete:.0f} % of them in common, on average",
            "power": f"share of the rated power: 0 below {cut_in:g} m/s, rising with the cube "
            f"of the speed up to {rated:g} m/s, 1 up to {cut_out:g} m/s, 0 above",
            "truth": f"f = ρ (max E − E) with ρ = {rho:g}, the maximum over altitudes; E is {truth}",
            "readings": readings,
            "moving": f"{move_cost:g} rated hours for the whole range; each metre costs the same",
            "episodes": "a day each, from the altitude where the previous day ended; the first day "
            "begins at the lowest altitude",
            "kernel": f"squared exponential in ln(altitude), lengthscale "
            f"{fit.space.lengthscale:.3g}, times periodic in the hour, lengthscale "
            f"{fit.time.lengthscale:.3g}; these, the variance and the prior mean are the most "
            f"likely given the mean losses of the {complete - days} complete days that are not in the run",
            "noise": f"σ = {noise_std:.3g} in the model: how much losses of those days "
            "differ at the same hour and altitude",
            "regret": "against the cheapest way through all rounds, found with all costs known: "
            "eq. 3 with α = 1, β = 0 and one episode, because days begin where a policy left off; "
            "in a single round it may be negative",
        }

    @property
    def span(self) -> int:
        return self.horizon

    @property
    def shared_data(self) -> float:
        return self.days / self._complete_days

    def offer(self, step: int) -> Offer:
        hour = (step - 1) % HOURS
        start = None
        if step == 1:
            start = np.zeros(1, dtype=np.intp)  # the lowest altitude
        return Offer(
            step=step,
            arms=self._arms[hour],
            previous_action=start,
            begins=hour == 0,
        )

    def means(self, offer: Offer) -> Floats:
        return self._row(self._costs, offer)

    def noise(self, offer: Offer, rng: Rng) -> Floats:
        return self._row(self._noise, offer)

    def _row(self, table: Floats, offer: Offer) -> Floats:
        if offer.step > len(table):
            raise InputError(
                f"step is {offer.step}, but {self.days} days have {len(table)} hours"
            )
        return np.asarray(table[offer.step - 1])

    @property
    def measures(self) -> Mapping[str, Metric]:
        measures = {
            "energy": Metric("energy", self.unit, better="up", headline=True),
            **super().measures,
        }
        measures["total_cost"] = measures["total_cost"]._replace(headline=False)
        return measures

    def metrics(
        self, offer: Offer, decision: Decision, feedback: Feedback
    ) -> Mapping[str, float]:
        """Costs and ``energy``: ρ times what was generated, less what moving took."""
        costs = super().metrics(offer, decision, feedback)
        altitude = decision.positions[0]
        energies = self._row(self._energies, offer)  # (n,)
        generated = float(energies[altitude])
        return {"energy": generated - costs["movement_cost"], **costs}


def _arms_by_hour(altitudes: Floats, rows: Floats) -> list[Arms]:
    """The altitudes as arms, for every hour of a day.

    Args:
        altitudes: In m, (n,).
        rows: Features of all arms, hour by hour, (24 n, 2).
    """
    ids = [f"{altitude:g} m" for altitude in altitudes]
    n = len(altitudes)
    arms = []
    for hour in range(HOURS):
        features = rows[hour * n : (hour + 1) * n]
        arms.append(Arms(ids=ids, features=features))
    return arms
