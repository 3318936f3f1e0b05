"""How often runs are judged wrongly: ``python -m bench.judging [--runs N] [--draws N] [--seed S]``.

*Calibration.* Runs of a bandit whose learners have the right model: the truth is a draw from their
prior, and the noise is theirs. Any "Not all intervals cover what they should" is a false alarm. The
same runs with standard deviations that are stated 1.5 or 2 times too small, of rewards or of what was
learned alone, show how often a wrong model is noticed.

*Verdicts.* Claims about totals of which nothing is true (ties with several rivals, skewed seeds, rare
disasters, rounding, seeds that share their days), and about totals that plainly differ.

Only public functions are used, so that the same script judges the judge of an earlier version.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
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


# --- calibration -----------------------------------------------------------------------------------


class Bandit(NamedTuple):
    """What is played: which sets of arms may be chosen, by learners with the right prior."""

    covariance: Floats  # (n, n), of the prior
    actions: NDArray[np.intp]  # (actions, k), the arms of each
    noise_variance: float


def scattered(rng: Rng) -> Bandit:
    """Forty arms on a line, of which any five neighbours by number may be chosen."""
    points = np.sort(rng.random(40))[:, None]
    starts = rng.permutation(40)
    actions = np.array([(start + np.arange(5)) % 40 for start in starts])
    return Bandit(Matern(nu=2.5, lengthscale=0.1)(points), actions, 0.3)


def routes(rng: Rng) -> Bandit:
    """Sixty edges of similar roads and forty routes of twelve, few of them good: one is driven again
    and again, as in ``navigation/city``."""
    points = rng.random((60, 2))
    actions = np.array([rng.choice(60, size=12, replace=False) for _ in range(40)])
    return Bandit(Matern(nu=2.5, lengthscale=0.5)(points), actions, 0.1)


@dataclass(frozen=True)
class SimulatedRun:
    """As much of a run as calibration reads."""

    rounds: int
    seeds: range
    audits: Mapping[tuple[str, int], Mapping[str, Floats]]
    picked: Mapping[tuple[str, int], NDArray[np.intp]]
    policies: tuple[str, ...] = POLICIES
    settings: tuple[Mapping[str, Any], ...] = ({},)
    spec: Mapping[str, Any] = field(default_factory=dict)  # nothing is late

    def audit(self, policy: str, setting_index: int, seed: int) -> Mapping[str, Floats]:
        return self.audits[policy, seed]

    def choices(self, policy: str, setting_index: int, seed: int) -> NDArray[np.intp]:
        return self.picked[policy, seed]

    def road_map(self, setting_index: int = 0) -> None:
        return None


class Error(NamedTuple):
    """By which factors stated standard deviations are too small: that of the truth, and of noise."""

    latent: float = 1.0
    noise: float = 1.0


def played(
    make: Callable[[Rng], Bandit], rng: Rng, *, rounds: int, seeds: int, error: Error
) -> SimulatedRun:
    """A run in which all policies meet the same truth and noise, seed by seed."""
    bandit = make(rng)
    root = np.linalg.cholesky(bandit.covariance + 1e-9 * np.eye(len(bandit.covariance)))
    audits, picked = {}, {}
    for seed in range(seeds):
        truth = root @ rng.standard_normal(len(root))
        noise = np.sqrt(bandit.noise_variance) * rng.standard_normal(
            (rounds, len(root))
        )
        for policy in POLICIES:
            audit, chosen = _learned(bandit, policy, truth, noise, rng, error)
            audits[policy, seed], picked[policy, seed] = audit, chosen
    return SimulatedRun(rounds, range(seeds), audits, picked)


def _learned(
    bandit: Bandit, policy: str, truth: Floats, noise: Floats, rng: Rng, error: Error
) -> tuple[dict[str, Floats], NDArray[np.intp]]:
    """One policy in one seed; it learns rightly, and states its uncertainty with an error."""
    n, rounds = len(truth), len(noise)
    mean, covariance, variance = (
        np.zeros(n),
        bandit.covariance.copy(),
        bandit.noise_variance,
    )
    audit: dict[str, Floats] = {}
    for name in ("within", "first", "true_within"):
        audit[name] = np.full((rounds, len(LEVELS)), np.nan)
    for name in ("firsts", "score", "true_score"):
        audit[name] = np.full(rounds, np.nan)
    chosen, seen = (
        np.empty((rounds, bandit.actions.shape[1]), dtype=np.intp),
        np.zeros(n, dtype=bool),
    )
    for step in range(rounds):
        index = mean
        if policy == "ucb":
            index = mean + 2.0 * np.sqrt(np.diagonal(covariance))
        if policy == "thompson":
            index = rng.multivariate_normal(
                mean, covariance, method="cholesky", check_valid="ignore"
            )
        arms = bandit.actions[np.argmax(index[bandit.actions].sum(axis=1))]
        rewards = truth[arms] + noise[step, arms]
        chosen[step] = arms
        spread = covariance[np.ix_(arms, arms)] + variance * np.eye(len(arms))
        latent = covariance[np.ix_(arms, arms)] / error.latent**2
        stated = latent + variance / error.noise**2 * np.eye(len(arms))
        away, true_away = rewards - mean[arms], truth[arms] - mean[arms]
        inside = (
            np.abs(away)[:, None] <= QUANTILES * np.sqrt(np.diagonal(stated))[:, None]
        )
        limits = QUANTILES * np.sqrt(np.diagonal(latent))[:, None]
        fresh = ~seen[arms]
        audit["within"][step] = inside.mean(axis=0)
        audit["firsts"][step] = fresh.sum()
        if fresh.any():
            audit["first"][step] = inside[fresh].mean(axis=0)
        audit["true_within"][step] = (np.abs(true_away)[:, None] <= limits).mean(axis=0)
        audit["score"][step] = away.sum() / np.sqrt(stated.sum())
        audit["true_score"][step] = true_away.sum() / np.sqrt(latent.sum())
        seen[arms] = True
        gain = np.linalg.solve(spread, covariance[arms]).T  # (n, k)
        mean = mean + gain @ away
        covariance = covariance - gain @ covariance[arms]
        covariance = 0.5 * (covariance + covariance.T) + 1e-12 * np.eye(n)
    return audit, chosen


def alarms(make: Callable[[Rng], Bandit], runs: int, seed: int, **size: Any) -> float:
    """The share of runs that are called wrongly calibrated."""
    rng = np.random.default_rng(seed)
    verdicts = (
        calibration_verdict(calibrations(played(make, rng, **size)))  # type: ignore[arg-type]
        for _ in range(runs)
    )
    return sum(verdict.startswith(ALARM) for verdict in verdicts) / runs


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


class Case(NamedTuple):
    """Totals of "a" and its rivals, of which "a is below all others" is claimed."""

    name: str
    draw: Callable[[Rng], Totals]


def _normal(rng: Rng, seeds: int, mean: float = 100.0) -> Floats:
    return mean + 10.0 * rng.standard_normal(seeds)


def _ties(rivals: int) -> Callable[[Rng], Totals]:
    """Equal means, and seeds that all policies share a part of."""

    def draw(rng: Rng) -> Totals:
        names = ["a", *(f"rival-{number}" for number in range(rivals))]
        common = _normal(rng, 5, 0.0)
        return Totals({name: common + _normal(rng, 5) for name in names})

    return draw


def _lognormal(seeds: int) -> Callable[[Rng], Totals]:
    def draw(rng: Rng) -> Totals:
        return Totals(
            {"a": rng.lognormal(0.0, 1.0, seeds), "b": np.full(seeds, np.exp(0.5))}
        )

    return draw


def _disasters(seeds: int, lead: float, chance: float = 0.1) -> Callable[[Rng], Totals]:
    """Better by ``lead`` in most seeds, and so bad in the others that means are equal."""

    def draw(rng: Rng) -> Totals:
        bad = rng.random(seeds) < chance
        usual = 100.0 * (1.0 - lead) + rng.standard_normal(seeds)
        return Totals(
            {
                "a": usual + bad * 100.0 * lead / chance,
                "b": 100.0 + rng.standard_normal(seeds),
            }
        )

    return draw


def _rounding(rng: Rng) -> Totals:
    exact = 1000.0 + rng.random(5)
    return Totals({"a": exact - 1e-12, "b": exact})


def _days(rng: Rng) -> Totals:
    """Wind's seeds: 40 of the same 72 days each, on which neither policy is better."""
    days = 10.0 * rng.standard_normal(72)
    leads = np.array([days[rng.permutation(72)[:40]].mean() for _ in range(5)])
    return Totals({"a": 100.0 + leads, "b": np.full(5, 100.0)}, shared=40.0 / 72.0)


def _clear(seeds: int, lead: float) -> Callable[[Rng], Totals]:
    """Better by ``lead``; seeds differ by a tenth of each total."""

    def draw(rng: Rng) -> Totals:
        noise = 1.0 + 0.1 * rng.standard_normal((2, seeds))
        return Totals({"a": 100.0 * (1.0 - lead) * noise[0], "b": 100.0 * noise[1]})

    return draw


NULL = (
    *(Case(f"{count} tied rivals, 5 seeds", _ties(count)) for count in (1, 3, 6, 10)),
    *(
        Case(f"lognormal, equal means, {seeds} seeds", _lognormal(seeds))
        for seeds in (5, 10, 25)
    ),
    *(
        Case(
            f"one disaster in ten, else {100 * lead:.0f} % better, {seeds} seeds",
            _disasters(seeds, lead),
        )
        for lead in (0.1, 0.3, 0.9)
        for seeds in (5, 10, 30)
    ),
    Case("a lead of 1e-12 on 1,000, 5 seeds", _rounding),
    Case("wind: 40 of the same 72 days, 5 seeds", _days),
)
REAL = tuple(
    Case(f"{100 * lead:.0f} % better, {seeds} seeds", _clear(seeds, lead))
    for lead in (0.2, 0.3, 0.5, 0.8)
    for seeds in (3, 5, 10, 25)
)


def shares(case: Case, draws: int, seed: int) -> tuple[float, float]:
    """How often the claim holds, and how often it does not hold."""
    rng = np.random.default_rng(seed)
    counts = {"holds": 0, "does not hold": 0, "undecided": 0}
    for _ in range(draws):
        run = case.draw(rng)
        rivals = [name for name in run.policies if name != "a"]
        claim = {
            "text": "a is below all others",
            "check": "below",
            "policy": "a",
            "versus": rivals,
        }
        (verdict,) = judge(run, [claim])  # type: ignore[arg-type]
        counts[verdict.verdict] += 1
    return counts["holds"] / draws, counts["does not hold"] / draws


def lines(runs: int, draws: int, seed: int) -> Iterator[str]:
    yield "| runs with forecasts | false alarms | std 1.5 × too small | 2 × | latent 1.5 × | 2 × |"
    yield "|---|---:|---:|---:|---:|---:|"
    sizes = (
        ("60 rounds, 5 seeds", scattered, {"rounds": 60, "seeds": 5}),
        ("20 rounds, 3 seeds", scattered, {"rounds": 20, "seeds": 3}),
        ("routes, 60 rounds, 5 seeds", routes, {"rounds": 60, "seeds": 5}),
    )
    for name, make, size in sizes:
        found = [alarms(make, runs, seed, **size, error=Error())]
        errors = Error(1.5, 1.5), Error(2.0, 2.0), Error(1.5), Error(2.0)
        found += [
            alarms(make, max(1, runs // 4), seed, **size, error=error)
            for error in errors
        ]
        yield f"| {name} | {' | '.join(f'{100 * share:.0f} %' for share in found)} |"
    for title, cases in (("nothing is true", NULL), ("a is better", REAL)):
        yield ""
        yield f"| {title} | holds | does not hold |"
        yield "|---|---:|---:|"
        for case in cases:
            holds, fails = shares(case, draws, seed)
            yield f"| {case.name} | {100 * holds:.1f} % | {100 * fails:.1f} % |"


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
    options = parser.parse_args()
    for line in lines(options.runs, options.draws, options.seed):
        print(line, flush=True)


if __name__ == "__main__":
    main()
