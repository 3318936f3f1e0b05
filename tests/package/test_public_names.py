"""Public names that users rely on, and the page about the command line."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

import superarm
from superarm.cli.commands import superarm as command_line

CLI_PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
PACKAGES = (
    "superarm",
    "superarm.lab.experiments",
    "superarm.kernels",
    "superarm.oracles",
    "superarm.policies",
    "superarm.posteriors",
    "superarm.lab.problems",
    "superarm.rules",
    "superarm.lab.simulation",
    "superarm.lab.theory",
)

# Module, name, parameters that must be accepted by keyword.
RELIED_ON = [
    ("superarm.kernels", "SquaredExponential", "lengthscale variance"),
    ("superarm.kernels", "Matern", "nu lengthscale variance"),
    ("superarm.kernels", "Linear", ""),
    ("superarm.posteriors", "StreamingGP", "kernel noise_variance mean"),
    ("superarm.posteriors", "FiniteGP", "kernel arms noise_variance mean"),
    ("superarm.posteriors", "StreamingGP.observe", "arms rewards"),
    ("superarm.posteriors", "FiniteGP.observe", "arms rewards"),
    ("superarm.posteriors", "StreamingGP.predict", "arms return_std return_cov"),
    ("superarm.posteriors", "FiniteGP.predict", "arms return_std return_cov"),
    ("superarm.posteriors", "StreamingGP.sample", "arms rng size"),
    ("superarm.posteriors", "FiniteGP.sample", "arms rng size"),
    ("superarm", "load", "path"),
    ("superarm", "build", "family spec"),
    ("superarm", "spec_of", "part"),
    ("superarm", "IndexPolicy.save", "path"),
]


def find(module: str, name: str) -> Any:
    target = importlib.import_module(module)
    for part in name.split("."):
        target = getattr(target, part)
    return target


@pytest.mark.parametrize(("module", "name", "parameters"), RELIED_ON)
def test_relied_on_names_take_the_documented_parameters(
    module: str, name: str, parameters: str
) -> None:
    accepted = inspect.signature(find(module, name)).parameters
    for parameter in parameters.split():
        assert parameter in accepted
        assert accepted[parameter].kind is not inspect.Parameter.POSITIONAL_ONLY


def test_posteriors_work_as_documented() -> None:
    from superarm.kernels import Matern, SquaredExponential
    from superarm.posteriors import FiniteGP, StreamingGP

    points = np.linspace(0.0, 1.0, 5)[:, None]
    rng = np.random.default_rng(0)
    kernel = Matern(nu=2.5, lengthscale=0.3, variance=2.0)
    streaming = StreamingGP(kernel=kernel, noise_variance=0.1)
    finite = FiniteGP(kernel=kernel, arms=points, noise_variance=0.1, mean=0.0)
    streaming.observe(points[[1, 3]], [1.0, -1.0])
    finite.observe([1, 3], [1.0, -1.0])
    for posterior, arms in ((streaming, points), (finite, np.arange(5))):
        prediction = posterior.predict(arms)
        mean, std = prediction[:2]
        assert prediction._fields[:2] == ("mean", "std")
        assert (mean.shape, std.shape) == ((5,), (5,))
        assert posterior.predict(arms, return_std=False, return_cov=True)[-1].shape == (
            5,
            5,
        )
        assert posterior.sample(arms, rng, 3).shape == (3, 5)
    assert np.allclose(
        streaming.predict(points).mean, finite.predict(np.arange(5)).mean
    )
    assert SquaredExponential(lengthscale=0.2, variance=1.0)(points).shape == (5, 5)


@pytest.mark.parametrize("package", PACKAGES)
def test_exported_names_are_there(package: str) -> None:
    module = importlib.import_module(package)
    exported = getattr(module, "__all__", None) or [
        n for n in vars(module) if not n.startswith("_")
    ]
    assert exported
    for name in exported:
        assert getattr(module, name) is not None


def test_lazy_names_are_those_declared() -> None:
    assert {*superarm._HOMES, "__version__"} == set(superarm.__all__)
    assert set(superarm.__all__) - {"__version__"} <= set(dir(superarm))
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        superarm.nope  # noqa: B018
    source = Path(superarm.__file__).read_text(encoding="utf-8")
    folders = {
        path.parent.name
        for path in Path(superarm.__file__).parent.glob("*/__init__.py")
    }
    for name in {*superarm._HOMES, *folders} - {
        "cli",
        "demo",
    }:  # type checkers see what users see
        assert f" {name} as {name}" in source
    declared = set(re.findall(r"from \. import (\w+) as", source))
    assert declared == {*superarm._ROOMS} - {"cli"}


def test_modules_load_on_first_access() -> None:
    code = (
        "import superarm as sa, sys; before = set(sys.modules); "
        "print(sa.kernels.Matern(nu=2.5, lengthscale=0.3).nu, 'superarm.kernels' in before, "
        "{'kernels', 'lab', 'Offer'} <= set(dir(sa)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["2.5", "False", "True"]


# --- docs/cli.md -------------------------------------------------------------------------


def commands(
    group: click.Group, prefix: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            yield from commands(command, (*prefix, name))
        else:
            yield " ".join((*prefix, name)), command


DOCUMENTED = dict(commands(command_line))


@pytest.fixture(scope="module")
def page() -> str:
    assert CLI_PAGE.is_file(), "docs/cli.md describes the command line"
    return CLI_PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_command_and_option_is_documented(name: str, page: str) -> None:
    assert f"superarm {name}" in page
    for parameter in DOCUMENTED[name].params:
        if isinstance(parameter, click.Option):
            assert any(
                re.search(rf"(?<![\w-]){o}(?![\w-])", page) for o in parameter.opts
            ), parameter.opts


def test_exit_codes_are_documented(page: str) -> None:
    for code in (0, 1, 2, 3):
        assert re.search(rf"\b{code}\b", page)
    assert "conflict" in page


def test_documented_names_exist(page: str) -> None:
    known = {
        option
        for command in DOCUMENTED.values()
        for p in command.params
        for option in p.opts
    }
    known |= {"--help", "--version"}
    own = re.sub(r"^dask .*$", "", page, flags=re.MULTILINE)  # options of Dask
    mentioned = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", own))
    assert mentioned <= known


PARTS = ("policy", "posterior", "rule", "schedule", "oracle", "reward", "switching")


@pytest.mark.parametrize("family", PARTS)
def test_every_public_method_has_help(family: str) -> None:
    """Parts do not derive from their protocols: registering them passes the docstrings on."""
    silent = []
    for name in superarm.core.registry.names(family):
        part = superarm.core.registry.find(family, name)
        if not inspect.isclass(part) or not part.__module__.startswith("superarm."):
            continue
        methods = inspect.getmembers(part, inspect.isfunction)
        public = [method for member, method in methods if not member.startswith("_")]
        silent += [entry.__qualname__ for entry in public if not inspect.getdoc(entry)]
    assert sorted(set(silent)) == []
