"""The contract holds through a pooler of transactions, on a cluster and through a service as well."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from forebay.testing.manual_clock import ManualClock
from tests.stores.conftest import ENGINES, MakeEngine, maker

# Other ways to the same engines: they change how statements travel, and not what they are given. So a test
# with many sets of values goes there with the first of them only, unless they are what makes it take every
# way there is.
WAYS: Final = ("postgresql-pooled", "redis-cluster", "remote")
SETS: Final = 2
EVERY_SET: Final = ("test_a_legal_move_is_made",)


EXTENDED: Final = [pytest.param(way, marks=pytest.mark.extended) for way in WAYS]


@pytest.fixture(params=[*ENGINES, *EXTENDED])
def make_engine(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> MakeEngine:
    return maker(request, clock, tmp_path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what goes another way to an engine with more than so many sets of values."""
    seen: Counter[tuple[Path, str, str]] = Counter()
    items[:] = [item for item in items if not _is_one_too_many(item, seen)]


def _is_one_too_many(item: pytest.Item, seen: Counter[tuple[Path, str, str]]) -> bool:
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return False
    way = item.callspec.params.get("make_engine")
    if way not in WAYS or item.originalname in EVERY_SET:
        return False
    kind = (item.path, item.originalname, str(way))
    seen[kind] += 1
    return seen[kind] > SETS
