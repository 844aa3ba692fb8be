"""A job that a supervisor has given to others is not run, whichever executor it waits in."""

from __future__ import annotations

import pytest

from forebay import Forebay
from forebay.clock import SystemClock
from forebay.domain.outcome import Interrupted
from forebay.worker.executors.executor_set import ExecutorSet
from forebay.worker.lease_table import LeaseTable
from forebay.worker.slots import Slots
from tests.worker.executors import isolated_tasks
from tests.worker.executors.isolated_worker import no_process_stays
from tests.worker.support import Collected, an_assignment, eventually, no_thread_stays

app = Forebay("memory://")


@app.task(name="call")
def call() -> None:
    raise AssertionError("it was run")


@app.task(name="coroutine")
async def coroutine() -> None:
    raise AssertionError("it was run")


@pytest.mark.parametrize(
    ("program", "task"), [(app, "call"), (app, "coroutine"), (isolated_tasks.app, "pid")]
)
def test_what_the_supervisor_wants_for_others_does_not_begin(program: Forebay, task: str) -> None:
    page, inbox, clock = LeaseTable.create(10), Collected(), SystemClock()
    slots = Slots(1, 1, 1)
    slots.lease_table = page
    one = an_assignment(task)
    slots.add([one])
    page.request_return(page.entries()[0])

    with no_thread_stays(), no_process_stays():
        executors = ExecutorSet(program.registry, slots, inbox, clock)
        executors.start()
        executors.executor(task).submit(one)
        eventually(lambda: inbox.outcomes)
        executors.close()

    assert list(inbox.outcomes.values()) == [Interrupted(started=False)]
    assert one.started_at is None
    assert inbox.take_soft_limits() == []
    page.close()
