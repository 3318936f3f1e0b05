"""Experiments as data: one TOML each, which settings vary.

docs/cli.md has the format, ``examples/own_experiment.toml`` is a complete one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, get_type_hints

from superarm.core import Policy
from superarm.core.errors import SpecError, UnknownPartError
from superarm.core.inputs import as_plain
from superarm.core.registry import build, check_table, kinds_of, names, suggestion
from superarm.lab.simulation.lateness import Lateness
from superarm.lab.simulation.run_spec import check_chart
from superarm.models.worlds import World

from .claims import check_claim
from .parts import (
    FORMER_ASSUMES,
    KEYS_OF_ONE_POLICY,
    build_policy,
    check_policy,
    check_problem,
    own_parameters,
    policy_spec,
)
from .summaries import check_derived

Setting = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What to run: a problem, policies, their parameters, and claims about the outcome.

    Args:
        id: its name, such as "kernelized/gp-se".
        problem: the spec of the problem.
        policies: the parameters of each policy.
        rounds: how many rounds a run has.
        seeds: how many seeds a run has.
        title: a line for reports.
        paper: where it is from.
        figure: the figures of the paper that it makes; "2a" is a panel of figure 2.
        claims: the paper's claims about the outcome; see :mod:`superarm.lab.experiments.claims`.
        on_request: policies that run only when they are named.
        sweep: parameters and the values that each takes, as ``--set`` would name them.
        feedback: parameters of :class:`~superarm.lab.simulation.lateness.Lateness`; empty where
            feedback comes at once.
        horizons: lengths, shorter than ``rounds``, for which policies are run again from the start.
        rerun: the policies to run again; all where none is named.
        derived: rows that are computed from others; see
            :mod:`superarm.lab.experiments.summaries`.
        chart: options of its charts: a :class:`~superarm.lab.simulation.trace.Drawing`.
    """

    id: str
    problem: Mapping[str, Any]
    policies: Mapping[str, Mapping[str, Any]]
    rounds: int
    seeds: int
    title: str = ""
    paper: str = ""
    figure: Sequence[str] = ()
    claims: Sequence[Mapping[str, Any]] = ()
    on_request: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    sweep: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    feedback: Mapping[str, Any] = field(default_factory=dict)
    horizons: Sequence[int] = ()
    rerun: Sequence[str] = ()
    derived: Sequence[Mapping[str, Any]] = ()
    chart: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Plain data, from which :meth:`from_mapping` makes the same experiment."""
        return asdict(self)

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any], where: str) -> Experiment:
        """An experiment from plain data, checked against the registry.

        Args:
            data: the tables of a TOML file.
            where: names the source in errors.
        """
        _check_keys(data, where)
        for claim in data.get("claims", ()):
            check_claim(claim, where)
        check_derived(data.get("derived", ()), where)
        check_chart(data.get("chart", {}), f"{where}: [chart]")
        as_plain(data, where)  # else run.json could not describe the run
        experiment = cls(**_with_tuples(data))
        check_problem(experiment.problem, where)
        _check_policies("policies", experiment.policies, where)
        _check_policies("on_request", experiment.on_request, where)
        _check_feedback(experiment.feedback, where)
        return experiment

    # --- variations ------------------------------------------------------------------------

    def with_policies(self, chosen: Sequence[str]) -> Experiment:
        """Only these policies; registered ones that the file does not list get their defaults.

        Args:
            chosen: their names.
        """
        policies: dict[str, Mapping[str, Any]] = {}
        listed = {**self.on_request, **self.policies}
        for name in chosen:
            if name in listed:
                policies[name] = listed[name]
            elif name in names("policy"):
                policies[name] = {}
            else:
                choices = sorted({*listed, *names("policy")})
                advice = suggestion(name, choices, command="superarm list policy")
                raise UnknownPartError(f"unknown policy {name!r}; {advice}")
        if not policies:
            raise SpecError("name at least one policy")
        return replace(self, policies=policies)

    def with_setting(self, setting: Setting) -> Experiment:
        """The experiment with some parameters replaced.

        Only what a setting can change is checked: claims, charts and the like are as they were read.

        Args:
            setting: values of parameters of the problem, of every policy that has them, or of one
                owner: ``policy.option``, ``problem.option`` or ``feedback.option``.
        """
        tables = _VariableTables(self)
        # The problem's name comes first: it decides which other parameters there are.
        keys = sorted(setting, key=lambda key: key != "problem.name")
        for key in keys:
            tables.set(key, setting[key])
        as_plain(tables.as_json(), self.id)  # else run.json could not describe the run
        check_problem(tables.problem, self.id)
        _check_policies("policies", tables.policies, self.id)
        _check_feedback(tables.feedback, self.id)
        return replace(self, **tables.as_json())

    # --- building --------------------------------------------------------------------------

    def build_problem(self, *, seed: int, horizon: int) -> World:
        """The problem as a seed meets it.

        Args:
            seed: of the run.
            horizon: the number of the last round.
        """
        world: World = build("problem", self.problem, seed=seed, horizon=horizon)
        return world

    def build_lateness(self) -> Lateness | None:
        """How late feedback comes; ``None`` where all of it comes at once."""
        return Lateness(**self.feedback) if self.feedback else None

    def feedback_description(self) -> dict[str, str]:
        """A report's line about late feedback; empty where all of it comes at once."""
        late = self.build_lateness()
        if late is None:
            return {}
        unit = "all arms of a round" if late.together else "each arm"
        text = (
            f"known {late.earliest} to {late.latest} rounds later, one delay for {unit}"
        )
        if late.lost:
            text += f"; {late.lost:.1%} of it is lost"
        return {"feedback": text}

    def build_policy(self, name: str, world: World) -> Policy:
        """One of the policies, for a world.

        Args:
            name: of the policy.
            world: in which it plays.
        """
        return build_policy(name, self.policies[name], world)


class _VariableTables:
    """Copies of the tables of an experiment that a setting can change."""

    def __init__(self, experiment: Experiment) -> None:
        self.problem = dict(experiment.problem)
        self.policies = {
            name: dict(options) for name, options in experiment.policies.items()
        }
        self.feedback = dict(experiment.feedback)

    def as_json(self) -> dict[str, Any]:
        """The tables by their names in an experiment."""
        return {
            "problem": self.problem,
            "policies": self.policies,
            "feedback": self.feedback,
        }

    def set(self, key: str, value: Any) -> None:
        """Set a parameter in every table that it belongs to.

        Args:
            key: as ``--set`` names it.
            value: its new value.
        """
        _, _, option = key.rpartition(".")
        tables = self._tables_of(key)
        if not tables:
            raise SpecError(
                f"neither {self.problem['name']} nor a policy has a parameter {key!r}; "
                f"{self._advice(key)}"
            )
        for table in tables:
            table[option] = value

    def _tables_of(self, key: str) -> list[dict[str, Any]]:
        owner, dot, _ = key.rpartition(".")
        if dot:
            owners = {
                **self.policies,
                "problem": self.problem,
                "feedback": self.feedback,
            }
            return [owners[owner]] if owner in owners else []
        if key in self._problem_parameters():
            return [self.problem]
        accepted = self._policy_parameters()
        return [
            options for name, options in self.policies.items() if key in accepted[name]
        ]

    def _problem_parameters(self) -> list[str]:
        return own_parameters("problem", self.problem["name"])

    def _policy_parameters(self) -> dict[str, list[str]]:
        """The parameters of each policy."""
        parameters = {}
        for name, options in self.policies.items():
            registered_name = policy_spec(name, options)["name"]
            parameters[name] = own_parameters("policy", registered_name)
        return parameters

    def _advice(self, key: str) -> str:
        """What to write in place of a key that nothing has."""
        first_policy = next(iter(self.policies))
        if key == FORMER_ASSUMES:
            return f"it is now called 'assumes', as in {first_policy}.assumes"
        if key in KEYS_OF_ONE_POLICY:
            return f"name the policy that it is for, as in {first_policy}.{key}"
        choices = set(self._problem_parameters())
        choices.update(*self._policy_parameters().values())
        return suggestion(key, choices, "they take", command="superarm show NAME")


# --- checks --------------------------------------------------------------------------------

_KINDS = {**get_type_hints(Experiment), "figure": str | Sequence[str]}
_NEEDED = ("id", "rounds", "seeds", "problem", "policies")
_LISTS = ("figure", "claims", "derived", "horizons", "rerun")
_KEYS_OF_FILES = ("extends", "imports")


def _with_tuples(data: Mapping[str, Any]) -> dict[str, Any]:
    """The tables with lists as tuples; a single figure may be a text."""
    tables = dict(data)
    figure = data.get("figure") or ()
    if isinstance(figure, str):
        figure = (figure,)
    tables["figure"] = figure
    for key in _LISTS:
        tables[key] = tuple(tables.get(key, ()))
    return tables


def _check_keys(data: Mapping[str, Any], where: str) -> None:
    """Keys and their types, before anyone relies on them."""
    check_table(data, _KINDS, where, required=_NEEDED, read_elsewhere=_KEYS_OF_FILES)
    for key in _NEEDED:
        if not data[key]:
            raise SpecError(f"{where}: {key} is {data[key]!r}; give at least one")
    _check_counts("rounds", [data["rounds"]], where)
    _check_counts("seeds", [data["seeds"]], where)
    _check_counts("a horizon", data.get("horizons", ()), where)


def _check_counts(name: str, counts: Iterable[int], where: str) -> None:
    for count in counts:
        if count < 1:
            raise SpecError(f"{where}: {name} must be at least 1, got {count}")


def _check_policies(
    table: str, policies: Mapping[str, Mapping[str, Any]], where: str
) -> None:
    for name, options in policies.items():
        if not name.strip():
            raise SpecError(
                f"{where}: a policy has the name {name!r}; give it a visible name"
            )
        check_policy(name, options, f"{where}: {table}.{name}")


def _check_feedback(feedback: Mapping[str, Any], where: str) -> None:
    check_table(feedback, kinds_of(Lateness), f"{where}: [feedback]")
