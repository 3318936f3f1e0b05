"""What was estimated of a challenger against what it earns, over 50 seeds.

Simulated by ``bench.shadow``; docs/architecture.md has the numbers of a longer run, which is stored.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bench import shadow
from scipy.stats import binom

from superarm.live import Estimate

ROOT = Path(__file__).parents[2]
SEEDS = 50


def stored_results() -> list[shadow.Result]:
    path = ROOT / "bench" / "results" / "shadow.json"
    return shadow.from_json(path.read_text(encoding="utf-8"))


def test_the_page_has_the_stored_numbers() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    results = stored_results()
    assert [result.seed for result in results] == list(range(SEEDS))
    text = "\n".join(shadow.lines(results))
    sentences, table = text.split("\n\n")
    assert table in page
    prose = " ".join(page.split())
    for sentence in sentences.splitlines():
        assert sentence in prose


def test_the_stored_intervals_miss_no_more_often_than_chance() -> None:
    results = stored_results()
    for name in ("inverse_propensity", "doubly_robust"):
        misses = sum(not result.covers(name, result.deserved) for result in results)
        assert misses <= shadow.most_failures(SEEDS), name


def result_of(seed: int, value: float) -> shadow.Result:
    """A seed whose challenger deserved and earned 1, with intervals of ±0.5."""
    estimate = Estimate(
        value=value,
        lower=value - 0.5,
        upper=value + 0.5,
        level=0.95,
        interval="anytime",
    )
    estimates = dict.fromkeys(shadow.ESTIMATES, estimate)
    return shadow.Result(
        seed=seed, current=0.8, deserved=1.0, earned=1.0, estimates=estimates
    )


def test_results_are_read_back_and_summed_up() -> None:
    """Errors 0.3 and −0.7: mean −0.2, root mean square √0.29; the second interval misses."""
    results = [result_of(0, 1.3), result_of(1, 0.3)]
    assert shadow.from_json(shadow.as_json(results)) == results
    row = list(shadow.lines(results))[-1]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1:] == ["anytime", "−0.200", "0.539", "1.000", "1 of 2", "1 of 2"]
    ratio = shadow.width_ratio(results, "doubly_robust")
    assert ratio == pytest.approx(1.0 / (2.0 * 1.96 * 0.29**0.5))


def test_the_limit_of_failures_is_a_binomial_quantile() -> None:
    """If each of 50 intervals misses with probability 5 %, more than 8 do so in 1 of 1,000 cases."""
    limit = shadow.most_failures(SEEDS)
    assert binom.sf(limit, SEEDS, 0.05) <= 1e-3 < binom.sf(limit - 1, SEEDS, 0.05)


@pytest.mark.slow
@pytest.mark.full
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
