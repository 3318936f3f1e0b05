"""What a claim's table contains: its policies, its metric, its rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Claim = Mapping[str, Any]
SECONDS = "seconds"
"""The metric that is the time of a round."""


def names_in(value: str | Sequence[str]) -> list[str]:
    """Names from a field that holds one or several.

    Args:
        value: the field.
    """
    if isinstance(value, str):
        return [value]
    return list(value)


def compared_policies(claim: Claim) -> list[str]:
    """The policies that a claim compares, in its order.

    Args:
        claim: a table of ``[[claims]]``.
    """
    names = names_in(claim.get("policy", []))
    names += names_in(claim.get("versus", []))
    return names


def policies_of(claim: Claim) -> list[str]:
    """Every policy that a claim needs.

    Args:
        claim: a table of ``[[claims]]``.
    """
    return [*compared_policies(claim), *names_in(claim.get("relative_to", []))]


def metric_of(claim: Claim) -> str:
    """The metric that a claim is about; regret by default.

    Args:
        claim: a table of ``[[claims]]``.
    """
    return str(claim.get("metric", "regret"))


def last_round_of(claim: Claim) -> int:
    """The last round that a claim names; 1 where it is about all of them.

    Args:
        claim: a table of ``[[claims]]``.
    """
    if "rounds" not in claim:
        return 1
    _, last = claim["rounds"]
    return int(last)
