"""Exact GPyTorch and BoTorch models as posteriors."""

from __future__ import annotations

from dataclasses import replace
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

from superarm.core import Arms, Feedback, Floats, Offer, Posterior, State
from superarm.core.errors import (
    InputError,
    NotFiniteError,
    NotPositiveDefiniteError,
    ShapeError,
    StateError,
    SuperarmError,
)
from superarm.core.states import state_from_bytes, state_to_bytes
from superarm.kernels import Matern, SquaredExponential
from superarm.oracles import TopK
from superarm.policies import IndexPolicy
from superarm.posteriors import StreamingGP, TorchPosterior
from superarm.rules import UCB, Fixed, Thompson
from superarm.testing import BeliefContract, PosteriorContract

pytestmark = pytest.mark.thorough  # make test does not install torch

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
gpytorch: Any = pytest.importorskip("gpytorch", reason="gpytorch is not installed")


def exact(
    X: Any = None,
    y: Any = None,
    mean: float = 0.3,
    fixed: bool = False,
    noise: Any = None,
) -> Any:
    class Exact(gpytorch.models.ExactGP):  # type: ignore[misc]
        def __init__(self, likelihood: Any) -> None:
            super().__init__(X, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            self.mean_module.initialize(constant=mean)
            self.covar_module = covariance()

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    if fixed:
        own = torch.empty(0, dtype=torch.float64) if noise is None else noise
        return Exact(gpytorch.likelihoods.FixedNoiseGaussianLikelihood(own)).double()
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = NOISE
    return Exact(likelihood).double()


def botorch_model(X: Floats, y: Floats, **options: Any) -> Any:
    models = pytest.importorskip("botorch.models", reason="botorch is not installed")
    model = models.SingleTaskGP(
        torch.tensor(X), torch.tensor(y)[:, None], covar_module=covariance(), **options
    )
    model.mean_module.initialize(constant=0.0)
    return model


# --- the published contract ------------------------------------------------------------------


class TestContract(PosteriorContract):
    tolerance = 1e-7

    def make_posterior(self) -> Posterior:
        return TorchPosterior(exact(fixed=True), noise_variance=NOISE)

    def make_arms(self) -> Arms:
        return Arms.numbered(FEATURES)

    def restore(self, state: State) -> Posterior:
        return TorchPosterior(exact(fixed=True), noise_variance=NOISE).restored(state)


class TestBelief(BeliefContract):
    tolerance = 1e-7

    def make_belief(self) -> Any:
        posterior = TorchPosterior(exact())
        posterior.observe(*data()[:2])
        return posterior.belief(Offer(step=1, arms=Arms.numbered(FEATURES)))


# --- exact models ----------------------------------------------------------------------------


def test_an_exact_model_agrees_with_the_streaming_posterior() -> None:
    rows, rewards, _ = data(30)
    theirs, ours = TorchPosterior(exact()), StreamingGP(KERNEL, NOISE, 0.3)
    assert theirs.noise_variance == pytest.approx(NOISE, rel=1e-6)
    assert theirs.exchangeable
    for part in np.split(np.arange(30), 5):
        for posterior in (theirs, ours):
            posterior.observe(rows[part], rewards[part])
        assert_agree(theirs, ours)
    many = np.random.default_rng(4).random((1500, 2))  # more than one block
    np.testing.assert_allclose(
        theirs.predict(many).mean, ours.predict(many).mean, atol=1e-6
    )


def test_training_data_count_as_observed_and_the_model_is_not_modified() -> None:
    rows, rewards, _ = data(10)
    model = exact(torch.tensor(rows[:6]), torch.tensor(rewards[:6]))
    model.eval()
    model.likelihood.eval()
    theirs, ours = TorchPosterior(model), StreamingGP(KERNEL, NOISE, 0.3)
    ours.observe(rows[:6], rewards[:6])
    assert_agree(theirs, ours)
    for posterior in (theirs, ours):
        posterior.observe(rows[6:], rewards[6:])
    assert_agree(theirs, ours)
    assert len(model.train_targets) == 6
    assert not model.training
    restored = TorchPosterior.from_state(
        theirs.state(), model=model
    )  # counts its training data once
    assert (restored.count, len(restored.observed.rewards)) == (10, 10)
    assert_agree(restored, ours)


def test_noise_of_each_observation() -> None:
    rows, rewards, noise = data()
    theirs = TorchPosterior(
        exact(
            torch.tensor(rows[:3]),
            torch.tensor(rewards[:3]),
            fixed=True,
            noise=torch.tensor(noise[:3]),
        ),
        noise_variance=NOISE,
    )
    ours = StreamingGP(KERNEL, NOISE, 0.3)
    ours.observe(rows[:3], rewards[:3], noise[:3])
    for posterior in (theirs, ours):
        posterior.observe(rows[3:8], rewards[3:8], noise[3:8])
        posterior.observe(rows[8:], rewards[8:])
    assert_agree(theirs, ours)
    with pytest.raises(InputError, match="pass noise_variance"):
        TorchPosterior(exact(fixed=True))
    single = TorchPosterior(exact())
    single.observe(rows[:1], rewards[:1], [single.noise_variance])
    before = sum_up(single)
    with pytest.raises(InputError, match="FixedNoiseGaussianLikelihood"):
        single.observe(rows[:1], rewards[:1], [0.5])
    assert sum_up(single) == before


@pytest.mark.thorough
@pytest.mark.parametrize(
    "rule", [UCB(schedule=Fixed(value=2.0)), Thompson(mode="independent")]
)
def test_a_policy_decides_the_same_with_both(rule: Any) -> None:
    chosen = []
    for posterior in (TorchPosterior(exact()), StreamingGP(KERNEL, NOISE, 0.3)):
        policy = IndexPolicy(posterior=posterior, rule=rule, oracle=TopK(k=2))
        rng = np.random.default_rng(3)
        decisions = []
        for step in range(1, 13):
            features = np.random.default_rng(100 + step).random((20, 2))
            offer = Offer(step=step, arms=Arms.numbered(features))
            decision = policy.decide(offer, rng)
            policy.commit(decision)
            decisions.append(decision.positions.tolist())
            rewards = np.sin(7.0 * features[decision.positions]).sum(axis=1)
            feedback = Feedback(positions=decision.positions, rewards=rewards)
            policy.learn(offer, decision, feedback, rng)
        chosen.append(decisions)
        assert policy.posterior.count == 24
    assert chosen[0] == chosen[1]


def test_joint_samples_have_the_moments_of_the_model() -> None:
    rows, rewards, _ = data()
    posterior = TorchPosterior(exact())
    posterior.observe(rows, rewards)
    drawn = posterior.sample(FEATURES, np.random.default_rng(0), size=20_000)
    mean, cov = posterior.predict(FEATURES, return_cov=True)
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=0.02)
    np.testing.assert_allclose(np.cov(drawn.T), cov, atol=0.02)
    np.testing.assert_array_equal(
        drawn, posterior.sample(FEATURES, np.random.default_rng(0), size=20_000)
    )


def test_refit_trains_a_copy_and_its_noise_is_taken_over() -> None:
    rows, rewards, _ = data()
    seen = []

    def refit(model: Any, X: Any, y: Any) -> None:
        assert X.dtype == y.dtype == torch.float64
        seen.append((tuple(X.shape), tuple(y.shape)))
        model.likelihood.noise = 0.2
        model.covar_module.base_kernel.lengthscale = 0.7
        if len(y) > 10:
            raise RuntimeError("diverged")

    posterior = TorchPosterior(exact(), refit=refit)
    assert not posterior.exchangeable
    posterior.observe(rows[:8], rewards[:8])
    expected = StreamingGP(Matern(nu=2.5, lengthscale=0.7, variance=1.5), 0.2, 0.3)
    expected.observe(rows[:8], rewards[:8])
    np.testing.assert_allclose(
        posterior.predict(FEATURES).mean, expected.predict(FEATURES).mean, atol=1e-6
    )
    np.testing.assert_allclose(
        posterior.predict(FEATURES).std, expected.predict(FEATURES).std, atol=1e-6
    )
    assert posterior.noise_std == pytest.approx(np.sqrt(0.2))
    before = sum_up(posterior)
    with pytest.raises(RuntimeError, match="diverged"):
        posterior.observe(rows[8:], rewards[8:])
    assert sum_up(posterior) == before
    assert seen == [((8, 2), (8,)), ((12, 2), (12,))]
    restored = TorchPosterior(exact(), refit=refit).restored(posterior.state())
    assert sum_up(restored) == before
    np.testing.assert_array_equal(
        restored.predict(FEATURES).mean, posterior.predict(FEATURES).mean
    )


def test_state_restores_with_the_same_model() -> None:
    rows, rewards, _ = data()
    posterior = TorchPosterior(exact())
    empty = posterior.state()
    posterior.observe(rows, rewards)
    state = state_from_bytes(state_to_bytes(posterior.state()))
    restored = posterior.restored(empty)
    assert restored.count == 0
    assert restored.predict(FEATURES).mean.tolist() == [pytest.approx(0.3)] * 8
    restored = restored.restored(state)
    assert sum_up(restored) == sum_up(posterior)
    restored.observe(rows[:1], [5.0])  # the copy learns, the first does not
    assert (posterior.count, restored.count) == (12, 13)
    np.testing.assert_allclose(
        posterior.predict(FEATURES).mean,
        posterior.restored(state).predict(FEATURES).mean,
        atol=1e-12,
    )
    other = replace(state, scalars={**state.scalars, "model": "Other"})
    with pytest.raises(StateError, match="Other"):
        posterior.restored(other)
    fewer = {
        name: value for name, value in state.arrays.items() if "raw_noise" not in name
    }
    with pytest.raises(StateError, match="does not fit"):
        posterior.restored(replace(state, arrays=fewer))


def test_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match="ExactGP or ApproximateGP"):
        TorchPosterior(torch.nn.Linear(1, 1))
    with pytest.raises(InputError, match="own likelihood"):
        TorchPosterior(exact(), likelihood=gpytorch.likelihoods.GaussianLikelihood())
    batch = exact(torch.zeros(2, 3, 1), torch.zeros(2, 3))
    with pytest.raises(InputError, match="no batch"):
        TorchPosterior(batch)
    posterior = TorchPosterior(exact())
    posterior.observe([[0.1, 0.2]], [1.0])
    with pytest.raises(NotFiniteError):
        posterior.observe([[0.1, 0.2]], [np.nan])
    with pytest.raises(ShapeError, match="feature columns"):
        posterior.predict([[0.1]])


@pytest.mark.parametrize("refitted", [False, True])
def test_observations_that_break_the_model_are_rejected_without_side_effects(
    refitted: bool,
) -> None:
    def stretch(model: Any, X: Any, y: Any) -> None:
        model.covar_module.base_kernel.lengthscale = float(y.abs().max())

    posterior = TorchPosterior(
        exact(fixed=True), noise_variance=0.1, refit=stretch if refitted else None
    )
    rows, rewards, noise = data(4)
    posterior.observe(rows, rewards, noise)
    before, answers = sum_up(posterior), posterior.predict(FEATURES)
    singular = np.repeat(FEATURES[:1], 3, axis=0)
    refused: list[Any] = [
        lambda: posterior.observe(1e160 * FEATURES[:1], [1.0]),
        lambda: posterior.observe(FEATURES[:1], [1e300]),
        lambda: posterior.observe(FEATURES[:1], [1.0], [1e300]),
    ]
    for observe in refused:
        with pytest.raises(InputError):
            observe()
        assert sum_up(posterior) == before
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            posterior,
            "_moments",
            lambda keys: (_ for _ in ()).throw(RuntimeError("NaN")),
        )
        with pytest.raises(NotPositiveDefiniteError, match="cannot predict after this"):
            posterior.observe(singular, [1.0, 2.0, 3.0])
    assert sum_up(posterior) == before
    for one, other in zip(posterior.predict(FEATURES), answers, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)
    posterior.observe(singular, [1.0, 2.0, 3.0])
    assert posterior.count == 7


@pytest.mark.filterwarnings("ignore")  # GPyTorch's, of jitter
@pytest.mark.slow
def test_observation_is_learned_or_has_no_side_effects() -> None:
    rng = np.random.default_rng(3)
    learned = refused = 0
    for _ in range(12):
        posterior = TorchPosterior(exact(fixed=True), noise_variance=0.1)
        for _ in range(4):
            rows = FEATURES[rng.integers(0, 3, 3)] * rng.choice([1.0, 1e-90])
            rewards = rng.uniform(-1.0, 1.0, 3) * rng.choice([1.0, 1e-90, 1e99])
            noise = np.full(3, rng.choice([0.1, 1e-14, 1e-90, 1e90]))
            before = sum_up(posterior)
            try:
                posterior.observe(rows, rewards, noise)
            except SuperarmError:
                refused += 1
                assert sum_up(posterior) == before
            else:
                learned += 1
            mean, std = posterior.predict(FEATURES)
            assert std is not None
            assert np.isfinite(mean).all()
            assert np.isfinite(std).all()
    assert learned > 20
    assert refused > 0


def test_float32_models_are_used_in_float64() -> None:
    rows, rewards, _ = data()
    posterior = TorchPosterior(exact().float())
    posterior.observe(rows, rewards)
    expected = StreamingGP(KERNEL, NOISE, 0.3)
    expected.observe(rows, rewards)
    np.testing.assert_allclose(
        posterior.predict(FEATURES).mean, expected.predict(FEATURES).mean, atol=1e-5
    )
    assert next(posterior.model.parameters()).dtype == torch.float64


def test_smooth_kernels_with_repeated_arms() -> None:
    """No conjugate gradients, no Lanczos: the answer is Cholesky's."""
    model = exact()
    model.covar_module = gpytorch.kernels.RBFKernel().double()
    model.covar_module.lengthscale = 0.5
    rng = np.random.default_rng(1)
    rows, rewards = rng.random((120, 2)), rng.standard_normal(120)
    rows[60:] = rows[:60]
    theirs, ours = (
        TorchPosterior(model),
        StreamingGP(SquaredExponential(lengthscale=0.5), NOISE, 0.3),
    )
    for posterior in (theirs, ours):
        posterior.observe(rows, rewards)
    assert_agree(theirs, ours)


# --- BoTorch ---------------------------------------------------------------------------------


def test_a_botorch_model_in_the_users_units() -> None:
    """Standardize and Normalize stay as fitted; the posterior uses the user's units."""
    pytest.importorskip("botorch", reason="botorch is not installed")
    from botorch.models.transforms import Normalize, Standardize

    rows, rewards, _ = data(14)
    rows, rewards = 10.0 * rows + 5.0, 100.0 * rewards + 40.0
    bounds = torch.tensor([[5.0, 5.0], [15.0, 15.0]], dtype=torch.float64)
    model = botorch_model(
        rows[:6],
        rewards[:6],
        likelihood=exact().likelihood,
        outcome_transform=Standardize(m=1),
        input_transform=Normalize(d=2, bounds=bounds),
    )
    posterior = TorchPosterior(model)
    center, spread = rewards[:6].mean(), rewards[:6].std(ddof=1)
    kernel = Matern(nu=2.5, lengthscale=4.0, variance=1.5 * spread**2)
    ours = StreamingGP(kernel, NOISE * spread**2, float(center))
    assert posterior.noise_variance == pytest.approx(NOISE * spread**2)
    ours.observe(rows[:6], rewards[:6])
    queries = 10.0 * FEATURES + 5.0
    assert_agree(posterior, ours, queries, 1e-6 * spread**2)
    for part in (slice(6, 9), slice(9, 14)):
        for learner in (posterior, ours):
            learner.observe(rows[part], rewards[part])
        assert_agree(posterior, ours, queries, 1e-6 * spread**2)
    np.testing.assert_allclose(posterior.observed[0], rows, rtol=1e-12)
    np.testing.assert_allclose(posterior.observed[1], rewards, rtol=1e-12)
    restored = TorchPosterior(model).restored(state_from_bytes(sum_up(posterior)))
    assert_agree(restored, posterior, queries, 1e-9 * spread**2)


def test_a_botorch_model_with_its_own_noise_for_each_observation() -> None:
    rows, rewards, noise = data(9)
    model = botorch_model(
        rows[:4], rewards[:4], train_Yvar=torch.tensor(noise[:4])[:, None]
    )
    posterior = TorchPosterior(model, noise_variance=NOISE)
    spread = rewards[:4].std(ddof=1)  # BoTorch standardises by default
    kernel = Matern(nu=2.5, lengthscale=0.4, variance=1.5 * spread**2)
    ours = StreamingGP(kernel, NOISE, float(rewards[:4].mean()))
    ours.observe(rows[:4], rewards[:4], noise[:4])
    for learner in (posterior, ours):
        learner.observe(rows[4:], rewards[4:], noise[4:])
    assert_agree(posterior, ours)


def test_a_botorch_model_that_is_not_gaussian_is_refused() -> None:
    pytest.importorskip("botorch", reason="botorch is not installed")
    from botorch.models.transforms import Log

    rows, rewards, _ = data(5)
    model = botorch_model(rows, np.exp(rewards), outcome_transform=Log())
    with pytest.raises(InputError, match="affine"):
        TorchPosterior(model)
    two = torch.tensor(np.column_stack([rewards, rewards]))
    from botorch.models import SingleTaskGP

    with pytest.raises(InputError, match="one"):
        TorchPosterior(SingleTaskGP(torch.tensor(rows), two))
