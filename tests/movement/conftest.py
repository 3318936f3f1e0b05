"""Load compiled loops before the first test, so that no example pays for it."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import pytest


@pytest.fixture(autouse=True, scope="session")
def _loaded() -> None:
    if find_spec("numba") is not None:
        import_module("superarm.movement._compiled")
