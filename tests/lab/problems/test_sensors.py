"""Sensors: the recipe of Figure 4, on synthetic rows always and on real rows where available."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from superarm.core import data_files
from superarm.core.errors import InputError, MissingDataError
from superarm.lab import datasets
from superarm.lab.problems import light_sensors, temperature_sensors
from superarm.lab.problems import sensors as module
from superarm.lab.problems.sensors import effective_rows, repair_glitches, row_of_seed


class Kind(NamedTuple):
    """One of the two sensor sets, and the shapes it has."""

    build: Any
    name: str
    sensors: int
    learn: int
    test: int


KINDS = [
    Kind(temperature_sensors, "intel-temperature", 52, 360, 240),
    Kind(light_sensors, "cmu-light", 41, 601, 192),
]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


def require(name: str) -> None:
    try:
        data_files.find(name)
    except MissingDataError:
        pytest.skip(f"{name} is not at hand")


def rows_of(build: Any, source: str) -> Any:
    real, synthetic = (
        (module._intel_rows, module._warm_room)
        if build is temperature_sensors
        else (module._cmu_rows, module._lit_room)
    )
    return real() if source == "real" else synthetic()


@pytest.mark.parametrize("source", ["synthetic", "real"])
def test_the_recipe(kind: Kind, source: str) -> None:
    build, name, sensors, learn, test = kind
    if source == "real":
        require(name)
    rows = rows_of(build, source)
    assert rows.learn.shape == (learn, sensors)
    assert rows.test.shape == (test, sensors)
    problem = build(seed=4, horizon=100, source=source)
    model = problem.model

    centred = rows.learn - rows.learn.mean(axis=0)
    K = centred.T @ centred / (learn - 1)
    variance = 0.05 * np.mean(np.diag(K))
    norms = [
        np.sqrt(alpha @ K @ alpha)
        for alpha in (
            np.linalg.solve(K + variance * np.eye(sensors), row) for row in centred
        )
    ]
    np.testing.assert_allclose(
        model.kernel(problem.arms.features), K, rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(model.mean, rows.learn.mean(axis=0))
    assert model.noise_variance == pytest.approx(variance)
    assert problem.noise_std == pytest.approx(np.sqrt(variance))
    assert model.norm_bound == pytest.approx(np.mean(norms), rel=1e-8)
    largest = build(seed=4, horizon=100, source=source, norm="largest").model.norm_bound
    assert largest == pytest.approx(np.max(norms), rel=1e-8)
    assert model.gain == {"name": "constant", "value": 1.0}
    np.testing.assert_array_equal(problem.truth, rows.test[row_of_seed(4, test)])
    assert problem.best(problem.offer(1)).value == rows.test[row_of_seed(4, test)].max()
    assert problem.interpretations["data"] == rows.origin


def test_numbers_printed_in_the_paper(kind: Kind) -> None:
    """A prior mean of zero and B² = fᵀKf, one by one and together."""
    rows = rows_of(kind.build, "synthetic")
    learned, K = rows.learn.mean(axis=0), np.cov(rows.learn, rowvar=False)
    ridge = 0.05 * np.trace(K) / len(K) * np.eye(len(K))
    for prior_mean, centre in (("learned", learned), ("zero", 0.0 * learned)):
        for norm in ("mean", "printed"):
            problem = kind.build(
                seed=4, horizon=9, source="synthetic", prior_mean=prior_mean, norm=norm
            )
            f = (rows.learn - centre).T
            weights = f if norm == "printed" else np.linalg.solve(K + ridge, f)
            squares = [column @ K @ column for column in weights.T]
            np.testing.assert_array_equal(problem.model.mean, centre)
            assert problem.model.norm_bound == pytest.approx(
                np.mean(np.sqrt(squares)), rel=1e-8
            )
            assert ("as printed" in problem.interpretations["prior mean"]) == (
                prior_mean == "zero"
            )
            assert ("√(fᵀKf)" in problem.interpretations["rkhs norm"]) == (
                norm == "printed"
            )


def test_unit_scale_divides_by_the_most_variable_sensor(kind: Kind) -> None:
    rows = rows_of(kind.build, "synthetic")
    raw, unit = (
        kind.build(seed=4, horizon=9, source="synthetic", units=word)
        for word in ("raw", "unit")
    )
    scale = np.sqrt(
        ((rows.learn - rows.learn.mean(axis=0)) ** 2).sum(axis=0).max()
        / (kind.learn - 1)
    )
    assert unit.model.kernel.diag(unit.arms.features).max() == pytest.approx(1.0)
    np.testing.assert_allclose(unit.truth, raw.truth / scale)
    np.testing.assert_allclose(unit.model.mean, raw.model.mean / scale)
    assert unit.noise_std == pytest.approx(raw.noise_std / scale)
    assert unit.interpretations["units"] == "readings scaled so that k ≤ 1"
    assert raw.interpretations["units"] == "readings as they come"


def test_mornings_of_a_file_without_a_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 960 is 8 am where the file starts at midnight, row 860 where it starts 50 minutes later."""
    numbers = np.repeat(np.arange(5.0 * 2880)[:, None] + 10.0, 52, axis=1)
    monkeypatch.setattr(module, "load_intel_temperature", lambda: numbers)
    for minute, eight in ((50, 860), (0, 960), (480, 0)):
        rows = module._intel_rows(minute)
        days = [np.arange(120) + 2880 * day + eight + 10 for day in range(5)]
        np.testing.assert_array_equal(rows.learn[:, 7], np.concatenate(days[:3]))
        np.testing.assert_array_equal(rows.test[:, 7], np.concatenate(days[3:]))
    assert (
        temperature_sensors(seed=0, horizon=9, source="real", start_minute=0).truth[0]
        == 3 * 2880 + 970
    )


def test_synthetic_rooms_are_as_warm_and_bright_as_real_ones() -> None:
    for build, level, spread in (
        (temperature_sensors, 22.0, 2.0),
        (light_sensors, 400.0, 80.0),
    ):
        rows = rows_of(build, "synthetic")
        assert abs(rows.learn.mean() - level) < spread
        assert 0.5 * spread < rows.learn.std() < 2.0 * spread


@pytest.mark.parametrize("rows", [240, 192, 1, 2, 7, 100])
def test_every_row_once_and_early_seeds_spread_out(rows: int) -> None:
    assert [row_of_seed(1, 240), row_of_seed(1, 192), row_of_seed(1, 100)] == [
        149,
        119,
        63,
    ]
    order = [row_of_seed(seed, rows) for seed in range(rows)]
    assert sorted(order) == list(range(rows))
    assert row_of_seed(rows + 3, rows) == row_of_seed(3, rows)
    if rows >= 192:
        for count in (5, 10, 25, 50):
            covered = np.sort(order[:count])
            gaps = np.diff(np.append(covered, covered[0] + rows))
            assert gaps.max() <= 2 * rows / count


def test_glitches_are_interpolated() -> None:
    readings = np.array(
        [[0.0, 20.0], [21.0, 1.0], [22.0, 2.0], [3.0, 26.0], [30.0, 27.0], [4.0, 28.0]]
    )
    repaired = repair_glitches(readings, below=5.0)
    np.testing.assert_allclose(repaired[:, 0], [21.0, 21.0, 22.0, 26.0, 30.0, 30.0])
    np.testing.assert_allclose(repaired[:, 1], [20.0, 22.0, 24.0, 26.0, 27.0, 28.0])
    assert readings[0, 0] == 0.0  # the input is not modified
    np.testing.assert_array_equal(
        repair_glitches(np.array([[5.0], [9.0]]), below=5.0), [[5.0], [9.0]]
    )


def test_without_data(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "search_path", list)
    with pytest.raises(MissingDataError, match=kind.name):
        kind.build(seed=0, horizon=10, source="real")
    problem = kind.build(seed=0, horizon=10, source="auto")
    assert "synthetic data" in problem.interpretations["data"]
    assert len(problem.arms) == kind.sensors


def test_auto_takes_real_data(kind: Kind) -> None:
    require(kind.name)
    problem = kind.build(seed=0, horizon=10)
    assert "synthetic data" not in problem.interpretations["data"]
    assert len(problem.arms) == kind.sensors


def test_real_temperature_mornings() -> None:
    require("intel-temperature")
    raw = datasets.load_intel_temperature()
    problem = temperature_sensors(seed=0, horizon=10, source="real")
    assert problem.arms.ids[:6] == (1, 2, 3, 4, 6, 7)
    # Seed 0 is the first test row: 8 am of day 4, in a file that starts 50 minutes after midnight.
    np.testing.assert_array_equal(problem.truth, raw[3 * 2880 + 8 * 120 - 2 * 50])
    midnight = temperature_sensors(seed=0, horizon=10, source="real", start_minute=0)
    np.testing.assert_array_equal(midnight.truth, raw[3 * 2880 + 8 * 120])
    assert module._intel_rows().learn.min() > 5.0


def test_the_clock_puts_the_heating_at_six() -> None:
    """On the four days that heat like working days the rise starts between 6:00 and 6:15."""
    require("intel-temperature")
    middle = np.median(datasets.load_intel_temperature(), axis=1).reshape(5, 2880)
    for day in middle[:4]:
        rises = day[20:] - day[:-20]  # within ten minutes
        minute = 50 + int(np.argmax(rises > 0.5)) / 2
        assert 6 * 60 <= minute + 5 <= 6 * 60 + 15


@pytest.mark.parametrize("build", [temperature_sensors, light_sensors])
def test_synthetic_sensors_are_correlated_and_smooth(build: Any) -> None:
    rows = rows_of(build, "synthetic")
    assert rows.learn.min() > 0.0
    steps = np.diff(rows.learn, axis=0)
    assert steps.var() < 0.2 * rows.learn.var(axis=0).mean()
    correlation = np.corrcoef(rows.learn, rowvar=False)
    assert np.abs(correlation - np.eye(len(correlation))).max() > 0.9


@pytest.mark.parametrize("minute", [-1, 481, 50.0])
def test_bad_clock(minute: Any) -> None:
    with pytest.raises(InputError, match="start_minute must be"):
        temperature_sensors(seed=0, horizon=10, source="synthetic", start_minute=minute)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"source": "imagined"}, "source is 'imagined'; choose"),
        ({"noise_fraction": -1.0}, "noise_fraction must be .*, got -1.0"),
        ({"norm": "smallest"}, "norm is 'smallest'"),
        ({"prior_mean": "median"}, "prior_mean is 'median'"),
        ({"regularisation": "none"}, "regularisation is 'none'"),
        ({"gamma": -0.1}, "gamma must be .*, got -0.1"),
        ({"rows": "all"}, "rows is 'all'"),
    ],
)
@pytest.mark.parametrize("build", [temperature_sensors, light_sensors])
def test_bad_input(build: Any, bad: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(**({"seed": 0, "horizon": 10, "source": "synthetic"} | bad))


def test_cross_validation_learns_from_the_other_parts(kind: Kind) -> None:
    """Parts are rows in a row, which seeds take in turn; every learning row is held out once."""
    rows = rows_of(kind.build, "synthetic")
    folds = 3 if kind.build is temperature_sensors else 5
    parts = np.array_split(rows.learn, folds)
    for seed in (0, 1, folds, folds + 1):
        problem = kind.build(seed=seed, horizon=9, source="synthetic", rows="held-out")
        part = parts[seed % folds]
        others = np.concatenate(
            [one_part for index, one_part in enumerate(parts) if index != seed % folds]
        )
        np.testing.assert_array_equal(
            problem.truth, part[row_of_seed(seed // folds, len(part))]
        )
        np.testing.assert_allclose(problem.model.mean, others.mean(axis=0))
        covariance = problem.model.kernel(problem.arms.features)
        np.testing.assert_allclose(
            covariance, np.cov(others, rowvar=False), rtol=1e-9, atol=1e-12
        )
        assert f"{len(part)} in a row are held out" in problem.interpretations["data"]


def test_the_constant_gain(kind: Kind) -> None:
    problem = kind.build(seed=0, horizon=9, source="synthetic", gamma=0.1)
    assert problem.model.gain == {"name": "constant", "value": 0.1}
    assert problem.interpretations["information gain"] == "γ = 0.1"


def test_effective_rows_by_the_autocorrelation() -> None:
    rng = np.random.default_rng(0)
    walk = np.cumsum(rng.standard_normal((50, 3)), axis=0)
    centred = walk - walk.mean(axis=0)
    time = 1.0
    for lag in range(1, 50):
        products = [centred[t] @ centred[t + lag] for t in range(50 - lag)]
        correlation = sum(products) / np.sum(centred**2)
        if correlation <= 0.0:
            break
        time += 2.0 * correlation
    assert time > 3.0
    assert effective_rows(walk) == pytest.approx(max(2.0, 50 / time))
    assert effective_rows(np.ones((9, 2))) == 9.0
    assert effective_rows(np.arange(5.0)[:, None]) == pytest.approx(
        5 / 1.8
    )  # r_1 = 0.4, r_2 = −0.1


def test_shared_data_of_seeds_follows_the_effective_rows(kind: Kind) -> None:
    rows = rows_of(kind.build, "synthetic")
    tested = kind.build(seed=3, horizon=9, source="synthetic")
    held_out = kind.build(seed=3, horizon=9, source="synthetic", rows="held-out")
    assert tested.shared_data == pytest.approx(1.0 / effective_rows(rows.test))
    assert held_out.shared_data == pytest.approx(1.0 / effective_rows(rows.learn))
    assert f"{100.0 * tested.shared_data:.0f} %" in tested.interpretations["seeds"]


def test_real_rows_are_few(kind: Kind) -> None:
    """One morning after another: of 240 and 192 test rows, about 3 are independent."""
    require(kind.name)
    assert 3.0 < effective_rows(rows_of(kind.build, "real").test) < 3.5
