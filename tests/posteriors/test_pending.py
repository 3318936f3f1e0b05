"""Beliefs conditioned on pending arms, against the dense formula."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_posteriors import Maker, posterior_makers

from superarm.core import Arms, Floats, Ints, Offer
from superarm.core.errors import InputError, ShapeError, StaleBeliefError
from superarm.kernels import Matern, SquaredExponential, Temporal
from superarm.posteriors import (
    FiniteGP,
    StreamingGP,
    beliefs,
)
from superarm.testing.helpers import assert_moments

NOISE = 0.05
ARMS = np.random.default_rng(1).random((14, 2))
ARMS[13] = ARMS[2]  # two arms that are one in all but name
ROUGH = Matern(nu=1.5, lengthscale=0.6)
SMOOTH = SquaredExponential(lengthscale=0.8)
FADING = Matern(nu=1.5, lengthscale=0.6, columns=(0, 1)) * Temporal(
    epsilon=0.1, column=2
)

# Not the forms of DriftingGP, which share what is pending, nor those with other arms.
OTHERS = ("drifting, folded", "drifting, visited", "separate", "roads")
MAKERS: dict[str, Maker] = {
    name: maker
    for name, maker in posterior_makers(
        ARMS, NOISE, lengthscale=0.6, inducing=5, block=5
    ).items()
    if name not in OTHERS
}

pytestmark = pytest.mark.filterwarnings("ignore:more than 1 observations")

places = st.lists(st.integers(0, len(ARMS) - 1), max_size=6)
within = st.lists(st.integers(0, 6), max_size=4)
some = st.lists(st.integers(0, len(ARMS) - 1), min_size=7, max_size=7, unique=True)


def offer_of(rows: list[int] | None = None) -> Offer:
    positions = np.arange(len(ARMS)) if rows is None else np.array(rows)
    return Offer(step=1, arms=Arms(ids=positions.tolist(), features=ARMS[positions]))


def taught(name: str, rows: list[int]) -> Any:
    gp, rng = MAKERS[name](), np.random.default_rng(0)
    keys = gp.keys(offer_of())
    for (
        row
    ) in rows:  # one at a time, so that the root form has something pending itself
        gp.observe(keys[[row]], rng.standard_normal(1), rng=rng)
    return gp


def less(cov: Floats, pending: Any) -> Floats:
    """The dense formula."""
    positions = np.array(pending, dtype=np.intp)
    cross = cov[positions]
    observed = cross[:, positions] + NOISE * np.eye(len(positions))
    return cov - cross.T @ np.linalg.solve(observed, cross)


@pytest.mark.thorough
@pytest.mark.parametrize("name", MAKERS)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(seen=places, offered=some, pending=places, first=within, second=within)
def test_conditioned_belief_matches_the_dense_formula(
    name: str,
    seen: list[int],
    offered: list[int],
    pending: list[int],
    first: list[int],
    second: list[int],
) -> None:
    gp = taught(name, seen)
    offer = offer_of(offered)
    awaited = gp.keys(offer_of())[pending]
    keys = gp.keys(offer)
    mean, joint = gp.predict(np.concatenate([keys, awaited]), return_cov=True)
    n = len(keys)
    expected = less(joint, range(n, len(joint)))[:n, :n]
    belief = gp.belief(offer, awaited)
    for positions in (None, first, second):
        if positions is not None:
            belief = belief.condition(np.array(positions, dtype=np.intp))
            expected = less(expected, positions)
        np.testing.assert_allclose(belief.mean, mean[:n], atol=1e-12)
        np.testing.assert_allclose(belief.std**2, np.diagonal(expected), atol=1e-10)
        np.testing.assert_allclose(belief.cov, expected, atol=1e-10)
        for array in (belief.mean, belief.std, belief.cov):
            assert not array.flags.writeable  # so that it must not change
        np.testing.assert_allclose(belief.negated().cov, expected, atol=1e-10)
        np.testing.assert_array_equal(belief.negated().mean, -belief.mean)


@pytest.mark.thorough
@pytest.mark.parametrize("name", MAKERS)
def test_draws_have_the_remaining_covariance(name: str) -> None:
    gp = taught(name, [0, 1, 1, 5])
    offer = offer_of([0, 2, 4, 6, 8, 13])
    awaited = gp.keys(offer_of())[[2, 9, 9, 11]]
    rng = np.random.default_rng(4)
    plain, given_some = gp.belief(offer), gp.belief(offer, awaited)
    for belief in (
        given_some,
        given_some.condition(np.array([1])).negated(),
        plain.condition(np.array([0, 3, 0])),
    ):
        draws = np.array([belief.sample(rng) for _ in range(1000)])
        assert_moments(draws, belief.mean, belief.cov, name)


@pytest.mark.parametrize("name", MAKERS)
def test_no_square_covariance_is_made(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gp = taught(name, [0, 1, 5])
    awaited = gp.keys(offer_of())[[2, 9]]

    compute = type(gp)._covariance

    def some(self: Any, keys: Any, at: Any = None) -> Floats:
        assert at is not None, "the whole covariance was asked for"
        return compute(self, keys, at)

    monkeypatch.setattr(type(gp), "_covariance", some)
    belief = gp.belief(offer_of(), awaited).condition(np.array([3]))
    for position in (4, 5, 6):
        belief = belief.condition(np.array([position]))
    assert (belief.std < gp.belief(offer_of(), awaited).std + 1e-12).all()


def test_memory_grows_only_with_pending_arms() -> None:
    """4,000 arms: their covariance would take 128 MB."""
    rng = np.random.default_rng(0)
    arms = rng.random((4000, 2))
    offer = Offer(step=1, arms=Arms.numbered(arms))
    streaming = StreamingGP(ROUGH, NOISE, form="cholesky")
    visited = FiniteGP(ROUGH, arms, NOISE, form="visited")
    for gp, awaited in ((streaming, arms[:30]), (visited, np.arange(30))):
        chosen: Any = arms[40:60] if gp is streaming else np.arange(40, 60)
        gp.observe(chosen, rng.standard_normal(20))
        tracemalloc.start()
        try:
            belief = gp.belief(offer, awaited).condition(np.arange(5))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert belief.std.shape == (4000,)
        assert peak < 20e6


@pytest.mark.parametrize("name", MAKERS)
def test_conditioned_belief_goes_stale(name: str) -> None:
    gp = taught(name, [0, 1])
    keys = gp.keys(offer_of())
    belief = gp.belief(offer_of(), keys[[3]])
    gp.observe(keys[[3]], [0.5], rng=np.random.default_rng(0))
    for ask in (
        lambda: belief.cov,
        lambda: belief.negated().cov,
        lambda: belief.sample(np.random.default_rng(0)),
        lambda: belief.condition(np.array([0])),
        lambda: belief.incumbent,
        lambda: belief.information_gain,
    ):
        with pytest.raises(StaleBeliefError):
            ask()


@pytest.mark.parametrize("name", MAKERS)
def test_pending_arms_must_be_keys(name: str) -> None:
    gp = MAKERS[name]()
    wrong: Floats | Ints = (
        np.ones((1, 4)) if gp.keys(offer_of()).ndim == 2 else np.array([99])
    )
    # Of one that forgets, the last column would be one of times.
    with pytest.raises(
        ShapeError
        if wrong.ndim == 2 and name != "streaming, forgetting"
        else InputError
    ):
        gp.belief(offer_of(), wrong)


@pytest.mark.parametrize("name", MAKERS)
def test_arms_that_are_pending_more_than_once_are_merged_exactly(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gp = taught(name, [3, 5])
    keys = gp.keys(offer_of())
    pending = keys[[7, 2, 7, 5, 7, 2, 11]]

    def believe() -> tuple[Any, Floats]:
        belief = gp.belief(offer_of(), pending)
        belief = belief.condition(np.array([7, 1, 2]))  # again, and one more
        return belief, belief.sample(np.random.default_rng(1))

    merged, merged_draw = believe()
    distinct = beliefs.distinct
    with monkeypatch.context() as patched:
        # As if all choices were of different arms.
        patched.setattr(
            beliefs,
            "distinct",
            lambda keys, choices: distinct(np.arange(len(keys)), choices),
        )
        separate, separate_draw = believe()
    if keys.ndim == 1 and isinstance(merged, beliefs.GaussianBelief):
        assert len(merged._pending.positions) == 4 + 3
        assert len(separate._pending.positions) == 7 + 3
    # Rounding, times the condition of a prior of variance 1 with this noise: about 10⁻¹³.
    np.testing.assert_allclose(merged.std, separate.std, atol=1e-9)
    np.testing.assert_allclose(merged.cov, separate.cov, atol=1e-9)
    np.testing.assert_allclose(merged_draw, separate_draw, atol=1e-8)
