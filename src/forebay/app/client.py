"""The object with which programs enqueue and inspect: any thread, sync or async, also after a fork."""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, TypeVar

from forebay.app.handle import JobHandle
from forebay.app.offload import Offload
from forebay.clock import Clock
from forebay.domain.history import Timeline
from forebay.domain.job import Amendment, Job, JobId, NewJob, QueueName
from forebay.domain.query import Counts, JobQuery, Page
from forebay.errors import ForebayError, StoreError
from forebay.stores.protocol import Engine, OnConflict, Reader, Receipt, Store, Verdict

T = TypeVar("T")


class Request:
    """Jobs that wait to be taken along by whoever has the store next."""

    __slots__ = ("error", "jobs", "on_conflict", "receipts")

    def __init__(self, jobs: Sequence[NewJob], on_conflict: OnConflict) -> None:
        self.jobs = jobs
        self.on_conflict = on_conflict
        self.receipts: list[Receipt] | None = None
        self.error: BaseException | None = None

    @property
    def is_answered(self) -> bool:
        return self.receipts is not None or self.error is not None

    def answer(self) -> list[Receipt]:
        if self.error is not None:
            raise self.error
        return self.receipts or []


class Client:
    """One store handle to write and one to look for the whole process, opened when first needed.

    A thread that finds the store busy leaves its jobs for the next one to take along, so concurrent
    enqueues become one call and one commit.
    """

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._offload = Offload("forebay-client")
        self._start_over()
        # Handles and locks of the parent are of no use to a forked child: it starts over.
        ref = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _start_over(ref))

    def _start_over(self) -> None:
        self._writing = Lock()
        self._reading = Lock()
        self._waiting: deque[Request] = deque()
        self._store: Store | None = None
        self._reader: Reader | None = None
        self._is_closed = False

    def now_ms(self) -> int:
        return self._clock.now_ms()

    # Enqueue

    def enqueue(
        self, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return", atomic: bool = True
    ) -> list[JobHandle[Any]]:
        """Store jobs; a handle each, in order. Without `atomic`, handles of refused jobs hold the error."""
        if not atomic:
            receipts = self.write(lambda store: store.insert(jobs, on_conflict=on_conflict, atomic=False))
        else:
            request = Request(jobs, on_conflict)
            self._waiting.append(request)
            receipts = self._answered(request)
        return [JobHandle(self, receipt) for receipt in receipts]

    def enqueue_within(
        self, connection: object, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return"
    ) -> list[JobHandle[Any]]:
        """Store jobs in the caller's own open transaction: with its commit they are there, and not before."""
        receipts = self._engine.insert_within(connection, jobs, on_conflict=on_conflict)
        return [JobHandle(self, receipt) for receipt in receipts]

    async def enqueue_async(
        self, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return", atomic: bool = True
    ) -> list[JobHandle[Any]]:
        """`enqueue` for coroutines; concurrent ones share a commit."""
        if not atomic:
            return await self._offload(self.enqueue, jobs, on_conflict=on_conflict, atomic=False)
        request = Request(jobs, on_conflict)
        self._waiting.append(request)
        receipts = await self._offload(self._answered, request)
        return [JobHandle(self, receipt) for receipt in receipts]

    def _answered(self, request: Request) -> list[Receipt]:
        # Whoever waits here finds its request answered when the holder before took it along.
        with self._writing:
            if not request.is_answered:
                self._take_along()
        return request.answer()

    def _take_along(self) -> None:
        """Insert all that waits: plain requests in one call, and each by itself if that is refused."""
        requests = [self._waiting.popleft() for _ in range(len(self._waiting))]
        plain = [request for request in requests if request.on_conflict == "return"]
        if len(plain) > 1 and self._together(plain):
            requests = [request for request in requests if not request.is_answered]
        for request in requests:
            try:
                request.receipts = self._opened_store().insert(request.jobs, on_conflict=request.on_conflict)
            except Exception as exc:
                request.error = exc

    def _together(self, requests: list[Request]) -> bool:
        try:
            receipts = self._opened_store().insert([job for request in requests for job in request.jobs])
        except ForebayError:
            return False  # one of them is to blame: each will hear of its own
        start = 0
        for request in requests:
            request.receipts = receipts[start : start + len(request.jobs)]
            start += len(request.jobs)
        return True

    # Look and steer

    def job(self, job_id: JobId) -> Job | None:
        """The stored record of a job, wherever it is; None if there is none."""
        return self.read(lambda reader: reader.jobs([job_id])[0])

    def history(self, job_id: JobId) -> Timeline | None:
        """All that is known about one job."""
        return self.read(lambda reader: reader.history(job_id))

    def search(self, query: JobQuery, *, limit: int = 100, after: str | None = None) -> Page:
        """Jobs that fit, newest first."""
        return self.read(lambda reader: reader.search(query, limit=limit, after=after))

    def counts(self, queues: Sequence[QueueName] = ()) -> dict[QueueName, Counts]:
        """Jobs by queue and state."""
        return self.read(lambda reader: reader.counts(queues))

    def cancel(
        self, ids: Sequence[JobId], reason: str = "cancelled", *, force: bool = False
    ) -> list[Verdict]:
        """Cancel jobs that wait; ask running ones to stop."""
        return self.write(lambda store: store.cancel(ids, reason, force=force))

    def amend(self, job_id: JobId, change: Amendment) -> Verdict:
        """Change a job that waits."""
        return self.write(lambda store: store.amend(job_id, change))

    def revive(self, ids: Sequence[JobId]) -> list[Verdict]:
        """Put dead and cancelled jobs back."""
        return self.write(lambda store: store.revive(ids))

    # Handles

    def write(self, call: Callable[[Store], T]) -> T:
        """Use the one handle to write."""
        with self._writing:
            return call(self._opened_store())

    def read(self, call: Callable[[Reader], T]) -> T:
        """Use the one handle to look."""
        with self._reading:
            if self._is_closed:
                raise StoreError("this app is closed")
            if self._reader is None:
                self._reader = self._engine.reader()
            return call(self._reader)

    def _opened_store(self) -> Store:
        if self._is_closed:
            raise StoreError("this app is closed")
        if self._store is None:
            self._store = self._engine.store()
        return self._store

    def close(self) -> None:
        """Let go of both handles. What was enqueued is stored; nothing can be enqueued from now on."""
        with self._writing, self._reading:
            self._is_closed = True
            for handle in (self._store, self._reader):
                if handle is not None:
                    handle.close()
            self._store = self._reader = None
        self._offload.close()


def _start_over(ref: weakref.ref[Client]) -> None:
    client = ref()
    if client is not None:
        # Not closed, only let go: closing would disturb the parent's connections.
        _left_behind.append((client._store, client._reader))
        client._start_over()


# Handles from before a fork. Kept so that nothing closes them.
_left_behind: list[tuple[Store | None, Reader | None]] = []
