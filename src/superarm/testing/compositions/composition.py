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
_PROHIBITIVE_COST = 1e6  # more than any decision can gain


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
    def movement_family(self) -> str:
        """``free``, ``switching`` or ``metric``."""
        return self.movement.partition(" ")[0]

    @property
    def label(self) -> str:
        """The values, separated by commas."""
        return ", ".join(self)

    def spec(self, *, prohibit_switching: bool = False) -> dict[str, Any]:
        """The spec of the policy.

        Args:
            prohibit_switching: Whether switching costs more than any decision can gain.
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
            if prohibit_switching and price is not None:
                switching[price] = _PROHIBITIVE_COST
            spec["switching"] = switching
        return spec

    def _walk(
        self, parts: Mapping[str, Any], oracle: Mapping[str, Any], name: str
    ) -> dict[str, Any]:
        """A policy that moves by a metric and chooses one action a round, like top-k with k = 1."""
        spec = {"name": "tree-index", **parts, "metric": sample("metric", name)}
        if name == "points":  # the other metrics learn when an episode begins
            spec["update"] = "step"
        if self.oracle != "top-k":
            spec["oracle"] = oracle
        return spec

    @property
    def _direction(self) -> str:
        """``minimize`` for parts that accept only costs, otherwise ``maximize``."""
        takes_costs = self.oracle == "shortest-path" or self.rule == "rectified"
        return "minimize" if takes_costs else "maximize"


def price_of(switching: str) -> str | None:
    """The parameter of a switching cost that multiplies it; ``None`` if it has none.

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


def dimensions(*, builtin_only: bool = False) -> Dimensions:
    """All registered parts, those of plug-ins included.

    Args:
        builtin_only: Whether to leave out parts of plug-ins.
    """
    movements = [
        f"{family} {name}"
        for family in ("switching", "metric")
        for name in _parts(family, builtin_only)
    ]
    return Dimensions(
        posterior=_parts("posterior", builtin_only),
        rule=_parts("rule", builtin_only),
        oracle=_parts("oracle", builtin_only),
        drift=(STATIC, DRIFTING),
        movement=(FREE, *movements),
        feedback=(AT_ONCE, LATE),
    )


def _parts(family: str, builtin_only: bool) -> list[str]:
    return [
        name
        for name in names(family)
        if not builtin_only or find(family, name).__module__.startswith("superarm.")
    ]


def every_composition(values: Dimensions) -> Iterator[Composition]:
    """All compositions, in order.

    Args:
        values: The values of every dimension.
    """
    for combination in itertools.product(*values):
        yield Composition(*combination)
