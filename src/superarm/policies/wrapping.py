"""Any policy on a posterior that resets, detects changes, or refits its hyper-parameters."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from superarm.core import Policy
from superarm.core.errors import InputError, SpecError
from superarm.core.registry import build, check_parameters, find, names, suggestion
from superarm.posteriors import Wrapping

from .index import IndexPolicy


def wrapped(policy: Policy, *wrappers: Mapping[str, Any] | str) -> IndexPolicy:
    """The policy with its posterior wrapped, as in ``wrapped(policy, {"name": "resetting", "block": 48})``.

    Args:
        policy: The policy.
        wrappers: Specs of wrapping posteriors, the innermost first; a name alone takes the default
            options.
    """
    if not isinstance(policy, IndexPolicy):
        raise InputError(
            f"{type(policy).__name__} has no posterior to wrap; leave 'wrapped' out, or choose a "
            "policy that has one, such as gp-ts"
        )
    posterior = policy.posterior
    for spec in checked_wrappers([*wrappers]):
        posterior = build("posterior", spec, posterior=posterior)
    parameters = {**policy.parameters(), "posterior": posterior}
    new_policy = type(policy)(**parameters)
    new_policy.interpretations = policy.interpretations
    new_policy.encoding = policy.encoding
    return new_policy


def checked_wrappers(wrappers: Any) -> list[Mapping[str, Any]]:
    """Wrappers as a list of checked specs.

    Args:
        wrappers: One name or spec, or a list of them, as an experiment states them.
    """
    if not isinstance(wrappers, list | tuple):
        wrappers = [wrappers]
    wrapper_names = _wrapper_names()
    specs = []
    for wrapper in wrappers:
        spec = {"name": wrapper} if isinstance(wrapper, str) else wrapper
        if not isinstance(spec, Mapping) or "name" not in spec:
            raise SpecError(
                f'a wrapper is {wrapper!r:.60}; write {{name = "resetting", block = 48}}'
            )
        name = spec["name"]
        if name not in wrapper_names:
            advice = suggestion(name, wrapper_names)
            raise SpecError(f"{name!r} is no posterior that wraps another; {advice}")
        options = {key: value for key, value in spec.items() if key != "name"}
        check_parameters("posterior", name, options, besides={"posterior"})
        specs.append(spec)
    return specs


def _wrapper_names() -> list[str]:
    """Names of registered posteriors that wrap another."""
    wrappers = []
    for name in names("posterior"):
        part = find("posterior", name)
        if inspect.isclass(part) and issubclass(part, Wrapping):
            wrappers.append(name)
    return wrappers
