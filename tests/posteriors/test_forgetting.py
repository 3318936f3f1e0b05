"""StreamingGP that forgets negligible observations, against the posterior of all data."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superarm.core import Arms, Floats, Offer
from superarm.core.errors import ForgottenError, InputError, StateError
from superarm.core.states import state_from_bytes, state_to_bytes
from superarm.kernels import (
    Columns,
    Constant,
    Kernel,
    Linear,
    Matern,
    Periodic,
    Scale,
    SquaredExponential,
    Temporal,
)
from superarm.posteriors import StreamingGP

NOISE = 0.05
SPACE = Matern(nu=1.5, lengthscale=0.4, columns=(0, 1))
FAST, SLOW = Temporal(epsilon=0.2, column=2), Temporal(epsilon=0.1, column=2)
DAILY = Periodic(period=7.0, columns=(2,))
KERNELS: dict[str, Kernel] = {
    "product": SPACE * FAST,
    "rush hours": SPACE * DAILY * FAST,
    "smooth in time as well": SquaredExponential(lengthscale=0.7) * FAST,
    "sum of products": SPACE * FAST + 0.5 * (DAILY * SLOW),
    "sum in a product": (SPACE + Constant()) * FAST * SLOW,
    "columns": Columns(kernel=Temporal(epsilon=0.2), columns=(2,)) * SPACE,
}


# --- forgetting rates of kernels ---------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (FAST, 0.2),
        (Temporal(epsilon=0.0, column=2), 0.0),
        (SPACE, 0.0),
        (SquaredExponential(), 0.0),
        (Constant(), 0.0),
        (Linear(columns=(0, 1)), 0.0),
        (Linear(), None),
        (Linear(columns=(2,)), None),
        (SPACE * FAST, 0.2),
        (SPACE * FAST * SLOW, 1.0 - 0.8 * 0.9),
        (FAST + SLOW, 0.1),
        (FAST + SPACE, 0.0),
        (FAST + Linear(), None),
        (FAST * Linear(columns=(2,)), None),
        (FAST * Linear(columns=(0,)), 0.2),
        (Scale(kernel=FAST, factor=3.0), 0.2),
        (Columns(kernel=Temporal(epsilon=0.2), columns=(2,)), 0.2),
        (Columns(kernel=Linear(), columns=(0, 1)), 0.0),
        (Columns(kernel=Linear(), columns=(0, 2)), None),
    ],
)
def test_how_fast_kernels_forget(kernel: Kernel, expected: float | None) -> None:
    rate = kernel.forgetting(2)
    assert rate == (None if expected is None else pytest.approx(expected, abs=1e-15))


@pytest.mark.parametrize("name", KERNELS)
def test_kernel_without_its_decay_is_stationary(name: str) -> None:
    """k / (1 − ε)^{|s−t|/2} depends only on s − t and is a covariance."""
    kernel, rng = KERNELS[name], np.random.default_rng(0)
    X = np.column_stack([rng.random((12, 2)), rng.uniform(0.0, 9.0, 12)])
    rate = kernel.forgetting(2)
    assert rate is not None
    assert rate > 0.0

    def stationary_part(rows: Floats) -> Floats:
        apart = np.abs(np.subtract.outer(rows[:, 2], rows[:, 2]))
        values: Floats = kernel(rows) / (1.0 - rate) ** (0.5 * apart)
        return values

    np.testing.assert_allclose(
        stationary_part(X + np.array([0.0, 0.0, 3.7])), stationary_part(X), atol=1e-12
    )
    assert np.linalg.eigvalsh(stationary_part(X))[0] > -1e-10


def test_foreign_kernels_have_no_forgetting_rate() -> None:
    kernels = pytest.importorskip("sklearn.gaussian_process.kernels")
    assert (FAST * kernels.RBF()).forgetting(2) is None
    hidden = Columns(kernel=kernels.RBF(), columns=(0, 1))
    assert (FAST * hidden).forgetting(2) == pytest.approx(0.2)


# --- the bounds --------------------------------------------------------------------------


def rounds(count: int, seed: int = 0, gap: float = 1.0) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    times = gap * np.arange(1.0, count + 1.0)
    return np.column_stack([rng.random((count, 2)), times]), rng.standard_normal(count)


def dropped(gp: StreamingGP) -> int:
    """Observations that were learned and later dropped."""
    return gp.count - gp.forgotten - gp.rank


def window(kernel: Kernel, forget: float) -> float:
    return 2.0 * math.log(forget) / math.log1p(-(kernel.forgetting(2) or 0.0))


@pytest.mark.thorough
@pytest.mark.parametrize("forget", [0.3, 1e-2, 1e-4])
@pytest.mark.parametrize("name", KERNELS)
def test_variances_are_too_large_by_the_square_of_the_tolerance(
    name: str, forget: float
) -> None:
    """0 ≤ ΔP ≤ forget² P, as matrices, at and after the newest time; E(μ − μ′)² is ΔP."""
    kernel = KERNELS[name]
    keys, rewards = rounds(160)
    gp = StreamingGP(kernel, NOISE, timed=True, forget=forget)
    unforgetting = StreamingGP(kernel, NOISE, timed=True, form="cholesky")
    for row in range(len(keys)):
        gp.observe(keys[[row]], rewards[[row]])
        unforgetting.observe(keys[[row]], rewards[[row]])
        if row % 20:
            continue
        for later in (0.0, 2.5):
            ask = keys[: row + 1 : 3].copy()
            ask[:, 2] = keys[row, 2] + later
            P, exact = (
                gp.predict(ask, return_cov=True).cov,
                unforgetting.predict(ask, return_cov=True).cov,
            )
            excess, slack = (
                P - exact,
                1e-12 * np.trace(P),
            )  # rounding of two factorisations
            assert np.linalg.eigvalsh(excess)[0] > -slack
            assert np.linalg.eigvalsh(forget**2 * P - excess)[0] > -slack
    if window(kernel, forget) < 100.0:
        assert dropped(gp) > 0
    assert (gp.count, gp.forgotten) == (160, 0)


@pytest.mark.slow
def test_means_are_off_by_the_tolerance_in_root_mean_square() -> None:
    """Rewards drawn from the model: (μ − μ′)/σ has mean square at most forget².

    Over 100 draws the mean of squares, of variance at most 2 v² each for normals of variance
    v ≤ forget², stays below forget² (1 + 5 √(2/100)).
    """
    kernel, forget, draws = KERNELS["product"], 0.1, 100
    keys, _ = rounds(60, seed=3)
    ask = np.array([[0.4, 0.6, 61.0]])
    K = kernel(keys) + NOISE * np.eye(60)
    rewards = np.linalg.cholesky(K) @ np.random.default_rng(1).standard_normal(
        (60, draws)
    )
    off = []
    for path in rewards.T:
        gp = StreamingGP(kernel, NOISE, timed=True, forget=forget)
        for start in range(0, 60, 3):
            gp.observe(keys[start : start + 3], path[start : start + 3])
        assert dropped(gp)
        mean, std = gp.predict(ask)
        assert std is not None
        exact = kernel(ask, keys) @ np.linalg.solve(K, path)
        off.append(float((mean[0] - exact[0]) / std[0]))
    assert np.mean(np.square(off)) < forget**2 * (1.0 + 5.0 * math.sqrt(2.0 / draws))
    assert np.mean(np.square(off)) > 0.0


@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 1000), lateness=st.sampled_from([1, 5, 20]))
def test_the_order_of_arrival_matters_no_more_than_the_tolerance(
    seed: int, lateness: int
) -> None:
    """Each order is within forget (and forget²) of the exact posterior: so are any two of each other."""
    kernel, forget = KERNELS["product"], 1e-3
    keys, normals = rounds(120, seed)
    rewards = np.linalg.cholesky(kernel(keys) + NOISE * np.eye(120)) @ normals
    rng = np.random.default_rng(seed)
    order = np.argsort(np.arange(120) + rng.uniform(0.0, lateness, 120))
    unforgetting = StreamingGP(kernel, NOISE, timed=True, form="cholesky")
    unforgetting.observe(keys, rewards)
    gp = StreamingGP(kernel, NOISE, timed=True, forget=forget)
    for part in np.array_split(order, 50):
        gp.observe(keys[part], rewards[part])
    ask = np.column_stack([rng.random((9, 2)), np.full(9, 120.0)])
    (mean, std), (exact, smaller) = gp.predict(ask), unforgetting.predict(ask)
    assert std is not None
    assert smaller is not None
    assert (std**2 - smaller**2 > -1e-12).all()
    assert (std**2 - smaller**2 <= forget**2 * std**2 + 1e-12).all()
    # Rewards are of the model, so that a difference is normal: 6 deviations leave 135 of them 3e-7.
    assert (np.abs(mean - exact) < 6.0 * forget * std).all()


# --- stored observations -----------------------------------------------------------------


@pytest.mark.parametrize("at_once", [1, 3])
def test_rank_stays_below_a_limit(at_once: int) -> None:
    """Old rows are dropped when they are a third: at most 3/2 of those in the window are held."""
    kernel, forget = KERNELS["product"], 1e-3
    width = window(kernel, forget)
    most = 1.5 * at_once * (math.floor(width) + 1) + at_once
    gp, rng = (
        StreamingGP(kernel, NOISE, timed=True, forget=forget),
        np.random.default_rng(0),
    )
    ranks = []
    for step in range(1, 400):
        offer = Offer(step=step, arms=Arms.numbered(rng.random((5, 2))))
        gp.belief(offer)
        gp.observe(gp.keys(offer)[:at_once], rng.standard_normal(at_once))
        assert gp.rank == len(gp.observed.rewards) <= most
        assert gp.rank + dropped(gp) == gp.count
        ranks.append(gp.rank)
        assert gp.observed.arms[:, 2].max() == step
    assert min(ranks[int(2 * width) :]) >= at_once * math.floor(width)
    assert dropped(gp) > 2 * gp.rank
    assert len(gp.state().arrays["rewards"]) == gp.rank


def test_outdated_feedback_is_counted_but_not_learned() -> None:
    kernel, forget = KERNELS["product"], 1e-3
    width = window(kernel, forget)
    gp, reference = (
        StreamingGP(kernel, NOISE, timed=True, forget=forget) for _ in range(2)
    )
    keys = np.array(
        [[0.1, 0.2, 100.0], [0.3, 0.2, 100.0 - width - 0.1], [0.3, 0.2, 101.0 - width]]
    )
    gp.observe(keys[:1], [1.0])
    gp.observe(keys[1:], [5.0, 2.0])
    gp.observe(keys[1:2], [5.0])
    reference.observe(keys[[0, 2]], [1.0, 2.0])
    assert (gp.count, gp.forgotten, dropped(gp), gp.rank) == (4, 2, 0, 2)
    ask = np.array([[0.2, 0.2, 100.0]])
    np.testing.assert_allclose(
        gp.predict(ask).mean, reference.predict(ask).mean, atol=1e-13
    )
    restored = gp.restored(state_from_bytes(state_to_bytes(gp.state())))
    assert (restored.count, restored.forgotten, dropped(restored)) == (4, 2, 0)
    both = StreamingGP(kernel, NOISE, timed=True, forget=forget)
    both.observe(keys, [1.0, 5.0, 2.0])  # also where newer ones come in the same call
    assert (both.forgotten, both.rank) == (1, 2)


def test_restored_posterior_continues_as_if_uninterrupted() -> None:
    gp = StreamingGP(KERNELS["product"], NOISE, timed=True, forget=1e-2)
    keys, rewards = rounds(150)
    for start in range(0, 150, 2):
        gp.observe(keys[start : start + 2], rewards[start : start + 2])
        restored = gp.restored(state_from_bytes(state_to_bytes(gp.state())))
        assert (restored.rank, dropped(restored), restored.count) == (
            gp.rank,
            dropped(gp),
            gp.count,
        )
        ask = keys[start : start + 3]
        np.testing.assert_allclose(
            restored.predict(ask).mean, gp.predict(ask).mean, atol=1e-10
        )
        if start % 30 == 0:
            gp = restored
    assert dropped(gp) > 50
    state = gp.state()
    for changed in ({"forgotten": -1}, {"forgotten": 151}, {"count": gp.rank - 1}):
        damaged = type(state)(
            kind=state.kind,
            schema=state.schema,
            scalars={**state.scalars, **changed},
            arrays=state.arrays,
            spec=state.spec,
        )
        with pytest.raises(StateError):
            gp.restored(damaged)


@pytest.mark.parametrize(
    "options",
    [
        {"forget": 1e-6},
        {"forget": 0.0, "timed": True},
        {"forget": 0.7, "timed": True},
        {"forget": float("nan"), "timed": True},
        {"forget": 1e-6, "timed": True, "inducing": 5},
        {"forget": 1e-6, "timed": True, "form": "finite-rank"},
    ],
)
def test_invalid_options_are_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="forget"):
        StreamingGP(SPACE * FAST, NOISE, **options)


@pytest.mark.parametrize(
    "kernel",
    [SPACE, SPACE + FAST, FAST * Linear(), SPACE * Temporal(epsilon=0.1, column=1)],
)
def test_a_kernel_that_never_forgets_is_refused(kernel: Kernel) -> None:
    gp = StreamingGP(kernel, NOISE, timed=True, forget=1e-6)
    offer = Offer(step=3, arms=Arms.numbered(np.zeros((1, 2))))
    for ask in (lambda: gp.belief(offer), lambda: gp.observe([[0.0, 0.0, 3.0]], [1.0])):
        with pytest.raises(InputError, match=r"Temporal\(epsilon=0.01, column=2\)"):
            ask()
    assert gp.count == 0


def test_query_about_forgotten_times_raises() -> None:
    kernel = Matern(nu=2.5, columns=(0,)) * Temporal(epsilon=0.2, column=1)
    gp = StreamingGP(kernel, 0.1, timed=True, forget=1e-3)
    for step in range(200):
        gp.observe([[0.5, float(step)]], [5.0])
    assert gp.predict([[0.5, 199.0], [0.5, 1e6]]).mean[0] > 4.0
    with pytest.raises(
        ForgottenError, match=r"time 3 is forgotten: .* ask about later times"
    ):
        gp.predict([[0.5, 199.0], [0.5, 3.0]])
