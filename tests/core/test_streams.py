"""Random streams: the fast path equals the definition bit for bit."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superarm.core.errors import InputError
from superarm.core.streams import Streams, stream

SEEDS = [
    0,
    1,
    42,
    2**31,
    2**32 - 1,
    2**32,
    2**32 + 5,
    2**64,
    2**64 + 2**33 + 7,
    2**128 + 3,
    3**200,
]
ROLES = ["truth", "offer", "noise", "policy:gp-ts", "learn:Ünïcode", ""]
STEPS = [0, 1, 2, 1022, 1023, 1024, 1025, 2047, 2048, 30_000, 2**31, 2**32 - 1]


def state_of(generator: np.random.Generator) -> object:
    return generator.bit_generator.state


def test_the_definition_is_the_documented_seed_sequence() -> None:
    sequence = np.random.SeedSequence(5, spawn_key=(crc32(b"noise"), 9))
    expected = np.random.Generator(np.random.PCG64(sequence))
    assert state_of(stream(5, "noise", 9)) == state_of(expected)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("role", ROLES)
def test_fast_equals_slow(seed: int, role: str) -> None:
    streams = Streams(seed, role)
    for step in [*STEPS, *reversed(STEPS)]:
        assert state_of(streams.at(step)) == state_of(stream(seed, role, step)), step


@given(
    seed=st.integers(min_value=0, max_value=2**200),
    role=st.text(max_size=20),
    step=st.integers(min_value=0, max_value=2**32 - 1),
)
def test_fast_equals_slow_anywhere(seed: int, role: str, step: int) -> None:
    assert state_of(Streams(seed, role).at(step)) == state_of(stream(seed, role, step))


def test_every_step_of_two_blocks() -> None:
    streams = Streams(3, "noise")
    for step in range(1000, 2100):
        assert streams.at(step).random() == stream(3, "noise", step).random()


def test_streams_do_not_depend_on_earlier_draws() -> None:
    streams = Streams(11, "noise")
    # An odd number of 32-bit draws leaves half a word behind in the bit generator.
    streams.at(1).integers(10, size=3, dtype=np.uint32)
    first = streams.at(2).integers(2**32, size=5, dtype=np.uint32)
    np.testing.assert_array_equal(
        first, stream(11, "noise", 2).integers(2**32, size=5, dtype=np.uint32)
    )


def test_numpy_integers_are_integers() -> None:
    streams = Streams(np.int64(4), "noise")  # type: ignore[arg-type]
    assert state_of(streams.at(np.int64(1500))) == state_of(stream(4, "noise", 1500))  # type: ignore[arg-type]


def test_roles_seeds_and_steps_differ() -> None:
    draws = {
        stream(seed, role, step).integers(2**63)
        for seed in range(5)
        for role in ("truth", "offer", "noise")
        for step in range(20)
    }
    assert len(draws) == 5 * 3 * 20


def test_uniform_means_across_steps() -> None:
    """First draws of consecutive steps behave as independent uniforms (5 standard errors)."""
    streams = Streams(0, "noise")
    draws = np.array([streams.at(step).random() for step in range(20_000)])
    assert abs(draws.mean() - 0.5) < 5 * np.sqrt(1 / 12 / len(draws))
    correlation = np.corrcoef(draws[:-1], draws[1:])[0, 1]
    assert abs(correlation) < 5 / np.sqrt(len(draws))


@pytest.mark.parametrize("seed", [-1, 1.5, "3", None, True])
def test_bad_seeds(seed: object) -> None:
    with pytest.raises(InputError, match="seed must be"):
        Streams(seed, "noise")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="seed must be"):
        stream(seed, "noise", 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("step", [-1, -1024, 2**32])
def test_bad_steps(step: int) -> None:
    with pytest.raises(InputError, match="step must be"):
        Streams(0, "noise").at(step)
    with pytest.raises(InputError, match="step must be"):
        stream(0, "noise", step)


@pytest.mark.parametrize("bits", [127, 128, 160, 300])
def test_seeds_of_many_words(bits: int) -> None:
    """Words of a seed beyond the fourth are hashed one by one."""
    seed = 2**bits + 1
    assert Streams(seed, "noise").at(5).random() == stream(seed, "noise", 5).random()
