"""Import and export of jobs with their history."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from forebay.domain.dependencies import DependencyEvent
from forebay.domain.fairness import FAIRNESS
from forebay.domain.job import Job
from forebay.domain.job_states import JobState
from forebay.domain.progress import MAX_STEPS
from forebay.domain.store_move import JobExport, waiting_state
from forebay.stores.shared.job_export import JobExportMixin
from forebay.stores.shared.job_import import attempt_params, job_params, resolve_imported_edges
from forebay.stores.shared.rows import Row, log_line_text, progress_text
from forebay.stores.sqlite.fairness import mark_pending
from forebay.stores.sqlite.insert import detach_reused_id
from forebay.stores.sqlite.transaction import Transaction

T = TypeVar("T")


class SqliteJobImport(ABC):
    """Mixin of the store: imports jobs of another store."""

    @abstractmethod
    def _write(self, work: Callable[[Transaction], T], *, durable: bool = False, moves: bool = True) -> T: ...

    def import_jobs(self, exports: Sequence[JobExport]) -> list[bool]:
        def import_all(tx: Transaction) -> list[bool]:
            is_new = [_import_job(tx, export) for export in exports]
            tx.mark_all_counted()  # these are counted, and earlier jobs as well
            return is_new

        # The caller may delete them from the other store as soon as this returns.
        return self._write(import_all, durable=True)


class SqliteJobExport(JobExportMixin):
    """Mixin of the reader: exports jobs with their history."""

    @abstractmethod
    def _query(self, name: str, values: dict[str, object]) -> list[Row]: ...

    def _idempotency_until(self, job: Job) -> int | None:
        values: dict[str, object] = {"queue": job.queue, "key": job.idempotency_key, "job_id": job.id}
        return next((until for (until,) in self._query("idempotency_until", values)), None)


def _import_job(tx: Transaction, export: JobExport) -> bool:
    export.check()
    job = export.job
    if tx.locate(job.id) is not None:
        return False
    detach_reused_id(tx, job.id)
    tx.get_or_create_queue(job.queue)
    if job.unique_key is not None and export.holds_unique_key:
        holder = tx.find_key_holder(job.queue, "unique", job.unique_key)
        if holder is None:
            tx.take_key(job.queue, "unique", job.unique_key, job.id, None)
        else:
            export = export.without_unique_key(holder)
    if (
        job.idempotency_key is not None
        and export.idempotency_until is not None
        and export.idempotency_until > tx.now
    ):
        tx.take_key(job.queue, "idempotency", job.idempotency_key, job.id, export.idempotency_until)
    unmet = _save_edges(tx, export)
    seq = tx.next_seq()
    (_store_final if job.is_final else _store_waiting)(tx, export.job, seq, unmet)
    _save_history(tx, export, seq)
    return True


def _save_edges(tx: Transaction, export: JobExport) -> int:
    """Write the edges to the parents of a job; return how many of them block it."""
    edges = resolve_imported_edges(export.edges, tx.states(edge.parent for edge in export.edges))
    for edge in edges.all:
        row: list[object] = [edge.child, edge.position, edge.parent]
        tx.run_rows("edges_add", (edge.on_failure.value, edge.state.value), row, len(row))
        tx.mark_has_edges()
    for parent, event in edges.ended:
        tx.add_to_outbox([parent], event)
    return edges.unmet


def _store_waiting(tx: Transaction, job: Job, seq: int, unmet: int) -> None:
    is_sequence_busy = False
    if job.sequence is not None:
        is_sequence_busy = tx.is_sequence_busy(job.sequence)
        tx.join_sequence(job.sequence, job.id)
    state = waiting_state(job, tx.now, is_blocked=is_sequence_busy or unmet > 0)
    is_pending = state is JobState.PENDING
    queue_rank = tx.compute_rank(job.queue, job.ready_at, job.priority, job.failures, job.deadline_at)
    values = {
        "seq": seq,
        "state": state.value,
        "rank": queue_rank.rank,
        "age_capped": queue_rank.age_capped and is_pending,
        "rescore_at": queue_rank.rescore_at if is_pending else None,
        "unmet": unmet,
    }
    tx.run("import_live", {**job_params(job), **values})
    tx.count(job.queue, state, 1)
    tx.needs_wakeup = True
    if is_pending:
        mark_pending(tx, job.queue, job.limit_keys.get(FAIRNESS), [seq])


def _store_final(tx: Transaction, job: Job, seq: int, _: int) -> None:
    table = "dead" if job.state is JobState.DEAD else "finished"
    tx.run(f"import_{table}", {**job_params(job), "seq": seq})
    tx.count(job.queue, job.state, 1)
    tx.add_to_outbox([job.id], DependencyEvent(job.state.value))


def _save_history(tx: Transaction, export: JobExport, seq: int) -> None:
    for attempt in export.attempts:
        tx.run("failed_attempt_add", attempt_params(attempt))
    progress = export.progress
    if progress.progress is not None:
        latest = {"attempt": progress.progress.attempt, "recorded_at": progress.progress.at}
        tx.run("progress_set", {"seq": seq, **latest, "body": progress_text(progress.progress)})
    for line in progress.lines:
        log_line = {
            "attempt": line.attempt,
            "recorded_at": line.at,
            "position": line.position,
            "body": log_line_text(line),
        }
        tx.run("progress_log_add", {"seq": seq, **log_line})
    for step in progress.steps:
        step_result = {
            "name": step.name,
            "attempt": step.attempt,
            "recorded_at": step.at,
            "body": step.result,
        }
        tx.run("progress_step_add", {"seq": seq, **step_result, "max_steps": MAX_STEPS})
    tx.record_all(export.events)
