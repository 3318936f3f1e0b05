"""Cells of a run, replayed by a posterior with the λ of *On Kernelized Multi-armed Bandits (2017)*.

=========  =================================================================================
``λ``      1 + η with η = 2/T
``I_t``    ½ Σ ln(1 + σ²_{s−1}(x_s)/λ), the information gained in t rounds; at most γ_t
=========  =================================================================================
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from superarm.core import Floats, Gamma, Ints
from superarm.lab import theory
from superarm.lab.problems.finite import FiniteProblem

from .recorded import RecordedRun


class Replay(NamedTuple):
    """One cell, seen by a posterior with λ = 1 + 2/T."""

    world: FiniteProblem
    positions: Ints  # the arms played, (T,)
    stds: Floats  # σ_{t−1}(x_t), (T,)
    gained: Floats  # I_0, …, I_T, (T + 1,)
    norms: Floats  # the squared norm of Theorem 1 after each round, (T,)
    band: Floats  # the largest |μ_{t−1}(x) − f(x)| / σ_{t−1}(x) over all arms, (T,)

    @property
    def rounds(self) -> Ints:
        """1, …, T."""
        return np.arange(1, len(self.stds) + 1)

    @property
    def noise_variance(self) -> float:
        """λ, with which the cell is replayed."""
        return theory.theory_noise_variance(len(self.stds))

    @property
    def information(self) -> Gamma:
        """I_t as a γ: it is at most γ_t, so that bounds with it are the harder ones."""
        return lambda count: float(self.gained[count])


def replay_cell(recorded: RecordedRun, policy: str, seed: int, index: int) -> Replay:
    """Eqs. 19–21 on what a cell recorded, beside the same for its noise alone.

    Args:
        recorded: a finished run.
        policy: of the cell.
        seed: of the cell.
        index: of the cell's setting.
    """
    world = recorded.world(seed, index)
    assert isinstance(world, FiniteProblem)
    model = world.model
    rounds = recorded.run.rounds
    lam = theory.theory_noise_variance(rounds)
    cov = np.array(model.kernel(model.arms))  # (n, n)
    prior_mean = np.asarray(model.mean, dtype=np.float64)
    prior = np.broadcast_to(prior_mean, world.truth.shape)
    truth = world.truth - prior
    mean = np.zeros(len(truth))  # of f − the prior mean
    # Of a function that is learned from the noise alone.
    noise_mean = np.zeros(len(truth))
    positions = np.empty(rounds, dtype=np.intp)
    variances = np.empty(rounds)
    norms = np.empty(rounds)
    band = np.empty(rounds)
    squares = 0.0
    fitted = 0.0
    played_rounds = recorded.rounds(policy, seed, index, world, arms=1)
    for step, played in enumerate(played_rounds):
        arm = int(played.positions[0])
        band[step] = _largest_error(mean, truth, cov)
        noise = float(played.rewards[0]) - world.truth[arm]
        residual = truth[arm] + noise - mean[arm]
        noise_residual = noise - noise_mean[arm]
        spread = lam + max(0.0, float(cov[arm, arm]))
        # ‖ε‖² in the norm of Theorem 1 is ‖ε‖² − εᵀ(K + λI)⁻¹ε, and the latter a sum over rounds.
        squares += noise**2
        fitted += noise_residual**2 / spread
        positions[step] = arm
        variances[step] = spread - lam
        norms[step] = squares - fitted
        column = cov[:, arm].copy()
        mean += column * (residual / spread)  # eq. 19
        noise_mean += column * (noise_residual / spread)
        cov -= np.outer(column, column / spread)  # eqs. 20, 21
    return Replay(
        world=world,
        positions=positions,
        stds=np.sqrt(variances),
        gained=theory.realised_information(variances, lam),
        norms=norms,
        band=band,
    )


def _largest_error(mean: Floats, truth: Floats, cov: Floats) -> float:
    """The largest |μ(x) − f(x)| / σ(x) over all arms; arms with σ = 0 count as 0."""
    variances = np.maximum(cov.diagonal(), 0.0)
    stds = np.sqrt(variances)
    is_unknown = stds > 0.0
    errors = np.abs(mean - truth)
    shares = np.zeros_like(errors)
    np.divide(errors, stds, out=shares, where=is_unknown)
    return float(np.max(shares))
