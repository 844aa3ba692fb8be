"""Tests of `make test` and of `make test-all` are told apart by a marker."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import TESTS

EXTENDED = ("benchmarks", "browser", "deploy", "evidence", "packaging")
CONTRACT = TESTS / "stores" / "contract" / "test_vitals.py"


@pytest.fixture(scope="module")
def first_tier() -> list[str]:
    """Names of what `make test` runs of the extended folders, of tests/docs and of one contract file."""
    # A folder that is named has its conftest imported, with packages that `make test` does not install.
    others = (path for path in TESTS.iterdir() if path.is_dir() and path.name not in {*EXTENDED, "docs"})
    return [*collect(TESTS, *(f"--ignore={path}" for path in others)), *collect(CONTRACT)]


def collect(*args: object) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "not extended", *map(str, args)],
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_no_test_of_an_extended_folder_is_in_the_first_tier(first_tier: list[str]) -> None:
    left = [name for name in first_tier if not name.startswith(("tests/stores/contract/", "tests/docs/"))]
    assert left == []
    assert not any(name.startswith("tests/docs/test_site.py") for name in first_tier)


@pytest.mark.shows("R-TEST-63")
def test_the_contract_runs_in_the_first_tier_on_every_engine_and_no_other_way(first_tier: list[str]) -> None:
    ways = {name.rpartition("[")[2].rstrip("]") for name in first_tier if "stores/contract" in name}

    assert ways == {"memory", "sqlite", "postgresql", "redis"}
