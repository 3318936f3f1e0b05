"""A GPyTorch or BoTorch model as posterior: bring your own kernel, likelihood and training.

Three kinds of model, told apart by their class:

=======================  ==============================================================
``gpytorch`` ExactGP     observations become its training data; hyper-parameters stay
                         unless a function ``refit(model, X, y)`` is given
``botorch`` SingleTask…  the same, in the user's units: its input and outcome transforms
                         are applied as they were fitted
ApproximateGP and other  how they learn is the user's to say: ``update(model, X, y)``
BoTorch models           gets all data so far, as float64 tensors
=======================  ==============================================================

Predictions are made in float64 with GPyTorch's approximations (conjugate gradients, Lanczos) off.
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
from .rows import Observed, ObservedData, RowPosterior, information_in
from .variances import standard_deviation

Learner = Callable[[Any, Any, Any], object]
"""``f(model, X, y)`` changes the model in place; X (N, d) and y (N,) are float64 tensors."""

_BLOCK = (
    1024  # arms asked about at a time, because GPyTorch forms their joint covariance
)
_LARGEST_CHOLESKY = 1 << 30
_PARAMETER = "parameter:"


class TorchPosterior(RowPosterior):
    """A GPyTorch or BoTorch model with one output and Gaussian noise.

    The model is copied, in float64; the copy is ``.model``. Training data that it holds count as
    observed. ``noise_variance`` is that of an observation without its own; leave it out where the
    likelihood (the model's, or for an ApproximateGP the one given) knows it. Noise that differs
    from observation to observation needs a ``FixedNoiseGaussianLikelihood``.

    ``refit(model, X, y)`` may train the hyper-parameters of an exact model after each observation;
    ``update(model, X, y)`` is how any other model learns. Both change a copy, which replaces the model
    only if they succeed. It has no spec, and :meth:`restored` needs one made with the same model.
    """

    kind = "torch-model"

    def __init__(
        self,
        model: Any,
        *,
        likelihood: Any = None,
        noise_variance: float | None = None,
        refit: Learner | None = None,
        update: Learner | None = None,
    ) -> None:
        gpytorch = require_extra("gpytorch", "torch")
        self._exact = isinstance(model, gpytorch.models.ExactGP)
        known = sys.modules.get(
            "botorch.models.model"
        )  # whoever made one has imported BoTorch
        self._botorch = known is not None and isinstance(model, known.Model)
        if not (
            self._exact
            or self._botorch
            or isinstance(model, gpytorch.models.ApproximateGP)
        ):
            advice = (
                "it must be a GPyTorch ExactGP or ApproximateGP, or a BoTorch model"
            )
            raise InputError(f"model is a {type(model).__name__}; {advice}")
        if self._exact and (likelihood is not None or update is not None):
            raise InputError(
                "an exact model has its own likelihood and learns by its training data: leave out "
                "likelihood and update (refit=… trains its hyper-parameters)"
            )
        if not self._exact and refit is not None:
            raise InputError(
                "refit is for exact models; say how this one learns: update=…"
            )
        self.model = _copied(model)
        own = getattr(self.model, "likelihood", None)
        self.likelihood: Any = own if likelihood is None else likelihood
        self._fixed = isinstance(
            self.likelihood, gpytorch.likelihoods.FixedNoiseGaussianLikelihood
        )
        self._given_noise = noise_variance
        super().__init__(noise_variance=self._own_noise())  # which checks it
        self.exchangeable = self._exact and refit is None
        self._refit, self._update = refit, update
        initial = self._initial_data()
        if self._exact:
            self._load(self.model, initial)
        if len(initial.rewards):
            self._data.append(*initial)
            self.count = len(self._data)
            with self._settings():
                prior = _dense(self._distribution(initial.arms, prior=True))
            self.information_gain = information_in(prior, initial.noise)

    # --- the model -------------------------------------------------------------------------

    @contextmanager
    def _settings(self) -> Iterator[None]:
        torch, settings = (
            require_extra("torch", "torch"),
            require_extra("gpytorch", "torch").settings,
        )
        with (
            torch.no_grad(),
            settings.fast_computations(
                covar_root_decomposition=False, log_prob=False, solves=False
            ),
            settings.max_cholesky_size(_LARGEST_CHOLESKY),
            settings.fast_pred_var(False),
            settings.debug(
                False
            ),  # it warns of questions about the training data, which are usual
        ):
            yield

    def _distribution(self, rows: Floats, *, prior: bool = False) -> Any:
        """The joint normal distribution of the latent rewards; inside :meth:`_settings`."""
        gpytorch = require_extra("gpytorch", "torch")
        X = _tensor(rows)
        with gpytorch.settings.prior_mode(prior):
            if not self._botorch:
                self.model.eval()
                found = self.model(X)
            else:
                answer, known = (
                    self.model.posterior(X),
                    require_extra("botorch.posteriors", "torch"),
                )
                if not isinstance(answer, known.GPyTorchPosterior):
                    raise InputError(
                        f"the model's posterior is a {type(answer).__name__}, which is not Gaussian: "
                        "leave out the outcome transform, or use one that is affine (Standardize)"
                    )
                found = answer.distribution
        normal = isinstance(found, gpytorch.distributions.MultivariateNormal)
        if not normal or tuple(found.mean.shape) != (len(rows),):
            raise InputError(
                f"for {len(rows)} arms the model predicts {type(found).__name__} with mean of shape "
                f"{tuple(found.mean.shape)}; a posterior needs one normal output, without a batch"
            )
        return found

    def _transform(self, model: Any) -> Any:
        return getattr(model, "outcome_transform", None) if self._botorch else None

    def _own_noise(self) -> float:
        """Noise variance of an observation without its own, in the user's units."""
        if self._given_noise is not None:
            return self._given_noise
        gpytorch = require_extra("gpytorch", "torch")
        if self._fixed or not isinstance(
            self.likelihood, gpytorch.likelihoods.GaussianLikelihood
        ):
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
        """The user's variance of one unit of variance in the model."""
        transform = self._transform(model)
        if transform is None:
            return 1.0
        one = _tensor(np.ones((1, 1)))
        try:
            _, variance = transform.untransform(0.0 * one, one)
        except NotImplementedError:
            told = f"the outcome transform {type(transform).__name__} does not carry a variance over"
            raise InputError(
                f"{told}; use one that is affine (Standardize), or none"
            ) from None
        return float(variance.detach().reshape(()))

    def _initial_data(self) -> Observed:
        inputs = self.model.train_inputs if self._exact else None
        if not inputs:
            return Observed(np.empty((0, 0)), np.empty(0), np.empty(0))
        targets = self.model.train_targets
        if len(inputs) != 1 or inputs[0].ndim != 2 or targets.ndim != 1:
            raise InputError(
                f"the model's training targets have shape {tuple(targets.shape)}; a posterior needs "
                "one input tensor (N, d) and one target per row: one output, no batch"
            )
        if self._fixed:
            noise = self.likelihood.noise_covar.noise * self._unit(self.model)
            if self.likelihood.second_noise_covar is not None:
                raise InputError(
                    "a likelihood with learn_additional_noise is not supported"
                )
        else:
            noise = targets.new_full(targets.shape, self.noise_variance)
        transform = self._transform(self.model)
        if transform is not None:
            targets = transform.untransform(targets.unsqueeze(-1))[0].squeeze(-1)
        return Observed(_array(inputs[0]), _array(targets), _array(noise))

    def _load(self, model: Any, data: Observed) -> None:
        """Make ``data`` the training data of an exact model."""
        model.train()  # drops what was computed before; BoTorch: back to inputs as they were given
        transform = self._transform(model)
        targets, noise = _tensor(data.rewards), _tensor(data.noise)
        if transform is not None:
            transform.eval()  # as it was fitted: new rewards must not change old ones
            targets = transform(targets.unsqueeze(-1))[0].squeeze(-1)
            noise = noise / self._unit(model)
        if len(data.rewards):
            model.set_train_data(
                inputs=_tensor(data.arms), targets=targets.detach(), strict=False
            )
        else:
            model.train_inputs, model.train_targets = None, None
        if self._fixed:
            model.likelihood.noise_covar.noise = noise
        model.eval()

    # --- hooks -----------------------------------------------------------------------------

    def _moments(self, keys: Floats, *, prior: bool = False) -> tuple[Floats, Floats]:
        mean, variance = np.empty(len(keys)), np.empty(len(keys))
        with self._settings():
            for start in range(0, len(keys), _BLOCK):
                block = slice(start, start + _BLOCK)
                found = self._distribution(keys[block], prior=prior)
                mean[block] = _array(found.mean)
                # Its own ``variance`` would raise what is small; rounding is cut off elsewhere.
                variance[block] = _array(
                    found.lazy_covariance_matrix.diagonal(dim1=-1, dim2=-2)
                )
        return mean, variance

    def _covariance(self, keys: Floats, at: Ints | None = None) -> Floats:
        if not len(keys):
            return np.empty((0, 0))
        if at is None:
            with self._settings():
                return _dense(self._distribution(keys))
        cross, k = np.empty((len(at), len(keys))), len(at)
        for start in range(0, len(keys), _BLOCK):
            block = slice(start, start + _BLOCK)
            cross[:, block] = self._covariance(np.vstack([keys[at], keys[block]]))[
                :k, k:
            ]
        return cross

    def _prior_scale(self, keys: Floats) -> float:
        return float(np.max(self._moments(keys, prior=self._exact)[1], initial=0.0))

    def _absorb(
        self, keys: Floats, rewards: Floats, noise: Floats, rng: Rng | None
    ) -> float:
        if not self._fixed and not np.allclose(
            noise, self.noise_variance, rtol=1e-9, atol=0.0
        ):
            raise InputError(
                f"the model's noise variance is {self.noise_variance:g} for every observation; noise "
                "that differs needs an exact model with FixedNoiseGaussianLikelihood"
            )
        if not self._exact and self._update is None:
            advice = "pass update=…, a function update(model, X, y) that trains it on all data so far"
            raise InputError(
                f"a {type(self.model).__name__} does not learn by itself; {advice}"
            )
        if np.abs(keys).max(initial=0.0) > LARGEST:
            raise InputError(
                f"arms hold {np.abs(keys).max():g}; squares of features must fit a float"
            )
        information = information_in(self._covariance(keys), noise)
        old = self.observed
        data = Observed(keys, rewards, noise).after(old)
        learner = self._refit if self._exact else self._update
        before = self.model, self.likelihood, self.noise_variance, self.noise_std
        try:
            if learner is None:
                self._load(self.model, data)
            else:
                trial = _copied(self.model)
                if self._exact:
                    self._load(trial, data)
                learner(trial, _tensor(data.arms), _tensor(data.rewards))
                if self._exact:
                    self._load(trial, data)
                self._adopt(trial)
            self._check_answers(data.arms[-len(keys) - 1 :])
        except BaseException:
            self.model, self.likelihood, self.noise_variance, self.noise_std = before
            if learner is None:
                self._load(self.model, old)
            raise
        self._data.append(keys, rewards, noise)
        return information

    def _check_answers(self, keys: Floats) -> None:
        """Refuse an observation after which the model could not predict any more."""
        try:
            mean, variance = self._moments(keys)
        except (
            RuntimeError
        ) as error:  # what torch raises where a matrix cannot be factorised
            raise NotPositiveDefiniteError(
                f"the model cannot predict after this observation ({error}); its noise may be too "
                "small for repeated arms, or arms and rewards too large. Nothing was learned"
            ) from error
        standard_deviation(variance, lambda: self._prior_scale(keys))
        require_finite(mean, "after this observation the model's mean")

    def _adopt(self, model: Any) -> None:
        """Take a trained model in the place of the old one, with the noise that it has learned."""
        if self.likelihood is getattr(self.model, "likelihood", None):
            self.likelihood = getattr(model, "likelihood", None)
        self.model = model.eval()
        self.noise_variance = as_scale(self._own_noise(), "noise_variance")
        self.noise_std = float(np.sqrt(self.noise_variance))

    # --- state -----------------------------------------------------------------------------

    def parameters(self) -> Mapping[str, Any]:
        given = {
            "likelihood": None if self._exact else self.likelihood,
            "model": self.model,
        }
        learners = {"refit": self._refit, "update": self._update}
        return {**given, "noise_variance": self._given_noise, **learners}

    def _memory(self) -> Memory:
        held = self.model.state_dict().items()
        parameters = {
            f"{_PARAMETER}{name}": value.detach().cpu().numpy() for name, value in held
        }
        scalars = {
            "model": type(self.model).__name__,
            "noise_variance": self.noise_variance,
        }
        return Memory({**super()._memory().arrays, **parameters}, scalars)

    def _like(self, **changes: Any) -> Self:
        if changes:
            return super()._like(**changes)
        again = object.__new__(type(self))
        again.__dict__.update(vars(self))
        again._lock, again._data, again._kept = ReadWriteLock(), ObservedData(), {}
        again.model = _copied(self.model).eval()
        if self.likelihood is getattr(self.model, "likelihood", None):
            again.likelihood = getattr(again.model, "likelihood", None)
        return again

    def _constant(self) -> Iterable[object]:
        return (self._refit, self._update)  # the model itself learns

    def _remember(self, state: State) -> None:
        kind, own = state.scalar("model"), type(self.model).__name__
        if kind != own:
            raise StateError(f"this state is of a {kind}, but the model is a {own}")
        self._data = (
            ObservedData()
        )  # the state holds what the model was trained on, too
        super()._remember(state)
        torch, model = require_extra("torch", "torch"), _copied(self.model)
        held = {
            name: each
            for name, each in state.arrays.items()
            if name.startswith(_PARAMETER)
        }
        try:
            given = {
                name.removeprefix(_PARAMETER): torch.tensor(each)
                for name, each in held.items()
            }
            model.load_state_dict(given)
        except RuntimeError as error:
            raise StateError(f"this state does not fit the model: {error}") from error
        if self._exact:
            self._load(model, self.observed)
        self._adopt(model)


# --- between numpy and torch -------------------------------------------------------------


def _copied(model: Any) -> Any:
    """A copy in float64 and in training mode, without what was computed for predictions."""
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
    return np.array(tensor.detach().cpu().double().numpy(), dtype=np.float64)


def _dense(distribution: Any) -> Floats:
    covariance = _array(distribution.covariance_matrix)
    return 0.5 * (covariance + covariance.T)
