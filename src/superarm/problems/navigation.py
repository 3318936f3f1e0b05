"""An electric vehicle travels between two roads again and again: section 4 of paper 000.

An arm is a road segment; a super arm is a route; the reward of an arm is the energy it costs,
Wh, to be minimised. The expected energies f are one draw from the traveller's own prior.

=================  ====================================================================
``f``              expected energy of each edge, (n,); negative where more is won back
``w``              E[max(0, N(f, ς²))], (n,): the rectified costs by which regret is measured
``Δh``             what each edge changes in the height potential, Wh
=================  ====================================================================

A sampled f has cycles of negative cost, so that "the best route under f" is undefined. Regret is
that of the rectified costs, as in the paper. ``reduced_regret`` is the same with f − Δh in place of
f: it does not punish a route for going over a hill. ``true_energy`` is Σf of the route itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from superarm.capabilities import AdditiveProblem, Measured, Metric
from superarm.core import Arms, Best, Decision, Direction, Feedback, Floats, Offer
from superarm.errors import InfeasibleError, InputError
from superarm.inputs import as_count, as_number, as_positive, require_choice
from superarm.kernels import prior_root
from superarm.models import RoadModel
from superarm.networks import RoadMap, Vehicle
from superarm.networks.energy import Recuperation
from superarm.normal import rectified_mean
from superarm.oracles import Trip
from superarm.registry import register
from superarm.rewards import total
from superarm.streams import Streams, stream

from .base import Mapped, Scored
from .conditions import Conditions
from .road_models import (
    MEASURES,
    OF_THE_VEHICLE,
    TABLE_2,
    Normalisation,
    Roads,
    cheapest,
    load_roads,
    named_trip,
    road_arms,
    road_kernel,
    road_model,
    told_of,
    trip_ends,
    with_conditions,
)

_TRIES = 100


class _Costs(NamedTuple):
    """One way of making costs positive, and its best route while all roads are open."""

    weights: Floats
    best: float


@register("problem", "navigation")
@dataclass(frozen=True, kw_only=True, eq=False)
class Navigation(AdditiveProblem, Measured, Scored, Mapped):
    """Learn the route of least energy from ``start`` to ``goal``."""

    seed: int
    horizon: int
    route: str | None = None
    """A route of the experiments, such as "monaco-a": names network, start and goal."""
    network: str | None = None
    """"luxembourg", "monaco", "city" (where nothing is named), or the path of a network file."""
    start: str | None = None
    """Id of the first edge; without it and ``goal`` a far pair is chosen."""
    goal: str | None = None
    edges: int = 2000
    """Size of a generated city."""
    city_seed: int = 0
    elevation: str | None = None
    """An SRTM tile, or a folder of them, whose heights replace those of the network."""
    lengthscale: float = 1.0
    """Of the feature kernels, of the truth and of the model alike."""
    model_lengthscale: float | None = None
    """Of the model alone, where it shall be wrong."""
    normalisation: Normalisation = "mean"
    """How the graph kernel's variance is scaled: "mean", "unit" or "raw"."""
    prior_scale: float = 0.25
    noise_scale: float = 0.1
    mass: float = TABLE_2.mass
    """kg, of the vehicle; this and what follows are those of Table 2 unless given."""
    auxiliary_power: float = TABLE_2.auxiliary_power
    """W"""
    rolling_resistance: float = TABLE_2.rolling_resistance
    air_drag: float = TABLE_2.air_drag
    air_density: float = TABLE_2.air_density
    """kg/m³"""
    recuperation: Recuperation = "multiply"
    uturns: bool = True
    closed_roads: float = 0.0
    """Share of the roads that are closed in a round, redrawn each round."""
    closed_turns: float = 0.0
    """Share of the turns that cannot be taken in a round."""
    on_no_path: Literal["error", "empty"] = "error"
    """Whether closures always leave a route, or a round without one is waited out."""
    conditions: Sequence[str] = ()
    """What changes from trip to trip: "congestion", "temperature", "load". Arms are then no
    fixed set: choose a posterior that takes features, "variational" or "streaming"."""
    model: RoadModel = field(init=False, repr=False)
    settled: Mapping[str, str] = field(init=False, repr=False)
    vehicle: Vehicle = field(init=False, repr=False)
    roads: Roads = field(init=False, repr=False)
    trip: Trip = field(init=False, repr=False)
    _arms: Arms = field(init=False, repr=False)
    _closures: Streams = field(init=False, repr=False)
    _conditions: Conditions | None = field(init=False, repr=False)
    _kept: dict[int, tuple[_Costs, _Costs | None]] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        as_count(self.horizon, "horizon", least=1)
        for name in ("closed_roads", "closed_turns"):
            if as_number(getattr(self, name), name, 0.0, 1.0) == 1.0:
                raise InputError(f"{name} is 1, but some must stay open")
        require_choice(self.normalisation, "normalisation", ("mean", "unit", "raw"))
        require_choice(self.on_no_path, "on_no_path", ("error", "empty"))
        own = {name: getattr(self, name) for name in OF_THE_VEHICLE}
        vehicle = Vehicle(**own, recuperation=self.recuperation)
        named = named_trip(self.route, self.network, self.start, self.goal, otherwise="city")
        roads = load_roads(
            named.network,
            uturns=self.uturns,
            edges=self.edges,
            city_seed=self.city_seed,
            elevation=self.elevation,
        )
        graph = roads.graph
        trip = trip_ends(graph, named.start, named.goal)
        lengthscale = as_positive(self.lengthscale, "lengthscale")
        known = lengthscale if self.model_lengthscale is None else self.model_lengthscale
        model = road_model(
            graph,
            vehicle,
            horizon=self.horizon,
            lengthscale=as_positive(known, "model_lengthscale"),
            normalisation=self.normalisation,
            prior_scale=self.prior_scale,
            noise_scale=self.noise_scale,
            on_no_path=self.on_no_path,
        )
        conditions = None
        if isinstance(self.conditions, str) or not isinstance(self.conditions, Sequence):
            raise InputError(
                f'conditions is {self.conditions!r}; give a list, such as [["load"]] with --set'
            )
        if self.conditions:
            conditions = Conditions(names=self.conditions, graph=graph, vehicle=vehicle, seed=self.seed)
            model = with_conditions(model, len(self.conditions))
        for name, value in {
            "model": model,
            "vehicle": vehicle,
            "roads": roads,
            "trip": trip,
            "_arms": road_arms(graph),
            "_closures": Streams(self.seed, "offer"),
            "_conditions": conditions,
        }.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "settled", self._settled())

    # The truth is drawn when it is first asked for: its factor takes seconds on a large network.

    @cached_property
    def energies(self) -> Floats:
        """f, (n,)"""
        graph = self.roads.graph
        spread = float(np.std(self.model.energies))
        kernel = road_kernel(  # the model's own object, unless its lengthscale is another
            graph,
            (float(self.prior_scale) * spread) ** 2,
            lengthscale=float(self.lengthscale),
            normalisation=self.normalisation,
        )
        root = prior_root(
            kernel,
            road_arms(graph).features,
            "use a smaller network, or drive in SUMO (navigation/sumo)",
        )
        normals = stream(self.seed, "truth", 0).standard_normal((1, len(graph)))
        energies: Floats = root.times(normals)[0] + self.model.energies
        energies.flags.writeable = False
        return energies

    def _rectified(self, step: int) -> _Costs:
        return self._costs_of(step)[0]

    def _reduced(self, step: int) -> _Costs | None:
        return self._costs_of(step)[1]

    def _costs_of(self, step: int) -> tuple[_Costs, _Costs | None]:
        """Rectified and reduced costs of a round; the same for all where nothing changes."""
        key = 0 if self._conditions is None else step
        known = self._kept.get(key)
        if known is not None:
            return known
        extra = 0.0 if self._conditions is None else self._conditions.extra(step)
        energies, reduction = self.energies + extra, self.model.reduction
        reduced = None if reduction is None else self._costs(energies - reduction)
        made = self._costs(energies), reduced
        self._kept.clear()
        self._kept[key] = made
        return made

    def _settled(self) -> dict[str, str]:
        told = {
            **told_of(self.roads, self.trip, uturns=self.uturns),
            "recuperation": "negative work is multiplied by η⁻"
            if self.recuperation == "multiply"
            else "negative work is divided by η⁻, as eq. 8 reads",
            "kernel": f"prior variance half k_G·k_f and half k′_f; graph Matérn ν = 2, κ = 1, "
            f"normalised: {self.normalisation}; lengthscale {self.lengthscale:g}",
            "regret": "rectified with s = ς: E[max(0, N(f, ς²))] along the route",
        }
        if self.closed_roads or self.closed_turns:
            told["closures"] = (
                f"each round {self.closed_roads:.1%} of the roads and {self.closed_turns:.1%} of the "
                "turns are closed" + (", always leaving a route" if self.on_no_path == "error" else "")
            )
        if self.conditions:
            told["conditions"] = f"{', '.join(self.conditions)} change from trip to trip"
        return told

    @property
    def direction(self) -> Direction:
        return "minimize"

    @property
    def distinct(self) -> str:
        return "distinct_edges"

    @property
    def measures(self) -> Mapping[str, Metric]:
        return {**MEASURES, "reduced_regret": Metric("reduced regret", "Wh", better="down")}

    # --- rounds ----------------------------------------------------------------------------

    def offer(self, step: int) -> Offer:
        arms = self._arms
        if self._conditions is not None:
            features = np.hstack([arms.features, self._conditions.columns(step)])
            arms = Arms(ids=arms.ids, features=features)
        if not (self.closed_roads or self.closed_turns):
            return Offer(step=step, arms=arms, structure=self.trip)
        rng = self._closures.at(step)
        for _ in range(_TRIES):
            available = rng.random(len(self._arms)) >= self.closed_roads
            available[[self.trip.start, self.trip.goal]] = True
            shut = np.flatnonzero(rng.random(len(self.roads.graph.turns)) < self.closed_turns)
            trip = Trip(start=self.trip.start, goal=self.trip.goal, closed_turns=shut)
            lengths = np.where(available, self.roads.graph.length, np.inf)
            if self.on_no_path == "empty" or cheapest(self.roads.graph, trip, lengths):
                return Offer(step=step, arms=arms, available=available, structure=trip)
        raise InfeasibleError(
            f"{_TRIES} times there was no route left with {self.closed_roads:.0%} of the roads and "
            f"{self.closed_turns:.0%} of the turns closed; close fewer"
        )

    def means(self, offer: Offer) -> Floats:
        if self._conditions is None:
            return self.energies
        changed: Floats = self.energies + self._conditions.extra(offer.step)
        return changed

    def truth(self, offer: Offer) -> Floats:
        return self.means(offer)

    def scores(self, offer: Offer) -> Floats:
        """Minus the rectified costs, by which regret is measured."""
        return np.negative(self._rectified(offer.step).weights)

    def noise(self, offer: Offer, rng: np.random.Generator) -> Floats:
        draws = rng.standard_normal(len(offer.arms))
        draws *= np.sqrt(self.model.noise_variance)
        return draws

    def feedback(self, offer: Offer, decision: Decision, noise: Floats) -> Feedback:
        positions = decision.positions
        return Feedback(positions=positions, rewards=self.means(offer)[positions] + noise[positions])

    def value(self, offer: Offer, decision: Decision) -> float:
        return total(self._rectified(offer.step).weights[decision.positions])

    def best(self, offer: Offer) -> Best:
        return Best(self._best(self._rectified(offer.step), offer))

    def metrics(self, offer: Offer, decision: Decision, feedback: Feedback) -> Mapping[str, float]:
        positions = decision.positions
        energy = float(self.means(offer)[positions].sum())
        reduced = self._reduced(offer.step)
        if reduced is None:
            return {"true_energy": energy}
        regret = total(reduced.weights[positions]) - self._best(reduced, offer)
        return {"true_energy": energy, "reduced_regret": regret}

    # --- costs and routes ------------------------------------------------------------------

    def _costs(self, energies: Floats) -> _Costs:
        weights = rectified_mean(energies, float(np.sqrt(self.model.noise_variance)))
        route = cheapest(self.roads.graph, self.trip, weights)
        return _Costs(weights, total(weights[route]))

    def _best(self, costs: _Costs, offer: Offer) -> float:
        trip = offer.structure
        assert isinstance(trip, Trip)
        if offer.available is None and trip.closed_turns is None:
            return costs.best
        is_open = True if offer.available is None else offer.available
        route = cheapest(self.roads.graph, trip, np.where(is_open, costs.weights, np.inf))
        return total(costs.weights[route])

    def road_map(self) -> RoadMap:
        """The roads and the ends of the trip, to draw on."""
        return RoadMap.of(self.roads.graph, self.trip.start, self.trip.goal)
