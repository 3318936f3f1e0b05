"""Decisions restricted to a discretisation that grows finer: section 4.2 of paper 002."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from superarm.core import Arms, Bools, Decision, Feedback, Floats, Offer, Policy, State
from superarm.errors import InputError
from superarm.inputs import as_vector
from superarm.registry import describe, register

from .base import Saved

_MOST_POINTS = 20_000


@register("policy", "discretised")
class DiscretisedPolicy(Saved):
    """Another policy, offered in round t only the arms that represent a grid D_t.

    D_t is the uniform grid with ⌈B L r d t²⌉ points a side on the cube of side r from ``lower``,
    for which every function of norm at most B has |f(x) − f([x]_t)| ≤ 1/t²
    [chowdhury2017kernelized, eq. 7; the paper's cube is [0, r]^d, and only differences matter].
    The available arms stand for it: an arm is kept if it is the nearest to some grid point, and
    the bound holds for the nearest kept arm too. Once the grid is so fine that every arm is kept,
    all of them are offered; a grid of more than 20 000 points is taken to be.
    """

    kind = "discretised-policy"
    schema = 1

    def __init__(
        self, policy: Policy, *, norm_bound: float, lipschitz: float, lower: Floats, side: float
    ) -> None:
        if isinstance(policy, type) or not isinstance(policy, Policy):
            raise InputError(f"policy is {policy!r:.60}, which is no policy; see superarm.core.Policy")
        self._policy = policy
        self._lower = as_vector(lower, "lower")
        self._side = float(side)
        self._norm_bound = float(norm_bound)
        self._lipschitz = float(lipschitz)
        self._dimension = len(self._lower)
        self._points_at_first = self._norm_bound * self._lipschitz * self._side * self._dimension

    @property
    def deterministic(self) -> bool:
        return self._policy.deterministic

    @property
    def exchangeable(self) -> bool:
        return self._policy.exchangeable

    def kept(self, arms: Arms, step: int, available: Bools | None = None) -> Bools:
        """Which arms, of those available, stand for D_t, (n,)."""
        from scipy.spatial import cKDTree

        per_axis = max(1, math.ceil(self._points_at_first * step**2))
        everything = np.ones(len(arms), dtype=np.bool_) if available is None else available
        candidates = np.flatnonzero(everything)
        if per_axis**self._dimension > _MOST_POINTS or len(candidates) == 0:
            return everything.copy()
        offsets = (np.arange(per_axis) + 0.5) * (self._side / per_axis)
        axes = [low + offsets for low in self._lower]
        grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
        _, nearest = cKDTree(arms.features[candidates]).query(grid.reshape(-1, self._dimension))
        mask = np.zeros(len(arms), dtype=np.bool_)
        mask[candidates[nearest]] = True
        return mask

    def decide(self, offer: Offer, rng: np.random.Generator) -> Decision:
        mask = self.kept(offer.arms, offer.step, offer.available)
        if mask.all():
            return self._policy.decide(offer, rng)
        return self._policy.decide(replace(offer, available=mask), rng)

    def commit(self, decision: Decision) -> None:
        self._policy.commit(decision)

    def learn(
        self, offer: Offer, decision: Decision, feedback: Feedback, rng: np.random.Generator
    ) -> None:
        self._policy.learn(offer, decision, feedback, rng)

    def parameters(self) -> Mapping[str, Any]:
        return {
            "policy": self._policy,
            "norm_bound": self._norm_bound,
            "lipschitz": self._lipschitz,
            "lower": self._lower,
            "side": self._side,
        }

    def state(self) -> State:
        parts = {"policy": self._policy.state()}
        return State(kind=self.kind, schema=self.schema, parts=parts, spec=describe(self))

    def restored(self, state: State) -> DiscretisedPolicy:
        """This policy with the memory that ``state`` holds."""
        self._check(state)
        inner = self._policy.restored(state.part("policy"))
        return type(self)(**{**self.parameters(), "policy": inner})
