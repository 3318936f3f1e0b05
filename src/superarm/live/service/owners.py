"""Which process owns a bandit, where several serve one storage.

Each process records a heartbeat every second. A bandit belongs to the living process whose hash with
the bandit is highest. So all processes agree without asking each other, and when one of them stops,
only its own bandits move.

This decides who is asked, not what is true. For a moment two processes may believe that they own a
bandit; then the journal refuses the events of the process that is behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from threading import Event, Thread
from uuid import uuid4

from superarm.core.errors import SuperarmError
from superarm.live.journal import Membership, ProcessRow

BEAT_SECONDS = 1.0
"""How long a process waits between two heartbeats."""
ALIVE_SECONDS = 3.0
"""How long a process without a heartbeat counts as alive."""


class Owners:
    """Finds the owners of bandits.

    Args:
        membership: Where processes record heartbeats.
        address: Where other processes reach this one.
    """

    def __init__(self, membership: Membership, address: str) -> None:
        self._membership = membership
        self._address = address
        self._process = uuid4().hex
        self._others: Sequence[ProcessRow] = ()
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="superarm-alive", daemon=True)

    def start(self) -> None:
        """Join the other processes."""
        with suppress(SuperarmError):  # it is tried again every second
            self.beat()
        self._thread.start()

    def stop(self) -> None:
        """Leave: others own this process's bandits at once."""
        self._stopping.set()
        self._thread.join()
        with suppress(SuperarmError):  # they will notice by themselves
            self._membership.leave(self._process)

    def other_owner(self, tenant: str, bandit: str) -> str | None:
        """The address of the process that owns a bandit; ``None`` if it is this one.

        Args:
            tenant: Whose bandit it is.
            bandit: Its name.
        """
        highest = weight_of(self._process, tenant, bandit)
        address = None
        for process in self._others:
            weight = weight_of(process.id, tenant, bandit)
            if weight > highest:
                highest = weight
                address = process.address
        return address

    def _run(self) -> None:
        while not self._stopping.wait(BEAT_SECONDS):
            try:
                self.beat()
            except SuperarmError:
                # Whoever cannot reach the storage cannot know who else is alive.
                self._others = ()

    def beat(self) -> None:
        """Record that this process is alive, and read which others are."""
        self._membership.heartbeat(self._process, self._address)
        alive = self._membership.processes(ALIVE_SECONDS)
        self._others = [row for row in alive if row.id != self._process]


def weight_of(process: str, tenant: str, bandit: str) -> bytes:
    """The weight of a process for a bandit: the living process with the highest weight owns it.

    Args:
        process: The id of a process.
        tenant: Whose bandit it is.
        bandit: Its name.
    """
    return sha256(f"{process}/{tenant}/{bandit}".encode()).digest()
