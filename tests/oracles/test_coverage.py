"""Greedy coverage and TIM+ against brute force and exact spreads."""

from __future__ import annotations

import math
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superarm.core import EXACT, Floats, Ints
from superarm.core.errors import InfeasibleError, InputError
from superarm.core.graphs import Pairs
from superarm.oracles import TIM, GreedyCoverage, cascades
from superarm.oracles.cascades import Cascade, cover_most, draw_sets
from superarm.rewards import Coverage

seeds = st.integers(0, 10**6)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def bipartite(seed: int, left: int = 6, right: int = 8) -> tuple[Pairs, Floats]:
    draw = rng(seed)
    cells = np.flatnonzero(draw.random(left * right) < 0.4)
    cells = cells if len(cells) else np.array([0])
    pairs = Pairs(left=10 + cells // right, right=cells % right)
    return pairs, draw.normal(0.3, 0.4, len(cells))


def reached(pairs: Pairs, p: Floats, nodes: Any) -> float:
    """The worth of all available links of these nodes, by the reward of the same problem."""
    positions = np.flatnonzero(np.isin(pairs.left, nodes) & (p > -np.inf))
    return Coverage().worth(p[positions], positions, pairs)


def plain_greedy(pairs: Pairs, p: Floats, k: int) -> tuple[int, ...]:
    chosen: list[int] = []
    nodes = np.unique(pairs.left[p > -np.inf]).tolist()
    for _ in range(k):
        others = [node for node in nodes if node not in chosen]
        chosen.append(max(others, key=lambda node: reached(pairs, p, [*chosen, node])))
    return tuple(chosen)


@settings(max_examples=60)
@given(seeds, st.integers(1, 4))
def test_greedy_matches_plain_greedy_and_its_guarantee(seed: int, k: int) -> None:
    pairs, p = bipartite(seed)
    p[rng(seed + 1).random(len(p)) < 0.15] = -np.inf
    nodes = np.unique(pairs.left[p > -np.inf])
    if len(nodes) == 0:
        return
    if len(nodes) < k:
        with pytest.raises(InfeasibleError, match=f"links leave only {len(nodes)}"):
            GreedyCoverage(k=k).select(p, pairs, rng())
        return
    action, positions, guarantee = GreedyCoverage(k=k).select(p, pairs, rng())
    value = reached(pairs, p, action)
    expected = np.flatnonzero(np.isin(pairs.left, action) & (p > -np.inf))
    assert sorted(positions.tolist()) == expected.tolist()
    best = max(reached(pairs, p, four) for four in combinations(nodes.tolist(), k))
    assert value >= guarantee.alpha * best - 1e-12
    assert guarantee.alpha > 1.0 - 1.0 / math.e
    assert value == pytest.approx(
        reached(pairs, p, plain_greedy(pairs, p, k)), abs=1e-12
    )
    if k in (1, len(nodes)):
        assert guarantee == EXACT
        assert value == pytest.approx(best)


def test_greedy_where_it_is_not_optimal() -> None:
    """Node 2 looks best by itself but adds nothing to the other two."""
    pairs = Pairs(
        left=np.array([0, 0, 0, 1, 1, 1, 2, 2, 2, 2]),
        right=np.array([0, 1, 2, 3, 4, 5, 1, 2, 3, 4]),
    )
    chosen = GreedyCoverage(k=2).select(np.ones(10), pairs, rng())
    assert reached(pairs, np.ones(10), chosen.action) == 5.0
    assert reached(pairs, np.ones(10), [0, 1]) == 6.0
    assert chosen.guarantee.alpha == 0.75


def test_greedy_rescores_after_every_node() -> None:
    pairs, p = bipartite(3)
    calls: list[Ints] = []

    def rescore(chosen: Ints) -> Floats:
        calls.append(chosen)
        return p

    action, *_ = GreedyCoverage(k=3).select(p, pairs, rng(), rescore)
    assert action == GreedyCoverage(k=3).select(p, pairs, rng()).action
    assert [len(call) for call in calls] == [
        int(np.isin(pairs.left, action[:count]).sum()) for count in (1, 2)
    ]

    def only_last(chosen: Ints) -> Floats:
        return np.where(pairs.left == pairs.left.max(), 1.0, 0.0)

    second = GreedyCoverage(k=2).select(
        np.where(pairs.left == 10, 0.5, 0.0), pairs, rng(), only_last
    )
    assert second.action == (10, int(pairs.left.max()))


@pytest.mark.parametrize("make", [GreedyCoverage, TIM])
def test_invalid_input_is_rejected(make: Any) -> None:
    pairs, p = bipartite(3)
    with pytest.raises(InputError, match="needs Pairs"):
        make(k=2).select(p, None, rng())
    with pytest.raises(InputError, match="arms are on offer"):
        make(k=2).select(p[:-1], pairs, rng())
    with pytest.raises(InfeasibleError, match="k = 9 nodes"):
        make(k=9).select(p, pairs, rng())
    for wrong in (np.nan, np.inf):
        with pytest.raises(InputError, match=r"desirability\[0\]"):
            make(k=2).select(np.concatenate([[wrong], p[1:]]), pairs, rng())
    with pytest.raises(InputError, match="no arms"):
        make(k=1).select(
            p[:0], Pairs(left=p[:0].astype(int), right=p[:0].astype(int)), rng()
        )
    with pytest.raises(InputError, match=r"k must be .*, got 0"):
        make(k=0)


# --- TIM+ ----------------------------------------------------------------------------------


def spread(source: Ints, target: Ints, p: Floats, n: int, seeds_: Any) -> float:
    """Expected number of nodes that are active in the end, over all ways in which links may work."""
    expected = 0.0
    for works in product((False, True), repeat=len(p)):
        chance = float(np.prod(np.where(works, p, 1.0 - p)))
        active, frontier = set(seeds_), set(seeds_)
        while frontier:
            hit = [
                b
                for a, b, on in zip(
                    source.tolist(), target.tolist(), works, strict=True
                )
                if on and a in frontier
            ]
            frontier = set(hit) - active
            active |= frontier
        expected += chance * len(active)
    return expected


CASCADE = Pairs(
    left=np.array([0, 0, 1, 2, 3, 3, 4, 5, 5]),
    right=np.array([1, 2, 3, 3, 4, 0, 5, 4, 6]),
)
CHANCE = np.array([0.5, 0.3, 0.7, 0.2, 0.4, 0.1, 0.9, 0.3, 0.6])


def test_random_sets_are_those_that_reach_a_random_node() -> None:
    """P(node in an RR set) is its spread over n, for every node: the estimator is unbiased."""
    n, count = 7, 40_000
    graph = Cascade.from_links(CASCADE.left, CASCADE.right, CHANCE, n)
    sets = draw_sets(graph, count, rng(1))
    assert (np.diff(sets.of_set) >= 0).all()
    assert len(np.unique(sets.of_set * n + sets.members)) == len(sets.members)
    shares = np.bincount(sets.members, minlength=n) / count
    for node in range(n):
        expected = spread(CASCADE.left, CASCADE.right, CHANCE, n, [node]) / n
        # Five standard deviations of a binomial share.
        assert abs(shares[node] - expected) <= 5.0 * math.sqrt(
            expected * (1.0 - expected) / count
        )


def test_many_batches_are_drawn_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Cascade.from_links(CASCADE.left, CASCADE.right, CHANCE, 7)
    monkeypatch.setattr("superarm.oracles.cascades._BATCH", 70)
    sets = draw_sets(graph, 1005, rng(2))
    assert sets.of_set.max() == 1004
    assert len(np.unique(sets.of_set)) == 1005


@settings(max_examples=30)
@given(seeds, st.integers(1, 3))
def test_nodes_cover_most_sets(seed: int, k: int) -> None:
    """Against a greedy choice that recounts uncovered sets each time."""
    graph = Cascade.from_links(CASCADE.left, CASCADE.right, CHANCE, 7)
    sets = draw_sets(graph, 200, rng(seed))
    candidates = 5
    chosen = cover_most(sets, candidates, 7, k)
    members = [
        set(sets.members[sets.of_set == number].tolist()) for number in range(200)
    ]
    slow: list[int] = []
    for _ in range(k):
        uncovered = [
            member_set for member_set in members if not member_set.intersection(slow)
        ]
        counts = {
            node: sum(node in member_set for member_set in uncovered)
            for node in range(candidates)
            if node not in slow
        }
        slow.append(max(counts, key=lambda node: (counts[node], -node)))
    assert chosen == slow


GONE = np.arange(19, 29)


def covered(pairs: Pairs, p: Floats, chosen: tuple[int, ...]) -> float:
    """The spread in a graph of two sides: the nodes chosen, and those reached on average."""
    of_chosen = np.isin(pairs.left, chosen)
    missed = np.ones(pairs.right.max() + 1)
    np.multiply.at(missed, pairs.right[of_chosen], 1.0 - p[of_chosen])
    return len(chosen) + float((1.0 - missed).sum())


@pytest.mark.thorough
@pytest.mark.parametrize("two_sided", [False, True])
def test_tim_meets_its_guarantee_with_the_stated_probability(two_sided: bool) -> None:
    """Over many seeds, against exact spreads, where many pairs of nodes miss what is promised.

    Greedy is not optimal on two sides: node 0 reaches most by itself, 1 and 2 reach most together. The
    guarantee may fail with probability 3/n per call; a run of calls fails more often than that plus
    five standard deviations with probability below 1e-6.
    """
    if two_sided:
        trap, halves = [*range(6), *range(10, 16)], [*range(20)]
        left = [0] * 12 + [1] * 10 + [2] * 10 + [*range(3, 23)]
        pairs = Pairs(
            left=np.array(left), right=np.array([*trap, *halves, *range(20, 40)])
        )
        p, n, nodes = np.repeat([0.95, 0.05], [32, 20]), 63, range(23)
        values = {pair: covered(pairs, p, pair) for pair in combinations(nodes, 2)}
        assert max(values, key=lambda pair: values[pair]) == (1, 2)
        assert 0 in GreedyCoverage(k=2).select(p, pairs, rng()).action
    else:
        # A chain of nine nodes, and other links that hardly ever work.
        pairs = Pairs(
            left=np.arange(18) + (np.arange(18) > 7),
            right=np.append(np.arange(1, 9), GONE),
        )
        p, n = np.repeat([0.95, 0.01], [8, 10]), 29
        values = {
            pair: sum(
                (1.0 - 0.95 ** (end - node)) / 0.05 if node < 9 else 1.01
                for node, end in zip(pair, (min(pair[1], 9), 9), strict=True)
            )
            for pair in combinations(pairs.left.tolist(), 2)
        }
    oracle = TIM(k=2, epsilon=0.2, two_sided=two_sided)
    best, calls, failed = max(values.values()), 100, 0
    for seed in range(calls):
        action, positions, guarantee = oracle.select(p, pairs, rng(seed))
        failed += values[tuple(sorted(action))] < guarantee.alpha * best
        assert (
            sorted(positions.tolist())
            == np.flatnonzero(np.isin(pairs.left, action)).tolist()
        )
    assert guarantee.alpha == pytest.approx(1.0 - 1.0 / math.e - 0.2)
    assert guarantee.probability == pytest.approx(1.0 - 3.0 / n)
    poor = np.mean([value < guarantee.alpha * best for value in values.values()])
    likely = 3.0 / n
    allowed = calls * likely + 5.0 * math.sqrt(calls * likely * (1.0 - likely))
    assert failed <= allowed
    assert calls * poor > allowed  # pairs at random would be noticed


def test_tim_finds_what_greedy_finds_where_it_is_clear() -> None:
    """Two hubs far above the rest: with so many sets no draw hides them."""
    draw = rng(5)
    left = np.concatenate([np.zeros(30), np.ones(30), np.arange(2, 40)]).astype(int)
    right = np.concatenate(
        [np.arange(30), np.arange(30, 60), draw.integers(0, 60, 38)]
    ).astype(int)
    pairs, p = Pairs(left=left, right=right), np.full(98, 0.5)
    for seed in range(5):
        assert set(TIM(k=2).select(p, pairs, rng(seed)).action) == {0, 1}
    assert set(GreedyCoverage(k=2).select(p, pairs, rng()).action) == {0, 1}


@pytest.mark.parametrize("ell", [1.0, 2.0])
def test_how_many_sets_by_hand(ell: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """KPT*, KPT⁺ and θ of the paper's Algorithms 2 and 3, for links that always or never work."""
    counts: list[int] = []
    import superarm.oracles.tim as module

    def count_text(graph: Any, count: int, chance: Any) -> Any:
        counts.append(count)
        return draw_sets(graph, count, chance)

    monkeypatch.setattr(module, "draw_sets", count_text)
    n, k, epsilon = 8, 2, 0.5
    pairs = Pairs(
        left=np.arange(8), right=(np.arange(8) + 1) % 8
    )  # a ring that carries everything
    TIM(k=k, epsilon=epsilon, ell=ell, two_sided=False).select(np.ones(8), pairs, rng())
    first = (6 * ell * math.log(n) + 6 * math.log(math.log2(n))) * 2
    kpt = (
        n * (1 - (1 - 1.0) ** k) / 2
    )  # every set holds all nodes, into which all links lead
    finer = 5 * (ell * epsilon**2 / (k + ell)) ** (1 / 3)
    second = (2 + finer) * ell * n * math.log(n) / finer**2 / kpt
    plus = max(kpt, n / (1 + finer))
    third = (
        (8 + 2 * epsilon)
        * n
        * (ell * math.log(n) + math.log(math.comb(n, k)) + math.log(2))
    )
    assert counts == [
        math.ceil(first),
        math.ceil(second),
        math.ceil(third / epsilon**2 / plus),
    ]


def test_too_many_sets_are_refused() -> None:
    pairs = Pairs(left=np.arange(2000), right=np.arange(2000))
    with pytest.raises(InputError, match="raise epsilon"):
        TIM(k=3, epsilon=0.001).select(np.zeros(2000), pairs, rng())


def test_a_dense_cascade_is_drawn_within_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All links work, so that every set holds all nodes: as many sets at once as links allow."""
    source, target = np.divmod(np.arange(40**2), 40)
    graph = Cascade.from_links(source, target, np.ones(1600), 40)
    monkeypatch.setattr(cascades, "_MOST_FRONTIER", 4 * 1600)
    plain, largest = np.repeat, [0]

    def measured(values: Any, repeats: Any) -> Any:
        expanded = plain(values, repeats)
        largest[0] = max(largest[0], len(expanded))
        return expanded

    monkeypatch.setattr(cascades.np, "repeat", measured)
    sets = draw_sets(graph, 50, np.random.default_rng(0))
    assert 1600 < largest[0] <= 4 * 1600
    assert np.bincount(sets.of_set).tolist() == [40] * 50
    assert sets.members.reshape(50, 40).sum(axis=1).tolist() == [780] * 50


def test_sparse_cascades_are_drawn_many_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No link works, so that every set examines only one node's links."""
    source, target = np.divmod(np.arange(40**2), 40)
    graph = Cascade.from_links(source, target, np.zeros(1600), 40)
    monkeypatch.setattr(cascades, "_MOST_FRONTIER", 16 * 1600)
    steps: list[int] = []
    plain = np.cumsum

    def measured(degree: Any) -> Any:
        steps.append(len(degree))
        return plain(degree)

    monkeypatch.setattr(cascades.np, "cumsum", measured)
    sets = draw_sets(graph, 1000, np.random.default_rng(0))
    assert steps == [
        16,
        32,
        64,
        128,
        256,
        256,
        248,
    ]  # twice as many, while a quarter is enough
    assert len(sets.members) == 1000


def test_a_graph_of_one_node() -> None:
    loop = Pairs(left=np.array([0]), right=np.array([0]))
    selection = TIM(k=1, two_sided=False).select(
        np.ones(1), loop, np.random.default_rng(0)
    )
    assert selection.positions.tolist() == [0]


def test_worthless_nodes_are_chosen_once_each() -> None:
    """Where nothing can be gained, rescoring must not choose the same node twice."""
    pairs = Pairs(left=np.array([0, 1, 2]), right=np.array([0, 1, 2]))
    chosen = GreedyCoverage(k=3).select(
        np.zeros(3), pairs, rng(), lambda _: np.zeros(3)
    )
    assert sorted(chosen.action) == [0, 1, 2]


def test_new_scores_are_chances_too() -> None:
    """Node 1 has two links, node 2 one: a link of desirability 5 is certain, no more."""
    pairs = Pairs(left=np.array([0, 1, 1, 2]), right=np.array([0, 1, 2, 3]))

    def rescore(_: Ints) -> Floats:
        return np.array([1.0, 0.6, 0.6, 5.0])

    chosen = GreedyCoverage(k=2).select(
        np.array([1.0, 0.0, 0.0, 0.0]), pairs, rng(), rescore
    )
    assert chosen.action == (0, 1)


@pytest.mark.parametrize(
    ("links", "options", "alpha", "probability"),
    [
        (1, {}, 0.9 - 1.0 / math.e, 0.0),  # 3/n is above 1 for two nodes
        (4, {"epsilon": 0.9}, 0.0, 1.0 - 3.0 / 8.0),  # and 1 − 1/e below ε
        (4, {"epsilon": 0.5, "ell": 2.0}, 0.5 - 1.0 / math.e, 1.0 - 3.0 / 64.0),
    ],
)
def test_the_guarantee_by_hand(
    links: int, options: dict[str, Any], alpha: float, probability: float
) -> None:
    pairs = Pairs(left=np.arange(links), right=np.arange(links))
    guarantee = TIM(k=1, **options).select(np.ones(links), pairs, rng()).guarantee
    assert guarantee == (pytest.approx(alpha), pytest.approx(probability))


@pytest.mark.parametrize("k", [2, 3])
def test_the_bound_on_the_optimum_by_hand(
    k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 nodes that two links of 128 enter, none of which works: κ = 1 − (1 − 2/128)ᵏ for every set.

    That is 0.0310 for k = 2, below 2⁻⁵, so that all five rounds of Algorithm 2 fail and KPT* = 1; and
    0.0461 for k = 3, so that the fifth succeeds and KPT* is 64 κ/2.
    """
    counts: list[int] = []
    import superarm.oracles.tim as module

    def count_text(graph: Any, count: int, chance: Any) -> Any:
        counts.append(count)
        return draw_sets(graph, count, chance)

    monkeypatch.setattr(module, "draw_sets", count_text)
    n, ell, epsilon, nodes = 64, 2.0, 1.0, np.arange(64)
    pairs = Pairs(
        left=np.tile(nodes, 2), right=np.concatenate([nodes + 1, nodes + 2]) % 64
    )
    TIM(k=k, epsilon=epsilon, ell=ell, two_sided=False).select(
        np.zeros(128), pairs, rng()
    )
    expected = [(6 * ell * math.log(n) + 6 * math.log(6)) * 2**i for i in range(1, 6)]
    least = 1.0 if k == 2 else n * (1 - (63 / 64) ** 3) / 2
    finer = 5 * (ell * epsilon**2 / (k + ell)) ** (1 / 3)
    expected.append((2 + finer) * ell * n * math.log(n) / finer**2 / least)
    assert counts[:-1] == [math.ceil(size) for size in expected]


def test_sets_that_hold_too_many_nodes_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = Cascade.from_links(
        np.arange(8), (np.arange(8) + 1) % 8, np.zeros(8), 8
    )  # one node in each
    monkeypatch.setattr("superarm.oracles.cascades._MOST_MEMBERS", 50)
    assert draw_sets(graph, 50, rng()).size == 50
    with pytest.raises(InputError, match="more than 50 nodes; raise epsilon"):
        draw_sets(graph, 51, rng())
