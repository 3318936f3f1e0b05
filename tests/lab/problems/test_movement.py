"""Problems with movement costs: truth, weights, starts, and the cheapest path."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from superarm.core import Decision, Feedback
from superarm.core.errors import InputError
from superarm.core.serialization import from_json, to_json
from superarm.core.streams import Streams, stream
from superarm.kernels import SquaredExponential
from superarm.lab.problems import MovementField
from superarm.lab.problems.movement import MovementProblem


def small(**options: object) -> MovementField:
    defaults: dict[str, object] = {
        "seed": 3,
        "horizon": 12,
        "side": 2,
        "contexts": 3,
        "episode": 4,
    }
    return MovementField(**{**defaults, **options})  # type: ignore[arg-type]


def chosen(step: int, action: int) -> Decision:
    positions = np.array([action])
    return Decision(step=step, action=positions, positions=positions)


def test_the_truth_is_a_draw_on_the_product_grid_scaled_to_0_and_1() -> None:
    world = small(side=5, contexts=7, rho=4.0)
    contexts = np.sort(stream(3, "contexts", 0).random(7))
    axis = np.linspace(0.0, 1.0, 5)
    points = np.array(list(itertools.product(contexts, axis, axis)))
    kernel = SquaredExponential(lengthscale=0.2)
    # The same normals through the roots of each axis, as one Kronecker product.
    roots = []
    for line in (contexts, axis, axis):
        values, vectors = np.linalg.eigh(kernel(line[:, None], line[:, None]))
        roots.append(vectors * np.sqrt(np.maximum(values, 0.0)))
    root = np.kron(np.kron(roots[0], roots[1]), roots[2])
    np.testing.assert_allclose(root @ root.T, kernel(points, points), atol=1e-12)
    f = root @ stream(3, "truth", 0).standard_normal(len(points))
    scaled = (f - f.min()) / np.ptp(f) * 0.8  # ρ/(1 + ρ)
    for step in range(1, 13):
        offer = world.offer(step)
        context = offer.arms.features[0, 2]
        assert set(offer.arms.features[:, 2]) == {context}
        rows = points[:, 0] == context
        np.testing.assert_array_equal(offer.arms.features[:, :2], points[rows, 1:])
        np.testing.assert_allclose(world.means(offer), scaled[rows], atol=1e-12)
    model = world.model
    scale = 0.8 / np.ptp(f)
    assert isinstance(model.kernel, SquaredExponential)
    assert model.kernel.variance == pytest.approx(scale**2)
    assert model.mean == pytest.approx(-f.min() * scale)
    assert model.noise_variance == pytest.approx((0.1 * scale) ** 2)
    offer = world.offer(1)
    drawn = world.noise(offer, np.random.default_rng(0))
    np.testing.assert_allclose(
        drawn, 0.1 * scale * np.random.default_rng(0).standard_normal(25)
    )
    copied = replace(world)  # its inputs are not modified
    np.testing.assert_array_equal(copied.noise(offer, np.random.default_rng(0)), drawn)
    # Distances are Euclidean, times 1/(1 + ρ).
    grid = points[points[:, 0] == contexts[0], 1:]
    slow = [[0.2 * np.hypot(*(one - other)) for other in grid] for one in grid]
    np.testing.assert_allclose(world.metric.distances, slow, atol=1e-15)


def test_costs_that_are_not_scaled_keep_their_range() -> None:
    plain, scaled = small(side=5, contexts=7, scaled=False), small(side=5, contexts=7)
    ranges = [max(np.ptp(world._costs) for _ in (0,)) for world in (plain, scaled)]
    assert ranges[1] == pytest.approx(0.5)
    assert ranges[0] != pytest.approx(0.5)
    np.testing.assert_allclose(
        plain._costs / ranges[0], scaled._costs / ranges[1], atol=1e-12
    )
    assert plain._costs.min() == scaled._costs.min() == 0.0


def test_starts_and_contexts_are_drawn_by_seed_and_step() -> None:
    world = small(horizon=400)
    for step in range(1, 41):
        offer = world.offer(step)
        begins = step % 4 == 1
        assert offer.begins == begins
        assert (offer.previous_action is not None) == begins
        if begins:
            drawn = Streams(3, "start").at((step - 1) // 4).integers(4)
            assert np.asarray(offer.previous_action).tolist() == [drawn]
    starts = [
        int(np.asarray(world.offer(step).previous_action)[0])
        for step in range(1, 400, 4)
    ]
    contexts = [float(world.offer(step).arms.features[0, 2]) for step in range(1, 401)]
    assert set(starts) == {0, 1, 2, 3}
    assert len(set(contexts)) == 3


def slow_best(world: MovementProblem, first: int, last: int) -> float:
    """The cheapest path through these rounds, by exhaustive search."""
    offers = [world.offer(step) for step in range(first, last + 1)]
    start = int(np.asarray(offers[0].previous_action)[0])
    costs, distances = [world.means(offer) for offer in offers], world.metric.distances
    totals = []
    for way in itertools.product(range(len(world.metric)), repeat=len(offers)):
        before = (start, *way[:-1])
        moved = sum(
            distances[one, other] for one, other in zip(before, way, strict=True)
        )
        totals.append(
            moved + sum(cost[action] for cost, action in zip(costs, way, strict=True))
        )
    return min(totals)


@pytest.mark.parametrize("rho", [0.1, 1.0, 10.0])
def test_the_benchmark_is_the_cheapest_way_through_each_episode(rho: float) -> None:
    world = small(rho=rho)
    for first in (1, 5, 9):
        total = sum(
            world.best(world.offer(step)).value for step in range(first, first + 4)
        )
        assert total == pytest.approx(slow_best(world, first, first + 3), rel=1e-12)


def test_a_run_that_ends_in_an_episode_is_measured_against_its_own_rounds() -> None:
    world = small(horizon=6)
    total = sum(world.best(world.offer(step)).value for step in (5, 6))
    assert total == pytest.approx(slow_best(world, 5, 6), rel=1e-12)


def test_value_and_metrics_add_service_and_movement() -> None:
    world = small()
    offer = world.offer(2).after(np.array([0]))
    decision = chosen(2, 3)
    service, moved = world.means(offer)[3], world.metric.distances[0, 3]
    assert world.value(offer, decision) == pytest.approx(service + moved)
    metrics = world.metrics(offer, decision, Feedback(positions=[3], rewards=[0.0]))  # type: ignore[arg-type]
    assert metrics == pytest.approx(
        {
            "service_cost": service,
            "movement_cost": moved,
            "total_cost": service + moved,
            "expected_total_cost": service + moved,
        }
    )
    assert world.measures["total_cost"].better == "down"


def test_costs_belong_to_the_round_also_of_an_offer_from_a_file() -> None:
    world = small()
    for step in range(1, 7):
        offer = world.offer(step)
        restored = from_json(to_json(offer))
        assert restored.arms is not offer.arms
        np.testing.assert_array_equal(world.means(restored), world.means(offer))


def test_bad_parameters_are_refused() -> None:
    for name, value in (
        ("rho", 0.0),
        ("rho", -1.0),
        ("side", 1),
        ("contexts", 0),
        ("episode", 0),
    ):
        with pytest.raises(InputError, match=name):
            small(**{name: value})


def test_degenerate_parameters_are_rejected_by_name() -> None:
    for rho in (0.0, 1e-300, 1e300):
        with pytest.raises(InputError, match="rho must be"):
            small(rho=rho)
    for lengthscale in (1e9, 1e90):
        with pytest.raises(InputError, match="costs do not differ"):
            small(lengthscale=lengthscale, contexts=1)
    assert np.ptp(small(lengthscale=1e3)._costs) == pytest.approx(0.5)


def test_no_best_action_after_the_last_round() -> None:
    world = small(horizon=6)  # in the middle of an episode
    for step in range(1, 7):
        assert np.isfinite(world.best(world.offer(step)).value)
    for step in (7, 9):
        with pytest.raises(InputError, match=f"step is {step}, .* 6 rounds"):
            world.best(world.offer(step))


@pytest.mark.parametrize("positions", [[], [0, 1]])
def test_one_action_is_taken_in_a_round(positions: list[int]) -> None:
    world = small(episode=1)
    places = np.array(positions, dtype=np.intp)
    with pytest.raises(InputError, match=f"{len(positions)} arms were chosen"):
        world.value(world.offer(1), Decision(step=1, action=places, positions=places))


def test_regret_with_any_alpha_and_beta() -> None:
    """Eqs. 3 and 4: α times the cheapest way through every episode, and β once in it."""
    plain, world = small(horizon=8), small(horizon=8, alpha=3.0, beta=0.25)
    assert "approximate_regret" not in plain.measures
    assert "approximate_regret" in world.measures
    assert "approximate_regret" in small(beta=0.25).measures
    total = regret = 0.0
    for step in range(1, 9):
        offer = world.offer(step).after(np.array([1]))
        decision = chosen(step, 1)
        nothing = Feedback(positions=np.array([1]), rewards=np.zeros(1))
        assert "approximate_regret" not in plain.metrics(offer, decision, nothing)
        measured = world.metrics(offer, decision, nothing)
        total += measured["total_cost"]
        regret += measured["approximate_regret"]
    optimum = sum(world.cheapest_path(first)[0].total for first in (1, 5))
    assert regret == pytest.approx(total - 3.0 * optimum - 2 * 0.25)
    assert small(alpha="theorem-1").competitive_ratio == pytest.approx(
        1.0 + np.log(4.0) ** 2
    )
    for wrong in (
        {"alpha": -1.0},
        {"alpha": "large"},
        {"beta": -1.0},
        {"beta": np.nan},
    ):
        with pytest.raises(InputError, match=next(iter(wrong))):
            small(**wrong)


def test_the_norm_of_the_truth() -> None:
    """On the full grid, by the kernel's inverse; both omit directions without variance."""
    world = small(side=4, contexts=3, lengthscale=0.3, rho=2.0)
    offers = {
        float(offer.arms.features[0, 2]): offer
        for offer in map(world.offer, range(1, 13))
    }
    assert len(offers) == 3
    points = np.concatenate([offer.arms.features for offer in offers.values()])
    f = (
        np.concatenate([world.means(offer) for offer in offers.values()])
        - world.model.mean
    )
    values, vectors = np.linalg.eigh(world.model.kernel(points, points))
    positive = values > 1e-11 * values.max()
    norm = np.sqrt(np.sum((vectors.T @ f)[positive] ** 2 / values[positive]))
    assert world.model.norm_bound == pytest.approx(norm, rel=0.02)
    assert world.model.norm_bound <= np.sqrt(len(points)) * 2.0
