"""Every rival that is written by hand, and nothing else: what a library costs beside a dozen lines.

The same rows are part of the suites finite, drift, combinatorial and streaming; this one takes minutes.
"""

from __future__ import annotations

from . import hand_drift, hand_finite, hand_readme
from .combinatorial import BY_HAND, titsias
from .measure import Results, at_most, bandwidth, cpu_over

MOST = 1.3
"""What ours may cost, in processor times of the rival."""


def run(*, quick: bool = False, repeats: int | None = None) -> Results:
    repeats = repeats or (2 if quick else 9)
    speed = bandwidth(3)
    rows = hand_finite.rows(quick)
    drifting, limits = hand_drift.rows(quick, speed)
    rows += drifting
    size = 100 if quick else 1245
    rows += [titsias(size, points, repeats, BY_HAND) for points in (10, 50)]
    rows += hand_readme.rows(quick)
    text = "{}: ours over {}, CPU"
    return Results(
        suite="hand",
        rows=rows,
        limits={"bytes read from memory in a second": speed, **limits},
        facts=hand_finite.forms(quick),
        targets=[
            at_most(text.format(one.case, one.peer), cpu_over(one), MOST)
            for one in rows
        ],
    )
