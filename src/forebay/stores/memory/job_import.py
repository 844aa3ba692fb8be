"""Import of jobs with their history."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from forebay.domain.dependencies import DependencyEvent
from forebay.domain.job import Job, WorkerId
from forebay.domain.job_states import JobState
from forebay.domain.progress import JobProgress
from forebay.domain.store_move import JobExport, waiting_state
from forebay.stores.memory.dependency_edges import add_edges
from forebay.stores.memory.insert import copy_metadata, get_or_create_queue
from forebay.stores.memory.job_heap import StoredJob
from forebay.stores.memory.sequential_jobs import join
from forebay.stores.memory.state import State
from forebay.stores.shared.job_import import resolve_imported_edges


def import_jobs(state: State, exports: Sequence[JobExport]) -> list[bool]:
    return [_import_job(state, export) for export in exports]


def _import_job(state: State, export: JobExport) -> bool:
    export.check()
    job = export.job
    if job.id in state.jobs:
        return False
    if export.holds_unique_key:
        holder = state.unique_keys.get((job.queue, job.unique_key or ""))
        export = export if holder is None else export.without_unique_key(holder)
    get_or_create_queue(state, job.queue)
    job = replace(
        export.job,
        seq=state.next_number("seq"),
        lane=None,
        lease_expires_at=None,
        metadata=copy_metadata(job.metadata),
    )
    _take_idempotency_key(state, export)
    if export.edges:
        parents = {edge.parent: state.jobs.get(edge.parent) for edge in export.edges}
        states = {parent: record.job.state for parent, record in parents.items() if record is not None}
        add_edges(state, job.id, resolve_imported_edges(export.edges, states).all)
    if job.is_final:
        state.put(StoredJob(job, end_number=state.next_number("ended")))
        state.add_to_outbox(job.id, DependencyEvent(job.state.value))
    else:
        if export.holds_unique_key:
            state.write(state.unique_keys, (job.queue, job.unique_key or ""), job.id)
        _store_waiting(state, job)
    _save_history(state, export)
    return True


def _store_waiting(state: State, job: Job) -> None:
    join(state, job)
    waiting_as = waiting_state(job, state.now, is_blocked=job.id in state.unmet)
    state.put_new(job)
    if waiting_as is JobState.RETRYING:
        record = state.jobs[job.id]
        state.put(record._replace(job=replace(record.job, state=waiting_as)))


def _take_idempotency_key(state: State, export: JobExport) -> None:
    job, until = export.job, export.idempotency_until
    if job.idempotency_key is None or until is None or until <= state.now:
        return
    _, held_until = state.idempotency_keys.get((job.queue, job.idempotency_key), (None, 0))
    if held_until <= state.now:
        state.write(state.idempotency_keys, (job.queue, job.idempotency_key), (job.id, until))


def _save_history(state: State, export: JobExport) -> None:
    if export.attempts:
        attempts = tuple((attempt, attempt.worker or WorkerId("")) for attempt in export.attempts)
        state.write(state.attempts, export.job.id, attempts)
    if export.progress != JobProgress():
        state.write(state.progress, export.job.id, export.progress)
    for event in export.events:
        state.record(event)
