"""Every option that takes a file, with unsuitable files: an exit code and one message."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]

NESTED = "[" * 100_000


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _loop(path: Path) -> None:
    path.symlink_to(path)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 36)


def _holding(data: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(data)

    return write


def test_a_full_disk_names_the_file(
    cli: Command, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("superarm.core.states.os.fsync", full)
    message = cli("run", tiny, "--out", "out", "--jobs", 1).fails(1)
    assert message.startswith("superarm: out")
    assert message.rstrip().endswith(": No space left on device")
    assert not list(tmp_path.rglob("*.tmp"))


FILES: dict[str, Callable[[Path], None]] = {
    "pipe": _pipe,
    "device": _device,
    "loop": _loop,
    "folder": Path.mkdir,
    "sparse": _sparse,
    "empty": _holding(b""),
    "binary": _holding(bytes(range(256)) * 40),
    "zip": _holding(b"PK\x03\x04" + bytes(100)),
    "gzip": _holding(b"\x1f\x8b\x08\x00"),
    "nested": _holding(NESTED.encode()),
    "null": _holding(b"null"),
    "list": _holding(b"[[1, 2], {}]"),
    "table": _holding(b"a,b\n1,2\n"),
    "latin": _holding("trip,energy_wh,edge\nd\xe9,1,r1\n".encode("latin-1")),
    "wide": _holding(b",".join(b"c%d" % number for number in range(60_000))),
    "surrogate": _holding(b'{"type": "\\ud800"}'),
    "huge-number": _holding(b"mass = " + b"9" * 10_000),
}
COMMANDS: dict[str, tuple[str, str]] = {
    # The name that the file has, and the command; NET is a network, CSV a log on it.
    "run": ("bad.toml", "run BAD -q --out out"),
    "show": ("bad.toml", "show BAD"),
    "import": ("bad.py", "list --import BAD"),
    "run-net": ("bad.net.xml", "run navigation/network --net BAD -q --out out"),
    "run-state": (
        "bad.npz",
        "run navigation/network --net NET --rounds 1 --seeds 1 -q --state BAD",
    ),
    "run-out": (
        "bad",
        "run kernelized/rkhs-se --rounds 1 --seeds 1 -q --out BAD --policies random",
    ),
    "report": ("bad", "report BAD"),
    "report-run": ("out/run.json", "report out"),
    "route-net": ("bad.net.xml", "route --net BAD --from a --to b"),
    "route-packed": ("bad.net.xml.gz", "route --net BAD --from a --to b"),
    "route-osm": ("bad.osm", "route --net BAD --from a --to b"),
    "route-vehicle": (
        "bad.toml",
        "route --net NET --from -00_10 --to -34_44 --vehicle BAD",
    ),
    "route-closed": (
        "bad.json",
        "route --net NET --from -00_10 --to -34_44 --close-file BAD",
    ),
    "route-state": ("bad.npz", "route --net NET --from -00_10 --to -34_44 --state BAD"),
    "route-elevation": (
        "N49E006.hgt",
        "route --net TABLES --from -00_10 --to -34_44 --elevation BAD",
    ),
    "learn-trips": ("bad.csv", "learn --net NET --trips BAD --state new.npz"),
    "learn-packed": ("bad.csv.xz", "learn --net NET --trips BAD --state new.npz"),
    "learn-vehicles": (
        "bad.toml",
        "learn --net NET --trips CSV --vehicles BAD --state new.npz",
    ),
    "learn-state": ("bad.npz", "learn --net NET --trips CSV --state BAD"),
    "demo": ("bad", "demo --rounds 10 -q --out BAD"),
}
# Valid uses: an empty output path, a vehicle without settings, valid Python.
FINE = {
    ("run-out", "folder"),
    ("demo", "folder"),
    ("learn-state", "loop"),
    ("route-vehicle", "empty"),
    ("learn-vehicles", "empty"),
}
FINE |= {("import", kind) for kind in ("empty", "null", "list", "surrogate")}


@pytest.mark.thorough
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes")
@pytest.mark.parametrize("command", COMMANDS)
def test_hostile_file_gives_an_exit_code_and_a_message(
    command: str, cli: Command, town: Any, tmp_path: Path
) -> None:
    table = tmp_path / "log.csv"
    table.write_text("trip,edge,energy_wh\n1,-00_10,30\n", encoding="utf-8")
    name, words = COMMANDS[command]
    for kind, make in FILES.items():
        if (command, kind) in FINE:
            continue
        folder = tmp_path / kind
        bad = folder / name
        bad.parent.mkdir(parents=True)
        make(bad)
        places = {"BAD": bad, "NET": town.net, "TABLES": town.tables, "CSV": table}
        if command == "report-run":
            places["out"] = bad.parent
        result = cli(*(places.get(word, word) for word in words.split()))
        assert result.code in (1, 2, 3), (kind, result)
        assert result.out == "", (kind, result)
        assert result.err.splitlines()[-1].startswith("superarm: "), (kind, result)
        assert "Traceback" not in result.err, (kind, result)
        assert len(result.err) < 2000, (kind, result.err[:300])


ARGUMENTS = [
    "run navigation/network --net city --rounds 1 --seeds 1 --from x --to y",
    "run kernelized/rkhs-se --set 'arms=1000000000'",
    "run kernelized/rkhs-se --set lengthscale=nan",
    "run kernelized/rkhs-se --set lengthscale=1e400",
    "run kernelized/rkhs-se --set \x01=1",
    "run kernelized/rkhs-se --rounds 1 --seed 9999999999999999999999",
    "run kernelized/rkhs-se --rounds 99999999999999999999",
    "run kernelized/rkhs-se --policies ,,,",
    "run kernelized/rkhs-se --jobs 0",
    "run \ud800",
    "run ../../etc/passwd",
    "reproduce ..",
    "report \x01",
    "route --net \x01 --from a --to b",
    "route --net city --set edges=1e9 --from a --to b",
    "route --net city --set edges=200 --from 999,999 --to nan,nan",
    "route --net city --set edges=200 --from r1 --to r2 --charge nan%",
    "route --net city --set edges=200 --from r1 --to r2 --depart 99:99",
    "route --net city --set edges=200 --from r1 --to r2 --close \x01",
    "learn --net city --trips \x01 --state \x01",
    "list \x01",
    "list nothing",
    "show \x01",
    "show kernel/",
    "data path ../../x",
    "demo --rounds 1",
    "doctor extra",
    "nothing",
]


@pytest.mark.parametrize("line", ARGUMENTS, ids=ascii)
def test_invalid_argument_gives_an_exit_code_and_a_message(
    line: str, cli: Command
) -> None:
    result = cli(*(word.strip("'") for word in line.split(" ")))
    assert result.code in (1, 2, 3)
    assert result.out == ""
    assert result.err.splitlines()[-1].startswith("superarm: ")
    assert "Traceback" not in result.err
