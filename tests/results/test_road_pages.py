"""Runs on roads: pages that hold what they should."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from superarm import report as reports
from superarm.networks import RoadMap
from superarm.report.svg import Line, svg_lines
from superarm.results import roads as road_results
from superarm.results.curves import plus_minus
from superarm.simulation.trace import Run

MakeRun = Callable[..., Run]
MakeMap = Callable[..., RoadMap]
SIX = road_results.METHODS
SCHEDULES = ("gp-ucb", "gp-ucb-half", "gp-bucb", "gp-bucb-half")
EDGES = 30  # of every map that is not given


def written(run: Run, directory: Path) -> str:
    return reports.write_report(run, [], directory / "report.html").path.read_text("utf-8")


def test_the_page_has_maps_energy_and_calibration(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    text = written(run, tmp_path)
    for row in road_results.trip_energies(run, 0):
        cells = (row.overall, row.against, row.first, row.last, row.edges)
        numbers = "".join(f'<td class="number">{plus_minus(*pair)}</td>' for pair in cells)
        assert f"{row.policy}</th>{numbers}" in text
    for calibration in road_results.calibrations(run):
        for level in (*calibration.edges, *calibration.trips):
            assert f"{100 * level.observed:.1f} ± {100 * level.stderr:.1f}" in text
    assert "true energy (Wh)" in text
    assert "true_energy" not in text.partition("<h2>Settings")[0]
    maps = text[text.index("Where they drove") : text.index("Did the forecasts hold?")]
    assert maps.count('id="roads-0"') == 1
    assert maps.count('<use href="#roads-0"/>') == 5  # eight policies: the six methods are shown
    for policy in SIX:
        distinct = np.count_nonzero(road_results.visits(run, policy, 0, (3,), EDGES))
        assert f"  distinct edges: {distinct}</tspan>" in maps
        assert f"Map of the roads that {policy} drove on: {distinct} different edges" in maps
    assert not re.search(r"\bnan\b|\binf\b", text)


def test_pages_of_odd_runs(make_run: MakeRun, tmp_path: Path) -> None:
    evil = "<b onclick=x>&"
    odd = written(make_run(tmp_path / "a", (evil,), rounds=1, seeds=1, audited=(evil,)), tmp_path)
    assert evil not in odd
    empty = written(make_run(tmp_path / "b", ("gp-ts",), empty=True), tmp_path)
    assert "distinct edges: 0" in empty
    assert "Did the forecasts hold?" not in empty
    schedules = written(make_run(tmp_path / "c", SCHEDULES), tmp_path)
    assert f"β of Theorem 3.2 for {EDGES} edges." in schedules
    for text in (odd, empty, schedules):
        assert not re.search(r"\bnan\b|\binf\b", text)
    bare = make_run(tmp_path / "d", ("gp-ts",), audited=())
    (bare.directory / "maps" / "s0.npz").unlink()
    assert "Where they drove" not in written(bare, tmp_path)


def test_the_page_of_a_whole_city_is_small(make_run: MakeRun, chain: MakeMap, tmp_path: Path) -> None:
    run = make_run(tmp_path, roads=(chain(6000),))
    assert len(written(run, tmp_path)) < 400_000


def test_a_ceiling_cuts_curves_where_they_leave() -> None:
    low = Line(label="low", x=[0, 10], y=[0.0, 10.0])
    high = Line(label="high", x=[0.0, 10.0], y=[0.0, 40.0])
    whole = svg_lines([low, high], description="d")
    cut = svg_lines([low, high], description="d", ceiling=20.0)
    assert whole != cut
    assert ">40<" in whole
    assert ">40<" not in cut
    ends = re.findall(r'd="M[\d.]+ [\d.]+L([\d.]+) ([\d.]+)" fill="none" style', cut)
    x_low, x_high = (float(x) for x, _ in ends[:2])
    start = float(re.findall(r'd="M([\d.]+) [\d.]+L', cut)[0])
    assert x_high - start == pytest.approx((x_low - start) / 2.0, abs=0.2)
