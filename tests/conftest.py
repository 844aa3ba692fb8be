"""What all tests share: time that moves only when it is told to."""

from __future__ import annotations

import pytest

from tests.clocks import FollowedClock


@pytest.fixture
def clock() -> FollowedClock:
    return FollowedClock(now_ms=1_800_000_000_000)
