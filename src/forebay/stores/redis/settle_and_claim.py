"""An exchange as its script takes it, and what it answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Final

from msgspec.structs import replace

from forebay.domain.history import truncate_error
from forebay.domain.job import Job, JobId, QueueName, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.lifecycle import JobState
from forebay.domain.outcome import AttemptError
from forebay.domain.progress import ProgressUpdate, normalize_update
from forebay.domain.settlement import OutcomeKind, Settlement
from forebay.stores.contract.values import (
    LeaseRefusal,
    PendingCancel,
    QueueClaim,
    SettleAndClaimResult,
)
from forebay.stores.redis.connection import Connection
from forebay.stores.redis.insert import InsertRequest, check_reply
from forebay.stores.redis.rows import (
    format_log_line,
    format_step,
    job_from_row,
    jobs_from_lists,
    pack_result,
)
from forebay.stores.shared.partial_calls import raise_as_lost_response
from forebay.stores.shared.rows import json_text, log_line_text, progress_text

_FIRST: Final = 2  # the number of the first argument after the request
# Completions, and claims, of one call: meanwhile the server does nothing else, for a millisecond or two.
MAX_PER_CALL: Final = 200
# How often the long script is called at once after the short one had to leave something to it.
SLOW_CALLS: Final = 20
_COMPLETED: Final = (OutcomeKind.COMPLETED, JobState.COMPLETED)
_SETTLED: Final = b"settled"
_REPEATED: Final = b"repeated"


class FastPathSwitch:
    """Whether a script for plain jobs is worth a try. Where it had to leave something to the other one (a
    limit, a rate, a retry, a job that comes due), there will be more of that."""

    def __init__(self) -> None:
        self._slow_calls = 0

    def should_try(self) -> bool:
        self._slow_calls = max(0, self._slow_calls - 1)
        return self._slow_calls == 0

    def record_slow_call(self) -> None:
        self._slow_calls = SLOW_CALLS


class SettleAndClaim:
    """The exchanges of one handle."""

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
        """A large exchange is several calls; all that may be refused is in the first. When a later one fails,
        it is as if the answer to the whole had been lost: what is settled twice is known as repeated, and the
        worker asks which leases it holds."""
        calls = _ScriptCalls(self, worker, settlements, claims, room)
        plain, special = _split_settlements(settlements)
        for first in range(0, len(plain) or 1, MAX_PER_CALL):
            is_last = first + MAX_PER_CALL >= len(plain)
            with raise_as_lost_response() if first else nullcontext():
                calls.run(
                    plain[first : first + MAX_PER_CALL],
                    () if first else special,
                    () if first else updates,
                    known if is_last else None,
                    is_claiming=is_last,
                )
        while calls.may_claim_more:
            with raise_as_lost_response():
                calls.run(is_claiming=True)
        return calls.to_result(updates)


def _split_settlements(settlements: Sequence[Settlement]) -> tuple[Sequence[int], Sequence[int]]:
    """The numbers of those that only say that a first attempt was completed, and of all others."""
    plain: list[int] = []
    special: list[int] = []
    for number, end in enumerate(settlements):
        is_plain = (
            end.attempt == 1
            and (end.outcome, end.state) == _COMPLETED
            and end.failures == end.crashes == 0
            and end.error is None
            and end.reason is None
            and end.lane is None
            and not end.follow_ups
            and end.charge is None
        )
        (plain if is_plain else special).append(number)
    if plain and special and len({end.job_id for end in settlements}) < len(settlements):
        return (), range(len(settlements))  # two about one job: the first counts
    if any(job.unique_key is not None for number in special for job in settlements[number].follow_ups):
        return (), range(len(settlements))  # a key that it needs may be freed by one before it
    return plain, special


class _ScriptCalls:
    """The calls of one exchange, and what they have answered."""

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
        self._remaining_claims = [(want, want.limit) for want in claims]
        self._is_one_for_each_queue = len({want.queue for want in claims}) == len(claims)
        self._room = room
        bounds = [want.largest_payload for want in claims if want.max_payload is not None]
        self._max_payload: int | bool = min(bounds, default=False)
        self._replies: dict[int, bytes] = {}  # by number of the settlement, unless it was settled
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
        ends = self._settlements
        arguments: list[bytes | str] = []
        for number in fast:
            arguments += (ends[number].job_id, pack_result(ends[number].result))
        ask: dict[str, Any] = {
            "worker": self._worker,
            "completed": len(fast),
            "claims": [_claim_row(want, left) for want, left in self._remaining_claims] if is_claiming else (),
            "room": min(self._room, MAX_PER_CALL),
            "max_payload": self._max_payload,
        }
        is_plain = not slow and not updates and known is None and self._is_one_for_each_queue
        if is_plain and self._owner.fast_path.should_try() and self._try_fast_path(ask, arguments):
            return
        intake = InsertRequest(self._owner.new_id)
        ask["updates"] = [_update_row(note, arguments) for note in updates]
        ask["settlements"] = [(*_settlement_row(ends[number], arguments, intake), number) for number in slow]
        if slow and fast:
            ask["positions"] = list(fast)
        if intake.arguments:
            ask |= intake.build_request(_FIRST + len(arguments))
        if known is not None:
            ask["known"] = [tuple(lease) for lease in known]
        answer = check_reply(self._owner.connection.run("settle_and_claim", ask, *arguments, *intake.arguments))
        self._record_settled(fast, slow, answer)
        if is_claiming:
            _, _, claimed, adopted, self._cancels, next_due_ms, _ = answer
            self._recovered = self._recovered or adopted
            self._record_claimed(claimed, next_due_ms)
        if updates:
            self._update_replies = answer[-1]

    def _try_fast_path(self, params: dict[str, Any], arguments: Sequence[bytes | str]) -> bool:
        """Whether the script for plain jobs could do it; it has done nothing otherwise."""
        answer = self._owner.connection.run("settle_and_claim_fast", params, *arguments)
        if not answer:
            self._owner.fast_path.record_slow_call()
            return False
        claimed, next_due_ms, has_more = answer
        if has_more:
            self._owner.fast_path.record_slow_call()
        self._record_claimed(claimed, next_due_ms, has_more=bool(has_more))
        return True

    def _record_settled(self, fast: Sequence[int], slow: Sequence[int], answer: Sequence[Any]) -> None:
        answers, others, *_ = answer
        self._replies |= {
            number: said for number, said in zip(slow, answers, strict=True) if said != _SETTLED
        }
        self._replies |= {fast[others[at] - 1]: others[at + 1] for at in range(0, len(others), 2)}

    def _record_claimed(
        self, claimed: Sequence[Any], next_due_ms: int | None, *, has_more: bool = False
    ) -> None:
        jobs = jobs_from_lists(*claimed)
        self._jobs += jobs
        # Fewer than there was room for means that there are no more.
        self.may_claim_more = has_more or len(jobs) == MAX_PER_CALL < self._room
        self._room -= len(jobs)
        if self.may_claim_more:
            given = Counter(job.queue for job in jobs)
            self._remaining_claims = [
                (want, left - _take_claimed(given, want.queue, left)) for want, left in self._remaining_claims
            ]
        self._next_due_ms = next_due_ms  # of all queues, as the last call has left them

    def to_result(self, updates: Sequence[ProgressUpdate]) -> SettleAndClaimResult:
        ends, said = self._settlements, self._replies
        return SettleAndClaimResult(
            settled=tuple([end.job_id for number, end in enumerate(ends) if number not in said]),
            repeated=tuple(ends[number].job_id for number in sorted(said) if said[number] == _REPEATED),
            refused=tuple(
                LeaseRefusal(
                    lease=Lease(ends[number].job_id, ends[number].attempt), reason=said[number].decode()
                )
                for number in sorted(said)
                if said[number] != _REPEATED
            ),
            jobs=tuple(self._jobs),
            recovered=tuple(map(job_from_row, self._recovered)),
            cancels=cancels_of(self._cancels),
            next_due_ms=self._next_due_ms,
            refused_updates=tuple(
                LeaseRefusal(lease=note.lease, reason=why_not.decode())
                for note, why_not in zip(updates, self._update_replies, strict=True)
                if why_not
            ),
        )


def _take_claimed(given: Counter[QueueName], queue: QueueName, limit: int) -> int:
    """How many of the given jobs were for a want of this queue; they are counted once."""
    number = min(given[queue], limit)
    given[queue] -= number
    return number


def cancels_of(found: Sequence[Sequence[bytes]]) -> tuple[PendingCancel, ...]:
    return tuple(PendingCancel(JobId(job_id.decode()), reason.decode()) for job_id, reason in found)


def _claim_row(request: QueueClaim, left: int) -> tuple[Any, ...]:
    return (
        request.queue,
        min(left, MAX_PER_CALL),
        request.lease_ms or False,
        False if request.lanes is None else list(request.lanes),
        request._replace(limit=min(request.limit, MAX_PER_CALL)).max_parked,
    )


def _settlement_row(end: Settlement, arguments: list[bytes | str], inserts: InsertRequest) -> tuple[Any, ...]:
    for place, job in enumerate(end.follow_ups):
        inserts.add(job if job.parent_id is not None else replace(job, parent_id=end.job_id), place)
    return (
        end.job_id,
        end.attempt,
        end.outcome.value,
        end.state.value,
        end.failures,
        end.crashes,
        end.delay_ms,
        False if end.reason is None else _text_or_true(end.reason),
        False if end.lane is None else _text_or_true(end.lane),
        _add_argument(pack_result(end.result), arguments),
        False if end.error is None else _error_text(end.error),
        len(end.follow_ups),
        end.charge is not None and end.charge.tokens,
        end.charge is not None and end.charge.scopes,
        end.unstarted or False,
    )


def _text_or_true(text: str) -> str | bool:
    """The text; True for one that cannot be written. Only the holder of a lease is told so, by the script."""
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
    """The number under which a script finds these bytes."""
    arguments.append(value)
    return _FIRST + len(arguments) - 1


def _update_row(update: ProgressUpdate, arguments: list[bytes | str]) -> tuple[Any, ...]:
    kept = normalize_update(update, 0)
    lines: list[Any] = []
    for line in kept.lines:
        lines += (line.position or False, format_log_line(line, log_line_text(line)))
    steps: list[Any] = []
    for step in kept.steps:
        steps += (_text_or_true(step.name), _add_argument(format_step(step), arguments))
    attempt = update.lease.attempt
    progress = False if kept.progress is None else f"{attempt} {progress_text(kept.progress)}"
    return (update.lease.job_id, attempt, progress, lines, steps)
