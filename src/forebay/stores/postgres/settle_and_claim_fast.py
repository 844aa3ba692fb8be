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
from forebay.stores.contract.values import PendingCancel, QueueClaim, SettleAndClaimResult
from forebay.stores.postgres.binary import (
    Packed,
    bigint,
    bigints,
    blobs,
    boolean,
    text,
    texts,
    uniform_texts,
)
from forebay.stores.postgres.claim_cursor import (
    HEAD,
    LATE_MS,
    ClaimCursor,
    CursorProgress,
    TxSnapshot,
    advance_cursor,
    max_arrivals,
)
from forebay.stores.postgres.connection import RETRYABLE_ERRORS, Connection, Raw, RetryTransaction, Statements
from forebay.stores.postgres.errors import DRIVER_ERRORS
from forebay.stores.postgres.prepared_statement import PreparedStatement, execute_pipelined
from forebay.stores.postgres.settle import is_simple_success
from forebay.stores.postgres.transaction import HandleCache
from forebay.stores.shared.partial_calls import raise_as_lost_response
from forebay.stores.shared.rows import CANDIDATE_COLUMNS, Row, job_from_candidate, settings_from_text

# What is special mostly stays so for a while, and to find it out takes a trip: so many exchanges after it go
# the long way at once.
SLOW_PATH_CALLS: Final = 8
# A job that has completed with fewer dependants is mostly one of many parents of a join.
FEW_DEPENDANTS: Final = 10
_COLUMNS: Final = 20  # of a job; those of the last row follow
_ANSWERS: Final = 31  # with these; what comes then is for the next statement


_NOTHING: Final = nullcontext()


class PartialResult(NamedTuple):
    """What of an exchange is done, if anything is, and what is left of it for the long way."""

    done: SettleAndClaimResult | None
    settlements: Sequence[Settlement]
    claims: Sequence[QueueClaim]

    @property
    def complete_result(self) -> SettleAndClaimResult | None:
        """The exchange, if nothing is left of it."""
        return None if self.settlements or self.claims else self.done

    @property
    def claimed(self) -> int:
        return 0 if self.done is None else len(self.done.jobs)

    def merge(self, rest: SettleAndClaimResult) -> SettleAndClaimResult:
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


class FastRequest(NamedTuple):
    """What is asked for."""

    worker: WorkerId
    settlements: Sequence[Settlement]
    claim: QueueClaim
    room: int
    settings: str  # those of the queue, as this handle knows them
    is_limited: bool
    resolves_inline: bool = False  # whether others may depend on what has ended
    start: ClaimCursor = HEAD
    is_rescan: bool = False

    @property
    def queue(self) -> QueueName:
        return self.claim.queue

    @property
    def lease_ms(self) -> int:
        return self.claim.lease_ms or settings_from_text(self.settings).lease_ms


class FastResponse(NamedTuple):
    """How it went: the last row."""

    snapshot: str
    now: int
    next_due: int | None
    needs_slow_path: bool
    claims_need_slow_path: bool
    arrivals: int
    seconds: float | None
    settled: list[JobId] | None  # None if all are
    cancels: list[JobId] | None
    cancel_reasons: list[str] | None
    outbox_ids: list[int] | None
    # Under limits: how many might have started, whether there are limits still, whether somebody waits for a
    # place that has become free, and how many have ended of queues with a limit of their own.
    room: int | None = None
    has_limits: bool = False
    has_waiting_lane: bool = False
    ended_by_queue: Mapping[str, int] = MappingProxyType({})
    # Where those that depend on what has ended were told at once.
    has_dependants: bool = False

    @property
    def has_claimed_nothing(self) -> bool:
        """Whether nothing was claimed, because the long way has to look."""
        return self.needs_slow_path or self.claims_need_slow_path

    @property
    def next_due_ms(self) -> int | None:
        return None if self.next_due is None else max(0, self.next_due - self.now)

    def limited_room(self, requested: int) -> int:
        return requested if self.room is None else self.room


class FreedSlots(NamedTuple):
    """What has ended under limits in one exchange: how many jobs, how many of queues with a limit of their
    own, and whether anybody waits behind a gate for a place of one."""

    settled: int = 0
    by_queue: Mapping[str, int] = MappingProxyType({})
    has_waiting_lane: bool = False

    def add(self, settled: int, answer: FastResponse) -> FreedSlots:
        # Only the first want of an exchange has ends with it.
        return FreedSlots(
            self.settled + settled,
            self.by_queue or answer.ended_by_queue,
            self.has_waiting_lane or answer.has_waiting_lane,
        )

    def has_spare_slots(self, jobs: Sequence[Job]) -> bool:
        """Whether others may want a place that these jobs do not take."""
        if self.has_waiting_lane or self.settled > len(jobs):
            return True
        taken = Counter(job.queue for job in jobs) if self.by_queue else {}
        return any(ended > taken.get(QueueName(queue), 0) for queue, ended in self.by_queue.items())


class FastSettleAndClaim:
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

    def __init__(self, connection: Connection, statements: Statements, cache: HandleCache) -> None:
        self._connection = connection
        self._statement = PreparedStatement("settle_and_claim", statements["settle_and_claim"])
        self._settle_first = PreparedStatement("settle_before_claim", statements["settle_before_claim"])
        self._lock_limits = PreparedStatement("limits_lock", statements["limits_lock"])
        self._claim_limited = PreparedStatement("claim_limited", statements["claim_limited"])
        self._resolve_inline = PreparedStatement("resolve_inline", statements["resolve_inline"])
        self._cache = cache
        # By queue: for how many more exchanges, and whether limits were known then. With them there is
        # another way, and what was special may be so no more.
        self._slow_path_left: dict[QueueName, tuple[int, bool]] = {}
        self._slots = FreedSlots()
        self._had_dependants = False  # some of what ended last
        self._contended = 0  # for so many exchanges more others are likely to have the same joins in hand
        # Lines of the list of what the ends of jobs mean for others, and those of them that `meet` need not
        # look at: it would find what this exchange has found.
        self.outbox_ids: list[int] = []
        self.resolved_ids: set[int] = set()

    def run(
        self, worker: WorkerId, settlements: Sequence[Settlement], claims: Sequence[QueueClaim], room: int
    ) -> PartialResult:
        """Do what can be done this way: one want after the other, until one has to go the long way."""
        self._slots = FreedSlots()
        nothing = PartialResult(None, settlements, claims)
        # A pooler may give the next statement to a session where it was not prepared.
        if not claims or self._connection.address.pooled or not _fit_fast_path(settlements):
            return nothing
        settings = [self._cache.open_queues.get(want.queue) for want in claims]
        put_off = [self._is_put_off(want.queue) for want in claims]
        if None in settings or any(put_off):
            return nothing
        # In this order a place among them is found by a binary search.
        part = PartialResult(None, sorted(settlements, key=lambda end: end.job_id), claims)
        for want, known in zip(claims, settings, strict=True):
            ends = part.settlements if part.done is None else ()
            # Also without room: what is due in this queue has to be found, or when something will be.
            most = max(0, min(want.limit, room - part.claimed))
            is_limited = self._is_limited(want, ends)
            meets = bool(ends) and not is_limited and self._may_resolve_inline()
            try:
                with raise_as_lost_response() if part.claimed else _NOTHING:
                    step = self._run_step(
                        FastRequest(worker, ends, want, most, known or "", is_limited, meets)
                    )
            except StoreBusy:
                if part.done is None:
                    raise
                break  # what was done before is committed, and the long way goes on from there
            if step is None or step.done is None:
                break
            left = step.settlements if part.done is None else part.settlements
            part = PartialResult(part.merge(step.done), left, [*step.claims, *part.claims[1:]])
            if step.claims:
                break
        return nothing if part.done is None else part

    def has_spare_slots(self, jobs: Sequence[Job]) -> bool:
        """Whether others should look, now that these were claimed in the same exchange: what has ended this
        way has told nobody."""
        return self._slots.has_spare_slots(jobs)

    def _run_step(self, request: FastRequest) -> PartialResult | None:
        """What becomes of one want; None if nothing was done."""
        try:
            return self._connection.call(lambda raw: self._run_queue(raw, request))
        except RetryTransaction:
            return None

    def _is_limited(self, request: QueueClaim, ends: Sequence[Settlement]) -> bool:
        """Also in a queue without limits: one that has ended may free a place that others wait for."""
        return request.queue in self._cache.limited or bool(ends and self._cache.limited)

    def _may_resolve_inline(self) -> bool:
        """Whether to tell those that depend on what ends at once. Where other workers end parents of the same
        join, one of us would do so and the others try in vain: then all put them on the list."""
        if not self._had_dependants or self._contended:
            self._contended = max(0, self._contended - 1)
            return False
        return True

    def _is_put_off(self, queue: QueueName) -> bool:
        is_limited = bool(self._cache.limited)
        left, was_limited = self._slow_path_left.pop(queue, (0, is_limited))
        if not left or was_limited != is_limited:
            return False
        self._slow_path_left[queue] = left - 1, is_limited
        return True

    def _run_queue(self, raw: Raw, request: FastRequest) -> PartialResult | None:
        cursors = self._cache.cursors
        cursors.reset_if_reconnected(self._connection.generation)
        request = request._replace(start=cursors.start(request.queue))
        answer, jobs = self._execute(raw, request)
        settled, left = _split_settled(request.settlements, answer)
        self.outbox_ids += answer.outbox_ids or ()
        if request.is_limited:
            self._slots = self._slots.add(len(settled), answer)
        if answer.has_claimed_nothing:
            self._slow_path_left[request.queue] = SLOW_PATH_CALLS, bool(self._cache.limited)
            is_nothing_done = answer.needs_slow_path and not request.is_limited
            return (
                None
                if is_nothing_done
                else PartialResult(SettleAndClaimResult(settled=settled), left, [request.claim])
            )
        request = request._replace(room=answer.limited_room(request.room))
        wants: Sequence[QueueClaim] = ()
        if self._should_rescan(request, answer, len(jobs)):
            more, wants = self._rescan_from_head(raw, request, request.room - len(jobs))
            jobs += more
        cancels = tuple(sorted(map(PendingCancel, answer.cancels or (), answer.cancel_reasons or ())))
        done = SettleAndClaimResult(
            settled=settled, jobs=tuple(jobs), cancels=cancels, next_due_ms=answer.next_due_ms
        )
        return PartialResult(done, left, wants)

    def _rescan_from_head(
        self, raw: Raw, request: FastRequest, room: int
    ) -> tuple[list[Job], Sequence[QueueClaim]]:
        """What is found from the head, and what is left for the long way. The first look is committed:
        whatever becomes of this one, what that one has settled and leased must be answered."""
        again = request._replace(settlements=(), resolves_inline=False, room=room, start=HEAD, is_rescan=True)
        try:
            answer, jobs = self._execute(raw, again)
            is_done = not answer.has_claimed_nothing
        except (RetryTransaction, *RETRYABLE_ERRORS):
            is_done = False
        except DRIVER_ERRORS:
            return [], ()  # a store that is away says so at the next call
        if is_done:
            return jobs, ()
        self._slow_path_left[request.queue] = SLOW_PATH_CALLS, bool(self._cache.limited)
        return [], [request.claim._replace(limit=room)]

    def _should_rescan(self, request: FastRequest, answer: FastResponse, found: int) -> bool:
        """What no arrival tells is found from the head, where it matters: when there is too little else. So
        are arrivals, where others have in hand all that were looked at."""
        if found == request.room or request.start.is_at_head:
            return False
        return self._cache.cursors.may_scan_head(request.queue) or (found == 0 and answer.arrivals > 0)

    def _execute(self, raw: Raw, request: FastRequest) -> tuple[FastResponse, list[Job]]:
        ask = self._execute_unlimited
        if request.is_limited:
            ask = self._execute_limited
        elif request.resolves_inline:
            ask = self._execute_with_dependencies
        rows, answer = ask(raw, request)
        if request.settlements:
            self._had_dependants = answer.has_dependants or bool(answer.outbox_ids)
        lease_ms = request.lease_ms
        if answer.limited_room(request.room) and not answer.has_claimed_nothing:
            self._advance_cursor(request, answer, rows)
        jobs = [
            job_from_candidate(row[:CANDIDATE_COLUMNS], request.worker, answer.now, lease_ms, lease_ms)
            for row in rows
        ]
        jobs.sort(key=lambda job: (job.rank, job.seq))
        return answer, jobs

    def _execute_unlimited(self, raw: Raw, request: FastRequest) -> tuple[list[Row], FastResponse]:
        *rows, last = self._statement.rows(raw, self._values(request))
        return rows, FastResponse(*last[_COLUMNS:_ANSWERS])

    def _execute_with_dependencies(self, raw: Raw, request: FastRequest) -> tuple[list[Row], FastResponse]:
        values = {**self._values(request), "max_dependants": bigint(FEW_DEPENDANTS)}
        (*rows, last), [met] = execute_pipelined(raw, [self._statement, self._resolve_inline], values)
        parents, listed, is_held_up = met
        if is_held_up:
            self._contended = SLOW_PATH_CALLS
        else:
            self.resolved_ids.update(listed or ())
        answer = FastResponse(*last[_COLUMNS:_ANSWERS])
        return rows, answer._replace(outbox_ids=listed, has_dependants=parents > 0)

    def _execute_limited(self, raw: Raw, request: FastRequest) -> tuple[list[Row], FastResponse]:
        calls = [self._settle_first] if request.settlements else []
        calls += (self._lock_limits, self._claim_limited)
        values = {**self._values(request), "scopes": texts(scopes_of(request.queue))}
        try:
            *before, _, (*rows, last) = execute_pipelined(raw, calls, values)
        except (DataError, UniqueViolation) as exc:
            # Options that are damaged or hold a zero character, of which the long way reads what can be read;
            # or a place that was left behind, of which there cannot be two.
            raise RetryTransaction from exc
        answer = FastResponse(*last[_COLUMNS:])
        if not answer.has_limits:
            self._cache.limited.discard(request.queue)
        for settled, listed, queues, jobs, _ in chain.from_iterable(before):
            freed = dict(zip(queues or (), jobs or (), strict=True))
            answer = answer._replace(settled=settled, outbox_ids=listed, ended_by_queue=freed)
        return rows, answer

    def _advance_cursor(self, request: FastRequest, answer: FastResponse, rows: list[Row]) -> None:
        """Move the cursor; all that was found is gone."""
        cursors, queue = self._cache.cursors, request.queue
        if request.start.is_at_head and answer.seconds is not None:
            cursors.record_head_scan(queue, answer.seconds)
        late = [(row[13], row[1]) for row in rows if row[19]]
        is_enough = len(rows) == answer.limited_room(request.room)
        passed = CursorProgress(
            [(row[13], row[1]) for row in rows],
            late,
            has_arrivals_left=answer.arrivals > len(late),
            has_many_arrivals=answer.arrivals == max_arrivals(request.room),
            is_exhausted=not is_enough,
        )
        # Our own transaction has put nothing into the order. A second look may have passed over what the
        # first one has left to be asked for again.
        kept = cursors.of(queue)
        seen = kept.seen if request.is_rescan else TxSnapshot.of(answer.snapshot, None)
        cursors.record_result(queue, enough=is_enough)
        cursors.apply(
            {queue: advance_cursor(kept, request.start, passed, seen)}, {queue: answer.now - LATE_MS}
        )

    def _values(self, request: FastRequest) -> dict[str, Packed]:
        ends, want, start = request.settlements, request.claim, request.start
        return {
            "queue": text(request.queue),
            "settings": text(request.settings),
            "since": bigint(self._cache.cursors.due_from(request.queue)),
            "lanes": None if want.lanes is None else texts(list(want.lanes)),
            "ids": uniform_texts([end.job_id for end in ends]),
            "attempts": bigints([end.attempt for end in ends]),
            "results": blobs([end.result for end in ends]),
            "worker": text(request.worker),
            "after_rank": bigint(start.rank),
            "after_seq": bigint(start.seq),
            "xmax": text(start.seen.xmax),
            "running_xids": texts(start.seen.under_way),
            "room": bigint(request.room),
            "max_payload": bigint(want.largest_payload),
            "max_arrivals": bigint(max_arrivals(request.room)),
            "lease_ms": bigint(request.lease_ms),
            "extension_ms": bigint(DAY_MS),
            "resolves_inline": boolean(request.resolves_inline),
        }


def _fit_fast_path(settlements: Sequence[Settlement]) -> bool:
    is_each_once = len({end.job_id for end in settlements}) == len(settlements)
    return is_each_once and all(
        is_simple_success(end) and end.reason is None and end.charge is None for end in settlements
    )


def _split_settled(
    settlements: Sequence[Settlement], answer: FastResponse
) -> tuple[tuple[JobId, ...], list[Settlement]]:
    """Which are settled, and those whose lease was not found with this attempt and worker."""
    ids = tuple(end.job_id for end in settlements)
    if answer.settled is None:
        return ids, []
    settled = set(answer.settled)
    left = [end for end in settlements if end.job_id not in settled]
    return tuple(job_id for job_id in ids if job_id in settled), left
