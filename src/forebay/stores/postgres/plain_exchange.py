"""An exchange that has nothing special about it, in one statement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from itertools import chain
from types import MappingProxyType
from typing import Final, NamedTuple

from msgspec.structs import replace
from psycopg import DataError
from psycopg.errors import UniqueViolation

from forebay.domain.job import DAY_MS, Job, JobId, QueueName, WorkerId
from forebay.domain.limits import scopes_of
from forebay.domain.settlement import Settlement
from forebay.errors import StoreBusy
from forebay.stores.parts import as_lost_answer
from forebay.stores.postgres.calling import Call, together
from forebay.stores.postgres.connection import PASSING, Connection, Raw, Statements, TryAgain
from forebay.stores.postgres.cursor import HEAD, LATE_MS, Cursor, Passed, Snapshot, most_arrivals, moved
from forebay.stores.postgres.meaning import DRIVER_ERRORS
from forebay.stores.postgres.packing import Packed, alike, bigint, bigints, blobs, boolean, text, texts
from forebay.stores.postgres.settling import is_plain
from forebay.stores.postgres.transaction import Memory
from forebay.stores.protocol import Cancel, Exchange, Want
from forebay.stores.rows import CLAIMED, Row, claimed_job, settings_from_text

# What is special mostly stays so for a while, and to find it out takes a trip: so many exchanges after it go
# the long way at once.
PUT_OFF: Final = 8
# A job that has completed with fewer dependants is mostly one of many parents of a join.
FEW: Final = 10
_COLUMNS: Final = 20  # of a job; those of the last row follow
_ANSWERS: Final = 31  # with these; what comes then is for the next statement


_NOTHING: Final = nullcontext()


class Part(NamedTuple):
    """What of an exchange is done, if anything is, and what is left of it for the long way."""

    done: Exchange | None
    settlements: Sequence[Settlement]
    wants: Sequence[Want]

    @property
    def whole(self) -> Exchange | None:
        """The exchange, if nothing is left of it."""
        return None if self.settlements or self.wants else self.done

    @property
    def claimed(self) -> int:
        return 0 if self.done is None else len(self.done.jobs)

    def joined(self, rest: Exchange) -> Exchange:
        """The whole exchange, once the rest is done too."""
        done = self.done
        if done is None:
            return rest
        dues = [due for due in (done.next_due_ms, rest.next_due_ms) if due is not None]
        return replace(
            rest,
            settled=done.settled + rest.settled,
            jobs=done.jobs + rest.jobs,
            next_due_ms=min(dues, default=None),
        )


class Asked(NamedTuple):
    """What is asked for."""

    worker: WorkerId
    settlements: Sequence[Settlement]
    want: Want
    room: int
    settings: str  # those of the queue, as this handle knows them
    is_limited: bool
    meets: bool = False  # whether others may depend on what has ended
    start: Cursor = HEAD
    is_again: bool = False

    @property
    def queue(self) -> QueueName:
        return self.want.queue

    @property
    def lease_ms(self) -> int:
        return self.want.lease_ms or settings_from_text(self.settings).lease_ms


class Answer(NamedTuple):
    """How it went: the last row."""

    snapshot: str
    now: int
    next_due: int | None
    is_special: bool
    is_strange: bool
    came: int
    seconds: float | None
    settled: list[JobId] | None  # None if all are
    cancels: list[JobId] | None
    cancel_reasons: list[str] | None
    listed: list[int] | None
    # Under limits: how many might have started, whether there are limits still, whether somebody waits for a
    # place that has become free, and how many have ended of queues with a limit of their own.
    room: int | None = None
    has_limits: bool = False
    has_opened: bool = False
    freed: Mapping[str, int] = MappingProxyType({})
    # Where those that depend on what has ended were told at once.
    has_dependants: bool = False

    @property
    def is_undone(self) -> bool:
        """Whether nothing was claimed, because the long way has to look."""
        return self.is_special or self.is_strange

    @property
    def next_due_ms(self) -> int | None:
        return None if self.next_due is None else max(0, self.next_due - self.now)

    def room_within(self, asked: int) -> int:
        return asked if self.room is None else self.room


class Freed(NamedTuple):
    """What has ended under limits in one exchange: how many jobs, how many of queues with a limit of their
    own, and whether anybody waits behind a gate for a place of one."""

    settled: int = 0
    by_queue: Mapping[str, int] = MappingProxyType({})
    has_opened: bool = False

    def more(self, settled: int, answer: Answer) -> Freed:
        # Only the first want of an exchange has ends with it.
        return Freed(
            self.settled + settled, self.by_queue or answer.freed, self.has_opened or answer.has_opened
        )

    def is_left_by(self, jobs: Sequence[Job]) -> bool:
        """Whether others may want a place that these jobs do not take."""
        if self.has_opened or self.settled > len(jobs):
            return True
        taken = Counter(job.queue for job in jobs) if self.by_queue else {}
        return any(ended > taken.get(QueueName(queue), 0) for queue, ended in self.by_queue.items())


class PlainExchange:
    """The common case of an exchange: successes, and claims from queues that this handle knows, in one trip
    and one commit for each want. All that has ended goes with the first.

    Where there is more to it the statement does nothing, or settles and claims nothing, and the long way goes
    on from there. Should that fail, it is as if the answer to a whole exchange were lost: settlements that
    are repeated are known, and leases that the caller does not know of are adopted.

    Under limits it is three statements in one trip and one transaction: what has ended, the locks of the
    limits, and the claim. Where others depend on what has ended, a second statement goes along in the same
    way: it tells those that wait for more, and puts the rest on the list. Whether that is so is found out by
    the exchange: what ended with the last one says what to expect of the next.
    """

    def __init__(self, connection: Connection, statements: Statements, memory: Memory) -> None:
        self._connection = connection
        self._call = Call("exchange", statements["exchange"])
        self._settle_first = Call("settle_first", statements["settle_first"])
        self._lock_limits = Call("limits_lock", statements["limits_lock"])
        self._claim_within = Call("claim_within", statements["claim_within"])
        self._meet_now = Call("meet_now", statements["meet_now"])
        self._memory = memory
        # By queue: for how many more exchanges, and whether limits were known then. With them there is
        # another way, and what was special may be so no more.
        self._put_off: dict[QueueName, tuple[int, bool]] = {}
        self._freed = Freed()
        self._had_dependants = False  # some of what ended last
        self._crowded = 0  # for so many exchanges more others are likely to have the same joins in hand
        # Lines of the list of what the ends of jobs mean for others, and those of them that `meet` need not
        # look at: it would find what this exchange has found.
        self.listed: list[int] = []
        self.looked_at: set[int] = set()

    def exchange(
        self, worker: WorkerId, settlements: Sequence[Settlement], wants: Sequence[Want], room: int
    ) -> Part:
        """Do what can be done this way: one want after the other, until one has to go the long way."""
        self._freed = Freed()
        nothing = Part(None, settlements, wants)
        # A pooler may give the next statement to a session where it was not prepared.
        if not wants or self._connection.address.pooled or not _are_plain(settlements):
            return nothing
        settings = [self._memory.open_queues.get(want.queue) for want in wants]
        put_off = [self._is_put_off(want.queue) for want in wants]
        if None in settings or any(put_off):
            return nothing
        # In this order a place among them is found by a binary search.
        part = Part(None, sorted(settlements, key=lambda end: end.job_id), wants)
        for want, known in zip(wants, settings, strict=True):
            ends = part.settlements if part.done is None else ()
            # Also without room: what is due in this queue has to be found, or when something will be.
            most = max(0, min(want.most, room - part.claimed))
            is_limited = self._is_limited(want, ends)
            meets = bool(ends) and not is_limited and self._may_meet()
            try:
                with as_lost_answer() if part.claimed else _NOTHING:
                    step = self._step(Asked(worker, ends, want, most, known or "", is_limited, meets))
            except StoreBusy:
                if part.done is None:
                    raise
                break  # what was done before is committed, and the long way goes on from there
            if step is None or step.done is None:
                break
            left = step.settlements if part.done is None else part.settlements
            part = Part(part.joined(step.done), left, [*step.wants, *part.wants[1:]])
            if step.wants:
                break
        return nothing if part.done is None else part

    def leaves_places(self, jobs: Sequence[Job]) -> bool:
        """Whether others should look, now that these were claimed in the same exchange: what has ended this
        way has told nobody."""
        return self._freed.is_left_by(jobs)

    def _step(self, asked: Asked) -> Part | None:
        """What becomes of one want; None if nothing was done."""
        try:
            return self._connection.call(lambda raw: self._done(raw, asked))
        except TryAgain:
            return None

    def _is_limited(self, want: Want, ends: Sequence[Settlement]) -> bool:
        """Also in a queue without limits: one that has ended may free a place that others wait for."""
        return want.queue in self._memory.limited or bool(ends and self._memory.limited)

    def _may_meet(self) -> bool:
        """Whether to tell those that depend on what ends at once. Where other workers end parents of the same
        join, one of us would do so and the others try in vain: then all put them on the list."""
        if not self._had_dependants or self._crowded:
            self._crowded = max(0, self._crowded - 1)
            return False
        return True

    def _is_put_off(self, queue: QueueName) -> bool:
        is_limited = bool(self._memory.limited)
        left, was_limited = self._put_off.pop(queue, (0, is_limited))
        if not left or was_limited != is_limited:
            return False
        self._put_off[queue] = left - 1, is_limited
        return True

    def _done(self, raw: Raw, asked: Asked) -> Part | None:
        cursors = self._memory.cursors
        cursors.keep_for(self._connection.generation)
        asked = asked._replace(start=cursors.start(asked.queue))
        answer, jobs = self._asked(raw, asked)
        settled, left = _sorted_out(asked.settlements, answer)
        self.listed += answer.listed or ()
        if asked.is_limited:
            self._freed = self._freed.more(len(settled), answer)
        if answer.is_undone:
            self._put_off[asked.queue] = PUT_OFF, bool(self._memory.limited)
            is_nothing_done = answer.is_special and not asked.is_limited
            return None if is_nothing_done else Part(Exchange(settled=settled), left, [asked.want])
        asked = asked._replace(room=answer.room_within(asked.room))
        wants: Sequence[Want] = ()
        if self._should_look_again(asked, answer, len(jobs)):
            more, wants = self._looked_again(raw, asked, asked.room - len(jobs))
            jobs += more
        cancels = tuple(sorted(map(Cancel, answer.cancels or (), answer.cancel_reasons or ())))
        done = Exchange(settled=settled, jobs=tuple(jobs), cancels=cancels, next_due_ms=answer.next_due_ms)
        return Part(done, left, wants)

    def _looked_again(self, raw: Raw, asked: Asked, room: int) -> tuple[list[Job], Sequence[Want]]:
        """What is found from the head, and what is left for the long way. The first look is committed:
        whatever becomes of this one, what that one has settled and leased must be answered."""
        again = asked._replace(settlements=(), meets=False, room=room, start=HEAD, is_again=True)
        try:
            answer, jobs = self._asked(raw, again)
            is_done = not answer.is_undone
        except (TryAgain, *PASSING):
            is_done = False
        except DRIVER_ERRORS:
            return [], ()  # a store that is away says so at the next call
        if is_done:
            return jobs, ()
        self._put_off[asked.queue] = PUT_OFF, bool(self._memory.limited)
        return [], [asked.want._replace(most=room)]

    def _should_look_again(self, asked: Asked, answer: Answer, found: int) -> bool:
        """What no arrival tells is found from the head, where it matters: when there is too little else. So
        are arrivals, where others have in hand all that were looked at."""
        if found == asked.room or asked.start.is_at_head:
            return False
        return self._memory.cursors.may_look(asked.queue) or (found == 0 and answer.came > 0)

    def _asked(self, raw: Raw, asked: Asked) -> tuple[Answer, list[Job]]:
        ask = self._asked_freely
        if asked.is_limited:
            ask = self._asked_within
        elif asked.meets:
            ask = self._asked_and_met
        rows, answer = ask(raw, asked)
        if asked.settlements:
            self._had_dependants = answer.has_dependants or bool(answer.listed)
        lease_ms = asked.lease_ms
        if answer.room_within(asked.room) and not answer.is_undone:
            self._pass(asked, answer, rows)
        jobs = [claimed_job(row[:CLAIMED], asked.worker, answer.now, lease_ms, lease_ms) for row in rows]
        jobs.sort(key=lambda job: (job.rank, job.seq))
        return answer, jobs

    def _asked_freely(self, raw: Raw, asked: Asked) -> tuple[list[Row], Answer]:
        *rows, last = self._call.rows(raw, self._values(asked))
        return rows, Answer(*last[_COLUMNS:_ANSWERS])

    def _asked_and_met(self, raw: Raw, asked: Asked) -> tuple[list[Row], Answer]:
        values = {**self._values(asked), "few": bigint(FEW)}
        (*rows, last), [met] = together(raw, [self._call, self._meet_now], values)
        parents, listed, is_held_up = met
        if is_held_up:
            self._crowded = PUT_OFF
        else:
            self.looked_at.update(listed or ())
        answer = Answer(*last[_COLUMNS:_ANSWERS])
        return rows, answer._replace(listed=listed, has_dependants=parents > 0)

    def _asked_within(self, raw: Raw, asked: Asked) -> tuple[list[Row], Answer]:
        calls = [self._settle_first] if asked.settlements else []
        calls += (self._lock_limits, self._claim_within)
        values = {**self._values(asked), "scopes": texts(scopes_of(asked.queue))}
        try:
            *before, _, (*rows, last) = together(raw, calls, values)
        except (DataError, UniqueViolation) as exc:
            # Options that are damaged or hold a zero character, of which the long way reads what can be read;
            # or a place that was left behind, of which there cannot be two.
            raise TryAgain from exc
        answer = Answer(*last[_COLUMNS:])
        if not answer.has_limits:
            self._memory.limited.discard(asked.queue)
        for settled, listed, queues, jobs, _ in chain.from_iterable(before):
            freed = dict(zip(queues or (), jobs or (), strict=True))
            answer = answer._replace(settled=settled, listed=listed, freed=freed)
        return rows, answer

    def _pass(self, asked: Asked, answer: Answer, rows: list[Row]) -> None:
        """Move the cursor; all that was found is gone."""
        cursors, queue = self._memory.cursors, asked.queue
        if asked.start.is_at_head and answer.seconds is not None:
            cursors.looked(queue, answer.seconds)
        late = [(row[13], row[1]) for row in rows if row[19]]
        is_enough = len(rows) == answer.room_within(asked.room)
        passed = Passed(
            [(row[13], row[1]) for row in rows],
            late,
            is_left=answer.came > len(late),
            is_much=answer.came == most_arrivals(asked.room),
            is_all=not is_enough,
        )
        # Our own transaction has put nothing into the order. A second look may have passed over what the
        # first one has left to be asked for again.
        kept = cursors.of(queue)
        seen = kept.seen if asked.is_again else Snapshot.of(answer.snapshot, None)
        cursors.found(queue, enough=is_enough)
        cursors.move({queue: moved(kept, asked.start, passed, seen)}, {queue: answer.now - LATE_MS})

    def _values(self, asked: Asked) -> dict[str, Packed]:
        ends, want, start = asked.settlements, asked.want, asked.start
        return {
            "queue": text(asked.queue),
            "settings": text(asked.settings),
            "since": bigint(self._memory.cursors.due_from(asked.queue)),
            "gates": None if want.gates is None else texts(list(want.gates)),
            "ids": alike([end.job_id for end in ends]),
            "attempts": bigints([end.attempt for end in ends]),
            "results": blobs([end.result for end in ends]),
            "worker": text(asked.worker),
            "after_rank": bigint(start.rank),
            "after_seq": bigint(start.seq),
            "xmax": text(start.seen.xmax),
            "under_way": texts(start.seen.under_way),
            "room": bigint(asked.room),
            "max_payload": bigint(want.largest_payload),
            "most": bigint(most_arrivals(asked.room)),
            "lease_ms": bigint(asked.lease_ms),
            "extension_ms": bigint(DAY_MS),
            "meets": boolean(asked.meets),
        }


def _are_plain(settlements: Sequence[Settlement]) -> bool:
    is_each_once = len({end.job_id for end in settlements}) == len(settlements)
    return is_each_once and all(
        is_plain(end) and end.reason is None and end.charge is None for end in settlements
    )


def _sorted_out(
    settlements: Sequence[Settlement], answer: Answer
) -> tuple[tuple[JobId, ...], list[Settlement]]:
    """Which are settled, and those whose lease was not found with this attempt and worker."""
    ids = tuple(end.job_id for end in settlements)
    if answer.settled is None:
        return ids, []
    settled = set(answer.settled)
    left = [end for end in settlements if end.job_id not in settled]
    return tuple(job_id for job_id in ids if job_id in settled), left
