"""Draws from a prior, and the one root that truth and learners share."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from superarm.core import Arms, Floats, Offer
from superarm.errors import InputError
from superarm.kernels import Matern, PriorRoot, SquaredExponential, drawing, prior_root
from superarm.posteriors import FiniteGP
from superarm.problems import Navigation
from superarm.streams import stream

ARMS = np.random.default_rng(2).random((41, 3))
NOISE = 0.05


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the priors that were factorised, one for each."""
    sizes: list[int] = []
    make = PriorRoot.__init__

    def counted(self: Any, kernel: Any, arms: Floats) -> None:
        sizes.append(len(arms))
        make(self, kernel, arms)

    monkeypatch.setattr(PriorRoot, "__init__", counted)
    monkeypatch.setattr(drawing, "_known", [])
    return sizes


def drawn(kernel: Any, count: int = 40) -> Floats:
    gp = FiniteGP(kernel, ARMS[:count], NOISE, form="visited")
    gp.observe(np.arange(5), np.ones(5))
    return gp.belief(Offer(step=1, arms=Arms.numbered(gp.arms))).sample(np.random.default_rng(3))


def test_the_root_is_the_lower_factor() -> None:
    kernel = Matern(nu=1.5)
    root, lower = prior_root(kernel, ARMS, "…"), np.linalg.cholesky(kernel(ARMS))
    np.testing.assert_allclose(root.times(np.eye(41)), lower.T, atol=1e-12)
    normals = np.random.default_rng(0).standard_normal((1, 41))
    np.testing.assert_allclose(root.times(normals)[0], lower @ normals[0], atol=1e-12)


def test_a_singular_prior_is_drawn_from_with_its_rank_cut() -> None:
    twice = np.vstack([ARMS, ARMS])
    normals = np.random.default_rng(0).standard_normal((2, 82))
    draws = prior_root(SquaredExponential(), twice, "…").times(normals)
    np.testing.assert_allclose(draws[:, :41], draws[:, 41:], atol=1e-6)


def test_too_many_arms_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "LARGEST_DRAW", 10)
    with pytest.raises(InputError, match=r"up to 10 arms: draw every arm from its own mean"):
        drawn(Matern(nu=2.5))
    assert drawn(Matern(nu=2.5), 10).shape == (10,)
    problem = Navigation(seed=0, horizon=5, edges=200)
    with pytest.raises(InputError, match=r"up to 10 arms: use a smaller network"):
        _ = problem.energies


def test_posteriors_on_the_same_prior_share_its_root(made: list[int]) -> None:
    kernel = Matern(nu=2.5)
    first = drawn(kernel)  # that posterior is gone now
    second = drawn(kernel)
    assert made == [40]
    np.testing.assert_array_equal(first, second)
    alone = drawn(Matern(nu=2.5))  # an equal kernel, another object
    assert made == [40, 40]
    np.testing.assert_array_equal(first, alone)


def test_two_roots_are_kept_and_no_more(made: list[int]) -> None:
    kernel = Matern(nu=2.5)
    for count in (40, 41, 40, 39, 40, 41):
        drawn(kernel, count)
    assert made == [40, 41, 39, 41]
    assert len(drawing._known) == 2


def test_other_arms_of_the_same_number_have_a_root_of_their_own(made: list[int]) -> None:
    kernel = Matern(nu=2.5)
    for arms in (ARMS, ARMS[::-1]):
        root = prior_root(kernel, arms, "…").times(np.eye(41)).T
        np.testing.assert_allclose(root, np.linalg.cholesky(kernel(arms)), atol=1e-12)
    assert made == [41, 41]


def test_a_kernel_that_may_change_is_not_remembered(made: list[int], sk: Any) -> None:
    own = sk.RBF(0.5)
    one = drawn(own)
    own.length_scale = 5.0
    assert not np.array_equal(one, drawn(own))
    assert made == [40, 40]


def test_a_root_goes_with_its_kernel(made: list[int]) -> None:
    kernel = Matern(nu=2.5)
    drawn(kernel)
    assert len(drawing._known) == 1
    del kernel
    gc.collect()
    assert not drawing._known
    assert made == [40]


def test_truth_and_learner_share_one_root(made: list[int]) -> None:
    """Every seed of an experiment, and every posterior on its roads, draw by the same n² numbers."""
    for seed in (0, 1):
        problem = Navigation(seed=seed, horizon=5, edges=200)
        energies = problem.energies
        model = problem.model
        gp = FiniteGP(model.kernel, model.arms, model.noise_variance, model.mean, form="visited")
        gp.sample([0, 1], np.random.default_rng(0))
        n = len(energies)
        assert made == [n]
        lower = np.linalg.cholesky(model.kernel(model.arms))
        expected = lower @ stream(seed, "truth", 0).standard_normal(n) + model.energies
        np.testing.assert_allclose(energies, expected, rtol=1e-10)


def test_a_model_that_is_wrong_has_a_root_of_its_own(made: list[int]) -> None:
    problem = Navigation(seed=0, horizon=5, edges=200, model_lengthscale=2.0)
    model = problem.model
    for _ in range(2):
        _ = problem.energies
        gp = FiniteGP(model.kernel, model.arms, model.noise_variance, model.mean, form="visited")
        gp.sample([0, 1], np.random.default_rng(0))
        problem = Navigation(seed=1, horizon=5, edges=200, model_lengthscale=2.0)
    assert made == [len(gp.arms)] * 2
