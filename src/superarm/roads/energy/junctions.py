"""How a car drives through junctions: it slows down, looks, waits, and accelerates again.

=================  =====================================================================
``v``, ``u``       speed limit of an edge, and speed at the line where its junction begins, m/s
``a``, ``b``       acceleration and braking, m/s²: those of SUMO's passenger cars
=================  =====================================================================

Braking from v to u takes (v − u)/b seconds and (v² − u²)/2b metres, so that (v − u)²/2bv seconds are
lost against driving on at v; likewise with a.

A car that has to give way brakes until it is seen that nobody comes, and accelerates from there: with
speed u that must be seen u²/2b metres before the line.

A car that comes r seconds before a signal turns green waits for r seconds, and then accelerates from
0, not from u. Who comes at any time waits Σ r²/2 over the cycle on average, the sum over its reds.
Signals that are near each other depend on each other: ``drive_time`` drives from one to the next with
the phases that they have; ``turn_seconds``, a sum over turns, cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.errors import InputError

if TYPE_CHECKING:
    from superarm.roads.networks.line_graph import LineGraph

ACCELERATION = 2.6
BRAKING = 4.5
UTURN_SECONDS = 20.0
"""What turning back costs beside what the junction takes, as in OSRM."""
STANDSTILL = 0.1
"""The speed of a car that stops at a stop sign, m/s."""
# Metres to gain and lose ½(m/s)² again.
_METRES_PER_GAIN = 1.0 / ACCELERATION + 1.0 / BRAKING
# Departures over which a duration is averaged if none is set.
_DEPARTURES = 32
# SUMO's states of a signal: red, yellow and red-yellow.
_STOPS = "ryuRYU"
_YELLOW = "yY"
# Green without priority, off and blinking, and green after a stop.
_YIELDING = "gos"


class Signal(NamedTuple):
    """When cars have to stop on one way through a junction, in seconds of a cycle that repeats."""

    cycle: float
    offset: float  # when a first cycle begins
    # From, to; the last may end in the next cycle.
    reds: tuple[tuple[float, float], ...]
    yields: bool  # whether one must give way even when it is green

    @classmethod
    def from_phases(
        cls,
        phases: Sequence[tuple[float, str]],
        *,
        offset: float = 0.0,
        speed: float = 0.0,
    ) -> Signal:
        """Build a signal from its phases.

        Yellow stops only who can stop: a car that comes in its first v/2b seconds drives on.

        Args:
            phases: The seconds of each phase, and SUMO's state ("G", "g", "y", "r" …).
            offset: When a first cycle begins, seconds.
            speed: How fast cars come, m/s.
        """
        first_green = 0
        for number, (_, state) in enumerate(phases):
            if state not in _STOPS:
                first_green = number
                break
        time = sum(seconds for seconds, _ in phases[:first_green])
        cycle = time + sum(seconds for seconds, _ in phases[first_green:])
        reds: list[tuple[float, float]] = []
        yielding = 0.0
        # From a green phase on, so that no red is cut in two.
        rotated = [*phases[first_green:], *phases[:first_green]]
        for is_red, run in groupby(rotated, _is_red):
            part = list(run)
            end = time + sum(seconds for seconds, _ in part)
            if is_red:
                seconds, state = part[0]
                drives_on = 0.0
                if state in _YELLOW:
                    drives_on = min(seconds, speed / (2.0 * BRAKING))
                reds.append((time + drives_on, end))
            yielding += sum(seconds for seconds, state in part if state in _YIELDING)
            time = end
        green = cycle - sum(end - begin for begin, end in reds)
        return cls(cycle, offset, tuple(reds), yielding > 0.5 * green)

    @property
    def wait(self) -> float:
        """Expected seconds of waiting of who comes at any time."""
        return sum((end - begin) ** 2 for begin, end in self.reds) / (2.0 * self.cycle)

    @property
    def stop(self) -> float:
        """Probability of having to stop of who comes at any time."""
        return sum(end - begin for begin, end in self.reds) / self.cycle

    def waits(self, times: Floats) -> Floats:
        """Return seconds of waiting; 0: it is green.

        Args:
            times: When cars come, seconds.
        """
        wait = np.zeros_like(times)
        for begin, end in self.reds:
            since = (times - self.offset - begin) % self.cycle
            wait = np.maximum(wait, end - begin - since)
        return wait


def _is_red(phase: tuple[float, str]) -> bool:
    _, state = phase
    return state in _STOPS


def yielding_speed(sight: float) -> float:
    """Return the speed with which one can still stop before a junction, m/s.

    Args:
        sight: Metres before the junction from which one sees who comes.
    """
    return sqrt(2.0 * BRAKING * sight)


# --- all turns of a graph ------------------------------------------------------------------


class JunctionSpeeds(NamedTuple):
    """m/s at each turn of a graph, of who need not stop, (c,)."""

    before: Floats  # the most that is reached on the edge before, if that begins with such a turn too
    slow: Floats  # to which one brakes: where one must look before one enters, already there
    enter: Floats
    leave: Floats
    after: Floats  # the most that is reached on the edge after, if that ends with such a turn too


def junction_speeds(graph: LineGraph, turns: Ints | None = None) -> JunctionSpeeds:
    """Return the speeds at turns, by speed limits and what can be reached on edges that are short.

    Args:
        graph: The roads.
        turns: Places in ``graph.turns``; by default all of them.
    """
    rows = slice(None) if turns is None else turns
    ends = graph.turns[rows]
    entry = graph.turn_entry[rows]
    through = graph.turn_speed[rows]
    limit_before, limit_after = graph.speed[ends].T
    inside = np.minimum(limit_before, limit_after)
    inside = np.where(through > 0.0, np.minimum(through, inside), inside)
    slow = np.where(entry > 0.0, np.minimum(entry, inside), inside)
    # From where one looks to the line one accelerates over entry²/2b metres.
    enter_square = slow**2 + entry**2 * ACCELERATION / BRAKING
    enter = np.minimum(inside, np.sqrt(enter_square))
    leave_square = enter**2 + 2.0 * ACCELERATION * graph.turn_length[rows]
    leave = np.minimum(inside, np.sqrt(leave_square))
    # On a short edge between two turns one accelerates until one has to brake: 1/a to 1/b of the way.
    length_before, length_after = graph.length[ends].T
    before_square = slow**2 + length_before * 2.0 / _METRES_PER_GAIN
    after_square = leave**2 + length_after * 2.0 / _METRES_PER_GAIN
    before = np.minimum(limit_before, np.sqrt(before_square))
    after = np.minimum(limit_after, np.sqrt(after_square))
    return JunctionSpeeds(before, slow, enter, leave, after)


def turn_seconds(graph: LineGraph) -> Floats:
    """Return :attr:`superarm.roads.networks.LineGraph.turn_seconds`."""
    speeds = junction_speeds(graph)
    enter = speeds.enter
    leave = speeds.leave
    limit_before, limit_after = graph.speed[graph.turns].T
    braking = _lost(speeds.before, speeds.slow, limit_before)
    accelerating_before = _lost(enter, speeds.slow, limit_before)
    accelerating_after = _lost(speeds.after, leave, limit_after)
    accelerating = accelerating_before + accelerating_after
    lost = braking / BRAKING + accelerating / ACCELERATION
    accelerating_metres = (leave**2 - enter**2) / (2.0 * ACCELERATION)
    steady = (graph.turn_length - accelerating_metres) / leave
    through = (leave - enter) / ACCELERATION + steady
    stopping = graph.turn_wait + graph.turn_stop * enter / (2.0 * ACCELERATION)
    return lost + through + stopping + UTURN_SECONDS * graph.is_uturn


def _lost(fast: Floats, slow: Floats, limit: Floats) -> Floats:
    """Return seconds lost against the limit by changing speed from one to the other at 1 m/s²."""
    return (fast - slow) - (fast**2 - slow**2) / (2.0 * limit)


# --- along a route -------------------------------------------------------------------------


def drive_time(
    graph: LineGraph,
    route: Ints | Sequence[int],
    departure: float | None = None,
    *,
    shares: Floats | None = None,
) -> float:
    """Return the seconds that a car takes for a route on empty roads.

    It begins with the first edge's speed limit, or as fast as it can still brake for the junction, and
    passes its end without braking for it. U-turns take as long as their junction takes, not
    ``UTURN_SECONDS``.

    Args:
        graph: The roads.
        route: Numbers of its edges, each of which leads into the next.
        departure: When the trip begins, in seconds since signals began their programs; by default the
            mean over a cycle.
        shares: How much of each edge is driven, 0 to 1, (k,), less than 1 where a route begins or ends
            on an edge; by default all of it.
    """
    edges = np.asarray(route, dtype=np.intp)
    lengths = graph.length[edges]  # (k,)
    if shares is not None:
        lengths = shares * lengths
    turns = graph.turn_numbers(edges)
    pieces = _split_route(graph, edges, turns, lengths)
    _brake(pieces.metres, pieces.most)
    moving = _piece_seconds(pieces.metres, pieces.limit, pieces.most)
    # When the car is at the line of each junction, if it never waits.
    at_line = np.cumsum(moving)[_IN_SIGHT]
    signals = [graph.signals.get(turn) for turn in turns.tolist()]
    begin = _departures(signals, departure)
    late = np.zeros_like(begin)
    for number, (turn, signal) in enumerate(zip(turns.tolist(), signals, strict=True)):
        stop = graph.turn_stop[turn]
        wait = graph.turn_wait[turn]
        if stop == 0.0 and wait == 0.0:
            continue
        restart = _restart_seconds(pieces, moving, number)
        if signal is None:
            late += wait + stop * restart
        else:
            waits = signal.waits(begin + late + at_line[number])
            late += np.where(waits > 0.0, waits + restart, 0.0)
    return float(moving.sum() + late.mean())


def _departures(signals: Sequence[Signal | None], departure: float | None) -> Floats:
    """Return the times at which a trip begins: one, or several over the longest cycle."""
    if departure is not None:
        return np.array([departure], dtype=np.float64)
    cycles = [signal.cycle for signal in signals if signal is not None]
    longest = max(cycles, default=0.0)
    return np.linspace(0.0, longest, _DEPARTURES, endpoint=False)


def _restart_seconds(pieces: _RoutePieces, moving: Floats, junction: int) -> float:
    """Return seconds lost by driving from rest at the line of a junction, to the end of the route."""
    remaining = slice(_PIECES_PER_EDGE * junction + 2, None)
    from_rest = pieces.most[remaining].copy()
    from_rest[0] = 0.0
    seconds = _piece_seconds(
        pieces.metres[remaining], pieces.limit[remaining], from_rest
    )
    lost: float = seconds.sum() - moving[remaining].sum()
    return lost


class BorderSpeeds(NamedTuple):
    """v² where an edge and the junction behind it end and the next edge begins, (m/s)², (k − 1,)."""

    mean: Floats
    variance: Floats  # of stopping or not, (m/s)⁴
    free: Floats  # of who need not stop
    start: float  # v² where the route begins: the highest that is possible there
    end: float  # v² where the route ends: the highest that is possible there


def border_speeds(
    graph: LineGraph,
    route: Ints | Sequence[int],
    *,
    from_rest: bool = False,
    to_rest: bool = False,
) -> BorderSpeeds:
    """Return how fast a car is expected to be between the k edges of a route on empty roads.

    Who stops at a junction, with probability p, accelerates from 0 through its L metres. So v² is
    min(v_free², 2aL) with probability p and v_free² otherwise: its mean is a mixture of both, and its
    variance p(1 − p) times their difference squared.

    Args:
        graph: The roads.
        route: Numbers of its edges, at least one, each of which leads into the next.
        from_rest: Whether the route starts at rest; otherwise at the speed that is allowed.
        to_rest: Whether it ends at rest.
    """
    edges = np.asarray(route, dtype=np.intp)
    if not len(edges):
        raise InputError(
            "route is empty, so it has no speed at its start or end; pass at least one edge"
        )
    turns = graph.turn_numbers(edges)
    metres, _, most = _split_route(graph, edges, turns, graph.length[edges])
    if from_rest:
        most[0] = 0.0
    if to_rest:
        most[-1] = 0.0
    _brake(metres, most)
    speeds = _accelerate(metres, most)
    free = np.square(speeds[_EDGE_STARTS])
    stops = np.maximum(graph.turn_stop[turns], graph.is_uturn[turns])
    stops = np.clip(stops, 0.0, 1.0)
    stopped = np.minimum(free, 2.0 * ACCELERATION * graph.turn_length[turns])
    mean = (1.0 - stops) * free + stops * stopped
    variance = stops * (1.0 - stops) * np.square(free - stopped)
    end = float(np.square(speeds[-1]))
    if len(turns):  # who stopped before the last edge may not be as fast at its end
        after_stop = min(end, stopped[-1] + 2.0 * ACCELERATION * metres[-1])
        end = (1.0 - stops[-1]) * end + stops[-1] * after_stop
    start = float(np.square(speeds[0]))
    return BorderSpeeds(mean, variance, free, start=start, end=float(end))


# Each edge of a route but the last has three pieces: the approach to where one looks, the metres
# in sight of the junction, and those inside it. The last edge has an approach only.
_PIECES_PER_EDGE = 3
# Among 3k − 2 pieces:
_APPROACHES = slice(0, None, _PIECES_PER_EDGE)
_IN_SIGHT = slice(1, None, _PIECES_PER_EDGE)
_INSIDE = slice(2, None, _PIECES_PER_EDGE)
# Among their 3k − 1 ends: where one looks, and where the second and further edges begin.
_LOOKS = slice(1, -1, _PIECES_PER_EDGE)
_EDGE_STARTS = slice(3, -1, _PIECES_PER_EDGE)


class _RoutePieces(NamedTuple):
    metres: Floats  # of each piece, (3k − 2,)
    limit: Floats  # speed limit of each piece, (3k − 2,)
    most: Floats  # the highest speed that is allowed at their ends, (3k − 1,)


def _split_route(
    graph: LineGraph, edges: Ints, turns: Ints, lengths: Floats
) -> _RoutePieces:
    """Split a route into pieces; ``lengths`` are the metres of each edge that are driven, (k,)."""
    look = graph.turn_entry[turns]
    sight = np.minimum(look**2 / (2.0 * BRAKING), lengths[:-1])
    approach = lengths.copy()
    approach[:-1] -= sight
    pieces = max(_PIECES_PER_EDGE * len(edges) - 2, 0)
    metres = np.empty(pieces)
    metres[_APPROACHES] = approach
    metres[_IN_SIGHT] = sight
    metres[_INSIDE] = graph.turn_length[turns]
    speed = graph.speed[edges]
    limit = np.empty(pieces)
    limit[_APPROACHES] = speed
    limit[_IN_SIGHT] = speed[:-1]
    limit[_INSIDE] = graph.turn_speed[turns]
    limit[limit == 0.0] = np.inf
    # At the end of a piece the limits on both sides hold.
    limit_before = np.append(np.inf, limit)
    limit_after = np.append(limit, np.inf)
    most = np.minimum(limit_after, limit_before)
    look_limit = np.where(look > 0.0, look, np.inf)
    most[_LOOKS] = np.minimum(most[_LOOKS], look_limit)
    return _RoutePieces(metres, limit, most)


def _brake(metres: Floats, most: Floats) -> None:
    """Lower ``most``, the speeds at the ends of pieces, to those from which one can brake in time."""
    for piece in reversed(range(len(metres))):
        can_brake = sqrt(most[piece + 1] ** 2 + 2.0 * BRAKING * metres[piece])
        most[piece] = min(most[piece], can_brake)


def _accelerate(metres: Floats, most: Floats) -> Floats:
    """Return the speeds that are reached at the ends of pieces, at most ``most``."""
    speeds = most.copy()
    for piece in range(len(metres)):
        reached = sqrt(speeds[piece] ** 2 + 2.0 * ACCELERATION * metres[piece])
        speeds[piece + 1] = min(speeds[piece + 1], reached)
    return speeds


def _piece_seconds(metres: Floats, limit: Floats, most: Floats) -> Floats:
    """Return seconds for each piece; ``most`` is the speed at its ends, from which one can brake."""
    speeds = _accelerate(metres, most)
    first = speeds[:-1]
    last = speeds[1:]
    # Accelerating from first to top and braking to last takes all metres of a piece.
    highest = (
        2.0 * ACCELERATION * BRAKING * metres
        + BRAKING * first**2
        + ACCELERATION * last**2
    )
    top = np.minimum(limit, np.sqrt(highest / (ACCELERATION + BRAKING)))
    top = np.maximum(top, np.maximum(first, last))
    accelerating_metres = (top**2 - first**2) / (2.0 * ACCELERATION)
    braking_metres = (top**2 - last**2) / (2.0 * BRAKING)
    steady_metres = metres - (accelerating_metres + braking_metres)
    # A piece of 0 m from rest is never left at a speed, and takes no time.
    steady = np.zeros_like(top)
    np.divide(np.maximum(steady_metres, 0.0), top, out=steady, where=top > 0.0)
    accelerating = (top - first) / ACCELERATION
    braking = (top - last) / BRAKING
    return accelerating + braking + steady
