"""Facts about a setting, from building everything in it once before a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from superarm.core import Policy
from superarm.core.capabilities import (
    OWN_METRICS,
    AdditiveProblem,
    Forecaster,
    HasMetrics,
    Metric,
    ReportsSettings,
)
from superarm.core.errors import (
    FileError,
    MissingDataError,
    MissingExtraError,
    SpecError,
    SuperarmError,
)
from superarm.core.registry import family_of
from superarm.models.worlds import HasRoadMap, SharedData, World
from superarm.rewards import Sum

from .spec import Experiment
from .warm_starts import Start, warm_start

_MOST_DRAWN = 500  # arms in a picture of the truth


class Facts(NamedTuple):
    """What ``run.json`` and the tasks need of the world of one setting."""

    audited: tuple[str, ...]
    """Policies whose forecasts and states are written beside their traces."""
    noise_variance: float
    interpretations: Mapping[str, str]
    """How the problem and the policies read their settings, for reports."""
    metrics: Mapping[str, Metric]
    mapped: bool
    """Whether its arms are roads."""
    shared_data: float = 0.0
    """The share of a seed's records that another seed uses, too."""
    independent_seeds: float | None = None
    """How many independent seeds all seeds are worth at most, where that is known."""


@contextmanager
def errors_about(part: str) -> Iterator[None]:
    """Raise what a part refuses as an error in a spec, which names the part.

    Missing data, bad files and slips in code are not errors in a spec.

    Args:
        part: what the block builds.
    """
    try:
        yield
    except (FileError, MissingDataError, MissingExtraError):
        raise
    except (SuperarmError, ValueError, ArithmeticError) as error:
        message = str(error).removeprefix(f"{part}: ")
        raise SpecError(f"{part}: {message}") from error


def rehearse(
    experiment: Experiment,
    policies: Iterable[str],
    *,
    seed: int,
    rounds: int,
    first: int,
    starts: Mapping[str, Start],
) -> Facts:
    """Build everything once, so that a bad value is a usage error and costs no time.

    Args:
        experiment: in its setting.
        policies: names of the policies to build.
        seed: the first seed of the run.
        rounds: how many rounds are played.
        first: the number of the first round.
        starts: states with which policies begin.
    """
    with errors_about("feedback"):
        experiment.build_lateness()
    with errors_about(f"problem {experiment.problem['name']!r}"):
        world = experiment.build_problem(seed=seed, horizon=first - 1 + rounds)
        interpretations = _interpretations(world)
        interpretations.update(experiment.feedback_description())
        truth = experiment.chart.get("truth")
        if truth:
            _check_drawing(world, truth)
    audited = []
    for name in policies:
        start = starts.get(name)
        with errors_about(f"policy {name!r}"):
            policy = warm_start(experiment.build_policy(name, world), start)
        if start is not None:
            interpretations[f"{name} begins"] = (
                f"with what {start.file.name} holds; rounds are numbered from {first} on"
            )
        if _is_audited(world, policy):
            audited.append(name)
        if isinstance(policy, ReportsSettings) and policy.interpretations:
            interpretations[name] = policy.interpretations
    return Facts(
        audited=tuple(audited),
        noise_variance=float(world.model.noise_variance),
        interpretations=interpretations,
        metrics=_metrics(world),
        mapped=isinstance(world, HasRoadMap),
        shared_data=world.shared_data if isinstance(world, SharedData) else 0.0,
        independent_seeds=_independent_seeds(world),
    )


def _is_audited(world: World, policy: Policy) -> bool:
    return isinstance(world, AdditiveProblem) and isinstance(policy, Forecaster)


def _metrics(world: World) -> dict[str, Metric]:
    metrics = dict(OWN_METRICS)
    if isinstance(world, HasMetrics):
        metrics.update(world.measures)
    return metrics


def _independent_seeds(world: World) -> float | None:
    if not isinstance(world, SharedData):
        return None
    seeds = world.independent_seeds
    return seeds if math.isfinite(seeds) else None


def _check_drawing(world: World, truth: str) -> None:
    """Refuse a picture of the truth that nobody could read."""
    arms, columns = world.offer(1).arms.features.shape
    if arms > _MOST_DRAWN:
        raise SpecError(
            f"[chart]: truth draws at most {_MOST_DRAWN} arms; this problem has {arms:,}"
        )
    if truth == "functions" and columns != 1:
        raise SpecError(
            "[chart]: truth = 'functions' needs arms with one feature; use 'series'"
        )


def _interpretations(world: World) -> dict[str, str]:
    """How a world reads its settings, with its reward and benchmark where they need a word.

    The reward is described where a super arm is worth more than a sum, the benchmark where regret
    may be below zero because its oracle is not exact.
    """
    descriptions: dict[str, str] = {}
    offer = world.offer(1)
    reward = world.model.reward
    if not isinstance(reward, Sum):
        _, name = family_of(reward) or ("", type(reward).__name__)
        descriptions["reward"] = f"{name} of what its arms yield"
    # A problem that describes its regret may have a benchmark that is expensive to compute.
    if "regret" not in world.interpretations:
        alpha = world.best(offer).guarantee.alpha
        if alpha != 1.0:
            descriptions["regret"] = (
                f"against the oracle under the truth, which promises {alpha:.3g} of the optimum: below "
                "zero where a policy found something better; alpha_regret, where the optimum is known, is "
                "against that share of it"
            )
    return {**descriptions, **world.interpretations}
