"""Approximate GPyTorch models as posteriors, and GPyTorch's SVGP against ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from torch_samples import (
    FEATURES,
    KERNEL,
    NOISE,
    assert_agree,
    covariance,
    data,
    sum_up,
)

from superarm.core import Floats
from superarm.core.errors import InputError
from superarm.posteriors import SparseVariational, StreamingGP, TorchPosterior

pytestmark = pytest.mark.thorough  # make test does not install torch

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
gpytorch: Any = pytest.importorskip("gpytorch", reason="gpytorch is not installed")


def approximate(Z: Floats, mean: float = 0.0, learn: bool = False) -> Any:
    class Approximate(gpytorch.models.ApproximateGP):  # type: ignore[misc]
        def __init__(self) -> None:
            q = gpytorch.variational.NaturalVariationalDistribution(
                len(Z), mean_init_std=0.0
            )
            strategy = gpytorch.variational.VariationalStrategy(
                self,
                torch.tensor(Z),
                q,
                learn_inducing_locations=learn,
                jitter_val=1e-12,
            )
            super().__init__(strategy)
            self.mean_module = gpytorch.means.ConstantMean()
            self.mean_module.initialize(constant=mean)
            self.covar_module = covariance()

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    return Approximate().double()


def natural_gradients(
    likelihood: Any, steps: int, rate: float
) -> Callable[[Any, Any, Any], None]:
    def update(model: Any, X: Any, y: Any) -> None:
        model.train()
        likelihood.train()
        optimiser = gpytorch.optim.NGD(
            model.variational_parameters(), num_data=len(y), lr=rate
        )
        bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
        for _ in range(steps):
            optimiser.zero_grad()
            loss = -bound(model(X), y)
            loss.backward()
            optimiser.step()
        model.eval()
        likelihood.eval()

    return update


def gaussian(noise: float = NOISE) -> Any:
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = noise
    return likelihood


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 7])
def test_our_svgp_takes_the_steps_of_gpytorchs(steps: int) -> None:
    """The same data, inducing points and full batches: the same q after each round of steps."""
    rows, rewards, _ = data(30)
    likelihood = gaussian()
    theirs = TorchPosterior(
        approximate(np.unique(rows, axis=0)),
        likelihood=likelihood,
        update=natural_gradients(likelihood, steps, 0.1),
    )
    ours = SparseVariational(
        KERNEL, NOISE, steps=steps, natural_rate=0.1, adam_rate=0.0
    )
    queries = np.random.default_rng(2).random((9, 2))
    ours.observe(rows, rewards, rng=np.random.default_rng(0))
    theirs.observe(rows, rewards)
    for one, other in zip(
        ours.predict(queries, return_cov=True),
        theirs.predict(queries, return_cov=True),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, atol=1e-6)
    ours.observe(rows[:1], rewards[:1], rng=np.random.default_rng(0))
    theirs.observe(rows[:1], rewards[:1])
    np.testing.assert_allclose(
        ours.predict(queries).mean, theirs.predict(queries).mean, atol=1e-6
    )
    np.testing.assert_allclose(
        ours.predict(queries).std, theirs.predict(queries).std, atol=1e-6
    )


@pytest.mark.slow
def test_our_moving_points_go_where_gpytorchs_go() -> None:
    """Algorithm 3 as the paper ran it: NGD and torch's Adam together, against ours."""
    rows, rewards, _ = data(40)
    rows = rows + 0.05 * np.random.default_rng(6).standard_normal(
        rows.shape
    )  # every row an arm
    settings: dict[str, Any] = {"inducing": 5, "natural_rate": 0.1}
    still = SparseVariational(KERNEL, NOISE, **settings, adam_rate=0.0)
    still.observe(rows, rewards, rng=np.random.default_rng(0))
    start = still.inducing_points
    ours = SparseVariational(KERNEL, NOISE, **settings, steps=25, adam_rate=0.01)
    ours.observe(rows, rewards, rng=np.random.default_rng(0))

    model, likelihood = approximate(start, learn=True), gaussian()
    X, y = torch.tensor(rows), torch.tensor(rewards)
    points = model.variational_strategy.inducing_points
    natural = gpytorch.optim.NGD(
        model.variational_parameters(), num_data=len(y), lr=0.1
    )
    adam = torch.optim.Adam([points], lr=0.01)
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    for _ in range(25):
        natural.zero_grad()
        adam.zero_grad()
        (-bound(model(X), y)).backward()
        natural.step()
        adam.step()
    assert np.abs(ours.inducing_points - start).max() > 0.1
    np.testing.assert_allclose(ours.inducing_points, points.detach().numpy(), atol=1e-5)
    theirs = TorchPosterior(model, likelihood=likelihood)
    np.testing.assert_allclose(
        ours.predict(FEATURES).mean, theirs.predict(FEATURES).mean, atol=1e-4
    )
    np.testing.assert_allclose(
        ours.predict(FEATURES).std, theirs.predict(FEATURES).std, atol=1e-4
    )


def test_approximate_model_requires_a_learning_rule() -> None:
    rows, rewards, _ = data()
    posterior = TorchPosterior(approximate(FEATURES, mean=0.3), likelihood=gaussian())
    np.testing.assert_allclose(posterior.predict(FEATURES).mean, 0.3, atol=1e-6)
    with pytest.raises(InputError, match="update"):
        posterior.observe(rows, rewards)
    with pytest.raises(InputError, match="noise_variance"):
        TorchPosterior(approximate(FEATURES))
    with pytest.raises(InputError, match="update"):
        TorchPosterior(
            approximate(FEATURES), noise_variance=NOISE, refit=lambda *_: None
        )


@pytest.mark.slow
def test_an_approximate_model_at_rate_one_is_exact_and_survives_its_state() -> None:
    rows, rewards, _ = data(20)
    likelihood = gaussian()
    options = {
        "likelihood": likelihood,
        "update": natural_gradients(likelihood, 1, 1.0),
    }
    posterior = TorchPosterior(approximate(FEATURES, mean=0.3), **options)
    assert not posterior.exchangeable
    ours = StreamingGP(KERNEL, NOISE, 0.3)
    for learner in (posterior, ours):
        learner.observe(rows, rewards)
    assert_agree(posterior, ours, tolerance=1e-5)
    restored = TorchPosterior(approximate(FEATURES, mean=0.3), **options).restored(
        posterior.state()
    )
    assert sum_up(restored) == sum_up(posterior)
    np.testing.assert_array_equal(
        restored.predict(FEATURES).mean, posterior.predict(FEATURES).mean
    )
    drawn = posterior.sample(FEATURES, np.random.default_rng(0), size=3)
    assert np.isfinite(drawn).all()
