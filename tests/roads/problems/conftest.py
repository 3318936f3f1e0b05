"""Fixtures for tests of several problems."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

MAP = """<osm>{}
 <way id="10"><nd ref="1"/><nd ref="2"/><nd ref="3"/><tag k="highway" v="primary"/></way>
 <way id="11"><nd ref="2"/><nd ref="4"/><tag k="highway" v="residential"/></way>
 <way id="12"><nd ref="4"/><nd ref="3"/><tag k="highway" v="residential"/></way>
</osm>
"""
PLACES = {1: (49.60, 6.10), 2: (49.60, 6.11), 3: (49.60, 6.12), 4: (49.607, 6.11)}


@pytest.fixture
def write_map() -> Callable[[Path, Mapping[int, float]], str]:
    """Writes a small town as an OpenStreetMap extract, with heights of some of its nodes."""

    def write(path: Path, heights: Mapping[int, float]) -> str:
        nodes = [
            f'<node id="{name}" lat="{lat}" lon="{lon}">'
            + (f'<tag k="ele" v="{heights[name]}"/>' if name in heights else "")
            + "</node>"
            for name, (lat, lon) in PLACES.items()
        ]
        path.write_text(MAP.format("".join(nodes)))
        return str(path)

    return write
