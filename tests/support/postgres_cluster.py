"""A PostgreSQL server of the tests' own, in a temporary folder.

It listens on a socket in that folder alone, so it needs no port, and nobody else can connect.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Self
from urllib.parse import quote

_USER = (
    "postgres"  # the superuser of the cluster, and the account that runs it for root
)
_SETTINGS = {
    "listen_addresses": "''",
    "shared_buffers": "16MB",  # little memory: it starts fast
    "max_connections": "50",
    "fsync": "on",
}
if sys.platform == "linux":
    # One call flushes everything before a recovery, not one for each of a thousand files.
    _SETTINGS["recovery_init_sync_method"] = "syncfs"


def reason_to_skip() -> str | None:
    """Why no server can be started; ``None`` if one can."""
    if find_programs() is None:
        return "PostgreSQL is not installed"
    if os.geteuid() == 0 and not _has_account(_USER):
        return f"PostgreSQL refuses root, and there is no account {_USER}"
    return None


def _has_account(name: str) -> bool:
    import pwd

    return any(account.pw_name == name for account in pwd.getpwall())


def find_programs() -> Path | None:
    """The folder with ``initdb`` and ``pg_ctl``; ``None`` if PostgreSQL is not installed."""
    on_path = shutil.which("initdb")
    if on_path is not None:
        return Path(on_path).resolve().parent
    folders = Path("/usr/lib/postgresql").glob("*/bin")
    installed = [folder for folder in folders if (folder / "initdb").exists()]
    return max(installed, key=lambda folder: int(folder.parent.name), default=None)


class Cluster:
    """A server that runs until the context ends."""

    def __init__(self) -> None:
        programs = find_programs()
        assert programs is not None
        self._programs = programs
        self._folder = Path(tempfile.mkdtemp(prefix="superarm-"))
        self._data = self._folder / "data"
        self._namespaces = 0

    def __enter__(self) -> Self:
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            shutil.chown(self._folder, _USER)
        try:
            self._run(
                "initdb",
                *("--pgdata", str(self._data)),
                *("--username", _USER),
                *("--auth", "trust"),
                *("--encoding", "UTF8"),
                *("--locale", "C"),
                "--no-sync",
            )
            self.start()
        except BaseException:
            shutil.rmtree(self._folder)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        shutil.rmtree(self._folder)

    # --- the server ------------------------------------------------------------------------

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        settings = {**_SETTINGS, "unix_socket_directories": str(self._folder)}
        options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        self._control("start", "--options", options)

    def stop(self) -> None:
        """Stop the server as a crash would: nothing is flushed."""
        self._control("stop", "--mode", "immediate")

    def restart(self) -> None:
        """Crash the server and start it again."""
        self.stop()
        self.start()

    def _control(self, action: str, *options: str) -> None:
        log = str(self._folder / "log")
        data = str(self._data)
        self._run("pg_ctl", action, "--pgdata", data, "--log", log, "--wait", *options)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        if os.geteuid() == 0:
            command = ["runuser", "-u", _USER, "--", *command]
        # The server inherits the output: with a pipe, this would wait for its end.
        with (self._folder / "output").open("a+") as output:
            finished = subprocess.run(
                command, stdout=output, stderr=output, cwd=self._folder, check=False
            )
            output.seek(0)
            assert finished.returncode == 0, output.read()

    # --- storages --------------------------------------------------------------------------

    @property
    def socket(self) -> Path:
        """The socket on which the server listens."""
        return self._folder / ".s.PGSQL.5432"

    def url(self, namespace: str = "public", folder: Path | None = None) -> str:
        """The URL of a part of the database.

        Args:
            namespace: The part, which PostgreSQL calls a schema.
            folder: The folder of the socket; by default the server's own.
        """
        host = quote(str(folder or self._folder), safe="")
        return (
            f"postgresql://{_USER}@{host}/postgres?options=-csearch_path%3D{namespace}"
        )

    def create_namespace(self) -> str:
        """Create a part of the database without tables; its name.

        That is much faster than a database, and a server with many databases is slow to restart.
        """
        self._namespaces += 1
        name = f"test{self._namespaces}"
        self.execute(self.url(), f"CREATE SCHEMA {name}")
        return name

    def wait_until_unused(self) -> None:
        """Wait until no process of superarm is connected."""
        import psycopg

        query = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'superarm'"
        end = monotonic() + 30.0
        with psycopg.connect(self.url(), autocommit=True) as connection:
            while connection.execute(query).fetchall():
                assert monotonic() < end
                sleep(0.01)

    def execute(self, url: str, statements: str) -> None:
        """Run statements.

        Args:
            url: Where.
            statements: The statements, separated by semicolons.
        """
        import psycopg

        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(statements.encode())
