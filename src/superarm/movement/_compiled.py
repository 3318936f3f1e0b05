"""Compiled loops over the vertices of a tree (extra ``[fast]``)."""

from __future__ import annotations

from math import exp, inf, log

from superarm.core import Floats, Ints
from superarm.core.compiling import compiled

from .coupling import draw_from, match_up
from .descent import MOST_STEPS

_FLOATS = "f8[::1]"
_INTS = "i8[::1]"

# Arguments as in match_up: order, until, begun; before, after; source, target; mass.
_MATCH_ARGUMENTS = ", ".join([_INTS] * 3 + [_FLOATS] * 2 + [_INTS] * 2 + [_FLOATS])

match = compiled(f"i8({_MATCH_ARGUMENTS})")(match_up)
draw = compiled(f"Tuple((i8, f8))({_INTS}, {_INTS}, {_FLOATS}, i8, f8)")(draw_from)


@compiled(f"void({_INTS}, {', '.join([_FLOATS] * 5)})")
def descend(
    parent: Ints, rate: Floats, delta: Floats, q: Floats, c: Floats, after: Floats
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
            ratio = (1.0 + delta[v]) / (q[v] + delta[v])
            b = min(b, c[v] - lowest + log(ratio) / rate[v])
        total = 1.0
        for _ in range(MOST_STEPS):
            total = 0.0
            slope = 0.0
            for v in range(begin, last + 1):
                e = (q[v] + delta[v]) * exp(rate[v] * (b - (c[v] - lowest)))
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
            after[v] /= total
            mean += after[v] * (c[v] - lowest)
        c[above] = lowest + mean
        last = begin - 1
