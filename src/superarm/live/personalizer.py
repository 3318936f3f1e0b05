"""Rank and reward, as users of Azure AI Personalizer know them, over an ordinary bandit.

A rank is an ask with k = 1: the actions are the arms, and the id of the event is that of the decision. A
reward is a tell. Features come as JSON objects; :func:`hash_features` makes numbers of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Arms, Floats
from superarm.core.errors import InputError
from superarm.core.inputs import as_count, as_number
from superarm.core.registry import spec_of
from superarm.kernels import Linear
from superarm.oracles import TopK
from superarm.policies import Exploring, First, IndexPolicy, ScorePolicy
from superarm.posteriors import StreamingGP
from superarm.rules import Greedy

from .bandit import Bandit
from .spec import BanditSpec

Features = Sequence[Mapping[str, Any]]
"""Features as Personalizer takes them: a list of JSON objects."""

_FEWEST_COLUMNS = 4
_DEEPEST = 16  # objects within objects
_MOST_FEATURES = 250_000  # of a request, pairs included
_LARGEST = 1e6  # a number; the model is linear in it
_LONGEST_NAME = 100  # characters of a feature's name in a message
_SEPARATOR = "\x1f"  # between the parts of a path


# --- the bandit ----------------------------------------------------------------------------


def personalizer_spec(
    *,
    dimension: int = 128,
    epsilon: float = 0.2,
    apprentice: bool = False,
    seed: int = 0,
    max_age: float | None = None,
) -> BanditSpec:
    """The spec of a bandit that answers Personalizer's requests.

    It learns a linear model of the hashed features and chooses the action of the highest expected reward;
    now and then one at random, all equally likely. Its memory does not grow with the number of rewards.

    Args:
        dimension: Columns that features are hashed into.
        epsilon: Probability of a round at random: Personalizer's exploration percentage.
        apprentice: Whether the first action is always chosen. Let a spec without it shadow the bandit:
            it learns from the same rewards, until you switch to it.
        seed: The seed of the random rounds.
        max_age: Seconds after which a decision without a reward is abandoned; ``None``: never.
    """
    as_count(dimension, "dimension", _FEWEST_COLUMNS)
    learner = IndexPolicy(
        posterior=StreamingGP(Linear(variance=0.1), noise_variance=0.1),
        rule=Greedy(),
        oracle=TopK(k=1),
    )
    online = Exploring(policy=learner, epsilon=epsilon)
    first = ScorePolicy(score=First(), oracle=TopK(k=1))
    return BanditSpec(
        policy=spec_of(first if apprentice else online),
        seed=seed,
        max_age=max_age,
        hash_columns=dimension,
    )


# --- rank, reward, activate ----------------------------------------------------------------


class Action(NamedTuple):
    """An action that may be chosen."""

    id: str
    features: Features


class RankedAction(NamedTuple):
    """An action with the probability that it had of being chosen."""

    id: str
    probability: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """What to show, and the probability of each action."""

    event_id: str
    chosen: str
    ranking: list[RankedAction]
    """The chosen action, the others by probability, and excluded ones with probability 0."""


def rank(
    bandit: Bandit,
    actions: Sequence[Action],
    *,
    context: Features = (),
    excluded: Sequence[str] = (),
    event_id: str | None = None,
    deferred: bool = False,
) -> Ranking:
    """Choose one of the actions. The decision is durable when this returns.

    Args:
        bandit: A bandit with a spec such as :func:`personalizer_spec`.
        actions: The actions; in apprentice mode, the first that is not excluded is chosen.
        context: Features of the context.
        excluded: Ids of actions that must not be chosen.
        event_id: An id of your own. Ranking again with the same id returns the same answer.
        deferred: Whether the reward is awaited only once :meth:`Bandit.activate` is called.
    """
    columns = bandit.spec.hash_columns
    if columns is None:
        raise InputError(
            f"bandit {bandit.name!r} has no hash_columns, so that it cannot rank; create one with "
            "personalizer_spec()"
        )
    _check_ids(actions)
    barred = set(excluded)
    allowed = [action for action in actions if action.id not in barred]
    if not allowed:
        raise InputError("every action is excluded; leave at least one")
    features = hash_features(context, [action.features for action in allowed], columns)
    arms = Arms(ids=[action.id for action in allowed], features=features)
    answer = bandit.ask(arms, decision_id=event_id, deferred=deferred)
    probabilities = bandit.probabilities(answer.id)
    chosen = str(answer.arms[0])
    others = [action.id for action in allowed if action.id != chosen]
    others.sort(key=lambda arm: -probabilities[arm])  # equal ones as they came
    ranking = [RankedAction(arm, probabilities[arm]) for arm in [chosen, *others]]
    ranking += [
        RankedAction(action.id, 0.0) for action in actions if action.id in barred
    ]
    return Ranking(event_id=answer.id, chosen=chosen, ranking=ranking)


def reward(bandit: Bandit, event_id: str, value: float) -> bool:
    """Learn the reward of the action that was chosen.

    Args:
        bandit: The bandit.
        event_id: The id of the event.
        value: The reward.

    Returns:
        Whether the reward is new; false if the same was recorded before.
    """
    (arm,) = bandit.decision(event_id).answer.arms
    return bandit.tell(event_id, {arm: value})


def _check_ids(actions: Sequence[Action]) -> None:
    if not actions:
        raise InputError("actions is empty; send at least one action")
    ids: set[str] = set()
    for action in actions:
        if action.id in ids:
            raise InputError(f"two actions have the id {action.id!r:.60}; rename one")
        try:
            action.id.encode()
        except UnicodeEncodeError:
            # JSON can escape half a character, but no answer can contain it.
            raise InputError(f"the id {action.id!r:.60} is not text") from None
        ids.add(action.id)


# --- features ------------------------------------------------------------------------------


def hash_features(
    context: Features, actions: Sequence[Features], columns: int
) -> Floats:
    """Features of a context and of actions as numbers, (n, columns).

    A row has three parts: a quarter of the columns for the features of the context, a quarter for those of
    the action, and the rest for all pairs of both, so that a linear model learns which action suits
    which context. Each feature has a name and a value:

    - a number at the path ``a.b`` has the name (number, a, b) and its own value: scale it to about 1;
    - text, true and false have the name (text, a, b, value) and the value 1;
    - the items of a list are features at the path of the list; a number also has its place in its name;
    - null is no feature; the objects of ``context`` count as one.

    A pair has the product of the values. Feature i is added to column h(i) of its part, with the sign
    s(i) [weinberger2009feature]: h and s are taken from the blake2b hash of the name, or of both
    hashes for a pair, so that they are the same in every process, for ever.

    Args:
        context: Features of the context.
        actions: Features of each action.
        columns: Columns of the result.
    """
    of_context = _features(context, "contextFeatures")
    of_actions = [_features(action, "features") for action in actions]
    _check_size(of_context, of_actions)
    quarter = columns // 4
    context_part = range(quarter)
    action_part = range(quarter, 2 * quarter)
    pairs_part = range(2 * quarter, columns)
    context_row = [0.0] * columns  # a list, because it is filled one by one
    for feature in of_context:
        _add(context_row, context_part, feature)
    rows = []
    for of_action in of_actions:
        row = context_row.copy()
        for feature in of_action:
            _add(row, action_part, feature)
            for other in of_context:
                digest = _hash(other.digest + feature.digest)
                pair = _Feature(digest, other.value * feature.value)
                _add(row, pairs_part, pair)
        rows.append(row)
    return np.array(rows)


class _Feature(NamedTuple):
    digest: bytes
    """The hash of its name."""
    value: float


def _features(objects: Features, where: str) -> list[_Feature]:
    features: list[_Feature] = []
    for item in objects:
        features += _walk(item, (), where)
    return features


def _check_size(of_context: list[_Feature], of_actions: list[list[_Feature]]) -> None:
    """Refuse a request whose features would take seconds to hash."""
    size = sum(len(of_action) for of_action in of_actions)
    pairs = size * len(of_context)
    if pairs + size > _MOST_FEATURES:
        raise InputError(
            f"{len(of_context)} features of the context and {size} of the actions make {pairs} pairs, "
            f"more than {_MOST_FEATURES}; send fewer"
        )


def _walk(value: Any, path: tuple[str, ...], where: str) -> Iterator[_Feature]:
    """The features of a JSON value."""
    if len(path) > _DEEPEST:
        raise InputError(f"{where} is nested more than {_DEEPEST} deep; flatten it")
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _walk(item, (*path, key), where)
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            has_place = not isinstance(item, str | bool | Mapping)
            item_path = (*path, str(place)) if has_place else path
            yield from _walk(item, item_path, where)
    elif isinstance(value, str | bool):
        text = value if isinstance(value, str) else str(value).lower()
        yield _Feature(_hash_name("text", *path, text), 1.0)
    elif value is not None:
        place_name = ascii(".".join(path))[:_LONGEST_NAME]
        number = as_number(value, f"{where}: {place_name}", -_LARGEST, _LARGEST)
        yield _Feature(_hash_name("number", *path), number)


def _hash_name(*parts: str) -> bytes:
    return _hash(_SEPARATOR.join(parts).encode("utf-8", "surrogatepass"))


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=8).digest()


def _add(row: list[float], part: range, feature: _Feature) -> None:
    """Add a feature to its column in a part of a row."""
    number = int.from_bytes(feature.digest, "big")
    sign = 1.0 if number & 1 else -1.0
    row[part[(number >> 1) % len(part)]] += sign * feature.value
