"""Jobs of another store, taken in with all that is known of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from forebay.domain.dependencies import DependencyEvent
from forebay.domain.fairness import FAIRNESS, lane_for_keys
from forebay.domain.job import Job, JobId
from forebay.domain.lifecycle import JobState
from forebay.domain.progress import MAX_STEPS
from forebay.domain.store_move import JobExport, waiting_state
from forebay.errors import StoreBusy
from forebay.stores.postgres.connection import RetryTransaction
from forebay.stores.postgres.edges import ReusedIds, require_parent_states
from forebay.stores.postgres.fairness import mark_pending
from forebay.stores.postgres.insert import busy_key_reason
from forebay.stores.postgres.sequences import rejoin
from forebay.stores.postgres.transaction import JobKey, QueryRunner, Transaction
from forebay.stores.shared.job_export import JobExportMixin
from forebay.stores.shared.job_import import attempt_params, job_params, resolve_imported_edges
from forebay.stores.shared.rows import log_line_text, progress_text

T = TypeVar("T")


class PostgresJobImport(ABC):
    """The part of a handle to write that takes in jobs of another store."""

    @abstractmethod
    def _write(self, work: Callable[[Transaction], T], *, defines: bool = False) -> T: ...

    def import_jobs(self, exports: Sequence[JobExport]) -> list[bool]:
        for whole in exports:
            whole.check()
        return self._write(lambda tx: _import_jobs(tx, exports)) if exports else []


class PostgresJobExport(JobExportMixin):
    """The part of a handle to look that shows jobs whole."""

    @abstractmethod
    def _open_snapshot(self) -> AbstractContextManager[QueryRunner]: ...

    def _idempotency_until(self, job: Job) -> int | None:
        values = {"queue": job.queue, "key": job.idempotency_key, "job_id": job.id}
        with self._open_snapshot() as look:
            return next((until for (until,) in look.all("idempotency_until", values)), None)


def _import_jobs(tx: Transaction, exports: Sequence[JobExport]) -> list[bool]:
    given = list(dict.fromkeys(whole.job.id for whole in exports))
    seqs = dict(zip(given, (seq for (seq,) in tx.all("next_seqs", {"jobs": len(given)})), strict=True))
    new = _reserve_ids(tx, seqs)
    for name in sorted({whole.job.queue for whole in exports}):
        tx.get_or_create_queue(name)
    answers = []
    for whole in exports:
        answers.append(whole.job.id in new)
        if answers[-1]:
            new.discard(whole.job.id)
            _import_job(tx, whole, seqs[whole.job.id])
    return answers


def _reserve_ids(tx: Transaction, seqs: dict[JobId, int]) -> set[JobId]:
    """Which of these ids are nobody's, and ours until the transaction ends."""
    values = {"ids": list(seqs), "seqs": list(seqs.values())}
    held = [job_id for (job_id,) in tx.all("import_reserve_ids", values)]
    tx.run("import_release_ids", {"ids": held})
    old = ReusedIds(tx, sorted(held))
    # A later statement than the one that may have waited: it sees what others have ended meanwhile.
    ended = {row[0] for row in tx.all("final_ids", {"ids": sorted(held)})}
    new = set(held) - ended
    old.detach(sorted(new))
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
        # One that somebody else holds stays theirs.
        tx.take_keys(
            [(JobKey(job.queue, "idempotency", job.idempotency_key), job.id, export.idempotency_until)]
        )
    unmet = _save_edges(tx, export)
    (_store_final if job.is_final else _store_waiting)(tx, export.job, seq, unmet)
    _save_history(tx, export)


def _save_edges(tx: Transaction, export: JobExport) -> int:
    """Write the edges to the parents of a job; how many of them block it. The parents are held, as those of a
    new job are: one that we find alive ends after us, and so finds the edge."""
    if not export.edges:
        return 0
    edges = resolve_imported_edges(
        export.edges, require_parent_states(tx, {edge.parent for edge in export.edges})
    )
    for edge in edges.all:
        alike = {"on_failure": edge.on_failure.value, "state": edge.state.value}
        row = {"child_ids": [edge.child], "positions": [edge.position], "parent_ids": [edge.parent]}
        tx.run("edges_add", {**alike, **row})
    tx.add_to_outbox([(parent, aftermath.value) for parent, aftermath in edges.ended])
    return edges.unmet


def _store_waiting(tx: Transaction, job: Job, seq: int, unmet: int) -> None:
    unmet += len(rejoin(tx, [job]))
    state = waiting_state(job, tx.now, is_blocked=unmet > 0)
    is_pending = state is JobState.PENDING
    where = tx.compute_rank(job.queue, job.ready_at, job.priority, job.failures, job.deadline_at)
    values = {
        "seq": seq,
        "state": state.value,
        "lane": lane_for_keys(job.limit_keys),
        "rank": where.rank,
        "age_capped": where.age_capped and is_pending,
        "rescore_at": where.rescore_at if is_pending else None,
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
    job_id, notes = export.job.id, export.progress
    for attempt in export.attempts:
        tx.run("failed_attempt_add", attempt_params(attempt))
    if notes.progress is not None:
        at = {"attempt": notes.progress.attempt, "recorded_at": notes.progress.at}
        tx.run("progress_set", {"job_id": job_id, **at, "body": progress_text(notes.progress).encode()})
    for line in notes.lines:
        said = {
            "attempt": line.attempt,
            "recorded_at": line.at,
            "position": line.position,
            "body": log_line_text(line).encode(),
        }
        tx.run("progress_log_add", {"job_id": job_id, **said})
    for step in notes.steps:
        done = {"name": step.name, "attempt": step.attempt, "recorded_at": step.at, "body": step.result}
        tx.run("progress_step_add", {"job_id": job_id, **done, "max_steps": MAX_STEPS})
    tx.record_all(export.events)
