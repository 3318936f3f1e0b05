"""The records of the flow Offer → Decision → Feedback."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, Self

import numpy as np

from .arrays import Bools, Floats, Ints
from .display import Displayable
from .errors import InputError, ShapeError, UnknownArmError
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
from .state import State


class Arms(Displayable):
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
            ids = tuple(
                given.tolist() if isinstance(given, np.ndarray) else given
            )  # not np.int64
        except TypeError:
            raise InputError(
                f"ids is {given!r:.60}; give a list with one id per row"
            ) from None
        try:
            index = {arm: position for position, arm in enumerate(ids)}
        except TypeError as error:
            raise InputError(
                f"arm ids must be hashable, such as numbers or strings: {error}"
            ) from None
        if len(ids) != len(checked):
            told = f"ids has {len(ids)} entries but features has {len(checked)} rows"
            raise ShapeError(f"{told}; give one id per row")
        if len(index) != len(ids):
            repeated = next(
                arm for position, arm in enumerate(ids) if index[arm] != position
            )
            raise InputError(
                f"arm id {repeated!r} appears more than once; ids must be unique"
            )
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

    def _display_fields(self) -> Mapping[str, Any]:
        return {"n": len(self), "d": self.features.shape[1]}

    def positions(self, ids: Sequence[Hashable]) -> Ints:
        """Where these ids stand among the arms."""
        try:
            return np.array([self._index[arm] for arm in ids], dtype=np.intp)
        except TypeError as error:
            message = (
                "arm ids must be hashable, such as numbers or strings, and in a list"
            )
            raise InputError(f"ids is {ids!r:.60}; {message}: {error}") from None
        except KeyError as error:
            told = f"{len(self)} arms are, the first of them {list(self.ids[:3])!r}"
            raise UnknownArmError(
                f"arm id {error.args[0]!r} is not on offer; {told}"
            ) from None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Offer(Displayable):
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
        raise InputError(
            f"positions {positions.tolist()[:9]} name an arm twice; name each once"
        )


class Selection(NamedTuple):
    """What an oracle returns."""

    action: object
    """The action itself (a route, a slate)."""
    positions: Ints
    """The arms that the action will observe, (k,), without repeats."""
    guarantee: Guarantee = EXACT
    """How good this selection is: it may differ from call to call."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Decision(Displayable):
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
            raise InputError(
                f"this is the decision of step {self.step}, not {offer.step}"
            )
        if self.positions.max(initial=-1) >= len(offer.arms):
            places = self.positions.tolist()[:9]
            told = (
                f"the offer has {len(offer.arms)} arms, but the positions are {places}"
            )
            raise InputError(f"{told}; give the offer that was answered")
        chosen = (offer.arms.ids[position] for position in self.positions.tolist())
        return [
            each.item() if isinstance(each, np.generic) else each for each in chosen
        ]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Feedback(Displayable):
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
        if (
            sums.shape != positions.shape
            or len(np.unique(sums)) != count
            or sums.min(initial=0) < 0
        ):
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
            require_type(
                noise_variance, Mapping, "noise_variance", ", such as {'mocha': 4.0}"
            )
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
    noise_cov: Floats | None = (
        None  # (k, k) where noise differs from arm to arm, or is shared
    )
    widths: Floats = (
        QUANTILES  # of the intervals of ``LEVELS`` of one arm, in standard deviations
    )
    total_widths: Floats = QUANTILES  # the same of the sum

    def stds(self) -> Floats:
        """Standard deviation of each arm's observed reward, noise included, (k,)."""
        noise = (
            self.noise_std**2 if self.noise_cov is None else np.diagonal(self.noise_cov)
        )
        return np.sqrt(np.maximum(np.diagonal(self.cov), 0.0) + noise)

    def total(self) -> tuple[float, float]:
        """Mean and standard deviation of the sum that will be observed, noise included."""
        own = self.noise_cov
        noise = len(self.mean) * self.noise_std**2 if own is None else float(own.sum())
        variance = float(self.cov.sum()) + noise
        return float(self.mean.sum()), float(np.sqrt(max(variance, 0.0)))


class Best(NamedTuple):
    """What a round's regret is measured against."""

    value: float
    """The benchmark: the value of the oracle's super arm under the truth."""
    guarantee: Guarantee = EXACT
    """The oracle's promise in that call. Where α is below 1, a policy may beat the benchmark."""
    optimum: float | None = None
    """The value of the best feasible super arm, where the problem can compute it."""
