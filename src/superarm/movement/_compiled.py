"""Compiled loops over the vertices of a tree (extra ``[fast]``)."""

from __future__ import annotations

from math import exp, inf, log

from superarm.core import Floats, Ints
from superarm.core.compiling import compiled

from .coupling import draw_from, match_up
from .descent import MOST_STEPS

_FLOATS = "f8[::1]"
_INTS = "i8[::1]"

# Arguments as in match_up: order, ends, begins; before, after; source, target; mass.
_MATCH_ARGUMENTS = [_INTS] * 3 + [_FLOATS] * 2 + [_INTS] * 2 + [_FLOATS]
_MATCH_SIGNATURE = f"i8({', '.join(_MATCH_ARGUMENTS)})"
# As in draw_from: source, target, mass; action, share.
_DRAW_SIGNATURE = f"Tuple((i8, f8))({_INTS}, {_INTS}, {_FLOATS}, i8, f8)"
# As in descend: parent; rate, delta, q, c, after.
_DESCEND_ARGUMENTS = [_INTS] + [_FLOATS] * 5
_DESCEND_SIGNATURE = f"void({', '.join(_DESCEND_ARGUMENTS)})"

match = compiled(_MATCH_SIGNATURE)(match_up)
draw = compiled(_DRAW_SIGNATURE)(draw_from)


@compiled(_DESCEND_SIGNATURE)
def descend(
    parent: Ints,
    rate: Floats,
    delta: Floats,
    q: Floats,
    c: Floats,
    after: Floats,
) -> None:
    """Compiled ``TreeDescent._step_by_level``: from the last vertex to the root, siblings together.

    Args:
        parent: The parent of each vertex, (v,).
        rate: κ η / w of each vertex, (v,).
        delta: δ of each vertex, (v,).
        q: Conditional probabilities before the step, (v,).
        c: Costs of the leaves; receives those of inner vertices, (v,).
        after: Receives the conditional probabilities after the step, (v,).
    """
    last = len(parent) - 1
    while last > 0:
        above = parent[last]
        begin = last
        while begin > 1 and parent[begin - 1] == above:
            begin -= 1
        lowest = inf
        for v in range(begin, last + 1):
            lowest = min(lowest, c[v])
        b = inf
        for v in range(begin, last + 1):
            cost = c[v] - lowest
            a = q[v] + delta[v]
            ratio = (1.0 + delta[v]) / a
            upper = cost + log(ratio) / rate[v]
            b = min(b, upper)
        total = 1.0
        for _ in range(MOST_STEPS):
            total = 0.0
            slope = 0.0
            for v in range(begin, last + 1):
                cost = c[v] - lowest
                a = q[v] + delta[v]
                e = a * exp(rate[v] * (b - cost))
                after[v] = max(e - delta[v], 0.0)
                if after[v] > 0.0:
                    total += after[v]
                    slope += rate[v] * e
            lower = b - (total - 1.0) / slope
            if not lower < b:
                break
            b = lower
        mean = 0.0
        for v in range(begin, last + 1):
            cost = c[v] - lowest
            after[v] /= total
            mean += after[v] * cost
        c[above] = lowest + mean
        last = begin - 1
