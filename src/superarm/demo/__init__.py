"""``superarm demo``: watch a policy learn a hidden landscape, then see how others fared.

Works on the core install and offline. It draws in the terminal while it learns, and writes a
run that ``superarm report`` understands, with an animated picture.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ._curves import plus_minus, readable_seconds
from ._report_template import colour_of, png_image
from .core import Decision, Feedback, Floats, Ints, Offer
from .errors import ConflictError
from .experiments import Plan, execute, load_experiment
from .policies import IndexPolicy
from .problems import FiniteProblem
from .report import write_report
from .simulation import Run, simulate
from .simulation.trace import atomic_write, is_temporary, write_spec

_OURS = frozenset(
    (
        "cells",
        "timings",
        "run.json",
        "cells.jsonl",
        "summary.json",
        "report.html",
        "learning.svg",
        "figures",
    )
)
_EXPERIMENT = "demo/landscape"
_LEARNER = "gp-ts"
_FRAMES = 24
_PIXELS = 260
_TABLE_WIDTH = 80
_LEAST_COLUMNS = 16
_REST = 1.5  # seconds for which the last frame stays
_SPARKS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, kw_only=True, eq=False)
class Frame:
    """What the learner believed after a round."""

    step: int
    mean: Floats  # (side, side)
    std: Floats  # (side, side)
    chosen: Ints  # this round's places
    regret: float


@dataclass(kw_only=True, eq=False)
class _Watcher:
    """Turns rounds into frames, and shows each as it comes."""

    problem: FiniteProblem
    policy: IndexPolicy
    show: Callable[[Frame], None]
    frames: list[Frame] = field(default_factory=list)

    def __call__(self, name: str, offer: Offer, decision: Decision, feedback: Feedback) -> None:
        belief = self.policy.posterior.belief(offer.arms)
        side = _side(self.problem)
        frame = Frame(
            step=offer.step,
            mean=belief.mean.reshape(side, side),
            std=belief.std.reshape(side, side),
            chosen=decision.positions,
            regret=self.problem.best(offer) - self.problem.value(offer, decision.positions),
        )
        self.frames.append(frame)
        self.show(frame)


def run_demo(
    *, out: Path, rounds: int = 80, seed: int = 0, quiet: bool = False, delay: float = 0.05
) -> dict[str, Any]:
    """Learn, draw, compare, report; returns the summary that ``--json`` prints."""
    _make_room(out)
    experiment = load_experiment(_EXPERIMENT)
    problem = experiment.build_problem(seed=seed, horizon=rounds)
    policy = experiment.build_policy(_LEARNER, problem)
    assert isinstance(problem, FiniteProblem)
    assert isinstance(policy, IndexPolicy)
    console = Console(quiet=quiet)
    console.print(
        "A landscape is hidden. Each round superarm tries three places, sees their\n"
        "heights with noise, and shares what it saw with the neighbourhood.\n",
        highlight=False,
    )
    with _display(console, problem, rounds, delay) as show:
        watcher = _Watcher(problem=problem, policy=policy, show=show)
        simulate(problem, {_LEARNER: policy}, rounds=rounds, seed=seed, watch=watcher)

    console.print("\nNow five seeds of it against four others …", highlight=False)
    plan = Plan.make(experiment, out=out, rounds=rounds, first_seed=seed)
    picture = animated_svg(problem, watcher.frames)
    write_spec(out, plan.describe())
    atomic_write(out / "learning.svg", picture.encode())  # first: by it the next demo knows this one
    summary = execute(plan, resume=True)
    notes = (
        "Left: what the learner believes. Middle: how unsure it is. Right: the truth, which it "
        "never sees. Dots are the places it has tried, bright ones in this round."
    )
    write_report(
        Run.load(out),
        summary["claims"],
        out / "report.html",
        notes,
        picture=picture,
        command=("superarm", "run", _EXPERIMENT),
        full_size=(experiment.rounds, experiment.seeds),
    )
    _print_table(console, summary)
    where = f"\nThe report, with the animation: {out / 'report.html'}"
    console.print(where, markup=False, soft_wrap=True)  # a path that is broken cannot be followed
    return summary


# --- in the terminal ---------------------------------------------------------------------


@contextmanager
def _display(
    console: Console, problem: FiniteProblem, rounds: int, delay: float
) -> Iterator[Callable[[Frame], None]]:
    """A live picture in a terminal with colours; a line every ten rounds elsewhere."""
    regrets: list[float] = []
    best = problem.best(problem.offer(1))

    def line(frame: Frame) -> str:
        total = f"heights {best - frame.regret:5.2f} of at most {best:.2f}"
        text = f"round {frame.step:3d}/{rounds}   {total}   regret "
        return text + _spark(regrets, max(5, min(40, console.width - len(text))))

    if console.quiet:
        yield lambda frame: None
        return
    if not console.is_terminal or console.is_dumb_terminal or console.no_color:

        def note(frame: Frame) -> None:
            regrets.append(frame.regret)
            if frame.step in (1, rounds) or frame.step % 10 == 0:
                console.print(line(frame), highlight=False, soft_wrap=True)

        yield note
        return
    with Live(console=console, auto_refresh=False) as live:

        def draw(frame: Frame) -> None:
            regrets.append(frame.regret)
            live.update(Group(_picture(problem, frame, console.width), Text(line(frame))), refresh=True)
            time.sleep(delay)

        yield draw


def _picture(problem: FiniteProblem, frame: Frame, width: int) -> Table:
    """Believed, unsure and true side by side, coarser where the terminal is narrow."""
    side = _side(problem)
    truth = problem.truth.reshape(side, side)
    low, high = float(truth.min()), float(truth.max())
    panels = [
        ("believed", _unit(frame.mean, low, high), "viridis"),
        ("unsure", _unit(frame.std, 0.0, 1.0), "magma"),
        ("hidden truth", _unit(truth, low, high), "viridis"),
    ]
    columns = min(side, (width - 4) // 3)
    if columns < _LEAST_COLUMNS:
        panels, columns = panels[:1], min(side, width)
    columns -= columns % 2  # two rows share a line
    grid = Table.grid(padding=(0, 2), pad_edge=False)
    grid.add_row(*(Text(title, style="bold") for title, _, _ in panels))
    grid.add_row(*(_blocks(unit, colours, frame.chosen, columns) for _, unit, colours in panels))
    return grid


def _blocks(unit: Floats, colours: str, chosen: Ints, columns: int) -> Text:
    """Two rows of the grid per line of text: upper half block in one colour on the other."""
    side = len(unit)
    shown = np.arange(columns) * side // columns
    rgb = colour_of(unit[np.ix_(shown, shown)], colours).astype(int)
    marked = {tuple(part * columns // side for part in divmod(int(place), side)) for place in chosen}
    text = Text()
    for row in range(columns - 1, 0, -2):
        for column in range(columns):
            upper, lower = rgb[row, column], rgb[row - 1, column]
            hit = (row, column) in marked or (row - 1, column) in marked
            front = "bold white" if hit else f"rgb({upper[0]},{upper[1]},{upper[2]})"
            text.append("●" if hit else "▀", f"{front} on rgb({lower[0]},{lower[1]},{lower[2]})")
        text.append("\n")
    return text


def _spark(regrets: list[float], length: int) -> str:
    """The regret of the last rounds as a small curve."""
    recent = regrets[-length:]
    top = max(regrets, default=0.0) or 1.0
    return "".join(_SPARKS[min(7, int(8 * max(0.0, value) / top))] for value in recent)


def _print_table(console: Console, summary: dict[str, Any]) -> None:
    rows = [row for row in summary["rows"] if row["metric"] == "cumulative_regret"]
    rows.sort(key=lambda row: row["mean"])
    table = Table(title=f"Regret after {summary['rounds']} rounds, {summary['seeds']} seeds")
    explained = console.width >= _TABLE_WIDTH
    table.add_column("policy")
    if explained:
        table.add_column("what it is", no_wrap=True)
    table.add_column("regret", justify="right")
    table.add_column("per round", justify="right")
    for row in rows:
        table.add_row(
            row["policy"],
            *([_WHAT.get(row["policy"], "")] if explained else []),
            plus_minus(row["mean"], row["stderr"]),
            readable_seconds(row["seconds_per_round"]),
            style="bold" if row is rows[0] else None,
        )
    console.print(table)


_WHAT = {
    "gp-ts": "Thompson sampling, joint",
    "gp-bucb": "upper quantile of the posterior",
    "gp-greedy": "best mean, no exploring",
    "independent-ts": "Thompson, nothing shared",
    "random": "chance",
}


# --- as a picture ------------------------------------------------------------------------


def animated_svg(problem: FiniteProblem, frames: list[Frame]) -> str:
    """Three panels, the first two of which move; a still shows the last frame."""
    side = _side(problem)
    truth = problem.truth.reshape(side, side)
    low, high = float(truth.min()), float(truth.max())
    chosen = _spread_frames(frames)
    gap, top = 16, 34
    width, height = 3 * _PIXELS + 4 * gap, _PIXELS + top + 40
    left = [gap + panel * (_PIXELS + gap) for panel in range(3)]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" class="chart" '
        f'role="img" font-family="system-ui,sans-serif" font-size="14">',
        "<title>A policy learns a hidden landscape, three places a round</title>",
        f'<rect width="{width}" height="{height}" fill="#fff" rx="8"/>',
    ]
    for x, title in zip(
        left, ("What it believes", "How unsure it is", "The hidden truth"), strict=True
    ):
        parts.append(f'<text x="{x}" y="24" font-weight="600" fill="#1f2328">{title}</text>')
    parts.append(_panel(_unit(truth, low, high), "viridis", left[2], top))
    seconds = 0.35 * len(chosen) + _REST
    best = problem.best(problem.offer(1))
    for index, frame in enumerate(chosen):
        tried = np.concatenate([earlier.chosen for earlier in frames[: frame.step]])
        share = f"round {frame.step}: heights {best - frame.regret:.2f} of at most {best:.2f}"
        body = [
            _panel(_unit(frame.mean, low, high), "viridis", left[0], top),
            _panel(_unit(frame.std, 0.0, 1.0), "magma", left[1], top),
            _dots(tried[: -len(frame.chosen)], side, left[0], top, "#fff", 0.45, 1.6),
            _dots(frame.chosen, side, left[0], top, "#ff3b30", 1.0, 4.5),
            f'<text x="{gap}" y="{height - 14}" fill="#1f2328">{escape(share)}</text>',
        ]
        parts.append(_timed("".join(body), index, len(chosen), seconds))
    return "".join(parts) + "</svg>"


def _timed(body: str, index: int, count: int, seconds: float) -> str:
    """A group that shows in its turn; the last one at once, and alone where nothing moves."""
    step = 0.35 / seconds
    start, end = index * step, 1.0 if index == count - 1 else (index + 1) * step
    last = index == count - 1
    values, times = ("0;1", f"0;{start:.4f}") if last else ("0;1;0", f"0;{start:.4f};{end:.4f}")
    if index == 0:
        values, times = "1;0", f"0;{end:.4f}"
    return (
        f'<g opacity="{int(last)}">{body}<animate attributeName="opacity" calcMode="discrete" '
        f'values="{values}" keyTimes="{times}" dur="{seconds:.2f}s" '
        # Under way when it appears, so that a preview of the first moment shows the end.
        f'begin="-{seconds - _REST:.2f}s" repeatCount="indefinite"/></g>'
    )


def _panel(unit: Floats, colours: str, x: int, y: int) -> str:
    return png_image(unit[::-1], colours, x=x, y=y, width=_PIXELS, height=_PIXELS)


def _dots(places: Ints, side: int, x: int, y: int, colour: str, opacity: float, radius: float) -> str:
    cell = _PIXELS / side
    rows, columns = np.divmod(np.unique(places), side)
    circles = "".join(
        f'<circle cx="{x + (column + 0.5) * cell:.1f}" cy="{y + _PIXELS - (row + 0.5) * cell:.1f}" '
        f'r="{radius}"/>'
        for row, column in zip(rows, columns, strict=True)
    )
    ring = ' stroke="#fff" stroke-width="1.5"' if radius > 2 else ""
    return f'<g fill="{colour}" opacity="{opacity}"{ring}>{circles}</g>'


def _spread_frames(frames: list[Frame]) -> list[Frame]:
    """More frames early on, when most is learned."""
    steps = np.unique(np.geomspace(1, len(frames), min(_FRAMES, len(frames))).round().astype(int))
    return [frames[step - 1] for step in steps]


def _unit(values: Floats, low: float, high: float) -> Floats:
    scaled: Floats = np.clip((values - low) / ((high - low) or 1.0), 0.0, 1.0)
    return scaled


def _side(problem: FiniteProblem) -> int:
    return math.isqrt(len(problem.truth))


def _make_room(out: Path) -> None:
    """An earlier demo makes way; anything else is left alone."""
    if not out.exists():
        return
    if not out.is_dir():
        raise ConflictError(f"{out} is a file; choose another --out")
    entries = {path.name for path in out.iterdir()}
    if not entries:
        return
    foreign = {name for name in entries - _OURS if not is_temporary(name, _OURS)}
    # Runs of the same make are not demos: they may have cost hours. Only demos have the picture.
    if foreign or "learning.svg" not in entries or not _is_demo(out / "run.json"):
        raise ConflictError(f"{out} holds something other than an earlier demo; choose another --out")
    for path in list(out.iterdir()):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _is_demo(spec: Path) -> bool:
    try:
        return bool(json.loads(spec.read_text(encoding="utf-8"))["experiment"] == _EXPERIMENT)
    except (OSError, ValueError, KeyError, TypeError):
        return False
