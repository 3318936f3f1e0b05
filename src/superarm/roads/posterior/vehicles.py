"""What each vehicle does otherwise than the fleet, given what is unknown of roads and fleet.

Vehicles are many, and each is driven on few roads. So their terms w_v are no slots of the engine: they
are eliminated, which is exact. With Φ the terms of a vehicle's rewards, V the prior variance of w_v and
R the noise, w_v given the slots x and the rewards y is normal, with

    covariance  S = (V⁻¹ + Φᵀ R⁻¹ Φ)⁻¹   and   mean  S (Φᵀ R⁻¹ (y − expected) − (A R⁻¹ Φ)ᵀ x).

A new reward φ·w_v + … is therefore a sum of slots, a known number and noise of variance φᵀ S φ: what a
trip costs to learn does not depend on how many vehicles there are.

=============  =======================================================================
``g``, ``p``   vehicles of a group and its terms, p = 5 g
``k``          slots that the group's rewards depended on
``P``          pairs of a group and one of its slots, over all groups
=============  =======================================================================

Vehicles that were part of one trip, or of one sum, depend on each other: they are a group. As a rule
each vehicle is a group by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats, Ints, State
from superarm.core.errors import StateError
from superarm.core.inputs import as_features, as_positions, as_vector
from superarm.roads.energy.scales import TERMS

_P = len(TERMS)


class VehicleGroup(NamedTuple):
    """What the rewards of some vehicles say of their terms.

    Groups are never changed, only replaced: copies of a posterior share them. :meth:`VehicleGroups.add` makes
    their arrays read-only.
    """

    vehicles: tuple[int, ...]
    slots: Ints  # (k,), rising
    cross: Floats  # A R⁻¹ Φ at these slots, (k, p)
    information: Floats  # Φᵀ R⁻¹ Φ, (p, p)
    pull: Floats  # Φᵀ R⁻¹ (y − expected), (p,)

    def _scaled(self, prior: Floats) -> tuple[Floats, Floats]:
        """√V, (p,), and I + √V Φᵀ R⁻¹ Φ √V, (p, p)."""
        root = np.sqrt(np.tile(prior, len(self.vehicles)))
        inner = root[:, None] * self.information * root
        inner[np.diag_indices_from(inner)] += 1.0
        return root, inner

    def covariance(self, prior: Floats) -> Floats:
        """S, (p, p); ``prior`` are the variances of one vehicle's terms, (5,)."""
        root, inner = self._scaled(prior)
        found: Floats = root[:, None] * np.linalg.inv(inner) * root
        return np.asarray(0.5 * (found + found.T))

    def pulled(self, prior: Floats, normals: Floats, pull: Floats) -> Floats:
        """S (V⁻¹ z − pull), (p,), for the prior draw z = √V · normals; some of V may be 0."""
        root, inner = self._scaled(prior)
        found: Floats = root * np.linalg.solve(inner, normals - root * pull)
        return found

    def frozen(self) -> VehicleGroup:
        """The same group, its arrays read-only from now on."""
        for values in (self.slots, self.cross, self.information, self.pull):
            values.setflags(write=False)
        return self

    def place(self, vehicle: int) -> slice:
        """Where this vehicle's terms are among the group's."""
        first = _P * self.vehicles.index(vehicle)
        return slice(first, first + _P)


def joined(groups: Iterable[VehicleGroup]) -> VehicleGroup:
    """What rewards of several groups say, some of them of the same vehicles: their sum."""
    parts = list(groups)
    vehicles = tuple(
        dict.fromkeys(vehicle for part in parts for vehicle in part.vehicles)
    )
    slots = parts[0].slots
    for part in parts[1:]:
        slots = np.union1d(slots, part.slots)
    p = _P * len(vehicles)
    whole = VehicleGroup(
        vehicles, slots, np.zeros((len(slots), p)), np.zeros((p, p)), np.zeros(p)
    )
    for part in parts:
        at = np.concatenate(
            [np.arange(p)[whole.place(vehicle)] for vehicle in part.vehicles]
        )
        rows = np.searchsorted(slots, part.slots)
        whole.cross[np.ix_(rows, at)] += part.cross
        whole.information[np.ix_(at, at)] += part.information
        whole.pull[at] += part.pull
    return whole


class VehicleGroups:
    """The groups of all vehicles that were driven."""

    def __init__(self, groups: Iterable[VehicleGroup] = ()) -> None:
        self._of: dict[int, VehicleGroup] = {}
        for group in groups:
            self.add(group)

    def get(self, vehicle: int) -> VehicleGroup | None:
        return self._of.get(vehicle)

    def add(self, group: VehicleGroup) -> None:
        """Take in what more rewards say."""
        known = {
            id(found): found for each in group.vehicles if (found := self._of.get(each))
        }
        whole = (joined([*known.values(), group]) if known else group).frozen()
        for vehicle in whole.vehicles:
            self._of[vehicle] = whole

    def copy(self) -> VehicleGroups:
        """Another collection of the same groups, which nobody can change."""
        other = VehicleGroups()
        other._of = dict(self._of)
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> VehicleGroups:
        # Each trip is learned by a copy of the posterior: it must not cost more with every vehicle.
        return self.copy()

    def all(self) -> list[VehicleGroup]:
        """Each group once, in the order of their first vehicles' first trips."""
        return list({id(group): group for group in self._of.values()}.values())

    def of(self, vehicles: Iterable[int]) -> list[VehicleGroup]:
        """The groups of these vehicles, each once; vehicles that were not driven yet have none."""
        found = (self._of.get(vehicle) for vehicle in vehicles)
        return list({id(group): group for group in found if group is not None}.values())

    # --- all at once ------------------------------------------------------------------------

    def taken_off(
        self, prior: Floats, information: Floats, pull: Floats
    ) -> tuple[Floats, Floats]:
        """What all rewards say of the slots, (s, s) and (s,), where vehicles' terms are unknown.

        A R⁻¹ Aᵀ − Σ C S Cᵀ and A R⁻¹ (y − expected) − Σ C S pull, with C = A R⁻¹ Φ.
        """
        from scipy.sparse import csr_array

        size, few = len(pull), []
        information, pull = information.copy(), pull.copy()
        for group in self.all():
            S = group.covariance(prior)
            pull[group.slots] -= group.cross @ (S @ group.pull)
            half = group.cross @ np.linalg.cholesky(S)
            if (
                len(group.slots) > size // 8
            ):  # dense products are faster for a vehicle of many roads
                information[np.ix_(group.slots, group.slots)] -= half @ half.T
            else:
                few.append((group.slots, half))
        if few:
            rows = np.concatenate(
                [np.repeat(slots, half.shape[1]) for slots, half in few]
            )
            widths = [half.shape[1] for _, half in few]
            firsts = np.cumsum([0, *widths])
            columns = np.concatenate(
                [np.tile(np.arange(a, a + half.shape[1]), len(half))
                 for a, (_, half) in zip(firsts.tolist(), few, strict=False)]
            )  # fmt: skip
            values = np.concatenate([half.ravel() for _, half in few])
            low = csr_array((values, (rows, columns)), shape=(size, int(firsts[-1])))
            information -= (low @ low.T).toarray()
        return information, pull

    def information(self, prior: Floats) -> float:
        """½ ln det(I + V Φᵀ R⁻¹ Φ) over all groups, nats."""
        found = 0.0
        for group in self.all():
            _, inner = group._scaled(prior)
            found += 0.5 * float(np.linalg.slogdet(inner)[1])
        return found

    # --- as arrays --------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        groups = self.all()
        empty = np.empty(0)
        return {
            "vehicles": np.array(
                [v for each in groups for v in each.vehicles], dtype=np.intp
            ),
            "group_vehicles": np.array(
                [len(each.vehicles) for each in groups], dtype=np.intp
            ),
            "group_slots": np.array(
                [len(each.slots) for each in groups], dtype=np.intp
            ),
            "slots": np.concatenate(
                [empty.astype(np.intp), *(each.slots for each in groups)]
            ),
            "cross": np.concatenate([empty, *(each.cross.ravel() for each in groups)]),
            "of_vehicles": np.concatenate(
                [empty, *(each.information.ravel() for each in groups)]
            ),
            "pull": np.concatenate([empty, *(each.pull for each in groups)]),
        }

    @classmethod
    def from_arrays(cls, state: State, size: int, driven: Ints) -> VehicleGroups:
        """What :meth:`arrays` gave, of these vehicles and so many slots, or :class:`StateError`."""
        names = ("vehicles", "group_vehicles", "group_slots", "slots")
        vehicles, many, touched, slots = (
            as_positions(state.array(name), name) for name in names
        )
        if len(many) != len(touched):
            raise StateError(
                "this state is damaged: its groups of vehicles differ in number"
            )
        p = _P * many
        cross = as_vector(state.array("cross"), "cross", int(touched @ p))
        information = as_vector(state.array("of_vehicles"), "of_vehicles", int(p @ p))
        pull = as_vector(state.array("pull"), "pull", int(p.sum()))
        if (
            not np.array_equal(np.sort(vehicles), driven)
            or (many < 1).any()
            or int(many.sum()) != len(vehicles)
            or int(touched.sum()) != len(slots)
            or slots.max(initial=-1) >= size
        ):
            raise StateError(
                "this state is damaged: its vehicles are not those of its trips"
            )
        ends = [
            np.cumsum([0, *each]).tolist()
            for each in (many, touched, touched * p, p * p, p)
        ]
        groups = cls()
        for at, width in enumerate(p.tolist()):
            a, b, c, d, e = (slice(*each[at : at + 2]) for each in ends)
            group = VehicleGroup(
                vehicles=tuple(vehicles[a].tolist()),
                slots=slots[b].copy(),
                cross=as_features(cross[c].reshape(-1, width), "cross").copy(),
                information=information[d].reshape(width, width).copy(),
                pull=pull[e].copy(),
            )
            least = np.linalg.eigvalsh(group.information).min()
            if (np.diff(group.slots) <= 0).any() or least < -1e-6 * np.abs(
                group.information
            ).max():
                raise StateError(
                    "this state is damaged: what it says of a vehicle is impossible"
                )
            groups.add(group)
        return groups


def grouped(
    vehicles: Ints, cross: Any, information: Any, pull: Floats
) -> VehicleGroups:
    """Groups of vehicles, (V,), from what all their rewards say.

    ``cross`` (s, 5 V), ``information`` (5 V, 5 V) are sparse, ``pull`` (5 V,): five columns a vehicle.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    V, entries = len(vehicles), information.tocoo()
    linked = entries.data != 0.0
    blocks = (entries.row[linked] // _P, entries.col[linked] // _P)
    links = csr_array((np.ones(len(blocks[0])), blocks), shape=(V, V))
    count, group = connected_components(links, directed=False)
    order = np.argsort(group, kind="stable")  # vehicles, group by group
    many = np.bincount(group, minlength=count)
    place = np.empty(V, dtype=np.intp)  # of each vehicle among those of its group
    place[order] = np.arange(V) - np.repeat(np.cumsum(many) - many, many)
    widest = _P * int(many.max(initial=0))

    def of_group(column: Ints) -> Ints:
        """Where a column is among those of its group."""
        return _P * place[column // _P] + column % _P

    blocks_of = np.zeros((count, widest, widest))
    row_group = group[entries.row // _P][linked]
    row, column = entries.row[linked], entries.col[linked]
    blocks_of[row_group, of_group(row), of_group(column)] = entries.data[linked]
    pulls = np.zeros((count, widest))
    columns = np.arange(_P * V)
    pulls[group[columns // _P], of_group(columns)] = pull
    entries = cross.tocoo()
    size = cross.shape[0]
    pairs = (
        group[entries.col // _P].astype(np.int64) * size + entries.row
    )  # of a group and a slot
    known, at = np.unique(pairs, return_inverse=True)
    values = np.zeros((len(known), widest))  # (P, p)
    values[at, of_group(entries.col)] = entries.data
    slots = (known % size).astype(np.intp)
    ends = np.searchsorted(known, np.arange(count + 1, dtype=np.int64) * size).tolist()
    names = np.split(vehicles[order], np.cumsum(many)[:-1])
    groups = []
    for number, width in enumerate((_P * many).tolist()):
        rows = slice(ends[number], ends[number + 1])
        groups.append(
            VehicleGroup(
                vehicles=tuple(names[number].tolist()),
                slots=slots[rows].copy(),
                cross=values[rows, :width].copy(),
                information=blocks_of[number, :width, :width].copy(),
                pull=pulls[number, :width].copy(),
            )
        )
    return VehicleGroups(groups)
