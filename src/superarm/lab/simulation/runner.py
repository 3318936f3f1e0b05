"""The simulator: one of the drivers of Offer → Decision → Feedback.

Every policy sees the same offers and the same noise: both depend on (seed, step) alone,
and noise is drawn for all arms before any policy chooses. So all policies of a seed run
side by side, a block of rounds at a time, and share each block's offers and noise. Policies
differ in their previous action (``Offer.previous_action``) and in the feedback that they
still wait for.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superarm.core import (
    Best,
    Decision,
    Feedback,
    Floats,
    Forecast,
    Ints,
    Offer,
    Policy,
    Problem,
    State,
)
from superarm.core.caching import cached_property
from superarm.core.capabilities import (
    AdditiveProblem,
    Forecaster,
    Resumable,
    TablePlayer,
    TableProblem,
)
from superarm.core.errors import InputError, SpecError
from superarm.core.inputs import as_count
from superarm.core.serialization import to_json
from superarm.core.streams import Streams

from .audit import Audit
from .lateness import Lateness, Mail
from .trace import Trace

# Numbers in the features and noise of a block: a few MB, whatever the number of arms.
_BLOCK_NUMBERS = 1 << 18
_REQUIRED = ("deterministic", "exchangeable", "decide", "commit", "learn", "state")
Watch = Callable[[str, Offer, Decision, Feedback, Forecast | None], None]
"""A callback of every round.

Its arguments are the policy's name, the offer, the decision, the world's feedback (which
may reach the policy later), and the policy's forecast of its choice, where forecasts are
audited.
"""


class _Round(NamedTuple):
    """What all policies have in common in a round."""

    step: int
    offer: Offer
    noise: Floats
    best: Best
    delays: Ints | None


class _Block:
    """Rounds that every policy plays, and their table, computed once for all policies."""

    def __init__(self, problem: Problem, rounds: list[_Round]) -> None:
        self.problem = problem
        self.rounds = rounds

    @cached_property
    def table(self) -> Floats | None:
        """Rewards of all arms in all rounds, (T, n); ``None`` if more than noise differs."""
        first_arms = self.rounds[0].offer.arms
        for item in self.rounds:
            same_arms = item.offer.arms is first_arms
            if not same_arms or _is_special(item):
                return None
        if not isinstance(self.problem, TableProblem):
            return None
        noise = np.stack([item.noise for item in self.rounds])  # (T, n)
        return self.problem.table(noise)


def _is_special(item: _Round) -> bool:
    """Whether a round has anything beside its arms and their noise."""
    offer = item.offer
    return (
        offer.available is not None
        or offer.structure is not None
        or offer.time is not None
        or offer.previous_action is not None
        or item.delays is not None
    )


class _Recorder:
    """One policy in all rounds: plays them and records what happens."""

    def __init__(
        self,
        name: str,
        policy: Policy,
        problem: Problem,
        seed: int,
        steps: range,
        watch: Watch | None,
        earlier: Trace | None,
    ) -> None:
        self.name = name
        self.policy = policy
        self._seed = seed
        self._first = steps[0]
        rounds = len(steps)
        self._additive = problem if isinstance(problem, AdditiveProblem) else None
        self._tried: set[int] = set()
        self._audit: Audit | None = None
        if self._additive is not None and isinstance(policy, Forecaster):
            self._audit = Audit(policy, rounds, self._first)
        self._watch = watch
        self._mail = Mail(steps[-1], in_order=not policy.exchangeable)
        self._action: object = None
        self._decide_streams = Streams(seed, f"policy:{name}")
        self._learn_streams = Streams(seed, f"learn:{name}")
        self._series: dict[str, Floats] = defaultdict(lambda: np.zeros(rounds))
        # Of a round, (k,), or of a block of rounds, (T, k).
        self._choices: list[NDArray[Any]] = []
        self._propensities = np.ones(rounds)
        self._seconds = np.zeros(rounds, dtype=np.float32)
        if earlier is not None:
            self._resume(earlier, problem)

    def _resume(self, earlier: Trace, problem: Problem) -> None:
        """Restore the first rounds, which the policy has played and learned from."""
        resume_state = earlier.resume_state
        choices = earlier.choices
        assert resume_state is not None
        assert choices is not None
        done = earlier.rounds
        for name, values in earlier.series.items():
            self._series[name][:done] = values
        self._choices.append(choices)
        chosen = set(choices[choices >= 0].tolist())
        if self._additive is not None:
            self._tried |= chosen
        if earlier.propensities is None:  # all rounds had the same one
            self._propensities[:done] = resume_state.scalar("propensity")
        else:
            self._propensities[:done] = earlier.propensities
        self._seconds[:done] = 0.0 if earlier.seconds is None else earlier.seconds
        if self._audit is not None and earlier.audit is not None:
            self._audit.resume(earlier.audit, chosen)
        self._action = resume_state.scalar("action")
        self._mail.resume(resume_state, problem.offer)

    def _resume_state(self) -> State | None:
        """What a longer run would need beside the policy's state; ``None`` if it cannot resume."""
        mail = self._mail.resume_scalars()
        if self._audit is None or mail is None:
            return None
        if not isinstance(self.policy, Resumable) or not self.policy.same_bits:
            return None
        scalars = {
            **mail,
            "action": self._action,
            "propensity": float(self._propensities[0]),
        }
        resume_state = State(kind="left", schema=1, scalars=scalars)
        try:
            to_json(resume_state)
        except SpecError:  # an action that is no data
            return None
        return resume_state

    def play(self, block: _Block) -> None:
        """Play a block of rounds: at once where problem and policy allow it, else one by one."""
        if not self._play_at_once(block):
            self._play_one_by_one(block.problem, block.rounds)

    def _play_at_once(self, block: _Block) -> bool:
        """Play a block in one call; ``False`` if problem or policy does not allow it."""
        policy = self.policy
        problem = block.problem
        rounds = block.rounds
        if self._watch is not None or not isinstance(policy, TablePlayer):
            return False
        rewards = block.table
        if rewards is None or not isinstance(problem, TableProblem):
            return False
        first = rounds[0]
        last = rounds[-1]
        start = perf_counter()
        played = policy.play_table(first.offer, rewards, self._decide_streams.at)
        elapsed = perf_counter() - start
        if played is None:
            return False
        first_index = first.step - self._first
        last_index = last.step - self._first
        steps = slice(first_index, last_index + 1)
        sign = 1.0 if problem.direction == "maximize" else -1.0
        best = np.array([item.best.value for item in rounds])
        values = problem.values(played)
        self._series["regret"][steps] = sign * (best - values)
        self._seconds[steps] = elapsed / len(rounds)
        if not policy.deterministic:
            self._propensities[steps] = np.nan
        self._choices.append(played[:, None])
        return True

    def _play_one_by_one(self, problem: Problem, block: list[_Round]) -> None:
        policy = self.policy
        sign = 1.0 if problem.direction == "maximize" else -1.0
        # A deterministic policy does not use its generator, so one for all rounds will do.
        randomised = not policy.deterministic
        first_step = block[0].step
        decide_rng = self._decide_streams.at(first_step)
        learn_rng = self._learn_streams.at(first_step)
        for step, common, noise, best, delays in block:
            if randomised:
                decide_rng = self._decide_streams.at(step)
                learn_rng = self._learn_streams.at(step)
            offer = common.after(self._action)
            start = perf_counter()
            decision = policy.decide(offer, decide_rng)
            policy.commit(decision)
            seconds = perf_counter() - start
            forecast = None
            if self._audit is not None:
                forecast = self._audit.policy.forecast(offer, decision.positions)
            feedback = problem.feedback(offer, decision, noise)
            for delivery in self._mail.exchange(offer, decision, feedback, delays):
                start = perf_counter()
                policy.learn(*delivery, learn_rng)
                seconds += perf_counter() - start
            self._seconds[step - self._first] = seconds
            self._action = decision.action
            value = problem.value(offer, decision)
            self._record(offer, decision, value, sign, best)
            if self._watch is not None:
                self._watch(self.name, offer, decision, feedback, forecast)
            metrics = problem.metrics(offer, decision, feedback)
            self._add_metrics(step, metrics)
            if self._audit is None or self._additive is None or forecast is None:
                continue
            truth = self._additive.truth(offer)
            self._audit.record(forecast, decision, feedback, truth)

    def _record(
        self, offer: Offer, decision: Decision, value: float, sign: float, best: Best
    ) -> None:
        step = offer.step
        index = step - self._first
        self._series["regret"][index] = sign * (best.value - value)
        self._choices.append(decision.positions)
        propensity = decision.propensity
        if propensity != 1.0:
            self._propensities[index] = np.nan if propensity is None else propensity
        # No share of a loss is guaranteed.
        optimum = best.optimum
        if optimum is not None and optimum >= 0.0:
            alpha = best.guarantee.alpha
            maximising = sign > 0.0
            guaranteed = optimum * alpha if maximising else optimum / alpha
            alpha_regret = sign * (guaranteed - value)
            self._add_metrics(step, {"alpha_regret": alpha_regret})
        if self._additive is not None:
            tried_before = len(self._tried)
            chosen = decision.positions.tolist()
            self._tried.update(chosen)
            newly_tried = len(self._tried) - tried_before
            self._add_metrics(step, {self._additive.distinct: newly_tried})

    def _add_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._series[name][step - self._first] = value

    def trace(self, last: Offer) -> Trace:
        """Return everything recorded; ``last`` is the offer of the last round."""
        certain = (self._propensities == 1.0).all()
        unknown = np.isnan(self._propensities).all()
        audit = None
        state = None
        if self._audit is not None:
            audit = self._audit.arrays(last)
            state = self.policy.state()
        return Trace(
            policy=self.name,
            seed=self._seed,
            series=dict(self._series),
            choices=self._padded_choices(),
            propensities=None if certain or unknown else self._propensities,
            seconds=self._seconds,
            audit=audit,
            state=state,
            resume_state=self._resume_state(),
        )

    def _padded_choices(self) -> NDArray[np.int32]:
        """Chosen positions, (T, k), padded with −1."""
        rounds = len(self._seconds)
        width = max(chosen.shape[-1] for chosen in self._choices)
        choices = np.full((rounds, width), -1, dtype=np.int32)
        start = 0
        for chosen in self._choices:
            rows = np.atleast_2d(chosen)
            count, k = rows.shape
            stop = start + count
            choices[start:stop, :k] = rows
            start = stop
        return choices


def simulate(
    problem: Problem,
    policies: Mapping[str, Policy],
    *,
    rounds: int,
    seed: int,
    lateness: Lateness | None = None,
    watch: Watch | None = None,
    first: int = 1,
    earlier: Mapping[str, Trace] | None = None,
) -> dict[str, Trace]:
    """Run every policy for ``rounds`` rounds.

    Args:
        problem: The world.
        policies: Policies by name.
        rounds: The number of rounds.
        seed: The seed of the world's and the policies' random numbers.
        lateness: Delays of feedback, on top of those that the problem itself states.
        watch: Called in every round of every policy.
        first: The number of the first round.
        earlier: Traces of a shorter run to resume, by policy, all equally long. The
            policies must be those restored from the states in them; they play the
            remaining rounds.
    """
    steps = range(first, first + as_count(rounds, "rounds"))
    earlier = earlier or {}
    for name, policy in policies.items():
        _check_policy(name, policy)
    recorders = [
        _Recorder(name, policy, problem, seed, steps, watch, earlier.get(name))
        for name, policy in policies.items()
    ]
    done = max((trace.rounds for trace in earlier.values()), default=0)
    noise_streams = Streams(seed, "noise")
    delay_streams = Streams(seed, "delay")
    step = steps[done]
    while step in steps:
        block_rounds: list[_Round] = []
        numbers = 0
        while step in steps and (not block_rounds or numbers < _BLOCK_NUMBERS):
            offer = problem.offer(step)
            noise = problem.noise(offer, noise_streams.at(step))
            delays = None
            if lateness is not None:
                delays = lateness.delays(offer, delay_streams.at(step))
            best = problem.best(offer)
            block_rounds.append(_Round(step, offer, noise, best, delays))
            numbers += math.prod(offer.arms.features.shape) + len(noise)
            step += 1
        _play_block(recorders, _Block(problem, block_rounds))
    return {recorder.name: recorder.trace(offer) for recorder in recorders}


def _check_policy(name: str, policy: Policy) -> None:
    missing = [method for method in _REQUIRED if getattr(policy, method, None) is None]
    if missing:
        raise InputError(
            f"policy {name!r} is {policy!r:.60}, which has no {', '.join(missing)}; "
            "give an object with all that superarm.core.Policy has"
        )


def _play_block(recorders: Iterable[_Recorder], block: _Block) -> None:
    first = block.rounds[0].step
    last = block.rounds[-1].step
    for recorder in recorders:
        try:
            recorder.play(block)
        except Exception as error:
            error.add_note(f"policy {recorder.name!r}, rounds {first} to {last}")
            raise
