"""Altitudes of a wind turbine: in a synthetic boundary layer always, in real winds where available."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superarm.core import Decision, Feedback, data_files
from superarm.core.errors import InputError, MissingDataError, StateError
from superarm.core.streams import stream
from superarm.lab.datasets import LIDAR_HEIGHTS, LidarWinds, WindShapes
from superarm.lab.experiments import Experiment, Plan, execute, load_experiment
from superarm.lab.problems import Wind, wind_days
from superarm.lab.problems import wind as module
from superarm.lab.problems.wind_days import WindDays, power
from superarm.lab.simulation import Run, simulate
from superarm.models import World
from superarm.policies import cgp_lcb, gp_md, md_known, minc_known, offline, stationary
from superarm.posteriors import DriftingGP, FiniteGP, log_marginal_likelihood


def make_wind(**options: Any) -> Wind:
    """Nine heights of the boundary layer: small, but with all that matters."""
    defaults = {
        "seed": 2,
        "horizon": 96,
        "profile": "lidar",
        "source": "synthetic",
        "days": 6,
        "rho": 2.0,
    }
    return Wind(**{**defaults, **options})


def days_of(world: Wind) -> WindDays:
    if world.source == "synthetic":
        return module.synthetic_days(world.profile)
    return module.real_days(world.profile, data_files.find("wind-profiles"))


def drawn_days(world: Wind) -> list[int]:
    """The run's days, among the complete ones."""
    every = stream(world.seed, "truth", 0).permutation(len(days_of(world).speeds))
    return sorted(every[: world.days].tolist())


def chosen(step: int, action: int) -> Decision:
    positions = np.array([action])
    return Decision(step=step, action=positions, positions=positions)


def require() -> None:
    try:
        data_files.find("wind-profiles")
    except MissingDataError:
        pytest.skip("wind-profiles is not at hand")


# --- power ---------------------------------------------------------------------------------


def slow_power(speed: float, cut_in: float, rated: float, cut_out: float) -> float:
    if speed < cut_in or speed > cut_out:
        return 0.0
    if speed >= rated:
        return 1.0
    return (speed**3 - cut_in**3) / (rated**3 - cut_in**3)


def test_power_at_the_corners_of_its_curve() -> None:
    speeds = np.array(
        [0.0, 2.999, 3.0, 11.999, 12.0, 25.0, np.nextafter(25.0, 26.0), 40.0]
    )
    near = (11.999**3 - 27.0) / (12.0**3 - 27.0)
    np.testing.assert_array_equal(
        power(speeds)[[0, 1, 2, 4, 5, 6, 7]], [0, 0, 0, 1, 1, 0, 0]
    )
    assert power(speeds)[3] == pytest.approx(near, rel=1e-12)
    grid = np.linspace(0.0, 30.0, 301)
    for curve in ((3.0, 12.0, 25.0), (4.0, 10.0, 20.0)):
        slow = [slow_power(speed, *curve) for speed in grid]
        np.testing.assert_allclose(power(grid, *curve), slow, rtol=1e-12)


# --- truth ---------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["synthetic", "real"])
@pytest.mark.parametrize("profile", ["lidar", "era5"])
def test_the_truth_of_an_hour_of_the_day(profile: str, source: str) -> None:
    if source == "real":
        require()
    world = make_wind(profile=profile, source=source)
    assert isinstance(world, World)
    wind, used = days_of(world), drawn_days(world)
    speeds = wind.speeds[used]
    n = len(wind.altitudes)
    assert n == {"lidar": 9, "era5": 25}[profile]
    for hour in range(24):
        generated = [
            [slow_power(v, 3.0, 12.0, 25.0) for v in day] for day in speeds[:, hour]
        ]
        mean = [sum(day[x] for day in generated) / len(used) for x in range(n)]
        losses = [[max(day) - output for output in day] for day in generated]
        level = min(sum(day[x] for day in losses) / len(used) for x in range(n))
        for day in range(4):
            step = 24 * day + hour + 1
            offer = world.offer(step)
            f = world.means(offer)
            np.testing.assert_allclose(
                f, 2.0 * (max(mean) - np.array(mean)), atol=1e-12
            )
            assert f.min() == 0.0
            # The observation is the day's own loss, up to a constant per hour.
            noise = world.noise(offer, np.random.default_rng(0))
            seen = world.feedback(offer, chosen(step, 3), noise).rewards[0]
            assert seen == pytest.approx(2.0 * (losses[day][3] - level), abs=1e-12)
            metrics = world.metrics(
                offer, chosen(step, 3), Feedback(positions=[3], rewards=[0.0])
            )
            assert metrics["energy"] == pytest.approx(
                2.0 * mean[3] - metrics["movement_cost"], abs=1e-12
            )


def test_deviations_of_all_days_cancel() -> None:
    world = make_wind(horizon=144)
    noise = np.stack(
        [world.noise(world.offer(t), np.random.default_rng(t)) for t in range(1, 145)]
    )
    np.testing.assert_allclose(noise.reshape(6, 24, 9).sum(axis=0), 0.0, atol=1e-13)
    assert noise.std() > 0.05
    repeated = world.noise(world.offer(7), np.random.default_rng(99))
    np.testing.assert_array_equal(noise[6], repeated)


def test_hourly_readings_are_those_of_the_hour() -> None:
    world = make_wind(readings="hourly", horizon=144)
    speeds = days_of(world).speeds[drawn_days(world)].reshape(-1, 9)
    for step in range(1, 145):
        offer = world.offer(step)
        generated = np.array([slow_power(v, 3.0, 12.0, 25.0) for v in speeds[step - 1]])
        np.testing.assert_allclose(
            world.means(offer), 2.0 * (generated.max() - generated), atol=1e-12
        )
        assert not world.noise(offer, np.random.default_rng(0)).any()
    assert "without noise" in world.interpretations["readings"]


def test_the_power_curve_is_a_choice() -> None:
    world = make_wind(cut_in=2.0, rated=8.0, cut_out=11.0, readings="hourly")
    speeds = days_of(world).speeds[drawn_days(world)].reshape(-1, 9)
    generated = np.array(
        [[slow_power(v, 2.0, 8.0, 11.0) for v in row] for row in speeds]
    )
    expected = 2.0 * (generated.max(axis=1, keepdims=True) - generated)
    np.testing.assert_allclose(
        [world.means(world.offer(t)) for t in range(1, 97)], expected[:96]
    )
    assert "0 below 2 m/s" in world.interpretations["power"]


def test_rho_multiplies_the_wind_and_not_the_moves() -> None:
    one, ten = make_wind(rho=1.0), make_wind(rho=10.0)
    offer = one.offer(5)
    np.testing.assert_allclose(10.0 * one.means(offer), ten.means(offer))
    np.testing.assert_array_equal(one.metric.distances, ten.metric.distances)
    for world, rho in ((one, 1.0), (ten, 10.0)):
        assert world.metric.distances[0, -1] == pytest.approx(0.5)
        kernel = world.model.kernel(world.model.arms[:4])
        np.testing.assert_allclose(
            kernel, rho**2 * one.model.kernel(one.model.arms[:4])
        )
        assert world.model.noise_variance == pytest.approx(
            rho**2 * one.model.noise_variance
        )
        assert world.model.mean == pytest.approx(rho * one.model.mean)
    heights = np.array(LIDAR_HEIGHTS, dtype=np.float64)
    cheap = make_wind(move_cost=0.25).metric.distances
    np.testing.assert_allclose(
        cheap, 0.25 * np.abs(heights[:, None] - heights) / 160.0, atol=1e-15
    )


# --- rounds --------------------------------------------------------------------------------


def test_days_begin_where_the_day_before_ended() -> None:
    world = make_wind()
    for step in range(1, 97):
        offer = world.offer(step)
        assert offer.begins == (step % 24 == 1)
        hour = (step - 1) % 24
        rows = world.model.arms[9 * hour : 9 * (hour + 1)]
        np.testing.assert_array_equal(offer.arms.features, rows)
        np.testing.assert_allclose(rows[:, 0], np.log(LIDAR_HEIGHTS))
        assert set(rows[:, 1]) == {float(hour)}
        if step == 1:
            assert np.asarray(offer.previous_action).tolist() == [0]
        else:
            assert offer.previous_action is None
            assert np.asarray(offer.after(np.array([7])).previous_action).tolist() == [
                7
            ]
    assert world.offer(1).arms.ids[0] == "40 m"


def test_seeds_use_different_days_unknown_to_learners() -> None:
    one, other = (
        make_wind(days=40, horizon=960),
        make_wind(days=40, horizon=960, seed=3),
    )
    assert drawn_days(one) != drawn_days(other)
    assert not np.array_equal(one.means(one.offer(1)), other.means(other.offer(1)))
    wind = days_of(one)
    remaining = np.delete(wind.speeds, drawn_days(one), axis=0)
    assert len(remaining) == 32
    loss = power(remaining).max(axis=2, keepdims=True) - power(remaining)
    variance = loss.var(axis=0, ddof=1).mean()
    assert one.model.noise_variance == pytest.approx(2.0**2 * variance)
    assert "32 complete days that are not in the run" in one.interpretations["kernel"]

    # No small change of a hyper-parameter makes the other days' means more likely.
    data = one.model.arms, 2.0 * loss.mean(axis=0).ravel()
    options = {"noise_variance": one.model.noise_variance / 32, "mean": one.model.mean}
    best = log_marginal_likelihood(one.model.kernel, *data, **options)
    fit = module.fit_losses(wind, tuple(drawn_days(one)), (3.0, 12.0, 25.0))
    kernel = 4.0 * fit.space * fit.time
    np.testing.assert_array_equal(kernel(data[0][:30]), one.model.kernel(data[0][:30]))
    for factor in (0.98, 1.02):
        for moved in (
            replace(fit.space, variance=factor * fit.space.variance) * fit.time,
            replace(fit.space, lengthscale=factor * fit.space.lengthscale) * fit.time,
            fit.space * replace(fit.time, lengthscale=factor * fit.time.lengthscale),
        ):
            assert log_marginal_likelihood(4.0 * moved, *data, **options) < best
    for mean in (0.99, 1.01):
        shifted = {**options, "mean": mean * one.model.mean}
        assert log_marginal_likelihood(one.model.kernel, *data, **shifted) < best


def test_a_short_run_is_the_beginning_of_a_long_one() -> None:
    short, long = make_wind(horizon=5), make_wind(horizon=144)
    for step in range(1, 6):
        np.testing.assert_array_equal(
            short.means(short.offer(step)), long.means(long.offer(step))
        )


def test_the_benchmark_is_the_cheapest_way_through_all_rounds() -> None:
    world = make_wind(horizon=3, rho=0.3)
    costs, distances = (
        [world.means(world.offer(t)) for t in (1, 2, 3)],
        world.metric.distances,
    )
    totals = [
        sum(cost[x] for cost, x in zip(costs, way, strict=True))
        + sum(distances[a, b] for a, b in itertools.pairwise((0, *way)))
        for way in itertools.product(range(9), repeat=3)
    ]
    assert sum(world.best(world.offer(t)).value for t in (1, 2, 3)) == pytest.approx(
        min(totals)
    )


def test_energy_is_what_costs_leave() -> None:
    """For any policy, energy and total cost add up to ρ max E, hour by hour."""
    world = make_wind(rho=1.5)
    model = world.model
    policies: dict[str, Any] = {
        "gp-md": gp_md(model),
        "cgp-lcb": cgp_lcb(model),
        "stationary": stationary(model),
        "minc-known": minc_known(model, problem=world),
        "md-known": md_known(model, problem=world),
        "offline": offline(model, problem=world),
    }
    traces = simulate(world, policies, rounds=96, seed=2)
    speeds = days_of(world).speeds[drawn_days(world)]
    most = np.tile(1.5 * power(speeds).mean(axis=0).max(axis=1), 4)
    for trace in traces.values():
        np.testing.assert_allclose(
            trace.series["energy"] + trace.series["total_cost"], most
        )
    assert not traces["stationary"].choices.any()
    assert not traces["minc-known"].series["service_cost"].any()
    totals = {name: trace.series["total_cost"].sum() for name, trace in traces.items()}
    assert (
        totals["offline"] <= min(totals.values()) + 1e-12
    )  # up to rounding, at least a tie
    assert traces["offline"].series["regret"].sum() == pytest.approx(0.0, abs=1e-12)
    measures = world.measures
    assert [name for name, metric in measures.items() if metric.headline] == ["energy"]
    assert measures["energy"].better == "up"
    assert {metric.unit for metric in measures.values()} == {"rated h"}


def test_gp_md_composes_with_a_drifting_posterior() -> None:
    """What ``movement/wind-hourly`` composes: mirror descent on a posterior that drifts."""
    experiment = load_experiment("movement/wind-hourly")
    world = make_wind(readings="hourly")
    names = ("gp-md-drifting", "gp-md-step", "gp-md")
    policies = {name: experiment.build_policy(name, world) for name in names}
    assert isinstance(policies["gp-md-drifting"].posterior, DriftingGP)
    assert isinstance(policies["gp-md"].posterior, FiniteGP)
    traces = simulate(world, policies, rounds=96, seed=2)
    for trace in traces.values():
        assert trace.choices.min() >= 0
        assert trace.choices.max() < 9
    assert policies["gp-md-drifting"].posterior.count == 96
    assert (
        policies["gp-md"].posterior.count == 72
    )  # the last day is learned when the next begins


# --- days ----------------------------------------------------------------------------------


def fake_lidar() -> LidarWinds:
    """Five days; the second lacks 4 am, the fourth has 5 am twice."""
    hours = np.arange(np.datetime64("2020-01-01T00"), np.datetime64("2020-01-06T00"))
    present = np.delete(hours, 24 + 4)
    present = np.sort(np.append(present, np.datetime64("2020-01-04T05")))
    speeds = np.arange(len(present) * 9, dtype=np.float64).reshape(-1, 9) % 23.0 + 1.0
    return LidarWinds(present, speeds)


def fake_shapes(shares: Any) -> WindShapes:
    """A shape that rises, and one that falls; both end at 500 m."""
    heights = 10.0 * np.arange(1.0, 51.0)
    speeds = np.repeat([[1.0], [1.0]], 50, axis=1) + np.array([[0.001], [-0.001]]) * (
        heights - 200.0
    )
    return WindShapes(
        heights,
        speeds,
        np.array([0.0, 5.0, 100.0]),
        shares,
        np.array([10.0, 200.0, 900.0]),
    )


def real_days(
    monkeypatch: pytest.MonkeyPatch, profile: str, shares: Any, lidar: Any = None
) -> WindDays:
    monkeypatch.setattr(
        wind_days, "load_lidar_winds", lambda: fake_lidar() if lidar is None else lidar
    )
    monkeypatch.setattr(
        wind_days,
        "load_wind_shapes",
        lambda: fake_shapes(np.asarray(shares)[..., None]),
    )
    days: WindDays = module.real_days.__wrapped__(profile, Path("anywhere"))
    return days


def test_only_complete_days_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    days = real_days(monkeypatch, "lidar", [[1.0, 1.0], [0.0, 0.0]])
    lidar = fake_lidar()
    expected = []
    for date in np.arange(np.datetime64("2020-01-01"), np.datetime64("2020-01-06")):
        rows = [
            row
            for row, hour in enumerate(lidar.hours)
            if hour.astype("datetime64[D]") == date
        ]
        if sorted(int(lidar.hours[row].astype(int)) % 24 for row in rows) == list(
            range(24)
        ):
            expected.append(lidar.speeds[rows])
    assert len(expected) == 3
    np.testing.assert_array_equal(days.speeds, expected)
    np.testing.assert_array_equal(days.altitudes, LIDAR_HEIGHTS)
    assert "3 days of 5 with every hour once" in days.origin


def test_shapes_scale_the_speed_at_100_m(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below 5 m/s at 200 m the wind has the first shape, above it the second."""
    days = real_days(monkeypatch, "era5", [[1.0, 0.0], [0.0, 2.0]])
    lidar = real_days(monkeypatch, "lidar", [[1.0, 0.0], [0.0, 2.0]]).speeds
    np.testing.assert_array_equal(days.altitudes, [10.0, 200.0, 900.0])
    # The classes are 0 to 5 and 5 to 100 m/s; the nearer of their middles, 2.5 and 52.5, decides.
    for at_100, at_200, profile in zip(
        lidar[..., 3].ravel(),
        lidar[..., 8].ravel(),
        days.speeds.reshape(-1, 3),
        strict=True,
    ):
        slope = 0.001 if at_200 < 27.5 else -0.001
        relative = [
            1.0 + slope * (min(level, 500.0) - 200.0) for level in days.altitudes
        ]
        np.testing.assert_allclose(
            profile, at_100 * np.array(relative) / (1.0 - 100.0 * slope)
        )


def test_shape_frequencies_match_their_shares(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of N days a binomial share p has its first shape: within 5 standard errors √(p(1 − p)/N)."""
    count, p = 400, 0.3
    first = np.datetime64("2020-01-01T00")
    lidar = LidarWinds(first + np.arange(24 * count), np.full((24 * count, 9), 8.0))
    days = real_days(monkeypatch, "era5", [[0.3, 3.0], [0.7, 7.0]], lidar)
    rises = days.speeds[..., 2] > days.speeds[..., 0]
    assert (rises == rises[:, :1]).all()  # one number a day
    assert abs(rises[:, 0].mean() - p) < 5.0 * np.sqrt(p * (1.0 - p) / count)


def test_speed_classes_without_observations_are_omitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    days = real_days(monkeypatch, "era5", [[0.0, 0.0], [0.0, 1.0]])
    assert (days.speeds[..., 0] > days.speeds[..., 2]).all()


def test_real_winds() -> None:
    require()
    lidar, era5 = (
        Wind(seed=0, horizon=960, profile=name, source="real")
        for name in ("lidar", "era5")
    )
    for world, n in ((lidar, 9), (era5, 25)):
        assert days_of(world).speeds.shape == (72, 24, n)
        assert world.interpretations["data"].startswith(
            "a lidar, January to March 2020, 72 days of 91"
        )
        assert world.model.arms.shape == (24 * n, 2)
    # At 100 m, both are the lidar's: the shapes are relative to that height.
    at_100 = days_of(lidar).speeds[..., 3]
    lower, upper = (
        days_of(era5).speeds[..., level] for level in (3, 4)
    )  # 79 and 107 m
    assert (lower < at_100).all()
    assert (at_100 < upper).all()
    np.testing.assert_array_equal(
        days_of(era5).speeds[..., 14], days_of(era5).speeds[..., 24]
    )


def test_synthetic_boundary_layer_has_day_and_night() -> None:
    days = module.synthetic_days("era5")
    assert days.speeds.shape == (72, 24, 25)
    assert (days.speeds > 0.0).all()
    profile = days.speeds.mean(axis=0)
    night, noon = profile[3] / profile[3].max(), profile[15] / profile[15].max()
    assert days.altitudes[night.argmax()] < 400.0
    assert days.altitudes[noon.argmax()] > 1000.0
    assert night[0] < noon[0]  # shear is stronger at night
    assert night[-1] < 0.9  # above the jet the wind is weaker


# --- rejected input ------------------------------------------------------------------------


def test_missing_data_fall_back_to_synthetic(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(data_files, "search_path", lambda: [tmp_path])
    world = make_wind(source="auto")
    assert world.interpretations["data"].endswith(", synthetic data")
    np.testing.assert_array_equal(
        world.means(world.offer(4)), make_wind().means(make_wind().offer(4))
    )
    with pytest.raises(MissingDataError, match="wind-profiles"):
        make_wind(source="real")


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"rho": 0.0}, "rho must be"),
        ({"rho": float("nan")}, "rho must be"),
        ({"move_cost": -1.0}, "move_cost must be"),
        ({"readings": "weekly"}, "readings"),
        ({"profile": "sonar"}, "profile"),
        ({"source": "guess"}, "source"),
        ({"cut_in": 0.0}, "cut_in must be"),
        ({"rated": 3.0}, "cut_in, rated and cut_out must increase, got"),
        ({"cut_out": 11.0}, "cut_in, rated and cut_out must increase, got"),
        (
            {"cut_in": 90.0, "rated": 91.0, "cut_out": 92.0},
            "no altitude is better than another",
        ),
        ({"days": 0}, "days must be"),
        ({"days": 71}, "days must be .*, got 71"),
        ({"seed": -1}, "seed must be"),
        ({"horizon": 0}, "horizon must be"),
        ({"horizon": 145}, "horizon is 145, but 6 days have 144 hours"),
    ],
)
def test_bad_input(bad: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_wind(**bad)


def test_there_are_no_more_hours_than_days_have() -> None:
    world = make_wind(horizon=144)
    with pytest.raises(InputError, match="step is 145, but 6 days have 144 hours"):
        world.means(world.offer(145))
    with pytest.raises(InputError, match="step must be"):
        world.offer(0)


@pytest.mark.parametrize("name", ["rho", "move_cost", "rated"])
def test_numbers_too_large_to_square_are_refused_by_name(name: str) -> None:
    with pytest.raises(
        InputError, match=rf"{name} must be a number from 1e-40 to .*, got 1e\+300"
    ):
        make_wind(**{name: 1e300})


# --- days that seeds share -------------------------------------------------------------------


def test_two_seeds_share_the_stated_number_of_days() -> None:
    """Each seed has 40 of 72 days, any as likely as any other: 40²/72 in common, in the mean.

    Of 40 seeds the 780 pairs are pairwise uncorrelated, each with a hypergeometric count in common.
    """
    world = make_wind(days=40)
    share = world.shared_data
    assert share == 40 / 72
    assert "two seeds have 56 % of them in common" in world.interpretations["days"]
    drawn = [
        set(stream(seed, "truth", 0).permutation(72)[:40].tolist())
        for seed in range(40)
    ]
    assert drawn[world.seed] == set(drawn_days(world))
    pairs = [len(one & other) / 40 for one, other in itertools.combinations(drawn, 2)]
    variance = share * (1.0 - share) * (72 - 40) / (72 - 1) / 40
    assert abs(np.mean(pairs) - share) <= 5.0 * np.sqrt(variance / len(pairs))


def test_run_records_the_share_and_rejects_impossible_ones(tmp_path: Path) -> None:
    base_spec = {"id": "mine", "rounds": 24, "seeds": 1, "policies": {"stationary": {}}}
    problem = {"name": "wind", "profile": "lidar", "source": "synthetic", "days": 6}
    experiment = Experiment.from_mapping({**base_spec, "problem": problem}, "here")
    execute(Plan.make(experiment, out=tmp_path, overrides={"rho": [1.0, 2.0]}))
    run = Run.load(tmp_path)
    assert [run.shared_data(index) for index in range(2)] == [6 / 72] * 2
    spec = json.loads((tmp_path / "run.json").read_text("utf-8"))
    for wrong in ([1.0, 0.5], [-0.1, 0.5], [0.5]):
        (tmp_path / "run.json").write_text(
            json.dumps({**spec, "shared_data": wrong}), "utf-8"
        )
        with pytest.raises(StateError, match="shared_data"):
            Run.load(tmp_path)
