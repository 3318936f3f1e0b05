"""The contract of posteriors."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np

from superarm.core import (
    Arms,
    Belief,
    Floats,
    Ints,
    JointPrediction,
    Offer,
    Posterior,
    State,
)
from superarm.core.capabilities import Resumable
from superarm.core.errors import InputError, StaleBeliefError
from superarm.core.states import state_to_bytes

from .helpers import (
    assert_close,
    assert_moments,
    conditioned,
    copies_of,
    frozen,
    generator,
    interrupted,
    raises,
    refused,
    restored,
    scribble,
    unchanged,
)


class Observations(NamedTuple):
    """The observations of the contract."""

    positions: Ints  # (m,)
    rewards: Floats  # (m,)
    noise_variance: Floats  # (m,)


class PosteriorContract(ABC):
    """The promises of every posterior, compared with the textbook's formulas on its own prior."""

    tolerance = 1e-9  # rounding allowed, relative to the prior's scale
    draws = 4000  # for the test of moments
    interrupts = (
        12  # calls in one observation that are interrupted, one after the other
    )

    @abstractmethod
    def make_posterior(self) -> Posterior:
        """The posterior to test, before any data."""

    @abstractmethod
    def make_arms(self) -> Arms:
        """Six to twenty arms that the posterior accepts."""

    @abstractmethod
    def restore(self, state: State) -> Posterior:
        """A posterior restored from a state.

        Args:
            state: The state of a posterior like the one to test.
        """

    # --- data and helpers of the tests -----------------------------------------------------

    def _data(self) -> Observations:
        rng = generator(1)
        n = len(self.make_arms())
        different_arms = rng.permutation(n)[: n - 2]
        repeated_arms = rng.integers(0, n - 2, 4)
        positions = np.concatenate([different_arms, repeated_arms])
        positions[-1] = positions[-2]  # the same arm twice in a row
        count = len(positions)
        rewards = np.sqrt(self._scale()) * rng.standard_normal(count)
        noise_variance = self.make_posterior().belief(self._offer()).noise_std ** 2
        variances = noise_variance * rng.uniform(0.5, 2.0, count)
        return Observations(positions, frozen(rewards), frozen(variances))

    def _scale(self) -> float:
        prior = self._joint(self.make_posterior())
        return float(np.max(np.diagonal(prior.cov)))

    def _offer(self) -> Offer:
        return Offer(step=1, arms=self.make_arms())

    def _keys(self, posterior: Posterior) -> Any:
        return posterior.keys(self._offer())

    def _joint(self, posterior: Posterior) -> JointPrediction:
        return posterior.predict(self._keys(posterior), return_cov=True)

    def _variance(self, posterior: Posterior) -> Floats:
        std: Any = posterior.predict(self._keys(posterior)).std
        return np.asarray(std**2)

    def _observe(self, posterior: Posterior, part: Any = slice(None)) -> Posterior:
        data = self._data()
        keys = self._keys(posterior)[data.positions[part]]
        rewards = data.rewards[part]
        noise_variance = data.noise_variance[part]
        posterior.observe(keys, rewards, noise_variance, rng=generator())
        return posterior

    def _trained_posterior(self) -> Posterior:
        return self._observe(self.make_posterior())

    def _mean_tolerance(self, mean: Floats) -> float:
        size = np.sqrt(self._scale()) + np.abs(mean).max()
        return float(self.tolerance * size)

    def _assert_mean(self, actual: Floats, expected: Floats, what: str) -> None:
        assert_close(actual, expected, self._mean_tolerance(expected), what)

    def _assert_variance(self, actual: Floats, expected: Floats, what: str) -> None:
        assert_close(actual, expected, self.tolerance * self._scale(), what)

    def _assert_same(self, actual: Posterior, expected: Posterior, what: str) -> None:
        actual_joint = self._joint(actual)
        expected_joint = self._joint(expected)
        self._assert_mean(actual_joint.mean, expected_joint.mean, what)
        self._assert_variance(actual_joint.cov, expected_joint.cov, what)
        assert actual.count == expected.count
        gain = expected.information_gain
        tolerance = self.tolerance * (1.0 + abs(gain))
        what_gain = f"{what}: information_gain"
        assert_close(actual.information_gain, gain, tolerance, what_gain)

    # --- the model -------------------------------------------------------------------------

    def test_it_is_a_posterior(self) -> None:
        posterior = self.make_posterior()
        assert isinstance(posterior, Posterior)
        assert posterior.count == 0
        assert posterior.information_gain == 0.0
        belief = posterior.belief(self._offer())
        assert isinstance(belief, Belief)
        assert belief.incumbent == 0.0

    def test_it_follows_the_textbook(self) -> None:
        """mean + K_*X (K_XX + D)⁻¹ (y − mean_X), and its covariance."""
        data = self._data()
        posterior = self._trained_posterior()
        keys = self._keys(posterior)
        prior = self._joint(self.make_posterior())
        observed = data.positions
        total = prior.cov[np.ix_(observed, observed)] + np.diag(data.noise_variance)
        weights = np.linalg.solve(total, data.rewards - prior.mean[observed])
        expected_mean = prior.mean + prior.cov[:, observed] @ weights
        expected_cov = conditioned(prior.cov, observed, data.noise_variance)

        joint = self._joint(posterior)
        self._assert_mean(joint.mean, expected_mean, "the joint mean")
        self._assert_variance(joint.cov, expected_cov, "the covariance")
        self._assert_mean(posterior.predict(keys).mean, expected_mean, "the mean")
        variance = self._variance(posterior)
        self._assert_variance(variance, np.diagonal(expected_cov), "the variance")
        assert posterior.count == len(data.rewards)
        assert posterior.predict(keys, return_std=False).std is None

    def test_draws_have_the_stated_moments(self) -> None:
        for posterior in (self.make_posterior(), self._trained_posterior()):
            keys = self._keys(posterior)
            draws = posterior.sample(keys, generator(5), size=self.draws)
            assert draws.shape == (self.draws, len(keys))
            mean, cov = self._joint(posterior)
            assert_moments(draws, mean, cov, "sample()")
            repeated = posterior.sample(keys, generator(5), self.draws)
            np.testing.assert_array_equal(draws, repeated)

    def test_information_gain_is_the_log_determinant(self) -> None:
        """½ ln det(I + D^{-½} K D^{-½}), whatever the order or the grouping."""
        data = self._data()
        prior = self._joint(self.make_posterior())
        K = prior.cov[np.ix_(data.positions, data.positions)]
        weight = 1.0 / np.sqrt(data.noise_variance)
        scaled = np.eye(len(K)) + K * np.outer(weight, weight)
        _, log_determinant = np.linalg.slogdet(scaled)
        tolerance = self.tolerance * (1.0 + log_determinant)
        posterior = self._trained_posterior()
        gain = posterior.information_gain
        assert_close(gain, 0.5 * log_determinant, tolerance, "the gain")
        assert posterior.belief(self._offer()).information_gain == gain

    def test_the_incumbent_is_the_best_mean_observed(self) -> None:
        belief = self._trained_posterior().belief(self._offer())
        observed = belief.mean[np.unique(self._data().positions)]
        best = observed.max()
        negated_best = -observed.min()
        tolerance = self._mean_tolerance(belief.mean)
        position = np.array([0])
        for view in (belief, belief.condition(position)):
            assert_close(view.incumbent, best, tolerance, "incumbent")
            assert_close(view.negated().incumbent, negated_best, tolerance, "negated")
        negated = belief.negated().condition(position)
        what = "negated, then conditioned"
        assert_close(negated.incumbent, negated_best, tolerance, what)

    # --- equal results in different ways ---------------------------------------------------

    def test_grouping_does_not_matter_nor_order_if_it_says_so(self) -> None:
        count = len(self._data().rewards)
        one_at_a_time = [[index] for index in range(count)]
        groupings = {"one at a time": one_at_a_time}
        if self.make_posterior().exchangeable:
            order = generator(8).permutation(count).tolist()
            half = count // 2
            groupings["another order"] = [order[:half], order[half:]]
        for what, groups in groupings.items():
            posterior = self.make_posterior()
            for group in groups:
                self._observe(posterior, group)
            self._assert_same(posterior, self._trained_posterior(), what)

    def test_variance_never_grows(self) -> None:
        """Also with the model's own noise, and with a prediction before each observation."""
        data = self._data()
        posterior = self.make_posterior()
        keys = self._keys(posterior)
        variance = self._variance(posterior)
        gain = 0.0
        rounding = self.tolerance * self._scale()
        for position, reward in zip(data.positions, data.rewards, strict=True):
            posterior.observe(keys[[position]], [reward], rng=generator())
            new_variance = self._variance(posterior)
            assert (new_variance <= variance + rounding).all()
            assert posterior.information_gain >= gain
            variance = new_variance
            gain = posterior.information_gain
        batch = self.make_posterior()
        batch.observe(keys[data.positions], data.rewards, rng=generator())
        self._assert_same(posterior, batch, "one at a time, the model's own noise")

    def test_arms_not_yet_seen_are_foreseen(self) -> None:
        """``condition`` and ``pending`` change the variance as observing will."""
        different = np.array([3, 0])
        repeated = np.array([3, 0, 3])
        for positions in (different, repeated):
            posterior = self._trained_posterior()
            offer = self._offer()
            keys = self._keys(posterior)[positions]
            plain = posterior.belief(offer)
            beliefs = [posterior.belief(offer, pending=keys)]
            if positions is different:
                beliefs.append(plain.condition(positions))
            variances = [belief.std**2 for belief in beliefs]
            for belief in beliefs:
                self._assert_mean(
                    belief.mean, plain.mean, "pending arms must not move the mean"
                )
            posterior.observe(keys, np.zeros(len(keys)), rng=generator())
            observed_variance = self._variance(posterior)
            for variance in variances:
                self._assert_variance(variance, observed_variance, "foreseen variance")

    def test_feedback_is_dated_by_its_own_offer(self) -> None:
        """Keys carry the time of their offer, so that late feedback gives the same belief."""
        if not self.make_posterior().exchangeable:
            return
        arms = self.make_arms()
        early = Offer(step=1, arms=arms, time=0.5)
        late = Offer(step=4, arms=arms, time=2.0)
        now = Offer(step=9, arms=arms, time=7.5)

        in_order = self.make_posterior()
        self._observe_two(in_order, early, [0.4, -0.2])
        self._observe_two(in_order, late, [-0.3, 0.6])
        expected = in_order.belief(now)

        reversed_order = self.make_posterior()
        self._observe_two(reversed_order, late, [-0.3, 0.6])
        self._observe_two(reversed_order, early, [0.4, -0.2])
        actual = reversed_order.belief(now)

        self._assert_mean(actual.mean, expected.mean, "late feedback: mean")
        self._assert_variance(actual.std**2, expected.std**2, "late feedback: variance")

    def _observe_two(
        self, posterior: Posterior, offer: Offer, rewards: list[float]
    ) -> None:
        """Observe the first two arms of an offer."""
        keys = posterior.keys(offer)[:2]
        posterior.observe(keys, rewards, rng=generator())

    def test_a_belief_follows_the_order_of_the_offer(self) -> None:
        posterior = self._trained_posterior()
        arms = self.make_arms()
        chosen = np.arange(len(arms))[::-2]
        some_arms = Arms(
            ids=[arms.ids[position] for position in chosen],
            features=arms.features[chosen],
        )
        belief = posterior.belief(Offer(step=1, arms=arms))
        partial = posterior.belief(Offer(step=1, arms=some_arms))
        expected_variance = belief.std[chosen] ** 2
        expected_cov = belief.cov[np.ix_(chosen, chosen)]
        tolerance = self.tolerance * (1.0 + self._scale() + np.abs(belief.mean).max())
        assert_close(partial.mean, belief.mean[chosen], tolerance, "mean of some arms")
        assert_close(
            partial.std**2, expected_variance, tolerance, "variance of some arms"
        )
        assert_close(partial.cov, expected_cov, tolerance, "cov of some arms")

    # --- state -----------------------------------------------------------------------------

    def test_looking_changes_nothing(self) -> None:
        for posterior in (self.make_posterior(), self._trained_posterior()):
            with unchanged(posterior, "looking"):
                belief = posterior.belief(self._offer())
                conditional = belief.condition(np.array([0, 1]))
                for view in (belief, belief.negated(), conditional):
                    view.sample(generator())
                    assert np.isfinite(view.cov).all()
                    assert np.isfinite(view.incumbent)
                self._overwrite_results(posterior, belief)
            joint = self._joint(posterior)
            assert np.isfinite(joint.mean).all()
            assert np.isfinite(joint.cov).all()
            assert np.isfinite(self._variance(posterior)).all()

    def _overwrite_results(self, posterior: Posterior, belief: Belief) -> None:
        """Overwrite returned arrays, which belong to the caller or are read-only."""
        keys = self._keys(posterior)
        posterior.sample(keys, generator(), size=2)[...] = np.nan
        for array in (*self._joint(posterior), *posterior.predict(keys)):
            assert array is not None
            array[...] = np.nan
        for array in (belief.mean, belief.std):
            if array.flags.writeable:
                array[...] = np.nan

    def test_what_was_handed_in_stays_the_callers(self) -> None:
        posterior = self.make_posterior()
        data = self._data()
        keys = np.array(self._keys(posterior)[data.positions])
        arguments = (keys, np.array(data.rewards), np.array(data.noise_variance))
        copies = [array.copy() for array in arguments]
        posterior.predict(keys)
        posterior.observe(*arguments, generator())
        for array, copy in zip(arguments, copies, strict=True):
            np.testing.assert_array_equal(array, copy)
            array[...] = 0
        what = "after the caller's arrays changed"
        self._assert_same(posterior, self._trained_posterior(), what)

    def test_bad_input_is_refused_and_changes_nothing(self) -> None:
        for posterior in (self.make_posterior(), self._trained_posterior()):
            observe: Any = posterior.observe  # untyped: most arguments are wrong
            keys = self._keys(posterior)
            one = keys[:1]
            two = keys[:2]
            # A NaN feature, or a row number that does not exist.
            unknown = np.array(one)
            unknown[0] = np.nan if unknown.dtype.kind == "f" else -1
            # Arms, rewards and, in some cases, the variance of their noise.
            cases: dict[str, tuple[Any, ...]] = {
                "a NaN reward": (one, [np.nan]),
                "an infinite reward among others": (two, [0.0, -np.inf]),
                "a reward that is no number": (one, ["high"]),
                "one reward for two arms": (two, [0.0]),
                "two rewards for one arm": (one, [0.0, 1.0]),
                "rewards in a column": (one, [[0.0]]),
                "a single reward for a list": (one, 0.0),
                "a single number for arms": (0, [0.0]),
                "arms in a cube": (keys[None, None], [0.0]),
                "arms that are no numbers": (["here"], [0.0]),
                "ragged arms": ([[0], [0, 1]], [0.0, 1.0]),
                "arms that are unknown or not finite": (unknown, [0.0]),
                "a last arm that is unknown or not finite": (
                    np.concatenate([keys[:3], unknown]),
                    np.zeros(4),
                ),
                "a last reward that is NaN": (keys[:3], [0.0, 1.0, np.nan]),
                "a last noise that is 0": (keys[:3], np.zeros(3), [1.0, 1.0, 0.0]),
                "no noise": (one, [0.0], [0.0]),
                "negative noise": (two, [0.0, 1.0], [1.0, -1.0]),
                "NaN noise": (one, [0.0], [np.nan]),
                "infinite noise": (one, [0.0], [np.inf]),
                "two noises for one arm": (one, [0.0], [1.0, 1.0]),
            }
            for what, arguments in cases.items():
                with refused(posterior, InputError, what):
                    observe(*arguments, rng=generator())
            for arms in (unknown, 0, keys[None, None]):
                with raises(InputError, f"predicting for {arms!r:.40}"):
                    posterior.predict(arms)
            with raises(InputError, "no sample at all"):
                posterior.sample(one, generator(), size=0)
            with unchanged(posterior, "observing nothing"):
                posterior.observe(one[:0], [], rng=generator())

    def test_a_warning_that_is_an_error_changes_nothing(self) -> None:
        """Many rewards of one arm with hardly any noise, whose covariance may have no factor."""
        posterior = self._trained_posterior()
        before = state_to_bytes(posterior.state())
        count = posterior.count
        same_arm = np.zeros(6, dtype=np.intp)
        keys = self._keys(posterior)[same_arm]
        noise = np.full(6, 1e-16 * self._scale())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                posterior.observe(keys, np.zeros(6), noise, rng=generator())
            except Exception:
                assert state_to_bytes(posterior.state()) == before, (
                    "a refused observation changed it"
                )
            else:
                assert posterior.count == count + 6
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.restore(restored(posterior.state()))

    def test_an_interrupted_observation_is_learned_whole_or_not_at_all(self) -> None:
        posterior = self._trained_posterior()
        start = posterior.state()
        before = state_to_bytes(start)
        count = posterior.count
        keys = self._keys(posterior)[[0, 4]]
        for number in range(1, self.interrupts + 1):
            with interrupted(number) as called:
                posterior.observe(keys, [0.3, -0.2], rng=generator())
            where = f"stopped in {called[-1]}" if called else "not stopped"
            if posterior.count == count:
                assert state_to_bytes(posterior.state()) == before, where
                continue
            assert posterior.count == count + 2, where
            self.restore(restored(posterior.state()))  # the state must be consistent
            if len(called) < number:
                return  # the observation has fewer calls than that
            posterior = self.restore(start)
            before = state_to_bytes(posterior.state())

    def test_copies_go_their_own_way(self) -> None:
        posterior = self._trained_posterior()
        key = self._keys(posterior)[:1]
        for what, duplicate in copies_of(posterior):
            original_bytes = state_to_bytes(posterior.state())
            assert state_to_bytes(duplicate.state()) == original_bytes, what
            with unchanged(posterior, f"teaching the copy of {what}"):
                duplicate.observe(key, [0.5], rng=generator())
            with unchanged(duplicate, f"teaching the original of {what}"):
                posterior.observe(key, [-0.5], rng=generator())

    def test_what_it_hands_out_cannot_change_it(self) -> None:
        posterior = self._trained_posterior()
        public_names = [name for name in dir(posterior) if not name.startswith("_")]
        values = [getattr(posterior, name) for name in public_names]
        with unchanged(posterior, "writing into its attributes and states"):
            scribble(values)
            scribble(posterior.state())

    def test_stale_beliefs_refuse(self) -> None:
        posterior = self._trained_posterior()
        offer = self._offer()
        belief = posterior.belief(offer)
        negated = belief.negated()
        posterior.observe(self._keys(posterior)[:1], [0.5], rng=generator())
        for stale in (belief, negated, belief.negated()):
            with raises(StaleBeliefError, "cov of a stale belief"):
                _ = stale.cov
            with raises(StaleBeliefError, "incumbent of a stale belief"):
                _ = stale.incumbent
            with raises(StaleBeliefError, "information_gain of a stale belief"):
                _ = stale.information_gain
            with raises(StaleBeliefError, "a draw from a stale belief"):
                stale.sample(generator())
            with raises(StaleBeliefError, "conditioning a stale belief"):
                stale.condition(np.array([0]))
        posterior.belief(offer).sample(generator())

    def test_the_state_survives_json_and_npz(self) -> None:
        for posterior in (self.make_posterior(), self._trained_posterior()):
            resumed = self.restore(restored(posterior.state()))
            self._assert_same(resumed, posterior, "after a round trip")
            assert resumed.information_gain == posterior.information_gain
            second_state = self.restore(resumed.state()).state()
            assert state_to_bytes(second_state) == state_to_bytes(resumed.state())

            key = self._keys(posterior)[:1]
            posterior.observe(key, [0.25], rng=generator())
            resumed.observe(key, [0.25], rng=generator())
            what = "after a round trip and one more observation"
            self._assert_same(resumed, posterior, what)
            if isinstance(posterior, Resumable) and posterior.same_bits:
                resumed_bytes = state_to_bytes(resumed.state())
                assert resumed_bytes == state_to_bytes(posterior.state()), "same_bits"
