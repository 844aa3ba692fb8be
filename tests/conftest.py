"""What all tests share: time that moves only when it is told to."""

from __future__ import annotations

import pytest

from forebay.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(now_ms=1_800_000_000_000)
