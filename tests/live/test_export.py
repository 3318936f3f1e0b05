"""The journal as tables: everything that was asked and told, in CSV and in Parquet."""

from __future__ import annotations

import csv
import importlib.util
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from menu_policy import menu_policy

from superarm.core.errors import ConflictError, InputError, MissingExtraError
from superarm.core.registry import spec_of
from superarm.core.tables import Encoding
from superarm.live import Bandit, BanditSpec, Storage, create_bandit
from superarm.live.journal import StorageError
from superarm.oracles import TopK
from superarm.policies import Exploring, ScorePolicy, Uniform
from superarm.rules import Thompson
from superarm.testing import raises

MENU = {"a": [0.1, 0.2, 1.0], "b": [0.6, 0.7, 1.0], "c,\n": [0.9, 0.1, 1.0]}
needs_parquet = pytest.mark.skipif(
    importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed"
)
FORMATS = ["csv", pytest.param("parquet", marks=needs_parquet)]


@pytest.fixture
def bandit(storage: Storage) -> Bandit:
    policy = Exploring(policy=menu_policy(), epsilon=0.5)
    return create_bandit("menu", spec=policy, storage=storage)


def read(path: str) -> list[dict[str, Any]]:
    """The rows of a file; values of CSV are text, and empty where they are missing."""
    if path.endswith(".csv"):
        with open(path, encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


def as_number(value: Any) -> float | None:
    return None if value in ("", None) else float(value)


def play(bandit: Bandit) -> list[Any]:
    """Two decisions with rewards, one with half of them, one abandoned, one pending; and history."""
    answers = [bandit.ask(MENU, time=float(number)) for number in range(5)]
    for number in (0, 1):
        rewards = dict.fromkeys(answers[number].arms, 0.1 + number / 3)
        noise = dict.fromkeys(answers[number].arms, 0.02)
        bandit.tell(answers[number], rewards, noise_variance=noise)
    bandit.tell(answers[2], {answers[2].arms[1]: -2.5})
    bandit.abandon(answers[3])
    bandit.observe(MENU, {"a": 0.25, "b": 0.75}, time=9.0)
    return answers


@pytest.mark.parametrize("file_format", FORMATS)
def test_flat_tables_contain_everything(
    bandit: Bandit, file_format: Any, tmp_path: Path
) -> None:
    answers = play(bandit)
    export = bandit.export(tmp_path / "out", file_format=file_format, features=True)
    decisions = read(export.files["decisions"])
    choices = read(export.files["choices"])
    history = read(export.files["history"])
    arms = read(export.files["arms"])
    assert export.rows == {"decisions": 5, "choices": 10, "history": 2, "arms": 3}

    assert [row["decision"] for row in decisions] == [answer.id for answer in answers]
    statuses = [row["status"] for row in decisions]
    assert statuses == ["rewarded", "rewarded", "partial", "abandoned", "pending"]
    assert [int(row["arms_rewarded"]) for row in decisions] == [2, 2, 1, 0, 0]
    assert [int(row["step"]) for row in decisions] == [1, 2, 3, 4, 5]
    for number, (row, answer) in enumerate(zip(decisions, answers, strict=True)):
        assert json.loads(row["action"]) == answer.arms
        assert as_number(row["propensity"]) == answer.propensity
        assert as_number(row["offer_time"]) == number
        assert int(row["arms_on_offer"]) == 3
        assert int(row["arms_chosen"]) == 2
    totals = [as_number(row["reward"]) for row in decisions]
    assert totals == [0.1 + 0.1, (0.1 + 1 / 3) * 2, None, None, None]

    for number, answer in enumerate(answers):
        rows = choices[2 * number : 2 * number + 2]
        assert [row["arm"] for row in rows] == answer.arms
        assert [int(row["place"]) for row in rows] == [0, 1]
        for row in rows:
            assert row["decision"] == answer.id
            arm = row["arm"]
            # To the bit: text of a float is read back exactly.
            assert as_number(row["mean"]) == answer.mean[arm]
            assert as_number(row["std"]) == answer.std[arm]
            assert int(row["position"]) == list(MENU).index(arm)
    assert [as_number(row["reward"]) for row in choices[4:6]] == [None, -2.5]
    assert as_number(choices[0]["noise_variance"]) == 0.02
    assert as_number(choices[5]["noise_variance"]) is None
    assert as_number(choices[5]["observed_at"]) >= as_number(decisions[2]["time"])  # type: ignore[operator]

    assert [row["arm"] for row in history] == ["a", "b"]
    assert [as_number(row["reward"]) for row in history] == [0.25, 0.75]
    assert {row["offer"] for row in arms} == {row["offer"] for row in decisions}
    for row, (arm, features) in zip(arms, MENU.items(), strict=True):
        assert row["arm"] == arm
        assert [as_number(row[f"feature_{j}"]) for j in range(3)] == features


def test_features_have_the_names_of_the_encoding(
    storage: Storage, tmp_path: Path
) -> None:
    rows = [
        {"id": "x", "price": 1.0, "colour": "red"},
        {"id": "y", "price": 2.0, "colour": "blue"},
    ]
    encoding = Encoding.of(
        [{"price": 1.0, "colour": "red"}, {"price": 2.0, "colour": "blue"}]
    )
    policy = spec_of(menu_policy(oracle=TopK(k=1)))
    spec = BanditSpec(policy=policy, encoding=encoding)
    bandit = create_bandit("encoded", spec=spec, storage=storage)
    bandit.ask(rows)
    export = bandit.export(tmp_path / "out", features=True)
    columns = list(read(export.files["arms"])[0])
    assert columns == ["offer", "arm", *(f"feature_{name}" for name in encoding.names)]


@pytest.mark.parametrize("file_format", FORMATS)
def test_an_empty_journal_has_tables_without_rows(
    bandit: Bandit, file_format: Any, tmp_path: Path
) -> None:
    export = bandit.export(tmp_path, file_format=file_format, features=True)
    assert set(export.rows.values()) == {0}
    for path in export.files.values():
        assert read(path) == []


def test_a_file_in_place_of_the_folder_is_refused(
    bandit: Bandit, tmp_path: Path
) -> None:
    file = tmp_path / "tables"
    file.write_text("mine")
    with raises(ConflictError, "tables is a file; choose a folder for the tables"):
        bandit.export(file)
    assert file.read_text() == "mine"


@needs_parquet
def test_parquet_has_groups_of_rows_and_typed_columns(
    bandit: Bandit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet as pq

    play(bandit)
    monkeypatch.setattr("superarm.live.tables.ROW_GROUP", 4)
    export = bandit.export(tmp_path, file_format="parquet")
    file = pq.ParquetFile(export.files["choices"])
    groups = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
    assert groups == [4, 4, 2]
    types = dict(zip(file.schema_arrow.names, file.schema_arrow.types, strict=True))
    assert str(types["arm"]) == "string"
    assert str(types["place"]) == "int64"
    assert str(types["reward"]) == "double"


def test_offers_of_different_width_are_exported_without_features(
    storage: Storage, tmp_path: Path
) -> None:
    policy = ScorePolicy(score=Uniform(), oracle=TopK(k=1))
    bandit = create_bandit("wide", spec=policy, storage=storage)
    for menu in ({"a": [0.1]}, {"a": [0.1, 0.2]}):
        answer = bandit.ask(menu)
        bandit.tell(answer, {"a": 1.0})
    layouts: list[Any] = ["flat", "open-bandit"]
    for layout in layouts:
        with pytest.raises(
            InputError, match="some offers have 1 features and others 2"
        ):
            bandit.export(tmp_path / layout, layout=layout, features=True)
        bandit.export(tmp_path / layout, layout=layout)
    assert len(read(str(tmp_path / "flat" / "choices.csv"))) == 2
    assert len(read(str(tmp_path / "open-bandit" / "all.csv"))) == 2


# --- files ---------------------------------------------------------------------------------


def test_an_export_that_fails_leaves_earlier_files(
    bandit: Bandit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(bandit)
    bandit.export(tmp_path / "out")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    bandit.ask(MENU)

    def fail(*_: Any) -> None:
        raise StorageError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr("superarm.live.flat_tables._write_history", fail)
        with pytest.raises(StorageError, match="the disk is gone"):
            bandit.export(tmp_path / "out")
    after = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert after == before  # and no temporary file


def test_parquet_without_pyarrow_names_the_command(
    bandit: Bandit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(module: str, extra: str) -> None:
        raise MissingExtraError(f"{module} is not installed; extra {extra}")

    monkeypatch.setattr("superarm.live.tables.require_extra", missing)
    with pytest.raises(MissingExtraError, match="extra parquet"):
        bandit.export(tmp_path / "out", file_format="parquet")
    assert not (tmp_path / "out").exists()


def test_unknown_formats_and_layouts_are_refused(
    bandit: Bandit, tmp_path: Path
) -> None:
    anything: Any = "xlsx"
    with pytest.raises(InputError, match="file_format"):
        bandit.export(tmp_path, file_format=anything)
    with pytest.raises(InputError, match="layout"):
        bandit.export(tmp_path, layout=anything)


def test_what_comes_later_is_left_out(bandit: Bandit) -> None:
    """Decisions and rewards are of one moment."""
    from superarm.live.decisions import Status
    from superarm.live.outcomes import Outcomes

    answer = bandit.ask(MENU)
    last = bandit._current.read().seq
    bandit.tell(answer, dict.fromkeys(answer.arms, 1.0))
    bandit.ask(MENU)
    (outcome,) = Outcomes(bandit._separate_journal(), last)
    assert outcome.status is Status.PENDING
    assert outcome.reward is None


# --- Open Bandit ---------------------------------------------------------------------------


@pytest.mark.parametrize("file_format", FORMATS)
def test_the_layout_of_open_bandit(
    bandit: Bandit, file_format: Any, tmp_path: Path
) -> None:
    """Rows of known rewards; the column that all arms share is the user's."""
    answers = play(bandit)
    folder = tmp_path / "random" / "all"
    export = bandit.export(
        folder, file_format=file_format, layout="open-bandit", features=True
    )
    rows = read(export.files["all"])
    assert len(rows) == export.rows["all"] == 5  # 2 + 2 + 1 rewards
    expected = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 1)]
    names = {row["arm"]: int(row["item_id"]) for row in read(export.files["items"])}
    for number, (row, (decision, place)) in enumerate(zip(rows, expected, strict=True)):
        answer = answers[decision]
        assert list(row)[1:] == [
            "timestamp",
            "item_id",
            "position",
            "click",
            "propensity_score",
            "user_feature_0",
        ]
        assert int(row[""]) == number
        assert int(row["item_id"]) == names[answer.arms[place]]
        assert int(row["position"]) == place + 1
        assert as_number(row["propensity_score"]) == answer.propensity
        assert as_number(row["user_feature_0"]) == 1.0
        assert datetime.fromisoformat(row["timestamp"]).tzinfo is not None
    assert [as_number(row["click"]) for row in rows[:2]] == pytest.approx([0.1, 0.1])
    assert as_number(rows[4]["click"]) == -2.5
    items = read(export.files["item_context"])
    for row in items:
        (arm,) = [arm for arm, item in names.items() if item == int(row["item_id"])]
        features = [as_number(row[f"item_feature_{j}"]) for j in range(2)]
        assert features == MENU[arm][:2]


def test_unknown_propensities_are_refused(storage: Storage, tmp_path: Path) -> None:
    bandit = create_bandit("ts", spec=menu_policy(rule=Thompson()), storage=storage)
    bandit.ask(MENU)
    with pytest.raises(InputError, match=r"propensity of decision .* is unknown"):
        bandit.export(tmp_path / "out", layout="open-bandit")
    assert not (tmp_path / "out").exists()
    row = read(bandit.export(tmp_path / "flat").files["decisions"])[0]
    assert row["propensity"] == ""


def test_arms_that_change_have_no_item_features(bandit: Bandit, tmp_path: Path) -> None:
    for menu in (MENU, {**MENU, "a": [0.5, 0.5, 1.0]}):
        answer = bandit.ask(menu)
        bandit.tell(answer, dict.fromkeys(answer.arms, 1.0))
    with pytest.raises(InputError, match="features of arm 'a' change"):
        bandit.export(tmp_path / "out", layout="open-bandit", features=True)
    export = bandit.export(tmp_path / "out", layout="open-bandit")
    assert export.rows == {"all": 4, "item_context": 3, "items": 3}
