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
    """What the contract lets a posterior see."""

    positions: Ints
    rewards: Floats
    noise_variance: Floats


class PosteriorContract(ABC):
    """What every posterior promises, against the textbook's formulas on its own prior.

    ``make_arms`` gives six to twenty arms that the posterior knows.
    """

    tolerance = 1e-9  # rounding allowed, relative to the prior's scale
    draws = 4000
    interrupts = (
        12  # places in one observation at which it is interrupted, one after the other
    )

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
        positions = np.concatenate(
            [rng.permutation(n)[: n - 2], rng.integers(0, n - 2, 4)]
        )
        positions[-1] = positions[-2]  # the same arm twice in a row
        noise = self.make_posterior().belief(self._offer()).noise_std ** 2
        rewards = frozen(np.sqrt(self._scale()) * rng.standard_normal(len(positions)))
        return Observations(
            positions, rewards, frozen(noise * rng.uniform(0.5, 2.0, len(positions)))
        )

    def _scale(self) -> float:
        return float(np.max(np.diagonal(self._joint(self.make_posterior()).cov)))

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
        posterior.observe(
            keys, data.rewards[part], data.noise_variance[part], rng=generator()
        )
        return posterior

    def _taught(self) -> Posterior:
        return self._observe(self.make_posterior())

    def _assert_mean(self, actual: Floats, expected: Floats, what: str) -> None:
        tolerance = self.tolerance * (np.sqrt(self._scale()) + np.abs(expected).max())
        assert_close(actual, expected, tolerance, what)

    def _assert_variance(self, actual: Floats, expected: Floats, what: str) -> None:
        assert_close(actual, expected, self.tolerance * self._scale(), what)

    def _assert_same(self, one: Posterior, other: Posterior, what: str) -> None:
        (mean, cov), (expected_mean, expected_cov) = (
            self._joint(one),
            self._joint(other),
        )
        self._assert_mean(mean, expected_mean, what)
        self._assert_variance(cov, expected_cov, what)
        assert one.count == other.count
        ours, theirs = one.information_gain, other.information_gain
        assert_close(
            ours,
            theirs,
            self.tolerance * (1.0 + abs(theirs)),
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
        """mean + K_*X (K_XX + D)⁻¹ (y − mean_X), and its covariance."""
        data, posterior = self._data(), self._taught()
        prior, K = self._joint(self.make_posterior())
        at = data.positions
        total = K[np.ix_(at, at)] + np.diag(data.noise_variance)
        expected = prior + K[:, at] @ np.linalg.solve(total, data.rewards - prior[at])
        mean, cov = self._joint(posterior)
        self._assert_mean(mean, expected, "the joint mean")
        self._assert_mean(
            posterior.predict(self._keys(posterior)).mean, expected, "the mean"
        )
        expected = conditioned(K, at, data.noise_variance)
        self._assert_variance(cov, expected, "the covariance")
        self._assert_variance(
            self._variance(posterior), np.diagonal(expected), "the variance"
        )
        assert posterior.count == len(data.rewards)
        assert posterior.predict(self._keys(posterior), return_std=False).std is None

    def test_draws_have_the_stated_moments(self) -> None:
        for posterior in (self.make_posterior(), self._taught()):
            keys = self._keys(posterior)
            drawn = posterior.sample(keys, generator(5), size=self.draws)
            assert drawn.shape == (self.draws, len(keys))
            assert_moments(drawn, *self._joint(posterior), "sample()")
            np.testing.assert_array_equal(
                drawn, posterior.sample(keys, generator(5), self.draws)
            )

    def test_information_gain_is_the_log_determinant(self) -> None:
        """½ ln det(I + D^{-½} K D^{-½}), whatever the order or the grouping."""
        data, posterior = self._data(), self._taught()
        K = self._joint(self.make_posterior()).cov[
            np.ix_(data.positions, data.positions)
        ]
        weight = 1.0 / np.sqrt(data.noise_variance)
        _, log_determinant = np.linalg.slogdet(
            np.eye(len(K)) + K * np.outer(weight, weight)
        )
        tolerance = self.tolerance * (1.0 + log_determinant)
        assert_close(
            posterior.information_gain, 0.5 * log_determinant, tolerance, "the gain"
        )
        assert (
            posterior.belief(self._offer()).information_gain
            == posterior.information_gain
        )

    def test_the_incumbent_is_the_best_mean_observed(self) -> None:
        data, posterior = self._data(), self._taught()
        belief = posterior.belief(self._offer())
        observed = belief.mean[np.unique(data.positions)]
        tolerance = self.tolerance * (
            np.sqrt(self._scale()) + np.abs(belief.mean).max()
        )
        for each in (belief, belief.condition(np.array([0]))):
            assert_close(each.incumbent, observed.max(), tolerance, "incumbent")
            assert_close(
                each.negated().incumbent, -observed.min(), tolerance, "negated"
            )
        negated = belief.negated().condition(np.array([0]))
        assert_close(
            negated.incumbent, -observed.min(), tolerance, "negated, then conditioned"
        )

    # --- ways to the same end --------------------------------------------------------------

    def test_grouping_does_not_matter_nor_order_if_it_says_so(self) -> None:
        count = len(self._data().rewards)
        ways = {"one at a time": np.arange(count).reshape(-1, 1).tolist()}
        if self.make_posterior().exchangeable:
            order = generator(8).permutation(count).tolist()
            ways["another order"] = [order[: count // 2], order[count // 2 :]]
        for what, parts in ways.items():
            posterior = self.make_posterior()
            for part in parts:
                self._observe(posterior, part)
            self._assert_same(posterior, self._taught(), what)

    def test_variance_never_grows(self) -> None:
        """Also with the model's own noise, and where one looks before each observation."""
        data, posterior, batch = (
            self._data(),
            self.make_posterior(),
            self.make_posterior(),
        )
        keys = self._keys(posterior)
        before, gained = self._variance(posterior), 0.0
        for at, reward in zip(data.positions, data.rewards, strict=True):
            posterior.observe(keys[[at]], [reward], rng=generator())
            after = self._variance(posterior)
            assert (after <= before + self.tolerance * self._scale()).all()
            assert posterior.information_gain >= gained
            before, gained = after, posterior.information_gain
        batch.observe(keys[data.positions], data.rewards, rng=generator())
        self._assert_same(posterior, batch, "one at a time, the model's own noise")

    def test_arms_not_yet_seen_are_foreseen(self) -> None:
        """``condition`` and ``pending`` do to the variance what observing will do."""
        chosen, again = np.array([3, 0]), np.array([3, 0, 3])
        for positions in (chosen, again):
            posterior, offer = self._taught(), self._offer()
            keys, plain = self._keys(posterior)[positions], posterior.belief(offer)
            foreseen = [posterior.belief(offer, pending=keys)]
            if positions is chosen:
                foreseen.append(plain.condition(positions))
            variances = [belief.std**2 for belief in foreseen]
            for belief in foreseen:
                self._assert_mean(
                    belief.mean, plain.mean, "pending arms must not move the mean"
                )
            posterior.observe(keys, np.zeros(len(keys)), rng=generator())
            for variance in variances:
                self._assert_variance(
                    variance, self._variance(posterior), "foreseen variance"
                )

    def test_feedback_is_dated_by_its_own_offer(self) -> None:
        """Learned late or at once: keys carry the time of their offer, where it matters at all."""
        if not self.make_posterior().exchangeable:
            return
        arms = self.make_arms()
        times = ((1, 0.5), (4, 2.0), (9, 7.5))
        early, late, now = (
            Offer(step=step, arms=arms, time=time) for step, time in times
        )
        seen = []
        for order in ((early, late), (late, early)):
            posterior = self.make_posterior()
            for offer in order:
                rewards = [0.4, -0.2] if offer is early else [-0.3, 0.6]
                posterior.observe(posterior.keys(offer)[:2], rewards, rng=generator())
            seen.append(posterior.belief(now))
        self._assert_mean(seen[1].mean, seen[0].mean, "late feedback: mean")
        self._assert_variance(
            seen[1].std ** 2, seen[0].std ** 2, "late feedback: variance"
        )

    def test_a_belief_follows_the_order_of_the_offer(self) -> None:
        posterior, arms = self._taught(), self.make_arms()
        turned = np.arange(len(arms))[::-2]
        fewer = Arms(
            ids=[arms.ids[at] for at in turned], features=arms.features[turned]
        )
        whole, part = (
            posterior.belief(Offer(step=1, arms=each)) for each in (arms, fewer)
        )
        tolerance = self.tolerance * (1.0 + self._scale() + np.abs(whole.mean).max())
        assert_close(part.mean, whole.mean[turned], tolerance, "mean of some arms")
        assert_close(
            part.std**2, whole.std[turned] ** 2, tolerance, "variance of some arms"
        )
        assert_close(
            part.cov, whole.cov[np.ix_(turned, turned)], tolerance, "cov of some arms"
        )

    # --- state -----------------------------------------------------------------------------

    def test_looking_changes_nothing(self) -> None:
        for posterior in (self.make_posterior(), self._taught()):
            with unchanged(posterior, "looking"):
                keys, belief = self._keys(posterior), posterior.belief(self._offer())
                for seen in (
                    belief,
                    belief.negated(),
                    belief.condition(np.array([0, 1])),
                ):
                    seen.sample(generator())
                    assert np.isfinite(seen.cov).all()
                    assert np.isfinite(seen.incumbent)
                # What was returned is the caller's own, or cannot be written to.
                posterior.sample(keys, generator(), size=2)[...] = np.nan
                for array in (*self._joint(posterior), *posterior.predict(keys)):
                    assert array is not None
                    array[...] = np.nan
                for array in (belief.mean, belief.std):
                    if array.flags.writeable:
                        array[...] = np.nan
            assert all(np.isfinite(part).all() for part in self._joint(posterior))
            assert np.isfinite(self._variance(posterior)).all()

    def test_what_was_handed_in_stays_the_callers(self) -> None:
        posterior, data = self.make_posterior(), self._data()
        keys = np.array(self._keys(posterior)[data.positions])
        given = keys, np.array(data.rewards), np.array(data.noise_variance)
        copies = [array.copy() for array in given]
        posterior.predict(keys)
        posterior.observe(*given, generator())
        for array, copy in zip(given, copies, strict=True):
            np.testing.assert_array_equal(array, copy)
            array[...] = 0
        self._assert_same(
            posterior, self._taught(), "after the caller's arrays changed"
        )

    def test_bad_input_is_refused_and_changes_nothing(self) -> None:
        for posterior in (self.make_posterior(), self._taught()):
            keys = self._keys(posterior)
            one, two = keys[:1], keys[:2]
            nowhere = np.array(one)  # a NaN feature, or a row number that is not there
            nowhere[0] = np.nan if nowhere.dtype.kind == "f" else -1
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
                "a last arm that is unknown or not finite": (
                    np.concatenate([keys[:3], nowhere]),
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
                    posterior.observe(*arguments, **{"rng": generator()})
            for arms in (nowhere, 0, keys[None, None]):
                with raises(InputError, f"predicting for {arms!r:.40}"):
                    posterior.predict(arms)
            with raises(InputError, "no sample at all"):
                posterior.sample(one, generator(), size=0)
            with unchanged(posterior, "observing nothing"):
                posterior.observe(one[:0], [], rng=generator())

    def test_a_warning_that_is_an_error_changes_nothing(self) -> None:
        """Rewards of one arm with hardly any noise: matrices without a factor, where there are any."""
        posterior = self._taught()
        keys, before = self._keys(posterior), state_to_bytes(posterior.state())
        again, noise = np.zeros(6, dtype=np.intp), np.full(6, 1e-16 * self._scale())
        count = posterior.count
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                posterior.observe(keys[again], np.zeros(6), noise, rng=generator())
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
        posterior = self._taught()
        start = posterior.state()
        keys, before, count = (
            self._keys(posterior),
            state_to_bytes(start),
            posterior.count,
        )
        for number in range(1, self.interrupts + 1):
            with interrupted(number) as called:
                posterior.observe(keys[[0, 4]], [0.3, -0.2], rng=generator())
            if posterior.count == count:
                assert state_to_bytes(posterior.state()) == before, (
                    f"stopped in {called[-1]}"
                )
            else:
                assert posterior.count == count + 2, f"stopped in {called[-1]}"
                self.restore(restored(posterior.state()))  # nothing in it contradicts
                if len(called) < number:
                    return  # it was not interrupted any more
                posterior = self.restore(start)
                before = state_to_bytes(posterior.state())

    def test_copies_go_their_own_way(self) -> None:
        posterior = self._taught()
        key = self._keys(posterior)[:1]
        for what, again in copies_of(posterior):
            assert state_to_bytes(again.state()) == state_to_bytes(posterior.state()), (
                what
            )
            with unchanged(posterior, f"teaching what {what} made"):
                again.observe(key, [0.5], rng=generator())
            with unchanged(again, f"teaching the original of what {what} made"):
                posterior.observe(key, [-0.5], rng=generator())

    def test_what_it_hands_out_cannot_change_it(self) -> None:
        posterior = self._taught()
        public = (name for name in dir(posterior) if not name.startswith("_"))
        values = [getattr(posterior, name) for name in public]
        with unchanged(posterior, "writing into its attributes and states"):
            scribble(values)
            scribble(posterior.state())

    def test_stale_beliefs_refuse(self) -> None:
        posterior, offer = self._taught(), self._offer()
        belief = posterior.belief(offer)
        turned = belief.negated()
        posterior.observe(self._keys(posterior)[:1], [0.5], rng=generator())
        for each in (belief, turned, belief.negated()):
            for name in ("cov", "incumbent", "information_gain"):
                with raises(StaleBeliefError, f"{name} of a stale belief"):
                    getattr(each, name)
            with raises(StaleBeliefError, "a draw from a stale belief"):
                each.sample(generator())
            with raises(StaleBeliefError, "conditioning a stale belief"):
                each.condition(np.array([0]))
        posterior.belief(offer).sample(generator())

    def test_the_state_survives_json_and_npz(self) -> None:
        for posterior in (self.make_posterior(), self._taught()):
            again = self.restore(restored(posterior.state()))
            self._assert_same(again, posterior, "after a round trip")
            assert again.information_gain == posterior.information_gain
            twice = self.restore(again.state()).state()
            assert state_to_bytes(twice) == state_to_bytes(again.state())
            for each in (posterior, again):
                each.observe(self._keys(each)[:1], [0.25], rng=generator())
            self._assert_same(
                again, posterior, "after a round trip and one more observation"
            )
            if isinstance(posterior, Resumable) and posterior.same_bits:
                assert state_to_bytes(again.state()) == state_to_bytes(
                    posterior.state()
                ), "same_bits"
