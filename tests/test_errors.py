"""The tree in the docstring of ``superarm.errors`` is the tree that is there."""

from __future__ import annotations

import inspect

import pytest

from superarm import errors
from superarm.errors import MissingExtraError, SuperarmError, require_extra

CLASSES = [
    item
    for item in vars(errors).values()
    if inspect.isclass(item) and issubclass(item, SuperarmError) and item is not SuperarmError
]


@pytest.mark.parametrize("error", CLASSES, ids=lambda error: error.__name__)
def test_each_error_is_ours_and_a_builtin(error: type[SuperarmError]) -> None:
    builtin = [base for base in error.__mro__ if base.__module__ == "builtins"]
    assert any(base not in (Exception, BaseException, object) for base in builtin)
    assert not issubclass(error, KeyError)
    assert error.__name__ in (errors.__doc__ or "")
    assert error.__doc__


def test_a_message_prints_as_it_was_written() -> None:
    for error in CLASSES:
        assert str(error("say 'this'")) == "say 'this'"


def test_a_missing_extra_names_the_pip_line() -> None:
    with pytest.raises(MissingExtraError, match=r"pip install 'superarm\[plot\]'"):
        require_extra("superarm_no_such_module.part", "plot")


def test_a_broken_module_is_not_called_missing(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(tmp_path)
    with open(f"{folder}/superarm_broken.py", "w", encoding="utf-8") as file:
        file.write("import superarm_something_else\n")
    monkeypatch.syspath_prepend(folder)
    with pytest.raises(ModuleNotFoundError, match="superarm_something_else") as caught:
        require_extra("superarm_broken", "plot")
    assert not isinstance(caught.value, MissingExtraError)
