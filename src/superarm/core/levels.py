"""The levels of the central intervals by which forecasts are judged.

This is the only place that lists them. Everything else counts, names and finds them by what is here.
"""

from __future__ import annotations

import numpy as np

# By level, ascending, in standard deviations of a normal. Written out, since scipy, which could compute
# them, is slow to load.
_HALF_WIDTHS = {
    0.50: 0.6744897501960817,
    0.90: 1.6448536269514722,
    0.95: 1.959963984540054,
}

LEVELS = tuple(_HALF_WIDTHS)
"""Probabilities of the central intervals by which forecasts are judged, ascending."""
QUANTILES = np.array(list(_HALF_WIDTHS.values()))
"""Half-widths of the central intervals of ``LEVELS``, in standard deviations of a normal."""
QUANTILES.flags.writeable = False
AT_95 = LEVELS.index(0.95)
"""The position in ``LEVELS`` of 95 %, the level of the one interval that answers and warnings state."""


def levels_text() -> str:
    """The levels in words, for tables and reports.

    >>> levels_text()
    '50, 90 and 95 %'
    """
    *others, last = (f"{100.0 * level:.3g}" for level in LEVELS)
    return f"{', '.join(others)} and {last} %"
