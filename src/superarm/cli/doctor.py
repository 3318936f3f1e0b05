"""What ``doctor`` prints: versions, extras, and whether the engines agree."""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from importlib.util import find_spec
from typing import Any

import numpy as np

from superarm import __version__
from superarm.core.errors import SuperarmError, install_line

from .common import print_json, say

_EXTRAS = {
    **{
        "matplotlib": "plot",
        "numba": "fast",
        "distributed": "cluster",
        "torch": "torch",
    },
    **{"gpytorch": "torch", "botorch": "torch", "libsumo": "sumo", "pandas": "frame"},
    **{"leuvenmapmatching": "gps"},
}
_CORE = ("numpy", "scipy", "click", "rich")


def check_installation(as_json: bool) -> None:
    """Versions, extras, and a small problem solved by every engine, compared with a plain solve."""
    worst = _largest_disagreement()
    found: dict[str, Any] = {
        "superarm": __version__,
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in _CORE},
        "extras": {
            name: metadata.version(name) if find_spec(name) else None
            for name in _EXTRAS
        },
        "largest_disagreement": worst,
        "sound": worst < 1e-8,
    }
    if as_json:
        print_json(found)
    else:
        say(f"superarm {__version__} on Python {found['python']}")
        for name, version in (found["versions"] | found["extras"]).items():
            found_as = version or f"not installed; {install_line(_EXTRAS[name])}"
            say(f"  {name} {found_as}")
        word = "agree" if found["sound"] else "DISAGREE"
        say(f"The engines {word} with a plain solve; largest difference {worst:.1e}.")
    if not found["sound"]:
        sys.exit(1)


def _largest_disagreement() -> float:
    from superarm.kernels import SquaredExponential
    from superarm.posteriors import FiniteGP, StreamingGP

    rng = np.random.default_rng(0)
    kernel = SquaredExponential(lengthscale=0.5)
    arms, rewards, noise = rng.random((60, 2)), rng.standard_normal(200), 0.1
    rows = rng.integers(60, size=200)
    seen = arms[rows]
    expected = kernel(arms, seen) @ np.linalg.solve(
        kernel(seen) + noise * np.eye(len(seen)), rewards
    )
    means = []
    for engine in [
        StreamingGP(kernel, noise, form=form) for form in ("cholesky", "finite-rank")
    ]:
        engine.observe(seen, rewards)
        means.append(engine.predict(arms).mean)
    for finite in [
        FiniteGP(kernel, arms, noise, form=form) for form in ("root", "visited")
    ]:
        for row, reward in zip(rows, rewards, strict=True):
            finite.observe([row], [reward])
        means.append(finite.predict(np.arange(60)).mean)
    worst = float(np.max(np.abs(np.array(means) - expected)))
    if not np.isfinite(worst):
        raise SuperarmError("an engine returned a number that is not finite")
    return worst
