"""What was estimated of a challenger against what it earns, over 50 seeds.

Simulated by ``bench.shadow``; docs/architecture.md has the numbers of longer simulations.
"""

from __future__ import annotations

import numpy as np
import pytest
from bench import shadow
from scipy.stats import binom

SEEDS = 50


def test_the_limit_of_failures_is_a_binomial_quantile() -> None:
    """If each of 50 intervals misses with probability 5 %, more than 8 do so in 1 of 1,000 cases."""
    limit = shadow.most_failures(SEEDS)
    assert binom.sf(limit, SEEDS, 0.05) <= 1e-3 < binom.sf(limit - 1, SEEDS, 0.05)


@pytest.mark.slow
def test_intervals_cover_what_a_challenger_earns() -> None:
    size = shadow.Size(before=50, compared=150, after=50)
    results = shadow.play(range(SEEDS), size)
    limit = shadow.most_failures(SEEDS)
    for name in ("inverse_propensity", "doubly_robust"):
        estimates = [result.estimates[name] for result in results]
        assert all(estimate.interval == "anytime" for estimate in estimates)
        misses = sum(not result.covers(name, result.deserved) for result in results)
        assert misses <= limit, name
        # The theory is about other offers than those after the switch. Their mean has a standard
        # deviation of about 0.3/√50 a seed, well below half of an interval.
        misses = sum(not result.covers(name, result.earned) for result in results)
        assert misses <= limit, name
        # Both are unbiased: the mean error of 50 seeds is within 4 of its standard errors.
        errors = [result.estimates[name].value - result.deserved for result in results]
        standard_error = np.std(errors, ddof=1) / np.sqrt(SEEDS)
        assert abs(np.mean(errors)) < 4.0 * standard_error, name
    # The challenger is better than the policy that explores, and the estimates show it.
    gains = [
        result.estimates["doubly_robust"].value - result.current for result in results
    ]
    assert np.mean(gains) > 0.0
