"""The turns of a SUMO network: who may make them, and how they are driven."""

from __future__ import annotations

from array import array

from superarm.roads.energy.junctions import STANDSTILL, Signal, yielding_speed

from ._xml import Attributes
from .road import VEHICLE_CLASSES
from .sumo_file import Element, SumoFile, permission_mask

_STOP_SIGNS = ("s", "w")
_PASSENGER = 1 << VEHICLE_CLASSES.index("passenger")
# Lanes that a turn leads over; SUMO's lead over two.
_MOST_LANES = 8
# Metres before a junction from which SUMO's cars see who comes, by default.
_VISIBILITY = "4.5"


class SumoTurns:
    """Pairs of edges that connections join; turn by turn in the order of ``masks``.

    Args:
        file: The elements of the network.
    """

    def __init__(self, file: SumoFile) -> None:
        self._file = file
        # One bit per class for each pair of edges.
        self.masks: dict[tuple[int, int], int] = {}
        self.length = array("d")  # metres
        self.speed = array("d")  # m/s
        self.entry = array("d")  # m/s
        self.signals: dict[int, Signal] = {}
        # Numbers of turns whose connections so far are not for passenger cars.
        self._not_for_cars: dict[tuple[int, int], int] = {}
        numbers = {key: number for number, key in enumerate(file.edges)}
        for connection in file.connections:
            first = connection.attributes["from"]
            second = connection.attributes["to"]
            if first in file.inner_edges or second in file.inner_edges:
                continue  # an edge that the file named after its connection
            self._check_ends(first, second, connection.line)
            pair = (numbers[first], numbers[second])
            self._add(pair, connection)

    def _add(self, pair: tuple[int, int], connection: Element) -> None:
        """Add a connection to the turn between two edges: cars decide how it is driven."""
        mask = self._mask(connection)
        is_for_cars = bool(mask & _PASSENGER)
        is_first = pair not in self.masks
        if is_first or (pair in self._not_for_cars and is_for_cars):
            number = self._not_for_cars.pop(pair, len(self.masks))
            self._set_turn(number, connection)
            if not is_for_cars:
                self._not_for_cars[pair] = number
        earlier_mask = self.masks.get(pair, 0)
        self.masks[pair] = earlier_mask | mask

    def _check_ends(self, first: str, second: str, line: int) -> None:
        edges = self._file.edges
        for key in (first, second):
            if key not in edges:
                raise self._file.fault(
                    f"a connection names edge {key!r}, which is not in the file", line
                )
        if edges[first].head != edges[second].tail:
            raise self._file.fault(
                f"the connection from {first!r} to {second!r} joins edges that do not meet",
                line,
            )

    def _mask(self, connection: Element) -> int:
        """Return who may use both lanes, the lane between them and the connection itself."""
        attributes = connection.attributes
        mask = self._lane_mask(attributes["from"], "fromLane", connection)
        mask &= self._lane_mask(attributes["to"], "toLane", connection)
        via = attributes.get("via")
        if via is not None:
            if via not in self._file.inner_lanes:
                raise self._file.fault(
                    f"via names lane {via!r}, which is not in the file", connection.line
                )
            mask &= self._file.inner_lanes.mask(via)
        return mask & permission_mask(attributes)

    def _lane_mask(self, edge: str, key: str, connection: Element) -> int:
        lanes = self._file.edges[edge].lanes
        text = connection.attributes.get(key, "missing")
        is_number = text.isdecimal() and len(text) < 4
        if not is_number or int(text) >= len(lanes):
            raise self._file.fault(
                f"{key} is {text!r}; edge {edge!r} has {len(lanes)} lanes",
                connection.line,
            )
        return lanes[int(text)]

    def _set_turn(self, number: int, connection: Element) -> None:
        """Set how one drives over a connection; a turn that is known is replaced."""
        via = connection.attributes.get("via")
        length, seconds = self._drive_through(via)
        speed = length / seconds if seconds else 0.0
        self.signals.pop(number, None)
        signal = self._find_signal(connection)
        if signal is not None:
            self.signals[number] = signal
        entry = _entry_speed(connection.attributes, signal)
        if number == len(self.length):
            self.length.append(length)
            self.speed.append(speed)
            self.entry.append(entry)
        else:
            self.length[number] = length
            self.speed[number] = speed
            self.entry[number] = entry

    def _drive_through(self, lane: str | None) -> tuple[float, float]:
        """Return metres and seconds over the lanes inside a junction, from this one on."""
        lanes = self._file.inner_lanes
        length = 0.0
        seconds = 0.0
        for _ in range(_MOST_LANES):
            if lane is None or lane not in lanes:
                break
            metres = lanes.length(lane)
            speed = lanes.speed(lane)
            length += metres
            if speed:
                seconds += metres / speed
            lane = self._file.next_lanes.get(lane)
        return length, seconds

    def _find_signal(self, connection: Element) -> Signal | None:
        attributes = connection.attributes
        name = attributes.get("tl", "")
        program = self._file.programs.get(name)
        if program is None or not program.phases:
            return None
        index = attributes.get("linkIndex", "")
        links = min(len(phase.states) for phase in program.phases)
        is_number = index.isdecimal() and len(index) < 6
        if not is_number or int(index) >= links:
            raise self._file.fault(
                f"linkIndex is {index!r}; signal {name!r} has states for {links} links",
                connection.line,
            )
        link = int(index)
        phases = [(phase.seconds, phase.states[link]) for phase in program.phases]
        edge = self._file.edges[attributes["from"]]
        return Signal.from_phases(phases, offset=program.offset, speed=edge.speed)


def _entry_speed(attributes: Attributes, signal: Signal | None) -> float:
    """Return the speed to which one brakes to give way, m/s; 0: one need not."""
    state = attributes.get("state", "M")
    if signal is not None:
        must_yield = signal.yields
    elif state in _STOP_SIGNS:
        return STANDSTILL
    else:
        must_yield = not state.isupper()
    if not must_yield:
        return 0.0
    visibility = attributes.get("visibility", _VISIBILITY)
    return yielding_speed(float(visibility))
