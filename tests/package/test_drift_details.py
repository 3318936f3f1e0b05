"""Details of drifting rewards: results that a wrong sign or number would change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from superarm.core import Arms, Offer
from superarm.kernels import Matern, Periodic, SquaredExponential, Temporal
from superarm.posteriors import DriftingGP

NOISE = 0.05
ARMS = np.random.default_rng(0).random((25, 2))
ROUGH = Matern(nu=2.5, lengthscale=0.3, variance=2.0)
LINE = np.linspace(0.0, 1.0, 700)[:, None]


# --- posteriors -----------------------------------------------------------------------


def test_prior_mean_is_part_of_the_posterior() -> None:
    level = np.linspace(-3.0, 5.0, 25)
    keys, rewards = np.array([[3, 1.0], [7, 2.0], [3, 4.0]]), np.array([1.0, 2.0, 3.0])
    gp, plain = (DriftingGP(ROUGH, ARMS, NOISE, mean) for mean in (level, 0.0))
    gp.observe(keys, rewards)
    plain.observe(keys, rewards - level[keys[:, 0].astype(int)])
    for time in (0.5, 3.0, 9.0):
        queries = np.column_stack([np.arange(25), np.full(25, time)])
        np.testing.assert_allclose(
            gp.predict(queries).mean, level + plain.predict(queries).mean
        )
    now = gp.predict([[3, 4.0], [7, 4.0]]).mean
    assert gp.incumbent == pytest.approx(now.max())


def test_steps_are_different_times() -> None:
    gp = DriftingGP(ROUGH, ARMS, NOISE)
    for time in (1.0, 1.0, 2.0, 2.0, 2.0, 5.0):
        gp.observe([[0, time]], [1.0])
    assert gp.state().scalar("steps") == 3


def test_the_past_while_the_form_changes() -> None:
    """A question is followed through the moment at which the visited form is folded."""
    drift = Temporal(epsilon=0.1)
    gp, same = (
        DriftingGP(Matern(nu=2.5, lengthscale=0.5), LINE, NOISE, drift=drift, form=form)
        for form in ("auto", "visited")
    )
    rows = np.random.default_rng(0).permutation(700)[:220]
    for step, row in enumerate(rows):
        for posterior in (gp, same):
            posterior.observe([[row, step]], [np.sin(step)])
    assert gp.form == "folded"
    queries = [[5, -1.0], [600, 50.0]]  # the first of them before all that was seen
    np.testing.assert_allclose(
        gp.predict(queries).mean, same.predict(queries).mean, atol=1e-9
    )
    assert gp.state().scalar("steps") == 220


def test_truncation_is_relative_to_the_total_variance() -> None:
    """The same process, its variance in the kernel or in the drift."""
    kernel, sizes = SquaredExponential(lengthscale=0.3), []
    for own, over_time in ((1e4, 1.0), (1.0, 1e4)):
        drift = Matern(nu=0.5, lengthscale=20.0, variance=over_time)
        gp = DriftingGP(own * kernel, LINE, 1e4 * NOISE, drift=drift, form="folded")
        for step in range(200):
            gp.observe([[37 * step % 700, step]], [1.0])
        sizes.append((gp.rank, gp.tolerance))
    assert sizes[0][0] == sizes[1][0]
    assert sizes[0][1] == pytest.approx(sizes[1][1], rel=0.5, abs=0.0)


def test_truncation_errors_decay_and_accumulate() -> None:
    gp = DriftingGP(
        SquaredExponential(), LINE, NOISE, drift=Temporal(epsilon=0.05), form="folded"
    )
    for step in range(400):
        gp.observe([[37 * step % 700, step]], [1.0])
    left_out = gp.tolerance
    assert 0.0 < left_out <= 1e-12
    gp.observe([[0, 499.0]], [1.0])  # 100 later: 0.95^100 of it remains
    assert gp.tolerance == pytest.approx(left_out * 0.95**100, rel=1e-9, abs=0.0)


@pytest.mark.parametrize("nu", [0.5, 1.5])
def test_truncation_errors_decay_in_states_of_any_size(nu: Any) -> None:
    """After twenty lengthscales; what is known then has faded by far more than 1e-6 itself."""
    gp = DriftingGP(
        ROUGH, ARMS, NOISE, drift=Matern(nu=nu, lengthscale=5.0), form="folded"
    )
    gp.observe([[0, 1.0]], [1.0])
    gp._form.error = 1e-13
    gp.observe([[1, 101.0]], [1.0])
    assert 0.0 < gp._form.error < 1e-6 * 1e-13


def test_accumulated_truncation_is_within_the_stated_bound() -> None:
    gp = DriftingGP(
        SquaredExponential(lengthscale=0.1),
        LINE,
        NOISE,
        drift=Temporal(epsilon=0.0),
        form="folded",
    )
    for step in range(700):
        gp.observe([[37 * step % 700, step]], [1.0])
        assert gp.tolerance <= 1e-12
    assert DriftingGP.from_state(gp.state()).tolerance == gp.tolerance > 0.0


def test_only_negligible_observations_are_forgotten() -> None:
    """Times half as far apart: checkpoints are 16 apart, and 1e-13 remains after 19.98."""
    gp = DriftingGP(ROUGH, ARMS, NOISE, drift=Temporal(epsilon=0.95))
    for step in range(300):
        gp.observe([[step % 25, 0.5 * step]], [1.0])
        forgotten = gp.state().scalar("forgotten")
        assert forgotten is None or 0.5 * step - forgotten >= 19.98
    gp.observe([[3, forgotten]], [9.0])  # the last moment that is forgotten
    assert gp.ignored == 1
    with pytest.raises(Exception, match="is forgotten"):
        gp.predict([[3, forgotten]])


@pytest.mark.parametrize("restart", [False, True])
def test_late_feedback_after_little_noise_keeps_the_form(restart: bool) -> None:
    gp = DriftingGP(
        Matern(nu=0.5, lengthscale=0.05),
        np.random.default_rng(0).random((600, 2)),
        NOISE,
    )
    gp.observe([[0, 1.0]], [1.0])
    gp.observe([[1, 3.0]], [1.0], [1e-7])
    assert gp.form == "folded"
    gp.observe([[2, 4.0]], [1.0])
    gp = DriftingGP.from_state(gp.state()) if restart else gp
    gp.observe([[3, 2.0]], [1.0])
    assert gp.form == "folded"


def test_large_temporal_state_allows_fewer_features() -> None:
    arms = np.random.default_rng(0).random((300, 2))
    short, smooth = Matern(nu=0.5, lengthscale=0.05), Matern(nu=1.5, lengthscale=9.0)
    assert DriftingGP(short, arms, NOISE).form == "kalman"
    assert (
        DriftingGP(short, arms, NOISE, drift=smooth).form == "visited"
    )  # 2 · 300 > 512


def test_information_after_forgetting_and_a_restart() -> None:
    gp = DriftingGP(ROUGH, ARMS, NOISE, drift=Temporal(epsilon=0.95))
    for step in range(300):
        if step != 290:
            gp.observe([[step % 25, step]], [1.0])
    restored = DriftingGP.from_state(gp.state())
    for posterior in (gp, restored):
        posterior.observe([[3, 290.0]], [1.0])
    assert restored.information_gain == pytest.approx(gp.information_gain, rel=1e-3)


@pytest.mark.parametrize("form", ["folded", "visited"])
def test_a_restored_form_turns_at_the_same_round(form: Any) -> None:
    wanted = "auto" if form == "visited" else form
    kernel = (
        Matern(nu=0.5, lengthscale=0.05)
        if form == "visited"
        else SquaredExponential(lengthscale=0.1)
    )
    arms = np.random.default_rng(0).random((1400, 2)) if form == "visited" else LINE
    gp = DriftingGP(kernel, arms, NOISE, drift=Temporal(epsilon=0.001), form=wanted)
    restored = None
    for step in range(260):
        if step == 180:
            restored = DriftingGP.from_state(gp.state())
            assert gp.form == form
            assert restored.state().scalars == gp.state().scalars
        for posterior in (gp, restored) if restored else (gp,):
            posterior.observe([[37 * step % 700, step]], [1.0])
            assert (posterior.rank, posterior.form) == (gp.rank, gp.form)


def test_an_arm_that_comes_twice_is_one_visit() -> None:
    gp = DriftingGP(ROUGH, ARMS, NOISE, form="visited")
    gp.observe([[3, 1.0], [3, 1.0], [4, 1.0]], [1.0, 2.0, 3.0])
    assert gp.rank == 2


def test_the_least_noise_of_each_form() -> None:
    """Relative to the variance: 1e-2 (visited), 1e4 errors of a feature (kalman)."""
    axis, short = np.linspace(0.0, 1.0, 24), Matern(nu=0.5, lengthscale=0.05)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    assert [DriftingGP(short, grid, noise).form for noise in (2e-2, 5e-3)] == [
        "visited",
        "folded",
    ]
    smooth = SquaredExponential(lengthscale=0.3)
    assert [DriftingGP(smooth, grid, noise).form for noise in (1e-8, 1e-11)] == [
        "kalman",
        "folded",
    ]
    large = Matern(nu=0.5, lengthscale=30.0, variance=1e6)
    assert DriftingGP(smooth, grid, 1e-5, drift=large).form == "folded"
    assert DriftingGP(1e6 * smooth, grid, 1e-5).form == "folded"


def test_the_tolerance_counts_features_and_the_state_of_time() -> None:
    grid = np.linspace(0.0, 1.0, 600)[:, None]
    gp = DriftingGP(SquaredExponential(lengthscale=0.3), grid, NOISE)
    assert gp.form == "kalman"
    assert 0.0 < gp.tolerance <= 1e-12
    daily = Periodic(period=24.0, lengthscale=1.0)
    gp = DriftingGP(
        ROUGH, ARMS, NOISE, drift=daily, form="visited", time_tolerance=1e-3
    )
    assert gp.tolerance == pytest.approx(2.0 * daily.state_space(1e-3).error)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["folded", "visited", "kalman"])
def test_several_at_the_times_of_checkpoints(form: Any) -> None:
    """Two calls at each time, and a third reward of every time late: equal to all at once."""
    rng = np.random.default_rng(0)
    rows, rewards = rng.integers(0, 25, (3, 100)), rng.standard_normal((3, 100))
    gp, at_once = (DriftingGP(ROUGH, ARMS, NOISE, form=form) for _ in range(2))
    for time in range(100):
        for turn in (0, 1):
            gp.observe([[rows[turn, time], time]], [rewards[turn, time]])
    assert gp.state().scalar("steps") == 100
    for time in range(100):  # the last word on a time is its own
        gp.observe([[rows[2, time], time]], [rewards[2, time]])
    keys = np.column_stack([rows.ravel(), np.tile(np.arange(100.0), 3)])
    at_once.observe(keys, rewards.ravel())
    queries = np.column_stack([np.arange(25), np.full(25, 101.0)])
    np.testing.assert_allclose(
        gp.predict(queries).mean, at_once.predict(queries).mean, atol=1e-9
    )
    np.testing.assert_allclose(
        gp.predict(queries).std, at_once.predict(queries).std, atol=1e-9
    )
    assert gp.information_gain == pytest.approx(at_once.information_gain)
    restored = DriftingGP.from_state(gp.state())
    assert restored.state().scalars == gp.state().scalars


def test_cached_answers_about_the_past_expire() -> None:
    gp, reference = DriftingGP(ROUGH, ARMS, NOISE), DriftingGP(ROUGH, ARMS, NOISE)
    gp.observe([[0, 1.0], [1, 5.0]], [1.0, 2.0])
    gp.predict([[0, 2.0]])
    gp.observe([[0, 6.0]], [-3.0])
    reference.observe([[0, 1.0], [1, 5.0], [0, 6.0]], [1.0, 2.0, -3.0])
    np.testing.assert_allclose(
        gp.predict([[0, 2.0]]).mean, reference.predict([[0, 2.0]]).mean
    )


@pytest.mark.parametrize("form", ["folded", "visited", "kalman"])
def test_failed_batch_has_no_side_effects(
    form: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gp = DriftingGP(ROUGH, ARMS, NOISE, form=form)
    gp.observe([[0, 1.0]], [1.0])
    before = gp.predict([[0, 4.0], [1, 4.0]])
    monkeypatch.setattr("superarm.posteriors.drifting.form.cholesky", lambda *_: 1 / 0)
    with pytest.raises(
        ZeroDivisionError
    ):  # the first is the only one at its time, and is learned first
        gp.observe([[1, 2.0], [2, 3.0], [3, 3.0]], [5.0] * 3)
    np.testing.assert_array_equal(gp.predict([[0, 4.0], [1, 4.0]]), before)


def test_all_that_has_faded_is_forgotten_at_once() -> None:
    gp = DriftingGP(ROUGH, ARMS, NOISE, drift=Temporal(epsilon=0.95))
    for time in [*np.arange(0.0, 20.0, 0.1), *np.arange(100.0, 140.0)]:
        gp.observe([[3, time]], [1.0])
    assert len(gp.remembered.noise) <= 40 + 32


@pytest.mark.parametrize("form", ["folded", "visited", "kalman"])
def test_draws_of_one_moment_of_the_past(form: Any) -> None:
    gp = DriftingGP(ROUGH, ARMS, NOISE, drift=Temporal(epsilon=0.5), form=form)
    gp.observe([[0, 1.0], [5, 30.0]], [1.0, 1.0])
    queries = [[0, 1.0], [1, 1.0]]
    draws, std = (
        gp.sample(queries, np.random.default_rng(0), size=4000),
        gp.predict(queries).std,
    )
    np.testing.assert_allclose(draws.std(axis=0), std, rtol=0.08)


# --- kernels --------------------------------------------------------------------------


def test_errors_of_sums_add_up() -> None:
    from superarm.kernels.state_space import add_states

    parts = [
        Periodic(period=period, lengthscale=1.0).state_space(1e-2)
        for period in (24.0, 7.0)
    ]
    assert add_states(parts).error == pytest.approx(parts[0].error + parts[1].error)


def test_errors_of_scaled_kernels_and_long_times() -> None:
    daily = Periodic(period=24.0, lengthscale=1.0)
    error = daily.state_space(1e-3).error
    assert (4.0 * daily).state_space(1e-3).error == pytest.approx(4.0 * error)
    space = daily.state_space()
    far = space.transition(24e6 + 6.0)  # a million days and six hours
    np.testing.assert_allclose(far, space.transition(6.0), atol=1e-12)


def test_very_many_terms() -> None:
    """As two more lines of CUT, and a refusal."""
    rough = Periodic(period=5.0, lengthscale=0.02)
    space, apart = rough.state_space(1e-6), np.array([0.0, 0.01, 0.05, 2.0])
    computed = [space.output @ space.transition(lag) @ space.output for lag in apart]
    np.testing.assert_allclose(
        computed, rough(apart[:, None], [[0.0]])[:, 0], atol=2e-6
    )
    with pytest.raises(Exception, match="more than 1024 terms"):
        Periodic(period=5.0, lengthscale=1e-3).state_space()


# --- kernels --------------------------------------------------------------------------


def test_the_higher_of_two_tops() -> None:
    """One at the lower bound, one at 0.41, which is higher by 0.1."""
    from superarm.kernels import fit_drift

    fit = fit_drift([[1.0]], [[-0.4], [1.3], [0.9], [0.2], [0.2]], noise_variance=0.3)
    assert fit.epsilon == pytest.approx(0.41, abs=0.03)


# --- posteriors -----------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [4, 40])
def test_information_does_not_depend_on_how_many_come_at_once(at_once: int) -> None:
    from superarm.posteriors import ChangeDetecting, FiniteGP

    gps = [
        ChangeDetecting(FiniteGP(ROUGH, ARMS[:6], NOISE), run_length=50.0, scale=2.0)
        for _ in range(2)
    ]
    keys = np.column_stack([np.arange(40) % 6, np.arange(1, 41)])
    rewards = np.where(np.arange(40) < 18, 1.0, -3.0)
    for gp, size in zip(gps, (1, at_once), strict=True):
        for part in np.array_split(np.arange(40), 40 // size):
            gp.observe(keys[part], rewards[part])
    assert gps[0].alarms == gps[1].alarms != ()
    assert gps[1].information_gain == pytest.approx(gps[0].information_gain)
    calm, single = (
        ChangeDetecting(FiniteGP(ROUGH, ARMS[:6], NOISE)),
        FiniteGP(ROUGH, ARMS[:6], NOISE),
    )
    calm.observe(keys[:9], np.zeros(9))
    single.observe(keys[:9, 0], np.zeros(9))
    assert calm.information_gain == pytest.approx(single.information_gain)


def test_feedback_of_the_first_retained_step_is_learned() -> None:
    from superarm.posteriors import ChangeDetecting, FiniteGP

    gp = ChangeDetecting(
        FiniteGP(SquaredExponential(), [[0.0], [1.0]], noise_variance=0.01)
    )
    for step in range(1, 40):
        gp.observe([[0, step]], [1.0 if step < 30 else -1.0])
    assert gp.alarms[-1].since == 30
    gp.observe([[1, 30], [1, 29]], [-1.0, 1.0])
    assert gp.ignored == 1


# --- posteriors -----------------------------------------------------------------------


def test_restored_posterior_counts_earlier_fits() -> None:
    from superarm.posteriors import Refitting, StreamingGP

    gp = Refitting(StreamingGP(SquaredExponential(), 0.1), every=3)
    for x in range(7):
        gp.observe([[0.3 * x]], [np.sin(x)])
    assert gp.fits == 2
    assert gp.restored(gp.state()).fits == 2


def test_the_noise_may_grow_ten_thousandfold() -> None:
    from superarm.posteriors import Refitting, StreamingGP

    gp = Refitting(StreamingGP(SquaredExponential(), 1e-4), every=60)
    gp.observe(
        np.linspace(0.0, 3.0, 60)[:, None], np.random.default_rng(0).standard_normal(60)
    )
    assert 0.1 < gp.fitted["noise_variance"] <= 1.0
    assert gp.noise_std == pytest.approx(np.sqrt(gp.noise_variance))


# --- posteriors -----------------------------------------------------------------------


def test_wrapper_of_a_sampling_posterior_samples() -> None:
    from superarm.posteriors import FiniteGP, Resetting

    inside = FiniteGP(ROUGH, ARMS, NOISE)
    inside.draws, inside.exchangeable = True, False  # as a variational one
    assert Resetting(inside, block=3).draws
    assert not Resetting(inside, block=3).exchangeable


# --- posteriors -----------------------------------------------------------------------


def test_refactorisation_is_rare(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from superarm.posteriors import StreamingGP
    from superarm.posteriors.streaming.cholesky import CholeskyForm

    kernel = SquaredExponential(columns=(0,)) * Temporal(epsilon=0.5, column=1)
    gp, fit, sizes = (
        StreamingGP(kernel, NOISE, timed=True, forget=1e-6),
        CholeskyForm.fit,
        [],
    )

    def count_text(kernel: Any, data: Any, residual: Any) -> Any:
        sizes.append(len(residual))
        return fit(kernel, data, residual)

    monkeypatch.setattr(CholeskyForm, "fit", count_text)
    for step in range(200):
        gp.observe([[0.1 * (step % 7), step]], [1.0])
    assert 0 < len(sizes) <= 12  # the window is 39.9, and a third must be old


# --- policies -------------------------------------------------------------------------


def test_the_block_by_cross_validation_of_costs() -> None:
    import dataclasses

    from superarm.lab.problems.series import traffic_series
    from superarm.policies.drift import r_gp_ucb

    model = traffic_series(seed=0, horizon=30, source="synthetic").model
    model = dataclasses.replace(model, past=model.past[:2, :10])
    costs = dataclasses.replace(
        model, past=-model.past, mean=-model.mean, direction="minimize"
    )
    assert (
        r_gp_ucb(costs, block="learned").interpretations
        == r_gp_ucb(model, block="learned").interpretations
    )


def test_in_round_1_the_genie_of_costs_plays_the_least_prior_mean() -> None:
    from types import SimpleNamespace

    from superarm.policies.scores import LastTruth

    world: Any = SimpleNamespace(
        model=SimpleNamespace(arms=LINE[:3], mean=np.array([2.0, 1.0, 3.0])),
        direction="minimize",
    )
    offer = Offer(step=1, arms=Arms.numbered(LINE[:3]))
    scores = LastTruth(problem=world).desirability(offer, np.random.default_rng(0))
    assert scores.tolist() == [-2.0, -1.0, -3.0]


# --- policies -------------------------------------------------------------------------


def test_state_is_not_changed_by_later_learning() -> None:
    from superarm.core import Decision, Feedback
    from superarm.policies import Exp3

    policy = Exp3(arms=LINE[:4], block=50, low=0.0, high=1.0)
    offer = Offer(step=1, arms=Arms.numbered(LINE[:4]))
    decision = Decision(step=1, action=None, positions=np.array([2]), propensity=0.25)
    feedback = Feedback(positions=np.array([2]), rewards=np.array([1.0]))
    weights = policy._weights  # another thread decides by these
    policy.learn(offer, decision, feedback, np.random.default_rng(0))
    assert not weights.logs.any()


# --- problems -------------------------------------------------------------------------


def test_rush_hours_by_hand() -> None:
    """r · strength · (fast + u_t) with u_t from the stream, u_{t+1} = √(1 − ε) u_t + √ε g_{t+1}."""
    from superarm.core.streams import Streams
    from superarm.roads.problems.conditions import RushHours
    from superarm.roads.problems.navigation import Navigation

    options: dict[str, Any] = {
        "seed": 3,
        "horizon": 60,
        "network": "city",
        "edges": 300,
    }
    world = Navigation(**options, rush_hours=2.0, day_to_day=0.2)
    std, n = 0.25 * float(np.std(world.model.energies)), len(world.graph)
    draws = [
        world._root.times(Streams(3, "rush-hours").at(t).standard_normal((1, n)))[0]
        for t in range(1, 13)
    ]
    mood = draws[0]
    for drawn in draws[1:10]:
        mood = np.sqrt(0.8) * mood + np.sqrt(0.2) * drawn
    world.means(world.offer(12))  # later rounds first
    fast = std * world.graph.speed / world.graph.speed.max()
    added = world.means(world.offer(10)) - world.energies
    np.testing.assert_allclose(
        added, 2.0 * RushHours.rush(10) * (fast + mood), atol=1e-9
    )
    assert RushHours.rush(10) == pytest.approx(
        np.exp(-0.5 / 2.25) + np.exp(-0.5 * 16.0)
    )
    assert RushHours.rush(19) == pytest.approx(
        np.exp(-0.5 / 4.0) + np.exp(-0.5 * (10 / 1.5) ** 2)
    )


def test_costs_of_one_hour_are_not_those_of_another() -> None:
    from superarm.roads.problems.navigation import Navigation

    options: dict[str, Any] = {
        "seed": 3,
        "horizon": 60,
        "network": "city",
        "edges": 300,
    }
    world, other = (
        Navigation(**options, rush_hours=2.0, day_to_day=0.1) for _ in range(2)
    )
    early = world.scores(world.offer(1))
    rush = world.scores(world.offer(9))
    np.testing.assert_array_equal(rush, other.scores(other.offer(9)))
    assert np.abs(rush - early).max() > 1.0
    drift = world.model.drift  # half persists, half recurs daily
    covariances = [drift([[0.0]], [[apart]]).item() for apart in (0.0, 12.0, 24.0)]
    assert covariances == pytest.approx(
        [1.0, 0.5 + 0.5 * 0.9**6 * np.exp(-2.0), 0.5 + 0.5 * 0.9**12]
    )


# --- theory ---------------------------------------------------------------------------


def test_unfilled_blocks_are_not_evaluated() -> None:
    from superarm.lab.theory import regret_bound_r_gp_ucb

    def gamma(t: int) -> float:
        assert t <= 10
        return float(t)

    options: dict[str, Any] = {
        "epsilon": 0.01,
        "arms": 9,
        "noise_variance": 0.1,
        "delta": 0.1,
    }
    bounds = regret_bound_r_gp_ucb([5, 10], gamma, block=20, **options)
    assert np.isfinite(bounds).all()
