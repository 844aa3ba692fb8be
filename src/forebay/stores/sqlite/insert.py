"""Inserts: new jobs of clients, and follow-ups of tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, cast

import msgspec

from forebay.domain.backpressure import queue_full_error, time_until_room
from forebay.domain.concurrency_and_rate_limits import Bucket
from forebay.domain.dependencies import EdgeState
from forebay.domain.enqueue_rates import EnqueueRateLimiter
from forebay.domain.fairness import FAIRNESS
from forebay.domain.job import JobId, NewJob, QueueName, WorkerId
from forebay.domain.job_history import Event, EventKind
from forebay.domain.job_states import JobState
from forebay.domain.queue import Queue, QueueState
from forebay.domain.settlement import Settlement
from forebay.domain.throughput import Throughput
from forebay.errors import DuplicateJob, ForebayError, InvalidJob, QueueClosed, QueueNotFound, StoreRefused
from forebay.stores.contract.claims_and_results import InsertResult, OnConflict
from forebay.stores.shared.dependency_propagation import PropagationPending
from forebay.stores.shared.rows import json_text, new_options_text
from forebay.stores.shared.throughput_query import throughput_from_row, throughput_params
from forebay.stores.sqlite.dependency_edges import EdgeWriter
from forebay.stores.sqlite.fairness import mark_pending
from forebay.stores.sqlite.transaction import UNCOUNTED, Transaction

_CLOSED: Final = (QueueState.DRAINING, QueueState.DROPPED)
WIDTH: Final = 5  # values of one row in `insert_many`, after those that a group has in common


class InsertRules(msgspec.Struct, frozen=True, kw_only=True):
    """Options of an insert. Follow-ups are accepted work: neither the length nor the state of the queue
    stops them."""

    on_conflict: OnConflict = "return"
    create_queues: bool = True
    is_follow_up: bool = False


class InsertGroup:
    """Jobs of one insert that differ only in id, options, key and payload, and are written together."""

    __slots__ = (
        "common_values",
        "due_at",
        "fairness_key",
        "max_length",
        "priority",
        "queue",
        "rate_limited_queue",
        "rows",
        "state",
        "uncounted",
        "unmet",
    )  # fmt: skip

    def __init__(
        self, queue: QueueName, priority: int, due_at: int, state: JobState, max_length: int | None
    ) -> None:
        self.queue: QueueName = queue
        self.priority: int = priority
        self.due_at: int = due_at
        self.state: JobState = state
        self.max_length: int | None = max_length
        self.rate_limited_queue: Queue | None = None  # the queue, if it limits the rate of new jobs
        self.fairness_key: str | None = None  # of these jobs, if they are pending
        self.common_values: tuple[object, ...] = ()  # known with the first row
        self.rows: list[object] = []
        self.uncounted: int = 0  # jobs that were written since the last count
        self.unmet: int = 0  # how many edges block each of them


class InsertBatch:
    """Jobs of one insert. Their rows are gathered and written by few statements."""

    def __init__(
        self, tx: Transaction, new_id: Callable[[], JobId] | None, rules: InsertRules, batch: Sequence[NewJob]
    ) -> None:
        self._tx = tx
        self._batch = batch  # jobs that are accepted all or not at all
        self.rate_limiter: EnqueueRateLimiter | None = None
        self._new_id = new_id
        self._rules = rules
        self._groups: dict[tuple[object, ...], InsertGroup] = {}
        self._shape: tuple[object, ...] = ()  # the last job's
        self._group: InsertGroup
        self._edges: EdgeWriter | None = None
        self.results: list[InsertResult] = []  # of the jobs that came before

    def add(self, job: NewJob) -> InsertResult:
        """Accept one job, or raise the reason against it."""
        shape = (
            job.queue, job.task, job.priority, job.delay_ms, job.run_at, job.deadline_at, job.expires_at,
            job.id is None, job.limit_keys.get(FAIRNESS) if job.limit_keys else None,
        )  # fmt: skip
        if job.depends_on or job.sequence is not None:
            return self._add_child(job, shape)
        group = self._group if shape == self._shape else self._get_group(shape, job)
        if job.id is not None or job.unique_key is not None or job.idempotency_key is not None:
            conflict = self._find_conflict(job)
            if conflict is not None:
                return conflict
        if group.max_length is not None:
            self._check_length(job.queue, group.max_length)
        if group.rate_limited_queue is not None:
            self._take_tokens(group.rate_limited_queue, job)
        return InsertResult(id=self._write(job, group), is_new=True, state=group.state)

    def _add_child(self, job: NewJob, shape: tuple[object, ...]) -> InsertResult:
        """Accept a job with parents, which may be jobs of this very batch."""
        group = self._group if shape == self._shape else self._get_group(shape, job)
        if job.id is not None or job.unique_key is not None or job.idempotency_key is not None:
            conflict = self._find_conflict(job)
            if conflict is not None:
                return conflict
        queue = self._tx.queue(job.queue) or self._tx.build_queue(job.queue)
        edges = self._edges = self._edges or EdgeWriter(self._tx)
        parents = edges.resolve_parents(job, queue, self.results, self.flush)
        is_sequence_busy = job.sequence is not None and self._tx.is_sequence_busy(job.sequence)
        rate_limited_queue = group.rate_limited_queue
        unmet = sum(state is not EdgeState.MET for _, state in parents)
        if is_sequence_busy or unmet:
            group = self._get_blocked_group(shape, group, unmet)
        elif group.max_length is not None:
            self._check_length(job.queue, group.max_length)
        if rate_limited_queue is not None:
            self._take_tokens(rate_limited_queue, job)
        job_id = self._write(job, group)
        edges.add(job_id, job, parents)
        if job.sequence is not None:
            self._tx.join_sequence(job.sequence, job_id)
        return InsertResult(id=job_id, is_new=True, state=group.state)

    def _get_blocked_group(
        self, shape: tuple[object, ...], unblocked: InsertGroup, unmet: int
    ) -> InsertGroup:
        """Return the group of jobs that would be in `unblocked` if they had no parents."""
        shape = (*shape, JobState.BLOCKED, unmet)
        group = self._groups.get(shape)
        if group is None:
            group = self._groups[shape] = InsertGroup(
                unblocked.queue, unblocked.priority, unblocked.due_at, JobState.BLOCKED, None
            )
            group.unmet = unmet
        return group

    def flush(self) -> None:
        """Write the gathered jobs, many rows by one statement."""
        tx = self._tx
        for group in self._groups.values():
            if group.rows:
                if len(group.rows) == WIDTH:
                    tx.run("insert", (*group.common_values, *group.rows))
                else:
                    tx.run_rows("insert_many", group.common_values, group.rows, WIDTH)
                if group.fairness_key is not None:
                    mark_pending(
                        tx, group.queue, group.fairness_key, cast(list[int], group.rows[::WIDTH])
                    )  # which begin with seqs
                group.uncounted += len(group.rows) // WIDTH
                group.rows.clear()
                tx.needs_wakeup = tx.has_new_jobs = True
        if self._edges is not None:
            self._edges.flush()

    def save_rate_buckets(self) -> None:
        """Write the token buckets that the jobs have changed."""
        changed = {} if self.rate_limiter is None else self.rate_limiter.changed_buckets
        for scope, bucket in changed.items():
            self._tx.run(
                "rate_bucket_save",
                {"scope": scope, "token_parts": bucket.token_parts, "refilled_at": bucket.refilled_at},
            )

    def count_new(self) -> None:
        """Count every uncounted job, of this insert or of an earlier one."""
        self._tx.count_new()
        for group in self._groups.values():
            group.uncounted = 0

    def count_inserted(self) -> None:
        """Count the jobs of this insert without reading them, when all others are counted."""
        for group in self._groups.values():
            self._tx.count(group.queue, group.state, group.uncounted)
        self._tx.mark_all_counted()

    def _get_group(self, shape: tuple[object, ...], job: NewJob) -> InsertGroup:
        group = self._groups.get(shape)
        if group is None:
            group = self._groups[shape] = self._create_group(job)
        self._shape, self._group = shape, group
        return group

    def _create_group(self, job: NewJob) -> InsertGroup:
        """Create the group of jobs like this one, and look up what they have in common."""
        tx, rules = self._tx, self._rules
        queue = tx.queue(job.queue)
        if queue is None:
            if not rules.create_queues:
                raise QueueNotFound(f"there is no queue {job.queue}; create it first")
            queue = tx.build_queue(job.queue)
        if queue.state in _CLOSED and not rules.is_follow_up:
            raise QueueClosed(f"queue {queue.name} is {queue.state} and takes no new jobs")
        priority = queue.priority_of(job.priority)
        due_at = max(tx.now, tx.now + job.delay_ms if job.run_at is None else job.run_at)
        state = JobState.SCHEDULED if due_at > tx.now else JobState.PENDING
        is_counted = state is JobState.PENDING and not rules.is_follow_up
        group = InsertGroup(
            job.queue, priority, due_at, state, queue.settings.max_length if is_counted else None
        )
        if queue.settings.has_rates and not rules.is_follow_up:
            group.rate_limited_queue = queue
        group.fairness_key = job.limit_keys.get(FAIRNESS) if state is JobState.PENDING else None
        return group

    def _check_length(self, queue: QueueName, limit: int) -> None:
        self.flush()
        self.count_new()
        length = self._tx.count_jobs(queue, JobState.PENDING)
        if length >= limit:
            wait = time_until_room(
                lambda: self._load_throughput(queue),
                queue,
                self._tx.now,
                length=length,
                limit=limit,
                batch=self._batch,
            )
            raise queue_full_error(queue, limit, wait)

    def _take_tokens(self, queue: Queue, job: NewJob) -> None:
        if self.rate_limiter is None:
            self.rate_limiter = EnqueueRateLimiter(self._tx.now, partial(_load_bucket, self._tx), self._batch)
        self.rate_limiter.take_tokens(queue, job)

    def _load_throughput(self, queue: str) -> Throughput:
        now = self._tx.now
        return throughput_from_row(self._tx.one("throughput", throughput_params(queue, now)), now)

    def _find_conflict(self, job: NewJob) -> InsertResult | None:
        """Return the result for a job whose id or key is taken."""
        if job.id is not None:
            self.flush()  # jobs of this very batch count too
            location = self._tx.locate(job.id)
            if location is not None:
                return self._id_conflict(job.id, location[1])
            detach_reused_id(self._tx, job.id)
        for kind, key in (("unique", job.unique_key), ("idempotency", job.idempotency_key)):
            holder = None if key is None else self._tx.find_key_holder(job.queue, kind, key)
            if holder is not None:
                return self._key_conflict(job, kind, holder)
        return None

    def _id_conflict(self, job_id: JobId, state: JobState) -> InsertResult:
        if self._rules.on_conflict != "ignore":
            raise DuplicateJob(f"job id {job_id} is taken", holder=job_id)
        return InsertResult(id=job_id, is_new=False, state=state)

    def _key_conflict(self, job: NewJob, kind: str, holder: JobId) -> InsertResult:
        if self._rules.on_conflict == "raise":
            key = job.unique_key if kind == "unique" else job.idempotency_key
            raise DuplicateJob(f"{kind} key {key!r} of queue {job.queue} is held by {holder}", holder=holder)
        self.flush()  # the holder may be a job of this very batch
        location = self._tx.locate(holder)
        return InsertResult(id=holder, is_new=False, state=None if location is None else location[1])

    def _write(self, job: NewJob, group: InsertGroup) -> JobId:
        tx = self._tx
        if not group.common_values:
            group.common_values = self._common_values(job, group)
        seq = tx.next_seq()
        job_id = job.id or (self._new_id() if self._new_id else tx.id_of(seq))
        if job.unique_key is not None:
            tx.take_key(job.queue, "unique", job.unique_key, job_id, None)
        if job.idempotency_key is not None:
            tx.take_key(
                job.queue, "idempotency", job.idempotency_key, job_id, tx.now + job.idempotency_ttl_ms
            )
        group.rows += (seq, job_id, new_options_text(job), job.unique_key, job.payload)
        return job_id

    def _common_values(self, job: NewJob, group: InsertGroup) -> tuple[object, ...]:
        """Return the values that all jobs of a group have in common.

        Without a deadline there is nothing to rescore soon. `rescore` comes by at half the time of the age
        cap, and gives the few jobs that still wait their entry. An entry for each would cost every insert a
        page.
        """
        tx = self._tx
        # This also makes a new queue: not before, because a refused job leaves no queue behind.
        ranked = tx.compute_rank(job.queue, group.due_at, group.priority, 0, job.deadline_at)
        rescores = job.deadline_at is not None and group.state is JobState.PENDING
        return (
            int(job.id is not None or self._new_id is not None), job.queue, job.task, group.state.value,
            group.priority, tx.now, tx.now, group.due_at, group.due_at, ranked.rank, int(ranked.age_capped),
            ranked.rescore_at if rescores else None, job.deadline_at, job.expires_at, group.unmet,
        )  # fmt: skip


def detach_reused_id(tx: Transaction, job_id: JobId) -> None:
    """Detach the edges of a removed job whose id a new job gets: they lead from the old one."""
    if not tx.has_edges():
        return
    if tx.may_have_outbox_entries() and tx.all("outbox_for_jobs", {"job_ids": json_text([job_id])}):
        raise PropagationPending(job_id)
    tx.run("edges_mark_met", {"parent_id": job_id})


def _load_bucket(tx: Transaction, scope: str) -> Bucket | None:
    row = tx.one("rate_bucket", {"scope": scope})
    return None if row is None else Bucket(*row)


def insert_all(
    tx: Transaction,
    new_id: Callable[[], JobId] | None,
    jobs: Sequence[NewJob],
    rules: InsertRules,
    *,
    atomic: bool,
) -> list[InsertResult]:
    """Insert jobs in order. The first error ends an atomic insert; otherwise it goes into the result of
    its job."""
    batch = InsertBatch(tx, new_id, rules, jobs if atomic else ())
    is_large = len(jobs) >= UNCOUNTED
    if is_large:
        batch.count_new()  # so that only ours are left in the end; to count each of these takes 0.4 us
    results = batch.results
    for job in jobs:
        try:
            results.append(batch.add(job))
        except PropagationPending:
            raise  # the whole transaction is repeated
        except ForebayError as error:
            if atomic:
                raise
            results.append(InsertResult(id=None, is_new=False, error=error))
    batch.flush()
    if batch.rate_limiter is not None:
        batch.save_rate_buckets()
    if is_large:
        batch.count_inserted()
    else:
        tx.defer_counting(len(results))
    return results


def insert_follow_ups(
    tx: Transaction,
    new_id: Callable[[], JobId] | None,
    worker: WorkerId,
    settlement: Settlement,
    queue: QueueName,
) -> None:
    """Insert the new jobs that a task returned, in the transaction that settles it."""
    parent = settlement.job_id
    jobs = [
        job if job.parent_id is not None else msgspec.structs.replace(job, parent_id=parent)
        for job in settlement.follow_ups
    ]
    try:
        results = insert_all(tx, new_id, jobs, InsertRules(is_follow_up=True), atomic=True)
    except (InvalidJob, DuplicateJob) as exc:
        raise StoreRefused(f"a follow-up of job {parent} cannot be stored: {exc}") from exc
    for job, result in zip(jobs, results, strict=True):
        if not result.is_new:
            tx.record(
                Event(
                    kind=EventKind.FOLLOW_UP_SKIPPED,
                    job_id=parent,
                    queue=queue,
                    attempt=settlement.attempt,
                    actor=worker,
                    detail=f"{job.task}: key taken by {result.id}",
                )
            )
