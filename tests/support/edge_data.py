"""Observations on the edges of a small network, for tests of the variational posterior."""

from __future__ import annotations

import numpy as np

from superarm.core import Floats
from superarm.kernels import Empirical, Kernel, Matern

EDGES = 12


def batch_rng(seed: int = 0) -> np.random.Generator:
    """The generator that draws batches."""
    return np.random.default_rng(seed)


def network_kernel() -> Kernel:
    """k_G·k_f + k′_f, as on roads: a covariance over edge numbers in column 0 and two features."""
    root = np.random.default_rng(9).standard_normal((EDGES, EDGES))
    graph = root @ root.T / EDGES + 0.3 * np.eye(EDGES)
    features = Matern(nu=2.5, lengthscale=1.0, columns=(1, 2))
    return Empirical(covariance=graph) * features + Matern(
        nu=2.5, lengthscale=0.7, columns=(1, 2)
    )


def network_arms(rng: np.random.Generator) -> Floats:
    """Every edge with random features, (EDGES, 3)."""
    return np.column_stack([np.arange(EDGES), rng.standard_normal((EDGES, 2))])


def edge_data(count: int, seed: int = 0) -> tuple[Floats, Floats, Floats]:
    """Rows of random edges, rewards, and noise variances."""
    rng = np.random.default_rng(seed)
    rows = network_arms(rng)[rng.integers(0, EDGES, count)]
    return rows, rng.standard_normal(count), rng.uniform(0.05, 0.3, count)
