"""What a page says about forecasts: whether they were true."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from superarm.core import LEVELS
from superarm.lab.results import calibration as results
from superarm.lab.results.settings import feedback_at_once
from superarm.lab.simulation.run import Run

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
    judged = {
        kind
        for calibration in found.values()
        for kind, levels in calibration.items()
        if levels
    }
    several, noisy = (
        f"{arm}s" in judged,
        not judged.isdisjoint(words.true),
    )  # no truth: no noise added
    apart = (
        "Policies with independent edges (names starting with “bi”) ignore that errors on different "
        "roads are correlated, which makes their forecasts of trips too narrow."
        if words == results.ON_ROADS
        else "Seeds that replay the same recorded rewards are not independent; the standard errors "
        "ignore this."
    )
    each = f"each {arm} and of the whole {choice}" if several else f"the chosen {arm}"
    correlated = (
        f"{arm.title()}s of one {choice} are correlated; the standard errors of {arm}s account for "
        "this. "
    )
    compared = (
        f"All settings share the same {'noise' if noisy else 'measurements'}; the standard errors "
        f"account for the correlation between {choice}s of the same round and seed. "
    )
    late = (
        f"Feedback arrived late or was lost, so {choice}s made before it share errors: the standard "
        "errors account for the correlation within a seed, and a single seed has none. "
    )
    at_once = all(feedback_at_once(run, index) for index in range(len(run.settings)))
    unlikely = (
        f", so the standard error for {choice}s is binomial. "
        if at_once
        else f". {late}"
    )
    fresh = f"{arm}s that were met for the first time" if several else first
    noise = (
        " All policies share the same noise, so chance affects them alike. Most of what is measured is "
        f"noise of known size; {fresh} and the truth behind the noise show what a policy has learned. "
        f"The truth changes little from one {choice} to the next: its standard errors account for the "
        "correlation within a seed, and a single seed has none."
    )
    yield (
        f"<p>{escape(results.calibration_verdict(found))}</p>"
        f"<p>Before each {choice}, every learner forecast the {reward} of {each}. The chart and the "
        f"tables show how often the measured {reward} fell inside the central 50, 90 and 95 % "
        f"intervals. If a model is right, the next {choice} falls inside with exactly that "
        f"probability, whatever came before{unlikely}"
        f"{correlated * several}{compared * (len(run.settings) > 1)}{apart}{noise * noisy}</p>"
    )
    yield figure(picture)
    for caption, every in (
        ("What was measured", words.measured),
        ("The truth behind it", words.true),
    ):
        kinds = [
            kind
            for kind in every
            if any(calibration[kind] for calibration in found.values())
        ]
        titles = [
            f"{name} in {100 * level:.0f} %" for name in kinds for level in LEVELS
        ]
        shares = [
            (
                policy,
                [
                    cell
                    for kind in kinds
                    for cell in _percents(calibration[kind], limit)
                ],
            )
            for policy, calibration in found.items()
        ]
        if kinds:
            yield policy_table(run, titles, shares, caption)
    yield (
        '<p class="meta">Observed share ± 1 standard error, in percent. Bold: farther from its level '
        f"than chance explains, {limit:.2g} standard errors (by the binomial distribution and "
        f"Student’s t, for {count:,} shares judged at once).</p>"
    )


def _percents(levels: Sequence[results.IntervalCoverage], limit: float) -> list[str]:
    cells = []
    for each in levels:
        text = f"{100 * each.observed:.1f}" + f" ± {100 * each.stderr:.1f}" * (
            each.seeds != 1
        )
        cells.append(f"<b>{text}</b>" if abs(each.away) > limit else text)
    return cells or ["–"] * len(LEVELS)
