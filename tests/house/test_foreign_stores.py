"""Tests do not run where the environment names a foreign store."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.shows("R-TEST-65", "R-SEC-11")
@pytest.mark.parametrize("name", ["FOREBAY_URL", "DATABASE_URL", "PGHOST"])
def test_tests_refuse_to_run_where_a_store_is_named(name: str) -> None:
    refused = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "--quiet", __file__],
        env={**os.environ, name: "postgresql://db.example.com/production"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert refused.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"tests make their own stores; run them without {name}" in refused.stderr
