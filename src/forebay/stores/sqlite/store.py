"""Write handle of the SQLite engine: each method runs one operation in one transaction."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, TypeVar

from forebay.clock import Clock
from forebay.domain.dependencies import PROPAGATION_BATCH, DependencyEvent
from forebay.domain.job import Job, JobId, NewJob, QueueName, WorkerId
from forebay.domain.job_history import Event
from forebay.domain.job_states import JobState
from forebay.domain.job_update import JobUpdate
from forebay.domain.lease import Lease
from forebay.domain.progress import ProgressUpdate
from forebay.domain.queue import Queue, QueueState
from forebay.domain.settlement import Settlement
from forebay.domain.worker import WorkerInfo
from forebay.domain.worker_command import COMMAND_EXPIRES_MS, Command, CommandKind
from forebay.errors import StoreError
from forebay.stores.contract.claims_and_results import (
    BATCH,
    ActionResult,
    InsertResult,
    LeaseStatus,
    OnConflict,
    QueueClaim,
    RenewResult,
    SettleAndClaimResult,
)
from forebay.stores.contract.clock_readings import ClockReading
from forebay.stores.contract.revive_options import ReviveOptions
from forebay.stores.shared.audit_log import append_chain_rows
from forebay.stores.shared.dependency_propagation import PropagationPending
from forebay.stores.shared.rows import Row, json_text
from forebay.stores.sqlite import job_actions, maintenance, queues
from forebay.stores.sqlite import leases as leases_module
from forebay.stores.sqlite.clock_readings import read_clock
from forebay.stores.sqlite.concurrency_and_rate_limits import SqliteLimitStore
from forebay.stores.sqlite.connection import Connection
from forebay.stores.sqlite.database_paths import DatabasePaths
from forebay.stores.sqlite.dependency_propagation import propagate
from forebay.stores.sqlite.documents import SqliteDocumentStore
from forebay.stores.sqlite.errors import DRIVER_ERRORS, translate_error
from forebay.stores.sqlite.insert import InsertRules, insert_all
from forebay.stores.sqlite.job_import_and_export import SqliteJobImport
from forebay.stores.sqlite.metrics import SqliteMetricStore
from forebay.stores.sqlite.schedules import SqliteScheduleStore
from forebay.stores.sqlite.schema_setup_and_check import SchemaGuard, load_sqlite_statements, migrate
from forebay.stores.sqlite.settle_and_claim import settle_and_claim
from forebay.stores.sqlite.transaction import HandleCache, Transaction
from forebay.stores.sqlite.wakeups import SqliteNotifier
from forebay.stores.sqlite.worker_liveness_locks import WorkerLocks
from forebay.stores.sqlite.workers_and_commands import answer_command, heartbeat, send_command, take_commands

T = TypeVar("T")
LARGE_WAL: Final = 64 * 1_048_576


class SqliteStore(
    SqliteScheduleStore, SqliteLimitStore, SqliteDocumentStore, SqliteMetricStore, SqliteJobImport
):
    """Handle to write to one database file."""

    def __init__(
        self, connection: Connection, paths: DatabasePaths, clock: Clock, new_id: Callable[[], JobId] | None
    ) -> None:
        self._connection = connection
        self._paths = paths
        self._clock = clock
        self._new_id = new_id
        self._statements = load_sqlite_statements()
        self._cache = HandleCache()
        self._guard = SchemaGuard(connection.path, self._statements)
        self._worker_locks = WorkerLocks(paths)
        self._notifier = SqliteNotifier(paths)
        self._is_closed = False

    def _write(self, work: Callable[[Transaction], T], *, durable: bool = False, moves: bool = True) -> T:
        """Run an operation in one transaction. One that `moves` jobs counts the new ones first."""
        while True:
            try:
                return self._run_transaction(work, durable=durable, moves=moves)
            except PropagationPending:
                if not self._run_transaction(propagate, durable=False, moves=True):
                    raise

    def _run_transaction(self, work: Callable[[Transaction], T], *, durable: bool, moves: bool) -> T:
        self._check_open()
        needs_wakeup = False

        def transact(raw: sqlite3.Connection) -> T:
            nonlocal needs_wakeup
            self._cache.refresh(raw, self._guard.check)
            # The clock is read under the write lock, so no transaction is older than the one before.
            tx = Transaction(raw, self._statements, self._cache, self._clock.now_ms())
            if moves:
                tx.count_new()
            result = work(tx)
            if tx.has_outbox_entries:
                propagate(tx)
            tx.flush_counts()
            needs_wakeup = tx.needs_wakeup
            return result

        try:
            result = self._connection.write(transact, durable=durable)
        except BaseException:
            self._cache.clear()  # it may hold what was undone
            raise
        if needs_wakeup:
            self._notifier.send()
        return result

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
    ) -> list[InsertResult]:
        if not jobs:
            return []
        rules = InsertRules(on_conflict=on_conflict, create_queues=create_queues)
        return self._write(
            lambda tx: insert_all(tx, self._new_id, jobs, rules, atomic=atomic), durable=True, moves=False
        )

    def settle_and_claim(
        self,
        worker: WorkerId,
        settlements: Sequence[Settlement] = (),
        claims: Sequence[QueueClaim] = (),
        room: int = 0,
        known: Sequence[Lease] | None = None,
        updates: Sequence[ProgressUpdate] = (),
    ) -> SettleAndClaimResult:
        return self._write(
            lambda tx: settle_and_claim(tx, self._new_id, worker, settlements, claims, room, known, updates)
        )

    def lease_status(self, worker: WorkerId, leases: Sequence[Lease]) -> list[LeaseStatus]:
        return self._write(lambda tx: leases_module.lease_status(tx, worker, leases), moves=False)

    def renew(self, worker: WorkerId, leases: Sequence[Lease], lease_ms: int | None = None) -> RenewResult:
        return self._write(lambda tx: leases_module.renew(tx, worker, leases, lease_ms), moves=False)

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
        with self._worker_locks.dead_workers() as dead_here:
            all_dead = dead_here.union(dead)
            jobs = self._write(
                lambda tx: leases_module.sweep(
                    tx, sweeper, all_dead, limit, lease_ms, only_dead=only_dead, ended_by=ended_by
                )
            )
            if len(jobs) < limit:  # else dead workers may hold more, and the next sweep must find them
                # Not the workers that the caller named: another handle, or this one, may hold their locks.
                self._worker_locks.remove_dead(dead_here)
        return jobs

    def promote(self, limit: int = BATCH) -> int:
        def promote(tx: Transaction) -> int:
            moved = maintenance.promote(tx, limit)
            return max(moved, limit) if propagate(tx) >= PROPAGATION_BATCH else moved

        return self._write(promote)

    def rescore(self, limit: int = BATCH) -> int:
        return self._write(lambda tx: maintenance.rescore(tx, limit))

    def prune(self, limit: int = BATCH) -> int:
        pruned = self._write(lambda tx: maintenance.prune(tx, limit))
        if self._paths.wal_size() > LARGE_WAL:
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
    ) -> list[ActionResult]:
        def cancel(tx: Transaction) -> list[ActionResult]:
            if dependants:
                # Before the outbox entries of their ends, which would release some dependants, or end them
                # in another way. A completed job has met its edges, whatever state these have.
                states = tx.states(ids)
                left = [
                    job_id
                    for job_id in ids
                    if states.get(job_id, JobState.COMPLETED) is not JobState.COMPLETED
                ]
                tx.add_to_outbox(left, DependencyEvent.CANCEL)
            return [job_actions.cancel(tx, job_id, reason, actor, force=force) for job_id in ids]

        return self._write(cancel)

    def update_job(self, job_id: JobId, change: JobUpdate, *, actor: str = "") -> ActionResult:
        return self._write(lambda tx: job_actions.update_job(tx, job_id, change, actor))

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
    ) -> list[ActionResult]:
        options = ReviveOptions(queue, delay_ms, reset, actor, dependants, ended_before)
        return self._write(lambda tx: job_actions.revive_all(tx, ids, options), durable=True)

    def delete(self, ids: Sequence[JobId], *, actor: str = "") -> list[ActionResult]:
        return self._write(lambda tx: [job_actions.delete(tx, job_id, actor) for job_id in ids])

    def save_queue(
        self,
        name: QueueName,
        changes: Mapping[str, object] | None = None,
        *,
        state: QueueState | None = None,
        actor: str = "",
    ) -> Queue:
        return self._write(lambda tx: queues.save_queue(tx, name, changes or {}, state, actor), durable=True)

    def drop_queue(self, name: QueueName, *, force: bool = False, limit: int = BATCH, actor: str = "") -> int:
        return self._write(lambda tx: queues.drop_queue(tx, name, limit, actor, force=force), durable=True)

    def heartbeat(self, worker: WorkerInfo) -> None:
        # The lock of a supervised worker is its supervisor's. A worker that sends its own heartbeats, because
        # its supervisor is stopped, must not replace it: it would count as dead when its handle is closed.
        if not worker.is_remote and worker.supervisor in (0, os.getpid()):
            self._worker_locks.acquire(worker.id)
        self._write(lambda tx: heartbeat(tx, worker), moves=False)

    def remove_worker(self, worker: WorkerId) -> None:
        self._write(lambda tx: tx.run("remove_worker", {"id": worker}), moves=False)
        self._worker_locks.release(worker)

    def send_command(
        self,
        kind: CommandKind,
        workers: Sequence[WorkerId] | None = None,
        *,
        queue: QueueName | None = None,
        expires_ms: int = COMMAND_EXPIRES_MS,
        actor: str = "",
    ) -> list[Command]:
        return self._write(lambda tx: send_command(tx, kind, workers, queue, expires_ms, actor), moves=False)

    def take_commands(self, workers: Sequence[WorkerId]) -> list[Command]:
        # Queried first, without the write lock: each worker polls once a second, and nearly always in vain.
        # Between the query and the write another handle may take the command; then the write finds nothing.
        if not self._has_commands(workers):
            return []
        return self._write(lambda tx: take_commands(tx, workers), moves=False)

    def _has_commands(self, workers: Sequence[WorkerId]) -> bool:
        values = {"workers": json_text(workers), "now": self._clock.now_ms()}
        return bool(self._query("commands_pending", values))

    def _query(self, name: str, values: dict[str, object]) -> list[Row]:
        """Run a statement outside of write transactions and return its rows."""
        self._check_open()
        try:
            with self._connection.wait_for_locks(), self._connection.read_transaction() as raw:
                return raw.execute(self._statements[name], values).fetchall()
        except DRIVER_ERRORS as exc:
            raise translate_error(self._connection.path, exc) from exc

    def answer_command(self, command_id: str, text: str) -> None:
        self._write(lambda tx: answer_command(tx, command_id, text), moves=False)

    def acquire_maintenance(self, name: str, every_ms: int) -> bool:
        return self._write(lambda tx: maintenance.acquire_maintenance(tx, name, every_ms), moves=False)

    def read_clock(self, *, record: bool = False) -> ClockReading:
        if not record:
            return ClockReading(now=self._clock.now_ms())
        return self._write(read_clock, moves=False)

    def record_events(self, events: Sequence[Event]) -> None:
        self._write(lambda tx: tx.record_all(events), moves=False)

    def chain_audit(self, limit: int = BATCH) -> int:
        # Under the write lock of the file: the query sees every earlier commit.
        return self._write(lambda tx: append_chain_rows(tx, limit), moves=False)

    def migrate(self) -> int:
        return migrate(self._connection, self._statements, self._clock.now_ms())

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._worker_locks.close()
            self._notifier.close()
            self._connection.close()
