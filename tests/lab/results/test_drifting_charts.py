"""Charts of truths that change: running means, sweeps with marks, the truth itself, own bands."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superarm.core.errors import SpecError, StateError
from superarm.core.streams import Streams
from superarm.lab import report as reports
from superarm.lab.experiments import Experiment, Plan, execute
from superarm.lab.report import picture_svg
from superarm.lab.report.pages import figure
from superarm.lab.report.svg import svg_chart
from superarm.lab.results.charts import run_charts
from superarm.lab.results.pictures import Chart, Picture, Series
from superarm.lab.results.styles import shade
from superarm.lab.simulation.illustrations import TruthRecord, write_illustration
from superarm.lab.simulation.run import Run
from superarm.lab.simulation.run_spec import write_spec
from superarm.lab.simulation.trace import Trace, write_trace

MEAN = {"name": "average_regret", "metric": "regret", "per_round": True}


def make_run(
    directory: Path, settings: list[dict[str, Any]], rounds: int = 40, **extra: Any
) -> Run:
    """Three seeds of one policy whose regret is 1, 2 or 3 in every round, times the setting's place."""
    spec = {
        "experiment": "x",
        "rounds": rounds,
        "first_seed": 0,
        "seeds": 3,
        "policies": ["mine"],
    }
    write_spec(directory, {**spec, "settings": settings, "derived": [MEAN], **extra})
    for index in range(len(settings)):
        for seed in range(3):
            regret = np.full(rounds, (index + 1.0) * (seed + 1.0))
            trace = Trace(
                policy="mine", setting_index=index, seed=seed, series={"regret": regret}
            )
            write_trace(directory, trace)
    return Run.load(directory)


def charts(run: Run, about: str, **options: Any) -> list[Chart]:
    return [
        panel
        for picture in run_charts(run, **options)[about]
        for panel in picture.panels
    ]  # type: ignore[misc]


def test_a_mean_over_rounds_is_followed_round_by_round(tmp_path: Path) -> None:
    """Every round is there, so that what happens after a reset is seen; a panel for every setting."""
    run = make_run(
        tmp_path, [{"epsilon": 0.1}, {"epsilon": 0.2}, {"epsilon": 0.3}], rounds=300
    )
    (picture,) = run_charts(run)["derived"]
    assert (picture.name, picture.columns) == ("average_regret", 3)
    for place, chart in enumerate(charts(run, "derived"), start=1):
        (series,) = chart.series
        assert (chart.title, chart.y_label) == (
            f"epsilon = 0.{place}",
            "average regret",
        )
        np.testing.assert_array_equal(series.x, np.arange(1, 301))
        np.testing.assert_allclose(series.y, 2.0 * place)


def test_units_are_shown(tmp_path: Path) -> None:
    units = {
        "label": "regret",
        "unit": "°C",
        "kind": "total",
        "better": "down",
        "headline": False,
    }
    run = make_run(tmp_path, [{}], metrics=[{"regret": units}])
    assert charts(run, "derived")[0].y_label == "average regret (°C)"


def test_many_swept_settings_have_their_means_in_the_sweep(tmp_path: Path) -> None:
    """Zero stands a step below the others on a logarithmic axis; marks outside are omitted."""
    values = [0.0, 0.001, 0.003, 0.01, 0.1]
    marks = {"the true ε": 0.01, "far away": 7.0}
    run = make_run(
        tmp_path,
        [{"e": value} for value in values],
        chart={"band": "std", "marks": marks},
    )
    assert run_charts(run)["derived"] == []
    (chart,) = charts(run, "sweep")
    assert (chart.y_label, chart.x_label) == ("average regret", "e, log scale")
    assert dict(chart.marks) == {"the true ε": 0.01}
    (series,) = chart.series
    np.testing.assert_array_equal(series.x, values)
    np.testing.assert_allclose(series.y, [2.0, 4.0, 6.0, 8.0, 10.0])
    np.testing.assert_allclose(
        series.half, [1.0, 2.0, 3.0, 4.0, 5.0]
    )  # one deviation of 1, 2, 3
    zero = 0.001 / 3.0
    np.testing.assert_allclose(chart.shapes()[0].x, [zero, *values[1:]])
    assert chart.x_range() == pytest.approx((zero, 0.1))
    assert [*chart.x_ticks().values()] == ["0", "0.001", "0.01", "0.1"]
    svg = svg_chart(chart)
    assert "the true ε" in svg
    assert "nan" not in svg
    np.testing.assert_allclose(
        charts(run, "sweep", band="stderr")[0].series[0].half, series.half / 3**0.5
    )


def test_policies_unaffected_by_the_sweep_are_thin_lines(tmp_path: Path) -> None:
    settings = [{"e": value} for value in (1, 2, 3)]
    spec = {
        "experiment": "x",
        "rounds": 5,
        "first_seed": 0,
        "seeds": 2,
        "settings": settings,
    }
    write_spec(tmp_path, {**spec, "policies": ["mine", "flat"]})
    for index, seed, policy in itertools.product(range(3), range(2), ("mine", "flat")):
        regret = np.full(5, seed + 1.0 + index * (policy == "mine"))
        write_trace(
            tmp_path,
            Trace(
                policy=policy, setting_index=index, seed=seed, series={"regret": regret}
            ),
        )
    (picture,) = run_charts(Run.load(tmp_path))["sweep"]
    mine, flat = picture.panels[0].series  # type: ignore[union-attr]
    assert (mine.style.thin, flat.style.thin) == (False, True)
    assert picture.caption.endswith(
        "do not depend on the swept number; they have no bands."
    )


def test_experiments_bands_are_the_default(
    tmp_path: Path,
) -> None:
    run = make_run(tmp_path, [{}], chart={"band": "std"})
    for band, words in ((None, "deviation"), ("std", "deviation"), ("stderr", "error")):
        for about in ("regret", "derived"):
            assert (
                f"standard {words} over 3 seeds"
                in run_charts(run, band=band)[about][0].caption
            )  # type: ignore[arg-type]
    page = reports.write_report(run, [], tmp_path / "report.html").path.read_text(
        "utf-8"
    )
    assert "standard deviation over 3 seeds" in page


def test_functions_in_a_few_rounds_from_light_to_dark(tmp_path: Path) -> None:
    run = make_run(tmp_path, [{}], rounds=200, chart={"truth": "functions"})
    rounds, places = np.arange(1, 201), np.array([[0.5], [0.0], [1.0]])
    values = np.zeros((200, 3))
    values[:, 1] = np.linspace(-1.0, 1.0, 200)  # at 0, which becomes the best half-way
    write_illustration(tmp_path, 0, TruthRecord(rounds, values, places))
    (chart,) = charts(run, "truth")
    assert [series.label for series in chart.series] == [
        f"t = {t}" for t in (1, 50, 100, 150, 200)
    ]
    assert [series.style.hex for series in chart.series] == [
        shade(place, 5) for place in range(5)
    ]
    for series in chart.series:
        np.testing.assert_array_equal(series.x, [0.0, 0.5, 1.0])
        (best,) = series.marked
        assert series.y[best] == series.y.max()
    assert [series.marked for series in chart.series] == [(1,), (1,), (1,), (0,), (0,)]
    assert svg_chart(chart).count("<circle") == 5
    assert "<h2>The truth</h2>" in _page(run, tmp_path)


def test_every_arm_over_the_rounds_and_the_best_of_them(tmp_path: Path) -> None:
    """Lines without a name have no label, neither next to the chart nor in its text."""
    run = make_run(tmp_path, [{}], chart={"truth": "series"})
    rng = np.random.default_rng(0)
    truth = TruthRecord(
        np.arange(1, 41), rng.normal(20.0, 1.0, (40, 6)), rng.random((6, 2))
    )
    write_illustration(tmp_path, 0, truth)
    (picture,) = run_charts(run)["truth"]
    (chart,) = charts(run, "truth")
    assert [series.label for series in chart.series] == [""] * 6 + ["best"]
    np.testing.assert_array_equal(chart.series[-1].y, truth.values.max(axis=1))
    levels = [series.y.mean() for series in chart.series[:-1]]
    assert levels == sorted(levels)
    assert chart.y_range()[0] > 10.0  # only differences matter
    assert chart.description == "expected reward against round: best"
    assert figure(picture).count("<li>") == 1
    svg = picture_svg(picture, "A title")
    assert svg.count(">best</text>") == 1
    curves = re.findall(r'<path d="M([^"]+)" fill="none"[^>]+stroke-linejoin', svg)
    assert [len(curve.split("L")) for curve in curves] == [40] * 7


def test_integer_axes_have_integer_ticks() -> None:
    """There is no day 6.2; ticks are integers only where the numbers are."""
    for x, ticks in (
        ([6, 7], ["6", "7"]),
        ([6.0, 6.5], ["6", "6.1", "6.2", "6.3", "6.4", "6.5"]),
    ):
        line = Series("", np.array(x), np.ones(2))
        assert [
            *Chart(series=(line,), x_label="x", y_label="y").x_ticks().values()
        ] == ticks


def test_dots_and_marks_in_files() -> None:
    line = Series(
        "f", np.array([0.0, 1.0, 2.0]), np.array([1.0, 3.0, 2.0]), marked=(1,)
    )
    chart = Chart(
        series=(line,), x_label="x", y_label="y", marks={"here": 0.5, "there": 1.5}
    )
    svg = picture_svg(Picture(name="p", panels=(chart,), caption=""), "A title")
    assert svg.count("<circle") == 1
    assert svg.count(">f</text>") == 1
    # Away from the labels.
    assert re.search(r'text-anchor="start" [^>]+>here</text>', svg)
    assert re.search(r'text-anchor="end" [^>]+>there</text>', svg)


def _page(run: Run, directory: Path) -> str:
    return reports.write_report(run, [], directory / "report.html").path.read_text(
        "utf-8"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"values": np.zeros((40, 3))},
            "'values' must be numbers of shape \\(40, 2\\)",
        ),
        ({"rounds": np.zeros((40, 2))}, "'rounds' must be numbers of shape \\(40,\\)"),
        (
            {"places": np.array(["a", "b"])},
            "'places' must be numbers of shape \\(2, 1\\)",
        ),
        ({"places": np.zeros((0, 1))}, "'values' must be numbers of shape \\(40, 1\\)"),
        ({"places": np.zeros((2, 0))}, "'places' must be numbers of shape \\(2, 1\\)"),
        ({"rounds": np.arange(0)}, "'rounds' must be numbers of shape \\(1,\\)"),
        ({"rounds": np.zeros(40, dtype=int)}, "'rounds' must rise from 1 on"),
        ({"rounds": np.arange(40, 0, -1)}, "'rounds' must rise from 1 on"),
        ({"values": np.full((40, 2), np.nan)}, "'values' holds NaN or infinity"),
        ({"places": np.full((2, 1), np.inf)}, "'places' holds NaN or infinity"),
    ],
)
def test_a_damaged_truth_is_named(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    run = make_run(tmp_path, [{}], chart={"truth": "series"})
    good = TruthRecord(np.arange(1, 41), np.zeros((40, 2)), np.zeros((2, 1)))
    write_illustration(tmp_path, 0, good._replace(**change))
    with pytest.raises(
        StateError, match=rf"s0\.npz is damaged: {message}; delete it and run again"
    ):
        run.truth()


@pytest.mark.parametrize("level", [0.0, 3.0, 1e17, -1e17, 1e100])
@pytest.mark.parametrize("from_zero", [True, False])
def test_single_value_has_an_axis_range(level: float, from_zero: bool) -> None:
    line = Series("flat", np.full(2, level), np.full(2, level))
    chart = Chart(series=(line,), x_label="x", y_label="y", from_zero=from_zero)
    for low, high in (chart.x_range(), chart.y_range()):
        assert high > low
    assert "nan" not in svg_chart(chart)


def test_a_chart_that_was_edited_is_refused(tmp_path: Path) -> None:
    make_run(tmp_path, [{}])
    path = tmp_path / "run.json"
    for chart, message in (
        ({"band": "sd"}, "choose 'stderr' or 'std'"),
        ({"bands": 1}, "unknown key 'bands'"),
    ):
        path.write_text(json.dumps({**json.loads(path.read_text()), "chart": chart}))
        with pytest.raises(StateError, match=message):
            Run.load(tmp_path)


# --- from the world to the file ------------------------------------------------------------------


def drifting(chart: dict[str, Any], **problem: Any) -> Experiment:
    settings = {
        "name": "drifting-function",
        "side": 9,
        "dimension": 1,
        "epsilon": 0.3,
        **problem,
    }
    spec = {
        "id": "x",
        "rounds": 6,
        "seeds": 2,
        "problem": settings,
        "policies": {"random": {}},
    }
    return Experiment.from_mapping(
        {**spec, "chart": chart, "sweep": {"lengthscale": [0.2, 0.5]}}, "here"
    )


def test_chart_shows_the_truth_of_the_first_seed(tmp_path: Path) -> None:
    experiment = drifting({"truth": "functions"})
    plan = Plan.make(experiment, out=tmp_path, first_seed=4)
    execute(plan)
    run = Run.load(tmp_path)
    for index, setting in enumerate(run.settings):
        truth = run.truth(index)
        assert truth is not None
        np.testing.assert_array_equal(truth.rounds, np.arange(1, 7))
        np.testing.assert_array_equal(truth.places[:, 0], np.linspace(0.0, 1.0, 9))
        world = experiment.with_setting(setting).build_problem(seed=4, horizon=6)
        for step in range(1, 7):
            np.testing.assert_array_equal(
                truth.values[step - 1], world.means(world.offer(step))
            )
    before = (tmp_path / "truths" / "s1.npz").read_bytes()
    (tmp_path / "truths" / "s1.npz").unlink()  # a run resumes where it was interrupted
    (task,) = plan.tasks()
    assert (task.setting_index, task.policies, task.shown) == (1, (), True)
    execute(plan, resume=True)
    assert (tmp_path / "truths" / "s1.npz").read_bytes() == before
    assert plan.tasks() == []


def test_truth_is_written_only_on_request(tmp_path: Path) -> None:
    execute(Plan.make(drifting({}), out=tmp_path))
    assert not (tmp_path / "truths").exists()
    assert run_charts(Run.load(tmp_path))["truth"] == []


@pytest.mark.parametrize(
    ("truth", "problem", "message"),
    [
        ("functions", {"dimension": 2}, "needs arms with one feature"),
        (
            "series",
            {"dimension": 2, "side": 23},
            "at most 500 arms; this problem has 529",
        ),
    ],
)
def test_unreadable_truth_chart_is_rejected(
    truth: str, problem: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match=message):
        Plan.make(drifting({"truth": truth}, **problem), out=tmp_path)


def test_a_function_of_one_dimension_drifts_by_its_equation() -> None:
    """f₂ = √(1 − ε) f₁ + √ε g₂: the g₂ that follows from it is the same for every ε."""
    innovations = []
    for epsilon in (0.3, 0.6):
        world = drifting({}, kernel="matern", nu=1.5, epsilon=epsilon).build_problem(
            seed=1, horizon=2
        )
        first, second = (world.means(world.offer(step)) for step in (1, 2))
        innovations.append((second - np.sqrt(1.0 - epsilon) * first) / np.sqrt(epsilon))
    np.testing.assert_allclose(*innovations, atol=1e-12)
    x = world.offer(1).arms.features
    assert x.shape == (9, 1)
    r = np.sqrt(3.0) * np.abs(x - x.T) / 0.2
    root = np.linalg.cholesky((1.0 + r) * np.exp(-r))
    # Any root of the covariance is right: the whitened draw is as long as the normals behind it.
    for step, drawn in ((1, first), (2, innovations[0])):
        length = np.linalg.norm(Streams(1, "truth").at(step).standard_normal(9))
        assert np.linalg.norm(np.linalg.solve(root, drawn)) == pytest.approx(
            length, rel=1e-6
        )
