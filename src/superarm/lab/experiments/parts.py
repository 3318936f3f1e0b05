"""What the tables ``[problem]`` and ``[policies.NAME]`` build: specs of registered parts.

Beside its parameters, a policy's table may hold ``assumes``, what its model states instead of the
problem's, and ``wrapped``, which wraps its posterior.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from superarm.core import Policy
from superarm.core.errors import InputError, SpecError
from superarm.core.inputs import as_positive
from superarm.core.registry import build, check_parameters, names, parameters_of
from superarm.models.worlds import World
from superarm.policies.wrapping import checked_wrappers, wrapped

SUPPLIED_PARAMETERS = frozenset({"model", "problem", "seed", "horizon"})
"""Parameters that the driver supplies."""
KEYS_OF_ONE_POLICY = ("assumes", "wrapped")
"""Keys of a policy's table beside its parameters."""
FORMER_ASSUMES = "told"
"""The name of ``assumes`` in older experiments and in the runs they made."""
_MODEL_PARTS = {"drift": "kernel", "kernel": "kernel", "scales": "scales"}
"""Fields of a model that ``assumes`` may replace, and their families."""


def policy_spec(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a policy: ``policy`` names the registered part, else its own name does.

    Args:
        name: of the policy in the experiment.
        options: its table.
    """
    parameters = {
        key: value for key, value in options.items() if key not in KEYS_OF_ONE_POLICY
    }
    registered_name = parameters.pop("policy", name)
    return {"name": registered_name, **parameters}


def own_parameters(family: str, name: str) -> list[str]:
    """The parameters of a registered part that an experiment may set.

    Args:
        family: "problem" or "policy".
        name: under which the part is registered.
    """
    return [
        key for key in parameters_of(family, name) if key not in SUPPLIED_PARAMETERS
    ]


def check_problem(spec: Mapping[str, Any], where: str) -> None:
    """Refuse a problem with an unknown name or parameter.

    Args:
        spec: the table ``[problem]``.
        where: names the source in errors.
    """
    _check_parameters("problem", spec, where)


def check_policy(name: str, options: Mapping[str, Any], where: str) -> None:
    """Refuse a policy with an unknown name, parameter, ``assumes`` or ``wrapped``.

    Args:
        name: of the policy in the experiment.
        options: its table.
        where: names the source in errors.
    """
    if FORMER_ASSUMES in options:
        raise SpecError(
            f"{where}: {FORMER_ASSUMES!r} is now called 'assumes'; rename the key"
        )
    _check_parameters("policy", policy_spec(name, options), where)
    try:
        model_changes(options.get("assumes", {}))
    except InputError as error:
        raise SpecError(f"{where}: assumes: {error}") from None
    try:
        checked_wrappers(options.get("wrapped", []))
    except InputError as error:
        raise SpecError(f"{where}: wrapped: {error}") from None


def _check_parameters(family: str, spec: Mapping[str, Any], where: str) -> None:
    """Names and parameters before anything runs, so that a typo costs no computing time."""
    if "name" not in spec:
        raise SpecError(
            f"{where}: the {family} needs a name; choose one of {names(family)}"
        )
    options = {key: value for key, value in spec.items() if key != "name"}
    try:
        check_parameters(family, spec["name"], options, besides=SUPPLIED_PARAMETERS)
    except SpecError as error:
        raise type(error)(f"{where}: {error}") from None


def model_changes(table: Any) -> dict[str, Any]:
    """Fields of the model that one learner gets instead of what the problem states.

    Args:
        table: ``assumes`` of a policy's table.
    """
    keys = {*_MODEL_PARTS, "noise_variance"}
    if not isinstance(table, Mapping) or not set(table) <= keys:
        raise SpecError(
            f"{table!r:.60} is no valid 'assumes'; its keys are {', '.join(_MODEL_PARTS)} "
            "and noise_variance, as in "
            '{drift = {name = "temporal", epsilon = 0.1}}'
        )
    changes: dict[str, Any] = {}
    for key, value in table.items():
        if key == "noise_variance":
            changes[key] = as_positive(value, key)
        else:
            changes[key] = build(_MODEL_PARTS[key], value)
    return changes


def build_policy(name: str, options: Mapping[str, Any], world: World) -> Policy:
    """The policy for a world, with its own model and wrappers.

    Args:
        name: of the policy in the experiment.
        options: its table.
        world: in which it plays.
    """
    model = world.model
    model_table = options.get("assumes", {})
    if "scales" in model_table and not hasattr(model, "scales"):
        raise SpecError(f"{name}: assumes: only a fleet has scales; leave them out")
    if model_table:
        model = replace(model, **model_changes(model_table))
    spec = policy_spec(name, options)
    accepted = parameters_of("policy", spec["name"])
    supplied: dict[str, Any] = {}
    if "model" in accepted:
        supplied["model"] = model
    if "problem" in accepted:
        supplied["problem"] = world
    policy: Policy = build("policy", spec, **supplied)
    wrappers = checked_wrappers(options.get("wrapped", []))
    return wrapped(policy, *wrappers) if wrappers else policy
