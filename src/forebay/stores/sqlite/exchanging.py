"""Settling what has ended and claiming for the room there is."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from heapq import merge
from operator import itemgetter
from typing import Final, TypeAlias

from forebay.domain.gate import task_gate
from forebay.domain.history import Event, EventKind
from forebay.domain.job import Job, JobId, QueueName, UniqueUntil, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.lifecycle import JobState
from forebay.domain.note import Note
from forebay.domain.queue import Queue, QueueState, stagger_duty
from forebay.domain.settlement import Settlement
from forebay.stores.limiting import Tally
from forebay.stores.protocol import BATCH, PROMOTED_PER_EXCHANGE, Cancel, Exchange, Want, wants_left
from forebay.stores.rows import Row, claimed_job, json_text
from forebay.stores.sqlite.duties import expire, promote_queue
from forebay.stores.sqlite.following import follow
from forebay.stores.sqlite.limiting import bring_back, charge, keep, load, put_aside, take_places, tally
from forebay.stores.sqlite.noting import keep_notes
from forebay.stores.sqlite.rows import job_from_row
from forebay.stores.sqlite.settling import settle_all
from forebay.stores.sqlite.sharing import SqliteTurns
from forebay.stores.sqlite.transaction import Transaction

Head: TypeAlias = Row  # a row of `heads`: its turn, which is two numbers, and the job
TASK: Final = itemgetter(5)  # of a head
PAYLOAD: Final = itemgetter(6)
MOST_LARGE: Final = 8
MOST_GATES: Final = 100
_GIVING: Final = (QueueState.ACTIVE, QueueState.DRAINING)


def exchange(
    tx: Transaction,
    new_id: Callable[[], JobId] | None,
    worker: WorkerId,
    settlements: Sequence[Settlement],
    wants: Sequence[Want],
    room: int,
    known: Sequence[Lease] | None,
    notes: Sequence[Note],
) -> Exchange:
    """Notes first, while their jobs still run; then settle: what has ended frees slots and keys, and the
    claim that follows should see both."""
    unnoted = keep_notes(tx, worker, notes) if notes else ()
    ended = settle_all(tx, new_id, worker, settlements)
    limits = tally(tx)
    charge(tx, limits, ended.charges)
    jobs = _claim_all(tx, worker, wants, room, limits)
    if follow(tx) and len(jobs) < room:
        jobs += _claim_all(tx, worker, wants_left(wants, jobs), room - len(jobs), limits)
    keep(tx, limits, wants, freed=len(ended.settled) - len(jobs))
    return Exchange(
        settled=tuple(ended.settled),
        repeated=tuple(ended.repeated),
        refused=tuple(ended.refused),
        jobs=tuple(jobs),
        adopted=() if known is None else tuple(_adopted(tx, worker, known, jobs)),
        cancels=cancels_for(tx, worker),
        next_due_ms=limits.sooner(_next_due_ms(tx, wants)),
        unnoted=unnoted,
    )


def _claim_all(
    tx: Transaction, worker: WorkerId, wants: Sequence[Want], room: int, limits: Tally
) -> list[Job]:
    if wants:
        if tx.has_new_jobs:
            tx.count_new()  # follow-ups of this very exchange may be claimed in it
        expire(tx, BATCH)
    jobs: list[Job] = []
    for want in wants:
        promote_queue(tx, want.queue, PROMOTED_PER_EXCHANGE)
        if tx.has_limits:
            # Even for a queue that gives nothing: a gate that stays due would have us asked again at once.
            bring_back(tx, want.queue, limits)
        most = limits.room(want.queue, min(want.most, room - len(jobs)))
        taken = _claim(tx, worker, want, most, limits) if most > 0 else []
        limits.took(want.queue, len(taken), most)
        jobs += taken
    return jobs


def _claim(tx: Transaction, worker: WorkerId, want: Want, most: int, limits: Tally) -> list[Job]:
    queue = tx.queue(want.queue)
    if queue is None or queue.state not in _GIVING:
        return []
    claim = Claim(tx, worker, want, queue)
    jobs = claim.taken_within(limits, most) if tx.has_limits else claim.taken_in_turn(limits, most)
    if claim.has_more:
        limits.wait(0)  # the next call goes on
    for job in jobs:
        if job.unique_until is UniqueUntil.STARTED:
            tx.free_key(job.queue, job.unique_key, job.id)
    tx.move(want.queue, JobState.PENDING, JobState.RUNNING, len(jobs))
    return jobs


class Claim:
    """What is taken of one queue for one want."""

    def __init__(self, tx: Transaction, worker: WorkerId, want: Want, queue: Queue) -> None:
        self._tx = tx
        self._worker = worker
        self._want = want
        self._cap_ms = tx.scoring(want.queue).cap_ms
        self._queue_lease_ms = queue.settings.lease_ms
        self._turns = SqliteTurns(tx, want.queue, queue.settings.share_weights, self._behind)
        self.has_more = False  # large jobs, beyond those of one claim
        self._share_of: dict[int, str] = {}  # of jobs that were found behind its gate, by seq

    def taken_in_turn(self, limits: Tally, most: int) -> list[Job]:
        """Up to this many jobs that are for this worker. Others that stand before them go behind the gates
        of their tasks."""
        left = self._want.most_held
        while True:
            heads = self._heads(most)
            others = self._not_for_us(heads)
            if not others:
                return self._taken(heads)
            if not left:
                # Enough for now: what stands before the next of them, and no more. The next call goes on.
                limits.wait(0)
                return self._taken(heads[: heads.index(others[0])])
            aside = others[:left]
            left -= len(aside)
            self._hold(aside)

    def taken_within(self, limits: Tally, most: int) -> list[Job]:
        """The same under limits: jobs at the limit of their task or of a key go behind its gate."""
        left, jobs = self._want.most_held, list[Job]()
        while len(jobs) < most:
            mine, others = self._sorted_out(self._heads(most - len(jobs)), limits, left, len(jobs))
            jobs += mine
            left -= others
            if not left and len(jobs) < most:
                limits.wait(0)  # enough for now; the next call goes on
            if not others or not left or limits.is_spent(self._want.queue, len(jobs)):
                break
        return jobs

    def _sorted_out(self, heads: list[Head], limits: Tally, left: int, started: int) -> tuple[list[Job], int]:
        """Take those of these that may start, after so many of the same claim; how many others were put
        aside."""
        tx, want, others, mine = self._tx, self._want, 0, list[Job]()
        jobs = self._jobs(heads)
        passes = {task: want.passes(task_gate(task)) for task in {job.task for job in jobs}}
        scopes_of = [limits.scopes_for(job.task, job.limit_keys) for job in jobs]
        load(tx, limits, {scope for scopes in scopes_of for scope in scopes})
        places: list[object] = []
        for head, job, scopes in zip(heads, jobs, scopes_of, strict=True):
            if limits.is_spent(want.queue, started + len(mine)):
                break
            full = limits.full_among(scopes) if passes[job.task] else None
            if full is None and passes[job.task]:
                limits.start(scopes, job.lease_expires_at or 0, job.cost)
                for scope in scopes:
                    places += (scope, job.seq, job.id)
                mine.append(job)
                continue
            if others == left:
                break
            others += 1
            if full is None:
                self._hold([head])
            else:
                put_aside(tx, want.queue, job.seq, full, limits, self._share_of.get(job.seq))
        take_places(tx, places)
        self._start(mine)
        return mine, others

    def _heads(self, most: int) -> list[Head]:
        """The next of the queue, and of what waits behind gates that we may pass, in the claim's order."""
        heads = [head for gate in (None, *self._gates()) for head in self._behind(gate, most)]
        heads.sort()  # by what stands first in each
        if self._tx.has_shares:
            shared = self._turns.heads(most)
            self._share_of.update((head[1], share) for share, head in shared)
            # Whose turn it is comes before rank: only the next of the shares is compared with other jobs.
            heads = list(merge(heads, (head for _, head in shared)))
        return self._few_large(heads[:most])

    def _few_large(self, heads: list[Head]) -> list[Head]:
        """These, up to so many with a payload that the caller leaves out. An update writes a whole row anew,
        and keeps the old one in memory until it is done."""
        if self._want.max_payload is None:
            return heads
        large = [place for place, head in enumerate(heads) if not PAYLOAD(head)]
        self.has_more = len(large) > MOST_LARGE
        return heads[: large[MOST_LARGE]] if self.has_more else heads

    def _behind(self, gate: str | None, most: int) -> list[Head]:
        """The first jobs behind one gate, or of the queue's order."""
        tx, heads = self._tx, list[Head]()
        for capped, zero in ((0, tx.now), (1, self._cap_ms)):
            values = {
                "queue": self._want.queue,
                "gate": gate,
                "capped": capped,
                "zero": zero,
                "now": tx.now,
                "room": most,
                "max_payload": self._want.largest_payload,
            }
            heads += tx.all("heads", values)
        heads.sort()
        return heads[:most]

    def _not_for_us(self, heads: list[Head]) -> list[Head]:
        tasks = set(map(TASK, heads))  # a few
        strange = {task for task in tasks if not self._want.passes(task_gate(task))}
        return [head for head in heads if TASK(head) in strange] if strange else []

    def _taken(self, heads: list[Head]) -> list[Job]:
        jobs = self._jobs(heads)
        self._start(jobs)
        return jobs

    def _jobs(self, heads: list[Head]) -> list[Job]:
        """These jobs as they are once they are claimed."""
        given = self._worker, self._tx.now, self._want.lease_ms, self._queue_lease_ms
        return [claimed_job(head[2:], *given) for head in heads]

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
        self._turns.took(Counter(self._share_of[job.seq] for job in jobs if job.seq in self._share_of))

    def _gates(self) -> list[str]:
        """Where jobs wait that are for this worker. A queue has few gates, mostly none."""
        tx, want = self._tx, self._want
        rows = tx.all("gates", {"queue": want.queue, "limit": MOST_GATES})
        if len(rows) == MOST_GATES and want.gates is not None:
            rows = tx.all("gates_among", {"queue": want.queue, "gates": json_text(sorted(want.gates))})
        return [gate for (gate,) in rows if want.passes(gate)]

    def _hold(self, heads: list[Head]) -> None:
        tx = self._tx
        for _, seq, job_id, _, queue, task, *_ in heads:
            gate = task_gate(task)
            tx.run("hold", {"seq": seq, "gate": gate, "now": tx.now})
            tx.record(Event(kind=EventKind.HELD, job_id=job_id, queue=queue, actor=self._worker, detail=gate))
        tx.has_news = True  # whoever may pass these gates should look


def _adopted(tx: Transaction, worker: WorkerId, known: Sequence[Lease], claimed: list[Job]) -> list[Job]:
    expected = {(lease.job_id, lease.attempt) for lease in known}
    expected |= {(job.id, job.attempt) for job in claimed}
    held = (job_from_row(row) for row in tx.all("leases_of", {"worker": worker}))
    return [job for job in held if (job.id, job.attempt) not in expected]


def cancels_for(tx: Transaction, worker: WorkerId) -> tuple[Cancel, ...]:
    """The running jobs of a worker that somebody wants stopped."""
    return tuple(Cancel(*row) for row in tx.all("cancels", {"worker": worker}))


def _next_due_ms(tx: Transaction, wants: Sequence[Want]) -> int | None:
    dues = (_next_due(tx, want.queue) for want in wants)
    return min((max(0, due - tx.now) for due in dues if due is not None), default=None)


def _next_due(tx: Transaction, name: QueueName) -> int | None:
    """When the next job of a queue can become pending."""
    row = tx.one("next_due", {"queue": name})
    queue = tx.queue(name)
    if row is None or queue is None or queue.settings.stagger is None:
        return None if row is None else int(row[0])
    (turn,) = tx.one("duty_due", {"name": stagger_duty(name)}) or (0,)
    return max(int(row[0]), int(turn))
