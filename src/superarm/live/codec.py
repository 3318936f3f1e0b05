"""Keys of events, and arms as bytes."""

from __future__ import annotations

import numpy as np

from superarm.core import Arms, State
from superarm.core.errors import NotFoundError
from superarm.core.states import state_from_bytes, state_to_bytes


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


def no_decision(decision_id: str) -> NotFoundError:
    """The error for a decision that nobody took.

    Args:
        decision_id: Its id.
    """
    return NotFoundError(f"there is no decision {decision_id!r}")


def arms_to_bytes(arms: Arms) -> bytes:
    """Arms as bytes; equal arms give equal bytes.

    Args:
        arms: The arms.
    """
    state = State(
        kind="arms",
        schema=1,
        scalars={"ids": list(arms.ids)},
        arrays={"features": np.ascontiguousarray(arms.features)},
    )
    return state_to_bytes(state)


def arms_from_bytes(data: bytes) -> Arms:
    """The arms that bytes represent.

    Args:
        data: What :func:`arms_to_bytes` returned.
    """
    state = state_from_bytes(data)
    state.require("arms", 1, "Arms")
    return Arms(ids=state.scalar("ids"), features=state.array("features"))
