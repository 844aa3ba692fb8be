"""`WorkQueue`: a table of tasks that programs take from, work on, and mark."""

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
from forebay.domain.durations import duration_within
from forebay.domain.job import (
    DAY_MS,
    DEFAULT_QUEUE,
    MIN_LEASE_MS,
    Job,
    JobId,
    JobSummary,
    QueueName,
    check_integer,
    check_queue_name,
)
from forebay.domain.lifecycle import WAITING, JobState
from forebay.domain.outcome import AttemptError, Discarded, Interrupted, Outcome
from forebay.domain.query import MAX_PAGE, JobQuery
from forebay.domain.retry import MAX_DELAY_MS, MAX_RETRIES, RetryPolicy
from forebay.errors import ConfigError, StoreUnusable
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.values import BATCH

SIZE: Final = 5
MAX_SIZE: Final = 1_000
# How long tasks that nobody asked for may be kept from others by a program that dies at that very moment.
ASIDE_SECONDS: Final = 10.0
MAX_POSITIONS: Final = 100


class WorkQueue:
    """Tasks in a store: enqueue, dequeue, mark.

        queue = WorkQueue("sqlite:///data/queue.db")
        queue.enqueue([WorkTask(items=["a.png", "b.png"])])
        for task in queue.dequeue():
            work(task.items)
            queue.mark_as_complete(task)

    A dequeued task belongs to this queue object until its visibility time-out; then others may have it, and
    marks that come too late answer False. May be used from several threads. With `encryption_keys` (by id,
    the newest first) what tasks hold is unreadable in the store.
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
        # A batch is one transaction whatever its size, so this is checked and means nothing.
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
            # First come, first served: a task that failed keeps its place, before all that never ran.
            configure(self._app, self._queue, {"mode": "fifo"})
        except BaseException:
            self._app.close()
            raise

    # Tasks come and go

    def enqueue(self, tasks: Sequence[WorkTask]) -> list[str]:
        """Store tasks, all in one transaction; answers the ids that are new. A taken id is ignored."""
        jobs = [new_job(task, self._queue, self._policy) for task in tasks]
        return [handle.id for handle in self._app.client.enqueue(jobs, on_conflict="ignore") if handle.is_new]

    def dequeue(self, size: int = SIZE, visibility_timeout: float | None = None) -> list[WorkTask]:
        """Take up to `size` tasks that are due, oldest first; for 3600 seconds, or as the queue was told."""
        return [work_task(job) for job in self._claim_jobs(size, visibility_timeout)]

    def retry(
        self, size: int = SIZE, visibility_timeout: float | None = None, max_attempts: int | None = None
    ) -> list[WorkTask]:
        """Take up to `size` tasks that were tried before and are due again: RETRYABLE ones after their delay,
        and PROCESSING ones whose visibility has lapsed.

        Those with `max_attempts` or more (3, or as the queue was told) are discarded instead. A task that
        was never tried is not given out, whatever its place.
        """
        most = self._max_attempts if max_attempts is None else max_attempts
        check_integer("max_attempts", most, 1, MAX_RETRIES + 1)
        check_integer("size", size, 1, MAX_SIZE)
        visible = self._visibility_of(visibility_timeout)
        self.requeue_expired()
        places = self._find_tried_positions()[:size]
        if not places:
            return []
        # A store gives out tasks in order, and none by its id. So what stands before the last of them is
        # taken along, and handed back at once. A task that goes back to waiting keeps the place from which
        # it was once taken: with equal priorities those that were tried stand before all others, and nothing
        # has to be taken along. Others may take or add tasks after the look, so only what was claimed tells
        # what is whose; until that is settled nothing is kept for long.
        claimed = self._consumer.claim(places[-1], queue=self._queue, lease=min(visible, ASIDE_SECONDS))
        again = [job for job in claimed if 0 < tries(job) < most][:size]
        self._settle_others([job for job in claimed if job not in again], most)
        return [work_task(job) for job in self._renew_and_reload(again, visible)]

    def _find_tried_positions(self) -> list[int]:
        """Where tasks that were tried before stand among those that can be claimed, in order, from 1 on."""
        while self._app.client.write(lambda store: store.promote()) >= BATCH:
            pass
        following = self._app.peek(self._queue, MAX_PAGE)
        tried = set(self._select_tried(following))
        places = [place for place, job in enumerate(following, start=1) if job.id in tried]
        return places if places or len(following) < MAX_PAGE else self._scan_tried_positions()

    def _scan_tried_positions(self) -> list[int]:
        """The same by a look at all tasks that wait, page by page: none of those in front was tried."""
        query = JobQuery(queues=(self._queue,), states=(JobState.PENDING,))
        tried: list[JobId] = []
        page = self._app.search(query, limit=MAX_PAGE)
        tried += self._select_tried(page.jobs)
        while page.after is not None:
            page = self._app.search(query, limit=MAX_PAGE, after=page.after)
            tried += self._select_tried(page.jobs)
        # The newest come first. Each place is a question of its own, so only the oldest are asked about.
        places = [self._app.client.read(partial(_find_position, job_id)) for job_id in tried[-MAX_POSITIONS:]]
        # Further back its place is only guessed; it comes closer with each task that is done.
        return sorted(place for place in places if place is not None and place <= MAX_CLAIM)

    def _select_tried(self, jobs: Iterable[JobSummary]) -> list[JobId]:
        records = self._app.client.jobs([job.id for job in jobs if job.attempt])
        return [job.id for job in records if job is not None and tries(job)]

    def _renew_and_reload(self, jobs: Sequence[Job], visible: float) -> list[Job]:
        """Keep tasks for as long as was asked for; those that are lost by now are left out."""
        if not jobs:
            return []
        kept = self._consumer.renew(jobs, lease=visible)
        attempts = {job.id: job.attempt for job, is_kept in zip(jobs, kept, strict=True) if is_kept}
        # Read again for the new ends of their leases.
        records = self._app.client.jobs(list(attempts))
        return [job for job in records if job is not None and job.attempt == attempts[job.id]]

    def _settle_others(self, jobs: Sequence[Job], max_attempts: int) -> None:
        """Discard what was tried too often. Hand back the rest: it stood in front, or somebody was quicker
        than we after the look, and we have taken what came next. It counts as never taken."""
        untouched = Interrupted(started=False)
        endings: list[tuple[Job, Outcome]] = [
            (job, _exhausted_outcome(tries(job), max_attempts) if tries(job) >= max_attempts else untouched)
            for job in jobs
        ]
        if endings:
            self._consumer.settle(endings)

    def get(self, task_id: str) -> WorkTask | None:
        """The task as it is now; None if there is none."""
        job = self._app.client.job(JobId(task_id))
        return None if job is None else work_task(job)

    # Marks: True if the task was moved, False if it is untouched

    def mark_as_complete(self, task: WorkTask, result: Any = None) -> bool:
        """PROCESSING to COMPLETED."""
        return task.lease is not None and self._consumer.complete(task.lease, result)

    def mark_as_retry(self, task: WorkTask, error: BaseException | str) -> bool:
        """PROCESSING to RETRYABLE, with the error; to DISCARDED when its attempts are used up."""
        return task.lease is not None and self._consumer.fail(task.lease, error)

    def mark_as_discarded(self, task: WorkTask, error: BaseException | str = "discarded") -> bool:
        """PROCESSING to DISCARDED."""
        return task.lease is not None and self._consumer.discard(task.lease, error)

    def mark_as_cancelled(self, task: WorkTask | str, reason: str = "cancelled") -> bool:
        """PENDING to CANCELLED; from no other state."""
        job_id = _id(task)
        if not self._is_in(job_id, WAITING - {JobState.RETRYING}):
            return False
        # Claimed since that look, it is asked to stop: it may still complete, but will not be tried again.
        [verdict] = self._app.client.cancel([job_id], reason)
        return verdict.state is JobState.CANCELLED and verdict.applied

    def mark_as_resume(self, task: WorkTask | str) -> bool:
        """DISCARDED to PENDING, with fresh attempts."""
        job_id = _id(task)
        return self._is_in(job_id, [JobState.DEAD]) and self._consumer.revive(job_id)

    def _is_in(self, job_id: JobId, states: Iterable[JobState]) -> bool:
        job = self._app.client.job(job_id)
        return job is not None and job.state in states

    # The same under the words of work queues

    def claim(self, visibility_timeout: float | None = None) -> WorkTask | None:
        """Take the next task; None if there is none."""
        return next(iter(self.dequeue(1, visibility_timeout)), None)

    def heartbeat(self, task: WorkTask, visibility_timeout: float | None = None) -> bool:
        """Keep a task for longer, counted from now; False if it is lost."""
        lease = self._visibility_of(visibility_timeout)
        return task.lease is not None and self._consumer.renew([task.lease], lease=lease)[0]

    def complete(self, task: WorkTask, result: Any = None) -> bool:
        """It is done."""
        return self.mark_as_complete(task, result)

    def fail(self, task: WorkTask, error: BaseException | str) -> bool:
        """It went wrong; tried again after a delay while it has attempts."""
        return self.mark_as_retry(task, error)

    def requeue_expired(self) -> int:
        """Take back what nobody has kept visible; answers how many tasks. A dequeue does so by and by.

        This acts at once and, other than a dequeue, does not hold back after a step of the store's clock.
        """
        return self._app.sweep()

    # Inside

    def _claim_jobs(self, size: int, visibility_timeout: float | None) -> list[Job]:
        check_integer("size", size, 1, MAX_SIZE)
        return self._consumer.claim(size, queue=self._queue, lease=self._visibility_of(visibility_timeout))

    def _visibility_of(self, seconds: float | None) -> float:
        return self._visibility if seconds is None else _check_visibility("visibility_timeout", seconds)

    def close(self) -> None:
        """Let go of the store. What is still held becomes visible again in its time."""
        self._consumer.close()
        self._app.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _find_position(job_id: JobId, reader: Reader) -> int | None:
    """Where a pending task stands, from 1 on; None if somebody has taken it meanwhile."""
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
    """The folder of the file: the usual address names one that a new project does not have."""
    parts = urlsplit(url)
    if parts.scheme != "sqlite":
        return
    folder = Path(unquote(parts.path[1:])).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise StoreUnusable(f"the folder '{folder}' cannot be made ({exc}); name another file") from exc
