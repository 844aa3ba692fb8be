"""Children inserted while their parents end, in two processes: none stays blocked, and each runs once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.urls import SHARED, url_of

ROOT: Final = Path(__file__).resolve().parents[2]
TIMES: Final = 150


@pytest.mark.shows("R-DEP-11", "R-EDGE-50")
@pytest.mark.parametrize("engine", SHARED)
def test_no_child_stays_blocked_whose_parent_ends_while_it_is_inserted(engine: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.flow", url_of(engine, tmp_path), "--race", str(TIMES)]

    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)

    assert found.stdout == f"{TIMES} of {TIMES} children have run; 0 jobs are left\n", found.stderr
