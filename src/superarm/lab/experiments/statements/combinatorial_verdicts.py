"""Verdicts on Lemmas 1 to 3, eq. 6 and Theorem 1 of nika2022oclok, from replayed seeds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from superarm.lab.experiments.claims import Verdict, Word
from superarm.lab.results.formats import bound_text, count_text, significant
from superarm.lab.results.verdicts import lead_of

from .combinatorial_replay import LEVELS, Replay
from .judging import failure_tails, too_few_text, word_if, word_of_share


def verdicts(
    replays: Sequence[Replay], delta: float, unmet: str, has_promise: bool
) -> Iterator[Verdict]:
    """Every statement, with evidence that does not name the run yet.

    Args:
        replays: of one policy, one for each seed.
        delta: δ of Lemma 2.
        unmet: why Lemma 2 says nothing of the setting; empty where it does.
        has_promise: whether regret is against what the oracle promises.
    """
    yield _lemma_1(replays)
    if not unmet:
        yield _equation_6(replays)
        yield _lemma_2(replays, delta)
    if has_promise and any(replay.rounds_inside for replay in replays):
        yield _lemma_3(replays, unmet)
    if has_promise and any(replay.all_inside for replay in replays):
        yield _theorem_1(replays)


def _lemma_1(replays: Sequence[Replay]) -> Verdict:
    share = _largest([replay.variance_share for replay in replays])
    text = (
        "Lemma 1: the variances of all chosen arms add up to at most 2(λ* + σ²) times the information "
        "gained, whatever is chosen"
    )
    return Verdict(text, word_of_share(share), _used_text(share))


def _equation_6(replays: Sequence[Replay]) -> Verdict:
    text = (
        "Eq. 6: a true mean is more than √β standard deviations from its posterior mean with "
        "probability at most 2 exp(−β/2)"
    )
    strengths = []
    parts = []
    for place, level in enumerate(LEVELS):
        shares = np.array([replay.beyond[place] for replay in replays])
        mean_share = float(shares.mean())
        limit = 2.0 * math.exp(-(level**2) / 2.0)
        scale = max(limit, mean_share)
        lead = lead_of(limit - shares, scale=scale)
        strengths.append(lead.strength(len(LEVELS)))
        part = f"{significant(mean_share)} where {significant(limit)} is allowed ({level:g})"
        parts.append(part)
    weakest = min(strengths)
    word: Word = "undecided"
    if abs(weakest) > 1.0:
        word = word_if(weakest > 0.0)
    return Verdict(text, word, f"share of means, by √β: {', '.join(parts)}")


def _lemma_2(replays: Sequence[Replay], delta: float) -> Verdict:
    text = (
        f"Lemma 2: with probability at least 1 − δ = {1.0 - delta:g}, all true means on offer lie "
        "within √β_t standard deviations of their posterior means, in all rounds"
    )
    failed = sum(not replay.all_inside for replay in replays)
    outside = sum(replay.outside for replay in replays)
    arms = sum(replay.arms for replay in replays)
    word = failure_tails(failed, len(replays), delta).word()
    seeds_text = count_text(len(replays), "seed")
    evidence = (
        f"{outside:,} of {arms:,} means lie outside; "
        f"the event fails in {failed} of {seeds_text}"
    )
    evidence += too_few_text(word, failed, delta)
    return Verdict(text, word, evidence)


def _lemma_3(replays: Sequence[Replay], unmet: str) -> Verdict:
    text = (
        "Lemma 3: in a round in which all true means on offer lie within their widths, the α-gap is at "
        "most 2B√β_t Σσ over the chosen arms"
    )
    rounds = sum(replay.rounds_inside for replay in replays)
    outside = sum(replay.outside for replay in replays)
    arms = sum(replay.arms for replay in replays)
    share = _largest([replay.gap_share for replay in replays])
    evidence = f"{_used_text(share)}, in {count_text(rounds, 'such round')}"
    if unmet:
        evidence += f"; {outside:,} of {arms:,} means lie outside, but Lemma 2 does not apply: {unmet}"
    return Verdict(text, word_of_share(share), evidence)


def _theorem_1(replays: Sequence[Replay]) -> Verdict:
    text = (
        "Theorem 1, eq. 26: where Lemma 2's event occurs, the α-regret after t rounds is at most "
        "√(8B²(λ* + σ²) K β_t t I) for every t, with the information I gained in place of γ"
    )
    inside = [replay for replay in replays if replay.all_inside]
    share = _largest([replay.regret_share for replay in inside])
    seeds_text = count_text(len(replays), "seed")
    evidence = f"{_used_text(share)}; the event occurs in {len(inside)} of {seeds_text}"
    return Verdict(text, word_of_share(share), evidence)


def _largest(shares: Sequence[float]) -> float:
    """The largest share; NaN if one is."""
    return float(np.max(shares))


def _used_text(share: float) -> str:
    """The largest share in words; below zero, super arms were better than the oracle guarantees."""
    if share < 0.0:
        return "below zero throughout: better than the oracle guarantees"
    return f"at most {bound_text(share)}"
