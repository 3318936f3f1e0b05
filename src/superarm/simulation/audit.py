"""Whether a policy's forecasts were true, and what it believed at the end.

Recorded for problems with fixed arms whose rewards add up, apart from the policy's time. A
forecast is made when the arms are chosen and checked when their rewards are seen.

======================  =============================================================
``within``              share of the chosen arms whose reward lay inside their central
                        50, 90 and 95 % intervals, (T, 3)
``score``               (observed total − forecast) / its standard deviation, (T,)
``variance``            Σ of the chosen arms' latent variances, (T,)
``largest_eigenvalue``  of the chosen arms' latent covariance, (T,)
``information``         nats gained in the round, (T,)
``mean``, ``std``       of every arm after the last round, (n,)
======================  =============================================================
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superarm.capabilities import Forecaster
from superarm.core import Decision, Feedback, Floats, Forecast, Ints, Offer

LEVELS = (0.50, 0.90, 0.95)
QUANTILES = np.array([0.6744897501960817, 1.6448536269514722, 1.959963984540054])
"""Half-widths of the central intervals of ``LEVELS``, in standard deviations."""


_SERIES = ("score", "variance", "largest_eigenvalue", "information")


def audit_shapes(rounds: int) -> dict[str, tuple[int, ...]]:
    """What every audit holds of its rounds."""
    return {"within": (rounds, len(LEVELS)), **dict.fromkeys(_SERIES, (rounds,))}


class Audit:
    """Follows one policy through its rounds."""

    def __init__(self, policy: Forecaster, rounds: int) -> None:
        self._policy = policy
        self._within = np.full((rounds, len(LEVELS)), np.nan, dtype=np.float32)
        self._series = {name: np.full(rounds, np.nan) for name in _SERIES}
        self._known = policy.information_gain

    def forecast(self, offer: Offer, positions: Ints) -> Forecast:
        """What the policy expects of its choice before it sees the rewards."""
        return self._policy.forecast(offer, positions)

    def record(self, step: int, forecast: Forecast, decision: Decision, feedback: Feedback) -> None:
        """Take note of a round: what was learned in it, and how its forecast fared."""
        at = step - 1
        known = self._policy.information_gain
        self._series["information"][at] = known - self._known
        self._known = known
        rewards = feedback.rewards
        # A forecast is of all chosen arms, so that it is judged where all were seen.
        if len(rewards) == 0 or not np.array_equal(feedback.positions, decision.positions):
            return
        latent = np.diagonal(forecast.cov)
        std = np.sqrt(np.maximum(latent, 0.0) + forecast.noise_std**2)
        away = np.abs(rewards - forecast.mean) / std
        self._within[at] = (away[:, None] <= QUANTILES).mean(axis=0)
        mean, total_std = forecast.total()
        self._series["score"][at] = (rewards.sum() - mean) / total_std
        self._series["variance"][at] = latent.sum()
        self._series["largest_eigenvalue"][at] = np.linalg.eigvalsh(forecast.cov)[-1]

    def arrays(self, offer: Offer) -> dict[str, NDArray[np.float32]]:
        """Everything, with what is believed of the arms on offer now."""
        mean, std = self._policy.beliefs(offer)
        arrays: dict[str, Floats] = {**self._series, "mean": mean}
        if std is not None:
            arrays["std"] = std
        # Single precision: for figures and checks that allow for rounding.
        small = {name: values.astype(np.float32) for name, values in arrays.items()}
        return {"within": self._within, **small}
