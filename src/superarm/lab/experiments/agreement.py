"""Whether two machines derived the same from the same settings, up to rounding.

What the user chose is compared exactly. What was computed from it, such as a noise variance, depends
on the processor in its last digits: BLAS adds in another order.
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

    >>> agree([0.25, "lengthscale 1.23"], [0.2500000001, "lengthscale 1.24"])
    True
    >>> agree("12 arms", "13 arms")
    False
    """
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        return before.keys() == now.keys() and all(
            agree(before[key], now[key]) for key in now
        )
    if isinstance(before, str) and isinstance(now, str):
        return before == now or _texts_agree(before, now)
    if isinstance(before, Sequence) and isinstance(now, Sequence):
        pairs = zip(before, now, strict=False)
        return len(before) == len(now) and all(agree(*pair) for pair in pairs)
    if isinstance(before, float) and isinstance(now, float):
        return math.isclose(before, now, rel_tol=DERIVED_TOLERANCE)
    return bool(before == now)


def _texts_agree(before: str, now: str) -> bool:
    """Whether texts differ in the last digits of decimal numbers alone; whole numbers are counts."""
    # Words and numbers take turns.
    parts, others = _NUMBER.split(before), _NUMBER.split(now)
    if len(parts) != len(others) or parts[::2] != others[::2]:
        return False
    pairs = zip(parts[1::2], others[1::2], strict=True)
    return all(_numbers_agree(*pair) for pair in pairs)


def _numbers_agree(before: str, now: str) -> bool:
    if before == now:
        return True
    if before.isdigit() and now.isdigit():
        return False
    # Two numbers that agree may be rounded to different sides: one unit of the last digit apart.
    first, second = Decimal(before), Decimal(now)
    last_digit = min(_exponent(first), _exponent(second))
    return abs(first - second) <= Decimal(1).scaleb(last_digit)


def _exponent(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)  # digits alone: neither NaN nor infinity
    return exponent
