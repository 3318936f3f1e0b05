"""Kernels of time as states that move: k(Δ) = h·A(Δ)h, up to the stated error."""

from __future__ import annotations

import numpy as np
import pytest

from superarm.core.errors import InputError
from superarm.kernels import (
    Constant,
    Kernel,
    Matern,
    Periodic,
    Scale,
    SquaredExponential,
    Temporal,
)

DAILY = Temporal(epsilon=0.1) * Periodic(period=24.0, lengthscale=0.8)
EXACT: list[Kernel] = [
    Temporal(epsilon=0.0),
    Temporal(epsilon=0.3),
    Matern(nu=0.5, lengthscale=3.0, variance=0.4),
    Matern(nu=1.5, lengthscale=3.0, variance=2.0),
    Constant(variance=0.7),
    Matern(nu=1.5, lengthscale=2.0) * Matern(nu=1.5, lengthscale=9.0),
    Scale(kernel=Temporal(epsilon=0.2), factor=3.0) + Matern(nu=0.5, lengthscale=8.0),
]
CUT: list[Kernel] = [
    Periodic(period=24.0, lengthscale=1.0),
    Periodic(period=5.0, lengthscale=0.25, variance=3.0),  # many terms
    Periodic(period=5.0, lengthscale=40.0),  # one term
    DAILY,
    Constant(variance=2.0) + 0.5 * DAILY,
    DAILY * Periodic(period=168.0, lengthscale=2.0, variance=4.0),
]


@pytest.mark.parametrize("tolerance", [1e-3, 1e-12])
@pytest.mark.parametrize("kernel", [*EXACT, *CUT], ids=repr)
def test_the_kernel_from_its_state(kernel: Kernel, tolerance: float) -> None:
    space = kernel.state_space(tolerance)
    elapsed = np.array([0.0, 0.3, 1.0, 2.5, 7.0, 24.0, 100.7])
    values = kernel(elapsed[:, None], [[0.0]])[:, 0]
    computed = [space.output @ space.transition(lag) @ space.output for lag in elapsed]
    variance = values[0]
    # Rounding: one unit for each of the products and of the terms that are added up.
    rounding = 1e-15 * (10 + len(space.output)) * variance
    assert np.abs(computed - values).max() <= space.error + rounding
    assert space.error <= tolerance * variance
    if kernel in EXACT:
        assert space.error == 0.0


@pytest.mark.parametrize("kernel", [*EXACT, *CUT], ids=repr)
def test_state_transitions_compose_and_do_not_expand(kernel: Kernel) -> None:
    """A(a + b) = A(b)A(a); ‖A‖ ≤ 1, so that nothing grows over time."""
    space = kernel.state_space(1e-6)
    for a, b in ((0.4, 1.1), (3.0, 17.5)):
        together = space.transition(a + b)
        np.testing.assert_allclose(
            space.transition(b) @ space.transition(a), together, atol=1e-12
        )
        assert (
            space.remaining_share(a + b)
            <= min(space.remaining_share(a), space.remaining_share(b)) + 1e-12
            <= 1.0 + 2e-12
        )


def test_number_of_terms_follows_the_tolerance() -> None:
    """Σ_j q_j = 1; with c = 1: q = 0.466, 0.416, 0.100, 0.0163, 0.0020, 0.0002, …"""
    daily = Periodic(period=24.0, lengthscale=1.0)
    sizes = [
        len(daily.state_space(tolerance).output) for tolerance in (0.5, 0.1, 1e-2, 1e-3)
    ]
    assert sizes == [3, 5, 7, 9]
    assert daily.state_space(1e-3).error == pytest.approx(2.2e-4, rel=0.05)


@pytest.mark.parametrize(
    "kernel",
    [
        SquaredExponential(),
        Matern(nu=2.5),
        Matern(nu=0.5, lengthscale=(1.0, 2.0)),
        Periodic(period=(1.0, 2.0)),
        Temporal() + SquaredExponential(),
        Temporal() * Matern(nu=2.5),
        2.0 * SquaredExponential(),
    ],
    ids=repr,
)
def test_others_are_refused(kernel: Kernel) -> None:
    with pytest.raises(
        InputError, match="cannot be followed through time; use Temporal"
    ):
        kernel.state_space()
