"""SQLite behind the seam: the engine, and the write side with each method bound to its operation."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Final, TypeVar

from forebay.clock import Clock, SystemClock
from forebay.domain.history import Event
from forebay.domain.job import Amendment, Job, JobId, NewJob, QueueName, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.lifecycle import JobState
from forebay.domain.note import Note
from forebay.domain.queue import Queue, QueueState
from forebay.domain.settlement import Settlement
from forebay.domain.worker import COMMAND_EXPIRES_MS, Command, CommandKind, WorkerInfo
from forebay.domain.workflow import RELEASED_AT_ONCE, Aftermath
from forebay.errors import ConfigError, StoreError
from forebay.stores.audit_log import chain_rows
from forebay.stores.clock_reading import ClockReading
from forebay.stores.completing import check_completed
from forebay.stores.following import StillListed
from forebay.stores.protocol import (
    BATCH,
    Exchange,
    Features,
    OnConflict,
    Receipt,
    Renewal,
    Standing,
    Verdict,
    Want,
)
from forebay.stores.reviving import Revival
from forebay.stores.rows import Row, json_text
from forebay.stores.sqlite import commanding, duties, leasing, operating
from forebay.stores.sqlite.adopting import SqliteAdopting
from forebay.stores.sqlite.borrowed import Borrowed
from forebay.stores.sqlite.connection import DRIVER_ERRORS, Connection, Durability, translated
from forebay.stores.sqlite.documents import SqliteDocuments
from forebay.stores.sqlite.exchanging import exchange
from forebay.stores.sqlite.following import follow
from forebay.stores.sqlite.inserting import Rules, insert_all
from forebay.stores.sqlite.limiting import SqliteLimits
from forebay.stores.sqlite.liveness import Liveness
from forebay.stores.sqlite.measuring import SqliteMetrics
from forebay.stores.sqlite.places import Places
from forebay.stores.sqlite.reader import SqliteReader
from forebay.stores.sqlite.scheduling import SqliteSchedules
from forebay.stores.sqlite.schema import PACKAGE, SchemaGuard, check_schema, look_at_schema, migrate
from forebay.stores.sqlite.settling import settle_all
from forebay.stores.sqlite.transaction import Seen, Transaction
from forebay.stores.sqlite.wakeups import Pokes, SqliteWakeups
from forebay.stores.statements import load_statements

T = TypeVar("T")

BLOCKS: Final = "a connection to a SQLite file blocks: use a sqlite3 connection and the method without _async"
LARGE_WAL: Final = 64 * 1_048_576


class SqliteEngine:
    """A database file, embedded in the program or shared by several programs of one machine.

    `durability` says what a power cut may take: "default" nothing that was accepted, but the last claims
    and settlements, so that a job may run again; "relaxed" also the last accepted jobs; "full" nothing. New
    files are for their user alone; with `is_for_group` for their group too.
    """

    features: Features = Features(
        name="sqlite",
        is_durable=True,
        is_shared=True,
        joins_transactions=True,
        notices_death=True,
        has_one_writer=True,
    )

    def __init__(
        self,
        path: str,
        *,
        clock: Clock | None = None,
        new_id: Callable[[], JobId] | None = None,
        durability: Durability = "default",
        lock_wait_ms: int = 30_000,
        is_for_group: bool = False,
    ) -> None:
        self._places = Places(path, is_for_group=is_for_group)
        self._clock = clock or SystemClock()
        self._new_id = new_id
        self._durability: Durability = durability
        self._lock_wait_ms = lock_wait_ms

    @property
    def place(self) -> str:
        return os.path.realpath(self._places.database)

    def store(self) -> SqliteStore:
        return SqliteStore(self._connection(), self._places, self._clock, self._new_id)

    def reader(self) -> SqliteReader:
        return SqliteReader(self._connection(), self._clock)

    def wakeups(self) -> SqliteWakeups:
        return SqliteWakeups(self._places)

    def migrate(self) -> int:
        with closing(self.store()) as store:
            return store.migrate()

    def check_schema(self) -> None:
        self._places.check_disk()
        look_at_schema(self._places.database, load_statements(PACKAGE))

    def insert_within(
        self, connection: object, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return"
    ) -> list[Receipt]:
        with self._joined(connection) as tx:
            return insert_all(tx, self._new_id, jobs, Rules(on_conflict=on_conflict), atomic=True)

    async def insert_within_async(
        self, connection: object, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return"
    ) -> list[Receipt]:
        raise ConfigError(BLOCKS)

    def complete_within(self, connection: object, worker: WorkerId, settlement: Settlement) -> None:
        with self._joined(connection) as tx:
            tx.count_new()
            ended = settle_all(tx, self._new_id, worker, [settlement])
            check_completed(settlement, ended.settled, ended.refused)

    async def complete_within_async(
        self, connection: object, worker: WorkerId, settlement: Settlement
    ) -> None:
        raise ConfigError(BLOCKS)

    @contextmanager
    def _joined(self, connection: object) -> Iterator[Transaction]:
        """A transaction of ours inside the caller's."""
        borrowed = Borrowed(connection, self._places.database)
        statements = load_statements(PACKAGE)
        with borrowed.whole():
            check_schema(borrowed, statements, self._places.database)
            tx = Transaction(borrowed, statements, Seen(), self._clock.now_ms())
            yield tx
            if tx.has_listed:
                follow(tx)
            tx.flush_counts()

    def _connection(self) -> Connection:
        self._places.check_disk()
        connection = Connection(self._places, durability=self._durability, lock_wait_ms=self._lock_wait_ms)
        try:
            migrate(connection, load_statements(PACKAGE), self._clock.now_ms())
        except BaseException:
            connection.close()
            raise
        return connection


class SqliteStore(SqliteSchedules, SqliteLimits, SqliteDocuments, SqliteMetrics, SqliteAdopting):
    """A handle to write to one database file."""

    def __init__(
        self, connection: Connection, places: Places, clock: Clock, new_id: Callable[[], JobId] | None
    ) -> None:
        self._connection = connection
        self._places = places
        self._clock = clock
        self._new_id = new_id
        self._statements = load_statements(PACKAGE)
        self._seen = Seen()
        self._guard = SchemaGuard(connection.path, self._statements)
        self._liveness = Liveness(places)
        self._pokes = Pokes(places)
        self._is_closed = False

    def _write(self, work: Callable[[Transaction], T], *, durable: bool = False, moves: bool = True) -> T:
        """Do some work in one transaction; work that `moves` jobs counts the new ones first."""
        while True:
            try:
                return self._written(work, durable=durable, moves=moves)
            except StillListed:
                if not self._written(follow, durable=False, moves=True):
                    raise

    def _written(self, work: Callable[[Transaction], T], *, durable: bool, moves: bool) -> T:
        self._check_open()
        has_news = False

        def transact(raw: sqlite3.Connection) -> T:
            nonlocal has_news
            self._seen.refresh(raw, self._guard.check)
            # The clock is read under the write lock, so no transaction is older than the one before.
            tx = Transaction(raw, self._statements, self._seen, self._clock.now_ms())
            if moves:
                tx.count_new()
            answer = work(tx)
            if tx.has_listed:
                follow(tx)
            tx.flush_counts()
            has_news = tx.has_news
            return answer

        try:
            answer = self._connection.write(transact, durable=durable)
        except BaseException:
            self._seen.clear()  # it may hold what was undone
            raise
        if has_news:
            self._pokes.send()
        return answer

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreError("this handle is closed; open another one")

    def insert(
        self,
        jobs: Sequence[NewJob],
        *,
        on_conflict: OnConflict = "return",
        atomic: bool = True,
        create_queues: bool = True,
    ) -> list[Receipt]:
        if not jobs:
            return []
        rules = Rules(on_conflict=on_conflict, create_queues=create_queues)
        return self._write(
            lambda tx: insert_all(tx, self._new_id, jobs, rules, atomic=atomic), durable=True, moves=False
        )

    def exchange(
        self,
        worker: WorkerId,
        settlements: Sequence[Settlement] = (),
        wants: Sequence[Want] = (),
        room: int = 0,
        known: Sequence[Lease] | None = None,
        notes: Sequence[Note] = (),
    ) -> Exchange:
        return self._write(
            lambda tx: exchange(tx, self._new_id, worker, settlements, wants, room, known, notes)
        )

    def standing(self, worker: WorkerId, leases: Sequence[Lease]) -> list[Standing]:
        return self._write(lambda tx: leasing.standing(tx, worker, leases), moves=False)

    def renew(self, worker: WorkerId, leases: Sequence[Lease], lease_ms: int | None = None) -> Renewal:
        return self._write(lambda tx: leasing.renew(tx, worker, leases, lease_ms), moves=False)

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
        with self._liveness.dead_workers() as found:
            all_dead = found.union(dead)
            jobs = self._write(
                lambda tx: leasing.sweep(
                    tx, sweeper, all_dead, limit, lease_ms, only_dead=only_dead, ended_by=ended_by
                )
            )
            if len(jobs) < limit:  # else the dead may hold more, and the next sweep must know them
                # Not those that were only named: somebody may hold their locks, this very handle even.
                self._liveness.bury(found)
        return jobs

    def promote(self, limit: int = BATCH) -> int:
        def promote(tx: Transaction) -> int:
            moved = duties.promote(tx, limit)
            return max(moved, limit) if follow(tx) >= RELEASED_AT_ONCE else moved

        return self._write(promote)

    def rescore(self, limit: int = BATCH) -> int:
        return self._write(lambda tx: duties.rescore(tx, limit))

    def prune(self, limit: int = BATCH) -> int:
        pruned = self._write(lambda tx: duties.prune(tx, limit))
        if self._places.wal_size() > LARGE_WAL:
            self._connection.checkpoint()
        return pruned

    def cancel(
        self,
        ids: Sequence[JobId],
        reason: str = "cancelled",
        *,
        actor: str = "",
        force: bool = False,
        dependants: bool = False,
    ) -> list[Verdict]:
        def cancel(tx: Transaction) -> list[Verdict]:
            if dependants:
                # Before the lines of their ends, by which some dependants would be released, or die.
                # What has completed has met its edges, whatever these say.
                states = tx.states(ids)
                left = [one for one in ids if states.get(one, JobState.COMPLETED) is not JobState.COMPLETED]
                tx.list_aftermath(left, Aftermath.CANCEL)
            return [operating.cancel(tx, job_id, reason, actor, force=force) for job_id in ids]

        return self._write(cancel)

    def amend(self, job_id: JobId, change: Amendment, *, actor: str = "") -> Verdict:
        return self._write(lambda tx: operating.amend(tx, job_id, change, actor))

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
        return self._write(lambda tx: operating.revive_all(tx, ids, how), durable=True)

    def delete(self, ids: Sequence[JobId], *, actor: str = "") -> list[Verdict]:
        return self._write(lambda tx: [operating.delete(tx, job_id, actor) for job_id in ids])

    def save_queue(
        self,
        name: QueueName,
        changes: Mapping[str, object] | None = None,
        *,
        state: QueueState | None = None,
        actor: str = "",
    ) -> Queue:
        return self._write(
            lambda tx: operating.save_queue(tx, name, changes or {}, state, actor), durable=True
        )

    def drop_queue(self, name: QueueName, *, force: bool = False, limit: int = BATCH, actor: str = "") -> int:
        return self._write(lambda tx: operating.drop_queue(tx, name, limit, actor, force=force), durable=True)

    def beat(self, worker: WorkerInfo) -> None:
        # The lock of a supervised worker is its supervisor's. A worker that beats for itself, because its
        # supervisor is stopped, must not replace it: it would count as dead when its handle is closed.
        if not worker.is_remote and worker.supervisor in (0, os.getpid()):
            self._liveness.hold(worker.id)
        self._write(lambda tx: operating.beat(tx, worker), moves=False)

    def forget_worker(self, worker: WorkerId) -> None:
        self._write(lambda tx: tx.run("forget_worker", {"id": worker}), moves=False)
        self._liveness.forget(worker)

    def send(
        self,
        kind: CommandKind,
        workers: Sequence[WorkerId] | None = None,
        *,
        queue: QueueName | None = None,
        expires_ms: int = COMMAND_EXPIRES_MS,
        actor: str = "",
    ) -> list[Command]:
        return self._write(
            lambda tx: commanding.send(tx, kind, workers, queue, expires_ms, actor), moves=False
        )

    def take_commands(self, workers: Sequence[WorkerId]) -> list[Command]:
        # Looked at first, beside all writers: each worker asks once a second, and nearly never for anything.
        # Between the look and the write somebody else may take the command; then the write finds nothing.
        if not self._has_commands(workers):
            return []
        return self._write(lambda tx: commanding.take(tx, workers), moves=False)

    def _has_commands(self, workers: Sequence[WorkerId]) -> bool:
        values = {"workers": json_text(workers), "now": self._clock.now_ms()}
        return bool(self._looked("commands_wait", values))

    def _looked(self, name: str, values: dict[str, object]) -> list[Row]:
        """What a statement finds, beside all writers."""
        self._check_open()
        try:
            with self._connection.patient(), self._connection.reading() as raw:
                return raw.execute(self._statements[name], values).fetchall()
        except DRIVER_ERRORS as exc:
            raise translated(self._connection.path, exc) from exc

    def answer(self, command_id: str, text: str) -> None:
        self._write(lambda tx: commanding.answer(tx, command_id, text), moves=False)

    def take_duty(self, name: str, every_ms: int) -> bool:
        return self._write(lambda tx: operating.take_duty(tx, name, every_ms), moves=False)

    def read_clock(self, *, record: bool = False) -> ClockReading:
        if not record:
            return ClockReading(now=self._clock.now_ms())
        return self._write(operating.record_clock, moves=False)

    def record(self, events: Sequence[Event]) -> None:
        self._write(lambda tx: tx.record_all(events), moves=False)

    def chain_audit(self, limit: int = BATCH) -> int:
        # Under the write lock of the file: the lines are looked for after every earlier commit.
        return self._write(lambda tx: chain_rows(tx, limit), moves=False)

    def migrate(self) -> int:
        return migrate(self._connection, self._statements, self._clock.now_ms())

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._liveness.close()
            self._pokes.close()
            self._connection.close()
