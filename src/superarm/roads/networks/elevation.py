"""Heights from the Shuttle Radar Topography Mission: ``.hgt`` tiles of one degree by one degree.

A tile is named after its south-west corner (``N49E006``) and holds 1201² or 3601² big-endian
16-bit heights in metres, the northernmost row first, its outermost rows and columns shared with
its neighbours. Where the radar saw nothing a height is −32768: a void.
"""

from __future__ import annotations

import lzma
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superarm.core import Bools, Floats
from superarm.core.compressed import open_packed
from superarm.core.errors import InputError
from superarm.core.inputs import read_only

from ._xml import require_file, unreadable
from .road import RoadNetwork

_SIDES = (1201, 3601)
_VOID = -32768
_NAME = re.compile(
    r"([NS])(\d{2})([EW])(\d{3})\b.*\.hgt(\.gz|\.xz)?", re.IGNORECASE | re.ASCII
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Tile:
    """The heights of one square degree."""

    west: int  # longitude of the western edge, degrees
    south: int  # latitude of the southern edge, degrees
    heights: NDArray[np.int16]  # (side, side) metres; row 0 is the north

    def __post_init__(self) -> None:
        rows, *columns = self.heights.shape
        if columns != [rows] or rows < 2:
            raise InputError(
                f"heights has shape {self.heights.shape}; a tile is a square"
            )

    @classmethod
    def read(cls, path: str | Path) -> Tile:
        """The tile in a ``.hgt``, ``.hgt.gz`` or ``.hgt.xz`` file, placed by the file's name."""
        path = Path(path)
        corner = _corner(path)
        if corner is None:
            raise InputError(
                f"{path} is not named like a tile; a name such as N49E006.hgt says where it is"
            )
        require_file(path)
        try:
            with open_packed(path) as file:
                data = file.read(2 * max(_SIDES) ** 2 + 1)
        except (EOFError, lzma.LZMAError, zlib.error, OSError) as error:
            raise unreadable(path, error) from None
        sizes = {2 * side**2: side for side in _SIDES}
        if len(data) not in sizes:
            raise InputError(
                f"{path} holds {len(data)} bytes; a tile has "
                + " or ".join(
                    f"{size} ({side} × {side} heights)" for size, side in sizes.items()
                )
            )
        side = sizes[len(data)]
        heights = np.frombuffer(data, dtype=">i2").reshape(side, side).astype(np.int16)
        return cls(west=corner[0], south=corner[1], heights=read_only(heights))

    def covers(self, lon: Any, lat: Any) -> Bools:
        """Which places lie in this tile; its edges belong to it."""
        return _within(self.west, self.south, np.asarray(lon), np.asarray(lat))

    def height(self, lon: Any, lat: Any) -> Floats:
        """Metres at these places, between the four heights around each (bilinear).

        A void takes no part: the others of the four then weigh more. NaN where all four are void.
        """
        lon, lat = np.broadcast_arrays(
            *(np.asarray(each, dtype=np.float64) for each in (lon, lat))
        )
        outside = ~self.covers(lon, lat)
        if outside.any():
            where = int(np.argmax(outside))
            raise InputError(
                f"longitude {lon.flat[where]}, latitude {lat.flat[where]} is outside the tile at "
                f"{self.west}, {self.south}"
            )
        last = len(self.heights) - 1
        across, down = (lon - self.west) * last, (self.south + 1 - lat) * last
        column = np.minimum(np.floor(across), last - 1).astype(np.intp)
        row = np.minimum(np.floor(down), last - 1).astype(np.intp)
        right, below = across - column, down - row
        corners = self.heights[
            row[..., None] + (0, 0, 1, 1), column[..., None] + (0, 1, 0, 1)
        ]
        across = np.stack([1.0 - right, right, 1.0 - right, right], axis=-1)
        down = np.stack([1.0 - below, 1.0 - below, below, below], axis=-1)
        seen = corners != _VOID
        weights = np.where(seen, down * across, 0.0)
        # On a void, the weights of its neighbours are 0: there they count alike.
        weights = np.where(weights.sum(axis=-1, keepdims=True) > 0.0, weights, seen)
        with np.errstate(invalid="ignore"):
            heights: Floats = (weights * corners).sum(axis=-1) / weights.sum(axis=-1)
        return heights


Tiles = Tile | str | Path | Sequence[Tile | str | Path]
"""A tile, a file, a folder of files, or several of these."""


def with_heights(network: RoadNetwork, tiles: Tiles) -> RoadNetwork:
    """The network with its junctions at the heights of the tiles.

    Files are read only if a junction lies in them, so a folder may hold a continent.
    """
    advice = (
        "tiles need longitudes and latitudes, which a SUMO network has if it is in UTM"
    )
    lon, lat = network.on_earth(advice).T
    heights = np.full(len(lon), np.nan)
    covered = np.zeros(len(lon), dtype=bool)
    for tile in _read_where(tiles, lon, lat):
        inside = tile.covers(lon, lat)
        covered |= inside
        wanted = inside & np.isnan(heights)
        heights[wanted] = tile.height(lon[wanted], lat[wanted])
    for bad, what in (
        (~covered, "outside all tiles"),
        (np.isnan(heights), "where the tiles have no height (a void)"),
    ):
        if bad.any():
            first = int(np.argmax(bad))
            west, south = int(np.floor(lon[first])), int(np.floor(lat[first]))
            raise InputError(
                f"{network.name}: {int(bad.sum())} of {len(lon)} junctions lie {what}; the first is "
                f"{network.junction_ids[first]!r} at longitude {lon[first]:.5f}, latitude "
                f"{lat[first]:.5f}. The tile needed there is "
                f"{'NS'[south < 0]}{abs(south):02d}{'EW'[west < 0]}{abs(west):03d}"
            )
    return replace(
        network, junctions=np.column_stack([network.junctions[:, :2], heights])
    )


def at_one_height(network: RoadNetwork) -> RoadNetwork:
    """The network with all its junctions at 0 m."""
    return replace(network, junctions=network.junctions * (1.0, 1.0, 0.0))


def _read_where(tiles: Tiles, lon: Floats, lat: Floats) -> Iterator[Tile]:
    for source in [tiles] if isinstance(tiles, Tile | str | Path) else tiles:
        if isinstance(source, Tile):
            yield source
            continue
        path = Path(source)
        for file in sorted(path.iterdir()) if path.is_dir() else [path]:
            corner = _corner(file)
            if corner is None and file != path:
                continue  # a folder may hold other things
            if corner is None or _within(*corner, lon, lat).any() or not file.exists():
                yield Tile.read(file)


def _corner(path: Path) -> tuple[int, int] | None:
    """West and south of a tile by its file name."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        return None
    north_south, latitude, east_west, longitude, _ = match.groups()
    south = int(latitude) * (1 if north_south in "Nn" else -1)
    return int(longitude) * (1 if east_west in "Ee" else -1), south


def _within(west: int, south: int, lon: Floats, lat: Floats) -> Bools:
    return (lon >= west) & (lon <= west + 1) & (lat >= south) & (lat <= south + 1)
