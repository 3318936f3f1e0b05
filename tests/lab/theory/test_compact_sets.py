"""Assumption 3.4 solved, Remark A.7's closed forms put right, Theorem 3.6."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from superarm.core.errors import InputError
from superarm.lab.theory import (
    CompactSet,
    bayesian_regret_bound,
    bucb_constant,
    confidence_parameter,
)
from superarm.lab.theory.compact_sets import log_ceiling

SET: dict[str, Any] = {
    "dimension": 2,
    "lipschitz": 1.5,
    "side": 2.0,
    "derivative_constants": (2.0, 1.2),
}
PROBLEM: dict[str, Any] = {"budget": 3, "noise_std": 0.5, **SET}
UCB: dict[str, Any] = {"algorithm": "gp-ucb"}
BUCB: dict[str, Any] = {"algorithm": "gp-bucb", "omega": 1.5, "xi": 2.0}
T = np.array([1, 2, 3, 10, 100, 10_000])


def order(options: dict[str, Any]) -> dict[str, Any]:
    return {name: options[name] for name in ("omega", "xi") if name in options}


def parts(problem: dict[str, Any]) -> tuple[CompactSet, dict[str, Any]]:
    arms = CompactSet(**{name: problem[name] for name in SET})
    return arms, {
        "budget": problem["budget"],
        "noise_variance": problem["noise_std"] ** 2,
    }


def log_size(t: Any, problem: dict[str, Any], options: dict[str, Any]) -> Any:
    arms, constants = parts(problem)
    return arms.log_size(t, **constants, **order(options))


def integer_size(t: Any, problem: dict[str, Any], options: dict[str, Any]) -> Any:
    tau = np.exp(log_ceiling(log_size(t, problem, options)))
    return np.where(tau < 1e12, np.round(tau), tau)


def plain_beta(t: int, tau: float, d: int, options: dict[str, Any]) -> float:
    if options["algorithm"] != "gp-bucb":
        return max(0.0, 2 * math.log(tau**d * t**2 / math.sqrt(2 * math.pi)))
    omega, xi = options["omega"], options["xi"]
    eta = math.sqrt(2 * math.pi) ** omega / (2 * tau ** (d * omega) * t**xi)
    return NormalDist().inv_cdf(eta) ** 2 if eta < 0.5 else 0.0


def satisfied(
    t: int, tau: float, options: dict[str, Any], problem: dict[str, Any]
) -> bool:
    """Eqs 6a–6d as printed."""
    d, K, noise = problem["dimension"], problem["budget"], problem["noise_std"]
    L, C1 = problem["lipschitz"], problem["side"]
    C2, C3 = problem["derivative_constants"]
    beta = plain_beta(t, tau, d, options)
    least = 1.0 - 1e-8
    slope = C3 * (math.sqrt(math.log(C2 * d)) + math.sqrt(math.pi) / 2)
    return (
        tau >= least * 2 * t**2 * K * L * d * C1 * (1 + t * K / noise)
        and tau >= least * beta * 8 * t**4 * K**2 * L * d * C1
        and tau**2 >= least * beta * 8 * t**5 * K**3 * L**2 * d**2 * C1**2 / noise**2
        and tau >= least * t**2 * K * d * C1 * slope
    )


PROBLEMS = [
    PROBLEM,
    {**PROBLEM, "dimension": 1, "derivative_constants": (1.0, 0.01), "lipschitz": 0.02},
    {**PROBLEM, "noise_std": 1e-4},
    {
        **PROBLEM,
        "dimension": 5,
        "budget": 1,
        "derivative_constants": (2.0, 1e4),
        "lipschitz": 1e-4,
    },
]


@pytest.mark.parametrize("options", [UCB, {"algorithm": "gp-ts"}, BUCB], ids=str)
@pytest.mark.parametrize("problem", PROBLEMS, ids=range(len(PROBLEMS)))
def test_the_size_satisfies_and_is_the_smallest(
    problem: dict[str, Any], options: dict[str, Any]
) -> None:
    sizes = integer_size(T, problem, options)
    assert (np.diff(sizes) >= 0.0).all()
    for t, tau in zip(T.tolist(), sizes.tolist(), strict=True):
        assert satisfied(t, tau, options, problem)
        for more in (1.3, 10.0, 1e3):
            assert satisfied(t, tau * more, options, problem)
        if tau > 1.0:
            less = tau - 1.0 if tau < 1e6 else tau * (1.0 - 1e-5)
            assert not satisfied(t, less, options, problem)
        one = integer_size(t, problem, options)
        assert float(one) == pytest.approx(tau, rel=1e-10)


@pytest.mark.parametrize("options", [UCB, BUCB], ids=str)
@pytest.mark.parametrize("problem", PROBLEMS, ids=range(len(PROBLEMS)))
def test_the_closed_form_satisfies_and_is_larger(
    problem: dict[str, Any], options: dict[str, Any]
) -> None:
    arms, constants = parts(problem)
    conditions = arms.conditions(T, **constants)
    closed = arms.log_closed_size(T, conditions, **order(options))
    assert (log_size(T, problem, options) <= closed).all()
    beta = confidence_parameter(T, arms.dimension * closed, **order(options))
    assert (closed + 1e-9 >= conditions.required(np.log(beta))).all()
    for t, s in zip(T.tolist(), closed.tolist(), strict=True):
        assert satisfied(t, math.exp(s), options, problem)


def test_equation_59_as_printed_fails_in_the_first_round() -> None:
    """ln(t²/√(2π)) < 0 at t = 1, where the printed step 1 ≤ τ^{1/e} points the wrong way."""
    problem = {
        **PROBLEM,
        "dimension": 1,
        "budget": 5,
        "noise_std": 10.0,
        "lipschitz": 2.0,
    }
    problem["derivative_constants"] = (1.0, 0.1)
    d, K, L, C1 = 1, 5, 2.0, 2.0

    def printed(t: int) -> float:
        growth = d + math.log(t**2 / math.sqrt(2 * math.pi))
        return max(
            2 * K * L * d * C1 * (1 + t * K / 10.0) * t**2,
            (16 * t**4 * K**2 * L * d * C1 * growth) ** (1 / (1 - 1 / math.e)),
            (16 * t**5 * K**3 * L**2 * d**2 * C1**2 / 100.0 * growth)
            ** (1 / (2 - 1 / math.e)),
        )

    assert not satisfied(1, printed(1), UCB, problem)
    assert all(satisfied(t, printed(t), UCB, problem) for t in (2, 3, 10, 100))
    assert float(integer_size(1, problem, UCB)) > printed(1)


@pytest.mark.parametrize("noise_std", [0.5, 1e-4], ids=["6b", "6c"])
@pytest.mark.parametrize("options", [UCB, BUCB], ids=["59", "60"])
@pytest.mark.parametrize("t", [1, 2, 50])
def test_the_closed_forms_by_hand(
    t: int, options: dict[str, Any], noise_std: float
) -> None:
    """Eqs 59 and 60 with c at least 0, and 60 without its 2; d = 2, K = 3, L = 1.5, C₁ = 2."""
    arms, constants = parts({**PROBLEM, "noise_std": noise_std})
    tail, points = math.log(t**2 / math.sqrt(2 * math.pi)), 2.0
    if options is BUCB:
        tail, points = math.log(t**2 / math.sqrt(2 * math.pi) ** 1.5), 3.0
    growth = points + max(0.0, tail)
    by_hand = max(
        (16 * t**4 * 9 * 1.5 * 4 * growth) ** (1 / (1 - 1 / math.e)),
        (16 * t**5 * 27 * 36 / noise_std**2 * growth) ** (1 / (2 - 1 / math.e)),
    )
    closed = arms.log_closed_size(t, arms.conditions(t, **constants), **order(options))
    assert float(closed) == pytest.approx(math.log(by_hand), rel=1e-12)


@pytest.mark.parametrize("v", [0.25, 4.0])
def test_the_larger_lipschitz_constant_counts(v: float) -> None:
    """Eqs 6b and 6c of f/√v: L is the larger of 1.5/v and 1.5/√v, the noise 0.5/√v; d·C₁ = 4."""
    arms, constants = parts(PROBLEM)
    conditions = arms.conditions(7, **constants, largest_variance=v)
    L = {0.25: 6.0, 4.0: 0.75}[v]
    assert float(conditions.ratio) == pytest.approx(math.log(8 * 9 * L * 4 * 7**4))
    assert float(conditions.square) == pytest.approx(
        math.log(8 * 27 * (L * 4) ** 2 * 7**5 * v / 0.25)
    )


@pytest.mark.parametrize(
    ("first", "spread"), [(0.1, 0.0), (2.0, math.sqrt(math.log(4.0)))]
)
def test_equation_6d_by_hand(first: float, spread: float) -> None:
    """t²·K·d·C₁·C₃(√ln(C₂d) + √π/2), where slopes are steep; the root counts as 0 for C₂d < 1."""
    problem = {**PROBLEM, "lipschitz": 1e-9, "derivative_constants": (first, 7.0)}
    arms, constants = parts(problem)
    expected = 25 * 3 * 4.0 * 7.0 * (spread + math.sqrt(math.pi) / 2)
    assert float(arms.conditions(5, **constants).least) == pytest.approx(
        math.log(expected), rel=1e-12
    )


def test_the_two_in_equation_60_is_spurious() -> None:
    """Lemma A.14 gives β ≤ −2 ln(2η); with the printed 2 it would be β ≤ −2 ln(4η), which fails."""
    normal = NormalDist()
    for eta in (0.49, 0.4, 0.3):
        beta = normal.inv_cdf(eta) ** 2
        assert beta <= -2 * math.log(2 * eta)
        assert beta > -2 * math.log(4 * eta)
    for eta in (0.1, 1e-3, 1e-9):
        assert normal.inv_cdf(eta) ** 2 <= -2 * math.log(2 * eta)
    # d = 1, t = 1: the bracket that eq. 60 raises to a power is not even positive
    omega = 1.5
    assert omega + math.log(1 / (2 * math.sqrt(2 * math.pi) ** omega)) < 0.0


def test_equation_60_as_printed_fails() -> None:
    """d = K = C₁ = 1, L = 0.025, ς = 2, ω = 2, ξ = 2.5, t = 2: τ = 25.2 has τ/β = 2.57, below 3.2.

    The logarithm of eq. 60 is negative there, as that of eq. 59 is at t = 1.
    """
    t, L, noise_std, omega, xi = 2, 0.025, 2.0, 2.0, 2.5
    tail = math.log(t**xi / (2 * math.sqrt(2 * math.pi) ** omega))
    assert tail < 0.0
    tau = max(
        2 * t**2 * L * (1 + t / noise_std),
        (16 * t**4 * L * (omega + tail)) ** (1 / (1 - 1 / math.e)),
        (16 * t**5 * L**2 / noise_std**2 * (omega + tail)) ** (1 / (2 - 1 / math.e)),
    )
    eta = math.sqrt(2 * math.pi) ** omega / (2 * tau**omega * t**xi)
    beta = NormalDist().inv_cdf(eta) ** 2
    assert tau == pytest.approx(25.2, abs=0.1)
    assert tau / beta == pytest.approx(2.57, abs=0.01)
    assert tau / beta < 8 * t**4 * L  # eq. 6b


def test_large_sizes_stay_finite_in_logarithms() -> None:
    problem = {**PROBLEM, "lipschitz": 1e200, "side": 1e150}
    assert np.isfinite(log_size(T, problem, BUCB)).all()
    bound = bayesian_regret_bound(
        T,
        gamma,
        arms=parts(problem)[0],
        budget=3,
        noise_variance=0.25,
        largest_eigenvalue=2.0,
        **BUCB,
    )
    assert np.isfinite(bound).all()


@pytest.mark.parametrize(
    ("tau", "points"),
    [(0.3, 1.0), (1.0, 1.0), (7.0, 7.0), (7.0 + 1e-9, 8.0), (2.0**60 + 1.5, 2.0**60)],
)
def test_point_counts_are_integers(tau: float, points: float) -> None:
    assert float(log_ceiling(np.array(math.log(tau)))) == pytest.approx(
        math.log(points), rel=1e-15
    )


def test_smooth_functions_need_one_point() -> None:
    problem = {**PROBLEM, "lipschitz": 1e-9, "derivative_constants": (0.1, 1e-9)}
    assert integer_size(1, problem, UCB) == 1.0


def gamma(count: int) -> float:
    return math.log(1.0 + count)


SETTING: dict[str, Any] = {
    "arms": CompactSet(**SET),
    "budget": 3,
    "noise_variance": 0.25,
    "largest_eigenvalue": 2.0,
}


def test_theorem_by_hand() -> None:
    for options, constant, factor in [
        (UCB, math.pi**2 / 2, 1.0),
        ({"algorithm": "gp-ts"}, 2 * math.pi**2 / 3, 2.0),
        (BUCB, math.pi**2 / 3 + bucb_constant(1.5) * 2.0 / 0.5, 1.0),
    ]:
        tau = float(integer_size(50, PROBLEM, options))
        beta = plain_beta(50, tau, 2, options)
        expected = constant + factor * math.sqrt(
            2 * 2.25 * 50 * 3 * beta * math.log(151)
        )
        bound = bayesian_regret_bound(50, gamma, **SETTING, **options)
        assert float(bound) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("options", [UCB, {"algorithm": "gp-ts"}, BUCB], ids=str)
def test_curves_grow(options: dict[str, Any]) -> None:
    curve = bayesian_regret_bound(T, gamma, **SETTING, **options)
    assert (np.diff(curve) > 0.0).all()


def test_units() -> None:
    """f = √v·g, as far as one Lipschitz constant for mean and kernel lets it: equal for v < 1."""
    v = 0.25
    plain = bayesian_regret_bound(50, gamma, **SETTING, **UCB)
    scaled = {
        **SETTING,
        "noise_variance": 0.25 * v,
        "largest_eigenvalue": 2.0 * v,
        "arms": CompactSet(
            **{
                **SET,
                "lipschitz": 1.5 * v,
                "derivative_constants": (2.0, 1.2 * math.sqrt(v)),
            }
        ),
        "largest_variance": v,
    }
    other = bayesian_regret_bound(50, gamma, **scaled, **UCB)
    assert float(other) == pytest.approx(math.sqrt(v) * float(plain), rel=1e-12)


def test_no_bound_for_the_experiments_bucb() -> None:
    bound = bayesian_regret_bound(
        [1, 5], gamma, **SETTING, algorithm="gp-bucb", omega=1.0, xi=1.0
    )
    assert np.isinf(bound).all()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dimension", 0),
        ("side", 0.0),
        ("lipschitz", -1.0),
        ("derivative_constants", (2.0, 0.0)),
    ],
)
def test_wrong_input_is_named(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=name):
        CompactSet(**{**SET, name: value})


def test_half_an_order_is_refused() -> None:
    with pytest.raises(InputError, match="both omega and xi"):
        CompactSet(**SET).log_size(1, budget=1, noise_variance=1.0, omega=2.0)
