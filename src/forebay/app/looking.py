"""Looking at jobs for coroutines: those that ask while the store thread is busy share the next look."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from forebay.app.offload import Offload
from forebay.domain.job import Job, JobId

Read = Callable[[Sequence[JobId]], list[Job | None]]


class Look:
    """A wish to see one job."""

    __slots__ = ("is_answered", "job", "job_id")

    def __init__(self, job_id: JobId) -> None:
        self.job_id: JobId = job_id
        self.job: Job | None = None
        self.is_answered: bool = False


class Looks:
    """One question to the store for all coroutines that wait, however many they are.

    Each wish hops once to the store thread, where the first to arrive takes all others along; these find
    themselves answered when their own turn comes, and that costs next to nothing.
    """

    def __init__(self, offload: Offload) -> None:
        self._offload = offload
        self._waiting: deque[Look] = deque()

    async def __call__(self, job_id: JobId, read: Read) -> Job | None:
        """The record of a job as it is after this call has begun; None if there is none."""
        look = Look(job_id)
        self._waiting.append(look)
        await self._offload(self._answer, look, read)
        return look.job

    def _answer(self, look: Look, read: Read) -> None:
        # A look whose coroutine was cancelled meanwhile is answered too, and nobody reads it.
        if look.is_answered:
            return
        # An error is for this look alone: the others, still unanswered, ask for themselves in their turn.
        looks = {look, *self._taken()}
        ids = list({one.job_id for one in looks})
        found = dict(zip(ids, read(ids), strict=True))
        for one in looks:
            one.job = found[one.job_id]
            one.is_answered = True

    def _taken(self) -> Iterator[Look]:
        # Until there is none, and not by number: while a client is being closed, looks come here beside the
        # store thread, and each is taken by one of them.
        with suppress(IndexError):
            while True:
                yield self._waiting.popleft()
