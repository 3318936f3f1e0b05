"""Shared test setup: the same environment everywhere, and no hidden skips.

Hypothesis chooses the same examples on every machine, however slow, and writes nothing. Look for
new ones with ``--hypothesis-profile=default``.

``SUPERARM_REQUIRE`` is a switch, on at any value but none or 0. It is on where all extras and data
are installed (``.ci/run``): a skip there would hide that what it guards is no longer run, so any
skip fails the run.
"""

from __future__ import annotations

import gc
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

settings.register_profile(
    "superarm",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("superarm")
gc.disable()  # while tests are collected, where nearly nothing is garbage: a sixth of the time


@pytest.fixture(scope="session")
def sk() -> Any:
    """scikit-learn's kernels."""
    reason = "scikit-learn is not installed"
    return pytest.importorskip("sklearn.gaussian_process.kernels", reason=reason)


@pytest.fixture(scope="session")
def regressor(sk: Any) -> Any:
    """scikit-learn's Gaussian process."""
    from sklearn.gaussian_process import GaussianProcessRegressor

    return GaussianProcessRegressor


@given(st.none())
def _begin_hypothesis(_: None) -> None:
    """Let Hypothesis register NumPy's generator: it looks at referrers, and does not see frozen ones."""


def pytest_collection_finish() -> None:
    _begin_hypothesis()
    # Thousands of tests stay until the end: do not look through them in every collection.
    gc.freeze()
    gc.enable()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if (
        os.environ.get("SUPERARM_REQUIRE", "0") in ("", "0")
        or reporter is None
        or exitstatus
    ):
        return
    skipped = reporter.stats.get("skipped", [])
    if skipped:
        reporter.write_line(
            f"SUPERARM_REQUIRE is set, but {len(skipped)} tests were skipped"
        )
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
