"""Where the cells of a run are played: in processes of this machine, or on a Dask cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from typing import Any

import click

from superarm.core.errors import InputError, SuperarmError, require_extra

from .common import say

_CONNECT_SECONDS = 10.0  # until a scheduler that does not answer is given up


@contextmanager
def cell_executor(
    name: str, jobs: int, scheduler: str | None, *, quiet: bool
) -> Iterator[Executor | None]:
    """Where cells run; ``None`` for processes of this machine.

    ``dask`` uses the scheduler at the address or, without one, at ``$DASK_SCHEDULER_ADDRESS``; without
    either it starts workers on this machine.

    Args:
        name: "local" or "dask".
        jobs: The number of workers on this machine.
        scheduler: The address of a Dask scheduler.
        quiet: Whether to print no progress.
    """
    if name == "local":
        if scheduler is not None:
            raise click.UsageError("--scheduler needs --executor dask")
        yield None
        return
    distributed = require_extra("distributed", "cluster")
    address = scheduler or os.environ.get("DASK_SCHEDULER_ADDRESS")
    with ExitStack() as stack:
        if address:
            client = stack.enter_context(_connected(distributed, address))
            if not quiet and not client.scheduler_info()["workers"]:
                message = f"{address} has no workers yet; cells run when some join it"
                say(f"superarm: {message}", err=True)
        else:
            cluster = distributed.LocalCluster(
                n_workers=jobs,
                threads_per_worker=1,
                host="127.0.0.1",  # reachable from this machine only
                dashboard_address=None,
            )
            stack.enter_context(cluster)
            client = stack.enter_context(distributed.Client(cluster))
        try:
            yield client.get_executor()
        except distributed.KilledWorker as error:
            raise SuperarmError(
                "a cell was given up: several workers that played it were ended, one after the other, "
                "perhaps because memory ran out; continue with --resume and workers with more memory"
            ) from error


def _connected(distributed: Any, address: str) -> Any:
    """A client of the scheduler at this address."""
    try:
        return distributed.Client(address, timeout=_CONNECT_SECONDS)
    except OSError as error:  # a timeout is one
        raise SuperarmError(
            f"no Dask scheduler answers at {address}; start one with `dask scheduler`, which prints "
            "its address, and check --scheduler and $DASK_SCHEDULER_ADDRESS"
        ) from error
    except ValueError as error:
        raise InputError(
            f"{address!r} is not the address of a Dask scheduler ({error}); it looks like "
            "tcp://10.0.0.1:8786"
        ) from error
