"""Blocks of the preconditioner of the sparse form with hours, inverted; see :mod:`.hourly_equations`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from superarm.core import Floats, Ints
from superarm.kernels.incomplete_factor import IncompleteFactor
from superarm.kernels.sparse_factor import SparseFactor

from .hourly_information import TermsInformation


class NearColumns(NamedTuple):
    """New unknowns y in place of g, whose columns are linked as little as possible: g = y Uᵀ N^½."""

    rotation: Floats  # N^½ U, (B, B)
    shifts: Floats  # s: what trips contain about each column, (B, n)

    @classmethod
    def of(cls, near: Floats, known: Floats) -> Self:
        """The columns that diagonalise what trips contain about all roads together.

        Args:
            near: N, (B,).
            known: S: what trips contain about g of each road, (n, B, B).
        """
        near_std = np.sqrt(near)
        of_all = near_std[:, None] * known.sum(axis=0) * near_std
        _, U = np.linalg.eigh(of_all)
        rotation = near_std[:, None] * U
        shifts = np.einsum("bj,nbj->jn", rotation, known @ rotation)
        # Of roads that were never driven on they are 0 but for rounding.
        positive = np.maximum(shifts, 0.0)
        return cls(rotation, np.ascontiguousarray(positive))

    def unlinked_part(self, roads: Ints) -> Floats:
        """The part of S of these roads that links no columns, (u, B, B)."""
        to_columns = np.linalg.inv(self.rotation)
        shifts = self.shifts[:, roads]
        return np.asarray(np.einsum("jb,ju,jc->ubc", to_columns, shifts, to_columns))


class NearInverse(NamedTuple):
    """The inverse of the block over g, once f is eliminated."""

    columns: NearColumns
    factors: Sequence[SparseFactor | IncompleteFactor]  # of K⁻¹ + s, column by column

    def times(self, right: Floats) -> Floats:
        """g of this right-hand side, (n, B)."""
        rotation = self.columns.rotation
        rotated = np.ascontiguousarray((right @ rotation).T)
        y = [
            factor.solve(column)
            for factor, column in zip(self.factors, rotated, strict=True)
        ]
        return np.asarray(np.column_stack(y) @ rotation.T)


class TermsInverse(NamedTuple):
    """The inverse of the block over (w, w_v), with w flat, (5B,)."""

    vehicle_inverse: Floats  # (V_v⁻¹ + information)⁻¹, (V, 5, 5)
    gain: Floats  # the same times the information about w_v and w, (V, 5, 5B)
    fleet_inverse: Floats  # (5B, 5B)

    @classmethod
    def of(
        cls, information: TermsInformation, fleet_prior: Floats, vehicle_prior: Floats
    ) -> Self:
        """The inverse of this information and the prior.

        Args:
            information: What trips contain.
            fleet_prior: Prior variances of w, (5, B).
            vehicle_prior: Prior variances of w_v, (5,).
        """
        of_vehicles = np.diag(1.0 / vehicle_prior) + information.vehicles
        vehicle_inverse = inverse_of(of_vehicles)
        gain = vehicle_inverse @ information.cross
        fleet = np.diag(1.0 / fleet_prior.ravel()) + information.fleet
        fleet -= np.einsum("vij,vik->jk", information.cross, gain)
        fleet_inverse = inverse_of(0.5 * (fleet + fleet.T))
        return cls(vehicle_inverse, gain, fleet_inverse)

    def times(self, fleet: Floats, vehicles: Floats) -> tuple[Floats, Floats]:
        """w, (5, B), and w_v, (V, 5), of these right-hand sides."""
        explained = np.einsum("vji,vj->i", self.gain, vehicles)
        w = self.fleet_inverse @ (fleet.ravel() - explained)
        w_v = np.einsum("vij,vj->vi", self.vehicle_inverse, vehicles)
        w_v -= self.gain @ w
        return w.reshape(fleet.shape), w_v


def inverse_of(matrices: Floats) -> Floats:
    """Inverses of small matrices, (…, k, k)."""
    return np.asarray(np.linalg.inv(matrices), dtype=np.float64)


def diagonal_matrices(values: Floats) -> Floats:
    """Diagonal matrices, (n, k, k), of their diagonals, (n, k)."""
    count, size = values.shape
    matrices = np.zeros((count, size, size))
    places = np.arange(size)
    matrices[:, places, places] = values
    return matrices
