"""Settling: what a worker's attempts have come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import psycopg

from forebay.domain.gate import why_held
from forebay.domain.history import ERRORS_KEPT, Event, EventKind, cut
from forebay.domain.job import JobId, PastError, QueueName, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.lifecycle import WAITING, JobState, check_transition
from forebay.domain.rank import Place
from forebay.domain.settlement import Charge, Ending, Settlement, is_ready_early, is_same_end
from forebay.stores.postgres.connection import TryAgain
from forebay.stores.postgres.inserting import insert_follow_ups
from forebay.stores.postgres.rows import options_text_unstarted
from forebay.stores.postgres.transaction import Transaction
from forebay.stores.protocol import Refusal
from forebay.stores.rows import STATES, Row, errors_from_text, json_text

_COMPLETED: Final = JobState.COMPLETED  # a look-up in the enum for each job would take 0.1 us


class Held(NamedTuple):
    """A lease that this transaction has locked, and what settling it has to know about the job."""

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
    capped: bool


class Settling:
    """The settlements of one exchange, in their order.

    Successes that stand beside each other are gathered and written by one statement; whatever else comes
    is written by itself, after them.
    """

    def __init__(self, tx: Transaction, worker: WorkerId, held: dict[JobId, Held] | None) -> None:
        self._tx = tx
        self._worker = worker
        self._is_locked = held is not None
        self._held = held or {}
        self._options: dict[JobId, str | None] = {}  # of jobs with an attempt that did not begin
        self._gathered: dict[JobId, Settlement] = {}
        self._sent: list[tuple[dict[JobId, Settlement], psycopg.Cursor[Row]]] = []
        self.settled: list[JobId] = []
        self.charges: list[Charge] = []  # of these: one that is refused charges nothing
        self.queues: set[QueueName] = set()  # of those that were not plain successes
        self.repeated: list[JobId] = []
        self.refused: list[Refusal] = []

    def read_options(self, settlements: Sequence[Settlement]) -> None:
        """Read what `count_unstarted` will write again, for all of these in one round trip."""
        ids = [end.job_id for end in settlements if end.unstarted]
        if ids:
            self._options = dict(self._tx.all("options_of", {"ids": ids}))

    def add(self, settlement: Settlement) -> None:
        if is_plain(settlement) and settlement.job_id not in self._gathered:
            self._gathered[settlement.job_id] = settlement
            return
        self.send()
        self.look()
        self._settle(settlement)

    def send(self) -> None:
        """End what has been gathered, without waiting for the answer."""
        if self._gathered:
            gathered, self._gathered = self._gathered, {}
            self._sent.append((gathered, complete(self._tx, self._worker, gathered)))

    def look(self) -> None:
        """See what came of it; what the guard has not found is looked at by itself."""
        sent, self._sent = self._sent, []
        for gathered, answer in sent:
            ended = completed(self._tx, answer.fetchall())
            for job_id, settlement in gathered.items():
                if job_id in ended:
                    self._held.pop(job_id, None)
                    self._note_settled(settlement)
                else:
                    self._settle(settlement)

    def _settle(self, settlement: Settlement) -> None:
        held = self._held.get(settlement.job_id) or self._held_now(settlement.job_id)
        if held is not None and (held.attempt, held.worker) == (settlement.attempt, self._worker):
            self._held.pop(settlement.job_id, None)
            self._end(held, settlement)
            self.queues.add(held.queue)
            self._note_settled(settlement)
            return
        refusal = _refuse(self._tx, self._worker, settlement)
        if refusal == "":
            self.repeated.append(settlement.job_id)
        else:
            lease = Lease(settlement.job_id, settlement.attempt)
            self.refused.append(Refusal(lease=lease, reason=refusal))

    def _note_settled(self, settlement: Settlement) -> None:
        self.settled.append(settlement.job_id)
        if settlement.charge is not None:
            self.charges.append(settlement.charge)

    def _held_now(self, job_id: JobId) -> Held | None:
        """The lease of a job that was not locked before, since it seemed to be one of many successes."""
        return None if self._is_locked else lock_leases(self._tx, [job_id]).get(job_id)

    def _end(self, held: Held, settlement: Settlement) -> None:
        tx, worker = self._tx, self._worker
        check_transition(JobState.RUNNING, settlement.state)
        errors = _keep_error(tx, held, worker, settlement)
        if settlement.unstarted:
            options = options_text_unstarted(self._options[held.id], settlement.unstarted)
            tx.run("count_unstarted", {"id": held.id, "options": options})
        if settlement.state not in WAITING:
            finish(tx, held, settlement, settlement.state, settlement.reason, errors)
        elif held.cancel_reason is not None:
            # Somebody asked for it while it ran: going back to wait would run it again against their wish.
            finish(tx, held, settlement, JobState.CANCELLED, held.cancel_reason, errors)
        else:
            put_back(tx, held, settlement, errors)
        if settlement.follow_ups:
            insert_follow_ups(tx, worker, settlement, held.queue)


def is_plain(settlement: Settlement) -> bool:
    """Whether an attempt ended as nearly all do."""
    return settlement.state is _COMPLETED and not settlement.follow_ups and settlement.error is None


def settle_all(tx: Transaction, worker: WorkerId, settlements: Sequence[Settlement]) -> Settling:
    """End leases in order; one that is not held any more is refused and stops no other. The answer is there
    after a `look`, so that what else is asked can be sent along.

    Unless all are plain successes, all leases are locked first, in the order of their ids. A lease that is
    swept or taken away at the same moment is waited for, and seen as it is then.
    """
    held: dict[JobId, Held] | None = None
    if not all(map(is_plain, settlements)):
        held = lock_leases(tx, (settlement.job_id for settlement in settlements))
    settling = Settling(tx, worker, held)
    settling.read_options(settlements)
    for settlement in settlements:
        settling.add(settlement)
    settling.send()
    return settling


def lock_leases(tx: Transaction, ids: Iterable[JobId]) -> dict[JobId, Held]:
    """The leases among these that there are, locked."""
    rows = tx.all("held", {"ids": sorted(set(ids))})
    return {row[0]: Held(*row) for row in rows}


def complete(tx: Transaction, worker: WorkerId, successes: Mapping[JobId, Settlement]) -> psycopg.Cursor[Row]:
    """Finish the jobs among these whose lease is held."""
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


def completed(tx: Transaction, rows: list[Row]) -> set[JobId]:
    """What follows from the answer to `complete`: which jobs have ended."""
    tx.free_keys((row[0], row[1], row[2]) for row in rows)
    tx.listed += (rows[0][3] or ()) if rows else ()
    for queue, jobs in Counter(row[1] for row in rows).items():
        tx.move(queue, JobState.RUNNING, JobState.COMPLETED, jobs)
    return {row[0] for row in rows}


def finish(
    tx: Transaction,
    held: Held,
    settlement: Settlement,
    state: JobState,
    reason: str | None,
    errors: str | None,
) -> None:
    """A job under a locked lease ends."""
    if state is JobState.CANCELLED and reason is None:
        reason = "cancelled"
    values = {
        "job_id": held.id,
        "attempt": held.attempt,
        "worker": held.worker,
        "state": state.value,
        "failures": settlement.failures,
        "crashes": settlement.crashes,
        "now": tx.now,
        "reason": reason,
        "result": settlement.result,
        "errors": errors,
    }
    [(queue, unique_key, listed)] = tx.all("bury" if state is JobState.DEAD else "finish", values)
    tx.listed += listed or ()
    tx.free_keys([(held.id, queue, unique_key)])
    tx.move(queue, JobState.RUNNING, state)


def put_back(tx: Transaction, held: Held, settlement: Settlement, errors: str | None) -> None:
    """A job under a locked lease waits again."""
    where = Place(held.capped, held.rank, None)
    if settlement.state is JobState.PENDING:
        where = tx.place(held.queue, held.ready_at, held.priority, settlement.failures, held.deadline_at)
    values = {
        "job_id": held.id,
        "attempt": held.attempt,
        "worker": held.worker,
        "state": settlement.state.value,
        "failures": settlement.failures,
        "crashes": settlement.crashes,
        "run_at": tx.now if settlement.state is JobState.PENDING else tx.now + settlement.delay_ms,
        "rank": where.rank,
        "capped": where.capped,
        "rescore_at": where.rescore_at,
        "gate": settlement.gate if settlement.state is JobState.PENDING else None,
        "errors": errors,
        "now": tx.now,
    }
    tx.run("put_back", values)
    if settlement.gate is not None:
        tx.record(
            Event(
                kind=EventKind.HELD,
                job_id=held.id,
                queue=held.queue,
                attempt=held.attempt,
                actor=held.worker,
                detail=why_held(settlement.gate, settlement.reason),
            )
        )
    tx.move(held.queue, JobState.RUNNING, settlement.state)
    tx.has_news = True


def _keep_error(tx: Transaction, held: Held, worker: WorkerId, settlement: Settlement) -> str | None:
    """Put the error on a row of its own in the history; answers the last ten, for the job's own row."""
    if settlement.error is None:
        return None
    error = cut(settlement.error)
    past = PastError(
        attempt=held.attempt,
        at=tx.now,
        type=error.type,
        message=error.message,
        traceback=error.traceback,
    )
    values = {
        "job_id": held.id,
        "attempt": held.attempt,
        "worker": worker,
        "ending": settlement.ending.value,
        "ran_by": held.swept_from or worker,
        "started_at": held.started_at,
        "now": tx.now,
        "error": json_text(error),
    }
    tx.run("attempt_add", values)
    return json_text((*errors_from_text(held.errors), past)[-ERRORS_KEPT:])


def _refuse(tx: Transaction, worker: WorkerId, settlement: Settlement) -> str:
    """Why the settlement does not count; an empty text if this worker had settled this attempt so before."""
    row = tx.one("token_of", {"job_id": settlement.job_id})
    if row is not None and _is_repeated(tx, row, worker, settlement):
        return ""
    reason = objection(row, worker, settlement.attempt)
    if not reason:
        # It was not ours when we wrote and is ours now: whatever has happened in between is over.
        raise TryAgain
    if row is not None:
        tx.record(
            Event(
                kind=EventKind.REFUSED,
                job_id=settlement.job_id,
                queue=row[0],
                attempt=settlement.attempt,
                actor=worker,
                detail=f"{settlement.ending}: {reason}",
            )
        )
    return reason


def _is_repeated(tx: Transaction, row: Row, worker: WorkerId, settlement: Settlement) -> bool:
    """Whether this worker has already ended this very attempt in this way, and only the answer was lost."""
    _, stored, last, holder, run_at, started_at, updated_at = row
    state, attempt = STATES[stored], settlement.attempt
    is_newest = (last, holder) == (attempt, worker) and state is not JobState.RUNNING
    token = {"job_id": settlement.job_id, "attempt": attempt, "worker": worker}
    # Nearly always a success is told again, and has no row.
    bad = None if is_newest and state is JobState.COMPLETED else tx.one("attempt_of", token)
    recorded = None if bad is None else Ending(bad[0])
    is_early = is_ready_early(settlement, run_at, started_at, updated_at)
    return is_same_end(settlement.ending, recorded, state if is_newest else None, is_early=is_early)


def why_refused(tx: Transaction, worker: WorkerId, lease: Lease) -> str:
    """What keeps a worker from writing under a lease; empty if nothing does."""
    return objection(tx.one("token_of", {"job_id": lease.job_id}), worker, lease.attempt)


def objection(row: Row | None, worker: WorkerId, attempt: int) -> str:
    if row is None:
        return "gone"
    _, state, last, holder, *_ = row
    if last != attempt:
        return "other attempt"
    if STATES[state] is not JobState.RUNNING:
        return "other state"
    return "" if holder == worker else "other worker"
