"""StreamingGP beyond exact memory: rejected, or summarised in inducing points, by option."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from superarm.core import Floats
from superarm.core.errors import InputError, PrecisionWarning
from superarm.core.states import state_to_bytes
from superarm.kernels import Matern, SquaredExponential
from superarm.posteriors import InducingGP, StreamingGP
from superarm.posteriors.summaries import spread_points

NOISE = 0.05
ROUGH = Matern(nu=2.5, lengthscale=0.7)


def history(n: int, columns: int = 3) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(n)
    arms = rng.random((n, columns))
    return arms, np.sin(3.0 * arms[:, 0]) + arms[:, -1] + np.sqrt(
        NOISE
    ) * rng.standard_normal(n)


def taught(
    arms: Floats, rewards: Floats, step: int = 5, **options: object
) -> StreamingGP:
    gp = StreamingGP(ROUGH, NOISE, **options)  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrecisionWarning)
        for begin in range(0, len(arms), step):
            gp.observe(arms[begin : begin + step], rewards[begin : begin + step])
    return gp


def test_observations_beyond_memory_are_rejected_without_side_effects() -> None:
    arms, rewards = history(41)
    gp = taught(arms[:40], rewards[:40], most_exact=40)
    before = gp.predict(arms).mean
    with pytest.raises(
        InputError,
        match=r"41 observations are more than most_exact = 40.*inducing=1000 .*\(1.3e-05 GB",
    ):
        gp.observe(arms[40:], rewards[40:])
    assert gp.count == 40
    np.testing.assert_array_equal(gp.predict(arms).mean, before)


def test_switch_to_inducing_points_warns_once() -> None:
    arms, rewards = history(200)
    gp = StreamingGP(ROUGH, NOISE, most_exact=40, inducing=30)
    gp.observe(arms[:40], rewards[:40])
    assert (gp.form, gp.tolerance) == ("cholesky", 0.0)
    with pytest.warns(PrecisionWarning) as warned:
        gp.observe(arms[40:45], rewards[40:45])
    assert warned[0].filename == __file__
    assert str(warned[0].message) == (
        "more than 40 observations: from now on the posterior is approximate, summed up in 30 inducing "
        f"points; kernel values are off by up to {gp.tolerance:.2g}"
    )
    for begin in range(45, 200, 5):  # past the rounds in which points are rechosen
        gp.observe(arms[begin : begin + 5], rewards[begin : begin + 5])
    assert (gp.form, gp.rank, gp.count) == ("inducing", 30, 200)
    assert gp.tolerance > 0.0


def test_warning_as_error_has_no_side_effects() -> None:
    arms, rewards = history(60)
    gp = StreamingGP(ROUGH, NOISE, most_exact=40, inducing=30)
    gp.observe(arms[:40], rewards[:40])
    before = gp.state()
    with pytest.raises(PrecisionWarning):
        gp.observe(arms[40:], rewards[40:])
    assert gp.state().scalars == before.scalars
    assert (gp.form, gp.count) == ("cholesky", 40)


def test_points_everywhere_give_the_exact_posterior() -> None:
    arms, rewards = history(120)
    exact = taught(arms, rewards, form="cholesky")
    gp = taught(arms, rewards, step=120, most_exact=10, inducing=120)
    assert gp.form == "inducing"
    # Points are dropped where what they add is below 1e-9 of the variance, hence the digits.
    queries = history(30)[0]
    (mean, std), (true_mean, true_std) = gp.predict(queries), exact.predict(queries)
    np.testing.assert_allclose(mean, true_mean, atol=1e-6)
    np.testing.assert_allclose(std, true_std, atol=1e-6)
    assert gp.information_gain == pytest.approx(exact.information_gain, abs=1e-5)


def test_any_points_give_the_dense_formula() -> None:
    """Mean and covariance of Titsias' posterior, solved with dense matrices."""
    arms, rewards = history(150)
    gp = taught(arms, rewards, most_exact=50, inducing=12)
    Z, X = gp.state().parts["inducing"].arrays["points"], history(20)[0]
    assert len(Z) == 12
    K, C, q = ROUGH(Z), ROUGH(Z, arms), ROUGH(Z, X)
    S = np.linalg.inv(K + C @ C.T / NOISE)
    mean = q.T @ S @ C @ rewards / NOISE
    cov = ROUGH(X) - q.T @ np.linalg.solve(K, q) + q.T @ S @ q
    np.testing.assert_allclose(gp.predict(X).mean, mean, atol=1e-8)
    np.testing.assert_allclose(gp.predict(X, return_cov=True).cov, cov, atol=1e-8)
    np.testing.assert_allclose(gp.predict(X).std, np.sqrt(np.diag(cov)), atol=1e-8)


def test_the_error_stated_is_the_error_of_kernel_values() -> None:
    arms, rewards = history(150)
    gp = taught(arms, rewards, most_exact=50, inducing=25)
    Z = gp.state().parts["inducing"].arrays["points"]
    explained = ROUGH(arms, Z) @ np.linalg.solve(ROUGH(Z), ROUGH(Z, arms))
    # Points are rechosen at 110 observations; all errors of earlier arms are counted then.
    assert np.abs(ROUGH(arms) - explained).max() == pytest.approx(
        gp.tolerance, rel=1e-6
    )


def test_many_observations_at_once_are_taken_in_by_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arms, rewards = history(150)
    at_once = taught(arms, rewards, step=150, most_exact=50, inducing=20)
    for module in ("streaming.posterior", "streaming.inducing", "summaries"):
        monkeypatch.setattr(f"superarm.posteriors.{module}.BLOCK", 32)
    parts = taught(arms, rewards, step=150, most_exact=50, inducing=20)
    queries = history(30)[0]
    np.testing.assert_allclose(
        parts.predict(queries).mean, at_once.predict(queries).mean, atol=1e-9
    )
    np.testing.assert_allclose(
        parts.predict(queries).std, at_once.predict(queries).std, atol=1e-9
    )
    # What the points do not explain is new in every block, however often it was seen.
    assert parts.information_gain > at_once.information_gain
    assert parts.incumbent == pytest.approx(at_once.incumbent, rel=1e-9)


def test_an_exact_form_that_does_not_grow_comes_first() -> None:
    arms, rewards = history(300, columns=1)
    gp = StreamingGP(
        SquaredExponential(lengthscale=0.5), NOISE, most_exact=63, inducing=10
    )
    for begin in range(0, 300, 5):
        gp.observe(arms[begin : begin + 5], rewards[begin : begin + 5])
    assert gp.form == "finite-rank"


def test_points_are_spread_as_a_pivoted_cholesky_spreads_them() -> None:
    arms = history(40)[0]
    chosen = spread_points(ROUGH, arms, 10)
    residual = ROUGH(arms)
    for point in chosen:
        assert residual[point, point] == pytest.approx(
            np.diag(residual).max(), rel=1e-9
        )
        residual = (
            residual
            - np.outer(residual[:, point], residual[point]) / residual[point, point]
        )
    assert len(set(chosen.tolist())) == 10


def test_more_points_than_there_are_arms() -> None:
    arms = history(40)[0]
    assert sorted(spread_points(ROUGH, arms, 10**12)) == list(range(40))


def test_redundant_points_are_omitted() -> None:
    arms = np.repeat(history(4)[0], 5, axis=0)
    assert len(spread_points(ROUGH, arms, 12)) == 4


def test_inducing_needs_a_free_choice_of_form() -> None:
    with pytest.raises(InputError, match="inducing needs form='auto'"):
        StreamingGP(ROUGH, NOISE, form="cholesky", inducing=10)


def test_streaming_with_inducing_points_equals_inducing_gp() -> None:
    arms, rewards = history(80)
    redrawn = InducingGP(ROUGH, NOISE, inducing=80, jitter=0.0)
    redrawn.observe(arms, rewards, rng=np.random.default_rng(0))
    fixed = taught(arms, rewards, step=80, most_exact=10, inducing=80)
    queries = history(30)[0]
    np.testing.assert_allclose(
        fixed.predict(queries).mean, redrawn.predict(queries).mean, atol=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "columns"),
    [(SquaredExponential(lengthscale=1.0), 10), (ROUGH, 3)],
    ids=["SE 10-d", "Matérn 3-d"],
)
def test_a_hundred_thousand_observations(kernel: object, columns: int) -> None:
    arms, rewards = history(100_000, columns)
    gp = StreamingGP(kernel, NOISE, most_exact=2_000, inducing=400)  # type: ignore[arg-type]
    with pytest.warns(PrecisionWarning):
        gp.observe(arms, rewards)
    queries = np.random.default_rng(0).random((500, columns))
    truth = np.sin(3.0 * queries[:, 0]) + queries[:, -1]
    mean, std = gp.predict(queries)
    # A function of the model's own smoothness: errors are those of the stated widths, not far beyond.
    assert np.mean(np.abs(mean - truth) <= 1.96 * std) >= 0.9


def test_points_are_rechosen_when_observations_double() -> None:
    arms, rewards = history(100)
    gp = taught(arms[:45], rewards[:45], most_exact=40, inducing=10)
    assert (gp.form, gp.state().parts["inducing"].scalars["chosen_at"]) == (
        "inducing",
        45,
    )
    first = gp.state().parts["inducing"].arrays["points"]
    gp.observe(arms[45:89], rewards[45:89])
    np.testing.assert_array_equal(gp.state().parts["inducing"].arrays["points"], first)
    gp.observe(arms[89:90], rewards[89:90])
    assert not np.array_equal(gp.state().parts["inducing"].arrays["points"], first)
    assert gp.state().parts["inducing"].scalars["chosen_at"] == 90


def test_default_exact_limit() -> None:
    gp = StreamingGP(ROUGH, NOISE)
    assert (gp.most_exact, gp.inducing) == (20_000, None)


def test_update_that_fails_late_has_no_side_effects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arms, rewards = history(55)
    gp = taught(arms[:50], rewards[:50], most_exact=40, inducing=30)
    before = state_to_bytes(gp.state())

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gp, "_commit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        gp.observe(arms[50:], rewards[50:])
    assert state_to_bytes(gp.state()) == before
