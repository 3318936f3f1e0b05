"""Running experiments: cells, directories and resuming."""

from __future__ import annotations

import json
import lzma
import os
import pickle
import re
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superarm.core import Guarantee, data_files, registry
from superarm.core.errors import (
    ConflictError,
    InfeasibleError,
    MissingDataError,
    MissingExtraError,
    SpecError,
    StateError,
    SuperarmError,
)
from superarm.lab.experiments import (
    Experiment,
    Plan,
    execute,
    execution,
    plans,
    playing,
)
from superarm.lab.experiments.playing import play
from superarm.lab.report.settings import settings_section
from superarm.lab.results.settings import synthetic_data
from superarm.lab.simulation import Lateness, Run, spread
from superarm.lab.simulation.executors import process_pool
from superarm.models import Model
from superarm.policies import IndexPolicy
from superarm.rewards import LogSum

BASE = {
    "id": "mine",
    "rounds": 8,
    "seeds": 3,
    "problem": {"name": "landscape", "side": 5, "k": 2},
    "policies": {"gp-greedy": {}, "random": {}},
}


def plan(out: Path, overrides: dict[str, Any] | None = None, **changes: Any) -> Plan:
    experiment = Experiment.from_mapping({**BASE, **changes}, "here")
    return Plan.make(experiment, out=out, overrides=overrides)


def content(directory: Path) -> dict[str, bytes]:
    """Everything that must not depend on how a run was done: all but timings."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
        and path.parent.name != "timings"
        and path.name != "summary.json"
    }


def without_times(summary: dict[str, Any]) -> dict[str, Any]:
    rows = [{**row, "seconds_per_round": 0} for row in summary["rows"]]
    return {**summary, "rows": rows, "out": ""}


def test_one_row_per_policy_setting_and_metric(tmp_path: Path) -> None:
    overrides = {"k": [1, 2], "problem.noise_std": [0.1, 0.2]}
    summary = execute(plan(tmp_path / "a", overrides))
    keys = [
        (row["policy"], tuple(row["setting"].items()), row["metric"])
        for row in summary["rows"]
    ]
    assert len(keys) == len(set(keys)) == 2 * 4
    assert {row["metric"] for row in summary["rows"]} == {"cumulative_regret"}
    assert all(
        list(row["setting"]) == ["k", "problem.noise_std"] for row in summary["rows"]
    )
    assert all(type(row["setting"]["k"]) is int for row in summary["rows"])
    on_disk = json.loads((tmp_path / "a" / "summary.json").read_text(encoding="utf-8"))
    assert on_disk == {**summary, "out": "a"}


def test_totals_are_those_of_the_cells(tmp_path: Path) -> None:
    summary = execute(plan(tmp_path / "a"))
    run = Run.load(tmp_path / "a")
    lines = (tmp_path / "a" / "cells.jsonl").read_text(encoding="utf-8").splitlines()
    cells = [json.loads(line) for line in lines]
    for row in summary["rows"]:
        totals = [cell["regret"] for cell in cells if cell["policy"] == row["policy"]]
        assert row["mean"] == pytest.approx(sum(totals) / 3)
        assert row["seconds_per_round"] == run.seconds_per_round(row["policy"])


def test_policies_do_not_see_each_other(tmp_path: Path) -> None:
    """A policy's cell does not depend on other policies, sweeps or the first seed."""
    execute(plan(tmp_path / "both"))
    execute(plan(tmp_path / "one", policies={"random": {}}))
    execute(plan(tmp_path / "swept", {"k": [2, 3]}, policies={"random": {}}))
    cells = [
        tmp_path / name / "cells" / "random.s0.seed00002.npz"
        for name in ("both", "one", "swept")
    ]
    assert len({path.read_bytes() for path in cells}) == 1


@pytest.mark.parametrize(
    "remove", ["cells/random.s0.seed00001.npz", "cells", "cells.jsonl"]
)
def test_resume_redoes_only_what_is_missing(remove: str, tmp_path: Path) -> None:
    summary = execute(plan(tmp_path / "a"))
    execute(plan(tmp_path / "b"))
    before = content(tmp_path / "a")
    path = tmp_path / "b" / remove
    times = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "b" / "cells").iterdir()}
    for file in sorted(path.rglob("*"), reverse=True) if path.is_dir() else [path]:
        file.unlink()
    count_text: list[tuple[int, int]] = []
    resumed = execute(
        plan(tmp_path / "b"),
        resume=True,
        progress=lambda done, total: count_text.append((done, total)),
    )
    assert content(tmp_path / "b") == before
    assert without_times(resumed) == without_times(summary)
    lost = {"cells": 6, "cells.jsonl": 0}.get(remove, 1)
    assert count_text[0] == (0, lost * 8)
    assert count_text[-1] == (lost * 8, lost * 8)
    now = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "b" / "cells").iterdir()}
    assert sum(now[name] != times[name] for name in now) == lost


def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    out = tmp_path / "a"
    execute(plan(out))
    before = content(out)
    (out / "cells" / "random.s0.seed00001.npz").unlink()
    leftovers = [
        out / ".summary.json.0123abcd.tmp",
        out / "cells" / ".random.s0.seed00001.npz.0123abcd.tmp",
        out / "timings" / ".random.s0.seed00001.npz.ffffffff.tmp",
    ]
    for path in leftovers:
        path.write_bytes(b"half")
    mine = out / "cells" / ".mine.tmp"
    mine.write_bytes(b"the user's own")
    execute(plan(out), resume=True)
    assert not any(path.exists() for path in leftovers)
    mine.unlink()
    assert content(out) == before


def test_killed_before_the_first_file(tmp_path: Path) -> None:
    out = tmp_path / "a"
    out.mkdir()
    (out / ".run.json.0123abcd.tmp").write_bytes(b"half")
    with pytest.raises(ConflictError, match="not empty"):
        execute(plan(out))
    execute(plan(out), resume=True)
    assert not list(out.glob(".*.tmp"))


@pytest.mark.parametrize(
    "changes",
    [
        {"rounds": 7},
        {"seeds": 2},
        {"policies": {"random": {}}},
        {"problem": {"name": "landscape"}},
    ],
)
def test_another_runs_directory_is_refused(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    execute(plan(tmp_path / "a"))
    before = content(tmp_path / "a")
    with pytest.raises(ConflictError, match="contains a different run"):
        execute(plan(tmp_path / "a", **changes), resume=True)
    assert content(tmp_path / "a") == before


def test_directories_that_are_not_ours_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(ConflictError, match="is a file"):
        execute(plan(tmp_path / "file"), resume=True)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious.txt").write_text("x", encoding="utf-8")
    with pytest.raises(ConflictError, match="not empty"):
        execute(plan(tmp_path / "full"))
    with pytest.raises(ConflictError, match="contains no run"):
        execute(plan(tmp_path / "full"), resume=True)
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["precious.txt"]
    (tmp_path / "empty").mkdir()
    execute(plan(tmp_path / "empty"))


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"schema": 99}', "\x00"])
def test_a_damaged_run_is_not_resumed(text: str, tmp_path: Path) -> None:
    execute(plan(tmp_path / "a"))
    (tmp_path / "a" / "run.json").write_text(text, encoding="utf-8")
    with pytest.raises(StateError, match=r"run\.json"):
        execute(plan(tmp_path / "a"), resume=True)


def test_two_runs_that_start_at_once_do_not_share_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Path.mkdir

    def late(self: Path, *args: Any, **kwargs: Any) -> None:
        monkeypatch.setattr(Path, "mkdir", make)
        execute(plan(tmp_path / "a"))  # the other one, just then
        make(self, *args, **kwargs)

    monkeypatch.setattr(Path, "mkdir", late)
    with pytest.raises(ConflictError, match="just been claimed"):
        execute(plan(tmp_path / "a"))


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"side": "x"}, "problem 'landscape': side must be a whole number, got 'x'"),
        (
            {"noise_std": "x"},
            "problem 'landscape': noise_std must be a number, got 'x'",
        ),
        ({"k": "x"}, "problem 'landscape': k must be a whole number, got 'x'"),
        ({"k": [1, 0]}, "k must be a whole number of at least 1, got 0"),
        ({"k": [1, 99]}, "k is 99"),
        ({"gp-greedy.posterior": "nope"}, "policy 'gp-greedy': posterior is 'nope'"),
        ({"lengthscale": 10**400}, "problem 'landscape'"),
    ],
)
def test_invalid_values_are_usage_errors_and_write_no_files(
    overrides: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError) as caught:
        plan(tmp_path / "a", overrides)
    assert words in str(caught.value)
    assert not (tmp_path / "a").exists()


def test_errors_in_a_users_policy_keep_their_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slip(model: Model) -> None:
        model.nonsense()  # type: ignore[attr-defined]

    def refuse(model: Model) -> None:
        raise InfeasibleError("nothing fits")

    def lack(model: Model) -> None:
        raise MissingExtraError("install it")

    for part, error in (
        (slip, AttributeError),
        (len, TypeError),
        (refuse, SpecError),
        (lack, MissingExtraError),
    ):
        monkeypatch.setitem(registry.catalogue.members_of("policy"), "slip", part)
        with pytest.raises(error):
            plan(tmp_path / "a", policies={"slip": {}})


def test_absurd_sizes_are_refused(tmp_path: Path) -> None:
    for sizes in ({"rounds": 10**12}, {"rounds": 10**400}, {"seeds": 10**9}):
        with pytest.raises(SpecError, match=r"a whole number from 1 to|smaller"):
            plan(tmp_path / "a", **sizes)
    with pytest.raises(
        SpecError, match=r"seed must be a whole number from 0 to .*, got 1844"
    ):
        Plan.make(Experiment.from_mapping(BASE, "x"), out=tmp_path, first_seed=2**64)


HOSTILE = [
    "../../escape",
    "/escape",
    "..",
    ".",
    "a/b",
    "a\\b",
    "CON",
    "Random",
    "名前",
    "x" * 300,
]


def test_names_cannot_leave_the_directory(tmp_path: Path) -> None:
    policies = {
        name: {"policy": "random"}
        for name in [*HOSTILE, "a\nb", "\x1b[31m", "[/red]", "a\0b"]
    }
    out = tmp_path / "deep" / "er" / "out"
    summary = execute(plan(out, policies=policies, id="../../x", seeds=1))
    assert [row["policy"] for row in summary["rows"]] == list(policies)
    assert {path.name for path in tmp_path.iterdir()} == {"deep"}
    assert {path.name for path in out.parent.iterdir()} == {"out"}
    assert len(list((out / "cells").iterdir())) == len(policies)
    assert {path.parent.name for path in out.rglob("*.npz")} == {"cells", "timings"}
    assert (
        execute(plan(out, policies=policies, id="../../x", seeds=1), resume=True)
        == summary
    )


# --- settings that differ in more than a number ---------------------------------------------

MIXED = ["landscape", "navigation"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "order", [MIXED, pytest.param(MIXED[::-1], marks=pytest.mark.slow)]
)
def test_problems_of_other_kinds_in_one_run(order: list[str], tmp_path: Path) -> None:
    """Audits and metrics belong to a setting."""
    rule = {"name": "rectified", "rule": {"name": "greedy"}}
    policies = {"mine": {"policy": "composed", "rule": rule}, "random": {}}
    shared = {"seeds": 1, "problem": {"name": "landscape"}, "policies": policies}

    def swept() -> Plan:
        return plan(tmp_path / "a", {"problem.name": order}, **shared)

    city = order.index("navigation")
    assert [facts.audited for facts in swept().facts][city] == ("mine",)
    summary = execute(swept())
    assert swept().tasks() == []
    before = content(tmp_path / "a")
    assert without_times(execute(swept(), resume=True)) == without_times(summary)
    assert content(tmp_path / "a") == before
    run = Run.load(tmp_path / "a")
    assert run.metrics == ("regret",)
    assert "true_energy" in run.metrics_at(city)
    assert run.metric("true_energy", city).unit == "Wh"
    units = [run.metric("regret", index).unit for index in (city, 1 - city)]
    assert units == ["Wh", ""]
    assert "route" in run.interpretations(city)
    assert "route" not in run.interpretations(1 - city)
    assert [bool(synthetic_data(run, index)) for index in (city, 1 - city)] == [
        True,
        False,
    ]
    assert synthetic_data(run).endswith("(in 1 of 2 settings)")
    shown_units = {
        row["setting"]["problem.name"]: row["unit"]
        for row in summary["rows"]
        if "regret" in row["metric"]
    }
    assert shown_units == {"navigation": "Wh", "landscape": ""}
    assert summary["metrics"]["cumulative_regret"]["unit"] == ""
    page = settings_section(run)
    assert "where settings differ" in page
    assert page.count("from edge") == 1
    energies = [
        row["setting"] for row in summary["rows"] if row["metric"] == "true_energy"
    ]
    assert energies == [{"problem.name": "navigation"}] * 2
    assert (run.road_map(city) is None, run.road_map(1 - city)) == (False, None)


def test_problem_is_built_once_per_setting_without_decisions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []
    build = Experiment.build_problem

    def building(self: Experiment, **options: Any) -> Any:
        built.append(options["horizon"])
        return build(self, **options)

    monkeypatch.setattr(Experiment, "build_problem", building)
    monkeypatch.setattr(IndexPolicy, "decide", None)
    ready = plan(tmp_path / "a", {"k": [1, 2]}, policies={"gp-greedy": {}})
    ready.describe()
    assert built == [8, 8]


# --- derived rows and horizons ---------------------------------------------------------------


def test_derived_rows_are_computed_seed_by_seed(tmp_path: Path) -> None:
    ratio = {"name": "relative_regret", "versus": "random"}
    rate = {"name": "regret_rate", "per_round": True}
    unknown = {"name": "lost", "metric": "true_energy", "per_round": True}
    experiment = Experiment.from_mapping(
        {**BASE, "derived": [ratio, rate, unknown]}, "here"
    )
    summary = execute(Plan.make(experiment, out=str(tmp_path / "a")))
    rows = {(row["policy"], row["metric"]): row for row in summary["rows"]}
    assert len(rows) == 2 * 3
    run = Run.load(tmp_path / "a")
    own, other = (run.cumulative(policy)[:, -1] for policy in ("gp-greedy", "random"))
    assert rows["gp-greedy", "relative_regret"]["mean"] == pytest.approx(
        (own / other).mean()
    )
    assert rows["random", "relative_regret"]["stderr"] == 0.0
    stderr = float(np.std(own / other, ddof=1)) / 3**0.5
    assert rows["gp-greedy", "relative_regret"]["stderr"] == pytest.approx(stderr)
    assert rows["gp-greedy", "regret_rate"]["mean"] == pytest.approx(own.mean() / 8)
    assert summary["metrics"]["relative_regret"]["kind"] == "ratio"
    single = plan(tmp_path / "b", derived=[ratio], policies={"gp-greedy": {}})
    assert [row["metric"] for row in execute(single)["rows"]] == ["cumulative_regret"]


def test_derived_rows_compare_within_a_setting(tmp_path: Path) -> None:
    ratio = {"name": "relative_regret", "versus": "random"}
    summary = execute(plan(tmp_path / "a", {"k": [1, 3]}, derived=[ratio]))
    run = Run.load(tmp_path / "a")
    for index, setting in enumerate(run.settings):
        own, other = (
            run.cumulative(policy, index)[:, -1] for policy in ("gp-greedy", "random")
        )
        (row,) = (
            entry
            for entry in summary["rows"]
            if (entry["policy"], entry["metric"], entry["setting"])
            == ("gp-greedy", "relative_regret", setting)
        )
        assert row["mean"] == pytest.approx((own / other).mean())


def test_policies_rerun_for_each_horizon(tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        "horizons": [3, 5, 100],
        "rerun": ["gp-ts"],
        "problem": {"name": "rkhs-function", "arms": 9},
        "policies": {"gp-ts": {}, "gp-ei": {}},
    }
    overrides = {"gp-ei.xi": [0.1, 0.2]}  # of a policy that is not rerun
    summary = execute(plan(tmp_path / "a", overrides, **changes))
    rows = [
        row
        for row in summary["rows"]
        if row["metric"] == "cumulative_regret_at_horizon"
    ]
    assert [(row["policy"], row["setting"]) for row in rows] == [
        ("gp-ts", {"gp-ei.xi": xi, "horizon": horizon})
        for horizon in (3, 5)
        for xi in (0.1, 0.2)
    ]
    run = Run.load(tmp_path / "a")
    assert run.horizons == (3, 5)
    # The same as an experiment of that length.
    execute(
        plan(tmp_path / "short", overrides, **{**changes, "rounds": 5, "horizons": []})
    )
    cells = [tmp_path / name / "cells" for name in ("a/horizons/5", "short")]
    assert {p.name: p.read_bytes() for p in cells[0].iterdir()} == {
        p.name: p.read_bytes() for p in cells[1].glob("gp-ts.*")
    }
    before = content(tmp_path / "a")
    (cells[0] / "gp-ts.s1.seed00001.npz").unlink()
    count_text: list[tuple[int, int]] = []
    resumed = execute(
        plan(tmp_path / "a", overrides, **changes),
        resume=True,
        progress=lambda done, total: count_text.append((done, total)),
    )
    assert count_text[-1] == (5, 5)
    assert content(tmp_path / "a") == before
    assert without_times(resumed) == without_times(summary)


HORIZONS: dict[str, Any] = {"horizons": [3], "rerun": ["gp-greedy"]}


def test_rerun_policies_belong_to_the_run(tmp_path: Path) -> None:
    execute(plan(tmp_path / "a", **HORIZONS))
    before = content(tmp_path / "a")
    with pytest.raises(
        ConflictError, match=r"3 contains a different run .*policies differ"
    ):
        execute(plan(tmp_path / "a", **HORIZONS | {"rerun": ["random"]}), resume=True)
    assert content(tmp_path / "a") == before


@pytest.mark.parametrize("count", [0, 1])
def test_killed_between_the_first_files(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, written = execution.write_spec, []

    def killed(out: Path, spec: dict[str, Any]) -> None:
        if len(written) == count:
            raise KeyboardInterrupt
        written.append(out)
        write(out, spec)

    monkeypatch.setattr(execution, "write_spec", killed)
    with pytest.raises(KeyboardInterrupt):
        execute(plan(tmp_path / "a", **HORIZONS))
    monkeypatch.setattr(execution, "write_spec", write)
    execute(plan(tmp_path / "a", **HORIZONS), resume=True)
    assert Run.load(tmp_path / "a").at_horizon(3).policies == ("gp-greedy",)


def test_map_is_written_for_any_first_seed(tmp_path: Path) -> None:
    problem = {"name": "navigation", "network": "city", "edges": 200}
    roads = Experiment.from_mapping(
        {**BASE, "problem": problem, "policies": {"prior": {}}}, "here"
    )
    execute(
        Plan.make(replace(roads, rounds=1, seeds=2), out=tmp_path / "a", first_seed=3)
    )
    assert Run.load(tmp_path / "a").road_map(0) is not None


def test_lost_map_is_rewritten_without_running_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = {"name": "navigation", "network": "city", "edges": 200}
    roads: dict[str, Any] = {"problem": problem, "policies": {"random": {}}, "seeds": 1}
    execute(plan(tmp_path / "a", {"city_seed": [0, 1]}, **roads))
    before = content(tmp_path / "a")
    (tmp_path / "a" / "maps" / "s1.npz").unlink()
    monkeypatch.setattr(playing, "simulate", None)
    execute(plan(tmp_path / "a", {"city_seed": [0, 1]}, **roads), resume=True)
    assert content(tmp_path / "a") == before


# --- the contents of run.json ----------------------------------------------------------------


def test_late_feedback_is_described_and_can_be_overridden(tmp_path: Path) -> None:
    late = {"latest": 2, "together": True}
    experiment = Experiment.from_mapping({**BASE, "feedback": late}, "here")
    assert experiment.as_json()["feedback"] == late
    late_plan = Plan.make(
        experiment, out=tmp_path / "a", overrides={"feedback.latest": 4}
    )
    assert late_plan.experiment.build_lateness() == Lateness(latest=4, together=True)
    execute(late_plan)
    spec = Run.load(tmp_path / "a").spec
    assert spec["parameters"]["feedback"] == {"latest": 4, "together": True}
    assert (
        spec["settled"][0]["feedback"]
        == "known 0 to 4 rounds later, one delay for all arms of a round"
    )
    with pytest.raises(
        SpecError, match=r"feedback: latest must be a whole number from 0 to .*, got -1"
    ):
        plan(tmp_path / "b", {"feedback.latest": -1})


def test_plan_describes_benchmark_guarantee_and_arm_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(plan(tmp_path / "a").describe()["settled"][0]).isdisjoint(
        {"regret", "reward"}
    )
    build = Experiment.build_problem

    def building(self: Experiment, **options: Any) -> Any:
        world = build(self, **options)
        known = world.best(world.offer(1))._replace(guarantee=Guarantee(alpha=0.5))
        other = replace(world, model=replace(world.model, reward=LogSum()))
        object.__setattr__(other, "_best", known)
        return other

    monkeypatch.setattr(Experiment, "build_problem", building)
    settled = plan(tmp_path / "a").describe()["settled"][0]
    assert "promises 0.5 of the optimum" in settled["regret"]
    assert settled["reward"] == "log-sum of what its arms yield"


# --- workers -----------------------------------------------------------------------------


def test_a_borrowed_executor_gives_the_same_bytes(tmp_path: Path) -> None:
    execute(plan(tmp_path / "a"))
    with ThreadPoolExecutor(2) as pool:
        execute(plan(tmp_path / "b"), executor=pool)
        assert pool.submit(int).result() == 0  # still open: it is the caller's
    assert content(tmp_path / "a") == content(tmp_path / "b")


class _Reversed(Executor):
    """Does the last task first, as no worker promises an order."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []

    def submit(
        self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Future[Any]:
        future: Future[Any] = Future()
        self._waiting.append(lambda: future.set_result(fn(*args, **kwargs)))
        if len(self._waiting) == 3:
            for work in reversed(self._waiting):
                work()
        return future


def test_order_does_not_matter(tmp_path: Path) -> None:
    execute(plan(tmp_path / "a"))
    execute(plan(tmp_path / "b"), executor=_Reversed())
    assert content(tmp_path / "a") == content(tmp_path / "b")


@pytest.mark.slow
def test_bytes_do_not_depend_on_the_number_of_processes(tmp_path: Path) -> None:
    one = execute(plan(tmp_path / "a", {"k": [1, 2]}), jobs=1)
    two = execute(plan(tmp_path / "b", {"k": [1, 2]}), jobs=2)
    assert content(tmp_path / "a") == content(tmp_path / "b")
    assert without_times(one) == without_times(two)


def _die(task: int) -> int:
    os._exit(task)


def test_plan_checks_build_parts_as_workers_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Caches keep it, and threads of BLAS round by their number."""
    calls = []
    build = Experiment.build_problem

    def building(self: Experiment, **options: Any) -> Any:
        calls.append("build")
        return build(self, **options)

    monkeypatch.setattr(plans, "pin_blas_threads", lambda: calls.append("pin"))
    monkeypatch.setattr(Experiment, "build_problem", building)
    plan(tmp_path / "a")
    assert calls[0] == "pin"
    assert "build" in calls


@pytest.mark.slow
def test_a_worker_that_dies_is_reported_with_advice() -> None:
    with pytest.raises(SuperarmError, match="--resume"):
        spread(_die, [3, 4], jobs=2)


@pytest.mark.slow
def test_the_first_failure_is_raised() -> None:
    with process_pool(1) as pool, pytest.raises(ZeroDivisionError):
        spread(_divide, [1, 0], executor=pool)
    with pytest.raises(ValueError, match="jobs is 0"):
        spread(_divide, [1], jobs=0)


def _divide(number: int) -> float:
    return 1 / number


def test_a_task_can_be_sent(tmp_path: Path) -> None:
    (task, *_) = plan(tmp_path / "a").tasks()
    assert pickle.loads(pickle.dumps(task)) == task  # it reaches other processes
    play(task._replace(policies=("random",)))
    assert [path.name for path in (tmp_path / "a" / "cells").iterdir()] == [
        "random.s0.seed00000.npz"
    ]


# --- data that may be available ----------------------------------------------------------

AUTO = {"name": "crowdsourcing", "k": 2, "workers": 10}


def without_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "search_path", list)


def with_data(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """A few check-ins where they are looked for."""
    path = folder / "foursquare" / "tky_first_checkins.csv.xz"
    path.parent.mkdir(exist_ok=True)
    monkeypatch.setattr(data_files, "search_path", lambda: [folder])
    places = np.random.default_rng(0).random((50, 2)).tolist()
    rows = "".join(f"{longitude!r},{latitude!r}\n" for longitude, latitude in places)
    path.write_bytes(lzma.compress(f"longitude,latitude\n{rows}".encode()))


@pytest.mark.parametrize("problem", [AUTO, {**AUTO, "source": "auto"}])
def test_data_are_settled_once(
    problem: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: dict[str, Any] = {
        "problem": problem,
        "policies": {"random": {}},
        "seeds": 1,
    }
    without_data(monkeypatch)
    planned = plan(tmp_path / "synthetic", **changes)
    with_data(monkeypatch, tmp_path)
    real = plan(tmp_path / "real", **changes)
    assert planned.experiment.problem["source"] == "synthetic"
    assert real.experiment.problem["source"] == "real"
    execute(planned)  # a worker that has the data still follows run.json
    described = json.loads(
        (tmp_path / "synthetic" / "run.json").read_text(encoding="utf-8")
    )
    assert described["parameters"]["problem"]["source"] == "synthetic"
    assert "synthetic data" in described["settled"][0]["data"]
    with pytest.raises(ConflictError, match="parameters"):
        execute(plan(tmp_path / "synthetic", **changes), resume=True)
    (task,) = real.tasks()
    without_data(monkeypatch)
    with pytest.raises(
        MissingDataError, match="tokyo"
    ):  # a worker without them does not make them up
        play(task)


def test_swept_data_are_settled_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: dict[str, Any] = {"problem": AUTO, "policies": {"random": {}}, "seeds": 1}
    without_data(monkeypatch)
    planned = plan(tmp_path / "a", {"source": ["auto"]}, **changes)
    assert planned.settings == [{"source": "synthetic"}]
    with pytest.raises(SpecError, match="'auto' is 'synthetic' here"):
        plan(tmp_path / "a", {"source": ["auto", "synthetic"]}, **changes)
    swept = plan(
        tmp_path / "a",
        {"problem.name": ["crowdsourcing", "light-sensors"]},
        **{**changes, "problem": {"name": "light-sensors"}},
    )
    variants = [swept.experiment.with_setting(setting) for setting in swept.settings]
    sources = [variant.problem["source"] for variant in variants]
    assert sources == ["synthetic", "synthetic"]
    mixed = {"problem.name": ["landscape", "light-sensors"]}
    plain = {**changes, "problem": {"name": "light-sensors"}}
    assert plan(tmp_path / "a", mixed, **plain).settings == [
        {"problem.name": "landscape"},
        {"problem.name": "light-sensors", "problem.source": "synthetic"},
    ]


@pytest.mark.parametrize(
    ("problem", "metric", "message"),
    [
        (
            "drifting-function",
            "rewrad",
            "'rewrad'; did you mean 'reward'? there are alpha_regret",
        ),
        (
            "drifting-function",
            "true_energy",
            "nothing measures 'true_energy'; there are alpha_regret",
        ),
        ("drifting-function", "reward", None),
        (
            "gp-function",
            "cost",
            None,
        ),  # its problem names no metrics, so that it may have any
    ],
)
def test_a_derived_metric_that_is_not_measured_is_refused(
    problem: str, metric: str, message: str | None, tmp_path: Path
) -> None:
    derived = [{"name": "mean", "metric": metric, "per_round": True}]
    spec = {
        "id": "x",
        "rounds": 2,
        "seeds": 1,
        "problem": {"name": problem},
        "derived": derived,
    }
    experiment = Experiment.from_mapping({**spec, "policies": {"random": {}}}, "here")
    if message is None:
        Plan.make(experiment, out=tmp_path)
        return
    with pytest.raises(SpecError, match=f"x: derived 'mean': .*{re.escape(message)}"):
        Plan.make(experiment, out=tmp_path)
