"""The part of a page about roads: energy per trip, and maps."""

from __future__ import annotations

from collections.abc import Iterable

from superarm.lab.results.formats import plus_minus, setting_text
from superarm.lab.results.maps import visit_pictures
from superarm.lab.results.roads import main_policies, trip_energies, trip_settings
from superarm.lab.simulation.run import Run

from .pages import figure, policy_table, section

_OF_ONE_TRIP = (
    "Regret counts every edge's energy from zero upwards, as in Bayesian Analysis of Combinatorial "
    "Gaussian Process Bandits (2025), and so gives no credit for downhill roads; compare routes that "
    "use them (names ending in “potential”) here. "
)


def road_sections(run: Run) -> list[str]:
    """Write the sections that only runs on roads have: energy per trip, and maps.

    Args:
        run: The run.
    """
    maps = map(figure, visit_pictures(run, main_policies(run)))
    return [
        section("Energy per trip", *_energy_parts(run)),
        section("Where they drove", *maps),
    ]


def _energy_parts(run: Run) -> Iterable[str]:
    """Energy per trip, over all rounds and in the first and last tenth, for every trip."""
    tables = []
    for index in trip_settings(run):
        energies = trip_energies(run, index)
        if not energies:
            continue
        rows = []
        for policy, averages in energies.items():
            cells = [plus_minus(*average) for average in averages.values()]
            rows.append((policy, cells))
        titles = [*next(iter(energies.values()))]
        caption = setting_text(run.settings[index])
        tables.append(policy_table(run, titles, rows, caption))
    if tables:
        roads = run.road_map(trip_settings(run)[0])
        yield (
            "<p>True energy of the routes driven: what the trips cost on average, without noise. "
            f"{_OF_ONE_TRIP if roads is not None and roads.ends else ''}Differences are "
            "taken seed by seed: they are known more precisely than the energies themselves, which "
            "change with the world of each seed.</p>"
        )
        yield from tables
