"""Your own data: fit a kernel to past measurements, decide, save, and go on another day.

A café knows how many cups it sold of each of 40 recipes. A recipe is its shares of sugar and cocoa.
Every day it thinks of twelve new recipes, puts three of them on the menu, and learns from the sales.
"""

import tempfile
from pathlib import Path

import numpy as np

import superarm
from superarm import Arms, Feedback, IndexPolicy, Offer
from superarm.kernels import Matern
from superarm.oracles import TopK
from superarm.posteriors import StreamingGP, fit_kernel
from superarm.rules import UCB, Fixed


def cups(recipes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """What guests buy: stands in for your own measurements."""
    taste = (
        50.0 + 10.0 * np.sin(6.0 * recipes[:, 0]) + 5.0 * np.cos(4.0 * recipes[:, 1])
    )
    return taste + 2.0 * rng.standard_normal(len(recipes))


def main() -> dict[str, list[str]]:
    rng = np.random.default_rng(0)
    recipes = rng.random((40, 2))
    sold = cups(recipes, rng)

    # Fit: a lengthscale for each column, the variance, the noise and the mean.
    start = Matern(nu=2.5, lengthscale=(0.5, 0.5), variance=float(sold.var()))
    fit = fit_kernel(start, recipes, sold, noise_variance=1.0, fit_mean=True, rng=rng)
    print(
        "lengthscales",
        np.round(fit.kernel.lengthscale, 2),
        "noise",
        round(fit.noise_variance**0.5, 1),
    )

    # Warm start: the posterior knows the past before the first decision.
    posterior = StreamingGP(
        fit.kernel, noise_variance=fit.noise_variance, mean=fit.mean
    )
    posterior.observe(recipes, sold)
    policy = IndexPolicy(
        posterior=posterior, rule=UCB(schedule=Fixed(value=1.0)), oracle=TopK(k=3)
    )

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
            cups_sold, spread = policy.forecast(offer, chosen).total()
            rewards = cups(offer.arms.features[chosen], rng)
            policy.learn(
                offer, decision, Feedback(positions=chosen, rewards=rewards), rng
            )
            policy.save(file)  # the café closes …
            policy = superarm.load(file)  # … and opens again: nothing is forgotten
            forecast = f"forecast {cups_sold:.0f} ± {spread:.0f} (1 standard deviation)"
            print(day, menus[day], f"sold {rewards.sum():.0f}, {forecast}")
    return menus


if __name__ == "__main__":
    main()
