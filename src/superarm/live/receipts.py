"""Requests that are applied in memory, and durable a little later."""

from __future__ import annotations

from concurrent.futures import Future
from typing import NamedTuple

from superarm.core.errors import SuperarmError


class Receipt(NamedTuple):
    """A request that is applied in memory and queued to be stored."""

    is_new: bool
    """Whether it changes anything."""
    durable: Future[None]
    """Done when everything that the answer depends on is stored."""

    def wait(self) -> bool:
        """Wait until it is durable; returns whether it is new."""
        self.durable.result()
        return self.is_new


def outcome_of(receipt: Receipt | SuperarmError) -> bool | SuperarmError:
    """Wait for one of several requests; an error is returned.

    Args:
        receipt: The request, or the error with which it was refused.
    """
    if isinstance(receipt, SuperarmError):
        return receipt
    try:
        return receipt.wait()
    except SuperarmError as error:
        return error
