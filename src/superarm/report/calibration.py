"""What a page says about forecasts: whether they were true."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from superarm.results import calibration as results
from superarm.simulation.audit import LEVELS
from superarm.simulation.trace import Run

from .pages import figure, policy_table


def calibration_parts(run: Run) -> Iterable[str]:
    """A sentence, a chart and a table; nothing where no forecasts were recorded."""
    picture = results.calibration_picture(run)
    if picture is None:
        return
    found, words = results.calibrations(run), results.words_of(run)
    arm, choice, reward, _ = words
    apart = (
        "Policies with independent edges (names starting with “bi”) ignore that errors on different "
        "roads are correlated, which makes their forecasts of trips too narrow."
        if words == results.ON_ROADS
        else "Seeds that meet the same recorded rewards are not independent, which the errors ignore."
    )
    yield (
        f"<p>{escape(results.calibration_verdict(found))}</p>"
        f"<p>Before each {choice} every learner forecast the {reward} of each {arm} and of the whole "
        f"{choice}; this is how often the measured {reward} fell inside the central 50, 90 and 95 % of "
        f"the forecast. If a model is right, then whatever it has seen, the next {choice} falls inside "
        f"with exactly that probability: the standard error of the share of {choice}s is binomial. "
        f"{arm.title()}s of one {choice} are correlated, so for {arm}s the error is taken over whole "
        f"{choice}s. Where settings are compared, all of them meet the same noise: what their "
        f"{choice}s of one round and seed share is part of the error. {apart} All policies meet the "
        "same noise, so chance affects them alike. Most of what is measured is noise that each learner "
        f"knows about; what it has learned is judged by {arm}s that were met for the first time, and "
        "by the truth behind the noise, where it is known. Truths of "
        f"successive {choice}s are much the same: their standard error is over seeds, and a single "
        "seed gives none.</p>"
    )
    yield figure(picture)
    for caption, every in (("What was measured", words.measured), ("The truth behind it", words.true)):
        kinds = [kind for kind in every if any(calibration[kind] for calibration in found.values())]
        titles = [f"{name} in {100 * level:.0f} %" for name in kinds for level in LEVELS]
        shares = [
            (policy, [cell for kind in kinds for cell in _percents(calibration[kind])])
            for policy, calibration in found.items()
        ]
        if kinds:
            yield policy_table(run, titles, shares, caption)
    yield (
        '<p class="meta">Observed share ± 1 standard error, in percent; bold where it is more than '
        "three standard errors away from its level (of the truth: by Student’s t of that many seeds, "
        "as unlikely as three).</p>"
    )


def _percents(levels: Sequence[results.Coverage]) -> list[str]:
    cells = []
    for each in levels:
        text = f"{100 * each.observed:.1f}" + f" ± {100 * each.stderr:.1f}" * (each.seeds != 1)
        cells.append(f"<b>{text}</b>" if abs(each.away) > results.OFF else text)
    return cells or ["–"] * len(LEVELS)
