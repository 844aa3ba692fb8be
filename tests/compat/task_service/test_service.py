"""`TaskService`: its whole documented life. Time stands still unless a test moves it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Semaphore
from typing import NoReturn

import pytest

from forebay import Forebay, InvalidJob
from forebay.app.consumer import Consumer
from forebay.compat.task_service import service as service_module
from forebay.compat.task_service.service import WAIT_SECONDS, TaskService
from forebay.compat.task_service.task import STATUSES, ServiceTask, TaskStatus
from forebay.domain.job import NewJob, QueueName
from forebay.domain.job_states import JobState
from forebay.errors import QueueNotFound, StoreUnavailable
from forebay.operations.queue_stats import queue_stats
from forebay.testing.manual_clock import ManualClock
from tests.worker.support import DEADLINE

LATE = "comes too late"


@pytest.fixture
def app(tmp_path: Path, clock: ManualClock) -> Iterator[Forebay]:
    with Forebay(f"sqlite:///{tmp_path}/tasks.db", clock=clock) as app:
        yield app


@pytest.fixture
def service(app: Forebay) -> Iterator[TaskService]:
    with TaskService(app) as service:
        service.create_queue("mail")
        yield service


def taken(service: TaskService) -> ServiceTask:
    """A task that was enqueued and dequeued."""
    service.enqueue("mail", {"to": "ada"})
    task = service.dequeue("mail", "w1", wait_timeout=0)
    assert task is not None
    return task


def look(service: TaskService, task_id: str) -> ServiceTask:
    task = service.get_task_status(task_id)
    assert task is not None
    return task


def at(clock: ManualClock) -> datetime:
    return datetime.fromtimestamp(clock.now_ms() / 1_000, UTC)


@pytest.mark.shows("R-JOB-35", "R-CFG-26", "R-JOB-23", "R-ENQ-04", "R-LEASE-08")
def test_a_task_has_the_fields_of_the_service(service: TaskService, clock: ManualClock) -> None:
    parent = service.enqueue("mail", None).task_id
    begun, later = at(clock), at(clock) + timedelta(hours=1)
    requested = {"metadata": {"task_type": "send", "tenant": "a"}, "idempotency_key": "order-7"}

    made = service.enqueue("mail", {"to": "ada"}, deadline=later, parent_task_id=parent, **requested)  # type: ignore[arg-type]
    again = service.enqueue("mail", {"to": "ada"}, **requested)  # type: ignore[arg-type]
    [task] = service.dequeue_batch("mail", "w1", task_types=["send"], visibility_timeout=60, wait_timeout=0)
    clock.advance(seconds=20)
    kept = service.heartbeat(task.id, task.token or "")
    running = look(service, task.id)
    service.ack_task(task.id, task.token or "", {"sent": True})
    done = look(service, task.id)

    assert again == (made.task_id, True)
    assert (task.id, task.queue_id, task.payload) == (made.task_id, "mail", {"to": "ada"})
    assert (task.priority, task.attempts, task.max_attempts) == (50, 1, 3)
    assert (task.status, task.version, task.visibility_timeout) == ("IN_PROGRESS", 1, 60)
    assert (task.created_at, task.scheduled_at, task.started_at, task.deadline) == (begun,) * 3 + (later,)
    assert (task.last_heartbeat, task.completed_at) == (begun, None)
    assert (task.metadata, task.idempotency_key) == (requested["metadata"], "order-7")
    assert (task.parent_task_id, task.error_message, task.result) == (parent, None, None)
    assert kept
    assert running.last_heartbeat == at(clock)
    assert (done.status, done.attempts, done.result) == ("COMPLETED", 1, {"sent": True})
    assert (done.completed_at, done.last_heartbeat, done.token) == (at(clock), None, None)


@pytest.mark.shows("R-JOB-39", "R-ENQ-04")
def test_a_task_is_in_one_of_the_states_of_the_service(service: TaskService, clock: ManualClock) -> None:
    first = taken(service)
    waits = service.enqueue("mail", 1, depends_on=[first.id]).task_id
    later = service.enqueue("mail", 1, scheduled_at=at(clock) + timedelta(hours=1)).task_id
    pending = service.enqueue("mail", 1).task_id
    seen = [look(service, one).status for one in (first.id, waits, later, pending)]
    service.nack_task(first.id, first.token or "", "busy")
    failed = look(service, first.id)
    service.cancel_task(later)

    assert seen == ["IN_PROGRESS", "PENDING", "SCHEDULED", "PENDING"]
    assert (failed.status, failed.error_message) == ("FAILED", "busy")
    assert look(service, later).status == "CANCELLED"
    assert set(STATUSES) == set(JobState)
    assert set(STATUSES.values()) == set(TaskStatus)


@pytest.mark.shows("R-PRI-02", "R-CFG-26", "R-ENQ-28")
def test_priorities_go_from_0_to_100_and_a_queue_may_allow_less(service: TaskService) -> None:
    service.create_queue("slow", max_priority=40)
    usual, urgent, lazy = (
        service.enqueue("mail", name, priority=priority).task_id
        for name, priority in (("usual", 50), ("urgent", 100), ("lazy", 0))
    )

    for wrong in (-1, 101):
        with pytest.raises(InvalidJob, match="from 0 to 100"):
            service.enqueue("mail", 1, priority=wrong)
    with pytest.raises(InvalidJob, match="priority"):
        service.enqueue("slow", 1, priority=41)
    with pytest.raises(QueueNotFound):
        service.enqueue("nowhere", 1)

    assert service.update_task_priority(lazy, 99)
    found = service.dequeue_batch("mail", wait_timeout=0)
    assert [task.id for task in found] == [urgent, lazy, usual]
    assert not service.update_task_priority(usual, 1)  # it runs


@pytest.mark.shows("R-LEASE-13", "R-CFG-26")
def test_a_dequeue_waits_for_a_task_of_its_types(service: TaskService) -> None:
    service.enqueue("mail", 1, metadata={"task_type": "other"})
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(service.dequeue, "mail", "w1", visibility_timeout=90, task_types=["send"])
        made = service.enqueue("mail", 2, metadata={"task_type": "send"})
        task = waiting.result(DEADLINE)

    assert task is not None
    assert (task.id, task.visibility_timeout, task.token) == (made.task_id, 90, "1-w1")
    assert WAIT_SECONDS == 20
    assert service.dequeue("mail", task_types=["send"], wait_timeout=0.01) is None
    other = service.dequeue("mail", wait_timeout=0)
    assert other is not None
    assert other.payload == 1


@pytest.mark.shows("R-LEASE-31")
def test_what_comes_too_late_is_refused_and_logged_and_raises_nothing(
    service: TaskService, app: Forebay, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    task = taken(service)
    clock.advance(seconds=31)
    app.sweep()
    again = service.dequeue("mail", "w2", wait_timeout=0)
    assert again is not None

    with caplog.at_level(logging.WARNING):
        late = [
            service.ack_task(task.id, task.token or ""),
            service.nack_task(task.id, task.token or "", "busy"),
            service.heartbeat(task.id, task.token or ""),
            service.ack_task("unknown", "1-w1"),
        ]

    assert late == [False] * 4
    assert [LATE in record.getMessage() for record in caplog.records] == [True] * 4
    assert (again.id, again.version, again.attempts) == (task.id, 2, 2)
    assert service.ack_task(again.id, again.token or "", 1)
    assert service.ack_task(again.id, again.token or "", 1)  # an answer may get lost, and is asked for again
    for token in ("nonsense", f"{2**31}-w1", f"{'9' * 5_000}-w1", "1-"):
        with pytest.raises(InvalidJob, match="token"):
            service.ack_task(again.id, token)


@pytest.mark.shows("R-RETRY-13")
def test_a_nack_requeues_by_the_back_off_or_after_its_own_time_or_never(
    service: TaskService, clock: ManualClock
) -> None:
    by_policy, soon, never = taken(service), taken(service), taken(service)

    service.nack_task(by_policy.id, by_policy.token or "", "busy")
    service.nack_task(soon.id, soon.token or "", "busy", retry_after_seconds=1)
    service.nack_task(never.id, never.token or "", "broken", requeue=False)

    assert look(service, never.id).status == "DEAD_LETTER"
    delay = (look(service, by_policy.id).scheduled_at or at(clock)) - at(clock)
    assert timedelta(seconds=5) <= delay <= timedelta(seconds=10)
    assert service.dequeue("mail", wait_timeout=0) is None
    clock.advance(seconds=1)
    again = service.dequeue("mail", wait_timeout=0)
    assert again is not None
    assert (again.id, again.attempts, again.error_message) == (soon.id, 2, "busy")


def test_what_contradicts_an_earlier_answer_is_refused(service: TaskService) -> None:
    done, failed, dead = taken(service), taken(service), taken(service)
    assert service.ack_task(done.id, done.token or "")
    assert service.nack_task(failed.id, failed.token or "", "busy")
    assert service.nack_task(dead.id, dead.token or "", "broken", requeue=False)

    assert not service.nack_task(done.id, done.token or "", "busy")
    assert not service.ack_task(failed.id, failed.token or "")
    assert not service.ack_task(dead.id, dead.token or "")
    assert not service.nack_task(dead.id, dead.token or "", "broken")
    assert service.nack_task(dead.id, dead.token or "", "broken", requeue=False)
    found = [look(service, task.id).status for task in (done, failed, dead)]
    assert found == ["COMPLETED", "FAILED", "DEAD_LETTER"]


@pytest.mark.shows("R-DLQ-08")
def test_a_dead_task_is_put_back_under_its_id_and_an_unknown_one_is_nothing(service: TaskService) -> None:
    task = taken(service)
    service.nack_task(task.id, task.token or "", "broken", requeue=False)

    back = service.requeue_from_dead_letter(task.id)

    assert back is not None
    assert (back.id, back.status, back.attempts) == (task.id, "PENDING", 0)
    assert service.requeue_from_dead_letter(task.id) is None  # it is no dead letter any more
    service.cancel_task(task.id)
    assert service.requeue_from_dead_letter(task.id) is None
    assert look(service, task.id).status == "CANCELLED"
    assert service.requeue_from_dead_letter("unknown") is None
    assert service.get_task_status("unknown") is None


def test_what_cannot_be_read_goes_back_and_others_are_given_out(service: TaskService, app: Forebay) -> None:
    broken = NewJob(task="t", queue=QueueName("mail"), payload=b"raw", priority=90)
    app.client.enqueue([broken])
    good = service.enqueue("mail", 1)
    app.enqueue("t", [1], {"x": 2}, queue="mail")

    found = service.dequeue_batch("mail", wait_timeout=0)

    assert [task.id for task in found][:1] == [good.task_id]
    assert [task.payload for task in found] == [1, {"args": [1], "kwargs": {"x": 2}}]
    assert app.counts("mail")[QueueName("mail")].retrying == 1


def test_after_its_end_nothing_is_taken_and_ending_twice_is_fine(service: TaskService) -> None:
    service.dequeue("mail", wait_timeout=0.01)

    service.close()
    service.close()

    made = service.enqueue("mail", 1).task_id
    assert service.dequeue("mail") is None
    assert look(service, made).status == "PENDING"


def test_what_was_claimed_is_given_out_whatever_becomes_of_the_rest(
    service: TaskService, app: Forebay, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> NoReturn:
        raise StoreUnavailable("away")

    app.client.enqueue([NewJob(task="t", queue=QueueName("mail"), payload=b"raw", priority=90)])
    made = service.enqueue("mail", 1)
    monkeypatch.setattr(Consumer, "run_maintenance", away)
    monkeypatch.setattr(service, "_settle", away)

    found = service.dequeue_batch("mail", wait_timeout=0)

    assert [task.id for task in found] == [made.task_id]


def test_without_hints_a_dequeue_looks_for_itself(
    app: Forebay, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries = Semaphore(0)

    def deaf() -> NoReturn:
        tries.release()
        raise StoreUnavailable("no place left for listeners")

    monkeypatch.setattr(app.engine, "wakeups", deaf)
    monkeypatch.setattr(service_module, "POLL_SECONDS", 0.01)
    with TaskService(app) as service, ThreadPoolExecutor(1) as threads:
        service.create_queue("mail")
        waiting = threads.submit(service.dequeue, "mail", wait_timeout=DEADLINE)
        # A task that is there before the first wait is claimed at once, and no wake-ups are asked for.
        assert all(tries.acquire(timeout=DEADLINE) for _ in range(2))
        made = service.enqueue("mail", 1)
        task = waiting.result(DEADLINE)

    assert task is not None
    assert task.id == made.task_id
    assert caplog.text.count("no wake-ups for new tasks") == 1


def test_a_queue_whose_name_is_none_is_refused(service: TaskService) -> None:
    with pytest.raises(InvalidJob, match="queue"):
        service.dequeue("no such name!", wait_timeout=0)


def test_what_is_dequeued_and_acknowledged_is_in_the_metrics(app: Forebay, service: TaskService) -> None:
    for _ in range(2):
        service.enqueue("mail", {})
    done, failed = service.dequeue_batch("mail", "worker-1")
    assert done.token
    assert failed.token
    service.ack_task(done.id, done.token)
    service.ack_task(done.id, done.token)  # said twice, and counted once
    service.nack_task(failed.id, failed.token, "it broke")
    service.close()

    [found] = app.client.read(lambda reader: queue_stats(reader, [QueueName("mail")]))
    assert found.span.stats.counts == {"claimed": 2, "completed": 1, "failed": 1, "retried": 1}
    assert (found.run.count, found.consumers) == (2, 1)
