"""Numbers, times, counts and settings as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from superarm.core import Floats

from .averages import average

_RAISED = str.maketrans("-.0123456789", "⁻·⁰¹²³⁴⁵⁶⁷⁸⁹")
# Numbers from the first to the second are written without powers of ten.
_LEAST_PLAIN, _MOST_PLAIN = 1e-4, 1e9


def significant(value: float, digits: int = 3) -> str:
    """Format a number for reading.

    Args:
        value: The number.
        digits: The number of significant digits.

    >>> [significant(x) for x in (12345.6, -0.012345, 2.0, 1.5e-7)]
    ['12,300', '−0.0123', '2', '1.5·10⁻⁷']
    """
    if not np.isfinite(value):
        return "–"
    if value < 0.0:
        return "−" + significant(-value, digits)
    rounded = float(f"{value:.{digits}g}")
    if rounded == 0.0:  # or -0.0
        return "0"
    if not _LEAST_PLAIN <= rounded < _MOST_PLAIN:
        factor, exponent = f"{rounded:.{digits}g}".split("e")
        power = "10" + str(int(exponent)).translate(_RAISED)
        return power if factor == "1" else f"{factor}·{power}"
    magnitude = int(np.floor(np.log10(rounded)))
    decimals = max(0, digits - 1 - magnitude)
    text = f"{rounded:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def plus_minus(mean: float, stderr: float) -> str:
    """Format a mean to three digits, and its standard error to the same place.

    Args:
        mean: The mean.
        stderr: Its standard error; 0 is left out.

    >>> plus_minus(171.23, 6.98), plus_minus(13612.0, 457.0), plus_minus(2.0, 0.0)
    ('171 ± 7', '13,600 ± 460', '2')
    """
    if stderr == 0.0:
        return significant(mean)
    finite = np.isfinite(mean) and np.isfinite(stderr)
    if not finite or not 1e-3 <= abs(mean) < 1e3:
        return f"{significant(mean)} ± {significant(stderr, 2)}"
    if mean < 0.0:
        return "−" + plus_minus(-mean, stderr)
    decimals = max(0, 2 - int(np.floor(np.log10(mean))))
    error = f"{stderr:,.{decimals}f}"
    if float(error.replace(",", "")) == 0.0:  # too small for so few decimals
        error = significant(stderr, 2)
    return f"{mean:,.{decimals}f} ± {error}"


def mean_text(values: Floats) -> str:
    """Format a mean over seeds with its standard error.

    Args:
        values: (seeds,).

    >>> mean_text(np.array([1.0, 3.0]))
    '2.00 ± 1.00'
    """
    return plus_minus(*average(values))


def power_text(exponent: float) -> str:
    """Format how regret grows; a dash where it is unknown.

    Args:
        exponent: p of t^p.

    >>> power_text(0.5), power_text(-0.05), power_text(-0.001)
    ('t⁰·⁵⁰', 't⁻⁰·⁰⁵', 't⁰·⁰⁰')
    """
    if not np.isfinite(exponent):
        return "–"
    # "z" writes −0.00 as 0.00.
    return "t" + f"{exponent:z.2f}".translate(_RAISED)


def bound_text(share: float, digits: int = 3) -> str:
    """How much of a bound was used.

    Args:
        share: The share of the bound.
        digits: The number of significant digits.

    >>> bound_text(0.6432)
    '64.3 % of the bound'
    """
    return f"{significant(100.0 * share, digits)} % of the bound"


def count_text(count: int, noun: str) -> str:
    """``1 seed``, ``2 seeds``.

    Args:
        count: The number.
        noun: Its unit in the singular.
    """
    plural = "" if count == 1 else "s"
    return f"{count:,} {noun}{plural}"


def readable_seconds(seconds: float) -> str:
    """Format a time with the unit that fits.

    Args:
        seconds: The time.

    >>> readable_seconds(0.00025)
    '250 µs'
    """
    for unit, per_second in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * per_second >= 1:
            return f"{significant(seconds * per_second)} {unit}"
    return f"{significant(seconds * 1e9)} ns"


def readable_duration(seconds: float) -> str:
    """Format a duration for people to read.

    Args:
        seconds: The duration.

    >>> [readable_duration(seconds) for seconds in (0.8, 42.4, 754.0, 18732.0)]
    ['0.8 s', '42 s', '12 min 34 s', '5 h 12 min']
    """
    if seconds < 10.0:
        return f"{seconds:.1f} s"
    if seconds < 60.0:
        return f"{seconds:.0f} s"
    minutes, remainder = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {remainder} s"
    hours, minutes = divmod(round(seconds / 60.0), 60)
    return f"{hours} h {minutes} min"


def setting_text(setting: Mapping[str, Any]) -> str:
    """A setting in one line: ``lengthscale = 0.2, k = 5``.

    Args:
        setting: A setting of a run.
    """
    return ", ".join(f"{key} = {value}" for key, value in setting.items())


def setting_prefix(setting: Mapping[str, Any]) -> str:
    """The words before evidence from one of several settings; empty if there is only one.

    Args:
        setting: A setting of a run.

    >>> setting_prefix({"k": 5}), setting_prefix({})
    ('[k = 5] ', '')
    """
    return f"[{setting_text(setting)}] " if setting else ""
