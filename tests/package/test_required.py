"""``SUPERARM_REQUIRE`` turns a skip into a failure of the run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"
SKIPPED = """
import pytest

def test_that_passes():
    pass

def test_that_needs_something():
    pytest.importorskip("a_package_that_nobody_has", reason="it is not installed")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "test", "code"),
    [
        ("1", SKIPPED, pytest.ExitCode.TESTS_FAILED),
        ("0", SKIPPED, pytest.ExitCode.OK),
        ("", SKIPPED, pytest.ExitCode.OK),
        ("1", "def test_that_passes(): pass", pytest.ExitCode.OK),
    ],
    ids=["required", "not required", "empty", "nothing skipped"],
)
def test_a_skip_fails_where_everything_is_required(
    value: str, test: str, code: pytest.ExitCode, tmp_path: Path
) -> None:
    shutil.copy(CONFTEST, tmp_path)
    (tmp_path / "test_one.py").write_text(test, "utf-8")
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        env={**os.environ, "SUPERARM_REQUIRE": value},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == code, finished.stdout + finished.stderr
    message = "SUPERARM_REQUIRE is set, but 1 tests were skipped"
    assert (message in finished.stdout) == (code != pytest.ExitCode.OK)
