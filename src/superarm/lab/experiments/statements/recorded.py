"""A finished run together with the experiment that made it, so that its rounds can be replayed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Decision, Floats, Ints, Offer
from superarm.core.errors import StateError
from superarm.core.registry import parameters_of
from superarm.core.streams import Streams
from superarm.lab.experiments.spec import Experiment
from superarm.lab.results.formats import count_text, setting_prefix
from superarm.lab.simulation import Run, cell_name
from superarm.lab.simulation.files import damaged
from superarm.models.worlds import World

_MORE_ROADS = (
    2  # a city has about as many edges as it is asked for, surely half of them
)


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

    @classmethod
    def of(cls, run: Run) -> RecordedRun:
        """Rebuild the experiment from a ``run.json`` that anybody may have written.

        Problems bound their own sizes. Roads must be as many as the run has drawn, because a city of
        millions takes minutes to make; and no file is written, because nothing is driven again.
        """
        if "parameters" not in run.spec:
            path = run.directory / "run.json"
            raise StateError(
                f"{path} has no parameters, which theory needs; run the experiment again"
            )
        data = {
            "id": run.experiment,
            "rounds": run.rounds,
            "seeds": 1,
            **run.spec["parameters"],
        }
        recorded = cls(
            run=run, experiment=Experiment.from_mapping(data, str(run.directory))
        )
        recorded._check_roads()
        return recorded

    def _check_roads(self) -> None:
        problem = self.at(0).problem
        roads = self.run.road_map(0)
        generated = (
            problem.get("network") in (None, "city") and problem.get("route") is None
        )
        edges = problem.get("edges", 0) if generated else 0
        if (
            roads is not None
            and isinstance(edges, int)
            and edges > _MORE_ROADS * len(roads)
        ):
            where = self.run.directory / "run.json"
            raise StateError(
                f"{where} has a city of {edges:,} edges, but the run was on {len(roads):,}; "
                "undo the change, or run again"
            )

    def at(self, setting_index: int) -> Experiment:
        """The experiment in one of the run's settings, without a cache of drives."""
        experiment = self.experiment.with_setting(self.run.settings[setting_index])
        problem = {
            key: value for key, value in experiment.problem.items() if key != "cache"
        }
        return replace(experiment, problem=problem)

    def world(self, seed: int, setting_index: int = 0) -> World:
        """The problem as a seed of the run met it."""
        return self.at(setting_index).build_problem(seed=seed, horizon=self.run.rounds)

    def algorithm(self, policy: str) -> str:
        """The registered name behind a policy's name in this run."""
        return str(self.experiment.policies.get(policy, {}).get("policy", policy))

    def options(self, policy: str, setting_index: int = 0) -> Mapping[str, Any]:
        """What the policy was given in a setting, over its defaults."""
        given = self.at(setting_index).policies.get(policy, {})
        return {**parameters_of("policy", self.algorithm(policy)), **given}

    def is_modified(self, policy: str, setting_index: int = 0) -> bool:
        """Whether the policy's posterior is wrapped, or its model is not the problem's own."""
        options = self.options(policy, setting_index)
        return bool(options.get("wrapped") or options.get("told"))

    def where(self, setting_index: int) -> str:
        """Words that name a setting in front of evidence; empty where the run has no settings."""
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
        world = self.world(seed, setting_index) if world is None else world
        streams = Streams(seed, "noise")
        cell = (
            self.run.directory
            / "cells"
            / f"{cell_name(policy, setting_index, seed)}.npz"
        )
        for step, row in enumerate(
            self.run.choices(policy, setting_index, seed), start=1
        ):
            offer = world.offer(step)
            chosen = row[row >= 0].astype(np.intp)
            if chosen.max(initial=-1) >= len(offer.arms) or len(
                np.unique(chosen)
            ) < len(chosen):
                raise damaged(
                    cell,
                    f"round {step} chooses arms that are not on offer, or one twice",
                )
            if arms is not None and len(chosen) != arms:
                raise damaged(
                    cell,
                    f"round {step} must choose {count_text(arms, 'arm')}, got {len(chosen)}",
                )
            decision = Decision(step=step, action=chosen, positions=chosen)
            feedback = world.feedback(
                offer, decision, world.noise(offer, streams.at(step))
            )
            yield Round(offer, feedback.positions, feedback.rewards)
