"""Which sensor reads highest now? *Time-Varying Gaussian Process Bandit Optimization* (2016), 5.2.

Arms are sensors, and every round has a row of readings, observed as they are. The learner's
model comes from earlier days: mean and covariance of the sensors, and how fast readings
drift.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from superarm.core import Arms, Bools, Floats, Offer
from superarm.core.capabilities import REGRET, AdditiveProblem, HorizonFree, Metric
from superarm.core.data_files import find
from superarm.core.errors import InputError
from superarm.core.inputs import as_count, as_positive, read_only
from superarm.core.registry import register
from superarm.core.streams import stream
from superarm.kernels import Empirical, Temporal, fit_drift
from superarm.lab.datasets import INTEL_MOTES, load_intel_temperature, load_metr_la
from superarm.models import Model
from superarm.oracles import TopK

from .changing import ChangingArms
from .sensors import GLITCH_BELOW, SensorRows, made_room, repair_glitches, row_of_seed
from .sources import from_source

# Of the traffic.
_STEPS_A_MORNING = 60
_SENSORS = 50
_MORNINGS = 7
_LEARNING_MORNINGS = 5
# Of the temperatures.
_STEPS_A_DAY = 144
_LEARNING_DAYS = 3


@dataclass(frozen=True, kw_only=True, eq=False)
class SensorSeries(ChangingArms, AdditiveProblem, HorizonFree):
    """Sensors whose readings come row by row from a table: round t yields row t, without noise.

    Args:
        arms: The sensors.
        readings: (T, n).
        start: The sensors that are available in round 1, (n,); seeds differ in them alone.
        model: The learner's model.
        interpretations: How unclear points of the paper are read.
        unit: The unit of the readings.
        noise_std: 0: readings are observed as they are.
    """

    distinct: ClassVar[str] = "distinct_sensors"
    arms: Arms
    readings: Floats
    start: Bools
    model: Model
    interpretations: Mapping[str, str]
    unit: str
    noise_std: float = 0.0

    def offer(self, step: int) -> Offer:
        available = self.start if step == 1 else None
        return Offer(step=step, arms=self.arms, available=available)

    def means(self, offer: Offer) -> Floats:
        if offer.step > len(self.readings):
            raise InputError(
                f"step is {offer.step}, but there are only {len(self.readings)} rows of readings"
            )
        return np.asarray(self.readings[offer.step - 1])

    def truth(self, offer: Offer) -> None:
        """``None``: what sensors would read without noise is unknown."""

    @property
    def measures(self) -> Mapping[str, Metric]:
        reading = Metric("reading of the chosen sensor", self.unit, "per round", "up")
        return {
            "regret": REGRET._replace(unit=self.unit),
            "reward": reading,
            self.distinct: Metric("distinct sensors"),
        }


@register("problem", "temperature-series")
def temperature_series(
    *,
    seed: int,
    horizon: int,
    source: str = "auto",
    k: int = 1,
    noise_fraction: float = 0.05,
) -> SensorSeries:
    """The warmest of 52 sensors in the Intel Berkeley lab, every ten minutes for two days.

    Args:
        seed: Which random world.
        horizon: Number of rounds T.
        source: Real data, synthetic data of the same shape, or auto: real where available.
        k: Number of sensors chosen.
        noise_fraction: The model's noise variance, as a share of the sensors' average variance.
    """
    synthetic = partial(
        made_room,
        "temperature",
        sensors=52,
        learn=432,
        test=288,
        level=22.0,
        spread=2.0,
    )
    rows = from_source(
        source, lambda: _intel_days(find("intel-temperature")), synthetic
    )
    learned = _learn_model(
        rows, _LEARNING_DAYS, 1, noise_fraction, horizon=horizon, k=k
    )
    interpretations = {
        "noise": learned.noise,
        "drift": f"{learned.drift} the 3 days as one series; the paper found 0.03 on its own data",
    }
    return _series(rows, rows.test, learned.model, interpretations, "°C", seed)


@register("problem", "traffic-series")
def traffic_series(
    *,
    seed: int,
    horizon: int,
    source: str = "auto",
    day: int = 6,
    k: int = 1,
    noise_fraction: float = 0.05,
) -> SensorSeries:
    """The fastest traffic at 50 motorway sensors in Los Angeles, on one morning from 6 to 11.

    Args:
        seed: Which random world.
        horizon: Number of rounds T.
        source: Real data, synthetic data of the same shape, or auto: real where available.
        day: The day whose morning is played, 6 or 7; the model is fitted to days 1 to 5.
        k: Number of sensors chosen.
        noise_fraction: The model's noise variance, as a share of the sensors' average variance.
    """
    synthetic = partial(
        made_room,
        "speed",
        sensors=_SENSORS,
        learn=300,
        test=120,
        level=55.0,
        spread=8.0,
    )
    rows = from_source(source, lambda: _traffic_days(find("metr-la-week")), synthetic)
    first = (as_count(day, "day", 6, 7) - 6) * _STEPS_A_MORNING
    days = _LEARNING_MORNINGS
    learned = _learn_model(rows, days, days, noise_fraction, horizon=horizon, k=k)
    interpretations = {
        "noise": learned.noise,
        "day": f"the morning of day {day} of 7",
        "drift": f"{learned.drift} 5 mornings, taken as independent; the paper found 0.04 on its own data",
    }
    morning = rows.test[first : first + _STEPS_A_MORNING]
    return _series(rows, morning, learned.model, interpretations, "mph", seed)


class _LearnedModel(NamedTuple):
    """A model of earlier days."""

    model: Model
    noise: str  # its noise, in words
    drift: str  # its drift, in words


# One model for all seeds, so that policies share what they learn from its past.
@lru_cache(maxsize=8)
def _learn_model(
    rows: SensorRows,
    days: int,
    blocks: int,
    noise_fraction: float,
    *,
    horizon: int,
    k: int,
) -> _LearnedModel:
    """Learn a model from the learning rows.

    Args:
        rows: Learning rows and test rows.
        days: Number of days of the learning rows.
        blocks: Number of series that they are, independent of each other.
        noise_fraction: The noise variance, as a share of the sensors' average variance.
        horizon: Number of rounds T.
        k: Number of sensors chosen.
    """
    fraction = as_positive(noise_fraction, "noise_fraction")
    n = rows.learn.shape[1]
    mean = rows.learn.mean(axis=0)
    covariance = np.cov(rows.learn, rowvar=False)
    noise_variance = fraction * float(np.trace(covariance)) / n
    readings = (rows.learn - mean).reshape(blocks, -1, n)
    fit = fit_drift(covariance, readings, noise_variance=noise_variance)
    model = Model(
        kernel=Empirical(covariance=covariance),
        noise_variance=noise_variance,
        oracle=TopK(k=as_count(k, "k", 1, n)),
        horizon=as_count(horizon, "horizon"),
        mean=read_only(mean),
        # The kernel is a table: an arm's only feature is its row number in it.
        arms=read_only(np.arange(n, dtype=np.float64)[:, None]),
        most_arms=n,
        drift=Temporal(epsilon=fit.epsilon),
        past=read_only(rows.learn.reshape(days, -1, n)),
    )
    low, high = fit.interval
    noise = (
        f"σ² = {noise_variance:.3g} in the model alone: {noise_fraction:g} times the "
        "sensors' average variance"
    )
    drift = f"ε = {fit.epsilon:.3g} (95 % interval {low:.3g} to {high:.3g}), by maximum likelihood for"
    return _LearnedModel(model, noise, drift)


def _series(
    rows: SensorRows,
    readings: Floats,
    model: Model,
    interpretations: Mapping[str, str],
    unit: str,
    seed: int,
) -> SensorSeries:
    if model.horizon > len(readings):
        raise InputError(
            f"there are only {len(readings)} rows of readings, but {model.horizon} rounds; use at most "
            f"{len(readings)} rounds"
        )
    assert isinstance(model.oracle, TopK)
    assert model.arms is not None
    n = len(model.arms)
    k = model.oracle.k
    first = row_of_seed(as_count(seed, "seed", least=0), n)
    available = np.arange(first, first + k) % n
    if k == 1:
        start = "only one sensor is available, a different one"
    else:
        start = f"only {k} sensors are available, different ones"
    return SensorSeries(
        seed=seed,
        horizon=model.horizon,
        arms=Arms(ids=rows.ids, features=model.arms),
        readings=readings,
        start=np.isin(np.arange(n), available),
        model=model,
        unit=unit,
        interpretations={
            "data": rows.origin,
            "truth": "each round has one row of readings, observed without added noise",
            "kernel": f"empirical covariance of {len(rows.learn)} learning rows about their mean",
            "prior mean": "each sensor's mean over the learning rows",
            **interpretations,
            "start": f"in round 1 {start} for each seed; regret is against all sensors, also in round 1",
        },
    )


@lru_cache(maxsize=1)
def _intel_days(path: Path) -> SensorRows:
    """The file at this path, which the loader finds."""
    readings = repair_glitches(load_intel_temperature(), below=GLITCH_BELOW)
    readings = readings[::20]
    learning_rows = _LEARNING_DAYS * _STEPS_A_DAY
    origin = (
        "Intel Berkeley lab, 52 sensors (the paper has 46), every 20th row, so one every 10 "
        "minutes. Days 1–3 are for learning, 4–5 for testing; a day is 144 rows, counted from the "
        f"start of the file. Readings under {GLITCH_BELOW:g} °C are interpolated in time"
    )
    return SensorRows(
        ids=INTEL_MOTES,
        learn=readings[:learning_rows],
        test=readings[learning_rows:],
        origin=origin,
    )


@lru_cache(maxsize=1)
def _traffic_days(path: Path) -> SensorRows:
    """The file at this path, which the loader finds."""
    ids, speeds = load_metr_la()
    rng = stream(0, "traffic-sensors", 0)
    chosen = np.sort(rng.choice(len(ids), _SENSORS, replace=False))
    by_hour = speeds.reshape(_MORNINGS, 24, 12, -1)  # day, hour, 5 minutes, sensor
    mornings = by_hour[:, 6:11, :, chosen]
    rows = _MORNINGS * _STEPS_A_MORNING
    table = mornings.reshape(rows, -1)
    origin = (
        f"METR-LA in place of I-880, {_SENSORS} of 207 sensors drawn once for all seeds, 6 to "
        "11 am: 60 rows of 5 minutes (the paper has 84). Days 1–5 (Thursday to Monday) are for "
        "learning, 6 (Tuesday) and 7 (Wednesday) for testing. The file has no clock: it is taken "
        "to start at midnight on 1 March 2012; days 3 and 4 have no morning rush. It has no gaps "
        "(speeds of 0), because its makers filled them in. No speed is above 70 mph"
    )
    learning_rows = _LEARNING_MORNINGS * _STEPS_A_MORNING
    learn, test = np.split(table, [learning_rows])
    names = [ids[sensor] for sensor in chosen]
    return SensorRows(ids=names, learn=learn, test=test, origin=origin)
