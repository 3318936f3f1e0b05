"""Statements of *On Kernelized Multi-armed Bandits (2017)*.

Theorems 1 and 2 and Lemmas 3 and 4 are about any points that are chosen without looking ahead. They are
judged on the points of IGP-UCB and GP-TS with λ = 1 + 2/T, whatever λ the learners used. Theorems 3 and
4 are about the learners themselves: they are judged where these are Algorithms 1 and 2 with an exact
posterior, and used that λ and a certified γ.

=========  =================================================================================
``λ``      1 + η with η = 2/T
``I_t``    ½ Σ ln(1 + σ²_{s−1}(x_s)/λ), the information gained in t rounds; at most γ_t
=========  =================================================================================

A statement that may fail with probability δ is judged by the seeds in which it fails. It holds if a
share δ of all runs, or more, would fail in so few seeds with a probability below 1 %; it does not hold
if a share δ would fail in so many with a probability below 1 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeGuard

import numpy as np

from superarm.core import Floats, Gamma, Ints
from superarm.lab import theory
from superarm.lab.experiments.claims import Verdict
from superarm.lab.problems.finite import FiniteProblem
from superarm.lab.results.formats import count_text, significant
from superarm.lab.results.settings import feedback_at_once
from superarm.oracles import TopK
from superarm.rules import information

from .judging import EXACT_POSTERIORS, ROUNDING, failure_tails, trials_needed, word_if
from .recorded import RecordedRun

_POLICIES = ("igp-ucb", "gp-ts")
_MOST_WORK = 1e10  # rounds × (10⁴ + arms²) of a run that are replayed; about a minute
_RIDGE = 1e-8  # with which a lower bound on the norm of f is computed


class _Replay(NamedTuple):
    """One cell, seen by a posterior with λ = 1 + 2/T."""

    world: FiniteProblem
    positions: Ints  # the arms played, (T,)
    stds: Floats  # σ_{t−1}(x_t), (T,)
    gained: Floats  # I_0, …, I_T, (T + 1,)
    norms: Floats  # the squared norm of Theorem 1 after each round, (T,)
    band: Floats  # the largest |μ_{t−1}(x) − f(x)| / σ_{t−1}(x) over all arms, (T,)

    @property
    def rounds(self) -> Ints:
        """1, …, T."""
        return np.arange(1, len(self.stds) + 1)

    @property
    def information(self) -> Gamma:
        """I_t as a γ: it is at most γ_t, so that bounds with it are the harder ones."""
        return lambda count: float(self.gained[count])


class _Used(NamedTuple):
    """How much of what a statement allows each seed used: it fails where that is above 1."""

    policy: str
    seeds: tuple[int, ...]
    shares: tuple[float, ...]

    @property
    def failed(self) -> int:
        """In how many seeds the statement fails."""
        return sum(share > 1.0 + ROUNDING for share in self.shares)

    @property
    def worst(self) -> str:
        """The largest share, in words."""
        worst = int(np.argmax(self.shares))
        share = significant(self.shares[worst])
        return f"at most {share} of what is allowed ({self.policy}, seed {self.seeds[worst]})"


class _Cells(NamedTuple):
    """The cells of one policy in one setting that are replayed."""

    policy: str
    algorithm: str
    delta: float
    seeds: tuple[int, ...]
    replays: tuple[_Replay, ...]  # one for each seed
    regret: Floats  # cumulative, (seeds, T)

    @property
    def size(self) -> str:
        """How many seeds and rounds were replayed, in words."""
        return f"{count_text(len(self.seeds), 'seed')}, T = {self.regret.shape[1]:,}"

    def used(self, shares: Iterable[float]) -> _Used:
        """Shares of what a statement allows.

        Args:
            shares: one for each replay.
        """
        return _Used(self.policy, self.seeds, tuple(shares))


def statements(recorded: RecordedRun) -> Iterator[Verdict]:
    """Every statement that the run can judge.

    Args:
        recorded: a finished run.
    """
    run = recorded.run
    policies = [name for name in run.policies if recorded.algorithm(name) in _POLICIES]
    if not policies:
        return
    cells_per_seed = len(policies) * len(run.settings)
    for index in range(len(run.settings)):
        world = recorded.world(run.seeds[0], index)
        if not _is_single_arm(world) or not feedback_at_once(run, index):
            continue
        where = recorded.where(index)
        seeds = _affordable_seeds(recorded, world, cells_per_seed)
        for policy in policies:
            for verdict in _judge_policy(recorded, policy, index, seeds):
                yield verdict._replace(evidence=where + verdict.evidence)


def _is_single_arm(world: object) -> TypeGuard[FiniteProblem]:
    """Whether a world is the problem of section 2: fixed arms, one a round, with B and R stated."""
    if not isinstance(world, FiniteProblem):
        return False
    model = world.model
    stated = model.norm_bound is not None and model.noise_bound is not None
    single = isinstance(model.oracle, TopK) and model.oracle.k == 1
    return stated and single and model.direction == "maximize"


def _affordable_seeds(
    recorded: RecordedRun, world: FiniteProblem, cells_per_seed: int
) -> tuple[int, ...]:
    """The seeds that are replayed: as many as take about a minute, one at least."""
    rounds = recorded.run.rounds
    work = rounds * (1e4 + len(world.arms) ** 2) * cells_per_seed
    count = max(1, int(_MOST_WORK / work))
    return tuple(recorded.run.seeds[:count])


def _judge_policy(
    recorded: RecordedRun, policy: str, index: int, seeds: tuple[int, ...]
) -> Iterator[Verdict]:
    run = recorded.run
    options = recorded.options(policy, index)
    regret = run.cumulative(policy, index)
    rows = [run.seeds.index(seed) for seed in seeds]
    cells = _Cells(
        policy=policy,
        algorithm=recorded.algorithm(policy),
        delta=float(options["delta"]),
        seeds=seeds,
        replays=tuple(_replayed(recorded, policy, seed, index) for seed in seeds),
        regret=np.array([regret[row] for row in rows]),
    )
    yield from _judge_any_choices(cells)
    worlds = [replay.world for replay in cells.replays]
    if not all(_within_assumptions(world) for world in worlds):
        return
    used = cells.used(_share_of_stds(replay) for replay in cells.replays)
    text = "Lemma 4: Σσ_{t−1}(x_t) ≤ √(4(T + 2)γ_T), for every prefix and with the information gained"
    yield _always(text, used, f"{used.worst}; {cells.size}")
    yield _bands(cells)
    lam = theory.theory_noise_variance(run.rounds)
    has_theory_noise = all(
        math.isclose(world.model.noise_variance, lam) for world in worlds
    )
    if not has_theory_noise or not _is_as_proved(recorded, policy, index):
        return
    if cells.algorithm == "igp-ucb":
        yield from _igp_ucb(cells)
    else:
        yield from _gp_ts(cells)


def _is_as_proved(recorded: RecordedRun, policy: str, index: int) -> bool:
    """Whether a learner is Algorithm 1 or 2 with a certified γ, as Theorems 3 and 4 have it."""
    if recorded.is_modified(policy, index):
        return False
    options = recorded.options(policy, index)
    if options["gain"] != "greedy" or options["posterior"] not in EXACT_POSTERIORS:
        return False
    # Of GP-TS: joint draws, scaled by v_t, over all arms.
    is_joint = options.get("mode", "joint") == "joint"
    is_scaled = bool(options.get("scaled", True))
    is_everywhere = options.get("decision_set", "all") == "all"
    return is_joint and is_scaled and is_everywhere


# --- what holds for any choices ----------------------------------------------------------


def _judge_any_choices(cells: _Cells) -> Iterator[Verdict]:
    """Eqs. 10 and 11, Lemma 3 and Theorem 1, whatever f and its norm are."""
    differences = [_difference_of_information(replay) for replay in cells.replays]
    yield _always(
        "Eqs. 10, 11: ½ ln det(I + K_t/λ) = ½ Σ ln(1 + σ²_{s−1}(x_s)/λ)",
        cells.used(1.0 + difference for difference in differences),
        f"the two differ by at most {significant(max(differences), 2)} "
        f"of their size ({cells.policy}; {cells.size})",
    )
    gains = cells.used(_share_of_gain(replay) for replay in cells.replays)
    text = "Lemma 3: the information gained in t rounds is at most γ_t (an upper bound, by greedy choice)"
    yield _always(text, gains, f"{gains.worst}; {cells.size}")
    norms = cells.used(_share_of_noise(replay, cells.delta) for replay in cells.replays)
    text = "Theorem 1: the self-normalised norm of the noise stays below its bound in all rounds"
    yield _with_probability(text, norms, cells.delta, cells.size)


def _replayed(recorded: RecordedRun, policy: str, seed: int, index: int) -> _Replay:
    """Eqs. 19–21 on what a cell recorded, beside the same for its noise alone."""
    world = recorded.world(seed, index)
    assert isinstance(world, FiniteProblem)
    model = world.model
    rounds = recorded.run.rounds
    lam = theory.theory_noise_variance(rounds)
    cov = np.array(model.kernel(model.arms))  # (n, n)
    prior = np.broadcast_to(np.asarray(model.mean, dtype=np.float64), world.truth.shape)
    truth = world.truth - prior
    mean = np.zeros(len(truth))  # of f − the prior mean
    # Of a function that is learned from the noise alone.
    noise_mean = np.zeros(len(truth))
    positions = np.empty(rounds, dtype=np.intp)
    variances = np.empty(rounds)
    norms = np.empty(rounds)
    band = np.empty(rounds)
    squares = 0.0
    fitted = 0.0
    for step, played in enumerate(recorded.rounds(policy, seed, index, world, arms=1)):
        arm = int(played.positions[0])
        band[step] = _largest_error(mean, truth, cov)
        noise = float(played.rewards[0]) - world.truth[arm]
        spread = lam + max(0.0, float(cov[arm, arm]))
        # ‖ε‖² in the norm of Theorem 1 is ‖ε‖² − εᵀ(K + λI)⁻¹ε, and the latter a sum over rounds.
        squares += noise**2
        fitted += (noise - noise_mean[arm]) ** 2 / spread
        positions[step] = arm
        variances[step] = spread - lam
        norms[step] = squares - fitted
        column = cov[:, arm].copy()
        residual = truth[arm] + noise - mean[arm]
        noise_residual = noise - noise_mean[arm]
        mean += column * (residual / spread)  # eq. 19
        noise_mean += column * (noise_residual / spread)
        cov -= np.outer(column, column / spread)  # eqs. 20, 21
    gains = 0.5 * np.log1p(variances / lam)  # eq. 11
    return _Replay(
        world=world,
        positions=positions,
        stds=np.sqrt(variances),
        gained=np.append(0.0, np.cumsum(gains)),
        norms=norms,
        band=band,
    )


def _largest_error(mean: Floats, truth: Floats, cov: Floats) -> float:
    """The largest |μ(x) − f(x)| / σ(x) over all arms; arms with σ = 0 count as 0."""
    stds = np.sqrt(np.maximum(cov.diagonal(), 0.0))
    errors = np.abs(mean - truth)
    shares = np.zeros_like(errors)
    np.divide(errors, stds, out=shares, where=stds > 0.0)
    return float(np.max(shares))


def _difference_of_information(replay: _Replay) -> float:
    """Eq. 10 less eq. 11, over their size; repeated arms make eq. 10 a determinant of n rows."""
    model = replay.world.model
    lam = theory.theory_noise_variance(len(replay.stds))
    counts = np.bincount(replay.positions, minlength=len(replay.world.arms))
    roots = np.sqrt(counts / lam)
    scaled = roots[:, None] * model.kernel(model.arms) * roots  # (n, n)
    identity = np.eye(len(roots))
    _, log_determinant = np.linalg.slogdet(identity + scaled)
    by_determinant = 0.5 * log_determinant  # eq. 10
    by_rounds = replay.gained[-1]  # eq. 11
    return float(abs(by_determinant - by_rounds) / by_rounds)


def _share_of_gain(replay: _Replay) -> float:
    model = replay.world.model
    rounds = len(replay.stds)
    lam = theory.theory_noise_variance(rounds)
    greedy = information.greedy_information_gain(model.kernel, model.arms, rounds, lam)
    shares = replay.gained[1:] / greedy.upper_bounds[1:]
    return float(np.max(shares))


def _share_of_noise(replay: _Replay, delta: float) -> float:
    """The largest squared norm over its bound, R²(ln det(λI + K_t) + 2 ln(1/δ)): eq. 6."""
    rounds = replay.rounds
    lam = theory.theory_noise_variance(len(rounds))
    log_determinants = 2.0 * replay.gained[1:] + rounds * math.log(lam)
    bounds = replay.world.noise_std**2 * (log_determinants - 2.0 * math.log(delta))
    return float(np.max(replay.norms / bounds))


def _share_of_stds(replay: _Replay) -> float:
    bounds = theory.std_sum_bound(replay.rounds, replay.information)
    return float(np.max(np.cumsum(replay.stds) / bounds))


def _within_assumptions(world: FiniteProblem) -> bool:
    """k(x, x) ≤ 1 and ‖f‖_k ≤ B; the norm is at least what a ridge leaves of it."""
    model = world.model
    K = np.asarray(model.kernel(model.arms))
    f = world.truth - np.asarray(model.mean)
    weights = np.linalg.solve(K + _RIDGE * np.eye(len(K)), f)
    norm = math.sqrt(max(0.0, float(f @ weights)))
    norm_bound = model.norm_bound or 0.0
    largest_variance = float(K.diagonal().max())
    tolerance = 1.0 + ROUNDING
    return largest_variance <= tolerance and norm <= norm_bound * tolerance


# --- what holds with high probability -----------------------------------------------------


def _bands(cells: _Cells) -> Verdict:
    """Theorem 2 at δ, or Lemma 6 at δ/2; with I_t, with which the band is narrower than with γ_t."""
    chance = cells.delta if cells.algorithm == "igp-ucb" else cells.delta / 2.0
    shares = []
    for replay in cells.replays:
        widths = _widths(replay, replay.information, chance)
        shares.append(float(np.max(replay.band / widths)))
    text = "Theorem 2: |μ_{t−1}(x) − f(x)| ≤ β_t σ_{t−1}(x) for all arms and rounds at once"
    if cells.algorithm == "gp-ts":
        text = "Lemma 6: |μ_{t−1}(x) − f(x)| ≤ v_t σ_{t−1}(x), E^f(t), for all arms and rounds at once"
    text += ", with the information gained in place of γ"
    return _with_probability(text, cells.used(shares), chance, cells.size)


def _widths(replay: _Replay, gamma: Gamma, delta: float) -> Floats:
    model = replay.world.model
    norm_bound = model.norm_bound or 0.0
    noise_bound = model.noise_bound or 0.0
    return theory.confidence_width(replay.rounds, gamma, norm_bound, noise_bound, delta)


def _certified(replay: _Replay) -> Gamma:
    """γ as the learners with gain = "greedy" use it."""
    model = replay.world.model
    return information.GreedyGrowth(
        kernel=model.kernel,
        candidates=model.arms,
        noise_variance=model.noise_variance,
        horizon=len(replay.stds),
    )


def _igp_ucb(cells: _Cells) -> Iterator[Verdict]:
    """Appendix D: the regret of a round, wherever the band holds, and Theorem 3."""
    round_shares = []
    total_shares = []
    for replay, total in zip(cells.replays, cells.regret, strict=True):
        gamma = _certified(replay)
        widths = _widths(replay, gamma, cells.delta)
        regrets = np.diff(total, prepend=0.0)
        holds_so_far = np.maximum.accumulate(replay.band / widths) <= 1.0
        allowed = 2.0 * widths * replay.stds
        shares = np.where(holds_so_far, regrets / allowed, 0.0)
        round_shares.append(float(np.max(shares)))
        bounds = 2.0 * widths * theory.std_sum_bound(replay.rounds, gamma)
        total_shares.append(float(np.max(total / bounds)))
    used = cells.used(round_shares)
    text = "Theorem 3, appendix D: r_t ≤ 2β_t σ_{t−1}(x_t) in every round up to which the band holds"
    yield _always(text, used, f"{used.worst}; {cells.size}")
    text = "Theorem 3: R_T ≤ 2β_T √(4(T + 2)γ_T), for every prefix"
    yield _with_probability(text, cells.used(total_shares), cells.delta, cells.size)


def _gp_ts(cells: _Cells) -> Iterator[Verdict]:
    """Lemma 13, from which Theorem 4 follows, with all arms as D_t: |D_t| is their number n."""
    delta = cells.delta
    shares = []
    for replay, total in zip(cells.replays, cells.regret, strict=True):
        rounds = replay.rounds.astype(np.float64)
        B = replay.world.model.norm_bound or 0.0
        arms = len(replay.world.arms)
        v = _widths(replay, _certified(replay), delta / 2.0)
        draws = np.sqrt(2.0 * np.log(arms * rounds**2))
        c = v * (1.0 + draws)  # Lemma 5 with D' = D_t
        p = theory.ANTI_CONCENTRATION
        exploration = 11.0 * c / p * np.cumsum(replay.stds)
        constant = (2.0 * B + 1.0) * math.pi**2 / 6.0
        deviation = np.sqrt(2.0 * rounds * math.log(2.0 / delta))
        azuma = (4.0 * B + 11.0) * c / p * deviation
        bounds = exploration + constant + azuma  # (T,)
        shares.append(float((total / bounds)[-1]))
    text = "Lemma 13, Theorem 4: R_T is at most the bound of Lemma 13, with all arms as D_t"
    yield _with_probability(text, cells.used(shares), delta, cells.size)


# --- verdicts ----------------------------------------------------------------------------


def _always(text: str, used: _Used, evidence: str) -> Verdict:
    """A statement that must hold in every seed."""
    return Verdict(text, word_if(not used.failed), evidence)


def _with_probability(text: str, used: _Used, delta: float, size: str) -> Verdict:
    """A statement that may fail with probability δ, by the exact binomial tails."""
    failed = used.failed
    tails = failure_tails(failed, len(used.seeds), delta)
    word = tails.word()
    if tails.as_many < tails.as_few:
        side = (
            f"so many failures would have probability {significant(tails.as_many, 2)}"
        )
    else:
        side = f"so few failures would have probability {significant(tails.as_few, 2)}"
    evidence = (
        f"{used.worst}; it fails in {failed} of {size}; if a share δ = {delta:g} of all runs failed, "
        f"{side}"
    )
    if word == "undecided" and not failed:
        needed = trials_needed(delta)
        evidence += f"; too few seeds to decide, {needed} without a failure would"
    return Verdict(f"{text} (probability 1 − δ)", word, evidence)
