"""Every example runs as a newcomer would run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted(Path("examples").glob("*/main.py"))


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.parent.name)
def test_an_example_runs_and_ends_well(example: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(example.resolve())]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False)

    assert run.returncode == 0, run.stderr
    assert "the store is in order: yes" in run.stdout
