"""Policies for decisions that are costly to change [ramesh2022movement].

Symbols: τ ``tau``, κ ``kappa``; lcb is minus what :class:`~superarm.rules.UCB` makes of the belief
about minus the cost.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import numpy as np

from superarm.core import (
    Belief,
    Decision,
    Direction,
    Feedback,
    Floats,
    Offer,
    Posterior,
    Rng,
    Rule,
    State,
)
from superarm.core.errors import (
    ConflictError,
    ForgottenError,
    InputError,
    ShapeError,
    warn,
)
from superarm.core.inputs import as_count, as_number, require_choice, require_type
from superarm.core.registry import register
from superarm.models import Model
from superarm.models.worlds import MovementWorld, World
from superarm.movement import ActionMetric, Forest, Stand, start_of
from superarm.movement.carrying import KIND, Walk, walk_of
from superarm.movement.descent import KAPPA
from superarm.movement.forest import MOST_TREES
from superarm.movement.tree import TAU
from superarm.oracles import TopK
from superarm.posteriors.base import GaussianPosterior
from superarm.rules import UCB, Fixed, RidgeUCB

from .answers import one_per_arm, require_part
from .base import Learner, retry_if_stale
from .index import IndexPolicy
from .ledger import CHANGED, check_rewards
from .published import (
    GainChoice,
    PosteriorName,
    gamma_for,
    index_policy,
    known,
    posterior_for,
)
from .score import ScorePolicy
from .scores import Planned, Score, Stay, Truth


class TreeWalker(Learner):
    """Moves by mirror descent on random trees over the actions; a subclass says what actions cost.

    The trees are drawn with the first decision, which carries them; episodes take them in turn. An
    episode begins where the offer says so, at its ``previous_action``. In any other round the walk goes
    on from there, even if it had chosen something else. The propensity is that of the action, given
    where the walk was; for the first decision, which also draws the trees, it is not known.
    """

    deterministic = False

    def __init__(
        self,
        *,
        metric: ActionMetric,
        direction: Direction,
        trees: int,
        tau: float,
        kappa: float,
    ) -> None:
        super().__init__(direction=direction)
        require_type(metric, ActionMetric, "metric", ", such as PointMetric(points=…)")
        self.metric = metric
        self.trees = as_count(trees, "trees", 1, MOST_TREES)
        self.tau, self.kappa = (
            as_number(tau, "tau", *TAU),
            as_number(kappa, "kappa", *KAPPA),
        )
        self._walk: Walk | None = (
            None  # replaced as one: a thread that decides sees what goes together
        )

    @property
    def forest(self) -> Forest | None:
        """The trees; none before the first decision is taken."""
        return self._walk.forest if self._walk is not None else None

    @property
    def stand(self) -> Stand | None:
        """Where the walk is, and with which probabilities; none before the first decision is taken."""
        return self._walk.stand if self._walk is not None else None

    @abstractmethod
    def _desirability(
        self, offer: Offer, begins: bool, rng: Rng
    ) -> tuple[Floats, Belief | None]:
        """Minus what each action on offer seems to cost, (n,), and what is believed of it."""

    def _learns_at_once(self, number: int) -> bool:
        """Whether costs in this walk depend on what was drawn since it began."""
        return False

    @retry_if_stale
    def decide(self, offer: Offer, rng: Rng) -> Decision:
        require_type(offer, Offer, "offer")
        if len(offer.arms) != len(self.metric):
            raise ShapeError(
                f"the offer has {len(offer.arms)} arms, but the metric is over {len(self.metric)} "
                "actions; offer all of them in every round, and say which are available"
            )
        version = self.version  # before the belief: another thread may be learning
        before, walk = start_of(offer), self._walk
        if walk is None:
            forest = Forest.grown(
                self.metric, rng, trees=self.trees, tau=self.tau, kappa=self.kappa
            )
            begins, number, stand = True, 0, forest.begin(before)
        else:
            forest, number, stand, _ = walk
            begins = offer.begins
            if begins:
                number += 1
                stand = forest.begin(before, number)
            elif before is not None:
                stand = stand._replace(action=before)
        desirability, belief = self._desirability(offer, begins, rng)
        from_action = self._learns_at_once(number)
        move = forest.move(
            stand, -desirability, rng, offer.available, from_action=from_action
        )
        positions = np.array([move.stand.action])
        return Decision(
            step=offer.step,
            action=positions,
            positions=positions,
            mean=None if belief is None else belief.mean[positions],
            std=None if belief is None else belief.std[positions],
            desirability=desirability[positions],
            propensity=None if walk is None else min(move.probability, 1.0),
            version=version,
            carry=Walk(forest, number, move.stand, offer.step).state(
                trees=walk is None, move=move
            ),
        )

    def commit(self, decision: Decision) -> None:
        """The decision is taken: the walk goes on from it."""
        require_type(decision, Decision, "decision")
        if decision.carry is None or decision.carry.kind != KIND:
            raise InputError(
                "the decision carries nothing of a walk: another policy made it"
            )
        with self._lock:
            before, walk = self._walk, self._walk_of(decision.carry)
            if (decision.step, *decision.positions.tolist()) != (
                walk.step,
                walk.stand.action,
            ):
                raise InputError(CHANGED)
            if before is not None and walk.step < before.step:
                told = f"the decision of step {walk.step} comes after that of step {before.step}"
                raise ConflictError(f"{told}; a walk does not go back: decide again")
            if before is None or walk.number != before.number:
                self._begin()
            self._walk = walk
            self._ledger.note_commit(decision.step)

    def _begin(self) -> None:
        """An episode began."""

    def _walk_of(self, state: State) -> Walk:
        return walk_of(state, self.metric, self.kappa, self.forest)

    def _memory(self) -> Mapping[str, Any]:
        return {} if self._walk is None else {"walk": self._walk.state(trees=True)}

    def _remember(self, state: State) -> None:
        if "walk" in state.parts:
            self._walk = self._walk_of(state.part("walk"))
            self._ledger.assume_committed(state.part("ledger"), self._walk.step)

    def _display_fields(self) -> Mapping[str, Any]:
        return {**self.parameters(), "version": self.version}


Update = Literal["episode", "step"]
_UPDATES = ("episode", "step")
_MANY_HELD = 1000  # rewards of one episode from which on it may be that none begins


class _Held(NamedTuple):
    """Rewards of m arms that are learned later."""

    keys: Any  # of the posterior, m of them
    rewards: Floats  # (m,)
    noise: Floats  # variances, (m,)


@register("policy", "tree-index")
class TreeIndexPolicy(TreeWalker):
    """GP-MD from parts: mirror descent on trees follows a rule's scores [ramesh2022movement].

    With ``update="episode"`` rewards are learned when the next episode begins, as in Algorithm 1, so
    that offers must begin episodes; with "step" at once. ``clip`` raises negative costs to 0, as the
    guarantee for movement needs.

    Before the first data all actions look the same, so that in the first episode Algorithm 1 stays
    where it starts. ``first_episode="step"`` learns at once in that episode, and once per episode after
    it. A posterior that has observed data before starts warm, too.

    Args:
        posterior: Which posterior; auto chooses by the model's arms; drifting is for rewards that
            drift.
        rule: The rule.
        metric: What it costs to go from one action to the next.
        direction: Whether rewards are maximised or costs minimised.
        update: When rewards are learned: when the next episode begins (episode), or at once (step).
        first_episode: When rewards of the first episode are learned: when the next one begins
            (episode), or at once (step), which is a warm start.
        clip: Whether negative lower bounds of costs are raised to 0, which the competitive
            guarantee for movement needs.
        trees: How many random trees there are; episodes take them in turn.
        tau: Τ: edges of a tree are at least this many times shorter than those one level above.
        kappa: Κ, 1 or more: how fast mirror descent follows the costs.
    """

    kind = "tree-index-policy"
    schema = 1

    def __init__(
        self,
        *,
        posterior: Posterior,
        rule: Rule,
        metric: ActionMetric,
        direction: Direction = "minimize",
        update: Update = "episode",
        first_episode: Update = "episode",
        clip: bool = False,
        trees: int = 1,
        tau: float = 2.0,
        kappa: float = 1.0,
    ) -> None:
        super().__init__(
            metric=metric, direction=direction, trees=trees, tau=tau, kappa=kappa
        )
        require_part(posterior, Posterior, "posterior")
        require_part(rule, Rule, "rule")
        require_choice(update, "update", _UPDATES)
        require_choice(first_episode, "first_episode", _UPDATES)
        require_type(clip, bool, "clip")
        if update == "episode" and posterior.draws:
            raise InputError(
                f"{type(posterior).__name__} draws as it learns; use update='step'"
            )
        self.posterior, self.rule, self.clip = posterior, rule, clip
        self.update = update
        self.first_episode = first_episode
        self._held: list[_Held] = []
        self._ahead: Posterior | None = (
            None  # the posterior that has learned what is held
        )

    @property
    def exchangeable(self) -> bool:
        return self.posterior.exchangeable

    @property
    def _observations(self) -> int:
        return self.posterior.count

    def _learns_at_once(self, number: int) -> bool:
        return self.update == "step" or (number == 0 and self.first_episode == "step")

    def _desirability(
        self, offer: Offer, begins: bool, rng: Rng
    ) -> tuple[Floats, Belief]:
        belief = (self._caught_up() if begins else self.posterior).belief(offer)
        seen = belief if self.direction == "maximize" else belief.negated()
        answer = self.rule.desirability(seen, offer.step, rng)
        desirability = one_per_arm(self.rule, answer, len(offer.arms))
        return (np.minimum(desirability, 0.0) if self.clip else desirability), belief

    def _caught_up(self) -> Posterior:
        """The posterior with all that is held; what an episode that begins now would use."""
        with self._lock.lock:
            if self._held and self._ahead is None:
                self._ahead = self._learned()
            return self.posterior if self._ahead is None else self._ahead

    def _learned(self, *new: _Held) -> Posterior:
        ahead = self.posterior.restored(self.posterior.state())
        ahead.observe(*self._all_held(*new))
        return ahead

    def _all_held(self, *new: _Held) -> _Held:
        return _Held(
            *(np.concatenate(parts) for parts in zip(*self._held, *new, strict=True))
        )

    def _begin(self) -> None:
        self.posterior, self._held, self._ahead = self._caught_up(), [], None

    def _absorb(
        self, offer: Offer, decision: Decision, feedback: Feedback, rng: Rng
    ) -> None:
        if not self.posterior.exchangeable:
            self._ledger.check_order(decision, type(self.posterior).__name__)
        keys, noise = (
            self.posterior.keys(offer)[feedback.positions],
            feedback.noise_variance,
        )
        if self._learns_at_once(0 if self._walk is None else self._walk.number):
            self.posterior.observe(keys, feedback.rewards, noise, rng)
        elif len(keys):
            # What the posterior would refuse when the next episode begins is refused now.
            check_rewards(feedback)
            with suppress(ForgottenError):  # of long ago
                self.posterior.predict(keys, return_std=False)
            if self._held and self._held[0].keys.shape[1:] != keys.shape[1:]:
                raise ShapeError(
                    "arms have other feature columns than those chosen before"
                )
            if (
                len(self._held) + 1 == _MANY_HELD
            ):  # before anything changes: it may be made an error
                told = f"{_MANY_HELD} rewards wait for the next episode"
                warn(
                    f"{told}: where no offer begins one, use update='step'", UserWarning
                )
            own = np.full(len(keys), self.posterior.noise_std**2)
            new = _Held(
                keys, feedback.rewards.copy(), own if noise is None else noise.copy()
            )
            if isinstance(self.posterior, GaussianPosterior):
                self.posterior.check_room(*self._all_held(new))
            self._ahead = None if noise is None else self._learned(new)
            self._held.append(new)

    def _memory(self) -> Mapping[str, Any]:
        memory = {**super()._memory(), "posterior": self.posterior.state()}
        if self._held:
            memory |= {
                f"held_{name}": array
                for name, array in self._all_held()._asdict().items()
            }
        return memory

    def _remember(self, state: State) -> None:
        super()._remember(state)
        self.posterior = self.posterior.restored(state.part("posterior"))
        if "held_keys" in state.arrays:
            held = _Held(*(state.array(f"held_{name}") for name in _Held._fields))
            self.posterior.predict(held.keys, return_std=False)  # says what is no arm
            places = np.arange(len(held.keys))
            check_rewards(
                Feedback(
                    positions=places, rewards=held.rewards, noise_variance=held.noise
                )
            )
            self._held = [held]
            self._caught_up()  # says what cannot be learned


@register("policy", "tree-score")
class TreeScorePolicy(TreeWalker):
    """Mirror descent on trees that follows scores which are not learned, such as the truth.

    Args:
        score: The desirabilities.
        metric: What it costs to go from one action to the next.
        trees: How many random trees there are; episodes take them in turn.
        tau: Τ: edges of a tree are at least this many times shorter than those one level above.
        kappa: Κ, 1 or more: how fast mirror descent follows the costs.
    """

    kind = "tree-score-policy"
    schema = 1
    exchangeable = True

    def __init__(
        self,
        *,
        score: Score,
        metric: ActionMetric,
        trees: int = 1,
        tau: float = 2.0,
        kappa: float = 1.0,
    ) -> None:
        super().__init__(
            metric=metric, direction="minimize", trees=trees, tau=tau, kappa=kappa
        )
        require_part(score, Score, "score")
        self.score = score

    def _desirability(
        self, offer: Offer, begins: bool, rng: Rng
    ) -> tuple[Floats, None]:
        return one_per_arm(
            self.score, self.score.desirability(offer, rng), len(offer.arms)
        ), None

    def _absorb(
        self, offer: Offer, decision: Decision, feedback: Feedback, rng: Rng
    ) -> None:
        """Nothing is learned, but feedback that makes no sense is refused."""
        check_rewards(feedback)


# --- under their published names ------------------------------------------------------------

Width = float | Literal["lemma-1"]


def _bound(model: Model, width: Width, delta: float, gain: GainChoice) -> UCB:
    """μ ± βσ with β fixed, or from [ramesh2022movement, Lemma 1]."""
    if not isinstance(width, str):
        return UCB(schedule=Fixed(value=width))
    require_choice(width, "width", ("lemma-1",))
    bounds = known(model, "norm_bound", "noise_bound")
    schedule = RidgeUCB(**bounds, regularisation=model.noise_variance, delta=delta)
    return UCB(schedule=schedule, gamma=gamma_for(model, gain))


def _metric(model: Model) -> ActionMetric:
    oracle = model.oracle
    if not isinstance(oracle, TopK) or oracle.k != 1:
        raise InputError(
            f"a walk on trees takes one action a round, but the oracle is {oracle!r:.60}; use "
            "TopK(k=1), or, for super arms, the policy 'composed' with a switching cost"
        )
    if model.metric is None:
        raise InputError(
            "the model does not say what it costs to move; give Model(metric=…), such as "
            "PointMetric(points=…)"
        )
    return model.metric


@register("policy", "gp-md")
def gp_md(
    model: Model,
    *,
    width: Width = 2.0,
    delta: float = 0.1,
    gain: GainChoice = "realised",
    update: Update = "episode",
    first_episode: Update = "episode",
    clip: bool = False,
    trees: int = 1,
    tau: float = 2.0,
    kappa: float = 1.0,
    posterior: PosteriorName = "auto",
) -> TreeIndexPolicy:
    """GP-MD [ramesh2022movement, Algorithm 1]: mirror descent on lower bounds of the costs.

    Args:
        model: What the learner is told about the problem.
        width: How many standard deviations bounds are away from the mean; "lemma-1" is the width of
            the theory.
        delta: Probability with which the confidence bounds may fail.
        gain: What stands for the information gain γ: a growth rate, the gain realised so far, or a
            bound from greedy selection.
        update: When rewards are learned: when the next episode begins (episode), or at once (step).
        first_episode: When rewards of the first episode are learned: when the next one begins
            (episode), or at once (step), which is a warm start.
        clip: Whether negative lower bounds of costs are raised to 0, which the competitive
            guarantee for movement needs.
        trees: How many random trees there are; episodes take them in turn.
        tau: Τ: edges of a tree are at least this many times shorter than those one level above.
        kappa: Κ, 1 or more: how fast mirror descent follows the costs.
        posterior: Which posterior; auto chooses by the model's arms; drifting is for rewards that
            drift.
    """
    return TreeIndexPolicy(
        posterior=posterior_for(model, posterior),
        rule=_bound(model, width, delta, gain),
        metric=_metric(model),
        direction=model.direction,
        update=update,
        first_episode=first_episode,
        clip=clip,
        trees=trees,
        tau=tau,
        kappa=kappa,
    )


@register("policy", "cgp-lcb")
def cgp_lcb(
    model: Model,
    *,
    width: Width = 2.0,
    delta: float = 0.1,
    gain: GainChoice = "realised",
    posterior: PosteriorName = "auto",
) -> IndexPolicy:
    """CGP-LCB [krause2011contextual]: the action of lowest lower bound, whatever moving there costs.

    Args:
        model: What the learner is told about the problem.
        width: How many standard deviations bounds are away from the mean; "lemma-1" is the width of
            the theory.
        delta: Probability with which the confidence bounds may fail.
        gain: What stands for the information gain γ: a growth rate, the gain realised so far, or a
            bound from greedy selection.
        posterior: Which posterior; auto chooses by the model's arms; drifting is for rewards that
            drift.
    """
    return index_policy(model, _bound(model, width, delta, gain), posterior)


@register("policy", "stationary")
def stationary(model: Model) -> ScorePolicy:
    """Stays with the previous action.

    Args:
        model: What the learner is told about the problem.
    """
    return ScorePolicy(score=Stay(), oracle=model.oracle)


@register("policy", "minc-known")
def minc_known(model: Model, *, problem: World) -> ScorePolicy:
    """The action that costs least in this round, by one who knows the costs and ignores moving.

    Args:
        model: What the learner is told about the problem.
        problem: The world whose truth is used.
    """
    return ScorePolicy(score=Truth(problem=problem), oracle=model.oracle)


@register("policy", "md-known")
def md_known(
    model: Model,
    *,
    problem: World,
    trees: int = 1,
    tau: float = 2.0,
    kappa: float = 1.0,
) -> TreeScorePolicy:
    """Mirror descent on trees by one who knows the costs [coester2019pure].

    Args:
        model: What the learner is told about the problem.
        problem: The world whose truth is used.
        trees: How many random trees there are; episodes take them in turn.
        tau: Τ: edges of a tree are at least this many times shorter than those one level above.
        kappa: Κ, 1 or more: how fast mirror descent follows the costs.
    """
    score = Truth(problem=problem)
    return TreeScorePolicy(
        score=score, metric=_metric(model), trees=trees, tau=tau, kappa=kappa
    )


@register("policy", "offline")
def offline(model: Model, *, problem: World) -> ScorePolicy:
    """The cheapest way through each episode, by one who knows all costs and contexts beforehand.

    Args:
        model: What the learner is told about the problem.
        problem: The world whose truth is used.
    """
    if not isinstance(problem, MovementWorld):
        raise InputError(
            "offline needs a problem where moving has a cost, such as movement-field"
        )
    return ScorePolicy(score=Planned(problem=problem), oracle=model.oracle)
