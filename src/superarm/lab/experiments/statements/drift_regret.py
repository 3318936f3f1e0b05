"""Theorem 4.1 and Corollary 4.1 of *Time-Varying Gaussian Process Bandit Optimization (2016)*."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.core.errors import InputError
from superarm.lab.experiments.claims import Margin, Verdict
from superarm.lab.problems import DriftingFunction
from superarm.lab.results.curves import Curve, growth_of, spaced_rounds
from superarm.lab.results.formats import count_text, mean_text, significant
from superarm.lab.results.settings import sharing_of, sweeps
from superarm.lab.theory import DriftAlgorithm, rate_drift, regret_lower_bound
from superarm.rules import SrinivasFinite

from .drift_policies import has_published_block, has_true_drift, smoothness_of
from .judging import few_seeds_text, size_text, word_of_margin
from .recorded import RecordedRun

_DELTA = 0.5  # of the widths whose logarithm Õ leaves out

# --- Theorem 4.1 ----------------------------------------------------------------------------


def judge_lower_bound(
    recorded: RecordedRun, index: int, world: DriftingFunction
) -> Iterator[Verdict]:
    """The policy of least regret, after round 1, against the bound on everybody's mean.

    Args:
        recorded: a finished run.
        index: of the setting.
        world: the problem in that setting.
    """
    run = recorded.run
    kernel = world.model.kernel
    if run.rounds < 2:
        return
    try:
        proven = regret_lower_bound(
            run.rounds, kernel, epsilon=world.epsilon, dimension=world.dimension
        )
    except InputError:
        return  # no constants of eq. 11 for this kernel
    best_inside = _interior(recorded, index, proven.margin)
    bound = regret_lower_bound(
        run.rounds,
        kernel,
        epsilon=world.epsilon,
        dimension=world.dimension,
        margin=proven.margin,
        interior=max(best_inside.least, proven.interior),
    )
    if bound.per_round == 0.0:
        return  # steps of the proof leave the domain, or P(A₄) is too small for a float
    policy, values = _least_regret(recorded, index)
    mean = float(values.mean())
    margin = Margin(policy, values - bound.per_round, abs(mean))
    times = significant(mean / bound.per_round)
    evidence = (
        f"{recorded.where(index)}lowest mean regret of a round after the first: {policy} with "
        f"{mean_text(values)}, which is {times} times the bound {significant(bound.per_round)} = "
        f"{significant(bound.per_round / world.epsilon)} ε (L = {significant(bound.curvature)}, "
        f"η = {significant(bound.margin)}; f₁ is best at least that far inside in "
        f"{best_inside.inside} of {count_text(best_inside.draws, 'seed')}, so P(A₄) ≥ "
        f"{significant(bound.interior)} at 99 %). With the proven P(A₄) ≥ "
        f"{significant(proven.interior)}, the bound is {significant(proven.per_round)}. The theorem is "
        f"about all points of [0, 1]^d; here the arms are {len(world.offer(1).arms):,} of them "
        f"{size_text(recorded.run)}"
    )
    yield Verdict(
        "Theorem 4.1: no policy has lower mean regret than (T − 1) times the bound of eqs. 101 to 103",
        word_of_margin(margin, sharing_of(run, [index])),
        evidence + few_seeds_text(recorded.run),
    )


def _least_regret(recorded: RecordedRun, index: int) -> tuple[str, Floats]:
    """The policy of least mean regret a round after the first, and that regret, (seeds,)."""
    run = recorded.run
    regrets = {}
    for policy in run.policies:
        sums = run.cumulative(policy, index)
        totals = sums.astype(np.float64)  # (seeds, T)
        after_first = totals[:, -1] - totals[:, 0]
        regrets[policy] = after_first / (run.rounds - 1)

    def mean_regret(policy: str) -> float:
        return float(regrets[policy].mean())

    best = min(regrets, key=mean_regret)
    return best, regrets[best]


class _Interior(NamedTuple):
    """In how many draws the best arm is inside, and how probable that is at least, at 99 %."""

    inside: int
    draws: int
    least: float


def _interior(recorded: RecordedRun, index: int, margin: float) -> _Interior:
    """Of f₁, which seeds draw independently of each other; by Clopper and Pearson."""
    from scipy.special import betaincinv

    inside = 0
    for seed in recorded.run.seeds:
        world = recorded.world(seed, index)
        offer = world.offer(1)
        position = int(np.argmax(world.means(offer)))
        best = offer.arms.features[position]  # (d,)
        to_boundary = np.min(np.minimum(best, 1.0 - best))
        if to_boundary >= margin:
            inside += 1
    draws = len(recorded.run.seeds)
    if not inside:
        return _Interior(inside, draws, 0.0)
    least = float(betaincinv(inside, draws - inside + 1, 0.01))
    return _Interior(inside, draws, least)


# --- Corollary 4.1 --------------------------------------------------------------------------

_WIDTHS = "with the policy's own widths, which are below those of the theorems"


def _order_of(
    recorded: RecordedRun, policy: str, index: int, world: DriftingFunction
) -> DriftAlgorithm | None:
    """Which order of the corollary is about a policy in a setting, if any is."""
    if world.kernel == "matern" and not world.nu > 2.0:
        return None
    if has_true_drift(recorded, policy, index, world):
        return "tv-gp-ucb"
    if has_published_block(recorded, policy, index, world):
        return "r-gp-ucb"
    return None


def judge_growth_with_time(
    recorded: RecordedRun, index: int, world: DriftingFunction
) -> Iterator[Verdict]:
    """Exponents in T, over the last half of the rounds, against that of the order times √β_T.

    Args:
        recorded: a finished run.
        index: of the setting.
        world: the problem in that setting.
    """
    run = recorded.run
    rounds = spaced_rounds(run.rounds, log=True)
    for policy in run.policies:
        order = _order_of(recorded, policy, index, world)
        if order is None:
            continue
        rate = rate_drift(
            rounds,
            world.epsilon,
            order,
            dimension=world.dimension,
            nu=smoothness_of(world),
        )
        # Õ leaves out logarithms; that of the widths is the largest of them.
        arms = len(world.offer(1).arms)
        schedule = SrinivasFinite(arms=arms, delta=_DELTA)
        widths = [schedule.width(int(step), float) for step in rounds]
        allowed = growth_of(Curve(rounds, rate * np.array(widths)))
        plain = growth_of(Curve(rounds, rate))
        sums = run.cumulative(policy, index)[:, rounds - 1]
        curves = [Curve(rounds, totals) for totals in sums.astype(np.float64)]
        exponents = np.array([growth_of(curve) for curve in curves])
        margin = Margin(policy, allowed - exponents, 1.0)
        evidence = (
            f"{recorded.where(index)}{policy}: regret grows like T^p with p = {mean_text(exponents)} "
            f"over the last half of the rounds; the order has p = {plain:.3g}, or {allowed:.3g} with "
            f"√β_T, which Õ leaves out; {_WIDTHS} {size_text(recorded.run)}"
        )
        yield Verdict(
            f"Corollary 4.1: with T, regret of {policy} grows no faster than the order",
            word_of_margin(margin, sharing_of(run, [index])),
            evidence + few_seeds_text(recorded.run),
        )


def judge_growth_with_drift(
    recorded: RecordedRun, first: DriftingFunction
) -> Iterator[Verdict]:
    """Exponents in ε over the run's sweep: an upper bound ε^q needs at least q as ε → 0.

    Args:
        recorded: a finished run.
        first: the problem in the first setting.
    """
    run = recorded.run
    for panel in sweeps(run, "epsilon"):
        values = zip(panel.settings, panel.values, strict=True)
        settings = [index for index, epsilon in values if epsilon]
        worlds = _drifting_worlds(recorded, settings)
        if len(worlds) < 2 or len(worlds) < len(settings):
            continue
        drifts = np.array([world.epsilon for world in worlds.values()])
        for policy in run.policies:
            orders = {
                _order_of(recorded, policy, index, world)
                for index, world in worlds.items()
            }
            order = orders.pop()
            if orders or order is None:
                continue  # no order covers all settings
            yield _judge_exponents(recorded, policy, order, settings, drifts, first)


def _drifting_worlds(
    recorded: RecordedRun, settings: list[int]
) -> dict[int, DriftingFunction]:
    """The worlds of these settings, as far as their functions drift."""
    worlds = {}
    for index in settings:
        world = recorded.world(recorded.run.seeds[0], index)
        if isinstance(world, DriftingFunction):
            worlds[index] = world
    return worlds


def _judge_exponents(
    recorded: RecordedRun,
    policy: str,
    order: DriftAlgorithm,
    settings: list[int],
    drifts: Floats,
    world: DriftingFunction,
) -> Verdict:
    run = recorded.run
    nu = smoothness_of(world)
    rates = []
    for drift in drifts:
        rate = rate_drift(run.rounds, drift, order, dimension=world.dimension, nu=nu)
        rates.append(float(rate))
    totals_by_setting = []
    for index in settings:
        totals_at_end = run.cumulative(policy, index)[:, -1]
        totals_by_setting.append(totals_at_end.astype(np.float64))
    totals = np.stack(totals_by_setting)  # (settings, seeds)
    (allowed,) = _slopes(drifts, np.array(rates)[:, None])
    exponents = _slopes(drifts, totals)
    margin = Margin(policy, exponents - allowed, 1.0)
    mean_totals = totals.mean(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):  # where there was no regret
        rises = np.diff(np.log(mean_totals))
        steps = rises / np.diff(np.log(drifts))
    between = ", ".join(f"{step:.3g}" for step in steps)
    drifts_text = ", ".join(f"{drift:g}" for drift in drifts)
    evidence = (
        f"regret grows like ε^q with q = {mean_text(exponents)} over ε = "
        f"{drifts_text} (between neighbouring ε, from means: "
        f"{between}); the order has q = {allowed:.3g}; {_WIDTHS} {size_text(recorded.run)}"
    )
    return Verdict(
        f"Corollary 4.1: with ε, regret of {policy} falls at least as fast as the order",
        word_of_margin(margin, sharing_of(run, settings)),
        evidence + few_seeds_text(recorded.run),
    )


def _slopes(drifts: Floats, totals: Floats) -> Floats:
    """Least-squares slopes of ln(total) over ln ε, one for each column of totals (settings, n)."""
    log_drifts = np.log(drifts)
    centred = log_drifts - log_drifts.mean()
    squares = centred @ centred
    with np.errstate(divide="ignore", invalid="ignore"):
        products = centred @ np.log(totals)
    return np.asarray(products / squares)
