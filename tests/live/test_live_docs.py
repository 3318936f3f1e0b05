"""The documentation of live bandits, run as a reader would: Python, the service, curl."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running_service import running_service

from superarm.live import Storage, load_bandit

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "live.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:8642"


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.fixture
def namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names of a program in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return {"__name__": "reader"}


@pytest.fixture
def address(namespace: dict[str, Any]) -> Iterator[str]:
    """A service whose storage is the one of the page's first program."""
    exec(blocks(PAGE, "python")[0], namespace)
    storage = namespace["bandit"].storage
    with running_service(storage) as url:
        yield url
    storage.close()


def test_the_readmes_ten_lines(
    namespace: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    programs = blocks(README, "python")
    for program in programs:
        exec(program, namespace)
    lines = [line for line in programs[-1].splitlines() if line]
    assert len(lines) <= 10
    assert "now expects" in capsys.readouterr().out
    bandit = namespace["bandit"]
    assert bandit.pending == []
    assert bandit.verify().same
    bandit.storage.close()


def test_the_readmes_ten_lines_against_the_service(
    address: str, namespace: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the lines change that open the bandit."""
    program = blocks(README, "python")[-1]
    program = program.replace("sa.create_bandit", f'Client("{address}").create_bandit')
    program = program.replace("sa.load_bandit", f'Client("{address}").load_bandit')
    program = program.replace(', storage="sqlite:///bandits.db"', "")
    assert "sqlite" not in program
    exec("from superarm.client import Client", namespace)
    exec(program, namespace)
    assert "now expects" in capsys.readouterr().out
    assert namespace["bandit"].pending == []


def test_the_pages_client(address: str, namespace: dict[str, Any]) -> None:
    exec(blocks(PAGE, "python")[1].replace(ADDRESS, address), namespace)
    remote = namespace["bandit"]
    assert remote.decision("monday").status == "rewarded"
    assert remote.decision("tuesday").status == "partial"


@pytest.mark.slow
def test_the_pages_challenger_here_and_at_the_service(
    address: str, namespace: dict[str, Any]
) -> None:
    program = blocks(PAGE, "python")[2]
    exec(program, namespace)
    own = namespace["report"]
    assert own.rewarded == 20
    exec(blocks(PAGE, "python")[1].replace(ADDRESS, address), namespace)
    exec(program, namespace)
    assert namespace["report"].rewarded == 20
    assert namespace["bandit"].spec.policy["rule"]["name"] == "greedy"


def test_the_pages_way_from_personalizer(
    address: str, namespace: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    programs = blocks(PAGE, "python")
    for place in (1, 3, 4, 5, 6):
        exec(programs[place].replace(ADDRESS, address), namespace)
    learned = namespace["news"].observe(
        {"sports": namespace["row"]},
        rewards={"sports": 1.0},
        observation_id="visit-0",
    )
    assert not learned  # the log was learned once
    assert namespace["ranked"]["eventId"] == "visit-1"
    assert namespace["news"].decision("visit-1").status == "rewarded"
    assert namespace["shop"].spec.policy["name"] == "exploring"
    assert "sports" in capsys.readouterr().out


def test_the_pages_curl(address: str, namespace: dict[str, Any]) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    (text,) = [block for block in blocks(PAGE, "sh") if block.startswith("curl")]
    commands = re.split(r"\n(?=curl)", text.replace("\\\n", " ").strip())
    answers = []
    for command in commands:
        arguments = shlex.split(command.replace(ADDRESS, address))[1:]
        if "--json" in arguments:  # not in curl before 7.82
            place = arguments.index("--json")
            header = "Content-Type: application/json"
            arguments[place : place + 1] = ["--header", header, "--data"]
        finished = subprocess.run(
            [curl, "--silent", "--show-error", "--noproxy", "*", *arguments],
            capture_output=True,
            timeout=60,
            check=True,
        )
        answers.append(json.loads(finished.stdout))
    decision, report = answers
    assert decision["id"] == "friday"
    assert report == {"new": True}
    storage: Storage = namespace["bandit"].storage
    assert load_bandit("menu", storage=storage).decision("friday").awaiting == ["tea"]
