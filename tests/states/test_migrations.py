"""Older schemas migrate step by step; newer ones are rejected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from superarm import Arms, Feedback, IndexPolicy, Offer
from superarm.core import State, migrations
from superarm.core.errors import InputError, StateError
from superarm.core.migrations import migrated, migration, spec_migration
from superarm.core.states import loaded, state_from_bytes, state_to_bytes
from superarm.kernels import SquaredExponential
from superarm.oracles import TopK
from superarm.posteriors import Resetting, StreamingGP
from superarm.rules import Greedy

ROWS = np.linspace(0.0, 1.0, 5)[:, None]


@pytest.fixture(autouse=True)
def _own_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "_state_steps", dict(migrations._state_steps))
    monkeypatch.setattr(migrations, "_spec_steps", dict(migrations._spec_steps))


def taught(posterior: Any) -> IndexPolicy:
    policy = IndexPolicy(posterior=posterior, rule=Greedy(), oracle=TopK(k=2))
    rng = np.random.default_rng(0)
    for step in range(1, 5):
        offer = Offer(step=step, arms=Arms.numbered(ROWS))
        decision = policy.decide(offer, rng)
        policy.commit(decision)
        feedback = Feedback(positions=decision.positions, rewards=rng.normal(size=2))
        policy.learn(offer, decision, feedback, rng)
    return policy


def streaming() -> StreamingGP:
    return StreamingGP(SquaredExponential(lengthscale=0.3), 0.1)


def older(state: State) -> State:
    """The state as saved by a version whose streaming posterior had schema 0."""
    arrays = dict(state.arrays)
    rewards = arrays.pop("rewards")
    arrays["halves"] = rewards / 2.0  # in schema 0; doubled in schema 1
    return replace(state, schema=0, arrays=arrays)


def register_two_steps(called: list[int]) -> None:
    @migration("streaming-gp", 0)
    def double(state: State) -> State:
        called.append(0)
        arrays = dict(state.arrays)
        arrays["doubled"] = 2.0 * arrays.pop("halves")
        return replace(state, schema=1, arrays=arrays)

    @migration("streaming-gp", 1)
    def rename(state: State) -> State:
        called.append(1)
        arrays = dict(state.arrays)
        arrays["rewards"] = arrays.pop("doubled")
        return replace(state, schema=2, arrays=arrays)


def test_older_schema_runs_every_migration_step() -> None:
    assert StreamingGP.schema == 2
    policy, called = taught(streaming()), list[int]()
    register_two_steps(called)
    gp = policy.posterior
    assert isinstance(gp, StreamingGP)
    old = older(gp.state())
    for read in (streaming().restored, StreamingGP.from_state):
        restored = read(old)
        assert called == [0, 1]
        np.testing.assert_allclose(
            restored.predict(ROWS).mean, gp.predict(ROWS).mean, rtol=1e-10
        )
        called.clear()
    # Inside a policy, from its bytes.
    state = policy.state()
    outer = replace(
        state, parts={**state.parts, "posterior": older(state.part("posterior"))}
    )
    restored = loaded(state_from_bytes(state_to_bytes(outer)))
    assert called == [0, 1]
    assert state_to_bytes(restored.state()) == state_to_bytes(state)


def test_states_in_wrappers_are_migrated_too() -> None:
    policy, called = taught(Resetting(streaming(), block=10)), list[int]()
    register_two_steps(called)
    state = policy.state()
    posterior = state.part("posterior")
    outer = replace(posterior, parts={"inside": older(posterior.part("inside"))})
    restored = loaded(replace(state, parts={**state.parts, "posterior": outer}))
    assert state_to_bytes(restored.state()) == state_to_bytes(state)


def test_current_state_is_not_migrated() -> None:
    state = taught(streaming()).state()
    register_two_steps(called := [])
    assert migrated(state) is state
    assert called == []


def test_newer_schemas_and_those_without_a_step_are_refused() -> None:
    gp = streaming()
    state = gp.state()
    with pytest.raises(
        StateError,
        match=r"of schema 9; StreamingGP reads .* of schema 2: a newer.*upgrade",
    ):
        gp.restored(replace(state, schema=9))
    with pytest.raises(
        StateError, match=r"schema 1; .* of schema 2, and no migration leads there"
    ):
        gp.restored(replace(state, schema=1))
    policy = taught(gp)
    with pytest.raises(
        StateError, match=r"of schema 99; IndexPolicy reads .* a newer version saved it"
    ):
        loaded(replace(policy.state(), schema=99))


def test_a_step_leads_to_the_next_schema() -> None:
    migration("streaming-gp", 0)(lambda state: replace(state, schema=2))
    with pytest.raises(
        StateError,
        match="from schema 0 must return schema 1, got 'streaming-gp' of schema 2",
    ):
        streaming().restored(replace(streaming().state(), schema=0))
    with pytest.raises(
        InputError, match="already a migration of 'streaming-gp' from schema 0"
    ):
        migration("streaming-gp", 0)(lambda state: state)


def test_migration_step_must_keep_the_kind() -> None:
    migration("streaming-gp", 0)(
        lambda state: replace(state, kind="finite-gp", schema=1)
    )
    with pytest.raises(
        StateError, match="must return schema 1, got 'finite-gp' of schema 1"
    ):
        migrated(replace(streaming().state(), schema=0))


def test_a_renamed_parameter_is_renamed_wherever_a_spec_holds_it() -> None:
    policy = taught(Resetting(streaming(), block=10))
    state = policy.state()

    def renamed(spec: Any) -> Any:
        """As a version would have written it that called lengthscales ``reach``."""
        if isinstance(spec, Mapping):
            names = {"lengthscale": "reach"}
            return {names.get(key, key): renamed(value) for key, value in spec.items()}
        return [renamed(item) for item in spec] if isinstance(spec, list) else spec

    def old(part: State) -> State:
        parts = {name: old(inner) for name, inner in part.parts.items()}
        return replace(part, spec=renamed(part.spec), parts=parts)

    with pytest.raises(StateError, match=r"unknown parameter .*reach"):
        loaded(old(state))

    @spec_migration("kernel", "squared-exponential")
    def rename(spec: Mapping[str, Any]) -> Mapping[str, Any]:
        converted = dict(spec)
        if "reach" in converted:
            converted["lengthscale"] = converted.pop("reach")
        return converted

    assert state_to_bytes(loaded(old(state)).state()) == state_to_bytes(state)
    assert state_to_bytes(policy.restored(old(state)).state()) == state_to_bytes(state)
    gp = StreamingGP.from_state(old(state).part("posterior").part("inside"))
    assert gp.count == 8
    with pytest.raises(InputError, match="already a migration of specs of kernel"):
        spec_migration("kernel", "squared-exponential")(lambda spec: spec)


@pytest.mark.parametrize("state", [None, "state.npz", {}, 3])
def test_invalid_states_are_rejected(state: Any) -> None:
    for read in (
        streaming().restored,
        StreamingGP.from_state,
        taught(streaming()).restored,
        loaded,
    ):
        with pytest.raises(
            InputError, match=r"state is .*load_state reads one from a file"
        ):
            read(state)
