"""Decompression bombs are rejected before they unpack."""

import gzip
import io
import lzma
import struct
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superarm.core import State
from superarm.core import compressed as packed
from superarm.core.compressed import npz_names, open_packed, read_npz
from superarm.core.errors import FileError, InputError, StateError
from superarm.core.states import (
    load_state,
    save_state,
    state_from_bytes,
    state_to_bytes,
)
from superarm.roads.networks.sumo_net import read_sumo
from superarm.roads.networks.tables import read_tables

PACKERS = {".gz": gzip.compress, ".xz": lzma.compress}
STATE = State(
    kind="test",
    schema=1,
    scalars={"a": 1.5},
    arrays={"x": np.arange(6.0).reshape(2, 3)},
)


def npz(members, method=zipfile.ZIP_STORED):
    """An archive of these members, as bytes that are named."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return buffer


def npy(shape, data=b"", dtype="<f8"):
    """An array with this shape in its header, whatever ``data`` contains."""
    buffer = io.BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue() + data


# --- texts ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("suffix", PACKERS)
def test_text_round_trip(tmp_path, suffix):
    text = np.random.default_rng(0).bytes(3_000_000)
    path = tmp_path / f"file{suffix}"
    path.write_bytes(PACKERS[suffix](text))
    with open_packed(path) as file:
        assert file.read(10) + file.read() == text


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("before", [b"", b"a text"])
def test_endless_padding_is_refused(tmp_path, suffix, before, monkeypatch):
    monkeypatch.setattr(packed, "_SMALL", 1 << 16)
    path = tmp_path / f"file{suffix}"
    path.write_bytes(PACKERS[suffix](before) if before else b"")
    with path.open("ab") as file:
        file.truncate(1 << 36)  # sparse: no space is taken
    with (
        open_packed(path) as file,
        pytest.raises((FileError, OSError), match=r"without content|Not a gzi"),
    ):
        file.read()


@pytest.mark.parametrize("suffix", PACKERS)
def test_a_text_that_outgrows_its_file_is_refused(tmp_path, suffix, monkeypatch):
    monkeypatch.setattr(packed, "_SMALL", 1 << 16)
    path = tmp_path / f"file{suffix}"
    path.write_bytes(PACKERS[suffix](bytes(1 << 22)))
    with open_packed(path) as file:
        file.read(1 << 16)
        with pytest.raises(
            InputError, match=r"file\.[gx]z: it unpacks to more than 100 times"
        ):
            file.read()


def test_a_small_text_may_grow_by_any_factor(tmp_path):
    path = tmp_path / "file.xz"
    path.write_bytes(lzma.compress(bytes(1 << 22)))
    assert path.stat().st_size < (1 << 22) / 1000
    with open_packed(path) as file:
        assert file.read() == bytes(1 << 22)


def test_a_network_of_endless_elements_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(packed, "_SMALL", 1 << 16)
    path = tmp_path / "town.net.xml.gz"
    path.write_bytes(gzip.compress(b"<net>" + b"<type/>" * 1_000_000))
    with pytest.raises(InputError, match="unpacks to more than"):
        read_sumo(path)


def test_a_table_of_an_endless_line_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(packed, "_SMALL", 1 << 16)
    path = tmp_path / "nodes.csv.gz"
    path.write_bytes(gzip.compress(b"id,x,y,z" + b"," * 4_000_000))
    with pytest.raises(InputError, match="unpacks to more than"):
        read_tables(tmp_path)


# --- arrays --------------------------------------------------------------------------------


def test_array_round_trip():
    arrays = {
        "a": np.arange(6).reshape(2, 3),
        "b": np.array(["x", "yz"]),
        "c": np.array(1.5),
    }
    for save in (np.savez, np.savez_compressed):
        buffer = io.BytesIO()
        save(buffer, **arrays)
        loaded = read_npz(buffer, most=10_000)
        assert npz_names(buffer) == list(loaded) == list(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(loaded[name], array)
            assert loaded[name].dtype == array.dtype
        assert list(read_npz(buffer, most=200, wanted="c".__eq__)) == ["c"]


HUGE = (1 << 20,)
ARRAY_FILE = npy((2,), bytes(16))
BAD = {
    "more than the limit": (
        [("a.npy", npy(HUGE, bytes(8 << 20)))],
        zipfile.ZIP_DEFLATED,
        "would take",
    ),
    "a header that lies": (
        [("a.npy", npy(HUGE, bytes(8)))],
        zipfile.ZIP_DEFLATED,
        "not of the size",
    ),
    "endless nothings": (
        [("a.npy", npy((1 << 60,), dtype="|S0"))],
        zipfile.ZIP_STORED,
        "header that is not valid",
    ),
    "objects": (
        [("a.npy", npy((2,), bytes(16), dtype="|O"))],
        zipfile.ZIP_STORED,
        "header that is not valid",
    ),
    "a stranger": (
        [("a.npy", ARRAY_FILE), ("b.txt", b"x")],
        zipfile.ZIP_STORED,
        "b.txt",
    ),
    "another packer": ([("a.npy", ARRAY_FILE)], zipfile.ZIP_LZMA, "never writes"),
}


@pytest.mark.parametrize(("members", "method", "words"), BAD.values(), ids=BAD)
def test_mislabelled_arrays_are_rejected(members, method, words, monkeypatch):
    def unpacked(*_, **__):
        raise AssertionError("an array was unpacked")

    monkeypatch.setattr("superarm.core.compressed.read_array", unpacked)
    with pytest.raises(InputError, match=words):
        read_npz(npz(members, method), most=1 << 20)


def test_wrong_sizes_in_a_zip_directory_are_rejected(monkeypatch):
    """Nothing is compressed, but one array claims to be larger than its file."""
    buffer = npz([("a.npy", npy(HUGE, bytes(8)))])
    with zipfile.ZipFile(buffer, "a") as archive:
        (member,) = archive.infolist()
        member.file_size = len(npy(HUGE)) + (8 << 20)
        archive._didModify = True

    def unpacked(*_, **__):
        raise AssertionError("an array was unpacked")

    monkeypatch.setattr("superarm.core.compressed.read_array", unpacked)
    with pytest.raises(InputError, match="far more than such a file holds"):
        read_npz(buffer)


def test_a_name_comes_once():
    with pytest.warns(UserWarning, match="Duplicate"):
        buffer = npz([("a.npy", ARRAY_FILE), ("a.npy", ARRAY_FILE)])
    with pytest.raises(InputError, match="twice"):
        read_npz(buffer, most=1 << 20)


def test_arrays_that_share_their_bytes_are_refused():
    """Many names for one member: each is as large as the file."""
    buffer = npz([("a.npy", npy((1000,), bytes(8000))), ("b.npy", ARRAY_FILE)])
    with zipfile.ZipFile(buffer, "a") as archive:
        first, second = archive.infolist()
        second.header_offset, second.CRC = first.header_offset, first.CRC
        second.file_size = second.compress_size = first.file_size
        archive._didModify = True
    with pytest.raises(InputError, match="overlap"):
        read_npz(buffer, most=1 << 20)


# --- states --------------------------------------------------------------------------------


def test_a_place_beyond_all_files_is_refused():
    """A directory may state places of 64 bits, which no file can be read at."""
    whole = bytearray(npz([("x.npy", npy((1,), bytes(8)))]).getvalue())
    entry = whole.rfind(b"PK\1\2")
    end = whole.rfind(b"PK\5\6")
    wide = struct.pack("<HHQ", 1, 8, 2**64 - 1)  # the place, behind the name
    struct.pack_into("<L", whole, entry + 42, 0xFFFFFFFF)
    struct.pack_into("<H", whole, entry + 30, len(wide))
    struct.pack_into("<L", whole, end + 12, end - entry + len(wide))
    whole[end:end] = wide
    with pytest.raises(InputError, match=r"not a valid \.npz file"):
        read_npz(io.BytesIO(whole))


def test_a_state_is_never_compressed(tmp_path):
    data = state_to_bytes(STATE)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    assert state_from_bytes(npz(members).getvalue()).scalars == STATE.scalars
    (tmp_path / "bomb.npz").write_bytes(npz(members, zipfile.ZIP_DEFLATED).getvalue())
    with pytest.raises(
        StateError,
        match=r"bomb\.npz is not a saved state.* in a way that superarm never writes",
    ):
        load_state(tmp_path / "bomb.npz")
    for stranger in ("other.npy", "array.npy"):
        with pytest.raises(StateError, match="which nothing in it refers to"):
            state_from_bytes(npz([*members, (stranger, ARRAY_FILE)]).getvalue())


def test_equal_bytes_are_shared_only_by_identical_arrays():
    arrays = {
        "floats": np.zeros(4),
        "counts": np.zeros(4, dtype=np.int64),
        "square": np.zeros((2, 2)),
        "again": np.zeros(4),
    }
    state = State(kind="test", schema=1, arrays=arrays)
    data = state_to_bytes(state)
    loaded = state_from_bytes(data).arrays
    for name, array in arrays.items():
        assert (loaded[name].dtype, loaded[name].shape) == (array.dtype, array.shape)
    assert len(npz_names(io.BytesIO(data))) == 1 + 3


def test_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "state"
    save_state(STATE, path)
    before = path.read_bytes()

    def refuse(*_):
        raise OSError("no room")

    monkeypatch.setattr("superarm.core.states.os.replace", refuse)
    with pytest.raises(OSError, match="no room"):
        save_state(State(kind="other", schema=1), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_state_files_have_a_size_limit(tmp_path, monkeypatch):
    with pytest.raises(StateError, match="is a folder, not a file"):
        load_state(tmp_path)
    (tmp_path / "large").write_bytes(state_to_bytes(STATE))
    monkeypatch.setattr("superarm.core.states._MOST", 100)
    with pytest.raises(StateError, match="limit of 100 bytes"):
        load_state(tmp_path / "large")


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(data=st.data())
@pytest.mark.filterwarnings("ignore:Reading")
def test_damage_to_states_is_refused_or_harmless(data):
    original = bytearray(state_to_bytes(STATE))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(original) - 1))
        original[place] = data.draw(st.integers(0, 255))
    try:
        arrays = state_from_bytes(bytes(original)).arrays
    except StateError:
        return
    assert sum(array.nbytes for array in arrays.values()) <= len(original)
