"""Maintenance: promote, expire, rescore and prune jobs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from heapq import nsmallest
from itertools import islice
from typing import Final

from msgspec.structs import replace

from forebay.domain.enqueue_rates import FULL_AFTER_MS, is_rate
from forebay.domain.job import DAY_MS, Job, QueueName
from forebay.domain.job_history import AUDIT_RETENTION_MS, EventKind
from forebay.domain.job_states import LIVE, WAITING, JobState
from forebay.domain.job_views import ArchiveEntry
from forebay.domain.queue import Queue, QueueState, stagger_task_name
from forebay.domain.settlement import promoted_at
from forebay.domain.worker_command import COMMAND_RETENTION_MS
from forebay.stores.memory import audit_log
from forebay.stores.memory.job_heap import JobHeap, StoredJob
from forebay.stores.memory.state import State

WORKER_RETENTION_MS: Final = DAY_MS
_EXCERPT: Final = 200


def promote(state: State, limit: int) -> int:
    moved = expire(state, limit)
    staggered = [queue.name for queue in state.queues.values() if queue.settings.stagger is not None]
    heaps = [heap for name, heap in state.delayed.items() if name not in staggered]
    moved += _promote_from(state, heaps, limit)
    return moved + sum(promote_queue(state, name, limit) for name in staggered)


def promote_queue(state: State, queue: QueueName, limit: int) -> int:
    """Make up to `limit` due jobs of one queue pending, or one batch in a staggered queue."""
    stagger = state.queue_or_default(queue).settings.stagger
    heap = state.delayed_heap(queue)
    if stagger is None:
        return _promote_from(state, [heap], limit)
    first = heap.first()
    is_due = first is not None and first.job.run_at <= state.now
    if not is_due or not acquire_maintenance(state, stagger_task_name(queue), stagger.every_ms):
        return 0
    return _promote_from(state, [heap], min(limit, stagger.jobs))


def expire(state: State, limit: int) -> int:
    """Cancel up to `limit` waiting jobs past their `expires_at`."""
    for count in range(limit):
        record = state.expiring.first()
        if record is None or (record.job.expires_at or 0) > state.now:
            return count
        state.put_final(record.job, JobState.CANCELLED, "expired")
        state.record_job_event(EventKind.EXPIRED, record.job)
    return limit


def move_dropped_to_dead(state: State, limit: int) -> None:
    """Move up to `limit` waiting jobs of dropped queues to the dead letters."""
    for name in sorted(state.queues):
        if state.queues[name].state is QueueState.DROPPED:
            limit -= move_queue_to_dead(state, name, limit)


def move_queue_to_dead(state: State, queue: QueueName, limit: int) -> int:
    """Move up to `limit` waiting jobs of this dropped queue to the dead letters: first the delayed ones,
    then the pending ones in their order."""
    waiting = nsmallest(limit, state.jobs_in_states(queue, WAITING), key=_mark_dead_order)
    for record in waiting:
        state.put_final(record.job, JobState.DEAD, "queue dropped")
        state.record_job_event(EventKind.DROPPED, record.job)
    return len(waiting)


def _mark_dead_order(record: StoredJob) -> tuple[bool, str, int, int, int]:
    job = record.job
    if job.state is JobState.PENDING:
        return (True, job.lane or "", job.age_capped, job.rank, job.seq)
    return (False, "", 0, job.run_at, job.seq)


def rescore(state: State, limit: int) -> int:
    examined = 0
    while examined < limit and (record := state.rescoring.first()) is not None:
        if (record.rescore_at or 0) > state.now:
            break
        _rescore_one(state, record)
        examined += 1
    for name in sorted(state.queues):
        if state.queues[name].is_rescoring and examined < limit:
            examined += _rescore_queue(state, state.queues[name], limit - examined)
    return examined


def prune(state: State, limit: int) -> int:
    pruned = list(islice(_iter_prunable(state), limit))
    for job in pruned:
        if state.queues[job.queue].settings.archive:
            state.write(state.archive, state.next_number("archive"), _build_archive_entry(job))
        state.remove(job)
    _prune_archive(state)
    _prune_rest(state)
    return len(pruned)


def acquire_maintenance(state: State, name: str, every_ms: int) -> bool:
    # A due time further ahead than `every_ms` was written before the clock was set back.
    if state.now < state.maintenance.get(name, 0) <= state.now + every_ms:
        return False
    state.write(state.maintenance, name, state.now + every_ms)
    return True


def _promote_from(state: State, heaps: list[JobHeap], limit: int) -> int:
    for count in range(limit):
        candidates = [record for record in (heap.first() for heap in heaps) if record is not None]
        first = min(candidates, key=lambda record: (record.job.run_at, record.job.seq), default=None)
        if first is None or first.job.run_at > state.now:
            return count
        state.put_due(replace(first.job, updated_at=promoted_at(state.now, first.job.run_at)))
    return limit


def _seq(record: StoredJob) -> int:
    return record.job.seq


def _rescore_one(state: State, record: StoredJob) -> None:
    if record.job.state is JobState.PENDING:
        state.put_pending(record.job)
    else:
        # It gets a rank when it becomes pending again.
        state.put(record._replace(rescore_at=None))


def _rescore_queue(state: State, queue: Queue, limit: int) -> int:
    after = state.rescored_to_seq.get(queue.name, 0)
    rest = (record for record in state.jobs_in_states(queue.name, LIVE) if record.job.seq > after)
    batch = nsmallest(limit, rest, key=_seq)
    for record in batch:
        _rescore_one(state, record)
    if len(batch) < limit:
        state.write(state.queues, queue.name, replace(queue, is_rescoring=False))
        state.write(state.rescored_to_seq, queue.name, None)
    else:
        state.write(state.rescored_to_seq, queue.name, batch[-1].job.seq)
    return len(batch)


def _iter_prunable(state: State) -> Iterator[Job]:
    for name in sorted(state.queues):
        settings = state.queues[name].settings
        yield from _find_expired(
            state, name, (JobState.COMPLETED, JobState.CANCELLED), settings.keep_finished_ms
        )
        yield from _find_expired(state, name, (JobState.DEAD,), settings.keep_dead_ms)


def _find_expired(state: State, queue: QueueName, states: tuple[JobState, ...], keep_ms: int) -> list[Job]:
    ended = state.jobs_in_states(queue, states) if keep_ms else ()
    old = [record for record in ended if (record.job.finished_at or 0) + keep_ms <= state.now]
    old.sort(key=lambda record: (record.job.finished_at or 0, record.end_number))
    return [record.job for record in old]


def _build_archive_entry(job: Job) -> ArchiveEntry:
    ended_at = job.finished_at or 0
    return ArchiveEntry(
        id=job.id,
        queue=job.queue,
        task=job.task,
        state=job.state,
        created_at=job.created_at,
        finished_at=ended_at,
        day=datetime.fromtimestamp(ended_at / 1_000, UTC).strftime("%Y-%m-%d"),
        duration_ms=None if job.started_at is None else ended_at - job.started_at,
        attempt=job.attempt,
        failures=job.failures,
        excerpt=(job.result or b"").decode(errors="replace")[:_EXCERPT],
        reason=job.reason,
    )


def _prune_archive(state: State) -> None:
    for number, line in list(state.archive.items()):
        keep_ms = state.queues[line.queue].settings.keep_archive_ms
        if keep_ms and line.finished_at + keep_ms <= state.now:
            state.write(state.archive, number, None)


def _prune_rest(state: State) -> None:
    for key, (_, until) in list(state.idempotency_keys.items()):
        if until <= state.now:
            state.write(state.idempotency_keys, key, None)
    for number, event in list(state.events.items()):
        if event.occurred_at <= state.now - AUDIT_RETENTION_MS:
            state.remove_event(number)
    audit_log.prune(state, state.now - AUDIT_RETENTION_MS)
    for scope, bucket in list(state.rate_buckets.items()):
        if is_rate(scope) and bucket.refilled_at <= state.now - 2 * FULL_AFTER_MS:
            state.write(state.rate_buckets, scope, None)
    _prune_workers(state)


def _prune_workers(state: State) -> None:
    for command in list(state.commands.values()):
        if command.expires_at <= state.now - COMMAND_RETENTION_MS:
            state.write(state.commands, command.id, None)
    for worker in list(state.workers.values()):
        if worker.heartbeat_at <= state.now - WORKER_RETENTION_MS:
            state.write(state.workers, worker.id, None)
