"""`TaskQueue`: its whole documented life, with real worker threads where they matter."""

from __future__ import annotations

import inspect
import logging
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest

from forebay import ConfigError, DuplicateJob, Forebay, InvalidJob, PayloadError, StoreError
from forebay.compat.task_queue import errors
from forebay.compat.task_queue.errors import (
    JobCancelledError,
    JobError,
    JobFailedError,
    JobNotFoundError,
    JobRefusedError,
)
from forebay.compat.task_queue.queue import POLICY, POLL_SECONDS, PriorityLevel, TaskQueue
from forebay.domain.job import DEFAULT_QUEUE, JobId, WorkerId
from forebay.domain.job_states import JobState
from forebay.domain.queue import QueueSettings, QueueState
from forebay.domain.settlement import OutcomeKind
from forebay.errors import StoreUnusable
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.testing.manual_clock import ManualClock
from tests.compat import calls
from tests.compat.conftest import MakeQueue
from tests.worker.support import DEADLINE, eventually, no_thread_stays

ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def opened(file: Path) -> Iterator[Forebay]:
    """The same store, as an operator sees it."""
    with Forebay(f"sqlite:///{file}") as app:
        yield app


def settings_of(file: Path) -> QueueSettings:
    with opened(file) as app:
        [found] = app.client.read(lambda reader: reader.queues([DEFAULT_QUEUE]))
    return found.settings


# Submit, look, wait


@pytest.mark.shows("R-SDK-05", "R-ENQ-01", "R-DONE-09", "R-JOB-06")
def test_a_function_is_submitted_run_and_answered(queue: TaskQueue) -> None:
    job_id = queue.submit(calls.add, 2, b=3)

    assert queue.get_result(job_id, timeout=DEADLINE) == 5
    status = queue.get_status(job_id)
    assert (status.job_id, status.task_name, status.status, status.result) == (job_id, "add", "completed", 5)
    assert (status.error_message, status.retry_count, status.next_retry_at) == (None, 0, None)
    assert status.completed_at is not None
    assert status.completed_at >= status.created_at


@pytest.mark.shows("R-ENQ-01", "R-CFG-13")
def test_submit_has_the_signature_that_its_users_know() -> None:
    parameters = inspect.signature(TaskQueue.submit).parameters

    assert list(parameters) == [
        *("self", "func", "args", "priority", "max_retries", "timeout_seconds", "task_name", "job_id"),
        "kwargs",
    ]
    assert [parameters[name].default for name in ("priority", "max_retries", "timeout_seconds")] == [
        0,
        3,
        None,
    ]


@pytest.mark.shows("R-CFG-13", "R-PRI-01", "R-JOB-34", "R-JOB-18")
def test_a_job_that_waits_is_shown_under_the_names_of_the_table(idle: TaskQueue) -> None:
    status = idle.get_status(idle.submit(calls.add, 1, task_name="sum", job_id="first"))

    assert (status.job_id, status.task_name, status.priority, status.status) == ("first", "sum", 0, "pending")
    assert (status.max_retries, status.timeout_seconds, status.lease_version) == (3, None, 0)
    assert b'"args":[1]' in status.payload
    assert {
        *(status.result, status.error_message, status.started_at, status.completed_at, status.next_retry_at),
        *(status.claimed_by, status.claimed_at, status.lease_expires_at, status.lease_token),
        status.last_heartbeat_at,
    } == {None}
    assert (status.is_done, status.is_terminal, status.will_retry) == (False, False, False)


@pytest.mark.shows("R-JOB-34", "R-JOB-26", "R-LEASE-06", "R-LEASE-18")
def test_a_job_that_runs_shows_its_lease(queue: TaskQueue, key: str) -> None:
    job_id = queue.submit(calls.hold, key, timeout_seconds=50)
    assert calls.reached[key].wait(DEADLINE)

    status = queue.get_status(job_id)

    assert (status.status, status.lease_version, status.timeout_seconds) == ("running", 1, 50)
    assert status.lease_token == f"{status.claimed_by}/1"
    assert status.claimed_at == status.started_at == status.last_heartbeat_at
    assert status.lease_expires_at == (status.claimed_at or 0) + 300


def test_the_name_of_a_job_is_only_a_label(queue: TaskQueue) -> None:
    one = queue.submit(calls.add, 1, task_name="same")
    other = queue.submit(calls.Shop.price, "tea", task_name="same")

    assert [queue.get_result(job, timeout=DEADLINE) for job in (one, other)] == [1, "tea: 5"]


@pytest.mark.shows("R-EDGE-26")
def test_arguments_may_be_called_like_options(queue: TaskQueue) -> None:
    call = partial(calls.take, priority="mine", job_id="too")

    job_id = queue.submit(call, priority=3, job_id="its own")

    assert queue.get_result("its own", timeout=DEADLINE) == "mine too"
    assert (job_id, queue.get_status(job_id).priority) == ("its own", 3)


@pytest.mark.shows("R-DONE-09")
def test_an_unknown_id_is_an_error(idle: TaskQueue) -> None:
    with pytest.raises(JobNotFoundError, match="there is no job never"):
        idle.get_status("never")
    with pytest.raises(JobNotFoundError):
        idle.get_result("never")


@pytest.mark.shows("R-PRI-01", "R-PRI-03")
def test_the_more_urgent_job_runs_first(make_queue: MakeQueue, key: str) -> None:
    idle = make_queue(num_workers=0)
    for priority in (
        0,
        10,
        5,
        PriorityLevel.HIGH,
        PriorityLevel.LOW,
        PriorityLevel.CRITICAL,
        PriorityLevel.MEDIUM,
    ):
        idle.submit(calls.note, key, int(priority), priority=priority)

    make_queue(num_workers=1)

    # 10 and CRITICAL are equals, and so are 0 and LOW: the one that came first goes first.
    eventually(lambda: calls.noted[key] == [10, 0, 1, 5, 2, 0, 3])
    assert [level.priority for level in PriorityLevel] == [10, 7, 3, 0]


@pytest.mark.parametrize("priority", [-1, 11, 2.5, True, "high"])
@pytest.mark.shows("R-PRI-01", "R-ENQ-28")
def test_a_priority_off_the_scale_is_refused_before_anything_is_stored(
    idle: TaskQueue, priority: Any
) -> None:
    with pytest.raises(ValueError, match="priority must be a whole number from 0 to 10"):
        idle.submit(calls.add, 1, priority=priority)

    assert sum(idle.get_queue_stats().values()) == 0


@pytest.mark.shows("R-EDGE-28")
def test_a_taken_id_is_an_error_and_the_stored_job_stays(idle: TaskQueue) -> None:
    idle.submit(calls.add, 1, job_id="mine", task_name="first")

    with pytest.raises(DuplicateJob):
        idle.submit(calls.add, 2, job_id="mine", task_name="second")

    assert idle.get_status("mine").task_name == "first"


@pytest.mark.shows("R-ENQ-36")
def test_a_queue_that_takes_no_job_says_so_with_a_value_error(idle: TaskQueue, file: Path) -> None:
    with opened(file) as app:
        app.client.write(lambda store: store.save_queue(DEFAULT_QUEUE, state=QueueState.DRAINING))

    with pytest.raises(JobRefusedError) as caught:
        idle.submit(calls.add, 1)

    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, JobError)


def test_arguments_that_do_not_fit_are_refused_at_once(idle: TaskQueue) -> None:
    with pytest.raises(PayloadError, match="unexpected keyword argument 'c'"):
        idle.submit(calls.add, 1, c=2)


# Results


@pytest.mark.shows("R-DONE-10", "R-CFG-15")
def test_a_result_is_waited_for_with_a_look_every_tenth_of_a_second(queue: TaskQueue, key: str) -> None:
    job_id = queue.submit(calls.hold, key)
    found: list[Any] = []
    waiting = Thread(target=lambda: found.append(queue.get_result(job_id)))
    waiting.start()

    assert calls.reached[key].wait(DEADLINE)
    calls.opened[key].set()
    waiting.join(DEADLINE)

    assert found == [key]
    assert POLL_SECONDS == 0.1
    assert (POLICY.base_ms, POLICY.ceiling_ms, POLICY.jitter_low, POLICY.jitter_high) == (
        1_000,
        300_000,
        0,
        0.1,
    )


@pytest.mark.parametrize("timeout", [0, 0.01])
@pytest.mark.shows("R-DONE-11", "R-EDGE-39", "R-BUG-13")
def test_a_result_that_is_not_there_in_time_is_a_timeout_error(idle: TaskQueue, timeout: float) -> None:
    job_id = idle.submit(calls.add, 1)

    with pytest.raises(TimeoutError, match=f"job {job_id} is pending"):
        idle.get_result(job_id, timeout=timeout)


@pytest.mark.shows("R-EDGE-39")
def test_a_result_that_is_there_is_given_without_time(queue: TaskQueue) -> None:
    job_id = queue.submit(calls.add, 1)
    queue.get_result(job_id, timeout=DEADLINE)

    assert queue.get_result(job_id, timeout=0) == 1


# Errors and retries


@pytest.mark.shows("R-JOB-58", "R-JOB-59", "R-CFG-15", "R-RETRY-07")
def test_a_failure_is_tried_again_after_a_growing_delay(
    make_queue: MakeQueue, clock: ManualClock, key: str
) -> None:
    queue = make_queue(num_workers=1, clock=clock)
    job_id = queue.submit(calls.fail_until, key, 3)

    delays = []
    for attempt in (1, 2):
        eventually(lambda tries=attempt: queue.get_status(job_id).retry_count == tries)  # type: ignore[misc]
        status = queue.get_status(job_id)
        assert (status.status, status.will_retry, status.is_terminal) == ("failed", True, False)
        assert status.error_message == "ConnectionError: not yet"
        delays.append((status.next_retry_at or 0) - clock.now_ms() / 1_000)
        clock.advance(seconds=delays[-1] + 0.001)

    assert queue.get_result(job_id, timeout=DEADLINE) == 3
    assert 1.0 <= delays[0] <= 1.1
    assert 2.0 <= delays[1] <= 2.2
    done = queue.get_status(job_id)
    assert (done.retry_count, done.is_done, done.is_terminal, done.will_retry) == (2, True, True, False)


@pytest.mark.shows("R-DONE-11", "R-JOB-58", "R-JOB-50", "R-JOB-59")
def test_a_job_whose_retries_are_used_up_is_a_dead_letter(
    make_queue: MakeQueue, clock: ManualClock, key: str, file: Path
) -> None:
    queue = make_queue(num_workers=1, clock=clock)
    job_id = queue.submit(calls.fail, key, max_retries=1)
    eventually(lambda: queue.get_status(job_id).will_retry)
    clock.advance(seconds=2)

    with pytest.raises(JobFailedError, match=f"ConnectionError: attempt 2 of {key[:10]}"):
        queue.get_result(job_id, timeout=DEADLINE)

    status = queue.get_status(job_id)
    assert (status.status, status.retry_count, status.max_retries) == ("failed", 1, 1)
    assert (status.is_done, status.is_terminal, status.will_retry) == (False, True, False)
    with opened(file) as app:
        assert app.job(job_id).refresh().state is JobState.DEAD


@pytest.mark.parametrize(
    "kind",
    [
        *("TypeError", "ValueError", "AttributeError", "KeyError", "ImportError", "SyntaxError"),
        *("AssertionError", "FileNotFoundError", "PermanentError"),
    ],
)
@pytest.mark.shows("R-RETRY-31", "R-SDK-03")
def test_an_error_that_would_only_come_again_ends_the_job(queue: TaskQueue, key: str, kind: str) -> None:
    job_id = queue.submit(calls.fail, key, kind)

    with pytest.raises(JobFailedError, match=kind):
        queue.get_result(job_id, timeout=DEADLINE)

    assert calls.noted[key] == [1]
    assert queue.get_status(job_id).retry_count == 0


@pytest.mark.parametrize(
    "kind", ["ConnectionError", "TimeoutError", "PermissionError", "OSError", "RetryableError"]
)
@pytest.mark.shows("R-RETRY-32", "R-SDK-03")
def test_an_error_that_may_pass_is_tried_again(queue: TaskQueue, key: str, kind: str) -> None:
    job_id = queue.submit(calls.fail, key, kind)

    eventually(lambda: queue.get_status(job_id).error_message)

    assert queue.get_status(job_id).status in ("failed", "pending", "running")
    assert not queue.get_status(job_id).is_terminal


@pytest.mark.shows("R-RETRY-37")
def test_a_function_that_takes_too_long_is_not_tried_again(queue: TaskQueue, key: str) -> None:
    job_id = queue.submit(calls.linger, key, timeout_seconds=0.05)

    with pytest.raises(JobFailedError, match="Timeout"):
        queue.get_result(job_id, timeout=DEADLINE)


@pytest.mark.shows("R-SDK-03")
def test_the_errors_have_the_names_of_the_table_and_are_ours_too() -> None:
    names = ("RetryableError", "PermanentError", "JobNotFoundError", "JobFailedError", "JobCancelledError")

    found = [getattr(errors, name) for name in names]

    assert all(issubclass(kind, JobError) for kind in found)


# Cancel and count


@pytest.mark.shows("R-CANCEL-11", "R-JOB-58", "R-CANCEL-01")
def test_a_job_that_waits_is_cancelled(idle: TaskQueue) -> None:
    job_id = idle.submit(calls.add, 1)

    assert idle.cancel(job_id) is True
    assert idle.cancel(job_id) is False

    status = idle.get_status(job_id)
    assert (status.status, status.is_done, status.is_terminal) == ("cancelled", True, True)
    with pytest.raises(JobCancelledError):
        idle.get_result(job_id)
    with pytest.raises(JobNotFoundError):
        idle.cancel("never")


def test_a_job_that_runs_is_asked_to_stop(queue: TaskQueue, key: str) -> None:
    job_id = queue.submit(calls.linger, key)
    assert calls.reached[key].wait(DEADLINE)

    assert queue.cancel(job_id) is True

    with pytest.raises(JobCancelledError):
        queue.get_result(job_id, timeout=DEADLINE)


@pytest.mark.shows("R-BUG-11")
def test_a_dead_letter_cannot_be_cancelled(queue: TaskQueue, key: str) -> None:
    job_id = queue.submit(calls.fail, key, "ValueError")
    with pytest.raises(JobFailedError):
        queue.get_result(job_id, timeout=DEADLINE)

    assert queue.cancel(job_id) is False
    assert queue.get_status(job_id).status == "failed"


@pytest.mark.shows("R-DONE-18")
def test_the_statistics_count_every_status_those_without_jobs_too(queue: TaskQueue, key: str) -> None:
    empty = queue.get_queue_stats()
    queue.get_result(queue.submit(calls.add, 1), timeout=DEADLINE)
    queue.submit(calls.hold, key)
    assert calls.reached[key].wait(DEADLINE)

    assert empty == dict.fromkeys(("pending", "running", "completed", "failed", "cancelled"), 0)
    assert queue.get_queue_stats() == {**empty, "completed": 1, "running": 1}


# Workers that die or come too late


@pytest.mark.shows("R-CFG-07", "R-TEST-51")
def test_a_stale_worker_is_rejected(make_queue: MakeQueue, file: Path, clock: ManualClock) -> None:
    idle = make_queue(num_workers=0, clock=clock)
    job_id = idle.submit(calls.add, 1)
    with Forebay(f"sqlite:///{file}", clock=clock) as app:
        stale, other = app.consumer(), app.consumer()
        [late] = stale.claim()
        clock.advance(seconds=301)
        app.sweep()
        [again] = other.claim()

        assert stale.complete(late, "too late") is False
        assert other.complete(again, "in time") is True
        stale.close()
        other.close()

    assert idle.get_result(job_id) == "in time"
    assert idle.get_status(job_id).lease_version == 2


@pytest.mark.shows("R-CFG-04", "R-CFG-07", "R-SWEEP-04")
def test_jobs_of_a_program_that_died_run_again_at_the_next_start(
    make_queue: MakeQueue, file: Path, key: str
) -> None:
    program = f"""
import os, sys
from threading import Event
from forebay.compat.task_queue.queue import TaskQueue
from tests.compat import calls

queue = TaskQueue({str(file)!r}, num_workers=1)
queue.submit(calls.hold, {key!r}, job_id="held")
queue.submit(calls.add, 20, 2, job_id="waits")
assert calls.reached[{key!r}].wait(100)
os._exit(9)
"""
    died = subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=120, check=False)
    calls.opened[key].set()

    queue = make_queue(num_workers=1)

    assert died.returncode == 9
    assert queue.get_result("waits", timeout=DEADLINE) == 22
    assert queue.get_result("held", timeout=DEADLINE) == key
    assert calls.noted[key] == [2]
    with opened(file) as app:
        assert [one.outcome for one in app.job("held").history().attempts] == [OutcomeKind.LOST]


@pytest.mark.shows("R-RETRY-38")
def test_a_function_that_another_program_submitted_is_found_while_workers_run(
    make_queue: MakeQueue, queue: TaskQueue
) -> None:
    other = make_queue(num_workers=0)

    job_id = other.submit(calls.Shop.price, "tea")

    assert queue.get_result(job_id, timeout=DEADLINE) == "tea: 5"


@pytest.mark.shows("R-RETRY-38")
def test_a_job_whose_function_is_not_there_waits_and_is_said_once(
    make_queue: MakeQueue, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queue = make_queue(num_workers=1)
    with opened(file) as app, caplog.at_level(logging.WARNING, "forebay.compat"):
        for name in ("shop_of_others:sell", "tests.compat.calls:gone", "no colon"):
            app.enqueue(name, [1], id=name)
        names = ("shop_of_others:sell", "tests.compat.calls:gone", "no colon")
        eventually(lambda: all(name in caplog.text for name in names))
        states = {app.job(name).refresh().state for name in names}

    assert states == {JobState.PENDING}
    assert queue.get_result(queue.submit(calls.add, 1), timeout=DEADLINE) == 1
    assert len([line for line in caplog.messages if "shop_of_others" in line]) == 1


# Shut down


@pytest.mark.shows("R-WORK-32", "R-ENQ-35", "R-CFG-14")
def test_a_shutdown_lets_work_in_flight_end_and_leaves_the_rest_for_the_next_start(
    make_queue: MakeQueue, key: str
) -> None:
    queue = make_queue(num_workers=1)
    running = queue.submit(calls.hold, key)
    assert calls.reached[key].wait(DEADLINE)
    waiting = queue.submit(calls.add, 1)
    left: list[int] = []
    stopping = Thread(target=lambda: left.append(queue.shutdown(timeout=DEADLINE)))
    stopping.start()
    eventually(lambda: _is_shut(queue))
    calls.opened[key].set()
    stopping.join(DEADLINE)

    assert left == [0]
    assert queue.get_result(running, timeout=0) == key
    assert queue.get_status(waiting).status == "pending"
    assert make_queue(num_workers=1).get_result(waiting, timeout=DEADLINE) == 1
    assert inspect.signature(TaskQueue.shutdown).parameters["timeout"].default == 30.0
    assert inspect.signature(TaskQueue.shutdown).parameters["wait"].default is True


def _is_shut(queue: TaskQueue) -> bool:
    try:
        queue.submit(calls.add, 0, job_id="probe")
    except RuntimeError:
        return True
    except DuplicateJob:
        return False
    return False


@pytest.mark.shows("R-WORK-32")
def test_a_shutdown_says_how_many_workers_did_not_stop_in_time(make_queue: MakeQueue, key: str) -> None:
    queue = make_queue(num_workers=2)
    queue.submit(calls.hold, key)
    assert calls.reached[key].wait(DEADLINE)

    assert queue.shutdown(timeout=0.05) == 1


def test_a_function_that_listens_is_stopped_near_the_end_of_the_time_and_handed_back(
    make_queue: MakeQueue, key: str
) -> None:
    queue = make_queue(num_workers=1)
    job_id = queue.submit(calls.linger, key)
    assert calls.reached[key].wait(DEADLINE)

    assert queue.shutdown(timeout=4) == 0

    status = queue.get_status(job_id)
    assert (status.status, status.retry_count) == ("pending", 0)


@pytest.mark.shows("R-WORK-33", "R-WORK-34")
def test_a_shutdown_without_waiting_returns_while_work_goes_on(make_queue: MakeQueue, key: str) -> None:
    queue = make_queue(num_workers=1)
    job_id = queue.submit(calls.hold, key)
    assert calls.reached[key].wait(DEADLINE)

    assert queue.shutdown(wait=False) == 1
    assert queue.get_status(job_id).status == "running"
    calls.opened[key].set()

    assert queue.get_result(job_id, timeout=DEADLINE) == key
    assert queue.shutdown() == 0
    assert queue.shutdown() == 0


@pytest.mark.shows("R-ENQ-35", "R-EDGE-25")
def test_a_submit_that_meets_a_shutdown_is_stored_or_refused(make_queue: MakeQueue) -> None:
    queue = make_queue(num_workers=1)
    accepted: list[str] = []
    barrier = Barrier(5)

    def submit_until_refused() -> None:
        barrier.wait(DEADLINE)
        try:
            while True:
                accepted.append(queue.submit(calls.add, 1))
        except RuntimeError:
            pass

    threads = [Thread(target=submit_until_refused) for _ in range(4)]
    for thread in threads:
        thread.start()
    barrier.wait(DEADLINE)
    eventually(lambda: len(accepted) > 20)
    queue.shutdown()
    stored = sum(queue.get_queue_stats().values())
    for thread in threads:
        thread.join(DEADLINE)

    assert stored == len(accepted) == sum(queue.get_queue_stats().values())


def test_a_queue_leaves_no_thread_behind(file: Path) -> None:
    with no_thread_stays(), TaskQueue(file) as queue:
        queue.get_result(queue.submit(calls.add, 1), timeout=DEADLINE)

    with pytest.raises(StoreError, match="closed"):
        queue.get_queue_stats()


def test_a_queue_may_be_closed_twice_and_inside_its_block(file: Path) -> None:
    with no_thread_stays(), TaskQueue(file, num_workers=1) as queue:
        queue.get_result(queue.submit(calls.add, 1), timeout=DEADLINE)
        queue.close()
        queue.close()
        assert queue.shutdown() == 0
        assert queue.shutdown(wait=False) == 0

        with pytest.raises(RuntimeError, match="shut down"):
            queue.submit(calls.add, 1)


def test_threads_that_close_a_queue_at_once_do_not_disturb_each_other(file: Path) -> None:
    queue = TaskQueue(file, num_workers=1)
    barrier, closed = Barrier(4), []

    def close() -> None:
        barrier.wait(DEADLINE)
        queue.close()
        closed.append(True)

    threads = [Thread(target=close) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)

    assert closed == [True] * 4


# Settings


@pytest.mark.shows("R-CFG-01", "R-CFG-02", "R-CFG-03", "R-CFG-04", "R-CFG-05", "R-CFG-06", "R-CFG-07")
@pytest.mark.shows("R-CFG-08", "R-CFG-09", "R-CFG-10", "R-CFG-11", "R-STORE-24", "R-CONC-09")
def test_the_settings_have_the_names_and_defaults_that_its_users_know() -> None:
    parameters = list(inspect.signature(TaskQueue).parameters.values())[:11]

    assert {one.name: one.default for one in parameters} == {
        "db_path": "taskqueue.db",
        "num_workers": 4,
        "poll_interval": 0.5,
        "lease_duration": 300.0,
        "heartbeat_interval": 30.0,
        "heartbeat_failure_threshold": 3,
        "enable_recovery": True,
        "retention_days": 7,
        "cleanup_interval_hours": 24,
        "cleanup_batch_size": 1000,
        "max_write_retries": 3,
    }


@pytest.mark.shows("R-CFG-01", "R-STORE-24")
def test_without_a_path_the_file_is_in_the_folder_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with TaskQueue(num_workers=0) as queue:
        queue.submit(calls.add, 1)

    assert (tmp_path / "taskqueue.db").exists()


def test_a_path_may_hold_what_means_something_in_an_address(tmp_path: Path) -> None:
    file = tmp_path / "a?b#c%20d.db"

    with TaskQueue(os.fspath(file), num_workers=0) as queue:
        queue.submit(calls.add, 1)

    assert file.exists()


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(("num_workers", -1), ("num_workers", 2.5), ("poll_interval", 0), ("lease_duration", 0.5)),
        *(("heartbeat_interval", 0), ("heartbeat_interval", 300), ("heartbeat_failure_threshold", 0)),
        *(("enable_recovery", "no"), ("retention_days", -1), ("cleanup_interval_hours", -1)),
        *(("cleanup_batch_size", 0), ("max_write_retries", -1), ("archive", 1), ("db_path", "")),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_its_name(
    tmp_path: Path, setting: str, value: Any
) -> None:
    with pytest.raises((ConfigError, InvalidJob), match=setting):
        TaskQueue(**{"db_path": tmp_path / "never.db", setting: value})

    assert list(tmp_path.iterdir()) == []


@pytest.mark.shows("R-CFG-08")
def test_retention_and_the_archive_are_settings_of_the_queue(make_queue: MakeQueue, file: Path) -> None:
    day = 86_400_000
    make_queue(num_workers=0)
    usual = settings_of(file)
    make_queue(num_workers=0, retention_days=60, archive=False)
    longer = settings_of(file)
    make_queue(num_workers=0, retention_days=0)
    endless = settings_of(file)

    assert (usual.keep_finished_ms, usual.keep_dead_ms, usual.archive) == (7 * day, 30 * day, True)
    assert (longer.keep_finished_ms, longer.keep_dead_ms, longer.archive) == (60 * day, 60 * day, False)
    assert (endless.keep_finished_ms, endless.keep_dead_ms) == (0, 0)


@pytest.mark.shows("R-HIST-14", "R-HIST-15", "R-HIST-09")
def test_what_is_forgotten_leaves_a_line_under_its_day(
    make_queue: MakeQueue, file: Path, clock: ManualClock
) -> None:
    queue = make_queue(num_workers=1, clock=clock)
    job_id = queue.submit(calls.add, 1)
    queue.get_result(job_id, timeout=DEADLINE)
    clock.advance(seconds=7 * 86_400 + 1)

    with opened(file) as app:
        lines = eventually(lambda: app.client.read(lambda reader: reader.archive(day="2027-01-15")))

    assert [line.id for line in lines] == [job_id]
    with pytest.raises(JobNotFoundError):
        queue.get_status(job_id)


@pytest.mark.shows("R-HIST-15", "R-BUG-09")
def test_the_archive_can_be_read_by_day_and_by_function(
    make_queue: MakeQueue, clock: ManualClock, key: str
) -> None:
    queue = make_queue(num_workers=1, clock=clock)
    greeted = queue.submit(calls.note, key, "grüße\n" * 100, job_id="greeted")
    assert queue.get_result(greeted, timeout=DEADLINE)
    with pytest.raises(JobFailedError):
        queue.get_result(queue.submit(calls.fail, key, "ValueError", job_id="failed"), timeout=DEADLINE)
    assert queue.get_result(queue.submit(calls.add, 40, 2, job_id="short"), timeout=DEADLINE) == 42
    day = datetime.fromtimestamp(clock.now_ms() / 1_000, UTC).date()
    clock.advance(seconds=30 * 86_400 + 1)

    lines = eventually(lambda: found if len(found := queue.get_archive()) == 3 else None)

    assert lines is not None
    by_id = {line.job_id: line for line in lines}
    done, dead = by_id["greeted"], by_id["failed"]
    assert (done.func, done.task_name) == ("tests.compat.calls:note", "note")
    assert (done.status, done.error_message) == ("completed", None)
    assert (by_id["short"].result_excerpt, done.archived_day) == ("42", day.isoformat())
    assert 150 < len(done.result_excerpt) <= 200
    assert done.result_excerpt.startswith('"grüße\\ngrüße')
    assert (dead.status, dead.result_excerpt, dead.retry_count) == ("failed", "", 0)
    assert "ValueError" in (dead.error_message or "")
    assert done.completed_at == done.created_at
    assert done.duration_seconds == 0
    assert queue.get_archive(day=day) == queue.get_archive(day=day.isoformat()) == lines
    assert queue.get_archive(day="2001-01-01") == []
    assert queue.get_archive(calls.fail, day) == queue.get_archive("tests.compat.calls:fail") == [dead]
    assert queue.get_archive(limit=1) == lines[:1]


@pytest.mark.parametrize("spec", [{"day": "yesterday"}, {"day": "2027-1-5"}, {"limit": 0}])
def test_a_request_for_the_archive_that_makes_no_sense_is_refused(idle: TaskQueue, spec: Any) -> None:
    with pytest.raises(ConfigError, match=next(iter(spec))):
        idle.get_archive(**spec)


@pytest.mark.parametrize("timeout", [0, -1, "soon"])
def test_a_time_limit_that_makes_no_sense_is_refused_by_the_name_its_users_know(
    idle: TaskQueue, timeout: Any
) -> None:
    with pytest.raises(ValueError, match="timeout_seconds"):
        idle.submit(calls.add, 1, timeout_seconds=timeout)

    assert sum(idle.get_queue_stats().values()) == 0


def test_recovery_cannot_be_switched_off(file: Path) -> None:
    with pytest.raises(ConfigError, match="enable_recovery=False is not possible"):
        TaskQueue(file, enable_recovery=False)

    assert not file.exists()


def test_what_a_task_queue_sets_on_its_queue_is_what_its_page_says(make_queue: MakeQueue, file: Path) -> None:
    make_queue(num_workers=0)

    settings = settings_of(file)

    assert (settings.mode, settings.min_priority, settings.max_priority) == ("strict", 0, 10)


def test_a_start_that_changes_nothing_writes_nothing(make_queue: MakeQueue, file: Path) -> None:
    def changes() -> int:
        with opened(file) as app:
            return len(app.client.read(lambda reader: reader.audit()))

    make_queue(num_workers=0)
    before = changes()
    make_queue(num_workers=0)

    assert changes() == before


@pytest.mark.shows("R-STORE-19", "R-EDGE-73")
def test_a_damaged_file_is_reported_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "damaged.db"
    with TaskQueue(file, num_workers=0) as queue:
        for number in range(200):
            queue.submit(calls.note, "x" * 100, number)
    _damage(file)

    with pytest.raises(StoreUnusable, match="damaged"):
        TaskQueue(file, num_workers=0)


@pytest.mark.shows("R-STORE-19")
def test_a_file_that_does_not_add_up_is_reported_at_the_start_unless_that_is_switched_off(file: Path) -> None:
    with TaskQueue(file, num_workers=0) as queue:
        queue.submit(calls.add, 1, job_id="kept")
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("insert or replace into forebay_queue_counts values ('default', 'completed', 5)")

    with pytest.raises(StoreUnusable, match="check_integrity=False"):
        TaskQueue(file, num_workers=0)

    with TaskQueue(file, num_workers=0, check_integrity=False) as queue:
        assert queue.get_status("kept").status == "pending"


def test_a_job_that_runs_without_a_lease_is_reported_at_the_start(file: Path) -> None:
    with TaskQueue(file, num_workers=0) as queue:
        queue.submit(calls.add, 1, job_id="odd")
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("update forebay_jobs set state = 'running' where id = 'odd'")

    with pytest.raises(StoreUnusable, match="odd is running without a lease"):
        TaskQueue(file, num_workers=0)


def _damage(file: Path) -> None:
    """Garbage in the last pages, as a broken disk leaves it."""
    data = bytearray(file.read_bytes())
    for start in range(len(data) // 2 // 4096 * 4096, len(data), 4096):
        data[start : start + 64] = b"\xa5" * 64
    file.write_bytes(data)


def test_a_worker_of_the_app_itself_runs_the_jobs_of_a_task_queue(
    idle: TaskQueue, file: Path, clock: ManualClock
) -> None:
    """The two share one table: what is submitted here is a job like any other."""
    job_id = idle.submit(calls.add, 1)

    with opened(file) as app:
        store = app.engine.store()
        answer = store.settle_and_claim(WorkerId("another"), claims=[QueueClaim(DEFAULT_QUEUE, 1)], room=1)
        store.close()

    assert [(job.id, job.task) for job in answer.jobs] == [(JobId(job_id), "tests.compat.calls:add")]


@pytest.mark.shows("R-SER-21")
def test_with_keys_the_file_holds_no_arguments_and_no_results(make_queue: MakeQueue, file: Path) -> None:
    queue = make_queue(num_workers=1, encryption_keys={"2026-11": b"k" * 32})

    assert queue.get_result(queue.submit(calls.note, "key", "a secret of ours"), timeout=DEADLINE)

    with closing(sqlite3.connect(file)) as stored:
        dump = "".join(stored.iterdump())
    assert "a secret of ours" not in dump
    assert b"a secret of ours".hex() not in dump.lower()
