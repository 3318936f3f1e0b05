"""Where a problem on roads takes place, as far as the command line says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import click

from superarm.core.registry import parameters_of, suggestion
from superarm.lab.experiments import Experiment
from superarm.roads.routing import NETWORKS

from .common import check_elevation, check_network

_ON_ONES_OWN = (
    "navigation/network"  # the experiment that has no network unless one is given
)


class Place(NamedTuple):
    """What ``--net``, ``--from``, ``--to``, ``--elevation`` and ``--flat`` say."""

    net: str | None = None
    start: str | None = None
    goal: str | None = None
    elevation: Path | None = None
    flat: bool | None = None

    def applied(
        self, experiment: Experiment, given: Mapping[str, Any]
    ) -> tuple[Experiment, dict[str, Any]]:
        """The experiment, and the parameters that place it; ``given`` is what ``--set`` says.

        A network that is named replaces what the experiment itself says of the place, in its
        problem and in its sweep: a route, a network, and ends that exist on another network only. The
        title, which heads the report, begins with it.
        """
        self._check(experiment, given)
        networked = self.net is not None or _value("network", given) is not None
        if not networked and experiment.id == _ON_ONES_OWN:
            raise click.UsageError(
                f"{_ON_ONES_OWN} is about a network of your own: name it with --net FILE "
                "(or --net city; navigation/city compares more policies there)"
            )
        parameters: dict[str, Any] = {}
        if self.elevation is not None:
            parameters["problem.elevation"] = str(self.elevation.resolve())
        if self.flat is not None:
            parameters["problem.flat"] = True
        if self.net is not None:
            # In full: workers, and ``--resume`` from another directory, must find the same file.
            named = self.net in NETWORKS or not Path(self.net).exists()
            parameters["problem.network"] = (
                self.net if named else str(Path(self.net).resolve())
            )
        elif (
            self.start is not None
            and not networked
            and (own := _network_of_routes(experiment))
        ):
            parameters["problem.network"] = own
        if self.start is not None:
            parameters |= {"problem.start": self.start, "problem.goal": self.goal}
        dropped: set[str] = set()
        if networked or self.start is not None:
            dropped = {"route", "start", "goal"}
            dropped |= {"network"} if "problem.network" in parameters else set()
        placed = _without(experiment, dropped)
        if self.net is not None:
            placed = replace(
                placed,
                title=f"{Path(self.net).name}: {experiment.title or experiment.id}",
            )
        return placed, parameters

    def _check(self, experiment: Experiment, given: Mapping[str, Any]) -> None:
        takes = set(parameters_of("problem", experiment.problem["name"]))
        about = f"{experiment.id} is about {experiment.problem['name']!r}"
        ends = (self.net, self.start, self.goal)
        if self.net is not None and "network" not in takes:
            raise click.UsageError(f"--net is for problems on roads; {about}")
        if (self.start, self.goal) != (None, None) and not {"start", "goal"} <= takes:
            raise click.UsageError(
                f"--from and --to are for problems on roads with one trip; {about}"
            )
        if (self.elevation is not None or self.flat is not None) and not {
            "elevation",
            "flat",
        } <= takes:
            raise click.UsageError(
                f"--elevation and --flat are for problems on roads with heights; {about}"
            )
        check_elevation(self.elevation)
        if self.net is not None:
            check_network(self.net)
        if (self.start is None) != (self.goal is None):
            raise click.UsageError("--from and --to go together: name both, or neither")
        names = {
            "--net": "network",
            "--from": "start",
            "--to": "goal",
            "--elevation": "elevation",
        }
        names["--flat"] = "flat"
        for (option, name), said in zip(names.items(), self, strict=True):
            if said is not None and _value(name, given) is not None:
                raise click.UsageError(
                    f"{name} is given twice: by --set and by {option}"
                )
        if any(end is not None for end in ends) and _value("route", given) is not None:
            raise click.UsageError(
                "--set route names network, start and goal, as --net, --from and --to do; choose one"
            )


def _value(name: str, given: Mapping[str, Any]) -> Any:
    """A parameter of the problem, under either of its names."""
    return given.get(f"problem.{name}", given.get(name))


def _network_of_routes(experiment: Experiment) -> str | None:
    """The one network on which the experiment's own routes lie."""
    from superarm.roads.problems.road_models import ROUTES

    routes = _value("route", {**experiment.problem, **experiment.sweep})
    if routes is None:
        return None
    networks: set[str] = set()
    for route in [routes] if isinstance(routes, str) else routes:
        if route not in ROUTES:
            raise click.UsageError(f"route is {route!r}; {suggestion(route, ROUTES)}")
        networks.add(ROUTES[route].network)
    if len(networks) > 1:
        raise click.UsageError(
            f"{experiment.id} is about {' and '.join(sorted(networks))}: say with --net on which "
            "of them --from and --to are"
        )
    return networks.pop()


def _without(experiment: Experiment, names: set[str]) -> Experiment:
    def kept(table: Mapping[str, Any]) -> dict[str, Any]:
        return {
            key: each
            for key, each in table.items()
            if key.removeprefix("problem.") not in names
        }

    return replace(
        experiment, problem=kept(experiment.problem), sweep=kept(experiment.sweep)
    )
