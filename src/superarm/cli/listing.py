"""What ``list``, ``show`` and ``data list`` print."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from superarm.core.data_files import describe as data_sets
from superarm.core.data_files import find as find_data
from superarm.core.docstrings import parameter_descriptions, prose
from superarm.core.errors import MissingDataError, SpecError
from superarm.core.registry import (
    families,
    family_description,
    find,
    in_words,
    kinds_of,
    names,
    parameters_of,
    suggestion,
)
from superarm.lab.experiments import experiment_ids, load_experiment
from superarm.lab.experiments.spec import GIVEN
from superarm.lab.results.formats import count_text
from superarm.lab.results.papers import spelled_out

from .common import print_json, say

Row = Mapping[str, Any]
_EXPERIMENTS = "a problem, policies and claims, ready to run"
_POLICY_ADVICE = (
    "In an experiment, any policy also takes `told`: a drift, kernel or noise_variance other "
    "than the problem's. One with a posterior also takes `wrapped`: the posteriors around it."
)
_MOST = 8  # parameters of a part that are listed beside its name


def list_family(family: str | None, as_json: bool) -> None:
    plurals = {
        f"{each[:-1]}ies" if each.endswith("y") else f"{each}s": each
        for each in families()
    }
    known = {
        **plurals,
        **{each: each for each in families()},
        "experiments": "experiments",
    }
    if family is None:
        members = {each: names(each) for each in families()} | {
            "experiments": experiment_ids()
        }
        rows: list[Row] = [
            {"family": each, "parts": len(found), "meaning": _family_meaning(each)}
            for each, found in members.items()
        ]
        advice = (
            "`superarm list FAMILY` lists its parts, `superarm show NAME` explains one."
        )
        _print("families", rows, as_json, advice=advice)
    elif family not in known:
        told = suggestion(family, known, command="superarm list")
        raise SpecError(f"there is no family {family!r}; {told}")
    elif family == "experiments":
        rows = [
            {
                "id": own.id,
                "figure": ", ".join(own.figure),
                "title": own.title,
                "paper": own.paper,
            }
            for own in map(load_experiment, experiment_ids())
        ]
        rows.sort(
            key=lambda row: (not row["paper"], row["id"])
        )  # what is beyond the papers comes last
        advice = "`superarm show ID` says more, `superarm run ID` runs one."
        _print("experiments", rows, as_json, by="paper", advice=advice)
    else:
        name = known[family]
        rows = [_part(name, each) for each in names(name)]
        if not as_json:
            rows = [
                {**row, "parameters": _signature(row["parameters"])} for row in rows
            ]
        _print(
            "parts",
            rows,
            as_json,
            by="family",
            advice=f"`superarm show {name}/NAME` explains one.",
        )


def show(name: str, as_json: bool) -> None:
    if name.endswith(".toml") or name in experiment_ids():
        _show_experiment(name, as_json)
        return
    everything = [f"{family}/{part}" for family in families() for part in names(family)]
    chosen = [each for each in everything if name in (each, each.partition("/")[2])]
    if not chosen:
        told = suggestion(
            name, [*experiment_ids(), *everything], command="superarm list"
        )
        raise SpecError(f"there is no part or experiment {name!r}; {told}")
    parts = [_part(*each.split("/", 1)) for each in chosen]
    if as_json:
        print_json({"parts": parts})
        return
    for part in parts:
        told = _prose(find(part["family"], part["name"]))
        say(f"{part['family']} {part['name']}\nin Python: {part['python']}\n\n{told}")
        advice = _POLICY_ADVICE if part["family"] == "policy" else ""
        _print("parameters", part["parameters"], as_json, advice=advice)


def list_data(as_json: bool) -> None:
    rows = []
    for each in data_sets():
        try:
            path: str | None = str(find_data(each.name))
        except MissingDataError:
            path = None
        row = {
            "name": each.name,
            "path": path,
            "origin": each.origin,
            "terms": each.terms,
        }
        rows.append({**row, "size": each.size, "command": each.command})
        if not as_json:
            say(f"{each.name}: {path or 'not found'}")
            say(f"    origin: {each.origin}\n    terms: {each.terms}")
            if each.size:
                say(f"    size: {each.size}")
            if each.command:
                say(f"    command: {each.command}")
    if as_json:
        print_json({"data": rows})


def _show_experiment(name: str, as_json: bool) -> None:
    experiment = load_experiment(name)
    plain = experiment.as_json()
    if as_json:
        print_json(plain)
        return
    figures = (
        f"Figure{'s' * (len(experiment.figure) > 1)} {', '.join(experiment.figure)}"
    )
    source = [plain["paper"], figures if experiment.figure else ""]
    lines = [
        ": ".join(filter(None, (experiment.id, experiment.title))),
        ", ".join(filter(None, source)),
        f"{count_text(experiment.rounds, 'round')}, {count_text(experiment.seeds, 'seed')}",
        f"problem: {_options(experiment.problem)}",
    ]
    lines += [f"swept: {_options(experiment.sweep)}"] if experiment.sweep else []
    for table, when in (("policies", ""), ("on_request", " (on request)")):
        for policy, options in plain[table].items():
            lines.append(f"policy {policy}{when}: {_options(options)}".rstrip(": "))
    lines += [f"claim: {claim['text']}" for claim in experiment.claims]
    say("\n".join([*filter(None, lines), f"Run it: superarm run {name}"]))


def _options(table: Row) -> str:
    return ", ".join(
        f"{key} = {json.dumps(each, ensure_ascii=False)}" for key, each in table.items()
    )


def _family_meaning(family: str) -> str:
    return _EXPERIMENTS if family == "experiments" else family_description(family)


# --- rows ----------------------------------------------------------------------------------


def _part(family: str, name: str) -> dict[str, Any]:
    part = find(family, name)
    kinds = kinds_of(part)
    meanings = parameter_descriptions(part)
    given = GIVEN if family in ("policy", "problem") else ()
    return {
        "name": name,
        "parameters": [
            _parameter(each, in_words(kinds.get(each, Any)), default, meanings)
            for each, default in parameters_of(family, name).items()
            if each not in given
        ],
        "meaning": _prose(part).partition("\n\n")[0].replace("\n", " "),
        "family": family,
        "python": f"{part.__module__}.{part.__qualname__}",
    }


def _parameter(name: str, kind: str, default: Any, meanings: Mapping[str, str]) -> Row:
    plain = isinstance(default, bool | int | float | str | list | tuple | None)
    return {
        "name": name,
        "type": kind,
        "required": default is inspect.Parameter.empty,
        "default": default if plain else None,
        "meaning": _readable(meanings.get(name, "")),
    }


def _signature(parameters: Sequence[Row]) -> str:
    """Names and defaults in one line; limits for fitting and the last of many are left out."""
    told = [
        each["name"] if each["required"] else f"{each['name']}={_cell(each['default'])}"
        for each in parameters
        if not each["name"].endswith("_bounds")
    ]
    return ", ".join(
        told if len(told) <= _MOST else [*told[:_MOST], f"… {len(told) - _MOST} more"]
    )


def _readable(text: str) -> str:
    """A docstring without its markup, papers by their titles."""
    return spelled_out(re.sub(r":\w+:`~?([^`]+)`|`+", r"\1", text))


def _prose(part: object) -> str:
    """The sentences of a docstring."""
    return _readable(prose(part))


# --- printing ------------------------------------------------------------------------------


def _print(
    key: str, rows: Sequence[Row], as_json: bool, *, by: str = "", advice: str = ""
) -> None:
    """Rows as JSON, or as tables: one for each value in the column ``by``, under that value."""
    if as_json:
        print_json({key: rows})
        return
    from .visible import print_table

    for title, group in groupby(rows, key=lambda row: row.get(by)):
        members = list(group)
        heads = [head for head in members[0] if head not in (by, "required", "python")]
        told = [
            {**row, "default": "required"} if row.get("required") else row
            for row in members
        ]
        cells = ([_cell(row[head]) for head in heads] for row in told)
        print_table(
            heads, cells, title="Beyond the papers" if title == "" else title or ""
        )
    if advice:
        say(advice)


def _cell(value: Any) -> str:
    words = {None: "–", True: "true", False: "false"}
    return words[value] if value is None or isinstance(value, bool) else str(value)
