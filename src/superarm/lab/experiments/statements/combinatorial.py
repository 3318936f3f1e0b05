"""Statements of *Contextual Combinatorial Bandits with Changing Action Sets via GPs* (2022).

The choices of O'CLOK-UCB are replayed with an exact posterior. Lemma 1 is about any choices. Lemma 2
and eq. 6 are about truths drawn from the learner's own process, so that they are judged only there:
seeds in which the lemma's event F fails are counted, and compared with δ by binomial tails. Lemma 3 and
Theorem 1 are sure on F, whatever the truth is: the lemma must hold in every round in which all means on
offer lie within their widths, and the theorem in every seed in which they do in all rounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from superarm.core import Floats, Ints, Offer, Schedule
from superarm.lab.experiments.claims import Verdict, Word
from superarm.lab.problems import Codependency
from superarm.lab.results.formats import count_text, significant
from superarm.lab.results.verdicts import lead_of
from superarm.lab.theory import variance_sum_bound
from superarm.models.worlds import World
from superarm.posteriors import StreamingGP
from superarm.rules import OclokUCB

from .judging import EXACT_POSTERIORS, failure_tails, trials_needed, word_of_share
from .recorded import RecordedRun

_FROM_A_PROCESS = ("gp-function", "codependency")
_MOST_SEEDS = 90  # replayed where a probability is judged: 0.95^90 < 1 %
_SOME_SEEDS = 5  # replayed where every round must agree
_LEVELS = (1.5, 2.0, 2.5, 3.0)  # √β of eq. 6: widths, in standard deviations


class Replay(NamedTuple):
    """What a seed of O'CLOK-UCB used of what Lemmas 1 to 3 and Theorem 1 allow; shares above 1 fail."""

    variance_share: float
    """Lemma 1: Σσ² of all chosen arms over 2(λ* + σ²) times the information gained."""
    arms: int
    """Arms on offer in all rounds."""
    outside: int
    """Lemma 2: those whose true mean lies outside mean ± √β_t std."""
    beyond: Floats
    """Eq. 6: the share of arms whose mean is further away than each of the levels, in std."""
    rounds_inside: int
    """Rounds in which no mean lies outside: Lemma 3 is about these."""
    gap_share: float
    """Lemma 3: the largest α-gap of these rounds over 2B√β_t Σσ; −∞ where none is inside."""
    regret_share: float
    """Theorem 1: the largest α-regret after t rounds over √(8B²(λ* + σ²) K β_t t I), for any t."""

    @property
    def event(self) -> bool:
        """F of Lemma 2: no mean lies outside in any round."""
        return self.outside == 0


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
        replays.append(replay(recorded, policy, seed, index, world, schedule))
    where = recorded.where(index)
    seeds_text = f"{len(seeds)} of {count_text(len(run.seeds), 'seed')}"
    sizes = f" ({seeds_text}, T = {run.rounds}, {policy})"
    has_promise = _promise_is_recorded(recorded, first, index)
    for verdict in _verdicts(replays, delta, unmet, has_promise):
        yield verdict._replace(evidence=f"{where}{verdict.evidence}{sizes}")


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
    exact = world.best(world.offer(1)).guarantee.alpha == 1.0
    return exact or "alpha_regret" in recorded.run.metrics_at(index)


def _unmet(recorded: RecordedRun, world: World, index: int) -> str:
    """Why Lemma 2 says nothing of a setting; empty where it does."""
    model = world.model
    if str(recorded.in_setting(index).problem["name"]) not in _FROM_A_PROCESS:
        return "f is not drawn from the learner's process"
    if isinstance(world, Codependency) and not world.is_known:
        return "the learner's kernel is not that of f"
    if not np.isclose(model.noise_variance, (model.noise_bound or 0.0) ** 2):
        return "the learner's noise variance is not the true one"
    return ""


# --- replaying ---------------------------------------------------------------------------


def replay(
    recorded: RecordedRun,
    policy: str,
    seed: int,
    index: int,
    world: World,
    schedule: Schedule,
) -> Replay:
    """Observe the recorded choices with an exact posterior, and check each round beforehand.

    Args:
        recorded: the run.
        policy: whose choices are replayed; Lemma 3 and Theorem 1 are about those of O'CLOK-UCB.
        seed: of the cell.
        index: of the setting.
        world: the problem as this seed met it.
        schedule: the widths √β_t.
    """
    model = world.model
    lipschitz = model.reward.lipschitz
    posterior = StreamingGP(model.kernel, model.noise_variance, mean=0.0)
    regret = _alpha_regret(recorded, policy, seed, index)  # (T,), cumulative
    gaps = np.diff(regret, prepend=0.0)
    largest_eigenvalue = 0.0
    variances = 0.0
    budget = 0
    arms = 0
    outside = 0
    beyond = np.zeros(len(_LEVELS))
    rounds_inside = 0
    gap_share = -math.inf
    regret_share = -math.inf
    for offer, chosen, rewards in recorded.rounds(policy, seed, index, world):
        step = offer.step
        keys = posterior.keys(offer)
        belief = posterior.belief(offer)
        width = schedule.width(step, lambda _: posterior.information_gain)
        available = _available(offer)
        errors = np.abs(world.means(offer) - belief.mean)[available]
        stds = belief.std[available]
        now_outside = int(np.count_nonzero(errors > width * stds))
        arms += len(available)
        outside += now_outside
        beyond += [np.count_nonzero(errors > level * stds) for level in _LEVELS]
        if not len(chosen):
            continue
        chosen_stds = belief.std[chosen]
        if not now_outside:
            rounds_inside += 1
            allowed = 2.0 * lipschitz * width * float(chosen_stds.sum())
            gap_share = max(gap_share, float(gaps[step - 1]) / allowed)
        covariance = posterior.predict(keys[chosen], return_cov=True).cov
        eigenvalue = float(np.linalg.eigvalsh(covariance)[-1])
        largest_eigenvalue = max(largest_eigenvalue, eigenvalue)
        variances += float(np.sum(chosen_stds**2))
        budget = max(budget, len(chosen))
        posterior.observe(keys[chosen], rewards)
        gained = posterior.information_gain
        # Eq. 26: Theorem 1 with what was gained in place of γ, and λ* and K as met, up to round t.
        constant = 8.0 * lipschitz**2 * (largest_eigenvalue + model.noise_variance)
        bound = math.sqrt(constant * budget * width**2 * step * gained)
        regret_share = max(regret_share, float(regret[step - 1]) / bound)
    allowed_variances = variance_sum_bound(
        posterior.information_gain,
        largest_eigenvalue=largest_eigenvalue,
        noise_variance=model.noise_variance,
    )
    return Replay(
        variance_share=variances / float(allowed_variances) if variances else 0.0,
        arms=arms,
        outside=outside,
        beyond=beyond / arms,
        rounds_inside=rounds_inside,
        gap_share=gap_share,
        regret_share=regret_share,
    )


def _alpha_regret(recorded: RecordedRun, policy: str, seed: int, index: int) -> Floats:
    """Against the promised share of the optimum where it is recorded, else the optimum, (T,)."""
    run = recorded.run
    metric = "alpha_regret" if "alpha_regret" in run.metrics_at(index) else "regret"
    regret: Floats = run.cumulative(policy, index, metric)[run.seeds.index(seed)]
    return regret


def _available(offer: Offer) -> Ints:
    if offer.available is None:
        return np.arange(len(offer.arms))
    return np.flatnonzero(offer.available)


# --- judging -----------------------------------------------------------------------------


def _verdicts(
    replays: Sequence[Replay], delta: float, unmet: str, has_promise: bool
) -> Iterator[Verdict]:
    """Every statement, with evidence that does not name the run yet."""
    yield _lemma_1(replays)
    if not unmet:
        yield _equation_6(replays)
        yield _lemma_2(replays, delta)
    if has_promise and any(cell.rounds_inside for cell in replays):
        yield _lemma_3(replays, unmet)
    if has_promise and any(cell.event for cell in replays):
        yield _theorem_1(replays)


def _lemma_1(replays: Sequence[Replay]) -> Verdict:
    share = max(cell.variance_share for cell in replays)
    text = (
        "Lemma 1: the variances of all chosen arms add up to at most 2(λ* + σ²) times the information "
        "gained, whatever is chosen"
    )
    return Verdict(text, word_of_share(share), _used_text(share))


def _equation_6(replays: Sequence[Replay]) -> Verdict:
    text = (
        "Eq. 6: a true mean is more than √β standard deviations from its posterior mean with "
        "probability at most 2 exp(−β/2)"
    )
    strengths = []
    parts = []
    for place, level in enumerate(_LEVELS):
        shares = np.array([cell.beyond[place] for cell in replays])
        mean_share = float(shares.mean())
        limit = 2.0 * math.exp(-(level**2) / 2.0)
        lead = lead_of(limit - shares, scale=max(limit, mean_share))
        strengths.append(lead.strength(len(_LEVELS)))
        parts.append(
            f"{significant(mean_share)} where {significant(limit)} is allowed ({level:g})"
        )
    weakest = min(strengths)
    word: Word = "undecided"
    if abs(weakest) > 1.0:
        word = "holds" if weakest > 0.0 else "does not hold"
    return Verdict(text, word, f"share of means, by √β: {', '.join(parts)}")


def _lemma_2(replays: Sequence[Replay], delta: float) -> Verdict:
    text = (
        f"Lemma 2: with probability at least 1 − δ = {1.0 - delta:g}, all true means on offer lie "
        "within √β_t standard deviations of their posterior means, in all rounds"
    )
    failed = sum(not cell.event for cell in replays)
    outside = sum(cell.outside for cell in replays)
    arms = sum(cell.arms for cell in replays)
    word = failure_tails(failed, len(replays), delta).word()
    seeds_text = count_text(len(replays), "seed")
    evidence = (
        f"{outside:,} of {arms:,} means lie outside; "
        f"the event fails in {failed} of {seeds_text}"
    )
    if word == "undecided":
        needed = trials_needed(delta)
        evidence += f", which does not decide; {needed} seeds without a failure would"
    return Verdict(text, word, evidence)


def _lemma_3(replays: Sequence[Replay], unmet: str) -> Verdict:
    text = (
        "Lemma 3: in a round in which all true means on offer lie within their widths, the α-gap is at "
        "most 2B√β_t Σσ over the chosen arms"
    )
    rounds = sum(cell.rounds_inside for cell in replays)
    outside = sum(cell.outside for cell in replays)
    arms = sum(cell.arms for cell in replays)
    share = max(cell.gap_share for cell in replays)
    evidence = f"{_used_text(share)}, in {count_text(rounds, 'such round')}"
    if unmet:
        evidence += f"; {outside:,} of {arms:,} means lie outside, but Lemma 2 does not apply: {unmet}"
    return Verdict(text, word_of_share(share), evidence)


def _theorem_1(replays: Sequence[Replay]) -> Verdict:
    text = (
        "Theorem 1, eq. 26: where Lemma 2's event occurs, the α-regret after t rounds is at most "
        "√(8B²(λ* + σ²) K β_t t I) for every t, with the information I gained in place of γ"
    )
    inside = [cell for cell in replays if cell.event]
    share = max(cell.regret_share for cell in inside)
    seeds_text = count_text(len(replays), "seed")
    evidence = f"{_used_text(share)}; the event occurs in {len(inside)} of {seeds_text}"
    return Verdict(text, word_of_share(share), evidence)


def _used_text(share: float) -> str:
    """The largest share in words; below zero, super arms were better than the oracle guarantees."""
    if share < 0.0:
        return "below zero throughout: better than the oracle guarantees"
    return f"at most {significant(share)} of what is allowed"
