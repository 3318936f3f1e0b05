"""Records as JSON and back: the same values of the same types, and no crash on bad data."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from fractions import Fraction
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as nst

from superarm.core import Arms, Decision, Feedback, Offer, State
from superarm.core.errors import SpecError, StateError
from superarm.core.graphs import Pairs
from superarm.core.serialization import MOST_DEPTH, from_json, to_json
from superarm.core.states import state_from_bytes, state_to_bytes
from superarm.oracles import Trip

RECORDS = (Arms, Offer, Decision, Feedback, State, Trip, Pairs)


def through(value: Any) -> Any:
    return from_json(json.loads(json.dumps(to_json(value), allow_nan=False)))


def same(first: Any, second: Any) -> bool:  # noqa: PLR0911 (one for each kind)
    """Equal and of equal types, down to the sign of zero."""
    if type(first) is not type(second):
        return False
    if isinstance(first, np.ndarray):
        return (
            (first.dtype, first.shape) == (second.dtype, second.shape)
            and np.array_equal(first, second, equal_nan=first.dtype.kind == "f")
            and (
                first.dtype.kind != "f"
                or np.array_equal(np.signbit(first), np.signbit(second))
            )
        )
    if isinstance(first, np.generic):
        return same(np.asarray(first), np.asarray(second))
    if isinstance(first, float):  # distinguishes −0.0 from 0.0 and handles NaN
        return repr(first) == repr(second)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, dict):
        return same(list(first.items()), list(second.items()))
    if isinstance(first, RECORDS):
        names = (
            ("ids", "features")
            if isinstance(first, Arms)
            else [field.name for field in fields(first)]
        )
        return all(same(getattr(first, name), getattr(second, name)) for name in names)
    return bool(first == second)


dtypes = st.sampled_from(
    ["?", "i1", "u2", "<i4", ">i8", "u8", "f2", "f4", "<f8", ">f8", "U3"]
).map(np.dtype)


def without_negative_nan(array: Any) -> Any:
    if array.dtype.kind == "f":
        array[np.isnan(array)] = np.nan
    return array


arrays = dtypes.flatmap(
    lambda dtype: nst.arrays(
        dtype, nst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
    )
).map(without_negative_nan)
hashables = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=5,
)
leaves = (
    hashables
    | st.floats()
    | arrays
    | arrays.filter(lambda array: array.size).map(lambda a: a.flat[0])
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(hashables, inner, max_size=3)
        | st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=10,
)
finite = st.floats(-1e6, 1e6)


@given(values)
def test_values_keep_their_types(value: Any) -> None:
    assert same(through(value), value)


@st.composite
def flows(draw: Any) -> list[Any]:
    n = draw(st.integers(1, 5))
    ids = draw(st.lists(hashables, min_size=n, max_size=n, unique=True))
    features = draw(
        nst.arrays(np.float64, (n, draw(st.integers(1, 3))), elements=finite)
    )
    positions = np.array(
        draw(st.lists(st.integers(0, n - 1), unique=True)), dtype=np.intp
    )
    k = len(positions)

    def numbers() -> Any:
        return draw(
            st.none()
            | nst.arrays(np.float64, k, elements=st.floats()).map(without_negative_nan)
        )

    state = State(
        kind=draw(st.text()),
        schema=draw(st.integers(0, 9)),
        scalars=draw(st.dictionaries(st.text(), values, max_size=2)),
        arrays=draw(st.dictionaries(st.text(), arrays, max_size=2)),
        parts={"inner": State(kind="inner", schema=1)},
        spec=draw(st.none() | st.just({"name": "ucb", "at": np.arange(3)})),
    )
    return [
        Offer(
            step=draw(st.integers(1, 10**9)),
            arms=Arms(ids=ids, features=features),
            time=draw(st.none() | finite),
            available=draw(st.none() | nst.arrays(np.bool_, n)),
            structure=draw(
                st.none()
                | st.just(Trip(start=0, goal=n - 1))
                | st.just(Trip(start=0, goal=0, closed_turns=positions))
                | st.just(Trip(start=0, goal=0, turn_costs=np.abs(features[:, 0])))
                | st.just(Pairs(left=np.arange(len(positions)), right=positions))
            ),
            previous_action=draw(values),
        ),
        Decision(
            step=draw(st.integers(1, 10**9)),
            action=draw(values),
            positions=positions,
            mean=numbers(),
            std=numbers(),
            desirability=numbers(),
            propensity=draw(st.none() | st.floats(0.0, 1.0)),
            version=draw(st.integers(0, 99)),
            carry=draw(st.none() | st.just(state)),
        ),
        Feedback(
            positions=positions,
            rewards=draw(nst.arrays(np.float64, k, elements=finite)),
            noise_variance=draw(st.none() | nst.arrays(np.float64, k, elements=finite)),
            delays=draw(st.none() | nst.arrays(np.intp, k, elements=st.integers(0, 9))),
        ),
        Feedback(
            positions=positions,
            rewards=draw(nst.arrays(np.float64, min(k, 2), elements=finite)),
            sums=np.arange(k, dtype=np.intp) % 2,
        ),
        state,
    ]


@pytest.mark.thorough
@given(flows())
def test_records_round_trip(records: list[Any]) -> None:
    for record in records:
        assert same(from_json(json.loads(json.dumps(to_json(record)))), record)


def test_some_values_by_hand() -> None:
    assert to_json({"a": (1, -0.0), "b": math.nan}) == {
        "a": {"$tuple": [1, -0.0]},
        "b": {"$float": "nan"},
    }
    assert to_json(np.array([1.5, np.inf])) == {"$array": ["<f8", [2], [1.5, "inf"]]}
    assert to_json(np.int16(3)) == {"$scalar": ["<i2", 3]}
    assert to_json({1: "one"}) == {"$dict": [[1, "one"]]}
    assert to_json(Trip(start=1, goal=2)) == {
        "$record": "trip",
        "start": 1,
        "goal": 2,
        "closed_turns": None,
        "turn_costs": None,
    }
    trip = Trip(start=1, goal=2, turn_costs=np.array([0.5, 0.0]))
    assert through(trip).turn_costs.tolist() == [0.5, 0.0]
    old = {"$record": "trip", "start": 1, "goal": 2, "closed_turns": None}
    assert from_json(old).turn_costs is None
    assert through({"$array": 3}) == {"$array": 3}, (
        "a dict that looks like a tag is still a dict"
    )


def deep(times: int) -> Any:
    value: Any = 0
    for _ in range(times):
        value = [value]
    return value


class Named(str):
    """Not plain text."""


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1, 2},
        b"bytes",
        1 + 2j,
        Fraction(1, 2),
        Named("a"),
        np.array([1 + 2j]),
        np.array([object()]),
        np.array(["2020-01-01"], dtype="M8[D]"),
        np.ma.masked_array([1.0], mask=[True]),
        1 << 10_000,
        deep(MOST_DEPTH + 2),
        len,
    ],
    ids=lambda value: type(value).__name__,
)
def test_unserializable_values_are_rejected(value: Any) -> None:
    with pytest.raises(SpecError):
        to_json({"action": value})


ARMS = {
    "$record": "arms",
    "ids": [0, 1],
    "features": {"$array": ["<f8", [2, 1], [0.0, 1.0]]},
}
CHOSEN = {"$array": ["<i8", [1], [0]]}
BAD: dict[str, Any] = {
    "an unknown tag": {"$object": "os.system"},
    "two tags": {"$tuple": [], "$float": "nan"},
    "a tag beside a key": {"$tuple": [], "a": 1},
    "no float": {"$float": "0x1"},
    "a float that is a list": {"$float": []},
    "a tuple of nothing": {"$tuple": None},
    "a dict of one": {"$dict": [[1]]},
    "a key that is a list": {"$dict": [[[1], 2]]},
    "a key twice": {"$dict": [[1, 2], [1, 3]]},
    "an object dtype": {"$array": ["|O", [1], [0]]},
    "a structured dtype": {"$array": ["f8,f8", [1], [0]]},
    "another shape": {"$array": ["<f8", [2], [0.0]]},
    "a negative shape": {"$array": ["<f8", [-1, -1], [0.0]]},
    "a shape that is none": {"$array": ["<f8", 1, [0.0]]},
    "text among numbers": {"$array": ["<f8", [1], ["x"]]},
    "a number that does not fit": {"$array": ["|i1", [1], [300]]},
    "true as a number": {"$array": ["<i8", [1], [True]]},
    "text that is too long": {"$array": ["<U1", [1], ["ab"]]},
    "too much text": {"$array": ["<U99999", [1000], [""] * 1000]},
    "too much text in many arrays": [{"$array": ["<U99999", [100], [""] * 100]}] * 9,
    "a tuple of text": {"$tuple": "abc"},
    "a tuple of keys": {"$tuple": {"a": 1}},
    "a dict of text": {"$dict": ["ab", "cd"]},
    "a key that is none": {None: 1},
    "a float that does not fit": {"$array": ["<f2", [1], [1e300]]},
    "an array elsewhere": {"$array": "array:1"},
    "a list as scalar": {"$scalar": ["<f8", [1.0]]},
    "an unknown record": {"$record": "os.system", "command": "ls"},
    "a record without a name": {"$record": ["trip"]},
    "a trip to nowhere": {"$record": "trip", "start": 1},
    "a trip with more": {"$record": "trip", "start": 1, "goal": 2, "by": "car"},
    "arms without features": {"$record": "arms", "ids": [0]},
    "arms that repeat": {**ARMS, "ids": [0, 0]},
    "ids that are no list": {**ARMS, "ids": 7},
    "an offer without arms": {"$record": "offer", "step": 1, "arms": None},
    "an offer before the first": {"$record": "offer", "step": 0, "arms": ARMS},
    "an offer with more": {"$record": "offer", "step": 1, "arms": ARMS, "more": 1},
    "a decision without positions": {
        "$record": "decision",
        "step": 1,
        "action": 0,
        "positions": None,
    },
    "a decision on half an arm": {
        "$record": "decision",
        "step": 1,
        "action": 0,
        "positions": {"$array": ["<f8", [1], [0.5]]},
    },
    "a decision of no step": {
        "$record": "decision",
        "step": "1",
        "action": 0,
        "positions": CHOSEN,
    },
    "a decision before the first": {
        "$record": "decision",
        "step": 0,
        "action": 0,
        "positions": CHOSEN,
    },
    "a decision with a mean too many": {
        "$record": "decision",
        "step": 1,
        "action": 0,
        "positions": CHOSEN,
        "mean": {"$array": ["<f8", [2], [0.0, 0.0]]},
    },
    "a decision on an arm beyond all": {
        "$record": "decision",
        "step": 1,
        "action": 0,
        "positions": {"$array": ["<u8", [1], [2**64 - 1]]},
    },
    "a decision on one arm twice": {
        "$record": "decision",
        "step": 1,
        "action": 0,
        "positions": {"$array": ["<i8", [2], [0, 0]]},
    },
    "a decision with a mean of text": {
        "$record": "decision",
        "step": 1,
        "action": 0,
        "positions": CHOSEN,
        "mean": ["a"],
    },
    "a decision that carries a number": {
        "$record": "decision",
        "step": 1,
        "action": 0,
        "positions": CHOSEN,
        "carry": 3,
    },
    "a decision by chance of text": {
        "$record": "decision",
        "step": 1,
        "action": 0,
        "positions": CHOSEN,
        "propensity": "1",
    },
    "feedback without rewards": {"$record": "feedback", "positions": CHOSEN},
    "feedback of nothing": {
        "$record": "feedback",
        "positions": CHOSEN,
        "rewards": None,
    },
    "a state without a kind": {"$record": "state", "kind": 3, "schema": 1},
    "a state made by a list": {
        "$record": "state",
        "kind": "a",
        "schema": 1,
        "spec": [],
    },
    "a state of lists": {"$record": "state", "kind": "a", "schema": 1, "scalars": []},
    "a state with numbers for arrays": {
        "$record": "state",
        "kind": "a",
        "schema": 1,
        "arrays": {"a": 1},
    },
    "a state with numbers for parts": {
        "$record": "state",
        "kind": "a",
        "schema": 1,
        "parts": {"a": 1},
    },
    "too deep": deep(MOST_DEPTH + 2),
    "no JSON": {"a": {1, 2}},
}


@pytest.mark.parametrize("what", BAD)
def test_bad_data_are_refused(what: str) -> None:
    with pytest.raises(StateError):
        from_json(BAD[what])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "$float",
                    "$tuple",
                    "$dict",
                    "$array",
                    "$scalar",
                    "$record",
                    "a",
                    "ids",
                ]
            ),
            inner
            | st.sampled_from(
                [
                    "nan",
                    "arms",
                    "offer",
                    "decision",
                    "feedback",
                    "state",
                    "trip",
                    "<f8",
                    "<U2",
                ]
            ),
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_any_data_are_read_or_refused(data: Any) -> None:
    try:
        value = from_json(data)
    except StateError:
        return
    assert same(through(value), value)


def test_state_scalars_are_exact_in_bytes() -> None:
    scalars = {"nan": float("nan"), "pair": (1, -0.0), "number": np.int64(3)}
    restored = state_from_bytes(
        state_to_bytes(State(kind="x", schema=1, scalars=scalars))
    )
    assert {key: repr(restored.scalars[key]) for key in scalars} == {
        key: repr(value) for key, value in scalars.items()
    }
