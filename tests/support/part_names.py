"""Names of registered parts: which of them samples lack, and which of them a state holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from superarm.core import State, registry

FILES = {
    "kernel": "tests/support/sample_kernels.py",
    "oracle": "tests/support/sample_oracles.py",
    "rule": "tests/support/sample_rules.py",
    "schedule": "tests/support/sample_rules.py",
}
"""Where the samples of a family are."""


def own_names(family: str) -> list[str]:
    """The parts of superarm itself: tests of the same process may have registered others."""
    return [
        name
        for name in registry.names(family)
        if registry.find(family, name).__module__.startswith("superarm.")
    ]


def sample_named(family: str, name: str, samples: Mapping[str, Any]) -> Any:
    """The sample of one part; if there is none, say where it belongs."""
    assert name in samples, f"add {name!r} to {FILES[family]}"
    return samples[name]


def assert_sampled(family: str, names: Iterable[str]) -> None:
    """Every part of a family has a sample; if not, say where it belongs."""
    sampled = set(names)
    missing = [name for name in own_names(family) if name not in sampled]
    assert not missing, f"add {', '.join(map(repr, missing))} to {FILES[family]}"
    unknown = sorted(sampled - set(registry.names(family)))
    assert not unknown, f"{FILES[family]}: no {family} is called {unknown}"


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


def parts_of(state: State, family: str | None = None) -> Iterator[tuple[str, str]]:
    """Family and name of every part in a state, and in the states inside it."""
    yield from parts_in(state.spec, family)
    for part in state.parts.values():
        yield from parts_of(part)
