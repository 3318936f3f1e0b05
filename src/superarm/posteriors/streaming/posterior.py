"""Gaussian-process regression on a growing stream of changing arms, exact unless told otherwise.

Notation

=========  =======================================================================
``N``      observations so far, ``m`` arms asked about, ``k`` arms observed at once
``X, y``   what was observed, (N, d) and (N,); ``D`` the noise variances
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
from typing import Any, Literal, NamedTuple

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
from superarm.kernels import FeatureMap, Kernel
from superarm.posteriors.base import Memory
from superarm.posteriors.rows import KernelPosterior, MeanFunction, ObservedData
from superarm.posteriors.summaries import BLOCK
from superarm.posteriors.variances import prior_variance

from .forms import (
    FEATURE_ERROR,
    AnyForm,
    CholeskyForm,
    Conditioned,
    FiniteRankForm,
    FormName,
    Fresh,
    InducingForm,
    Solved,
)

Form = Literal["auto", "cholesky", "finite-rank"]

_RANK_PER_OBSERVATION = 0.5
_MOST_FEATURES = 4096
_LOOK_AHEAD = (
    8  # times the features worth having that are made to learn how many there are
)
_LARGEST_MATCH = (
    1 << 20
)  # pairs up to which arms observed are looked for among those asked about


class _Features(NamedTuple):
    """Features of the kernel, and the error that was allowed for them."""

    features: FeatureMap
    tolerance: float


@register("posterior", "streaming")
class StreamingGP(KernelPosterior):
    """Exact posterior for arms that change from round to round.

    Where the kernel has no exact features, memory grows with the square of the number of observations:
    more than ``most_exact`` (20,000 take 3 GB) are refused, unless ``inducing`` says in how many points
    they are to be summed up from then on. ``form`` and ``tolerance`` tell what is in use.

    With ``timed`` and a kernel that forgets (any kernel times Temporal), ``forget=1e-6`` drops
    observations whose correlation with the newest time has fallen below 1e-6, so that the cost of a
    round stays flat. Variances are then too large by at most 1e-12 of themselves, and means are off by
    at most 1e-6 standard deviations in root mean square. ``forgotten`` counts observations that were
    too old when they came and were not learned.

    Args:
        kernel: The kernel.
        noise_variance: Variance of the noise of one observation.
        mean: The prior mean: a number or a function.
        form: Which of the equivalent engines does the algebra; auto chooses.
        most_exact: Observations beyond which inducing points are used or, without them, no more are
            accepted.
        inducing: How many inducing points, at most.
        timed: Whether the offer's time becomes the last feature.
        forget: Observations are dropped once their correlation with the newest time falls below
            this; where left out, all are kept.

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
        form: Form = "auto",
        most_exact: int = 20_000,
        inducing: int | None = None,
        timed: bool = False,
        forget: float | None = None,
    ) -> None:
        super().__init__(kernel, noise_variance, mean)
        require_choice(form, "form", ("auto", "cholesky", "finite-rank"))
        self.most_exact = as_count(most_exact, "most_exact")
        self.inducing = None if inducing is None else as_count(inducing, "inducing")
        if inducing is not None and form != "auto":
            raise InputError(f"inducing needs form='auto', not {form!r}")
        self.timed, self.forgotten = as_flag(timed, "timed"), 0
        self.forget = (
            None if forget is None else as_number(forget, "forget", SMALLEST, 0.5)
        )
        if forget is not None and (
            not self.timed or inducing is not None or form == "finite-rank"
        ):
            advice = "it needs timed=True, and cannot be used with inducing or form='finite-rank'"
            raise InputError(
                f"forget drops old observations from the Cholesky form: {advice}"
            )
        self._wanted: Form = form
        self._form: AnyForm = CholeskyForm(kernel, self._data)
        self._reconsider_at = (
            64  # observations at which the cheaper form is looked for next
        )

    # --- what it is now --------------------------------------------------------------------

    @property
    def form(self) -> FormName:
        """Which form is in use."""
        return self._form.name

    @property
    def rank(self) -> int:
        """Columns of the matrix in use: N in Cholesky, r in finite-rank, s in inducing form."""
        return self._form.rank

    @property
    def tolerance(self) -> float:
        """Bound on the error of a kernel value: 0 in Cholesky form, proven for any arms in finite-rank
        form, and for those observed so far in inducing form."""
        return self._form.tolerance

    # --- hooks -----------------------------------------------------------------------------

    def _check_columns(self, features: Floats) -> Floats:
        if self.forget is not None:
            self._window(features.shape[1] - 1)  # refuses a kernel that never forgets
        return super()._check_columns(features)

    def _remembered_keys(self, arms: Any) -> Floats:
        keys = self._as_keys(arms)
        dropped = self.forget is not None and self.count - self.forgotten > len(
            self._data
        )
        if dropped and len(keys):
            first, newest = keys[:, -1].min(), self.observed.arms[:, -1].max()
            if newest - first > self._window(keys.shape[1] - 1):
                told = f"time {first:g} is forgotten: what was observed then is no longer kept"
                raise ForgottenError(f"{told}; ask about later times, or lower forget")
        return keys

    def _window(self, column: int) -> float:
        """The age at which ``forget`` of the correlation is left."""
        rate = (
            self.kernel.forgetting(column) if isinstance(self.kernel, Kernel) else None
        )
        if self.forget is None or not rate:
            raise InputError(
                f"forget needs a kernel that forgets along column {column}, which holds the times: "
                f"multiply the whole kernel by Temporal(epsilon=0.01, column={column}), or leave "
                "forget out"
            )
        return 2.0 * math.log(self.forget) / math.log1p(-min(rate, 1.0 - 1e-15))

    def _young(self, keys: Floats) -> NDArray[np.bool_]:
        """Which of these still matter beside the newest of them and of those held."""
        newest = np.max(
            keys[:, -1], initial=np.max(self.observed.arms[:, -1:], initial=-np.inf)
        )
        return np.asarray(newest - keys[:, -1] <= self._window(keys.shape[1] - 1))

    def _ask(self, keys: Floats) -> Solved:
        """What is known of these arms, computed once for mean, covariance, draws and ``observe``.

        Arms outside the box on which the features hold are answered from a wider form, which
        becomes the posterior's own only when something is observed: a question changes nothing.
        """
        return self._once("solved", keys, self._solve)

    def _solve(self, keys: Floats) -> Solved:
        form = self._form
        if not form.covers(keys):
            form = self._feature_form(keys) or self._cholesky_form()
        return form.solve(keys)

    def _moments(self, keys: Floats) -> tuple[Floats, Floats]:
        prior = self._prior_mean(keys)
        if not self.count:
            return np.zeros(len(keys)) + prior, prior_variance(self.kernel, keys)
        form, rows, mean = self._ask(keys)
        return mean + prior, form.variance(keys, rows)

    def _covariance(self, keys: Floats, at: Ints | None = None) -> Floats:
        if not self.count:
            prior = self.kernel(keys) if at is None else self.kernel(keys[at], keys)
            return np.array(prior, dtype=np.float64)
        form, rows, _ = self._ask(keys)
        return form.covariance(keys, rows, at)

    def _draw(self, keys: Floats, rng: Rng, size: int) -> Floats:
        if self.count:
            form, rows, _ = self._ask(keys)
            if form.name == "finite-rank":
                return rng.standard_normal((size, rows.shape[1])) @ rows.T
        return super()._draw(keys, rng, size)

    def _incumbent(self, sign: float) -> float:
        return float(
            np.max(sign * (self._form.fitted() + self._prior_mean(self.observed.arms)))
        )

    def _take_in(
        self, keys: Floats, rewards: Floats, noise: Floats, rng: Rng | None
    ) -> None:
        count, forgotten = len(keys), self.forgotten
        if self.forget is not None and not (young := self._young(keys)).all():
            keys, rewards, noise = keys[young], rewards[young], noise[young]
            forgotten += count - len(keys)
            if not len(keys):
                self._commit(count, 0.0, forgotten=forgotten)
                return
        residual = rewards - self._prior_mean(keys)
        data = self._data.extended(keys, rewards, noise)
        summary = self._summary(keys)
        if summary is not None:
            form, information, last = self._summed_up(
                summary, keys, residual, noise, data
            )
        else:
            form, information, last = self._conditioned(keys, residual, noise, data)
        changed: dict[str, Any] = {
            "_form": form,
            "_data": data,
            "_kept": {},
            "forgotten": forgotten,
        }
        self._commit(count, information, last, **changed)

    def _conditioned(
        self, keys: Floats, residual: Floats, noise: Floats, data: ObservedData
    ) -> Conditioned:
        form, rows, mean = self._known(keys)
        if form.least_noise and noise.min() < form.least_noise:
            if self._wanted == "finite-rank":
                raise InputError(
                    f"noise_variance {noise.min():.3g} is too small for the finite-rank form, in "
                    f"which kernel values are off by up to {form.tolerance:.0e}: it needs at least "
                    f"{form.least_noise:.3g} here; use form='auto'"
                )
            form, rows, mean = self._cholesky_form().solve(keys)
        return form.conditioned(Fresh(keys, rows, residual - mean, noise), data)

    def _summed_up(
        self,
        summary: InducingForm,
        keys: Floats,
        residual: Floats,
        noise: Floats,
        data: ObservedData,
    ) -> Conditioned:
        information = 0.0
        form: AnyForm = summary
        for begin in range(0, len(keys), BLOCK):
            part = slice(begin, begin + BLOCK)
            _, rows, mean = form.solve(keys[part])
            fresh = Fresh(keys[part], rows, residual[part] - mean, noise[part])
            form, gained, _ = form.conditioned(fresh, data)
            information += gained
        if not isinstance(self._form, InducingForm):
            warn(
                f"more than {self.most_exact} observations: from now on the posterior is "
                f"approximate, summed up in {form.rank} inducing points; kernel values are off "
                f"by up to {form.tolerance:.2g}",
                PrecisionWarning,
            )
        return Conditioned(form, information)

    def _summary(self, keys: Floats) -> InducingForm | None:
        """The inducing form, to be given these arms, where it is in use or must be from now on."""
        total, form = len(self._data) + len(keys), self._form
        if isinstance(form, InducingForm) and total < 2 * form.chosen_at:
            return form
        exact = total <= self.most_exact or self._wanted == "finite-rank"
        if exact or isinstance(form, FiniteRankForm):
            return None
        if (features := self._feature_form(keys)) is not None:
            self._form = features  # says the same, and does not grow
            return None
        if self.inducing is None:
            raise self._too_many(total)
        # Also where points are there: what came since may lie where they say little.
        return InducingForm.fitted_to(
            self.kernel, self.inducing, keys, self._data, self._residual()
        )

    def check_room(self, arms: Any, rewards: Any, noise_variance: Any = None) -> None:
        with self._lock.lock:
            keys = self._as_keys(arms)
            total = len(self._data) + len(keys)
            grows = (
                self.form == "cholesky"
                and self._wanted != "finite-rank"
                and self.inducing is None
            )
            if grows and total > self.most_exact and self._feature_form(keys) is None:
                raise self._too_many(total)

    def _too_many(self, total: int) -> InputError:
        return InputError(
            f"{total} observations are more than most_exact = {self.most_exact}, and this kernel "
            "has no cheaper exact form on these arms; give inducing=1000 to sum them up in that "
            f"many points, or a larger most_exact ({8e-9 * total**2:.2g} GB for {total})"
        )

    def _after_observing(self) -> None:
        if self.forget is not None:
            young = self._young(self.observed.arms)
            if 3 * np.count_nonzero(young) <= 2 * len(
                young
            ):  # now and then: all is factorised anew
                kept = ObservedData(*self.observed.part(young))
                with suppress(Exception):  # as below; what is held says the same
                    residual = kept.view().rewards - self._prior_mean(kept.view().arms)
                    form = CholeskyForm.fitted_to(self.kernel, kept, residual)
                    vars(self).update(
                        _form=form, _data=kept
                    )  # in one call, as in ``_commit``
            return
        if self._wanted != "auto" or len(self._data) < self._reconsider_at:
            return
        count = len(self._data)
        self._reconsider_at = count + max(count // 4, 32)
        if self._form.name == "cholesky":
            # The observation is in and counted; whatever goes wrong in looking for a cheaper form
            # (a kernel or mean function of the user's own may raise anything), this one is exact.
            with suppress(Exception):
                self._reconsider(count)

    def _reconsider(self, count: int) -> None:
        """Move on to the finite-rank form where it is cheaper; else note when to look again.

        More data only widen the box on which features must hold, so that their number can only
        grow: one that is too large now says how many observations it takes to be worth it.
        """
        limit = self._most_features()
        found = self._features_around(None, _LOOK_AHEAD * limit)
        if found is None:
            self._reconsider_at = 2 * count
        elif found.features.rank > limit:
            enough = math.ceil(found.features.rank / _RANK_PER_OBSERVATION)
            self._reconsider_at = max(self._reconsider_at, enough)
        else:
            self._form = self._fitted(found) or self._form

    def _known(self, keys: Floats) -> Solved:
        """What is known of arms to be observed, from the last question if it held them."""
        if self._wanted == "finite-rank" and self._form.name == "cholesky":
            form = self._feature_form(keys)
            asked = None if form is None else form.solve(keys)
        else:
            asked = self._matched(keys) or self._ask(keys)
        if asked is None or self._wanted not in ("auto", asked.form.name):
            raise _no_features()
        return asked

    def _matched(self, keys: Floats) -> Solved | None:
        """These arms among those asked about last, if all are, in a form that may be used."""
        kept = self._kept.get("solved")
        if kept is None or kept.written != self._lock.written:
            return None
        usable = self._wanted in ("auto", kept.answer.form.name)
        if not usable or len(keys) * len(kept.keys) > _LARGEST_MATCH:
            return None
        where = _places(keys, kept.keys)
        if where is None:
            return None
        form, rows, mean = kept.answer
        return Solved(form, rows.take(where, axis=0), mean.take(where))

    # --- choice of form --------------------------------------------------------------------

    def _cholesky_form(self) -> CholeskyForm:
        return CholeskyForm.fitted_to(self.kernel, self._data, self._residual())

    def _feature_form(self, also: Floats | None) -> FiniteRankForm | None:
        """The finite-rank form around everything observed and these arms, where it is cheaper."""
        found = self._features_around(also, self._most_features())
        return None if found is None else self._fitted(found)

    def _features_around(self, also: Floats | None, limit: int) -> _Features | None:
        """Features of the kernel on a box around all of these arms, if at most ``limit`` will do."""
        cholesky = self._wanted == "cholesky" or self.forget is not None
        if cholesky or not isinstance(self.kernel, Kernel):
            return None
        known = [
            part
            for part in (self.observed.arms, also)
            if part is not None and len(part)
        ]
        if not limit or not known:
            return None
        arms = np.vstack(known)
        tolerance = FEATURE_ERROR * float(np.max(self.kernel.diag(arms)))
        # A box with room to spare, so that it is rarely outgrown.
        lower, upper = arms.min(axis=0), arms.max(axis=0)
        margin = 0.05 * (upper - lower) + 1e-12 * np.maximum(1.0, np.abs(upper))
        features = self.kernel.features(
            lower - margin, upper + margin, tolerance, max_rank=limit
        )
        if features is None or not features.covers(arms):
            return None
        return _Features(features, tolerance)

    def _fitted(self, found: _Features) -> FiniteRankForm | None:
        """The finite-rank form of all data, where the noise is large enough for it."""
        form = FiniteRankForm.fitted_to(*found, self._data, self._residual())
        return (
            form
            if self.observed.noise.min(initial=np.inf) >= form.least_noise
            else None
        )

    def _most_features(self) -> int:
        count = len(self._data)
        return (
            int(_RANK_PER_OBSERVATION * count)
            if self._wanted == "auto"
            else _MOST_FEATURES
        )

    def _residual(self) -> Floats:
        arms, rewards, _ = self.observed
        return rewards - self._prior_mean(arms) if len(arms) else rewards

    # --- state -----------------------------------------------------------------------------

    def parameters(self) -> Mapping[str, Any]:
        return {**super().parameters(), "form": self._wanted}

    def _memory(self) -> Memory:
        scalars: dict[str, Any] = {
            "in_use": self.form,
            "reconsider_at": self._reconsider_at,
        }
        if self.forget is not None:
            scalars["forgotten"] = self.forgotten
        parts = {}
        if not isinstance(self._form, CholeskyForm):
            name = "features" if isinstance(self._form, FiniteRankForm) else "inducing"
            parts = {name: self._form.state()}
        return super()._memory()._replace(scalars=scalars, parts=parts)

    def _remember(self, state: State) -> None:
        """The finite-rank and the inducing form go on with the same numbers.

        The Cholesky form, or any form with another kernel, is computed anew from what was observed.
        """
        super()._remember(state)
        if self.forget is not None:
            most = self.count - len(self._data)
            self.forgotten = as_count(state.scalar("forgotten"), "forgotten", 0, most)
        if not self.count:
            return
        in_use, reconsider_at = state.scalar("in_use"), state.scalar("reconsider_at")
        possible = (
            "cholesky",
            "finite-rank",
            *(("inducing",) if self.inducing else ()),
        )
        wanted = in_use in possible and self._wanted in ("auto", in_use)
        if type(reconsider_at) is not int or not wanted:
            raise StateError("this state is damaged: its form is impossible")
        self._reconsider_at = reconsider_at
        kernel, known = self.kernel, (state.spec or {}).get("kernel")
        same = has_spec(kernel) and contradiction(kernel, known) is None
        form: FiniteRankForm | InducingForm | None = None
        if in_use == "finite-rank":
            if same and isinstance(kernel, Kernel):
                form = FiniteRankForm.from_state(
                    state.part("features"),
                    kernel,
                    self._data,
                    self._residual(),
                    self._most_features(),
                )
            else:
                form = self._feature_form(None)
        elif in_use == "inducing":
            most, residual = self.inducing or 0, self._residual()
            if same:
                form = InducingForm.from_state(
                    state.part("inducing"), kernel, self._data, most
                )
            else:
                none = self.observed.arms[:0]
                form = InducingForm.fitted_to(kernel, most, none, self._data, residual)
        if form is None and self._wanted == "finite-rank":
            raise _no_features()
        self._form = form or self._cholesky_form()


def _places(rows: Floats, among: Floats) -> list[int] | None:
    """Where each row stands in another array, its first place; ``None`` if one is not found.

    Rows are compared by their bytes, in which 0 and −0 differ.
    """
    everything, searched = among.tobytes(), rows.tobytes()
    width = among.shape[1] * among.itemsize  # bytes of a row
    if not width:
        return None
    places = []
    for begin in range(0, len(searched), width):
        wanted = searched[begin : begin + width]
        start = everything.find(wanted)
        while start >= 0 and start % width:  # it was found across two rows
            start = everything.find(wanted, start + 1)
        if start < 0:
            return None
        places.append(start // width)
    return places


def _no_features() -> InputError:
    told = "it is not smooth enough, or its lengthscale is too short for their spread"
    return InputError(
        f"this kernel has no finite-rank form on these arms: {told}; use form='auto'"
    )
