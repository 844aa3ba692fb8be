"""What only Redis can do to a schedule: lose a part of it."""

from __future__ import annotations

from types import ModuleType

import pytest

from forebay.domain.job import NewJob
from forebay.domain.schedule import Schedule, ScheduleDefinition
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import T0


@pytest.mark.shows("R-SCHED-34")
def test_a_time_whose_schedule_is_gone_is_forgotten(redis: ModuleType, clock: ManualClock) -> None:
    engine = redis.make_engine(clock)
    store = engine.store()
    for name in ("gone", "kept"):
        definition = ScheduleDefinition(name=name, job=NewJob(task="t"), cron="@daily")
        store.save_schedule(Schedule(definition=definition, next_run_at=T0, check_at=T0))
    tag = engine.address.tag
    store._connection.execute("HDEL", f"{tag}:schedules", "gone")

    [kept] = store.due_schedules().schedules

    assert kept.name == "kept"
    assert store._connection.execute("ZRANGE", f"{tag}:schedule_checks", 0, -1) == [b"kept"]
    assert store._connection.execute("ZRANGE", f"{tag}:schedule_names", 0, -1) == [b"kept"]
    store.close()
