"""Bandits of a service, with the verbs of :class:`superarm.live.Bandit`.

A program that has a bandit of its own,

    ``bandit = create_bandit("menu", spec=policy, storage="sqlite:///bandits.db")``

moves to a service by changing one line:

    ``bandit = Client("http://127.0.0.1:8642").create_bandit("menu", spec=policy)``

A request that gets no answer, or that the service cannot answer at the moment, is retried. That is safe:
an ask, a tell, a refit, a switch and the start of a challenger have ids, so each counts once.
"""

from .client import Client as Client
from .connection import ServiceError as ServiceError
from .remote_bandit import RemoteBandit as RemoteBandit

__all__ = ["Client", "RemoteBandit", "ServiceError"]
