"""Roads of navigation problems, and the model that a traveller has of them.

=================  ====================================================================
``E``              energy of each edge by ``Vehicle()`` at constant speed: the prior mean
``σ_det``          its standard deviation over the edges
``k``              sσ₀²·k_G·k_f + (1 − s)σ₀²·k′_f, columns (edge, features), with
                   σ₀ = ``prior_scale``·σ_det and s = ``graph_share``, ½ unless given
``ς``              ``noise_scale``·σ_det
=================  ====================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from superarm.core import Arms, Direction, Floats
from superarm.core.capabilities import REGRET, AdditiveProblem, HasMetrics, Metric
from superarm.core.data_files import find
from superarm.core.errors import FileError, InputError
from superarm.core.inputs import as_count, as_number, as_positive, require_choice
from superarm.core.road_map import RoadMap
from superarm.kernels import GraphMatern, Kernel, Matern, Sum
from superarm.models.worlds import HasRoadMap, store
from superarm.oracles import ShortestPath, Trip
from superarm.roads.energy import Vehicle
from superarm.roads.energy.vehicle import Recuperation, RoadEnergy
from superarm.roads.models import RoadModel
from superarm.roads.networks import (
    LineGraph,
    RoadNetwork,
    generate_city,
    read_network,
    road_map,
    suggest_trip,
)
from superarm.roads.networks.elevation import at_one_height
from superarm.roads.networks.road import Uturns

REAL_NETWORKS = {"luxembourg": "luxembourg-roads", "monaco": "monaco-roads"}
"""Networks by name, and the data sets that hold them."""
TABLE_2 = Vehicle()
_UTURNS = {
    True: "",
    False: ", no U-turns",
    "dead-ends": ", U-turns where there is no other way on",
}
# Columns of :func:`road_arms`: the edge, then length, speed limit and incline.
_EDGE_COLUMN = 0
_FEATURE_COLUMNS = (1, 2, 3)
_FIRST_CONDITION = 4
_HEIGHT = 2  # column of ``RoadNetwork.junctions``
# Of solved kernel columns, shared by all policies on a network.
_CACHE_MEGABYTES = 256.0
MEASURES = {
    "regret": REGRET._replace(unit="Wh"),
    "true_energy": Metric("energy per trip", "Wh", "per round", "down", headline=True),
    "distinct_edges": Metric("distinct edges"),
}
"""What is measured on all roads."""

Normalisation = Literal["mean", "unit", "raw"]
Lengthscale = float | tuple[float, ...]


class FeatureKernels(NamedTuple):
    """How k_f and k′_f differ: "separate sets of lengthscale and outputscale parameters"."""

    near: Lengthscale | None = None
    """Lengthscales of k_f, in the product with k_G; by default those of the model."""
    alone: Lengthscale | None = None
    """Lengthscales of k′_f."""
    share: float = 0.5
    """Share of the prior variance that k_G·k_f has: σ_f² = s·σ₀² and σ′_f² = (1 − s)·σ₀²."""

    @property
    def description(self) -> str:
        """How a report describes them."""
        near = _in_words(self.near)
        alone = _in_words(self.alone)
        share = f"{100.0 * self.share:g} % of the prior variance"
        return f"k_G·k_f with {share} and lengthscales {near}; k′_f with the rest and lengthscales {alone}"


EQUAL_KERNELS = FeatureKernels()
"""One lengthscale, half of the prior variance each."""


def _in_words(scales: Lengthscale | None) -> str:
    if scales is None:
        return "as stated"
    if isinstance(scales, tuple):
        return ", ".join(f"{scale:g}" for scale in scales)
    return f"{scales:g}"


def as_feature_kernels(
    near: Any, alone: Any, share: Any, prefix: str = ""
) -> FeatureKernels:
    """Checked lengthscales of k_f and k′_f, each one number or one per feature, and the share.

    Args:
        near: Lengthscales of k_f, over length, speed limit and incline; ``None`` for the common one.
        alone: Lengthscales of k′_f, likewise.
        share: Share of the prior variance that k_G·k_f has, above 0 and below 1.
        prefix: Prefix of the parameters' names in an error.
    """
    part = as_number(share, f"{prefix}graph_share", 0.0, 1.0)
    if part in (0.0, 1.0):
        raise InputError(
            f"{prefix}graph_share must lie strictly between 0 and 1, got {part:g}"
        )
    near_scales = _as_lengthscales(near, f"{prefix}graph_lengthscales")
    alone_scales = _as_lengthscales(alone, f"{prefix}feature_lengthscales")
    return FeatureKernels(near_scales, alone_scales, part)


def _as_lengthscales(value: Any, name: str) -> Lengthscale | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple):
        return as_positive(value, name)
    if len(value) != len(_FEATURE_COLUMNS):
        raise InputError(
            f"{name} has {len(value)} entries; give one number, or three: for length, speed limit and "
            "incline"
        )
    scales = []
    for place, scale in enumerate(value):
        scales.append(as_positive(scale, f"{name}[{place}]"))
    return tuple(scales)


class Roads(NamedTuple):
    """A network as one vehicle class sees it, and where it came from."""

    graph: LineGraph
    description: str  # where it came from


class NamedTrip(NamedTuple):
    """A network by name or path, and the ids of a trip's first and last edge where they are named."""

    network: str
    start: str | None
    goal: str | None


ROUTES: Mapping[str, NamedTrip] = {
    "luxembourg-a": NamedTrip("luxembourg", "-31118#2", "--32646#1"),
    "luxembourg-b": NamedTrip("luxembourg", "-30436#5", "-30946#0"),
    "luxembourg-c": NamedTrip("luxembourg", "-30558", "-32888#0"),
    "luxembourg-d": NamedTrip("luxembourg", "-32166#0", "--32940#0"),
    "monaco-a": NamedTrip("monaco", "152903", "-153355#0"),
    "monaco-b": NamedTrip("monaco", "153569#1", "152459#1"),
}
"""The routes of the experiments. The pairs printed for Monaco exist only on Luxembourg: C and D."""


def load_roads(
    network: str,
    *,
    uturns: Uturns = True,
    edges: int = 2000,
    city_seed: int = 0,
    elevation: str | None = None,
    flat: bool = False,
    vehicle_class: str = "passenger",
    junctions: bool = False,
) -> Roads:
    """The roads of "luxembourg", "monaco", a generated "city", or of a file or folder.

    Luxembourg and Monaco are read from tables, or with ``junctions`` from their SUMO files. Roads are
    cached for other seeds and policies until their file changes.

    Args:
        network: A name, or the path of a network file or folder.
        uturns: Whether U-turns are allowed: true, false, or "dead-ends".
        edges: About how many edges a generated city has.
        city_seed: Which of the generated cities.
        elevation: An SRTM tile or a folder of them; their heights replace the network's.
        flat: Whether heights are left out.
        vehicle_class: Whose roads are used.
        junctions: Whether to read what lies within junctions, too.
    """
    _require_kind("flat", flat, bool, "true or false")
    _require_kind("network", network, str, "a name, or the path of a network file")
    if elevation is not None:
        what = "the path of a tile, or of a folder of them"
        _require_kind("elevation", elevation, str, what)
    if uturns != "dead-ends":
        _require_kind("uturns", uturns, bool, "true, false or 'dead-ends'")
    as_count(edges, "edges", least=1)
    as_count(city_seed, "city_seed", least=0)
    return _load_roads(
        network=network,
        vehicle_class=vehicle_class,
        uturns=uturns,
        edges=edges,
        city_seed=city_seed,
        elevation=elevation,
        flat=flat,
        junctions=junctions,
        network_stamps=_file_stamps(network),
        elevation_stamps=() if elevation is None else _file_stamps(elevation),
    )


def _require_kind(name: str, value: Any, kind: type, words: str) -> None:
    """Refuse a parameter of another kind, which may come from a file."""
    if not isinstance(value, kind) or value == "":
        raise InputError(f"{name} is {value!r}; it must be {words}")


class FileStamp(NamedTuple):
    """What changes when a file is written."""

    name: str
    modified: int  # ns
    size: int


def _file_stamps(path: str) -> tuple[FileStamp, ...]:
    """The stamps of the files of a network; none where there are no files."""
    place = Path(path)
    stamps = []
    try:
        files = [place]
        if place.is_dir():
            files = sorted(place.iterdir())
        for file in files:
            if file.is_file():
                stat = file.stat()
                stamp = FileStamp(file.name, stat.st_mtime_ns, stat.st_size)
                stamps.append(stamp)
    except OSError:
        return ()  # does not exist, or no file can have this name: reading it raises the error
    return tuple(stamps)


@lru_cache(maxsize=4)
def _load_roads(
    *,
    network: str,
    vehicle_class: str,
    uturns: Uturns,
    edges: int,
    city_seed: int,
    elevation: str | None,
    flat: bool,
    junctions: bool,
    network_stamps: tuple[FileStamp, ...],
    elevation_stamps: tuple[FileStamp, ...],  # so that new tiles are read again
) -> Roads:
    if network == "city":
        if elevation is not None:
            raise InputError(
                "a generated city is nowhere on Earth: leave elevation out"
            )
        city = generate_city(edges=edges, seed=city_seed)
        if flat:
            city = at_one_height(city)
        graph = city.line_graph(vehicle_class, uturns=uturns)
        return Roads(graph, f"a generated city (city seed {city_seed}), synthetic data")
    if network in REAL_NETWORKS:
        path = _data_file(network, junctions=junctions)
        description = f"the road network of {network.capitalize()}"
    else:
        path = Path(network)
        description = f"the road network in {path.name}"
        if not network_stamps:
            names = ", ".join([*REAL_NETWORKS, "city"])
            raise InputError(
                f"there is no network {network!r}; choose {names}, "
                "or give the path of a network file"
            )
    try:
        roads = read_network(path, elevation=elevation, flat=flat)
    except InputError as error:
        raise FileError(str(error)) from error
    if network in REAL_NETWORKS:
        roads = replace(roads, name=network.capitalize())
    graph = roads.line_graph(vehicle_class, uturns=uturns)
    return Roads(graph, description)


def _data_file(network: str, *, junctions: bool) -> Path:
    """The tables of a real network, or its SUMO file, which describes its junctions."""
    data_set = REAL_NETWORKS[network]
    tables = find(data_set).parent
    if junctions:
        return find(data_set, ending=".net.xml.xz")
    return tables


def trip_ends(graph: LineGraph, start: str | None, goal: str | None) -> Trip:
    """The numbers of the first and last edge; a far pair is chosen where none is named.

    Args:
        graph: The roads.
        start: Id of the first edge.
        goal: Id of the last edge.
    """
    if (start is None) != (goal is None):
        raise InputError("name both start and goal, or neither")
    if start is None or goal is None:
        start, goal = suggest_trip(graph)
    return Trip(start=graph.number(start), goal=graph.number(goal))


def is_level(network: RoadNetwork) -> bool:
    """Whether all junctions lie at one height.

    Args:
        network: The roads.
    """
    heights = network.junctions[:, _HEIGHT]
    return float(np.ptp(heights)) == 0.0


@lru_cache(maxsize=4)
def _oracle(graph: LineGraph) -> ShortestPath:
    return ShortestPath(successors=graph.turn_graph, on_no_path="empty")


@lru_cache(maxsize=4)
def road_arms(graph: LineGraph) -> Arms:
    """The edges as arms: one object for all seeds, so that posteriors recognise the offer.

    Args:
        graph: The roads.
    """
    numbers = np.arange(len(graph), dtype=np.float64)
    features = np.column_stack([numbers, graph.features])
    return Arms(ids=graph.ids, features=features)


@lru_cache(maxsize=2)
def road_kernel(
    graph: LineGraph,
    variance: float,
    *,
    lengthscale: Lengthscale = 1.0,
    normalisation: Normalisation = "mean",
    features: FeatureKernels = EQUAL_KERNELS,
) -> Kernel:
    """s·v·k_G·k_f + (1 − s)·v·k′_f of section 4.1: column 0 is the edge, columns 1 to 3 its features.

    Args:
        graph: The roads.
        variance: v, the prior variance of an edge, Wh².
        lengthscale: Lengthscale of k_f and k′_f, where ``features`` states none.
        normalisation: How k_G is scaled.
        features: Lengthscales of k_f and of k′_f, and the share s.
    """
    near_lengthscale = lengthscale if features.near is None else features.near
    alone_lengthscale = lengthscale if features.alone is None else features.alone
    near_variance = features.share * variance
    alone_variance = (1.0 - features.share) * variance
    graph_kernel = _graph_kernel(graph, normalisation)
    near = graph_kernel.clone_with_theta([np.log(near_variance)])
    alike = Matern(nu=2.5, lengthscale=near_lengthscale, columns=_FEATURE_COLUMNS)
    alone = Matern(
        nu=2.5,
        lengthscale=alone_lengthscale,
        columns=_FEATURE_COLUMNS,
        variance=alone_variance,
    )
    return near * alike + alone


@lru_cache(maxsize=2)
def _graph_kernel(graph: LineGraph, normalisation: Normalisation) -> GraphMatern:
    """Factorised once for all seeds, policies, vehicles and lengthscales on a network."""
    return GraphMatern(
        graph.turn_graph,
        nu=2,
        kappa=1.0,
        normalisation=normalisation,
        cache_megabytes=_CACHE_MEGABYTES,
    )


def road_model(
    graph: LineGraph,
    vehicle: Vehicle,
    *,
    horizon: int,
    lengthscale: Lengthscale = 1.0,
    normalisation: Normalisation = "mean",
    prior_scale: float = 0.25,
    noise_scale: float = 0.1,
    on_no_path: Literal["error", "empty"] = "error",
    features: FeatureKernels = EQUAL_KERNELS,
) -> RoadModel:
    """What a traveller knows: the energies of eq. 8, how wrong they may be, and the turns.

    Args:
        graph: The roads.
        vehicle: The vehicle whose energies are the prior mean.
        horizon: Number of rounds T.
        lengthscale: Lengthscale of k_f and k′_f, where ``features`` states none.
        normalisation: How k_G is scaled.
        prior_scale: Prior standard deviation, as a multiple of σ_det.
        noise_scale: Standard deviation of the noise, as a multiple of σ_det.
        on_no_path: Whether a trip without a route is an error, or an empty decision.
        features: Lengthscales of k_f and of k′_f, and the share s.
    """
    require_choice(normalisation, "normalisation", ("mean", "unit", "raw"))
    energies = RoadEnergy(
        vehicle=vehicle, length=graph.length, speed=graph.speed, rise=graph.rise
    )
    spread = float(energies.values.std())
    if spread == 0.0:
        raise InputError(
            f"all edges of {graph.network.name} cost the same, so the model has no scale"
        )
    # Within these limits they can be squared.
    as_number(prior_scale, "prior_scale", 1e-6, 1e6)
    as_number(noise_scale, "noise_scale", 1e-6, 1e6)
    prior_std = prior_scale * spread
    noise_std = noise_scale * spread
    kernel = road_kernel(
        graph,
        prior_std**2,
        lengthscale=lengthscale,
        normalisation=normalisation,
        features=features,
    )
    reduction = None
    if vehicle.recuperation == "multiply":
        reduction = vehicle.potential(graph.rise)
    return RoadModel(
        kernel=kernel,
        noise_variance=noise_std**2,
        noise_bound=noise_std,
        oracle=ShortestPath(successors=graph.turn_graph, on_no_path=on_no_path),
        horizon=horizon,
        mean=energies,
        energies=energies.values,
        arms=road_arms(graph).features,
        direction="minimize",
        most_arms=len(graph),
        reduction=reduction,
        costs={"length": graph.length, "travel_time": graph.travel_time},
        discrete_columns=(_EDGE_COLUMN,),
    )


def with_conditions(model: RoadModel, count: int) -> RoadModel:
    """The model where further columns change from trip to trip.

    They enter through k″ over length, speed, incline and conditions, as wide as the prior itself.

    Args:
        model: The model without conditions.
        count: How many conditions there are.
    """
    assert model.arms is not None
    end = _FIRST_CONDITION + count
    condition_columns = range(_FIRST_CONDITION, end)
    columns = (*_FEATURE_COLUMNS, *condition_columns)
    variances = model.kernel.diag(model.arms)
    variance = float(np.mean(variances))
    changing = Matern(nu=2.5, lengthscale=2.0, variance=variance, columns=columns)
    kernel = Sum(kernels=(model.kernel, changing))
    return replace(model, kernel=kernel, arms=None)


class RoadWorld(AdditiveProblem, HasMetrics, HasRoadMap):
    """Arms are roads, and what they cost is minimised."""

    direction: ClassVar[Direction] = "minimize"
    distinct: ClassVar[str] = "distinct_edges"
    roads: Roads

    @property
    def graph(self) -> LineGraph:
        return self.roads.graph


@dataclass(frozen=True, kw_only=True, eq=False)
class RoadProblem(RoadWorld):
    """Trips between two edges, again and again.

    Args:
        seed: Which random world.
        horizon: Number of rounds T.
        route: A route of the experiments, such as "monaco-a"; it sets network, start and goal.
        start: Id of the first edge; without it and ``goal``, two edges far apart are chosen.
        goal: Id of the last edge; without start and goal, two edges far apart are chosen.
        elevation: An SRTM tile, or a folder of them, whose heights replace those of the network.
        flat: Whether all roads are at one height, whatever the network says.
        mass: Mass of the vehicle that drives, kg.
        auxiliary_power: Power for heating and the like, W.
        rolling_resistance: Coefficient of rolling resistance; higher on wet or rough roads.
        air_drag: Drag coefficient of the vehicle.
        air_density: Air density, kg/m³; higher in the cold.
        lengthscale: Lengthscale of the feature kernels, in the model and in the truth where that is
            drawn.
        normalisation: How the variance of the graph kernel is scaled: mean, unit or raw.
        prior_scale: Prior standard deviation, as a multiple of the standard deviation of all edges'
            energies.
        noise_scale: Standard deviation of the noise, as a multiple of the standard deviation of all
            edges' energies.
        uturns: Whether U-turns are allowed: true, false, or "dead-ends": only where no other turn
            leads on, so that no edge is lost.
    """

    seed: int
    horizon: int
    route: str | None = None
    network: str | None = None
    start: str | None = None
    goal: str | None = None
    elevation: str | None = None
    flat: bool = False
    mass: float = TABLE_2.mass
    auxiliary_power: float = TABLE_2.auxiliary_power
    rolling_resistance: float = TABLE_2.rolling_resistance
    air_drag: float = TABLE_2.air_drag
    air_density: float = TABLE_2.air_density
    lengthscale: float = 1.0
    normalisation: Normalisation = "mean"
    prior_scale: float = 0.25
    noise_scale: float = 0.1
    uturns: Uturns = True
    model: RoadModel = field(init=False, repr=False)
    interpretations: Mapping[str, str] = field(init=False, repr=False)
    vehicle: Vehicle = field(init=False, repr=False)  # that drives
    roads: Roads = field(init=False, repr=False)
    trip: Trip = field(init=False, repr=False)
    _arms: Arms = field(init=False, repr=False)

    def _named(self, otherwise: str) -> NamedTrip:
        """The trip that the parameters name, on the network ``otherwise`` where they name none."""
        if self.route is None:
            network = otherwise if self.network is None else self.network
            return NamedTrip(network, self.start, self.goal)
        require_choice(self.route, "route", tuple(ROUTES))
        named = (self.network, self.start, self.goal)
        if named != (None, None, None):
            raise InputError(
                f"route {self.route!r} names network, start and goal; leave these out"
            )
        return ROUTES[self.route]

    def _own_vehicle(self, recuperation: Recuperation = "multiply") -> Vehicle:
        """The vehicle that drives."""
        return Vehicle(
            mass=self.mass,
            auxiliary_power=self.auxiliary_power,
            rolling_resistance=self.rolling_resistance,
            air_drag=self.air_drag,
            air_density=self.air_density,
            recuperation=recuperation,
        )

    def _set_up(
        self, roads: Roads, named: NamedTrip, own: Vehicle, **model_options: Any
    ) -> None:
        """Store roads, trip and model; ``own`` drives, and options override the model's own."""
        as_count(self.horizon, "horizon", least=1)
        options: dict[str, Any] = {
            "vehicle": own,
            "horizon": self.horizon,
            "lengthscale": self.lengthscale,
            "normalisation": self.normalisation,
            "prior_scale": self.prior_scale,
            "noise_scale": self.noise_scale,
        }
        model = road_model(roads.graph, **(options | model_options))
        trip = trip_ends(roads.graph, named.start, named.goal)
        store(
            self,
            model=model,
            vehicle=own,
            roads=roads,
            trip=trip,
            _arms=road_arms(roads.graph),
        )

    def _interpret_roads(self) -> dict[str, str]:
        """What a report explains about the roads and the trip."""
        graph = self.graph
        start = graph.ids[self.trip.start]
        goal = graph.ids[self.trip.goal]
        if self.flat:
            heights = "flat: heights are left out"
        elif is_level(graph.network):
            heights = "flat: the network has no heights"
        else:
            heights = (
                "energies use the heights of the junctions, unclipped; the kernel's incline is "
                "rise / max(length, distance, 1 m)"
            )
        return {
            "data": self.roads.description,
            "route": f"from edge {start} to edge {goal}",
            "network": f"passenger edges, largest strongly connected part: {len(graph)} edges, "
            f"{len(graph.turns)} turns{_UTURNS[self.uturns]}",
            "heights": heights,
        }

    def road_map(self) -> RoadMap:
        """The roads and the ends of the trip, to draw on."""
        return road_map(self.graph, self.trip.start, self.trip.goal)

    def cheapest(self, costs: Floats, trip: Trip | None = None) -> list[int]:
        """The route of least cost; empty where there is none.

        Args:
            costs: Cost of each road, (n,); roads of infinite cost are closed.
            trip: The trip; by default that of the problem.
        """
        rng = np.random.default_rng(0)  # the oracle does not use it
        oracle = _oracle(self.graph)
        route = oracle.select(np.negative(costs), trip or self.trip, rng)
        return [int(edge) for edge in route.positions]
