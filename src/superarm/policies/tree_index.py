"""GP-MD from parts: mirror descent on trees that follows a rule's scores [ramesh2022movement]."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import numpy as np

from superarm.core import (
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
from superarm.core.errors import ForgottenError, InputError, ShapeError, warn
from superarm.core.inputs import require_choice, require_part, require_type
from superarm.core.registry import register
from superarm.movement import ActionMetric
from superarm.posteriors.base import GaussianPosterior

from .answers import one_per_arm
from .ledger import check_rewards
from .tree_policy import ScoredActions, TreePolicy

Update = Literal["episode", "step"]
_UPDATES = ("episode", "step")
# Delayed rewards at which a warning suggests that no offer begins an episode.
_MANY_DELAYED = 1000


class _DelayedRewards(NamedTuple):
    """Rewards of m arms that are learned when the next episode begins."""

    keys: Any  # of the posterior, m of them
    rewards: Floats  # (m,)
    noise: Floats  # variances, (m,)


@register("policy", "tree-index")
class TreeIndexPolicy(TreePolicy):
    """GP-MD from parts: mirror descent on trees follows a rule's scores [ramesh2022movement].

    Before the first data all actions look the same, so that in the first episode Algorithm 1 stays
    where it starts. With ``first_episode="step"``, or with a posterior that has observed data
    before, it starts warm.

    Args:
        posterior: The posterior, which learns from rewards.
        rule: The rule, which scores every action by the posterior's belief.
        metric: The cost of moving from one action to the next.
        direction: Whether rewards are maximised or costs minimised.
        update: When rewards are learned: when the next episode begins ("episode"), as in
            Algorithm 1, so that offers must begin episodes; or at once ("step").
        first_episode: When rewards of the first episode are learned: when the next one begins
            ("episode"), or at once ("step"), which is a warm start.
        clip: Whether negative lower bounds of costs are raised to 0, which the competitive
            guarantee for movement needs.
        trees: Number of random trees; episodes take them in turn.
        tau: τ: edges of a tree are at least this many times shorter than those one level above.
        kappa: κ, 1 or more: how fast mirror descent follows the costs.
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
        self.posterior = posterior
        self.rule = rule
        self.clip = clip
        self.update = update
        self.first_episode = first_episode
        self._delayed: list[_DelayedRewards] = []
        # A copy of the posterior that has also learned the delayed rewards, once it is needed.
        self._next_posterior: Posterior | None = None

    @property
    def exchangeable(self) -> bool:
        """Whether feedback may come in any order."""
        return self.posterior.exchangeable

    @property
    def _observations(self) -> int:
        return self.posterior.count

    # --- deciding --------------------------------------------------------------------------

    def _learns_at_once(self, number: int) -> bool:
        is_first = number == 0
        return self.update == "step" or (is_first and self.first_episode == "step")

    def _score_actions(self, offer: Offer, begins: bool, rng: Rng) -> ScoredActions:
        posterior = self._updated_posterior() if begins else self.posterior
        belief = posterior.belief(offer)
        gains = belief
        if self.direction == "minimize":
            gains = belief.negated()
        answer = self.rule.desirability(gains, offer.step, rng)
        desirability = one_per_arm(self.rule, answer, len(offer.arms))
        if self.clip:
            desirability = np.minimum(desirability, 0.0)
        return ScoredActions(desirability, belief)

    def _updated_posterior(self) -> Posterior:
        """The posterior with all delayed rewards, for an episode that begins now."""
        with self._lock.lock:
            if self._delayed and self._next_posterior is None:
                self._next_posterior = self._learn_delayed(self._delayed)
            if self._next_posterior is None:
                return self.posterior
            return self._next_posterior

    def _learn_delayed(self, delayed: list[_DelayedRewards]) -> Posterior:
        """A copy of the posterior that has learned these rewards."""
        state = self.posterior.state()
        posterior = self.posterior.restored(state)
        posterior.observe(*_joined(delayed))
        return posterior

    def _begin_episode(self) -> None:
        self.posterior = self._updated_posterior()
        self._delayed = []
        self._next_posterior = None

    # --- learning --------------------------------------------------------------------------

    def _absorb(
        self, offer: Offer, decision: Decision, feedback: Feedback, rng: Rng
    ) -> None:
        posterior = self.posterior
        if not posterior.exchangeable:
            self._ledger.check_order(decision, type(posterior).__name__)
        offered_keys = posterior.keys(offer)
        keys = offered_keys[feedback.positions]
        number = 0 if self._walk is None else self._walk.number
        if self._learns_at_once(number):
            noise = feedback.noise_variance
            posterior.observe(keys, feedback.rewards, noise, rng)
        elif len(keys):
            self._delay(keys, feedback)

    def _delay(self, keys: Any, feedback: Feedback) -> None:
        """Keep rewards for the next episode; refuses now what the posterior would refuse then."""
        check_rewards(feedback)
        with suppress(ForgottenError):  # of long ago
            self.posterior.predict(keys, return_std=False)
        if self._delayed and self._delayed[0].keys.shape[1:] != keys.shape[1:]:
            raise ShapeError("arms have other feature columns than those chosen before")
        if len(self._delayed) + 1 == _MANY_DELAYED:
            # Before anything changes: users may turn warnings into errors.
            warn(
                f"{_MANY_DELAYED} rewards wait for the next episode: where no offer begins one, use "
                "update='step'",
                UserWarning,
            )
        noise = feedback.noise_variance
        variances = np.full(len(keys), self.posterior.noise_std**2)
        if noise is not None:
            variances = noise.copy()
        new = _DelayedRewards(keys, feedback.rewards.copy(), variances)
        delayed = [*self._delayed, new]
        if isinstance(self.posterior, GaussianPosterior):
            self.posterior.check_room(*_joined(delayed))
        # Noise of its own may be refused: learn it now, while that can still be reported.
        self._next_posterior = None if noise is None else self._learn_delayed(delayed)
        self._delayed.append(new)

    # --- state -----------------------------------------------------------------------------

    def _memory(self) -> Mapping[str, Any]:
        memory = {**super()._memory(), "posterior": self.posterior.state()}
        if self._delayed:
            delayed = _joined(self._delayed)
            memory["held_keys"] = delayed.keys
            memory["held_rewards"] = delayed.rewards
            memory["held_noise"] = delayed.noise
        return memory

    def _remember(self, state: State) -> None:
        super()._remember(state)
        self.posterior = self.posterior.restored(state.part("posterior"))
        if "held_keys" in state.arrays:
            delayed = _DelayedRewards(
                keys=state.array("held_keys"),
                rewards=state.array("held_rewards"),
                noise=state.array("held_noise"),
            )
            # Raises for keys that are no arms.
            self.posterior.predict(delayed.keys, return_std=False)
            feedback = Feedback(
                positions=np.arange(len(delayed.keys)),
                rewards=delayed.rewards,
                noise_variance=delayed.noise,
            )
            check_rewards(feedback)
            self._delayed = [delayed]
            self._updated_posterior()  # raises for what cannot be learned


def _joined(delayed: list[_DelayedRewards]) -> _DelayedRewards:
    """All of these in one record."""
    return _DelayedRewards(
        keys=np.concatenate([part.keys for part in delayed]),
        rewards=np.concatenate([part.rewards for part in delayed]),
        noise=np.concatenate([part.noise for part in delayed]),
    )
