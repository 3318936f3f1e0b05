"""The Matérn kernel of a graph: an observation of a node informs its neighbours.

Notation

=============  =====================================================================
``n``          nodes; for a road network its edges, numbered 0 … n−1
``Δ``          Laplacian, (n, n), sparse, symmetric, positive semi-definite
``A``          2ν/κ² I + Δ
``c``          the normalisation: a number, or diagonal matrices on both sides
=============  =====================================================================

Covariance (eq. 134 of Bayesian Analysis of Combinatorial Gaussian Process Bandits (2025))::

    K = variance · c · (2ν/κ² I + Δ)^{−ν}
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Literal, Self

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.errors import InputError, NotFiniteError, ShapeError
from superarm.core.graphs import Graph, SparseGraph
from superarm.core.inputs import as_number, as_numbers, as_vector, require_choice
from superarm.core.registry import HasParameters, has_spec, register

from .base import DEFAULT_BOUNDS, Bounds, Gradients, Kernel
from .checks import set_columns, set_positive
from .graph_powers import DensePower, SparsePower
from .incomplete_factor import DROP, IncompleteFactor

Normalisation = Literal["mean", "unit", "raw"]

_LARGEST_ENTRY = 1e30
# ν takes as many solves per column; beyond these the smallest variances underflow.
_NU_RANGE = (0.01, 32.0)
_KAPPA_RANGE = (1e-6, 1e6)
_SLACK = 1e-8  # allowed asymmetry of a Laplacian, relative to its largest entry
_BYTES_PER_MEGABYTE = 1e6


@register("kernel", "graph-matern")
@dataclass(frozen=True, eq=False)
class GraphMatern(Kernel, HasParameters):
    """k(i, j) = variance · c · [(2ν/κ² I + Δ)^{−ν}]_ij for the nodes i, j of a graph.

    The kernel's one column contains node numbers 0 … n−1. Without normalisation, short edges of a road
    network vary far less than long ones. An integer ``nu`` works on networks of any size, any other up
    to 8000 nodes. Only ``variance`` can be fitted.

    Args:
        network: A graph with a method ``laplacian()``, or the sparse Laplacian itself.
        nu: Smoothness ν; 1 and 2 are the usual values, and an even number allows sparse draws.
        kappa: κ: how far similarity reaches along the graph.
        variance: Prior variance of the function values.
        normalisation: Makes the prior variances ``variance`` on average ("mean") or everywhere
            ("unit"), or leaves them as they are ("raw").
        columns: The one column of ``X`` that contains node numbers.
        cache_megabytes: Memory for the columns solved for last, shared by all posteriors with this
            kernel. A column takes 8 bytes for each node: by default, those of a few pending routes
            through 6,000 edges fit.
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
    cache_megabytes: float = 16.0
    variance_bounds: Bounds = DEFAULT_BOUNDS
    _graph: SparsePower | DensePower = field(init=False, repr=False)

    def __post_init__(self) -> None:
        nu = as_number(self.nu, "GraphMatern.nu", *_NU_RANGE)
        object.__setattr__(self, "nu", nu)
        kappa = as_number(self.kappa, "GraphMatern.kappa", *_KAPPA_RANGE)
        object.__setattr__(self, "kappa", kappa)
        set_positive(self, "variance")
        set_columns(self)
        columns: Any = self.columns
        if columns is None or len(columns) != 1:
            raise InputError(
                f"GraphMatern.columns is {self.columns!r}; name the one column that holds node numbers"
            )
        choices = ("mean", "unit", "raw")
        require_choice(self.normalisation, "GraphMatern.normalisation", choices)
        as_number(self.cache_megabytes, "GraphMatern.cache_megabytes", 0.0)
        power = self._power()
        object.__setattr__(self, "_graph", power)

    def _power(self) -> SparsePower | DensePower:
        """(2ν/κ² I + Δ)^{−ν}, computed when needed."""
        laplacian = _laplacian_of(self.network)
        shift = 2.0 * self.nu / self.kappa**2
        integer_nu = int(self.nu)
        if self.nu != integer_nu:
            return DensePower(laplacian, self.nu, shift)
        cache_bytes = _BYTES_PER_MEGABYTE * self.cache_megabytes
        graph = self.network if isinstance(self.network, Graph) else None
        return SparsePower(laplacian, integer_nu, shift, cache_bytes, graph)

    def parameters(self) -> Mapping[str, Any]:
        """All parameters except the cache, which depends on the machine."""
        network = self.network
        if not has_spec(network):
            network = SparseGraph.of(self._graph.laplacian)
        return {
            "network": network,
            "nu": self.nu,
            "kappa": self.kappa,
            "variance": self.variance,
            "normalisation": self.normalisation,
            "columns": self.columns,
            "variance_bounds": self.variance_bounds,
        }

    def __len__(self) -> int:
        """The number of nodes of the graph."""
        return self._graph.size

    def clone_with_theta(self, theta: Any) -> Self:
        """The same kernel with another variance; it shares the factor and the cache.

        Args:
            theta: The logarithm of the variance, (1,), or nothing if that is fixed.
        """
        size = len(self.theta)
        values = as_vector(theta, "theta", size)
        clone = copy.copy(self)
        if size:
            variance = float(np.exp(values[0]))
            object.__setattr__(clone, "variance", variance)
            set_positive(clone, "variance")
        return clone

    def _covariance(self, X: Floats, Y: Floats | None) -> Floats:
        rows = self._nodes(X)
        if Y is not None:
            columns = self._nodes(Y)
            # Solve for the fewer nodes; K is symmetric.
            if len(columns) < len(rows):
                return self._rows(columns, rows).T
            return self._rows(rows, columns)
        K = self._rows(rows, rows)
        _symmetrise(K)
        # A raw kernel would need the full diagonal for nothing else.
        if self.normalisation != "raw":
            diagonal = self._diagonal(X)
            np.fill_diagonal(K, diagonal)
        return K

    def _rows(self, nodes: Ints, others: Ints) -> Floats:
        """Rows of K by solving, one for each of ``nodes``, at the places ``others``."""
        distinct, first, inverse = np.unique(
            nodes, return_index=True, return_inverse=True
        )
        all_nodes = np.arange(len(self))
        everywhere = np.array_equal(others, all_nodes)
        K = np.empty((len(nodes), len(others)))
        columns = self._graph.columns(distinct)  # (n,) each
        for row, column in zip(first, columns, strict=True):
            if everywhere:
                K[row] = column
            else:
                # mode="clip" writes without a buffer.
                np.take(column, others, out=K[row], mode="clip")
        if len(distinct) < len(nodes):
            all_rows = np.arange(len(nodes))
            repeated = np.setdiff1d(all_rows, first)
            originals = first[inverse[repeated]]
            K[repeated] = K[originals]
        self._scale(K, nodes, others)
        return K

    def _scale(self, K: Floats, rows: Ints, columns: Ints) -> None:
        if self.normalisation == "unit":
            root = np.sqrt(self._graph.diagonal)
            row_factors = self.variance / root[rows]
            K *= row_factors[:, None]
            K /= root[columns]
        else:
            K *= self._common_factor

    @property
    def _common_factor(self) -> float:
        """variance · c where c is a number: for "mean" and "raw"."""
        if self.normalisation == "raw":
            return self.variance
        mean = float(self._graph.diagonal.mean())
        return self.variance / mean

    def _diagonal(self, X: Floats) -> Floats:
        nodes = self._nodes(X)
        if self.normalisation == "unit":
            return np.full(len(nodes), self.variance)
        diagonal = self._graph.diagonal[nodes]
        return np.asarray(self._common_factor * diagonal)

    def _gradients(self, X: Floats, K: Floats) -> Gradients:
        return {"variance": [K]}

    # --- products and draws without the matrix -------------------------------------------

    def times(self, values: Floats) -> Floats:
        """K over all nodes times ``values``, without computing K; for an integer ν.

        Args:
            values: (n,) or (n, k).
        """
        root = self._node_scales()
        scale = self._scale_of_all()
        sparse = self._sparse()
        inner = (values.T / root).T
        solution = sparse.solve(inner, int(self.nu))
        product: Floats = scale * (solution.T / root).T
        return product

    def precision(self) -> Any:
        """K⁻¹ over all nodes, sparse (n, n), for an integer ν."""
        from scipy.sparse import diags_array

        scale = self._scale_of_all()
        root = diags_array(self._node_scales())
        power = self._sparse().precision
        return ((root @ power @ root) / scale).tocsc()

    def precision_times(self, values: Floats) -> Floats:
        """K⁻¹ over all nodes times ``values``, without computing K⁻¹; for an integer ν.

        Args:
            values: (n,) or (n, k).
        """
        root = self._node_scales()
        inner = (values.T * root).T
        product = self._sparse().precision_times(inner)
        return np.asarray((product.T * root).T / self._scale_of_all())

    def precision_factor(
        self, scale: float, shift: Floats, drop: float = DROP
    ) -> IncompleteFactor:
        """The factor of scale · K⁻¹ + diag(shift) over all nodes, for an integer ν.

        Args:
            scale: What multiplies K⁻¹.
            shift: What is added to the diagonal, (n,).
            drop: How small entries of the factor must be to be dropped.
        """
        sparse = self._sparse()
        if self.normalisation == "unit":
            matrix = self.precision()
        else:
            matrix = sparse.precision
            scale /= self._scale_of_all()
        plan = sparse.precision_plan
        return IncompleteFactor(matrix, drop, plan=plan, scale=scale, shift=shift)

    def log_det_precision(self) -> float:
        """ln det K⁻¹ over all nodes, for an integer ν."""
        of_scales = 2.0 * float(np.log(self._node_scales()).sum())
        of_variance = len(self) * float(np.log(self._scale_of_all()))
        return self._sparse().log_det + of_scales - of_variance

    def root_times(self, normals: Floats) -> Floats:
        """R times ``normals``, where R Rᵀ = K over all nodes; for an even ν.

        Args:
            normals: Standard normals, (n,) or (n, k).
        """
        root = self._node_scales()
        scale = self._scale_of_all()
        if self.nu % 2:
            raise InputError(
                f"nu is {self.nu:g}; a sparse root exists where it is even"
            )
        sparse = self._sparse()
        half = int(self.nu) // 2
        draws = sparse.solve(normals, half)
        scaled_draws = (draws.T / root).T
        return np.asarray(np.sqrt(scale) * scaled_draws)

    def draws(self, normals: Floats) -> Floats:
        """Draws of this kernel over its standard deviation at every node, (m, n), for an even ν.

        They are A^{−ν/2} times standard normals, by ν/2 sparse solves each.

        Args:
            normals: Standard normals, (m, n).
        """
        graph = self._graph
        if not isinstance(graph, SparsePower) or self.nu % 2:
            raise InputError(
                f"nu is {self.nu:g}; draws are made by sparse solves where it is even"
            )
        std = np.sqrt(graph.diagonal)
        half = int(self.nu) // 2
        draws = [graph.solve(row, half) / std for row in normals]
        return np.stack(draws)

    def _node_scales(self) -> Floats:
        """What divides the rows and columns of A^{−ν}, (n,)."""
        if self.normalisation == "unit":
            return np.sqrt(self._graph.diagonal)
        return np.ones(len(self))

    def _scale_of_all(self) -> float:
        """What multiplies A^{−ν}, apart from :meth:`_node_scales`."""
        if self.normalisation == "unit":
            return self.variance
        return self._common_factor

    def _sparse(self) -> SparsePower:
        if not isinstance(self._graph, SparsePower):
            raise InputError(f"nu is {self.nu:g}; sparse solves need a whole number")
        return self._graph

    # --- nodes ---------------------------------------------------------------------------

    def nodes(self, X: Any) -> Ints:
        """Numbers of the nodes that the rows of ``X`` name, (m,).

        Args:
            X: One row per arm, (m, d).
        """
        rows = self._select(X, "X")
        return self._nodes(rows)

    def _nodes(self, X: Floats) -> Ints:
        (column,) = self.columns
        numbers = X[:, 0]
        return as_numbers(numbers, len(self), "the nodes of this graph", column)


def _symmetrise(K: Floats, block: int = 512) -> None:
    """K ← (K + Kᵀ)/2 in place: solves for i and for j differ in the last digit."""
    starts = range(0, len(K), block)
    blocks = [slice(start, start + block) for start in starts]
    for number, rows in enumerate(blocks):
        for columns in blocks[: number + 1]:
            lower = K[rows, columns]
            upper = K[columns, rows]
            mean = 0.5 * (lower + upper.T)
            lower[...] = mean
            upper[...] = mean.T


def _laplacian_of(network: Any) -> Any:
    """A checked copy in compressed columns."""
    from scipy.sparse import csc_array, issparse

    matrix: Any = network
    if isinstance(network, Graph):
        matrix = network.laplacian()
    is_sparse: bool = issparse(matrix)
    if not is_sparse:
        raise InputError(
            f"GraphMatern.network is a {type(network).__name__}; give a graph with a method "
            "laplacian(), or a sparse matrix (wrap an array in scipy.sparse.csc_array)"
        )
    shape = matrix.shape
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] == 0:
        raise ShapeError(
            f"the Laplacian must be square and not empty, got shape {shape}"
        )
    if matrix.dtype.kind == "c":
        raise InputError("the Laplacian must be real, got complex numbers")
    laplacian = csc_array(matrix, dtype=np.float64, copy=True)
    laplacian.sum_duplicates()
    if not np.isfinite(laplacian.data).all():
        raise NotFiniteError("the Laplacian holds NaN or infinity")
    sizes = np.abs(laplacian.data)
    largest = float(sizes.max(initial=0.0))
    if largest > _LARGEST_ENTRY:
        raise InputError(
            f"the Laplacian holds {largest:.3g}; above {_LARGEST_ENTRY:g} it overflows"
        )
    gap = abs(laplacian - laplacian.T)
    if gap.nnz and gap.max() > _SLACK * largest:
        raise InputError(
            "the Laplacian is not symmetric; for a directed graph use B Bᵀ, B its incidence matrix"
        )
    symmetric = 0.5 * (laplacian + laplacian.T)
    return symmetric.tocsc()
