"""The verdict on a claim in one place, with the numbers that it rests on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from superarm.lab.results.formats import plus_minus, significant
from superarm.lab.results.settings import sharing_of
from superarm.lab.results.verdicts import (
    LEAST_SEEDS,
    Lead,
    Sharing,
    needed_errors,
    unlike_share,
)

from .checks import CHECKS
from .gaps import gaps_text
from .margins import policy_pairs
from .sweeps import crossing_text, largest_over_least
from .tables import compared_policies
from .totals import Totals
from .verdict import Word


class Decision(NamedTuple):
    """A verdict and what it rests on."""

    word: Word
    evidence: str


def decide(totals: Totals) -> Decision:
    """Judge a claim by its weakest margin.

    Args:
        totals: of the claim, in the settings that are judged together.
    """
    evidence = "; ".join(_totals_texts(totals))
    seeds = len(totals.run.seeds)
    if seeds < LEAST_SEEDS:
        return Decision("undecided", f"{evidence}; needs at least {LEAST_SEEDS} seeds")
    check = CHECKS[totals.claim["check"]]
    margins = list(check.margins(totals))
    sharing = sharing_of(totals.run, totals.settings)
    if sharing.independent < LEAST_SEEDS:
        few = (
            f"needs at least {LEAST_SEEDS} independent seeds; these {seeds} are worth "
            f"{sharing.independent:.1f}"
        )
        return Decision("undecided", f"{evidence}; {few}")
    strengths = [margin.strength(sharing, len(margins)) for margin in margins]
    strength = min(strengths)
    weakest = margins[strengths.index(strength)]
    lead = weakest.lead(sharing)
    limit = needed_errors(lead.seeds, lead.comparisons(len(margins)))
    mean = weakest.sign * lead.mean + 0.0  # adding 0 turns −0 into 0
    evidence += f"; {weakest.label} seed by seed {plus_minus(mean, lead.stderr)}"
    evidence += f" ({_errors_text(lead, sharing)}; {limit:.3g} needed)"
    if strength > 1.0:
        return Decision("holds", evidence)
    if strength < -1.0:
        return Decision("does not hold", evidence)
    return Decision("undecided", evidence + _doubt_text(lead, limit))


def _errors_text(lead: Lead, sharing: Sharing) -> str:
    """How far a lead is from zero, in standard errors."""
    if lead.tied or np.isinf(lead.t):
        return "the same in every seed"
    errors = significant(abs(lead.t), 2)
    unit = "standard error" if errors == "1" else "standard errors"
    text = f"{errors} {unit}"
    corrected = significant(abs(lead.corrected), 2)
    if corrected != errors:
        text += f", {corrected} corrected for skewness"
    if sharing.share:
        percent = f"{100 * sharing.share:.0f} %"
        text += f", corrected for the {percent} of data that seeds share"
    return text


def _doubt_text(lead: Lead, limit: float) -> str:
    """Why a lead that is beyond chance decides nothing; empty for one that is not."""
    if not abs(lead.t) > limit:
        return ""
    if abs(lead.corrected) <= limit:
        return f"; undecided: the {lead.seeds} seeds are skewed, and may miss rare bad ones"
    unlike_percent = 100 * unlike_share(lead.seeds)
    lead_percent = 100 * abs(lead.mean) / lead.scale
    return (
        f"; undecided: up to {unlike_percent:.0f} % of all seeds may be unlike these "
        f"{lead.seeds}, and could outweigh a lead of {lead_percent:.2g} %; run "
        f"at least {lead.seeds_needed:,} seeds"
    )


def _totals_texts(totals: Totals) -> Iterator[str]:
    """Every total that the claim is about, and what else its check rests on."""
    policies = list(dict.fromkeys(compared_policies(totals.claim)))
    if "key" in totals.claim:
        for policy in policies:
            yield _sweep_text(totals, policy)
    else:
        policies.sort(key=lambda policy: float(totals.by_seed(policy).mean()))
        means = [f"{policy} {totals.mean_text(policy)}" for policy in policies]
        yield f"{totals.label}: " + ", ".join(means)
    check = totals.claim["check"]
    if check == "steadier":
        yield _ratios_text(totals, policies)
    if check == "widens":
        for policy, rival in policy_pairs(totals):
            yield gaps_text(totals, policy, rival)
    if check == "crosses":
        for policy, rival in policy_pairs(totals):
            yield crossing_text(totals, policy, rival)


def _sweep_text(totals: Totals, policy: str) -> str:
    """The total of a policy at every value of ``key``."""
    parts = []
    for position in range(len(totals.settings)):
        mean = totals.mean_text(policy, position)
        parts.append(f"{totals.key_text(position)}: {mean}")
    values = ", ".join(parts)
    return f"{totals.label} of {policy} at {totals.claim['key']} = {values}"


def _ratios_text(totals: Totals, policies: list[str]) -> str:
    parts = []
    for policy in policies:
        ratio = significant(largest_over_least(totals, policy))
        parts.append(f"{policy} {ratio}")
    return f"ratio of the largest to the smallest: {', '.join(parts)}"
