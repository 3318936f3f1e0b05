"""Random streams that depend on (seed, role, step) alone.

Every random number of a run comes from
``SeedSequence(seed, spawn_key=(crc32(role), step))``, so that a run which is resumed, split
over workers or visited out of order gets the same numbers as one that is not.
:func:`stream` is the definition, in one line of numpy. :class:`Streams` gives the same numbers about
ten times faster, for loops of millions of rounds.

How: numpy hashes the words (seed …, crc32(role), step) into a pool of four 32-bit words, one
word after the other. The step comes last, so numpy hashes everything before it once, and the step
is hashed for a whole block of rounds in one sweep of ``uint32`` arithmetic. The pool is then
stretched to 256 bits, which seed PCG64. Both algorithms are fixed by numpy's compatibility
promise (NEP 19 for ``SeedSequence`` and for named bit generators), and the tests compare the
two ways bit for bit.
"""

from __future__ import annotations

import math
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from .inputs import as_count

# Constants of numpy's SeedSequence (after M. E. O'Neill's seed_seq_fe) …
_POOL = 4
_INITIAL_A, _MULTIPLIER_A = 0x43B0D7E5, 0x931E8875
_INITIAL_B, _MULTIPLIER_B = 0x8B51F9DD, 0x58F38DED
_MIX_LEFT, _MIX_RIGHT = 0xCA01F9DD, 0x4973F715
_SHIFT = 16
_MASK_32 = 0xFFFFFFFF
# … and of the 128-bit linear congruential generator under PCG64.
_PCG_MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645
_MASK_128 = (1 << 128) - 1

# Steps whose states are computed together.
_BLOCK_BITS = 10
_BLOCK = 1 << _BLOCK_BITS
_LAST_STEP = (1 << 32) - 1


def stream(seed: int, role: str, step: int) -> np.random.Generator:
    """A new generator for one role in one step: the definition.

    Args:
        seed: The seed of the run, 0 or more.
        role: What the numbers are for, such as "noise".
        step: The round, below 2³².

    >>> stream(7, "noise", 3).random() == stream(7, "noise", 3).random()
    True
    """
    as_count(seed, "seed", 0)
    as_count(step, "step", 0, _LAST_STEP)
    sequence = np.random.SeedSequence(seed, spawn_key=(crc32(role.encode()), step))
    return np.random.Generator(np.random.PCG64(sequence))


class Streams:
    """The streams of one seed and one role, step by step.

    ``at(step)`` returns *one reused* generator, set to where ``stream(seed, role, step)``
    starts: draw what you need before the next call, and do not store it.

    Args:
        seed: The seed of the run, 0 or more.
        role: What the numbers are for, such as "noise".

    >>> streams = Streams(7, "noise")
    >>> bool(streams.at(3).random() == stream(7, "noise", 3).random())
    True
    """

    def __init__(self, seed: int, role: str) -> None:
        as_count(seed, "seed", 0)
        before = np.random.SeedSequence(seed, spawn_key=(crc32(role.encode()),))
        self._pool = before.pool.tolist()
        # Every hash multiplies a running constant: 4 hashes for the first words, which the seed is
        # padded to, 12 to mix them, 4 for each further word of the seed, and 4 for the role.
        seed_words = math.ceil(int(seed).bit_length() / 32)
        further_words = max(0, seed_words - _POOL) + 1
        hashes = 16 + 4 * further_words
        power = pow(_MULTIPLIER_A, hashes, 1 << 32)
        self._constant = _INITIAL_A * power & _MASK_32
        self._bit_generator = np.random.PCG64(0)
        self._generator = np.random.Generator(self._bit_generator)
        self._block: int | None = None
        self._states: list[dict[str, int]] = []
        # One dictionary, reused: ``has_uint32 = 0`` also drops a half-used 32-bit draw.
        self._state: Any = {
            "bit_generator": "PCG64",
            "state": None,
            "has_uint32": 0,
            "uinteger": 0,
        }

    def at(self, step: int) -> np.random.Generator:
        """The reused generator, set to the start of a step.

        Args:
            step: The round, below 2³².
        """
        if step >> _BLOCK_BITS != self._block:
            as_count(step, "step", 0, _LAST_STEP)
            self._block = int(step) >> _BLOCK_BITS
            self._states = _pcg_states(
                self._pool, self._constant, self._block << _BLOCK_BITS
            )
        state = self._state
        state["state"] = self._states[step & (_BLOCK - 1)]
        self._bit_generator.state = state
        return self._generator


# --- the step, and PCG64's seeding: a block at once --------------------------------------


def _pcg_states(pool: list[int], constant: int, first: int) -> list[dict[str, int]]:
    """PCG64's starting states for the steps ``first`` … ``first + 1023``."""
    mixed_pool = _mixed_pool(pool, constant, first)
    words = _seed_words(mixed_pool)
    states: list[dict[str, int]] = []
    for w0, w1, w2, w3, w4, w5, w6, w7 in zip(*words, strict=True):
        # Words pair up lowest first into 64-bit halves, halves highest first into 128 bits.
        start = w1 << 96 | w0 << 64 | w3 << 32 | w2
        stream_number = w5 << 96 | w4 << 64 | w7 << 32 | w6
        increment = stream_number << 1 | 1
        increment &= _MASK_128
        # srandom: one step from zero, add the start, one step more.
        before = start + increment
        state = before * _PCG_MULTIPLIER + increment
        states.append({"state": state & _MASK_128, "inc": increment})
    return states


def _mixed_pool(pool: list[int], constant: int, first: int) -> list[NDArray[np.uint32]]:
    """The pool after each step of the block is hashed into it, four times (1024,)."""
    steps = np.arange(first, first + _BLOCK, dtype=np.uint64).astype(np.uint32)
    mixed_pool: list[NDArray[np.uint32]] = []
    for word in pool:
        value = steps ^ np.uint32(constant)
        constant = constant * _MULTIPLIER_A & _MASK_32
        value *= np.uint32(constant)  # uint32 arrays wrap around, as they should
        value ^= value >> np.uint32(_SHIFT)
        value *= np.uint32(_MIX_RIGHT)
        mixed = np.uint32(_MIX_LEFT * word & _MASK_32) - value
        mixed ^= mixed >> np.uint32(_SHIFT)
        mixed_pool.append(mixed)
    return mixed_pool


def _seed_words(pool: list[NDArray[np.uint32]]) -> list[list[int]]:
    """The pool stretched to the eight words that seed PCG64, eight times (1024,)."""
    constant = _INITIAL_B
    words: list[list[int]] = []
    for index in range(2 * _POOL):
        value = pool[index % _POOL] ^ np.uint32(constant)
        constant = constant * _MULTIPLIER_B & _MASK_32
        value *= np.uint32(constant)
        value ^= value >> np.uint32(_SHIFT)
        words.append(value.tolist())
    return words
