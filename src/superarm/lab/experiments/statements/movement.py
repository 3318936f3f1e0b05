"""Statements of *Movement Penalized Bayesian Optimization …* (2022).

GP-MD is played again in one setting of the run, with the run's own random numbers, so that its
distributions over actions are known in every round. Statements about probabilities are judged at the
smallest δ that the seeds can decide.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from superarm.core.streams import stream
from superarm.lab import theory
from superarm.lab.experiments.claims import Verdict, Word
from superarm.lab.problems import MovementProblem
from superarm.lab.results.formats import bound_text, count_text, significant
from superarm.lab.results.verdicts import LEAST_SEEDS

from .judging import EXACT_POSTERIORS, ROUNDING, failure_tails, word_if, word_of_share
from .movement_replay import ReplayedCell, episode_length, play_again
from .recorded import RecordedRun

_MOST_SEEDS = 20  # cells that are played again
_TREES = 100  # drawn for the mean stretch
_CONFIDENCE = 0.95
_LARGEST_POWER = 700.0  # of e, in floats


def statements(recorded: RecordedRun) -> Iterator[Verdict]:
    """Every statement that the run can judge.

    Args:
        recorded: a finished run.
    """
    world = recorded.world(recorded.run.seeds[0])
    if not isinstance(world, MovementProblem):
        return
    yield _stretch(recorded, world)
    for policy in recorded.run.policies:
        if _is_algorithm_1(recorded, policy):
            yield from _judge_policy(recorded, policy)


def _is_algorithm_1(recorded: RecordedRun, policy: str) -> bool:
    """Whether a policy is GP-MD as the paper has it, with an exact posterior."""
    if recorded.algorithm(policy) != "gp-md" or recorded.experiment.feedback:
        return False
    options = recorded.options(policy)
    once_per_episode = (
        options["update"] == "episode" and options["first_episode"] == "episode"
    )
    is_exact = options["posterior"] in EXACT_POSTERIORS
    return once_per_episode and is_exact and not recorded.is_modified(policy)


# --- trees --------------------------------------------------------------------------------


def _stretch(recorded: RecordedRun, world: MovementProblem) -> Verdict:
    """Eq. 15 for the run's metric: the mean over trees of the pair that is lengthened most."""
    metric = world.metric
    n = len(metric)
    rng = stream(recorded.run.seeds[0], "stretch", 0)
    stretches = theory.mean_stretch(metric, rng, trees=_TREES)
    mean = float(stretches.mean())
    worst = float(stretches.max())
    allowed = theory.stretch_bound(n)
    distances = metric.distances[~np.eye(n, dtype=bool)]
    # Actions that part at level i are at most 2τ^{i+2}/(τ − 1) = 8 · 2^i units apart, the unit being
    # min d; below the root 2^i is less than max d / min d, or 1 where all distances are equal.
    largest = 8.0 * float(distances.max()) / float(distances.min())
    pairs = n * (n - 1) / 2.0
    log_chance = math.log(pairs / (1.0 - _CONFIDENCE))
    room = largest * math.sqrt(log_chance / (2.0 * _TREES))
    word: Word = "undecided"
    if worst + room <= allowed:
        word = "holds"
    elif worst - room > allowed:
        word = "does not hold"
    in_logarithms = worst / math.log(n) if n > 1 else worst
    text = "Eq. 15: FRT lengthens no distance by more than O(ln n) on average (16/ln 2 · (1 + … + 1/n))"
    evidence = (
        f"{_TREES} trees over {n} actions lengthen distances {mean:.3g} times on "
        f"average, and the worst pair {worst:.3g} times, "
        f"{in_logarithms:.2g} ln n; {allowed:.4g} times is allowed, "
        f"and the error is at most {room:.3g} for all pairs at once (Hoeffding, 95 %)"
    )
    return Verdict(text, word, evidence)


# --- verdicts -----------------------------------------------------------------------------


def _judge_policy(recorded: RecordedRun, policy: str) -> Iterator[Verdict]:
    run = recorded.run
    index = len(run.settings) // 2
    seeds = run.seeds[:_MOST_SEEDS]
    delta = 1.0 - (1.0 - _CONFIDENCE) ** (1.0 / len(seeds))
    cells = [play_again(recorded, policy, seed, index, delta) for seed in seeds]
    world = recorded.world(seeds[0], index)
    assert isinstance(world, MovementProblem)
    where = recorded.where(index)
    place = f" ({policy}, {count_text(len(cells), 'seed')}, T = {run.rounds})"
    if not all(cell.same for cell in cells):
        place = f", with choices that differ from the recorded ones{place}"
    H = episode_length(world)
    for verdict in (
        *_learning(cells, world, H, delta),
        *_competitive(cells),
        *_coverage(cells, world, delta),
        *_concentration(recorded, policy, index, world, H),
    ):
        yield verdict._replace(evidence=f"{where}{verdict.evidence}{place}")


def _learning(
    cells: list[ReplayedCell], world: MovementProblem, H: int, delta: float
) -> Iterator[Verdict]:
    """Eqs. 50 to 60: what is not learned within an episode."""
    yield _shrinking(cells, H)
    yield from _stale_variances(cells, H)
    yield _expected_variances(cells, H, delta)
    shares = []
    for cell in cells:
        allowed = math.sqrt(world.horizon * cell.expected)
        shares.append(cell.stds / allowed)
    worst = max(shares)
    yield Verdict(
        "Eqs. 58 to 60: Σ⟨σ_m, l(z)⟩ ≤ √(NH Σ⟨σ²_m, l(z)⟩)",
        word_of_share(worst),
        f"at most {bound_text(worst)}",
    )


def _exp(power: float) -> float:
    """e to this power, or the largest that fits a float."""
    return math.exp(min(power, _LARGEST_POWER))


def _word_by_less(holds: bool) -> Word:
    """Where the right side was replaced by something smaller: exceeding that refutes nothing."""
    return "holds" if holds else "undecided"


def _shrinking(cells: list[ReplayedCell], H: int) -> Verdict:
    gained = min(float(cell.gamma[H - 1]) for cell in cells)
    ratio = max(cell.ratio for cell in cells)
    stretch = math.exp(max(cell.log_ratio for cell in cells))
    return Verdict(
        "Eqs. 51, 52: within an episode standard deviations shrink by at most exp(γ_{H−1})",
        word_of_share(ratio),
        f"at most {stretch:.4g}-fold, where γ_{{H−1}} is at least {gained:.3g}; "
        f"ln(σ_m/σ_{{h,m}}) was at most {ratio:.3g} of the information that the episode had gained",
    )


def _stale_variances(cells: list[ReplayedCell], H: int) -> Iterator[Verdict]:
    """Eqs. 53 and 56, as printed, and eq. 56 as it follows."""
    printed_episodes = []
    for cell in cells:
        factor = _exp(cell.gamma[H - 1])
        printed_episodes += [
            episode.stale / (factor * episode.current) for episode in cell.episodes
        ]
    yield Verdict(
        "Eq. 53, as printed: Σσ²_m ≤ exp(γ_{H−1})Σσ²_{h,m} in every episode (in general it needs "
        "exp(2γ_{H−1}))",
        _word_by_less(max(printed_episodes) <= 1.0 + ROUNDING),
        f"at most {bound_text(max(printed_episodes))} in "
        f"{count_text(len(printed_episodes), 'episode')}, with a lower bound of γ_{{H−1}} in its place",
    )
    derived = []
    for cell in cells:
        factor = math.exp(2.0 * cell.log_ratio)
        allowed = factor * 2.0 * cell.information / math.log1p(1.0 / cell.noise)
        derived.append(cell.stale / allowed)
    yield Verdict(
        "Eq. 56, with exp(2 max ln(σ_m/σ_{h,m})) and the information gained in place of their bounds: "
        "Σσ²_m ≤ exp(…) · 2I/ln(1 + 1/λ)",
        word_of_share(max(derived)),
        f"at most {bound_text(max(derived))}",
    )
    printed = []
    for cell in cells:
        allowed = 2.0 * _exp(cell.gamma[H]) * cell.information
        printed.append(cell.stale / allowed)
    yield Verdict(
        "Eq. 56, as printed: Σσ²_m ≤ 2 exp(γ_H)γ_{HN}, with the information gained for γ_{HN} (in "
        "general it does not hold)",
        _word_by_less(max(printed) <= 1.0 + ROUNDING),
        f"at most {bound_text(max(printed))}, with a lower bound of γ_H in its place",
    )


def _expected_variances(cells: list[ReplayedCell], H: int, delta: float) -> Verdict:
    shares = []
    for cell in cells:
        allowed = theory.conditional_mean_bound(
            cell.stale, episode=H, delta=delta, form="derived"
        )
        shares.append(cell.expected / float(allowed))
    return _with_probability(
        "Eq. 50, with 1.26H ln(1/δ) for 4H ln(1/δ) + 8H ln(4H) + 1: ΣE[Δ_m] ≤ 2ΣΔ_m + … for "
        "Δ_m = Σσ²_m(x)",
        sum(share > 1.0 for share in shares),
        len(cells),
        delta,
        f"at most {bound_text(max(shares))}",
    )


def _competitive(cells: list[ReplayedCell]) -> Iterator[Verdict]:
    """Eqs. 38 and 13, on lower bounds as costs."""
    tolerance = ROUNDING * max(cell.service_size for cell in cells)
    excess = max(cell.service for cell in cells)
    if excess > 0:
        evidence = f"above the cheapest such path by {significant(excess)} or less"
    else:
        evidence = f"below the cheapest such path by {significant(abs(excess))} or more"
    yield Verdict(
        "Eq. 12 on the tree: Σ⟨lcb, l(z)⟩ ≤ Σlcb(y) + C Σd_T in every episode, for any path y",
        word_if(excess <= tolerance),
        evidence,
    )
    printed = max(cell.service_printed for cell in cells)
    if printed > 0:
        evidence = f"an episode is up to {significant(printed)} above the cheapest path"
    else:
        evidence = f"every episode is below the cheapest path, by {significant(-printed)} or more"
    yield Verdict(
        "Eq. 38, as printed, with 0 for O(1): Σ⟨lcb, l(z)⟩ ≤ Σlcb(y) + Σd in every episode, in the "
        "metric itself (in general it needs κ as large as the trees' stretch)",
        _word_by_less(printed <= tolerance),
        evidence,
    )
    share = max(cell.movement for cell in cells)
    moved = sum(cell.moved for cell in cells)
    hit = sum(cell.hit for cell in cells)
    times = moved / max(hit, 1e-300)
    yield Verdict(
        "Eq. 13 on the tree, with costs before the step: Σ‖z_t − z_{t−1}‖ ≤ a Σ⟨c_t, z_{t−1}⟩ + b in "
        "every episode (with costs after the step, no such a and b exist)",
        word_of_share(share),
        f"at most {bound_text(share)}; in total {times:.3g} times the costs before the step",
    )


def _coverage(
    cells: list[ReplayedCell], world: MovementProblem, delta: float
) -> Iterator[Verdict]:
    if world.model.norm_bound is None or world.model.noise_bound is None:
        return
    yield _with_probability(
        "Lemma 1: |μ_t − f| ≤ β_t σ_t for all rounds and all actions in their contexts, with B = ‖f‖ "
        "and the information gained for γ_t",
        sum(cell.band > 1.0 for cell in cells),
        len(cells),
        delta,
        f"B = {world.model.norm_bound:.3g} in the first seed; |μ_t − f| is at most "
        f"{bound_text(max(cell.band for cell in cells))}",
    )


def _concentration(
    recorded: RecordedRun, policy: str, index: int, world: MovementProblem, H: int
) -> Iterator[Verdict]:
    """Eq. 31, by the costs that were expected before actions were drawn."""
    run = recorded.run
    if world.model.norm_bound is None:
        return
    paid = run.cumulative(policy, index, "total_cost")
    expected = run.cumulative(policy, index, "expected_total_cost")
    ends = (paid - expected)[:, H - 1 :: H]  # at the end of each episode
    episodes = np.arange(1, ends.shape[1] + 1)
    if not len(episodes):
        return
    delta = 1.0 - (1.0 - _CONFIDENCE) ** (1.0 / len(run.seeds))
    psi = float(world.metric.distances.max())
    largest = max(_largest_cost(recorded, seed, index) for seed in run.seeds)
    texts: dict[theory.movement.Form, str] = {
        "printed": "Eq. 31, as printed: costs exceed their expectation by at most 4H(B + ψ) ln(…)",
        "derived": "Eq. 31, by Azuma: costs exceed their expectation by at most H(B + ψ)√(N ln(1/δ)/2)",
    }
    last_excess = ends[:, -1]
    for form, text in texts.items():
        allowed = theory.episode_concentration(
            episodes,
            episode=H,
            norm_bound=largest,
            diameter=psi,
            delta=delta,
            form=form,
        )
        last_allowed = allowed[-1]
        share = float(np.max(last_excess / last_allowed))
        evidence = f"at most {bound_text(share)} after "
        evidence += f"{count_text(len(episodes), 'episode')}, with the largest f as B"
        all_costs = H * (largest + psi) * episodes[-1]
        if last_allowed >= all_costs:
            evidence += ", more than all costs together, so this run is too short to contradict it"
            yield Verdict(text, "undecided", evidence)
        else:
            failed = int(np.sum(last_excess > last_allowed))
            yield _with_probability(text, failed, len(run.seeds), delta, evidence)


def _largest_cost(recorded: RecordedRun, seed: int, index: int) -> float:
    """The largest f in any round of a cell."""
    world = recorded.world(seed, index)
    assert isinstance(world, MovementProblem)
    largest = -math.inf
    for step in range(1, world.horizon + 1):
        means = world.means(world.offer(step))
        largest = max(largest, float(np.max(means)))
    return largest


def _with_probability(
    text: str, failures: int, trials: int, delta: float, evidence: str
) -> Verdict:
    """A statement that may fail with probability δ, after this many independent seeds.

    δ is the smallest at which no failure shows, with 95 % confidence, that failures are rarer than δ.
    More failures than δ explains in 5 % of all runs contradict the statement.
    """
    word: Word = "undecided"
    if failures == 0 and trials >= LEAST_SEEDS:
        word = "holds"
    elif failure_tails(failures, trials, delta).as_many < 1.0 - _CONFIDENCE:
        word = "does not hold"
    seeds_text = count_text(trials, "seed")
    count = (
        f"with δ = {delta:.2g}, the smallest that {seeds_text} can decide, it fails in "
        f"{failures} of {trials}"
    )
    return Verdict(f"{text} (with probability 1 − δ)", word, f"{count}; {evidence}")
