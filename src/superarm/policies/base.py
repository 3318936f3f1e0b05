"""How parts become a policy: posterior × rule × oracle, and scores that need no learning."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from superarm.core import (
    Belief,
    Decision,
    Direction,
    Feedback,
    Floats,
    Forecast,
    Ints,
    Offer,
    Oracle,
    Posterior,
    Prediction,
    Rule,
    State,
)
from superarm.errors import InputError, ShapeError, StateError, UnknownArmError

Score = Callable[[Offer, np.random.Generator], Floats]


class IndexPolicy:
    """Believe, score, select; then learn from what was seen.

    Every published algorithm here is one of these. ``direction`` flips the belief's sign for
    costs: rules and oracles only ever see "larger is better", beliefs and feedback keep the
    user's sign. With ``pending_aware`` the oracle builds the super arm step by step and the
    arms already chosen shrink the uncertainty of the rest.

    >>> from superarm.kernels import SquaredExponential
    >>> from superarm.oracles import TopK
    >>> from superarm.posteriors import StreamingGP
    >>> from superarm.rules import UCB, Fixed
    >>> policy = IndexPolicy(
    ...     posterior=StreamingGP(SquaredExponential(), noise_variance=0.01),
    ...     rule=UCB(schedule=Fixed(value=2.0)),
    ...     oracle=TopK(k=2),
    ... )
    """

    def __init__(
        self,
        *,
        posterior: Posterior,
        rule: Rule,
        oracle: Oracle,
        direction: Direction = "maximize",
        pending_aware: bool = False,
    ) -> None:
        for part, protocol in ((posterior, Posterior), (rule, Rule), (oracle, Oracle)):
            if isinstance(part, type) or not isinstance(part, protocol):
                raise InputError(
                    f"a {type(part).__name__} is no {protocol.__name__.lower()}; "
                    f"see superarm.core.{protocol.__name__}"
                )
        if direction not in ("maximize", "minimize"):
            raise InputError(f"direction is {direction!r}; choose 'maximize' or 'minimize'")
        self.posterior = posterior
        self.rule = rule
        self.oracle = oracle
        self.direction: Direction = direction
        self.pending_aware = pending_aware
        self.version = 0

    @property
    def deterministic(self) -> bool:
        return self.rule.deterministic and self.oracle.deterministic

    def decide(self, offer: Offer, rng: np.random.Generator) -> Decision:
        belief = self.posterior.belief(offer.arms)
        seen: Belief = belief if self.direction == "maximize" else belief.negated()
        desirability = self.rule.desirability(seen, offer.step, rng)
        if desirability.shape != (len(offer.arms),):
            raise ShapeError(
                f"{type(self.rule).__name__} returned {desirability.shape} desirabilities "
                f"for {len(offer.arms)} arms; return one per arm"
            )
        if offer.available is not None:
            desirability = np.where(offer.available, desirability, -np.inf)

        def rescore(chosen: Ints) -> Floats:
            return self.rule.desirability(seen.condition(chosen), offer.step, rng)

        action, positions = self.oracle.select(
            desirability, offer.structure, rng, rescore if self.pending_aware else None
        )
        return Decision(
            action=action,
            positions=positions,
            mean=belief.mean[positions],
            std=belief.std[positions],
            desirability=desirability[positions],
            version=self.version,
        )

    def commit(self, decision: Decision) -> None:
        """Nothing moves between decisions."""

    def learn(
        self, offer: Offer, decision: Decision, feedback: Feedback, rng: np.random.Generator
    ) -> None:
        named = feedback.positions.tolist()  # Python's min and max: ten times as fast on a few
        if named and not 0 <= min(named) <= max(named) < len(offer.arms):
            raise UnknownArmError(
                f"feedback names positions {named}, but the offer has arms 0 to {len(offer.arms) - 1}"
            )
        keys = self.posterior.keys(offer.arms)[feedback.positions]
        self.posterior.observe(keys, feedback.rewards, feedback.noise_variance)
        self.version += 1

    def forecast(self, offer: Offer, positions: Ints) -> Forecast:
        """What these arms are expected to yield, in the user's sign."""
        keys = self.posterior.keys(offer.arms)[positions]
        mean, cov = self.posterior.predict(keys, return_cov=True)
        return Forecast(mean, cov, self.posterior.noise_std)

    def beliefs(self, offer: Offer) -> Prediction:
        """Mean and standard deviation of every arm on offer, in the user's sign."""
        belief = self.posterior.belief(offer.arms)
        return Prediction(belief.mean, belief.std)

    @property
    def information_gain(self) -> float:
        return self.posterior.information_gain

    def play_table(
        self, offer: Offer, rewards: Floats, rng_at: Callable[[int], np.random.Generator]
    ) -> Ints | None:
        """Many rounds at once where posterior, rule and oracle allow it; see ``tabled``."""
        from .tabled import play_table

        played = play_table(self, offer, rewards, rng_at)
        if played is not None:
            self.version += len(played)
        return played

    def state(self) -> State:
        """What was learned: rule and oracle are parameters, not memory."""
        memory = self.posterior.state()
        scalars = {"kind": memory.kind, "schema": memory.schema, "scalars": dict(memory.scalars)}
        return State(
            kind="index-policy",
            schema=1,
            scalars={"version": self.version, "posterior": scalars},
            arrays=memory.arrays,
        )

    def restored(self, state: State) -> IndexPolicy:
        """This policy with the memory that ``state`` holds."""
        if state.kind != "index-policy" or state.schema != 1:
            raise StateError(
                f"this is a {state.kind!r} state of schema {state.schema}; "
                "an IndexPolicy reads 'index-policy' of schema 1"
            )
        inner = state.scalar("posterior")
        if not isinstance(inner, dict) or set(inner) != {"kind", "schema", "scalars"}:
            raise StateError("this state is damaged: it does not say which posterior it holds")
        if not isinstance(inner["scalars"], dict):
            raise StateError("this state is damaged: its posterior has no scalars")
        memory = State(**inner, arrays=state.arrays)
        policy = IndexPolicy(
            posterior=self.posterior.restored(memory),
            rule=self.rule,
            oracle=self.oracle,
            direction=self.direction,
            pending_aware=self.pending_aware,
        )
        policy.version = state.scalar("version")
        return policy


class ScorePolicy:
    """Selects by a score that does not learn: a benchmark that knows the truth, or chance."""

    def __init__(self, *, score: Score, oracle: Oracle, deterministic: bool) -> None:
        self._score = score
        self.oracle = oracle
        self._deterministic = deterministic

    @property
    def deterministic(self) -> bool:
        return self._deterministic and self.oracle.deterministic

    def decide(self, offer: Offer, rng: np.random.Generator) -> Decision:
        desirability = self._score(offer, rng)
        if offer.available is not None:
            desirability = np.where(offer.available, desirability, -np.inf)
        action, positions = self.oracle.select(desirability, offer.structure, rng)
        return Decision(action=action, positions=positions, desirability=desirability[positions])

    def commit(self, decision: Decision) -> None:
        """Nothing moves between decisions."""

    def learn(
        self, offer: Offer, decision: Decision, feedback: Feedback, rng: np.random.Generator
    ) -> None:
        """Nothing is learned."""

    def play_table(
        self, offer: Offer, rewards: Floats, rng_at: Callable[[int], np.random.Generator]
    ) -> Ints | None:
        """Many rounds at once: nothing is learned between them."""
        if offer.available is not None:
            return None
        played = np.empty(len(rewards), dtype=np.intp)
        for row in range(len(rewards)):
            rng = rng_at(offer.step + row)
            chosen = self.oracle.select(self._score(offer, rng), offer.structure, rng).positions
            if len(chosen) != 1:
                return None
            played[row] = chosen[0]
        return played

    def state(self) -> State:
        return State(kind="score-policy", schema=1)

    def restored(self, state: State) -> ScorePolicy:
        """This policy: it has no memory."""
        return self
