"""Statements of *Bayesian Analysis of Combinatorial Gaussian Process Bandits (2025)*.

Checked on routes whose truth is drawn from the prior of an exact posterior, which is replayed:

=====================  ================================================================
``Lemma A.3``          Σ_t √β_t Σσ(a) ≤ √(2(λ* + ς²)·T·K·β_T·I): for any choices, in every cell
``Lemma A.2``          E Σ_t L_t(a*) − f(a*) ≤ √v·π²/6 for costs, with the lower index L_t = μ − √β_t·σ:
                       an expectation, which the mean over seeds decides
``section 4.2``        β_t of GP-BUCB is smaller than that of GP-UCB, round by round
=====================  ================================================================

Replayed are four seeds of the first setting, of one policy for each of the paper's three algorithms.
I is the information gained, λ* the largest eigenvalue of the chosen roads' covariances on the run, v
the largest prior variance. Regret itself is bounded in :mod:`superarm.lab.experiments.theorems`; Lemma
A.12 is judged from the audit of a run in :mod:`superarm.lab.experiments.audits`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from superarm.core import Floats, Ints, Offer
from superarm.lab.experiments.claims import Verdict, Word
from superarm.lab.results.formats import bound_text, count_text, mean_text, significant
from superarm.lab.results.roads import schedule_of
from superarm.lab.results.settings import feedback_at_once
from superarm.lab.results.verdicts import LEAST_SEEDS, lead_of
from superarm.lab.theory import variance_sum_bound
from superarm.models.worlds import RouteWorld
from superarm.oracles import Trip
from superarm.posteriors import FiniteGP
from superarm.rules import BayesianGPUCB

from .judging import word_if, word_of_share
from .recorded import RecordedRun

_LEARNERS = ("route-ucb", "route-bucb", "route-ts")
_EXACT = ("auto", "finite")  # of the posteriors that routes have
_SEEDS = LEAST_SEEDS  # replayed in the first setting: 500 rounds on Luxembourg take seconds each
_ROUNDING = 1e-9


class _Replay(NamedTuple):
    """What a cell did with its posterior."""

    used: float
    """Σ√β_tσ over what Lemma A.3 allows."""
    missed: float
    """Σ_t L_t(a*) − f(a*), Wh."""


def statements(recorded: RecordedRun) -> Iterator[Verdict]:
    """Every statement that the run can judge.

    Args:
        recorded: a finished run.
    """
    yield from _sizes_of_beta(recorded)
    if not _is_well_specified(recorded):
        return
    learners = _learners(recorded)
    if learners:
        replays = {policy: _replayed(recorded, policy) for policy in learners}
        yield _widths(recorded, replays)
        yield from _missed(recorded, replays)


# --- what the run is about ----------------------------------------------------------------------


def _is_well_specified(recorded: RecordedRun) -> bool:
    """Whether the truth is a draw from the learners' own prior, and stays as it is."""
    problem = recorded.in_setting(0).problem
    if problem["name"] != "navigation" or not feedback_at_once(recorded.run, 0):
        return False
    mismatched = any(
        problem.get(key) is not None for key in problem if key.startswith("model_")
    )
    changing = problem.get("conditions") or problem.get("rush_hours")
    return not mismatched and not changing


def _learners(recorded: RecordedRun) -> list[str]:
    """The first policy of each algorithm of the paper that has the exact posterior."""
    by_algorithm: dict[str, str] = {}
    for policy in recorded.run.policies:
        algorithm = recorded.algorithm(policy)
        if algorithm in _LEARNERS and _is_exact(recorded, policy):
            by_algorithm.setdefault(algorithm, policy)
    return list(by_algorithm.values())


def _is_exact(recorded: RecordedRun, policy: str) -> bool:
    if recorded.is_modified(policy):
        return False
    return recorded.options(policy)["posterior"] in _EXACT


# --- section 4.2 --------------------------------------------------------------------------------


def _sizes_of_beta(recorded: RecordedRun) -> Iterator[Verdict]:
    """β_t as each policy of the run has it, on as many arms as the first setting has."""
    run = recorded.run
    roads = run.road_map(0)
    upper = []  # GP-UCB with β_t as it is
    quantile = []
    for name in run.policies:
        algorithm = recorded.algorithm(name)
        if algorithm == "route-ucb" and recorded.options(name)["scale"] == 1.0:
            upper.append(name)
        elif algorithm == "route-bucb":
            quantile.append(name)
    if roads is None or not upper or not quantile:
        return
    arms = len(roads)
    reference = _widths_of(recorded, upper[0], arms) ** 2
    largest_ratios = {}
    for name in quantile:
        betas = _widths_of(recorded, name, arms) ** 2
        ratios = betas / reference
        largest_ratios[name] = float(ratios.max())
    worst = max(largest_ratios, key=lambda name: largest_ratios[name])
    largest = largest_ratios[worst]
    yield Verdict(
        "Section 4.2: the β_t of GP-BUCB are smaller than those of GP-UCB",
        word_if(largest < 1.0),
        f"β_t of {worst} is at most {significant(largest)} times that of {upper[0]} in rounds 1 to "
        f"{run.rounds} ({arms:,} arms)",
    )


def _widths_of(recorded: RecordedRun, policy: str, arms: int) -> Floats:
    """√β_t in every round; that of GP-UCB for policies without widths, as in the analysis."""
    run = recorded.run
    schedule = schedule_of(run, policy, 0, arms)
    if schedule is None:
        schedule = BayesianGPUCB(arms=arms)
    steps = range(1, run.rounds + 1)
    widths = [schedule.width(step, _no_gain) for step in steps]
    return np.array(widths)


def _no_gain(count: int) -> float:
    """γ, which these schedules do not use."""
    return 0.0


# --- what is replayed -----------------------------------------------------------------------------


def _replayed(recorded: RecordedRun, policy: str) -> list[_Replay]:
    seeds = recorded.run.seeds[:_SEEDS]
    return [_replay(recorded, policy, seed) for seed in seeds]


def _replay(recorded: RecordedRun, policy: str, seed: int) -> _Replay:
    """Replay one cell with the posterior that it had, on the route taken and the best one."""
    world = recorded.world(seed)
    assert isinstance(world, RouteWorld)
    model = world.model
    assert model.arms is not None
    posterior = FiniteGP(
        model.kernel, model.arms, model.noise_variance, model.mean, form="visited"
    )
    widths = _widths_of(recorded, policy, len(model.arms))
    explored = 0.0  # Σ√β_tσ
    missed = 0.0
    largest_eigenvalue = 0.0
    longest = 0
    rounds = recorded.rounds(policy, seed, world=world)
    for width, played in zip(widths, rounds, strict=True):
        taken = played.positions
        if not len(taken):  # no route was open
            continue
        covariance = posterior.predict(taken, return_cov=True).cov
        stds = np.sqrt(np.maximum(0.0, np.diagonal(covariance)))
        explored += width * float(stds.sum())
        eigenvalue = float(np.linalg.eigvalsh(covariance)[-1])
        largest_eigenvalue = max(largest_eigenvalue, eigenvalue)
        longest = max(longest, len(taken))
        best = _best_route(world, played.offer)
        belief = posterior.predict(best)
        assert belief.std is not None
        lower = belief.mean - width * belief.std
        true_costs = world.means(played.offer)[best]
        missed += float((lower - true_costs).sum())
        posterior.observe(taken, played.rewards)
    squares = variance_sum_bound(
        posterior.information_gain,
        largest_eigenvalue=largest_eigenvalue,
        noise_variance=model.noise_variance,
    )
    rounds_count = len(widths)
    root = math.sqrt(float(squares) * rounds_count * longest)
    allowed = root * float(widths.max())
    return _Replay(explored / allowed, missed)


def _best_route(world: RouteWorld, offer: Offer) -> Ints:
    """a*_t: the cheapest route by rectified costs, as regret has it."""
    scores = world.scores(offer)
    costs = np.negative(scores)
    trip = offer.structure
    assert isinstance(trip, Trip)
    if offer.available is not None:
        costs = np.where(offer.available, costs, np.inf)
    return np.array(world.cheapest(costs, trip), dtype=np.intp)


# --- verdicts ---------------------------------------------------------------------------------------


def _where(recorded: RecordedRun, cells: int) -> str:
    return f"{recorded.where(0)}{count_text(cells, 'cell')} replayed, T = {recorded.run.rounds}: "


def _widths(recorded: RecordedRun, replays: dict[str, list[_Replay]]) -> Verdict:
    used = {
        policy: max(cell.used for cell in cells) for policy, cells in replays.items()
    }
    tightest = max(used, key=lambda policy: used[policy])
    count = sum(len(cells) for cells in replays.values())
    where = _where(recorded, count)
    return Verdict(
        "Lemma A.3: the widths Σ√β_t·σ add up to at most √(2(λ* + ς²)·T·K·β_T·I)",
        word_of_share(used[tightest], _ROUNDING),
        f"{where}at most {bound_text(used[tightest])} ({tightest})",
    )


def _missed(
    recorded: RecordedRun, replays: dict[str, list[_Replay]]
) -> Iterator[Verdict]:
    """Lemma A.2, for policies with the β_t that it is about."""
    model = recorded.world(recorded.run.seeds[0]).model
    largest_variance = float(np.max(model.kernel.diag(model.arms)))
    limit = math.sqrt(largest_variance) * math.pi**2 / 6.0
    for policy, cells in replays.items():
        if not _has_lemma_widths(recorded, policy):
            continue
        values = np.array([cell.missed for cell in cells])
        where = _where(recorded, len(cells))
        yield Verdict(
            f"Lemma A.2: in expectation, the lower bounds of {policy} exceed the true cost of the "
            "best route by at most √v·π²/6 in total",
            _word_of_mean(values, limit),
            f"{where}{mean_text(values)} Wh, where {significant(limit)} Wh is allowed (best route "
            "by rectified costs; the proof holds for any route)",
        )


def _has_lemma_widths(recorded: RecordedRun, policy: str) -> bool:
    """Whether β_t is that of Lemma A.2: of GP-UCB as it is, or of the analysis of GP-TS."""
    algorithm = recorded.algorithm(policy)
    if algorithm == "route-ucb":
        return bool(recorded.options(policy)["scale"] == 1.0)
    return algorithm == "route-ts"


def _word_of_mean(values: Floats, limit: float) -> Word:
    """Whether a mean is decidedly below a limit, by the rules for claims."""
    size = abs(float(values.mean()))
    lead = lead_of(limit - values, scale=max(size, limit))
    strength = lead.strength()
    if abs(strength) <= 1.0:
        return "undecided"
    return word_if(strength > 0.0)
