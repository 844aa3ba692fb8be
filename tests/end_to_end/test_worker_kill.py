"""Worker processes die in the middle of their jobs: the run of `benchmarks/kill.py`, in a small size.

On PostgreSQL and Redis the server is hit too. The full size is `python -m benchmarks.kill`, or
FOREBAY_KILL_JOBS=10000 FOREBAY_KILL_MOST=50 for this test.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
JOBS: Final = int(os.environ.get("FOREBAY_KILL_JOBS", "1500"))
MOST: Final = int(os.environ.get("FOREBAY_KILL_MOST", "10"))

pytestmark = pytest.mark.timeout(600 + JOBS // 10)


@pytest.fixture(
    scope="module", params=[(), ("--postgres",), ("--redis",)], ids=["sqlite", "postgresql", "redis"]
)
def findings(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the run has found. It ends its processes itself."""
    file = tmp_path_factory.mktemp("kill") / "findings.json"
    command = [sys.executable, "-m", "benchmarks.kill", "--jobs", str(JOBS), "--most", str(MOST)]
    subprocess.run(
        [*command, *request.param, "--json", str(file)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        timeout=580 + JOBS // 10,
        check=False,
    )
    found: dict[str, Any] = json.loads(file.read_text())
    return found


@pytest.mark.shows("R-SWEEP-28", "R-TEST-43", "R-TEST-17", "R-EDGE-08")
def test_nothing_is_lost_finished_twice_or_missing_in_the_history(findings: dict[str, Any]) -> None:
    assert findings["problems"] == [], "\n".join(findings["problems"])
    assert findings["accepted"] == findings["completed"] >= JOBS


def test_two_workers_were_killed_with_at_least_three_open_jobs_each(findings: dict[str, Any]) -> None:
    assert findings["killed"] == 2
    assert min(findings["open_at_kill"]) >= 3
    assert findings["lost_attempts"] >= sum(findings["open_at_kill"])
