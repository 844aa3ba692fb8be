"""Two programs on one store: what the one cannot run is held, and the other one runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay import Forebay, current_job
from forebay.domain.job import DEFAULT_QUEUE, NewJob
from forebay.domain.job_history import EventKind
from forebay.domain.job_states import JobState
from forebay.domain.lease import Lease
from forebay.domain.outcome import Interrupted
from forebay.domain.progress import ProgressUpdate, StepResult
from forebay.domain.settlement import decide
from forebay.payload.codec import VERSION, encode_result
from forebay.stores.contract.claims_and_results import QueueClaim
from tests.stores.support import WORKER
from tests.worker.support import DEADLINE, eventually


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.mark.shows("R-RETRY-38", "R-EDGE-18", "R-EDGE-82")
def test_a_job_of_an_unknown_task_waits_for_a_program_that_knows_it(url: str) -> None:
    old, new = Forebay(url), Forebay(url)

    @new.task(name="late")
    def late() -> str:
        return "done"

    @old.task(name="early")
    def early() -> str:
        return "done"

    waits = late.enqueue()
    with old.run_worker(threads=1):
        # The known job behind it shows that the other one is in no job's way.
        assert early.enqueue().result(timeout=DEADLINE) == "done"
        job = waits.refresh()
        assert (job.state, job.lane, job.attempt) == (JobState.PENDING, "task:late", 0)
        with new.run_worker(threads=1):
            assert waits.result(timeout=DEADLINE) == "done"
    assert [event.kind for event in waits.history().events] == [EventKind.PARKED]
    old.close()
    new.close()


def test_a_payload_for_a_later_version_is_held_and_shown_and_never_dead(url: str) -> None:
    app = Forebay(url)

    @app.task(name="late")
    def late() -> None: ...

    payload = late.job().payload.replace(b"fb1", b"fb2")
    with app.run_worker(threads=1):
        [handle] = app.enqueue_many([NewJob(task="late", payload=payload)])
        eventually(lambda: handle.refresh().lane)
    job = handle.refresh()
    assert (job.state, job.lane, job.failures) == (JobState.PENDING, f"payload:{VERSION + 1}", 0)
    assert (job.attempt, job.run_number) == (1, 0)
    app.close()


def test_a_task_that_has_begun_and_cannot_read_a_step_has_run(url: str) -> None:
    app = Forebay(url)

    @app.task(name="resume")
    def resume() -> None:
        current_job().step("pack", list)

    handle, store = resume.enqueue(), app.engine.store()
    [job] = store.settle_and_claim(WORKER, claims=[QueueClaim(DEFAULT_QUEUE, 1)], room=1).jobs
    newer = StepResult(name="pack", result=encode_result([]).replace(b"fb1", b"fb2"), attempt=1)
    note = ProgressUpdate(lease=Lease(job.id, job.attempt), steps=(newer,))
    store.settle_and_claim(WORKER, [decide(job, Interrupted(), 0.0)], updates=[note])
    store.close()
    with app.run_worker(threads=1):
        eventually(lambda: handle.refresh().lane)
    held = handle.refresh()
    assert (held.lane, held.attempt, held.run_number) == (f"payload:{VERSION + 1}", 2, 2)
    app.close()
