"""How a report looks: its style sheet, and its charts as inline SVG, written by hand.

Needs neither matplotlib nor a script. Charts take their ink from ``currentColor`` and their colours
from the page's custom properties ``--c0`` …, with the palette as a fallback: one chart serves light
and dark pages.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._curves import PALETTE, PolicyStyle, readable_seconds, significant, spread_labels, ticks
from .core import Floats

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
) -> str:
    """Curves with bands, ticks and labels at the line ends; ``description`` is the alternative text.

    ``seconds`` writes the y ticks as times; ``thumbnail`` leaves out labels and ticks.
    """
    longest = max((len(line.label) + 8 * (line.exponent is not None) for line in lines), default=0)
    right = width - (8.0 if thumbnail else min(0.4 * width, 36.0 + 6.6 * longest))
    left, top, bottom = (8.0, 8.0, height - 8.0) if thumbnail else (66.0, 32.0, height - 46.0)
    curves = [_Shape.of(line, log_y) for line in lines]
    x_axis = _Axis.around([c.x for c in curves], log=log_x, start=left, stop=right, tight=True)
    reach = [edge for c in curves for edge in (c.y, c.low, c.high)]
    y_axis = _Axis.around(reach, log=log_y, start=bottom, stop=top)
    parts = [_open(width, height, description)]
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
        if line.stderr is not None:
            outline = np.concatenate([y_axis.place(curve.high), y_axis.place(curve.low)[::-1]])
            band = _path(np.concatenate([x, x[::-1]]), outline)
            parts.append(f'<path d="{band}Z" style="fill:{_colour(line)}" opacity=".17"/>')
        parts.append(
            f'<path d="{_path(x, y)}" fill="none" style="stroke:{_colour(line)}" stroke-width="2" '
            f'stroke-linejoin="round" stroke-dasharray="{_DASHES[line.style.dash]}"/>'
        )
        if line.markers:
            dots = (f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.2"/>' for a, b in zip(x, y, strict=True))
            parts.append(f'<g style="fill:{_colour(line)}">{"".join(dots)}</g>')
        ends.append(float(y[-1]) if len(y) else bottom)
    if not thumbnail:
        for line, end, place in zip(lines, ends, spread_labels(ends, 17.0, top, bottom), strict=True):
            leader = f"M{right + 3:g} {end:.1f}L{right + 13:g} {place:.1f}h8"
            power = "" if line.exponent is None else _power(line.exponent)
            parts.append(
                f'<path d="{leader}" fill="none" style="stroke:{_colour(line)}" stroke-width="2"/>'
                f'<text x="{right + 26:g}" y="{place + 4:.1f}">{escape(line.label)}{power}</text>'
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
    parts = [_open(size + 20, size + 66, description)]
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


def _open(width: int, height: int, description: str) -> str:
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


# --- style sheet -------------------------------------------------------------------------

_DARK = ("#4FB0EE", "#FF8A4C", "#2CCB9C", "#E6A1C8", "#F2B93B", "#8CCBF2", "#C9A878", "#A7AEB7")
STYLE = (
    ":root{color-scheme:light dark;--ink:#1f2328;--paper:#fff;--soft:#f5f7f9;"
    + "--line:#d8dee4;--link:#0b62a8;"
    + "".join(f"--c{i}:{colour};" for i, colour in enumerate(PALETTE))
    + "}@media (prefers-color-scheme:dark){:root{--ink:#e4e8ec;--paper:#14181d;--soft:#1c2229;"
    + "--line:#353d47;--link:#7cbcf5;"
    + "".join(f"--c{i}:{colour};" for i, colour in enumerate(_DARK))
    + """}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
  font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main,header,footer{max-width:920px;margin:0 auto;padding:0 20px}
header{padding-top:36px}footer{padding-bottom:40px}
h1{font-size:1.85rem;line-height:1.2;margin:0 0 6px;letter-spacing:-.01em;overflow-wrap:anywhere}
h2{font-size:1.2rem;margin:40px 0 10px}h3{font-size:1rem;margin:24px 0 6px}
p{margin:10px 0;max-width:75ch}a{color:var(--link)}
.meta,figcaption,footer{opacity:.78;font-size:.92rem}.lead{font-size:1.08rem}
figure{margin:8px 0 22px}svg.chart{display:block;width:100%;height:auto}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.95rem}
caption{text-align:left;font-weight:600;padding:10px 0 4px}
th,td{text-align:left;padding:7px 14px 7px 0;border-bottom:1px solid var(--line);vertical-align:top;
  overflow-wrap:break-word}
thead th{font-weight:600;opacity:.78;font-size:.86rem;white-space:nowrap}
tbody th{font-weight:500;white-space:nowrap}
sup{line-height:0;font-size:.78em}
.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.facts th{width:28%;white-space:normal}
.best th,.best td{font-weight:650}
.swatch{display:inline-block;width:14px;height:4px;border-radius:2px;margin-right:9px;vertical-align:middle}
.verdict{min-width:9em;font-weight:650}
.banner{background:#fff3cd;color:#533f03;border-left:5px solid #e0a800;padding:8px 12px;
  border-radius:4px;font-weight:600}
.legend{display:none;list-style:none;margin:4px 0;padding:0;font-size:.9rem}
pre{background:var(--soft);border:1px solid var(--line);border-radius:8px;padding:12px 14px;
  white-space:pre-wrap;overflow-wrap:anywhere}
code,pre{font:.88rem/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.panels{display:grid;grid-template-columns:repeat(auto-fit,minmax(240px,1fr));gap:18px}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(260px,1fr));gap:18px;padding:0;list-style:none}
.card{border:1px solid var(--line);border-radius:10px;padding:14px 16px;background:var(--soft)}
.card h3{margin:8px 0 2px}.card p{margin:4px 0;font-size:.92rem}
@media (max-width:640px){figure{overflow-x:auto}figure svg.chart{min-width:580px}
  .legend{display:block;position:sticky;left:0}figcaption{position:sticky;left:0}
  .claims,.claims tbody,.claims tr,.claims td{display:block}.claims thead{display:none}
  .claims tr{border-bottom:1px solid var(--line);padding:8px 0}
  .claims td{border:0;padding:2px 0;overflow-wrap:anywhere}}
@media print{body{font-size:12px}section{break-inside:avoid}}"""
)


# --- pages -------------------------------------------------------------------------------

# Nothing may be loaded and no script may run, whatever slips into a page.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(title: str, body: str) -> str:
    """A whole document around a body, which must be HTML already."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>{body}"
        "<footer><p>Written by superarm.</p></footer></body></html>\n"
    )


def section(title: str, *parts: str) -> str:
    """A headed section of ready-made parts."""
    return f"\n<section><h2>{escape(title)}</h2>{''.join(parts)}</section>"


def fact_table(caption: str, facts: Mapping[str, Any]) -> str:
    """Names and values, those that are None left out."""
    rows = "".join(
        f'<tr><th scope="row">{escape(str(key))}</th><td>{escape(readable_value(value))}</td></tr>'
        for key, value in facts.items()
        if value is not None
    )
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f'<div class="scroll"><table class="facts">{title}<tbody>{rows}</tbody></table></div>'


def option_table(caption: str, name: str, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Rows by name against every key that one of them has."""
    keys = list(dict.fromkeys(key for given in rows.values() for key in given))
    head = "".join(f'<th scope="col">{escape(str(key))}</th>' for key in (name, *keys))
    body = "".join(
        f'<tr><th scope="row">{escape(str(row))}</th>'
        + "".join(
            f"<td>{escape(readable_value(given[key])) if key in given else '–'}</td>" for key in keys
        )
        + "</tr>"
        for row, given in rows.items()
    )
    return (
        f'<div class="scroll"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def legend(lines: Sequence[Line]) -> str:
    """The labels of a chart as a list, for screens that are too narrow to show its right end."""
    items = "".join(
        f'<li><span class="swatch" style="background:{_colour(line)}"></span>{escape(line.label)}'
        + (f" ∝ t<sup>{line.exponent:.2f}</sup>" if line.exponent is not None else "")
        + "</li>"
        for line in lines
    )
    return f'<ul class="legend">{items}</ul>'


def readable_value(value: Any) -> str:
    """Text as it is, numbers to six digits, a spec as ``name (key = value)``, the rest as JSON.

    >>> readable_value({"name": "matern", "nu": 2.5})
    'matern (nu = 2.5)'
    """
    if isinstance(value, float):
        return significant(value, 6)
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        rest = ", ".join(f"{k} = {readable_value(v)}" for k, v in value.items() if k != "name")
        return f"{value['name']} ({rest})" if rest else str(value["name"])
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
