"""The contract of ``core.Problem``, for every registered problem."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest

from superarm.core import Best, Decision, Offer, Problem, registry
from superarm.core.errors import InputError, SpecError
from superarm.core.streams import stream
from superarm.models import World

SPECS: list[dict[str, Any]] = [
    {"name": "rkhs-function"},
    {"name": "rkhs-function", "kernel": "matern", "arms": 30, "dimension": 2},
    {"name": "gp-function"},
    {"name": "gp-function", "kernel": "matern", "regularisation": "theory"},
    {"name": "benchmark-function"},
    {"name": "benchmark-function", "function": "hartmann3"},
    {"name": "temperature-sensors", "source": "synthetic"},
    {"name": "light-sensors", "source": "synthetic"},
    {"name": "landscape", "side": 6},
    {"name": "crowdsourcing", "source": "synthetic"},
    {
        "name": "crowdsourcing",
        "source": "synthetic",
        "counting": "in the city",
        "k": 3,
        "workers": 20,
    },
    {"name": "codependency", "pool": 300},
]
HORIZON = 50


def label(spec: dict[str, Any]) -> str:
    return " ".join(str(value) for value in spec.values())


def build(spec: dict[str, Any], seed: int = 3) -> Any:
    return registry.build("problem", spec, seed=seed, horizon=HORIZON)


@pytest.fixture(params=SPECS, ids=label)
def spec(request: pytest.FixtureRequest) -> dict[str, Any]:
    chosen: dict[str, Any] = request.param
    return chosen


@pytest.fixture
def problem(spec: dict[str, Any]) -> Any:
    return build(spec)


def super_arms(problem: Any, n: int) -> Iterator[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(1)
    while True:
        yield rng.permutation(n)[: problem.model.oracle.k]


def decided(offer: Offer, positions: np.ndarray[Any, Any]) -> Decision:
    return Decision(step=offer.step, action=positions, positions=positions)


def test_every_registered_problem_is_here() -> None:
    # Routes, nodes and pairs, not sets of any k arms, and truths that move: tried by themselves.
    apart = {
        "navigation",
        "sumo-navigation",
        "movies",
        "channels",
        "drifting-function",
        "fleet",
    }
    apart |= {"temperature-series", "traffic-series", "movement-field", "wind"}
    assert {spec["name"] for spec in SPECS} == set(registry.names("problem")) - apart


def test_it_is_a_world(problem: Any) -> None:
    assert isinstance(problem, World)
    as_problem: Problem = problem  # for the type checker
    assert as_problem.direction == problem.model.direction
    assert problem.model.horizon == HORIZON
    assert problem.interpretations
    assert all(text.strip() for text in problem.interpretations.values())


def test_offers_depend_on_seed_and_step_alone(spec: dict[str, Any]) -> None:
    steps = [1, 2, 3, 1023, 1024, 30_000]
    forward = {step: build(spec).offer(step) for step in steps}
    rebuilt = build(spec)
    for step in [*reversed(steps), 2]:
        offer = rebuilt.offer(step)
        assert offer.step == step
        assert offer.arms.ids == forward[step].arms.ids
        np.testing.assert_array_equal(offer.arms.features, forward[step].arms.features)


def test_seeds_differ(spec: dict[str, Any]) -> None:
    one, other = build(spec, seed=3), build(spec, seed=4)
    first, second = one.means(one.offer(1)), other.means(other.offer(1))
    assert first.shape != second.shape or not np.allclose(first, second)


def test_rewards_are_means_plus_noise_for_all_arms(problem: Any) -> None:
    for step in (1, 7):
        offer = problem.offer(step)
        noise = problem.noise(offer, stream(3, "noise", step))
        means = problem.means(offer)
        assert noise.shape == means.shape == (len(offer.arms),)
        for positions in islice(super_arms(problem, len(offer.arms)), 5):
            feedback = problem.feedback(offer, decided(offer, positions), noise)
            np.testing.assert_array_equal(feedback.positions, positions)
            np.testing.assert_array_equal(
                feedback.rewards, means[positions] + noise[positions]
            )
            assert feedback.noise_variance is feedback.delays is None


def test_noise_is_gaussian_with_the_stated_deviation(problem: Any) -> None:
    """The mean square of N draws lies within 5 standard errors √(2/N) of one."""
    offer = problem.offer(1)
    rng = np.random.default_rng(0)
    draws = np.concatenate([problem.noise(offer, rng) for _ in range(200)])
    ratio = np.mean((draws / problem.model.noise_bound) ** 2)
    assert abs(ratio - 1.0) < 5.0 * np.sqrt(2.0 / len(draws))


def test_nothing_beats_the_best(problem: Any) -> None:
    rng = np.random.default_rng(0)
    for step in (1, 2, 3):
        offer = problem.offer(step)
        best = problem.best(offer)
        assert type(best) is Best
        assert type(best.value) is float
        assert best.guarantee == (1.0, 1.0)
        for positions in islice(super_arms(problem, len(offer.arms)), 50):
            value = problem.value(offer, decided(offer, positions))
            assert type(value) is float
            assert value <= best.value
        chosen = problem.model.oracle.select(problem.means(offer), None, rng).positions
        for order in (chosen, chosen[::-1]):  # not even rounding tells them apart
            assert problem.value(offer, decided(offer, order)) == best.value


def test_metrics_are_numbers(problem: Any) -> None:
    offer = problem.offer(1)
    decision = decided(offer, np.arange(problem.model.oracle.k))
    feedback = problem.feedback(
        offer, decision, problem.noise(offer, np.random.default_rng(0))
    )
    for name, number in problem.metrics(offer, decision, feedback).items():
        assert isinstance(name, str)
        assert np.isfinite(number)


def test_the_model_fits_the_offers(problem: Any) -> None:
    model = problem.model
    assert model.noise_variance > 0.0
    for step in (1, 5):
        arms = problem.offer(step).arms
        assert len(arms) <= model.most_arms
        covariance = model.kernel(arms.features)
        assert covariance.shape == (len(arms), len(arms))
        if model.arms is not None:
            np.testing.assert_array_equal(model.arms, arms.features)
        assert callable(model.mean) or np.shape(model.mean) in ((), (len(arms),))
    assert registry.build("gain", model.gain)(10) > 0.0


def test_steps_count_from_one(problem: Any) -> None:
    for step in (0, -1):
        with pytest.raises(InputError, match="step must be"):
            problem.offer(step)


@pytest.mark.parametrize(
    "bad", [{"seed": -1}, {"seed": 1.5}, {"horizon": 0}, {"horizon": 10.0}], ids=str
)
def test_bad_seed_and_horizon(spec: dict[str, Any], bad: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(bad))} must be"):
        registry.build("problem", spec, **({"seed": 0, "horizon": 10} | bad))


def test_unknown_parameters_are_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="has no parameter 'colour'"):
        build({**spec, "colour": "red"})
