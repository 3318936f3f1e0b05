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
from .levels import QUANTILES
from .state import State


class Arms(Displayable):
    """Arms on offer: the user's own ids and one feature row each.

    Equal feature rows are legal, repeated ids are not. The features are copied once and
    then read-only, so that an ``Arms`` can be stored and compared by identity.

    Args:
        ids: One hashable id per arm, such as a name or a number.
        features: One row of numbers per arm, (n, d).

    >>> arms = Arms(ids=["a", "b"], features=[[0.0], [1.0]])
    >>> len(arms), arms.positions(["b"]).tolist()
    (2, [1])
    """

    __slots__ = ("_index", "features", "ids")

    ids: tuple[Hashable, ...]
    features: Floats  # (n, d), read-only

    def __init__(self, *, ids: Sequence[Hashable], features: Any) -> None:
        rows = read_only(as_features(features, "features"))
        arm_ids = _as_ids(ids)
        index = _index_of(arm_ids)
        if len(arm_ids) != len(rows):
            raise ShapeError(
                f"ids has {len(arm_ids)} entries but features has {len(rows)} rows; "
                "give one id per row"
            )
        if len(index) != len(arm_ids):
            repeated = _first_repeated(arm_ids, index)
            raise InputError(
                f"arm id {repeated!r} appears more than once; ids must be unique"
            )
        self.ids = arm_ids
        self.features = rows
        self._index = index

    @classmethod
    def numbered(cls, features: Any) -> Self:
        """Arms whose ids are 0 … n−1.

        Args:
            features: One row of numbers per arm, (n, d).
        """
        arms = cls.__new__(cls)  # ids that cannot repeat need no check
        arms.features = read_only(as_features(features, "features"))
        numbers = range(len(arms.features))
        arms.ids = tuple(numbers)
        arms._index = dict(zip(arms.ids, numbers, strict=True))
        return arms

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, arm: Hashable) -> bool:
        """Whether an arm is on offer.

        Args:
            arm: Its id.
        """
        return arm in self._index

    def _display_fields(self) -> Mapping[str, Any]:
        return {"n": len(self), "d": self.features.shape[1]}

    def positions(self, ids: Sequence[Hashable]) -> Ints:
        """Where these ids stand among the arms, (k,).

        Args:
            ids: Ids of k arms on offer.
        """
        try:
            return np.array([self._index[arm] for arm in ids], dtype=np.intp)
        except TypeError as error:
            raise InputError(
                f"ids is {ids!r:.60}; arm ids must be hashable, such as numbers or strings, "
                f"and in a list: {error}"
            ) from None
        except KeyError as error:
            unknown_id = error.args[0]
            first_ids = list(self.ids[:3])
            raise UnknownArmError(
                f"arm id {unknown_id!r} is not on offer; "
                f"{len(self)} arms are, the first of them {first_ids!r}"
            ) from None


def _as_ids(ids: Any) -> tuple[Hashable, ...]:
    try:
        # Python's own numbers, not np.int64.
        return tuple(ids.tolist() if isinstance(ids, np.ndarray) else ids)
    except TypeError:
        raise InputError(
            f"ids is {ids!r:.60}; give a list with one id per row"
        ) from None


def _index_of(ids: tuple[Hashable, ...]) -> dict[Hashable, int]:
    """The position of each id; of an id that is repeated, the last."""
    try:
        return {arm: position for position, arm in enumerate(ids)}
    except TypeError as error:
        raise InputError(
            f"arm ids must be hashable, such as numbers or strings: {error}"
        ) from None


def _first_repeated(
    ids: tuple[Hashable, ...], index: Mapping[Hashable, int]
) -> Hashable:
    for position, arm in enumerate(ids):
        if index[arm] != position:
            return arm
    raise AssertionError("every id is unique")


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
        step = as_count(self.step, "step", 1, MOST_STEPS)
        if step is not self.step:
            object.__setattr__(self, "step", step)
        begins: Any = self.begins
        if type(begins) is not bool:
            self._check_begins(begins)
        require_type(self.arms, Arms, "arms", ", such as Arms.numbered(features)")
        if self.time is not None:
            object.__setattr__(self, "time", as_number(self.time, "time"))
        if self.available is not None:
            self._check_available()

    def _check_begins(self, begins: Any) -> None:
        """Refuse what is neither Python's ``bool`` nor numpy's, which becomes Python's."""
        if isinstance(begins, np.bool_):
            object.__setattr__(self, "begins", bool(begins))
        require_type(self.begins, bool, "begins")

    def _check_available(self) -> None:
        available: Any = self.available
        is_plain = isinstance(available, np.ndarray) and not isinstance(
            available, np.ma.MaskedArray
        )
        if (
            not is_plain
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
        """This offer with ``action`` as the previous one, unless an episode begins elsewhere.

        Args:
            action: What was done in the round before; ``None`` where nothing was.
        """
        if action is None or (self.begins and self.previous_action is not None):
            return self
        offer = object.__new__(Offer)  # everything else is checked already
        for name in _OFFER_FIELDS:
            object.__setattr__(offer, name, getattr(self, name))
        object.__setattr__(offer, "previous_action", action)
        return offer


_OFFER_FIELDS = tuple(item.name for item in fields(Offer))
MOST_STEPS = 2**53
"""The last step: up to it floats represent every integer, and schedules compute with floats."""


class Guarantee(NamedTuple):
    """An oracle's promise: at least ``alpha`` × the optimum with this ``probability``."""

    alpha: float = 1.0
    probability: float = 1.0


EXACT = Guarantee()
"""The guarantee of an oracle that finds the optimum."""


def _as_guarantee(guarantee: Any) -> Guarantee:
    require_type(guarantee, tuple, "guarantee", ", such as Guarantee(alpha=0.5)")
    alpha, probability = guarantee
    return Guarantee(
        as_number(alpha, "guarantee.alpha", 0.0, 1.0),
        as_number(probability, "guarantee.probability", 0.0, 1.0),
    )


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
    """A chosen super arm, and the beliefs behind the choice."""

    step: int
    """The step of the offer that it answers; late feedback is matched by it."""
    action: object
    """What to do: a route, a slate, or the positions themselves."""
    positions: Ints
    """The chosen arms' places in the offer, (k,), read-only: feedback is matched by them."""
    mean: Floats | None = None
    """Posterior mean of the chosen arms when they were chosen, (k,)."""
    std: Floats | None = None
    """Posterior standard deviation of the chosen arms, (k,)."""
    desirability: Floats | None = None
    """The numbers by which the chosen arms were selected, (k,)."""
    propensity: float | None = None
    """Probability of this action under the policy, where it is known."""
    guarantee: Guarantee | None = None
    """How good the oracle's selection is, by the desirabilities; ``None`` where no oracle was asked."""
    version: int = 0
    """How many times the policy had learned when it decided."""
    carry: State | None = field(default=None, repr=False)
    """What :meth:`Policy.commit` adopts once the decision is taken."""

    def __post_init__(self) -> None:
        # A policy makes one in every round, of values that are as they should be: set only others.
        step = as_count(self.step, "step", 1, MOST_STEPS)
        if step is not self.step:
            object.__setattr__(self, "step", step)
        positions = frozen(as_positions(self.positions, "positions"))
        if positions is not self.positions:
            if self.action is self.positions:
                object.__setattr__(self, "action", positions)
            object.__setattr__(self, "positions", positions)
        _refuse_repeats(positions)
        if self.propensity is not None:
            propensity = as_number(self.propensity, "propensity", 0.0, 1.0)
            if propensity is not self.propensity:
                object.__setattr__(self, "propensity", propensity)
        if self.guarantee is not None and type(self.guarantee) is not Guarantee:
            object.__setattr__(self, "guarantee", _as_guarantee(self.guarantee))
        if self.carry is not None:
            require_type(self.carry, State, "carry")

    def ids(self, offer: Offer) -> list[Hashable]:
        """The user's own ids of the chosen arms.

        Args:
            offer: The offer that the decision answers.
        """
        if offer.step != self.step:
            raise InputError(
                f"this is the decision of step {self.step}, not {offer.step}"
            )
        if self.positions.max(initial=-1) >= len(offer.arms):
            first_positions = self.positions.tolist()[:9]
            raise InputError(
                f"the offer has {len(offer.arms)} arms, but the positions are {first_positions}; "
                "give the offer that was answered"
            )
        chosen = [offer.arms.ids[position] for position in self.positions.tolist()]
        return [arm.item() if isinstance(arm, np.generic) else arm for arm in chosen]


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
        # Most feedback holds clean arrays: set only others.
        if positions is not self.positions:
            object.__setattr__(self, "positions", positions)
        if rewards is not self.rewards:
            object.__setattr__(self, "rewards", rewards)
        _refuse_repeats(positions)
        if self.noise_variance is not None:
            noise = as_vector(self.noise_variance, "noise_variance", count)
            object.__setattr__(self, "noise_variance", noise)
        if self.delays is not None:
            delays = as_positions(self.delays, "delays")
            if delays.shape != positions.shape or delays.min(initial=0) < 0:
                raise InputError(
                    f"delays is {delays.tolist()[:9]}; "
                    "give one number of rounds, 0 or more, per reward"
                )
            object.__setattr__(self, "delays", delays)

    def _check_sums(self, positions: Ints) -> int:
        """The number of sums, each of one arm or more."""
        sums = as_positions(self.sums, "sums")
        count = int(sums.max(initial=-1)) + 1
        none_left_out = len(np.unique(sums)) == count
        if (
            sums.shape != positions.shape
            or not none_left_out
            or sums.min(initial=0) < 0
        ):
            raise InputError(
                f"sums is {sums.tolist()[:9]}; "
                "give each arm the number of its reward: 0, 1, 2, …, none left out"
            )
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
            offer: The offer that was answered, which contains the ids.
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
        """Some of the rewards, as feedback that is known at once.

        Args:
            chosen: Which rewards, (m,).
        """
        if self.sums is not None:
            if not chosen.all():
                raise InputError(
                    "rewards of sums are known at once: give all arms the same delay "
                    "(in a table [feedback], together = true)"
                )
            return replace(self, delays=None)
        noise_variance = None
        if self.noise_variance is not None:
            noise_variance = self.noise_variance[chosen]
        return Feedback(
            positions=self.positions[chosen],
            rewards=self.rewards[chosen],
            noise_variance=noise_variance,
        )


class Prediction(NamedTuple):
    """Mean and standard deviation of the latent reward."""

    mean: Floats
    std: Floats | None


class JointPrediction(NamedTuple):
    """Mean and covariance of the latent reward."""

    mean: Floats
    cov: Floats


class Forecast(NamedTuple):
    """What a policy expects of the arms of a super arm before it sees them."""

    mean: Floats  # (k,)
    cov: Floats  # of the latent rewards, (k, k)
    noise_std: float
    # Where noise differs from arm to arm, or is shared, (k, k).
    noise_cov: Floats | None = None
    # Half-widths of one arm's intervals of ``LEVELS``, in standard deviations.
    widths: Floats = QUANTILES
    # The same for the sum of the arms.
    total_widths: Floats = QUANTILES

    def stds(self) -> Floats:
        """Standard deviation of each arm's observed reward, noise included, (k,)."""
        noise_variance: float | Floats = self.noise_std**2
        if self.noise_cov is not None:
            noise_variance = np.diagonal(self.noise_cov)
        latent_variance = np.maximum(np.diagonal(self.cov), 0.0)
        return np.sqrt(latent_variance + noise_variance)

    def total(self) -> tuple[float, float]:
        """Mean and standard deviation of the sum that will be observed, noise included."""
        if self.noise_cov is None:
            noise_variance = len(self.mean) * self.noise_std**2
        else:
            noise_variance = float(self.noise_cov.sum())
        variance = float(self.cov.sum()) + noise_variance
        std = float(np.sqrt(max(variance, 0.0)))
        return float(self.mean.sum()), std


class Best(NamedTuple):
    """What a round's regret is measured against."""

    value: float
    """The benchmark: the value of the oracle's super arm under the truth."""
    guarantee: Guarantee = EXACT
    """The oracle's promise in that call. Where α is below 1, a policy may beat the benchmark."""
    optimum: float | None = None
    """The value of the best feasible super arm, where the problem can compute it."""
