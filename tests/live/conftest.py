"""Journals of both kinds; a PostgreSQL server is started when a test first needs one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from postgres_cluster import Cluster, find_programs


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A PostgreSQL server for the tests of this process."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    programs = find_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed")
    with Cluster(programs) as running:
        yield running


@pytest.fixture
def postgres_url(cluster: Cluster) -> str:
    """The URL of a storage in PostgreSQL that has no tables yet."""
    return cluster.url(cluster.create_namespace())


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The URL of a storage that does not exist yet."""
    if request.param == "sqlite":
        folder = request.getfixturevalue("tmp_path")
        return f"sqlite:///{folder / 'bandits.db'}"
    empty: str = request.getfixturevalue("postgres_url")
    return empty
