"""Keys of events: a repeated request has the key of the event that recorded it first."""

from __future__ import annotations

from superarm.core import Feedback

from .codec import digest


def decided_key(decision_id: str) -> str:
    """The key of the event that records a decision.

    Args:
        decision_id: The id of the decision.
    """
    return f"decision/{decision_id}"


def abandoned_key(decision_id: str) -> str:
    """The key of the event that records that a decision was abandoned.

    Args:
        decision_id: The id of the decision.
    """
    return f"abandoned/{decision_id}"


def activated_key(decision_id: str) -> str:
    """The key of the event that records that a deferred decision awaits its rewards.

    Args:
        decision_id: The id of the decision.
    """
    return f"activated/{decision_id}"


def observed_key(
    decision_id: str, feedback: Feedback, observation_id: str | None
) -> str:
    """The key of the event that records rewards of a decision.

    Args:
        decision_id: The id of the decision.
        feedback: The rewards.
        observation_id: The id of the rewards; ``None``: their arms identify them.
    """
    if observation_id is not None:
        return f"observation/{decision_id}/{observation_id}"
    positions = sorted(feedback.positions.tolist())
    text = ",".join(str(position) for position in positions)
    return f"rewards/{decision_id}/{digest(text.encode())}"


def request_key(verb: str, request_id: str) -> str:
    """The key of the event that records a change of the bandit itself, where the request has an id.

    Args:
        verb: What was requested: ``"refit"``, ``"shadow"`` or ``"switch"``.
        request_id: The id of the request.
    """
    return f"{verb}/{request_id}"


def history_key(observation_id: str) -> str:
    """The key of the event that records rewards of other decisions than the bandit's.

    Args:
        observation_id: The id of the rewards.
    """
    return f"history/{observation_id}"
