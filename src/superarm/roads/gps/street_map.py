"""A line graph as Leuven.MapMatching asks for maps.

=================  ====================================================================
part               a straight part of an edge's course
label              of a point between parts: a junction's number, or one of its own
=================  ====================================================================

The library identifies streets by the labels of their ends, and allows any turn. Here two labels name
one part of one edge, and only what may be driven next follows: the route is always legal.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from itertools import pairwise
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.errors import require_extra
from superarm.roads.networks.line_graph import LineGraph

from .traces import norms

SAMPLE = 25.0
"""Metres between places on a road by which roads near a point are looked up."""
# Metres that a course may be off when points of it are left out.
_TOLERANCE = 1.0

Label = tuple[int, int]
"""The labels of both ends of a part."""


def load_library(module: str) -> ModuleType:
    """Import a module of the library, or raise an error with the line that installs it."""
    with warnings.catch_warnings():
        # It warns about escapes in its docstrings when it is compiled for the first time.
        warnings.simplefilter("ignore")
        return require_extra(f"leuvenmapmatching.{module}", "gps")


class StreetMap:
    """The parts of a line graph's edges, and which may follow which.

    Args:
        graph: The roads.
    """

    def __init__(self, graph: LineGraph) -> None:
        from scipy.spatial import cKDTree

        # The library calls these.
        geometry = load_library("util.dist_euclidean")
        self.distance = geometry.distance
        self.distance_point_to_segment = geometry.distance_point_to_segment
        self.distance_segment_to_segment = geometry.distance_segment_to_segment

        courses, labels = _label_courses(graph)
        counts = [len(course) - 1 for course in courses]
        part_ends = np.cumsum(counts)
        # Edge i has the parts first[i] … first[i + 1] − 1, (n + 1,).
        self.first = np.concatenate([[0], part_ends])
        edges = np.arange(len(graph))
        self.edge = np.repeat(edges, counts)  # of each part
        begins = [course[:-1] for course in courses]
        ends = [course[1:] for course in courses]
        self.begin = np.concatenate(begins)
        self.end = np.concatenate(ends)
        self.step = self.end - self.begin
        self.length = norms(self.step)
        first_parts = self.first[:-1]
        self.metres = np.add.reduceat(self.length, first_parts)  # of each edge
        self._number = {label: part for part, label in enumerate(labels)}
        self._parts = self._library_parts(labels)
        self._next = self._following_parts(graph)

        intervals = np.ceil(self.length / SAMPLE)
        samples = intervals.astype(int) + 1  # of each part
        parts = np.arange(len(labels))
        self.sampled = np.repeat(parts, samples)  # the part of each sample
        places = self._sample_places(samples)
        self.tree = cKDTree(places)

    def _sample_places(self, samples: Ints) -> Floats:
        """Return places on all parts, so many on each, from its begin to its end, (·, 2)."""
        shares = [np.linspace(0.0, 1.0, count) for count in samples]
        share = np.concatenate(shares)
        steps = self.step[self.sampled]
        begins = self.begin[self.sampled]
        return begins + share[:, None] * steps

    def _library_parts(self, labels: list[Label]) -> list[tuple[Any, ...]]:
        """Return parts as the library wants them: label and place of one end, then of the other."""
        begins = self.begin.tolist()
        ends = self.end.tolist()
        parts: list[tuple[Any, ...]] = []
        for number, label in enumerate(labels):
            begin_label, end_label = label
            begin = tuple(begins[number])
            end = tuple(ends[number])
            part = (begin_label, begin, end_label, end)
            parts.append(part)
        return parts

    def _following_parts(self, graph: LineGraph) -> list[list[int]]:
        """Return the parts that may follow each part."""
        parts = len(self.edge)
        first_parts = self.first[:-1].tolist()  # of each edge
        last_parts = (self.first[1:] - 1).tolist()
        following = [[part + 1] for part in range(parts)]
        for last in last_parts:
            following[last] = []
        for before, after in graph.turns.tolist():
            last = last_parts[before]
            first = first_parts[after]
            following[last].append(first)
        return following

    def edge_of(self, label: Label) -> int:
        """Return the edge that a part belongs to."""
        part = self._number[label]
        return int(self.edge[part])

    def parts_of(self, edge: int) -> Ints:
        """Return the parts of an edge, in order."""
        return np.arange(self.first[edge], self.first[edge + 1])

    def edges_nbrto(self, label: Label) -> list[Any]:
        """Return the parts that may follow; the library calls this."""
        part = self._number[label]
        return [self._parts[following] for following in self._next[part]]

    def edges_closeto(self, place: tuple[float, float], max_dist: float) -> list[Any]:
        """Return parts near a place; the library calls this.

        Args:
            place: x and y, metres.
            max_dist: Metres.

        Returns:
            For each part its distance, the part, its nearest point and the share before that.
        """
        farthest_sample = max_dist + 0.5 * SAMPLE
        samples = self.tree.query_ball_point(place, farthest_sample)
        near = np.unique(self.sampled[samples])
        begin = self.begin[near]
        end = self.end[near]
        projection = project(np.array(place), begin, end)
        offset = projection.share[:, None] * self.step[near]
        nearest = begin + offset
        rows = zip(
            near.tolist(),
            projection.distance.tolist(),
            nearest.tolist(),
            projection.share.tolist(),
            strict=True,
        )
        close = []
        for part, distance, point, share in rows:
            if distance <= max_dist:
                entry = (distance, *self._parts[part], tuple(point), share)
                close.append(entry)
        return close


@lru_cache(maxsize=2)
def street_map(graph: LineGraph) -> StreetMap:
    """Return the map of a line graph, built once."""
    return StreetMap(graph)


def _label_courses(graph: LineGraph) -> tuple[list[Floats], list[Label]]:
    """Return the simplified course of each edge, (p, 2), and the labels of all parts."""
    network = graph.network
    courses: list[Floats] = []
    labels: list[Label] = []
    seen_ends: set[Label] = set()
    free_label = len(network.junction_ids)
    for edge in graph.edges:
        tail = int(network.tail[edge])
        head = int(network.head[edge])
        course = network.junctions[(tail, head), :2]
        if network.shapes is not None:
            course = _simplify(network.shapes[edge])
        # Two straight edges between the same junctions would have the same label.
        if len(course) == 2 and (tail, head) in seen_ends:
            middle = course.mean(axis=0)
            course = np.insert(course, 1, middle, axis=0)
        seen_ends.add((tail, head))
        courses.append(course)
        inner_count = len(course) - 2
        inner = range(free_label, free_label + inner_count)
        free_label += inner_count
        labels += pairwise([tail, *inner, head])
    return courses, labels


def _simplify(course: Floats) -> Floats:
    """Leave out points that are hardly off the line between others (Douglas and Peucker 1973)."""
    last = len(course) - 1
    points = {0, last}
    stretches = [(0, last)]
    while stretches:
        begin, end = stretches.pop()
        between = course[begin : end + 1]
        distance = project(between, course[begin], course[end]).distance
        if distance.max() > _TOLERANCE:
            farthest = begin + int(distance.argmax())
            points.add(farthest)
            stretches.append((begin, farthest))
            stretches.append((farthest, end))
    return course[sorted(points)]


class Projection(NamedTuple):
    """Where points are nearest to straight parts."""

    share: Floats  # of the part before its nearest place, 0 to 1, (…,)
    distance: Floats  # metres, (…,)


def project(point: Floats, begin: Floats, end: Floats) -> Projection:
    """Project points on parts; shapes are broadcast.

    Args:
        point: x and y, metres, (…, 2).
        begin: Where each part begins, (…, 2).
        end: Where each part ends, (…, 2).
    """
    step = end - begin
    offset = point - begin
    square = np.sum(step**2, axis=-1)
    along = np.sum(offset * step, axis=-1)
    divisor = np.where(square > 0.0, square, 1.0)
    share = np.clip(along / divisor, 0.0, 1.0)
    away = offset - share[..., None] * step
    return Projection(share, norms(away))
