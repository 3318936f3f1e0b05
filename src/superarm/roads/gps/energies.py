"""What the edges of a matched trace took, by a counter of energy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.core.inputs import as_number, as_vector

from .traces import as_rising

if TYPE_CHECKING:
    from .matching import MatchedTrace


class TraceSection(NamedTuple):
    """Edges one after another, driven from end to end, and what they took together."""

    edges: tuple[int, ...]
    energy: float  # Wh
    seconds: float


def energies_along(
    matched: MatchedTrace,
    times: Any,
    cumulative_wh: Any,
    *,
    doubt: float = 0.1,
) -> tuple[TraceSection, ...]:
    """Return what whole edges took, by a counter of energy.

    The counter is interpolated at boundaries of edges. At t between readings at a and b this is wrong
    by no more than (t − a)(b − t)/(b − a) seconds times the range of power. A section takes in edges
    until the seconds of its two ends are at most the share ``doubt`` of its own. Edges that remain join
    the section before them, or are left out. Readings that repeat the one before are ignored.

    Args:
        matched: The route behind the trace.
        times: When the counter was read, rising, seconds on the trace's clock, (r,).
        cumulative_wh: The readings, Wh, (r,).
        doubt: The share of a section's seconds by which its ends may be uncertain.
    """
    share = as_number(doubt, "doubt", 0.0, 1.0)
    clock = as_rising(times, "times")
    counter = as_vector(cumulative_wh, "cumulative_wh", len(clock))
    is_new = np.diff(counter, prepend=np.nan) != 0.0
    clock = clock[is_new]
    counter = counter[is_new]
    if len(clock) < 2:
        return ()
    bounds = np.append(matched.enter, matched.leave[-1])  # seconds, (k + 1,)
    slack = _slack(clock, bounds)
    boundaries = _Boundaries(bounds, slack, share)
    energy = np.interp(bounds, clock, counter)
    edges = matched.edges.tolist()
    sections = []
    for begin, end in _sections_of(matched, boundaries):
        section = TraceSection(
            edges=tuple(edges[begin:end]),
            energy=float(energy[end] - energy[begin]),
            seconds=float(bounds[end] - bounds[begin]),
        )
        sections.append(section)
    return tuple(sections)


class _Span(NamedTuple):
    """The boundaries at both ends of a section."""

    begin: int
    end: int


class _Boundaries(NamedTuple):
    seconds: Floats  # (k + 1,)
    slack: Floats  # seconds by which interpolation may be wrong, (k + 1,)
    share: float  # of a section's seconds that its ends may be wrong by

    def is_certain(self, begin: int, end: int) -> bool:
        """Return whether the ends of a section are certain enough."""
        seconds, slack, share = self
        duration = seconds[end] - seconds[begin]
        uncertain = slack[begin] + slack[end]
        return bool(uncertain <= share * duration)

    def split(self, start: int, stop: int) -> list[_Span]:
        """Split a row of whole edges into sections as short as they may be."""
        spans: list[_Span] = []
        begin = start
        for end in range(start + 1, stop + 1):
            if self.is_certain(begin, end):
                spans.append(_Span(begin, end))
                begin = end
        if begin < stop and spans:
            # Edges that remain join the section before them.
            last_begin = spans[-1].begin
            if self.is_certain(last_begin, stop):
                spans[-1] = _Span(last_begin, stop)
        return spans


def _sections_of(matched: MatchedTrace, boundaries: _Boundaries) -> list[_Span]:
    """Return the sections of all rows of whole edges."""
    is_change = np.diff(matched.complete, prepend=False, append=False)
    changes = np.flatnonzero(is_change)
    rows = changes.reshape(-1, 2)  # where each begins and ends
    spans: list[_Span] = []
    for start, stop in rows.tolist():
        spans += boundaries.split(start, stop)
    return spans


def _slack(clock: Floats, bounds: Floats) -> Floats:
    """Return (t − a)(b − t)/(b − a) of each boundary; infinite outside the readings."""
    last = len(clock) - 1
    after = np.searchsorted(clock, bounds)
    after = np.clip(after, 1, last)
    before = after - 1
    since = bounds - clock[before]  # t − a
    until = clock[after] - bounds  # b − t
    is_between = (since >= 0.0) & (until >= 0.0)
    slack = since * until / (since + until)
    return np.where(is_between, slack, np.inf)
