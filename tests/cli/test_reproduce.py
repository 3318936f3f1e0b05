"""``superarm reproduce`` and ``superarm report``."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from superarm.cli import reproducing
from superarm.cli.running import write_outputs
from superarm.core import data_files
from superarm.core.errors import SuperarmError
from superarm.lab.experiments import load_experiment
from superarm.lab.experiments.statements import RecordedRun
from superarm.lab.simulation import Run

Command = Callable[..., Any]
SIZE = ("--rounds", 20, "--seeds", 2, "--jobs", 1, "-q")


@pytest.mark.slow
def test_one_figure(cli: Command, tmp_path: Path) -> None:
    summary = cli("reproduce", "kernelized/1a", *SIZE, "--out", "a", "--json").json()
    assert list(summary) == ["reproduce", "seconds", "runs", "out"]
    assert [run["experiment"] for run in summary["runs"]] == ["kernelized/rkhs-se"]
    run = summary["runs"][0]
    assert len(run["rows"]) == 7
    assert len(run["claims"]) == 5
    directory = tmp_path / "a" / "kernelized-rkhs-se"
    page = (tmp_path / "a" / "index.html").read_text(encoding="utf-8")
    assert "kernelized-rkhs-se/report.html" in page
    assert "bound" in (directory / "report.html").read_text(encoding="utf-8")
    message = cli("reproduce", "kernelized/1a", *SIZE, "--out", "a").fails(3)
    assert "not empty" in message
    repeated = cli(
        "reproduce", "kernelized/1a", *SIZE, "--out", "a", "--resume", "--json"
    ).json()
    assert repeated["runs"] == summary["runs"]
    figures = {path.name for path in (directory / "figures").iterdir()}
    assert {"regret.svg", "growth.svg", "seconds.svg"} <= figures
    assert all(path.stat().st_size > 1000 for path in (directory / "figures").iterdir())


@pytest.mark.slow
def test_every_figure_of_a_paper_names_its_experiments() -> None:
    """Also where one experiment makes several figures, or a figure needs several."""
    from superarm.cli.targets import experiments_of
    from superarm.core.errors import SpecError

    def ids(target: str) -> list[str]:
        return [
            experiment.id.removeprefix("navigation/")
            for experiment in experiments_of(target)
        ]

    assert ids("navigation/1") == ["luxembourg-a", "monaco-a"]
    assert ids("navigation/2")[-1] == "svgp"  # all six routes with Algorithm 3
    assert len(ids("navigation/2")) == 7
    assert (
        ids("navigation/2e")
        == ids("navigation/8")
        == ids("navigation/monaco-a")
        == ["monaco-a"]
    )
    assert ids("navigation/4") == ids("navigation/5") == ["lengthscale"]
    assert [ids(f"navigation/{figure}") for figure in (3, 6, 7, 9)] == [
        ["betas"],
        ["luxembourg-a"],
        ["luxembourg-b"],
        ["monaco-b"],
    ]
    with pytest.raises(SpecError, match="nothing to reproduce under 'navigation/10'"):
        experiments_of("navigation/10")


@pytest.mark.slow
def test_figures_of_functions_that_drift(cli: Command, tmp_path: Path) -> None:
    """Figure 1 is the truth, Figure 2 a running mean; bands are the experiment's own."""
    cli("reproduce", "timevarying/1", *SIZE, "--out", "a", "--json").json()
    directory = tmp_path / "a" / "timevarying-functions"
    assert sorted(path.name for path in (directory / "truths").iterdir()) == [
        "s0.npz",
        "s1.npz",
    ]
    assert "<h2>The truth</h2>" in (directory / "report.html").read_text(
        encoding="utf-8"
    )
    small = (*SIZE, "--set", "side=5", "--out", "b", "--json")
    runs = cli("reproduce", "timevarying/2a", *small).json()["runs"]
    assert [run["experiment"] for run in runs] == ["timevarying/matched-se"]
    assert {row["metric"] for row in runs[0]["rows"]} >= {
        "cumulative_regret",
        "average_regret",
    }
    page = (tmp_path / "b" / "timevarying-matched-se" / "report.html").read_text(
        encoding="utf-8"
    )
    assert page.count("average regret against round") == 3  # a panel for each ε
    assert (directory / "figures" / "truth.svg").is_file()
    assert (
        tmp_path / "b" / "timevarying-matched-se" / "figures" / "average_regret.svg"
    ).is_file()


def test_by_name_and_for_people(cli: Command) -> None:
    result = cli(
        "reproduce", "kernelized/rkhs-se", *SIZE, "--policies", "igp-ucb,gp-ucb"
    )
    assert result.code == 0
    assert "kernelized/rkhs-se" in result.out
    assert "undecided: IGP-UCB" in result.out
    assert "reproduce-kernelized-rkhs-se-001/index.html" in result.out


def test_forecasts_and_bands_as_for_one_run(
    cli: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "superarm.cli.running.forecast_warnings", lambda run: [f"rely on {run.rounds}"]
    )
    size = (*SIZE, "--policies", "igp-ucb", "--band", "std", "--out", "a")
    assert "rely on 20" in cli("reproduce", "kernelized/rkhs-se", *size).out
    page = (tmp_path / "a" / "kernelized-rkhs-se" / "report.html").read_text(
        encoding="utf-8"
    )
    assert "standard deviation" in page


@pytest.mark.slow
def test_reproduce_a_full_paper(cli: Command, tmp_path: Path) -> None:
    """Sensors use real data where available, synthetic ones elsewhere."""
    summary = cli("reproduce", "kernelized", *SIZE, "--out", "a", "--json").json()
    assert len(summary["runs"]) == 13
    shutil.rmtree(
        tmp_path / "a" / "kernelized-temperature"
    )  # as if it had been interrupted earlier
    repeated = cli(
        "reproduce", "kernelized", *SIZE, "--out", "a", "--json", "--resume"
    ).json()
    assert [run["claims"] for run in repeated["runs"]] == [
        run["claims"] for run in summary["runs"]
    ]


def test_all_is_every_experiment_of_a_paper() -> None:
    from superarm.cli.targets import experiments_of
    from superarm.lab.experiments import experiment_ids

    every = [load_experiment(name) for name in experiment_ids()]
    assert [experiment.id for experiment in experiments_of("all")] == [
        experiment.id for experiment in every if experiment.paper
    ]
    assert len({experiment.paper for experiment in experiments_of("all")}) == 5


SMALL = ("--rounds", 8, "--seeds", 1, "--jobs", 1, "--policies", "random", "-q")


@pytest.fixture
def two_papers(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = [
        load_experiment(name)
        for name in ("kernelized/rkhs-se", "timevarying/functions")
    ]
    monkeypatch.setattr(
        "superarm.cli.reproducing.experiments_of", lambda target: chosen
    )


@pytest.mark.usefixtures("two_papers")
def test_a_page_over_several_papers(cli: Command, tmp_path: Path) -> None:
    summary = cli("reproduce", "all", *SMALL, "--out", "a", "--json").json()
    assert [run["experiment"] for run in summary["runs"]] == [
        "kernelized/rkhs-se",
        "timevarying/functions",
    ]
    assert all(isinstance(run["statements"], list) for run in summary["runs"])
    page = (tmp_path / "a" / "index.html").read_text(encoding="utf-8")
    assert "<h1>superarm: all 2 papers</h1>" in page
    for text in (
        "On Kernelized Multi-armed Bandits (2017)",
        'href="#timevarying"',
        'id="timevarying"',
    ):
        assert text in page
    assert "Unfinished" not in page
    times = json.loads((tmp_path / "a" / "times.json").read_text(encoding="utf-8"))
    assert set(times) == {"kernelized/rkhs-se", "timevarying/functions"}
    assert summary["seconds"] == pytest.approx(sum(times.values()))


@pytest.mark.usefixtures("two_papers")
def test_interrupted_reproduction_shows_finished_runs(
    cli: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    write = reproducing.write_outputs

    def fails_second(directory: Path, *arguments: Any, **options: Any) -> Any:
        if "timevarying" in directory.name:
            raise SuperarmError("the disk is full")
        return write(directory, *arguments, **options)

    monkeypatch.setattr(reproducing, "write_outputs", fails_second)
    assert "the disk is full" in cli("reproduce", "all", *SMALL, "--out", "a").fails(1)
    page = (tmp_path / "a" / "index.html").read_text(encoding="utf-8")
    assert "Unfinished: 1 experiment still to run: timevarying/functions." in page
    times = json.loads((tmp_path / "a" / "times.json").read_text(encoding="utf-8"))
    assert times["timevarying/functions"] > 0.0
    monkeypatch.setattr(reproducing, "write_outputs", write)
    summary = cli("reproduce", "all", *SMALL, "--out", "a", "--resume", "--json").json()
    later = json.loads((tmp_path / "a" / "times.json").read_text(encoding="utf-8"))
    assert all(later[name] > times[name] for name in times)
    assert summary["seconds"] == pytest.approx(sum(later.values()))
    assert "Unfinished" not in (tmp_path / "a" / "index.html").read_text(
        encoding="utf-8"
    )


@pytest.mark.usefixtures("two_papers")
@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1]",
        '{"a": "b"}',
        '{"a": NaN}',
        '{"a": -1}',
        '{"a": 1e308}',
        f'{{"a": 1{"0" * 400}}}',
    ],
)
def test_damaged_times_are_named(cli: Command, tmp_path: Path, text: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "times.json").write_text(text, encoding="utf-8")
    message = cli("reproduce", "all", *SMALL, "--out", "a", "--resume").fails(1)
    assert "times.json is damaged; delete it" in message
    assert [path.name for path in (tmp_path / "a").iterdir()] == [
        "times.json"
    ]  # nothing has run


@pytest.mark.usefixtures("two_papers")
@pytest.mark.parametrize("fault", ["damaged times", "full disk"])
def test_the_first_error_is_reported(
    cli: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Not that the time could not be noted afterwards."""
    times = tmp_path / "a" / "times.json"

    def stop(*arguments: Any, **options: Any) -> Any:
        if fault == "damaged times":
            times.write_text("{", encoding="utf-8")
        raise SuperarmError("the first error")

    def fail(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(reproducing, "write_outputs", stop)
    if fault == "full disk":
        monkeypatch.setattr(reproducing, "atomic_write", fail)
    assert "the first error" in cli("reproduce", "all", *SMALL, "--out", "a").fails(1)


@pytest.mark.usefixtures("two_papers")
def test_each_page_is_written_once(
    cli: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = reproducing.write_index
    reports_written = []

    def count(reports: list[Any], *arguments: Any, **options: Any) -> Any:
        reports_written.append(len(reports))
        return write(reports, *arguments, **options)

    monkeypatch.setattr(reproducing, "write_index", count)
    cli("reproduce", "all", *SMALL, "--out", "a", "--json").json()
    assert reports_written == [1, 2]


@pytest.mark.usefixtures("two_papers")
def test_resumed_reproduction_keeps_its_page_until_it_catches_up(
    cli: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    cli("reproduce", "all", *SMALL, "--out", "a", "--json").json()
    before = (tmp_path / "a" / "index.html").read_bytes()
    write = reproducing.write_outputs

    def fails_second(directory: Path, *arguments: Any, **options: Any) -> Any:
        if "timevarying" in directory.name:
            raise SuperarmError("stopped")
        return write(directory, *arguments, **options)

    monkeypatch.setattr(reproducing, "write_outputs", fails_second)
    cli("reproduce", "all", *SMALL, "--out", "a", "--resume").fails(1)
    assert (tmp_path / "a" / "index.html").read_bytes() == before
    longer = (
        "--rounds",
        9,
        *SMALL[2:],
    )  # the page is outdated for the second run
    cli("reproduce", "all", *longer, "--out", "a", "--resume").fails(1)
    assert (
        b"Unfinished: 1 experiment still to run"
        in (tmp_path / "a" / "index.html").read_bytes()
    )


@pytest.mark.usefixtures("two_papers")
def test_concurrent_reproductions_are_locked_out(cli: Command, tmp_path: Path) -> None:
    from superarm.lab.simulation.files import run_lock

    (tmp_path / "a").mkdir()
    with run_lock(tmp_path / "a"):
        message = cli("reproduce", "all", *SMALL, "--out", "a", "--resume").fails(3)
    assert "another process is running in a" in message
    assert not (tmp_path / "a" / "kernelized-rkhs-se").exists()
    (tmp_path / "b").touch()
    assert "b is a file" in cli("reproduce", "all", *SMALL, "--out", "b").fails(3)


def test_missing_road_data_refuse_all_experiments(
    cli: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing runs, not even the experiments before the one whose data are missing."""
    ids = ("kernelized/rkhs-se", "navigation/betas")
    experiments = [load_experiment(name) for name in ids]
    monkeypatch.setattr(
        "superarm.cli.reproducing.experiments_of", lambda target: experiments
    )
    monkeypatch.setattr(data_files, "search_path", lambda: [tmp_path / "nothing"])
    message = cli("reproduce", "all", *SMALL, "--out", "a").fails(1)
    assert "luxembourg-roads was not found" in message
    assert "(navigation/betas)" in message
    assert not (tmp_path / "a").exists()


@pytest.mark.usefixtures("two_papers")
def test_errors_name_their_experiment(cli: Command, tmp_path: Path) -> None:
    message = cli("reproduce", "all", *SMALL, "--set", "arms=1", "--out", "a").fails(2)
    assert "arms must be a whole number from 2 to 16,000, got 1" in message
    assert "(kernelized/rkhs-se)" in message
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            ("nope",),
            "nothing to reproduce under 'nope'; `superarm list experiments` lists them",
        ),
        (("demo",), "nothing to reproduce under 'demo'"),
        (("kernelised",), "did you mean 'kernelized'?"),
        (("rkhs-se",), "did you mean 'kernelized/rkhs-se'?"),
        (
            ("kernelized/9z",),
            "nothing to reproduce under 'kernelized/9z'; did you mean 'kernelized/",
        ),
        (("1a",), "did you mean 'kernelized/1a' or 'movement/1a'?"),
        (("",), "nothing to reproduce"),
        (("/",), "nothing to reproduce"),
        (("../kernelized",), "nothing to reproduce"),
        (("kernelized/1a", "--resume"), "--resume needs --out"),
        (("kernelized/1a", "--policies", "nope"), "unknown policy 'nope'"),
        # Sensors have no function: rejected before the first of eight experiments runs.
        (("kernelized", "--set", "function=branin"), "nor a policy has a parameter"),
        ((), "PAPER"),
    ],
)
def test_usage_errors(
    cli: Command, tmp_path: Path, args: tuple[str, ...], words: str
) -> None:
    assert words in cli("reproduce", *args, *SIZE).fails(2)
    assert list(tmp_path.iterdir()) == []


# --- report ------------------------------------------------------------------------------


@pytest.fixture
def run(cli: Command, tiny: str, tmp_path: Path) -> Path:
    cli("run", tiny, "--jobs", 1, "-q", "--out", "run", "--json").json()
    return tmp_path / "run"


def test_report_writes_page_and_figures(cli: Command, run: Path) -> None:
    (run / "report.html").unlink()
    written = cli("report", "run", "--json").json()
    assert written["report"] == "run/report.html"
    assert all(
        Path(path).is_file() for path in [written["report"], *written["figures"]]
    )
    text = cli("report", "run")
    assert text.out.split() == [written["report"], *written["figures"]]
    assert cli("report", "run", "--bound", "-q").code == 0


@pytest.mark.parametrize(
    "values",
    ["{noise_variance = 0.5}", "[{noise_variance = 0.5}, {noise_variance = 2.0}]"],
    ids=["fixed", "swept"],
)
def test_older_runs_may_use_told_instead_of_assumes(
    cli: Command, tiny: str, values: str
) -> None:
    override = f"gp-greedy.assumes={values}"
    result = cli("run", tiny, "--set", override, "--jobs", 1, "-q", "--out", "run")
    assert result.code == 0
    report = Path("run/report.html")
    assert cli("report", "run", "--bound", "-q").code == 0
    page = report.read_text("utf-8")
    file = Path("run/run.json")
    text = file.read_text("utf-8")
    older = text.replace('"assumes"', '"told"').replace(".assumes", ".told")
    assert older != text
    file.write_text(older, "utf-8")
    report.unlink()
    assert cli("report", "run", "--bound", "-q").code == 0
    older_page = report.read_text("utf-8")
    assert older_page.replace("told", "assumes") == page
    recorded = RecordedRun.from_run(Run.load("run"))
    for index in range(len(recorded.run.settings)):
        assert recorded.is_modified("gp-greedy", index)
        assert not recorded.is_modified("random", index)


def test_told_is_rejected_in_favour_of_assumes(cli: Command, tiny: str) -> None:
    for key in ("told", "gp-greedy.told"):
        override = f"{key}={{noise_variance = 0.5}}"
        message = cli("run", tiny, "--set", override, "--out", "run").fails(2)
        assert "now called 'assumes'" in message


def test_report_explains_a_missing_bound(cli: Command, tiny: str) -> None:
    cli("run", tiny, "--policies", "random", "-q", "--out", "none", "--json").json()
    message = cli("report", "none", "--bound").err
    assert "there is no bound for tiny; the report gives the reason" in message
    assert "no bound because it learns nothing" in Path("none/report.html").read_text(
        "utf-8"
    )


def _remove(name: str) -> Callable[[Path], None]:
    return lambda run: (run / name).unlink()


def _write(name: str, text: str) -> Callable[[Path], None]:
    return lambda run: (run / name).write_text(text, encoding="utf-8") and None


def _wrong_rounds(run: Path) -> None:
    spec = json.loads((run / "run.json").read_text(encoding="utf-8"))
    (run / "run.json").write_text(json.dumps({**spec, "rounds": 99}), encoding="utf-8")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_remove("run.json"), "superarm run --out"),
        (_write("run.json", "{"), "run again into a new directory"),
        (_write("run.json", "{}"), "schema"),
        (_remove("summary.json"), "summary.json"),
        (_write("summary.json", "{}"), "--resume"),
        (_write("summary.json", "[]"), "run again"),
        (
            _write("summary.json", '{"claims": [1]}'),
            "'claims' must be a list, each a table, got [1]",
        ),
        (_write("summary.json", '{"claims": [], "rows": [{}]}'), "'policy' in 'rows'"),
        (
            _write("summary.json", '{"claims": [{"text": "x", "verdict": 1}]}'),
            "run again",
        ),
        (_remove("cells/random.s0.seed00001.npz"), "--resume"),
        (
            _write("cells/random.s0.seed00001.npz", "junk"),
            "delete it and run again with --resume",
        ),
        (_wrong_rounds, r"shape (99,)"),
    ],
)
def test_a_broken_run_is_reported_with_advice(
    cli: Command, run: Path, damage: Callable[[Path], None], words: str
) -> None:
    damage(run)
    assert words in cli("report", "run").fails(1)


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where anything stands in a JSON value."""
    if place:
        yield place
    inside = dict(enumerate(value)) if isinstance(value, list) else value
    for key, item in inside.items() if isinstance(inside, dict) else ():
        yield from _places(item, (*place, key))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["run.json", "summary.json"])
def test_no_edit_of_a_run_ends_in_a_traceback(run: Path, name: str) -> None:
    """Every key is removed or replaced by values of every type: a report, or an error with advice."""
    original = json.loads((run / name).read_text(encoding="utf-8"))
    refused = []
    for place in _places(original):
        for value in (KeyError, None, "x", -3, 10**30, [1], {"a": [{}]}):
            edited = json.loads(json.dumps(original))
            parent = edited
            for key in place[:-1]:
                parent = parent[key]
            if value is KeyError:
                del parent[place[-1]]
            else:
                parent[place[-1]] = value
            (run / name).write_text(json.dumps(edited), encoding="utf-8")
            try:
                write_outputs(run, quiet=True, figures=False, bound=False)
            except SuperarmError as error:
                refused.append(str(error))
    assert len(refused) > 20
    assert all(str(run) in message for message in refused)


def test_a_directory_of_runs_points_to_them(cli: Command, run: Path) -> None:
    assert "pass one of them: run" in cli("report", ".").fails(1)


@pytest.mark.slow
def test_report_shows_how_to_reproduce_the_run(cli: Command, run: Path) -> None:
    page = run / "report.html"
    assert f"superarm run {run.parent / 'tiny.toml'} --rounds 12" in page.read_text(
        encoding="utf-8"
    )
    cli("report", "run", "-q")
    text = page.read_text(encoding="utf-8")
    assert "superarm run FILE.toml --rounds 12" in text
    assert "FILE.toml stands for the file that describes tiny." in text


def test_no_run_at_all(cli: Command, tiny: str, tmp_path: Path) -> None:
    assert "nowhere: folder not found" in cli("report", "nowhere").fails(1)
    Path("run.json").write_text("{}")
    assert "run.json is a file; pass the run's folder" in cli(
        "report", "run.json"
    ).fails(1)
    assert "is not the description of a run (no schema)" in cli("report", ".").fails(1)
    (tmp_path / "empty").mkdir()
    assert "no run.json" in cli("report", "empty").fails(1)
    assert "tiny.toml" in cli("report", "tiny.toml").fails(1)
    cli("report").fails(2)
