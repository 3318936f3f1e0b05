"""Runs on roads: the contents of pages."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from superarm.core.road_map import RoadMap
from superarm.lab import report as reports
from superarm.lab.report.pages import figure
from superarm.lab.results import calibration
from superarm.lab.results import roads as road_results
from superarm.lab.results.formats import plus_minus
from superarm.lab.results.maps import visit_pictures
from superarm.lab.results.pictures import Chart, Series
from superarm.lab.simulation.run import Run

MakeRun = Callable[..., Run]
MakeMap = Callable[..., RoadMap]
SIX = road_results.METHODS
SCHEDULES = ("gp-ucb", "gp-ucb-half", "gp-bucb", "gp-bucb-half")
EDGES = 30  # of every map that is not given


def written(run: Run, directory: Path) -> str:
    return reports.write_report(run, [], directory / "report.html").path.read_text(
        "utf-8"
    )


def test_the_page_has_maps_energy_and_calibration(
    make_run: MakeRun, tmp_path: Path
) -> None:
    run = make_run(tmp_path)
    text = written(run, tmp_path)
    for policy, row in road_results.trip_energies(run, 0).items():
        numbers = "".join(
            f'<td class="number">{plus_minus(*pair)}</td>' for pair in row.values()
        )
        assert f"{policy}</th>{numbers}" in text
    for by_kind in calibration.calibrations(run).values():
        for level in itertools.chain(*by_kind.values()):
            assert f"{100 * level.observed:.1f} ± {100 * level.stderr:.1f}" in text
    assert "energy per trip (Wh)" in text
    assert "true_energy" not in text.partition("<h2>Settings")[0]
    maps = text[text.index("Where they drove") : text.index("Did the forecasts hold?")]
    assert maps.count('id="exploration-0"') == 1
    assert (
        maps.count('<use href="#exploration-0"/>') == 5
    )  # eight policies: the six methods are shown
    for policy in SIX:
        distinct = np.count_nonzero(road_results.visits(run, policy, 0, 3, EDGES))
        assert f"  distinct edges: {distinct}</tspan>" in maps
        assert f"Map: {policy}, distinct edges: {distinct}" in maps
    assert not re.search(r"\bnan\b|\binf\b", text)
    assert "account for the correlation within a seed" in text


def test_the_truth_of_one_seed_has_no_error(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(tmp_path, ("gp-ts",), seeds=1)
    text = written(run, tmp_path)
    truth = text[text.index("The truth behind it") :].partition("</table>")[0]
    for level in calibration.calibrations(run)["gp-ts"]["truth of edges"]:
        assert f">{100 * level.observed:.1f}<" in truth
    assert "±" not in truth
    assert "<b>" not in truth


def test_pages_of_odd_runs(make_run: MakeRun, tmp_path: Path) -> None:
    evil = "<b onclick=x>&"
    odd = written(
        make_run(tmp_path / "a", (evil,), rounds=1, seeds=1, audited=(evil,)), tmp_path
    )
    assert evil not in odd
    empty = written(make_run(tmp_path / "b", ("gp-ts",), empty=True), tmp_path)
    assert "distinct edges: 0" in empty
    assert "Did the forecasts hold?" not in empty
    schedules = written(make_run(tmp_path / "c", SCHEDULES), tmp_path)
    assert f"β: tests/roads, {EDGES} edges" in schedules
    for text in (odd, empty, schedules):
        assert not re.search(r"\bnan\b|\binf\b", text)
    bare = make_run(tmp_path / "d", ("gp-ts",), audited=())
    (bare.directory / "maps" / "s0.npz").unlink()
    assert "Where they drove" not in written(bare, tmp_path)


def test_names_of_pictures_become_valid_ids(make_run: MakeRun, tmp_path: Path) -> None:
    [picture] = visit_pictures(make_run(tmp_path), SIX[:2])
    pages = set()
    for name in ('a "name" <b>', 'a "name" <c>'):
        page = figure(dataclasses.replace(picture, name=name))
        [identifier] = re.findall(r' id="([^"]*)"', page)
        assert re.fullmatch(r"[A-Za-z0-9_-]+", identifier)
        assert f'<use href="#{identifier}"/>' in page
        assert "<b>" not in page
        pages.add(identifier)
    assert len(pages) == 2
    assert ' id="plain-0"' in figure(dataclasses.replace(picture, name="plain"))


def test_page_of_a_full_city_is_small(
    make_run: MakeRun, chain: MakeMap, tmp_path: Path
) -> None:
    run = make_run(tmp_path, roads=(chain(6000),))
    assert len(written(run, tmp_path)) < 400_000


def test_a_logarithmic_axis_of_totals_leaves_out_tiny_first_rounds() -> None:
    x = np.array([1.0, 2.0, 3.0])
    tiny, plain = np.array([1e-9, 1.0, 2.0]), np.array([0.0, 100.0, 200.0])
    series = (Series("tiny", x, tiny), Series("plain", x, plain))
    chart = Chart(series=series, x_label="x", y_label="y", log_y=True, totals=True)
    assert [shape.y.tolist() for shape in chart.shapes()] == [
        [1.0, 2.0],
        [100.0, 200.0],
    ]
    assert chart.y_range() == (1.0, 200.0)
