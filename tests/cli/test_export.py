"""``superarm export``: the journal of a bandit as files."""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from superarm.kernels import SquaredExponential
from superarm.live import Storage, create_bandit
from superarm.oracles import TopK
from superarm.policies import Exploring, IndexPolicy
from superarm.posteriors import StreamingGP
from superarm.rules import UCB, Fixed

Command = Callable[..., Any]

MENU = {"mocha": [0.1, 0.2], "latte": [0.6, 0.7], "tea": [0.9, 0.1]}
INDEX = IndexPolicy(
    posterior=StreamingGP(SquaredExponential(lengthscale=0.3), noise_variance=0.01),
    rule=UCB(schedule=Fixed(value=2.0)),
    oracle=TopK(k=1),
)
needs_parquet = pytest.mark.skipif(
    importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed"
)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A storage with three decisions of ``menu``, two of them rewarded."""
    address = f"sqlite:///{tmp_path / 'bandits.db'}"
    with Storage(address) as storage:
        policy = Exploring(policy=INDEX, epsilon=0.5)
        bandit = create_bandit("menu", spec=policy, storage=storage)
        for number in range(3):
            answer = bandit.ask(MENU, decision_id=f"d{number}")
            if number:
                bandit.tell(answer, {answer.arms[0]: 0.5 * number})
    return address


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_flat_tables(cli: Command, url: str, tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    result = cli("export", "menu", "--out", folder, "--storage", url)
    assert result.code == 0, result.err
    assert f"{folder / 'decisions.csv'}: 3 rows" in result.out
    decisions = read(folder / "decisions.csv")
    assert [row["decision"] for row in decisions] == ["d0", "d1", "d2"]
    assert [row["reward"] for row in decisions] == ["", "0.5", "1.0"]
    assert not (folder / "arms.csv").exists()


def test_features_and_json(cli: Command, url: str, tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    arguments = ["export", "menu", "--out", folder, "--storage", url]
    result = cli(*arguments, "--features", "--json")
    assert result.json()["rows"] == {
        "decisions": 3, "choices": 3, "history": 0, "arms": 3,
    }  # fmt: skip
    assert result.json()["files"]["arms"] == str(folder / "arms.csv")
    assert {row["arm"] for row in read(folder / "arms.csv")} == set(MENU)


@needs_parquet
def test_parquet(cli: Command, url: str, tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    result = cli(
        "export", "menu", "--out", folder, "--format", "parquet", "--storage", url
    )
    assert result.code == 0, result.err
    assert (folder / "decisions.parquet").read_bytes()[:4] == b"PAR1"


def test_the_layout_of_open_bandit(cli: Command, url: str, tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    result = cli(
        "export", "menu", "--out", folder, "--format", "open-bandit", "--storage", url,
        "--json",
    )  # fmt: skip
    assert result.code == 0, result.err
    tables = [read(Path(path)) for path in result.json()["files"].values()]
    assert any("propensity_score" in table[0] for table in tables)


@pytest.mark.parametrize(
    ("storage", "message"),
    [
        ("http://127.0.0.1:8642", "is a service"),
        ("sqlite:///missing.db", "does not exist"),
    ],
)
def test_what_cannot_be_exported(
    cli: Command, tmp_path: Path, storage: str, message: str
) -> None:
    result = cli("export", "menu", "--out", tmp_path / "tables", "--storage", storage)
    assert result.code != 0
    assert message in result.err
    assert not (tmp_path / "tables").exists()
    assert not Path("missing.db").exists()


def test_an_unknown_bandit_is_refused(cli: Command, url: str, tmp_path: Path) -> None:
    result = cli("export", "other", "--out", tmp_path / "tables", "--storage", url)
    assert result.code != 0
    assert "no bandit 'other'" in result.err
