"""Tables as features: frames, rows and columns, numbers and categories."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from superarm.errors import InputError, ShapeError
from superarm.records import from_json, to_json
from superarm.registry import build, spec_of
from superarm.tables import Encoding

ROWS = [
    {"size": 2.0, "colour": "red", "shop": 7},
    {"size": 3.5, "colour": "blue", "shop": 9},
    {"size": 1.0, "colour": "red", "shop": 9},
]
COLUMNS = {name: [row[name] for row in ROWS] for name in ROWS[0]}


class Frame:
    """What pandas and polars have in common."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data, self.columns = data, list(data)

    def __getitem__(self, name: str) -> Any:
        return np.array(self.data[name])


@pytest.mark.parametrize("table", [ROWS, COLUMNS, Frame(COLUMNS)], ids=["rows", "columns", "frame"])
def test_tables_of_every_kind_are_the_same(table: Any) -> None:
    encoding = Encoding.of(table, categorical=["shop"])
    assert encoding.names == ("size", "colour=blue", "colour=red", "shop=7", "shop=9")
    np.testing.assert_array_equal(
        encoding.features(table), [[2, 0, 1, 1, 0], [3.5, 1, 0, 0, 1], [1, 0, 1, 0, 1]]
    )
    index = Encoding.of(table, ["colour", "size"], coding="index")
    assert index.names == ("colour", "size")
    np.testing.assert_array_equal(index.features(table), [[1, 2], [0, 3.5], [1, 1]])


def test_arms_by_their_ids() -> None:
    encoding = Encoding.of(ROWS, ["size", "colour"])
    arms = encoding.arms([{"size": 4.0, "colour": "blue", "name": "p"}], ids="name")
    assert arms.ids == ("p",)
    np.testing.assert_array_equal(arms.features, [[4.0, 1.0, 0.0]])
    assert encoding.arms(ROWS).ids == (0, 1, 2)


def test_it_is_data() -> None:
    encoding = Encoding.of(ROWS, categorical=["shop"])
    again = build("encoding", from_json(to_json(spec_of(encoding))))
    np.testing.assert_array_equal(again.features(ROWS), encoding.features(ROWS))


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ([{"size": 1.0, "colour": "green"}], "row 0: colour is 'green', which is not among"),
        ([{"size": 1.0}], "there is no column 'colour'"),
        ([{"size": "large", "colour": "red"}], "column 'size' holds .* values; it held numbers"),
        ([{"size": float("nan"), "colour": "red"}], "column 'size'"),
        ([{"size": 1.0, "colour": "red"}, {"size": 1.0}], "row 1 and row 0 differ in colour"),
        ([], "this is a list"),
        (3, "this is a int"),
        ({"size": [1.0, 2.0], "colour": ["red"]}, "rows; give all alike"),
        ({"size": [[1.0]], "colour": ["red"]}, "one-dimensional"),
    ],
)
def test_what_makes_no_sense_is_refused(table: Any, told: str) -> None:
    encoding = Encoding.of(ROWS, ["size", "colour"])
    with pytest.raises((InputError, ShapeError), match=told):
        encoding.features(table)


@pytest.mark.parametrize(
    "given",
    [
        {"columns": (), "categories": {}},
        {"columns": ("a", "a"), "categories": {}},
        {"columns": ("a",), "categories": {"b": (1,)}},
        {"columns": ("a",), "categories": {"a": ()}},
        {"columns": ("a",), "categories": {"a": (1, 1)}},
        {"columns": ("a",), "categories": {}, "coding": "binary"},
    ],
)
def test_senseless_encodings(given: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Encoding(**given)
