"""Whether two machines derived the same from the same settings, up to rounding.

What the user chose is compared exactly. The last digits of what was computed from it, such as a noise
variance, depend on the processor: BLAS adds in another order.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

DERIVED_TOLERANCE = 1e-5
"""Relative difference of derived numbers between processors.

The least accurate of them is a noise variance taken from the range of a function that is drawn as
√K z. Eigenvalues of K are known up to nε of the largest one, those near zero not at all, so the
root is known up to √(nε): 1.5e-6 for n = 10,000 arms. A variance is quadratic in it: 3e-6.
Measured on the shipped experiments: up to 2e-8.
"""
_NUMBER = re.compile(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)")


def agree(before: Any, now: Any) -> bool:
    """Whether derived values are the same but for rounding: plain JSON, with numbers also in texts.

    Args:
        before: as one machine derived it.
        now: as another did.

    >>> agree([0.25, "lengthscale 1.23"], [0.2500000001, "lengthscale 1.24"])
    True
    >>> agree("12 arms", "13 arms")
    False
    """
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        return _mappings_agree(before, now)
    if isinstance(before, str) and isinstance(now, str):
        return before == now or _texts_agree(before, now)
    if isinstance(before, Sequence) and isinstance(now, Sequence):
        return _sequences_agree(before, now)
    if isinstance(before, float) and isinstance(now, float):
        return math.isclose(before, now, rel_tol=DERIVED_TOLERANCE)
    return bool(before == now)


def _mappings_agree(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    if before.keys() != now.keys():
        return False
    return all(agree(before[key], value) for key, value in now.items())


def _sequences_agree(before: Sequence[Any], now: Sequence[Any]) -> bool:
    if len(before) != len(now):
        return False
    return all(map(agree, before, now))


def _texts_agree(before: str, now: str) -> bool:
    """Whether texts differ in the last digits of decimal numbers alone; whole numbers are counts."""
    words_before, numbers_before = _words_and_numbers(before)
    words_now, numbers_now = _words_and_numbers(now)
    if words_before != words_now:
        return False
    return all(map(_numbers_agree, numbers_before, numbers_now))


def _words_and_numbers(text: str) -> tuple[list[str], list[str]]:
    """The words of a text and the numbers between them: one more of the former."""
    parts = _NUMBER.split(text)  # words and numbers alternate
    return parts[::2], parts[1::2]


def _numbers_agree(before: str, now: str) -> bool:
    if before == now:
        return True
    if before.isdigit() and now.isdigit():
        return False
    # Two numbers that agree may be rounded to different sides: one unit of the last digit apart.
    number_before = Decimal(before)
    number_now = Decimal(now)
    last_digit = min(_exponent(number_before), _exponent(number_now))
    unit = Decimal(1).scaleb(last_digit)
    return abs(number_before - number_now) <= unit


def _exponent(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)  # digits alone: neither NaN nor infinity
    return exponent
