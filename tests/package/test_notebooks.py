"""The notebooks run from top to bottom in a fresh process, and are stored without their outputs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


def cells(path: Path) -> list[dict[str, Any]]:
    book = json.loads(path.read_text(encoding="utf-8"))
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    result: list[dict[str, Any]] = book["cells"]
    return result


def test_there_are_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["first_steps", "own_policy"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_stored_without_outputs(path: Path) -> None:
    assert len({cell["id"] for cell in cells(path)}) == len(cells(path))
    for cell in cells(path):
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.slow
def test_notebooks_run(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    script = (
        tmp_path / f"{path.stem}.py"
    )  # worker processes and errors then find the code
    code = [
        "".join(cell["source"]) for cell in cells(path) if cell["cell_type"] == "code"
    ]
    script.write_text("\n\n".join(code), encoding="utf-8")
    environment = {**os.environ, "MPLBACKEND": "Agg"}
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
