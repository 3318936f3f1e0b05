"""Explanations: the chosen arms and the runner-up, compared with what the definitions give slowly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import combinations
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest
from running_service import running_service
from tampering import tamper

from superarm.cli.bandits import explanation_json
from superarm.client import Client
from superarm.core import Floats, State
from superarm.core.capabilities import HasPriorCovariance
from superarm.core.errors import InputError
from superarm.core.registry import build, catalogue, register
from superarm.kernels import Linear, SquaredExponential
from superarm.live import Bandit, Storage, create_bandit
from superarm.live.explain import ArmReasons, Explanation
from superarm.live.fold import Fold
from superarm.live.teachers import Teacher
from superarm.oracles import TopK
from superarm.policies import IndexPolicy
from superarm.posteriors import Memory, SparseVariational, StreamingGP, Wrapping
from superarm.rules import UCB, Fixed
from superarm.testing.compositions.samples import (
    features,
    posterior_sample,
    road_rows,
)

KERNEL = SquaredExponential(lengthscale=0.3)
NOISE = 0.01
WIDTH = 2.0
MENU = {"mocha": [0.1, 0.2], "latte": [0.6, 0.7], "tea": [0.9, 0.1]}
TOLERANCE = {"rel": 1e-9, "abs": 1e-12}
"""Two exact solutions of systems with at most 24 rows and a condition below 10⁴."""


def policy(**changes: Any) -> IndexPolicy:
    parts: dict[str, Any] = {
        "posterior": StreamingGP(KERNEL, noise_variance=NOISE),
        "rule": UCB(schedule=Fixed(value=WIDTH)),
        "oracle": TopK(k=2),
    }
    return IndexPolicy(**{**parts, **changes})


@pytest.fixture
def storage(url: str) -> Iterator[Storage]:
    with Storage(url) as opened:
        yield opened


# --- by the definitions --------------------------------------------------------------------


class Learned(NamedTuple):
    """A reward that a bandit has learned."""

    decision: str | None
    arm: Any
    row: list[float]
    reward: float
    noise: float


def k(one: Any, other: Any) -> float:
    """k(x, z) = exp(−½‖x − z‖²/0.3²)"""
    distance = np.asarray(one) - np.asarray(other)
    return float(np.exp(-0.5 * (distance @ distance) / 0.3**2))


def posterior(learned: list[Learned], row: Any) -> tuple[float, float]:
    """m = kᵀ(K + D)⁻¹y and s² = k(x, x) − kᵀ(K + D)⁻¹k"""
    gram = np.array([[k(a.row, b.row) for b in learned] for a in learned])
    matrix = gram + np.diag([item.noise for item in learned])
    cross = np.array([k(item.row, row) for item in learned])
    weights = np.linalg.solve(matrix, cross)
    rewards = np.array([item.reward for item in learned])
    return float(weights @ rewards), float(np.sqrt(1.0 - weights @ cross))


def slow_reasons(learned: list[Learned], rows: Floats, arm: int) -> ArmReasons:
    mean, std = posterior(learned, rows[arm])
    teachers = []
    for item in learned:
        share = k(rows[arm], item.row) ** 2 / (1.0 + item.noise)
        teachers.append(Teacher(item.decision, item.arm, item.reward, share))
    teachers.sort(key=lambda teacher: -teacher.share)
    effects = []
    for column in range(rows.shape[1]):
        changed = rows[arm].copy()
        changed[column] = rows[:, column].mean()
        effects.append(mean - posterior(learned, changed)[0])
    strongest = int(np.argmax(np.abs(effects)))
    return ArmReasons(
        arm=arm,
        mean=mean,
        std=std,
        index=mean + WIDTH * std,
        teachers=teachers[:3],
        column=f"column {strongest}",
        effect=effects[strongest],
    )


def slow_explanation(
    decision: str, learned: list[Learned], rows: Floats
) -> Explanation:
    """The best and the second best of all pairs of arms, with the reasons for each arm."""
    reasons = [slow_reasons(learned, rows, arm) for arm in range(len(rows))]
    totals = {}
    for pair in combinations(range(len(rows)), 2):
        totals[pair] = sum(index_of(reasons[arm]) for arm in pair)
    best, second = sorted(totals, key=lambda pair: -totals[pair])[:2]
    return Explanation(
        decision=decision,
        arms=[reasons[arm] for arm in best],
        runner_up=[reasons[arm] for arm in second],
        margin=totals[best] - totals[second],
    )


def index_of(reasons: ArmReasons) -> float:
    assert reasons.index is not None
    return reasons.index


def in_order(table: dict[str, Any]) -> dict[str, Any]:
    """An explanation as JSON with its arms by id: an oracle may return them in any order."""
    ordered = dict(table)
    for name in ("arms", "runner_up"):
        ordered[name] = sorted(table[name], key=lambda arm: arm["arm"])
    return ordered


def assert_same(table: dict[str, Any], expected: dict[str, Any]) -> None:
    """Two explanations as JSON are equal up to rounding."""
    one = in_order(table)
    other = in_order(expected)
    assert one["decision"] == other["decision"]
    assert one["margin"] == pytest.approx(other["margin"], **TOLERANCE)
    for name in ("arms", "runner_up"):
        assert len(one[name]) == len(other[name]) == 2
        for arm, expected_arm in zip(one[name], other[name], strict=True):
            assert set(arm) == set(expected_arm)
            assert (arm["arm"], arm["column"]) == (
                expected_arm["arm"],
                expected_arm["column"],
            )
            for number in ("mean", "std", "index", "effect"):
                assert arm[number] == pytest.approx(expected_arm[number], **TOLERANCE)
            for teacher, expected_teacher in zip(
                arm["teachers"], expected_arm["teachers"], strict=True
            ):
                share = expected_teacher.pop("share")
                assert teacher.pop("share") == pytest.approx(share, **TOLERANCE)
                assert teacher == expected_teacher


def played(
    storage: Storage, spec: IndexPolicy | None = None
) -> tuple[list[Learned], Floats]:
    """A bandit ``menu`` with history, noisy rewards and a decision ``last``; what it had learned by then."""
    bandit = create_bandit("menu", spec=spec or policy(), storage=storage)
    rng = np.random.default_rng(5)
    history = rng.random((3, 2))
    bandit.observe(history, {0: 0.5, 2: -0.3}, noise_variance={0: 0.04, 2: 0.09})
    learned = [
        Learned(None, 0, history[0].tolist(), 0.5, 0.04),
        Learned(None, 2, history[2].tolist(), -0.3, 0.09),
    ]
    for number in range(4):
        rows = rng.random((4, 2))
        answer = bandit.ask(rows, decision_id=f"d{number}")
        rewards = {arm: float(rng.normal()) for arm in answer.arms}
        bandit.tell(answer, rewards)
        for arm in sorted(rewards):
            row = rows[arm].tolist()
            learned.append(Learned(answer.id, arm, row, rewards[arm], NOISE))
    rows = rng.random((5, 2))
    last = bandit.ask(rows, decision_id="last")
    bandit.tell(last, dict.fromkeys(last.arms, 9.0))  # afterwards: it explains nothing
    return learned, rows


def as_json(explanation: Explanation) -> dict[str, Any]:
    table = asdict(explanation)
    for name in ("arms", "runner_up"):
        for arm in table[name]:
            arm["teachers"] = [teacher._asdict() for teacher in arm["teachers"]]
    return table


def test_arms_and_runner_up_are_explained_everywhere(storage: Storage) -> None:
    """By the library, the service, the client and the command line."""
    learned, rows = played(storage)
    expected = slow_explanation("last", learned, rows)
    bandit = storage_bandit(storage)
    explanation = bandit.explain("last")
    assert_same(as_json(explanation), as_json(expected))
    assert_same(explanation_json(explanation), as_json(expected))
    with (
        running_service(storage) as address,
        httpx.Client(base_url=address) as http,
        Client(address) as client,
    ):
        body = http.get("/v1/decisions/last/explain").json()
        assert_same(body, as_json(expected))
        assert client.load_bandit("menu").explain("last") == explanation


def storage_bandit(storage: Storage) -> Bandit:
    row = storage.journal.find("", "menu")
    assert row is not None
    return Bandit(row, storage)


# --- single parts --------------------------------------------------------------------------


def test_teachers_and_columns_of_a_kernel_that_ignores_one(storage: Storage) -> None:
    """Means depend on column 0 alone; rewards of a near arm taught most."""
    kernel = SquaredExponential(lengthscale=(0.3, 30.0))
    gp = StreamingGP(kernel, noise_variance=NOISE)
    bandit = create_bandit(
        "menu", spec=policy(posterior=gp, oracle=TopK(k=1)), storage=storage
    )
    bandit.observe({"near": [0.62, 0.1], "far": [0.0, 0.9]}, {"near": 5.0, "far": -1.0})
    answer = bandit.ask(MENU)
    explanation = bandit.explain(answer)
    (reasons,) = explanation.arms
    assert answer.arms == ["latte"]
    assert reasons.mean == answer.mean["latte"]
    assert reasons.std == answer.std["latte"]
    assert [teacher.arm for teacher in reasons.teachers] == ["near", "far"]
    assert reasons.teachers[0].decision is None
    # k² / (k(k + σ²)) with k(x, z) = exp(−½ (0.02/0.3)² − ½ (0.6/30)²) and prior variance 1
    covariance = np.exp(-0.5 * (0.02 / 0.3) ** 2 - 0.5 * (0.6 / 30.0) ** 2)
    assert reasons.teachers[0].share == pytest.approx(covariance**2 / 1.01)
    assert reasons.column == "column 0"
    assert reasons.effect is not None
    assert reasons.effect > 0.0
    (runner_up,) = explanation.runner_up
    assert runner_up.arm == "tea"
    covariance = np.exp(-0.5 * (0.28 / 0.3) ** 2)
    assert runner_up.teachers[0].share == pytest.approx(covariance**2 / 1.01)
    assert index_of(reasons) - index_of(runner_up) == explanation.margin


def test_an_arm_without_prior_variance_has_shares_of_zero(storage: Storage) -> None:
    spec = policy(posterior=StreamingGP(Linear(), noise_variance=NOISE))
    bandit = create_bandit("linear", spec=spec, storage=storage)
    arms = {"zero": [0.0, 0.0], "one": [1.0, 0.5]}
    for decision in ("first", "second"):
        answer = bandit.ask(arms, decision_id=decision)
        bandit.tell(answer, dict.fromkeys(answer.arms, 0.3))
    reasons = {reason.arm: reason for reason in bandit.explain("second").arms}
    assert [teacher.share for teacher in reasons["zero"].teachers] == [0.0, 0.0]
    k_one = 1.25  # k(x, x) = x·x
    share = k_one / (k_one + NOISE)
    assert reasons["one"].teachers[0].share == pytest.approx(share, **TOLERANCE)


def test_without_an_alternative_there_is_no_runner_up(storage: Storage) -> None:
    bandit = create_bandit("menu", spec=policy(oracle=TopK(k=1)), storage=storage)
    explanation = bandit.explain(bandit.ask({"tea": [0.1, 0.1]}))
    assert explanation.runner_up == []
    assert explanation.margin is None
    with pytest.raises(InputError, match="no decision 'x'"):
        bandit.explain("x")


def test_equal_teachers_come_in_the_order_of_their_rewards(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many rewards are compared at a time."""
    bandit = create_bandit("menu", spec=policy(), storage=storage)
    for number in range(5):
        bandit.observe({"tea": MENU["tea"]}, {"tea": float(number)})
    answer = bandit.ask({"tea": MENU["tea"], "mocha": MENU["mocha"]})
    explanations = []
    for chunk in (1, 2, 1000):
        monkeypatch.setattr("superarm.live.teachers._CHUNK", chunk)
        explanations.append(bandit.explain(answer))
    for explanation in explanations:
        for reasons in explanation.arms:
            rewards = [teacher.reward for teacher in reasons.teachers]
            assert rewards == [0.0, 1.0, 2.0]


def test_teachers_are_of_the_latest_events(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the events just before the decision; what came after it taught nothing."""
    monkeypatch.setattr("superarm.live.teachers.EVENTS_SEARCHED", 2)
    bandit = create_bandit("menu", spec=policy(oracle=TopK(k=1)), storage=storage)
    for number in range(4):
        bandit.observe({"tea": MENU["tea"]}, {"tea": float(number)})
    answer = bandit.ask({"tea": MENU["tea"]})
    bandit.observe({"tea": MENU["tea"]}, {"tea": 9.0})
    (reasons,) = bandit.explain(answer).arms
    assert [teacher.reward for teacher in reasons.teachers] == [2.0, 3.0]


def test_rewards_that_were_not_yet_learned_teach_nothing(storage: Storage) -> None:
    """A posterior that learns in decision order holds them back."""
    gp = SparseVariational(KERNEL, noise_variance=NOISE)
    bandit = create_bandit(
        "menu", spec=policy(posterior=gp, oracle=TopK(k=1)), storage=storage
    )
    first = bandit.ask(MENU, decision_id="first")
    second = bandit.ask(MENU, decision_id="second")
    bandit.tell(second, {second.arms[0]: 1.0})  # waits for the first
    third = bandit.ask(MENU, decision_id="third")
    assert bandit.explain(third).arms[0].teachers == []
    bandit.tell(first, {first.arms[0]: 1.0})
    fourth = bandit.ask(MENU, decision_id="fourth")
    teachers = bandit.explain(fourth).arms[0].teachers
    assert {teacher.decision for teacher in teachers} == {"first", "second"}


# --- posteriors that know less -------------------------------------------------------------


@pytest.mark.parametrize("name", ["independent", "resetting", "separate", "roads"])
def test_a_posterior_without_prior_covariances_has_no_teachers(
    storage: Storage, name: str
) -> None:
    """The explanation states why. Columns that cannot be averaged are left out."""
    posterior = build("posterior", posterior_sample(name, drifts=False))
    rows = road_rows() if name == "roads" else features()
    bandit = create_bandit(
        "menu", spec=policy(posterior=posterior, oracle=TopK(k=1)), storage=storage
    )
    first = bandit.ask(rows)
    bandit.tell(first, {first.arms[0]: 1.5})
    explanation = bandit.explain(bandit.ask(rows))
    refusal = f"{type(posterior).__name__} does not compute prior covariances"
    assert explanation.teachers_refusal is not None
    assert explanation.teachers_refusal.startswith(refusal)
    (reasons,) = explanation.arms
    assert reasons.teachers == []
    assert reasons.mean is not None
    # Arms of 'separate' belong to a group, those of 'resetting' are fixed; of roads all rows are alike.
    assert reasons.column == ("column 2" if name == "separate" else None)


def test_a_policy_without_a_posterior_has_no_teachers(storage: Storage) -> None:
    spec: dict[str, Any] = {
        "name": "exp3",
        "low": 0.0,
        "high": 1.0,
        "arms": list(MENU.values()),
        "block": 10,
    }
    bandit = create_bandit("menu", spec=spec, storage=storage)
    explanation = bandit.explain(bandit.ask(MENU))
    assert explanation.teachers_refusal == (
        "Exp3 has no posterior, so rewards are not ranked"
    )
    (reasons,) = explanation.arms
    assert reasons.teachers == []
    assert reasons.mean is None


class Hidden(Wrapping):
    """A posterior of a user's own, which does not compute prior covariances."""

    kind = "hidden"

    def _absorb(self, keys: Any, rewards: Any, noise: Any, rng: Any) -> float:
        before = self._inside.information_gain
        self._inside.observe(keys, rewards, noise)
        return self._inside.information_gain - before

    def _memory(self) -> Memory:
        return Memory({}, parts={"inside": self._inside.state()})

    def _remember(self, state: State) -> None:
        self._replace_inside(self._inside.restored(state.part("inside")))


class Open(Hidden, HasPriorCovariance):
    """The same, which does."""

    kind = "open"

    def prior_variances(self, keys: Any) -> Floats:
        return np.array([k(row, row) for row in keys])

    def prior_covariances(self, keys: Any, others: Any) -> Floats:
        return np.array([[k(row, other) for other in others] for row in keys])


@pytest.mark.parametrize("kind", [Hidden, Open])
def test_a_posterior_of_your_own_may_rank_rewards(
    storage: Storage, kind: type[Hidden], monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = {family: dict(known) for family, known in catalogue._parts.items()}
    monkeypatch.setattr(catalogue, "_parts", parts)  # not for other tests
    monkeypatch.setattr(catalogue, "_names", dict(catalogue._names))
    register("posterior", kind.kind)(kind)
    own = policy(posterior=kind(StreamingGP(KERNEL, noise_variance=NOISE)))
    learned, rows = played(storage, own)
    expected = slow_explanation("last", learned, rows)
    explanation = storage_bandit(storage).explain("last")
    if kind is Open:
        assert explanation.teachers_refusal is None
        assert_same(as_json(explanation), as_json(expected))
    else:
        assert explanation.teachers_refusal == (
            "Hidden does not compute prior covariances, so rewards are not ranked; "
            "superarm.core.capabilities.HasPriorCovariance lists what it needs"
        )
        for arm in explanation.arms:
            assert arm.teachers == []
            assert arm.column is not None


# --- where the fold starts -----------------------------------------------------------------


def test_an_explanation_starts_from_a_snapshot_that_is_old_enough(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It equals that of a fold from the first event, up to rounding."""
    bandit = create_bandit("menu", spec=policy(), storage=storage)
    rng = np.random.default_rng(7)
    for number in range(8):
        if number == 5:
            bandit.save_snapshot()  # of event 11
        answer = bandit.ask(rng.random((5, 2)), decision_id=f"d{number}")
        bandit.tell(answer, {arm: float(rng.normal()) for arm in answer.arms})
    folded: list[int] = []
    apply = Fold.apply

    def counted(fold: Fold, event: Any) -> None:
        folded.append(event.seq)
        apply(fold, event)

    monkeypatch.setattr(Fold, "apply", counted)
    starts = {"d7": 12, "d5": None, "d4": 1}  # d5 is event 12: there is nothing to fold
    explanations = {}
    for decision, start in starts.items():
        folded.clear()
        explanations[decision] = bandit.explain(decision)
        assert (folded[0] if folded else None) == start
    monkeypatch.setattr(type(storage.journal), "snapshot", lambda *_: None)
    for decision, explanation in explanations.items():
        folded.clear()
        from_first = bandit.explain(decision)
        assert folded[0] == 1
        assert_same(as_json(explanation), as_json(from_first))


def test_without_snapshots_every_answer_is_the_same(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier snapshots serve old decisions; a damaged one is passed over."""
    monkeypatch.setattr("superarm.live.current_fold.EVENTS_PER_SNAPSHOT", 4)
    monkeypatch.setattr("superarm.live.snapshot_thinning.EVENTS_PER_SNAPSHOT", 4)
    bandit = create_bandit("menu", spec=policy(), storage=storage)
    rng = np.random.default_rng(11)
    decisions = [f"d{number}" for number in range(12)]
    for decision in decisions:
        answer = bandit.ask(rng.random((5, 2)), decision_id=decision)
        bandit.tell(answer, {arm: float(rng.normal()) for arm in answer.arms})
        if decision == "d7":
            bandit.respecify(policy(rule=UCB(schedule=Fixed(value=1.0))))
    bandit.ask(rng.random((5, 2)), decision_id="pending")
    assert bandit.seq == 27  # 1 created, 12 asks and tells, 1 respecified, 1 ask
    journal = storage.journal
    found = [journal.snapshot(1, last) for last in range(1, 28)]
    seqs = {snapshot.seq for snapshot in found if snapshot is not None}
    assert seqs == {5, 9, 13, 17, 21, 25}
    torn = (
        "UPDATE snapshots SET bytes = (SELECT bytes FROM blobs LIMIT 1) WHERE seq = 9"
    )
    tamper(storage.url, torn)

    def answers() -> tuple[dict[str, Explanation], Floats, list[str]]:
        # Nothing was learned before the first one, so its columns have no effect.
        explanations = {name: bandit.explain(name) for name in decisions[1:]}
        bandit.forget()
        return explanations, bandit.predict(MENU).mean, bandit.pending

    with_snapshots, mean, pending = answers()
    tamper(storage.url, "DELETE FROM snapshots")
    without, expected_mean, expected_pending = answers()
    for decision, explanation in with_snapshots.items():
        assert_same(as_json(explanation), as_json(without[decision]))
    np.testing.assert_allclose(mean, expected_mean, rtol=1e-9)
    assert pending == expected_pending == ["pending"]
    assert bandit.verify().same
