"""Learning in the order of time, also from late feedback.

Late feedback is learned as of its own time: a copy of the last checkpoint before it learns everything
observed since. Questions about the past are answered in the same way: the copy watches the reward of
that moment.
"""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.kernels.state_space import StateSpace
from superarm.posteriors.observations import ObservationBuffer, Observations

from .checkpoints import checkpoint_due, thin_out
from .factory import FormFactory
from .form import Form, Watched
from .history import History, merge_by_time
from .keys import TIME, SingleReward, rows_of, times_of
from .visited import VisitedForm

# An observation is forgotten once less than this remains of it.
_NEGLIGIBLE = 1e-13


class _Start(NamedTuple):
    """From where to learn new observations."""

    form: Form
    checkpoints: list[Form]  # those before the form's time
    since: Observations  # what the form learns next
    data: ObservationBuffer  # everything remembered, with the new observations


class Learner:
    """Turns a history and new rewards into the next history.

    Args:
        forms: Creates the forms.
        space: The state that follows the kernel of time.
        prior_mean: The prior mean of every arm, (n,).
    """

    def __init__(
        self, forms: FormFactory, space: StateSpace, prior_mean: Floats
    ) -> None:
        self._forms = forms
        self._space = space
        self._prior_mean = prior_mean

    def new_history(self, noise_variance: float) -> History:
        """A history without observations.

        Args:
            noise_variance: The noise variance of one observation.
        """
        form = self._forms.new_form(noise_variance)
        return History(
            form=form,
            data=ObservationBuffer(),
            checkpoints=[],
            least_noise=noise_variance,
        )

    def _new_form(self, least_noise: float, forgotten_information: float) -> Form:
        """A form that has learned nothing, but counts the information of what is forgotten."""
        form = self._forms.new_form(least_noise)
        form.information = forgotten_information
        return form

    # --- new rewards -----------------------------------------------------------------------

    def learn_single(
        self, history: History, single: SingleReward, noise: float
    ) -> History:
        """Learn one reward of now: the fast path of nearly every round.

        Args:
            history: What was learned before; its form takes single rewards.
            single: The reward, not before the time of the form.
            noise: Its noise variance.
        """
        row, time, reward = single
        present = history.form
        form = present.successor()
        checkpoints = history.checkpoints
        is_due = checkpoint_due(form, time)
        if is_due:
            checkpoints = [*checkpoints, present]
            thin_out(checkpoints)
        residual = reward - self._prior_mean.item(row)
        form.learn_one(row, time, residual, noise)
        if isinstance(form, VisitedForm) and form.rank >= form.compare_at:
            # The reward is learned: a failed search for a cheaper form must not undo it.
            with suppress(Exception):
                form = self._forms.cheaper_form(form)
        updated = History(
            form,
            history.data.extended_by_one((row, time), reward, noise),
            checkpoints,
            history.least_noise,
            history.forgotten,
            history.forgotten_information,
        )
        return self._forget(updated) if is_due else updated

    def learn(self, history: History, new: Observations) -> History:
        """Learn rewards of any times.

        Args:
            history: What was learned before.
            new: At least one observation, in the order of time, none of a forgotten time.
        """
        least_noise = min(history.least_noise, float(new.noise.min()))
        start = self._start_for(history, new, least_noise)
        checkpoints = start.checkpoints
        form = self._fold(start.form, start.since, checkpoints)
        updated = history._replace(
            form=form,
            data=start.data,
            checkpoints=checkpoints,
            least_noise=least_noise,
        )
        has_new_checkpoint = checkpoints[-1:] != history.checkpoints[-1:]
        return self._forget(updated) if has_new_checkpoint else updated

    def _start_for(
        self, history: History, new: Observations, least_noise: float
    ) -> _Start:
        """Where to start from to learn these observations, which are in the order of time."""
        first = new.arms[0, TIME]
        checkpoints = history.checkpoints_before(first)
        form_name = self._forms.form_name(least_noise)
        needs_other_form = form_name != self._forms.form_name(history.least_noise)
        is_late = first < history.form.time
        if not needs_other_form and not is_late:
            form = history.form.successor()
            data = history.data.extended(*new)
            return _Start(form, checkpoints, new, data)
        everything = merge_by_time(history.remembered, new)
        data = ObservationBuffer(*everything)
        if needs_other_form or not checkpoints:
            # Less noise needs another form; it learns everything from the start, as does one
            # for feedback from before the first checkpoint.
            form = self._new_form(least_noise, history.forgotten_information)
            return _Start(form, [], everything, data)
        # Late: continue from before it, as if it had come in time.
        form = checkpoints[-1].copy()
        is_later = times_of(everything.arms) > form.time
        return _Start(form, checkpoints, everything.part(is_later), data)

    def learn_again(self, history: History) -> History:
        """Learn everything that is remembered with a new form; what is forgotten had faded.

        Args:
            history: Observations whose form and checkpoints are not used.
        """
        remembered = history.remembered
        self._forms.prior_rows.visit(rows_of(remembered.arms))
        new_form = self._new_form(history.least_noise, history.forgotten_information)
        checkpoints: list[Form] = []
        form = self._fold(new_form, remembered, checkpoints)
        return history._replace(form=form, checkpoints=checkpoints)

    def _fold(self, form: Form, since: Observations, checkpoints: list[Form]) -> Form:
        """Learn observations in the order of time; adds to ``checkpoints``."""
        if not len(since.noise):
            return form
        rows = rows_of(since.arms)
        times = times_of(since.arms)
        residual = since.rewards - self._prior_mean[rows]
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

    # --- forgetting ------------------------------------------------------------------------

    def _forget(self, history: History) -> History:
        """Drop observations that have faded: late feedback no longer needs them."""
        now = history.form.time
        faded = [form for form in history.checkpoints if self._has_faded(form, now)]
        if not faded:
            return history
        base = faded[-1]
        if len(faded) == 1 and base.time <= history.forgotten:
            return history
        base_index = len(faded) - 1
        later = history.since(base.time)
        return history._replace(
            data=ObservationBuffer(*later),
            checkpoints=history.checkpoints[base_index:],
            forgotten=base.time,
            forgotten_information=base.information,
        )

    def _has_faded(self, checkpoint: Form, now: float) -> bool:
        """Whether nothing remains of what was observed until this checkpoint."""
        age = now - checkpoint.time
        return self._space.remaining_share(age) < _NEGLIGIBLE

    # --- the past --------------------------------------------------------------------------

    def look_back(self, history: History, keys: Floats) -> Watched:
        """What is known now of rewards before the last observation.

        Args:
            history: What was learned.
            keys: Keys of the rewards, (p, 2).
        """
        order = np.argsort(times_of(keys), kind="stable")
        sorted_keys = keys[order]
        rows = rows_of(sorted_keys)
        times = times_of(sorted_keys)
        form = self._copy_before(history, times[0])
        since = history.since(form.time)
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

    def _copy_before(self, history: History, time: float) -> Form:
        """A form of before this time whose changes are seen nowhere else."""
        checkpoints = history.checkpoints_before(time)
        if checkpoints:
            start = checkpoints[-1]
        else:
            start = self._new_form(history.least_noise, history.forgotten_information)
        # Not even new prior rows may reach the posterior.
        prior_rows = self._forms.prior_rows.copy()
        return start.copy(prior_rows)
