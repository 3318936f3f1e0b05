"""A service in a process of its own, which a test may kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from tempfile import TemporaryFile
from time import monotonic, sleep
from typing import Self

import httpx

_PATIENCE_SECONDS = 120.0


class ServedProcess:
    """``superarm serve`` on a free port of loopback.

    Args:
        storage: The URL of the storage.
    """

    def __init__(self, storage: str) -> None:
        # Not a pipe: nobody reads it, and a service that logs much would wait for ever.
        self._errors = TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        command = [sys.executable, "-m", "superarm", "serve", "--storage", storage]
        self.process = subprocess.Popen(
            [*command, "--port", "0", "--json"],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, "NO_PROXY": "*"},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self._errors.seek(0)
            message = self._errors.read()
            self._close()
            raise AssertionError(message)
        self.address: str = json.loads(line)["address"]

    def wait_until_ready(self) -> None:
        """Wait until the journals are replayed."""
        end = monotonic() + _PATIENCE_SECONDS
        while not self._is_ready():
            assert monotonic() < end
            assert self.process.poll() is None
            sleep(0.05)

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.address}/readyz").is_success
        except httpx.TransportError:
            return False

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
        self.process.stdout.close()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.kill()
