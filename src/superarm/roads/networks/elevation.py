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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superarm.core import Bools, Floats, Ints
from superarm.core.compressed import open_packed
from superarm.core.errors import InputError
from superarm.core.inputs import read_only

from ._xml import require_file, unreadable
from .road import RoadNetwork

_SIDES = (1201, 3601)
_VOID = -32768
# Such as N49E006.hgt, N49E006.SRTMGL1.hgt.gz or N49E006_v2.hgt.
_NAME = re.compile(
    r"([NS])(\d{2})([EW])(\d{3})(?:[^0-9a-z].*)?\.hgt(\.gz|\.xz|\.zip)?",
    re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Tile:
    """The heights of one square degree.

    Args:
        west: Longitude of the western edge, degrees.
        south: Latitude of the southern edge, degrees.
        heights: Metres, (side, side); row 0 is the north.
    """

    west: int
    south: int
    heights: NDArray[np.int16]

    def __post_init__(self) -> None:
        shape = self.heights.shape
        is_square = len(shape) == 2 and shape[0] == shape[1]
        if not is_square or len(self.heights) < 2:
            raise InputError(
                f"heights has shape {self.heights.shape}; a tile is a square"
            )

    @classmethod
    def read(cls, path: str | Path) -> Tile:
        """Read a tile, placed by the name of its file.

        Args:
            path: A ``.hgt``, ``.hgt.gz`` or ``.hgt.xz`` file, named such as ``N49E006.hgt``.
        """
        path = Path(path)
        corner = _corner(path)
        if corner is None:
            raise InputError(
                f"{path} must have a tile's name, such as N49E006.hgt, which gives its place"
            )
        require_file(path)
        if _is_zip(path):
            raise InputError(
                f"{path} is a ZIP archive; unpack it, or pack the tile as .hgt.gz"
            )
        try:
            with open_packed(path) as file:
                data = file.read(2 * max(_SIDES) ** 2 + 1)
        except (EOFError, lzma.LZMAError, zlib.error, OSError) as error:
            raise unreadable(path, error) from None
        side_by_bytes = {2 * side**2: side for side in _SIDES}
        side = side_by_bytes.get(len(data))
        if side is None:
            sizes = []
            for size, length in side_by_bytes.items():
                sizes.append(f"{size} ({length} × {length} heights)")
            raise InputError(
                f"{path} has {len(data)} bytes, but a tile has {' or '.join(sizes)}"
            )
        numbers = np.frombuffer(data, dtype=">i2")
        heights = numbers.reshape(side, side).astype(np.int16)
        return cls(west=corner.west, south=corner.south, heights=read_only(heights))

    def covers(self, lon: Any, lat: Any) -> Bools:
        """Return which places lie in this tile; its edges belong to it.

        Args:
            lon: Longitudes, degrees.
            lat: Latitudes, degrees.
        """
        corner = _Corner(self.west, self.south)
        return corner.covers(np.asarray(lon), np.asarray(lat))

    def height(self, lon: Any, lat: Any) -> Floats:
        """Return metres at places, between the four heights around each (bilinear).

        A void takes no part: the others of the four then weigh more. NaN where all four are void.

        Args:
            lon: Longitudes, degrees.
            lat: Latitudes, degrees.
        """
        lon = np.asarray(lon, dtype=np.float64)
        lat = np.asarray(lat, dtype=np.float64)
        lon, lat = np.broadcast_arrays(lon, lat)
        outside = ~self.covers(lon, lat)
        if outside.any():
            first = int(np.argmax(outside))
            raise InputError(
                f"longitude {lon.flat[first]}, latitude {lat.flat[first]} is outside the tile of "
                f"{self.west}, {self.south}"
            )
        last = len(self.heights) - 1
        across = (lon - self.west) * last
        down = (self.south + 1 - lat) * last
        column = _integer_steps(across, last)
        row = _integer_steps(down, last)
        # Each of the four corners around a place, (…, 4): north-west, north-east, south-west, south-east.
        corner_rows = row[..., None] + (0, 0, 1, 1)
        corner_columns = column[..., None] + (0, 1, 0, 1)
        corners = self.heights[corner_rows, corner_columns]
        weights = _corner_weights(east=across - column, south=down - row)
        is_known = corners != _VOID
        weights = np.where(is_known, weights, 0.0)
        # On a void, the weights of its neighbours are 0: there they count alike.
        has_weight = weights.sum(axis=-1, keepdims=True) > 0.0
        weights = np.where(has_weight, weights, is_known)
        weighted = weights * corners
        with np.errstate(invalid="ignore"):
            heights: Floats = weighted.sum(axis=-1) / weights.sum(axis=-1)
        return heights


def _integer_steps(steps: Floats, last: int) -> Ints:
    """Return the grid line before each place; places on the last line belong to the one before."""
    lines = np.floor(steps)
    numbers: Ints = np.minimum(lines, last - 1).astype(np.intp)
    return numbers


def _corner_weights(east: Floats, south: Floats) -> Floats:
    """Return the bilinear weights of the four corners around places, (…, 4).

    Args:
        east: How far a place lies to the east of its western corners, 0 to 1.
        south: How far it lies to the south of its northern corners, 0 to 1.
    """
    west = 1.0 - east
    north = 1.0 - south
    weights_across = np.stack([west, east, west, east], axis=-1)
    weights_down = np.stack([north, north, south, south], axis=-1)
    weights: Floats = weights_down * weights_across
    return weights


Tiles = Tile | str | Path | Sequence[Tile | str | Path]
"""A tile, a file, a folder of files, or several of these."""


def with_heights(network: RoadNetwork, tiles: Tiles) -> RoadNetwork:
    """Return the network with its junctions at the heights of the tiles.

    Files are read only if a junction lies in them, so a folder may hold a continent.

    Args:
        network: The roads, with longitudes and latitudes.
        tiles: Tiles, files or folders of files.
    """
    advice = ": tiles need longitudes and latitudes, which a SUMO network has if it is in UTM"
    lon, lat = network.on_earth(advice).T
    heights = np.full(len(lon), np.nan)
    covered = np.zeros(len(lon), dtype=bool)
    for tile in _read_covering(tiles, lon, lat):
        inside = tile.covers(lon, lat)
        covered |= inside
        missing = inside & np.isnan(heights)
        heights[missing] = tile.height(lon[missing], lat[missing])
    is_known = ~np.isnan(heights)
    _require_heights(
        network,
        covered,
        lon,
        lat,
        where="outside all tiles",
        advice="Add the tile {tile}",
    )
    _require_heights(
        network,
        is_known,
        lon,
        lat,
        where="where the tiles have no height (a void)",
        advice="Use a void-filled version of {tile}, or add another source of it after the first: "
        "it fills the voids",
    )
    places = network.junctions[:, :2]
    junctions = np.column_stack([places, heights])
    return replace(network, junctions=junctions)


def _require_heights(
    network: RoadNetwork,
    has_height: Bools,
    lon: Floats,
    lat: Floats,
    *,
    where: str,
    advice: str,
) -> None:
    """Raise an error about the junctions that have no height.

    Args:
        network: The roads.
        has_height: Whether each junction has a height, (j,).
        lon: Longitudes of the junctions, degrees, (j,).
        lat: Their latitudes, degrees, (j,).
        where: Where junctions without a height lie.
        advice: What to do; ``{tile}`` stands for the name of the tile of the first of them.
    """
    if has_height.all():
        return
    missing = ~has_height
    first = int(np.argmax(missing))
    west = int(np.floor(lon[first]))
    south = int(np.floor(lat[first]))
    tile = _Corner(west, south).name()
    raise InputError(
        f"{network.name}: {int(missing.sum())} of {len(missing)} junctions lie {where}; the first is "
        f"{network.junction_ids[first]!r} at longitude {lon[first]:.5f}, latitude {lat[first]:.5f}. "
        f"{advice.format(tile=tile)}"
    )


def at_one_height(network: RoadNetwork) -> RoadNetwork:
    """Return the network with all its junctions at 0 m."""
    return replace(network, junctions=network.junctions * (1.0, 1.0, 0.0))


def _read_covering(tiles: Tiles, lon: Floats, lat: Floats) -> Iterator[Tile]:
    """Yield tiles, of files only those in which one of the places lies."""
    sources = tiles
    if isinstance(sources, Tile | str | Path):
        sources = [sources]
    for source in sources:
        if isinstance(source, Tile):
            yield source
            continue
        for file in _tile_files(Path(source)):
            if _may_cover(file, lon, lat):
                yield Tile.read(file)


def _tile_files(path: Path) -> list[Path]:
    """Return the file of this path, or the tiles of a folder, which may hold other things."""
    if not path.is_dir():
        return [path]
    files = sorted(path.iterdir())
    corners = {file: _corner(file) for file in files}
    readable = {corner for file, corner in corners.items() if not _is_zip(file)}
    tiles = []
    for file, corner in corners.items():
        # An archive beside the tile that was unpacked from it is not needed.
        is_spare = _is_zip(file) and corner in readable
        if corner is not None and not is_spare:
            tiles.append(file)
    return tiles


def _is_zip(file: Path) -> bool:
    return file.suffix.lower() == ".zip"


def _may_cover(file: Path, lon: Floats, lat: Floats) -> bool:
    corner = _corner(file)
    if corner is None or not file.exists():
        return True  # reading raises the error
    is_covered = corner.covers(lon, lat)
    return bool(is_covered.any())


class _Corner(NamedTuple):
    """The south-west corner of a tile, degrees."""

    west: int
    south: int

    def covers(self, lon: Floats, lat: Floats) -> Bools:
        """Return which places lie in the tile; its edges belong to it."""
        east = self.west + 1
        north = self.south + 1
        in_longitude = (lon >= self.west) & (lon <= east)
        in_latitude = (lat >= self.south) & (lat <= north)
        return in_longitude & in_latitude

    def name(self) -> str:
        """Return the name of the tile, such as N49E006."""
        north_south = "S" if self.south < 0 else "N"
        east_west = "W" if self.west < 0 else "E"
        return f"{north_south}{abs(self.south):02d}{east_west}{abs(self.west):03d}"


def _corner(path: Path) -> _Corner | None:
    """Return the corner of a tile by its file name, if it is named like one."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        return None
    north_south, latitude, east_west, longitude, _ = match.groups()
    west = int(longitude)
    if east_west in "Ww":
        west = -west
    south = int(latitude)
    if north_south in "Ss":
        south = -south
    return _Corner(west, south)
