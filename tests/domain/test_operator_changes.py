"""What an operator has changed, as events tell it."""

from __future__ import annotations

from msgspec.structs import replace

from forebay.domain.concurrency_and_rate_limits import Limit
from forebay.domain.job import NewJob, QueueName
from forebay.domain.job_history import Event, EventKind
from forebay.domain.job_states import JobState
from forebay.domain.operator_changes import (
    changes_between,
    limit_changes,
    queue_changes,
    revive_changes,
    schedule_changes,
    state_changes,
    update_changes,
)
from forebay.domain.queue import Queue, QueueState
from forebay.domain.schedule import Schedule, ScheduleDefinition
from tests.domain.sample_jobs import NOW, a_job

MAIL = QueueName("mail")


def test_only_what_differs_is_told() -> None:
    assert changes_between({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 4, "d": 5}) == {
        "b": (2, 4),
        "c": (3, None),
        "d": (None, 5),
    }
    assert changes_between(None, {"a": None}) == changes_between(None, None) == {}


def test_states_of_jobs() -> None:
    job = a_job(state=JobState.DEAD)

    assert state_changes(JobState.PENDING, JobState.PENDING) == {}
    assert state_changes(JobState.PENDING, None) == {"state": ("pending", None)}
    assert revive_changes(job, JobState.PENDING, job.queue) == {"state": ("dead", "pending")}
    assert revive_changes(job, JobState.PENDING, MAIL)["queue"] == ("default", "mail")


def test_an_update() -> None:
    job = a_job(state=JobState.SCHEDULED)

    assert update_changes(job, JobState.SCHEDULED, job.queue, 3, NOW) == {"priority": (0, 3)}
    assert update_changes(job, JobState.SCHEDULED, MAIL, 0, NOW) == {"queue": (job.queue, MAIL)}
    assert update_changes(job, JobState.PENDING, job.queue, 0, NOW + 1) == {
        "state": ("scheduled", "pending"),
        "run_at": (NOW, NOW + 1),
    }


def test_queues_and_limits() -> None:
    queue = Queue(name=MAIL)
    changed = queue.with_settings(queue.settings.with_changes({"mode": "fifo"}), QueueState.PAUSED, NOW)

    assert queue_changes(queue, changed)["mode"] == ("aging", "fifo")
    assert queue_changes(queue, changed)["state"] == ("active", "paused")
    assert limit_changes(None, Limit(scope="global", concurrency=2)) == {
        "concurrency": (None, 2),
        "per_ms": (None, 1_000),
    }
    assert limit_changes(None, None) == {}


def test_of_a_schedule_everything_but_its_arguments() -> None:
    job = NewJob(queue=MAIL, task="tidy", payload=b"1")
    schedule = Schedule(definition=ScheduleDefinition(name="n", job=job, every_ms=60_000))
    other = replace(
        schedule, definition=ScheduleDefinition(name="n", job=replace(job, payload=b"2"), every_ms=1_000)
    )

    assert schedule_changes(schedule, schedule) == {}
    assert schedule_changes(None, schedule)["every_ms"] == (None, 60_000)
    assert schedule_changes(schedule, other) == {
        "every_ms": (60_000, 1_000),
        "arguments": (None, "changed"),
    }


def test_an_actor_may_come_with_a_request() -> None:
    event = Event(kind=EventKind.API_KEY_CHANGED, actor="deploy#r1")

    assert (event.actor_name, event.request_id) == ("deploy", "r1")
    assert (
        Event(kind=EventKind.API_KEY_CHANGED).actor_name,
        Event(kind=EventKind.API_KEY_CHANGED).request_id,
    ) == ("", "")
