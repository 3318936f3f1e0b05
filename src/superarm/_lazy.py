"""Names of a package that load when they are first used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def lazy_names(
    package: str, names: Mapping[str, str], modules: Iterable[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The functions ``__getattr__`` and ``__dir__`` of a package that imports nothing by itself.

    Args:
        package: The package's own name.
        names: The module of each name, relative to the package.
        modules: The package's modules that are attributes of it.
    """
    rooms = frozenset(modules)

    def get(name: str) -> Any:
        if name in names:
            module = importlib.import_module(f"{package}.{names[name]}")
            value = getattr(module, name)
            vars(sys.modules[package])[name] = value  # looked up once
            return value
        if name in rooms:
            return importlib.import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def list_names() -> list[str]:
        own = vars(importlib.import_module(package))
        return sorted({*own, *names, *rooms})

    return get, list_names
