"""What the contracts share: states that must not change, expected errors, arrays that refuse to."""

from __future__ import annotations

import copy
import dis
import functools
import pickle
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from superarm.core import Floats, Ints, Policy, Posterior, Rng, State
from superarm.core.inputs import read_only
from superarm.core.states import state_from_bytes, state_to_bytes


@contextmanager
def raises(kind: type[BaseException], what: str) -> Iterator[None]:
    """The block must raise ``kind``; ``what`` names the block where it does not."""
    try:
        yield
    except kind:
        return
    except Exception as error:
        told = f"{what} raised {type(error).__name__} ({error})"
        raise AssertionError(f"{told}; it must raise {kind.__name__}") from error
    raise AssertionError(f"{what} was accepted; it must raise {kind.__name__}")


def frozen(values: ArrayLike) -> Floats:
    """A read-only copy: whoever writes into it fails."""
    return read_only(np.asarray(values, dtype=np.float64))


def generator(seed: int = 0) -> Rng:
    return np.random.default_rng(seed)


def untouched(rng: Rng, seed: int = 0) -> bool:
    """Whether ``generator(seed)`` has not been drawn from."""
    return bool(rng.bit_generator.state == generator(seed).bit_generator.state)


def restored(state: State) -> State:
    """The state after its way through bytes."""
    return state_from_bytes(state_to_bytes(state))


@contextmanager
def unchanged(part: Posterior | Policy, what: str) -> Iterator[None]:
    """The block must leave the part's state as it is, to the byte."""
    before = state_to_bytes(part.state())
    yield
    assert state_to_bytes(part.state()) == before, f"{what} changed the state"


@contextmanager
def refused(
    part: Posterior | Policy, kind: type[BaseException], what: str
) -> Iterator[None]:
    """The block must raise ``kind`` and leave the part's state as it is."""
    with unchanged(part, what), raises(kind, what):
        yield


class Interrupt(BaseException):
    """What the contracts raise in the middle of an update, as Ctrl-C might."""


@contextmanager
def interrupted(number: int) -> Iterator[list[str]]:
    """Raise :class:`Interrupt` at call ``number`` of kernels and factorisations.

    Yields the names of the functions called so far: fewer than ``number`` where none was interrupted.
    """
    called: list[str] = []

    def watch(frame: FrameType, event: str, _: object) -> None:
        module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        stops = module.startswith("superarm.kernels") or name in _INTERRUPTED
        if event == "call" and stops and len(called) < number:
            called.append(f"{module}.{name}")
            if len(called) == number:
                raise Interrupt(called[-1])

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        yield called
    except Interrupt:
        pass
    finally:
        sys.setprofile(before)


@contextmanager
def interrupted_after(call: int, package: str) -> Iterator[list[int]]:
    """Raise :class:`Interrupt` after a call that code of a package makes, to anything at all.

    Ctrl-C raises there as well, and never within compiled code. Yields a list of one number, of the
    calls so far: fewer than ``call`` where none was interrupted.
    """
    count_text = [0]

    def watch(frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_globals.get("__name__", "").startswith(package):
            return None
        frame.f_trace_opcodes = True
        if (
            event == "opcode"
            and frame.f_lasti in _after_calls(frame.f_code)
            and count_text[0] < call
        ):
            count_text[0] += 1
            if count_text[0] == call:
                raise Interrupt(f"{frame.f_code.co_qualname}, line {frame.f_lineno}")
        return watch

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        yield count_text
    except Interrupt:
        pass
    finally:
        sys.settrace(before)


@functools.cache
def _after_calls(code: CodeType) -> frozenset[int]:
    """Where the instructions of a function stand that follow a call."""
    pairs = pairwise(dis.get_instructions(code))
    calls = (
        later.offset for earlier, later in pairs if earlier.opname.startswith("CALL")
    )
    return frozenset(calls)


_INTERRUPTED = ("cholesky", "psd_root", "root_update", "warn")


def arrays_in(value: object) -> Iterator[NDArray[Any]]:
    """Every array in records, states and containers."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from arrays_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from arrays_in(item)
    elif is_dataclass(value):
        for entry in fields(value):
            yield from arrays_in(getattr(value, entry.name))


def scribble(value: object) -> None:
    """Overwrite every array in ``value`` that can be written to."""
    for array in arrays_in(value):
        if array.flags.writeable:
            array[...] = np.zeros((), dtype=array.dtype)


def copies_of(part: Any) -> Iterator[tuple[str, Any]]:
    """The part as ``copy`` and ``pickle`` make it again; a part of local classes has no pickle."""
    yield "copy.copy", copy.copy(part)
    yield "copy.deepcopy", copy.deepcopy(part)
    try:
        data = pickle.dumps(part)
    except (pickle.PicklingError, AttributeError, TypeError):
        return
    yield "pickle", pickle.loads(data)


def assert_close(
    actual: Floats | float, expected: Floats | float, tolerance: float, what: str
) -> None:
    """Equal up to ``tolerance``, an absolute number."""
    np.testing.assert_allclose(actual, expected, rtol=0.0, atol=tolerance, err_msg=what)


def assert_moments(draws: Floats, mean: Floats, cov: Floats, what: str) -> None:
    """Draws (S, n) have this mean and covariance, up to six standard errors.

    About a known mean, entry (i, j) of the second moment of S Gaussian draws has expectation
    C_ij and standard deviation √((C_ii C_jj + C_ij²)/S) exactly; entry i of the mean √(C_ii/S).
    Six of these leave 2·Φ(−6) ≈ 2e-9 per entry, so by Bonferroni's bound a sound sampler fails
    less than once in 1e6 seeds for up to 20 arms; the seed is fixed besides.
    """
    count = len(draws)
    variance = np.diagonal(cov)
    rounding = 1e-12 * (1.0 + np.abs(mean).max() + variance.max())
    centred = draws - mean
    error = np.abs(centred.mean(axis=0))
    limit = 6.0 * np.sqrt(variance / count) + rounding
    assert (error <= limit).all(), (
        f"{what}: the draws' mean is off by {error}, allowed {limit}"
    )
    error = np.abs(centred.T @ centred / count - cov)
    limit = 6.0 * np.sqrt((np.outer(variance, variance) + cov**2) / count) + rounding
    assert (error <= limit).all(), (
        f"{what}: the draws' covariance is off by {error}, allowed {limit}"
    )


@dataclass(frozen=True)
class FixedBelief:
    """A belief with a given mean and covariance, which are read-only: for tests of rules."""

    mean: Floats
    cov: Floats
    noise_std: float = 0.1
    information_gain: float = 2.0
    incumbent: float = 0.25

    @property
    def std(self) -> Floats:
        return frozen(np.sqrt(np.diagonal(self.cov)))

    def sample(self, rng: Rng) -> Floats:
        return rng.multivariate_normal(self.mean, self.cov, method="eigh")

    def condition(self, positions: Ints) -> FixedBelief:
        return replace(
            self, cov=frozen(conditioned(self.cov, positions, self.noise_std**2))
        )

    def negated(self) -> FixedBelief:
        return replace(self, mean=frozen(-self.mean), incumbent=-self.incumbent)


def conditioned(cov: Floats, positions: Ints, noise_variance: Floats | float) -> Floats:
    """The covariance once these arms are observed, by the textbook."""
    seen = cov[positions]
    noise = noise_variance * np.eye(len(positions))
    return np.asarray(cov - seen.T @ np.linalg.solve(seen[:, positions] + noise, seen))
