"""A contract that cannot fail proves nothing: each catches faulty parts."""

from __future__ import annotations

import itertools
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from superarm.core import (
    Arms,
    Belief,
    Best,
    Covariance,
    Decision,
    Floats,
    Ints,
    Offer,
    Oracle,
    Policy,
    Posterior,
    Selection,
    State,
    registry,
)
from superarm.kernels import Matern, SquaredExponential
from superarm.oracles import Knapsack, TopK, Weights
from superarm.policies import IndexPolicy
from superarm.posteriors import StreamingGP
from superarm.rules import UCB, Fixed
from superarm.testing import (
    BeliefContract,
    KernelContract,
    OracleContract,
    PolicyContract,
    PosteriorContract,
    ProblemContract,
    RuleContract,
    ScheduleContract,
)

FEATURES = np.random.default_rng(0).random((8, 2))
SMOOTH, ROUGH = (
    SquaredExponential(lengthscale=0.6, variance=1.7),
    Matern(nu=1.5, lengthscale=0.5),
)


class Wrong(Matern):
    """Not symmetric, and its diagonal is another's."""

    def _covariance(self, X: Floats, Y: Floats | None) -> Floats:
        return np.tril(super()._covariance(X, Y))

    def _diagonal(self, X: Floats) -> Floats:
        return 2.0 * super()._diagonal(X)


class WrongKernel(KernelContract):
    def make_kernel(self) -> Covariance:
        return Wrong()


class Forgetful(StreamingGP):
    """Looking changes it, it lets NaN in, and its draws are too wide."""

    def predict(self, *arguments: Any, **options: Any) -> Any:
        self.information_gain += 1.0
        return super().predict(*arguments, **options)

    def observe(
        self, arms: Any, rewards: Any, noise_variance: Any = None, rng: Any = None
    ) -> None:
        super().observe(
            arms,
            np.nan_to_num(np.asarray(rewards, dtype=np.float64)),
            noise_variance,
            rng,
        )

    def _draw(self, keys: Any, rng: np.random.Generator, size: int) -> Floats:
        return 1.5 * super()._draw(keys, rng, size)


class WrongPosterior(PosteriorContract):
    def make_posterior(self) -> Posterior:
        return Forgetful(SMOOTH, 0.05)

    def make_arms(self) -> Arms:
        return Arms.numbered(FEATURES)

    def restore(self, state: State) -> Posterior:
        return StreamingGP.from_state(state)


class WrongBelief(BeliefContract):
    def make_belief(self) -> Belief:
        return Forgetful(SMOOTH, 0.05).belief(
            Offer(step=1, arms=Arms.numbered(FEATURES))
        )


class Hopeful:
    """A rule that claims to be deterministic but draws, and a schedule that goes negative."""

    deterministic = True

    def desirability(
        self, belief: Belief, step: int, rng: np.random.Generator
    ) -> Floats:
        return belief.mean + rng.random(len(belief.mean))

    def width(self, step: int, gamma: Any) -> float:
        return 3.0 - np.log(step)


class WrongRule(RuleContract):
    def make_rule(self) -> Any:
        return Hopeful()


class WrongSchedule(ScheduleContract):
    def make_schedule(self) -> Any:
        return Hopeful()


class Careless(TopK):
    """Chooses unavailable arms, and the worst."""

    def select(
        self, desirability: Floats, structure: object, rng: Any, rescore: Any = None
    ) -> Any:
        return super().select(-np.maximum(desirability, -9.0), structure, rng)


class WrongOracle(OracleContract):
    def make_oracle(self) -> Oracle:
        return Careless(k=2)

    def feasible(self, n: int, structure: object) -> Iterable[Iterable[int]]:
        return itertools.combinations(range(n), 2)


WEIGHTS = Weights(of_arm=np.array([3.0, 1.0, 4.0, 1.0, 5.0, 2.0, 6.0]), budget=9.0)


@dataclass(frozen=True, kw_only=True)
class RarelyWrong(Knapsack):
    """Forgets an arm on a share of inputs, picked by their hash; optimal on all others."""

    share: float
    salt: int

    def select(
        self, desirability: Floats, structure: object, rng: Any, rescore: Any = None
    ) -> Selection:
        best = super().select(desirability, structure, rng, rescore)
        digest = zlib.crc32(desirability.tobytes(), self.salt)
        if digest >= self.share * 2**32:
            return best
        positions = best.positions[:-1]
        return Selection(action=positions, positions=positions)


class RarelyWrongOracle(OracleContract):
    share = 0.0
    salt = 0

    def make_oracle(self) -> Oracle:
        return RarelyWrong(share=self.share, salt=self.salt)

    def structure(self, n: int) -> object:
        return WEIGHTS

    def feasible(self, n: int, structure: object) -> Iterable[Iterable[int]]:
        for size in range(n + 1):
            for arms in itertools.combinations(range(n), size):
                if WEIGHTS.of_arm[list(arms)].sum() <= WEIGHTS.budget:
                    yield arms


class Restless(IndexPolicy):
    """Learns while it decides, and ignores availability."""

    def decide(self, offer: Offer, rng: np.random.Generator) -> Any:
        self.posterior.observe(offer.arms.features[:1], [1.0])
        return super().decide(replace(offer, available=None), rng)


class WrongPolicy(PolicyContract):
    def make_policy(self) -> Policy:
        return Restless(
            posterior=StreamingGP(ROUGH, 0.1),
            rule=UCB(schedule=Fixed(value=2.0)),
            oracle=Careless(k=2),
        )

    def make_offer(self, step: int) -> Offer:
        return Offer(step=step, arms=Arms.numbered(FEATURES))


class Moody:
    """A problem whose offers depend on the number of calls, and whose best is beaten."""

    def __init__(self) -> None:
        self.asked = 0
        self.inner = registry.build(
            "problem", {"name": "rkhs-function", "arms": 30}, seed=3, horizon=2000
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def offer(self, step: int) -> Offer:
        self.asked += 1
        return Offer(step=step, arms=self.inner.arms, time=float(self.asked))

    def best(self, offer: Offer) -> Best:
        return Best(-9.0)


class WrongProblem(ProblemContract):
    def make_problem(self, seed: int) -> Any:
        return Moody()

    def choose(self, problem: Any, offer: Offer, rng: np.random.Generator) -> Any:
        chosen = rng.integers(0, len(offer.arms), 1)
        return Decision(step=offer.step, action=chosen, positions=chosen)


@pytest.mark.parametrize(
    ("suite", "test"),
    [
        (WrongKernel, "symmetric_and_positive_semi_definite"),
        (WrongKernel, "diag_is_the_diagonal"),
        (WrongKernel, "a_pair_is_a_block_of_the_whole"),
        (WrongPosterior, "looking_changes_nothing"),
        (WrongPosterior, "bad_input_is_refused_and_changes_nothing"),
        (WrongPosterior, "draws_have_the_stated_moments"),
        (WrongBelief, "draws_have_the_stated_moments"),
        (WrongRule, "the_deterministic_flag_is_true"),
        (WrongSchedule, "widths_are_finite_and_not_negative"),
        (WrongOracle, "it_keeps_its_guarantee"),
        (WrongOracle, "arms_at_minus_infinity_are_never_chosen"),
        (WrongPolicy, "deciding_changes_nothing"),
        (WrongPolicy, "arms_that_are_not_available_are_left_alone"),
        (WrongProblem, "offers_depend_on_seed_and_step_alone"),
        (WrongProblem, "nothing_beats_the_best"),
    ],
)
def test_contracts_catch_faulty_parts(suite: Callable[[], Any], test: str) -> None:
    with pytest.raises(AssertionError):
        getattr(suite(), f"test_{test}")()


@pytest.mark.slow
@pytest.mark.parametrize("salt", range(10))
def test_an_oracle_that_is_wrong_on_two_percent_of_inputs_is_caught(salt: int) -> None:
    suite = RarelyWrongOracle()
    suite.salt = salt
    suite.test_it_keeps_its_guarantee()  # a share of 0: always right
    suite.share = 0.02
    with pytest.raises(AssertionError, match="is guaranteed"):
        suite.test_it_keeps_its_guarantee()


class WrongObjective(OracleContract):
    """The best pair by sum is not the best by difference."""

    def make_oracle(self) -> Oracle:
        return TopK(k=2)

    def feasible(self, n: int, structure: object) -> Iterable[Iterable[int]]:
        return itertools.combinations(range(n), 2)

    def objective(self, desirability: Floats, positions: Ints) -> float:
        return float(np.ptp(desirability[positions]))


class RightObjective(WrongObjective):
    """The best pair by sum is also the best by the mean of its arms."""

    def objective(self, desirability: Floats, positions: Ints) -> float:
        return float(desirability[positions].mean())


def test_oracles_are_compared_by_the_objective_of_their_contract() -> None:
    RightObjective().test_it_keeps_its_guarantee()
    with pytest.raises(AssertionError, match="is guaranteed"):
        WrongObjective().test_it_keeps_its_guarantee()


def test_the_contracts_need_no_pytest() -> None:
    code = "import sys; sys.modules['pytest'] = None; import superarm.testing"
    command = [sys.executable, "-c", code]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


# --- one broken promise at a time ----------------------------------------------------------


class Unavailable(TopK):
    """Chooses arms at −∞, though only where others would do."""

    def select(self, desirability: Floats, *arguments: Any, **options: Any) -> Any:
        super().select(desirability, *arguments, **options)
        barred = np.isneginf(desirability)
        return super().select(np.where(barred, 9.0, desirability), *arguments)


class NeverInfeasible(TopK):
    """Chooses something where nothing is feasible."""

    def select(self, desirability: Floats, *arguments: Any, **options: Any) -> Any:
        if np.isfinite(desirability).sum() < 2:
            desirability = np.maximum(desirability, -9.0)
        return super().select(desirability, *arguments, **options)


class Wasteful(TopK):
    """Draws a number and does not use it."""

    def select(
        self, desirability: Floats, structure: object, rng: Any, rescore: Any = None
    ) -> Any:
        rng.random()
        return super().select(desirability, structure, rng, rescore)


class Peeking(TopK):
    """Depends on its generator, but leaves it as it was."""

    def select(
        self, desirability: Floats, structure: object, rng: Any, rescore: Any = None
    ) -> Any:
        seed = rng.bit_generator.state["state"]["state"]
        noise = np.random.default_rng(seed).random(len(desirability))
        return super().select(desirability + noise, structure, rng, rescore)


class Infinite(TopK):
    """Takes +∞ for a large number."""

    def select(self, desirability: Floats, *arguments: Any, **options: Any) -> Any:
        return super().select(np.minimum(desirability, 9.0), *arguments, **options)


class Empty(TopK):
    """Chooses nothing where nothing is offered."""

    def select(self, desirability: Floats, *arguments: Any, **options: Any) -> Any:
        if len(desirability) == 0:
            nothing = np.empty(0, dtype=np.intp)
            return Selection(action=nothing, positions=nothing)
        return super().select(desirability, *arguments, **options)


@pytest.mark.parametrize(
    ("oracle", "test"),
    [
        (Unavailable, "arms_at_minus_infinity_are_never_chosen"),
        (NeverInfeasible, "arms_at_minus_infinity_are_never_chosen"),
        (Wasteful, "the_deterministic_flag_is_true"),
        (Peeking, "the_deterministic_flag_is_true"),
        (Infinite, "bad_desirabilities_are_refused"),
        (Empty, "bad_desirabilities_are_refused"),
    ],
)
def test_each_promise_of_oracles_is_checked(oracle: Any, test: str) -> None:
    class Suite(WrongOracle):
        def make_oracle(self) -> Oracle:
            made: Oracle = oracle(k=2)
            return made

    with pytest.raises(AssertionError):
        getattr(Suite(), f"test_{test}")()


def test_an_oracle_that_does_not_rescore_must_say_so() -> None:
    class Suite(WrongOracle):
        rescores = False

        def make_oracle(self) -> Oracle:
            return TopK(k=2)

    with pytest.raises(AssertionError):
        Suite().test_rescoring_keeps_to_feasible_sets()
