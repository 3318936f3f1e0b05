"""docs/papers.md has a row for everything that the five papers number, and counts them right."""

from __future__ import annotations

import importlib
import re
import tomllib
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from superarm.lab.results.papers import _TITLES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
STATUSES = ("landed", "holds", "does not hold", "undecided")
KINDS = {
    "eq.": "eq.",
    "eqs.": "eq.",
    "Theorem": "Theorem",
    "Theorems": "Theorem",
    "Lemma": "Lemma",
    "Lemmas": "Lemma",
    "Corollary": "Corollary",
    "Corollaries": "Corollary",
    "Proposition": "Proposition",
    "Propositions": "Proposition",
    "Definition": "Definition",
    "Definitions": "Definition",
    "Assumption": "Assumption",
    "Assumptions": "Assumption",
    "Algorithm": "Algorithm",
    "Algorithms": "Algorithm",
    "Figure": "Figure",
    "Figures": "Figure",
    "Table": "Table",
    "Tables": "Table",
}
PAPERS = sorted((ROOT / "tests" / "papers").glob("*.toml"))


class Row(NamedTuple):
    items: str
    statement: str
    place: str
    status: str


def split_cells(line: str) -> list[str]:
    """The cells of a Markdown table's row; an escaped bar separates nothing."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def rows_of(title: str) -> list[Row]:
    """The first table of a paper's section."""
    _, _, section = PAGE.partition(f"\n## {title}\n")
    section = section.partition("\n## ")[0]
    lines = section.splitlines()
    first = next(
        place for place, line in enumerate(lines) if line.startswith("| in the paper |")
    )
    rows = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(Row(*split_cells(line)))
    return rows


def numbers(text: str) -> list[str]:
    """``1–3, 6a–6c, A.8–A.9`` as single numbers.

    >>> numbers("1–3, 6a–6b, A.8–A.9, 3.2 (i)")
    ['1', '2', '3', '6a', '6b', 'A.8', 'A.9', '3.2']
    """
    listed = []
    for part in re.split(r",\s*", re.sub(r"\s*\([ivx, ]+\)", "", text).strip()):
        first, dash, last = part.partition("–")
        if not dash:
            listed.append(first)
        elif first[-1].isalpha():
            stem = first[:-1]
            assert last[:-1] == stem, part
            listed += [
                f"{stem}{chr(code)}"
                for code in range(ord(first[-1]), ord(last[-1]) + 1)
            ]
        else:
            stem, last_stem = (re.sub(r"\d+$", "", end) for end in (first, last))
            assert stem == last_stem, part
            start, stop = int(first[len(stem) :]), int(last[len(stem) :])
            assert start < stop, part
            listed += [f"{stem}{number}" for number in range(start, stop + 1)]
    return listed


def items_of(text: str) -> Counter[tuple[str, str]]:
    """The items in the first cell of a row, by kind and number."""
    counts: Counter[tuple[str, str]] = Counter()
    for part in text.split("; "):
        kind, _, listing = part.partition(" ")
        if kind in KINDS:
            counts.update((KINDS[kind], number) for number in numbers(listing))
    return counts


def numbered(path: Path) -> tuple[str, Counter[tuple[str, str]]]:
    """A paper's title, and all that it numbers."""
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    title = data.pop("title")
    assert set(data) <= set(KINDS.values())
    counts = Counter(
        (kind, number)
        for kind, parts in data.items()
        for number in numbers(", ".join(parts))
    )
    return title, counts


def test_ranges_are_expanded() -> None:
    assert numbers("1–3, 6a–6b, A.8–A.9, 3.2 (i)") == [
        "1",
        "2",
        "3",
        "6a",
        "6b",
        "A.8",
        "A.9",
        "3.2",
    ]
    assert items_of("eqs. 2, 3; Algorithm 1") == Counter(
        [("eq.", "2"), ("eq.", "3"), ("Algorithm", "1")]
    )
    assert items_of("section 4.1") == Counter()


def test_there_are_five_papers() -> None:
    titles = [numbered(path)[0] for path in PAPERS]
    assert len(set(titles)) == 5
    assert set(titles) <= set(_TITLES.values())


@pytest.mark.parametrize("path", PAPERS, ids=lambda path: path.stem)
def test_everything_numbered_has_a_row(path: Path) -> None:
    title, expected = numbered(path)
    assert set(expected.values()) == {1}
    counts: Counter[tuple[str, str]] = Counter()
    for row in rows_of(title):
        counts.update(items_of(row.items))
    assert set(expected) - set(counts) == set(), "without a row"
    assert set(counts) - set(expected) == set(), "not in the paper"


@pytest.mark.parametrize("path", PAPERS, ids=lambda path: path.stem)
def test_every_row_has_a_status_and_a_place(path: Path) -> None:
    title, _ = numbered(path)
    for row in rows_of(title):
        assert row.status in STATUSES, row
        assert row.statement, row
        assert row.place, row


@pytest.mark.parametrize("path", PAPERS, ids=lambda path: path.stem)
def test_places_exist(path: Path) -> None:
    """Tests and files that rows name are there."""
    title, _ = numbered(path)
    for row in rows_of(title):
        for name in re.findall(r"`((?:tests|bench|docs|examples)/[^`]+)`", row.place):
            file, _, test = name.partition("::")
            assert (ROOT / file).is_file(), f"{row.items}: there is no {file}"
            if test:
                assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), (
                    f"{row.items}: {name}"
                )


def modules_called(name: str) -> list[str]:
    """Modules of the package by the last part of their name."""
    found = []
    for folder, modules in (("", "*.py"), ("__init__.py", "*/__init__.py")):
        for file in (ROOT / "src" / "superarm").rglob(modules):
            path = file.parent if folder else file.with_suffix("")
            if path.name == name:
                parts = path.relative_to(ROOT / "src").parts
                found.append(".".join(parts))
    return found


def is_defined(name: str) -> bool:
    """Whether a dotted name, such as ``theory.CompactSet.log_size``, is in the package."""
    module_name, *attributes = name.split(".")
    for module in modules_called(module_name):
        place: Any = importlib.import_module(module)
        for attribute in attributes:
            place = part_of(place, attribute)
        if place is not None:
            return True
    return False


def part_of(place: Any, name: str) -> Any:
    """An attribute, a field or a submodule; ``None`` if there is none."""
    if isinstance(place, ModuleType) and not hasattr(place, name):
        module = f"{place.__name__}.{name}"
        return importlib.import_module(module) if module in SUBMODULES else None
    fields = getattr(place, "__dataclass_fields__", {})
    return getattr(place, name, fields.get(name))


# Not imported by the packages above them.
SUBMODULES = {"superarm.lab.experiments.statements"}


def test_names_are_found() -> None:
    assert is_defined("theory.CompactSet.log_size")
    assert is_defined("simulation.Run.cumulative")
    assert not is_defined("theory.CompactSet.log_sizes")
    assert not is_defined("networks.Vehicle")


# Named in rows, but no attributes of a module.
NO_PARTS = {"posterior.information_gain"}


@pytest.mark.parametrize("path", PAPERS, ids=lambda path: path.stem)
def test_parts_exist(path: Path) -> None:
    """What rows name as ``module.part`` is there."""
    title, _ = numbered(path)
    for row in rows_of(title):
        for name in re.findall(r"`(\w+(?:\.\w+)+)`", row.place):
            if name in NO_PARTS or name.endswith(".py"):
                continue
            assert is_defined(name), f"{row.items}: there is no {name}"


def test_the_counts_are_those_of_the_rows() -> None:
    """The table at the head of the page."""
    for path in PAPERS:
        title, expected = numbered(path)
        rows = rows_of(title)
        statuses = Counter(row.status for row in rows)
        counts = [len(expected), len(rows), *(statuses[status] for status in STATUSES)]
        cells = [title, *map(str, counts)]
        table_rows = [
            split_cells(line)
            for line in PAGE.splitlines()
            if line.startswith(f"| {title} |")
        ]
        assert cells in table_rows, f"write | {' | '.join(cells)} |"
