"""Posteriors over all edges of a road network: ours, and what one would use instead.

``FullCovariance`` stores the covariance of all edges and downdates it path by path: exact, n² numbers.
``GPyTorchSvgp`` is Algorithm 3 of Bayesian Analysis of Combinatorial Gaussian Process Bandits (2025):
M inducing points at visited edges, and in every round one natural-gradient step and one Adam step on a
batch, then mean and variance of all edges. It gets every help: the graph kernel between inducing points
and edges is a table computed in advance, the features' kernel is evaluated once for both terms, and
hyper-parameters are fixed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from superarm.core import Arms, Floats, Ints, Offer
from superarm.kernels import GraphMatern, Kernel, Matern
from superarm.posteriors import FiniteGP
from superarm.roads.energy import Vehicle
from superarm.roads.networks import LineGraph

from .peers import Moments

# Standard deviations, as shares of the energies' own.
_PRIOR_SPREAD = 0.25
_NOISE_SPREAD = 0.1
_NATURAL_RATE = 0.1
_ADAM_RATE = 0.01
_LEAST_NOISE = 1e-12
_ALWAYS_CHOLESKY = 1_000_000  # points up to which GPyTorch takes Cholesky factors
_NO_SLOT = -1  # of edges without an inducing point


class Scene(NamedTuple):
    """A road network as an arm set."""

    graph: LineGraph
    arms: Floats  # (n, 4): edge number, then features
    on_graph: GraphMatern
    kernel: Kernel
    variance: float  # of both terms of the kernel together
    mean: Floats  # (n,), of the prior
    noise_variance: float


def scene_on(graph: LineGraph) -> Scene:
    """The prior of the navigation problem: energies of eq. 8, k_G·k_f + k′_f, half and half.

    Args:
        graph: The roads.
    """
    energy = Vehicle().energy(graph.length, graph.speed, graph.rise)
    spread = float(energy.std())
    arms = np.column_stack([np.arange(len(graph)), graph.features])
    on_features = Matern(nu=2.5, columns=(1, 2, 3))
    on_graph = GraphMatern(graph)
    variance = (_PRIOR_SPREAD * spread) ** 2
    half = 0.5 * variance
    return Scene(
        graph=graph,
        arms=arms,
        on_graph=on_graph,
        kernel=half * (on_graph * on_features) + half * on_features,
        variance=variance,
        mean=energy,
        noise_variance=(_NOISE_SPREAD * spread) ** 2,
    )


class Ours:
    """``FiniteGP`` in its visited form, asked as policies ask.

    Args:
        scene: The arm set.
    """

    name = "visited"

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.posterior = FiniteGP(
            scene.kernel, scene.arms, scene.noise_variance, scene.mean, form="visited"
        )
        self.offer = Offer(step=1, arms=Arms.numbered(scene.arms))
        self.rng = np.random.default_rng(2)

    def rewards(self, path: Ints) -> Floats:
        """Draw the rewards of a path, (s,).

        Args:
            path: Its edges, (s,).
        """
        noise_std = np.sqrt(self.scene.noise_variance)
        noise = noise_std * self.rng.standard_normal(len(path))
        rewards: Floats = self.scene.mean[path] + noise
        return rewards

    def round(self, path: Ints, rewards: Floats) -> Moments:
        """Learn a path; mean and std of all edges.

        Args:
            path: Its edges, (s,).
            rewards: Their rewards, (s,).
        """
        self.posterior.observe(path, rewards)
        belief = self.posterior.belief(self.offer)
        return Moments(belief.mean, belief.std)

    def moments(self) -> Moments:
        """Mean and std of all edges."""
        belief = self.posterior.belief(self.offer)
        return Moments(belief.mean, belief.std)


class FullCovariance:
    """P ← P − W Wᵀ in place, one symmetric product (``dsyrk``) a path.

    Args:
        scene: The arm set.
        mean: Of all edges, (n,).
        covariance: P, C-ordered and symmetric, (n, n). It is overwritten.
    """

    name = "full-covariance downdates"

    def __init__(self, scene: Scene, mean: Floats, covariance: Floats) -> None:
        self._mean = mean.copy()
        self._P = covariance
        self._noise = scene.noise_variance

    def round(self, path: Ints, rewards: Floats) -> Moments:
        """Learn a path; mean and std of all edges.

        Args:
            path: Its edges, (s,).
            rewards: Their rewards, (s,).
        """
        from scipy.linalg.blas import dsyrk, dtrsm

        rows = self._rows(path)  # (s, n)
        S = rows[:, path]
        S[np.diag_indices_from(S)] += self._noise
        L = np.linalg.cholesky(S)
        # W = rowsᵀ L⁻ᵀ, (n, s). rows.T is in BLAS's own order, so W replaces it.
        W = dtrsm(1.0, L.T, rows.T, side=1, lower=0, overwrite_b=1)
        z = np.linalg.solve(L, rewards - self._mean[path])
        self._mean += W @ z
        # Half the work of a product: one triangle, which BLAS reads as the upper one of the transpose.
        dsyrk(-1.0, W, beta=1.0, c=self._P.T, trans=0, lower=0, overwrite_c=1)
        return self.moments()

    def _rows(self, path: Ints) -> Floats:
        """Rows of P, of which only the lower triangle is valid, (s, n)."""
        rows = np.empty((len(path), len(self._P)))
        for place, edge in enumerate(path.tolist()):
            rows[place, : edge + 1] = self._P[edge, : edge + 1]
            rows[place, edge + 1 :] = self._P[edge + 1 :, edge]
        return rows

    def moments(self) -> Moments:
        """Mean and std of all edges."""
        variance = np.maximum(np.diagonal(self._P), 0.0)
        return Moments(self._mean.copy(), np.sqrt(variance))


class GPyTorchSvgp:
    """Algorithm 3 (see above) with GPyTorch, whitened, natural gradients of rate 0.1, Adam 0.01.

    Args:
        scene: The arm set.
        inducing: Edges of the inducing points, (M,).
        batch: How many observations a step uses.
        rows: Edges that were observed, (N,).
        rewards: Their rewards, (N,).
        double: Whether to compute in double precision.
    """

    def __init__(
        self,
        scene: Scene,
        inducing: Ints,
        batch: int,
        rows: Ints,
        rewards: Floats,
        *,
        double: bool,
    ) -> None:
        import gpytorch
        import torch

        torch.set_num_threads(1)
        self.name = f"GPyTorch SVGP, float{64 if double else 32}"
        self._kind = torch.float64 if double else torch.float32
        self._batch = batch
        self._rng = np.random.default_rng(0)
        self._rows = rows
        self._rewards = rewards - scene.mean[rows]
        self._prior_mean = scene.mean
        self._arms = self._tensor(scene.arms)
        covariance = self._covariance(scene, inducing)

        class Model(gpytorch.models.ApproximateGP):  # type: ignore[misc]
            def __init__(self, points: Any) -> None:
                distribution = gpytorch.variational.NaturalVariationalDistribution(
                    len(points)
                )
                strategy = gpytorch.variational.VariationalStrategy(
                    self, points, distribution, learn_inducing_locations=True
                )
                super().__init__(strategy)
                self.mean_module = gpytorch.means.ZeroMean()
                self.covar_module = covariance

            def forward(self, x: Any) -> Any:
                return gpytorch.distributions.MultivariateNormal(
                    self.mean_module(x), self.covar_module(x)
                )

        self._model = Model(self._arms[torch.as_tensor(inducing)]).to(self._kind)
        self._likelihood = gpytorch.likelihoods.GaussianLikelihood(
            noise_constraint=gpytorch.constraints.GreaterThan(_LEAST_NOISE)
        ).to(self._kind)
        self._likelihood.noise = scene.noise_variance
        hyper_parameters = (
            *self._model.covar_module.parameters(),
            *self._likelihood.parameters(),
        )
        for parameter in hyper_parameters:
            parameter.requires_grad_(False)
        count = len(rows)
        self._objective = gpytorch.mlls.VariationalELBO(
            self._likelihood, self._model, count
        )
        self._natural = gpytorch.optim.NGD(
            self._model.variational_parameters(), num_data=count, lr=_NATURAL_RATE
        )
        points = self._model.variational_strategy.inducing_points
        self._adam = torch.optim.Adam([points], lr=_ADAM_RATE)

    def _tensor(self, values: Floats) -> Any:
        import torch

        return torch.as_tensor(np.ascontiguousarray(values), dtype=self._kind)

    def _covariance(self, scene: Scene, inducing: Ints) -> Any:
        """½ variance · k_f · (k_G + 1), k_G from a table of the inducing edges' rows."""
        import gpytorch
        import torch

        table = self._tensor(scene.on_graph(scene.arms[inducing], scene.arms))  # (M, n)
        prior = self._tensor(scene.on_graph.diag(scene.arms))
        slot = torch.full((len(scene.arms),), _NO_SLOT, dtype=torch.long)
        slot[torch.as_tensor(inducing)] = torch.arange(len(inducing))
        half = 0.5 * scene.variance

        class OnNetwork(gpytorch.kernels.Kernel):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.features = gpytorch.kernels.MaternKernel(nu=2.5)
                self.features.lengthscale = 1.0

            def forward(
                self, x1: Any, x2: Any, diag: bool = False, **options: Any
            ) -> Any:
                edges1 = x1[:, 0].detach().long()
                edges2 = x2[:, 0].detach().long()
                if diag:
                    return half * (1.0 + prior[edges1])
                if bool((slot[edges1] >= 0).all()):
                    rows = table.index_select(0, slot[edges1])
                    on_graph = rows.index_select(1, edges2)
                else:
                    rows = table.index_select(0, slot[edges2])
                    on_graph = rows.index_select(1, edges1).T
                on_features = self.features.forward(x1[:, 1:], x2[:, 1:])
                return half * on_features * (1.0 + on_graph)

        return OnNetwork()

    def round(self, path: Ints, rewards: Floats) -> Moments:
        """Learn a path; mean and std of all edges.

        Args:
            path: Its edges, (s,).
            rewards: Their rewards, (s,).
        """
        import gpytorch
        import torch

        self._rows = np.concatenate([self._rows, path])
        self._rewards = np.concatenate(
            [self._rewards, rewards - self._prior_mean[path]]
        )
        chosen = self._rng.integers(0, len(self._rows), self._batch)
        x = self._arms[torch.as_tensor(self._rows[chosen])]
        y = self._tensor(self._rewards[chosen])
        self._model.train()
        self._objective.num_data = len(self._rows)
        with (
            gpytorch.settings.max_cholesky_size(_ALWAYS_CHOLESKY),
            gpytorch.settings.debug(False),
        ):
            self._natural.zero_grad()
            self._adam.zero_grad()
            loss = -self._objective(self._model(x), y)
            loss.backward()
            self._natural.step()
            points = self._model.variational_strategy.inducing_points
            points.grad[:, 0] = 0.0  # edge numbers stay
            self._adam.step()
            self._model.eval()
            with torch.no_grad():
                latent = self._model(self._arms)
                mean = latent.mean
                variance = latent.variance
        std = variance.clamp_min(0.0).sqrt()
        return Moments(mean.double().numpy() + self._prior_mean, std.double().numpy())
