"""Statements of *Time-Varying Gaussian Process Bandit Optimization (2016)*.

Where a statement is about means, seeds are the unit, and
:mod:`superarm.lab.results.verdicts` says what decides. Where it must hold in any case, it holds if it
does in every round that was replayed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.core.errors import InputError
from superarm.kernels import Matern, SquaredExponential, Temporal
from superarm.lab.experiments.claims import Margin, Verdict, Word
from superarm.lab.problems import DriftingFunction
from superarm.lab.results.curves import Curve, growth_of, thinned
from superarm.lab.results.formats import count_text, mean_text, significant
from superarm.lab.results.settings import sharing_of, sweeps
from superarm.lab.theory import (
    DriftAlgorithm,
    Mismatch,
    mismatch_bounds,
    rate_drift,
    regret_lower_bound,
)
from superarm.models import Model
from superarm.models.worlds import World
from superarm.policies import IndexPolicy
from superarm.policies.drift import block_length
from superarm.posteriors import DriftingGP, Resetting
from superarm.rules import SrinivasFinite

from .judging import (
    failure_tails,
    few_seeds_text,
    size_text,
    word_of_margin,
    word_of_share,
)
from .recorded import RecordedRun
from .recovery import recovery

_REPLAYED = 5  # seeds, as a replay of 500 rounds on 2,500 arms takes seconds
_MISMATCH_CELLS = 15  # replayed in all settings together
_CHANCE = 0.05  # of a wrong verdict on eq. 29, on one side
_DELTA = 0.5  # five seeds without a failure then have a probability of 3 % at most, if eq. 29 is false


def statements(recorded: RecordedRun) -> Iterator[Verdict]:
    """Every statement that the run can speak to."""
    if recorded.experiment.feedback:
        return  # the paper's feedback comes at once
    world = recorded.world(recorded.run.seeds[0])
    if recorded.experiment.problem["name"] == "traffic-series":
        yield from recovery(recorded, _forgetting)
    if not isinstance(world, DriftingFunction) or world.k != 1:
        return
    bounded: set[float] = set()
    covered: set[float] = set()
    for index in range(len(recorded.run.settings)):
        setting_world = recorded.world(recorded.run.seeds[0], index)
        assert isinstance(setting_world, DriftingFunction)
        if setting_world.epsilon == 0.0:
            continue
        yield from _growth_with_time(recorded, index, setting_world)
        yield from _mismatch(recorded, index, setting_world)
        # Once for each truth: settings may differ in what learners assume alone.
        epsilon = setting_world.epsilon
        if epsilon not in bounded:
            bounded.add(epsilon)
            yield from _lower_bound(recorded, index, setting_world)
        if epsilon not in covered:
            verdicts = list(_confidence(recorded, index, setting_world))
            if verdicts:
                covered.add(epsilon)
            yield from verdicts
    yield from _growth_with_drift(recorded, world)
    yield from _block_lengths(recorded)


# --- which policies a statement is about ----------------------------------------------------


def _forgetting(recorded: RecordedRun, policy: str, index: int) -> float | None:
    """ε that TV-GP-UCB forgets by in a setting; ``None`` for other policies."""
    if recorded.algorithm(policy) != "tv-gp-ucb" or recorded.is_modified(policy, index):
        return None
    return _assumed_drift(recorded, policy, index)


def _assumed_drift(recorded: RecordedRun, policy: str, index: int) -> float | None:
    """ε by the policy's own option, or else that of the model."""
    own = recorded.options(policy, index).get("epsilon")
    if own is not None:
        return float(own)
    drift = recorded.world(recorded.run.seeds[0], index).model.drift
    return drift.epsilon if isinstance(drift, Temporal) else None


def _knows_drift(
    recorded: RecordedRun, policy: str, index: int, world: DriftingFunction
) -> bool:
    """Whether it is TV-GP-UCB with the true ε."""
    return _forgetting(recorded, policy, index) == world.epsilon


def _published_block(
    recorded: RecordedRun, policy: str, index: int, world: DriftingFunction
) -> bool:
    """Whether it is R-GP-UCB with the N of section 5.1 for the true ε."""
    if recorded.algorithm(policy) != "r-gp-ucb" or recorded.is_modified(policy, index):
        return False
    if recorded.options(policy, index).get("block") is not None:
        return False
    return _assumed_drift(recorded, policy, index) == world.epsilon


def _nu(world: DriftingFunction) -> float:
    return world.nu if world.kernel == "matern" else math.inf


# --- Theorem 4.1 ----------------------------------------------------------------------------


def _lower_bound(
    recorded: RecordedRun, index: int, world: DriftingFunction
) -> Iterator[Verdict]:
    """The policy of least regret, after round 1, against the bound on everybody's mean."""
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
    means = {}
    for policy in run.policies:
        totals = run.cumulative(policy, index).astype(np.float64)
        means[policy] = (totals[:, -1] - totals[:, 0]) / (run.rounds - 1)
    policy = min(means, key=lambda name: float(means[name].mean()))
    values = means[policy]
    margin = Margin(policy, values - bound.per_round, abs(float(values.mean())))
    times = significant(float(values.mean()) / bound.per_round)
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
        best = offer.arms.features[int(np.argmax(world.means(offer)))]
        inside += bool(np.min(np.minimum(best, 1.0 - best)) >= margin)
    draws = len(recorded.run.seeds)
    least = float(betaincinv(inside, draws - inside + 1, 0.01)) if inside else 0.0
    return _Interior(inside, draws, least)


# --- Corollary 4.1 --------------------------------------------------------------------------

_WIDTHS = "with the policy's own widths, which are below those of the theorems"


def _order_of(
    recorded: RecordedRun, policy: str, index: int, world: DriftingFunction
) -> DriftAlgorithm | None:
    """Which order of the corollary is about a policy in a setting, if any is."""
    if world.kernel == "matern" and not world.nu > 2.0:
        return None
    if _knows_drift(recorded, policy, index, world):
        return "tv-gp-ucb"
    return "r-gp-ucb" if _published_block(recorded, policy, index, world) else None


def _growth_with_time(
    recorded: RecordedRun, index: int, world: DriftingFunction
) -> Iterator[Verdict]:
    """Exponents in T, over the last half of the rounds, against that of the order times √β_T."""
    run = recorded.run
    rounds = thinned(run.rounds, log=True)
    for policy in run.policies:
        order = _order_of(recorded, policy, index, world)
        if order is None:
            continue
        rate = rate_drift(
            rounds, world.epsilon, order, dimension=world.dimension, nu=_nu(world)
        )
        # Õ leaves out logarithms; that of the widths is the largest of them.
        schedule = SrinivasFinite(arms=len(world.offer(1).arms), delta=_DELTA)
        widths = np.array([schedule.width(int(step), float) for step in rounds])
        allowed = growth_of(Curve(rounds, rate * widths))
        plain = growth_of(Curve(rounds, rate))
        sums = run.cumulative(policy, index)[:, rounds - 1].astype(np.float64)
        found = np.array([growth_of(Curve(rounds, each)) for each in sums])
        margin = Margin(policy, allowed - found, 1.0)
        evidence = (
            f"{recorded.where(index)}{policy}: regret grows like T^p with p = {mean_text(found)} "
            f"over the last half of the rounds; the order has p = {plain:.3g}, or {allowed:.3g} with "
            f"√β_T, which Õ leaves out; {_WIDTHS} {size_text(recorded.run)}"
        )
        yield Verdict(
            f"Corollary 4.1: with T, regret of {policy} grows no faster than the order",
            word_of_margin(margin, sharing_of(run, [index])),
            evidence + few_seeds_text(recorded.run),
        )


def _growth_with_drift(
    recorded: RecordedRun, first: DriftingFunction
) -> Iterator[Verdict]:
    """Exponents in ε over the run's sweep: an upper bound ε^q needs at least q as ε → 0."""
    run = recorded.run
    for panel in sweeps(run, "epsilon"):
        settings = [
            index
            for index, value in zip(panel.settings, panel.values, strict=True)
            if value
        ]
        worlds = [recorded.world(run.seeds[0], index) for index in settings]
        drifts = np.array(
            [world.epsilon for world in worlds if isinstance(world, DriftingFunction)]
        )
        if len(drifts) < 2 or len(drifts) < len(worlds):
            continue
        for policy in run.policies:
            orders = {
                _order_of(recorded, policy, index, world)
                for index, world in zip(settings, worlds, strict=True)
                if isinstance(world, DriftingFunction)
            }
            order = orders.pop()
            if orders or order is None:
                continue
            yield _in_drift(recorded, policy, order, settings, drifts, first)


def _in_drift(
    recorded: RecordedRun,
    policy: str,
    order: DriftAlgorithm,
    settings: list[int],
    drifts: Floats,
    world: DriftingFunction,
) -> Verdict:
    run = recorded.run
    nu = _nu(world)
    rates = [
        float(rate_drift(run.rounds, drift, order, dimension=world.dimension, nu=nu))
        for drift in drifts
    ]
    totals = np.stack(
        [run.cumulative(policy, index)[:, -1].astype(np.float64) for index in settings]
    )
    allowed = _slope(drifts, np.array(rates)[:, None])[0]
    found = _slope(drifts, totals)
    margin = Margin(policy, found - allowed, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):  # where there was no regret
        steps = np.diff(np.log(totals.mean(axis=1))) / np.diff(np.log(drifts))
    between = ", ".join(f"{step:.3g}" for step in steps)
    evidence = (
        f"regret grows like ε^q with q = {mean_text(found)} over ε = "
        f"{', '.join(f'{drift:g}' for drift in drifts)} (between neighbouring ε, from means: "
        f"{between}); the order has q = {allowed:.3g}; {_WIDTHS} {size_text(recorded.run)}"
    )
    return Verdict(
        f"Corollary 4.1: with ε, regret of {policy} falls at least as fast as the order",
        word_of_margin(margin, sharing_of(run, settings)),
        evidence + few_seeds_text(recorded.run),
    )


def _slope(drifts: Floats, totals: Floats) -> Floats:
    """Least-squares slopes of ln(total) over ln ε, one for each column of totals (settings, n)."""
    away = np.log(drifts) - np.log(drifts).mean()
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(away @ np.log(totals) / (away @ away))


# --- eqs. 28 and 29 -------------------------------------------------------------------------


def _confidence(
    recorded: RecordedRun, index: int, world: DriftingFunction
) -> Iterator[Verdict]:
    """Every arm of every round within √β_t posterior standard deviations, with probability 1 − δ."""
    run = recorded.run
    seeds = run.seeds[:_REPLAYED]
    schedule = SrinivasFinite(arms=len(world.offer(1).arms), delta=_DELTA)
    for policy in run.policies:
        if not _knows_drift(recorded, policy, index, world):
            continue
        shares = [
            _largest_error(recorded, policy, seed, index, schedule) for seed in seeds
        ]
        failures = sum(share > 1.0 for share in shares)
        tails = failure_tails(failures, len(seeds), _DELTA)
        evidence = (
            f"{recorded.where(index)}{policy}: in {failures} of "
            f"{count_text(len(seeds), 'replayed seed')} an arm's value lies outside; the largest error is "
            f"{significant(max(shares))} of the width. If failures had a probability of δ = {_DELTA:g} "
            f"or more, so few of them would have a probability of at most "
            f"{significant(tails.as_few, 2)} (T = {run.rounds})"
        )
        yield Verdict(
            "Eq. 29: with probability 1 − δ, |f_t(x) − μ̃_{t−1}(x)| ≤ √β_t σ̃_{t−1}(x) for all rounds "
            "and arms",
            tails.word(_CHANCE),
            evidence,
        )


def _largest_error(
    recorded: RecordedRun, policy: str, seed: int, index: int, schedule: SrinivasFinite
) -> float:
    """The largest |f_t − μ̃| over √β_t σ̃, over rounds and arms of one seed."""
    world = recorded.world(seed, index)
    assert isinstance(world, DriftingFunction)
    posterior = _posterior(world.model, world.epsilon)
    largest = 0.0
    for offer, chosen, rewards in recorded.rounds(policy, seed, index, world, arms=1):
        belief = posterior.belief(offer)
        width = schedule.width(offer.step, float)
        shares = np.abs(world.means(offer) - belief.mean) / (width * belief.std)
        largest = max(largest, float(shares.max()))
        posterior.observe(posterior.keys(offer)[chosen], rewards)
    return largest


def _posterior(model: Model, epsilon: float) -> DriftingGP:
    """The posterior of eqs. 7 and 8."""
    drift = Temporal(epsilon=epsilon)
    assert model.arms is not None
    return DriftingGP(model.kernel, model.arms, model.noise_variance, drift=drift)


# --- Lemma D.1 ------------------------------------------------------------------------------


def _mismatch(
    recorded: RecordedRun, index: int, world: DriftingFunction
) -> Iterator[Verdict]:
    """It holds for any choices, if the largest |y| of a block takes the place of eq. 65."""
    run = recorded.run
    seeds = run.seeds[: max(1, min(_REPLAYED, _MISMATCH_CELLS // len(run.settings)))]
    for policy in run.policies:
        if recorded.algorithm(policy) != "r-gp-ucb" or "wrapped" in recorded.options(
            policy, index
        ):
            continue
        block = _block_of(recorded, policy, index, world)
        if block is None:
            continue
        used = [mismatch_used(recorded, policy, seed, index, block) for seed in seeds]
        mean = max(share.mean for share in used)
        std = max(share.std for share in used)
        evidence = (
            f"{recorded.where(index)}{policy}, N = {block}: without forgetting since the last reset, "
            f"means differ by at most {significant(mean, 2)} of what is allowed, and standard "
            f"deviations by at most {significant(std, 2)}"
        )
        # Standard deviations are between 0 and the prior's, and so are their differences.
        largest_std = math.sqrt(
            float(world.model.kernel.diag(world.offer(1).arms.features).max())
        )
        allowed = mismatch_bounds(block, world.epsilon, world.model.noise_variance, 1.0)
        if float(allowed.std) >= largest_std:
            evidence += (
                f" of {significant(float(allowed.std))}, which is more than they can differ by: no run "
                f"with this N, ε and σ² can contradict that part"
            )
        evidence += f" ({count_text(len(seeds), 'seed')} replayed, T = {run.rounds})"
        yield Verdict(
            "Lemma D.1: Δμ ≤ (σ⁻² + σ⁻⁴)N³ε max|y| and Δσ ≤ √((3σ⁻² + σ⁻⁴)N³ε), as in eqs. 82 and 87",
            word_of_share(max(mean, std)),
            evidence,
        )


def _block_of(
    recorded: RecordedRun, policy: str, index: int, world: World
) -> int | None:
    """N of R-GP-UCB in a setting."""
    learner = recorded.at(index).build_policy(policy, world)
    if not isinstance(learner, IndexPolicy) or not isinstance(
        learner.posterior, Resetting
    ):
        return None
    return learner.posterior.block


def mismatch_used(
    recorded: RecordedRun, policy: str, seed: int, index: int, block: int
) -> Mismatch:
    """The largest share of what Lemma D.1 allows that a cell used, in means and standard deviations.

    Two posteriors get what R-GP-UCB saw since its last reset: one that drifts by ε as the truth does,
    and one that forgets nothing.

    Args:
        recorded: a run of a :class:`~superarm.lab.problems.DriftingFunction`.
        policy: whose choices are replayed.
        seed: of the cell.
        index: of the setting.
        block: N, the rounds from one reset to the next.
    """
    world = recorded.world(seed, index)
    if not isinstance(world, DriftingFunction):
        raise InputError(
            f"Lemma D.1 is about functions that drift, got {type(world).__name__}"
        )
    model = world.model
    drifting = Resetting(_posterior(model, world.epsilon), block=block)
    static = Resetting(_posterior(model, 0.0), block=block)
    mean = 0.0
    std = 0.0
    largest = 0.0  # |y| since the last reset
    count = 0  # rewards since then
    for offer, chosen, rewards in recorded.rounds(policy, seed, index, world, arms=1):
        if (offer.step - 1) % block == 0:
            largest = 0.0
            count = 0
        if count:
            true = drifting.belief(offer)
            stale = static.belief(offer)
            allowed = mismatch_bounds(
                block, world.epsilon, model.noise_variance, largest
            )
            mean = max(mean, float(np.abs(true.mean - stale.mean).max() / allowed.mean))
            std = max(std, float(np.abs(true.std - stale.std).max() / allowed.std))
        for posterior in (drifting, static):
            posterior.observe(posterior.keys(offer)[chosen], rewards)
        largest = float(np.abs(rewards).max(initial=largest))
        count += len(rewards)
    return Mismatch(mean, std)


# --- N and smoothness -----------------------------------------------------------------------

_SMOOTHNESS = (2.5, 4.5, math.inf)


def _block_lengths(recorded: RecordedRun) -> Iterator[Verdict]:
    """The N of section 5.1 for rougher and smoother functions: what it is does not depend on seeds."""
    run = recorded.run
    drifts = {}
    for index in range(len(run.settings)):
        world = recorded.world(run.seeds[0], index)
        if not isinstance(world, DriftingFunction) or world.epsilon == 0.0:
            continue
        if any(
            _published_block(recorded, policy, index, world) for policy in run.policies
        ):
            drifts[world.epsilon] = world
    if not drifts:
        return
    steps: list[int] = []
    shown = []
    for epsilon, world in sorted(drifts.items()):
        lengths = []
        for nu in _SMOOTHNESS:
            rough = Matern(nu=nu, lengthscale=world.lengthscale)
            smooth = SquaredExponential(lengthscale=world.lengthscale)
            kernel = rough if math.isfinite(nu) else smooth
            lengths.append(block_length(replace(world.model, kernel=kernel), epsilon))
        steps += [second - first for first, second in pairwise(lengths)]
        shown.append(f"{', '.join(map(str, lengths))} for ε = {epsilon:g}")
    evidence = (
        f"N of Matérn kernels with ν = 2.5 and 4.5, and of the squared exponential: {'; '.join(shown)} "
        f"(T = {run.rounds}). The exponent 1/(4 − c) of 1/ε also falls, to 1/4, as ν grows"
    )
    word: Word = "undecided"  # where all N are T
    if min(steps) < 0:
        word = "does not hold"
    elif max(steps) > 0:
        word = "holds"
    yield Verdict(
        "Section 4.2: N increases as the function becomes smoother",
        word,
        evidence,
    )
