"""What a page says about a run on roads: maps, energy per trip, and whether forecasts were true."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from html import escape

from superarm.results.curves import plus_minus, setting_text
from superarm.results.maps import visit_pictures
from superarm.results.roads import (
    MEASURED,
    OFF,
    TRUE,
    Coverage,
    calibration_picture,
    calibration_verdict,
    calibrations,
    called,
    main_policies,
    on_roads,
    trip_energies,
    trip_settings,
)
from superarm.simulation.audit import LEVELS
from superarm.simulation.trace import Run

from .pages import figure, policy_table, section


def road_sections(run: Run) -> list[str]:
    """What only runs on roads have: energy per trip, maps, and whether forecasts were true."""
    parts = {
        "Energy per trip": _energy_parts(run),
        "Where they drove": (figure(each) for each in visit_pictures(run, main_policies(run))),
        "Did the forecasts hold?": _calibration_parts(run),
    }
    made = {title: list(pieces) for title, pieces in parts.items()}
    return [section(title, *pieces) for title, pieces in made.items() if pieces]


def _energy_parts(run: Run) -> Iterable[str]:
    """Energy per trip, over all rounds and in the first and last tenth, for every trip."""
    tables = [_energy_table(run, index) for index in trip_settings(run)]
    if any(tables):
        yield (
            "<p>True energy of the routes driven: what the trips cost on average, without noise. "
            "Regret counts every edge's energy from zero upwards, as in Bayesian Analysis "
            "of Combinatorial Gaussian Process Bandits (2025), and so gives no credit for downhill "
            "roads; compare routes that use them (names ending in “potential”) here. Differences are "
            "taken seed by seed: they are known more precisely than the energies themselves, which "
            "change with the world of each seed.</p>"
        )
        yield from tables


def _energy_table(run: Run, index: int) -> str:
    found = trip_energies(run, index)
    rows = [(policy, [plus_minus(*each) for each in row.values()]) for policy, row in found.items()]
    titles = next(([*row] for row in found.values()), [])
    return policy_table(run, titles, rows, setting_text(run.settings[index])) if rows else ""


def _calibration_parts(run: Run) -> Iterable[str]:
    """A sentence, a chart and a table; nothing where no forecasts were recorded."""
    picture = calibration_picture(run)
    if picture is None:
        return
    found = calibrations(run)
    yield (
        f"<p>{escape(calibration_verdict(found, partial(called, run)))}</p>"
        + (_ROADS if on_roads(run) else _ARMS)
    )
    yield figure(picture)
    for caption, kinds in (("What was measured", MEASURED), ("The truth behind it", TRUE)):
        titles = [f"{called(run, name)} in {100 * level:.0f} %" for name in kinds for level in LEVELS]
        shares = [
            (policy, [cell for kind in kinds for cell in _percents(calibration[kind])])
            for policy, calibration in found.items()
        ]
        if any(calibration[kind] for calibration in found.values() for kind in kinds):
            yield policy_table(run, titles, shares, caption)
    yield (
        '<p class="meta">Observed share ± 1 standard error, in percent; bold where it is more than '
        "three standard errors away from its level (of the truth: by Student’s t of that many seeds, "
        "as unlikely as three).</p>"
    )


_ROADS = (
    "<p>Before each trip every learner forecast the energy of each edge and of the whole trip; "
    "this is how often the measured energy fell inside the central 50, 90 and 95 % of the "
    "forecast. If a model is right, then whatever it has seen, the next trip falls inside with "
    "exactly that probability: the standard error of the share of trips is binomial. Edges of one "
    "trip are correlated, so for edges the error is taken over whole trips. Where settings are "
    "compared, all of them meet the same noise: what their trips of one round and seed share is "
    "part of the error. Policies with independent edges (names starting with “bi”) ignore that "
    "errors on different roads are correlated, which makes their forecasts of trips too narrow. "
    "All policies meet the same noise, so chance affects them alike. Most of what is measured is "
    "noise that every learner knows about; what it has learned is judged by roads driven on for "
    "the first time, and by the truth behind the noise, where it is known. A truth stays the same "
    "from trip to trip: its standard error is over seeds, and a single seed gives none.</p>"
)
_ARMS = (
    "<p>Before each round every learner forecast the reward of each arm that it chose, and their sum; "
    "this is how often they fell inside the central 50, 90 and 95 % of the forecast. If a model is "
    "right, then whatever it has seen, the next one falls inside with exactly that probability. Rounds "
    "of seeds that meet the same rewards are not independent, which the errors ignore.</p>"
)


def _percents(levels: Sequence[Coverage]) -> list[str]:
    if not levels:
        return ["–"] * len(LEVELS)
    cells = [
        f"{100 * each.observed:.1f}" + f" ± {100 * each.stderr:.1f}" * (each.seeds != 1)
        for each in levels
    ]
    wrong = [abs(each.away) > OFF for each in levels]
    return [f"<b>{cell}</b>" if off else cell for cell, off in zip(cells, wrong, strict=True)]
