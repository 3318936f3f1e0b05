"""States that earlier versions saved: each loads, and decides as it did then.

A folder holds what one version saved (``make.py``). A test that fails here means that users lose what
they have learned: fill new parameters with defaults that keep what was, or write a migration.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import inspect
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from part_names import FILES, own_names, parts_of

import superarm
from superarm.core import Decision, registry
from superarm.core.errors import StateError
from superarm.core.serialization import from_json
from superarm.core.states import load_state, loaded
from superarm.kernels import Matern, Temporal
from superarm.posteriors import DriftingGP, StreamingGP
from superarm.roads.energy import RoadScales
from superarm.rules.base import _CHECKS

HERE = Path(__file__).parent
SAVED = sorted(HERE.glob("*/*.npz"))
pytestmark = pytest.mark.filterwarnings("ignore::superarm.core.errors.PrecisionWarning")


def imported(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("saved_states", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def make_states() -> Any:
    """The module ``make.py``."""
    return imported(HERE / "make.py")


@pytest.fixture(scope="session")
def makers(make_states: Any) -> Mapping[str, Any]:
    """Makers of parts that a file cannot fully describe, by the name of their case."""
    cases: Mapping[str, Any] = make_states.cases()
    return cases


def label(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def record_of(path: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(path.with_suffix(".json").read_text())
    return record


def restored(path: Path, record: dict[str, Any], makers: Mapping[str, Any]) -> Any:
    if not record["load"]:
        if (
            path.stem == "posterior-torch"
            and importlib.util.find_spec("gpytorch") is None
        ):
            pytest.skip("gpytorch is not installed")
        return makers[path.stem].make().restored(load_state(path))
    if record["is"] == "policy":
        return superarm.load(path)
    state = load_state(path)
    assert state.spec is not None
    return registry.build("posterior", state.spec).restored(state)


def assert_close(actual: Any, expected: Any, tolerance: float, name: str) -> None:
    """To within ``tolerance`` of the largest number, or of 1."""
    if expected is None:
        assert actual is None, name
        return
    wanted = np.asarray(expected, dtype=np.float64)
    scale = max(1.0, float(np.abs(wanted).max(initial=0.0)))
    np.testing.assert_allclose(
        actual, wanted, rtol=0.0, atol=tolerance * scale, err_msg=name
    )


def assert_decided(
    decision: Decision, expected: dict[str, Any], tolerance: float
) -> None:
    assert decision.positions.tolist() == expected["positions"]
    action = from_json(expected["action"])
    np.testing.assert_array_equal(decision.action, action)
    for name in ("mean", "std", "desirability", "propensity"):
        assert_close(getattr(decision, name), expected[name], tolerance, name)


def assert_decides_alike(policy: Any, record: dict[str, Any]) -> None:
    for entry in record.get("late", ()):
        arguments = [
            from_json(entry[name]) for name in ("offer", "decision", "feedback")
        ]
        policy.learn(*arguments, np.random.default_rng(entry["seed"]))
    for entry in record["rounds"]:
        offer, feedback = from_json(entry["offer"]), from_json(entry["feedback"])
        decision = policy.decide(offer, np.random.default_rng(entry["seed"]))
        assert_decided(decision, entry["decision"], record["tolerance"])
        policy.commit(decision)
        policy.learn(offer, decision, feedback, np.random.default_rng(entry["seed"]))


def assert_predicts_alike(posterior: Any, record: dict[str, Any]) -> None:
    keys, tolerance = from_json(record["asked"]), record["tolerance"]
    for turn, expected in enumerate(record["answers"]):
        if turn:
            lesson = record["learned"][turn - 1]
            data = from_json(lesson["keys"]), from_json(lesson["rewards"])
            posterior.observe(*data, rng=np.random.default_rng(lesson["seed"]))
        mean, cov = posterior.predict(keys, return_cov=True)
        assert_close(mean, expected["mean"], tolerance, "mean")
        assert_close(cov, expected["cov"], tolerance, "cov")
        # A variance that is only rounding has a far larger root.
        std = posterior.predict(keys).std
        assert_close(std**2, np.square(expected["std"]), tolerance, "variance")
        assert_close(
            posterior.information_gain, expected["information_gain"], tolerance, "gain"
        )
        drawn = posterior.sample(keys, np.random.default_rng([0, 11]), 1)[0]
        assert_close(drawn, expected["draw"], np.sqrt(tolerance), "draw")


def with_marks(path: Path) -> Any:
    """A state as a parameter; one that needs torch, which takes long to import, is thorough."""
    marks = [pytest.mark.thorough] if path.stem == "posterior-torch" else []
    return pytest.param(path, marks=marks, id=label(path))


@pytest.mark.parametrize("path", [with_marks(path) for path in SAVED])
def test_saved_state_answers_as_recorded(path: Path, makers: Mapping[str, Any]) -> None:
    record = record_of(path)
    part = restored(path, record, makers)
    if record["is"] == "policy":
        assert_decides_alike(part, record)
    else:
        assert_predicts_alike(part, record)


# --- nothing is forgotten --------------------------------------------------------------------


def parts_in_file(path: Path) -> set[tuple[str, str]]:
    return set(parts_of(load_state(path), record_of(path)["is"]))


def newest() -> Path:
    """The folder of the latest version."""
    return max(
        (path for path in HERE.iterdir() if list(path.glob("*.npz"))),
        key=lambda folder: [int(number) for number in folder.name.split(".")],
    )


NOT_IN_STATES = {"problem", "reward", "structure", "encoding"}
"""Families of parts that a policy is not made of."""


def test_every_part_is_in_a_saved_state() -> None:
    """``make.py`` adds what is not there yet: a case, or a sample of ``tests/support``."""
    parts: set[tuple[str, str]] = set()
    for path in newest().glob("*.npz"):
        parts |= parts_in_file(path)
    # Factories leave no trace in a state: they are cases by their name.
    cases = {
        path.stem.removeprefix("policy-") for path in newest().glob("policy-*.npz")
    }
    parts |= {("policy", name.removeprefix("fleet-")) for name in cases}
    for family in sorted(set(registry.families()) - NOT_IN_STATES):
        missing = [name for name in own_names(family) if (family, name) not in parts]
        place = FILES.get(family, "tests/states/make.py")
        assert not missing, (
            f"no state in {newest().name} holds the {family} {', '.join(map(repr, missing))}: "
            f"add it to {place} and run python tests/states/make.py"
        )


def test_make_adds_only_samples_that_no_state_holds(
    make_states: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = {  # of each family the last
        family: (name, case)
        for (family, name), case in make_states.sample_cases().items()
    }
    assert set(samples) == set(FILES)
    chosen = {(family, name): case for family, (name, case) in samples.items()}
    monkeypatch.setattr(make_states, "cases", dict)
    monkeypatch.setattr(make_states, "sample_cases", lambda: chosen)
    added = make_states.write(tmp_path)
    assert added == [f"policy-sample-{family}-{name}" for family, name in chosen]
    for name in added:
        path = tmp_path / f"{name}.npz"
        assert_decides_alike(superarm.load(path), record_of(path))
    assert make_states.write(tmp_path) == []


# --- a parameter is added --------------------------------------------------------------------

STATES_OF_EACH = (
    3  # that are loaded with a parameter more: every state holds an "index" or a "ucb"
)


def add_parameter(
    patch: pytest.MonkeyPatch, part: Any, name: str, default: Any, used: Any = None
) -> None:
    """Give a class one more parameter, as a developer would; ``used`` replaces a default of None."""
    construct, signature = part.__init__, inspect.signature(part.__init__)

    @functools.wraps(construct)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        value = kwargs.pop(name, default)
        object.__setattr__(self, name, used if value is None else value)
        construct(self, *args, **kwargs)

    added = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
    init.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), added]
    )
    patch.setattr(part, "__init__", init)
    patch.setitem(_CHECKS, name, lambda value, _: value)
    if issubclass(part, registry.HasParameters):
        own = part.parameters

        def parameters(self: Any) -> Mapping[str, Any]:
            values = {key: value for key, value in own(self).items() if key != name}
            return (
                {**values, name: getattr(self, name)} if type(self) is part else values
            )

        patch.setattr(part, "parameters", parameters)
    elif dataclasses.is_dataclass(part):
        field = dataclasses.field(default=default, kw_only=True)
        field.name, field.type = name, Any
        field._field_type = dataclasses._FIELD  # type: ignore[attr-defined]
        patch.setattr(
            part, "__dataclass_fields__", {**part.__dataclass_fields__, name: field}
        )


@functools.cache
def states_with() -> dict[tuple[str, str], list[Path]]:
    """Saved states by the parts that they hold."""
    paths: dict[tuple[str, str], list[Path]] = {}
    for path in SAVED:
        for part in parts_in_file(path):
            paths.setdefault(part, []).append(path)
    return paths


def classes() -> list[tuple[str, str]]:
    pairs = [
        (family, name)
        for family in registry.families()
        for name in registry.names(family)
    ]
    families = set(registry.families()) - NOT_IN_STATES
    return [
        (family, name)
        for family, name in pairs
        if family in families and inspect.isclass(registry.find(family, name))
    ]


@pytest.mark.thorough
@pytest.mark.parametrize(("family", "name"), classes())
def test_states_load_after_a_parameter_was_added(
    family: str, name: str, makers: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    part = registry.find(family, name)
    add_parameter(monkeypatch, part, "warm", 3)
    for path in states_with()[family, name][:STATES_OF_EACH]:
        record = record_of(path)
        reloaded = restored(path, record, makers)
        if record["is"] == "policy":
            assert_decides_alike(reloaded, record)
        else:
            assert_predicts_alike(reloaded, record)
        assert "'warm': 3" in str(registry.describe(reloaded)), (
            "the parameter was not added"
        )


@pytest.mark.parametrize("name", ["posterior-roads", "posterior-roads-sparse"])
def test_a_fleet_loads_after_a_scale_was_added(
    name: str, makers: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = newest() / f"{name}.npz"
    add_parameter(monkeypatch, RoadScales, "warm", 3)
    reloaded = restored(path, record_of(path), makers)
    assert_predicts_alike(reloaded, record_of(path))
    assert "'warm': 3" in str(registry.describe(reloaded))


def test_a_parameter_that_was_added_may_not_differ_from_its_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = load_state(newest() / "posterior-streaming-cholesky.npz")
    add_parameter(monkeypatch, Matern, "warm", 3)
    add_parameter(monkeypatch, StreamingGP, "eager", False)
    like = registry.built_parameters({**state.spec})  # type: ignore[dict-item]
    assert StreamingGP(**like).restored(state).count == 24
    with pytest.raises(StateError, match="eager is True here and False in the state"):
        StreamingGP(**like, eager=True).restored(state)  # type: ignore[call-arg]
    # Before it was added, no state could have been saved with another value.
    with pytest.raises(StateError, match="kernel is 'matern' here"):
        StreamingGP(**{**like, "kernel": Matern(warm=4)}).restored(state)  # type: ignore[call-arg]


def test_a_default_that_a_constructor_replaces_is_filled_in_as_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = newest() / "posterior-drifting-kalman.npz"
    add_parameter(monkeypatch, DriftingGP, "season", None, used=Temporal(epsilon=0.5))
    state = load_state(path)
    reloaded = restored(path, record_of(path), {})
    assert reloaded.season == Temporal(epsilon=0.5)
    like = {
        **registry.built_parameters({**state.spec}),
        "season": Temporal(epsilon=0.4),
    }  # type: ignore[dict-item]
    with pytest.raises(
        StateError, match=r"season.epsilon is 0.4 here and 0.5 in the state"
    ):
        DriftingGP(**like).restored(state)


def test_a_parameter_without_a_default_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = load_state(newest() / "posterior-streaming-cholesky.npz")
    like = registry.built_parameters({**state.spec})  # type: ignore[dict-item]
    add_parameter(monkeypatch, StreamingGP, "needed", inspect.Parameter.empty)
    with pytest.raises(StateError, match="needed is 1 here and missing in the state"):
        StreamingGP(**like, needed=1).restored(state)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "place", [(), ("posterior",), ("posterior", "kernel"), ("rule", "schedule")]
)
def test_a_parameter_of_a_newer_version_is_refused_with_advice(
    place: tuple[str, ...],
) -> None:
    state = load_state(newest() / "policy-gp-bucb.npz")
    policy = loaded(state)

    def with_more(spec: Any, inner: tuple[str, ...]) -> dict[str, Any]:
        if not inner:
            return {**spec, "warm": 3}
        return {**spec, inner[0]: with_more(spec[inner[0]], inner[1:])}

    newer = replace(state, spec=with_more(state.spec, place))
    where = ".".join((*place, "warm"))
    for read in (loaded, policy.restored):
        with pytest.raises(StateError, match=f"the unknown parameter {where}.*upgrade"):
            read(newer)
