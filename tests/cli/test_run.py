"""``superarm run``: its JSON, exit codes, options, and hostile input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from summary_keys import SUMMARY_KEYS

from superarm.cli.running import _new_directory

Command = Callable[..., Any]
SMALL = ("--rounds", 4, "--seeds", 1)
FAST = ("--jobs", "1")


# --- the contract, in a subprocess -------------------------------------------------------


@pytest.mark.thorough
def test_json_is_one_line_on_stdout_and_progress_is_on_stderr(
    shell: Command, cli: Command, tiny: str
) -> None:
    args = (
        "run",
        tiny,
        "--seeds",
        2,
        "--rounds",
        7,
        "--seed",
        5,
        "--set",
        "k=[1, 2]",
        *FAST,
    )
    result = shell(*args, "--out", "a", "--json")
    summary = result.json()
    assert list(summary) == SUMMARY_KEYS
    assert (summary["experiment"], summary["rounds"], summary["seeds"]) == (
        "tiny",
        7,
        2,
    )
    assert summary["out"] == "a"
    assert len(summary["rows"]) == 2 * 2
    for row in summary["rows"]:
        assert list(row) == [
            "policy",
            "setting",
            "metric",
            "unit",
            "mean",
            "stderr",
            "seconds_per_round",
        ]
        assert row["setting"] in ({"k": 1}, {"k": 2})
        assert row["metric"] == "cumulative_regret"
        assert row["seconds_per_round"] > 0.0
        assert row["stderr"] is not None
    assert len(summary["claims"]) == 2
    for claim in summary["claims"]:
        assert list(claim) == ["text", "holds", "verdict", "evidence"]
        assert isinstance(claim["holds"], bool)
    assert "28/56 rounds" in result.err or "56/56 rounds" in result.err
    quiet = cli(*args, "--out", "b", "--json", "-q")
    assert quiet.err == ""
    rows = [
        [{**row, "seconds_per_round": 0} for row in completed.json()["rows"]]
        for completed in (result, quiet)
    ]
    assert rows[0] == rows[1]
    seeds = json.loads(
        (Path(tiny).parent / "a" / "run.json").read_text(encoding="utf-8")
    )
    assert (seeds["first_seed"], seeds["seeds"]) == (5, 2)


@pytest.mark.slow
def test_output_survives_an_ascii_terminal(shell: Command, tiny: str) -> None:
    path = Path(tiny)
    text = path.read_text(encoding="utf-8").replace(
        "gp-greedy", '"größe\\u2028[/x]"', 1
    )
    text = text.replace("[policies.random]", "[policies.random]\n[policies.gp-greedy]")
    path.write_text(
        text.replace('größe\\u2028[/x]"]', 'größe\\u2028[/x]"]\npolicy="random"'),
        "utf-8",
    )
    env = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    summary = shell("run", tiny, *FAST, "--json", "-q", env=env).json()
    assert summary["rows"][0]["policy"] == "größe\u2028[/x]"


def test_closed_pipe_does_not_crash(program: list[str], tmp_path: Path) -> None:
    command = " ".join(f"'{word}'" for word in program) + " list experiments"
    done = subprocess.run(
        ["bash", "-c", f"{command} | true"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_interrupted_by_the_user(program: list[str], tiny: str, tmp_path: Path) -> None:
    """Ctrl-C reaches the whole process group: no traceback, exit 1, and --resume continues."""
    # Where Ctrl-C is ignored, as under nohup, children would ignore it, too.
    *python, code = program
    heeding = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {code}"
    args = [
        "run",
        tiny,
        "--rounds",
        "200000",
        "--seeds",
        "4",
        "--jobs",
        "2",
        "--out",
        "a",
        "-q",
    ]
    process = subprocess.Popen(
        [*python, heeding, *args],
        cwd=tmp_path,
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
    )
    # Nothing here is timed: a run that does not heed Ctrl-C ends by itself, but not with 1.
    try:
        while not (tmp_path / "a" / "run.json").exists():
            assert process.poll() is None
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate()
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 1
    assert "interrupted" in err
    assert "Traceback" not in err


# --- exit codes --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "Missing argument 'EXPERIMENT'"),
        (("nope",), "unknown experiment 'nope'"),
        (
            ("kernelized/rkhs",),
            "did you mean 'kernelized/rkhs-se'?",
        ),
        (
            ("rkhs-se",),
            "did you mean 'kernelized/rkhs-se'? `superarm list experiments` lists them",
        ),
        (("city",), "did you mean 'demo/city' or 'navigation/city'?"),
        (
            ("kernelized",),
            "a paper or one of its figures; `superarm reproduce kernelized` runs it",
        ),
        (("kernelized/1a",), "`superarm reproduce kernelized/1a` runs it"),
        (("nope.toml",), "nope.toml: file not found"),
        (("../../etc/passwd",), "unknown experiment"),
        (("TINY", "--seed", "-1"), "--seed"),
        (("TINY", "--seed", "x"), "--seed"),
        (("TINY", "--seed", "9" * 40), "must be a whole number from 0 to"),
        (("TINY", "--seeds", "0"), "--seeds"),
        (("TINY", "--seeds", "9" * 12), "must be a whole number from 1 to"),
        (("TINY", "--rounds", "0"), "--rounds"),
        (("TINY", "--rounds", "1" + "0" * 12), "must be a whole number from 1 to"),
        (("TINY", "--rounds", "9" * 5000), "--rounds"),
        (("TINY", "--jobs", "0"), "--jobs"),
        (("TINY", "--executor", "ray"), "--executor"),
        (("TINY", "--frobnicate"), "--frobnicate"),
        (("TINY", "--resume"), "--resume needs --out"),
        (
            ("TINY", "--policies", "gp-eii"),
            "did you mean 'gp-ei'? `superarm list policy` lists them",
        ),
        (
            ("TINY", "--policies", "gp-ei random"),
            "with commas: --policies gp-ei,random",
        ),
        (("TINY", "--policies", ","), "at least one policy"),
        (("TINY", "--policies", "../x"), "unknown policy '../x'"),
        (
            ("TINY", "--policies", "igp-ucb"),
            "policy 'igp-ucb': this policy needs norm_bound",
        ),
        (("TINY", "--set", "sid=3"), "did you mean 'side'? they take hills, k"),
        (("TINY", "--set", "side"), "write key=value"),
        (("TINY", "--set", "side=x"), "side must be a whole number, got 'x'"),
        (
            ("TINY", "--set", 'noise_std="0.5"'),
            "noise_std must be a number, got '0.5'",
        ),
        (
            ("TINY", "--set", "noise_std={a = 1}"),
            "noise_std must be a number, got {'a': 1}",
        ),
        (
            ("TINY", "--set", "gp-greedy.posterior=3"),
            "posterior must be one of 'auto', ",
        ),
        (("TINY", "--set", "k=[]"), "at least one value"),
        (("TINY", "--set", "k=[1, 1]"), "repeated"),
        (("TINY", "--set", "k=1", "--set", "k=2"), "given twice"),
        (("TINY", "--set", "k=nan"), "finite"),
        (("TINY", "--set", "problem.name=nope"), "unknown problem 'nope'"),
        (("TINY", "--set", "gp-greedy.xi=1"), "has no parameter 'xi'"),
        (("TINY", "--set", "nobody.xi=1"), "nor a policy has a parameter"),
    ],
)
def test_usage_errors_exit_2_and_write_no_files(
    cli: Command, tiny: str, args: tuple[str, ...], words: str
) -> None:
    message = cli("run", *(tiny if arg == "TINY" else arg for arg in args), "-q").fails(
        2
    )
    assert words in message
    assert [path.name for path in Path(tiny).parent.iterdir()] == ["tiny.toml"]


def test_conflicts_exit_3(cli: Command, tiny: str) -> None:
    here = Path(tiny).parent
    (here / "file").write_text("x", encoding="utf-8")
    (here / "full").mkdir()
    (here / "full" / "notes.txt").write_text("x", encoding="utf-8")
    command = ("run", tiny, *FAST, "-q", "--json", "--out")
    assert "is a file" in cli(*command, "file").fails(3)
    assert "not empty" in cli(*command, "full").fails(3)
    assert "contains no run" in cli(*command, "full", "--resume").fails(3)
    first = cli(*command, "a").json()
    assert "--resume" in cli(*command, "a").fails(3)
    assert "rounds differ" in cli(*command, "a", "--resume", "--rounds", 1).fails(3)
    assert "policies" in cli(*command, "a", "--resume", "--policies", "random").fails(3)
    assert "first_seed" in cli(*command, "a", "--resume", "--seed", 1).fails(3)
    assert "settings" in cli(*command, "a", "--resume", "--set", "k=[1, 2]").fails(3)
    assert cli(*command, "a", "--resume").json() == first
    again = cli("run", tiny, "--out", "a", "--resume", "--json")
    assert again.err == "superarm: a: nothing left to run\n"


def test_failures_exit_1(
    cli: Command, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUPERARM_DATA", str(tmp_path))
    monkeypatch.setattr("superarm.core.data_files.search_path", lambda: [tmp_path])
    args = ("run", "kernelized/temperature", "--rounds", 3, "--seeds", 1, *FAST, "-q")
    message = cli(*args, "--set", "source=real").fails(1)
    assert "intel" in message
    assert "SUPERARM_DATA" in message
    assert not (tmp_path / "runs").exists()
    assert cli(*args, "--set", "source=auto", "--json").json()["rows"]
    message = cli("run", tiny, "-q", "--out", tmp_path / "tiny.toml" / "below").fails(1)
    assert "Not a directory" in message
    message = cli("run", tiny, "-q", "--out", "x" * 300).fails(1)
    assert "too long" in message


def test_out_of_memory_is_reported(
    cli: Command, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*args: Any, **kwargs: Any) -> None:
        raise MemoryError("Unable to allocate 7 TiB")

    monkeypatch.setattr("superarm.lab.experiments.playing.simulate", exhausted)
    assert "not enough memory: Unable to allocate 7 TiB" in cli(
        "run", tiny, *FAST, "-q"
    ).fails(1)


def test_missing_dask_names_the_pip_command(
    cli: Command, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    message = cli("run", tiny, "--executor", "dask", "-q").fails(1)
    assert "pip install 'distributed>=" in message


def test_a_claim_that_fails_exits_0(cli: Command, tiny: str) -> None:
    path = Path(tiny)
    path.write_text(
        path.read_text(encoding="utf-8").replace("ratio = 1.0", "ratio = 1e-6"), "utf-8"
    )
    result = cli("run", tiny, "--seeds", 4, *FAST, "-q", "--json").json()
    assert [claim["holds"] for claim in result["claims"]] == [False]
    text = cli("run", tiny, "--seeds", 4, *FAST, "-q")
    assert text.code == 0
    assert "✗ does not hold: greedy" in text.out
    assert "The claim does not hold." in text.out
    undecided = cli("run", tiny, "--seeds", 1, *FAST, "-q").out
    assert "? undecided: greedy" in undecided
    assert "Ranking policies needs at least 4 seeds." in undecided
    assert "The claim is undecided; try more --seeds." in undecided


# --- options -----------------------------------------------------------------------------


def test_claims_about_missing_policies_are_counted(
    cli: Command, tiny: str, tmp_path: Path
) -> None:
    line = "1 claim not judged: it needs gp-greedy."
    assert line in cli("run", tiny, "--policies", "random", "--out", "a", "-q").out
    page = (tmp_path / "a" / "report.html").read_text(encoding="utf-8")
    assert line in page
    assert "feedback" not in page  # nothing is reported for missing parts
    summary = cli(
        "run", tiny, "--policies", "random", "--out", "b", "-q", "--json"
    ).json()
    needs = [{"text": "greedy beats chance", "needs": ["gp-greedy"]}]
    assert (summary["claims"], summary["not_judged"]) == ([], needs)
    assert cli("run", tiny, "--out", "c", "-q", "--json").json()["not_judged"] == []


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_policy_that_cannot_decide_is_named(
    cli: Command, tmp_path: Path, jobs: int
) -> None:
    text = """
        id = "unfit"
        rounds = 3
        seeds = 2
        [problem]
        name = "navigation"
        network = "city"
        edges = 200
        [policies.random]
        [policies.gp-greedy]
        """
    (tmp_path / "unfit.toml").write_text(text, encoding="utf-8")
    message = cli(
        "run", "unfit.toml", "--set", "mass=[900.0]", "--jobs", jobs, "-q"
    ).fails(1)
    assert "a shortest path needs costs of 0 or more" in message
    assert "(policy 'gp-greedy', rounds 1 to 3; seed = " in message
    assert ", mass = 900.0)" in message


def test_rejected_runs_show_no_progress(cli: Command, tiny: str) -> None:
    assert "rounds" in cli("run", tiny, "--out", "a", *FAST).err
    message = cli("run", tiny, "--out", "a", *FAST).fails(3)
    assert message.startswith("superarm: a is not empty")


def test_one_seed_has_no_stderr(cli: Command, tiny: str) -> None:
    summary = cli("run", tiny, "--seeds", 1, *FAST, "-q", "--json").json()
    assert {row["stderr"] for row in summary["rows"]} == {None}


@pytest.mark.parametrize(
    ("sets", "settings"),
    [
        ((), [{}]),
        (("k=1",), [{}]),
        (("k=[1]",), [{"k": 1}]),
        (("noise_std=[0.1, 1]",), [{"noise_std": 0.1}, {"noise_std": 1}]),
        (("gp-greedy.posterior=['auto', 'streaming']",), None),
        (
            ("k=[1, 2]", "side=[4, 5]", "hills=2"),
            [
                {"k": 1, "side": 4},
                {"k": 1, "side": 5},
                {"k": 2, "side": 4},
                {"k": 2, "side": 5},
            ],
        ),
    ],
)
def test_sets_and_sweeps(
    cli: Command,
    tiny: str,
    sets: tuple[str, ...],
    settings: list[dict[str, Any]] | None,
) -> None:
    words = [word for value in sets for word in ("--set", value)]
    summary = cli("run", tiny, "--rounds", 3, *words, *FAST, "-q", "--json").json()
    expected = settings or [
        {"gp-greedy.posterior": value} for value in ("auto", "streaming")
    ]
    for policy in ("gp-greedy", "random"):
        rows = [row for row in summary["rows"] if row["policy"] == policy]
        assert [row["setting"] for row in rows] == expected
        assert [list(map(type, row["setting"].values())) for row in rows] == [
            list(map(type, setting.values())) for setting in expected
        ]


def test_policies_may_be_any_that_are_registered(cli: Command, tiny: str) -> None:
    summary = cli(
        "run", tiny, "--policies", " gp-ei, random ,", *FAST, "-q", "--json"
    ).json()
    assert [row["policy"] for row in summary["rows"]] == ["gp-ei", "random"]
    assert summary["claims"] == []  # it is about gp-greedy, which was not run


def test_the_problem_may_be_another(cli: Command, tiny: str) -> None:
    path = Path(tiny)
    text = path.read_text(encoding="utf-8").replace("side = 6\nk = 2\n", "")
    path.write_text(text, encoding="utf-8")
    sets = ("--set", "function=branin", "--set", "problem.name=benchmark-function")
    cli("run", tiny, *sets, "--out", "a", *FAST, "-q", "--json").json()
    spec = json.loads((path.parent / "a" / "run.json").read_text(encoding="utf-8"))
    assert spec["parameters"]["problem"] == {
        "name": "benchmark-function",
        "function": "branin",
    }


def test_every_policy_has_a_regret_row_and_other_metrics(cli: Command) -> None:
    args = (
        "run",
        "combinatorial/crowdsourcing",
        "--rounds",
        4,
        "--seeds",
        1,
        "--set",
        "source=synthetic",
    )
    rows = cli(*args, *FAST, "-q", "--json").json()["rows"]
    regrets = [row["policy"] for row in rows if row["metric"] == "cumulative_regret"]
    sparse = [f"soclok-ucb-{count}" for count in (10, 100, 20, 50)]
    exact = ["oclok-ucb", "oclok-ucb-cholesky"]
    assert sorted(regrets) == [
        "acc-ucb",
        "benchmark",
        "cc-mab",
        *exact,
        "random",
        *sparse,
    ]
    assert {"cumulative_regret", "cumulative_reward"} <= {row["metric"] for row in rows}
    benchmark = next(row for row in rows if row["policy"] == "benchmark")
    assert benchmark["mean"] == pytest.approx(0.0, abs=1e-9)


def test_without_out_runs_are_numbered(cli: Command, tiny: str, tmp_path: Path) -> None:
    outs = [
        cli("run", "tiny.toml", *FAST, "-q", "--json").json()["out"] for _ in range(2)
    ]
    assert outs == [os.path.join("runs", name) for name in ("tiny-001", "tiny-002")]
    for name in (
        "../../x.toml",
        "/abs/y.toml",
        "a/../../z.toml",
        "..toml",
        ".toml",
        "../..",
        "x" * 50,
    ):
        directory = (tmp_path / _new_directory(name)).resolve()
        assert directory.parent == tmp_path / "runs"


def test_id_cannot_escape_the_directory(
    cli: Command, tiny: str, tmp_path: Path
) -> None:
    path = Path(tiny)
    text = path.read_text(encoding="utf-8").replace(
        'id = "tiny"', 'id = "../../[/x]/escape"'
    )
    path.write_text(
        text + '\n[policies."../../../up"]\npolicy = "random"\n', encoding="utf-8"
    )
    result = cli("run", tiny, *FAST)  # and neither can markup in it break the table
    assert result.code == 0, result.err
    assert "../../[/x]/escape" in result.out
    assert "../../../up" in result.out
    assert {entry.name for entry in tmp_path.iterdir()} == {"tiny.toml", "runs"}
    assert [entry.name for entry in (tmp_path / "runs").iterdir()] == ["tiny-001"]
    page = (tmp_path / "runs" / "tiny-001" / "report.html").read_text(encoding="utf-8")
    assert "../../../up" in page


def test_the_table_for_people(cli: Command, tiny: str) -> None:
    result = cli("run", tiny, *FAST)
    assert result.code == 0
    for word in (
        "gp-greedy",
        "random",
        "cumulative regret",
        "greedy beats chance",
        "report.html",
    ):
        assert word in result.out
    assert "12 rounds, 2 seeds" in result.out
    assert "48/48 rounds" in result.err
    assert "setting" not in result.out
    assert "metric" not in result.out
    swept = cli("run", tiny, "--set", "k=[1, 2]", "--seeds", 1, *FAST, "-q").out
    assert "12 rounds, 1 seed " in swept
    assert "k = 2" in swept


def test_synthetic_data_are_mentioned_even_when_quiet(cli: Command) -> None:
    args = (
        "run",
        "combinatorial/crowdsourcing",
        "--rounds",
        4,
        "--seeds",
        1,
        "--set",
        "source=synthetic",
    )
    result = cli(*args, *FAST, "-q", "--json", "--out", "a")
    assert result.err.startswith("superarm: synthetic data: 8000 places")
    assert all(
        claim["evidence"].endswith("on synthetic data")
        for claim in result.json()["claims"]
    )
    page = Path("a", "report.html").read_text(encoding="utf-8")
    assert "Synthetic data" in page
    assert "Smaller than the full experiment: 4 of 250 rounds, 1 of 5 seeds." in page


def test_usage_errors_are_one_line(cli: Command) -> None:
    for args in (
        ("run", "--rounds", "x"),
        ("frob",),
        ("--frob",),
        ("report",),
        ("data", "path", "x"),
    ):
        message = cli(*args).fails(2)
        assert message.startswith("superarm: ")
        assert message.count("\n") == 1
    assert "Usage:" in cli().err
    assert cli("--help").code == 0
    assert cli("--version").code == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "args", [("run", "TINY"), ("run", "TINY", "--set", "gp-greedy.xi=µ")]
)
def test_characters_missing_from_the_terminal(
    shell: Command, tiny: str, args: tuple[str, ...]
) -> None:
    words = (tiny if arg == "TINY" else arg for arg in args)
    result = shell(*words, *FAST, env={"PYTHONIOENCODING": "ascii", "LC_ALL": "C"})
    assert result.code in (0, 2)
    assert "Traceback" not in result.err
    assert "?" in result.out or "superarm: " in result.err


# --- a run made longer, and a policy that begins with a state ----------------------------------


def test_run_can_be_extended_and_warm_started(cli: Command) -> None:
    city = ("run", "navigation/city", "--set", "edges=200", "--seeds", 1, *FAST)
    both = (*city, "--policies", "gp-ts,prior", "--out", "a")
    assert cli(*both, "--rounds", 2, "--json").json()["rounds"] == 2
    longer = cli(*both, "--rounds", 4, "--resume", "--json")
    assert longer.json()["rounds"] == 4
    assert (
        "superarm: prior restarted from round 1: the shorter run stored no state of it"
        in longer.err
    )
    assert "gp-ts restarted" not in longer.err
    state = "a/states/gp-ts.s0.seed00000.npz"
    one = (*city, "--policies", "gp-ts", "--rounds", 2, "--out", "b")
    assert cli(*one, "--state", state, "--json").json()["rounds"] == 2
    assert "states differ" in cli(*one, "--resume").fails(3)
    other = (*city, "--policies", "gp-ucb", "--out", "c")
    message = "gp-ucb': this 'index-policy' state does not match this IndexPolicy: rule"
    assert message in cli(*other, "--state", f"gp-ucb={state}").fails(2)
