"""Compiled loops over the vertices of a tree (extra ``[fast]``)."""

from __future__ import annotations

from math import exp, inf, log

from superarm.core import Floats, Ints
from superarm.core.compiling import compiled

from .coupling import draw_from, match_up
from .descent import MOST_STEPS

_VECTOR, _ROWS = "f8[::1]", "i8[::1]"

match = compiled(
    f"i8({', '.join([_ROWS] * 3 + [_VECTOR] * 2 + [_ROWS] * 2 + [_VECTOR])})"
)(match_up)
draw = compiled(f"Tuple((i8, f8))({_ROWS}, {_ROWS}, {_VECTOR}, i8, f8)")(draw_from)


@compiled(f"void({_ROWS}, {', '.join([_VECTOR] * 5)})")
def descend(
    parent: Ints, rate: Floats, delta: Floats, q: Floats, c: Floats, after: Floats
) -> None:
    """Twin of ``TreeDescent._step_by_level``: from the last vertex to the root, siblings together."""
    last = len(parent) - 1
    while last > 0:
        above = parent[last]
        begin = last
        while begin > 1 and parent[begin - 1] == above:
            begin -= 1
        lowest, b = inf, inf
        for v in range(begin, last + 1):
            lowest = min(lowest, c[v])
        for v in range(begin, last + 1):
            b = min(
                b, c[v] - lowest + log((1.0 + delta[v]) / (q[v] + delta[v])) / rate[v]
            )
        total = 1.0
        for _ in range(MOST_STEPS):
            total, slope = 0.0, 0.0
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
