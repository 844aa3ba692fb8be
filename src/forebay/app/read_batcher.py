"""Looking at jobs for coroutines: those that ask while the store thread is busy share the next look."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from forebay.app.offload import OffloadThread
from forebay.domain.job import Job, JobId

Read = Callable[[Sequence[JobId]], list[Job | None]]


class PendingRead:
    """A wish to see one job."""

    __slots__ = ("is_answered", "job", "job_id")

    def __init__(self, job_id: JobId) -> None:
        self.job_id: JobId = job_id
        self.job: Job | None = None
        self.is_answered: bool = False


class ReadBatcher:
    """One question to the store for all coroutines that wait, however many they are.

    Each wish hops once to the store thread, where the first to arrive takes all others along; these find
    themselves answered when their own turn comes, and that costs next to nothing.
    """

    def __init__(self, offload: OffloadThread) -> None:
        self._offload = offload
        self._pending: deque[PendingRead] = deque()

    async def __call__(self, job_id: JobId, read: Read) -> Job | None:
        """The record of a job as it is after this call has begun; None if there is none."""
        look = PendingRead(job_id)
        self._pending.append(look)
        await self._offload(self._read_batch, look, read)
        return look.job

    def _read_batch(self, pending: PendingRead, read: Read) -> None:
        # A look whose coroutine was cancelled meanwhile is answered too, and nobody reads it.
        if pending.is_answered:
            return
        # An error is for this look alone: the others, still unanswered, ask for themselves in their turn.
        looks = {pending, *self._take_waiting()}
        ids = list({one.job_id for one in looks})
        found = dict(zip(ids, read(ids), strict=True))
        for one in looks:
            one.job = found[one.job_id]
            one.is_answered = True

    def _take_waiting(self) -> Iterator[PendingRead]:
        # Until there is none, and not by number: while a client is being closed, looks come here beside the
        # store thread, and each is taken by one of them.
        with suppress(IndexError):
            while True:
                yield self._pending.popleft()
