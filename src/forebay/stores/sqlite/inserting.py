"""Accepting jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, cast

import msgspec

from forebay.domain.history import Event, EventKind
from forebay.domain.job import JobId, NewJob, QueueName, WorkerId
from forebay.domain.lifecycle import JobState
from forebay.domain.limits import Bucket
from forebay.domain.pressure import Pace, Turnstile, queue_full, room_after
from forebay.domain.queue import Queue, QueueState
from forebay.domain.settlement import Settlement
from forebay.domain.share import SHARE
from forebay.domain.workflow import EdgeState
from forebay.errors import (
    DuplicateJob,
    ForebayError,
    InvalidJob,
    QueueClosed,
    QueueNotFound,
    StoreRefused,
)
from forebay.stores.following import StillListed
from forebay.stores.pressure import pace_from_row, pace_values
from forebay.stores.protocol import OnConflict, Receipt
from forebay.stores.rows import json_text, new_options_text
from forebay.stores.sqlite.edges import Edges
from forebay.stores.sqlite.sharing import join
from forebay.stores.sqlite.transaction import UNCOUNTED, Transaction

_CLOSED: Final = (QueueState.DRAINING, QueueState.DROPPED)
WIDTH: Final = 5  # values of one row in `insert_many`, after those that a lot shares


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What an insert may do. Follow-ups are accepted work: no length and no closed door holds them up."""

    on_conflict: OnConflict = "return"
    create_queues: bool = True
    is_follow_up: bool = False


class Lot:
    """Jobs of one insert that differ only in id, options, key and payload, and are written together."""

    __slots__ = (
        "due_at", "max_length", "priority", "queue", "rated", "rows", "share", "shared", "state", "uncounted",
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
        self.rated: Queue | None = None  # the queue, if it takes jobs at some rate only
        self.share: str | None = None  # whose jobs these are, if they wait for its turn
        self.shared: tuple[object, ...] = ()  # known with the first row
        self.rows: list[object] = []
        self.uncounted: int = 0  # jobs that were written since the last count
        self.unmet: int = 0  # how many edges block each of them


class Intake:
    """The jobs of one insert. Their rows are gathered and written by few statements."""

    def __init__(
        self, tx: Transaction, new_id: Callable[[], JobId] | None, rules: Rules, together: Sequence[NewJob]
    ) -> None:
        self._tx = tx
        self._together = together  # jobs that are accepted all or not at all
        self.turnstile: Turnstile | None = None
        self._new_id = new_id
        self._rules = rules
        self._lots: dict[tuple[object, ...], Lot] = {}
        self._alike: tuple[object, ...] = ()  # the last job's
        self._lot: Lot
        # Made with the first: it holds on to us, and that would be left to the garbage collector.
        self._edges: Edges | None = None
        self.receipts: list[Receipt] = []  # of the jobs that came before

    def add(self, job: NewJob) -> Receipt:
        """Accept one job, or raise why not."""
        alike = (
            job.queue, job.task, job.priority, job.delay_ms, job.run_at, job.deadline_at, job.expires_at,
            job.id is None, job.limit_keys.get(SHARE) if job.limit_keys else None,
        )  # fmt: skip
        if job.depends_on or job.sequence is not None:
            return self._add_child(job, alike)
        lot = self._lot if alike == self._alike else self._lot_of(alike, job)
        if job.id is not None or job.unique_key is not None or job.once_key is not None:
            taken = self._taken(job)
            if taken is not None:
                return taken
        if lot.max_length is not None:
            self._check_length(job.queue, lot.max_length)
        if lot.rated is not None:
            self._enter(lot.rated, job)
        return Receipt(id=self._write(job, lot), is_new=True, state=lot.state)

    def _add_child(self, job: NewJob, alike: tuple[object, ...]) -> Receipt:
        """Accept a job that waits for others, which may be jobs of this very batch."""
        lot = self._lot if alike == self._alike else self._lot_of(alike, job)
        if job.id is not None or job.unique_key is not None or job.once_key is not None:
            taken = self._taken(job)
            if taken is not None:
                return taken
        queue = self._tx.queue(job.queue) or self._tx.fresh_queue(job.queue)
        edges = self._edges = self._edges or Edges(self._tx, self.flush)
        parents = edges.needed(job, queue, self.receipts)
        is_behind = job.sequence is not None and self._tx.is_after_others(job.sequence)
        rated = lot.rated
        unmet = sum(state is not EdgeState.MET for _, state in parents)
        if is_behind or unmet:
            lot = self._blocked_lot(alike, lot, unmet)
        elif lot.max_length is not None:
            self._check_length(job.queue, lot.max_length)
        if rated is not None:
            self._enter(rated, job)
        job_id = self._write(job, lot)
        edges.add(job_id, job, parents)
        if job.sequence is not None:
            self._tx.join_sequence(job.sequence, job_id)
        return Receipt(id=job_id, is_new=True, state=lot.state)

    def _blocked_lot(self, alike: tuple[object, ...], free: Lot, unmet: int) -> Lot:
        """The lot of jobs that would be in this one if they depended on nothing."""
        alike = (*alike, JobState.BLOCKED, unmet)
        lot = self._lots.get(alike)
        if lot is None:
            lot = self._lots[alike] = Lot(free.queue, free.priority, free.due_at, JobState.BLOCKED, None)
            lot.unmet = unmet
        return lot

    def flush(self) -> None:
        """Write what has been gathered, many rows by one statement."""
        tx = self._tx
        for lot in self._lots.values():
            if lot.rows:
                if len(lot.rows) == WIDTH:
                    tx.run("insert", (*lot.shared, *lot.rows))
                else:
                    tx.run_rows("insert_many", lot.shared, lot.rows, WIDTH)
                if lot.share is not None:
                    join(
                        tx, lot.queue, lot.share, cast(list[int], lot.rows[::WIDTH])
                    )  # which begin with seqs
                lot.uncounted += len(lot.rows) // WIDTH
                lot.rows.clear()
                tx.has_news = tx.has_new_jobs = True
        if self._edges is not None:
            self._edges.flush()

    def keep_rates(self) -> None:
        """Write what the jobs have taken of the rates of their queues."""
        taken = {} if self.turnstile is None else self.turnstile.taken
        for scope, bucket in taken.items():
            self._tx.run("bucket_save", {"scope": scope, "parts": bucket.parts, "at": bucket.at})

    def count_new(self) -> None:
        """Count every job that is not, of this insert or of one before."""
        self._tx.count_new()
        for lot in self._lots.values():
            lot.uncounted = 0

    def count_own(self) -> None:
        """Count the jobs of this insert without a look at them, when all others are counted."""
        for lot in self._lots.values():
            self._tx.count(lot.queue, lot.state, lot.uncounted)
        self._tx.counted_all()

    def _lot_of(self, alike: tuple[object, ...], job: NewJob) -> Lot:
        lot = self._lots.get(alike)
        if lot is None:
            lot = self._lots[alike] = self._new_lot(job)
        self._alike, self._lot = alike, lot
        return lot

    def _new_lot(self, job: NewJob) -> Lot:
        """What holds for all jobs like this one, looked up once."""
        tx, rules = self._tx, self._rules
        queue = tx.queue(job.queue)
        if queue is None:
            if not rules.create_queues:
                raise QueueNotFound(f"there is no queue {job.queue}; create it first")
            queue = tx.fresh_queue(job.queue)
        if queue.state in _CLOSED and not rules.is_follow_up:
            raise QueueClosed(f"queue {queue.name} is {queue.state} and takes no new jobs")
        priority = queue.priority_of(job.priority)
        due_at = max(tx.now, tx.now + job.delay_ms if job.run_at is None else job.run_at)
        state = JobState.SCHEDULED if due_at > tx.now else JobState.PENDING
        is_counted = state is JobState.PENDING and not rules.is_follow_up
        lot = Lot(job.queue, priority, due_at, state, queue.settings.max_length if is_counted else None)
        if queue.settings.has_rates and not rules.is_follow_up:
            lot.rated = queue
        lot.share = job.limit_keys.get(SHARE) if state is JobState.PENDING else None
        return lot

    def _check_length(self, queue: QueueName, limit: int) -> None:
        self.flush()
        self.count_new()
        length = self._tx.counted(queue, JobState.PENDING)
        if length >= limit:
            wait = room_after(
                lambda: self._pace(queue),
                queue,
                self._tx.now,
                length=length,
                limit=limit,
                together=self._together,
            )
            raise queue_full(queue, limit, wait)

    def _enter(self, queue: Queue, job: NewJob) -> None:
        if self.turnstile is None:
            self.turnstile = Turnstile(self._tx.now, self._bucket, self._together)
        self.turnstile.enter(queue, job)

    def _pace(self, queue: str) -> Pace:
        now = self._tx.now
        return pace_from_row(self._tx.one("pace", pace_values(queue, now)), now)

    def _bucket(self, scope: str) -> Bucket | None:
        row = self._tx.one("bucket", {"scope": scope})
        return None if row is None else Bucket(*row)

    def _taken(self, job: NewJob) -> Receipt | None:
        """The answer for a job whose id or key somebody else has."""
        if job.id is not None:
            self.flush()  # jobs of this very batch count too
            found = self._tx.find(job.id)
            if found is not None:
                return self._id_taken(job.id, found[1])
            leave_to_old(self._tx, job.id)
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
        self.flush()  # the holder may be a job of this very batch
        found = self._tx.find(holder)
        return Receipt(id=holder, is_new=False, state=None if found is None else found[1])

    def _write(self, job: NewJob, lot: Lot) -> JobId:
        tx = self._tx
        if not lot.shared:
            lot.shared = self._shared(job, lot)
        seq = tx.next_seq()
        job_id = job.id or (self._new_id() if self._new_id else tx.id_of(seq))
        if job.unique_key is not None:
            tx.take_key(job.queue, "unique", job.unique_key, job_id, None)
        if job.once_key is not None:
            tx.take_key(job.queue, "once", job.once_key, job_id, tx.now + job.once_ms)
        lot.rows += (seq, job_id, new_options_text(job), job.unique_key, job.payload)
        return job_id

    def _shared(self, job: NewJob, lot: Lot) -> tuple[object, ...]:
        """The values that all jobs of a lot have in common.

        Without a deadline there is nothing to rescore soon: `rescore` comes by at half the cap's time and
        gives the few jobs that still wait their entry. An entry for each would cost every insert a page.
        """
        tx = self._tx
        # This also makes a new queue: not before, because a refused job leaves no queue behind.
        where = tx.place(job.queue, lot.due_at, lot.priority, 0, job.deadline_at)
        rescores = job.deadline_at is not None and lot.state is JobState.PENDING
        return (
            int(job.id is not None or self._new_id is not None), job.queue, job.task, lot.state.value,
            lot.priority, tx.now, tx.now, lot.due_at, lot.due_at, where.rank, int(where.capped),
            where.rescore_at if rescores else None, job.deadline_at, job.expires_at, lot.unmet,
        )  # fmt: skip


def leave_to_old(tx: Transaction, job_id: JobId) -> None:
    """A new job gets the id of one that is gone: what led from that one is none of its business."""
    if not tx.has_edges():
        return
    if tx.may_have_aftermaths() and tx.all("aftermaths_among", {"parents": json_text([job_id])}):
        raise StillListed(job_id)
    tx.run("edges_renamed", {"parent": job_id})


def insert_all(
    tx: Transaction, new_id: Callable[[], JobId] | None, jobs: Sequence[NewJob], rules: Rules, *, atomic: bool
) -> list[Receipt]:
    """Accept jobs in order; the first error ends an atomic insert and is noted by another."""
    intake = Intake(tx, new_id, rules, jobs if atomic else ())
    is_large = len(jobs) >= UNCOUNTED
    if is_large:
        intake.count_new()  # so that none but ours are left in the end; to look at each of these takes 0.4 us
    receipts = intake.receipts
    for job in jobs:
        try:
            receipts.append(intake.add(job))
        except StillListed:
            raise  # all of it is done again
        except ForebayError as error:
            if atomic:
                raise
            receipts.append(Receipt(id=None, is_new=False, error=error))
    intake.flush()
    if intake.turnstile is not None:
        intake.keep_rates()
    if is_large:
        intake.count_own()
    else:
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
