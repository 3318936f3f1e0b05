"""Checks that every oracle shares."""

from __future__ import annotations

import numpy as np

from superarm.core import Floats
from superarm.errors import InputError, NotFiniteError


def check_desirability(desirability: Floats) -> None:
    """Refuse empty offers, NaN and +inf; −inf marks an arm that is not available."""
    if len(desirability) == 0:
        raise InputError("the offer has no arms; offer at least one")
    # A NaN or +inf maximum shows in the maximum itself: one pass, no temporary.
    top = desirability.max()
    if not top < np.inf:
        where = int(np.argmax(~(desirability < np.inf)))
        raise NotFiniteError(
            f"desirability[{where}] is {desirability[where]}; "
            "it must be finite, or -inf for an arm that is not available"
        )
