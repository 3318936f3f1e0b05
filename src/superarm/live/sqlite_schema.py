"""The tables of an SQLite journal, and how those of earlier versions become today's."""

STEPS = (
    # Schema 1: bandits, their events, and what these refer to.
    """
CREATE TABLE bandits (
    id INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    created REAL NOT NULL,
    UNIQUE (tenant, name)
) STRICT;
CREATE TABLE events (
    bandit INTEGER NOT NULL REFERENCES bandits (id),
    seq INTEGER NOT NULL,
    key TEXT NOT NULL,
    kind TEXT NOT NULL,
    time REAL NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (bandit, seq)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX event_keys ON events (bandit, key);
CREATE TABLE blobs (
    hash TEXT PRIMARY KEY,
    bytes BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE snapshots (
    bandit INTEGER PRIMARY KEY REFERENCES bandits (id),
    seq INTEGER NOT NULL,
    bytes BLOB NOT NULL
) STRICT;
""",
    # Schema 2: a service finds a decision by its id, and identifies users by tokens.
    """
CREATE INDEX decisions ON events (key) WHERE kind = 'decided';
CREATE TABLE tokens (
    hash TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    scopes TEXT NOT NULL,
    created REAL NOT NULL,
    UNIQUE (tenant, name)
) STRICT, WITHOUT ROWID;
""",
    # Schema 3: several snapshots of a bandit.
    """
ALTER TABLE snapshots RENAME TO single_snapshots;
CREATE TABLE snapshots (
    bandit INTEGER NOT NULL REFERENCES bandits (id),
    seq INTEGER NOT NULL,
    bytes BLOB NOT NULL,
    PRIMARY KEY (bandit, seq)
) STRICT;
INSERT INTO snapshots (bandit, seq, bytes) SELECT bandit, seq, bytes FROM single_snapshots;
DROP TABLE single_snapshots;
""",
)
"""Statements that lead from each schema to the next, beginning with an empty file."""
