"""`WorkQueue`: a table of tasks that programs dequeue, process and mark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

from forebay.app.app import Forebay
from forebay.app.consumer import MAX_CLAIM
from forebay.clock import Clock
from forebay.compat.queue_settings import configure
from forebay.compat.work_queue.task import WorkTask, new_job, tries, work_task
from forebay.domain.durations_and_instants import duration_within
from forebay.domain.job import DAY_MS, DEFAULT_QUEUE, MIN_LEASE_MS, Job, JobId, QueueName
from forebay.domain.job_query import MAX_PAGE, JobQuery
from forebay.domain.job_states import WAITING, JobState
from forebay.domain.job_validation import check_integer, check_queue_name
from forebay.domain.job_views import JobSummary
from forebay.domain.outcome import AttemptError, Discarded, Interrupted, Outcome
from forebay.domain.retry_policy import MAX_DELAY_MS, MAX_RETRIES, RetryPolicy
from forebay.errors import ConfigError, StoreUnusable
from forebay.stores.contract.claims_and_results import BATCH
from forebay.stores.contract.reader import Reader

SIZE: Final = 5
MAX_SIZE: Final = 1_000
# Lease of tasks that are claimed only to be handed back: a program that dies then holds them for this long.
ASIDE_SECONDS: Final = 10.0
MAX_POSITIONS: Final = 100


class WorkQueue:
    """Tasks in a store: enqueue, dequeue, mark.

        queue = WorkQueue("sqlite:///data/queue.db")
        queue.enqueue([WorkTask(items=["a.png", "b.png"])])
        for task in queue.dequeue():
            work(task.items)
            queue.mark_as_complete(task)

    A dequeued task belongs to this queue object until its visibility time-out. Then others may dequeue it,
    and marks that come too late return False. Thread-safe. With `encryption_keys` (by id, the newest first)
    the content of tasks is unreadable in the store.
    """

    def __init__(  # noqa: PLR0913 - the settings that its users know
        self,
        database_url: str = "sqlite:///data/queue.db",
        *,
        default_max_attempts: int = 3,
        default_visibility_timeout: float = 3600,
        retry_backoff_multiplier: float = 2.0,
        retry_base_delay: float = 60,
        max_retry_delay: float = 3600,
        batch_size: int = 100,
        queue: str = DEFAULT_QUEUE,
        encryption_keys: Mapping[str, bytes | str] | str | None = None,
        clock: Clock | None = None,
    ) -> None:
        check_queue_name(queue)
        check_integer("default_max_attempts", default_max_attempts, 1, MAX_RETRIES + 1)
        # A batch is one transaction whatever its size, so this is checked and has no effect.
        check_integer("batch_size", batch_size, 1, 1_000_000)
        self._max_attempts = default_max_attempts
        self._visibility = _check_visibility("default_visibility_timeout", default_visibility_timeout)
        self._policy = RetryPolicy(
            max_retries=default_max_attempts - 1,
            max_crashes=default_max_attempts - 1,
            base_ms=duration_within("retry_base_delay", retry_base_delay, 0, MAX_DELAY_MS),
            factor=_check_multiplier(retry_backoff_multiplier),
            floor_ms=0,
            ceiling_ms=duration_within("max_retry_delay", max_retry_delay, 0, MAX_DELAY_MS),
            jitter_high=0.0,
        )
        self._queue = QueueName(queue)
        self._app = Forebay(database_url, encryption_keys=encryption_keys, clock=clock)
        self._consumer = self._app.consumer()
        try:
            _make_folder(database_url)
            # In order of arrival: a failed task keeps its rank, before all that never ran.
            configure(self._app, self._queue, {"mode": "fifo"})
        except BaseException:
            self._app.close()
            raise

    # Enqueue and dequeue

    def enqueue(self, tasks: Sequence[WorkTask]) -> list[str]:
        """Enqueue tasks in one transaction; return the ids that are new. A taken id is ignored."""
        jobs = [new_job(task, self._queue, self._policy) for task in tasks]
        return [handle.id for handle in self._app.client.enqueue(jobs, on_conflict="ignore") if handle.is_new]

    def dequeue(self, size: int = SIZE, visibility_timeout: float | None = None) -> list[WorkTask]:
        """Take up to `size` due tasks, oldest first; for 3600 seconds, or the time-out of the queue."""
        return [work_task(job) for job in self._claim_jobs(size, visibility_timeout)]

    def retry(
        self, size: int = SIZE, visibility_timeout: float | None = None, max_attempts: int | None = None
    ) -> list[WorkTask]:
        """Take up to `size` tasks that were tried before and are due again: RETRYABLE ones after their delay,
        and PROCESSING ones whose visibility has lapsed.

        Those with `max_attempts` or more (3, or the setting of the queue) are discarded instead. A task that
        was never tried is not taken, whatever its rank.
        """
        allowed = self._max_attempts if max_attempts is None else max_attempts
        check_integer("max_attempts", allowed, 1, MAX_RETRIES + 1)
        check_integer("size", size, 1, MAX_SIZE)
        visible = self._visibility_of(visibility_timeout)
        self.requeue_expired()
        positions = self._find_tried_positions()[:size]
        if not positions:
            return []
        # A store claims tasks in order, and none by its id. So the tasks in front of the last wanted one are
        # claimed too, and handed back at once. A retried task keeps its rank: with equal priorities tasks
        # that were tried come before all others, and no other task has to be claimed. Other programs may
        # claim or add tasks after the search, so only the claim itself decides. Until the rest is handed
        # back, leases are short.
        claimed = self._consumer.claim(positions[-1], queue=self._queue, lease=min(visible, ASIDE_SECONDS))
        retried = [job for job in claimed if 0 < tries(job) < allowed][:size]
        self._settle_others([job for job in claimed if job not in retried], allowed)
        return [work_task(job) for job in self._renew_and_reload(retried, visible)]

    def _find_tried_positions(self) -> list[int]:
        """Return the positions of tried tasks among those that can be claimed, in order, from 1 on."""
        while self._app.client.write(lambda store: store.promote()) >= BATCH:
            pass
        following = self._app.peek(self._queue, MAX_PAGE)
        tried = set(self._select_tried(following))
        positions = [position for position, job in enumerate(following, start=1) if job.id in tried]
        return positions if positions or len(following) < MAX_PAGE else self._scan_tried_positions()

    def _scan_tried_positions(self) -> list[int]:
        """Return the same by a scan of all waiting tasks, page by page: no task in front was tried."""
        query = JobQuery(queues=(self._queue,), states=(JobState.PENDING,))
        tried: list[JobId] = []
        page = self._app.search(query, limit=MAX_PAGE)
        tried += self._select_tried(page.jobs)
        while page.after is not None:
            page = self._app.search(query, limit=MAX_PAGE, after=page.after)
            tried += self._select_tried(page.jobs)
        # The newest come first. Each position costs one query, so only the oldest are queried.
        positions = [
            self._app.client.read(partial(_find_position, job_id)) for job_id in tried[-MAX_POSITIONS:]
        ]
        # Further back the position is a guess; it gets better with each task that is done.
        return sorted(position for position in positions if position is not None and position <= MAX_CLAIM)

    def _select_tried(self, jobs: Iterable[JobSummary]) -> list[JobId]:
        records = self._app.client.jobs([job.id for job in jobs if job.attempt])
        return [job.id for job in records if job is not None and tries(job)]

    def _renew_and_reload(self, jobs: Sequence[Job], visible: float) -> list[Job]:
        """Renew the leases for the visibility time-out; leave out tasks that are lost by now."""
        if not jobs:
            return []
        renewed = self._consumer.renew(jobs, lease=visible)
        attempts = {job.id: job.attempt for job, is_renewed in zip(jobs, renewed, strict=True) if is_renewed}
        # Read again for the new ends of the leases.
        records = self._app.client.jobs(list(attempts))
        return [job for job in records if job is not None and job.attempt == attempts[job.id]]

    def _settle_others(self, jobs: Sequence[Job], max_attempts: int) -> None:
        """Discard tasks that were tried too often. Hand back the rest: tasks in front, or, if another program
        was faster after the search, the next ones. They count as never claimed."""
        untouched = Interrupted(started=False)
        outcomes: list[tuple[Job, Outcome]] = [
            (job, _exhausted_outcome(tries(job), max_attempts) if tries(job) >= max_attempts else untouched)
            for job in jobs
        ]
        if outcomes:
            self._consumer.settle(outcomes)

    def get(self, task_id: str) -> WorkTask | None:
        """Return the task's present state; None if there is none."""
        job = self._app.client.job(JobId(task_id))
        return None if job is None else work_task(job)

    # Marks: True if the state has changed, False if the task is untouched

    def mark_as_complete(self, task: WorkTask, result: Any = None) -> bool:
        """Mark as done: PROCESSING to COMPLETED."""
        return task.lease is not None and self._consumer.complete(task.lease, result)

    def mark_as_retry(self, task: WorkTask, error: BaseException | str) -> bool:
        """Mark as failed: PROCESSING to RETRYABLE; to DISCARDED after the last attempt."""
        return task.lease is not None and self._consumer.fail(task.lease, error)

    def mark_as_discarded(self, task: WorkTask, error: BaseException | str = "discarded") -> bool:
        """Discard: PROCESSING to DISCARDED."""
        return task.lease is not None and self._consumer.discard(task.lease, error)

    def mark_as_cancelled(self, task: WorkTask | str, reason: str = "cancelled") -> bool:
        """Cancel: PENDING to CANCELLED; no other state changes."""
        job_id = _id(task)
        if not self._is_in(job_id, WAITING - {JobState.RETRYING}):
            return False
        # If it was claimed after that look, it is asked to stop: it may still complete, but has no retry.
        [result] = self._app.client.cancel([job_id], reason)
        return result.state is JobState.CANCELLED and result.applied

    def mark_as_resume(self, task: WorkTask | str) -> bool:
        """Revive: DISCARDED to PENDING, with fresh attempts."""
        job_id = _id(task)
        return self._is_in(job_id, [JobState.DEAD]) and self._consumer.revive(job_id)

    def _is_in(self, job_id: JobId, states: Iterable[JobState]) -> bool:
        job = self._app.client.job(job_id)
        return job is not None and job.state in states

    # The same calls under the words of work queues

    def claim(self, visibility_timeout: float | None = None) -> WorkTask | None:
        """Take the next task; return None if there is none."""
        return next(iter(self.dequeue(1, visibility_timeout)), None)

    def heartbeat(self, task: WorkTask, visibility_timeout: float | None = None) -> bool:
        """Renew the task's lease, counted from now; return False if the task is lost."""
        lease = self._visibility_of(visibility_timeout)
        return task.lease is not None and self._consumer.renew([task.lease], lease=lease)[0]

    def complete(self, task: WorkTask, result: Any = None) -> bool:
        """Mark the task as done."""
        return self.mark_as_complete(task, result)

    def fail(self, task: WorkTask, error: BaseException | str) -> bool:
        """Mark the task as failed; it is retried after a delay while it has attempts."""
        return self.mark_as_retry(task, error)

    def requeue_expired(self) -> int:
        """Take back tasks whose visibility has lapsed; return how many. Each dequeue does so for some.

        This acts at once and, unlike a dequeue, does not hold back after a step of the store's clock.
        """
        return self._app.sweep()

    # Private

    def _claim_jobs(self, size: int, visibility_timeout: float | None) -> list[Job]:
        check_integer("size", size, 1, MAX_SIZE)
        return self._consumer.claim(size, queue=self._queue, lease=self._visibility_of(visibility_timeout))

    def _visibility_of(self, seconds: float | None) -> float:
        return self._visibility if seconds is None else _check_visibility("visibility_timeout", seconds)

    def close(self) -> None:
        """Close the store. Tasks still held become visible again after their time-out."""
        self._consumer.close()
        self._app.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _find_position(job_id: JobId, reader: Reader) -> int | None:
    """Return the position of a pending task, from 1 on; None if another program has claimed it."""
    position = reader.position(job_id)
    return None if position is None else position.ahead + 1


def _check_visibility(name: str, seconds: float) -> float:
    return duration_within(name, seconds, MIN_LEASE_MS, DAY_MS) / 1_000


def _check_multiplier(value: float) -> float:
    if type(value) not in (int, float) or not 1 <= value < inf:
        raise ConfigError(f"retry_backoff_multiplier must be a number of at least 1, not {value!r:.60}")
    return value


def _id(task: WorkTask | str) -> JobId:
    return JobId(task.id if isinstance(task, WorkTask) else task)


def _exhausted_outcome(attempts: int, max_attempts: int) -> Discarded:
    return Discarded(
        AttemptError(type="Discarded", message=f"tried {attempts} times, {max_attempts} are allowed")
    )


def _make_folder(url: str) -> None:
    """Create the folder of the file: the default URL names one that a new project does not have."""
    parts = urlsplit(url)
    if parts.scheme != "sqlite":
        return
    folder = Path(unquote(parts.path[1:])).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise StoreUnusable(f"the folder '{folder}' cannot be made ({exc}); name another file") from exc
