"""Compiled loops over the vertices of a tree (extra ``[fast]``)."""

from __future__ import annotations

from superarm.core.compiling import compiled

from .coupling import draw_from, match_up
from .descent import step_by_family

_FLOATS = "f8[::1]"
_INTS = "i8[::1]"

# Arguments as in match_up: order, ends, begins; before, after; source, target; mass.
_MATCH_ARGUMENTS = [_INTS] * 3 + [_FLOATS] * 2 + [_INTS] * 2 + [_FLOATS]
_MATCH_SIGNATURE = f"i8({', '.join(_MATCH_ARGUMENTS)})"
# As in draw_from: source, target, mass; action, share.
_DRAW_SIGNATURE = f"Tuple((i8, f8))({_INTS}, {_INTS}, {_FLOATS}, i8, f8)"
# As in step_by_family: parent; rate, delta, q, c, after.
_DESCEND_ARGUMENTS = [_INTS] + [_FLOATS] * 5
_DESCEND_SIGNATURE = f"void({', '.join(_DESCEND_ARGUMENTS)})"

match = compiled(_MATCH_SIGNATURE)(match_up)
draw = compiled(_DRAW_SIGNATURE)(draw_from)
descend = compiled(_DESCEND_SIGNATURE)(step_by_family)
