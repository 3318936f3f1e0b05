"""What a page says about forecasts: whether they were true."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from superarm.core import LEVELS
from superarm.results import calibration as results
from superarm.results.curves import feedback_at_once
from superarm.simulation.trace import Run

from .pages import figure, policy_table


def calibration_parts(run: Run) -> Iterable[str]:
    """A sentence, a chart and a table; nothing where no forecasts were recorded."""
    picture = results.calibration_picture(run)
    if picture is None:
        return
    found, words = results.calibrations(run), results.words_of(run)
    count = len(results.judged_shares(found))
    limit = results.chance_limit(count)
    arm, choice, reward, first = words
    judged = {kind for calibration in found.values() for kind, levels in calibration.items() if levels}
    several, noisy = f"{arm}s" in judged, not judged.isdisjoint(words.true)  # no truth: no noise added
    apart = (
        "Policies with independent edges (names starting with “bi”) ignore that errors on different "
        "roads are correlated, which makes their forecasts of trips too narrow."
        if words == results.ON_ROADS
        else "Where all seeds meet the same recorded rewards, they are not independent; the errors "
        "ignore this."
    )
    each = f"each {arm} and of the whole {choice}" if several else f"the chosen {arm}"
    correlated = (
        f"{arm.title()}s of one {choice} are correlated, so for {arm}s the error counts by how much "
        f"those of one {choice} go together. "
    )
    compared = (
        f"Settings that are compared meet the same {'noise' if noisy else 'measurements'}; the error "
        f"takes into account what their {choice}s of the same round and seed have in common. "
    )
    late = (
        f"Feedback came late or was lost, so {choice}s that were made before it are wrong together: "
        "all standard errors count by how much those of one seed go together, and a single seed gives "
        "none. "
    )
    at_once = all(feedback_at_once(run, index) for index in range(len(run.settings)))
    binomial = f"the standard error of the share of {choice}s is binomial"
    unlikely = f"{binomial}. " if at_once else f"if feedback came at once, {binomial}. {late}"
    fresh = f"{arm}s that were met for the first time" if several else first
    noise = (
        " All policies meet the same noise, so chance affects them alike. Most of what is measured is "
        f"noise that each learner knows about; what it has learned is judged by {fresh}, and by the "
        f"truth behind the noise. Truths of successive {choice}s are much the same: their standard "
        "error counts by how much those of one seed go together, and a single seed gives none."
    )
    yield (
        f"<p>{escape(results.calibration_verdict(found))}</p>"
        f"<p>Before each {choice} every learner forecast the {reward} of {each}; this is how often the "
        f"measured {reward} fell inside the central 50, 90 and 95 % of the forecast. If a model is "
        f"right, then whatever it has seen, the next {choice} falls inside with exactly that "
        f"probability: {unlikely}"
        f"{correlated * several}{compared * (len(run.settings) > 1)}{apart}{noise * noisy}</p>"
    )
    yield figure(picture)
    for caption, every in (("What was measured", words.measured), ("The truth behind it", words.true)):
        kinds = [kind for kind in every if any(calibration[kind] for calibration in found.values())]
        titles = [f"{name} in {100 * level:.0f} %" for name in kinds for level in LEVELS]
        shares = [
            (policy, [cell for kind in kinds for cell in _percents(calibration[kind], limit)])
            for policy, calibration in found.items()
        ]
        if kinds:
            yield policy_table(run, titles, shares, caption)
    yield (
        '<p class="meta">Observed share ± 1 standard error, in percent; bold where it is farther from '
        f"its level than chance explains: {limit:.2g} standard errors, by the binomial distribution "
        f"and Student’s t, as {count:,} shares are judged at once.</p>"
    )


def _percents(levels: Sequence[results.Coverage], limit: float) -> list[str]:
    cells = []
    for each in levels:
        text = f"{100 * each.observed:.1f}" + f" ± {100 * each.stderr:.1f}" * (each.seeds != 1)
        cells.append(f"<b>{text}</b>" if abs(each.away) > limit else text)
    return cells or ["–"] * len(LEVELS)
