"""One posterior of every kind and form, for tests that hold for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import csc_array

from superarm.core import Floats
from superarm.kernels import GraphMatern, Matern, SquaredExponential, Temporal
from superarm.posteriors import (
    ChangeDetecting,
    DriftingGP,
    FiniteGP,
    IndependentGaussian,
    InducingGP,
    Refitting,
    Resetting,
    Separate,
    SparseVariational,
    StreamingGP,
)
from superarm.roads.posterior import RoadGP

Maker = Callable[[], Any]
SMOOTH = SquaredExponential(lengthscale=0.8)


def rough_kernel(lengthscale: float = 0.5) -> Matern:
    """A kernel without a finite-rank form that would pay."""
    return Matern(nu=1.5, lengthscale=lengthscale)


def fading_kernel(lengthscale: float = 0.5, epsilon: float = 0.1) -> Any:
    """The rough kernel on two columns, fading with the time in the third."""
    space = Matern(nu=1.5, lengthscale=lengthscale, columns=(0, 1))
    return space * Temporal(epsilon=epsilon, column=2)


def chain_laplacian(n: int) -> csc_array:
    """The Laplacian of roads in a row."""
    links = np.eye(n, k=1) + np.eye(n, k=-1)
    return csc_array(np.diag(links.sum(axis=0)) - links)


def posterior_makers(
    arms: Floats,
    noise: float,
    *,
    lengthscale: float = 0.5,
    inducing: int = 10,
    block: int = 5,
) -> dict[str, Maker]:
    """Functions that make a posterior, by its kind and form.

    Args:
        arms: The fixed arms of those posteriors that need some, (n, 2).
        noise: Their noise variance.
        lengthscale: Of the rough kernel.
        inducing: The largest number of inducing points.
        block: The number of steps after which ``Resetting`` resets.
    """
    rough = rough_kernel(lengthscale)
    drift = Temporal(epsilon=0.1)
    n = len(arms)
    return {
        "streaming, cholesky": lambda: StreamingGP(rough, noise, form="cholesky"),
        "streaming, finite-rank": lambda: StreamingGP(
            SMOOTH, noise, form="finite-rank"
        ),
        "streaming, inducing": lambda: StreamingGP(
            rough, noise, most_exact=1, inducing=inducing
        ),
        "streaming, forgetting": lambda: StreamingGP(
            fading_kernel(lengthscale), noise, timed=True, forget=1e-6
        ),
        "root, numpy": lambda: FiniteGP(
            rough, arms, noise, form="root", backend="numpy"
        ),
        "root, compiled": lambda: FiniteGP(
            rough, arms, noise, form="root", backend="auto"
        ),
        "visited": lambda: FiniteGP(rough, arms, noise, form="visited"),
        "independent": lambda: IndependentGaussian(
            np.linspace(0.5, 2.0, n), noise, arms=arms
        ),
        "inducing": lambda: InducingGP(rough, noise, inducing=inducing),
        "drifting": lambda: DriftingGP(rough, arms, noise, drift=drift),
        "drifting, folded": lambda: DriftingGP(rough, arms, noise, form="folded"),
        "drifting, visited": lambda: DriftingGP(rough, arms, noise, form="visited"),
        "resetting": lambda: Resetting(FiniteGP(rough, arms, noise), block=block),
        "change-detecting": lambda: ChangeDetecting(FiniteGP(rough, arms, noise)),
        "refitting": lambda: Refitting(
            FiniteGP(rough, arms, noise), every=3, fit_noise=False
        ),
        "variational": lambda: SparseVariational(
            rough, noise, natural_rate=0.7, adam_rate=0.0
        ),
        "separate": lambda: Separate(StreamingGP(rough, noise), column=2),
        "roads": lambda: RoadGP(
            GraphMatern(chain_laplacian(n), nu=2), np.ones(n), refit=0
        ),
    }
