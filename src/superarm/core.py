"""The flow Offer → Decision → Feedback: its records and the protocols of its parts.

Notation, the same in every module

===============  =========================================================================
``n``, ``d``     arms on offer, feature columns
``k``            arms in a super arm
``positions``    where arms stand in an offer: integers into ``offer.arms``
``keys``         what a posterior calls arms: feature rows, or row numbers of a fixed set
``mean``, ``std``  of the latent reward, in the user's sign
``noise_std``    standard deviation of one observation around the latent reward
``desirability`` one number per arm on offer, larger is better; −inf is "not available"
``width``        always multiplies a standard deviation
``noise_variance``  always a variance
``step``         the round, counted from 1
===============  =========================================================================

Records are frozen. ``decide``, ``belief`` and ``predict`` never change state; ``commit``,
``learn`` and ``observe`` are the only methods that do, and ``play_table``, which is many of them.

A step names a round. Late feedback is matched with its decision by the step, so no two decisions of a
policy may share one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple, Protocol, Self, overload, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from .errors import InputError, ShapeError, StateError, UnknownArmError
from .inputs import (
    as_count,
    as_features,
    as_number,
    as_positions,
    as_vector,
    frozen,
    read_only,
    require_type,
)
from .shown import Shown

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]
Rng = np.random.Generator
Direction = Literal["maximize", "minimize"]
Gamma = Callable[[int], float]
"""``gamma(t)``: (a bound on) the information gained from ``t`` observations, γ_t."""


# --- records -----------------------------------------------------------------------------


class Arms(Shown):
    """Arms on offer: the user's own ids and one feature row each.

    Equal feature rows are legal, repeated ids are not. The features are copied once and
    then read-only, so that an ``Arms`` can be kept and compared by identity.

    >>> arms = Arms(ids=["a", "b"], features=[[0.0], [1.0]])
    >>> len(arms), arms.positions(["b"]).tolist()
    (2, [1])
    """

    __slots__ = ("_index", "features", "ids")

    ids: tuple[Hashable, ...]
    features: Floats  # (n, d), read-only

    def __init__(self, *, ids: Sequence[Hashable], features: Any) -> None:
        checked = read_only(as_features(features, "features"))
        given: Any = ids
        try:
            ids = tuple(given.tolist() if isinstance(given, np.ndarray) else given)  # not np.int64
        except TypeError:
            raise InputError(f"ids is {given!r:.60}; give a list with one id per row") from None
        try:
            index = {arm: position for position, arm in enumerate(ids)}
        except TypeError as error:
            raise InputError(f"arm ids must be hashable, such as numbers or strings: {error}") from None
        if len(ids) != len(checked):
            told = f"ids has {len(ids)} entries but features has {len(checked)} rows"
            raise ShapeError(f"{told}; give one id per row")
        if len(index) != len(ids):
            repeated = next(arm for position, arm in enumerate(ids) if index[arm] != position)
            raise InputError(f"arm id {repeated!r} appears more than once; ids must be unique")
        self.ids, self.features, self._index = ids, checked, index

    @classmethod
    def numbered(cls, features: Any) -> Self:
        """Arms whose ids are 0 … n−1."""
        arms = cls.__new__(cls)  # ids that cannot repeat need no check
        arms.features = read_only(as_features(features, "features"))
        numbers = range(len(arms.features))
        arms.ids = tuple(numbers)
        arms._index = dict(zip(arms.ids, numbers, strict=True))
        return arms

    def __len__(self) -> int:
        return len(self.ids)

    def _shown(self) -> Mapping[str, Any]:
        return {"n": len(self), "d": self.features.shape[1]}

    def positions(self, ids: Sequence[Hashable]) -> Ints:
        """Where these ids stand among the arms."""
        try:
            return np.array([self._index[arm] for arm in ids], dtype=np.intp)
        except TypeError as error:
            message = "arm ids must be hashable, such as numbers or strings, and in a list"
            raise InputError(f"ids is {ids!r:.60}; {message}: {error}") from None
        except KeyError as error:
            told = f"{len(self)} arms are, the first of them {list(self.ids[:3])!r}"
            raise UnknownArmError(f"arm id {error.args[0]!r} is not on offer; {told}") from None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Offer(Shown):
    """What can be chosen in one round."""

    step: int
    """The round, counted from 1."""
    arms: Arms
    time: float | None = None
    """Physical time, for drifting rewards; ``None`` where rounds are evenly spaced."""
    available: Bools | None = None
    """Which arms may be chosen, (n,); ``None`` means all of them."""
    structure: object = None
    """The round's constraint record, declared and validated by the oracle."""
    previous_action: object = None
    """What was done in the round before, for switching costs; ``None`` where nothing was."""
    begins: bool = False
    """Whether an episode begins, at ``previous_action`` where it is given, whatever was done before."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "step", as_count(self.step, "step", 1, MOST_STEPS))
        begins: Any = self.begins
        if isinstance(begins, np.bool_):
            object.__setattr__(self, "begins", bool(begins))
        require_type(self.begins, bool, "begins")
        require_type(self.arms, Arms, "arms", ", such as Arms.numbered(features)")
        if self.time is not None:
            object.__setattr__(self, "time", as_number(self.time, "time"))
        available: Any = self.available
        if available is not None and (
            not isinstance(available, np.ndarray)
            or isinstance(available, np.ma.MaskedArray)
            or available.dtype != np.bool_
            or available.shape != (len(self.arms),)
        ):
            raise ShapeError(
                f"available must be a plain boolean array with one entry for each of {len(self.arms)} "
                "arms, not a masked one"
            )

    @property
    def moment(self) -> float:
        """When the round is: ``time``, or the step where no time is given."""
        return float(self.step) if self.time is None else self.time

    def after(self, action: object) -> Offer:
        """This offer with ``action`` as the previous one, unless an episode begins elsewhere."""
        if action is None or (self.begins and self.previous_action is not None):
            return self
        offer = object.__new__(Offer)  # all else was checked when this one was made
        for name in _OFFER_FIELDS:
            object.__setattr__(offer, name, getattr(self, name))
        object.__setattr__(offer, "previous_action", action)
        return offer


_OFFER_FIELDS = tuple(each.name for each in fields(Offer))
MOST_STEPS = 2**53
"""The last step: floats count so far without a gap, and schedules and times compute with them."""


class Guarantee(NamedTuple):
    """An oracle's promise: at least ``alpha`` × the optimum with this ``probability``."""

    alpha: float = 1.0
    probability: float = 1.0


EXACT = Guarantee()
"""The guarantee of an oracle that finds the optimum."""


def _refuse_repeats(positions: Ints) -> None:
    if len(positions) > 1 and len(set(positions.tolist())) < len(positions):
        raise InputError(f"positions {positions.tolist()[:9]} name an arm twice; name each once")


class Selection(NamedTuple):
    """What an oracle returns."""

    action: object
    """The action itself (a route, a slate)."""
    positions: Ints
    """The arms that the action will observe, (k,), without repeats."""
    guarantee: Guarantee = EXACT
    """How good this selection is: it may differ from call to call."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Decision(Shown):
    """A chosen super arm, and why."""

    step: int
    """The step of the offer that it answers; late feedback is matched by it."""
    action: object
    positions: Ints
    """The chosen arms' places in the offer, (k,), read-only: feedback is matched by them."""
    mean: Floats | None = None
    """Posterior mean of the chosen arms when they were chosen, (k,)."""
    std: Floats | None = None
    desirability: Floats | None = None
    propensity: float | None = None
    """Probability of this action under the policy, where it is known."""
    version: int = 0
    """How many times the policy had learned when it decided."""
    carry: State | None = field(default=None, repr=False)
    """What :meth:`Policy.commit` adopts once the decision is taken."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "step", as_count(self.step, "step", 1, MOST_STEPS))
        given: Any = self.positions
        positions = frozen(as_positions(given, "positions"))
        object.__setattr__(self, "positions", positions)
        if self.action is given:  # as of oracles whose actions are the arms
            object.__setattr__(self, "action", positions)
        _refuse_repeats(positions)
        if self.propensity is not None:
            known = as_number(self.propensity, "propensity", 0.0, 1.0)
            object.__setattr__(self, "propensity", known)
        if self.carry is not None:
            require_type(self.carry, State, "carry")

    def ids(self, offer: Offer) -> list[Hashable]:
        """The user's own ids of the chosen arms; ``offer`` is the one that was answered."""
        if offer.step != self.step:
            raise InputError(f"this is the decision of step {self.step}, not {offer.step}")
        if self.positions.max(initial=-1) >= len(offer.arms):
            places = self.positions.tolist()[:9]
            told = f"the offer has {len(offer.arms)} arms, but the positions are {places}"
            raise InputError(f"{told}; give the offer that was answered")
        chosen = (offer.arms.ids[position] for position in self.positions.tolist())
        return [each.item() if isinstance(each, np.generic) else each for each in chosen]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Feedback(Shown):
    """Rewards of some or all chosen arms."""

    positions: Ints
    """Places of the observed arms in the offer, (m,), without repeats."""
    rewards: Floats
    """(m,), in the user's sign; (r,) where they are of sums."""
    noise_variance: Floats | None = None
    """Variance of each reward where it is known; ``None`` is the model's own."""
    delays: Ints | None = None
    """Set by a problem: after how many more rounds each reward is known, (m,); ``None``: all at once. A
    reward that is never known is left out."""
    sums: Ints | None = None
    """Where a reward is the sum of several arms: the reward that each arm belongs to, (m,), from 0 to
    r − 1. A whole trip's energy is ``sums=[0, 0, …, 0]``."""

    def __post_init__(self) -> None:
        positions = as_positions(self.positions, "positions")
        count = len(positions) if self.sums is None else self._check_sums(positions)
        rewards = as_vector(self.rewards, "rewards", count)
        object.__setattr__(self, "positions", positions)
        object.__setattr__(self, "rewards", rewards)
        _refuse_repeats(positions)
        if self.noise_variance is not None:
            noise = as_vector(self.noise_variance, "noise_variance", count)
            object.__setattr__(self, "noise_variance", noise)
        if self.delays is not None:
            delays = as_positions(self.delays, "delays")
            if delays.shape != positions.shape or delays.min(initial=0) < 0:
                told = "give one number of rounds, 0 or more, per reward"
                raise InputError(f"delays is {delays.tolist()[:9]}; {told}")
            object.__setattr__(self, "delays", delays)

    def _check_sums(self, positions: Ints) -> int:
        """How many sums there are, each of one arm or more."""
        sums = as_positions(self.sums, "sums")
        count = int(sums.max(initial=-1)) + 1
        if sums.shape != positions.shape or len(np.unique(sums)) != count or sums.min(initial=0) < 0:
            told = "give each arm the number of its reward: 0, 1, 2, …, none left out"
            raise InputError(f"sums is {sums.tolist()[:9]}; {told}")
        object.__setattr__(self, "sums", sums)
        return count

    @classmethod
    def by_id(
        cls,
        offer: Offer,
        rewards: Mapping[Hashable, float],
        noise_variance: Mapping[Hashable, float] | None = None,
    ) -> Self:
        """Feedback from a mapping of arm ids to rewards, such as ``{"mocha": 52.0, "latte": 49.0}``.

        Args:
            offer: The offer that was answered: it says where each id stands.
            rewards: One reward for each observed arm.
            noise_variance: The variance of each reward's noise where it is known, by the same ids.
        """
        require_type(offer, Offer, "offer")
        require_type(rewards, Mapping, "rewards", ", such as {'mocha': 52.0}")
        ids = list(rewards)
        noise: Any = None
        if noise_variance is not None:
            require_type(noise_variance, Mapping, "noise_variance", ", such as {'mocha': 4.0}")
            if set(noise_variance) != set(ids):
                raise InputError("noise_variance must have the same arm ids as rewards")
            noise = [noise_variance[arm] for arm in ids]
        positions = offer.arms.positions(ids)
        values: Any = list(rewards.values())
        return cls(positions=positions, rewards=values, noise_variance=noise)

    def part(self, chosen: Bools) -> Feedback:
        """The rewards that ``chosen`` (m,) marks, as feedback that is known at once."""
        if self.sums is not None:
            if not chosen.all():
                told = "rewards of sums are known at once: give all arms the same delay"
                raise InputError(f"{told} (in a table [feedback], together = true)")
            return replace(self, delays=None)
        noise = None if self.noise_variance is None else self.noise_variance[chosen]
        positions, rewards = self.positions[chosen], self.rewards[chosen]
        return Feedback(positions=positions, rewards=rewards, noise_variance=noise)


class Prediction(NamedTuple):
    """Mean and standard deviation of the latent reward."""

    mean: Floats
    std: Floats | None


class JointPrediction(NamedTuple):
    """Mean and covariance of the latent reward."""

    mean: Floats
    cov: Floats


LEVELS = (0.50, 0.90, 0.95)
"""Of the central intervals by which forecasts are judged."""
QUANTILES = np.array([0.6744897501960817, 1.6448536269514722, 1.959963984540054])
"""Half-widths of the central intervals of ``LEVELS``, in standard deviations of a normal."""
QUANTILES.flags.writeable = False


class Forecast(NamedTuple):
    """What a policy expects of the arms of a super arm before it sees them."""

    mean: Floats  # (k,)
    cov: Floats  # of the latent rewards, (k, k)
    noise_std: float
    noise_cov: Floats | None = None  # (k, k) where noise differs from arm to arm, or is shared
    widths: Floats = QUANTILES  # of the intervals of ``LEVELS`` of one arm, in standard deviations
    total_widths: Floats = QUANTILES  # the same of the sum

    def stds(self) -> Floats:
        """Standard deviation of each arm's observed reward, noise included, (k,)."""
        noise = self.noise_std**2 if self.noise_cov is None else np.diagonal(self.noise_cov)
        return np.sqrt(np.maximum(np.diagonal(self.cov), 0.0) + noise)

    def total(self) -> tuple[float, float]:
        """Mean and standard deviation of the sum that will be observed, noise included."""
        own = self.noise_cov
        noise = len(self.mean) * self.noise_std**2 if own is None else float(own.sum())
        variance = float(self.cov.sum()) + noise
        return float(self.mean.sum()), float(np.sqrt(max(variance, 0.0)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class State(Shown):
    """A part's whole state: JSON scalars and arrays under a schema number. Never pickle."""

    kind: str
    schema: int
    scalars: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    parts: Mapping[str, State] = field(default_factory=dict)
    """States of what it is composed of, by name."""
    spec: Mapping[str, Any] | None = field(default=None, repr=False)
    """The spec of what made it, from ``registry.describe``: plain JSON and arrays."""

    def require(self, kind: str, schema: int, reader: str) -> None:
        """Refuse a state of another kind or schema than ``reader`` reads."""
        if self.kind == kind and self.schema == schema:
            return
        message = f"this is a {self.kind!r} state of schema {self.schema}"
        message += f"; {reader} reads {kind!r} of schema {schema}"
        if self.kind == kind:
            newer = self.schema > schema
            message += ": a newer version saved it, so upgrade superarm" if newer else ""
            message += "" if newer else ", and no migration leads there"
        raise StateError(message)

    def _get(self, table: Mapping[str, Any], name: str) -> Any:
        if name not in table:
            raise StateError(f"this {self.kind!r} state is damaged: it lacks {name!r}")
        return table[name]

    def part(self, name: str) -> State:
        """A part's state by name, or :class:`StateError` if it is missing; so for the others."""
        found: State = self._get(self.parts, name)
        return found

    def scalar(self, name: str) -> Any:
        return self._get(self.scalars, name)

    def array(self, name: str) -> NDArray[Any]:
        found: NDArray[Any] = self._get(self.arrays, name)
        return found


# --- protocols ---------------------------------------------------------------------------


@runtime_checkable
class Belief(Protocol):
    """A posterior seen through the arms on offer."""

    @property
    def mean(self) -> Floats: ...  # (n,)
    @property
    def std(self) -> Floats: ...  # (n,)
    @property
    def noise_std(self) -> float: ...
    @property
    def cov(self) -> Floats: ...  # (n, n)
    @property
    def information_gain(self) -> float:
        """Realised information gain of everything observed so far, in nats."""

    @property
    def incumbent(self) -> float:
        """Highest posterior mean among arms observed so far; 0 before any data."""

    def sample(self, rng: Rng) -> Floats:
        """One joint draw of the latent rewards, (n,)."""

    def condition(self, positions: Ints) -> Belief:
        """The belief once these arms will have been observed: same mean, smaller std."""

    def negated(self) -> Belief:
        """The belief about minus the reward: how costs are minimised."""


@runtime_checkable
class Posterior(Protocol):
    """What has been learned about every arm's reward."""

    @property
    def exchangeable(self) -> bool:
        """Whether the order of observations does not matter, so that they may come in any order."""

    @property
    def draws(self) -> bool:
        """Whether ``observe`` draws from its generator, which it then needs."""

    @property
    def count(self) -> int:
        """Observations so far."""

    @property
    def noise_std(self) -> float:
        """Standard deviation of one observation where none is given with it."""

    @property
    def information_gain(self) -> float:
        """Realised information gain of everything observed so far, in nats."""

    def keys(self, offer: Offer) -> NDArray[Any]:
        """What this posterior calls the arms on offer, one entry or row each.

        These are what ``observe`` and ``predict`` take. Keys carry the offer's time where a posterior
        wants it, so that feedback learned late is dated by its own offer.
        """

    def observe(
        self, arms: Any, rewards: Any, noise_variance: Any = None, rng: Rng | None = None
    ) -> None:
        """Learn the rewards of these arms: all of them, or none if one is refused.

        Args:
            arms: Keys of the arms, as :meth:`keys` returns them, one for each reward.
            rewards: (m,), in the user's sign.
            noise_variance: The variance of each reward's noise where it is known.
            rng: Needed only where ``draws`` is true.
        """

    @overload
    def predict(
        self, arms: Any, return_std: bool = True, return_cov: Literal[False] = False
    ) -> Prediction: ...
    @overload
    def predict(
        self, arms: Any, return_std: bool = True, *, return_cov: Literal[True]
    ) -> JointPrediction: ...
    def sample(self, arms: Any, rng: Rng, size: int = 1) -> Floats:
        """Joint draws of the latent reward, (size, n)."""

    def belief(self, offer: Offer, pending: NDArray[Any] | None = None) -> Belief:
        """This posterior seen through the arms on offer.

        ``pending`` are keys of arms that were chosen and not yet seen: the mean stays as it is,
        the uncertainty is what it will be once they are observed.
        """

    def state(self) -> State:
        """Everything observed, and the spec of what observed it."""

    def restored(self, state: State) -> Posterior:
        """A posterior like this one with the memory of ``state``: the same up to rounding."""


class Schedule(Protocol):
    """How wide a confidence interval is in round ``step``."""

    def width(self, step: int, gamma: Gamma) -> float:
        """The factor of the standard deviation in round ``step``, from 1; 0 or more.

        ``gamma`` returns the information gain; a schedule that needs none does not call it.
        """


@runtime_checkable
class Rule(Protocol):
    """Turns a belief into one desirability per arm."""

    @property
    def deterministic(self) -> bool:
        """Whether ``desirability`` leaves ``rng`` alone."""

    def desirability(self, belief: Belief, step: int, rng: Rng) -> Floats:
        """How good each arm on offer looks in round ``step``, (n,): larger is better."""


Rescore = Callable[[Ints], Floats]
"""Desirabilities, recomputed once some arms are chosen (for oracles that build a set step by step)."""


@runtime_checkable
class Oracle(Protocol):
    """Finds the feasible super arm of largest total desirability."""

    @property
    def deterministic(self) -> bool:
        """Whether ``select`` leaves ``rng`` alone."""

    def select(
        self, desirability: Floats, structure: object, rng: Rng, rescore: Rescore | None = None
    ) -> Selection:
        """The feasible super arm of largest total desirability, as far as the guarantee goes.

        Args:
            desirability: One number per arm on offer, (n,); −∞ bars an arm.
            structure: The round's constraints, such as the endpoints of a trip.
            rng: Used only where ``deterministic`` is false.
            rescore: Desirabilities once some arms are chosen, for oracles that build a set arm by arm.
        """


@runtime_checkable
class SwitchingCost(Protocol):
    """What each arm costs after the previous action, known before it is chosen."""

    @property
    def fixed_arms(self) -> bool:
        """Whether it knows arms by their positions, which then must mean the same in every round."""

    def costs(self, offer: Offer) -> Floats:
        """0 or more for every arm on offer, (n,); all 0 where nothing was done before."""


@runtime_checkable
class DecisionSet(Protocol):
    """Which arms may be chosen in a round, by the algorithm's own choice."""

    def kept(self, offer: Offer) -> Bools:
        """Some of the arms that are available, (n,)."""


@runtime_checkable
class Policy(Protocol):
    """Decides, commits, learns."""

    @property
    def deterministic(self) -> bool:
        """Whether ``decide`` and ``learn`` leave ``rng`` alone."""

    @property
    def exchangeable(self) -> bool:
        """Whether feedback may be learned in any order; if not, only in the order of the decisions."""

    def decide(self, offer: Offer, rng: Rng) -> Decision:
        """Choose a super arm among the arms on offer; nothing changes.

        Ask as often as you like. Call :meth:`commit` with the decision that you take.

        Args:
            offer: The arms of this round; its ``step`` identifies the decision.
            rng: Draws, where the policy is not ``deterministic``.
        """

    def commit(self, decision: Decision) -> None:
        """Take a decision: its arms are pending until their rewards are learned."""

    def learn(self, offer: Offer, decision: Decision, feedback: Feedback, rng: Rng) -> None:
        """Learn the rewards of some or all arms of a committed decision, each of them once.

        Args:
            offer: The offer that the decision answers.
            decision: The decision that was committed.
            feedback: Rewards of chosen arms; the others may follow later, or never.
            rng: Draws, where the posterior draws as it learns.
        """

    def state(self) -> State:
        """Everything learned and pending, and the spec of the policy."""

    def restored(self, state: State) -> Policy:
        """A policy like this one with the memory of ``state``."""


@runtime_checkable
class Reward(Protocol):
    """What a super arm is worth, given what its arms yield: monotone in each of them."""

    @property
    def lipschitz(self) -> float:
        """B: the worth changes by at most B · Σ|change of an outcome|."""

    def worth(self, outcomes: Floats, positions: Ints, structure: object) -> float:
        """The worth of arms at these positions (k,) of the offer that yield ``outcomes`` (k,)."""


class Best(NamedTuple):
    """What a round's regret is measured against."""

    value: float
    """The benchmark: the value of the oracle's super arm under the truth."""
    guarantee: Guarantee = EXACT
    """The oracle's promise in that call. Where α is below 1, a policy may beat the benchmark."""
    optimum: float | None = None
    """The value of the best feasible super arm, where the problem can compute it."""


class Problem(Protocol):
    """A world to learn in. ``offer(step)`` depends on the problem's seed and the step alone."""

    @property
    def direction(self) -> Direction: ...
    def offer(self, step: int) -> Offer:
        """What is on offer in round ``step``, from 1."""

    def noise(self, offer: Offer, rng: Rng) -> Floats:
        """The round's randomness for *all* arms, (n,): every policy meets the same."""

    def feedback(self, offer: Offer, decision: Decision, noise: Floats) -> Feedback:
        """Noisy rewards of the chosen arms: all, or some of them, at once or with ``delays``."""

    def value(self, offer: Offer, decision: Decision) -> float:
        """Noiseless value of the super arm; ``offer.previous_action`` is the policy's own."""

    def best(self, offer: Offer) -> Best:
        """The benchmark: the oracle's super arm under the truth."""

    def metrics(self, offer: Offer, decision: Decision, feedback: Feedback) -> Mapping[str, float]:
        """Further numbers of the round, by name; each is summed over rounds."""
