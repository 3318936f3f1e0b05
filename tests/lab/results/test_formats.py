"""Numbers as text."""

from __future__ import annotations

import pytest

from superarm.lab.results.formats import plus_minus, power_text, significant


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_zero_has_no_sign(zero: float) -> None:
    assert significant(zero) == "0"
    assert plus_minus(zero, 0.0) == "0"
    assert plus_minus(zero, 0.5) == "0 ± 0.5"
    assert power_text(zero) == "t⁰·⁰⁰"


def test_a_power_that_rounds_to_zero_has_no_sign() -> None:
    assert power_text(-0.004) == "t⁰·⁰⁰"
    assert power_text(-0.006) == "t⁻⁰·⁰¹"
