"""Records and the shared input checks."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest

from superarm.core import Arms, Decision, Feedback, Offer
from superarm.core.errors import InputError, NotFiniteError, ShapeError, UnknownArmError
from superarm.core.inputs import as_features, as_positive, as_vector, require_finite
from superarm.models import ByNumber
from superarm.roads.energy import RoadEnergy, Vehicle

# --- arms ----------------------------------------------------------------------------------


def test_arms_keep_their_own_read_only_features() -> None:
    features = np.zeros((2, 3))
    arms = Arms(ids=("a", ("b", 1)), features=features)
    features[:] = 1.0
    assert not arms.features.any()
    with pytest.raises(ValueError, match="read-only"):
        arms.features[0, 0] = 2.0
    assert len(arms) == 2
    assert repr(arms) == "Arms(n=2, d=3)"


def test_positions_follow_the_order_of_the_ids() -> None:
    arms = Arms(ids=["a", "b", "c"], features=np.zeros((3, 1)))
    assert arms.positions(["c", "a", "c"]).tolist() == [2, 0, 2]
    positions = arms.positions([])
    assert positions.dtype == np.intp
    assert len(positions) == 0
    assert Arms.numbered([[0.5], [0.5]]).ids == (0, 1)  # equal features are legal


def test_wrong_ids_are_named() -> None:
    arms = Arms(ids=["a", "b"], features=np.zeros((2, 1)))
    with pytest.raises(UnknownArmError, match="'z' is not on offer; 2 arms are"):
        arms.positions(["a", "z"])
    with pytest.raises(InputError, match="'a' appears more than once"):
        Arms(ids=["a", "b", "a"], features=np.zeros((3, 1)))
    with pytest.raises(ShapeError, match="3 entries but features has 2 rows"):
        Arms(ids=[1, 2, 3], features=np.zeros((2, 1)))
    with pytest.raises(InputError, match="hashable"):
        Arms(ids=[[1], [2]], features=np.zeros((2, 1)))  # type: ignore[list-item]


def test_ids_may_come_from_any_iterable() -> None:
    assert Arms(ids=(str(i) for i in range(2)), features=np.zeros((2, 1))).ids == (
        "0",
        "1",
    )  # type: ignore[arg-type]


# --- offers and other records --------------------------------------------------------------


def test_offers_check_their_step_and_mask() -> None:
    arms = Arms.numbered(np.zeros((3, 1)))
    assert Offer(step=1, arms=arms).available is None
    with pytest.raises(
        InputError, match=r"step must be a whole number from 1 .*, got 0"
    ):
        Offer(step=0, arms=arms)
    bad: Any
    for bad in ([True, False, True], np.array([1, 0, 1]), np.array([True, False])):
        with pytest.raises(
            ShapeError, match="boolean array with one entry for each of 3 arms"
        ):
            Offer(step=1, arms=arms, available=bad)


def test_decisions_check_their_positions() -> None:
    make: Any = Decision
    assert make(step=1, action=None, positions=[2, 0]).positions.tolist() == [2, 0]
    for bad in ([0.0, 1.0], [[0, 1]], [True], None):
        with pytest.raises(InputError, match="positions"):
            make(step=1, action=None, positions=bad)


def test_records_are_frozen() -> None:
    offer = Offer(step=1, arms=Arms.numbered([[0.0]]))
    with pytest.raises(FrozenInstanceError):
        offer.step = 2  # type: ignore[misc]
    decision = Decision(step=1, action=None, positions=np.array([0]))
    with pytest.raises(FrozenInstanceError):
        decision.version = 3  # type: ignore[misc]


def test_round_time_defaults_to_its_step() -> None:
    arms = Arms.numbered([[0.0]])
    assert Offer(step=3, arms=arms).moment == 3.0
    assert Offer(step=3, arms=arms, time=0).moment == 0.0
    assert Offer(step=3, arms=arms, time=7.5).moment == 7.5


@pytest.mark.parametrize("delays", [[-1, 0], [0], [0.5, 1.0]], ids=str)
def test_delays_are_rounds_one_per_reward(delays: Any) -> None:
    with pytest.raises(InputError, match="delays"):
        Feedback(positions=np.arange(2), rewards=np.zeros(2), delays=np.array(delays))
    late = Feedback(positions=np.arange(2), rewards=np.ones(2), delays=np.array([2, 0]))
    assert late.part(np.array([True, False])).delays is None  # a part is known at once


@pytest.mark.parametrize("sums", [[0], [0, 2], [1, 1], [-1, 0], [0.5, 0.0]], ids=str)
def test_sums_give_every_arm_a_reward_and_every_reward_an_arm(sums: Any) -> None:
    rewards = np.zeros(len(set(sums)))
    with pytest.raises(InputError, match="sums"):
        Feedback(positions=np.arange(2), rewards=rewards, sums=np.array(sums))


def test_feedback_of_sums() -> None:
    parts: dict[str, Any] = {
        "positions": np.array([4, 2, 7]),
        "sums": np.array([1, 0, 1]),
    }
    for wrong in (np.zeros(1), np.zeros(3)):
        with pytest.raises(ShapeError, match="rewards"):
            Feedback(rewards=wrong, **parts)
    with pytest.raises(ShapeError, match="noise_variance"):
        Feedback(rewards=np.zeros(2), noise_variance=np.ones(3), **parts)
    late = Feedback(
        rewards=np.array([3.0, 5.0]),
        noise_variance=np.ones(2),
        delays=np.array([2, 2, 2]),
        **parts,
    )
    complete = late.part(np.ones(3, dtype=bool))
    assert complete.delays is None
    assert complete.sums is not None
    assert (complete.rewards.tolist(), complete.sums.tolist()) == (
        [3.0, 5.0],
        [1, 0, 1],
    )
    with pytest.raises(InputError, match="same delay"):
        late.part(np.array([True, False, True]))


# --- checks --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        ([1.0, 2.0], ShapeError, r"must be two-dimensional .*, got shape \(2,\)"),
        (3.0, ShapeError, "two-dimensional"),
        ([[1.0], [1.0, 2.0]], InputError, "rectangular"),
        ([["a"]], InputError, "must be numbers"),
        ([[None]], NotFiniteError, r"rows\[0, 0\] is nan"),
        ([[0.0, 1.0], [np.inf, 0.0]], NotFiniteError, r"rows\[1, 0\] is inf"),
        ([[1.0]], ShapeError, "1 columns, but 2 are expected"),
    ],
    ids=str,
)
def test_features(values: Any, error: type[Exception], words: str) -> None:
    columns = 2 if words.startswith("1 columns") else None
    with pytest.raises(error, match=words):
        as_features(values, "rows", columns)


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        ([[1.0]], ShapeError, "one-dimensional"),
        (1.0, ShapeError, "one-dimensional"),
        (["x"], InputError, "list of numbers"),
        ([1.0, np.nan], NotFiniteError, r"y\[1\] is nan"),
        ([1.0], ShapeError, "1 entries, but 2 are expected"),
    ],
    ids=str,
)
def test_vectors(values: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        as_vector(values, "y", 2)


@pytest.mark.parametrize(
    "value", [0.0, -1.0, np.nan, np.inf, "much", None, [1.0, 2.0]], ids=str
)
def test_positive_numbers(value: Any) -> None:
    with pytest.raises(InputError, match="lambda"):
        as_positive(value, "lambda")


def test_good_values_pass_without_a_copy() -> None:
    rows, numbers = np.ones((2, 2)), np.ones(3)
    assert as_features(rows, "rows", 2) is rows
    assert as_vector(numbers, "y", 3) is numbers
    assert as_positive(np.float32(2.0), "x") == 2.0
    require_finite(rows, "rows")
    assert as_features([[1, 2]], "rows").dtype == np.float64


@pytest.mark.parametrize("number", [-1.0, 2.0, 1.5, np.nan])
def test_column_numbers_are_valid_integers(number: float) -> None:
    roads = {"length": [10.0, 20.0], "speed": [10.0, 10.0], "rise": [0.0, 0.0]}
    energies: Any = RoadEnergy(vehicle=Vehicle(), **roads)
    for mean in (ByNumber(values=np.zeros(2)), energies):
        assert mean(np.array([[1.0], [0.0]])).shape == (2,)
        with pytest.raises(
            UnknownArmError, match=r"row 1, column 0 holds .*; .* numbered 0 … 1"
        ):
            mean(np.array([[0.0], [number]]))
