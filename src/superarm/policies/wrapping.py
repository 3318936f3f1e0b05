"""Any policy on a posterior that starts anew, notices changes, or fits its hyper-parameters again."""

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
    """The policy with its posterior wrapped by each spec in turn, the first one innermost.

    ``wrapped(policy, {"name": "resetting", "block": 48})``; a name alone takes the default options.
    """
    if not isinstance(policy, IndexPolicy):
        told = f"{type(policy).__name__} has no posterior to wrap"
        raise InputError(
            f"{told}; leave 'wrapped' out, or choose a policy that has one, such as gp-ts"
        )
    posterior = policy.posterior
    for spec in checked_wrappers([*wrappers]):
        posterior = build("posterior", spec, posterior=posterior)
    around = type(policy)(**{**policy.parameters(), "posterior": posterior})
    around.interpretations = policy.interpretations
    around.encoding = policy.encoding
    return around


def checked_wrappers(given: Any) -> list[Mapping[str, Any]]:
    """What an experiment says of wrappers, as a list of specs: one name or table, or several."""
    parts = ((name, find("posterior", name)) for name in names("posterior"))
    known = [
        name
        for name, part in parts
        if inspect.isclass(part) and issubclass(part, Wrapping)
    ]
    specs = []
    for each in given if isinstance(given, list | tuple) else [given]:
        spec = {"name": each} if isinstance(each, str) else each
        if not isinstance(spec, Mapping) or "name" not in spec:
            raise SpecError(
                f'a wrapper is {each!r:.60}; write {{name = "resetting", block = 48}}'
            )
        if spec["name"] not in known:
            told = suggestion(spec["name"], known)
            raise SpecError(
                f"{spec['name']!r} is no posterior that wraps another; {told}"
            )
        options = {key: spec[key] for key in spec if key != "name"}
        check_parameters("posterior", spec["name"], options, besides={"posterior"})
        specs.append(spec)
    return specs
