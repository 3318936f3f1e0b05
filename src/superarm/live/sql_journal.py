"""What all journals in databases share: the tables, and how they are read and checked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from superarm.core.errors import StateError

from .codec import decode_body
from .events import Event, Kind
from .journal import SCHEMA, BanditRow, Journal, Snapshot, TokenRow, too_new
from .journal_check import find_problems
from .own_process import OwnProcess

LAST_SEQ = "SELECT coalesce(max(seq), 0) FROM events WHERE bandit = ?"
"""Returns the number of the last event of a bandit; 0 if there is none."""
SNAPSHOT_SIZES = "SELECT seq, length(bytes) FROM snapshots WHERE bandit = ?"
"""Returns the number of the last event and the bytes of each snapshot of a bandit."""
_LARGEST = 2**63 - 1  # that fits in a column
_PAGE = 1000  # events read at a time
_KINDS = frozenset(Kind)


class SQLJournal(Journal, ABC):
    """Reads the tables of a journal; :class:`Journal` documents the methods.

    A subclass connects and writes. Statements are in the SQL that SQLite and PostgreSQL share, with
    ``?`` in the place of values.

    Args:
        url: The URL of the storage, without a password.
        where: The storage, for error messages.
    """

    _SCHEMA_QUERY: str
    """Returns the schema of the tables."""

    def __init__(self, url: str, where: str) -> None:
        self._url = url
        self._where = where
        self._process = OwnProcess()

    @property
    def url(self) -> str:
        return self._url

    @abstractmethod
    def _rows(
        self, query: str, values: tuple[Any, ...] = ()
    ) -> list[tuple[Any, ...]]: ...

    def _first_row(self, query: str, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
        rows = self._rows(query, values)
        return rows[0] if rows else None

    # --- bandits ---------------------------------------------------------------------------

    def find(self, tenant: str, name: str) -> BanditRow | None:
        query = "SELECT id, tenant, name, created FROM bandits WHERE tenant = ? AND name = ?"
        row = self._first_row(query, (tenant, name))
        return None if row is None else BanditRow(*row)

    def bandits(self, tenant: str) -> list[BanditRow]:
        query = "SELECT id, tenant, name, created FROM bandits WHERE tenant = ? ORDER BY name"
        return [BanditRow(*row) for row in self._rows(query, (tenant,))]

    def newest(self, most: int) -> list[BanditRow]:
        query = "SELECT id, tenant, name, created FROM bandits ORDER BY id DESC LIMIT ?"
        return [BanditRow(*row) for row in self._rows(query, (most,))]

    def find_decision(self, tenant: str, key: str) -> list[BanditRow]:
        query = (
            "SELECT id, tenant, name, created FROM bandits WHERE tenant = ? AND id IN "
            "(SELECT bandit FROM events WHERE key = ? AND kind = 'decided') ORDER BY name"
        )
        return [BanditRow(*row) for row in self._rows(query, (tenant, key))]

    # --- tokens ----------------------------------------------------------------------------

    def find_token(self, token_hash: str) -> TokenRow | None:
        query = "SELECT hash, tenant, name, scopes, created FROM tokens WHERE hash = ?"
        row = self._first_row(query, (token_hash,))
        return None if row is None else TokenRow(*row)

    def tokens(self) -> list[TokenRow]:
        query = "SELECT hash, tenant, name, scopes, created FROM tokens ORDER BY tenant, name"
        return [TokenRow(*row) for row in self._rows(query)]

    # --- events ----------------------------------------------------------------------------

    def events(self, bandit: int, after: int = 0) -> Iterator[Event]:
        query = (
            "SELECT seq, key, kind, time, body FROM events "
            "WHERE bandit = ? AND seq > ? ORDER BY seq LIMIT ?"
        )
        last = after
        while True:
            # A page at a time, so that others can write in between.
            page = self._rows(query, (bandit, last, _PAGE))
            for row in page:
                event = self._event(row)
                if event.seq != last + 1:
                    raise StateError(
                        f"{self._where} is damaged: event {last + 1} of bandit {bandit} is "
                        "missing; restore a backup"
                    )
                last = event.seq
                yield event
            if len(page) < _PAGE:
                return

    def last_seq(self, bandit: int) -> int:
        rows = self._rows(LAST_SEQ, (bandit,))
        last: int = rows[0][0]
        return last

    def event(self, bandit: int, key: str) -> Event | None:
        query = (
            "SELECT seq, key, kind, time, body FROM events WHERE bandit = ? AND key = ?"
        )
        row = self._first_row(query, (bandit, key))
        return None if row is None else self._event(row)

    def _event(self, row: tuple[Any, ...]) -> Event:
        seq, key, kind, time, body = row
        where = f"{self._where}: event {seq}"
        if kind not in _KINDS:
            raise StateError(
                f"{where} has the unknown kind {kind!r}; upgrade superarm, or restore a backup"
            )
        return Event(
            seq=seq,
            key=key,
            kind=Kind(kind),
            time=time,
            body=decode_body(body, where),
        )

    # --- blobs and snapshots ---------------------------------------------------------------

    def blob(self, name: str) -> bytes:
        row = self._first_row("SELECT bytes FROM blobs WHERE hash = ?", (name,))
        if row is None:
            raise StateError(
                f"{self._where} is damaged: blob {name[:12]}… is missing; restore a backup"
            )
        data: bytes = row[0]
        return data

    def snapshot(self, bandit: int, last: int | None = None) -> Snapshot | None:
        query = (
            "SELECT seq, bytes FROM snapshots WHERE bandit = ? AND seq <= ? "
            "ORDER BY seq DESC LIMIT 1"
        )
        row = self._first_row(query, (bandit, _LARGEST if last is None else last))
        return None if row is None else Snapshot(*row)

    # --- damage ----------------------------------------------------------------------------

    def check(self) -> list[str]:
        return find_problems(self._rows)

    def require_schema(self) -> None:
        """Refuse a storage that a later version has upgraded since it was opened."""
        ((schema,),) = self._rows(self._SCHEMA_QUERY)
        if schema > SCHEMA:
            raise too_new(self._where, schema)
