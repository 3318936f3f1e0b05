"""The OpenAPI document of the service, made without a storage.

``python -m superarm.live.service.openapi > docs/openapi.json`` writes the copy in the repository.
"""

from __future__ import annotations

import json

from .app import app_without_storage


def openapi_text() -> str:
    """The document as text, its keys in alphabetical order."""
    document = app_without_storage().openapi()
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    print(openapi_text(), end="")
