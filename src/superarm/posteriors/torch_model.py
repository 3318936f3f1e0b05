"""A GPyTorch or BoTorch model as posterior: bring your own kernel, likelihood and training.

Three kinds of model, distinguished by their class:

=======================  ==============================================================
``gpytorch`` ExactGP     observations become its training data; hyper-parameters stay
                         unless you pass a function ``refit(model, X, y)``
``botorch`` SingleTask…  the same, in your units: its input and outcome transforms are
                         applied as they were fitted
ApproximateGP and other  you define how they learn: ``update(model, X, y)`` is called with
BoTorch models           all data so far, as float64 tensors
=======================  ==============================================================

Predictions are computed in float64 with GPyTorch's approximations (conjugate gradients, Lanczos) off.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import numpy as np

from superarm.core import Floats, Ints, Rng, State
from superarm.core.errors import (
    InputError,
    NotPositiveDefiniteError,
    StateError,
    require_extra,
)
from superarm.core.inputs import LARGEST, as_scale, require_finite
from superarm.core.locks import ReadWriteLock

from .base import Memory
from .observations import ObservationBuffer, Observations
from .rows import RowPosterior, information_in
from .variances import standard_deviation

TrainingFunction = Callable[[Any, Any, Any], object]
"""``f(model, X, y)`` changes the model in place; X (N, d) and y (N,) are float64 tensors."""

# Arms predicted at a time, because GPyTorch computes their joint covariance.
_BLOCK = 1024
_LARGEST_CHOLESKY = 1 << 30
# Prefix of the model's parameters among the arrays of a state.
_PARAMETER = "parameter:"


class TorchPosterior(RowPosterior):
    """A GPyTorch or BoTorch model with one output and Gaussian noise.

    The model is copied, in float64; the copy is ``.model``. Its training data count as observed. Noise
    that differs from observation to observation needs a ``FixedNoiseGaussianLikelihood``.

    ``refit`` and ``update`` change a copy of the model, which replaces it only if they succeed. A
    TorchPosterior has no spec: call :meth:`restored` of one with the same model.

    Args:
        model: A GPyTorch ExactGP or ApproximateGP, or a BoTorch model.
        likelihood: The likelihood of an ApproximateGP; exact models have their own.
        noise_variance: Variance of the noise of an observation without its own; default: that of the
            likelihood, where it has one.
        refit: ``refit(model, X, y)`` may train the hyper-parameters of an exact model after each
            observation.
        update: ``update(model, X, y)`` trains any other model on all data so far.
    """

    kind = "torch-model"

    def __init__(
        self,
        model: Any,
        *,
        likelihood: Any = None,
        noise_variance: float | None = None,
        refit: TrainingFunction | None = None,
        update: TrainingFunction | None = None,
    ) -> None:
        gpytorch = require_extra("gpytorch", "torch")
        self._exact = isinstance(model, gpytorch.models.ExactGP)
        # Whoever created a BoTorch model has imported BoTorch.
        botorch_module = sys.modules.get("botorch.models.model")
        self._botorch = botorch_module is not None and isinstance(
            model, botorch_module.Model
        )
        is_approximate = isinstance(model, gpytorch.models.ApproximateGP)
        if not (self._exact or self._botorch or is_approximate):
            raise InputError(
                "model must be a GPyTorch ExactGP or ApproximateGP, or a BoTorch model, got a "
                f"{type(model).__name__}"
            )
        if self._exact and (likelihood is not None or update is not None):
            raise InputError(
                "an exact model has its own likelihood and learns by its training data: leave out "
                "likelihood and update (refit=… trains its hyper-parameters)"
            )
        if not self._exact and refit is not None:
            raise InputError(
                "refit is for exact models; say how this one learns: update=…"
            )
        self.model = _copy_model(model)
        self.likelihood: Any = likelihood
        if likelihood is None:
            self.likelihood = getattr(self.model, "likelihood", None)
        self._has_fixed_noise = isinstance(
            self.likelihood, gpytorch.likelihoods.FixedNoiseGaussianLikelihood
        )
        self._noise_parameter = noise_variance
        super().__init__(noise_variance=self._default_noise())  # validates it
        self.exchangeable = self._exact and refit is None
        self._refit = refit
        self._update = update
        initial = self._initial_data()
        if self._exact:
            self._load(self.model, initial)
        if len(initial.rewards):
            self._data.append(*initial)
            self.count = len(self._data)
            with self._settings():
                prior = _dense_covariance(self._distribution(initial.arms, prior=True))
            self.information_gain = information_in(prior, initial.noise)

    # --- the model -------------------------------------------------------------------------

    @contextmanager
    def _settings(self) -> Iterator[None]:
        """GPyTorch's settings for exact predictions."""
        torch = require_extra("torch", "torch")
        settings = require_extra("gpytorch", "torch").settings
        exact_computations = settings.fast_computations(
            covar_root_decomposition=False, log_prob=False, solves=False
        )
        with (
            torch.no_grad(),
            exact_computations,
            settings.max_cholesky_size(_LARGEST_CHOLESKY),
            settings.fast_pred_var(False),
            # Debug mode warns of predictions at the training data, which are usual here.
            settings.debug(False),
        ):
            yield

    def _distribution(self, rows: Floats, *, prior: bool = False) -> Any:
        """The joint normal distribution of the latent rewards; call it within :meth:`_settings`."""
        gpytorch = require_extra("gpytorch", "torch")
        X = _tensor(rows)
        with gpytorch.settings.prior_mode(prior):
            if self._botorch:
                distribution = self._botorch_distribution(X)
            else:
                self.model.eval()
                distribution = self.model(X)
        is_normal = isinstance(distribution, gpytorch.distributions.MultivariateNormal)
        if not is_normal or tuple(distribution.mean.shape) != (len(rows),):
            raise InputError(
                f"for {len(rows)} arms the model predicts {type(distribution).__name__} with mean of "
                f"shape {tuple(distribution.mean.shape)}; a posterior needs one normal output, "
                "without a batch"
            )
        return distribution

    def _botorch_distribution(self, X: Any) -> Any:
        """The model's distribution in the user's units."""
        posteriors = require_extra("botorch.posteriors", "torch")
        posterior = self.model.posterior(X)
        if not isinstance(posterior, posteriors.GPyTorchPosterior):
            raise InputError(
                f"the model's posterior is a {type(posterior).__name__}, which is not Gaussian: "
                "leave out the outcome transform, or use one that is affine (Standardize)"
            )
        return posterior.distribution

    def _transform(self, model: Any) -> Any:
        """The outcome transform of a BoTorch model, if it has one."""
        return getattr(model, "outcome_transform", None) if self._botorch else None

    def _default_noise(self) -> float:
        """Noise variance of an observation without its own, in the user's units."""
        if self._noise_parameter is not None:
            return self._noise_parameter
        gpytorch = require_extra("gpytorch", "torch")
        is_gaussian = isinstance(
            self.likelihood, gpytorch.likelihoods.GaussianLikelihood
        )
        if self._has_fixed_noise or not is_gaussian:
            raise InputError(
                f"the likelihood is {type(self.likelihood).__name__}, which does not say how noisy a "
                "new observation is; pass noise_variance=…"
            )
        noise = self.likelihood.noise.detach().double().reshape(-1)
        if len(noise) != 1:
            raise InputError(
                f"the likelihood has {len(noise)} noise variances; one is needed"
            )
        return float(noise[0]) * self._unit(self.model)

    def _unit(self, model: Any) -> float:
        """The variance in the user's units of one unit of variance in the model."""
        transform = self._transform(model)
        if transform is None:
            return 1.0
        one = _tensor(np.ones((1, 1)))
        try:
            _, variance = transform.untransform(0.0 * one, one)
        except NotImplementedError:
            raise InputError(
                f"the outcome transform {type(transform).__name__} does not carry a variance over; "
                "use one that is affine (Standardize), or none"
            ) from None
        return float(variance.detach().reshape(()))

    def _initial_data(self) -> Observations:
        """The model's training data in the user's units."""
        inputs = self.model.train_inputs if self._exact else None
        if not inputs:
            return Observations(np.empty((0, 0)), np.empty(0), np.empty(0))
        targets = self.model.train_targets
        if len(inputs) != 1 or inputs[0].ndim != 2 or targets.ndim != 1:
            raise InputError(
                f"the model's training targets have shape {tuple(targets.shape)}; a posterior needs "
                "one input tensor (N, d) and one target per row: one output, no batch"
            )
        if self._has_fixed_noise:
            noise = self.likelihood.noise_covar.noise * self._unit(self.model)
            if self.likelihood.second_noise_covar is not None:
                raise InputError(
                    "a likelihood with learn_additional_noise is not supported"
                )
        else:
            noise = targets.new_full(targets.shape, self.noise_variance)
        transform = self._transform(self.model)
        if transform is not None:
            columns, _ = transform.untransform(targets.unsqueeze(-1))
            targets = columns.squeeze(-1)
        return Observations(_array(inputs[0]), _array(targets), _array(noise))

    def _load(self, model: Any, data: Observations) -> None:
        """Make ``data`` the training data of an exact model."""
        # Drops what was computed before; BoTorch also restores the untransformed inputs.
        model.train()
        transform = self._transform(model)
        targets = _tensor(data.rewards)
        noise = _tensor(data.noise)
        if transform is not None:
            transform.eval()  # as it was fitted: new rewards must not change old ones
            columns, _ = transform(targets.unsqueeze(-1))
            targets = columns.squeeze(-1)
            noise = noise / self._unit(model)
        if len(data.rewards):
            model.set_train_data(
                inputs=_tensor(data.arms), targets=targets.detach(), strict=False
            )
        else:
            model.train_inputs = None
            model.train_targets = None
        if self._has_fixed_noise:
            model.likelihood.noise_covar.noise = noise
        model.eval()

    # --- hooks -----------------------------------------------------------------------------

    def _moments(self, keys: Floats, *, prior: bool = False) -> tuple[Floats, Floats]:
        count = len(keys)
        mean = np.empty(count)
        variance = np.empty(count)
        with self._settings():
            for start in range(0, count, _BLOCK):
                block = slice(start, start + _BLOCK)
                distribution = self._distribution(keys[block], prior=prior)
                mean[block] = _array(distribution.mean)
                # Not ``distribution.variance``, which raises small values to a lower limit.
                covariance = distribution.lazy_covariance_matrix
                diagonal = covariance.diagonal(dim1=-1, dim2=-2)
                variance[block] = _array(diagonal)
        return mean, variance

    def _covariance(self, keys: Floats, positions: Ints | None = None) -> Floats:
        if not len(keys):
            return np.empty((0, 0))
        if positions is None:
            with self._settings():
                return _dense_covariance(self._distribution(keys))
        chosen = keys[positions]
        k = len(chosen)
        m = len(keys)
        cross = np.empty((k, m))
        for start in range(0, m, _BLOCK):
            block = slice(start, start + _BLOCK)
            joint_keys = np.vstack([chosen, keys[block]])
            joint = self._covariance(joint_keys)
            cross[:, block] = joint[:k, k:]
        return cross

    def _prior_scale(self, keys: Floats) -> float:
        _, variance = self._moments(keys, prior=self._exact)
        return float(np.max(variance, initial=0.0))

    def _absorb(
        self, keys: Floats, rewards: Floats, noise: Floats, rng: Rng | None
    ) -> float:
        self._check_learnable(keys, noise)
        covariance = self._covariance(keys)
        information = information_in(covariance, noise)
        old_data = self.observed
        data = Observations(keys, rewards, noise).after(old_data)
        train = self._refit if self._exact else self._update
        old_model = self.model
        old_likelihood = self.likelihood
        old_noise_variance = self.noise_variance
        old_noise_std = self.noise_std
        try:
            if train is None:
                self._load(self.model, data)
            else:
                self._adopt(self._trained_copy(train, data))
            # The new arms, and one old arm that must remain predictable.
            self._check_predictions(data.arms[-len(keys) - 1 :])
        except BaseException:
            self.model = old_model
            self.likelihood = old_likelihood
            self.noise_variance = old_noise_variance
            self.noise_std = old_noise_std
            if train is None:
                self._load(self.model, old_data)
            raise
        self._data.append(keys, rewards, noise)
        return information

    def _check_learnable(self, keys: Floats, noise: Floats) -> None:
        """Refuse data that the model cannot learn from."""
        has_model_noise = np.allclose(noise, self.noise_variance, rtol=1e-9, atol=0.0)
        if not self._has_fixed_noise and not has_model_noise:
            raise InputError(
                f"the model's noise variance is {self.noise_variance:g} for every observation; noise "
                "that differs needs an exact model with FixedNoiseGaussianLikelihood"
            )
        if not self._exact and self._update is None:
            raise InputError(
                f"a {type(self.model).__name__} does not learn by itself; pass update=…, a function "
                "update(model, X, y) that trains it on all data so far"
            )
        largest = np.abs(keys).max(initial=0.0)
        if largest > LARGEST:
            raise InputError(
                f"arms hold {largest:g}; squares of features must fit a float"
            )

    def _trained_copy(self, train: TrainingFunction, data: Observations) -> Any:
        """A copy of the model after training on ``data``."""
        model = _copy_model(self.model)
        if self._exact:
            self._load(model, data)
        train(model, _tensor(data.arms), _tensor(data.rewards))
        if self._exact:
            # Once more, because the user's function may have changed the training data.
            self._load(model, data)
        return model

    def _check_predictions(self, keys: Floats) -> None:
        """Refuse an observation after which the model cannot predict any more."""
        try:
            mean, variance = self._moments(keys)
        except RuntimeError as error:  # torch: a matrix cannot be factorised
            raise NotPositiveDefiniteError(
                f"the model cannot predict after this observation ({error}); its noise may be too "
                "small for repeated arms, or arms and rewards too large. Nothing was learned"
            ) from error
        standard_deviation(variance, lambda: self._prior_scale(keys))
        require_finite(mean, "after this observation the model's mean")

    def _adopt(self, model: Any) -> None:
        """Replace the model by a trained one, with the noise that it has learned."""
        if self.likelihood is getattr(self.model, "likelihood", None):
            self.likelihood = getattr(model, "likelihood", None)
        self.model = model.eval()
        noise_variance = self._default_noise()
        self.noise_variance = as_scale(noise_variance, "noise_variance")
        self.noise_std = float(np.sqrt(self.noise_variance))

    # --- state -----------------------------------------------------------------------------

    def parameters(self) -> Mapping[str, Any]:
        """The arguments of the constructor, with the model as it is now."""
        return {
            "likelihood": None if self._exact else self.likelihood,
            "model": self.model,
            "noise_variance": self._noise_parameter,
            "refit": self._refit,
            "update": self._update,
        }

    def _memory(self) -> Memory:
        arrays = dict(super()._memory().arrays)
        for name, value in self.model.state_dict().items():
            arrays[f"{_PARAMETER}{name}"] = value.detach().cpu().numpy()
        scalars = {
            "model": type(self.model).__name__,
            "noise_variance": self.noise_variance,
        }
        return Memory(arrays, scalars)

    def _clone(self, **changes: Any) -> Self:
        if changes:
            return super()._clone(**changes)
        # Not through the constructor, which would count the training data as observed.
        other = object.__new__(type(self))
        other.__dict__.update(vars(self))
        other._lock = ReadWriteLock()
        other._data = ObservationBuffer()
        other._cache = {}
        other.model = _copy_model(self.model).eval()
        if self.likelihood is getattr(self.model, "likelihood", None):
            other.likelihood = getattr(other.model, "likelihood", None)
        return other

    def _constant(self) -> Iterable[object]:
        return (self._refit, self._update)  # not the model, which learns

    def _remember(self, state: State) -> None:
        state_class = state.scalar("model")
        model_class = type(self.model).__name__
        if state_class != model_class:
            raise StateError(
                f"this state is of a {state_class}, but the model is a {model_class}"
            )
        # Empty, because the state includes the training data that the model began with.
        self._data = ObservationBuffer()
        super()._remember(state)
        torch = require_extra("torch", "torch")
        model = _copy_model(self.model)
        saved = {
            name.removeprefix(_PARAMETER): values
            for name, values in state.arrays.items()
            if name.startswith(_PARAMETER)
        }
        try:
            tensors = {name: torch.tensor(values) for name, values in saved.items()}
            model.load_state_dict(tensors)
        except RuntimeError as error:
            raise StateError(f"this state does not fit the model: {error}") from error
        if self._exact:
            self._load(model, self.observed)
        self._adopt(model)


# --- between numpy and torch -------------------------------------------------------------


def _copy_model(model: Any) -> Any:
    """A copy in float64 and in training mode, without cached predictions."""
    training = model.training
    model.train()
    try:
        return copy.deepcopy(model).double()
    finally:
        model.train(training)


def _tensor(values: Floats) -> Any:
    torch = require_extra("torch", "torch")
    return torch.tensor(values, dtype=torch.float64)


def _array(tensor: Any) -> Floats:
    values = tensor.detach().cpu().double()
    return np.array(values.numpy(), dtype=np.float64)


def _dense_covariance(distribution: Any) -> Floats:
    """The covariance as an array, exactly symmetric."""
    covariance = _array(distribution.covariance_matrix)
    return 0.5 * (covariance + covariance.T)
