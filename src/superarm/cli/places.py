"""Options of the command line for where a problem on roads takes place."""

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

# The experiment that has no network of its own.
_NEEDS_NETWORK = "navigation/network"
_OPTION_OF_PARAMETER = {
    "network": "--net",
    "start": "--from",
    "goal": "--to",
    "elevation": "--elevation",
    "flat": "--flat",
}


class Place(NamedTuple):
    """The values of ``--net``, ``--from``, ``--to``, ``--elevation`` and ``--flat``."""

    net: str | None = None
    start: str | None = None
    goal: str | None = None
    elevation: Path | None = None
    flat: bool | None = None

    def applied(
        self, experiment: Experiment, overrides: Mapping[str, Any]
    ) -> tuple[Experiment, dict[str, Any]]:
        """The experiment at this place, and the parameters that place it.

        A network replaces everything about the place in the experiment's problem and sweep: a route, a
        network, and ends that exist on another network only. It also begins the title of the report.

        Args:
            experiment: The experiment.
            overrides: The parameters that ``--set`` sets.
        """
        self._check(experiment, overrides)
        has_network = self.net is not None or _value("network", overrides) is not None
        if not has_network and experiment.id == _NEEDS_NETWORK:
            raise click.UsageError(
                f"{_NEEDS_NETWORK} needs a road network: pass --net FILE, or --net city to try it"
            )
        parameters = self._parameters(experiment, has_network)
        replaced: set[str] = set()
        if has_network or self.start is not None:
            replaced = {"route", "start", "goal"}
            if "problem.network" in parameters:
                replaced.add("network")
        placed = _without(experiment, replaced)
        if self.net is not None:
            title = f"{Path(self.net).name}: {experiment.title or experiment.id}"
            placed = replace(placed, title=title)
        return placed, parameters

    def _parameters(self, experiment: Experiment, has_network: bool) -> dict[str, Any]:
        parameters: dict[str, Any] = {}
        if self.elevation is not None:
            parameters["problem.elevation"] = str(self.elevation.resolve())
        if self.flat is not None:
            parameters["problem.flat"] = True
        network = None
        if self.net is not None:
            network = _full_name(self.net)
        elif self.start is not None and not has_network:
            network = _network_of_routes(experiment)
        if network:
            parameters["problem.network"] = network
        if self.start is not None:
            parameters["problem.start"] = self.start
            parameters["problem.goal"] = self.goal
        return parameters

    def _check(self, experiment: Experiment, overrides: Mapping[str, Any]) -> None:
        self._check_problem(experiment)
        check_elevation(self.elevation)
        if self.net is not None:
            check_network(self.net)
        if (self.start is None) != (self.goal is None):
            raise click.UsageError("--from and --to go together: pass both, or neither")
        self._refuse_repeats(overrides)

    def _check_problem(self, experiment: Experiment) -> None:
        """Refuse options that the problem has no parameters for."""
        problem = experiment.problem["name"]
        actual = f"the problem of {experiment.id} is {problem!r}"
        accepted = set(parameters_of("problem", problem))
        has_ends = self.start is not None or self.goal is not None
        has_heights = self.elevation is not None or self.flat is not None
        if self.net is not None and "network" not in accepted:
            raise click.UsageError(f"--net is for problems on roads; {actual}")
        if has_ends and not {"start", "goal"} <= accepted:
            raise click.UsageError(
                f"--from and --to are for problems on roads with one trip; {actual}"
            )
        if has_heights and not {"elevation", "flat"} <= accepted:
            raise click.UsageError(
                f"--elevation and --flat are for problems on roads with heights; {actual}"
            )

    def _refuse_repeats(self, overrides: Mapping[str, Any]) -> None:
        """Refuse what both an option and ``--set`` define."""
        values = {
            "network": self.net,
            "start": self.start,
            "goal": self.goal,
            "elevation": self.elevation,
            "flat": self.flat,
        }
        for name, value in values.items():
            if value is not None and _value(name, overrides) is not None:
                option = _OPTION_OF_PARAMETER[name]
                raise click.UsageError(
                    f"--set and {option} both set {name}; use one of them"
                )
        has_trip = any(
            values[name] is not None for name in ("network", "start", "goal")
        )
        if has_trip and _value("route", overrides) is not None:
            raise click.UsageError(
                "--set route already sets the network and both ends; omit it, or omit --net, --from and --to"
            )


def _full_name(net: str) -> str:
    """A file's absolute path: workers and ``--resume`` in another directory must find the same file."""
    if net in NETWORKS or not Path(net).exists():
        return net
    return str(Path(net).resolve())


def _value(name: str, parameters: Mapping[str, Any]) -> Any:
    """A parameter of the problem, under either of its names."""
    return parameters.get(f"problem.{name}", parameters.get(name))


def _network_of_routes(experiment: Experiment) -> str | None:
    """The network of the experiment's own routes, if it has any."""
    from superarm.roads.problems.road_models import ROUTES

    routes = _value("route", {**experiment.problem, **experiment.sweep})
    if routes is None:
        return None
    if isinstance(routes, str):
        routes = [routes]
    networks: set[str] = set()
    for route in routes:
        if route not in ROUTES:
            raise click.UsageError(
                f"unknown route {route!r}; {suggestion(route, ROUTES)}"
            )
        networks.add(ROUTES[route].network)
    if len(networks) > 1:
        raise click.UsageError(
            f"{experiment.id} has routes on {' and '.join(sorted(networks))}; pass --net with the "
            "network of --from and --to"
        )
    return networks.pop()


def _without(experiment: Experiment, names: set[str]) -> Experiment:
    """The experiment without some parameters of its problem."""
    problem = _without_keys(experiment.problem, names)
    sweep = _without_keys(experiment.sweep, names)
    return replace(experiment, problem=problem, sweep=sweep)


def _without_keys(table: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {
        key: value
        for key, value in table.items()
        if key.removeprefix("problem.") not in names
    }
