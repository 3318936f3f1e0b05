"""User-defined parts: imported on request, and described."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from superarm.cli.listing import _part_row
from superarm.core import registry
from superarm.core.errors import SpecError
from superarm.core.plugins import import_parts, imported
from superarm.core.registry import build, families, names

RULE = '''
from dataclasses import dataclass
from superarm.core.registry import register

@register("rule", "{name}")
@dataclass(frozen=True, kw_only=True)
class Own:
    """Look where you know least."""

    share: float = 0.1
    deterministic = True

    def desirability(self, belief, step, rng):
        return belief.std + self.share * belief.mean
'''


@pytest.mark.parametrize("family", families())
def test_every_part_is_described(family: str) -> None:
    for name in names(family):
        described = _part_row(family, name)
        assert described["meaning"], f"{family} {name} has no docstring"
        assert "\n" not in described["meaning"]
        assert all(parameter["type"] for parameter in described["parameters"])


def test_a_description_has_kinds_and_defaults() -> None:
    by_name = {
        parameter["name"]: parameter
        for parameter in _part_row("policy", "gp-ts")["parameters"]
    }
    assert by_name["delta"]["type"] == "a number"
    assert by_name["delta"]["default"] == 0.1
    assert by_name["mode"]["type"] == "one of 'joint', 'independent'"
    kernel = {
        parameter["name"]: parameter
        for parameter in _part_row("posterior", "finite")["parameters"]
    }
    assert kernel["noise_variance"]["type"] == "a number"
    assert kernel["kernel"]["required"]
    [values] = _part_row("mean", "by-number")["parameters"][:1]
    assert (values["name"], values["type"]) == ("values", "numbers")


def test_a_file_is_imported_once(tmp_path: Path) -> None:
    file = tmp_path / "own_rule.py"
    file.write_text(RULE.format(name="own-of-a-file"))
    import_parts(file)
    import_parts(str(file))
    assert str(file.resolve()) in imported()
    assert build("rule", {"name": "own-of-a-file", "share": 0.5}).share == 0.5
    assert _part_row("rule", "own-of-a-file")["meaning"] == "Look where you know least."
    other = tmp_path / "elsewhere" / "own_rule.py"
    other.parent.mkdir()
    other.write_text("")
    with pytest.raises(SpecError, match="rename one of them"):
        import_parts(other)


def test_import_failures_are_reported(tmp_path: Path) -> None:
    broken = tmp_path / "broken_part.py"
    broken.write_text("1 / 0")
    with pytest.raises(
        SpecError, match=r"broken_part.py cannot be imported: ZeroDivisionError"
    ):
        import_parts(broken)
    assert not any("broken_part" in name for name in (*sys.modules, *imported()))
    with pytest.raises(SpecError, match=r"no_such_module.*a file give its path"):
        import_parts("no_such_module")
    with pytest.raises(SpecError, match=r"absent\.py: file not found"):
        import_parts(tmp_path / "absent.py")


def test_folders_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_plain_folder").mkdir()
    for source in ("own_plain_folder", tmp_path, "./own_plain_folder/"):
        with pytest.raises(SpecError, match=r"is a folder; import one of its files"):
            import_parts(source)
    assert "own_plain_folder" not in imported()


def test_failed_import_registers_no_parts(tmp_path: Path) -> None:
    (tmp_path / "late_slip.py").write_text(
        RULE.format(name="own-too-early") + "\n1 / 0\n"
    )
    with pytest.raises(SpecError, match="ZeroDivisionError"):
        import_parts(tmp_path / "late_slip.py")
    assert "own-too-early" not in names("rule")
    assert "ucb" in names("rule")
    (tmp_path / "late_slip.py").write_text(RULE.format(name="own-too-early"))
    import_parts(tmp_path / "late_slip.py")
    assert "own-too-early" in names("rule")


def test_installed_packages_bring_parts(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "installed_parts.py").write_text(RULE.format(name="own-of-a-package"))
    monkeypatch.syspath_prepend(str(tmp_path))
    group = "superarm.parts"
    entries = [
        EntryPoint("a", "installed_parts", group),
        EntryPoint("b", "no_such_parts", group),
    ]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: entries)
    registry.catalogue._import_installed.cache_clear()
    with pytest.warns(RuntimeWarning, match="'no_such_parts' are left out"):
        assert build("rule", "own-of-a-package").share == 0.1
    with pytest.raises(
        SpecError, match=r"did you mean 'own-of-a-package'\? `superarm list rule`"
    ):
        build("rule", "own-of-package")


def test_the_working_folder_is_on_the_path_only_while_parts_are_imported(
    tmp_path: Path, monkeypatch: Any
) -> None:
    (tmp_path / "found_here.py").write_text("import sys\nFIRST = sys.path[0]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "superarm.core.plugins._imported", {}
    )  # workers of later tests are elsewhere
    before = [*sys.path]
    import_parts("found_here")
    assert str(tmp_path) == sys.modules["found_here"].FIRST
    assert sys.path == before
