"""Powers (sI + Δ)^{−ν} of a graph's Laplacian: by a sparse factor, or by its eigenvectors.

For an integer ν a sparse factor of ``A`` = sI + Δ gives any column in ν solves, so the full matrix
exists only on demand. Any other ν needs the eigenvectors of Δ, n² numbers.

The normalisation of a kernel needs the full diagonal. diag(A⁻¹) comes from the factor by selected
inversion (``selected_inverse.py``). Its derivative with respect to the shift s gives diag(A⁻²): at a
shift of i·h the imaginary part over −h is that derivative, without any cancellation, so h can be as
small as 1e-20 and the result is exact to rounding.

The factor's order is SuperLU's own for small graphs. From ``LEAST_ORDERED`` nodes it is the elimination
order of the graph, where it offers one: there is less fill, and it takes less time to find. Solutions
differ by rounding alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any
from weakref import proxy

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.caching import cached_property
from superarm.core.compiling import is_compiled
from superarm.core.errors import InputError, NotPositiveDefiniteError
from superarm.core.graphs import Graph

from .elimination import Elimination, Factor, factorise, plan_elimination
from .incomplete_factor import IncompleteFactor

# Nodes up to which ν need not be an integer: the eigenvectors are n² numbers.
DENSE_LARGEST = 8000
# Nodes from which a graph's own elimination order is used.
LEAST_ORDERED = 20_000
_BLOCK = 32  # columns computed together: more would not stay in the cache
_STEP = 1e-20  # the complex step h, relative to the shift


def _not_positive(reason: str) -> NotPositiveDefiniteError:
    return NotPositiveDefiniteError(
        f"the Laplacian is not positive semi-definite: {reason}; check its signs (links count "
        "negatively off the diagonal)"
    )


class SparsePower:
    """(shift·I + Δ)^{−ν} for an integer ν, by a sparse factor that is computed on first use.

    Args:
        laplacian: Δ, sparse, (n, n).
        nu: ν, a positive integer.
        shift: Added to the diagonal, above 0.
        cache_bytes: Memory for solved columns.
        graph: Offers the ``elimination_order`` of large graphs; by default SuperLU finds one.
    """

    def __init__(
        self,
        laplacian: Any,
        nu: int,
        shift: float,
        cache_bytes: float,
        graph: Graph | None = None,
    ) -> None:
        self.size: int = laplacian.shape[0]
        self.laplacian = laplacian
        self._nu = nu
        self._shift = shift
        self._cache_bytes = cache_bytes
        self._graph = graph
        # The cache refers to a proxy, so that it does not keep its owner alive.
        column = partial(SparsePower._column, proxy(self))
        most_columns = int(cache_bytes // (8 * self.size))
        self._cached_column = lru_cache(most_columns)(column)

    def __reduce__(self) -> Any:
        # A factor cannot be pickled, and need not be.
        arguments = (self._nu, self._shift, self._cache_bytes, self._graph)
        return SparsePower, (self.laplacian, *arguments)

    def _shifted(self, shift: complex) -> Any:
        from scipy.sparse import diags_array

        diagonal = np.full(self.size, shift)
        A = self.laplacian + diags_array(diagonal)
        return A.tocsc()

    @property
    def _order(self) -> Ints | None:
        """The graph's elimination order, (n,); ``None``: SuperLU's own."""
        if self._graph is None or self.size < LEAST_ORDERED:
            return None
        return self._graph.elimination_order

    @cached_property
    def _factor(self) -> Factor | IncompleteFactor:
        """The sparse factor of A; refuses a Laplacian that is not positive semi-definite."""
        A = self._shifted(self._shift)
        if self._order is not None and is_compiled("auto"):
            # SuperLU stores both triangles, and its pivots cost a copy of each.
            try:
                return IncompleteFactor(A, 0.0, plan=self._plan)
            except NotPositiveDefiniteError as error:
                raise _not_positive(str(error)) from error
        factor = factorise(A, self._order)
        smallest = float(factor.pivots.min())
        if not smallest > 0.0:
            raise _not_positive(f"2ν/κ² I + Δ has a pivot {smallest:.3g}")
        return factor

    @cached_property
    def _plan(self) -> Elimination:
        """How A is eliminated by fronts."""
        return plan_elimination(self.laplacian, self._order)

    @cached_property
    def diagonal(self) -> Floats:
        """diag(A^{−ν}), (n,)."""
        from .selected_inverse import inverse_diagonal

        if self._nu > 2:
            return self._diagonal_by_solving()
        # Refuses a matrix that is not positive, for which selected inversion returns nonsense.
        _ = self._factor
        plan = self._plan
        shift = self._shift
        if self._nu == 1:
            A = self._shifted(shift)
            return np.asarray(inverse_diagonal(A, plan))
        step = _STEP * shift
        stepped = self._shifted(complex(shift, step))
        diagonal = inverse_diagonal(stepped, plan)
        return np.asarray(-diagonal.imag / step)

    def _diagonal_by_solving(self) -> Floats:
        """diag(A^{−ν}) = columns of A^{−⌊ν/2⌋} times those of A^{−⌈ν/2⌉}."""
        n = self.size
        smaller_half = self._nu // 2
        difference = self._nu % 2
        diagonal = np.empty(n)
        for start in range(0, n, _BLOCK):
            stop = min(start + _BLOCK, n)
            unit = np.zeros((n, stop - start), order="F")
            np.fill_diagonal(unit[start:stop], 1.0)
            left = self.solve(unit, smaller_half)
            right = self.solve(left, difference)
            diagonal[start:stop] = np.einsum("ij,ij->j", left, right)
        return diagonal

    @cached_property
    def precision(self) -> Any:
        """A^ν, sparse (n, n); do not write into it."""
        A = self._shifted(self._shift)
        power = A
        for _ in range(self._nu - 1):
            power = power @ A
        return power.tocsc()

    def precision_times(self, values: Floats) -> Floats:
        """A^ν times ``values``, (n,) or (n, k), without A^ν."""
        laplacian = self.laplacian.T  # itself, by rows
        for _ in range(self._nu):
            values = laplacian @ values + self._shift * values
        return values

    @cached_property
    def precision_plan(self) -> Elimination:
        """How A^ν is eliminated: in the graph's own order where it has one for this power."""
        order = None
        if self._graph is not None and self._nu == 1:
            order = self._graph.elimination_order
        elif self._graph is not None and self._nu == 2:
            order = self._graph.squared_order
        return plan_elimination(self.precision, order)

    @property
    def log_det(self) -> float:
        """ln det A^ν."""
        return self._nu * self._factor.log_det

    def solve(self, right: Floats, times: int) -> Floats:
        """A^{−times} times ``right``, (n,) or (n, k)."""
        for _ in range(times):
            right = self._factor.solve(right)
        return right

    def columns(self, nodes: Ints) -> Iterator[Floats]:
        """The columns (n,) of ``nodes``, in their order; do not write into them."""
        # One by one: BLAS rounds a column depending on how many are solved beside it, and the cache
        # must not depend on which came first. Solving 32 at once would save a tenth of the time.
        for node in nodes.tolist():
            yield self._cached_column(node)

    def _column(self, node: int) -> Floats:
        unit = np.zeros(self.size)
        unit[node] = 1.0
        return self.solve(unit, self._nu)


class DensePower:
    """(shift·I + Δ)^{−ν} for any ν: R Rᵀ, R = eigenvectors of Δ · (shift + eigenvalue)^{−ν/2}.

    Args:
        laplacian: Δ, sparse, (n, n).
        nu: ν, above 0.
        shift: Added to the diagonal, above 0.
    """

    def __init__(self, laplacian: Any, nu: float, shift: float) -> None:
        self.size: int = laplacian.shape[0]
        if self.size > DENSE_LARGEST:
            raise InputError(
                f"GraphMatern with nu = {nu:g} needs all eigenvectors of a graph of {self.size} nodes; "
                f"that is done up to {DENSE_LARGEST}. An integer nu works at any size"
            )
        self.laplacian = laplacian
        self._nu = nu
        self._shift = shift

    def __getstate__(self) -> dict[str, Any]:
        # A copy: another thread may be filling in a cached property.
        return dict(vars(self))

    @cached_property
    def _root(self) -> Floats:
        laplacian = self.laplacian.toarray()
        eigenvalues, vectors = np.linalg.eigh(laplacian)
        shifted = self._shift + eigenvalues
        smallest = float(shifted[0])
        if not smallest > 0.0:
            raise _not_positive(f"2ν/κ² I + Δ has an eigenvalue {smallest:.3g}")
        half_power = -0.5 * self._nu
        vectors *= shifted**half_power
        return vectors

    @cached_property
    def diagonal(self) -> Floats:
        """diag(A^{−ν}), (n,)."""
        return np.asarray(np.einsum("ij,ij->i", self._root, self._root))

    def columns(self, nodes: Ints) -> Iterator[Floats]:
        """The columns (n,) of ``nodes``, in their order."""
        root = self._root
        for start in range(0, len(nodes), _BLOCK):
            some_nodes = nodes[start : start + _BLOCK]
            block = root[some_nodes]
            yield from block @ root.T
