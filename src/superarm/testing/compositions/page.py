"""The outcomes of all compositions as a page of Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from textwrap import wrap
from typing import NamedTuple

from .composition import Composition, Dimensions
from .playing import Outcome

Outcomes = Mapping[Composition, Outcome]

_OF_THE_SAMPLE = re.compile(r"\b(arm|step|position|costs) -?\d[-+.e\d]*")
_WIDTH = 120  # characters of a line
_INTRODUCTION = """\
# Compositions

Which posterior works with which rule and which oracle? This page shows the outcome of every composition of
registered parts: each posterior, rule and oracle, for rewards that stay as they are or drift, with free
movement, a switching cost or a metric, and with feedback that comes at once or late. Policies are `index`
or, for a metric, `tree-index`. Every composition is built from a spec in plain JSON and plays a few rounds.
Decisions must be feasible and change nothing, beliefs finite, and late feedback learned. A policy that was
saved and restored must decide alike. A switching cost must hold the policy back, and drift must make the
far future uncertain.

A composition that makes no sense is refused, with a reason, when it is built or when it first decides.
{count}

`python -m superarm.testing.compositions --out docs/compositions.md` writes this page. With `--import
FILE.py` it includes your own parts ([how to add parts](extending.md)).

| mark | meaning |
|---|---|
| ● | runs with every drift, movement and feedback |
| ◐ | runs, except where the notes say otherwise |
| ○ | refused |
"""
_SAMPLES = """\
Samples have fixed widths, and `scale="linear"` where a rule has it: by default `expected-improvement` and
`probability-of-improvement` only rank arms, which works with `top-k` and `group-top-k` without switching
costs. A metric moves by one action a round, as `top-k` does with k = 1.
"""


class _Cell(NamedTuple):
    """The compositions of one posterior and one oracle, with one rule."""

    mark: str
    notes: tuple[int, ...]

    @property
    def text(self) -> str:
        return " ".join([self.mark, *_links_to(self.notes)])


_Table = Mapping[tuple[str, str], _Cell]  # by posterior and oracle


def page(values: Dimensions, outcomes: Outcomes) -> str:
    """The page, in Markdown.

    Args:
        values: The values of every dimension.
        outcomes: The outcome of every composition of these values.
    """
    numbers = _numbered_notes(outcomes)
    tables = {rule: _table(rule, values, outcomes, numbers) for rule in values.rule}
    running = sum(outcome.runs for outcome in outcomes.values())
    count = f"{running:,} of {len(outcomes):,} compositions run."
    blocks = [_INTRODUCTION.format(count=count), _SAMPLES]
    for rules, table in _alike(tables):
        blocks.append(f"## {', '.join(rules)}\n")
        blocks.append(_markdown(values, table, _order_notes(values, outcomes, numbers)))
    blocks.append("## Notes\n")
    blocks.append("\n".join(_note_lines(values, outcomes, numbers)) + "\n")
    return "\n".join(blocks)


def _note_of(reason: str) -> str:
    """The reason without numbers of arms and the like, which depend on the sample."""
    return _OF_THE_SAMPLE.sub(r"\1 …", reason)


def _numbered_notes(outcomes: Outcomes) -> dict[str, int]:
    """All notes, numbered in the order in which they first appear."""
    numbers: dict[str, int] = {}
    for outcome in outcomes.values():
        for reason in (outcome.reason, outcome.order):
            if reason:
                numbers.setdefault(_note_of(reason), len(numbers) + 1)
    return numbers


def _table(
    rule: str, values: Dimensions, outcomes: Outcomes, numbers: Mapping[str, int]
) -> _Table:
    """The cells of one rule."""
    cells = {}
    for posterior in values.posterior:
        for oracle in values.oracle:
            chosen = [
                outcomes[Composition(posterior, rule, oracle, *others)]
                for others in _others(values)
            ]
            running = sum(outcome.runs for outcome in chosen)
            mark = "◐"
            if running in (0, len(chosen)):
                mark = "●" if running else "○"
            notes = {
                numbers[_note_of(outcome.reason)]
                for outcome in chosen
                if outcome.reason
            }
            cells[posterior, oracle] = _Cell(mark, tuple(sorted(notes)))
    return cells


def _others(values: Dimensions) -> Iterator[tuple[str, str, str]]:
    for drift in values.drift:
        for movement in values.movement:
            for feedback in values.feedback:
                yield drift, movement, feedback


def _alike(tables: Mapping[str, _Table]) -> Iterable[tuple[list[str], _Table]]:
    """Rules by their table: those with the same one share it."""
    groups: list[tuple[list[str], _Table]] = []
    for rule, table in tables.items():
        for rules, shared in groups:
            if shared == table:
                rules.append(rule)
                break
        else:
            groups.append(([rule], table))
    return groups


def _order_notes(
    values: Dimensions, outcomes: Outcomes, numbers: Mapping[str, int]
) -> Mapping[str, tuple[int, ...]]:
    """Notes on the order of late feedback, by posterior."""
    notes: dict[str, set[int]] = {posterior: set() for posterior in values.posterior}
    for composition, outcome in outcomes.items():
        if outcome.order:
            notes[composition.posterior].add(numbers[_note_of(outcome.order)])
    return {posterior: tuple(sorted(found)) for posterior, found in notes.items()}


def _markdown(
    values: Dimensions, table: _Table, order_notes: Mapping[str, tuple[int, ...]]
) -> str:
    head = ["posterior", *values.oracle]
    lines = [_row(head), _row(["---"] * len(head))]
    for posterior in values.posterior:
        label = " ".join([f"`{posterior}`", *_links_to(order_notes[posterior])])
        cells = [table[posterior, oracle].text for oracle in values.oracle]
        lines.append(_row([label, *cells]))
    return "\n".join(lines) + "\n"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _links_to(notes: Iterable[int]) -> list[str]:
    return [f"<sup>{note}</sup>" for note in notes]


def _note_lines(
    values: Dimensions, outcomes: Outcomes, numbers: Mapping[str, int]
) -> Iterator[str]:
    """A numbered line for each note: where it applies, then its words."""
    where: dict[int, list[set[str]]] = {}
    for composition, outcome in outcomes.items():
        for reason in (outcome.reason, outcome.order):
            if not reason:
                continue
            found = where.setdefault(numbers[_note_of(reason)], [set(), set()])
            found[0].add(composition.drift)
            found[1].add(composition.movement)
    for note, number in numbers.items():
        drifts, movements = where[number]
        places = []
        if len(drifts) < len(values.drift):
            places.append(", ".join(sorted(drifts)))
        if len(movements) < len(values.movement):
            places.append(_movements_text(movements))
        prefix = f"{'; '.join(places)}: " if places else ""
        text = f"{number}. {prefix}{note}"
        yield from wrap(
            text,
            _WIDTH,
            subsequent_indent="   ",
            break_long_words=False,
            break_on_hyphens=False,
        )


def _movements_text(movements: set[str]) -> str:
    """``metric matrix and points``."""
    names: dict[str, list[str]] = {}
    for movement in sorted(movements):
        family, _, name = movement.partition(" ")
        names.setdefault(family, []).append(name)
    texts = []
    for family, members in names.items():
        texts.append(f"{family} {' or '.join(members)}".strip())
    return ", ".join(texts)
