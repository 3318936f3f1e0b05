"""Every key that rules and theory cite is in the bibliography exactly once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
KEY = re.compile(r"\b[a-z]{4,}(?:19|20)\d\d[a-z]+\b")


def test_bibliography_keys_are_unique() -> None:
    keys = re.findall(
        r"^@\w+\{(\S+),$", (ROOT / "docs" / "refs.bib").read_text("utf-8"), re.M
    )
    assert len(keys) == len(set(keys))
    assert keys == sorted(keys)


@pytest.mark.parametrize("package", ["rules", "lab/theory"])
def test_cited_keys_exist(package: str) -> None:
    bibliography = (ROOT / "docs" / "refs.bib").read_text("utf-8")
    known = set(re.findall(r"^@\w+\{(\S+),$", bibliography, re.M))
    sources = (ROOT / "src" / "superarm" / package).glob("*.py")
    cited = {key for path in sources for key in KEY.findall(path.read_text("utf-8"))}
    assert cited
    assert cited <= known
