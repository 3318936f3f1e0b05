"""Arrays stored beside a network: read again for the same roads, ignored for others and where damaged."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superarm.core import dissection
from superarm.roads.networks import LineGraph, RoadNetwork, generate_city, stored


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RoadNetwork:
    monkeypatch.setattr(stored, "LEAST_STORED", 100)
    source = tmp_path / "town.net.xml"
    source.write_text("<net/>")
    return replace(generate_city(edges=400, seed=1), source=source)


def files_of(graph: LineGraph, kind: str) -> list[Path]:
    source = graph.network.source
    assert source is not None
    return sorted(source.parent.glob(f".{source.name}.{kind}-*.superarm.npy"))


def test_the_order_is_computed_once(
    network: RoadNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = network.line_graph()
    order = first.elimination_order
    np.testing.assert_array_equal(order, first.turn_graph.elimination_order)
    assert len(files_of(first, "order")) == 1

    def refuse(*_: object) -> None:
        raise AssertionError("computed anew")

    monkeypatch.setattr(dissection, "elimination_order", refuse)
    second = network.line_graph()
    np.testing.assert_array_equal(second.elimination_order, order)
    np.testing.assert_array_equal(second.turn_graph.elimination_order, order)
    # Other roads have another order.
    with pytest.raises(AssertionError, match="computed anew"):
        _ = network.line_graph(uturns=False).elimination_order


@pytest.mark.parametrize("byte", [0, 130, 140, 168, 200, -1])
def test_damaged_files_are_ignored_and_replaced(
    network: RoadNetwork, byte: int
) -> None:
    """In the format's header, the version, the digest, the checksum and the values."""
    graph = network.line_graph()
    order = graph.elimination_order
    (path,) = files_of(graph, "order")
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[byte] ^= 1
    path.write_bytes(damaged)
    assert stored.read_stored(graph, "order") is None
    np.testing.assert_array_equal(network.line_graph().elimination_order, order)
    assert path.read_bytes() == whole


def test_files_that_are_cut_off_are_ignored(network: RoadNetwork) -> None:
    graph = network.line_graph()
    _ = graph.elimination_order
    (path,) = files_of(graph, "order")
    whole = path.read_bytes()
    for size in (0, 5, 127, 132, len(whole) - 4):
        path.write_bytes(whole[:size])
        assert stored.read_stored(graph, "order") is None


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="no such flag here")
def test_links_are_not_followed(network: RoadNetwork, tmp_path: Path) -> None:
    graph = network.line_graph()
    _ = graph.elimination_order
    (path,) = files_of(graph, "order")
    elsewhere = tmp_path / "elsewhere.npy"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert stored.read_stored(graph, "order") is None


def test_several_arrays_come_back_and_old_files_go(network: RoadNetwork) -> None:
    graph = network.line_graph()
    arrays = [
        np.arange(5, dtype=np.int32),
        np.zeros(0, dtype=np.int32),
        np.array([-7], dtype=np.int32),
    ]
    stored.store(graph, "some", arrays)
    found = stored.read_stored(graph, "some")
    assert found is not None
    for one, other in zip(arrays, found, strict=True):
        np.testing.assert_array_equal(one, other)
    for number in range(6):
        lengths = network.length + number + 1.0
        changed = replace(network, length=lengths).line_graph()
        stored.store(changed, "some", arrays)
        assert stored.read_stored(changed, "some") is not None
    assert len(files_of(graph, "some")) == 4


def test_nothing_is_stored_for_networks_in_memory_or_small_ones(
    network: RoadNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = replace(network, source=None).line_graph()
    stored.store(graph, "some", [np.arange(3, dtype=np.int32)])
    assert stored.read_stored(graph, "some") is None
    monkeypatch.setattr(stored, "LEAST_STORED", 10_000)
    small = network.line_graph()
    stored.store(small, "some", [np.arange(3, dtype=np.int32)])
    assert not files_of(small, "some")


@pytest.mark.parametrize(
    "damage", ["order", "parents", "root", "few", "arc", "falls", "unsorted"]
)
def test_a_hierarchy_that_loops_cannot_use_is_contracted_anew(
    network: RoadNetwork, damage: str
) -> None:
    """Though its checksum is right, and though every turn has an arc but for the damage "arc"."""
    pytest.importorskip("numba")
    from superarm.roads.routing.hierarchy import topology

    graph = network.line_graph()
    right = topology.contract(graph)
    n = len(graph)
    parents = right.parents
    is_root = parents == n
    heads = right.down_heads
    changes: dict[str, Any] = {
        "order": {"order": right.order + 1},
        "parents": {"parents": np.where(is_root, 0, parents)},
        "root": {"parents": np.where(is_root, n + 1, parents)},
        "few": {"parents": parents[:-1]},
        "arc": {
            "up_pointers": np.zeros_like(right.up_pointers),
            "up_heads": right.up_heads[:0],
        },
    }
    if damage in changes:
        changed = right._replace(**changes[damage])
    else:
        candidates = (
            right._replace(down_heads=_damaged_heads(heads, place, damage))
            for place in range(len(heads) - 1)
        )
        changed = next(
            candidate
            for candidate in candidates
            if _is_unsorted(candidate)
            and topology.Hierarchy(graph, candidate).has_all_turns
        )
    stored.store(graph, "hierarchy", changed)
    assert stored.read_stored(graph, "hierarchy") is not None
    found = topology.hierarchy_of(graph)
    arrays = (found.order, found.parents, *found.up, *found.down)
    for array, expected in zip(arrays, right, strict=True):
        np.testing.assert_array_equal(array, expected)


def _damaged_heads(heads: stored.Numbers, place: int, damage: str) -> stored.Numbers:
    """One arc leads to the lowest node, or two neighbours are in the other order."""
    damaged = heads.copy()
    if damage == "falls":
        damaged[place] = 0
    else:
        damaged[place : place + 2] = heads[place : place + 2][::-1]
    return damaged


def _is_unsorted(topology: Any) -> bool:
    """Whether some falling arc of a node leads to a lower node than the one before, or than its tail."""
    pointers, heads = topology.down_pointers, topology.down_heads
    for tail, (begin, end) in enumerate(pairwise(pointers.tolist())):
        nodes = [tail, *heads[begin:end].tolist()]
        if any(one >= other for one, other in pairwise(nodes)):
            return True
    return False


def test_a_hierarchy_is_contracted_once(
    network: RoadNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba")
    from superarm.roads.routing import Router
    from superarm.roads.routing.hierarchy import topology

    before = Router(network, search="hierarchy")
    before.prepare()
    assert len(files_of(before.graph, "hierarchy")) == 1

    def refuse(*_: object) -> None:
        raise AssertionError("contracted anew")

    monkeypatch.setattr(topology, "contract", refuse)
    after = Router(network, search="hierarchy")
    after.prepare()
    names = before.graph.ids[:4]
    np.testing.assert_array_equal(
        before.matrix(names, names), after.matrix(names, names)
    )
    # Arrays with a right checksum that do not fit: an arc that falls.
    found = stored.read_stored(after.graph, "hierarchy")
    assert found is not None
    fallen = found[3].copy()
    fallen[0] = 0
    stored.store(after.graph, "hierarchy", [*found[:3], fallen, *found[4:]])
    with pytest.raises(AssertionError, match="contracted anew"):
        Router(network, search="hierarchy").prepare()
