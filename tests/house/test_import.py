"""`import forebay` is light: no driver, no web framework, no terminal library."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = [
    "apsw",
    "click",
    "grpc",
    "litestar",
    "psycopg",
    "redis",
    "rich",
    "sqlalchemy",
    "sqlite3",
    "starlette",
]


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    """The modules that a fresh interpreter has after `import forebay`."""
    script = "import sys, forebay; print('\\n'.join(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(answer.stdout.split())


@pytest.mark.shows("R-SDK-20")
@pytest.mark.parametrize("name", HEAVY)
def test_importing_forebay_does_not_load(name: str, loaded: set[str]) -> None:
    assert name not in loaded


def test_importing_forebay_loads_forebay(loaded: set[str]) -> None:
    assert "forebay" in loaded
