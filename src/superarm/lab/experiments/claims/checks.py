"""The checks by name, and which claims can be judged by them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from superarm.core.errors import SpecError
from superarm.core.registry import require_kind, suggestion

from . import gaps, margins, sweeps
from .margins import ABOVE, BELOW, Limit, Margin
from .tables import SECONDS, Claim, names_in
from .totals import Totals


class Check(NamedTuple):
    """How a claim is turned into margins, and the keys that it takes for that."""

    margins: Callable[[Totals], Iterator[Margin]]
    needed: tuple[str, ...]
    optional: tuple[str, ...] = ()


_PAIR = ("policy", "versus")
_SWEEP = ("policy", "key")
_PAIR_SWEEP = ("policy", "versus", "key")
_AMONG = ("among",)

_is_below = partial(margins.compare, limits=[Limit("ratio", BELOW)])
_is_above = partial(margins.compare, limits=[Limit("ratio", ABOVE)])
_is_between = partial(
    margins.compare, limits=[Limit("least", ABOVE), Limit("most", BELOW)]
)
_is_under = partial(margins.compare_with_number, sign=BELOW)
_is_over = partial(margins.compare_with_number, sign=ABOVE)
_rises = partial(sweeps.compare_steps, sign=ABOVE)
_falls = partial(sweeps.compare_steps, sign=BELOW)
_trends_upward = partial(sweeps.compare_trend, sign=ABOVE)
_trends_downward = partial(sweeps.compare_trend, sign=BELOW)

CHECKS = {
    "below": Check(_is_below, _PAIR, ("ratio",)),
    "above": Check(_is_above, _PAIR, ("ratio",)),
    "between": Check(_is_between, (*_PAIR, "least", "most")),
    "similar": Check(margins.compare_similarity, (*_PAIR, "tolerance")),
    "rises": Check(_rises, _SWEEP, _AMONG),
    "falls": Check(_falls, _SWEEP, _AMONG),
    "upward-trend": Check(_trends_upward, _SWEEP, _AMONG),
    "downward-trend": Check(_trends_downward, _SWEEP, _AMONG),
    "flat": Check(sweeps.compare_with_mean, (*_SWEEP, "tolerance"), _AMONG),
    "alike": Check(sweeps.compare_settings, (*_SWEEP, "tolerance")),
    "steadier": Check(sweeps.compare_steadiness, _PAIR_SWEEP, _AMONG),
    "crosses": Check(sweeps.compare_ends, _PAIR_SWEEP, _AMONG),
    "under": Check(_is_under, ("policy", "limit")),
    "over": Check(_is_over, ("policy", "limit")),
    "widens": Check(gaps.compare_gaps, _PAIR),
}
UNORDERED_CHECKS = ("alike", "steadier")
"""Checks for which the order of the values of ``key`` does not matter: they may be texts."""

_KEYS_OF_ALL = ("text", "check", "metric", "relative_to", "where", "of", "rounds")
_QUANTITIES = ("spread", "swing", "growth")
_KINDS = {
    **dict.fromkeys(("metric", "relative_to", "key", "of"), str),
    **dict.fromkeys(("ratio", "least", "most", "tolerance", "limit"), float),
    **dict.fromkeys(("policy", "versus"), str | Sequence[str]),
    "where": Mapping[str, Any],
    "among": Sequence[float],
    "rounds": Sequence[int],
}


def check_claim(claim: object, where: str) -> None:
    """Refuse a claim that could not be judged, before anything runs.

    Args:
        claim: a table of ``[[claims]]``.
        where: names its source in errors.
    """
    if not isinstance(claim, Mapping):
        raise SpecError(f"{where}: a claim must be a table ([[claims]]), not {claim!r}")
    text = claim.get("text")
    if not isinstance(text, str) or not text:
        raise SpecError(f"{where}: a claim needs a text; this one has {dict(claim)}")
    place = f"{where}: claim {text!r}"
    _check_keys(claim, place)
    _check_kinds(claim, place)
    problem = next(_problems(claim), None)
    if problem is not None:
        raise SpecError(f"{place}: {problem}")


def _check_keys(claim: Claim, place: str) -> None:
    """Whether the check exists and has the keys that it takes."""
    name = claim.get("check")
    if name is None:
        raise SpecError(f"{place} needs a check; {suggestion('', CHECKS)}")
    if not isinstance(name, str) or name not in CHECKS:
        raise SpecError(f"{place}: unknown check {name!r}; {suggestion(name, CHECKS)}")
    needed = set(CHECKS[name].needed)
    optional = set(CHECKS[name].optional)
    keys = set(claim) - set(_KEYS_OF_ALL)
    for key in sorted(keys - needed - optional):
        choices = (needed | optional) - keys
        advice = suggestion(key, choices) if choices else "omit it"
        raise SpecError(f"{place}: check {name!r} has no parameter {key!r}; {advice}")
    if missing := sorted(needed - keys):
        listing = " and ".join(map(repr, missing))
        raise SpecError(f"{place}: check {name!r} needs {listing}")


def _check_kinds(claim: Claim, place: str) -> None:
    """Whether every value has its type and is not empty."""
    checked_keys = set(claim) - {"text", "check"}
    for key in sorted(checked_keys):
        value = claim[key]
        require_kind(value, _KINDS[key], f"{place}: {key}")
        is_nan = isinstance(value, float) and math.isnan(value)
        if value in ("", [], {}) or is_nan:
            raise SpecError(f"{place}: {key} is {value!r}; give a value")


def _problems(claim: Claim) -> Iterator[str]:
    """What is wrong with a claim whose keys and types are right."""
    if claim["check"] == "widens" and not _is_plain(claim):
        yield "'widens' is about running totals of a metric alone"
    yield from _quantity_problems(claim)
    yield from _rounds_problems(claim)
    yield from _number_problems(claim)
    compared_with_itself = _policies_on_both_sides(claim)
    if compared_with_itself:
        yield f"{', '.join(sorted(compared_with_itself))} is compared with itself"
    if claim.get("key") in claim.get("where", {}):
        yield "where holds the key that varies; leave it out"


def _is_plain(claim: Claim) -> bool:
    """Whether a claim is about the totals of a metric alone."""
    has_more = bool({"of", "rounds", "relative_to"} & set(claim))
    return not has_more and claim.get("metric") != SECONDS


def _quantity_problems(claim: Claim) -> Iterator[str]:
    quantity = claim.get("of", "spread")
    is_relative = "relative_to" in claim
    if quantity not in _QUANTITIES:
        yield f"of is {quantity!r}; it can be {', '.join(map(repr, _QUANTITIES))}"
    if quantity == "swing" and (claim.get("metric") == SECONDS or is_relative):
        yield "of = 'swing' cannot be used with metric = 'seconds' or relative_to"
    if quantity == "growth" and is_relative:
        yield "of = 'growth' cannot be used with relative_to"
    if quantity in ("swing", "growth") and "rounds" in claim:
        yield f"of = {quantity!r} cannot be used with rounds"


def _rounds_problems(claim: Claim) -> Iterator[str]:
    rounds = list(claim.get("rounds", (1, 1)))
    is_pair = len(rounds) == 2
    if not is_pair or not 1 <= rounds[0] <= rounds[1]:
        yield f"rounds must be [first, last] with 1 <= first <= last, got {rounds}"


def _number_problems(claim: Claim) -> Iterator[str]:
    for key in ("ratio", "most", "tolerance"):
        if not 0.0 < claim.get(key, 1.0) < math.inf:
            yield f"{key} must be above 0 and finite"
    least = claim.get("least", 0.0)
    most = claim.get("most", math.inf)
    if least < 0.0:
        yield "least must not be below 0"
    if len(set(claim.get("among", (0, 1)))) < 2:
        yield "among must name two values or more"
    if least >= most:
        yield "least must be below most"


def _policies_on_both_sides(claim: Claim) -> set[str]:
    policies = set(names_in(claim["policy"]))
    rivals = set(names_in(claim.get("versus", [])))
    return policies & rivals
