"""Which duties everybody runs who consumes jobs."""

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
    duties = standard_tasks(
        sweeper=WorkerId("sweeper"),
        clock=clock,
        roll=lambda: 0.5,
        engine=MemoryEngine(clock=clock),
        notices_death=notices_death,
    )

    assert [duty.name for duty in duties] == [
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


def test_whoever_keeps_no_figures_counts_no_jobs_either(clock: ManualClock) -> None:
    duties = standard_tasks(sweeper=WorkerId("sweeper"), clock=clock, roll=lambda: 0.5, has_metrics=False)

    assert "measure" not in [duty.name for duty in duties]
