"""Synthetic functions: formulas against naive recomputation, published optima against a search."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from superarm.core import registry
from superarm.core.errors import InputError
from superarm.core.streams import stream
from superarm.kernels import Matern, SquaredExponential
from superarm.lab.problems import (
    BENCHMARKS,
    FiniteProblem,
    benchmark_function,
    gp_function,
    rkhs_function,
)


def truth_parts(
    seed: int, kernel: Any, arms: int = 100, dimension: int = 1
) -> tuple[Any, Any, Any]:
    """Points, kernel matrix and draw, step by step as documented."""
    rng = stream(seed, "truth", 0)
    points = rng.random((arms, dimension))
    K = kernel(points)
    values, vectors = np.linalg.eigh(K)
    root = vectors @ np.diag(np.sqrt(np.clip(values, 0.0, None))) @ vectors.T
    return points, K, root @ rng.standard_normal(arms)


@pytest.mark.parametrize("name", ["squared-exponential", "matern"])
def test_rkhs_function(name: str) -> None:
    kernel = (
        SquaredExponential(lengthscale=0.2)
        if name != "matern"
        else Matern(nu=2.5, lengthscale=0.2)
    )
    points, K, y = truth_parts(5, kernel)
    problem = rkhs_function(seed=5, horizon=1000, kernel=name)
    alpha = np.linalg.inv(K + 0.01 * np.ptp(y) * np.eye(100)) @ y
    f = K @ alpha
    np.testing.assert_array_equal(problem.arms.features, points)
    np.testing.assert_allclose(problem.truth, f, atol=1e-9)
    assert problem.model.norm_bound == pytest.approx(
        np.sqrt(alpha @ K @ alpha), rel=1e-7
    )
    assert problem.noise_std**2 == pytest.approx(0.01 * np.ptp(f))
    assert problem.model.noise_variance == pytest.approx(0.01 * np.ptp(f))
    assert problem.model.noise_bound == problem.noise_std
    assert problem.best(problem.offer(1)).value == problem.truth.max()


def test_the_norm_is_that_of_a_function_of_the_space() -> None:
    """f = Kα has the norm √(αᵀKα) = √(fᵀK⁻¹f), and no value above it times √k(x, x)."""
    problem = rkhs_function(
        seed=2, horizon=10, kernel="matern", arms=20, lengthscale=0.05
    )
    K = problem.model.kernel(problem.model.arms)
    direct = np.sqrt(problem.truth @ np.linalg.solve(K, problem.truth))
    assert problem.model.norm_bound == pytest.approx(direct, rel=1e-6)
    assert problem.model.norm_bound is not None
    assert np.abs(problem.truth).max() <= problem.model.norm_bound


def test_gp_function() -> None:
    _, K, y = truth_parts(7, SquaredExponential(lengthscale=0.2), arms=40, dimension=2)
    problem = gp_function(seed=7, horizon=10, arms=40, dimension=2)
    np.testing.assert_allclose(problem.truth, y, atol=1e-9)
    variance = 0.01 * np.ptp(y)
    alpha = np.linalg.solve(K + variance * np.eye(40), y)
    assert problem.model.norm_bound == pytest.approx(
        np.sqrt(alpha @ K @ alpha), rel=1e-6
    )
    assert problem.noise_std == pytest.approx(np.sqrt(variance))


def test_gain_specs() -> None:
    squared = gp_function(seed=0, horizon=10, dimension=2).model.gain
    assert squared == {"name": "squared-exponential", "dimension": 2}
    matern = gp_function(seed=0, horizon=10, kernel="matern", nu=1.5).model.gain
    assert matern == {"name": "matern", "nu": 1.5, "dimension": 1}


@pytest.mark.parametrize("build", [rkhs_function, gp_function, benchmark_function])
def test_theory_option_changes_the_learner_not_the_problem(build: Any) -> None:
    noise, theory = (
        build(seed=1, horizon=400, regularisation=word) for word in ("noise", "theory")
    )
    assert theory.model.noise_variance == 1.005
    assert noise.model.noise_variance == pytest.approx(noise.noise_std**2)
    np.testing.assert_array_equal(noise.truth, theory.truth)
    assert noise.noise_std == theory.noise_std


# The largest value over the domain, and where it is attained.
OPTIMA: dict[str, tuple[float, list[tuple[float, ...]]]] = {
    "rosenbrock": (10.0, [(1.0, 1.0)]),
    "branin": (
        -0.397887357729738,
        [(-np.pi, 12.275), (np.pi, 2.275), (3.0 * np.pi, 2.475)],
    ),
    "hartmann3": (3.862779787332663, [(0.11458888, 0.5556489, 0.85254698)]),
    "hartmann6": (
        3.322368011415515,
        [(0.20168951, 0.15001069, 0.47687397, 0.27533243, 0.31165162, 0.65730053)],
    ),
}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_published_optima(name: str) -> None:
    benchmark, (maximum, maximisers) = BENCHMARKS[name], OPTIMA[name]
    lower, upper = np.array(benchmark.box).T
    for place in maximisers:
        unit = (np.array(place) - lower) / (upper - lower)
        assert benchmark(unit[None])[0] == pytest.approx(maximum, rel=0.0, abs=1e-9)
    # Nothing above it: a thousand random points, and climbs from the best thirty of them.
    points = np.random.default_rng(0).random((1000, len(benchmark.box)))
    values = benchmark(points)
    assert values.max() <= maximum
    bounds = [(0.0, 1.0)] * len(benchmark.box)

    def loss(x: Any) -> float:
        return -float(benchmark(x[None])[0])

    climbs = [
        -minimize(loss, start, bounds=bounds, tol=1e-10).fun
        for start in points[np.argsort(values)[-30:]]
    ]
    assert max(climbs) == pytest.approx(maximum, rel=0.0, abs=1e-9)
    assert max(climbs) <= maximum + 1e-9


def test_rosenbrock_by_hand() -> None:
    values = BENCHMARKS["rosenbrock"](np.array([[1.0, 1.0], [0.0, 0.0], [0.2, 0.7]]))
    np.testing.assert_allclose(values, [10.0, 9.0, -34.2])


def test_branin_by_hand() -> None:
    """x = 0, y = 6 at (1/3, 0.4): −(10(1 − 1/(8π)) + 10); x = −5, y = 0 at the corner: −308.129."""
    values = BENCHMARKS["branin"](np.array([[1.0 / 3.0, 0.4], [0.0, 0.0]]))
    np.testing.assert_allclose(
        values, [-20.0 + 10.0 / (8.0 * np.pi), -308.12909601160663]
    )


def test_hartmann_by_hand() -> None:
    x = [0.2, 0.5, 0.9]
    A = [[3.0, 10, 30], [0.1, 10, 35], [3.0, 10, 30], [0.1, 10, 35]]
    P = [
        [0.3689, 0.117, 0.2673],
        [0.4699, 0.4387, 0.747],
        [0.1091, 0.8732, 0.5547],
        [0.0381, 0.5743, 0.8828],
    ]
    expected = sum(
        weight * np.exp(-sum(A[i][j] * (x[j] - P[i][j]) ** 2 for j in range(3)))
        for i, weight in enumerate([1.0, 1.2, 3.0, 3.2])
    )
    assert BENCHMARKS["hartmann3"](np.array([x]))[0] == pytest.approx(expected)


@pytest.mark.parametrize(("name", "count"), [("rosenbrock", 200), ("hartmann3", 300)])
def test_benchmark_problem(name: str, count: int) -> None:
    problem: FiniteProblem = registry.build(
        "problem", {"name": "benchmark-function", "function": name}, seed=3, horizon=10
    )
    points = problem.arms.features
    assert points.shape == (count, count // 100)
    np.testing.assert_allclose(problem.truth, BENCHMARKS[name](points))
    K = SquaredExponential(lengthscale=0.2)(points)
    alpha = np.linalg.solve(K + problem.noise_std**2 * np.eye(count), problem.truth)
    assert problem.model.norm_bound == pytest.approx(
        np.sqrt(alpha @ K @ alpha), rel=1e-6
    )
    assert BENCHMARKS[name].formula == problem.interpretations["function"]


def test_points_are_uniform() -> None:
    """Mean of N uniforms within 5 standard errors √(1/12N)."""
    points = np.concatenate(
        [gp_function(seed=seed, horizon=1).arms.features for seed in range(50)]
    )
    assert 0.0 <= points.min() < points.max() < 1.0
    assert abs(points.mean() - 0.5) < 5.0 * np.sqrt(1.0 / 12.0 / len(points))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"arms": 1}, "arms must be .*, got 1"),
        ({"arms": 10.0}, "arms must be .*, got 10.0"),
        ({"dimension": 0}, "dimension must be .*, got 0"),
        ({"kernel": "linear"}, "kernel is 'linear'; choose"),
        ({"lengthscale": 0.0}, "lengthscale"),
        ({"noise_fraction": 0.0}, "noise_fraction must be .*, got 0.0"),
        ({"noise_fraction": "much"}, "noise_fraction must be a number"),
        ({"regularisation": "none"}, "regularisation is 'none'"),
    ],
)
@pytest.mark.parametrize("build", [rkhs_function, gp_function])
def test_bad_input(build: Any, bad: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(**({"seed": 0, "horizon": 10} | bad))


def test_unknown_benchmark() -> None:
    with pytest.raises(InputError, match="function is 'ackley'; choose"):
        benchmark_function(seed=0, horizon=10, function="ackley")
