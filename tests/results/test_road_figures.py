"""Runs on roads: figures that hold what they should."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superarm import plotting
from superarm import report as reports
from superarm.errors import InputError
from superarm.networks import RoadMap
from superarm.plotting import files
from superarm.results import roads as road_results
from superarm.results.curves import learners_height
from superarm.simulation.trace import Run

MakeRun = Callable[..., Run]
MakeMap = Callable[..., RoadMap]
SIX = road_results.METHODS
SCHEDULES = ("gp-ucb", "gp-ucb-half", "gp-bucb", "gp-bucb-half")
EDGES = 30  # of every map that is not given


def texts(figure: Any) -> list[str]:
    from matplotlib.text import Text

    return [text.get_text() for text in figure.findobj(Text)]


def gids(axes: Any) -> list[str]:
    return [each.get_gid() for each in axes.collections if each.get_gid()]


def test_maps_show_visits_uncertainty_and_ends(make_run: MakeRun, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    run = make_run(tmp_path)
    figure = plotting.plot_exploration(run, 0, ["gp-ts", "bi-ts", "prior"])
    titles = [axes.get_title(loc="left") for axes in figure.axes if axes.get_title(loc="left")]
    for policy in ("gp-ts", "bi-ts", "prior"):
        distinct = np.count_nonzero(road_results.visits(run, policy, 0, (3,), EDGES))
        assert f"{policy} · distinct edges: {distinct}" in titles
    assert "gp-ts · uncertainty at the end" in titles
    assert not any(title.startswith("prior · uncertainty") for title in titles)
    assert gids(figure.axes[0]) == ["start", "goal"]
    driven = max(figure.axes[0].collections, key=lambda each: each.get_zorder() == 3)
    counts = road_results.visits(run, "gp-ts", 0, (3,), EDGES)
    assert len(driven.get_segments()) == np.count_nonzero(counts)
    widths = np.asarray(driven.get_linewidths())
    assert (np.diff(widths) >= 0).all()  # the most driven last, on top, and widest
    figure.canvas.draw()
    with pytest.raises(InputError, match="not in this run"):
        plotting.plot_exploration(run, 0, ["nobody"])


def test_networks_show_every_trip_once(make_run: MakeRun, chain: MakeMap, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    settings = tuple({"route": f"north-{letter}"} for letter in "ba")
    many = make_run(tmp_path / "a", ("gp-ts",), settings=settings, roads=(chain(goal=7), chain()))
    other = make_run(
        tmp_path / "b", ("prior",), settings=({"route": "coast-a"},), roads=(chain(seed=9),)
    )
    figure = plotting.plot_networks([many, other, many])
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["Coast", "North"]
    labels = [text.get_text() for text in figure.axes[1].get_legend().get_texts()]
    assert labels == ["North A", "North B", "start", "goal"]
    assert gids(figure.axes[1]) == ["start", "goal"] * 2
    single = plotting.plot_network(many, 1)
    assert "route of gp-ts" in texts(single)
    bare = make_run(tmp_path / "c", ("gp-ts",))
    (bare.directory / "maps" / "s0.npz").unlink()
    with pytest.raises(InputError, match="no road map"):
        plotting.plot_network(bare)
    with pytest.raises(InputError, match="none of these runs"):
        plotting.plot_networks([bare])
    assert plotting.save_group_figures([bare], tmp_path / "figures") == {}


def test_methods_in_two_scales(make_run: MakeRun, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    run = make_run(tmp_path, (*SIX, "prior", "fastest", "shortest", "gp-greedy", "odd $name"))
    linear, logarithmic = plotting.plot_methods(run).axes
    assert (linear.get_yscale(), logarithmic.get_yscale()) == ("linear", "log")
    assert linear.get_ylim()[1] == pytest.approx(learners_height(run) or linear.get_ylim()[1])
    written = [text.get_text() for text in logarithmic.texts]
    for policy in run.policies:
        assert any(text.startswith(policy.replace("$", r"\$")) for text in written)
    thin = [line for line in logarithmic.lines if line.get_linewidth() == 1.1]
    assert len(thin) == 4
    assert any("dashed: independent edges" in text.get_text() for text in linear.texts)
    (panel,) = plotting.plot_trips([run]).axes
    assert [text.get_text() for text in panel.texts[1:]] == list(SIX)


def test_schedules_and_sweeps(make_run: MakeRun, chain: MakeMap, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    settings = tuple({"route": f"x-{r}", "lengthscale": v} for r in "ab" for v in (0.5, 1.0))
    maps = (chain(), chain(), chain(goal=9), chain(goal=9))
    run = make_run(tmp_path, SCHEDULES, settings=settings, roads=maps)
    figure = plotting.plot_schedules(run)
    assert len(figure.axes) == 12
    widths = figure.axes[2].lines
    schedule = road_results.schedule_of(run, "gp-bucb-half", 0)
    assert schedule is not None
    np.testing.assert_allclose(widths[3].get_ydata(), schedule.beta(np.arange(1, 13), EDGES))
    curves = plotting.plot_sweep_curves(run)
    assert len(curves.axes) == 2 * 4
    labels = [line.get_label() for line in curves.axes[0].lines]
    assert labels[:2] == ["0.5", "1"]
    totals = plotting.plot_sweep_totals(run).axes
    assert [axes.get_title(loc="left") for axes in totals] == ["X A", "X B"]
    expected = [run.cumulative("gp-ucb", index)[:, -1].mean() for index in (2, 3)]
    np.testing.assert_allclose(totals[1].lines[0].get_ydata(), expected)
    with pytest.raises(InputError, match="sweeps no number"):
        plotting.plot_sweep_curves(make_run(tmp_path / "b", ("gp-ts",)))
    with pytest.raises(InputError, match="no policy"):
        plotting.plot_schedules(make_run(tmp_path / "c", ("gp-ts",)))


def test_calibration_figure(make_run: MakeRun, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    run = make_run(tmp_path)
    edges, trips = plotting.plot_calibration(run).axes
    assert [label.get_text() for label in edges.get_yticklabels()] == list(SIX)
    drawn = [line.get_xdata().tolist() for line in trips.lines if len(line.get_xdata()) == 3]
    rows = road_results.calibrations(run)
    assert drawn == [[level.observed for level in row.trips] for row in rows]
    with pytest.raises(InputError, match="no forecasts"):
        plotting.plot_calibration(make_run(tmp_path / "b", audited=()))


@pytest.mark.parametrize(
    ("policies", "options", "expected"),
    [
        (("only",), {"seeds": 1, "rounds": 1}, {"network", "exploration", "regret"}),
        (("gp-ts",), {"empty": True, "seeds": 1}, {"network", "exploration", "regret"}),
        (
            (*SIX, "prior", "We/ird <name>$"),
            {"rounds": 2},
            {"network", "exploration", "exploration-others", "calibration", "regret"},
        ),
        (
            SCHEDULES,
            {"settings": ({"k": 1}, {"k": 2}), "audited": ()},
            {"betas", "sweep-k", "curves-k", "network-0", "regret-1"},
        ),
    ],
)
def test_every_figure_that_applies_is_saved(
    make_run: MakeRun,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    policies: tuple[str, ...],
    options: dict[str, Any],
    expected: set[str],
) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    run = make_run(tmp_path, policies, **options)
    made: dict[str, Any] = {}

    def keep(figure: Any, path: Path) -> tuple[Path, Path]:
        made[path.name] = figure
        return path.with_suffix(".png"), path.with_suffix(".svg")

    monkeypatch.setattr(files, "save_figure", keep)
    paths = plotting.save_run_figures(run, tmp_path / "figures")
    assert expected <= set(made)
    assert len(paths) == 2 * len(made)
    assert "calibration" in made or "calibration" not in expected
    made["exploration" if "exploration" in made else "exploration-0"].canvas.draw()


def test_group_figures_are_part_of_the_index(make_run: MakeRun, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    run = make_run(tmp_path / "a", ("gp-ts", "bi-ts"), rounds=3)
    pictures = plotting.save_group_figures([run], tmp_path / "figures")
    assert [path.name for path in pictures.values()] == ["networks.png", "methods.png"]
    assert all(path.with_suffix(".svg").exists() for path in pictures.values())
    report = reports.write_report(run, [], tmp_path / "a" / "report.html")
    page = reports.write_index([report], tmp_path / "index.html", pictures=pictures).read_text("utf-8")
    assert page.count('src="data:image/png;base64,') == 2
    assert 'alt="Networks with the routes' in page
