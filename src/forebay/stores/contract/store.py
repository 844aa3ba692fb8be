"""The seam between Forebay and a storage engine: the whole contract, written once.

An `Engine` is an address. It opens handles: a `Store` to write, a `Reader` to look, `Wakeups` to listen.
A handle is blocking, cheap to open and used by one thread at a time. Engines know nothing of tasks,
retries or policies; the suite in `tests/stores/contract` speaks for this page.

Rules that hold for every method of `Store`:

- One call is one transaction: it happens whole or not at all. A call that raises `StoreUnavailable` may
  have happened if the answer was lost; all others that raise have changed nothing. Nor has one that
  raises `StoreBusy`: another transaction, mostly a caller's own, holds a key, an id or a job that it needs.
- Every time is the store's own clock; callers speak in delays.
- Every transition is guarded in the statement that makes it, by the state the job must be in and, for
  lease holders, by job id, attempt and worker id. What the guard refuses is reported, never half done.
- Whatever ends, moves or deletes a job keeps the counts by queue and state right, and frees only keys
  that name this very job.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from forebay.domain.history import Event
from forebay.domain.job import Job, JobId, JobUpdate, NewJob, QueueName, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.progress import ProgressUpdate
from forebay.domain.settlement import Settlement
from forebay.stores.contract.audit_log import AuditLogStore
from forebay.stores.contract.clock_readings import ClockReadingStore
from forebay.stores.contract.documents import DocumentStore
from forebay.stores.contract.job_import import JobImportStore
from forebay.stores.contract.limits import LimitStore
from forebay.stores.contract.metrics import MetricStore
from forebay.stores.contract.queues import QueueStore
from forebay.stores.contract.schedules import ScheduleStore
from forebay.stores.contract.values import (
    BATCH,
    ActionResult,
    InsertResult,
    LeaseStatus,
    OnConflict,
    QueueClaim,
    RenewResult,
    SettleAndClaimResult,
)
from forebay.stores.contract.workers import WorkerStore


class Store(
    QueueStore,
    WorkerStore,
    ScheduleStore,
    LimitStore,
    DocumentStore,
    AuditLogStore,
    MetricStore,
    JobImportStore,
    ClockReadingStore,
    Protocol,
):
    """The write side. The hot path is `insert`, `exchange` and `renew`; the rest is administration.
    Schedules, limits, documents, the audit log, metrics and moving have pages of their own in
    `forebay.stores.shared.schedules`, `limiting`, `documents`, `audit_log`, `metrics` and `moving`.

    Events of what an operator does carry its `changes` (see `domain.changes`)."""

    def insert(
        self,
        jobs: Sequence[NewJob],
        *,
        on_conflict: OnConflict = "return",
        atomic: bool = True,
        create_queues: bool = True,
    ) -> list[InsertResult]:
        """Accept jobs; one receipt each, in the order asked. An empty batch does nothing.

        A job is `scheduled` if its `delay_ms` or `run_at` lies ahead of the store's clock, else `pending`.
        An unknown queue is created with default settings, or refused with QueueNotFound.

        Refused with an error, and nothing of the batch stored: a queue that is draining or dropped
        (QueueClosed), pending jobs beyond the queue's `max_length` (QueueFull; scheduled ones do not count),
        more new jobs than a rate of the queue has tokens for (RateLimited), a priority outside the queue's
        range (InvalidJob), an `id` that is taken (DuplicateJob). With `atomic=False` the refused jobs carry
        the error in their receipts and the others are stored.

        Keys belong to a queue. A taken `unique_key` or unexpired `idempotency_key` is an answer, not an
        error:
        the receipt names the holder and is not new; also for two jobs of one batch. `on_conflict="raise"`
        makes it a DuplicateJob; "ignore" makes a taken id an answer too. A `idempotency_key` is held for its
        time
        whatever becomes of the job, so its holder may be gone: then the receipt's `state` is None.

        A job whose parents have not all ended is `blocked`: in no order, and not counted for `max_length`.
        Parents that have completed count as met; where one is dead or cancelled the edge's `on_failure` is
        applied at once. Jobs of one insert stand after the parents that they name by place; a parent that
        was not new because its key is taken is then the holder. An unknown parent refuses the job
        (InvalidJob), unless it `allow_missing` and that id is older than the queue's retention: then it is
        met. In a caller's own transaction an engine may leave the look at parents to `promote`.
        """
        ...

    def settle_and_claim(
        self,
        worker: WorkerId,
        settlements: Sequence[Settlement] = (),
        claims: Sequence[QueueClaim] = (),
        room: int = 0,
        known: Sequence[Lease] | None = None,
        updates: Sequence[ProgressUpdate] = (),
    ) -> SettleAndClaimResult:
        """Keep notes, settle what has ended, then claim for the room there is, in one transaction.

        A note is kept only while the job is running with exactly its attempt under this worker; else it is
        answered as `unnoted` and leaves nothing. Progress replaces the one before, with the store's time. Of
        log lines a job keeps the last 200. A step that is there already stays as it was; after 1,000 no
        more are kept. Notes stay with the job until it is pruned or deleted, through retries and a revival.

        A settlement is valid only while the job is running with exactly its attempt under this worker. It
        is answered `settled`; `repeated` if this worker has already ended this very attempt in the same way
        and no later one has begun, or the end left a row in the history (see `is_same_end`); else, and where
        it contradicts an earlier end, `refused`, which leaves a REFUSED event on the job. Final jobs leave
        the live ones for the
        finished or the dead, their unique key is freed. Ones that go back to waiting keep `ready_at`; a
        job with a stored wish to be cancelled is cancelled instead of going back. A failed, discarded or
        lost attempt gets a row in the history, and its error joins the last ten on the job. Follow-ups are
        inserted whatever the queue's length or state; a taken unique or once key drops one with an
        UNFOLLOWED event on its parent. A value the engine cannot hold raises StoreRefused and undoes all.

        Claims go through `claims` in order until `room` is full. Before a claim, up to 1,000 due jobs of
        that queue become pending, and waiting jobs past `expires_at` are cancelled with reason "expired". Of
        a staggered queue only so many become pending, and then none until the time of its duty.
        A claim takes pending jobs by lead (see `domain.rank`): attempt + 1, this worker, a lease that ends
        after the want's, the job's or the queue's lease time, in this order of preference. Paused and
        dropped queues give nothing. A job with `unique_until` STARTED frees its key here.

        A job whose task's gate the want may not pass is not claimed: it goes behind that gate, out of the
        queue's order, with a HELD event; at most `most_held` in a claim, which ends with the next one. What
        waits behind gates that the want may pass is claimed together with the queue's own order, by lead; a
        want for any job may look behind 100 gates at a time. A settlement with a `gate`
        puts a job that goes back to pending behind it, with a HELD event.

        Jobs of a share wait behind its gate and are claimed in the turns of shares (see `domain.share`); the
        next of them stands beside the queue's own order by lead.

        Limits are counted here, in the claim's own transaction: a claim takes no more than each limit of its
        queue's scopes leaves (see `domain.limits`). Only leases that have not ended count. A claim that a
        rate has cut short makes `next_due_ms` the wait until it is worth another one. A job at the limit of
        its task or of one of its keys goes behind the gate of that limit, without an event; at most
        `most_held` in a claim. Whoever frees a place there, or the time, makes the next claim of that queue
        bring back as many as may run. A claim that ends because it has put so many aside makes `next_due_ms`
        0: the next one goes on.

        `known` lists every lease the worker knows of; what else it holds is returned as `adopted`.

        The end of a job that others depend on is put on a list in the transaction that ends it, here and
        wherever else jobs end, and the list is worked through: see `domain.workflow`. Some hundred edges are
        settled before the call returns; what is left goes on with the next one and with `promote`. What this
        very call has released is claimed after what was there, if there is room. A child whose last edge is
        met becomes pending, or scheduled if its time is not yet there, with a new `ready_at`; one that ends
        because of a parent gets a PARENT event.
        """
        ...

    def lease_status(self, worker: WorkerId, leases: Sequence[Lease]) -> list[LeaseStatus]:
        """How leases stand that were ended in a caller's own transaction, in the order asked: whether it has
        committed, was rolled back or is still open. Waits for nobody's transaction, except on engines where
        every write does."""
        ...

    def renew(self, worker: WorkerId, leases: Sequence[Lease], lease_ms: int | None = None) -> RenewResult:
        """Push lease ends to now + `lease_ms` (or the job's, or the queue's), never beyond `extension_ms`
        after the start of the attempt. The end never moves back. Refused leases leave no event."""
        ...

    def sweep(
        self,
        sweeper: WorkerId,
        limit: int = BATCH,
        lease_ms: int = 30_000,
        *,
        only_dead: bool = False,
        dead: Collection[WorkerId] = (),
        ended_by: int | None = None,
    ) -> list[Job]:
        """Take over up to `limit` running jobs whose lease has ended (expiry <= now) or whose worker is
        known to be dead: to the engine, or to the caller, who names it in `dead`. Jobs of the sweeper itself
        are taken over only when their lease has ended. With `only_dead` leases that have merely ended are
        left to their holders for now. So are, with `ended_by`, those that end later than this time of the
        store, wherever its clock stands when the call arrives.

        The takeover is a lease of the sweeper on the same attempt: from now on the old holder's writes are
        refused, and a sweeper that dies is swept in turn. Each leaves a SWEPT event that names the old
        holder; the attempt's row in the history will name it too. The caller puts each job through
        `decide` as Lost and settles it.
        """
        ...

    def promote(self, limit: int = BATCH) -> int:
        """Make up to `limit` due scheduled and retrying jobs pending, earliest first, with fresh ranks;
        cancel waiting jobs past `expires_at`; go on with what the ends of jobs mean for those that depend on
        them. Answers how many jobs moved, and at least `limit` while there is more of that."""
        ...

    def rescore(self, limit: int = BATCH) -> int:
        """Rewrite the place of up to `limit` waiting jobs whose `rescore_at` has come, or that wait in a
        queue whose scoring has changed. Answers how many were looked at; 0 means nothing is left."""
        ...

    def prune(self, limit: int = BATCH) -> int:
        """Forget up to `limit` final jobs past their queue's retention with their history and notes, writing
        a line to the archive first where the queue asks for it; then old archive lines, once keys that ran
        out, events and lines of the audit log after 90 days, commands an hour after they expired, and the
        engine's own housekeeping. Answers how many jobs went."""
        ...

    def cancel(
        self,
        ids: Sequence[JobId],
        reason: str = "cancelled",
        *,
        actor: str = "",
        force: bool = False,
        dependants: bool = False,
    ) -> list[ActionResult]:
        """Cancel waiting jobs; store the wish on running ones (`done`, still `running`); refuse final ones.

        With `force` a running job goes to the dead letters at once and its lease is taken away. Leaves a
        CANCEL or FORCED event. With `dependants` all that waits for these jobs is cancelled, and what waits
        for that, whatever the edges say about failure.
        """
        ...

    def update_job(self, job_id: JobId, change: JobUpdate, *, actor: str = "") -> ActionResult:
        """Change a waiting job (`metadata` also of a running one); wholly or not at all.

        A new priority gives a new place; one outside the queue's range raises InvalidJob. `delay_ms` 0 makes
        a scheduled or retrying job pending; a longer one moves its `run_at` and leaves its state; a job that
        has never been claimed takes that time as its `ready_at`.

        With another `queue` it goes on waiting there, by the settings of that one, with its `ready_at` and
        seq; it counts as gone here and as one that came there, and takes its unique key along, its once key
        not. If the key is taken there, or if that queue is draining, dropped or, for a pending job, full, it
        stays where it is, and the reason says why; if its priority is outside the range there, InvalidJob is
        raised unless another is given. A queue that there is not is made. Leaves an AMENDED event."""
        ...

    def revive(
        self,
        ids: Sequence[JobId],
        *,
        queue: QueueName | None = None,
        delay_ms: int = 0,
        reset: bool = True,
        actor: str = "",
        dependants: bool = False,
        ended_before: int | None = None,
    ) -> list[ActionResult]:
        """Put dead and cancelled jobs back to pending (scheduled with a delay), in their own queue or in
        another one, with a new `ready_at`, their old seq and without the wish to be cancelled.

        `attempt` goes on growing; `reset` sets failures and crashes to 0. The unique key is taken again;
        if somebody else has it, the job stays where it is and the reason names the holder. A dropped or
        draining target queue refuses. Leaves a REVIVED event.

        A job that depends on others is blocked again while one of them has not ended; those that have failed
        do not hold it up any more, since somebody wants it to run without them. What is held because of a
        revived job waits for its next end; with `dependants` what has ended because of it is revived too.

        With `ended_before` a job that has ended at that time or later stays where it is: whoever names the
        time at which it began to revive puts no job back twice, however often it asks.
        """
        ...

    def delete(self, ids: Sequence[JobId], *, actor: str = "") -> list[ActionResult]:
        """Remove jobs that are not running, with their unique key, their history and the edges to their
        parents; `state` None after it. Leaves a DELETED event in the audit log, which is no part of the job's
        history, and all lines of that log. Jobs that wait for one that has not completed fare as if it had
        been cancelled, and so do those that are held because of it."""
        ...

    def acquire_maintenance(self, name: str, every_ms: int) -> bool:
        """Whether the caller shall do this duty now: true for one caller each `every_ms`. Duties are safe
        to repeat; this only spaces them out. A clock that was set back does not hold a duty up, and with
        `every_ms` 0 it is always the caller's turn, and the next one's too."""
        ...

    def record_events(self, events: Sequence[Event]) -> None:
        """Add events to the history, and actions of operators to the audit log. A job has at most 100 events;
        after that one MORE event counts the rest. The audit log has no such bound."""
        ...

    def migrate(self) -> int:
        """Bring the schema up to date and answer its number; safe when several programs do it at once."""
        ...

    def close(self) -> None:
        """Let go of the handle; closing twice is fine."""
        ...
