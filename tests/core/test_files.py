"""External files: endless ones are rejected, and no name escapes its folder."""

from __future__ import annotations

import os
import socket
import zlib
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from superarm.core import files
from superarm.core.errors import FileError, StateError
from superarm.core.files import (
    distinct_file_names,
    file_name,
    open_file,
    read_bytes,
    read_json,
    read_text,
    read_toml,
)
from superarm.lab.report import save_pictures
from superarm.lab.results.pictures import Chart, Picture
from superarm.lab.simulation.run_spec import write_spec
from superarm.lab.simulation.trace import cell_name

HOSTILE = [
    *(
        "",
        ".",
        "..",
        "/",
        "//",
        "\\",
        "~",
        "-",
        "-rf",
        " ",
        "\t",
        "\n",
        "\x00",
        "a\x00b",
        "\x7f",
    ),
    *(
        "../x",
        "../../x",
        "/etc/passwd",
        "a/../../b",
        "a/b",
        "a\\..\\..\\b",
        "C:\\x",
        "c:x",
    ),
    *(
        "\\\\host\\x",
        "con",
        "CON",
        "nul",
        "aux.png",
        "com1",
        "lpt9",
        "prn",
        ".htaccess",
        "x.",
        "x ",
    ),
    *(
        "x:stream",
        "x\u202e",
        "\u2215etc",
        "\ud800",
        "a" * 5000,
        "é" * 300,
        "rég",
        "reg",
    ),
    *(
        "GP",
        "gp",
        "Gp",
        "regret",
        "Regret",
        "$(touch x)",
        "`id`",
        "a;b",
        "a|b",
        "a>b",
        "*",
        "?",
    ),
    *("%2e%2e%2f", "&amp;", "<b>", '"', "'"),
]


# --- names ---------------------------------------------------------------------------------


def test_a_hostile_name_is_a_plain_file_name() -> None:
    for text in HOSTILE:
        name = file_name(text)
        plain = set("abcdefghijklmnopqrstuvwxyz0123456789_-")
        assert set(name) <= plain, ascii(text)
        assert 0 < len(name) <= 89, ascii(text)
        assert name not in ("con", "prn", "aux", "nul", "com1", "lpt9")


@given(st.lists(st.text(max_size=8) | st.sampled_from(HOSTILE), max_size=12))
def test_names_stay_distinct(texts: list[str]) -> None:
    names = distinct_file_names(texts)
    assert len(names) == len(texts)
    assert len({name.lower() for name in names}) == len(names)
    for text, name in zip(texts, names, strict=True):
        assert name.startswith(file_name(text))


def test_name_that_looks_like_a_checksum_gets_its_own() -> None:
    name = file_name("GP")
    assert file_name(name) != name
    assert file_name("mean_regret-2") == "mean_regret-2"


def _picture(name: str) -> Picture:
    chart = Chart(series=(), y_label=name)
    return Picture(name=name, panels=(chart,), caption=name)


def test_figures_with_hostile_names_stay_in_their_folder(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "run" / "figures"
    pictures = [_picture(name) for name in [*HOSTILE, "regret", "regret"]]
    paths = save_pictures(pictures, "All", folder)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(paths) == sorted(written)
    assert {path.parent for path in written} == {folder}
    assert {path.suffix for path in written} == {".svg"}
    assert len(written) == len(pictures)
    for path in written:
        ElementTree.parse(path)


def test_links_in_a_run_are_replaced_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine", encoding="utf-8")
    precious.chmod(0o600)
    folder = tmp_path / "figures"
    folder.mkdir()
    (folder / "regret.svg").symlink_to(precious)
    save_pictures([_picture("regret")], "All", folder)
    assert precious.read_text(encoding="utf-8") == "mine"
    assert (folder / "regret.svg").read_bytes().startswith(b"<svg ")
    assert not (folder / "regret.svg").is_symlink()


def test_a_policy_with_a_hostile_name_has_cells_in_their_folder() -> None:
    for text in HOSTILE:
        name = cell_name(text, 0, 0)
        plain = set("abcdefghijklmnopqrstuvwxyz0123456789_-.")
        assert set(name) <= plain, ascii(text)
        assert name.endswith(".s0.seed00000"), ascii(text)


def test_policies_whose_cells_would_share_files_are_refused(tmp_path: Path) -> None:
    first, second = _colliding()
    assert first != second
    assert cell_name(first, 0, 0) == cell_name(second, 0, 0)
    spec = {
        "experiment": "tests/two",
        "rounds": 1,
        "first_seed": 0,
        "seeds": 1,
        "settings": [{}],
    }
    with pytest.raises(StateError, match="would share their files; rename one"):
        write_spec(tmp_path, {**spec, "policies": [first, second]})


def _colliding() -> tuple[str, str]:
    """Two names that are the same once cleaned, with the same checksum.

    Checksums are linear: each "ç" in place of an "é" flips the same bits of the checksum, whatever
    the other letters are. Of 40 such patterns of 32 bits some combination flips none.
    """
    plain = "é" * 40
    base = zlib.crc32(plain.encode())
    masks = []
    for place in range(40):
        changed = plain[:place] + "ç" + plain[place + 1 :]
        masks.append((zlib.crc32(changed.encode()) ^ base, 1 << place))
    basis: dict[int, tuple[int, int]] = {}
    for mask in masks:
        value, places = mask
        while value:
            top = value.bit_length()
            if top not in basis:
                basis[top] = (value, places)
                break
            value, places = value ^ basis[top][0], places ^ basis[top][1]
        else:
            other = "".join("ç" if places >> bit & 1 else "é" for bit in range(40))
            return plain, other
    raise AssertionError("40 masks of 32 bits are always dependent")


# --- files ---------------------------------------------------------------------------------


@pytest.fixture(params=["pipe", "device", "folder", "socket"])
def endless(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A path that is no regular file."""
    path = tmp_path / request.param
    if request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "device":
        path.symlink_to("/dev/zero")
    elif request.param == "folder":
        path.mkdir()
    else:
        with socket.socket(socket.AF_UNIX) as bound:
            here = os.getcwd()
            os.chdir(tmp_path)  # the names of sockets are short
            try:
                bound.bind(path.name)
            finally:
                os.chdir(here)
            yield path
        return
    yield path


def test_endless_files_are_rejected(endless: Path) -> None:
    with pytest.raises(
        FileError, match=r"is a (pipe|device|folder|socket), not a file; "
    ):
        open_file(endless)


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes("é".encode())
    assert read_text(path, most=2) == "é"
    with pytest.raises(FileError, match="limit of 1 bytes"):
        read_bytes(path, most=1)
    (tmp_path / "link").symlink_to(path)
    assert read_bytes(tmp_path / "link", most=2) == path.read_bytes()
    with pytest.raises(FileNotFoundError):
        open_file(tmp_path / "none")


def test_a_sparse_file_of_terabytes_costs_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        try:
            file.truncate(1 << 40)
        except OSError:
            pytest.skip("this file system has no sparse files")
    with pytest.raises(FileError, match="split it"):
        read_bytes(path, most=1 << 20)


def test_a_file_larger_than_it_states_is_rejected() -> None:
    path = Path("/proc/self/status")
    if not path.exists() or path.stat().st_size:
        pytest.skip("this system has no file that states no size")
    with pytest.raises(FileError, match="limit of 10 bytes"):
        read_bytes(path, most=10)


def test_a_file_that_a_device_replaces_is_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(files, "require_regular", lambda path: None)
    with pytest.raises(FileError, match="is a device, not a file"):
        open_file("/dev/zero")


def test_a_file_that_cannot_be_opened_is_a_file_error(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(FileError, match="cannot be read as a van: No such file"):
        read_toml(missing, content="a van")
    with pytest.raises(FileError, match="cannot be read as JSON: No such file"):
        read_json(missing, most=10)


def test_a_toml_file_has_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "large.toml"
    path.write_bytes(b"#" * (files.MOST_TOML + 1))
    with pytest.raises(FileError, match="is larger than the limit"):
        read_toml(path)
