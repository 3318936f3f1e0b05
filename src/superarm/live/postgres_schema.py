"""The tables of a journal in PostgreSQL, and how those of earlier versions become today's."""

STEPS = {
    # Text is ordered by its bytes, as in SQLite, whatever the language of the server.
    2: """
CREATE TABLE superarm_schema (
    version integer NOT NULL
);
CREATE TABLE bandits (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    created double precision NOT NULL,
    UNIQUE (tenant, name)
);
CREATE TABLE events (
    bandit bigint NOT NULL REFERENCES bandits (id),
    seq bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    time double precision NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (bandit, seq)
);
CREATE UNIQUE INDEX event_keys ON events (bandit, key);
CREATE INDEX decisions ON events (key) WHERE kind = 'decided';
CREATE TABLE blobs (
    hash text COLLATE "C" PRIMARY KEY,
    bytes bytea NOT NULL
);
CREATE TABLE snapshots (
    bandit bigint PRIMARY KEY REFERENCES bandits (id),
    seq bigint NOT NULL,
    bytes bytea NOT NULL
);
CREATE TABLE tokens (
    hash text COLLATE "C" PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    scopes text NOT NULL,
    created double precision NOT NULL,
    UNIQUE (tenant, name)
);
CREATE TABLE processes (
    id text COLLATE "C" PRIMARY KEY,
    address text NOT NULL,
    seen timestamptz NOT NULL
);
""",
    # Several snapshots of a bandit.
    3: """
ALTER TABLE snapshots DROP CONSTRAINT snapshots_pkey, ADD PRIMARY KEY (bandit, seq);
""",
}
"""Statements that lead to each schema from the one before. The first in PostgreSQL was 2."""
