"""Rounds played at once are the rounds played one by one, bit for bit.

By construction: no compiled sum is fused or reordered, and BLAS meets the same shapes at the same
alignment.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from superarm.core import Arms, Belief, Feedback, Floats, Offer
from superarm.core.capabilities import TablePlayer, TableProblem
from superarm.core.errors import ConflictError, InputError, NotFiniteError, ShapeError
from superarm.kernels import Matern, SquaredExponential
from superarm.lab.experiments import load_experiment
from superarm.lab.simulation import runner, simulate
from superarm.oracles import TopK
from superarm.policies import IndexPolicy
from superarm.posteriors import FiniteGP

compiled = pytest.mark.skipif(
    find_spec("numba") is None, reason="numba is not installed"
)
KERNELS = [SquaredExponential(lengthscale=0.2), Matern(nu=2.5, lengthscale=0.2)]
ROUNDS, ARMS = 900, 40  # enough for several folds and for more arms than may be pending


def table(seed: int = 0, noise: float = 0.03) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    arms = rng.random((ARMS, 1))
    truth = np.sin(7.0 * arms[:, 0])
    return arms, truth + np.sqrt(noise) * rng.standard_normal((ROUNDS, ARMS))


@compiled
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)
@pytest.mark.parametrize("width", [0.5, 2.0, 30.0])
def test_optimism_by_table_is_optimism_round_by_round(
    kernel: Any, width: float
) -> None:
    arms, rewards = table()
    at_once, one_by_one = (FiniteGP(kernel, arms, 0.03) for _ in range(2))
    played = at_once.play_table(rewards, np.full(ROUNDS, width))
    expected = []
    offered = Arms.numbered(arms)
    for row in rewards:
        belief = one_by_one.belief(Offer(step=1, arms=offered))
        arm = int((belief.std * width + belief.mean).argmax())
        one_by_one.observe([arm], [row[arm]])
        expected.append(arm)
    assert played.tolist() == expected
    assert at_once.count == one_by_one.count == ROUNDS
    everything = np.arange(ARMS)
    for ours, theirs in zip(
        at_once.predict(everything), one_by_one.predict(everything), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    assert at_once.information_gain == pytest.approx(
        one_by_one.information_gain, rel=1e-12
    )
    assert at_once.incumbent == one_by_one.incumbent


@compiled
def test_thompson_by_table_draws_what_belief_draws() -> None:
    arms, rewards = table(1)
    at_once, one_by_one = (FiniteGP(KERNELS[1], arms, 0.03) for _ in range(2))
    normals = np.random.default_rng(5).standard_normal(
        (ROUNDS, at_once.normals_per_draw)
    )
    played = at_once.play_table(rewards, np.full(ROUNDS, 1.7), normals)
    rng = np.random.default_rng(5)
    offered = Arms.numbered(arms)
    expected = []
    for row in rewards:
        belief = one_by_one.belief(Offer(step=1, arms=offered))
        arm = int(((belief.sample(rng) - belief.mean) * 1.7 + belief.mean).argmax())
        one_by_one.observe([arm], [row[arm]])
        expected.append(arm)
    assert played.tolist() == expected


@compiled
def test_draws_do_not_depend_on_memory_layout() -> None:
    """Some BLAS round by the alignment of a vector; rows of a table start anywhere."""
    arms, rewards = table(1)
    one, other = (FiniteGP(KERNELS[1], arms, 0.03) for _ in range(2))
    size = one.normals_per_draw
    room = np.empty(ROUNDS * size + 1)
    normals = np.random.default_rng(5).standard_normal((ROUNDS, size))
    room[1:] = normals.ravel()
    widths = np.full(ROUNDS, 1.7)
    played = one.play_table(rewards, widths, normals)
    np.testing.assert_array_equal(
        other.play_table(rewards, widths, room[1:].reshape(ROUNDS, size)), played
    )
    everything = np.arange(ARMS)
    np.testing.assert_array_equal(
        other.predict(everything).mean, one.predict(everything).mean
    )


@compiled
def test_table_results_do_not_depend_on_blocks() -> None:
    arms, rewards = table(2)
    at_once, parts = (FiniteGP(KERNELS[0], arms, 0.03) for _ in range(2))
    expected = at_once.play_table(rewards, np.full(ROUNDS, 2.0))
    pieces = [
        parts.play_table(piece, np.full(len(piece), 2.0))
        for piece in np.split(rewards, [1, 2, 40, 513, 700])
    ]
    np.testing.assert_array_equal(np.concatenate(pieces), expected)


@compiled
def test_only_the_played_entries_are_read() -> None:
    arms, rewards = table(3)
    honest = FiniteGP(KERNELS[0], arms, 0.03)
    played = honest.play_table(rewards, np.full(ROUNDS, 2.0))
    poisoned = np.full_like(rewards, 1e6)
    poisoned[np.arange(ROUNDS), played] = rewards[np.arange(ROUNDS), played]
    replayed = FiniteGP(KERNELS[0], arms, 0.03).play_table(
        poisoned, np.full(ROUNDS, 2.0)
    )
    np.testing.assert_array_equal(replayed, played)


@compiled
def test_tables_do_not_depend_on_memory_layout() -> None:
    arms, rewards = table(5)
    expected = FiniteGP(KERNELS[0], arms, 0.03).play_table(
        rewards, np.full(ROUNDS, 2.0)
    )
    awkward = np.asfortranarray(rewards), np.full(2 * ROUNDS, 2.0)[::2]
    np.testing.assert_array_equal(
        FiniteGP(KERNELS[0], arms, 0.03).play_table(*awkward), expected
    )


def test_posterior_without_table_play_raises() -> None:
    arms, rewards = table()
    little = FiniteGP(KERNELS[1], arms, 1e-8)
    visited = FiniteGP(KERNELS[1], arms, 0.03, form="visited")
    for gp in (little, visited, FiniteGP(KERNELS[1], arms, 0.03, backend="numpy")):
        assert not gp.compiled
        with pytest.raises(InputError, match="round by round"):
            gp.play_table(rewards, np.full(ROUNDS, 2.0))
        assert gp.count == 0


def test_invalid_tables_are_rejected_without_side_effects() -> None:
    arms, rewards = table()
    gp = FiniteGP(KERNELS[0], arms, 0.03)
    with pytest.raises(ShapeError, match="40 are expected"):
        gp.play_table(rewards[:, :-1], np.ones(ROUNDS))
    with pytest.raises(ShapeError, match="widths"):
        gp.play_table(rewards, np.ones(3))
    rewards[3, 3] = np.nan
    with pytest.raises(NotFiniteError, match=r"rewards\[3, 3\]"):
        gp.play_table(rewards, np.ones(ROUNDS))
    assert gp.count == 0


class Failing:
    """A rule that has no answer in round 5."""

    deterministic = True

    def desirability(
        self, belief: Belief, step: int, rng: np.random.Generator
    ) -> Floats:
        if step == 5:
            raise RuntimeError("no answer")
        return belief.mean + belief.std


def test_rounds_before_an_error_count_as_learned() -> None:
    arms, rewards = table()
    policy = IndexPolicy(
        posterior=FiniteGP(KERNELS[0], arms, 0.03), rule=Failing(), oracle=TopK(k=1)
    )
    offer = Offer(step=1, arms=Arms.numbered(arms))
    with pytest.raises(RuntimeError, match="no answer"):
        policy.play_table(offer, rewards, np.random.default_rng)
    assert (policy.posterior.count, policy.version) == (4, 4)
    decision = policy.decide(offer, np.random.default_rng(0))
    feedback = Feedback(positions=decision.positions, rewards=[0.0])
    with pytest.raises(ConflictError, match="step 1 was learned already"):
        policy.learn(offer, decision, feedback, np.random.default_rng(0))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "policy",
    [
        "igp-ucb",
        "gp-ucb",
        "gp-ts",
        "gp-ei",
        "gp-pi",
        "kernel-ucb",
        "gp-greedy",
        "random",
    ],
)
@pytest.mark.parametrize("options", [{}, {"gain": "realised"}], ids=str)
def test_a_simulation_at_once_is_one_round_by_round(
    policy: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = load_experiment("kernelized/rkhs-matern").with_policies([policy])
    if options and policy in ("igp-ucb", "gp-ts"):
        experiment = experiment.with_setting(options)
    world = experiment.build_problem(seed=3, horizon=700)
    assert isinstance(world, TableProblem)

    def played() -> Any:
        built = experiment.build_policy(policy, world)
        assert isinstance(built, TablePlayer)
        result = simulate(world, {policy: built}, rounds=700, seed=3)[policy]
        version = built.version if isinstance(built, IndexPolicy) else 0
        return result.series["regret"].tolist(), result.choices.tolist(), version

    at_once = played()
    monkeypatch.setattr(runner._Recorder, "_play_at_once", lambda *_: False)
    assert played() == at_once
