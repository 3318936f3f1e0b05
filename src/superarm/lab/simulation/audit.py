"""Whether a policy's forecasts were true, and what it believed at the end.

Recorded for problems with fixed arms whose rewards add up; the time of recording does not
count as the policy's. A forecast is made when the arms are chosen, and checked when their
rewards are seen.

======================  =============================================================
``within``              share of the chosen arms whose reward lay inside their central
                        intervals of ``LEVELS``, (T, levels)
``first``               the same share of the arms that were chosen for the first time, (T, levels);
                        ``firsts`` is how many they were, (T,)
``true_within``         share of the chosen arms whose expected reward, the truth, lay inside the
                        intervals of the latent mean, (T, levels): noise plays no part in it
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

_SHARES = ("within", "first", "true_within")  # (T, levels)
_NUMBERS = (  # (T,)
    "firsts",
    "score",
    "true_score",
    "variance",
    "largest_eigenvalue",
    "information",
)


def audit_shapes(rounds: int) -> dict[str, tuple[int, ...]]:
    """Shapes of the arrays that every audit has of its rounds, by name.

    Args:
        rounds: The number of rounds.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for name in _SHARES:
        shapes[name] = (rounds, len(LEVELS))
    for name in _NUMBERS:
        shapes[name] = (rounds,)
    return shapes


class Audit:
    """A record of one policy's forecasts, round by round.

    Args:
        policy: The policy.
        rounds: The number of rounds.
        first: The number of the first round.
    """

    def __init__(self, policy: Forecaster, rounds: int, first: int = 1) -> None:
        self.policy = policy
        self._first = first
        self._series: dict[str, Floats] = {}
        for name, shape in audit_shapes(rounds).items():
            self._series[name] = np.full(shape, np.nan)
        self._chosen: set[int] = set()
        self._information = policy.information_gain

    def resume(self, earlier: Mapping[str, NDArray[Any]], chosen: set[int]) -> None:
        """Restore what an earlier run recorded of the first rounds.

        Args:
            earlier: Its arrays.
            chosen: The arms that were chosen in it.
        """
        for name, values in self._series.items():
            first_values = earlier[name]
            values[: len(first_values)] = first_values
        self._chosen.update(chosen)

    def record(
        self,
        forecast: Forecast,
        decision: Decision,
        feedback: Feedback,
        truth: Floats | None,
    ) -> None:
        """Record a round: the information gained in it, and how its forecast fared.

        Args:
            forecast: The policy's forecast of the chosen arms.
            decision: The round's decision.
            feedback: The world's feedback.
            truth: Expected rewards of all arms, (n,), where they are known.
        """
        index = decision.step - self._first
        chosen = decision.positions.tolist()
        is_new = [arm not in self._chosen for arm in chosen]
        first_time = np.array(is_new, dtype=bool)
        self._chosen.update(chosen)
        information = self.policy.information_gain
        self._series["information"][index] = information - self._information
        self._information = information
        # A forecast is of all chosen arms, so it is judged only where all were seen.
        complete = np.array_equal(feedback.positions, decision.positions)
        if len(feedback.rewards) == 0 or not complete:
            return
        self._series["firsts"][index] = first_time.sum()
        self._record_rewards(index, forecast, feedback, first_time)
        latent = np.maximum(np.diagonal(forecast.cov), 0.0)  # variances, (k,)
        if truth is not None:
            errors = truth[decision.positions] - forecast.mean
            self._record_truth(index, forecast, errors, latent)
        self._series["variance"][index] = latent.sum()
        eigenvalues = np.linalg.eigvalsh(forecast.cov)  # ascending
        self._series["largest_eigenvalue"][index] = eigenvalues[-1]

    def _record_rewards(
        self,
        index: int,
        forecast: Forecast,
        feedback: Feedback,
        first_time: NDArray[np.bool_],
    ) -> None:
        rewards = feedback.rewards
        if feedback.sums is None:
            errors = np.abs(rewards - forecast.mean)
            stds = forecast.stds()
            limits = forecast.widths * stds[:, None]  # (k, levels)
            inside = errors[:, None] <= limits
            self._series["within"][index] = inside.mean(axis=0)
            if first_time.any():
                inside_first = inside[first_time]
                self._series["first"][index] = inside_first.mean(axis=0)
        mean, std = forecast.total()
        score = (rewards.sum() - mean) / std
        self._series["score"][index] = _normal_score(score, forecast.total_widths)

    def _record_truth(
        self, index: int, forecast: Forecast, errors: Floats, latent: Floats
    ) -> None:
        stds = np.sqrt(latent)
        limits = QUANTILES * stds[:, None]  # (k, levels)
        sizes = np.abs(errors)
        inside = sizes[:, None] <= limits
        self._series["true_within"][index] = inside.mean(axis=0)
        variance = float(forecast.cov.sum())
        std = np.sqrt(max(variance, 0.0))
        total = float(errors.sum())
        if std:
            score = total / std
        elif total:
            score = np.inf * total
        else:
            score = 0.0
        self._series["true_score"][index] = score

    def arrays(self, offer: Offer) -> dict[str, NDArray[np.float32]]:
        """All arrays, with the policy's beliefs after the last round.

        Args:
            offer: Arms that the beliefs are about.
        """
        mean, std = self.policy.beliefs(offer)
        series = {**self._series, "mean": mean}
        if std is not None:
            series["std"] = std
        # Single precision: for figures and checks that allow for rounding.
        arrays = {}
        for name, values in series.items():
            arrays[name] = values.astype(np.float32)
        return arrays


def _normal_score(score: float, widths: Floats) -> float:
    """Translate a score to that of a normal whose intervals hold it just as well.

    ``widths`` are half the lengths of the policy's intervals, in standard deviations.
    """
    if widths is QUANTILES:
        return score
    policy_widths = np.concatenate([[0.0], widths])
    normal_widths = np.concatenate([[0.0], QUANTILES])
    sign = np.sign(score)
    size = abs(score)
    widest = policy_widths[-1]
    if size > widest > 0.0:
        return float(sign * size * normal_widths[-1] / widest)
    normal_size = np.interp(size, policy_widths, normal_widths)
    return float(sign * normal_size)
