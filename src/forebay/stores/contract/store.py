"""Store protocol: the write side of the store contract.

Rules for every method of `Store`:

- One call is one transaction: it happens completely or not at all. A call that raises `StoreUnavailable` may
  have happened if the answer was lost; calls that raise any other error have changed nothing. `StoreBusy`
  means that another transaction, mostly a caller's own, holds a key, an id or a job that the call needs.
- Every time is the store's own clock; callers pass delays.
- Every transition is guarded in the statement that makes it: by the state of the job and, for lease holders,
  by job id, attempt and worker id. A refused write is reported, never done in part.
- Each end, move or deletion of a job updates the counts by queue and state, and releases only keys that name
  this very job.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from forebay.domain.job import Job, JobId, NewJob, QueueName, WorkerId
from forebay.domain.job_history import Event
from forebay.domain.job_update import JobUpdate
from forebay.domain.lease import Lease
from forebay.domain.progress import ProgressUpdate
from forebay.domain.settlement import Settlement
from forebay.stores.contract.audit_log import AuditLogStore
from forebay.stores.contract.claims_and_results import (
    BATCH,
    ActionResult,
    InsertResult,
    LeaseStatus,
    OnConflict,
    QueueClaim,
    RenewResult,
    SettleAndClaimResult,
)
from forebay.stores.contract.clock_readings import ClockReadingStore
from forebay.stores.contract.concurrency_and_rate_limits import LimitStore
from forebay.stores.contract.documents import DocumentStore
from forebay.stores.contract.job_import_and_export import JobImportStore
from forebay.stores.contract.metrics import MetricStore
from forebay.stores.contract.queues import QueueStore
from forebay.stores.contract.schedules import ScheduleStore
from forebay.stores.contract.workers_and_commands import WorkerStore


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
    """Write side of a store. `insert`, `settle_and_claim` and `renew` are the hot path; the rest is
    administration.

    The base classes hold queues, workers, schedules, limits, documents, the audit log, metrics, job import
    and clock readings. Events of operators' actions carry their `changes` (see `domain.changes`).
    """

    def insert(
        self,
        jobs: Sequence[NewJob],
        *,
        on_conflict: OnConflict = "return",
        atomic: bool = True,
        create_queues: bool = True,
    ) -> list[InsertResult]:
        """Insert jobs and return one result each, in the order given. An empty batch does nothing.

        A job is `scheduled` if its `delay_ms` or `run_at` lies ahead of the store's clock, else `pending`. An
        unknown queue is created with default settings, or refused with QueueNotFound.

        These refuse the whole batch with an error:

        - a queue that is draining or dropped (QueueClosed)
        - pending jobs beyond the queue's `max_length` (QueueFull; scheduled jobs do not count)
        - more new jobs than a rate of the queue has tokens for (RateLimited)
        - a priority outside the queue's range (InvalidJob)
        - an `id` that is taken (DuplicateJob)

        With `atomic=False` the refused jobs carry the error in their results and the other jobs are stored.

        Keys belong to a queue. A taken `unique_key` or unexpired `idempotency_key` is a result, not an error:
        the result names the holder and is not new. That holds for two jobs of one batch, too.
        `on_conflict="raise"` makes it a DuplicateJob; "ignore" accepts a taken id like a taken key. An
        `idempotency_key` is held for its time, even if its job is gone: then the result's `state` is None.

        A job with parents that have not all ended is `blocked`: no claim finds it, and it does not count for
        `max_length`. Completed parents count as met; for a dead or cancelled one the edge's `on_failure`
        applies at once. Jobs of one batch stand after the parents that they name by index. If such a parent
        was not new because its key is taken, the holder is the parent. An unknown parent refuses the job
        (InvalidJob), unless it has `allow_missing` and that id is older than the queue's retention: then the
        edge is met. In a caller's own transaction an engine may leave the check of parents to `promote`.
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
        """Store progress, settle attempts, then claim jobs for the free slots (`room`), in one transaction.

        Progress is stored only while the job is running with exactly its attempt under this worker. Other
        updates are returned in `refused_updates` and leave nothing. Progress replaces the progress before,
        with the store's time. A job keeps its last 200 log lines. A step that is stored stays as it was;
        after 1,000 no more are stored. Progress stays with the job until it is pruned or deleted, through
        retries and a revive.

        A settlement is valid only while the job is running with exactly its attempt under this worker; it is
        then `settled`. It is `repeated` if this worker has settled this very attempt in the same way before
        (see `is_same_end`). That is known while no later attempt has begun, or if that end left a row in the
        history. Otherwise, and where it contradicts an earlier end, it is `refused`, which leaves a REFUSED
        event on the job. Final jobs move from the live jobs to the finished or the dead ones, and their
        unique key is released. Jobs that go back to waiting keep `ready_at`; with a stored request to cancel
        they are cancelled instead. A failed, discarded or lost attempt gets a row in the history, and its
        error joins the last ten on the job. Follow-ups are inserted regardless of the queue's length or
        state; a taken unique or idempotency key drops one, with a FOLLOW_UP_SKIPPED event on its parent. A
        value that the engine cannot store raises StoreRefused and rolls back all.

        Claims are served in their order until `room` is full. Before a claim, up to 1,000 due jobs of that
        queue become pending, and waiting jobs past `expires_at` are cancelled with reason "expired". A
        staggered queue promotes one batch, and then none until its maintenance task is due again. A claim
        takes pending jobs by effective priority (see `domain.rank`). It sets attempt + 1, this worker, and a
        lease. The lease time is that of the claim, else of the job, else of the queue. Paused and dropped
        queues give no jobs. A job with `unique_until` STARTED releases its key here.

        A job is parked if the claim does not accept the lane of its task: it moves to that lane, outside the
        queue's main order, with a PARKED event. A claim parks at most `max_parked` jobs and ends with the
        next one. Jobs in lanes that the claim accepts are claimed together with the main order, by effective
        priority; a claim for any job reads up to 100 lanes at a time. A settlement with a `lane` parks a job
        that goes back to pending, with a PARKED event.

        Jobs with a fairness key wait in its lane and are claimed by virtual time (see `domain.fairness`). The
        next of them competes with the main order by effective priority.

        Limits are counted in the claim's own transaction: a claim takes no more than each limit of its
        queue's scopes leaves (see `Limit`). Only leases that have not ended count. If a rate has cut
        a claim short, `next_due_ms` is the wait until it has a token. A job at the limit of its task or of
        one of its keys is parked in the lane of that limit, without an event; at most `max_parked` in a
        claim. A released slot, or the next token, makes the next claim of that queue unpark as many as may
        run. A claim that ends because it has parked so many sets `next_due_ms` to 0: the next one continues.

        `known` lists every lease that the worker knows of; its other leases are returned as `recovered`.

        The transaction that ends a job with dependants adds the end to the dependency outbox, here and in
        every other call (see `domain.dependencies`). Some hundred edges are resolved before the call returns;
        later calls and `promote` resolve the rest. Jobs that this very call has unblocked are claimed after
        the older ones, if there is room. A child whose last edge is met becomes pending, or scheduled if it
        is not due yet, with a new `ready_at`. One that ends because of a parent gets a PARENT_FAILED event.
        """
        ...

    def lease_status(self, worker: WorkerId, leases: Sequence[Lease]) -> list[LeaseStatus]:
        """Return the status of leases that were settled in a caller's own transaction, in the order given:
        committed, rolled back or still open. Waits for no transaction, except on engines with one writer.
        """
        ...

    def renew(self, worker: WorkerId, leases: Sequence[Lease], lease_ms: int | None = None) -> RenewResult:
        """Extend leases to now + `lease_ms` (or the job's, or the queue's), never beyond `extension_ms` after
        the start of the attempt. The end never moves back. Refused leases leave no event.
        """
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
        """Take over up to `limit` running jobs whose lease has ended (expiry <= now) or whose worker is known
        to be dead: to the engine, or to the caller, which names it in `dead`.

        Jobs of the sweeper itself are taken over only when their lease has ended. `only_dead` leaves leases
        that have merely ended to their holders for now. `ended_by` does the same for leases that end later
        than this time of the store.

        The takeover is a lease of the sweeper on the same attempt: later writes of the old holder are
        refused, and a sweeper that dies is swept in turn. Each leaves a SWEPT event that names the old
        holder, as the attempt's row in the history will. The caller passes each job through `decide` as Lost
        and settles it.
        """
        ...

    def promote(self, limit: int = BATCH) -> int:
        """Make up to `limit` due scheduled and retrying jobs pending, earliest first, with new ranks. Cancel
        waiting jobs past `expires_at`, and propagate ends from the dependency outbox. Return how many jobs
        moved, and at least `limit` while the outbox has more.
        """
        ...

    def rescore(self, limit: int = BATCH) -> int:
        """Compute new ranks for up to `limit` waiting jobs: those whose `rescore_at` has come, and those of
        queues with changed scoring. Return how many were examined; 0 means that nothing is left.
        """
        ...

    def prune(self, limit: int = BATCH) -> int:
        """Remove up to `limit` final jobs past their queue's retention, with their history and progress.
        Write a line to the archive first where the queue asks for it.

        Then remove old archive lines, expired idempotency keys, events and audit log lines after 90 days, and
        commands an hour after they expired. Do the engine's own housekeeping. Return how many jobs were
        removed.
        """
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
        """Cancel waiting jobs, store a request on running ones (`applied`, still `running`), and refuse final
        ones.

        With `force` a running job goes to the dead letters at once and loses its lease. Leaves a CANCEL or
        FORCE_CANCELLED event. With `dependants` all jobs that depend on these, directly or not, are
        cancelled, whatever `on_failure` their edges have.
        """
        ...

    def update_job(self, job_id: JobId, change: JobUpdate, *, actor: str = "") -> ActionResult:
        """Change a waiting job (`metadata` also of a running one), completely or not at all.

        A new priority gives a new rank; one outside the queue's range raises InvalidJob. `delay_ms` 0 makes a
        scheduled or retrying job pending; a longer one moves its `run_at` and keeps its state. A job that was
        never claimed takes that time as its `ready_at`.

        With another `queue` the job waits there, by that queue's settings, with its `ready_at` and seq. It
        counts as removed here and as new there, and takes its unique key along, but not its idempotency key.
        It stays where it is if the key is taken there, or if that queue is draining, dropped or, for a
        pending job, full. The result has the reason. If its priority is outside the range there, InvalidJob
        is raised unless another one is given. An unknown queue is created. Leaves an UPDATED event.
        """
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
        another one. They get a new `ready_at`, keep their seq, and lose a request to cancel.

        `attempt` goes on growing; `reset` sets failures and crashes to 0. The unique key is taken again. If
        another job holds it, the job stays where it is and the reason names the holder. A dropped or draining
        target queue refuses. Leaves a REVIVED event.

        A job that depends on others is blocked again while one of them has not ended. Failed parents block it
        no more: the caller wants it to run without them. Children that are held because of a revived job wait
        for its next end; `dependants` also revives those that ended because of it.

        With `ended_before` a job that has ended at that time or later stays where it is. A caller that passes
        the time at which it began revives no job twice, however often it repeats the call.
        """
        ...

    def delete(self, ids: Sequence[JobId], *, actor: str = "") -> list[ActionResult]:
        """Remove jobs that are not running, with their unique key, their history and the edges to their
        parents. `state` is None after it.

        Leaves a DELETED event in the audit log, which is no part of the job's history, and keeps all its
        lines in that log. Children of a job that had not completed end as if it had been cancelled, and so do
        those that are held because of it.
        """
        ...

    def acquire_maintenance(self, name: str, every_ms: int) -> bool:
        """Return whether the caller shall run this maintenance task now: true for one caller each `every_ms`.

        Maintenance tasks are safe to repeat; this only spaces them out. A clock that was set back does not
        delay a task, and with `every_ms` 0 every caller acquires it.
        """
        ...

    def record_events(self, events: Sequence[Event]) -> None:
        """Add events to the history, and actions of operators to the audit log. A job has at most 100 events;
        after that one EVENTS_OMITTED event counts the rest. The audit log has no such bound.
        """
        ...

    def migrate(self) -> int:
        """Bring the schema up to date and return its number. Safe when several programs do it at once."""
        ...

    def close(self) -> None:
        """Close the handle; closing twice is allowed."""
        ...
