"""Cached drives, keyed by simulation settings; damaged entries; networks with rail."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from compare_drives import assert_same_drive

from superarm.core.errors import FileError, InputError
from superarm.roads.networks import read_sumo
from superarm.roads.sumo import Driver, Traffic
from superarm.roads.sumo.plain_network import plain_text

pytestmark = pytest.mark.slow  # make test does not install SUMO

libsumo = pytest.importorskip("libsumo", reason="libsumo is not installed")
sumo = pytest.importorskip("sumo", reason="sumo is not installed")

ROUTE = ["ef", "fg", "gb"]


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "kept" / "drives.sqlite"


@pytest.fixture
def unmoved(monkeypatch):
    """From here on nothing may be driven."""

    def switch():
        def refuse(*_):
            raise AssertionError("this drive should have been found")

        monkeypatch.setattr(Driver, "_simulate", refuse)

    return switch


def rows(cache):
    with sqlite3.connect(cache) as file:
        return file.execute("SELECT count(*) FROM drives").fetchone()[0]


def test_cached_drive_is_shared_between_drivers(network, cache, tmp_path, unmoved):
    with Driver(network, cache=cache) as driver:
        driven = driver.drive(ROUTE)
    copied = tmp_path / "moved.net.xml"
    copied.write_bytes(network.read_bytes())  # what counts is what is in the file
    unmoved()
    with Driver(
        copied, cache=str(cache), seed=5
    ) as driver:  # no traffic: nothing is drawn
        assert_same_drive(driver.drive(ROUTE), driven)
        assert_same_drive(driver.drive(tuple(ROUTE)), driven)
        with pytest.raises(InputError, match="list of at least one edge"):
            driver.drive("ef")


@pytest.mark.slow
def test_cache_key_includes_every_relevant_setting(network, cache, tmp_path):
    busy = Traffic(vehicles_per_hour=900.0, warm_up=60.0, moments=2, spacing=30.0)
    slow = tmp_path / "slow.net.xml"
    slow.write_text(network.read_text().replace('speed="13.90"', 'speed="9.00"'))
    ways = [
        (network, {}, {}),
        (network, {"step": 0.1}, {}),
        (network, {"traffic": busy}, {}),
        (network, {"traffic": busy}, {"moment": 1}),
        (network, {"traffic": busy, "seed": 1}, {}),
        (network, {"departures": (0.0, 7.0)}, {"moment": 1}),
        (network, {}, {"longest": 50.0}),
        (slow, {}, {}),
    ]
    for count, (file, how, when) in enumerate(ways, start=1):
        with Driver(file, cache=cache, **how) as driver:
            cached = driver.drive(ROUTE, **when)
        with Driver(file, **how) as driver:
            assert_same_drive(driver.drive(ROUTE, **when), cached)
        assert rows(cache) == count
    with Driver(network, cache=cache, departures=(7.0, 0.0)) as driver:
        driver.drive(ROUTE)
    assert rows(cache) == len(ways)  # a departure is identified by its time


@pytest.mark.slow
@pytest.mark.parametrize("harm", [b"", b"nonsense", None, 7, "text"], ids=str)
def test_damaged_cache_entries_are_driven_again(network, cache, harm, unmoved):
    with Driver(network, cache=cache) as driver:
        driven = driver.drive(ROUTE)
    with sqlite3.connect(cache) as file:
        good = file.execute("SELECT drive FROM drives").fetchone()[0]
        changed = good[:500] + bytes([good[500] ^ 1]) + good[501:]
        file.execute(
            "UPDATE drives SET drive = ?", (changed if harm is None else harm,)
        )
    with Driver(network, cache=cache) as driver:
        with pytest.warns(UserWarning, match="damaged and driven anew"):
            assert_same_drive(driver.drive(ROUTE), driven)
        unmoved()
        assert_same_drive(driver.drive(ROUTE), driven)


def test_cached_drive_of_another_route_is_ignored(network, cache):
    with Driver(network, cache=cache) as driver:
        driver.drive(ROUTE)
        other = driver.drive(ROUTE[:2])
        with sqlite3.connect(cache) as file:
            file.execute("UPDATE drives SET drive = ?", (other.to_bytes(),))
        with pytest.warns(UserWarning, match="2 edges, not 3"):
            assert len(driver.drive(ROUTE).left) == 3
        full = driver.drive(ROUTE)
        with sqlite3.connect(cache) as file:
            file.execute("UPDATE drives SET drive = ?", (full.to_bytes(),))
        with pytest.warns(UserWarning, match="3 edges, not 2"):
            assert len(driver.drive(ROUTE[:2]).left) == 2


def test_foreign_files_are_not_modified(network, tmp_path):
    letter = tmp_path / "letter.txt"
    letter.write_text("Dear Sir or Madam, " * 100)
    with pytest.raises(FileError, match=r"letter\.txt: drives cannot be kept"):
        Driver(network, cache=letter)
    assert letter.read_text().startswith("Dear")
    with pytest.raises(FileError, match="drives cannot be kept"):
        Driver(network, cache=tmp_path)


def test_cache_failure_during_a_run_warns_and_continues(network, cache):
    with Driver(network, cache=cache) as driver:
        driven = driver.drive(ROUTE)
        cache.write_bytes(b"no such thing" * 1000)
        with pytest.warns(UserWarning, match=r"drives\.sqlite") as warned:
            assert_same_drive(driver.drive(ROUTE), driven)
    messages = " ".join(str(warning.message) for warning in warned)
    assert "driven anew" in messages
    assert "could not be kept" in messages


@pytest.mark.slow
def test_several_processes_write_at_once(network, cache):
    code = (
        "import sys; from superarm.roads.sumo import Driver\n"
        "with Driver(sys.argv[1], cache=sys.argv[2]) as driver:\n"
        "    for last in range(1, 8):\n"
        "        driver.drive(['ab', 'bc', 'cd', 'ds', 's-t1', 't1-t2', 't2-e'][:last])\n"
    )
    words = [sys.executable, "-W", "error", "-c", code, str(network), str(cache)]
    started = [subprocess.Popen(words, stderr=subprocess.PIPE) for _ in range(3)]
    for process in started:
        assert process.communicate()[1] == b""
        assert process.returncode == 0
    assert rows(cache) == 7


# --- rail ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crossing(tmp_path_factory):
    """A road that crosses a railway twice: a level crossing, and a signal beyond it."""
    folder = tmp_path_factory.mktemp("rail")
    places = {
        "w": (0, 0),
        "x": (500, 0),
        "e": (1000, 0),
        "n": (500, 500),
        "s": (500, -500),
    }
    places |= {"nn": (500, 900), "v": (1000, 500)}
    kinds = {"x": "rail_crossing", "n": "rail_signal"}
    nodes = "".join(
        f'<node id="{name}" x="{x}" y="{y}" type="{kinds.get(name, "priority")}"/>'
        for name, (x, y) in places.items()
    )
    road = 'numLanes="1" speed="13.9" allow="passenger"'
    rail = 'numLanes="1" speed="20" allow="rail tram"'
    edges = "".join(
        f'<edge id="{name}" from="{first}" to="{last}" {how}/>'
        for name, first, last, how in [
            ("wx", "w", "x", road), ("xe", "x", "e", road), ("ev", "e", "v", road),
            ("ve", "v", "e", road), ("ex", "e", "x", road), ("xw", "x", "w", road),
            ("sx", "s", "x", rail), ("xn", "x", "n", rail), ("nnn", "n", "nn", rail),
        ]
    )  # fmt: skip
    (folder / "plain.nod.xml").write_text(f"<nodes>{nodes}</nodes>")
    (folder / "plain.edg.xml").write_text(f"<edges>{edges}</edges>")
    program = Path(sumo.SUMO_HOME) / "bin" / "netconvert"
    subprocess.run(
        [program, "-n", "plain.nod.xml", "-e", "plain.edg.xml", "-o", "rail.net.xml", "--no-warnings"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    return folder / "rail.net.xml"


def test_rail_is_simplified_without_changing_roads(crossing, tmp_path):
    text = crossing.read_bytes()
    assert b'type="rail_crossing"' in text
    assert b'type="rail_signal"' in text
    plain = tmp_path / "plain.net.xml"
    plain.write_bytes(plain_text(crossing))
    assert b"rail_crossing" not in plain.read_bytes()
    assert b"rail_signal" not in plain.read_bytes()
    assert b'tl="x"' not in plain.read_bytes()
    before, after = read_sumo(crossing).line_graph(), read_sumo(plain).line_graph()
    assert before.ids == after.ids
    for name in ("turns", "length", "speed", "rise"):
        np.testing.assert_array_equal(getattr(before, name), getattr(after, name))


def test_other_elements_are_not_changed(build_network, tmp_path):
    file = build_network(tmp_path, signals=True)
    text = file.read_bytes()
    assert b'type="actuated"' in text
    for kind in (b"actuated", b"delay_based", b"NEMA"):  # whatever reacts to cars
        file.write_bytes(text.replace(b'type="actuated"', b'type="%s"' % kind))
        assert plain_text(file) == text.replace(b'type="actuated"', b'type="static"')


@pytest.mark.slow
def test_traffic_crosses_rails(crossing):
    """libsumo ends by signal 11 when it loads a state of this network as it is."""
    busy = Traffic(vehicles_per_hour=600.0, warm_up=120.0, moments=2, spacing=30.0)
    with Driver(crossing) as driver:
        free = driver.drive(["wx", "xe", "ev"])
    assert free.arrived
    with Driver(crossing, traffic=busy) as driver:
        drives = [
            driver.drive(["wx", "xe", "ev"], moment=moment) for moment in range(2)
        ]
    assert all(drive.arrived for drive in drives)
    # The crossing does not slow anybody down: from far before it to far behind, at the limit.
    there = free.positions[
        (free.positions[:, 1] > 100.0) & (free.positions[:, 1] < 900.0)
    ]
    np.testing.assert_allclose(np.diff(there[:, 1]), 13.9, rtol=1e-3)
