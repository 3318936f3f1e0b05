"""The commands of live bandits, on files of SQLite and against a running service."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from running_service import http_client, running_service
from tampering import tamper

from superarm.cli.commands import superarm
from superarm.cli.live_commands import serve as serve_command
from superarm.cli.serving import listen
from superarm.core.errors import InputError
from superarm.core.registry import spec_of
from superarm.core.serialization import to_json
from superarm.core.tables import Encoding
from superarm.kernels import SquaredExponential
from superarm.live import BanditSpec, Storage, create_bandit, load_bandit
from superarm.live.access import DEFAULT_SCOPES, make_token
from superarm.live.journal import SCHEMA
from superarm.live.service import Limits, Settings
from superarm.oracles import TopK
from superarm.policies import IndexPolicy
from superarm.posteriors import StreamingGP
from superarm.rules import UCB, Fixed

Command = Callable[..., Any]

MENU = {"mocha": [0.1, 0.2], "latte": [0.6, 0.7], "tea": [0.9, 0.1]}
TABLE = "id,sweet,strong\nmocha,0.1,0.2\nlatte,0.6,0.7\ntea,0.9,0.1\n"
POLICY = IndexPolicy(
    posterior=StreamingGP(SquaredExponential(lengthscale=0.3), noise_variance=0.01),
    rule=UCB(schedule=Fixed(value=2.0)),
    oracle=TopK(k=2),
)
TOML = """
seed = 7
[policy]
name = "index"
[policy.posterior]
name = "streaming"
noise_variance = 0.01
kernel = { name = "squared-exponential", lengthscale = 0.3 }
[policy.rule]
name = "ucb"
schedule = { name = "fixed", value = 2.0 }
[policy.oracle]
name = "top-k"
k = 2
"""
FILES = Path(__file__).parents[1] / "live" / "files"
SCHEMA1 = FILES / "schema1.db"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a spec and arms; commands run in it."""
    spec = json.dumps(to_json(spec_of(POLICY)))
    (tmp_path / "spec.json").write_text(spec, encoding="utf-8")
    (tmp_path / "spec.toml").write_text(TOML, encoding="utf-8")
    (tmp_path / "menu.json").write_text(json.dumps(MENU), encoding="utf-8")
    (tmp_path / "menu.csv").write_text(TABLE, encoding="utf-8")
    return tmp_path


@pytest.fixture
def url(files: Path) -> str:
    """A storage with the bandit ``menu``."""
    address = f"sqlite:///{files / 'bandits.db'}"
    with Storage(address) as storage:
        create_bandit("menu", spec=POLICY, storage=storage)
    return address


@pytest.fixture(params=["storage", "service"])
def place(request: pytest.FixtureRequest, url: str) -> Iterator[str]:
    """The URL of a storage, and of a service of the same storage."""
    if request.param == "storage":
        yield url
        return
    with Storage(url) as storage, running_service(storage) as address:
        yield address


# --- ask, tell, explain --------------------------------------------------------------------


def test_ask_tell_and_explain(cli: Command, place: str) -> None:
    at = ("--storage", place)
    answer = cli("ask", "menu", "--arms", "menu.json", "--id", "d1", *at, "--json")
    decision = answer.json()
    assert decision["id"] == "d1"
    assert decision["action"] == decision["arms"]
    assert set(decision["mean"]) == set(decision["std"]) == set(decision["arms"])
    assert decision["propensity"] == 1.0
    assert decision["guarantee"] == {"alpha": 1.0, "probability": 1.0}
    first, second = decision["arms"]
    tell = ("tell", "menu", "d1", f"{first}=0.9", f"{second}=-1e-1", *at)
    assert cli(*tell, "--json").json() == {"new": True}
    assert cli(*tell, "--json").json() == {"new": False}
    assert cli(*tell).out == "Recorded before; nothing changed.\n"
    details = cli("bandits", "show", "menu", *at, "--json").json()
    assert (details["name"], details["events"], details["pending"]) == ("menu", 3, 0)
    assert details["spec"]["policy"] == to_json(spec_of(POLICY))
    cli("ask", "menu", "--arms", "menu.csv", "--id", "d2", *at, "--json").json()
    explanation = cli("explain", "menu", "d2", *at, "--json").json()
    assert explanation["decision"] == "d2"
    assert len(explanation["arms"]) == len(explanation["runner_up"]) == 2
    best_total, second_total = (
        sum(arm["index"] for arm in explanation[super_arm])
        for super_arm in ("arms", "runner_up")
    )
    assert explanation["margin"] == pytest.approx(best_total - second_total)
    teacher = explanation["arms"][0]["teachers"][0]
    assert set(teacher) == {"decision", "arm", "reward", "share"}
    assert teacher["decision"] == "d1"
    assert teacher["arm"] in (first, second)


def test_texts(cli: Command, place: str) -> None:
    at = ("--storage", place)
    answer = cli("ask", "menu", "--arms", "menu.csv", "--id", "d1", *at)
    heading, *lines = answer.out.splitlines()
    assert heading == "decision d1"
    chosen = [line.split()[0] for line in lines]
    assert len(chosen) == 2
    assert all("±" in line for line in lines)
    assert cli("tell", "menu", "d1", f"{chosen[0]}=0.9", *at).out == "Recorded.\n"
    shown = cli("bandits", "show", "menu", *at).out
    assert shown == "menu: index\n  events   3\n  pending  1\n"
    assert cli("bandits", "list", *at).out == "menu\n"
    cli("ask", "menu", "--arms", "menu.json", "--id", "d2", *at)
    reasons = cli("explain", "menu", "d2", *at).out
    assert "index" in reasons
    assert f"reward 0.9 of {chosen[0]} (d1) explains" in reasons
    chosen_part, runner_up_part = reasons.split("runner-up: ")
    assert chosen_part.count("index") == runner_up_part.count("index") == 2


def test_json_and_csv_offer_the_same_arms(cli: Command, url: str) -> None:
    """The same features in the same order, so that the numbers are equal."""
    at = ("--storage", url, "--json")
    first = cli("ask", "menu", "--arms", "menu.json", "--id", "d1", *at).json()
    again = cli("ask", "menu", "--arms", "menu.csv", "--id", "d1", *at).json()
    assert first == again


def test_named_arms_are_the_default(cli: Command, url: str) -> None:
    with Storage(url) as storage:
        load_bandit("menu", storage=storage).name_arms(MENU)
    decision = cli("ask", "menu", "--storage", url, "--json").json()
    assert set(decision["arms"]) < set(MENU)
    ids = Path("ids.json")
    ids.write_text('["tea", "latte"]', encoding="utf-8")
    decision = cli("ask", "menu", "--arms", ids, "--storage", url, "--json").json()
    assert set(decision["arms"]) == {"tea", "latte"}


def test_numbered_arms(cli: Command, place: str, files: Path) -> None:
    (files / "rows.json").write_text("[[0.1, 0.2], [0.6, 0.7]]", encoding="utf-8")
    at = ("--storage", place, "--json")
    decision = cli("ask", "menu", "--arms", "rows.json", "--id", "d1", *at).json()
    assert sorted(decision["arms"]) == [0, 1]
    assert set(decision["mean"]) == {"0", "1"}
    assert cli("tell", "menu", "d1", "0=0.5", *at).json() == {"new": True}


def test_tables_with_words_need_an_encoding(
    cli: Command, files: Path, place: str
) -> None:
    at = ("--storage", place)
    words = "code,size,kind\na,0.2,1\nb,0.9,old\n"
    (files / "words.csv").write_text(words, encoding="utf-8")
    rows = [{"size": 0.2, "kind": "1"}, {"size": 0.9, "kind": "old"}]
    spec = BanditSpec(
        policy=spec_of(POLICY),
        encoding=Encoding.of(rows, columns=["size", "kind"]),
        id_column="code",
    )
    (files / "table.json").write_text(json.dumps(spec.as_json()), encoding="utf-8")
    cli("bandits", "create", "table", "--spec", "table.json", *at, "--json").json()
    decision = cli("ask", "table", "--arms", "words.csv", *at, "--json").json()
    assert sorted(decision["arms"]) == ["a", "b"]
    words = words.replace("old", "new")
    (files / "words.csv").write_text(words, encoding="utf-8")
    assert "not among" in cli("ask", "table", "--arms", "words.csv", *at).fails(2)
    words = "id,size\na,small\n"
    (files / "words.csv").write_text(words, encoding="utf-8")
    message = cli("ask", "menu", "--arms", "words.csv", *at).fails(1)
    assert "column 'size' of arm 'a' must be a number, got 'small'" in message


def test_the_environment_names_the_storage(
    cli: Command, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "--storage" in cli("bandits", "list").fails(2)
    monkeypatch.setenv("SUPERARM_STORAGE", url)
    assert cli("bandits", "list", "--json").json() == {"bandits": ["menu"]}


def test_a_structure_is_read_from_a_file(cli: Command, url: str, files: Path) -> None:
    at = ("--arms", "menu.json", "--storage", url)
    message = cli("ask", "menu", "--structure", "none.json", *at).fails(2)
    assert "--structure none.json: file not found" in message
    (files / "structure.json").write_text('{"$record": "nothing"}', encoding="utf-8")
    message = cli("ask", "menu", "--structure", "structure.json", *at).fails(1)
    assert "structure.json" in message
    (files / "structure.json").write_text("null", encoding="utf-8")
    cli("ask", "menu", "--structure", "structure.json", *at, "--json").json()


# --- bad input of ask, tell, explain -------------------------------------------------------

BAD_TABLES = {
    "": "one column 'id'",
    "name,sweet\nmocha,1\n": "one column 'id'",
    "id,id\nmocha,1\n": "one column 'id'",
    "id,sweet\nmocha,1\nmocha,2\n": "two rows have the id 'mocha'",
    "id,sweet\nmocha\n": "has 1 cells, but the header has 2 columns",
    "id,sweet\nmocha,1,2\n": "has 3 cells, but the header has 2 columns",
    'id,sweet\n"mocha,1\n': "cannot be read as a csv table",
    "id,sweet\nmocha,\n": "must be a number, got ''",
}


@pytest.mark.parametrize(("table", "reason"), BAD_TABLES.items())
def test_bad_tables(
    cli: Command, files: Path, url: str, table: str, reason: str
) -> None:
    (files / "bad.csv").write_text(table, encoding="utf-8")
    message = cli("ask", "menu", "--arms", "bad.csv", "--storage", url).fails(1)
    assert "bad.csv" in message
    assert reason in message


BAD_ARMS = {
    "{}": "empty",
    "{": "bad.json",
    '{"mocha": [0.1, NaN]}': "nan",
    '{"mocha": [0.1], "tea": [0.1, 0.2]}': "",
    '["mocha"]': "no named arms",
}


@pytest.mark.parametrize(("text", "reason"), BAD_ARMS.items())
def test_bad_arms(
    cli: Command, files: Path, place: str, text: str, reason: str
) -> None:
    (files / "bad.json").write_text(text, encoding="utf-8")
    result = cli("ask", "menu", "--arms", "bad.json", "--storage", place)
    assert reason in result.fails(1 if text == "{" else 2)


def test_arms_of_another_kind_of_file(cli: Command, files: Path, url: str) -> None:
    (files / "menu.txt").write_text(TABLE, encoding="utf-8")
    at = ("--storage", url)
    message = cli("ask", "menu", "--arms", "menu.txt", *at).fails(2)
    assert "pass a .json or .csv file" in message
    message = cli("ask", "menu", "--arms", "none.csv", *at).fails(2)
    assert "--arms none.csv: file not found" in message
    (files / "latin.csv").write_bytes("id,süß\n".encode("latin-1"))
    (files / "folder.csv").mkdir()
    assert "folder.csv is a folder" in cli(
        "ask", "menu", "--arms", "folder.csv", *at
    ).fails(1)
    assert "latin.csv" in cli("ask", "menu", "--arms", "latin.csv", *at).fails(1)


def test_times_and_ids(cli: Command, place: str) -> None:
    ask = ("ask", "menu", "--arms", "menu.json", "--storage", place)
    assert "time must be" in cli(*ask, "--time", "nan").fails(2)
    assert "'--time'" in cli(*ask, "--time", "noon").fails(2)
    assert "1" in cli(*ask, "--id", "").fails(2)
    assert cli(*ask, "--time", "8.5", "--id", "d1", "--json").json()["id"] == "d1"


BAD_REWARDS = {
    "latte": "must be ARM=REWARD",
    "=1": "must be ARM=REWARD",
    "latte=": "must be a number, got ''",
    "latte=much": "must be a number, got 'much'",
    "latte=nan": "rewards",
    "water=1": "water",
}


@pytest.mark.parametrize(("word", "reason"), BAD_REWARDS.items())
def test_bad_rewards(cli: Command, place: str, word: str, reason: str) -> None:
    at = ("--storage", place)
    cli("ask", "menu", "--arms", "menu.json", "--id", "d1", *at)
    assert reason in cli("tell", "menu", "d1", word, *at).fails(2)
    assert cli("bandits", "show", "menu", *at, "--json").json()["events"] == 2


def test_an_arm_has_one_reward(cli: Command, url: str) -> None:
    twice = ("tell", "menu", "d1", "tea=1", "tea=1", "--storage", url)
    assert "'tea' has two rewards" in cli(*twice).fails(2)
    assert "ARM=REWARD" in cli("tell", "menu", "d1", "--storage", url).fails(2)


def test_other_rewards_or_arms_under_the_same_id_are_a_conflict(
    cli: Command, place: str
) -> None:
    at = ("--storage", place)
    ask = ("ask", "menu", "--id", "d1", *at)
    decision = cli(*ask, "--arms", "menu.json", "--json").json()
    arm = decision["arms"][0]
    cli("tell", "menu", "d1", f"{arm}=1", "--id", "o1", *at, "--json").json()
    message = cli("tell", "menu", "d1", f"{arm}=2", "--id", "o1", *at).fails(3)
    assert "already recorded" in message
    Path("other.json").write_text('{"tea": [0, 0], "cocoa": [1, 1]}', encoding="utf-8")
    assert "different arms" in cli(*ask, "--arms", "other.json").fails(3)


def test_bandits_and_decisions_that_do_not_exist(cli: Command, place: str) -> None:
    at = ("--storage", place)
    for words in (
        ("ask", "other"),
        ("tell", "other", "d1", "tea=1"),
        ("explain", "other", "d1"),
        ("bandits", "show", "other"),
    ):
        assert "no bandit 'other'" in cli(*words, *at).fails(2)
    for words in (("tell", "menu", "d1", "tea=1"), ("explain", "menu", "d1")):
        assert "no decision 'd1'" in cli(*words, *at).fails(2)


# --- bandits -------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", ["spec.json", "spec.toml"])
def test_create_and_list(cli: Command, files: Path, spec: str) -> None:
    at = ("--storage", "sqlite:///new.db")
    create = ("bandits", "create", "lunch", "--spec", spec, *at)
    assert cli(*create, "--json").json() == {"name": "lunch"}
    assert cli(*create).out == "Created lunch.\n"  # the same again is harmless
    other = json.loads((files / "spec.json").read_text())
    other["oracle"]["k"] = 1
    (files / "other.json").write_text(json.dumps(other))
    create_other = ("bandits", "create", "lunch", "--spec", "other.json", *at)
    assert "already a bandit named 'lunch'" in cli(*create_other).fails(3)
    created = cli("bandits", "create", "dinner", "--spec", spec, *at)
    assert created.out == "Created dinner.\n"
    names = cli("bandits", "list", *at, "--json").json()
    assert names == {"bandits": ["dinner", "lunch"]}
    details = cli("bandits", "show", "lunch", *at, "--json").json()
    assert details["spec"]["seed"] == (7 if spec == "spec.toml" else 0)
    assert details["spec"]["policy"]["oracle"]["k"] == 2


def test_a_name_stands_for_one_spec(cli: Command, place: str) -> None:
    create = ("bandits", "create", "lunch", "--storage", place)
    created = cli(*create, "--spec", "spec.toml", "--json").json()
    assert created == {"name": "lunch"}
    assert "already" in cli(*create, "--spec", "spec.json").fails(3)
    names = cli("bandits", "list", "--storage", place, "--json").json()
    assert names == {"bandits": ["lunch", "menu"]}


BAD_SPECS = {
    "[]": 2,
    "{": 1,
    '{"name": "nothing"}': 2,
    '{"policy": {"name": "index"}, "colour": 1}': 2,
    '{"policy": {"name": "index"}}': 2,
}


@pytest.mark.parametrize(("text", "code"), BAD_SPECS.items())
def test_bad_specs(cli: Command, files: Path, place: str, text: str, code: int) -> None:
    (files / "bad.json").write_text(text, encoding="utf-8")
    create = ("bandits", "create", "lunch", "--spec", "bad.json", "--storage", place)
    cli(*create).fails(code)
    names = cli("bandits", "list", "--storage", place, "--json").json()
    assert names == {"bandits": ["menu"]}


def test_nothing_is_created_for_a_spec_that_is_missing(
    cli: Command, files: Path
) -> None:
    at = ("--storage", "sqlite:///new.db")
    message = cli("bandits", "create", "lunch", "--spec", "none.json", *at).fails(2)
    assert "--spec none.json: file not found" in message
    assert not (files / "new.db").exists()
    bad_name = ("bandits", "create", "two words", "--spec", "spec.json", *at)
    assert "the name of a bandit" in cli(*bad_name).fails(2)


def test_an_empty_storage_has_no_bandits(cli: Command, files: Path) -> None:
    Storage(f"sqlite:///{files / 'new.db'}").close()
    listed = cli("bandits", "list", "--storage", "sqlite:///new.db")
    assert listed.out == "There are no bandits.\n"


def test_own_parts_are_imported(cli: Command, files: Path) -> None:
    part = (
        "from superarm.core.registry import register\n"
        "from superarm.oracles import TopK\n"
        '@register("oracle", "two-at-most")\n'
        "def two_at_most():\n"
        '    """The two best arms."""\n'
        "    return TopK(k=2)\n"
    )
    (files / "own_oracle.py").write_text(part, encoding="utf-8")
    own = TOML.replace('"top-k"\nk = 2', '"two-at-most"')
    (files / "own.toml").write_text(own, encoding="utf-8")
    create = ("bandits", "create", "own", "--spec", "own.toml")
    at = ("--storage", "sqlite:///new.db")
    assert "two-at-most" in cli(*create, *at).fails(2)
    flag = ("--import", "own_oracle.py")
    cli(*create, *at, *flag, "--json").json()
    decision = cli("ask", "own", "--arms", "menu.csv", *at, *flag, "--json").json()
    assert len(decision["arms"]) == 2


# --- storages ------------------------------------------------------------------------------

READING = [
    ("bandits", "list", "--storage"),
    ("bandits", "show", "menu", "--storage"),
    ("ask", "menu", "--storage"),
    ("tell", "menu", "d1", "tea=1", "--storage"),
    ("explain", "menu", "d1", "--storage"),
    ("replay", "menu", "--storage"),
    ("token", "list", "--storage"),
    ("token", "remove", "mine", "--storage"),
    ("storage", "check"),
    ("storage", "upgrade"),
]
IDS = [" ".join(words[:2]) for words in READING]


@pytest.mark.parametrize("words", READING, ids=IDS)
def test_storages_that_cannot_be_used(
    cli: Command, words: tuple[str, ...], files: Path, url: str
) -> None:
    assert "none.db does not exist" in cli(*words, "sqlite:///none.db").fails(2)
    assert not (files / "none.db").exists()
    assert "storage must be a URL" in cli(*words, "bandits.db").fails(2)
    foreign = sqlite3.connect(files / "foreign.db")
    foreign.execute("CREATE TABLE notes (text)")
    foreign.close()
    message = cli(*words, "sqlite:///foreign.db").fails(1)
    assert "a database of another program" in message
    (files / "text.db").write_text("no database\n" * 100, encoding="utf-8")
    assert "not a database" in cli(*words, "sqlite:///text.db").fails(1)
    with Storage(url):
        assert "another process uses" in cli(*words, url).fails(3)


@pytest.mark.parametrize("words", READING, ids=IDS)
def test_an_older_schema(cli: Command, words: tuple[str, ...], files: Path) -> None:
    shutil.copy(SCHEMA1, files / "old.db")
    result = cli(*words, "sqlite:///old.db")
    if words == ("storage", "upgrade"):
        assert result.out == f"The storage has schema {SCHEMA}.\n"
        assert cli(*words, "sqlite:///old.db", "--json").json() == {"schema": SCHEMA}
    else:
        assert "superarm storage upgrade sqlite:///old.db" in result.fails(1)


def test_create_and_serve_refuse_an_older_schema(cli: Command, files: Path) -> None:
    shutil.copy(SCHEMA1, files / "old.db")
    at = ("--storage", "sqlite:///old.db")
    for words in (
        ("serve", "--port", "0"),
        ("bandits", "create", "lunch", "--spec", "spec.json"),
        ("token", "create", "mine"),
        ("storage", "backup", "sqlite:///old.db", "copy.db"),
    ):
        storage = () if words[0] == "storage" else at
        assert "superarm storage upgrade" in cli(*words, *storage).fails(1)
    assert not (files / "copy.db").exists()


@pytest.mark.parametrize("schema", range(1, SCHEMA))
def test_an_upgraded_storage_is_verified(
    cli: Command, files: Path, schema: int
) -> None:
    shutil.copy(FILES / f"schema{schema}.db", files / "old.db")
    cli("storage", "upgrade", "sqlite:///old.db", "--json").json()
    assert cli("storage", "check", "sqlite:///old.db").out == "No damage found.\n"
    verify = ("replay", "menu", "--verify", "--storage", "sqlite:///old.db", "-q")
    report = cli(*verify, "--json").json()
    assert report == {"events": 15, "decisions": 7, "differences": [], "same": True}


def test_check(cli: Command, url: str) -> None:
    assert cli("storage", "check", url, "--json").json() == {
        "sound": True,
        "faults": [],
    }
    tamper(url, "DELETE FROM events")
    broken = cli("storage", "check", url)
    assert broken.code == 1
    assert broken.out == "bandit 1: 'menu' has no events\n"
    report = cli("storage", "check", url, "--json")
    assert report.code == 1
    faults = ["bandit 1: 'menu' has no events"]
    assert json.loads(report.out) == {"sound": False, "faults": faults}


def test_backup(cli: Command, url: str, files: Path) -> None:
    copied = cli("storage", "backup", url, "copy.db", "--json").json()
    assert copied == {"file": "copy.db"}
    names = cli("bandits", "list", "--storage", "sqlite:///copy.db", "--json").json()
    assert names == {"bandits": ["menu"]}
    assert "already exists" in cli("storage", "backup", url, "copy.db").fails(3)
    message = cli("storage", "backup", url, "none/copy.db").fails(2)
    assert "none is not a folder" in message
    missing = cli("storage", "backup", "sqlite:///none.db", "c.db").fails(2)
    assert "does not exist" in missing
    assert cli("storage", "backup", url, "c.db").out == "Copied to c.db.\n"


# --- replay --------------------------------------------------------------------------------


def play(url: str) -> None:
    """Three decisions with rewards."""
    with Storage(url) as storage:
        bandit = load_bandit("menu", storage=storage)
        for number in range(3):
            answer = bandit.ask(MENU, decision_id=f"d{number}")
            bandit.tell(answer, dict.fromkeys(answer.arms, 0.5 * number))


def test_replay(cli: Command, url: str) -> None:
    play(url)
    replay = ("replay", "menu", "--storage", url)
    folded = cli(*replay)
    assert folded.out == "Replayed 7 events, 3 decisions among them.\n"
    assert "7/7 events" in folded.err
    verified = cli(*replay, "--verify", "--quiet")
    assert verified.out == "Repeated 3 decisions; all agree with the journal.\n"
    assert verified.err == ""
    report = cli(*replay, "--quiet", "--json").json()
    assert report == {"events": 7, "decisions": 3, "differences": [], "same": None}


def test_replay_finds_decisions_that_differ(cli: Command, url: str) -> None:
    play(url)
    tamper(
        url,
        "UPDATE events SET body = replace(body, '0.5', '0.9') WHERE kind = 'observed'",
    )
    replay = ("replay", "menu", "--storage", url, "--quiet")
    assert cli(*replay).code == 0
    verified = cli(*replay, "--verify")
    assert verified.code == 1
    assert "event" in verified.out
    report = cli(*replay, "--verify", "--json")
    assert report.code == 1
    assert json.loads(report.out)["same"] is False
    assert json.loads(report.out)["differences"] == verified.out.splitlines()


def test_replay_of_what_is_not_there(cli: Command, url: str) -> None:
    assert "no bandit 'other'" in cli("replay", "other", "--storage", url).fails(2)
    message = cli("replay", "menu", "--storage", "http://127.0.0.1:9").fails(2)
    assert "storage must be a URL" in message
    assert "pass the storage of that service" in message


# --- tenants -------------------------------------------------------------------------------


def test_bandits_of_a_tenant(cli: Command, files: Path, url: str) -> None:
    acme = ("--storage", url, "--tenant", "acme", "--json")
    create = ("bandits", "create", "drinks", "--spec", "spec.toml", *acme)
    assert cli(*create).json() == {"name": "drinks"}
    assert cli("bandits", "list", *acme).json() == {"bandits": ["drinks"]}
    everybody = cli("bandits", "list", "--storage", url, "--json").json()
    assert everybody == {"bandits": ["menu"]}
    asked = ("ask", "drinks", "--arms", "menu.json", "--id", "d1", *acme)
    chosen = cli(*asked).json()["arms"][0]
    assert cli("tell", "drinks", "d1", f"{chosen}=1", *acme).json() == {"new": True}
    assert cli("explain", "drinks", "d1", *acme).json()["decision"] == "d1"
    assert cli("bandits", "show", "drinks", *acme).json()["events"] == 3
    assert cli("replay", "drinks", "--verify", *acme).json()["same"] is True
    written = cli("export", "drinks", "--out", "tables", *acme).json()
    assert written["rows"]["decisions"] == 1
    with Storage(url) as storage:
        assert load_bandit("drinks", storage=storage, tenant="acme").seq == 3


def test_a_tenant_that_has_no_such_bandit(cli: Command, url: str) -> None:
    acme = ("--storage", url, "--tenant", "acme")
    commands = (
        ("bandits", "show", "menu"),
        ("ask", "menu", "--arms", "menu.json"),
        ("tell", "menu", "d1", "tea=1"),
        ("explain", "menu", "d1"),
        ("replay", "menu"),
        ("export", "menu", "--out", "tables"),
    )
    for command in commands:
        assert "tenant 'acme' has no bandit 'menu'" in cli(*command, *acme).fails(2)
    words = ("--storage", url, "--tenant", "two words")
    assert "the name of a tenant" in cli("bandits", "list", *words).fails(2)


def test_a_service_chooses_the_tenant_by_token(cli: Command, url: str) -> None:
    with Storage(url) as storage, running_service(storage) as address:
        at = ("--storage", address, "--tenant", "acme")
        assert "--tenant is for storages" in cli("bandits", "list", *at).fails(2)


# --- tokens --------------------------------------------------------------------------------


def test_tokens(cli: Command, files: Path) -> None:
    at = ("--storage", "sqlite:///new.db")
    create = ("token", "create", "mine", *at)
    created = cli(*create, "--json").json()
    assert created["token"].startswith("sa_")
    assert (created["name"], created["tenant"]) == ("mine", "")
    assert "already" in cli(*create).fails(3)
    scopes = ("--scope", "read", "--scope", "admin")
    other = cli("token", "create", "mine", "--tenant", "acme", *scopes, *at)
    secret = other.out.strip()
    assert secret.startswith("sa_")
    tokens = cli("token", "list", *at, "--json").json()["tokens"]
    assert tokens == [
        {"tenant": "", "name": "mine", "scopes": sorted(DEFAULT_SCOPES)},
        {"tenant": "acme", "name": "mine", "scopes": ["admin", "read"]},
    ]
    listed = cli("token", "list", *at).out
    assert listed == "-  mine  ask read tell\nacme  mine  admin read\n"
    assert secret.encode() not in (files / "new.db").read_bytes()
    removed = cli("token", "remove", "mine", *at, "--json").json()
    assert removed == {"removed": "mine"}
    message = cli("token", "remove", "mine", *at).fails(2)
    assert "no token 'mine' without a tenant" in message
    gone = cli("token", "remove", "mine", "--tenant", "acme", *at)
    assert gone.out == "Removed mine.\n"
    assert cli("token", "list", *at).out == "There are no tokens.\n"


def test_bad_tokens(cli: Command, files: Path) -> None:
    at = ("--storage", "sqlite:///new.db")
    message = cli("token", "create", "mine", "--scope", "write", *at).fails(2)
    assert "read, ask, tell, admin" in message
    assert "the name of a token" in cli("token", "create", "my own", *at).fails(2)
    tenant = ("--tenant", "two words")
    assert "a tenant" in cli("token", "create", "mine", *tenant, *at).fails(2)
    message = cli("token", "remove", "mine", "--tenant", "acme", *at).fails(2)
    assert "no token 'mine' of tenant 'acme'" in message


# --- a service that runs -------------------------------------------------------------------


@contextmanager
def serving(
    program: list[str], folder: Path, *options: str
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`superarm serve` on a free port, until the block ends: its address and its process."""
    service = subprocess.Popen(
        [*program, "serve", "--port", "0", *options],
        cwd=folder,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert service.stdout is not None
        line = service.stdout.readline()
        assert line, service.communicate()[1]
        yield line, service
    finally:
        if service.poll() is None:
            service.kill()
        service.communicate()


def test_serve(cli: Command, files: Path, program: list[str]) -> None:
    at = ("--storage", "sqlite:///bandits.db")
    with serving(program, files, *at, "--json") as (line, service):
        address = json.loads(line)["address"]
        assert address.startswith("http://127.0.0.1:")
        remote = ("--storage", address, "--json")
        create = ("bandits", "create", "menu", "--spec", "spec.toml", *remote)
        assert cli(*create).json() == {"name": "menu"}
        ask = ("ask", "menu", "--arms", "menu.csv", "--id", "d1")
        decision = cli(*ask, *remote).json()
        assert "another process uses" in cli("bandits", "list", *at).fails(3)
        stop(service, signal.SIGTERM)
    assert not (files / "bandits.db-wal").exists()  # the storage was closed
    assert cli(*ask, *at, "--json").json() == decision
    assert "does not answer" in cli("bandits", "list", "--storage", address).fails(1)


def test_serve_limits_the_head_of_a_request(files: Path, program: list[str]) -> None:
    at = ("--storage", "sqlite:///bandits.db")
    with serving(program, files, *at, "--json") as (line, _):
        address = json.loads(line)["address"].removeprefix("http://")
        host, _, port = address.partition(":")
        with socket.create_connection((host, int(port)), timeout=60.0) as client:
            sent = 0
            with suppress(ConnectionError):  # the service closes the connection
                client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
                while sent < 64 * 2**20:
                    sent += client.send(b"X: " + b"x" * 65_536 + b"\r\n")
        assert sent < 64 * 2**20
        with http_client(f"http://{address}") as http:
            health = http.get("/healthz")
        assert health.status_code == 200


@pytest.mark.thorough
def test_serve_names_storage_and_address(
    cli: Command, files: Path, program: list[str]
) -> None:
    at = ("--storage", "sqlite:///bandits.db")
    with serving(program, files, *at) as (line, service):
        assert line.startswith("Serving sqlite:///bandits.db at http://127.")
        assert line.endswith("; press Ctrl-C to stop.\n")
        address = line.split(" at ")[1].split(";")[0]
        listed = cli("bandits", "list", "--storage", address, "--json")
        assert listed.json() == {"bandits": []}
        stop(service, signal.SIGINT)


def test_answers_do_not_wait_for_acknowledgements() -> None:
    # Without TCP_NODELAY, each answer on a connection that is kept open takes 40 ms.
    async def accept() -> int:
        accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def note(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connection = writer.get_extra_info("socket")
            option = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            accepted.set_result(option)
            writer.close()

        listener = listen("127.0.0.1", 0)
        async with await asyncio.start_server(note, sock=listener):
            _, writer = await asyncio.open_connection(*listener.getsockname())
            option = await accepted
            writer.close()
            await writer.wait_closed()
        return option

    assert asyncio.run(accept())


def stop(service: subprocess.Popen[str], number: signal.Signals) -> None:
    """Send a signal, on which the service ends in silence and with 0."""
    service.send_signal(number)
    out, err = service.communicate(timeout=60)
    assert (service.returncode, out, err) == (0, "", "")


def test_serve_needs_tokens_beyond_this_machine(cli: Command, url: str) -> None:
    serve = ("serve", "--storage", url, "--host", "0.0.0.0", "--port", "0")
    assert "superarm token create" in cli(*serve).fails(2)


def test_serve_on_an_address_that_is_taken(cli: Command, url: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        message = cli("serve", "--storage", url, "--port", port).fails(2)
    assert f"cannot listen on 127.0.0.1 port {port}" in message
    assert "--port" in cli("serve", "--storage", url, "--port", "70000").fails(2)
    for option in (
        "--max-body",
        "--max-arms",
        "--max-dimension",
        "--max-numbers",
        "--max-bandits",
        "--max-tenant-bandits",
        "--max-tenant-threads",
        "--max-streams",
        "--max-tenant-streams",
    ):
        assert option in cli("serve", "--storage", url, option, "0").fails(2)
    assert "--rate" in cli("serve", "--storage", url, "--rate", "0").fails(2)
    rate = cli("serve", "--storage", url, "--rate", "nan").fails(2)
    assert "requests_per_second must be" in rate


def test_serve_has_the_defaults_of_the_library(
    cli: Command, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[Settings] = []

    def note_settings(storage: Storage, settings: Settings) -> None:
        used.append(settings)
        raise InputError("noted")

    monkeypatch.setattr("superarm.live.service.create_app", note_settings)
    assert "noted" in cli("serve", "--storage", url, "--port", "0").fails(2)
    (settings,) = used
    assert settings.limits == Limits()
    assert settings.host == Settings().host
    assert settings.hosts == Settings().hosts
    assert settings.open_metrics == Settings().open_metrics
    (port,) = (option for option in serve_command.params if option.name == "port")
    assert port.default == Settings().port


@pytest.mark.parametrize("module", ["uvicorn", "fastapi", "prometheus_client"])
def test_serve_without_its_extra(
    cli: Command, url: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    message = cli("serve", "--storage", url, "--port", "0").fails(1)
    assert f"{module} is not installed; run: pip install" in message


def test_a_service_needs_httpx_and_a_storage_does_not(
    cli: Command, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    message = cli("bandits", "list", "--storage", "http://127.0.0.1:9").fails(1)
    assert "httpx is not installed; run: pip install" in message
    assert cli("bandits", "list", "--storage", url).out == "menu\n"


def test_serve_needs_a_storage(cli: Command, url: str) -> None:
    assert "--storage" in cli("serve").fails(2)
    assert "storage must be a URL" in cli("serve", "--storage", "bandits.db").fails(2)
    with Storage(url):
        message = cli("serve", "--storage", url, "--port", "0").fails(3)
        assert "another process uses" in message


def test_a_service_with_tokens(
    cli: Command, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Storage(url) as storage:
        admin, row = make_token("acme", "admin", ["read", "ask", "tell", "admin"])
        storage.journal.add_token(row)
        reader, row = make_token("acme", "reader", ["read"])
        storage.journal.add_token(row)
        with running_service(storage) as address:
            at = ("--storage", address)
            assert "401" in cli("bandits", "list", *at).fails(1)
            bad = ("--token", "schlüssel")
            assert "token must be" in cli("bandits", "list", *at, *bad).fails(2)
            create = ("bandits", "create", "lunch", "--spec", "spec.json", *at)
            assert "403" in cli(*create, "--token", reader).fails(1)
            cli(*create, "--token", admin, "--json").json()
            monkeypatch.setenv("SUPERARM_TOKEN", reader)
            names = cli("bandits", "list", *at, "--json").json()
            assert names == {"bandits": ["lunch"]}  # not those of others
            assert "no bandit 'menu'" in cli("bandits", "show", "menu", *at).fails(2)


@pytest.mark.thorough
def test_limits_reach_the_service(
    cli: Command, files: Path, url: str, program: list[str]
) -> None:
    options = ("--storage", url, "--json", "--max-arms", "2", "--max-dimension", "2")
    with serving(program, files, *options) as (line, _):
        at = ("--storage", json.loads(line)["address"])
        message = cli("ask", "menu", "--arms", "menu.json", *at).fails(1)
        assert "413" in message
        (files / "wide.json").write_text('{"tea": [1, 2, 3]}', encoding="utf-8")
        assert "413" in cli("ask", "menu", "--arms", "wide.json", *at).fails(1)


def test_every_live_command_is_tested_here() -> None:
    """A command that is added to these groups needs a case above."""
    text = Path(__file__).read_text(encoding="utf-8")
    for group in ("bandits", "token", "storage"):
        for name in superarm.commands[group].commands:  # type: ignore[attr-defined]
            assert f'"{group}", "{name}"' in text
