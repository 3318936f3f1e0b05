"""The same Gaussian process in other libraries, each in the fastest exact way found.

Every peer has the same squared exponential (or Matérn) kernel, fixed hyper-parameters, double
precision and one thread. The peers on torch take Cholesky factors at every size (no conjugate
gradients, no Lanczos), without gradients and without checks of arguments. Of GPyTorch's other
settings, those that proved fastest at N = 1250 are on: ``memory_efficient`` for a rebuild,
``fast_pred_var`` for conditioning. Its noise is a ``FixedNoiseGaussianLikelihood``, because a
``GaussianLikelihood`` stores its lower bound in single precision and is off by 2e-10.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from superarm.core import Floats, State
from superarm.kernels import Kernel, Matern, SquaredExponential

GPFLOW_PYTHON = "SUPERARM_GPFLOW_PYTHON"
"""Names the interpreter of an environment with GPflow, which cannot be installed beside the others."""
GPFLOW_JITTER = 1e-6
"""GPflow's own default."""
_ALWAYS_CHOLESKY = 1_000_000  # points up to which GPyTorch takes Cholesky factors


class Moments(NamedTuple):
    """Mean and standard deviation of every arm on offer, (m,) each."""

    mean: Floats
    std: Floats

    def difference(self, other: Moments) -> float:
        """The largest difference of any entry; NaN counts as infinite.

        Args:
            other: Of the same arms.
        """
        mean_difference = np.max(np.abs(self.mean - other.mean))
        std_difference = np.max(np.abs(self.std - other.std))
        if not np.isfinite(mean_difference) or not np.isfinite(std_difference):
            return float("inf")
        return float(max(mean_difference, std_difference))


class Contender(Protocol):
    """Something that predicts changing arms and learns from a few of them, round after round."""

    name: str

    def start(self, arms: Floats, rewards: Floats) -> None:
        """Learn the first data; not timed.

        Args:
            arms: (N, d).
            rewards: (N,).
        """
        ...

    def round(self, offered: Floats, chosen: Floats, rewards: Floats) -> Moments:
        """Predict all arms on offer, then learn from the chosen ones.

        Args:
            offered: Arms, (m, d).
            chosen: Those of them that are observed, (k, d).
            rewards: Their rewards, (k,).
        """
        ...


class Problem(NamedTuple):
    """What all contenders receive."""

    lengthscale: float
    noise_variance: float


# --- refits: everything anew in every round ----------------------------------------------


class _Refit:
    """Stores the data; subclasses define ``_predict``."""

    name: str

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.arms: Floats
        self.rewards: Floats

    def start(self, arms: Floats, rewards: Floats) -> None:
        self.arms = arms
        self.rewards = rewards

    def round(self, offered: Floats, chosen: Floats, rewards: Floats) -> Moments:
        moments = self._predict(offered)
        self.arms = np.concatenate([self.arms, chosen])
        self.rewards = np.concatenate([self.rewards, rewards])
        return moments

    def _predict(self, offered: Floats) -> Moments:
        raise NotImplementedError


class FreshSolve(_Refit):
    """Textbook Gaussian-process regression: the yardstick of agreement."""

    name = "scipy, fresh solve"

    def _predict(self, offered: Floats) -> Moments:
        from scipy.linalg import cho_factor, solve_triangular
        from scipy.spatial.distance import cdist

        scale = -0.5 / self.problem.lengthscale**2
        K = np.exp(scale * cdist(self.arms, self.arms, "sqeuclidean"))
        K[np.diag_indices_from(K)] += self.problem.noise_variance
        cross = np.exp(scale * cdist(self.arms, offered, "sqeuclidean"))
        L, _ = cho_factor(K, lower=True, overwrite_a=True, check_finite=False)
        W = solve_triangular(L, cross, lower=True, check_finite=False)
        z = solve_triangular(L, self.rewards, lower=True, check_finite=False)
        variance = 1.0 - np.einsum("ij,ij->j", W, W)
        return Moments(z @ W, np.sqrt(np.maximum(variance, 0.0)))


class SklearnRefit(_Refit):
    """``GaussianProcessRegressor(optimizer=None).fit(X, y).predict(arms, return_std=True)``."""

    name = "scikit-learn, refit"

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        from sklearn.gaussian_process.kernels import RBF

        self._kernel = RBF(problem.lengthscale, "fixed")

    def _predict(self, offered: Floats) -> Moments:
        from sklearn.gaussian_process import GaussianProcessRegressor

        model = GaussianProcessRegressor(
            self._kernel,
            alpha=self.problem.noise_variance,
            optimizer=None,
            copy_X_train=False,
        )
        model.fit(self.arms, self.rewards)
        mean, std = model.predict(offered, return_std=True)
        return Moments(mean, std)


class GPyTorchRefit(_Refit):
    """A new ``ExactGP`` on all data in every round."""

    name = "GPyTorch, rebuild"

    def _predict(self, offered: Floats) -> Moments:
        with _exact_torch("memory_efficient"):
            model = _exact_gp(self.arms, self.rewards, self.problem)
            return _moments(model, offered)


# --- increments: what the torch libraries offer for a stream -----------------------------


class _Fantasy:
    """Conditions a model on more data in each round."""

    name: str

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.model: Any = None

    def start(self, arms: Floats, rewards: Floats) -> None:
        self.model = self._build(arms, rewards)

    def round(self, offered: Floats, chosen: Floats, rewards: Floats) -> Moments:
        with _exact_torch("fast_pred_var"):
            moments = self._predict(offered)
            self.model = self._conditioned(_tensor(chosen), _tensor(rewards))
            return moments

    def _build(self, arms: Floats, rewards: Floats) -> Any:
        raise NotImplementedError

    def _predict(self, offered: Floats) -> Moments:
        return _moments(self.model, offered)

    def _conditioned(self, chosen: Any, rewards: Any) -> Any:
        raise NotImplementedError


class GPyTorchFantasy(_Fantasy):
    """``ExactGP.get_fantasy_model``: caches of the old model are extended."""

    name = "GPyTorch, get_fantasy_model"

    def _build(self, arms: Floats, rewards: Floats) -> Any:
        return _exact_gp(arms, rewards, self.problem)

    def _conditioned(self, chosen: Any, rewards: Any) -> Any:
        noise = rewards.new_full(rewards.shape, self.problem.noise_variance)
        return self.model.get_fantasy_model(chosen, rewards, noise=noise)


class BoTorchCondition(_Fantasy):
    """``SingleTaskGP.condition_on_observations``, without standardisation and with a fixed noise."""

    name = "BoTorch, condition_on_observations"

    def _build(self, arms: Floats, rewards: Floats) -> Any:
        import gpytorch
        from botorch.models import SingleTaskGP

        y = _tensor(rewards)[:, None]
        model = SingleTaskGP(
            _tensor(arms),
            y,
            y.new_full(y.shape, self.problem.noise_variance),
            covar_module=_rbf(self.problem),
            mean_module=gpytorch.means.ZeroMean(),
            outcome_transform=None,
        )
        return model.eval()

    def _predict(self, offered: Floats) -> Moments:
        posterior = self.model.posterior(_tensor(offered))
        return Moments(
            posterior.mean.squeeze(-1).numpy(),
            posterior.variance.squeeze(-1).sqrt().numpy(),
        )

    def _conditioned(self, chosen: Any, rewards: Any) -> Any:
        y = rewards[:, None]
        noise = y.new_full(y.shape, self.problem.noise_variance)
        return self.model.condition_on_observations(chosen, y, noise=noise)


def _tensor(values: Floats) -> Any:
    import torch

    return torch.as_tensor(values, dtype=torch.float64)


def _rbf(problem: Problem) -> Any:
    import gpytorch

    kernel = gpytorch.kernels.RBFKernel().double()
    kernel.lengthscale = problem.lengthscale
    return kernel


def _exact_gp(arms: Floats, rewards: Floats, problem: Problem) -> Any:
    import gpytorch

    def forward(self: Any, x: Any) -> Any:
        return gpytorch.distributions.MultivariateNormal(
            self.mean_module(x), self.covar_module(x)
        )

    y = _tensor(rewards)
    noise = y.new_full(y.shape, problem.noise_variance)
    likelihood = gpytorch.likelihoods.FixedNoiseGaussianLikelihood(noise)
    # Defined here, because this module must be importable without gpytorch.
    kind = type("ExactModel", (gpytorch.models.ExactGP,), {"forward": forward})
    model = kind(_tensor(arms), y, likelihood)
    model.mean_module = gpytorch.means.ZeroMean()
    model.covar_module = _rbf(problem)
    return model.eval()


def _moments(model: Any, offered: Floats) -> Moments:
    latent = model(_tensor(offered))
    return Moments(latent.mean.numpy(), latent.variance.sqrt().numpy())


@contextmanager
def _exact_torch(setting: str) -> Iterator[None]:
    """Exact and as fast as possible: Cholesky at every size, no gradients, no checks."""
    import gpytorch
    import torch

    torch.set_num_threads(1)
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(getattr(gpytorch.settings, setting)(True))
        stack.enter_context(gpytorch.settings.max_cholesky_size(_ALWAYS_CHOLESKY))
        stack.enter_context(gpytorch.settings.debug(False))
        yield


def sgpr_moments(
    arms: Floats, rewards: Floats, points: Floats, offered: Floats, noise: float
) -> Moments:
    """GPyTorch's own Titsias posterior of all data with these inducing points.

    Its correction of the diagonal would also change the training rows, which is FITC. Without it the
    variance lacks what the inducing points do not explain, 1 − q(x, x), added here.

    Args:
        arms: All that were observed, (N, d).
        rewards: Their rewards, (N,).
        points: Inducing points, (s, d).
        offered: The arms on offer, (m, d).
        noise: Variance of a reward.
    """
    import gpytorch

    def forward(self: Any, x: Any) -> Any:
        return gpytorch.distributions.MultivariateNormal(
            self.mean_module(x), self.covar_module(x)
        )

    with (
        _exact_torch("memory_efficient"),
        gpytorch.settings.sgpr_diagonal_correction(False),
    ):
        likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
        likelihood.noise = noise
        kind = type("SparseModel", (gpytorch.models.ExactGP,), {"forward": forward})
        model = kind(_tensor(arms), _tensor(rewards), likelihood)
        model.mean_module = gpytorch.means.ZeroMean()
        model.covar_module = gpytorch.kernels.InducingPointKernel(
            _rbf(Problem(lengthscale=1.0, noise_variance=noise)),
            inducing_points=_tensor(points),
            likelihood=likelihood,
        )
        latent = model.double().eval()(_tensor(offered))
        unexplained = 1.0 - model.covar_module(_tensor(offered), diag=True)
        variance = latent.variance + unexplained
        return Moments(latent.mean.numpy(), variance.sqrt().numpy())


class GpflowAnswer(NamedTuple):
    """What GPflow predicts, and its median time."""

    moments: Moments
    seconds: float


def gpflow_moments(
    arms: Floats,
    rewards: Floats,
    points: Floats,
    offered: Floats,
    noise: float,
    repeats: int,
) -> GpflowAnswer:
    """GPflow's Titsias posterior and its median seconds, from an interpreter that has it.

    Args:
        arms: All that were observed, (N, d).
        rewards: Their rewards, (N,).
        points: Inducing points, (s, d).
        offered: The arms on offer, (m, d).
        noise: Variance of a reward.
        repeats: How often it is timed.
    """
    script = Path(__file__).with_name("gpflow_peer.py")
    environment = {
        name: value for name, value in os.environ.items() if name != "PYTHONPATH"
    }
    with tempfile.TemporaryDirectory() as folder:
        question = Path(folder) / "question.npz"
        answer = Path(folder) / "answer.npz"
        np.savez(
            question,
            noise=noise,
            repeats=repeats,
            jitter=GPFLOW_JITTER,
            arms=arms,
            rewards=rewards,
            points=points,
            offered=offered,
        )
        subprocess.run(
            [os.environ[GPFLOW_PYTHON], str(script), str(question), str(answer)],
            check=True,
            stderr=subprocess.DEVNULL,  # tensorflow lists what it does not find
            env=environment,
        )
        with np.load(answer) as arrays:
            moments = Moments(arrays["mean"], arrays["std"])
            return GpflowAnswer(moments, float(arrays["seconds"]))


# --- fixed arms --------------------------------------------------------------------------


class SklearnMerged:
    """scikit-learn on merged data: a point per visited arm, its mean reward, its noise/count.

    Args:
        kernel: Ours.
        arms: Their features, (n, d).
        noise_variance: Of a reward.
    """

    name = "scikit-learn, merged data"

    def __init__(self, kernel: Kernel, arms: Floats, noise_variance: float) -> None:
        from sklearn.gaussian_process.kernels import RBF
        from sklearn.gaussian_process.kernels import Matern as SklearnMatern

        if isinstance(kernel, Matern):
            self._kernel: Any = SklearnMatern(kernel.lengthscale, "fixed", nu=kernel.nu)
        elif isinstance(kernel, SquaredExponential):
            self._kernel = RBF(kernel.lengthscale, "fixed")
        else:
            raise ValueError(f"no scikit-learn kernel is known for {kernel!r}")
        self._arms = arms
        self._noise_variance = noise_variance
        self._counts = np.zeros(len(arms))
        self._sums = np.zeros(len(arms))

    def load(self, state: State) -> None:
        """Take the merged data of one of our posteriors.

        Args:
            state: Its state.
        """
        self._counts = state.arrays["weight"] * self._noise_variance
        self._sums = state.arrays["weighted_rewards"] * self._noise_variance

    def observe(self, arm: int, reward: float) -> None:
        """Merge one reward.

        Args:
            arm: Its arm.
            reward: The reward.
        """
        self._counts[arm] += 1.0
        self._sums[arm] += reward

    def predict(self) -> Moments:
        """Mean and std of all arms."""
        from sklearn.gaussian_process import GaussianProcessRegressor

        visited = np.flatnonzero(self._counts)
        counts = self._counts[visited]
        model = GaussianProcessRegressor(
            self._kernel,
            alpha=self._noise_variance / counts,
            optimizer=None,
            copy_X_train=False,
        )
        model.fit(self._arms[visited], self._sums[visited] / counts)
        mean, std = model.predict(self._arms, return_std=True)
        return Moments(mean, std)

    def fitted(self, state: State) -> Moments:
        """Mean and std of all arms, with the data of one of our posteriors.

        Args:
            state: Its state.
        """
        self.load(state)
        return self.predict()


# --- which of them can run here ----------------------------------------------------------


class _Peer(NamedTuple):
    """A peer, and the module that it needs."""

    module: str
    make: Callable[[Problem], Contender]
    name: str


_STREAMING_PEERS = (
    _Peer("scipy", FreshSolve, FreshSolve.name),
    _Peer("sklearn", SklearnRefit, SklearnRefit.name),
    _Peer("gpytorch", GPyTorchRefit, GPyTorchRefit.name),
    _Peer("gpytorch", GPyTorchFantasy, GPyTorchFantasy.name),
    _Peer("botorch", BoTorchCondition, BoTorchCondition.name),
)


def missing(module: str) -> str | None:
    """Why a peer cannot run; ``None`` if it can.

    Args:
        module: The module that it needs.
    """
    try:
        importlib.import_module(module)
    except ImportError as error:
        return f"{module} is not installed ({error})"
    return None


class StreamingPeers(NamedTuple):
    """Peers that are installed, and a line for each that is not."""

    contenders: list[Contender]
    skipped: list[str]


def streaming_peers(problem: Problem) -> StreamingPeers:
    """Make all peers that are installed.

    Args:
        problem: What all contenders receive.
    """
    contenders: list[Contender] = []
    skipped: list[str] = []
    for peer in _STREAMING_PEERS:
        reason = missing(peer.module)
        if reason is None:
            contenders.append(peer.make(problem))
        else:
            skipped.append(f"{peer.name}: {reason}")
    return StreamingPeers(contenders, skipped)
