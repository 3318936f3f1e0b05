"""Fast paths of the posteriors against slow, reliable ones."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superarm.core import Arms, Floats, Offer
from superarm.core.errors import InputError, NotFiniteError
from superarm.core.inputs import as_features, require_size
from superarm.kernels import Kernel, Matern, SquaredExponential, Temporal
from superarm.posteriors import DriftingGP, FiniteGP, StreamingGP
from superarm.posteriors.finite.batch import Batch
from superarm.posteriors.finite.loops import PENDING
from superarm.posteriors.finite.visited import VisitedEngine
from superarm.posteriors.streaming.row_lookup import find_rows

NOISE = 0.03


def backends() -> list[str]:
    try:
        import numba  # noqa: F401
    except ImportError:
        return ["numpy"]
    return ["numpy", "numba"]


def fresh_solve(
    kernel: Kernel, arms: Floats, rows: list[int], rewards: list[float]
) -> tuple[Floats, Floats]:
    """Mean and covariance from all observations at once."""
    K = kernel(arms)
    A = K[np.ix_(rows, rows)] + NOISE * np.eye(len(rows))
    pull = np.linalg.solve(A, K[rows]).T
    return pull @ np.array(rewards), K - pull @ K[rows]


@pytest.mark.parametrize("backend", backends())
def test_single_rewards_are_folded_in_now_and_then(
    backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After so many as are left until the next fold, nothing is pending; a state loads at any time."""
    monkeypatch.setattr("superarm.posteriors.finite.root.FOLD_EVERY", 5)
    arms = np.random.default_rng(0).random((6, 2))
    gp = FiniteGP(Matern(lengthscale=0.3), arms, NOISE, form="root", backend=backend)
    engine: Any = gp._engine
    for count in range(1, 13):
        gp.observe([count % 2], [1.0])
        assert (engine._count == 0) == (count % 5 == 0)
        assert FiniteGP.from_state(gp.state()).count == count


def test_single_rewards_clear_rounding_as_often_as_several() -> None:
    """In the visited form: by the short way for one arm seen before, and by the one for any number."""
    arms = np.random.default_rng(0).random((6, 2))
    short, general = (
        FiniteGP(Matern(lengthscale=0.3), arms, NOISE, form="visited") for _ in range(2)
    )
    for count in range(30):
        short.observe([count % 2], [1.0])
        general.observe([count % 2], [1.0], [NOISE])
        counts = [
            posterior.state().parts["engine"].scalars for posterior in (short, general)
        ]
        assert counts[0] == counts[1]
    assert counts[0]["updates"] == 30


# --- FiniteGP: all arms pending ------------------------------------------------------------


@pytest.mark.parametrize("backend", backends())
@pytest.mark.parametrize(
    "kernel", [SquaredExponential(lengthscale=0.2), Matern(lengthscale=0.3)]
)
def test_any_arm_of_few_is_learned_as_by_a_fresh_solve(
    kernel: Kernel, backend: Any
) -> None:
    rng = np.random.default_rng(0)
    arms = rng.random((60, 2))
    gp = FiniteGP(kernel, arms, NOISE, backend=backend)
    rows, rewards = [], []
    for t in range(260):
        row, reward = int(rng.integers(60)), float(rng.standard_normal())
        gp.observe([row], [reward])
        rows.append(row)
        rewards.append(reward)
        if t % 65 == 64:
            mean, cov = fresh_solve(kernel, arms, rows, rewards)
            predicted = gp.predict(np.arange(60), return_cov=True)
            np.testing.assert_allclose(predicted.mean, mean, rtol=0.0, atol=1e-10)
            np.testing.assert_allclose(predicted.cov, cov, rtol=0.0, atol=1e-10)
            std = gp.predict(np.arange(60)).std
            assert std is not None
            np.testing.assert_allclose(
                std, np.sqrt(np.diagonal(cov)), rtol=0.0, atol=1e-9
            )
            belief = gp.belief(Offer(step=1, arms=Arms.numbered(arms)))
            np.testing.assert_array_equal(belief.std, std)
    engine: Any = gp._engine
    assert engine._count == 60 > PENDING  # all are pending
    # A restored state continues with the same numbers, and so does a copy.
    for twin in (
        gp.restored(gp.state()),
        copy.deepcopy(gp),
        FiniteGP.from_state(gp.state()),
    ):
        for row in (3, 59, 3):
            twin.observe([row], [0.5])
        mean, cov = fresh_solve(
            kernel, arms, [*rows, 3, 59, 3], [*rewards, 0.5, 0.5, 0.5]
        )
        np.testing.assert_allclose(
            twin.predict(np.arange(60)).mean, mean, rtol=0.0, atol=1e-10
        )


def test_draws_after_any_arms_have_the_posterior_covariance() -> None:
    rng = np.random.default_rng(1)
    arms, kernel = rng.random((40, 1)), Matern(lengthscale=0.3)
    gp = FiniteGP(kernel, arms, NOISE, backend="numpy")
    rows = rng.integers(40, size=120).tolist()
    for row in rows:
        gp.observe([row], [0.0])
    before = gp.predict(np.arange(40), return_cov=True).cov
    draws = 20_000
    drawn = gp.sample(np.arange(40), rng, draws)
    # Entry (i, j) of the sample covariance has the variance (c_ii c_jj + c_ij²)/draws; six of its stds.
    bound = 6.0 * np.sqrt(
        (np.outer(np.diagonal(before), np.diagonal(before)) + before**2) / draws
    )
    assert (np.abs(drawn.T @ drawn / draws - before) <= bound + 1e-12).all()
    gp.observe(
        [rows[0]], [0.0]
    )  # from now on no more arms are pending than draws have normals for
    engine: Any = gp._engine
    assert engine._count <= PENDING
    _, cov = fresh_solve(kernel, arms, [*rows, rows[0]], [0.0] * 121)
    np.testing.assert_allclose(
        gp.predict(np.arange(40), return_cov=True).cov, cov, atol=1e-10
    )


# --- FiniteGP: the choice of form ----------------------------------------------------------


@pytest.fixture
def rough(monkeypatch: pytest.MonkeyPatch) -> Floats:
    """Arms whose root counts as large."""
    monkeypatch.setattr("superarm.posteriors.finite.posterior._SMALL_ROOT", 50 * 20)
    return np.random.default_rng(2).random((50, 3))


def test_a_large_root_is_avoided_and_a_small_one_taken(rough: Floats) -> None:
    assert FiniteGP(Matern(lengthscale=0.3), rough, NOISE).form == "visited"
    assert FiniteGP(SquaredExponential(lengthscale=100.0), rough, NOISE).form == "root"
    assert (
        FiniteGP(Matern(lengthscale=0.3), rough, 1e-6).form == "root"
    )  # noise that only it takes
    assert FiniteGP(Matern(lengthscale=0.3), rough, NOISE, form="root").form == "root"


def test_little_noise_brings_the_root_form(rough: Floats) -> None:
    gp = FiniteGP(Matern(lengthscale=0.3), rough, NOISE)
    twin = FiniteGP(Matern(lengthscale=0.3), rough, NOISE, form="root")
    for posterior in (gp, twin):
        posterior.observe([1, 2], [1.0, 2.0])
        posterior.observe([3], [0.5], noise_variance=[1e-7])
    assert gp.form == "root"
    np.testing.assert_allclose(
        gp.predict(range(50)).mean, twin.predict(range(50)).mean, atol=1e-9
    )
    named = FiniteGP(Matern(lengthscale=0.3), rough, NOISE, form="visited")
    with pytest.raises(InputError, match="form='root'"):
        named.observe([3], [0.5], noise_variance=[1e-7])


def test_states_of_either_form_are_restored_whichever_is_chosen_now(
    rough: Floats,
) -> None:
    kernel = Matern(lengthscale=0.3)
    for form in ("root", "auto"):
        saved = FiniteGP(kernel, rough, NOISE, form=form)
        saved.observe([4, 5, 4], [1.0, 0.0, 0.5])
        for blank in (
            FiniteGP(kernel, rough, NOISE),
            FiniteGP(kernel, rough, NOISE, form="root"),
        ):
            restored = blank.restored(saved.state())
            assert restored.form == saved.form
            for posterior in (restored, saved):
                np.testing.assert_allclose(
                    posterior.predict(range(50)).mean,
                    saved.predict(range(50)).mean,
                    atol=1e-12,
                )
        reloaded = FiniteGP.from_state(saved.state())
        reloaded.observe([7], [1.0])
        assert reloaded.form == saved.form


def test_single_visited_arm_is_learned_like_several() -> None:
    rng = np.random.default_rng(3)
    arms, kernel = rng.random((300, 2)), Matern(lengthscale=0.3)
    singly, together = (VisitedEngine(kernel, arms, np.zeros(300)) for _ in range(2))
    totals, sums = np.zeros(602), np.zeros(602)
    for _ in range(60):
        row, reward = int(rng.integers(12)), float(rng.standard_normal())
        singly.absorb_one(row, reward, NOISE, totals)
        together.absorb(Batch.of_one(row, reward, NOISE, 300), sums)
        together.maintain(sums)
        np.testing.assert_allclose(totals, sums, rtol=1e-12, atol=1e-10)
        np.testing.assert_allclose(singly.mean, together.mean, rtol=0.0, atol=1e-10)
        np.testing.assert_allclose(
            singly.variance, together.variance, rtol=0.0, atol=1e-10
        )


# --- DriftingGP: a Kalman filter that keeps its factor --------------------------------------


def test_factored_filter_equals_the_dense_filter() -> None:
    rng = np.random.default_rng(4)
    arms = rng.random((80, 1))
    kernel, drift = SquaredExponential(lengthscale=0.3), Temporal(epsilon=0.05)
    factored = DriftingGP(kernel, arms, 0.01, drift=drift, form="kalman")
    dense = DriftingGP(kernel, arms, 0.01, drift=drift, form="kalman")
    form: Any = dense._form
    form._multiply_out()
    for step in range(1, 2 * form.rank + 40):  # until pending rewards were added to G
        engine: Any = factored._form
        assert engine._factored == (step <= engine.rank)
        key, reward = (
            [[int(rng.integers(80)), float(step)]],
            [float(rng.standard_normal())],
        )
        for posterior in (factored, dense):
            posterior.observe(key, reward)
        if step % 5 == 0:
            now = np.column_stack([np.arange(80), np.full(80, step + 0.5)])
            one, other = (
                posterior.predict(now, return_cov=True)
                for posterior in (factored, dense)
            )
            np.testing.assert_allclose(one.mean, other.mean, rtol=0.0, atol=1e-10)
            np.testing.assert_allclose(one.cov, other.cov, rtol=0.0, atol=1e-10)
            engine, form = factored._form, dense._form
            np.testing.assert_allclose(
                engine.learned, form.learned, rtol=0.0, atol=1e-9
            )
            restored = factored.restored(factored.state())
            np.testing.assert_allclose(
                restored.predict(now).mean, one.mean, rtol=0.0, atol=1e-10
            )
            offer = Offer(step=step + 1, arms=Arms.numbered(arms))
            recomputed = factored.belief(
                offer
            )  # finds the arms; from then on they are known
            np.testing.assert_allclose(
                factored.belief(offer).mean, recomputed.mean, rtol=0.0, atol=1e-12
            )
            np.testing.assert_allclose(
                factored.belief(offer).std, recomputed.std, rtol=0.0, atol=1e-9
            )


def test_late_feedback_goes_back_to_a_factor_that_is_shared() -> None:
    rng = np.random.default_rng(5)
    arms = rng.random((200, 2))
    late, sorted_ = (
        DriftingGP(SquaredExponential(lengthscale=0.2), arms, 0.01) for _ in range(2)
    )
    keys = [[int(rng.integers(200)), float(step)] for step in range(1, 101)]
    rewards = rng.standard_normal(100).tolist()
    for place in [*range(39), *range(40, 100), 39]:
        late.observe([keys[place]], [rewards[place]])
    for key, reward in zip(keys, rewards, strict=True):
        sorted_.observe([key], [reward])
    now = np.column_stack([np.arange(200), np.full(200, 101.0)])
    np.testing.assert_allclose(
        late.predict(now).mean, sorted_.predict(now).mean, atol=1e-10
    )
    stds = [posterior.predict(now).std for posterior in (late, sorted_)]
    assert stds[0] is not None
    assert stds[1] is not None
    np.testing.assert_allclose(stds[0], stds[1], atol=1e-9)


# --- StreamingGP ---------------------------------------------------------------------------


def test_the_finite_rank_form_is_tried_a_few_times_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = []
    features = SquaredExponential.features

    def count_text(self: Any, *arguments: Any, **named: Any) -> Any:
        tried.append(len(gp.observed.rewards))
        return features(self, *arguments, **named)

    monkeypatch.setattr(SquaredExponential, "features", count_text)
    rng = np.random.default_rng(6)
    gp = StreamingGP(SquaredExponential(lengthscale=0.3), 0.01)
    while gp.form == "cholesky" and gp.count < 600:
        arms = rng.random((3, 2))
        gp.observe(arms, np.sin(5.0 * arms).sum(axis=1))
    assert gp.form == "finite-rank"
    # The first run counts the observations needed; the box may widen a little until then.
    assert len(tried) <= 3, tried
    assert gp.rank <= gp.count / 2


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=12),
    st.lists(st.integers(0, 3), min_size=1, max_size=4),
    st.integers(1, 3),
)
def test_rows_are_found_by_their_bytes(
    among: list[int], wanted: list[int], width: int
) -> None:
    # Rows of repeated numbers: found across two rows, unless one looks.
    def rows(values: list[int]) -> Floats:
        return np.array(
            [[float(value >> bit & 1) for bit in range(width)] for value in values]
        )

    there, queries = rows(among), rows(wanted)
    places = find_rows(queries, there)
    slow = [
        next((i for i, row in enumerate(there) if (row == query).all()), None)
        for query in queries
    ]
    assert places == (None if None in slow else slow)


def test_rows_without_columns_are_not_looked_for() -> None:
    assert find_rows(np.empty((1, 0)), np.empty((2, 0))) is None


# --- checks at the door --------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("order", ["C", "F"])
def test_feature_check_rejects_non_finite_numbers(bad: float, order: Any) -> None:
    rows = np.ones((3, 2), order=order)
    assert as_features(rows, "rows") is rows
    rows[1, 1] = bad
    with pytest.raises(NotFiniteError, match=r"rows\[1, 1\]"):
        as_features(rows, "rows")


def test_large_numbers_are_looked_at_one_by_one() -> None:
    large = np.array([[1e200, -1e200]])  # finite, though its squares are not
    assert as_features(large, "rows") is large
    require_size(np.array([1e99, -1e99]), "rewards")
    with pytest.raises(InputError, match="1e\\+101"):
        require_size(np.array([0.0, 1e101]), "rewards")
