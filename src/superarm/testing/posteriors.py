"""The contract of posteriors."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from superarm.core import (
    Arms,
    Belief,
    Ints,
    Offer,
    Posterior,
)
from superarm.core.capabilities import HasPriorCovariance, Resumable
from superarm.core.errors import InputError, StaleBeliefError

from .helpers import (
    assert_close,
    assert_equal,
    assert_finite,
    assert_moments,
    conditioned,
    copies_of,
    generator,
    interrupted,
    raises,
    refused,
    restored,
    scribble,
    state_bytes,
    unchanged,
)
from .posterior_case import PosteriorCase


class PosteriorContract(PosteriorCase):
    """The promises of every posterior, compared with the textbook's formulas on its own prior."""

    draws = 4000  # for the test of moments
    interrupts = 12  # calls of one observation to interrupt, one after the other

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
        observed = data.positions
        prior = self._joint(self.make_posterior())
        cross = prior.cov[:, observed]  # (n, m)
        noise = np.diag(data.noise_variance)
        total = cross[observed] + noise  # (m, m)
        surprise = data.rewards - prior.mean[observed]
        weights = np.linalg.solve(total, surprise)
        expected_mean = prior.mean + cross @ weights
        expected_cov = conditioned(prior.cov, observed, data.noise_variance)
        expected_variance = np.diagonal(expected_cov)

        posterior = self._trained_posterior()
        assert posterior.count == len(data.rewards)
        joint = self._joint(posterior)
        self._assert_mean(joint.mean, expected_mean, "the joint mean")
        self._assert_variance(joint.cov, expected_cov, "the covariance")

        keys = self._keys(posterior)
        prediction = posterior.predict(keys)
        variance = self._variance(posterior)
        self._assert_mean(prediction.mean, expected_mean, "the mean")
        self._assert_variance(variance, expected_variance, "the variance")
        mean_only = posterior.predict(keys, return_std=False)
        assert mean_only.std is None

    def test_prior_covariances_are_those_before_data(self) -> None:
        """Of any arms with any others, whatever was learned."""
        prior = self._joint(self.make_posterior())
        for posterior in self._new_and_trained():
            if not isinstance(posterior, HasPriorCovariance):
                return
            keys = self._keys(posterior)
            few = keys[1:4]
            covariances = posterior.prior_covariances(few, keys)
            self._assert_variance(covariances, prior.cov[1:4], "prior_covariances()")
            variances = posterior.prior_variances(keys)
            expected = np.diagonal(prior.cov)
            self._assert_variance(variances, expected, "prior_variances()")

    def test_draws_have_the_stated_moments(self) -> None:
        size = self.draws
        for posterior in self._new_and_trained():
            keys = self._keys(posterior)
            joint = self._joint(posterior)
            n = len(keys)
            draws = posterior.sample(keys, generator(5), size=size)
            assert draws.shape == (size, n)
            assert_moments(draws, joint.mean, joint.cov, "sample()")
            repeated = posterior.sample(keys, generator(5), size)
            assert_equal(draws, repeated)

    def test_information_gain_is_the_log_determinant(self) -> None:
        """½ ln det(I + D^{-½} K D^{-½}), whatever the order or the grouping."""
        data = self._data()
        observed = data.positions
        prior = self._joint(self.make_posterior())
        rows = prior.cov[observed]
        K = rows[:, observed]
        noise_std = np.sqrt(data.noise_variance)
        weight = 1.0 / noise_std
        scaled = K * np.outer(weight, weight)
        identity = np.eye(len(K))
        _, log_determinant = np.linalg.slogdet(identity + scaled)
        expected = 0.5 * log_determinant
        tolerance = self.tolerance * (1.0 + log_determinant)

        posterior = self._trained_posterior()
        gain = posterior.information_gain
        assert_close(gain, expected, tolerance, "the gain")
        belief = posterior.belief(self._offer())
        assert belief.information_gain == gain

    def test_the_incumbent_is_the_best_mean_observed(self) -> None:
        posterior = self._trained_posterior()
        belief = posterior.belief(self._offer())
        data = self._data()
        means = belief.mean[data.positions]
        best = means.max()
        negated_best = -means.min()
        tolerance = self._mean_tolerance(belief.mean)

        position = np.array([0])
        conditional = belief.condition(position)
        for view in (belief, conditional):
            negated = view.negated()
            assert_close(view.incumbent, best, tolerance, "incumbent")
            assert_close(negated.incumbent, negated_best, tolerance, "negated")
        negated = belief.negated()
        conditional = negated.condition(position)
        what = "negated, then conditioned"
        assert_close(conditional.incumbent, negated_best, tolerance, what)

    # --- equal results in different ways ---------------------------------------------------

    def test_grouping_does_not_matter_nor_order_if_it_says_so(self) -> None:
        expected = self._trained_posterior()
        data = self._data()
        count = len(data.rewards)
        groupings = {}
        groupings["one at a time"] = [[index] for index in range(count)]
        if expected.exchangeable:
            shuffled = generator(8).permutation(count)
            order = shuffled.tolist()
            half = count // 2
            groupings["another order"] = [order[:half], order[half:]]
        for what, groups in groupings.items():
            posterior = self.make_posterior()
            for group in groups:
                self._observe(posterior, group)
            self._assert_same(posterior, expected, what)

    def test_variance_never_grows(self) -> None:
        """Also with the model's own noise, and with a prediction before each observation."""
        data = self._data()
        posterior = self.make_posterior()
        keys = self._keys(posterior)[data.positions]
        variance = self._variance(posterior)
        gain = 0.0
        rounding = self._rounding()
        for index in range(len(keys)):
            one = slice(index, index + 1)
            posterior.observe(keys[one], data.rewards[one], rng=generator())
            new_variance = self._variance(posterior)
            growth = new_variance - variance
            assert growth.max() <= rounding
            new_gain = posterior.information_gain
            assert new_gain >= gain
            variance = new_variance
            gain = new_gain

        batch = self.make_posterior()
        batch.observe(keys, data.rewards, rng=generator())
        self._assert_same(posterior, batch, "one at a time, the model's own noise")

    def test_arms_not_yet_seen_are_foreseen(self) -> None:
        """``condition`` and ``pending`` change the variance as observing will."""
        different = np.array([3, 0])
        repeated = np.array([3, 0, 3])
        self._check_foreseen(different, conditions=True)
        self._check_foreseen(repeated, conditions=False)

    def _check_foreseen(self, positions: Ints, conditions: bool) -> None:
        posterior = self._trained_posterior()
        offer = self._offer()
        keys = self._keys(posterior)[positions]
        plain = posterior.belief(offer)
        beliefs = [posterior.belief(offer, pending=keys)]
        if conditions:
            beliefs.append(plain.condition(positions))
        variances = [belief.std**2 for belief in beliefs]
        what = "pending arms must not move the mean"
        for belief in beliefs:
            self._assert_mean(belief.mean, plain.mean, what)

        rewards = np.zeros(len(keys))
        posterior.observe(keys, rewards, rng=generator())
        expected = self._variance(posterior)
        for variance in variances:
            self._assert_variance(variance, expected, "foreseen variance")

    def test_feedback_is_dated_by_its_own_offer(self) -> None:
        """Keys carry the time of their offer, so that late feedback gives the same belief."""
        if not self.make_posterior().exchangeable:
            return
        arms = self.make_arms()
        early = Offer(step=1, arms=arms, time=0.5)
        late = Offer(step=4, arms=arms, time=2.0)
        now = Offer(step=9, arms=arms, time=7.5)
        early_rewards = [0.4, -0.2]
        late_rewards = [-0.3, 0.6]

        in_order = self.make_posterior()
        self._observe_two(in_order, early, early_rewards)
        self._observe_two(in_order, late, late_rewards)
        expected = in_order.belief(now)

        reversed_order = self.make_posterior()
        self._observe_two(reversed_order, late, late_rewards)
        self._observe_two(reversed_order, early, early_rewards)
        actual = reversed_order.belief(now)

        self._assert_mean(actual.mean, expected.mean, "late feedback: mean")
        variance = actual.std**2
        expected_variance = expected.std**2
        self._assert_variance(variance, expected_variance, "late feedback: variance")

    def _observe_two(
        self,
        posterior: Posterior,
        offer: Offer,
        rewards: list[float],
    ) -> None:
        """Observe the first two arms of an offer."""
        keys = posterior.keys(offer)
        posterior.observe(keys[:2], rewards, rng=generator())

    def test_a_belief_follows_the_order_of_the_offer(self) -> None:
        posterior = self._trained_posterior()
        arms = self.make_arms()
        positions = np.arange(len(arms))
        chosen = positions[::-2]
        some_arms = Arms(
            ids=[arms.ids[position] for position in chosen],
            features=arms.features[chosen],
        )
        some_offer = Offer(step=1, arms=some_arms)
        partial = posterior.belief(some_offer)
        partial_variance = partial.std**2

        belief = posterior.belief(self._offer())
        mean = belief.mean[chosen]
        variance = belief.std[chosen] ** 2
        rows = belief.cov[chosen]
        cov = rows[:, chosen]

        largest_mean = np.abs(belief.mean).max()
        size = 1.0 + self._scale() + largest_mean
        tolerance = self.tolerance * size
        assert_close(partial.mean, mean, tolerance, "mean of some arms")
        assert_close(partial_variance, variance, tolerance, "variance of some arms")
        assert_close(partial.cov, cov, tolerance, "cov of some arms")

    # --- state -----------------------------------------------------------------------------

    def test_looking_changes_nothing(self) -> None:
        for posterior in self._new_and_trained():
            with unchanged(posterior, "looking"):
                belief = posterior.belief(self._offer())
                self._look_at(belief)
                self._look_at(belief.negated())
                positions = np.array([0, 1])
                conditional = belief.condition(positions)
                self._look_at(conditional)
                self._overwrite_results(posterior, belief)
            joint = self._joint(posterior)
            assert_finite(joint.mean)
            assert_finite(joint.cov)
            variance = self._variance(posterior)
            assert_finite(variance)

    def _look_at(self, belief: Belief) -> None:
        belief.sample(generator())
        assert_finite(belief.cov)
        assert_finite(belief.incumbent)

    def _overwrite_results(self, posterior: Posterior, belief: Belief) -> None:
        """Overwrite returned arrays, which belong to the caller or are read-only."""
        keys = self._keys(posterior)
        draws = posterior.sample(keys, generator(), size=2)
        draws[...] = np.nan
        joint = self._joint(posterior)
        prediction = posterior.predict(keys)
        results = (*joint, *prediction)
        for array in results:
            assert array is not None
            array[...] = np.nan
        moments = (belief.mean, belief.std)
        for array in moments:
            if array.flags.writeable:
                array[...] = np.nan

    def test_what_was_handed_in_stays_the_callers(self) -> None:
        posterior = self.make_posterior()
        data = self._data()
        keys = self._keys(posterior)[data.positions]
        own_keys = np.array(keys)
        own_rewards = np.array(data.rewards)
        own_noise = np.array(data.noise_variance)
        posterior.predict(own_keys)
        posterior.observe(own_keys, own_rewards, own_noise, generator())
        assert_equal(own_keys, keys)
        assert_equal(own_rewards, data.rewards)
        assert_equal(own_noise, data.noise_variance)

        own_keys[...] = 0
        own_rewards[...] = 0.0
        own_noise[...] = 0.0
        what = "after the caller's arrays changed"
        self._assert_same(posterior, self._trained_posterior(), what)

    def test_bad_input_is_refused_and_changes_nothing(self) -> None:
        for posterior in self._new_and_trained():
            keys = self._keys(posterior)
            # A NaN feature, or a row number that does not exist.
            unknown = np.array(keys[:1])
            has_features = unknown.dtype.kind == "f"
            unknown[0] = np.nan if has_features else -1
            self._check_bad_arms(posterior, keys, unknown)
            self._check_bad_rewards(posterior, keys)
            self._check_bad_noise(posterior, keys)

            one = keys[:1]
            none = keys[:0]
            with raises(InputError, "no sample at all"):
                posterior.sample(one, generator(), size=0)
            with unchanged(posterior, "observing nothing"):
                posterior.observe(none, [], rng=generator())

    def _refuse(
        self,
        posterior: Any,
        what: str,
        keys: Any,
        rewards: Any,
        noise_variance: Any = None,
    ) -> None:
        """Assert that an observation is refused; ``Any``, because most arguments are wrong."""
        with refused(posterior, InputError, what):
            posterior.observe(keys, rewards, noise_variance, rng=generator())

    def _check_bad_arms(self, posterior: Any, keys: Any, unknown: Any) -> None:
        cube = keys[None, None]
        ragged = [[0], [0, 1]]
        known = keys[:3]
        last_unknown = np.concatenate([known, unknown])

        def refuse(what: str, arms: Any, count: int = 1) -> None:
            rewards = np.zeros(count)
            self._refuse(posterior, what, arms, rewards)

        refuse("a single number for arms", 0)
        refuse("arms in a cube", cube)
        refuse("arms that are no numbers", ["here"])
        refuse("ragged arms", ragged, count=2)
        refuse("arms that are unknown or not finite", unknown)
        refuse("a last arm that is unknown or not finite", last_unknown, count=4)
        for arms in (unknown, 0, cube):
            with raises(InputError, f"predicting for {arms!r:.40}"):
                posterior.predict(arms)

    def _check_bad_rewards(self, posterior: Any, keys: Any) -> None:
        def refuse(what: str, count: int, rewards: Any) -> None:
            arms = keys[:count]
            self._refuse(posterior, what, arms, rewards)

        last_infinite = [0.0, -np.inf]
        last_nan = [0.0, 1.0, np.nan]
        refuse("a NaN reward", 1, [np.nan])
        refuse("an infinite reward among others", 2, last_infinite)
        refuse("a last reward that is NaN", 3, last_nan)
        refuse("a reward that is no number", 1, ["high"])
        refuse("one reward for two arms", 2, [0.0])
        refuse("two rewards for one arm", 1, [0.0, 1.0])
        refuse("rewards in a column", 1, [[0.0]])
        refuse("a single reward for a list", 1, 0.0)

    def _check_bad_noise(self, posterior: Any, keys: Any) -> None:
        cases = {
            "a last noise that is 0": [1.0, 1.0, 0.0],
            "negative noise": [1.0, -1.0],
            "no noise": [0.0],
            "NaN noise": [np.nan],
            "infinite noise": [np.inf],
        }
        for what, noise_variance in cases.items():
            count = len(noise_variance)
            rewards = np.zeros(count)
            self._refuse(posterior, what, keys[:count], rewards, noise_variance)
        what = "two noises for one arm"
        self._refuse(posterior, what, keys[:1], [0.0], [1.0, 1.0])

    def test_a_warning_that_is_an_error_changes_nothing(self) -> None:
        """Many rewards of one arm with hardly any noise, whose covariance may have no factor."""
        posterior = self._trained_posterior()
        before = state_bytes(posterior)
        count = posterior.count
        same_arm = np.zeros(6, dtype=np.intp)
        keys = self._keys(posterior)[same_arm]
        rewards = np.zeros(6)
        variance = 1e-16 * self._scale()
        noise = np.full(6, variance)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                posterior.observe(keys, rewards, noise, rng=generator())
            except Exception:
                after = state_bytes(posterior)
                assert after == before, "a refused observation changed it"
            else:
                assert posterior.count == count + 6
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            state = restored(posterior.state())
            self.restore(state)

    def test_an_interrupted_observation_is_learned_whole_or_not_at_all(self) -> None:
        posterior = self._trained_posterior()
        start = posterior.state()
        before = state_bytes(posterior)
        count = posterior.count
        keys = self._keys(posterior)[[0, 4]]
        rewards = [0.3, -0.2]
        for number in range(1, self.interrupts + 1):
            with interrupted(number) as called:
                posterior.observe(keys, rewards, rng=generator())
            where = f"stopped in {called[-1]}" if called else "not stopped"
            if posterior.count == count:
                after = state_bytes(posterior)
                assert after == before, where
                continue
            assert posterior.count == count + 2, where
            state = restored(posterior.state())
            self.restore(state)  # the state must be consistent
            if len(called) < number:
                return  # the observation has fewer calls than that
            posterior = self.restore(start)
            before = state_bytes(posterior)

    def test_copies_go_their_own_way(self) -> None:
        posterior = self._trained_posterior()
        key = self._first_key(posterior)
        for what, duplicate in copies_of(posterior):
            expected = state_bytes(posterior)
            actual = state_bytes(duplicate)
            assert actual == expected, what
            with unchanged(posterior, f"teaching the copy of {what}"):
                duplicate.observe(key, [0.5], rng=generator())
            with unchanged(duplicate, f"teaching the original of {what}"):
                posterior.observe(key, [-0.5], rng=generator())

    def test_what_it_hands_out_cannot_change_it(self) -> None:
        posterior = self._trained_posterior()
        values = []
        for name in dir(posterior):
            if not name.startswith("_"):
                value = getattr(posterior, name)
                values.append(value)
        with unchanged(posterior, "writing into its attributes and states"):
            scribble(values)
            state = posterior.state()
            scribble(state)

    def test_stale_beliefs_refuse(self) -> None:
        posterior = self._trained_posterior()
        offer = self._offer()
        belief = posterior.belief(offer)
        negated = belief.negated()
        key = self._first_key(posterior)
        posterior.observe(key, [0.5], rng=generator())
        self._check_stale(belief)
        self._check_stale(negated)
        self._check_stale(belief.negated())
        current = posterior.belief(offer)
        current.sample(generator())

    def _check_stale(self, belief: Belief) -> None:
        position = np.array([0])
        with raises(StaleBeliefError, "cov of a stale belief"):
            _ = belief.cov
        with raises(StaleBeliefError, "incumbent of a stale belief"):
            _ = belief.incumbent
        with raises(StaleBeliefError, "information_gain of a stale belief"):
            _ = belief.information_gain
        with raises(StaleBeliefError, "a draw from a stale belief"):
            belief.sample(generator())
        with raises(StaleBeliefError, "conditioning a stale belief"):
            belief.condition(position)

    def test_the_state_survives_json_and_npz(self) -> None:
        for posterior in self._new_and_trained():
            original = posterior.state()
            state = restored(original)
            resumed = self.restore(state)
            self._assert_same(resumed, posterior, "after a round trip")
            assert resumed.information_gain == posterior.information_gain
            second = self.restore(resumed.state())
            assert state_bytes(second) == state_bytes(resumed)

            key = self._first_key(posterior)
            posterior.observe(key, [0.25], rng=generator())
            resumed.observe(key, [0.25], rng=generator())
            what = "after a round trip and one more observation"
            self._assert_same(resumed, posterior, what)
            if not isinstance(posterior, Resumable):
                continue
            if posterior.same_bits:
                expected = state_bytes(posterior)
                actual = state_bytes(resumed)
                assert actual == expected, "same_bits"
