"""StreamingGP against a fresh solve: incremental, finite-rank, far-flung, badly scaled."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
from compare_posteriors import assert_prediction
from hypothesis import given, settings
from hypothesis import strategies as st

from superarm.core import Arms, Covariance, Floats, JointPrediction, Offer
from superarm.core.errors import (
    InputError,
    JitterWarning,
    NotPositiveDefiniteError,
    ShapeError,
    StateError,
    UnknownArmError,
)
from superarm.core.states import state_to_bytes as state_bytes
from superarm.kernels import Empirical, Linear, Matern, SquaredExponential
from superarm.posteriors import StreamingGP
from superarm.testing import restored

stable = settings(max_examples=30)
seeds = st.integers(0, 100_000)
SMOOTH = SquaredExponential(lengthscale=0.7, variance=1.5)
ROUGH = Matern(nu=1.5, lengthscale=0.4)


def test_timed_keys_end_with_the_moment_of_their_offer() -> None:
    """Old observations weigh less, and late feedback is dated by its own offer."""
    kernel = SquaredExponential(lengthscale=(0.5, 10.0))
    gp = StreamingGP(kernel, 0.01, timed=True)
    arms = Arms.numbered([[0.0], [1.0]])
    clocked, count_text = Offer(step=2, arms=arms, time=30.5), Offer(step=40, arms=arms)
    np.testing.assert_array_equal(gp.keys(clocked), [[0.0, 30.5], [1.0, 30.5]])
    np.testing.assert_array_equal(gp.keys(count_text), [[0.0, 40.0], [1.0, 40.0]])
    gp.observe(gp.keys(clocked)[:1], [2.0])
    now, later = gp.belief(clocked), gp.belief(count_text)
    decay = np.exp(-0.5 * (9.5 / 10.0) ** 2)
    assert later.mean[0] == pytest.approx(decay * now.mean[0])
    assert later.std[0] > now.std[0]
    plain = StreamingGP(kernel, 0.01)
    np.testing.assert_array_equal(plain.keys(clocked), arms.features)


def naive(
    kernel: Covariance,
    X: Floats,
    y: Floats,
    noise: Floats,
    queries: Floats,
    prior: Any = None,
) -> JointPrediction:
    """The slow, obvious posterior."""
    mean = np.zeros(len(queries)) if prior is None else prior(queries)
    residual = y if prior is None else y - prior(X)
    cross = kernel(queries, X)
    total = kernel(X) + np.diag(noise)
    return JointPrediction(
        mean + cross @ np.linalg.solve(total, residual),
        kernel(queries) - cross @ np.linalg.solve(total, cross.T),
    )


# --- every way gives the same posterior ----------------------------------------------------


@stable
@given(
    seeds,
    st.lists(st.integers(1, 6), min_size=1, max_size=12),
    st.sampled_from(["cholesky", "finite-rank", "auto"]),
    st.sampled_from([0.0, 2.5, "function"]),
    st.booleans(),
)
def test_incremental_equals_a_fresh_solve(
    seed: int, blocks: list[int], form: Any, mean: Any, ask_first: bool
) -> None:
    rng = np.random.default_rng(seed)
    prior = (lambda X: X @ np.array([1.0, -2.0])) if mean == "function" else None
    gp = StreamingGP(SMOOTH, 0.1, prior if prior is not None else mean, form=form)
    pool = rng.random((12, 2))  # few arms, so that they are often repeated
    seen: list[tuple[Floats, Floats, Floats]] = []
    for block in blocks:
        X = pool[rng.integers(0, len(pool), block)]
        y, noise = rng.standard_normal(block), rng.uniform(0.01, 1.0, block)
        if ask_first:
            # So that the rows solved for it are reused.
            gp.belief(Offer(step=1, arms=Arms.numbered(pool)))
        gp.observe(X, y, noise)
        seen.append((X, y, noise))
    X, y, noise = (np.concatenate(parts) for parts in zip(*seen, strict=True))
    queries = np.vstack([pool, rng.random((3, 2))])
    known = prior if prior is not None else lambda X: np.full(len(X), mean)
    expected = naive(SMOOTH, X, y, noise, queries, known)
    assert_prediction(gp, queries, expected, scale=1.5)
    means = naive(SMOOTH, X, y, noise, X, known).mean
    assert gp.incumbent == pytest.approx(means.max(), abs=1e-9)
    assert gp.belief(
        Offer(step=1, arms=Arms.numbered(queries))
    ).negated().incumbent == pytest.approx(-means.min(), abs=1e-9)
    whitened = SMOOTH(X) / np.sqrt(np.outer(noise, noise))
    gain = 0.5 * np.linalg.slogdet(np.eye(len(X)) + whitened)[1]
    assert gp.information_gain == pytest.approx(gain, rel=1e-9)
    assert gp.count == len(y)


@pytest.mark.parametrize(
    "kernel", [SMOOTH, SquaredExponential(lengthscale=1.5), Linear(bias=0.5)], ids=repr
)
def test_auto_turns_to_the_finite_rank_form_and_stays_exact(kernel: Any) -> None:
    rng = np.random.default_rng(0)
    auto, fixed = StreamingGP(kernel, 0.05), StreamingGP(kernel, 0.05, form="cholesky")
    queries = rng.random((40, 2))
    for _ in range(100):
        X = rng.random((4, 2))
        y = np.sin(5.0 * X[:, 0]) + 0.2 * rng.standard_normal(4)
        auto.observe(X, y)
        fixed.observe(X, y)
    assert (auto.form, fixed.form) == ("finite-rank", "cholesky")
    assert auto.rank < fixed.rank == 400
    assert 0.0 < auto.tolerance < 1e-11 * 1.5 or isinstance(kernel, Linear)
    assert fixed.tolerance == 0.0
    joint = fixed.predict(queries, return_cov=True)
    assert isinstance(joint, JointPrediction)
    assert_prediction(
        auto, queries, joint, scale=float(kernel.diag(queries).max()), tolerance=1e-9
    )
    assert auto.information_gain == pytest.approx(fixed.information_gain, rel=1e-10)
    assert auto.incumbent == pytest.approx(fixed.incumbent, abs=1e-9)


def test_an_outgrown_box_stays_exact() -> None:
    """Arms outside the observed range: queried, then observed."""
    rng = np.random.default_rng(1)
    gp = StreamingGP(SMOOTH, 0.1)
    X, y = rng.random((200, 2)), rng.standard_normal(200)
    gp.observe(X, y)
    assert gp.form == "finite-rank"
    outside = np.array([[1.8, -0.5], [0.5, 0.5]])
    noise = np.full(200, 0.1)
    assert_prediction(gp, outside, naive(SMOOTH, X, y, noise, outside), scale=1.5)
    gp.observe(outside, [0.3, 0.4])
    more = np.vstack([X, outside]), np.append(y, [0.3, 0.4]), np.full(202, 0.1)
    assert_prediction(gp, outside, naive(SMOOTH, *more, outside), scale=1.5)


def test_outliers_return_the_posterior_to_the_cholesky_form() -> None:
    rng = np.random.default_rng(2)
    gp = StreamingGP(SMOOTH, 0.1)
    X, y = rng.random((200, 2)), rng.standard_normal(200)
    gp.observe(X, y)
    assert gp.form == "finite-rank"
    before = state_bytes(gp.state())
    outlier = np.array([[400.0, -300.0], [0.5, 0.5]])
    noise = np.full(200, 0.1)
    assert_prediction(gp, outlier, naive(SMOOTH, X, y, noise, outlier), scale=1.5)
    assert gp.form == "finite-rank"  # a question changes nothing
    assert state_bytes(gp.state()) == before
    gp.observe(outlier, [5.0, 0.0])
    assert gp.form == "cholesky"  # no features reach that far at a sensible rank
    more = np.vstack([X, outlier]), np.append(y, [5.0, 0.0]), np.full(202, 0.1)
    assert_prediction(gp, outlier, naive(SMOOTH, *more, outlier), scale=1.5)


def test_distant_query_does_not_change_a_belief() -> None:
    rng = np.random.default_rng(3)
    gp = StreamingGP(SMOOTH, 0.1)
    gp.observe(rng.random((200, 2)), rng.standard_normal(200))
    belief = gp.belief(Offer(step=1, arms=Arms.numbered(rng.random((5, 2)))))
    before = belief.sample(np.random.default_rng(1))
    rank = gp.rank
    gp.predict([[3.0, 3.0]])
    gp.predict([[300.0, 3.0]])
    assert gp.rank == rank
    np.testing.assert_array_equal(belief.sample(np.random.default_rng(1)), before)


def test_finite_rank_form_answers_distant_queries() -> None:
    rng = np.random.default_rng(4)
    X, y = rng.random((30, 2)), rng.standard_normal(30)
    gp = StreamingGP(SMOOTH, 0.1, form="finite-rank")
    gp.observe(X, y)
    far = np.array([[500.0, 500.0]])
    assert_prediction(gp, far, naive(SMOOTH, X, y, np.full(30, 0.1), far), scale=1.5)
    with pytest.raises(InputError, match="use form='auto'"):
        gp.observe(far, [1.0])
    assert gp.count == 30


@pytest.mark.parametrize("noise", [1e-12, 1e-15])
def test_single_updates_equal_a_batch_with_little_noise(noise: float) -> None:
    X = np.linspace(0.0, 1.0, 30)[:, None]
    y = np.sin(X[:, 0])
    at_once, one_by_one = (StreamingGP(SquaredExponential(), noise) for _ in range(2))
    at_once.observe(X, y)
    for row, value in zip(X, y, strict=True):
        one_by_one.observe([row], [value])
    for gp in (at_once, one_by_one):
        np.testing.assert_allclose(gp.predict(X).mean, y, atol=1e-7)


@pytest.mark.filterwarnings("ignore::superarm.core.errors.JitterWarning")
def test_negligible_noise_is_rejected_without_side_effects() -> None:
    gp = StreamingGP(SquaredExponential(), 1e-18)
    X = np.linspace(0.0, 1.0, 30)[:, None]
    refused = None
    for row in X:
        before = state_bytes(gp.state())
        try:
            gp.observe([row], [0.0])
        except NotPositiveDefiniteError as error:
            refused = str(error)
            break
    assert refused is not None
    assert "noise_variance is too small" in refused
    assert state_bytes(gp.state()) == before


def test_every_observation_counts_for_any_kernel() -> None:
    """The cheaper form is looked for at 64 observations: a table of ids has one, too."""
    table = np.eye(5) + 0.5
    gp = StreamingGP(Empirical(covariance=table, column=0), 0.1)
    rng = np.random.default_rng(0)
    rows = rng.integers(5, size=100)
    for row in rows:
        gp.observe([[float(row)]], [1.0])
    assert gp.count == len(gp.observed.arms) == 100
    with pytest.raises(UnknownArmError):
        gp.predict([[9.0]])


def test_observed_data_are_read_only() -> None:
    gp = StreamingGP(SMOOTH, 0.1)
    gp.observe([[0.0, 0.0]], [1.0])
    with pytest.raises(ValueError, match="read-only"):
        gp.observed.rewards[0] = 99.0
    belief = gp.belief(Offer(step=1, arms=Arms.numbered([[0.0, 0.0]])))
    with pytest.raises(ValueError, match="read-only"):
        belief.cov[0, 0] = 99.0


@pytest.mark.parametrize("foreign", [False, True])
def test_kernel_without_a_finite_rank_form_is_rejected_without_side_effects(
    foreign: bool, request: pytest.FixtureRequest
) -> None:
    kernel = (
        request.getfixturevalue("sk").RBF(0.5)
        if foreign
        else Matern(nu=0.5, lengthscale=0.01)
    )
    gp = StreamingGP(kernel, 0.1, form="finite-rank")
    with pytest.raises(InputError, match="use form='auto'"):
        gp.observe(np.random.default_rng(0).random((3, 3)), np.zeros(3))
    assert gp.count == 0
    assert gp.predict(np.zeros((1, 3))).mean.tolist() == [0.0]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["cholesky", "auto"])
def test_long_streams_do_not_drift(form: Any) -> None:
    """3000 observations in small blocks against one solve."""
    rng = np.random.default_rng(3)
    gp = StreamingGP(SMOOTH, 0.01, form=form)
    X, y = rng.random((3000 if form == "auto" else 1200, 2)), np.empty(0)
    y = np.cos(4.0 * X).sum(axis=1) + 0.1 * rng.standard_normal(len(X))
    for start in range(0, len(X), 12):
        block = slice(start, start + 12)
        gp.observe(X[block], y[block])
    queries = rng.random((50, 2))
    expected = naive(SMOOTH, X, y, np.full(len(X), 0.01), queries)
    assert_prediction(gp, queries, expected, scale=1.5, tolerance=1e-8)


@pytest.mark.slow
def test_thirty_thousand_rounds_do_not_drift() -> None:
    """Merged by hand, 30 000 observations of 60 arms are 60 of their means."""
    rng = np.random.default_rng(4)
    arms = rng.random((60, 2))
    gp = StreamingGP(SMOOTH, 0.1)
    rows = rng.integers(0, 60, 30_000)
    y = np.sin(6.0 * arms[rows, 0]) + 0.3 * rng.standard_normal(30_000)
    for start in range(0, 30_000, 5):
        gp.observe(arms[rows[start : start + 5]], y[start : start + 5])
    assert gp.form == "finite-rank"
    counts = np.bincount(rows, minlength=60)
    means = np.bincount(rows, y, 60) / counts
    assert_prediction(
        gp,
        arms,
        naive(SMOOTH, arms, means, 0.1 / counts, arms),
        scale=1.5,
        tolerance=1e-8,
    )


# --- scales --------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["cholesky", "finite-rank"])
@pytest.mark.parametrize("variance", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("length", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("reward", [1e-12, 1.0, 1e12])
def test_units_do_not_matter(
    form: Any, variance: float, length: float, reward: float
) -> None:
    rng = np.random.default_rng(5)
    unit, y = rng.random((60, 2)), rng.standard_normal(60)
    plain = StreamingGP(SquaredExponential(), 0.1, form="cholesky")
    kernel = SquaredExponential(lengthscale=length, variance=variance)
    scaled = StreamingGP(kernel, 0.1 * variance, form=form)
    for start in range(0, 60, 20):
        block = slice(start, start + 20)
        plain.observe(unit[block], y[block])
        scaled.observe(length * unit[block], reward * y[block])
    mean, std = plain.predict(unit)
    scaled_mean, scaled_std = scaled.predict(length * unit)
    np.testing.assert_allclose(scaled_mean / reward, mean, atol=1e-9)
    np.testing.assert_allclose(scaled_std / np.sqrt(variance), std, atol=1e-9)
    assert scaled.information_gain == pytest.approx(plain.information_gain, rel=1e-9)
    assert np.isfinite(scaled.sample(length * unit, rng, 2)).all()


@pytest.mark.parametrize("noise", [1e-2, 1e-4, 1e-6, 1e-8])
def test_little_noise(noise: float) -> None:
    """Nearly noiseless: both forms against each other, on the scale of the prior."""
    rng = np.random.default_rng(6)
    X = rng.random((300, 1))
    y = np.sin(6.0 * X[:, 0])
    kernel = SquaredExponential(lengthscale=0.3)
    one, other = StreamingGP(kernel, noise, form="cholesky"), StreamingGP(kernel, noise)
    for start in range(0, 300, 10):
        for gp in (one, other):
            gp.observe(X[start : start + 10], y[start : start + 10])
    assert other.form == "finite-rank"
    queries = np.linspace(0.0, 1.0, 30)[:, None]
    joint = one.predict(queries, return_cov=True)
    assert isinstance(joint, JointPrediction)
    # A solve with condition number N/noise loses that many digits of the mean.
    assert_prediction(other, queries, joint, tolerance=max(1e-10, 1e-15 * 300 / noise))


def in_fifty_digits(
    length: float, X: Floats, y: Floats, noise: float, x: float
) -> tuple[float, float]:
    """Mean and variance at ``x`` of a squared exponential in one column, by decimal arithmetic."""
    with localcontext() as context:
        context.prec = 50
        points, scale = (
            [Decimal(float(point)) for point in X[:, 0]],
            2 * Decimal(length) ** 2,
        )
        L: list[list[Decimal]] = []

        def solved(right: list[Decimal]) -> list[Decimal]:
            z: list[Decimal] = []
            for row, value in zip(L, right, strict=True):
                total = sum((a * b for a, b in zip(row, z, strict=False)), Decimal(0))
                z.append((value - total) / row[len(z)])
            return z

        def covariances(query: Decimal) -> list[Decimal]:
            return [
                (-((query - point) ** 2) / scale).exp() for point in points[: len(L)]
            ]

        for query in points:
            row = solved(covariances(query))
            L.append([*row, (1 + Decimal(noise) - sum(w * w for w in row)).sqrt()])
        row = solved(covariances(Decimal(x)))
        z = solved([Decimal(float(point)) for point in y])
        return (
            float(sum(a * b for a, b in zip(row, z, strict=True))),
            float(1 - sum(w * w for w in row)),
        )


def test_the_finite_rank_form_has_the_digits_for_the_noise_it_takes() -> None:
    rng = np.random.default_rng(7)
    X = rng.random((40, 1))
    y = np.sin(6.0 * X[:, 0])
    kernel = SquaredExponential(lengthscale=0.3)
    probe = StreamingGP(kernel, 0.1, form="finite-rank")
    probe.observe(X, y)
    least = probe._form.least_noise
    assert 1e4 * probe.tolerance == least < 1e-8
    gp = StreamingGP(kernel, 1.01 * least, form="finite-rank")
    gp.observe(X, y)
    for x in (0.0, 0.47):
        mean, variance = in_fifty_digits(0.3, X, y, 1.01 * least, x)
        predicted = gp.predict([[x]])
        assert predicted.std is not None
        assert predicted.mean[0] == pytest.approx(mean, abs=1e-7)
        assert predicted.std[0] == pytest.approx(np.sqrt(variance), rel=1e-4)


@pytest.mark.parametrize("noise", [1e-11, 1e-12])
def test_with_hardly_any_noise_the_finite_rank_form_is_not_taken(noise: float) -> None:
    rng = np.random.default_rng(8)
    X = rng.random((100, 1))
    y = np.sin(6.0 * X[:, 0])
    kernel = SquaredExponential(lengthscale=0.3)
    auto, plain = (
        StreamingGP(kernel, noise),
        StreamingGP(kernel, noise, form="cholesky"),
    )
    for gp in (auto, plain):
        gp.observe(X, y)
    assert auto.form == "cholesky"
    queries = rng.random((5, 1))
    np.testing.assert_array_equal(
        auto.predict(queries).mean, plain.predict(queries).mean
    )
    forced = StreamingGP(kernel, noise, form="finite-rank")
    with pytest.raises(InputError, match="too small for the finite-rank form"):
        forced.observe(X, y)
    assert forced.count == 0


def test_one_observation_with_hardly_any_noise_ends_the_finite_rank_form() -> None:
    rng = np.random.default_rng(9)
    X = rng.random((100, 1))
    y = np.sin(6.0 * X[:, 0])
    gp, forced = (
        StreamingGP(SquaredExponential(), 0.1),
        StreamingGP(SquaredExponential(), 0.1, form="finite-rank"),
    )
    for posterior in (gp, forced):
        posterior.observe(X, y)
        assert posterior.form == "finite-rank"
    gp.predict([[0.5]])
    gp.observe([[0.5]], [0.3], [1e-13])
    assert gp.form == "cholesky"
    noise = np.append(np.full(100, 0.1), 1e-13)
    expected = naive(
        SquaredExponential(), np.vstack([X, [[0.5]]]), np.append(y, 0.3), noise, X[:5]
    )
    assert_prediction(gp, X[:5], expected)
    before = state_bytes(forced.state())
    for arms, noises in (
        ([[0.5]], [1e-13]),
        ([[0.5], [0.7]], [1e-13, 0.1]),
    ):  # one is enough
        with pytest.raises(InputError, match="use form='auto'"):
            forced.observe(arms, np.full(len(arms), 0.3), noises)
        assert state_bytes(forced.state()) == before


def test_well_known_arms_can_still_be_sampled() -> None:
    """A covariance far below the prior's rounding is no reason to refuse or to warn."""
    gp = StreamingGP(SquaredExponential(lengthscale=0.5), 1e-8, form="cholesky")
    for _ in range(30):
        gp.observe([[0.2], [0.2001]], [1.0, 1.0])
    drawn = gp.sample(
        [[0.2], [0.20005], [0.2001], [0.2]], np.random.default_rng(0), 200
    )
    np.testing.assert_allclose(drawn, 1.0, atol=1e-3)
    belief = gp.belief(Offer(step=1, arms=Arms.numbered([[0.2], [0.20005], [0.2001]])))
    assert np.isfinite(
        belief.condition(np.array([0])).sample(np.random.default_rng(0))
    ).all()
    assert gp.sample(np.empty((0, 1)), np.random.default_rng(0), 3).shape == (3, 0)


# --- jitter and bad kernels ----------------------------------------------------------------


class Indefinite:
    """A 'kernel' that is not positive semi-definite."""

    def __init__(self, excess: float) -> None:
        self.excess = excess

    def __call__(self, X: Floats, Y: Floats | None = None) -> Floats:
        other = X if Y is None else Y
        same = np.isclose(X[:, :1], other[:, :1].T)
        return np.where(same, 1.0, 1.0 + self.excess)

    def diag(self, X: Floats) -> Floats:
        return np.ones(len(X))


def test_jitter_warns_and_the_posterior_survives_a_raised_warning() -> None:
    kernel = Indefinite(1e-9)
    gp = StreamingGP(kernel, 1e-16)
    before = state_bytes(gp.state())
    with pytest.raises(
        JitterWarning
    ):  # warnings are errors in these tests: nothing may be half done
        gp.observe([[0.0], [1.0]], [0.0, 0.0])
    assert state_bytes(gp.state()) == before
    with pytest.warns(JitterWarning, match="adding"):
        gp.observe([[0.0], [1.0]], [1.0, 1.0])
    assert gp.count == 2
    assert gp.predict([[0.0]]).mean == pytest.approx(1.0, abs=1e-6)
    # A remaining variance may be below 0: jitter is relative to the prior's size.
    by_turns = StreamingGP(kernel, 1e-16)
    by_turns.observe([[0.0]], [1.0])
    with pytest.warns(JitterWarning, match="adding"):
        by_turns.observe([[1.0]], [1.0])
    assert by_turns.predict([[0.0]]).mean == pytest.approx(1.0, abs=1e-6)


@pytest.mark.filterwarnings("ignore::superarm.core.errors.JitterWarning")
@pytest.mark.parametrize("start", [0, 2])
def test_jitter_past_the_limit_is_rejected_without_side_effects(start: int) -> None:
    gp = StreamingGP(Indefinite(0.5), 0.01)
    if start:
        gp.observe([[5.0]], [0.3])
    before, queries = state_bytes(gp.state()), [[5.0], [6.0]]
    mean = gp.predict(queries, return_std=False).mean
    with pytest.raises(NotPositiveDefiniteError):
        gp.observe([[0.0], [1.0]], [0.0, 0.0])
    assert state_bytes(gp.state()) == before
    np.testing.assert_array_equal(gp.predict(queries, return_std=False).mean, mean)


class NotANumber(Indefinite):
    def __call__(self, X: Floats, Y: Floats | None = None) -> Floats:
        return np.full((len(X), len(X if Y is None else Y)), np.nan)


def test_a_kernel_of_nan_is_refused() -> None:
    gp = StreamingGP(NotANumber(0.0), 0.1)
    with pytest.raises(NotPositiveDefiniteError):
        gp.observe([[0.0], [1.0]], [0.0, 0.0])
    assert gp.count == 0


# --- scikit-learn --------------------------------------------------------------------------

SKLEARN: dict[str, Callable[[Any], Any]] = {
    "RBF": lambda sk: sk.RBF(0.5),
    "sum": lambda sk: 2.0 * sk.Matern(0.7, nu=1.5) + sk.ConstantKernel(0.5),
    "product": lambda sk: sk.RationalQuadratic(0.5, 1.2) * sk.DotProduct(1.0),
}


@pytest.mark.parametrize("name", SKLEARN)
def test_it_predicts_as_scikit_learn_does(name: str, sk: Any, regressor: Any) -> None:
    kernel = SKLEARN[name](sk)
    rng = np.random.default_rng(7)
    X, y, queries = rng.random((40, 2)), rng.standard_normal(40), rng.random((15, 2))
    reference = regressor(kernel, alpha=0.1, optimizer=None).fit(X, y)
    gp = StreamingGP(kernel, 0.1)
    for start in range(0, 40, 8):
        gp.observe(X[start : start + 8], y[start : start + 8])
    mean, cov = reference.predict(queries, return_cov=True)
    assert_prediction(
        gp, queries, JointPrediction(mean, cov), scale=float(kernel.diag(queries).max())
    )


def test_our_kernels_predict_alike_in_scikit_learn(regressor: Any) -> None:
    rng = np.random.default_rng(8)
    X, y, queries = rng.random((30, 2)), rng.standard_normal(30), rng.random((10, 2))
    reference = regressor(ROUGH.as_sklearn(), alpha=0.1, optimizer=None).fit(X, y)
    gp = StreamingGP(ROUGH, 0.1)
    gp.observe(X, y)
    assert_prediction(
        gp, queries, JointPrediction(*reference.predict(queries, return_cov=True))
    )


# --- input and state -----------------------------------------------------------------------


def test_changing_an_array_after_use_has_no_effect() -> None:
    rng = np.random.default_rng(9)
    for form in ("cholesky", "finite-rank"):
        gp, twin = (
            StreamingGP(SMOOTH, 0.1, form=form),
            StreamingGP(SMOOTH, 0.1, form=form),
        )  # type: ignore[arg-type]
        X = rng.random((5, 2))
        for posterior in (gp, twin):
            posterior.observe(X, np.arange(5.0))
        arms = rng.random((4, 2))
        gp.predict(arms)
        arms[2] = rng.random(2)  # the caller's own array, after it was queried
        gp.observe(arms[2:3], [7.0])
        twin.observe(arms[2:3].copy(), [7.0])
        queries = rng.random((6, 2))
        np.testing.assert_allclose(
            gp.predict(queries).mean, twin.predict(queries).mean, atol=1e-12
        )


def test_draws_are_for_the_queried_arms_and_current_data() -> None:
    rng = np.random.default_rng(9)
    gp, arms = StreamingGP(SMOOTH, 0.1, form="cholesky"), rng.random((4, 2))
    X, y = rng.random((6, 2)), np.arange(6.0)
    for count in range(1, 7):
        gp.observe(X[count - 1 : count], y[count - 1 : count])
        for _ in range(2):
            reference = StreamingGP(SMOOTH, 0.1, form="cholesky")
            reference.observe(X[:count], y[:count])
            expected = reference.sample(arms.copy(), np.random.default_rng(1), 3)
            drawn = gp.sample(arms, np.random.default_rng(1), 3)
            np.testing.assert_allclose(drawn, expected, atol=1e-6)
            if count % 2:
                arms[2] = rng.random(2)  # the caller's own array, after it was queried


def test_constructor_mistakes_are_named() -> None:
    with pytest.raises(InputError, match="form is 'fast'"):
        StreamingGP(ROUGH, 0.1, form="fast")  # type: ignore[arg-type]
    for noise in (0.0, -1.0, np.nan, "x"):
        with pytest.raises(InputError, match="noise_variance"):
            StreamingGP(ROUGH, noise)  # type: ignore[arg-type]
    for mean in (np.nan, np.inf, "x", None, [1.0, 2.0]):
        with pytest.raises(InputError, match="mean must be"):
            StreamingGP(ROUGH, 0.1, mean)  # type: ignore[arg-type]


def test_columns_must_stay_the_same() -> None:
    gp = StreamingGP(ROUGH, 0.1)
    gp.predict(np.zeros((1, 5)))  # before any data, any number will do
    gp.observe(np.zeros((1, 2)), [0.0])
    for ask in (
        gp.predict,
        lambda X: gp.observe(X, [0.0]),
        lambda X: gp.belief(Offer(step=1, arms=Arms.numbered(X))),
    ):
        with pytest.raises(
            ShapeError, match="3 feature columns, but those observed before have 2"
        ):
            ask(np.zeros((1, 3)))


def test_mean_functions_are_checked_and_not_part_of_the_state() -> None:
    def mean(X: Floats) -> Floats:
        return 3.0 * X[:, 0]

    gp = StreamingGP(ROUGH, 0.1, mean)
    gp.observe([[0.5]], [2.0])
    state = restored(gp.state())
    with pytest.raises(StateError, match="from_state"):
        StreamingGP.from_state(state)
    reloaded = StreamingGP.from_state(state, mean=mean)
    np.testing.assert_allclose(
        reloaded.predict([[0.7]]).mean, gp.predict([[0.7]]).mean, rtol=1e-12
    )
    bad: Any
    for bad in (
        lambda X: 1.0,
        lambda X: np.full(len(X), np.nan),
        lambda X: np.ones((len(X), 1)),
    ):
        with pytest.raises(InputError, match="one finite number per arm"):
            StreamingGP(ROUGH, 0.1, bad).predict([[0.0]])


def test_states_of_another_kind_or_of_foreign_kernels_are_refused(sk: Any) -> None:
    gp = StreamingGP(sk.RBF(0.5), 0.1, np.float32(0.5))  # type: ignore[arg-type]
    state = restored(gp.state())
    with pytest.raises(StateError, match="not a registered part"):
        StreamingGP.from_state(state)
    assert StreamingGP.from_state(state, kernel=sk.RBF(0.5)).mean == 0.5
    from superarm.posteriors import FiniteGP

    with pytest.raises(StateError, match="'streaming-gp' state of schema 2"):
        FiniteGP.from_state(state)


def test_observed_data_stay_in_order() -> None:
    gp = StreamingGP(ROUGH, 0.1)
    gp.observe([[0.1], [0.2]], [1.0, 2.0])
    gp.observe([[0.3]], [3.0], [0.7])
    arms, rewards, noise = gp.observed
    assert arms.tolist() == [[0.1], [0.2], [0.3]]
    assert rewards.tolist() == [1.0, 2.0, 3.0]
    assert noise.tolist() == [0.1, 0.1, 0.7]
