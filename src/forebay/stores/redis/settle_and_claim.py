"""Settle and claim: the requests of both scripts, and their replies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Final

from msgspec.structs import replace

from forebay.domain.job import Job, JobId, QueueName, WorkerId
from forebay.domain.job_history import truncate_error
from forebay.domain.job_states import JobState
from forebay.domain.lease import Lease
from forebay.domain.outcome import AttemptError
from forebay.domain.progress import MAX_STORED_STEP_BYTES, ProgressUpdate, normalize_update
from forebay.domain.settlement import OutcomeKind, Settlement
from forebay.stores.contract.claims_and_results import (
    LeaseRefusal,
    PendingCancel,
    QueueClaim,
    SettleAndClaimResult,
)
from forebay.stores.redis.connection import Connection
from forebay.stores.redis.insert import InsertRequest, check_reply
from forebay.stores.redis.rows import format_log_line, format_step, job_from_row, jobs_from_lists, pack_result
from forebay.stores.shared.partial_failures import raise_as_lost_response
from forebay.stores.shared.rows import json_text, log_line_text, progress_text

_FIRST: Final = 2  # number of the first argument after the request
# Completions, and claims, of one call: it blocks the server for a millisecond or two.
MAX_PER_CALL: Final = 200
# Calls that skip the fast path after it had to leave something to the slow path.
SLOW_CALLS: Final = 20
_COMPLETED: Final = (OutcomeKind.COMPLETED, JobState.COMPLETED)
_SETTLED: Final = b"settled"
_REPEATED: Final = b"repeated"


class FastPathSwitch:
    """Switch that decides whether to try the fast path.

    If it had to leave something to the slow path (a limit, a rate, a retry, a due job), more will follow."""

    def __init__(self) -> None:
        self._slow_calls = 0

    def should_try(self) -> bool:
        self._slow_calls = max(0, self._slow_calls - 1)
        return self._slow_calls == 0

    def record_slow_call(self) -> None:
        self._slow_calls = SLOW_CALLS


class SettleAndClaim:
    """Runner of settle_and_claim for one handle."""

    def __init__(self, connection: Connection, new_id: Callable[[], JobId]) -> None:
        self.connection = connection
        self.new_id = new_id
        self.fast_path: FastPathSwitch = FastPathSwitch()

    def run(
        self,
        worker: WorkerId,
        settlements: Sequence[Settlement],
        claims: Sequence[QueueClaim],
        room: int,
        known: Sequence[Lease] | None,
        updates: Sequence[ProgressUpdate],
    ) -> SettleAndClaimResult:
        """Settle and claim in as many script calls as needed.

        Everything that may be refused is in the first call. A later call that fails counts as a lost
        response: settlements sent twice are recognized as repeated, and the worker recovers its leases."""
        calls = _ScriptCalls(self, worker, settlements, claims, room)
        fast, slow = _split_settlements(settlements)
        for first in range(0, len(fast) or 1, MAX_PER_CALL):
            is_last = first + MAX_PER_CALL >= len(fast)
            with raise_as_lost_response() if first else nullcontext():
                calls.run(
                    fast[first : first + MAX_PER_CALL],
                    () if first else slow,
                    () if first else updates,
                    known if is_last else None,
                    is_claiming=is_last,
                )
        while calls.may_claim_more:
            with raise_as_lost_response():
                calls.run(is_claiming=True)
        return calls.to_result(updates)


def _split_settlements(settlements: Sequence[Settlement]) -> tuple[Sequence[int], Sequence[int]]:
    """Split into the numbers of plain completions of first attempts, and of all other settlements."""
    fast: list[int] = []
    slow: list[int] = []
    for number, settlement in enumerate(settlements):
        fits_fast_path = (
            settlement.attempt == 1
            and (settlement.outcome, settlement.state) == _COMPLETED
            and settlement.failures == settlement.crashes == 0
            and settlement.error is None
            and settlement.reason is None
            and settlement.lane is None
            and not settlement.follow_ups
            and settlement.charge is None
        )
        (fast if fits_fast_path else slow).append(number)
    if fast and slow and len({settlement.job_id for settlement in settlements}) < len(settlements):
        return (), range(len(settlements))  # two of one job: the first counts
    if any(job.unique_key is not None for number in slow for job in settlements[number].follow_ups):
        return (), range(len(settlements))  # an earlier settlement may free the key that it needs
    return fast, slow


class _ScriptCalls:
    """Script calls of one settle_and_claim, and their collected replies."""

    def __init__(
        self,
        owner: SettleAndClaim,
        worker: WorkerId,
        settlements: Sequence[Settlement],
        claims: Sequence[QueueClaim],
        room: int,
    ) -> None:
        self._owner = owner
        self._worker = worker
        self._settlements = settlements
        self._remaining_claims = [(claim, claim.limit) for claim in claims]
        self._has_one_claim_per_queue = len({claim.queue for claim in claims}) == len(claims)
        self._room = room
        bounds = [claim.largest_payload for claim in claims if claim.max_payload is not None]
        self._max_payload: int | bool = min(bounds, default=False)
        self._replies: dict[int, bytes] = {}  # by number of the settlement; none for a settled one
        self._update_replies: Sequence[bytes] = ()
        self._jobs: list[Job] = []
        self._recovered: Sequence[Any] = ()
        self._cancels: Sequence[Any] = ()
        self._next_due_ms: int | None = None
        self.may_claim_more = False

    def run(
        self,
        fast: Sequence[int] = (),
        slow: Sequence[int] = (),
        updates: Sequence[ProgressUpdate] = (),
        known: Sequence[Lease] | None = None,
        *,
        is_claiming: bool,
    ) -> None:
        settlements = self._settlements
        arguments: list[bytes | str] = []
        for number in fast:
            arguments += (settlements[number].job_id, pack_result(settlements[number].result))
        params: dict[str, Any] = {
            "worker": self._worker,
            "completed": len(fast),
            "claims": [_claim_row(claim, left) for claim, left in self._remaining_claims]
            if is_claiming
            else (),
            "room": min(self._room, MAX_PER_CALL),
            "max_payload": self._max_payload,
        }
        fits_fast_path = not slow and not updates and known is None and self._has_one_claim_per_queue
        if fits_fast_path and self._owner.fast_path.should_try() and self._try_fast_path(params, arguments):
            return
        inserts = InsertRequest(self._owner.new_id)
        params["updates"] = [_update_row(update, arguments) for update in updates]
        params["max_step_bytes"] = MAX_STORED_STEP_BYTES
        params["settlements"] = [
            (*_settlement_row(settlements[number], arguments, inserts), number) for number in slow
        ]
        if slow and fast:
            params["positions"] = list(fast)
        if inserts.arguments:
            params |= inserts.build_request(_FIRST + len(arguments))
        if known is not None:
            params["known"] = [tuple(lease) for lease in known]
        reply = check_reply(
            self._owner.connection.run("settle_and_claim", params, *arguments, *inserts.arguments)
        )
        self._record_settled(fast, slow, reply)
        if is_claiming:
            _, _, claimed, recovered, self._cancels, next_due_ms, _ = reply
            self._recovered = self._recovered or recovered
            self._record_claimed(claimed, next_due_ms)
        if updates:
            self._update_replies = reply[-1]

    def _try_fast_path(self, params: dict[str, Any], arguments: Sequence[bytes | str]) -> bool:
        """Return whether the fast path did all of it; otherwise it has written nothing."""
        reply = self._owner.connection.run("settle_and_claim_fast", params, *arguments)
        if not reply:
            self._owner.fast_path.record_slow_call()
            return False
        claimed, next_due_ms, has_more = reply
        if has_more:
            self._owner.fast_path.record_slow_call()
        self._record_claimed(claimed, next_due_ms, has_more=bool(has_more))
        return True

    def _record_settled(self, fast: Sequence[int], slow: Sequence[int], reply: Sequence[Any]) -> None:
        replies, others, *_ = reply
        self._replies |= {
            number: status for number, status in zip(slow, replies, strict=True) if status != _SETTLED
        }
        self._replies |= {fast[others[at] - 1]: others[at + 1] for at in range(0, len(others), 2)}

    def _record_claimed(
        self, claimed: Sequence[Any], next_due_ms: int | None, *, has_more: bool = False
    ) -> None:
        jobs = jobs_from_lists(*claimed)
        self._jobs += jobs
        # Fewer jobs than requested means that there are no more.
        self.may_claim_more = has_more or len(jobs) == MAX_PER_CALL < self._room
        self._room -= len(jobs)
        if self.may_claim_more:
            claimed_by_queue = Counter(job.queue for job in jobs)
            self._remaining_claims = [
                (claim, left - _take_claimed(claimed_by_queue, claim.queue, left))
                for claim, left in self._remaining_claims
            ]
        self._next_due_ms = next_due_ms  # of all queues, as the last call has left them

    def to_result(self, updates: Sequence[ProgressUpdate]) -> SettleAndClaimResult:
        settlements, statuses = self._settlements, self._replies
        return SettleAndClaimResult(
            settled=tuple(
                settlement.job_id for number, settlement in enumerate(settlements) if number not in statuses
            ),
            repeated=tuple(
                settlements[number].job_id for number in sorted(statuses) if statuses[number] == _REPEATED
            ),
            refused=tuple(
                LeaseRefusal(
                    lease=Lease(settlements[number].job_id, settlements[number].attempt),
                    reason=statuses[number].decode(),
                )
                for number in sorted(statuses)
                if statuses[number] != _REPEATED
            ),
            jobs=tuple(self._jobs),
            recovered=tuple(map(job_from_row, self._recovered)),
            cancels=cancels_of(self._cancels),
            next_due_ms=self._next_due_ms,
            refused_updates=tuple(
                LeaseRefusal(lease=update.lease, reason=reason.decode())
                for update, reason in zip(updates, self._update_replies, strict=True)
                if reason
            ),
        )


def _take_claimed(claimed_by_queue: Counter[QueueName], queue: QueueName, limit: int) -> int:
    """Count the jobs that belong to a claim of this queue, each of them once."""
    number = min(claimed_by_queue[queue], limit)
    claimed_by_queue[queue] -= number
    return number


def cancels_of(rows: Sequence[Sequence[bytes]]) -> tuple[PendingCancel, ...]:
    return tuple(PendingCancel(JobId(job_id.decode()), reason.decode()) for job_id, reason in rows)


def _claim_row(request: QueueClaim, left: int) -> tuple[Any, ...]:
    return (
        request.queue,
        min(left, MAX_PER_CALL),
        request.lease_ms or False,
        False if request.lanes is None else list(request.lanes),
        request._replace(limit=min(request.limit, MAX_PER_CALL)).max_parked,
    )


def _settlement_row(
    settlement: Settlement, arguments: list[bytes | str], inserts: InsertRequest
) -> tuple[Any, ...]:
    for position, job in enumerate(settlement.follow_ups):
        inserts.add(job if job.parent_id is not None else replace(job, parent_id=settlement.job_id), position)
    return (
        settlement.job_id,
        settlement.attempt,
        settlement.outcome.value,
        settlement.state.value,
        settlement.failures,
        settlement.crashes,
        settlement.delay_ms,
        False if settlement.reason is None else _text_or_true(settlement.reason),
        False if settlement.lane is None else _text_or_true(settlement.lane),
        _add_argument(pack_result(settlement.result), arguments),
        False if settlement.error is None else _error_text(settlement.error),
        len(settlement.follow_ups),
        settlement.charge is not None and settlement.charge.tokens,
        settlement.charge is not None and settlement.charge.scopes,
        settlement.unstarted or False,
    )


def _text_or_true(text: str) -> str | bool:
    """Return the text; True if it cannot be encoded, which the script reports to the lease holder alone."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return text


def _error_text(error: AttemptError) -> str | bool:
    try:
        return json_text(truncate_error(error))
    except UnicodeEncodeError:
        return True


def _add_argument(value: bytes, arguments: list[bytes | str]) -> int:
    """Append an argument; return its number in the script."""
    arguments.append(value)
    return _FIRST + len(arguments) - 1


def _update_row(update: ProgressUpdate, arguments: list[bytes | str]) -> tuple[Any, ...]:
    normalized = normalize_update(update, 0)
    lines: list[Any] = []
    for line in normalized.lines:
        lines += (line.position or False, format_log_line(line, log_line_text(line)))
    steps: list[Any] = []
    for step in normalized.steps:
        steps += (_text_or_true(step.name), _add_argument(format_step(step), arguments))
    attempt = update.lease.attempt
    progress = False if normalized.progress is None else f"{attempt} {progress_text(normalized.progress)}"
    return (update.lease.job_id, attempt, progress, lines, steps)
