"""When each edge of a route was passed, from where the car was after every time step.

The seconds of a step belong to the edge that the car is on; inside a junction to the edge just
left. A step across several edges is divided by the metres driven on each, so that an edge too short
to be seen gets its share and nothing is lost. Time is thus cut into one stretch per edge, and two
numbers say all of it: when the end of the edge was reached, and when the junction behind it was left.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from superarm.core import Bools, Floats, Ints


class Passing(NamedTuple):
    """Seconds from departure."""

    reached: Floats  # the end of each edge, (k,)
    left: Floats  # the junction behind it, (k,); of edges to come, the end of the trip


def passing(
    lengths: Floats,
    times: Floats,
    index: Ints,
    place: Floats,
    inside: Bools,
    odometer: Floats,
) -> Passing:
    """When each of k edges was passed, seen at n + 1 ``times``, the first of which is the departure.

    ``index``: the edge that the car was on, ``place`` metres behind its beginning; or ``inside`` the
    junction behind it, ``place`` being its length. All (n + 1,).
    """
    reached, left = np.full((2, len(lengths)), times[-1])
    passed = (np.diff(index) > 0) | (inside[1:] & ~inside[:-1])
    for number in np.flatnonzero(passed).tolist():
        first, last = int(index[number]), int(index[number + 1])
        began, ended = float(times[number]), float(times[number + 1])
        metres = float(odometer[number + 1] - odometer[number])
        pace = (ended - began) / metres if metres > 0.0 else 0.0  # seconds per metre
        back = float(
            place[number + 1]
        )  # metres from the end of the step to the edge's beginning
        if last > first and inside[number + 1]:
            reached[last] = ended
        for edge in range(last - 1, first - 1, -1):
            left[edge] = ended - pace * min(back, metres)
            if edge > first:  # crossed unseen, with its junction
                reached[edge] = left[edge]
            back += float(lengths[edge])
        if not inside[number]:
            here = began + pace * max(0.0, float(lengths[first] - place[number]))
            reached[first] = min(here, left[first] if last > first else ended)
    return Passing(reached, left)
