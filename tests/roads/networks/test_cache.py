"""Networks cached next to their files: never a stale, foreign or hostile one."""

from __future__ import annotations

import io
import json
import os
import zipfile
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superarm.core.errors import InputError
from superarm.roads.energy.junctions import Signal
from superarm.roads.networks import (
    RoadNetwork,
    generate_city,
    read_network,
    trusted_files,
)
from superarm.roads.networks import cache as module
from superarm.roads.networks.cache import cache_path, read_cached
from superarm.roads.networks.geography import from_utm
from superarm.roads.networks.network_arrays import (
    pack_network,
    unpack_network,
    unpack_text,
)
from superarm.roads.networks.road import LIMITS, TURN_COLUMNS


def with_everything() -> RoadNetwork:
    """Shapes, signals, names in any letters, and all that is optional."""
    city = generate_city(edges=300, seed=2)
    ends = np.stack([city.tail, city.head], axis=1)
    bent = [city.junctions[pair, :2] for pair in ends]
    bent[3] = np.array([*bent[3][:1], [1.0, 2.0], *bent[3][1:]])
    names = [""] * len(city.edge_ids)
    names[1], names[2] = "Große Straße", "line\nand 東京 🚗"
    turns = len(city.connections)
    signals = {
        7: Signal(90.0, -3.5, ((0.0, 30.0), (40.0, 95.0)), True),
        2: Signal(60.0, 0.0, (), False),
    }
    rng = np.random.default_rng(0)
    return replace(
        city,
        lon_lat=from_utm(city.junctions[:, :2] + [3e5, 5.4e6], 32),
        shapes=tuple(bent),
        street_names=tuple(names),
        signals=signals,
        permits={
            "passenger": city.permits["passenger"],
            "bus": rng.random(len(ends)) < 0.5,
        },
        **{name: rng.random(turns) for name in TURN_COLUMNS},
    )


def test_sample_network_has_every_optional_field() -> None:
    """So that a field that is added, and not cached, is noticed."""
    network = with_everything()
    missing = []
    for field in fields(RoadNetwork):
        if field.name == "source":
            continue  # where it was read, which no cache contains
        default = field.default
        if field.default_factory is not MISSING:
            default = field.default_factory()
        value = getattr(network, field.name)
        has_default = default is not MISSING and type(value) is type(default)
        if has_default and value == default:
            missing.append(field.name)
    assert missing == [], "set them in with_everything()"


def assert_same(one: RoadNetwork, other: RoadNetwork) -> None:
    for field in fields(RoadNetwork):
        ours, theirs = getattr(one, field.name), getattr(other, field.name)
        if isinstance(ours, np.ndarray):
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs)
        elif field.name == "shapes" and ours is not None:
            assert len(ours) == len(theirs)
            assert all(np.array_equal(*pair) for pair in zip(ours, theirs, strict=True))
        elif field.name in ("permits", "turn_permits"):
            assert list(ours) == list(theirs)
            assert all(np.array_equal(ours[who], theirs[who]) for who in ours)
        else:
            assert ours == theirs


class Reader:
    """Reads whatever file as one network, and counts how often."""

    def __init__(self, network: RoadNetwork) -> None:
        self.network, self.times = network, 0

    def __call__(self) -> RoadNetwork:
        self.times += 1
        return self.network


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "town.net.xml"
    path.write_text("a network")
    return path


def read(path: Path, reader: Reader, **options: Any) -> RoadNetwork:
    options = {
        "name": reader.network.name,
        "options": {"reader": "test"},
        "least_edges": 1,
        **options,
    }
    return read_cached(path, reader, **options)


@pytest.mark.parametrize(
    "network", [with_everything(), generate_city(edges=300, seed=2)]
)
def test_cached_network_equals_the_one_read(path: Path, network: RoadNetwork) -> None:
    reader = Reader(network)
    assert read(path, reader) is network
    reread = read(path, reader)
    assert reader.times == 1
    assert_same(reread, network)
    assert reread.line_graph().signals == network.line_graph().signals
    assert read(path, reader, name="other").name == "other"  # a name is not cached
    assert [file.name for file in path.parent.iterdir() if "tmp" in file.name] == []


def test_changed_file_is_reread(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file's content, the reader's options, the format and the version; not a date."""
    reader = Reader(generate_city(edges=300, seed=1))
    read(path, reader)
    facts = path.stat()
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns + 10**9))
    read(path, reader)
    assert reader.times == 1
    path.write_text("A network")  # as long as before, and as old
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    read(path, reader)
    assert reader.times == 2
    read(path, reader, options={"reader": "test", "heights": True})
    assert reader.times == 3
    for name, value in (("_FORMAT", 99), ("__version__", "0.0.0")):
        monkeypatch.setattr(module, name, value)
        read(path, reader, options={"reader": "test", "heights": True})
    assert reader.times == 5
    read(path, reader, options={"reader": "test", "heights": True})
    assert reader.times == 5


def test_file_changed_during_reading_is_not_cached(path: Path) -> None:
    network = generate_city(edges=300, seed=1)

    def changing() -> RoadNetwork:
        path.write_text("another network")
        return network

    read_cached(path, changing, name="town", options={}, least_edges=1)
    assert not cache_path(path).exists()


def test_cache_can_be_disabled(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(generate_city(edges=300, seed=1))
    read(path, reader, enabled=False)
    monkeypatch.setenv("SUPERARM_CACHE", "0")
    read(path, reader)
    assert not cache_path(path).exists()
    read(path, reader, enabled=True)
    assert cache_path(path).exists()
    read(path, reader)  # nor is it read
    assert reader.times == 4
    small = Reader(generate_city(edges=300, seed=1))
    read(
        path.with_name("town.net.xml"),
        small,
        least_edges=1000,
        enabled=True,
        variant="small",
    )
    assert not cache_path(path, "small").exists()


def test_unwritable_cache_is_skipped(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(generate_city(edges=300, seed=1))

    def full(*_: Any) -> None:
        raise OSError(28, "disk full")

    cache_path(path).mkdir()  # a folder cannot be replaced
    read(path, reader)
    cache_path(path).rmdir()
    monkeypatch.setattr(module.os, "replace", full)
    read(path, reader)
    monkeypatch.setattr(module.os, "access", lambda *_: False)
    read(path, reader)
    assert reader.times == 3
    assert list(path.parent.iterdir()) == [path]


def arrays_of(path: Path) -> dict[str, Any]:
    with np.load(cache_path(path)) as file:
        return dict(file)


def rewritten(path: Path, arrays: dict[str, Any]) -> None:
    with cache_path(path).open("wb") as file:
        np.savez(file, **arrays)


def test_every_damaged_byte_is_noticed_or_harmless(path: Path) -> None:
    """Whatever byte is changed, the network is the one that was read."""
    network = generate_city(edges=200, seed=1)
    read(path, Reader(network))
    original, rng = cache_path(path).read_bytes(), np.random.default_rng(0)
    noticed = 0
    for place in rng.integers(len(original), size=120).tolist():
        damaged = bytearray(original)
        damaged[place] ^= 1 << int(rng.integers(8))
        cache_path(path).write_bytes(damaged)
        reader = Reader(network)
        assert_same(read(path, reader), network)
        noticed += reader.times
        assert cache_path(path).read_bytes() in (original, bytes(damaged))
    assert noticed > 100
    for size in (0, 1, 100, len(original) // 2, len(original) - 1):
        cache_path(path).write_bytes(original[:size])
        reader = Reader(network)
        assert_same(read(path, reader), network)
        assert reader.times == 1
        assert zipfile.is_zipfile(cache_path(path))  # it was rewritten


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("length", np.array([-1.0])),
        ("length", np.array(3.0)),
        ("junctions", np.full((3, 3), np.nan)),
        ("junctions", np.zeros((5, 3), dtype=complex)),
        ("tail", np.array([10**9])),
        ("connections", np.array([[0, 10**9]])),
        ("connections", np.zeros((0, 5), dtype=np.int64)),
        ("permits", np.array(True)),
        ("permits", np.ones((1, 3))),
        ("edge_ids", np.array([255], dtype=np.uint8)),
        ("edge_ids", np.array(["a"])),
        ("edge_ids_counts", np.array([2**62] * 4)),
        ("edge_ids_counts", np.array([-1, 2])),
        ("edge_ids_counts", np.array([0.5])),
        ("shape_counts", np.array([2])),
        ("shapes", np.full((3, 2), np.inf)),
        ("signal_turns", np.array([10**9, 3])),
        ("signal_turns", np.array([3, 3])),
        ("signal_cycle", np.array([0.0, 1.0])),
        ("signal_offset", np.array([np.nan, 1.0])),
        ("signal_reds", np.array([2**62, 2**62])),
        ("reds", np.array([[30.0, 0.0], [40.0, 95.0]])),
        ("reds", np.array([3.0])),
        ("key", np.array(3)),
        ("lon_lat", np.array([[900.0, 0.0]])),
        ("turn_stop", np.array(["x"])),
    ],
)
def test_hostile_numbers_are_ignored(path: Path, name: str, value: Any) -> None:
    network = with_everything()
    read(path, Reader(network))
    rewritten(path, {**arrays_of(path), name: value})
    reader = Reader(network)
    assert_same(read(path, reader), network)
    assert reader.times == 1
    assert_same(read(path, reader), network)
    assert reader.times == 1  # it was rewritten
    missing = arrays_of(path)
    del missing[name]
    rewritten(path, missing)
    read(path, reader)


def test_bombs_objects_and_foreign_files_are_ignored(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = generate_city(edges=200, seed=1)
    read(path, Reader(network))
    arrays, place = arrays_of(path), cache_path(path)

    def ignored() -> None:
        reader = Reader(network)
        assert_same(read(path, reader), network)
        assert reader.times == 1

    packed = io.BytesIO()
    np.savez_compressed(packed, **{**arrays, "length": np.zeros(10**7)})
    place.write_bytes(packed.getvalue())  # 80 MB in a few kilobytes
    ignored()
    rewritten(path, {**arrays, "edge_ids": np.array([print, 3], dtype=object)})
    ignored()
    monkeypatch.setattr(trusted_files, "_SMALL", 1000)
    ignored()  # too large for such a file
    monkeypatch.undo()
    place.unlink()
    elsewhere = path.with_name("elsewhere.npz")
    elsewhere.write_text("not to be touched")
    place.symlink_to(elsewhere)
    ignored()
    assert elsewhere.read_text() == "not to be touched"
    assert not place.is_symlink()
    place.unlink()
    os.mkfifo(place)
    ignored()  # which would wait for ever
    place.unlink(missing_ok=True)
    read(path, Reader(network))
    monkeypatch.setattr(module.os, "geteuid", lambda: os.stat(path).st_uid + 1)
    facts = os.stat(path)
    foreign = os.stat_result([*facts[:4], facts.st_uid + 2, *facts[5:]])
    monkeypatch.setattr(module.os, "fstat", lambda _: foreign)
    ignored()  # somebody else's


def test_sumo_networks_use_it(
    tmp_path: Path, build_network: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from superarm.roads.networks import reading

    path = build_network(tmp_path)
    monkeypatch.setattr(
        module.read_cached,
        "__kwdefaults__",
        {**module.read_cached.__kwdefaults__, "least_edges": 1},
    )
    first = read_network(path)
    monkeypatch.setattr(
        reading, "read_sumo", lambda _: pytest.fail("it was read again")
    )
    assert_same(read_network(path), first)
    level = read_network(path, flat=True)  # heights are changed after it was read
    assert np.ptp(level.junctions[:, 2]) == 0.0
    assert_same(read_network(path), first)
    key = json.loads(bytes(arrays_of(Path(path))["key"]))
    assert key["options"] == {"reader": "sumo"}


STRANGE = {
    "number": np.array(3.0),
    "text": np.array(["x"]),
    "no UTF-8": np.array([255], dtype=np.uint8),
    "empty": np.array([]),
    "deep": np.zeros((2, 2, 2)),
    "complex": np.zeros(3, dtype=complex),
    "huge": np.array([2**62] * 4),
    "flags": np.array(True),
    "records": np.zeros(2, dtype=[("a", float)]),
    "dates": np.zeros(3, dtype="datetime64[s]"),
}


def test_damaged_arrays_raise_input_errors() -> None:
    """Whichever array is missing or strange: an error with advice, or still a network."""
    network = with_everything()
    with np.load(io.BytesIO(pack_network(network, "key"))) as file:
        arrays = dict(file)
    assert_same(unpack_network(arrays, network.name), network)
    assert unpack_text(arrays, "key") == "key"
    refused = 0
    for name in arrays:
        versions = [{**arrays, name: values} for values in STRANGE.values()]
        missing = dict(arrays)
        del missing[name]
        for damaged in [missing, *versions]:
            try:
                unpack_text(damaged, "key")
                unpack_network(damaged, network.name)
            except InputError:
                refused += 1
            else:
                # Optional arrays may be missing; no red may be a list of no times.
                assert damaged is missing or name == "key"
    assert refused >= len(STRANGE) * (len(arrays) - 1)
    with pytest.raises(InputError, match=r"length.* missing"):
        unpack_network({"junctions": arrays["junctions"]}, "town")


def test_times_of_signals_are_limited() -> None:
    city = generate_city(edges=200, seed=1)
    _, most = LIMITS["signal_time"]
    for time, is_possible in ((most, True), (2.0 * most, False)):
        signals = {1: Signal(time, -time, ((0.0, time),), False)}
        packed = pack_network(replace(city, signals=signals), "key")
        with np.load(io.BytesIO(packed)) as file:
            arrays = dict(file)
        if is_possible:
            assert unpack_network(arrays, "town").signals == signals
            continue
        with pytest.raises(InputError, match="impossible times"):
            unpack_network(arrays, "town")
