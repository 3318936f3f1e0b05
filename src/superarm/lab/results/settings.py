"""The settings of a run: their parameters, their data, and what is swept in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from superarm.core.errors import StateError
from superarm.lab.simulation.run import Run

from .verdicts import Sharing

_SYNTHETIC = ", synthetic data"  # how problems end the origin of data they generated


class Sweep(NamedTuple):
    """One panel of a sweep: the settings that differ in ``key`` alone."""

    key: str
    fixed: Mapping[str, Any]
    values: list[Any]
    settings: list[int]


def sweeps(run: Run, key: str | None = None) -> list[Sweep]:
    """Arrange the run's settings in panels along a swept key, in its order.

    Args:
        run: The run.
        key: The key; by default the one with most numbers. A key with texts is used only
            if you name it, and its order is that of the settings.
    """
    values = _swept_values(run, key)
    if not key:
        key = _most_swept_key(values)
    if key not in values:
        return []
    indices = list(range(len(run.settings)))
    has_texts = any(isinstance(value, str) for value in values[key])
    if not has_texts:
        indices.sort(key=lambda index: run.settings[index].get(key, 0))
    panels = _panels(run, key, indices)
    return [panel for panel in panels if len(panel.values) > 1]


def _panels(run: Run, key: str, indices: Iterable[int]) -> Iterable[Sweep]:
    """The settings at these positions, one panel for equal values of the other keys."""
    panels: dict[str, Sweep] = {}  # by the values of the other keys
    for index in indices:
        setting = run.settings[index]
        fixed = dict(setting)
        fixed.pop(key, None)
        others = repr(sorted(fixed.items()))
        panel = panels.setdefault(others, Sweep(key, fixed, [], []))
        if key in setting:
            panel.values.append(setting[key])
            panel.settings.append(index)
    return panels.values()


def _most_swept_key(values: Mapping[str, set[Any]]) -> str:
    """The key with most values; empty where each has one only."""
    most_swept = ""
    most = 1
    for key, distinct in values.items():
        if len(distinct) > most:
            most_swept = key
            most = len(distinct)
    return most_swept


def _swept_values(run: Run, key: str | None) -> dict[str, set[Any]]:
    """Numbers of every key in the settings; of ``key`` texts, too."""
    values: dict[str, set[Any]] = {}
    for setting in run.settings:
        for name, value in setting.items():
            is_text = name == key and isinstance(value, str)
            if is_text or _is_number(value):
                values.setdefault(name, set()).add(value)
    return values


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def matches(run: Run, setting: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    """Whether a setting has the values that ``where`` selects.

    A key that is not swept has the value of the problem's parameter.

    Args:
        run: The run.
        setting: One of its settings.
        where: For each key, a value or a list of values.
    """
    tables = run.spec.get("parameters") or {}
    parameters = {**tables.get("problem", {}), **setting}
    for key, selected in where.items():
        value = parameters.get(key)
        if value == selected:
            continue
        if not isinstance(selected, list) or value not in selected:
            return False
    return True


def parameters_of(run: Run, owner: str, setting_index: int) -> dict[str, Any]:
    """The parameters of the problem, the feedback or a policy in a setting.

    Args:
        run: The run.
        owner: "problem", "feedback" or a policy's name. Keys of a setting may begin with
            it and a dot.
        setting_index: The setting's position in the run.
    """
    tables = run.spec.get("parameters") or {}
    if owner not in ("problem", "feedback"):
        tables = tables.get("policies") or {}
    parameters = tables.get(owner) or {}
    if not isinstance(parameters, Mapping):
        raise StateError(
            f"{run.directory / 'run.json'} is damaged: {owner} must be a table, got {parameters!r:.40}"
        )
    setting = run.settings[setting_index]
    prefix = f"{owner}."
    named = {key.removeprefix(prefix): value for key, value in setting.items()}
    return {**parameters, **setting, **named}


def feedback_at_once(run: Run, setting_index: int) -> bool:
    """Whether all rewards of a round arrived before the next, and none was lost.

    Args:
        run: The run.
        setting_index: The setting's position in the run.
    """
    feedback = parameters_of(run, "feedback", setting_index)
    problem = parameters_of(run, "problem", setting_index)
    late = feedback.get("latest") or problem.get("late") is not None
    return not late and not feedback.get("lost")


def sharing_of(run: Run, settings: Sequence[int]) -> Sharing:
    """What seeds have in common, in the setting in which they have most.

    Args:
        run: The run.
        settings: Positions of some of its settings.
    """
    shares = [run.shared_data(index) for index in settings]
    seeds = [run.independent_seeds(index) for index in settings]
    return Sharing(share=max(shares), independent=min(seeds))


def synthetic_data(run: Run, setting_index: int | None = None) -> str:
    """Describe the data of a setting if they are synthetic; else return an empty text.

    Args:
        run: The run.
        setting_index: The setting's position in the run; by default all settings.
    """
    if setting_index is not None:
        origin = run.interpretations(setting_index).get("data", "")
        return origin.removesuffix(_SYNTHETIC) if origin.endswith(_SYNTHETIC) else ""
    count = len(run.settings)
    origins = [synthetic_data(run, index) for index in range(count)]
    synthetic = [origin for origin in origins if origin]
    if not synthetic:
        return ""
    text = "; ".join(dict.fromkeys(synthetic))
    if len(synthetic) == count:
        return text
    return f"{text} (in {len(synthetic)} of {count} settings)"
