"""How a car drives through junctions: it slows down, looks, waits, and accelerates again.

=================  =====================================================================
``v``              speed limit of an edge, m/s
``u``              speed at which a junction is entered, ``w`` at which it is left
``a``, ``b``       acceleration and braking, m/s²: those of SUMO's passenger cars
=================  =====================================================================

Braking from v to u takes (v − u)/b seconds and (v² − u²)/2b metres, so that (v − u)²/2bv seconds are
lost against driving on at v; likewise with a.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from superarm.core import Floats, Ints

if TYPE_CHECKING:
    from .road import LineGraph

ACCELERATION, BRAKING = 2.6, 4.5
UTURN_SECONDS = 20.0
_STOPPED = "ryuRYU"


class Waiting(NamedTuple):
    """What a signal means for cars that come at any time."""

    seconds: float  # expected
    stops: float  # share of cars that have to stop
    yields: bool  # whether those that need not stop must still give way


def signal(states: Sequence[tuple[float, str]], passing: float = 0.0) -> Waiting:
    """A program that repeats, as seconds and SUMO's states of one link ("G", "g", "y", "r" …).

    Who comes r seconds before it is green waits for r: Σ r²/2 over the cycle, on average. Yellow stops
    only who can stop: those that come in its first ``passing`` seconds cannot.
    """
    cycle = sum(seconds for seconds, _ in states)
    first = next((number for number, (_, state) in enumerate(states) if state not in _STOPPED), 0)
    wait = stopped = yielding = 0.0
    for is_red, run in groupby([*states[first:], *states[:first]], lambda each: each[1] in _STOPPED):
        phases = list(run)
        seconds = sum(each for each, _ in phases)
        if is_red:
            yellow = phases[0][0] if phases[0][1] in "yY" else 0.0
            red = seconds - min(yellow, passing)
            wait, stopped = wait + 0.5 * red * red, stopped + red
        else:
            yielding += sum(each for each, state in phases if state in "gos")
    if cycle == 0.0:
        return Waiting(0.0, 0.0, False)
    return Waiting(wait / cycle, stopped / cycle, yielding > 0.5 * (cycle - stopped))


def yielding_speed(sight: float) -> float:
    """At which a junction is entered where one sees only ``sight`` metres before it if one may go on.

    Until then the car can still stop; from there it accelerates.
    """
    return sqrt(2.0 * (ACCELERATION + BRAKING) * sight)


class JunctionSpeeds(NamedTuple):
    """m/s at each turn of a graph, of who need not stop, (c,)."""

    before: Floats  # the most that is reached on the edge before, if that begins with such a turn too
    enter: Floats
    leave: Floats
    after: Floats  # the most that is reached on the edge after, if that ends with such a turn too


def junction_speeds(graph: LineGraph) -> JunctionSpeeds:
    """From the speed limits, and what can be reached on edges that are short."""
    limit = graph.speed[graph.turns].min(axis=1)
    inside = np.where(graph.turn_speed > 0.0, np.minimum(graph.turn_speed, limit), limit)
    enter = np.where(graph.turn_entry > 0.0, np.minimum(graph.turn_entry, inside), inside)
    leave = np.minimum(inside, np.sqrt(enter**2 + 2.0 * ACCELERATION * graph.turn_length))
    # On a short edge between two turns one accelerates until one has to brake: 1/a to 1/b of the way.
    metres = graph.length[graph.turns] * 2.0 / (1.0 / ACCELERATION + 1.0 / BRAKING)
    before, after = np.sqrt(np.stack([enter, leave], axis=1) ** 2 + metres).T
    limits = graph.speed[graph.turns].T
    return JunctionSpeeds(np.minimum(before, limits[0]), enter, leave, np.minimum(after, limits[1]))


def turn_seconds(graph: LineGraph) -> Floats:
    """See :attr:`superarm.networks.LineGraph.turn_seconds`."""
    before, enter, leave, after = junction_speeds(graph)
    limits = graph.speed[graph.turns].T
    braking, accelerating = _lost(before, enter, limits[0]), _lost(after, leave, limits[1])
    faster = (leave**2 - enter**2) / (2.0 * ACCELERATION)
    through = (leave - enter) / ACCELERATION + (graph.turn_length - faster) / leave
    stopping = graph.turn_wait + graph.turn_stop * enter / (2.0 * ACCELERATION)
    lost = braking / BRAKING + accelerating / ACCELERATION
    return lost + through + stopping + UTURN_SECONDS * graph.is_uturn


def _lost(fast: Floats, slow: Floats, limit: Floats) -> Floats:
    """Seconds lost against the limit by changing speed from one to the other at 1 m/s²."""
    return (fast - slow) - (fast**2 - slow**2) / (2.0 * limit)


def drive_time(graph: LineGraph, route: Ints | Sequence[int]) -> float:
    """Seconds that a car takes for a route on empty roads, with the expected waits at signals.

    It begins at the first edge's speed limit and leaves the last without braking.
    """
    edges = np.asarray(route, dtype=np.intp)
    turns = graph.turn_numbers(edges)
    metres, limit = np.zeros((2, 2 * len(edges) - 1))
    metres[::2], limit[::2] = graph.length[edges], graph.speed[edges]
    metres[1::2], limit[1::2] = graph.turn_length[turns], graph.turn_speed[turns]
    limit[limit == 0.0] = np.inf
    border = np.empty(len(metres) + 1)  # the largest speed between one piece and the next
    border[0], border[-1] = limit[0], limit[-1]
    border[1:-1] = np.minimum(limit[:-1], limit[1:])
    entry = graph.turn_entry[turns]
    border[1:-1:2] = np.minimum(border[1:-1:2], np.where(entry > 0.0, entry, np.inf))
    for piece in range(len(metres)):
        border[piece + 1] = min(
            border[piece + 1], sqrt(border[piece] ** 2 + 2.0 * ACCELERATION * metres[piece])
        )
    for piece in reversed(range(len(metres))):
        border[piece] = min(border[piece], sqrt(border[piece + 1] ** 2 + 2.0 * BRAKING * metres[piece]))
    u, w = border[:-1], border[1:]
    peak = 2.0 * ACCELERATION * BRAKING * metres + BRAKING * u**2 + ACCELERATION * w**2
    top = np.minimum(limit, np.sqrt(peak / (ACCELERATION + BRAKING)))
    top = np.maximum(top, np.maximum(u, w))
    changing = (top**2 - u**2) / (2.0 * ACCELERATION) + (top**2 - w**2) / (2.0 * BRAKING)
    seconds = (top - u) / ACCELERATION + (top - w) / BRAKING + (metres - changing) / top
    stopping = graph.turn_wait[turns] + graph.turn_stop[turns] * border[1:-1:2] / (2.0 * ACCELERATION)
    return float(seconds.sum() + stopping.sum())
