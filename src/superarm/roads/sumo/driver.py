"""Trips driven in SUMO: how a car really moves along a route.

=================  =====================================================================
``k``              edges of a route
``moment``         a saved state of the traffic, or a time of departure on empty roads, at which
                   a trip begins
=================  =====================================================================

*What a drive is.* Speeds, slopes and places, step by step (``drive``, which also computes what they
cost a vehicle). Seconds are booked to the edge the car is on, and inside a junction to the edge just
left (``edge_times``). The car departs at the beginning of the first edge with the speed allowed there
and leaves the last one without braking for its end. Neither the energy of that first speed nor of the
last is booked. SUMO removes the car in the step in which it arrives: that fraction of a step is booked
at the rate of the step before.

*The same trip costs the same, whatever was driven before.* A saved state does not hold all that
SUMO remembers, such as when lanes were last changed on an edge. Therefore no trip is driven in a
simulation that has driven: the network is loaded once and never moves. Every trip takes place in a
copy of the process (``isolation``), where the traffic of its moment is loaded, and ends with it. Where
processes cannot be copied (Windows), the network is loaded anew for every trip, which takes longer
and gives the same. Traffic-actuated signals run as fixed programs, for the same reason.

*No trains.* libsumo ends by a fault (signal 11) when it loads the state of a network with railway
signals or level crossings. No train ever comes: these junctions become plain ones, open to cars
(``plain_network``).
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import weakref
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, redirect_stdout
from dataclasses import asdict
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from superarm.core import Floats
from superarm.core.errors import ConflictError, InputError, require_extra
from superarm.core.inputs import as_number
from superarm.roads.networks._xml import require_file

from .drive import Drive
from .drive_cache import DriveCache
from .isolation import can_copy, in_a_copy
from .passable import SumoRoads
from .plain_network import plain_text
from .recording import Recording
from .traffic import Departures, Traffic

LONGEST_STEP = 0.25
"""Seconds; with longer steps the energy of braking and accelerating is off by up to a percent."""
# Seconds after which a car that is stuck is taken away; a trip then ends.
_TELEPORT_AFTER = 300.0
# Seconds until which signals may run before a trip begins on empty roads.
_LATEST = 86_400.0
# Raise it when trips are driven, or drives written, in another way.
_DRIVE_VERSION = 1
# The id of the trip's car and route, and the types of its car and of other cars.
_TRIP = "trip"
_DRIVEN = "driven"
_OTHER = "other"


class _Moment(NamedTuple):
    """A state in which trips begin."""

    file: str | None  # ``None``: the network as it is when loaded, without any car
    time: float
    departed: int  # how many background cars had departed


class Driver(AbstractContextManager["Driver"]):
    """Drives over one network, trip after trip.

    libsumo holds one simulation per process. Several drivers may exist: whoever drives takes the
    simulation over, which costs loading the network and changes no result. ::

        with Driver("city.net.xml.gz") as driver:
            drive = driver.drive(["a", "b", "c"])
        drive.energies(Vehicle(mass=2200.0))

    Args:
        network_file: A ``.net.xml`` file, plain or packed.
        step: Seconds of a time step, at most ``LONGEST_STEP``.
        traffic: Other cars; by default roads are empty.
        seed: Of the other cars.
        departures: Seconds at which trips may begin on empty roads, one for each moment, so that
            signals are met in other phases.
        cache: A file in which drives are cached, for other drivers and other processes; what is
            cached is not driven again.
    """

    _holder: ClassVar[weakref.ref[Driver] | None] = None

    def __init__(
        self,
        network_file: str | Path,
        *,
        step: float = LONGEST_STEP,
        traffic: Traffic | None = None,
        seed: int = 0,
        departures: Sequence[float] = (0.0,),
        cache: str | Path | None = None,
    ) -> None:
        self.network_file = Path(network_file)
        self.step = as_number(step, "step", 0.01, LONGEST_STEP)
        self.traffic = traffic
        self.seed = seed
        self.departures = tuple(
            as_number(time, "departures", 0.0, _LATEST) for time in departures
        )
        has_own_moments = traffic is not None and self.departures != (0.0,)
        if not self.departures or has_own_moments:
            raise InputError(
                f"departures is {departures!r}; on empty roads there must be at least one, and traffic "
                "has moments of its own"
            )
        require_file(self.network_file)
        # libsumo prints a warning where pyarrow is not the release that it was compiled with.
        with redirect_stdout(sys.stderr):
            self._sumo: Any = require_extra("libsumo", "sumo")
        self._cache: DriveCache | None = None
        if cache is not None:
            self._cache = DriveCache(cache, self._settings())
        self._folder = Path(tempfile.mkdtemp(prefix="superarm-sumo-"))
        self._tidy = weakref.finalize(self, shutil.rmtree, str(self._folder), True)
        self._moments: list[_Moment] = []
        self._departures: Departures | None = None
        self._roads: SumoRoads | None = None
        self._copies = can_copy()

    def _settings(self) -> dict[str, Any]:
        """Return all that drives depend on, but for the route and the moment."""
        traffic = None
        if self.traffic is not None:
            traffic = {**asdict(self.traffic), "seed": self.seed}
        return {
            "version": _DRIVE_VERSION,
            "libsumo": version("libsumo"),
            "network": sha256(self.network_file.read_bytes()).hexdigest(),
            "step": self.step,
            "traffic": traffic,
        }

    @property
    def moments(self) -> int:
        """The number of moments at which a trip may begin."""
        if self.traffic is None:
            return len(self.departures)
        return self.traffic.moments

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the simulation and delete its files; the driver cannot be used again."""
        if self._holds():
            self._sumo.close()
            Driver._holder = None
        self._tidy()

    # --- driving ---------------------------------------------------------------------------

    def drive(
        self,
        route: Sequence[str],
        *,
        moment: int = 0,
        longest: float | None = None,
        between: tuple[float, float] | None = None,
    ) -> Drive:
        """Drive a route from a moment of the traffic.

        A trip that takes too long, or is stuck until SUMO would take it away, is given up. It begins as
        fast as it may, and ends without braking.

        Args:
            route: Ids of edges.
            moment: When the trip begins, 0 to ``moments`` − 1.
            longest: Simulated seconds after which a trip is given up; by default ten minutes and five
                times the time at the speed limit.
            between: Metres along the first edge where the trip begins, and along the last where it
                ends; by default both are driven completely.
        """
        if not 0 <= moment < self.moments:
            raise InputError(
                f"moment is {moment!r}; this driver has moments 0 to {self.moments - 1}"
            )
        if not self._tidy.alive:
            raise InputError("this driver is closed; make a new one")
        if isinstance(route, str) or len(route) == 0:
            raise InputError(
                f"route must be a list of at least one edge id, got {route!r}"
            )
        begins = moment if self.traffic is not None else self.departures[moment]
        trip: dict[str, Any] = {
            "route": list(route),
            "begins": begins,
            "longest": longest,
        }
        if between is not None:
            trip["between"] = [as_number(metres, "between", 0.0) for metres in between]
        if self._cache is not None:
            cached_drive = self._cache.find(trip)
            if cached_drive is not None:
                return cached_drive
        drive = self._simulate(route, moment, longest, between)
        if self._cache is not None:
            self._cache.store(trip, drive)
        return drive

    def _simulate(
        self,
        route: Sequence[str],
        moment: int,
        longest: float | None,
        between: tuple[float, float] | None,
    ) -> Drive:
        """Drive a route such that the simulation loaded here does not move."""
        roads = self._take_over()
        roads.check_route(route)
        lengths = roads.lengths(route)
        begin = 0.0
        end = float(lengths[-1])
        if between is not None:
            begin, end = between
        is_on_edges = begin <= lengths[0] and end <= lengths[-1]
        if not is_on_edges or (len(route) == 1 and begin > end):
            raise InputError(
                f"between must lie on the first edge, of {lengths[0]:g} m, and on the last, of "
                f"{lengths[-1]:g} m, with the end ahead on a single edge; got {between!r}"
            )
        lengths[-1] = end
        edge_seconds = lengths / roads.limits(route)
        free_seconds = float(edge_seconds.sum())
        most_seconds = longest
        if most_seconds is None:
            most_seconds = 600.0 + 5.0 * free_seconds
        state = self._moments[moment]
        if self._departures is not None:
            # Drawn now, they need not be drawn in every copy.
            likely_seconds = min(most_seconds, 2.0 * free_seconds)
            self._departures.until(state.time + likely_seconds)

        def drive_packed() -> str:
            drive = self._drive(list(route), lengths, most_seconds, state, between)
            return b64encode(drive.to_bytes()).decode()

        packed = self._run_isolated(drive_packed)
        return Drive.from_bytes(b64decode(packed))

    def _drive(
        self,
        route: list[str],
        lengths: Floats,
        longest: float,
        state: _Moment,
        between: tuple[float, float] | None,
    ) -> Drive:
        """Drive a route in the simulation that is loaded here."""
        vehicle = self._sumo.vehicle
        simulation = self._sumo.simulation
        if state.file is not None:
            simulation.loadState(state.file)
        elif state.time > 0.0:
            simulation.step(state.time)
        begin = 0.0
        if between is not None:
            begin = float(between[0])
        self._add_trip(route, between)
        recording = Recording(lengths, begin)
        departed = state.departed
        waited = 0.0
        while _TRIP not in simulation.getDepartedIDList():
            if waited > longest:
                return recording.drive(self.step, [], arrived=False)
            departed = self._advance(departed)
            waited += self.step
        # In the step of its departure a car does not move yet.
        recording.speeds = [vehicle.getSpeed(_TRIP)]
        positions = [(0.0, *vehicle.getPosition(_TRIP))]
        steps = 0
        arrived = False
        while waited + steps * self.step <= longest:
            departed = self._advance(departed)
            if _TRIP in simulation.getArrivedIDList():
                arrived = True
                break
            if _TRIP in simulation.getStartingTeleportIDList():
                break
            steps += 1
            self._record(recording)
            seconds = steps * self.step
            last_seconds, *_ = positions[-1]
            if seconds >= last_seconds + 1.0 - 1e-9:
                positions.append((seconds, *vehicle.getPosition(_TRIP)))
        return recording.drive(self.step, positions, arrived)

    def _add_trip(self, route: list[str], between: tuple[float, float] | None) -> None:
        """Add the trip's car, which departs as soon as there is room for it."""
        begin = "0"
        end = "max"
        if between is not None:
            begin, end = (repr(float(metres)) for metres in between)
        self._sumo.route.add(_TRIP, route)
        self._sumo.vehicle.add(
            _TRIP,
            _TRIP,
            typeID=_DRIVEN,
            departLane="best",
            departPos=begin,
            departSpeed="max",
            arrivalPos=end,
            arrivalSpeed="current",
        )

    def _record(self, recording: Recording) -> None:
        """Record the trip's car after a step."""
        vehicle = self._sumo.vehicle
        road = vehicle.getRoadID(_TRIP)
        recording.add(
            speed=vehicle.getSpeed(_TRIP),
            slope=vehicle.getSlope(_TRIP),
            index=vehicle.getRouteIndex(_TRIP),
            place=vehicle.getLanePosition(_TRIP),
            inside=road.startswith(":"),
            odometer=vehicle.getDistance(_TRIP),
        )

    def _advance(self, departed: int) -> int:
        """Take a time step, before which the cars that are due depart; return how many have by then."""
        sumo = self._sumo
        if self._departures is not None:
            now = sumo.simulation.getTime()
            while self._departures[departed].time <= now:
                car = self._departures[departed]
                name = f"{_OTHER}{departed}"
                sumo.route.add(name, car.route)
                sumo.vehicle.add(
                    name, name, typeID=_OTHER, departLane="best", departSpeed="max"
                )
                sumo.vehicle.setSpeedFactor(name, car.speed_factor)
                departed += 1
        sumo.simulation.step()
        return departed

    # --- the simulation --------------------------------------------------------------------

    def _holds(self) -> bool:
        return Driver._holder is not None and Driver._holder() is self

    def _run_isolated(self, work: Callable[[], Any]) -> Any:
        """Run work that moves the simulation such that the one loaded here has not moved afterwards."""
        if self._copies:
            return in_a_copy(work)
        try:
            return work()
        finally:
            self._sumo.close()
            self._start()

    def _take_over(self) -> SumoRoads:
        """Make this driver's network the one that libsumo has loaded, as it is before any step."""
        is_loaded = self._sumo.simulation.isLoaded
        if self._holds() and self._roads is not None and is_loaded():
            return self._roads
        if is_loaded():
            if Driver._holder is None:
                raise ConflictError(
                    "libsumo already runs another simulation in this process, and it holds only one; "
                    "close that first (libsumo.close())"
                )
            self._sumo.close()
        Driver._holder = None
        self._start()
        Driver._holder = weakref.ref(self)
        if self._roads is None:
            roads = SumoRoads(self._sumo, str(self.network_file))
            self._moments = self._prepare_moments(roads)
            self._roads = roads
        return self._roads

    def _prepare_moments(self, roads: SumoRoads) -> list[_Moment]:
        traffic = self.traffic
        if traffic is None:
            return [_Moment(None, time, 0) for time in self.departures]
        self._departures = self._other_cars(traffic, roads)
        end = traffic.time_of(traffic.moments)
        self._departures.until(end)
        # A copy of the process returns plain lists.
        rows = self._run_isolated(lambda: self._save_moments(traffic))
        moments = []
        for file, time, departed in rows:
            moments.append(_Moment(file, time, departed))
        return moments

    def _start(self) -> None:
        """Load the network, after preparing it the first time."""
        network = self._folder / "network.net.xml"
        types = self._folder / "types.add.xml"
        if not network.exists():
            network.write_bytes(plain_text(self.network_file))
            types.write_text(self._types(), encoding="utf-8")
        options = {
            "net-file": network,
            "additional-files": types,
            "step-length": self.step,
            "seed": self.seed % 2**31,
            "time-to-teleport": _TELEPORT_AFTER,
            "collision.action": "none",
            "xml-validation": "never",
            "save-state.precision": 6,
            "no-step-log": "true",
            "no-warnings": "true",
            "duration-log.disable": "true",
        }
        words = []
        for name, value in options.items():
            words += [f"--{name}", str(value)]
        try:
            self._sumo.start(["sumo", *words])
        except self._sumo.TraCIException as error:
            if self._sumo.simulation.isLoaded():
                self._sumo.close()
            raise InputError(
                f"{self.network_file}: SUMO cannot load this network ({error}); the reason is on stderr"
            ) from error

    def _types(self) -> str:
        """Return the types of cars as XML: the one that drives, and the others."""
        steady = 'vClass="passenger" sigma="0" speedFactor="1" speedDev="0"'
        action_step = LONGEST_STEP
        if self.traffic is not None:
            action_step = self.traffic.action_step
        action_step = max(action_step, self.step)
        return (
            f'<additional><vType id="{_DRIVEN}" {steady}/>'
            f'<vType id="{_OTHER}" {steady} actionStepLength="{action_step!r}"/></additional>'
        )

    def _save_moments(self, traffic: Traffic) -> list[_Moment]:
        """Let the traffic run warm, and save the states from which trips begin."""
        simulation = self._sumo.simulation
        departed = 0
        moments: list[_Moment] = []
        for moment in range(traffic.moments):
            while simulation.getTime() < traffic.time_of(moment):
                departed = self._advance(departed)
            file = str(self._folder / f"moment{moment}.xml.gz")
            simulation.saveState(file)
            moments.append(_Moment(file, simulation.getTime(), departed))
        return moments

    def _other_cars(self, traffic: Traffic, roads: SumoRoads) -> Departures:
        for edge in traffic.edges or ():
            roads.check_edge(edge)
        places = sorted(traffic.edges or roads.edges)
        metres = roads.lane_metres(places)
        is_usable = metres > 0.0
        if is_usable.sum() < 2:
            raise InputError(
                f"{self.network_file}: cars need two edges to travel between"
            )
        find_route = self._sumo.simulation.findRoute
        return Departures(
            traffic,
            places=places,
            weights=metres,
            find_route=lambda first, last: find_route(first, last, _OTHER).edges,
            seed=self.seed,
        )
