"""What every problem shares: what a learner is told, and what a benchmark may know.

A problem is built by ``registry.build("problem", spec, seed=…, horizon=…)``. Its truth comes
from the stream (seed, "truth", 0) and its offers from (seed, "offer", step); noise is drawn by
whoever runs it, from (seed, "noise", step), and handed to
:meth:`~superarm.core.Problem.feedback`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import numpy as np

from superarm.core import Direction, Floats, Offer, Oracle, Problem, Reward
from superarm.errors import InputError
from superarm.kernels import Covariance
from superarm.networks import RoadMap
from superarm.rewards import Sum

NO_METRICS: Mapping[str, float] = MappingProxyType({})
"""The metrics of a round that has none: one shared mapping, since rounds are many."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Model:
    """What a learner is told about a problem before the first round.

    Symbols of the papers: ``norm_bound`` B, ``noise_bound`` R, ``noise_variance`` λ or σ²,
    ``gain`` γ, ``horizon`` T, ``most_arms`` M.
    """

    kernel: Covariance
    noise_variance: float
    oracle: Oracle
    horizon: int
    mean: float | Floats = 0.0
    """One number, or one for each fixed or numbered arm, (n,)."""
    arms: Floats | None = None
    """The fixed arm set's features (n, d); ``None`` where arms change from round to round."""
    direction: Direction = "maximize"
    reward: Reward = field(default_factory=Sum)
    """What a super arm is worth, given what its arms yield."""
    norm_bound: float | None = None
    noise_bound: float | None = None
    gain: Mapping[str, Any] | None = None
    """A spec of the family "gain", such as ``{"name": "constant", "value": 1.0}``."""
    most_arms: int | None = None
    """The largest number of arms on offer in a round."""
    reduction: Floats | None = None
    """Δh, (n,): what each fixed arm changes in a potential; adds up to the same for all routes."""
    costs: Mapping[str, Floats] = field(default_factory=dict)
    """Other known costs of the fixed arms by name, (n,) each, such as their ``length``."""
    fingerprint: str = ""
    """The same for equal models: by it a saved state is known to belong."""
    numbered: bool = False
    """Whether column 0 of the features is the arm's number, 0 … n − 1, in every offer."""

    def mean_function(self) -> float | Callable[[Floats], Floats]:
        """The prior mean for posteriors that know arms by their features."""
        if np.ndim(self.mean) == 0:
            return float(self.mean)
        if not self.numbered:
            raise InputError("a prior mean per arm needs fixed arms: use posterior 'finite'")
        return ByNumber(np.asarray(self.mean))


@dataclass(frozen=True, eq=False)
class ByNumber:
    """Looks a value up by the arm's number in column 0."""

    values: Floats

    def __call__(self, rows: Floats) -> Floats:
        found: Floats = self.values[rows[:, 0].astype(np.intp)]
        return found


@runtime_checkable
class World(Problem, Protocol):
    """A problem that also says what a learner is told and what the truth is."""

    @property
    def model(self) -> Model: ...
    @property
    def settled(self) -> Mapping[str, str]:
        """Which reading of the paper was used, by topic: text for a report."""
        ...

    def means(self, offer: Offer) -> Floats:
        """True expected reward of every arm on offer, (n,): what the benchmark policy sees."""
        ...


@runtime_checkable
class Scored(Protocol):
    """A world whose benchmark is the oracle on other numbers than the true means."""

    def scores(self, offer: Offer) -> Floats:
        """The benchmark's desirabilities, (n,)."""
        ...


@runtime_checkable
class Mapped(Protocol):
    """A world whose arms are roads on a map."""

    def road_map(self) -> RoadMap: ...


def check_whole(value: object, name: str, least: int) -> int:
    """``value`` as a whole number of at least ``least``."""
    # TOML and JSON give plain integers; 100.0 or True there is a slip worth reporting.
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} is {value!r}; it must be a whole number of at least {least}")
    return value


def check_choice(value: object, name: str, choices: tuple[str, ...]) -> None:
    """Refuse a word that is not among the choices."""
    if value not in choices:
        raise InputError(f"{name} is {value!r}; choose one of {list(choices)}")
