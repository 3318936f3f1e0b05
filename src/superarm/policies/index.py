"""Posterior × rule × oracle: the policy that nearly every published algorithm is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from superarm.core import (
    MOST_STEPS,
    Belief,
    Bools,
    Decision,
    DecisionSet,
    Direction,
    Feedback,
    Floats,
    Forecast,
    Ints,
    Offer,
    Oracle,
    Posterior,
    Prediction,
    Rescore,
    Rng,
    Rule,
    State,
    SwitchingCost,
)
from superarm.core.capabilities import (
    ComparesOnly,
    ExpectsRewards,
    Forecaster,
    LearnsSums,
    NeedsGains,
    NeverPositive,
    OwnActions,
    PartialStd,
    Ranking,
    ReportsSettings,
    Resumable,
    SelfCalibrating,
    TablePlayer,
)
from superarm.core.errors import (
    ConflictError,
    ForgottenError,
    InputError,
    ShapeError,
    UnknownArmError,
)
from superarm.core.inputs import as_count, as_positions, require_part, require_type
from superarm.core.registry import register

from .answers import one_per_arm, select, switching_costs
from .base import Learner, retry_if_stale

# Pending arms that a belief is conditioned on, at most: more cost more than they tell.
MOST_PENDING = 256


@register("policy", "index")
class IndexPolicy(Learner, Forecaster, TablePlayer, ReportsSettings, Resumable):
    """Scores arms by the posterior, selects a super arm, and learns from its rewards.

    Nearly every published algorithm in superarm is one of these. For costs, ``direction`` flips the sign of
    the belief: rules and oracles only ever see "larger is better"; beliefs and feedback keep the
    user's sign.

    Arms that are chosen but not yet observed are pending. They already reduce the uncertainty, so that
    decisions without feedback between them spread out.

    Args:
        posterior: The posterior, which learns from rewards.
        rule: The rule, which scores every arm by the posterior's belief.
        oracle: The oracle, which finds the best combination of scored arms.
        direction: Whether rewards are maximised or costs minimised.
        stepwise: Whether the oracle builds a super arm one arm after another, counting the arms chosen
            so far as observed.
        switching: The cost of leaving the previous action, known for every arm; ``None``: no cost.
        decision_set: Which arms may be chosen, such as those that stand for a grid that grows
            finer, as Theorem 4 of On Kernelized Multi-armed Bandits (2017) assumes; ``None``: all
            arms.
        most_pending: Most pending arms that count, those chosen last; 0 counts none.
        repeats: Whether a reward may be learned twice; otherwise the second time is an error.
    """

    kind = "index-policy"
    schema = 4

    def __init__(
        self,
        *,
        posterior: Posterior,
        rule: Rule,
        oracle: Oracle,
        direction: Direction = "maximize",
        stepwise: bool = False,
        switching: SwitchingCost | None = None,
        decision_set: DecisionSet | None = None,
        most_pending: int = MOST_PENDING,
        repeats: bool = False,
    ) -> None:
        self.most_pending = as_count(most_pending, "most_pending", 0)
        super().__init__(direction=direction, most_pending=self.most_pending)
        require_part(posterior, Posterior, "posterior")
        require_part(rule, Rule, "rule")
        require_part(oracle, Oracle, "oracle")
        if switching is not None:
            require_part(switching, SwitchingCost, "switching cost")
        if decision_set is not None:
            require_part(decision_set, DecisionSet, "decision set")
        if isinstance(rule, Ranking) and rule.ranks_only:
            _check_only_compared(rule, oracle, switching)
        if isinstance(rule, NeverPositive) and isinstance(oracle, NeedsGains):
            _check_gains(rule, oracle)
        if switching is not None and isinstance(oracle, OwnActions):
            _check_positions(switching, oracle)
        self.posterior = posterior
        self.rule = rule
        self.oracle = oracle
        self.switching = switching
        self.decision_set = decision_set
        self.stepwise = stepwise
        self.repeats = repeats

    # --- properties ------------------------------------------------------------------------

    @property
    def deterministic(self) -> bool:
        """Whether neither decisions nor learning draw random numbers."""
        return self._decides_without_chance and not self.posterior.draws

    @property
    def _decides_without_chance(self) -> bool:
        return self.rule.deterministic and self.oracle.deterministic

    @property
    def _observations(self) -> int:
        return self.posterior.count

    @property
    def exchangeable(self) -> bool:
        """Whether feedback may come in any order."""
        return self.posterior.exchangeable

    @property
    def same_bits(self) -> bool:
        """Whether a restored policy repeats this one bit for bit."""
        return isinstance(self.posterior, Resumable) and self.posterior.same_bits

    @property
    def information_gain(self) -> float:
        """Realised information gain, nats."""
        return self.posterior.information_gain

    @property
    def awaits(self) -> bool:
        """Whether arms are pending."""
        return self._ledger.awaits

    def has_learned(self, step: int) -> bool:
        """Whether all rewards of a step were learned.

        Args:
            step: The step.
        """
        return step in self._ledger.closed

    def note_steps(self, steps: Sequence[int]) -> None:
        """Record that the posterior has learned the rewards of these steps.

        Args:
            steps: The steps, each for the first time.
        """
        numbers = [as_count(step, "step", 1, MOST_STEPS) for step in steps]
        with self._lock:
            seen = set()
            for step in numbers:
                if step in seen or step in self._ledger.closed:
                    raise ConflictError(
                        f"step {step} is already noted; note every step once"
                    )
                seen.add(step)
            for step in numbers:
                self._ledger.note_rounds(step, 1)
            self.version += len(numbers)

    # --- deciding --------------------------------------------------------------------------

    @retry_if_stale
    def decide(self, offer: Offer, rng: Rng) -> Decision:
        """Choose arms: believe, score, select. Nothing changes before :meth:`commit`.

        Args:
            offer: The arms on offer.
            rng: Where rule and oracle draw their random numbers.
        """
        # This method, ``commit`` and ``learn`` are one round of the loop. A simulator does not
        # always run it: it may pass a whole table of rounds to ``play_table`` below, which plays
        # them in compiled code or in a shorter loop (``tabled.py``), with the same bits.
        require_type(offer, Offer, "offer")
        version = self.version  # before the belief: another thread may be learning
        # Believe.
        pending = self._ledger.pending()
        belief = self.posterior.belief(offer, pending)
        gains: Belief = belief if self.direction == "maximize" else belief.negated()
        # Score.
        costs = None
        if self.switching is not None:
            costs = switching_costs(self.switching, offer)
        desirability = self._score(gains, costs, offer, rng)
        if self.decision_set is not None:
            allowed = _allowed_arms(self.decision_set, offer)
            desirability = np.where(allowed, desirability, -np.inf)
        # Select.
        rescore = self._rescorer(gains, costs, offer, rng) if self.stepwise else None
        action, positions, guarantee = select(
            self.oracle, desirability, offer, rng, rescore
        )
        return Decision(
            step=offer.step,
            action=action,
            positions=positions,
            mean=belief.mean.take(positions),
            std=_std_at(belief, positions),
            desirability=desirability.take(positions),
            propensity=1.0 if self._decides_without_chance else None,
            guarantee=guarantee,
            version=version,
            carry=self._ledger.carry(positions, self.posterior, offer),
        )

    def _score(
        self, belief: Belief, costs: Floats | None, offer: Offer, rng: Rng
    ) -> Floats:
        """The rule's desirability of every arm, minus what it costs to switch to it, (n,)."""
        answer = self.rule.desirability(belief, offer.step, rng)
        desirability = one_per_arm(self.rule, answer, len(offer.arms))
        return desirability if costs is None else desirability - costs

    def _rescorer(
        self, belief: Belief, costs: Floats | None, offer: Offer, rng: Rng
    ) -> Rescore:
        """A function that scores all arms given those chosen so far."""
        conditioned = belief
        count = 0  # chosen arms that ``conditioned`` takes as seen

        def rescore(chosen: Ints) -> Floats:
            # ``chosen`` grows from call to call: condition only on what is new.
            nonlocal conditioned, count
            conditioned = conditioned.condition(chosen[count:])
            count = len(chosen)
            return self._score(conditioned, costs, offer, rng)

        return rescore

    def commit(self, decision: Decision) -> None:
        """Take a decision: its arms are pending until they are seen.

        Args:
            decision: The decision.
        """
        require_type(decision, Decision, "decision")
        posterior = self.posterior
        with self._lock:
            if isinstance(posterior, ExpectsRewards):
                posterior.expect(self._ledger.pending())
            self._ledger.expect(decision, posterior)

    # --- learning --------------------------------------------------------------------------

    def _absorb(
        self, offer: Offer, decision: Decision, feedback: Feedback, rng: Rng
    ) -> None:
        posterior = self.posterior
        if not posterior.exchangeable:
            self._ledger.check_order(decision, type(posterior).__name__)
        offered_keys = posterior.keys(offer)
        keys = offered_keys[feedback.positions]
        rewards = feedback.rewards
        noise = feedback.noise_variance
        if feedback.sums is None:
            posterior.observe(keys, rewards, noise, rng)
        elif isinstance(posterior, LearnsSums):
            posterior.observe_sums(keys, feedback.sums, rewards, noise, rng)
        else:
            name = type(posterior).__name__
            raise InputError(
                f"{name} learns from rewards of single arms, and this feedback holds sums of them; use "
                "the posterior 'roads', or give every arm its reward"
            )

    def play_table(
        self, offer: Offer, rewards: Floats, rng_at: Callable[[int], Rng]
    ) -> Ints | None:
        """Play many rounds at once, where posterior, rule and oracle allow it; see ``tabled.py``.

        Args:
            offer: The offer of the first round; the others have the same arms.
            rewards: The reward of every arm in every round, (T, n).
            rng_at: Returns the random generator of a step.

        Returns:
            The arm played in every round, (T,); ``None`` if rounds must be played one by one.
        """
        from .tabled import play_table

        with self._lock:
            if offer.step <= self._ledger.last:
                # Some of these rounds may be learned already: ``learn`` checks each.
                return None
            observations = self.posterior.count
            try:
                return play_table(self, offer, rewards, rng_at)
            finally:  # an error, as of a rule, may come after rounds that were learned
                learned = self.posterior.count - observations
                if learned:
                    self.version += learned
                    self._ledger.note_rounds(offer.step, learned)

    # --- answers ---------------------------------------------------------------------------

    def forecast(self, offer: Offer, positions: Ints) -> Forecast:
        """What some arms are expected to yield, in the user's sign.

        Args:
            offer: The arms on offer.
            positions: Positions of the arms in the offer, (k,).
        """
        chosen = as_positions(positions, "positions")
        n = len(offer.arms)
        is_arm = (chosen >= 0) & (chosen < n)
        if not is_arm.all():
            first_few = chosen.tolist()[:9]
            raise UnknownArmError(
                f"positions {first_few} are not all among arms 0 to {n - 1}"
            )
        posterior = self.posterior
        offered_keys = posterior.keys(offer)
        keys = offered_keys[chosen]
        mean, cov = posterior.predict(keys, return_cov=True)
        if isinstance(posterior, SelfCalibrating):
            noise_cov = posterior.noise_cov(keys)
            widths = posterior.widths(keys)
            return Forecast(mean, cov, posterior.noise_std, noise_cov, *widths)
        return Forecast(mean, cov, posterior.noise_std)

    def beliefs(self, offer: Offer) -> Prediction:
        """Mean and standard deviation of every arm on offer, in the user's sign.

        Args:
            offer: The arms on offer.
        """
        belief = self.posterior.belief(offer)
        std = None if isinstance(belief, PartialStd) else belief.std
        return Prediction(belief.mean, std)

    def _display_fields(self) -> Mapping[str, Any]:
        return {
            "posterior": self.posterior,
            "rule": self.rule,
            "oracle": self.oracle,
            "direction": self.direction,
            "switching": self.switching,
            "decision_set": self.decision_set,
            "version": self.version,
        }

    # --- state -----------------------------------------------------------------------------

    def _memory(self) -> Mapping[str, Any]:
        return {**super()._memory(), "posterior": self.posterior.state()}

    def _remember(self, state: State) -> None:
        super()._remember(state)
        self.posterior = self.posterior.restored(state.part("posterior"))
        pending = self._ledger.pending()
        if pending is not None:
            with suppress(ForgottenError):  # pending for long
                # Raises for keys that are no arms.
                self.posterior.predict(pending, return_std=False)


def _std_at(belief: Belief, positions: Ints) -> Floats:
    """Standard deviations of some arms, (k,)."""
    if isinstance(belief, PartialStd):
        return belief.std_at(positions)
    return belief.std.take(positions)


def _check_only_compared(
    rule: Ranking, oracle: Oracle, switching: SwitchingCost | None
) -> None:
    """Refuse a rule whose numbers only rank arms where something adds them up."""
    prefix = f"{type(rule).__name__} gives numbers that only rank arms, but"
    if not isinstance(oracle, ComparesOnly):
        raise InputError(
            f"{prefix} {type(oracle).__name__} may add them up: {rule.ranks_only}, or derive the "
            "oracle from superarm.core.capabilities.ComparesOnly if only their order "
            "matters to it"
        )
    if switching is not None:
        raise InputError(
            f"{prefix} costs of switching are subtracted: {rule.ranks_only}"
        )


def _check_gains(rule: NeverPositive, oracle: NeedsGains) -> None:
    """Refuse a rule of costs if they leave the oracle nothing to compare."""
    consequence = oracle.without_gains
    if consequence:
        raise InputError(
            f"{type(rule).__name__} gives only desirabilities of 0 or less, for which "
            f"{type(oracle).__name__} {consequence}; use a rule that can be positive, such as ucb"
        )


def _check_positions(switching: SwitchingCost, oracle: OwnActions) -> None:
    """Refuse a switching cost that would misread actions as positions of arms."""
    if switching.fixed_arms:
        raise InputError(
            f"{type(switching).__name__} reads the previous action as positions of arms, but actions "
            f"of {type(oracle).__name__} hold {oracle.action_holds}; write a switching cost for such "
            "actions, with fixed_arms = False"
        )


def _allowed_arms(decision_set: DecisionSet, offer: Offer) -> Bools:
    """Which arms on offer the decision set allows, checked, (n,)."""
    allowed = np.asarray(decision_set.allowed_arms(offer))
    n = len(offer.arms)
    if allowed.dtype != np.bool_ or allowed.shape != (n,):
        raise ShapeError(
            f"allowed_arms must return True or False for each of the {n} arms, got an array of "
            f"{allowed.dtype} with shape {allowed.shape}"
        )
    return allowed
