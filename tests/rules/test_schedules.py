"""Each width against its equation."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtri

from superarm.core import Schedule
from superarm.core.errors import InputError, NotPositiveDefiniteError
from superarm.rules import (
    AgnosticGPUCB,
    BayesianGPUCB,
    BayesianGPUCBCompact,
    BayesUCBQuantile,
    BayesUCBQuantileCompact,
    Fixed,
    ImprovedGPUCB,
    InBlock,
    KernelUCB,
    LogarithmicUCB,
    OclokUCB,
    QuantileSchedule,
    ResettingGPUCB,
    SimpleQuantile,
    SrinivasFinite,
    ThompsonScale,
    TimeVaryingGPUCB,
)
from superarm.rules.base import upper_quantile
from superarm.rules.information.computed import information_gain

SLOPES = {"dimension": 2, "side": 3.0, "a": 1.5, "b": 0.7, "delta": 0.1}
PI2 = math.pi**2
ROOT_2PI = math.sqrt(2.0 * math.pi)


def drift_width(
    t: int, events: float, d: int, r: float, a: float, b: float, delta: float
) -> float:
    """√β_T of bogunovic2016time: eqs. 15 (``events`` 4) and 17 (``events`` 3), δ shared."""
    share = events * PI2 * t**2 / (6.0 * delta)
    slope = r * d * b * t**2 * math.sqrt(math.log(d * a * share))
    return math.sqrt(2.0 * math.log(share) + 2.0 * d * math.log(slope))


def quantile_width(log_size: float, t: int, omega: float, xi: float) -> float:
    """Φ⁻¹(1 − η_t), η_t = √(2π)^ω / (2 |A|^ω t^ξ): sandberg2025bayesian, Lemma 3.1."""
    log_eta = omega * (math.log(ROOT_2PI) - log_size) - math.log(2.0) - xi * math.log(t)
    return -float(ndtri(math.exp(log_eta)))


# Each width as its paper prints it, in round 7 with γ_6 = 5.
WIDTHS: list[tuple[Schedule, float]] = [
    (Fixed(value=1.5), 1.5),
    (
        ImprovedGPUCB(norm_bound=2.0, noise_bound=0.3, delta=0.1),
        2.0 + 0.3 * math.sqrt(2.0 * (5.0 + 1.0 + math.log(1.0 / 0.1))),
    ),
    (
        ThompsonScale(norm_bound=2.0, noise_bound=0.3, delta=0.1),
        2.0 + 0.3 * math.sqrt(2.0 * (5.0 + 1.0 + math.log(2.0 / 0.1))),
    ),
    (
        AgnosticGPUCB(norm_bound=2.0, delta=0.1),
        math.sqrt(2.0 * 2.0**2 + 300.0 * 5.0 * math.log(7.0 / 0.1) ** 3),
    ),
    (KernelUCB(eta=3.0, regularisation=4.0), 3.0 / math.sqrt(4.0)),
    (
        SrinivasFinite(arms=50, delta=0.1),
        math.sqrt(2.0 * math.log(50.0 * 7.0**2 * PI2 / (6.0 * 0.1))),
    ),
    (
        OclokUCB(most_arms=150),
        math.sqrt(2.0 * math.log(150.0 * PI2 * 7.0**2 / (3.0 * 0.05))),
    ),
    (BayesianGPUCB(arms=50), math.sqrt(2.0 * math.log(50.0 * 7.0**2 / ROOT_2PI))),
    (BayesianGPUCB(arms=50, scale=0.5), math.sqrt(math.log(50.0 * 7.0**2 / ROOT_2PI))),
    (
        BayesianGPUCBCompact(dimension=3, tau=4.0),
        math.sqrt(2.0 * math.log((4.0 * 7.0**2) ** 3 * 7.0**2 / ROOT_2PI)),
    ),
    (
        BayesianGPUCBCompact(dimension=3, tau=lambda t: 4.0 * t * t),
        math.sqrt(2.0 * math.log((4.0 * 7.0**2) ** 3 * 7.0**2 / ROOT_2PI)),
    ),
    (BayesUCBQuantile(arms=50), quantile_width(math.log(50.0), 7, 1.0, 1.0)),
    (
        BayesUCBQuantile(arms=50, omega=1.5, xi=2.0),
        quantile_width(math.log(50.0), 7, 1.5, 2.0),
    ),
    (
        BayesUCBQuantileCompact(dimension=3, tau=4.0, omega=1.5, xi=2.0),
        quantile_width(3.0 * math.log(4.0 * 7.0**2), 7, 1.5, 2.0),
    ),
    (SimpleQuantile(), -float(ndtri(1.0 / 8.0))),
    (LogarithmicUCB(), math.sqrt(0.8 * math.log(4.0 * 7.0))),
    (ResettingGPUCB(**SLOPES), drift_width(7, 4.0, 2, 3.0, 1.5, 0.7, 0.1)),
    (TimeVaryingGPUCB(**SLOPES), drift_width(7, 3.0, 2, 3.0, 1.5, 0.7, 0.1)),
]

# Round 30, γ_29 = 2, and every default.
DEFAULT_WIDTHS: list[tuple[Schedule, float]] = [
    (
        ImprovedGPUCB(norm_bound=1.25, noise_bound=0.75),
        1.25 + 0.75 * math.sqrt(2.0 * (2.0 + 1.0 + math.log(1.0 / 0.1))),
    ),
    (
        ThompsonScale(norm_bound=1.25, noise_bound=0.75),
        1.25 + 0.75 * math.sqrt(2.0 * (2.0 + 1.0 + math.log(2.0 / 0.1))),
    ),
    (
        AgnosticGPUCB(norm_bound=1.25),
        math.sqrt(2.0 * 1.25**2 + 300.0 * 2.0 * math.log(30.0 / 0.1) ** 3),
    ),
    (KernelUCB(eta=2.0), 2.0),
    (
        SrinivasFinite(arms=40),
        math.sqrt(2.0 * math.log(40.0 * 30.0**2 * PI2 / (6.0 * 0.1))),
    ),
    (
        OclokUCB(most_arms=40),
        math.sqrt(2.0 * math.log(40.0 * PI2 * 30.0**2 / (3.0 * 0.05))),
    ),
    (BayesianGPUCB(arms=40), math.sqrt(2.0 * math.log(40.0 * 30.0**2 / ROOT_2PI))),
    (
        BayesianGPUCBCompact(dimension=2, tau=5.0),
        math.sqrt(2.0 * math.log((5.0 * 30.0**2) ** 2 * 30.0**2 / ROOT_2PI)),
    ),
    (BayesUCBQuantile(arms=40), quantile_width(math.log(40.0), 30, 1.0, 1.0)),
    (
        BayesUCBQuantileCompact(dimension=2, tau=5.0),
        quantile_width(2.0 * math.log(5.0 * 30.0**2), 30, 1.0, 1.0),
    ),
    (SimpleQuantile(), -float(ndtri(1.0 / 31.0))),
    (LogarithmicUCB(), math.sqrt(0.8 * math.log(4.0 * 30.0))),
    (ResettingGPUCB(dimension=3), drift_width(30, 4.0, 3, 1.0, 1.0, 1.0, 0.1)),
    (TimeVaryingGPUCB(dimension=3), drift_width(30, 3.0, 3, 1.0, 1.0, 1.0, 0.1)),
]


def gamma(t: int) -> float:
    return {6: 5.0, 29: 2.0}.get(t, math.nan)


def name(case: object) -> str | None:
    return None if isinstance(case, float) else type(case).__name__


@pytest.mark.parametrize(("schedule", "expected"), WIDTHS, ids=name)
def test_width_equals_the_papers_formula(schedule: Schedule, expected: float) -> None:
    assert schedule.width(7, gamma) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize(("schedule", "expected"), DEFAULT_WIDTHS, ids=name)
def test_width_at_a_second_point(schedule: Schedule, expected: float) -> None:
    assert schedule.width(30, gamma) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize(("schedule", "expected"), WIDTHS, ids=name)
def test_width_never_shrinks_nor_is_negative(
    schedule: Schedule, expected: float
) -> None:
    widths = [schedule.width(step, math.log1p) for step in range(1, 60)]
    assert widths[0] >= 0.0
    assert all(type(width) is float for width in widths)
    assert all(later >= earlier for earlier, later in itertools.pairwise(widths))


def test_gamma_is_evaluated_at_the_previous_round() -> None:
    rounds: list[int] = []

    def spy(t: int) -> float:
        rounds.append(t)
        return 0.0

    for schedule in (
        ImprovedGPUCB(norm_bound=1.0, noise_bound=1.0),
        ThompsonScale(norm_bound=1.0, noise_bound=1.0),
        AgnosticGPUCB(norm_bound=1.0),
    ):
        schedule.width(9, spy)
    assert rounds == [8, 8, 8]


def test_negative_beta_counts_as_zero() -> None:
    assert BayesianGPUCB(arms=1).width(1, gamma) == 0.0
    assert LogarithmicUCB(c1=0.8, c2=0.4).width(2, gamma) == 0.0
    within = InBlock(schedule=LogarithmicUCB(), block=10)
    for step, t in ((1, 1), (10, 10), (11, 1), (25, 5)):
        assert within.width(step, gamma) == LogarithmicUCB().width(t, gamma)
    assert LogarithmicUCB(c1=0.8, c2=0.4).width(3, gamma) > 0.0
    assert BayesianGPUCBCompact(dimension=1, tau=0.5).width(1, gamma) == 0.0
    # So small a slope that the discretisation would have less than one point.
    tiny = TimeVaryingGPUCB(dimension=1, side=1e-9, a=1e-9, b=1e-9)
    assert tiny.width(1, gamma) == pytest.approx(
        math.sqrt(2.0 * math.log(math.pi**2 / 0.2))
    )


def test_quantiles_at_or_above_one_half_mean_no_width() -> None:
    one = BayesUCBQuantile(arms=1)
    assert math.exp(one.log_tail(1)) == pytest.approx(math.sqrt(2.0 * math.pi) / 2.0)
    assert [one.width(step, gamma) for step in (1, 2)] == [0.0, 0.0]
    assert one.width(3, gamma) > 0.0
    assert SimpleQuantile().width(1, gamma) == 0.0
    assert math.exp(SimpleQuantile().log_tail(4)) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("log_tail", "expected"),
    [
        (math.log(1e-20), 9.2623400897984076),
        (math.log(1e-300), 37.047096299361199),
        (-1000.0, 44.615747731969403),
        (math.log(0.5), 0.0),
        (math.log(0.9), 0.0),
    ],
)
def test_upper_quantile_far_in_the_tail(log_tail: float, expected: float) -> None:
    assert upper_quantile(log_tail) == pytest.approx(expected, rel=1e-13)


def test_upper_quantile_does_not_jump_where_the_method_changes() -> None:
    assert upper_quantile(-700.0 - 1e-9) == pytest.approx(
        upper_quantile(-700.0 + 1e-9), rel=1e-11
    )


def test_a_quantile_that_underflows_still_has_a_width() -> None:
    schedule = BayesUCBQuantileCompact(dimension=60, tau=1e6, omega=2.0)
    assert math.exp(schedule.log_tail(50)) == 0.0
    # Φ⁻¹(1 − η) ≈ √(−2 ln η) within a fifth of a unit here
    crude = math.sqrt(-2.0 * schedule.log_tail(50))
    assert crude - 0.2 < schedule.width(50, gamma) < crude


def test_horizon_fixes_beta() -> None:
    fixed = ResettingGPUCB(**SLOPES, horizon=7)
    assert (
        fixed.width(1, gamma)
        == fixed.width(3, gamma)
        == ResettingGPUCB(**SLOPES).width(7, gamma)
    )


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: Fixed(value=-1.0), "value"),
        (lambda: Fixed(value=math.nan), "value"),
        (lambda: Fixed(value="wide"), "value"),  # type: ignore[arg-type]
        (lambda: ImprovedGPUCB(norm_bound=-1.0, noise_bound=1.0), "norm_bound"),
        (lambda: ImprovedGPUCB(norm_bound=1.0, noise_bound=math.inf), "noise_bound"),
        (lambda: ImprovedGPUCB(norm_bound=1.0, noise_bound=1.0, delta=1.0), "delta"),
        (lambda: ThompsonScale(norm_bound=1.0, noise_bound=1.0, delta=0.0), "delta"),
        (lambda: AgnosticGPUCB(norm_bound=1.0, delta=2.0), "delta"),
        (lambda: KernelUCB(eta=1.0, regularisation=0.0), "regularisation"),
        (lambda: SrinivasFinite(arms=0), "arms"),
        (lambda: SrinivasFinite(arms=2.5), "arms"),  # type: ignore[arg-type]
        (lambda: OclokUCB(most_arms=-3), "most_arms"),
        (lambda: BayesianGPUCB(arms=3, scale=0.0), "scale"),
        (lambda: BayesianGPUCBCompact(dimension=0, tau=1.0), "dimension"),
        (lambda: BayesianGPUCBCompact(dimension=1, tau=0.0), "tau"),
        (lambda: BayesUCBQuantile(arms=3, omega=0.0), "omega"),
        (lambda: BayesUCBQuantileCompact(dimension=1, tau=1.0, xi=-1.0), "xi"),
        (lambda: LogarithmicUCB(c1=0.0), "c1"),
        (lambda: InBlock(schedule=LogarithmicUCB(), block=0), "block"),
        (lambda: InBlock(schedule=2.0, block=3), "schedule"),  # type: ignore[arg-type]
        (lambda: ResettingGPUCB(dimension=1, a=0.0), "a must be"),
        (lambda: TimeVaryingGPUCB(dimension=1, horizon=0), "horizon"),
    ],
)
def test_bad_parameters_are_named(make: object, word: str) -> None:
    with pytest.raises(InputError, match=word):
        make()  # type: ignore[operator]


def test_only_quantiles_are_quantile_schedules() -> None:
    kinds = {
        type(schedule)
        for schedule, _ in WIDTHS
        if isinstance(schedule, QuantileSchedule)
    }
    assert kinds == {BayesUCBQuantile, BayesUCBQuantileCompact, SimpleQuantile}


def test_information_gain_refuses_what_is_no_covariance() -> None:
    """−2I has a positive determinant of I + K in two dimensions, but is not positive definite."""

    class Negative:
        def __call__(self, X: Any, Y: Any = None) -> Any:
            return -2.0 * np.eye(len(X))

        def diag(self, X: Any) -> Any:
            return np.full(len(X), -2.0)

    with pytest.raises(NotPositiveDefiniteError, match="not positive semi-definite"):
        information_gain(Negative(), [[0.0], [1.0]], 1.0)
    with pytest.raises(InputError, match=r"kernel must be .*, got 'x'"):
        information_gain("x", [[0.0]], 1.0)  # type: ignore[arg-type]
