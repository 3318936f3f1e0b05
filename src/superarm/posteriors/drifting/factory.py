"""Which form a drifting posterior uses, by cost and by the digits that its noise needs."""

from __future__ import annotations

from typing import Literal

import numpy as np

from superarm.core import Covariance, Floats
from superarm.core.errors import InputError
from superarm.core.linalg import psd_root
from superarm.kernels import Kernel
from superarm.kernels.state_space import StateSpace

from .folded import FoldedForm
from .form import Form, FormName
from .kalman import KalmanForm
from .prior_rows import PriorRows
from .visited import VisitedForm

FormChoice = Literal["auto", "folded", "visited", "kalman"]

_FEATURE_TOLERANCE = 1e-13
# Features times the size of the state, up to which they are preferred to visited arms.
_MOST_FEATURES = 512
# Noise below which each form loses digits, relative to the largest prior variance.
_LEAST_NOISE = 1e-13
_LEAST_NOISE_VISITED = 1e-4
# The same for "auto" to choose the visited form, which should have digits to spare.
_LEAST_NOISE_VISITED_AUTO = 1e-2
# Noise for the kalman form, in errors of a kernel value: ``streaming/finite_rank.py``.
_NOISE_PER_ERROR = 1e4
# Numbers that may be computed to find out whether the folded form is cheaper.
_MOST_COMPARED = 5e7


class FormFactory:
    """Creates the forms of one drifting posterior."""

    def __init__(
        self,
        choice: FormChoice,
        kernel: Covariance,
        arms: Floats,
        space: StateSpace,
        largest_variance: float,
    ) -> None:
        self.choice = choice
        self.prior_rows = PriorRows(kernel, arms)
        self._kernel = kernel
        self._arms = arms  # (n, d)
        self._space = space
        self._time_variance = float(space.output @ space.output)  # k_T(0)
        self.largest_variance = largest_variance
        """The largest prior variance of an arm."""
        self.features: Floats | None = None
        """Features of all arms, (n, r), for the kalman form, where they are few."""
        self.feature_error = 0.0
        """Bound on the error of a kernel value by its features."""
        if choice in ("auto", "kalman") and largest_variance != 0.0:
            self._find_features()
        if choice == "kalman" and self.features is None:
            raise InputError(
                "this kernel has no features on these arms: it is not smooth enough, or its "
                "lengthscale is too short for their spread; use form='auto'"
            )

    def _find_features(self) -> None:
        """Set the features, if there are few enough of them."""
        most = 2 * _MOST_FEATURES
        if self.choice == "auto":
            most = _MOST_FEATURES // len(self._space.output)
        arms = self._arms
        kernel = self._kernel
        if len(arms) <= most:
            prior_cov = np.asarray(kernel(arms))
            factor = psd_root(prior_cov, "the prior covariance of the arms")
            error = factor.error * self.largest_variance
            self.features = factor.root
            self.feature_error = error / self._time_variance
        elif isinstance(kernel, Kernel):
            lower = arms.min(axis=0)
            upper = arms.max(axis=0)
            largest_error = _FEATURE_TOLERANCE * self.largest_variance
            tolerance = largest_error / self._time_variance
            feature_map = kernel.features(lower, upper, tolerance, most)
            if feature_map is not None and feature_map.covers(arms):
                self.features = feature_map(arms)
                self.feature_error = feature_map.error

    def form_name(self, least_noise: float) -> FormName:
        """The cheapest form that has the digits for noise as small as this.

        Args:
            least_noise: The smallest noise variance.
        """
        self._check_noise(least_noise)
        if self.choice != "auto":
            return self.choice
        if self.features is not None:
            kernel_error = _NOISE_PER_ERROR * self.feature_error * self._time_variance
            if least_noise >= kernel_error:
                return "kalman"
        if least_noise >= _LEAST_NOISE_VISITED_AUTO * self.largest_variance:
            return "visited"
        return "folded"

    def _check_noise(self, least_noise: float) -> None:
        is_visited = self.choice == "visited"
        relative = _LEAST_NOISE_VISITED if is_visited else _LEAST_NOISE
        limit = relative * self.largest_variance
        if least_noise < limit:
            message = (
                f"a noise variance of {least_noise:.3g} is too small beside prior variances of "
                f"{self.largest_variance:.3g}: digits would be lost; use at least {limit:.3g}"
            )
            if is_visited:
                message += ", or form='auto'"
            raise InputError(message)

    def new_form(self, least_noise: float) -> Form:
        """A form that has learned nothing.

        Args:
            least_noise: The smallest noise variance of what it will learn.
        """
        name = self.form_name(least_noise)
        if name == "kalman" and self.features is not None:
            return KalmanForm(self._space, self.prior_rows, self.features)
        if name == "visited":
            return VisitedForm(self._space, self.prior_rows, len(self._arms))
        return self.folded_form()

    def folded_form(self) -> FoldedForm:
        """A folded form that has learned nothing."""
        n = len(self._arms)
        return FoldedForm(self._space, self.prior_rows, n, self.largest_variance)

    def cheaper_form(self, form: Form) -> Form:
        """The folded form, where a round of it costs less than one of the visited form.

        Args:
            form: The form in use, which is returned in all other cases.
        """
        if self.choice != "auto" or not isinstance(form, VisitedForm):
            return form
        rank = form.rank
        if rank < form.compare_at:
            return form
        form.compare_at = 3 * rank // 2
        n = len(self._arms)
        s = len(self._space.output)
        if rank * n * s > _MOST_COMPARED:
            return form
        folded = FoldedForm.from_basis(form, self.largest_variance)
        # A folded form grows to twice its rank before it is compacted: 1.5 on average.
        folded_cost = 1.5 * n * folded.rank * s * s
        visited_cost = (n + 3 * s * rank) * rank
        return folded if folded_cost <= visited_cost else form
