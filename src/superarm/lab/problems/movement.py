"""Problems in which moving to another action costs.

*Movement Penalized Bayesian Optimization with Application to Wind Energy Systems* (2022):
every round shows a context, one action is chosen, and its cost is f(action, context) plus
the distance from the previous action. Regret is eq. 3 with α = 1 and β = 0, against the
cheapest path through each episode; other α and β are measured as ``approximate_regret``.

``rho``: ρ, the weight of f against moving.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from superarm.core import Arms, Best, Decision, Direction, Feedback, Floats, Offer, Rng
from superarm.core.capabilities import REGRET, Metric
from superarm.core.errors import InputError
from superarm.core.inputs import (
    LARGEST,
    as_count,
    as_noise_std,
    as_number,
    as_positive,
    require_choice,
)
from superarm.core.registry import register
from superarm.core.streams import Streams, stream
from superarm.kernels import SquaredExponential
from superarm.models import Model
from superarm.models.worlds import MovementWorld, store
from superarm.movement import ActionMetric, OfflinePath, PointMetric, offline_optimum
from superarm.movement.carrying import Costs, expected_costs, start_of
from superarm.oracles import TopK

from .changing import ChangingArms

# Variances below this share of the largest one add less than a millionth to a draw.
_VISIBLE = 1e-12
_LEAST_RANGE = 1e-6  # of costs: below it they are mostly rounding


@dataclass(frozen=True, kw_only=True, eq=False)
class MovementProblem(ChangingArms, MovementWorld):
    """One action a round, which costs something, as does moving to it from the previous one.

    Positions mean the same action in every round. The first of every ``span`` rounds has a
    start of its own, and the offline optimum is that of such a span.

    Args:
        alpha: The factor α of the approximate regret (eq. 3); "theorem-1" is 1 + ln² n, the
            order of Theorem 1.
        beta: The constant β of the approximate regret (eq. 3), for every span.
    """

    direction: ClassVar[Direction] = "minimize"
    unit: ClassVar[str] = ""
    alpha: float | Literal["theorem-1"] = 1.0
    beta: float = 0.0
    # Cheapest ways by the number of their span, as far as they were needed.
    _cheapest_paths: dict[int, OfflinePath] = field(
        init=False, repr=False, default_factory=dict
    )

    @property
    def metric(self) -> ActionMetric:
        """The cost of moving, which learners know."""
        assert self.model.metric is not None
        return self.model.metric

    @property
    def competitive_ratio(self) -> float:
        """α as a number."""
        if isinstance(self.alpha, str):
            require_choice(self.alpha, "alpha", ("theorem-1",))
            log_n = float(np.log(len(self.metric)))
            return 1.0 + log_n**2
        return as_number(self.alpha, "alpha", 0.0, LARGEST)

    @property
    def _is_approximate(self) -> bool:
        """Whether α and β are others than those of the regret."""
        return self.alpha != 1.0 or self.beta != 0.0

    @property
    @abstractmethod
    def span(self) -> int:
        """Rounds that the offline optimum plans as one."""

    @abstractmethod
    def offer(self, step: int) -> Offer: ...

    def cheapest_path(self, step: int) -> tuple[OfflinePath, int]:
        """The cheapest path through the span of a round, and the round's position in it.

        Args:
            step: The round.
        """
        number, position = divmod(step - 1, self.span)
        if step > self.horizon:
            raise InputError(
                f"step is {step}, but the optimum is planned for {self.horizon} rounds"
            )
        if number not in self._cheapest_paths:
            self._cheapest_paths[number] = self._plan_span(number)
        return self._cheapest_paths[number], position

    def _plan_span(self, number: int) -> OfflinePath:
        """The offline optimum of a span."""
        first = number * self.span + 1
        stop = min(first + self.span, self.horizon + 1)
        offers = [self.offer(step) for step in range(first, stop)]
        means = [self.means(offer) for offer in offers]
        costs = np.stack(means)  # (span, n)
        start = start_of(offers[0])
        assert start is not None
        return offline_optimum(costs, self.metric, start)

    def best(self, offer: Offer) -> Best:
        """The cost of the offline optimum in a round.

        Args:
            offer: The round's offer.
        """
        path, position = self.cheapest_path(offer.step)
        cost = path.service[position] + path.movement[position]
        return Best(float(cost))

    def value(self, offer: Offer, decision: Decision) -> float:
        return sum(self._paid(offer, decision))

    def _paid(self, offer: Offer, decision: Decision) -> Costs:
        """What the decision costs, without noise."""
        if len(decision.positions) != 1:
            raise InputError(
                f"{len(decision.positions)} arms were chosen; take one action in a round"
            )
        action = int(decision.positions[0])
        means = self.means(offer)
        service = float(means[action])
        previous = start_of(offer)
        if previous is None:
            return Costs(service, 0.0)
        distance = self.metric.distances[previous, action]
        return Costs(service, float(distance))

    @property
    def measures(self) -> Mapping[str, Metric]:
        total = Metric("total cost", self.unit, better="down", headline=True)
        part = total._replace(headline=False)
        measures = {
            "total_cost": total,
            "service_cost": part._replace(label="service cost"),
            "movement_cost": part._replace(label="movement cost"),
            "expected_total_cost": part._replace(label="expected total cost"),
        }
        if self._is_approximate:
            label = f"regret with α = {self.competitive_ratio:.3g}, β = {self.beta:g}"
            measures["approximate_regret"] = part._replace(label=label)
        measures["regret"] = REGRET._replace(unit=self.unit)
        return measures

    def metrics(
        self, offer: Offer, decision: Decision, feedback: Feedback
    ) -> Mapping[str, float]:
        """Costs as they were paid, and as expected before the action was drawn (eqs. 16 to 18).

        Args:
            offer: The round's offer.
            decision: The round's decision.
            feedback: The round's feedback, which does not matter.
        """
        paid = self._paid(offer, decision)
        expected = expected_costs(decision, self.means(offer)) or paid
        metrics = {
            "total_cost": sum(paid),
            "service_cost": paid.service,
            "movement_cost": paid.movement,
            "expected_total_cost": sum(expected),
        }
        if self._is_approximate:
            _, position = self.cheapest_path(offer.step)
            allowed = self.competitive_ratio * self.best(offer).value
            if position == 0:  # eq. 3 has β once in an episode
                allowed += self.beta
            metrics["approximate_regret"] = sum(paid) - allowed
        return metrics

    def _check_regret(self) -> None:
        """Refuse an α or β that is no number, before anything runs."""
        as_number(self.beta, "beta", 0.0, LARGEST)
        _ = self.competitive_ratio  # checks α; an assert would not under python -O


@register("problem", "movement-field")
@dataclass(frozen=True, kw_only=True, eq=False)
class MovementField(MovementProblem):
    """A cost drawn from a Gaussian process over grid points and contexts; moving costs, too.

    Service costs are multiplied by ρ/(1 + ρ) and distances by 1/(1 + ρ).

    Args:
        rho: The weight ρ of service, relative to moving.
        side: Points of the grid along each side of the unit square.
        contexts: Number of contexts in (0, 1); each round draws one of them.
        lengthscale: How far apart arms are still similar: one number, or one for each column.
        noise_std: Standard deviation of the noise before costs are scaled.
        episode: Number of rounds of an episode, whose start is drawn.
        scaled: Whether costs are scaled to the range [0, 1], or only shifted to a minimum of 0.
    """

    rho: float = 1.0
    side: int = 20
    contexts: int = 40
    lengthscale: float = 0.2
    noise_std: float = 0.1
    episode: int = 20
    scaled: bool = True
    _arms: list[Arms] = field(init=False, repr=False)  # by context
    _costs: Floats = field(init=False, repr=False)  # (contexts, n)
    _noise_std: float = field(init=False, repr=False)
    _draws: Streams = field(init=False, repr=False)
    _starts: Streams = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rho = as_number(self.rho, "rho", 1e-40, 1e40)
        side = as_count(self.side, "side", 2, 100)
        count = as_count(self.contexts, "contexts", 1, 1000)
        lengthscale = as_positive(self.lengthscale, "lengthscale")
        as_count(self.episode, "episode")
        noise_std = as_noise_std(self.noise_std)
        kernel = SquaredExponential(lengthscale=lengthscale)
        contexts = stream(self.seed, "contexts", 0).random(count)
        contexts = np.sort(contexts)
        axis = np.linspace(0.0, 1.0, side)
        coordinates = np.meshgrid(axis, axis, indexing="ij")
        grid = np.stack(coordinates, axis=-1).reshape(-1, 2)
        rng = stream(self.seed, "truth", 0)
        normals = rng.standard_normal((count, side, side))
        draw = _draw_product(kernel, (contexts, axis, axis), normals)
        costs = draw.values
        lowest = costs.min()
        cost_range = float(np.ptp(costs))
        if cost_range < _LEAST_RANGE:
            raise InputError(
                f"lengthscale is {lengthscale:g}, so long that costs do not differ"
            )
        scale = rho / (1.0 + rho)
        if self.scaled:
            scale /= cost_range
        metric = PointMetric(points=grid, scale=1.0 / (1.0 + rho))
        model = Model(
            kernel=SquaredExponential(lengthscale=lengthscale, variance=scale**2),
            noise_variance=(noise_std * scale) ** 2,
            oracle=TopK(k=1),
            horizon=as_count(self.horizon, "horizon"),
            mean=-float(lowest) * scale,
            direction="minimize",
            norm_bound=draw.norm,
            noise_bound=noise_std * scale,
            gain={"name": "squared-exponential", "dimension": 3},
            most_arms=len(grid),
            metric=metric,
        )
        arms = []
        for context in contexts:
            column = np.full(len(grid), context)
            features = np.column_stack([grid, column])
            arms.append(Arms.numbered(features))
        store(
            self,
            model=model,
            _noise_std=noise_std * scale,
            interpretations=self._interpretations(rho),
            _arms=arms,
            _costs=(costs - lowest).reshape(count, -1) * scale,
            _draws=Streams(self.seed, "offer"),
            _starts=Streams(self.seed, "start"),
        )
        self._check_regret()

    def _interpretations(self, rho: float) -> Mapping[str, str]:
        shape = "shifted to a minimum of 0"
        if self.scaled:
            shape += " and scaled to the range [0, 1]"
        return {
            "truth": f"a draw of the Gaussian process on the grid and the contexts, {shape}; the "
            "learners assume a prior mean, a kernel and a noise changed to match",
            "weights": f"ρ = {rho:g}: service × {rho / (1 + rho):.3g}, distance × "
            f"{1 / (1 + rho):.3g}",
            "episodes": f"{self.episode} rounds each; every start is drawn, and so is the context "
            "of every round",
            "regret": "against the cheapest path through each episode, found with all costs known: "
            "eq. 3 with α = 1 and β = 0; in a single round it may be negative",
        }

    @property
    def span(self) -> int:
        return self.episode

    def offer(self, step: int) -> Offer:
        arms = self._arms[self._context(step)]
        number, position = divmod(step - 1, self.episode)
        if position > 0:
            return Offer(step=step, arms=arms)
        rng = self._starts.at(number)
        start = rng.integers(len(self.metric))
        previous_action = np.array([start])
        return Offer(step=step, arms=arms, previous_action=previous_action, begins=True)

    def _context(self, step: int) -> int:
        """The number of the context that a round draws."""
        return int(self._draws.at(step).integers(len(self._arms)))

    def noise(self, offer: Offer, rng: Rng) -> Floats:
        return rng.standard_normal(len(offer.arms)) * self._noise_std

    def means(self, offer: Offer) -> Floats:
        return np.asarray(self._costs[self._context(offer.step)])


class _Draw(NamedTuple):
    """A draw of a Gaussian process."""

    values: Floats  # (contexts, side, side)
    norm: float  # in the kernel's Hilbert space


def _draw_product(
    kernel: SquaredExponential, axes: Sequence[Floats], normals: Floats
) -> _Draw:
    """Turn standard normals into a draw on a grid: the kernel is a product over its axes."""
    values = normals
    variances = np.ones((1, 1, 1))  # of each direction of the product
    for position, points in enumerate(axes):
        root = _root(kernel, points)
        product = np.tensordot(root, values, axes=(1, position))
        values = np.moveaxis(product, 0, position)
        axis_variances = np.sum(root**2, axis=0)  # (length of the axis,)
        others = [axis for axis in range(3) if axis != position]
        variances = variances * np.expand_dims(axis_variances, others)
    # Directions that nobody could see are left out of the norm.
    visible = variances > _VISIBLE * variances.max()
    square = np.sum(normals[visible] ** 2)
    return _Draw(values, float(np.sqrt(square)))


def _root(kernel: SquaredExponential, points: Floats) -> Floats:
    """A square root of the covariance at points on a line, (n, n)."""
    column = points[:, None]
    K = kernel(column, column)
    values, vectors = np.linalg.eigh(K)
    values = np.maximum(values, 0.0)
    return np.asarray(vectors * np.sqrt(values))
