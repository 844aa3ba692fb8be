"""Insert jobs: the slow path, for any combination of options."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from forebay.domain.backpressure import queue_full_error, time_until_room
from forebay.domain.concurrency_and_rate_limits import Bucket
from forebay.domain.dependencies import EdgeState
from forebay.domain.enqueue_rates import EnqueueRateLimiter
from forebay.domain.fairness import FAIRNESS, lane_for_keys
from forebay.domain.job import JobId, NewJob, QueueName, WorkerId
from forebay.domain.job_history import Event, EventKind
from forebay.domain.job_states import JobState
from forebay.domain.queue import QueueState
from forebay.domain.settlement import Settlement
from forebay.domain.throughput import Throughput
from forebay.errors import (
    DuplicateJob,
    ForebayError,
    InvalidJob,
    QueueClosed,
    QueueNotFound,
    StoreBusy,
    StoreRefused,
)
from forebay.stores.contract.claims_and_results import InsertResult, OnConflict
from forebay.stores.id_generator import iter_ids
from forebay.stores.postgres.connection import RetryTransaction
from forebay.stores.postgres.dependency_edges import EdgeWriter, ReusedIds
from forebay.stores.postgres.fairness import mark_pending
from forebay.stores.postgres.sequential_jobs import SequenceWriter
from forebay.stores.postgres.transaction import JobKey, Transaction
from forebay.stores.shared.rows import new_options_text
from forebay.stores.shared.throughput_query import throughput_from_row, throughput_params

# No statement holds much more than this: the server takes no message of a gigabyte.
GROUP_BYTES: Final = 64 * 2**20
RETRY_HINT: Final = "try again once that is committed or rolled back"
_CLOSED: Final = (QueueState.DRAINING, QueueState.DROPPED)


class InsertRules(msgspec.Struct, frozen=True, kw_only=True):
    """Rules of an insert. Follow-ups are accepted work: no length limit and no closed queue stops them."""

    on_conflict: OnConflict = "return"
    create_queues: bool = True
    is_follow_up: bool = False
    is_caller_tx: bool = False  # in a caller transaction, which may hold locks for any time


class InsertGroup:
    """Jobs of one insert that differ only in id, options, key and payload, and are stored together."""

    __slots__ = (
        "dependants",
        "due_at",
        "ids",
        "job",
        "options",
        "payloads",
        "priority",
        "room",
        "seqs",
        "size",
        "state",
        "unique_keys",
        "unmet",
    )

    def __init__(self, job: NewJob, priority: int, due_at: int, state: JobState) -> None:
        self.job: NewJob = job  # any of them, for the common fields
        self.priority: int = priority
        self.due_at: int = due_at
        self.state: JobState = state
        self.ids: list[JobId] = []
        self.seqs: list[int] = []
        self.options: list[str | None] = []
        self.unique_keys: list[str | None] = []
        self.payloads: list[bytes] = []
        self.dependants: list[int] = []  # 1 if another job of this insert depends on it
        self.unmet: list[int] = []  # number of edges that block it
        self.size: int = 0


class InsertBatch:
    """Jobs of one insert.

    A key or an id taken by an open caller transaction is not waited for: that may stay open for hours, and
    this insert may block other transactions. Its job is refused with StoreBusy. Between this check and the
    write a caller may still take one; then the write waits, at most for the lock timeout. A caller with more
    keys than advisory locks is waited for briefly.

    Keys, ids and queues are loaded first, for all jobs at once; then each job is checked as if it came alone;
    then all are stored. Another transaction may take a key, an id or a queue name in between: the write waits
    for it, detects it, and the whole transaction is retried. A queue that is closed during the insert may
    still get these jobs, as if they had come a moment before.
    """

    def __init__(self, tx: Transaction, jobs: Sequence[NewJob], rules: InsertRules, *, atomic: bool) -> None:
        self._tx = tx
        self._rules = rules
        self._sequences = SequenceWriter(tx, jobs, is_caller_tx=rules.is_caller_tx)
        self._batch = jobs if atomic else ()
        self._groups: list[InsertGroup] = []
        self._open_groups: dict[tuple[object, ...], InsertGroup] = {}
        self._seq_query = tx.run("next_seqs", {"jobs": len(jobs)})
        self._ids = iter_ids(tx.new_id, len(jobs))
        self._seqs: Iterator[tuple[int]] | None = None
        tx.load_queues({job.queue for job in jobs})
        self._rate_limited: set[str] = set()  # queues with an enqueue rate
        self._room = dict(self._load_rooms(jobs))
        self._rate_limiter = (
            EnqueueRateLimiter(tx.reread_clock(), partial(_load_bucket, tx), self._batch)
            if self._rate_limited
            else None
        )
        self._holders = tx.find_key_holders(key for job in jobs for key in _keys_of(job))
        given = {job.id for job in jobs if job.id is not None}
        self._states, self._busy = tx.states_and_busy(given, self._holders.values())
        self._taken_keys: list[tuple[JobKey, JobId, int | None]] = []
        self.results: list[InsertResult] = []  # of the earlier jobs
        self._group_positions: dict[JobId, tuple[InsertGroup, int]] = {}
        self._edges = EdgeWriter(tx, jobs, list(self._states), is_caller_tx=rules.is_caller_tx)
        self._given_ids: set[JobId] = set()

    def _load_rooms(self, jobs: Iterable[NewJob]) -> Iterator[tuple[str, int]]:
        """Yield the room of each queue with a maximum length, under its lock.

        Queues with rates are locked too. A caller transaction locks none and counts committed jobs.
        """
        if self._rules.is_follow_up:
            return
        for name in sorted({job.queue for job in jobs}):
            queue = self._tx.queue(name)
            if queue is None or not (queue.settings.max_length or queue.settings.has_rates):
                continue
            if not self._rules.is_caller_tx:
                queue = self._tx.lock_queue(name)
            if queue is not None and queue.settings.has_rates:
                self._rate_limited.add(name)
            if queue is not None and queue.settings.max_length is not None:
                yield name, queue.settings.max_length - self._tx.count_jobs(name, [JobState.PENDING])

    def add(self, job: NewJob) -> InsertResult:
        """Accept one job, or raise the reason why not."""
        group = self._get_group(job)
        if job.id is not None or job.unique_key is not None or job.idempotency_key is not None:
            conflict = self._find_conflict(job)
            if conflict is not None:
                return conflict
        if job.depends_on or job.sequence is not None:
            return self._add_child(job, group)
        if group.state is JobState.PENDING and job.queue in self._room:
            self._check_length(job.queue)
        if job.queue in self._rate_limited:
            self._take_tokens(job)
        return InsertResult(id=self._write(job, group), is_new=True, state=group.state)

    def _add_child(self, job: NewJob, group: InsertGroup) -> InsertResult:
        """Accept a job with parents, which may be jobs of this very batch, or with a sequence."""
        queue = self._tx.queue(job.queue) or self._tx.build_queue(job.queue)
        parents = self._edges.resolve_parents(job, queue, self.results, self._group_positions)
        unmet = sum([state is not EdgeState.MET for _, state in parents]) + self._sequences.must_wait(
            job.sequence
        )
        if unmet:
            group = self._get_group(job, is_blocked=True)
        elif group.state is JobState.PENDING and job.queue in self._room:
            self._check_length(job.queue)
        if job.queue in self._rate_limited:
            self._take_tokens(job)
        job_id = self._write(job, group, unmet)
        self._edges.add(job_id, job, parents)
        if job.sequence is not None:
            self._sequences.join(job.sequence, job_id)
            group.dependants[-1] = 1  # the next job of its sequence depends on it
        for parent, _ in parents:
            if (group_position := self._group_positions.get(parent)) is not None:
                parent_group, index = group_position
                parent_group.dependants[index] = 1
        return InsertResult(id=job_id, is_new=True, state=group.state)

    def _get_group(self, job: NewJob, *, is_blocked: bool = False) -> InsertGroup:
        shape = (
            job.queue, job.task, job.priority, job.delay_ms, job.run_at, job.deadline_at, job.expires_at,
            is_blocked, job.limit_keys.get(FAIRNESS) if job.limit_keys else None,
        )  # fmt: skip
        group = self._open_groups.get(shape)
        if group is None or group.size >= GROUP_BYTES:
            group = self._open_groups[shape] = self._create_group(job)
            self._groups.append(group)
            if is_blocked:
                group.state = JobState.BLOCKED
        return group

    def _create_group(self, job: NewJob) -> InsertGroup:
        """Create the group of a job with the values that its jobs have in common."""
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
        return InsertGroup(job, priority, due_at, JobState.SCHEDULED if due_at > tx.now else JobState.PENDING)

    def _check_length(self, name: QueueName) -> None:
        if self._room[name] <= 0:
            queue = self._tx.queue(name)
            limit = (queue.settings.max_length if queue else None) or 0
            wait = time_until_room(
                lambda: self._load_throughput(name),
                name,
                self._tx.now,
                length=limit - self._room[name],
                limit=limit,
                batch=self._batch,
            )
            raise queue_full_error(name, limit, wait)

    def _take_tokens(self, job: NewJob) -> None:
        queue = self._tx.queue(job.queue)
        if self._rate_limiter is not None and queue is not None:
            self._rate_limiter.take_tokens(queue, job)

    def _load_throughput(self, queue: str) -> Throughput:
        now = self._tx.now
        return throughput_from_row(self._tx.one("throughput", throughput_params(queue, now)), now)

    def _find_conflict(self, job: NewJob) -> InsertResult | None:
        """Return the result for a job whose id or key another job has; None if all are free."""
        if job.id is not None and job.id in self._states:
            if self._rules.on_conflict != "ignore":
                raise DuplicateJob(f"job id {job.id} is taken", holder=job.id)
            return InsertResult(id=job.id, is_new=False, state=self._states[job.id])
        if job.id is not None and job.id in self._busy:
            raise StoreBusy(f"job id {job.id} is taken in an open transaction: {RETRY_HINT}")
        for key in _keys_of(job):
            holder = self._holders.get(key)
            if holder is not None:
                return self._key_conflict(key, holder)
        for key in _keys_of(job) if self._tx.busy_keys else ():
            if key in self._tx.busy_keys:
                raise StoreBusy(busy_key_reason(key))
        return None

    def _key_conflict(self, key: JobKey, holder: JobId) -> InsertResult:
        if self._rules.on_conflict == "raise":
            raise DuplicateJob(
                f"{key.kind} key {key.key!r} of queue {key.queue} is held by {holder}", holder=holder
            )
        return InsertResult(id=holder, is_new=False, state=self._states.get(holder))

    def _write(self, job: NewJob, group: InsertGroup, unmet: int = 0) -> JobId:
        job_id = job.id or next(self._ids)
        if job.id is not None:
            self._given_ids.add(job.id)
        # Later jobs of this batch see the keys and ids of this one as taken.
        self._states[job_id] = group.state
        for key in _keys_of(job):
            until = None if key.kind == "unique" else self._tx.now + job.idempotency_ttl_ms
            self._holders[key] = job_id
            self._taken_keys.append((key, job_id, until))
        if group.state is JobState.PENDING and job.queue in self._room:
            self._room[job.queue] -= 1
        if self._seqs is None:
            self._seqs = iter(self._seq_query.fetchall())
        (seq,) = next(self._seqs)
        group.ids.append(job_id)
        group.seqs.append(seq)
        group.options.append(new_options_text(job))
        group.unique_keys.append(job.unique_key)
        group.payloads.append(job.payload)
        group.dependants.append(0)
        group.unmet.append(unmet)
        group.size += len(job.payload)
        if self._edges.is_used:
            self._group_positions[job_id] = group, len(group.ids) - 1
        return job_id

    def flush(self) -> None:
        """Store the accepted jobs."""
        tx = self._tx
        if not tx.take_keys(self._taken_keys):
            raise RetryTransaction
        groups = [group for group in self._groups if group.ids]
        # Not before, since a refused job leaves no queue behind. In sorted order: two inserts that create the
        # same two queues in different orders would deadlock.
        for name in sorted({group.job.queue for group in groups}):
            tx.get_or_create_queue(name)
        if self._given_ids and self._rules.is_caller_tx:
            tx.run("ids_lock", {"ids": sorted(self._given_ids)})
        with tx.short_lock_timeout():
            for group in groups:
                tx.run("insert", self._values(group))
        if self._given_ids:
            self._check_given_ids()
        for group in groups:
            tx.count(group.job.queue, group.state, len(group.ids))
            tx.has_new_jobs = True
        mark_pending(
            tx,
            [
                (group.job.queue, group.job.limit_keys.get(FAIRNESS))
                for group in groups
                if group.state is JobState.PENDING
            ],
        )
        self._edges.flush()
        self._sequences.flush()
        self._save_rate_buckets()

    def _save_rate_buckets(self) -> None:
        """Store the changed token buckets, under the locks of their queues.

        A caller transaction takes no tokens: every other insert would have to wait for its end.
        """
        changed = self._rate_limiter.changed_buckets if self._rate_limiter else {}
        if changed and not self._rules.is_caller_tx:
            token_parts, refill_times = zip(*changed.values(), strict=True)
            self._tx.run(
                "rate_buckets_save",
                {
                    "scopes": list(changed),
                    "token_parts": list(token_parts),
                    "refilled_at": list(refill_times),
                },
            )

    def _check_given_ids(self) -> None:
        """Check that no other job has the given ids, in any table."""
        given = sorted(self._given_ids)
        reused = ReusedIds(self._tx, given)
        if self._tx.all("final_ids", {"ids": given}):
            raise RetryTransaction
        reused.detach(given)

    def _values(self, group: InsertGroup) -> dict[str, object]:
        """Return the parameters of `insert`.

        A job without a deadline has no rescore time: the age cap scan sets it at half of the cap, for the few
        jobs that still wait. A rescore time for each would cost every insert.
        """
        tx, job = self._tx, group.job
        queue_rank = tx.compute_rank(job.queue, group.due_at, group.priority, 0, job.deadline_at)
        is_pending = group.state is JobState.PENDING
        return {
            "queue": job.queue,
            "task": job.task,
            "priority": group.priority,
            "now": tx.now,
            "due_at": group.due_at,
            "rank": queue_rank.rank,
            "age_capped": queue_rank.age_capped and is_pending,
            "rescore_at": queue_rank.rescore_at if is_pending and job.deadline_at is not None else None,
            "deadline_at": job.deadline_at,
            "expires_at": job.expires_at,
            "state": group.state.value,
            "lane": lane_for_keys(job.limit_keys),
            "ids": group.ids,
            "seqs": group.seqs,
            "options": group.options,
            "unique_keys": group.unique_keys,
            "payloads": group.payloads,
            "dependants": group.dependants,
            "unmet": group.unmet,
        }


def busy_key_reason(key: JobKey) -> str:
    """Return the reason for a key taken by an open caller transaction, with the remedy."""
    return f"{key.kind} key {key.key!r} of queue {key.queue} is taken in an open transaction: {RETRY_HINT}"


def _keys_of(job: NewJob) -> Iterator[JobKey]:
    if job.unique_key is not None:
        yield JobKey(job.queue, "unique", job.unique_key)
    if job.idempotency_key is not None:
        yield JobKey(job.queue, "idempotency", job.idempotency_key)


def _load_bucket(tx: Transaction, scope: str) -> Bucket | None:
    row = tx.one("rate_bucket", {"scope": scope})
    return None if row is None else Bucket(*row)


def insert_all(
    tx: Transaction, jobs: Sequence[NewJob], rules: InsertRules, *, atomic: bool
) -> list[InsertResult]:
    """Accept jobs in order; the first error ends an atomic insert, and is a result in another."""
    batch = InsertBatch(tx, jobs, rules, atomic=atomic)
    results = batch.results
    for job in jobs:
        try:
            results.append(batch.add(job))
        except ForebayError as error:
            if atomic:
                raise
            results.append(InsertResult(id=None, is_new=False, error=error))
    batch.flush()
    return results


def insert_follow_ups(tx: Transaction, worker: WorkerId, settlement: Settlement, queue: QueueName) -> None:
    """Insert the follow-ups of a task, in the transaction that settles it."""
    parent = settlement.job_id
    jobs = [
        job if job.parent_id is not None else replace(job, parent_id=parent) for job in settlement.follow_ups
    ]
    try:
        results = insert_all(
            tx, jobs, InsertRules(is_follow_up=True, is_caller_tx=tx.is_caller_tx), atomic=True
        )
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
