"""``list`` and ``show``: every part and experiment in words."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from superarm.core.registry import families, find, names
from superarm.lab.experiments import experiment_ids, load_experiment

Command = Callable[..., Any]
ROOT = Path(__file__).resolve().parents[2]


def test_families(cli: Command) -> None:
    rows = {row["family"]: row for row in cli("list", "--json").json()["families"]}
    assert set(rows) == {*families(), "experiments"}
    assert all(row["meaning"] for row in rows.values())
    assert rows["oracle"]["parts"] == len(names("oracle"))
    text = cli("list").out
    assert "how similar two arms are" in text
    assert "superarm list FAMILY" in text


@pytest.mark.parametrize("family", families())
def test_every_part_and_parameter_has_a_meaning(family: str, cli: Command) -> None:
    parts = cli("list", family, "--json").json()["parts"]
    assert [part["name"] for part in parts] == names(family)
    for part in parts:
        if not find(family, part["name"]).__module__.startswith("superarm."):
            continue  # another test of the same process registered it
        assert len(part["meaning"]) > 8, part["name"]
        assert not re.search(r"[a-z]\d{4}[a-z]|`|:class:", part["meaning"]), part[
            "meaning"
        ]
        module, _, name = part["python"].rpartition(".")
        assert getattr(import_module(module), name) is find(family, part["name"])
        for parameter in part["parameters"]:
            assert parameter["meaning"], (
                f"{family}/{part['name']}: {parameter['name']} means nothing"
            )
            assert parameter["required"] or "default" in parameter


@pytest.mark.slow
def test_parts_for_people(cli: Command) -> None:
    singular, plural = cli("list", "kernel"), cli("list", "kernels")
    assert (singular.code, singular.out) == (0, plural.out)
    assert "lengthscale=1.0" in singular.out
    assert "_bounds" not in singular.out
    assert cli("list", "policies").out == cli("list", "policy").out
    assert "did you mean 'kernel'" in cli("list", "kernl").fails(2)


def test_experiments_are_listed_under_their_papers(cli: Command) -> None:
    rows = cli("list", "experiments", "--json").json()["experiments"]
    assert {row["id"] for row in rows} == set(experiment_ids())
    lines = cli("list", "experiments").out.splitlines()
    title = next(
        number
        for number, line in enumerate(lines)
        if "On Kernelized Multi-armed Bandits (2017)" in line
    )
    below = next(
        number for number, line in enumerate(lines) if "kernelized/rkhs-se" in line
    )
    beyond = next(
        number for number, line in enumerate(lines) if "Beyond the papers" in line
    )
    own = next(
        number for number, line in enumerate(lines) if "navigation/network" in line
    )
    assert title < below < beyond < own


def test_titles_are_those_of_the_bibliography() -> None:
    from superarm.lab.results.papers import _TITLES

    text = (ROOT / "docs" / "refs.bib").read_text(encoding="utf-8")
    text = re.sub(r"@\w+{", "@", text).replace("{", "").replace("}", "")
    for key, title in _TITLES.items():
        entry = text[text.index(f"@{key},") :]
        shown_title, year = title.removesuffix(")").rsplit(" (", 1)
        own = re.search(r"title += (.+),\n", entry)
        assert own is not None
        assert own[1].startswith(shown_title.partition(" … ")[0])
        assert re.search(r"year += (\d+)", entry)[1] == year  # type: ignore[index]
    assert {load_experiment(name).paper for name in experiment_ids()} <= {
        *_TITLES.values(),
        "",
    }


def test_user_parts_are_described_by_their_docstrings(
    cli: Command,
) -> None:
    show = (
        "show",
        "epsilon-greedy",
        "--import",
        ROOT / "examples" / "own_policy.py",
        "--json",
    )
    policy, rule = cli(*show).json()["parts"]
    assert (policy["family"], rule["family"]) == ("policy", "rule")
    assert policy["parameters"][0]["meaning"] == ""
    assert rule["parameters"][0]["meaning"].startswith("How much to explore")


def test_show_a_part(cli: Command) -> None:
    text = cli("show", "kernel/matern").out
    assert text.startswith("kernel matern\nin Python: superarm.kernels.matern.Matern\n")
    for words in ("nu", "2.5", "a number", "Smoothness", "ν is never fitted"):
        assert words in text
    assert "`assumes`" not in text
    both = cli("show", "gp-ts").out
    assert "`assumes`" in both
    assert "`wrapped`" in both
    assert "policy gp-ts" in both
    assert "schedule gp-ts" in both
    assert "On Kernelized Multi-armed Bandits (2017), Algorithm 2" in both
    assert ">>>" not in cli("show", "posterior/finite").out
    for name in ("change-detecting", "refitting"):
        assert "Order matters" in cli("show", name).out
    [part] = cli("show", "oracle/top-k", "--json").json()["parts"]
    assert part["parameters"] == [
        {
            "name": "k",
            "type": "a whole number",
            "required": False,
            "default": 1,
            "meaning": "Number of arms to choose.",
        }
    ]


def test_docstrings_explain_parameters(cli: Command) -> None:
    [part] = cli("show", "problem/crowdsourcing", "--json").json()["parts"]
    meanings = {
        parameter["name"]: parameter["meaning"] for parameter in part["parameters"]
    }
    assert meanings["k"] == "Number of workers that a task needs."
    assert "seed" not in meanings  # the run says it


def test_show_an_experiment(cli: Command, tiny: str, tmp_path: Path) -> None:
    text = cli("show", "navigation/betas").out
    for words in (
        f"navigation/betas: {load_experiment('navigation/betas').title}",
        "Bayesian Analysis of Combinatorial Gaussian Process Bandits (2025), Figure 3",
        'problem: name = "navigation"',
        'policy gp-ucb-half: policy = "route-ucb", scale = 0.5',
        f"claim: {load_experiment('navigation/betas').claims[0]['text']}",
        "superarm run navigation/betas",
    ):
        assert words in text
    own = cli("show", tiny, "--json").json()
    assert (own["id"], own["rounds"]) == ("tiny", 12)
    untitled = tmp_path / "untitled.toml"
    lines = (
        line
        for line in Path(tiny).read_text().splitlines()
        if not line.startswith("title")
    )
    untitled.write_text("\n".join(lines))
    assert cli("show", untitled).out.startswith("tiny\n")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mattern", "did you mean 'gain/matern' or 'kernel/matern'?"),
        ("navigation/beta", "did you mean 'navigation/betas'?"),
        ("qwertyuiop", "`superarm list` lists them"),
        ("nope.toml", "nope.toml: file not found"),
    ],
)
def test_unknown_names_are_rejected(name: str, words: str, cli: Command) -> None:
    assert words in cli("show", name).fails(2)


def test_the_citation_is_of_this_version() -> None:
    from superarm import __version__

    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"version: {__version__}\n" in text
