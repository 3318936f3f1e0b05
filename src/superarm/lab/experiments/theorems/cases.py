"""What the bounds of several policies need of a run, and why a policy has none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from superarm.core import Floats
from superarm.core.caching import cached_property
from superarm.lab import theory
from superarm.lab.experiments.spec import Experiment
from superarm.lab.simulation import Run
from superarm.models.worlds import World

_POINTS = 200
Options = Mapping[str, Any]

NO_THEOREM = {
    "gp-greedy": "it does not explore: nothing keeps its regret from growing linearly with T",
    "kernel-ucb": "“Finite-Time Analysis of Kernelised Contextual Bandits” (2013) bounds the regret of "
    "SupKernelUCB, a slower variant, not of KernelUCB itself",
    "genie": "it is not a learner: it knows the truth of the round before, and is itself a lower line "
    "for the others",
    **dict.fromkeys(
        ("prior", "known-cost", "random", "stationary"), "it learns nothing"
    ),
    **dict.fromkeys(
        ("minc-known", "offline"), "it knows the costs: there is nothing to learn"
    ),
    "cgp-lcb": "it ignores what moving costs, which the regret counts: nothing keeps the regret from "
    "growing linearly with T",
}


class NoBoundError(Exception):
    """Why a policy has no bound: the message is a sentence for the report."""


def run_budget(run: Run, policy: str) -> int:
    """The most arms that a policy chose in a round of the first setting.

    Args:
        run: a finished run.
        policy: its name in the run.
    """
    most = 0
    for seed in run.seeds:
        choices = run.choices(policy, 0, seed)  # (T, most arms)
        most = max(most, int(choices.shape[1]))
    return most


@dataclass(frozen=True, kw_only=True, eq=False)
class BoundInputs:
    """What the bounds of all policies need, computed once.

    Args:
        run: a finished run.
        experiment: in the first setting of the run.
    """

    run: Run
    experiment: Experiment

    @cached_property
    def rounds(self) -> Floats:
        """Where bounds are drawn."""
        spaced = np.geomspace(1, self.run.rounds, _POINTS)
        rounds = np.unique(spaced.astype(np.intp))
        return rounds.astype(np.float64)

    @cached_property
    def world(self) -> World:
        """Of the first seed: truths differ from seed to seed, the model does not."""
        return self.experiment.build_problem(
            seed=self.run.seeds[0], horizon=self.run.rounds
        )

    def growth(self, observed: int) -> theory.ArmSetGrowth:
        """γ of so many observations of fixed arms.

        Args:
            observed: the largest number of observations.
        """
        model = self.world.model
        return theory.ArmSetGrowth(
            kernel=model.kernel,
            features=model.arms,
            noise_variance=model.noise_variance,
            horizon=observed,
        )

    @cached_property
    def on_routes(self) -> dict[str, Any]:
        """Arguments of the bound of every route policy."""
        run = self.run
        model = self.world.model
        if model.arms is None:
            raise NoBoundError(
                "arms change from round to round: Theorem 3.2 needs finitely many"
            )
        # The theorem's K is the most arms that a route may have; the longest driven stands in.
        budget = max(run_budget(run, policy) for policy in run.policies)
        eigenvalue = theory.prior_eigenvalue_bound(model.kernel, model.arms, budget)
        variances = model.kernel.diag(model.arms)
        return {
            "gamma": self.growth(run.rounds * budget),
            "arms": len(model.arms),
            "budget": budget,
            "noise_variance": model.noise_variance,
            "largest_eigenvalue": eigenvalue.value,
            "largest_variance": float(np.max(variances)),
        }
