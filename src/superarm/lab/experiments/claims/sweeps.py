"""Checks over the values of a swept parameter: ``rises``, ``flat``, ``crosses`` and the like."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from superarm.core import Floats
from superarm.lab.results.averages import noise_limit
from superarm.lab.results.formats import count_text, significant
from superarm.lab.results.settings import sharing_of
from superarm.lab.results.verdicts import lead_of

from .margins import (
    ABOVE,
    BELOW,
    Margin,
    larger_of,
    larger_size,
    margin_against,
    margins_of_tolerance,
    policy_pairs,
)
from .tables import names_in
from .totals import Totals


def compare_steps(totals: Totals, sign: float) -> Iterator[Margin]:
    """The change of a total from each value of ``key`` to the next.

    Args:
        totals: of the claim, in the settings that are judged together.
        sign: of the change that the claim states.
    """
    for policy in names_in(totals.claim["policy"]):
        for position in range(len(totals.settings) - 1):
            next_position = position + 1
            before = totals.by_seed(policy, position)
            after = totals.by_seed(policy, next_position)
            change = after - before
            scale = larger_size(before, after)
            first_key = totals.key_text(position)
            next_key = totals.key_text(next_position)
            label = f"change of {policy} from {first_key} to {next_key}"
            yield Margin(label, change, scale, sign)


def compare_trend(totals: Totals, sign: float) -> Iterator[Margin]:
    """The change of a total over all values of ``key``, by least squares over their ranks.

    Args:
        totals: of the claim, in the settings that are judged together.
        sign: of the change that the claim states.
    """
    for policy in names_in(totals.claim["policy"]):
        values = totals.by_setting(policy)  # (settings, seeds)
        count = len(values)
        last_rank = count - 1
        ranks = np.arange(count) - last_rank / 2.0
        # From the first value: rounding would make a change of totals that are all the same.
        from_first = values - values[0]
        slopes = ranks @ from_first  # times the sum of squares, (seeds,)
        squares = ranks @ ranks
        change = last_rank * slopes / squares
        means = values.mean(axis=1)
        scale = float(np.abs(means).max())
        label = f"trend of {policy} over all values"
        yield Margin(label, change, scale, sign)


def compare_with_mean(totals: Totals) -> Iterator[Margin]:
    """The total at each value of ``key`` within ``tolerance`` of the mean over them.

    Args:
        totals: of the claim, in the settings that are judged together.
    """
    for policy in names_in(totals.claim["policy"]):
        by_setting = totals.by_setting(policy)  # (settings, seeds)
        level: Floats = by_setting.mean(axis=0)
        for position, values in enumerate(by_setting):
            label = f"{policy} at {totals.key_text(position)} − the mean"
            difference = values - level
            yield from margins_of_tolerance(
                totals, label, difference, "the mean", level
            )


def compare_settings(totals: Totals) -> Iterator[Margin]:
    """The totals at any two values of ``key``, compared as ``similar`` compares two policies.

    Args:
        totals: of the claim, in the settings that are judged together.
    """
    positions = range(len(totals.settings))
    for policy in names_in(totals.claim["policy"]):
        for first, second in combinations(positions, 2):
            values = totals.by_seed(policy, first)
            other_values = totals.by_seed(policy, second)
            level = larger_of(values, other_values)
            difference = values - other_values
            first_key = totals.key_text(first)
            second_key = totals.key_text(second)
            label = f"{policy} at {first_key} − at {second_key}"
            yield from margins_of_tolerance(
                totals, label, difference, "the larger", level
            )


# --- steadier ------------------------------------------------------------------------------


def compare_steadiness(totals: Totals) -> Iterator[Margin]:
    """ln(largest/least) of each rival less that of the policy.

    Args:
        totals: of the claim, in the settings that are judged together.
    """
    for policy, rival in policy_pairs(totals):
        values = _log_ratio_pseudo_values(totals, policy)
        rival_values = _log_ratio_pseudo_values(totals, rival)
        label = f"ln(largest/least) of {rival} − of {policy}"
        scale = larger_size(values, rival_values)
        yield Margin(label, rival_values - values, scale)


def largest_over_least(totals: Totals, policy: str) -> float:
    """The ratio of the largest mean over seeds to the least, over all values of ``key``.

    Args:
        totals: of the claim, in the settings that are judged together.
        policy: whose totals.
    """
    means = []
    for position in range(len(totals.settings)):
        values = totals.by_seed(policy, position)
        means.append(float(values.mean()))
    least = min(means)
    if not least > 0.0:
        return float("nan")
    return max(means) / least


def _log_ratio_pseudo_values(totals: Totals, policy: str) -> Floats:
    """Jackknife pseudo-values of ln(largest/least), (seeds,); NaN where a mean is not above zero.

    n θ − (n − 1) θ₋ᵢ with θ₋ᵢ computed without seed i: their mean estimates θ, and their standard error
    its uncertainty, although θ compares means over seeds and has no value in a single seed.
    The jackknife needs one value of ``key`` to stand out as the largest and one as the least. Where all
    means are equal, θ is noise alone, and of two such policies one is called steadier in up to a tenth
    of all runs of 30 seeds, not in 1 %.
    """
    values = totals.by_setting(policy)  # (settings, seeds)
    seeds = values.shape[1]
    sums = values.sum(axis=1, keepdims=True)  # (settings, 1)
    means_of_others = (sums - values) / (seeds - 1)  # (settings, seeds)
    least_sum = sums.min()
    if min(means_of_others.min(), least_sum) <= 0.0:
        return np.full(seeds, np.nan)
    ratio = sums.max() / least_sum
    theta = float(np.log(ratio))
    largest_of_others = means_of_others.max(axis=0)
    least_of_others = means_of_others.min(axis=0)
    ratio_of_others = largest_of_others / least_of_others
    theta_of_others = np.log(ratio_of_others)  # (seeds,)
    pseudo_values = seeds * theta - (seeds - 1) * theta_of_others
    return np.asarray(pseudo_values)


# --- crosses -------------------------------------------------------------------------------


def compare_ends(totals: Totals) -> Iterator[Margin]:
    """Below the rival at the first value of ``key``, above it at the last.

    Args:
        totals: of the claim, in the settings that are judged together.
    """
    last = len(totals.settings) - 1
    ends = ((0, BELOW), (last, ABOVE))
    for policy, rival in policy_pairs(totals):
        for position, sign in ends:
            margin = margin_against(totals, policy, rival, 1.0, sign, position)
            label = f"{margin.label} at {totals.key_text(position)}"
            yield margin._replace(label=label)


def crossing_text(totals: Totals, policy: str, rival: str) -> str:
    """Where the totals of a seed cross, by lines between values of ``key``, with an interval.

    Lines are drawn over the logarithm of ``key`` where all values are above zero.

    Args:
        totals: of the claim, in the settings that are judged together.
        policy: the one that the claim is about.
        rival: the one that it is compared with.
    """
    key = totals.claim["key"]
    settings = [totals.run.settings[index] for index in totals.settings]
    keys = np.array([float(setting[key]) for setting in settings])
    use_logarithm = keys.min() > 0.0
    scale = np.log(keys) if use_logarithm else keys
    policy_totals = totals.by_setting(policy)
    rival_totals = totals.by_setting(rival)
    leads = policy_totals - rival_totals  # (settings, seeds)
    crossings = _crossings(leads, scale)
    seeds = leads.shape[1]
    seeds_text = f"{len(crossings)} of {count_text(seeds, 'seed')}"
    text = f"{policy} and {rival} cross once in {seeds_text}"
    if len(crossings) < 2:
        return text
    sharing = sharing_of(totals.run, totals.settings)
    lead = lead_of(np.array(crossings), sharing=sharing)
    reach = lead.stderr * noise_limit(len(crossings))
    interval = np.array([lead.mean, lead.mean - reach, lead.mean + reach])
    if use_logarithm:
        interval = np.exp(interval)
    middle, low, high = map(significant, interval)
    return f"{text}, at {key} = {middle} (95 % interval {low} to {high})"


def _crossings(leads: Floats, scale: Floats) -> list[float]:
    """Where each seed that changes its sign once, from below zero, does so.

    Args:
        leads: (settings, seeds).
        scale: the value of ``key`` in each setting, or its logarithm, (settings,).
    """
    crossings = []
    for lead in leads.T:
        is_below = lead < 0.0
        is_above = lead >= 0.0
        changes = np.flatnonzero(is_below[:-1] & is_above[1:])
        if len(changes) != 1:
            continue
        before = changes[0]
        after = before + 1
        if is_below.sum() != after:
            continue  # it starts above zero, and crosses downwards first
        rise = lead[before] - lead[after]
        share = lead[before] / rise
        step = scale[after] - scale[before]
        crossings.append(scale[before] + share * step)
    return crossings
