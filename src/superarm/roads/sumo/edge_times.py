"""When each edge of a route was passed, from where the car was after every time step.

The seconds of a step belong to the edge that the car is on; inside a junction to the edge just
left. A step across several edges is divided by the metres driven on each, so that an edge too short
to be seen gets its share and nothing is lost. Time is thus cut into one stretch per edge, and two
numbers describe it: when the end of the edge was reached, and when the junction behind it was left.
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
    """Return when each of k edges was passed, by where the car was at n + 1 times.

    Args:
        lengths: Metres of each edge, (k,).
        times: Seconds; the first is the departure, (n + 1,).
        index: The edge that the car was on, (n + 1,).
        place: Metres behind its beginning; inside a junction the length of the edge, (n + 1,).
        inside: Whether the car was inside the junction behind that edge, (n + 1,).
        odometer: Metres driven, (n + 1,).
    """
    reached = np.full(len(lengths), times[-1])
    left = np.full(len(lengths), times[-1])
    is_next_edge = np.diff(index) > 0
    enters_junction = inside[1:] & ~inside[:-1]
    steps = np.flatnonzero(is_next_edge | enters_junction)
    for step in steps.tolist():
        first = int(index[step])
        last = int(index[step + 1])
        began = float(times[step])
        ended = float(times[step + 1])
        metres = float(odometer[step + 1] - odometer[step])
        pace = 0.0  # seconds per metre
        if metres > 0.0:
            pace = (ended - began) / metres
        if last > first and inside[step + 1]:
            reached[last] = ended
        # Metres from the end of the step back to the beginning of an edge.
        back = float(place[step + 1])
        for edge in range(last - 1, first - 1, -1):
            left[edge] = ended - pace * min(back, metres)
            if edge > first:  # crossed unseen, with its junction
                reached[edge] = left[edge]
            back += float(lengths[edge])
        if not inside[step]:
            ahead = max(0.0, float(lengths[first] - place[step]))
            latest = ended
            if last > first:
                latest = left[first]
            reached[first] = min(began + pace * ahead, latest)
    return Passing(reached, left)
