"""The command ``doctor``: versions, extras, and whether the engines agree."""

from __future__ import annotations

import platform
import sqlite3
import sys
from collections.abc import Mapping
from importlib import metadata
from importlib.util import find_spec

import numpy as np

from superarm import __version__
from superarm.core.errors import SuperarmError, install_line

from .common import print_json, say

_CORE = ("numpy", "scipy", "click", "rich")
# The extra that installs each optional package.
_EXTRAS = {
    "numba": "fast",
    "distributed": "cluster",
    "torch": "torch",
    "gpytorch": "torch",
    "botorch": "torch",
    "libsumo": "sumo",
    "pandas": "frame",
    "pyarrow": "parquet",
    "leuvenmapmatching": "gps",
    "fastapi": "serve",
    "uvicorn": "serve",
    "prometheus_client": "serve",
    "httpx": "client",
    "psycopg": "postgres",
}
_SOUND_WAL = (3, 51, 3)  # the first SQLite with the repaired WAL
_TOLERANCE = 1e-8  # of the engines' means


def check_installation(as_json: bool) -> None:
    """Print versions and extras, and compare every engine with a plain solve on a small problem.

    Exits with 1 if they disagree.

    Args:
        as_json: Whether to print JSON.
    """
    largest_difference = _largest_disagreement()
    sound = largest_difference < _TOLERANCE
    versions = {name: metadata.version(name) for name in _CORE}
    extras = {name: _installed_version(name) for name in _EXTRAS}
    notes = _sqlite_notes()
    if as_json:
        print_json(
            {
                "superarm": __version__,
                "python": platform.python_version(),
                "sqlite": sqlite3.sqlite_version,
                "versions": versions,
                "extras": extras,
                "notes": notes,
                "largest_disagreement": largest_difference,
                "sound": sound,
            }
        )
    else:
        _print_versions(versions, extras)
        for note in notes:
            say(note)
        verb = "agree" if sound else "DISAGREE"
        say(
            f"The engines {verb} with a plain solve; "
            f"largest difference {largest_difference:.1e}."
        )
    if not sound:
        sys.exit(1)


def _installed_version(name: str) -> str | None:
    return metadata.version(name) if find_spec(name) else None


def _sqlite_notes() -> list[str]:
    """A note where SQLite is older than its repaired WAL."""
    if sqlite3.sqlite_version_info >= _SOUND_WAL:
        return []
    return [
        f"SQLite {sqlite3.sqlite_version}: releases before 3.51.3 can corrupt a WAL that two "
        "connections write; superarm writes with one."
    ]


def _print_versions(
    versions: Mapping[str, str], extras: Mapping[str, str | None]
) -> None:
    say(f"superarm {__version__} on Python {platform.python_version()}")
    say(f"  SQLite {sqlite3.sqlite_version}")
    for name, version in versions.items():
        say(f"  {name} {version}")
    for name, extra_version in extras.items():
        if extra_version:
            say(f"  {name} {extra_version}")
        else:
            say(f"  {name} not installed; {install_line(_EXTRAS[name])}")


def _largest_disagreement() -> float:
    """The largest difference between an engine's posterior mean and that of a plain solve."""
    from superarm.kernels import SquaredExponential
    from superarm.posteriors import FiniteGP, StreamingGP

    rng = np.random.default_rng(0)
    kernel = SquaredExponential(lengthscale=0.5)
    noise_variance = 0.1
    arms = rng.random((60, 2))
    rewards = rng.standard_normal(200)
    rows = rng.integers(60, size=200)
    observed = arms[rows]
    total_cov = kernel(observed) + noise_variance * np.eye(len(observed))
    expected = kernel(arms, observed) @ np.linalg.solve(total_cov, rewards)
    means = []
    for streaming in (
        StreamingGP(kernel, noise_variance, form="cholesky"),
        StreamingGP(kernel, noise_variance, form="finite-rank"),
    ):
        streaming.observe(observed, rewards)
        means.append(streaming.predict(arms).mean)
    for finite in (
        FiniteGP(kernel, arms, noise_variance, form="root"),
        FiniteGP(kernel, arms, noise_variance, form="visited"),
    ):
        for row, reward in zip(rows, rewards, strict=True):
            finite.observe([row], [reward])
        means.append(finite.predict(np.arange(60)).mean)
    largest = float(np.max(np.abs(np.array(means) - expected)))
    if not np.isfinite(largest):
        raise SuperarmError("an engine returned a number that is not finite")
    return largest
