"""A service in a process of its own, which a test may kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Self


class ServedProcess:
    """``superarm serve`` on a free port of loopback.

    Args:
        storage: The URL of the storage.
    """

    def __init__(self, storage: str) -> None:
        command = [sys.executable, "-m", "superarm", "serve", "--storage", storage]
        self.process = subprocess.Popen(
            [*command, "--port", "0", "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "NO_PROXY": "*"},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            assert self.process.stderr is not None
            raise AssertionError(self.process.stderr.read())
        self.address: str = json.loads(line)["address"]

    def kill(self) -> None:
        """End the process without a chance to clean up."""
        self.process.send_signal(signal.SIGKILL)
        self._close()

    def stop(self) -> None:
        """End the process as an operator does."""
        self.process.terminate()
        self._close()
        assert self.process.returncode in (0, -signal.SIGTERM)

    def _close(self) -> None:
        self.process.wait(60)
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.process.stdout.close()
        self.process.stderr.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.kill()
