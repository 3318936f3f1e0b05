"""The outcomes of all compositions as a page of Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from textwrap import wrap
from typing import NamedTuple

from .composition import Composition, Dimensions
from .playing import Outcome

Outcomes = Mapping[Composition, Outcome]

_SAMPLE_NUMBERS = re.compile(r"\b(arm|step|position|costs) -?\d[-+.e\d]*")
_WIDTH = 120  # characters of a line
_INTRODUCTION = """\
# Compositions

Which posterior works with which rule and which oracle? This page shows the outcome of every composition of
registered parts: each posterior, rule and oracle, for constant or drifting rewards, with free movement, a
switching cost or a metric, and with feedback that comes at once or late. Policies are `index` or, for a
metric, `tree-index`.

Every composition is built from a spec in plain JSON and plays a few rounds. Decisions must be feasible, and
deciding must not change the policy's state. Beliefs must be finite. Late feedback must be learned, or refused
if it is out of order and the posterior needs order. A restored policy must decide like the saved one. A high
switching cost must prevent switching, and drift must make the far future less certain.

A composition that makes no sense is refused, with a reason, when it is built or when it first decides.
{count}

`python -m superarm.testing.compositions --out docs/compositions.md` writes this page. With `--import
FILE.py` it includes your own parts ([how to add parts](extending.md)).

| mark | meaning |
|---|---|
| ● | runs with every drift, movement and feedback |
| ◐ | runs, except where the notes say otherwise |
| ○ | refused |

The numbers lead to the [notes](#notes): what is refused, and why. A note that begins with `static` (constant
rewards), `drifting`, `free`, a switching cost or a metric applies only there. The number beside a posterior
applies to its whole row: it refuses late feedback out of order.
"""
_SAMPLES = """\
Confidence widths are fixed, and rules with a parameter `scale` use "linear": by default
`expected-improvement` and `probability-of-improvement` only rank arms, which works only with `top-k` and
`group-top-k`, without switching costs. With a metric, the policy takes one action a round, like `top-k` with
k = 1.
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
    for rules, table in _grouped_rules(tables):
        blocks.append(f"## {', '.join(rules)}\n")
        blocks.append(_markdown(values, table, _order_notes(values, outcomes, numbers)))
    blocks.append("## Notes\n")
    blocks.append("\n".join(_note_lines(values, outcomes, numbers)) + "\n")
    return "\n".join(blocks)


def _note_of(reason: str) -> str:
    """The reason without numbers that depend on the sample, such as those of arms."""
    return _SAMPLE_NUMBERS.sub(r"\1 …", reason)


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
            cell_outcomes = [
                outcomes[Composition(posterior, rule, oracle, *others)]
                for others in _remaining_values(values)
            ]
            running = sum(outcome.runs for outcome in cell_outcomes)
            mark = "◐"
            if running in (0, len(cell_outcomes)):
                mark = "●" if running else "○"
            notes = {
                numbers[_note_of(outcome.reason)]
                for outcome in cell_outcomes
                if outcome.reason
            }
            cells[posterior, oracle] = _Cell(mark, tuple(sorted(notes)))
    return cells


def _remaining_values(values: Dimensions) -> Iterator[tuple[str, str, str]]:
    """Every drift with every movement and feedback."""
    for drift in values.drift:
        for movement in values.movement:
            for feedback in values.feedback:
                yield drift, movement, feedback


def _grouped_rules(
    tables: Mapping[str, _Table],
) -> Iterable[tuple[list[str], _Table]]:
    """Each different table, with the rules that have it."""
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
    """The notes as a numbered list: where each applies, then its text."""
    scopes = _scopes(outcomes)
    for note, number in numbers.items():
        yield from wrap(
            f"{number}. {_scope_prefix(values, scopes[note])}{note}",
            _WIDTH,
            subsequent_indent="   ",
            break_long_words=False,
            break_on_hyphens=False,
        )


class _Scope(NamedTuple):
    """The drifts and movements to which a note applies."""

    drifts: set[str]
    movements: set[str]


def _scopes(outcomes: Outcomes) -> Mapping[str, _Scope]:
    """Where each note applies."""
    scopes: dict[str, _Scope] = {}
    for composition, outcome in outcomes.items():
        for reason in (outcome.reason, outcome.order):
            if not reason:
                continue
            scope = scopes.setdefault(_note_of(reason), _Scope(set(), set()))
            scope.drifts.add(composition.drift)
            scope.movements.add(composition.movement)
    return scopes


def _scope_prefix(values: Dimensions, scope: _Scope) -> str:
    """``static; metric matrix: ``; empty if the note applies everywhere."""
    parts = []
    if len(scope.drifts) < len(values.drift):
        parts.append(", ".join(sorted(scope.drifts)))
    if len(scope.movements) < len(values.movement):
        parts.append(_movements_text(scope.movements))
    return f"{'; '.join(parts)}: " if parts else ""


def _movements_text(movements: set[str]) -> str:
    """``free, metric matrix or points``."""
    names: dict[str, list[str]] = {}
    for movement in sorted(movements):
        family, _, name = movement.partition(" ")
        names.setdefault(family, []).append(name)
    texts = []
    for family, members in names.items():
        texts.append(f"{family} {' or '.join(members)}".strip())
    return ", ".join(texts)
