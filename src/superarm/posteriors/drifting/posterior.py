"""Gaussian-process regression on a fixed arm set whose rewards drift [bogunovic2016time, eqs. 7, 8].

cov(f_s(x), f_t(y)) = k(x, y) · k_T(s, t), where the kernel of time k_T is followed as a state that
moves (``kernels/state_space.py``), in one of three forms (``form.py``). Late feedback is learned as
of its own time: a copy of the last checkpoint before it learns everything observed since.
Questions about the past are answered in the same way: the copy watches the reward of that moment.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superarm.core import Covariance, Floats, Ints, Offer, Rng, State
from superarm.core.errors import ForgottenError, InputError, StateError
from superarm.core.inputs import (
    as_count,
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
from superarm.posteriors.observations import ObservationBuffer, Observations
from superarm.posteriors.variances import prior_variance, standard_deviation

from .checkpoints import (
    CHECKPOINT_KIND,
    CHECKPOINT_SCHEMA,
    checkpoint_due,
    checkpoint_state,
    thin_out,
)
from .factory import FormChoice, FormFactory
from .form import LEAST_DECAY, TRUNCATION, Form, FormName, Watched
from .kalman import KalmanForm
from .keys import (
    LATEST,
    ROW,
    TIME,
    SingleReward,
    as_single_reward,
    as_timed_keys,
    rows_of,
    times_of,
)
from .visited import VisitedForm

# An observation is forgotten once less than this remains of it.
_NEGLIGIBLE = 1e-13
# Numbers that the states of all arms may take, n·s²: 2 GB.
_MOST_STATE = 2.5e8


class _Start(NamedTuple):
    """From where to learn new observations."""

    form: Form
    checkpoints: list[Form]  # those before the form's time
    since: Observations  # what the form learns next
    data: ObservationBuffer  # everything remembered, with the new observations


@register("posterior", "drifting")
class DriftingGP(GaussianPosterior):
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
        form: Which of the equivalent forms does the algebra: "folded", "visited" or "kalman";
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
        self._least_noise = self.noise_variance
        # Observations until this time are forgotten, and the information that they gave.
        self._forgotten = -np.inf
        self._forgotten_information = 0.0
        self.ignored = 0
        """Rewards that came too late: nothing of them would remain, so they are not learned."""
        self._form = self._new_form(self.noise_variance)
        self._checkpoints: list[Form] = []  # in the order of their times
        self._data = ObservationBuffer()  # what is remembered, in the order of time

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
        return self._data.view()

    def parameters(self) -> Mapping[str, Any]:
        return {**super().parameters(), "form": self._forms.choice}

    def _new_form(self, least_noise: float) -> Form:
        """A form that has learned nothing, but counts the information of what is forgotten."""
        form = self._forms.new_form(least_noise)
        form.information = self._forgotten_information
        return form

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
        if len(keys) and self._forgotten > -np.inf:
            # Answers start from the first checkpoint; states of version 0.1.0 hold none.
            first = self._checkpoints[0] if self._checkpoints else self._form
            start = first.time
            earliest = times_of(keys).min()
            if earliest < start or earliest <= self._forgotten:
                raise ForgottenError(
                    f"time {earliest:g} is forgotten: what was observed until {start:g} has "
                    "faded, and is no longer kept; ask about later times"
                )
        return keys

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
        form = self._form
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
        order = np.argsort(times_of(keys), kind="stable")
        sorted_keys = keys[order]
        rows = rows_of(sorted_keys)
        times = times_of(sorted_keys)
        with self._lock.lock:
            form = self._copy_before(times[0])
            remembered = self.remembered
            is_later = times_of(remembered.arms) > form.time
            since = remembered.part(is_later)
            for time in np.unique(times):
                is_before = times_of(since.arms) <= time
                form = self._fold(form, since.part(is_before), [])
                since = since.part(~is_before)
                form.pass_time(float(time))
                form.watch(rows[times == time])
            form = self._fold(form, since, [])
        back = np.argsort(order)  # to the order of ``keys``
        mean, cov, cross_cov = form.watched
        return Watched(
            mean=mean[back],
            cov=cov[np.ix_(back, back)],
            cross_cov=cross_cov[back],
        )

    def _copy_before(self, time: float) -> Form:
        """A form of before this time whose changes are seen nowhere else."""
        start: Form | None = None
        for checkpoint in self._checkpoints:
            if checkpoint.time < time:
                start = checkpoint
        if start is None:
            start = self._new_form(self._least_noise)
        # Not even new prior rows may reach the posterior.
        prior_rows = self._forms.prior_rows.copy()
        return start.copy(prior_rows)

    def _outputs(self, times: Floats) -> tuple[Floats, Ints]:
        """h A(t − τ) of each different time t ≥ τ, (u, s), and the place of every time, (m,)."""
        now = self._form.time
        times = np.maximum(times, now)
        different, place = np.unique(times, return_inverse=True)
        h = self._space.output
        outputs = []
        for elapsed in different - now:
            A = self._space.transition(elapsed)
            outputs.append(h @ A)
        return np.array(outputs), place

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
        outputs, place = self._outputs(times)
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
        cov *= self._time_covariance(times[positions], times)
        if not self.count or not len(rows):
            return cov
        different_outputs, place = self._outputs(times)
        outputs = different_outputs[place]  # (m, s)
        roots = self._form.roots(rows, outputs)
        cov -= self._form.explained(roots[positions], roots)
        past = np.flatnonzero(times < self._form.time)
        if len(past):
            self._set_past_covariance(cov, keys, positions, past, outputs)
        return cov

    def _time_covariance(self, times: Floats, other_times: Floats) -> Floats:
        """k_T between times, as its state gives it, (k, m)."""
        h = self._space.output
        distances = np.abs(np.subtract.outer(times, other_times))
        different, place = np.unique(distances, return_inverse=True)
        values = []
        for distance in different:
            A = self._space.transition(distance)
            values.append(h @ A @ h)
        place = place.reshape(distances.shape)
        return np.array(values)[place]

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
            outputs, _ = self._outputs(times)
            g = outputs[0]  # the only one
            s = len(g)
            G = form.learned.reshape(r * s, r, s)
            half = (G @ g).T  # G (I ⊗ g)ᵀ, transposed
            weight_cov -= half.reshape(r, r, s) @ g
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
        observed = self._data.view()
        rows = np.unique(rows_of(observed.arms))
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
        single = as_single_reward(arms, rewards) if noise_variance is None else None
        if single is None or not self._observe_single(single):
            super().observe(arms, rewards, noise_variance, rng)

    @one_blas_thread
    def _observe_single(self, single: SingleReward) -> bool:
        """Learn one reward of now, as in nearly every round; ``False`` for any other case."""
        row, time, reward = single
        is_row = 0 <= row < len(self.prior_mean)
        is_time = -LATEST <= time <= LATEST
        if not (is_row and is_time):
            return False  # the full checks raise the right error
        with self._lock:
            if not self._form.takes_single_rewards or time < self._form.time:
                return False
            self._absorb_single(row, time, reward)
            return True

    def _absorb_single(self, row: int, time: float, reward: float) -> None:
        form = self._form.successor()
        checkpoints = self._checkpoints
        is_due = checkpoint_due(form, time)
        if is_due:
            checkpoints = [*checkpoints, self._form]
            thin_out(checkpoints)
        residual = reward - self.prior_mean.item(row)
        form.learn_one(row, time, residual, self.noise_variance)
        if isinstance(form, VisitedForm) and form.rank >= form.compare_at:
            # The reward is learned: a failed search for a cheaper form must not undo it.
            with suppress(Exception):
                form = self._forms.cheaper_form(form)
        data = self._data.extended_by_one((row, time), reward, self.noise_variance)
        information = form.information - self._form.information
        self._commit(
            1,
            information,
            _form=form,
            _data=data,
            _checkpoints=checkpoints,
        )
        if is_due:
            self._forget()

    def _take_in(
        self, keys: Floats, rewards: Floats, noise: Floats, rng: Rng | None
    ) -> None:
        count = len(keys)
        order = np.argsort(times_of(keys), kind="stable")
        new = Observations(keys[order], rewards[order], noise[order])
        is_learned = times_of(new.arms) > self._forgotten
        new = new.part(is_learned)
        learned_count = len(new.noise)
        ignored = self.ignored + count - learned_count
        if not learned_count:
            self._commit(count, 0.0, ignored=ignored)
            return
        least_noise = min(self._least_noise, float(new.noise.min()))
        start = self._start_for(new, least_noise)
        checkpoints = start.checkpoints
        form = self._fold(start.form, start.since, checkpoints)
        has_new_checkpoint = checkpoints[-1:] != self._checkpoints[-1:]
        information = form.information - self._form.information
        self._commit(
            count,
            information,
            _form=form,
            _data=start.data,
            _checkpoints=checkpoints,
            _least_noise=least_noise,
            ignored=ignored,
        )
        if has_new_checkpoint:
            self._forget()

    def _start_for(self, new: Observations, least_noise: float) -> _Start:
        """Where to start from to learn these observations, which are in the order of time."""
        first = new.arms[0, TIME]
        checkpoints = [form for form in self._checkpoints if form.time < first]
        form_name = self._forms.form_name(least_noise)
        needs_other_form = form_name != self._forms.form_name(self._least_noise)
        is_late = first < self._form.time
        if not needs_other_form and not is_late:
            form = self._form.successor()
            data = self._data.extended(*new)
            return _Start(form, checkpoints, new, data)
        everything = _merge_by_time(self.remembered, new)
        data = ObservationBuffer(*everything)
        if needs_other_form or not checkpoints:
            # Less noise needs another form; it learns everything from the start, as does one
            # for feedback from before the first checkpoint.
            form = self._new_form(least_noise)
            return _Start(form, [], everything, data)
        # Late: continue from before it, as if it had come in time.
        form = checkpoints[-1].copy()
        is_later = times_of(everything.arms) > form.time
        return _Start(form, checkpoints, everything.part(is_later), data)

    def _fold(self, form: Form, since: Observations, checkpoints: list[Form]) -> Form:
        """Learn observations in the order of time; adds to ``checkpoints``."""
        if not len(since.noise):
            return form
        rows = rows_of(since.arms)
        times = times_of(since.arms)
        residual = since.rewards - self.prior_mean[rows]
        changes = np.flatnonzero(np.diff(times)) + 1  # where the next time starts
        bounds = [0, *changes.tolist(), len(times)]
        for start, stop in itertools.pairwise(bounds):
            time = times[start].item()
            if checkpoint_due(form, time):
                checkpoints.append(form.successor())  # ``form`` itself will change
                thin_out(checkpoints)
            form.pass_time(time)
            same_time = slice(start, stop)
            noise = since.noise[same_time]
            form.observe(rows[same_time], residual[same_time], noise)
            # The rewards are learned: a failed search for a cheaper form must not undo it.
            with suppress(Exception):
                form = self._forms.cheaper_form(form)
        return form

    def _forget(self) -> None:
        """Drop observations that have faded: late feedback no longer needs them."""
        faded = [form for form in self._checkpoints if self._has_faded(form)]
        if not faded:
            return
        if len(faded) > 1 or faded[0].time > self._forgotten:
            base = faded[-1]
            base_index = len(faded) - 1
            is_later = times_of(self.remembered.arms) > base.time
            later = self.remembered.part(is_later)
            vars(self).update(  # in one call, as in ``_commit``
                _forgotten=base.time,
                _forgotten_information=base.information,
                _checkpoints=self._checkpoints[base_index:],
                _data=ObservationBuffer(*later),
            )

    def _has_faded(self, checkpoint: Form) -> bool:
        """Whether nothing remains of what was observed until this checkpoint."""
        age = self._form.time - checkpoint.time
        return self._space.remaining_share(age) < _NEGLIGIBLE

    # --- state -----------------------------------------------------------------------------

    def _memory(self) -> Memory:
        form = self._form
        arrays = self.remembered._asdict()
        scalars: dict[str, Any] = {"in_use": form.name, "ignored": self.ignored}
        parts: dict[str, State] = {}
        if self.count > self.ignored:
            has_forgotten = self._forgotten > -np.inf
            arrays |= form.arrays()
            scalars |= form.scalars()
            scalars["forgotten_information"] = self._forgotten_information
            scalars["forgotten"] = self._forgotten if has_forgotten else None
            scalars["least_noise"] = self._least_noise
            if has_forgotten and self._checkpoints:
                # Questions about the past start here: earlier observations are gone.
                parts["checkpoint"] = checkpoint_state(self._checkpoints[0])
        return Memory(arrays, scalars, parts)

    def _remember(self, state: State) -> None:
        """Resume with the stored numbers, so that rounding does not grow with restarts."""
        self.ignored = as_count(state.scalar("ignored"), "ignored", 0, self.count)
        if self.count == self.ignored:
            return
        self._remember_observations(state)
        form = self._form_from(state) if self._has_spec_of(state) else None
        if form is None:
            self._form = self._learn_remembered()
        else:
            self._form = form
            if "checkpoint" in state.parts:  # states of earlier versions hold none
                checkpoint = self._checkpoint_from(state.part("checkpoint"))
                self._checkpoints = [checkpoint]
        self._form.information = self.information_gain

    def _has_spec_of(self, state: State) -> bool:
        """Whether a state was taken from a posterior with these parts."""
        spec = state.spec
        if spec is None or any(foreign_parts(spec)):
            return False
        return not contradiction(self, spec)

    def _learn_remembered(self) -> Form:
        """A form that learns again all that is remembered; what is forgotten had faded."""
        rows = rows_of(self.remembered.arms)
        self._forms.prior_rows.visit(rows)
        new_form = self._new_form(self._least_noise)
        return self._fold(new_form, self.remembered, self._checkpoints)

    def _remember_observations(self, state: State) -> None:
        """Take in what was observed, and until when it is forgotten."""
        keys = self._as_keys(state.array("arms"))
        observed = Observations.from_state(state, keys)
        times = times_of(observed.arms)
        now = as_number(state.scalar("time"), "time")
        forgotten = state.scalar("forgotten")
        if forgotten is not None:
            self._forgotten = as_number(forgotten, "forgotten", most=now)
        information = state.scalar("forgotten_information")
        self._forgotten_information = as_number(
            information, "forgotten_information", 0.0
        )
        has_count = 0 < len(times) <= self.count
        is_ascending = has_count and not (np.diff(times) < 0.0).any()
        if not (is_ascending and self._forgotten < times[0] and now == times[-1]):
            raise StateError("this state is damaged: its observations are impossible")
        self._data = ObservationBuffer(*observed)
        least_noise = state.scalar("least_noise")
        most = float(observed.noise.min())
        self._least_noise = as_number(least_noise, "least_noise", 0.0, most)

    def _form_from(self, state: State) -> Form | None:
        """The form in a state: of the kind of a new one, or folded.

        ``None`` where its basis is not this posterior's: another processor may round features into
        other signs, or keep one more of the smallest.
        """
        new_form = self._new_form(self._least_noise)
        folded_form = self._forms.folded_form()
        in_use = state.scalar("in_use")
        if in_use == folded_form.name:
            form: Form = folded_form
        elif in_use == new_form.name:
            form = new_form
        else:
            raise StateError("this state is damaged: its form is impossible")
        s, n = form.shape
        form.time = as_number(state.scalar("time"), "time", -LATEST, LATEST)
        most_error = TRUNCATION * self._scale
        form.error = as_number(state.scalar("error"), "error", 0.0, most_error)
        form.steps = as_count(state.scalar("steps"), "steps")
        mean = as_features(state.array("a"), "a", n)
        reduction = as_features(state.array("known"), "known", n)
        if len(mean) != s or len(reduction) != s * s:
            raise StateError(
                "this state is damaged: it belongs to another kernel of time"
            )
        blocks = reduction.reshape(s, s, n)
        decay = as_number(state.scalar("left"), "left", LEAST_DECAY, 1.0)
        form.set_blocks(mean.copy(), blocks.copy(), decay)
        return form if form.resume(state) else None

    def _checkpoint_from(self, state: State) -> Form:
        """The checkpoint in a state."""
        state.require(CHECKPOINT_KIND, CHECKPOINT_SCHEMA, "DriftingGP")
        checkpoint = self._form_from(state)
        if checkpoint is None:
            raise StateError("this state is damaged: its checkpoint has another basis")
        checkpoint.information = self._forgotten_information
        if checkpoint.time != self._forgotten:
            raise StateError("this state is damaged: its checkpoint is of another time")
        return checkpoint


def _merge_by_time(earlier: Observations, new: Observations) -> Observations:
    """All observations in the order of time."""
    both = new.after(earlier)
    order = np.argsort(times_of(both.arms), kind="stable")
    return both.part(order)
