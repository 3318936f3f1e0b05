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

from superarm.core import Belief, Decision, Feedback, Floats, Forecast, Offer
from superarm.core.streams import stream
from superarm.lab import theory
from superarm.lab.experiments.claims import Verdict, Word
from superarm.lab.problems import MovementProblem
from superarm.lab.results.formats import count_text, significant
from superarm.lab.results.verdicts import LEAST_SEEDS
from superarm.lab.simulation import simulate
from superarm.movement import MatrixMetric, offline_optimum
from superarm.movement.carrying import start_of
from superarm.policies.movement import TreeIndexPolicy
from superarm.policies.published import posterior_for
from superarm.rules import RidgeUCB, information

from .judging import EXACT_POSTERIORS, ROUNDING, failure_tails, word_if, word_of_share
from .recorded import RecordedRun

_MOST_SEEDS = 20  # cells that are played again
_TREES = 100  # drawn for the mean stretch
_CONFIDENCE = 0.95
_LARGEST_POWER = 700.0  # of e, in floats


def statements(recorded: RecordedRun) -> Iterator[Verdict]:
    """Every statement that the run can speak to."""
    world = recorded.world(recorded.run.seeds[0])
    if not isinstance(world, MovementProblem):
        return
    yield _stretch(recorded, world)
    for policy in recorded.run.policies:
        if _is_algorithm_1(recorded, policy):
            yield from _of_policy(recorded, policy)


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
        f"{_TREES} trees over {n} actions lengthen distances {float(found.mean()):.3g} times on "
        f"average, and the worst pair {worst:.3g} times, "
        f"{worst / math.log(n) if n > 1 else worst:.2g} ln n; {allowed:.4g} times is allowed, "
        f"and the error is at most {room:.3g} for all pairs at once (Hoeffding, 95 %)"
    )
    return Verdict(text, word, evidence)


# --- cells that are played again -------------------------------------------------------------


class _Episode(NamedTuple):
    """Variances of the actions of one episode, over ``unit``, summed."""

    stale: float  # Σσ²_m, known when the episode began
    fresh: float  # Σσ²_{h,m}, known when their rounds began


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
    episodes: list[_Episode] = field(default_factory=list)  # eq. 53
    expected: float = 0.0  # eq. 50: Σ⟨σ²_m, l(z)⟩
    stds: float = 0.0  # eq. 58: Σ⟨σ_m, l(z)⟩
    information: float = 0.0
    service: float = (
        -math.inf
    )  # eq. 38: the largest excess of an episode over what C allows
    service_printed: float = (
        -math.inf
    )  # … over the cost of the cheapest way in the metric itself
    service_size: float = 0.0  # the largest cost of an episode
    movement: float = 0.0  # eq. 13: the largest share of an episode in what is allowed
    moved: float = 0.0  # along the tree, in all episodes
    hit: float = 0.0  # costs before the steps, in all episodes
    band: float = 0.0  # Lemma 1: the largest |μ − f| over βσ

    @property
    def stale(self) -> float:
        return sum(episode.stale for episode in self.episodes)

    @property
    def fresh(self) -> float:
        return sum(episode.fresh for episode in self.episodes)


class _Round(NamedTuple):
    """What an episode keeps of a round."""

    costs: Floats  # (n,), lower bounds as mirror descent gets them
    mean: Floats  # (n,), l(z) after the step


class _Observation(NamedTuple):
    """What Algorithm 1 learns when the next episode begins."""

    keys: Floats  # (k, d)
    rewards: Floats  # (k,)


class _Replay:
    """Watches a cell of GP-MD that is played again, beside two posteriors of its own.

    Args:
        world: the problem as the seed met it.
        policy: GP-MD, which is played again.
        cell: what is found out, written by this replay.
        delta: δ of Lemma 1.
    """

    def __init__(
        self, world: MovementProblem, policy: TreeIndexPolicy, cell: _Cell, delta: float
    ) -> None:
        self.world = world
        self.policy = policy
        self.cell = cell
        self.delta = delta
        self.stale = posterior_for(
            world.model, "streaming"
        )  # learns as Algorithm 1 does
        self.fresh = posterior_for(world.model, "streaming")  # learns at once
        self._held: list[_Observation] = []
        self._rounds: list[_Round] = []
        self._start = 0
        self._gained = 0.0  # information, in this episode
        self._episode = _Episode(0.0, 0.0)

    def __call__(
        self,
        name: str,
        offer: Offer,
        decision: Decision,
        feedback: Feedback,
        forecast: Forecast | None,
    ) -> None:
        if offer.begins or offer.step == 1:
            self.end_episode()
            self._begin(offer)
        stale = self.stale.belief(offer)
        fresh = self.fresh.belief(offer)
        self._record_round(offer, decision, stale)
        self._check_band(offer, fresh.mean, fresh.std)
        (chosen,) = decision.positions
        self._compare_variances(
            float(stale.std[chosen] ** 2), float(fresh.std[chosen] ** 2)
        )
        keys = self.stale.keys(offer)[feedback.positions]
        self.fresh.observe(keys, feedback.rewards)
        self._held.append(_Observation(keys, feedback.rewards))

    def _record_round(self, offer: Offer, decision: Decision, belief: Belief) -> None:
        """Costs and probabilities of the round, and what is expected of σ_m."""
        cell = self.cell
        assert decision.carry is not None
        mean = decision.carry.array("distribution")
        costs = -self.policy.rule.desirability(
            belief.negated(), offer.step, np.random.default_rng(0)
        )
        costs = np.maximum(costs, 0.0) if self.policy.clip else costs
        self._rounds.append(_Round(costs, mean))
        cell.expected += float(belief.std**2 @ mean) / cell.unit
        cell.stds += float(belief.std @ mean) / math.sqrt(cell.unit)

    def _compare_variances(self, stale: float, fresh: float) -> None:
        """Eqs. 51 to 53, by σ²_m and σ²_{h,m} of the action that was taken."""
        cell = self.cell
        log_ratio = 0.5 * math.log(stale / fresh)
        cell.log_ratio = max(cell.log_ratio, log_ratio)
        if log_ratio > ROUNDING:
            cell.ratio = max(cell.ratio, log_ratio / self._gained)
        before = self._episode
        self._episode = _Episode(
            before.stale + stale / cell.unit, before.fresh + fresh / cell.unit
        )
        gain = 0.5 * math.log1p(fresh / self.world.model.noise_variance)
        self._gained += gain
        cell.information += gain

    def _begin(self, offer: Offer) -> None:
        for keys, rewards in self._held:
            self.stale.observe(keys, rewards)
        start = start_of(offer)
        self._start = 0 if start is None else start
        self._held = []
        self._rounds = []
        self._gained = 0.0
        self._episode = _Episode(0.0, 0.0)
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
        errors = np.abs(mean - self.world.means(offer))
        self.cell.band = max(self.cell.band, float(np.max(errors / (width * std))))

    def end_episode(self) -> None:
        """Compare service and movement of the episode with what is allowed."""
        if not self._rounds:
            return
        self.cell.episodes.append(self._episode)
        costs = np.stack([played.costs for played in self._rounds])  # (H, n)
        means = np.stack([played.mean for played in self._rounds])  # (H, n)
        self._compare_service(costs, means)
        self._compare_movement(costs, means)
        self._rounds = []

    def _compare_service(self, costs: Floats, means: Floats) -> None:
        """Eq. 38 on the tree, and as printed."""
        cell = self.cell
        served = float(np.sum(costs * means))
        constant = theory.service_constant(self.tree, self.policy.kappa)
        charged = MatrixMetric(distances=constant * self.tree.distances, repair=True)
        allowed = offline_optimum(costs, charged, self._start).total
        cell.service = max(cell.service, served - allowed)
        optimum = offline_optimum(costs, self.world.metric, self._start).total
        cell.service_printed = max(cell.service_printed, served - optimum)
        cell.service_size = max(
            cell.service_size, float(np.abs(costs).max()) * len(costs)
        )

    def _compare_movement(self, costs: Floats, means: Floats) -> None:
        """Eq. 13 on the tree, with costs before the step."""
        cell = self.cell
        tree = self.tree
        before = np.vstack([np.eye(len(tree))[self._start], means[:-1]])
        raised = costs - costs.min(axis=1, keepdims=True)
        hit = float(np.sum(raised * before))
        moved = sum(
            tree.distance(one, other) for one, other in zip(before, means, strict=True)
        )
        constants = theory.movement_constants(tree, self.policy.kappa)
        cell.movement = max(
            cell.movement, moved / (constants.ratio * hit + constants.start)
        )
        cell.moved += moved
        cell.hit += hit


def _play_again(
    recorded: RecordedRun, policy: str, seed: int, index: int, delta: float
) -> _Cell:
    run = recorded.run
    world = recorded.world(seed, index)
    learner = recorded.at(index).build_policy(policy, world)
    assert isinstance(world, MovementProblem)
    assert isinstance(learner, TreeIndexPolicy)
    unit = float(np.max(world.model.kernel.diag(world.offer(1).arms.features)))
    cell = _Cell(
        seed=seed,
        unit=unit,
        noise=world.model.noise_variance / unit,
        gamma=_information_gains(world),
    )
    replay = _Replay(world, learner, cell, delta)
    traces = simulate(
        world, {policy: learner}, rounds=run.rounds, seed=seed, watch=replay
    )
    replay.end_episode()
    played = traces[policy].choices
    cell.same = played is not None and bool(
        np.array_equal(played, run.choices(policy, index, seed))
    )
    return cell


def _information_gains(world: MovementProblem) -> Floats:
    """γ_0, …, γ_H from below: by greedy choice among what the first episode offers, (H + 1,)."""
    H = _episode_length(world)
    offered = [
        world.offer(step).arms.features for step in range(1, min(world.horizon, H) + 1)
    ]
    candidates = np.unique(np.concatenate(offered), axis=0)
    model = world.model
    return information.greedy_information_gain(
        model.kernel, candidates, H, model.noise_variance
    ).gains


# --- verdicts -----------------------------------------------------------------------------


def _of_policy(recorded: RecordedRun, policy: str) -> Iterator[Verdict]:
    run = recorded.run
    index = len(run.settings) // 2
    seeds = run.seeds[:_MOST_SEEDS]
    delta = 1.0 - (1.0 - _CONFIDENCE) ** (1.0 / len(seeds))
    cells = [_play_again(recorded, policy, seed, index, delta) for seed in seeds]
    world = recorded.world(seeds[0], index)
    assert isinstance(world, MovementProblem)
    where = recorded.where(index)
    place = f" ({policy}, {count_text(len(cells), 'seed')}, T = {run.rounds})"
    if not all(cell.same for cell in cells):
        place = f", with choices that differ from the recorded ones{place}"
    H = _episode_length(world)
    for verdict in (
        *_learning(cells, world, H, delta),
        *_competitive(cells),
        *_coverage(cells, world, delta),
        *_concentration(recorded, policy, index, world, H),
    ):
        yield verdict._replace(evidence=f"{where}{verdict.evidence}{place}")


def _episode_length(world: MovementProblem) -> int:
    """H: rounds from one offer that begins an episode to the next."""
    step = 2
    while step <= world.horizon and not world.offer(step).begins:
        step += 1
    return step - 1


def _learning(
    cells: list[_Cell], world: MovementProblem, H: int, delta: float
) -> Iterator[Verdict]:
    """Eqs. 50 to 60: what is not learned within an episode."""
    yield _shrinking(cells, H)
    yield from _stale_variances(cells, H)
    yield _expected_variances(cells, H, delta)
    worst = max(cell.stds / math.sqrt(world.horizon * cell.expected) for cell in cells)
    yield Verdict(
        "Eqs. 58 to 60: Σ⟨σ_m, l(z)⟩ ≤ √(NH Σ⟨σ²_m, l(z)⟩)",
        word_of_share(worst),
        f"at most {worst:.3g} of what is allowed",
    )


def _exp(power: float) -> float:
    """e to this power, or the largest that fits a float."""
    return math.exp(min(power, _LARGEST_POWER))


def _word_by_less(holds: bool) -> Word:
    """Where the right side was replaced by something smaller: exceeding that refutes nothing."""
    return "holds" if holds else "undecided"


def _shrinking(cells: list[_Cell], H: int) -> Verdict:
    gained = min(float(cell.gamma[H - 1]) for cell in cells)
    ratio = max(cell.ratio for cell in cells)
    stretch = math.exp(max(cell.log_ratio for cell in cells))
    return Verdict(
        "Eqs. 51, 52: within an episode standard deviations shrink by at most exp(γ_{H−1})",
        word_of_share(ratio),
        f"at most {stretch:.4g}-fold, where γ_{{H−1}} is at least {gained:.3g}; "
        f"ln(σ_m/σ_{{h,m}}) was at most {ratio:.3g} of the information that the episode had gained",
    )


def _stale_variances(cells: list[_Cell], H: int) -> Iterator[Verdict]:
    """Eqs. 53 and 56, as printed, and eq. 56 as it follows."""
    printed_episodes = [
        episode.stale / (_exp(cell.gamma[H - 1]) * episode.fresh)
        for cell in cells
        for episode in cell.episodes
    ]
    yield Verdict(
        "Eq. 53, as printed: Σσ²_m ≤ exp(γ_{H−1})Σσ²_{h,m} in every episode (in general it needs "
        "exp(2γ_{H−1}))",
        _word_by_less(max(printed_episodes) <= 1.0 + ROUNDING),
        f"at most {max(printed_episodes):.3g} of what is allowed in "
        f"{count_text(len(printed_episodes), 'episode')}, with a lower bound of γ_{{H−1}} in its place",
    )
    derived = []
    for cell in cells:
        allowed = (
            math.exp(2.0 * cell.log_ratio)
            * 2.0
            * cell.information
            / math.log1p(1.0 / cell.noise)
        )
        derived.append(cell.stale / allowed)
    yield Verdict(
        "Eq. 56, with exp(2 max ln(σ_m/σ_{h,m})) and the information gained in place of their bounds: "
        "Σσ²_m ≤ exp(…) · 2I/ln(1 + 1/λ)",
        word_of_share(max(derived)),
        f"at most {max(derived):.3g} of what is allowed",
    )
    printed = [
        cell.stale / (2.0 * _exp(cell.gamma[H]) * cell.information) for cell in cells
    ]
    yield Verdict(
        "Eq. 56, as printed: Σσ²_m ≤ 2 exp(γ_H)γ_{HN}, with the information gained for γ_{HN} (in "
        "general it does not hold)",
        _word_by_less(max(printed) <= 1.0 + ROUNDING),
        f"at most {max(printed):.3g} of what is allowed, with a lower bound of γ_H in its place",
    )


def _expected_variances(cells: list[_Cell], H: int, delta: float) -> Verdict:
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
        f"at most {max(shares):.3g} of what is allowed",
    )


def _competitive(cells: list[_Cell]) -> Iterator[Verdict]:
    """Eqs. 38 and 13, on lower bounds as costs."""
    size = max(cell.service_size for cell in cells)
    over = max(cell.service for cell in cells)
    yield Verdict(
        "Eq. 12 on the tree: Σ⟨lcb, l(z)⟩ ≤ Σlcb(y) + C Σd_T in every episode, for any path y",
        word_if(over <= ROUNDING * size),
        f"{'above' if over > 0 else 'below'} the cheapest such path by {significant(abs(over))} or "
        f"{'less' if over > 0 else 'more'}",
    )
    printed = max(cell.service_printed for cell in cells)
    yield Verdict(
        "Eq. 38, as printed, with 0 for O(1): Σ⟨lcb, l(z)⟩ ≤ Σlcb(y) + Σd in every episode, in the "
        "metric itself (in general it needs κ as large as the trees' stretch)",
        _word_by_less(printed <= ROUNDING * size),
        f"an episode is up to {significant(printed)} above the cheapest path"
        if printed > 0
        else f"every episode is below the cheapest path, by {significant(-printed)} or more",
    )
    share = max(cell.movement for cell in cells)
    moved = sum(cell.moved for cell in cells) / max(
        sum(cell.hit for cell in cells), 1e-300
    )
    yield Verdict(
        "Eq. 13 on the tree, with costs before the step: Σ‖z_t − z_{t−1}‖ ≤ a Σ⟨c_t, z_{t−1}⟩ + b in "
        "every episode (with costs after the step, no such a and b exist)",
        word_of_share(share),
        f"at most {share:.3g} of what is allowed; in total {moved:.3g} times the costs before the step",
    )


def _coverage(
    cells: list[_Cell], world: MovementProblem, delta: float
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
        f"{max(cell.band for cell in cells):.3g} of what is allowed",
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
    forms: tuple[tuple[theory.movement.Form, str], ...] = (
        (
            "printed",
            "Eq. 31, as printed: costs exceed their expectation by at most 4H(B + ψ) ln(…)",
        ),
        (
            "derived",
            "Eq. 31, by Azuma: costs exceed their expectation by at most H(B + ψ)√(N ln(1/δ)/2)",
        ),
    )
    for form, text in forms:
        allowed = theory.episode_concentration(
            episodes,
            episode=H,
            norm_bound=largest,
            diameter=psi,
            delta=delta,
            form=form,
        )
        vacuous = bool(allowed[-1] >= H * (largest + psi) * episodes[-1])
        evidence = f"at most {float(np.max(ends[:, -1] / allowed[-1])):.3g} of what is allowed after "
        evidence += f"{count_text(len(episodes), 'episode')}, with the largest f as B"
        if vacuous:
            evidence += ", more than all costs together, so this run is too short to contradict it"
            yield Verdict(text, "undecided", evidence)
        else:
            failed = int(np.sum(ends[:, -1] > allowed[-1]))
            yield _with_probability(text, failed, len(run.seeds), delta, evidence)


def _largest_cost(recorded: RecordedRun, seed: int, index: int) -> float:
    """The largest f in any round of a cell."""
    world = recorded.world(seed, index)
    assert isinstance(world, MovementProblem)
    steps = range(1, world.horizon + 1)
    return max(float(np.max(world.means(world.offer(step)))) for step in steps)


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
    count = f"with δ = {delta:.2g}, the smallest that {count_text(trials, 'seed')} can decide, it fails in "
    return Verdict(
        f"{text} (with probability 1 − δ)",
        word,
        f"{count}{failures} of {trials}; {evidence}",
    )
