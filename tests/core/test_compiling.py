"""Loops compiled by numba where it is installed."""

from __future__ import annotations

from typing import Any

import pytest

from superarm.core import compiling
from superarm.core.compiling import compiled, entry_point, is_compiled
from superarm.core.errors import InputError


@pytest.mark.parametrize(
    "failure", [RuntimeError("no locator"), OSError(28, "disk full")]
)
def test_loops_compile_without_a_cache_directory(
    failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Numba:
        @staticmethod
        def njit(signature: str, cache: bool = False, **_: Any) -> Any:
            if cache:
                raise failure
            return lambda loop: (signature, loop)

    monkeypatch.setattr(compiling, "require_extra", lambda *_: Numba)
    assert compiled("f8(f8)")(abs) == ("f8(f8)", abs)


@pytest.mark.parametrize("backend", ["cuda", "", None])
def test_unknown_backends_are_refused(backend: Any) -> None:
    with pytest.raises(InputError, match="choose 'auto', 'numpy' or 'numba'"):
        is_compiled(backend)


def test_numpy_is_never_compiled() -> None:
    assert not is_compiled("numpy")


def test_compiled_loop_is_called_directly() -> None:
    pytest.importorskip("numba")
    doubled = compiled("f8(f8)")(_twice)
    direct = entry_point(doubled)
    assert direct is not doubled
    assert direct(1.5) == doubled(1.5) == 3.0
    assert entry_point(_twice) is _twice  # as with NUMBA_DISABLE_JIT


def _twice(number: float) -> float:
    return 2.0 * number
