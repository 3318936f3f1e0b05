"""SUMO's own converter of networks, which comes with the extra ``sumo``, and networks written with it.

Nodes, edges and connections are written as plain XML, of which it makes a ``.net.xml``. Every edge has
one lane, so that a connection of ours is a connection of theirs, and nothing is guessed: no turn is
added, no junction joined, no coordinate moved.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
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
    """Run netconvert.

    Args:
        path: The file that errors are about.
        options: Options of netconvert.
        folder: The folder to run in, where no name can be an option.
        timeout: Seconds after which it is stopped.
    """
    home = Path(require_extra("sumo", "sumo").SUMO_HOME)
    program = home / "bin" / ("netconvert.exe" if os.name == "nt" else "netconvert")
    if not program.is_file():
        raise MissingExtraError(f"{program} is missing", install_line("sumo"))
    try:
        result = subprocess.run(
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
    if result.returncode:
        lines = result.stderr.splitlines()
        errors = [line for line in lines if not line.startswith("Warning")]
        output = "\n".join(errors[-_ERROR_LINES:]) or "nothing"
        raise InputError(
            f"{path}: netconvert failed (exit code {result.returncode}) with this output:\n{output}"
        )


def write_sumo(network: RoadNetwork, path: str | Path) -> Path:
    """Write a network as a file that SUMO drives on and ``read_sumo`` reads; return its path.

    Ids, turns, lengths, speeds, heights and permissions are kept, numbers to six decimals; roads are
    drawn as straight lines.

    Args:
        network: The roads.
        path: A ``.net.xml`` or ``.net.xml.gz`` file.
    """
    path = Path(path)
    if not path.name.endswith((".net.xml", ".net.xml.gz")):
        raise InputError(f"{path}: a SUMO network is named .net.xml or .net.xml.gz")
    output = "made.net.xml"
    if path.suffix == ".gz":
        output = "made.net.xml.gz"
    with TemporaryDirectory(prefix="superarm-") as folder:
        _write_elements(Path(folder), "node", _nodes(network))
        _write_elements(Path(folder), "edge", _edges(network))
        _write_elements(Path(folder), "connection", _connections(network))
        files = [
            f"--output-file={output}",
            "--node-files=node",
            "--edge-files=edge",
            "--connection-files=connection",
        ]
        convert(path, [*files, *_OPTIONS], folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(Path(folder) / output, path)
    return path


def _write_elements(folder: Path, kind: str, elements: Iterable[str]) -> None:
    """Write XML elements, of each of which the attributes are given, to a file named after them."""
    lines = "".join(f"<{kind} {attributes}/>\n" for attributes in elements)
    text = f"<{kind}s>\n{lines}</{kind}s>\n"
    (folder / kind).write_text(text, encoding="utf-8")


def _nodes(network: RoadNetwork) -> Iterator[str]:
    places = network.junctions.tolist()
    for name, (x, y, z) in zip(network.junction_ids, places, strict=True):
        yield f'id={quoteattr(name)} x="{x:.6f}" y="{y:.6f}" z="{z:.6f}"'


def _edges(network: RoadNetwork) -> Iterator[str]:
    junctions = network.junction_ids
    allowed = _allow_attributes(network.permits, len(network.edge_ids))
    for number, name in enumerate(network.edge_ids):
        tail = quoteattr(junctions[network.tail[number]])
        head = quoteattr(junctions[network.head[number]])
        speed = network.speed[number]
        length = network.length[number]
        yield (
            f'id={quoteattr(name)} from={tail} to={head} numLanes="1"'
            f' speed="{speed:.6f}" length="{length:.6f}"{allowed[number]}'
        )


def _connections(network: RoadNetwork) -> Iterator[str]:
    """Yield every connection, and for edges that have none an element without an end."""
    ids = network.edge_ids
    first, second = network.connections.T
    # Who may use both lanes: SUMO assumes it of a connection that states nothing.
    lane_permits = {}
    for vehicle_class, may_use in network.permits.items():
        lane_permits[vehicle_class] = may_use[first] & may_use[second]
    turn_allowed = _allow_attributes(network.turn_permits, len(first))
    lanes_allowed = _allow_attributes(lane_permits, len(first))
    for number, (before, after) in enumerate(network.connections.tolist()):
        allowed = turn_allowed[number]
        if allowed == lanes_allowed[number]:
            allowed = ""
        from_edge = quoteattr(ids[before])
        to_edge = quoteattr(ids[after])
        yield f'from={from_edge} to={to_edge} fromLane="0" toLane="0"{allowed}'
    numbers = np.arange(len(ids))
    without_turns = np.setdiff1d(numbers, first)
    for number in without_turns.tolist():
        yield f"from={quoteattr(ids[number])}"


def _allow_attributes(permits: Mapping[str, Bools], count: int) -> list[str]:
    """Return for each edge or turn the attribute of who may use it; "" where everybody may."""
    return [_allow_attribute(permits, number) for number in range(count)]


def _allow_attribute(permits: Mapping[str, Bools], number: int) -> str:
    known_classes = [name for name in VEHICLE_CLASSES if name in permits]
    classes = [name for name in known_classes if permits[name][number]]
    if len(classes) == len(VEHICLE_CLASSES):
        return ""
    if not classes:
        return ' disallow="all"'
    return f' allow="{" ".join(classes)}"'
