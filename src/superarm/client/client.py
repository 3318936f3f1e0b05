"""A client: the bandits of a service by name."""

from __future__ import annotations

from typing import Any

from superarm.core.errors import ConflictError
from superarm.live.spec import BanditSpec

from .connection import Connection, url_path
from .remote_bandit import RemoteBandit


class Client(Connection):
    """A connection to a service, which creates and loads its bandits.

    Args:
        url: The URL of the service, such as ``"http://127.0.0.1:8642"``.
        token: A token, if the service needs one.
        timeout: Seconds to wait for an answer.
        retries: How many times to retry a request that got no answer, or that the service
            could not answer at the moment.
    """

    def create_bandit(
        self, name: str, *, spec: Any, load_if_exists: bool = False
    ) -> RemoteBandit:
        """Create a bandit, or load one that was created with the same spec.

        Args:
            name: Its name.
            spec: Its spec: a policy, a policy's spec by registry names, or a ``BanditSpec``.
            load_if_exists: Whether to load an existing bandit of this name, whatever its spec.
        """
        body = {"name": name, "spec": BanditSpec.from_user(spec).as_json()}
        try:
            self.request("POST", "/v1/bandits", body)
        except ConflictError:
            if not load_if_exists:
                raise
        return RemoteBandit(self, name)

    def load_bandit(self, name: str) -> RemoteBandit:
        """Load a bandit by name.

        Args:
            name: Its name.
        """
        self.request("GET", url_path("v1", "bandits", name))
        return RemoteBandit(self, name)

    def bandits(self) -> list[str]:
        """Names of all bandits."""
        rows = self.request("GET", "/v1/bandits")
        return [row["name"] for row in rows]
