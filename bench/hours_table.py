"""The table of ``bench/hours.py``: a fleet with hours beside one without, by level and by hour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_WITH = "with hours"
_WITHOUT = "without"
_HEADER = (
    "trips at",
    "trips",
    "energy, Wh",
    "error with hours, Wh",
    "without, Wh",
    "inside 95 %",
    "without",
    "time, s",
    "error with hours, s",
    "without, s",
    "inside 95 %",
    "without",
)


def markdown(facts: Mapping[str, Any]) -> str:
    """A table for each city: root mean square errors, and shares inside 95 % intervals.

    Args:
        facts: What ``bench/hours.py`` measured.
    """
    return "\n\n".join(_city(name, found) for name, found in facts.items())


def _city(name: str, found: Mapping[str, Any]) -> str:
    cars = ", ".join(
        f"{rate:g} {level}" for level, rate in found["cars_an_hour"].items()
    )
    learned = (
        f"{found['trips_learned']} trips on {found['roads_visited']} roads learned"
    )
    lines = [f"**{name}**: {learned}; cars an hour: {cars}.", ""]
    lines.append(f"| {' | '.join(_HEADER)} |")
    lines.append(f"|---{'|---:' * (len(_HEADER) - 1)}|")
    for label, ours in found[_WITH].items():
        theirs = found[_WITHOUT][label]
        cells = (
            _label(label),
            str(ours["trips"]),
            f"{ours['energy_mean_wh']:.0f}",
            f"{ours['energy_rmse_wh']:.1f}",
            f"{theirs['energy_rmse_wh']:.1f}",
            f"{100.0 * ours['energy_inside']:.0f} %",
            f"{100.0 * theirs['energy_inside']:.0f} %",
            f"{ours['time_mean_s']:.0f}",
            f"{ours['time_rmse_s']:.0f}",
            f"{theirs['time_rmse_s']:.0f}",
            f"{100.0 * ours['time_inside']:.0f} %",
            f"{100.0 * theirs['time_inside']:.0f} %",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _label(label: str) -> str:
    if label == "all":
        return "all hours"
    if label[0].isdigit():
        return f"{label} h"
    return f"{label} demand"
