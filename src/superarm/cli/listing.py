"""Output of the commands ``list``, ``show`` and ``data list``."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any

from superarm.core.data_files import Dataset
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
from superarm.lab.experiments import Experiment, experiment_ids, load_experiment
from superarm.lab.experiments.parts import SUPPLIED_PARAMETERS
from superarm.lab.results.formats import count_text
from superarm.lab.results.papers import spelled_out

from .common import print_json, say

Row = Mapping[str, Any]
_EXPERIMENTS = "experiments"  # listed beside the families of parts
_EXPERIMENTS_MEANING = "a problem, policies and claims, ready to run"
_POLICY_ADVICE = (
    "In an experiment, any policy also takes `assumes`: a drift, kernel or noise_variance "
    "other than the problem's. One with a posterior also takes `wrapped`: the posteriors around it."
)
_MOST_PARAMETERS = 8  # of a part that are listed beside its name
_HIDDEN_COLUMNS = ("required", "python")  # only in JSON


def list_family(family: str | None, as_json: bool) -> None:
    """Print the parts of a family, the experiments, or all families.

    Args:
        family: A family, in the singular or plural; "experiments"; ``None`` for all families.
        as_json: Whether to print JSON.
    """
    if family is None:
        _list_families(as_json)
        return
    families_by_word = _families_by_word()
    if family not in families_by_word:
        advice = suggestion(family, families_by_word, command="superarm list")
        raise SpecError(f"there is no family {family!r}; {advice}")
    if family == _EXPERIMENTS:
        _list_experiments(as_json)
    else:
        _list_parts(families_by_word[family], as_json)


def _families_by_word() -> dict[str, str]:
    """The families by every word that names them: plurals and singulars."""
    words: dict[str, str] = {}
    for family in families():
        plural = f"{family[:-1]}ies" if family.endswith("y") else f"{family}s"
        words[plural] = family
        words[family] = family
    words[_EXPERIMENTS] = _EXPERIMENTS
    return words


def _list_families(as_json: bool) -> None:
    rows = [
        _family_row(family, names(family), family_description(family))
        for family in families()
    ]
    rows.append(_family_row(_EXPERIMENTS, experiment_ids(), _EXPERIMENTS_MEANING))
    advice = (
        "`superarm list FAMILY` lists its parts, `superarm show NAME` explains one."
    )
    _print("families", rows, as_json, advice=advice)


def _family_row(family: str, members: Sequence[str], meaning: str) -> Row:
    return {"family": family, "parts": len(members), "meaning": meaning}


def _list_experiments(as_json: bool) -> None:
    rows = [_experiment_row(load_experiment(name)) for name in experiment_ids()]
    # Experiments beyond the papers come last.
    rows.sort(key=lambda row: (not row["paper"], row["id"]))
    advice = "`superarm show ID` describes an experiment; `superarm run ID` runs it."
    _print("experiments", rows, as_json, by="paper", advice=advice)


def _experiment_row(experiment: Experiment) -> Row:
    return {
        "id": experiment.id,
        "figure": ", ".join(experiment.figure),
        "title": experiment.title,
        "paper": experiment.paper,
    }


def _list_parts(family: str, as_json: bool) -> None:
    rows = [_part_row(family, name) for name in names(family)]
    if not as_json:
        for row in rows:
            row["parameters"] = _signature(row["parameters"])
    advice = f"`superarm show {family}/NAME` explains one."
    _print("parts", rows, as_json, by="family", advice=advice)


def show(name: str, as_json: bool) -> None:
    """Print a part or an experiment.

    Args:
        name: A part's name, with or without its family; an experiment's id or file.
        as_json: Whether to print JSON.
    """
    if name.endswith(".toml") or name in experiment_ids():
        _show_experiment(name, as_json)
        return
    rows = _rows_of_parts(name)
    if as_json:
        print_json({"parts": rows})
        return
    for row in rows:
        text = _prose(find(row["family"], row["name"]))
        say(f"{row['family']} {row['name']}\nin Python: {row['python']}\n\n{text}")
        advice = _POLICY_ADVICE if row["family"] == "policy" else ""
        _print("parameters", row["parameters"], as_json, advice=advice)


def _rows_of_parts(name: str) -> list[dict[str, Any]]:
    """All parts of a name, which several families may use, or of ``family/name``."""
    full_names: list[str] = []
    rows: list[dict[str, Any]] = []
    for family in families():
        for part_name in names(family):
            full_name = f"{family}/{part_name}"
            full_names.append(full_name)
            if name in (full_name, part_name):
                rows.append(_part_row(family, part_name))
    if not rows:
        choices = [*experiment_ids(), *full_names]
        advice = suggestion(name, choices, command="superarm list")
        raise SpecError(f"there is no part or experiment {name!r}; {advice}")
    return rows


def list_data(as_json: bool) -> None:
    """Print every data set: where it is, its origin and its terms.

    Args:
        as_json: Whether to print JSON.
    """
    rows = [_data_row(dataset) for dataset in data_sets()]
    if as_json:
        print_json({"data": rows})
        return
    for row in rows:
        say(f"{row['name']}: {row['path'] or 'not found'}")
        for key in ("origin", "terms", "size", "command"):
            if row[key]:
                say(f"    {key}: {row[key]}")


def _data_row(dataset: Dataset) -> dict[str, str | None]:
    path = None
    with suppress(MissingDataError):
        path = str(find_data(dataset.name))
    return {
        "name": dataset.name,
        "path": path,
        "origin": dataset.origin,
        "terms": dataset.terms,
        "size": dataset.size,
        "command": dataset.command,
    }


def _show_experiment(name: str, as_json: bool) -> None:
    experiment = load_experiment(name)
    plain = experiment.as_json()
    if as_json:
        print_json(plain)
        return
    lines = [
        _joined(": ", experiment.id, experiment.title),
        _joined(", ", plain["paper"], _figures_text(experiment.figure)),
        f"{count_text(experiment.rounds, 'round')}, {count_text(experiment.seeds, 'seed')}",
        f"problem: {_options(experiment.problem)}",
    ]
    if experiment.sweep:
        lines.append(f"swept: {_options(experiment.sweep)}")
    lines += _policy_lines(plain["policies"])
    lines += _policy_lines(plain["on_request"], " (on request)")
    for claim in experiment.claims:
        lines.append(f"claim: {claim['text']}")
    lines.append(f"Run it: superarm run {name}")
    say(_joined("\n", *lines))


def _figures_text(figures: Sequence[str]) -> str:
    if not figures:
        return ""
    noun = "Figure" if len(figures) == 1 else "Figures"
    return f"{noun} {', '.join(figures)}"


def _policy_lines(policies: Mapping[str, Row], remark: str = "") -> list[str]:
    lines = []
    for name, options in policies.items():
        line = f"policy {name}{remark}: {_options(options)}"
        lines.append(line.rstrip(": "))
    return lines


def _joined(separator: str, *texts: str) -> str:
    """Texts that are not empty, with a separator between them."""
    return separator.join(filter(None, texts))


def _options(table: Row) -> str:
    options = []
    for key, value in table.items():
        text = json.dumps(value, ensure_ascii=False)
        options.append(f"{key} = {text}")
    return ", ".join(options)


# --- rows ----------------------------------------------------------------------------------


def _part_row(family: str, name: str) -> dict[str, Any]:
    part = find(family, name)
    summary, _, _ = _prose(part).partition("\n\n")
    return {
        "name": name,
        "parameters": _parameter_rows(family, name),
        "meaning": summary.replace("\n", " "),
        "family": family,
        "python": f"{part.__module__}.{part.__qualname__}",
    }


def _parameter_rows(family: str, name: str) -> list[Row]:
    part = find(family, name)
    kinds = kinds_of(part)
    descriptions = parameter_descriptions(part)
    # Experiments supply these themselves.
    supplied = SUPPLIED_PARAMETERS if family in ("policy", "problem") else ()
    rows: list[Row] = []
    for parameter, default in parameters_of(family, name).items():
        if parameter in supplied:
            continue
        kind = kinds.get(parameter, Any)
        is_plain = isinstance(default, bool | int | float | str | list | tuple | None)
        rows.append(
            {
                "name": parameter,
                "type": in_words(kind),
                "required": default is inspect.Parameter.empty,
                "default": default if is_plain else None,
                "meaning": _readable(descriptions.get(parameter, "")),
            }
        )
    return rows


def _signature(parameters: Sequence[Row]) -> str:
    """Names and defaults in one line, without limits for fitting; long lines are cut."""
    texts = []
    for parameter in parameters:
        name = parameter["name"]
        if name.endswith("_bounds"):
            continue
        required = parameter["required"]
        texts.append(name if required else f"{name}={_cell(parameter['default'])}")
    if len(texts) > _MOST_PARAMETERS:
        hidden = len(texts) - _MOST_PARAMETERS
        texts = [*texts[:_MOST_PARAMETERS], f"… {hidden} more"]
    return ", ".join(texts)


def _readable(text: str) -> str:
    """A docstring without markup, with titles for the keys of papers."""
    without_markup = re.sub(r":\w+:`~?([^`]+)`|`+", r"\1", text)
    return spelled_out(without_markup)


def _prose(part: object) -> str:
    """The sentences of a docstring, without parameters and examples."""
    return _readable(prose(part))


# --- printing ------------------------------------------------------------------------------


def _print(
    key: str, rows: Sequence[Row], as_json: bool, *, by: str = "", advice: str = ""
) -> None:
    """Print rows as JSON, or as one table for each value in the column ``by``.

    Args:
        key: The key of the rows in JSON.
        rows: Rows that are already grouped by that column.
        as_json: Whether to print JSON.
        by: The column whose values are the titles of the tables.
        advice: A line to print below the tables.
    """
    if as_json:
        print_json({key: rows})
        return
    from .visible import print_table

    for value, group in groupby(rows, key=lambda row: row.get(by)):
        members = list(group)
        heads = [
            head for head in members[0] if head != by and head not in _HIDDEN_COLUMNS
        ]
        cells = [_cells(row, heads) for row in members]
        title = "Beyond the papers" if value == "" else value or ""
        print_table(heads, cells, title=title)
    if advice:
        say(advice)


def _cells(row: Row, heads: Sequence[str]) -> list[str]:
    if row.get("required"):
        row = {**row, "default": "required"}
    return [_cell(row[head]) for head in heads]


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
