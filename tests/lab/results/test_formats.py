"""Numbers as text."""

from __future__ import annotations

import pytest

from superarm.lab.results.formats import plus_minus, significant


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_zero_has_no_sign(zero: float) -> None:
    assert significant(zero) == "0"
    assert plus_minus(zero, 0.0) == "0"
    assert plus_minus(zero, 0.5) == "0 ± 0.5"
