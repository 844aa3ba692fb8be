"""Settling what has ended and claiming for the room there is."""

from __future__ import annotations

from collections import Counter, defaultdict
from heapq import merge
from operator import itemgetter
from typing import Final, TypeAlias

from forebay.domain.history import Event, EventKind
from forebay.domain.job import Job, UniqueUntil, WorkerId
from forebay.domain.lane import task_lane
from forebay.domain.lifecycle import JobState
from forebay.domain.queue import Queue, QueueState
from forebay.stores.contract.values import (
    QueueClaim,
)
from forebay.stores.shared.limits import LimitBudget
from forebay.stores.shared.rows import Row, job_from_candidate, json_text
from forebay.stores.sqlite.fairness import SqliteFairClaim
from forebay.stores.sqlite.limits import (
    acquire_slots,
    load_counters,
    park,
)
from forebay.stores.sqlite.transaction import Transaction

Candidate: TypeAlias = Row  # a row of `heads`: its turn, which is two numbers, and the job
TASK: Final = itemgetter(5)  # of a head
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


class QueueClaimer:
    """What is taken of one queue for one want."""

    def __init__(self, tx: Transaction, worker: WorkerId, request: QueueClaim, queue: Queue) -> None:
        self._tx = tx
        self._worker = worker
        self._request = request
        self._cap_ms = tx.scoring(request.queue).cap_ms
        self._queue_lease_ms = queue.settings.lease_ms
        self._fair_claim = SqliteFairClaim(
            tx, request.queue, queue.settings.fairness_weights, self._load_lane
        )
        self.has_more = False  # large jobs, beyond those of one claim
        self._fairness_key_of: dict[int, str] = {}  # of jobs that were found behind its gate, by seq

    def claim_in_order(self, budget: LimitBudget, limit: int) -> list[Job]:
        """Up to this many jobs that are for this worker. Others that stand before them go behind the gates
        of their tasks."""
        left = self._request.max_parked
        while True:
            heads = self._load_candidates(limit)
            others = self._find_unknown_tasks(heads)
            if not others:
                return self._claim_rows(heads)
            if not left:
                # Enough for now: what stands before the next of them, and no more. The next call goes on.
                budget.add_wait(0)
                return self._claim_rows(heads[: heads.index(others[0])])
            aside = others[:left]
            left -= len(aside)
            self._park(aside)

    def claim_limited(self, budget: LimitBudget, limit: int) -> list[Job]:
        """The same under limits: jobs at the limit of their task or of a key go behind its gate."""
        left, jobs = self._request.max_parked, list[Job]()
        while len(jobs) < limit:
            mine, others = self._split_candidates(
                self._load_candidates(limit - len(jobs)), budget, left, len(jobs)
            )
            jobs += mine
            left -= others
            if not left and len(jobs) < limit:
                budget.add_wait(0)  # enough for now; the next call goes on
            if not others or not left or budget.is_rate_exhausted(self._request.queue, len(jobs)):
                break
        return jobs

    def _split_candidates(
        self, candidates: list[Candidate], budget: LimitBudget, left: int, started: int
    ) -> tuple[list[Job], int]:
        """Take those of these that may start, after so many of the same claim; how many others were put
        aside."""
        tx, want, others, mine = self._tx, self._request, 0, list[Job]()
        jobs = self._build_jobs(candidates)
        passes = {task: want.accepts_lane(task_lane(task)) for task in {job.task for job in jobs}}
        scopes_of = [budget.scopes_for(job.task, job.limit_keys) for job in jobs]
        load_counters(tx, budget, {scope for scopes in scopes_of for scope in scopes})
        places: list[object] = []
        for head, job, scopes in zip(candidates, jobs, scopes_of, strict=True):
            if budget.is_rate_exhausted(want.queue, started + len(mine)):
                break
            full = budget.first_full_scope(scopes) if passes[job.task] else None
            if full is None and passes[job.task]:
                budget.start(scopes, job.lease_expires_at or 0, job.cost)
                for scope in scopes:
                    places += (scope, job.seq, job.id)
                mine.append(job)
                continue
            if others == left:
                break
            others += 1
            if full is None:
                self._park([head])
            else:
                park(tx, want.queue, job.seq, full, budget, self._fairness_key_of.get(job.seq))
        acquire_slots(tx, places)
        self._start(mine)
        return mine, others

    def _load_candidates(self, limit: int) -> list[Candidate]:
        """The next of the queue, and of what waits behind gates that we may pass, in the claim's order."""
        heads = [head for gate in (None, *self._load_lanes()) for head in self._load_lane(gate, limit)]
        heads.sort()  # by what stands first in each
        if self._tx.has_fairness_keys:
            shared = self._fair_claim.candidates(limit)
            self._fairness_key_of.update((head[1], share) for share, head in shared)
            # Whose turn it is comes before rank: only the next of the shares is compared with other jobs.
            heads = list(merge(heads, (head for _, head in shared)))
        return self._limit_large(heads[:limit])

    def _limit_large(self, candidates: list[Candidate]) -> list[Candidate]:
        """These, up to so many with a payload that the caller leaves out. An update writes a whole row anew,
        and keeps the old one in memory until it is done."""
        if self._request.max_payload is None:
            return candidates
        large = [place for place, head in enumerate(candidates) if not PAYLOAD(head)]
        self.has_more = len(large) > MAX_LARGE_PAYLOADS
        return candidates[: large[MAX_LARGE_PAYLOADS]] if self.has_more else candidates

    def _load_lane(self, lane: str | None, limit: int) -> list[Candidate]:
        """The first jobs behind one gate, or of the queue's order."""
        tx, heads = self._tx, list[Candidate]()
        for capped, zero in ((0, tx.now), (1, self._cap_ms)):
            values = {
                "queue": self._request.queue,
                "lane": lane,
                "age_capped": capped,
                "zero": zero,
                "now": tx.now,
                "room": limit,
                "max_payload": self._request.largest_payload,
            }
            heads += tx.all("candidates", values)
        heads.sort()
        return heads[:limit]

    def _find_unknown_tasks(self, candidates: list[Candidate]) -> list[Candidate]:
        tasks = set(map(TASK, candidates))  # a few
        strange = {task for task in tasks if not self._request.accepts_lane(task_lane(task))}
        return [head for head in candidates if TASK(head) in strange] if strange else []

    def _claim_rows(self, candidates: list[Candidate]) -> list[Job]:
        jobs = self._build_jobs(candidates)
        self._start(jobs)
        return jobs

    def _build_jobs(self, candidates: list[Candidate]) -> list[Job]:
        """These jobs as they are once they are claimed."""
        given = self._worker, self._tx.now, self._request.lease_ms, self._queue_lease_ms
        return [job_from_candidate(head[2:], *given) for head in candidates]

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
        """Where jobs wait that are for this worker. A queue has few gates, mostly none."""
        tx, want = self._tx, self._request
        rows = tx.all("lanes_claimable", {"queue": want.queue, "limit": MAX_LANES})
        if len(rows) == MAX_LANES and want.lanes is not None:
            rows = tx.all("lanes_among", {"queue": want.queue, "lanes": json_text(sorted(want.lanes))})
        return [gate for (gate,) in rows if want.accepts_lane(gate)]

    def _park(self, candidates: list[Candidate]) -> None:
        tx = self._tx
        for _, seq, job_id, _, queue, task, *_ in candidates:
            gate = task_lane(task)
            tx.run("park", {"seq": seq, "lane": gate, "now": tx.now})
            tx.record(
                Event(kind=EventKind.PARKED, job_id=job_id, queue=queue, actor=self._worker, detail=gate)
            )
        tx.needs_wakeup = True  # whoever may pass these gates should look
