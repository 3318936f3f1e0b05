"""Changes behind the back of a journal."""

from __future__ import annotations

import sqlite3


def tamper(url: str, statements: str) -> None:
    """Run statements as somebody would who edits the database; foreign keys are not checked.

    Args:
        url: The URL of a storage.
        statements: The statements, separated by semicolons.
    """
    if url.startswith("sqlite:///"):
        file = sqlite3.connect(url.removeprefix("sqlite:///"))
        file.executescript(statements)
        file.close()
        return
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(statements.encode())
