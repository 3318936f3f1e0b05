"""Rank and reward, as users of Azure AI Personalizer know them, over an ordinary bandit.

A rank is an ask with k = 1: the actions are the arms, and the id of the event is that of the decision. A
reward is a tell. Features come as JSON objects, which :mod:`~superarm.live.feature_hashing` turns into
numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from superarm.core import Arms
from superarm.core.errors import InputError
from superarm.core.inputs import as_count
from superarm.core.registry import spec_of
from superarm.kernels import Linear
from superarm.oracles import TopK
from superarm.policies import Exploring, First, IndexPolicy, ScorePolicy
from superarm.posteriors import StreamingGP
from superarm.rules import Greedy

from .bandit import Bandit
from .codec import is_unicode
from .feature_hashing import Features, hash_features
from .spec import BanditSpec

_FEWEST_COLUMNS = 4


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
        epsilon: Probability of a random round: Personalizer's exploration percentage.
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
        deferred: Whether the reward is awaited only after :meth:`Bandit.activate`.
    """
    columns = bandit.spec.hash_columns
    if columns is None:
        raise InputError(
            f"bandit {bandit.name!r} has no hash_columns, so it cannot rank; create one with "
            "personalizer_spec()"
        )
    _check_ids(actions)
    barred = set(excluded)
    allowed = [action for action in actions if action.id not in barred]
    if not allowed:
        raise InputError(
            "excludedActions names every action; leave at least one to choose"
        )
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
        if not is_unicode(action.id):
            raise InputError(f"the id {action.id!r:.60} is not valid Unicode")
        ids.add(action.id)
