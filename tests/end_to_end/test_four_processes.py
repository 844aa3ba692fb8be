"""Several processes on one store: the run of `make evidence WHAT=crowd`, for a few seconds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

pytestmark = pytest.mark.engine("sqlite")  # supervisors and workers are the same on every engine

ROOT: Final = Path(__file__).resolve().parents[2]
WAIT: Final = "longest wait of a call, s"
LOCKED: Final = "calls that found the store locked"


@pytest.fixture(scope="module", params=["sqlite", "postgres", "redis"], ids=["sqlite", "postgresql", "redis"])
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the run has found. It ends its processes itself; the time limit is for the worst case."""
    file = tmp_path_factory.mktemp("crowd") / "results.json"
    processes = 4 if request.param == "sqlite" else 8
    command = [sys.executable, "-m", "evidence.crowd", "--seconds", "5", "--processes", str(processes)]
    command += ["--engine", request.param, "--json", str(file)]
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, timeout=500, check=False)
    counters: dict[str, Any] = json.loads(file.read_text())
    return {**counters, "expected": processes, "has_server": request.param != "sqlite"}


@pytest.mark.shows("R-STORE-07", "R-STORE-23", "R-LEASE-01", "R-EDGE-01", "R-TEST-52", "R-TEST-63")
def test_nothing_is_lost_claimed_twice_or_locked_out(report: dict[str, Any]) -> None:
    broken = {name: one["found"] for name, one in report["promises"].items() if not one["kept"]}

    # A wait has a test of its own, which allows for a machine that is busy with other tests. On a server one
    # for a lock ends after two seconds.
    broken.pop(WAIT, None)
    if report["has_server"]:
        broken.pop(LOCKED, None)
    assert broken == {}


def test_no_call_waits_long(report: dict[str, Any]) -> None:
    assert report["promises"][WAIT]["found"] < 20.0


def test_every_process_had_its_share(report: dict[str, Any]) -> None:
    assert len(report["processes"]) == report["expected"]
    assert all(one["completed"] and one["accepted"] for one in report["processes"])
