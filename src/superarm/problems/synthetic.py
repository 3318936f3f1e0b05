"""Made functions on points of the unit cube: Figures 1, 2 and 3 of paper 002.

Each seed draws its own points and, except for benchmark functions, its own function. One
point is chosen in each round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from superarm.core import Arms, Floats
from superarm.inputs import as_count, as_positive, require_choice
from superarm.kernels import Covariance, Matern, SquaredExponential
from superarm.models import Model
from superarm.oracles import TopK
from superarm.registry import register
from superarm.streams import stream

from .finite import (
    FiniteProblem,
    gaussian_draw,
    hilbert_norm,
    regularisation_of,
    representer,
    value_range,
)

# --- benchmark functions -----------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Benchmark:
    """A well-known test function, turned so that it is *maximised*, on a scaled domain."""

    formula: str
    """What exactly is maximised, in words."""
    function: Callable[[Floats], Floats]
    """Values at points of the original domain, (n, d) → (n,)."""
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    maximum: float
    """The largest value over the whole domain."""
    maximisers: tuple[tuple[float, ...], ...]
    """Where it is attained, in the original domain."""

    @property
    def dimension(self) -> int:
        return len(self.lower)

    def __call__(self, points: Floats) -> Floats:
        """Values at points of the unit cube, (n, d) → (n,)."""
        lower, upper = np.array(self.lower), np.array(self.upper)
        return self.function(lower + (upper - lower) * points)


def _rosenbrock(x: Floats) -> Floats:
    values: Floats = 10.0 - 100.0 * (x[:, 1] - x[:, 0] ** 2) ** 2 - (1.0 - x[:, 0]) ** 2
    return values


def _branin(x: Floats) -> Floats:
    curve = x[:, 1] - 5.1 / (4.0 * np.pi**2) * x[:, 0] ** 2 + 5.0 / np.pi * x[:, 0] - 6.0
    values: Floats = -(curve**2 + 10.0 * (1.0 - 1.0 / (8.0 * np.pi)) * np.cos(x[:, 0]) + 10.0)
    return values


_HARTMANN_WEIGHTS = np.array([1.0, 1.2, 3.0, 3.2])
_HARTMANN_3 = (
    np.array([[3.0, 10.0, 30.0], [0.1, 10.0, 35.0], [3.0, 10.0, 30.0], [0.1, 10.0, 35.0]]),
    1e-4 * np.array([[3689, 1170, 2673], [4699, 4387, 7470], [1091, 8732, 5547], [381, 5743, 8828]]),
)
_HARTMANN_6 = (
    np.array(
        [
            [10.0, 3.0, 17.0, 3.5, 1.7, 8.0],
            [0.05, 10.0, 17.0, 0.1, 8.0, 14.0],
            [3.0, 3.5, 1.7, 10.0, 17.0, 8.0],
            [17.0, 8.0, 0.05, 10.0, 0.1, 14.0],
        ]
    ),
    1e-4
    * np.array(
        [
            [1312, 1696, 5569, 124, 8283, 5886],
            [2329, 4135, 8307, 3736, 1004, 9991],
            [2348, 1451, 3522, 2883, 3047, 6650],
            [4047, 8828, 8732, 5743, 1091, 381],
        ]
    ),
)


def _hartmann(x: Floats, A: Floats, P: Floats) -> Floats:
    exponents = np.einsum("ij,nij->ni", A, (x[:, None, :] - P) ** 2)
    values: Floats = np.exp(-exponents) @ _HARTMANN_WEIGHTS
    return values


BENCHMARKS: Mapping[str, Benchmark] = {
    "rosenbrock": Benchmark(
        formula="Rosenbrock as in Azimi et al.: maximise 10 − 100(y − x²)² − (1 − x)² on [0, 1]²",
        function=_rosenbrock,
        lower=(0.0, 0.0),
        upper=(1.0, 1.0),
        maximum=10.0,
        maximisers=((1.0, 1.0),),
    ),
    "branin": Benchmark(
        formula="minus Branin on [−5, 10] × [0, 15], scaled to the unit square",
        function=_branin,
        lower=(-5.0, 0.0),
        upper=(10.0, 15.0),
        maximum=-0.397887357729738,
        maximisers=((-np.pi, 12.275), (np.pi, 2.275), (3.0 * np.pi, 2.475)),
    ),
    "hartmann3": Benchmark(
        formula="Hartmann in 3 dimensions: maximise Σᵢ αᵢ exp(−Σⱼ Aᵢⱼ(xⱼ − Pᵢⱼ)²) on [0, 1]³",
        function=lambda x: _hartmann(x, *_HARTMANN_3),
        lower=(0.0,) * 3,
        upper=(1.0,) * 3,
        maximum=3.862779787332663,
        maximisers=((0.11458888, 0.5556489, 0.85254698),),
    ),
    "hartmann6": Benchmark(
        formula="Hartmann in 6 dimensions: maximise Σᵢ αᵢ exp(−Σⱼ Aᵢⱼ(xⱼ − Pᵢⱼ)²) on [0, 1]⁶",
        function=lambda x: _hartmann(x, *_HARTMANN_6),
        lower=(0.0,) * 6,
        upper=(1.0,) * 6,
        maximum=3.322368011415515,
        maximisers=((0.20168951, 0.15001069, 0.47687397, 0.27533243, 0.31165162, 0.65730053),),
    ),
}

# --- problems ----------------------------------------------------------------------------


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
    """A function of the kernel's Hilbert space (paper 002, Figure 1).

    A draw y ~ N(0, K) is smoothed: α = (K + λ₀I)⁻¹y with λ₀ = ``noise_fraction``·range(y),
    and f = Kα, whose norm is exactly B = √(αᵀKα).

    Parameters
    ----------
    arms, dimension
        How many points, uniform on [0, 1]^dimension.
    kernel, lengthscale, nu
        "squared-exponential" or "matern" (``nu`` counts for the latter only).
    noise_fraction
        The noise variance R² as a share of f's range.
    regularisation
        The λ that learners use: "noise" is R², "theory" is 1 + 2/T.
    """
    points, covariance, rng = _points(
        seed=seed, arms=arms, dimension=dimension, kernel=kernel, lengthscale=lengthscale, nu=nu
    )
    fraction = as_positive(noise_fraction, "noise_fraction")
    K = covariance(points)
    drawn = gaussian_draw(K, rng)
    ridge = fraction * value_range(drawn)
    alpha = representer(K, ridge, drawn)
    return _problem(
        points=points,
        truth=K @ alpha,
        norm_bound=float(hilbert_norm(K, alpha)),
        kernel=covariance,
        gain=_gain(kernel, nu, dimension),
        noise_fraction=fraction,
        regularisation=regularisation,
        horizon=horizon,
        settled={
            "function": "posterior mean Kα of a draw y ~ N(0, K), α = (K + λ₀I)⁻¹y, "
            f"λ₀ = {fraction:g}·range(y)",
            "rkhs norm": "B² = αᵀKα, exact for f = Kα (the printed fᵀKf is a slip)",
        },
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
    """A draw of the Gaussian process itself (paper 002, Figure 2): f ~ N(0, K).

    Such an f lies outside the Hilbert space of an infinite set; B is the norm of its smoothed
    version, α = (K + R²I)⁻¹f. Parameters as for :func:`rkhs_function`.
    """
    points, covariance, rng = _points(
        seed=seed, arms=arms, dimension=dimension, kernel=kernel, lengthscale=lengthscale, nu=nu
    )
    K = covariance(points)
    return _measured(
        points=points,
        truth=gaussian_draw(K, rng),
        K=K,
        kernel=covariance,
        gain=_gain(kernel, nu, dimension),
        noise_fraction=noise_fraction,
        regularisation=regularisation,
        horizon=horizon,
        function="a draw f ~ N(0, K)",
    )


@register("problem", "benchmark-function")
def benchmark_function(
    *,
    seed: int,
    horizon: int,
    function: str = "rosenbrock",
    arms: int | None = None,
    lengthscale: float = 0.2,
    noise_fraction: float = 0.01,
    regularisation: str = "noise",
) -> FiniteProblem:
    """A well-known test function at uniform points of its domain (paper 002, Figure 3).

    The domain is scaled to the unit cube, where the squared-exponential kernel lives. ``arms``
    is 100 per dimension unless given; ``function`` is one of ``BENCHMARKS``.
    """
    require_choice(function, "function", tuple(BENCHMARKS))
    benchmark = BENCHMARKS[function]
    dimension = benchmark.dimension
    points, covariance, _ = _points(
        seed=seed,
        arms=100 * dimension if arms is None else arms,
        dimension=dimension,
        kernel="squared-exponential",
        lengthscale=lengthscale,
        nu=2.5,
    )
    return _measured(
        points=points,
        truth=benchmark(points),
        K=covariance(points),
        kernel=covariance,
        gain=_gain("squared-exponential", 2.5, dimension),
        noise_fraction=noise_fraction,
        regularisation=regularisation,
        horizon=horizon,
        function=benchmark.formula,
    )


# --- what the three share ----------------------------------------------------------------


def _points(
    *, seed: int, arms: int, dimension: int, kernel: str, lengthscale: float, nu: float
) -> tuple[Floats, Covariance, np.random.Generator]:
    """Uniform points, the kernel over them, and the stream of the truth for what comes next."""
    as_count(arms, "arms", least=2)
    as_count(dimension, "dimension", least=1)
    require_choice(kernel, "kernel", ("squared-exponential", "matern"))
    covariance: Covariance
    if kernel == "matern":
        covariance = Matern(nu=nu, lengthscale=lengthscale)
    else:
        covariance = SquaredExponential(lengthscale=lengthscale)
    rng = stream(seed, "truth", 0)
    return rng.random((arms, dimension)), covariance, rng


def _gain(kernel: str, nu: float, dimension: int) -> Mapping[str, Any]:
    """The growth rate of γ for this kernel, with constant 1."""
    if kernel == "matern":
        return {"name": "matern", "nu": nu, "dimension": dimension}
    return {"name": "squared-exponential", "dimension": dimension}


def _measured(
    *,
    points: Floats,
    truth: Floats,
    K: Floats,
    kernel: Covariance,
    gain: Mapping[str, Any],
    noise_fraction: float,
    regularisation: str,
    horizon: int,
    function: str,
) -> FiniteProblem:
    """A function known by its values alone: B from α = (K + R²I)⁻¹f."""
    fraction = as_positive(noise_fraction, "noise_fraction")
    alpha = representer(K, fraction * value_range(truth), truth)
    return _problem(
        points=points,
        truth=truth,
        norm_bound=float(hilbert_norm(K, alpha)),
        kernel=kernel,
        gain=gain,
        noise_fraction=fraction,
        regularisation=regularisation,
        horizon=horizon,
        settled={
            "function": function,
            "rkhs norm": "B² = αᵀKα with α = (K + R²I)⁻¹f (the printed fᵀKf is a slip)",
        },
    )


def _problem(
    *,
    points: Floats,
    truth: Floats,
    norm_bound: float,
    kernel: Covariance,
    gain: Mapping[str, Any],
    noise_fraction: float,
    regularisation: str,
    horizon: int,
    settled: Mapping[str, str],
) -> FiniteProblem:
    as_count(horizon, "horizon", least=1)
    noise_variance = noise_fraction * value_range(truth)
    noise_std = float(np.sqrt(noise_variance))
    penalty, penalty_text = regularisation_of(regularisation, noise_variance, horizon)
    arms = Arms.numbered(points)
    return FiniteProblem(
        arms=arms,
        truth=truth,
        noise_std=noise_std,
        model=Model(
            kernel=kernel,
            noise_variance=penalty,
            oracle=TopK(k=1),
            horizon=horizon,
            arms=arms.features,
            norm_bound=norm_bound,
            noise_bound=noise_std,
            gain=gain,
            most_arms=len(arms),
        ),
        settled={
            **settled,
            "noise": f"Gaussian, variance R² = {noise_fraction:g} of the function's range",
            "regularisation": penalty_text,
            "information gain": "the kernel's growth rate with constant 1",
        },
    )
