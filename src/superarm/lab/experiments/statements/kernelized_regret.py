"""Theorems 3 and 4 of *On Kernelized Multi-armed Bandits (2017)*, on the regret of the learners."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from superarm.core import Floats, Gamma
from superarm.lab import theory
from superarm.lab.experiments.claims import Verdict
from superarm.rules import information

from .kernelized_cells import Cells
from .kernelized_choices import widths_of
from .kernelized_replay import Replay


def judge_igp_ucb(cells: Cells) -> Iterator[Verdict]:
    """Appendix D: the regret of a round, wherever the band holds, and Theorem 3.

    Args:
        cells: of IGP-UCB.
    """
    round_shares = []
    total_shares = []
    for replay, total in zip(cells.replays, cells.regret, strict=True):
        gamma = _certified_gamma(replay)
        widths = widths_of(replay, gamma, cells.delta)
        round_share = _largest_share_of_round(replay, total, widths)
        round_shares.append(round_share)
        std_sums = theory.std_sum_bound(replay.rounds, gamma)
        bounds = 2.0 * widths * std_sums
        total_shares.append(float(np.max(total / bounds)))
    text = "Theorem 3, appendix D: r_t ≤ 2β_t σ_{t−1}(x_t) in every round up to which the band holds"
    yield cells.judge_always(text, cells.shares_by_seed(round_shares))
    text = "Theorem 3: R_T ≤ 2β_T √(4(T + 2)γ_T), for every prefix"
    yield cells.judge_probable(text, cells.shares_by_seed(total_shares), cells.delta)


def _largest_share_of_round(replay: Replay, total: Floats, widths: Floats) -> float:
    """The largest r_t over 2β_t σ_{t−1}(x_t), among rounds up to which the band holds."""
    regrets = np.diff(total, prepend=0.0)
    allowed = 2.0 * widths * replay.stds
    shares = regrets / allowed
    used_band = np.maximum.accumulate(replay.band / widths)
    band_holds = used_band <= 1.0
    counted_shares = np.where(band_holds, shares, 0.0)
    return float(np.max(counted_shares))


def judge_gp_ts(cells: Cells) -> Iterator[Verdict]:
    """Lemma 13, from which Theorem 4 follows, with all arms as D_t.

    Args:
        cells: of GP-TS.
    """
    shares = []
    for replay, total in zip(cells.replays, cells.regret, strict=True):
        bounds = _bounds_of_lemma_13(replay, cells.delta)
        share = total[-1] / bounds[-1]
        shares.append(float(share))
    text = "Lemma 13, Theorem 4: R_T is at most the bound of Lemma 13, with all arms as D_t"
    yield cells.judge_probable(text, cells.shares_by_seed(shares), cells.delta)


def _bounds_of_lemma_13(replay: Replay, delta: float) -> Floats:
    """The right side of Lemma 13 in every round, (T,); |D_t| is the number n of arms."""
    rounds = replay.rounds.astype(np.float64)
    arms = len(replay.world.arms)
    B = replay.world.model.norm_bound or 0.0
    p = theory.ANTI_CONCENTRATION
    gamma = _certified_gamma(replay)
    v = widths_of(replay, gamma, delta / 2.0)
    points = arms * rounds**2
    draws = np.sqrt(2.0 * np.log(points))
    c = v * (1.0 + draws)  # Lemma 5 with D' = D_t
    std_sums = np.cumsum(replay.stds)
    exploration = 11.0 * c / p * std_sums
    constant = (2.0 * B + 1.0) * math.pi**2 / 6.0
    largest_step = (4.0 * B + 11.0) * c / p
    deviation = largest_step * theory.azuma_bound(rounds, delta / 2.0)  # Lemma 11
    return np.asarray(exploration + constant + deviation)


def _certified_gamma(replay: Replay) -> Gamma:
    """γ as the learners with gain = "greedy" use it."""
    model = replay.world.model
    return information.GreedyGrowth(
        kernel=model.kernel,
        candidates=model.arms,
        noise_variance=model.noise_variance,
        horizon=len(replay.stds),
    )
