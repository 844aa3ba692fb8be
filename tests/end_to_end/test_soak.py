"""Worker processes under fire: the run of `benchmarks/storm.py`, for ten seconds.

On PostgreSQL and Redis the server is hit too. The full size is `make soak`, or `python -m benchmarks.storm`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
SECONDS: Final = 10
JOBS: Final = 800


@pytest.fixture(
    scope="module", params=[(), ("--postgres",), ("--redis",)], ids=["sqlite", "postgresql", "redis"]
)
def findings(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the run has found. It ends its processes itself."""
    folder = tmp_path_factory.mktemp("storm")
    file = folder / "findings.json"
    command = [sys.executable, "-m", "benchmarks.storm", "--seconds", str(SECONDS), "--jobs", str(JOBS)]
    command += request.param
    result = subprocess.run(
        [*command, "--json", str(file)], cwd=ROOT, capture_output=True, text=True, timeout=500, check=False
    )
    assert file.exists(), f"ended with {result.returncode}\n{result.stdout}\n{result.stderr}"
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def test_workers_that_are_killed_stopped_and_asked_to_leave_lose_nothing_and_leave_nothing(
    findings: dict[str, Any],
) -> None:
    assert findings["problems"] == [], "\n".join(findings["problems"])
    assert findings["accepted"] == findings["completed"] == JOBS


def test_every_kind_of_hit_was_played(findings: dict[str, Any]) -> None:
    on_processes = {words.split()[0] for words in findings["hits"] if not words.endswith("server")}
    on_servers = {words.split()[0] for words in findings["hits"] if words.endswith("server")}

    assert on_processes == {"SIGKILL", "SIGSTOP", "SIGTERM"}
    assert on_servers in (set(), {"SESSIONS", "RESTART", "CRASH"})
    assert findings["started_programs"] > 3
