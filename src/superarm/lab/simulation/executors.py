"""Work in several processes: with our own pool, or any ``concurrent.futures`` executor."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeVar

from superarm.core.errors import InputError, SuperarmError
from superarm.core.threads import pin_blas_threads

Task = TypeVar("Task")
Result = TypeVar("Result")


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def spread(
    work: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    jobs: int = 1,
    executor: futures.Executor | None = None,
    finished: Callable[[Task, Result], object] = lambda task, result: None,
) -> None:
    """Do every task, in any order; the first failure cancels the others and is raised.

    BLAS uses one thread in every worker, so that results do not depend on the number of
    cores or jobs.

    Args:
        work: A module-level function, so that it reaches other processes.
        tasks: Plain data, one for each call of ``work``.
        jobs: The number of processes.
        executor: An executor to use instead of a pool; the caller shuts it down.
        finished: Called with each task and its result, in this process.
    """
    if jobs < 1:
        raise InputError(f"jobs is {jobs}; use at least one")
    if executor is None and (jobs == 1 or len(tasks) <= 1):
        pin_blas_threads()
        for task in tasks:
            finished(task, work(task))
        return
    pool_context: AbstractContextManager[futures.Executor]
    if executor is not None:
        pool_context = nullcontext(executor)  # the caller shuts it down
    else:
        processes = min(jobs, len(tasks))
        pool_context = process_pool(processes)
    with _quiet_broken_pools(), pool_context as pool:
        # Ctrl-C amid the start of workers would leave half a pool.
        with _defer_interrupts():
            submitted = {pool.submit(_work_pinned, work, task): task for task in tasks}
        try:
            for future in futures.as_completed(submitted):
                finished(submitted[future], future.result())
        except futures.BrokenExecutor as error:
            raise SuperarmError(
                "a worker process was ended from outside, perhaps because memory ran out; "
                "continue with --resume and fewer --jobs"
            ) from error
        except BaseException:
            for future in submitted:
                future.cancel()
            raise


@contextmanager
def _quiet_broken_pools() -> Iterator[None]:
    """Hide a harmless failure of a pool's thread after Ctrl-C.

    Ctrl-C ends the workers and cancels the futures. The thread that then finds them
    cancelled fails with :class:`InvalidStateError`, when all is over anyway.
    """
    previous_hook = threading.excepthook

    def report(failure: threading.ExceptHookArgs) -> None:
        if not issubclass(failure.exc_type, futures.InvalidStateError):
            previous_hook(failure)

    threading.excepthook = report
    try:
        yield
    finally:
        threading.excepthook = previous_hook


@contextmanager
def _defer_interrupts() -> Iterator[None]:
    """Defer Ctrl-C to the end of the block; processes started in it begin deferring, too."""
    if not hasattr(signal, "pthread_sigmask"):  # not on this system
        yield
        return
    # The mask is this thread's and its processes'. Another thread, such as that of a
    # progress bar, may still receive Ctrl-C and pass it on to the main one: so the
    # handler waits as well.
    handler = signal.getsignal(signal.SIGINT)
    in_main_thread = threading.current_thread() is threading.main_thread()
    replace_handler = callable(handler) and in_main_thread
    interrupts: list[int] = []
    if replace_handler:
        signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if replace_handler:
            signal.signal(signal.SIGINT, handler)
    if interrupts:
        signal.raise_signal(signal.SIGINT)


def _work_pinned(work: Callable[[Task], Result], task: Task) -> Result:
    pin_blas_threads()
    return work(task)


def process_pool(jobs: int) -> futures.ProcessPoolExecutor:
    """Return worker processes; share one pool among runs to start them only once.

    Args:
        jobs: The number of processes.
    """
    # "spawn": a forked child would inherit the parent's BLAS threads and locks.
    context = multiprocessing.get_context("spawn")
    return futures.ProcessPoolExecutor(
        max_workers=jobs, mp_context=context, initializer=_prepare_worker
    )


def _prepare_worker() -> None:
    """Make a worker exit silently on Ctrl-C, and when its parent has been killed."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: os._exit(1))
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def exit_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=exit_with_parent, daemon=True).start()
