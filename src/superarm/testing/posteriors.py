"""The contract of posteriors."""

from __future__ import annotations

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
    Prediction,
    State,
)
from superarm.errors import InputError, StaleBeliefError

from .helpers import assert_close, assert_moments, frozen, generator, raises, restored, state_bytes


class Observations(NamedTuple):
    """What the contract lets a posterior see."""

    positions: Ints
    rewards: Floats
    noise_variance: Floats


class PosteriorContract(ABC):
    """What every posterior promises.

    Checked against the textbook formula on the posterior's own prior: mean, covariance, draws,
    information gain and incumbent, with one noise variance per observation and with repeated
    arms; all at once, one at a time, and (if ``exchangeable``) in any order. Variance never
    grows; looking changes nothing, to the byte; bad input is an ``InputError`` and changes
    nothing; a stale belief refuses; the state survives JSON and ``.npz`` without pickle. ::

        class TestMyPosterior(PosteriorContract):
            def make_posterior(self):
                return MyPosterior(kernel, noise_variance=0.1)
            def make_arms(self):
                return Arms.numbered(features)
            def restore(self, state):
                return MyPosterior.from_state(state)

    ``make_arms`` gives six to twenty arms that the posterior knows.
    """

    tolerance = 1e-9
    """Rounding allowed, relative to the prior's scale."""
    draws = 4000

    @abstractmethod
    def make_posterior(self) -> Posterior:
        """Before any data."""

    @abstractmethod
    def make_arms(self) -> Arms: ...

    @abstractmethod
    def restore(self, state: State) -> Posterior: ...

    # --- what the tests are made of --------------------------------------------------------

    def _data(self) -> Observations:
        rng, n = generator(1), len(self.make_arms())
        positions = np.concatenate([rng.permutation(n)[: n - 2], rng.integers(0, n - 2, 4)])
        positions[-1] = positions[-2]  # the same arm twice in a row
        scale = np.sqrt(self._scale())
        return Observations(
            positions,
            frozen(scale * rng.standard_normal(len(positions))),
            frozen(self._noise() * rng.uniform(0.5, 2.0, len(positions))),
        )

    def _noise(self) -> float:
        return self.make_posterior().belief(self._offer()).noise_std ** 2

    def _scale(self) -> float:
        return float(np.max(np.diagonal(self._joint(self.make_posterior()).cov)))

    def _offer(self) -> Offer:
        return Offer(step=1, arms=self.make_arms())

    def _keys(self, posterior: Posterior) -> Any:
        return posterior.keys(self._offer())

    def _joint(self, posterior: Posterior) -> JointPrediction:
        joint = posterior.predict(self._keys(posterior), return_cov=True)
        assert isinstance(joint, JointPrediction)
        return joint

    def _marginal(self, posterior: Posterior) -> Prediction:
        marginal = posterior.predict(self._keys(posterior))
        assert isinstance(marginal, Prediction)
        return marginal

    def _std(self, posterior: Posterior) -> Floats:
        std = self._marginal(posterior).std
        assert std is not None
        return std

    def _taught(self) -> Posterior:
        posterior, data = self.make_posterior(), self._data()
        keys = self._keys(posterior)[data.positions]
        posterior.observe(keys, data.rewards, data.noise_variance, rng=generator())
        return posterior

    def _expected(self, data: Observations) -> JointPrediction:
        """The textbook: mean + K_*X (K_XX + D)⁻¹ (y − mean_X), and its covariance."""
        mean, K = self._joint(self.make_posterior())
        at = data.positions
        total = K[np.ix_(at, at)] + np.diag(data.noise_variance)
        gain = np.linalg.solve(total, K[at]).T
        return JointPrediction(mean + gain @ (data.rewards - mean[at]), K - gain @ K[at])

    def _assert_same(self, one: Posterior, other: Posterior, what: str) -> None:
        mean, cov = self._joint(one)
        other_mean, other_cov = self._joint(other)
        scale = self._scale()
        assert_close(mean, other_mean, self.tolerance * (np.sqrt(scale) + np.abs(mean).max()), what)
        assert_close(cov, other_cov, self.tolerance * scale, what)
        assert one.count == other.count
        assert_close(
            one.information_gain,
            other.information_gain,
            self.tolerance * (1.0 + abs(one.information_gain)),
            f"{what}: information_gain",
        )

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
        data, posterior = self._data(), self._taught()
        expected = self._expected(data)
        actual, (mean, std) = self._joint(posterior), self._marginal(posterior)
        assert std is not None
        scale = self._scale()
        mean_tolerance = self.tolerance * (np.sqrt(scale) + np.abs(expected.mean).max())
        assert_close(actual.mean, expected.mean, mean_tolerance, "the joint mean")
        assert_close(mean, expected.mean, mean_tolerance, "the mean")
        assert_close(actual.cov, expected.cov, self.tolerance * scale, "the covariance")
        assert_close(std**2, np.diagonal(expected.cov), self.tolerance * scale, "the variance")
        assert posterior.count == len(data.rewards)
        only_mean = posterior.predict(self._keys(posterior), return_std=False)
        assert isinstance(only_mean, Prediction)
        assert only_mean.std is None

    def test_draws_have_the_stated_moments(self) -> None:
        for posterior in (self.make_posterior(), self._taught()):
            keys = self._keys(posterior)
            drawn = posterior.sample(keys, generator(5), size=self.draws)
            assert drawn.shape == (self.draws, len(keys))
            assert_moments(drawn, *self._joint(posterior), "sample()")
            again = posterior.sample(keys, generator(5), size=self.draws)
            np.testing.assert_array_equal(drawn, again)

    def test_information_gain_is_the_log_determinant(self) -> None:
        """½ ln det(I + D^{-½} K D^{-½}), whatever the order or the grouping."""
        data, posterior = self._data(), self._taught()
        K = self._joint(self.make_posterior()).cov[np.ix_(data.positions, data.positions)]
        weight = 1.0 / np.sqrt(data.noise_variance)
        _, log_determinant = np.linalg.slogdet(np.eye(len(K)) + K * np.outer(weight, weight))
        tolerance = self.tolerance * (1.0 + log_determinant)
        assert_close(posterior.information_gain, 0.5 * log_determinant, tolerance, "the gain")
        belief = posterior.belief(self._offer())
        assert belief.information_gain == posterior.information_gain

    def test_the_incumbent_is_the_best_mean_observed(self) -> None:
        data, posterior = self._data(), self._taught()
        belief = posterior.belief(self._offer())
        observed = belief.mean[np.unique(data.positions)]
        tolerance = self.tolerance * (np.sqrt(self._scale()) + np.abs(belief.mean).max())
        for conditioned in (belief, belief.condition(np.array([0]))):
            assert_close(conditioned.incumbent, observed.max(), tolerance, "incumbent")
            assert_close(conditioned.negated().incumbent, -observed.min(), tolerance, "negated")
        negated = belief.negated().condition(np.array([0]))
        assert_close(negated.incumbent, -observed.min(), tolerance, "negated, then conditioned")

    # --- ways to the same end --------------------------------------------------------------

    def test_one_at_a_time_is_as_good_as_all_at_once(self) -> None:
        data, posterior = self._data(), self.make_posterior()
        keys = self._keys(posterior)
        for at, reward, noise in zip(*data, strict=True):
            posterior.observe(keys[[at]], [reward], [noise], rng=generator())
        self._assert_same(posterior, self._taught(), "one at a time")
        plain, batch = self.make_posterior(), self.make_posterior()
        for at, reward in zip(data.positions, data.rewards, strict=True):
            plain.predict(keys)  # deciding first must make no difference
            plain.observe(keys[[at]], data.rewards[:1] * 0.0 + reward, rng=generator())
        batch.observe(keys[data.positions], data.rewards, rng=generator())
        self._assert_same(plain, batch, "one at a time, the model's own noise")

    def test_order_does_not_matter(self) -> None:
        data, posterior = self._data(), self.make_posterior()
        if not posterior.exchangeable:
            return
        keys = self._keys(posterior)
        order = generator(8).permutation(len(data.rewards))
        half = len(order) // 2
        for part in (order[:half], order[half:]):
            posterior.observe(
                keys[data.positions[part]],
                data.rewards[part],
                data.noise_variance[part],
                rng=generator(),
            )
        self._assert_same(posterior, self._taught(), "another order")

    def test_variance_never_grows(self) -> None:
        data, posterior = self._data(), self.make_posterior()
        keys = self._keys(posterior)
        before = self._std(posterior) ** 2
        gained = 0.0
        for at, reward in zip(data.positions, data.rewards, strict=True):
            posterior.observe(keys[[at]], [reward], rng=generator())
            after = self._std(posterior) ** 2
            assert (after <= before + self.tolerance * self._scale()).all()
            assert posterior.information_gain >= gained
            before, gained = after, posterior.information_gain

    def test_condition_is_what_observing_will_do(self) -> None:
        posterior, offer = self._taught(), self._offer()
        chosen = np.array([3, 0])
        foreseen = posterior.belief(offer).condition(chosen)
        posterior.observe(self._keys(posterior)[chosen], [0.3, -0.7], rng=generator())
        assert_close(
            foreseen.std**2, self._std(posterior) ** 2, self.tolerance * self._scale(), "condition()"
        )

    def test_pending_arms_are_taken_as_seen(self) -> None:
        posterior, offer = self._taught(), self._offer()
        chosen = np.array([3, 0, 3])
        keys = self._keys(posterior)[chosen]
        plain, given = posterior.belief(offer), posterior.belief(offer, pending=keys)
        tolerance = self.tolerance * (np.sqrt(self._scale()) + np.abs(plain.mean).max())
        assert_close(given.mean, plain.mean, tolerance, "pending arms must not move the mean")
        posterior.observe(keys, np.zeros(3), rng=generator())
        tolerance = self.tolerance * self._scale()
        assert_close(given.std**2, self._std(posterior) ** 2, tolerance, "belief(offer, pending)")

    def test_feedback_is_dated_by_its_own_offer(self) -> None:
        """Learned late or at once: keys carry the time of their offer, where it matters at all."""
        arms = self.make_arms()
        early, late, now = (
            Offer(step=step, arms=arms, time=time) for step, time in ((1, 0.5), (4, 2.0), (9, 7.5))
        )
        seen = []
        for order in ((early, late), (late, early)):
            posterior = self.make_posterior()
            if not posterior.exchangeable:
                return
            for offer in order:
                rewards = [0.4, -0.2] if offer is early else [-0.3, 0.6]
                posterior.observe(posterior.keys(offer)[:2], rewards, rng=generator())
            seen.append(posterior.belief(now))
        scale = self._scale()
        tolerance = self.tolerance * (np.sqrt(scale) + np.abs(seen[0].mean).max())
        assert_close(seen[0].mean, seen[1].mean, tolerance, "late feedback: mean")
        assert_close(seen[0].std ** 2, seen[1].std ** 2, self.tolerance * scale, "late feedback: std")

    def test_a_belief_follows_the_order_of_the_offer(self) -> None:
        posterior, arms = self._taught(), self.make_arms()
        turned = np.arange(len(arms))[::-2]
        fewer = Arms(ids=[arms.ids[at] for at in turned], features=arms.features[turned])
        whole, part = (posterior.belief(Offer(step=1, arms=each)) for each in (arms, fewer))
        tolerance = self.tolerance * (1.0 + self._scale() + np.abs(whole.mean).max())
        assert_close(part.mean, whole.mean[turned], tolerance, "mean of some arms")
        assert_close(part.std**2, whole.std[turned] ** 2, tolerance, "variance of some arms")
        assert_close(part.cov, whole.cov[np.ix_(turned, turned)], tolerance, "cov of some arms")

    # --- state -----------------------------------------------------------------------------

    def test_looking_changes_nothing(self) -> None:
        for posterior in (self.make_posterior(), self._taught()):
            keys, before = self._keys(posterior), state_bytes(posterior.state())
            for array in (*self._joint(posterior), *self._marginal(posterior)):
                assert array is not None
                array[...] = np.nan  # what was returned is the caller's own
            posterior.sample(keys, generator(), size=2)[...] = np.nan
            belief = posterior.belief(self._offer())
            for seen in (belief, belief.negated(), belief.condition(np.array([0, 1]))):
                seen.sample(generator())
                assert np.isfinite(seen.cov).all()
                assert np.isfinite(seen.incumbent)
            belief.mean[...] = np.nan
            belief.std[...] = np.nan
            assert state_bytes(posterior.state()) == before, "looking changed the state"
            assert all(np.isfinite(part).all() for part in self._joint(posterior))
            assert np.isfinite(self._std(posterior)).all()

    def test_what_was_handed_in_stays_the_callers(self) -> None:
        posterior, data = self.make_posterior(), self._data()
        keys = np.array(self._keys(posterior)[data.positions])
        rewards, noise = np.array(data.rewards), np.array(data.noise_variance)
        copies = keys.copy(), rewards.copy(), noise.copy()
        posterior.predict(keys)
        posterior.observe(keys, rewards, noise, rng=generator())
        for array, copy in zip((keys, rewards, noise), copies, strict=True):
            np.testing.assert_array_equal(array, copy)
            array[...] = 0
        self._assert_same(posterior, self._taught(), "after the caller's arrays changed")

    def test_bad_input_is_refused_and_changes_nothing(self) -> None:
        for posterior in (self.make_posterior(), self._taught()):
            keys, before = self._keys(posterior), state_bytes(posterior.state())
            one, two = keys[:1], keys[:2]
            nowhere = self._unknown(keys)
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
                "arms that are unknown or not finite": (nowhere, [0.0]),
                "no noise": (one, [0.0], [0.0]),
                "negative noise": (two, [0.0, 1.0], [1.0, -1.0]),
                "NaN noise": (one, [0.0], [np.nan]),
                "infinite noise": (one, [0.0], [np.inf]),
                "two noises for one arm": (one, [0.0], [1.0, 1.0]),
            }
            for what, arguments in cases.items():
                with raises(InputError, what):
                    posterior.observe(*arguments, **{"rng": generator()})
                assert state_bytes(posterior.state()) == before, f"{what} changed the state"
            for what, arms in (
                ("predicting for unknown arms", nowhere),
                ("predicting for a number", 0),
                ("predicting for a cube", keys[None, None]),
            ):
                with raises(InputError, what):
                    posterior.predict(arms)
            with raises(InputError, "no sample at all"):
                posterior.sample(one, generator(), size=0)
            posterior.observe(one[:0], [], rng=generator())
            assert state_bytes(posterior.state()) == before, "observing nothing changed the state"

    def _unknown(self, keys: Any) -> Any:
        """One arm that cannot be: a NaN feature, or a row number that is not there."""
        bad = np.array(keys[:1])
        bad[0] = np.nan if bad.dtype.kind == "f" else -1
        return bad

    def test_stale_beliefs_refuse(self) -> None:
        posterior, offer = self._taught(), self._offer()
        belief = posterior.belief(offer)
        turned = belief.negated()
        posterior.observe(self._keys(posterior)[:1], [0.5], rng=generator())
        for each in (belief, turned, belief.negated()):
            with raises(StaleBeliefError, "cov of a stale belief"):
                _ = each.cov
            with raises(StaleBeliefError, "a draw from a stale belief"):
                each.sample(generator())
            with raises(StaleBeliefError, "conditioning a stale belief"):
                each.condition(np.array([0]))
            with raises(StaleBeliefError, "the incumbent of a stale belief"):
                _ = each.incumbent
            with raises(StaleBeliefError, "the information gain of a stale belief"):
                _ = each.information_gain
        posterior.belief(offer).sample(generator())

    def test_the_state_survives_json_and_npz(self) -> None:
        for posterior in (self.make_posterior(), self._taught()):
            again = self.restore(restored(posterior.state()))
            self._assert_same(again, posterior, "after a round trip")
            assert again.count == posterior.count
            assert again.information_gain == posterior.information_gain
            assert state_bytes(self.restore(again.state()).state()) == state_bytes(again.state())
            key = self._keys(posterior)[:1]
            for each in (posterior, again):
                each.observe(key, [0.25], rng=generator())
            self._assert_same(again, posterior, "after a round trip and one more observation")
