"""Invariants of the in-memory engine's state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from forebay.domain.dependencies import UNMET_STATES
from forebay.domain.job import Job, UniqueUntil
from forebay.domain.job_states import LIVE, WAITING, JobState
from forebay.stores.memory.job_heap import StoredJob
from forebay.stores.memory.state import State

LATE_MS: Final = 60_000


def find_problems(state: State) -> Iterator[str]:
    """Yield a sentence for each violated invariant."""
    yield from _find_misplaced(state)
    for record in state.jobs.values():
        yield from (f"job {record.job.id} {flaw}" for flaw in _find_job_flaws(state, record))
    yield from _find_unordered(state)
    yield from _find_overdue(state)
    yield from _find_loose_keys(state)
    yield from _find_loose_history(state)
    yield from _find_loose_edges(state)


def _find_misplaced(state: State) -> Iterator[str]:
    for (queue, job_state), jobs in state.jobs_by_state.items():
        for job_id, record in jobs.items():
            if state.jobs.get(job_id) is not record or (record.job.queue, record.job.state) != (
                queue,
                job_state,
            ):
                yield f"job {job_id} is counted as {job_state} in queue {queue} and is not there"
    counted = sum(map(len, state.jobs_by_state.values()))
    if counted != len(state.jobs):
        yield f"{counted} jobs are counted, {len(state.jobs)} are there"
    running = {job_id for leases in state.leases.values() for job_id in leases}
    if running != {record.job.id for record in state.jobs.values() if record.job.state is JobState.RUNNING}:
        yield "the leases by worker are not the running jobs"


def _find_job_flaws(state: State, record: StoredJob) -> Iterator[str]:
    job = record.job
    if job.queue not in state.queues:
        yield "is in no known queue"
    if job.state is JobState.RUNNING:
        if None in (job.worker, job.started_at, job.lease_expires_at) or job.attempt == 0:
            yield "is running without a lease"
    elif job.lease_expires_at is not None:
        yield "has a lease but is not running"
    if job.is_final != (job.finished_at is not None):
        yield f"is {job.state}, and its end does not say so"
    if _should_have_key(job) and state.unique_keys.get((job.queue, job.unique_key or "")) != job.id:
        yield "does not hold its unique key"


def _find_unordered(state: State) -> Iterator[str]:
    checks = [([*state.jobs.values()], [state.expiring, state.rescoring])]
    for name in state.queues:
        ready = [
            state.ready_heap(name, age_capped, lane)
            for lane in (None, *state.lanes_of(name))
            for age_capped in (False, True)
        ]
        heaps = [*ready, state.delayed_heap(name)]
        checks.append(([*state.jobs_in_states(name, WAITING)], heaps))
    for records, heaps in checks:
        for heap in heaps:
            yield from (
                f"job {record.job.id} is missing in an order" for record in heap.find_missing(records)
            )


def _find_overdue(state: State) -> Iterator[str]:
    """Find jobs that were due a minute before the last complete `promote`."""
    promoted_at = state.maintenance.get("promote", 0)
    for name, queue in state.queues.items():
        if queue.settings.stagger is not None:
            continue  # in a staggered queue due jobs may wait for any time
        for record in state.jobs_in_states(name, (JobState.SCHEDULED, JobState.RETRYING)):
            if record.job.run_at <= promoted_at - LATE_MS:
                yield f"job {record.job.id} was due and has not been moved"


def _should_have_key(job: Job) -> bool:
    is_held = job.unique_until is UniqueUntil.FINAL or job.attempt == 0
    return job.unique_key is not None and job.state in LIVE and is_held


def _find_loose_keys(state: State) -> Iterator[str]:
    for (queue, key), job_id in state.unique_keys.items():
        holder = state.jobs.get(job_id)
        if holder is None or holder.job.is_final or (holder.job.queue, holder.job.unique_key) != (queue, key):
            yield f"key {key} of queue {queue} is held by no live job"


def _find_loose_history(state: State) -> Iterator[str]:
    for job_id in state.attempts:
        if job_id not in state.jobs:
            yield f"job {job_id} is gone and its attempts are not"
    for job_id in state.progress:
        if job_id not in state.jobs:
            yield f"job {job_id} is gone and its notes are not"
    for job_id, numbers in state.job_events.items():
        if any(number not in state.events for number in numbers):
            yield f"job {job_id} has events that are gone"


def _find_loose_edges(state: State) -> Iterator[str]:
    for child, edges in state.edges.items():
        if edges and child not in state.jobs:
            yield f"job {child} is gone and its edges are not"
    for child in {*state.edges, *state.sequence_positions}:
        unmet = sum(edge.state in UNMET_STATES for edge in state.edges.get(child, {}).values())
        unmet += state.is_sequence_blocked(child)
        if unmet != state.unmet.get(child, 0):
            yield f"job {child} has {unmet} edges that block it, and another count of them"
    for job_id, record in state.jobs.items():
        if record.job.state in WAITING and (record.job.state is JobState.BLOCKED) != (job_id in state.unmet):
            yield f"job {job_id} is {record.job.state}, and its edges say otherwise"
