"""The replayed cells of one policy, and verdicts on how much of a bound they use.

A statement that may fail with probability δ is judged by the seeds in which it fails. It holds if a
share δ of all runs, or more, would fail in so few seeds with a probability below 1 %; it does not hold
if a share δ would fail in so many with a probability below 1 %.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.lab.experiments.claims import Verdict
from superarm.lab.results.formats import bound_text, count_text, significant

from .judging import (
    FailureTails,
    failure_tails,
    too_few_text,
    word_if,
    word_of_share,
)
from .kernelized_replay import Replay


class UsedShares(NamedTuple):
    """How much of what a statement allows each seed used: it fails where that is above 1."""

    policy: str
    seeds: tuple[int, ...]
    shares: tuple[float, ...]

    @property
    def failures(self) -> int:
        """In how many seeds the statement fails."""
        return sum(word_of_share(share) != "holds" for share in self.shares)

    @property
    def worst_text(self) -> str:
        """The largest share, in words."""
        worst = int(np.argmax(self.shares))
        share = bound_text(self.shares[worst])
        return f"at most {share} ({self.policy}, seed {self.seeds[worst]})"


class Cells(NamedTuple):
    """The cells of one policy in one setting that are replayed."""

    policy: str
    algorithm: str
    delta: float
    seeds: tuple[int, ...]
    replays: tuple[Replay, ...]  # one for each seed
    regret: Floats  # cumulative, (seeds, T)

    @property
    def size_text(self) -> str:
        """How many seeds and rounds were replayed, in words."""
        rounds = self.regret.shape[1]
        return f"{count_text(len(self.seeds), 'seed')}, T = {rounds:,}"

    def used_shares(self, share_of: Callable[[Replay], float]) -> UsedShares:
        """Shares of what a statement allows.

        Args:
            share_of: the largest share in a replay.
        """
        return self.shares_by_seed([share_of(replay) for replay in self.replays])

    def shares_by_seed(self, shares: list[float]) -> UsedShares:
        """Shares that are computed already, one for each seed.

        Args:
            shares: one for each seed.
        """
        return UsedShares(self.policy, self.seeds, tuple(shares))

    def judge_always(self, text: str, used: UsedShares) -> Verdict:
        """The verdict on a statement that must hold in every seed.

        Args:
            text: the statement.
            used: what each seed used of what it allows.
        """
        evidence = f"{used.worst_text}; {self.size_text}"
        return Verdict(text, word_if(not used.failures), evidence)

    def judge_probable(self, text: str, used: UsedShares, delta: float) -> Verdict:
        """The verdict on a statement that may fail with probability δ.

        Args:
            text: the statement.
            used: what each seed used of what it allows.
            delta: δ.
        """
        return judge_probable(text, used, delta, self.size_text)


def judge_probable(text: str, used: UsedShares, delta: float, size: str) -> Verdict:
    """The verdict on a statement that may fail with probability δ, by exact binomial tails.

    Args:
        text: the statement.
        used: what each seed used of what it allows.
        delta: δ.
        size: how many seeds and rounds were replayed, in words.
    """
    failed = used.failures
    tails = failure_tails(failed, len(used.seeds), delta)
    word = tails.word()
    evidence = (
        f"{used.worst_text}; it fails in {failed} of {size}; if {significant(100.0 * delta)} % of all "
        f"runs failed, {_tail_text(tails, failed, len(used.seeds))}"
    )
    evidence += too_few_text(word, failed, delta)
    return Verdict(f"{text} (probability 1 − δ)", word, evidence)


def _tail_text(tails: FailureTails, failed: int, seeds: int) -> str:
    """The smaller tail, in words."""
    failures = f"{count_text(failed, 'failure')} in {count_text(seeds, 'seed')}"
    if tails.as_many < tails.as_few:
        probability = significant(tails.as_many, 2)
        return f"at least {failures} would have probability {probability}"
    probability = significant(tails.as_few, 2)
    or_fewer = "at most " if failed else ""
    return f"{or_fewer}{failures} would have probability {probability}"
