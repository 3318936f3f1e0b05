"""Separate learners, one per vehicle, that share nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csc_array

from superarm.core import QUANTILES, Arms, Floats, Offer
from superarm.core.errors import InputError, StateError
from superarm.kernels import GraphMatern, Matern
from superarm.posteriors import FiniteGP, Separate, StreamingGP
from superarm.roads.energy import RoadScales
from superarm.roads.posterior import RoadGP
from superarm.testing import raises, restored
from superarm.testing.helpers import unchanged

N = 6
ROUGH = Matern(nu=1.5, lengthscale=0.5, columns=(0,))
PATH = csc_array(2.0 * np.eye(N) - np.eye(N, k=1) - np.eye(N, k=-1))


def streaming() -> StreamingGP:
    return StreamingGP(ROUGH, 0.05, 0.3)


def roads() -> RoadGP:
    return RoadGP(
        GraphMatern(PATH, nu=2), np.ones(N), scales=RoadScales(noise=0.5), refit=4
    )


def rows(edges: Any, vehicle: int) -> Floats:
    numbers = np.array(edges)
    terms = np.random.default_rng(1).uniform(0.1, 1.0, (N, 4))[numbers]
    constants = (
        np.ones(len(numbers)),
        np.zeros(len(numbers)),
        np.full(len(numbers), vehicle),
    )
    return np.column_stack([numbers, 2.0 + numbers, terms, *constants])


def offer_of(keys: Floats) -> Offer:
    return Offer(step=1, arms=Arms.numbered(keys))


def test_separate_learners_use_only_their_own_data() -> None:
    rng = np.random.default_rng(0)
    keys = np.column_stack(
        [rng.random(30), rng.integers(-1, 3, 30)]
    )  # numbers below 0, too
    rewards = rng.standard_normal(30)
    gp, references = (
        Separate(streaming(), column=1),
        {who: streaming() for who in range(-1, 3)},
    )
    for part in np.array_split(np.arange(30), 7):
        gp.observe(keys[part], rewards[part])
        for who, reference in references.items():
            mine = part[keys[part, 1] == who]
            reference.observe(keys[mine], rewards[mine])
    assert gp.count == 30
    assert gp.information_gain == pytest.approx(
        sum(reference.information_gain for reference in references.values())
    )
    assert gp.incumbent == max(reference.incumbent for reference in references.values())
    for posterior in (gp, Separate.from_state(restored(gp.state()))):
        joint = posterior.predict(keys, return_cov=True)
        for who, reference in references.items():
            mine = np.flatnonzero(keys[:, 1] == who)
            expected = reference.predict(keys[mine], return_cov=True)
            np.testing.assert_allclose(joint.mean[mine], expected.mean, atol=1e-12)
            np.testing.assert_allclose(
                joint.cov[np.ix_(mine, mine)], expected.cov, atol=1e-12
            )
            assert not joint.cov[np.ix_(mine, np.setdiff1d(np.arange(30), mine))].any()
            drawn, own = (
                p.sample(keys[mine], np.random.default_rng(1), 3)
                for p in (posterior, reference)
            )
            np.testing.assert_allclose(drawn, own, atol=1e-9)


def test_stated_noise_reaches_the_right_learner() -> None:
    gp, reference = Separate(streaming(), column=1), streaming()
    keys = np.array([[0.1, 4.0], [0.7, 5.0]])
    rewards, noise = np.array([1.0, 2.0]), np.array([0.3, 0.7])
    gp.observe(keys, rewards, noise)
    reference.observe(keys[:1], rewards[:1], noise[:1])
    np.testing.assert_allclose(
        gp.predict(keys[:1]).std, reference.predict(keys[:1]).std, atol=1e-12
    )


def test_separate_learners_match_independent_road_posteriors() -> None:
    gp, references = Separate(roads(), column=8), {0: roads(), 3: roads()}
    rng = np.random.default_rng(2)
    for number in range(9):
        who = (0, 3)[number % 2]
        keys = rows(rng.choice(N, 3, replace=False), who)
        rewards = keys[:, 1] + rng.normal(size=3)
        for posterior in (gp, references[who]):
            if number % 3:
                posterior.observe(keys, rewards)
            else:
                posterior.observe_sums(keys, [0, 0, 0], rewards.sum(keepdims=True))
    assert gp.count == sum(posterior.count for posterior in references.values())
    reloaded = Separate.from_state(restored(gp.state()))
    for who, posterior in references.items():
        assert posterior.fits == 1
        keys = rows(range(N), who)
        for one in (gp, reloaded):
            np.testing.assert_allclose(
                one.noise_cov(keys), posterior.noise_cov(keys), atol=1e-12
            )
            for ours, theirs in zip(
                one.widths(keys), posterior.widths(keys), strict=True
            ):
                np.testing.assert_array_equal(ours, theirs)
            belief, expected = (
                part.belief(offer_of(keys), rows([1, 1], who)).condition(np.array([4]))
                for part in (one, posterior)
            )
            np.testing.assert_allclose(belief.mean, expected.mean, atol=1e-10)
            np.testing.assert_allclose(belief.std, expected.std, atol=1e-8)
    # Pending roads of other vehicles have no effect.
    keys = rows(range(N), 0)
    awaited = np.concatenate([rows([2], 3), rows([1, 1], 0)])
    one, other = (
        gp.belief(offer_of(keys), posterior) for posterior in (awaited, rows([1, 1], 0))
    )
    np.testing.assert_array_equal(one.std, other.std)


def test_new_vehicle_has_the_prior() -> None:
    gp = Separate(roads(), column=8)
    gp.observe(rows([0, 1], 0), [5.0, 6.0])
    predicted, prior = gp.predict(rows(range(N), 9)), roads().predict(rows(range(N), 9))
    np.testing.assert_array_equal(predicted.mean, prior.mean)
    np.testing.assert_array_equal(predicted.std, prior.std)


def test_posterior_without_coverage_uses_normal_quantiles() -> None:
    gp = Separate(streaming(), column=1)
    keys = np.array([[0.1, 4.0], [0.7, 4.0]])
    np.testing.assert_array_equal(gp.noise_cov(keys), 0.05 * np.eye(2))
    assert gp.widths(keys) == (QUANTILES, QUANTILES)


def test_invalid_input_has_no_side_effects() -> None:
    gp = Separate(roads(), column=8)
    gp.observe(rows([0], 0), [1.0])
    both = np.concatenate([rows([0], 0), rows([1], 3)])
    with unchanged(gp, "a sum of two"), raises(InputError, "a sum of two"):
        gp.observe_sums(both, [0, 0], [1.0])
    for rewards in ([np.nan], [1.0, 2.0]):
        with unchanged(gp, "bad sums"), raises(InputError, "bad sums"):
            gp.observe_sums(rows([0, 1], 7), [0, 0], rewards)
    assert np.isfinite(gp.incumbent)
    plain = Separate(streaming(), column=1)
    with unchanged(plain, "sums"), pytest.raises(InputError, match="'roads'"):
        plain.observe_sums([[0.1, 1.0], [0.2, 1.0]], [0, 0], [1.0])
    for bad in ([[0.1]], [[0.1, 0.5]]):
        with unchanged(plain, "no numbers"), raises(InputError, "no numbers"):
            plain.observe(bad, [1.0])
    with pytest.raises(InputError, match="column"):
        Separate(streaming(), column=-1)
    with pytest.raises(InputError, match="whole numbers"):
        Separate(FiniteGP(ROUGH, np.eye(3), 0.1), column=0).predict([0, 1])


def test_a_damaged_state_is_refused() -> None:
    gp = Separate(roads(), column=8)
    gp.observe(rows([0], 0), [1.0])
    state = gp.state()
    (part,) = state.parts.values()
    for parts in (
        {"a": part},
        {"0.5": part},
        {"": part},
        {"0": state},
        {},
        {"0": part, "1": part},
    ):
        with raises(StateError, str(list(parts))):
            gp.restored(replace(state, parts=parts))
