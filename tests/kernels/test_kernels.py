"""Every kernel: contract, gradients, specs, and agreement with scikit-learn and the formulas."""

from __future__ import annotations

import json
import math
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from part_names import FILES
from sample_kernels import (
    COVARIANCE,
    WITH_IDS,
    WITHOUT_INPUT_GRADIENT,
    kernel_rows,
)
from sample_kernels import KERNELS as SAMPLES

from superarm.core import Covariance, errors, registry
from superarm.core.serialization import from_json, to_json
from superarm.kernels import (
    Columns,
    Constant,
    Empirical,
    Kernel,
    Linear,
    Matern,
    Periodic,
    Polynomial,
    Product,
    RationalQuadratic,
    Scale,
    SquaredExponential,
    Sum,
    Temporal,
    TunableCovariance,
    radial,
)
from superarm.kernels.scikit_learn import wrapper_class

# The kernel of a graph is equal to itself only; test_graph.py has its tests.
KERNELS = {name: kernel for name, kernel in SAMPLES.items() if name != "graph-matern"}
IDS_HERE = [name for name in WITH_IDS if name in KERNELS]


def points(seed: int = 0, n: int = 12) -> np.ndarray:
    X = kernel_rows(seed, n)
    X[-1] = X[0]  # equal rows are legal
    X.flags.writeable = False
    return X


@pytest.fixture(params=list(KERNELS), ids=list(KERNELS))
def kernel(request: pytest.FixtureRequest) -> Kernel:
    return KERNELS[request.param]


# --- the contract ------------------------------------------------------------------------


def test_contract(kernel: Kernel) -> None:
    X, Y = points(0), points(1, 7)
    assert isinstance(kernel, Covariance)
    assert isinstance(kernel, TunableCovariance)
    K = kernel(X)
    assert K.dtype == np.float64
    np.testing.assert_array_equal(K, K.T)
    np.testing.assert_allclose(kernel(X, X), K, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(kernel(X, Y), kernel(Y, X).T, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(kernel.diag(X), np.diagonal(K), rtol=1e-14)
    assert kernel(X, Y).shape == (12, 7)
    assert kernel(X[:0], Y).shape == (0, 7)
    K[...] = np.nan  # results are the caller's own
    assert np.isfinite(kernel(X)).all()


def test_gradient_matches_central_differences(kernel: Kernel) -> None:
    X = points()
    K, gradient = kernel(X, eval_gradient=True)
    np.testing.assert_allclose(K, kernel(X), rtol=1e-14)
    theta = kernel.theta
    assert gradient.shape == (len(X), len(X), len(theta))
    assert kernel.bounds.shape == (len(theta), 2)
    for i in range(len(theta)):
        step = np.zeros_like(theta)
        step[i] = 1e-5
        numeric = (
            kernel.clone_with_theta(theta + step)(X)
            - kernel.clone_with_theta(theta - step)(X)
        ) / 2e-5
        np.testing.assert_allclose(gradient[:, :, i], numeric, rtol=2e-6, atol=2e-8)


def slopes(
    kernel: Kernel, X: np.ndarray, Y: np.ndarray, column: int, step: float
) -> np.ndarray:
    """∂k(x, y)/∂x in one column, (n, m), by central differences."""
    apart = np.zeros(X.shape[1])
    apart[column] = step
    return (kernel(X + apart, Y) - kernel(X - apart, Y)) / (2.0 * step)


@pytest.mark.parametrize("name", KERNELS)
def test_input_gradient_matches_central_differences(name: str) -> None:
    kernel = KERNELS[name]
    X, Y = points(0), points(1, 7)
    Y = np.vstack([Y, X[3]])  # kernels with a kink have it here
    weights = np.random.default_rng(2).standard_normal((12, 8))
    columns = [3, 1, 2] if name in WITH_IDS else [3, 0, 1, 2]
    gradient = kernel.input_gradient(X, Y, weights, columns)
    if name in WITHOUT_INPUT_GRADIENT:
        assert gradient is None
        return
    assert gradient is not None, (
        f"add {name!r} to WITH_IDS or WITHOUT_INPUT_GRADIENT in {FILES['kernel']}, "
        "or give the kernel a method _input_gradient"
    )
    assert gradient.shape == (12, len(columns))
    step = 1e-4
    # A difference over 2h is off by four times what one over h is: their distance bounds the error of
    # the latter three times over. Rounding adds a few dozen ε of a kernel value, over h.
    rounding = 64.0 * np.finfo(np.float64).eps * np.abs(kernel(X, Y)).max() / step
    for place, column in enumerate(columns):
        slope = slopes(kernel, X, Y, column, step)
        error = np.abs(slope - slopes(kernel, X, Y, column, 2.0 * step)) + rounding
        expected = (weights * slope).sum(axis=1)
        tolerance = (np.abs(weights) * error).sum(axis=1)
        assert (np.abs(gradient[:, place] - expected) <= tolerance).all()


@pytest.mark.parametrize("name", ["se-ard", "matern-5/2"])
def test_input_gradient_is_that_of_its_blocks(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = KERNELS[name]
    X, Y = points(0), points(1, 7)
    weights = np.random.default_rng(2).standard_normal((12, 7))
    at_once = kernel.input_gradient(X, Y, weights, [3, 0])
    monkeypatch.setattr(
        radial, "_BLOCK", 35
    )  # five rows: two blocks, and one of two rows
    in_blocks = kernel.input_gradient(X, Y, weights, [3, 0])
    np.testing.assert_allclose(in_blocks, at_once, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", IDS_HERE)
def test_ids_have_no_input_gradient(name: str) -> None:
    X = points()
    assert KERNELS[name].input_gradient(X, X, np.ones((12, 12)), [0]) is None


def test_only_our_own_kernels_have_an_input_gradient() -> None:
    class Foreign:
        def __call__(self, X: Any, Y: Any = None) -> Any:
            return Matern()(X, Y)

        def diag(self, X: Any) -> Any:
            return Matern().diag(X)

    X = points()
    weights = np.ones((12, 12))
    for joined in (
        Matern() + Foreign(),
        Matern() * Foreign(),
        Scale(kernel=Foreign(), factor=2.0),
    ):
        assert joined.input_gradient(X, X, weights, [1]) is None
    # A part that does not see the columns that move need not be ours.
    seen = Matern(columns=(1,)) * Columns(kernel=Foreign(), columns=(2, 3))
    expected = Matern(columns=(1,)).input_gradient(X, X, Foreign()(X[:, 2:]), [1])
    np.testing.assert_allclose(
        seen.input_gradient(X, X, weights, [1]), expected, rtol=1e-12
    )


@pytest.mark.parametrize(
    ("others", "weights", "columns"),
    [(3, 12, [1]), (4, 11, [1]), (4, 12, [4]), (4, 12, [-1])],
)
def test_input_gradient_checks_shapes(
    others: int, weights: int, columns: list[int]
) -> None:
    X = points()
    with pytest.raises(errors.InputError, match=r"weights|columns"):
        Matern().input_gradient(X, X[:, :others], np.ones((12, weights)), columns)


def test_spec_survives_json(kernel: Kernel) -> None:
    spec = json.loads(json.dumps(to_json(registry.spec_of(kernel))))
    rebuilt = registry.build("kernel", from_json(spec))
    assert rebuilt == kernel
    assert hash(rebuilt) == hash(kernel)
    np.testing.assert_array_equal(rebuilt(points()), kernel(points()))


def test_theta_round_trip(kernel: Kernel) -> None:
    rebuilt = kernel.clone_with_theta(kernel.theta)
    np.testing.assert_allclose(rebuilt(points()), kernel(points()), rtol=1e-12)
    np.testing.assert_allclose(rebuilt.theta, kernel.theta, atol=1e-14)
    with pytest.raises(errors.ShapeError, match="theta"):
        kernel.clone_with_theta(np.zeros(len(kernel.theta) + 1))


@given(seed=st.integers(0, 10_000), name=st.sampled_from(sorted(KERNELS)))
@settings(max_examples=100)
def test_positive_semidefinite(seed: int, name: str) -> None:
    K = KERNELS[name](points(seed, 15))
    values = np.linalg.eigvalsh(K)
    assert values[0] >= -1e-12 * max(1.0, values[-1])


# --- formulas ----------------------------------------------------------------------------


def naive_se(X: np.ndarray, Y: np.ndarray, lengthscale: np.ndarray) -> np.ndarray:
    return np.array(
        [
            [math.exp(-0.5 * math.fsum(((x - y) / lengthscale) ** 2)) for y in Y]
            for x in X
        ]
    )


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("offset", [0.0, 1.0, 1e6, 1e12])
@pytest.mark.parametrize("ratio", [0.02, 0.5, 20.0])
@pytest.mark.parametrize("width", [1, 3, 7])
def test_precise_at_every_scale(
    scale: float, offset: float, ratio: float, width: int
) -> None:
    rng = np.random.default_rng(5)
    X = (rng.random((20, width)) + offset) * scale
    Y = (rng.random((9, width)) + offset) * scale
    Y[:3] = X[:3]
    for lengthscale in (
        ratio * scale,
        tuple(ratio * scale * (1.0 + 0.1 * j) for j in range(width)),
    ):
        expected = naive_se(X, Y, np.broadcast_to(lengthscale, width))
        kernel = SquaredExponential(lengthscale=lengthscale)
        np.testing.assert_allclose(kernel(X, Y), expected, rtol=1e-12, atol=1e-300)
        assert (np.diagonal(kernel(X)) == 1.0).all()
        rough = Matern(nu=0.5, lengthscale=lengthscale)(X, Y)
        np.testing.assert_allclose(
            rough,
            np.exp(-np.sqrt(-2.0 * np.log(expected + 1e-300))),
            rtol=1e-6,
            atol=1e-7,
        )
        assert (np.diagonal(rough)[:3] == 1.0).all()


@pytest.mark.parametrize(
    ("ours", "make_theirs"),
    [
        (SquaredExponential(lengthscale=0.7), lambda sk: sk.RBF(0.7)),
        (
            SquaredExponential(lengthscale=(0.7, 2.0), variance=3.0),
            lambda sk: 3.0 * sk.RBF([0.7, 2.0]),
        ),
        *(
            (Matern(nu=nu, lengthscale=0.6), lambda sk, nu=nu: sk.Matern(0.6, nu=nu))
            for nu in (0.5, 1.5, 2.5, 0.8, 4.2, math.inf)
        ),
        (
            RationalQuadratic(alpha=0.4, lengthscale=0.6),
            lambda sk: sk.RationalQuadratic(0.6, 0.4),
        ),
        (Linear(bias=0.49), lambda sk: sk.DotProduct(0.7)),
        (Polynomial(degree=3, bias=0.49), lambda sk: sk.DotProduct(0.7) ** 3),
        (Constant(variance=2.0), lambda sk: sk.ConstantKernel(2.0)),
        (
            Periodic(period=0.3, lengthscale=1.7, columns=(0,)),
            lambda sk: sk.ExpSineSquared(1.7, 0.3),
        ),
    ],
    ids=lambda part: str(part) if isinstance(part, Kernel) else "",
)
def test_agrees_with_sklearn(
    ours: Kernel, make_theirs: Callable[[Any], Any], sk: Any
) -> None:
    theirs = make_theirs(sk)
    rng = np.random.default_rng(2)
    X, Y = rng.random((30, 2)), rng.random((11, 2))
    cut = slice(0, 1) if isinstance(ours, Periodic) else slice(None)
    np.testing.assert_allclose(ours(X, Y), theirs(X[:, cut], Y[:, cut]), rtol=1e-12)
    np.testing.assert_allclose(ours(X), theirs(X[:, cut]), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_matern_general_order_matches_the_closed_forms(nu: float) -> None:
    X, Y = np.zeros((1, 1)), np.geomspace(1e-9, 60.0, 300)[:, None]
    np.testing.assert_allclose(
        Matern(nu=nu * (1 + 1e-15))(X, Y), Matern(nu=nu)(X, Y), rtol=1e-11
    )


@pytest.mark.parametrize("nu", [0.1, 1.0, 7.3, 60.0, 150.0, 300.0])
def test_matern_near_and_far(nu: float) -> None:
    distances = np.concatenate([[0.0], np.geomspace(1e-200, 1e5, 400)])
    k = Matern(nu=nu)(np.zeros((1, 1)), distances[:, None])[0]
    assert np.isfinite(k).all()
    assert k[0] == 1.0
    assert k[-1] == 0.0
    assert (np.diff(k) <= 1e-11).all()
    # ν → ∞ is the squared exponential, and the way there is of order 1/ν.
    assert abs(Matern(nu=nu)([[0.0]], [[1.0]])[0, 0] - math.exp(-0.5)) < 0.5 / nu
    with pytest.raises(errors.InputError, match="nu=inf"):
        Matern(nu=301.0)


def test_periodic_stays_precise_after_many_periods() -> None:
    kernel = Periodic(period=0.25)
    np.testing.assert_allclose(kernel([[0.1]], [[0.1 + 2.0**20]]), 1.0, rtol=1e-12)


def test_temporal_formula_and_no_drift() -> None:
    np.testing.assert_allclose(
        Temporal(epsilon=0.19)([[0.0]], [[2.0]]), 0.81, rtol=1e-14
    )
    still = Temporal(epsilon=0.0)
    assert (still(points()) == 1.0).all()
    assert still.theta.shape == (0,)


def test_empirical_reads_ids() -> None:
    kernel = Empirical(covariance=COVARIANCE, column=1)
    np.testing.assert_array_equal(
        kernel([[9.0, 0.0]], [[9.0, 1.0], [9.0, 3.0]]), [[0.5, 0.1]]
    )


# --- composition and scikit-learn --------------------------------------------------------


def test_operators_flatten_and_preserve_order() -> None:
    a, b, c = Matern(), Linear(), Constant()
    assert (a + b + c) == Sum(kernels=(a, b, c))
    assert (a * b * c) == Product(kernels=(a, b, c))
    assert (
        2.0 * a
        == a * 2
        == np.float64(2.0) * a
        == Scale(kernel=a, factor=2.0, factor_bounds="fixed")
    )
    with pytest.raises(TypeError):
        a + "b"  # type: ignore[operator]
    with pytest.raises(errors.InputError, match="factor"):
        -1.0 * a


def test_foreign_kernels_inside_ours(sk: Any) -> None:
    X = points()
    mixed = (
        Matern(nu=1.5) * sk.RBF(0.5)
        + Columns(kernel=sk.RationalQuadratic(), columns=(2, 3))
        + sk.WhiteKernel(0.1)
    )
    expected = (
        sk.Matern(nu=1.5)(X) * sk.RBF(0.5)(X)
        + sk.RationalQuadratic()(X[:, 2:])
        + sk.WhiteKernel(0.1)(X)
    )
    np.testing.assert_allclose(mixed(X), expected, rtol=1e-12)
    test_gradient_matches_central_differences(mixed)
    with pytest.raises(errors.SpecError):
        registry.spec_of(mixed)


def test_plain_covariance_is_enough() -> None:
    class White:
        def __call__(self, X: object, Y: object = None) -> np.ndarray:
            return np.eye(len(X)) if Y is None else np.zeros((len(X), len(Y)))  # type: ignore[arg-type]

        def diag(self, X: object) -> np.ndarray:
            return np.ones(len(X))  # type: ignore[arg-type]

    kernel = Matern() + White()
    assert len(kernel.theta) == 2
    test_gradient_matches_central_differences(kernel)


def test_as_sklearn_optimises_like_sklearns_own(sk: Any, regressor: Any) -> None:
    rng = np.random.default_rng(3)
    X = rng.random((40, 2))
    y = np.sin(5.0 * X[:, 0]) + X[:, 1]
    ours = SquaredExponential(lengthscale=(0.3, 0.3), variance=1.0)
    theirs = sk.ConstantKernel(1.0) * sk.RBF([0.3, 0.3])
    wrapped = regressor(ours.as_sklearn(), alpha=1e-2).fit(X, y)
    right = regressor(theirs, alpha=1e-2).fit(X, y)
    assert wrapped.log_marginal_likelihood_value_ == pytest.approx(
        right.log_marginal_likelihood_value_, abs=1e-4
    )
    Z = rng.random((5, 2))
    np.testing.assert_allclose(wrapped.predict(Z), right.predict(Z), atol=1e-3)
    assert isinstance(wrapped.kernel_.kernel, SquaredExponential)


def test_as_sklearn_follows_scikit_learn_conventions(
    kernel: Kernel, sk: Any, regressor: Any
) -> None:
    from sklearn.base import clone

    wrapped = kernel.as_sklearn()
    X = points()
    for copy in (
        clone(wrapped),
        pickle.loads(pickle.dumps(wrapped)),
        wrapped.clone_with_theta(wrapped.theta),
    ):
        np.testing.assert_allclose(copy(X), kernel(X), rtol=1e-12)
        np.testing.assert_array_equal(copy.bounds, kernel.bounds)
    assert repr(wrapped) == f"{kernel!r}.as_sklearn()"
    assert wrapped == clone(wrapped)
    assert wrapped.n_dims == len(kernel.theta) == len(wrapped.hyperparameters)
    np.testing.assert_allclose(
        (wrapped + sk.WhiteKernel(0.5))(X), kernel(X) + 0.5 * np.eye(len(X))
    )
    fixed = regressor(wrapped, alpha=0.1, optimizer=None).fit(X, X[:, 2])
    direct = kernel(X) @ np.linalg.solve(kernel(X) + 0.1 * np.eye(len(X)), X[:, 2])
    np.testing.assert_allclose(fixed.predict(X), direct, rtol=1e-8, atol=1e-10)


# --- bad input ---------------------------------------------------------------------------


def test_missing_scikit_learn_names_the_pip_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrapper_class.cache_clear()
    monkeypatch.setitem(sys.modules, "sklearn.gaussian_process", None)
    with pytest.raises(
        errors.MissingExtraError, match=r"run: pip install scikit-learn$"
    ):
        SquaredExponential().as_sklearn()


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: SquaredExponential(lengthscale=0.0), errors.InputError, "lengthscale"),
        (
            lambda: SquaredExponential(lengthscale=(1.0, math.nan)),
            errors.InputError,
            r"lengthscale\[1\]",
        ),
        (lambda: SquaredExponential(lengthscale=()), errors.ShapeError, "empty"),
        (lambda: SquaredExponential(variance=-1.0), errors.InputError, "variance"),
        (
            lambda: SquaredExponential(variance_bounds="free"),
            errors.InputError,
            "fixed",
        ),
        (
            lambda: SquaredExponential(variance_bounds=(2.0, 1.0)),
            errors.InputError,
            "lower",
        ),
        (lambda: SquaredExponential(columns=(0, 0)), errors.InputError, "twice"),
        (
            lambda: SquaredExponential(columns=(-1,)),
            errors.InputError,
            "whole number of at least 0",
        ),
        (
            lambda: SquaredExponential(lengthscale=(1.0, 2.0), columns=(0,)),
            errors.ShapeError,
            "columns",
        ),
        (lambda: Matern(nu=0.0), errors.InputError, "nu"),
        (lambda: Linear(bias=-1.0), errors.InputError, "bias"),
        (lambda: Polynomial(degree=0), errors.InputError, "degree"),
        (lambda: Temporal(epsilon=1.0), errors.InputError, "epsilon"),
        (
            lambda: Temporal(epsilon=-0.1),
            errors.InputError,
            "epsilon must be a number of at least 0.*, got -0.1",
        ),
        (lambda: Temporal(epsilon="a"), errors.InputError, "epsilon"),
        (
            lambda: Temporal(epsilon_bounds=(0.1, 1.0)),
            errors.InputError,
            "epsilon_bounds",
        ),
        (lambda: Temporal(column=1.5), errors.InputError, "column"),
        (
            lambda: Empirical(covariance=[[1.0, 2.0], [2.0, 1.0]]),
            errors.NotPositiveDefiniteError,
            "-1",
        ),
        (
            lambda: Empirical(covariance=[[1.0, 0.5], [0.2, 1.0]]),
            errors.InputError,
            "symmetric",
        ),
        (lambda: Empirical(covariance=[[1.0, 0.5]]), errors.ShapeError, "square"),
        (
            lambda: Empirical(covariance=[[math.nan]]),
            errors.NotFiniteError,
            "covariance",
        ),
        (lambda: Empirical(covariance=[[1.0]])([[1.0]]), errors.UnknownArmError, "id"),
        (
            lambda: Empirical(covariance=[[1.0]])([[math.nan]]),
            errors.UnknownArmError,
            "id",
        ),
        (
            lambda: Empirical(covariance=np.eye(2))([[0.5]]),
            errors.UnknownArmError,
            "0.5",
        ),
        (lambda: Sum(kernels=()), errors.InputError, "at least one"),
        (lambda: Sum(kernels=(3.0,)), errors.InputError, "not a kernel"),
        (lambda: Scale(kernel=Matern), errors.InputError, "not a kernel"),
        (lambda: Columns(kernel=Matern(), columns=()), errors.InputError, "empty"),
        (lambda: Matern()([1.0, 2.0]), errors.ShapeError, r"\(n, d\)"),
        (lambda: Matern()([[1.0]], [[1.0, 2.0]]), errors.ShapeError, "same way"),
        (
            lambda: Matern(lengthscale=(1.0, 2.0))([[1.0]]),
            errors.ShapeError,
            "lengthscale",
        ),
        (lambda: Matern(columns=(3,))([[1.0]]), errors.ShapeError, "columns"),
        (
            lambda: Matern()([[1.0]], [[1.0]], eval_gradient=True),
            errors.InputError,
            "leave Y out",
        ),
    ],
)
def test_errors_advise(make: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()  # type: ignore[operator]


ONE_NUMBER = [
    (SquaredExponential, "variance"), (Matern, "nu"), (Matern, "variance"), (Periodic, "variance"),
    (RationalQuadratic, "alpha"), (RationalQuadratic, "variance"), (Linear, "variance"),
    (Linear, "bias"), (Polynomial, "degree"), (Polynomial, "variance"), (Polynomial, "bias"),
    (Constant, "variance"), (Temporal, "epsilon"),
]  # fmt: skip


@pytest.mark.parametrize(
    "values", [[1.0, 4.0], (0.5,), np.array([1.0, 4.0]), np.array([2.0])], ids=str
)
def test_scalar_parameters_reject_lists(values: object) -> None:
    for kind, name in ONE_NUMBER:
        with pytest.raises(
            errors.InputError,
            match=rf"(?s){kind.__name__}\.{name} must be a (whole )?number.*, got ",
        ):
            kind(**{name: values})  # type: ignore[arg-type]
    with pytest.raises(
        errors.InputError, match=r"(?s)Scale\.factor must be a number.*, got "
    ):
        Scale(kernel=Matern(), factor=values)  # type: ignore[arg-type]
    assert SquaredExponential(variance=np.array(2.0)).variance == 2.0  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [1e-200, 1e200])
def test_parameters_whose_squares_overflow_are_rejected(value: float) -> None:
    """c²/s in a posterior would be 0 or infinite, and a standard deviation wrong."""
    for kind, name in ONE_NUMBER:
        if name not in ("nu", "degree", "epsilon"):
            with pytest.raises(errors.InputError, match="choose units"):
                kind(**{name: value})  # type: ignore[arg-type]
    with pytest.raises(errors.InputError, match="choose units"):
        value * Matern()
    with pytest.raises(errors.InputError, match="choose units"):
        Matern(variance_bounds=(min(1.0, value), max(1.0, value)))


def test_unknown_parameter_in_a_spec() -> None:
    with pytest.raises(errors.SpecError, match="did you mean 'lengthscale'"):
        registry.build("kernel", {"name": "matern", "lenghtscale": 1.0})


def test_import_loads_no_scipy() -> None:
    code = (
        "import sys, superarm.kernels; "
        "print([m for m in sys.modules if m.partition('.')[0] in ('scipy', 'sklearn')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_bounds_may_be_equal() -> None:
    kernel = SquaredExponential(variance_bounds=(2.0, 2.0))
    assert kernel.variance_bounds == (2.0, 2.0)
