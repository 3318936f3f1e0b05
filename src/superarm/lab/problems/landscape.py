"""A synthetic landscape with a few hills: something to watch a policy learn."""

from __future__ import annotations

import numpy as np

from superarm.core import Arms, Floats, Rng
from superarm.core.errors import InputError
from superarm.core.inputs import as_count, as_noise_std
from superarm.core.registry import register
from superarm.core.streams import stream
from superarm.kernels import SquaredExponential
from superarm.models import Model
from superarm.oracles import TopK

from .finite import FiniteProblem


@register("problem", "landscape")
def landscape(
    *,
    seed: int,
    horizon: int,
    side: int = 32,
    k: int = 3,
    hills: int = 7,
    lengthscale: float = 0.15,
    noise_std: float = 0.1,
) -> FiniteProblem:
    """Hills and hollows on a ``side`` × ``side`` grid of [0, 1]²; a round tries ``k`` places.

    Heights are sums of Gaussian bumps, scaled to mean 0 and standard deviation 1, so that the
    model's prior (variance 1) is about right, although the heights were not drawn from it.

    Args:
        seed: Which random world.
        horizon: Number of rounds T.
        side: The grid has side × side places.
        k: Number of places tried in a round.
        hills: Number of bumps that make up the landscape.
        lengthscale: How far apart arms are still similar: one number, or one for each column.
        noise_std: Standard deviation of the noise.
    """
    as_count(horizon, "horizon")
    as_count(k, "k")
    as_count(hills, "hills", 1, 1000)
    as_count(side, "side", 2, 300)
    noise_std = as_noise_std(noise_std)
    if k > side * side:
        raise InputError(
            f"k is {k}, but a {side} x {side} grid has only {side * side} places"
        )
    axis = np.linspace(0.0, 1.0, side)
    points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    arms = Arms.numbered(points)
    return FiniteProblem(
        arms=arms,
        truth=_heights(points, hills, stream(seed, "truth", 0)),
        noise_std=noise_std,
        model=Model(
            kernel=SquaredExponential(lengthscale=lengthscale),
            noise_variance=noise_std**2,
            oracle=TopK(k=k),
            horizon=horizon,
            arms=arms.features,
            noise_bound=noise_std,
            gain={"name": "squared-exponential", "dimension": 2},
            most_arms=len(arms),
        ),
        interpretations={
            "landscape": f"{hills} hills and hollows drawn from the seed, not from the model"
        },
    )


def _heights(points: Floats, hills: int, rng: Rng) -> Floats:
    """Draw hills and hollows; their heights at all points, standardised, (n,)."""
    centres = rng.uniform(0.05, 0.95, (hills, 2))
    widths = rng.uniform(0.08, 0.22, hills)
    is_hollow = rng.random(hills) < 0.3
    signs = np.where(is_hollow, -0.6, 1.0)
    sizes = signs * rng.uniform(0.5, 1.0, hills)
    offsets = points[:, None, :] - centres  # (n, hills, 2)
    squares = (offsets**2).sum(axis=2)  # (n, hills)
    exponents = -0.5 * squares / widths**2
    bumps = sizes * np.exp(exponents)
    heights = bumps.sum(axis=1)
    return _standardise(heights)


def _standardise(heights: Floats) -> Floats:
    """Heights of mean 0 and standard deviation 1; zeros where all are equal."""
    spread = heights.std()
    if spread == 0.0:
        spread = 1.0
    scaled: Floats = (heights - heights.mean()) / spread
    return scaled
