"""Crowdsourcing: contexts, outcomes and rewards as Simulation I states them."""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np
import pytest

from superarm.core import Decision, Feedback, data_files
from superarm.core.errors import InputError, MissingDataError
from superarm.core.streams import Streams
from superarm.lab.problems import Crowdsourcing
from superarm.lab.problems import crowdsourcing as module
from superarm.lab.problems.crowdsourcing import expected_outcome

ROUNDS = 400
CITY = [
    [0.8217141364727311, 0.3998012967815999],
    [0.6398064244658455, 0.5050688677017475],
]


def build(**parameters: Any) -> Crowdsourcing:
    defaults: dict[str, Any] = {"seed": 1, "horizon": 250, "source": "synthetic"}
    return Crowdsourcing(**(defaults | parameters))


def test_outcomes_by_hand() -> None:
    rng = np.random.default_rng(0)
    contexts = rng.random((20, 3))
    scale = np.sqrt(2.0 * np.pi * 0.4**2)
    for x, outcome in zip(contexts, expected_outcome(contexts), strict=True):
        density = np.exp(-0.5 * (x[0] / 0.4) ** 2) / (0.4 * np.sqrt(2.0 * np.pi))
        assert outcome == pytest.approx(scale * density * np.sqrt(x[1] * x[2]))
    np.testing.assert_allclose(
        expected_outcome(np.array([[0.0, 1.0, 1.0], [0.3, 0.0, 1.0]])), [1.0, 0.0]
    )


def test_contexts_and_counts() -> None:
    """Counts have mean 100, easiness and battery mean ½, each within 5 standard errors."""
    problem = build()
    offers = [problem.offer(step) for step in range(1, ROUNDS + 1)]
    counts = np.array([len(offer.arms) for offer in offers])
    assert abs(counts.mean() - 100.0) < 5.0 * 10.0 / np.sqrt(ROUNDS)
    assert abs(counts.var() / 100.0 - 1.0) < 5.0 * np.sqrt(2.0 / ROUNDS)
    easiness = []
    for offer in offers:
        contexts = offer.arms.features
        assert contexts.shape[1] == 3
        assert contexts.min() >= 0.0
        assert contexts.max() <= 1.0
        assert np.ptp(contexts[:, 1]) == 0.0  # one task per round
        easiness.append(contexts[0, 1])
    battery = np.concatenate([offer.arms.features[:, 2] for offer in offers])
    for draws in (np.array(easiness), battery):
        assert abs(draws.mean() - 0.5) < 5.0 * np.sqrt(1.0 / 12.0 / len(draws))


def test_distances_are_those_of_the_task_to_the_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All workers wait at one place; a task out of reach is redrawn."""
    place = np.array([[0.1, 0.3]])
    monkeypatch.setattr(
        module, "_synthetic_city", lambda: module._Places(place, "one place")
    )
    problem = build(workers=9, k=2)
    for step in range(1, 30):
        rng, count, square = Streams(1, "offer").at(step), 0, 1.0
        while not (square < 0.5 and 2 < count <= 24):
            square = float(((place[0] - rng.random(2)) ** 2).sum())
            count = int(rng.poisson(9))
            if square < 0.5:
                rng.integers(1, size=count)
        contexts = problem.offer(step).arms.features
        assert len(contexts) == count
        np.testing.assert_allclose(contexts[:, 0], np.sqrt(square / 0.5))


def test_the_synthetic_city_fills_the_unit_square() -> None:
    city = module._synthetic_city().positions
    assert city.shape == (8000, 2)
    assert city.min(axis=0).tolist() == [0.0, 0.0]
    assert city.max(axis=0).tolist() == [1.0, 1.0]
    np.testing.assert_allclose(city[:2], CITY, atol=1e-12)


def test_rewards_are_outcomes_plus_noise() -> None:
    problem = build()
    offer = problem.offer(1)
    noise = np.linspace(-1.0, 1.0, len(offer.arms))
    decision = Decision(step=1, action=None, positions=np.array([2, 5]))
    rewards = problem.feedback(offer, decision, noise).rewards
    np.testing.assert_allclose(rewards, problem.means(offer)[[2, 5]] + noise[[2, 5]])


def test_the_best_group_has_the_largest_outcomes() -> None:
    problem = build(k=3)
    for step in range(1, 20):
        offer = problem.offer(step)
        means = sorted(problem.means(offer).tolist(), reverse=True)
        assert problem.best(offer).value == pytest.approx(log(1.0 + sum(means[:3])))


def test_ids_are_never_reused() -> None:
    problem = build()
    ids = [arm for step in range(1, 100) for arm in problem.offer(step).arms.ids]
    assert len(set(ids)) == len(ids)


def test_the_other_way_of_counting() -> None:
    inside, city = build(), build(counting="in the city")
    fewer = np.mean([len(city.offer(step).arms) for step in range(1, ROUNDS + 1)])
    more = np.mean([len(inside.offer(step).arms) for step in range(1, ROUNDS + 1)])
    assert 5 < fewer < more - 5.0
    assert "in reach" in inside.interpretations["workers"]
    assert "whole city" in city.interpretations["workers"]


def test_there_are_always_more_than_k_workers() -> None:
    problem = build(workers=6, k=5)
    counts = [len(problem.offer(step).arms) for step in range(1, ROUNDS + 1)]
    assert min(counts) == 6
    assert problem.model.most_arms is not None
    assert max(counts) <= problem.model.most_arms


def test_the_model_of_the_paper() -> None:
    model = build().model
    assert model.most_arms == 150
    assert model.noise_variance == pytest.approx(0.01)
    assert model.gain == {"name": "squared-exponential", "dimension": 3}
    x = np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    np.testing.assert_allclose(model.kernel(x)[0], [1.0, np.exp(-1.5)])


def test_value_and_best_by_hand() -> None:
    problem = build()
    offer = problem.offer(3)
    f = expected_outcome(offer.arms.features)
    decision = Decision(step=3, action=None, positions=np.array([4, 0, 2, 9, 7]))
    assert problem.value(offer, decision) == pytest.approx(
        log(1.0 + f[4] + f[0] + f[2] + f[9] + f[7])
    )
    assert problem.best(offer).value == pytest.approx(
        log(1.0 + sum(sorted(f.tolist())[-5:]))
    )


@pytest.mark.parametrize(
    ("rewards", "reward"),
    [
        ([0.5, 0.5, 0.0, 1.0, 0.1], log(3.1)),
        ([-0.2, -0.3, 0.0, 0.0, 0.0], 0.0),
        ([-1.0, 0.0, 0.0, 0.0, 0.0], 0.0),
        ([-1.0, -2.0, 0.0, 0.0, 0.0], 0.0),
    ],
)
def test_realised_reward(rewards: list[float], reward: float) -> None:
    problem = build()
    decision = Decision(step=1, action=None, positions=np.arange(5))
    feedback = Feedback(positions=np.arange(5), rewards=np.array(rewards))
    metrics = problem.metrics(problem.offer(1), decision, feedback)
    assert metrics == {"reward": pytest.approx(reward)}


def test_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "search_path", list)
    assert "synthetic data" in build(source="auto").interpretations["data"]
    with pytest.raises(MissingDataError, match="tokyo-checkins"):
        build(source="real")


def test_tokyo() -> None:
    try:
        data_files.find("tokyo-checkins")
    except MissingDataError:
        pytest.skip("tokyo-checkins is not at hand")
    problem = build(source="auto")
    assert "Tokyo" in problem.interpretations["data"]
    offer = problem.offer(1)
    assert 5 < len(offer.arms) <= 150
    assert offer.arms.features.max() <= 1.0


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"k": 0}, "k must be .*, got 0"),
        ({"k": 100}, "more workers must come"),
        ({"workers": 2.5}, "workers must be .*, got 2.5"),
        ({"noise_std": 0.0}, "noise_std must be .*, got 0.0"),
        ({"counting": "all"}, "counting is 'all'; choose"),
        ({"source": "imagined"}, "source is 'imagined'"),
    ],
)
def test_bad_input(bad: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(**bad)
