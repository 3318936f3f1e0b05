"""Gaussian-process regression on a growing stream of changing arms, exact by default.

Notation

=========  =======================================================================
``N``      observations so far, ``m`` arms asked about, ``k`` arms observed at once
``X, y``   observed arms and rewards, (N, d) and (N,); ``D`` the noise variances
``L``      chol(k(X, X) + D), lower
``z``      L⁻¹ (y − prior mean), (N,)
``W``      rows w with L wᵀ = k(X, x): one per arm, (m, N)
``Φ, r``   exact finite-rank features of the kernel, (m, r), where it has them
``S, w``   posterior root and mean of the features' weights, (r, r) and (r,)
=========  =======================================================================

Cholesky form: mean = W z, variance = k(x, x) − Σ W²; the rows W of arms that are then observed *are*
the new rows of L. Finite-rank form: Bayesian linear regression on r features, mean = Φ w, root = Φ S.
Inducing form: ``summaries.py``. When each is used, and what ``forget`` changes: docs/architecture.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from superarm.core import Covariance, Floats, Ints, Rng, State
from superarm.core.errors import (
    ForgottenError,
    InputError,
    PrecisionWarning,
    StateError,
    warn,
)
from superarm.core.inputs import SMALLEST, as_count, as_flag, as_number, require_choice
from superarm.core.registry import contradiction, has_spec, register
from superarm.kernels import Kernel
from superarm.posteriors.base import Memory
from superarm.posteriors.observations import ObservationBuffer
from superarm.posteriors.rows import KernelPosterior, MeanFunction
from superarm.posteriors.summaries import BLOCK
from superarm.posteriors.variances import prior_variance

from .cholesky import CholeskyForm
from .features import KernelFeatures
from .finite_rank import FiniteRankForm
from .forgetting import TIME, is_recent, memory_span
from .form import ArmSolution, Form, FormName, NewRewards, Update
from .inducing import InducingForm
from .row_lookup import find_rows

FormChoice = Literal["auto", "cholesky", "finite-rank"]

_RANK_PER_OBSERVATION = 0.5
_MOST_FEATURES = 4096
# Observations at which a cheaper form is first looked for.
_FIRST_COMPARISON = 64
# Features are counted up to this multiple of the number that would pay.
_LOOK_AHEAD = 8
# Pairs up to which observed arms are looked up among those of the last question.
_LARGEST_MATCH = 1 << 20


@register("posterior", "streaming")
class StreamingGP(KernelPosterior):
    """Exact posterior for arms that change from round to round.

    If the kernel has no exact features, memory grows with the square of the number of
    observations, up to ``most_exact``. The properties ``form`` and ``tolerance`` describe what is in
    use. ``forgotten`` counts observations that were too old on arrival to be learned.

    Args:
        kernel: The kernel.
        noise_variance: Variance of the noise of one observation, in squared units of the reward.
        mean: The prior mean: a number, or a function of the arms' features.
        form: Which of the equivalent forms to use: "cholesky" or "finite-rank"; "auto"
            chooses by cost.
        most_exact: Most observations without exact features; the default takes 3 GB. Beyond
            that, inducing points summarise all observations; without ``inducing``, it refuses more.
        inducing: Most inducing points beyond ``most_exact`` observations; ``None``: no inducing
            points.
        timed: Whether the offer's time becomes the last feature.
        forget: Drop observations whose correlation with the newest time has fallen below this, such
            as 1e-6, so that the cost of a round stays flat; ``None``: keep all. It needs ``timed``
            and a kernel that forgets (any kernel times Temporal). With 1e-6, variances are too large
            by at most 1e-12 of themselves, and means are off by at most 1e-6 standard deviations in
            root mean square.

    >>> from superarm.kernels import SquaredExponential
    >>> gp = StreamingGP(kernel=SquaredExponential(lengthscale=0.3), noise_variance=0.01)
    >>> gp.observe([[0.0], [0.5]], [1.0, -1.0])
    >>> mean, std = gp.predict([[0.0], [0.4]])
    >>> mean.round(2).tolist(), std.round(2).tolist()
    ([0.99, -0.7], [0.1, 0.28])
    """

    kind = "streaming-gp"
    schema = 2

    def __init__(
        self,
        kernel: Covariance,
        noise_variance: float,
        mean: MeanFunction = 0.0,
        *,
        form: FormChoice = "auto",
        most_exact: int = 20_000,
        inducing: int | None = None,
        timed: bool = False,
        forget: float | None = None,
    ) -> None:
        super().__init__(kernel, noise_variance, mean)
        require_choice(form, "form", ("auto", "cholesky", "finite-rank"))
        self.most_exact = as_count(most_exact, "most_exact")
        self.inducing = None
        if inducing is not None:
            self.inducing = as_count(inducing, "inducing")
            if form != "auto":
                raise InputError(f"inducing needs form='auto', not {form!r}")
        self.timed = as_flag(timed, "timed")
        self.forgotten = 0
        self.forget = None
        if forget is not None:
            self.forget = as_number(forget, "forget", SMALLEST, 0.5)
            if not self.timed or inducing is not None or form == "finite-rank":
                raise InputError(
                    "forget drops old observations from the Cholesky form: it needs timed=True, and "
                    "cannot be used with inducing or form='finite-rank'"
                )
        self._choice: FormChoice = form
        self._form: Form = CholeskyForm(kernel, self._data)
        self._reconsider_at = _FIRST_COMPARISON

    # --- the form in use -------------------------------------------------------------------

    @property
    def form(self) -> FormName:
        """The name of the form in use."""
        return self._form.name

    @property
    def rank(self) -> int:
        """Columns of the matrix in use: N in Cholesky, r in finite-rank, s in inducing form."""
        return self._form.rank

    @property
    def tolerance(self) -> float:
        """Bound on the error of a kernel value.

        It is 0 in Cholesky form, proven for any arms in finite-rank form, and for those observed so
        far in inducing form.
        """
        return self._form.tolerance

    # --- time ------------------------------------------------------------------------------

    def _check_columns(self, features: Floats) -> Floats:
        if self.forget is not None:
            # Refuses a kernel that never forgets.
            memory_span(self.kernel, self.forget, features.shape[1])
        return super()._check_columns(features)

    def _remembered_keys(self, arms: Any) -> Floats:
        keys = self._as_keys(arms)
        if self.forget is None or not len(keys):
            return keys
        learned = self.count - self.forgotten
        has_dropped = learned > len(self._data)
        if has_dropped:
            observed_times = self.observed.arms[:, TIME]
            earliest = keys[:, TIME].min()
            newest = observed_times.max()
            span = memory_span(self.kernel, self.forget, keys.shape[1])
            if newest - earliest > span:
                raise ForgottenError(
                    f"time {earliest:g} is forgotten: what was observed then is no longer kept; ask "
                    "about later times, or lower forget"
                )
        return keys

    def _is_young(self, keys: Floats, forget: float) -> NDArray[np.bool_]:
        """Which of these still matter, (m,)."""
        span = memory_span(self.kernel, forget, keys.shape[1])
        return is_recent(span, keys, self.observed.arms)

    # --- answers ---------------------------------------------------------------------------

    def _ask(self, keys: Floats) -> ArmSolution:
        """What is known of these arms, computed once for mean, covariance, draws and ``observe``.

        Arms outside the box on which the features hold are answered from a wider form. The posterior
        adopts it only when something is observed: a question changes nothing.
        """
        return self._cached("solved", keys, self._solve)

    def _solve(self, keys: Floats) -> ArmSolution:
        form = self._form
        if not form.covers(keys):
            form = self._feature_form(keys) or self._cholesky_form()
        return form.solve(keys)

    def _moments(self, keys: Floats) -> tuple[Floats, Floats]:
        prior = self._prior_mean(keys)
        if not self.count:
            mean = np.zeros(len(keys)) + prior
            return mean, prior_variance(self.kernel, keys)
        form, rows, mean = self._ask(keys)
        return mean + prior, form.variance(keys, rows)

    def _covariance(self, keys: Floats, positions: Ints | None = None) -> Floats:
        if not self.count:
            return self._prior_covariance(keys, positions)
        form, rows, _ = self._ask(keys)
        return form.covariance(keys, rows, positions)

    def _draw(self, keys: Floats, rng: Rng, size: int) -> Floats:
        if self.count:
            form, rows, _ = self._ask(keys)
            if form.name == "finite-rank":
                rank = rows.shape[1]
                return rng.standard_normal((size, rank)) @ rows.T
        return super()._draw(keys, rng, size)

    def _incumbent(self, sign: float) -> float:
        prior = self._prior_mean(self.observed.arms)
        means = self._form.fitted_means() + prior
        return float(np.max(sign * means))

    # --- learning --------------------------------------------------------------------------

    def _take_in(
        self, keys: Floats, rewards: Floats, noise: Floats, rng: Rng | None
    ) -> None:
        count = len(keys)
        forgotten = self.forgotten
        if self.forget is not None:
            is_young = self._is_young(keys, self.forget)
            if not is_young.all():
                keys = keys[is_young]
                rewards = rewards[is_young]
                noise = noise[is_young]
                forgotten += count - len(keys)
                if not len(keys):
                    self._commit(count, 0.0, forgotten=forgotten)
                    return
        residual = rewards - self._prior_mean(keys)
        data = self._data.extended(keys, rewards, noise)
        summary = self._inducing_form(keys)
        if summary is not None:
            update = self._sum_up(summary, keys, residual, noise, data)
        else:
            update = self._condition(keys, residual, noise, data)
        changes: dict[str, Any] = {
            "_form": update.form,
            "_data": data,
            "_cache": {},
            "forgotten": forgotten,
        }
        self._commit(count, update.information, update.last, **changes)

    def _condition(
        self, keys: Floats, residual: Floats, noise: Floats, data: ObservationBuffer
    ) -> Update:
        """Learn rewards in an exact form."""
        form, rows, mean = self._solve_for_observing(keys)
        if form.least_noise and noise.min() < form.least_noise:
            if self._choice == "finite-rank":
                raise InputError(
                    f"noise_variance {noise.min():.3g} is too small for the finite-rank form, in "
                    f"which kernel values are off by up to {form.tolerance:.0e}: it needs at least "
                    f"{form.least_noise:.3g} here; use form='auto'"
                )
            form, rows, mean = self._cholesky_form().solve(keys)
        innovation = residual - mean
        new = NewRewards(keys, rows, innovation, noise)
        return form.condition(new, data)

    def _sum_up(
        self,
        summary: InducingForm,
        keys: Floats,
        residual: Floats,
        noise: Floats,
        data: ObservationBuffer,
    ) -> Update:
        """Learn rewards in inducing form, block by block."""
        information = 0.0
        form: Form = summary
        for start in range(0, len(keys), BLOCK):
            block = slice(start, start + BLOCK)
            _, rows, mean = form.solve(keys[block])
            innovation = residual[block] - mean
            new = NewRewards(keys[block], rows, innovation, noise[block])
            update = form.condition(new, data)
            form = update.form
            information += update.information
        if not isinstance(self._form, InducingForm):
            warn(
                f"more than {self.most_exact} observations: from now on the posterior is "
                f"approximate, summed up in {form.rank} inducing points; kernel values are off "
                f"by up to {form.tolerance:.2g}",
                PrecisionWarning,
            )
        return Update(form, information)

    def _inducing_form(self, keys: Floats) -> InducingForm | None:
        """The inducing form to learn these arms; ``None`` where an exact form can."""
        total = len(self._data) + len(keys)
        form = self._form
        if isinstance(form, InducingForm) and total < 2 * form.chosen_at:
            return form
        is_exact = total <= self.most_exact or self._choice == "finite-rank"
        if is_exact or isinstance(form, FiniteRankForm):
            return None
        feature_form = self._feature_form(keys)
        if feature_form is not None:
            # The same posterior, at a cost that does not grow.
            self._form = feature_form
            return None
        most = self.inducing
        if most is None:
            raise self._too_many(total)
        # Even if there are points: later observations may lie where they explain little.
        residual = self._residual()
        return InducingForm.fit(self.kernel, most, keys, self._data, residual)

    def check_room(self, arms: Any, rewards: Any, noise_variance: Any = None) -> None:
        """Raise the error that :meth:`observe` would raise because there are too many rewards.

        Args:
            arms: The arms to observe, (k, d).
            rewards: Their rewards, (k,).
            noise_variance: Noise variances of the rewards, (k,), or ``None``.
        """
        with self._lock.lock:
            keys = self._as_keys(arms)
            total = len(self._data) + len(keys)
            can_grow = (
                self.form == "cholesky"
                and self._choice != "finite-rank"
                and self.inducing is None
            )
            is_too_many = can_grow and total > self.most_exact
            if is_too_many and self._feature_form(keys) is None:
                raise self._too_many(total)

    def _too_many(self, total: int) -> InputError:
        gigabytes = 8e-9 * total**2
        return InputError(
            f"{total} observations are more than most_exact = {self.most_exact}, and this kernel "
            "has no cheaper exact form on these arms; give inducing=1000 to sum them up in that "
            f"many points, or a larger most_exact ({gigabytes:.2g} GB for {total})"
        )

    def _after_observing(self) -> None:
        if self.forget is not None:
            self._drop_old(self.forget)
            return
        count = len(self._data)
        if self._choice != "auto" or count < self._reconsider_at:
            return
        self._reconsider_at = count + max(count // 4, 32)
        if self._form.name == "cholesky":
            # The observation is learned and counted. Whatever goes wrong in the search for a cheaper
            # form (a user's kernel or mean may raise anything), the present one is exact.
            with suppress(Exception):
                self._reconsider(count)

    def _drop_old(self, forget: float) -> None:
        """Drop observations that have faded, once they are a third of all."""
        is_young = self._is_young(self.observed.arms, forget)
        young_count = np.count_nonzero(is_young)
        if 3 * young_count > 2 * len(is_young):
            return  # dropping means a new factorisation
        young = self.observed.part(is_young)
        data = ObservationBuffer(*young)
        with suppress(Exception):  # as above; the present form is as good
            arms, rewards, _ = data.view()
            residual = rewards - self._prior_mean(arms)
            form = CholeskyForm.fit(self.kernel, data, residual)
            vars(self).update(_form=form, _data=data)  # in one call, as in ``_commit``

    def _reconsider(self, count: int) -> None:
        """Switch to the finite-rank form where it is cheaper; else set when to try again.

        More data only widen the box on which features must hold, so that their number can only
        grow. If it is too large now, it gives the number of observations that make it pay.
        """
        limit = self._most_features()
        candidate = self._features_around(None, _LOOK_AHEAD * limit)
        if candidate is None:
            self._reconsider_at = 2 * count
            return
        rank = candidate.features.rank
        if rank > limit:
            enough = math.ceil(rank / _RANK_PER_OBSERVATION)
            self._reconsider_at = max(self._reconsider_at, enough)
        else:
            self._form = self._fit_features(candidate) or self._form

    def _solve_for_observing(self, keys: Floats) -> ArmSolution:
        """What is known of arms to be observed, from the last question if it included them."""
        solution: ArmSolution | None
        if self._choice == "finite-rank" and self._form.name == "cholesky":
            form = self._feature_form(keys)
            solution = None if form is None else form.solve(keys)
        else:
            solution = self._look_up(keys) or self._ask(keys)
        if solution is None or self._choice not in ("auto", solution.form.name):
            raise _no_features()
        return solution

    def _look_up(self, keys: Floats) -> ArmSolution | None:
        """These arms in the last answer, if it has all of them, in a form that may be used."""
        last = self._cache.get("solved")
        if last is None or last.written != self._lock.written:
            return None
        is_usable = self._choice in ("auto", last.answer.form.name)
        if not is_usable or len(keys) * len(last.keys) > _LARGEST_MATCH:
            return None
        places = find_rows(keys, last.keys)
        if places is None:
            return None
        form, all_rows, all_means = last.answer
        rows = all_rows.take(places, axis=0)
        mean = all_means.take(places)
        return ArmSolution(form, rows, mean)

    # --- choice of form --------------------------------------------------------------------

    def _cholesky_form(self) -> CholeskyForm:
        return CholeskyForm.fit(self.kernel, self._data, self._residual())

    def _feature_form(self, new_arms: Floats | None) -> FiniteRankForm | None:
        """The finite-rank form around everything observed and these arms, where it is cheaper."""
        candidate = self._features_around(new_arms, self._most_features())
        return None if candidate is None else self._fit_features(candidate)

    def _features_around(
        self, new_arms: Floats | None, limit: int
    ) -> KernelFeatures | None:
        """Features of the kernel on a box around all arms, if at most ``limit`` suffice."""
        needs_cholesky = self._choice == "cholesky" or self.forget is not None
        if needs_cholesky or not isinstance(self.kernel, Kernel):
            return None
        arms = self.observed.arms
        if new_arms is not None and len(new_arms):
            arms = np.vstack([arms, new_arms]) if len(arms) else new_arms
        if not limit or not len(arms):
            return None
        return KernelFeatures.around(arms, self.kernel, limit)

    def _fit_features(self, candidate: KernelFeatures) -> FiniteRankForm | None:
        """The finite-rank form of all data, where the noise is large enough for it."""
        features, tolerance = candidate
        residual = self._residual()
        form = FiniteRankForm.fit(features, tolerance, self._data, residual)
        least_noise = self.observed.noise.min(initial=np.inf)
        has_digits = least_noise >= form.least_noise
        return form if has_digits else None

    def _most_features(self) -> int:
        if self._choice != "auto":
            return _MOST_FEATURES
        return int(_RANK_PER_OBSERVATION * len(self._data))

    def _residual(self) -> Floats:
        """Rewards without the prior mean, (N,)."""
        arms, rewards, _ = self.observed
        return rewards - self._prior_mean(arms) if len(arms) else rewards

    # --- state -----------------------------------------------------------------------------

    def parameters(self) -> Mapping[str, Any]:
        return {**super().parameters(), "form": self._choice}

    def _memory(self) -> Memory:
        scalars: dict[str, Any] = {
            "in_use": self.form,
            "reconsider_at": self._reconsider_at,
        }
        if self.forget is not None:
            scalars["forgotten"] = self.forgotten
        parts = {}
        if isinstance(self._form, FiniteRankForm):
            parts["features"] = self._form.state()
        elif isinstance(self._form, InducingForm):
            parts["inducing"] = self._form.state()
        return super()._memory()._replace(scalars=scalars, parts=parts)

    def _remember(self, state: State) -> None:
        """Resume the finite-rank and the inducing form with the stored numbers.

        The Cholesky form, or any form with another kernel, is computed again from the observations.
        """
        super()._remember(state)
        if self.forget is not None:
            most = self.count - len(self._data)
            self.forgotten = state.count("forgotten", 0, most)
        if not self.count:
            return
        in_use = self._check_form_in_use(state)
        is_same_kernel = self._has_kernel_of(state)
        form: Form | None = None
        if in_use == "finite-rank":
            form = self._resume_features(state, is_same_kernel)
        elif in_use == "inducing":
            form = self._resume_inducing(state, is_same_kernel)
        if form is None and self._choice == "finite-rank":
            raise _no_features()
        self._form = form or self._cholesky_form()

    def _has_kernel_of(self, state: State) -> bool:
        """Whether a state was taken from a posterior with this kernel."""
        if not has_spec(self.kernel):
            return False
        spec = state.spec or {}
        return contradiction(self.kernel, spec.get("kernel")) is None

    def _check_form_in_use(self, state: State) -> Any:
        """The name of the form in a state; sets when to look for a cheaper one."""
        in_use = state.scalar("in_use")
        reconsider_at = state.scalar("reconsider_at")
        possible = ["cholesky", "finite-rank"]
        if self.inducing:
            possible.append("inducing")
        is_possible = in_use in possible and self._choice in ("auto", in_use)
        if type(reconsider_at) is not int or not is_possible:
            raise StateError("this state is damaged: its form is impossible")
        self._reconsider_at = reconsider_at
        return in_use

    def _resume_features(
        self, state: State, is_same_kernel: bool
    ) -> FiniteRankForm | None:
        if not is_same_kernel or not isinstance(self.kernel, Kernel):
            return self._feature_form(None)
        part = state.part("features")
        residual = self._residual()
        most = self._most_features()
        return FiniteRankForm.from_state(part, self.kernel, self._data, residual, most)

    def _resume_inducing(self, state: State, is_same_kernel: bool) -> InducingForm:
        most = self.inducing or 0
        if is_same_kernel:
            part = state.part("inducing")
            return InducingForm.from_state(part, self.kernel, self._data, most)
        no_arms = self.observed.arms[:0]
        residual = self._residual()
        return InducingForm.fit(self.kernel, most, no_arms, self._data, residual)


def _no_features() -> InputError:
    return InputError(
        "this kernel has no finite-rank form on these arms: it is not smooth enough, or its "
        "lengthscale is too short for their spread; use form='auto'"
    )
