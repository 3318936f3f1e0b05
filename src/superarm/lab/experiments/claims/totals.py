"""The totals that a claim compares, one number per seed."""

from __future__ import annotations

import numpy as np

from superarm.core import Floats
from superarm.lab.results.averages import average
from superarm.lab.results.curves import Curve, growth_of, seconds_by_seed, spaced_rounds
from superarm.lab.results.formats import significant
from superarm.lab.results.totals import outcomes, per_round
from superarm.lab.results.verdicts import ROUNDING
from superarm.lab.simulation.run import Run

from .tables import SECONDS, Claim, metric_of


class Totals:
    """The totals that a claim is about, in the settings that are judged together.

    Args:
        run: the finished run.
        claim: what is judged.
        settings: indices of the settings, in the order of the claim's ``key``.
    """

    def __init__(self, run: Run, claim: Claim, settings: list[int]) -> None:
        self.run = run
        self.claim = claim
        self.settings = settings
        self.metric = metric_of(claim)

    def by_seed(self, policy: str, position: int = 0) -> Floats:
        """What the claim compares, (seeds,).

        Args:
            policy: whose totals.
            position: of the setting among those that are judged together.
        """
        quantity = self.claim.get("of")
        if quantity == "swing":
            return self._swing(policy, position)
        if quantity == "growth":
            return self._growth(policy, position)
        totals = self._plain(policy, position)
        if "relative_to" in self.claim:
            reference = self._plain(self.claim["relative_to"], position)
            # A ratio to zero is unknown: it decides nothing.
            divisor = np.where(reference == 0.0, np.nan, reference)
            totals = totals / divisor
        if quantity == "spread":
            median = np.median(totals)
            distances = np.abs(totals - median)
            totals = _beyond_rounding(distances, np.abs(median))
        return totals

    def by_setting(self, policy: str) -> Floats:
        """What the claim compares at every value of ``key``, (settings, seeds).

        Args:
            policy: whose totals.
        """
        positions = range(len(self.settings))
        totals = [self.by_seed(policy, position) for position in positions]
        return np.stack(totals)

    def _plain(self, policy: str, position: int) -> Floats:
        """The total, or mean per round, of the metric, (seeds,)."""
        index = self.settings[position]
        if "rounds" in self.claim:
            return self._in_rounds(policy, index)
        if self.metric == SECONDS:
            return self.run.seconds_of_seeds(policy, index)
        totals = outcomes(self.run, policy, index, self.metric)
        return totals.astype(np.float64)

    def _in_rounds(self, policy: str, index: int) -> Floats:
        """The total over the claim's rounds, or their mean where the metric is one, (seeds,)."""
        first, last = (int(number) for number in self.claim["rounds"])
        before = first - 1
        run = self.run
        if self.metric == SECONDS:
            seconds = run.seconds(policy, index)[:, before:last]
            means = seconds.astype(np.float64).mean(axis=1)
            return np.asarray(means)
        means = per_round(run, policy, index, self.metric, before, last)
        metric = run.metric(self.metric, index)
        if metric.kind == "per round":
            return means
        count = last - before
        return means * count

    def _swing(self, policy: str, position: int) -> Floats:
        """How far the running mean moves in the last half of the run, (seeds,)."""
        index = self.settings[position]
        sums = self.run.cumulative(policy, index, self.metric)
        rounds = sums.shape[1]
        running_means = sums / np.arange(1, rounds + 1)  # (seeds, T)
        middle = rounds // 2
        last_half = running_means[:, middle:]
        steps = np.abs(np.diff(last_half))
        swing: Floats = steps.sum(axis=1)
        sizes = np.abs(last_half).max(axis=1)
        return _beyond_rounding(swing, sizes)

    def _growth(self, policy: str, position: int) -> Floats:
        """The exponent of each seed, (seeds,); NaN where a total is not above zero."""
        index = self.settings[position]
        if self.metric == SECONDS:
            curves = seconds_by_seed(self.run, policy, index)
        else:
            rounds = spaced_rounds(self.run.rounds, log=True)
            sums = self.run.cumulative(policy, index, self.metric)
            spaced_sums = sums[:, rounds - 1]
            curves = [Curve(rounds, totals) for totals in spaced_sums]
        exponents = [growth_of(curve) for curve in curves]
        return np.array(exponents)

    # --- for reading -----------------------------------------------------------------------

    @property
    def label(self) -> str:
        """What is compared, in words."""
        label = self.run.metric(self.metric, self.settings[0]).text
        if self.metric == SECONDS:
            label = "time per round (s)"
        if "rounds" in self.claim:
            first, last = self.claim["rounds"]
            if first == last:
                label += f" in round {last}"
            else:
                label += f" in rounds {first} to {last}"
        if "relative_to" in self.claim:
            label += f" relative to that of {self.claim['relative_to']}"
        if "of" not in self.claim:
            return label
        if self.claim["of"] == "swing":
            label = label.replace("cumulative", "average")
        return f"{self.claim['of']} of {label}"

    def mean_text(self, policy: str, position: int = 0) -> str:
        """The mean over seeds with its standard error.

        Args:
            policy: whose total.
            position: of the setting among those that are judged together.
        """
        mean, stderr = average(self.by_seed(policy, position))
        text = significant(mean)
        if stderr:
            text += f" ± {significant(stderr, 2)}"
        return text

    def key_text(self, position: int) -> str:
        """The value of ``key``.

        Args:
            position: of the setting among those that are judged together.
        """
        index = self.settings[position]
        setting = self.run.settings[index]
        value = setting[self.claim["key"]]
        return value if isinstance(value, str) else f"{value:g}"


def _beyond_rounding(values: Floats, sizes: Floats) -> Floats:
    """Differences, (n,), but 0 where rounding of the compared numbers explains them.

    Args:
        values: the differences.
        sizes: of the numbers that they are differences of.
    """
    is_rounding = np.abs(values) <= ROUNDING * sizes
    return np.where(is_rounding, 0.0, values)
