"""Executors for the cells of a run: processes of this machine, or a Dask cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from typing import Any

import click

from superarm.core.errors import InputError, SuperarmError, require_extra

from .common import say

_CONNECT_SECONDS = 10.0  # to wait for an answer of the scheduler


@contextmanager
def cell_executor(
    name: str, jobs: int, scheduler: str | None, *, quiet: bool
) -> Iterator[Executor | None]:
    """The executor that plays cells; ``None`` for processes of this machine.

    Args:
        name: "local" or "dask".
        jobs: The number of workers on this machine, if there is no scheduler.
        scheduler: The address of a Dask scheduler; ``None``: ``$DASK_SCHEDULER_ADDRESS`` or, if that is
            not set either, a cluster on this machine.
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
            client = stack.enter_context(_connect(distributed, address))
            if not quiet and not client.scheduler_info()["workers"]:
                message = f"{address} has no workers yet; cells wait until one joins"
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
                "several workers died while they played the same cell, perhaps because they ran out of "
                "memory; give workers more memory and continue with --resume"
            ) from error


def _connect(distributed: Any, address: str) -> Any:
    """A client of the scheduler at this address."""
    try:
        return distributed.Client(address, timeout=_CONNECT_SECONDS)
    except OSError as error:  # a timeout is one
        raise SuperarmError(
            f"no Dask scheduler answers at {address}; check --scheduler and $DASK_SCHEDULER_ADDRESS, or "
            "start one with `dask scheduler`, which prints its address"
        ) from error
    except ValueError as error:
        raise InputError(
            f"{address!r} is not the address of a Dask scheduler ({error}); use one such as "
            "tcp://10.0.0.1:8786"
        ) from error
