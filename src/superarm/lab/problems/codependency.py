"""Arms that are more or less correlated: Simulation II.

Of *Contextual Combinatorial Bandits with Changing Action Sets via Gaussian Processes* (2022). Six
thousand contexts in [0, 1]³ get one joint draw of a Gaussian process; each round offers about a hundred
of them. The learner always assumes a lengthscale of 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from superarm.core import Arms, Floats, Offer
from superarm.core.errors import InputError
from superarm.core.inputs import (
    as_count,
    as_noise_std,
    as_positive,
    read_only,
    require_type,
)
from superarm.core.registry import register
from superarm.core.streams import Streams, stream
from superarm.kernels import Kernel, Matern, SquaredExponential
from superarm.models.worlds import store
from superarm.oracles import TopK

from .changing import ChangingArms, arrivals, draws_of, most_arrivals


@register("problem", "codependency")
@dataclass(frozen=True, kw_only=True, eq=False)
class Codependency(ChangingArms):
    """Contexts from a pool with one joint draw of a Gaussian process; the reward is the sum.

    Args:
        arrivals: Mean of the Poisson number of arms in a round.
        k: Number of arms chosen.
        pool: Number of contexts from which arms are drawn.
        lengthscale: Lengthscale of the truth; the learner assumes 1.
        squared: Whether the distance in the truth's kernel is squared; as printed, it is not.
        noise_std: Standard deviation of the noise.
    """

    arrivals: int = 100
    k: int = 5
    pool: int = 6000
    lengthscale: float = 0.1
    squared: bool = True
    noise_std: float = 0.1
    contexts: Floats = field(init=False, repr=False)
    """(pool, 3)"""
    truth: Floats = field(init=False, repr=False)
    """Expected outcome of every context, (pool,)."""
    _streams: Streams = field(init=False, repr=False)

    def __post_init__(self) -> None:
        store(self, horizon=as_count(self.horizon, "horizon"), k=as_count(self.k, "k"))
        require_type(self.squared, bool, "squared")
        store(self, arrivals=as_count(self.arrivals, "arrivals", self.k + 1, 10**6))
        store(self, pool=as_count(self.pool, "pool", 1, 16_000))
        most = most_arrivals(self.arrivals)
        if self.pool < most:
            raise InputError(
                f"pool is {self.pool}, but up to {most} different arms may arrive in a round; make it "
                "larger, or arrivals smaller"
            )
        lengthscale = as_positive(self.lengthscale, "lengthscale")
        contexts, truth = _draw_truth(self.seed, self.pool, lengthscale, self.squared)
        store(self, noise_std=as_noise_std(self.noise_std), lengthscale=lengthscale)
        kernel = "exp(−‖x − x′‖²/(2l²))"
        if not self.squared:
            kernel = "exp(−‖x − x′‖/(2l²)), as printed"
        interpretations = {
            "truth": f"one joint draw for {self.pool:,} contexts, uniform in [0, 1]³, another for "
            f"every seed; kernel {kernel}",
            "arms": f"a Poisson number of contexts, all different within a round; drawn again until it "
            f"is above k = {self.k} and at most M = {most}",
            "learner": "a squared exponential kernel with lengthscale 1 and variance 1, whatever the "
            "truth's",
        }
        store(
            self,
            model=self._unit_model(TopK(k=self.k), most),
            interpretations=interpretations,
            contexts=contexts,
            truth=truth,
            _streams=Streams(self.seed, "offer"),
        )

    @property
    def is_known(self) -> bool:
        """Whether the learner's kernel is that of the truth."""
        return self.squared and self.lengthscale == 1.0

    def offer(self, step: int) -> Offer:
        rng = self._streams.at(step)
        count = arrivals(rng, self.arrivals, self.k)
        numbers = rng.choice(self.pool, size=count, replace=False)
        contexts = self.contexts[numbers]
        arms = Arms(ids=numbers.tolist(), features=contexts)
        return Offer(step=step, arms=arms)

    def means(self, offer: Offer) -> Floats:
        means: Floats = self.truth[np.array(offer.arms.ids)]
        return means


@lru_cache(maxsize=32)
def _draw_truth(
    seed: int, pool: int, lengthscale: float, squared: bool
) -> tuple[Floats, Floats]:
    """Draw contexts and their means, (pool, 3) and (pool,); runs of any length share them."""
    rng = stream(seed, "truth", 0)
    contexts = rng.random((pool, 3))
    kernel: Kernel = SquaredExponential(lengthscale=lengthscale)
    if not squared:
        kernel = Matern(nu=0.5, lengthscale=2.0 * lengthscale**2)
    draw = draws_of(kernel, contexts)
    truth = draw(rng.standard_normal(pool))
    return read_only(contexts), read_only(truth)
