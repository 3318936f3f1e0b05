"""Statements of *Movement Penalized Bayesian Optimization …* (2022).

GP-MD is played again in one setting of the run, with the run's own random numbers, so that its
distributions over actions are known in every round. Statements about probabilities are judged at the
smallest δ that the seeds can decide.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.stats import binom

from superarm import theory
from superarm.core import Decision, Feedback, Floats, Forecast, Offer
from superarm.experiments.claims import Verdict, Word
from superarm.movement import MatrixMetric, offline_optimum
from superarm.movement.carrying import start_of
from superarm.policies.movement import TreeIndexPolicy
from superarm.policies.published import posterior_for
from superarm.problems import MovementProblem
from superarm.results.curves import counted, setting_text, significant
from superarm.results.verdicts import LEAST_SEEDS
from superarm.rules import RidgeUCB
from superarm.simulation import simulate
from superarm.streams import stream

from .recorded import Recorded

_PAPER = "Movement Penalized Bayesian Optimization with Application to Wind Energy Systems (2022)"
_EXACT = ("auto", "finite", "streaming")
_MOST_SEEDS = 20  # cells that are played again
_TREES = 100  # drawn for the mean stretch
_CONFIDENCE = 0.95
_ROUNDING = 1e-6  # of sums over hundreds of rounds, by two posteriors


def statements(recorded: Recorded) -> Iterator[Verdict]:
    """Every statement that the run can speak to."""
    world = recorded.world(recorded.run.seeds[0])
    if not isinstance(world, MovementProblem):
        return
    yield _stretch(recorded, world)
    for policy in recorded.run.policies:
        if _is_algorithm_1(recorded, policy):
            yield from _of_policy(recorded, policy)


def _is_algorithm_1(recorded: Recorded, policy: str) -> bool:
    """Whether a policy is GP-MD as the paper has it, with an exact posterior."""
    if recorded.algorithm(policy) != "gp-md" or recorded.experiment.feedback:
        return False
    options = recorded.options(policy)
    once_per_episode = options["update"] == "episode" and options["first_episode"] == "episode"
    unchanged = "wrapped" not in options and "told" not in options
    return once_per_episode and unchanged and options["posterior"] in _EXACT


# --- trees --------------------------------------------------------------------------------


def _stretch(recorded: Recorded, world: MovementProblem) -> Verdict:
    """Eq. 15 for the run's metric: the mean over trees of the pair that is lengthened most."""
    metric = world.metric
    n = len(metric)
    rng = stream(recorded.run.seeds[0], "stretch", 0)
    found = theory.mean_stretch(metric, rng, trees=_TREES)
    worst = float(found.max())
    allowed = theory.stretch_bound(n)
    distances = metric.distances[~np.eye(n, dtype=bool)]
    # Actions that part at level i are at most 2τ^{i+2}/(τ − 1) = 8 · 2^i units apart, the unit being
    # min d; below the root 2^i is less than max d / min d, or 1 where all distances are equal.
    largest = 8.0 * float(distances.max()) / float(distances.min())
    pairs = n * (n - 1) / 2.0
    room = largest * math.sqrt(math.log(pairs / (1.0 - _CONFIDENCE)) / (2.0 * _TREES))
    word: Word = "undecided"
    if worst + room <= allowed:
        word = "holds"
    elif worst - room > allowed:
        word = "does not hold"
    text = "Eq. 15: FRT lengthens no distance by more than O(ln n) on average (16/ln 2 · (1 + … + 1/n))"
    evidence = (
        f"of {n} actions, the pair that {_TREES} trees lengthen most is {worst:.3g} times as long on "
        f"average, {worst / math.log(n) if n > 1 else worst:.2g} ln n, and all pairs "
        f"{float(found.mean()):.3g} times; allowed are {allowed:.4g}, and the error is at most "
        f"{room:.3g} for all pairs at once (Hoeffding, 95 %)"
    )
    return Verdict(text, word, evidence)


# --- cells that are played again -------------------------------------------------------------


@dataclass(kw_only=True)
class _Cell:
    """What one seed of GP-MD says of the steps of the proof; variances are relative to ``unit``."""

    seed: int
    unit: float  # the largest variance of the prior
    noise: float  # λ, relative to ``unit``
    gamma: Floats  # (H + 1,), lower bounds of γ_0, …, γ_H: models may differ from seed to seed
    same: bool = True  # whether the choices are those that were recorded
    ratio: float = 0.0  # eq. 52: the largest ln(σ_m/σ_{h,m}) over the information of the episode so far
    log_ratio: float = 0.0  # eq. 51: the largest ln(σ_m/σ_{h,m})
    episodes: list[tuple[float, float]] = field(default_factory=list)  # eq. 53: Σσ²_m, Σσ²_{h,m}
    expected: float = 0.0  # eq. 50: Σ⟨σ²_m, l(z)⟩
    stds: float = 0.0  # eq. 58: Σ⟨σ_m, l(z)⟩
    information: float = 0.0
    service: float = -math.inf  # eq. 38: the largest excess of an episode over what C allows
    service_printed: float = -math.inf  # … over the cost of the cheapest way in the metric itself
    service_size: float = 0.0  # the largest cost of an episode
    movement: float = 0.0  # eq. 13: the largest share of an episode in what is allowed
    moved: float = 0.0
    hit: float = 0.0
    band: float = 0.0  # Lemma 1: the largest |μ − f| over βσ

    @property
    def stale(self) -> float:
        return sum(stale for stale, _ in self.episodes)

    @property
    def fresh(self) -> float:
        return sum(fresh for _, fresh in self.episodes)


class _Round(NamedTuple):
    """What an episode keeps of a round."""

    costs: Floats  # (n,), lower bounds as mirror descent gets them
    mean: Floats  # (n,), l(z) after the step


class _Replay:
    """Watches a cell of GP-MD that is played again, beside two posteriors of its own."""

    def __init__(
        self, world: MovementProblem, policy: TreeIndexPolicy, cell: _Cell, delta: float
    ) -> None:
        model = world.model
        self.world, self.policy, self.cell = world, policy, cell
        self.stale = posterior_for(model, "streaming")  # learns as Algorithm 1 does
        self.fresh = posterior_for(model, "streaming")  # learns at once
        self.delta = delta
        self._held: list[tuple[Floats, Floats]] = []
        self._rounds: list[_Round] = []
        self._start = 0
        self._gained = 0.0  # in this episode
        self._sums = (0.0, 0.0)

    def __call__(
        self, name: str, offer: Offer, decision: Decision, feedback: Feedback, forecast: Forecast | None
    ) -> None:
        if offer.begins or offer.step == 1:
            self.end_episode()
            self._begin(offer)
        model, cell = self.world.model, self.cell
        keys = self.stale.keys(offer)
        belief = self.stale.belief(offer)
        variances = belief.std**2
        assert decision.carry is not None
        mean = decision.carry.array("distribution")
        costs = -self.policy.rule.desirability(belief.negated(), offer.step, np.random.default_rng(0))
        costs = np.maximum(costs, 0.0) if self.policy.clip else costs
        self._rounds.append(_Round(costs, mean))
        cell.expected += float(variances @ mean) / cell.unit
        cell.stds += float(belief.std @ mean) / math.sqrt(cell.unit)
        now = self.fresh.belief(offer)
        self._check_band(offer, now.mean, now.std)
        chosen = decision.positions
        before, after = float(variances[chosen][0]), float(now.std[chosen][0] ** 2)
        log_ratio = 0.5 * math.log(before / after)
        cell.log_ratio = max(cell.log_ratio, log_ratio)
        if log_ratio > _ROUNDING:
            cell.ratio = max(cell.ratio, log_ratio / self._gained)
        stale, fresh = self._sums
        self._sums = stale + before / cell.unit, fresh + after / cell.unit
        gain = 0.5 * math.log1p(after / model.noise_variance)
        self._gained += gain
        cell.information += gain
        seen = keys[feedback.positions]
        self.fresh.observe(seen, feedback.rewards)
        self._held.append((seen, feedback.rewards))

    def _begin(self, offer: Offer) -> None:
        for keys, rewards in self._held:
            self.stale.observe(keys, rewards)
        start = start_of(offer)
        self._held, self._rounds, self._gained, self._sums = [], [], 0.0, (0.0, 0.0)
        self._start = 0 if start is None else start
        forest = self.policy.forest
        assert forest is not None
        self.tree = forest.trees[len(self.cell.episodes) % len(forest.trees)]

    def _check_band(self, offer: Offer, mean: Floats, std: Floats) -> None:
        """Lemma 1 for all actions in the round's context, with the information that was gained."""
        model = self.world.model
        if model.norm_bound is None or model.noise_bound is None:
            return
        schedule = RidgeUCB(
            norm_bound=model.norm_bound,
            noise_bound=model.noise_bound,
            regularisation=model.noise_variance,
            delta=self.delta,
        )
        width = schedule.width(offer.step, lambda _: self.cell.information)
        off = np.abs(mean - self.world.means(offer))
        self.cell.band = max(self.cell.band, float(np.max(off / (width * std))))

    def end_episode(self) -> None:
        """Compare service and movement of the episode with what is allowed."""
        if not self._rounds:
            return
        cell, tree = self.cell, self.tree
        cell.episodes.append(self._sums)
        costs = np.stack([each.costs for each in self._rounds])
        means = np.stack([each.mean for each in self._rounds])
        served = float(np.sum(costs * means))
        constant = theory.service_constant(tree, self.policy.kappa)
        charged = MatrixMetric(distances=constant * tree.distances, repair=True)
        allowed = offline_optimum(costs, charged, self._start).total
        cell.service = max(cell.service, served - allowed)
        optimum = offline_optimum(costs, self.world.metric, self._start).total
        cell.service_printed = max(cell.service_printed, served - optimum)
        cell.service_size = max(cell.service_size, float(np.abs(costs).max()) * len(costs))
        before = np.vstack([np.eye(len(tree))[self._start], means[:-1]])
        raised = costs - costs.min(axis=1, keepdims=True)
        hit = float(np.sum(raised * before))
        moved = sum(tree.distance(one, other) for one, other in zip(before, means, strict=True))
        ratio, start = theory.movement_constants(tree, self.policy.kappa)
        cell.movement = max(cell.movement, moved / (ratio * hit + start))
        cell.moved += moved
        cell.hit += hit
        self._rounds = []


def _play_again(recorded: Recorded, policy: str, seed: int, index: int, delta: float) -> _Cell:
    run = recorded.run
    world = recorded.world(seed, index)
    learner = recorded.at(index).build_policy(policy, world)
    assert isinstance(world, MovementProblem)
    assert isinstance(learner, TreeIndexPolicy)
    unit = float(np.max(world.model.kernel.diag(world.offer(1).arms.features)))
    cell = _Cell(
        seed=seed, unit=unit, noise=world.model.noise_variance / unit, gamma=_information_gains(world)
    )
    replay = _Replay(world, learner, cell, delta)
    traces = simulate(world, {policy: learner}, rounds=run.rounds, seed=seed, watch=replay)
    replay.end_episode()
    played = traces[policy].choices
    cell.same = played is not None and bool(np.array_equal(played, run.choices(policy, index, seed)))
    return cell


def _information_gains(world: MovementProblem) -> Floats:
    """γ_0, …, γ_H from below: by greedy choice among what the first episode offers, (H + 1,)."""
    H = _episode(world)
    offered = [world.offer(step).arms.features for step in range(1, min(world.horizon, H) + 1)]
    candidates = np.unique(np.concatenate(offered), axis=0)
    model = world.model
    return theory.greedy_information_gain(model.kernel, candidates, H, model.noise_variance).gains


# --- verdicts -----------------------------------------------------------------------------


def _of_policy(recorded: Recorded, policy: str) -> Iterator[Verdict]:
    run = recorded.run
    index = len(run.settings) // 2
    seeds = run.seeds[:_MOST_SEEDS]
    delta = 1.0 - (1.0 - _CONFIDENCE) ** (1.0 / len(seeds))
    cells = [_play_again(recorded, policy, seed, index, delta) for seed in seeds]
    world = recorded.world(seeds[0], index)
    assert isinstance(world, MovementProblem)
    setting = run.settings[index]
    where = f"[{setting_text(setting)}] " if setting else ""
    place = f" ({policy}, {counted(len(cells), 'seed')}, T = {run.rounds})"
    if not all(cell.same for cell in cells):
        place = f", with choices that differ from the recorded ones by rounding{place}"
    H = _episode(world)
    for text, word, evidence in (
        *_learning(cells, world, H, delta),
        *_competitive(cells),
        *_coverage(cells, world, delta),
        *_concentration(recorded, policy, index, world, H),
    ):
        yield Verdict(text, word, f"{where}{evidence}{place}")


def _episode(world: MovementProblem) -> int:
    """H: rounds from one offer that begins an episode to the next."""
    step = 2
    while step <= world.horizon and not world.offer(step).begins:
        step += 1
    return step - 1


def _word(holds: bool) -> Word:
    return "holds" if holds else "does not hold"


def _word_by_less(holds: bool) -> Word:
    """Where the right side was replaced by something smaller: exceeding that refutes nothing."""
    return "holds" if holds else "undecided"


def _learning(
    cells: list[_Cell], world: MovementProblem, H: int, delta: float
) -> Iterator[tuple[str, Word, str]]:
    """Eqs. 50 to 56: what is not learned within an episode."""
    ratio = max(cell.ratio for cell in cells)
    stretch = math.exp(max(cell.log_ratio for cell in cells))
    gained = min(float(cell.gamma[H - 1]) for cell in cells)
    yield (
        "Eqs. 51, 52: within an episode standard deviations shrink by at most exp(γ_{H−1})",
        _word(ratio <= 1.0 + _ROUNDING),
        f"at most {stretch:.4g}-fold, where γ_{{H−1}} is at least {gained:.3g}; "
        f"ln(σ_m/σ_{{h,m}}) was at most {ratio:.3g} of the information that the episode had gained",
    )
    shares = [
        stale / (math.exp(min(cell.gamma[H - 1], 700.0)) * fresh)
        for cell in cells
        for stale, fresh in cell.episodes
    ]
    yield (
        "Eq. 53, as printed: Σσ²_m ≤ exp(γ_{H−1})Σσ²_{h,m} in every episode (in general it needs "
        "exp(2γ_{H−1}))",
        _word_by_less(max(shares) <= 1.0 + _ROUNDING),
        f"at most {max(shares):.3g} of what is allowed in {counted(len(shares), 'episode')}, with a "
        f"lower bound of γ_{{H−1}} in its place",
    )
    used = [
        (
            cell.stale,
            math.exp(2.0 * cell.log_ratio) * 2.0 * cell.information / math.log1p(1.0 / cell.noise),
        )
        for cell in cells
    ]
    yield (
        "Eq. 56, with exp(2 max ln(σ_m/σ_{h,m})) and the information gained in place of their bounds: "
        "Σσ²_m ≤ exp(…) · 2I/ln(1 + 1/λ)",
        _word(all(left <= right * (1.0 + _ROUNDING) for left, right in used)),
        f"at most {max(left / right for left, right in used):.3g} of what is allowed",
    )
    printed = [
        cell.stale / (2.0 * math.exp(min(cell.gamma[H], 700.0)) * cell.information) for cell in cells
    ]
    yield (
        "Eq. 56, as printed: Σσ²_m ≤ 2 exp(γ_H)γ_{HN}, with the information gained for γ_{HN} (in "
        "general it does not hold)",
        _word_by_less(max(printed) <= 1.0 + _ROUNDING),
        f"at most {max(printed):.3g} of what is allowed, with a lower bound of γ_H in its place",
    )
    allowed = [
        float(theory.conditional_mean_bound(cell.stale, episode=H, delta=delta, form="derived"))
        for cell in cells
    ]
    pairs = list(zip(cells, allowed, strict=True))
    yield _with_probability(
        "Eq. 50, with 1.26H ln(1/δ) for 4H ln(1/δ) + 8H ln(4H) + 1: ΣE[Δ_m] ≤ 2ΣΔ_m + … for "
        "Δ_m = Σσ²_m(x)",
        sum(cell.expected > right for cell, right in pairs),
        len(cells),
        delta,
        f"at most {max(cell.expected / right for cell, right in pairs):.3g} of what is allowed",
    )
    rounds = world.horizon
    worst = max(cell.stds / math.sqrt(rounds * cell.expected) for cell in cells)
    yield (
        "Eqs. 58 to 60: Σ⟨σ_m, l(z)⟩ ≤ √(NH Σ⟨σ²_m, l(z)⟩)",
        _word(worst <= 1.0 + _ROUNDING),
        f"at most {worst:.3g} of what is allowed",
    )


def _competitive(cells: list[_Cell]) -> Iterator[tuple[str, Word, str]]:
    """Eqs. 38 and 13, on lower bounds as costs."""
    size = max(cell.service_size for cell in cells)
    over = max(cell.service for cell in cells)
    yield (
        "Eq. 12 on the tree: Σ⟨lcb, l(z)⟩ ≤ Σlcb(y) + C Σd_T in every episode, for any way y",
        _word(over <= _ROUNDING * size),
        f"{'above' if over > 0 else 'below'} the cheapest such way by {significant(abs(over))} or "
        f"{'less' if over > 0 else 'more'}",
    )
    printed = max(cell.service_printed for cell in cells)
    yield (
        "Eq. 38, as printed, with 0 for O(1): Σ⟨lcb, l(z)⟩ ≤ Σlcb(y) + Σd in every episode, in the "
        "metric itself (in general it needs κ of the trees' stretch)",
        _word_by_less(printed <= _ROUNDING * size),
        f"an episode is up to {significant(printed)} above the cheapest way"
        if printed > 0
        else f"every episode is below the cheapest way, by {significant(-printed)} or more",
    )
    share = max(cell.movement for cell in cells)
    moved = sum(cell.moved for cell in cells) / max(sum(cell.hit for cell in cells), 1e-300)
    yield (
        "Eq. 13 on the tree, with costs before the step: Σ‖z_t − z_{t−1}‖ ≤ a Σ⟨c_t, z_{t−1}⟩ + b in "
        "every episode (after the step, no a and b exist)",
        _word(share <= 1.0 + _ROUNDING),
        f"at most {share:.3g} of what is allowed; in total, {moved:.3g} times costs before the step",
    )


def _coverage(
    cells: list[_Cell], world: MovementProblem, delta: float
) -> Iterator[tuple[str, Word, str]]:
    if world.model.norm_bound is None or world.model.noise_bound is None:
        return
    yield _with_probability(
        "Lemma 1: |μ_t − f| ≤ β_t σ_t for all rounds and all actions in their contexts, with B = ‖f‖ "
        "and the information gained for γ_t",
        sum(cell.band > 1.0 for cell in cells),
        len(cells),
        delta,
        f"B = {world.model.norm_bound:.3g} in the first seed; |μ_t − f| is at most "
        f"{max(cell.band for cell in cells):.3g} of what is allowed",
    )


def _concentration(
    recorded: Recorded, policy: str, index: int, world: MovementProblem, H: int
) -> Iterator[tuple[str, Word, str]]:
    """Eq. 31, by the costs that were expected before actions were drawn."""
    run = recorded.run
    if world.model.norm_bound is None:
        return
    over = run.cumulative(policy, index, "total_cost") - run.cumulative(
        policy, index, "expected_total_cost"
    )
    ends = over[:, H - 1 :: H]
    episodes = np.arange(1, ends.shape[1] + 1)
    if not len(episodes):
        return
    delta = 1.0 - (1.0 - _CONFIDENCE) ** (1.0 / len(run.seeds))
    psi = float(world.metric.distances.max())
    largest = max(_largest_cost(recorded, seed, index) for seed in run.seeds)
    forms: tuple[tuple[theory.movement.Form, str], ...] = (
        ("printed", "Eq. 31, as printed: costs exceed their expectation by at most 4H(B + ψ) ln(…)"),
        (
            "derived",
            "Eq. 31, by Azuma: costs exceed their expectation by at most H(B + ψ)√(N ln(1/δ)/2)",
        ),
    )
    for form, text in forms:
        allowed = theory.episode_concentration(
            episodes, episode=H, norm_bound=largest, diameter=psi, delta=delta, form=form
        )
        vacuous = bool(allowed[-1] >= H * (largest + psi) * episodes[-1])
        evidence = f"at most {float(np.max(ends[:, -1] / allowed[-1])):.3g} of what is allowed after "
        evidence += f"{counted(len(episodes), 'episode')}, with B the largest f"
        if vacuous:
            evidence += ", which is more than all costs together: so short a run cannot contradict it"
            yield text, "undecided", evidence
        else:
            failed = int(np.sum(ends[:, -1] > allowed[-1]))
            yield _with_probability(text, failed, len(run.seeds), delta, evidence)


def _largest_cost(recorded: Recorded, seed: int, index: int) -> float:
    """The largest f in any round of a cell."""
    world = recorded.world(seed, index)
    assert isinstance(world, MovementProblem)
    steps = range(1, world.horizon + 1)
    return max(float(np.max(world.means(world.offer(step)))) for step in steps)


def _with_probability(
    text: str, failures: int, trials: int, delta: float, evidence: str
) -> tuple[str, Word, str]:
    """A statement that may fail with probability δ, after this many independent seeds.

    δ is the smallest at which no failure shows, with 95 % confidence, that failures are rarer than δ.
    More failures than δ explains in 5 % of all runs contradict the statement.
    """
    chance = float(binom.sf(failures - 1, trials, delta))
    word: Word = "undecided"
    if failures == 0 and trials >= LEAST_SEEDS:
        word = "holds"
    elif chance < 1.0 - _CONFIDENCE:
        word = "does not hold"
    told = f"with δ = {delta:.2g}, the smallest that {counted(trials, 'seed')} can decide, it fails in "
    return f"{text} (with probability 1 − δ)", word, f"{told}{failures} of {trials}; {evidence}"
