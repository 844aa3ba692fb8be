"""A worker saves the schedules that its program declares, and fires them."""

from __future__ import annotations

from datetime import datetime
from socket import gethostname
from threading import Event

import pytest

from forebay import Forebay, current_job
from forebay.domain.job_history import EventKind
from tests.worker.support import DEADLINE


@pytest.mark.shows("R-TEST-28")
def test_a_worker_runs_what_its_program_has_scheduled(app: Forebay) -> None:
    ran = Event()
    seen: list[str] = []

    @app.cron("* * * * * *", name="each second", args=["x"])
    @app.task(name="note")
    def note(what: str) -> None:
        seen.append(f"{what} for {current_job().job.metadata['scheduled_for']}")
        if len(seen) == 2:
            ran.set()

    with app.run_worker(threads=1):
        assert ran.wait(DEADLINE)

    [schedule] = app.schedules.list()
    assert schedule.enqueued_runs >= 2
    times = [datetime.fromisoformat(text.removeprefix("x for ")) for text in seen]
    assert times == sorted(set(times))
    events = [event for _, event in app.client.read(lambda reader: reader.audit())]
    assert {event.actor for event in events if event.kind is EventKind.SCHEDULE_CHANGED} == {
        f"worker@{gethostname()}"
    }


def test_a_schedule_that_is_saved_while_a_worker_runs_is_fired(app: Forebay) -> None:
    ran = Event()
    task = app.task(name="note")(ran.set)
    with app.run_worker(threads=1):
        app.schedules.save("soon", task, every=1)

        assert ran.wait(DEADLINE)
