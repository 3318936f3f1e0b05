"""Does a challenger earn what was estimated? ``python -m bench.shadow [--seeds N] [--json]``.

For every seed, a live bandit explores: half of its rounds are random pairs of the five arms on offer. A
challenger follows it. Then the report is read, the challenger is switched on, and what it earns is
compared with the estimates:

*estimated*   the report's estimates of its reward per decision, with 95 % intervals
*deserved*    the true expected reward of what the challenger would have chosen in the rounds of the report
*earned*      the true expected reward of what it chooses once it is switched on, on new offers

The choices behind *deserved* come from a twin of the challenger that is taught here, without the journal. The
theory of the intervals is about *deserved*. *Earned* differs from it by other arms on offer, and by what the
challenger has learned in the meantime.

Each seed stands alone, so you can split a long run: ``--first 0 --seeds 25 --json > a.json``, ``--first 25
--seeds 25 --json > b.json``, ``--stored a.json b.json --json > bench/results/shadow.json``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from scipy.stats import binom

from superarm.core import Arms, Decision, Feedback, Floats, Offer
from superarm.core.registry import spec_of
from superarm.kernels import SquaredExponential
from superarm.live import (
    Answer,
    Bandit,
    BanditSpec,
    Estimate,
    Storage,
    create_bandit,
)
from superarm.oracles import TopK
from superarm.policies import Exploring, IndexPolicy
from superarm.posteriors import StreamingGP
from superarm.rules import UCB, Fixed, Greedy

ARMS = 5
CHOSEN = 2
EPSILON = 0.5
LEVEL = 0.95
REWARDS = (0.0, float(CHOSEN))
"""The range of a decision's reward: each arm yields 0 or 1."""
ESTIMATES = ("inverse_propensity", "self_normalised", "doubly_robust")
COLUMNS = {
    "inverse_propensity": "inverse propensity",
    "self_normalised": "self-normalised",
    "doubly_robust": "doubly robust",
}


@dataclass(frozen=True, kw_only=True)
class Size:
    """How many rounds are played."""

    before: int = 100
    """Rounds that the challenger learns from before it is compared."""
    compared: int = 1000
    """Rounds of the report."""
    after: int = 300
    """Rounds after the switch."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One seed."""

    seed: int
    current: float
    """What the bandit earned in the rounds of the report."""
    deserved: float
    earned: float
    estimates: dict[str, Estimate]

    def covers(self, name: str, target: float) -> bool:
        """Whether an interval contains a number.

        Args:
            name: The estimate.
            target: The number.
        """
        estimate = self.estimates[name]
        return estimate.lower <= target <= estimate.upper


class World:
    """Arms that are drawn anew in every round, and yield 0 or 1."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng([seed, 25])
        self._slope = self._rng.uniform(2.0, 5.0, size=2)
        self._shift = self._rng.uniform(0.0, 6.0)

    def offer(self) -> Floats:
        """Features of the arms of a round, (n, 2)."""
        return self._rng.random((ARMS, 2))

    def means(self, features: Floats) -> Floats:
        """Expected rewards of arms, (n,).

        Args:
            features: Their features, (n, 2).
        """
        return 0.5 + 0.4 * np.sin(features @ self._slope + self._shift)

    def rewards(self, means: Floats) -> Floats:
        """Rewards of arms, (n,).

        Args:
            means: Their expected rewards, (n,).
        """
        return (self._rng.random(len(means)) < means).astype(float)


def index_policy(rule: UCB | Greedy) -> IndexPolicy:
    """A policy that chooses two arms.

    Args:
        rule: Its rule.
    """
    posterior = StreamingGP(
        SquaredExponential(lengthscale=0.5, variance=0.1), 0.2, mean=0.5
    )
    return IndexPolicy(posterior=posterior, rule=rule, oracle=TopK(k=CHOSEN))


def play_seed(seed: int, storage: Storage, size: Size) -> Result:
    """Explore, compare, switch and play on.

    Args:
        seed: The seed.
        storage: Where the journal is.
        size: How many rounds are played.
    """
    world = World(seed)
    explorer = index_policy(UCB(schedule=Fixed(value=2.0)))
    acting = Exploring(policy=explorer, epsilon=EPSILON)
    # A seed of its own: bandits that share one explore in the same rounds, and err alike.
    spec = BanditSpec(policy=spec_of(acting), seed=seed)
    bandit = create_bandit(f"seed-{seed}", spec=spec, storage=storage)
    twin = index_policy(Greedy())
    deserved = []
    earned = []
    current = []
    for step in range(1, size.before + size.compared + 1):
        if step == size.before + 1:
            bandit.shadow(index_policy(Greedy()))
        features = world.offer()
        means = world.means(features)
        offer = Offer(step=step, arms=Arms.numbered(features))
        choice = twin.decide(offer, np.random.default_rng(0))
        answer, rewards = _round(bandit, world, features)
        _teach(twin, offer, answer, rewards)
        if step > size.before:
            deserved.append(means[choice.positions].sum())
            current.append(rewards.sum())
    report = bandit.shadow_report(reward_range=REWARDS, level=LEVEL)
    bandit.switch()
    for _ in range(size.after):
        features = world.offer()
        answer, _ = _round(bandit, world, features)
        chosen = np.array(answer.arms, dtype=np.intp)
        earned.append(world.means(features)[chosen].sum())
    estimates = {
        "inverse_propensity": report.inverse_propensity,
        "self_normalised": report.self_normalised,
        "doubly_robust": report.doubly_robust,
    }
    return Result(
        seed=seed,
        current=float(np.mean(current)),
        deserved=float(np.mean(deserved)),
        earned=float(np.mean(earned)),
        estimates={name: _require(value) for name, value in estimates.items()},
    )


def _round(bandit: Bandit, world: World, features: Floats) -> tuple[Answer, Floats]:
    """Ask and tell; the answer, and the rewards of its arms."""
    answer = bandit.ask(features)
    chosen = np.array(answer.arms, dtype=np.intp)
    rewards = world.rewards(world.means(features)[chosen])
    bandit.tell(answer, dict(zip(answer.arms, rewards.tolist(), strict=True)))
    return answer, rewards


def _teach(twin: IndexPolicy, offer: Offer, answer: Answer, rewards: Floats) -> None:
    positions = np.array(answer.arms, dtype=np.intp)
    decision = Decision(step=offer.step, action=positions, positions=positions)
    feedback = Feedback(positions=positions, rewards=rewards)
    twin.learn(offer, decision, feedback, np.random.default_rng(0))


def _require(estimate: Estimate | None) -> Estimate:
    if estimate is None:
        raise AssertionError("the report has every estimate")
    return estimate


def play(seeds: Iterable[int], size: Size, workers: int = 8) -> list[Result]:
    """Play all seeds, each with a bandit of its own in one storage.

    Args:
        seeds: The seeds.
        size: How many rounds each.
        workers: Threads: the journal stores what they write together.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / "bandits.db"
        with (
            Storage(f"sqlite:///{path}") as storage,
            ThreadPoolExecutor(workers) as pool,
        ):
            return list(pool.map(lambda seed: play_seed(seed, storage, size), seeds))


def most_failures(seeds: int) -> int:
    """Intervals that may miss: more do so with probability below 1/1000 if each covers with ``LEVEL``.

    Args:
        seeds: Intervals in total.
    """
    return int(binom.ppf(0.999, seeds, 1.0 - LEVEL))


# --- the table -----------------------------------------------------------------------------


def lines(results: Sequence[Result]) -> Iterator[str]:
    """The result as docs/architecture.md states it: two sentences and a table.

    Args:
        results: One for each seed.
    """
    current = np.mean([result.current for result in results])
    deserved = np.mean([result.deserved for result in results])
    earned = np.mean([result.earned for result in results])
    yield (
        f"On average the bandit earned {current:.3f} a decision; the challenger deserved {deserved:.3f} and "
        f"earned {earned:.3f}."
    )
    ratios = {name: width_ratio(results, name) for name in ESTIMATES}
    yield (
        f"The price is width: below, {ratios['inverse_propensity']:.1f} (inverse propensity) and "
        f"{ratios['doubly_robust']:.1f} (doubly robust) times ±1.96 root mean square errors."
    )
    count = len(results)
    yield (
        f"If an interval misses with probability 5 %, more than {most_failures(count)} of {count} miss with "
        f"probability {binom.sf(most_failures(count), count, 1.0 - LEVEL):.1g}."
    )
    yield ""
    yield (
        "| estimate | 95 % interval | mean error | root mean square error | mean width | covers deserved | "
        "covers earned |"
    )
    yield "|---|---|---:|---:|---:|---:|---:|"
    for name in ESTIMATES:
        yield _row(results, name)


def _row(results: Sequence[Result], name: str) -> str:
    """The row of one estimate."""
    count = len(results)
    covers_deserved = sum(result.covers(name, result.deserved) for result in results)
    covers_earned = sum(result.covers(name, result.earned) for result in results)
    cells = (
        COLUMNS[name],
        results[0].estimates[name].interval,
        _signed(float(_errors(results, name).mean())),
        f"{_root_mean_square_error(results, name):.3f}",
        f"{_mean_width(results, name):.3f}",
        f"{covers_deserved} of {count}",
        f"{covers_earned} of {count}",
    )
    return f"| {' | '.join(cells)} |"


def width_ratio(results: Sequence[Result], name: str) -> float:
    """How wide intervals are, relative to ±1.96 root mean square errors.

    Args:
        results: One for each seed.
        name: The estimate.
    """
    normal_width = 2.0 * 1.96 * _root_mean_square_error(results, name)
    return _mean_width(results, name) / normal_width


def _errors(results: Sequence[Result], name: str) -> Floats:
    """Estimates less what the challenger deserved, by seed."""
    return np.array(
        [result.estimates[name].value - result.deserved for result in results]
    )


def _root_mean_square_error(results: Sequence[Result], name: str) -> float:
    return float(np.sqrt((_errors(results, name) ** 2).mean()))


def _mean_width(results: Sequence[Result], name: str) -> float:
    estimates = [result.estimates[name] for result in results]
    return float(np.mean([estimate.upper - estimate.lower for estimate in estimates]))


def _signed(value: float) -> str:
    sign = "−" if value < 0.0 else "+"
    return f"{sign}{abs(value):.3f}"


# --- stored results ------------------------------------------------------------------------


def as_json(results: Sequence[Result]) -> str:
    """All numbers on one line.

    Args:
        results: One for each seed.
    """
    rows = [asdict(result) for result in results]
    return json.dumps({"suite": "shadow", "rows": rows}, allow_nan=False)


def from_json(text: str) -> list[Result]:
    """The results that a text contains.

    Args:
        text: What :func:`as_json` returned.
    """
    results = []
    for row in json.loads(text)["rows"]:
        estimates = {
            name: Estimate(**estimate) for name, estimate in row["estimates"].items()
        }
        results.append(Result(**{**row, "estimates": estimates}))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.shadow", description=__doc__)
    parser.add_argument("--seeds", type=int, default=50, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument(
        "--stored",
        type=Path,
        nargs="+",
        help="play nothing, show what --json printed before; several files are joined",
    )
    options = parser.parse_args()
    if options.stored is not None:
        results = []
        for path in options.stored:
            results += from_json(path.read_text(encoding="utf-8"))
    else:
        seeds = range(options.first, options.first + options.seeds)
        results = play(seeds, Size(), options.workers)
    if options.json:
        print(as_json(results))
        return
    for line in lines(results):
        print(line, flush=True)


if __name__ == "__main__":
    main()
