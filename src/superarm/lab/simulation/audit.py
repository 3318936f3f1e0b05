"""Whether a policy's forecasts were true, and what it believed at the end.

Recorded for problems with fixed arms whose rewards add up, apart from the policy's time. A
forecast is made when the arms are chosen and checked when their rewards are seen.

======================  =============================================================
``within``              share of the chosen arms whose reward lay inside their central
                        50, 90 and 95 % intervals, (T, 3)
``first``               the same share of the arms that were chosen for the first time, (T, 3);
                        ``firsts`` is how many they were, (T,)
``true_within``         share of the chosen arms whose expected reward, the truth, lay inside the
                        intervals of the latent mean, (T, 3): noise plays no part in it
``score``               (observed total − forecast) / its standard deviation, (T,); where a policy
                        states intervals of its own, as far out as a normal's that just hold it
``true_score``          (expected total − forecast) / the latent standard deviation, (T,)
``variance``            Σ of the chosen arms' latent variances, (T,)
``largest_eigenvalue``  of the chosen arms' latent covariance, (T,)
``information``         nats gained in the round, (T,)
``mean``, ``std``       of every arm after the last round, (n,)
======================  =============================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superarm.core import LEVELS, QUANTILES, Decision, Feedback, Floats, Forecast, Offer
from superarm.core.capabilities import Forecaster

_SHARES = ("within", "first", "true_within")
_SERIES = (
    "firsts",
    "score",
    "true_score",
    "variance",
    "largest_eigenvalue",
    "information",
)


def audit_shapes(rounds: int) -> dict[str, tuple[int, ...]]:
    """What every audit holds of its rounds."""
    shares = dict.fromkeys(_SHARES, (rounds, len(LEVELS)))
    return {**shares, **dict.fromkeys(_SERIES, (rounds,))}


class Audit:
    """Follows one policy through its rounds."""

    def __init__(self, policy: Forecaster, rounds: int, first: int = 1) -> None:
        self.policy, self._first = policy, first
        self._series = {
            name: np.full(shape, np.nan) for name, shape in audit_shapes(rounds).items()
        }
        self._chosen: set[int] = set()
        self._known = policy.information_gain

    def go_on(self, earlier: Mapping[str, NDArray[Any]], chosen: set[int]) -> None:
        """What was recorded in the first rounds, and the arms that were chosen in them."""
        for name, values in self._series.items():
            values[: len(earlier[name])] = earlier[name]
        self._chosen.update(chosen)

    def record(
        self,
        forecast: Forecast,
        decision: Decision,
        feedback: Feedback,
        truth: Floats | None,
    ) -> None:
        """Take note of a round: what was learned in it, and how its forecast fared."""
        at = decision.step - self._first
        chosen = decision.positions.tolist()
        fresh = np.array([arm not in self._chosen for arm in chosen], dtype=bool)
        self._chosen.update(chosen)
        known = self.policy.information_gain
        self._series["information"][at] = known - self._known
        self._known = known
        rewards = feedback.rewards
        # A forecast is of all chosen arms, so that it is judged where all were seen.
        if len(rewards) == 0 or not np.array_equal(
            feedback.positions, decision.positions
        ):
            return
        series, latent = self._series, np.maximum(np.diagonal(forecast.cov), 0.0)
        series["firsts"][at] = fresh.sum()
        if feedback.sums is None:
            std = forecast.stds()
            inside = (
                np.abs(rewards - forecast.mean)[:, None]
                <= forecast.widths * std[:, None]
            )
            series["within"][at] = inside.mean(axis=0)
            if fresh.any():
                series["first"][at] = inside[fresh].mean(axis=0)
        mean, total_std = forecast.total()
        series["score"][at] = _judged(
            (rewards.sum() - mean) / total_std, forecast.total_widths
        )
        if truth is not None:
            away = truth[decision.positions] - forecast.mean
            limits = QUANTILES * np.sqrt(latent)[:, None]
            series["true_within"][at] = (np.abs(away)[:, None] <= limits).mean(axis=0)
            spread = np.sqrt(max(float(forecast.cov.sum()), 0.0))
            total = float(away.sum())
            series["true_score"][at] = (
                total / spread if spread else np.inf * total if total else 0.0
            )
        series["variance"][at] = latent.sum()
        self._series["largest_eigenvalue"][at] = np.linalg.eigvalsh(forecast.cov)[-1]

    def arrays(self, offer: Offer) -> dict[str, NDArray[np.float32]]:
        """Everything, with what is believed of the arms on offer now."""
        mean, std = self.policy.beliefs(offer)
        arrays: dict[str, Floats] = {**self._series, "mean": mean}
        if std is not None:
            arrays["std"] = std
        # Single precision: for figures and checks that allow for rounding.
        return {name: values.astype(np.float32) for name, values in arrays.items()}


def _judged(score: float, widths: Floats) -> float:
    """A score where intervals are as wide as these, as that of a normal's intervals."""
    if widths is QUANTILES:
        return score
    known, meant = np.concatenate([[0.0], widths]), np.concatenate([[0.0], QUANTILES])
    size = abs(score)
    if size > known[-1] > 0.0:
        return float(np.sign(score) * size * meant[-1] / known[-1])
    return float(np.sign(score) * np.interp(size, known, meant))
