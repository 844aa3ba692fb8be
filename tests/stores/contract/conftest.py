"""The contract holds through a pooler of transactions and on a cluster as well."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.testing.clock import ManualClock
from tests.stores.conftest import ENGINES, MakeEngine, maker


@pytest.fixture(params=[*ENGINES, "postgresql-pooled", "redis-cluster"])
def make_engine(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> MakeEngine:
    return maker(request, clock, tmp_path)
