"""Figures: right numbers, equal bytes, no global state."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superarm.core.errors import MissingExtraError
from superarm.lab import plotting
from superarm.lab.results.bounds import Bound, RegretBounds
from superarm.lab.results.charts import run_charts
from superarm.lab.results.styles import PALETTE
from superarm.lab.simulation.run import Run
from superarm.lab.simulation.run_spec import write_spec
from superarm.lab.simulation.trace import Trace, write_trace

matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")


def make_run(
    directory: Path,
    policies: tuple[str, ...] = ("igp-ucb", "gp-ucb", "a $ign"),
    *,
    rounds: int = 900,
    settings: tuple[dict[str, Any], ...] = ({},),
    still: bool = False,
) -> Run:
    """Three seeds of regret t^0.5 times the policy's place; none at all when ``still``."""
    spec = {
        "experiment": "tests/two",
        "title": "A title " * 15,
        "rounds": rounds,
        "first_seed": 0,
    }
    write_spec(
        directory,
        spec | {"seeds": 3, "policies": list(policies), "settings": list(settings)},
    )
    steps = np.sqrt(np.arange(rounds + 1.0))
    for index in range(len(settings)):
        for place, policy in enumerate(policies):
            for seed in range(3):
                regret = (
                    np.diff(steps)
                    * (place + 1)
                    * (seed + 1)
                    * (index + 1)
                    * (not still)
                )
                write_trace(
                    directory,
                    Trace(
                        policy=policy,
                        setting_index=index,
                        seed=seed,
                        series={"regret": regret},
                        seconds=np.full(rounds, 1e-5 * (place + 1), np.float32),
                    ),
                )
    return Run.load(directory)


def drawn(run: Run, about: str, place: int = 0, **options: Any) -> Any:
    """One of the run's charts as a figure."""
    return plotting.draw_picture(
        run_charts(run, **options)[about][place], run.title, [run.experiment]
    )


def texts(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.findobj(matplotlib.text.Text)]


def test_regret_draws_thinned_means_in_the_policies_colours(tmp_path: Path) -> None:
    figure = drawn(make_run(tmp_path), "regret")
    curve = figure.axes[0].lines[1]
    assert curve.get_color() == PALETTE[1]  # gp-ucb's own, in every figure
    assert len(curve.get_xdata()) == 200
    assert curve.get_ydata()[-1] == pytest.approx(2 * 2 * 30.0)
    labels = texts(figure)
    assert "gp-ucb  120" in labels
    assert any("tests/two" in label and "3 seeds" in label for label in labels)


def test_bands_are_standard_errors_or_deviations(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    heights = {}
    for band, words in (("stderr", "standard error"), ("std", "standard deviation")):
        figure = drawn(run, "regret", band=band)
        assert any(f"± 1 {words} over 3 seeds" in text for text in texts(figure))
        (path,) = figure.axes[0].collections[0].get_paths()
        at_end = path.vertices[path.vertices[:, 0] == 900.0, 1]
        heights[band] = (at_end.max() - at_end.min()) / 2.0
    totals = run.cumulative("igp-ucb")[:, -1]
    assert heights["std"] == pytest.approx(totals.std(ddof=1))
    assert heights["stderr"] == pytest.approx(totals.std(ddof=1) / 3**0.5)


def test_growth_labels_hold_the_slope_and_bounds_their_policys_colour(
    tmp_path: Path,
) -> None:
    bound = Bound(
        "theory", np.array([1.0, 2.0, 900.0]), np.array([0.0, 3.0, 300.0]), ""
    )
    figure = drawn(
        make_run(tmp_path), "growth", bounds=RegretBounds({"gp-ucb": bound}, {})
    )
    assert any(
        label.startswith("igp-ucb") and "t⁰·⁵⁰" in label for label in texts(figure)
    )
    (line,) = (
        line
        for line in figure.axes[0].lines
        if line.get_xdata()[-1] == 900.0 == bound.rounds[-1]
        and len(line.get_xdata()) == 2
    )
    assert line.get_color() == PALETTE[1]
    np.testing.assert_array_equal(
        line.get_ydata(), [3.0, 300.0]
    )  # zero has no place on a log axis


def test_seconds_have_units(tmp_path: Path) -> None:
    figure = drawn(make_run(tmp_path), "seconds")
    assert "gp-ucb  20 µs" in texts(figure)
    assert figure.axes[0].get_yscale() == "log"


def test_sweep(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", settings=({"k": 50}, {"k": 1}, {"k": 5}), rounds=9)
    axes = drawn(run, "sweep").axes[0]
    assert axes.get_xscale() == "log"
    np.testing.assert_allclose(axes.lines[0].get_xdata(), [1, 5, 50])
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [12, 18, 6])
    assert run_charts(make_run(tmp_path / "b", rounds=5))["sweep"] == []


def test_labels_do_not_overlap(tmp_path: Path) -> None:
    figure = drawn(make_run(tmp_path, tuple("abcdefghij")), "regret")
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(boxes) == 10
    assert not [
        1 for i, box in enumerate(boxes) for other in boxes[:i] if box.overlaps(other)
    ]


@pytest.mark.parametrize("rounds", [1, 2, 40])
def test_runs_without_regret_or_with_few_rounds(tmp_path: Path, rounds: int) -> None:
    run = make_run(tmp_path, still=True, rounds=rounds)
    for about in ("regret", "growth", "seconds"):
        figure = drawn(run, about)
        figure.canvas.draw()
        assert run.experiment in " ".join(texts(figure))
    written = " ".join(
        texts(drawn(run, "seconds"))
    )  # times are never zero: every policy has its line
    assert all(policy.replace("$", r"\$") in written for policy in run.policies)


def test_equal_figures_give_equal_bytes_and_leave_no_trace(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    before = dict(matplotlib.rcParams)
    one = plotting.save_figure(drawn(run, "regret"), tmp_path / "figures" / "v1.0")
    other = plotting.save_figure(drawn(run, "regret"), tmp_path / "other")
    assert [path.name for path in one] == ["v1.0.png", "v1.0.svg"]
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in other]
    assert b"<dc:date>" not in one[1].read_bytes()
    assert dict(matplotlib.rcParams) == before
    assert (
        "matplotlib.pyplot" not in sys.modules
        or not sys.modules["matplotlib.pyplot"].get_fignums()
    )


def test_a_users_settings_do_not_change_figures(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    one = plotting.save_figure(drawn(run, "growth"), tmp_path / "one")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        other = plotting.save_figure(drawn(run, "growth"), tmp_path / "other")
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in other]


def test_without_matplotlib_the_pip_line_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path)
    for name in [
        each for each in sys.modules if each.partition(".")[0] == "matplotlib"
    ]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'matplotlib>="):
        drawn(run, "regret")


def test_synthetic_data_are_named_in_every_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path, settings=({"k": 1}, {"k": 2}), rounds=5)
    spec = {**run.spec, "settled": [{"data": "a city, synthetic data"}] * 2}
    written: list[str] = []

    def keep(figure: Any, path: Path) -> tuple[Path, Path]:
        written.append(" ".join(texts(figure)))
        return path, path

    monkeypatch.setattr(plotting.files, "save_figure", keep)
    plotting.save_run_figures(Run(tmp_path, spec), tmp_path)
    assert len(written) >= 7
    assert all("synthetic data" in text for text in written)
    written.clear()
    plotting.save_run_figures(run, tmp_path)
    assert not any("synthetic data" in text for text in written)


def test_an_axis_that_holds_no_round_number_is_drawn(tmp_path: Path) -> None:
    run = make_run(tmp_path, ("a", "b"), rounds=3)
    for name in run.cells:
        policy, seed = name[0], int(name[-5:])
        seconds = np.float32([1.31e-5, 1.32e-5, 1.33e-5])
        series = {"regret": np.ones(3)}
        where = {"setting_index": 0, "seed": seed, "policy": policy}
        write_trace(tmp_path, Trace(series=series, seconds=seconds, **where))
    figure = drawn(Run.load(tmp_path), "seconds")
    assert figure.axes[0].get_yscale() == "log"
    figure.canvas.draw()


# --- lengths, ratios and times ---------------------------------------------------------------


def write_run(
    directory: Path, totals: dict[str, Any], rounds: int, **extra: Any
) -> None:
    """Two seeds, the second with twice the totals of the first; rewards are half of the regret."""
    spec = {"experiment": "tests/long", "rounds": rounds, "first_seed": 0, "seeds": 2}
    write_spec(directory, spec | {"policies": list(totals), "settings": [{}], **extra})
    for policy, total in totals.items():
        for seed in range(2):
            steps = np.diff(np.array(total) * (seed + 1.0), prepend=0.0)
            series = {"regret": steps, "reward": steps / 2.0}
            where: dict[str, Any] = {"policy": policy, "setting_index": 0, "seed": seed}
            write_trace(directory, Trace(series=series, **where))


def test_totals_against_the_number_of_rounds(tmp_path: Path) -> None:
    """A policy that was run again for T = 2 and 3 has the totals of those runs, the other its own."""
    write_run(
        tmp_path, {"long": [1, 2, 4, 8], "known": [3, 6, 9, 12]}, 4, horizons=[2, 3]
    )
    write_run(tmp_path / "horizons" / "2", {"known": [1, 5]}, 2)
    write_run(tmp_path / "horizons" / "3", {"known": [1, 2, 7]}, 3)
    (picture,) = run_charts(Run.load(tmp_path))["horizons"]
    found = {series.label: series for series in picture.panels[0].series}
    assert list(found) == ["long  12", "known  18"]
    for label, expected in (
        ("long  12", [3.0, 6.0, 12.0]),
        ("known  18", [7.5, 10.5, 18.0]),
    ):
        np.testing.assert_array_equal(found[label].x, [2, 3, 4])
        np.testing.assert_allclose(found[label].y, expected)
    assert picture.caption.startswith(
        "Policies run again for every T, which they must know in advance: known;"
    )
    assert run_charts(make_run(tmp_path / "b", rounds=5))["horizons"] == []


def test_ratios_round_by_round(tmp_path: Path) -> None:
    """Each seed's own ratio or mean; rows of unknown metrics or policies are no charts."""
    derived = [
        {"name": "share", "metric": "reward", "versus": "best"},
        {"name": "plain", "versus": "best"},
        {"name": "rate", "metric": "reward", "per_round": True},
        {"name": "lost", "metric": "energy", "versus": "best"},
        {"name": "nobody", "versus": "gone"},
    ]
    write_run(tmp_path, {"best": [2, 4, 8], "mine": [1, 3, 4]}, 3, derived=derived)
    run = Run.load(tmp_path)
    assert run.derived == [
        {"name": "share", "metric": "reward", "versus": "best"},
        {"name": "plain", "metric": "regret", "versus": "best"},
        {"name": "rate", "metric": "reward"},
    ]
    pictures = run_charts(run)["derived"]
    assert [picture.name for picture in pictures] == ["share", "plain", "rate"]
    best, mine = pictures[2].panels[0].series
    assert (best.label, mine.label) == ("best  2", "mine  1")
    np.testing.assert_allclose(
        mine.y, [0.75, 3.0 * 0.75 / 2.0, 4.0 * 0.75 / 3.0]
    )  # of 1 and 2 times
    assert pictures[2].panels[0].y_label == "rate"
    assert pictures[2].panels[0].y_range()[0] == 0.0  # unlike ratios
    for picture in pictures[:2]:
        (series,) = picture.panels[0].series
        assert series.label == "mine  0.5"
        np.testing.assert_allclose(series.y, [0.5, 0.75, 0.5])
        assert picture.panels[0].y_label.endswith(", relative to best")


@pytest.mark.parametrize(
    ("power", "told"), [(0.0, ""), (0.05, ""), (0.5, ", t⁰·⁵⁰"), (-0.5, "")]
)
def test_labels_tell_how_time_grows_where_it_does(
    power: float, told: str, tmp_path: Path
) -> None:
    """Times ∝ t^p over the last half; in the first half they are ten times as long."""
    write_spec(
        tmp_path,
        {"experiment": "tests/time", "rounds": 100, "first_seed": 0, "seeds": 1}
        | {"policies": ["mine"], "settings": [{}]},
    )
    rounds = np.arange(1, 101)
    seconds = (1e-4 * rounds**power * np.where(rounds < 50, 10.0, 1.0)).astype(
        np.float32
    )
    where: dict[str, Any] = {"policy": "mine", "setting_index": 0, "seed": 0}
    write_trace(
        tmp_path, Trace(series={"regret": np.ones(100)}, seconds=seconds, **where)
    )
    (picture,) = run_charts(Run.load(tmp_path))["seconds"]
    assert picture is not None
    label = picture.panels[0].series[0].label
    assert label.partition(",")[1] + label.partition(",")[2] == told
