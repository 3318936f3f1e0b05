"""Work spread over processes: by a pool of our own, or by any ``concurrent.futures`` executor."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from contextlib import contextmanager, nullcontext
from typing import TypeVar

from superarm.core.errors import InputError, SuperarmError
from superarm.core.threads import pin_blas_threads

Task = TypeVar("Task")
Result = TypeVar("Result")


def available_cores() -> int:
    """How many processes can work at once: the cores that this one may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not every system can say
        return os.cpu_count() or 1


def spread(
    work: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    jobs: int = 1,
    executor: futures.Executor | None = None,
    finished: Callable[[Task, Result], object] = lambda task, result: None,
) -> None:
    """Do every task, in any order; the first failure ends the rest and is raised.

    ``work`` must be a module-level function and tasks plain data, so that they reach other
    processes. BLAS is held to one thread wherever work is done, so that results do not depend
    on the number of cores or jobs.
    """
    if jobs < 1:
        raise InputError(f"jobs is {jobs}; use at least one")
    if executor is None and (jobs == 1 or len(tasks) <= 1):
        pin_blas_threads()
        for task in tasks:
            finished(task, work(task))
        return
    with (
        _broken_pools_quiet(),
        # The caller shuts its own executor down.
        process_pool(min(jobs, len(tasks)))
        if executor is None
        else nullcontext(executor) as pool,
    ):
        with (
            _interrupts_held()
        ):  # Ctrl-C amid the start of workers would leave half a pool
            sent = {pool.submit(_pinned, work, task): task for task in tasks}
        try:
            for future in futures.as_completed(sent):
                finished(sent[future], future.result())
        except futures.BrokenExecutor as error:
            raise SuperarmError(
                "a worker process was ended from outside, perhaps because memory ran out; "
                "continue with --resume and fewer --jobs"
            ) from error
        except BaseException:
            for future in sent:
                future.cancel()
            raise


@contextmanager
def _broken_pools_quiet() -> Iterator[None]:
    """A pool whose workers end by Ctrl-C may find futures cancelled by the same Ctrl-C.

    Its thread then fails with :class:`InvalidStateError`, of which nothing follows: all is over.
    """
    before = threading.excepthook

    def report(failure: threading.ExceptHookArgs) -> None:
        if not issubclass(failure.exc_type, futures.InvalidStateError):
            before(failure)

    threading.excepthook = report
    try:
        yield
    finally:
        threading.excepthook = before


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C waits until the block is over; processes started in it begin with it held, too."""
    if not hasattr(signal, "pthread_sigmask"):  # not on this system
        yield
        return
    # The mask is this thread's and its processes'. Another thread, as that of a progress bar, may
    # still be told of Ctrl-C and pass it on to the main one: so the handler waits as well.
    before = signal.getsignal(signal.SIGINT)
    replaced = (
        callable(before) and threading.current_thread() is threading.main_thread()
    )
    noted: list[int] = []
    if replaced:
        signal.signal(signal.SIGINT, lambda number, _: noted.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if replaced:
            signal.signal(signal.SIGINT, before)
    if noted:
        signal.raise_signal(signal.SIGINT)


def _pinned(work: Callable[[Task], Result], task: Task) -> Result:
    pin_blas_threads()
    return work(task)


def process_pool(jobs: int) -> futures.ProcessPoolExecutor:
    """Worker processes; keep one pool over several runs to start them only once."""
    # "spawn": a forked child would inherit the parent's BLAS threads and locks.
    context = multiprocessing.get_context("spawn")
    return futures.ProcessPoolExecutor(
        max_workers=jobs, mp_context=context, initializer=_begin_work
    )


def _begin_work() -> None:
    """A worker ends without a word on Ctrl-C, and when its parent has been killed."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: os._exit(1))
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
