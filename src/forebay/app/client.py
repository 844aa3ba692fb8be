"""Client of a store for one process: enqueue, read and cancel from any thread, sync or async, after forks."""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Lock, local
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from forebay.app.busy_retry import retry_busy, retry_busy_async
from forebay.app.job_handle import JobHandle
from forebay.app.job_read_batcher import ReadBatcher
from forebay.app.offload_thread import OffloadThread
from forebay.clock import Clock
from forebay.deferred_interrupts import hold_lock, uninterrupted
from forebay.domain.actor_name import check_actor
from forebay.domain.dependency_graph import sort_topologically
from forebay.domain.job import Job, JobId, NewJob, QueueName, WorkerId
from forebay.domain.job_update import JobUpdate
from forebay.errors import ConfigError, ForebayError, InvalidJob, StoreBusy, StoreError, StoreUnavailable
from forebay.operations.priority_inheritance import (
    MayRaise,
    has_dependencies,
    inherit_priorities_in_batch,
    raise_ancestors,
)
from forebay.telemetry.host_name import host_name

if TYPE_CHECKING:
    from forebay.domain.dependencies import Edge
    from forebay.domain.job_history import Timeline
    from forebay.domain.job_query import JobQuery, Page
    from forebay.domain.progress import JobProgress
    from forebay.domain.queue_counts import Counts
    from forebay.domain.settlement import Settlement
    from forebay.stores.contract.claims_and_results import ActionResult, InsertResult, OnConflict
    from forebay.stores.contract.engine import Engine
    from forebay.stores.contract.reader import Reader
    from forebay.stores.contract.store import Store

P = ParamSpec("P")
T = TypeVar("T")
CoerceResult = Callable[[str, Any], Any]
PrepareJobs = Callable[[Sequence[NewJob]], list[NewJob]]

# Longer than the lock time-out of a store, so that only a stuck handle stays open at a fork.
FORK_WAIT_SECONDS: Final = 60.0


class PendingInsert:
    """Jobs that wait for the next holder of the write lock to insert them."""

    __slots__ = ("error", "jobs", "on_conflict", "results")

    def __init__(self, jobs: Sequence[NewJob], on_conflict: OnConflict) -> None:
        self.jobs: Sequence[NewJob] = jobs
        self.on_conflict = on_conflict
        self.results: list[InsertResult] | None = None
        self.error: BaseException | None = None

    @property
    def is_answered(self) -> bool:
        return self.results is not None or self.error is not None

    def answer(self) -> list[InsertResult]:
        if self.error is not None:
            raise self.error
        if self.results is None:
            # A thread took this request along and was interrupted before it had an answer.
            raise StoreUnavailable("the thread that stored this was interrupted; it may have been stored")
        return self.results


class _ForkState(local):
    """Locks and region that a forking thread holds during the fork."""

    held_locks: Sequence[Lock] = ()
    is_in_region: bool = False


class Client:
    """One handle to write and one to read for the whole process, opened on first use.

    A thread that finds the write handle busy leaves its jobs to the next holder. Concurrent enqueues so
    become one call and one commit (group commit). `coerce_result` gives a result the class that its task's
    annotation names. `actor` is the name of this program in the audit log.
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
        """Use this engine, a wrapper of the present one, for all handles that are opened from now on. With
        `prepare_jobs` new jobs pass through that function, on the enqueueing thread."""
        if self._store is not None or self._reader is not None:
            raise ConfigError("this app has used its store already; wrap its engine before the first enqueue")
        self._engine, self._prepare_jobs = engine, prepare_jobs or self._prepare_jobs

    def switch_store(self, engine: Engine, clock: Clock, on_stored: Callable[[], None] | None = None) -> None:
        """Use another store and clock from now on, as tests do; stored jobs stay in the old store.
        `on_stored` is called after each insert, by the enqueueing thread."""
        with uninterrupted, self._write_lock, self._read_lock:
            self._close_handles()
            self._engine, self._clock, self._on_stored = engine, clock, on_stored

    def prepare_jobs(self, jobs: list[NewJob]) -> list[NewJob]:
        """Return new jobs as they go to the store, for callers that insert them by another path."""
        return jobs if self._prepare_jobs is None else self._prepare_jobs(jobs)

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def coerce_result(self, task: str, value: Any) -> Any:
        """Return a decoded result in the class that the task's annotation names."""
        return self._coerce_result(task, value)

    # Enqueue

    def enqueue(
        self, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return", atomic: bool = True
    ) -> list[JobHandle[Any]]:
        """Store jobs; return a handle for each, in order. Without `atomic`, handles of refused jobs have the
        error."""
        jobs = self.prepare_jobs(_copy_jobs(jobs))
        try:
            return self._enqueue(jobs, on_conflict, atomic=atomic)
        except StoreBusy as exc:
            # Without the lock: other threads of this process store their jobs during the pauses.
            return retry_busy(lambda: self._enqueue(jobs, on_conflict, atomic=atomic), exc)

    def _enqueue(self, jobs: list[NewJob], on_conflict: OnConflict, *, atomic: bool) -> list[JobHandle[Any]]:
        if has_dependencies(jobs):
            return self.enqueue_graph(jobs, on_conflict=on_conflict, atomic=atomic)
        if not atomic:
            results = self.write(lambda store: store.insert(jobs, on_conflict=on_conflict, atomic=False))
        elif (stored := self._insert_at_once(jobs, on_conflict)) is not None:
            results = stored
        else:
            with uninterrupted, self._submit(PendingInsert(jobs, on_conflict)) as request:
                results = self._wait_for_result(request)
        return self._build_handles(results)

    def _build_handles(self, results: Sequence[InsertResult]) -> list[JobHandle[Any]]:
        if self._on_stored is not None:
            self._on_stored()
        return [JobHandle(self, result) for result in results]

    def _insert_at_once(self, jobs: list[NewJob], on_conflict: OnConflict) -> list[InsertResult] | None:
        """Store jobs if the write handle is free; None if it is busy, and the jobs have to wait."""
        # A forking thread waits for the lock too. It must not starve behind threads that take the fast path.
        if self._is_forking or self._write_lock.locked():
            return None
        # Another thread may take the lock after that check. Then this one waits for one call of the store.
        with hold_lock(self._write_lock):
            # Pending requests came first; the next holder of the lock inserts them together with this one.
            if self._pending_inserts:
                return None
            return self._open_store().insert(jobs, on_conflict=on_conflict)

    def enqueue_tx(
        self, connection: object, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return"
    ) -> list[JobHandle[Any]]:
        """Store jobs in the caller's own open transaction: the jobs exist from its commit on."""
        ordered, positions = sort_topologically(self.prepare_jobs(_copy_jobs(jobs)))
        with uninterrupted:
            results = self._engine.insert_tx(connection, ordered, on_conflict=on_conflict)
        return [JobHandle(self, results[position]) for position in positions]

    async def enqueue_tx_async(
        self, connection: object, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return"
    ) -> list[JobHandle[Any]]:
        """`enqueue_tx` with a connection that lives on this event loop."""
        ordered, positions = sort_topologically(self.prepare_jobs(_copy_jobs(jobs)))
        results = await self._engine.insert_tx_async(connection, ordered, on_conflict=on_conflict)
        return [JobHandle(self, results[position]) for position in positions]

    def complete_tx(self, connection: object, worker: WorkerId, settlement: Settlement) -> None:
        """Complete a leased job in the caller's own open transaction."""
        with uninterrupted:
            self._engine.complete_tx(connection, worker, settlement)

    async def complete_tx_async(self, connection: object, worker: WorkerId, settlement: Settlement) -> None:
        """`complete_tx` with a connection that lives on this event loop."""
        await self._engine.complete_tx_async(connection, worker, settlement)

    async def enqueue_async(
        self, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return", atomic: bool = True
    ) -> list[JobHandle[Any]]:
        """`enqueue` for coroutines; concurrent calls share a commit.

        A call that is cancelled while it waits has stored nothing, unless the store was already at it.
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
            results = await self._offload(self._wait_for_result, request)
        return self._build_handles(results)

    def enqueue_graph(
        self,
        jobs: Sequence[NewJob],
        *,
        on_conflict: OnConflict = "return",
        atomic: bool = True,
        may_raise: MayRaise | None = None,
    ) -> list[JobHandle[Any]]:
        """Store jobs with dependencies in a call of their own: they name each other by their positions. Their
        parents inherit their priority, in queues that `may_raise` allows."""
        ordered, positions = sort_topologically(jobs)
        ranked = self.read(lambda reader: inherit_priorities_in_batch(reader, ordered))
        results = self.write(lambda store: store.insert(ranked, on_conflict=on_conflict, atomic=atomic))
        if any(job.priority is not None for job in ranked):
            # The jobs are stored. After an error the caller would enqueue them again, only for a priority.
            with suppress(StoreError):
                self.write(
                    lambda store: self.read(
                        lambda reader: raise_ancestors(store, reader, ranked, may_raise, actor=self.actor)
                    )
                )
        return self._build_handles([results[position] for position in positions])

    @contextmanager
    def _submit(self, request: PendingInsert) -> Iterator[PendingInsert]:
        self._pending_inserts.append(request)
        try:
            yield request
        except BaseException:
            # The caller is gone. The next enqueue, perhaps in an hour, must not insert this request.
            with suppress(ValueError):
                self._pending_inserts.remove(request)
            raise

    def _wait_for_result(self, request: PendingInsert) -> list[InsertResult]:
        # The holder before this one may have inserted the request already.
        with uninterrupted, self._write_lock:
            if not request.is_answered:
                self._insert_pending()
        return request.answer()

    def _insert_pending(self) -> None:
        """Insert all pending requests in one call, and by halves if that is refused."""
        requests = [self._pending_inserts.popleft() for _ in range(len(self._pending_inserts))]
        try:
            combinable = [request for request in requests if request.on_conflict == "return"]
            if combinable:
                self._insert_together(combinable)
            for request in requests:
                if not request.is_answered:
                    self._insert_alone(request)
        except StoreUnavailable as exc:
            # Each further call would fail too, and an insert that may have happened must not be repeated.
            for request in requests:
                if not request.is_answered:
                    request.error = StoreUnavailable(str(exc))
                    request.error.__cause__ = exc

    def _insert_together(self, requests: list[PendingInsert]) -> None:
        """Insert requests in one call. After an error that one of them has caused, continue by halves: only
        that request gets the error."""
        if len(requests) == 1:
            self._insert_alone(requests[0])
            return
        jobs = [job for request in requests for job in request.jobs]
        try:
            results = self._open_store().insert(jobs)
        except ForebayError as exc:
            if isinstance(exc, StoreUnavailable) and not isinstance(exc, StoreBusy):
                raise
            middle = len(requests) // 2
            self._insert_together(requests[:middle])
            self._insert_together(requests[middle:])
            return
        start = 0
        for request in requests:
            request.results = results[start : start + len(request.jobs)]
            start += len(request.jobs)

    def _insert_alone(self, request: PendingInsert) -> None:
        try:
            request.results = self._open_store().insert(request.jobs, on_conflict=request.on_conflict)
        except StoreBusy as exc:
            request.error = exc  # another transaction holds a key or id of this request only
        except StoreUnavailable:
            raise
        except Exception as exc:  # any error is the answer to this request and to no other
            request.error = exc

    # Read and control

    def job(self, job_id: JobId) -> Job | None:
        """Return the stored record of a job in any state; None if there is none."""
        return self.jobs([job_id])[0]

    def jobs(self, ids: Sequence[JobId]) -> list[Job | None]:
        """Return the records of several jobs, in the order of `ids`."""
        return self.read(lambda reader: reader.jobs(ids))

    async def job_async(self, job_id: JobId) -> Job | None:
        """`job` for coroutines; concurrent calls share a query."""
        return await self._read_batcher(job_id, self.jobs)

    def history(self, job_id: JobId) -> Timeline | None:
        """Return the timeline of one job."""
        return self.read(lambda reader: reader.history(job_id))

    def progress(self, job_id: JobId) -> JobProgress:
        """Return progress, log lines and step results of one job."""
        return self.read(lambda reader: reader.progress(job_id))

    def waiting_reason(self, job: Job) -> str | None:
        """Return why a job is not claimed, if its queue is the reason."""
        from forebay.operations.unserved_queues import waiting_reason  # noqa: PLC0415 - only after a time-out

        return self.read(lambda reader: waiting_reason(reader, job))

    def search(self, query: JobQuery, *, limit: int = 100, after: str | None = None) -> Page:
        """Return one page of matching jobs, newest first."""
        return self.read(lambda reader: reader.search(query, limit=limit, after=after))

    def counts(self, queues: Sequence[QueueName] = ()) -> dict[QueueName, Counts]:
        """Return the number of jobs by queue and state."""
        return self.read(lambda reader: reader.counts(queues))

    def parents(self, ids: Sequence[JobId]) -> list[Edge]:
        """Return the edges from these jobs to their parents."""
        return self.read(lambda reader: reader.parents(ids))

    def dependants(self, ids: Sequence[JobId], *, limit: int = 1_000) -> list[Edge]:
        """Return the edges from jobs that depend on these."""
        return self.read(lambda reader: reader.dependants(ids, limit=limit))

    def cancel(
        self,
        ids: Sequence[JobId],
        reason: str = "cancelled",
        *,
        force: bool = False,
        dependants: bool = False,
    ) -> list[ActionResult]:
        """Cancel waiting jobs; ask running ones to stop."""
        return self.write(
            lambda store: store.cancel(ids, reason, actor=self.actor, force=force, dependants=dependants)
        )

    def update(self, job_id: JobId, update: JobUpdate) -> ActionResult:
        """Update a waiting job."""
        return self.write(lambda store: store.update_job(job_id, update, actor=self.actor))

    def revive(self, ids: Sequence[JobId], *, dependants: bool = False) -> list[ActionResult]:
        """Revive dead and cancelled jobs."""
        return self.write(lambda store: store.revive(ids, actor=self.actor, dependants=dependants))

    # Handles

    async def run_in_thread(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking call of this client on its store thread, for coroutines."""
        return await self._offload(call, *args, **kwargs)

    def write(self, call: Callable[[Store], T]) -> T:
        """Call a function with the write handle."""
        with uninterrupted, self._write_lock:
            return call(self._open_store())

    def read(self, call: Callable[[Reader], T]) -> T:
        """Call a function with the read handle."""
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
        """Close both handles for good. Stored jobs stay; every later call raises StoreError."""
        with uninterrupted, self._write_lock, self._read_lock:
            self._closed_reason = self._closed_reason or "this app is closed"
            self._close_handles()
        self._offload.close()

    def close_handles(self) -> None:
        """Close both handles; the next call opens them again. For an owner that drops the database."""
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

        SQLite remembers in memory which locks its process holds. A child inherits the memory but not the
        locks. It would write to a WAL file that other processes delete under it, or wait for a lock without a
        holder.
        """
        # Until the end of the fork. Python swallows an interrupt that it raises here, and the locks would
        # stay.
        uninterrupted.__enter__()
        self._fork_state.is_in_region = True
        locks = (self._write_lock, self._read_lock)
        self._is_forking = True
        self._fork_state.held_locks = [lock for lock in locks if lock.acquire(timeout=FORK_WAIT_SECONDS)]
        if len(self._fork_state.held_locks) == len(locks):
            self._close_handles()

    def after_fork_in_parent(self) -> None:
        """Release the locks; the handles are opened again on first use."""
        self._is_forking = False
        for lock in self._fork_state.held_locks:
            lock.release()
        self._end_fork()

    def after_fork_in_child(self) -> None:
        """Start with new locks; the parent stores its own pending requests."""
        if self._store is not None or self._reader is not None:
            self._closed_reason = "this process was forked while its parent used the store; start it anew"
            _abandoned_handles.append((self._store, self._reader))
        self._reset()
        self._end_fork()

    def _end_fork(self) -> None:
        self._fork_state.held_locks = ()
        # Else the interrupt came before the region, and Python has swallowed it.
        if self._fork_state.is_in_region:
            self._fork_state.is_in_region = False
            uninterrupted.leave_quietly()


# Handles that were in use during a fork. They stay open: closing them would disturb the parent.
_abandoned_handles: list[tuple[Store | None, Reader | None]] = []


def _copy_jobs(jobs: Sequence[NewJob]) -> list[NewJob]:
    """Copy the jobs, so that the caller cannot change them while they wait."""
    copied = list(jobs)
    for job in copied:
        if not isinstance(job, NewJob):
            raise InvalidJob(f"only jobs made by task.job(...) can be enqueued, not {job!r:.60}")
    return copied


def _register_fork_hooks(ref: weakref.ref[Client]) -> None:
    if not hasattr(os, "register_at_fork"):  # Windows has no fork
        return

    # A weak reference, since fork hooks cannot be unregistered.
    def call(hook: Callable[[Client], None]) -> None:
        client = ref()
        if client is not None:
            hook(client)

    os.register_at_fork(
        before=lambda: call(Client.before_fork),
        after_in_parent=lambda: call(Client.after_fork_in_parent),
        after_in_child=lambda: call(Client.after_fork_in_child),
    )
