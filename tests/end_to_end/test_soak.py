"""Worker programs under load and under fire: the run of `make evidence WHAT=soak`, for twenty seconds.

On PostgreSQL and Redis the server and the network are hit too. It goes on until every kind of hit was played.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from evidence.load import KINDS
from evidence.storm import NETWORK

pytestmark = pytest.mark.engine("sqlite")  # supervisors and workers are the same on every engine

ROOT: Final = Path(__file__).resolve().parents[2]
MINUTES: Final = 1 / 3
RATE: Final = 25


@pytest.fixture(scope="module", params=["sqlite", "postgres", "redis"], ids=["sqlite", "postgresql", "redis"])
def findings(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the run has found. It ends its processes itself."""
    file = tmp_path_factory.mktemp("soak") / "findings.json"
    command = [sys.executable, "-m", "evidence.soak", "--engine", request.param, "--minutes", str(MINUTES)]
    command += ["--rate", str(RATE)]
    result = subprocess.run(
        [*command, "--json", str(file)], cwd=ROOT, capture_output=True, text=True, timeout=500, check=False
    )
    assert file.exists(), f"ended with {result.returncode}\n{result.stdout}\n{result.stderr}"
    found: dict[str, Any] = json.loads(file.read_text())
    return found


@pytest.mark.shows("R-NFR-05", "R-TEST-54")
def test_workers_that_are_killed_stopped_and_asked_to_leave_break_no_promise_and_leave_nothing(
    findings: dict[str, Any],
) -> None:
    assert findings["problems"] == [], "\n".join(findings["problems"])


def test_every_kind_of_hit_was_played(findings: dict[str, Any]) -> None:
    words = [hit.split() for hit in findings["hits"]]
    on_networks = {kind for kind, target in words if target == "network"}
    on_servers = {kind for kind, target in words if target == "server"}

    assert {kind for kind, _ in words} - on_networks - on_servers == {"SIGKILL", "SIGSTOP", "SIGTERM"}
    assert (on_servers, on_networks) in ((set(), set()), ({"SESSIONS", "RESTART", "CRASH"}, {*NETWORK}))
    assert "SIGSTOP supervisor" in findings["hits"]
    assert findings["started_programs"] > 3


def test_every_kind_of_job_was_there_and_has_ended(findings: dict[str, Any]) -> None:
    account = findings["account"]

    assert set(findings["kinds"]) == set(KINDS)
    assert account["accepted"] == sum(account["states"].values())
    assert account["states"].keys() >= {"completed", "dead", "expired"}
    assert account["schedule_runs"]
