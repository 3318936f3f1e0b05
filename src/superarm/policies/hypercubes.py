"""CC-MAB [chen2018contextual]: fixed cubes of contexts; explores rarely seen cubes first."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Direction, Floats, Oracle, Rng, State
from superarm.core.errors import StateError
from superarm.core.inputs import as_count
from superarm.core.registry import register
from superarm.models import Model

from .cells import CellPolicy

Cube = tuple[int, ...]  # its place along every axis


class _Tally(NamedTuple):
    """Rewards that were observed in a cube."""

    plays: int
    total: float  # sum of rewards

    @property
    def mean(self) -> float:
        """Mean reward; 0 before the first."""
        return self.total / max(self.plays, 1)


_NO_PLAYS = _Tally(0, 0.0)


@register("policy", "hypercubes")
class Hypercubes(CellPolicy):
    """Explores cubes that it has seen too rarely, otherwise takes the best means: CC-MAB.

    A cube is under-explored in round t if it was played at most t^{2/(3+d)} ln t times. Arms in
    such cubes come first, in random order; the others follow by the mean of their cube.

    Args:
        oracle: The oracle, which finds the best combination of scored arms.
        horizon: Number of rounds T, which sets the h_T = ⌈T^{1/(3+d)}⌉ cubes along every axis.
        direction: Whether rewards are maximised or costs minimised.
    """

    kind = "hypercubes"
    exchangeable = True

    def __init__(
        self, *, oracle: Oracle, horizon: int, direction: Direction = "maximize"
    ) -> None:
        super().__init__(oracle=oracle, direction=direction)
        self.horizon = as_count(horizon, "horizon", 1, 10**15)
        self._tallies: dict[Cube, _Tally] = {}

    def per_axis(self, dimension: int) -> int:
        """h_T: cubes along every axis.

        Args:
            dimension: Number of feature columns d.
        """
        exact = math.pow(self.horizon, 1.0 / (3.0 + dimension))
        # A hair above a whole number, as of 64^{1/6}, is rounding.
        return math.ceil(round(exact, 12))

    def _cubes(self, contexts: Floats) -> list[Cube]:
        """The cube that holds each context."""
        columns = contexts.shape[1]
        per_axis = self.per_axis(columns)
        places = np.floor(contexts * per_axis)
        # The last cube along an axis includes its upper end.
        places = np.minimum(places, per_axis - 1)
        numbers = places.astype(np.intp).tolist()
        return [tuple(place) for place in numbers]

    def _desirability(self, contexts: Floats, step: int, rng: Rng) -> Floats:
        n, dimension = contexts.shape
        plays = np.empty(n)
        mean = np.empty(n)
        for arm, cube in enumerate(self._cubes(contexts)):
            tally = self._tallies.get(cube, _NO_PLAYS)
            plays[arm] = tally.plays
            mean[arm] = tally.mean
        is_under_explored = plays <= _enough_plays(step, dimension)
        # Under-explored arms rank above all others, in random order.
        above_means = mean.max(initial=0.0) + 1.0
        random_order = rng.random(n)
        exploration = above_means + random_order
        return np.where(is_under_explored, exploration, mean)

    def _update_cells(self, contexts: Floats, rewards: Floats) -> None:
        cubes = self._cubes(contexts)
        for cube, reward in zip(cubes, rewards.tolist(), strict=True):
            tally = self._tallies.get(cube, _NO_PLAYS)
            plays = tally.plays + 1
            total = tally.total + reward
            self._tallies[cube] = _Tally(plays, total)

    def _memory(self) -> Mapping[str, Any]:
        cubes = sorted(self._tallies)
        tallies = [self._tallies[cube] for cube in cubes]
        plays = [tally.plays for tally in tallies]
        totals = [tally.total for tally in tallies]
        places = np.array(cubes, dtype=np.int64)
        shape = (len(cubes), self._columns)
        return {
            **super()._memory(),
            "cubes": places.reshape(shape),
            "plays": np.array(plays, dtype=np.int64),
            "totals": np.array(totals, dtype=np.float64),
        }

    def _remember(self, state: State) -> None:
        super()._remember(state)
        cubes = np.array(state.array("cubes"))
        plays = np.array(state.array("plays"))
        totals = np.array(state.array("totals"))
        has_types = (
            cubes.dtype == plays.dtype == np.int64 and totals.dtype == np.float64
        )
        has_shapes = (
            plays.ndim == 1
            and cubes.shape == (len(plays), self._columns)
            and totals.shape == plays.shape
        )
        # In this order: values can only be checked where types and shapes are right.
        is_sound = (
            has_types
            and has_shapes
            and bool(np.isfinite(totals).all())
            and plays.min(initial=1) >= 1
            and len(np.unique(cubes, axis=0)) == len(cubes)
            and cubes.min(initial=0) >= 0
            and cubes.max(initial=0) < self.per_axis(self._columns)
        )
        if not is_sound:
            raise StateError("this state is damaged: its cubes are impossible")
        keys = [tuple(place) for place in cubes.tolist()]
        tallies = map(_Tally, plays.tolist(), totals.tolist())
        self._tallies = dict(zip(keys, tallies, strict=True))


@register("policy", "cc-mab")
def cc_mab(model: Model, *, tuned_for: int | None = None) -> Hypercubes:
    """CC-MAB [chen2018contextual]: fixed cubes of contexts; explores rarely seen cubes first.

    Args:
        model: The learner's model of the problem.
        tuned_for: The number of rounds that sets the number of cubes; ``None``: the run's own.
    """
    horizon = model.horizon if tuned_for is None else tuned_for
    return Hypercubes(oracle=model.oracle, direction=model.direction, horizon=horizon)


def _enough_plays(step: int, dimension: int) -> float:
    """t^{2/(3+d)} ln t, the plays from which a cube counts as explored."""
    exponent = 2.0 / (3.0 + dimension)
    growth: float = step**exponent
    return growth * math.log(step)
