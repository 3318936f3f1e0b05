"""Trips driven in SUMO: what each edge of a route really costs.

=================  =====================================================================
``k``              edges of a route
``energy``         Wh booked to each edge of the route, (k,); negative where it is won back
``stored``         of that, what is in the car's motion: see ``ledger.py``
``moment``         one of the kept states of the traffic at which a trip begins
=================  =====================================================================

*What SUMO computes.* Its emission class ``Energy/unknown`` is eq. 8 (``networks/energy.py``) at the
speed and slope of every time step, plus ½·m·Δ(v²) for changes of speed, multiplied by η⁻ where
negative. As measured, ``getElectricityConsumption`` is a rate, Wh per second, and auxiliaries are
drawn without passing η⁺, as in ``Vehicle.energy``. Gravity is fixed at 9.80665 m/s² and air density at
1.2041 kg/m³; a vehicle's own go into the mass (m·g/9.80665, which makes its inertia 0.1 % too large
for Table 2) and into the drag coefficient. What still differs from eq. 8 at constant speed: braking
for curves, junctions and other cars, of which η⁺·η⁻ is won back; rolling resistance without cos α; the
slope, which SUMO takes between the car's front and rear on the lane; and the few metres inside
junctions. The radial drag coefficient is 0, as the energy would else depend on the time step.

*What is booked where.* The energy of a step goes to the edge the car is on; inside a junction to
the edge just left; a step across several edges is divided by the metres driven on each, so that an
edge too short to be seen gets its share and nothing is lost. The car departs at the beginning of
the first edge with the speed allowed there and leaves the last one without braking for its end.
Neither the energy of that first speed nor of the last is booked. SUMO removes the car in the step in
which it arrives: that fraction of a step is booked at the rate of the step before.

*The same trip costs the same, whatever was driven before.* A saved state does not hold all that
SUMO remembers, such as when lanes were last changed on an edge. Therefore no trip is driven in a
simulation that has driven: the network is loaded once and never moves. Every trip takes place in a
copy of the process (``apart.py``), where the traffic of its moment is loaded, and ends with it. Where
processes cannot be copied (Windows), the network is loaded anew for every trip, which takes longer
and gives the same. Traffic-actuated signals run as fixed programs, for the same reason.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.errors import ConflictError, InputError, require_extra
from superarm.networks._xml import XmlFile, require_file
from superarm.networks.energy import Vehicle

from .apart import can_copy, in_a_copy
from .ledger import Ledger
from .passable import SumoRoads
from .traffic import Departures, Traffic

_GRAVITY = 9.80665  # m/s², fixed in SUMO
_AIR_DENSITY = 1.2041  # kg/m³, fixed in SUMO
LONGEST_STEP = 0.25
"""Seconds; with longer steps the energy of braking and accelerating is off by up to a percent."""
_TELEPORT_AFTER = 300.0  # seconds after which a car that is stuck is taken away; a trip then ends
_ACTUATED = re.compile(rb'(<tlLogic\b[^>]*?\btype=")(?:actuated|delay_based|NEMA)(")')
_VERSION = re.compile(rb"<net\b[^>]*\bversion=")
_TRIP, _DRIVEN, _OTHER = "trip", "driven", "other"


@dataclass(frozen=True, kw_only=True, eq=False)
class Drive:
    """What was measured on one trip."""

    energy: Floats  # Wh per edge of the route, (k,); of edges not completed, what was measured so far
    stored: Floats  # of the energy, what went into motion and can be won back by braking, Wh, (k,)
    duration: float  # seconds from departure
    arrived: bool
    completed: int  # how many edges of the route were driven to their end: all k if the car arrived

    @property
    def total(self) -> float:
        """Wh of the whole trip."""
        return float(self.energy.sum())


class _Kept(NamedTuple):
    """A state to begin trips from."""

    file: str | None  # ``None``: the network as it is when loaded, without any car
    time: float
    departed: int  # how many background cars had departed


class Driver(AbstractContextManager["Driver"]):
    """Drives one vehicle over one network, trip after trip.

    libsumo holds one simulation per process. Several drivers may exist: whoever drives takes the
    simulation over, which costs loading the network and changes no result. ::

        with Driver("city.net.xml.gz", vehicle=Vehicle(mass=2200.0)) as driver:
            drive = driver.drive(["a", "b", "c"])
    """

    _holder: ClassVar[weakref.ref[Driver] | None] = None

    def __init__(
        self,
        network_file: str | Path,
        *,
        vehicle: Vehicle | None = None,
        step: float = LONGEST_STEP,
        traffic: Traffic | None = None,
        seed: int = 0,
    ) -> None:
        self.network_file = Path(network_file)
        self.vehicle = Vehicle() if vehicle is None else vehicle
        self.step, self.traffic, self.seed = step, traffic, seed
        if not 0.01 <= step <= LONGEST_STEP:
            raise InputError(f"step is {step!r} s; it must be between 0.01 and {LONGEST_STEP}")
        if self.vehicle.recuperation != "multiply":
            raise InputError("SUMO multiplies by η⁻; recuperation 'divide' cannot be driven there")
        require_file(self.network_file)
        self._sumo: Any = require_extra("libsumo", "sumo")
        self._folder = Path(tempfile.mkdtemp(prefix="superarm-sumo-"))
        self._tidy = weakref.finalize(self, shutil.rmtree, str(self._folder), True)
        self._kept: list[_Kept] = []
        self._departures: Departures | None = None
        self._roads: SumoRoads | None = None
        self._copies = can_copy()

    @property
    def moments(self) -> int:
        """From how many different moments of traffic a trip may begin."""
        return 1 if self.traffic is None else self.traffic.moments

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up the simulation and its files; the driver cannot be used again."""
        if self._holds():
            self._sumo.close()
            Driver._holder = None
        self._tidy()

    # --- driving ---------------------------------------------------------------------------

    def drive(self, route: Sequence[str], *, moment: int = 0, longest: float | None = None) -> Drive:
        """Drive a route from a moment of the traffic.

        A trip that takes more than ``longest`` simulated seconds (by default ten minutes and five times
        the time at the speed limit), or is stuck until SUMO would take it away, is given up.
        """
        if not 0 <= moment < self.moments:
            raise InputError(f"moment is {moment!r}; this traffic has moments 0 to {self.moments - 1}")
        roads = self._take_over()
        roads.check_route(route)
        lengths = roads.lengths(route)
        free = float((lengths / roads.limits(route)).sum())
        if longest is None:
            longest = 600.0 + 5.0 * free
        kept = self._kept[moment]
        if self._departures is not None:  # known here, they need not be found in every copy
            self._departures.until(kept.time + min(longest, 2.0 * free))
        found = self._untouched(lambda: self._drive(list(route), lengths, longest, kept))
        arrays = {name: np.array(found[name], dtype=np.float64) for name in ("energy", "stored")}
        return Drive(**{**found, **arrays})

    def _drive(self, route: list[str], lengths: Floats, longest: float, kept: _Kept) -> dict[str, Any]:
        sumo, vehicle, simulation = self._sumo, self._sumo.vehicle, self._sumo.simulation
        if kept.file is not None:
            simulation.loadState(kept.file)
        departed = kept.departed
        sumo.route.add(_TRIP, route)
        vehicle.add(
            _TRIP, _TRIP, typeID=_DRIVEN, departLane="best", departPos="0", departSpeed="max",
            arrivalPos="max", arrivalSpeed="current",
        )  # fmt: skip
        waited = 0.0
        while _TRIP not in simulation.getDepartedIDList():
            if waited > longest:
                return self._record(Ledger(lengths=lengths, speed=0.0, inertia=0.0), 0.0, None)
            departed = self._advance(departed)
            waited += self.step
        # In the step of its departure a car does not move yet.
        inertia = 0.5 * self._mass * self.vehicle.recuperation_efficiency / 3600.0
        ledger = Ledger(lengths=lengths, speed=vehicle.getSpeed(_TRIP), inertia=inertia)
        steps = 0
        while waited + steps * self.step <= longest:
            departed = self._advance(departed)
            if _TRIP in simulation.getArrivedIDList():
                return self._record(ledger, steps * self.step, self.step)
            if _TRIP in simulation.getStartingTeleportIDList():
                break
            steps += 1
            inside = vehicle.getRoadID(_TRIP).startswith(":")  # a junction
            ledger.book(
                rate=vehicle.getElectricityConsumption(_TRIP),
                seconds=self.step,
                index=vehicle.getRouteIndex(_TRIP),
                place=None if inside else vehicle.getLanePosition(_TRIP),
                odometer=vehicle.getDistance(_TRIP),
                speed=vehicle.getSpeed(_TRIP),
            )
        return self._record(ledger, steps * self.step, None)

    def _record(self, ledger: Ledger, seconds: float, last_step: float | None) -> dict[str, Any]:
        """A drive as plain data; ``last_step``: the length of the step in which the car arrived."""
        booked = {"energy": ledger.energy, "stored": ledger.stored}
        if last_step is None:
            return {**booked, "duration": seconds, "arrived": False, "completed": ledger.index}
        seconds += ledger.arrive(last_step)
        return {**booked, "duration": seconds, "arrived": True, "completed": len(ledger.energy)}

    def _advance(self, departed: int) -> int:
        """One time step, before which the cars that are due depart; how many have by then."""
        sumo, now = self._sumo, self._sumo.simulation.getTime()
        while self._departures is not None and (car := self._departures[departed]).time <= now:
            name = f"{_OTHER}{departed}"
            sumo.route.add(name, car.route)
            sumo.vehicle.add(name, name, typeID=_OTHER, departLane="best", departSpeed="max")
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
        if not self._tidy.alive:
            raise InputError("this driver is closed; make a new one")
        if self._holds() and self._roads is not None and self._sumo.simulation.isLoaded():
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
            self._kept = [_Kept(None, 0.0, 0)]
            if self.traffic is not None:
                traffic = self.traffic
                self._departures = self._other_cars(traffic, roads)
                self._departures.until(traffic.time_of(traffic.moments))
                self._kept = [_Kept(*kept) for kept in self._untouched(lambda: self._prepare(traffic))]
            self._roads = roads
        return self._roads

    def _start(self) -> None:
        network, types = self._folder / "network.net.xml", self._folder / "types.add.xml"
        if not network.exists():
            network.write_bytes(_ACTUATED.sub(rb"\1static\2", _checked_text(self.network_file)))
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
            **dict.fromkeys(("no-step-log", "no-warnings", "duration-log.disable"), "true"),
        }
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        try:
            self._sumo.start(["sumo", *words])
        except self._sumo.TraCIException as error:
            if self._sumo.simulation.isLoaded():
                self._sumo.close()
            raise InputError(
                f"{self.network_file}: SUMO cannot load this network ({error}); the reason is on stderr"
            ) from error

    @property
    def _mass(self) -> float:
        """With which SUMO's gravity gives the vehicle's weight."""
        return self.vehicle.mass * self.vehicle.gravity / _GRAVITY

    def _types(self) -> str:
        car = self.vehicle
        parameters = {
            "frontSurfaceArea": car.front_area,
            "airDragCoefficient": car.air_drag * car.air_density / _AIR_DENSITY,
            "rollDragCoefficient": car.rolling_resistance,
            "radialDragCoefficient": 0.0,
            "rotatingMass": 0.0,
            "propulsionEfficiency": car.propulsion_efficiency,
            "recuperationEfficiency": car.recuperation_efficiency,
            "constantPowerIntake": car.auxiliary_power,
        }
        told = "".join(f'<param key="{key}" value="{value!r}"/>' for key, value in parameters.items())
        steady = 'vClass="passenger" sigma="0" speedFactor="1" speedDev="0"'
        pause = LONGEST_STEP if self.traffic is None else self.traffic.action_step
        return (
            f'<additional><vType id="{_DRIVEN}" {steady} mass="{self._mass!r}" '
            f'emissionClass="Energy/unknown">{told}</vType>'
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
            raise InputError(f"{self.network_file}: cars need two edges to travel between")
        find_route = self._sumo.simulation.findRoute
        return Departures(
            traffic,
            places=places,
            weights=metres,
            find_route=lambda first, last: find_route(first, last, _OTHER).edges,
            seed=self.seed,
        )


def _checked_text(path: Path) -> bytes:
    """A network file's text, which libsumo can be given: some malformed files end the process there."""
    text = BytesIO()
    XmlFile(path, root="net").read(copy_to=text)
    if not _VERSION.search(text.getvalue()):
        raise InputError(f"{path}: <net> states no version; build the network again with netconvert")
    return text.getvalue()
