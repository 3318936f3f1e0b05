"""Your own data: fit a kernel to past measurements, decide, save, and resume on another day.

A café knows how many cups it sold of each of 40 recipes. A recipe is its shares of sugar and cocoa.
Every day it thinks of twelve new recipes, puts three of them on the menu, and learns from the sales.
"""

import tempfile
from pathlib import Path

import numpy as np

import superarm
from superarm import Arms, Feedback, IndexPolicy, Offer
from superarm.core import Floats
from superarm.kernels import Matern
from superarm.oracles import TopK
from superarm.posteriors import StreamingGP, fit_kernel
from superarm.rules import UCB, Fixed


def cups_sold(recipes: Floats, rng: np.random.Generator) -> Floats:
    """What guests buy: stands in for your own measurements."""
    sugar, cocoa = recipes.T
    taste = 50.0 + 10.0 * np.sin(6.0 * sugar) + 5.0 * np.cos(4.0 * cocoa)
    return taste + 2.0 * rng.standard_normal(len(recipes))


def main() -> dict[str, list[str]]:
    rng = np.random.default_rng(0)
    recipes = rng.random((40, 2))
    sold = cups_sold(recipes, rng)

    # Fit: a lengthscale for each column, the variance, the noise and the mean.
    start = Matern(nu=2.5, lengthscale=(0.5, 0.5), variance=float(sold.var()))
    fit = fit_kernel(start, recipes, sold, noise_variance=1.0, fit_mean=True, rng=rng)
    lengthscales = np.round(fit.kernel.lengthscale, 2)
    noise_std = fit.noise_variance**0.5
    print(f"lengthscales {lengthscales}, noise {noise_std:.1f}")

    # Warm start: the posterior learns the past before the first decision.
    posterior = StreamingGP(
        fit.kernel, noise_variance=fit.noise_variance, mean=fit.mean
    )
    posterior.observe(recipes, sold)
    rule = UCB(schedule=Fixed(value=1.0))
    policy = IndexPolicy(posterior=posterior, rule=rule, oracle=TopK(k=3))

    menus = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cafe.npz"
        for step, day in enumerate(("monday", "tuesday", "wednesday"), start=1):
            names = [f"{day}-{number}" for number in range(12)]
            offer = Offer(step=step, arms=Arms(ids=names, features=rng.random((12, 2))))
            decision = policy.decide(offer, rng)
            policy.commit(decision)
            chosen = decision.positions
            menus[day] = [str(name) for name in decision.ids(offer)]
            expected, std = policy.forecast(offer, chosen).total()

            rewards = cups_sold(offer.arms.features[chosen], rng)
            feedback = Feedback(positions=chosen, rewards=rewards)
            policy.learn(offer, decision, feedback, rng)
            print(
                f"{day} {menus[day]} sold {rewards.sum():.0f}, "
                f"forecast {expected:.0f} ± {std:.0f} (1 standard deviation)"
            )
            policy.save(file)  # the café closes …
            policy = superarm.load(file)  # … and opens again: nothing is forgotten
    return menus


if __name__ == "__main__":
    main()
