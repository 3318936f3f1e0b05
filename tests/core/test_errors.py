"""The tree in the docstring of ``superarm.core.errors`` matches the classes."""

from __future__ import annotations

import inspect
import re
import shlex
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from superarm.core import errors
from superarm.core.errors import (
    MissingExtraError,
    SuperarmError,
    install_line,
    require_extra,
)

CLASSES = [
    item
    for item in vars(errors).values()
    if inspect.isclass(item)
    and issubclass(item, SuperarmError)
    and item is not SuperarmError
]


@pytest.mark.parametrize("error", CLASSES, ids=lambda error: error.__name__)
def test_each_error_is_ours_and_a_builtin(error: type[SuperarmError]) -> None:
    builtin = [base for base in error.__mro__ if base.__module__ == "builtins"]
    assert any(base not in (Exception, BaseException, object) for base in builtin)
    assert not issubclass(error, KeyError)
    assert error.__name__ in (errors.__doc__ or "")
    assert error.__doc__


def test_message_prints_verbatim() -> None:
    for error in CLASSES:
        assert str(error("say 'this'")) == "say 'this'"


def test_missing_extra_names_the_pip_command() -> None:
    with pytest.raises(MissingExtraError, match=r"run: pip install 'numba>=[\d.]+'$"):
        require_extra("superarm_no_such_module.part", "fast")


ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]["optional-dependencies"]
PINNED = ("torch",)


@pytest.mark.parametrize("extra", sorted(set(EXTRAS) - {"test", "dev"}))
def test_pip_command_of_an_extra_lists_its_requirements(extra: str) -> None:
    program, command, *named = shlex.split(install_line(extra))
    assert (program, command) == ("pip", "install")
    stated = {parsed.name: parsed for parsed in map(Requirement, EXTRAS[extra])}
    listed = {parsed.name: parsed for parsed in map(Requirement, named)}
    assert listed.keys() == stated.keys()
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    for name, requirement in listed.items():
        if name in PINNED:  # a bare one would bring CUDA along
            assert str(requirement) in constraints
            version = str(requirement.specifier).removeprefix("==")
            assert version in stated[name].specifier
        else:
            assert requirement.specifier == stated[name].specifier


def test_every_extra_named_in_the_code_exists() -> None:
    calls = re.compile(r"""(?:require_extra\([^()]*?|install_line\()["'](\w+)["']\)""")
    sources = (ROOT / "src").rglob("*.py")
    named = {
        name
        for path in sources
        for name in calls.findall(path.read_text(encoding="utf-8"))
    }
    assert {"fast", "cluster", "frame", "torch", "gps", "sumo"} <= named
    assert named <= set(EXTRAS)


def test_missing_metadata_names_the_checkout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", missing)
    assert install_line("gps") == "pip install -e '.[gps]' in a checkout of superarm"


def test_broken_module_is_not_reported_as_missing(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(tmp_path)
    with open(f"{folder}/superarm_broken.py", "w", encoding="utf-8") as file:
        file.write("import superarm_something_else\n")
    monkeypatch.syspath_prepend(folder)
    with pytest.raises(ModuleNotFoundError, match="superarm_something_else") as caught:
        require_extra("superarm_broken", "fast")
    assert not isinstance(caught.value, MissingExtraError)
