"""The documentation matches the code: examples run, and names agree in both directions."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import itertools
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

from superarm import Arms, Offer
from superarm.cli.commands import superarm
from superarm.core import Policy, Rule, migrations, registry
from superarm.lab.problems import landscape
from superarm.lab.simulation import Run
from superarm.testing import PolicyContract, RuleContract

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.glob("*.md")])
PACKAGE = ROOT / "src" / "superarm"


class Block:
    """A fenced block of a page: its language, its text and the line it starts on."""

    def __init__(self, page: Path, language: str, text: str, line: int) -> None:
        self.page, self.language, self.text, self.line = page, language, text, line

    def __repr__(self) -> str:
        return f"{self.page.name}:{self.line}"


@cache
def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, match[1], match[2], text[: match.start()].count("\n") + 1)
        for match in re.finditer(
            r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL
        )
    ]


@contextlib.contextmanager
def own_registry() -> Iterator[None]:
    """Parts registered inside are removed afterwards: other tests count the parts."""
    for family in (
        "kernel",
        "gain",
        "posterior",
        "rule",
        "oracle",
        "policy",
        "problem",
    ):
        registry.names(family)  # loads the packages, so that they are not forgotten too
    parts = {
        family: dict(members) for family, members in registry.catalogue._parts.items()
    }
    known = dict(registry.catalogue._names)
    steps = dict(migrations._state_steps), dict(migrations._spec_steps)
    try:
        yield
    finally:
        migrations._state_steps, migrations._spec_steps = steps
        for family, members in parts.items():
            registry.catalogue._parts[family].clear()
            registry.catalogue._parts[family].update(members)
        registry.catalogue._names.clear()
        registry.catalogue._names.update(known)


def run_python(page: Path) -> tuple[dict[str, Any], str]:
    """Run all Python of a page, in order, in one namespace; return its output."""
    namespace: dict[str, Any] = {"__name__": f"docs_{page.stem}"}
    printed = io.StringIO()
    with own_registry(), contextlib.redirect_stdout(printed):
        for block in blocks(page):
            if block.language == "python":
                code = (
                    "\n" * block.line + block.text
                )  # errors then show the page's own lines
                exec(compile(code, str(page), "exec", dont_inherit=True), namespace)
    return namespace, printed.getvalue()


def load_example(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with own_registry():
        spec.loader.exec_module(module)
    return module


# --- Python on the pages -------------------------------------------------------------------


def test_the_readmes_python_runs_and_finds_the_best_arms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a journal is written
    namespace, printed = run_python(ROOT / "README.md")
    namespace["bandit"].storage.close()
    match = re.match(r"chosen (\[.*\]) best (\[.*\])\n", printed)
    assert match is not None, printed
    chosen, best = map(ast.literal_eval, match.groups())
    assert len(set(chosen) & set(best)) >= 2, (
        "after 100 rounds it should know the best arms"
    )


@pytest.mark.slow
def test_the_guides_python_and_its_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a log is written, which the commands then read
    _, printed = run_python(DOCS / "guide.md")
    shown = [line for block, line in shown_commands() if block.page.name == "guide.md"]
    learned, routed = (
        invoke(shlex.split(line)[1:]).stdout for line in shown if " --net city " in line
    )
    assert (
        "learned 120 trips; the state now has 120 trips on 273 of 2,006 edges\n"
        in learned
    )
    assert re.search(
        r"^battery: 16000 Wh at the start, 15\d{3} Wh at arrival", routed, re.MULTILINE
    )
    assert "cups\n('sugar', 'milk=cow', 'milk=oat')\n" in printed
    assert "cholesky 0.0\n" in printed
    *_, alarms, paid, traced, fleet = printed.splitlines()
    assert alarms == "()"  # none yet
    stays = sum(abs(60.0 * np.sin(hour * np.pi / 12.0)) / 100.0 for hour in range(240))
    assert 0.0 < float(paid) < stays
    assert round(stays) == 91  # as stated in the text
    assert re.fullmatch(r"\d+ edges, \d+ of them complete, in \d+ sections", traced)
    assert re.fullmatch(r"120 trips; \d+ ± \d+ Wh", fleet)


EXTENDING, _ = run_python(DOCS / "extending.md")
CONTRACTS = [
    (name, test)
    for name, member in EXTENDING.items()
    if name.startswith("Test")
    for test in dir(member)
    if test.startswith("test_")
]


@pytest.mark.parametrize(("name", "test"), CONTRACTS)
def test_skeletons_satisfy_their_contracts(name: str, test: str) -> None:
    assert_promise = getattr(EXTENDING[name](), test)
    assert_promise()


def test_every_protocol_has_a_skeleton_with_its_contract() -> None:
    import superarm.testing as contracts

    wanted = {name for name in dir(contracts) if name.endswith("Contract")} - {
        "BeliefContract"
    }
    used = {base.__name__ for name, _ in CONTRACTS for base in EXTENDING[name].__mro__}
    assert wanted <= used


# --- examples ------------------------------------------------------------------------------

OWN_POLICY = load_example(ROOT / "examples" / "own_policy.py")


def test_the_own_policy_learns() -> None:
    regret = OWN_POLICY.main(rounds=40)
    assert regret["mine"] < 0.7 * regret["random"]


class TestOwnRule(RuleContract):
    def make_rule(self) -> Rule:
        rule: Rule = OWN_POLICY.EpsilonGreedy(epsilon=0.5)
        return rule


class TestOwnPolicy(PolicyContract):
    model = landscape(seed=0, horizon=50, side=4).model

    def make_policy(self) -> Policy:
        policy: Policy = OWN_POLICY.epsilon_greedy(self.model)
        return policy

    def make_offer(self, step: int) -> Offer:
        return Offer(step=step, arms=Arms.numbered(self.model.arms))


def invoke(arguments: list[str]) -> Result:
    result = CliRunner().invoke(superarm, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    return result


@pytest.mark.parametrize(
    "path", sorted((ROOT / "examples").glob("*.toml")), ids=lambda path: path.name
)
def test_the_example_experiments_run_and_their_claims_hold(
    path: Path, tmp_path: Path
) -> None:
    result = invoke(
        [
            "run",
            str(path),
            "--jobs",
            "1",
            "-q",
            "--json",
            "--out",
            str(tmp_path / "run"),
        ]
    )
    summary = json.loads(result.stdout)
    assert summary["claims"]
    assert all(claim["holds"] for claim in summary["claims"])


# --- the command line ----------------------------------------------------------------------


def walk(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        for child in command.commands.values():
            yield from walk(child, f"{name} {child.name}")


COMMANDS = dict(walk(superarm, "superarm"))


def section(name: str) -> str:
    """The part of docs/cli.md under a command's own heading."""
    text = (DOCS / "cli.md").read_text(encoding="utf-8")
    match = re.search(
        rf"^#+ {re.escape(name)}\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL
    )
    assert match is not None, f"docs/cli.md has no section '{name}'"
    return match[1]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_documented(name: str) -> None:
    everywhere = section("Options that every command takes")
    own = (
        section(name)
        if name != "superarm"
        else (DOCS / "cli.md").read_text(encoding="utf-8")
    )
    # As the group would make it: a command keeps the help option of its first context.
    context = click.Context(
        COMMANDS[name], parent=click.Context(superarm, **superarm.context_settings)
    )
    for parameter in COMMANDS[name].get_params(context):
        if isinstance(parameter, click.Option):
            for option in parameter.opts:
                assert f"`{option}" in own + everywhere, (
                    f"{name} {option} is not in docs/cli.md"
                )


def options_of(name: str) -> set[str]:
    return {option for parameter in COMMANDS[name].params for option in parameter.opts}


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "superarm"])
def test_no_option_is_documented_that_does_not_exist(name: str) -> None:
    text = section(name)
    rows = set(re.findall(r"^\| `(--[a-z-]+)", text, re.MULTILINE))
    assert rows <= options_of(name), (
        "the table lists options that the command does not take"
    )
    anywhere = set().union(*map(options_of, COMMANDS)) | {"--help"}
    assert set(re.findall(r"`(--[a-z-]+)", text)) <= anywhere


def shown_commands() -> list[tuple[Block, str]]:
    return [
        (block, line)
        for page in PAGES
        for block in blocks(page)
        if block.language == "sh"
        for line in block.text.splitlines()
        if line.startswith("superarm ")
    ]


@pytest.mark.parametrize(("block", "line"), shown_commands())
def test_every_command_line_shown_is_understood(block: Block, line: str) -> None:
    words = shlex.split(line)[1:]
    command: click.Command = superarm
    context: click.Context | None = None
    while isinstance(command, click.Group):
        # With its settings: click keeps the help option that it makes of the first context it meets.
        context = click.Context(command, parent=context, **command.context_settings)
        name = words.pop(0)
        assert name in command.commands, line
        command = command.commands[name]
    command.make_context(command.name, words, parent=context)  # parses, runs nothing


def same_shape(shown: Any, real: Any, where: str = "$") -> None:
    """Same keys and kinds of values all the way down; ``null`` stands for anything."""
    if shown is None or real is None:
        return
    if isinstance(shown, dict):
        assert isinstance(real, dict), where
        open_ended = where.endswith(".setting")
        assert open_ended or set(shown) == set(real), (
            f"{where}: {set(shown) ^ set(real)}"
        )
        for key in set(shown) & set(real):
            same_shape(shown[key], real[key], f"{where}.{key}")
    elif isinstance(shown, list):
        assert isinstance(real, list), where
        for item in real[:1]:
            same_shape(shown[0], item, f"{where}[0]")
    elif isinstance(shown, bool) or isinstance(real, bool):
        assert isinstance(shown, bool), where
        assert isinstance(real, bool), where
    elif isinstance(shown, int | float):
        assert isinstance(real, int | float), where
    else:
        assert isinstance(real, type(shown)), where


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One directory for all commands of docs/cli.md: later ones read what earlier ones wrote."""
    return tmp_path_factory.mktemp("docs")


@pytest.mark.slow
def test_documented_json_matches_the_commands(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workplace)
    page = blocks(DOCS / "cli.md")
    pairs = [
        (block.text.strip(), after.text)
        for block, after in itertools.pairwise(page)
        if (block.language, after.language) == ("sh", "json")
    ]
    assert len(pairs) >= 6
    log, menu = (block.text for block in page if block.language == "csv")
    Path("trips.csv").write_text(log, encoding="utf-8")
    Path("menu.csv").write_text(menu, encoding="utf-8")
    (spec,) = (block.text for block in page if 'name = "index"' in block.text)
    Path("menu.toml").write_text(spec, encoding="utf-8")
    for line, shown in pairs:
        result = invoke(shlex.split(line)[1:])
        assert result.stdout.count("\n") == 1, "with --json stdout is one line"
        same_shape(json.loads(shown), json.loads(result.stdout))
    check_files(workplace / "runs" / "delta")


def check_files(directory: Path) -> None:
    """The files that both pages list, and none besides; a run reads back."""
    listed = section("What a run leaves behind")
    for path in directory.iterdir():
        assert f"`{path.name}{'/' if path.is_dir() else ''}" in listed, path.name
    assert Run.load(directory).cumulative("igp-ucb").shape == (2, 50)


def test_every_check_of_a_claim_is_documented() -> None:
    from superarm.lab.experiments.claims.checks import CHECKS

    rows = re.findall(
        r"^\| `([a-z-]+)` \| .* \| .* \|$", section("Claims"), re.MULTILINE
    )
    assert sorted(rows) == sorted(CHECKS)


# --- names, links and folders --------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in headings
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        assert path.exists(), f"{page.name} links to {target}"
        assert path.is_relative_to(ROOT), (
            f"{page.name} links to {target}, outside the project"
        )
        if anchor and path.suffix == ".md":
            assert anchor in anchors(path), f"{page.name} links to {target}"


def package_folders() -> set[str]:
    return {
        f"{path.relative_to(PACKAGE).as_posix()}/"
        for path in PACKAGE.rglob("*")
        if any(path.glob("*.py")) or any(path.glob("*.toml"))
    }


def test_architecture_names_every_folder() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    house = text[text.index("## The house") : text.index("### Who may import whom")]
    table = [line for line in house.splitlines() if line.startswith("|")]
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*/)`", "\n".join(table)))
    assert named == package_folders()
    files = {name for line in table for name in re.findall(r"`(\w+\.py)`", line)}
    assert files == {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py"}


def test_architecture_matches_the_import_contracts() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    layers = next(
        contract["layers"] for contract in contracts if contract["type"] == "layers"
    )
    floors = "\n".join(layers).replace("superarm.", "")
    shown = [block.text.strip() for block in blocks(DOCS / "architecture.md")]
    assert floors in shown


CODE_NAME = re.compile(
    r"`(kernels|rules|oracles|posteriors|policies|problems|theory)\.(\w+)`"
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_of_code_exist(page: Path) -> None:
    """Rooms of a wing are named without it: ``theory.…`` is in ``superarm.lab``."""
    rooms = {path.removesuffix("/").replace("/", ".") for path in package_folders()}
    for package, name in CODE_NAME.findall(page.read_text(encoding="utf-8")):
        places = [
            f"superarm.{room}" for room in rooms if room.rpartition(".")[2] == package
        ]
        exists = any(hasattr(importlib.import_module(place), name) for place in places)
        assert exists, f"{page.name}: {package}.{name} does not exist"


def test_the_papers_page_names_every_experiment() -> None:
    from superarm.lab.experiments import experiment_ids, load_experiment

    text = (DOCS / "papers.md").read_text(encoding="utf-8")
    for name in experiment_ids():
        if load_experiment(name).paper:
            assert f"`{name}`" in text, f"docs/papers.md does not name {name}"


def test_every_extra_is_in_the_readme() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    table = re.findall(
        r"^\| `(\w+)` \|", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE
    )
    assert sorted(table) == sorted(settings["project"]["optional-dependencies"])


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 190
