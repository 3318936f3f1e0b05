"""An electric vehicle travels between two roads again and again.

Section 4 of Bayesian Analysis of Combinatorial Gaussian Process Bandits (2025). An arm is a
road segment; a super arm is a route; the reward of an arm is the energy it costs, Wh, to be minimised.
The expected energies f are one draw from the traveller's own prior.

=================  ====================================================================
``f``              expected energy of each edge, (n,); negative where more is won back
``w``              E[max(0, N(f, ς²))], (n,): the rectified costs by which regret is measured
``Δh``             what each edge changes in the height potential, Wh
=================  ====================================================================

A sampled f has cycles of negative cost, so that "the best route under f" is undefined. Regret is
that of the rectified costs, as there. ``reduced_regret`` is the same with f − Δh in place of
f: it does not punish a route for going over a hill. ``true_energy`` is Σf of the route itself.

With ``switch_cost``, roads that were not part of the previous route cost more (``Switch``), and a round
is worth Σw plus that. The first trip pays nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from superarm.core import Arms, Best, Bools, Decision, Feedback, Floats, Offer, Rng
from superarm.core.caching import cached_property
from superarm.core.capabilities import HorizonFree, Metric
from superarm.core.errors import InfeasibleError, InputError
from superarm.core.inputs import as_number, as_positive, read_only, require_choice
from superarm.core.normal import rectified_mean
from superarm.core.registry import register
from superarm.core.streams import Streams, stream
from superarm.kernels import (
    LARGEST_DRAW,
    Constant,
    Kernel,
    Periodic,
    PriorRoot,
    Temporal,
    prior_root,
)
from superarm.models.worlds import GaussianNoise, HasScores, store
from superarm.movement import Switch
from superarm.movement.switching import previous_positions
from superarm.oracles import Trip
from superarm.rewards import total
from superarm.roads.energy.vehicle import Recuperation, Vehicle

from .conditions import TRIPS_PER_DAY, Conditions, RushHours
from .road_loading import load_roads
from .road_models import (
    EQUAL_KERNELS,
    FeatureKernels,
    as_feature_kernels,
    road_arms,
    road_kernel,
    with_conditions,
)
from .road_problem import MEASURES, RoadProblem

_TRIES = 100
_SWITCHING = {
    "route_changes": Metric("route changes", better="down"),
    "new_edges": Metric("new edges", better="down"),
    "switching_cost": Metric("switching cost per trip", "Wh", "per round", "down"),
    "total_cost": Metric("energy and switching per trip", "Wh", "per round", "down"),
}
"""What is measured where changing the route costs."""


class _Costs(NamedTuple):
    """One way of making costs positive, and its best route while all roads are open."""

    weights: Floats
    best: float


class _RoundCosts(NamedTuple):
    """The costs of a round."""

    rectified: _Costs
    reduced: _Costs | None


@register("problem", "navigation")
@dataclass(frozen=True, kw_only=True, eq=False)
class Navigation(RoadProblem, GaussianNoise, HasScores, HorizonFree):
    """Learn the route of least energy from ``start`` to ``goal``.

    Args:
        network: "luxembourg", "monaco", "city" (by default), or the path of a network file.
        edges: About how many edges a generated city has, 200 to 2,000,000.
        city_seed: Seed of the generated city.
        model_lengthscale: Lengthscale of the model alone, to make it deliberately wrong.
        graph_lengthscales: Lengthscales of k_f, in the product with the graph kernel: one number,
            or three for length, speed limit and incline; by default, ``lengthscale``.
        feature_lengthscales: Lengthscales of k′_f, which stands alone, likewise.
        graph_share: Share of the prior variance that k_G·k_f has; k′_f has the rest.
        model_graph_lengthscales: ``graph_lengthscales`` of the model alone.
        model_feature_lengthscales: ``feature_lengthscales`` of the model alone.
        model_graph_share: ``graph_share`` of the model alone.
        recuperation: Whether recovered energy is multiplied by the efficiency or divided by it, as
            eq. 8 of Bayesian Analysis of Combinatorial Gaussian Process Bandits (2025) is printed.
        closed_roads: Share of the roads that are closed in a round, redrawn each round.
        closed_turns: Share of the turns that are closed in a round.
        on_no_path: With "error", closures always leave a route; with "empty", a round without one
            is skipped.
        conditions: What changes from trip to trip: "congestion", "temperature", "load". Arms are
            then not a fixed set: choose the posterior "variational" or "streaming", which take
            features.
        rush_hours: How much rush hours change energies, in standard deviations of the prior; 0
            for no rush hours.
        day_to_day: ε: how fast the pattern of rush hours drifts from trip to trip, 0 to 1; a day
            has 24 trips.
        switch_cost: Wh for every edge that was not part of the previous route; by default, none.
        switch_per: Whether ``switch_cost`` is paid per edge or per metre of new edges.
    """

    network: str | None = None
    edges: int = 2000
    city_seed: int = 0
    model_lengthscale: float | None = None
    graph_lengthscales: float | Sequence[float] | None = None
    feature_lengthscales: float | Sequence[float] | None = None
    graph_share: float = 0.5
    model_graph_lengthscales: float | Sequence[float] | None = None
    model_feature_lengthscales: float | Sequence[float] | None = None
    model_graph_share: float | None = None
    recuperation: Recuperation = "multiply"
    closed_roads: float = 0.0
    closed_turns: float = 0.0
    on_no_path: Literal["error", "empty"] = "error"
    conditions: Sequence[str] = ()
    rush_hours: float = 0.0
    day_to_day: float = 0.002
    switch_cost: float | None = None
    switch_per: Literal["edge", "metre"] = "edge"
    noise_std: float = field(init=False, repr=False)
    _closures: Streams = field(init=False, repr=False)
    _conditions: Conditions | None = field(init=False, repr=False)
    # The costs of the latest round; of all rounds where nothing changes.
    _round_costs: dict[int, _RoundCosts] = field(
        init=False, repr=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        _require_some_open(self.closed_roads, "closed_roads")
        _require_some_open(self.closed_turns, "closed_turns")
        require_choice(self.on_no_path, "on_no_path", ("error", "empty"))
        vehicle = self._own_vehicle(self.recuperation)
        named = self._named(otherwise="city")
        roads = load_roads(
            named.network,
            uturns=self.uturns,
            edges=self.edges,
            city_seed=self.city_seed,
            elevation=self.elevation,
            flat=self.flat,
        )
        lengthscale = as_positive(self.lengthscale, "lengthscale")
        if self.model_lengthscale is not None:
            lengthscale = self.model_lengthscale
        self._set_up(
            roads,
            named,
            vehicle,
            on_no_path=self.on_no_path,
            lengthscale=as_positive(lengthscale, "model_lengthscale"),
            features=self._model_features,
        )
        switching = self._switch()
        if switching is not None:
            store(self, model=replace(self.model, switching=switching))
        conditions = self._make_conditions(vehicle)
        if conditions is not None:
            store(self, model=with_conditions(self.model, len(self.conditions)))
        strength = as_number(self.rush_hours, "rush_hours", 0.0, 100.0)
        as_number(self.day_to_day, "day_to_day", 0.0, 1.0)
        if strength:
            store(self, model=replace(self.model, drift=self._drift()))
        store(self, _closures=Streams(self.seed, "offer"), _conditions=conditions)
        store(
            self,
            interpretations=self._interpret(),
            noise_std=float(np.sqrt(self.model.noise_variance)),
        )

    def _switch(self) -> Switch | None:
        """What new roads cost; ``None`` where they cost nothing."""
        require_choice(self.switch_per, "switch_per", ("edge", "metre"))
        if self.switch_cost is None:
            return None
        cost = as_number(self.switch_cost, "switch_cost", 0.0)
        weights = None
        if self.switch_per == "metre":
            weights = self.graph.length
        return Switch(cost=cost, weights=weights)

    def _make_conditions(self, vehicle: Vehicle) -> Conditions | None:
        names: object = self.conditions
        if isinstance(names, str) or not isinstance(names, Sequence):
            raise InputError(
                f'conditions is {names!r}; give a list, such as [["load"]] with --set'
            )
        if not names:
            return None
        return Conditions(
            names=names, graph=self.graph, vehicle=vehicle, seed=self.seed
        )

    def _drift(self) -> Kernel:
        """What an informed traveller expects of rush hours: half lasts, half returns every day."""
        peaks = Periodic(period=float(TRIPS_PER_DAY), lengthscale=1.0, variance=0.5)
        return Constant(variance=0.5) + Temporal(epsilon=self.day_to_day) * peaks

    @property
    def _true_features(self) -> FeatureKernels:
        return as_feature_kernels(
            self.graph_lengthscales, self.feature_lengthscales, self.graph_share
        )

    @property
    def _model_features(self) -> FeatureKernels:
        """The model's k_f and k′_f: by default the truth."""
        near: Any = self.model_graph_lengthscales
        features_only: Any = self.model_feature_lengthscales
        share: Any = self.model_graph_share
        true = self._true_features
        if near is None:
            near = true.near
        if features_only is None:
            features_only = true.features_only
        if share is None:
            share = true.share
        return as_feature_kernels(near, features_only, share, prefix="model_")

    # The truth is drawn when it is first asked for: its factor takes seconds on a large network.

    @cached_property
    def _root(self) -> PriorRoot:
        graph = self.graph
        # The model's own object, unless its lengthscale is another.
        kernel = road_kernel(
            graph,
            self._prior_std**2,
            lengthscale=float(self.lengthscale),
            normalisation=self.normalisation,
            features=self._true_features,
        )
        advice = "use a smaller network, or drive in SUMO (navigation/sumo)"
        return prior_root(kernel, road_arms(graph).features, advice)

    @property
    def _prior_std(self) -> float:
        """σ₀, Wh."""
        spread = float(np.std(self.model.energies))  # σ_det
        return float(self.prior_scale) * spread

    @property
    def known_costs(self) -> Mapping[str, Floats]:
        """Known costs of every road by name, (n,) each: "energy", "travel_time", "length"."""
        return {"energy": self.model.energies, **self.model.costs}

    @cached_property
    def energies(self) -> Floats:
        """f, (n,), without what changes from trip to trip."""
        rng = stream(self.seed, "truth", 0)
        root = self._root
        normals = rng.standard_normal((1, root.normals))
        draw = root.times(normals)[0]
        return read_only(draw + self.model.energies)

    @cached_property
    def _rush(self) -> RushHours | None:
        if not self.rush_hours:
            return None
        speed = self.graph.speed
        fast = self._prior_std * speed / speed.max()
        return RushHours(
            root=self._root, fast=fast, epsilon=self.day_to_day, seed=self.seed
        )

    def _energies(self, step: int) -> Floats:
        """f in a round, (n,)."""
        energies = self.energies
        if self._conditions is not None:
            energies = energies + self._conditions.extra(step)
        if self._rush is not None:
            energies = energies + self.rush_hours * self._rush.extra(step)
        return energies

    def _costs_of(self, step: int) -> _RoundCosts:
        """Rectified and reduced costs of a round; the same for all where nothing changes."""
        changes = self._conditions is not None or bool(self.rush_hours)
        key = step if changes else 0
        known = self._round_costs.get(key)
        if known is not None:
            return known
        energies = self._energies(step)
        rectified = self._costs(energies)
        reduction = self.model.reduction
        reduced = None
        if reduction is not None:
            reduced = self._costs(energies - reduction)
        costs = _RoundCosts(rectified, reduced)
        self._round_costs.clear()
        self._round_costs[key] = costs
        return costs

    def _interpret(self) -> dict[str, str]:
        """What a report explains about the problem."""
        recuperation = "negative work is divided by η⁻, as eq. 8 reads"
        if self.recuperation == "multiply":
            recuperation = "negative work is multiplied by η⁻"
        texts = {
            **self._interpret_roads(),
            "recuperation": recuperation,
            "kernel": f"prior variance half k_G·k_f and half k′_f; graph Matérn ν = 2, κ = 1, "
            f"normalised: {self.normalisation}; lengthscale {self.lengthscale:g}",
            "regret": "rectified with s = ς: E[max(0, N(f, ς²))] along the route",
        }
        features = self._true_features
        believed = self._model_features
        if features != EQUAL_KERNELS:
            texts["kernel"] = (
                f"{features.description}; graph Matérn ν = 2, κ = 1, normalised: "
                f"{self.normalisation}; lengthscale {self.lengthscale:g} where none is stated"
            )
        if believed != features:
            texts["model"] = f"other kernels than the truth: {believed.description}"
        if len(self.graph) > LARGEST_DRAW:
            # Finding the tolerance takes seconds, but inexact draws must be reported.
            texts["truth"] = (
                "drawn by sparse solves: variances are those of the kernel, covariances are off by at "
                f"most {self._root.tolerance:.1%} of the largest variance"
            )
        return texts | self._interpret_changes()

    def _interpret_changes(self) -> dict[str, str]:
        """What a report explains about the changes from trip to trip."""
        texts = {}
        if self.closed_roads or self.closed_turns:
            closures = (
                f"each round {self.closed_roads:.1%} of the roads and {self.closed_turns:.1%} of the "
                "turns are closed"
            )
            if self.on_no_path == "error":
                closures += ", always leaving a route"
            texts["closures"] = closures
        if self.rush_hours:
            texts["rush hours"] = (
                f"peaks at 8:00 and 17:00, with {TRIPS_PER_DAY} trips a day; energies change by "
                f"{self.rush_hours:g} times the prior's standard deviation, most on fast roads; the "
                f"pattern drifts by ε = {self.day_to_day:g} a trip"
            )
        if self.switch_cost is not None:
            texts["switching"] = (
                f"{self.switch_cost:g} Wh for every {self.switch_per} of a route that was not part of "
                "the previous one; the first trip pays nothing. Regret counts it for the policy, but "
                "not for the best route of each round, with which it compares: no sequence of routes "
                "costs less. Where all rounds are alike, that route never changes, and pays nothing"
            )
        if self.conditions:
            texts["conditions"] = (
                f"{', '.join(self.conditions)} change from trip to trip"
            )
        return texts

    @property
    def measures(self) -> Mapping[str, Metric]:
        reduced_regret = Metric("reduced regret", "Wh", better="down")
        measures = {**MEASURES, "reduced_regret": reduced_regret}
        if self.switch_cost is not None:
            measures |= _SWITCHING
        return measures

    # --- rounds ----------------------------------------------------------------------------

    def offer(self, step: int) -> Offer:
        arms = self._arms
        if self._conditions is not None:
            columns = self._conditions.columns(step)
            features = np.hstack([arms.features, columns])
            arms = Arms(ids=arms.ids, features=features)
        if not (self.closed_roads or self.closed_turns):
            return Offer(step=step, arms=arms, structure=self.trip)
        rng = self._closures.at(step)
        for _ in range(_TRIES):
            available, trip = self._draw_closures(rng)
            lengths = np.where(available, self.graph.length, np.inf)
            if self.on_no_path == "empty" or self.cheapest(lengths, trip):
                return Offer(step=step, arms=arms, available=available, structure=trip)
        raise InfeasibleError(
            f"in {_TRIES} tries no route was left with {self.closed_roads:.0%} of the roads and "
            f"{self.closed_turns:.0%} of the turns closed; close fewer"
        )

    def _draw_closures(self, rng: Rng) -> tuple[Bools, Trip]:
        """Which roads are open, (n,), and the trip without the turns that are closed."""
        start = self.trip.start
        goal = self.trip.goal
        road_draws = rng.random(len(self._arms))
        available = road_draws >= self.closed_roads
        available[[start, goal]] = True
        turn_draws = rng.random(len(self.graph.turns))
        is_closed = turn_draws < self.closed_turns
        closed_turns = np.flatnonzero(is_closed)
        trip = Trip(start=start, goal=goal, closed_turns=closed_turns)
        return available, trip

    def means(self, offer: Offer) -> Floats:
        return self._energies(offer.step)

    truth = means

    def scores(self, offer: Offer) -> Floats:
        """Minus the rectified costs, by which regret is measured."""
        return np.negative(self._costs_of(offer.step).rectified.weights)

    def value(self, offer: Offer, decision: Decision) -> float:
        weights = self._costs_of(offer.step).rectified.weights
        cost = total(weights[decision.positions])
        return cost + self._switching_cost(offer, decision)

    def _switching_cost(self, offer: Offer, decision: Decision) -> float:
        """What the decision costs because of the previous route."""
        switch = self.model.switching
        if switch is None:
            return 0.0
        costs = switch.costs(offer)
        return total(costs[decision.positions])

    def best(self, offer: Offer) -> Best:
        """The best route of the round by itself, without switching costs."""
        costs = self._costs_of(offer.step).rectified
        return Best(self._best(costs, offer))

    def metrics(
        self, offer: Offer, decision: Decision, feedback: Feedback
    ) -> Mapping[str, float]:
        positions = decision.positions
        energy = float(self.means(offer)[positions].sum())
        metrics = {"true_energy": energy}
        reduced = self._costs_of(offer.step).reduced
        if reduced is not None:
            cost = total(reduced.weights[positions])
            metrics["reduced_regret"] = cost - self._best(reduced, offer)
        if self.switch_cost is not None:
            previous = positions
            if offer.previous_action is not None:
                previous = previous_positions(offer)
            has_changed = not np.array_equal(positions, previous)
            new_edges = np.setdiff1d(positions, previous)
            switching_cost = self._switching_cost(offer, decision)
            metrics["route_changes"] = float(has_changed)
            metrics["new_edges"] = float(len(new_edges))
            metrics["switching_cost"] = switching_cost
            metrics["total_cost"] = energy + switching_cost
        return metrics

    # --- costs and routes ------------------------------------------------------------------

    def _costs(self, energies: Floats) -> _Costs:
        weights = rectified_mean(energies, self.noise_std)
        route = self.cheapest(weights)
        return _Costs(weights, total(weights[route]))

    def _best(self, costs: _Costs, offer: Offer) -> float:
        trip = offer.structure
        assert isinstance(trip, Trip)
        if offer.available is None and trip.closed_turns is None:
            return costs.best
        weights = costs.weights
        if offer.available is not None:
            weights = np.where(offer.available, weights, np.inf)
        route = self.cheapest(weights, trip)
        return total(costs.weights[route])


def _require_some_open(share: float, name: str) -> None:
    """Refuse a share of closures that leaves nothing open."""
    if as_number(share, name, 0.0, 1.0) == 1.0:
        raise InputError(f"{name} is 1, but some must stay open")
