"""A router that gets another state: every answer is by one state or by the other."""

from __future__ import annotations

from concurrent.futures import CancelledError
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest

from superarm.core.errors import StateError
from superarm.roads.energy import Vehicle
from superarm.roads.networks import RoadNetwork, generate_city
from superarm.roads.policies import route_greedy
from superarm.roads.problems.road_models import road_model
from superarm.roads.routing import Router
from superarm.roads.routing import router as module
from superarm.roads.routing.search import Form, Search

PLACES = ("r1", "r20", "r7", "r45")
WAIT = 60.0  # seconds until a test fails that would otherwise wait forever


@pytest.fixture(scope="module")
def city() -> RoadNetwork:
    return generate_city(edges=300, seed=1)


def learned(network: RoadNetwork, energy: float) -> Any:
    """A state in which some roads were seen to cost this much."""
    graph = network.line_graph()
    policy = route_greedy(road_model(graph, Vehicle(), horizon=1), posterior="finite")
    seen = np.arange(0, len(graph), 9)
    rewards = np.full(len(seen), energy)
    policy.posterior.observe(seen, rewards, rng=np.random.default_rng(0))
    return policy.state()


def answers(router: Router) -> tuple[Any, ...]:
    """A route, its energy and its comparison; to the last bit."""
    answer = router.route("r1", "r20")
    fastest = answer.others["fastest"]
    return (*answer.ids(), answer.best.energy, answer.best.spread, fastest.energy)


def prepared(city: RoadNetwork, state: Any, form: Form) -> Router:
    if form == "hierarchy":
        pytest.importorskip("numba")
    router = Router(city, state=state, search=form)
    router.prepare()
    return router


class Gate:
    """Holds ``read_learned`` until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_reached = Event()
        self._is_open = Event()
        read = module.read_learned

        def held(*arguments: Any) -> Any:
            self.is_reached.set()
            assert self._is_open.wait(WAIT)
            return read(*arguments)

        monkeypatch.setattr(module, "read_learned", held)

    def open(self) -> None:
        self._is_open.set()


@pytest.mark.parametrize("form", ["landmarks", "hierarchy"])
def test_a_refresh_is_used_once_it_is_complete(
    city: RoadNetwork, monkeypatch: pytest.MonkeyPatch, form: Form
) -> None:
    cheap, dear = learned(city, 5.0), learned(city, 60.0)
    router = prepared(city, cheap, form)
    before = answers(router)
    matrix = router.matrix(PLACES, PLACES)
    expected = prepared(city, dear, form)
    gate = Gate(monkeypatch)
    refresh = router.refresh(dear)
    assert gate.is_reached.wait(WAIT)
    # It cannot go on, and nobody sees anything of it.
    assert answers(router) == before
    np.testing.assert_array_equal(router.matrix(PLACES, PLACES), matrix)
    assert not refresh.done()
    gate.open()
    refresh.result(WAIT)
    assert answers(router) == answers(expected) != before
    np.testing.assert_array_equal(
        router.matrix(PLACES, PLACES), expected.matrix(PLACES, PLACES)
    )


@pytest.mark.parametrize("form", ["landmarks", "hierarchy"])
def test_no_answer_mixes_two_states(city: RoadNetwork, form: Form) -> None:
    states = [learned(city, energy) for energy in (5.0, 60.0)]
    routers = [prepared(city, state, form) for state in states]
    routes = {answers(router) for router in routers}
    matrices = {router.matrix(PLACES, PLACES).tobytes() for router in routers}
    assert len(routes) == len(matrices) == 2
    router = prepared(city, states[0], form)
    is_over = Event()
    seen_routes = set()
    seen_matrices = set()

    def ask() -> None:
        while not is_over.is_set():
            seen_routes.add(answers(router))
            seen_matrices.add(router.matrix(PLACES, PLACES).tobytes())

    threads = [Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for turn in range(1, 7):
            router.refresh(states[turn % 2]).result(WAIT)
    finally:
        is_over.set()
        for thread in threads:
            thread.join(WAIT)
    assert seen_routes
    assert seen_routes <= routes
    assert seen_matrices
    assert seen_matrices <= matrices


def test_an_answer_compares_by_the_state_that_it_was_found_by(
    city: RoadNetwork,
) -> None:
    states = [learned(city, energy) for energy in (5.0, 60.0)]
    expected = Router(city, state=states[0]).route("r1", "r20").as_json()
    router = Router(city, state=states[0])
    answer = router.route("r1", "r20")
    router.refresh(states[1]).result(WAIT)
    assert answer.as_json() == expected


def test_only_the_latest_refresh_that_waits_is_done(
    city: RoadNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = [learned(city, energy) for energy in (5.0, 20.0, 40.0, 60.0)]
    router = Router(city, state=states[0])
    expected = answers(Router(city, state=states[3]))
    gate = Gate(monkeypatch)
    first = router.refresh(states[1])
    assert gate.is_reached.wait(WAIT)
    second = router.refresh(states[2])
    third = router.refresh(states[3])
    assert second.cancelled()
    gate.open()
    first.result(WAIT)
    third.result(WAIT)
    with pytest.raises(CancelledError):
        second.result(WAIT)
    assert answers(router) == expected


def test_a_state_of_other_roads_changes_nothing(city: RoadNetwork) -> None:
    state = learned(city, 5.0)
    router = Router(city, state=state)
    before = answers(router)
    other = learned(generate_city(edges=300, seed=2), 60.0)
    with pytest.raises(StateError, match="another road network"):
        router.refresh(other).result(WAIT)
    with pytest.raises(StateError, match="you cannot set"):
        Router(city, settings={"mass": 2100.0}).refresh(state).result(WAIT)
    assert answers(router) == before


def test_few_changes_are_customised_from_the_hierarchy_before(
    city: RoadNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last bit as from nothing."""
    pytest.importorskip("numba")
    from superarm.roads.routing.hierarchy import metric

    monkeypatch.setattr(metric, "_FEW", 0.05)
    graph = city.line_graph()
    costs = graph.length.copy()
    before = Search(graph, costs, graph.turn_length, form="hierarchy")
    before.prepare()
    costs = costs.copy()
    costs[7] *= 3.0
    whole = Search(graph, costs, graph.turn_length, form="hierarchy")
    whole.prepare()

    def refuse(*_: object) -> None:
        raise AssertionError("customised from nothing")

    monkeypatch.setattr(metric, "customised", refuse)
    partly = Search(graph, costs, graph.turn_length, form="hierarchy")
    partly.prepare_like(before)
    for one, other in zip(
        partly._hierarchy.metric, whole._hierarchy.metric, strict=True
    ):
        np.testing.assert_array_equal(one, other)
