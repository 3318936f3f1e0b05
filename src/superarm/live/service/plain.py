"""Values of the library as plain JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from superarm.live.answers import Answer, DecisionDetails
from superarm.live.bandit import Bandit
from superarm.live.explain import ArmReasons, Explanation
from superarm.live.shadow_report import ShadowReport

from . import bodies


def plain(value: Any) -> Any:
    """A value as plain JSON: tuples and arrays as lists, what has no JSON as text.

    Args:
        value: An action: a route, a slate, ids, a table of these.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return str(value)


def bandit_body(bandit: Bandit) -> bodies.BanditDetails:
    """A bandit as JSON.

    Args:
        bandit: The bandit.
    """
    return bodies.BanditDetails(
        name=bandit.name,
        created=bandit.created,
        spec=bandit.spec.as_json(),
        events=bandit.seq,
        pending=len(bandit.pending),
    )


def report_body(report: ShadowReport) -> bodies.ShadowReport:
    """The report of a challenger as JSON.

    Args:
        report: What it would have earned.
    """
    return bodies.ShadowReport(**asdict(report))


def decision_body(bandit: str, answer: Answer) -> bodies.Decision:
    """A decision as JSON.

    Args:
        bandit: The name of the bandit.
        answer: What it decided.
    """
    return bodies.Decision(**_decision_fields(bandit, answer))


def details_body(bandit: str, details: DecisionDetails) -> bodies.DecisionDetails:
    """A decision with its status, as JSON.

    Args:
        bandit: The name of the bandit.
        details: The decision.
    """
    return bodies.DecisionDetails(
        **_decision_fields(bandit, details.answer),
        status=details.status,
        time=details.time,
        awaiting=details.awaiting,
    )


def _decision_fields(bandit: str, answer: Answer) -> dict[str, Any]:
    guarantee = None
    if answer.guarantee is not None:
        guarantee = bodies.Guarantee(**answer.guarantee._asdict())
    return {
        "id": answer.id,
        "bandit": bandit,
        "action": plain(answer.action),
        "arms": answer.arms,
        "mean": _by_text(answer.mean),
        "std": _by_text(answer.std),
        "propensity": answer.propensity,
        "guarantee": guarantee,
    }


def explanation_body(explanation: Explanation) -> bodies.Explanation:
    """An explanation as JSON.

    Args:
        explanation: Why a bandit decided as it did.
    """
    return bodies.Explanation(
        decision=explanation.decision,
        arms=[_reasons_body(arm) for arm in explanation.arms],
        runner_up=[_reasons_body(arm) for arm in explanation.runner_up],
        margin=explanation.margin,
        teachers_refusal=explanation.teachers_refusal,
    )


def _reasons_body(arm: ArmReasons) -> bodies.ArmReasons:
    teachers = [bodies.Teacher(**teacher._asdict()) for teacher in arm.teachers]
    return bodies.ArmReasons(
        arm=arm.arm,
        mean=arm.mean,
        std=arm.std,
        index=arm.index,
        teachers=teachers,
        column=arm.column,
        effect=arm.effect,
    )


def _by_text(values: Mapping[Any, float]) -> dict[str, float]:
    return {str(arm): value for arm, value in values.items()}
