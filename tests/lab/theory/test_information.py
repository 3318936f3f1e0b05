"""Information gain against determinants, brute force and the printed growth rates."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest

from superarm.core import Floats
from superarm.core.errors import InputError, NotPositiveDefiniteError
from superarm.core.registry import build, names, spec_of
from superarm.core.serialization import from_json, to_json
from superarm.kernels import Linear, Matern, SquaredExponential
from superarm.rules.information import (
    GREEDY_SHARE,
    ConstantGain,
    GreedyGrowth,
    LinearGain,
    MaternGain,
    SquaredExponentialGain,
    arriving_information_gain,
    greedy_information_gain,
    information_gain,
)

KERNEL = SquaredExponential(lengthscale=0.3)
NOISE = 0.1


def points(n: int, d: int = 2, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(size=(n, d))


def test_information_gain_of_two_points_by_hand() -> None:
    X = np.array([[0.0], [0.3]])
    k = math.exp(-0.5)
    by_hand = 0.5 * math.log((1.0 + 1.0 / NOISE) ** 2 - (k / NOISE) ** 2)
    assert information_gain(KERNEL, X, NOISE) == pytest.approx(by_hand, rel=1e-12)


def test_information_gain_is_the_sum_over_eigenvalues() -> None:
    X = points(30)
    kernel = Matern(nu=2.5, lengthscale=0.4)
    eigenvalues = np.linalg.eigvalsh(kernel(X))
    expected = 0.5 * np.log1p(eigenvalues / NOISE).sum()
    assert information_gain(kernel, X, NOISE) == pytest.approx(expected, rel=1e-10)
    assert information_gain(kernel, np.empty((0, 2)), NOISE) == 0.0


def test_information_gain_refuses_an_indefinite_kernel() -> None:
    class Indefinite:
        def __call__(self, X: object, Y: object = None) -> np.ndarray:
            return np.array([[0.0, 5.0], [5.0, 0.0]])

        def diag(self, X: object) -> np.ndarray:
            return np.zeros(2)

    with pytest.raises(NotPositiveDefiniteError, match="positive semi-definite"):
        information_gain(Indefinite(), points(2), 1.0)


def test_greedy_keeps_its_guarantee_against_brute_force() -> None:
    X = points(7, seed=3)
    greedy = greedy_information_gain(KERNEL, X, 4, NOISE)
    for count in range(1, 5):
        sets = itertools.combinations_with_replacement(range(7), count)
        best = max(information_gain(KERNEL, X[list(subset)], NOISE) for subset in sets)
        assert GREEDY_SHARE * best <= greedy.gains[count] <= best + 1e-12
        assert best <= greedy.upper_bounds[count]


@pytest.mark.parametrize("count", [1, 5, 19, 20, 45])
def test_greedy_gains_are_those_of_its_positions(count: int) -> None:
    X = points(20)
    greedy = greedy_information_gain(KERNEL, X, count, NOISE)
    assert greedy.gains.shape == (count + 1,)
    for t in range(count + 1):
        exact = information_gain(KERNEL, X[greedy.positions[:t]], NOISE)
        assert greedy.gains[t] == pytest.approx(exact, rel=1e-9, abs=1e-12)


def test_greedy_is_monotone_and_submodular() -> None:
    gains = greedy_information_gain(KERNEL, points(15), 60, NOISE).gains
    steps = np.diff(gains)
    assert (steps > 0.0).all()
    assert (np.diff(steps) <= 1e-12).all()


def test_both_forms_of_greedy_agree() -> None:
    """25 choices of 40 candidates store rows, 40 store the full covariance."""
    X = points(40, seed=5)
    by_columns = greedy_information_gain(KERNEL, X, 25, NOISE)
    by_matrix = greedy_information_gain(KERNEL, X, 40, NOISE)
    # The best leads by 1e-5 or more, save at first, where all variances are the kernel's own.
    np.testing.assert_array_equal(by_matrix.positions[:25], by_columns.positions)
    np.testing.assert_allclose(by_matrix.gains[:26], by_columns.gains, rtol=1e-10)


def test_greedy_stays_exact_over_many_repeats() -> None:
    """Rank-one updates drift by rounding only: 2000 observations of 10 arms."""
    X = points(10, seed=7)
    greedy = greedy_information_gain(KERNEL, X, 2000, NOISE)
    counts = np.bincount(greedy.positions, minlength=10)
    root = np.sqrt(counts / NOISE)
    _, exact = np.linalg.slogdet(np.eye(10) + root[:, None] * KERNEL(X) * root)
    assert greedy.gains[-1] == pytest.approx(0.5 * exact, rel=1e-8)


def test_greedy_refuses_nonsense() -> None:
    with pytest.raises(InputError, match="count"):
        greedy_information_gain(KERNEL, points(3), -1, NOISE)
    with pytest.raises(InputError, match="no rows"):
        greedy_information_gain(KERNEL, np.empty((0, 2)), 1, NOISE)
    with pytest.raises(InputError, match="noise_variance"):
        greedy_information_gain(KERNEL, points(3), 1, 0.0)
    assert greedy_information_gain(
        KERNEL, np.empty((0, 2)), 0, NOISE
    ).gains.tolist() == [0.0]


@pytest.mark.parametrize(
    ("growth", "expected"),  # t = 50
    [
        (SquaredExponentialGain(dimension=2), math.log(50.0) ** 3),
        # t^{d(d+1)/(2ν + d(d+1))} ln t and t^{d/(2ν + d)} (ln t)^{2ν/(2ν + d)}
        (MaternGain(nu=2.5, dimension=2), 50.0 ** (6.0 / 11.0) * math.log(50.0)),
        (
            MaternGain(nu=2.5, dimension=2, rate="vakili"),
            50.0 ** (2.0 / 7.0) * math.log(50.0) ** (5.0 / 7.0),
        ),
        (LinearGain(dimension=3), 3.0 * math.log(50.0)),
        (ConstantGain(), 1.0),
    ],
    ids=repr,
)
def test_growth_rates(growth: SquaredExponentialGain, expected: float) -> None:
    assert growth(50) == pytest.approx(expected, rel=1e-13)
    values = [growth(t) for t in range(200)]
    assert values[0] == (1.0 if isinstance(growth, ConstantGain) else 0.0)
    assert all(later >= earlier for earlier, later in itertools.pairwise(values))
    spec = json.loads(json.dumps(spec_of(growth)))
    assert build("gain", spec) == growth


def test_growth_rates_begin_at_two() -> None:
    assert SquaredExponentialGain(dimension=1)(2) == pytest.approx(math.log(2.0) ** 2)
    assert LinearGain(dimension=3)(2) == pytest.approx(3.0 * math.log(2.0))
    assert MaternGain(nu=1.0, dimension=1)(2) == pytest.approx(
        math.sqrt(2.0) * math.log(2.0)
    )


def test_greedy_growth_is_certified() -> None:
    X = points(12)
    greedy = greedy_information_gain(KERNEL, X, 30, NOISE)
    growth = GreedyGrowth(kernel=KERNEL, candidates=X, noise_variance=NOISE, horizon=30)
    expected = greedy.gains / (1.0 - math.exp(-1.0))
    np.testing.assert_allclose([growth(t) for t in range(31)], expected, rtol=1e-14)
    with pytest.raises(InputError, match="31"):
        growth(31)


def test_greedy_growth_survives_json() -> None:
    growth = GreedyGrowth(
        kernel=KERNEL, candidates=points(5), noise_variance=NOISE, horizon=8
    )
    spec = json.loads(json.dumps(to_json(spec_of(growth))))
    rebuilt = build("gain", from_json(spec))
    assert [rebuilt(t) for t in range(9)] == [growth(t) for t in range(9)]
    assert names("gain") == [
        "constant",
        "greedy",
        "linear",
        "matern",
        "squared-exponential",
    ]


def test_linear_kernel_gain_matches_its_rate() -> None:
    """For unit rows γ_t ≤ (d/2) ln(1 + t/(dλ)), of the order d ln t; a circle comes close."""
    angles = np.linspace(0.0, np.pi, 40, endpoint=False)
    X = np.column_stack([np.cos(angles), np.sin(angles)])
    gains = greedy_information_gain(Linear(), X, 200, 1.0).gains
    t = np.arange(201)
    bound = np.log1p(t / 2.0)
    assert (gains <= bound + 1e-9).all()
    assert (gains[2:] >= 0.9 * bound[2:]).all()


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: SquaredExponentialGain(dimension=0), "dimension"),
        (lambda: MaternGain(nu=0.0, dimension=1), "nu"),
        (lambda: MaternGain(nu=1.5, dimension=1, rate="best"), "rate"),  # type: ignore[arg-type]
        (lambda: LinearGain(dimension=1.5), "dimension"),  # type: ignore[arg-type]
        (lambda: ConstantGain(value=-1.0), "value"),
        (
            lambda: GreedyGrowth(
                kernel=KERNEL, candidates=points(2), noise_variance=1.0, horizon=0
            ),
            "horizon",
        ),
    ],
)
def test_bad_parameters_are_named(make: object, word: str) -> None:
    with pytest.raises(InputError, match=word):
        make()  # type: ignore[operator]


@pytest.mark.parametrize("k", [1, 2, 3])
def test_information_of_arrivals_is_that_of_a_greedy_choice(k: int) -> None:
    """Against the same choice made with determinants, and at least half of the best of all choices."""
    rng, noise = np.random.default_rng(k), 0.2
    kernel = SquaredExponential(lengthscale=0.5)
    arrivals = [rng.random((4, 2)) for _ in range(3)]
    gains = arriving_information_gain(kernel, arrivals, k, noise)
    chosen: list[Floats] = []
    expected = [0.0]
    for rows in arrivals:
        remaining = list(range(4))
        for _ in range(k):
            best = max(
                remaining,
                key=lambda row: information_gain(kernel, [*chosen, rows[row]], noise),
            )
            remaining.remove(best)
            chosen.append(rows[best])
        expected.append(information_gain(kernel, chosen, noise))
    np.testing.assert_allclose(gains, expected, rtol=1e-10)
    best_of_all = max(
        information_gain(
            kernel,
            [
                rows[row]
                for rows, few in zip(arrivals, sets, strict=True)
                for row in few
            ],
            noise,
        )
        for sets in itertools.product(
            list(itertools.combinations(range(4), k)), repeat=3
        )
    )
    assert best_of_all / 2 <= gains[-1] <= best_of_all + 1e-12


def test_arrivals_may_be_few_and_alike() -> None:
    kernel = SquaredExponential()
    same = np.full((2, 1), 0.5)
    gains = arriving_information_gain(
        kernel, [same, same[:1], np.empty((0, 1)), same], 5, 0.1
    )
    expected = [
        information_gain(kernel, np.full((n, 1), 0.5), 0.1) for n in (0, 2, 3, 3, 5)
    ]
    np.testing.assert_allclose(gains, expected, rtol=1e-9)
