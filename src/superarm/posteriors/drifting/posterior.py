"""Gaussian-process regression on a fixed arm set whose rewards drift [bogunovic2016time, eqs. 7, 8].

cov(f_s(x), f_t(y)) = k(x, y) · k_T(s, t), where the kernel of time k_T is followed as a state that
moves (``kernels/state_space.py``), in one of three forms (``form.py``). ``learning.py`` learns rewards
in the order of their times, whenever they arrive; ``saved.py`` reads and writes states.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superarm.core import Covariance, Floats, Ints, Offer, Rng, State
from superarm.core.capabilities import HasPriorCovariance
from superarm.core.errors import ForgottenError, InputError
from superarm.core.inputs import (
    as_features,
    as_levels,
    as_number,
    read_only,
    require_choice,
    require_type,
)
from superarm.core.linalg import psd_root
from superarm.core.locks import consistent_read
from superarm.core.registry import contradiction, foreign_parts, register
from superarm.core.threads import one_blas_thread
from superarm.kernels import Kernel, Temporal
from superarm.kernels.base import as_covariance
from superarm.kernels.state_space import StateSpace
from superarm.posteriors.base import GaussianPosterior, Memory
from superarm.posteriors.beliefs import GaussianBelief
from superarm.posteriors.fixed import FixedArms
from superarm.posteriors.observations import Observations
from superarm.posteriors.variances import prior_variance, standard_deviation

from .factory import FormChoice, FormFactory
from .form import Form, FormName, Watched
from .kalman import KalmanForm
from .keys import (
    ROW,
    TIME,
    SingleReward,
    as_single_reward,
    as_timed_keys,
    rows_of,
    times_of,
)
from .learning import Learner
from .saved import history_memory, with_saved_forms, with_saved_observations
from .time_kernel import outputs_after, time_covariance

# Numbers that the states of all arms may take, n·s²: 2 GB.
_MOST_STATE = 2.5e8


@register("posterior", "drifting")
class DriftingGP(GaussianPosterior, HasPriorCovariance):
    """Exact posterior over fixed arms whose rewards drift.

    Keys are rows of two numbers: an arm's row number and a time. Several rewards may share a time;
    times may be missing or irregular. Late feedback is learned as of its own time. You can ask
    about the past as far back as ``remembered`` reaches.

    Args:
        kernel: The kernel over arms.
        arms: The fixed arms, one row of features each.
        noise_variance: Variance of the noise of one observation, in squared units of the reward.
        mean: The prior mean: a number, one number per arm, or a function of the arms' features.
        drift: How rewards change with time: a kernel of time alone. The default,
            Temporal(epsilon=0.01), is the drift of bogunovic2016time:
            f_{t+1} = √(1 − ε) f_t + √ε g_{t+1}. Others are Matern with nu 0.5 or 1.5, Periodic,
            Constant, and sums and products of these.
        form: Which of the equivalent forms to use: "folded", "visited" or "kalman";
            "auto" chooses by cost.
        time_tolerance: Largest error of the kernel of time, relative to its variance. The larger
            it is, the smaller is the state of a periodic kernel.

    >>> from superarm.kernels import SquaredExponential, Temporal
    >>> drift = Temporal(epsilon=0.1)
    >>> gp = DriftingGP(SquaredExponential(), [[0.0], [1.0]], noise_variance=0.01, drift=drift)
    >>> gp.observe([[0, 1.0]], [2.0])
    >>> gp.predict([[0, 1.0], [0, 8.0], [0, 80.0]]).mean.round(2).tolist()
    [1.98, 1.37, 0.03]
    """

    kind = "drifting-gp"
    schema = 3

    def __init__(
        self,
        kernel: Covariance,
        arms: Any,
        noise_variance: float,
        mean: Any = 0.0,
        *,
        drift: Kernel | None = None,
        form: FormChoice = "auto",
        time_tolerance: float = 1e-12,
    ) -> None:
        super().__init__(noise_variance=noise_variance)
        self.kernel = as_covariance(kernel, "kernel")
        self.arms = read_only(as_features(arms, "arms"))
        self._fixed = FixedArms(self.arms)
        n = len(self.arms)
        if n == 0:
            raise InputError("arms is empty; give at least one")
        self.mean = mean
        mean_values = mean(self.arms) if callable(mean) else mean
        self.prior_mean = as_levels(mean_values, "mean", n)
        self.drift = Temporal() if drift is None else drift
        self.time_tolerance, self._space = self._follow_time(drift, time_tolerance)
        output = self._space.output
        self._time_variance = float(output @ output)  # k_T(0)
        self._variance = self._time_variance * prior_variance(self.kernel, self.arms)
        self._scale = float(self._variance.max())
        # Keys of all arms; their times are filled in for each offer.
        self._all_keys = np.column_stack([np.arange(n), np.zeros(n)])
        require_choice(form, "form", ("auto", "folded", "visited", "kalman"))
        self._forms = FormFactory(
            form, self.kernel, self.arms, self._space, self._scale
        )
        self._learner = Learner(self._forms, self._space, self.prior_mean)
        self._history = self._learner.new_history(self.noise_variance)
        self.ignored = 0
        """Rewards that came too late: nothing of them would remain, so they are not learned."""

    def _follow_time(
        self, drift: Kernel | None, time_tolerance: float
    ) -> tuple[float, StateSpace]:
        """The tolerance, validated, and the state that follows the kernel of time."""
        if not isinstance(self.drift, Kernel):
            raise InputError(
                f"drift is {drift!r:.60}; give a kernel, such as Temporal(epsilon=0.01)"
            )
        tolerance = as_number(time_tolerance, "time_tolerance", 1e-15, 0.1)
        space = self.drift.state_space(tolerance)
        s = len(space.output)
        n = len(self.arms)
        if s * s * n > _MOST_STATE:
            raise InputError(
                f"the state of this kernel of time has {s} numbers, too many for {n} arms; a periodic "
                "kernel needs a longer lengthscale, or a larger time_tolerance"
            )
        return tolerance, space

    # --- the form in use -------------------------------------------------------------------

    @property
    def _form(self) -> Form:
        return self._history.form

    @property
    def form(self) -> FormName:
        """The name of the form in use."""
        return self._form.name

    @property
    def rank(self) -> int:
        """Columns of the matrix in use."""
        return self._form.rank

    @property
    def tolerance(self) -> float:
        """Bound on the error of covariances, besides rounding.

        It adds what features and the state of time omit from kernel values, and what now remains
        of faded parts that were dropped.
        """
        feature_error = 0.0
        if self.form == "kalman":
            feature_error = self._forms.feature_error * self._time_variance
        largest = 0.0  # value of the kernel
        if self._time_variance:
            largest = self._scale / self._time_variance
        return self._form.error + feature_error + largest * self._space.error

    @property
    def remembered(self) -> Observations:
        """Observations that have not faded: arms and times (N, 2), rewards (N,), noise variances."""
        return self._history.remembered

    @property
    def forgotten_until(self) -> float:
        """The time until which observations are forgotten; −∞ while none is."""
        return self._history.forgotten

    def parameters(self) -> Mapping[str, Any]:
        return {**super().parameters(), "form": self._forms.choice}

    # --- keys ------------------------------------------------------------------------------

    def keys(self, offer: Offer) -> Floats:
        """Keys of the arms on offer, (n, 2).

        Args:
            offer: The arms on offer, and the time.
        """
        require_type(offer, Offer, "offer")
        rows = self._fixed.locate(offer.arms).keys
        keys = np.empty((len(rows), 2))
        keys[:, ROW] = rows
        keys[:, TIME] = offer.moment
        return keys

    def _as_keys(self, arms: Any) -> Floats:
        return as_timed_keys(arms, len(self.prior_mean))

    def _remembered_keys(self, arms: Any) -> Floats:
        keys = self._as_keys(arms)
        history = self._history
        if len(keys) and history.has_forgotten:
            start = history.earliest_form.time
            earliest = times_of(keys).min()
            if earliest < start or earliest <= history.forgotten:
                raise ForgottenError(
                    f"time {earliest:g} is forgotten: what was observed until {start:g} has "
                    "faded, and is no longer kept; ask about later times"
                )
        return keys

    # --- the prior -------------------------------------------------------------------------

    def prior_variances(self, keys: Floats) -> Floats:
        variances: Floats = self._variance[rows_of(keys)]
        return variances

    def prior_covariances(self, keys: Floats, others: Floats) -> Floats:
        arms = self.arms[rows_of(keys)]
        other_arms = self.arms[rows_of(others)]
        cov = np.array(self.kernel(arms, other_arms), dtype=np.float64)
        times = times_of(keys)[:, np.newaxis]
        other_times = times_of(others)[:, np.newaxis]
        cov *= self.drift(times, other_times)
        return cov

    # --- answers ---------------------------------------------------------------------------

    def belief(
        self, offer: Offer, pending: NDArray[Any] | None = None
    ) -> GaussianBelief:
        """The belief about the arms on offer.

        Args:
            offer: The arms on offer, and the time.
            pending: Keys that were chosen and not yet seen, (p, 2), or ``None``.
        """
        last = self._fixed.last
        # The fast path of most rounds: all arms, at a time not before the last observation.
        if type(offer) is Offer and pending is None and last is not None:
            offers_all_arms = last.is_complete and last.arms is offer.arms
            belief = self._belief_of_all(offer) if offers_all_arms else None
            if belief is not None:
                return belief
        return super().belief(offer, pending)

    @consistent_read
    def _belief_of_all(self, offer: Offer) -> GaussianBelief | None:
        """The belief about all arms; ``None`` where something was observed after the offer."""
        form = self._history.form
        moment = offer.moment
        if not self.count or not moment >= form.time:
            return None
        transition = self._space.transition(moment - form.time)
        mean, variance = form.all_moments(transition)
        mean += self.prior_mean
        np.subtract(self._variance, variance, out=variance)
        std = standard_deviation(variance, lambda: self._scale)
        keys = self._all_keys.copy()
        keys[:, TIME] = moment
        return GaussianBelief(self, keys, mean, std)

    def _look_back(self, keys: Floats) -> Watched:
        """What is known now of rewards before the last observation, (p, 2)."""
        with self._lock.lock:
            return self._learner.look_back(self._history, keys)

    def _moments(self, keys: Floats) -> tuple[Floats, Floats]:
        rows = rows_of(keys)
        times = times_of(keys)
        mean = self.prior_mean[rows]
        variance = self._variance[rows]
        if not self.count or not len(rows):
            return mean, variance
        now = self._form.time
        first = times[0]
        if first >= now and (times == first).all():  # as in every round
            A = self._space.transition(first - now)
            g = self._space.output @ A
            shift, reduction = self._form.moments(rows, g)
            mean += shift
            variance -= reduction
            return mean, variance
        past = np.flatnonzero(times < now)
        if len(past):
            watched = self._cached("past", keys[past], self._look_back)
            mean[past] += watched.mean
            variance[past] = np.diagonal(watched.cov)
        outputs, place = outputs_after(self._space, now, times)
        for number, g in enumerate(outputs):
            same_time = np.flatnonzero((place == number) & (times >= now))
            shift, reduction = self._form.moments(rows[same_time], g)
            mean[same_time] += shift
            variance[same_time] -= reduction
        return mean, variance

    def _covariance(self, keys: Floats, positions: Ints | None = None) -> Floats:
        if positions is None:
            positions = np.arange(len(keys))
        rows = rows_of(keys)
        times = times_of(keys)
        arms = self.arms[rows]
        prior = self.kernel(arms[positions], arms)  # (k, m)
        cov = np.array(prior, dtype=np.float64)
        cov *= time_covariance(self._space, times[positions], times)
        if not self.count or not len(rows):
            return cov
        now = self._form.time
        different_outputs, place = outputs_after(self._space, now, times)
        outputs = different_outputs[place]  # (m, s)
        roots = self._form.roots(rows, outputs)
        cov -= self._form.explained(roots[positions], roots)
        past = np.flatnonzero(times < now)
        if len(past):
            self._set_past_covariance(cov, keys, positions, past, outputs)
        return cov

    def _set_past_covariance(
        self,
        cov: Floats,
        keys: Floats,
        positions: Ints,
        past: Ints,
        outputs: Floats,
    ) -> None:
        """Overwrite rows and columns of ``cov`` that belong to keys of the past."""
        rows = rows_of(keys)
        watched = self._cached("past", keys[past], self._look_back)
        with_states = watched.cross_cov[:, :, rows]  # (p, s, m)
        # Of past keys with all keys, (p, m).
        past_cov = np.einsum("psm,ms->pm", with_states, outputs)
        past_cov[:, past] = watched.cov
        cov[:, past] = past_cov[:, positions].T
        place_in_past = np.full(len(rows), -1)  # of every key; −1 for none
        place_in_past[past] = np.arange(len(past))
        places = place_in_past[positions]
        past_rows = np.flatnonzero(places >= 0)
        cov[past_rows] = past_cov[places[past_rows]]

    def _draw(self, keys: Floats, rng: Rng, size: int) -> Floats:
        rows = rows_of(keys)
        times = times_of(keys)
        form = self._form
        features = self._forms.features
        is_now = ((times == times[:1]) & (times >= form.time)).all()
        if not isinstance(form, KalmanForm) or features is None or not is_now:
            return super()._draw(keys, rng, size)
        # The covariance of the features' weights, k_T(0) I − (I ⊗ g) G (I ⊗ g)ᵀ, has a small root.
        r = features.shape[1]
        weight_cov = self._time_variance * np.eye(r)
        if self.count and len(rows):
            outputs, _ = outputs_after(self._space, form.time, times)
            g = outputs[0]  # the only one
            weight_cov -= form.explained_weights(g)
        decomposition = psd_root(
            weight_cov,
            "the posterior covariance",
            scale=self._time_variance,
            steady=True,
        )
        root = decomposition.root
        rank = root.shape[1]
        # A normal for every feature, also where rounding has cut the rank.
        normals = rng.standard_normal((size, len(root)))
        weights = normals[:, :rank] @ root.T  # (size, r)
        return weights @ features[rows].T

    def _prior_scale(self, keys: Floats) -> float:
        return self._scale

    def _incumbent(self, sign: float) -> float:
        rows = np.unique(rows_of(self.remembered.arms))
        shift, _ = self._form.moments(rows, self._space.output)
        means = self.prior_mean[rows] + shift
        return float(np.max(sign * means))

    # --- learning --------------------------------------------------------------------------

    def observe(
        self,
        arms: Any,
        rewards: Any,
        noise_variance: Any = None,
        rng: Rng | None = None,
    ) -> None:
        """Learn from rewards. After an error the posterior is what it was before.

        Args:
            arms: Rows of an arm's row number and a time, (m, 2).
            rewards: Their rewards, (m,).
            noise_variance: Noise variances of the rewards, (m,); ``None``: the model's own.
            rng: Not used.
        """
        single = None
        if noise_variance is None:
            single = as_single_reward(arms, rewards, len(self.prior_mean))
        if single is None or not self._observe_single(single):
            super().observe(arms, rewards, noise_variance, rng)

    @one_blas_thread
    def _observe_single(self, single: SingleReward) -> bool:
        """Learn one reward of now, as in nearly every round; ``False`` for any other case."""
        with self._lock:
            history = self._history
            form = history.form
            if not form.takes_single_rewards or single.time < form.time:
                return False
            noise = self.noise_variance
            updated = self._learner.learn_single(history, single, noise)
            information = updated.form.information - form.information
            self._commit(1, information, _history=updated)
            return True

    def _take_in(
        self, keys: Floats, rewards: Floats, noise: Floats, rng: Rng | None
    ) -> None:
        count = len(keys)
        order = np.argsort(times_of(keys), kind="stable")
        new = Observations(keys[order], rewards[order], noise[order])
        is_learned = times_of(new.arms) > self.forgotten_until
        new = new.part(is_learned)
        learned_count = len(new.noise)
        ignored = self.ignored + count - learned_count
        if not learned_count:
            self._commit(count, 0.0, ignored=ignored)
            return
        history = self._learner.learn(self._history, new)
        information = history.form.information - self._form.information
        self._commit(count, information, _history=history, ignored=ignored)

    # --- state -----------------------------------------------------------------------------

    def _memory(self) -> Memory:
        scalars = {"in_use": self.form, "ignored": self.ignored}
        if self.count == self.ignored:
            return Memory(self.remembered._asdict(), scalars)
        memory = history_memory(self._history)
        return memory._replace(scalars={**scalars, **memory.scalars})

    def _remember(self, state: State) -> None:
        """Resume with the stored numbers, so that rounding does not grow with restarts."""
        self.ignored = state.count("ignored", 0, self.count)
        if self.count == self.ignored:
            return
        keys = self._as_keys(state.array("arms"))
        observed = with_saved_observations(self._history, state, keys, self.count)
        history = None
        if self._has_spec_of(state):
            history = with_saved_forms(observed, state, self._forms)
        if history is None:
            history = self._learner.learn_again(observed)
        history.form.information = self.information_gain
        self._history = history

    def _has_spec_of(self, state: State) -> bool:
        """Whether a state was taken from a posterior with these parts."""
        spec = state.spec
        if spec is None or any(foreign_parts(spec)):
            return False
        return not contradiction(self, spec)
