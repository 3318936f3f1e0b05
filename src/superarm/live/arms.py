"""Arms as users have them: arrays, tables, or a table of features by id."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np

from superarm.core import Arms, Feedback, Offer
from superarm.core.errors import InputError, UnknownArmError
from superarm.core.tables import Encoding

from .codec import is_unicode
from .spec import BanditSpec

ArmId = str | int
_NUMBER = re.compile(r"-?[0-9]{1,18}")


def as_arms(arms: Any, spec: BanditSpec, named: Arms | None) -> Arms:
    """The arms that a user offers.

    Args:
        arms: ``None`` or ids: arms that were named before. A mapping of ids to rows. A table (a
            data frame, a list of dicts or a dict of columns), if the bandit has an encoding. An
            array, (n, d), whose arms are numbered from 0. Or ``Arms``.
        spec: The spec of the bandit.
        named: Arms that were named before; ``None`` if there are none.
    """
    if arms is not None and not isinstance(arms, Arms) and _count(arms) == 0:
        raise InputError("arms is empty; offer at least one arm")
    offered = _as_arms(arms, spec, named)
    if offered is named:
        return offered  # checked when they were named
    for arm in offered.ids:
        require_arm_id(arm)
    if any(isinstance(arm, int) for arm in offered.ids):
        _refuse_equal_texts(offered.ids)
    return offered


def _count(arms: Any) -> int:
    try:
        return len(arms)
    except TypeError:
        raise InputError(
            f"arms must be features by id, rows, a table or ids, got {arms!r:.60}"
        ) from None


def feedback_by_id(
    offer: Offer,
    rewards: Mapping[Any, float],
    noise_variance: Mapping[Any, float] | None,
) -> Feedback:
    """Feedback from rewards by arm id. Numbers may be text, as keys of JSON are.

    Args:
        offer: The offer that was answered.
        rewards: Rewards by arm id.
        noise_variance: The variance of each reward's noise where it is known, by arm id.
    """
    if _has_unknown_ids(offer, rewards):
        rewards = _with_numbers(rewards)
        if isinstance(noise_variance, Mapping):
            noise_variance = _with_numbers(noise_variance)
    return Feedback.by_id(offer, rewards, noise_variance)


def _has_unknown_ids(offer: Offer, rewards: Any) -> bool:
    """Whether a mapping has an id that is not on offer. ``Feedback`` refuses anything but a mapping."""
    if not isinstance(rewards, Mapping):
        return False
    return not all(arm in offer.arms for arm in rewards)


def _with_numbers(table: Mapping[Any, float]) -> dict[Any, float]:
    """The same table with keys such as ``"7"`` as numbers."""
    numbered = {}
    for arm, value in table.items():
        is_number = isinstance(arm, str) and _NUMBER.fullmatch(arm) is not None
        numbered[int(arm) if is_number else arm] = value
    return numbered


def _refuse_equal_texts(ids: Iterable[Hashable]) -> None:
    texts: set[str] = set()
    for arm in ids:
        text = str(arm)
        if text in texts:
            raise InputError(
                f"the arm ids {text} and {text!r} are equal as JSON keys; rename one"
            )
        texts.add(text)


def _as_arms(arms: Any, spec: BanditSpec, named: Arms | None) -> Arms:
    if isinstance(arms, Arms):
        return arms
    if arms is None:
        return _require_named(named)
    if is_list_of_ids(arms):
        return _select(_require_named(named), list(arms))
    encoding = spec.encoding
    if isinstance(arms, Mapping) and not _is_table(arms, encoding):
        rows = list(arms.values())
        features = rows if encoding is None else encoding.features(rows)
        return Arms(ids=list(arms), features=features)
    if encoding is not None and not isinstance(arms, np.ndarray):
        return encoding.arms(arms, ids=spec.id_column)
    return Arms.numbered(arms)


def require_arm_id(arm: Hashable) -> None:
    """Refuse ids that answers cannot contain.

    Args:
        arm: The id of an arm.
    """
    if isinstance(arm, bool) or not isinstance(arm, str | int):
        raise InputError(f"an arm id must be text or a whole number, got {arm!r:.60}")
    if isinstance(arm, str) and not is_unicode(arm):
        raise InputError(f"an arm id must be valid Unicode, got {arm!a:.60}")


def plain_id(arm: Any) -> ArmId:
    """The id of an arm without numpy's types.

    Args:
        arm: The id.
    """
    plain: ArmId = arm.item() if isinstance(arm, np.generic) else arm
    return plain


def is_list_of_ids(arms: Any) -> bool:
    """Whether these are ids of named arms.

    Args:
        arms: The arms, as a user gave them.
    """
    if not isinstance(arms, list | tuple) or not arms:
        return False
    return all(isinstance(arm, str | int) for arm in arms)


def _is_table(arms: Mapping[Any, Any], encoding: Encoding | None) -> bool:
    """Whether a mapping has columns, not rows by id."""
    return encoding is not None and set(encoding.columns) <= set(arms)


def _require_named(named: Arms | None) -> Arms:
    if named is None:
        raise UnknownArmError(
            "this bandit has no named arms; offer arms with features, such as {'mocha': [0.2, 0.5]}, or "
            "name arms first"
        )
    return named


def _select(named: Arms, ids: Iterable[Hashable]) -> Arms:
    chosen = list(ids)
    positions = named.positions(chosen)
    return Arms(ids=chosen, features=named.features[positions])
