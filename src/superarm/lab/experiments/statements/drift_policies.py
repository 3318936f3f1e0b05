"""Which policies the statements on drifting functions are about."""

from __future__ import annotations

import math

from superarm.kernels import Temporal
from superarm.lab.problems import DriftingFunction

from .recorded import RecordedRun


def forgetting_rate(recorded: RecordedRun, policy: str, index: int) -> float | None:
    """ε that TV-GP-UCB forgets by in a setting; ``None`` for other policies.

    Args:
        recorded: a finished run.
        policy: its name in the run.
        index: of the setting.
    """
    if recorded.algorithm(policy) != "tv-gp-ucb":
        return None
    if recorded.is_modified(policy, index):
        return None
    return assumed_drift(recorded, policy, index)


def assumed_drift(recorded: RecordedRun, policy: str, index: int) -> float | None:
    """ε by the policy's own option, or else that of the model.

    Args:
        recorded: a finished run.
        policy: its name in the run.
        index: of the setting.
    """
    options = recorded.options(policy, index)
    epsilon = options.get("epsilon")
    if epsilon is not None:
        return float(epsilon)
    first_seed = recorded.run.seeds[0]
    drift = recorded.world(first_seed, index).model.drift
    if isinstance(drift, Temporal):
        return drift.epsilon
    return None


def has_true_drift(
    recorded: RecordedRun, policy: str, index: int, world: DriftingFunction
) -> bool:
    """Whether a policy is TV-GP-UCB with the true ε.

    Args:
        recorded: a finished run.
        policy: its name in the run.
        index: of the setting.
        world: the problem in that setting.
    """
    return forgetting_rate(recorded, policy, index) == world.epsilon


def has_published_block(
    recorded: RecordedRun, policy: str, index: int, world: DriftingFunction
) -> bool:
    """Whether a policy is R-GP-UCB with the N of section 5.1 for the true ε.

    Args:
        recorded: a finished run.
        policy: its name in the run.
        index: of the setting.
        world: the problem in that setting.
    """
    if recorded.algorithm(policy) != "r-gp-ucb" or recorded.is_modified(policy, index):
        return False
    if recorded.options(policy, index).get("block") is not None:
        return False
    return assumed_drift(recorded, policy, index) == world.epsilon


def smoothness_of(world: DriftingFunction) -> float:
    """ν of the kernel; infinite for the squared exponential.

    Args:
        world: the problem.
    """
    return world.nu if world.kernel == "matern" else math.inf
