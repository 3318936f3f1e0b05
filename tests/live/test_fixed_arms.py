"""Bandits on fixed arms, and on tables: fits, explanations, replays, ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from superarm.core import Arms, Decision, Offer
from superarm.core.errors import InputError
from superarm.core.registry import spec_of
from superarm.core.tables import Encoding
from superarm.kernels import SquaredExponential, Temporal
from superarm.live import Bandit, BanditSpec, Storage, create_bandit, load_bandit
from superarm.live.codec import encode_arms
from superarm.live.events import Kind
from superarm.live.fold import Fold
from superarm.live.journal import Append, StorageError
from superarm.oracles import TopK
from superarm.policies import IndexPolicy
from superarm.posteriors import DriftingGP, FiniteGP, StreamingGP
from superarm.rules import UCB, Fixed, Thompson

KERNEL = SquaredExponential(lengthscale=0.3)
ARMS = np.random.default_rng(0).random((12, 2))
WAVE = np.sin(2.0 * ARMS[:, 0])
TABLE = [
    {"id": "mocha", "milk": "cow", "price": 3.0},
    {"id": "latte", "milk": "oat", "price": 4.0},
]


def policy(posterior: Any) -> IndexPolicy:
    rule = UCB(schedule=Fixed(value=2.0))
    return IndexPolicy(posterior=posterior, rule=rule, oracle=TopK(k=1))


def create(storage: Storage, posterior: Any) -> Bandit:
    return create_bandit("fixed", spec=policy(posterior), storage=storage)


# --- fits ----------------------------------------------------------------------------------


def fitted_posterior(bandit: Bandit) -> Any:
    bandit.refit()
    fitted = bandit._current.read().policy
    assert isinstance(fitted, IndexPolicy)
    return fitted.posterior


def test_a_refit_on_fixed_arms_is_that_on_their_features(storage: Storage) -> None:
    fits = []
    for name, posterior in (
        ("fixed", FiniteGP(KERNEL, ARMS, 0.01)),
        ("streaming", StreamingGP(KERNEL, 0.01)),
    ):
        bandit = create_bandit(name, spec=policy(posterior), storage=storage)
        bandit.observe(ARMS, dict(enumerate(WAVE.tolist())))
        fits.append(fitted_posterior(bandit))
    for parameter in ("kernel", "noise_variance", "mean"):
        one, other = (fit.parameters()[parameter] for fit in fits)
        assert one == other  # the same rows in the same order


def test_a_refit_keeps_prior_means_of_single_arms(storage: Storage) -> None:
    """Rewards less their prior means are smooth; without them they would look like noise."""
    means = 10.0 * np.random.default_rng(1).standard_normal(12)
    bandit = create(storage, FiniteGP(KERNEL, ARMS, 0.01, means))
    seen = np.arange(10)
    bandit.observe(ARMS, {int(arm): float(WAVE[arm] + means[arm]) for arm in seen})
    posterior = fitted_posterior(bandit)
    np.testing.assert_array_equal(posterior.parameters()["mean"], means)
    predicted = bandit.predict(ARMS).mean
    np.testing.assert_allclose(predicted[10:], (WAVE + means)[10:], atol=0.2)


def test_a_drifting_posterior_is_not_refitted(storage: Storage) -> None:
    bandit = create(
        storage, DriftingGP(KERNEL, ARMS, 0.01, drift=Temporal(epsilon=0.1))
    )
    bandit.observe(ARMS, {3: 1.0})
    with pytest.raises(InputError, match="wrap the posterior in Refitting"):
        bandit.refit()
    assert bandit.verify().events == 2  # nothing was recorded


# --- explanations --------------------------------------------------------------------------


@pytest.mark.parametrize("drifts", [False, True])
def test_teachers_of_fixed_arms(storage: Storage, drifts: bool) -> None:
    """A reward explains ρ²k(x, z)² / (k(x, x)(k(z, z) + σ²)); with drift ρ² is (1 − ε)^t."""
    posterior: Any = FiniteGP(KERNEL, ARMS, 0.01)
    if drifts:
        posterior = DriftingGP(KERNEL, ARMS, 0.01, drift=Temporal(epsilon=0.1))
    bandit = create(storage, posterior)
    bandit.observe(ARMS, {4: 9.0}, time=1.0)
    answer = bandit.ask(ARMS, time=4.0)
    (reasons,) = bandit.explain(answer).arms
    (teacher,) = reasons.teachers
    assert (teacher.arm, teacher.reward) == (4, 9.0)
    correlation = KERNEL(ARMS[[int(answer.arms[0])]], ARMS[[4]])[0, 0]
    faded = 0.9**3.0 if drifts else 1.0
    assert teacher.share == pytest.approx(faded * correlation**2 / 1.01)
    # Arms that are known by number have no features to change.
    assert (reasons.column, reasons.effect) == (None, None)


# --- replays -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mean", "std"])
def test_replay_compares_beliefs_up_to_rounding(
    storage: Storage, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bandit = create(storage, FiniteGP(KERNEL, ARMS, 0.01))
    bandit.observe(ARMS, {4: 9.0})
    bandit.ask(ARMS, decision_id="d")
    decide = Fold.decide

    def verify_with(error: float) -> list[str]:
        def decide_otherwise(fold: Fold, offer: Offer) -> Decision:
            decision = decide(fold, offer)
            changes: Any = {name: getattr(decision, name) * (1.0 + error)}
            return replace(decision, **changes)

        monkeypatch.setattr(Fold, "decide", decide_otherwise)
        return bandit.verify().differences

    assert verify_with(1e-12) == []
    (difference,) = verify_with(1e-6)
    assert f"decision 'd': {name} was" in difference


# --- tables and ids ------------------------------------------------------------------------


def test_restart_with_pending_decisions_changes_no_bit(storage: Storage) -> None:
    """The visited form stores what it expects of pending arms, and takes it from the snapshot."""
    posterior = FiniteGP(KERNEL, ARMS, 0.01, form="visited")
    rule = Thompson(mode="independent")
    spec = IndexPolicy(posterior=posterior, rule=rule, oracle=TopK(k=4))
    decided = []
    for name in ("twin", "menu"):  # the last one closes the storage
        bandit = create_bandit(name, spec=spec, storage=storage)
        bandit.name_arms(ARMS)
        _tell_out_of_order(bandit, range(15))
        if name == "menu":
            bandit.save_snapshot()
            storage.close()
            bandit = load_bandit(name, storage=Storage(storage.url))
        _tell_out_of_order(bandit, range(15, 30))
        assert bandit.verify().same
        events = [event for event in bandit.events() if event.kind is Kind.DECIDED]
        decided.append([event.body["decision"] for event in events])
    assert decided[0] == decided[1]
    bandit.storage.close()


def _tell_out_of_order(bandit: Bandit, steps: range) -> None:
    """Ask, with three decisions pending, and tell one of those."""
    for step in steps:
        bandit.ask(decision_id=f"d{step}")
        pending = bandit.pending
        if len(pending) > 3:
            rewarded = bandit.decision(pending[step % 3]).answer
            rewards = {arm: float(WAVE[int(arm)]) for arm in rewarded.arms}
            bandit.tell(rewarded, rewards)


def test_arms_from_tables(storage: Storage) -> None:
    """Rows, columns, or rows by id: the same arms."""
    encoding = Encoding.of(TABLE, columns=["milk", "price"])
    spec = BanditSpec(
        policy=spec_of(policy(StreamingGP(KERNEL, 0.01))), encoding=encoding
    )
    bandit = create_bandit("menu", spec=spec, storage=storage)
    columns = {name: [row[name] for row in TABLE] for name in TABLE[0]}
    by_id = {row["id"]: {"milk": row["milk"], "price": row["price"]} for row in TABLE}
    bandit.observe(TABLE, {"latte": 1.0})
    for arms in (TABLE, columns, by_id):
        assert bandit.predict(arms).mean.tolist() == pytest.approx(
            bandit.predict(encoding.features(TABLE)).mean.tolist()
        )
        assert set(bandit.ask(arms).arms) <= {"mocha", "latte"}


def test_the_column_of_ids_survives_a_restart(storage: Storage) -> None:
    rows = [
        {"name": row["id"], "milk": row["milk"], "price": row["price"]} for row in TABLE
    ]
    encoding = Encoding.of(rows, columns=["milk", "price"])
    spec = BanditSpec(
        policy=spec_of(policy(StreamingGP(KERNEL, 0.01))),
        encoding=encoding,
        id_column="name",
    )
    assert BanditSpec.from_json(spec.as_json()) == spec
    create_bandit("menu", spec=spec, storage=storage)
    url = storage.url
    storage.close()
    with Storage(url) as opened:
        answer = load_bandit("menu", storage=opened).ask(rows)
        assert set(answer.arms) <= {"mocha", "latte"}


def test_flags_are_no_ids(storage: Storage) -> None:
    """True equals 1, and would be read back from JSON as another id."""
    bandit = create(storage, StreamingGP(KERNEL, 0.01))
    with pytest.raises(
        InputError, match="arm id must be text or a whole number, got True"
    ):
        bandit.ask({True: [0.1, 0.2], "b": [0.3, 0.4]})
    with pytest.raises(InputError, match="must be text or a whole number"):
        bandit.ask({0.5: [0.1, 0.2]})


# --- named arms ----------------------------------------------------------------------------


def hashes(bandit: Bandit) -> list[str]:
    """The hash of the offer of each decision."""
    events = bandit.events()
    return [event.body["arms"] for event in events if event.kind is Kind.DECIDED]


def test_an_ask_for_all_named_arms_offers_those_named_last(storage: Storage) -> None:
    bandit = create(storage, StreamingGP(KERNEL, noise_variance=0.01))
    menus = [{"mocha": [0.1, 0.2], "tea": [0.9, 0.1]}, {"mocha": [0.3, 0.4]}]
    expected = []
    for menu in [*menus, menus[0]]:
        bandit.name_arms(menu)
        offered = Arms(ids=list(menu), features=list(menu.values()))
        for arms in (None, None, list(menu)):
            bandit.ask(arms)
            expected.append(encode_arms(offered).hash)
    assert hashes(bandit) == expected
    assert bandit.verify().same


def test_arms_are_stored_again_if_their_first_commit_failed(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    bandit = create(storage, StreamingGP(KERNEL, noise_variance=0.01))
    stored: list[set[str]] = []
    append = storage.journal.append

    def failing(appends: Sequence[Append]) -> None:
        raise StorageError("the disk is full")

    def noting(appends: Sequence[Append]) -> None:
        append(appends)
        stored.extend(set(item.blobs) for item in appends if item.events)

    monkeypatch.setattr(storage.journal, "append", failing)
    with pytest.raises(StorageError):
        bandit.ask(ARMS)
    monkeypatch.setattr(storage.journal, "append", noting)
    for _ in range(3):
        bandit.ask(ARMS)
    blob = encode_arms(Arms.numbered(ARMS)).hash
    assert stored == [{blob}, set(), set()]
    storage.journal.blob(blob)
