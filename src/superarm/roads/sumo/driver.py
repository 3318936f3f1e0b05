"""Trips driven in SUMO: how a car really moves along a route.

=================  =====================================================================
``k``              edges of a route
``moment``         one of the kept states of the traffic, or of the times of departure on empty
                   roads, at which a trip begins
=================  =====================================================================

*What a drive is.* Speeds, slopes and places, step by step (``drive.py``, which also says what they
cost a vehicle). Seconds are booked to the edge the car is on, and inside a junction to the edge just
left (``ledger.py``). The car departs at the beginning of the first edge with the speed allowed there
and leaves the last one without braking for its end. Neither the energy of that first speed nor of the
last is booked. SUMO removes the car in the step in which it arrives: that fraction of a step is booked
at the rate of the step before.

*The same trip costs the same, whatever was driven before.* A saved state does not hold all that
SUMO remembers, such as when lanes were last changed on an edge. Therefore no trip is driven in a
simulation that has driven: the network is loaded once and never moves. Every trip takes place in a
copy of the process (``apart.py``), where the traffic of its moment is loaded, and ends with it. Where
processes cannot be copied (Windows), the network is loaded anew for every trip, which takes longer
and gives the same. Traffic-actuated signals run as fixed programs, for the same reason.

*No trains.* libsumo ends by a fault (signal 11) when it loads the state of a network with railway
signals or level crossings. No train ever comes: these junctions become plain ones, open to cars
(``plain.py``).
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.core.errors import ConflictError, InputError, require_extra
from superarm.core.inputs import as_number
from superarm.roads.networks._xml import require_file

from .drive import Drive
from .drive_cache import DriveCache
from .edge_times import passing
from .isolation import can_copy, in_a_copy
from .passable import SumoRoads
from .plain_network import plain_text
from .traffic import Departures, Traffic

LONGEST_STEP = 0.25
"""Seconds; with longer steps the energy of braking and accelerating is off by up to a percent."""
_TELEPORT_AFTER = (
    300.0  # seconds after which a car that is stuck is taken away; a trip then ends
)
_LATEST = (
    86_400.0  # seconds until which signals may run before a trip begins on empty roads
)
_KEPT_AS = 1  # raise it when trips are driven, or drives written, in another way
_TRIP, _DRIVEN, _OTHER = "trip", "driven", "other"


class _Kept(NamedTuple):
    """A state to begin trips from."""

    file: str | None  # ``None``: the network as it is when loaded, without any car
    time: float
    departed: int  # how many background cars had departed


class _Seen:
    """A car at departure and after every step. Plain lists: there are thousands of steps to a trip."""

    def __init__(self, lengths: Floats, begin: float) -> None:
        self._lengths = lengths  # of the last edge, up to where the trip ends
        self.speeds: list[float] = [0.0]
        self.slopes: list[float] = []  # degrees, from the first step on
        self.index: list[int] = [0]
        self.place: list[float] = [begin]
        self.inside: list[bool] = [False]
        self.odometer: list[float] = [0.0]

    def drive(
        self, step: float, positions: list[tuple[float, ...]], arrived: bool
    ) -> Drive:
        lengths, times = (
            self._lengths,
            [step * number for number in range(len(self.index))],
        )
        if (
            arrived
        ):  # the way to the end of the last edge, at the speed of the step before
            here = lengths[self.index[-1]] if self.inside[-1] else self.place[-1]
            rest = max(0.0, float(lengths[self.index[-1] :].sum() - here))
            times.append(
                times[-1]
                + (min(step, rest / self.speeds[-1]) if self.speeds[-1] else step)
            )
            self.odometer.append(self.odometer[-1] + rest)
            self.index.append(len(lengths) - 1)
            self.place.append(float(lengths[-1]))
            self.inside.append(False)
        index, inside = np.array(self.index), np.array(self.inside)
        place = np.where(inside, lengths[index], self.place)
        driven = np.array(np.arange(len(lengths)) < index[-1], dtype=np.float64)
        # A trip may end where its last edge begins.
        driven[index[-1]] = (
            place[-1] / lengths[index[-1]] if lengths[index[-1]] > 0.0 else 1.0
        )
        passed = passing(
            lengths, np.array(times), index, place, inside, np.array(self.odometer)
        )
        speeds, inclines = np.array(self.speeds), np.sin(np.deg2rad(self.slopes))
        if len(inclines) == 0:  # it arrived, or was given up, in its first step
            speeds, inclines = np.repeat(speeds, 2), np.zeros(1)
        return Drive(
            step=step,
            speeds=speeds,
            inclines=inclines,
            reached=passed.reached,
            left=passed.left,
            driven=driven,
            positions=np.array(positions).reshape(-1, 3),
            metres=self.odometer[-1],
            duration=times[-1],
            arrived=arrived,
            completed=len(lengths) if arrived else self.index[-1],
        )


class Driver(AbstractContextManager["Driver"]):
    """Drives over one network, trip after trip.

    libsumo holds one simulation per process. Several drivers may exist: whoever drives takes the
    simulation over, which costs loading the network and changes no result. ::

        with Driver("city.net.xml.gz") as driver:
            drive = driver.drive(["a", "b", "c"])
        drive.energies(Vehicle(mass=2200.0))

    ``departures``: seconds at which trips may begin on empty roads, one for each moment, so that
    signals are met in other phases. ``cache``: a file in which drives are kept, for other drivers and
    other processes; what is found there is not driven again.
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
        self.traffic, self.seed = traffic, seed
        self.departures = tuple(
            as_number(time, "departures", 0.0, _LATEST) for time in departures
        )
        if not self.departures or (traffic is not None and self.departures != (0.0,)):
            raise InputError(
                f"departures is {departures!r}; on empty roads there must be at least one, and traffic "
                "has moments of its own"
            )
        require_file(self.network_file)
        self._sumo: Any = require_extra("libsumo", "sumo")
        self._cache = None if cache is None else DriveCache(cache, self._told())
        self._folder = Path(tempfile.mkdtemp(prefix="superarm-sumo-"))
        self._tidy = weakref.finalize(self, shutil.rmtree, str(self._folder), True)
        self._kept: list[_Kept] = []
        self._departures: Departures | None = None
        self._roads: SumoRoads | None = None
        self._copies = can_copy()

    def _told(self) -> dict[str, Any]:
        """All that drives depend on, but for the route and the moment."""
        traffic = (
            None
            if self.traffic is None
            else {**asdict(self.traffic), "seed": self.seed}
        )
        content = sha256(self.network_file.read_bytes()).hexdigest()
        told = {"version": _KEPT_AS, "libsumo": version("libsumo"), "network": content}
        return {**told, "step": self.step, "traffic": traffic}

    @property
    def moments(self) -> int:
        """From how many different moments a trip may begin."""
        return len(self.departures) if self.traffic is None else self.traffic.moments

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up the simulation and its files; the driver cannot be used again."""
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

        A trip that takes more than ``longest`` simulated seconds (by default ten minutes and five times
        the time at the speed limit), or is stuck until SUMO would take it away, is given up.
        ``between``: metres along the first edge where the trip begins, and along the last where it
        ends; by default both are driven whole. It begins as fast as it may, and ends without braking.
        """
        if not 0 <= moment < self.moments:
            raise InputError(
                f"moment is {moment!r}; this driver has moments 0 to {self.moments - 1}"
            )
        if not self._tidy.alive:
            raise InputError("this driver is closed; make a new one")
        if isinstance(route, str) or len(route) == 0:
            raise InputError(
                f"route is {route!r}; it must be a list of at least one edge id"
            )
        begins = moment if self.traffic is not None else self.departures[moment]
        trip: dict[str, Any] = {
            "route": list(route),
            "begins": begins,
            "longest": longest,
        }
        if between is not None:
            trip["between"] = [as_number(metres, "between", 0.0) for metres in between]
        if self._cache is not None and (known := self._cache.find(trip)) is not None:
            return known
        found = self._found(route, moment, longest, between)
        if self._cache is not None:
            self._cache.keep(trip, found)
        return found

    def _found(
        self,
        route: Sequence[str],
        moment: int,
        longest: float | None,
        between: tuple[float, float] | None,
    ) -> Drive:
        roads = self._take_over()
        roads.check_route(route)
        lengths = roads.lengths(route)
        begin, end = (0.0, float(lengths[-1])) if between is None else between
        if begin > lengths[0] or end > lengths[-1] or (len(route) == 1 and begin > end):
            raise InputError(
                f"between is {between!r}; it must lie on the first edge, of {lengths[0]:g} m, and on "
                f"the last, of {lengths[-1]:g} m; on a single edge the end must lie ahead"
            )
        lengths[-1] = end
        free = float((lengths / roads.limits(route)).sum())
        seconds = 600.0 + 5.0 * free if longest is None else longest
        kept = self._kept[moment]
        if (
            self._departures is not None
        ):  # known here, they need not be found in every copy
            self._departures.until(kept.time + min(seconds, 2.0 * free))

        def packed() -> str:
            driven = self._drive(list(route), lengths, seconds, kept, between)
            return b64encode(driven.to_bytes()).decode()

        return Drive.from_bytes(b64decode(self._untouched(packed)))

    def _drive(
        self,
        route: list[str],
        lengths: Floats,
        longest: float,
        kept: _Kept,
        between: tuple[float, float] | None,
    ) -> Drive:
        sumo, vehicle, simulation = (
            self._sumo,
            self._sumo.vehicle,
            self._sumo.simulation,
        )
        if kept.file is not None:
            simulation.loadState(kept.file)
        elif kept.time > 0.0:
            simulation.step(kept.time)
        departed = kept.departed
        sumo.route.add(_TRIP, route)
        begin, end = ("0", "max") if between is None else map(repr, map(float, between))
        vehicle.add(
            _TRIP, _TRIP, typeID=_DRIVEN, departLane="best", departPos=begin, departSpeed="max",
            arrivalPos=end, arrivalSpeed="current",
        )  # fmt: skip
        waited, seen = 0.0, _Seen(lengths, float(begin))
        while _TRIP not in simulation.getDepartedIDList():
            if waited > longest:
                return seen.drive(self.step, [], arrived=False)
            departed = self._advance(departed)
            waited += self.step
        # In the step of its departure a car does not move yet.
        seen.speeds, steps, arrived = [vehicle.getSpeed(_TRIP)], 0, False
        positions = [(0.0, *vehicle.getPosition(_TRIP))]
        while waited + steps * self.step <= longest:
            departed = self._advance(departed)
            if _TRIP in simulation.getArrivedIDList():
                arrived = True
                break
            if _TRIP in simulation.getStartingTeleportIDList():
                break
            steps += 1
            seen.speeds.append(vehicle.getSpeed(_TRIP))
            seen.slopes.append(vehicle.getSlope(_TRIP))
            seen.index.append(vehicle.getRouteIndex(_TRIP))
            seen.place.append(vehicle.getLanePosition(_TRIP))
            seen.inside.append(vehicle.getRoadID(_TRIP).startswith(":"))  # a junction
            seen.odometer.append(vehicle.getDistance(_TRIP))
            if steps * self.step >= positions[-1][0] + 1.0 - 1e-9:
                positions.append((steps * self.step, *vehicle.getPosition(_TRIP)))
        return seen.drive(self.step, positions, arrived)

    def _advance(self, departed: int) -> int:
        """One time step, before which the cars that are due depart; how many have by then."""
        sumo, now = self._sumo, self._sumo.simulation.getTime()
        while (
            self._departures is not None
            and (car := self._departures[departed]).time <= now
        ):
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

    def _untouched(self, work: Callable[[], Any]) -> Any:
        """Do what moves the simulation such that the one loaded here has not moved afterwards."""
        if self._copies:
            return in_a_copy(work)
        try:
            return work()
        finally:
            self._sumo.close()
            self._start()

    def _take_over(self) -> SumoRoads:
        """Make this driver's network the one that libsumo has loaded, as it is before any step."""
        if (
            self._holds()
            and self._roads is not None
            and self._sumo.simulation.isLoaded()
        ):
            return self._roads
        if self._sumo.simulation.isLoaded():
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
            self._kept = [_Kept(None, time, 0) for time in self.departures]
            if self.traffic is not None:
                traffic = self.traffic
                self._departures = self._other_cars(traffic, roads)
                self._departures.until(traffic.time_of(traffic.moments))
                self._kept = [
                    _Kept(*kept)
                    for kept in self._untouched(lambda: self._prepare(traffic))
                ]
            self._roads = roads
        return self._roads

    def _start(self) -> None:
        network, types = (
            self._folder / "network.net.xml",
            self._folder / "types.add.xml",
        )
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
            **dict.fromkeys(
                ("no-step-log", "no-warnings", "duration-log.disable"), "true"
            ),
        }
        words = [
            word
            for name, value in options.items()
            for word in (f"--{name}", str(value))
        ]
        try:
            self._sumo.start(["sumo", *words])
        except self._sumo.TraCIException as error:
            if self._sumo.simulation.isLoaded():
                self._sumo.close()
            raise InputError(
                f"{self.network_file}: SUMO cannot load this network ({error}); the reason is on stderr"
            ) from error

    def _types(self) -> str:
        steady = 'vClass="passenger" sigma="0" speedFactor="1" speedDev="0"'
        pause = LONGEST_STEP if self.traffic is None else self.traffic.action_step
        return (
            f'<additional><vType id="{_DRIVEN}" {steady}/>'
            f'<vType id="{_OTHER}" {steady} actionStepLength="{max(pause, self.step)!r}"/></additional>'
        )

    def _prepare(self, traffic: Traffic) -> list[_Kept]:
        """Let the traffic run warm, and keep the states from which trips begin."""
        simulation, departed = self._sumo.simulation, 0
        kept: list[_Kept] = []
        for moment in range(traffic.moments):
            while simulation.getTime() < traffic.time_of(moment):
                departed = self._advance(departed)
            file = str(self._folder / f"moment{moment}.xml.gz")
            simulation.saveState(file)
            kept.append(_Kept(file, simulation.getTime(), departed))
        return kept

    def _other_cars(self, traffic: Traffic, roads: SumoRoads) -> Departures:
        for edge in traffic.edges or ():
            roads.check_edge(edge)
        places = sorted(traffic.edges or roads.edges)
        metres = roads.lane_metres(places)
        if (metres > 0.0).sum() < 2:
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
