"""Orders of regret side by side: Table 1 and Corollary 1 of nika2022oclok."""

from __future__ import annotations

import math

import numpy as np

from superarm.core.registry import family_of
from superarm.lab import theory
from superarm.lab.results.bounds import Rate, RateTable
from superarm.lab.results.curves import growth_exponent
from superarm.lab.results.formats import significant

from .cases import BoundInputs, Options

_LEAST_ROUNDS = 8  # from which on a rate of growth over the last half means something
_OWN_KERNELS = {
    "squared-exponential": "O'CLOK-UCB, squared exponential",
    "matern": "O'CLOK-UCB, Matérn",
}
_ORDERS = {  # of each row: the paper or the kernel, and the order as printed
    "CUCB": ("“Combinatorial Multi-Armed Bandit” (2013)", "√(K T)"),
    "CC-MAB": (
        "“Contextual Combinatorial Multi-armed Bandits …” (2018)",
        "K T^((D+2η)/(D+3η))",
    ),
    "ACC-UCB": (
        "“Contextual Combinatorial Volatile Multi-armed Bandit …” (2020)",
        "K T^((D+1)/(D+2))",
    ),
    "O'CLOK-UCB, linear": ("linear kernel", "√(λ* K D T)"),
    "O'CLOK-UCB, squared exponential": (
        "squared exponential kernel",
        "√(λ* K D T ln^D T)",
    ),
    "O'CLOK-UCB, Matérn": ("Matérn kernel", "λ* T^((D+ν)/(D+2ν))"),
}


def rate_table(shared: BoundInputs) -> RateTable | None:
    """Table 1 and Corollary 1 at the size of a run of O'CLOK-UCB; none for other runs."""
    run = shared.run
    experiment = shared.experiment
    algorithms = {
        policy: str(experiment.policies.get(policy, {}).get("policy", policy))
        for policy in run.policies
    }
    ours = [policy for policy, name in algorithms.items() if name == "oclok-ucb"]
    if not ours or run.rounds < _LEAST_ROUNDS:
        return None
    model = shared.world.model
    features = shared.world.offer(1).arms.features
    budget = max(int(run.choices(ours[0], 0, seed).shape[1]) for seed in run.seeds)
    dimension = features.shape[1]
    largest_eigenvalue = budget * float(np.max(model.kernel.diag(features)))
    rounds = np.array([run.rounds / 2.0, run.rounds])
    size: Options = {
        "dimension": dimension,
        "budget": budget,
        "largest_eigenvalue": largest_eigenvalue,
    }
    printed = theory.rates_side_by_side(rounds, as_printed=True, **size)
    corollary = theory.rates_side_by_side(rounds, **size)
    own = _OWN_KERNELS.get(str((family_of(model.kernel) or ("", ""))[1]))
    policies = {"CC-MAB": "cc-mab", "ACC-UCB": "acc-ucb", own: "oclok-ucb"}
    rows = []
    for name, values in printed.items():
        runs = [
            policy
            for policy, other in algorithms.items()
            if other == policies.get(name)
        ]
        work, order = _ORDERS[name]
        rows.append(
            Rate(
                algorithm=name.partition(",")[0],
                work=work,
                order=order,
                value=float(values[-1]),
                corollary=float(corollary[name][-1])
                if name.startswith("O'CLOK")
                else None,
                exponent=math.log(values[-1] / values[0]) / math.log(2.0),
                measured=growth_exponent(run, runs[0], 0) if runs else None,
            )
        )
    note = (
        f"Orders up to logarithms, without their constants: compare how they grow, not how large they "
        f"are. K = {budget}, D = {dimension}, η = 1, ν = 2.5; λ* = {significant(largest_eigenvalue)}, "
        "which is K times the prior variance, its upper limit. ACC-UCB's optimality dimension is taken "
        "as D, its upper limit. Table 1 and Corollary 1 differ by √D for the squared exponential and "
        "by √(K/λ*) for the Matérn kernel. CUCB assumes finitely many arms without contexts."
    )
    return RateTable(tuple(rows), note)
