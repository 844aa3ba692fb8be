"""Settling what has ended and claiming for the room there is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypedDict

from forebay.domain.history import ERRORS_KEPT, Event, EventKind, cut
from forebay.domain.job import Job, JobId, PastError, QueueName, UniqueUntil, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.lifecycle import WAITING, JobState, check_transition
from forebay.domain.queue import QueueState
from forebay.domain.rank import Place
from forebay.domain.settlement import Settlement
from forebay.stores.ids import seq_in_id
from forebay.stores.protocol import BATCH, PROMOTED_PER_EXCHANGE, Cancel, Exchange, Refusal, Want
from forebay.stores.sqlite.duties import expire, promote_queue
from forebay.stores.sqlite.inserting import insert_follow_ups
from forebay.stores.sqlite.rows import (
    STATES,
    Row,
    claimed_job,
    errors_from_text,
    job_from_row,
    json_text,
)
from forebay.stores.sqlite.transaction import Transaction

_GIVING: Final = (QueueState.ACTIVE, QueueState.DRAINING)


class Token(TypedDict):
    """A lease as statements know it."""

    seq: int | None
    job_id: JobId
    attempt: int
    worker: WorkerId


def exchange(
    tx: Transaction,
    new_id: Callable[[], JobId] | None,
    worker: WorkerId,
    settlements: Sequence[Settlement],
    wants: Sequence[Want],
    room: int,
    known: Sequence[Lease] | None,
) -> Exchange:
    """Settle first: what has ended frees slots and keys, and the claim that follows should see both."""
    settled: list[JobId] = []
    repeated: list[JobId] = []
    refused: list[Refusal] = []
    for settlement in settlements:
        refusal = _settle(tx, new_id, worker, settlement)
        if refusal is None:
            settled.append(settlement.job_id)
        elif refusal == "":
            repeated.append(settlement.job_id)
        else:
            lease = Lease(settlement.job_id, settlement.attempt)
            refused.append(Refusal(lease=lease, reason=refusal))
    jobs = _claim_all(tx, worker, wants, room)
    return Exchange(
        settled=tuple(settled),
        repeated=tuple(repeated),
        refused=tuple(refused),
        jobs=tuple(jobs),
        adopted=() if known is None else tuple(_adopted(tx, worker, known, jobs)),
        cancels=cancels_for(tx, worker),
        next_due_ms=_next_due_ms(tx, wants),
    )


# Settling


def _settle(
    tx: Transaction, new_id: Callable[[], JobId] | None, worker: WorkerId, settlement: Settlement
) -> str | None:
    """End one lease. None: done. An empty text: this worker had done it before. Else why it is refused."""
    token = token_values(worker, settlement.job_id, settlement.attempt)
    queue = _end(tx, token, settlement)
    if queue is None and relocated(tx, token):
        queue = _end(tx, token, settlement)
    if queue is None:
        return _refuse(tx, token, settlement)
    if settlement.follow_ups:
        insert_follow_ups(tx, new_id, worker, settlement, queue)
    return None


def token_values(worker: WorkerId, job_id: JobId, attempt: int) -> Token:
    """What every write of a lease holder is guarded by. A generated id says where its job is."""
    return {"seq": seq_in_id(job_id), "job_id": job_id, "attempt": attempt, "worker": worker}


def relocated(tx: Transaction, token: Token) -> bool:
    """Whether the job is elsewhere than its id seemed to say, because a caller brought the id."""
    found = tx.find(token["job_id"])
    if found is None or found[0] == token["seq"]:
        return False
    token["seq"] = found[0]
    return True


def _end(tx: Transaction, token: Token, settlement: Settlement) -> QueueName | None:
    if settlement.state is JobState.COMPLETED:
        return _finish(tx, token, settlement, JobState.COMPLETED, settlement.reason)
    check_transition(JobState.RUNNING, settlement.state)
    return _end_otherwise(tx, token, settlement)


def _end_otherwise(tx: Transaction, token: Token, settlement: Settlement) -> QueueName | None:
    held = tx.one("held", token)
    if held is None:
        return None
    queue, cancel_reason, errors, started_at, swept_from, *_ = held
    if settlement.error is not None:
        _keep_error(tx, token, settlement, errors, started_at, swept_from)
    if settlement.state not in WAITING:
        return _finish(tx, token, settlement, settlement.state, settlement.reason)
    if cancel_reason is not None:
        # Somebody asked for it while it ran: going back to wait would run it again against their wish.
        return _finish(tx, token, settlement, JobState.CANCELLED, cancel_reason)
    _put_back(tx, token, settlement, held)
    return QueueName(queue)


def _finish(
    tx: Transaction, token: Token, settlement: Settlement, state: JobState, reason: str | None
) -> QueueName | None:
    if state is JobState.CANCELLED and reason is None:
        reason = "cancelled"
    values = {
        **token,
        "state": state.value,
        "failures": settlement.failures,
        "crashes": settlement.crashes,
        "now": tx.now,
        "reason": reason,
        "result": settlement.result,
    }
    copied = tx.run("bury" if state is JobState.DEAD else "finish", values)
    if copied.rowcount == 0:
        return None
    queue, unique_key = tx.all("finish_remove", token)[0]
    tx.free_key(queue, unique_key, settlement.job_id)
    tx.move(queue, JobState.RUNNING, state)
    return QueueName(queue)


def _put_back(tx: Transaction, token: Token, settlement: Settlement, held: Row) -> None:
    queue, _, _, _, _, ready_at, priority, deadline_at, rank, capped = held
    where = Place(bool(capped), rank, None)
    if settlement.state is JobState.PENDING:
        where = tx.place(queue, ready_at, priority, settlement.failures, deadline_at)
    values = {
        **token,
        "state": settlement.state.value,
        "failures": settlement.failures,
        "crashes": settlement.crashes,
        "run_at": tx.now if settlement.state is JobState.PENDING else tx.now + settlement.delay_ms,
        "rank": where.rank,
        "capped": where.capped,
        "rescore_at": where.rescore_at,
        "now": tx.now,
    }
    tx.run("put_back", values)
    tx.move(queue, JobState.RUNNING, settlement.state)
    tx.has_news = True


def _keep_error(
    tx: Transaction,
    token: Token,
    settlement: Settlement,
    errors: str | None,
    started_at: int | None,
    swept_from: str | None,
) -> None:
    """Put the error on the job, which keeps its last ten, and on a row of its own in the history."""
    if settlement.error is None:
        return
    error = cut(settlement.error)
    past = PastError(
        attempt=settlement.attempt,
        at=tx.now,
        type=error.type,
        message=error.message,
        traceback=error.traceback,
    )
    kept = (*errors_from_text(errors), past)[-ERRORS_KEPT:]
    tx.run("keep_errors", {**token, "errors": json_text(kept)})
    values = {
        **token,
        "ending": settlement.ending.value,
        "ran_by": swept_from or token["worker"],
        "started_at": started_at,
        "now": tx.now,
        "error": json_text(error),
    }
    tx.run("attempt_add", values)


def _refuse(tx: Transaction, token: Token, settlement: Settlement) -> str:
    """Why the settlement does not count; an empty text if this worker had settled this attempt before."""
    row = tx.one("token_of", token)
    if _is_repeated(row, token) or tx.one("attempt_of", token) is not None:
        return ""
    reason = _objection(row, token)
    if row is not None:
        tx.record(
            Event(
                kind=EventKind.REFUSED,
                job_id=settlement.job_id,
                queue=row[0],
                attempt=settlement.attempt,
                actor=token["worker"],
                detail=f"{settlement.ending}: {reason}",
            )
        )
    return reason


def _is_repeated(row: Row | None, token: Token) -> bool:
    """Whether this worker has already ended this very attempt, and only the answer was lost."""
    if row is None:
        return False
    _, state, attempt, holder = row
    is_ours = attempt == token["attempt"] and holder == token["worker"]
    return is_ours and STATES[state] is not JobState.RUNNING


def why_refused(tx: Transaction, token: Token) -> str:
    """What keeps a worker from writing under a lease; empty if nothing does."""
    return _objection(tx.one("token_of", token), token)


def _objection(row: Row | None, token: Token) -> str:
    if row is None:
        return "gone"
    _, state, attempt, holder = row
    if attempt != token["attempt"]:
        return "other attempt"
    if STATES[state] is not JobState.RUNNING:
        return "other state"
    return "" if holder == token["worker"] else "other worker"


# Claiming


def _claim_all(tx: Transaction, worker: WorkerId, wants: Sequence[Want], room: int) -> list[Job]:
    if wants:
        if tx.has_new_jobs:
            tx.count_new()  # follow-ups of this very exchange may be claimed in it
        expire(tx, BATCH)
    jobs: list[Job] = []
    for want in wants:
        promote_queue(tx, want.queue, PROMOTED_PER_EXCHANGE)
        most = min(want.most, room - len(jobs))
        if most > 0:
            jobs += _claim(tx, worker, want, most)
    return jobs


def _claim(tx: Transaction, worker: WorkerId, want: Want, most: int) -> list[Job]:
    queue = tx.queue(want.queue)
    if queue is None or queue.state not in _GIVING:
        return []
    cap_ms = tx.scoring(want.queue).cap_ms
    values = {
        "queue": want.queue,
        "room": most,
        "worker": worker,
        "now": tx.now,
        "cap_ms": cap_ms,
        "lease_ms": want.lease_ms,
        "queue_lease_ms": queue.settings.lease_ms,
    }
    jobs = [claimed_job(row, worker, tx.now) for row in tx.all("claim", values)]
    jobs.sort(key=lambda job: (job.rank - (cap_ms if job.capped else tx.now), job.seq))
    for job in jobs:
        if job.unique_until is UniqueUntil.STARTED:
            tx.free_key(job.queue, job.unique_key, job.id)
    tx.move(want.queue, JobState.PENDING, JobState.RUNNING, len(jobs))
    return jobs


def _adopted(tx: Transaction, worker: WorkerId, known: Sequence[Lease], claimed: list[Job]) -> list[Job]:
    expected = {(lease.job_id, lease.attempt) for lease in known}
    expected |= {(job.id, job.attempt) for job in claimed}
    held = (job_from_row(row) for row in tx.all("leases_of", {"worker": worker}))
    return [job for job in held if (job.id, job.attempt) not in expected]


def cancels_for(tx: Transaction, worker: WorkerId) -> tuple[Cancel, ...]:
    """The running jobs of a worker that somebody wants stopped."""
    return tuple(Cancel(*row) for row in tx.all("cancels", {"worker": worker}))


def _next_due_ms(tx: Transaction, wants: Sequence[Want]) -> int | None:
    dues = (tx.one("next_due", {"queue": want.queue}) for want in wants)
    return min((max(0, row[0] - tx.now) for row in dues if row is not None), default=None)
