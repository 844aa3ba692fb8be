"""What all tests share: time that moves only when it is told to, and no store but those they make."""

from __future__ import annotations

import os
from typing import Final

import pytest

from tests.clocks import FollowedClock

# What would lead a program to a store or a server that is somebody's.
FOREIGN: Final = (
    "FOREBAY_URL",
    "FOREBAY_CONFIG",
    "DATABASE_URL",
    "PGHOST",
    "PGHOSTADDR",
    "PGSERVICE",
    "REDIS_URL",
)


def pytest_configure() -> None:
    """Refuse to run beside a store in use: tests empty, spoil and kill what they are given."""
    named = [name for name in FOREIGN if name in os.environ]
    if named:
        raise pytest.UsageError(f"tests make their own stores; run them without {', '.join(named)}")


@pytest.fixture
def clock() -> FollowedClock:
    return FollowedClock(now_ms=1_800_000_000_000)
