"""Events of what operators do say what was before and what is after, on every engine alike."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from forebay.domain.concurrency_and_rate_limits import GLOBAL, Limit
from forebay.domain.job import NewJob
from forebay.domain.job_history import Changes, EventKind
from forebay.domain.job_states import JobState
from forebay.domain.job_update import JobUpdate
from forebay.domain.queue import QueueState
from forebay.domain.schedule import Schedule, ScheduleDefinition
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from tests.stores.contract.steps import DEFAULT, MAIL, T0, look, make, put

pytestmark = pytest.mark.shows("R-QUEUE-14", "R-HIST-27", "R-SEC-12")


def recorded_changes(reader: Reader, kind: EventKind) -> list[Changes]:
    """What was changed, oldest first."""
    return [event.changes for _, event in reader.audit()[::-1] if event.kind is kind]


def test_what_becomes_of_a_queue_is_told(store: Store, reader: Reader) -> None:
    store.save_queue(MAIL, {"max_length": 5})
    store.save_queue(MAIL, {"max_length": 7, "fairness_weights": {"a": 2}}, state=QueueState.PAUSED)
    store.save_queue(MAIL, {"max_length": 7})
    store.drop_queue(MAIL)

    assert recorded_changes(reader, EventKind.QUEUE_CHANGED) == [
        {"max_length": (None, 5)},
        {"state": ("active", "paused"), "max_length": (5, 7), "fairness_weights": ({}, {"a": 2})},
        {},
        {"state": ("paused", "dropped")},
    ]


def test_what_becomes_of_a_limit_is_told(store: Store, reader: Reader) -> None:
    store.save_limit(Limit(scope=GLOBAL, concurrency=3))
    store.save_limit(Limit(scope=GLOBAL, rate=5, per_ms=60_000, burst=9))
    store.drop_limit(GLOBAL)

    assert recorded_changes(reader, EventKind.LIMIT_CHANGED) == [
        {"concurrency": (None, 3), "per_ms": (None, 1_000)},
        {"concurrency": (3, None), "rate": (None, 5), "per_ms": (1_000, 60_000), "burst": (None, 9)},
        {"rate": (5, None), "per_ms": (60_000, None), "burst": (9, None)},
    ]


def test_what_becomes_of_a_schedule_is_told_without_its_arguments(store: Store, reader: Reader) -> None:
    job = NewJob(queue=DEFAULT, task="tidy", payload=b"secret")
    first = Schedule(definition=ScheduleDefinition(name="n", job=job, cron="0 3 * * *"))
    again = ScheduleDefinition(name="n", job=replace(job, payload=b"other"), cron="0 4 * * *")
    store.save_schedule(first)
    store.save_schedule(replace(first, definition=again, is_paused=True, revision=1))
    store.drop_schedule("n")

    created, changed, removed = recorded_changes(reader, EventKind.SCHEDULE_CHANGED)
    assert (created["cron"], created["task"]) == ((None, "0 3 * * *"), (None, "tidy"))
    assert changed == {
        "cron": ("0 3 * * *", "0 4 * * *"),
        "is_paused": (False, True),
        "arguments": (None, "changed"),
    }
    assert removed["cron"] == ("0 4 * * *", None)
    assert "secret" not in str([created, changed, removed])


@pytest.mark.parametrize(
    ("state", "act", "kind", "changes"),
    [
        (JobState.PENDING, "cancel", EventKind.CANCEL, {"state": ("pending", "cancelled")}),
        (JobState.RUNNING, "cancel", EventKind.CANCEL, {}),
        (JobState.RUNNING, "force", EventKind.FORCE_CANCELLED, {"state": ("running", "dead")}),
        (JobState.SCHEDULED, "delete", EventKind.DELETED, {"state": ("scheduled", None)}),
        (JobState.COMPLETED, "delete", EventKind.DELETED, {"state": ("completed", None)}),
        (
            JobState.DEAD,
            "revive",
            EventKind.REVIVED,
            {"state": ("dead", "scheduled"), "queue": (DEFAULT, MAIL)},
        ),
    ],
)
def test_what_becomes_of_a_job_is_told(
    store: Store, reader: Reader, state: JobState, act: str, kind: EventKind, changes: Changes
) -> None:
    job_id = make(store, state)
    acts: dict[str, Callable[[], object]] = {
        "cancel": lambda: store.cancel([job_id]),
        "force": lambda: store.cancel([job_id], force=True),
        "delete": lambda: store.delete([job_id]),
        "revive": lambda: store.revive([job_id], queue=MAIL, delay_ms=1_000),
    }

    acts[act]()

    assert recorded_changes(reader, kind) == [changes]


def test_what_is_updated_is_told_without_the_metadata(store: Store, reader: Reader) -> None:
    waiting, scheduled = put(store), put(store, delay_ms=60_000)
    store.update_job(waiting, JobUpdate(priority=7, metadata={"password": "hunter2"}))
    store.update_job(scheduled, JobUpdate(delay_ms=0))

    assert recorded_changes(reader, EventKind.UPDATED) == [
        {"priority": (0, 7)},
        {"state": ("scheduled", "pending"), "run_at": (T0 + 60_000, T0)},
    ]
    assert look(reader, waiting).metadata == {"password": "hunter2"}
