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
0, not from u. A car that comes at any time waits Σ r²/2 over the cycle on average, over all reds.
Signals that are near each other depend on each other: :func:`superarm.roads.energy.drives.drive_time`
drives from one to the next with the phases that they have; ``turn_seconds``, a sum over turns, cannot.
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

ACCELERATION = 2.6
BRAKING = 4.5
UTURN_SECONDS = 20.0
"""What turning back costs beside what the junction takes, as in OSRM."""
STANDSTILL = 0.1
"""The speed of a car that stops at a stop sign, m/s."""
# Metres to gain and lose ½(m/s)² again.
_METRES_PER_GAIN = 1.0 / ACCELERATION + 1.0 / BRAKING
# SUMO's states of a signal: red, yellow and red-yellow.
_STOPS = "ryuRYU"
_YELLOW = "yY"
# Green without priority, off and blinking, and green after a stop.
_YIELDING = "gos"


Phase = tuple[float, str]
"""Seconds of a phase of a signal, and its state."""


class Signal(NamedTuple):
    """When cars have to stop on one way through a junction, in seconds of a cycle that repeats."""

    cycle: float
    offset: float  # when a first cycle begins
    # From, to; the last may end in the next cycle.
    reds: tuple[tuple[float, float], ...]
    yields: bool  # whether cars must give way even when it is green

    @classmethod
    def from_phases(
        cls,
        phases: Sequence[Phase],
        *,
        offset: float = 0.0,
        speed: float = 0.0,
    ) -> Signal:
        """Build a signal from its phases.

        Yellow stops only cars that can stop: one that comes in its first v/2b seconds drives on.

        Args:
            phases: The seconds of each phase, and SUMO's state ("G", "g", "y", "r" …).
            offset: When a first cycle begins, seconds.
            speed: How fast cars come, m/s.
        """
        rotated = _from_first_green(phases)
        time = sum(seconds for seconds, _ in rotated.moved)
        cycle = time + sum(seconds for seconds, _ in rotated.first)
        reds: list[tuple[float, float]] = []
        yielding = 0.0
        for is_red, run in groupby(rotated.phases, _is_red):
            part = list(run)
            end = time + sum(seconds for seconds, _ in part)
            if is_red:
                begin = time + _seconds_driven_on(part[0], speed)
                reds.append((begin, end))
            yielding += _yielding_seconds(part)
            time = end
        red = sum(end - begin for begin, end in reds)
        green = cycle - red
        yields = yielding > 0.5 * green
        return cls(cycle, offset, tuple(reds), yields)

    @property
    def wait(self) -> float:
        """Expected seconds of waiting of a car that comes at any time."""
        squares = sum((end - begin) ** 2 for begin, end in self.reds)
        return squares / (2.0 * self.cycle)

    @property
    def stop(self) -> float:
        """Probability that a car that comes at any time must stop."""
        red = sum(end - begin for begin, end in self.reds)
        return red / self.cycle

    def waits(self, times: Floats) -> Floats:
        """Return seconds of waiting; 0: it is green.

        Args:
            times: When cars come, seconds.
        """
        wait = np.zeros_like(times)
        for begin, end in self.reds:
            since = (times - self.offset - begin) % self.cycle
            remaining = end - begin - since
            wait = np.maximum(wait, remaining)
        return wait


class _RotatedPhases(NamedTuple):
    """The phases of a cycle from a green one on, so that no red is cut in two."""

    first: Sequence[Phase]
    moved: Sequence[Phase]  # those before it, which come last

    @property
    def phases(self) -> list[Phase]:
        return [*self.first, *self.moved]


def _from_first_green(phases: Sequence[Phase]) -> _RotatedPhases:
    first_green = 0
    for number, phase in enumerate(phases):
        if not _is_red(phase):
            first_green = number
            break
    return _RotatedPhases(phases[first_green:], phases[:first_green])


def _is_red(phase: Phase) -> bool:
    _, state = phase
    return state in _STOPS


def _seconds_driven_on(phase: Phase, speed: float) -> float:
    """Return the seconds of a red's first phase in which cars cannot stop any more."""
    seconds, state = phase
    if state not in _YELLOW:
        return 0.0
    braking_half = speed / (2.0 * BRAKING)
    return min(seconds, braking_half)


def _yielding_seconds(phases: list[Phase]) -> float:
    return sum(seconds for seconds, state in phases if state in _YIELDING)


def yielding_speed(sight: float) -> float:
    """Return the highest speed at which a car can still stop before a junction, m/s.

    Args:
        sight: Metres before the junction from which a driver sees whether anyone comes.
    """
    return sqrt(2.0 * BRAKING * sight)


# --- all turns of a graph ------------------------------------------------------------------


class JunctionSpeeds(NamedTuple):
    """m/s at each turn of a graph, of cars that need not stop, (c,)."""

    before: Floats  # the most that is reached on the edge before, if that begins with such a turn too
    slow: Floats  # to which cars brake: where drivers must look before they enter, already there
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
    edges = graph.turns[rows]
    entry = graph.turn_entry[rows]
    through = graph.turn_speed[rows]
    limit_before, limit_after = graph.speed[edges].T
    inside = np.minimum(limit_before, limit_after)
    inside = _at_most_if_set(inside, through)
    slow = _at_most_if_set(inside, entry)
    # From where drivers look to the line, cars accelerate over entry²/2b metres.
    enter_square = slow**2 + entry**2 * ACCELERATION / BRAKING
    enter = np.minimum(inside, np.sqrt(enter_square))
    turn_length = graph.turn_length[rows]
    leave_square = enter**2 + 2.0 * ACCELERATION * turn_length
    leave = np.minimum(inside, np.sqrt(leave_square))
    # On a short edge between two turns cars accelerate until they must brake: 1/a to 1/b of the way.
    length_before, length_after = graph.length[edges].T
    before_square = slow**2 + length_before * 2.0 / _METRES_PER_GAIN
    after_square = leave**2 + length_after * 2.0 / _METRES_PER_GAIN
    return JunctionSpeeds(
        before=np.minimum(limit_before, np.sqrt(before_square)),
        slow=slow,
        enter=enter,
        leave=leave,
        after=np.minimum(limit_after, np.sqrt(after_square)),
    )


def _at_most_if_set(speed: Floats, limit: Floats) -> Floats:
    """Return speeds, at most the limit where there is one; 0: none."""
    limited = np.minimum(limit, speed)
    return np.where(limit > 0.0, limited, speed)


def turn_seconds(graph: LineGraph) -> Floats:
    """Return :attr:`superarm.roads.networks.LineGraph.turn_seconds`."""
    before, slow, enter, leave, after = junction_speeds(graph)
    limit_before, limit_after = graph.speed[graph.turns].T
    # On the edges.
    braking = _lost(before, slow, limit_before)
    accelerating_before = _lost(enter, slow, limit_before)
    accelerating_after = _lost(after, leave, limit_after)
    accelerating = accelerating_before + accelerating_after
    lost = braking / BRAKING + accelerating / ACCELERATION
    # Inside the junction.
    accelerating_metres = (leave**2 - enter**2) / (2.0 * ACCELERATION)
    steady_metres = graph.turn_length - accelerating_metres
    through = (leave - enter) / ACCELERATION + steady_metres / leave
    # Before its line.
    restarting = graph.turn_stop * enter / (2.0 * ACCELERATION)
    stopping = graph.turn_wait + restarting
    uturns = UTURN_SECONDS * graph.is_uturn
    return lost + through + stopping + uturns


def _lost(fast: Floats, slow: Floats, limit: Floats) -> Floats:
    """Return seconds lost against the limit by changing speed from one to the other at 1 m/s²."""
    return (fast - slow) - (fast**2 - slow**2) / (2.0 * limit)
