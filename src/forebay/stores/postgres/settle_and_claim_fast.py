"""Settle and claim in one call: the fast path, one statement for the common case."""

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

from forebay.domain.concurrency_and_rate_limits import scopes_of
from forebay.domain.job import DAY_MS, Job, JobId, QueueName, WorkerId
from forebay.domain.settlement import Settlement
from forebay.errors import StoreBusy
from forebay.stores.contract.claims_and_results import PendingCancel, QueueClaim, SettleAndClaimResult
from forebay.stores.postgres.binary_parameters import (
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
from forebay.stores.shared.partial_failures import raise_as_lost_response
from forebay.stores.shared.rows import CANDIDATE_COLUMNS, Row, job_from_candidate, settings_from_text

# A case for the slow path mostly stays one for a while, and detecting it takes a round trip: so many calls
# after it take the slow path at once.
SLOW_PATH_CALLS: Final = 8
# A completed job with fewer dependants is mostly one of many parents of a join.
FEW_DEPENDANTS: Final = 10
_COLUMNS: Final = 20  # of a job; those of the last row follow
_ANSWERS: Final = 31  # end of the response; a later column is for the next statement


_NOTHING: Final = nullcontext()


class PartialResult(NamedTuple):
    """Part of a call that is done, if any, and the rest for the slow path."""

    done: SettleAndClaimResult | None
    settlements: Sequence[Settlement]
    claims: Sequence[QueueClaim]

    @property
    def complete_result(self) -> SettleAndClaimResult | None:
        """Result of the call, if nothing is left of it."""
        return None if self.settlements or self.claims else self.done

    @property
    def claimed(self) -> int:
        return 0 if self.done is None else len(self.done.jobs)

    def merge(self, rest: SettleAndClaimResult) -> SettleAndClaimResult:
        """Merge the result of the rest into that of the whole call."""
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
    """Parameters of one statement: settlements and one queue claim."""

    worker: WorkerId
    settlements: Sequence[Settlement]
    claim: QueueClaim
    room: int
    settings: str  # of the queue, as this handle knows them
    is_limited: bool
    resolves_inline: bool = False  # whether ended jobs may have dependants
    start: ClaimCursor = HEAD
    is_rescan: bool = False

    @property
    def queue(self) -> QueueName:
        return self.claim.queue

    @property
    def lease_ms(self) -> int:
        return self.claim.lease_ms or settings_from_text(self.settings).lease_ms


class FastResponse(NamedTuple):
    """Response of the statement: its last row."""

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
    # Under limits: how many jobs might have started, whether limits still exist, whether a lane waits for a
    # released slot, and how many jobs have ended of queues with a limit of their own.
    room: int | None = None
    has_limits: bool = False
    has_waiting_lane: bool = False
    ended_by_queue: Mapping[str, int] = MappingProxyType({})
    # Set by `resolve_inline`.
    has_dependants: bool = False

    @property
    def has_claimed_nothing(self) -> bool:
        """Whether nothing was claimed, since the slow path is needed."""
        return self.needs_slow_path or self.claims_need_slow_path

    @property
    def next_due_ms(self) -> int | None:
        return None if self.next_due is None else max(0, self.next_due - self.now)

    def limited_room(self, requested: int) -> int:
        return requested if self.room is None else self.room


class ReleasedSlots(NamedTuple):
    """Slots released under limits in one call: ended jobs, also by queue, and waiting lanes."""

    settled: int = 0
    by_queue: Mapping[str, int] = MappingProxyType({})
    has_waiting_lane: bool = False

    def add(self, settled: int, response: FastResponse) -> ReleasedSlots:
        # Only the first statement of a call has settlements.
        return ReleasedSlots(
            self.settled + settled,
            self.by_queue or response.ended_by_queue,
            self.has_waiting_lane or response.has_waiting_lane,
        )

    def has_spare_slots(self, jobs: Sequence[Job]) -> bool:
        """Return whether other workers may use a slot that these jobs do not take."""
        if self.has_waiting_lane or self.settled > len(jobs):
            return True
        taken = Counter(job.queue for job in jobs) if self.by_queue else {}
        return any(ended > taken.get(QueueName(queue), 0) for queue, ended in self.by_queue.items())


class FastSettleAndClaim:
    """Fast path: successes, and claims from queues that this handle knows.

    It takes one round trip and one commit for each queue claim; all settlements go with the first. In any
    other case the statement does nothing, or settles and claims nothing, and the slow path continues from
    there. If that fails, it is as if the response to a whole call were lost: repeated settlements are
    recognised, and unknown leases are recovered.

    Under limits it is three statements in one round trip and one transaction: settlements, locks of the
    limits, and the claim. If ended jobs have dependants, a second statement goes along in the same way: it
    resolves children that wait for more parents, and adds outbox entries for the others. The last call tells
    whether to expect dependants in the next one.
    """

    def __init__(self, connection: Connection, statements: Statements, cache: HandleCache) -> None:
        self._connection = connection
        self._statement = PreparedStatement("settle_and_claim", statements["settle_and_claim"])
        self._settle_first = PreparedStatement("settle_before_claim", statements["settle_before_claim"])
        self._lock_limits = PreparedStatement("limits_lock", statements["limits_lock"])
        self._claim_limited = PreparedStatement("claim_limited", statements["claim_limited"])
        self._resolve_inline = PreparedStatement("resolve_inline", statements["resolve_inline"])
        self._cache = cache
        # By queue: slow path for so many more calls, and whether limits were known then. With known limits
        # another fast path applies.
        self._slow_path_left: dict[QueueName, tuple[int, bool]] = {}
        self._slots = ReleasedSlots()
        self._had_dependants = False  # some of the jobs that ended last
        self._contended = 0  # calls during which other workers probably lock the same joins
        # Outbox entries, and those of them that `resolve_completed` need not try: it would find what this
        # call has found.
        self.outbox_ids: list[int] = []
        self.resolved_ids: set[int] = set()

    def run(
        self, worker: WorkerId, settlements: Sequence[Settlement], claims: Sequence[QueueClaim], room: int
    ) -> PartialResult:
        """Run the queue claims one after the other, until one needs the slow path."""
        self._slots = ReleasedSlots()
        nothing = PartialResult(None, settlements, claims)
        # A pooler may send the next statement to a session in which it is not prepared.
        if not claims or self._connection.address.pooled or not _fit_fast_path(settlements):
            return nothing
        settings = [self._cache.open_queues.get(claim.queue) for claim in claims]
        postponed = [self._is_postponed(claim.queue) for claim in claims]
        if None in settings or any(postponed):
            return nothing
        # The statement finds a position among them by binary search.
        part = PartialResult(None, sorted(settlements, key=lambda end: end.job_id), claims)
        for claim, queue_settings in zip(claims, settings, strict=True):
            batch = part.settlements if part.done is None else ()
            # Also without room: due jobs of this queue must be found, or when the next will be due.
            limit = max(0, min(claim.limit, room - part.claimed))
            is_limited = self._is_limited(claim, batch)
            resolves_inline = bool(batch) and not is_limited and self._may_resolve_inline()
            try:
                with raise_as_lost_response() if part.claimed else _NOTHING:
                    step = self._run_step(
                        FastRequest(
                            worker,
                            batch,
                            claim,
                            limit,
                            queue_settings or "",
                            is_limited,
                            resolves_inline,
                        )
                    )
            except StoreBusy:
                if part.done is None:
                    raise
                break  # earlier claims are committed, and the slow path continues from there
            if step is None or step.done is None:
                break
            left = step.settlements if part.done is None else part.settlements
            part = PartialResult(part.merge(step.done), left, [*step.claims, *part.claims[1:]])
            if step.claims:
                break
        return nothing if part.done is None else part

    def has_spare_slots(self, jobs: Sequence[Job]) -> bool:
        """Return whether other workers should be notified of slots released and not taken by these jobs."""
        return self._slots.has_spare_slots(jobs)

    def _run_step(self, request: FastRequest) -> PartialResult | None:
        """Run one queue claim; None if nothing was done."""
        try:
            return self._connection.call(lambda raw: self._run_queue(raw, request))
        except RetryTransaction:
            return None

    def _is_limited(self, request: QueueClaim, ends: Sequence[Settlement]) -> bool:
        """Return whether limits apply; also without own limits, since an end may release a slot."""
        return request.queue in self._cache.limited or bool(ends and self._cache.limited)

    def _may_resolve_inline(self) -> bool:
        """Return whether to resolve dependants inline.

        If other workers end parents of the same join, one of them succeeds and the others try in vain: then
        all add outbox entries.
        """
        if not self._had_dependants or self._contended:
            self._contended = max(0, self._contended - 1)
            return False
        return True

    def _is_postponed(self, queue: QueueName) -> bool:
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
        response, jobs = self._execute(raw, request)
        settled, left = _split_settled(request.settlements, response)
        self.outbox_ids += response.outbox_ids or ()
        if request.is_limited:
            self._slots = self._slots.add(len(settled), response)
        if response.has_claimed_nothing:
            self._slow_path_left[request.queue] = SLOW_PATH_CALLS, bool(self._cache.limited)
            is_nothing_done = response.needs_slow_path and not request.is_limited
            return (
                None
                if is_nothing_done
                else PartialResult(SettleAndClaimResult(settled=settled), left, [request.claim])
            )
        request = request._replace(room=response.limited_room(request.room))
        claims_left: Sequence[QueueClaim] = ()
        if self._should_rescan(request, response, len(jobs)):
            rescanned, claims_left = self._rescan_from_head(raw, request, request.room - len(jobs))
            jobs += rescanned
        cancels = tuple(sorted(map(PendingCancel, response.cancels or (), response.cancel_reasons or ())))
        done = SettleAndClaimResult(
            settled=settled, jobs=tuple(jobs), cancels=cancels, next_due_ms=response.next_due_ms
        )
        return PartialResult(done, left, claims_left)

    def _rescan_from_head(
        self, raw: Raw, request: FastRequest, room: int
    ) -> tuple[list[Job], Sequence[QueueClaim]]:
        """Claim from the head; return the jobs, and the claim that is left for the slow path.

        The first statement is committed: its settlements and leases must be returned, even if this one fails.
        """
        rescan = request._replace(
            settlements=(), resolves_inline=False, room=room, start=HEAD, is_rescan=True
        )
        try:
            response, jobs = self._execute(raw, rescan)
            is_done = not response.has_claimed_nothing
        except (RetryTransaction, *RETRYABLE_ERRORS):
            is_done = False
        except DRIVER_ERRORS:
            return [], ()  # the next call reports an unavailable store
        if is_done:
            return jobs, ()
        self._slow_path_left[request.queue] = SLOW_PATH_CALLS, bool(self._cache.limited)
        return [], [request.claim._replace(limit=room)]

    def _should_rescan(self, request: FastRequest, response: FastResponse, found: int) -> bool:
        """Return whether to claim again from the head, which finds jobs that are no arrivals.

        It is worth it only if there were too few jobs, or if other workers have locked all arrivals.
        """
        if found == request.room or request.start.is_at_head:
            return False
        return self._cache.cursors.may_scan_head(request.queue) or (found == 0 and response.arrivals > 0)

    def _execute(self, raw: Raw, request: FastRequest) -> tuple[FastResponse, list[Job]]:
        execute = self._execute_unlimited
        if request.is_limited:
            execute = self._execute_limited
        elif request.resolves_inline:
            execute = self._execute_with_dependencies
        rows, response = execute(raw, request)
        if request.settlements:
            self._had_dependants = response.has_dependants or bool(response.outbox_ids)
        lease_ms = request.lease_ms
        if response.limited_room(request.room) and not response.has_claimed_nothing:
            self._advance_cursor(request, response, rows)
        jobs = [
            job_from_candidate(row[:CANDIDATE_COLUMNS], request.worker, response.now, lease_ms, lease_ms)
            for row in rows
        ]
        jobs.sort(key=lambda job: (job.rank, job.seq))
        return response, jobs

    def _execute_unlimited(self, raw: Raw, request: FastRequest) -> tuple[list[Row], FastResponse]:
        *rows, last = self._statement.rows(raw, self._values(request))
        return rows, FastResponse(*last[_COLUMNS:_ANSWERS])

    def _execute_with_dependencies(self, raw: Raw, request: FastRequest) -> tuple[list[Row], FastResponse]:
        values = {**self._values(request), "max_dependants": bigint(FEW_DEPENDANTS)}
        (*rows, last), [resolution] = execute_pipelined(raw, [self._statement, self._resolve_inline], values)
        parents, outbox_ids, is_contended = resolution
        if is_contended:
            self._contended = SLOW_PATH_CALLS
        else:
            self.resolved_ids.update(outbox_ids or ())
        response = FastResponse(*last[_COLUMNS:_ANSWERS])
        return rows, response._replace(outbox_ids=outbox_ids, has_dependants=parents > 0)

    def _execute_limited(self, raw: Raw, request: FastRequest) -> tuple[list[Row], FastResponse]:
        statements = [self._settle_first] if request.settlements else []
        statements += (self._lock_limits, self._claim_limited)
        values = {**self._values(request), "scopes": texts(scopes_of(request.queue))}
        try:
            *before, _, (*rows, last) = execute_pipelined(raw, statements, values)
        except (DataError, UniqueViolation) as exc:
            # Options that are damaged or hold a zero character, which the slow path can handle; or a slot
            # that an older attempt has left behind.
            raise RetryTransaction from exc
        response = FastResponse(*last[_COLUMNS:])
        if not response.has_limits:
            self._cache.limited.discard(request.queue)
        for settled, outbox_ids, queues, jobs, _ in chain.from_iterable(before):
            ended = dict(zip(queues or (), jobs or (), strict=True))
            response = response._replace(settled=settled, outbox_ids=outbox_ids, ended_by_queue=ended)
        return rows, response

    def _advance_cursor(self, request: FastRequest, response: FastResponse, rows: list[Row]) -> None:
        """Move the claim cursor; all found jobs are claimed."""
        cursors, queue = self._cache.cursors, request.queue
        if request.start.is_at_head and response.seconds is not None:
            cursors.record_head_scan(queue, response.seconds)
        late = [(row[13], row[1]) for row in rows if row[19]]
        is_enough = len(rows) == response.limited_room(request.room)
        progress = CursorProgress(
            [(row[13], row[1]) for row in rows],
            late,
            has_arrivals_left=response.arrivals > len(late),
            has_many_arrivals=response.arrivals == max_arrivals(request.room),
            is_exhausted=not is_enough,
        )
        # Our own transaction has inserted nothing into the order. A second scan may have passed over arrivals
        # that the first one has left for the next call.
        stored = cursors.of(queue)
        seen = stored.seen if request.is_rescan else TxSnapshot.of(response.snapshot, None)
        cursors.record_result(queue, enough=is_enough)
        cursors.apply(
            {queue: advance_cursor(stored, request.start, progress, seen)}, {queue: response.now - LATE_MS}
        )

    def _values(self, request: FastRequest) -> dict[str, Packed]:
        settlements, claim, start = request.settlements, request.claim, request.start
        return {
            "queue": text(request.queue),
            "settings": text(request.settings),
            "since": bigint(self._cache.cursors.due_from(request.queue)),
            "lanes": None if claim.lanes is None else texts(list(claim.lanes)),
            "ids": uniform_texts([end.job_id for end in settlements]),
            "attempts": bigints([end.attempt for end in settlements]),
            "results": blobs([end.result for end in settlements]),
            "worker": text(request.worker),
            "after_rank": bigint(start.rank),
            "after_seq": bigint(start.seq),
            "xmax": text(start.seen.xmax),
            "running_xids": texts(start.seen.running_xids),
            "room": bigint(request.room),
            "max_payload": bigint(claim.largest_payload),
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
    settlements: Sequence[Settlement], response: FastResponse
) -> tuple[tuple[JobId, ...], list[Settlement]]:
    """Return the settled jobs, and the settlements whose lease was not found."""
    ids = tuple(end.job_id for end in settlements)
    if response.settled is None:
        return ids, []
    settled = set(response.settled)
    left = [end for end in settlements if end.job_id not in settled]
    return tuple(job_id for job_id in ids if job_id in settled), left
