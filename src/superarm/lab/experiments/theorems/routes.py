"""The Bayesian bound on routes: Theorem 3.2 of sandberg2025bayesian, for any widths."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from superarm.lab import theory
from superarm.lab.experiments.statements.judging import EXACT_POSTERIORS
from superarm.lab.results.bounds import Bound
from superarm.lab.results.roads import schedule_of
from superarm.rules import BayesianGPUCB

from .cases import NO_THEOREM, BoundInputs, NoBoundError, Options

ROUTE_POLICIES = ("route-ucb", "route-bucb", "route-ts", "route-greedy", "route-rule")
ROUTE_NOTE = (
    "Bounds on routes are ours: they follow the proof of Theorem 3.2 of “Bayesian Analysis of "
    "Combinatorial Gaussian Process Bandits” (2025), for any widths and for rectified regret. They "
    "bound the mean over truths drawn from the model. λ* is that of the prior, γ an upper bound, and K "
    "the longest route driven."
)


def route_bound(shared: BoundInputs, policy: str, name: str, options: Options) -> Bound:
    """Theorem 3.2 itself covers none, as regret is rectified; the bound of any widths does.

    Args:
        shared: what all bounds need.
        policy: its name in the run.
        name: under which it is registered.
        options: its parameters.
    """
    obstacle = next(_obstacles(shared.experiment.problem, name, options), None)
    if obstacle is not None:
        raise NoBoundError(obstacle)
    run = shared.run
    arms = shared.on_routes["arms"]
    schedule = schedule_of(run, policy, 0, arms)
    if schedule is None:
        # Thompson sampling has no widths, and takes those of GP-UCB in the analysis.
        schedule = BayesianGPUCB(arms=arms)
    steps = range(1, run.rounds + 1)
    widths = [schedule.width(step, lambda count: 0.0) for step in steps]
    values = theory.bayesian_regret_bound_of_widths(
        widths, rectified=True, **shared.on_routes
    )
    whose = "the widths of GP-UCB" if name == "route-ts" else "its own widths"
    text = f"ours, with {whose}; Theorem 3.2 itself gives no bound because "
    text += _why_not_theorem(name, options)
    last_rounds = shared.rounds.astype(np.intp)
    drawn = values[last_rounds - 1]
    return Bound(f"bound of {policy}", shared.rounds, drawn, text)


def _obstacles(problem: Options, name: str, options: Options) -> Iterator[str]:
    """Why there is no bound: other rules, and a posterior that is not that of the truth's prior."""
    posterior = options["posterior"]
    assumed_lengthscale = problem.get("model_lengthscale")
    true_lengthscale = problem.get("lengthscale", 1.0)
    if problem["name"] != "navigation":
        yield "the truth is not drawn from the model’s prior"
    if problem.get("switch_cost"):
        yield "no theorem implemented here covers switching costs"
    if assumed_lengthscale not in (None, true_lengthscale):
        yield "the model’s lengthscale is not that of the truth"
    if _differs(problem):
        yield "the model’s kernels are not those of the truth"
    if posterior == "independent":
        yield "edges are treated as independent, which they are not"
    if posterior not in EXACT_POSTERIORS:
        yield "the posterior is approximate: the theorems need the exact one"
    if options["routing"] != "rectified":
        yield "it minimises energy less the height potential"
    if options["spread"] != "noise":
        yield "it does not rectify with the s that regret uses"
    if name == "route-greedy":
        yield NO_THEOREM["gp-greedy"]
    if name == "route-rule":
        yield "no theorem implemented here covers custom rules"
    if name == "route-ts" and options["mode"] != "joint":
        yield _why_not_theorem(name, options)


def _differs(problem: Options) -> bool:
    """Whether the model has other feature kernels than the truth."""
    defaults = {
        "graph_lengthscales": None,
        "feature_lengthscales": None,
        "graph_share": 0.5,
    }
    for name, default in defaults.items():
        assumed = problem.get(f"model_{name}")
        if assumed is not None and assumed != problem.get(name, default):
            return True
    return False


def _why_not_theorem(name: str, options: Options) -> str:
    """Why Theorem 3.2 itself does not cover a route policy."""
    reasons = []
    if name == "route-ts" and options["mode"] != "joint":
        reasons.append("arms are sampled one by one: the theorem needs joint samples")
    if name == "route-bucb" and options["omega"] <= 1.0:
        reasons.append(
            f"omega = {options['omega']:g} makes C_omega infinite: Lemma A.13 needs omega > 1"
        )
    elif name == "route-bucb" and options["xi"] <= options["omega"]:
        reasons.append(
            f"xi = {options['xi']:g} is not above omega, as the theorem needs"
        )
    if name == "route-ucb" and options["scale"] != 1.0:
        reasons.append(
            f"beta_t is multiplied by {options['scale']:g}: the theorem needs beta_t itself"
        )
    reasons.append("regret is rectified: the theorem is about sums of f itself")
    return "; and because ".join(reasons)
