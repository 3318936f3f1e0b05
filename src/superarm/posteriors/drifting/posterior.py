"""Gaussian-process regression on a fixed arm set whose rewards drift [bogunovic2016time, eqs. 7, 8].

cov(f_s(x), f_t(y)) = k(x, y) · k_T(s, t), where the kernel of time k_T is followed as a state that
moves (``kernels/state_space.py``), in one of three forms (``forms.py``). Late feedback is learned as of
its own time: the form goes on from the last checkpoint before it, with all that was observed since.
Questions about the past are answered so, too: the reward of that moment is followed on.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superarm.core import Covariance, Floats, Ints, Offer, Rng, State
from superarm.core.errors import ForgottenError, InputError, StateError
from superarm.core.inputs import (
    LARGEST,
    as_count,
    as_features,
    as_levels,
    as_number,
    as_vector,
    read_only,
    require_choice,
    require_type,
)
from superarm.core.linalg import psd_root
from superarm.core.locks import consistent_read
from superarm.core.migrations import migration
from superarm.core.registry import contradiction, foreign_parts, register
from superarm.core.threads import one_blas_thread
from superarm.kernels import Kernel, Temporal
from superarm.kernels.base import as_covariance
from superarm.posteriors.base import GaussianPosterior, Memory
from superarm.posteriors.beliefs import GaussianBelief
from superarm.posteriors.fixed import FixedArms, as_rows
from superarm.posteriors.rows import Observed, ObservedData
from superarm.posteriors.variances import prior_variance, standard_deviation

from .forms import (
    LEAST_LEFT,
    TRUNCATION,
    FoldedForm,
    Form,
    FormName,
    KalmanForm,
    PriorRows,
    VisitedForm,
    Watched,
)

Wanted = Literal["auto", "folded", "visited", "kalman"]
_FEATURE_TOLERANCE = 1e-13
_MOST_FEATURES = 512  # times the size of the state, up to which they are preferred to the arms visited
_LEAST_NOISE = 1e-2  # relative to the largest prior variance: with less, the visited form loses digits
_NOISE_PER_ERROR = 1e4  # noise for the kalman form, in errors of a kernel value: ``streaming/forms.py``
_NEGLIGIBLE = (
    1e-13  # what is left of an observation that is not kept for feedback from before it
)
_MOST_COMPARED = (
    5e7  # numbers that may be made to see whether the folded form is cheaper
)
_LATEST = 1e15  # times beyond it, either way, are not told apart well enough
_MOST_STATE = 2.5e8  # numbers that the states of all arms may take, n·s²: 2 GB
_CHECKPOINT_EVERY = 32  # times between two checkpoints
_CHECKPOINT, _CHECKPOINT_SCHEMA = "drifting-checkpoint", 2


@register("posterior", "drifting")
class DriftingGP(GaussianPosterior):
    """Exact posterior over fixed arms whose rewards drift.

    Keys are rows of two numbers, an arm's row number and a time. Several rewards may come at one time,
    times may be missing or irregular. Late feedback is learned as of its own time. Questions about the
    past are answered as far back as ``remembered`` reaches.
    ``drift`` is a kernel of time alone. The default, Temporal(epsilon=0.01), is the drift of
    bogunovic2016time: f_{t+1} = √(1 − ε) f_t + √ε g_{t+1}. Others are Matern with nu 0.5 or 1.5,
    Periodic, Constant, and sums and products of these. ``form`` is chosen by cost unless it is named.
    ``time_tolerance`` bounds the error of the kernel of time, relative to its variance. The larger it
    is, the smaller is the state of a periodic kernel.

    Args:
        kernel: The kernel.
        arms: The fixed arms, one row of features each.
        noise_variance: Variance of the noise of one observation.
        mean: The prior mean: a number or a function.
        drift: How rewards change with time: a kernel of time alone.
        form: Which of the equivalent engines does the algebra; auto chooses.
        time_tolerance: Largest error of the kernel of time, relative to its variance.

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
        form: Wanted = "auto",
        time_tolerance: float = 1e-12,
    ) -> None:
        super().__init__(noise_variance=noise_variance)
        self.kernel = as_covariance(kernel, "kernel")
        self.arms = read_only(as_features(arms, "arms"))
        self._fixed, n = FixedArms(self.arms), len(self.arms)
        if n == 0:
            raise InputError("arms is empty; give at least one")
        self.mean, values = mean, mean(self.arms) if callable(mean) else mean
        self.prior_mean = as_levels(values, "mean", n)
        self.drift = Temporal() if drift is None else drift
        if not isinstance(self.drift, Kernel):
            raise InputError(
                f"drift is {drift!r:.60}; give a kernel, such as Temporal(epsilon=0.01)"
            )
        self.time_tolerance = as_number(time_tolerance, "time_tolerance", 1e-15, 0.1)
        self._space = self.drift.state_space(self.time_tolerance)
        s = len(self._space.output)
        if s * s * n > _MOST_STATE:
            raise InputError(
                f"the state of this kernel of time has {s} numbers, too many for {n} arms; a periodic "
                "kernel needs a longer lengthscale, or a larger time_tolerance"
            )
        self._level = float(self._space.output @ self._space.output)  # k_T(0)
        self._variance = self._level * prior_variance(self.kernel, self.arms)
        self._scale = float(self._variance.max())
        self._prior = PriorRows(self.kernel, self.arms)
        self._all_keys = np.column_stack(
            [np.arange(n), np.zeros(n)]
        )  # of all arms, without their time
        require_choice(form, "form", ("auto", "folded", "visited", "kalman"))
        self._wanted: Wanted = form
        self._features, self._feature_error = self._find_features()
        if form == "kalman" and self._features is None:
            told = "it is not smooth enough, or its lengthscale is too short for their spread"
            raise InputError(
                f"this kernel has no features on these arms: {told}; use form='auto'"
            )
        self._least_noise = self.noise_variance
        self._forgotten, self._forgotten_information = (
            -np.inf,
            0.0,
        )  # until when, and what it told
        self.ignored = 0
        """Rewards that came too late: nothing of them would have been left. They are not learned."""
        self._form = self._fresh_form(self.noise_variance)
        self._checkpoints: list[Form] = []  # in the order of their times
        self._data = ObservedData()  # what is remembered, in the order of time

    # --- what it is now --------------------------------------------------------------------

    @property
    def form(self) -> FormName:
        """Which form is in use."""
        return self._form.name

    @property
    def rank(self) -> int:
        """Columns of the matrix in use."""
        return self._form.rank

    @property
    def tolerance(self) -> float:
        """Bound on the error of covariances, besides rounding: what the features and the state of time
        leave out of kernel values, and what is left now of faded parts that were dropped."""
        features = self._feature_error * self._level if self.form == "kalman" else 0.0
        largest = self._scale / self._level if self._level else 0.0
        return self._form.error + features + largest * self._space.error

    @property
    def remembered(self) -> Observed:
        """What was observed and has not faded: arms and times (N, 2), rewards (N,), noise variances."""
        return self._data.view()

    def parameters(self) -> Mapping[str, Any]:
        return {**super().parameters(), "form": self._wanted}

    # --- choice of form --------------------------------------------------------------------

    def _find_features(self) -> tuple[Floats | None, float]:
        """Features of all arms, (n, r), where they are wanted and few; the error of a kernel value."""
        arms, n, s = self.arms, len(self.arms), len(self._space.output)
        most = _MOST_FEATURES // s if self._wanted == "auto" else 2 * _MOST_FEATURES
        if self._wanted not in ("auto", "kalman") or self._scale == 0.0:
            return None, 0.0
        if n <= most:
            found = psd_root(
                np.asarray(self.kernel(arms)), "the prior covariance of the arms"
            )
            return found.root, found.error * self._scale / self._level
        if isinstance(self.kernel, Kernel):
            tolerance = _FEATURE_TOLERANCE * self._scale / self._level
            features = self.kernel.features(
                arms.min(axis=0), arms.max(axis=0), tolerance, most
            )
            if features is not None and features.covers(arms):
                return features(arms), features.error
        return None, 0.0

    def _kind_for(self, least_noise: float) -> FormName:
        """Which form has the digits for noise as small as this, the cheapest first."""
        least = {"visited": 1e-4}.get(self._wanted, 1e-13) * self._scale
        if least_noise < least:
            raise InputError(
                f"a noise variance of {least_noise:.3g} is too small beside prior variances of "
                f"{self._scale:.3g}: digits would be lost; use at least {least:.3g}"
                + (", or form='auto'" if self._wanted == "visited" else "")
            )
        if self._wanted != "auto":
            return self._wanted
        enough = least_noise >= _NOISE_PER_ERROR * self._feature_error * self._level
        if self._features is not None and enough:
            return "kalman"
        return "visited" if least_noise >= _LEAST_NOISE * self._scale else "folded"

    def _fresh_form(self, least_noise: float) -> Form:
        """One that knows nothing but how much was told by what is forgotten."""
        kind = self._kind_for(least_noise)
        form: Form
        if kind == "kalman" and self._features is not None:
            form = KalmanForm(self._space, self._prior, self._features)
        elif kind == "visited":
            form = VisitedForm(self._space, self._prior, len(self.prior_mean))
        else:
            form = self._folded_form()
        form.information = self._forgotten_information
        return form

    def _folded_form(self) -> FoldedForm:
        return FoldedForm(self._space, self._prior, len(self.prior_mean), self._scale)

    def _reconsidered(self, form: Form) -> Form:
        """The folded form, where a round of it takes less than one of the visited form."""
        if (
            self._wanted != "auto"
            or not isinstance(form, VisitedForm)
            or form.rank < form.compare_at
        ):
            return form
        form.compare_at = 3 * form.rank // 2
        n, s, rank = len(self.prior_mean), len(self._space.output), form.rank
        if rank * n * s > _MOST_COMPARED:
            return form
        folded = FoldedForm.of(form, self._scale)
        # On the way to being rotated again, the folded one grows to twice of what it is.
        return (
            folded
            if 1.5 * n * folded.rank * s * s <= (n + 3 * s * rank) * rank
            else form
        )

    # --- hooks -----------------------------------------------------------------------------

    def keys(self, offer: Offer) -> Floats:
        require_type(offer, Offer, "offer")
        rows = self._fixed.locate(offer.arms).keys
        keys = np.empty((len(rows), 2))
        keys[:, 0], keys[:, 1] = rows, offer.moment
        return keys

    def belief(
        self, offer: Offer, pending: NDArray[Any] | None = None
    ) -> GaussianBelief:
        # The whole set from now on, as in most rounds: nothing to gather.
        known = self._fixed.last
        if (
            pending is None
            and known is not None
            and known.whole
            and type(offer) is Offer
        ):
            belief = self._whole_belief(offer) if known.arms is offer.arms else None
            if belief is not None:
                return belief
        return super().belief(offer, pending)

    @consistent_read
    def _whole_belief(self, offer: Offer) -> GaussianBelief | None:
        """Of all arms; ``None`` where something was observed later than the offer."""
        form, moment = self._form, offer.moment
        if not self.count or not moment >= form.time:
            return None
        mean, variance = form.all_moments(self._space.transition(moment - form.time))
        mean += self.prior_mean
        np.subtract(self._variance, variance, out=variance)
        std = standard_deviation(variance, lambda: self._scale)
        keys = self._all_keys.copy()
        keys[:, 1] = moment
        return GaussianBelief(self, keys, mean, std)

    def _as_keys(self, arms: Any) -> Floats:
        keys = as_features(arms, "arms", 2)
        if len(keys) == 1:
            row, time = keys[0].tolist()
            if (
                row.is_integer()
                and 0.0 <= row < len(self.prior_mean)
                and abs(time) <= _LATEST
            ):
                return keys  # as in most rounds; else an error is told below
        rows = keys[:, 0]
        if (rows != np.floor(rows)).any() or (np.abs(rows) > 2**53).any():
            raise InputError(
                "arms must be rows of a row number and a time, as in [[3, 10.0]]"
            )
        if (np.abs(keys[:, 1]) > _LATEST).any():
            raise InputError(f"times must lie between −{_LATEST:g} and {_LATEST:g}")
        as_rows(rows.astype(np.intp), len(self.prior_mean))
        return keys

    def _remembered_keys(self, arms: Any) -> Floats:
        keys = self._as_keys(arms)
        if len(keys) and self._forgotten > -np.inf:
            # From the checkpoint on at which it was forgotten; states of version 0.1.0 hold none.
            until = self._checkpoints[0].time if self._checkpoints else self._form.time
            if keys[:, 1].min() < until or keys[:, 1].min() <= self._forgotten:
                raise ForgottenError(
                    f"time {keys[:, 1].min():g} is forgotten: what was observed until {until:g} has "
                    "faded, and is no longer kept; ask about later times"
                )
        return keys

    def _looked_back(self, keys: Floats) -> Watched:
        """What is known of moments before the last observation, (p, 2)."""
        order = np.argsort(keys[:, 1], kind="stable")
        rows, times = keys[order, 0].astype(np.intp), keys[order, 1]
        with self._lock.lock:
            earlier = [each for each in self._checkpoints if each.time < times[0]]
            start = earlier[-1] if earlier else self._fresh_form(self._least_noise)
            form = start.copied(
                self._prior.copied()
            )  # a question changes nothing, also not columns
            since = self.remembered.part(self.remembered.arms[:, 1] > form.time)
            for time in np.unique(times):
                before = since.arms[:, 1] <= time
                form = self._fold(form, since.part(before), [])
                since = since.part(~before)
                form.pass_time(float(time))
                form.watch(rows[times == time])
            form = self._fold(form, since, [])
        back = np.argsort(order)
        mean, cov, towards = form.watched
        return Watched(mean[back], cov[np.ix_(back, back)], towards[back])

    def _outputs(self, times: Floats) -> tuple[Floats, Ints]:
        """h A(t − τ) of each different time t ≥ τ, (u, s), and which one each time is."""
        different, which = np.unique(
            np.maximum(times, self._form.time), return_inverse=True
        )
        elapsed = different - self._form.time
        return np.array(
            [self._space.output @ self._space.transition(t) for t in elapsed]
        ), which

    def _moments(self, keys: Floats) -> tuple[Floats, Floats]:
        rows, times = keys[:, 0].astype(np.intp), keys[:, 1]
        mean, variance = self.prior_mean[rows], self._variance[rows]
        if not self.count or not len(rows):
            return mean, variance
        if (
            times[0] >= self._form.time and (times == times[0]).all()
        ):  # as in every round
            g = self._space.output @ self._space.transition(times[0] - self._form.time)
            moved, shrunk = self._form.moments(rows, g)
            mean += moved
            variance -= shrunk
            return mean, variance
        past = np.flatnonzero(times < self._form.time)
        if len(past):
            watched = self._once("past", keys[past], self._looked_back)
            mean[past] += watched.mean
            variance[past] = np.diagonal(watched.cov)
        outputs, which = self._outputs(times)
        for number, g in enumerate(outputs):
            where = np.flatnonzero((which == number) & (times >= self._form.time))
            moved, shrunk = self._form.moments(rows[where], g)
            mean[where] += moved
            variance[where] -= shrunk
        return mean, variance

    def _covariance(self, keys: Floats, at: Ints | None = None) -> Floats:
        at = np.arange(len(keys)) if at is None else at
        rows, times = keys[:, 0].astype(np.intp), keys[:, 1]
        found = np.array(
            self.kernel(self.arms[rows[at]], self.arms[rows]), dtype=np.float64
        )
        # k_T between times, as the state has it, (k, m).
        apart, place = np.unique(
            np.abs(np.subtract.outer(times[at], times)), return_inverse=True
        )
        h = self._space.output
        over_time = np.array([h @ self._space.transition(t) @ h for t in apart])
        found *= over_time[place.reshape(found.shape)]
        if self.count and len(rows):
            outputs, which = self._outputs(times)
            roots = self._form.roots(rows, outputs[which])
            found -= self._form.explained(roots[at], roots)
            past = np.flatnonzero(times < self._form.time)
            if len(past):
                watched = self._once("past", keys[past], self._looked_back)
                rowwise = np.einsum(
                    "psm,ms->pm", watched.towards[:, :, rows], outputs[which]
                )  # (p, m)
                rowwise[:, past] = watched.cov
                place = np.full(len(rows), -1)
                place[past] = np.arange(len(past))
                found[:, past] = rowwise[:, at].T
                asked = np.flatnonzero(place[at] >= 0)
                found[asked] = rowwise[place[at[asked]]]
        return found

    def _draw(self, keys: Floats, rng: Rng, size: int) -> Floats:
        rows, times = keys[:, 0].astype(np.intp), keys[:, 1]
        form, features = self._form, self._features
        now = (times == times[:1]) & (times >= form.time)
        if not isinstance(form, KalmanForm) or features is None or not now.all():
            return super()._draw(keys, rng, size)
        # The features' weights have the covariance k_T(0) I − (I ⊗ g) G (I ⊗ g)ᵀ: a small root will do.
        left = self._level * np.eye(features.shape[1])
        if self.count and len(rows):
            g = self._outputs(times)[0][0]
            s, r = len(g), features.shape[1]
            half = (form.learned.reshape(r * s, r, s) @ g).T.reshape(r, r, s) @ g
            left -= half
        root = psd_root(
            left, "the posterior covariance", scale=self._level, steady=True
        ).root
        normals = rng.standard_normal((size, len(root)))[:, : root.shape[1]]
        return (normals @ root.T) @ features[rows].T

    def _prior_scale(self, keys: Floats) -> float:
        return self._scale

    def _incumbent(self, sign: float) -> float:
        rows = np.unique(self._data.view().arms[:, 0]).astype(np.intp)
        means = self.prior_mean[rows] + self._form.moments(rows, self._space.output)[0]
        return float(np.max(sign * means))

    # --- learning --------------------------------------------------------------------------

    def observe(
        self,
        arms: Any,
        rewards: Any,
        noise_variance: Any = None,
        rng: Rng | None = None,
    ) -> None:
        """Learn from rewards (m,) of arms, m rows of an arm's row number and a time.

        ``noise_variance`` overrides the model's own, one number per observation. After an error the
        posterior is what it was before.
        """
        one = _single(arms, rewards) if noise_variance is None else None
        if one is None or not self._observed_one(one):
            super().observe(arms, rewards, noise_variance, rng)

    @one_blas_thread
    def _observed_one(self, one: _Single) -> bool:
        """Learn one reward of now, as in nearly every round; ``False`` where it is not as simple."""
        row, time, reward = one
        if not (0 <= row < len(self.prior_mean) and -_LATEST <= time <= _LATEST):
            return False  # the full check says what is wrong
        with self._lock:
            if not self._form.plain or time < self._form.time:
                return False
            self._absorb_one(row, time, reward)
            return True

    def _absorb_one(self, row: int, time: float, reward: float) -> None:
        form = self._form.successor()
        checkpoints = self._checkpoints
        due = time > form.time and form.steps and form.steps % _CHECKPOINT_EVERY == 0
        if due:
            checkpoints = [*checkpoints, self._form]
            _thin(checkpoints)
        form.learn_one(
            row, time, reward - self.prior_mean.item(row), self.noise_variance
        )
        if isinstance(form, VisitedForm) and form.rank >= form.compare_at:
            with suppress(
                Exception
            ):  # it is learned; what fails in looking for less work leaves it so
                form = self._reconsidered(form)
        data = self._data.extended_by_one((row, time), reward, self.noise_variance)
        information = form.information - self._form.information
        self._commit(1, information, _form=form, _data=data, _checkpoints=checkpoints)
        if due:
            self._forget()

    def _take_in(
        self, keys: Floats, rewards: Floats, noise: Floats, rng: Rng | None
    ) -> None:
        order = np.argsort(keys[:, 1], kind="stable")
        fresh = Observed(keys[order], rewards[order], noise[order])
        fresh = fresh.part(fresh.arms[:, 1] > self._forgotten)
        ignored = self.ignored + len(keys) - len(fresh.noise)
        if not len(fresh.noise):
            self._commit(len(keys), 0.0, ignored=ignored)
            return
        first = fresh.arms[0, 1]
        checkpoints = [each for each in self._checkpoints if each.time < first]
        least = min(self._least_noise, float(fresh.noise.min()))
        if self._kind_for(least) != self._kind_for(self._least_noise):
            whole = since = _sorted(self.remembered, fresh)
            form, checkpoints = self._fresh_form(least), []
        elif (
            first < self._form.time
        ):  # late: on from before it, as if it had come in time
            whole = _sorted(self.remembered, fresh)
            form = checkpoints[-1].copied() if checkpoints else self._fresh_form(least)
            since = whole.part(whole.arms[:, 1] > form.time)
        else:
            whole, since = None, fresh
            form = self._form.successor()
        form = self._fold(form, since, checkpoints)
        data = self._data.extended(*fresh) if whole is None else ObservedData(*whole)
        added = checkpoints[-1:] != self._checkpoints[-1:]
        self._commit(
            len(keys),
            form.information - self._form.information,
            _form=form,
            _data=data,
            _checkpoints=checkpoints,
            _least_noise=least,
            ignored=ignored,
        )
        if added:
            self._forget()

    def _fold(self, form: Form, since: Observed, checkpoints: list[Form]) -> Form:
        """Learn what came since, in the order of time; ``checkpoints`` are added to."""
        if not len(since.noise):
            return form
        rows, times = since.arms[:, 0].astype(np.intp), since.arms[:, 1]
        residual = since.rewards - self.prior_mean[rows]
        bounds = [0, *(np.flatnonzero(np.diff(times)) + 1).tolist(), len(times)]
        for start, stop in itertools.pairwise(bounds):
            time = times[start].item()
            self._checkpoint(form, time, checkpoints)
            form.pass_time(time)
            form.observe(
                rows[start:stop], residual[start:stop], since.noise[start:stop]
            )
            with suppress(
                Exception
            ):  # it is learned; what fails in looking for less work leaves it so
                form = self._reconsidered(form)
        return form

    @staticmethod
    def _checkpoint(form: Form, time: float, checkpoints: list[Form]) -> None:
        """Add what is known to the checkpoints before a new time, now and then."""
        due = time > form.time and form.steps and form.steps % _CHECKPOINT_EVERY == 0
        if due:
            checkpoints.append(form.successor())  # which stays, while the form goes on
            _thin(checkpoints)

    def _forget(self) -> None:
        """Let go of what has faded: it is no longer needed for feedback from before it."""
        now, left = self._form.time, self._space.left
        faded = [
            each for each in self._checkpoints if left(now - each.time) < _NEGLIGIBLE
        ]
        if len(faded) > 1 or (faded and faded[0].time > self._forgotten):
            base = faded[-1]
            later = self.remembered.arms[:, 1] > base.time
            vars(self).update(  # in one call, as in ``_commit``
                _forgotten=base.time,
                _forgotten_information=base.information,
                _checkpoints=self._checkpoints[len(faded) - 1 :],
                _data=ObservedData(*self.remembered.part(later)),
            )

    # --- state -----------------------------------------------------------------------------

    def _memory(self) -> Memory:
        form, arrays = self._form, self.remembered._asdict()
        scalars: dict[str, Any] = {"in_use": form.name, "ignored": self.ignored}
        parts: dict[str, State] = {}
        if self.count > self.ignored:
            arrays |= form.arrays()
            scalars |= form.scalars()
            scalars |= {"forgotten_information": self._forgotten_information}
            scalars |= {
                "forgotten": self._forgotten if self._forgotten > -np.inf else None
            }
            scalars |= {"least_noise": self._least_noise}
            if self._forgotten > -np.inf and self._checkpoints:
                # Where questions about the past start from: what came before is no longer kept.
                parts = {"checkpoint": _checkpoint_state(self._checkpoints[0])}
        return Memory(arrays, scalars, parts)

    def _remember(self, state: State) -> None:
        """The same numbers go on: rounding does not grow with restarts."""
        self.ignored = as_count(state.scalar("ignored"), "ignored", 0, self.count)
        if self.count == self.ignored:
            return
        held = Observed.held_in(state, self._as_keys(state.array("arms")))
        keys, least = held.arms, float(held.noise.min(initial=np.inf))
        time = as_number(state.scalar("time"), "time")
        forgotten = state.scalar("forgotten")
        if forgotten is not None:
            self._forgotten = as_number(forgotten, "forgotten", most=time)
        told = state.scalar("forgotten_information")
        self._forgotten_information = as_number(told, "forgotten_information", 0.0)
        rises = 0 < len(keys) <= self.count and not (np.diff(keys[:, 1]) < 0.0).any()
        dated = rises and self._forgotten < keys[0, 1] and time == keys[-1, 1]
        if not dated:
            raise StateError("this state is damaged: its observations are impossible")
        self._data = ObservedData(*held)
        self._least_noise = as_number(
            state.scalar("least_noise"), "least_noise", 0.0, least
        )
        spec = state.spec
        is_foreign = (
            spec is None or any(foreign_parts(spec)) or contradiction(self, spec)
        )
        resumed = None if is_foreign else self._resumed(state)
        if resumed is None:
            # With other parts or features than it was learned with: learned anew, from what is
            # remembered. What was forgotten had faded.
            self._prior.visit(keys[:, 0].astype(np.intp))
            fresh = self._fresh_form(self._least_noise)
            self._form = self._fold(fresh, self.remembered, self._checkpoints)
            self._form.information = self.information_gain
            return
        self._form = resumed
        self._form.information = self.information_gain
        if "checkpoint" in state.parts:  # states of earlier versions hold none
            saved = state.part("checkpoint")
            saved.require(_CHECKPOINT, _CHECKPOINT_SCHEMA, "DriftingGP")
            checkpoint = self._resumed(saved)
            if checkpoint is None:
                raise StateError(
                    "this state is damaged: its checkpoint has another basis"
                )
            checkpoint.information = self._forgotten_information
            if checkpoint.time != self._forgotten:
                raise StateError(
                    "this state is damaged: its checkpoint is of another time"
                )
            self._checkpoints = [checkpoint]

    def _resumed(self, state: State) -> Form | None:
        """The form that a state holds: of the kind of a fresh one, or folded.

        ``None`` where its basis is not the one here: another processor may round features into other
        signs, or keep one more of the smallest.
        """
        possible = (self._fresh_form(self._least_noise), self._folded_form())
        kinds: dict[object, Form] = {form.name: form for form in possible}
        in_use = state.scalar("in_use")
        if not isinstance(in_use, str) or in_use not in kinds:
            raise StateError("this state is damaged: its form is impossible")
        form = kinds[in_use]
        s, n = form.shape
        form.time = as_number(state.scalar("time"), "time", -_LATEST, _LATEST)
        form.error = as_number(
            state.scalar("error"), "error", 0.0, TRUNCATION * self._scale
        )
        form.steps = as_count(state.scalar("steps"), "steps")
        mean = as_features(state.array("a"), "a", n)
        known = as_features(state.array("known"), "known", n)
        if len(mean) != s or len(known) != s * s:
            raise StateError(
                "this state is damaged: it belongs to another kernel of time"
            )
        left = as_number(state.scalar("left"), "left", LEAST_LEFT, 1.0)
        form.set_blocks(mean.copy(), known.reshape(s, s, n).copy(), left)
        return form if form.resume(state) else None


def _checkpoint_state(form: Form) -> State:
    return State(
        kind=_CHECKPOINT,
        schema=_CHECKPOINT_SCHEMA,
        scalars={"in_use": form.name, **form.scalars()},
        arrays={name: array.copy() for name, array in form.arrays().items()},
    )


@migration("drifting-gp", 2)
@migration(_CHECKPOINT, 1)
def _scale_by_one(state: State) -> State:
    """Before, every column of a folded form had a share of its own, and G was one matrix."""
    arrays, scalars = dict(state.arrays), {**state.scalars, "left": 1.0}
    if "left" in arrays:
        try:
            columns = as_features(state.array("columns"), "columns")
            left = as_vector(arrays.pop("left"), "left", len(columns))
        except InputError as error:
            raise StateError(f"this state is damaged: {error}") from error
        arrays["columns"] = left[:, None] * columns
        scalars["rank"] = len(columns)
    if "G" in arrays:
        arrays["recent"] = np.empty((0, 0))
    return replace(state, schema=state.schema + 1, scalars=scalars, arrays=arrays)


class _Single(NamedTuple):
    """One observation."""

    row: int
    time: float
    reward: float


def _single(arms: Any, rewards: Any) -> _Single | None:
    """One observation in plain numbers; ``None`` for all else, which is to be checked in full."""
    keys = arms.tolist() if type(arms) is np.ndarray and arms.shape == (1, 2) else arms
    values = (
        rewards.tolist()
        if type(rewards) is np.ndarray and rewards.shape == (1,)
        else rewards
    )
    if not (type(keys) is type(values) is list and len(keys) == len(values) == 1):
        return None
    key, reward = keys[0], values[0]
    if type(key) is not list or len(key) != 2:
        return None
    row, time = key
    if not (_is_real(row) and _is_real(time) and _is_real(reward)) or row % 1:
        return None
    return _Single(int(row), float(time), float(reward))


def _is_real(value: Any) -> bool:
    """Whether this is a number of Python's own, or a finite ``np.float64``."""
    kind = type(value)
    return (
        kind is float or kind is np.float64 or kind is int
    ) and -LARGEST <= value <= LARGEST


def _sorted(held: Observed, fresh: Observed) -> Observed:
    """All of it in the order of time."""
    both = fresh.after(held)
    return both.part(np.argsort(both.arms[:, 1], kind="stable"))


def _thin(checkpoints: list[Form]) -> None:
    """Leave the first and the last of every doubling of age: few, and the nearer the denser."""
    newest, bands = checkpoints[-1].steps, dict[int, list[Form]]()
    for each in checkpoints:
        bands.setdefault((newest - each.steps).bit_length(), []).append(each)
    checkpoints[:] = [
        each for band in bands.values() for each in dict.fromkeys((band[0], band[-1]))
    ]
