"""SUMO's own converter of networks, which comes with the extra ``sumo``, and networks written with it.

Nodes, edges and connections are written as plain XML, of which it makes a ``.net.xml``. Every edge has
one lane, so that a connection of ours is a connection of theirs, and nothing is guessed: no turn is
added, no junction joined, no coordinate moved.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.sax.saxutils import quoteattr

import numpy as np

from superarm.core import Bools
from superarm.core.errors import (
    InputError,
    MissingExtraError,
    install_line,
    require_extra,
)

from .road import VEHICLE_CLASSES, RoadNetwork

_ERROR_LINES = 10
_OPTIONS = (
    "--offset.disable-normalization=true",
    "--no-turnarounds.except-deadend=true",
    "--precision=6",
    "--roundabouts.guess=false",
)


def convert(
    path: Path, options: list[str], folder: str, timeout: float = 600.0
) -> None:
    """Run netconvert in ``folder``, where no name can be an option; errors are about ``path``."""
    home = Path(require_extra("sumo", "sumo").SUMO_HOME)
    program = home / "bin" / ("netconvert.exe" if os.name == "nt" else "netconvert")
    if not program.is_file():
        raise MissingExtraError(f"{program} is missing; run: {install_line('sumo')}")
    try:
        done = subprocess.run(
            [str(program), *options, "--xml-validation=never"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            check=False,
            env={**os.environ, "SUMO_HOME": str(home)},
            encoding="utf-8",
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        raise InputError(
            f"{path}: netconvert had not finished after {timeout:g} s; raise timeout, or use a "
            "smaller map"
        ) from None
    if done.returncode:
        words = [
            line for line in done.stderr.splitlines() if not line.startswith("Warning")
        ]
        said = "\n".join(words[-_ERROR_LINES:]) or "nothing"
        raise InputError(
            f"{path}: netconvert failed (exit code {done.returncode}) and said:\n{said}"
        )


def write_sumo(network: RoadNetwork, path: str | Path) -> Path:
    """A ``.net.xml`` or ``.net.xml.gz`` that SUMO drives on and ``read_sumo`` reads; the path.

    Ids, turns, lengths, speeds, heights and permissions are kept, numbers to six decimals; roads are
    drawn as straight lines.
    """
    path = Path(path)
    if not path.name.endswith((".net.xml", ".net.xml.gz")):
        raise InputError(f"{path}: a SUMO network is named .net.xml or .net.xml.gz")
    with TemporaryDirectory(prefix="superarm-") as folder:
        made = "made.net.xml.gz" if path.suffix == ".gz" else "made.net.xml"
        files = [f"--output-file={made}"]
        for kind, elements in (
            ("node", _nodes),
            ("edge", _edges),
            ("connection", _connections),
        ):
            lines = "".join(f"<{kind} {element}/>\n" for element in elements(network))
            (Path(folder) / kind).write_text(
                f"<{kind}s>\n{lines}</{kind}s>\n", encoding="utf-8"
            )
            files.append(f"--{kind}-files={kind}")
        convert(path, [*files, *_OPTIONS], folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(Path(folder) / made, path)
    return path


def _nodes(network: RoadNetwork) -> Iterator[str]:
    for name, (x, y, z) in zip(
        network.junction_ids, network.junctions.tolist(), strict=True
    ):
        yield f'id={quoteattr(name)} x="{x:.6f}" y="{y:.6f}" z="{z:.6f}"'


def _edges(network: RoadNetwork) -> Iterator[str]:
    junction, allowed = (
        network.junction_ids,
        _allowed(network.permits, len(network.edge_ids)),
    )
    for number, name in enumerate(network.edge_ids):
        tail, head = junction[network.tail[number]], junction[network.head[number]]
        yield (
            f'id={quoteattr(name)} from={quoteattr(tail)} to={quoteattr(head)} numLanes="1"'
            f' speed="{network.speed[number]:.6f}" length="{network.length[number]:.6f}"'
            f"{allowed[number]}"
        )


def _connections(network: RoadNetwork) -> Iterator[str]:
    """Every connection, and for edges that have none a line that says so."""
    edge = network.edge_ids
    first, second = network.connections.T
    lanes = {who: may[first] & may[second] for who, may in network.permits.items()}
    said = zip(
        _allowed(network.turn_permits, len(first)),
        _allowed(lanes, len(first)),
        strict=True,
    )
    for one, other, (of_turn, of_lanes) in zip(
        first.tolist(), second.tolist(), said, strict=True
    ):
        ends = f'from={quoteattr(edge[one])} to={quoteattr(edge[other])} fromLane="0" toLane="0"'
        yield ends + (of_turn if of_turn != of_lanes else "")
    for number in np.setdiff1d(np.arange(len(edge)), first).tolist():
        yield f"from={quoteattr(edge[number])}"


def _allowed(permits: Mapping[str, Bools], count: int) -> list[str]:
    """For each edge or turn the attribute that says who may use it; nothing where everybody may."""
    words = []
    for number in range(count):
        classes = [
            who for who in VEHICLE_CLASSES if who in permits and permits[who][number]
        ]
        allow = f' allow="{" ".join(classes)}"' if classes else ' disallow="all"'
        words.append("" if len(classes) == len(VEHICLE_CLASSES) else allow)
    return words
