"""Policies for decisions that are costly to change [ramesh2022movement].

Symbols: τ ``tau``, κ ``kappa``; lcb is minus what :class:`~superarm.rules.UCB` makes of the belief
about minus the cost.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from superarm.core import Decision, Direction, Feedback, Floats, Offer, Posterior, Rng, Rule, State
from superarm.errors import InputError, ShapeError
from superarm.inputs import as_count, as_number, as_vector, require_choice, require_type
from superarm.models import Model
from superarm.movement import ActionMetric, Forest, Stand, start_of
from superarm.movement.carrying import forest_of, walk_of, walk_state
from superarm.problems.base import World
from superarm.problems.movement import MovementProblem
from superarm.registry import register
from superarm.rules import UCB, Fixed, RidgeUCB

from .base import IndexPolicy, Learner, ScorePolicy, one_per_arm, require_part
from .ledger import check_rewards
from .published import GainChoice, PosteriorName, gamma_for, index_policy, known, posterior_for
from .scores import Planned, Score, Stay, Truth


class TreeWalker(Learner):
    """Moves by mirror descent on random trees over the actions; what actions cost a subclass says.

    The trees are drawn with the first decision, which carries them; episodes take them in turn. An
    episode begins where the offer says so, at its ``previous_action``. In any other round that is
    where the walk goes on, also if it had chosen something else. The propensity is that of the action
    given where the walk was; of the first decision, which also draws the trees, it is not known.
    """

    deterministic = False

    def __init__(
        self, *, metric: ActionMetric, direction: Direction, trees: int, tau: float, kappa: float
    ) -> None:
        super().__init__(direction=direction)
        require_type(metric, ActionMetric, "metric", ", such as PointMetric(points=…)")
        self.metric = metric
        self.trees = as_count(trees, "trees", 1, 10_000)
        self.tau = as_number(tau, "tau", 1.0 + 1e-9, 1e6)
        self.kappa = as_number(kappa, "kappa", 1.0, 1e100)
        self.forest: Forest | None = None
        self._stand: Stand | None = None
        self._walk = -1  # the number of the episode

    @abstractmethod
    def _desirability(self, offer: Offer, begins: bool, rng: Rng) -> Floats:
        """Minus what each action on offer seems to cost, (n,)."""

    def decide(self, offer: Offer, rng: Rng) -> Decision:
        require_type(offer, Offer, "offer")
        if len(offer.arms) != len(self.metric):
            raise ShapeError(
                f"the offer has {len(offer.arms)} arms, but the metric is over {len(self.metric)} "
                "actions; offer all of them in every round, and say which are available"
            )
        before, forest, stand, walk = start_of(offer), self.forest, self._stand, self._walk
        new = forest is None
        if forest is None:
            forest = Forest.grown(self.metric, rng, trees=self.trees, tau=self.tau, kappa=self.kappa)
        begins = offer.begins or stand is None
        if stand is None or begins:
            walk += 1
            stand = forest.begin(before, walk)
        elif before is not None:
            stand = stand._replace(action=before)
        desirability = self._desirability(offer, begins, rng)
        move = forest.move(stand, -desirability, rng, offer.available)
        positions = np.array([move.stand.action])
        return Decision(
            step=offer.step,
            action=positions,
            positions=positions,
            desirability=desirability[positions],
            propensity=None if new else min(move.probability, 1.0),
            version=self.version,
            carry=walk_state(move.stand, walk, forest.trees if new else (), move),
        )

    def commit(self, decision: Decision) -> None:
        """The decision is taken: the walk goes on from it."""
        require_type(decision, Decision, "decision")
        if decision.carry is None:
            raise InputError("the decision carries nothing: another policy made it")
        with self._turns.lock:
            before = self._walk
            self._adopt(decision.carry)
            if self._walk != before:
                self._begin()

    def _begin(self) -> None:
        """An episode began."""

    def _adopt(self, carry: State) -> None:
        forest = forest_of(carry, self.metric, self.kappa) or self.forest
        if forest is None:
            raise InputError("the decision carries no trees, and none were drawn before")
        self._stand, self._walk = walk_of(carry, forest)
        self.forest = forest

    def _memory(self) -> Mapping[str, Any]:
        if self.forest is None or self._stand is None:
            return {}
        return {"walk": walk_state(self._stand, self._walk, self.forest.trees)}

    def _remember(self, state: State) -> None:
        if "walk" in state.parts:
            self._adopt(state.part("walk"))

    def _shown(self) -> Mapping[str, Any]:
        return {**self.parameters(), "version": self.version}


@register("policy", "tree-index")
class TreeIndexPolicy(TreeWalker):
    """GP-MD from parts: mirror descent on trees follows a rule's scores [ramesh2022movement].

    With ``update="episode"`` rewards are learned when the next episode begins, as in Algorithm 1; with
    "step" at once. ``clip`` raises negative costs to 0, as the guarantee for movement needs.
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
        update: Literal["episode", "step"] = "episode",
        clip: bool = False,
        trees: int = 1,
        tau: float = 2.0,
        kappa: float = 1.0,
    ) -> None:
        super().__init__(metric=metric, direction=direction, trees=trees, tau=tau, kappa=kappa)
        require_part(posterior, Posterior, "posterior")
        require_part(rule, Rule, "rule")
        require_choice(update, "update", ("episode", "step"))
        require_type(clip, bool, "clip")
        if update == "episode" and posterior.draws:
            raise InputError(f"{type(posterior).__name__} draws as it learns; use update='step'")
        self.posterior = posterior
        self.rule = rule
        self.update = update
        self.clip = clip
        self._held: list[tuple[Any, Floats, Floats]] = []  # keys, rewards, noise: to be learned later
        self._ahead: Posterior | None = None  # the posterior that has learned them

    @property
    def exchangeable(self) -> bool:
        return self.posterior.exchangeable

    def _desirability(self, offer: Offer, begins: bool, rng: Rng) -> Floats:
        belief = (self._caught_up() if begins else self.posterior).belief(offer)
        seen = belief if self.direction == "maximize" else belief.negated()
        answer = self.rule.desirability(seen, offer.step, rng)
        desirability = one_per_arm(self.rule, answer, len(offer.arms))
        return np.minimum(desirability, 0.0) if self.clip else desirability

    def _caught_up(self) -> Posterior:
        """The posterior with all that is held; what an episode that begins now would use."""
        with self._turns.lock:
            if self._held and self._ahead is None:
                ahead = self.posterior.restored(self.posterior.state())
                keys, rewards, noise = self._all_held()
                ahead.observe(keys, rewards, noise)
                self._ahead = ahead
            return self._ahead or self.posterior

    def _all_held(self) -> list[Any]:
        return [np.concatenate(parts) for parts in zip(*self._held, strict=True)]

    def _begin(self) -> None:
        self.posterior, self._held, self._ahead = self._caught_up(), [], None

    def _absorb(self, offer: Offer, decision: Decision, feedback: Feedback, rng: Rng) -> None:
        if not self.posterior.exchangeable:
            self._ledger.check_order(decision, type(self.posterior).__name__)
        keys, noise = self.posterior.keys(offer)[feedback.positions], feedback.noise_variance
        if self.update == "step":
            self.posterior.observe(keys, feedback.rewards, noise, rng)
        elif len(keys):
            check_rewards(feedback)
            if noise is None:
                noise = np.full(len(keys), self.posterior.noise_std**2)
            self._held.append((keys, feedback.rewards, noise))
            self._ahead = None

    def _memory(self) -> Mapping[str, Any]:
        memory = {**super()._memory(), "posterior": self.posterior.state()}
        if self._held:
            names = ("held_keys", "held_rewards", "held_noise")
            memory |= dict(zip(names, self._all_held(), strict=True))
        return memory

    def _remember(self, state: State) -> None:
        super()._remember(state)
        self.posterior = self.posterior.restored(state.part("posterior"))
        if "held_keys" in state.arrays:
            keys = state.array("held_keys")
            self.posterior.predict(keys, return_std=False)  # says what is no arm
            rewards, noise = (
                as_vector(state.array(name), name, len(keys)) for name in ("held_rewards", "held_noise")
            )
            self._held = [(keys, rewards, noise)]


@register("policy", "tree-score")
class TreeScorePolicy(TreeWalker):
    """Mirror descent on trees that follows scores which are not learned, such as the truth."""

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
        super().__init__(metric=metric, direction="minimize", trees=trees, tau=tau, kappa=kappa)
        require_part(score, Score, "score")
        self.score = score

    def _desirability(self, offer: Offer, begins: bool, rng: Rng) -> Floats:
        return one_per_arm(self.score, self.score.desirability(offer, rng), len(offer.arms))

    def _absorb(self, offer: Offer, decision: Decision, feedback: Feedback, rng: Rng) -> None:
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
    width: float | str = 2.0,
    delta: float = 0.1,
    gain: GainChoice = "realised",
    update: Literal["episode", "step"] = "episode",
    clip: bool = False,
    trees: int = 1,
    tau: float = 2.0,
    kappa: float = 1.0,
    posterior: PosteriorName = "auto",
) -> TreeIndexPolicy:
    """GP-MD [ramesh2022movement, Algorithm 1]: mirror descent on lower confidence bounds of the costs.

    ``width`` multiplies the standard deviation; "lemma-1" is the width of the theory, for which
    ``delta`` and ``gain`` are needed. With ``update="step"`` rewards are learned at once, not when the
    next episode begins. ``clip`` raises negative bounds to 0. ``trees`` is the number of random trees;
    episodes take them in turn.
    """
    return TreeIndexPolicy(
        posterior=posterior_for(model, posterior),
        rule=_bound(model, width, delta, gain),  # type: ignore[arg-type]
        metric=_metric(model),
        direction=model.direction,
        update=update,
        clip=clip,
        trees=trees,
        tau=tau,
        kappa=kappa,
    )


@register("policy", "cgp-lcb")
def cgp_lcb(
    model: Model,
    *,
    width: float | str = 2.0,
    delta: float = 0.1,
    gain: GainChoice = "realised",
    posterior: PosteriorName = "auto",
) -> IndexPolicy:
    """CGP-LCB [krause2011contextual]: the lowest lower bound, whatever it costs to move there.

    ``width``, ``delta`` and ``gain`` are those of ``gp-md``.
    """
    return index_policy(model, _bound(model, width, delta, gain), posterior)  # type: ignore[arg-type]


@register("policy", "stationary")
def stationary(model: Model) -> ScorePolicy:
    """Stays with the previous action."""
    return ScorePolicy(score=Stay(), oracle=model.oracle)


@register("policy", "minc-known")
def minc_known(model: Model, *, problem: World) -> ScorePolicy:
    """The action that costs least in this round, by one who knows the costs and ignores moving."""
    return ScorePolicy(score=Truth(problem=problem), oracle=model.oracle)


@register("policy", "md-known")
def md_known(
    model: Model, *, problem: World, trees: int = 1, tau: float = 2.0, kappa: float = 1.0
) -> TreeScorePolicy:
    """Mirror descent on trees by one who knows the costs [coester2019pure].

    ``trees``, ``tau`` and ``kappa`` are those of ``gp-md``.
    """
    score = Truth(problem=problem)
    return TreeScorePolicy(score=score, metric=_metric(model), trees=trees, tau=tau, kappa=kappa)


@register("policy", "offline")
def offline(model: Model, *, problem: World) -> ScorePolicy:
    """The cheapest way through each episode, by one who knows all costs and contexts beforehand."""
    if not isinstance(problem, MovementProblem):
        raise InputError("offline needs a problem where moving has a cost, such as movement-field")
    return ScorePolicy(score=Planned(problem=problem), oracle=model.oracle)
