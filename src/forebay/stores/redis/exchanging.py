"""An exchange as its script takes it, and what it answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Final

from msgspec.structs import replace

from forebay.domain.history import cut
from forebay.domain.job import Job, JobId, QueueName, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.lifecycle import JobState
from forebay.domain.note import Note, as_kept
from forebay.domain.outcome import AttemptError
from forebay.domain.settlement import Ending, Settlement
from forebay.stores.parts import as_lost_answer
from forebay.stores.protocol import Cancel, Exchange, Refusal, Want
from forebay.stores.redis.connection import Connection
from forebay.stores.redis.inserting import Intake, done
from forebay.stores.redis.rows import (
    job_from_row,
    jobs_from_lists,
    line_stored,
    packed_result,
    step_stored,
)
from forebay.stores.rows import json_text, line_text, progress_text

_FIRST: Final = 2  # the number of the first argument after the request
# Completions, and claims, of one call: meanwhile the server does nothing else, for a millisecond or two.
MOST: Final = 200
# How often the long script is called at once after the short one had to leave something to it.
LONG_CALLS: Final = 20
_COMPLETED: Final = (Ending.COMPLETED, JobState.COMPLETED)
_SETTLED: Final = b"settled"
_REPEATED: Final = b"repeated"


class ShortWay:
    """Whether a script for plain jobs is worth a try. Where it had to leave something to the other one (a
    limit, a rate, a retry, a job that comes due), there will be more of that."""

    def __init__(self) -> None:
        self._long_calls = 0

    def is_tried(self) -> bool:
        self._long_calls = max(0, self._long_calls - 1)
        return self._long_calls == 0

    def has_ended(self) -> None:
        self._long_calls = LONG_CALLS


class Exchanging:
    """The exchanges of one handle."""

    def __init__(self, connection: Connection, new_id: Callable[[], JobId]) -> None:
        self.connection = connection
        self.new_id = new_id
        self.short_way: ShortWay = ShortWay()

    def exchange(
        self,
        worker: WorkerId,
        settlements: Sequence[Settlement],
        wants: Sequence[Want],
        room: int,
        known: Sequence[Lease] | None,
        notes: Sequence[Note],
    ) -> Exchange:
        """A large exchange is several calls; all that may be refused is in the first. When a later one fails,
        it is as if the answer to the whole had been lost: what is settled twice is known as repeated, and the
        worker asks which leases it holds."""
        calls = _Calls(self, worker, settlements, wants, room)
        plain, special = _sorted_out(settlements)
        for first in range(0, len(plain) or 1, MOST):
            is_last = first + MOST >= len(plain)
            with as_lost_answer() if first else nullcontext():
                calls.run(
                    plain[first : first + MOST],
                    () if first else special,
                    () if first else notes,
                    known if is_last else None,
                    is_claiming=is_last,
                )
        while calls.may_claim_more:
            with as_lost_answer():
                calls.run(is_claiming=True)
        return calls.exchanged(notes)


def _sorted_out(settlements: Sequence[Settlement]) -> tuple[Sequence[int], Sequence[int]]:
    """The numbers of those that only say that a first attempt was completed, and of all others."""
    plain: list[int] = []
    special: list[int] = []
    for number, end in enumerate(settlements):
        is_plain = (
            end.attempt == 1
            and (end.ending, end.state) == _COMPLETED
            and end.failures == end.crashes == 0
            and end.error is None
            and end.reason is None
            and end.gate is None
            and not end.follow_ups
            and end.charge is None
        )
        (plain if is_plain else special).append(number)
    if plain and special and len({end.job_id for end in settlements}) < len(settlements):
        return (), range(len(settlements))  # two about one job: the first counts
    if any(job.unique_key is not None for number in special for job in settlements[number].follow_ups):
        return (), range(len(settlements))  # a key that it needs may be freed by one before it
    return plain, special


class _Calls:
    """The calls of one exchange, and what they have answered."""

    def __init__(
        self,
        exchanging: Exchanging,
        worker: WorkerId,
        settlements: Sequence[Settlement],
        wants: Sequence[Want],
        room: int,
    ) -> None:
        self._exchanging = exchanging
        self._worker = worker
        self._settlements = settlements
        self._wants = [(want, want.most) for want in wants]
        self._is_one_for_each_queue = len({want.queue for want in wants}) == len(wants)
        self._room = room
        bounds = [want.largest_payload for want in wants if want.max_payload is not None]
        self._max_payload: int | bool = min(bounds, default=False)
        self._said: dict[int, bytes] = {}  # by number of the settlement, unless it was settled
        self._noted: Sequence[bytes] = ()
        self._jobs: list[Job] = []
        self._adopted: Sequence[Any] = ()
        self._cancels: Sequence[Any] = ()
        self._next_due_ms: int | None = None
        self.may_claim_more = False

    def run(
        self,
        plain: Sequence[int] = (),
        special: Sequence[int] = (),
        notes: Sequence[Note] = (),
        known: Sequence[Lease] | None = None,
        *,
        is_claiming: bool,
    ) -> None:
        ends = self._settlements
        arguments: list[bytes | str] = []
        for number in plain:
            arguments += (ends[number].job_id, packed_result(ends[number].result))
        ask: dict[str, Any] = {
            "worker": self._worker,
            "completed": len(plain),
            "wants": [_want(want, left) for want, left in self._wants] if is_claiming else (),
            "room": min(self._room, MOST),
            "max_payload": self._max_payload,
        }
        is_plain = not special and not notes and known is None and self._is_one_for_each_queue
        if is_plain and self._exchanging.short_way.is_tried() and self._went_short(ask, arguments):
            return
        intake = Intake(self._exchanging.new_id)
        ask["notes"] = [_note(note, arguments) for note in notes]
        ask["ends"] = [(*_ending(ends[number], arguments, intake), number) for number in special]
        if special and plain:
            ask["places"] = list(plain)
        if intake.arguments:
            ask |= intake.request(_FIRST + len(arguments))
        if known is not None:
            ask["known"] = [tuple(lease) for lease in known]
        answer = done(self._exchanging.connection.run("exchange", ask, *arguments, *intake.arguments))
        self._settled(plain, special, answer)
        if is_claiming:
            _, _, claimed, adopted, self._cancels, next_due_ms, _ = answer
            self._adopted = self._adopted or adopted
            self._claimed(claimed, next_due_ms)
        if notes:
            self._noted = answer[-1]

    def _went_short(self, ask: dict[str, Any], arguments: Sequence[bytes | str]) -> bool:
        """Whether the script for plain jobs could do it; it has done nothing otherwise."""
        answer = self._exchanging.connection.run("exchange_plain", ask, *arguments)
        if not answer:
            self._exchanging.short_way.has_ended()
            return False
        claimed, next_due_ms, has_more = answer
        if has_more:
            self._exchanging.short_way.has_ended()
        self._claimed(claimed, next_due_ms, has_more=bool(has_more))
        return True

    def _settled(self, plain: Sequence[int], special: Sequence[int], answer: Sequence[Any]) -> None:
        answers, others, *_ = answer
        self._said |= {
            number: said for number, said in zip(special, answers, strict=True) if said != _SETTLED
        }
        self._said |= {plain[others[at] - 1]: others[at + 1] for at in range(0, len(others), 2)}

    def _claimed(self, claimed: Sequence[Any], next_due_ms: int | None, *, has_more: bool = False) -> None:
        jobs = jobs_from_lists(*claimed)
        self._jobs += jobs
        # Fewer than there was room for means that there are no more.
        self.may_claim_more = has_more or len(jobs) == MOST < self._room
        self._room -= len(jobs)
        if self.may_claim_more:
            given = Counter(job.queue for job in jobs)
            self._wants = [(want, left - _taken(given, want.queue, left)) for want, left in self._wants]
        self._next_due_ms = next_due_ms  # of all queues, as the last call has left them

    def exchanged(self, notes: Sequence[Note]) -> Exchange:
        ends, said = self._settlements, self._said
        return Exchange(
            settled=tuple([end.job_id for number, end in enumerate(ends) if number not in said]),
            repeated=tuple(ends[number].job_id for number in sorted(said) if said[number] == _REPEATED),
            refused=tuple(
                Refusal(lease=Lease(ends[number].job_id, ends[number].attempt), reason=said[number].decode())
                for number in sorted(said)
                if said[number] != _REPEATED
            ),
            jobs=tuple(self._jobs),
            adopted=tuple(map(job_from_row, self._adopted)),
            cancels=cancels_of(self._cancels),
            next_due_ms=self._next_due_ms,
            unnoted=tuple(
                Refusal(lease=note.lease, reason=why_not.decode())
                for note, why_not in zip(notes, self._noted, strict=True)
                if why_not
            ),
        )


def _taken(given: Counter[QueueName], queue: QueueName, most: int) -> int:
    """How many of the given jobs were for a want of this queue; they are counted once."""
    number = min(given[queue], most)
    given[queue] -= number
    return number


def cancels_of(found: Sequence[Sequence[bytes]]) -> tuple[Cancel, ...]:
    return tuple(Cancel(JobId(job_id.decode()), reason.decode()) for job_id, reason in found)


def _want(want: Want, left: int) -> tuple[Any, ...]:
    return (
        want.queue,
        min(left, MOST),
        want.lease_ms or False,
        False if want.gates is None else list(want.gates),
        want._replace(most=min(want.most, MOST)).most_held,
    )


def _ending(end: Settlement, arguments: list[bytes | str], intake: Intake) -> tuple[Any, ...]:
    for place, job in enumerate(end.follow_ups):
        intake.add(job if job.parent_id is not None else replace(job, parent_id=end.job_id), place)
    return (
        end.job_id,
        end.attempt,
        end.ending.value,
        end.state.value,
        end.failures,
        end.crashes,
        end.delay_ms,
        False if end.reason is None else _written(end.reason),
        False if end.gate is None else _written(end.gate),
        _argument(packed_result(end.result), arguments),
        False if end.error is None else _error_text(end.error),
        len(end.follow_ups),
        end.charge is not None and end.charge.tokens,
        end.charge is not None and end.charge.scopes,
        end.unstarted or False,
    )


def _written(text: str) -> str | bool:
    """The text; True for one that cannot be written. Only the holder of a lease is told so, by the script."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return text


def _error_text(error: AttemptError) -> str | bool:
    try:
        return json_text(cut(error))
    except UnicodeEncodeError:
        return True


def _argument(value: bytes, arguments: list[bytes | str]) -> int:
    """The number under which a script finds these bytes."""
    arguments.append(value)
    return _FIRST + len(arguments) - 1


def _note(note: Note, arguments: list[bytes | str]) -> tuple[Any, ...]:
    kept = as_kept(note, 0)
    lines: list[Any] = []
    for line in kept.lines:
        lines += (line.place or False, line_stored(line, line_text(line)))
    steps: list[Any] = []
    for step in kept.steps:
        steps += (_written(step.name), _argument(step_stored(step), arguments))
    attempt = note.lease.attempt
    progress = False if kept.progress is None else f"{attempt} {progress_text(kept.progress)}"
    return (note.lease.job_id, attempt, progress, lines, steps)
