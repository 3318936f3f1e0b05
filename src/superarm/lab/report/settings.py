"""What was run, and the command line that makes it again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from html import escape
from typing import Any

from superarm.core.registry import names, parameters_of
from superarm.lab.results.formats import setting_text
from superarm.lab.simulation.run import Run

from .pages import fact_table, option_table, readable_value, section

_PLACE = {"problem.network": "--net", "problem.start": "--from", "problem.goal": "--to"}


def _swept(run: Run) -> dict[str, list[Any]]:
    """Every swept key with its values in order."""
    swept: dict[str, list[Any]] = {}
    for key, value in (pair for setting in run.settings for pair in setting.items()):
        if value not in swept.setdefault(key, []):
            swept[key].append(value)
    return swept


def settings_section(run: Run) -> str:
    """What was run: sizes, what was swept, the problem's parameters, the policies' options."""
    swept = _swept(run)
    parameters = dict(run.spec.get("parameters") or {})
    given = parameters.pop("problem", {})
    problem = {k: v for k, v in given.items() if not {k, f"problem.{k}"} & set(swept)}
    # A swept key that the problem has is set there, and not in policies that have it too.
    known = given.get("name") in names("problem")
    of_policies = set(swept) - {
        *(parameters_of("problem", given["name"]) if known else given)
    }
    options = {
        name: {k: v for k, v in each.items() if not {k, f"{name}.{k}"} & of_policies}
        for name, each in parameters.pop("policies", {}).items()
        if name in run.policies
    }
    seeds: Any = (
        f"{run.seeds[0]} … {run.seeds[-1]}" if len(run.seeds) > 1 else run.seeds[0]
    )
    facts = {"rounds": run.rounds, "seeds": seeds, "superarm": run.spec.get("version")}
    facts |= {
        key: value for key, value in parameters.items() if value not in ({}, [], "")
    }
    told = {
        key: ", ".join(map(readable_value, values)) for key, values in swept.items()
    }
    parts = [
        fact_table("", facts),
        fact_table("Swept", told),
        fact_table("Problem", problem),
    ]
    if any(options.values()):
        parts.append(option_table("Policies", "name", options))
    title = "What was settled" if run.spec.get("paper") else "How it was set up"
    every = [run.interpretations(index) for index in range(len(run.settings))]
    shared = {
        k: v for k, v in every[0].items() if all(each.get(k) == v for each in every)
    }
    parts.append(fact_table(title, shared))
    apart = {
        setting_text(setting): {k: v for k, v in each.items() if k not in shared}
        for setting, each in zip(run.settings, every, strict=True)
    }
    if any(apart.values()):
        parts.append(option_table(f"{title}, where settings differ", "setting", apart))
    return section("Settings", *parts)


def reproduce_section(run: Run, command: Sequence[str] | None) -> str:
    """The command line that makes this run again; list values sweep."""
    if command is None:
        told = "<p>This run was started from Python, so no command line repeats it.</p>"
        return section("Reproduce", told)
    words = [*command, "--rounds", str(run.rounds)]
    words += ["--seed", str(run.seeds[0]), "--seeds", str(len(run.seeds))]
    words += ["--policies", ",".join(run.policies)]
    for source in run.spec.get("imports", ()):  # told, never imported from here
        words += ["--import", source]
    for key, value in run.spec.get("overrides", {}).items():
        if key in _PLACE and isinstance(value, str):
            words += [_PLACE[key], value]
        elif value is not None:  # null is what --net leaves of a named route
            words += ["--set", f"{key}={json.dumps(value, ensure_ascii=False)}"]
    for key, values in _swept(run).items():
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
