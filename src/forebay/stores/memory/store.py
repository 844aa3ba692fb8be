"""Write handle of the in-memory engine: each method is one change of the state, under one lock."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from forebay.domain.concurrency_and_rate_limits import Limit
from forebay.domain.dependencies import PROPAGATION_BATCH
from forebay.domain.job import Job, JobId, NewJob, QueueName, WorkerId
from forebay.domain.job_history import Event
from forebay.domain.job_update import JobUpdate
from forebay.domain.lease import Lease
from forebay.domain.metrics import MetricPage, MetricRow, QueueSnapshot
from forebay.domain.progress import ProgressUpdate
from forebay.domain.queue import Queue, QueueState
from forebay.domain.schedule import Schedule
from forebay.domain.schedule_runs import ScheduleAdvance
from forebay.domain.settlement import Settlement
from forebay.domain.store_move import JobExport
from forebay.domain.stored_document import Document
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
from forebay.stores.contract.metrics import MAX_ROWS
from forebay.stores.contract.revive_options import ReviveOptions
from forebay.stores.contract.schedules import DueSchedules, FireResult
from forebay.stores.memory import (
    audit_log,
    concurrency_and_rate_limits,
    documents,
    insert,
    job_actions,
    job_import,
    maintenance,
    metrics,
    queues,
    schedules,
    settle_and_claim,
)
from forebay.stores.memory import leases as leases_module
from forebay.stores.memory.clock_readings import read_clock
from forebay.stores.memory.dependency_propagation import propagate
from forebay.stores.memory.state import State
from forebay.stores.memory.workers_and_commands import answer_command, heartbeat, send_command, take_commands


class MemoryStore:
    def __init__(self, change_state: Callable[[], AbstractContextManager[State]]) -> None:
        self._change_engine_state = change_state
        self._closed = False

    def insert(
        self,
        jobs: Sequence[NewJob],
        *,
        on_conflict: OnConflict = "return",
        atomic: bool = True,
        create_queues: bool = True,
    ) -> list[InsertResult]:
        with self._change_and_propagate() as state:
            return insert.insert(state, jobs, on_conflict, atomic, create_queues)

    def settle_and_claim(
        self,
        worker: WorkerId,
        settlements: Sequence[Settlement] = (),
        claims: Sequence[QueueClaim] = (),
        room: int = 0,
        known: Sequence[Lease] | None = None,
        updates: Sequence[ProgressUpdate] = (),
    ) -> SettleAndClaimResult:
        with self._change_state() as state:
            return settle_and_claim.settle_and_claim(state, worker, settlements, claims, room, known, updates)

    def lease_status(self, worker: WorkerId, leases: Sequence[Lease]) -> list[LeaseStatus]:
        with self._change_state() as state:
            return leases_module.lease_status(state, worker, leases)

    def renew(self, worker: WorkerId, leases: Sequence[Lease], lease_ms: int | None = None) -> RenewResult:
        with self._change_state() as state:
            return leases_module.renew(state, worker, leases, lease_ms)

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
        with self._change_and_propagate() as state:
            maintenance.move_dropped_to_dead(state, limit)
            return leases_module.sweep(
                state, sweeper, limit, lease_ms, only_dead=only_dead, dead=dead, ended_by=ended_by
            )

    def promote(self, limit: int = BATCH) -> int:
        with self._change_state() as state:
            moved = maintenance.promote(state, limit)
            return max(moved, limit) if propagate(state) >= PROPAGATION_BATCH else moved

    def rescore(self, limit: int = BATCH) -> int:
        with self._change_state() as state:
            return maintenance.rescore(state, limit)

    def prune(self, limit: int = BATCH) -> int:
        with self._change_and_propagate() as state:
            return maintenance.prune(state, limit)

    def cancel(
        self,
        ids: Sequence[JobId],
        reason: str = "cancelled",
        *,
        actor: str = "",
        force: bool = False,
        dependants: bool = False,
    ) -> list[ActionResult]:
        with self._change_and_propagate() as state:
            return job_actions.cancel(state, ids, reason, actor, force=force, dependants=dependants)

    def update_job(self, job_id: JobId, change: JobUpdate, *, actor: str = "") -> ActionResult:
        with self._change_state() as state:
            return job_actions.update_job(state, job_id, change, actor)

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
        with self._change_and_propagate() as state:
            return job_actions.revive(state, ids, options)

    def delete(self, ids: Sequence[JobId], *, actor: str = "") -> list[ActionResult]:
        with self._change_and_propagate() as state:
            return job_actions.delete(state, ids, actor)

    def import_jobs(self, exports: Sequence[JobExport]) -> list[bool]:
        with self._change_and_propagate() as state:
            return job_import.import_jobs(state, exports)

    def save_queue(
        self,
        name: QueueName,
        changes: Mapping[str, object] | None = None,
        *,
        state: QueueState | None = None,
        actor: str = "",
    ) -> Queue:
        with self._change_state() as changed:
            return queues.save_queue(changed, name, changes, state, actor)

    def drop_queue(self, name: QueueName, *, force: bool = False, limit: int = BATCH, actor: str = "") -> int:
        with self._change_and_propagate() as state:
            return queues.drop_queue(state, name, force, limit, actor)

    def save_limit(self, limit: Limit, *, actor: str = "") -> None:
        with self._change_state() as state:
            concurrency_and_rate_limits.save(state, limit, actor)

    def drop_limit(self, scope: str, *, actor: str = "") -> bool:
        with self._change_state() as state:
            return concurrency_and_rate_limits.drop(state, scope, actor)

    def save_schedule(self, schedule: Schedule, *, actor: str = "") -> bool:
        with self._change_state() as state:
            return schedules.save(state, schedule, actor)

    def drop_schedule(self, name: str, *, actor: str = "") -> bool:
        with self._change_state() as state:
            return schedules.drop(state, name, actor)

    def due_schedules(self, limit: int = 100) -> DueSchedules:
        with self._change_state() as state:
            return schedules.load_due(state, limit)

    def fire_schedules(self, advances: Sequence[ScheduleAdvance]) -> list[FireResult]:
        with self._change_state() as state:
            return schedules.fire_schedules(state, advances)

    def save_document(self, document: Document, *, event: Event | None = None) -> bool:
        with self._change_state() as state:
            return documents.save(state, document, event)

    def drop_document(self, kind: str, name: str, *, event: Event | None = None) -> bool:
        with self._change_state() as state:
            return documents.drop(state, kind, name, event)

    def record_metrics(self, rows: Sequence[MetricRow], *, instead_of: Sequence[MetricRow] = ()) -> None:
        with self._change_state() as state:
            metrics.record_rows(state, rows, instead_of)

    def prune_metrics(self, resolution_ms: int, before: int, limit: int = MAX_ROWS) -> int:
        with self._change_state() as state:
            return metrics.prune_rows(state, resolution_ms, before, limit)

    def metrics(self, resolution_ms: int, since: int, before: int, *, limit: int = MAX_ROWS) -> MetricPage:
        with self._change_state() as state:
            return metrics.load_page(state, resolution_ms, since, before, limit)

    def last_metrics(self, resolution_ms: int) -> int | None:
        with self._change_state() as state:
            return metrics.load_last_start(state, resolution_ms)

    def snapshot_queues(self) -> dict[QueueName, QueueSnapshot]:
        with self._change_state() as state:
            return metrics.snapshot_queues(state)

    def heartbeat(self, worker: WorkerInfo) -> None:
        with self._change_state() as state:
            heartbeat(state, worker)

    def remove_worker(self, worker: WorkerId) -> None:
        with self._change_state() as state:
            state.write(state.workers, worker, None)

    def send_command(
        self,
        kind: CommandKind,
        workers: Sequence[WorkerId] | None = None,
        *,
        queue: QueueName | None = None,
        expires_ms: int = COMMAND_EXPIRES_MS,
        actor: str = "",
    ) -> list[Command]:
        with self._change_state() as state:
            return send_command(state, kind, workers, queue, expires_ms, actor)

    def take_commands(self, workers: Sequence[WorkerId]) -> list[Command]:
        with self._change_state() as state:
            return take_commands(state, workers)

    def answer_command(self, command_id: str, text: str) -> None:
        with self._change_state() as state:
            answer_command(state, command_id, text)

    def acquire_maintenance(self, name: str, every_ms: int) -> bool:
        with self._change_state() as state:
            return maintenance.acquire_maintenance(state, name, every_ms)

    def read_clock(self, *, record: bool = False) -> ClockReading:
        with self._change_state() as state:
            return read_clock(state, record=record)

    def record_events(self, events: Sequence[Event]) -> None:
        with self._change_state() as state:
            for event in events:
                state.record(event)

    def chain_audit(self, limit: int = BATCH) -> int:
        with self._change_state() as state:
            return audit_log.append_chain(state, limit)

    def migrate(self) -> int:
        with self._change_state():
            return 1

    def close(self) -> None:
        self._closed = True

    @contextmanager
    def _change_and_propagate(self) -> Iterator[State]:
        """Change the state in a call that may end jobs or revive them, and propagate that to their
        dependants."""
        with self._change_state() as state:
            yield state
            propagate(state)

    @contextmanager
    def _change_state(self) -> Iterator[State]:
        if self._closed:
            raise StoreError("this handle is closed")
        with self._change_engine_state() as state:
            yield state
