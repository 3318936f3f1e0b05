"""Published policies: their parts, and what they require of the model."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from superarm.core import Arms, Feedback, Offer, Selection, registry
from superarm.core.errors import ConflictError, InputError, SpecError
from superarm.kernels import Matern
from superarm.models import Model
from superarm.oracles import ShortestPath, TopK, Trip
from superarm.policies import gamma_for, kernel_ucb, posterior_for, random
from superarm.posteriors import (
    FiniteGP,
    IndependentGaussian,
    InducingGP,
    SparseVariational,
    StreamingGP,
)
from superarm.rules import UCB, KernelUCB, OclokUCB

ARMS = np.linspace(0.0, 1.0, 6)[:, None]


def model(**changes: Any) -> Model:
    defaults: dict[str, Any] = {
        "kernel": Matern(),
        "noise_variance": 0.1,
        "oracle": TopK(),
        "horizon": 50,
        "arms": ARMS,
        "norm_bound": 1.0,
        "noise_bound": 0.1,
        "gain": {"name": "constant", "value": 2.0},
    }
    return Model(**(defaults | changes))


@pytest.mark.parametrize("delta", [0.1, 0.02])
def test_kernel_ucb_explores_as_much_as_published(delta: float) -> None:
    """η = R √(2 ln(2TN/δ)) [valko2013finite]: a union bound over T rounds, N arms and two sides."""
    policy = kernel_ucb(model(), delta=delta)
    assert isinstance(policy.rule, UCB)
    assert isinstance(policy.rule.schedule, KernelUCB)
    eta = 0.1 * math.sqrt(2.0 * math.log(2.0 * 50 * 6 / delta))
    assert policy.rule.schedule.eta == pytest.approx(eta, rel=1e-14)
    assert policy.rule.schedule.width(3, lambda _: 0.0) == pytest.approx(
        eta / math.sqrt(0.1)
    )


def test_the_posterior_fits_the_model() -> None:
    assert isinstance(posterior_for(model()), FiniteGP)
    assert isinstance(posterior_for(model(arms=None)), StreamingGP)
    assert isinstance(posterior_for(model(), "streaming"), StreamingGP)
    assert isinstance(posterior_for(model(), "independent"), IndependentGaussian)
    for name, restart in (("variational", True), ("variational-kept", False)):
        sparse = posterior_for(model(), name)  # type: ignore[arg-type]
        assert isinstance(sparse, SparseVariational)
        assert sparse.restart is restart
    by_arm = posterior_for(model(mean=np.arange(6.0)))
    assert by_arm.predict(np.arange(6)).mean.tolist() == list(range(6))
    for wrong, name, words in (
        (model(arms=None), "finite", "needs fixed arms"),
        (model(mean=np.arange(6.0)), "streaming", "a prior mean per arm"),
        (model(), "best", "posterior is 'best'"),
    ):
        with pytest.raises(InputError, match=words):
            posterior_for(wrong, name)  # type: ignore[arg-type]


def test_gamma_defaults_to_the_beliefs_information_gain() -> None:
    assert gamma_for(model(), "realised") is None
    growth, greedy = gamma_for(model(), "growth"), gamma_for(model(), "greedy")
    assert growth is not None
    assert growth(7) == 2.0
    assert greedy is not None
    assert 0.0 < greedy(1) < greedy(5)
    for wrong, choice, words in (
        (model(gain=None), "growth", "names no growth rate"),
        (model(arms=None), "greedy", "needs fixed arms"),
        (model(), "guess", "gain is 'guess'"),
    ):
        with pytest.raises(InputError, match=words):
            gamma_for(wrong, choice)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "missing", "words"),
    [
        ("igp-ucb", {"norm_bound": None}, "needs norm_bound"),
        ("gp-ts", {"noise_bound": None}, "needs noise_bound"),
        ("gp-ucb", {"norm_bound": None}, "needs norm_bound"),
        ("oclok-ucb", {"arms": None}, "needs most_arms"),
        ("gp-bucb", {"arms": None}, "needs most_arms"),
        ("gp-ucb-bayesian", {"arms": None}, "needs most_arms"),
    ],
)
def test_missing_policy_requirements_are_named(
    name: str, missing: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        registry.build("policy", name, model=model(**missing))


def test_unknown_options_and_policies_are_refused() -> None:
    with pytest.raises(
        SpecError, match=r"has no parameter 'dleta'.*did you mean 'delta'"
    ):
        registry.build("policy", {"name": "igp-ucb", "dleta": 0.1}, model=model())
    with pytest.raises(SpecError, match="did you mean 'igp-ucb'"):
        registry.build("policy", "igp-ucp", model=model())


def test_the_benchmark_has_no_regret() -> None:
    spec = {"name": "crowdsourcing", "source": "synthetic", "k": 3, "workers": 20}
    problem = registry.build("problem", spec, seed=1, horizon=10)
    policy = registry.build("policy", "benchmark", model=problem.model, problem=problem)
    for step in range(1, 6):
        offer: Offer = problem.offer(step)
        decision = policy.decide(offer, np.random.default_rng(0))
        assert problem.value(offer, decision) == problem.best(offer).value


class Worthwhile:
    """A user's oracle that selects every arm with positive worth: signs matter."""

    deterministic = True

    def select(
        self, desirability: Any, structure: Any, rng: Any, rescore: Any = None
    ) -> Selection:
        positions = np.flatnonzero(desirability > 0.3)
        return Selection(action=positions, positions=positions)


def test_random_policy_is_fair_for_sign_sensitive_oracles() -> None:
    from scipy.sparse import csr_array

    both_ways = csr_array([[0, 1, 1, 0], [0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 0]])
    arms = Arms.numbered(np.zeros((4, 1)))
    cases: list[tuple[Any, Any]] = [
        (TopK(k=2), None),
        (ShortestPath(successors=both_ways), Trip(start=0, goal=3)),
        (Worthwhile(), None),
    ]
    for oracle, structure in cases:
        chance, rng = random(model(oracle=oracle)), np.random.default_rng(0)
        offers = [
            Offer(step=step, arms=arms, structure=structure) for step in range(1, 200)
        ]
        chosen = [chance.decide(offer, rng).positions for offer in offers]
        often = np.bincount(np.concatenate(chosen), minlength=4) / len(offers)
        free = [1, 2] if structure else [0, 1, 2, 3]
        # Each of the free arms is as likely as another: half, or 0.7 for the last oracle.
        share = 0.7 if isinstance(oracle, Worthwhile) else 0.5
        assert np.abs(often[free] - share).max() < 6 * np.sqrt(0.25 / len(offers))


def test_inducing_points_and_steps_reach_the_policy() -> None:
    """Six arms: M is 6. The prior mean goes with it."""
    shifted = model(mean=0.25)
    sparse = registry.build(
        "policy", {"name": "soclok-ucb", "inducing": 7, "delta": 0.2}, model=shifted
    )
    assert isinstance(sparse.posterior, InducingGP)
    assert (sparse.posterior.inducing, sparse.posterior.mean) == (7, 0.25)
    assert sparse.posterior.noise_variance == 0.1
    assert sparse.rule == UCB(schedule=OclokUCB(most_arms=6, delta=0.2))
    for stepwise in (False, True):
        exact = registry.build(
            "policy", {"name": "oclok-ucb", "stepwise": stepwise}, model=shifted
        )
        assert exact.stepwise is stepwise
        assert exact.rule == UCB(schedule=OclokUCB(most_arms=6, delta=0.05))
    with pytest.raises(InputError, match="a prior mean per arm"):
        posterior_for(model(mean=np.arange(6.0)), "inducing")


def test_redrawn_points_learn_in_the_order_of_decisions() -> None:
    policy = registry.build("policy", {"name": "soclok-ucb"}, model=model())
    offers = [Offer(step=step, arms=Arms.numbered(ARMS)) for step in (1, 2)]
    rng = np.random.default_rng(0)
    first, second = (policy.decide(offer, rng) for offer in offers)
    for decision in (first, second):
        policy.commit(decision)
    policy.learn(
        offers[1], second, Feedback(positions=second.positions, rewards=np.ones(1)), rng
    )
    with pytest.raises(
        ConflictError, match="InducingGP learns in the order of decisions"
    ):
        policy.learn(
            offers[0],
            first,
            Feedback(positions=first.positions, rewards=np.ones(1)),
            rng,
        )
