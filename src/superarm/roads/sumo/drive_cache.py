"""Drives cached in a file, so that no trip is driven twice by anybody.

An SQLite file: several processes may read and write it at once, and what was written outlasts a
crash. The key of a drive is a digest of all that it depends on.
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

# Seconds to wait for other processes, each of which writes for milliseconds.
_PATIENCE = 60.0
_TABLE = "CREATE TABLE IF NOT EXISTS drives (key TEXT PRIMARY KEY, drive BLOB NOT NULL) WITHOUT ROWID"


class DriveCache:
    """Cached drives, keyed by simulation settings and trip.

    Every call opens the file anew: a connection must not be carried into a copy of the process.

    Args:
        path: The SQLite file.
        settings: All that drives depend on but for the trip, as JSON.
    """

    def __init__(self, path: str | Path, settings: Mapping[str, Any]) -> None:
        self._path = Path(path)
        self._settings = dict(settings)
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
        """Return the drive of a trip, if it is cached; a damaged one counts as none, with a warning.

        Args:
            trip: The route and when it begins, as JSON.
        """
        try:
            row = self._read_row(trip)
            if row is None:
                return None
            (data,) = row
            if not isinstance(data, bytes):
                data = b""
            drive = Drive.from_bytes(data)
            edges = len(drive.left)
            expected_edges = len(trip["route"])
            if edges != expected_edges:
                raise InputError(f"it has {edges} edges, not {expected_edges}")
            return drive
        except (sqlite3.Error, InputError) as error:
            self._warn(f"a drive in it is damaged and driven anew ({error})")
            return None

    def _read_row(self, trip: Mapping[str, Any]) -> Any:
        """Return the row of a trip; ``None`` where the file has none."""
        key = self._key(trip)
        with closing(self._open()) as file:
            rows = file.execute("SELECT drive FROM drives WHERE key = ?", (key,))
            return rows.fetchone()

    def store(self, trip: Mapping[str, Any], drive: Drive) -> None:
        """Cache the drive of a trip; where that fails, warn.

        Args:
            trip: The route and when it begins, as JSON.
            drive: The drive.
        """
        row = (self._key(trip), drive.to_bytes())
        try:
            with closing(self._open()) as file, file:
                file.execute("INSERT OR REPLACE INTO drives VALUES (?, ?)", row)
        except sqlite3.Error as error:
            self._warn(f"a drive could not be kept in it ({error})")

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=_PATIENCE)

    def _key(self, trip: Mapping[str, Any]) -> str:
        text = json.dumps({**self._settings, **trip}, sort_keys=True)
        return sha256(text.encode()).hexdigest()

    def _warn(self, message: str) -> None:
        warn(f"{self._path}: {message}", UserWarning)
