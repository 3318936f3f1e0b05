"""Older states, brought up to date one small step at a time.

A parameter that was added with a default needs none of this: states without it get the default
(:func:`superarm.core.registry.completed`). Where a part's *memory* is held in another way than before,
its ``schema`` rises by one, and a function brings a state of the old schema to the next::

    @migration("road-gp", 1)
    def _count_trips(state: State) -> State:
        trips = len(np.unique(state.array("trip")))
        return replace(state, schema=2, scalars={**state.scalars, "trips": trips})

Steps follow each other: a state of schema 1 reaches schema 3 through the steps from 1 and from 2. Where
a part's *parameters* are renamed, or a part is, a function rewrites its specs, wherever they are held::

    @spec_migration("kernel", "matern")
    def _rename_length(spec: Mapping[str, Any]) -> Mapping[str, Any]:
        held = dict(spec)
        if "length" in held:
            held["lengthscale"] = held.pop("length")
        return held

A spec has no schema: such a function must leave specs of today as they are. Both stand beside the part
that they are about, and are never deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from .errors import InputError, StateError
from .inputs import require_type
from .registry import family_of_parameter
from .state import State

StateStep = Callable[[State], State]
SpecStep = Callable[[Mapping[str, Any]], Mapping[str, Any]]
_state_steps: dict[tuple[str, int], StateStep] = {}
_spec_steps: dict[tuple[str, str], SpecStep] = {}


def migration(kind: str, schema: int) -> Callable[[StateStep], StateStep]:
    """Decorator: a function that brings a state of this kind from ``schema`` to ``schema + 1``."""

    def add(step: StateStep) -> StateStep:
        if _state_steps.setdefault((kind, schema), step) is not step:
            raise InputError(
                f"there is already a migration of {kind!r} from schema {schema}"
            )
        return step

    return add


def spec_migration(family: str, name: str) -> Callable[[SpecStep], SpecStep]:
    """Decorator: a function that brings specs of this part up to date, and leaves those of today."""

    def add(step: SpecStep) -> SpecStep:
        if _spec_steps.setdefault((family, name), step) is not step:
            raise InputError(
                f"there is already a migration of specs of {family} {name!r}"
            )
        return step

    return add


def migrated(state: State, family: str | None = None) -> State:
    """The state after all steps that there are for it, for its parts, and for the specs in both.

    ``family`` is that of the part whose state it is, where it is known.
    """
    parts = {name: migrated(part) for name, part in state.parts.items()}
    if any(parts[name] is not part for name, part in state.parts.items()):
        state = replace(state, parts=parts)
    while (step := _state_steps.get((state.kind, state.schema))) is not None:
        after = step(state)
        if (after.kind, after.schema) != (state.kind, state.schema + 1):
            raise StateError(
                f"the migration of {state.kind!r} from schema {state.schema} must return schema "
                f"{state.schema + 1}, got {after.kind!r} of schema {after.schema}"
            )
        state = after
    if _spec_steps and state.spec is not None:
        state = replace(state, spec=_migrated_spec(state.spec, family))
    return state


def _migrated_spec(spec: Any, family: str | None) -> Any:
    """The spec with all specs in it brought up to date, the innermost first."""
    if isinstance(spec, list):
        return [_migrated_spec(item, family) for item in spec]
    if not isinstance(spec, Mapping):
        return spec
    held = {
        key: _migrated_spec(value, family_of_parameter(key))
        for key, value in spec.items()
    }
    family, name = held.get("family", family), held.get("name")
    step = None
    if isinstance(family, str) and isinstance(name, str):
        step = _spec_steps.get((family, name))
    return held if step is None else step(held)


def up_to_date(
    state: object, kind: str, schema: int, reader: str, family: str | None = None
) -> State:
    """The state as ``reader`` reads it: of this kind and schema, or an error that says what it is."""
    require_type(
        state, State, "state", "; superarm.core.states.load_state reads one from a file"
    )
    assert isinstance(state, State)
    if state.kind == kind:
        state = migrated(state, family)
    state.require(kind, schema, reader)
    return state
