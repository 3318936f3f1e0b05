"""Why a bandit decided as it did, from what it had learned at the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Arms, Decision, Floats, Offer
from superarm.core.capabilities import Forecaster
from superarm.core.display import Displayable
from superarm.core.errors import InfeasibleError, InputError
from superarm.kernels import Columns
from superarm.policies.exploring import index_policy_of
from superarm.posteriors.drifting.keys import rows_of, times_of

from .arms import ArmId
from .bandit_journal import BanditJournal
from .decisions import DecisionRecord, no_decision, value_at
from .event_keys import decided_key
from .fold import Fold
from .observations import Observation

_TEACHERS = 3
"""Rewards that are named as teachers of an arm."""


class Teacher(NamedTuple):
    """A reward that taught the bandit about an arm."""

    decision: str | None
    """The decision that it belongs to; ``None`` for history."""
    arm: ArmId
    reward: float
    share: float
    """The share of the arm's prior variance that this reward alone explains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmReasons(Displayable):
    """Why one arm was chosen."""

    arm: ArmId
    mean: float | None
    std: float | None
    index: float | None
    """Its desirability; the oracle compares super arms by its sum."""
    teachers: list[Teacher]
    """The rewards that taught the bandit most about it."""
    column: str | None
    """The column that changes the mean most when replaced by its average over the offer."""
    effect: float | None
    """How much the column raises the mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation(Displayable):
    """Why a bandit decided as it did."""

    decision: str
    arms: list[ArmReasons]
    runner_up: list[ArmId]
    """The next best super arm; empty if there is no other."""
    margin: float | None
    """How much lower the total index of the runner-up was."""


def explain(journal: BanditJournal, decision_id: str) -> Explanation:
    """Explain a decision from what the bandit had learned at the time.

    Args:
        journal: The journal of the bandit.
        decision_id: The id of the decision.
    """
    fold, record = _as_of(journal, decision_id)
    runner_up = _runner_up(fold, record)
    runner_up_ids: Any = []
    margin = None
    if runner_up is not None:
        runner_up_ids = runner_up.ids(record.offer)
        margin = _total(record.decision) - _total(runner_up)
    return Explanation(
        decision=decision_id,
        arms=_reasons(fold, record),
        runner_up=runner_up_ids,
        margin=margin,
    )


def _reasons(fold: Fold, record: DecisionRecord) -> list[ArmReasons]:
    """Why each of the arms was chosen."""
    decision = record.decision
    ids: Any = decision.ids(record.offer)
    observations = list(fold.reader.observations(last=fold.seq))
    effects = _column_effects(fold, record)
    reasons = []
    for place, position in enumerate(decision.positions.tolist()):
        effect = effects.get(position)
        reasons.append(
            ArmReasons(
                arm=ids[place],
                mean=value_at(decision.mean, place),
                std=value_at(decision.std, place),
                index=value_at(decision.desirability, place),
                teachers=_teachers(fold, record.offer, position, observations),
                column=None if effect is None else effect.column,
                effect=None if effect is None else effect.change,
            )
        )
    return reasons


def _as_of(journal: BanditJournal, decision_id: str) -> tuple[Fold, DecisionRecord]:
    """What the bandit had learned just before a decision, and the decision."""
    event = journal.event(decided_key(decision_id))
    if event is None:
        raise no_decision(decision_id)
    journal.flush()
    fold = Fold(journal)
    for earlier in journal.events(last=event.seq - 1):
        fold.apply(earlier)
    return fold, fold.reader.decision(event)


def _total(decision: Decision) -> float:
    if decision.desirability is None:
        return 0.0
    return float(decision.desirability.sum())


# --- the runner-up -------------------------------------------------------------------------


def _runner_up(fold: Fold, record: DecisionRecord) -> Decision | None:
    """The best super arm that lacks at least one of the chosen arms; ``None`` if there is none."""
    if record.decision.desirability is None:
        return None
    # Without the rounds at random of a policy that explores.
    policy = index_policy_of(fold.policy) or fold.policy
    best: Decision | None = None
    for position in record.decision.positions.tolist():
        try:
            decision = fold.decide(_without(record.offer, position), policy)
        except (InfeasibleError, InputError):
            continue  # no super arm without this arm
        if best is None or _total(decision) > _total(best):
            best = decision
    return best


def _without(offer: Offer, position: int) -> Offer:
    available = np.ones(len(offer.arms), dtype=np.bool_)
    if offer.available is not None:
        available = offer.available.copy()
    available[position] = False
    return replace(offer, available=available)


# --- teachers ------------------------------------------------------------------------------


def _teachers(
    fold: Fold, offer: Offer, position: int, observations: Sequence[Observation]
) -> list[Teacher]:
    """The rewards that alone explain most of an arm's prior variance.

    A reward at row z explains k(x, z)² / (k(x, x)(k(z, z) + σ²)) of the variance at x.
    """
    policy = index_policy_of(fold.policy)
    if policy is None:
        return []
    posterior: Any = policy.posterior
    kernel = _prior_kernel(posterior)
    if kernel is None:
        return []
    row = _rows(posterior, offer)[[position]]
    variance = float(kernel.diag(row)[0])
    noise = posterior.noise_std**2
    teachers: list[Teacher] = []
    for observation in observations:
        positions = observation.feedback.positions
        observed = _rows(posterior, observation.offer)[positions]
        covariances = np.asarray(kernel(row, observed))[0]
        shares = covariances**2 / (variance * (kernel.diag(observed) + noise))
        ids: Any = observation.offer.arms.ids
        for place, share in enumerate(shares.tolist()):
            teachers.append(
                Teacher(
                    decision=observation.decision_id,
                    arm=ids[int(positions[place])],
                    reward=float(observation.feedback.rewards[place]),
                    share=share,
                )
            )
    teachers.sort(key=lambda teacher: teacher.share, reverse=True)
    return teachers[:_TEACHERS]


def _prior_kernel(posterior: Any) -> Any:
    """The prior covariance of the rows of :func:`_rows`; ``None`` if there is no kernel."""
    parameters = posterior.parameters()
    kernel = parameters.get("kernel")
    if "drift" not in parameters or kernel is None:
        return kernel
    width = np.shape(parameters["arms"])[1]
    space = Columns(kernel=kernel, columns=tuple(range(width)))
    return space * Columns(kernel=parameters["drift"], columns=(width,))


def _rows(posterior: Any, offer: Offer) -> Floats:
    """The rows that the kernel sees of the arms on offer, (n, d); the time comes last."""
    keys = posterior.keys(offer)
    fixed_arms = posterior.parameters().get("arms")
    rows: Floats
    if fixed_arms is None:
        rows = keys
        return rows
    features: Floats = np.asarray(fixed_arms)
    if keys.ndim == 1:
        rows = features[keys]
        return rows
    return np.column_stack([features[rows_of(keys)], times_of(keys)])


# --- columns -------------------------------------------------------------------------------


class _Effect(NamedTuple):
    """What a column contributes to the mean of an arm."""

    column: str
    change: float


_NO_EFFECT = _Effect("", 0.0)


def _column_effects(fold: Fold, record: DecisionRecord) -> dict[int, _Effect]:
    """For each chosen position, the column that changes its mean most."""
    policy = fold.policy
    if not isinstance(policy, Forecaster) or _has_fixed_arms(policy):
        return {}
    offer = record.offer
    features = offer.arms.features
    average = features.mean(axis=0)
    means = policy.beliefs(offer).mean
    effects: dict[int, _Effect] = {}
    for column, name in enumerate(_column_names(fold, features.shape[1])):
        without_column = _with_constant(offer, column, average[column])
        averaged_means = policy.beliefs(without_column).mean
        for position in record.decision.positions.tolist():
            change = float(means[position] - averaged_means[position])
            strongest = effects.get(position, _NO_EFFECT)
            if abs(change) > abs(strongest.change):
                effects[position] = _Effect(name, change)
    return effects


def _with_constant(offer: Offer, column: int, value: float) -> Offer:
    """The same offer, with one value in a column of all arms."""
    features = offer.arms.features.copy()
    features[:, column] = value
    return replace(offer, arms=Arms(ids=offer.arms.ids, features=features))


def _has_fixed_arms(policy: object) -> bool:
    """Whether arms are identified by their number, so that features cannot be changed."""
    learner = index_policy_of(policy)
    if learner is None:
        return False
    posterior: Any = learner.posterior
    return "arms" in posterior.parameters()


def _column_names(fold: Fold, width: int) -> Sequence[str]:
    encoding = fold.spec.encoding
    if encoding is not None:
        return encoding.names
    return [f"column {number}" for number in range(width)]
