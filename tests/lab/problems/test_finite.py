"""A fixed arm set, and the linear algebra behind its truths."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from superarm.core import Arms, Best, Decision, Direction
from superarm.core.errors import InputError, ShapeError
from superarm.core.streams import stream
from superarm.kernels import SquaredExponential
from superarm.lab.problems import FiniteProblem, gp_function, landscape
from superarm.lab.problems.finite import gaussian_draw, hilbert_norm, representer
from superarm.models import Model
from superarm.oracles import TopK


def build(
    truth: Any, k: int = 1, direction: Direction = "maximize", noise_std: float = 0.1
) -> FiniteProblem:
    arms = Arms.numbered(np.arange(4.0)[:, None])
    model = Model(
        kernel=SquaredExponential(),
        noise_variance=0.01,
        oracle=TopK(k=k),
        horizon=10,
        arms=arms.features,
        direction=direction,
    )
    return FiniteProblem(arms=arms, truth=truth, noise_std=noise_std, model=model)


def test_values_add_up() -> None:
    problem = build([1.0, 4.0, 2.0, 3.0], k=2)
    offer = problem.offer(1)
    assert problem.best(offer) == Best(7.0)
    for positions in ([0, 2], [3]):
        decision = Decision(step=1, action=None, positions=np.array(positions))
        assert problem.value(offer, decision) == 3.0


def test_rewards_are_the_truth_plus_noise() -> None:
    problem = build([1.0, 4.0, 2.0, 3.0])
    noise = np.array([0.5, 0.25, -0.5, 2.0])
    decision = Decision(step=1, action=None, positions=np.array([3, 0]))
    assert problem.feedback(problem.offer(1), decision, noise).rewards.tolist() == [
        5.0,
        1.5,
    ]
    assert problem.table(noise[None, :]).tolist() == [[1.5, 4.25, 1.5, 5.0]]
    # A table shows no α-regret, which a known optimum asks for.
    assert replace(problem, optimum=4.0).table(noise[None, :]) is None
    assert gp_function(seed=0, horizon=1).model.mean == 0.0


def test_costs_are_minimised() -> None:
    problem = build([1.0, 4.0, -2.0, 3.0], k=2, direction="minimize")
    assert problem.direction == "minimize"
    assert problem.best(problem.offer(1)) == Best(-1.0)


def test_the_same_arms_object_in_every_round() -> None:
    problem = build(np.zeros(4))
    assert problem.offer(1).arms is problem.offer(2).arms


def test_the_truth_cannot_be_changed_from_outside() -> None:
    truth = np.arange(4.0)
    problem = build(truth)
    truth[0] = 99.0
    assert problem.best(problem.offer(1)) == Best(3.0)
    with pytest.raises(ValueError, match="read-only"):
        problem.means(problem.offer(1))[0] = 1.0


def test_bad_input() -> None:
    with pytest.raises(ShapeError, match="truth has 3 entries, but 4"):
        build([1.0, 2.0, 3.0])
    with pytest.raises(InputError, match=r"truth\[1\] is nan"):
        build([1.0, np.nan, 3.0, 4.0])
    for noise_std in (-1.0, np.nan, np.inf):
        with pytest.raises(InputError, match="noise_std must be"):
            build(np.zeros(4), noise_std=noise_std)


def test_draws_have_the_kernel_as_covariance() -> None:
    """Every entry within 5 standard errors √((K_ii K_jj + K_ij²)/N)."""
    K = SquaredExponential(lengthscale=0.2)(np.linspace(0.0, 1.0, 6)[:, None])
    rng = np.random.default_rng(0)
    draws = np.array([gaussian_draw(K, rng) for _ in range(4000)])
    error = np.sqrt((1.0 + K**2) / len(draws))
    assert (np.abs(draws.T @ draws / len(draws) - K) < 5.0 * error).all()


def test_draws_from_a_singular_matrix() -> None:
    points = np.repeat(np.linspace(0.0, 1.0, 50), 3)[:, None]  # every point three times
    K = SquaredExponential(lengthscale=0.2)(points)
    draw = gaussian_draw(K, np.random.default_rng(0))
    assert np.isfinite(draw).all()
    np.testing.assert_allclose(draw[::3], draw[1::3], atol=1e-6)


def test_draws_barely_move_with_the_last_bits_of_the_matrix() -> None:
    """So another LAPACK gives the same functions: no free signs of eigenvectors."""
    K = SquaredExponential(lengthscale=0.2)(np.random.default_rng(1).random((100, 1)))
    bits = np.random.default_rng(2).uniform(-1e-16, 1e-16, K.shape)
    plain = gaussian_draw(K, np.random.default_rng(0))
    moved = gaussian_draw(K + bits + bits.T, np.random.default_rng(0))
    np.testing.assert_allclose(plain, moved, atol=1e-6)


def test_norms_by_hand() -> None:
    K = np.array([[2.0, 1.0], [1.0, 3.0]])
    values = np.array([1.0, -1.0])
    alpha = representer(K, 0.5, values)
    np.testing.assert_allclose((K + 0.5 * np.eye(2)) @ alpha, values)
    np.testing.assert_allclose(hilbert_norm(K, alpha), np.sqrt(alpha @ K @ alpha))
    several = representer(K, 0.5, np.column_stack([values, 2.0 * values]))
    np.testing.assert_allclose(
        hilbert_norm(K, several), hilbert_norm(K, alpha) * np.array([1.0, 2.0])
    )


def test_a_landscape_is_a_sum_of_bumps() -> None:
    """Drawn in the order centres, widths, signs, sizes; scaled to mean 0 and standard deviation 1."""
    rng = stream(6, "truth", 0)
    centres, widths = rng.uniform(0.05, 0.95, (3, 2)), rng.uniform(0.08, 0.22, 3)
    signs = [-0.6 if draw < 0.3 else 1.0 for draw in rng.random(3)]
    sizes = rng.uniform(0.5, 1.0, 3)
    heights = np.array(
        [
            sum(
                signs[i]
                * sizes[i]
                * np.exp(-((x - a) ** 2 + (y - b) ** 2) / (2.0 * widths[i] ** 2))
                for i, (a, b) in enumerate(centres)
            )
            for y in np.linspace(0.0, 1.0, 5)
            for x in np.linspace(0.0, 1.0, 5)
        ]
    )
    problem = landscape(seed=6, horizon=9, side=5, hills=3)
    np.testing.assert_allclose(
        problem.truth, (heights - heights.mean()) / heights.std(), rtol=1e-9
    )
    assert problem.arms.features[1].tolist() == [0.25, 0.0]
