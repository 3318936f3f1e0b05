"""Orders of regret side by side: Table 1 of nika2022oclok, and that of sandberg2025bayesian."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from superarm.core import Covariance
from superarm.core.registry import family_of
from superarm.lab import theory
from superarm.lab.results.bounds import Rate, RateTable
from superarm.lab.results.curves import growth_exponent
from superarm.lab.results.formats import significant

from .cases import BoundInputs, Options, run_budget

_LEAST_ROUNDS = 8  # from which on a rate of growth over the last half means something
_OWN_KERNELS = {
    "squared-exponential": "O'CLOK-UCB, squared exponential",
    "matern": "O'CLOK-UCB, Matérn",
}


class _Order(NamedTuple):
    """A row of Table 1: the paper or the kernel, and the order as printed."""

    work: str
    order: str


_ORDERS = {
    "CUCB": _Order("“Combinatorial Multi-Armed Bandit” (2013)", "√(K T)"),
    "CC-MAB": _Order(
        "“Contextual Combinatorial Multi-armed Bandits …” (2018)",
        "K T^((D+2η)/(D+3η))",
    ),
    "ACC-UCB": _Order(
        "“Contextual Combinatorial Volatile Multi-armed Bandit …” (2020)",
        "K T^((D+1)/(D+2))",
    ),
    "O'CLOK-UCB, linear": _Order("linear kernel", "√(λ* K D T)"),
    "O'CLOK-UCB, squared exponential": _Order(
        "squared exponential kernel",
        "√(λ* K D T ln^D T)",
    ),
    "O'CLOK-UCB, Matérn": _Order("Matérn kernel", "λ* T^((D+ν)/(D+2ν))"),
}


def rate_table(shared: BoundInputs) -> RateTable | None:
    """Table 1 and Corollary 1 at the size of a run of O'CLOK-UCB; ``None`` for other runs.

    Args:
        shared: what all bounds need.
    """
    run = shared.run
    experiment = shared.experiment
    policy_of: dict[str, str] = {}  # the first of each algorithm
    for policy in run.policies:
        table = experiment.policies.get(policy, {})
        algorithm = str(table.get("policy", policy))
        policy_of.setdefault(algorithm, policy)
    if "oclok-ucb" not in policy_of or run.rounds < _LEAST_ROUNDS:
        return None
    model = shared.world.model
    features = shared.world.offer(1).arms.features
    budget = run_budget(run, policy_of["oclok-ucb"])
    dimension = features.shape[1]
    largest_variance = float(np.max(model.kernel.diag(features)))
    largest_eigenvalue = budget * largest_variance
    rounds = np.array([run.rounds / 2.0, run.rounds])
    size: Options = {
        "dimension": dimension,
        "budget": budget,
        "largest_eigenvalue": largest_eigenvalue,
    }
    printed = theory.rates_side_by_side(rounds, as_printed=True, **size)
    corollary = theory.rates_side_by_side(rounds, **size)
    algorithms = _algorithms_of_rows(model.kernel)
    rows = []
    for name, values in printed.items():
        at_half, at_end = values
        measured = None
        measured_policy = policy_of.get(algorithms.get(name, ""))
        if measured_policy is not None:
            measured = growth_exponent(run, measured_policy, 0)
        by_corollary = None
        if name.startswith("O'CLOK"):
            by_corollary = float(corollary[name][-1])
        rate = Rate(
            algorithm=name.partition(",")[0],
            work=_ORDERS[name].work,
            order=_ORDERS[name].order,
            value=float(at_end),
            corollary=by_corollary,
            exponent=math.log(at_end / at_half) / math.log(2.0),
            measured=measured,
        )
        rows.append(rate)
    note = (
        f"Orders up to logarithms, without their constants: compare how they grow, not how large they "
        f"are. K = {budget}, D = {dimension}, η = 1, ν = 2.5; λ* = {significant(largest_eigenvalue)}, "
        "which is K times the prior variance, its upper limit. ACC-UCB's optimality dimension is taken "
        "as D, its upper limit. Table 1 and Corollary 1 differ by √D for the squared exponential and "
        "by √(K/λ*) for the Matérn kernel. CUCB assumes finitely many arms without contexts."
    )
    return RateTable(tuple(rows), note)


def _algorithms_of_rows(kernel: Covariance) -> dict[str, str]:
    """The algorithm that a run measures a row of Table 1 by, where it has one."""
    algorithms = {"CC-MAB": "cc-mab", "ACC-UCB": "acc-ucb"}
    _, kernel_name = family_of(kernel) or ("", "")
    if kernel_name in _OWN_KERNELS:
        row = _OWN_KERNELS[kernel_name]
        algorithms[row] = "oclok-ucb"
    return algorithms


def bayesian_rate_table(shared: BoundInputs) -> RateTable | None:
    """Table 1 of sandberg2025bayesian at the size of a run on routes; ``None`` for short runs.

    Args:
        shared: what all bounds need.
    """
    run = shared.run
    if run.rounds < _LEAST_ROUNDS:
        return None
    gamma = shared.on_routes["gamma"]
    budget = shared.on_routes["budget"]
    rounds = np.array([run.rounds // 2, run.rounds])
    rows = []
    for work in theory.COMPARED_WORKS:
        at_half, at_end = work.order(rounds, gamma, budget)
        doublings = math.log2(rounds[1] / rounds[0])
        rate = Rate(
            algorithm=work.algorithms,
            work=f"{work.name}: {work.scope}",
            order=work.formula,
            value=float(at_end),
            corollary=None,
            exponent=math.log2(at_end / at_half) / doublings,
            measured=None,
        )
        rows.append(rate)
    note = (
        "Table 1 of “Bayesian Analysis of Combinatorial Gaussian Process Bandits” (2025): orders without "
        "their constants, so compare how they grow, not how large they are. γ is an upper bound, and "
        f"K = {budget} the longest route driven."
    )
    return RateTable(tuple(rows), note)
