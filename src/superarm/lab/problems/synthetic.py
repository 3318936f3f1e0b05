"""Synthetic functions on points of the unit cube: On Kernelized Multi-armed Bandits (2017).

Figures 1, 2 and 3. Each seed draws its own points and, except for benchmark functions, its own
function. One point is chosen in each round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Arms, Covariance, Floats, Rng
from superarm.core.inputs import as_count, as_positive, require_choice
from superarm.core.registry import build, register
from superarm.core.streams import stream

from .finite import (
    FiniteProblem,
    gaussian_draw,
    hilbert_norm,
    kernelized_problem,
    representer,
)


class Benchmark(NamedTuple):
    """A well-known test function, to be *maximised*, on a scaled domain.

    Args:
        formula: What exactly is maximised, in words.
        function: Values at points of the original domain, (n, d) → (n,).
        box: The least and the greatest value of each coordinate.
    """

    formula: str
    function: Callable[[Floats], Floats]
    box: tuple[tuple[float, float], ...]

    def __call__(self, points: Floats) -> Floats:
        """Values at points of the unit cube, (n,).

        Args:
            points: (n, d).
        """
        lower, upper = np.array(self.box).T
        return self.function(lower + (upper - lower) * points)


def _rosenbrock(points: Floats) -> Floats:
    x, y = points.T
    values: Floats = 10.0 - 100.0 * (y - x**2) ** 2 - (1.0 - x) ** 2
    return values


def _branin(points: Floats) -> Floats:
    x, y = points.T
    b = 5.1 / (4.0 * np.pi**2)
    c = 5.0 / np.pi
    t = 1.0 / (8.0 * np.pi)
    curve = y - b * x**2 + c * x - 6.0
    wave = 10.0 * (1.0 - t) * np.cos(x)
    values: Floats = -(curve**2 + wave + 10.0)
    return values


_HARTMANN_WEIGHTS = np.array([1.0, 1.2, 3.0, 3.2])  # α
_HARTMANN_3_A = np.array(
    [
        [3.0, 10.0, 30.0],
        [0.1, 10.0, 35.0],
        [3.0, 10.0, 30.0],
        [0.1, 10.0, 35.0],
    ]
)
_HARTMANN_3_P = 1e-4 * np.array(
    [
        [3689, 1170, 2673],
        [4699, 4387, 7470],
        [1091, 8732, 5547],
        [381, 5743, 8828],
    ]
)
_HARTMANN_6_A = np.array(
    [
        [10.0, 3.0, 17.0, 3.5, 1.7, 8.0],
        [0.05, 10.0, 17.0, 0.1, 8.0, 14.0],
        [3.0, 3.5, 1.7, 10.0, 17.0, 8.0],
        [17.0, 8.0, 0.05, 10.0, 0.1, 14.0],
    ]
)
_HARTMANN_6_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def _hartmann(points: Floats, A: Floats, P: Floats) -> Floats:
    squares = (points[:, None, :] - P) ** 2  # (n, 4, d)
    exponents = np.einsum("ij,nij->ni", A, squares)
    values: Floats = np.exp(-exponents) @ _HARTMANN_WEIGHTS
    return values


BENCHMARKS: Mapping[str, Benchmark] = {
    "rosenbrock": Benchmark(
        formula="Rosenbrock as in Azimi et al.: maximise 10 − 100(y − x²)² − (1 − x)² on [0, 1]²",
        function=_rosenbrock,
        box=((0.0, 1.0),) * 2,
    ),
    "branin": Benchmark(
        formula="minus Branin on [−5, 10] × [0, 15], scaled to the unit square",
        function=_branin,
        box=((-5.0, 10.0), (0.0, 15.0)),
    ),
    "hartmann3": Benchmark(
        formula="Hartmann in 3 dimensions: maximise Σᵢ αᵢ exp(−Σⱼ Aᵢⱼ(xⱼ − Pᵢⱼ)²) on [0, 1]³",
        function=lambda points: _hartmann(points, _HARTMANN_3_A, _HARTMANN_3_P),
        box=((0.0, 1.0),) * 3,
    ),
    "hartmann6": Benchmark(
        formula="Hartmann in 6 dimensions: maximise Σᵢ αᵢ exp(−Σⱼ Aᵢⱼ(xⱼ − Pᵢⱼ)²) on [0, 1]⁶",
        function=lambda points: _hartmann(points, _HARTMANN_6_A, _HARTMANN_6_P),
        box=((0.0, 1.0),) * 6,
    ),
}


@register("problem", "rkhs-function")
def rkhs_function(
    *,
    seed: int,
    horizon: int,
    arms: int = 100,
    dimension: int = 1,
    kernel: str = "squared-exponential",
    lengthscale: float = 0.2,
    nu: float = 2.5,
    noise_fraction: float = 0.01,
    regularisation: str = "noise",
) -> FiniteProblem:
    """A function of the kernel's Hilbert space (On Kernelized Multi-armed Bandits (2017), Figure 1).

    A draw y ~ N(0, K) is smoothed: α = (K + λ₀I)⁻¹y with λ₀ = ``noise_fraction``·range(y),
    and f = Kα, whose norm is exactly B = √(αᵀKα).

    Args:
        seed: Which random world.
        horizon: Number of rounds T.
        arms: Number of points, uniform on [0, 1]^dimension.
        dimension: Number of features.
        kernel: "squared-exponential" or "matern".
        lengthscale: How far apart arms are still similar: one number, or one for each column.
        nu: Smoothness: 0.5, 1.5 and 2.5 are the usual values.
        noise_fraction: The noise variance as a share of the range or variance of the truth.
        regularisation: The λ that learners use: noise is the true noise variance, theory is 1 +
            2/T.
    """
    domain = _Domain.draw(seed, arms, dimension, kernel, lengthscale, nu)
    fraction = as_positive(noise_fraction, "noise_fraction")
    drawn = gaussian_draw(domain.K, domain.rng)
    alpha = representer(domain.K, fraction * float(np.ptp(drawn)), drawn)
    description = (
        "posterior mean Kα of a draw y ~ N(0, K), α = (K + λ₀I)⁻¹y, "
        f"λ₀ = {fraction:g}·range(y)"
    )
    truth = domain.K @ alpha
    return _problem(
        domain, truth, description, fraction, regularisation, horizon, alpha
    )


@register("problem", "gp-function")
def gp_function(
    *,
    seed: int,
    horizon: int,
    arms: int = 100,
    dimension: int = 1,
    kernel: str = "squared-exponential",
    lengthscale: float = 0.2,
    nu: float = 2.5,
    noise_fraction: float = 0.01,
    regularisation: str = "noise",
) -> FiniteProblem:
    """A draw f of the Gaussian process itself (On Kernelized Multi-armed Bandits (2017), Figure 2).

    Such an f lies outside the Hilbert space of an infinite set; B is the norm of its smoothed
    version, α = (K + R²I)⁻¹f.

    Args:
        seed: Which random world.
        horizon: Number of rounds T.
        arms: Number of points, uniform on [0, 1]^dimension.
        dimension: Number of features.
        kernel: "squared-exponential" or "matern".
        lengthscale: How far apart arms are still similar: one number, or one for each column.
        nu: Smoothness: 0.5, 1.5 and 2.5 are the usual values.
        noise_fraction: The noise variance as a share of the range or variance of the truth.
        regularisation: The λ that learners use: noise is the true noise variance, theory is 1 +
            2/T.
    """
    domain = _Domain.draw(seed, arms, dimension, kernel, lengthscale, nu)
    truth = gaussian_draw(domain.K, domain.rng)
    return _problem(
        domain, truth, "a draw f ~ N(0, K)", noise_fraction, regularisation, horizon
    )


@register("problem", "benchmark-function")
def benchmark_function(
    *,
    seed: int,
    horizon: int,
    function: str = "rosenbrock",
    arms: int | None = None,
    kernel: str = "squared-exponential",
    lengthscale: float = 0.2,
    nu: float = 2.5,
    noise_fraction: float = 0.01,
    regularisation: str = "noise",
) -> FiniteProblem:
    """A well-known test function (On Kernelized Multi-armed Bandits (2017), Figure 3).

    Arms are uniform points of its domain, scaled to the unit cube, on which the learner's
    kernel is defined.

    Args:
        seed: Which random world.
        horizon: Number of rounds T.
        function: "rosenbrock", "branin", "hartmann3" or "hartmann6".
        arms: Number of points; by default 100 per dimension.
        kernel: The learner's kernel, "squared-exponential" or "matern"; the function does not depend on
            it.
        lengthscale: How far apart arms are still similar: one number, or one for each column.
        nu: Smoothness: 0.5, 1.5 and 2.5 are the usual values.
        noise_fraction: The noise variance as a share of the range or variance of the truth.
        regularisation: The λ that learners use: noise is the true noise variance, theory is 1 +
            2/T.
    """
    require_choice(function, "function", tuple(BENCHMARKS))
    benchmark = BENCHMARKS[function]
    dimension = len(benchmark.box)
    count = 100 * dimension if arms is None else arms
    domain = _Domain.draw(seed, count, dimension, kernel, lengthscale, nu)
    return _problem(
        domain,
        benchmark(domain.points),
        benchmark.formula,
        noise_fraction,
        regularisation,
        horizon,
    )


class _Domain(NamedTuple):
    """The points on which a function is defined, and the learner's kernel."""

    points: Floats  # uniform, (n, d)
    kernel: Covariance
    K: Floats
    gain: Mapping[str, Any]  # the growth rate of γ for this kernel, with constant 1
    rng: Rng  # the stream of the truth, after the points

    @classmethod
    def draw(
        cls,
        seed: int,
        arms: int,
        dimension: int,
        kernel: str,
        lengthscale: float,
        nu: float,
    ) -> _Domain:
        as_count(arms, "arms", 2, 16_000)  # their covariances are dense: 2 GB
        as_count(dimension, "dimension", 1, 1000)
        require_choice(kernel, "kernel", ("squared-exponential", "matern"))
        smoothness = {"nu": nu} if kernel == "matern" else {}
        spec = {"name": kernel, "lengthscale": lengthscale, **smoothness}
        covariance: Covariance = build("kernel", spec)
        gain = {"name": kernel, **smoothness, "dimension": dimension}
        rng = stream(seed, "truth", 0)
        points = rng.random((arms, dimension))
        return cls(points, covariance, covariance(points), gain, rng)


def _problem(
    domain: _Domain,
    truth: Floats,
    function: str,
    noise_fraction: float,
    regularisation: str,
    horizon: int,
    alpha: Floats | None = None,
) -> FiniteProblem:
    """B is exact where f = Kα; of a function known by its values alone, α = (K + R²I)⁻¹f."""
    fraction = as_positive(noise_fraction, "noise_fraction")
    noise_variance = fraction * float(np.ptp(truth))
    norm = "exact for f = Kα"
    if alpha is None:
        norm = "with α = (K + R²I)⁻¹f"
        alpha = representer(domain.K, noise_variance, truth)
    return kernelized_problem(
        arms=Arms.numbered(domain.points),
        truth=truth,
        kernel=domain.kernel,
        norm_bound=float(hilbert_norm(domain.K, alpha)),
        noise_variance=noise_variance,
        gain=domain.gain,
        regularisation=regularisation,
        horizon=horizon,
        interpretations={
            "function": function,
            "rkhs norm": f"B² = αᵀKα, {norm} (fᵀKf, as printed, is a misprint)",
            "noise": f"Gaussian, variance R² = {noise_fraction:g} of the function's range",
            "information gain": "the kernel's growth rate with constant 1",
        },
    )
