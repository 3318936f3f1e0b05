"""A run on disk: complete files, equal bytes, clear errors."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superarm.core.capabilities import Metric
from superarm.core.errors import InputError, MissingExtraError, ShapeError, StateError
from superarm.core.states import atomic_write
from superarm.lab.simulation.files import json_bytes, read_arrays
from superarm.lab.simulation.run import Run, write_cells
from superarm.lab.simulation.run_spec import SCHEMA, write_spec
from superarm.lab.simulation.trace import Trace, cell_name, write_trace

ROUNDS = 12


def spec(**changes: Any) -> dict[str, Any]:
    base = {
        "experiment": "kernelized/rkhs-se",
        "rounds": ROUNDS,
        "first_seed": 3,
        "seeds": 2,
        "policies": ["igp-ucb", "GP-UCB"],
        "settings": [{"k": 1}, {"k": 5}],
    }
    return {**base, **changes}


def trace(
    policy: str = "igp-ucb", index: int = 0, seed: int = 3, **changes: Any
) -> Trace:
    rng = np.random.default_rng([seed, index, len(policy)])
    values = {
        "policy": policy,
        "setting_index": index,
        "seed": seed,
        "series": {"regret": rng.random(ROUNDS), "reward": rng.random(ROUNDS)},
        "choices": rng.integers(0, 9, (ROUNDS, 2), dtype=np.int32),
        "seconds": rng.random(ROUNDS).astype(np.float32),
    }
    return Trace(**{**values, **changes})


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    write_spec(tmp_path, spec())
    for policy in spec()["policies"]:
        for index in (0, 1):
            for seed in (3, 4):
                write_trace(tmp_path, trace(policy, index, seed))
    return tmp_path


def test_trace_round_trip(finished: Path) -> None:
    wanted = trace("GP-UCB", 1, 4)
    run = Run.load(str(finished))
    for key, values in wanted.series.items():
        np.testing.assert_array_equal(
            run.cumulative("GP-UCB", 1, key)[1], np.cumsum(values)
        )
    np.testing.assert_array_equal(run.choices("GP-UCB", 1, 4), wanted.choices)
    np.testing.assert_array_equal(run.seconds("GP-UCB", 1)[1], wanted.seconds)
    assert run.propensities("GP-UCB", 1, 4) is None
    known = np.linspace(0.1, 1.0, ROUNDS)
    write_trace(finished, trace("GP-UCB", 1, 4, propensities=known))
    np.testing.assert_array_equal(run.propensities("GP-UCB", 1, 4), known)


def test_trace_bytes_do_not_depend_on_clock_or_timing(
    tmp_path: Path,
) -> None:
    one = write_trace(tmp_path / "a", trace())
    reordered = dict(reversed(list(trace().series.items())))
    other = write_trace(
        tmp_path / "b", trace(series=reordered, seconds=np.ones(ROUNDS, np.float32))
    )
    assert one.read_bytes() == other.read_bytes()


def test_timing_is_there_before_the_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    monkeypatch.setattr(
        "superarm.lab.simulation.trace.atomic_write",
        lambda path, data: written.append(path.parent.name),
    )
    write_trace(tmp_path, trace())
    assert written == ["timings", "cells"]


def test_failed_write_keeps_the_old_file_and_no_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    atomic_write(path, b"old")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        atomic_write(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_names() -> None:
    assert cell_name("igp-ucb", 0, 3) == "igp-ucb.s0.seed00003"
    assert cell_name("GP", 0, 0).lower() != cell_name("gp", 0, 0).lower()
    assert "/" not in cell_name("../../etc/<x>", 0, 0)


@pytest.mark.slow
@given(st.lists(st.text(min_size=1, max_size=100), min_size=2, max_size=2, unique=True))
def test_different_policies_have_different_safe_names(policies: list[str]) -> None:
    names = [cell_name(policy, 1, 2) for policy in policies]
    assert names[0].lower() != names[1].lower()
    assert all(
        set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-.") for name in names
    )


def test_run_stacks_seeds(finished: Path) -> None:
    run = Run.load(finished)
    assert run.policies == ("igp-ucb", "GP-UCB")
    assert run.metrics == ("regret", "reward")
    assert list(run.seeds) == [3, 4]
    total = run.cumulative("GP-UCB", 1, "reward")
    assert total.shape == (2, ROUNDS)
    np.testing.assert_allclose(
        total[1], np.cumsum(trace("GP-UCB", 1, 4).series["reward"]), rtol=1e-15
    )
    np.testing.assert_array_equal(run.seconds("igp-ucb", 0)[0], trace().seconds)
    assert repr(run).endswith(
        "policies=['igp-ucb', 'GP-UCB'], settings=2, seeds=2, rounds=12)"
    )


def test_metrics_describe_their_interpretation(finished: Path) -> None:
    own = Metric("energy per trip", "Wh", "per round", "down", headline=True)
    write_spec(finished, spec(metrics=[{"reward": own._asdict()}, {}]))
    run = Run.load(finished)
    assert run.metric("reward", 0) == own
    assert run.metric("reward", 0).text == "energy per trip (Wh)"
    assert run.metric("regret", 0) == Metric("cumulative regret", better="down")
    assert run.metric("user_s_own", 0).text == "user s own"


@pytest.mark.parametrize(
    "description",
    [
        {"label": "x"},
        {**Metric("x")._asdict(), "label": 1},
        {**Metric("x")._asdict(), "unit": 2},
    ],
)
def test_incomplete_metric_descriptions_are_rejected(
    tmp_path: Path, description: Any
) -> None:
    with pytest.raises(StateError, match="metric 'reward'"):
        write_spec(tmp_path, spec(metrics=[{"reward": description}, {}]))


def test_time_per_round_excludes_the_first_call(finished: Path) -> None:
    blocks = np.repeat(np.float32([9.0, 2.0, 4.0]), 4)
    single = np.float32([7.0, *np.full(ROUNDS - 1, 3.0)])
    write_trace(finished, trace(seconds=blocks))
    write_trace(finished, trace(seed=4, seconds=single))
    run = Run.load(finished)
    assert run.seconds_per_round("igp-ucb") == pytest.approx((8 * 3.0 + 11 * 3.0) / 19)
    for seed in (3, 4):  # all in one call: nothing else to report
        write_trace(
            finished, trace("GP-UCB", 0, seed, seconds=np.full(ROUNDS, 5.0, np.float32))
        )
    assert Run.load(finished).seconds_per_round("GP-UCB") == 5.0


def test_a_run_as_a_table(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run.load(finished)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'pandas>="):
        run.to_frame()
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=list))
    rows = run.to_frame()
    assert len(rows) == 2 * 2 * 2 * 2
    total = pytest.approx(trace("GP-UCB", 1, 4).series["reward"].sum())
    own = {"k": 5, "policy": "GP-UCB", "seed": 4, "metric": "reward"}
    assert {**own, "total": total} in rows


def test_a_run_in_a_notebook(finished: Path) -> None:
    write_spec(finished, spec(experiment="<b>"))
    html = Run.load(finished)._repr_html_()
    assert "<td>&#x27;&lt;b&gt;&#x27;</td>" in html
    assert "<th>rounds</th><td>12</td>" in html


def test_cells_are_flat_sorted_rows(finished: Path) -> None:
    write_cells(Run.load(finished))
    rows = [
        json.loads(line) for line in (finished / "cells.jsonl").read_text().splitlines()
    ]
    keys = [(row["setting"]["k"], row["policy"], row["seed"]) for row in rows]
    assert keys == sorted(keys)
    assert len(rows) == 8
    assert rows[2]["regret"] == pytest.approx(
        trace("igp-ucb", 0, 3).series["regret"].sum()
    )


def test_invalid_run_queries_are_rejected(finished: Path) -> None:
    run = Run.load(finished)
    with pytest.raises(InputError, match="'nobody' is not in this run"):
        run.cumulative("nobody")
    with pytest.raises(InputError, match="setting 7"):
        run.cumulative("igp-ucb", 7)
    with pytest.raises(InputError, match="no 'energy'"):
        run.cumulative("igp-ucb", 0, "energy")
    for metric in ("seconds", "choices"):
        for _ in range(2):  # whatever was read before
            with pytest.raises(
                InputError, match=f"'{metric}' is not a metric.*'regret', 'reward'"
            ):
                run.cumulative("igp-ucb", 0, metric)
            np.testing.assert_array_equal(run.seconds("igp-ucb", 0)[0], trace().seconds)
    with pytest.raises(StateError, match=r"no summary\.json"):
        _ = run.summary
    atomic_write(
        finished / "summary.json",
        json_bytes({"rows": [], "claims": [], "not_judged": [], "bad": float("nan")}),
    )
    assert run.summary == {"rows": [], "claims": [], "not_judged": [], "bad": None}


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"\x93NUMPY\x01\x00", None])
def test_damaged_cells_name_the_file_and_the_remedy(
    finished: Path, damage: bytes | None
) -> None:
    path = finished / "cells" / f"{trace().name}.npz"
    path.write_bytes(path.read_bytes()[:-60] if damage is None else damage)
    with pytest.raises(StateError, match=rf"{trace().name}\.npz.*delete it.*--resume"):
        Run.load(finished).cumulative("igp-ucb")


def test_a_flipped_byte_is_noticed(finished: Path) -> None:
    path = finished / "cells" / f"{trace().name}.npz"
    data = bytearray(path.read_bytes())
    data[200] ^= 0xFF
    path.write_bytes(bytes(data))
    with pytest.raises(StateError, match="delete it"):
        Run.load(finished).cumulative("igp-ucb")


def test_pickled_arrays_are_refused(finished: Path) -> None:
    path = finished / "cells" / f"{trace().name}.npz"
    with path.open("wb") as file:
        np.savez(file, regret=np.array([{}] * ROUNDS, dtype=object))
    with pytest.raises(StateError, match="is damaged"):
        Run.load(finished).cumulative("igp-ucb")


def test_cells_that_would_unpack_to_far_more_are_refused(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("superarm.lab.simulation.files._MOST", 1 << 16)
    path = finished / "cells" / f"{trace().name}.npz"
    with path.open("wb") as file:
        np.savez_compressed(file, regret=np.zeros(1 << 20))
    assert path.stat().st_size < 10_000
    with pytest.raises(
        StateError, match=r"would take 8388736 bytes, far more .*delete it.*--resume"
    ):
        Run.load(finished).cumulative("igp-ucb")


def test_cells_of_another_length_are_refused(finished: Path) -> None:
    write_trace(
        finished, trace(series={"regret": np.ones(5)}, choices=None, seconds=None)
    )
    with pytest.raises(StateError, match=r"'regret' must be numbers of shape \(12,\)"):
        Run.load(finished).cumulative("igp-ucb")
    short = {"series": {"regret": np.ones(5)}, "propensities": None, "seconds": None}
    write_trace(finished, trace(choices=np.zeros((5, 2), np.int32), **short))
    with pytest.raises(StateError, match="'choices' must be numbers of shape"):
        Run.load(finished).choices("igp-ucb", 0, 3)


def test_unfinished_runs_and_missing_timings(finished: Path) -> None:
    (finished / "timings" / f"{trace().name}.npz").unlink()
    with pytest.raises(StateError, match="is missing"):
        Run.load(finished).seconds("igp-ucb")
    (finished / "cells" / f"{trace().name}.npz").unlink()
    with pytest.raises(
        StateError, match=r"1 of 8 cells are missing, first igp-ucb\.s0"
    ):
        Run.load(finished)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 1}, "schema 1"),
        ({"rounds": "many"}, "'rounds' must be a whole number, got 'many'"),
        ({"rounds": 0}, "one of each"),
        ({"policies": []}, "one of each"),
        ({"policies": [3]}, "'policies' must be a list of text"),
        ({"settings": []}, "one of each"),
        ({"settings": [3]}, "'settings' must be a list, each a table"),
        ({"seeds": 10**30}, "must be smaller"),
        ({"seeds": 10**8}, "at most 10,000,000 cells"),
        ({"title": 3}, "'title' must be text, got 3"),
        ({"overrides": None}, "'overrides' must be a table, got None"),
        ({"parameters": {"problem": 3}}, "'problem' must be a table, got 3"),
        (
            {"parameters": {"policies": {"a": 3}}},
            "'policies' must be .*each entry a table",
        ),
        ({"settled": [{"route": 3}] * 2}, "'settled' must be .*each entry text"),
        ({"settled": [{}]}, "'settled' must have one entry for each setting"),
        ({"audited": "gp-ts"}, "'audited' must be a list.*, got 'gp-ts'"),
        ({"noise_variance": ["x", 1.0]}, "'noise_variance' must be a list"),
    ],
)
def test_specs_are_checked_on_both_ways(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(StateError, match=message):
        write_spec(tmp_path, spec(**change))
    atomic_write(
        tmp_path / "run.json", json_bytes({"schema": SCHEMA, **spec(**change)})
    )
    with pytest.raises(StateError, match=message):
        Run.load(tmp_path)


def test_directory_without_a_run_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"no run\.json"):
        Run.load(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(StateError, match="cannot be read"):
        Run.load(tmp_path)


def test_traces_are_checked_when_made() -> None:
    with pytest.raises(InputError, match="lack 'regret'"):
        trace(series={"reward": np.ones(ROUNDS)})
    with pytest.raises(InputError, match="cannot be the name of a metric"):
        trace(series={"regret": np.ones(ROUNDS), "choices": np.ones(ROUNDS)})
    for field in ("cell", "policy", "seed", "setting"):  # of the rows in cells.jsonl
        with pytest.raises(
            InputError, match=f"{field}.* cannot be the name of a metric"
        ):
            trace(series={"regret": np.ones(ROUNDS), field: np.ones(ROUNDS)})
    with pytest.raises(ShapeError, match="reward has 3 entries"):
        trace(series={"regret": np.ones(ROUNDS), "reward": np.ones(3)})
    with pytest.raises(InputError, match=r"regret\[1\] is nan"):
        trace(series={"regret": np.array([1.0, np.nan, *np.ones(ROUNDS - 2)])})


@pytest.mark.parametrize(
    "wrong",
    [
        {"choices": np.zeros(ROUNDS, dtype=np.int32)},
        {"choices": np.zeros((ROUNDS - 1, 2), dtype=np.int32)},
        {"propensities": np.ones((ROUNDS, 1))},
        {"seconds": np.ones(ROUNDS + 1, dtype=np.float32)},
        {"audit": {"within": np.ones((ROUNDS, 3))}},
    ],
)
def test_arrays_of_a_trace_have_a_row_per_round(wrong: dict[str, Any]) -> None:
    with pytest.raises(ShapeError, match=r"must have shape \(.*, got \("):
        trace(**wrong)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"regret": np.full(ROUNDS, np.nan)}, "'regret' holds NaN or infinity"),
        ({"regret": np.full(ROUNDS, "a")}, "'regret' must be numbers"),
        ({"reward": np.full(ROUNDS, np.inf)}, "'reward' holds NaN or infinity"),
    ],
)
def test_totals_of_non_numbers_are_rejected(
    change: dict[str, Any], message: str, finished: Path
) -> None:
    path = finished / "cells" / f"{trace().name}.npz"
    np.savez_compressed(path, **{**read_arrays(path), **change})
    run = Run.load(finished)
    for read in (
        lambda: write_cells(run),
        lambda: run.cumulative("igp-ucb", metric=next(iter(change))),
    ):
        with pytest.raises(
            StateError, match=f"is damaged: {message}.*; delete it and run again"
        ):
            read()


def test_a_damaged_map_names_its_file(finished: Path) -> None:
    (finished / "maps").mkdir()
    np.savez_compressed(finished / "maps" / "s0.npz", speed=np.ones(3))
    with pytest.raises(
        StateError, match=r"s0\.npz is damaged: the map lacks .*; delete it"
    ):
        Run.load(finished).road_map()
