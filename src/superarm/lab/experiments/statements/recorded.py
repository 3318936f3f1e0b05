"""A finished run together with the experiment that made it, so that its rounds can be replayed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Decision, Floats, Ints, Offer
from superarm.core.errors import StateError
from superarm.core.registry import parameters_of
from superarm.core.streams import Streams
from superarm.lab.experiments.parts import FORMER_ASSUMES
from superarm.lab.experiments.spec import Experiment
from superarm.lab.results.formats import count_text, setting_prefix
from superarm.lab.simulation import Run, cell_name
from superarm.lab.simulation.files import damaged
from superarm.models.worlds import World

# A generated city has about as many edges as requested, and at least half of them.
_MORE_ROADS = 2


class Round(NamedTuple):
    """One round of a recorded cell."""

    offer: Offer
    positions: Ints
    """Which arms were observed, (k,)."""
    rewards: Floats
    """What was observed of them, (k,)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedRun:
    """A run and its experiment, as ``run.json`` describes it.

    Args:
        run: the finished run.
        experiment: its experiment before any setting is applied.
    """

    run: Run
    experiment: Experiment
    _by_setting: dict[int, Experiment] = field(
        default_factory=dict, init=False, repr=False
    )

    @classmethod
    def from_run(cls, run: Run) -> RecordedRun:
        """Rebuild the experiment from a ``run.json`` that anybody may have written.

        Problems bound their own sizes. Roads must be as many as the run has drawn, because a city of
        millions takes minutes to make; and no file is written, because nothing is driven again.

        Args:
            run: a finished run.
        """
        if "parameters" not in run.spec:
            path = run.directory / "run.json"
            raise StateError(
                f"{path} has no parameters, which theory needs; run the experiment again"
            )
        parameters = run.spec["parameters"]
        policies = parameters.get("policies", {})
        data = {
            "id": run.experiment,
            "rounds": run.rounds,
            "seeds": 1,
            **parameters,
            "policies": {
                name: _with_assumes(options) for name, options in policies.items()
            },
        }
        experiment = Experiment.from_mapping(data, str(run.directory))
        recorded = cls(run=run, experiment=experiment)
        recorded.in_setting(0)  # raises for what cannot be replayed
        return recorded

    def _check_roads(self, problem: Mapping[str, Any], setting_index: int) -> None:
        """Refuse a generated city that is far larger than the one that was recorded."""
        roads = self.run.road_map(setting_index)
        is_city = problem.get("network") in (None, "city")
        if roads is None or not is_city or problem.get("route") is not None:
            return
        edges = problem.get("edges", 0)
        if isinstance(edges, int) and edges > _MORE_ROADS * len(roads):
            where = self.run.directory / "run.json"
            raise StateError(
                f"{where} has a city of {edges:,} edges, but the run was on {len(roads):,}; "
                "undo the change, or run again"
            )

    def in_setting(self, setting_index: int) -> Experiment:
        """The experiment in one of the run's settings, without a cache of drives.

        Args:
            setting_index: of the setting.
        """
        if setting_index not in self._by_setting:
            owners = [f"{policy}." for policy in self.experiment.policies]
            setting = _with_assumes(self.run.settings[setting_index], owners)
            experiment = self.experiment.with_setting(setting)
            problem = dict(experiment.problem)
            problem.pop("cache", None)
            self._check_roads(problem, setting_index)
            uncached = replace(experiment, problem=problem)
            self._by_setting[setting_index] = uncached
        return self._by_setting[setting_index]

    def world(self, seed: int, setting_index: int = 0) -> World:
        """The problem as a seed of the run met it.

        Args:
            seed: of the cell.
            setting_index: of the cell.
        """
        experiment = self.in_setting(setting_index)
        return experiment.build_problem(seed=seed, horizon=self.run.rounds)

    def algorithm(self, policy: str) -> str:
        """The registered name behind a policy's name in this run.

        Args:
            policy: its name in the run.
        """
        table = self.experiment.policies.get(policy, {})
        return str(table.get("policy", policy))

    def options(self, policy: str, setting_index: int = 0) -> Mapping[str, Any]:
        """The policy's table in a setting, over its defaults.

        Args:
            policy: its name in the run.
            setting_index: of the setting.
        """
        experiment = self.in_setting(setting_index)
        table = experiment.policies.get(policy, {})
        algorithm = self.algorithm(policy)
        defaults = parameters_of("policy", algorithm)
        return {**defaults, **table}

    def is_modified(self, policy: str, setting_index: int = 0) -> bool:
        """Whether the policy's posterior is wrapped, or its model is not the problem's own.

        Args:
            policy: its name in the run.
            setting_index: of the setting.
        """
        options = self.options(policy, setting_index)
        return bool(options.get("wrapped") or options.get("assumes"))

    def where(self, setting_index: int) -> str:
        """Words that name a setting in front of evidence; empty where the run has no settings.

        Args:
            setting_index: of the setting.
        """
        return setting_prefix(self.run.settings[setting_index])

    def rounds(
        self,
        policy: str,
        seed: int,
        setting_index: int = 0,
        world: World | None = None,
        *,
        arms: int | None = None,
    ) -> Iterator[Round]:
        """Replay a cell: what was on offer, what was chosen and what was observed, round by round.

        Args:
            policy: of the cell.
            seed: of the cell.
            setting_index: of the cell.
            world: the problem as the seed met it, if it is at hand.
            arms: how many arms every round must choose; ``None`` where rounds may differ.
        """
        if world is None:
            world = self.world(seed, setting_index)
        streams = Streams(seed, "noise")
        file_name = f"{cell_name(policy, setting_index, seed)}.npz"
        file = self.run.directory / "cells" / file_name
        choices = self.run.choices(policy, setting_index, seed)
        for step, row in enumerate(choices, start=1):
            offer = world.offer(step)
            chosen = row[row >= 0].astype(np.intp)  # rows are padded with −1
            is_on_offer = chosen.max(initial=-1) < len(offer.arms)
            is_repeated = len(np.unique(chosen)) < len(chosen)
            if not is_on_offer or is_repeated:
                message = (
                    f"round {step} chooses arms that are not on offer, or one twice"
                )
                raise damaged(file, message)
            if arms is not None and len(chosen) != arms:
                needed = count_text(arms, "arm")
                message = f"round {step} must choose {needed}, got {len(chosen)}"
                raise damaged(file, message)
            decision = Decision(step=step, action=chosen, positions=chosen)
            noise = world.noise(offer, streams.at(step))
            feedback = world.feedback(offer, decision, noise)
            yield Round(offer, feedback.positions, feedback.rewards)


def _with_assumes(
    table: Mapping[str, Any], owners: Sequence[str] = ("",)
) -> dict[str, Any]:
    """A table of an older run with its key ``told`` renamed to ``assumes``.

    Args:
        table: a policy's table, or a setting.
        owners: what precedes the key: "" in a policy's table, "POLICY." in a setting.
    """
    current_keys = {}
    for owner in owners:
        current_keys[f"{owner}{FORMER_ASSUMES}"] = f"{owner}assumes"
    return {current_keys.get(key, key): value for key, value in table.items()}
