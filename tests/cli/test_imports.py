"""User-defined parts: ``--import``, ``imports`` in a file, and commands that import nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from superarm.lab.simulation.executors import process_pool

Command = Callable[..., Any]

PART = """
from superarm.policies import index_policy
from superarm.core.registry import register
from superarm.rules import Greedy

@register("policy", "{name}")
def made_here(model, *, pull: float = 1.0):
    \"\"\"Greedy, under a name of its own.\"\"\"
    return index_policy(model, Greedy())
"""
EXPERIMENT = """
id = "own"
rounds = 5
seeds = 2
{imports}
[problem]
name = "landscape"
side = 4
k = 1
[policies.{name}]
"""


@pytest.fixture
def own(tmp_path: Path) -> Callable[[str, str], Path]:
    """Writes a part and an experiment that uses it into a separate folder."""

    def write(name: str, imports: str = "") -> Path:
        folder = tmp_path / "mine"
        folder.mkdir()
        (folder / f"{name.replace('-', '_')}.py").write_text(
            PART.format(name=name), encoding="utf-8"
        )
        text = EXPERIMENT.format(name=name, imports=imports)
        (folder / "own.toml").write_text(text, encoding="utf-8")
        return folder

    return write


@pytest.mark.slow
def test_a_file_on_the_command_line_in_workers_too(
    cli: Command, shell: Command, own: Any
) -> None:
    folder = own("mine-by-flag")
    flag = ("--import", "mine/mine_by_flag.py")
    refused = cli("run", folder / "own.toml", "-q").fails(2)
    assert "unknown policy 'mine-by-flag'" in refused
    assert "--import FILE.py adds your own" in refused
    assert "Greedy, under a name" in cli("list", "policy", *flag).out
    [part] = cli("show", "mine-by-flag", *flag, "--json").json()["parts"]
    assert part["parameters"][0]["name"] == "pull"
    # Workers are separate processes in which nothing is imported yet.
    done = cli(
        "run", folder / "own.toml", *flag, "--jobs", 2, "-q", "--json", "--out", "out"
    ).json()
    assert {row["policy"] for row in done["rows"]} == {"mine-by-flag"}
    # A run is data: its report imports nothing, but lists what the run imported.
    assert shell("report", "out", "--json").json()["report"]
    page = (folder.parent / "out" / "report.html").read_text(encoding="utf-8")
    assert f"--import {folder}/mine_by_flag.py" in page


def test_parts_reach_the_workers_of_a_cluster(
    cli: Command, own: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def cluster(*_: Any, **sizes: Any) -> Any:
        yield SimpleNamespace(
            get_executor=lambda: process_pool(1)
        )  # where nothing is imported yet

    stand_in = SimpleNamespace(LocalCluster=cluster, Client=cluster)
    monkeypatch.setitem(sys.modules, "distributed", stand_in)
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)
    folder = own("mine-on-cluster")
    flag = ("--import", folder / "mine_on_cluster.py", "--executor", "dask")
    done = cli("run", folder / "own.toml", *flag, "-q", "--json", "--out", "out").json()
    assert {row["policy"] for row in done["rows"]} == {"mine-on-cluster"}


@pytest.mark.slow
def test_imports_in_a_file_are_relative_to_it(cli: Command, own: Any) -> None:
    folder = own("mine-by-file", 'imports = ["mine_by_file.py"]')
    assert "policy mine-by-file" in cli("show", folder / "own.toml").out
    done = cli("run", folder / "own.toml", "-q", "--json", "--out", "out").json()
    assert {row["policy"] for row in done["rows"]} == {"mine-by-file"}


def test_names_in_a_run_are_not_imported(
    cli: Command, tiny: str, tmp_path: Path
) -> None:
    cli("run", tiny, "--jobs", 1, "-q", "--out", "run", "--json").json()
    (tmp_path / "evil.py").write_text("from pathlib import Path\nPath('ran').touch()\n")
    path = tmp_path / "run" / "run.json"
    named = {"imports": [str(tmp_path / "evil.py"), "evil"]}
    spec = json.loads(path.read_text(encoding="utf-8"))
    spec = {**spec, **named, "parameters": {**spec["parameters"], **named}}
    path.write_text(json.dumps(spec), encoding="utf-8")
    assert cli("report", "run", "--bound", "-q").code in (0, 1, 2)
    assert (tmp_path / "run" / "report.html").exists()
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_a_module_by_its_name(shell: Command, own: Any) -> None:
    folder = own("mine-by-name")
    words = ("list", "policy", "--import", "mine_by_name", "--json")
    parts = shell(*words, env={"PYTHONPATH": f"{folder}:{':'.join(sys.path)}"}).json()[
        "parts"
    ]
    assert "mine-by-name" in {part["name"] for part in parts}


@pytest.mark.slow
def test_installed_packages_join_by_an_entry_point(
    shell: Command, own: Any, tmp_path: Path
) -> None:
    folder = own("mine-by-entry")
    info = tmp_path / "mine" / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[superarm.parts]\nmine = mine_by_entry\n")
    parts = shell(
        "list", "policy", "--json", env={"PYTHONPATH": f"{folder}:{':'.join(sys.path)}"}
    )
    assert "mine-by-entry" in {part["name"] for part in parts.json()["parts"]}


@pytest.mark.slow
def test_clashing_installed_parts_are_reported_in_one_line(
    shell: Command, own: Any, tmp_path: Path
) -> None:
    folder = own("mine-twice")
    (folder / "again.py").write_text(PART.format(name="mine-twice"), encoding="utf-8")
    info = folder / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[superarm.parts]\nmine = mine_twice\n")
    words = ("list", "policy", "--import", folder / "again.py", "--json")
    result = shell(*words, env={"PYTHONPATH": f"{folder}:{':'.join(sys.path)}"})
    assert result.err.splitlines() == [
        "superarm: the installed parts 'mine_twice' are left out: they cannot be imported: "
        "policy 'mine-twice' is registered already"
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("safe", "source"),
    [((), "mine_here"), (("-P",), "mine_here"), (("-P",), "test_of_words.py")],
)  # -P: the working folder is not on the path
def test_modules_in_the_working_folder_are_found(
    own: Any, safe: tuple[str, ...], source: str
) -> None:
    folder = own("mine-here")
    (folder / "test_of_words.py").write_text("import mine_here\n", encoding="utf-8")
    words = [
        sys.executable,
        *safe,
        "-m",
        "superarm",
        "list",
        "policy",
        "--json",
        "--import",
        source,
    ]
    env = {"PYTHONPATH": ":".join(entry for entry in sys.path if entry)}
    done = subprocess.run(
        words, capture_output=True, text=True, check=True, cwd=folder, env=env
    )
    assert '"mine-here"' in done.stdout


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("nope.py", "nope.py: file not found"),
        ("no.such.module", "for a file give its path, which ends in .py"),
        ("broken.py", "broken.py cannot be imported: ZeroDivisionError"),
        ("leaves.py", "leaves.py cannot be imported: SystemExit"),
    ],
)
def test_import_failures_are_reported(
    cli: Command, tmp_path: Path, source: str, words: str
) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "leaves.py").write_text("raise SystemExit(0)\n")
    assert words in cli("list", "--import", source).fails(2)


@pytest.mark.parametrize("line", ["imports = 3", 'imports = "a.py"', "imports = [1]"])
def test_imports_are_a_list_of_names(cli: Command, own: Any, line: str) -> None:
    folder = own("mine-never", line)
    assert "imports must be a list of text, got" in cli(
        "run", folder / "own.toml"
    ).fails(2)


@pytest.mark.thorough
def test_as_a_module(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "superarm", "list", "no-such-family"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 2
    assert done.stderr.startswith("superarm: there is no family 'no-such-family'")
