"""Claiming: which jobs of a queue come next, and leases on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from heapq import merge
from typing import Final, NamedTuple

import psycopg

from forebay.domain.fairness import fairness_key_of, is_fairness_lane
from forebay.domain.history import Event, EventKind
from forebay.domain.job import Job, UniqueUntil, WorkerId
from forebay.domain.lane import (
    is_limit_lane,
    limit_fairness_lane,
    limit_lane,
    limit_scope_of,
    task_lane,
)
from forebay.domain.lease import Lease
from forebay.domain.lifecycle import JobState
from forebay.domain.queue import QueueState
from forebay.stores.contract.values import QueueClaim
from forebay.stores.postgres.claim_cursor import (
    HEAD,
    ClaimCursor,
    CursorProgress,
    TxSnapshot,
    advance_cursor,
    max_arrivals,
)
from forebay.stores.postgres.fairness import PostgresFairClaim, join_limit_lanes
from forebay.stores.postgres.limits import acquire_slots, load_counters_for, mark_lanes_limited
from forebay.stores.postgres.transaction import Transaction
from forebay.stores.shared.limits import LimitBudget
from forebay.stores.shared.rows import Row, job_from_candidate

MAX_LANES: Final = 100
_CLAIMABLE: Final = (QueueState.ACTIVE, QueueState.DRAINING)


class Candidate(NamedTuple):
    """A job that this transaction has locked: where its narrow row is, its turn, and itself."""

    ctid: str
    effective_priority: int
    lane: str | None  # the gate, if there is one
    is_late: bool  # it has come in behind the cursor
    job: Job
    target_lane: str = ""  # the gate behind which it goes, if it is not taken

    @property
    def claim_order(self) -> tuple[int, int]:
        return -self.effective_priority, self.job.seq

    @property
    def rank_key(self) -> tuple[int, int]:
        return self.job.rank, self.job.seq

    @property
    def fairness_key(self) -> str | None:
        """The share behind whose gate it was found."""
        return fairness_key_of(self.lane) if self.lane is not None and is_fairness_lane(self.lane) else None

    @property
    def is_ordinary(self) -> bool:
        """Whether it stood in the order that cursors are for."""
        return self.lane is None and not self.job.age_capped


class CandidateQuery(NamedTuple):
    """A question for the next jobs that was sent, and how it was asked."""

    cap_ms: int
    room: int
    cursor: ClaimCursor
    snapshot: psycopg.Cursor[Row]
    answers: Sequence[psycopg.Cursor[Row]]


class QueueClaimer:
    """What is taken of one queue for one want."""

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
        self._fair_claim: PostgresFairClaim | None = None  # where the queue has shares

    def prefetch(self, room: int) -> None:
        """Ask before the queue's settings are known, by what they were."""
        if room > 0:
            self._lane_query = self._query_lanes()
            self._prefetched = self._query_candidates(
                [], self._tx.remembered_cap_ms(self._request.queue), room
            )

    def drop_prefetched(self) -> None:
        """What was asked is out of date; what it has locked is free with the commit."""
        self._prefetched = None

    def claim(self, room: int, budget: LimitBudget) -> list[Job]:
        """Up to this many jobs that are for this worker. Others that stand before them go behind the gates
        of their tasks or of their limits, and the rest is taken from those that follow."""
        self._budget = budget
        most = min(self._request.limit, room)
        queue = self._tx.queue(self._request.queue)
        if most <= 0 or queue is None or queue.state not in _CLAIMABLE:
            return []
        self._queue_lease_ms = queue.settings.lease_ms
        self._cap_ms = queue.settings.scoring.cap_ms
        if queue.name in self._tx.fair_queues:
            max_payload = self._request.largest_payload
            self._fair_claim = PostgresFairClaim(self._tx, queue.name, lambda: self._cap_ms, max_payload)
        gates = self._load_lanes()
        look = self._reuse_prefetch(gates, most)
        jobs: list[Job] = []
        while True:
            self._arrivals = 0
            heads = self._load_candidates(look, gates)
            mine, others, is_over = self._split_candidates(heads)
            self._park(others)
            jobs += self._start(mine)
            self._started = len(jobs)
            self._advance_cursor(look, heads, [*mine, *others])
            if is_over and len(jobs) < most:
                self._budget.add_wait(0)  # enough for now; the next call goes on
            is_over = is_over or budget.is_rate_exhausted(self._request.queue, len(jobs))
            if not others or is_over or len(jobs) == most:
                return jobs
            look = self._query_candidates(gates, self._cap_ms, most - len(jobs))

    def _reuse_prefetch(self, lanes: list[str], room: int) -> CandidateQuery:
        """What was asked first, if it was for this room, by the queue's settings as they are, and there are
        no gates to look behind."""
        first = self._prefetched
        if first is not None and not lanes and (first.cap_ms, first.room) == (self._cap_ms, room):
            return first
        return self._query_candidates(lanes, self._cap_ms, room)

    def _query_candidates(self, lanes: list[str], cap_ms: int, room: int) -> CandidateQuery:
        """Lock the next jobs, wherever they wait: in the queue or behind a gate."""
        tx = self._tx
        snapshot = tx.run("snapshot")
        max_payload = self._request.largest_payload
        values = {"queue": self._request.queue, "cap_ms": cap_ms, "room": room, "max_payload": max_payload}
        arrivals = {"max_arrivals": max_arrivals(room), **self._cursor.values()}
        answers = [tx.run("candidates", {**values, **arrivals})]
        answers += [tx.run("lane_candidates", {**values, "lane": gate}) for gate in lanes]
        return CandidateQuery(cap_ms, room, self._cursor, snapshot, answers)

    def _load_candidates(self, query: CandidateQuery, lanes: list[str]) -> list[Candidate]:
        """The next jobs in their order. Where too few are found behind the cursor, the head is looked at."""
        rows = [row for answer in query.answers for row in answer]
        self._arrivals = max(self._arrivals, *(row[4] for row in rows))
        heads = [self._parse_candidate(row) for row in rows if row[0] is not None]
        if query.cursor.is_at_head:
            self._tx.cursors.record_head_scan(self._request.queue, max(row[5] for row in rows))
        elif len(heads) < query.room and self._tx.cursors.may_scan_head(self._request.queue):
            self._cursor = HEAD
            return self._load_candidates(self._query_candidates(lanes, self._cap_ms, query.room), lanes)
        heads.sort(key=lambda head: head.claim_order)
        if self._fair_claim is not None:
            shared = [self._parse_candidate(row) for _, row in self._fair_claim.candidates(query.room)]
            # Whose turn it is comes before rank: only the next of the shares is compared with other jobs.
            heads = list(merge(heads, shared, key=lambda head: head.claim_order))
        return heads[: query.room]

    def _advance_cursor(
        self, query: CandidateQuery, candidates: list[Candidate], removed: list[Candidate]
    ) -> None:
        """Move the cursor behind what is gone from the order."""
        queue, row = self._request.queue, query.snapshot.fetchone()
        passed = CursorProgress(
            [head.rank_key for head in removed if head.is_ordinary],
            [head.rank_key for head in candidates if head.is_late],
            has_arrivals_left=self._arrivals > sum(head.is_late for head in removed),
            has_many_arrivals=self._arrivals == max_arrivals(query.room),
            is_exhausted=len(removed) == len(candidates) < query.room,
        )
        seen = self._cursor.seen if row is None else TxSnapshot.of(*row)
        self._tx.cursors.record_result(queue, enough=len(candidates) == query.room)
        self._stored_cursor = self._cursor = self._tx.advanced_cursors[queue] = advance_cursor(
            self._stored_cursor, self._cursor, passed, seen
        )

    def _parse_candidate(self, row: Row) -> Candidate:
        spot, lead, behind, is_late, _, _, *columns = row
        lease_ms = self._request.lease_ms, self._queue_lease_ms
        return Candidate(
            spot, lead, behind, is_late, job_from_candidate(columns, self._worker, self._tx.now, *lease_ms)
        )

    def _split_candidates(self, candidates: list[Candidate]) -> tuple[list[Candidate], list[Candidate], bool]:
        """Which of these are for this worker, which are not, and whether it was enough of the others: then
        what stands behind the next of them is left alone."""
        mine: list[Candidate] = []
        others: list[Candidate] = []
        load_counters_for(self._tx, self._budget, [head.job for head in candidates])
        for head in candidates:
            if self._budget.is_rate_exhausted(self._request.queue, self._started + len(mine)):
                return mine, others, False
            aside = self._lane_for(head)
            if aside is None:
                mine.append(head)
            elif self._parkings_left > len(others):
                others.append(head._replace(target_lane=aside))
            else:
                return mine, others, True
        self._parkings_left -= len(others)
        return mine, others, False

    def _lane_for(self, candidate: Candidate) -> str | None:
        """The gate that keeps a job from this worker; None if it takes it, and a place under its limits. A
        job that had its turn as one of a share goes to the lane of that share behind the limit."""
        job, limits = candidate.job, self._budget
        gate = task_lane(job.task)
        if not self._request.accepts_lane(gate):
            return gate
        scopes = limits.scopes_for(job.task, job.limit_keys)
        full = limits.first_full_scope(scopes)
        if full is not None:
            return (
                limit_lane(full)
                if candidate.fairness_key is None
                else limit_fairness_lane(full, candidate.fairness_key)
            )
        limits.start(scopes, job.lease_expires_at or 0, job.cost)
        if scopes:
            self._slots[Lease(job.id, job.attempt)] = scopes
        return None

    def _start(self, candidates: list[Candidate]) -> list[Job]:
        if not candidates:
            return []
        tx, jobs = self._tx, [head.job for head in candidates]
        values = {
            "ctids": [head.ctid for head in candidates if head.lane is None],
            "lane_ctids": [head.ctid for head in candidates if head.lane is not None],
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
                Counter(head.fairness_key for head in candidates if head.fairness_key is not None)
            )
        return jobs

    def _query_lanes(self) -> psycopg.Cursor[Row]:
        return self._tx.run("lanes_claimable", {"queue": self._request.queue, "limit": MAX_LANES})

    def _load_lanes(self) -> list[str]:
        """Where jobs wait that are for this worker. A queue has few gates, mostly none."""
        want, rows = self._request, (self._lane_query or self._query_lanes()).fetchall()
        if len(rows) == MAX_LANES and want.lanes is not None:
            rows = self._tx.all("lanes_among", {"queue": want.queue, "lanes": sorted(want.lanes)})
        return [gate for (gate,) in rows if want.accepts_lane(gate)]

    def _park(self, candidates: list[Candidate]) -> None:
        if not candidates:
            return
        tx, jobs = self._tx, [head.job for head in candidates]
        gates = [head.target_lane for head in candidates]
        behind = [head.ctid for head in candidates if head.lane is not None]
        if behind:
            # They were let through one gate, and by their task they belong behind another one.
            tx.run("unpark", {"ctids": behind})
        values = {
            "ctids": [head.ctid for head in candidates if head.lane is None],
            "queue": self._request.queue,
            "now": tx.now,
            "ids": [job.id for job in jobs],
            "touched_ids": []
            if tx.stored_limits or self._fair_claim is not None
            else [job.id for job in jobs],
            "lanes": gates,
            "age_capped": [job.age_capped for job in jobs],
            "ranks": [job.rank for job in jobs],
            "seqs": [job.seq for job in jobs],
            "expires_at": [job.expires_at for job in jobs],
        }
        tx.run("park", values)
        full = {limit_scope_of(gate): None for gate in gates if is_limit_lane(gate)}
        if full:
            # First the lanes: a gate without jobs of its own is closed as long as it has one.
            fair = (
                (head.target_lane, head.fairness_key)
                for head in candidates
                if is_limit_lane(head.target_lane)
            )
            lanes = ((limit_scope_of(gate), share) for gate, share in fair if share is not None)
            join_limit_lanes(tx, self._request.queue, lanes)
            mark_lanes_limited(tx, self._request.queue, list(full), self._budget)
        for job, gate in zip(jobs, gates, strict=True):
            if not is_limit_lane(gate):
                self._record_parked(job, gate)

    def _record_parked(self, job: Job, lane: str) -> None:
        tx = self._tx
        tx.record(
            Event(kind=EventKind.PARKED, job_id=job.id, queue=job.queue, actor=self._worker, detail=lane)
        )
        tx.needs_wakeup = True  # whoever may pass these gates should look
