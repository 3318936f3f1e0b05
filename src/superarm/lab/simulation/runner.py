"""The simulator: one of the drivers of Offer → Decision → Feedback.

Every policy meets the same offers and the same noise: both depend on (seed, step) alone, and
noise is drawn for all arms before anyone chooses. So all policies of a seed run side by side,
a block of rounds at a time, and share each block's offers and noise. What differs from policy to
policy is what it did before (``Offer.previous_action``) and which feedback it still waits for.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import cached_property
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

_BLOCK_NUMBERS = (
    1 << 18
)  # noise values that a block may hold: a few MB, whatever the number of arms
_NEEDED = ("deterministic", "exchangeable", "decide", "commit", "learn", "state")
Watch = Callable[[str, Offer, Decision, Feedback, Forecast | None], None]
"""Hears of every round: policy, offer, decision, the world's feedback (which may reach the policy
later), and what the policy had expected of its choice before, where its forecasts are audited."""


class _Round(NamedTuple):
    step: int
    offer: Offer
    noise: Floats
    best: Best
    delays: Ints | None


class _Block:
    """Rounds that every policy plays, and their table, made once for all of them."""

    def __init__(self, problem: Problem, rounds: list[_Round]) -> None:
        self.problem = problem
        self.rounds = rounds

    @cached_property
    def table(self) -> Floats | None:
        """Rewards of all arms in all rounds, (T, n); ``None`` if rounds differ by more than noise."""
        first = self.rounds[0].offer.arms
        for _, offer, _, _, delays in self.rounds:
            own = (
                offer.available,
                offer.structure,
                offer.time,
                offer.previous_action,
                delays,
            )
            if offer.arms is not first or any(each is not None for each in own):
                return None
        if not isinstance(self.problem, TableProblem):
            return None
        return self.problem.table(np.stack([each.noise for each in self.rounds]))


class _Recorder:
    """One policy's way through the rounds."""

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
        self._first, rounds = steps[0], len(steps)
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
        self._choices: list[
            NDArray[Any]
        ] = []  # of a round (k,), or of a block of them (T, 1)
        self._propensities = np.ones(rounds)
        self._seconds = np.zeros(rounds, dtype=np.float32)
        if earlier is not None:
            self._go_on(earlier, problem)

    def _go_on(self, earlier: Trace, problem: Problem) -> None:
        """Take in the first rounds, which the policy has played and learned from."""
        left, choices, done = earlier.left, earlier.choices, earlier.rounds
        assert left is not None
        assert choices is not None
        for name, values in earlier.series.items():
            self._series[name][:done] = values
        self._choices.append(choices)
        chosen = set(choices[choices >= 0].tolist())
        if self._additive is not None:
            self._tried |= chosen
        known = earlier.propensities
        self._propensities[:done] = (
            left.scalar("propensity") if known is None else known
        )
        self._seconds[:done] = 0.0 if earlier.seconds is None else earlier.seconds
        if self._audit is not None and earlier.audit is not None:
            self._audit.go_on(earlier.audit, chosen)
        self._action = left.scalar("action")
        self._mail.go_on(left, problem.offer)

    def _left(self) -> State | None:
        """What the next round would need, beside the policy's state, if there were one."""
        policy, mail = self.policy, self._mail.left()
        if self._audit is None or mail is None or not isinstance(policy, Resumable):
            return None
        scalars = {
            **mail,
            "action": self._action,
            "propensity": float(self._propensities[0]),
        }
        left = State(kind="left", schema=1, scalars=scalars)
        try:
            to_json(left)
        except SpecError:  # an action that is no data
            return None
        return left if policy.same_bits else None

    def play(self, block: _Block) -> None:
        """Play a block of rounds: at once where problem and policy allow it, else one by one."""
        if not self._play_at_once(block):
            self._play_one_by_one(block.problem, block.rounds)

    def _play_at_once(self, block: _Block) -> bool:
        policy, problem, rounds = self.policy, block.problem, block.rounds
        if self._watch is not None or not isinstance(policy, TablePlayer):
            return False
        rewards = block.table
        if rewards is None or not isinstance(problem, TableProblem):
            return False
        first = rounds[0]
        start = perf_counter()
        played = policy.play_table(first.offer, rewards, self._decide_streams.at)
        elapsed = perf_counter() - start
        if played is None:
            return False
        steps = slice(first.step - self._first, rounds[-1].step - self._first + 1)
        sign = 1.0 if problem.direction == "maximize" else -1.0
        best = np.array([each.best.value for each in rounds])
        self._series["regret"][steps] = sign * (best - problem.values(played))
        self._seconds[steps] = elapsed / len(rounds)
        if not policy.deterministic:
            self._propensities[steps] = np.nan
        self._choices.append(played[:, None])
        return True

    def _play_one_by_one(self, problem: Problem, block: list[_Round]) -> None:
        policy = self.policy
        sign = 1.0 if problem.direction == "maximize" else -1.0
        # A deterministic policy leaves its generator alone, so there is no need to set it.
        chance = not policy.deterministic
        decide_rng = self._decide_streams.at(block[0].step)
        learn_rng = self._learn_streams.at(block[0].step)
        for step, common, noise, best, delays in block:
            if chance:
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
            self._record(offer, decision, problem.value(offer, decision), sign, best)
            if self._watch is not None:
                self._watch(self.name, offer, decision, feedback, forecast)
            self._measure(step, problem.metrics(offer, decision, feedback))
            if (
                self._audit is not None
                and self._additive is not None
                and forecast is not None
            ):
                self._audit.record(
                    forecast, decision, feedback, self._additive.truth(offer)
                )

    def _record(
        self, offer: Offer, decision: Decision, value: float, sign: float, best: Best
    ) -> None:
        step, positions = offer.step, decision.positions
        at = step - self._first
        self._series["regret"][at] = sign * (best.value - value)
        self._choices.append(positions)
        known = decision.propensity
        if known != 1.0:
            self._propensities[at] = np.nan if known is None else known
        if (
            best.optimum is not None and best.optimum >= 0.0
        ):  # of a loss no share is promised
            # Of a reward, α × the optimum is promised; of a cost, the optimum over α.
            alpha = best.guarantee.alpha
            promised = best.optimum * alpha if sign > 0.0 else best.optimum / alpha
            self._measure(step, {"alpha_regret": sign * (promised - value)})
        if self._additive is not None:
            before = len(self._tried)
            self._tried.update(positions.tolist())
            self._measure(step, {self._additive.distinct: len(self._tried) - before})

    def _measure(self, step: int, measured: Mapping[str, float]) -> None:
        for metric, value in measured.items():
            self._series[metric][step - self._first] = value

    def trace(self, last: Offer) -> Trace:
        """Everything recorded; ``last`` is the offer of the last round."""
        most = max(chosen.shape[-1] for chosen in self._choices)
        choices = np.full((len(self._seconds), most), -1, dtype=np.int32)
        row = 0
        for chosen in self._choices:
            rows = chosen if chosen.ndim == 2 else chosen[None, :]
            choices[row : row + len(rows), : rows.shape[1]] = rows
            row += len(rows)
        known = self._propensities
        return Trace(
            policy=self.name,
            seed=self._seed,
            series=dict(self._series),
            choices=choices,
            propensities=None
            if (known == 1.0).all() or np.isnan(known).all()
            else known,
            seconds=self._seconds,
            audit=None if self._audit is None else self._audit.arrays(last),
            state=None if self._audit is None else self.policy.state(),
            left=self._left(),
        )


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
    """Run every policy for ``rounds`` rounds, numbered from ``first`` on; ``watch`` hears of each one.

    ``lateness`` delays feedback, on top of the delays that the problem itself states. Where a shorter
    run is made longer, ``earlier`` holds what every policy did in it, equally many rounds of each; the
    policies are those restored from the states in it, and play the rest.
    """
    steps = range(first, first + as_count(rounds, "rounds"))
    earlier = earlier or {}
    done = max((trace.rounds for trace in earlier.values()), default=0)
    for name, policy in policies.items():
        missing = [each for each in _NEEDED if getattr(policy, each, None) is None]
        if missing:
            told = (
                f"policy {name!r} is {policy!r:.60}, which has no {', '.join(missing)}"
            )
            raise InputError(
                f"{told}; give an object with all that superarm.core.Policy has"
            )
    recorders = [
        _Recorder(name, policy, problem, seed, steps, watch, earlier.get(name))
        for name, policy in policies.items()
    ]
    noise_streams, delay_streams = Streams(seed, "noise"), Streams(seed, "delay")
    step = steps[done]
    while step in steps:
        met: list[_Round] = []
        numbers = 0
        while step in steps and (not met or numbers < _BLOCK_NUMBERS):
            offer = problem.offer(step)
            noise = problem.noise(offer, noise_streams.at(step))
            late = (
                None
                if lateness is None
                else lateness.delays(offer, delay_streams.at(step))
            )
            met.append(_Round(step, offer, noise, problem.best(offer), late))
            numbers += math.prod(offer.arms.features.shape) + len(noise)
            step += 1
        block = _Block(problem, met)
        for recorder in recorders:
            try:
                recorder.play(block)
            except Exception as error:
                error.add_note(
                    f"policy {recorder.name!r}, rounds {met[0].step} to {met[-1].step}"
                )
                raise
    return {recorder.name: recorder.trace(offer) for recorder in recorders}
