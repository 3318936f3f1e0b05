"""How often runs are judged wrongly: ``python -m bench.judging [--runs N] [--draws N] [--seed S]``.

*Calibration.* Runs of a bandit whose learners have the right model: the truth is a draw from their
prior, and the noise is theirs. Any "Not all intervals have the right coverage" is a false alarm. The
same runs with standard deviations that are stated 1.5 or 2 times too small, of rewards or of what was
learned alone, show how often a wrong model is noticed.

*Verdicts.* Claims about totals of which nothing is true (ties with several rivals, skewed seeds, rare
disasters, rounding, seeds that share their days), and about totals that plainly differ.

Only public functions are used, so that the same script judges the judge of an earlier version.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superarm.core import LEVELS, QUANTILES
from superarm.core.capabilities import REGRET
from superarm.kernels import Matern
from superarm.lab.experiments import judge
from superarm.lab.results.calibration import calibration_verdict, calibrations

Floats = NDArray[np.float64]
Rng = np.random.Generator
ALARM = "Not all intervals"
POLICIES = ("ucb", "thompson", "greedy")
_UCB_WIDTH = 2.0  # standard deviations


# --- calibration -----------------------------------------------------------------------------------


class Bandit(NamedTuple):
    """Which sets of arms may be chosen, by learners with the right prior."""

    covariance: Floats  # (n, n), of the prior
    actions: NDArray[np.intp]  # (actions, k), the arms of each
    noise_variance: float


def scattered(rng: Rng) -> Bandit:
    """Forty arms on a line, of which any five neighbours by number may be chosen.

    Args:
        rng: Random numbers.
    """
    arms = 40
    points = np.sort(rng.random(arms))[:, None]
    starts = rng.permutation(arms)
    actions = np.array([(start + np.arange(5)) % arms for start in starts])
    kernel = Matern(nu=2.5, lengthscale=0.1)
    return Bandit(kernel(points), actions, noise_variance=0.3)


def routes(rng: Rng) -> Bandit:
    """Sixty edges of similar roads and forty routes of twelve.

    Few are good, so one is driven most of the time, as in ``navigation/city``.

    Args:
        rng: Random numbers.
    """
    edges = 60
    points = rng.random((edges, 2))
    actions = np.array([rng.choice(edges, size=12, replace=False) for _ in range(40)])
    kernel = Matern(nu=2.5, lengthscale=0.5)
    return Bandit(kernel(points), actions, noise_variance=0.1)


@dataclass(frozen=True)
class SimulatedRun:
    """As much of a run as calibration reads."""

    rounds: int
    seeds: range
    audits: Mapping[tuple[str, int], Mapping[str, Floats]]  # by policy and seed
    chosen_arms: Mapping[tuple[str, int], NDArray[np.intp]]
    policies: tuple[str, ...] = POLICIES
    settings: tuple[Mapping[str, Any], ...] = ({},)
    spec: Mapping[str, Any] = field(default_factory=dict)  # nothing is late

    def audit(self, policy: str, setting_index: int, seed: int) -> Mapping[str, Floats]:
        return self.audits[policy, seed]

    def choices(self, policy: str, setting_index: int, seed: int) -> NDArray[np.intp]:
        return self.chosen_arms[policy, seed]

    def road_map(self, setting_index: int = 0) -> None:
        return None


class Error(NamedTuple):
    """By which factors stated standard deviations are too small."""

    latent: float = 1.0  # that of the truth
    noise: float = 1.0


NO_ERROR = Error()


class _World(NamedTuple):
    """What one seed draws for all policies."""

    truth: Floats  # (n,)
    noise: Floats  # (T, n)


class _Played(NamedTuple):
    """What one policy did in one seed."""

    audit: dict[str, Floats]
    chosen_arms: NDArray[np.intp]  # (T, k)


def simulated_run(
    make: Callable[[Rng], Bandit], rng: Rng, *, rounds: int, seeds: int, error: Error
) -> SimulatedRun:
    """Play a run in which all policies meet the same truth and noise, seed by seed.

    Args:
        make: Draws the bandit.
        rng: Random numbers.
        rounds: Rounds of each seed.
        seeds: How many.
        error: Of the learners' stated uncertainty.
    """
    bandit = make(rng)
    arms = len(bandit.covariance)
    root = np.linalg.cholesky(bandit.covariance + 1e-9 * np.eye(arms))
    audits = {}
    chosen_arms = {}
    for seed in range(seeds):
        truth = root @ rng.standard_normal(arms)
        noise_std = np.sqrt(bandit.noise_variance)
        noise = noise_std * rng.standard_normal((rounds, arms))
        world = _World(truth, noise)
        for policy in POLICIES:
            result = _play(bandit, policy, world, rng, error)
            audits[policy, seed] = result.audit
            chosen_arms[policy, seed] = result.chosen_arms
    return SimulatedRun(rounds, range(seeds), audits, chosen_arms)


def _play(
    bandit: Bandit, policy: str, world: _World, rng: Rng, error: Error
) -> _Played:
    """Play one policy; it learns rightly, and states its uncertainty with an error."""
    rounds, n = world.noise.shape
    k = bandit.actions.shape[1]
    noise_variance = bandit.noise_variance
    mean = np.zeros(n)
    covariance = bandit.covariance.copy()
    seen = np.zeros(n, dtype=bool)
    chosen_arms = np.empty((rounds, k), dtype=np.intp)
    audit = _empty_audit(rounds)
    for step in range(rounds):
        index = _index(policy, mean, covariance, rng)
        action = np.argmax(index[bandit.actions].sum(axis=1))
        arms = bandit.actions[action]
        rewards = world.truth[arms] + world.noise[step, arms]
        chosen_arms[step] = arms

        latent_covariance = covariance[np.ix_(arms, arms)]
        reward_covariance = latent_covariance + noise_variance * np.eye(k)
        stated_latent = latent_covariance / error.latent**2
        stated = stated_latent + noise_variance / error.noise**2 * np.eye(k)

        innovation = rewards - mean[arms]
        latent_error = world.truth[arms] - mean[arms]
        inside = _inside(innovation, stated)
        new = ~seen[arms]
        audit["within"][step] = inside.mean(axis=0)
        audit["firsts"][step] = new.sum()
        if new.any():
            audit["first"][step] = inside[new].mean(axis=0)
        audit["true_within"][step] = _inside(latent_error, stated_latent).mean(axis=0)
        audit["score"][step] = _score(innovation, stated)
        audit["true_score"][step] = _score(latent_error, stated_latent)
        seen[arms] = True

        gain = np.linalg.solve(reward_covariance, covariance[arms]).T  # (n, k)
        mean = mean + gain @ innovation
        covariance = covariance - gain @ covariance[arms]
        covariance = 0.5 * (covariance + covariance.T) + 1e-12 * np.eye(n)
    return _Played(audit, chosen_arms)


def _empty_audit(rounds: int) -> dict[str, Floats]:
    audit: dict[str, Floats] = {}
    for name in ("within", "first", "true_within"):
        audit[name] = np.full((rounds, len(LEVELS)), np.nan)
    for name in ("firsts", "score", "true_score"):
        audit[name] = np.full(rounds, np.nan)
    return audit


def _index(policy: str, mean: Floats, covariance: Floats, rng: Rng) -> Floats:
    """The numbers by which a policy ranks arms, (n,)."""
    if policy == "ucb":
        std = np.sqrt(np.diagonal(covariance))
        return mean + _UCB_WIDTH * std
    if policy == "thompson":
        return rng.multivariate_normal(
            mean, covariance, method="cholesky", check_valid="ignore"
        )
    return mean


def _inside(errors: Floats, covariance: Floats) -> NDArray[np.bool_]:
    """Whether each error is inside each interval of ``LEVELS``, (k, levels)."""
    std = np.sqrt(np.diagonal(covariance))
    inside: NDArray[np.bool_] = np.abs(errors)[:, None] <= QUANTILES * std[:, None]
    return inside


def _score(errors: Floats, covariance: Floats) -> float:
    """The sum of errors in its standard deviations."""
    return float(errors.sum() / np.sqrt(covariance.sum()))


def alarms(
    make: Callable[[Rng], Bandit],
    runs: int,
    seed: int,
    *,
    rounds: int,
    seeds: int,
    error: Error,
) -> float:
    """The share of runs that are called wrongly calibrated.

    Args:
        make: Draws the bandit.
        runs: How many runs.
        seed: Of all random numbers.
        rounds: Rounds of each seed.
        seeds: Of each run.
        error: Of the learners' stated uncertainty.
    """
    rng = np.random.default_rng(seed)
    count = 0
    for _ in range(runs):
        run = simulated_run(make, rng, rounds=rounds, seeds=seeds, error=error)
        verdict = calibration_verdict(calibrations(run))  # type: ignore[arg-type]
        count += verdict.startswith(ALARM)
    return count / runs


# --- verdicts --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Totals:
    """As much of a run as a claim reads: totals of every policy, seed by seed."""

    totals: Mapping[str, Floats]
    shared: float = 0.0
    experiment: str = "simulated"
    rounds: int = 1
    settings: tuple[Mapping[str, Any], ...] = ({},)
    spec: Mapping[str, Any] = field(default_factory=dict)

    @property
    def policies(self) -> list[str]:
        return list(self.totals)

    @property
    def seeds(self) -> range:
        return range(len(next(iter(self.totals.values()))))

    def cumulative(
        self, policy: str, setting_index: int = 0, metric: str = "regret"
    ) -> Floats:
        return self.totals[policy][:, None]

    def metric(self, name: str, setting_index: int) -> Any:
        return REGRET

    def metrics_at(self, setting_index: int) -> tuple[str, ...]:
        return ("regret",)

    def interpretations(self, setting_index: int) -> Mapping[str, str]:
        return {}

    def shared_data(self, setting_index: int) -> float:
        return self.shared

    def independent_seeds(self, setting_index: int) -> float:
        return float("inf")


Draw = Callable[[Rng], Totals]


class Case(NamedTuple):
    """Totals of "a" and its rivals, of which "a is below all others" is claimed."""

    name: str
    draw: Draw


def _normal(rng: Rng, seeds: int, mean: float = 100.0) -> Floats:
    return mean + 10.0 * rng.standard_normal(seeds)


def _ties(rivals: int) -> Draw:
    """Equal means, and seeds that all policies share a part of."""

    def draw(rng: Rng) -> Totals:
        names = ["a", *(f"rival-{number}" for number in range(rivals))]
        common = _normal(rng, 5, 0.0)
        return Totals({name: common + _normal(rng, 5) for name in names})

    return draw


def _lognormal(seeds: int) -> Draw:
    def draw(rng: Rng) -> Totals:
        skewed = rng.lognormal(0.0, 1.0, seeds)
        mean = np.exp(0.5)
        return Totals({"a": skewed, "b": np.full(seeds, mean)})

    return draw


def _disasters(seeds: int, lead: float, chance: float = 0.1) -> Draw:
    """Better by ``lead`` in most seeds, and so bad in the others that means are equal."""

    def draw(rng: Rng) -> Totals:
        disaster = rng.random(seeds) < chance
        usual = 100.0 * (1.0 - lead) + rng.standard_normal(seeds)
        rival = 100.0 + rng.standard_normal(seeds)
        return Totals({"a": usual + disaster * 100.0 * lead / chance, "b": rival})

    return draw


def _rounding(rng: Rng) -> Totals:
    exact = 1000.0 + rng.random(5)
    return Totals({"a": exact - 1e-12, "b": exact})


def _days(rng: Rng) -> Totals:
    """Wind's seeds: 40 of the same 72 days each, on which neither policy is better."""
    days = 10.0 * rng.standard_normal(72)
    leads = np.empty(5)
    for seed in range(5):
        chosen = rng.permutation(72)[:40]
        leads[seed] = days[chosen].mean()
    totals = {"a": 100.0 + leads, "b": np.full(5, 100.0)}
    return Totals(totals, shared=40.0 / 72.0)


def _clear(seeds: int, lead: float) -> Draw:
    """Better by ``lead``; seeds differ by a tenth of each total."""

    def draw(rng: Rng) -> Totals:
        better, usual = 1.0 + 0.1 * rng.standard_normal((2, seeds))
        return Totals({"a": 100.0 * (1.0 - lead) * better, "b": 100.0 * usual})

    return draw


def _null_cases() -> Iterator[Case]:
    """Claims of which nothing is true."""
    for rivals in (1, 3, 6, 10):
        yield Case(f"{rivals} tied rivals, 5 seeds", _ties(rivals))
    for seeds in (5, 10, 25):
        yield Case(f"lognormal, equal means, {seeds} seeds", _lognormal(seeds))
    for lead in (0.1, 0.3, 0.9):
        better = f"{100 * lead:.0f} % better"
        for seeds in (5, 10, 30):
            name = f"one disaster in ten, else {better}, {seeds} seeds"
            yield Case(name, _disasters(seeds, lead))
    yield Case("a lead of 1e-12 on 1,000, 5 seeds", _rounding)
    yield Case("wind: 40 of the same 72 days, 5 seeds", _days)


def _real_cases() -> Iterator[Case]:
    """Claims that are true."""
    for lead in (0.2, 0.3, 0.5, 0.8):
        for seeds in (3, 5, 10, 25):
            yield Case(f"{100 * lead:.0f} % better, {seeds} seeds", _clear(seeds, lead))


NULL = tuple(_null_cases())
REAL = tuple(_real_cases())


class Shares(NamedTuple):
    """How often a claim is decided."""

    holds: float
    does_not_hold: float


def shares(case: Case, draws: int, seed: int) -> Shares:
    """How often the claim holds, and how often it does not hold.

    Args:
        case: What is drawn.
        draws: How often.
        seed: Of all random numbers.
    """
    rng = np.random.default_rng(seed)
    counts: Counter[str] = Counter()
    for _ in range(draws):
        run = case.draw(rng)
        claim = {
            "text": "a is below all others",
            "check": "below",
            "policy": "a",
            "versus": [name for name in run.policies if name != "a"],
        }
        (verdict,) = judge(run, [claim])  # type: ignore[arg-type]
        counts[verdict.verdict] += 1
    return Shares(counts["holds"] / draws, counts["does not hold"] / draws)


# --- tables ----------------------------------------------------------------------------------------


class _RunSize(NamedTuple):
    """A row of the first table."""

    name: str
    make: Callable[[Rng], Bandit]
    rounds: int
    seeds: int


_RUN_SIZES = (
    _RunSize("60 rounds, 5 seeds", scattered, rounds=60, seeds=5),
    _RunSize("20 rounds, 3 seeds", scattered, rounds=20, seeds=3),
    _RunSize("routes, 60 rounds, 5 seeds", routes, rounds=60, seeds=5),
)
_ERRORS = (
    Error(latent=1.5, noise=1.5),
    Error(latent=2.0, noise=2.0),
    Error(latent=1.5),
    Error(latent=2.0),
)
_FEWER_WRONG_RUNS = 4


def calibration_lines(runs: int, seed: int) -> Iterator[str]:
    """The table of false alarms, and of errors that are noticed.

    Args:
        runs: Runs with a right model; a quarter as many with each wrong one.
        seed: Of all random numbers.
    """
    yield "| runs with forecasts | false alarms | std 1.5 × too small | 2 × | latent 1.5 × | 2 × |"
    yield "|---|---:|---:|---:|---:|---:|"
    wrong_runs = max(1, runs // _FEWER_WRONG_RUNS)
    for size in _RUN_SIZES:
        cells = [size.name]
        for error in (NO_ERROR, *_ERRORS):
            share = alarms(
                size.make,
                runs if error == NO_ERROR else wrong_runs,
                seed,
                rounds=size.rounds,
                seeds=size.seeds,
                error=error,
            )
            cells.append(f"{100 * share:.0f} %")
        yield f"| {' | '.join(cells)} |"


def verdict_lines(
    title: str, cases: Sequence[Case], draws: int, seed: int
) -> Iterator[str]:
    """A table of verdicts.

    Args:
        title: What the claims have in common.
        cases: What is drawn, one row each.
        draws: How often.
        seed: Of all random numbers.
    """
    yield ""
    yield f"| {title} | holds | does not hold |"
    yield "|---|---:|---:|"
    for case in cases:
        share = shares(case, draws, seed)
        holds = f"{100 * share.holds:.1f} %"
        does_not_hold = f"{100 * share.does_not_hold:.1f} %"
        yield f"| {case.name} | {holds} | {does_not_hold} |"


def lines(runs: int, draws: int, seed: int) -> Iterator[str]:
    """All tables.

    Args:
        runs: Simulated runs with forecasts.
        draws: Simulated claims of each kind.
        seed: Of all random numbers.
    """
    yield from calibration_lines(runs, seed)
    yield from verdict_lines("nothing is true", NULL, draws, seed)
    yield from verdict_lines("a is better", REAL, draws, seed)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.judging", description=__doc__
    )
    parser.add_argument(
        "--runs", type=int, default=200, help="simulated runs with forecasts"
    )
    parser.add_argument(
        "--draws", type=int, default=2000, help="simulated claims of each kind"
    )
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for line in lines(arguments.runs, arguments.draws, arguments.seed):
        print(line, flush=True)


if __name__ == "__main__":
    main()
