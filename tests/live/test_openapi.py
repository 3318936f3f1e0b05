"""The OpenAPI document: committed, complete, and what the service does."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from fault_table import FaultCounts
from running_service import http_client, running_service

from superarm.core.registry import spec_of
from superarm.core.serialization import to_json
from superarm.kernels import SquaredExponential
from superarm.live import Bandit, Storage, load_bandit
from superarm.live.access import SCOPES, make_token
from superarm.live.service.openapi import openapi_text
from superarm.oracles import TopK
from superarm.policies import IndexPolicy
from superarm.posteriors import StreamingGP
from superarm.rules import UCB, Fixed

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "openapi.json"
HOOKS = ROOT / "tests" / "support" / "schemathesis_hooks.py"
PROBLEM = {"$ref": "#/components/schemas/Problem"}
MENU = {"mocha": [0.1, 0.2], "latte": [0.6, 0.7], "tea": [0.9, 0.1]}
POLICY = IndexPolicy(
    posterior=StreamingGP(SquaredExponential(lengthscale=0.3), noise_variance=0.01),
    rule=UCB(schedule=Fixed(value=2.0)),
    oracle=TopK(k=2),
)


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(DOCUMENT.read_text("utf-8"))
    return loaded


def operations(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Method and path of every operation, with its description."""
    found = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            found.append((f"{method.upper()} {path}", operation))
    return found


# --- the document that is committed --------------------------------------------------------


def constrained_version(package: str) -> str:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    versions = dict(line.split("==") for line in lines)
    return versions[package]


def test_the_committed_document_is_what_the_code_makes() -> None:
    for package in ("fastapi", "pydantic"):
        if version(package) != constrained_version(package):
            pytest.skip(f"another version of {package} may word the document otherwise")
    assert DOCUMENT.read_text("utf-8") == openapi_text(), (
        "the interface changed: write docs/openapi.json anew with "
        "`python -m superarm.live.service.openapi > docs/openapi.json`"
    )


def test_a_changed_document_has_a_line_in_the_changelog() -> None:
    fingerprint = hashlib.sha256(DOCUMENT.read_bytes()).hexdigest()[:12]
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    entries = re.findall(r"docs/openapi\.json\)? \(`([0-9a-f]{12})`\)", changelog)
    # Entries of the newest release come first.
    assert entries[:1] == [fingerprint], (
        "docs/openapi.json changed: describe the change in CHANGELOG.md, and put "
        f"(`{fingerprint}`) after the link to docs/openapi.json there"
    )


def test_every_route_has_a_summary_and_a_short_name(document: dict[str, Any]) -> None:
    names = []
    for where, operation in operations(document):
        assert operation["summary"], where
        assert operation["description"], where
        names.append(operation["operationId"])
    assert len(names) == len(set(names))
    assert {"ask", "tell", "tell_batch", "stream_events", "explain"} <= set(names)


def test_every_error_is_a_problem(document: dict[str, Any]) -> None:
    for where, operation in operations(document):
        errors = {
            status: response["content"]
            for status, response in operation["responses"].items()
            if int(status) >= 400
        }
        assert "421" in errors, where
        for content in errors.values():
            if "/personalizer/" in where:
                # Personalizer's own errors, or problems of the guard before it.
                assert set(content) <= {"application/json", "application/problem+json"}
                continue
            assert content == {"application/problem+json": {"schema": PROBLEM}}, where
    schema = document["components"]["schemas"]["Problem"]
    assert set(schema["required"]) == {"type", "title", "status", "detail"}


def test_bandits_decisions_and_tokens_need_a_bearer_token(
    document: dict[str, Any],
) -> None:
    scheme = document["components"]["securitySchemes"]["Bearer"]
    assert scheme["type"] == "http"
    assert scheme["scheme"] == "bearer"
    for where, operation in operations(document):
        needed = [{"Bearer": []}] if "/v1/" in where else None
        assert operation.get("security") == needed, where


def test_batches_and_streams_have_their_media_types(document: dict[str, Any]) -> None:
    batch = document["paths"]["/v1/bandits/{bandit}/observations/batch"]["post"]
    assert list(batch["requestBody"]["content"]) == ["application/x-ndjson"]
    assert list(batch["responses"]["200"]["content"]) == ["application/x-ndjson"]
    events = document["paths"]["/v1/bandits/{bandit}/events"]["get"]
    assert list(events["responses"]["200"]["content"]) == ["text/event-stream"]


# --- what the service does -----------------------------------------------------------------


def test_unknown_paths_and_methods_are_problems(tmp_path: Path) -> None:
    with (
        Storage(f"sqlite:///{tmp_path / 'bandits.db'}") as storage,
        running_service(storage) as url,
        http_client(url) as http,
    ):
        unknown = http.get("/v2/bandits")
        wrong_method = http.delete("/v1/bandits")
        assert unknown.status_code == 404
        assert wrong_method.status_code == 405
        assert wrong_method.headers["allow"] == "GET, POST"
        for answer in (unknown, wrong_method):
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["status"] == answer.status_code


# A schema cannot express everything that is refused: an unknown policy, arms that were not chosen.
# Events that are followed never end. A batch answers wrong lines with lines.
OPERATIONS = """
hooks = "schemathesis_hooks.py"

[checks]
positive_data_acceptance.enabled = false

[[operations]]
include-operation-id = "stream_events"
parameters = { "query.follow" = "false" }

[[operations]]
include-operation-id = "tell_batch"
checks.negative_data_rejection.enabled = false
"""
# Most ids that are made up are unknown: half of the run is about a bandit that exists.
KNOWN = """
[parameters]
"path.bandit" = "menu"
"path.decision" = "monday"
"""


def record_requests(report: str, bandit: Bandit, known: bool) -> None:
    """Record how many requests schemathesis made, none of which was answered with a defect."""
    generated = re.search(r"(\d+) generated", report)
    assert generated is not None, report[-2000:]
    ids = "ids that exist" if known else "any ids"
    FaultCounts(
        fault=f"requests drawn from the OpenAPI document, with {ids}",
        url=bandit.storage.url,
        clients=1,
        faults=int(generated[1]),
        acknowledged=None,
        lost=None,
        doubled=None,
        replay_same=bandit.verify().same,
    ).record()


def run_schemathesis(folder: Path, examples: int, phases: str, known: bool) -> str:
    """Send what the document allows, and what it does not; what schemathesis reports."""
    settings = OPERATIONS + (KNOWN if known else "")
    (folder / "schemathesis.toml").write_text(settings, "utf-8")
    (folder / HOOKS.name).write_text(HOOKS.read_text("utf-8"), "utf-8")
    token, row = make_token("acme", "tests", SCOPES)
    headers = {"Authorization": f"Bearer {token}"}
    with Storage(f"sqlite:///{folder / 'bandits.db'}") as storage:
        storage.journal.add_token(row)
        with running_service(storage) as url:
            with http_client(url, headers=headers) as http:
                body = {"name": "menu", "spec": to_json(spec_of(POLICY))}
                assert http.post("/v1/bandits", json=body).status_code == 201
                named = http.put("/v1/bandits/menu/arms", json={"arms": MENU})
                assert named.status_code == 204
                ask = {"decision_id": "monday"}
                asked = http.post("/v1/bandits/menu/decisions", json=ask)
                assert asked.status_code == 201
            command = [
                *(sys.executable, "-m", "schemathesis.cli"),
                *("--config-file", "schemathesis.toml"),
                *("run", f"{url}/openapi.json"),
                *("--seed", "25"),
                *("--max-examples", str(examples)),
                *("--phases", phases),
                *("--header", f"Authorization: Bearer {token}"),
                *("--request-timeout", "60"),
                *("--generation-database", "none"),
                "--continue-on-failure",
                "--no-color",
            ]
            finished = subprocess.run(
                command,
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
            )
        assert finished.returncode == 0, finished.stdout[-20_000:] + finished.stderr
        bandit = load_bandit("menu", storage=storage, tenant="acme")
        record_requests(finished.stdout, bandit, known)
        assert storage.journal.check() == []
    return finished.stdout


@pytest.mark.slow
def test_answers_conform_to_the_document(tmp_path: Path) -> None:
    pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    report = run_schemathesis(tmp_path, 4, "coverage,fuzzing,stateful", known=True)
    assert "Selected: 30/30" in report


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize("known", [False, True])
def test_many_answers_conform_to_the_document(tmp_path: Path, known: bool) -> None:
    pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    report = run_schemathesis(tmp_path, 100, "coverage,fuzzing,stateful", known)
    assert "Selected: 30/30" in report
