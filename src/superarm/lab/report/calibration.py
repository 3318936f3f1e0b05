"""The part of a page about forecasts: whether they were true."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from superarm.core import LEVELS, levels_text
from superarm.lab.results import calibration as results
from superarm.lab.results.settings import feedback_at_once
from superarm.lab.simulation.run import Run

from .pages import figure, policy_table

_PERCENT = "\N{NO-BREAK SPACE}%"  # never on a line of its own


def calibration_parts(run: Run) -> Iterable[str]:
    """Write sentences, a chart and tables; nothing where no forecasts were recorded.

    Args:
        run: The run.
    """
    picture = results.calibration_picture(run)
    if picture is None:
        return
    calibrations = results.calibrations(run)
    words = results.words_of(run)
    judged = _judged_subjects(calibrations)
    verdict = results.calibration_verdict(calibrations)
    yield f"<p>{escape(verdict)}</p><p>{_explanation(run, words, judged)}</p>"
    yield figure(picture)
    count = len(results.judged_shares(calibrations))
    limit = results.chance_limit(count)
    tables = (
        ("What was measured", words.measured),
        ("The truth behind it", words.true),
    )
    for caption, subjects in tables:
        shown = [subject for subject in subjects if subject in judged]
        if shown:
            yield _share_table(run, calibrations, shown, caption, limit)
    yield (
        '<p class="meta">Observed share ± 1 standard error, in percent. Bold: farther from its level '
        f"than chance explains, {limit:.2g} standard errors (by the binomial distribution and "
        f"Student’s t, for {count:,} shares judged at once).</p>"
    )


def _judged_subjects(calibrations: Mapping[str, results.Calibration]) -> set[str]:
    """Subjects of which some policy has a coverage."""
    judged = set()
    for calibration in calibrations.values():
        for subject, levels in calibration.items():
            if levels:
                judged.add(subject)
    return judged


def _explanation(run: Run, words: results.Words, judged: set[str]) -> str:
    """How to read the chart and the tables."""
    arm, choice, reward, first = words
    several = words.arms in judged
    noisy = not judged.isdisjoint(words.true)  # without a truth, no noise was added
    subject = f"the chosen {arm}"
    if several:
        subject = f"each {arm} and of the whole {choice}"
    levels = levels_text().replace(" %", _PERCENT)
    text = (
        f"Before each {choice}, every learner forecast the {reward} of {subject}. The chart and the "
        f"tables show how often the measured {reward} fell inside the central {levels} "
        f"intervals. If a model is right, the next {choice} falls inside with exactly that "
        "probability, whatever came before"
    )
    text += _between_rounds(run, choice)
    if several:
        text += (
            f"{arm.title()}s of one {choice} are correlated; the standard errors of {arm}s account for "
            "this. "
        )
    if len(run.settings) > 1:
        shared = "noise" if noisy else "measurements"
        text += (
            f"All settings share the same {shared}; the standard errors "
            f"account for the correlation between {choice}s of the same round and seed. "
        )
    text += _not_accounted_for(words)
    if noisy:
        new = f"{arm}s chosen for the first time" if several else first
        text += (
            " All policies share the same noise, so chance affects them alike. Most of what is measured is "
            f"noise of known size; {new} and the truth behind the noise show what a policy has learned. "
            f"The truth changes little from one {choice} to the next: its standard errors account for the "
            "correlation within a seed, and a single seed has none."
        )
    return text


def _between_rounds(run: Run, choice: str) -> str:
    """The end of a sentence about choices of different rounds, and its consequences."""
    indices = range(len(run.settings))
    if all(feedback_at_once(run, index) for index in indices):
        return f", so the standard error for {choice}s is binomial. "
    return (
        f". Feedback arrived late or was lost, so {choice}s made before it share errors: the standard "
        "errors account for the correlation within a seed, and a single seed has none. "
    )


def _not_accounted_for(words: results.Words) -> str:
    """A sentence about dependence that the standard errors ignore."""
    if words == results.ON_ROADS:
        return (
            "Policies with independent edges (names starting with “bi”) ignore that errors on different "
            "roads are correlated, which makes their forecasts of trips too narrow."
        )
    return (
        "Seeds that replay the same recorded rewards are not independent; the standard errors "
        "ignore this."
    )


def _share_table(
    run: Run,
    calibrations: Mapping[str, results.Calibration],
    subjects: Sequence[str],
    caption: str,
    limit: float,
) -> str:
    """Shares of every policy, by subject and level."""
    titles = []
    for subject in subjects:
        titles += [f"{subject} in {100 * level:.0f}{_PERCENT}" for level in LEVELS]
    rows = []
    for policy, calibration in calibrations.items():
        cells: list[str] = []
        for subject in subjects:
            cells += _percents(calibration[subject], limit)
        rows.append((policy, cells))
    return policy_table(run, titles, rows, caption)


def _percents(levels: Sequence[results.IntervalCoverage], limit: float) -> list[str]:
    """The shares of one policy and subject; those beyond ``limit`` are bold."""
    if not levels:
        return ["–"] * len(LEVELS)
    cells = []
    for coverage in levels:
        text = f"{100 * coverage.observed:.1f}"
        if coverage.seeds != 1:
            text += f" ± {100 * coverage.stderr:.1f}"
        cells.append(f"<b>{text}</b>" if abs(coverage.away) > limit else text)
    return cells
