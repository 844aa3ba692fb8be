"""Inserts: new jobs of clients, and follow-ups of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nlargest

import msgspec
from msgspec.structs import replace

from forebay.domain.backpressure import queue_full_error, time_until_room
from forebay.domain.dependencies import Edge, EdgeState
from forebay.domain.enqueue_rates import EnqueueRateLimiter
from forebay.domain.job import Job, JobId, NewJob, QueueName, WorkerId
from forebay.domain.job_history import EventKind
from forebay.domain.job_states import JobState
from forebay.domain.json_values import Json
from forebay.domain.queue import Queue, QueueState
from forebay.domain.throughput import THROUGHPUT_JOBS, THROUGHPUT_WINDOW_MS, Throughput, throughput_of
from forebay.errors import DuplicateJob, ForebayError, InvalidJob, QueueClosed, QueueNotFound, StoreRefused
from forebay.stores.contract.claims_and_results import InsertResult, OnConflict
from forebay.stores.memory.dependency_edges import add_edges, resolve_parents
from forebay.stores.memory.sequential_jobs import join
from forebay.stores.memory.state import State


def insert(
    state: State, jobs: Sequence[NewJob], on_conflict: OnConflict, atomic: bool, create_queues: bool
) -> list[InsertResult]:
    results: list[InsertResult] = []
    batch = jobs if atomic else ()
    rate_limiter: EnqueueRateLimiter | None = None
    for new in jobs:
        try:
            earlier_ids = [result.id for result in results] if new.depends_on else []
            edges = _check_new_job(state, new, on_conflict, create_queues, earlier_ids)
            if isinstance(edges, InsertResult):
                results.append(edges)
                continue
            queue = state.queues.get(new.queue)
            if queue is not None and queue.settings.max_length is not None:
                _check_length(state, new, edges, queue.settings.max_length, batch)
            if queue is not None and queue.settings.has_rates:
                rate_limiter = rate_limiter or EnqueueRateLimiter(state.now, state.rate_buckets.get, batch)
                rate_limiter.take_tokens(queue, new)
            job = _store(state, new, new.parent_id, edges)
            results.append(InsertResult(id=job.id, is_new=True, state=job.state))
        except ForebayError as exc:
            if atomic:
                raise
            results.append(InsertResult(id=None, is_new=False, error=exc))
    for scope, bucket in rate_limiter.changed_buckets.items() if rate_limiter else ():
        state.write(state.rate_buckets, scope, bucket)
    return results


def insert_follow_up(
    state: State, parent: Job, worker: WorkerId, new: NewJob, earlier_ids: Sequence[JobId | None]
) -> JobId:
    """Store a job that a task returned, whatever the length and the state of its queue. Return its id, or
    that of the holder of its key."""
    try:
        state.queue_or_default(new.queue).priority_of(new.priority)
        if new.id in state.jobs:
            raise DuplicateJob(f"the id {new.id} is taken", holder=new.id or "")
        holder = _find_key_holder(state, new)
        edges = resolve_parents(state, new, earlier_ids) if holder is None else ()
    except (InvalidJob, DuplicateJob) as exc:
        raise StoreRefused(f"the follow-up {new.task} of job {parent.id} cannot be stored: {exc}") from exc
    if holder is None:
        return _store(state, new, new.parent_id or parent.id, edges).id
    detail = f"{new.task}: key taken by {holder}"
    state.record_job_event(
        EventKind.FOLLOW_UP_SKIPPED, parent, actor=worker, attempt=parent.attempt, detail=detail
    )
    return holder


def get_or_create_queue(state: State, name: QueueName) -> Queue:
    """Return the queue of this name; create it if there is none."""
    queue = state.queue_or_default(name)
    if name not in state.queues:
        state.write(state.queues, name, queue)
    return queue


def copy_metadata(metadata: dict[str, Json]) -> dict[str, Json]:
    """Return a copy that has no other owner, as if decoded from JSON."""
    copy: dict[str, Json] = msgspec.json.decode(msgspec.json.encode(metadata)) if metadata else {}
    return copy


def _check_new_job(
    state: State,
    new: NewJob,
    on_conflict: OnConflict,
    create_queues: bool,
    earlier_ids: Sequence[JobId | None],
) -> InsertResult | Sequence[Edge]:
    """Return the edges of a new job, or the result that names the holder of its key."""
    # Every check comes before the first write: a refused member of a batch leaves no trace of its own.
    if new.queue not in state.queues and not create_queues:
        raise QueueNotFound(f"there is no queue {new.queue}")
    queue = state.queue_or_default(new.queue)
    if queue.state in (QueueState.DRAINING, QueueState.DROPPED):
        raise QueueClosed(f"queue {queue.name} is {queue.state} and takes no new jobs")
    queue.priority_of(new.priority)
    holder = _find_holder(state, new, on_conflict)
    if holder is not None:
        record = state.jobs.get(holder)
        return InsertResult(id=holder, is_new=False, state=None if record is None else record.job.state)
    return resolve_parents(state, new, earlier_ids)


def _check_length(
    state: State, new: NewJob, edges: Sequence[Edge], limit: int, batch: Sequence[NewJob]
) -> None:
    name = new.queue
    is_blocked = any(edge.state is not EdgeState.MET for edge in edges)
    is_blocked = is_blocked or bool(state.sequences.get(new.sequence or ""))
    if is_blocked or due_at_of(state, new) > state.now:
        return
    length = state.count(name, JobState.PENDING)
    if length >= limit:
        wait = time_until_room(
            lambda: load_throughput(state, name), name, state.now, length=length, limit=limit, batch=batch
        )
        raise queue_full_error(name, limit, wait)


def load_throughput(state: State, queue: QueueName) -> Throughput:
    """Return how fast jobs of a queue completed lately."""
    completed = (record.job.finished_at or 0 for record in state.jobs_in_states(queue, [JobState.COMPLETED]))
    latest = nlargest(
        THROUGHPUT_JOBS,
        (finished_at for finished_at in completed if finished_at > state.now - THROUGHPUT_WINDOW_MS),
    )
    return throughput_of(len(latest), min(latest, default=None), state.now)


def _find_holder(state: State, new: NewJob, on_conflict: OnConflict) -> JobId | None:
    if new.id is not None and new.id in state.jobs:
        if on_conflict == "ignore":
            return new.id
        raise DuplicateJob(f"the id {new.id} is taken", holder=new.id)
    holder = _find_key_holder(state, new)
    if holder is not None and on_conflict == "raise":
        raise DuplicateJob(f"job {holder} of queue {new.queue} has this key", holder=holder)
    return holder


def _find_key_holder(state: State, new: NewJob) -> JobId | None:
    if new.unique_key is not None and (new.queue, new.unique_key) in state.unique_keys:
        return state.unique_keys[new.queue, new.unique_key]
    if new.idempotency_key is not None:
        holder, until = state.idempotency_keys.get((new.queue, new.idempotency_key), (None, 0))
        return holder if until > state.now else None
    return None


def due_at_of(state: State, new: NewJob) -> int:
    return max(state.now, state.now + new.delay_ms if new.run_at is None else new.run_at)


def _store(state: State, new: NewJob, parent_id: JobId | None, edges: Sequence[Edge]) -> Job:
    queue = get_or_create_queue(state, new.queue)
    job = _build_job(state, queue, new, parent_id)
    _take_keys(state, job, new.idempotency_ttl_ms)
    if edges:
        add_edges(state, job.id, edges)
    join(state, job)
    state.put_new(job)
    return state.jobs[job.id].job


def _take_keys(state: State, job: Job, idempotency_ttl_ms: int) -> None:
    if job.unique_key is not None:
        state.write(state.unique_keys, (job.queue, job.unique_key), job.id)
    if job.idempotency_key is not None:
        state.write(
            state.idempotency_keys, (job.queue, job.idempotency_key), (job.id, state.now + idempotency_ttl_ms)
        )


def _build_job(state: State, queue: Queue, new: NewJob, parent_id: JobId | None) -> Job:
    due_at = due_at_of(state, new)
    return Job(
        id=new.id or state.new_id(),
        seq=state.next_number("seq"),
        queue=queue.name,
        task=new.task,
        state=JobState.PENDING,
        payload=new.payload,
        priority=queue.priority_of(new.priority),
        policy=new.policy,
        attempt=0,
        failures=0,
        crashes=0,
        created_at=state.now,
        updated_at=state.now,
        ready_at=due_at,
        run_at=due_at,
        rank=0,
        age_capped=False,
        lane=None,
        worker=None,
        started_at=None,
        lease_expires_at=None,
        lease_ms=new.lease_ms,
        extension_ms=new.extension_ms,
        timeout_ms=new.timeout_ms,
        deadline_at=new.deadline_at,
        expires_at=new.expires_at,
        unique_key=new.unique_key,
        unique_until=new.unique_until,
        idempotency_key=new.idempotency_key,
        metadata=copy_metadata(new.metadata),
        tags=tuple(new.tags),
        correlation_id=new.correlation_id,
        parent_id=parent_id,
        cancel_reason=None,
        errors=(),
        limit_keys=dict(new.limit_keys),
        sequence=new.sequence,
        cost=new.cost,
    )


def copy_for_caller(job: Job) -> Job:
    """Return the job as callers get it: its metadata is theirs to change."""
    return replace(job, metadata=copy_metadata(job.metadata))
