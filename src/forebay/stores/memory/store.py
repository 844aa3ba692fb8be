"""The memory engine and its write side: each method is one change of the state, under one lock."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Final

from forebay.clock import Clock, SystemClock
from forebay.domain.document import Document
from forebay.domain.firing import Move
from forebay.domain.history import Event
from forebay.domain.job import Amendment, Job, JobId, NewJob, QueueName, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.limits import Limit
from forebay.domain.metrics import MetricPage, MetricRow, Stock
from forebay.domain.moving import Whole
from forebay.domain.note import Note
from forebay.domain.queue import Queue, QueueState
from forebay.domain.schedule import Schedule
from forebay.domain.settlement import Settlement
from forebay.domain.worker import COMMAND_EXPIRES_MS, Command, CommandKind, WorkerInfo
from forebay.domain.workflow import RELEASED_AT_ONCE
from forebay.errors import ConfigError, StoreError
from forebay.stores import ids as job_ids
from forebay.stores.clock_reading import ClockReading
from forebay.stores.measuring import ROWS_AT_ONCE
from forebay.stores.memory import (
    adopting,
    audit_log,
    commanding,
    documents,
    duties,
    inserting,
    leasing,
    limiting,
    measuring,
    scheduling,
    steering,
)
from forebay.stores.memory.following import follow
from forebay.stores.memory.reader import MemoryReader
from forebay.stores.memory.state import State
from forebay.stores.memory.wakeups import Bell, MemoryWakeups
from forebay.stores.protocol import (
    BATCH,
    Exchange,
    Features,
    OnConflict,
    Reader,
    Receipt,
    Renewal,
    Standing,
    Store,
    Verdict,
    Wakeups,
    Want,
)
from forebay.stores.reviving import Revival
from forebay.stores.scheduling import DueSchedules, Fired

NOTHING_TO_JOIN: Final = (
    "the memory engine has no transactions to join; use sqlite:/// or postgresql:// for that"
)


class MemoryEngine:
    """Jobs that live as long as this object. Its handles may be used by several threads at once."""

    features: Features = Features(
        name="memory", is_durable=False, is_shared=False, joins_transactions=False, has_one_writer=True
    )

    def __init__(self, *, clock: Clock | None = None, new_id: Callable[[], JobId] = job_ids.new_id) -> None:
        self._clock = clock or SystemClock()
        self._state = State(new_id)
        self._lock = RLock()
        self._bell = Bell()

    def store(self) -> Store:
        return MemoryStore(self)

    def reader(self) -> Reader:
        return MemoryReader(self.looking)

    @property
    def place(self) -> str:
        return f"memory of this program at {id(self):#x}"

    def migrate(self) -> int:
        return self.store().migrate()

    def check_schema(self) -> None:
        pass  # it has none

    def insert_within(
        self, connection: object, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return"
    ) -> list[Receipt]:
        raise ConfigError(NOTHING_TO_JOIN)

    async def insert_within_async(
        self, connection: object, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return"
    ) -> list[Receipt]:
        raise ConfigError(NOTHING_TO_JOIN)

    def complete_within(self, connection: object, worker: WorkerId, settlement: Settlement) -> None:
        raise ConfigError(NOTHING_TO_JOIN)

    async def complete_within_async(
        self, connection: object, worker: WorkerId, settlement: Settlement
    ) -> None:
        raise ConfigError(NOTHING_TO_JOIN)

    def wakeups(self) -> Wakeups:
        return MemoryWakeups(self._bell)

    @contextmanager
    def looking(self) -> Iterator[State]:
        """The state for as long as nobody changes it."""
        with self._lock:
            self._state.now = self._clock.now_ms()
            yield self._state

    @contextmanager
    def changing(self) -> Iterator[State]:
        """The state for one call that happens whole or not at all."""
        with self._lock:
            self._state.begin(self._clock.now_ms())
            try:
                yield self._state
            except BaseException:
                self._state.undo()
                raise
            has_news = self._state.has_news
        if has_news:
            self._bell.ring()


class MemoryStore:
    def __init__(self, engine: MemoryEngine) -> None:
        self._engine = engine
        self._closed = False

    def insert(
        self,
        jobs: Sequence[NewJob],
        *,
        on_conflict: OnConflict = "return",
        atomic: bool = True,
        create_queues: bool = True,
    ) -> list[Receipt]:
        with self._ending() as state:
            return inserting.insert(state, jobs, on_conflict, atomic, create_queues)

    def exchange(
        self,
        worker: WorkerId,
        settlements: Sequence[Settlement] = (),
        wants: Sequence[Want] = (),
        room: int = 0,
        known: Sequence[Lease] | None = None,
        notes: Sequence[Note] = (),
    ) -> Exchange:
        with self._changing() as state:
            return leasing.exchange(state, worker, settlements, wants, room, known, notes)

    def standing(self, worker: WorkerId, leases: Sequence[Lease]) -> list[Standing]:
        with self._changing() as state:
            return leasing.standing(state, worker, leases)

    def renew(self, worker: WorkerId, leases: Sequence[Lease], lease_ms: int | None = None) -> Renewal:
        with self._changing() as state:
            return leasing.renew(state, worker, leases, lease_ms)

    def sweep(
        self,
        sweeper: WorkerId,
        limit: int = BATCH,
        lease_ms: int = 30_000,
        *,
        only_dead: bool = False,
        dead: Collection[WorkerId] = (),
        ended_by: int | None = None,
    ) -> list[Job]:
        with self._ending() as state:
            duties.bury_stragglers(state, limit)
            return leasing.sweep(
                state, sweeper, limit, lease_ms, only_dead=only_dead, dead=dead, ended_by=ended_by
            )

    def promote(self, limit: int = BATCH) -> int:
        with self._changing() as state:
            moved = duties.promote(state, limit)
            return max(moved, limit) if follow(state) >= RELEASED_AT_ONCE else moved

    def rescore(self, limit: int = BATCH) -> int:
        with self._changing() as state:
            return duties.rescore(state, limit)

    def prune(self, limit: int = BATCH) -> int:
        with self._ending() as state:
            return duties.prune(state, limit)

    def cancel(
        self,
        ids: Sequence[JobId],
        reason: str = "cancelled",
        *,
        actor: str = "",
        force: bool = False,
        dependants: bool = False,
    ) -> list[Verdict]:
        with self._ending() as state:
            return steering.cancel(state, ids, reason, actor, force=force, dependants=dependants)

    def amend(self, job_id: JobId, change: Amendment, *, actor: str = "") -> Verdict:
        with self._changing() as state:
            return steering.amend(state, job_id, change, actor)

    def revive(
        self,
        ids: Sequence[JobId],
        *,
        queue: QueueName | None = None,
        delay_ms: int = 0,
        reset: bool = True,
        actor: str = "",
        dependants: bool = False,
        ended_before: int | None = None,
    ) -> list[Verdict]:
        how = Revival(queue, delay_ms, reset, actor, dependants, ended_before)
        with self._ending() as state:
            return steering.revive(state, ids, how)

    def delete(self, ids: Sequence[JobId], *, actor: str = "") -> list[Verdict]:
        with self._ending() as state:
            return steering.delete(state, ids, actor)

    def adopt(self, jobs: Sequence[Whole]) -> list[bool]:
        with self._ending() as state:
            return adopting.adopt(state, jobs)

    def save_queue(
        self,
        name: QueueName,
        changes: Mapping[str, object] | None = None,
        *,
        state: QueueState | None = None,
        actor: str = "",
    ) -> Queue:
        with self._changing() as changed:
            return steering.save_queue(changed, name, changes, state, actor)

    def drop_queue(self, name: QueueName, *, force: bool = False, limit: int = BATCH, actor: str = "") -> int:
        with self._ending() as state:
            return steering.drop_queue(state, name, force, limit, actor)

    def save_limit(self, limit: Limit, *, actor: str = "") -> None:
        with self._changing() as state:
            limiting.save(state, limit, actor)

    def drop_limit(self, scope: str, *, actor: str = "") -> bool:
        with self._changing() as state:
            return limiting.drop(state, scope, actor)

    def save_schedule(self, schedule: Schedule, *, actor: str = "") -> bool:
        with self._changing() as state:
            return scheduling.save(state, schedule, actor)

    def drop_schedule(self, name: str, *, actor: str = "") -> bool:
        with self._changing() as state:
            return scheduling.drop(state, name, actor)

    def due_schedules(self, limit: int = 100) -> DueSchedules:
        with self._changing() as state:
            return scheduling.due(state, limit)

    def fire(self, moves: Sequence[Move]) -> list[Fired]:
        with self._changing() as state:
            return scheduling.fire(state, moves)

    def save_document(self, document: Document, *, event: Event | None = None) -> bool:
        with self._changing() as state:
            return documents.save(state, document, event)

    def drop_document(self, kind: str, name: str, *, event: Event | None = None) -> bool:
        with self._changing() as state:
            return documents.drop(state, kind, name, event)

    def record_metrics(self, rows: Sequence[MetricRow], *, instead_of: Sequence[MetricRow] = ()) -> None:
        with self._changing() as state:
            measuring.record(state, rows, instead_of)

    def forget_metrics(self, tier: int, before: int, limit: int = ROWS_AT_ONCE) -> int:
        with self._changing() as state:
            return measuring.forget(state, tier, before, limit)

    def metrics(self, tier: int, since: int, before: int, *, limit: int = ROWS_AT_ONCE) -> MetricPage:
        with self._changing() as state:
            return measuring.page(state, tier, since, before, limit)

    def last_metrics(self, tier: int) -> int | None:
        with self._changing() as state:
            return measuring.last(state, tier)

    def take_stock(self) -> dict[QueueName, Stock]:
        with self._changing() as state:
            return measuring.stock(state)

    def beat(self, worker: WorkerInfo) -> None:
        with self._changing() as state:
            duties.beat(state, worker)

    def forget_worker(self, worker: WorkerId) -> None:
        with self._changing() as state:
            state.write(state.workers, worker, None)

    def send(
        self,
        kind: CommandKind,
        workers: Sequence[WorkerId] | None = None,
        *,
        queue: QueueName | None = None,
        expires_ms: int = COMMAND_EXPIRES_MS,
        actor: str = "",
    ) -> list[Command]:
        with self._changing() as state:
            return commanding.send(state, kind, workers, queue, expires_ms, actor)

    def take_commands(self, workers: Sequence[WorkerId]) -> list[Command]:
        with self._changing() as state:
            return commanding.take(state, workers)

    def answer(self, command_id: str, text: str) -> None:
        with self._changing() as state:
            commanding.answer(state, command_id, text)

    def take_duty(self, name: str, every_ms: int) -> bool:
        with self._changing() as state:
            return duties.take_duty(state, name, every_ms)

    def read_clock(self, *, record: bool = False) -> ClockReading:
        with self._changing() as state:
            return duties.read_clock(state, record=record)

    def record(self, events: Sequence[Event]) -> None:
        with self._changing() as state:
            for event in events:
                state.record(event)

    def chain_audit(self, limit: int = BATCH) -> int:
        with self._changing() as state:
            return audit_log.chain(state, limit)

    def migrate(self) -> int:
        with self._changing():
            return 1

    def close(self) -> None:
        self._closed = True

    @contextmanager
    def _ending(self) -> Iterator[State]:
        """For a call that may end jobs, or revive them: others may depend on these."""
        with self._changing() as state:
            yield state
            follow(state)

    @contextmanager
    def _changing(self) -> Iterator[State]:
        if self._closed:
            raise StoreError("this handle is closed")
        with self._engine.changing() as state:
            yield state
