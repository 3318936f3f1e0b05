"""Experiment specs: loading, and rejection with advice."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, cast

import pytest

from superarm.core.errors import FileError, SpecError
from superarm.core.registry import parameters_of
from superarm.kernels import Matern, Temporal
from superarm.lab.experiments import (
    Experiment,
    Plan,
    execute,
    experiment_ids,
    load_experiment,
)
from superarm.lab.experiments.overrides import expand_settings, parse_overrides
from superarm.lab.problems import MovementProblem
from superarm.lab.simulation import simulate


def mapping(**changes: Any) -> dict[str, Any]:
    base = {
        "id": "mine",
        "rounds": 5,
        "seeds": 1,
        "problem": {"name": "landscape", "side": 5, "k": 2},
        "policies": {"random": {}, "gp-ei": {"xi": 0.1}},
    }
    merged = {**base, **changes}
    return {key: value for key, value in merged.items() if value is not ...}


def experiment(**changes: Any) -> Experiment:
    return Experiment.from_mapping(mapping(**changes), "here")


def small_experiment(name: str) -> Experiment:
    """A shipped experiment on synthetic data, small where its problem has a size."""
    shipped = load_experiment(name)
    takes = parameters_of("problem", shipped.problem["name"])
    small: dict[str, Any] = {"source": "synthetic", "side": 8, "points": 60}
    if shipped.problem["name"] == "navigation":
        small = {"route": None, "network": "city", "edges": 300}
    return shipped.with_setting(
        {f"problem.{key}": value for key, value in small.items() if key in takes}
    )


# --- shipped -----------------------------------------------------------------------------


WITHOUT_SUMO = [
    name for name in experiment_ids() if not name.startswith("navigation/sumo")
]
LONG = {
    "timevarying/temperature",
    "timevarying/traffic",
    "combinatorial/codependency",
    "combinatorial/movies",
}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in LONG))
        for name in WITHOUT_SUMO
    ],
)
def test_every_shipped_experiment_builds_and_plays_each_policy(name: str) -> None:
    shipped = small_experiment(name)
    assert shipped.id == name
    assert shipped.title
    world = shipped.build_problem(seed=1, horizon=3)
    policies = {
        policy_name: shipped.build_policy(policy_name, world)
        for policy_name in shipped.policies
    }
    trajectories = simulate(world, policies, rounds=3, seed=1)
    assert set(trajectories) == set(shipped.policies)
    for trajectory in trajectories.values():
        assert trajectory.series["regret"].shape == (3,)
        if not isinstance(
            world, MovementProblem
        ):  # there a round may be better than on the best way
            assert (trajectory.series["regret"] >= 0.0).all()


@pytest.mark.parametrize("name", experiment_ids())
def test_json_makes_the_same_experiment(name: str) -> None:
    shipped = load_experiment(name)
    assert Experiment.from_mapping(shipped.as_json(), name) == shipped


def test_papers_and_figures_are_unique() -> None:
    shipped = [load_experiment(name) for name in experiment_ids()]
    figures = [(entry.paper, figure) for entry in shipped for figure in entry.figure]
    shared = {entry for entry in figures if figures.count(entry) > 1}
    assert shared == {
        (load_experiment("navigation/monaco-a").paper, "1")
    }  # one of both networks


# --- refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"id": ...}, "'id' is missing"),
        ({"id": ""}, "id is ''"),
        ({"id": 7}, "id must be text, got 7"),
        ({"title": 7}, "title must be text, got 7"),
        ({"rounds": ...}, "'rounds' is missing"),
        ({"rounds": "x"}, "rounds must be a whole number, got 'x'"),
        ({"rounds": 0}, "rounds is 0"),
        ({"rounds": -3}, "rounds must be at least 1, got -3"),
        ({"rounds": 2.0}, "rounds must be a whole number, got 2.0"),
        ({"rounds": True}, "rounds must be a whole number, got True"),
        ({"seeds": []}, "seeds must be a whole number, got []"),
        ({"problem": ...}, "'problem' is missing"),
        ({"problem": "landscape"}, "problem must be a table, got 'landscape'"),
        ({"problem": {}}, "problem is {}; give at least one"),
        ({"problem": {"side": 5}}, "the problem needs a name"),
        ({"problem": {"name": "landscpe"}}, "did you mean 'landscape'?"),
        ({"problem": {"name": 4}}, "unknown problem 4"),
        ({"problem": {"name": "landscape", "sides": 4}}, "did you mean 'side'?"),
        ({"problem": {"name": "landscape", "seed": 4}}, "no parameter 'seed'"),
        ({"policies": {}}, "policies is {}; give at least one"),
        (
            {"policies": {"random": 3}},
            "policies must be a table, each entry a table, got {'random': 3}",
        ),
        ({"policies": {" ": {"policy": "random"}}}, "a policy has the name ' '"),
        ({"policies": {"gp-eii": {}}}, "did you mean 'gp-ei'?"),
        ({"policies": {"mine": {}}}, "policies.mine: unknown policy 'mine'"),
        ({"policies": {"mine": {"policy": "gp-ie"}}}, "unknown policy 'gp-ie'"),
        ({"policies": {"gp-ei": {"xii": 1}}}, "did you mean 'xi'?"),
        ({"policies": {"gp-ei": {"model": 1}}}, "no parameter 'model'"),
        (
            {"policies": {"gp-ei": {"xi": float("nan")}}},
            "policies: gp-ei: xi: nan is not a finite",
        ),
        ({"round": 3}, "unknown key 'round'"),
        ({"claims": 3}, "claims must be a list, each a table, got 3"),
        ({"claims": [3]}, "claims must be a list, each a table, got [3]"),
        ({"horizons": [5, 0]}, "a horizon must be at least 1, got 0"),
        ({"horizons": 5}, "horizons must be a list of whole numbers, got 5"),
        ({"rerun": "random"}, "rerun must be a list of text, got 'random'"),
        ({"derived": [{"name": "x", "verses": "random"}]}, "did you mean 'versus'?"),
        (
            {"derived": [{"name": "x", "versus": 3}]},
            "[[derived]]: versus must be text, got 3",
        ),
        (
            {"derived": [{"name": "x"}]},
            "derived 'x': give either versus or per_round = true",
        ),
        (
            {"derived": [{"name": "x", "versus": "random", "per_round": True}]},
            "give either",
        ),
        (
            {"derived": [{"name": "cumulative_regret", "per_round": True}]},
            "give each its own",
        ),
        ({"derived": [{"per_round": True}]}, "has the name None"),
        (
            {"chart": {"bands": "std"}},
            "[chart]: unknown key 'bands'; did you mean 'band'?",
        ),
        ({"chart": {"band": "sd"}}, "[chart]: band is 'sd'; choose 'stderr' or 'std'"),
        ({"chart": {"marks": {"ε": "x"}}}, "must be a table, each entry a number"),
        (
            {"chart": {"truth": "maps"}},
            "truth is 'maps'; choose 'functions' or 'series'",
        ),
        (
            {"derived": [{"name": "x", "per_round": True}] * 2},
            "has the name 'x'; give each its own",
        ),
    ],
)
def test_invalid_experiments_are_rejected_with_advice(
    changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(SpecError) as caught:
        experiment(**changes)
    assert words in str(caught.value)
    assert str(caught.value).startswith("here: ")


@pytest.mark.parametrize(
    "text",
    [
        "id = ",
        "id = 'x'\nid = 'y'",
        "\x00",
        "a" * 70,
        "rounds = " + "9" * 5000,
        "id = " + "[" * 3000,
    ],
)
def test_bad_toml_names_the_file(text: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FileError, match=r"mine\.toml cannot be read as an experiment"):
        load_experiment(str(path))


def test_files_that_are_not_text_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    with pytest.raises(SpecError, match="file not found"):
        load_experiment(str(path))
    path.write_bytes(b"id = '\xff'")
    with pytest.raises(FileError, match=r"cannot be read as an experiment: .*utf-8"):
        load_experiment(str(path))
    path.write_text("id = 'x'\nwhen = 2020-01-01\n", encoding="utf-8")
    with pytest.raises(SpecError, match="unknown key 'when'"):
        load_experiment(str(path))
    with pytest.raises(SpecError, match="here: problem: side: 2020-01-01 is a date"):
        experiment(
            problem={"name": "landscape", "side": tomllib.loads("x = 2020-01-01")["x"]}
        )


def test_unknown_experiments_are_named_with_the_nearest() -> None:
    with pytest.raises(SpecError, match=r"did you mean 'kernelized/rkhs-se'\?"):
        load_experiment("kernelized/rkhs-sse")
    for hostile in ("../spec", "demo/../demo/landscape", "/etc/passwd", "", "demo"):
        with pytest.raises(SpecError, match="unknown experiment"):
            load_experiment(hostile)


# --- --set -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("xi=0.1", "xi", 0.1),
        ("xi=3", "xi", 3),
        ("xi = -1e-3", "xi", -1e-3),
        ("scaled=false", "scaled", False),
        ("kernel=matern", "kernel", "matern"),
        ("kernel=squared-exponential", "kernel", "squared-exponential"),
        ("kernel='matern'", "kernel", "matern"),
        ('kernel="a=b"', "kernel", "a=b"),
        ("xi=[0.1, 1]", "xi", [0.1, 1]),
        ("kernel=['a', 'b']", "kernel", ["a", "b"]),
        ("gp-ei.xi=0.1", "gp-ei.xi", 0.1),
        ("rule={name='greedy'}", "rule", {"name": "greedy"}),
        ("label=größe", "label", "größe"),
    ],
)
def test_override_forms(text: str, key: str, value: Any) -> None:
    assert parse_overrides([text]) == {key: value}
    assert type(parse_overrides([text])[key]) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "xi",
        "=1",
        "xi=",
        "xi= ",
        "",
        "xi=a b",
        "xi=[1,",
        "xi=1\ny=2",
        "xi=1\n[value2]",
        "xi=2020-01-01",
        "xi=nan",
        "xi=[1.0, inf]",
        "xi=" + "9" * 5000,
        "xi=" + "[" * 3000,
        "xi=../..",
    ],
)
def test_overrides_refused(text: str) -> None:
    with pytest.raises(SpecError, match="--set"):
        parse_overrides([text])


def test_a_key_is_set_once() -> None:
    assert parse_overrides(["a=1", "b=[1, 2]"]) == {"a": 1, "b": [1, 2]}
    with pytest.raises(SpecError, match="--set a is given twice"):
        parse_overrides(["a=1", "a=2"])


def test_lists_sweep_as_a_cross_product_in_order() -> None:
    fixed, settings = expand_settings({"a": [1, 2], "fixed": "x", "b": ["u", "v"]})
    assert fixed == {"fixed": "x"}
    assert settings == [
        {"a": 1, "b": "u"},
        {"a": 1, "b": "v"},
        {"a": 2, "b": "u"},
        {"a": 2, "b": "v"},
    ]
    assert expand_settings({}) == ({}, [{}])
    for values in ([], [0.1, 0.1], [1, 1.0]):
        with pytest.raises(
            SpecError, match="setting 'a' is "
        ):  # of --set, or of a table [sweep]
            expand_settings({"a": values})


@pytest.mark.parametrize("values", [{"abcd"[index]: list(range(400)) for index in range(4)},
                                    {"a": list(range(10_001))}])  # fmt: skip
def test_sweeps_beyond_any_run_are_refused_at_once(
    values: dict[str, list[int]],
) -> None:
    with pytest.raises(
        SpecError, match=r"at most 10,000 settings, got .* values of a.*; sweep fewer"
    ):
        expand_settings(values)


def test_more_cells_than_a_run_has_are_refused_before_anything_is_built(
    tmp_path: Path,
) -> None:
    policies = {f"p{number}": {"policy": "random"} for number in range(20)}
    large = experiment(policies=policies)
    with pytest.raises(
        SpecError, match=r"cells, got 20,000,000 \(1 settings × 1,000,000 seeds × 20"
    ):
        Plan.make(large, out=tmp_path / "run", seeds=10**6)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("key", ["assumes", "wrapped"])
def test_options_of_one_policy_are_set_by_its_name(key: str) -> None:
    base = experiment(policies={"gp-ei": {}, "random": {}})
    with pytest.raises(
        SpecError,
        match=rf"a parameter '{key}'; name the policy that it is for, as in gp-ei\.{key}$",
    ):
        base.with_setting({key: {}})
    assert (
        base.with_setting({"gp-ei.wrapped": "change-detecting"}).policies["random"]
        == {}
    )


def test_settings_find_their_owner() -> None:
    base = experiment(policies={"gp-ei": {}, "gp-pi": {}, "random": {}})
    everywhere = base.with_setting({"xi": 0.5})
    assert everywhere.policies == {
        "gp-ei": {"xi": 0.5},
        "gp-pi": {"xi": 0.5},
        "random": {},
    }
    one = base.with_setting({"gp-ei.xi": 0.5, "side": 7, "problem.k": 3})
    assert one.policies["gp-pi"] == {}
    assert one.problem == {"name": "landscape", "side": 7, "k": 3}
    assert base.policies["gp-ei"] == {}  # the original is not modified


def test_problem_overrides_apply_in_any_order() -> None:
    base = experiment(problem={"name": "landscape"})
    other = {"problem.name": "benchmark-function", "function": "branin"}
    for setting in (other, dict(reversed(other.items()))):
        assert base.with_setting(setting).problem == {
            "name": "benchmark-function",
            "function": "branin",
        }
    with pytest.raises(SpecError, match="unknown problem 'nope'"):
        base.with_setting({"problem.name": "nope"})


@pytest.mark.parametrize(
    "key", ["sidee", "gp-ei.xii", "nobody.xi", "problem.", ".side", "a.b.c"]
)
def test_unknown_keys_list_the_choices(key: str) -> None:
    with pytest.raises(SpecError) as caught:
        experiment().with_setting({key: 1})
    assert "xi" in str(caught.value) or "side" in str(caught.value)


# --- policies ----------------------------------------------------------------------------


def test_policies_chosen_by_name() -> None:
    base = experiment()
    assert list(base.with_policies(["gp-ei"]).policies) == ["gp-ei"]
    assert base.with_policies(["gp-greedy", "gp-ei"]).policies == {
        "gp-greedy": {},
        "gp-ei": {"xi": 0.1},
    }
    with pytest.raises(
        SpecError, match=r"unknown policy 'gp-eii'.*did you mean 'gp-ei'"
    ):
        base.with_policies(["gp-eii"])
    with pytest.raises(SpecError, match="at least one policy"):
        base.with_policies([])


NESTED = """
id = "own"
rounds = 4
seeds = 1
[problem]
name = "landscape"
side = 5
[policies.mine]
policy = "composed"
rule = {name = "ucb", schedule = {name = "fixed", value = 2.0}}
[policies."other rule"]
policy = "composed"
rule = {name = "thompson"}
"""


def test_user_defined_compositions(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(NESTED, encoding="utf-8")
    plan = Plan.make(load_experiment(str(path)), out=tmp_path / "out")
    summary = execute(plan)
    assert {row["policy"] for row in summary["rows"]} == {"mine", "other rule"}


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ('{name = "ucbb"}', "did you mean 'ucb'"),
        ('{name = "ucb", schedule = {name = "fixd"}}', "did you mean 'fixed'"),
        (
            '{name = "ucb", schedule = {family = "shedule", name = "fixed"}}',
            "unknown family",
        ),
        ('{name = "ucb", schedule = 3}', "schedule must be a schedule with"),
        (
            '{name = "ucb", schedule = "fixed"}',
            "schedule must be a schedule with",
        ),
        ('{schedule = {name = "fixed", value = 2.0}}', "a table with its name"),
        ('{name = "ucb"}', "needs schedule"),
        ("3", "rule must be a rule with"),
        ('"greedy"', "rule must be a rule with"),
    ],
)
def test_wrong_nested_rules_are_refused_before_running(
    rule: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "own.toml"
    head = NESTED.partition("[policies.")[0]
    path.write_text(
        f'{head}[policies.mine]\npolicy = "composed"\nrule = {rule}\n', encoding="utf-8"
    )
    with pytest.raises(SpecError, match="policy 'mine'") as caught:
        Plan.make(load_experiment(str(path)), out=tmp_path / "out")
    assert words in str(caught.value)
    assert not (tmp_path / "out").exists()


# --- sweeps and policies on request ------------------------------------------------------


def test_a_sweep_of_the_file_is_run_unless_it_is_overridden(tmp_path: Path) -> None:
    swept = experiment(sweep={"side": [4, 5]})
    plan = Plan.make(swept, out=tmp_path)
    assert plan.settings == [{"side": 4}, {"side": 5}]
    assert Plan.make(swept, out=tmp_path, overrides={"side": 6}).settings == [{}]
    assert Plan.make(swept, out=tmp_path, overrides={"xi": [0.1, 0.2]}).settings == [
        {"side": side, "xi": xi} for side in (4, 5) for xi in (0.1, 0.2)
    ]
    assert Experiment.from_mapping(swept.as_json(), "again") == swept


def test_policies_on_request_run_when_they_are_named() -> None:
    shy = experiment(on_request={"slow": {"policy": "gp-ei", "xi": 0.5}})
    assert list(shy.policies) == ["random", "gp-ei"]
    chosen = shy.with_policies(["slow", "random"])
    assert chosen.policies == {"slow": {"policy": "gp-ei", "xi": 0.5}, "random": {}}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sweep": {"side": 4}}, r"sweep must be a table, each entry a list.*, got \{"),
        ({"sweep": [1]}, r"sweep must be a table.*, got \[1\]"),
        (
            {"on_request": {"slow": {"policy": "gp-eii"}}},
            "on_request.slow: unknown policy",
        ),
        (
            {"on_request": {"slow": 3}},
            r"on_request must be a table, each entry a table, got \{",
        ),
    ],
)
def test_bad_sweeps_and_requests_are_refused(
    changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(SpecError, match=words):
        experiment(**changes)


def test_a_file_may_extend_a_shipped_experiment(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'extends = "kernelized/rkhs-se"\nid = "mine"\nrounds = 7\n'
        "[problem]\nlengthscale = 0.3\n[policies.random]\n",
        encoding="utf-8",
    )
    mine, base = load_experiment(str(path)), load_experiment("kernelized/rkhs-se")
    assert (mine.id, mine.rounds, mine.seeds) == ("mine", 7, base.seeds)
    assert mine.problem == {**base.problem, "lengthscale": 0.3}
    assert set(mine.policies) == {*base.policies, "random"}
    assert mine.claims == base.claims
    path.write_text('extends = "kernelized/rkhs"\n', encoding="utf-8")
    with pytest.raises(SpecError, match="extends is 'kernelized/rkhs'; did you mean"):
        load_experiment(str(path))


def test_bases_are_not_experiments() -> None:
    assert not [name for name in experiment_ids() if "/_" in name]
    with pytest.raises(SpecError, match="unknown experiment"):
        load_experiment("navigation/_route")


# --- what one learner assumes -------------------------------------------------------------


def test_one_learner_may_assume_another_model() -> None:
    data = {
        "id": "mine",
        "rounds": 5,
        "seeds": 1,
        "problem": {"name": "drifting-function", "side": 4},
        "policies": {
            "plain": {"policy": "gp-ts", "scaled": False, "posterior": "drifting"},
            "other": {
                "policy": "gp-ts",
                "scaled": False,
                "posterior": "drifting",
                "assumes": {
                    "drift": {"name": "matern", "nu": 1.5, "lengthscale": 20.0},
                    "noise_variance": 0.5,
                },
            },
        },
    }
    experiment = Experiment.from_mapping(data, "here")
    world = experiment.build_problem(seed=0, horizon=5)
    plain, other = (
        cast(Any, experiment.build_policy(name, world)) for name in ("plain", "other")
    )
    assert plain.posterior.drift == Temporal(epsilon=0.01)
    assert other.posterior.drift == Matern(nu=1.5, lengthscale=20.0)
    assert (plain.posterior.noise_variance, other.posterior.noise_variance) == (
        world.noise_std**2,
        0.5,
    )
    assert other.posterior.kernel is plain.posterior.kernel


@pytest.mark.parametrize(
    ("assumes", "message"),
    [
        ({"drfit": {"name": "temporal"}}, "is no valid 'assumes'"),
        ("temporal", "is no valid 'assumes'"),
        ({"drift": {"name": "temporl"}}, "temporal"),
        ({"drift": {"name": "temporal", "epsilon": 2.0}}, "epsilon"),
        ({"noise_variance": -1.0}, "noise_variance"),
    ],
)
def test_invalid_assumptions_are_rejected(assumes: Any, message: str) -> None:
    policies = {"mine": {"policy": "gp-ts", "assumes": assumes}}
    data = {
        "id": "mine",
        "rounds": 5,
        "seeds": 1,
        "problem": {"name": "drifting-function"},
    }
    with pytest.raises(SpecError, match=rf"policies\.mine: assumes: .*{message}"):
        Experiment.from_mapping({**data, "policies": policies}, "here")


def test_former_name_of_assumes_is_rejected() -> None:
    changes = {"noise_variance": 0.5}
    old_options = {"gp-ei": {"told": changes}}
    with pytest.raises(
        SpecError, match=r"policies\.gp-ei: 'told' is now called 'assumes'; rename"
    ):
        experiment(policies=old_options)
    base = experiment(policies={"gp-ei": {}, "random": {}})
    with pytest.raises(SpecError, match="'told' is now called 'assumes'"):
        base.with_setting({"gp-ei.told": changes})
    with pytest.raises(SpecError, match=r"now called 'assumes', as in gp-ei\.assumes$"):
        base.with_setting({"told": changes})
