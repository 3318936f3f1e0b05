"""500 rounds on real roads: three exact posteriors agree, and the sparse one approaches them."""

from __future__ import annotations

import numpy as np
import pytest

from superarm.core.data_files import search_path
from superarm.core.streams import Streams
from superarm.posteriors import SparseVariational
from superarm.roads.policies import route_ts
from superarm.roads.problems import Navigation

ROUNDS = 500


@pytest.fixture(scope="module")
def driven():
    """The learner after 500 rounds on Monaco A, and everything it saw."""
    if not any(
        (folder / "most" / "edges.csv.gz").is_file() for folder in search_path()
    ):
        pytest.skip("most is not at hand")
    world = Navigation(seed=0, horizon=ROUNDS, route="monaco-a")
    policy = route_ts(world.model)
    choices, noises = Streams(0, "policy"), Streams(0, "noise")
    seen = []
    for step in range(1, ROUNDS + 1):
        offer = world.offer(step)
        decision = policy.decide(offer, choices.at(step))
        policy.commit(decision)
        route = decision.positions
        feedback = world.feedback(offer, decision, world.noise(offer, noises.at(step)))
        policy.learn(offer, decision, feedback, choices.at(step))
        seen.append((route, feedback.rewards))
    return world, policy, seen


@pytest.mark.slow
def test_visited_downdated_and_fresh_posteriors_agree(driven) -> None:
    world, policy, seen = driven
    model = world.model
    mean, std = policy.posterior.predict(np.arange(len(model.arms)))
    scale = np.sqrt(model.kernel.diag(model.arms).max())

    # The covariance of visited arms with all arms, and all variances, downdated route by route.
    prior = model.kernel(model.arms)
    visited = np.unique(np.concatenate([route for route, _ in seen]))
    row_of = np.full(len(prior), -1)
    row_of[visited] = np.arange(len(visited))
    P = prior[visited]  # (v, n)
    m = np.array(model.energies)
    variance = np.diagonal(prior).copy()
    for route, rewards in seen:
        cross = P[row_of[route]]  # (k, n)
        S = cross[:, route] + model.noise_variance * np.eye(len(route))
        gain = np.linalg.solve(S, cross).T  # (n, k)
        m += gain @ (rewards - m[route])
        P -= gain[visited] @ cross
        variance -= (gain * cross.T).sum(axis=1)
    assert np.abs(m - mean).max() < 1e-9 * scale
    assert (
        np.abs(np.sqrt(variance) - std).max() < 1e-7 * scale
    )  # a root near 0 halves digits
    assert np.abs(variance - std**2).max() < 1e-9 * scale**2

    # A fresh solve with everything at once: repeats merged to counts and means.
    count, total = np.zeros(len(m)), np.zeros(len(m))
    for route, rewards in seen:
        count[route] += 1
        total[route] += rewards
    V = np.flatnonzero(count)
    K_VV = prior[np.ix_(V, V)] + np.diag(model.noise_variance / count[V])
    solved = np.linalg.solve(K_VV, prior[V])
    direct = model.energies + solved.T @ (total[V] / count[V] - model.energies[V])
    variance = np.diagonal(prior) - np.einsum("ij,ij->j", prior[V], solved)
    assert np.abs(direct - mean).max() < 1e-9 * scale
    assert np.abs(variance - std**2).max() < 1e-9 * scale**2


@pytest.mark.slow
def test_svgp_with_all_visited_edges_comes_to_the_exact_posterior(driven) -> None:
    world, policy, seen = driven
    model = world.model
    sparse = SparseVariational(
        model.kernel,
        model.noise_variance,
        model.mean,
        inducing=2000,  # more than were visited
        batch=10**6,  # all of the history
        natural_rate=1.0,
        adam_rate=0.0,
        discrete_columns=(0,),
    )
    # An edge seen c times is one observation of its mean with a c-th of the noise variance.
    routes = np.concatenate([route for route, _ in seen])
    rewards = np.concatenate([values for _, values in seen])
    edges, which, counts = np.unique(routes, return_inverse=True, return_counts=True)
    means = np.bincount(which, rewards) / counts
    noise = model.noise_variance / counts
    sparse.observe(model.arms[edges], means, noise, rng=np.random.default_rng(0))
    mean, std = policy.posterior.predict(np.arange(len(model.arms)))
    approximate = sparse.predict(model.arms)
    scale = np.sqrt(model.kernel.diag(model.arms).max())
    assert np.abs(approximate.mean - mean).max() < 1e-7 * scale
    assert np.abs(approximate.std - std).max() < 1e-6 * scale
