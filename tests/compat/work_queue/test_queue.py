"""`WorkQueue`: its whole documented life. Time stands still unless a test moves it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from forebay import ConfigError, Forebay, InvalidJob, StoreError
from forebay.app.consumer import Consumer
from forebay.compat.work_queue.queue import ASIDE_SECONDS, WorkQueue
from forebay.compat.work_queue.task import TASK, RowStatus, TaskState, WorkTask
from forebay.domain.job_query import MAX_PAGE
from forebay.domain.job_states import JobState
from forebay.errors import StoreUnusable
from forebay.testing.manual_clock import ManualClock

VISIBLE = 3_600
# When tasks of different ages become due, in milliseconds from the start.
PLACES = {"older than three hours": 1_000, "old": 3_000_000, "urgent": 10_802_000}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/data/queue.db"


@pytest.fixture
def queue(url: str, clock: ManualClock) -> Iterator[WorkQueue]:
    with WorkQueue(url, clock=clock) as queue:
        yield queue


@pytest.fixture
def other(url: str, clock: ManualClock) -> Iterator[WorkQueue]:
    """The same table, as another program has it."""
    with WorkQueue(url, clock=clock) as other:
        yield other


def tasks(*ids: str, **fields: Any) -> list[WorkTask]:
    return [WorkTask(id=name, items=[name], **fields) for name in ids]


def ids(found: list[WorkTask]) -> list[str]:
    return [task.id for task in found]


def state(queue: WorkQueue, task_id: str) -> TaskState:
    task = queue.get(task_id)
    assert task is not None
    return task.state


def taken(queue: WorkQueue, task_id: str = "a") -> WorkTask:
    """A task that was enqueued and dequeued."""
    queue.enqueue(tasks(task_id))
    [task] = queue.dequeue(1)
    return task


# Enqueue and dequeue


@pytest.mark.shows("R-SDK-06", "R-ENQ-06", "R-ENQ-12", "R-EDGE-28")
def test_many_tasks_are_stored_at_once_and_a_taken_id_is_ignored(queue: WorkQueue) -> None:
    first = queue.enqueue(tasks("a", "b"))

    second = queue.enqueue([WorkTask(id="a", items=["other"]), *tasks("c", "c")])

    assert (first, second) == (["a", "b"], ["c"])
    assert [task.items for task in queue.dequeue()] == [["a"], ["b"], ["c"]]
    assert queue.enqueue([]) == []


@pytest.mark.shows("R-ENQ-07")
def test_one_bad_task_leaves_nothing_behind(queue: WorkQueue) -> None:
    with pytest.raises(InvalidJob, match="items"):
        queue.enqueue([*tasks("a"), WorkTask(items="not a list")])  # type: ignore[arg-type]
    with pytest.raises(InvalidJob, match="a task is a WorkTask"):
        queue.enqueue([{"items": []}])  # type: ignore[list-item]

    assert queue.get("a") is None


@pytest.mark.shows("R-JOB-10", "R-JOB-37", "R-JOB-42", "R-JOB-36")
def test_a_new_task_is_shown_under_the_names_of_the_table(queue: WorkQueue, clock: ManualClock) -> None:
    items = ["a.png", {"width": 5, "tags": [None, True]}, 2.5]

    [task_id] = queue.enqueue([WorkTask(items=items)])

    task = queue.get(task_id)
    assert task is not None
    assert (task.id, task.state, task.items) == (task_id, "PENDING", items)
    assert (task.attempt_count, task.attempted_at, task.attempted_error) == (0, None, ())
    assert (task.schedule_at, task.created_at, task.updated_at) == (clock.now_ms(),) * 3
    assert task.finalized_at is None


@pytest.mark.shows("R-JOB-36", "R-JOB-41")
def test_a_task_is_also_a_row_of_a_work_queue(queue: WorkQueue, clock: ManualClock) -> None:
    queue.enqueue(tasks("a", priority=3))
    waiting = queue.get("a")
    [running] = queue.dequeue()

    assert waiting is not None
    assert (waiting.status, waiting.payload, waiting.priority) == ("queued", ["a"], 3)
    assert (waiting.run_at, waiting.started_at, waiting.claimed_by) == (clock.now_ms(), None, None)
    assert (running.status, running.started_at) == ("running", clock.now_ms())
    assert running.claimed_by is not None
    assert running.lease_expires_at == clock.now_ms() + VISIBLE * 1_000


@pytest.mark.shows("R-PRI-09", "R-CFG-78", "R-CFG-73", "R-LEASE-12", "R-LEASE-18")
def test_five_tasks_are_dequeued_for_an_hour_the_oldest_first(queue: WorkQueue, clock: ManualClock) -> None:
    for name in "gfedcba":
        queue.enqueue(tasks(name))
        clock.advance(ms=1)

    found = queue.dequeue()

    assert ids(found) == ["g", "f", "e", "d", "c"]
    assert {task.lease_expires_at for task in found} == {clock.now_ms() + VISIBLE * 1_000}
    assert {task.attempt_count for task in found} == {1}
    assert ids(queue.dequeue()) == ["b", "a"]
    assert queue.dequeue() == []


@pytest.mark.shows("R-PRI-09")
def test_a_point_of_priority_counts_like_an_hour_of_waiting(
    queue: WorkQueue, url: str, clock: ManualClock
) -> None:
    for name, priority in (("old", 0), ("older than three hours", 0), ("urgent", 3)):
        queue.enqueue(tasks(name, priority=priority, schedule_at=clock.now_ms() + PLACES[name]))
    clock.advance(seconds=5 * 3_600)

    found = ids(queue.dequeue())

    assert found == ["older than three hours", "urgent", "old"]
    with Forebay(url) as app:
        [settings] = [one.settings for one in app.client.read(lambda reader: reader.queues())]
    assert (settings.mode, settings.aging_ms) == ("fifo", 3_600_000)


def test_a_task_for_later_is_not_given_out_before_its_time(queue: WorkQueue, clock: ManualClock) -> None:
    queue.enqueue(tasks("a", schedule_at=clock.now_ms() + 10_000))

    before = queue.dequeue()
    clock.advance(seconds=10)

    assert before == []
    assert ids(queue.dequeue()) == ["a"]


# Marks


@pytest.mark.shows("R-DONE-04")
def test_a_task_that_is_done_is_completed(queue: WorkQueue, clock: ManualClock) -> None:
    task = taken(queue)

    assert queue.mark_as_complete(task, {"width": 5}) is True

    done = queue.get("a")
    assert done is not None
    assert (done.state, done.status, done.finalized_at) == ("COMPLETED", "completed", clock.now_ms())


@pytest.mark.parametrize(
    "mark", [WorkQueue.mark_as_complete, WorkQueue.mark_as_retry, WorkQueue.mark_as_discarded]
)
@pytest.mark.shows("R-DONE-04", "R-RETRY-12", "R-DLQ-14")
def test_a_mark_that_contradicts_an_earlier_one_is_refused(queue: WorkQueue, mark: Any) -> None:
    """Each mark is kept once more, and both others are not."""
    queue.enqueue(tasks("a"))
    [task] = queue.dequeue()
    marks: list[Any] = [WorkQueue.mark_as_complete, WorkQueue.mark_as_retry, WorkQueue.mark_as_discarded]

    assert mark(queue, task, "text") is True

    assert [one(queue, task, "text") for one in marks] == [one is mark for one in marks]


@pytest.mark.shows("R-DONE-04", "R-RETRY-12", "R-DLQ-14")
@pytest.mark.parametrize(
    "mark", [WorkQueue.mark_as_complete, WorkQueue.mark_as_retry, WorkQueue.mark_as_discarded]
)
def test_only_a_task_that_is_processed_can_be_marked_so(queue: WorkQueue, mark: Any) -> None:
    queue.enqueue(tasks("a"))
    waiting = queue.get("a")

    assert mark(queue, waiting, "error") is False

    assert state(queue, "a") is TaskState.PENDING


@pytest.mark.shows("R-RETRY-12", "R-CFG-75", "R-CFG-74", "R-CFG-76", "R-RETRY-07")
def test_a_failed_task_waits_longer_each_time_and_keeps_its_errors(url: str, clock: ManualClock) -> None:
    with WorkQueue(url, clock=clock, default_max_attempts=20) as queue:
        task = taken(queue)
        delays = []
        for number in range(8):
            assert queue.mark_as_retry(task, ValueError(f"error {number}")) is True
            failed = queue.get("a")
            assert failed is not None
            assert failed.state is TaskState.RETRYABLE
            delays.append((failed.schedule_at or 0) - clock.now_ms())
            clock.advance(ms=delays[-1])
            [task] = queue.retry()

    assert delays == [60_000, 120_000, 240_000, 480_000, 960_000, 1_920_000, 3_600_000, 3_600_000]
    assert task.attempted_error == tuple(f"error {number}" for number in range(8))


@pytest.mark.shows("R-RETRY-14", "R-CFG-72")
def test_a_task_whose_attempts_are_used_up_is_discarded(queue: WorkQueue, clock: ManualClock) -> None:
    task = taken(queue)
    states = []
    for _ in range(2):
        queue.mark_as_retry(task, "no")
        states.append(state(queue, "a"))
        clock.advance(seconds=VISIBLE)
        [task] = queue.retry()
    assert task.attempt_count == 3

    queue.mark_as_retry(task, "no")

    assert states == [TaskState.RETRYABLE] * 2
    assert state(queue, "a") is TaskState.DISCARDED
    clock.advance(seconds=VISIBLE)
    assert queue.retry() == []


@pytest.mark.shows("R-CANCEL-03")
def test_only_a_pending_task_is_cancelled(queue: WorkQueue, clock: ManualClock) -> None:
    queue.enqueue(tasks("processed", "failed", "done", "pending"))
    processed, failed, done = queue.dequeue(3)
    queue.mark_as_retry(failed, "no")
    queue.mark_as_complete(done)
    queue.enqueue(tasks("later", schedule_at=clock.now_ms() + 1_000))

    answers = {
        name: queue.mark_as_cancelled(name)
        for name in ("processed", "failed", "done", "pending", "later", "unknown")
    }

    assert [name for name, is_cancelled in answers.items() if is_cancelled] == ["pending", "later"]
    assert state(queue, "pending") is TaskState.CANCELLED
    assert state(queue, "failed") is TaskState.RETRYABLE
    assert queue.mark_as_complete(processed) is True


@pytest.mark.shows("R-DLQ-14")
def test_a_discarded_task_is_resumed_with_fresh_attempts(queue: WorkQueue) -> None:
    task = taken(queue)

    assert queue.mark_as_resume(task) is False
    assert queue.mark_as_discarded(task, "useless") is True
    discarded = state(queue, "a")
    assert queue.mark_as_resume(task) is True

    assert (discarded, state(queue, "a")) == (TaskState.DISCARDED, TaskState.PENDING)
    [again] = queue.dequeue()
    assert (again.id, again.attempt_count, again.attempted_error) == ("a", 1, ("useless",))


@pytest.mark.shows("R-DLQ-14")
def test_nothing_but_a_discarded_task_is_resumed(queue: WorkQueue) -> None:
    queue.enqueue(tasks("cancelled", "pending"))
    queue.mark_as_cancelled("cancelled")

    assert [queue.mark_as_resume(name) for name in ("cancelled", "pending", "unknown")] == [False] * 3
    assert state(queue, "cancelled") is TaskState.CANCELLED


# Visibility, and programs that die


@pytest.mark.shows("R-SWEEP-15", "R-BUG-32", "R-BUG-33")
def test_a_task_whose_visibility_has_lapsed_is_given_to_another_and_the_late_one_is_refused(
    queue: WorkQueue, other: WorkQueue, clock: ManualClock
) -> None:
    queue.enqueue(tasks("a"))
    clock.advance(seconds=2 * VISIBLE)  # how long it has waited does not matter
    [late] = queue.dequeue()
    too_early = other.retry()
    clock.advance(seconds=VISIBLE)

    [again] = other.retry()

    assert too_early == []
    assert (again.id, again.attempt_count) == ("a", 2)
    assert queue.mark_as_complete(late) is False
    assert queue.heartbeat(late) is False
    assert other.mark_as_complete(again) is True
    assert state(queue, "a") is TaskState.COMPLETED


def test_a_program_that_is_started_again_finds_what_its_predecessor_had_taken(
    url: str, clock: ManualClock
) -> None:
    with WorkQueue(url, clock=clock) as before:
        before.enqueue(tasks("taken", "waits"))
        before.dequeue(1, visibility_timeout=60)
    clock.advance(seconds=60)

    with WorkQueue(url, clock=clock) as after:
        assert ids(after.retry()) == ["taken"]
        assert ids(after.dequeue()) == ["waits"]


@pytest.mark.shows("R-SWEEP-15", "R-RETRY-14", "R-CFG-78")
def test_retry_takes_only_what_was_tried_and_discards_what_was_tried_too_often(
    queue: WorkQueue, clock: ManualClock
) -> None:
    queue.enqueue(tasks("tried", "lapsed", "twice", "fresh"))
    for task in queue.dequeue(3):
        if task.id != "lapsed":
            queue.mark_as_retry(task, "no")
    clock.advance(seconds=VISIBLE)
    [tried, lapsed, twice] = queue.retry(max_attempts=2)
    queue.mark_as_retry(twice, "no")
    queue.mark_as_complete(tried)
    clock.advance(seconds=VISIBLE)

    found = queue.retry(max_attempts=2)
    clock.advance(seconds=60)  # a task that lapses again waits a while too
    found += queue.retry(max_attempts=2)

    assert ids([tried, lapsed, twice]) == ["tried", "lapsed", "twice"]
    assert found == []
    assert [state(queue, name) for name in ("lapsed", "twice")] == [TaskState.DISCARDED] * 2
    assert state(queue, "fresh") is TaskState.PENDING
    assert inspect.signature(WorkQueue.retry).parameters["size"].default == 5


def test_what_stands_before_a_tried_task_is_handed_back_and_nothing_is_counted(
    queue: WorkQueue, clock: ManualClock
) -> None:
    queue.mark_as_retry(taken(queue, "tried"), "no")
    queue.enqueue(tasks("urgent", priority=90))
    queue.enqueue(tasks("fresh"))
    clock.advance(seconds=60)

    found = queue.retry()

    assert ids(found) == ["tried"]
    assert [(task.id, task.attempt_count) for task in queue.dequeue()] == [("urgent", 1), ("fresh", 1)]


@pytest.mark.parametrize("in_front", [120, MAX_PAGE + 20])
def test_retry_finds_what_stands_behind_many_more_urgent_tasks(
    queue: WorkQueue, other: WorkQueue, clock: ManualClock, in_front: int
) -> None:
    queue.mark_as_retry(taken(queue, "tried"), "no")
    queue.mark_as_retry(taken(queue, "second"), "no")
    queue.enqueue(tasks(*(f"urgent{number}" for number in range(in_front)), priority=90))
    clock.advance(seconds=60)

    [found] = queue.retry(1, visibility_timeout=600)

    assert (found.id, found.attempt_count) == ("tried", 2)
    assert found.lease_expires_at == clock.now_ms() + 600_000
    untried = [queue.get(f"urgent{number}") for number in range(in_front)]
    assert {(task and task.state, task and task.attempt_count) for task in untried} == {("PENDING", 0)}
    assert ids(other.dequeue(2)) == ["urgent0", "urgent1"]
    clock.advance(seconds=599)
    assert queue.mark_as_complete(found) is True
    assert ids(other.retry()) == ["second"]


def test_retry_touches_nothing_where_nothing_was_tried(
    queue: WorkQueue, url: str, clock: ManualClock
) -> None:
    queue.enqueue(tasks("fresh", "urgent", priority=5))
    queue.enqueue(tasks("later", schedule_at=clock.now_ms() + 1_000))

    assert queue.retry() == []

    with Forebay(url) as app:
        assert {app.job(name).refresh().attempt for name in ("fresh", "urgent", "later")} == {0}


def test_retry_takes_only_tried_tasks_where_priorities_are_equal(
    queue: WorkQueue, url: str, clock: ManualClock
) -> None:
    queue.enqueue(tasks("tried", "fresh"))
    [task] = queue.dequeue(1)
    queue.mark_as_retry(task, "no")
    clock.advance(seconds=60)

    assert ids(queue.retry()) == ["tried"]

    with Forebay(url) as app:
        assert app.job("fresh").refresh().attempt == 0


def test_who_dies_while_it_looks_for_tried_tasks_keeps_others_from_the_rest_only_for_seconds(
    queue: WorkQueue, other: WorkQueue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.mark_as_retry(taken(queue, "tried"), "no")
    queue.enqueue(tasks("urgent", priority=90))
    clock.advance(seconds=60)

    def die(_self: Consumer, _outcomes: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Consumer, "settle", die)
        with pytest.raises(KeyboardInterrupt):
            queue.retry()
    clock.advance(seconds=ASIDE_SECONDS)

    assert other.requeue_expired() == 2


def test_retry_gives_no_more_than_was_asked_for(queue: WorkQueue, clock: ManualClock) -> None:
    names = [f"{number:03}" for number in range(105)]
    queue.enqueue(tasks(*names))
    for task in queue.dequeue(size=len(names)):
        queue.mark_as_retry(task, "no")
    clock.advance(seconds=60)

    assert ids(queue.retry(size=2)) == names[:2]
    assert ids(queue.retry(size=len(names))) == names[2:]


# The end


@pytest.mark.parametrize(
    "spec",
    [
        lambda queue, task: queue.dequeue(),
        lambda queue, task: queue.claim(),
        lambda queue, task: queue.retry(),
        lambda queue, task: queue.enqueue(tasks("late")),
        lambda queue, task: queue.get("waits"),
        lambda queue, task: queue.mark_as_complete(task),
        lambda queue, task: queue.mark_as_retry(task, "no"),
        lambda queue, task: queue.mark_as_discarded(task),
        lambda queue, task: queue.mark_as_cancelled("waits"),
        lambda queue, task: queue.mark_as_resume("waits"),
        lambda queue, task: queue.heartbeat(task),
        lambda queue, task: queue.requeue_expired(),
    ],
)
def test_a_closed_queue_refuses_and_takes_nothing(
    queue: WorkQueue, other: WorkQueue, spec: Callable[[WorkQueue, WorkTask], Any]
) -> None:
    task = taken(queue)
    queue.enqueue(tasks("waits"))
    queue.close()
    queue.close()

    with pytest.raises(StoreError, match="closed"):
        spec(queue, task)

    assert state(other, "waits") is TaskState.PENDING
    assert state(other, "a") is TaskState.PROCESSING


# The words of work queues


@pytest.mark.shows("R-SDK-12")
def test_a_worker_claims_sends_heartbeats_and_completes(queue: WorkQueue, clock: ManualClock) -> None:
    queue.enqueue(tasks("a"))
    task = queue.claim(visibility_timeout=30)
    assert task is not None
    clock.advance(seconds=20)

    assert queue.heartbeat(task, 30) is True
    clock.advance(seconds=20)
    kept = queue.requeue_expired()
    assert queue.complete(task) is True

    assert kept == 0
    assert queue.claim() is None
    assert state(queue, "a") is TaskState.COMPLETED


@pytest.mark.shows("R-SDK-12")
def test_a_worker_fails_and_what_has_expired_is_queued_again(queue: WorkQueue, clock: ManualClock) -> None:
    queue.enqueue(tasks("failed", "expired"))
    failed, expired = queue.claim(30), queue.claim(30)
    assert failed is not None
    assert expired is not None

    assert queue.fail(failed, "no") is True
    clock.advance(seconds=30)

    assert queue.requeue_expired() == 1
    assert state(queue, "expired") is TaskState.PENDING
    assert state(queue, "failed") is TaskState.RETRYABLE
    assert queue.complete(expired) is False


def test_a_heartbeat_for_a_task_that_was_never_taken_is_refused(queue: WorkQueue) -> None:
    assert queue.heartbeat(WorkTask(items=[])) is False


# Settings


@pytest.mark.shows("R-CFG-71", "R-CFG-72", "R-CFG-73", "R-CFG-74", "R-CFG-75", "R-CFG-76", "R-CFG-77")
@pytest.mark.shows("R-STORE-24")
def test_the_settings_have_the_names_and_defaults_that_its_users_know() -> None:
    parameters = list(inspect.signature(WorkQueue).parameters.values())[:7]

    assert {one.name: one.default for one in parameters} == {
        "database_url": "sqlite:///data/queue.db",
        "default_max_attempts": 3,
        "default_visibility_timeout": 3600,
        "retry_backoff_multiplier": 2.0,
        "retry_base_delay": 60,
        "max_retry_delay": 3600,
        "batch_size": 100,
    }


@pytest.mark.shows("R-CFG-71", "R-STORE-24")
def test_without_an_address_the_file_is_in_a_folder_called_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with WorkQueue() as queue:
        queue.enqueue(tasks("a"))

    assert (tmp_path / "data" / "queue.db").exists()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")

    with pytest.raises(StoreUnusable, match="data/more' cannot be made"):
        WorkQueue(f"sqlite:///{tmp_path}/data/more/queue.db")


def test_a_queue_may_live_in_memory() -> None:
    with WorkQueue("memory://") as queue:
        queue.enqueue(tasks("a"))

        assert ids(queue.dequeue()) == ["a"]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(("default_max_attempts", 0), ("default_visibility_timeout", 0), ("retry_base_delay", "soon")),
        *(("max_retry_delay", "never"), ("batch_size", 0), ("queue", "no spaces")),
        *(("retry_base_delay", -1), ("retry_backoff_multiplier", 0.5), ("retry_backoff_multiplier", "2")),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_its_name(url: str, setting: str, value: Any) -> None:
    with pytest.raises((ConfigError, InvalidJob), match=setting):
        WorkQueue(url, **{setting: value})


@pytest.mark.parametrize(
    "wrong",
    [
        lambda queue: queue.dequeue(0),
        lambda queue: queue.dequeue(1, visibility_timeout=0),
        lambda queue: queue.retry(0),
        lambda queue: queue.retry(max_attempts=0),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(queue: WorkQueue, wrong: Any) -> None:
    with pytest.raises(InvalidJob):
        wrong(queue)


@pytest.mark.shows("R-JOB-42", "R-JOB-41", "R-JOB-43")
def test_the_states_are_stored_by_name_and_every_job_has_one(url: str, queue: WorkQueue) -> None:
    task = taken(queue)
    queue.mark_as_discarded(task)

    with Forebay(url) as app:
        assert app.job("a").refresh().state is JobState.DEAD
        assert app.job("a").refresh().task == TASK
    assert [str(one) for one in TaskState] == [
        *("PENDING", "PROCESSING", "COMPLETED", "RETRYABLE", "CANCELLED", "DISCARDED")
    ]
    assert [str(one) for one in RowStatus] == ["queued", "running", "completed", "failed"]


def test_a_job_of_another_kind_is_shown_with_its_arguments(url: str, queue: WorkQueue) -> None:
    with Forebay(url) as app:
        app.enqueue("send", ["ada"], {"copies": 2}, id="mail")

    task = queue.get("mail")

    assert task is not None
    assert task.items == ["ada", {"copies": 2}]


@pytest.mark.shows("R-SER-21")
def test_with_keys_what_tasks_hold_is_for_who_has_them(url: str) -> None:
    with WorkQueue(url, encryption_keys={"2026-11": b"k" * 32}) as queue:
        queue.enqueue([WorkTask(items=["a secret of ours"])])
        with Forebay(url) as app:
            [line] = app.search().jobs
            job = app.client.job(line.id)
        [task] = queue.dequeue()

    assert task.items == ["a secret of ours"]
    assert job is not None
    assert b"a secret of ours" not in job.payload
