"""A network file as libsumo can drive on it: nothing in it reacts, and no train is waited for.

Lengths, shapes and turns stay as they are in the file, to the byte. (netconvert can take out what cars
cannot use, but builds every junction anew: lengths of edges then change, by up to 64 m in the
networks tried.)
"""

from __future__ import annotations

import re
from io import BytesIO
from pathlib import Path

from superarm.core.errors import InputError
from superarm.roads.networks._xml import XmlFile

_VERSION = re.compile(rb"<net\b[^>]*\bversion=")
_ACTUATED = re.compile(rb'(<tlLogic\b[^>]*?\btype=")(?:actuated|delay_based|NEMA)(")')
_RAIL = rb'\btype="rail_(?:signal|crossing)"'
_RAIL_JUNCTION = re.compile(rb"<junction\b[^>]*?" + _RAIL)
_RAIL_LOGIC = re.compile(
    rb"<tlLogic\b[^>]*?" + _RAIL + rb"[^>]*?(?:/>|>.*?</tlLogic>)", re.DOTALL
)
_ID = re.compile(rb'\bid="([^"]*)"')
_SIGNALLED = re.compile(rb'<connection\b[^>]*?\btl="([^"]*)"[^>]*>')
_SIGNAL = re.compile(rb' (?:tl|linkIndex)="[^"]*"')
_RIGHT_OF_WAY = re.compile(rb'\bstate="[^"]*"')


def plain_text(path: Path) -> bytes:
    """The text of a network, checked first: some malformed files end the process in libsumo."""
    buffer = BytesIO()
    XmlFile(path, root="net").read(copy_to=buffer)
    text = buffer.getvalue()
    if not _VERSION.search(text):
        raise InputError(
            f"{path}: <net> states no version; build the network again with netconvert"
        )
    return _without_rail(_ACTUATED.sub(rb"\1static\2", text))


def _without_rail(text: bytes) -> bytes:
    """With junctions that yield to nobody in place of railway signals and level crossings."""
    names = {
        found[1] for rail in _RAIL_JUNCTION.findall(text) if (found := _ID.search(rail))
    }
    if not names:
        return text

    def freed(connection: re.Match[bytes]) -> bytes:
        if connection[1] not in names:
            return connection[0]
        return _RIGHT_OF_WAY.sub(b'state="M"', _SIGNAL.sub(b"", connection[0]))

    text = _RAIL_JUNCTION.sub(
        lambda rail: re.sub(_RAIL, b'type="priority"', rail[0]), text
    )
    return _SIGNALLED.sub(freed, _RAIL_LOGIC.sub(b"", text))
