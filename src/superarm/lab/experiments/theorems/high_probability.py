"""Theorems on the regret of one seed that hold with high probability."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, cast

import numpy as np

from superarm.core import Floats, Gamma
from superarm.core.errors import InputError
from superarm.kernels.lipschitz import lipschitz_of_kernel
from superarm.lab import theory
from superarm.lab.experiments.statements.judging import EXACT_POSTERIORS
from superarm.lab.problems import Codependency
from superarm.lab.results.bounds import Bound
from superarm.lab.results.formats import significant
from superarm.models import Model
from superarm.models.worlds import World
from superarm.policies.from_model import gamma_for
from superarm.rules import information

from .cases import BoundInputs, NoBoundError, Options, run_budget

# Arms chosen in a run up to which γ is found by choosing among all arrivals.
_MOST_ARRIVALS = 5_000


class _Case(NamedTuple):
    """One seed of a run, in the terms of a theorem."""

    problem: str
    model: Model
    features: Floats
    """Of the first round's arms, (n, d)."""
    options: Options
    """Of the policy, with their defaults."""
    budget: int
    """The most arms chosen in a round of the run."""
    world: World
    arrivals: Sequence[Floats]
    """Contexts of every round, where arms change; none where γ would take long."""

    @property
    def most_arms(self) -> int:
        """M: the most arms that any round offers."""
        most = self.model.most_arms
        if most is None and self.model.arms is not None:
            most = len(self.model.arms)
        if most is None:
            raise NoBoundError(
                "the problem does not state most_arms, which the theorem needs"
            )
        return most

    @property
    def gamma(self) -> Gamma:
        """γ, as the policy's widths have it."""
        gain = self.options.get("gain", "growth")
        if gain == "realised":
            raise NoBoundError(
                "its widths use the information actually gained; the theorem uses the largest possible"
            )
        return cast(Gamma, gamma_for(self.model, gain))

    @property
    def norm_bound(self) -> float:
        """B, as the model states it."""
        return self._stated(self.model.norm_bound)

    @property
    def noise_bound(self) -> float:
        """R, as the model states it."""
        return self._stated(self.model.noise_bound)

    def _stated(self, value: float | None) -> float:
        if value is None or self.model.gain is None:
            raise NoBoundError(
                "the problem does not state B, R and γ, which the theorem needs"
            )
        return value


class _Theorem(NamedTuple):
    label: str
    source: str
    curve: Callable[[Floats, _Case], Floats]


def by_theorem(shared: BoundInputs, policy: str, name: str, options: Options) -> Bound:
    """A bound averaged over the run's seeds; it names assumptions that the run does not meet.

    Args:
        shared: what all bounds need.
        policy: its name in the run.
        name: under which it is registered.
        options: its parameters.
    """
    theorem = THEOREMS[name]
    budget = run_budget(shared.run, policy)
    values = []
    unmet: list[str] = []
    for seed in shared.run.seeds:
        case = _case(shared, seed, options, budget)
        largest = _largest_variance(case)
        if largest > 1.0 + 1e-9:
            raise NoBoundError(
                f"k(x, x) reaches {largest:.3g}: the theorem assumes k ≤ 1"
            )
        values.append(theorem.curve(shared.rounds, case))
        if not unmet:
            unmet = list(_unmet(name, case))
    assumes = theorem.source
    label = theorem.label
    if unmet:
        assumes += f". Drawn although the run does not meet these assumptions: {'; '.join(unmet)}"
        label += " (assumptions not met)"
    return Bound(label, shared.rounds, np.mean(values, axis=0), assumes)


def _case(shared: BoundInputs, seed: int, options: Options, budget: int) -> _Case:
    rounds = shared.run.rounds
    experiment = shared.experiment
    world = experiment.build_problem(seed=seed, horizon=rounds)
    arms_change = world.model.arms is None
    arrivals = []
    if arms_change and rounds * budget <= _MOST_ARRIVALS:
        steps = range(1, rounds + 1)
        arrivals = [world.offer(step).arms.features for step in steps]
    return _Case(
        problem=str(experiment.problem["name"]),
        model=world.model,
        features=world.offer(1).arms.features,
        options=options,
        budget=budget,
        world=world,
        arrivals=arrivals,
    )


def _largest_variance(case: _Case) -> float:
    return float(np.max(case.model.kernel.diag(case.features)))


def _igp_ucb(rounds: Floats, case: _Case) -> Floats:
    norm = case.norm_bound
    noise = case.noise_bound
    return theory.regret_bound_igp_ucb(
        rounds, case.gamma, norm, noise, case.options["delta"]
    )


def _gp_ts(rounds: Floats, case: _Case) -> Floats:
    norm = case.norm_bound
    noise = case.noise_bound
    if case.options["mode"] != "joint" or not case.options["scaled"]:
        raise NoBoundError("the theorem needs joint samples, scaled by v_t")
    try:
        lipschitz = lipschitz_of_kernel(case.model.kernel)
    except InputError as error:
        raise NoBoundError(
            f"the theorem needs the kernel's Lipschitz constant: {error}"
        ) from None
    return theory.regret_bound_gp_ts(
        rounds,
        case.gamma,
        norm,
        noise,
        case.options["delta"],
        lipschitz=lipschitz,
        side=_side_of_cube(case),
        dimension=case.features.shape[1],
    )


def _gp_ucb(rounds: Floats, case: _Case) -> Floats:
    norm = case.norm_bound
    noise = case.model.noise_variance
    return theory.regret_bound_gp_ucb(
        rounds, case.gamma, norm, noise, case.options["delta"]
    )


def _oclok_ucb(rounds: Floats, case: _Case) -> Floats:
    model = case.model
    if not model.oracle.deterministic:
        raise NoBoundError(
            "its oracle is random: the theorem needs one that always keeps its promise"
        )
    gamma: Gamma
    if case.arrivals:
        gains = information.arriving_information_gain(
            model.kernel, case.arrivals, case.budget, model.noise_variance
        )

        def gamma(count: float) -> float:
            rounds = int(count) // case.budget
            return 2.0 * float(gains[rounds])  # greedy choice reaches at least half
    else:
        if model.gain is None:
            raise NoBoundError("the problem does not state γ, which the theorem needs")
        gamma = case.gamma
    # Of the prior: at most the trace.
    largest_eigenvalue = case.budget * _largest_variance(case)
    return theory.regret_bound_oclok_ucb(
        rounds,
        gamma,
        largest_eigenvalue=largest_eigenvalue,
        noise_variance=model.noise_variance,
        lipschitz=model.reward.lipschitz,
        most_arms=case.most_arms,
        budget=case.budget,
        delta=case.options["delta"],
    )


def _unmet(name: str, case: _Case) -> Iterator[str]:
    """What a policy's theorem needs and the case does not have: "need (what is there instead)"."""
    posterior = case.options["posterior"]
    if posterior not in EXACT_POSTERIORS:
        yield f"the exact posterior (here it is {posterior})"
    is_certified = case.options.get("gain") == "greedy" or bool(case.arrivals)
    if not is_certified:
        yield "a proven bound on γ (here the experiment's γ, which is not proven)"
    if name == "oclok-ucb":
        yield from _unmet_by_oclok_ucb(case)
    else:
        yield from _unmet_in_rkhs(name, case)


def _unmet_by_oclok_ucb(case: _Case) -> Iterator[str]:
    """Of Theorem 1 of nika2022oclok."""
    noise_variance = case.model.noise_variance
    true_noise_variance = (case.model.noise_bound or 0.0) ** 2
    if case.options["stepwise"]:
        yield "arms chosen all at once (here one after the other)"
    if case.problem not in ("gp-function", "codependency"):
        yield "f drawn from the learner's Gaussian process (here it is not)"
    elif isinstance(case.world, Codependency) and not case.world.is_known:
        yield "a learner with the kernel of f (here it has another)"
    elif not np.isclose(noise_variance, true_noise_variance):
        yield f"the true noise variance (here the learner assumes {noise_variance:.3g})"


def _unmet_in_rkhs(name: str, case: _Case) -> Iterator[str]:
    """Of the theorems on functions with a bounded norm."""
    noise_variance = case.model.noise_variance
    if case.problem != "rkhs-function":
        yield "‖f‖ ≤ B (here B is an estimate)"
    if name == "gp-ucb":
        yield "noise that never exceeds √λ (here it is Gaussian)"
        yield "β_t with γ_t (here with γ_{t−1})"
    elif not np.isclose(
        noise_variance, theory.theory_noise_variance(case.model.horizon)
    ):
        yield f"learners with λ = 1 + 2/T (here λ = {noise_variance:.3g})"
    if name == "gp-ts" and case.options["decision_set"] == "all":
        largest = significant(_largest_grid(case))
        arms = len(case.features)
        yield f"samples on the grids D_t of section 4.2, of up to {largest} points (here on all {arms} arms)"


def _largest_grid(case: _Case) -> float:
    """|D_T| of section 4.2, in the cube that holds the arms."""
    size = theory.discretisation_size(
        case.model.horizon,
        case.norm_bound,
        lipschitz_of_kernel(case.model.kernel),
        _side_of_cube(case),
        case.features.shape[1],
    )
    return float(size)


def _side_of_cube(case: _Case) -> float:
    """r, of the smallest cube that holds the arms."""
    return float(np.ptp(case.features, axis=0).max())


_KERNELIZED = "“On Kernelized Multi-armed Bandits” (2017)"
_OPTIMIZATION = "“Gaussian Process Optimization in the Bandit Setting” (2010)"
THEOREMS = {
    "igp-ucb": _Theorem("IGP-UCB bound", f"Theorem 3 of {_KERNELIZED}", _igp_ucb),
    "gp-ts": _Theorem("GP-TS bound", f"Theorem 4 of {_KERNELIZED}", _gp_ts),
    "gp-ucb": _Theorem("GP-UCB bound", f"Theorem 3 of {_OPTIMIZATION}", _gp_ucb),
    "oclok-ucb": _Theorem(
        "O'CLOK-UCB bound",
        "Theorem 1 of “Contextual Combinatorial Bandits with Changing Action Sets via Gaussian "
        "Processes” (2022), with λ* of the prior",
        _oclok_ucb,
    ),
}
