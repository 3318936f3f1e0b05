"""Statements of *Contextual Combinatorial Bandits with Changing Action Sets via GPs* (2022).

The choices of O'CLOK-UCB are replayed with an exact posterior. Lemma 1 is about any choices. Lemma 2
and eq. 6 are about truths drawn from the learner's own process, so that they are judged only there:
seeds in which the lemma's event F fails are counted, and compared with δ by binomial tails. Lemma 3 and
Theorem 1 are sure on F, whatever the truth is: the lemma must hold in every round in which all means on
offer lie within their widths, and the theorem in every seed in which they do in all rounds.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from superarm.lab.experiments.claims import Verdict
from superarm.lab.problems import Codependency
from superarm.lab.results.formats import count_text
from superarm.models.worlds import World
from superarm.rules import OclokUCB

from .combinatorial_replay import replay
from .combinatorial_verdicts import verdicts
from .judging import EXACT_POSTERIORS
from .recorded import RecordedRun

_FROM_A_PROCESS = ("gp-function", "codependency")
_MOST_SEEDS = 90  # replayed where a probability is judged: 0.95^90 < 1 %
_SOME_SEEDS = 5  # replayed where every round must agree


def statements(recorded: RecordedRun) -> Iterator[Verdict]:
    """Lemmas 1 to 3, eq. 6 and Theorem 1 in every setting in which O'CLOK-UCB was run.

    Args:
        recorded: a finished run.
    """
    for index in range(len(recorded.run.settings)):
        for policy in _replayed_policies(recorded, index):
            yield from _judge_policy(recorded, policy, index)


def _replayed_policies(recorded: RecordedRun, index: int) -> list[str]:
    """O'CLOK-UCB with an exact posterior, once for every δ: other forms choose alike."""
    if recorded.in_setting(index).feedback:
        return []
    by_delta: dict[float, str] = {}
    for policy in recorded.run.policies:
        if recorded.algorithm(policy) != "oclok-ucb":
            continue
        options = recorded.options(policy, index)
        if options["stepwise"] or recorded.is_modified(policy, index):
            continue
        if options["posterior"] in EXACT_POSTERIORS:
            by_delta.setdefault(options["delta"], policy)
    return list(by_delta.values())


def _judge_policy(recorded: RecordedRun, policy: str, index: int) -> Iterator[Verdict]:
    run = recorded.run
    first = recorded.world(run.seeds[0], index)
    if first.model.most_arms is None and first.model.arms is None:
        return
    unmet = _unmet(recorded, first, index)
    most_seeds = _SOME_SEEDS if unmet else _MOST_SEEDS
    seeds = run.seeds[:most_seeds]
    delta = float(recorded.options(policy, index)["delta"])
    replays = []
    for seed in seeds:
        world = recorded.world(seed, index)
        schedule = OclokUCB(most_arms=_most_arms(world), delta=delta)
        cell = replay(recorded, policy, seed, index, world, schedule)
        replays.append(cell)
    where = recorded.where(index)
    seeds_text = f"{len(seeds)} of {count_text(len(run.seeds), 'seed')}"
    sizes = f" ({seeds_text}, T = {run.rounds}, {policy})"
    has_promise = _promise_is_recorded(recorded, first, index)
    for verdict in verdicts(replays, delta, unmet, has_promise):
        evidence = f"{where}{verdict.evidence}{sizes}"
        yield verdict._replace(evidence=evidence)


def _most_arms(world: World) -> int:
    """M: the most arms that any round offers."""
    model = world.model
    if model.most_arms:
        return int(model.most_arms)
    return 0 if model.arms is None else len(model.arms)


def _promise_is_recorded(recorded: RecordedRun, world: World, index: int) -> bool:
    """Whether the oracle always keeps its promise, and regret is against what it promises."""
    if not world.model.oracle.deterministic:
        return False
    first_offer = world.offer(1)
    optimum = world.best(first_offer)
    is_exact = optimum.guarantee.alpha == 1.0
    return is_exact or "alpha_regret" in recorded.run.metrics_at(index)


def _unmet(recorded: RecordedRun, world: World, index: int) -> str:
    """Why Lemma 2 says nothing of a setting; empty where it does."""
    model = world.model
    problem = recorded.in_setting(index).problem
    if str(problem["name"]) not in _FROM_A_PROCESS:
        return "f is not drawn from the learner's process"
    if isinstance(world, Codependency) and not world.is_known:
        return "the learner's kernel is not that of f"
    true_noise_variance = (model.noise_bound or 0.0) ** 2
    if not np.isclose(model.noise_variance, true_noise_variance):
        return "the learner's noise variance is not the true one"
    return ""
