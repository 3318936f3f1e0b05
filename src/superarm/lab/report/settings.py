"""The settings of a run, and the command line that repeats it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from superarm.core.registry import names, parameters_of
from superarm.lab.results.formats import setting_text
from superarm.lab.simulation.run import Run

from .pages import fact_table, option_table, readable_value, section

_PLACE = {"problem.network": "--net", "problem.start": "--from", "problem.goal": "--to"}


def _swept_values(run: Run) -> dict[str, list[Any]]:
    """Every swept key with its values in order."""
    swept: dict[str, list[Any]] = {}
    for setting in run.settings:
        for key, value in setting.items():
            values = swept.setdefault(key, [])
            if value not in values:
                values.append(value)
    return swept


def settings_section(run: Run) -> str:
    """Write sizes, swept values, the problem's parameters and the policies' options.

    Args:
        run: The run.
    """
    swept = _swept_values(run)
    parameters = dict(run.spec.get("parameters") or {})
    problem = parameters.pop("problem", {})
    policies = parameters.pop("policies", {})
    # A swept key that the problem has is set there, and not in policies that have it too.
    problem_keys = problem
    if problem.get("name") in names("problem"):
        problem_keys = parameters_of("problem", problem["name"])
    swept_of_policies = set(swept) - set(problem_keys)
    options = {}
    for name, policy in policies.items():
        if name in run.policies:
            options[name] = _without_swept(policy, name, swept_of_policies)
    facts: dict[str, Any] = {
        "rounds": run.rounds,
        "seeds": run.seeds[0],
        "superarm": run.spec.get("version"),
    }
    if len(run.seeds) > 1:
        facts["seeds"] = f"{run.seeds[0]} … {run.seeds[-1]}"
    empty: tuple[Any, ...] = ({}, [], "")
    facts |= {key: value for key, value in parameters.items() if value not in empty}
    swept_texts = {}
    for key, values in swept.items():
        swept_texts[key] = ", ".join(readable_value(value) for value in values)
    parts = [
        fact_table("", facts),
        fact_table("Swept", swept_texts),
        fact_table("Problem", _without_swept(problem, "problem", set(swept))),
    ]
    if any(options.values()):
        parts.append(option_table("Policies", "name", options))
    parts += _interpretation_tables(run)
    return section("Settings", *parts)


def _without_swept(
    parameters: Mapping[str, Any], owner: str, swept: set[str]
) -> dict[str, Any]:
    """Parameters that are not swept, with their owner's name before them or without."""
    return {
        key: value
        for key, value in parameters.items()
        if key not in swept and f"{owner}.{key}" not in swept
    }


def _interpretation_tables(run: Run) -> Iterable[str]:
    """Interpretations that all settings share, then those in which they differ."""
    title = (
        "How unclear points were read" if run.spec.get("paper") else "How it was set up"
    )
    indices = range(len(run.settings))
    by_setting = [run.interpretations(index) for index in indices]
    shared = {
        key: text
        for key, text in by_setting[0].items()
        if all(texts.get(key) == text for texts in by_setting)
    }
    yield fact_table(title, shared)
    different = {}
    for setting, texts in zip(run.settings, by_setting, strict=True):
        others = {key: text for key, text in texts.items() if key not in shared}
        different[setting_text(setting)] = others
    if any(different.values()):
        yield option_table(f"{title}, where settings differ", "setting", different)


def reproduce_section(run: Run, command: Sequence[str] | None) -> str:
    """Write the command line that repeats a run; list values sweep.

    Args:
        run: The run.
        command: Its first words; ``None`` if no command line repeats it.
    """
    if command is None:
        text = "<p>This run was started from Python, so no command line repeats it.</p>"
        return section("Reproduce", text)
    words = [*command, "--rounds", str(run.rounds)]
    words += ["--seed", str(run.seeds[0]), "--seeds", str(len(run.seeds))]
    words += ["--policies", ",".join(run.policies)]
    for source in run.spec.get("imports", ()):  # shown, never imported from here
        words += ["--import", source]
    for key, value in run.spec.get("overrides", {}).items():
        if key in _PLACE and isinstance(value, str):
            words += [_PLACE[key], value]
        elif value is not None:  # --net sets a named route to null
            words += ["--set", f"{key}={json.dumps(value, ensure_ascii=False)}"]
    for key, values in _swept_values(run).items():
        words += ["--set", f"{key}={json.dumps(values, ensure_ascii=False)}"]
    line = shlex.join([*words, "--out", "OUT"])
    promise = "The same seeds give the same traces, byte for byte; timings differ."
    if "FILE.toml" in command:
        promise += f" FILE.toml stands for the file that describes {run.experiment}."
    return section(
        "Reproduce",
        f"<p>{escape(promise)}</p>",
        f"<pre><code>{escape(line)}</code></pre>",
    )
