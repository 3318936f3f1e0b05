"""The theorems behind a run, as curves to draw over its regret; and why a policy has none.

One module for each family of theorems; :func:`regret_bounds` chooses by the policy's algorithm.
"""

from __future__ import annotations

from superarm.lab.experiments.statements import RecordedRun
from superarm.lab.results.bounds import Bound, RegretBounds
from superarm.lab.simulation import Run

from .cases import NO_THEOREM, BoundInputs, NoBoundError
from .drifting import DRIFT_NOTE, DRIFT_POLICIES, drift_bound, drift_order
from .high_probability import THEOREMS, by_theorem
from .movement import TREE_POLICIES, movement_bound
from .rates import rate_table
from .routes import ROUTE_NOTE, ROUTE_POLICIES, route_bound


def regret_bounds(run: Run) -> RegretBounds:
    """What theory says of the run's first setting, for each of its policies."""
    recorded = RecordedRun.of(run)
    experiment = recorded.at(0)
    shared = BoundInputs(run=run, experiment=experiment)
    drawn: dict[str, Bound] = {}
    missing: dict[str, str] = {}
    orders: dict[str, Bound] = {}
    note = ""
    for policy in run.policies:
        name = recorded.algorithm(policy)
        given = recorded.options(policy)
        try:
            if experiment.feedback:
                raise NoBoundError(
                    "no theorem implemented here covers feedback that is late or lost"
                )
            if run.spec.get("states"):
                raise NoBoundError(
                    "no theorem implemented here covers a run that begins with a state"
                )
            if "wrapped" in given:
                raise NoBoundError(
                    "no theorem implemented here covers a posterior that is wrapped"
                )
            if name in THEOREMS:
                drawn[policy] = by_theorem(shared, policy, name, given)
            elif name in ROUTE_POLICIES:
                drawn[policy] = route_bound(shared, policy, name, given)
                note = ROUTE_NOTE
            elif name in DRIFT_POLICIES:
                drawn[policy] = drift_bound(shared, policy, name, given)
                note = DRIFT_NOTE
                orders |= drift_order(shared, policy, name, given)
            elif name in TREE_POLICIES:
                drawn[policy] = movement_bound(shared, policy, name, given)
            else:
                raise NoBoundError(
                    NO_THEOREM.get(name, "none is drawn here for such a policy")
                )
        except NoBoundError as reason:
            missing[policy] = f"no bound because {reason}"
    return RegretBounds(drawn, missing, note, rate_table(shared), orders)
