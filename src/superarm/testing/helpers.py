"""Helpers of the contracts: states that must not change, expected errors, interrupts, moments."""

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
    """Assert that the block raises an error.

    Args:
        kind: The class of the error.
        what: What the block does, for the message.
    """
    expected = kind.__name__
    try:
        yield
    except kind:
        return
    except Exception as error:
        actual = type(error).__name__
        message = f"{what} raised {actual} ({error}); it must raise {expected}"
        raise AssertionError(message) from error
    message = f"{what} was accepted; it must raise {expected}"
    raise AssertionError(message)


def frozen(values: ArrayLike) -> Floats:
    """A read-only copy: writing into it fails.

    Args:
        values: Numbers.
    """
    numbers = np.asarray(values, dtype=np.float64)
    return read_only(numbers)


def generator(seed: int = 0) -> Rng:
    """A new generator.

    Args:
        seed: Its seed.
    """
    return np.random.default_rng(seed)


def untouched(rng: Rng, seed: int = 0) -> bool:
    """Whether nobody has drawn from a generator.

    Args:
        rng: What ``generator(seed)`` returned.
        seed: Its seed.
    """
    fresh = generator(seed)
    initial_state = fresh.bit_generator.state
    state = rng.bit_generator.state
    return bool(state == initial_state)


def restored(state: State) -> State:
    """The state, written to bytes and read back.

    Args:
        state: Any state.
    """
    data = state_to_bytes(state)
    return state_from_bytes(data)


def state_bytes(part: Posterior | Policy) -> bytes:
    """The state of a part, as bytes.

    Args:
        part: The part.
    """
    state = part.state()
    return state_to_bytes(state)


@contextmanager
def unchanged(part: Posterior | Policy, what: str) -> Iterator[None]:
    """Assert that the block does not change a part's state, to the byte.

    Args:
        part: The part.
        what: What the block does, for the message.
    """
    before = state_bytes(part)
    yield
    after = state_bytes(part)
    assert after == before, f"{what} changed the state"


@contextmanager
def refused(
    part: Posterior | Policy,
    kind: type[BaseException],
    what: str,
) -> Iterator[None]:
    """Assert that the block raises an error and does not change a part's state.

    Args:
        part: The part.
        kind: The class of the error.
        what: What the block does, for the message.
    """
    with unchanged(part, what), raises(kind, what):
        yield


class Interrupt(BaseException):
    """An error that the contracts raise in the middle of an update, as Ctrl-C might."""


@contextmanager
def interrupted(number: int) -> Iterator[list[str]]:
    """Raise :class:`Interrupt` at one of the calls of kernels and factorisations.

    Yields the names of the functions called so far: fewer than ``number`` where none was interrupted.

    Args:
        number: The call to interrupt, from 1.
    """
    called: list[str] = []

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        if len(called) >= number:
            return
        module = _module_of(frame)
        function = frame.f_code.co_name
        in_kernel = module.startswith("superarm.kernels")
        if not in_kernel and function not in _INTERRUPTED:
            return
        name = f"{module}.{function}"
        called.append(name)
        if len(called) == number:
            raise Interrupt(name)

    previous_profile = sys.getprofile()
    sys.setprofile(watch)
    try:
        yield called
    except Interrupt:
        pass
    finally:
        sys.setprofile(previous_profile)


@contextmanager
def interrupted_after(call: int, package: str) -> Iterator[list[int]]:
    """Raise :class:`Interrupt` after a call that code of a package makes, to anything at all.

    Ctrl-C raises there as well, and never within compiled code. Yields a list of one number, of the
    calls so far: fewer than ``call`` where none was interrupted.

    Args:
        call: The call to interrupt, from 1.
        package: The package, such as "superarm.posteriors".
    """
    calls = [0]

    def watch(frame: FrameType, event: str, _: object) -> Any:
        module = _module_of(frame)
        if not module.startswith(package):
            return None
        frame.f_trace_opcodes = True
        if event != "opcode":
            return watch
        if calls[0] >= call:
            return watch
        code = frame.f_code
        if frame.f_lasti not in _after_calls(code):
            return watch
        calls[0] += 1
        if calls[0] == call:
            where = f"{code.co_qualname}, line {frame.f_lineno}"
            raise Interrupt(where)
        return watch

    previous_trace = sys.gettrace()
    sys.settrace(watch)
    try:
        yield calls
    except Interrupt:
        pass
    finally:
        sys.settrace(previous_trace)


def _module_of(frame: FrameType) -> str:
    name: str = frame.f_globals.get("__name__", "")
    return name


@functools.cache
def _after_calls(code: CodeType) -> frozenset[int]:
    """The offsets of those instructions of a function that follow a call."""
    offsets = set()
    instructions = dis.get_instructions(code)
    for instruction, following in pairwise(instructions):
        name = instruction.opname
        if name.startswith("CALL"):
            offsets.add(following.offset)
    return frozenset(offsets)


_INTERRUPTED = ("cholesky", "psd_root", "root_update", "warn")


def arrays_in(value: object) -> Iterator[NDArray[Any]]:
    """Every array in records, states and containers.

    Args:
        value: Any object.
    """
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
            item = getattr(value, entry.name)
            yield from arrays_in(item)


def scribble(value: object) -> None:
    """Overwrite every array in a value that is not read-only.

    Args:
        value: Any object.
    """
    for array in arrays_in(value):
        if array.flags.writeable:
            zero = np.zeros((), dtype=array.dtype)
            array[...] = zero


def copies_of(part: Any) -> Iterator[tuple[str, Any]]:
    """Copies of a part by ``copy`` and ``pickle``, with their names; local classes have no pickle.

    Args:
        part: Any object.
    """
    shallow = copy.copy(part)
    yield "copy.copy", shallow
    deep = copy.deepcopy(part)
    yield "copy.deepcopy", deep
    try:
        data = pickle.dumps(part)
    except (pickle.PicklingError, AttributeError, TypeError):
        return
    unpickled = pickle.loads(data)
    yield "pickle", unpickled


def assert_equal(actual: ArrayLike, expected: ArrayLike, what: str = "") -> None:
    """Assert that arrays are equal, to the bit.

    Args:
        actual: The array.
        expected: What it should be.
        what: What it is, for the message.
    """
    np.testing.assert_array_equal(actual, expected, what)


def assert_finite(values: Floats | float) -> None:
    """Assert that numbers are neither NaN nor infinite.

    Args:
        values: The numbers.
    """
    finite = np.isfinite(values)
    assert finite.all(), f"{values} must be finite"


def assert_close(
    actual: Floats | float,
    expected: Floats | float,
    tolerance: float,
    what: str,
) -> None:
    """Assert that numbers are equal up to a tolerance.

    Args:
        actual: The numbers.
        expected: What they should be.
        tolerance: The largest absolute difference.
        what: What they are, for the message.
    """
    np.testing.assert_allclose(actual, expected, rtol=0.0, atol=tolerance, err_msg=what)


def assert_moments(draws: Floats, mean: Floats, cov: Floats, what: str) -> None:
    """Assert that draws have a mean and covariance, up to six standard errors.

    About a known mean, entry (i, j) of the second moment of S Gaussian draws has expectation
    C_ij and standard deviation √((C_ii C_jj + C_ij²)/S) exactly; entry i of the mean √(C_ii/S).
    Six of these leave 2·Φ(−6) ≈ 2e-9 per entry, so by Bonferroni's bound a sound sampler fails
    less than once in 1e6 seeds for up to 20 arms; the seed is fixed besides.

    Args:
        draws: The draws, (S, n).
        mean: Their mean, (n,).
        cov: Their covariance, (n, n).
        what: What draws them, for the message.
    """
    count = len(draws)
    variance = np.diagonal(cov)
    largest_mean = np.abs(mean).max()
    size = 1.0 + largest_mean + variance.max()
    rounding = 1e-12 * size
    centred = draws - mean

    mean_error = centred.mean(axis=0)
    mean_std = np.sqrt(variance / count)
    mean_limit = 6.0 * mean_std + rounding
    _assert_within(mean_error, mean_limit, f"{what}: the draws' mean")

    second_moment = centred.T @ centred / count
    cov_error = second_moment - cov
    spread = np.outer(variance, variance) + cov**2
    cov_std = np.sqrt(spread / count)
    cov_limit = 6.0 * cov_std + rounding
    _assert_within(cov_error, cov_limit, f"{what}: the draws' covariance")


def _assert_within(error: Floats, limit: Floats, what: str) -> None:
    size = np.abs(error)
    within = size <= limit
    assert within.all(), f"{what} is off by {size}, allowed {limit}"


@dataclass(frozen=True)
class FixedBelief:
    """A belief with a fixed mean and covariance, for tests of rules.

    Args:
        mean: Means of the arms, (n,); read-only.
        cov: Their covariance, (n, n); read-only.
        noise_std: Standard deviation of one observation.
        information_gain: Information gain so far, in nats.
        incumbent: Highest posterior mean observed.
    """

    mean: Floats
    cov: Floats
    noise_std: float = 0.1
    information_gain: float = 2.0
    incumbent: float = 0.25

    @property
    def std(self) -> Floats:
        variance = np.diagonal(self.cov)
        return frozen(np.sqrt(variance))

    def sample(self, rng: Rng) -> Floats:
        return rng.multivariate_normal(self.mean, self.cov, method="eigh")

    def condition(self, positions: Ints) -> FixedBelief:
        noise_variance = self.noise_std**2
        cov = conditioned(self.cov, positions, noise_variance)
        return replace(self, cov=frozen(cov))

    def negated(self) -> FixedBelief:
        mean = frozen(-self.mean)
        return replace(self, mean=mean, incumbent=-self.incumbent)


def conditioned(cov: Floats, positions: Ints, noise_variance: Floats | float) -> Floats:
    """The covariance after observing some arms, by the textbook.

    Args:
        cov: The covariance before, (n, n).
        positions: The observed arms, (k,).
        noise_variance: One variance for all observations, or one for each, (k,).
    """
    observed = cov[positions]  # (k, n)
    noise = noise_variance * np.eye(len(positions))
    total = observed[:, positions] + noise  # (k, k)
    weights = np.linalg.solve(total, observed)  # (k, n)
    explained = observed.T @ weights
    return np.asarray(cov - explained)
