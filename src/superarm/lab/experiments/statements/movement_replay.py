"""Cells of GP-MD, played again with the run's own random numbers.

Their distributions over actions are then known in every round, and so are the terms of the proofs in
*Movement Penalized Bayesian Optimization …* (2022).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from superarm.core import Belief, Decision, Feedback, Floats, Forecast, Offer
from superarm.lab import theory
from superarm.lab.problems import MovementProblem
from superarm.lab.simulation import simulate
from superarm.movement import MatrixMetric, offline_optimum
from superarm.movement.carrying import start_of
from superarm.policies import TreeIndexPolicy
from superarm.policies.from_model import posterior_for
from superarm.rules import RidgeUCB, information

from .judging import ROUNDING
from .recorded import RecordedRun


class Episode(NamedTuple):
    """Summed variances of the actions of one episode, relative to the largest of the prior."""

    stale: float
    """Σσ²_m, known when the episode began."""
    current: float
    """Σσ²_{h,m}, known when their rounds began."""


@dataclass(kw_only=True)
class ReplayedCell:
    """One seed of GP-MD: the terms of the steps of the proof; variances are relative to ``unit``."""

    seed: int
    unit: float
    """The largest variance of the prior."""
    noise: float
    """λ, relative to ``unit``."""
    gamma: Floats
    """(H + 1,), lower bounds of γ_0, …, γ_H: models may differ from seed to seed."""
    same: bool = True
    """Whether the choices are those that were recorded."""
    ratio: float = 0.0
    """Eq. 52: the largest ln(σ_m/σ_{h,m}) over the information of the episode so far."""
    log_ratio: float = 0.0
    """Eq. 51: the largest ln(σ_m/σ_{h,m})."""
    episodes: list[Episode] = field(default_factory=list)
    """Eq. 53."""
    expected: float = 0.0
    """Eq. 50: Σ⟨σ²_m, l(z)⟩."""
    stds: float = 0.0
    """Eq. 58: Σ⟨σ_m, l(z)⟩."""
    information: float = 0.0
    """Gained in all rounds."""
    service: float = -math.inf
    """Eq. 38: the largest excess of an episode over what C allows."""
    service_printed: float = -math.inf
    """… over the cost of the cheapest way in the metric itself."""
    service_size: float = 0.0
    """The largest cost of an episode."""
    movement: float = 0.0
    """Eq. 13: the largest share of an episode in what is allowed."""
    moved: float = 0.0
    """Along the tree, in all episodes."""
    hit: float = 0.0
    """Costs before the steps, in all episodes."""
    band: float = 0.0
    """Lemma 1: the largest |μ − f| over βσ."""

    @property
    def stale(self) -> float:
        """Σσ²_m over all episodes."""
        return sum(episode.stale for episode in self.episodes)


class _Round(NamedTuple):
    """Costs and probabilities of a round."""

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
        self,
        world: MovementProblem,
        policy: TreeIndexPolicy,
        cell: ReplayedCell,
        delta: float,
    ) -> None:
        self.world = world
        self.policy = policy
        self.cell = cell
        self.delta = delta
        # One posterior learns once per episode, as Algorithm 1 does, the other at once.
        self.stale = posterior_for(world.model, "streaming")
        self.current = posterior_for(world.model, "streaming")
        self._pending: list[_Observation] = []
        self._rounds: list[_Round] = []
        self._start = 0
        self._gained = 0.0  # information, in this episode
        self._episode = Episode(0.0, 0.0)

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
        current = self.current.belief(offer)
        self._record_round(offer, decision, stale)
        self._check_band(offer, current.mean, current.std)
        (chosen,) = decision.positions
        stale_variance = float(stale.std[chosen] ** 2)
        current_variance = float(current.std[chosen] ** 2)
        self._compare_variances(stale_variance, current_variance)
        keys = self.stale.keys(offer)[feedback.positions]
        self.current.observe(keys, feedback.rewards)
        self._pending.append(_Observation(keys, feedback.rewards))

    def _record_round(self, offer: Offer, decision: Decision, belief: Belief) -> None:
        """Costs and probabilities of the round, and what is expected of σ_m."""
        cell = self.cell
        assert decision.carry is not None
        mean = decision.carry.array("distribution")
        rule = self.policy.rule
        rng = np.random.default_rng(0)  # lower bounds are not random
        costs = -rule.desirability(belief.negated(), offer.step, rng)
        if self.policy.clip:
            costs = np.maximum(costs, 0.0)
        self._rounds.append(_Round(costs, mean))
        variances = belief.std**2
        expected_variance = float(variances @ mean)
        cell.expected += expected_variance / cell.unit
        expected_std = float(belief.std @ mean)
        cell.stds += expected_std / math.sqrt(cell.unit)

    def _compare_variances(self, stale: float, current: float) -> None:
        """Eqs. 51 to 53, by σ²_m and σ²_{h,m} of the action that was taken."""
        cell = self.cell
        log_ratio = 0.5 * math.log(stale / current)
        cell.log_ratio = max(cell.log_ratio, log_ratio)
        if log_ratio > ROUNDING:
            cell.ratio = max(cell.ratio, log_ratio / self._gained)
        before = self._episode
        self._episode = Episode(
            stale=before.stale + stale / cell.unit,
            current=before.current + current / cell.unit,
        )
        gain = 0.5 * math.log1p(current / self.world.model.noise_variance)
        self._gained += gain
        cell.information += gain

    def _begin(self, offer: Offer) -> None:
        for keys, rewards in self._pending:
            self.stale.observe(keys, rewards)
        start = start_of(offer)
        self._start = 0 if start is None else start
        self._pending = []
        self._rounds = []
        self._gained = 0.0
        self._episode = Episode(0.0, 0.0)
        forest = self.policy.forest
        assert forest is not None
        episode = len(self.cell.episodes)
        self.tree = forest.trees[episode % len(forest.trees)]

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
        allowed = width * std
        share = float(np.max(errors / allowed))
        self.cell.band = max(self.cell.band, share)

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
        tree = self.tree
        start = self._start
        served = float(np.sum(costs * means))
        constant = theory.service_constant(tree, self.policy.kappa)
        distances = constant * tree.distances
        tree_metric = MatrixMetric(distances=distances, repair=True)
        allowed = offline_optimum(costs, tree_metric, start)
        excess = served - allowed.total
        cell.service = max(cell.service, excess)
        optimum = offline_optimum(costs, self.world.metric, start)
        excess_as_printed = served - optimum.total
        cell.service_printed = max(cell.service_printed, excess_as_printed)
        largest_cost = float(np.abs(costs).max())
        size = largest_cost * len(costs)
        cell.service_size = max(cell.service_size, size)

    def _compare_movement(self, costs: Floats, means: Floats) -> None:
        """Eq. 13 on the tree, with costs before the step."""
        cell = self.cell
        tree = self.tree
        at_start = np.zeros(len(tree))
        at_start[self._start] = 1.0
        means_before = np.vstack([at_start, means[:-1]])  # (H, n)
        least_costs = costs.min(axis=1, keepdims=True)
        raised_costs = costs - least_costs
        hit = float(np.sum(raised_costs * means_before))
        moved = sum(map(tree.distance, means_before, means))
        constants = theory.movement_constants(tree, self.policy.kappa)
        allowed = constants.ratio * hit + constants.start
        cell.movement = max(cell.movement, moved / allowed)
        cell.moved += moved
        cell.hit += hit


def play_again(
    recorded: RecordedRun, policy: str, seed: int, index: int, delta: float
) -> ReplayedCell:
    """Play a cell of GP-MD again.

    Args:
        recorded: a run on a problem in which moving has a cost.
        policy: its name in the run.
        seed: of the cell.
        index: of the setting.
        delta: δ of Lemma 1.
    """
    run = recorded.run
    world = recorded.world(seed, index)
    learner = recorded.in_setting(index).build_policy(policy, world)
    assert isinstance(world, MovementProblem)
    assert isinstance(learner, TreeIndexPolicy)
    features = world.offer(1).arms.features
    unit = float(np.max(world.model.kernel.diag(features)))
    cell = ReplayedCell(
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
    recorded_choices = run.choices(policy, index, seed)
    cell.same = played is not None and np.array_equal(played, recorded_choices)
    return cell


def _information_gains(world: MovementProblem) -> Floats:
    """γ_0, …, γ_H from below: by greedy choice among what the first episode offers, (H + 1,)."""
    H = episode_length(world)
    steps = range(1, min(world.horizon, H) + 1)
    offered = [world.offer(step).arms.features for step in steps]
    candidates = np.unique(np.concatenate(offered), axis=0)
    model = world.model
    greedy = information.greedy_information_gain(
        model.kernel, candidates, H, model.noise_variance
    )
    return greedy.gains


def episode_length(world: MovementProblem) -> int:
    """H: rounds from one offer that begins an episode to the next.

    Args:
        world: the problem.
    """
    step = 2
    while step <= world.horizon and not world.offer(step).begins:
        step += 1
    return step - 1
