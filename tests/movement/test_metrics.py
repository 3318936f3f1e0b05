"""Finite metrics: validation, repair, and distances against slow loops."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array, csr_array

from superarm.core import Floats, registry
from superarm.core import serialization as records
from superarm.core.errors import InputError, NotFiniteError, ShapeError
from superarm.movement import (
    ActionMetric,
    MatrixMetric,
    PointMetric,
    metric_between,
    shortest_path_metric,
)

ROUNDING = 1e-9
"""By which share a distance may miss what it should be, and still be taken for it."""


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def line(n: int) -> Floats:
    """A table of n points that are 1 apart."""
    return np.abs(np.subtract.outer(np.arange(n), np.arange(n))).astype(np.float64)


def shortest(lengths: Floats) -> Floats:
    """Floyd and Warshall, one number at a time."""
    table, n = lengths.copy(), len(lengths)
    for k, i, j in product(range(n), repeat=3):
        table[i, j] = min(table[i, j], table[i, k] + table[k, j])
    return table


def assert_metric(distances: Floats) -> None:
    n = len(distances)
    assert distances.shape == (n, n)
    np.testing.assert_array_equal(distances, distances.T)
    np.testing.assert_array_equal(np.diag(distances), 0.0)
    assert (distances[~np.eye(n, dtype=bool)] > 0.0).all()
    for i, j, k in product(range(n), repeat=3):
        assert distances[i, j] <= (1.0 + ROUNDING) * (distances[i, k] + distances[k, j])


# --- rejected input ------------------------------------------------------------------------------


def changed(**entries: float) -> Floats:
    """A line of four points in which some distances are others: ``_12=5.0`` is that from 1 to 2."""
    table = line(4)
    for place, value in entries.items():
        table[int(place[1]), int(place[2])] = value
    return table


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (changed(_12=-1.0, _21=-1.0), "from action 1 to 2 is -1, which is negative"),
        (changed(_31=-2.0), "from action 3 to 1 is -2, which is negative"),
        (
            changed(_22=0.5),
            "from action 2 to 2 is 0.5, which is not 0, though it is the same action",
        ),
        (
            changed(_31=2.5),
            "from action 1 to 3 is 2, which is different on the way back, 2.5;",
        ),
        (
            changed(_03=3.0 * (1 + 3e-9)),
            "from action 0 to 3 is 3, which is different on the way back",
        ),
        (
            changed(_23=0.0, _32=0.0),
            "from action 2 to 3 is 0, which is 0, though they are different",
        ),
        (
            changed(_23=0.0),
            "from action 2 to 3 is 0, which is different on the way back",
        ),
        (
            changed(_02=2.5, _20=2.5),
            "from action 0 to 2 is 2.5, which is longer than a detour",
        ),
        (
            changed(_13=9.0, _31=9.0),
            "from action 1 to 3 is 9, which is longer than a detour",
        ),
    ],
)
def test_metric_violations_name_the_actions(table: Floats, message: str) -> None:
    with pytest.raises(InputError, match=message):
        MatrixMetric(distances=table)
    with pytest.raises(InputError, match=message):
        metric_between(range(4), lambda one, other: table[one, other])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_non_finite_distances_name_their_position(value: float) -> None:
    for repair in (False, True):
        with pytest.raises(NotFiniteError, match=r"distances\[1, 3\]"):
            MatrixMetric(distances=changed(_13=value), repair=repair)
    with pytest.raises(NotFiniteError, match=r"points\[1, 0\]"):
        PointMetric(points=[[0.0], [value], [1.0]])
    with pytest.raises(NotFiniteError, match=r"links\[0, 1\]"):
        shortest_path_metric([[0.0, value], [0.0, 0.0]])


@pytest.mark.parametrize(
    "shape", [(2, 3), (3, 2), (0, 0), (1, 0), (0, 3), (4,), (2, 2, 2)]
)
def test_tables_that_are_not_square_or_are_empty_are_refused(
    shape: tuple[int, ...],
) -> None:
    with pytest.raises(ShapeError):
        MatrixMetric(distances=np.zeros(shape))


def test_empty_points_and_items_are_rejected() -> None:
    for nothing in (np.zeros((0, 2)), [], np.zeros(3)):
        with pytest.raises(ShapeError):
            PointMetric(points=nothing)  # type: ignore[arg-type]
    with pytest.raises(ShapeError):
        metric_between([], lambda one, other: 0.0)
    with pytest.raises(ShapeError):
        shortest_path_metric(np.zeros((0, 0)))


def test_masked_tables_are_refused() -> None:
    masked: Any = np.ma.masked_equal(line(3), 2.0)
    for make in (
        lambda: MatrixMetric(distances=masked),
        lambda: MatrixMetric(distances=masked, repair=True),
        lambda: PointMetric(points=masked),
        lambda: shortest_path_metric(masked),
    ):
        with pytest.raises(InputError, match="masked"):
            make()


@pytest.mark.parametrize(
    "wrong", ["abc", [["a", "b"], ["c", "d"]], [[1.0, 2.0], [3.0]], None]
)
def test_non_numeric_tables_are_rejected(wrong: Any) -> None:
    for make in (
        lambda: MatrixMetric(distances=wrong),
        lambda: PointMetric(points=wrong),
        lambda: shortest_path_metric(wrong),
        lambda: metric_between("ab", lambda one, other: wrong),
    ):
        with pytest.raises(InputError):
            make()


@pytest.mark.parametrize("size", [1e-101, 1e101, 1.7e308])
def test_unusable_distances_are_rejected(size: float) -> None:
    for repair in (False, True):
        with pytest.raises(InputError, match="choose units"):
            MatrixMetric(distances=size * line(2), repair=repair)
    with pytest.raises(InputError, match="choose units"):
        PointMetric(points=[[0.0], [size]], distance="manhattan")


def test_points_in_one_place_are_refused_by_name() -> None:
    for distance in ("euclidean", "manhattan", "chebyshev"):
        with pytest.raises(
            InputError, match=r"from action 1 to 3 is 0, .* make them one"
        ):
            PointMetric(points=[[0, 0], [1, 2], [3, 3], [1, 2]], distance=distance)  # type: ignore[arg-type]


def test_invalid_metric_names_and_scales_are_rejected() -> None:
    with pytest.raises(InputError, match="distance is 'cosine'; choose"):
        PointMetric(points=[[0.0], [1.0]], distance="cosine")  # type: ignore[arg-type]
    for scale in (0.0, -1.0, np.inf, "2"):
        with pytest.raises(InputError, match="scale"):
            PointMetric(points=[[0.0], [1.0]], scale=scale)  # type: ignore[arg-type]


@pytest.mark.parametrize("unit", [1e-90, 1e-12, 1e-9, 1.0, 1e90])
def test_metric_check_does_not_depend_on_units(unit: float) -> None:
    """Of a dense table, scipy takes what is below 1e-8 for no link at all."""
    np.testing.assert_array_equal(
        MatrixMetric(distances=unit * line(4)).distances, unit * line(4)
    )
    with pytest.raises(InputError, match=r"from action 0 to 2 .* longer than a detour"):
        MatrixMetric(distances=unit * changed(_02=2.001, _20=2.001))
    with pytest.raises(InputError, match=r"from action 0 to 1 .* way back"):
        MatrixMetric(distances=unit * changed(_10=1.001))
    mended = MatrixMetric(
        distances=unit * changed(_02=9.0, _20=7.0), repair=True
    ).distances
    np.testing.assert_allclose(mended, unit * line(4), rtol=1e-12)


def test_small_distances_are_checked_next_to_large_ones() -> None:
    far = np.full((4, 4), 1e6)
    far[:3, :3] = 1e-9 * line(3)
    far[3, 3] = 0.0
    assert_metric(MatrixMetric(distances=far).distances)
    for place, other, message in ((0, 2, "longer than a detour"), (0, 1, "way back")):
        wrong = far.copy()
        wrong[place, other] = 1e-4
        if message == "longer than a detour":
            wrong[other, place] = 1e-4
        with pytest.raises(
            InputError, match=f"from action {place} to {other} .* {message}"
        ):
            MatrixMetric(distances=wrong)


# --- repair --------------------------------------------------------------------------------------


@st.composite
def near_metrics(draw: st.DrawFn) -> Floats:
    """Distances of points that were measured with errors; of some pairs, with very large ones."""
    n, seed = draw(st.integers(1, 7)), draw(st.integers(0, 2**32 - 1))
    noise = draw(st.sampled_from([1e-12, 1e-3, 0.3, 3.0]))
    unit = draw(st.sampled_from([1e-50, 1e-9, 1.0, 1e50]))
    source = rng(seed)
    points = source.normal(size=(n, 2))
    apart = np.sqrt(np.square(points[:, None] - points).sum(axis=2))
    table = unit * apart * np.exp(noise * source.normal(size=(n, n)))
    np.fill_diagonal(table, 0.0)
    return table


@given(table=near_metrics())
def test_repair_gives_the_largest_metric_below_the_means(table: Floats) -> None:
    repaired = MatrixMetric(distances=table, repair=True).distances
    assert_metric(repaired)
    assert not repaired.flags.writeable
    means = 0.5 * (table + table.T)
    assert (repaired <= means).all()
    # A sum of at most six distances, in any order, is off by less than 6 roundings.
    np.testing.assert_allclose(repaired, shortest(means), rtol=ROUNDING)
    np.testing.assert_array_equal(MatrixMetric(distances=repaired).distances, repaired)
    repaired_twice = MatrixMetric(distances=repaired, repair=True).distances
    np.testing.assert_array_equal(
        repaired_twice, repaired, err_msg="what is a metric was repaired"
    )


def test_repair_takes_means_and_detours() -> None:
    table = [[0.0, 1.0, 9.0], [3.0, 0.0, 4.0], [9.0, 4.0, 0.0]]
    repaired = MatrixMetric(distances=table, repair=True).distances  # type: ignore[arg-type]
    np.testing.assert_array_equal(
        repaired, [[0.0, 2.0, 6.0], [2.0, 0.0, 4.0], [6.0, 4.0, 0.0]]
    )


def test_repair_mends_no_other_fault() -> None:
    for table, message in (
        (changed(_01=0.0, _10=0.0), "from action 0 to 1 is 0"),
        (changed(_12=-1.0), "negative"),
        (changed(_33=1.0), "same action"),
    ):
        with pytest.raises(InputError, match=message):
            MatrixMetric(distances=table, repair=True)
    half = MatrixMetric(distances=changed(_01=0.0), repair=True).distances
    assert half[0, 1] == half[1, 0] == 0.5, "0 one way is not 0 on average"


def test_rounding_is_not_a_violation() -> None:
    table = line(4) * (1.0 + 1e-10 * rng(0).uniform(-1.0, 1.0, size=(4, 4)))
    metric = MatrixMetric(distances=table)
    np.testing.assert_array_equal(metric.distances, metric.distances.T)
    np.testing.assert_allclose(metric.distances, line(4), rtol=1e-10)


def test_metric_is_a_read_only_copy() -> None:
    table, points = line(3), np.arange(3.0)[:, None]
    metrics = (MatrixMetric(distances=table), PointMetric(points=points))
    table[0, 1] = points[0, 0] = 7.0
    for metric in metrics:
        assert isinstance(metric, ActionMetric)
        assert len(metric) == 3
        np.testing.assert_array_equal(metric.distances, line(3))
        with pytest.raises(ValueError, match="read-only"):
            metric.distances[0, 1] = 2.0


def test_one_action_is_a_metric() -> None:
    for metric in (
        MatrixMetric(distances=np.zeros((1, 1))),
        PointMetric(points=np.array([[3.0, 4.0]])),
        metric_between("a", lambda one, other: 0.0),
        shortest_path_metric([[0.0]]),
    ):
        np.testing.assert_array_equal(metric.distances, [[0.0]])


# --- points, things and graphs -------------------------------------------------------------------

SLOW = {
    "euclidean": lambda one, other: (
        sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5
    ),
    "manhattan": lambda one, other: sum(
        abs(a - b) for a, b in zip(one, other, strict=True)
    ),
    "chebyshev": lambda one, other: max(
        abs(a - b) for a, b in zip(one, other, strict=True)
    ),
}


@pytest.mark.parametrize("distance", SLOW)
@pytest.mark.parametrize("scale", [1.0, 0.25, 1e-9])
def test_distances_of_points_equal_a_slow_loop(distance: str, scale: float) -> None:
    points = rng(1).normal(size=(9, 3))
    metric = PointMetric(points=points, scale=scale, distance=distance)
    slow = [[scale * SLOW[distance](one, other) for other in points] for one in points]
    # Three squares, two sums, one root and one product: fewer than 8 roundings.
    np.testing.assert_allclose(metric.distances, slow, rtol=8 * np.finfo(float).eps)
    assert_metric(metric.distances)
    between = metric_between(points, SLOW[distance])
    np.testing.assert_allclose(scale * between.distances, metric.distances, rtol=1e-14)


def test_distances_between_arbitrary_objects() -> None:
    words = ["arm", "art", "cart", "carts"]

    def edits(one: str, other: str) -> int:
        """How many letters to change, add or drop."""
        if not one or not other:
            return len(one) + len(other)
        swap = edits(one[1:], other[1:]) + (one[0] != other[0])
        return min(swap, edits(one[1:], other) + 1, edits(one, other[1:]) + 1)

    table = [[0, 1, 2, 3], [1, 0, 1, 2], [2, 1, 0, 1], [3, 2, 1, 0]]
    np.testing.assert_array_equal(metric_between(iter(words), edits).distances, table)


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(2, 8),
    unit=st.sampled_from([1e-12, 1.0, 1e12]),
)
@settings(max_examples=60)
def test_shortest_paths_equal_a_slow_loop(seed: int, n: int, unit: float) -> None:
    source = rng(seed)
    links = np.where(
        source.random((n, n)) < 0.3, source.uniform(1.0, 9.0, size=(n, n)), 0.0
    )
    links[np.arange(n - 1), np.arange(1, n)] = source.uniform(
        1.0, 9.0, size=n - 1
    )  # one way through
    links = unit * links[np.ix_(*[source.permutation(n)] * 2)]
    both = np.where(links > 0.0, links, np.inf)
    both = np.minimum(both, both.T)
    np.fill_diagonal(both, 0.0)
    for given_ in (links, csr_array(links), coo_array(links), links.tolist()):
        distances = shortest_path_metric(given_).distances
        np.testing.assert_allclose(
            distances, shortest(both), rtol=1e-14
        )  # 7 sums at most
    assert_metric(distances)


def test_graphs_in_two_pieces_are_refused_by_name() -> None:
    links = np.zeros((5, 5))
    links[0, 1] = links[3, 2] = links[4, 3] = 1.0
    with pytest.raises(
        InputError, match=r"from action 0 to 2 is inf, .* no way leads there"
    ):
        shortest_path_metric(links)
    links[1, 4] = 2.0
    assert shortest_path_metric(links).distances[0, 2] == 5.0


def test_invalid_links_are_rejected() -> None:
    nowhere = csr_array(
        (np.array([0.0, 1.0]), (np.array([0, 1]), np.array([1, 2]))), shape=(3, 3)
    )
    for links in (
        -line(3),
        np.ones((2, 3)),
        [1.0, 2.0],
        csr_array(np.ones((2, 3))),
        nowhere,
    ):
        with pytest.raises(InputError, match="links"):
            shortest_path_metric(links)


def test_a_bad_link_is_named() -> None:
    links = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 2.0], [0.0, 0.0, 0.0]])
    for length, message in (
        (-1.0, "link from 1 to 2 is -1"),
        (np.nan, "link from 1 to 2 is nan"),
    ):
        links[1, 2] = length
        with pytest.raises(InputError, match=message):
            shortest_path_metric(csr_array(links))
    with pytest.raises(InputError, match=r"shape \(2, 3\); give one row and column"):
        shortest_path_metric(np.ones((2, 3)))


@pytest.mark.parametrize("distance", [1e-200, 1e200])
def test_a_distance_out_of_range_is_named(distance: float) -> None:
    with pytest.raises(
        InputError, match=r"from action 0 to 2 is 1e[-+]200; .* choose units"
    ):
        MatrixMetric(distances=changed(_02=distance, _20=distance), repair=True)


def test_points_too_far_apart_are_named() -> None:
    points = np.array([[0.0], [1.0], [1e200]])
    with pytest.raises(InputError, match=r"from action 0 to 2 is inf; .* choose units"):
        PointMetric(points=points)
    with pytest.raises(InputError, match=r"scale is 1e\+300"):
        PointMetric(points=np.array([[0.0], [1e90]]), scale=1e300)


# --- specs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "metric",
    [
        MatrixMetric(distances=line(3)),
        MatrixMetric(
            distances=rng(2).uniform(0.1, 1.0, size=(12, 12)) * (1 - np.eye(12)),
            repair=True,
        ),
        PointMetric(points=rng(3).normal(size=(5, 2)), scale=0.3, distance="manhattan"),
        PointMetric(points=np.arange(3.0)[:, None]),
    ],
    ids=["matrix", "repaired", "manhattan", "points"],
)
def test_metrics_have_specs(metric: ActionMetric) -> None:
    spec = registry.describe(metric)
    assert registry.difference(spec, registry.spec_of(metric)) is None
    assert spec["name"] in registry.names("metric")
    through_json = records.from_json(json.loads(json.dumps(records.to_json(spec))))
    for stored in (spec, through_json):
        rebuilt = registry.build("metric", stored)
        assert type(rebuilt) is type(metric)
        np.testing.assert_array_equal(rebuilt.distances, metric.distances)
        assert registry.difference(registry.describe(rebuilt), spec) is None
    assert f"n={len(metric)}" in repr(metric)


def test_specs_of_metrics_are_checked() -> None:
    assert registry.names("metric") == ["matrix", "points"]
    with pytest.raises(InputError, match="longer than a detour"):
        registry.build(
            "metric", {"name": "matrix", "distances": changed(_03=4.0, _30=4.0)}
        )
