"""A fleet problem: vehicles, trips, energies and feedback."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superarm.core import Decision, Feedback, Offer
from superarm.core.errors import ConflictError, InfeasibleError, InputError
from superarm.kernels import Matern
from superarm.lab.simulation import Lateness, simulate
from superarm.models.worlds import World
from superarm.oracles import Trip
from superarm.policies import IndexPolicy
from superarm.posteriors import StreamingGP
from superarm.roads.energy import RoadScales, Vehicle
from superarm.roads.models import FleetModel
from superarm.roads.networks import generate_city
from superarm.roads.networks.netconvert import write_sumo
from superarm.roads.policies.navigation import (
    informed,
    known_cost,
    prior,
    route_greedy,
    route_ts,
)
from superarm.roads.posterior import RoadGP, noise_parts
from superarm.roads.problems import Fleet, fleet_draws
from superarm.roads.problems.fleet import Journey, road_rows
from superarm.roads.problems.fleet_departures import DepartureCache
from superarm.roads.problems.fleet_draws import DrawnTrips, cached_round
from superarm.roads.problems.fleet_vehicles import (
    Day,
    Factors,
    as_driven,
    draw_fleet,
)
from superarm.roads.problems.road_models import TABLE_2
from superarm.rules import Greedy
from superarm.testing import ProblemContract

SMALL: dict[str, Any] = {"edges": 200, "least_metres": 300.0, "vehicles": 4, "trips": 5}


def world(**options: Any) -> Fleet:
    return Fleet(**{"seed": 3, "horizon": 50, **SMALL, **options})


def along(offer: Offer, route: Any) -> Decision:
    return Decision(
        step=offer.step, action=tuple(route), positions=np.array(route, dtype=np.intp)
    )


def seen_of(
    problem: Fleet, step: int, route: Any = None
) -> tuple[Offer, Decision, Feedback]:
    """The informed route of a round, or another, driven."""
    offer = problem.offer(step)
    decision = along(offer, problem.informed_route(offer) if route is None else route)
    return offer, decision, problem.feedback(offer, decision, np.zeros(len(offer.arms)))


def other_route(problem: Fleet, offer: Offer, seed: int = 0) -> Any:
    """Some way or other from its start to its goal."""
    costs = -np.random.default_rng(seed).uniform(0.1, 1.0, len(offer.arms))
    return problem.model.oracle.select(
        costs, offer.structure, np.random.default_rng(0)
    ).positions


def trip_of(offer: Offer) -> Trip:
    assert isinstance(offer.structure, Trip)
    return offer.structure


class TestContract(ProblemContract):
    steps = (1, 2, 3, 40, 50)

    def make_problem(self, seed: int) -> Fleet:
        return world(seed=seed)

    def test_a_reward_uses_its_own_arms_noise(self) -> None:
        """Chance is in the day: of a route driven twice everything is the same."""
        problem = self.make_problem(3)
        for step in self.steps:
            offer, decision, seen = seen_of(problem, step)
            noise = problem.noise(offer, np.random.default_rng(0))
            assert not noise.any()
            repeated = problem.feedback(offer, decision, np.ones(len(noise)))
            np.testing.assert_array_equal(repeated.rewards, seen.rewards)

    def test_nothing_beats_the_best(self) -> None:
        """There is no known best: regret is against the informed prior's route."""
        problem = self.make_problem(3)
        offer, decision, _ = seen_of(problem, 1)
        assert problem.best(offer).value == problem.value(offer, decision)


def test_it_is_a_world() -> None:
    problem = world()
    assert isinstance(problem, World)
    assert isinstance(problem.model, FleetModel)
    assert problem.direction == problem.model.direction == "minimize"
    assert problem.model.horizon == 50
    assert all(text.strip() for text in problem.interpretations.values())
    assert problem.truth(problem.offer(1)) is None
    assert problem.road_map() is not None
    with pytest.raises(InputError, match="measured, not known"):
        problem.means(problem.offer(1))
    metrics = problem.metrics(*seen_of(problem, 1))
    assert set(metrics) <= set(problem.measures)


# --- offers --------------------------------------------------------------------------------


def test_offers_name_vehicle_and_trip() -> None:
    problem = world()
    pairs, vehicles, times = set(), set(), [0.0]
    for step in range(1, 51):
        offer, journey = problem.offer(step), problem.journey(step)
        trip, vehicle = trip_of(offer), problem.fleet[journey.vehicle]
        pairs.add((trip.start, trip.goal))
        vehicles.add(journey.vehicle)
        assert offer.time is not None
        times.append(offer.time)
        np.testing.assert_array_equal(
            offer.arms.features, road_rows(problem.graph, vehicle, journey.vehicle)
        )
        np.testing.assert_array_equal(
            trip.turn_costs, vehicle.turn_energy(problem.graph)
        )
    assert len(pairs) == 5
    assert vehicles == {0, 1, 2, 3}
    assert (np.diff(times) > 0.0).all()


def test_rows_are_the_energy_model_of_the_vehicle() -> None:
    graph, vehicle = world().graph, Vehicle(mass=2400.0, auxiliary_power=900.0)
    rows = road_rows(graph, vehicle, 7)
    energies = vehicle.energy(
        graph.length, graph.speed, graph.rise
    ) - vehicle.potential(graph.rise)
    np.testing.assert_allclose(rows[:, 1], energies)
    assert (energies >= 0.0).all()  # so that Dijkstra's algorithm is exact
    np.testing.assert_array_equal(rows[:, 0], np.arange(len(graph)))
    assert rows[0, 6] == 2400.0 / 1830.0
    assert (rows[:, 8] == 7).all()
    # Terms: what a share more of one parameter adds, in Wh. Rolling and drag count where G ≥ 0.
    flat = np.zeros(len(graph))
    for column, name in ((2, "rolling_resistance"), (4, "air_drag")):
        more = replace(vehicle, **{name: 2.0 * getattr(vehicle, name)})
        added = more.energy(graph.length, graph.speed, flat) - vehicle.energy(
            graph.length, graph.speed, flat
        )
        np.testing.assert_allclose(
            rows[:, column],
            added * vehicle.propulsion_efficiency,
            rtol=1e-12,
        )
    heating = replace(vehicle, auxiliary_power=vehicle.auxiliary_power + 1000.0)
    added = heating.energy(graph.length, graph.speed, flat) - vehicle.energy(
        graph.length, graph.speed, flat
    )
    np.testing.assert_allclose(rows[:, 3], added, rtol=1e-9)
    np.testing.assert_allclose(
        rows[:, 5] * vehicle.recuperation_efficiency,
        vehicle.potential(graph.rise),
        rtol=1e-12,
    )


def test_longer_horizon_starts_with_the_same_rounds() -> None:
    short, long = world(horizon=10), world(horizon=40)
    for step in range(1, 11):
        one, other = short.offer(step), long.offer(step)
        assert one.time == other.time
        assert (trip_of(one).start, trip_of(one).goal) == (
            trip_of(other).start,
            trip_of(other).goal,
        )
        np.testing.assert_array_equal(one.arms.features, other.arms.features)


def test_a_new_pair_for_every_trip() -> None:
    problem = world(trips=0, horizon=20)
    pairs = [
        (trip_of(problem.offer(step)).start, trip_of(problem.offer(step)).goal)
        for step in range(1, 21)
    ]
    assert len(set(pairs)) == 20


def test_trips_have_the_requested_length() -> None:
    problem = world(least_metres=400.0, most_metres=700.0, horizon=20)
    fastest = known_cost(problem.model, cost="travel_time")
    for step in range(1, 21):
        route = fastest.decide(problem.offer(step), np.random.default_rng(0)).positions
        assert 400.0 <= problem.graph.length[route].sum() <= 700.0


def test_vehicles_differ_in_known_and_hidden_parameters() -> None:
    """Logarithms of known parameters differ by ``variety``: the standard deviation of 4 · 200 normals
    errs by σ/√(2 · 800), five times which is allowed."""
    problem = world(vehicles=200, variety=0.2, wear=0.07, payload=100.0)
    log_ratios = np.log(
        [
            [v.mass - 50.0, v.air_drag, v.rolling_resistance, v.auxiliary_power - 600.0]
            for v in problem.fleet
        ]
    )
    log_ratios -= np.log([1830.0, 0.35, 0.01, 500.0])
    assert abs(np.sqrt(np.square(log_ratios).mean()) - 0.2) < 5.0 * 0.2 / np.sqrt(
        1600.0
    )
    off = np.log(problem._wears)
    assert abs(np.sqrt(np.square(off).mean()) - 0.07) < 5.0 * 0.07 / np.sqrt(1600.0)
    for step in range(1, 40):
        journey = problem.journey(step)
        known, wear = problem.fleet[journey.vehicle], problem._wears[journey.vehicle]
        load = journey.own.mass - (known.mass - 50.0) * wear[0]
        assert -1e-9 <= load <= 100.0 + 1e-9
        degrees = 283.0 * known.air_density / journey.own.air_density - 273.0
        heated = 60.0 * (abs(degrees - 20.0) - 10.0)
        assert journey.own.auxiliary_power == pytest.approx(
            max(0.0, known.auxiliary_power * wear[3] + heated)
        )


def test_without_variety_wear_payload_and_weather_all_days_are_alike() -> None:
    problem = world(variety=0.0, wear=0.0, payload=0.0, weather=0.0)
    for step in range(1, 9):
        assert problem.journey(step).own == problem.fleet[0]


# --- what a trip costs ---------------------------------------------------------------------


@pytest.mark.parametrize("seen", ["edges", "trips"])
def test_feedback_metric_and_value_are_one_energy(seen: str) -> None:
    """Rewards, turns at their expected costs and what is stored in height add up to it."""
    problem = world(seen=seen)
    for step in range(1, 11):
        for route in (None, other_route(problem, problem.offer(step), step)):
            offer, decision, feedback = seen_of(problem, step, route)
            vehicle, positions = (
                problem.fleet[problem.journey(step).vehicle],
                decision.positions,
            )
            turn_costs = trip_of(offer).turn_costs
            assert turn_costs is not None
            turns = turn_costs[problem.graph.turn_numbers(positions)].sum()
            height = vehicle.potential(problem.graph.rise[positions].sum())
            energy = problem.value(offer, decision)
            assert feedback.rewards.sum() + turns + height == pytest.approx(
                energy, abs=1e-9
            )
            assert problem.metrics(offer, decision, feedback)["true_energy"] == energy
            np.testing.assert_array_equal(feedback.positions, positions)
            if seen == "trips":
                assert feedback.sums is not None
                assert not feedback.sums.any()
                assert feedback.rewards.shape == (1,)


def test_edge_and_trip_feedback_describe_the_same_drive() -> None:
    for step in range(1, 6):
        of_edges, of_trip = (
            seen_of(world(seen=seen), step)[2] for seen in ("edges", "trips")
        )
        assert of_trip.rewards[0] == pytest.approx(of_edges.rewards.sum(), abs=1e-9)


def test_potential_energy_does_not_depend_on_the_route() -> None:
    problem = world()
    for step in range(1, 6):
        offer = problem.offer(step)
        rises = [
            problem.graph.rise[other_route(problem, offer, seed)].sum()
            for seed in range(4)
        ]
        np.testing.assert_allclose(rises, rises[0], atol=1e-9)


def test_a_forecast_is_of_what_will_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the model is right but for 1 Wh an edge, residuals are that, and nothing else."""
    nothing = RoadScales(near=1e-4, own=1e-4, share=1e-4, noise=1e-4, noise_per_time=1e-4,
                         noise_per_stop=1e-4)  # fmt: skip
    model = "superarm.roads.problems.fleet_model.RoadScales"
    monkeypatch.setattr(model, lambda: nothing)
    monkeypatch.setattr(fleet_draws, "_SCALES", nothing)
    problem = world(wear=0.0, payload=0.0, weather=0.0, variety=0.3)
    policy = route_greedy(problem.model, spread="none")
    for step in range(1, 9):
        offer, decision, feedback = seen_of(problem, step)
        forecast = policy.forecast(offer, decision.positions)
        offsets = offer.arms.features[decision.positions, 6]
        # Six standard deviations of near, own, share·size and noise, sizes up to some 100 Wh.
        np.testing.assert_allclose(
            feedback.rewards, forecast.mean + offsets, atol=6e-4 * 100.0
        )


@pytest.mark.slow
def test_drawn_trips_have_the_noise_of_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The mean square of standardised noise lies within 5 · √(2/N) of 1: terms tell all but for it."""
    problem = world(
        wear=0.0, payload=0.0, weather=0.0, vehicles=3, variety=0.5, horizon=400
    )
    monkeypatch.setattr(DrawnTrips, "roads", np.zeros(len(problem.graph)))
    scores = []
    for step in range(1, 401):
        offer, decision, feedback = seen_of(problem, step)
        keys = offer.arms.features[decision.positions]
        variance = noise_parts(keys)[:, :3] @ np.square(RoadScales().noise_scales[:3])
        scores.append((feedback.rewards - keys[:, 1]) / np.sqrt(variance))
    every = np.concatenate(scores)
    assert abs(np.square(every).mean() - 1.0) < 5.0 * np.sqrt(2.0 / len(every))


def test_a_trip_takes_its_roads_and_turns() -> None:
    problem = world()
    offer, decision, feedback = seen_of(problem, 1)
    graph = problem.graph
    turns = graph.turn_numbers(decision.positions)
    metrics = problem.metrics(offer, decision, feedback)
    expected = (
        graph.travel_time[decision.positions].sum() + graph.turn_seconds[turns].sum()
    )
    assert metrics["duration"] == pytest.approx(expected)
    assert metrics["stranded"] == 0.0


# --- when it is known ----------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("late", [0.0, 300.0, 1e6])
@pytest.mark.parametrize("seen", ["edges", "trips"])
def test_feedback_is_as_late_as_the_trip_takes(late: float, seen: str) -> None:
    """What is known at a departure is what was known by then: d more rounds are decided before."""
    problem = world(late=late, seen=seen)
    longer = world(late=late, seen=seen, horizon=200)  # which departs alike
    times = [longer.offer(step).time or 0.0 for step in range(1, 201)]
    for step in range(1, 51):
        offer, decision, feedback = seen_of(problem, step)
        known = (
            times[step - 1]
            + problem.metrics(offer, decision, feedback)["duration"]
            + late
        )
        assert feedback.delays is not None
        assert len(set(feedback.delays.tolist())) == 1
        delay = int(feedback.delays[0])
        assert all(time <= known for time in times[step : step + delay])
        assert all(time > known for time in times[step + delay :])
    assert seen_of(world(seen=seen), 1)[2].delays is None


def test_late_fleet_decides_before_feedback() -> None:
    problem = world(late=200.0, seen="trips", horizon=20)
    policy = route_greedy(problem.model, spread="none")
    waiting = []

    class Watched(Fleet):
        def feedback(self, offer: Offer, decision: Decision, noise: Any) -> Feedback:
            waiting.append(len(policy._ledger._pending))
            return super().feedback(offer, decision, noise)

    simulate(
        Watched(seed=3, horizon=20, late=200.0, seen="trips", **SMALL),
        {"it": policy},
        rounds=20,
        seed=3,
    )
    posterior = policy.posterior
    assert isinstance(posterior, RoadGP)
    assert 10 < posterior.trips < 20  # the last ones come after the run
    assert max(waiting) > 1
    assert problem.interpretations["feedback"] == "of whole trips, 200 s after arrival"


@pytest.mark.slow
def test_trip_feedback_arrives_as_one_total() -> None:
    """Delays that a run adds must be one for the trip; of single edges each may have its own."""
    for seen, together in (
        ("trips", True),
        ("edges", True),
        ("edges", False),
        ("trips", False),
    ):
        problem = world(seen=seen, horizon=12)
        policy = route_greedy(problem.model, spread="none")
        lateness = Lateness(earliest=1, latest=4, lost=0.2, together=together)
        if seen == "trips" and not together:
            with pytest.raises(InputError, match="together = true"):
                simulate(problem, {"it": policy}, rounds=12, seed=3, lateness=lateness)
            continue
        simulate(problem, {"it": policy}, rounds=12, seed=3, lateness=lateness)
        posterior = policy.posterior
        assert isinstance(posterior, RoadGP)
        assert posterior.trips > 0
        assert (posterior.count == posterior.trips) == (seen == "trips")


def test_only_some_posteriors_learn_from_sums() -> None:
    problem = world(seen="trips")
    offer, decision, seen = seen_of(problem, 1)
    plain = IndexPolicy(
        posterior=StreamingGP(Matern(), 0.1),
        rule=Greedy(),
        oracle=problem.model.oracle,
        direction="minimize",
    )
    with pytest.raises(InputError, match="the posterior 'roads'"):
        plain.learn(offer, decision, seen, np.random.default_rng(0))
    assert plain.posterior.count == 0
    policy = route_greedy(problem.model, spread="none")
    policy.commit(policy.decide(offer, np.random.default_rng(0)))
    policy.learn(offer, decision, seen, np.random.default_rng(0))
    assert not policy.awaits  # all arms of the trip were seen, in one reward
    with pytest.raises(ConflictError, match="learned already"):
        policy.learn(offer, decision, seen, np.random.default_rng(0))


# --- policies ------------------------------------------------------------------------------


def test_the_informed_prior_takes_the_route_that_regret_is_measured_against() -> None:
    problem = world()
    trace = simulate(problem, {"informed": informed(problem.model)}, rounds=20, seed=3)[
        "informed"
    ]
    assert not trace.series["regret"].any()
    assert trace.series["true_energy"].shape == (20,)


def test_priors_and_known_costs_count_turns() -> None:
    """Each by brute force over routes that others take."""
    problem = world()
    graph, model = problem.graph, problem.model
    for step in range(1, 6):
        offer = problem.offer(step)
        routes = [other_route(problem, offer, seed) for seed in range(5)]
        own_vehicle = problem.fleet[problem.journey(step).vehicle]
        totals = {
            "length": (graph.length, graph.turn_length),
            "travel_time": (graph.travel_time, graph.turn_seconds),
        }
        for cost, (edges, turns) in totals.items():
            best = (
                known_cost(model, cost=cost)
                .decide(offer, np.random.default_rng(0))
                .positions
            )
            sums = [
                edges[r].sum() + turns[graph.turn_numbers(r)].sum()
                for r in (best, *routes)
            ]
            assert sums[0] <= min(sums) + 1e-9
        for policy, vehicle in (
            (prior(model, spread="none"), Vehicle()),
            (informed(model), own_vehicle),
        ):
            best = policy.decide(offer, np.random.default_rng(0)).positions
            edges = vehicle.energy(
                graph.length, graph.speed, graph.rise
            ) - vehicle.potential(graph.rise)
            turns = vehicle.turn_energy(graph)
            sums = [
                edges[r].sum() + turns[graph.turn_numbers(r)].sum()
                for r in (best, *routes)
            ]
            assert sums[0] <= min(sums) + 1e-9


def test_a_fleet_has_its_own_posterior() -> None:
    model = world().model
    for make in (route_greedy, route_ts):
        policy = make(model)
        assert isinstance(policy.posterior, RoadGP)
        for options in (
            {"posterior": "finite"},
            {"penalty": 0.5},
            {"routing": "potential"},
        ):
            with pytest.raises(InputError):
                make(model, **options)


@pytest.mark.slow
def test_learning_pays_where_there_is_something_to_learn() -> None:
    """In this city, in which half of the informed routes are not the best."""
    problem = world(seed=2, edges=600, least_metres=800.0, horizon=40)
    policies: dict[str, Any] = {"greedy": route_greedy(problem.model, spread="none")}
    trace = simulate(problem, policies, rounds=40, seed=2)["greedy"]
    assert trace.series["regret"].mean() < -1.0


@pytest.mark.slow
def test_runs_are_reproducible_and_copies_agree() -> None:
    def run(problem: Fleet) -> Any:
        policy: IndexPolicy = route_ts(problem.model, mode="joint", spread="none")
        return simulate(problem, {"ts": policy}, rounds=15, seed=3)["ts"]

    first = run(world(late=100.0))
    for problem in (
        world(late=100.0),
        copy.deepcopy(world(late=100.0)),
        pickle.loads(pickle.dumps(world(late=100.0))),
    ):
        repeated = run(problem)
        assert repeated.choices is not None
        np.testing.assert_array_equal(repeated.choices, first.choices)
        np.testing.assert_array_equal(
            repeated.series["true_energy"], first.series["true_energy"]
        )


# --- parameters ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        {"horizon": 0},
        {"seed": -1},
        {"trips": -1},
        {"vehicles": 0},
        {"moments": 0},
        {"seen": "turns"},
        {"variety": -0.1},
        {"variety": 50.0},
        {"wear": -0.1},
        {"wear": 50.0},
        {"payload": -1.0},
        {"payload": np.nan},
        {"weather": -1.0},
        {"weather": 500.0},
        {"headway": 0.0},
        {"headway": np.inf},
        {"late": -1.0},
        {"least_metres": -1.0},
        {"least_metres": 900.0, "most_metres": 800.0},
        {"least_metres": np.nan},
        {"traffic": -1.0},
        {"uturns": "perhaps"},
        {"edges": 0},
        {"driven": True},
    ],
    ids=str,
)
def test_invalid_parameters_are_rejected(bad: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        world(**bad)


def test_distances_that_no_trip_has() -> None:
    with pytest.raises(InfeasibleError, match="ask for other distances"):
        world(least_metres=90_000.0, most_metres=99_000.0).offer(1)


def test_rounds_count_from_one() -> None:
    for trips in (0, 5):
        with pytest.raises(InputError, match="step"):
            world(trips=trips).offer(0)


# --- in SUMO -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("libsumo", reason="libsumo is not installed")
    pytest.importorskip("sumo", reason="sumo is not installed")
    return write_sumo(
        generate_city(edges=200, seed=1), tmp_path_factory.mktemp("net") / "own.net.xml"
    )


def driving(net: Path, **options: Any) -> Fleet:
    return world(
        network=str(net), **{"trips": 2, "moments": 2, "horizon": 10, **options}
    )


@pytest.mark.parametrize("options", [{}, {"flat": True}, {"traffic": 300.0}], ids=str)
def test_driven_trips_are_one_energy_too(net: Path, options: dict[str, Any]) -> None:
    problem = driving(net, **options)
    assert "driven in SUMO" in problem.interpretations["energy"]
    graph = problem.graph
    for step in (1, 2):
        offer, decision, feedback = seen_of(problem, step)
        vehicle, positions = (
            problem.fleet[problem.journey(step).vehicle],
            decision.positions,
        )
        turn_costs = trip_of(offer).turn_costs
        assert turn_costs is not None
        turns = turn_costs[graph.turn_numbers(positions)].sum()
        height = vehicle.potential(graph.rise[positions].sum())
        metrics = problem.metrics(offer, decision, feedback)
        assert feedback.rewards.sum() + turns + height == pytest.approx(
            metrics["true_energy"], abs=1e-9
        )
        assert problem.value(offer, decision) == metrics["true_energy"]
        assert metrics["duration"] > 0.0
    if "flat" in options:
        assert not graph.rise.any()


def test_the_vehicle_of_the_day_is_driven(net: Path) -> None:
    """On empty roads a drive is the same for all vehicles; its energy is not."""
    problem = driving(net, payload=0.0, wear=0.0, weather=0.0, variety=0.4)
    route = problem.informed_route(problem.offer(1))
    totals = {}
    for step in range(1, 11):
        journey = problem.journey(step)
        totals[journey.vehicle, journey.moment] = problem.energies(step, route).sum()
    assert len(set(totals.values())) == len(totals)
    rebuilt = driving(net, payload=0.0, wear=0.0, weather=0.0, variety=0.4)
    assert rebuilt.energies(1, route).sum() == problem.energies(1, route).sum()


def test_drives_are_cached_in_a_file(net: Path, tmp_path: Path) -> None:
    cache = str(tmp_path / "drives.sqlite")
    expected = seen_of(driving(net), 1)[2].rewards
    for _ in range(2):
        np.testing.assert_array_equal(
            seen_of(driving(net, cache=cache), 1)[2].rewards, expected
        )
    assert Path(cache).exists()


def test_a_fleet_that_drives_can_be_copied(net: Path) -> None:
    problem = driving(net)
    for other in (copy.deepcopy(problem), pickle.loads(pickle.dumps(problem))):
        np.testing.assert_array_equal(
            seen_of(other, 1)[2].rewards, seen_of(problem, 1)[2].rewards
        )


def test_learners_drive(net: Path) -> None:
    problem = driving(net, late=30.0)
    policy = route_greedy(problem.model, spread="none")
    trace = simulate(problem, {"greedy": policy}, rounds=10, seed=3)["greedy"]
    assert np.isfinite(trace.series["true_energy"]).all()
    assert policy.posterior.count > 0


def test_a_network_may_be_drawn_on_instead(net: Path) -> None:
    problem = driving(net, driven=False)
    assert "drawn" in problem.interpretations["energy"]
    assert np.isfinite(seen_of(problem, 1)[2].rewards).all()


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(
        InputError, match=r"'/nowhere/town\.net\.xml' is neither a file nor"
    ):
        world(network="/nowhere/town.net.xml")


def test_from_an_openstreetmap_extract_with_heights_of_tiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_map: Any
) -> None:
    pytest.importorskip("libsumo", reason="libsumo is not installed")
    pytest.importorskip("sumo", reason="sumo is not installed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "town.osm"
    write_map(file, {})
    row, column = np.indices((1201, 1201))
    heights = (40.0 * np.sin(row * 0.15) + 30.0 * np.cos(column * 0.25)).astype(">i2")
    (tmp_path / "N49E006.hgt").write_bytes(heights.tobytes())
    options = {"trips": 1, "least_metres": 200.0, "moments": 1}
    hilly = driving(file, elevation=str(tmp_path / "N49E006.hgt"), **options)
    flat = driving(file, flat=True, **options)
    assert hilly.graph.rise.any()
    assert not flat.graph.rise.any()
    costs = []
    for problem in (hilly, flat):
        offer, decision, feedback = seen_of(problem, 1)
        assert problem.metrics(offer, decision, feedback)["stranded"] == 0.0
        costs.append(problem.value(offer, decision))
    # The same roads and vehicle: a hill costs its potential, at η⁺ and η⁻ near 1, or is braked away.
    route = hilly.informed_route(hilly.offer(1))
    assert route == flat.informed_route(flat.offer(1))
    own = hilly.journey(1).own
    assert (
        costs[0] - costs[1] >= own.potential(hilly.graph.rise[list(route)].sum()) - 1.0
    )


def test_cached_vehicles_are_bounded_by_their_bytes() -> None:
    problem = world()
    graph = problem.graph
    one = DepartureCache(10**9).get(graph, problem.fleet[0], 0)
    cache = DepartureCache(3 * one.bytes)
    first = cache.get(graph, problem.fleet[0], 0)
    for number in range(1, 40):
        cache.get(graph, problem.fleet[0], number)
        assert cache.get(graph, problem.fleet[0], 0) is first  # used last, so it stays
    assert len(cache._departures) == 3
    assert cache._bytes == 3 * one.bytes
    np.testing.assert_array_equal(
        first.arms.features, road_rows(graph, problem.fleet[0], 0)
    )


def test_a_vehicle_larger_than_the_cache_is_cached_alone() -> None:
    problem = world()
    cache = DepartureCache(1)
    first = cache.get(problem.graph, problem.fleet[0], 0)
    assert cache.get(problem.graph, problem.fleet[0], 0) is first


def test_heating_and_cooling_take_power_and_give_none() -> None:
    """60 W for each degree from 20 °C, of which ten are part of what the fleet expects."""
    vehicle = replace(TABLE_2, auxiliary_power=100.0)
    as_new = Factors(mass=1.0, drag=1.0, rolling=1.0, power=1.0)
    for temperature, power in ((40.0, 700.0), (20.0, 0.0), (0.0, 700.0)):
        day = Day(load=0.0, temperature=temperature)
        driven = as_driven(vehicle, as_new, day, payload=0.0)
        assert driven.auxiliary_power == pytest.approx(power)


def test_half_of_the_payload_is_part_of_the_mass() -> None:
    (vehicle,) = draw_fleet(0, 1, variety=0.0, payload=100.0)
    assert vehicle.mass == TABLE_2.mass + 50.0


def test_roads_are_drawn_with_the_scales_of_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the part that roads share is 0, and each one's own part is one deviation."""

    class Normals:
        def __init__(self) -> None:
            self.values = [0.0, 1.0]

        def standard_normal(self, count: int) -> Any:
            return np.full(count, self.values.pop(0))

    monkeypatch.setattr(fleet_draws, "stream", lambda *key: Normals())
    problem = world()
    scales, sizes = RoadScales(), problem.model.sizes
    roads = DrawnTrips(0, problem.graph, problem.model).roads
    own = np.sqrt(scales.own**2 + np.square(scales.share * sizes))
    np.testing.assert_allclose(roads, 1.0 + own)


def test_the_latest_rounds_are_cached() -> None:
    cache: dict[int, int] = {}
    computed: list[int] = []

    def compute(step: int) -> int:
        computed.append(step)
        return 10 * step

    for step in (1, 2, 2, 1, 3, 2, 1):
        assert cached_round(cache, step, compute, most=2) == 10 * step
        assert len(cache) <= 2
    assert computed == [1, 2, 3, 1]


def test_a_simulation_makes_each_journey_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It draws a block of rounds, and then plays it."""
    problem = world()
    steps: list[int] = []
    make = problem._make_journey

    def counted(step: int) -> Journey:
        steps.append(step)
        return make(step)

    monkeypatch.setattr(type(problem), "_make_journey", staticmethod(counted))
    for _ in range(2):
        for step in range(1, 21):
            problem.journey(step)
    assert steps == list(range(1, 21))


def test_the_model_has_a_kernel_of_variance_one_and_the_noise_of_its_scales() -> None:
    """The variance is estimated from ten draws, to a few per cent."""
    model = world().model
    arms = np.arange(len(model.sizes), dtype=np.float64)[:, None]
    assert model.kernel.diag(arms).mean() == pytest.approx(1.0, rel=0.2)
    assert model.noise_variance == pytest.approx(RoadScales().noise ** 2)
