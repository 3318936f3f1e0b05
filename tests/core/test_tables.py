"""Tables as features: frames, rows and columns, numbers and categories."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest

from superarm.core.errors import InputError, ShapeError
from superarm.core.registry import build, spec_of
from superarm.core.serialization import from_json, to_json
from superarm.core.tables import Encoding

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


@pytest.mark.parametrize(
    "table", [ROWS, COLUMNS, Frame(COLUMNS)], ids=["rows", "columns", "frame"]
)
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


def test_encoding_round_trips_through_json() -> None:
    encoding = Encoding.of(ROWS, categorical=["shop"])
    rebuilt = build("encoding", from_json(to_json(spec_of(encoding))))
    np.testing.assert_array_equal(rebuilt.features(ROWS), encoding.features(ROWS))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            [{"size": 1.0, "colour": "green"}],
            "row 0: colour is 'green', which is not among",
        ),
        ([{"size": 1.0}], "there is no column 'colour'"),
        (
            [{"size": "large", "colour": "red"}],
            "column 'size' must hold numbers, got 'large'",
        ),
        ({"size": [1.0], "colour": [["red"]]}, "column 'colour', row 0"),
        (
            {"size": [[1.0], [1.0, 2.0]], "colour": ["red", "red"]},
            "column 'size', row 0",
        ),
        (
            {"size": np.ones((2, 2)), "colour": ["red", "red"]},
            "column 'size' must be one-dimensional.*, got array",
        ),
        (
            {"size": [1.0], "colour": "red"},
            "column 'colour' must be one-dimensional, such as a list, got 'red'",
        ),
        ({"size": {1.0}, "colour": ["red"]}, "column 'size' is a set"),
        ([{"size": 1j, "colour": "red"}], "column 'size', row 0: 1j"),
        ([{"size": float("nan"), "colour": "red"}], "column 'size'"),
        (
            [{"size": 1.0, "colour": "red"}, {"size": 1.0}],
            "row 1 and row 0 differ in colour",
        ),
        ([], "this is a list"),
        (3, "this is a int"),
        ({"size": [1.0, 2.0], "colour": ["red"]}, "rows; give as many for each"),
        ({"size": [[1.0]], "colour": ["red"]}, "one-dimensional"),
    ],
)
def test_invalid_input_is_rejected(table: Any, message: str) -> None:
    encoding = Encoding.of(ROWS, ["size", "colour"])
    with pytest.raises((InputError, ShapeError), match=message):
        encoding.features(table)


@pytest.mark.parametrize(
    "options",
    [
        {"columns": (), "categories": {}},
        {"columns": ("a", "a"), "categories": {}},
        {"columns": ("a",), "categories": {"b": (1,)}},
        {"columns": ("a",), "categories": {"a": ()}},
        {"columns": ("a",), "categories": {"a": (1, 1)}},
        {"columns": ("a",), "categories": {}, "coding": "binary"},
        {"columns": "a", "categories": {}},
        {"columns": 3, "categories": {}},
        {"columns": ("a",), "categories": None},
        {"columns": ("a",), "categories": {"a": "red"}},
        {"columns": ("a",), "categories": {"a": 3}},
        {"columns": ("a",), "categories": {"a": (["red"],)}},
    ],
)
def test_invalid_encodings_are_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Encoding(**options)


class NotAvailable:
    """As pandas has it: whether it equals anything is not known either."""

    def __eq__(self, other: object) -> Any:
        return self

    def __hash__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        raise TypeError("boolean value of NA is ambiguous")


MISSING = [
    None,
    math.nan,
    np.float64("nan"),
    np.datetime64("NaT"),
    np.ma.masked,
    NotAvailable(),
]


@pytest.mark.parametrize("missing", MISSING, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("there", [1.0, "red"])
def test_missing_values_are_not_a_category(missing: Any, there: Any) -> None:
    table = [{"price": there}, {"price": missing}]
    for read in (Encoding.of, Encoding.of([{"price": there}]).features):
        with pytest.raises(
            InputError, match=r"column 'price', row 1: .*fill in what is missing"
        ):
            read(table)


def test_masked_entries_are_missing() -> None:
    with pytest.raises(InputError, match="column 'price', row 1"):
        Encoding.of({"price": np.ma.array([1.0, 2.0], mask=[False, True])})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"categorical": ["typo"]}, "'typo', which is not among the columns"),
        ({"categorical": "size"}, "categorical must be one-dimensional.*, got 'size'"),
        ({"columns": "size"}, "columns must be one-dimensional.*, got 'size'"),
        ({"columns": 3}, "columns must be one-dimensional.*, got 3"),
        ({"columns": [["size"]]}, "columns, row 0"),
    ],
)
def test_invalid_names_are_rejected(options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Encoding.of(ROWS, **options)


def test_values_are_not_modified() -> None:
    mixed = Encoding.of([{"a": "x"}, {"a": 1}])
    assert mixed.categories == {"a": (1, "x")}
    np.testing.assert_array_equal(mixed.features([{"a": 1}]), [[1.0, 0.0]])
    days = np.array(["2024-01-02", "2024-01-01"], dtype="datetime64[ns]")
    dated = Encoding.of({"day": days}, coding="index")
    np.testing.assert_array_equal(dated.features({"day": days}), [[1.0], [0.0]])
    assert Encoding.of({"age": days - days[1]}).names[0].startswith("age=")
    with pytest.raises(
        InputError, match="the values of 'a' have no order; give categories"
    ):
        Encoding.of({"a": [object(), object()]})


def test_one_row_of_many_categories_takes_one_row() -> None:
    encoding = Encoding(columns=("a",), categories={"a": range(60_000)})  # type: ignore[dict-item]
    tracemalloc.start()
    (row,) = encoding.features([{"a": 7}])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert np.flatnonzero(row).tolist() == [7]
    assert peak < 2e7


def test_booleans_are_numbers_and_numbers_keep_their_order() -> None:
    table = {"new": [True, False], "shop": [10, 9]}
    encoding = Encoding.of(table, categorical=["shop"])
    assert encoding.names == ("new", "shop=9", "shop=10")
    np.testing.assert_array_equal(
        encoding.features(table), [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    )


class _Frame:
    """What looks like a data frame, with these names of columns."""

    def __init__(self, columns: Any) -> None:
        self.columns = columns

    def __getitem__(self, name: Any) -> list[float]:
        return {"a": [1.0, 2.0]}[name]


class _Unlike:
    """A value that cannot be compared, not even with itself."""

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")


@pytest.mark.parametrize("columns", [["a", "b"], [["a"]], 5, "ab"])
def test_a_frame_that_lacks_its_columns_is_refused(columns: Any) -> None:
    encoding = Encoding(columns=["a", "b"], categories={})
    with pytest.raises(
        InputError, match=r"names a column .* but has none|this is a _Frame; give a"
    ):
        encoding.features(_Frame(columns))


@pytest.mark.parametrize("ids", [["a"], {}, np.array(["a"]), 5, ("a",), b"a"])
def test_a_column_of_ids_is_named_by_a_text(ids: Any) -> None:
    encoding = Encoding(columns=["a"], categories={})
    with pytest.raises(InputError, match="there is no column"):
        encoding.arms({"a": [1.0]}, ids=ids)


@pytest.mark.parametrize("value", [["x"], {}, np.array([1.0, 2.0]), _Unlike(), {1}])
def test_indistinguishable_ids_are_rejected(value: Any) -> None:
    encoding = Encoding(columns=["a"], categories={})
    with pytest.raises(
        InputError, match=r"column 'id', row 1: .* is neither number nor category"
    ):
        encoding.arms({"a": [1.0, 2.0], "id": ["x", value]}, ids="id")
    arms = encoding.arms({"a": [1.0, 2.0], "id": ["x", "y"]}, ids="id")
    with pytest.raises(InputError, match="arm ids must be hashable"):
        arms.positions([["x"]])
