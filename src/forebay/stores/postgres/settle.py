"""Settle attempts: end their leases and move their jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import psycopg

from forebay.domain.job import JobId, PastError, QueueName, WorkerId
from forebay.domain.job_history import MAX_STORED_ERRORS, Event, EventKind, truncate_error
from forebay.domain.job_states import WAITING, JobState, check_transition
from forebay.domain.lane import park_detail
from forebay.domain.lease import Lease
from forebay.domain.rank import QueueRank
from forebay.domain.settlement import OutcomeKind, Settlement, TokenCharge, is_ready_early, is_same_end
from forebay.stores.contract.claims_and_results import LeaseRefusal
from forebay.stores.postgres.connection import RetryTransaction
from forebay.stores.postgres.insert import insert_follow_ups
from forebay.stores.postgres.rows import options_text_unstarted
from forebay.stores.postgres.transaction import Transaction
from forebay.stores.shared.rows import STATES, Row, errors_from_text, json_text

_COMPLETED: Final = JobState.COMPLETED  # the attribute of the enum takes 0.1 us for each job


class LockedLease(NamedTuple):
    """Lease that this transaction has locked, with the columns of the job that a settlement needs."""

    id: JobId
    attempt: int
    worker: WorkerId
    started_at: int
    swept_from: WorkerId | None
    cancel_reason: str | None
    queue: QueueName
    errors: str | None
    ready_at: int
    priority: int
    deadline_at: int | None
    rank: int
    age_capped: bool


class SettlementBatch:
    """Settlements of one call, in their order.

    Consecutive successes are stored by one statement; any other settlement is stored by itself, after them.
    """

    def __init__(self, tx: Transaction, worker: WorkerId, leases: dict[JobId, LockedLease] | None) -> None:
        self._tx = tx
        self._worker = worker
        self._is_locked = leases is not None
        self._leases = leases or {}
        self._options: dict[JobId, str | None] = {}  # of jobs with an unstarted attempt
        self._gathered: dict[JobId, Settlement] = {}
        self._sent: list[tuple[dict[JobId, Settlement], psycopg.Cursor[Row]]] = []
        self.settled: list[JobId] = []
        self.charges: list[TokenCharge] = []  # of the settled ones: a refused one charges nothing
        self.queues: set[QueueName] = set()  # of settlements that were no simple successes
        self.repeated: list[JobId] = []
        self.refused: list[LeaseRefusal] = []

    def read_options(self, settlements: Sequence[Settlement]) -> None:
        """Load the options that `count_unstarted` will store again, in one round trip."""
        ids = [end.job_id for end in settlements if end.unstarted]
        if ids:
            self._options = dict(self._tx.all("options_of", {"ids": ids}))

    def add(self, settlement: Settlement) -> None:
        if is_simple_success(settlement) and settlement.job_id not in self._gathered:
            self._gathered[settlement.job_id] = settlement
            return
        self.send()
        self.collect()
        self._settle(settlement)

    def send(self) -> None:
        """Send the collected successes, without waiting for the result."""
        if self._gathered:
            gathered, self._gathered = self._gathered, {}
            self._sent.append((gathered, complete(self._tx, self._worker, gathered)))

    def collect(self) -> None:
        """Fetch the results; a success whose lease was not found is settled by itself."""
        sent, self._sent = self._sent, []
        for gathered, answer in sent:
            completed = collect_completed(self._tx, answer.fetchall())
            for job_id, settlement in gathered.items():
                if job_id in completed:
                    self._leases.pop(job_id, None)
                    self._record_settled(settlement)
                else:
                    self._settle(settlement)

    def _settle(self, settlement: Settlement) -> None:
        lease = self._leases.get(settlement.job_id) or self._lock_lease(settlement.job_id)
        if lease is not None and (lease.attempt, lease.worker) == (settlement.attempt, self._worker):
            self._leases.pop(settlement.job_id, None)
            self._end_lease(lease, settlement)
            self.queues.add(lease.queue)
            self._record_settled(settlement)
            return
        refusal = _refuse(self._tx, self._worker, settlement)
        if refusal == "":
            self.repeated.append(settlement.job_id)
        else:
            refused_lease = Lease(settlement.job_id, settlement.attempt)
            self.refused.append(LeaseRefusal(lease=refused_lease, reason=refusal))

    def _record_settled(self, settlement: Settlement) -> None:
        self.settled.append(settlement.job_id)
        if settlement.charge is not None:
            self.charges.append(settlement.charge)

    def _lock_lease(self, job_id: JobId) -> LockedLease | None:
        """Lock the lease of a job that was sent with the successes."""
        return None if self._is_locked else lock_leases(self._tx, [job_id]).get(job_id)

    def _end_lease(self, lease: LockedLease, settlement: Settlement) -> None:
        tx, worker = self._tx, self._worker
        check_transition(JobState.RUNNING, settlement.state)
        errors = _record_error(tx, lease, worker, settlement)
        if settlement.unstarted:
            options = options_text_unstarted(self._options[lease.id], settlement.unstarted)
            tx.run("count_unstarted", {"id": lease.id, "options": options})
        if settlement.state not in WAITING:
            finish(tx, lease, settlement, settlement.state, settlement.reason, errors)
        elif lease.cancel_reason is not None:
            # A cancel was requested while it ran: a retry would run it again all the same.
            finish(tx, lease, settlement, JobState.CANCELLED, lease.cancel_reason, errors)
        else:
            return_to_queue(tx, lease, settlement, errors)
        if settlement.follow_ups:
            insert_follow_ups(tx, worker, settlement, lease.queue)


def is_simple_success(settlement: Settlement) -> bool:
    """Return whether an attempt ended as nearly all do: completed, without follow-ups."""
    return settlement.state is _COMPLETED and not settlement.follow_ups and settlement.error is None


def settle_all(tx: Transaction, worker: WorkerId, settlements: Sequence[Settlement]) -> SettlementBatch:
    """Settle attempts in order; one whose lease is not held any more is refused and stops no other.

    The results are there after `collect`, so that other statements can be sent along. Unless all are simple
    successes, all leases are locked first, in the order of their ids. A lease that is swept or cancelled at
    the same moment is waited for, and read as it is then.
    """
    leases: dict[JobId, LockedLease] | None = None
    if not all(map(is_simple_success, settlements)):
        leases = lock_leases(tx, (settlement.job_id for settlement in settlements))
    batch = SettlementBatch(tx, worker, leases)
    batch.read_options(settlements)
    for settlement in settlements:
        batch.add(settlement)
    batch.send()
    return batch


def lock_leases(tx: Transaction, ids: Iterable[JobId]) -> dict[JobId, LockedLease]:
    """Lock those of these leases that exist, and return them."""
    rows = tx.all("lease_details", {"ids": sorted(set(ids))})
    return {row[0]: LockedLease(*row) for row in rows}


def complete(tx: Transaction, worker: WorkerId, successes: Mapping[JobId, Settlement]) -> psycopg.Cursor[Row]:
    """Send the statement that completes jobs whose lease is held."""
    ends = sorted(successes.values(), key=lambda end: end.job_id)
    values = {
        "ids": [end.job_id for end in ends],
        "tokens": [f"{end.job_id}:{end.attempt}" for end in ends],
        "attempts": [end.attempt for end in ends],
        "failures": [end.failures for end in ends],
        "crashes": [end.crashes for end in ends],
        "reasons": [end.reason for end in ends],
        "results": [end.result for end in ends],
        "worker": worker,
    }
    return tx.run("complete", values)


def collect_completed(tx: Transaction, rows: list[Row]) -> set[JobId]:
    """Apply the result of `complete`; return the jobs that have ended."""
    tx.release_keys((row[0], row[1], row[2]) for row in rows)
    tx.outbox_ids += (rows[0][3] or ()) if rows else ()
    for queue, jobs in Counter(row[1] for row in rows).items():
        tx.count_moved(queue, JobState.RUNNING, JobState.COMPLETED, jobs)
    return {row[0] for row in rows}


def finish(
    tx: Transaction,
    lease: LockedLease,
    settlement: Settlement,
    state: JobState,
    reason: str | None,
    errors: str | None,
) -> None:
    """End a job under a locked lease."""
    if state is JobState.CANCELLED and reason is None:
        reason = "cancelled"
    values = {
        "job_id": lease.id,
        "attempt": lease.attempt,
        "worker": lease.worker,
        "state": state.value,
        "failures": settlement.failures,
        "crashes": settlement.crashes,
        "now": tx.now,
        "reason": reason,
        "result": settlement.result,
        "errors": errors,
    }
    [(queue, unique_key, outbox_ids)] = tx.all("mark_dead" if state is JobState.DEAD else "finish", values)
    tx.outbox_ids += outbox_ids or ()
    tx.release_keys([(lease.id, queue, unique_key)])
    tx.count_moved(queue, JobState.RUNNING, state)


def return_to_queue(tx: Transaction, lease: LockedLease, settlement: Settlement, errors: str | None) -> None:
    """Make a job under a locked lease wait again."""
    rank = QueueRank(lease.age_capped, lease.rank, None)
    if settlement.state is JobState.PENDING:
        rank = tx.compute_rank(
            lease.queue, lease.ready_at, lease.priority, settlement.failures, lease.deadline_at
        )
    values = {
        "job_id": lease.id,
        "attempt": lease.attempt,
        "worker": lease.worker,
        "state": settlement.state.value,
        "failures": settlement.failures,
        "crashes": settlement.crashes,
        "run_at": tx.now if settlement.state is JobState.PENDING else tx.now + settlement.delay_ms,
        "rank": rank.rank,
        "age_capped": rank.age_capped,
        "rescore_at": rank.rescore_at,
        "lane": settlement.lane if settlement.state is JobState.PENDING else None,
        "errors": errors,
        "now": tx.now,
    }
    tx.run("return_to_queue", values)
    if settlement.lane is not None:
        tx.record(
            Event(
                kind=EventKind.PARKED,
                job_id=lease.id,
                queue=lease.queue,
                attempt=lease.attempt,
                actor=lease.worker,
                detail=park_detail(settlement.lane, settlement.reason),
            )
        )
    tx.count_moved(lease.queue, JobState.RUNNING, settlement.state)
    tx.needs_wakeup = True


def _record_error(
    tx: Transaction, lease: LockedLease, worker: WorkerId, settlement: Settlement
) -> str | None:
    """Store the error as a failed attempt; return the last ten errors, for the job's own row."""
    if settlement.error is None:
        return None
    error = truncate_error(settlement.error)
    past = PastError(
        attempt=lease.attempt,
        at=tx.now,
        type=error.type,
        message=error.message,
        traceback=error.traceback,
    )
    values = {
        "job_id": lease.id,
        "attempt": lease.attempt,
        "worker": worker,
        "outcome": settlement.outcome.value,
        "ran_by": lease.swept_from or worker,
        "started_at": lease.started_at,
        "now": tx.now,
        "error": json_text(error),
    }
    tx.run("failed_attempt_add", values)
    return json_text((*errors_from_text(lease.errors), past)[-MAX_STORED_ERRORS:])


def _refuse(tx: Transaction, worker: WorkerId, settlement: Settlement) -> str:
    """Return why a settlement is refused; empty if this worker has settled this attempt so before."""
    row = tx.one("lease_holder", {"job_id": settlement.job_id})
    if row is not None and _is_repeated(tx, row, worker, settlement):
        return ""
    reason = refusal_reason(row, worker, settlement.attempt)
    if not reason:
        # The lease was not held at the write and is held now: retry after that change.
        raise RetryTransaction
    if row is not None:
        tx.record(
            Event(
                kind=EventKind.REFUSED,
                job_id=settlement.job_id,
                queue=row[0],
                attempt=settlement.attempt,
                actor=worker,
                detail=f"{settlement.outcome}: {reason}",
            )
        )
    return reason


def _is_repeated(tx: Transaction, row: Row, worker: WorkerId, settlement: Settlement) -> bool:
    """Return whether this worker has already settled this attempt so, and only the response was lost."""
    _, stored, last, holder, run_at, started_at, updated_at = row
    state, attempt = STATES[stored], settlement.attempt
    is_newest = (last, holder) == (attempt, worker) and state is not JobState.RUNNING
    token = {"job_id": settlement.job_id, "attempt": attempt, "worker": worker}
    # Nearly always a success is repeated, which has no failed attempt.
    failed = None if is_newest and state is JobState.COMPLETED else tx.one("failed_attempt", token)
    recorded = None if failed is None else OutcomeKind(failed[0])
    is_early = is_ready_early(settlement, run_at, started_at, updated_at)
    return is_same_end(settlement.outcome, recorded, state if is_newest else None, is_early=is_early)


def find_refusal(tx: Transaction, worker: WorkerId, lease: Lease) -> str:
    """Return why a worker does not hold a lease; empty if it does."""
    return refusal_reason(tx.one("lease_holder", {"job_id": lease.job_id}), worker, lease.attempt)


def refusal_reason(row: Row | None, worker: WorkerId, attempt: int) -> str:
    if row is None:
        return "gone"
    _, state, last, holder, *_ = row
    if last != attempt:
        return "other attempt"
    if STATES[state] is not JobState.RUNNING:
        return "other state"
    return "" if holder == worker else "other worker"
