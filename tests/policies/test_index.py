"""IndexPolicy and ScorePolicy: signs, masks, pending arms and O'CLOK-UCB by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from superarm.core import Arms, Decision, Direction, Feedback, Offer
from superarm.core.errors import (
    InfeasibleError,
    InputError,
    NotFiniteError,
    UnknownArmError,
)
from superarm.kernels import Matern, SquaredExponential
from superarm.lab.problems import FiniteProblem, landscape
from superarm.models import Model
from superarm.oracles import TopK
from superarm.policies import (
    IndexPolicy,
    KnownCosts,
    ScorePolicy,
    Uniform,
    oclok_ucb,
    random,
)
from superarm.policies.scores import Truth
from superarm.posteriors import (
    FiniteGP,
    IndependentGaussian,
    SparseVariational,
    StreamingGP,
)
from superarm.rules import (
    UCB,
    ExpectedImprovement,
    Fixed,
    Greedy,
    ProbabilityOfImprovement,
    Thompson,
)

KERNEL = SquaredExponential(lengthscale=0.3)
FEATURES = np.random.default_rng(0).random((12, 2))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def posterior(kind: str) -> Any:
    if kind == "streaming":
        return StreamingGP(KERNEL, 0.05)
    if kind == "finite":
        return FiniteGP(KERNEL, FEATURES, 0.05)
    return IndependentGaussian(np.ones(len(FEATURES)), 0.05)


def play(policy: IndexPolicy, sign: float, rounds: int) -> list[list[int]]:
    """Positions chosen when the rewards are ``sign`` × the same numbers."""
    arms, chosen = Arms.numbered(FEATURES), []
    truth = np.sin(5.0 * FEATURES[:, 0]) - FEATURES[:, 1]
    for step in range(1, rounds + 1):
        offer = Offer(step=step, arms=arms)
        decision = policy.decide(offer, rng(step))
        noise = 0.1 * rng(1000 + step).standard_normal(len(arms))
        rewards = sign * (truth + noise)[decision.positions]
        policy.commit(decision)
        policy.learn(
            offer,
            decision,
            Feedback(positions=decision.positions, rewards=rewards),
            rng(),
        )
        chosen.append(decision.positions.tolist())
    return chosen


# --- direction -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["streaming", "finite", "independent"])
@pytest.mark.parametrize("stepwise", [False, True])
@pytest.mark.parametrize(
    "rule",
    [
        UCB(schedule=Fixed(value=2.0)),
        Greedy(),
        ExpectedImprovement(),
        ProbabilityOfImprovement(scale="linear"),
        Thompson(mode="independent"),
    ],
    ids=lambda rule: type(rule).__name__,
)
def test_minimising_costs_is_maximising_minus_costs(
    kind: str, stepwise: bool, rule: Any
) -> None:
    def make(direction: Direction) -> IndexPolicy:
        return IndexPolicy(
            posterior=posterior(kind),
            rule=rule,
            oracle=TopK(k=2),
            direction=direction,
            stepwise=stepwise,
        )

    assert play(make("minimize"), -1.0, 25) == play(make("maximize"), 1.0, 25)


def test_decision_means_keep_the_users_sign() -> None:
    policy = IndexPolicy(
        posterior=StreamingGP(KERNEL, 0.05),
        rule=Greedy(),
        oracle=TopK(),
        direction="minimize",
    )
    offer = Offer(step=1, arms=Arms(ids=["a", "b"], features=[[0.0], [5.0]]))
    policy.posterior.observe([[0.0], [5.0]], [-3.0, 2.0])
    decision = policy.decide(offer, rng())
    assert decision.positions.tolist() == [0]
    assert decision.mean is not None
    assert decision.desirability is not None
    assert decision.mean[0] < 0.0 < decision.desirability[0]


def test_a_direction_is_one_of_two() -> None:
    with pytest.raises(InputError, match="direction is 'up'"):
        IndexPolicy(
            posterior=posterior("finite"),
            rule=Greedy(),
            oracle=TopK(),
            direction="up",  # type: ignore[arg-type]
        )


# --- what may be chosen --------------------------------------------------------------------


@pytest.mark.parametrize("stepwise", [False, True])
def test_only_available_arms_are_chosen(stepwise: bool) -> None:
    policy = IndexPolicy(
        posterior=posterior("finite"),
        rule=UCB(schedule=Fixed(value=1.0)),
        oracle=TopK(k=3),
        stepwise=stepwise,
    )
    arms = Arms.numbered(FEATURES)
    for step in range(1, 30):
        available = rng(step).random(len(arms)) < 0.4
        offer = Offer(step=step, arms=arms, available=available)
        if available.sum() < 3:
            with pytest.raises(InfeasibleError, match=f"only {available.sum()} of 12"):
                policy.decide(offer, rng())
            continue
        decision = policy.decide(offer, rng())
        assert available[decision.positions].all()
        feedback = Feedback(positions=decision.positions, rewards=rng(step).random(3))
        policy.commit(decision)
        policy.learn(offer, decision, feedback, rng())


def test_more_arms_than_on_offer_cannot_be_chosen() -> None:
    policy = IndexPolicy(
        posterior=StreamingGP(KERNEL, 0.05), rule=Greedy(), oracle=TopK(k=3)
    )
    with pytest.raises(InfeasibleError, match="only 2 of 2"):
        policy.decide(Offer(step=1, arms=Arms.numbered([[0.0], [1.0]])), rng())


@pytest.mark.parametrize("observed", [0, 3])
def test_an_empty_offer_is_refused(observed: int) -> None:
    empty = Offer(step=1, arms=Arms(ids=[], features=np.empty((0, 2))))
    rules: list[Any] = [
        Greedy(),
        UCB(schedule=Fixed(value=1.0)),
        Thompson(),
        ExpectedImprovement(),
    ]
    for rule in rules:
        for kind in ("streaming", "finite"):
            policy = IndexPolicy(posterior=posterior(kind), rule=rule, oracle=TopK())
            keys = policy.posterior.keys(Offer(step=1, arms=Arms.numbered(FEATURES)))[
                :observed
            ]
            policy.posterior.observe(keys, np.zeros(observed))
            with pytest.raises(InputError, match="no arms"):
                policy.decide(empty, rng())


def test_arms_unknown_to_the_posterior_are_rejected() -> None:
    policy = IndexPolicy(posterior=posterior("finite"), rule=Greedy(), oracle=TopK())
    with pytest.raises(UnknownArmError):
        policy.decide(Offer(step=1, arms=Arms.numbered(FEATURES + 1.0)), rng())
    offer = Offer(step=1, arms=Arms.numbered(FEATURES))
    decision = policy.decide(offer, rng())
    for positions in ([12], [-1], [0, 40]):
        feedback = Feedback(
            positions=np.array(positions), rewards=np.zeros(len(positions))
        )
        with pytest.raises(
            UnknownArmError, match="which was not chosen in step 1: positions"
        ):
            policy.learn(offer, decision, feedback, rng())
    assert policy.version == 0


# --- pending arms --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["streaming", "finite"])
def test_pending_arms_are_not_chosen_twice_over(kind: str) -> None:
    """Arms 0 and 1 are near-identical and best; with arm 0 pending, arm 2 has more to teach."""
    features = np.array([[0.0], [1e-3], [2.0], [0.5]])
    choices = {}
    for stepwise in (False, True):
        model: Any = (
            StreamingGP(KERNEL, 0.01)
            if kind == "streaming"
            else FiniteGP(KERNEL, features, 0.01)
        )
        policy = IndexPolicy(
            posterior=model,
            rule=UCB(schedule=Fixed(value=3.0)),
            oracle=TopK(k=2),
            stepwise=stepwise,
        )
        arms = Arms.numbered(features)
        # Weak evidence for the left side: arms 0 and 1 stay uncertain.
        model.observe(model.keys(Offer(step=1, arms=arms))[[3]], [0.4], [0.5])
        choices[stepwise] = set(
            policy.decide(Offer(step=1, arms=arms), rng()).positions.tolist()
        )
    assert choices[False] == {0, 1}
    assert 2 in choices[True]
    assert len(choices[True] & {0, 1}) == 1


# --- the published index, by hand ----------------------------------------------------------


def test_oclok_ucb_is_its_formula() -> None:
    """μ + √(2 ln(M π² t² / (3δ))) σ, with μ and σ worked out from two observations."""
    kernel, noise, delta, most = Matern(nu=1.5, lengthscale=0.5), 0.04, 0.05, 7
    model = Model(
        kernel=kernel,
        noise_variance=noise,
        oracle=TopK(k=2),
        horizon=100,
        most_arms=most,
    )
    policy = oclok_ucb(model, delta=delta)
    X, y = np.array([[0.1], [0.6]]), np.array([0.5, -0.2])
    policy.posterior.observe(X, y)
    queries = np.array([[0.0], [0.3], [0.6], [2.0]])

    def k(a: float, b: float) -> float:
        z = math.sqrt(3.0) * abs(a - b) / 0.5
        return (1.0 + z) * math.exp(-z)

    a, b = 1.0 + noise, k(0.1, 0.6)
    determinant = a * a - b * b
    inverse = np.array([[a, -b], [-b, a]]) / determinant
    step, expected = 3, []
    width = math.sqrt(2.0 * math.log(most * math.pi**2 * step**2 / (3.0 * delta)))
    for (x,) in queries:
        cross = np.array([k(x, 0.1), k(x, 0.6)])
        mean, variance = cross @ inverse @ y, 1.0 - cross @ inverse @ cross
        expected.append(mean + width * math.sqrt(variance))
    decision = policy.decide(Offer(step=step, arms=Arms.numbered(queries)), rng())
    order = np.argsort(-np.array(expected))[:2]
    assert decision.positions.tolist() == order.tolist()
    np.testing.assert_allclose(
        decision.desirability, np.array(expected)[order], rtol=1e-10
    )
    assert policy.deterministic


# --- scores that need no learning ----------------------------------------------------------


def test_score_policies_mask_and_check_too() -> None:
    policy = ScorePolicy(score=KnownCosts(costs=-np.arange(12.0)), oracle=TopK())
    arms = Arms.numbered(FEATURES)
    assert policy.decide(Offer(step=1, arms=arms), rng()).positions.tolist() == [11]
    available = np.arange(12) < 5
    masked = policy.decide(Offer(step=1, arms=arms, available=available), rng())
    assert masked.positions.tolist() == [4]
    with pytest.raises(NotFiniteError):
        KnownCosts(costs=np.full(12, np.nan))
    unseen = Feedback(positions=np.array([3]), rewards=np.zeros(1))
    with pytest.raises(UnknownArmError, match="was not chosen"):
        policy.learn(
            Offer(step=1, arms=arms, available=available), masked, unseen, rng()
        )


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_benchmark_follows_the_problems_direction(direction: Any) -> None:
    problem = landscape(seed=1, horizon=5, side=4)
    model = replace(problem.model, direction=direction)
    world = FiniteProblem(
        arms=problem.arms, truth=problem.truth, noise_std=problem.noise_std, model=model
    )
    offer = world.offer(1)
    chosen = ScorePolicy(score=Truth(problem=world), oracle=model.oracle).decide(
        offer, rng()
    )
    assert world.value(offer, chosen) == world.best(offer).value


class Coin(TopK):
    """An oracle that declares itself random."""

    deterministic = False


class Elsewhere:
    """An oracle with an unknown number of super arms."""

    deterministic = True

    def select(
        self, desirability: Any, structure: Any, rng: Any, rescore: Any = None
    ) -> Any:
        return TopK(k=2).select(desirability, structure, rng)


def test_propensities_are_reported_where_known() -> None:
    arms = Arms.numbered(FEATURES)
    offer = Offer(step=1, arms=arms)
    some = Offer(step=1, arms=arms, available=np.arange(12) < 5)
    costs, chance = KnownCosts(costs=np.arange(12.0)), Uniform()

    def propensity(policy: Any, offer: Offer) -> float | None:
        return policy.decide(offer, rng()).propensity

    assert propensity(
        ScorePolicy(score=chance, oracle=TopK(k=2)), offer
    ) == 1.0 / math.comb(12, 2)
    assert propensity(
        ScorePolicy(score=chance, oracle=TopK(k=2)), some
    ) == 1.0 / math.comb(5, 2)
    assert propensity(ScorePolicy(score=chance, oracle=Elsewhere()), offer) is None
    assert propensity(ScorePolicy(score=costs, oracle=TopK(k=2)), offer) == 1.0
    assert propensity(ScorePolicy(score=costs, oracle=Coin(k=2)), offer) is None
    for rule, oracle, expected in (
        (Greedy(), TopK(k=2), 1.0),
        (Greedy(), Coin(k=2), None),
        (Thompson(), TopK(k=2), None),
    ):
        policy = IndexPolicy(posterior=posterior("finite"), rule=rule, oracle=oracle)
        assert propensity(policy, offer) == expected


def test_a_score_is_played_by_table_only_one_arm_at_a_time() -> None:
    offer, table = Offer(step=1, arms=Arms.numbered(FEATURES)), np.zeros((3, 12))
    costs = KnownCosts(costs=-np.arange(12.0))
    one = ScorePolicy(score=costs, oracle=TopK()).play_table(offer, table, rng)
    assert one is not None
    assert one.tolist() == [11, 11, 11]
    assert (
        ScorePolicy(score=costs, oracle=TopK(k=2)).play_table(offer, table, rng) is None
    )


def test_random_policy_is_uniform_over_super_arms() -> None:
    """Six pairs of four arms, 1200 rounds: each within 6 standard errors of 200."""
    model = Model(kernel=KERNEL, noise_variance=0.1, oracle=TopK(k=2), horizon=10)
    policy, generator = random(model), rng(1)
    offer = Offer(step=1, arms=Arms.numbered(np.arange(4.0)[:, None]))
    counts: dict[tuple[int, ...], int] = {}
    for _ in range(1200):
        pair = tuple(sorted(policy.decide(offer, generator).positions.tolist()))
        counts[pair] = counts.get(pair, 0) + 1
    assert len(counts) == 6
    error = math.sqrt(1200 * (1 / 6) * (5 / 6))
    assert max(abs(count - 200) for count in counts.values()) < 6.0 * error
    assert not policy.deterministic


def test_decisions_that_name_no_arm_of_the_offer_are_refused() -> None:
    policy = IndexPolicy(posterior=posterior("streaming"), rule=Greedy(), oracle=TopK())
    offer = Offer(step=1, arms=Arms.numbered(FEATURES))
    for position in (-1, 12):
        decision = Decision(step=1, action=None, positions=np.array([position]))
        feedback = Feedback(positions=decision.positions, rewards=np.zeros(1))
        with pytest.raises(UnknownArmError, match="the offer has arms 0 to 11"):
            policy.learn(offer, decision, feedback, rng())
    assert policy.posterior.count == 0


def test_lost_feedback_does_not_stay_pending_forever() -> None:
    policy = IndexPolicy(
        posterior=posterior("streaming"),
        rule=Greedy(),
        oracle=TopK(k=2),
        most_pending=5,
    )
    for step in range(1, 41):
        policy.commit(
            policy.decide(Offer(step=step, arms=Arms.numbered(FEATURES)), rng())
        )
    awaited = policy.state().part("ledger").parts
    assert sorted(map(int, awaited)) == [36, 37, 38, 39, 40]


def test_index_policy_uses_the_noise_of_each_reward() -> None:
    policy = IndexPolicy(
        posterior=posterior("streaming"), rule=Greedy(), oracle=TopK(k=2)
    )
    offer = Offer(step=1, arms=Arms.numbered(FEATURES))
    decision = policy.decide(offer, rng())
    policy.commit(decision)
    policy.learn(
        offer,
        decision,
        Feedback(
            positions=decision.positions,
            rewards=np.array([1.0, -1.0]),
            noise_variance=np.array([0.01, 4.0]),
        ),
        rng(),
    )
    expected = posterior("streaming")
    expected.observe(FEATURES[decision.positions], [1.0, -1.0], [0.01, 4.0])
    for ours, theirs in zip(
        policy.beliefs(offer), expected.predict(FEATURES), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_policy_over_a_sampling_posterior_is_not_deterministic() -> None:
    variational = SparseVariational(KERNEL, 0.05)
    for model, certain in ((variational, False), (posterior("finite"), True)):
        policy = IndexPolicy(posterior=model, rule=Greedy(), oracle=TopK())
        assert policy.deterministic == certain
        assert policy.exchangeable == certain


def test_version_counts_learned_feedback() -> None:
    policy = IndexPolicy(
        posterior=posterior("streaming"), rule=Greedy(), oracle=TopK(k=2)
    )
    offer = Offer(step=1, arms=Arms.numbered(FEATURES))
    first: Decision = policy.decide(offer, rng())
    feedback = Feedback(positions=first.positions[:1], rewards=np.array([0.5]))
    policy.commit(first)
    policy.learn(offer, first, feedback, rng())
    assert (first.version, policy.decide(offer, rng()).version) == (0, 1)
    assert policy.posterior.count == 1
