"""Compositions of parts, as specs of policies in plain JSON.

===========  ==========================================================================
dimension    values
===========  ==========================================================================
posterior    every registered posterior
rule         every registered rule
oracle       every registered oracle
drift        rewards stay as they are, or drift
movement     free, every registered switching cost, every registered metric
feedback     rewards come at once, or late, partly and in any order
===========  ==========================================================================
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from superarm.core.registry import find, names, parameters_of

from .samples import posterior_sample, sample

FREE = "free"
STATIC = "static"
DRIFTING = "drifting"
AT_ONCE = "at once"
LATE = "late"
_DEAR = 1e6  # more than anything that can be gained


class Composition(NamedTuple):
    """One value of every dimension."""

    posterior: str
    rule: str
    oracle: str
    drift: str
    movement: str
    """``free``, or the family and the name of a part, such as ``switching distance``."""
    feedback: str

    @property
    def family_of_movement(self) -> str:
        """``free``, ``switching`` or ``metric``."""
        return self.movement.partition(" ")[0]

    @property
    def label(self) -> str:
        """The values, separated by commas."""
        return ", ".join(self)

    def spec(self, *, dear: bool = False) -> dict[str, Any]:
        """The spec of the policy.

        Args:
            dear: Whether switching costs more than anything that can be gained.
        """
        rule = sample("rule", self.rule)
        posterior = posterior_sample(self.posterior, drifts=self.drift == DRIFTING)
        oracle = sample("oracle", self.oracle)
        family, _, name = self.movement.partition(" ")
        parts: dict[str, Any] = {
            "posterior": posterior,
            "rule": rule,
            "direction": self._direction,
        }
        if family == "metric":
            return self._walk(parts, oracle, name)
        spec = {"name": "index", **parts, "oracle": oracle}
        if family == "switching":
            switching = sample("switching", name)
            price = price_of(name)
            if dear and price is not None:
                switching[price] = _DEAR
            spec["switching"] = switching
        return spec

    def _walk(
        self, parts: Mapping[str, Any], oracle: Mapping[str, Any], name: str
    ) -> dict[str, Any]:
        """A policy that moves by a metric: one action a round, as top-k chooses with k = 1."""
        spec = {"name": "tree-index", **parts, "metric": sample("metric", name)}
        if name == "points":  # the other metrics learn when an episode begins
            spec["update"] = "step"
        if self.oracle != "top-k":
            spec["oracle"] = oracle
        return spec

    @property
    def _direction(self) -> str:
        """Costs for what takes nothing else; rewards for all others."""
        takes_costs = self.oracle == "shortest-path" or self.rule == "rectified"
        return "minimize" if takes_costs else "maximize"


def price_of(switching: str) -> str | None:
    """The parameter of a switching cost that multiplies it; ``None`` if no such one is known.

    Args:
        switching: The name of the switching cost.
    """
    accepted = parameters_of("switching", switching)
    return next((name for name in ("cost", "scale") if name in accepted), None)


class Dimensions(NamedTuple):
    """The values of every dimension."""

    posterior: Sequence[str]
    rule: Sequence[str]
    oracle: Sequence[str]
    drift: Sequence[str]
    movement: Sequence[str]
    feedback: Sequence[str]


def dimensions(*, own: bool = False) -> Dimensions:
    """All registered parts, those of plug-ins included.

    Args:
        own: Whether to leave out parts that superarm does not contain itself.
    """
    movements = [
        f"{family} {name}"
        for family in ("switching", "metric")
        for name in _parts(family, own)
    ]
    return Dimensions(
        posterior=_parts("posterior", own),
        rule=_parts("rule", own),
        oracle=_parts("oracle", own),
        drift=(STATIC, DRIFTING),
        movement=(FREE, *movements),
        feedback=(AT_ONCE, LATE),
    )


def _parts(family: str, own: bool) -> list[str]:
    return [
        name
        for name in names(family)
        if not own or find(family, name).__module__.startswith("superarm.")
    ]


def every_composition(values: Dimensions) -> Iterator[Composition]:
    """All compositions, in order.

    Args:
        values: The values of every dimension.
    """
    for combination in itertools.product(*values):
        yield Composition(*combination)
