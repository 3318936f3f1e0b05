"""Experiments as data: one TOML each, overrides and sweeps from ``--set``.

docs/cli.md has the format, ``examples/own_experiment.toml`` is a whole one.
"""

from __future__ import annotations

import itertools
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, get_type_hints

from superarm.core import Policy
from superarm.core.errors import FileError, InputError, SpecError
from superarm.core.files import MOST_TOML, read_text
from superarm.core.inputs import as_plain, as_positive
from superarm.core.plugins import import_parts
from superarm.core.registry import (
    build,
    check_parameters,
    names,
    parameters_of,
    require_kind,
    suggestion,
)
from superarm.lab.simulation.lateness import Lateness
from superarm.lab.simulation.run_spec import check_chart
from superarm.models.worlds import World
from superarm.policies.wrapping import checked_wrappers, wrapped

from .claims import check_claim, policies_of
from .summaries import check_derived

Setting = Mapping[str, Any]
_MOST_SETTINGS = 10_000  # every one is built before anything runs
GIVEN = frozenset(
    {"model", "problem", "seed", "horizon"}
)  # parameters that the driver supplies


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What to run: a problem, policies, their parameters, and claims about the outcome."""

    id: str
    problem: Mapping[str, Any]
    policies: Mapping[str, Mapping[str, Any]]
    rounds: int
    seeds: int
    title: str = ""
    paper: str = ""
    figure: Sequence[str] = ()
    """The figures of the paper that it makes; "2a" is a panel of figure 2."""
    claims: Sequence[Mapping[str, Any]] = ()
    on_request: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Policies that run only when they are named."""
    sweep: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Parameters and the values that each takes, as ``--set`` would name them."""
    feedback: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of :class:`~superarm.lab.simulation.lateness.Lateness`; empty: all comes at once."""
    horizons: Sequence[int] = ()
    """Lengths, shorter than ``rounds``, for which policies are run again from the start."""
    rerun: Sequence[str] = ()
    """Which policies; all where none is named."""
    derived: Sequence[Mapping[str, Any]] = ()
    """Rows that are made from others; see :mod:`superarm.lab.experiments.summaries`."""
    chart: Mapping[str, Any] = field(default_factory=dict)
    """What it wants of its charts: a :class:`~superarm.lab.simulation.run_spec.Drawing`."""

    def as_json(self) -> dict[str, Any]:
        """Plain data, from which :meth:`from_mapping` makes the same experiment."""
        return asdict(self)

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any], where: str) -> Experiment:
        """Checked against the registry; ``where`` names the source in errors."""
        _check_keys(data, where)
        for claim in data.get("claims", ()):
            check_claim(claim, where)
        check_derived(data.get("derived", ()), where)
        check_chart(data.get("chart", {}), f"{where}: [chart]")
        as_plain(data, where)  # else a run could not be written down and made again
        figure = data.get("figure") or ()
        plain = {**data, "figure": (figure,) if isinstance(figure, str) else figure}
        experiment = cls(**plain | {key: tuple(plain.get(key, ())) for key in _LISTS})
        _check_parameters("problem", experiment.problem, where)
        for table in ("policies", "on_request"):
            for name, options in getattr(experiment, table).items():
                if not name.strip():
                    raise SpecError(
                        f"{where}: a policy has the name {name!r}; give it a visible name"
                    )
                place = f"{where}: {table}.{name}"
                _check_parameters("policy", _policy_spec(name, options), place)
                for key, check in (
                    ("told", checked_told),
                    ("wrapped", checked_wrappers),
                ):
                    try:
                        check(options.get(key, {} if key == "told" else []))
                    except InputError as error:
                        raise SpecError(f"{place}: {key}: {error}") from None
        known = [each.name for each in fields(Lateness)]
        for key in experiment.feedback:
            if key not in known:
                raise SpecError(
                    f"{where}: feedback has no {key!r}; {suggestion(key, known, 'it has')}"
                )
        return experiment

    # --- variations ------------------------------------------------------------------------

    def with_policies(self, chosen: Sequence[str]) -> Experiment:
        """Only these policies; registered ones that the file does not list get their defaults."""
        policies: dict[str, Mapping[str, Any]] = {}
        listed = {**self.on_request, **self.policies}
        for name in chosen:
            if name in listed:
                policies[name] = listed[name]
            elif name in names("policy"):
                policies[name] = {}
            else:
                choices = sorted({*listed, *names("policy")})
                told = suggestion(name, choices, command="superarm list policy")
                raise SpecError(
                    f"unknown policy {name!r}; {told} (--import FILE.py adds your own)"
                )
        if not policies:
            raise SpecError("name at least one policy")
        return replace(self, policies=policies)

    def with_setting(self, setting: Setting) -> Experiment:
        """Parameters replaced: of the problem, of every policy that has them, or ``policy.option``."""
        problem = dict(self.problem)
        policies = {name: dict(options) for name, options in self.policies.items()}
        feedback = dict(self.feedback)
        owners = {**policies, "problem": problem, "feedback": feedback}
        # The problem's name comes first: it decides which other keys there are.
        for key, value in sorted(
            setting.items(), key=lambda item: item[0] != "problem.name"
        ):
            owner, dot, option = key.rpartition(".")
            own = _parameters("problem", problem["name"])
            accepted = {
                name: _parameters("policy", _policy_spec(name, options)["name"])
                for name, options in policies.items()
            }
            if dot:
                takers = [owners[owner]] if owner in owners else []
            elif key in own:
                takers = [problem]
            else:
                takers = [policies[name] for name in policies if key in accepted[name]]
            if not takers:
                choices, takes = (
                    {*own, *itertools.chain(*accepted.values())},
                    "they take",
                )
                told = suggestion(key, choices, takes, command="superarm show NAME")
                if key in _OF_ONE_POLICY:
                    told = f"name the policy that it is for, as in {next(iter(policies))}.{key}"
                where = f"of {problem['name']} or of a policy"
                raise SpecError(f"setting {key!r}: no such parameter {where}; {told}")
            for taker in takers:
                taker[option] = value
        changed = {
            **self.as_json(),
            "problem": problem,
            "policies": policies,
            "feedback": feedback,
        }
        return Experiment.from_mapping(changed, self.id)

    # --- building --------------------------------------------------------------------------

    def build_problem(self, *, seed: int, horizon: int) -> World:
        world: World = build("problem", self.problem, seed=seed, horizon=horizon)
        return world

    def build_lateness(self) -> Lateness | None:
        """How late feedback comes; ``None`` where all of it comes at once."""
        return Lateness(**self.feedback) if self.feedback else None

    def feedback_told(self) -> dict[str, str]:
        """What a report says of late feedback."""
        late = self.build_lateness()
        if late is None:
            return {}
        told = f"known {late.earliest} to {late.latest} rounds later, "
        told += (
            "one delay for all arms of a round"
            if late.together
            else "one delay for each arm"
        )
        return {
            "feedback": told + (f"; {late.lost:.1%} of it is lost" if late.lost else "")
        }

    def build_policy(self, name: str, world: World) -> Policy:
        spec, told = (
            _policy_spec(name, self.policies[name]),
            self.policies[name].get("told", {}),
        )
        if "scales" in told and not hasattr(world.model, "scales"):
            raise SpecError(f"{name}: told: only a fleet has scales; leave them out")
        model = replace(world.model, **checked_told(told)) if told else world.model
        known: dict[str, Any] = {"model": model, "problem": world}
        accepted = parameters_of("policy", spec["name"])
        given = {key: part for key, part in known.items() if key in accepted}
        policy: Policy = build("policy", spec, **given)
        wrappers = checked_wrappers(self.policies[name].get("wrapped", []))
        return wrapped(policy, *wrappers) if wrappers else policy


def expand_settings(
    overrides: Mapping[str, Any],
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Split settings into fixed ones and the cross product of the swept ones.

    >>> expand_settings({"delta": 0.1, "xi": [0.01, 0.1]})
    ({'delta': 0.1}, [{'xi': 0.01}, {'xi': 0.1}])
    """
    fixed = {
        key: value for key, value in overrides.items() if not isinstance(value, list)
    }
    swept = {key: value for key, value in overrides.items() if isinstance(value, list)}
    for key, values in swept.items():
        if not values:
            raise SpecError(f"setting {key!r} is []; a sweep needs at least one value")
    count = math.prod(len(values) for values in swept.values())
    if count > _MOST_SETTINGS:
        sizes = " × ".join(
            f"{len(values):,} values of {key}" for key, values in swept.items()
        )
        raise SpecError(
            f"a run may have at most {_MOST_SETTINGS:,} settings, got {count:,} ({sizes}); sweep fewer "
            "values, or split it into several runs"
        )
    for key, values in swept.items():
        if any(value in values[:place] for place, value in enumerate(values)):
            raise SpecError(
                f"setting {key!r} is {values!s:.200}: a value is repeated; give each once"
            )
    combinations = itertools.product(*swept.values())
    return fixed, [dict(zip(swept, values, strict=True)) for values in combinations]


def parse_overrides(texts: Sequence[str]) -> dict[str, Any]:
    """Every ``key=value`` of a command, with TOML values; a bare word is taken as a string.

    >>> parse_overrides(["lengthscale=[0.1, 0.2]", "source=synthetic"])
    {'lengthscale': [0.1, 0.2], 'source': 'synthetic'}
    """
    overrides: dict[str, Any] = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not key or not value:
            raise SpecError(
                f"--set {text!r}: write key=value, for example --set lengthscale=0.2"
            )
        if key in overrides:
            raise SpecError(
                f"--set {key} is given twice; a list sweeps: --set '{key}=[…, …]'"
            )
        try:
            parsed = tomllib.loads(f"value = {value}")
        except (
            ValueError,
            RecursionError,
        ):  # beside bad syntax: integers of thousands of digits
            if not value.replace("-", "").replace("_", "").isalnum() or value.isdigit():
                raise SpecError(
                    f"--set {key}: {value!r:.60} is not a TOML value"
                ) from None
            parsed = {"value": value}
        if set(parsed) != {"value"}:
            raise SpecError(f"--set {key}: {value!r:.60} is more than one TOML value")
        as_plain(parsed["value"], f"--set {key}")
        overrides[key] = parsed["value"]
    return overrides


def experiment_ids() -> list[str]:
    """Every experiment that ships with superarm."""
    root = resources.files(__package__)
    return sorted(
        f"{group.name}/{item.name.removesuffix('.toml')}"
        for group in root.iterdir()
        if group.is_dir()
        for item in group.iterdir()
        if item.name.endswith(".toml") and not item.name.startswith("_")
    )


def load_experiment(name: str) -> Experiment:
    """An experiment by id, or from a TOML file of the user's own."""
    if name.endswith(".toml"):
        path = Path(name)
        if not path.exists():
            raise SpecError(f"there is no file {name}")
        return _parse(path, name)
    ids = experiment_ids()
    if name not in ids:
        told = suggestion(name, ids, command="superarm list experiments")
        raise SpecError(f"unknown experiment {name!r}; {told}")
    return _parse(_shipped(name), name)


def _shipped(name: str) -> Traversable:
    group, _, stem = name.partition("/")
    return resources.files(__package__) / group / f"{stem}.toml"


def _read(source: Path | Traversable, where: str) -> dict[str, Any]:
    """The tables of a file, over those of the shipped one that it ``extends``."""
    try:
        if isinstance(source, Path):
            text = read_text(source, most=MOST_TOML)
        else:
            text = source.read_text(encoding="utf-8")
        data = tomllib.loads(text)
    except FileError:
        raise
    except (
        ValueError,
        RecursionError,
    ) as error:  # bad syntax, not UTF-8, absurd numbers or depth
        raise SpecError(f"{where}: not valid TOML: {error}") from None
    if isinstance(source, Path):
        sources = data.pop("imports", [])
        require_kind(sources, Sequence[str], f"{where}: imports")
        for each in sources:  # modules, and files beside the user's own
            import_parts(source.parent / each if each.endswith(".py") else each)
    base = data.pop("extends", None)
    if base is None:
        return data
    bases = [
        *experiment_ids(),
        "navigation/_route",
    ]  # which several share, and is none itself
    if base not in bases:
        told = suggestion(base, bases, command="superarm list experiments")
        raise SpecError(f"{where}: extends is {base!r}; {told}")
    below = _read(_shipped(base), base)
    joined = {**below, **data}
    for key in joined:
        if isinstance(below.get(key), Mapping) and isinstance(data.get(key), Mapping):
            joined[key] = {**below[key], **data[key]}
    return joined


def _parse(source: Path | Traversable, where: str) -> Experiment:
    data = _read(source, where)
    try:
        experiment = Experiment.from_mapping(data, where)
    except RecursionError:
        raise SpecError(f"{where}: tables are nested too deeply") from None
    known = sorted({*experiment.policies, *experiment.on_request, *names("policy")})
    named = {
        f"claim {claim['text']!r}": policies_of(claim) for claim in experiment.claims
    }
    named["rerun"] = list(experiment.rerun)
    named["derived"] = [
        each["versus"] for each in experiment.derived if "versus" in each
    ]
    for part, policies in named.items():
        for name in policies:
            if name not in known:
                raise SpecError(
                    f"{where}: {part} is about {name!r}, which is not a policy here; "
                    + suggestion(name, known, command="superarm list policy")
                )
    keys = _keys_of(experiment)
    about = [(f"claim {claim['text']!r}", claim) for claim in experiment.claims]
    about += [
        ("[chart]: curves", curve) for curve in experiment.chart.get("curves", ())
    ]
    for part, table in about:
        for key in (*table.get("where", ()), *filter(None, [table.get("key")])):
            if key not in keys:
                told = f"{where}: {part}: {key!r} is not a parameter here"
                raise SpecError(f"{told}; {suggestion(key, keys)}")
    return experiment


def _keys_of(experiment: Experiment) -> set[str]:
    """What a setting of the experiment can name."""
    own = {"problem": ["name", *_parameters("problem", experiment.problem["name"])]}
    for name, options in {**experiment.on_request, **experiment.policies}.items():
        own[name] = _parameters("policy", _policy_spec(name, options)["name"])
    dotted = {f"{owner}.{key}" for owner, keys in own.items() for key in keys}
    late = {f"feedback.{each.name}" for each in fields(Lateness)}
    return {*experiment.sweep, *itertools.chain(*own.values()), *dotted, *late} - {
        "name"
    }


_KINDS = {**get_type_hints(Experiment), "figure": str | Sequence[str]}
_NEEDED = ("id", "rounds", "seeds", "problem", "policies")
_LISTS = ("figure", "claims", "derived", "horizons", "rerun")
_ONLY_IN_FILES = ("extends", "imports")
_TOLD = {
    "drift": "kernel",
    "kernel": "kernel",
    "scales": "scales",
}  # what parts these are
_OF_ONE_POLICY = ("told", "wrapped")  # beside its parameters


def _check_keys(data: Mapping[str, Any], where: str) -> None:
    """Keys and their types, before anyone relies on them."""
    for key, value in data.items():
        if key not in _KINDS:
            raise SpecError(
                f"{where}: unknown key {key!r}; {suggestion(key, (*_KINDS, *_ONLY_IN_FILES))}"
            )
        require_kind(value, _KINDS[key], f"{where}: {key}")
    for key in _NEEDED:
        if key not in data:
            raise SpecError(f"{where}: {key!r} is missing")
        if not data[key]:
            raise SpecError(f"{where}: {key} is {data[key]!r}; give at least one")
    horizons = [("a horizon", horizon) for horizon in data.get("horizons", ())]
    for name, count in (
        ("rounds", data["rounds"]),
        ("seeds", data["seeds"]),
        *horizons,
    ):
        if count < 1:
            raise SpecError(f"{where}: {name} is {count}; it must be at least 1")


def _policy_spec(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    given = {key: value for key, value in options.items() if key not in _OF_ONE_POLICY}
    return {"name": given.pop("policy", name), **given}


def checked_told(given: Any) -> dict[str, Any]:
    """What one learner is told instead of what the problem states: fields of its model."""
    if not isinstance(given, Mapping) or not set(given) <= {*_TOLD, "noise_variance"}:
        raise SpecError(
            f"{given!r:.60} is no valid 'told'; its keys are {', '.join(_TOLD)} and noise_variance, as "
            'in {drift = {name = "temporal", epsilon = 0.1}}'
        )
    return {
        key: as_positive(value, key)
        if key == "noise_variance"
        else build(_TOLD[key], value)
        for key, value in given.items()
    }


def _parameters(family: str, name: str) -> list[str]:
    return [key for key in parameters_of(family, name) if key not in GIVEN]


def _check_parameters(family: str, spec: Mapping[str, Any], where: str) -> None:
    """Names and parameters before anything runs, so that a typo costs no computing time."""
    if "name" not in spec:
        raise SpecError(
            f"{where}: the {family} needs a name; choose one of {names(family)}"
        )
    options = {key: value for key, value in spec.items() if key != "name"}
    try:
        check_parameters(family, spec["name"], options, besides=GIVEN)
    except SpecError as error:
        raise SpecError(f"{where}: {error}") from None
