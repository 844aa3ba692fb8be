"""Import and export of jobs with their history."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from forebay.domain.dependencies import DependencyEvent
from forebay.domain.fairness import FAIRNESS, lane_for_keys
from forebay.domain.job import Job, JobId
from forebay.domain.job_states import JobState
from forebay.domain.progress import MAX_STEPS
from forebay.domain.store_move import JobExport, waiting_state
from forebay.errors import StoreBusy
from forebay.stores.postgres.connection import RetryTransaction
from forebay.stores.postgres.dependency_edges import ReusedIds, require_parent_states
from forebay.stores.postgres.fairness import mark_pending
from forebay.stores.postgres.insert import busy_key_reason
from forebay.stores.postgres.sequential_jobs import rejoin
from forebay.stores.postgres.transaction import JobKey, QueryRunner, Transaction
from forebay.stores.shared.job_export import JobExportMixin
from forebay.stores.shared.job_import import attempt_params, job_params, resolve_imported_edges
from forebay.stores.shared.rows import log_line_text, progress_text

T = TypeVar("T")


class PostgresJobImport(ABC):
    """Import part of a write handle."""

    @abstractmethod
    def _write(self, work: Callable[[Transaction], T], *, defines: bool = False) -> T: ...

    def import_jobs(self, exports: Sequence[JobExport]) -> list[bool]:
        for export in exports:
            export.check()
        return self._write(lambda tx: _import_jobs(tx, exports)) if exports else []


class PostgresJobExport(JobExportMixin):
    """Export part of a read handle."""

    @abstractmethod
    def _open_snapshot(self) -> AbstractContextManager[QueryRunner]: ...

    def _idempotency_until(self, job: Job) -> int | None:
        values = {"queue": job.queue, "key": job.idempotency_key, "job_id": job.id}
        with self._open_snapshot() as snapshot:
            return next((until for (until,) in snapshot.all("idempotency_until", values)), None)


def _import_jobs(tx: Transaction, exports: Sequence[JobExport]) -> list[bool]:
    ids = list(dict.fromkeys(export.job.id for export in exports))
    seqs = dict(zip(ids, (seq for (seq,) in tx.all("next_seqs", {"jobs": len(ids)})), strict=True))
    new = _reserve_ids(tx, seqs)
    for name in sorted({export.job.queue for export in exports}):
        tx.get_or_create_queue(name)
    imported = []
    for export in exports:
        imported.append(export.job.id in new)
        if imported[-1]:
            new.discard(export.job.id)
            _import_job(tx, export, seqs[export.job.id])
    return imported


def _reserve_ids(tx: Transaction, seqs: dict[JobId, int]) -> set[JobId]:
    """Reserve ids until the transaction ends; return those that no job has."""
    values = {"ids": list(seqs), "seqs": list(seqs.values())}
    reserved = [job_id for (job_id,) in tx.all("import_reserve_ids", values)]
    tx.run("import_release_ids", {"ids": reserved})
    reused = ReusedIds(tx, sorted(reserved))
    # A later statement than the one that may have waited: it sees jobs that have ended meanwhile.
    ended = {row[0] for row in tx.all("final_ids", {"ids": sorted(reserved)})}
    new = set(reserved) - ended
    reused.detach(sorted(new))
    return new


def _import_job(tx: Transaction, export: JobExport, seq: int) -> None:
    job = export.job
    if job.unique_key is not None and export.holds_unique_key:
        key = JobKey(job.queue, "unique", job.unique_key)
        holder = tx.find_key_holders([key]).get(key)
        if holder is not None:
            export = export.without_unique_key(holder)
        elif key in tx.busy_keys:
            raise StoreBusy(busy_key_reason(key))
        elif not tx.take_keys([(key, job.id, None)]):
            raise RetryTransaction
    if (
        job.idempotency_key is not None
        and export.idempotency_until is not None
        and export.idempotency_until > tx.now
    ):
        # A key held by another job stays with that job.
        tx.take_keys(
            [(JobKey(job.queue, "idempotency", job.idempotency_key), job.id, export.idempotency_until)]
        )
    unmet = _save_edges(tx, export)
    (_store_final if job.is_final else _store_waiting)(tx, export.job, seq, unmet)
    _save_history(tx, export)


def _save_edges(tx: Transaction, export: JobExport) -> int:
    """Store the edges to the parents of a job; return how many block it.

    The parents are locked, as those of a new job: a live one ends after us, and so finds the edge.
    """
    if not export.edges:
        return 0
    edges = resolve_imported_edges(
        export.edges, require_parent_states(tx, {edge.parent for edge in export.edges})
    )
    for edge in edges.all:
        shape = {"on_failure": edge.on_failure.value, "state": edge.state.value}
        row = {"child_ids": [edge.child], "positions": [edge.position], "parent_ids": [edge.parent]}
        tx.run("edges_add", {**shape, **row})
    tx.add_to_outbox([(parent, event.value) for parent, event in edges.ended])
    return edges.unmet


def _store_waiting(tx: Transaction, job: Job, seq: int, unmet: int) -> None:
    unmet += len(rejoin(tx, [job]))
    state = waiting_state(job, tx.now, is_blocked=unmet > 0)
    is_pending = state is JobState.PENDING
    queue_rank = tx.compute_rank(job.queue, job.ready_at, job.priority, job.failures, job.deadline_at)
    values = {
        "seq": seq,
        "state": state.value,
        "lane": lane_for_keys(job.limit_keys),
        "rank": queue_rank.rank,
        "age_capped": queue_rank.age_capped and is_pending,
        "rescore_at": queue_rank.rescore_at if is_pending else None,
        "unmet": unmet,
    }
    tx.run("import_live", {**job_params(job), **values})
    tx.count(job.queue, state, 1)
    tx.needs_wakeup = tx.has_new_jobs = True
    if is_pending:
        mark_pending(tx, [(job.queue, job.limit_keys.get(FAIRNESS))])


def _store_final(tx: Transaction, job: Job, seq: int, _: int) -> None:
    table = "dead" if job.state is JobState.DEAD else "finished"
    tx.run(f"import_{table}", {**job_params(job), "seq": seq})
    tx.count(job.queue, job.state, 1)
    tx.add_to_outbox_if_affected([job.id], DependencyEvent(job.state.value))


def _save_history(tx: Transaction, export: JobExport) -> None:
    job_id, progress = export.job.id, export.progress
    for attempt in export.attempts:
        tx.run("failed_attempt_add", attempt_params(attempt))
    if progress.progress is not None:
        report = {"attempt": progress.progress.attempt, "recorded_at": progress.progress.at}
        tx.run(
            "progress_set", {"job_id": job_id, **report, "body": progress_text(progress.progress).encode()}
        )
    for line in progress.lines:
        log_line = {
            "attempt": line.attempt,
            "recorded_at": line.at,
            "position": line.position,
            "body": log_line_text(line).encode(),
        }
        tx.run("progress_log_add", {"job_id": job_id, **log_line})
    for step in progress.steps:
        step_result = {
            "name": step.name,
            "attempt": step.attempt,
            "recorded_at": step.at,
            "body": step.result,
        }
        tx.run("progress_step_add", {"job_id": job_id, **step_result, "max_steps": MAX_STEPS})
    tx.record_all(export.events)
