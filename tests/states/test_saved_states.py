"""States that earlier versions saved: each loads, and decides as it did then.

A folder holds what one version saved (``make.py``). A test that fails here means that users lose what
they have learned: fill new parameters with defaults that keep what was, or write a migration.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import superarm
from superarm import registry
from superarm.core import Decision, State
from superarm.records import from_json
from superarm.states import load_state

HERE = Path(__file__).parent
SAVED = sorted(HERE.glob("*/*.npz"))
pytestmark = pytest.mark.filterwarnings("ignore::superarm.errors.PrecisionWarning")


def imported(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("saved_states", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def makers() -> Mapping[str, Any]:
    """How parts are made that no file can hold whole, by the name of their case."""
    return imported(HERE / "make.py").cases()


def label(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def record_of(path: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(path.with_suffix(".json").read_text())
    return record


def restored(path: Path, record: dict[str, Any], makers: Mapping[str, Any]) -> Any:
    if not record["load"]:
        if path.stem == "posterior-torch" and importlib.util.find_spec("gpytorch") is None:
            pytest.skip("gpytorch is not installed")
        return makers[path.stem].make().restored(load_state(path))
    if record["is"] == "policy":
        return superarm.load(path)
    state = load_state(path)
    assert state.spec is not None
    return registry.build("posterior", state.spec).restored(state)


def assert_close(found: Any, expected: Any, tolerance: float, name: str) -> None:
    """To within ``tolerance`` of the largest number, or of 1."""
    if expected is None:
        assert found is None, name
        return
    wanted = np.asarray(expected, dtype=np.float64)
    scale = max(1.0, float(np.abs(wanted).max(initial=0.0)))
    np.testing.assert_allclose(found, wanted, rtol=0.0, atol=tolerance * scale, err_msg=name)


def assert_decided(decision: Decision, expected: dict[str, Any], tolerance: float) -> None:
    assert decision.positions.tolist() == expected["positions"]
    action = from_json(expected["action"])
    np.testing.assert_array_equal(decision.action, action)
    for name in ("mean", "std", "desirability", "propensity"):
        assert_close(getattr(decision, name), expected[name], tolerance, name)


def assert_decides_alike(policy: Any, record: dict[str, Any]) -> None:
    for each in record["rounds"]:
        offer, feedback = from_json(each["offer"]), from_json(each["feedback"])
        decision = policy.decide(offer, np.random.default_rng(each["seed"]))
        assert_decided(decision, each["decision"], record["tolerance"])
        policy.commit(decision)
        policy.learn(offer, decision, feedback, np.random.default_rng(each["seed"]))


def assert_predicts_alike(posterior: Any, record: dict[str, Any]) -> None:
    keys, tolerance = from_json(record["asked"]), record["tolerance"]
    for turn, expected in enumerate(record["answers"]):
        if turn:
            each = record["learned"][turn - 1]
            data = from_json(each["keys"]), from_json(each["rewards"])
            posterior.observe(*data, rng=np.random.default_rng(each["seed"]))
        mean, cov = posterior.predict(keys, return_cov=True)
        assert_close(mean, expected["mean"], tolerance, "mean")
        assert_close(cov, expected["cov"], tolerance, "cov")
        # A variance of rounding alone has a root that is far larger.
        std = posterior.predict(keys).std
        assert_close(std**2, np.square(expected["std"]), tolerance, "variance")
        assert_close(posterior.information_gain, expected["information_gain"], tolerance, "gain")
        drawn = posterior.sample(keys, np.random.default_rng([0, 11]), 1)[0]
        assert_close(drawn, expected["draw"], np.sqrt(tolerance), "draw")


@pytest.mark.parametrize("path", SAVED, ids=label)
def test_a_saved_state_answers_as_it_did(path: Path, makers: Mapping[str, Any]) -> None:
    record = record_of(path)
    part = restored(path, record, makers)
    if record["is"] == "policy":
        assert_decides_alike(part, record)
    else:
        assert_predicts_alike(part, record)


# --- nothing is forgotten --------------------------------------------------------------------


def parts_in(spec: Any, family: str | None = None) -> Iterator[tuple[str, str]]:
    """Family and name of every part in a spec."""
    if isinstance(spec, Mapping):
        family = spec.get("family", family)
        if family is not None and isinstance(spec.get("name"), str):
            yield family, spec["name"]
        for value in spec.values():
            yield from parts_in(value)
    elif isinstance(spec, list):
        for value in spec:
            yield from parts_in(value)


def parts_of(path: Path) -> set[tuple[str, str]]:
    record = record_of(path)

    def inside(state: State, family: str | None = None) -> Iterator[tuple[str, str]]:
        yield from parts_in(state.spec, family)
        for part in state.parts.values():
            yield from inside(part)

    return set(inside(load_state(path), record["is"]))


def newest() -> Path:
    """The folder of the latest version."""
    return max(
        (each for each in HERE.iterdir() if list(each.glob("*.npz"))),
        key=lambda folder: [int(number) for number in folder.name.split(".")],
    )


NOT_IN_STATES = {"problem", "reward", "structure", "encoding"}
"""Families of parts that a policy is not made of."""


def test_every_part_is_in_a_saved_state() -> None:
    """A new part needs a case in ``make.py``, and to be run: it adds what is not there yet."""
    found: set[tuple[str, str]] = set()
    for path in newest().glob("*.npz"):
        found |= parts_of(path)
    # Factories leave no trace in a state: they are cases by their name.
    cases = {path.stem.removeprefix("policy-") for path in newest().glob("policy-*.npz")}
    found |= {("policy", name.removeprefix("fleet-")) for name in cases}
    for family in sorted(set(registry.families()) - NOT_IN_STATES):
        missing = [name for name in registry.names(family) if (family, name) not in found]
        assert not missing, f"{family}: no state in {newest().name} holds {missing}"
