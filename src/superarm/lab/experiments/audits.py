"""Lemma A.12, which holds for any choices, judged on the audit of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from superarm.lab.results.formats import bound_text, count_text, setting_prefix
from superarm.lab.results.settings import feedback_at_once, parameters_of
from superarm.lab.simulation.run import Run
from superarm.lab.theory import variance_sum_bound

from .claims import Verdict, Word

_SPARSE = ("variational", "variational-kept", "variational-fitted")
_ROUNDING = 1e-5  # records are in single precision, each sum good to about 1e-6
_LEMMA = (
    "Lemma A.12 of Bayesian Analysis of Combinatorial Gaussian Process Bandits (2025): the variances "
    "add up to at most 2(λ* + ς²) times the information gained"
)


def judge_variances(run: Run) -> list[Verdict]:
    """Lemma A.12 in every cell with an exact posterior that was audited, per setting.

    Σσ² ≤ 2(λ* + ς²)·I with λ* as met in the cell: it holds for any choices, so that a failure is
    a slip in the posterior or in its record. The lemma does not cover approximate posteriors, nor
    feedback that comes late.

    Args:
        run: a finished run.
    """
    noise_variance = run.spec.get("noise_variance")
    audited = run.spec.get("audited", [])
    if not audited or noise_variance is None:
        return []
    verdicts = []
    for index, setting in enumerate(run.settings):
        shares = _shares_of_cells(run, audited, index, noise_variance[index])
        if not shares:
            continue
        tightest = max(shares, key=lambda cell: shares[cell])
        largest_share = shares[tightest]
        evidence = (
            f"at most {bound_text(largest_share)} ({tightest}); "
            f"{count_text(len(shares), 'cell')}, T = {run.rounds}"
        )
        holds = largest_share <= 1.0 + _ROUNDING
        word: Word = "holds" if holds else "does not hold"
        # It is no claim of an experiment of one's own, unless it fails.
        if not holds or run.spec.get("paper"):
            verdicts.append(Verdict(_LEMMA, word, setting_prefix(setting) + evidence))
    return verdicts


def _shares_of_cells(
    run: Run, audited: Sequence[str], index: int, noise_variance: float
) -> dict[str, float]:
    """The share of the bound that each audited cell of a setting used, by its name."""
    if not feedback_at_once(run, index):
        return {}
    shares = {}
    for policy in audited:
        options = parameters_of(run, policy, index)
        if "wrapped" in options or options.get("posterior") in _SPARSE:
            continue
        for seed in run.seeds:
            audit = run.audit(policy, index, seed)
            if audit is not None and not np.isnan(audit["variance"]).all():
                shares[f"{policy}, seed {seed}"] = _share_used(audit, noise_variance)
    return shares


def _share_used(audit: Mapping[str, Any], noise_variance: float) -> float:
    """Σσ² of a cell over what Lemma A.12 allows."""
    gained = float(np.nansum(audit["information"], dtype=float))
    largest = float(np.nanmax(audit["largest_eigenvalue"]))
    allowed = variance_sum_bound(
        gained,
        largest_eigenvalue=max(largest, 0.0),
        noise_variance=noise_variance,
    )
    variances = np.nansum(audit["variance"], dtype=float)
    return float(variances / allowed)
