"""The charts of a report as inline SVG, written by hand.

Needs neither matplotlib nor a script. Charts take their ink from ``currentColor`` and their colours
from the page's custom properties ``--c0`` …, with the palette as a fallback: one chart serves light
and dark pages.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from superarm.core import Floats
from superarm.results.curves import (
    PALETTE,
    PolicyStyle,
    readable_seconds,
    significant,
    spread_labels,
    ticks,
)

_FIRST = PolicyStyle(0, 0)
_DASHES = ("none", "9 3", "3 3")  # as in ``plotting``
_MAPS = {
    "viridis": "4401544828783e498931688e26828e1f9e8935b7796ece58b5de2bfde725",
    "magma": "000004180f3d440f76721f819e2f7fcd4071f1605dfd9668feca8dfcfdbf",
}
_STAR = "M0-9 2.6-3 9-2.6 4 1.7 5.6 8 0 4.6-5.6 8-4 1.7-9-2.6-2.6-3Z"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Line:
    """One curve of :func:`svg_lines`, labelled at its end."""

    label: str
    x: ArrayLike
    y: ArrayLike
    stderr: ArrayLike | None = None
    """Half the height of the band around the curve."""
    style: PolicyStyle = _FIRST
    exponent: float | None = None
    """Adds "∝ t" with this exponent to the label."""
    markers: bool = False


def svg_lines(
    lines: Sequence[Line],
    *,
    description: str,
    x_label: str = "",
    y_label: str = "",
    log_x: bool = False,
    log_y: bool = False,
    seconds: bool = False,
    width: int = 760,
    height: int = 400,
    thumbnail: bool = False,
    ceiling: float | None = None,
) -> str:
    """Curves with bands, ticks and labels at the line ends; ``description`` is the alternative text.

    ``seconds`` writes the y ticks as times; ``thumbnail`` leaves out labels and ticks; curves are
    cut off at the ``ceiling``.
    """
    longest = max((len(line.label) + 8 * (line.exponent is not None) for line in lines), default=0)
    # Where there are dashes, leaders are long enough to show them.
    stub = 24.0 if any(line.style.dash for line in lines) else 8.0
    right = width - (8.0 if thumbnail else min(0.42 * width, 28.0 + stub + 6.6 * longest))
    left, top, bottom = (8.0, 8.0, height - 8.0) if thumbnail else (66.0, 32.0, height - 46.0)
    curves = [_Shape.of(line, log_y).below(ceiling) for line in lines]
    x_axis = _Axis.around([c.x for c in curves], log=log_x, start=left, stop=right, tight=True)
    reach = [edge for c in curves for edge in (c.y, c.low, c.high)]
    y_axis = _Axis.around(reach, log=log_y, start=bottom, stop=top)
    parts = [svg_open(width, height, description)]
    if not thumbnail:
        for value in y_axis.ticks():
            y = float(y_axis.place(value))
            text = readable_seconds(value) if seconds else significant(value)
            parts += [_rule(f"M{left:g} {y:.1f}H{right:g}", 0.14), _text(left - 8, y + 4, text, "end")]
        for value in x_axis.ticks():
            x = float(x_axis.place(value))
            parts.append(_rule(f"M{x:.1f} {bottom:g}v5", 0.4))
            parts.append(_text(x, bottom + 20, significant(value), "middle"))
        parts.append(_text((left + right) / 2, height - 6, x_label, "middle"))
        parts.append(_text(4, 16, y_label, "start"))
    parts.append(_rule(f"M{left:g} {bottom:g}H{right:g}", 0.4))
    ends: list[float] = []
    for line, curve in zip(lines, curves, strict=True):
        x, y = x_axis.place(curve.x), y_axis.place(curve.y)
        if line.stderr is not None and not line.style.thin:
            outline = np.concatenate([y_axis.place(curve.high), y_axis.place(curve.low)[::-1]])
            band = _path(np.concatenate([x, x[::-1]]), outline)
            parts.append(f'<path d="{band}Z" style="fill:{_colour(line)}" opacity=".17"/>')
        parts.append(
            f'<path d="{_path(x, y)}" fill="none" style="stroke:{_colour(line)}" '
            f'stroke-width="{1.1 if line.style.thin else 2}" stroke-linejoin="round" '
            f'stroke-dasharray="{_DASHES[line.style.dash]}"/>'
        )
        if line.markers:
            dots = (f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.2"/>' for a, b in zip(x, y, strict=True))
            parts.append(f'<g style="fill:{_colour(line)}">{"".join(dots)}</g>')
        ends.append(float(y[-1]) if len(y) else bottom)
    if not thumbnail:
        for line, end, place in zip(lines, ends, spread_labels(ends, 17.0, top, bottom), strict=True):
            leader = f"M{right + 3:g} {end:.1f}L{right + 13:g} {place:.1f}"
            level = f"M{right + 13:g} {place:.1f}h{stub:g}"
            look = f'fill="none" style="stroke:{_colour(line)}" stroke-width="2"'
            power = "" if line.exponent is None else _power(line.exponent)
            parts.append(
                f'<path d="{leader}" {look}/>'
                f'<path d="{level}" {look} stroke-dasharray="{_DASHES[line.style.dash]}"/>'
                f'<text x="{right + 18 + stub:g}" y="{place + 4:.1f}">{escape(line.label)}'
                f"{power}</text>"
            )
    return "".join(parts) + "</svg>"


def svg_heatmap(
    values: ArrayLike,
    *,
    description: str,
    title: str = "",
    x_range: tuple[float, float] = (0.0, 1.0),
    y_range: tuple[float, float] = (0.0, 1.0),
    limits: tuple[float, float] | None = None,
    points: ArrayLike = (),
    best: tuple[float, float] | None = None,
    colours: Literal["viridis", "magma"] = "viridis",
    size: int = 300,
) -> str:
    """A surface (rows from low to high y) as coloured cells, with a key, samples and the optimum.

    ``points`` (m, 2) are in the units of the ranges, the oldest first: older ones are fainter.
    """
    surface = np.asarray(values, dtype=np.float64)
    low, high = limits or (float(surface.min()), float(surface.max()))
    unit = np.clip((surface - low) / ((high - low) or 1.0), 0.0, 1.0)
    x_axis = _Axis(*x_range, log=False, start=10.0, stop=10.0 + size)
    y_axis = _Axis(*y_range, log=False, start=26.0 + size, stop=26.0)
    parts = [svg_open(size + 20, size + 66, description)]
    parts.append(f'<text x="10" y="16" font-weight="600">{escape(title)}</text>')
    parts.append(png_image(unit[::-1], colours, x=10, y=26, width=size, height=size))
    chosen = np.asarray(points, dtype=np.float64).reshape(-1, 2)
    for age, (x, y) in enumerate(chosen, start=1):
        parts.append(
            f'<circle cx="{x_axis.place(x):.1f}" cy="{y_axis.place(y):.1f}" r="3.6" fill="#fff" '
            f'stroke="#111" opacity="{0.3 + 0.7 * age / len(chosen):.2f}"/>'
        )
    if best is not None:
        where = f"translate({x_axis.place(best[0]):.1f} {y_axis.place(best[1]):.1f})"
        parts.append(f'<path transform="{where}" d="{_STAR}" fill="#ff4d4d" stroke="#fff"/>')
    base = size + 36
    parts.append(
        png_image(np.linspace(0.0, 1.0, 64)[None], colours, x=10, y=base, width=size, height=8)
    )
    parts.append(_text(10, base + 24, significant(low), "start"))
    parts.append(_text(size + 10, base + 24, significant(high), "end"))
    return "".join(parts) + "</svg>"


class _Shape(NamedTuple):
    """A curve and its band, without what cannot be drawn."""

    x: Floats
    y: Floats
    low: Floats
    high: Floats

    @classmethod
    def of(cls, line: Line, log: bool) -> _Shape:
        x, y = (np.asarray(part, dtype=np.float64) for part in (line.x, line.y))
        half = np.zeros_like(y) if line.stderr is None else np.asarray(line.stderr, dtype=np.float64)
        shown = np.isfinite(y) & ((y > 0.0) | (not log))
        x, y, half = x[shown], y[shown], half[shown]
        # A band that reaches below zero cannot be drawn on a log axis; a tenth of the mean can.
        return cls(x, y, np.maximum(y - half, y / 10.0) if log else y - half, y + half)

    def below(self, ceiling: float | None) -> _Shape:
        """The curve up to where it first leaves through the ceiling, and what of its band fits."""
        if ceiling is None:
            return self
        over = np.flatnonzero(self.y > ceiling)
        stop = int(over[0]) + 1 if len(over) else len(self.y)
        x, y, low, high = (part[:stop].copy() for part in self)
        if len(over) and stop > 1:
            share = (ceiling - y[-2]) / (y[-1] - y[-2])
            x[-1] = x[-2] + share * (x[-1] - x[-2])
        return _Shape(x, *(np.minimum(part, ceiling) for part in (y, low, high)))


class _Axis(NamedTuple):
    low: float
    high: float
    log: bool
    start: float
    stop: float

    @classmethod
    def around(
        cls, series: Sequence[Floats], *, log: bool, start: float, stop: float, tight: bool = False
    ) -> _Axis:
        values = np.concatenate([*series, np.empty(0)])
        values = values[np.isfinite(values) & ((values > 0.0) | (not log))]
        low, high = (float(values.min()), float(values.max())) if len(values) else (1.0, 10.0)
        if log:
            low, high = (low, high) if high > low else (low / 2.0, high * 2.0)
            return cls(low, high, log, start, stop)
        if not tight:
            low, high = min(low, 0.0), high + 0.04 * (high - min(low, 0.0))
        return cls(low, high if high > low else low + 1.0, log, start, stop)

    def place(self, value: Any) -> Any:
        scaled = (value - self.low) / (self.high - self.low)
        if self.log:
            scaled = np.log(value / self.low) / np.log(self.high / self.low)
        return self.start + scaled * (self.stop - self.start)

    def ticks(self) -> list[float]:
        return ticks(self.low, self.high, self.log)


def svg_open(width: int, height: int, description: str) -> str:
    """The opening tag of a chart; ``description`` is its alternative text."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{escape(description)}" font-size="13" fill="currentColor">'
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} opacity=".75">{escape(text)}</text>'


def _rule(path: str, opacity: float) -> str:
    return f'<path d="{path}" stroke="currentColor" opacity="{opacity}"/>'


def _power(exponent: float) -> str:
    raised = f'<tspan dy="-4" font-size="10">{exponent:.2f}</tspan>'
    return f' <tspan opacity=".75">∝ t{raised}</tspan>'


def _colour(line: Line) -> str:
    return f"var(--c{line.style.colour},{PALETTE[line.style.colour]})"


def _path(x: Floats, y: Floats) -> str:
    return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True)) if len(x) else "M0 0"


def colour_of(unit: Floats, colours: str) -> NDArray[np.uint8]:
    """Red, green and blue of numbers in [0, 1], in a last axis of three."""
    stops = np.frombuffer(bytes.fromhex(_MAPS[colours]), dtype=np.uint8).reshape(-1, 3)
    place = np.linspace(0.0, 1.0, len(stops))
    channels = [np.interp(unit, place, stops[:, channel]) for channel in range(3)]
    return np.rint(np.stack(channels, axis=-1)).astype(np.uint8)


def png_image(unit: Floats, colours: str, *, x: int, y: int, width: int, height: int) -> str:
    """Numbers in [0, 1] as a PNG, written by hand."""
    rows = colour_of(unit, colours)  # (height, width, 3)
    header = struct.pack(">IIBBBBB", rows.shape[1], rows.shape[0], 8, 2, 0, 0, 0)
    pixels = b"".join(b"\0" + row.tobytes() for row in rows)  # 0: no filter
    png = b"\x89PNG\r\n\x1a\n"
    for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(pixels, 9)), (b"IEND", b"")):
        checksum = zlib.crc32(kind + data)
        png += struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)
    return (
        f'<image x="{x}" y="{y}" width="{width}" height="{height}" preserveAspectRatio="none" '
        f'href="data:image/png;base64,{base64.b64encode(png).decode()}"/>'
    )
