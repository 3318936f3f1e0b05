"""Covariances of arms whose rewards are expected soon, kept up to date while others are learned."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from superarm.core import Floats, Ints


class ExpectedRows(NamedTuple):
    """Rows of the posterior covariance P: those of arms whose rewards are expected.

    To compute a row takes a pass over all rows of visited arms, to update it one over those that were
    just observed.
    """

    arms: Ints  # distinct row numbers, (k,)
    places: Ints  # the place of each of all arms among these, or −1, (n,)
    rows: Floats  # P of these arms with all arms, (k, n)

    @classmethod
    def of(cls, arms: Ints, rows: Floats) -> Self:
        """The rows of some arms.

        Args:
            arms: Distinct row numbers, (k,).
            rows: The covariance of each with all arms, (k, n).
        """
        places = np.full(rows.shape[1], -1, dtype=np.intp)
        places[arms] = np.arange(len(arms))
        return cls(arms, places, rows)

    @classmethod
    def none(cls, n: int) -> Self:
        """No rows.

        Args:
            n: The number of all arms.
        """
        return cls.of(np.empty(0, dtype=np.intp), np.empty((0, n)))

    def include(self, arms: Ints) -> bool:
        """Whether there is a row for each of these arms.

        Args:
            arms: Row numbers.
        """
        return bool((self.places[arms] >= 0).all())

    def take(self, arms: Ints) -> Floats:
        """The rows of some of these arms, a new array.

        Args:
            arms: Row numbers, (s,).
        """
        return self.rows[self.places[arms]]

    def after(self, W: Floats) -> Self:
        """The rows after an observation that reduced P by WᵀW.

        Args:
            W: (s, n), or (n,) for one arm.
        """
        observed = np.atleast_2d(W)
        reduction = observed[:, self.arms].T @ observed
        rows = np.subtract(self.rows, reduction, out=reduction)
        return self._replace(rows=rows)
