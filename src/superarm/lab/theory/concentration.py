"""Concentration inequalities behind chowdhury2017kernelized, and the finite-dimensional forerunner.

====================  ================================================================
``noise``             ε_1, …, ε_t, (t,), each conditionally R-sub-Gaussian
``K``                 the kernel matrix of the points played, (t, t)
``features``          φ(x_1), …, φ(x_t), (t, d), where they are finite: K = Φ Φᵀ
``ridge``             V_t = ridge·I + Φᵀ Φ, (d, d)
====================  ================================================================

Theorem 1 of chowdhury2017kernelized and Theorem 1 of abbasiyadkori2011improved, at the same points and
with ridge 1, compare like this. Let κ_i be the eigenvalues of K and u_i the coordinates of the noise
along its eigenvectors. Squared, the left side of the former is Σ u_i² (κ_i + η)/(κ_i + 1 + η) and that
of the latter Σ u_i² κ_i/(κ_i + 1); the right sides are R² (Σ ln(1 + η + κ_i) − 2 ln δ) and
R² (Σ ln(1 + κ_i) − 2 ln δ). So both sides of the former are larger, by at most η ‖ε‖²/(1 + η) and
R² t ln(1 + η): they meet as η → 0. With η = 0, where K must be positive definite, they are the same.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from superarm.core import Floats
from superarm.core.errors import ShapeError
from superarm.core.inputs import as_features, as_number, as_positive, as_vector
from superarm.rules.base import as_probability

from .high_probability import self_normalised_norm


def linear_self_normalised_norm(
    noise: Any, features: Any, *, ridge: float = 1.0
) -> float:
    """‖S_t‖ in the norm of V_t⁻¹, S_t = Σ ε_s φ(x_s): abbasiyadkori2011improved, Theorem 1, left.

    With ridge 1 it is ‖ε‖ in the norm of (K⁻¹ + I)⁻¹: chowdhury2017kernelized, Lemma 1. Not squared.

    Args:
        noise: (t,).
        features: (t, d), one row for each noise.
        ridge: V_0 = ridge·I; 1 is that of Lemma 1.
    """
    rows = as_features(features, "features")
    vector = as_vector(noise, "noise")
    if len(vector) != len(rows):
        raise ShapeError(
            f"noise has {len(vector)} numbers, but features has {len(rows)} rows; "
            "give one number per row"
        )
    summed = rows.T @ vector
    solved = np.linalg.solve(_design(rows, ridge), summed)
    return math.sqrt(max(0.0, float(summed @ solved)))


def linear_self_normalised_bound(
    features: Any, noise_bound: float, delta: float, *, ridge: float = 1.0
) -> float:
    """R√(2 ln(√det(V_t) √det(V_0)⁻¹/δ)): abbasiyadkori2011improved, Theorem 1, right; not squared.

    With probability 1 − δ no prefix of the noise exceeds it, for any predictable choice of points.

    Args:
        features: (t, d), one row for each round.
        noise_bound: R.
        delta: the probability with which it may fail.
        ridge: V_0 = ridge·I.
    """
    rows = as_features(features, "features")
    R = as_number(noise_bound, "noise_bound", least=0.0)
    chance = as_probability(delta, "delta")
    _, log_determinant = np.linalg.slogdet(_design(rows, ridge) / ridge)
    square = float(log_determinant) - 2.0 * math.log(chance)
    return R * math.sqrt(max(0.0, square))


def _design(rows: Floats, ridge: float) -> Floats:
    """V_t, (d, d)."""
    identity = np.eye(rows.shape[1])
    return np.asarray(as_positive(ridge, "ridge") * identity + rows.T @ rows)


def mixture_martingale(
    noise: Any, K: Any, eta: float, noise_bound: float = 1.0
) -> float:
    """M_t = exp(½‖ε/R‖²)/√det((1+η)I + K), ‖·‖ as in Theorem 1: chowdhury2017kernelized, appendix A.

    A super-martingale with E[M_t] ≤ 1. Theorem 1 fails at δ where M_t > 1/δ.

    Args:
        noise: (t,).
        K: (t, t).
        eta: the variance of the second mixture; 0 needs K positive definite.
        noise_bound: R.
    """
    R = as_positive(noise_bound, "noise_bound")
    scaled_noise = np.asarray(noise, dtype=np.float64) / R
    norm = self_normalised_norm(scaled_noise, K, eta)
    matrix = np.asarray(K, dtype=np.float64)
    identity = np.eye(len(matrix))
    _, log_determinant = np.linalg.slogdet(matrix + (1.0 + eta) * identity)
    return math.exp(0.5 * (norm**2 - float(log_determinant)))


def gaussian_tail_bound(beta: float) -> float:
    """e^{−β²}/(4√π β): chowdhury2017kernelized, Lemma 7.

    It is a lower bound on P[Z > β] for β ≥ 0.344. For smaller β it is above that probability, and so
    the lemma does not hold as printed, "for any β > 0"; Lemma 8, which takes it at β ≤ 1, does hold,
    because P[Z > β] ≥ P[Z > 1] there.

    Args:
        beta: β, in standard deviations, above 0.
    """
    number = as_positive(beta, "beta")
    return math.exp(-(number**2)) / (4.0 * math.sqrt(math.pi) * number)


def azuma_bound(ranges: Any, delta: float) -> float:
    """√(2 ln(1/δ) Σ α_t²): chowdhury2017kernelized, Lemma 11.

    A super-martingale with steps of at most α_t rises by more with probability δ at most.

    Args:
        ranges: α_1, …, α_T, (T,).
        delta: the probability with which it may fail.
    """
    alphas = as_vector(ranges, "ranges")
    chance = as_probability(delta, "delta")
    return math.sqrt(-2.0 * math.log(chance) * float(np.sum(alphas**2)))
