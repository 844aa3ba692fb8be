"""Claiming: which jobs of a queue come next, and leases on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from heapq import merge
from typing import Final, NamedTuple

import psycopg

from forebay.domain.fairness import fairness_key_of, is_fairness_lane
from forebay.domain.job import Job, UniqueUntil, WorkerId
from forebay.domain.job_history import Event, EventKind
from forebay.domain.job_states import JobState
from forebay.domain.lane import is_limit_lane, limit_fairness_lane, limit_lane, limit_scope_of, task_lane
from forebay.domain.lease import Lease
from forebay.domain.queue import QueueState
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.postgres.claim_cursor import (
    HEAD,
    ClaimCursor,
    CursorProgress,
    TxSnapshot,
    advance_cursor,
    max_arrivals,
)
from forebay.stores.postgres.concurrency_and_rate_limits import (
    acquire_slots,
    load_counters_for,
    mark_lanes_limited,
)
from forebay.stores.postgres.fairness import PostgresFairClaim, join_limit_lanes
from forebay.stores.postgres.transaction import Transaction
from forebay.stores.shared.limit_counters import LimitBudget
from forebay.stores.shared.rows import Row, job_from_candidate

MAX_LANES: Final = 100
_CLAIMABLE: Final = (QueueState.ACTIVE, QueueState.DRAINING)


class Candidate(NamedTuple):
    """Job whose narrow row this transaction has locked and may claim."""

    ctid: str
    effective_priority: int
    lane: str | None  # None in the main order
    is_late: bool  # it has arrived behind the claim cursor
    job: Job
    target_lane: str = ""  # the lane to park it in, if it is not claimed

    @property
    def claim_order(self) -> tuple[int, int]:
        return -self.effective_priority, self.job.seq

    @property
    def rank_key(self) -> tuple[int, int]:
        return self.job.rank, self.job.seq

    @property
    def fairness_key(self) -> str | None:
        """Fairness key of the lane in which it was found."""
        return fairness_key_of(self.lane) if self.lane is not None and is_fairness_lane(self.lane) else None

    @property
    def is_ordinary(self) -> bool:
        """Whether it was in the uncapped main order, for which claim cursors are."""
        return self.lane is None and not self.job.age_capped


class CandidateQuery(NamedTuple):
    """Sent query for the next candidates, with its parameters."""

    cap_ms: int
    room: int
    cursor: ClaimCursor
    snapshot: psycopg.Cursor[Row]
    answers: Sequence[psycopg.Cursor[Row]]


class QueueClaimer:
    """Claim of one queue for one `QueueClaim`."""

    def __init__(self, tx: Transaction, worker: WorkerId, request: QueueClaim) -> None:
        self._tx = tx
        self._worker = worker
        self._request = request
        self._parkings_left = request.max_parked
        self._stored_cursor = tx.cursors.of(request.queue)
        self._cursor = tx.cursors.start(request.queue)
        self._arrivals = 0
        self._prefetched: CandidateQuery | None = None
        self._lane_query: psycopg.Cursor[Row] | None = None
        self._budget = LimitBudget((), 0)
        self._slots: dict[Lease, list[str]] = {}
        self._started = 0
        self._fair_claim: PostgresFairClaim | None = None  # if the queue has fairness keys

    def prefetch(self, room: int) -> None:
        """Send the first query with the remembered settings, before the current ones are loaded."""
        if room > 0:
            self._lane_query = self._query_lanes()
            self._prefetched = self._query_candidates(
                [], self._tx.remembered_cap_ms(self._request.queue), room
            )

    def drop_prefetched(self) -> None:
        """Drop the outdated first query; its locks are released with the commit."""
        self._prefetched = None

    def claim(self, room: int, budget: LimitBudget) -> list[Job]:
        """Claim up to `room` jobs that this worker can run.

        Candidates that it cannot run are parked in the lanes of their tasks or limits. The rest is claimed
        from the jobs behind them.
        """
        self._budget = budget
        limit = min(self._request.limit, room)
        queue = self._tx.queue(self._request.queue)
        if limit <= 0 or queue is None or queue.state not in _CLAIMABLE:
            return []
        self._queue_lease_ms = queue.settings.lease_ms
        self._cap_ms = queue.settings.scoring.cap_ms
        if queue.name in self._tx.fair_queues:
            max_payload = self._request.largest_payload
            self._fair_claim = PostgresFairClaim(self._tx, queue.name, self._cap_ms, max_payload)
        lanes = self._load_lanes()
        query = self._reuse_prefetch(lanes, limit)
        jobs: list[Job] = []
        while True:
            self._arrivals = 0
            candidates = self._load_candidates(query, lanes)
            accepted, parked, is_done = self._split_candidates(candidates)
            self._park(parked)
            jobs += self._start(accepted)
            self._started = len(jobs)
            self._advance_cursor(query, candidates, [*accepted, *parked])
            if is_done and len(jobs) < limit:
                self._budget.add_wait(0)  # enough parked for now; the next call continues
            is_done = is_done or budget.is_rate_exhausted(self._request.queue, len(jobs))
            if not parked or is_done or len(jobs) == limit:
                return jobs
            query = self._query_candidates(lanes, self._cap_ms, limit - len(jobs))

    def _reuse_prefetch(self, lanes: list[str], room: int) -> CandidateQuery:
        """Return the first query if its room and settings are right and there are no lanes to read."""
        first = self._prefetched
        if first is not None and not lanes and (first.cap_ms, first.room) == (self._cap_ms, room):
            return first
        return self._query_candidates(lanes, self._cap_ms, room)

    def _query_candidates(self, lanes: list[str], cap_ms: int, room: int) -> CandidateQuery:
        """Send a query that locks the next jobs of the main order and of these lanes."""
        tx = self._tx
        snapshot = tx.run("snapshot")
        max_payload = self._request.largest_payload
        values = {"queue": self._request.queue, "cap_ms": cap_ms, "room": room, "max_payload": max_payload}
        arrivals = {"max_arrivals": max_arrivals(room), **self._cursor.values()}
        answers = [tx.run("candidates", {**values, **arrivals})]
        answers += [tx.run("lane_candidates", {**values, "lane": lane}) for lane in lanes]
        return CandidateQuery(cap_ms, room, self._cursor, snapshot, answers)

    def _load_candidates(self, query: CandidateQuery, lanes: list[str]) -> list[Candidate]:
        """Return the next candidates in order; if the cursor finds too few, scan from the head."""
        rows = [row for answer in query.answers for row in answer]
        self._arrivals = max(self._arrivals, *(row[4] for row in rows))
        candidates = [self._parse_candidate(row) for row in rows if row[0] is not None]
        if query.cursor.is_at_head:
            self._tx.cursors.record_head_scan(self._request.queue, max(row[5] for row in rows))
        elif len(candidates) < query.room and self._tx.cursors.may_scan_head(self._request.queue):
            self._cursor = HEAD
            return self._load_candidates(self._query_candidates(lanes, self._cap_ms, query.room), lanes)
        candidates.sort(key=lambda candidate: candidate.claim_order)
        if self._fair_claim is not None:
            fair = [self._parse_candidate(row) for _, row in self._fair_claim.candidates(query.room)]
            # Virtual time comes before rank: only the next job of all fairness keys is compared to others.
            candidates = list(merge(candidates, fair, key=lambda candidate: candidate.claim_order))
        return candidates[: query.room]

    def _advance_cursor(
        self, query: CandidateQuery, candidates: list[Candidate], removed: list[Candidate]
    ) -> None:
        """Move the claim cursor behind the removed candidates."""
        queue, row = self._request.queue, query.snapshot.fetchone()
        progress = CursorProgress(
            [candidate.rank_key for candidate in removed if candidate.is_ordinary],
            [candidate.rank_key for candidate in candidates if candidate.is_late],
            has_arrivals_left=self._arrivals > sum(candidate.is_late for candidate in removed),
            has_many_arrivals=self._arrivals == max_arrivals(query.room),
            is_exhausted=len(removed) == len(candidates) < query.room,
        )
        seen = self._cursor.seen if row is None else TxSnapshot.of(*row)
        self._tx.cursors.record_result(queue, enough=len(candidates) == query.room)
        self._stored_cursor = self._cursor = self._tx.advanced_cursors[queue] = advance_cursor(
            self._stored_cursor, self._cursor, progress, seen
        )

    def _parse_candidate(self, row: Row) -> Candidate:
        ctid, effective_priority, lane, is_late, _, _, *columns = row
        lease_ms = self._request.lease_ms, self._queue_lease_ms
        return Candidate(
            ctid,
            effective_priority,
            lane,
            is_late,
            job_from_candidate(columns, self._worker, self._tx.now, *lease_ms),
        )

    def _split_candidates(self, candidates: list[Candidate]) -> tuple[list[Candidate], list[Candidate], bool]:
        """Split candidates into those to claim and those to park.

        The last value is true if the limit of parked jobs is reached: then the rest is left alone.
        """
        accepted: list[Candidate] = []
        parked: list[Candidate] = []
        load_counters_for(self._tx, self._budget, [candidate.job for candidate in candidates])
        for candidate in candidates:
            if self._budget.is_rate_exhausted(self._request.queue, self._started + len(accepted)):
                return accepted, parked, False
            lane = self._lane_for(candidate)
            if lane is None:
                accepted.append(candidate)
            elif self._parkings_left > len(parked):
                parked.append(candidate._replace(target_lane=lane))
            else:
                return accepted, parked, True
        self._parkings_left -= len(parked)
        return accepted, parked, False

    def _lane_for(self, candidate: Candidate) -> str | None:
        """Return the lane to park a job in; None if this worker claims it, with a slot under its limits.

        A job of a fairness lane goes to the lane of its fairness key at the limit.
        """
        job, limits = candidate.job, self._budget
        lane = task_lane(job.task)
        if not self._request.accepts_lane(lane):
            return lane
        scopes = limits.scopes_for(job.task, job.limit_keys)
        scope = limits.first_full_scope(scopes)
        if scope is not None:
            return (
                limit_lane(scope)
                if candidate.fairness_key is None
                else limit_fairness_lane(scope, candidate.fairness_key)
            )
        limits.start(scopes, job.lease_expires_at or 0, job.cost)
        if scopes:
            self._slots[Lease(job.id, job.attempt)] = scopes
        return None

    def _start(self, candidates: list[Candidate]) -> list[Job]:
        if not candidates:
            return []
        tx, jobs = self._tx, [candidate.job for candidate in candidates]
        values = {
            "ctids": [candidate.ctid for candidate in candidates if candidate.lane is None],
            "lane_ctids": [candidate.ctid for candidate in candidates if candidate.lane is not None],
            "queue": self._request.queue,
            "worker": self._worker,
            "now": tx.now,
            "ids": [job.id for job in jobs],
            "seqs": [job.seq for job in jobs],
            "attempts": [job.attempt for job in jobs],
            "lease_ends": [job.lease_expires_at for job in jobs],
            "lease_limits": [tx.now + job.extension_ms for job in jobs],
            "lease_times": [job.lease_ms for job in jobs],
        }
        tx.run("claim", values)
        acquire_slots(tx, self._slots)
        self._slots = {}
        tx.release_keys(
            (job.id, job.queue, job.unique_key) for job in jobs if job.unique_until is UniqueUntil.STARTED
        )
        tx.count_moved(self._request.queue, JobState.PENDING, JobState.RUNNING, len(jobs))
        if self._fair_claim is not None:
            self._fair_claim.record_claimed(
                Counter(
                    candidate.fairness_key for candidate in candidates if candidate.fairness_key is not None
                )
            )
        return jobs

    def _query_lanes(self) -> psycopg.Cursor[Row]:
        return self._tx.run("lanes_claimable", {"queue": self._request.queue, "limit": MAX_LANES})

    def _load_lanes(self) -> list[str]:
        """Return the lanes with jobs that this worker accepts. A queue has few lanes, mostly none."""
        request, rows = self._request, (self._lane_query or self._query_lanes()).fetchall()
        if len(rows) == MAX_LANES and request.lanes is not None:
            rows = self._tx.all("lanes_among", {"queue": request.queue, "lanes": sorted(request.lanes)})
        return [lane for (lane,) in rows if request.accepts_lane(lane)]

    def _park(self, candidates: list[Candidate]) -> None:
        if not candidates:
            return
        tx, jobs = self._tx, [candidate.job for candidate in candidates]
        lanes = [candidate.target_lane for candidate in candidates]
        lane_ctids = [candidate.ctid for candidate in candidates if candidate.lane is not None]
        if lane_ctids:
            # They come from one lane, and by their task belong in another one.
            tx.run("unpark", {"ctids": lane_ctids})
        values = {
            "ctids": [candidate.ctid for candidate in candidates if candidate.lane is None],
            "queue": self._request.queue,
            "now": tx.now,
            "ids": [job.id for job in jobs],
            "touched_ids": []
            if tx.stored_limits or self._fair_claim is not None
            else [job.id for job in jobs],
            "lanes": lanes,
            "age_capped": [job.age_capped for job in jobs],
            "ranks": [job.rank for job in jobs],
            "seqs": [job.seq for job in jobs],
            "expires_at": [job.expires_at for job in jobs],
        }
        tx.run("park", values)
        scopes = {limit_scope_of(lane): None for lane in lanes if is_limit_lane(lane)}
        if scopes:
            # First the fairness keys: a limit lane without jobs of its own stays as long as it has one.
            fair_parked = (
                (candidate.target_lane, candidate.fairness_key)
                for candidate in candidates
                if is_limit_lane(candidate.target_lane)
            )
            fairness_lanes = (
                (limit_scope_of(lane), fairness_key)
                for lane, fairness_key in fair_parked
                if fairness_key is not None
            )
            join_limit_lanes(tx, self._request.queue, fairness_lanes)
            mark_lanes_limited(tx, self._request.queue, list(scopes), self._budget)
        for job, lane in zip(jobs, lanes, strict=True):
            if not is_limit_lane(lane):
                self._record_parked(job, lane)

    def _record_parked(self, job: Job, lane: str) -> None:
        tx = self._tx
        tx.record(
            Event(kind=EventKind.PARKED, job_id=job.id, queue=job.queue, actor=self._worker, detail=lane)
        )
        tx.needs_wakeup = True  # workers that accept these lanes should poll
