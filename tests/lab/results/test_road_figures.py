"""Runs on roads: the contents of figures."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from superarm.core.road_map import RoadMap
from superarm.lab import report as reports
from superarm.lab.results import calibration
from superarm.lab.results import roads as road_results
from superarm.lab.results.charts import group_pictures, regret_chart, run_charts
from superarm.lab.results.maps import (
    networks_picture,
    uncertainty_pictures,
    visit_pictures,
)
from superarm.lab.results.pictures import Chart, Map, Picture
from superarm.lab.simulation.run import Run

SVG = "{http://www.w3.org/2000/svg}"
MakeRun = Callable[..., Run]
MakeMap = Callable[..., RoadMap]
SIX = road_results.METHODS
SCHEDULES = ("gp-ucb", "gp-ucb-half", "gp-bucb", "gp-bucb-half")
EDGES = 30  # of every map that is not given


def maps(picture: Picture | None) -> list[Map]:
    assert picture is not None
    return [panel for panel in picture.panels if isinstance(panel, Map)]


def charts(picture: Picture) -> list[Chart]:
    return [panel for panel in picture.panels if isinstance(panel, Chart)]


def test_maps_show_visits_and_ends(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (picture,) = visit_pictures(run, ["gp-ts", "bi-ts", "prior"])
    for panel in maps(picture):
        counts = road_results.visits(run, panel.title, 0, 3, EDGES)
        assert panel.note == f"distinct edges: {np.count_nonzero(counts)}"
        shown = np.concatenate([layer.edges for layer in panel.layers])
        assert sorted(shown) == np.flatnonzero(counts).tolist()  # each edge once
        widths = [layer.width for layer in panel.layers]
        most = [counts[layer.edges].max() for layer in panel.layers]
        assert (widths, most) == (
            sorted(widths),
            sorted(most),
        )  # the most driven on top, and widest
        limits = [int(text.partition("–")[0].rstrip("+")) for _, text in picture.key]
        for layer in panel.layers:
            place = [colour for colour, _ in picture.key].index(layer.colour)
            assert (counts[layer.edges] >= limits[place]).all()
            assert (
                place == len(limits) - 1
                or (counts[layer.edges] < limits[place + 1]).all()
            )


def test_maps_show_uncertainty(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (picture,) = uncertainty_pictures(run)
    assert [panel.title for panel in maps(picture)] == list(
        SIX
    )  # baselines have no posterior
    for panel in maps(picture):
        audit = run.audit(panel.title, 0, 3)
        assert audit is not None
        shown = np.concatenate([layer.edges for layer in panel.layers])
        assert sorted(shown) == list(range(EDGES))
        lowest = [audit["std"][layer.edges].min() for layer in panel.layers]
        assert lowest == sorted(lowest, reverse=True)  # what is known lies on top
    assert uncertainty_pictures(make_run(tmp_path / "b", audited=())) == []


def test_drawn_maps_have_roads_ends_and_a_key(
    make_run: MakeRun, tmp_path: Path
) -> None:
    (picture,) = visit_pictures(make_run(tmp_path), ["gp-ts", "prior"])
    svg = reports.picture_svg(picture, "Roads")
    texts = [element.text for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    panels = maps(picture)
    assert svg.count('<g id="roads-0">') == 1  # both maps share the grey roads
    assert svg.count('<use href="#roads-0"/>') == len(panels) - 1 == 1
    trips = sum(len(panel.ends) for panel in panels)
    assert trips > 0
    assert svg.count("<circle") == trips  # starts
    goals = re.findall(r'<rect [^>]+ fill="#fff" stroke=', svg)
    assert len(goals) == trips
    for panel in panels:
        assert f">{panel.title}</tspan>" in svg
        assert f">  {panel.note}</tspan>" in svg
        for layer in panel.layers:
            assert f'stroke="{layer.colour}"' in svg
    assert texts[0] == "Roads"
    for colour, text in picture.key:
        assert text in texts
        assert f'height="8" fill="{colour}"' in svg


def test_networks_show_every_trip_once(
    make_run: MakeRun, chain: MakeMap, tmp_path: Path
) -> None:
    settings = tuple({"route": f"north-{letter}"} for letter in "ba")
    many = make_run(
        tmp_path / "a", ("gp-ts",), settings=settings, roads=(chain(goal=7), chain())
    )
    other = make_run(
        tmp_path / "b",
        ("prior",),
        settings=({"route": "coast-a"},),
        roads=(chain(seed=9),),
    )
    coast, north = maps(networks_picture([many, other, many]))
    assert (coast.title, north.title) == ("Coast A", "North A, North B")
    assert [(start, goal) for start, goal, _ in north.ends] == [(0, 5), (0, 7)]
    route = road_results.usual_route(many, "gp-ts", 1, 3)
    assert north.layers[0].edges.tolist() == route.tolist()
    bare = make_run(tmp_path / "c", ("gp-ts",))
    (bare.directory / "maps" / "s0.npz").unlink()
    assert networks_picture([bare]) is None
    assert group_pictures([bare]) == []


def test_curves_of_very_different_size_use_a_logarithmic_scale(
    make_run: MakeRun, tmp_path: Path
) -> None:
    """Regret grows with a policy's place: the fourteenth has more than ten times the first's."""
    near = regret_chart(make_run(tmp_path / "a", (*SIX, "prior")), 0)
    far = regret_chart(
        make_run(tmp_path / "b", (*(f"p{i}" for i in range(14)), "prior")), 0
    )
    assert (near.log_y, far.log_y) == (False, True)
    assert "log scale" in far.y_label
    thin = [series.label.split()[0] for series in near.series if series.style.thin]
    assert thin == ["prior"]


def test_curve_below_zero_does_not_change_the_axis(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a policy that does better than the one that regret is counted from."""
    run, cumulative = (
        make_run(tmp_path, tuple(f"p{i}" for i in range(14))),
        Run.cumulative,
    )

    def below(self: Run, policy: str, *arguments: Any, **named: Any) -> Any:
        totals = cumulative(self, policy, *arguments, **named)
        return -totals if policy == "p3" else totals

    monkeypatch.setattr(Run, "cumulative", below)
    chart = regret_chart(run, 0)
    assert min(series.y[-1] for series in chart.series) < 0.0
    assert not chart.log_y


def test_maps_of_several_trips_show_no_ends(
    make_run: MakeRun, chain: MakeMap, tmp_path: Path
) -> None:
    several = (chain(start=-1, goal=-1),)
    run = make_run(tmp_path / "a", ("gp-ts",), roads=several)
    (picture,) = visit_pictures(run, ["gp-ts"])
    assert [panel.ends for panel in maps(picture)] == [()]
    assert "start" not in picture.caption
    assert networks_picture([run]) is None
    nowhere = make_run(tmp_path / "b", ("gp-ts",), roads=several, empty=True)
    visit_pictures(nowhere, ["gp-ts"])


def test_schedules_and_sweeps(
    make_run: MakeRun, chain: MakeMap, tmp_path: Path
) -> None:
    values = (0.5, 1.0, 2.0)
    settings = tuple(
        {"route": f"x-{r}", "lengthscale": v} for r in "ab" for v in values
    )
    roads = (chain(),) * 3 + (chain(goal=9),) * 3
    run = make_run(tmp_path, SCHEDULES, settings=settings, roads=roads)
    pictures = run_charts(run)
    (betas,) = pictures["widths"]
    assert len(betas.panels) == 2 * 3
    widths = charts(betas)[2].series
    schedule = road_results.schedule_of(run, "gp-bucb-half", 0, EDGES)
    assert schedule is not None
    beta = [schedule.width(step, lambda count: 0.0) ** 2 for step in range(1, 13)]
    np.testing.assert_allclose(widths[3].y, beta)
    (curves,) = pictures["regret"]  # of all settings together
    assert len(curves.panels) == 2 * 4
    assert [series.label for series in charts(curves)[0].series] == ["0.5", "1", "2"]
    (totals,) = pictures["sweep"]
    panels = [chart for chart in charts(totals) if "regret" in chart.y_label]
    assert [chart.title for chart in panels] == ["route = x-a", "route = x-b"]
    expected = [run.cumulative("gp-ucb", index)[:, -1].mean() for index in (3, 4, 5)]
    np.testing.assert_allclose(panels[1].series[0].y, expected)
    assert run_charts(make_run(tmp_path / "c", ("gp-ts",)))["widths"] == []


def test_calibration_picture(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    picture = calibration.calibration_picture(run)
    assert picture is not None
    panels = {chart.title: chart for chart in charts(picture)}
    assert list(panels) == [
        "edges",
        "first visits",
        "trips",
        "truth of edges",
        "truth of trips",
    ]
    calibrations = calibration.calibrations(run)
    for title in ("edges", "truth of trips"):
        right, *drawn = panels[title].series
        assert not right.y.any()
        assert [series.label.split()[0] for series in drawn] == list(SIX)
        for series, by_kind in zip(drawn, calibrations.values(), strict=True):
            levels = by_kind[title]
            np.testing.assert_allclose(
                series.x, [100 * level.level for level in levels]
            )
            away = [100 * (level.observed - level.level) for level in levels]
            np.testing.assert_allclose(series.y, away)
            np.testing.assert_allclose(
                series.half, [200 * level.stderr for level in levels]
            )
    assert calibration.calibration_picture(make_run(tmp_path / "b", audited=())) is None


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("policies", "options", "expected"),
    [
        (("only",), {"seeds": 1, "rounds": 1}, {"networks", "exploration", "regret"}),
        (
            ("gp-ts",),
            {"empty": True, "seeds": 1},
            {"networks", "exploration", "regret"},
        ),
        (
            (*SIX, "prior", "We/ird <name>$"),
            {"rounds": 2},
            {"networks", "exploration", "uncertainty", "calibration", "regret"},
        ),
        (
            SCHEDULES,
            {"settings": ({"k": 1}, {"k": 2}), "audited": ()},
            {"betas", "sweep-k", "networks", "exploration-0", "regret-1"},
        ),
    ],
)
def test_every_figure_that_applies_is_saved(
    make_run: MakeRun,
    tmp_path: Path,
    policies: tuple[str, ...],
    options: dict[str, Any],
    expected: set[str],
) -> None:
    run = make_run(tmp_path, policies, **options)
    paths = reports.save_run_figures(run, tmp_path / "figures")
    assert expected <= {path.stem for path in paths}
    assert sorted(paths) == sorted((tmp_path / "figures").iterdir())
    for path in paths:
        root = ElementTree.parse(path).getroot()
        texts = [element.text or "" for element in root.iter(f"{SVG}text")]
        assert run.experiment in texts[-1]


def test_group_pictures_are_part_of_the_index(
    make_run: MakeRun, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "a", ("gp-ts", "bi-ts"), rounds=3)
    pictures = group_pictures([run])
    assert [picture.name for picture in pictures] == ["networks", "methods"]
    report = reports.write_report(run, [], tmp_path / "a" / "report.html")
    page = reports.write_index(
        [report], tmp_path / "index.html", pictures=pictures
    ).read_text("utf-8")
    assert 'aria-label="Map: tests/roads, 30 edges"' in page
    assert page.count("<svg xmlns") == 3  # and the report's own


def test_pictures_are_saved_as_svg(make_run: MakeRun, tmp_path: Path) -> None:
    pictures = group_pictures([make_run(tmp_path, ("gp-ts", "bi-ts"), rounds=3)])
    paths = reports.save_pictures(
        pictures, "All", tmp_path / "figures", ["synthetic data"]
    )
    assert [path.name for path in paths] == ["networks.svg", "methods.svg"]
    for path in paths:
        assert ">synthetic data</text>" in path.read_text("utf-8")
