"""Settlements: write the outcome of a worker's attempts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypedDict

from forebay.domain.dependencies import DependencyEvent
from forebay.domain.job import JobId, PastError, QueueName, WorkerId
from forebay.domain.job_history import MAX_STORED_ERRORS, Event, EventKind, truncate_error
from forebay.domain.job_states import WAITING, JobState, check_transition
from forebay.domain.lane import park_detail
from forebay.domain.lease import Lease
from forebay.domain.rank import QueueRank
from forebay.domain.settlement import OutcomeKind, Settlement, TokenCharge, is_ready_early, is_same_end
from forebay.stores.contract.claims_and_results import LeaseRefusal
from forebay.stores.id_generator import seq_in_id
from forebay.stores.shared.rows import STATES, Row, errors_from_text, json_text
from forebay.stores.sqlite.concurrency_and_rate_limits import release_slots
from forebay.stores.sqlite.insert import insert_follow_ups
from forebay.stores.sqlite.transaction import Transaction

_COMPLETED: Final = JobState.COMPLETED  # a look-up in the enum for each job would take 0.1 us


class LeaseParams(TypedDict):
    """Lease as statements take it."""

    seq: int | None
    job_id: JobId
    attempt: int
    worker: WorkerId


class SettlementBatch:
    """Settlements of one call, in their order.

    Consecutive successes are gathered and written by few statements; each other settlement is written by
    itself, after them.
    """

    def __init__(self, tx: Transaction, new_id: Callable[[], JobId] | None, worker: WorkerId) -> None:
        self._tx = tx
        self._new_id = new_id
        self._worker = worker
        self._gathered: dict[int, Settlement] = {}
        self.settled: list[JobId] = []
        self.charges: list[TokenCharge] = []  # of these: one that is refused charges nothing
        self.repeated: list[JobId] = []
        self.refused: list[LeaseRefusal] = []

    def add(self, settlement: Settlement) -> None:
        if settlement.state is _COMPLETED and not settlement.follow_ups:
            seq = settlement.seq or seq_in_id(settlement.job_id)
            if seq is not None and seq not in self._gathered:
                self._gathered[seq] = settlement
                return
        self.flush()
        self._settle(settlement)

    def flush(self) -> None:
        """Write the gathered successes. Those that the guard does not find are settled one by one."""
        if not self._gathered:
            return
        gathered, self._gathered = self._gathered, {}
        ended = complete(self._tx, self._worker, gathered)
        for seq, settlement in gathered.items():
            if seq in ended:
                self._record_settled(settlement)
            else:
                self._settle(settlement)

    def _settle(self, settlement: Settlement) -> None:
        refusal = _settle(self._tx, self._new_id, self._worker, settlement)
        if refusal is None:
            self._record_settled(settlement)
        elif refusal == "":
            self.repeated.append(settlement.job_id)
        else:
            lease = Lease(settlement.job_id, settlement.attempt)
            self.refused.append(LeaseRefusal(lease=lease, reason=refusal))

    def _record_settled(self, settlement: Settlement) -> None:
        self.settled.append(settlement.job_id)
        if settlement.charge is not None:
            self.charges.append(settlement.charge)


def settle_all(
    tx: Transaction, new_id: Callable[[], JobId] | None, worker: WorkerId, settlements: Sequence[Settlement]
) -> SettlementBatch:
    """Settle leases in order. One that is not held any more is refused and stops no other."""
    settling = SettlementBatch(tx, new_id, worker)
    for settlement in settlements:
        settling.add(settlement)
    settling.flush()
    release_slots(tx, settling.settled)
    return settling


def complete(tx: Transaction, worker: WorkerId, successes: Mapping[int, Settlement]) -> set[int]:
    """Finish the jobs among these, by seq, whose lease is held; return their seqs."""
    groups: defaultdict[tuple[object, ...], dict[int, JobId]] = defaultdict(dict)
    for seq, settlement in successes.items():
        shape = (settlement.attempt, settlement.failures, settlement.crashes, settlement.reason)
        groups[shape][seq] = settlement.job_id
    result = next(iter(successes.values())).result  # mostly the result of all: None
    for (attempt, failures, crashes, reason), ids in groups.items():
        values = {
            "worker": worker,
            "attempt": attempt,
            "failures": failures,
            "crashes": crashes,
            "now": tx.now,
            "reason": reason,
            "result": result,
            "ended": json_text(ids),
        }
        tx.run("complete", values)
    rows = tx.all("complete_remove", {"seqs": json_text(list(successes))})
    for seq, queue, unique_key in rows:
        settlement = successes[seq]
        tx.release_key(queue, unique_key, settlement.job_id)
        if settlement.result != result:
            tx.run("complete_result", {"seq": seq, "result": settlement.result})
    for queue, jobs in Counter(row[1] for row in rows).items():
        tx.count_moved(queue, JobState.RUNNING, JobState.COMPLETED, jobs)
    if tx.has_edges():
        tx.add_completed([successes[row[0]].job_id for row in rows])
    return {row[0] for row in rows}


def _settle(
    tx: Transaction, new_id: Callable[[], JobId] | None, worker: WorkerId, settlement: Settlement
) -> str | None:
    """Settle one lease. Return None if that is done, an empty text if this worker had done it before, else
    why it is refused."""
    token = lease_params(worker, settlement.job_id, settlement.attempt)
    queue = _end_lease(tx, token, settlement)
    if queue is None and relocate(tx, token):
        queue = _end_lease(tx, token, settlement)
    if queue is None:
        return _refuse(tx, token, settlement)
    if settlement.follow_ups:
        insert_follow_ups(tx, new_id, worker, settlement, queue)
    return None


def lease_params(worker: WorkerId, job_id: JobId, attempt: int) -> LeaseParams:
    """Return the values that guard every write of a lease holder. A generated id contains the seq of its
    job."""
    return {"seq": seq_in_id(job_id), "job_id": job_id, "attempt": attempt, "worker": worker}


def relocate(tx: Transaction, token: LeaseParams) -> bool:
    """Return whether the job has another seq than its id seems to contain, because a caller brought the
    id."""
    location = tx.locate(token["job_id"])
    if location is None or location[0] == token["seq"]:
        return False
    token["seq"] = location[0]
    return True


def _end_lease(tx: Transaction, token: LeaseParams, settlement: Settlement) -> QueueName | None:
    if settlement.state is JobState.COMPLETED:
        return _finish(tx, token, settlement, JobState.COMPLETED, settlement.reason)
    return _end_uncompleted(tx, token, settlement)


def _end_uncompleted(tx: Transaction, token: LeaseParams, settlement: Settlement) -> QueueName | None:
    details = tx.one("lease_details", token)
    if details is None:
        return None
    check_transition(JobState.RUNNING, settlement.state)
    queue, cancel_reason, errors, started_at, swept_from, *_ = details
    if settlement.error is not None:
        _record_error(tx, token, settlement, errors, started_at, swept_from)
    if settlement.unstarted:
        tx.run("count_unstarted", {"seq": token["seq"], "unstarted": settlement.unstarted})
    if settlement.state not in WAITING:
        return _finish(tx, token, settlement, settlement.state, settlement.reason)
    if cancel_reason is not None:
        # An operator cancelled it while it ran: going back to wait would run it again.
        return _finish(tx, token, settlement, JobState.CANCELLED, cancel_reason)
    _return_to_queue(tx, token, settlement, details)
    return QueueName(queue)


def _finish(
    tx: Transaction, token: LeaseParams, settlement: Settlement, state: JobState, reason: str | None
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
    copied = tx.run("mark_dead" if state is JobState.DEAD else "finish", values)
    if copied.rowcount == 0:
        return None
    queue, unique_key = tx.all("finish_remove", token)[0]
    tx.release_key(queue, unique_key, settlement.job_id)
    tx.count_moved(queue, JobState.RUNNING, state)
    tx.add_to_outbox([settlement.job_id], DependencyEvent(state.value))
    return QueueName(queue)


def _return_to_queue(tx: Transaction, token: LeaseParams, settlement: Settlement, details: Row) -> None:
    queue, _, _, _, _, ready_at, priority, deadline_at, rank, age_capped = details
    queue_rank = QueueRank(bool(age_capped), rank, None)
    if settlement.state is JobState.PENDING:
        queue_rank = tx.compute_rank(queue, ready_at, priority, settlement.failures, deadline_at)
    values = {
        **token,
        "state": settlement.state.value,
        "failures": settlement.failures,
        "crashes": settlement.crashes,
        "run_at": tx.now if settlement.state is JobState.PENDING else tx.now + settlement.delay_ms,
        "rank": queue_rank.rank,
        "age_capped": queue_rank.age_capped,
        "rescore_at": queue_rank.rescore_at,
        "lane": settlement.lane,
        "now": tx.now,
    }
    tx.run("return_to_queue", values)
    if settlement.lane is not None:
        tx.record(
            Event(
                kind=EventKind.PARKED,
                job_id=settlement.job_id,
                queue=queue,
                attempt=settlement.attempt,
                actor=token["worker"],
                detail=park_detail(settlement.lane, settlement.reason),
            )
        )
    tx.count_moved(queue, JobState.RUNNING, settlement.state)
    tx.needs_wakeup = True


def _record_error(
    tx: Transaction,
    token: LeaseParams,
    settlement: Settlement,
    errors: str | None,
    started_at: int | None,
    swept_from: str | None,
) -> None:
    """Store the error on the job, which keeps its last ten, and in a row of the history."""
    if settlement.error is None:
        return
    error = truncate_error(settlement.error)
    past = PastError(
        attempt=settlement.attempt,
        at=tx.now,
        type=error.type,
        message=error.message,
        traceback=error.traceback,
    )
    last_errors = (*errors_from_text(errors), past)[-MAX_STORED_ERRORS:]
    tx.run("errors_save", {**token, "errors": json_text(last_errors)})
    values = {
        **token,
        "outcome": settlement.outcome.value,
        "ran_by": swept_from or token["worker"],
        "started_at": started_at,
        "now": tx.now,
        "error": json_text(error),
    }
    tx.run("failed_attempt_add", values)


def _refuse(tx: Transaction, token: LeaseParams, settlement: Settlement) -> str:
    """Return why the settlement is refused; an empty text if this worker had settled this attempt the same
    way."""
    row = tx.one("lease_holder", token)
    if row is not None and _is_repeated(tx, row, token, settlement):
        return ""
    reason = _refusal_reason(row, token)
    if row is not None:
        tx.record(
            Event(
                kind=EventKind.REFUSED,
                job_id=settlement.job_id,
                queue=row[0],
                attempt=settlement.attempt,
                actor=token["worker"],
                detail=f"{settlement.outcome}: {reason}",
            )
        )
    return reason


def _is_repeated(tx: Transaction, row: Row, token: LeaseParams, settlement: Settlement) -> bool:
    """Return whether this worker has already settled this very attempt in this way, and only the answer
    was lost."""
    _, stored, attempt, holder, run_at, started_at, updated_at = row
    state = STATES[stored]
    is_newest = attempt == token["attempt"] and holder == token["worker"] and state is not JobState.RUNNING
    # A repeated settlement is nearly always a success, which has no row in the history.
    failed_attempt = None if is_newest and state is _COMPLETED else tx.one("failed_attempt", token)
    recorded = None if failed_attempt is None else OutcomeKind(failed_attempt[0])
    is_early = is_ready_early(settlement, run_at, started_at, updated_at)
    return is_same_end(settlement.outcome, recorded, state if is_newest else None, is_early=is_early)


def find_refusal(tx: Transaction, token: LeaseParams) -> str:
    """Return why a worker may not write under a lease; empty if it may."""
    return _refusal_reason(tx.one("lease_holder", token), token)


def _refusal_reason(row: Row | None, token: LeaseParams) -> str:
    if row is None:
        return "gone"
    _, state, attempt, holder, *_ = row
    if attempt != token["attempt"]:
        return "other attempt"
    if STATES[state] is not JobState.RUNNING:
        return "other state"
    return "" if holder == token["worker"] else "other worker"
