"""The theorems behind a run, as curves to draw over its regret; and why a policy has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats, Gamma
from superarm.errors import InputError, StateError
from superarm.models import Model
from superarm.problems.base import World
from superarm.registry import build, parameters_of
from superarm.results.bounds import Bound, RegretBounds
from superarm.rules import BayesianGPUCB, BayesUCBQuantile
from superarm.simulation import Run
from superarm.theory import (
    ArmSetGrowth,
    bayesian_regret_bound_of_widths,
    prior_eigenvalue_bound,
    regret_bound_igp_ucb,
    regret_bound_oclok_ucb,
    why_no_bound,
)

from .spec import Experiment

_POINTS = 200
Options = Mapping[str, Any]
_NOTHING_LEARNED = ("prior", "known-cost", "random")


class _NoBoundError(Exception):
    """Why a policy has no bound: the message is a sentence for the report."""


class _Theorem(NamedTuple):
    label: str
    assumes: str
    curve: Callable[[Floats, World, Options], Floats]


def regret_bounds(run: Run) -> RegretBounds:
    """What theory says of the run's first setting, for each of its policies."""
    if "parameters" not in run.spec:
        raise StateError(f"{run.directory / 'run.json'} has no parameters, which a bound needs")
    experiment = Experiment.from_mapping(
        {"id": run.experiment, "rounds": run.rounds, "seeds": 1, **run.spec["parameters"]},
        str(run.directory),
    ).with_setting(run.settings[0])
    rounds = np.unique(np.geomspace(1, run.rounds, _POINTS).astype(np.intp))
    routes = _Routes(run=run, experiment=experiment, rounds=rounds)
    drawn: dict[str, Bound] = {}
    missing: dict[str, str] = {}
    note = ""
    for policy in run.policies:
        options = experiment.policies.get(policy, {})
        name = str(options.get("policy", policy))
        try:
            if experiment.feedback:
                raise _NoBoundError("feedback comes late or is lost, which no theorem here allows for")
            if name in _THEOREMS:
                drawn[policy] = _by_theorem(_THEOREMS[name], run, experiment, options, rounds)
            elif name in _ROUTE_POLICIES:
                drawn[policy], note = routes.bound(policy, name, options), _ROUTE_NOTE
            elif name in _NOTHING_LEARNED:
                missing[policy] = "no bound because it learns nothing"
            else:
                missing[policy] = "no bound because no theorem here speaks of this policy"
        except _NoBoundError as reason:
            missing[policy] = f"no bound because {reason}"
    return RegretBounds(drawn, missing, note)


# --- theorems for functions of norm at most B, and for changing arms ----------------------


def _by_theorem(
    theorem: _Theorem, run: Run, experiment: Experiment, options: Options, rounds: Any
) -> Bound:
    """Averaged over the run's seeds."""
    T = rounds.astype(np.float64)
    values = []
    for seed in run.seeds:
        world = experiment.build_problem(seed=seed, horizon=run.rounds)
        if (largest := _largest_variance(world)) > 1.0 + 1e-9:
            raise _NoBoundError(
                f"k(x, x) is {largest:.3g} somewhere: the theorem takes k ≤ 1 for granted"
            )
        values.append(theorem.curve(T, world, options))
    return Bound(theorem.label, T, np.mean(values, axis=0), theorem.assumes)


def _delta(name: str, options: Options) -> float:
    return float(options.get("delta", parameters_of("policy", name)["delta"]))


def _largest_variance(world: World) -> float:
    return float(np.max(world.model.kernel.diag(world.offer(1).arms.features)))


def _igp_ucb(rounds: Floats, world: World, options: Options) -> Floats:
    model, delta = world.model, _delta("igp-ucb", options)
    if model.norm_bound is None or model.noise_bound is None or model.gain is None:
        raise _NoBoundError("the problem does not state B, R and γ, which the theorem takes")
    gamma: Gamma = build("gain", model.gain)
    return regret_bound_igp_ucb(rounds, gamma, model.norm_bound, model.noise_bound, delta)


def _oclok_ucb(rounds: Floats, world: World, options: Options) -> Floats:
    model, delta = world.model, _delta("oclok-ucb", options)
    most_arms = _most_arms(model)
    if model.gain is None or most_arms is None:
        raise _NoBoundError("the problem does not state γ and the most arms, which the theorem takes")
    gamma: Gamma = build("gain", model.gain)
    try:
        budget = len(model.oracle.select(np.arange(most_arms * 1.0), None, _ANY).positions)
    except InputError:
        raise _NoBoundError("what may be chosen depends on the round") from None
    return regret_bound_oclok_ucb(
        rounds,
        gamma,
        most_arms=most_arms,
        budget=budget,
        noise_variance=model.noise_variance,
        largest_eigenvalue=budget * _largest_variance(world),  # of the prior: at most the trace
        lipschitz=model.reward.lipschitz,
        delta=delta,
    )


def _most_arms(model: Model) -> int | None:
    if model.most_arms is not None or model.arms is None:
        return model.most_arms
    return len(model.arms)


_ANY = np.random.default_rng(0)
_THEOREMS = {
    "igp-ucb": _Theorem(
        "IGP-UCB bound",
        "Theorem 3 of paper 002; it takes λ = 1 + 2/T, and γ as in the experiment",
        _igp_ucb,
    ),
    "oclok-ucb": _Theorem(
        "O'CLOK-UCB bound",
        "Theorem 1 of paper 001; it takes a reward of Lipschitz constant 1, λ* of the prior, and γ "
        "as in the experiment",
        _oclok_ucb,
    ),
}


# --- routes -------------------------------------------------------------------------------

_ROUTE_POLICIES = ("route-ucb", "route-bucb", "route-ts", "route-greedy", "route-rule")
_EXACT = ("auto", "finite", "streaming")
_ROUTE_NOTE = (
    "Bounds on routes are ours: the proof of Theorem 3.2 of paper 000, for any widths and for "
    "rectified regret. They bound the mean over truths that are drawn from the model, with λ* of the "
    "prior, an upper bound on γ, and K the longest route driven."
)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Routes:
    """Bounds on the rectified regret of route policies; what they share is computed once.

    Theorem 3.2 itself covers none of them, as regret is rectified; the bound of any widths does.
    """

    run: Run
    experiment: Experiment
    rounds: Any

    def bound(self, policy: str, name: str, options: Options) -> Bound:
        given = {**parameters_of("policy", name), **options}
        self._require_model(given)
        widths = self._widths(name, given)
        values = bayesian_regret_bound_of_widths(
            widths,
            self._growth,
            arms=len(self._arms),
            budget=self._budget,
            noise_variance=self._model.noise_variance,
            largest_eigenvalue=self._largest_eigenvalue,
            largest_variance=float(np.max(self._model.kernel.diag(self._arms))),
            rectified=True,
        )
        whose = "the widths of GP-UCB" if name == "route-ts" else "its own widths"
        assumes = f"ours, with {whose}; Theorem 3.2 itself gives {_of_theorem(name, given)}"
        return Bound(f"bound of {policy}", self.rounds * 1.0, values[self.rounds - 1], assumes)

    def _widths(self, name: str, given: Options) -> Floats:
        """Of every round; Thompson sampling has none, and takes those of GP-UCB in the analysis."""
        if name == "route-greedy":
            raise _NoBoundError("it does not explore: nothing keeps its regret from growing with T")
        if name == "route-rule":
            raise _NoBoundError("no theorem here speaks of a rule of one’s own")
        if name == "route-ts" and given["mode"] != "joint":
            raise _NoBoundError(_of_theorem(name, given).removeprefix("no bound because "))
        arms = len(self._arms)
        schedule: BayesianGPUCB | BayesUCBQuantile = BayesianGPUCB(arms=arms)
        if name == "route-ucb":
            schedule = BayesianGPUCB(arms=arms, scale=given["scale"])
        elif name == "route-bucb":
            schedule = BayesUCBQuantile(arms=arms, omega=given["omega"], xi=given["xi"])
        steps = range(1, self.run.rounds + 1)
        return np.array([schedule.width(step, _no_gain) for step in steps])

    def _require_model(self, given: Options) -> None:
        """Refuse whatever makes the posterior another than that of the truth’s own prior."""
        problem = self.experiment.problem
        known = problem.get("model_lengthscale")
        if problem["name"] != "navigation":
            raise _NoBoundError("the truth is not drawn from the model’s prior")
        if known is not None and known != problem.get("lengthscale", 1.0):
            raise _NoBoundError("the model’s lengthscale is not that of the truth")
        if given["posterior"] == "independent":
            raise _NoBoundError("edges are taken as independent, which the truth is not")
        if given["posterior"] not in _EXACT:
            raise _NoBoundError("the posterior is approximate: the theorems need the exact one")
        if given["routing"] != "rectified":
            raise _NoBoundError(
                "it minimises energy less the height potential, regret here is another sum"
            )
        if given["spread"] != "noise":
            raise _NoBoundError("it rectifies with another s than regret does")

    @cached_property
    def _model(self) -> Model:
        # Truths differ from seed to seed, what the learner is told does not.
        world: World = self.experiment.build_problem(seed=self.run.seeds[0], horizon=self.run.rounds)
        return world.model

    @cached_property
    def _arms(self) -> Floats:
        if self._model.arms is None:
            raise _NoBoundError("arms change from round to round: Theorem 3.2 needs finitely many")
        return self._model.arms

    @cached_property
    def _budget(self) -> int:
        """The theorem's K is the most arms that a route may have; the longest driven stands in."""
        run = self.run
        driven = (run.choices(each, 0, seed) for each in run.policies for seed in run.seeds)
        return max(int(choices.shape[1]) for choices in driven)

    @cached_property
    def _largest_eigenvalue(self) -> float:
        return prior_eigenvalue_bound(self._model.kernel, self._arms, self._budget).value

    @cached_property
    def _growth(self) -> ArmSetGrowth:
        return ArmSetGrowth(
            kernel=self._model.kernel,
            features=self._arms,
            noise_variance=self._model.noise_variance,
            horizon=self.run.rounds * self._budget,
        )


def _of_theorem(name: str, given: Options) -> str:
    """Why Theorem 3.2 itself does not cover a route policy: regret is rectified, at least."""
    if name == "route-ucb":
        return str(why_no_bound("gp-ucb", scale=given["scale"], rectified=True))
    if name == "route-bucb":
        omega, xi = given["omega"], given["xi"]
        return str(why_no_bound("gp-bucb", omega=omega, xi=xi, rectified=True))
    return str(why_no_bound("gp-ts", joint_samples=given["mode"] == "joint", rectified=True))


def _no_gain(count: int) -> float:
    return 0.0  # neither schedule asks for information
