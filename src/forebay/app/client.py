"""The object with which programs enqueue and inspect: any thread, sync or async, also after a fork."""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Lock, local
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from forebay.app.graphs import MayRaise, has_needs, inheriting, raise_ancestors
from forebay.app.handle import JobHandle
from forebay.app.looking import Looks
from forebay.app.offload import Offload
from forebay.app.patience import call_again, call_again_async
from forebay.clock import Clock
from forebay.domain.job import Amendment, Job, JobId, NewJob, QueueName, WorkerId
from forebay.domain.text import check_actor
from forebay.domain.workflow import arranged
from forebay.errors import ConfigError, ForebayError, InvalidJob, StoreBusy, StoreError, StoreUnavailable
from forebay.interrupts import locked, uninterrupted

if TYPE_CHECKING:
    from forebay.domain.history import Timeline
    from forebay.domain.note import Notes
    from forebay.domain.query import Counts, JobQuery, Page
    from forebay.domain.settlement import Settlement
    from forebay.domain.workflow import Edge
    from forebay.stores.protocol import Engine, OnConflict, Reader, Receipt, Store, Verdict

P = ParamSpec("P")
T = TypeVar("T")
Returned = Callable[[str, Any], Any]
Stamped = Callable[[Sequence[NewJob]], list[NewJob]]

# Longer than a store waits for its lock, so that only a handle that is stuck is not closed before a fork.
FORK_WAIT_SECONDS: Final = 60.0


class Request:
    """Jobs that wait to be taken along by whoever has the store next."""

    __slots__ = ("error", "jobs", "on_conflict", "receipts")

    def __init__(self, jobs: Sequence[NewJob], on_conflict: OnConflict) -> None:
        self.jobs: Sequence[NewJob] = jobs
        self.on_conflict = on_conflict
        self.receipts: list[Receipt] | None = None
        self.error: BaseException | None = None

    @property
    def is_answered(self) -> bool:
        return self.receipts is not None or self.error is not None

    def answer(self) -> list[Receipt]:
        if self.error is not None:
            raise self.error
        if self.receipts is None:
            # Taken along by a thread that was interrupted before it had an answer for us.
            raise StoreUnavailable("the thread that stored this was interrupted; it may have been stored")
        return self.receipts


class _Forking(local):
    """What the thread that forks holds meanwhile."""

    held: Sequence[Lock] = ()
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
        returned: Returned = lambda _task, value: value,
        *,
        actor: str | None = None,
    ) -> None:
        check_actor(actor or "")
        self.actor: str = f"app@{host_name()}" if actor is None else actor
        self._engine = engine
        self._clock = clock
        self._returned = returned
        self._stamped: Stamped | None = None
        self._stored: Callable[[], None] | None = None
        self._offload = Offload("forebay-client")
        self._forking = _Forking()
        self._closed_because: str | None = None
        self._start_over()
        _follow_forks(weakref.ref(self))

    def _start_over(self) -> None:
        self._is_forking = False
        self._writing = Lock()
        self._reading = Lock()
        self._waiting: deque[Request] = deque()
        self._store: Store | None = None
        self._reader: Reader | None = None
        self._looks = Looks(self._offload)

    def pass_through(self, engine: Engine, stamped: Stamped | None = None) -> None:
        """Use this engine, which stands before the one there was, for all handles that are opened from now
        on; and give it new jobs as this function makes them, if there is one, on the thread of who
        enqueues."""
        if self._store is not None or self._reader is not None:
            raise ConfigError("this app has used its store before; say so before anything is enqueued")
        self._engine, self._stamped = engine, stamped or self._stamped

    def move(self, engine: Engine, clock: Clock, stored: Callable[[], None] | None = None) -> None:
        """Use another store and another time from now on, as tests do; what was enqueued stays where it is.
        `stored` is called whenever jobs were stored, by who has enqueued them."""
        with uninterrupted, self._writing, self._reading:
            self._close_handles()
            self._engine, self._clock, self._stored = engine, clock, stored

    def outgoing(self, jobs: list[NewJob]) -> list[NewJob]:
        """New jobs as they go to the store: for whoever inserts by ways of its own."""
        return jobs if self._stamped is None else self._stamped(jobs)

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def returned(self, task: str, value: Any) -> Any:
        """A decoded result as the task's annotation wants it."""
        return self._returned(task, value)

    # Enqueue

    def enqueue(
        self, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return", atomic: bool = True
    ) -> list[JobHandle[Any]]:
        """Store jobs; a handle each, in order. Without `atomic`, handles of refused jobs hold the error."""
        jobs = self.outgoing(_checked(jobs))
        try:
            return self._enqueue(jobs, on_conflict, atomic=atomic)
        except StoreBusy as exc:
            # Not under the lock: others of this process store their jobs meanwhile.
            return call_again(lambda: self._enqueue(jobs, on_conflict, atomic=atomic), exc)

    def _enqueue(self, jobs: list[NewJob], on_conflict: OnConflict, *, atomic: bool) -> list[JobHandle[Any]]:
        if has_needs(jobs):
            return self.enqueue_graph(jobs, on_conflict=on_conflict, atomic=atomic)
        if not atomic:
            receipts = self.write(lambda store: store.insert(jobs, on_conflict=on_conflict, atomic=False))
        elif (stored := self._at_once(jobs, on_conflict)) is not None:
            receipts = stored
        else:
            with uninterrupted, self._asked(Request(jobs, on_conflict)) as request:
                receipts = self._answered(request)
        return self._handles(receipts)

    def _handles(self, receipts: Sequence[Receipt]) -> list[JobHandle[Any]]:
        if self._stored is not None:
            self._stored()
        return [JobHandle(self, receipt) for receipt in receipts]

    def _at_once(self, jobs: list[NewJob], on_conflict: OnConflict) -> list[Receipt] | None:
        """Store jobs if nobody else is at it; None if somebody is, and they have to wait."""
        # Whoever forks waits for the lock too, and must not lose it for ever to threads that need not wait.
        if self._is_forking or self._writing.locked():
            return None
        # Another thread may be faster since that look. Then this one waits for one call of the store.
        with locked(self._writing):
            # Whoever waits has come before us and is taken along by the next holder of the lock.
            if self._waiting:
                return None
            return self._opened_store().insert(jobs, on_conflict=on_conflict)

    def enqueue_within(
        self, connection: object, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return"
    ) -> list[JobHandle[Any]]:
        """Store jobs in the caller's own open transaction: with its commit they are there, and not before."""
        placed, went = arranged(self.outgoing(_checked(jobs)))
        with uninterrupted:
            receipts = self._engine.insert_within(connection, placed, on_conflict=on_conflict)
        return [JobHandle(self, receipts[place]) for place in went]

    async def enqueue_within_async(
        self, connection: object, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return"
    ) -> list[JobHandle[Any]]:
        """`enqueue_within` with a connection that lives on this event loop."""
        placed, went = arranged(self.outgoing(_checked(jobs)))
        receipts = await self._engine.insert_within_async(connection, placed, on_conflict=on_conflict)
        return [JobHandle(self, receipts[place]) for place in went]

    def complete_within(self, connection: object, worker: WorkerId, settlement: Settlement) -> None:
        """End a lease as completed in the caller's own open transaction."""
        with uninterrupted:
            self._engine.complete_within(connection, worker, settlement)

    async def complete_within_async(
        self, connection: object, worker: WorkerId, settlement: Settlement
    ) -> None:
        """`complete_within` with a connection that lives on this event loop."""
        await self._engine.complete_within_async(connection, worker, settlement)

    async def enqueue_async(
        self, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return", atomic: bool = True
    ) -> list[JobHandle[Any]]:
        """`enqueue` for coroutines; concurrent ones share a commit.

        One that is cancelled while it waits has stored nothing, unless the store was already at it.
        """
        jobs = self.outgoing(_checked(jobs))
        try:
            return await self._enqueue_async(jobs, on_conflict, atomic=atomic)
        except StoreBusy as exc:
            return await call_again_async(lambda: self._enqueue_async(jobs, on_conflict, atomic=atomic), exc)

    async def _enqueue_async(
        self, jobs: list[NewJob], on_conflict: OnConflict, *, atomic: bool
    ) -> list[JobHandle[Any]]:
        if not atomic or has_needs(jobs):
            return await self._offload(self._enqueue, jobs, on_conflict, atomic=atomic)
        with self._asked(Request(jobs, on_conflict)) as request:
            receipts = await self._offload(self._answered, request)
        return self._handles(receipts)

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
        placed, went = arranged(jobs)
        lifted = self.read(lambda reader: inheriting(reader, placed))
        receipts = self.write(lambda store: store.insert(lifted, on_conflict=on_conflict, atomic=atomic))
        if any(job.priority is not None for job in lifted):
            # The jobs are stored: who heard of an error now would enqueue them again, for a mere order.
            with suppress(StoreError):
                self.write(
                    lambda store: self.read(
                        lambda reader: raise_ancestors(store, reader, lifted, may_raise, actor=self.actor)
                    )
                )
        return self._handles([receipts[place] for place in went])

    @contextmanager
    def _asked(self, request: Request) -> Iterator[Request]:
        self._waiting.append(request)
        try:
            yield request
        except BaseException:
            # Nobody waits for it any more: the next to enqueue, perhaps in an hour, must not take it along.
            with suppress(ValueError):
                self._waiting.remove(request)
            raise

    def _answered(self, request: Request) -> list[Receipt]:
        # Whoever waits here finds its request answered when the holder before took it along.
        with uninterrupted, self._writing:
            if not request.is_answered:
                self._take_along()
        return request.answer()

    def _take_along(self) -> None:
        """Insert all that waits: plain requests in one call, and by halves if that is refused."""
        requests = [self._waiting.popleft() for _ in range(len(self._waiting))]
        try:
            plain = [request for request in requests if request.on_conflict == "return"]
            if plain:
                self._together(plain)
            for request in requests:
                if not request.is_answered:
                    self._alone(request)
        except StoreUnavailable as exc:
            # Nobody else would fare better now, and what may have happened must not be done again.
            for request in requests:
                if not request.is_answered:
                    request.error = StoreUnavailable(str(exc))
                    request.error.__cause__ = exc

    def _together(self, requests: list[Request]) -> None:
        """Insert requests in one call. If one of them is to blame for an error, go on by halves, so that the
        others are stored and only that one gets the error."""
        if len(requests) == 1:
            self._alone(requests[0])
            return
        jobs = [job for request in requests for job in request.jobs]
        try:
            receipts = self._opened_store().insert(jobs)
        except ForebayError as exc:
            if isinstance(exc, StoreUnavailable) and not isinstance(exc, StoreBusy):
                raise
            middle = len(requests) // 2
            self._together(requests[:middle])
            self._together(requests[middle:])
            return
        start = 0
        for request in requests:
            request.receipts = receipts[start : start + len(request.jobs)]
            start += len(request.jobs)

    def _alone(self, request: Request) -> None:
        try:
            request.receipts = self._opened_store().insert(request.jobs, on_conflict=request.on_conflict)
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
        return await self._looks(job_id, self.jobs)

    def history(self, job_id: JobId) -> Timeline | None:
        """All that is known about one job."""
        return self.read(lambda reader: reader.history(job_id))

    def notes(self, job_id: JobId) -> Notes:
        """What attempts at one job have said."""
        return self.read(lambda reader: reader.notes(job_id))

    def why_waiting(self, job: Job) -> str | None:
        """Say why a job is not claimed, if its queue is the reason."""
        from forebay.app.unserved import why_waiting  # noqa: PLC0415 - only where a wait was too short

        return self.read(lambda reader: why_waiting(reader, job))

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
    ) -> list[Verdict]:
        """Cancel jobs that wait; ask running ones to stop."""
        return self.write(
            lambda store: store.cancel(ids, reason, actor=self.actor, force=force, dependants=dependants)
        )

    def amend(self, job_id: JobId, change: Amendment) -> Verdict:
        """Change a job that waits."""
        return self.write(lambda store: store.amend(job_id, change, actor=self.actor))

    def revive(self, ids: Sequence[JobId], *, dependants: bool = False) -> list[Verdict]:
        """Put dead and cancelled jobs back."""
        return self.write(lambda store: store.revive(ids, actor=self.actor, dependants=dependants))

    # Handles

    async def offloaded(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking call of this client's on its store thread, for coroutines."""
        return await self._offload(call, *args, **kwargs)

    def write(self, call: Callable[[Store], T]) -> T:
        """Use the one handle to write."""
        with uninterrupted, self._writing:
            return call(self._opened_store())

    def read(self, call: Callable[[Reader], T]) -> T:
        """Use the one handle to look."""
        with uninterrupted, self._reading:
            self._check_open()
            if self._reader is None:
                self._reader = self._engine.reader()
            return call(self._reader)

    def _opened_store(self) -> Store:
        self._check_open()
        if self._store is None:
            self._store = self._engine.store()
        return self._store

    def _check_open(self) -> None:
        if self._closed_because is not None:
            raise StoreError(self._closed_because)

    def close(self) -> None:
        """Let go of both handles. What was enqueued is stored; nothing can be enqueued from now on."""
        with uninterrupted, self._writing, self._reading:
            self._closed_because = self._closed_because or "this app is closed"
            self._close_handles()
        self._offload.close()

    def close_handles(self) -> None:
        """Close both handles; the next call opens them again. For an owner that is to drop the database."""
        with uninterrupted, self._writing, self._reading:
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
        self._forking.is_in_region = True
        locks = (self._writing, self._reading)
        self._is_forking = True
        self._forking.held = [lock for lock in locks if lock.acquire(timeout=FORK_WAIT_SECONDS)]
        if len(self._forking.held) == len(locks):
            self._close_handles()

    def after_fork_in_parent(self) -> None:
        """Go on; the handles are opened again when they are needed."""
        self._is_forking = False
        for lock in self._forking.held:
            lock.release()
        self._forked()

    def after_fork_in_child(self) -> None:
        """Start over with locks that nobody holds; what waits in the parent is stored by the parent."""
        if self._store is not None or self._reader is not None:
            self._closed_because = "this process was forked while its parent used the store; start it anew"
            _left_behind.append((self._store, self._reader))
        self._start_over()
        self._forked()

    def _forked(self) -> None:
        self._forking.held = ()
        if self._forking.is_in_region:  # else the interrupt came before all this, and Python has swallowed it
            self._forking.is_in_region = False
            uninterrupted.leave_quietly()


# Handles that were in use during a fork. Kept, because closing them would disturb the parent.
_left_behind: list[tuple[Store | None, Reader | None]] = []


def _checked(jobs: Sequence[NewJob]) -> list[NewJob]:
    """A copy that nobody changes while it waits."""
    found = list(jobs)
    for job in found:
        if not isinstance(job, NewJob):
            raise InvalidJob(f"only jobs made by task.job(...) can be enqueued, not {job!r:.60}")
    return found


def host_name() -> str:
    """What this machine is called."""
    if hasattr(os, "uname"):
        return os.uname().nodename
    import socket  # noqa: PLC0415 - on Windows alone; it takes longer to load than the answer is worth

    return socket.gethostname()


def _follow_forks(ref: weakref.ref[Client]) -> None:
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
