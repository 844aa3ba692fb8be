"""Batched reads of jobs for coroutines: reads that arrive while the store thread is busy share one query."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from forebay.app.offload_thread import OffloadThread
from forebay.domain.job import Job, JobId

Read = Callable[[Sequence[JobId]], list[Job | None]]


class PendingRead:
    """One read of a job that waits for the store thread."""

    __slots__ = ("is_answered", "job", "job_id")

    def __init__(self, job_id: JobId) -> None:
        self.job_id: JobId = job_id
        self.job: Job | None = None
        self.is_answered: bool = False


class ReadBatcher:
    """Reads jobs for any number of waiting coroutines with one query to the store.

    Each read is submitted once to the store thread. The first one to run takes all pending reads along. The
    others find themselves answered when they run, which costs next to nothing.
    """

    def __init__(self, offload: OffloadThread) -> None:
        self._offload = offload
        self._pending: deque[PendingRead] = deque()

    async def __call__(self, job_id: JobId, read: Read) -> Job | None:
        """Return the record of a job as it is after the start of this call; None if there is none."""
        pending = PendingRead(job_id)
        self._pending.append(pending)
        await self._offload(self._read_batch, pending, read)
        return pending.job

    def _read_batch(self, pending: PendingRead, read: Read) -> None:
        # A read whose coroutine was cancelled is answered too; its result is dropped.
        if pending.is_answered:
            return
        # An error concerns this read alone: the rest of the batch is unanswered and runs its own query.
        batch = {pending, *self._take_waiting()}
        ids = list({waiting.job_id for waiting in batch})
        found = dict(zip(ids, read(ids), strict=True))
        for waiting in batch:
            waiting.job = found[waiting.job_id]
            waiting.is_answered = True

    def _take_waiting(self) -> Iterator[PendingRead]:
        # Until the deque is empty, not by its length: while a client is being closed, reads also run outside
        # of the store thread, and each read is taken by exactly one of them.
        with suppress(IndexError):
            while True:
                yield self._pending.popleft()
