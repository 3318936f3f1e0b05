"""A live bandit: decide now, learn the rewards whenever they arrive, survive a restart.

A newsroom shows three of its articles to every visitor. Clicks arrive later, some never. Whatever the
bandit has acknowledged is in its journal: a new process continues where the last one stopped.
"""

import tempfile
from pathlib import Path

import numpy as np

import superarm
from superarm import IndexPolicy
from superarm.kernels import SquaredExponential
from superarm.oracles import TopK
from superarm.posteriors import FiniteGP
from superarm.rules import Thompson

TOPICS = np.random.default_rng(1).random((12, 2))
ARTICLES = {f"article-{number}": topic for number, topic in enumerate(TOPICS)}


def appeal(article: str) -> float:
    """How likely a visitor clicks: stands in for your visitors."""
    sport, politics = ARTICLES[article]
    return float(0.8 * sport * (1.0 - politics))


def newsroom_policy() -> IndexPolicy:
    posterior = FiniteGP(
        SquaredExponential(lengthscale=0.4, variance=0.1),
        arms=TOPICS,
        noise_variance=0.1,
        mean=0.2,
    )
    return IndexPolicy(posterior=posterior, rule=Thompson(), oracle=TopK(k=3))


def show_articles(storage: str, visitors: int, rng: np.random.Generator) -> float:
    """Serve visitors from one process; returns the mean appeal of what they saw."""
    bandit = superarm.create_bandit(
        "newsroom", spec=newsroom_policy(), storage=storage, load_if_exists=True
    )
    seen = []
    unread = []
    for _ in range(visitors):
        answer = bandit.ask(ARTICLES)
        seen += [appeal(article) for article in answer.arms]
        unread.append(answer)
        if rng.random() < 0.5:
            continue  # the clicks of this visitor, and of those before, arrive later
        for earlier in unread:
            clicks = {
                article: float(rng.random() < appeal(article))
                for article in earlier.arms
            }
            bandit.tell(earlier, clicks)
        unread = []
    bandit.storage.close()
    return float(np.mean(seen))


def main(visitors: int = 60) -> tuple[float, float]:
    """The mean appeal before and after a restart."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        storage = f"sqlite:///{Path(folder) / 'newsroom.db'}"
        first_day = show_articles(storage, visitors, rng)
        second_day = show_articles(storage, visitors, rng)
    return first_day, second_day


if __name__ == "__main__":
    first_day, second_day = main()
    print(f"clicks expected per article: {first_day:.2f} on the first day,")
    print(f"{second_day:.2f} on the second, after a restart")
