"""The theorems behind a run, as curves to draw over its regret; and why a policy has none.

One module for each family of theorems; :func:`regret_bounds` chooses by the policy's algorithm.
"""

from __future__ import annotations

from superarm.lab.experiments.statements import RecordedRun
from superarm.lab.results.bounds import Bound, RegretBounds
from superarm.lab.simulation import Run

from .bayesian import bayesian_bound, is_bayesian
from .cases import NO_THEOREM, BoundInputs, NoBoundError, Options
from .drifting import DRIFT_NOTE, DRIFT_POLICIES, drift_bound, drift_order
from .high_probability import THEOREMS, by_theorem
from .movement import TREE_POLICIES, movement_bound
from .rates import bayesian_rate_table, rate_table
from .routes import ROUTE_NOTE, ROUTE_POLICIES, route_bound


def regret_bounds(run: Run) -> RegretBounds:
    """The bounds of theory in the run's first setting, for each of its policies.

    Args:
        run: a finished run.
    """
    recorded = RecordedRun.from_run(run)
    shared = BoundInputs(run=run, experiment=recorded.in_setting(0))
    drawn: dict[str, Bound] = {}
    missing: dict[str, str] = {}
    orders: dict[str, Bound] = {}
    note = ""
    for policy in run.policies:
        name = recorded.algorithm(policy)
        options = recorded.options(policy)
        try:
            _check_covered(shared, options)
            drawn[policy] = _bound(shared, policy, name, options)
        except NoBoundError as reason:
            missing[policy] = f"no bound because {reason}"
            continue
        if name in ROUTE_POLICIES:
            note = ROUTE_NOTE
        if name in DRIFT_POLICIES:
            note = DRIFT_NOTE
            orders |= drift_order(shared, policy, name, options)
    rates = rate_table(shared)
    if note == ROUTE_NOTE:
        rates = bayesian_rate_table(shared)
    return RegretBounds(drawn, missing, note, rates, orders)


def _check_covered(shared: BoundInputs, options: Options) -> None:
    """Refuse what no theorem covers, whatever the policy is."""
    if shared.experiment.feedback:
        raise NoBoundError(
            "no theorem implemented here covers feedback that is late or lost"
        )
    if shared.run.spec.get("states"):
        raise NoBoundError(
            "no theorem implemented here covers a run that begins with a state"
        )
    if "wrapped" in options:
        raise NoBoundError(
            "no theorem implemented here covers a posterior that is wrapped"
        )


def _bound(shared: BoundInputs, policy: str, name: str, options: Options) -> Bound:
    """The bound of the policy's algorithm."""
    if is_bayesian(shared, name, options):
        return bayesian_bound(shared, name, options)
    if name in THEOREMS:
        return by_theorem(shared, policy, name, options)
    if name in ROUTE_POLICIES:
        return route_bound(shared, policy, name, options)
    if name in DRIFT_POLICIES:
        return drift_bound(shared, policy, name, options)
    if name in TREE_POLICIES:
        return movement_bound(shared, policy, name, options)
    raise NoBoundError(NO_THEOREM.get(name, "none is drawn here for such a policy"))
