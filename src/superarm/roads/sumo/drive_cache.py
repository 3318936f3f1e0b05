"""Drives kept in a file, so that no trip is driven twice by anybody.

An SQLite file: several processes may read and write it at once, and what was written outlasts a
crash. A drive is found by a digest of all that it depends on.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

from superarm.core.errors import FileError, InputError, warn

from .drive import Drive

_PATIENCE = (
    60.0  # seconds to wait for other processes, each of which writes for milliseconds
)
_TABLE = "CREATE TABLE IF NOT EXISTS drives (key TEXT PRIMARY KEY, drive BLOB NOT NULL) WITHOUT ROWID"


class DriveCache:
    """The drives in one file, as far as they agree with what is ``told`` about how they were driven.

    Every call opens the file anew: a connection must not be carried into a copy of the process.
    """

    def __init__(self, path: str | Path, told: Mapping[str, Any]) -> None:
        self._path, self._told = Path(path), dict(told)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._open()) as file, file:
                file.execute(_TABLE)
        except (sqlite3.Error, OSError) as error:
            raise FileError(
                f"{self._path}: drives cannot be kept in it ({error}); name a file that is not there "
                "yet, or one that superarm has made"
            ) from error

    def find(self, trip: Mapping[str, Any]) -> Drive | None:
        """A drive that is damaged counts as none, with a warning."""
        try:
            with closing(self._open()) as file:
                row = file.execute(
                    "SELECT drive FROM drives WHERE key = ?", (self._key(trip),)
                ).fetchone()
            if row is None:
                return None
            drive = Drive.from_bytes(row[0] if isinstance(row[0], bytes) else b"")
            if len(drive.left) != len(trip["route"]):
                raise InputError(
                    f"it has {len(drive.left)} edges, not {len(trip['route'])}"
                )
            return drive
        except (sqlite3.Error, InputError) as error:
            self._warn(f"a drive in it is damaged and driven anew ({error})")
            return None

    def keep(self, trip: Mapping[str, Any], drive: Drive) -> None:
        row = (self._key(trip), drive.to_bytes())
        try:
            with closing(self._open()) as file, file:
                file.execute("INSERT OR REPLACE INTO drives VALUES (?, ?)", row)
        except sqlite3.Error as error:
            self._warn(f"a drive could not be kept in it ({error})")

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=_PATIENCE)

    def _key(self, trip: Mapping[str, Any]) -> str:
        return sha256(
            json.dumps({**self._told, **trip}, sort_keys=True).encode()
        ).hexdigest()

    def _warn(self, what: str) -> None:
        warn(f"{self._path}: {what}", UserWarning)
