"""Where everything is at hand, nothing may be skipped.

``SUPERARM_REQUIRE`` is a switch, on at any value but none or 0. It is on where all extras and data
are installed (``.ci/run``): a skip there would hide that what it guards is no longer run, so any
skip fails the run.
"""

from __future__ import annotations

import os

import pytest


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("SUPERARM_REQUIRE", "0") in ("", "0") or reporter is None or exitstatus:
        return
    skipped = reporter.stats.get("skipped", [])
    if skipped:
        reporter.write_line(f"SUPERARM_REQUIRE is set, but {len(skipped)} tests were skipped")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
