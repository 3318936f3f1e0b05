"""Settings, claims and defaults of everything that is shipped, compared with a snapshot.

A number that changes in a TOML file, or a default that a TOML file relies on, changes what an experiment
runs or claims. The snapshot makes such a change visible in review. After a change on purpose::

    python tests/lab/experiments/test_shipped_settings.py
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import superarm
from superarm.core.registry import find, names, parameters_of

ROOT = Path(superarm.__file__).parent / "lab" / "experiments"
SNAPSHOT = Path(__file__).with_name("shipped_settings.txt")
PROSE = {"id", "title", "paper", "figure"}
FAMILIES = ("problem", "policy", "schedule", "rule")


def experiments() -> dict[str, dict[str, Any]]:
    """Every shipped experiment's table, by id."""
    paths = {
        path.relative_to(ROOT).with_suffix("").as_posix(): path
        for path in sorted(ROOT.rglob("*.toml"))
    }
    return {
        name: tomllib.loads(path.read_text(encoding="utf-8"))
        for name, path in paths.items()
    }


def snapshot() -> str:
    lines = []
    for name, table in experiments().items():
        lines += [f"[{name}]", *setting_lines(table), ""]
    lines += ["[defaults]"]
    for family in FAMILIES:
        lines += default_lines(family)
    return "\n".join(lines) + "\n"


def setting_lines(table: Mapping[str, Any]) -> Iterator[str]:
    """One line for each setting, policy and claim; prose is omitted."""
    for key, value in table.items():
        if key == "claims":
            for claim in value:
                numbers = {
                    name: entry
                    for name, entry in claim.items()
                    if name not in ("text", "check")
                }
                yield f"claim {claim['check']}: {pairs_text(numbers)}"
        elif key in ("policies", "on_request"):
            for name, options in value.items():
                yield f"{key} {name}: {pairs_text(options)}".rstrip()
        elif key == "derived":
            for row in value:
                yield f"derived {pairs_text(row)}"
        elif isinstance(value, Mapping):
            for name, entry in value.items():
                yield f"{key} {name}={value_text(entry)}"
        elif key not in PROSE:
            yield f"{key} {value_text(value)}"


def pairs_text(table: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={value_text(value)}" for key, value in table.items())


def value_text(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"({pairs_text(value)})"
    if isinstance(value, list):
        return ",".join(map(value_text, value))
    return str(value)


def default_lines(family: str) -> Iterator[str]:
    """The plain defaults of each part of ours in a family."""
    for name in names(family):
        if not find(family, name).__module__.startswith("superarm."):
            continue  # a part of some test
        defaults = {
            key: value
            for key, value in parameters_of(family, name).items()
            if isinstance(value, int | float | str)
        }
        if defaults:
            yield f"{family} {name}: {pairs_text(defaults)}"


def test_settings_claims_and_defaults_are_those_of_the_snapshot() -> None:
    expected = SNAPSHOT.read_text(encoding="utf-8").splitlines()
    assert snapshot().splitlines() == expected, (
        f"if this is on purpose, run `python {Path(__file__).name}` in {SNAPSHOT.parent}"
    )


def test_margins_are_those_in_the_text_of_the_claim() -> None:
    """ "(2.5 to 7.5 %)" more is a ratio from 1.025 to 1.075, and less one from 0.925 to 0.975."""
    compared = 0
    for table in experiments().values():
        for claim in table.get("claims", []):
            limits = re.search(r"\(([\d.]+) to ([\d.]+) %\)", claim["text"])
            if limits is None:
                continue
            margins = sorted(abs(claim[key] - 1.0) for key in ("least", "most"))
            percentages = [float(limit) / 100.0 for limit in limits.groups()]
            assert margins == pytest.approx(percentages)
            compared += 1
    assert compared == 5


@pytest.mark.parametrize(
    ("name", "figure"),
    [("codependency", ["6", "7"]), ("crowdsourcing", ["2", "3", "4"]), ("movies", "5")],
)
def test_figures_of_the_paper(name: str, figure: str | list[str]) -> None:
    assert experiments()[f"combinatorial/{name}"]["figure"] == figure


if __name__ == "__main__":
    SNAPSHOT.write_text(snapshot(), encoding="utf-8")
