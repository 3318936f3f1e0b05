"""Checks that every oracle shares."""

from __future__ import annotations

import numpy as np

from superarm.core import Floats
from superarm.errors import InputError, NotFiniteError

_MOST_DESIRABILITY = 1e290


def check_desirability(desirability: Floats) -> None:
    """Refuse empty offers, NaN and +inf; −inf marks an arm that is not available."""
    if len(desirability) == 0:
        raise InputError("the offer has no arms; offer at least one")
    # A NaN or +inf maximum shows in the maximum itself: one pass, no temporary.
    if not desirability.max() < np.inf:
        where = int(np.argmax(~(desirability < np.inf)))
        raise NotFiniteError(
            f"desirability[{where}] is {desirability[where]}; "
            "it must be finite, or -inf for an arm that is not available"
        )


def check_sums(desirability: Floats) -> None:
    """Refuse desirabilities so large that their sums overflow."""
    if max(desirability.max(initial=0.0), -desirability.min(initial=0.0)) > _MOST_DESIRABILITY:
        raise InputError(f"sums of desirabilities above {_MOST_DESIRABILITY:g} overflow")
