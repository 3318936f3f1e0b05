"""Hostile state files are rejected with :class:`StateError`, quickly and with little memory."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csc_array

import superarm
from superarm import Arms, Feedback, IndexPolicy, Offer, State
from superarm.core.errors import StateError
from superarm.core.states import loaded, state_from_bytes
from superarm.kernels import GraphMatern, SquaredExponential, Temporal
from superarm.oracles import TopK
from superarm.posteriors import (
    ChangeDetecting,
    DriftingGP,
    FiniteGP,
    InducingGP,
    Refitting,
    Resetting,
    Separate,
    SparseVariational,
    StreamingGP,
)
from superarm.roads.posterior import RoadGP
from superarm.rules import Greedy

FEATURES = np.linspace(0.0, 1.0, 5)[:, None]
ROADS = np.column_stack([np.arange(5), np.ones((5, 6)), np.zeros(5), np.arange(5) % 2])
FLEETS = ("roads", "separate")
HEAD = {"$record": "state", "kind": "index-policy", "schema": 3}


def packed(spec: Any, **arrays: Any) -> bytes:
    """The bytes of a state with ``spec``."""
    buffer = io.BytesIO()
    text = json.dumps({**HEAD, "spec": spec}).encode()
    head = {"state.json": np.frombuffer(text, dtype=np.uint8)}
    np.savez(buffer, allow_pickle=False, **head, **arrays)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "part",
    [
        {"$record": "arms", "ids": [0], "features": {"$array": "X"}},
        {"family": "kernel", "name": "empirical", "covariance": {"$array": "X"}},
    ],
)
def test_repeated_references_to_an_array_are_limited(part: Any) -> None:
    data = packed({"name": "index", "posterior": [part] * 100}, X=np.zeros((1, 10_000)))
    with pytest.raises(StateError, match="too often"):
        state_from_bytes(data)


@pytest.mark.parametrize(
    "spec",
    [
        {
            "name": "index",
            "rule": {"family": "problem", "name": "navigation", "edges": 2_000_000},
        },
        {"name": "benchmark", "problem": {"name": "navigation", "edges": 2_000_000}},
        {
            "name": "index",
            "oracle": [{"x": {"family": "problem", "name": "sumo-navigation"}}],
        },
    ],
)
def test_reading_a_policy_builds_no_problem(
    spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(*_: Any, **__: Any) -> None:
        raise AssertionError("something was built")

    monkeypatch.setattr("superarm.core.states.build", build)
    with pytest.raises(StateError, match="problem"):
        loaded(state_from_bytes(packed(spec)))


def test_out_of_memory_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def build(*_: Any, **__: Any) -> None:
        raise MemoryError("27 GiB")

    monkeypatch.setattr("superarm.core.states.build", build)
    path = tmp_path / "large.npz"
    path.write_bytes(packed({"name": "index"}))
    with pytest.raises(StateError, match="27 GiB"):
        superarm.load(path)


def road_gp() -> RoadGP:
    return RoadGP(GraphMatern(csc_array(np.eye(5) - 0.2), nu=2), np.ones(5), refit=2)


def trained(kind: str) -> IndexPolicy:
    kernel = SquaredExponential(lengthscale=0.3)
    posterior: Any = {
        "finite": lambda: FiniteGP(kernel, FEATURES, 0.1),
        "streaming": lambda: StreamingGP(kernel, 0.1),
        "inducing": lambda: InducingGP(kernel, 0.1, inducing=3),
        "drifting": lambda: DriftingGP(
            kernel, FEATURES, 0.1, drift=Temporal(epsilon=0.1)
        ),
        "drifting-folded": lambda: DriftingGP(kernel, FEATURES, 0.1, form="folded"),
        "drifting-visited": lambda: DriftingGP(kernel, FEATURES, 0.1, form="visited"),
        "forgetting": lambda: StreamingGP(
            SquaredExponential(columns=(0,)) * Temporal(epsilon=0.9, column=1),
            0.1,
            timed=True,
            forget=0.1,
        ),
        "resetting": lambda: Resetting(StreamingGP(kernel, 0.1), block=3),
        "change-detecting": lambda: ChangeDetecting(
            StreamingGP(kernel, 0.01), scale=1.1
        ),
        "refitting": lambda: Refitting(StreamingGP(kernel, 0.1), every=2),
        "variational": lambda: SparseVariational(kernel, 0.1, inducing=3),
        "roads": road_gp,
        "separate": lambda: Separate(road_gp(), column=8),
    }[kind]()
    policy = IndexPolicy(posterior=posterior, rule=Greedy(), oracle=TopK(k=2))
    rng = np.random.default_rng(0)
    for step in range(1, 5):
        offer = Offer(
            step=step, arms=Arms.numbered(ROADS if kind in FLEETS else FEATURES)
        )
        decision = policy.decide(offer, rng)
        policy.commit(decision)
        seen = decision.positions[: 1 + step % 2]
        feedback = Feedback(positions=seen, rewards=rng.normal(size=len(seen)))
        policy.learn(offer, decision, feedback, rng)
    return policy


KINDS = [
    *("finite", "streaming", "inducing", "variational", "forgetting"),
    *("drifting", "drifting-folded", "drifting-visited"),
    *("resetting", "change-detecting", "refitting"),
    *FLEETS,
]
ODD = [
    np.array(1.0),
    np.zeros(0),
    np.full((2, 9), 5.0),
    np.array(["a"] * 5),
    np.zeros(5, dtype=[("a", "f8")]),
]


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("odd", range(len(ODD)))
def test_arrays_of_another_shape_are_damage(kind: str, odd: int) -> None:
    state = trained(kind).state()
    for part in ("posterior", "ledger"):
        for damaged in harmed(state.part(part), ODD[odd]):
            changed = replace(state, parts={**state.parts, part: damaged})
            with pytest.raises(StateError):
                loaded(changed)


def harmed(state: State, odd: Any) -> Iterator[State]:
    """The state with one array after another replaced, those of its parts included."""
    for name, array in state.arrays.items():
        if array.shape != odd.shape:
            yield replace(state, arrays={**state.arrays, name: odd})
    for name, part in state.parts.items():
        for damaged in harmed(part, odd):
            yield replace(state, parts={**state.parts, name: damaged})
