"""The comparison with an earlier commit: its statistics, and what counts as the same numbers."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench import against, against_experiments, paired


@pytest.mark.parametrize("pairs", [6, 9, 10])
def test_coverage_is_that_of_all_sequences_of_coins(pairs: int) -> None:
    for rank in range(1, pairs // 2 + 1):
        # The median lies between two sorted ratios unless too few of them lie on one side of it.
        inside = 0
        for signs in itertools.product((False, True), repeat=pairs):
            below = sum(signs)
            inside += rank <= below <= pairs - rank
        assert paired.coverage(pairs, rank) == pytest.approx(inside / 2**pairs)


def test_the_interval_is_the_shortest_with_enough_coverage() -> None:
    rng = np.random.default_rng(0)
    for pairs in range(6, 31):
        ratios = rng.lognormal(size=pairs).tolist()
        ordered = sorted(ratios)
        ranks = range(1, pairs // 2 + 1)
        enough = [rank for rank in ranks if paired.coverage(pairs, rank) >= 0.95]
        interval = paired.median_interval(ratios)
        assert interval == (ordered[enough[-1] - 1], ordered[-enough[-1]])
    with pytest.raises(ValueError, match="needs 6 pairs, got 5"):
        paired.median_interval([1.0] * 5)


def test_equal_sides_are_rarely_called_different() -> None:
    # Ratios of equal sides, with a tail as of a busy machine.
    rng = np.random.default_rng(1)
    tries = 2000
    pairs = 10
    noise = rng.exponential(size=(2, tries, pairs)) ** 2
    ratios = (1.0 + noise[0]) / (1.0 + noise[1])
    verdicts = [paired.median_interval(row).verdict for row in ratios.tolist()]
    wrong = tries - verdicts.count("undecided")
    share = 1.0 - paired.coverage(pairs, 2)  # 2.1 %
    deviation = np.sqrt(tries * share * (1.0 - share))
    assert abs(wrong - tries * share) < 4.0 * deviation
    assert verdicts.count("slower") > 0
    assert verdicts.count("faster") > 0


def test_a_clear_difference_is_found() -> None:
    rng = np.random.default_rng(2)
    old = rng.uniform(0.98, 1.02, size=10)
    new = 1.1 * rng.uniform(0.98, 1.02, size=10)
    slower = paired.Comparison("round", old.tolist(), new.tolist())
    assert slower.interval.verdict == "slower"
    assert slower.ratio == pytest.approx(1.1, rel=0.04)
    faster = paired.Comparison("round", new.tolist(), old.tolist())
    assert faster.interval.verdict == "faster"
    # One case twice as slow and one twice as fast are no difference together.
    ones = [1.0] * 10
    twice = [2.0] * 10
    mixed = [
        paired.Comparison("slower", ones, twice),
        paired.Comparison("faster", twice, ones),
    ]
    together = paired.overall(mixed)
    assert together.ratio == pytest.approx(1.0)
    assert together.interval == pytest.approx((1.0, 1.0))


class FakeSide:
    """Answers as ``python -m bench SUITE --json`` does."""

    def __init__(self, name: str, seconds: float, order: list[str]) -> None:
        self.name = name
        self.root = Path(name)
        self.seconds = seconds
        self.order = order

    def run(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        assert list(arguments) == ["bench", "drift", "--json", "--quick"]
        self.order.append(self.name)
        rows: list[dict[str, Any]] = [
            {"case": "round", "ours_s": self.seconds},
            {"case": "round", "ours_s": 7.0},  # beside another peer
            {"case": "start", "ours_s": 3.0},
            {"case": f"only {self.name}", "ours_s": 1.0},
        ]
        report = json.dumps({"rows": rows})
        return subprocess.CompletedProcess([], 0, stdout=report, stderr="")


def test_sides_take_turns(capsys: pytest.CaptureFixture[str]) -> None:
    order: list[str] = []
    old = FakeSide("old", 2e-6, order)
    new = FakeSide("new", 3e-6, order)
    cases = against.compare_suite(old, new, "drift", 6, ["--quick"])
    warm_up = ["old", "new"]
    assert order == warm_up + ["old", "new", "new", "old"] * 3
    assert cases == [
        paired.Comparison("round", [2e-6] * 6, [3e-6] * 6),
        paired.Comparison("start", [3.0] * 6, [3.0] * 6),
    ]
    assert not against.compare_suites(old, new, ["drift"], 6, ["--quick"])
    printed = capsys.readouterr()
    assert "| round | 2 µs | 3 µs | 1.500 | 1.500 to 1.500 | slower |" in printed.out
    assert "| start | 3 s | 3 s | 1.000 | 1.000 to 1.000 |" in printed.out
    assert "| *all 2 cases* | | | *1.225* |" in printed.out
    assert "on one side only: only new, only old" in printed.err


def test_a_suite_that_fails_is_named() -> None:
    class Failing:
        root = Path("old")

        def run(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
            return subprocess.CompletedProcess([], 1, stdout="", stderr="no such thing")

    with pytest.raises(SystemExit, match="drift fails in old:\nno such thing"):
        against.measure(Failing(), "drift", [])


@pytest.mark.parametrize(
    "arguments",
    [["HEAD"], ["HEAD", "service"], ["HEAD", "drift", "--pairs", "5"]],
)
def test_unknown_suites_and_few_pairs_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as error:
        against.main(arguments)
    assert error.value.code == 2


def test_names_of_experiments_may_follow_the_option(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    @contextmanager
    def no_worktree(commit: str) -> Iterator[str]:
        asked.append(commit)
        yield "old"

    def compare(old: str, new: Any, names: list[str], rounds: int | None) -> bool:
        asked.append((old, names, rounds))
        return False

    monkeypatch.setattr(against, "worktree", no_worktree)
    monkeypatch.setattr(against_experiments, "compare_experiments", compare)
    arguments = ["HEAD", "--rounds", "3", "--experiments", "demo/city"]
    assert against.main(arguments) == 1
    assert asked == ["HEAD", ("old", ["demo/city"], 3)]


def test_a_suite_without_shared_cases_is_refused() -> None:
    class Side:
        def __init__(self, case: str) -> None:
            self.case = case

        def run(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
            rows = [{"case": self.case, "ours_s": 1.0}]
            report = json.dumps({"rows": rows})
            return subprocess.CompletedProcess([], 0, stdout=report, stderr="")

    with pytest.raises(SystemExit, match="drift has no case that both sides measure"):
        against.compare_suite(Side("a"), Side("b"), "drift", 6, [])


def test_the_clock_counts_work_of_children_and_no_waiting(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(
        """
import subprocess, sys, time
start = time.perf_counter()
time.sleep(1.0)
waited = time.perf_counter() - start
child = "import time\\nwhile time.process_time() < 1.5: pass"
subprocess.run([sys.executable, "-c", child], check=True)
worked = time.perf_counter() - start
print(sys.argv[1:], waited < 0.5, worked > 1.4)
"""
    )
    clock = Path(against.__file__).with_name("processor_clock.py")
    done = subprocess.run(
        [sys.executable, str(clock), "work", "--quick"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "['--quick'] True True\n"


def write_cell(folder: Path, name: str, **arrays: Any) -> Path:
    cells = folder / "cells"
    cells.mkdir(parents=True, exist_ok=True)
    path = cells / f"{name}.npz"
    np.savez(path, **arrays)
    return path


def test_cells_are_compared_bit_for_bit(tmp_path: Path) -> None:
    regret = np.array([1.0, np.nan, 0.0])
    choices = np.arange(6).reshape(3, 2)
    old = tmp_path / "old"
    new = tmp_path / "new"
    write_cell(old, "same", regret=regret, choices=choices)
    write_cell(new, "same", regret=regret.copy(), choices=choices.copy())
    assert against_experiments.compare_runs(old, new) == (1, [])

    changed = choices.copy()
    changed[1, 1] = 9
    rounded = np.array([1.0, np.nan, -0.0])
    write_cell(old, "ucb", regret=regret, choices=choices, delay=choices)
    write_cell(new, "ucb", regret=rounded, choices=changed, delay=choices[:2])
    write_cell(new, "ts", regret=regret)
    count, differences = against_experiments.compare_runs(old, new)
    assert count == 2
    assert differences == [
        "ts.npz is on one side only",
        "ucb: choices differs from round 2 on",
        "ucb: delay was int64 (3, 2), is int64 (2, 2)",
        "ucb: regret differs from round 3 on",
    ]


def test_arrays_of_one_side_are_named(tmp_path: Path) -> None:
    old = write_cell(tmp_path / "old", "ucb", regret=np.zeros(2))
    new = write_cell(tmp_path / "new", "ucb", regret=np.zeros(2), extra=np.zeros(2))
    assert against_experiments.differences_of(old, new) == [
        "ucb: extra is on one side only"
    ]


class FakeRunner:
    """Writes a cell where ``superarm run`` would, or fails."""

    def __init__(self, regret: float | None) -> None:
        self.regret = regret

    def run(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        if self.regret is None:
            return subprocess.CompletedProcess([], 1, "", "Usage\nno data here")
        out = Path(arguments[arguments.index("--out") + 1])
        write_cell(out, "ucb.s0.seed00000", regret=np.full(4, self.regret))
        return subprocess.CompletedProcess([], 0, "", "")


@pytest.mark.parametrize(
    ("old", "new", "agrees", "expected"),
    [
        (1.0, 1.0, True, "| demo/city | 4 | 1 | the same |"),
        (1.0, 2.0, False, "| demo/city | 4 | 1 | different |"),
        (None, None, True, "demo/city does not run here: no data here"),
        (1.0, None, False, "  no data here"),
    ],
)
def test_experiments_are_run_on_both_sides(
    capsys: pytest.CaptureFixture[str],
    old: float | None,
    new: float | None,
    agrees: bool,
    expected: str,
) -> None:
    sides = (FakeRunner(old), FakeRunner(new))
    found = against_experiments.compare_experiments(*sides, ["demo/city"], 4)
    assert found is agrees
    assert expected in capsys.readouterr().out.splitlines()
