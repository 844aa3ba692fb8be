"""Write side of the PostgreSQL engine: one method per method of the store contract."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Final, TypeVar

from forebay.domain.dependencies import PROPAGATION_BATCH, DependencyEvent
from forebay.domain.job import Job, JobId, NewJob, QueueName, WorkerId
from forebay.domain.job_history import Event
from forebay.domain.job_states import JobState, is_final
from forebay.domain.job_update import JobUpdate
from forebay.domain.lease import Lease
from forebay.domain.progress import ProgressUpdate
from forebay.domain.queue import Queue, QueueState
from forebay.domain.settlement import Settlement
from forebay.domain.worker import WorkerInfo
from forebay.domain.worker_command import COMMAND_EXPIRES_MS, Command, CommandKind
from forebay.errors import StoreBusy, StoreError, StoreUnavailable
from forebay.stores.contract.claims_and_results import (
    BATCH,
    ActionResult,
    InsertResult,
    LeaseStatus,
    OnConflict,
    QueueClaim,
    RenewResult,
    SettleAndClaimResult,
    remaining_claims,
)
from forebay.stores.contract.clock_readings import ClockReading
from forebay.stores.contract.revive_options import ReviveOptions
from forebay.stores.postgres import dependency_propagation, job_actions, maintenance, partitions, queues
from forebay.stores.postgres import leases as lease_ops
from forebay.stores.postgres.binary_parameters import bigint, bigints, text, texts
from forebay.stores.postgres.cheap_autocommit_statements import AutocommitStatements
from forebay.stores.postgres.claim_cursor import ClaimCursor
from forebay.stores.postgres.clock_readings import read_clock
from forebay.stores.postgres.concurrency_and_rate_limits import PostgresLimitStore
from forebay.stores.postgres.connection import TRIES, Connection, Raw
from forebay.stores.postgres.documents import PostgresDocumentStore
from forebay.stores.postgres.insert import InsertRules, insert_all
from forebay.stores.postgres.insert_fast import FastInsert
from forebay.stores.postgres.job_import_and_export import PostgresJobImport
from forebay.stores.postgres.metrics import PostgresMetricStore
from forebay.stores.postgres.row_locks import apply_to_jobs, lock_failed
from forebay.stores.postgres.schedules import PostgresScheduleStore
from forebay.stores.postgres.schema_setup_and_check import migrate, statements_for
from forebay.stores.postgres.settle_and_claim import settle_and_claim, with_more_jobs
from forebay.stores.postgres.settle_and_claim_fast import FEW_DEPENDANTS, FastSettleAndClaim, PartialResult
from forebay.stores.postgres.transaction import HandleCache, Transaction
from forebay.stores.postgres.wakeups import PostgresNotifier
from forebay.stores.postgres.workers_and_commands import (
    KINDS,
    answer_command,
    commands_from_rows,
    heartbeat,
    send_command,
    take_commands,
)
from forebay.stores.shared.audit_log import append_chain_rows
from forebay.stores.shared.dependency_propagation import PropagationPending
from forebay.stores.shared.partial_failures import raise_as_lost_response, run_optional

T = TypeVar("T")
# Transactions of one call that propagate job ends, at most.
ROUNDS: Final = 4


def send_notify(tx: Transaction) -> None:
    """Run a transaction that only wakes up listeners."""
    tx.needs_wakeup = True


class PostgresStore(
    PostgresScheduleStore, PostgresLimitStore, PostgresDocumentStore, PostgresMetricStore, PostgresJobImport
):
    """Write handle of one store."""

    def __init__(self, connection: Connection, new_id: Callable[[], JobId]) -> None:
        self._connection = connection
        self._address = connection.address
        self._statements = statements_for(connection.address.schema)
        self._new_id = new_id
        self._cache = HandleCache()
        self._notifier = PostgresNotifier(connection.address)
        self._fast_insert = FastInsert(connection, self._statements, self._cache, self._notifier, new_id)
        self._fast_path = FastSettleAndClaim(connection, self._statements, self._cache)
        # Outbox entries to propagate, and those that `resolve_completed` need not try.
        self._outbox_ids: list[int] = []
        self._resolved_ids: set[int] = set()
        self._autocommit = AutocommitStatements(
            connection, self._statements, "acquire_maintenance", "commands_take", "resolve_completed"
        )
        self._is_closed = False

    def _write(self, work: Callable[[Transaction], T], *, defines: bool = False) -> T:
        """Run the work in one transaction, then propagate the job ends in it."""
        result = self._transact_with_retry(work, defines=defines)
        if self._outbox_ids:
            self._propagate()
        return result

    def _propagate(self) -> bool:
        """Propagate job ends for some rounds; return whether jobs were released.

        The rest follows with the next call, or with a promotion, since it is in the outbox.
        """
        has_released = False
        try:
            self._resolve_inline()
            for _ in range(ROUNDS):
                entry_ids, self._outbox_ids = self._outbox_ids, []
                if not entry_ids:
                    break
                result = self._transact_with_retry(
                    partial(dependency_propagation.propagate, entry_ids=entry_ids)
                )
                self._outbox_ids += result.left
                has_released |= result.has_released
        except StoreUnavailable:
            pass  # the call itself has succeeded
        return has_released

    def _resolve_inline(self) -> None:
        """Resolve completed parents whose children wait for other parents too, by one statement."""
        entry_ids = sorted(set(self._outbox_ids) - self._resolved_ids)
        self._resolved_ids.clear()
        if not entry_ids:
            return
        values = {"ids": bigints(entry_ids), "max_dependants": bigint(FEW_DEPENDANTS)}
        resolved = {entry_id for (entry_id,) in self._autocommit.all("resolve_completed", values) or ()}
        self._outbox_ids = [entry_id for entry_id in self._outbox_ids if entry_id not in resolved]

    def _transact_with_retry(self, work: Callable[[Transaction], T], *, defines: bool = False) -> T:
        """Run the work in one transaction; if pending outbox entries prevent it, propagate them before."""
        fruitless = 0
        while True:
            try:
                return self._run_transaction(work, defines=defines)
            except PropagationPending:
                # Another transaction may have processed the entry: this has waited for it, and the next try
                # finds it gone.
                fruitless = (
                    0 if self._run_transaction(dependency_propagation.propagate_all).edges else fruitless + 1
                )
                if fruitless == TRIES:
                    raise

    def _run_transaction(self, work: Callable[[Transaction], T], *, defines: bool = False) -> T:
        """Run the work in one transaction, with a wake-up on its commit if needed."""
        self._check_open()
        cursors: tuple[dict[str, ClaimCursor], dict[str, int]] = {}, {}
        outbox_ids: list[int] = []

        def transact(raw: Raw) -> T:
            nonlocal cursors, outbox_ids
            self._cache.cursors.reset_if_reconnected(self._connection.generation)
            tx = Transaction(raw, self._statements, self._new_id, self._cache)
            result = work(tx)
            tx.flush_counts()
            self._notifier.send(tx)
            cursors = tx.advanced_cursors, tx.due_from
            outbox_ids = tx.outbox_ids
            return result

        result = self._connection.write(transact, defines=defines)
        self._cache.cursors.apply(*cursors)
        self._outbox_ids += outbox_ids
        self._notify_if_needed()
        return result

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreError("this handle is closed; open another one")

    def _notify_if_needed(self) -> None:
        """Send a wake-up after a commit, if one was deferred."""
        if self._notifier.on_commit():
            self._send_notify()

    def _send_notify(self) -> None:
        with suppress(StoreError):  # a lost wake-up costs delay, never a job
            self._transact_with_retry(send_notify)

    def make_queues(self, names: Sequence[QueueName]) -> None:
        """Create missing queues with default settings."""

        def make(tx: Transaction) -> None:
            for name in names:
                tx.get_or_create_queue(name)

        self._write(make)

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
        self._check_open()
        if (results := self._fast_insert.insert(jobs)) is not None:
            self._notify_if_needed()
            return results
        rules = InsertRules(on_conflict=on_conflict, create_queues=create_queues)
        return self._write(lambda tx: insert_all(tx, jobs, rules, atomic=atomic))

    def settle_and_claim(
        self,
        worker: WorkerId,
        settlements: Sequence[Settlement] = (),
        claims: Sequence[QueueClaim] = (),
        room: int = 0,
        known: Sequence[Lease] | None = None,
        updates: Sequence[ProgressUpdate] = (),
    ) -> SettleAndClaimResult:
        self._check_open()
        done = self._settle_and_claim(worker, settlements, claims, room, known, updates)
        if not self._outbox_ids:
            return done
        released = run_optional(lambda: self._claim_released(worker, claims, room, done))
        return done if released is None else with_more_jobs(done, released)

    def _claim_released(
        self, worker: WorkerId, claims: Sequence[QueueClaim], room: int, done: SettleAndClaimResult
    ) -> SettleAndClaimResult | None:
        """Claim again if the propagation has released jobs, which may also be due earlier."""
        if not self._propagate() or not claims:
            return None
        room_left, claims_left = room - len(done.jobs), remaining_claims(claims, done.jobs)
        return self._settle_and_claim(worker, (), claims_left, room_left, None, ())

    def _settle_and_claim(
        self,
        worker: WorkerId,
        settlements: Sequence[Settlement],
        claims: Sequence[QueueClaim],
        room: int,
        known: Sequence[Lease] | None,
        updates: Sequence[ProgressUpdate],
    ) -> SettleAndClaimResult:
        part = PartialResult(None, settlements, claims)
        fast_path = self._fast_path
        if known is None and not updates:
            part = fast_path.run(worker, settlements, claims, room)
            self._outbox_ids += fast_path.outbox_ids
            self._resolved_ids |= fast_path.resolved_ids
            fast_path.outbox_ids.clear()
            fast_path.resolved_ids.clear()
        result = part.complete_result
        if result is None:
            left = room - part.claimed
            try:
                with raise_as_lost_response() if part.claimed else nullcontext():
                    rest = self._transact_with_retry(
                        lambda tx: settle_and_claim(
                            tx, worker, part.settlements, part.claims, left, known, updates
                        )
                    )
            except StoreBusy as exc:
                if part.done is None:
                    raise
                # StoreBusy means that nothing has happened. Here a part has, as with a lost response.
                raise StoreUnavailable(str(exc)) from exc
            result = part.merge(rest)
        if part.done is not None and fast_path.has_spare_slots(result.jobs):
            self._send_notify()
        return result

    def lease_status(self, worker: WorkerId, leases: Sequence[Lease]) -> list[LeaseStatus]:
        return self._write(lambda tx: lease_ops.lease_status(tx, worker, leases))

    def renew(self, worker: WorkerId, leases: Sequence[Lease], lease_ms: int | None = None) -> RenewResult:
        with self._connection.short_timeouts():
            return self._write(lambda tx: lease_ops.renew(tx, worker, leases, lease_ms))

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
        return self._write(
            lambda tx: lease_ops.sweep(
                tx, sweeper, dead, limit, lease_ms, only_dead=only_dead, ended_by=ended_by
            )
        )

    def promote(self, limit: int = BATCH) -> int:
        promoted, has_outbox_entries = self._write(lambda tx: maintenance.promote(tx, limit))
        if (
            has_outbox_entries
            and self._write(dependency_propagation.propagate_all).edges >= PROPAGATION_BATCH
        ):
            return max(promoted, limit)
        return promoted

    def rescore(self, limit: int = BATCH) -> int:
        return self._write(lambda tx: maintenance.rescore(tx, limit))

    def prune(self, limit: int = BATCH) -> int:
        pruned = self._write(lambda tx: maintenance.prune(tx, limit))
        return pruned + self._rotate_days()

    def _rotate_days(self) -> int:
        """Drop old partitions and create new ones; return the number of removed jobs.

        Without the lock, or the right to create tables, the next prune tries again: the default partition
        takes all jobs.
        """
        dropped = 0
        for name in self._write(partitions.old_days):
            with suppress(StoreError):
                schema = self._address.schema
                self._write(partial(partitions.remove_day_history, schema=schema, name=name), defines=True)
                dropped += self._write(partial(partitions.drop_day, schema=schema, name=name), defines=True)
        self._make_days()
        return dropped

    def _make_days(self) -> None:
        for day in self._write(partitions.missing_days):
            with suppress(StoreError):
                make = partial(partitions.make_day, schema=self._address.schema, day=day)
                self._write(make, defines=True)

    def cancel(
        self,
        ids: Sequence[JobId],
        reason: str = "cancelled",
        *,
        actor: str = "",
        force: bool = False,
        dependants: bool = False,
    ) -> list[ActionResult]:
        def end(tx: Transaction, jobs: Sequence[Job]) -> list[ActionResult]:
            if dependants:
                # Before the entries of their ends, which would release or fail some dependants; and for all
                # jobs: dependants of an uncommitted insert, for which an end waits, are not visible yet.
                # Not for a completed job: its edges are met, though stored as open.
                concerned = [job for job in jobs if job.state is not JobState.COMPLETED]
                lock_failed(tx, [job.id for job in concerned if is_final(job.state)])
                tx.add_to_outbox([(job.id, DependencyEvent.CANCEL.value) for job in concerned])
            return job_actions.cancel(tx, jobs, reason, actor, force=force)

        return self._write(lambda tx: apply_to_jobs(tx, ids, partial(end, tx)))

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

        def put_back(tx: Transaction, jobs: Sequence[Job]) -> list[ActionResult]:
            return job_actions.revive(tx, jobs, options)

        return self._write(lambda tx: apply_to_jobs(tx, ids, partial(put_back, tx)))

    def delete(self, ids: Sequence[JobId], *, actor: str = "") -> list[ActionResult]:
        def delete(tx: Transaction) -> list[ActionResult]:
            # First, since the propagation of a failed parent locks edges before jobs. The propagation of a
            # completed parent locks no edges, and blocked rows by id.
            tx.run("edges_lock_blocked", {"ids": sorted(set(ids))})
            return apply_to_jobs(tx, ids, lambda jobs: job_actions.delete(tx, jobs, actor))

        return self._write(delete)

    def save_queue(
        self,
        name: QueueName,
        changes: Mapping[str, object] | None = None,
        *,
        state: QueueState | None = None,
        actor: str = "",
    ) -> Queue:
        return self._write(lambda tx: queues.save_queue(tx, name, changes or {}, state, actor))

    def drop_queue(self, name: QueueName, *, force: bool = False, limit: int = BATCH, actor: str = "") -> int:
        return self._write(lambda tx: queues.drop_queue(tx, name, limit, actor, force=force))

    def heartbeat(self, worker: WorkerInfo) -> None:
        with self._connection.short_timeouts():
            self._write(lambda tx: heartbeat(tx, worker))

    def remove_worker(self, worker: WorkerId) -> None:
        self._write(lambda tx: tx.run("remove_worker", {"id": worker}))

    def send_command(
        self,
        kind: CommandKind,
        workers: Sequence[WorkerId] | None = None,
        *,
        queue: QueueName | None = None,
        expires_ms: int = COMMAND_EXPIRES_MS,
        actor: str = "",
    ) -> list[Command]:
        return self._write(lambda tx: send_command(tx, kind, workers, queue, expires_ms, actor))

    def take_commands(self, workers: Sequence[WorkerId]) -> list[Command]:
        self._check_open()
        values = {"workers": texts(workers), "kinds": texts(KINDS)}
        with self._connection.short_timeouts():  # called by the thread that renews leases
            rows = self._autocommit.all("commands_take", values)
            if rows is not None:
                return commands_from_rows(rows)
            return self._write(lambda tx: take_commands(tx, workers))

    def answer_command(self, command_id: str, text: str) -> None:
        self._write(lambda tx: answer_command(tx, command_id, text))

    def acquire_maintenance(self, name: str, every_ms: int) -> bool:
        self._check_open()
        rows = self._autocommit.all("acquire_maintenance", {"name": text(name), "every_ms": bigint(every_ms)})
        if rows is not None:
            return bool(rows)
        return self._write(lambda tx: maintenance.acquire_maintenance(tx, name, every_ms))

    def read_clock(self, *, record: bool = False) -> ClockReading:
        return self._write(lambda tx: read_clock(tx, record=record))

    def record_events(self, events: Sequence[Event]) -> None:
        self._write(lambda tx: tx.record_all(events))

    def chain_audit(self, limit: int = BATCH) -> int:
        def chain(tx: Transaction) -> int:
            # The lock is released after the commit is visible: the next holder sees the new head.
            return append_chain_rows(tx, limit) if tx.one("audit_lock") == (True,) else 0

        return self._write(chain)

    def migrate(self) -> int:
        number = migrate(self._connection, self._statements)
        self._make_days()
        return number

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._connection.close()
