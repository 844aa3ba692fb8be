"""New jobs, asked for by clients or handed back by tasks."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nlargest

import msgspec

from forebay.domain.history import EventKind
from forebay.domain.job import Job, JobId, Json, NewJob, QueueName, WorkerId
from forebay.domain.lifecycle import JobState
from forebay.domain.pressure import PACE_JOBS, PACE_MS, Pace, Turnstile, pace_of, queue_full, room_after
from forebay.domain.queue import Queue, QueueState
from forebay.domain.workflow import Edge, EdgeState
from forebay.errors import (
    DuplicateJob,
    ForebayError,
    InvalidJob,
    QueueClosed,
    QueueNotFound,
    StoreRefused,
)
from forebay.stores.memory.edges import add_edges, edges_of
from forebay.stores.memory.sequences import join
from forebay.stores.memory.state import State
from forebay.stores.protocol import OnConflict, Receipt


def insert(
    state: State, jobs: Sequence[NewJob], on_conflict: OnConflict, atomic: bool, create_queues: bool
) -> list[Receipt]:
    receipts: list[Receipt] = []
    together = jobs if atomic else ()
    turnstile: Turnstile | None = None
    for new in jobs:
        try:
            before = [receipt.id for receipt in receipts] if new.depends_on else []
            edges = _judged(state, new, on_conflict, create_queues, before)
            if isinstance(edges, Receipt):
                receipts.append(edges)
                continue
            queue = state.queues.get(new.queue)
            if queue is not None and queue.settings.max_length is not None:
                _check_room(state, new, edges, queue.settings.max_length, together)
            if queue is not None and queue.settings.has_rates:
                turnstile = turnstile or Turnstile(state.now, state.buckets.get, together)
                turnstile.enter(queue, new)
            job = _store(state, new, new.parent_id, edges)
            receipts.append(Receipt(id=job.id, is_new=True, state=job.state))
        except ForebayError as exc:
            if atomic:
                raise
            receipts.append(Receipt(id=None, is_new=False, error=exc))
    for scope, bucket in turnstile.taken.items() if turnstile else ():
        state.write(state.buckets, scope, bucket)
    return receipts


def follow_up(
    state: State, parent: Job, worker: WorkerId, new: NewJob, before: Sequence[JobId | None]
) -> JobId:
    """Store a job that a task handed back; neither the queue's length nor its state matters. Answers its id,
    or that of the job that has its key."""
    try:
        state.queue_or_fresh(new.queue).priority_of(new.priority)
        if new.id in state.jobs:
            raise DuplicateJob(f"the id {new.id} is taken", holder=new.id or "")
        holder = _key_holder(state, new)
        edges = edges_of(state, new, before) if holder is None else ()
    except (InvalidJob, DuplicateJob) as exc:
        raise StoreRefused(f"the follow-up {new.task} of job {parent.id} cannot be stored: {exc}") from exc
    if holder is None:
        return _store(state, new, new.parent_id or parent.id, edges).id
    detail = f"{new.task}: key taken by {holder}"
    state.tell(EventKind.UNFOLLOWED, parent, actor=worker, attempt=parent.attempt, detail=detail)
    return holder


def open_queue(state: State, name: QueueName) -> Queue:
    """The queue of this name, created if there is none."""
    queue = state.queue_or_fresh(name)
    if name not in state.queues:
        state.write(state.queues, name, queue)
    return queue


def fresh(metadata: dict[str, Json]) -> dict[str, Json]:
    """A copy that nobody else holds, as it would come back from JSON."""
    copy: dict[str, Json] = msgspec.json.decode(msgspec.json.encode(metadata)) if metadata else {}
    return copy


def _judged(
    state: State,
    new: NewJob,
    on_conflict: OnConflict,
    create_queues: bool,
    before: Sequence[JobId | None],
) -> Receipt | Sequence[Edge]:
    """The edges of a new job, or the receipt of the one that has its key."""
    # Every check comes before the first write: a refused member of a batch leaves no trace of its own.
    if new.queue not in state.queues and not create_queues:
        raise QueueNotFound(f"there is no queue {new.queue}")
    queue = state.queue_or_fresh(new.queue)
    if queue.state in (QueueState.DRAINING, QueueState.DROPPED):
        raise QueueClosed(f"queue {queue.name} is {queue.state} and takes no new jobs")
    queue.priority_of(new.priority)
    holder = _holder(state, new, on_conflict)
    if holder is not None:
        held = state.jobs.get(holder)
        return Receipt(id=holder, is_new=False, state=None if held is None else held.job.state)
    return edges_of(state, new, before)


def _check_room(
    state: State, new: NewJob, edges: Sequence[Edge], limit: int, together: Sequence[NewJob]
) -> None:
    name = new.queue
    is_blocked = any(edge.state is not EdgeState.MET for edge in edges)
    is_blocked = is_blocked or bool(state.sequences.get(new.sequence or ""))
    if is_blocked or _due_at(state, new) > state.now:
        return
    length = state.count(name, JobState.PENDING)
    if length >= limit:
        wait = room_after(
            lambda: pace(state, name), name, state.now, length=length, limit=limit, together=together
        )
        raise queue_full(name, limit, wait)


def pace(state: State, queue: QueueName) -> Pace:
    """How fast jobs of a queue were completed lately."""
    completed = (record.job.finished_at or 0 for record in state.among(queue, [JobState.COMPLETED]))
    found = nlargest(PACE_JOBS, (at for at in completed if at > state.now - PACE_MS))
    return pace_of(len(found), min(found, default=None), state.now)


def _holder(state: State, new: NewJob, on_conflict: OnConflict) -> JobId | None:
    if new.id is not None and new.id in state.jobs:
        if on_conflict == "ignore":
            return new.id
        raise DuplicateJob(f"the id {new.id} is taken", holder=new.id)
    holder = _key_holder(state, new)
    if holder is not None and on_conflict == "raise":
        raise DuplicateJob(f"job {holder} of queue {new.queue} has this key", holder=holder)
    return holder


def _key_holder(state: State, new: NewJob) -> JobId | None:
    if new.unique_key is not None and (new.queue, new.unique_key) in state.unique:
        return state.unique[new.queue, new.unique_key]
    if new.once_key is not None:
        holder, until = state.once.get((new.queue, new.once_key), (None, 0))
        return holder if until > state.now else None
    return None


def _due_at(state: State, new: NewJob) -> int:
    return max(state.now, state.now + new.delay_ms if new.run_at is None else new.run_at)


def _store(state: State, new: NewJob, parent_id: JobId | None, edges: Sequence[Edge]) -> Job:
    queue = open_queue(state, new.queue)
    job = _job(state, queue, new, parent_id)
    _take_keys(state, job, new.once_ms)
    if edges:
        add_edges(state, job.id, edges)
    join(state, job)
    state.put_new(job)
    return state.jobs[job.id].job


def _take_keys(state: State, job: Job, once_ms: int) -> None:
    if job.unique_key is not None:
        state.write(state.unique, (job.queue, job.unique_key), job.id)
    if job.once_key is not None:
        state.write(state.once, (job.queue, job.once_key), (job.id, state.now + once_ms))


def _job(state: State, queue: Queue, new: NewJob, parent_id: JobId | None) -> Job:
    due_at = _due_at(state, new)
    return Job(
        id=new.id or state.new_id(),
        seq=state.number("seq"),
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
        capped=False,
        gate=None,
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
        once_key=new.once_key,
        metadata=fresh(new.metadata),
        tags=tuple(new.tags),
        correlation_id=new.correlation_id,
        parent_id=parent_id,
        cancel_reason=None,
        errors=(),
        limit_keys=dict(new.limit_keys),
        sequence=new.sequence,
        cost=new.cost,
    )
