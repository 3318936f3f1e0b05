"""A small SUMO network to drive on, where SUMO is installed."""

import subprocess
from pathlib import Path

import pytest

# A straight road over a hill, then a corner; a side road, a bus road, tiny edges.
NODES = {
    "a": (0, 0, 0),
    "b": (1000, 0, 0),
    "c": (2000, 0, 50),
    "d": (3000, 0, 0),
    "s": (3500, 0, 0),
    "t1": (3501.5, 0, 0),
    "t2": (3503, 0, 0),
    "e": (4000, 0, 0),
    "f": (4000, 900, 0),
    "g": (1000, 900, 0),
}
EDGES = [
    "ab",
    "bc",
    "cd",
    "ds",
    "s-t1",
    "t1-t2",
    "t2-e",
    "ef",
    "fg",
    "gb",
    "ba",
    "dc",
    "cb",
]
SPEED = 13.9


def write_hill(folder, signals=False):
    import sumo

    def between(edge):
        return edge.split("-") if "-" in edge else list(edge)

    kind = 'type="traffic_light" tlType="actuated"'
    nodes = "".join(
        f'<node id="{name}" x="{x}" y="{y}" z="{z}" {kind if signals and name == "b" else ""}/>'
        for name, (x, y, z) in NODES.items()
    )
    edges = "".join(
        f'<edge id="{name}" from="{between(name)[0]}" to="{between(name)[1]}" numLanes="1" '
        f'speed="{SPEED}"/>'
        for name in EDGES
    )
    bus = '<edge id="bus" from="b" to="f" numLanes="1" speed="10" allow="bus"/>'
    (folder / "plain.nod.xml").write_text(f"<nodes>{nodes}</nodes>")
    (folder / "plain.edg.xml").write_text(f"<edges>{edges}{bus}</edges>")
    file = folder / "small.net.xml"
    subprocess.run(
        [Path(sumo.SUMO_HOME) / "bin" / "netconvert", "-n", "plain.nod.xml", "-e", "plain.edg.xml",
         "-o", file.name, "--no-turnarounds", "--no-warnings"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    return file


@pytest.fixture(scope="session")
def build_network():
    """Writes the network into a folder; with ``signals`` there is a traffic-actuated one."""
    pytest.importorskip("sumo", reason="sumo is not installed")
    return write_hill


@pytest.fixture(scope="session")
def network(build_network, tmp_path_factory):
    return build_network(tmp_path_factory.mktemp("net"))
