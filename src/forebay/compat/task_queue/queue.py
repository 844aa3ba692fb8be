"""`TaskQueue`: functions as jobs in a SQLite file, with worker threads inside the program."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from datetime import date
from enum import IntEnum
from threading import Event, RLock
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote
from weakref import finalize

from msgspec.structs import replace

from forebay.app.app import Forebay
from forebay.app.job_options import CallOptions
from forebay.clock import Clock
from forebay.compat.queue_settings import configure
from forebay.compat.task_queue.errors import rename_errors
from forebay.compat.task_queue.function_import_poller import FunctionImportPoller
from forebay.compat.task_queue.function_registry import FunctionRegistry, bind_call, path_of
from forebay.compat.task_queue.job_records import (
    TASK_NAME,
    ArchivedJob,
    JobResult,
    build_archived_job,
    build_job_result,
    decode_stored_result,
)
from forebay.compat.task_queue.shutdown_gate import ShutdownGate
from forebay.deferred_interrupts import uninterrupted
from forebay.domain.durations_and_instants import duration_within
from forebay.domain.job import (
    DAY_MS,
    DEFAULT_QUEUE,
    MAX_TIMEOUT_MS,
    MIN_LEASE_MS,
    MIN_TIMEOUT_MS,
    Job,
    JobId,
)
from forebay.domain.job_query import MAX_PAGE, JobQuery, check_limit
from forebay.domain.job_states import JobState, Status, status_of
from forebay.domain.job_validation import check_integer, check_text
from forebay.domain.retry_policy import PRESETS, RetryPolicy
from forebay.errors import ConfigError, JobCancelled, JobFailed, JobNotFound, StoreUnusable, WaitTimeout
from forebay.worker.stop_timeouts import INTERRUPT_SECONDS
from forebay.worker.worker import Worker

MAX_PRIORITY: Final = 10
POLL_SECONDS: Final = 0.1
POLICY: Final = PRESETS["cap_5m"]
MAX_WORKERS: Final = 1_000
_STOP_POLL_SECONDS: Final = 0.02
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")


class PriorityLevel(IntEnum):
    """Named priorities; a lower number is more urgent, as in task tables."""

    CRITICAL = 0
    HIGH = 1
    MEDIUM = 2
    LOW = 3

    @property
    def priority(self) -> int:
        """The priority on Forebay's scale of 0 to 10, where a higher number is more urgent."""
        return {
            PriorityLevel.CRITICAL: 10,
            PriorityLevel.HIGH: 7,
            PriorityLevel.MEDIUM: 3,
            PriorityLevel.LOW: 0,
        }[self]


class TaskQueue:
    """Runs functions on worker threads of this program; the jobs are kept in a SQLite file.

        queue = TaskQueue("taskqueue.db", num_workers=4)
        job_id = queue.submit(send, "ada@example.com", priority=5)
        queue.get_result(job_id, timeout=10)
        queue.shutdown()

    The workers start at once, as users expect; with `num_workers=0` this program only submits. A function
    is stored by its name, so a program must be able to import it. With `encryption_keys` (by id, the newest
    first) arguments and results are unreadable in the file. Settings without a meaning here are checked and
    otherwise ignored; docs/guide/task-queue.md lists them with the reasons.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the settings that its users know
        self,
        db_path: str | os.PathLike[str] = "taskqueue.db",
        num_workers: int = 4,
        poll_interval: float = 0.5,
        lease_duration: float = 300.0,
        heartbeat_interval: float = 30.0,
        heartbeat_failure_threshold: int = 3,
        enable_recovery: bool = True,
        retention_days: int = 7,
        cleanup_interval_hours: float = 24,
        cleanup_batch_size: int = 1000,
        max_write_retries: int = 3,
        *,
        archive: bool = True,
        check_integrity: bool = True,
        encryption_keys: Mapping[str, bytes | str] | str | None = None,
        clock: Clock | None = None,
    ) -> None:
        check_integer("num_workers", num_workers, 0, MAX_WORKERS)
        check_integer("retention_days", retention_days, 0, 36_600)
        self._lease = lease_duration
        _check_lease(lease_duration, heartbeat_interval)
        _check_positive(
            poll_interval=poll_interval,
            heartbeat_failure_threshold=heartbeat_failure_threshold,
            cleanup_interval_hours=cleanup_interval_hours,
            cleanup_batch_size=cleanup_batch_size,
        )
        check_integer("max_write_retries", max_write_retries, 0, 1_000)
        _check_switches(enable_recovery=enable_recovery, archive=archive, check_integrity=check_integrity)
        if not enable_recovery:
            raise ConfigError(
                "enable_recovery=False is not possible: each program that works on a file takes back the "
                "jobs of dead ones; leave it out, and make lease_duration longer if jobs seem lost too soon"
            )
        self._app = Forebay(_build_url(db_path), encryption_keys=encryption_keys, clock=clock)
        self._functions = FunctionRegistry(self._app, DEFAULT_QUEUE)
        self._importer = FunctionImportPoller(self._app, DEFAULT_QUEUE, self._functions)
        # The file is closed with the queue object itself, so that a stopped queue still answers queries.
        self._finalizer = finalize(self, _release, self._importer, self._app)
        self._shutdown_gate = ShutdownGate(
            "this queue was shut down; make another TaskQueue on the same file"
        )
        self._worker: Worker | None = None
        self._close_lock = RLock()
        self._unstopped = 0
        try:
            self._open(check_integrity, _build_queue_settings(retention_days, archive))
            self._start(num_workers)
        except BaseException:
            self._finalizer()
            raise

    def _open(self, check_integrity: bool, settings: dict[str, object]) -> None:
        configure(self._app, DEFAULT_QUEUE, settings)
        if not check_integrity:
            return
        problems = self._app.client.read(lambda reader: reader.health()).problems
        if problems:
            raise StoreUnusable(
                f"the queue's file is damaged ({'; '.join(problems):.500}): restore a copy of it, "
                "or go on at your own risk with check_integrity=False"
            )

    def _start(self, num_workers: int) -> None:
        if not num_workers:
            return
        self._worker = Worker(
            self._app.engine,
            self._app.registry,
            queues=[DEFAULT_QUEUE],
            threads=num_workers,
            clock=self._app.clock,
        )
        self._importer.start()
        self._worker.start()

    # Jobs

    def submit(
        self,
        func: Callable[..., Any],
        /,
        *args: Any,
        priority: int = 0,
        max_retries: int = 3,
        timeout_seconds: float | None = None,
        task_name: str | None = None,
        job_id: str | None = None,
        **kwargs: Any,
    ) -> str:
        """Enqueue a call of a function; return the job's id when it is stored safely.

        A taken `job_id` raises DuplicateJob; a queue that was shut down raises RuntimeError. For an argument
        of the function that is called like an option here, use `functools.partial(func, priority=...)`.
        """
        call = bind_call(func, args, kwargs)
        options = _build_options(priority, max_retries, timeout_seconds, task_name, job_id)
        options["lease"] = self._lease
        with uninterrupted, self._shutdown_gate.enter(), rename_errors():
            task = self._functions.task(call.func).using(**options)
            return task.enqueue(*call.args, **call.kwargs).id

    def get_status(self, job_id: str) -> JobResult:
        """Return the job's present state; raise JobNotFoundError for an unknown id."""
        job = self._require_job(job_id)
        result = build_job_result(job, self._decode_result(job))
        cause = self._functions.why_missing(job.task) if job.state is JobState.PENDING else None
        if cause is None:
            return result
        return replace(result, error_message=f"{job.task} cannot be imported here: {cause}")

    def get_result(self, job_id: str, timeout: float | None = None) -> Any:
        """Wait for the return value of the function; None waits for ever, 0 looks once.

        Raises TimeoutError, JobFailedError with the error's text, JobCancelledError or JobNotFoundError.
        """
        deadline = None if timeout is None else monotonic() + timeout
        nap = Event()
        while not (job := self._require_job(job_id)).is_final:
            seconds = POLL_SECONDS if deadline is None else min(POLL_SECONDS, deadline - monotonic())
            if seconds <= 0:
                raise WaitTimeout(
                    f"job {job_id} is {job.state} after {timeout:g} s; it goes on",
                    job_id=job_id,
                    state=job.state.value,
                )
            nap.wait(seconds)
        return self._result_or_error(job)

    def _result_or_error(self, job: Job) -> Any:
        with rename_errors():
            if job.state is JobState.CANCELLED:
                raise JobCancelled(f"job {job.id} was cancelled: {job.reason}")
            if job.state is JobState.DEAD:
                raise JobFailed(f"job {job.id} failed for good: {job.reason}")
        return self._decode_result(job)

    def cancel(self, job_id: str) -> bool:
        """Cancel a waiting job, ask a running one to stop; return False if it has ended already."""
        job = self._require_job(job_id)
        [result] = self._app.client.cancel([job.id])
        return result.applied

    def get_queue_stats(self) -> dict[str, int]:
        """Return the number of jobs by status, also for those without jobs."""
        counts = self._app.counts(DEFAULT_QUEUE).get(DEFAULT_QUEUE)
        stats = {status.value: 0 for status in Status}
        for state in JobState:
            stats[status_of(state).value] += getattr(counts, state.value, 0)
        return stats

    def get_archive(
        self,
        func: Callable[..., Any] | str | None = None,
        day: date | str | None = None,
        limit: int = 100,
    ) -> list[ArchivedJob]:
        """Return archived jobs, the last ended first: of one function, of one UTC day.

        A function is given as such, or by its stored name `module:name`.
        """
        path = func if func is None or isinstance(func, str) else path_of(bind_call(func, (), {}).func)
        on = None if day is None else _check_day(day)
        check_limit(limit)
        lines = self._app.client.read(lambda reader: reader.archive(day=on, task=path, limit=limit))
        return [build_archived_job(line) for line in lines]

    def _require_job(self, job_id: str) -> Job:
        job = self._app.client.job(JobId(job_id))
        if job is None:
            with rename_errors():
                raise JobNotFound(f"there is no job {job_id}")
        return job

    def _decode_result(self, job: Job) -> Any:
        if job.state is not JobState.COMPLETED:
            return None
        return self._app.registry.coerce_result(job.task, decode_stored_result(job))

    # Shutdown

    def shutdown(self, wait: bool = True, timeout: float = 30.0) -> int:
        """Take no more jobs and let running ones end; return how many workers have not stopped.

        `timeout` is for everything together: near its end functions that still run are asked to stop, and
        their jobs are handed back. Jobs that were not started stay stored for the next start. Without `wait`
        it returns at once and all this goes on in the background. A second call changes nothing. An error
        that crashed a thread of the queue is raised here, after everything has stopped.
        """
        deadline = monotonic() + timeout
        self._shutdown_gate.close(timeout if wait else 0)
        worker = self._worker
        if worker is None or not self._finalizer.alive:
            return self._unstopped
        worker.request_stop(max(timeout - INTERRUPT_SECONDS, timeout / 2))
        if wait:
            try:
                self._importer.stop()
            finally:
                _wait_until_stopped(worker, deadline)
        self._unstopped = self._count_running(worker)
        return self._unstopped

    def _count_running(self, worker: Worker) -> int:
        """Return the number of jobs that run: one for each worker thread that has not stopped."""
        query = JobQuery(queues=(DEFAULT_QUEUE,), states=(JobState.RUNNING,))
        return sum(job.worker == worker.id for job in self._app.search(query, limit=MAX_PAGE).jobs)

    def close(self) -> None:
        """Shut down and close the file; no method can be called afterwards. Closing twice is fine."""
        # Under a lock: a second thread could read a file that the first one has just closed.
        with self._close_lock:
            if not self._finalizer.alive:
                return
            try:
                self.shutdown()
            finally:
                self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _release(importer: FunctionImportPoller, app: Forebay) -> None:
    try:
        importer.stop()
    finally:
        app.close()


def _wait_until_stopped(worker: Worker, deadline: float) -> None:
    while not worker.is_over and monotonic() < deadline:
        Event().wait(_STOP_POLL_SECONDS)
    if worker.is_over:
        worker.stop()


def _build_options(
    priority: int,
    max_retries: int,
    timeout_seconds: float | None,
    task_name: str | None,
    job_id: str | None,
) -> CallOptions:
    level = priority.priority if isinstance(priority, PriorityLevel) else priority
    check_integer("priority", level, 0, MAX_PRIORITY)
    policy: RetryPolicy = replace(POLICY, max_retries=max_retries)
    options = CallOptions(priority=level, retry_policy=policy, timeout=timeout_seconds)
    # Checked here too, so that errors use the names that the caller has written.
    if timeout_seconds is not None:
        duration_within("timeout_seconds", timeout_seconds, MIN_TIMEOUT_MS, MAX_TIMEOUT_MS)
    if task_name is not None:
        check_text("task_name", task_name)
        options["metadata"] = {TASK_NAME: task_name}
    if job_id is not None:
        check_text("job_id", job_id)
        options["id"] = job_id
    return options


def _build_queue_settings(retention_days: int, archive: bool) -> dict[str, object]:
    """Return the settings. 0 days keep everything; else dead letters stay at least 30 days."""
    retention_ms = retention_days * DAY_MS
    return {
        "mode": "strict",
        "max_priority": MAX_PRIORITY,
        "min_priority": 0,
        "keep_finished_ms": retention_ms,
        "keep_dead_ms": max(retention_ms, 30 * DAY_MS) if retention_ms else 0,
        "archive": archive,
    }


def _build_url(db_path: str | os.PathLike[str]) -> str:
    path = os.fsdecode(db_path)
    if not path:
        raise ConfigError("db_path must name a file, not an empty text")
    # Quoted, because a path may contain what has a meaning in a URL: ? and # and %.
    return "memory://" if path == ":memory:" else f"sqlite:///{quote(path)}"


def _check_day(day: date | str) -> str:
    """Return a day as the archive writes it; any other text would find nothing."""
    text = day.isoformat() if type(day) is date else day
    if not isinstance(text, str) or not _DAY.fullmatch(text):
        raise ConfigError(f"day must be a date or a text like '2027-01-15', not {day!r:.60}")
    return text


def _check_lease(lease_duration: float, heartbeat_interval: float) -> None:
    duration_within("lease_duration", lease_duration, MIN_LEASE_MS, DAY_MS)
    duration_within("heartbeat_interval", heartbeat_interval, 1, DAY_MS)
    if heartbeat_interval >= lease_duration:
        raise ConfigError(
            f"heartbeat_interval ({heartbeat_interval:g} s) must be shorter than lease_duration "
            f"({lease_duration:g} s)"
        )


def _check_positive(**settings: float) -> None:
    for name, value in settings.items():
        if type(value) not in (int, float) or not value > 0:
            raise ConfigError(f"{name} must be a number above 0, not {value!r:.60}")


def _check_switches(**settings: bool) -> None:
    for name, value in settings.items():
        if type(value) is not bool:
            raise ConfigError(f"{name} must be True or False, not {value!r:.60}")
