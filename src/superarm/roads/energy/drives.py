"""How long a route takes on empty roads, and how fast a car is between its edges.

The notation is that of :mod:`.junctions`. A car never drives faster than it can still brake for what
comes; from there on it accelerates as fast as it can.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.errors import InputError

from .junctions import ACCELERATION, BRAKING, Signal

if TYPE_CHECKING:
    from superarm.roads.networks.line_graph import LineGraph

# Departures over which a duration is averaged if none is set.
_DEPARTURES = 32


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
    moving = _piece_seconds(pieces)
    late = _seconds_late(graph, turns, pieces, moving, departure)
    return float(moving.sum() + late.mean())


def _seconds_late(
    graph: LineGraph,
    turns: Ints,
    pieces: _RoutePieces,
    moving: Floats,
    departure: float | None,
) -> Floats:
    """Return the seconds lost by waiting, for each departure; ``moving`` are those of each piece."""
    signals = [graph.signals.get(turn) for turn in turns.tolist()]
    # When the car is at the line of each junction, if it never waits.
    at_line = np.cumsum(moving)[_IN_SIGHT]
    begin = _departures(signals, departure)
    late = np.zeros_like(begin)
    for junction, signal in enumerate(signals):
        stop = graph.turn_stop[turns[junction]]
        wait = graph.turn_wait[turns[junction]]
        if stop == 0.0 and wait == 0.0:
            continue
        restart = _restart_seconds(pieces, moving, junction)
        if signal is None:
            late += wait + stop * restart
        else:
            arrivals = begin + late + at_line[junction]
            waits = signal.waits(arrivals)
            late += np.where(waits > 0.0, waits + restart, 0.0)
    return late


def _departures(signals: Sequence[Signal | None], departure: float | None) -> Floats:
    """Return the times at which a trip begins: one, or several over the longest cycle."""
    if departure is not None:
        return np.array([departure], dtype=np.float64)
    longest = 0.0
    for signal in signals:
        if signal is not None:
            longest = max(longest, signal.cycle)
    return np.linspace(0.0, longest, _DEPARTURES, endpoint=False)


def _restart_seconds(pieces: _RoutePieces, moving: Floats, junction: int) -> float:
    """Return seconds lost by driving from rest at the line of a junction, to the end of the route."""
    first = _PIECES_PER_EDGE * junction + 2
    most_from_rest = pieces.most[first:].copy()
    most_from_rest[0] = 0.0
    remaining = _RoutePieces(
        metres=pieces.metres[first:],
        limit=pieces.limit[first:],
        most=most_from_rest,
    )
    seconds = _piece_seconds(remaining)
    lost: float = seconds.sum() - moving[first:].sum()
    return lost


class BorderSpeeds(NamedTuple):
    """v² where an edge and the junction behind it end and the next edge begins, (m/s)², (k − 1,)."""

    mean: Floats
    variance: Floats  # of stopping or not, (m/s)⁴
    free: Floats  # of cars that need not stop
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

    A car that stops at a junction, with probability p, accelerates from 0 through its L metres. So v² is
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
    stop_or_uturn = np.maximum(graph.turn_stop[turns], graph.is_uturn[turns])
    p = np.clip(stop_or_uturn, 0.0, 1.0)
    from_stop = 2.0 * ACCELERATION * graph.turn_length[turns]
    stopped = np.minimum(free, from_stop)
    difference = free - stopped

    start = float(np.square(speeds[0]))
    end = float(np.square(speeds[-1]))
    if len(turns):
        # A car that stopped before the last edge may be slower at its end.
        from_last_stop = stopped[-1] + 2.0 * ACCELERATION * metres[-1]
        end = _mixture(p[-1], end, min(end, from_last_stop))
    return BorderSpeeds(
        mean=_mixture(p, free, stopped),
        variance=p * (1.0 - p) * np.square(difference),
        free=free,
        start=start,
        end=float(end),
    )


def _mixture(p: Any, free: Any, stopped: Any) -> Any:
    """Return the mean of v² of a car that stops with probability p."""
    return (1.0 - p) * free + p * stopped


# Each edge of a route but the last has three pieces: the approach to where a driver looks, the metres
# in sight of the junction, and those inside it. The last edge has an approach only.
_PIECES_PER_EDGE = 3
# Among 3k − 2 pieces:
_APPROACHES = slice(0, None, _PIECES_PER_EDGE)
_IN_SIGHT = slice(1, None, _PIECES_PER_EDGE)
_INSIDE = slice(2, None, _PIECES_PER_EDGE)
# Among their 3k − 1 ends: where drivers look, and where the second and further edges begin.
_LOOKS = slice(1, -1, _PIECES_PER_EDGE)
_EDGE_STARTS = slice(3, -1, _PIECES_PER_EDGE)


class _RoutePieces(NamedTuple):
    metres: Floats  # of each piece, (3k − 2,)
    limit: Floats  # speed limit of each piece, (3k − 2,)
    most: Floats  # the highest speed that is allowed at their ends, (3k − 1,)


def _split_route(
    graph: LineGraph,
    edges: Ints,
    turns: Ints,
    lengths: Floats,
) -> _RoutePieces:
    """Split a route into pieces; ``lengths`` are the metres of each edge that are driven, (k,)."""
    look = graph.turn_entry[turns]
    braking_distance = look**2 / (2.0 * BRAKING)
    sight = np.minimum(braking_distance, lengths[:-1])
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
    """Lower ``most``, the speeds at the ends of pieces, to those from which a car can brake in time."""
    pieces = len(metres)
    for piece in reversed(range(pieces)):
        end_square = most[piece + 1] ** 2
        begin_square = end_square + 2.0 * BRAKING * metres[piece]
        can_brake = sqrt(begin_square)
        most[piece] = min(most[piece], can_brake)


def _accelerate(metres: Floats, most: Floats) -> Floats:
    """Return the speeds that are reached at the ends of pieces, at most ``most``."""
    speeds = most.copy()
    for piece, length in enumerate(metres):
        end = piece + 1
        begin_square = speeds[piece] ** 2
        end_square = begin_square + 2.0 * ACCELERATION * length
        reached = sqrt(end_square)
        speeds[end] = min(speeds[end], reached)
    return speeds


def _piece_seconds(pieces: _RoutePieces) -> Floats:
    """Return seconds for each piece, at whose ends cars are slow enough to brake in time."""
    metres, limit, most = pieces
    speeds = _accelerate(metres, most)
    first = speeds[:-1]
    last = speeds[1:]
    first_square = first**2
    last_square = last**2
    # Accelerating from first to top and braking to last takes all metres of a piece.
    highest = (
        2.0 * ACCELERATION * BRAKING * metres
        + BRAKING * first_square
        + ACCELERATION * last_square
    )
    top_square = highest / (ACCELERATION + BRAKING)
    top = np.minimum(limit, np.sqrt(top_square))
    top = np.maximum(top, np.maximum(first, last))
    accelerating_metres = (top**2 - first_square) / (2.0 * ACCELERATION)
    braking_metres = (top**2 - last_square) / (2.0 * BRAKING)
    steady_metres = metres - (accelerating_metres + braking_metres)
    steady_metres = np.maximum(steady_metres, 0.0)
    # A piece of 0 m from rest is never left at a speed, and takes no time.
    steady = np.zeros_like(top)
    np.divide(steady_metres, top, out=steady, where=top > 0.0)
    accelerating = (top - first) / ACCELERATION
    braking = (top - last) / BRAKING
    return accelerating + braking + steady
