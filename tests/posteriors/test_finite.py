"""FiniteGP: its forms against each other, against StreamingGP and against a fresh solve."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import numpy as np
import pytest
from compare_posteriors import assert_prediction
from hypothesis import given, settings
from hypothesis import strategies as st

from superarm.core import Arms, Floats, Ints, JointPrediction, Offer
from superarm.core.errors import (
    InputError,
    JitterWarning,
    MissingExtraError,
    NotPositiveDefiniteError,
    UnknownArmError,
    require_extra,
)
from superarm.core.states import state_to_bytes as state_bytes
from superarm.kernels import Empirical, Linear, Matern, SquaredExponential
from superarm.posteriors import FiniteGP, StreamingGP, finite

try:
    require_extra("numba", "fast")
    FORMS = [("root", "numpy"), ("root", "numba"), ("visited", "auto")]
except MissingExtraError:
    FORMS = [("root", "numpy"), ("visited", "auto")]

stable = settings(max_examples=25)
seeds = st.integers(0, 100_000)
forms = pytest.mark.parametrize(("form", "backend"), FORMS)
SMOOTH = SquaredExponential(lengthscale=0.5, variance=1.5)
ROUGH = Matern(nu=1.5, lengthscale=0.4)


def merged(
    kernel: Any, arms: Floats, rows: Ints, y: Floats, noise: Floats, mean: Any = 0.0
) -> JointPrediction:
    """The slow, obvious posterior over all arms; an arm's observations count as their weighted mean."""
    prior = np.broadcast_to(mean, len(arms))
    weight = np.bincount(rows, 1.0 / noise, len(arms))
    seen = np.flatnonzero(weight)
    average = np.bincount(rows, y / noise, len(arms))[seen] / weight[seen]
    cross = kernel(arms, arms[seen])
    total = kernel(arms[seen]) + np.diag(1.0 / weight[seen])
    return JointPrediction(
        prior + cross @ np.linalg.solve(total, average - prior[seen]),
        kernel(arms) - cross @ np.linalg.solve(total, cross.T),
    )


def assert_posterior(gp: FiniteGP, expected: JointPrediction, **limits: float) -> None:
    assert_prediction(gp, np.arange(len(gp.arms)), expected, **limits)


# --- the forms are one posterior -----------------------------------------------------------


@stable
@given(
    seeds,
    st.lists(st.integers(1, 14), min_size=1, max_size=40),
    st.sampled_from([SMOOTH, ROUGH]),
    st.booleans(),
)
def test_all_forms_equal_streaming_and_a_fresh_solve(
    seed: int, blocks: list[int], kernel: Any, own_noise: bool
) -> None:
    rng = np.random.default_rng(seed)
    arms = rng.random((int(rng.integers(2, 50)), 2))
    prior = rng.standard_normal(len(arms))
    posteriors = [
        FiniteGP(kernel, arms, 0.1, prior, form=form, backend=backend)  # type: ignore[arg-type]
        for form, backend in FORMS
    ]
    stream = StreamingGP(kernel, 0.1, form="cholesky")
    rows = [
        rng.integers(0, len(arms), 1 if i % 2 else block)
        for i, block in enumerate(blocks)
    ]
    rewards = [rng.standard_normal(len(part)) for part in rows]
    noises = [
        np.full(len(part), 0.1) if own_noise else rng.uniform(0.02, 2.0, len(part))
        for part in rows
    ]
    for positions, y, noise in zip(rows, rewards, noises, strict=True):
        for gp in posteriors:
            gp.observe(positions, y, None if own_noise else noise)
        stream.observe(arms[positions], y - prior[positions], noise)
    all_rows, all_y, all_noise = map(np.concatenate, (rows, rewards, noises))
    expected = merged(kernel, arms, all_rows, all_y, all_noise, prior)
    for gp in posteriors:
        assert_posterior(gp, expected, scale=1.5)
        assert gp.information_gain == pytest.approx(stream.information_gain, rel=1e-9)
        assert gp.count == len(all_y)
        np.testing.assert_array_equal(gp.visited, np.unique(all_rows))
        assert gp.incumbent == pytest.approx(expected.mean[all_rows].max(), abs=1e-8)
    streamed = stream.predict(arms, return_cov=True)
    assert isinstance(streamed, JointPrediction)
    moved = JointPrediction(streamed.mean + prior, streamed.cov)
    assert_posterior(posteriors[0], moved, scale=1.5)


@forms
@pytest.mark.parametrize("arms_played", [3, 31, 32, 33, 80])
def test_finite_gp_is_exact_for_settled_and_wandering_policies(
    form: Any, backend: Any, arms_played: int
) -> None:
    """Around the number of arms that may be pending, one at a time and in small super arms."""
    rng = np.random.default_rng(arms_played)
    arms = rng.random((80, 2))
    gp = FiniteGP(SMOOTH, arms, 0.05, form=form, backend=backend)
    taken, rewards = [], []
    for step in range(400):
        positions = rng.integers(0, arms_played, 1 + (step % 7 == 0) * 3)
        y = rng.standard_normal(len(positions))
        gp.observe(positions, y)
        taken.append(positions)
        rewards.append(y)
    rows, y = np.concatenate(taken), np.concatenate(rewards)
    assert_posterior(
        gp, merged(SMOOTH, arms, rows, y, np.full(len(y), 0.05)), scale=1.5
    )


@forms
def test_three_thousand_rounds_do_not_drift(form: Any, backend: Any) -> None:
    assert_no_drift(form, backend, 3000, 1e-9)


@pytest.mark.slow
@forms
def test_thirty_thousand_rounds_do_not_drift(form: Any, backend: Any) -> None:
    assert_no_drift(form, backend, 30_000, 1e-8)


def assert_no_drift(form: Any, backend: Any, rounds: int, tolerance: float) -> None:
    rng = np.random.default_rng(1)
    arms = rng.random((60, 2))
    gp = FiniteGP(SMOOTH, arms, 0.01, 0.5, form=form, backend=backend)
    # Mostly a few favourites, as a policy that has settled plays.
    rows = np.where(
        rng.random(rounds) < 0.9,
        rng.integers(0, 4, rounds),
        rng.integers(0, 60, rounds),
    )
    y = np.sin(6.0 * arms[rows, 0]) + 0.1 * rng.standard_normal(rounds)
    for row, reward in zip(rows, y, strict=True):
        gp.observe([row], [reward])
    expected = merged(SMOOTH, arms, rows, y, np.full(rounds, 0.01), 0.5)
    assert_posterior(gp, expected, scale=1.5, tolerance=tolerance)
    whitened = (
        SMOOTH(arms) * 100.0 * np.sqrt(np.outer(*[np.bincount(rows, minlength=60)] * 2))
    )
    gain = 0.5 * np.linalg.slogdet(np.eye(60) + whitened)[1]
    assert gp.information_gain == pytest.approx(gain, rel=1e-8)


@forms
def test_draws_have_the_posterior_covariance_while_observations_are_pending(
    form: Any, backend: Any
) -> None:
    from superarm.testing.helpers import assert_moments

    rng = np.random.default_rng(2)
    arms = rng.random((7, 2))
    gp = FiniteGP(SMOOTH, arms, 0.05, form=form, backend=backend)
    for row in (0, 1, 1, 4, 0):
        gp.observe([row], [float(row)])
    joint = gp.predict(np.arange(7), return_cov=True)
    assert isinstance(joint, JointPrediction)
    assert_moments(
        gp.sample(np.arange(7), rng, 4000), joint.mean, joint.cov, "all arms"
    )
    some = np.array([5, 1, 5])  # an arm queried twice is one latent reward
    drawn = gp.sample(some, rng, 500)
    np.testing.assert_array_equal(drawn[:, 0], drawn[:, 2])
    belief = gp.belief(Offer(step=1, arms=Arms.numbered(arms)))
    singles = np.array([belief.sample(rng) for _ in range(4000)])
    assert_moments(singles, joint.mean, joint.cov, "one at a time")


# --- scales and hard priors ----------------------------------------------------------------


@forms
@pytest.mark.parametrize("variance", [1e-12, 1e12])
@pytest.mark.parametrize("length", [1e-12, 1e12])
@pytest.mark.parametrize("reward", [1e-12, 1e12])
def test_units_do_not_matter(
    form: Any, backend: Any, variance: float, length: float, reward: float
) -> None:
    rng = np.random.default_rng(3)
    arms = rng.random((20, 2))
    kernel = SquaredExponential(lengthscale=length, variance=variance)
    gp = FiniteGP(kernel, length * arms, 0.1 * variance, form=form, backend=backend)
    rows, y = rng.integers(0, 20, 50), rng.standard_normal(50)
    for start in range(0, 50, 5):
        gp.observe(rows[start : start + 5], reward * y[start : start + 5])
        gp.observe(rows[start : start + 1], [float(reward * y[start])])
    rows = np.concatenate([rows, rows[::5]])
    y = np.concatenate([y, y[::5]])
    mean, cov = merged(SquaredExponential(), arms, rows, y, np.full(60, 0.1))
    got = gp.predict(np.arange(20), return_cov=True)
    assert isinstance(got, JointPrediction)
    np.testing.assert_allclose(got.mean / reward, mean, atol=1e-9)
    np.testing.assert_allclose(got.cov / variance, cov, atol=1e-9)


@forms
@pytest.mark.parametrize("noise", [1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10, 1e-12])
def test_little_noise(form: Any, backend: Any, noise: float) -> None:
    """Exact for a smooth kernel too, where K is singular in floating point, in the root form.

    The visited form carries an inverse of size 1/noise, and refuses what it has no digits for.
    """
    kernel = SMOOTH if form == "root" else ROUGH
    rng = np.random.default_rng(4)
    arms = np.linspace(0.0, 1.0, 40)[:, None]
    if form == "visited" and noise < 1e-4 * float(kernel.diag(arms).max()):
        with pytest.raises(InputError, match="use form='root'"):
            FiniteGP(kernel, arms, noise, form=form, backend=backend)
        gp = FiniteGP(kernel, arms, 0.1, form=form, backend=backend)
        with pytest.raises(InputError, match="use form='root'"):
            gp.observe([0], [1.0], [noise])
        assert gp.count == 0
        return
    gp = FiniteGP(kernel, arms, noise, form=form, backend=backend)
    rows = rng.integers(0, 40, 600)
    y = np.sin(6.0 * arms[rows, 0])
    for step, (row, reward) in enumerate(zip(rows, y, strict=True), start=1):
        gp.observe([row], [float(reward)])
        if step % 60 == 0:
            seen = merged(kernel, arms, rows[:step], y[:step], np.full(step, noise))
            assert_posterior(gp, seen, scale=1.5, tolerance=1e-8)
    assert np.isfinite(gp.information_gain)
    assert np.isfinite(gp.sample(np.arange(40), rng, 3)).all()


@forms
def test_a_prior_without_variance_somewhere(form: Any, backend: Any) -> None:
    """A linear kernel has no variance at the origin."""
    arms = np.array([[0.0], [1.0], [2.0]])
    gp = FiniteGP(Linear(), arms, 0.1, form=form, backend=backend)
    gp.observe([0, 1, 1], [0.3, 1.0, 1.2])
    gp.observe([0], [0.4])
    assert_posterior(
        gp,
        merged(
            Linear(),
            arms,
            np.array([0, 1, 1, 0]),
            np.array([0.3, 1.0, 1.2, 0.4]),
            np.full(4, 0.1),
        ),
        scale=4.0,
    )
    assert np.isfinite(gp.sample([0, 1, 2], np.random.default_rng(0), 4)).all()


@forms
def test_equal_arms_share_everything(form: Any, backend: Any) -> None:
    arms = np.array([[0.5], [0.5], [0.1]])
    gp = FiniteGP(ROUGH, arms, 1e-3, form=form, backend=backend)
    gp.observe([0, 1, 0], [1.0, 2.0, 3.0])
    mean, std = gp.predict([0, 1])
    assert mean[0] == pytest.approx(mean[1], rel=1e-9)
    assert mean[0] == pytest.approx(2.0, rel=1e-3)
    assert std[0] == pytest.approx(np.sqrt(1e-3 / 3.0), rel=1e-3)


class Table:
    """A covariance given as a matrix; arms are its row numbers."""

    def __init__(self, table: Floats) -> None:
        self.table = table

    def __call__(self, X: Floats, Y: Floats | None = None) -> Floats:
        rows, columns = X[:, 0].astype(int), (X if Y is None else Y)[:, 0].astype(int)
        return self.table[np.ix_(rows, columns)]

    def diag(self, X: Floats) -> Floats:
        return np.diagonal(self.table)[X[:, 0].astype(int)]


def test_bad_priors_are_refused() -> None:
    numbers = np.arange(2.0)[:, None]
    indefinite = Table(np.array([[1.0, 1.5], [1.5, 1.0]]))
    with pytest.raises(
        NotPositiveDefiniteError, match="the prior covariance of the arms"
    ):
        FiniteGP(indefinite, numbers, 0.1)
    nearly = Table(np.array([[1.0, 1.0 + 1e-9], [1.0 + 1e-9, 1.0]]))
    with pytest.warns(JitterWarning, match="the nearest factorisation found is used"):
        assert FiniteGP(nearly, numbers, 0.1).tolerance == pytest.approx(2e-9, rel=0.1)
    negative = Table(np.diag([1.0, -1.0]))
    for form in ("root", "visited"):
        with pytest.raises(NotPositiveDefiniteError):
            FiniteGP(negative, numbers, 0.1, form=form)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::superarm.core.errors.JitterWarning")
def test_indefinite_prior_has_no_side_effects() -> None:
    table = np.eye(4)
    table[2, 3] = table[3, 2] = 1.5
    gp = FiniteGP(Table(table), np.arange(4.0)[:, None], 0.01, form="visited")
    gp.observe([0], [1.0])
    before, everyone = state_bytes(gp.state()), np.arange(4)
    mean, std = gp.predict(everyone)
    with pytest.raises(NotPositiveDefiniteError):
        gp.observe([2, 3], [0.0, 0.0])
    assert state_bytes(gp.state()) == before
    np.testing.assert_array_equal(gp.predict(everyone).mean, mean)
    np.testing.assert_array_equal(gp.predict(everyone).std, std)
    gp.observe([0, 1], [1.0, 0.5])
    reference = merged(
        Table(table),
        gp.arms,
        np.array([0, 0, 1]),
        np.array([1.0, 1.0, 0.5]),
        np.full(3, 0.01),
    )
    np.testing.assert_allclose(gp.predict(everyone).mean, reference.mean, atol=1e-10)


# --- scikit-learn --------------------------------------------------------------------------


@forms
def test_it_predicts_as_scikit_learn_does(
    form: Any, backend: Any, sk: Any, regressor: Any
) -> None:
    rng = np.random.default_rng(5)
    arms = rng.random((25, 2))
    kernel = 2.0 * sk.RBF(0.4) + sk.Matern(0.6, nu=2.5)
    rows, y = rng.integers(0, 25, 60), rng.standard_normal(60)
    reference = regressor(kernel, alpha=0.1, optimizer=None).fit(arms[rows], y)
    gp = FiniteGP(kernel, arms, 0.1, form=form, backend=backend)
    for start in range(0, 60, 6):
        gp.observe(rows[start : start + 6], y[start : start + 6])
    assert_posterior(
        gp, JointPrediction(*reference.predict(arms, return_cov=True)), scale=3.0
    )


# --- input ---------------------------------------------------------------------------------


def test_missing_numba_raises_the_same_error_in_every_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(
        sys.modules, "superarm.posteriors.finite._compiled", raising=False
    )
    monkeypatch.delattr(finite, "_compiled", raising=False)
    together = Barrier(4)

    def build(backend: Any) -> Any:
        together.wait()
        try:
            return FiniteGP(ROUGH, [[0.0], [1.0]], 0.1, backend=backend).compiled
        except MissingExtraError as error:
            return str(error)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(build, ["auto"] * 4)) == [False] * 4
        messages = set(pool.map(build, ["numba"] * 4))
    assert messages == {"numba is not installed; run: pip install 'numba>=0.61.2'"}


def test_auto_chooses_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    arms = np.linspace(0.0, 1.0, 30)[:, None]
    assert FiniteGP(ROUGH, arms, 0.1).form == "root"
    monkeypatch.setattr("superarm.posteriors.finite.posterior.ROOT_LARGEST", 10)
    gp = FiniteGP(ROUGH, arms, 0.1)
    assert gp.form == "visited"
    assert gp.rank == 0
    gp.observe([3, 4], [0.0, 1.0])
    assert gp.rank == 2
    assert gp.tolerance == 0.0
    assert FiniteGP(SMOOTH, arms, 0.1, form="root").rank < 15


def test_constructor_mistakes_are_named() -> None:
    arms = [[0.0], [1.0]]
    bad: Any
    for bad, words in (
        ({"form": "fast"}, "form is 'fast'"),
        ({"backend": "gpu"}, "backend is 'gpu'"),
        ({"mean": [1.0, 2.0, 3.0]}, "mean has 3 entries"),
        ({"mean": np.nan}, r"mean must be .*, got nan"),
        ({"noise_variance": 0.0}, "noise_variance"),
        ({"arms": np.empty((0, 1))}, "the arm set is empty"),
        ({"arms": [0.0, 1.0]}, "arms must be two-dimensional"),
    ):
        with pytest.raises(InputError, match=words):
            FiniteGP(**({"kernel": ROUGH, "arms": arms, "noise_variance": 0.1} | bad))


@forms
@pytest.mark.parametrize(
    "arms",
    [
        [3],
        [-1],
        [1.0],
        [True],
        ["0"],
        [[0]],
        [None],
        [np.nan],
        0,
        np.array(0),
        {"a": 1},
        "0",
    ],
    ids=repr,
)
def test_arms_are_row_numbers(form: Any, backend: Any, arms: Any) -> None:
    gp = FiniteGP(ROUGH, [[0.0], [1.0], [2.0]], 0.1, form=form, backend=backend)
    before = state_bytes(gp.state())
    with pytest.raises(InputError):
        gp.observe(arms, [1.0])
    with pytest.raises(InputError):
        gp.predict(arms)
    assert state_bytes(gp.state()) == before


@forms
@pytest.mark.parametrize(
    "rewards",
    [["x"], [None], [np.nan], [[1.0]], [1.0, 2.0], [], 1.0, np.array(1.0), [1j]],
    ids=repr,
)
def test_rewards_are_numbers(form: Any, backend: Any, rewards: Any) -> None:
    gp = FiniteGP(ROUGH, [[0.0], [1.0], [2.0]], 0.1, form=form, backend=backend)
    before = state_bytes(gp.state())
    with pytest.raises(InputError):
        gp.observe([1], rewards)
    assert state_bytes(gp.state()) == before


@forms
def test_single_observations_come_in_many_types(form: Any, backend: Any) -> None:
    kinds: list[tuple[Any, Any]] = [
        ([1], [0.5]),
        ((1,), (0.5,)),
        (np.array([1]), np.array([0.5])),
        (np.array([1], dtype=np.uint8), np.array([0.5], dtype=np.float32)),
        ([np.int32(1)], [np.float64(0.5)]),
        (range(1, 2), [0.5]),
    ]
    answers = []
    for arms, rewards in kinds:
        gp = FiniteGP(ROUGH, [[0.0], [1.0], [2.0]], 0.1, form=form, backend=backend)
        gp.observe(arms, rewards)
        answers.append(gp.predict([0, 1, 2]).mean)
        posterior = FiniteGP(
            ROUGH, [[0.0], [1.0], [2.0]], 0.1, form=form, backend=backend
        )
        posterior.observe([1], [2])  # an integer reward
        np.testing.assert_allclose(
            posterior.predict([0, 1, 2]).mean, 4.0 * answers[-1], rtol=1e-12
        )
    np.testing.assert_allclose(
        answers, np.broadcast_to(answers[0], (len(kinds), 3)), rtol=1e-12
    )


@forms
def test_the_incumbent_is_the_best_of_all_arms_seen(form: Any, backend: Any) -> None:
    gp = FiniteGP(ROUGH, np.arange(5.0)[:, None], 0.1, form=form, backend=backend)
    offer = Offer(step=1, arms=Arms.numbered(gp.arms))
    assert gp.incumbent == gp.belief(offer).incumbent == 0.0  # before any data
    for row, reward in ((0, -1.0), (3, 2.0), (4, -3.0), (3, 5.0), (1, 1.0)):
        gp.observe([row], [reward])
        means = gp.predict(gp.visited).mean
        assert gp.belief(offer).incumbent == gp.incumbent == means.max()
        assert gp.belief(offer).negated().incumbent == -means.min()


@forms
@pytest.mark.parametrize("reward", [np.nan, np.inf, -np.inf, 1e200, -1e200])
def test_tables_hold_numbers_whose_squares_fit(
    form: Any, backend: Any, reward: float
) -> None:
    gp = FiniteGP(ROUGH, np.arange(5.0)[:, None], 0.1, form=form, backend=backend)
    table = np.zeros((3, 5))
    table[1, 2] = reward
    with pytest.raises(InputError, match="rewards"):
        gp.play_table(table, np.ones(3))
    assert gp.count == 0


def test_offers_must_be_the_arms_it_was_made_for() -> None:
    features = np.array([[0.0], [1.0], [2.0]])
    gp = FiniteGP(ROUGH, features, 0.1)
    gp.observe([2], [1.0])
    mean = gp.predict([2, 0]).mean
    ids: Any
    for ids in (
        [2, 0],
        ["c", "a"],
        [(0, 1), (0,)],
        [2.0, 0.0],
    ):  # ids are the user's own
        belief = gp.belief(Offer(step=1, arms=Arms(ids=ids, features=features[[2, 0]])))
        np.testing.assert_array_equal(belief.mean, mean)
    zero = Arms(ids=["z"], features=[[-0.0]])
    assert gp.keys(Offer(step=1, arms=zero)).tolist() == [0]  # minus zero is zero
    alike = FiniteGP(ROUGH, [[1.0], [-0.0], [0.0], [1.0]], 0.1)
    keys = alike.keys(Offer(step=1, arms=Arms(ids=["z", "o"], features=[[0.0], [1.0]])))
    assert keys.tolist() == [1, 0]  # the first of equals
    for rows in (features + 0.1, np.zeros((3, 2)), [[0.0], [1.0], [3.0]]):
        with pytest.raises(UnknownArmError, match="not in the fixed arm set"):
            gp.belief(Offer(step=1, arms=Arms.numbered(rows)))
        with pytest.raises(UnknownArmError):
            gp.keys(Offer(step=1, arms=Arms.numbered(rows)))


def test_changing_returned_keys_does_not_corrupt_later_rounds() -> None:
    features = np.array([[0.0], [1.0], [2.0]])
    gp, arms = FiniteGP(ROUGH, features, 0.1), Arms.numbered(features)
    gp.observe([0], [1.0])
    keys = gp.keys(Offer(step=1, arms=arms))
    if keys.flags.writeable:
        keys[:] = 0
    np.testing.assert_array_equal(gp.keys(Offer(step=1, arms=arms)), [0, 1, 2])


def test_empirical_priors_from_data_work() -> None:
    covariance = ((2.0, 0.5), (0.5, 1.0))
    gp = FiniteGP(Empirical(covariance=covariance), [[0.0], [1.0]], 0.5, [1.0, 2.0])
    gp.observe([0], [3.0])
    assert gp.predict([0, 1]).mean.tolist() == pytest.approx(
        [1.0 + 2.0 / 2.5 * 2.0, 2.0 + 0.5 / 2.5 * 2.0]
    )
