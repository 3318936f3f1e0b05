"""Which claims a run can judge, in which settings, and the verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from superarm.lab.results.formats import count_text, setting_prefix, setting_text
from superarm.lab.results.settings import matches, sweeps, synthetic_data
from superarm.lab.simulation.run import Run

from .checks import UNORDERED_CHECKS, check_claim
from .evidence import decide
from .tables import SECONDS, Claim, last_round_of, metric_of, policies_of
from .totals import Totals
from .verdict import Verdict


class SettingGroup(NamedTuple):
    """Settings that are judged together: one, or those that differ in ``key`` alone."""

    setting: Mapping[str, Any]
    """The parameters that they share."""
    indices: list[int]
    """Which settings of the run, in the order of ``key``."""


def judge(run: Run, claims: Sequence[Claim]) -> list[Verdict]:
    """Every claim that this run can judge, once per setting or panel of settings.

    Args:
        run: a finished run.
        claims: tables as in an experiment's TOML.
    """
    for claim in claims:
        check_claim(claim, run.experiment)
    return judge_checked(run, claims)


def judge_checked(run: Run, claims: Sequence[Claim]) -> list[Verdict]:
    """As :func:`judge`, for the claims of an experiment, which were checked when it was read.

    Args:
        run: a finished run.
        claims: tables that :func:`~superarm.lab.experiments.claims.check_claim` has passed.
    """
    verdicts = []
    for claim in claims:
        for group in _judged_groups(run, claim):
            word, numbers = decide(Totals(run, claim, group.indices))
            size = f" ({count_text(len(run.seeds), 'seed')}, T = {run.rounds})"
            evidence = setting_prefix(group.setting) + numbers + size
            if synthetic_data(run, group.indices[0]):
                evidence += ", on synthetic data"
            verdicts.append(Verdict(str(claim["text"]), word, evidence))
    return verdicts


def not_judged(run: Run, claims: Sequence[Claim]) -> list[dict[str, Any]]:
    """The other claims, each with what a run would need to judge it.

    Args:
        run: a finished run.
        claims: tables as in an experiment's TOML.
    """
    entries = []
    for claim in claims:
        if any(_judged_groups(run, claim)):
            continue
        entry = {"text": str(claim["text"]), "needs": _needs(run, claim)}
        entries.append(entry)
    return entries


def _judged_groups(run: Run, claim: Claim) -> Iterator[SettingGroup]:
    """The settings that a claim is about, where the run has what it takes to judge it."""
    named = set(policies_of(claim))
    if not named <= set(run.policies) or run.rounds < last_round_of(claim):
        return
    where = claim.get("where", {})
    for group in _setting_groups(run, claim):
        if matches(run, group.setting, where) and _is_measured(run, claim, group):
            yield group


def _setting_groups(run: Run, claim: Claim) -> list[SettingGroup]:
    if "key" in claim:
        return _swept_groups(run, claim)
    return [
        SettingGroup(setting, [index]) for index, setting in enumerate(run.settings)
    ]


def _swept_groups(run: Run, claim: Claim) -> list[SettingGroup]:
    """Settings that differ in ``key`` alone, where the run has all values that the claim names."""
    groups = []
    for panel in sweeps(run, claim["key"]):
        has_texts = any(isinstance(value, str) for value in panel.values)
        if has_texts and claim["check"] not in UNORDERED_CHECKS:
            continue
        named = claim.get("among", panel.values)
        if not set(named) <= set(panel.values):
            continue
        indices = []
        for value, index in zip(panel.values, panel.settings, strict=True):
            if value in named:
                indices.append(index)
        groups.append(SettingGroup(panel.fixed, indices))
    return groups


def _is_measured(run: Run, claim: Claim, group: SettingGroup) -> bool:
    """Whether every setting of a group has the claim's metric."""
    metric = metric_of(claim)
    indices = group.indices
    if metric == SECONDS:
        return all(run.is_timed(index) for index in indices)
    return all(metric in run.metrics_at(index) for index in indices)


def _needs(run: Run, claim: Claim) -> list[str]:
    """What a run would need to judge a claim."""
    policies = dict.fromkeys(policies_of(claim))
    missing_policies = [name for name in policies if name not in run.policies]
    if missing_policies:
        return missing_policies
    if "key" in claim and not _swept_groups(run, claim):
        return [_sweep_text(claim)]
    where = claim.get("where", {})
    if not any(matches(run, setting, where) for setting in run.settings):
        return [f"a setting with {setting_text(_choices(where))}"]
    if run.rounds < last_round_of(claim):
        return [f"{last_round_of(claim):,} rounds"]
    return [f"the metric {metric_of(claim)}"]


def _sweep_text(claim: Claim) -> str:
    text = f"a sweep over {claim['key']}"
    if "among" in claim:
        text += f" of {', '.join(map(str, claim['among']))}"
    return text


def _choices(where: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters for reading: lists of values as "this or that"."""
    choices = {}
    for key, value in where.items():
        if isinstance(value, list):
            choices[key] = " or ".join(map(str, value))
        else:
            choices[key] = value
    return choices
