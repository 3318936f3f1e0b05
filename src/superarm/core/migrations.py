"""Migrations of older states, one small step at a time.

A parameter that was added with a default needs no migration: states without it get the default
(:func:`superarm.core.registry.completed`). If a part stores its *memory* in another way than before, its
``schema`` rises by one, and a function migrates a state of the old schema to the next::

    @migration("road-gp", 1)
    def _count_trips(state: State) -> State:
        trips = len(np.unique(state.array("trip")))
        return replace(state, schema=2, scalars={**state.scalars, "trips": trips})

Steps follow each other: a state of schema 1 reaches schema 3 through the steps from 1 and from 2. If
parameters are renamed, or a part is, a function rewrites its specs, wherever they are stored::

    @spec_migration("kernel", "matern")
    def _rename_length(spec: Mapping[str, Any]) -> Mapping[str, Any]:
        renamed = dict(spec)
        if "length" in renamed:
            renamed["lengthscale"] = renamed.pop("length")
        return renamed

A spec has no schema: such a function must return today's specs unchanged. Define both beside the part
that they are about, and never delete them.
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
    """Decorator of a function that migrates a state to the next schema.

    Args:
        kind: The kind of state.
        schema: The schema to migrate from; the function returns ``schema + 1``.
    """

    def add(step: StateStep) -> StateStep:
        if _state_steps.setdefault((kind, schema), step) is not step:
            raise InputError(
                f"there is already a migration of {kind!r} from schema {schema}"
            )
        return step

    return add


def spec_migration(family: str, name: str) -> Callable[[SpecStep], SpecStep]:
    """Decorator of a function that rewrites older specs of a part and returns today's unchanged.

    Args:
        family: The family of the part.
        name: Its name in the specs, which may be an old one.
    """

    def add(step: SpecStep) -> SpecStep:
        if _spec_steps.setdefault((family, name), step) is not step:
            raise InputError(
                f"there is already a migration of specs of {family} {name!r}"
            )
        return step

    return add


def migrated(state: State, family: str | None = None) -> State:
    """The state after all migrations of it, of its parts, and of the specs in both.

    Args:
        state: The state of a part.
        family: The part's family, where it is known.
    """
    state = _migrate_parts(state)
    state = _migrate_memory(state)
    if _spec_steps and state.spec is not None:
        spec = _migrate_spec(state.spec, family)
        state = replace(state, spec=spec)
    return state


def _migrate_parts(state: State) -> State:
    """The state with all parts migrated; the same object if none needs it."""
    parts: dict[str, State] = {}
    has_changed = False
    for name, part in state.parts.items():
        new_part = migrated(part)
        parts[name] = new_part
        if new_part is not part:
            has_changed = True
    return replace(state, parts=parts) if has_changed else state


def _migrate_memory(state: State) -> State:
    """The state after all steps from its schema."""
    while True:
        step = _state_steps.get((state.kind, state.schema))
        if step is None:
            return state
        state = _apply_step(step, state)


def _apply_step(step: StateStep, state: State) -> State:
    result = step(state)
    if result.kind != state.kind or result.schema != state.schema + 1:
        raise StateError(
            f"the migration of {state.kind!r} from schema {state.schema} must return schema "
            f"{state.schema + 1}, got {result.kind!r} of schema {result.schema}"
        )
    return result


def _migrate_spec(spec: Any, family: str | None) -> Any:
    """The spec with all nested specs migrated, the innermost first."""
    if isinstance(spec, list):
        return [_migrate_spec(item, family) for item in spec]
    if not isinstance(spec, Mapping):
        return spec
    with_new_parts = {
        key: _migrate_spec(value, family_of_parameter(key))
        for key, value in spec.items()
    }
    family = with_new_parts.get("family", family)
    name = with_new_parts.get("name")
    if not isinstance(family, str) or not isinstance(name, str):
        return with_new_parts
    step = _spec_steps.get((family, name))
    return with_new_parts if step is None else step(with_new_parts)


def up_to_date(
    state: object, kind: str, schema: int, reader: str, family: str | None = None
) -> State:
    """The state, migrated to the schema that its reader expects; an error if that is impossible.

    Args:
        state: A state, or what was passed in its place.
        kind: The kind that the reader expects.
        schema: The schema that the reader expects.
        reader: The class that reads it, for errors.
        family: The family of the reader, where it has one.
    """
    require_type(
        state, State, "state", "; superarm.core.states.load_state reads one from a file"
    )
    assert isinstance(state, State)
    if state.kind == kind:
        state = migrated(state, family)
    state.require(kind, schema, reader)
    return state
