"""What *On Kernelized Multi-armed Bandits (2017)* proves for any points that are chosen.

Theorem 1, eqs. 10 and 11 and Lemma 3 are about any choices. Lemma 4, Theorem 2 and Lemma 6 need
k(x, x) ≤ 1 and ‖f‖_k ≤ B as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from superarm.core import Floats, Gamma
from superarm.lab import theory
from superarm.lab.experiments.claims import Verdict
from superarm.lab.problems.finite import FiniteProblem
from superarm.lab.results.formats import significant
from superarm.rules import information

from .judging import ROUNDING, word_if
from .kernelized_cells import Cells
from .kernelized_replay import Replay

_RIDGE = 1e-8  # with which a lower bound on the norm of f is computed


# --- whatever f is ------------------------------------------------------------------------


def judge_any_choices(cells: Cells) -> Iterator[Verdict]:
    """Eqs. 10 and 11, Lemma 3 and Theorem 1, whatever f and its norm are.

    Args:
        cells: what is replayed.
    """
    yield _judge_information(cells)
    text = "Lemma 3: the information gained in t rounds is at most γ_t (an upper bound, by greedy choice)"
    yield cells.judge_always(text, cells.used_shares(_share_of_gain))
    norms = cells.used_shares(lambda replay: share_of_noise(replay, cells.delta))
    text = "Theorem 1: the self-normalised norm of the noise stays below its bound in all rounds"
    yield cells.judge_probable(text, norms, cells.delta)


def _judge_information(cells: Cells) -> Verdict:
    """Eqs. 10 and 11."""
    differences = [_difference_of_information(replay) for replay in cells.replays]
    used = cells.shares_by_seed([1.0 + difference for difference in differences])
    largest = significant(max(differences), 2)
    evidence = (
        f"largest relative difference: {largest} ({cells.policy}; {cells.size_text})"
    )
    text = "Eqs. 10, 11: ½ ln det(I + K_t/λ) = ½ Σ ln(1 + σ²_{s−1}(x_s)/λ)"
    return Verdict(text, word_if(not used.failures), evidence)


def _difference_of_information(replay: Replay) -> float:
    """Eq. 10 less eq. 11, over their size; repeated arms make eq. 10 a determinant of n rows."""
    model = replay.world.model
    counts = np.bincount(replay.positions, minlength=len(replay.world.arms))
    roots = np.sqrt(counts / replay.noise_variance)
    column = roots[:, None]
    K = model.kernel(model.arms)
    scaled = column * K * roots  # (n, n)
    identity = np.eye(len(roots))
    _, log_determinant = np.linalg.slogdet(identity + scaled)
    by_determinant = 0.5 * log_determinant  # eq. 10
    by_rounds = replay.gained[-1]  # eq. 11
    difference = abs(by_determinant - by_rounds)
    return float(difference / by_rounds)


def _share_of_gain(replay: Replay) -> float:
    model = replay.world.model
    greedy = information.greedy_information_gain(
        model.kernel, model.arms, len(replay.stds), replay.noise_variance
    )
    shares = replay.gained[1:] / greedy.upper_bounds[1:]
    return float(np.max(shares))


def share_of_noise(replay: Replay, delta: float) -> float:
    """The largest squared norm over its bound: eq. 6.

    Args:
        replay: of a cell.
        delta: δ.
    """
    gained = replay.gained[1:]
    log_lam = math.log(replay.noise_variance)
    # ln det(λI + K_t) = 2I_t + t ln λ
    log_determinants = 2.0 * gained + replay.rounds * log_lam
    noise_bound = replay.world.noise_std
    bounds = theory.self_normalised_bound(log_determinants, noise_bound, delta)
    return float(np.max(replay.norms / bounds))


# --- where ‖f‖ ≤ B ------------------------------------------------------------------------


def is_within_assumptions(world: FiniteProblem) -> bool:
    """Whether k(x, x) ≤ 1 and ‖f‖_k ≤ B; the norm is at least what a ridge leaves of it.

    Args:
        world: the problem of a cell.
    """
    model = world.model
    K = np.asarray(model.kernel(model.arms))
    f = world.truth - np.asarray(model.mean)
    ridge = _RIDGE * np.eye(len(K))
    weights = np.linalg.solve(K + ridge, f)
    squared_norm = float(f @ weights)
    norm = math.sqrt(max(0.0, squared_norm))
    norm_bound = model.norm_bound or 0.0
    largest_variance = float(K.diagonal().max())
    tolerance = 1.0 + ROUNDING
    return largest_variance <= tolerance and norm <= norm_bound * tolerance


def judge_bounded_norm(cells: Cells) -> Iterator[Verdict]:
    """Lemma 4, and Theorem 2 or Lemma 6, where the assumptions hold.

    Args:
        cells: what is replayed.
    """
    text = "Lemma 4: Σσ_{t−1}(x_t) ≤ √(4(T + 2)γ_T), for every prefix and with the information gained"
    yield cells.judge_always(text, cells.used_shares(_share_of_stds))
    yield _judge_band(cells)


def _share_of_stds(replay: Replay) -> float:
    bounds = theory.std_sum_bound(replay.rounds, replay.information)
    return float(np.max(np.cumsum(replay.stds) / bounds))


def _judge_band(cells: Cells) -> Verdict:
    """Theorem 2 at δ, or Lemma 6 at δ/2; with I_t, with which the band is narrower than with γ_t."""
    if cells.algorithm == "gp-ts":
        chance = cells.delta / 2.0
        text = "Lemma 6: |μ_{t−1}(x) − f(x)| ≤ v_t σ_{t−1}(x), E^f(t), for all arms and rounds at once"
    else:
        chance = cells.delta
        text = "Theorem 2: |μ_{t−1}(x) − f(x)| ≤ β_t σ_{t−1}(x) for all arms and rounds at once"
    text += ", with the information gained in place of γ"

    def share_of_band(replay: Replay) -> float:
        widths = widths_of(replay, replay.information, chance)
        return float(np.max(replay.band / widths))

    return cells.judge_probable(text, cells.used_shares(share_of_band), chance)


def widths_of(replay: Replay, gamma: Gamma, delta: float) -> Floats:
    """β_t of Theorem 2 in every round, (T,).

    Args:
        replay: of a cell.
        gamma: t ↦ γ_t.
        delta: δ.
    """
    model = replay.world.model
    norm_bound = model.norm_bound or 0.0
    noise_bound = model.noise_bound or 0.0
    return theory.confidence_width(replay.rounds, gamma, norm_bound, noise_bound, delta)
