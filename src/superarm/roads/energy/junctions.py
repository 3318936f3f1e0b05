"""How a car drives through junctions: it slows down, looks, waits, and accelerates again.

=================  =====================================================================
``v``, ``u``       speed limit of an edge, and speed at the line where its junction begins, m/s
``a``, ``b``       acceleration and braking, m/s²: those of SUMO's passenger cars
=================  =====================================================================

Braking from v to u takes (v − u)/b seconds and (v² − u²)/2b metres, so that (v − u)²/2bv seconds are
lost against driving on at v; likewise with a.

Who has to give way brakes until it is seen that nobody comes, and accelerates from there: with speed u
that must be seen u²/2b metres before the line.

Who comes r seconds before a signal turns green waits for r seconds, and then begins to accelerate from
0, not from u. Who comes at any time waits Σ r²/2 over the cycle on average, the sum over its reds.
Signals that are near each other depend on each other: ``drive_time`` goes from one to the next with
the phases that they have; ``turn_seconds``, a sum over turns, cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from superarm.core import Floats, Ints

if TYPE_CHECKING:
    from superarm.roads.networks.line_graph import LineGraph

ACCELERATION, BRAKING = 2.6, 4.5
UTURN_SECONDS = 20.0
"""What turning back costs beside what the junction takes, as OSRM has it."""
STANDSTILL = 0.1  # m/s, of who stops at a stop sign
_DEPARTURES = (
    32  # over which a duration is averaged where it is not said when the trip begins
)
_STOPS = "ryuRYU"


class Signal(NamedTuple):
    """When cars have to stop on one way through a junction, in seconds of a cycle that repeats."""

    cycle: float
    offset: float  # when a first cycle begins
    reds: tuple[
        tuple[float, float], ...
    ]  # from and to; the last may end in the next cycle
    yields: bool  # whether one must give way even when it is green

    @classmethod
    def of(
        cls,
        phases: Sequence[tuple[float, str]],
        *,
        offset: float = 0.0,
        speed: float = 0.0,
    ) -> Signal:
        """From the phases' seconds and SUMO's states ("G", "g", "y", "r" …).

        Yellow stops only who can stop: who comes with ``speed`` in its first v/2b seconds goes on.
        """
        first = next(
            (number for number, (_, state) in enumerate(phases) if state not in _STOPS),
            0,
        )
        time = sum(seconds for seconds, _ in phases[:first])
        cycle, reds, yielding = (
            time + sum(seconds for seconds, _ in phases[first:]),
            [],
            0.0,
        )
        for red, run in groupby(
            [*phases[first:], *phases[:first]], lambda each: each[1] in _STOPS
        ):
            part = list(run)
            seconds, state = part[0]
            end = time + sum(each for each, _ in part)
            if red:
                reds.append(
                    (
                        time + min(seconds, speed / (2.0 * BRAKING)) * (state in "yY"),
                        end,
                    )
                )
            yielding += sum(each for each, state in part if state in "gos")
            time = end
        green = cycle - sum(end - begin for begin, end in reds)
        return cls(cycle, offset, tuple(reds), yielding > 0.5 * green)

    @property
    def wait(self) -> float:
        """Expected seconds of who comes at any time."""
        return sum((end - begin) ** 2 for begin, end in self.reds) / (2.0 * self.cycle)

    @property
    def stop(self) -> float:
        """How likely one has to stop who comes at any time."""
        return sum(end - begin for begin, end in self.reds) / self.cycle

    def waits(self, times: Floats) -> Floats:
        """Seconds that who comes at these times has to wait; 0: it is green."""
        wait = np.zeros_like(times)
        for begin, end in self.reds:
            since = (times - self.offset - begin) % self.cycle
            wait = np.maximum(wait, end - begin - since)
        return wait


def yielding_speed(sight: float) -> float:
    """With which one can still stop where, ``sight`` metres before a junction, one sees who comes."""
    return sqrt(2.0 * BRAKING * sight)


class JunctionSpeeds(NamedTuple):
    """m/s at each turn of a graph, of who need not stop, (c,)."""

    before: Floats  # the most that is reached on the edge before, if that begins with such a turn too
    slow: Floats  # to which one brakes: where one must look before one enters, already there
    enter: Floats
    leave: Floats
    after: Floats  # the most that is reached on the edge after, if that ends with such a turn too


def junction_speeds(graph: LineGraph, turns: Ints | None = None) -> JunctionSpeeds:
    """From the speed limits, and what can be reached on edges that are short.

    ``turns`` are places in ``graph.turns``; by default all of them.
    """
    at = slice(None) if turns is None else turns
    ends, entry, through = graph.turns[at], graph.turn_entry[at], graph.turn_speed[at]
    limits = graph.speed[ends].T
    inside = np.minimum(*limits)
    inside = np.where(through > 0.0, np.minimum(through, inside), inside)
    slow = np.where(entry > 0.0, np.minimum(entry, inside), inside)
    enter = np.minimum(inside, np.sqrt(slow**2 + entry**2 * ACCELERATION / BRAKING))
    leave = np.minimum(
        inside, np.sqrt(enter**2 + 2.0 * ACCELERATION * graph.turn_length[at])
    )
    # On a short edge between two turns one accelerates until one has to brake: 1/a to 1/b of the way.
    metres = graph.length[ends].T * 2.0 / (1.0 / ACCELERATION + 1.0 / BRAKING)
    before, after = np.minimum(limits, np.sqrt(np.stack([slow, leave]) ** 2 + metres))
    return JunctionSpeeds(before, slow, enter, leave, after)


def turn_seconds(graph: LineGraph) -> Floats:
    """See :attr:`superarm.roads.networks.LineGraph.turn_seconds`."""
    before, slow, enter, leave, after = junction_speeds(graph)
    limits = graph.speed[graph.turns].T
    braking = _lost(before, slow, limits[0])
    accelerating = _lost(enter, slow, limits[0]) + _lost(after, leave, limits[1])
    faster = (leave**2 - enter**2) / (2.0 * ACCELERATION)
    through = (leave - enter) / ACCELERATION + (graph.turn_length - faster) / leave
    stopping = graph.turn_wait + graph.turn_stop * enter / (2.0 * ACCELERATION)
    lost = braking / BRAKING + accelerating / ACCELERATION
    return lost + through + stopping + UTURN_SECONDS * graph.is_uturn


def _lost(fast: Floats, slow: Floats, limit: Floats) -> Floats:
    """Seconds lost against the limit by changing speed from one to the other at 1 m/s²."""
    return (fast - slow) - (fast**2 - slow**2) / (2.0 * limit)


def drive_time(
    graph: LineGraph,
    route: Ints | Sequence[int],
    departure: float | None = None,
    *,
    shares: Floats | None = None,
) -> float:
    """Seconds that a car takes for a route on empty roads.

    It begins with the first edge's speed limit, or as fast as it can still brake for the junction, and
    passes its end without braking for it. Signals show what they do for who begins at ``departure``, in
    seconds since they began; without one it is the mean over a cycle. U-turns take as long as their
    junction takes, not ``UTURN_SECONDS``. ``shares``: how much of each edge is driven, 0 to 1, (k,),
    less than 1 where a route begins or ends on an edge; by default all of it.
    """
    edges = np.asarray(route, dtype=np.intp)
    lengths = (
        graph.length[edges] if shares is None else shares * graph.length[edges]
    )  # (k,)
    turns = graph.turn_numbers(edges)
    metres, limit, most = _pieces(graph, edges, turns, lengths)
    _brake(metres, most)
    moving = _times(metres, limit, most)
    lines = np.cumsum(moving)[
        1::3
    ]  # when the car is at each junction, if it never waits
    known = [graph.signals.get(turn) for turn in turns.tolist()]
    cycle = max((signal.cycle for signal in known if signal is not None), default=0.0)
    times = (
        np.linspace(0.0, cycle, _DEPARTURES, endpoint=False)
        if departure is None
        else [departure]
    )
    begin = np.array(times, dtype=np.float64)
    late = np.zeros_like(begin)
    for number, (turn, signal) in enumerate(zip(turns.tolist(), known, strict=True)):
        if graph.turn_stop[turn] == 0.0 and graph.turn_wait[turn] == 0.0:
            continue
        rest = slice(3 * number + 2, None)
        from_rest = most[rest].copy()
        from_rest[0] = 0.0
        again = _times(metres[rest], limit[rest], from_rest).sum() - moving[rest].sum()
        if signal is None:
            late += graph.turn_wait[turn] + graph.turn_stop[turn] * again
        else:
            wait = signal.waits(begin + late + lines[number])
            late += np.where(wait > 0.0, wait + again, 0.0)
    return float(moving.sum() + late.mean())


class BorderSpeeds(NamedTuple):
    """v² where an edge and the junction behind it end and the next edge begins, (m/s)², (k − 1,)."""

    mean: Floats
    variance: Floats  # of stopping or not, (m/s)⁴
    free: Floats  # of who need not stop
    start: float  # v² where the route begins, and where it ends: the highest that is possible there
    end: float


def border_speeds(
    graph: LineGraph,
    route: Ints | Sequence[int],
    *,
    from_rest: bool = False,
    to_rest: bool = False,
) -> BorderSpeeds:
    """How fast a car is expected to be between the k edges of a route on empty roads.

    Who stops at a junction, with probability p, accelerates from 0 through its L metres. So v² is
    min(v_free², 2aL) with probability p and v_free² otherwise: its mean is a mixture of both, and its
    variance p(1 − p) times their difference squared.

    Args:
        graph: the roads.
        route: numbers of its edges, each of which leads into the next.
        from_rest: whether the route starts at rest; otherwise at the speed that is allowed.
        to_rest: whether it ends at rest.
    """
    edges = np.asarray(route, dtype=np.intp)
    turns = graph.turn_numbers(edges)
    metres, _, most = _pieces(graph, edges, turns, graph.length[edges])
    if from_rest:
        most[0] = 0.0
    if to_rest:
        most[-1] = 0.0
    _brake(metres, most)
    ends = _accelerate(metres, most)
    free = np.square(ends[3:-1:3])
    stops = np.clip(np.maximum(graph.turn_stop, graph.is_uturn)[turns], 0.0, 1.0)
    stopped = np.minimum(free, 2.0 * ACCELERATION * graph.turn_length[turns])
    mean = (1.0 - stops) * free + stops * stopped
    variance = stops * (1.0 - stops) * np.square(free - stopped)
    last = float(np.square(ends[-1]))
    if len(turns):  # who stopped before the last edge may not be as fast at its end
        after_stop = min(last, stopped[-1] + 2.0 * ACCELERATION * metres[-1])
        last = (1.0 - stops[-1]) * last + stops[-1] * after_stop
    return BorderSpeeds(
        mean, variance, free, start=float(np.square(ends[0])), end=float(last)
    )


def _pieces(
    graph: LineGraph, edges: Ints, turns: Ints, lengths: Floats
) -> tuple[Floats, Floats, Floats]:
    """A route in pieces, three for each edge: to where one looks, to the junction, through it.

    ``lengths`` are the metres of each edge that are driven, (k,). Returns metres and speed limit of
    each piece, (3k − 2,), and the most that is allowed at their ends, (3k − 1,).
    """
    look = graph.turn_entry[turns]
    sight = np.minimum(look**2 / (2.0 * BRAKING), lengths[:-1])
    metres, limit = np.zeros((2, len(edges), 3))
    metres[:, 0], metres[:-1, 1], metres[:-1, 2] = (
        lengths,
        sight,
        graph.turn_length[turns],
    )
    metres[:-1, 0] -= sight
    limit[:, :2], limit[:-1, 2] = graph.speed[edges, None], graph.turn_speed[turns]
    limit[limit == 0.0] = np.inf
    metres, limit = metres.ravel()[:-2], limit.ravel()[:-2]
    most = np.minimum(np.append(limit, np.inf), np.append(np.inf, limit))
    most[1:-1:3] = np.minimum(most[1:-1:3], np.where(look > 0.0, look, np.inf))
    return metres, limit, most


def _brake(metres: Floats, most: Floats) -> None:
    """Lower ``most``, the speeds at the ends of pieces, to those from which one can brake in time."""
    for piece in reversed(range(len(metres))):
        most[piece] = min(
            most[piece], sqrt(most[piece + 1] ** 2 + 2.0 * BRAKING * metres[piece])
        )


def _accelerate(metres: Floats, most: Floats) -> Floats:
    """The speeds at the ends of pieces that are reached: at most so many."""
    ends = most.copy()
    for piece in range(len(metres)):
        ends[piece + 1] = min(
            ends[piece + 1], sqrt(ends[piece] ** 2 + 2.0 * ACCELERATION * metres[piece])
        )
    return ends


def _times(metres: Floats, limit: Floats, most: Floats) -> Floats:
    """Seconds for each piece of a way; ``most`` is the speed at its ends, from which one can brake."""
    ends = _accelerate(metres, most)
    first, last = ends[:-1], ends[1:]
    highest = (
        2.0 * ACCELERATION * BRAKING * metres
        + BRAKING * first**2
        + ACCELERATION * last**2
    )
    top = np.minimum(limit, np.sqrt(highest / (ACCELERATION + BRAKING)))
    top = np.maximum(top, np.maximum(first, last))
    changing = (top**2 - first**2) / (2.0 * ACCELERATION) + (top**2 - last**2) / (
        2.0 * BRAKING
    )
    steady = np.maximum(metres - changing, 0.0) / top
    return (top - first) / ACCELERATION + (top - last) / BRAKING + steady
