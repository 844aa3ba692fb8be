"""In-memory buffer for jobs that are enqueued while the store is unavailable."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from itertools import islice
from threading import Condition, Thread, current_thread
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from msgspec.structs import replace

from forebay.app.job_handle import JobHandle
from forebay.deferred_interrupts import uninterrupted, wait_for
from forebay.domain.durations_and_instants import Duration, duration_ms
from forebay.domain.job import JobId, NewJob
from forebay.domain.job_validation import check_integer
from forebay.errors import (
    InvalidJob,
    QueueFull,
    RateLimited,
    StoreBusy,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    TooManyRequests,
)
from forebay.stores.contract.claims_and_results import InsertResult
from forebay.stores.id_generator import new_id

if TYPE_CHECKING:
    from forebay.app.app import Forebay

MAX_JOBS: Final = 1_000
BATCH_SIZE: Final = 100
FIRST_PAUSE_SECONDS: Final = 0.1
MAX_PAUSE_SECONDS: Final = 5.0

logger: logging.Logger = logging.getLogger(__name__)


class Buffer:
    """Accepts jobs while the store is unavailable, and stores them in order when it is back.

        with Buffer(app) as buffer:
            buffer.enqueue(send.job("ada@example.com"))

    Not durable: waiting jobs are in the memory of this process, and are lost with it. Up to `max_jobs` jobs
    wait. Then the next one is refused with StoreUnavailable, as all are without a buffer. A delay counts from
    the time at which the job is stored. Each job gets its id before it is sent, so that a lost answer does
    not store it twice. May be used from several threads.
    """

    def __init__(self, app: Forebay, max_jobs: int = MAX_JOBS) -> None:
        check_integer("max_jobs", max_jobs, 1, 1_000_000)
        self._client = app.client
        self._max_jobs = max_jobs
        self._waiting: deque[NewJob] = deque()
        self._in_flight: Sequence[NewJob] = ()  # the first of the waiting jobs, during a call to the store
        self._condition = Condition()  # never held during a call to the store
        self._sender: Thread | None = None
        self._is_closed = False

    def __len__(self) -> int:
        """Return how many jobs wait here."""
        return len(self._waiting)

    def enqueue(self, job: NewJob) -> JobHandle[Any]:
        """Store a job, or hold it until the store is back. Raises the errors of an enqueue, but
        StoreUnavailable only if the buffer is full. A handle of a waiting job raises JobNotFound: the store
        does not have it."""
        _check_job(job)
        named = job if job.id is not None else replace(job, id=JobId(new_id()))
        if not self._waiting or self._is_closed:
            try:
                return self._client.enqueue([named])[0]
            except StoreBusy:
                raise  # the store is there: another transaction holds the key of this job
            except StoreUnavailable as exc:
                logger.warning("jobs wait in memory for their store: %s", exc)
        with uninterrupted, self._condition:
            self._add(named)
        return JobHandle(self._client, InsertResult(id=named.id, is_new=True))

    def _add(self, job: NewJob) -> None:
        if self._is_closed:
            raise StoreUnavailable("the store is away, and this buffer is closed")
        if len(self._waiting) >= self._max_jobs:
            raise StoreUnavailable(f"the store is away, and {self._max_jobs:,} jobs wait for it already")
        if self._sender is None:
            sender = Thread(target=self._send, name="forebay-buffer", daemon=True)
            sender.start()  # blocks on the lock that this thread holds
            self._sender = sender
        self._waiting.append(job)

    def _send(self) -> None:
        """Send batches until no job waits, with longer pauses after each failure. After `close`, return at
        the first failure."""
        try:
            pause = FIRST_PAUSE_SECONDS
            while batch := self._take_batch(pause):
                finished = self._send_batch(batch)
                pause = FIRST_PAUSE_SECONDS if finished else min(2 * pause, MAX_PAUSE_SECONDS)
                with uninterrupted, self._condition:
                    self._in_flight = ()
                    self._waiting = deque(job for job in self._waiting if job.id not in finished)
                    if self._is_closed and not finished:
                        self._end_sender()
                        return
        finally:
            with uninterrupted, self._condition:
                # After any error: the next buffered job starts a new sender.
                if self._sender is current_thread():
                    self._end_sender()

    def _take_batch(self, pause: float) -> Sequence[NewJob]:
        """Return the first waiting jobs, after a pause. If there is none, this sender ends. It clears
        `_sender` under the lock, so that the next buffered job starts a new one."""
        with uninterrupted, self._condition:
            if self._waiting:
                self._condition.wait_for(lambda: self._is_closed, pause)
            self._in_flight = batch = list(islice(self._waiting, BATCH_SIZE))
            if not batch:
                self._end_sender()
            return batch

    def _end_sender(self) -> None:
        self._sender = None
        self._in_flight = ()
        self._condition.notify_all()

    def _send_batch(self, batch: Sequence[NewJob]) -> set[JobId | None]:
        """Send a batch; return the ids of the jobs that are stored, or refused for good."""
        finished: set[JobId | None] = set()
        try:
            try:
                return self._store_batch(batch)
            except Exception as exc:
                if _is_store_failure(exc):
                    raise
            # One job is to blame: send each alone, so that the rest of the batch is stored.
            for job in batch:
                finished |= self._store_alone(job)
        except StoreUnavailable:
            pass
        except StoreError as exc:
            logger.error("jobs that wait for their store cannot be sent: %s", exc)
        return finished

    def _store_batch(self, batch: Sequence[NewJob]) -> set[JobId | None]:
        # A taken id belongs to a job of an earlier call whose answer was lost.
        handles = self._client.enqueue(batch, on_conflict="ignore", atomic=False)
        return {
            job.id for job, handle in zip(batch, handles, strict=True) if not _may_retry(job, handle.error)
        }

    def _store_alone(self, job: NewJob) -> set[JobId | None]:
        try:
            return self._store_batch([job])
        except Exception as exc:
            if _is_store_failure(exc):
                raise
            return set() if _may_retry(job, exc) else {job.id}

    def close(self, timeout: Duration = 5.0) -> int:
        """Try once more to send the waiting jobs, for `timeout`; return how many are lost.

        Jobs in a running call to the store are not counted: the store may still accept them. What can be
        stored is stored also after the time-out. Closing twice is fine.
        """
        with uninterrupted, self._condition:
            self._is_closed = True
            self._condition.notify_all()
        wait_for(self._condition, lambda: self._sender is None, duration_ms("timeout", timeout) / 1_000)
        with uninterrupted, self._condition:
            in_doubt = self._in_flight
            lost = len(self._waiting) - len(in_doubt)
            self._waiting = deque(in_doubt)
        if in_doubt:
            logger.warning(
                "%d jobs are being sent to their store, and it has not answered yet", len(in_doubt)
            )
        if lost:
            logger.error("%d jobs waited for their store and are lost with this process", lost)
        return lost

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _check_job(job: NewJob) -> None:
    if not isinstance(job, NewJob):
        raise InvalidJob(f"only jobs made by task.job(...) can be enqueued, not {job!r:.60}")
    if any(isinstance(dependency.parent, int) for dependency in job.depends_on):
        raise InvalidJob("a buffer takes jobs one by one: name dependencies by their ids", field="depends_on")


def _is_store_failure(error: Exception) -> bool:
    """Return whether the error concerns the store and not one of the jobs: every job would meet it."""
    return isinstance(error, StoreError) and not isinstance(error, (StoreRefused, StoreBusy))


def _may_retry(job: NewJob, error: Exception | None) -> bool:
    """Return whether a refused job may be accepted later. If not, log the error: the caller of `enqueue` has
    returned long ago."""
    if isinstance(error, (QueueFull, RateLimited, TooManyRequests, StoreBusy)):
        return True
    if error is not None:
        logger.error("job %s of %s has waited, and is refused: %s", job.id, job.task, error)
    return False
