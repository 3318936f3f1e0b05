"""Sensors read row by row, on synthetic rows always and on real ones where available."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from superarm.core import Decision, data_files
from superarm.core.errors import InputError, MissingDataError
from superarm.kernels import Temporal, fit_drift
from superarm.lab import datasets
from superarm.lab.experiments import Experiment, Plan, execute
from superarm.lab.problems import temperature_series, traffic_series
from superarm.lab.problems.sensors import repair_glitches, row_of_seed
from superarm.lab.report import write_report
from superarm.lab.simulation import Run, simulate
from superarm.models.worlds import World
from superarm.policies import r_gp_ucb, tv_gp_ucb


class Kind(NamedTuple):
    """One of the two sets of series, and the shapes it has."""

    build: Any
    name: str
    sensors: int
    days: int
    steps: int
    blocks: int
    rounds: int


KINDS = [
    Kind(temperature_series, "intel-temperature", 52, 3, 144, 1, 288),
    Kind(traffic_series, "metr-la-week", 50, 5, 60, 5, 60),
]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


@pytest.mark.thorough
@pytest.mark.parametrize("source", ["synthetic", "real"])
def test_the_recipe(kind: Kind, source: str) -> None:
    if source == "real":
        require(kind.name)
    world = kind.build(seed=4, horizon=kind.rounds, source=source)
    assert isinstance(world, World)
    model = world.model
    assert model.past.shape == (kind.days, kind.steps, kind.sensors)
    assert world.readings.shape == (kind.rounds, kind.sensors)

    learn = model.past.reshape(-1, kind.sensors)
    centred = learn - learn.mean(axis=0)
    K = centred.T @ centred / (len(learn) - 1)
    variance = 0.05 * np.mean(np.diag(K))
    np.testing.assert_allclose(model.kernel(model.arms), K, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(model.mean, learn.mean(axis=0))
    assert model.noise_variance == pytest.approx(variance)
    blocks = centred.reshape(kind.blocks, -1, kind.sensors)
    fit = fit_drift(K, blocks, noise_variance=variance)
    assert model.drift.epsilon == pytest.approx(fit.epsilon, rel=1e-5)
    assert isinstance(model.drift, Temporal)
    assert (
        f"ε = {fit.epsilon:.3g} (95 % interval {fit.interval[0]:.3g}"
        in world.interpretations["drift"]
    )
    assert world.interpretations["data"].endswith(", synthetic data") == (
        source == "synthetic"
    )


def test_readings_are_observed_unchanged(kind: Kind) -> None:
    world = kind.build(seed=1, horizon=5, source="synthetic", k=2)
    for step in (1, 2, 5):
        offer = world.offer(step)
        row = world.readings[step - 1]
        chosen = np.array([7, 3])
        decision = Decision(step=step, action=chosen, positions=chosen)
        noise = world.noise(offer, np.random.default_rng(0))
        np.testing.assert_array_equal(
            world.feedback(offer, decision, noise).rewards, row[chosen]
        )
        np.testing.assert_array_equal(world.means(offer), row)
        assert world.value(offer, decision) == pytest.approx(row[chosen].sum())
        assert world.best(offer).value == pytest.approx(np.sort(row)[-2:].sum())
    with pytest.raises(
        InputError, match=f"but there are only {kind.rounds} rows of readings"
    ):
        world.means(world.offer(kind.rounds + 1))


def test_every_seed_starts_elsewhere(kind: Kind) -> None:
    starts = set()
    for seed in range(kind.sensors):
        world = kind.build(seed=seed, horizon=5, source="synthetic")
        available = world.offer(1).available
        assert available.sum() == 1
        assert available[row_of_seed(seed, kind.sensors)]
        assert world.offer(2).available is None
        starts.add(int(np.argmax(available)))
    assert starts == set(range(kind.sensors))
    three = kind.build(seed=3, horizon=5, source="synthetic", k=3)
    assert three.offer(1).available.sum() == 3
    trace = simulate(three, {"tv": tv_gp_ucb(three.model)}, rounds=3, seed=3)["tv"]
    np.testing.assert_array_equal(
        np.sort(trace.choices[0]), np.flatnonzero(three.offer(1).available)
    )


def test_seeds_share_the_fitted_model(kind: Kind) -> None:
    one, other = (
        kind.build(seed=seed, horizon=9, source="synthetic") for seed in (0, 1)
    )
    assert one.model is other.model
    assert kind.build(seed=0, horizon=8, source="synthetic").model is not one.model


@pytest.mark.slow
def test_invalid_input_is_rejected(kind: Kind) -> None:
    with pytest.raises(
        InputError, match=f"only {kind.rounds} rows of readings, but 999 rounds; use at"
    ):
        kind.build(seed=0, horizon=999, source="synthetic")
    for bad, message in (
        ({"seed": -1}, "seed must be"),
        ({"horizon": 0}, "horizon must be"),
        ({"k": 0}, "k must be"),
        ({"k": kind.sensors + 1}, "k must be"),
        ({"noise_fraction": 0.0}, "noise_fraction must be"),
        ({"source": "mine"}, "source is"),
    ):
        with pytest.raises(InputError, match=message):
            kind.build(**{"seed": 0, "horizon": 9, "source": "synthetic", **bad})
    with pytest.raises(
        InputError, match="day must be a whole number from 6 to 7, got 5"
    ):
        traffic_series(seed=0, horizon=9, source="synthetic", day=5)


def test_without_the_files(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "search_path", lambda: [tmp_path])
    assert (
        kind.build(seed=0, horizon=9)
        .interpretations["data"]
        .endswith(", synthetic data")
    )
    with pytest.raises(MissingDataError, match=kind.name):
        kind.build(seed=0, horizon=9, source="real")


# --- a run -------------------------------------------------------------------------------


@pytest.mark.slow
def test_run_is_audited_and_reports_the_fit(tmp_path: Path) -> None:
    """The page judges forecasts of readings, in terms of sensors, and states N."""
    experiment = Experiment.from_mapping(
        {
            "id": "mine/series",
            "problem": {"name": "traffic-series", "source": "synthetic"},
            "policies": {
                "tv-gp-ucb": {},
                "r-gp-ucb": {"block": "learned"},
                "random": {},
            },
            "rounds": 20,
            "seeds": 2,
        },
        "here",
    )
    execute(Plan.make(experiment, out=tmp_path / "run"))
    run = Run.load(tmp_path / "run")
    assert run.spec["audited"] == ["tv-gp-ucb", "r-gp-ucb"]
    world = traffic_series(seed=0, horizon=20, source="synthetic")
    assert (
        run.spec["settled"][0]["r-gp-ucb"]
        == r_gp_ucb(world.model, block="learned").interpretations
    )
    assert "tv-gp-ucb" not in run.spec["settled"][0]
    audit = run.audit("tv-gp-ucb", 0, 1)
    assert audit is not None
    assert np.isfinite(audit["score"]).all()
    assert np.isnan(audit["true_score"]).all()
    assert run.metric("distinct_sensors", 0).text == "distinct sensors"
    write_report(run, [], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Did the forecasts hold?" in page
    assert "first choices in 95\N{NO-BREAK SPACE}%" in page
    section = page.partition("Did the forecasts hold?")[2].partition("<h2")[0]
    assert not any(word in section for word in ("trip", "noise", "Truths"))


# --- the real files ----------------------------------------------------------------------


def require(name: str) -> None:
    try:
        data_files.find(name)
    except MissingDataError:
        pytest.skip(f"{name} is not at hand")


def test_ten_minutes_of_the_lab() -> None:
    require("intel-temperature")
    raw = repair_glitches(datasets.load_intel_temperature(), below=5.0)
    world = temperature_series(seed=0, horizon=288, source="real")
    np.testing.assert_array_equal(world.readings[1], raw[3 * 2880 + 20])
    np.testing.assert_array_equal(world.model.past[2, -1], raw[3 * 2880 - 20])
    assert world.arms.ids == datasets.INTEL_MOTES
    # The paper found 0.03 with 46 of the sensors.
    assert world.model.drift.epsilon == pytest.approx(0.056, abs=0.001)


def test_mornings_on_the_motorway() -> None:
    require("metr-la-week")
    ids, speeds = datasets.load_metr_la()
    worlds = [
        traffic_series(seed=0, horizon=60, source="real", day=day) for day in (6, 7)
    ]
    columns = [ids.index(sensor) for sensor in worlds[0].arms.ids]
    assert len(set(columns)) == 50
    for day, world in zip((6, 7), worlds, strict=True):
        first = (day - 1) * 288 + 6 * 12
        np.testing.assert_array_equal(
            world.readings, speeds[first : first + 60, columns]
        )
        assert f"day {day} of 7" in world.interpretations["day"]
    np.testing.assert_array_equal(
        worlds[0].model.past[4], speeds[4 * 288 + 72 :][:60, columns]
    )
    assert worlds[0].model.drift.epsilon == pytest.approx(0.2, abs=0.005)
