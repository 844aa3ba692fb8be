"""The object with which programs enqueue and inspect: any thread, sync or async, also after a fork."""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Lock, local
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from forebay.app.busy_retry import retry_busy, retry_busy_async
from forebay.app.handle import JobHandle
from forebay.app.offload import OffloadThread
from forebay.app.read_batcher import ReadBatcher
from forebay.clock import Clock
from forebay.domain.dependencies import sort_topologically
from forebay.domain.job import Job, JobId, JobUpdate, NewJob, QueueName, WorkerId
from forebay.domain.text import check_actor
from forebay.errors import ConfigError, ForebayError, InvalidJob, StoreBusy, StoreError, StoreUnavailable
from forebay.interrupts import hold_lock, uninterrupted
from forebay.operations.priority_inheritance import (
    MayRaise,
    has_dependencies,
    inherit_priorities_in_batch,
    raise_ancestors,
)

if TYPE_CHECKING:
    from forebay.domain.dependencies import Edge
    from forebay.domain.history import Timeline
    from forebay.domain.progress import JobProgress
    from forebay.domain.query import Counts, JobQuery, Page
    from forebay.domain.settlement import Settlement
    from forebay.stores.contract.engine import Engine
    from forebay.stores.contract.reader import Reader
    from forebay.stores.contract.store import Store
    from forebay.stores.contract.values import ActionResult, InsertResult, OnConflict
from forebay.telemetry.host import host_name

P = ParamSpec("P")
T = TypeVar("T")
CoerceResult = Callable[[str, Any], Any]
PrepareJobs = Callable[[Sequence[NewJob]], list[NewJob]]

# Longer than a store waits for its lock, so that only a handle that is stuck is not closed before a fork.
FORK_WAIT_SECONDS: Final = 60.0


class PendingInsert:
    """Jobs that wait to be taken along by whoever has the store next."""

    __slots__ = ("error", "jobs", "on_conflict", "receipts")

    def __init__(self, jobs: Sequence[NewJob], on_conflict: OnConflict) -> None:
        self.jobs: Sequence[NewJob] = jobs
        self.on_conflict = on_conflict
        self.receipts: list[InsertResult] | None = None
        self.error: BaseException | None = None

    @property
    def is_answered(self) -> bool:
        return self.receipts is not None or self.error is not None

    def answer(self) -> list[InsertResult]:
        if self.error is not None:
            raise self.error
        if self.receipts is None:
            # Taken along by a thread that was interrupted before it had an answer for us.
            raise StoreUnavailable("the thread that stored this was interrupted; it may have been stored")
        return self.receipts


class _ForkState(local):
    """What the thread that forks holds meanwhile."""

    held_locks: Sequence[Lock] = ()
    is_in_region: bool = False


class Client:
    """One store handle to write and one to look for the whole process, opened when first needed.

    A thread that finds the store busy leaves its jobs for the next one to take along, so concurrent
    enqueues become one call and one commit. `returned` gives a result the class that its task's annotation
    names; `actor` is what the audit log calls this program.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        coerce_result: CoerceResult = lambda _task, value: value,
        *,
        actor: str | None = None,
    ) -> None:
        check_actor(actor or "")
        self.actor: str = f"app@{host_name()}" if actor is None else actor
        self._engine = engine
        self._clock = clock
        self._coerce_result = coerce_result
        self._prepare_jobs: PrepareJobs | None = None
        self._on_stored: Callable[[], None] | None = None
        self._offload = OffloadThread("forebay-client")
        self._fork_state = _ForkState()
        self._closed_reason: str | None = None
        self._reset()
        _register_fork_hooks(weakref.ref(self))

    def _reset(self) -> None:
        self._is_forking = False
        self._write_lock = Lock()
        self._read_lock = Lock()
        self._pending_inserts: deque[PendingInsert] = deque()
        self._store: Store | None = None
        self._reader: Reader | None = None
        self._read_batcher = ReadBatcher(self._offload)

    def wrap_engine(self, engine: Engine, prepare_jobs: PrepareJobs | None = None) -> None:
        """Use this engine, which stands before the one there was, for all handles that are opened from now
        on; and give it new jobs as this function makes them, if there is one, on the thread of who
        enqueues."""
        if self._store is not None or self._reader is not None:
            raise ConfigError("this app has used its store before; say so before anything is enqueued")
        self._engine, self._prepare_jobs = engine, prepare_jobs or self._prepare_jobs

    def switch_store(self, engine: Engine, clock: Clock, on_stored: Callable[[], None] | None = None) -> None:
        """Use another store and another time from now on, as tests do; what was enqueued stays where it is.
        `on_stored` is called whenever jobs were stored, by who has enqueued them."""
        with uninterrupted, self._write_lock, self._read_lock:
            self._close_handles()
            self._engine, self._clock, self._on_stored = engine, clock, on_stored

    def prepare_jobs(self, jobs: list[NewJob]) -> list[NewJob]:
        """New jobs as they go to the store: for whoever inserts by ways of its own."""
        return jobs if self._prepare_jobs is None else self._prepare_jobs(jobs)

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def coerce_result(self, task: str, value: Any) -> Any:
        """A decoded result as the task's annotation wants it."""
        return self._coerce_result(task, value)

    # Enqueue

    def enqueue(
        self, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return", atomic: bool = True
    ) -> list[JobHandle[Any]]:
        """Store jobs; a handle each, in order. Without `atomic`, handles of refused jobs hold the error."""
        jobs = self.prepare_jobs(_copy_jobs(jobs))
        try:
            return self._enqueue(jobs, on_conflict, atomic=atomic)
        except StoreBusy as exc:
            # Not under the lock: others of this process store their jobs meanwhile.
            return retry_busy(lambda: self._enqueue(jobs, on_conflict, atomic=atomic), exc)

    def _enqueue(self, jobs: list[NewJob], on_conflict: OnConflict, *, atomic: bool) -> list[JobHandle[Any]]:
        if has_dependencies(jobs):
            return self.enqueue_graph(jobs, on_conflict=on_conflict, atomic=atomic)
        if not atomic:
            receipts = self.write(lambda store: store.insert(jobs, on_conflict=on_conflict, atomic=False))
        elif (stored := self._insert_at_once(jobs, on_conflict)) is not None:
            receipts = stored
        else:
            with uninterrupted, self._submit(PendingInsert(jobs, on_conflict)) as request:
                receipts = self._wait_for_result(request)
        return self._build_handles(receipts)

    def _build_handles(self, receipts: Sequence[InsertResult]) -> list[JobHandle[Any]]:
        if self._on_stored is not None:
            self._on_stored()
        return [JobHandle(self, receipt) for receipt in receipts]

    def _insert_at_once(self, jobs: list[NewJob], on_conflict: OnConflict) -> list[InsertResult] | None:
        """Store jobs if nobody else is at it; None if somebody is, and they have to wait."""
        # Whoever forks waits for the lock too, and must not lose it for ever to threads that need not wait.
        if self._is_forking or self._write_lock.locked():
            return None
        # Another thread may be faster since that look. Then this one waits for one call of the store.
        with hold_lock(self._write_lock):
            # Whoever waits has come before us and is taken along by the next holder of the lock.
            if self._pending_inserts:
                return None
            return self._open_store().insert(jobs, on_conflict=on_conflict)

    def enqueue_tx(
        self, connection: object, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return"
    ) -> list[JobHandle[Any]]:
        """Store jobs in the caller's own open transaction: with its commit they are there, and not before."""
        placed, went = sort_topologically(self.prepare_jobs(_copy_jobs(jobs)))
        with uninterrupted:
            receipts = self._engine.insert_tx(connection, placed, on_conflict=on_conflict)
        return [JobHandle(self, receipts[place]) for place in went]

    async def enqueue_tx_async(
        self, connection: object, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return"
    ) -> list[JobHandle[Any]]:
        """`enqueue_tx` with a connection that lives on this event loop."""
        placed, went = sort_topologically(self.prepare_jobs(_copy_jobs(jobs)))
        receipts = await self._engine.insert_tx_async(connection, placed, on_conflict=on_conflict)
        return [JobHandle(self, receipts[place]) for place in went]

    def complete_tx(self, connection: object, worker: WorkerId, settlement: Settlement) -> None:
        """End a lease as completed in the caller's own open transaction."""
        with uninterrupted:
            self._engine.complete_tx(connection, worker, settlement)

    async def complete_tx_async(self, connection: object, worker: WorkerId, settlement: Settlement) -> None:
        """`complete_within` with a connection that lives on this event loop."""
        await self._engine.complete_tx_async(connection, worker, settlement)

    async def enqueue_async(
        self, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return", atomic: bool = True
    ) -> list[JobHandle[Any]]:
        """`enqueue` for coroutines; concurrent ones share a commit.

        One that is cancelled while it waits has stored nothing, unless the store was already at it.
        """
        jobs = self.prepare_jobs(_copy_jobs(jobs))
        try:
            return await self._enqueue_async(jobs, on_conflict, atomic=atomic)
        except StoreBusy as exc:
            return await retry_busy_async(lambda: self._enqueue_async(jobs, on_conflict, atomic=atomic), exc)

    async def _enqueue_async(
        self, jobs: list[NewJob], on_conflict: OnConflict, *, atomic: bool
    ) -> list[JobHandle[Any]]:
        if not atomic or has_dependencies(jobs):
            return await self._offload(self._enqueue, jobs, on_conflict, atomic=atomic)
        with self._submit(PendingInsert(jobs, on_conflict)) as request:
            receipts = await self._offload(self._wait_for_result, request)
        return self._build_handles(receipts)

    def enqueue_graph(
        self,
        jobs: Sequence[NewJob],
        *,
        on_conflict: OnConflict = "return",
        atomic: bool = True,
        may_raise: MayRaise | None = None,
    ) -> list[JobHandle[Any]]:
        """Store jobs that depend on others, by a call of their own: they name each other by their places.
        Those they wait for get their priority, in queues that `may_raise` allows."""
        placed, went = sort_topologically(jobs)
        lifted = self.read(lambda reader: inherit_priorities_in_batch(reader, placed))
        receipts = self.write(lambda store: store.insert(lifted, on_conflict=on_conflict, atomic=atomic))
        if any(job.priority is not None for job in lifted):
            # The jobs are stored: who heard of an error now would enqueue them again, for a mere order.
            with suppress(StoreError):
                self.write(
                    lambda store: self.read(
                        lambda reader: raise_ancestors(store, reader, lifted, may_raise, actor=self.actor)
                    )
                )
        return self._build_handles([receipts[place] for place in went])

    @contextmanager
    def _submit(self, request: PendingInsert) -> Iterator[PendingInsert]:
        self._pending_inserts.append(request)
        try:
            yield request
        except BaseException:
            # Nobody waits for it any more: the next to enqueue, perhaps in an hour, must not take it along.
            with suppress(ValueError):
                self._pending_inserts.remove(request)
            raise

    def _wait_for_result(self, request: PendingInsert) -> list[InsertResult]:
        # Whoever waits here finds its request answered when the holder before took it along.
        with uninterrupted, self._write_lock:
            if not request.is_answered:
                self._insert_pending()
        return request.answer()

    def _insert_pending(self) -> None:
        """Insert all that waits: plain requests in one call, and by halves if that is refused."""
        requests = [self._pending_inserts.popleft() for _ in range(len(self._pending_inserts))]
        try:
            plain = [request for request in requests if request.on_conflict == "return"]
            if plain:
                self._insert_together(plain)
            for request in requests:
                if not request.is_answered:
                    self._insert_alone(request)
        except StoreUnavailable as exc:
            # Nobody else would fare better now, and what may have happened must not be done again.
            for request in requests:
                if not request.is_answered:
                    request.error = StoreUnavailable(str(exc))
                    request.error.__cause__ = exc

    def _insert_together(self, requests: list[PendingInsert]) -> None:
        """Insert requests in one call. If one of them is to blame for an error, go on by halves, so that the
        others are stored and only that one gets the error."""
        if len(requests) == 1:
            self._insert_alone(requests[0])
            return
        jobs = [job for request in requests for job in request.jobs]
        try:
            receipts = self._open_store().insert(jobs)
        except ForebayError as exc:
            if isinstance(exc, StoreUnavailable) and not isinstance(exc, StoreBusy):
                raise
            middle = len(requests) // 2
            self._insert_together(requests[:middle])
            self._insert_together(requests[middle:])
            return
        start = 0
        for request in requests:
            request.receipts = receipts[start : start + len(request.jobs)]
            start += len(request.jobs)

    def _insert_alone(self, request: PendingInsert) -> None:
        try:
            request.receipts = self._open_store().insert(request.jobs, on_conflict=request.on_conflict)
        except StoreBusy as exc:
            request.error = exc  # a transaction holds its key or id, and nobody else's
        except StoreUnavailable:
            raise
        except Exception as exc:  # whatever it is, it is the answer to this request and to no other
            request.error = exc

    # Look and steer

    def job(self, job_id: JobId) -> Job | None:
        """The stored record of a job, wherever it is; None if there is none."""
        return self.jobs([job_id])[0]

    def jobs(self, ids: Sequence[JobId]) -> list[Job | None]:
        """The records of several jobs, in the order asked."""
        return self.read(lambda reader: reader.jobs(ids))

    async def job_async(self, job_id: JobId) -> Job | None:
        """`job` for coroutines; concurrent ones share a look."""
        return await self._read_batcher(job_id, self.jobs)

    def history(self, job_id: JobId) -> Timeline | None:
        """All that is known about one job."""
        return self.read(lambda reader: reader.history(job_id))

    def progress(self, job_id: JobId) -> JobProgress:
        """What attempts at one job have said."""
        return self.read(lambda reader: reader.progress(job_id))

    def waiting_reason(self, job: Job) -> str | None:
        """Say why a job is not claimed, if its queue is the reason."""
        from forebay.operations.unserved_queues import waiting_reason  # noqa: PLC0415 - only where a wait was too short

        return self.read(lambda reader: waiting_reason(reader, job))

    def search(self, query: JobQuery, *, limit: int = 100, after: str | None = None) -> Page:
        """Jobs that fit, newest first."""
        return self.read(lambda reader: reader.search(query, limit=limit, after=after))

    def counts(self, queues: Sequence[QueueName] = ()) -> dict[QueueName, Counts]:
        """Jobs by queue and state."""
        return self.read(lambda reader: reader.counts(queues))

    def parents(self, ids: Sequence[JobId]) -> list[Edge]:
        """The edges that lead to jobs."""
        return self.read(lambda reader: reader.parents(ids))

    def dependants(self, ids: Sequence[JobId], *, limit: int = 1_000) -> list[Edge]:
        """The edges that lead from jobs."""
        return self.read(lambda reader: reader.dependants(ids, limit=limit))

    def cancel(
        self,
        ids: Sequence[JobId],
        reason: str = "cancelled",
        *,
        force: bool = False,
        dependants: bool = False,
    ) -> list[ActionResult]:
        """Cancel jobs that wait; ask running ones to stop."""
        return self.write(
            lambda store: store.cancel(ids, reason, actor=self.actor, force=force, dependants=dependants)
        )

    def update(self, job_id: JobId, update: JobUpdate) -> ActionResult:
        """Change a job that waits."""
        return self.write(lambda store: store.update_job(job_id, update, actor=self.actor))

    def revive(self, ids: Sequence[JobId], *, dependants: bool = False) -> list[ActionResult]:
        """Put dead and cancelled jobs back."""
        return self.write(lambda store: store.revive(ids, actor=self.actor, dependants=dependants))

    # Handles

    async def run_in_thread(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking call of this client's on its store thread, for coroutines."""
        return await self._offload(call, *args, **kwargs)

    def write(self, call: Callable[[Store], T]) -> T:
        """Use the one handle to write."""
        with uninterrupted, self._write_lock:
            return call(self._open_store())

    def read(self, call: Callable[[Reader], T]) -> T:
        """Use the one handle to look."""
        with uninterrupted, self._read_lock:
            self._check_open()
            if self._reader is None:
                self._reader = self._engine.reader()
            return call(self._reader)

    def _open_store(self) -> Store:
        self._check_open()
        if self._store is None:
            self._store = self._engine.store()
        return self._store

    def _check_open(self) -> None:
        if self._closed_reason is not None:
            raise StoreError(self._closed_reason)

    def close(self) -> None:
        """Let go of both handles. What was enqueued is stored; nothing can be enqueued from now on."""
        with uninterrupted, self._write_lock, self._read_lock:
            self._closed_reason = self._closed_reason or "this app is closed"
            self._close_handles()
        self._offload.close()

    def close_handles(self) -> None:
        """Close both handles; the next call opens them again. For an owner that is to drop the database."""
        with uninterrupted, self._write_lock, self._read_lock:
            self._close_handles()

    def _close_handles(self) -> None:
        handles = (self._store, self._reader)
        self._store = self._reader = None
        for handle in handles:
            if handle is not None:
                handle.close()

    # Forks

    def before_fork(self) -> None:
        """Close the handles, so that the child inherits none.

        SQLite remembers in memory which locks its process holds. A child inherits the memory and not the
        locks: it would write to a log that others delete under it, or wait for a lock that nobody holds.
        """
        # To the end of the fork. Python swallows an interrupt that it raises here, and the locks would stay.
        uninterrupted.__enter__()
        self._fork_state.is_in_region = True
        locks = (self._write_lock, self._read_lock)
        self._is_forking = True
        self._fork_state.held_locks = [lock for lock in locks if lock.acquire(timeout=FORK_WAIT_SECONDS)]
        if len(self._fork_state.held_locks) == len(locks):
            self._close_handles()

    def after_fork_in_parent(self) -> None:
        """Go on; the handles are opened again when they are needed."""
        self._is_forking = False
        for lock in self._fork_state.held_locks:
            lock.release()
        self._end_fork()

    def after_fork_in_child(self) -> None:
        """Start over with locks that nobody holds; what waits in the parent is stored by the parent."""
        if self._store is not None or self._reader is not None:
            self._closed_reason = "this process was forked while its parent used the store; start it anew"
            _abandoned_handles.append((self._store, self._reader))
        self._reset()
        self._end_fork()

    def _end_fork(self) -> None:
        self._fork_state.held_locks = ()
        if (
            self._fork_state.is_in_region
        ):  # else the interrupt came before all this, and Python has swallowed it
            self._fork_state.is_in_region = False
            uninterrupted.leave_quietly()


# Handles that were in use during a fork. Kept, because closing them would disturb the parent.
_abandoned_handles: list[tuple[Store | None, Reader | None]] = []


def _copy_jobs(jobs: Sequence[NewJob]) -> list[NewJob]:
    """A copy that nobody changes while it waits."""
    found = list(jobs)
    for job in found:
        if not isinstance(job, NewJob):
            raise InvalidJob(f"only jobs made by task.job(...) can be enqueued, not {job!r:.60}")
    return found


def _register_fork_hooks(ref: weakref.ref[Client]) -> None:
    if not hasattr(os, "register_at_fork"):  # Windows knows no forks
        return

    # Weakly, since nothing that is registered for forks can be taken back.
    def tell(what: Callable[[Client], None]) -> None:
        client = ref()
        if client is not None:
            what(client)

    os.register_at_fork(
        before=lambda: tell(Client.before_fork),
        after_in_parent=lambda: tell(Client.after_fork_in_parent),
        after_in_child=lambda: tell(Client.after_fork_in_child),
    )
