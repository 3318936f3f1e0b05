"""One sample of every part, and the small world in which compositions are played.

The world has eight arms. Their features are an owner, 0 or 1, and two coordinates in [0, 1]². Rewards are
about 0.5, several standard deviations from 0 and 1, so they can serve as costs and probabilities too.

A part that is not listed here, such as one of a plug-in, gets its required parameters by their names.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Bools, Decision, Floats, Offer
from superarm.core.errors import SpecError
from superarm.core.registry import parameters_of

Spec = Mapping[str, Any]

ARMS = 8
LEVEL = 0.5
"""The mean of all rewards."""
SPREAD = 0.1
"""The standard deviation of an arm's mean reward, and of the noise."""
TIME = 3
"""The column of the time, where it is a feature: after those of the arms."""


def features(seed: int = 0) -> Floats:
    """Features of all arms, (8, 3).

    Args:
        seed: The seed of the coordinates; fixed arms use 0.
    """
    coordinates = np.random.default_rng(seed).random((ARMS, 2))
    owners = np.arange(ARMS) % 2
    return np.column_stack([owners, coordinates])


def road_rows() -> Floats:
    """Rows of the arms as roads of one vehicle, (8, 9); see ``superarm.roads.rows``."""
    from superarm.roads.rows import build_rows

    edges = np.arange(ARMS, dtype=np.float64)
    return build_rows(
        edges=edges,
        expected=np.full(ARMS, LEVEL),
        terms=np.full((ARMS, 4), 0.1),
        mass_ratio=1.0,
        stops=np.zeros(ARMS),
        vehicle=0,
    )


# --- specs ---------------------------------------------------------------------------------


def _links(between: Floats) -> Spec:
    """A network of arms, from an (8, 8) table of 0 and 1."""
    rows, columns = np.nonzero(between)
    starts = np.searchsorted(rows, np.arange(ARMS + 1))
    values = between[rows, columns]
    return {
        "name": "sparse",
        "indptr": starts.tolist(),
        "indices": columns.tolist(),
        "data": values.tolist(),
    }


RING = np.roll(np.eye(ARMS), 1, axis=0) + np.roll(np.eye(ARMS), -1, axis=0)
"""Which arms are neighbours in a ring: two ways lead from any arm to any other."""
_SPACE: Spec = {
    "name": "matern",
    "nu": 1.5,
    "lengthscale": 0.5,
    "variance": SPREAD**2,
    "columns": [0, 1, 2],
}
_DRIFT: Spec = {"family": "kernel", "name": "temporal", "epsilon": 0.2}
_FADING: Spec = {
    "name": "product",
    "kernels": [_SPACE, {**_DRIFT, "column": TIME}],
}
_EXACT: Spec = {
    "kernel": _SPACE,
    "noise_variance": SPREAD**2,
    "mean": LEVEL,
}
_FINITE: Spec = {"name": "finite", **_EXACT, "arms": features().tolist()}
_DRIFTING_ARMS: Spec = {**_FINITE, "name": "drifting", "drift": _DRIFT}
_STREAMING: Spec = {"name": "streaming", **_EXACT}
_FADING_STREAM: Spec = {**_STREAMING, "kernel": _FADING, "timed": True}
_FIXED_WIDTH: Spec = {"name": "fixed", "value": 2.0}
_UCB: Spec = {"name": "ucb", "schedule": _FIXED_WIDTH}
_DISTANCES = np.abs(np.subtract.outer(np.arange(ARMS), np.arange(ARMS)))

PARAMETERS: Spec = {
    "arms": features().tolist(),
    "kernel": _SPACE,
    "noise_variance": SPREAD**2,
    "prior_variance": np.full(ARMS, SPREAD**2).tolist(),
    "posterior": _FINITE,
    "schedule": _FIXED_WIDTH,
    "rule": _UCB,
    "k": 2,
    "block": 3,
    "column": 0,
    "successors": _links(RING),
    "points": features().tolist(),
    "distances": _DISTANCES.tolist(),
}
"""Values of required parameters, for parts without a sample of their own."""

_OPTIONS: Mapping[tuple[str, str], Spec] = {
    # By default these only rank arms, which few oracles and no switching cost accept.
    ("rule", "expected-improvement"): {"scale": "linear"},
    ("rule", "probability-of-improvement"): {"scale": "linear"},
    ("rule", "bayes-ucb"): {"schedule": {"name": "simple-quantile"}},
    ("posterior", "streaming"): _STREAMING,
    ("posterior", "finite"): _FINITE,
    ("posterior", "independent"): {"mean": LEVEL, "arms": features().tolist()},
    ("posterior", "inducing"): {**_EXACT, "inducing": 6},
    ("posterior", "variational"): {**_EXACT, "inducing": 6},
    ("posterior", "drifting"): {**_EXACT, "drift": {**_DRIFT, "epsilon": 0.0}},
    ("posterior", "refitting"): {"every": 4, "fit_noise": False},
    ("posterior", "separate"): {"posterior": _STREAMING},
    ("posterior", "roads"): {
        "kernel": {
            "name": "graph-matern",
            "network": _links(2.0 * np.eye(ARMS) - RING),
            "nu": 2,
        },
        "sizes": np.ones(ARMS).tolist(),
        "scales": {
            "name": "roads",
            "near": 0.5 * SPREAD,
            "own": 0.5 * SPREAD,
            "fleet": [0.1 * SPREAD] * 5,
            "vehicle": [0.1 * SPREAD] * 5,
            "trip": [0.1 * SPREAD] * 5,
            "noise": SPREAD,
            "noise_per_time": SPREAD,
        },
    },
    ("oracle", "top-k"): {"k": 2},
    ("oracle", "tim"): {"epsilon": 0.5},
    ("oracle", "knapsack"): {},
    ("oracle", "matching"): {"pairs": 2},
    ("switching", "switch"): {"cost": SPREAD},
    ("switching", "distance"): {"scale": SPREAD},
}
"""Parameters of a part's sample besides those that ``PARAMETERS`` provides."""

_DRIFTING: Mapping[str, Spec] = {
    "streaming": _FADING_STREAM,
    "inducing": {"kernel": _FADING, "timed": True},
    "drifting": {"drift": _DRIFT},
    "refitting": {"posterior": _DRIFTING_ARMS},
    "separate": {"posterior": _FADING_STREAM},
    # These forget by themselves.
    "resetting": {},
    "change-detecting": {},
}
"""Parameters that replace those of a posterior's sample if rewards drift."""


def sample(family: str, name: str) -> dict[str, Any]:
    """The spec of a part's sample: plain JSON.

    Args:
        family: The family, such as "rule".
        name: The name in the family.
    """
    spec = {"name": name, **_OPTIONS.get((family, name), {})}
    for parameter, default in parameters_of(family, name).items():
        if parameter in spec or default is not inspect.Parameter.empty:
            continue
        if parameter not in PARAMETERS:
            raise SpecError(
                f"{family} {name!r} needs {parameter}, which no sample provides; give it a default, "
                "or use one of the parameters that superarm.testing.compositions.samples lists"
            )
        spec[parameter] = PARAMETERS[parameter]
    return spec


def posterior_sample(name: str, *, drifts: bool) -> dict[str, Any]:
    """The spec of a posterior for constant or drifting rewards.

    A posterior without any parameter for drift gets one anyway, which the library must refuse.

    Args:
        name: The name of the posterior.
        drifts: Whether rewards drift.
    """
    spec = sample("posterior", name)
    if not drifts:
        return spec
    if name in _DRIFTING:
        changes = _DRIFTING[name]
    elif "timed" in parameters_of("posterior", name):
        changes = {"kernel": _FADING, "timed": True}
    else:
        changes = {"drift": _DRIFT}
    return {**spec, **changes}


def has_fixed_arms(spec: Any) -> bool:
    """Whether a part in a spec fixes the arms, so that offers must not change them.

    Args:
        spec: The spec of a policy.
    """
    if isinstance(spec, Mapping):
        fixed = {"arms", "sizes", "successors", "points", "distances", "switching"}
        is_fixed = any(spec.get(name) is not None for name in fixed)
        return is_fixed or any(has_fixed_arms(value) for value in spec.values())
    return isinstance(spec, list) and any(has_fixed_arms(item) for item in spec)


# --- what offers of an oracle look like, and what it may choose ----------------------------


class OracleSample(NamedTuple):
    """The structure of an oracle's offers, and what is feasible there."""

    structure: Spec | None
    """The spec of the structure; ``None``: the oracle needs none."""
    is_feasible: Callable[[Offer, Decision], bool]
    """Whether a decision is feasible, besides that its arms are available and different."""


_GROUPS = np.arange(ARMS) // 2
_START = 0
_GOAL = ARMS // 2


def _anything(offer: Offer, decision: Decision) -> bool:
    return True


def _is_pair_of_arms(offer: Offer, decision: Decision) -> bool:
    return len(decision.positions) == 2


def _one_of_a_group(offer: Offer, decision: Decision) -> bool:
    groups = _GROUPS[decision.positions]
    return len(groups) == 2 and len(np.unique(groups)) == 2


def _fits_the_budget(offer: Offer, decision: Decision) -> bool:
    return 0 < len(decision.positions) <= 2  # every arm weighs 1, the budget is 2


def _is_matching(offer: Offer, decision: Decision) -> bool:
    pairs: Any = offer.structure
    left = pairs.left[decision.positions]
    right = pairs.right[decision.positions]
    count = len(decision.positions)
    are_different = len(np.unique(left)) == len(np.unique(right)) == count
    return are_different and 0 < count <= 2


def _all_links_of_nodes(offer: Offer, decision: Decision) -> bool:
    pairs: Any = offer.structure
    nodes: Any = decision.action
    leaves = np.isin(pairs.left, nodes)
    if offer.available is not None:
        leaves &= offer.available
    expected = np.flatnonzero(leaves)
    return len(nodes) <= 2 and np.array_equal(np.sort(decision.positions), expected)


def _is_route(offer: Offer, decision: Decision) -> bool:
    route = decision.positions
    follows = RING[route[:-1], route[1:]] == 1.0
    return bool(route[0] == _START and route[-1] == _GOAL and follows.all())


_PAIRS: Spec = {
    "name": "pairs",
    "left": _GROUPS.tolist(),
    "right": (np.arange(ARMS) % 2).tolist(),
}
_ORACLES: Mapping[str, OracleSample] = {
    "top-k": OracleSample(None, _is_pair_of_arms),
    "group-top-k": OracleSample(
        {"name": "groups", "of_arm": _GROUPS.tolist(), "limits": [1] * (ARMS // 2)},
        _one_of_a_group,
    ),
    "knapsack": OracleSample(
        {"name": "weights", "of_arm": [1.0] * ARMS, "budget": 2.0}, _fits_the_budget
    ),
    "matching": OracleSample(_PAIRS, _is_matching),
    "coverage": OracleSample(_PAIRS, _all_links_of_nodes),
    "tim": OracleSample(_PAIRS, _all_links_of_nodes),
    "shortest-path": OracleSample(
        {"name": "trip", "start": _START, "goal": _GOAL}, _is_route
    ),
}


def oracle_sample(name: str) -> OracleSample:
    """What offers of an oracle look like; without structure for one of a plug-in.

    Args:
        name: The name of the oracle.
    """
    return _ORACLES.get(name, OracleSample(None, _anything))


def availability(step: int) -> Bools:
    """Which arms are available in a round: all but one, so that every structure is still feasible.

    Args:
        step: The round.
    """
    available = np.ones(ARMS, dtype=np.bool_)
    barred = [arm for arm in range(ARMS) if arm not in (_START, _GOAL)]
    available[barred[step % len(barred)]] = False
    return available
