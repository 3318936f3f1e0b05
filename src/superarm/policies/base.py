"""What policies share: a file to be saved to, and feedback that is learned once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import wraps
from pathlib import Path
from typing import Any, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from superarm.core import Decision, Direction, Feedback, Offer, Posterior, Rng, State
from superarm.core.errors import InputError, StaleBeliefError, StateError
from superarm.core.inputs import require_choice, require_type
from superarm.core.locks import ReadWriteLock, ThreadSafe
from superarm.core.migrations import up_to_date
from superarm.core.registry import HasParameters, describe
from superarm.core.serialization import to_json
from superarm.core.states import check_spec, save_state
from superarm.core.tables import Encoding

from .ledger import Ledger, check_feedback


class SavablePolicy(HasParameters):
    """A policy that can be saved: its state contains the spec that builds it."""

    kind: str
    schema: int
    _encoding: Encoding | None = None

    @property
    def encoding(self) -> Encoding | None:
        """The encoding that turns rows of a table into features; ``None`` by default.

        The policy itself does not use it. Set it to save it with the policy; :func:`superarm.load`
        restores it.
        """
        return self._encoding

    @encoding.setter
    def encoding(self, encoding: Encoding | None) -> None:
        if encoding is not None:
            require_type(encoding, Encoding, "encoding", ", such as Encoding.of(rows)")
            to_json(
                encoding.as_scalars()
            )  # raises for a category that no file can hold
        self._encoding = encoding

    def _encoding_scalars(self) -> dict[str, Any]:
        """The scalars of a state that hold the encoding."""
        if self.encoding is None:
            return {}
        return {"encoding": self.encoding.as_scalars()}

    def _restore_encoding(self, state: State, default: Encoding | None) -> None:
        """Set the encoding in a state; the default where it has none."""
        scalars = state.scalars.get("encoding")
        self.encoding = default if scalars is None else Encoding.from_scalars(scalars)

    def commit(self, decision: Decision) -> None:
        """Take a decision. Nothing changes before rewards are seen.

        Args:
            decision: The decision.
        """

    def save(self, path: Path | str) -> None:
        """Write the policy and what it has learned to a file; :func:`superarm.load` reads it.

        Args:
            path: The file.
        """
        save_state(self.state(), path)

    def state(self) -> State:
        """What the policy is made of, and what it has learned."""
        memory = {**self._memory(), **self._encoding_scalars()}
        scalars: dict[str, Any] = {}
        arrays: dict[str, NDArray[Any]] = {}
        parts: dict[str, State] = {}
        for name, value in memory.items():
            if isinstance(value, np.ndarray):
                arrays[name] = value.copy()
            elif isinstance(value, State):
                parts[name] = value
            else:
                scalars[name] = value
        return State(
            kind=self.kind,
            schema=self.schema,
            scalars=scalars,
            arrays=arrays,
            parts=parts,
            spec=describe(self),
        )

    def restored(self, state: State) -> Self:
        """A policy with this one's parts and the memory of a state.

        Args:
            state: A state of such a policy.
        """
        state = up_to_date(state, self.kind, self.schema, type(self).__name__, "policy")
        check_spec(state, self)
        policy = type(self)(**self.parameters())
        try:
            policy._remember(state)
            policy._restore_encoding(state, self.encoding)
        except InputError as error:
            raise StateError(f"this state is damaged: {error}") from error
        return policy

    def _memory(self) -> Mapping[str, Any]:
        """What was learned, by name: numbers, arrays and states of parts."""
        return {}

    def _remember(self, state: State) -> None:
        """Restore what :meth:`_memory` returned, or raise :class:`StateError`."""


class Learner(ThreadSafe, SavablePolicy):
    """A policy that learns every reward once, and records which it has learned."""

    repeats = False
    """Whether a reward may be learned twice."""

    def __init__(self, *, direction: Direction, most_pending: int = 0) -> None:
        require_choice(direction, "direction", ("maximize", "minimize"))
        self.direction: Direction = direction
        self.version = 0
        self._ledger = Ledger(most_pending=most_pending)
        self._lock = ReadWriteLock()

    def _constant(self) -> Iterable[object]:
        # Rules, oracles and metrics, but no posterior: it learns.
        parts = self.parameters().values()
        return (part for part in parts if not isinstance(part, Posterior))

    @abstractmethod
    def _absorb(
        self, offer: Offer, decision: Decision, feedback: Feedback, rng: Rng
    ) -> None:
        """Learn from rewards that belong to the decision."""

    @property
    def last_step(self) -> int:
        """The largest step with learned feedback; 0 before the first."""
        return self._ledger.last

    def give_up(self, step: int | None = None) -> None:
        """Stop waiting for feedback: chosen arms are pending no more.

        Args:
            step: The step of the decision; ``None``: all decisions.
        """
        with self._lock:
            self._ledger.give_up(step)

    def learn(
        self, offer: Offer, decision: Decision, feedback: Feedback, rng: Rng
    ) -> None:
        """Learn from feedback.

        Args:
            offer: The offer that the decision was made for.
            decision: The decision.
            feedback: Rewards of all or some of its arms.
            rng: Where a posterior that learns by sampling draws its random numbers.
        """
        check_feedback(offer, decision, feedback)
        with self._lock:
            self._ledger.check_committed(decision)
            if not self.repeats:
                self._ledger.check(decision, feedback)
            observations = self._observations
            try:
                self._absorb(offer, decision, feedback, rng)
            except BaseException:
                # An interrupt may come when the posterior has learned and is tidying up.
                if self._observations != observations:
                    self._note(decision, feedback)
                raise
            self._note(decision, feedback)

    def _note(self, decision: Decision, feedback: Feedback) -> None:
        """Record that this feedback was learned."""
        self._ledger.note(decision, feedback)
        self.version += 1

    @property
    def _observations(self) -> int:
        """Rewards that a posterior has learned so far; 0 without a posterior."""
        return 0

    def state(self) -> State:
        """What was learned, what is pending, and what the policy is made of."""
        with self._lock.lock:
            return super().state()

    def _memory(self) -> Mapping[str, Any]:
        return {"version": self.version, "ledger": self._ledger.state()}

    def _remember(self, state: State) -> None:
        self.version = state.count("version", 0)
        self._ledger = self._ledger.restored(state.part("ledger"))


Decide = TypeVar("Decide", bound=Callable[..., Decision])


def retry_if_stale(decide: Decide) -> Decide:
    """Decorator of ``decide``: tries again if another thread taught the posterior meanwhile.

    Beliefs compute some of their parts on demand, and refuse once their posterior has learned more.

    Args:
        decide: The method.
    """

    @wraps(decide)
    def decide_or_retry(self: Learner, offer: Offer, rng: Rng) -> Decision:
        try:
            return decide(self, offer, rng)
        except StaleBeliefError:
            # The policy's lock first, as in ``learn``; others may teach the posterior directly.
            with ExitStack() as locks:
                for part in (self, *self.parameters().values()):
                    if isinstance(part, ThreadSafe):
                        locks.enter_context(part._lock.lock)
                return decide(self, offer, rng)

    return cast(Decide, decide_or_retry)
