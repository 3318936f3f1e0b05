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
    """Return the text of a network, checked first: some malformed files end the process in libsumo.

    Args:
        path: A ``.net.xml`` file, plain or packed.
    """
    buffer = BytesIO()
    XmlFile(path, root="net").read(copy_to=buffer)
    text = buffer.getvalue()
    if not _VERSION.search(text):
        raise InputError(
            f"{path}: <net> states no version; build the network again with netconvert"
        )
    return _without_rail(_ACTUATED.sub(rb"\1static\2", text))


def _without_rail(text: bytes) -> bytes:
    """Replace railway signals and level crossings by junctions that yield to nobody."""
    names = set()
    for junction in _RAIL_JUNCTION.findall(text):
        name = _ID.search(junction)
        if name is not None:
            names.add(name[1])
    if not names:
        return text

    def as_plain_junction(junction: re.Match[bytes]) -> bytes:
        return re.sub(_RAIL, b'type="priority"', junction[0])

    def without_signal(connection: re.Match[bytes]) -> bytes:
        if connection[1] not in names:
            return connection[0]
        unsignalled = _SIGNAL.sub(b"", connection[0])
        return _RIGHT_OF_WAY.sub(b'state="M"', unsignalled)

    text = _RAIL_JUNCTION.sub(as_plain_junction, text)
    text = _RAIL_LOGIC.sub(b"", text)
    return _SIGNALLED.sub(without_signal, text)
