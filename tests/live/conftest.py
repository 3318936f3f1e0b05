"""Journals of both kinds; a PostgreSQL server is started when a test first needs one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from postgres_cluster import Cluster, reason_to_skip
from tampering import tamper

from superarm.live import Storage

_TABLES = ("snapshots", "events", "bandits", "blobs", "tokens", "processes")
_EMPTY = "; ".join(
    [
        *(f"DELETE FROM {table}" for table in _TABLES),
        "ALTER TABLE bandits ALTER COLUMN id RESTART",
    ]
)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A PostgreSQL server for the tests of this process."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    reason = reason_to_skip()
    if reason is not None:
        pytest.skip(reason)
    with Cluster() as running:
        yield running


@pytest.fixture
def postgres_url(cluster: Cluster) -> str:
    """The URL of a storage in PostgreSQL that has no tables yet."""
    return cluster.url(cluster.create_namespace())


@pytest.fixture(scope="session")
def shared_url(cluster: Cluster) -> str:
    """The URL of a storage in PostgreSQL that tests use one after another."""
    shared = cluster.url(cluster.create_namespace())
    Storage(shared).close()
    return shared


@pytest.hookimpl(tryfirst=True)  # before they are selected by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests of PostgreSQL slow, which make test does not install."""
    for item in items:
        if "cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty storage."""
    if request.param == "sqlite":
        folder = request.getfixturevalue("tmp_path")
        return f"sqlite:///{folder / 'bandits.db'}"
    shared: str = request.getfixturevalue("shared_url")
    tamper(shared, _EMPTY)  # much faster than new tables
    return shared


@pytest.fixture
def wait_for_database(url: str, request: pytest.FixtureRequest) -> Callable[[], None]:
    """Waits until the database has finished what killed processes had sent."""
    if url.startswith("sqlite:"):
        return lambda: None
    running: Cluster = request.getfixturevalue("cluster")
    return running.wait_until_unused


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    """An empty storage in SQLite."""
    with Storage(f"sqlite:///{tmp_path / 'bandits.db'}") as opened:
        yield opened
