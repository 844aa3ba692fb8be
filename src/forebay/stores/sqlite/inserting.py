"""Accepting jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from forebay.domain.history import Event, EventKind
from forebay.domain.job import JobId, NewJob, QueueName, WorkerId
from forebay.domain.lifecycle import JobState
from forebay.domain.queue import Queue, QueueState
from forebay.domain.rank import Place
from forebay.domain.settlement import Settlement
from forebay.errors import (
    DuplicateJob,
    ForebayError,
    InvalidJob,
    QueueClosed,
    QueueFull,
    QueueNotFound,
    StoreRefused,
)
from forebay.stores.ids import id_with_seq
from forebay.stores.protocol import OnConflict, Receipt
from forebay.stores.sqlite.rows import new_options_text
from forebay.stores.sqlite.transaction import Transaction

_CLOSED: Final = (QueueState.DRAINING, QueueState.DROPPED)
COLUMNS: Final = 19


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What an insert may do. Follow-ups are accepted work: no length and no closed door holds them up."""

    on_conflict: OnConflict = "return"
    create_queues: bool = True
    is_follow_up: bool = False


class Desk:
    """What an insert has to know about one queue, looked up once for all its jobs."""

    __slots__ = ("highest", "is_new", "limit", "lowest", "places", "queue", "usual")

    def __init__(self, queue: Queue, *, is_new: bool) -> None:
        settings = queue.settings
        self.queue = queue
        self.is_new = is_new
        self.usual = settings.default_priority
        self.lowest = settings.min_priority
        self.highest = settings.max_priority
        self.limit = settings.max_length
        self.places: dict[tuple[int, int], Place] = {}


class Intake:
    """The jobs of one insert. Their rows are gathered and written by few statements."""

    def __init__(self, tx: Transaction, new_id: Callable[[], JobId] | None, rules: Rules) -> None:
        self._tx = tx
        self._new_id = new_id
        self._rules = rules
        self._values: list[object] = []
        self._desks: dict[QueueName, Desk] = {}

    def add(self, job: NewJob) -> Receipt:
        """Accept one job, or raise why not."""
        desk = self._desks.get(job.queue) or self._opened(job.queue)
        priority = desk.usual if job.priority is None else job.priority
        if not desk.lowest <= priority <= desk.highest:
            raise _out_of_range(priority, desk)
        if job.id is not None or job.unique_key is not None or job.once_key is not None:
            taken = self._taken(job)
            if taken is not None:
                return taken
        now = self._tx.now
        due_at = max(now, now + job.delay_ms if job.run_at is None else job.run_at)
        state = JobState.PENDING if due_at == now else JobState.SCHEDULED
        if desk.limit is not None:
            self._check_length(desk.queue, desk.limit, state)
        return Receipt(id=self._write(job, desk, priority, due_at, state), is_new=True, state=state)

    def flush(self) -> None:
        """Write what has been gathered, many rows by one statement."""
        values, width = self._values, COLUMNS
        start = 0
        for rows, statement in self._tx.insert_statements:
            step = rows * width
            while len(values) - start >= step:
                self._tx.run_text(statement, values[start : start + step])
                start += step
        values.clear()

    def _opened(self, name: QueueName) -> Desk:
        queue = self._tx.queue(name)
        is_new = queue is None
        if queue is None:
            if not self._rules.create_queues:
                raise QueueNotFound(f"there is no queue {name}; create it first")
            queue = self._tx.fresh_queue(name)
        if queue.state in _CLOSED and not self._rules.is_follow_up:
            raise QueueClosed(f"queue {name} is {queue.state} and takes no new jobs")
        desk = self._desks[name] = Desk(queue, is_new=is_new)
        return desk

    def _check_length(self, queue: Queue, limit: int, state: JobState) -> None:
        if state is not JobState.PENDING or self._rules.is_follow_up:
            return
        self.flush()
        self._tx.count_new()
        if self._tx.counted(queue.name, JobState.PENDING) >= limit:
            raise QueueFull(
                f"queue {queue.name} is full: {limit} pending jobs are allowed", queue=queue.name, limit=limit
            )

    def _taken(self, job: NewJob) -> Receipt | None:
        """The answer for a job whose id or key somebody else has."""
        self.flush()  # jobs of this very batch count too
        if job.id is not None:
            found = self._tx.find(job.id)
            if found is not None:
                return self._id_taken(job.id, found[1])
        for kind, key in (("unique", job.unique_key), ("once", job.once_key)):
            holder = None if key is None else self._tx.key_holder(job.queue, kind, key)
            if holder is not None:
                return self._key_taken(job, kind, holder)
        return None

    def _id_taken(self, job_id: JobId, state: JobState) -> Receipt:
        if self._rules.on_conflict != "ignore":
            raise DuplicateJob(f"job id {job_id} is taken", holder=job_id)
        return Receipt(id=job_id, is_new=False, state=state)

    def _key_taken(self, job: NewJob, kind: str, holder: JobId) -> Receipt:
        if self._rules.on_conflict == "raise":
            key = job.unique_key if kind == "unique" else job.once_key
            raise DuplicateJob(f"{kind} key {key!r} of queue {job.queue} is held by {holder}", holder=holder)
        found = self._tx.find(holder)
        return Receipt(id=holder, is_new=False, state=None if found is None else found[1])

    def _write(self, job: NewJob, desk: Desk, priority: int, due_at: int, state: JobState) -> JobId:
        tx = self._tx
        if desk.is_new:
            # Written only with a job: a refused one leaves no queue behind.
            tx.save_queue(desk.queue)
            desk.is_new = False
        seq = tx.next_seq()
        job_id = job.id or (self._new_id() if self._new_id else id_with_seq(seq, tx.noise))
        if job.unique_key is not None:
            tx.take_key(job.queue, "unique", job.unique_key, job_id, None)
        if job.once_key is not None:
            tx.take_key(job.queue, "once", job.once_key, job_id, tx.now + job.once_ms)
        where = self._place(job, desk, priority, due_at)
        self._values += (
            seq, job_id, job.id is not None or self._new_id is not None, job.queue, job.task, state.value,
            priority, new_options_text(job), tx.now, tx.now, due_at, due_at, where.rank, where.capped,
            where.rescore_at, job.deadline_at, job.expires_at, job.unique_key, job.payload,
        )  # fmt: skip
        tx.has_news = True
        tx.has_new_jobs = True
        return job_id

    def _place(self, job: NewJob, desk: Desk, priority: int, due_at: int) -> Place:
        """Where the job stands; most jobs of a batch share their place.

        Without a deadline there is nothing to rescore soon: `rescore` comes by at half the cap's time and
        gives the few jobs that still wait their entry. An entry for each would cost every insert a page.
        """
        if job.deadline_at is not None:
            where = self._tx.place(job.queue, due_at, priority, 0, job.deadline_at)
            return where if due_at == self._tx.now else where._replace(rescore_at=None)
        where_else = desk.places.get((priority, due_at))
        if where_else is None:
            where_else = self._tx.place(job.queue, due_at, priority, 0, job.deadline_at)._replace(
                rescore_at=None
            )
            desk.places[priority, due_at] = where_else
        return where_else


def _out_of_range(priority: int, desk: Desk) -> InvalidJob:
    span = f"{desk.lowest} to {desk.highest}"
    return InvalidJob(
        f"priority {priority} is outside the range of queue {desk.queue.name}: {span}", field="priority"
    )


def insert_all(
    tx: Transaction, new_id: Callable[[], JobId] | None, jobs: Sequence[NewJob], rules: Rules, *, atomic: bool
) -> list[Receipt]:
    """Accept jobs in order; the first error ends an atomic insert and is noted by another."""
    intake = Intake(tx, new_id, rules)
    receipts = []
    for job in jobs:
        try:
            receipts.append(intake.add(job))
        except ForebayError as error:
            if atomic:
                raise
            receipts.append(Receipt(id=None, is_new=False, error=error))
    intake.flush()
    tx.leave_uncounted(len(receipts))
    return receipts


def insert_follow_ups(
    tx: Transaction,
    new_id: Callable[[], JobId] | None,
    worker: WorkerId,
    settlement: Settlement,
    queue: QueueName,
) -> None:
    """The new jobs that a task handed back, in the transaction that settles it."""
    parent = settlement.job_id
    jobs = [
        job if job.parent_id is not None else msgspec.structs.replace(job, parent_id=parent)
        for job in settlement.follow_ups
    ]
    try:
        receipts = insert_all(tx, new_id, jobs, Rules(is_follow_up=True), atomic=True)
    except (InvalidJob, DuplicateJob) as exc:
        raise StoreRefused(f"a follow-up of job {parent} cannot be stored: {exc}") from exc
    for job, receipt in zip(jobs, receipts, strict=True):
        if not receipt.is_new:
            tx.record(
                Event(
                    kind=EventKind.UNFOLLOWED,
                    job_id=parent,
                    queue=queue,
                    attempt=settlement.attempt,
                    actor=worker,
                    detail=f"{job.task}: key taken by {receipt.id}",
                )
            )
