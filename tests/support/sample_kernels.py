"""Kernels that every test of all kernels uses: add yours to ``KERNELS``, and tests find it.

Kernels see rows with four columns:

======  ======================================
0       ids 0 … 3, or nodes of a graph
1       a time, in [0, 10]
2, 3    features, in [0, 1]
======  ======================================

``tests/package/test_contracts_parts.py`` runs the contract, ``tests/kernels/test_kernels.py`` compares
gradients, specs and scikit-learn, ``tests/package/test_invalid_values.py`` passes invalid values, and
``tests/states/make.py`` saves a state for a kernel that no state holds yet.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.sparse import csc_array

from superarm.core import Floats, registry
from superarm.kernels import (
    Columns,
    Constant,
    Empirical,
    GraphMatern,
    Kernel,
    Linear,
    Matern,
    Periodic,
    Polynomial,
    RationalQuadratic,
    Scale,
    SquaredExponential,
    Temporal,
)

IDS = 4
COVARIANCE = np.array(
    [
        [2.0, 0.5, 0.0, 0.1],
        [0.5, 1.0, 0.2, 0.0],
        [0.0, 0.2, 1.5, 0.3],
        [0.1, 0.0, 0.3, 1.0],
    ]
)
DENSE_COVARIANCE = np.array(
    [
        [2.0, 0.5, 0.1, 0.3],
        [0.5, 1.0, 0.2, 0.1],
        [0.1, 0.2, 1.5, 0.4],
        [0.3, 0.1, 0.4, 1.0],
    ]
)
PATH = csc_array(
    [
        [1.0, -1.0, 0.0, 0.0],
        [-1.0, 2.0, -1.0, 0.0],
        [0.0, -1.0, 2.0, -1.0],
        [0.0, 0.0, -1.0, 1.0],
    ]
)
"""The Laplacian of four nodes in a row."""

KERNELS: dict[str, Kernel] = {
    "se": SquaredExponential(lengthscale=0.7, variance=2.5),
    "se-short": SquaredExponential(lengthscale=0.5, variance=2.0),
    "se-ard": SquaredExponential(lengthscale=(0.5, 1.0, 2.0, 0.3), variance=0.3),
    "se-columns": SquaredExponential(lengthscale=(0.5, 2.0), columns=(3, 1)),
    "se-columns-short": SquaredExponential(lengthscale=(0.5, 0.7), columns=(2, 1)),
    "matern-1/2": Matern(nu=0.5, lengthscale=0.8, variance=1.3),
    "matern-1/2-short": Matern(nu=0.5, lengthscale=0.6),
    "matern-3/2": Matern(nu=1.5, lengthscale=(0.5, 1.0, 2.0, 0.3)),
    "matern-5/2": Matern(lengthscale=1.2, columns=(1, 2, 3)),
    "matern-5/2-short": Matern(nu=2.5, lengthscale=0.6),
    "matern-0.3": Matern(nu=0.3, lengthscale=0.9),
    "matern-1": Matern(nu=1.0, lengthscale=0.9),
    "matern-1.2": Matern(nu=1.2, lengthscale=0.6),
    "matern-3.7": Matern(nu=3.7, lengthscale=0.9, variance=0.4),
    "matern-inf": Matern(nu=math.inf, lengthscale=0.9),
    "rq": RationalQuadratic(alpha=0.6, lengthscale=0.8, variance=1.7),
    "rq-short": RationalQuadratic(alpha=0.7, lengthscale=0.4),
    "rq-ard": RationalQuadratic(alpha=3.0, lengthscale=(0.8, 0.5), columns=(2, 3)),
    "periodic": Periodic(period=0.7, lengthscale=1.1, variance=0.8),
    "periodic-slow": Periodic(period=0.9, lengthscale=1.2),
    "periodic-ard": Periodic(period=(0.7, 1.3), lengthscale=(1.1, 2.0), columns=(2, 3)),
    "linear": Linear(variance=0.7),
    "linear-bias": Linear(variance=0.7, bias=0.3, columns=(2, 3)),
    "linear-bias-all": Linear(variance=0.3, bias=0.1),
    "polynomial": Polynomial(degree=3, variance=0.2, bias=0.5),
    "polynomial-large": Polynomial(degree=3, bias=0.5),
    "polynomial-plain": Polynomial(degree=2, bias=0.0),
    "constant": Constant(variance=1.4),
    "constant-large": Constant(variance=2.0),
    "empirical": Empirical(covariance=COVARIANCE),
    "empirical-dense": Empirical(covariance=DENSE_COVARIANCE),
    "temporal": Temporal(epsilon=0.2, column=1),
    "temporal-slow": Temporal(epsilon=0.1, column=1),
    "graph-matern": GraphMatern(PATH),
    "columns": Columns(kernel=Matern(nu=1.5) + Linear(), columns=(3, 0)),
    "columns-time": Columns(kernel=Matern() + Linear(), columns=(2, 1)),
    "sum": Matern(columns=(2, 3)) + Linear(bias=0.2) + Constant(),
    "sum-of-two": Matern(columns=(1, 2)) + Linear(),
    "product": Temporal(epsilon=0.1, column=1)
    * SquaredExponential(columns=(2, 3))
    * Empirical(covariance=COVARIANCE),
    "product-dense": Temporal(column=1)
    * Empirical(covariance=DENSE_COVARIANCE)
    * Matern(columns=(2,)),
    "scale": Scale(kernel=SquaredExponential(variance_bounds="fixed"), factor=3.0),
    "scale-matern": Scale(kernel=Matern(variance_bounds="fixed"), factor=3.0),
    "fixed": 2.0
    * SquaredExponential(lengthscale_bounds="fixed", variance_bounds="fixed"),
}

WITH_IDS = ("empirical", "empirical-dense", "product", "product-dense", "graph-matern")
"""Samples that read column 0 as ids, in which they have no derivative: add yours if it does."""

WITHOUT_INPUT_GRADIENT: tuple[str, ...] = ()
"""Samples of kernels that leave out ``_input_gradient``, which is optional."""


def kernel_rows(seed: int = 0, n: int = 12, longest: float = 10.0) -> Floats:
    """Rows that the samples read, (n, 4), with times of at most ``longest``."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, 4))
    X[:, 0] = rng.integers(0, IDS, n)
    X[:, 1] *= longest
    return X


def kernel_of_each_kind() -> dict[str, Kernel]:
    """The first sample of every kernel, by its registered name."""
    first: dict[str, Kernel] = {}
    for kernel in KERNELS.values():
        first.setdefault(registry.spec_of(kernel)["name"], kernel)
    return first
