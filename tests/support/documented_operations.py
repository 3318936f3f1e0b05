"""The operations that ``docs/openapi.json`` documents, and which of them a request is."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

_DOCUMENT = Path(__file__).parents[2] / "docs" / "openapi.json"
_METHODS = ("get", "put", "post", "delete", "patch")


@cache
def operations() -> dict[str, re.Pattern[str]]:
    """What matches the paths of each operation, by method and path: ``GET /healthz``."""
    document = json.loads(_DOCUMENT.read_text("utf-8"))
    return {
        f"{method.upper()} {path}": re.compile(re.sub(r"\{[^}]+\}", "[^/]+", path))
        for path, item in document["paths"].items()
        for method in _METHODS
        if method in item
    }


def operation_of(method: str, path: str) -> str:
    """The operation that a request is.

    Args:
        method: Its method.
        path: Its path, which may have a query.
    """
    (operation,) = (
        name
        for name, pattern in operations().items()
        if name.startswith(f"{method} ") and pattern.fullmatch(path.partition("?")[0])
    )
    return operation
