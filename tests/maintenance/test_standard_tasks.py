"""The maintenance tasks of each worker and consumer."""

from __future__ import annotations

import pytest

from forebay.domain.job import WorkerId
from forebay.maintenance.standard_tasks import standard_tasks
from forebay.stores.memory.engine import MemoryEngine
from forebay.testing.manual_clock import ManualClock


@pytest.mark.parametrize(
    ("notices_death", "sweeps"), [(True, ["sweep anew", "sweep dead"]), (False, ["sweep anew"])]
)
def test_the_dead_alone_are_looked_for_only_where_a_store_notices_a_death(
    clock: ManualClock, notices_death: bool, sweeps: list[str]
) -> None:
    tasks = standard_tasks(
        sweeper=WorkerId("sweeper"),
        clock=clock,
        roll=lambda: 0.5,
        engine=MemoryEngine(clock=clock),
        notices_death=notices_death,
    )

    assert [task.name for task in tasks] == [
        "promote",
        "fire",
        *sweeps,
        "rescore",
        "prune",
        "measure",
        "gradual_revive",
        "alert",
        "unserved",
    ]


def test_a_program_without_metrics_counts_no_jobs_either(clock: ManualClock) -> None:
    tasks = standard_tasks(sweeper=WorkerId("sweeper"), clock=clock, roll=lambda: 0.5, has_metrics=False)

    assert "measure" not in [task.name for task in tasks]
