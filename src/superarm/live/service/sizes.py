"""How much one request may ask for: arms, features, and what they become when they are encoded."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from superarm.core import Arms
from superarm.core.errors import InputError
from superarm.live.bandit import Bandit
from superarm.live.spec import BanditSpec

from . import bodies
from .problems import Refusal
from .settings import Limits


def require_width(spec: BanditSpec, limits: Limits) -> None:
    """Refuse a spec that encodes an arm as too many features.

    Args:
        spec: The spec of a request.
        limits: The limits of the service.
    """
    width = _encoded_width(spec)
    if width > limits.dimension:
        raise Refusal(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"the spec encodes an arm as {width} features, which exceeds the limit of "
            f"{limits.dimension}",
        )


def _encoded_width(spec: BanditSpec) -> int:
    """Features of an arm after encoding; 0 if nothing is encoded."""
    hashed = spec.hash_columns or 0
    coded = 0 if spec.encoding is None else len(spec.encoding.names)
    return max(hashed, coded)


def require_arms(count: int, limits: Limits, what: str = "arms") -> None:
    """Refuse a request with too many arms.

    Args:
        count: How many arms it has.
        limits: The limits of the service.
        what: What the request calls them.
    """
    if count > limits.arms:
        raise Refusal(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"{count} {what} exceed the limit of {limits.arms}; send fewer",
        )


def require_numbers(arms: int, width: int, limits: Limits) -> None:
    """Refuse a request whose arms have too many features together.

    Args:
        arms: How many arms it has.
        width: Features of each, after encoding.
        limits: The limits of the service.
    """
    if arms * width > limits.numbers:
        raise Refusal(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"{arms} arms with {width} features each exceed the limit of {limits.numbers} numbers; "
            "offer fewer",
        )


def arms_of(arms: bodies.Arms | None, bandit: Bandit, limits: Limits) -> Any:
    """Arms of a request, unless there are too many, or they have too many features.

    Args:
        arms: The arms, as they came.
        bandit: The bandit that encodes them.
        limits: The limits of the service.
    """
    if arms is None:
        return None
    rows = _rows_of(arms)
    require_arms(len(rows), limits)
    for row in rows:
        if isinstance(row, list | dict) and len(row) > limits.dimension:
            raise Refusal(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"{len(row)} features of an arm exceed the limit of {limits.dimension}",
            )
    if any(isinstance(row, dict) for row in rows):
        require_numbers(len(rows), _encoded_width(bandit.spec), limits)
    if not isinstance(arms, bodies.ArmsTable):
        return arms
    if len(arms.ids) != len(rows) or len(set(arms.ids)) != len(rows):
        raise InputError("arms must have one unique id for each row of features")
    if all(isinstance(row, list) for row in rows):
        return Arms(ids=arms.ids, features=rows)
    return dict(zip(arms.ids, rows, strict=True))


def _rows_of(arms: bodies.Arms) -> list[Any]:
    if isinstance(arms, bodies.ArmsTable):
        return arms.features
    return list(arms.values()) if isinstance(arms, dict) else list(arms)
