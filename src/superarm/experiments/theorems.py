"""The theorems behind a run, as curves to draw over its regret; and why a policy has none."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np

from superarm import theory
from superarm.core import Floats, Gamma
from superarm.errors import InputError
from superarm.kernels import Kernel, Temporal
from superarm.models import Model
from superarm.policies.published import gamma_for
from superarm.problems import Codependency, DriftingFunction, MovementProblem
from superarm.problems.base import World
from superarm.registry import family_of, parameters_of
from superarm.results.bounds import Bound, Rate, RateTable, RegretBounds
from superarm.results.curves import counted, growth_exponent, significant
from superarm.results.roads import schedule_of
from superarm.rules import BayesianGPUCB
from superarm.simulation import Run

from .spec import Experiment
from .statements import Recorded

_POINTS = 200
_MOST_ARRIVALS = 5_000  # arms chosen in a run up to which γ is found by choosing among all arrivals
Options = Mapping[str, Any]
_EXACT = ("auto", "finite", "streaming")
_NO_THEOREM = {
    "gp-greedy": "it does not explore: nothing keeps its regret from growing linearly with T",
    "kernel-ucb": "“Finite-Time Analysis of Kernelised Contextual Bandits” (2013) bounds the regret of "
    "SupKernelUCB, a slower variant, not of KernelUCB itself",
    "genie": "it is not a learner: it knows the truth of the round before, and is itself a lower line "
    "for the others",
    **dict.fromkeys(("prior", "known-cost", "random", "stationary"), "it learns nothing"),
    **dict.fromkeys(("minc-known", "offline"), "it knows the costs: there is nothing to learn"),
    "cgp-lcb": "it ignores what moving costs, which the regret counts: nothing keeps the regret from "
    "growing linearly with T",
}


class _NoBoundError(Exception):
    """Why a policy has no bound: the message is a sentence for the report."""


class _Case(NamedTuple):
    """One seed of a run, as a theorem sees it."""

    problem: str
    model: Model
    features: Floats  # of the first round's arms, (n, d)
    options: Options  # of the policy, with their defaults
    budget: int  # most arms chosen in a round of the run
    world: World
    arrivals: Sequence[Floats]  # contexts of every round, where arms change; none where γ takes long

    @property
    def most_arms(self) -> int:
        """M: the most arms that any round offers."""
        most = self.model.most_arms
        if most is None and self.model.arms is not None:
            most = len(self.model.arms)
        if most is None:
            raise _NoBoundError("the problem does not state most_arms, which the theorem needs")
        return most

    @property
    def gamma(self) -> Gamma:
        gain = self.options.get("gain", "growth")
        if gain == "realised":
            raise _NoBoundError(
                "its widths use the information actually gained; the theorem uses the largest possible"
            )
        return cast(Gamma, gamma_for(self.model, gain))

    def stated(self, *names: str) -> list[float]:
        """B and R, as the model states them."""
        values = [getattr(self.model, name) for name in names]
        if None in values or self.model.gain is None:
            raise _NoBoundError("the problem does not state B, R and γ, which the theorem needs")
        return values


class _Theorem(NamedTuple):
    label: str
    source: str
    curve: Callable[[Floats, _Case], Floats]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Shared:
    """What the bounds of all policies take, computed once."""

    run: Run
    experiment: Experiment  # in the first setting of the run

    @cached_property
    def rounds(self) -> Floats:
        """Where bounds are drawn."""
        return np.unique(np.geomspace(1, self.run.rounds, _POINTS).astype(np.intp)).astype(np.float64)

    @cached_property
    def world(self) -> World:
        """Of the first seed: truths differ from seed to seed, the model does not."""
        return self.experiment.build_problem(seed=self.run.seeds[0], horizon=self.run.rounds)

    def growth(self, observed: int) -> theory.ArmSetGrowth:
        """γ of so many observations of fixed arms."""
        model = self.world.model
        arms, noise = model.arms, model.noise_variance
        return theory.ArmSetGrowth(
            kernel=model.kernel, features=arms, noise_variance=noise, horizon=observed
        )

    @cached_property
    def on_routes(self) -> dict[str, Any]:
        """What the bound of every route policy takes."""
        run, model = self.run, self.world.model
        if model.arms is None:
            raise _NoBoundError("arms change from round to round: Theorem 3.2 needs finitely many")
        # The theorem's K is the most arms that a route may have; the longest driven stands in.
        driven = (run.choices(each, 0, seed) for each in run.policies for seed in run.seeds)
        budget = max(int(choices.shape[1]) for choices in driven)
        return {
            "gamma": self.growth(run.rounds * budget),
            "arms": len(model.arms),
            "budget": budget,
            "noise_variance": model.noise_variance,
            "largest_eigenvalue": theory.prior_eigenvalue_bound(model.kernel, model.arms, budget).value,
            "largest_variance": float(np.max(model.kernel.diag(model.arms))),
        }


def regret_bounds(run: Run) -> RegretBounds:
    """What theory says of the run's first setting, for each of its policies."""
    experiment = Recorded.of(run).at(0)
    shared = _Shared(run=run, experiment=experiment)
    drawn: dict[str, Bound] = {}
    missing: dict[str, str] = {}
    orders: dict[str, Bound] = {}
    note = ""
    for policy in run.policies:
        options = experiment.policies.get(policy, {})
        name = str(options.get("policy", policy))
        given = {**parameters_of("policy", name), **options}
        try:
            if experiment.feedback:
                raise _NoBoundError("no theorem implemented here covers feedback that is late or lost")
            if run.spec.get("states"):
                raise _NoBoundError("no theorem implemented here covers a run that begins with a state")
            if "wrapped" in options:
                raise _NoBoundError("no theorem implemented here covers a posterior that is wrapped")
            if name in _THEOREMS:
                drawn[policy] = _by_theorem(shared, policy, name, given)
            elif name in _ROUTE_POLICIES:
                drawn[policy], note = _route_bound(shared, policy, name, given), _ROUTE_NOTE
            elif name in _DRIFT_POLICIES:
                drawn[policy], note = _drift_bound(shared, policy, name, given), _DRIFT_NOTE
                orders |= _drift_order(shared, policy, name, given)
            elif name in _TREE_POLICIES:
                drawn[policy] = _movement_bound(shared, policy, name, given)
            else:
                raise _NoBoundError(_NO_THEOREM.get(name, "none is drawn here for such a policy"))
        except _NoBoundError as reason:
            missing[policy] = f"no bound because {reason}"
    return RegretBounds(drawn, missing, note, _rate_table(shared), orders)


# --- theorems that hold with high probability ----------------------------------------------


def _by_theorem(shared: _Shared, policy: str, name: str, given: Options) -> Bound:
    """Averaged over the run's seeds; what the run does not have is told beside it."""
    theorem, run, experiment = _THEOREMS[name], shared.run, shared.experiment
    values = []
    unmet: list[str] = []
    budget = max(int(run.choices(policy, 0, seed).shape[1]) for seed in run.seeds)
    for seed in run.seeds:
        world: World = experiment.build_problem(seed=seed, horizon=run.rounds)
        features = world.offer(1).arms.features
        changing = world.model.arms is None and run.rounds * budget <= _MOST_ARRIVALS
        steps = range(1, run.rounds + 1) if changing else ()
        arrivals = [world.offer(step).arms.features for step in steps]
        case = _Case(
            str(experiment.problem["name"]), world.model, features, given, budget, world, arrivals
        )
        if (largest := _largest_variance(case)) > 1.0 + 1e-9:
            raise _NoBoundError(f"k(x, x) reaches {largest:.3g}: the theorem assumes k ≤ 1")
        values.append(theorem.curve(shared.rounds, case))
        unmet = unmet or list(_unmet(name, case))
    assumes, label = theorem.source, theorem.label
    if unmet:
        assumes += f". Drawn although the run does not meet these assumptions: {'; '.join(unmet)}"
        label += " (assumptions not met)"
    return Bound(label, shared.rounds, np.mean(values, axis=0), assumes)


def _largest_variance(case: _Case) -> float:
    return float(np.max(case.model.kernel.diag(case.features)))


def _igp_ucb(rounds: Floats, case: _Case) -> Floats:
    norm, noise = case.stated("norm_bound", "noise_bound")
    return theory.regret_bound_igp_ucb(rounds, case.gamma, norm, noise, case.options["delta"])


def _gp_ts(rounds: Floats, case: _Case) -> Floats:
    norm, noise = case.stated("norm_bound", "noise_bound")
    if case.options["mode"] != "joint" or not case.options["scaled"]:
        raise _NoBoundError("the theorem needs joint samples, scaled by v_t")
    try:
        lipschitz = theory.lipschitz_of_kernel(case.model.kernel)
    except InputError as error:
        raise _NoBoundError(f"the theorem needs the kernel's Lipschitz constant: {error}") from None
    told = (rounds, case.gamma, norm, noise, case.options["delta"])
    side, dimension = float(np.ptp(case.features, axis=0).max()), case.features.shape[1]
    return theory.regret_bound_gp_ts(*told, lipschitz=lipschitz, side=side, dimension=dimension)


def _gp_ucb(rounds: Floats, case: _Case) -> Floats:
    (norm,) = case.stated("norm_bound")
    noise = case.model.noise_variance
    return theory.regret_bound_gp_ucb(rounds, case.gamma, norm, noise, case.options["delta"])


def _oclok_ucb(rounds: Floats, case: _Case) -> Floats:
    model = case.model
    if not model.oracle.deterministic:
        raise _NoBoundError("its oracle is random: the theorem needs one that always keeps its promise")
    gamma: Gamma
    if case.arrivals:
        gains = theory.arriving_information_gain(
            model.kernel, case.arrivals, case.budget, model.noise_variance
        )

        def gamma(count: float) -> float:
            return 2.0 * float(gains[int(count) // case.budget])  # greedy reaches half at least
    else:
        if model.gain is None:
            raise _NoBoundError("the problem does not state γ, which the theorem needs")
        gamma = case.gamma
    largest = case.budget * _largest_variance(case)  # of the prior: at most the trace
    told: Options = {"noise_variance": model.noise_variance, "lipschitz": model.reward.lipschitz}
    more: Options = {"most_arms": case.most_arms, "budget": case.budget, "delta": case.options["delta"]}
    return theory.regret_bound_oclok_ucb(rounds, gamma, largest_eigenvalue=largest, **told, **more)


def _unmet(name: str, case: _Case) -> Iterator[str]:
    """What a policy's theorem needs and the case does not have: "need (what is there instead)"."""
    if case.options["posterior"] not in _EXACT:
        yield f"the exact posterior (here it is {case.options['posterior']})"
    if case.options.get("gain") != "greedy" and not case.arrivals:  # which are certified
        yield "a proven bound on γ (here the experiment's γ, which is not proven)"
    if name == "oclok-ucb":
        if case.options["stepwise"]:
            yield "arms chosen all at once (here one after the other)"
        if case.problem not in ("gp-function", "codependency"):
            yield "f drawn from the learner's Gaussian process (here it is not)"
        elif isinstance(case.world, Codependency) and not case.world.is_known:
            yield "a learner with the kernel of f (here it has another)"
        elif not np.isclose(case.model.noise_variance, (case.model.noise_bound or 0.0) ** 2):
            yield f"the true noise variance (here the learner is told {case.model.noise_variance:.3g})"
        return
    if case.problem != "rkhs-function":
        yield "‖f‖ ≤ B (here B is an estimate)"
    if name == "gp-ucb":
        yield "noise that never exceeds √λ (here it is Gaussian)"
        yield "β_t with γ_t (here with γ_{t−1})"
    elif not np.isclose(case.model.noise_variance, theory.theory_noise_variance(case.model.horizon)):
        yield f"learners with λ = 1 + 2/T (here λ = {case.model.noise_variance:.3g})"
    if name == "gp-ts" and case.options["decision_set"] == "all":
        yield "samples on the grids D_t of section 4.2 (here on all arms)"


_KERNELIZED = "“On Kernelized Multi-armed Bandits” (2017)"
_OPTIMIZATION = "“Gaussian Process Optimization in the Bandit Setting” (2010)"
_THEOREMS = {
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


# --- Table 1 of nika2022oclok ---------------------------------------------------------------

_LEAST_ROUNDS = 8  # from which on a rate of growth over the last half means something
_OWN_KERNELS = {
    "squared-exponential": "O'CLOK-UCB, squared exponential",
    "matern": "O'CLOK-UCB, Matérn",
}
_ORDERS = {
    "CUCB": ("“Combinatorial Multi-Armed Bandit” (2013)", "√(K T)"),
    "CC-MAB": ("“Contextual Combinatorial Multi-armed Bandits …” (2018)", "K T^((D+2η)/(D+3η))"),
    "ACC-UCB": (
        "“Contextual Combinatorial Volatile Multi-armed Bandit …” (2020)",
        "K T^((D+1)/(D+2))",
    ),
    "O'CLOK-UCB, linear": ("linear kernel", "√(λ* K D T)"),
    "O'CLOK-UCB, squared exponential": ("squared exponential kernel", "√(λ* K D T ln^D T)"),
    "O'CLOK-UCB, Matérn": ("Matérn kernel", "λ* T^((D+ν)/(D+2ν))"),
}


def _rate_table(shared: _Shared) -> RateTable | None:
    """Table 1 and Corollary 1 at the size of a run of O'CLOK-UCB; none for other runs."""
    run, experiment = shared.run, shared.experiment
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
    size: Options = {"dimension": dimension, "budget": budget, "largest_eigenvalue": largest_eigenvalue}
    printed = theory.rates_side_by_side(rounds, as_printed=True, **size)
    corollary = theory.rates_side_by_side(rounds, **size)
    own = _OWN_KERNELS.get(str((family_of(model.kernel) or ("", ""))[1]))
    policies = {"CC-MAB": "cc-mab", "ACC-UCB": "acc-ucb", own: "oclok-ucb"}
    rows = []
    for name, values in printed.items():
        runs = [policy for policy, other in algorithms.items() if other == policies.get(name)]
        work, order = _ORDERS[name]
        rows.append(
            Rate(
                algorithm=name.partition(",")[0],
                work=work,
                order=order,
                value=float(values[-1]),
                corollary=float(corollary[name][-1]) if name.startswith("O'CLOK") else None,
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


# --- routes -------------------------------------------------------------------------------

_ROUTE_POLICIES = ("route-ucb", "route-bucb", "route-ts", "route-greedy", "route-rule")
_ROUTE_NOTE = (
    "Bounds on routes are ours: they follow the proof of Theorem 3.2 of “Bayesian Analysis of "
    "Combinatorial Gaussian Process Bandits” (2025), for any widths and for rectified regret. They "
    "bound the mean over truths drawn from the model. λ* is that of the prior, γ an upper bound, and K "
    "the longest route driven."
)


def _route_bound(shared: _Shared, policy: str, name: str, given: Options) -> Bound:
    """Theorem 3.2 itself covers none, as regret is rectified; the bound of any widths does."""
    # Refused: other rules, and whatever makes the posterior not that of the truth's own prior.
    problem, posterior = shared.experiment.problem, given["posterior"]
    told, true = problem.get("model_lengthscale"), problem.get("lengthscale", 1.0)
    for refused, reason in (
        (problem["name"] != "navigation", "the truth is not drawn from the model’s prior"),
        (problem.get("switch_cost"), "no theorem implemented here covers switching costs"),
        (told not in (None, true), "the model’s lengthscale is not that of the truth"),
        (_differs(problem), "the model’s kernels are not those of the truth"),
        (posterior == "independent", "edges are treated as independent, which they are not"),
        (posterior not in _EXACT, "the posterior is approximate: the theorems need the exact one"),
        (given["routing"] != "rectified", "it minimises energy less the height potential"),
        (given["spread"] != "noise", "it does not rectify with the s that regret uses"),
        (name == "route-greedy", _NO_THEOREM["gp-greedy"]),
        (name == "route-rule", "no theorem implemented here covers custom rules"),
        (name == "route-ts" and given["mode"] != "joint", _why_not_theorem(name, given)),
    ):
        if refused:
            raise _NoBoundError(reason)
    arms, steps = shared.on_routes["arms"], range(1, shared.run.rounds + 1)
    # Thompson sampling has no widths, and takes those of GP-UCB in the analysis.
    schedule = schedule_of(shared.run, policy, 0, arms) or BayesianGPUCB(arms=arms)
    widths = np.array([schedule.width(step, lambda count: 0.0) for step in steps])
    values = theory.bayesian_regret_bound_of_widths(widths, rectified=True, **shared.on_routes)
    whose = "the widths of GP-UCB" if name == "route-ts" else "its own widths"
    assumes = f"ours, with {whose}; Theorem 3.2 itself gives no bound because "
    assumes += _why_not_theorem(name, given)
    drawn = values[shared.rounds.astype(np.intp) - 1]
    return Bound(f"bound of {policy}", shared.rounds, drawn, assumes)


def _differs(problem: Options) -> bool:
    """Whether the model is told other feature kernels than the truth has."""
    pairs = {"graph_lengthscales": None, "feature_lengthscales": None, "graph_share": 0.5}
    stated = ((problem.get(f"model_{name}"), problem.get(name, own)) for name, own in pairs.items())
    return any(told is not None and told != true for told, true in stated)


def _why_not_theorem(name: str, given: Options) -> str:
    """Why Theorem 3.2 itself does not cover a route policy."""
    reasons = []
    if name == "route-ts" and given["mode"] != "joint":
        reasons.append("arms are sampled one by one: the theorem needs joint samples")
    if name == "route-bucb" and given["omega"] <= 1.0:
        reasons.append(f"omega = {given['omega']:g} makes C_omega infinite: Lemma A.13 needs omega > 1")
    elif name == "route-bucb" and given["xi"] <= given["omega"]:
        reasons.append(f"xi = {given['xi']:g} is not above omega, as the theorem needs")
    if name == "route-ucb" and given["scale"] != 1.0:
        reasons.append(f"beta_t is multiplied by {given['scale']:g}: the theorem needs beta_t itself")
    reasons.append("regret is rectified: the theorem is about sums of f itself")
    return "; and because ".join(reasons)


# --- movement -------------------------------------------------------------------------------

_TREE_POLICIES = ("gp-md", "md-known")
_MOVEMENT = "“Movement Penalized Bayesian Optimization with Application to Wind Energy Systems” (2022)"


def _movement_bound(shared: _Shared, policy: str, name: str, given: Options) -> Bound:
    """Theorem 1 with its constants, or its order alone; eqs. 12 and 13 on what was recorded."""
    run, world, rounds = shared.run, shared.world, shared.rounds
    if not isinstance(world, MovementProblem):
        raise _NoBoundError("the theorem is about problems in which moving has a cost")
    told = _competitive(run, policy, world)
    if name == "md-known":
        raise _NoBoundError(f"it knows the costs: there is nothing to learn. {told}")
    model = world.model
    if model.gain is None:
        raise _NoBoundError(f"the model names no growth rate for γ. {told}")
    largest = float(np.max(model.kernel.diag(world.offer(1).arms.features)))
    if model.norm_bound is None or model.noise_bound is None or largest > 1.0:
        rate = theory.movement_rate(rounds, cast(Gamma, gamma_for(model, "growth")))
        end = float(run.cumulative(policy, 0)[:, -1].mean())
        words = (
            f"The order of Theorem 1 of {_MOVEMENT}, scaled to end where the regret does, because the "
            f"problem does not state B and σ with k ≤ 1. {told}"
        )
        return Bound("order of Theorem 1, scaled", rounds, rate * end / (rate[-1] or 1.0), words)
    H, psi, norm = world.span, float(world.metric.distances.max()), model.norm_bound
    episodes = np.maximum(np.ceil(rounds / H), 1.0)
    gamma = _movement_gamma(world, H * int(episodes[-1]), H)
    values = theory.regret_bound_gp_md(
        episodes,
        gamma,
        episode=H,
        norm_bound=norm,
        noise_bound=model.noise_bound,
        noise_variance=model.noise_variance,
        diameter=psi,
        delta=_MOVEMENT_DELTA,
    )
    all_costs = episodes * H * (norm + psi)
    words = (
        f"Theorem 1 of {_MOVEMENT}, with all constants, δ = {_MOVEMENT_DELTA:g}, H = {H}, "
        f"B = {norm:.3g}, ψ = {psi:.3g} and γ_{{H−1}} ≤ {gamma(H - 1):.3g}: after {int(episodes[-1])} "
        f"episodes the regret is at most {significant(float(values[-1]))}"
    )
    if values[-1] > all_costs[-1]:
        words += (
            f". All rounds together cannot cost more than H(B + ψ) per episode, "
            f"{significant(float(all_costs[-1]))}, so this is drawn instead"
        )
    words += (
        ". The theorem bounds the regret against α times the optimum, with α and β for which eqs. 38 "
        f"and 39 hold; the regret here is against the optimum itself. {_unmet_movement(given)}{told}"
    )
    return Bound("Theorem 1, or all costs", rounds, np.minimum(values, all_costs), words)


_MOVEMENT_DELTA = 0.1
_MOST_GREEDY = 2e10  # count² × candidates up to which γ is found by greedy choice


def _unmet_movement(given: Options) -> str:
    """What Theorem 1 needs and the policy does not have, as a sentence."""
    unmet = []
    if given["width"] != "lemma-1":
        unmet.append(f"widths of Lemma 1 (here {given['width']:g})")
    if not given["clip"]:
        unmet.append("costs of at least 0 (here lower bounds may be negative)")
    if given["update"] != "episode" or given["first_episode"] != "episode":
        unmet.append("learning once per episode (here at once)")
    if not unmet:
        return ""
    return f"Drawn although the run does not meet these assumptions: {'; '.join(unmet)}. "


def _movement_gamma(world: MovementProblem, count: int, episode: int) -> Gamma:
    """An upper bound on γ_t of all actions and contexts of a run: by greedy choice, over 1 − 1/e.

    Where that takes long, of one episode alone, times the number of episodes: γ is subadditive.
    """
    steps = range(1, world.horizon + 1)
    arms = {id(world.offer(step).arms): world.offer(step).arms.features for step in steps}
    candidates = np.unique(np.concatenate(list(arms.values())), axis=0)
    model = world.model
    short = count if float(count) ** 2 * len(candidates) <= _MOST_GREEDY else episode
    growth = theory.GreedyGrowth(
        kernel=model.kernel,
        candidates=candidates,
        noise_variance=model.noise_variance,
        horizon=short,
    )

    def gamma(t: float) -> float:
        times, rest = divmod(int(t), short)
        return times * growth(short) + growth(rest)

    return gamma


def _competitive(run: Run, policy: str, world: MovementProblem) -> str:
    """Service and movement of every span beside the cheapest way through it, as a sentence."""
    names = ("service_cost", "movement_cost", "total_cost", "regret")
    edges = np.append(np.arange(world.span, run.rounds, world.span), run.rounds) - 1
    sums = [np.diff(run.cumulative(policy, 0, name)[:, edges], axis=1, prepend=0.0) for name in names]
    service, movement, total, regret = sums
    optimum = total - regret
    if not optimum.sum() > 0.0:
        return "Eqs. 12 and 13 compare with the cheapest way, which costs nothing here"
    n, over = len(world.metric), service - optimum
    found = (service.sum() / optimum.sum(), over.mean(), over.max(), movement.sum() / optimum.sum())
    served, mean, most, moved, limit = (significant(float(each)) for each in (*found, np.log(n) ** 2))
    alpha, largest = total.sum() / optimum.sum(), (total[optimum > 0.0] / optimum[optimum > 0.0]).max()
    return (
        f"Eqs. 12 and 13, from one given start to the next ({counted(optimum.size, 'time')}): in "
        f"total, service costs {served} times as much as the offline optimum, which is a difference of "
        f"{mean} on average and of {most} at most; movement costs {moved} times as much, where ln² n "
        f"is {limit}. With β = 0, the regret is 0 for α = {significant(float(alpha))}, and at most 0 "
        f"every time for α = {significant(float(largest))}, where 1 + ln² n is "
        f"{significant(1.0 + float(np.log(n)) ** 2)}"
    )


# --- rewards that drift ---------------------------------------------------------------------

_DRIFT_POLICIES = {"tv-gp-ucb": "Theorem 4.3", "r-gp-ucb": "Theorem 4.2"}
_DRIFT_DELTA = 0.1
_DRIFT_NOTE = (
    "For rewards that drift, bounds are those of “Time-Varying Gaussian Process Bandit Optimization” "
    f"(2016) for finitely many arms, with δ = {_DRIFT_DELTA:g} and upper bounds on γ. Where a printed "
    "step does not follow, what the proof does give is used."
)


def _drift_bound(shared: _Shared, policy: str, name: str, given: Options) -> Bound:
    """The same for all seeds, as they share one model."""
    world, rounds, T = shared.world, shared.rounds, shared.run.rounds
    posterior: Any = cast(Any, shared.experiment.build_policy(policy, world)).posterior
    true = _true_drift(world, posterior.drift if name == "tv-gp-ucb" else None)
    model, n, gamma = world.model, len(world.offer(1).arms), shared.growth(T)
    noise = model.noise_variance
    theorem: Options = {"arms": n, "noise_variance": noise, "delta": _DRIFT_DELTA}
    words = f"{_DRIFT_POLICIES[name]}. Drawn although the run does not meet this assumption: "
    words += f"widths √β_t (here √({given['c1']:g} ln({given['c2']:g} t)))"
    if name == "tv-gp-ucb":
        found = theory.drifting_information_gain(model.kernel, model.arms, T, noise, true)
        growth = theory.DriftingGrowth(gamma=gamma, epsilon=true, noise_variance=noise, horizon=T)

        def drifting(t: int) -> float:
            return min(2.0 * float(found[t]), growth(t))  # greedy reaches half at least

        values = theory.regret_bound_tv_gp_ucb(rounds, drifting, **theorem)
    else:
        block = posterior.block
        values = theory.regret_bound_r_gp_ucb(rounds, gamma, block=block, epsilon=true, **theorem)
    most = 2.0 * T * math.sqrt(2.0 * math.log(n))
    if values[-1] > most:
        words += ". This bound is too loose to say anything: no policy loses more than "
        words += f"2T√(2 ln n) = {most:,.0f} in the mean"
    if _drift_order(shared, policy, name, given):
        words += ". The order of Corollary 4.1 is drawn as well, scaled to end where the regret does"
    return Bound(f"{name.upper()} bound (assumptions not met)", rounds, values, words)


def _drift_order(shared: _Shared, policy: str, name: str, given: Options) -> dict[str, Bound]:
    """Corollary 4.1, where it covers the policy; scaled, as it states no constants."""
    world = shared.world
    if not isinstance(world, DriftingFunction) or world.epsilon == 0.0:
        return {}
    nu = world.nu if world.kernel == "matern" else math.inf
    chosen_block = name == "r-gp-ucb" and (given["block"] is not None or given["epsilon"] is not None)
    if nu <= 2.0 or chosen_block or world.model.drift != Temporal(epsilon=world.epsilon):
        return {}
    algorithm: theory.DriftAlgorithm = "r-gp-ucb" if name == "r-gp-ucb" else "tv-gp-ucb"
    rate = theory.rate_drift(shared.rounds, world.epsilon, algorithm, dimension=world.dimension, nu=nu)
    end = float(shared.run.cumulative(policy, 0)[:, -1].mean())
    words = "The order of Corollary 4.1, without logarithms, scaled to end where the regret does"
    label = f"order of Corollary 4.1, {policy}"
    return {policy: Bound(label, shared.rounds, rate * end / (float(rate[-1]) or 1.0), words)}


def _true_drift(world: World, told: Kernel | None) -> float:
    """ε of the truth, if the theorem covers what a learner is told of it, where it is told."""
    if not isinstance(world, DriftingFunction):
        reason = "the truth is no draw of a Gaussian process that drifts by a known ε"
        raise _NoBoundError(f"{reason}: the theorems need one")
    if world.k != 1:
        raise _NoBoundError(f"{world.k} arms are chosen in a round: the theorems are about one")
    true = world.epsilon
    if told not in (None, Temporal(epsilon=true)):
        epsilon = told.epsilon if isinstance(told, Temporal) else None
        reason = f"is told {told if epsilon is None else f'ε = {epsilon:g}'}"
        reason = "forgets nothing" if epsilon == 0.0 else reason
        raise _NoBoundError(
            f"it {reason} while the truth drifts by {true:g}: the theorem needs a learner that is told "
            "the true ε"
        )
    return true
