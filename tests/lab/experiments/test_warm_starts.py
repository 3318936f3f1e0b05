"""Extended runs, and policies warm-started from a state."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import superarm
from superarm.core.errors import ConflictError, SpecError, StateError
from superarm.core.states import load_state
from superarm.lab.experiments import Experiment, Plan, execute, playing, warm_starts
from superarm.lab.simulation import Run, Trace, lateness
from superarm.lab.simulation import runner as running
from superarm.policies import IndexPolicy

ROADS: dict[str, Any] = {
    "id": "mine",
    "rounds": 12,
    "seeds": 2,
    "problem": {"name": "navigation", "network": "city", "edges": 200},
    "policies": {
        "ts": {"policy": "route-ts"},
        "joint": {"policy": "route-ts", "mode": "joint"},
        "ucb": {"policy": "route-ucb"},
        "alone": {"policy": "route-bucb", "posterior": "independent"},
        "prior": {},
    },
}
LATE = {"latest": 5, "lost": 0.1}


def plan(
    out: Path, rounds: int | None = None, states: tuple[str, ...] = (), **changes: Any
) -> Plan:
    experiment = Experiment.from_mapping({**ROADS, **changes}, "here")
    return Plan.make(experiment, out=out, rounds=rounds, states=states)


def content(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
        and path.parent.name != "timings"
        and path.name != "summary.json"
    }


def extended(
    tmp_path: Path, by: tuple[int, ...] = (5, 12), **changes: Any
) -> list[str]:
    """Extend a run, check that it equals one of full length, and return its messages."""
    messages: list[str] = []
    for rounds in by:
        execute(
            plan(tmp_path / "grown", rounds, **changes),
            resume=True,
            notify=messages.append,
        )
    execute(plan(tmp_path / "whole", by[-1], **changes))
    assert content(tmp_path / "grown") == content(tmp_path / "whole")
    assert not (tmp_path / "grown" / "earlier").exists()
    return messages


@pytest.fixture
def resumed_cells(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[int]]:
    """Policies that went on, and after how many rounds."""
    resumed_rounds: dict[str, set[int]] = {}
    go_on = running._Recorder._resume

    def noted(self: Any, earlier: Trace, problem: Any) -> None:
        resumed_rounds.setdefault(self.name, set()).add(earlier.rounds)
        go_on(self, earlier, problem)

    monkeypatch.setattr(running._Recorder, "_resume", noted)
    return resumed_rounds


ROADS_LEARNERS = ("ts", "joint", "ucb", "alone")
REFITTED = {"wrapped": {"name": "refitting", "every": 60, "most": 100}}
SERIES: dict[str, Any] = {
    "problem": {"name": "temperature-series", "source": "synthetic", "k": 3},
    "policies": {
        "gp-bucb": {},
        "gp-ts": {"scaled": False},
        "anew": {
            "policy": "gp-ts",
            "scaled": False,
            "wrapped": {"name": "resetting", "block": 4},
        },
        "wary": {
            "policy": "gp-ts",
            "scaled": False,
            "wrapped": {"name": "change-detecting"},
        },
    },
}
PRIOR = "prior restarted from round 1: the shorter run stored no state of it"


def engine_of(path: Path) -> str:
    """The form of the posterior in a saved state."""
    state = load_state(path).part("posterior")
    while "inside" in state.parts:
        state = state.part("inside")
    return state.part("engine").kind


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"feedback": LATE},
        {"problem": {**ROADS["problem"], "closed_roads": 0.02, "rush_hours": 1.0}},
        {
            "problem": {**ROADS["problem"], "switch_cost": 2.0},
            "policies": {"ts": {"policy": "route-ts", "penalty": 0.5}},
        },
        {"policies": {"ts": {"policy": "route-ts", **REFITTED}}, "feedback": LATE},
    ],
    ids=["plain", "late", "changing", "movement", "refitting"],
)
def test_extended_road_run_equals_a_longer_run(
    changes: dict[str, Any], tmp_path: Path, resumed_cells: dict[str, set[int]]
) -> None:
    messages = extended(tmp_path, **changes)
    learners = ["ts"] if "policies" in changes else ROADS_LEARNERS
    assert resumed_cells == {name: {5} for name in learners}
    assert messages == ([] if "policies" in changes else [PRIOR])
    path = tmp_path / "grown" / "states" / "ts.s0.seed00000.npz"
    assert engine_of(path) == "visited-engine"


@pytest.mark.slow
@pytest.mark.parametrize("feedback", [{}, LATE], ids=["prompt", "late"])
def test_extended_sensor_run_equals_a_longer_run(
    feedback: dict[str, Any], tmp_path: Path, resumed_cells: dict[str, set[int]]
) -> None:
    assert extended(tmp_path, **SERIES, feedback=feedback) == []
    assert resumed_cells == {name: {5} for name in SERIES["policies"]}
    for name in SERIES["policies"]:
        assert (
            engine_of(tmp_path / "grown" / "states" / f"{name}.s0.seed00001.npz")
            == "root-engine"
        )


@pytest.mark.slow
def test_run_can_be_extended_repeatedly(
    tmp_path: Path, resumed_cells: dict[str, set[int]]
) -> None:
    extended(tmp_path, (1, 4, 9, 12), feedback=LATE)
    assert resumed_cells == {name: {1, 4, 9} for name in ROADS_LEARNERS}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"problem": {"name": "landscape", "side": 5}, "policies": {"gp-bucb": {}}},
            "the problem may depend on the number of rounds",
        ),
        (
            {
                "problem": {"name": "wind", "source": "synthetic"},
                "policies": {"gp-md": {}},
            },
            "the problem may depend on the number of rounds",
        ),
        (
            {**SERIES, "policies": {"anew": {"policy": "r-gp-ucb", "epsilon": 0.0}}},
            "this 'index-policy' state does not match this IndexPolicy: posterior.block",
        ),
        (
            {"policies": {"ts": {"policy": "route-ts", "posterior": "streaming"}}},
            "a resumed run may differ from an uninterrupted one in the last digits",
        ),
    ],
    ids=["problem", "movement", "parameters", "digits"],
)
def test_runs_that_cannot_resume_restart_with_a_reason(
    changes: dict[str, Any],
    why: str,
    tmp_path: Path,
    resumed_cells: dict[str, set[int]],
) -> None:
    messages = extended(tmp_path, **changes)
    assert not resumed_cells
    (line,) = messages
    assert "restarted from round 1: " in line
    assert why in line


@pytest.mark.slow
def test_fewer_rounds_or_another_run_are_refused(tmp_path: Path) -> None:
    execute(plan(tmp_path / "a", 5))
    before = content(tmp_path / "a")
    with pytest.raises(ConflictError, match=r"contains a different run .rounds differ"):
        execute(plan(tmp_path / "a", 4), resume=True)
    with pytest.raises(
        ConflictError, match=r"contains a different run .parameters differ"
    ):
        execute(plan(tmp_path / "a", 6, feedback=LATE), resume=True)
    assert content(tmp_path / "a") == before


@pytest.mark.parametrize("then", [9, 12])
@pytest.mark.slow
def test_extending_a_run_can_be_interrupted(
    then: int,
    tmp_path: Path,
    resumed_cells: dict[str, set[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before, while and after the first seed resumes; then the run is extended further."""
    execute(plan(tmp_path / "grown", 5, feedback=LATE))
    write, written = playing.write_trace, []

    def killed(out: Path, trace: Trace) -> Path:
        written.append(trace.name)
        if len(written) in (1, 4, 8):
            raise KeyboardInterrupt
        return write(out, trace)

    monkeypatch.setattr(playing, "write_trace", killed)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            execute(plan(tmp_path / "grown", 9, feedback=LATE), resume=True)
        with pytest.raises(StateError, match="unfinished"):
            Run.load(tmp_path / "grown")
    monkeypatch.setattr(playing, "write_trace", write)
    execute(plan(tmp_path / "grown", then, feedback=LATE), resume=True)
    execute(plan(tmp_path / "whole", then, feedback=LATE))
    assert content(tmp_path / "grown") == content(tmp_path / "whole")
    assert resumed_cells["ts"] == ({5} if then == 9 else {5, 9})


@pytest.mark.slow
def test_killed_while_cells_are_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(plan(tmp_path / "grown", 5))
    move, moved = Path.replace, []

    def killed(self: Path, target: Path) -> Path:
        moved.append(self)
        if len(moved) == 25:
            raise KeyboardInterrupt
        return move(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            execute(plan(tmp_path / "grown", 12), resume=True)
    shutil.copytree(tmp_path / "grown", tmp_path / "same")
    execute(plan(tmp_path / "same", 5), resume=True)  # as many rounds as before
    for directory in ("grown", "same"):
        execute(plan(tmp_path / directory, 12), resume=True)
    execute(plan(tmp_path / "whole", 12))
    assert (
        content(tmp_path / "grown")
        == content(tmp_path / "whole")
        == content(tmp_path / "same")
    )


@pytest.mark.slow
def test_state_that_does_not_match_its_cell_is_not_resumed(tmp_path: Path) -> None:
    execute(plan(tmp_path / "grown", 5))
    execute(plan(tmp_path / "other", 4))
    state_name = "states/ts.s0.seed00001.npz"
    shutil.copy(tmp_path / "other" / state_name, tmp_path / "grown" / state_name)
    nothing_left, *restarts = extended(tmp_path)
    assert nothing_left.endswith("nothing left to run")  # of 5 rounds
    assert [line.endswith("does not match its cell") for line in restarts] == [
        False,
        True,
    ]


@pytest.mark.slow
def test_too_much_pending_feedback_restarts_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resumed_cells: dict[str, set[int]]
) -> None:
    monkeypatch.setattr(lateness, "_MOST_LATER", 2)
    messages = extended(
        tmp_path, feedback={"earliest": 9, "latest": 20, "together": True}
    )
    why = "the shorter run did not store its pending feedback"
    reasons = [
        f"{name} restarted from round 1: {why}" for name in sorted(ROADS_LEARNERS)
    ]
    assert sorted(messages) == sorted([*reasons, PRIOR])
    assert not resumed_cells


# --- warm starts from a saved state ------------------------------------------------------------


def saved_state(directory: Path, policy: str = "ts", seed: int = 0) -> Path:
    return directory / "states" / f"{policy}.s0.seed{seed:05d}.npz"


@pytest.mark.slow
def test_warm_start_continues_the_round_numbers(
    tmp_path: Path,
) -> None:
    """An exact posterior continues exactly: the rounds equal those of a longer run with that seed."""
    execute(plan(tmp_path / "whole", 9))
    execute(plan(tmp_path / "first", 5))
    states = (
        str(saved_state(tmp_path / "first")),
        f"joint={saved_state(tmp_path / 'first', 'joint')}",
    )
    resumed_plan = plan(tmp_path / "then", 4, states)
    execute(resumed_plan)
    full, then = Run.load(tmp_path / "whole"), Run.load(tmp_path / "then")
    for policy in ("ts", "joint", "prior"):
        for metric in ("regret", "true_energy"):
            expected = full._array(metric, policy, 0, 0)[5:]
            np.testing.assert_array_equal(then._array(metric, policy, 0, 0), expected)
        np.testing.assert_array_equal(
            then.choices(policy, 0, 0), full.choices(policy, 0, 0)[5:]
        )
    assert (
        saved_state(tmp_path / "then").read_bytes()
        == saved_state(tmp_path / "whole").read_bytes()
    )
    assert not np.array_equal(then.choices("ucb", 0, 0), full.choices("ucb", 0, 0)[5:])
    spec = json.loads((tmp_path / "then" / "run.json").read_text(encoding="utf-8"))
    assert spec["states"]["ts"] == {
        "file": saved_state(tmp_path).name,
        "sha256": resumed_plan.starts["ts"].digest,
    }
    assert spec["settled"][0]["ts begins"].endswith("rounds are numbered from 6 on")


@pytest.mark.slow
def test_warm_started_run_can_be_extended(
    tmp_path: Path, resumed_cells: dict[str, set[int]]
) -> None:
    execute(plan(tmp_path / "first", 5, feedback=LATE))
    states = (f"ts={saved_state(tmp_path / 'first')}",)
    for rounds in (3, 8):
        execute(plan(tmp_path / "grown", rounds, states, feedback=LATE), resume=True)
    execute(plan(tmp_path / "whole", 8, states, feedback=LATE))
    assert content(tmp_path / "grown") == content(tmp_path / "whole")
    assert resumed_cells["ts"] == {3}


@pytest.mark.slow
def test_different_state_is_a_different_run(tmp_path: Path) -> None:
    execute(plan(tmp_path / "first", 5))
    states = (f"ts={saved_state(tmp_path / 'first')}",)
    execute(plan(tmp_path / "a", 4, states))
    before = content(tmp_path / "a")
    others: list[tuple[str, ...]] = [
        (),
        (f"ts={saved_state(tmp_path / 'first', seed=1)}",),
    ]
    for other in others:
        for rounds in (4, 6):
            with pytest.raises(
                ConflictError, match=r"states(, version)? differ|, states differ"
            ):
                execute(plan(tmp_path / "a", rounds, other), resume=True)
    assert content(tmp_path / "a") == before


def test_feedback_pending_at_the_warm_start_is_not_awaited(tmp_path: Path) -> None:
    late = {"earliest": 3, "latest": 3}
    execute(plan(tmp_path / "first", 5, feedback=late))
    policy = superarm.load(saved_state(tmp_path / "first"))
    assert isinstance(policy, IndexPolicy)
    assert policy.awaits
    assert policy.last_step == 2
    states = (f"ts={saved_state(tmp_path / 'first')}",)
    resumed_plan = plan(tmp_path / "then", 4, states, feedback=late)
    assert resumed_plan.first == 6  # completed rounds are not repeated
    begun = warm_starts.warm_start(policy, resumed_plan.starts["ts"])
    assert isinstance(begun, IndexPolicy)
    assert not begun.awaits
    execute(resumed_plan)


@pytest.mark.parametrize(
    ("states", "message"),
    [
        (("ts=STATE", "ts=STATE"), "--state names 'ts' twice"),
        (("tz=STATE",), "there is no policy 'tz'; there are alone, joint"),
        (
            ("ucb=STATE",),
            "policy 'ucb': this 'index-policy' state does not match this IndexPolicy: rule",
        ),
        (("prior=STATE",), "policy 'prior': this policy learns nothing"),
        (
            ("STATE", "STATE"),
            r"fits none of the policies \['joint', .*\]: for joint, rule.rule.mode is",
        ),
    ],
)
def test_mismatched_state_is_rejected(
    states: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    execute(plan(tmp_path / "first", 2, seeds=1))
    path = str(saved_state(tmp_path / "first"))
    with pytest.raises(SpecError, match=message):
        plan(tmp_path / "a", 2, tuple(text.replace("STATE", path) for text in states))
    with pytest.raises(StateError, match="cannot be read: No such file"):
        plan(tmp_path / "a", 2, ("ts=nowhere.npz",))


def test_a_state_of_several_policies_needs_a_name(tmp_path: Path) -> None:
    twins = {"one": {"policy": "route-ts"}, "two": {"policy": "route-ts"}}
    execute(plan(tmp_path / "first", 2, policies=twins, seeds=1))
    path = str(saved_state(tmp_path / "first", "one"))
    with pytest.raises(
        SpecError,
        match=r"fits several policies, \['one', 'two'\]; name one: --state POLICY=",
    ):
        plan(tmp_path / "a", 2, (path,), policies=twins)
    assert {*plan(tmp_path / "a", 2, (path, f"one={path}"), policies=twins).starts} == {
        "one",
        "two",
    }
    with pytest.raises(
        SpecError, match="every policy already has a state; leave this one out"
    ):
        plan(tmp_path / "a", 2, (path, f"one={path}", f"two={path}"), policies=twins)


def test_state_changed_during_the_run_is_detected(tmp_path: Path) -> None:
    execute(plan(tmp_path / "first", 2, seeds=1))
    prepared = plan(tmp_path / "a", 2, (str(saved_state(tmp_path / "first")),))
    shutil.copy(
        saved_state(tmp_path / "first", "joint"), saved_state(tmp_path / "first")
    )
    with pytest.raises(
        ConflictError, match="changed after the run started; start the run again"
    ):
        execute(prepared)
