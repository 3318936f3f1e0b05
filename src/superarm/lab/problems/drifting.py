"""Functions that drift: *Time-Varying Gaussian Process Bandit Optimization* (2016), section 5.1.

f₁ is a draw of a Gaussian process on a grid, and every step keeps √(1 − ε) of it and adds
√ε of a new draw. The draws of step t come from the stream (seed, "truth", t), so that short
runs are the first rounds of long ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import numpy as np

from superarm.core import Arms, Floats, Offer
from superarm.core.inputs import (
    as_count,
    as_noise_std,
    as_number,
    as_positive,
    read_only,
    require_choice,
)
from superarm.core.registry import register
from superarm.core.streams import Streams
from superarm.kernels import Kernel, Matern, SquaredExponential, Temporal
from superarm.models import Model
from superarm.models.worlds import store
from superarm.oracles import TopK

from .changing import ChangingArms, draws_of


@register("problem", "drifting-function")
@dataclass(frozen=True, kw_only=True, eq=False)
class DriftingFunction(ChangingArms):
    """A function on a grid, drawn from a Gaussian process, that drifts a little in every step.

    Args:
        side: Points of the grid along each side of [0, 1]ᵈ.
        dimension: The dimension d, 1 or 2.
        kernel: The kernel.
        lengthscale: How far apart arms are still similar: one number, or one for each column.
        nu: Smoothness of Matérn's kernel.
        epsilon: How much the function changes in a step, ε: 0 or more, and below 1.
        assumed_epsilon: The ε that learners assume; by default the true one.
        k: Number of arms chosen.
        noise_std: Standard deviation of the noise.
    """

    side: int = 50
    dimension: int = 2
    kernel: Literal["squared-exponential", "matern"] = "squared-exponential"
    lengthscale: float = 0.2
    nu: float = 2.5
    epsilon: float = 0.01
    assumed_epsilon: float | None = None
    k: int = 1
    noise_std: float = 0.1
    _arms: Arms = field(init=False, repr=False)
    _draw: Callable[[Floats], Floats] = field(init=False, repr=False)
    _streams: Streams = field(init=False, repr=False)
    _truths: list[Floats] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        require_choice(self.kernel, "kernel", ("squared-exponential", "matern"))
        lengthscale = as_positive(self.lengthscale, "lengthscale")
        kernel: Kernel = SquaredExponential(lengthscale=lengthscale)
        if self.kernel == "matern":
            kernel = Matern(nu=as_positive(self.nu, "nu"), lengthscale=lengthscale)
        side = as_count(self.side, "side", 1, 126)
        dimension = as_count(self.dimension, "dimension", 1, 2)
        arms = Arms.numbered(_grid(side, dimension))
        noise_std = as_noise_std(self.noise_std)
        epsilon = as_number(self.epsilon, "epsilon", 0.0, 1.0)
        assumed = epsilon if self.assumed_epsilon is None else self.assumed_epsilon
        assumed = as_number(assumed, "assumed_epsilon", 0.0, 1.0)
        model = Model(
            kernel=kernel,
            noise_variance=noise_std**2,
            oracle=TopK(k=as_count(self.k, "k", 1, len(arms))),
            horizon=as_count(self.horizon, "horizon"),
            arms=arms.features,
            noise_bound=noise_std,
            drift=Temporal(epsilon=assumed),
            most_arms=len(arms),
        )
        truth = (
            "f₁ is drawn; every step keeps √(1 − ε) of f and adds √ε of a new draw, "
            f"ε = {epsilon:g}"
        )
        if assumed != epsilon:
            truth += f"; learners assume ε = {assumed:g}"
        store(
            self,
            model=model,
            interpretations={"truth": truth},
            noise_std=noise_std,
            _arms=arms,
            _truths=[],
            _draw=_draws_on_grid(kernel, side, dimension),
            _streams=Streams(self.seed, "truth"),
        )

    def offer(self, step: int) -> Offer:
        return Offer(step=step, arms=self._arms)

    def means(self, offer: Offer) -> Floats:
        truths = self._truths  # by step, as far as they were needed
        while len(truths) < offer.step:
            rng = self._streams.at(len(truths) + 1)
            normals = rng.standard_normal(len(self._arms))
            truth = self._draw(normals)
            if truths:
                remaining = np.sqrt(1.0 - self.epsilon) * truths[-1]
                added = np.sqrt(self.epsilon) * truth
                truth = remaining + added
            truths.append(read_only(truth))
        return truths[offer.step - 1]


def _grid(side: int, dimension: int) -> Floats:
    axis = np.linspace(0.0, 1.0, side)
    coordinates = np.meshgrid(*[axis] * dimension)
    points = np.stack(coordinates, axis=-1)
    return points.reshape(-1, dimension)


@lru_cache(maxsize=4)
def _draws_on_grid(
    kernel: Kernel, side: int, dimension: int
) -> Callable[[Floats], Floats]:
    """Draws on the grid, which runs of all seeds share."""
    return draws_of(kernel, _grid(side, dimension))
