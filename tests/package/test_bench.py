"""The benchmarks run, at small sizes, and superarm agrees with its peers. Times are not judged."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
FIELDS = {
    "case",
    "ours_s",
    "peer",
    "peer_s",
    "ratio",
    "max_abs_diff",
    "ours_cpu_s",
    "peer_cpu_s",
}
KEYS = {"suite", "rows", "growth", "limits", "facts", "targets", "skipped", "machine"}


def bench(*arguments: str) -> str:
    # As users start it: threads are pinned only where numpy is not loaded yet.
    done = subprocess.run(
        [sys.executable, "-m", "bench", *arguments, "--quick", "--repeats", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def results(suite: str) -> dict[str, Any]:
    output = bench(suite, "--json")
    assert output.count("\n") == 1
    report: dict[str, Any] = json.loads(output)
    assert report.keys() == KEYS
    assert report["suite"] == suite
    for row in report["rows"]:
        assert row.keys() == FIELDS
        assert row["ours_s"] > 0.0
        assert row["ratio"] == pytest.approx(row["peer_s"] / row["ours_s"])
    return report


@pytest.mark.slow
def test_streaming_agrees_with_every_peer() -> None:
    report = results("streaming")
    compared = {(row["case"].partition(" ")[0], row["peer"]) for row in report["rows"]}
    assert ("ours-cholesky", "scipy, fresh solve") in compared
    assert ("ours-finite-rank", "scipy, fresh solve") in compared
    assert any(row["case"].startswith("README round") for row in report["rows"])
    for row in report["rows"]:
        assert row["max_abs_diff"] <= 1e-9, row
    assert {"ours-cholesky", "ours-finite-rank"} <= report["growth"].keys()
    assert {"dtrsm_s", "exp_s", "sum_s", "ours_over_limit", "gemm_gflops"} <= report[
        "limits"
    ].keys()
    if os.environ.get("SUPERARM_REQUIRE", "0") not in ("", "0"):
        assert not report["skipped"]


@pytest.mark.slow
def test_a_peer_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in ("sklearn", "torch", "gpytorch"):
        (tmp_path / f"{module}.py").write_text("raise ImportError('not here')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    report = results("streaming")
    for peer in ("scikit-learn", "GPyTorch"):
        assert any(peer in line and "not here" in line for line in report["skipped"]), (
            peer
        )
        assert not any(peer in row["peer"] for row in report["rows"])


@pytest.mark.slow
def test_finite_agrees_with_scikit_learn() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    report = results("finite")
    compared = [row for row in report["rows"] if row["peer"].startswith("scikit-learn")]
    assert {row["case"].rpartition(", ")[2] for row in compared} >= {"numpy"}
    for row in compared:
        assert row["max_abs_diff"] <= 1e-9, row
    by_hand = [row for row in report["rows"] if "by hand" in row["peer"]]
    assert {"numpy by hand, dger"} <= {row["peer"] for row in by_hand}
    for row in by_hand:
        assert row["max_abs_diff"] is None or row["max_abs_diff"] <= 1e-9, row


@pytest.mark.slow
def test_network_agrees_with_full_covariances_and_fresh_solves() -> None:
    report = results("network")
    exact = [
        row for row in report["rows"] if row["peer"] == "full-covariance downdates"
    ]
    assert len(exact) == 2
    for row in exact:
        assert row["max_abs_diff"] <= 1e-9, row
    solves = [
        target for target in report["targets"] if "a fresh solve" in target["text"]
    ]
    assert len(solves) == 2
    assert all(target["holds"] for target in solves)
    assert {"GraphMatern set-up", "400 edges, by V"} <= report["growth"].keys()
    assert any(name.startswith("MB at most") for name in report["facts"])
    assert sum(name.startswith("GP-TS round on ") for name in report["facts"]) == 2
    assert any("ours_over_limit" in name for name in report["limits"])
    if os.environ.get("SUPERARM_REQUIRE", "0") not in ("", "0"):
        assert any("SVGP" in row["peer"] for row in report["rows"])


@pytest.mark.slow
def test_combinatorial_agrees_with_its_peers() -> None:
    report = results("combinatorial")
    compared = {row["peer"] for row in report["rows"]}
    assert {
        "SciPy, linear_sum_assignment",
        "its sampling alone",
        "plain O'CLOK-UCB",
    } <= compared
    assert "numpy by hand" in compared
    assert (
        len(report["skipped"]) + len({peer for peer in compared if "SGPR" in peer}) == 2
    )
    for row in report["rows"]:
        assert (row["max_abs_diff"] or 0.0) <= 1e-6, row
    assert sum("std over the exact one" in name for name in report["facts"]) == 4


@pytest.mark.slow
def test_drift_agrees_with_its_peers() -> None:
    report = results("drift")
    assert {row["peer"] for row in report["rows"]} >= {"numpy, recompute"}
    by_hand = [row for row in report["rows"] if "by hand" in row["peer"]]
    assert {row["peer"] for row in by_hand} == {
        "numpy by hand, folded",
        "numpy by hand, folded, rows on demand",
        "numpy by hand, Kalman filter",
    }
    assert len(report["rows"]) - len(by_hand) + 2 * len(report["skipped"]) == 4
    for row in report["rows"]:
        assert row["max_abs_diff"] <= 1e-9, row
    assert sum(name.endswith(": one pass") for name in report["limits"]) == 2
    assert sum("one pass from memory" in name for name in report["limits"]) == 2
    assert sum(name.startswith("changing arms, t=") for name in report["facts"]) == 2


@pytest.mark.slow
def test_movement_agrees_with_its_peers() -> None:
    report = results("movement")
    compared = {row["peer"] for row in report["rows"]}
    assert "SciPy, per vertex" in compared
    assert ("POT, exact" in compared) != any(
        line.startswith("ot:") for line in report["skipped"]
    )
    for row in report["rows"]:
        assert row["max_abs_diff"] <= 1e-9, row
    assert {"FRT, seconds against n", "whole step, seconds against n"} == report[
        "growth"
    ].keys()


@pytest.mark.slow
def test_threads_change_no_decision() -> None:
    report = results("threads")
    assert {row["peer"] for row in report["rows"]} == {
        "OPENBLAS_NUM_THREADS=1",
        "BLAS threads left alone",
    }
    assert len(report["rows"]) == 4
    for row in report["rows"]:
        assert row["max_abs_diff"] <= 1e-9, row
    assert {"call_s", "call_with_one_thread_anyway_s"} <= report["limits"].keys()


@pytest.mark.slow
def test_startup_reports_what_help_loads() -> None:
    report = results("startup")
    assert {row["case"] for row in report["rows"]} >= {"import superarm"}
    loaded = "modules of scipy that superarm --help loads"
    assert report["skipped"] or report["facts"][loaded] == []


def test_all_runs_every_suite_with_peers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(ROOT)
    main = importlib.import_module("bench.__main__")
    commands = []

    def run(command: list[str], *, check: bool) -> Any:
        commands.append(command[3:])
        return subprocess.CompletedProcess(command, int("finite" in command))

    monkeypatch.setattr(main.subprocess, "run", run)
    assert main.main(["all", "--quick"]) == 1
    assert "failed: finite" in capsys.readouterr().err
    suites = [suite for suite, _ in commands]
    assert set(suites) | main.LEFT_OUT.keys() == set(main.SUITES)
    assert "service" in suites
    assert all(options == ["--quick"] for _, *options in commands)
    with pytest.raises(SystemExit):
        main.main(["all", "--stored", "bench/results/finite.json"])
    page = (ROOT / "bench" / "README.md").read_text(encoding="utf-8")
    for suite in (*main.SUITES, "all"):
        assert f"python -m bench {suite} " in page, suite


@pytest.mark.slow
def test_scale_measures_its_parts() -> None:
    report = results("scale")
    facts = report["facts"]
    for sizes in facts["bytes in memory, at work"].values():
        assert all(size > 1000 for size in sizes.values())
    (hit_rates,) = (facts[name] for name in facts if name.startswith("hit rate of"))
    for by_share in hit_rates.values():
        for rate in by_share.values():
            expected = rate["by Che's approximation"]
            assert rate["simulated"] == pytest.approx(expected, abs=0.01)
    assert report["skipped"] or "plan" in facts


@pytest.mark.slow
def test_service_is_compared_with_the_library_and_optuna() -> None:
    report = results("service")
    compared = {row["peer"] for row in report["rows"]}
    assert {
        "library with its commit",
        "one commit each",
        "without a snapshot",
    } <= compared
    optuna = {peer for peer in compared if peer.startswith("Optuna")}
    assert len(optuna) == 2 or "Optuna: not installed" in report["skipped"]
    if os.environ.get("SUPERARM_REQUIRE", "0") not in ("", "0"):
        assert len(optuna) == 2
    facts = report["facts"]
    assert sum(name.startswith("ask on ") for name in facts) == 2
    sizes = facts["resident memory by number of tells, MiB"]
    assert len(sizes) == 10
    assert min(sizes.values()) > 10.0
    assert {"one commit_s", "tell, processor of the service_s"} <= report[
        "limits"
    ].keys()


def test_the_page_on_scale_has_the_stored_numbers() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.scale_tables", "bench/results/scale.json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    page = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    *tables, sentences = done.stdout.strip().split("\n\n")
    assert len(tables) == 7
    for table in tables:
        assert table in page
    prose = " ".join(page.split())
    assert len(sentences.splitlines()) == 11
    for sentence in sentences.splitlines():
        assert sentence in prose


RESULTS = ROOT / "bench" / "results"
SUITES = (
    *("hand", "streaming", "finite", "network", "combinatorial"),
    *("drift", "movement", "threads", "startup", "service", "hours"),
)


# A suite that has not run on an idle machine yet has no stored result.
@pytest.mark.parametrize(
    "suite", [suite for suite in SUITES if (RESULTS / f"{suite}.json").exists()]
)
def test_readme_matches_the_stored_results(
    suite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT)
    show = importlib.import_module("bench.show")
    measure = importlib.import_module("bench.measure")
    stored = json.loads((RESULTS / f"{suite}.json").read_text())
    page = (ROOT / "bench" / "README.md").read_text(encoding="utf-8")
    shown = page.split(f"<!-- {suite} -->")[1].split(f"<!-- /{suite} -->")[0].strip()
    table = show.markdown(measure.Results.from_json(stored))
    assert table.strip() == shown


def test_readme_matches_the_stored_hierarchies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(ROOT)
    hierarchy = importlib.import_module("bench.hierarchy")
    rows = hierarchy.read_rows([RESULTS / "hierarchy.json"])
    page = (ROOT / "bench" / "README.md").read_text(encoding="utf-8")
    shown = page.split("<!-- hierarchy -->")[1].split("<!-- /hierarchy -->")[0]
    assert hierarchy.table(rows) == shown.strip()
    # Costs are as exact as stated.
    assert max(row["difference"] for row in rows) <= 1.0


def test_a_generated_country_has_the_costs_of_bellman_and_ford(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To rounding; with hills, motorways, ramps and one-way streets."""
    pytest.importorskip("numba")
    monkeypatch.syspath_prepend(ROOT)
    hierarchy = importlib.import_module("bench.hierarchy")
    search = importlib.import_module("superarm.roads.routing.search")
    network = hierarchy.network_named("country:3000")
    graph = network.line_graph()
    assert len(graph) == len(network.edge_ids)  # strongly connected
    assert len(graph) == pytest.approx(3000, rel=0.2)
    assert set(np.round(graph.speed * 3.6)) == {30, 50, 60, 90, 130}
    assert np.ptp(network.junctions[:, 2]) > 100.0
    costs, turn_costs = hierarchy.costs_of(graph)
    first, second = graph.turns.T
    fast = search.Search(graph, costs, turn_costs, form="hierarchy")
    rng = np.random.default_rng(1)
    starts = rng.choice(len(graph), size=4, replace=False)
    goals = np.setdiff1d(rng.choice(len(graph), size=60, replace=False), starts)
    found = fast.least_costs(
        [search.Ends(np.array([start]), np.zeros(1)) for start in starts],
        [search.Ends(np.array([goal]), np.ones(1)) for goal in goals],
    )
    for row, start in zip(found, starts, strict=True):
        total = np.full(len(graph), np.inf)
        total[start] = costs[start]
        before = None
        while before is None or (before != total).any():
            before = total.copy()
            np.minimum.at(total, second, before[first] + (costs[second] + turn_costs))
        # At most 3,000 edges on a way: 4·3000·2⁻⁵³ < 2e-12.
        np.testing.assert_allclose(row, total[goals], rtol=2e-12)


@pytest.mark.slow
def test_a_router_is_refreshed_on_a_country(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    monkeypatch.syspath_prepend(ROOT)
    country_fleet = importlib.import_module("bench.country_fleet")
    row = country_fleet.measured("country:3000", 20)
    assert row["form"] == "sparse"
    assert row["routes meanwhile"] > 0


@pytest.mark.slow
def test_tables_for_people() -> None:
    stored = ("--stored", "bench/results/startup.json")
    assert bench("startup", *stored).startswith("case ")
    assert bench("startup", "--markdown", *stored).startswith("| case |")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_a_large_fleets_log_is_measured_in_both_forms(form: str) -> None:
    large_fleets = importlib.import_module("bench.large_fleets")
    size = large_fleets.Size(edges=600, visited=80, trips=40, vehicles=4)
    row = large_fleets.measure(size, form)
    assert tuple(row) == large_fleets.COLUMNS
    assert all(row[name] > 0.0 for name in row if name != "off, %")


def test_rows_of_large_fleets_are_stored_and_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    large_fleets = importlib.import_module("bench.large_fleets")
    path = tmp_path / "fleets.json"
    values = {
        large_fleets.VISITED[1]: 8.0,
        large_fleets.VISITED[0]: 2.0,
        large_fleets.EDGES[
            0
        ]: 16.0,  # of the other sweep, and below where its fit begins
    }
    for size, value in values.items():
        row = dict.fromkeys(large_fleets.COLUMNS, value)
        large_fleets.store_row(path, size, row)
    rows = large_fleets.stored_rows(path)
    assert [row["edges"] for row in rows.values()] == [2.0, 8.0, 16.0]
    large_fleets.print_growth(rows)
    *_, second, exponents, last = capsys.readouterr().out.splitlines()
    assert second.startswith("| 8 | 8 |")
    assert exponents.startswith("| *exponents in visited* |")
    assert "*1.00*" in exponents  # everything grew as the visited roads did
    assert last.startswith("| 16 | 16 |")
