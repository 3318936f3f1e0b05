"""The Matérn kernel of a graph: what is learned of a node carries along the graph's links.

Notation

=============  =====================================================================
``n``          nodes; for a road network its edges, numbered 0 … n−1
``Δ``          Laplacian, (n, n), sparse, symmetric, positive semi-definite
``A``          2ν/κ² I + Δ
``c``          the normalisation: a number, or diagonal matrices on both sides
=============  =====================================================================

Covariance (eq. 134 of Bayesian Analysis of Combinatorial Gaussian Process Bandits (2025))::

    K = variance · c · (2ν/κ² I + Δ)^{−ν}

For an integer ν a sparse factor of ``A`` gives any column of ``K`` in ν solves, so that the whole
matrix never exists unless it is asked for. For any other ν the eigenvectors of Δ are needed, and
with them n² numbers.

The normalisation needs the whole diagonal. diag(A⁻¹) comes from the factor by selected inversion
(``selected_inverse.py``). Differentiating it by the shift s of ``A + sI`` gives diag(A⁻²): at a
shift of i·h the imaginary part over −h is that derivative, without any cancellation, so that h
can be as small as 1e-20 and the result is exact to rounding.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property, lru_cache, partial
from typing import Any, ClassVar, Literal, Self
from weakref import proxy

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.errors import (
    InputError,
    NotFiniteError,
    NotPositiveDefiniteError,
    ShapeError,
)
from superarm.core.graphs import Graph, SparseGraph
from superarm.core.inputs import as_number, as_numbers, as_vector, require_choice
from superarm.core.registry import HasParameters, has_spec, register

from .base import DEFAULT_BOUNDS, Bounds, Kernel, set_columns, set_positive

Normalisation = Literal["mean", "unit", "raw"]

DENSE_LARGEST = (
    8000  # nodes up to which ν may be no integer: its eigenvectors are n² numbers
)
_BLOCK = 32  # columns made together: more would not stay in the cache
_STEP = 1e-20  # the complex step, relative to 2ν/κ²
_LARGEST_ENTRY = 1e30
# ν takes as many solves per column; beyond these the smallest variances underflow.
_RANGES = {"nu": (0.01, 32.0), "kappa": (1e-6, 1e6)}


@register("kernel", "graph-matern")
@dataclass(frozen=True, eq=False)
class GraphMatern(Kernel, HasParameters):
    """k(i, j) = variance · c · [(2ν/κ² I + Δ)^{−ν}]_ij for the nodes i, j of a graph.

    ``network`` is a graph with a method ``laplacian()``, or the sparse Laplacian itself. The
    kernel's one column holds node numbers 0 … n−1. ``normalisation`` makes the diagonal 1 on
    average (``"mean"``), 1 everywhere (``"unit"``), or leaves it (``"raw"``): left alone, short
    edges of a road network vary far less than long ones.

    An integer ``nu`` works on networks of any size, any other up to 8000 nodes.
    ``cache_megabytes`` keeps columns that were solved for, the latest used, for all posteriors
    that share this object. Only ``variance`` can be fitted.

    Args:
        network: The graph, or its Laplacian.
        nu: Smoothness: 1 and 2 are the usual values; an even number allows sparse draws.
        kappa: How far similarity reaches along the graph.
        variance: Prior variance of the function values.
        normalisation: How the variance of the graph kernel is scaled: mean, unit or raw.
        columns: The columns of ``X`` that the kernel sees; ``None`` is all of them.
        cache_megabytes: Memory for solved columns, shared by all posteriors with this kernel.
        variance_bounds: Limits between which ``variance`` is fitted, or "fixed".

    >>> from scipy.sparse import csc_array
    >>> path = csc_array([[1.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 1.0]])
    >>> kernel = GraphMatern(path, nu=2, kappa=1.0, normalisation="unit")
    >>> kernel([[0], [1], [2]]).round(3).tolist()
    [[1.0, 0.359, 0.096], [0.359, 1.0, 0.359], [0.096, 0.359, 1.0]]
    """

    hyperparameters: ClassVar[tuple[str, ...]] = ("variance",)

    network: Any
    _: KW_ONLY
    nu: float = 2
    kappa: float = 1.0
    variance: float = 1.0
    normalisation: Normalisation = "mean"
    columns: tuple[int, ...] = (0,)
    cache_megabytes: float = 0.0
    variance_bounds: Bounds = DEFAULT_BOUNDS
    _graph: _Spectrum | _Factor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name, limits in _RANGES.items():
            value = as_number(getattr(self, name), f"GraphMatern.{name}", *limits)
            object.__setattr__(self, name, value)
        set_positive(self, "variance")
        set_columns(self)
        columns: Any = self.columns
        if columns is None or len(columns) != 1:
            told = "name the one column that holds node numbers"
            raise InputError(f"GraphMatern.columns is {self.columns!r}; {told}")
        require_choice(
            self.normalisation, "GraphMatern.normalisation", ("mean", "unit", "raw")
        )
        as_number(self.cache_megabytes, "GraphMatern.cache_megabytes", 0.0)
        laplacian, shift = _laplacian_of(self.network), 2.0 * self.nu / self.kappa**2
        graph: _Spectrum | _Factor = (
            _Factor(laplacian, int(self.nu), shift, 1e6 * self.cache_megabytes)
            if self.nu == int(self.nu)
            else _Spectrum(laplacian, self.nu, shift)
        )
        object.__setattr__(self, "_graph", graph)

    def parameters(self) -> Mapping[str, Any]:
        """All but the cache, which is the machine's business."""
        graph = (
            self.network
            if has_spec(self.network)
            else SparseGraph.of(self._graph.laplacian)
        )
        names = (
            "nu",
            "kappa",
            "variance",
            "normalisation",
            "columns",
            "variance_bounds",
        )
        return {"network": graph, **{name: getattr(self, name) for name in names}}

    def __len__(self) -> int:
        """Nodes of the graph."""
        return self._graph.size

    def clone_with_theta(self, theta: Any) -> Self:
        """The same kernel with another variance; it shares the factor and the cache."""
        values = as_vector(theta, "theta", len(self.theta))
        clone = copy.copy(self)
        if len(values):
            object.__setattr__(clone, "variance", float(np.exp(values[0])))
            set_positive(clone, "variance")
        return clone

    def _covariance(self, X: Floats, Y: Floats | None) -> Floats:
        rows = self._nodes(X)
        columns = rows if Y is None else self._nodes(Y)
        # Columns of K are solved for those nodes of which there are fewer.
        swapped = len(columns) < len(rows)
        wanted, others = (columns, rows) if swapped else (rows, columns)
        distinct, first, places = np.unique(
            wanted, return_index=True, return_inverse=True
        )
        everywhere = np.array_equal(others, np.arange(len(self)))
        K = np.empty((len(wanted), len(others)))
        for row, column in zip(
            first, self._graph.columns(distinct), strict=True
        ):  # (n,)
            if everywhere:
                K[row] = column
            else:
                np.take(
                    column, others, out=K[row], mode="clip"
                )  # which writes without a buffer
        if len(distinct) < len(wanted):
            repeated = np.setdiff1d(np.arange(len(wanted)), first)
            K[repeated] = K[first[places[repeated]]]
        self._scale(K, wanted, others)
        if Y is None:
            _symmetrise(K)
            if (
                self.normalisation != "raw"
            ):  # which needs the whole diagonal for nothing else
                np.fill_diagonal(K, self._diagonal(X))
        return K.T if swapped else K

    def times(self, values: Floats) -> Floats:
        """K over all nodes times ``values``, (n,) or (n, k), without making K; for an integer ν."""
        root = (
            np.sqrt(self._graph.diagonal)
            if self.normalisation == "unit"
            else np.ones(len(self))
        )
        scale = self.variance if self.normalisation == "unit" else self._factor_of_all
        inner = (values.T / root).T
        product: Floats = (
            scale * (self._sparse().solved(inner, int(self.nu)).T / root).T
        )
        return product

    def root_times(self, normals: Floats) -> Floats:
        """R times ``normals``, (n,) or (n, k), where R Rᵀ = K over all nodes; for an even ν."""
        root = (
            np.sqrt(self._graph.diagonal)
            if self.normalisation == "unit"
            else np.ones(len(self))
        )
        scale = self.variance if self.normalisation == "unit" else self._factor_of_all
        if self.nu % 2:
            raise InputError(
                f"nu is {self.nu:g}; a sparse root exists where it is even"
            )
        drawn = self._sparse().solved(normals, int(self.nu) // 2)
        return np.asarray(np.sqrt(scale) * (drawn.T / root).T)

    def _sparse(self) -> _Factor:
        if not isinstance(self._graph, _Factor):
            raise InputError(f"nu is {self.nu:g}; sparse solves need a whole number")
        return self._graph

    def _scale(self, K: Floats, rows: Ints, columns: Ints) -> None:
        if self.normalisation == "unit":
            root = np.sqrt(self._graph.diagonal)
            K *= (self.variance / root[rows])[:, None]
            K /= root[columns]
        else:
            K *= self._factor_of_all

    @property
    def _factor_of_all(self) -> float:
        if self.normalisation == "raw":
            return self.variance
        return self.variance / float(self._graph.diagonal.mean())

    def _diagonal(self, X: Floats) -> Floats:
        nodes = self._nodes(X)
        if self.normalisation == "unit":
            return np.full(len(nodes), self.variance)
        return np.asarray(self._factor_of_all * self._graph.diagonal[nodes])

    def draws(self, normals: Floats) -> Floats:
        """Draws of this kernel over its standard deviation at every node, (m, n), for an even ν.

        A^{−ν/2} times standard normals (m, n), by ν/2 sparse solves each.
        """
        if not isinstance(self._graph, _Factor) or self.nu % 2:
            raise InputError(
                f"nu is {self.nu:g}; draws are made by sparse solves where it is even"
            )
        scale = np.sqrt(self._graph.diagonal)
        return np.stack(
            [self._graph.solved(row, int(self.nu) // 2) / scale for row in normals]
        )

    def _gradients(self, X: Floats, K: Floats) -> Mapping[str, Sequence[Floats]]:
        return {"variance": [K]}

    def nodes(self, X: Any) -> Ints:
        """Numbers of the nodes that the rows of ``X`` name, (n,)."""
        return self._nodes(self._select(X, "X"))

    def _nodes(self, X: Floats) -> Ints:
        return as_numbers(
            X[:, 0], len(self), "the nodes of this graph", self.columns[0]
        )


def _symmetrise(K: Floats, block: int = 512) -> None:
    """K ← (K + Kᵀ)/2 in place: solves for i and for j differ in the last digit."""
    for i in range(0, len(K), block):
        for j in range(0, i + 1, block):
            here, there = (
                K[i : i + block, j : j + block],
                K[j : j + block, i : i + block],
            )
            mean = 0.5 * (here + there.T)
            here[...], there[...] = mean, mean.T


def _laplacian_of(network: Any) -> Any:
    """A checked copy in compressed columns."""
    from scipy.sparse import csc_array, issparse

    given: Any = network.laplacian() if isinstance(network, Graph) else network
    is_sparse: bool = issparse(given)
    if not is_sparse:
        raise InputError(
            f"GraphMatern.network is a {type(network).__name__}; give a graph with a method "
            "laplacian(), or a sparse matrix (wrap an array in scipy.sparse.csc_array)"
        )
    if given.ndim != 2 or given.shape[0] != given.shape[1] or given.shape[0] == 0:
        raise ShapeError(
            f"the Laplacian has shape {given.shape}; it must be square, not empty"
        )
    if given.dtype.kind == "c":
        raise InputError("the Laplacian holds complex numbers; it must be real")
    laplacian = csc_array(given, dtype=np.float64, copy=True)
    laplacian.sum_duplicates()
    if not np.isfinite(laplacian.data).all():
        raise NotFiniteError("the Laplacian holds NaN or infinity")
    largest = float(np.abs(laplacian.data).max(initial=0.0))
    if largest > _LARGEST_ENTRY:
        raise InputError(
            f"the Laplacian holds {largest:.3g}; above {_LARGEST_ENTRY:g} it overflows"
        )
    if (gap := abs(laplacian - laplacian.T)).nnz and gap.max() > 1e-8 * largest:
        told = "for a directed graph use B Bᵀ, B its incidence matrix"
        raise InputError(f"the Laplacian is not symmetric; {told}")
    return (0.5 * (laplacian + laplacian.T)).tocsc()


def _not_positive(smallest: float) -> NotPositiveDefiniteError:
    return NotPositiveDefiniteError(
        f"the Laplacian is not positive semi-definite: 2ν/κ² I + Δ has a pivot or eigenvalue "
        f"{smallest:.3g}; check its signs (links count negatively off the diagonal)"
    )


class _Factor:
    """(shift·I + Δ)^{−ν} for an integer ν: by a sparse factor, made when it is first needed."""

    def __init__(
        self, laplacian: Any, nu: int, shift: float, cache_bytes: float
    ) -> None:
        self.size: int = laplacian.shape[0]
        self.laplacian, self._nu, self._shift = laplacian, nu, shift
        self._cache_bytes = cache_bytes
        column = partial(
            _Factor._column, proxy(self)
        )  # the cache must not keep alive what has it
        self._kept = lru_cache(int(cache_bytes // (8 * self.size)))(column)

    def __reduce__(self) -> Any:
        # A factor cannot be pickled, and need not be.
        return _Factor, (self.laplacian, self._nu, self._shift, self._cache_bytes)

    def _shifted(self, shift: complex) -> Any:
        from scipy.sparse import diags_array

        return (self.laplacian + diags_array(np.full(self.size, shift))).tocsc()

    @cached_property
    def _factor(self) -> Any:
        """The sparse factor of A; a Laplacian that is not positive semi-definite is refused here."""
        from .selected_inverse import factorise

        factor = factorise(self._shifted(self._shift))
        if not (smallest := float(factor.U.diagonal().min())) > 0.0:
            raise _not_positive(smallest)
        return factor

    @cached_property
    def diagonal(self) -> Floats:
        from .selected_inverse import inverse_diagonal, plan_elimination

        if self._nu > 2:
            return self._diagonal_by_solving()
        _ = (
            self._factor
        )  # refuses what is not positive, of which selected inversion makes nonsense
        plan = plan_elimination(self.laplacian)
        if self._nu == 1:
            return np.asarray(inverse_diagonal(self._shifted(self._shift), plan))
        step = _STEP * self._shift
        second = inverse_diagonal(self._shifted(complex(self._shift, step)), plan)
        return np.asarray(-second.imag / step)

    def _diagonal_by_solving(self) -> Floats:
        """diag(A^{−ν}) = columns of A^{−⌊ν/2⌋} times those of A^{−⌈ν/2⌉}."""
        diagonal = np.empty(self.size)
        for start in range(0, self.size, _BLOCK):
            nodes = np.arange(start, min(start + _BLOCK, self.size))
            unit = np.zeros((self.size, len(nodes)), order="F")
            unit[nodes, np.arange(len(nodes))] = 1.0
            half = self.solved(unit, self._nu // 2)
            diagonal[nodes] = np.einsum(
                "ij,ij->j", half, self.solved(half, self._nu % 2)
            )
        return diagonal

    def solved(self, right: Floats, times: int) -> Floats:
        for _ in range(times):
            right = self._factor.solve(right)
        return right

    def columns(self, nodes: Ints) -> Iterator[Floats]:
        """The columns (n,) of ``nodes``, in their order; do not write into them."""
        # One by one: BLAS rounds a column by how many are solved beside it, and what is kept must
        # not depend on who asked first. Solving 32 at once would save a tenth of the time.
        for node in nodes.tolist():
            yield self._kept(node)

    def _column(self, node: int) -> Floats:
        unit = np.zeros(self.size)
        unit[node] = 1.0
        return self.solved(unit, self._nu)


class _Spectrum:
    """The same for any ν: R Rᵀ, R = eigenvectors of Δ · (shift + eigenvalue)^{−ν/2}."""

    def __init__(self, laplacian: Any, nu: float, shift: float) -> None:
        self.size: int = laplacian.shape[0]
        if self.size > DENSE_LARGEST:
            raise InputError(
                f"GraphMatern with nu = {nu:g} needs all eigenvectors of a graph of {self.size} nodes; "
                f"that is done up to {DENSE_LARGEST}. An integer nu works at any size"
            )
        self.laplacian, self._nu, self._shift = laplacian, nu, shift

    def __getstate__(self) -> dict[str, Any]:
        return dict(
            vars(self)
        )  # a copy of it: another thread may be filling in what is lazy

    @cached_property
    def _root(self) -> Floats:
        values, vectors = np.linalg.eigh(self.laplacian.toarray())
        shifted = self._shift + values
        if not shifted[0] > 0.0:
            raise _not_positive(float(shifted[0]))
        vectors *= shifted ** (-0.5 * self._nu)
        return vectors

    @cached_property
    def diagonal(self) -> Floats:
        return np.asarray(np.einsum("ij,ij->i", self._root, self._root))

    def columns(self, nodes: Ints) -> Iterator[Floats]:
        for start in range(0, len(nodes), _BLOCK):
            yield from self._root[nodes[start : start + _BLOCK]] @ self._root.T
