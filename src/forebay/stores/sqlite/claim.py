"""Claims: take pending jobs of one queue, with a lease on each."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial
from heapq import merge
from operator import itemgetter
from typing import Final, TypeAlias

from forebay.domain.job import Job, UniqueUntil, WorkerId
from forebay.domain.job_history import Event, EventKind
from forebay.domain.job_states import JobState
from forebay.domain.lane import task_lane
from forebay.domain.queue import Queue, QueueState
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.shared.limit_counters import LimitBudget
from forebay.stores.shared.rows import Row, job_from_candidate, json_text
from forebay.stores.sqlite.concurrency_and_rate_limits import acquire_slots, load_counters, park
from forebay.stores.sqlite.fairness import SqliteFairClaim
from forebay.stores.sqlite.transaction import Transaction

Candidate: TypeAlias = Row  # a row of `candidates`: its sort key, which is two numbers, and the job
TASK: Final = itemgetter(5)  # of a candidate
PAYLOAD: Final = itemgetter(6)
MAX_LARGE_PAYLOADS: Final = 8
MAX_LANES: Final = 100
_CLAIMABLE: Final = (QueueState.ACTIVE, QueueState.DRAINING)


def _claim(
    tx: Transaction, worker: WorkerId, request: QueueClaim, limit: int, budget: LimitBudget
) -> list[Job]:
    queue = tx.queue(request.queue)
    if queue is None or queue.state not in _CLAIMABLE:
        return []
    claim = QueueClaimer(tx, worker, request, queue)
    jobs = claim.claim_limited(budget, limit) if tx.has_limits else claim.claim_in_order(budget, limit)
    if claim.has_more:
        budget.add_wait(0)  # the next call goes on
    for job in jobs:
        if job.unique_until is UniqueUntil.STARTED:
            tx.release_key(job.queue, job.unique_key, job.id)
    tx.count_moved(request.queue, JobState.PENDING, JobState.RUNNING, len(jobs))
    return jobs


def _load_lane(
    tx: Transaction, request: QueueClaim, cap_ms: int, lane: str | None, limit: int
) -> list[Candidate]:
    """Load the first candidates of one lane, or of the queue's main order."""
    candidates = list[Candidate]()
    for capped, zero in ((0, tx.now), (1, cap_ms)):
        values = {
            "queue": request.queue,
            "lane": lane,
            "age_capped": capped,
            "zero": zero,
            "now": tx.now,
            "room": limit,
            "max_payload": request.largest_payload,
        }
        candidates += tx.all("candidates", values)
    candidates.sort()
    return candidates[:limit]


class QueueClaimer:
    """Claim of one queue under way."""

    def __init__(self, tx: Transaction, worker: WorkerId, request: QueueClaim, queue: Queue) -> None:
        self._tx = tx
        self._worker = worker
        self._request = request
        self._queue_lease_ms = queue.settings.lease_ms
        # A function of its own: a method, kept by an object that this one keeps, would be a reference cycle.
        self._load_lane = partial(_load_lane, tx, request, tx.scoring(request.queue).cap_ms)
        self._fair_claim = SqliteFairClaim(
            tx, request.queue, queue.settings.fairness_weights, self._load_lane
        )
        self.has_more: bool = False  # large jobs, beyond those of one claim
        self._fairness_key_of: dict[int, str] = {}  # of jobs that were found in its lane, by seq

    def claim_in_order(self, budget: LimitBudget, limit: int) -> list[Job]:
        """Claim up to this many jobs that this worker can run. Other jobs ahead of them are parked in the
        lanes of their tasks."""
        left = self._request.max_parked
        while True:
            candidates = self._load_candidates(limit)
            unknown = self._find_unknown_tasks(candidates)
            if not unknown:
                return self._claim_rows(candidates)
            if not left:
                # No more may be parked: claim what is ahead of the next of them. The next call continues.
                budget.add_wait(0)
                return self._claim_rows(candidates[: candidates.index(unknown[0])])
            parked = unknown[:left]
            left -= len(parked)
            self._park(parked)

    def claim_limited(self, budget: LimitBudget, limit: int) -> list[Job]:
        """Do the same under limits: jobs at the limit of their task or of a key are parked in its lane."""
        left, jobs = self._request.max_parked, list[Job]()
        while len(jobs) < limit:
            claimed, parked = self._split_candidates(
                self._load_candidates(limit - len(jobs)), budget, left, len(jobs)
            )
            jobs += claimed
            left -= parked
            if not left and len(jobs) < limit:
                budget.add_wait(0)  # no more may be parked; the next call continues
            if not parked or not left or budget.is_rate_exhausted(self._request.queue, len(jobs)):
                break
        return jobs

    def _split_candidates(
        self, candidates: list[Candidate], budget: LimitBudget, left: int, started: int
    ) -> tuple[list[Job], int]:
        """Claim the candidates that may start and park others. `started` jobs of the same claim came
        before. Return the claimed jobs, and how many others were parked."""
        tx, request, parked, claimed = self._tx, self._request, 0, list[Job]()
        jobs = self._build_jobs(candidates)
        accepts = {task: request.accepts_lane(task_lane(task)) for task in {job.task for job in jobs}}
        scopes_of = [budget.scopes_for(job.task, job.limit_keys) for job in jobs]
        load_counters(tx, budget, {scope for scopes in scopes_of for scope in scopes})
        slots: list[object] = []
        for candidate, job, scopes in zip(candidates, jobs, scopes_of, strict=True):
            if budget.is_rate_exhausted(request.queue, started + len(claimed)):
                break
            full_scope = budget.first_full_scope(scopes) if accepts[job.task] else None
            if full_scope is None and accepts[job.task]:
                budget.start(scopes, job.lease_expires_at or 0, job.cost)
                for scope in scopes:
                    slots += (scope, job.seq, job.id)
                claimed.append(job)
                continue
            if parked == left:
                break
            parked += 1
            if full_scope is None:
                self._park([candidate])
            else:
                park(tx, request.queue, job.seq, full_scope, budget, self._fairness_key_of.get(job.seq))
        acquire_slots(tx, slots)
        self._start(claimed)
        return claimed, parked

    def _load_candidates(self, limit: int) -> list[Candidate]:
        """Load the next candidates of the main order and of the accepted lanes, in the order of the claim."""
        candidates = [row for lane in (None, *self._load_lanes()) for row in self._load_lane(lane, limit)]
        candidates.sort()  # by their first columns, the sort key
        if self._tx.has_fairness_keys:
            fair = self._fair_claim.candidates(limit)
            self._fairness_key_of.update((row[1], key) for key, row in fair)
            # Virtual time comes before rank: only the next of these is compared with other jobs.
            candidates = list(merge(candidates, (row for _, row in fair)))
        return self._limit_large(candidates[:limit])

    def _limit_large(self, candidates: list[Candidate]) -> list[Candidate]:
        """Return the candidates up to `MAX_LARGE_PAYLOADS` with a payload that the caller leaves out. An
        update writes a whole row anew, and keeps the old one in memory until it is done."""
        if self._request.max_payload is None:
            return candidates
        large = [index for index, candidate in enumerate(candidates) if not PAYLOAD(candidate)]
        self.has_more = len(large) > MAX_LARGE_PAYLOADS
        return candidates[: large[MAX_LARGE_PAYLOADS]] if self.has_more else candidates

    def _find_unknown_tasks(self, candidates: list[Candidate]) -> list[Candidate]:
        tasks = set(map(TASK, candidates))  # a few
        unknown = {task for task in tasks if not self._request.accepts_lane(task_lane(task))}
        return [candidate for candidate in candidates if TASK(candidate) in unknown] if unknown else []

    def _claim_rows(self, candidates: list[Candidate]) -> list[Job]:
        jobs = self._build_jobs(candidates)
        self._start(jobs)
        return jobs

    def _build_jobs(self, candidates: list[Candidate]) -> list[Job]:
        """Build the jobs as they are after the claim."""
        lease_values = self._worker, self._tx.now, self._request.lease_ms, self._queue_lease_ms
        return [job_from_candidate(candidate[2:], *lease_values) for candidate in candidates]

    def _start(self, jobs: list[Job]) -> None:
        tx = self._tx
        by_end: defaultdict[int | None, list[int]] = defaultdict(list)
        for job in jobs:
            by_end[job.lease_expires_at].append(job.seq)
        for ends, seqs in by_end.items():
            values = {
                "worker": self._worker,
                "now": tx.now,
                "lease_expires_at": ends,
                "seqs": json_text(seqs),
            }
            tx.run("claim", values)
        self._fair_claim.record_claimed(
            Counter(self._fairness_key_of[job.seq] for job in jobs if job.seq in self._fairness_key_of)
        )

    def _load_lanes(self) -> list[str]:
        """Load the lanes that this claim accepts. A queue has few lanes, mostly none."""
        tx, request = self._tx, self._request
        rows = tx.all("lanes_claimable", {"queue": request.queue, "limit": MAX_LANES})
        if len(rows) == MAX_LANES and request.lanes is not None:
            rows = tx.all("lanes_among", {"queue": request.queue, "lanes": json_text(sorted(request.lanes))})
        return [lane for (lane,) in rows if request.accepts_lane(lane)]

    def _park(self, candidates: list[Candidate]) -> None:
        tx = self._tx
        for _, seq, job_id, _, queue, task, *_ in candidates:
            lane = task_lane(task)
            tx.run("park", {"seq": seq, "lane": lane, "now": tx.now})
            tx.record(
                Event(kind=EventKind.PARKED, job_id=job_id, queue=queue, actor=self._worker, detail=lane)
            )
        tx.needs_wakeup = True  # for workers that accept these lanes
