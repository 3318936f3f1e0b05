"""How parts become a policy: posterior × rule × oracle, and scores that need no learning."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import wraps
from pathlib import Path
from typing import Any, Self, TypeVar, cast

import numpy as np

from superarm.core import (
    MOST_STEPS,
    Belief,
    Decision,
    DecisionSet,
    Direction,
    Feedback,
    Floats,
    Forecast,
    Ints,
    Offer,
    Oracle,
    Posterior,
    Prediction,
    Rescore,
    Rng,
    Rule,
    Selection,
    State,
    SwitchingCost,
)
from superarm.core.capabilities import (
    ComparesOnly,
    Forecaster,
    LearnsSums,
    PartialStd,
    Ranking,
    ReportsSettings,
    Resumable,
    SelfCalibrating,
    TablePlayer,
)
from superarm.core.errors import (
    ConflictError,
    ForgottenError,
    InputError,
    ShapeError,
    StaleBeliefError,
    StateError,
    UnknownArmError,
)
from superarm.core.inputs import (
    as_count,
    as_positions,
    frozen,
    require_choice,
    require_type,
)
from superarm.core.locks import ReadWriteLock, ThreadSafe
from superarm.core.migrations import up_to_date
from superarm.core.registry import HasParameters, describe, register
from superarm.core.serialization import to_json
from superarm.core.states import check_spec, save_state
from superarm.core.tables import Encoding
from superarm.oracles.base import check_chosen

from .ledger import Ledger, check_feedback
from .scores import KnownCosts, Score, Truth

MOST_PENDING = 256  # arms not yet seen that a belief is conditioned on: more cost more than they tell


class Saved(HasParameters):
    """A policy that can be saved: its state says what made it."""

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
            to_json(encoding.as_scalars())  # says which category no file can hold
        self._encoding = encoding

    def _encoding_scalars(self) -> dict[str, Any]:
        """What a state holds of the encoding."""
        return {} if self.encoding is None else {"encoding": self.encoding.as_scalars()}

    def _take_encoding(self, state: State, before: Encoding | None) -> None:
        """The encoding that a state holds; the one ``before`` where it holds none."""
        held = state.scalars.get("encoding")
        self.encoding = before if held is None else Encoding.from_scalars(held)

    @abstractmethod
    def state(self) -> State: ...

    def commit(self, decision: Decision) -> None:
        """Nothing changes before rewards are seen."""

    def save(self, path: Path | str) -> None:
        """Write what the policy is and has learned to a file; :func:`superarm.load` reads it."""
        save_state(self.state(), path)

    def _checked(self, state: State) -> State:
        """The state, brought up to date; that of another policy is refused."""
        state = up_to_date(state, self.kind, self.schema, type(self).__name__, "policy")
        check_spec(state, self)
        return state


class Learner(ThreadSafe, Saved):
    """A policy that learns every reward once, and remembers which it has learned."""

    repeats = False  # whether rewards may be learned again

    def __init__(self, *, direction: Direction, most_pending: int = 0) -> None:
        require_choice(direction, "direction", ("maximize", "minimize"))
        self.direction: Direction = direction
        self.version = 0
        self._ledger = Ledger(most_pending=most_pending)
        self._lock = ReadWriteLock()

    def _constant(self) -> Iterable[object]:
        # Rules, oracles and metrics, but no posterior: it learns.
        return (
            part
            for part in self.parameters().values()
            if not isinstance(part, Posterior)
        )

    @abstractmethod
    def _absorb(
        self, offer: Offer, decision: Decision, feedback: Feedback, rng: Rng
    ) -> None:
        """Learn from rewards that belong to the decision."""

    @abstractmethod
    def _memory(self) -> Mapping[str, Any]:
        """What was learned, by name: numbers, arrays and states of parts."""

    @abstractmethod
    def _remember(self, state: State) -> None:
        """Take in what :meth:`_memory` gave, or :class:`StateError`."""

    @property
    def last_step(self) -> int:
        """The largest step of which something was learned; 0 before that."""
        return self._ledger.last

    def give_up(self) -> None:
        """What was chosen and not yet seen is no longer awaited."""
        with self._lock:
            self._ledger.give_up()

    def learn(
        self, offer: Offer, decision: Decision, feedback: Feedback, rng: Rng
    ) -> None:
        check_feedback(offer, decision, feedback)
        with self._lock:
            self._ledger.check_committed(decision)
            if not self.repeats:
                self._ledger.check(decision, feedback)
            before = self._observations
            try:
                self._absorb(offer, decision, feedback, rng)
            except BaseException:
                # An interrupt may come when the posterior has learned, but is still tidying up.
                if self._observations != before:
                    self._note(decision, feedback)
                raise
            self._note(decision, feedback)

    def _note(self, decision: Decision, feedback: Feedback) -> None:
        """This feedback was learned from."""
        self._ledger.note(decision, feedback)
        self.version += 1

    @property
    def _observations(self) -> int:
        """Rewards that a posterior has learned so far; 0 where there is none."""
        return 0

    def state(self) -> State:
        """What was learned, what is awaited, and what the policy is made of."""
        with self._lock.lock:
            memory = {
                "version": self.version,
                "ledger": self._ledger.state(),
                **self._memory(),
            }
            memory |= self._encoding_scalars()
            arrays = {
                name: each
                for name, each in memory.items()
                if isinstance(each, np.ndarray)
            }
            parts = {
                name: each for name, each in memory.items() if isinstance(each, State)
            }
            return State(
                kind=self.kind,
                schema=self.schema,
                scalars={
                    name: memory[name]
                    for name in memory
                    if name not in {*arrays, *parts}
                },
                arrays={name: array.copy() for name, array in arrays.items()},
                parts=parts,
                spec=describe(self),
            )

    def restored(self, state: State) -> Self:
        """This policy with the memory that ``state`` holds."""
        state = self._checked(state)
        policy = type(self)(**self.parameters())
        try:
            policy.version = as_count(state.scalar("version"), "version", 0)
            policy._ledger = self._ledger.restored(state.part("ledger"))
            policy._remember(state)
            policy._take_encoding(state, self.encoding)
        except InputError as error:
            raise StateError(f"this state is damaged: {error}") from error
        return policy


Decide = TypeVar("Decide", bound=Callable[..., Decision])


def undisturbed(decide: Decide) -> Decide:
    """Decorator of ``decide``: decides once more where another thread taught the posterior meanwhile.

    Beliefs compute some of their parts on demand, and refuse once their posterior has learned more.
    """

    @wraps(decide)
    def decided(self: Learner, offer: Offer, rng: Rng) -> Decision:
        try:
            return decide(self, offer, rng)
        except StaleBeliefError:
            # The policy's lock first, as in ``learn``; the posterior may also be taught by itself.
            with ExitStack() as held:
                for part in (self, *self.parameters().values()):
                    if isinstance(part, ThreadSafe):
                        held.enter_context(part._lock.lock)
                return decide(self, offer, rng)

    return cast(Decide, decided)


# --- what parts answer, checked: they may be anyone's own ----------------------------------


def require_part(part: object, protocol: type, name: str) -> None:
    if isinstance(part, type) or not isinstance(part, protocol):
        advice = f"it must be an object with the methods of {protocol.__module__}.{protocol.__name__}"
        raise InputError(f"{name} is {part!r:.60}; {advice}")


def one_per_arm(by: object, values: Any, n: int) -> Floats:
    """One number per arm; whether desirabilities are finite the oracle says."""
    plain = type(values) is np.ndarray and values.dtype.kind in "fiu"
    if not plain or values.shape != (n,):
        what = (
            f"numbers of shape {values.shape}"
            if plain
            else f"a {type(values).__name__}"
        )
        told = f"{type(by).__name__} returned {what} for {n} arms"
        raise ShapeError(f"{told}; return one number per arm, as an array")
    return np.asarray(values)


def _known_costs(switching: SwitchingCost, offer: Offer) -> Floats:
    """What it costs to go on to each arm on offer, (n,); infinity bars an arm."""
    costs = one_per_arm(switching, switching.costs(offer), len(offer.arms))
    if not costs.min(initial=0.0) >= 0.0:  # also where it is NaN
        where = int(np.argmin(costs >= 0.0))
        name = type(switching).__name__
        raise InputError(
            f"{name} gives arm {where} the cost {costs[where]}; it must be 0 or more"
        )
    return costs


def select(
    oracle: Oracle,
    desirability: Floats,
    offer: Offer,
    rng: Rng,
    rescore: Rescore | None = None,
) -> tuple[object, Ints]:
    """The action and the arms that the oracle selects: each on offer, and available."""
    if offer.available is not None:
        desirability = np.where(offer.available, desirability, -np.inf)
    selection: Any = oracle.select(desirability, offer.structure, rng, rescore)
    name = type(oracle).__name__
    if not isinstance(selection, tuple) or len(selection) != len(Selection._fields):
        raise InputError(
            f"{name}.select returned {selection!r:.60}; return a Selection"
        )
    positions = frozen(as_positions(selection[1], f"what {name} selected"))
    check_chosen(name, positions, desirability)
    # Where the arms are the action, they are one array: nobody must change one without the other.
    return positions if selection[0] is selection[1] else selection[0], positions


@register("policy", "index")
class IndexPolicy(Learner, Forecaster, TablePlayer, ReportsSettings, Resumable):
    """Believe, score, select; then learn from what was seen.

    Every published algorithm here is one of these. ``direction`` flips the belief's sign for costs:
    rules and oracles only ever see "larger is better", beliefs and feedback keep the user's sign.

    Arms that were chosen and not yet seen already shrink the uncertainty, so that decisions without
    feedback between them spread out. Only the ``most_pending`` arms chosen last count; 0 counts none.
    With ``stepwise`` this holds inside a super arm, too: the oracle builds it arm by arm. ``switching``
    charges every arm a known cost that depends on the previous action, ``decision_set`` leaves some
    arms out. Every reward is learned once: a second time is an error, unless ``repeats`` is true.

    Args:
        posterior: What learns.
        rule: The rule.
        oracle: What finds the best combination.
        direction: Whether rewards are maximised or costs minimised.
        stepwise: Whether a super arm is built arm by arm, counting the arms chosen so far as seen.
        switching: What it costs to leave the previous action.
        decision_set: All arms, or only those that stand for a grid that grows finer, as Theorem 4
            of On Kernelized Multi-armed Bandits (2017) assumes.
        most_pending: How many chosen arms without feedback are taken into account, at most.
        repeats: Whether a reward may be learned twice.
    """

    kind = "index-policy"
    schema = 4

    def __init__(
        self,
        *,
        posterior: Posterior,
        rule: Rule,
        oracle: Oracle,
        direction: Direction = "maximize",
        stepwise: bool = False,
        switching: SwitchingCost | None = None,
        decision_set: DecisionSet | None = None,
        most_pending: int = MOST_PENDING,
        repeats: bool = False,
    ) -> None:
        self.most_pending = as_count(most_pending, "most_pending", 0)
        super().__init__(direction=direction, most_pending=self.most_pending)
        require_part(posterior, Posterior, "posterior")
        require_part(rule, Rule, "rule")
        require_part(oracle, Oracle, "oracle")
        if switching is not None:
            require_part(switching, SwitchingCost, "switching cost")
        if decision_set is not None:
            require_part(decision_set, DecisionSet, "decision set")
        if isinstance(rule, Ranking) and rule.ranks_only:
            told = f"{type(rule).__name__} gives numbers that only rank arms, but"
            if not isinstance(oracle, ComparesOnly):
                raise InputError(
                    f"{told} {type(oracle).__name__} may add them up: {rule.ranks_only}, or derive the "
                    "oracle from superarm.core.capabilities.ComparesOnly if only their order "
                    "matters to it"
                )
            if switching is not None:
                raise InputError(
                    f"{told} costs of switching are subtracted: {rule.ranks_only}"
                )
        self.posterior, self.rule, self.oracle = posterior, rule, oracle
        self.switching, self.decision_set = switching, decision_set
        self.stepwise, self.repeats = stepwise, repeats

    @property
    def deterministic(self) -> bool:
        return self._certain and not self.posterior.draws

    @property
    def _observations(self) -> int:
        return self.posterior.count

    @property
    def _certain(self) -> bool:
        """Whether no decision is left to chance."""
        return self.rule.deterministic and self.oracle.deterministic

    @property
    def exchangeable(self) -> bool:
        return self.posterior.exchangeable

    @property
    def same_bits(self) -> bool:
        return isinstance(self.posterior, Resumable) and self.posterior.same_bits

    @property
    def information_gain(self) -> float:
        return self.posterior.information_gain

    @property
    def awaits(self) -> bool:
        """Whether something was chosen that is not yet seen."""
        return self._ledger.awaits

    def knows(self, step: int) -> bool:
        """Whether all rewards of this step were learned."""
        return step in self._ledger.closed

    def note_steps(self, steps: Sequence[int]) -> None:
        """The posterior has learned the rewards of these steps: they are not learned again."""
        noted = [as_count(step, "step", 1, MOST_STEPS) for step in steps]
        with self._lock:
            known = [step for step in noted if step in self._ledger.closed]
            if known or len(set(noted)) < len(noted):
                step = known[0] if known else max(noted, key=noted.count)
                raise ConflictError(
                    f"step {step} is already noted; note every step once"
                )
            for step in noted:
                self._ledger.note_rounds(step, 1)
            self.version += len(noted)

    @undisturbed
    def decide(self, offer: Offer, rng: Rng) -> Decision:
        require_type(offer, Offer, "offer")
        version = self.version  # before the belief: another thread may be learning
        belief = self.posterior.belief(offer, self._ledger.pending())
        seen: Belief = belief if self.direction == "maximize" else belief.negated()
        costs = None if self.switching is None else _known_costs(self.switching, offer)

        def score(belief: Belief) -> Floats:
            answer = self.rule.desirability(belief, offer.step, rng)
            desirability = one_per_arm(self.rule, answer, len(offer.arms))
            return desirability if costs is None else desirability - costs

        conditioned, count = seen, 0

        def rescore(chosen: Ints) -> Floats:
            """``chosen`` grows from call to call: only what is new is added to the condition."""
            nonlocal conditioned, count
            conditioned, count = conditioned.condition(chosen[count:]), len(chosen)
            return score(conditioned)

        desirability = score(seen)
        if self.decision_set is not None:
            kept, n = np.asarray(self.decision_set.kept(offer)), len(offer.arms)
            if kept.dtype != np.bool_ or kept.shape != (n,):
                told = f"the decision set gave an array of {kept.dtype} with shape {kept.shape}"
                raise ShapeError(
                    f"{told}; it must say True or False of each of the {n} arms"
                )
            desirability = np.where(kept, desirability, -np.inf)
        again = rescore if self.stepwise else None
        action, positions = select(self.oracle, desirability, offer, rng, again)
        return Decision(
            step=offer.step,
            action=action,
            positions=positions,
            mean=belief.mean.take(positions),
            std=belief.std_at(positions)
            if isinstance(belief, PartialStd)
            else belief.std.take(positions),
            desirability=desirability.take(positions),
            propensity=1.0 if self._certain else None,
            version=version,
            carry=self._ledger.carry(positions, self.posterior, offer),
        )

    def commit(self, decision: Decision) -> None:
        """The decision is taken: until they are seen, its arms are pending."""
        require_type(decision, Decision, "decision")
        with self._lock:
            self._ledger.expect(decision, self.posterior)

    def _absorb(
        self, offer: Offer, decision: Decision, feedback: Feedback, rng: Rng
    ) -> None:
        if not self.posterior.exchangeable:
            self._ledger.check_order(decision, type(self.posterior).__name__)
        keys = self.posterior.keys(offer)[feedback.positions]
        if feedback.sums is None:
            self.posterior.observe(keys, feedback.rewards, feedback.noise_variance, rng)
        elif isinstance(self.posterior, LearnsSums):
            given = (feedback.sums, feedback.rewards, feedback.noise_variance)
            self.posterior.observe_sums(keys, *given, rng)
        else:
            name = type(self.posterior).__name__
            raise InputError(
                f"{name} learns from rewards of single arms, and this feedback holds sums of them; use "
                "the posterior 'roads', or give every arm its reward"
            )

    def forecast(self, offer: Offer, positions: Ints) -> Forecast:
        """What these arms are expected to yield, in the user's sign."""
        chosen, n = as_positions(positions, "positions"), len(offer.arms)
        if len(chosen) and not (chosen.min() >= 0 and chosen.max() < n):
            told = (
                f"positions {chosen.tolist()[:9]} are not all among arms 0 to {n - 1}"
            )
            raise UnknownArmError(told)
        keys = self.posterior.keys(offer)[chosen]
        mean, cov = self.posterior.predict(keys, return_cov=True)
        if isinstance(self.posterior, SelfCalibrating):
            noise, widths = self.posterior.noise_cov(keys), self.posterior.widths(keys)
            return Forecast(mean, cov, self.posterior.noise_std, noise, *widths)
        return Forecast(mean, cov, self.posterior.noise_std)

    def beliefs(self, offer: Offer) -> Prediction:
        """Mean and standard deviation of every arm on offer, in the user's sign."""
        belief = self.posterior.belief(offer)
        return Prediction(
            belief.mean, None if isinstance(belief, PartialStd) else belief.std
        )

    def play_table(
        self, offer: Offer, rewards: Floats, rng_at: Callable[[int], Rng]
    ) -> Ints | None:
        """Many rounds at once where posterior, rule and oracle allow it; see ``tabled``."""
        from .tabled import play_table

        with self._lock:
            if offer.step <= self._ledger.last:
                return (
                    None  # some of these rounds may be known already: ``learn`` tells
                )
            before = self.posterior.count
            try:
                return play_table(self, offer, rewards, rng_at)
            finally:  # an error, as of a rule, may come after rounds that were learned from
                learned = self.posterior.count - before
                if learned:
                    self.version += learned
                    self._ledger.note_rounds(offer.step, learned)

    def _display_fields(self) -> Mapping[str, Any]:
        names = (
            "posterior",
            "rule",
            "oracle",
            "direction",
            "switching",
            "decision_set",
            "version",
        )
        return {name: getattr(self, name) for name in names}

    def _memory(self) -> Mapping[str, Any]:
        return {"posterior": self.posterior.state()}

    def _remember(self, state: State) -> None:
        self.posterior = self.posterior.restored(state.part("posterior"))
        if (awaited := self._ledger.pending()) is not None:
            with suppress(ForgottenError):  # of long ago
                self.posterior.predict(awaited, return_std=False)  # says what is no arm


@register("policy", "score")
class ScorePolicy(Saved, TablePlayer):
    """Selects by a score that does not learn: a benchmark that knows the truth, or chance.

    Args:
        score: The desirabilities.
        oracle: What finds the best combination.
    """

    exchangeable = True
    kind = "score-policy"
    schema = 2

    def __init__(self, *, score: Score, oracle: Oracle) -> None:
        require_part(score, Score, "score")
        require_part(oracle, Oracle, "oracle")
        self.score, self.oracle = score, oracle

    @property
    def deterministic(self) -> bool:
        return self.score.deterministic and self.oracle.deterministic

    def decide(self, offer: Offer, rng: Rng) -> Decision:
        require_type(offer, Offer, "offer")
        desirability = one_per_arm(
            self.score, self.score.desirability(offer, rng), len(offer.arms)
        )
        priced = (
            self.score.priced(offer) if isinstance(self.score, KnownCosts) else offer
        )
        action, positions = select(self.oracle, desirability, priced, rng)
        return Decision(
            step=offer.step,
            action=action,
            positions=positions,
            desirability=desirability[positions],
            propensity=self.score.propensity(offer, positions, self.oracle),
        )

    def learn(
        self, offer: Offer, decision: Decision, feedback: Feedback, rng: Rng
    ) -> None:
        """Nothing is learned, but feedback that makes no sense is refused."""
        check_feedback(offer, decision, feedback)

    def play_table(
        self, offer: Offer, rewards: Floats, rng_at: Callable[[int], Rng]
    ) -> Ints | None:
        """Many rounds at once, where nothing changes between them and nothing is left to chance."""
        if (
            not isinstance(self.score, KnownCosts | Truth)
            or not self.oracle.deterministic
        ):
            return None
        chosen = self.decide(offer, rng_at(offer.step)).positions
        return np.full(len(rewards), chosen[0]) if len(chosen) == 1 else None

    def state(self) -> State:
        scalars = self._encoding_scalars()
        return State(
            kind=self.kind, schema=self.schema, scalars=scalars, spec=describe(self)
        )

    def restored(self, state: State) -> Self:
        """A policy like this one: it has no memory."""
        state = self._checked(state)
        policy = type(self)(**self.parameters())
        try:
            policy._take_encoding(state, self.encoding)
        except InputError as error:
            raise StateError(f"this state is damaged: {error}") from error
        return policy
