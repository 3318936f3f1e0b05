"""What a paper says, as data, and whether a run bears it out.

A claim is a table in an experiment's TOML: its ``text``, the ``check`` by name, and the
check's parameters. A check compares means over seeds and says so in its evidence. A claim
about policies or settings that were not run is not judged.

Whether a claim holds is decided by the means alone. Policies share their seeds, so the evidence
adds the difference seed by seed with its standard error, and says "within noise" where the means
are less than two standard errors from the limit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.errors import SpecError
from superarm.results.curves import (
    counted,
    made_data,
    paired_difference,
    plus_minus,
    significant,
    within_noise,
)
from superarm.simulation.trace import Run
from superarm.theory import variance_sum_bound

NOISE = ", within noise"
TIE = ", a tie"


class Verdict(NamedTuple):
    """One claim after a run."""

    text: str
    holds: bool
    evidence: str

    def as_json(self) -> dict[str, Any]:
        return {"text": self.text, "holds": self.holds, "evidence": self.evidence}


class Outcome(NamedTuple):
    """A policy's total of one metric."""

    mean: float
    stderr: float | None
    per_seed: np.ndarray[Any, np.dtype[np.float64]]


def outcome_of(run: Run, policy: str, setting_index: int, metric: str) -> Outcome:
    """Totals at the last round over seeds; ``metric`` is a series name such as ``regret``."""
    totals = run.cumulative(policy, setting_index, metric)[:, -1].astype(np.float64)
    count = len(totals)
    stderr = float(totals.std(ddof=1) / np.sqrt(count)) if count > 1 else None
    return Outcome(float(totals.mean()), stderr, totals)


def judge(run: Run, claims: Sequence[Mapping[str, Any]]) -> list[Verdict]:
    """Every claim that this run can speak to, once per setting."""
    verdicts = []
    for claim in claims:
        check_claim(claim, run.experiment)
        metric = claim.get("metric", "regret")
        for index, setting in enumerate(run.settings):
            if not set(policies_of(claim)) <= set(run.policies):
                continue
            if metric not in run.metrics:
                judged: Judged = (False, f"the run has no {metric!r}; it has {list(run.metrics)}")
            else:
                judged = _CHECKS[claim["check"]](run, index, claim)
            if judged is None:
                continue
            holds, evidence = judged
            suffix = f" ({counted(len(run.seeds), 'seed')}, T = {run.rounds})"
            suffix += ", on synthetic data" if made_data(run, index) else ""
            verdicts.append(
                Verdict(str(claim["text"]), bool(holds), _where(setting) + evidence + suffix)
            )
    return verdicts


def _where(setting: Mapping[str, Any]) -> str:
    told = ", ".join(f"{key} = {value}" for key, value in setting.items())
    return f"[{told}] " if told else ""


def judge_variances(run: Run) -> list[Verdict]:
    """Lemma A.12 of paper 000 in every cell with an exact posterior that was audited, per setting.

    Σσ² ≤ 2(λ* + ς²)·I with λ* as met in the cell: it holds for any choices, so that a failure is
    a slip in the posterior or in its record. The lemma says nothing of approximate posteriors, nor
    of feedback that comes late.
    """
    if (run.spec.get("parameters") or {}).get("feedback"):
        return []
    noise_variance = run.spec.get("noise_variance")
    audited = [name for name in run.spec.get("audited", []) if _is_exact(run, name)]
    if not audited or noise_variance is None:
        return []
    verdicts = []
    for index, setting in enumerate(run.settings):
        shares = {}
        for policy in audited:
            for seed in run.seeds:
                audit = run.audit(policy, index, seed)
                if audit is not None and not np.isnan(audit["variance"]).all():
                    shares[f"{policy}, seed {seed}"] = _share_used(audit, noise_variance[index])
        if shares:
            tightest = max(shares, key=lambda cell: shares[cell])
            evidence = (
                f"at most {shares[tightest]:.3g} of what is allowed in "
                f"{counted(len(shares), 'cell')} ({tightest}); T = {run.rounds}"
            )
            # Records are in single precision, each sum good to about 1e-6.
            holds = shares[tightest] <= 1.0 + 1e-5
            verdicts.append(Verdict(_LEMMA, holds, _where(setting) + evidence))
    return verdicts


_LEMMA = "Lemma A.12: the variances add up to at most 2(λ* + ς²) times the information gained"


def _is_exact(run: Run, policy: str) -> bool:
    options = run.spec.get("parameters", {}).get("policies", {}).get(policy, {})
    return options.get("posterior") not in ("variational", "variational-kept")


def _share_used(audit: Mapping[str, Any], noise_variance: float) -> float:
    """Σσ² of a cell over what Lemma A.12 allows."""
    allowed = variance_sum_bound(
        float(np.nansum(audit["information"], dtype=float)),
        largest_eigenvalue=max(float(np.nanmax(audit["largest_eigenvalue"])), 0.0),
        noise_variance=noise_variance,
    )
    return float(np.nansum(audit["variance"], dtype=float) / allowed)


Judged = tuple[bool, str] | None
"""Whether a claim holds, and the evidence; ``None``: this setting alone can not say."""
Check = Callable[[Run, int, Mapping[str, Any]], Judged]


def _ratio_at_most(run: Run, index: int, claim: Mapping[str, Any]) -> tuple[bool, str]:
    """``policy``'s total is at most ``ratio`` × ``versus``'s."""
    return _ratio(run, index, claim, lambda total, limit: total <= limit)


def _ratio_at_least(run: Run, index: int, claim: Mapping[str, Any]) -> tuple[bool, str]:
    """``policy``'s total is at least ``ratio`` × ``versus``'s."""
    return _ratio(run, index, claim, lambda total, limit: total >= limit)


def _ratio(
    run: Run, index: int, claim: Mapping[str, Any], compare: Callable[[float, float], bool]
) -> tuple[bool, str]:
    metric = claim.get("metric", "regret")
    left = outcome_of(run, claim["policy"], index, metric)
    right = outcome_of(run, claim["versus"], index, metric)
    ratio = f"{left.mean / right.mean:.3g}" if right.mean else "undefined"
    evidence = (
        f"{_phrase(claim['policy'], metric, left)}; {_phrase(claim['versus'], metric, right)}; "
        f"ratio {ratio}, limit {claim['ratio']:g}{_beyond(claim, left, right, claim['ratio'])}"
    )
    # A product, not the quotient: right also where totals are zero or negative.
    return compare(left.mean, float(claim["ratio"]) * right.mean), evidence


def _ratio_between(run: Run, index: int, claim: Mapping[str, Any]) -> tuple[bool, str]:
    """``policy``'s total is at least ``least`` × and at most ``most`` × ``versus``'s."""
    metric = claim.get("metric", "regret")
    left = outcome_of(run, claim["policy"], index, metric)
    right = outcome_of(run, claim["versus"], index, metric)
    ratio = f"{left.mean / right.mean:.3g}" if right.mean else "undefined"
    least, most = float(claim["least"]), float(claim["most"])
    nearest = min((least, most), key=lambda limit: abs(left.mean - limit * right.mean))
    evidence = (
        f"{_phrase(claim['policy'], metric, left)}; {_phrase(claim['versus'], metric, right)}; "
        f"ratio {ratio}, limits {least:g} and {most:g}{_beyond(claim, left, right, nearest)}"
    )
    return least * right.mean <= left.mean <= most * right.mean, evidence


def _about_equal(run: Run, index: int, claim: Mapping[str, Any]) -> tuple[bool, str]:
    """The two totals differ by at most ``tolerance`` of the larger."""
    metric = claim.get("metric", "regret")
    left = outcome_of(run, claim["policy"], index, metric)
    right = outcome_of(run, claim["versus"], index, metric)
    larger = max(abs(left.mean), abs(right.mean)) or 1.0
    gap = abs(left.mean - right.mean) / larger
    evidence = (
        f"{_phrase(claim['policy'], metric, left)}; {_phrase(claim['versus'], metric, right)}; "
        f"they differ by {gap:.1%} of the larger, limit {claim['tolerance']:.0%}"
    )
    difference, stderr = paired_difference(left.per_seed, right.per_seed)
    evidence += _paired(f"{claim['policy']} − {claim['versus']}", difference, stderr)
    # What the difference exceeds its limit by, with the order of the means in every seed.
    sign = 1.0 if difference >= 0.0 else -1.0
    limit = float(claim["tolerance"]) * max(left, right, key=lambda each: abs(each.mean)).per_seed
    excess = paired_difference(sign * (left.per_seed - right.per_seed), np.abs(limit))
    evidence += NOISE if within_noise(*excess) else ""
    return gap <= float(claim["tolerance"]), evidence


def _lowest(run: Run, index: int, claim: Mapping[str, Any]) -> tuple[bool, str]:
    """``policy`` (or one of ``policies``) has the lowest mean total among those named."""
    metric = claim.get("metric", "regret")
    winners = claim.get("policies", [claim.get("policy")])
    totals = {name: outcome_of(run, name, index, metric) for name in [*winners, *claim["among"]]}
    order = sorted(totals, key=lambda name: totals[name].mean)
    evidence = "from the lowest: " + ", ".join(
        f"{name} {significant(totals[name].mean)}{_spread(totals[name])}" for name in order
    )
    first = next(name for name in order if name in winners)
    rival = next((name for name in order if name not in winners), None)
    if rival is not None:
        difference = paired_difference(totals[first].per_seed, totals[rival].per_seed)
        evidence += _paired(f"{first} − {rival}", *difference)
        if totals[first].mean == totals[rival].mean:
            return False, evidence + TIE
        evidence += NOISE if within_noise(*difference) else ""
    return order[0] in winners, evidence


class _Trend(NamedTuple):
    """How a total changes with a swept number, by least squares over the ranks of its values."""

    slope: float
    stderr: float | None
    evidence: str


def _trend(run: Run, index: int, claim: Mapping[str, Any]) -> _Trend | None:
    """The trend among settings that differ in ``key`` alone; told once, at the smallest value."""
    metric, key = claim.get("metric", "regret"), claim["key"]
    others = _without(run.settings[index], key)
    members = [
        at for at, each in enumerate(run.settings) if key in each and _without(each, key) == others
    ]
    members.sort(key=lambda at: _value(run, at, key))
    if len(members) < 2 or index != members[0]:
        return None
    totals = [outcome_of(run, claim["policy"], at, metric) for at in members]
    ranks = np.arange(len(members)) - (len(members) - 1) / 2.0
    slopes: Floats = ranks @ np.stack([each.per_seed for each in totals]) / (ranks @ ranks)
    slope, stderr = paired_difference(slopes, 0.0 * slopes)
    evidence = f"{claim['policy']} {metric} at {key} = " + ", ".join(
        f"{_value(run, at, key):g}: {significant(each.mean)}{_spread(each)}"
        for at, each in zip(members, totals, strict=True)
    )
    return _Trend(slope, stderr, evidence + _paired("slope per value", slope, stderr))


def _rises_with(run: Run, index: int, claim: Mapping[str, Any]) -> Judged:
    """``policy``'s total rises with the swept number ``key``."""
    trend = _trend(run, index, claim)
    if trend is None:
        return None
    noise = NOISE if within_noise(trend.slope, trend.stderr) else ""
    return trend.slope > 0.0, trend.evidence + noise


def _no_trend(run: Run, index: int, claim: Mapping[str, Any]) -> Judged:
    """``policy``'s total shows no trend in the swept number ``key``: less than two standard errors."""
    trend = _trend(run, index, claim)
    if trend is None or trend.stderr is None:
        return None  # of a single seed nobody can say what is chance
    return within_noise(trend.slope, trend.stderr), trend.evidence


def _without(setting: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in setting.items() if name != key}


def _value(run: Run, index: int, key: str) -> float:
    return float(run.settings[index][key])


_CHECKS: dict[str, Check] = {
    "ratio-at-most": _ratio_at_most,
    "ratio-at-least": _ratio_at_least,
    "ratio-between": _ratio_between,
    "about-equal": _about_equal,
    "lowest": _lowest,
    "rises-with": _rises_with,
    "no-trend": _no_trend,
}


_KEYS = {
    "ratio-at-most": ("policy", "versus", "ratio"),
    "ratio-at-least": ("policy", "versus", "ratio"),
    "ratio-between": ("policy", "versus", "least", "most"),
    "about-equal": ("policy", "versus", "tolerance"),
    "lowest": ("policy", "policies", "among"),
    "rises-with": ("policy", "key"),
    "no-trend": ("policy", "key"),
}
"""What each check needs besides ``text``; of ``policy`` and ``policies`` it takes one."""


def check_claim(claim: object, where: str) -> None:
    """Refuse a claim that could not be judged, before anything runs."""
    if not isinstance(claim, Mapping):
        raise SpecError(f"{where}: a claim must be a table ([[claims]]), not {claim!r}")
    text, check = claim.get("text"), claim.get("check")
    if not isinstance(text, str) or not text:
        raise SpecError(f"{where}: a claim needs a text; this has {dict(claim)}")
    if not isinstance(check, str) or check not in _CHECKS:
        raise SpecError(
            f"{where}: claim {text!r} has the check {check!r}; choose one of {sorted(_CHECKS)}"
        )
    needed = set(_KEYS[check])
    if needed >= {"policy", "policies"}:
        needed -= {"policy"} if "policies" in claim else {"policies"}
    given = set(claim) - {"text", "check", "metric"}
    if given != needed:
        raise SpecError(
            f"{where}: claim {text!r}: the check {check!r} takes {sorted(needed)}, "
            f"but {sorted(given)} are given"
        )
    for key in sorted(set(claim) - {"text", "check"}):
        if not _KINDS[key].fits(claim[key]):
            raise SpecError(
                f"{where}: claim {text!r}: {key} is {claim[key]!r}; it must be {_KINDS[key].words}"
            )


class _Kind(NamedTuple):
    words: str
    fits: Callable[[Any], bool]


_LARGEST = sys.float_info.max


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST


def _are_names(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(map(_is_name, value))


_NAME, _NUMBER = _Kind("a name", _is_name), _Kind("a finite number", _is_number)
_NAMES = _Kind("a list of names", _are_names)
_KINDS = {
    "metric": _NAME,
    "policy": _NAME,
    "versus": _NAME,
    "policies": _NAMES,
    "among": _NAMES,
    "ratio": _NUMBER,
    "least": _NUMBER,
    "most": _NUMBER,
    "tolerance": _NUMBER,
    "key": _NAME,
}


def policies_of(claim: Mapping[str, Any]) -> list[str]:
    """Every policy that a claim is about."""
    named = [claim[key] for key in ("policy", "versus") if key in claim]
    return [*named, *claim.get("policies", []), *claim.get("among", [])]


def _beyond(claim: Mapping[str, Any], left: Outcome, right: Outcome, ratio: float) -> str:
    """The difference from ``ratio`` × the other's total, seed by seed."""
    difference = paired_difference(left.per_seed, ratio * right.per_seed)
    factor = "" if ratio == 1 else f"{ratio:g} × "
    text = _paired(f"{claim['policy']} − {factor}{claim['versus']}", *difference)
    if difference[0] == 0.0:
        return text + TIE
    return text + (NOISE if within_noise(*difference) else "")


def _paired(what: str, difference: float, stderr: float | None) -> str:
    return "" if stderr is None else f"; {what} seed by seed {plus_minus(difference, stderr)}"


def _phrase(policy: str, metric: str, outcome: Outcome) -> str:
    return f"{policy} {metric} {significant(outcome.mean)}{_spread(outcome)}"


def _spread(outcome: Outcome) -> str:
    return "" if outcome.stderr is None else f" ± {significant(outcome.stderr, 2)}"
