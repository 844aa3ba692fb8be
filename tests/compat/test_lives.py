"""The whole documented life of each facade in one go: each stage builds on the last."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay import Forebay
from forebay.compat.task_queue.errors import JobCancelledError, JobFailedError
from forebay.compat.task_queue.queue import TaskQueue
from forebay.compat.work_queue.queue import WorkQueue
from forebay.compat.work_queue.task import TaskState, WorkTask
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.testing.manual_clock import ManualClock
from tests.compat import calls
from tests.compat.conftest import MakeQueue
from tests.worker.support import DEADLINE, eventually

LEASE = 300


@pytest.mark.shows("R-SDK-05", "R-PRI-01", "R-CANCEL-11", "R-DONE-18", "R-WORK-32", "R-CFG-07")
def test_the_life_of_a_task_queue(make_queue: MakeQueue, file: Path, clock: ManualClock, key: str) -> None:
    _play_a_stale_worker(make_queue, file, clock)

    # Submitted before a worker starts, the more urgent job runs first.
    idle = make_queue(num_workers=0, clock=clock)
    for priority in (0, 10, 5):
        idle.submit(calls.note, key, priority, priority=priority, job_id=f"note{priority}")
    queue = make_queue(num_workers=1, clock=clock)
    assert [queue.get_result(f"note{n}", timeout=DEADLINE) for n in (0, 5, 10)] == [0, 5, 10]
    assert calls.noted.pop(key) == [10, 5, 0]

    _play_failures(queue, file, clock, key)

    # One job occupies the only worker; another one waits and is cancelled, a third one waits.
    held = queue.submit(calls.hold, key, job_id="held")
    assert calls.reached[key].wait(DEADLINE)
    cancelled, waiting = (queue.submit(calls.add, 40, 2, job_id=name) for name in ("cancelled", "waiting"))
    assert queue.cancel(cancelled) is True
    with pytest.raises(JobCancelledError):
        queue.get_result(cancelled, timeout=DEADLINE)
    assert queue.get_queue_stats() == {
        "pending": 1,
        "running": 1,
        "completed": 5,
        "failed": 1,
        "cancelled": 1,
    }

    # A shutdown lets what is in flight end, and takes and starts nothing more.
    assert queue.shutdown(wait=False) == 1
    calls.opened[key].set()
    assert queue.shutdown(timeout=DEADLINE) == 0
    assert queue.get_result(held, timeout=0) == key
    with pytest.raises(RuntimeError, match="shut down"):
        queue.submit(calls.add, 1)

    _play_a_restart(make_queue, file, clock, waiting)


def _play_a_stale_worker(make_queue: MakeQueue, file: Path, clock: ManualClock) -> None:
    """A worker that goes silent loses its job to another, and its late answer is refused."""
    idle = make_queue(num_workers=0, clock=clock)
    job_id = idle.submit(calls.add, 1)
    with Forebay(f"sqlite:///{file}", clock=clock) as app:
        stale, other = app.consumer(), app.consumer()
        [late] = stale.claim()
        clock.advance(seconds=LEASE + 1)
        app.sweep()
        [again] = other.claim()
        assert (stale.complete(late, "late"), other.complete(again, "in time")) == (False, True)
        stale.close()
        other.close()
    assert idle.get_result(job_id, timeout=0) == "in time"


def _play_failures(queue: TaskQueue, file: Path, clock: ManualClock, key: str) -> None:
    """One failure passes after a second's delay; another one is for good and a dead letter."""
    passing = queue.submit(calls.fail_until, key, 2)
    eventually(lambda: queue.get_status(passing).will_retry)
    delay = (queue.get_status(passing).next_retry_at or 0) - clock.now_ms() / 1_000
    assert 1.0 <= delay <= 1.1
    clock.advance(seconds=2)
    assert queue.get_result(passing, timeout=DEADLINE) == 2
    for_good = queue.submit(calls.fail, key, "PermanentError")
    with pytest.raises(JobFailedError, match="PermanentError"):
        queue.get_result(for_good, timeout=DEADLINE)
    with Forebay(f"sqlite:///{file}", clock=clock) as app:
        assert [job.id for job in app.search(JobQuery(states=(JobState.DEAD,))).jobs] == [for_good]


def _play_a_restart(make_queue: MakeQueue, file: Path, clock: ManualClock, waiting: str) -> None:
    """What waited is claimed by a program that dies; the next start recovers it."""
    with Forebay(f"sqlite:///{file}", clock=clock) as app:
        dying = app.consumer()
        assert [job.id for job in dying.claim(10)] == [waiting]
        dying.close()
    clock.advance(seconds=LEASE + 1)
    after = make_queue(num_workers=1, clock=clock)

    def has_run() -> bool:
        clock.advance(seconds=1)  # what was lost waits a little before it is tried again
        return after.get_status(waiting).is_done

    eventually(has_run)
    assert after.get_result(waiting, timeout=0) == 42
    assert after.get_queue_stats() == {
        "pending": 0,
        "running": 0,
        "completed": 7,
        "failed": 1,
        "cancelled": 1,
    }


@pytest.mark.shows("R-SDK-06", "R-ENQ-12", "R-CFG-78", "R-SWEEP-15", "R-DLQ-14", "R-CANCEL-03")
def test_the_life_of_a_work_queue(tmp_path: Path, clock: ManualClock) -> None:
    url = f"sqlite:///{tmp_path}/data/queue.db"
    with WorkQueue(url, clock=clock) as queue, WorkQueue(url, clock=clock) as other:
        # Many at once, one of them known already.
        names = [f"task{number}" for number in range(7)]
        assert queue.enqueue(_tasks(names[:3])) == names[:3]
        assert queue.enqueue(_tasks(names[2:])) == names[3:]

        # Five are dequeued, the oldest first; another program gets the rest.
        done, failed, useless, silent, last = queue.dequeue()
        assert [task.id for task in (done, failed, useless, silent, last)] == names[:5]
        assert [task.id for task in other.dequeue()] == names[5:]
        assert other.dequeue() == []

        # Each ends in its own way. One is beaten for, one goes silent until its visibility lapses.
        assert queue.mark_as_complete(done, {"width": 5})
        assert queue.mark_as_retry(failed, "no network")
        assert queue.mark_as_discarded(useless, "not a picture")
        clock.advance(seconds=3_000)
        assert queue.heartbeat(last)
        clock.advance(seconds=600)
        again = other.retry(10)
        assert [(task.id, task.attempt_count) for task in again] == [
            *(("task1", 2), ("task3", 2), ("task5", 2), ("task6", 2))
        ]
        assert (queue.mark_as_complete(silent), queue.mark_as_complete(last)) == (False, True)
        assert [other.mark_as_complete(task) for task in again] == [True] * 4

        # What was discarded is resumed with fresh attempts; what waits can be cancelled.
        queue.enqueue(_tasks(["unwanted"]))
        assert (queue.mark_as_cancelled("unwanted"), queue.mark_as_resume(useless)) == (True, True)
        [resumed] = queue.dequeue()
        assert (resumed.id, resumed.attempt_count, resumed.attempted_error) == (
            "task2",
            1,
            ("not a picture",),
        )

    # The program ends with a task in its hands; the next one finds it when its time is over.
    with WorkQueue(url, clock=clock) as after:
        assert after.retry() == []
        clock.advance(seconds=3_600)
        [found] = after.retry()
        assert (found.id, after.complete(found)) == ("task2", True)
        states = [task.state for name in (*names, "unwanted") if (task := after.get(name))]
    assert states == [TaskState.COMPLETED] * 7 + [TaskState.CANCELLED]


def _tasks(names: list[str]) -> list[WorkTask]:
    return [WorkTask(id=name, items=[name]) for name in names]
