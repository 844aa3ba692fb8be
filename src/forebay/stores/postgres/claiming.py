"""Claiming: which jobs of a queue come next, and leases on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from heapq import merge
from typing import Final, NamedTuple

import psycopg

from forebay.domain.gate import is_limit_gate, lane_gate, limit_gate, scope_behind, task_gate
from forebay.domain.history import Event, EventKind
from forebay.domain.job import Job, UniqueUntil, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.lifecycle import JobState
from forebay.domain.queue import QueueState
from forebay.domain.share import is_fair_gate, share_behind
from forebay.stores.limiting import Tally
from forebay.stores.postgres.cursor import HEAD, Cursor, Passed, Snapshot, most_arrivals, moved
from forebay.stores.postgres.limiting import close_gates, load_for, take_places
from forebay.stores.postgres.sharing import PostgresTurns, join_lanes
from forebay.stores.postgres.transaction import Transaction
from forebay.stores.protocol import Want
from forebay.stores.rows import Row, claimed_job

MOST_GATES: Final = 100
_GIVING: Final = (QueueState.ACTIVE, QueueState.DRAINING)


class Head(NamedTuple):
    """A job that this transaction has locked: where its narrow row is, its turn, and itself."""

    spot: str
    lead: int
    behind: str | None  # the gate, if there is one
    is_late: bool  # it has come in behind the cursor
    job: Job
    aside: str = ""  # the gate behind which it goes, if it is not taken

    @property
    def turn(self) -> tuple[int, int]:
        return -self.lead, self.job.seq

    @property
    def place(self) -> tuple[int, int]:
        return self.job.rank, self.job.seq

    @property
    def share(self) -> str | None:
        """The share behind whose gate it was found."""
        return share_behind(self.behind) if self.behind is not None and is_fair_gate(self.behind) else None

    @property
    def is_ordinary(self) -> bool:
        """Whether it stood in the order that cursors are for."""
        return self.behind is None and not self.job.capped


class Look(NamedTuple):
    """A question for the next jobs that was sent, and how it was asked."""

    cap_ms: int
    room: int
    cursor: Cursor
    snapshot: psycopg.Cursor[Row]
    answers: Sequence[psycopg.Cursor[Row]]


class Claim:
    """What is taken of one queue for one want."""

    def __init__(self, tx: Transaction, worker: WorkerId, want: Want) -> None:
        self._tx = tx
        self._worker = worker
        self._want = want
        self._left = want.most_held
        self._kept = tx.cursors.of(want.queue)
        self._cursor = tx.cursors.start(want.queue)
        self._came = 0
        self._first: Look | None = None
        self._gates: psycopg.Cursor[Row] | None = None
        self._limits = Tally((), 0)
        self._places: dict[Lease, list[str]] = {}
        self._started = 0
        self._turns: PostgresTurns | None = None  # where the queue has shares

    def ask_first(self, room: int) -> None:
        """Ask before the queue's settings are known, by what they were."""
        if room > 0:
            self._gates = self._ask_gates()
            self._first = self._ask([], self._tx.remembered_cap_ms(self._want.queue), room)

    def forget_first(self) -> None:
        """What was asked is out of date; what it has locked is free with the commit."""
        self._first = None

    def taken(self, room: int, limits: Tally) -> list[Job]:
        """Up to this many jobs that are for this worker. Others that stand before them go behind the gates
        of their tasks or of their limits, and the rest is taken from those that follow."""
        self._limits = limits
        most = min(self._want.most, room)
        queue = self._tx.queue(self._want.queue)
        if most <= 0 or queue is None or queue.state not in _GIVING:
            return []
        self._queue_lease_ms = queue.settings.lease_ms
        self._cap_ms = queue.settings.scoring.cap_ms
        if queue.name in self._tx.shared:
            max_payload = self._want.largest_payload
            self._turns = PostgresTurns(self._tx, queue.name, lambda: self._cap_ms, max_payload)
        gates = self._open_gates()
        look = self._rightly_asked(gates, most)
        jobs: list[Job] = []
        while True:
            self._came = 0
            heads = self._heads(look, gates)
            mine, others, is_over = self._sorted_out(heads)
            self._hold(others)
            jobs += self._start(mine)
            self._started = len(jobs)
            self._pass(look, heads, [*mine, *others])
            if is_over and len(jobs) < most:
                self._limits.wait(0)  # enough for now; the next call goes on
            is_over = is_over or limits.is_spent(self._want.queue, len(jobs))
            if not others or is_over or len(jobs) == most:
                return jobs
            look = self._ask(gates, self._cap_ms, most - len(jobs))

    def _rightly_asked(self, gates: list[str], room: int) -> Look:
        """What was asked first, if it was for this room, by the queue's settings as they are, and there are
        no gates to look behind."""
        first = self._first
        if first is not None and not gates and (first.cap_ms, first.room) == (self._cap_ms, room):
            return first
        return self._ask(gates, self._cap_ms, room)

    def _ask(self, gates: list[str], cap_ms: int, room: int) -> Look:
        """Lock the next jobs, wherever they wait: in the queue or behind a gate."""
        tx = self._tx
        snapshot = tx.run("snapshot")
        max_payload = self._want.largest_payload
        values = {"queue": self._want.queue, "cap_ms": cap_ms, "room": room, "max_payload": max_payload}
        arrivals = {"most": most_arrivals(room), **self._cursor.values()}
        answers = [tx.run("heads", {**values, **arrivals})]
        answers += [tx.run("gated_heads", {**values, "gate": gate}) for gate in gates]
        return Look(cap_ms, room, self._cursor, snapshot, answers)

    def _heads(self, look: Look, gates: list[str]) -> list[Head]:
        """The next jobs in their order. Where too few are found behind the cursor, the head is looked at."""
        rows = [row for answer in look.answers for row in answer]
        self._came = max(self._came, *(row[4] for row in rows))
        heads = [self._head(row) for row in rows if row[0] is not None]
        if look.cursor.is_at_head:
            self._tx.cursors.looked(self._want.queue, max(row[5] for row in rows))
        elif len(heads) < look.room and self._tx.cursors.may_look(self._want.queue):
            self._cursor = HEAD
            return self._heads(self._ask(gates, self._cap_ms, look.room), gates)
        heads.sort(key=lambda head: head.turn)
        if self._turns is not None:
            shared = [self._head(row) for _, row in self._turns.heads(look.room)]
            # Whose turn it is comes before rank: only the next of the shares is compared with other jobs.
            heads = list(merge(heads, shared, key=lambda head: head.turn))
        return heads[: look.room]

    def _pass(self, look: Look, heads: list[Head], gone: list[Head]) -> None:
        """Move the cursor behind what is gone from the order."""
        queue, row = self._want.queue, look.snapshot.fetchone()
        passed = Passed(
            [head.place for head in gone if head.is_ordinary],
            [head.place for head in heads if head.is_late],
            is_left=self._came > sum(head.is_late for head in gone),
            is_much=self._came == most_arrivals(look.room),
            is_all=len(gone) == len(heads) < look.room,
        )
        seen = self._cursor.seen if row is None else Snapshot.of(*row)
        self._tx.cursors.found(queue, enough=len(heads) == look.room)
        self._kept = self._cursor = self._tx.moved[queue] = moved(self._kept, self._cursor, passed, seen)

    def _head(self, row: Row) -> Head:
        spot, lead, behind, is_late, _, _, *columns = row
        lease_ms = self._want.lease_ms, self._queue_lease_ms
        return Head(spot, lead, behind, is_late, claimed_job(columns, self._worker, self._tx.now, *lease_ms))

    def _sorted_out(self, heads: list[Head]) -> tuple[list[Head], list[Head], bool]:
        """Which of these are for this worker, which are not, and whether it was enough of the others: then
        what stands behind the next of them is left alone."""
        mine: list[Head] = []
        others: list[Head] = []
        load_for(self._tx, self._limits, [head.job for head in heads])
        for head in heads:
            if self._limits.is_spent(self._want.queue, self._started + len(mine)):
                return mine, others, False
            aside = self._aside(head)
            if aside is None:
                mine.append(head)
            elif self._left > len(others):
                others.append(head._replace(aside=aside))
            else:
                return mine, others, True
        self._left -= len(others)
        return mine, others, False

    def _aside(self, head: Head) -> str | None:
        """The gate that keeps a job from this worker; None if it takes it, and a place under its limits. A
        job that had its turn as one of a share goes to the lane of that share behind the limit."""
        job, limits = head.job, self._limits
        gate = task_gate(job.task)
        if not self._want.passes(gate):
            return gate
        scopes = limits.scopes_for(job.task, job.limit_keys)
        full = limits.full_among(scopes)
        if full is not None:
            return limit_gate(full) if head.share is None else lane_gate(full, head.share)
        limits.start(scopes, job.lease_expires_at or 0, job.cost)
        if scopes:
            self._places[Lease(job.id, job.attempt)] = scopes
        return None

    def _start(self, heads: list[Head]) -> list[Job]:
        if not heads:
            return []
        tx, jobs = self._tx, [head.job for head in heads]
        values = {
            "spots": [head.spot for head in heads if head.behind is None],
            "gated_spots": [head.spot for head in heads if head.behind is not None],
            "queue": self._want.queue,
            "worker": self._worker,
            "now": tx.now,
            "ids": [job.id for job in jobs],
            "seqs": [job.seq for job in jobs],
            "attempts": [job.attempt for job in jobs],
            "untils": [job.lease_expires_at for job in jobs],
            "latest": [tx.now + job.extension_ms for job in jobs],
            "leases": [job.lease_ms for job in jobs],
        }
        tx.run("claim", values)
        take_places(tx, self._places)
        self._places = {}
        tx.free_keys(
            (job.id, job.queue, job.unique_key) for job in jobs if job.unique_until is UniqueUntil.STARTED
        )
        tx.move(self._want.queue, JobState.PENDING, JobState.RUNNING, len(jobs))
        if self._turns is not None:
            self._turns.took(Counter(head.share for head in heads if head.share is not None))
        return jobs

    def _ask_gates(self) -> psycopg.Cursor[Row]:
        return self._tx.run("gates", {"queue": self._want.queue, "limit": MOST_GATES})

    def _open_gates(self) -> list[str]:
        """Where jobs wait that are for this worker. A queue has few gates, mostly none."""
        want, rows = self._want, (self._gates or self._ask_gates()).fetchall()
        if len(rows) == MOST_GATES and want.gates is not None:
            rows = self._tx.all("gates_among", {"queue": want.queue, "gates": sorted(want.gates)})
        return [gate for (gate,) in rows if want.passes(gate)]

    def _hold(self, heads: list[Head]) -> None:
        if not heads:
            return
        tx, jobs = self._tx, [head.job for head in heads]
        gates = [head.aside for head in heads]
        behind = [head.spot for head in heads if head.behind is not None]
        if behind:
            # They were let through one gate, and by their task they belong behind another one.
            tx.run("ungate", {"spots": behind})
        values = {
            "spots": [head.spot for head in heads if head.behind is None],
            "queue": self._want.queue,
            "now": tx.now,
            "ids": [job.id for job in jobs],
            "marked": [] if tx.kept_limits or self._turns is not None else [job.id for job in jobs],
            "gates": gates,
            "capped": [job.capped for job in jobs],
            "ranks": [job.rank for job in jobs],
            "seqs": [job.seq for job in jobs],
            "expires": [job.expires_at for job in jobs],
        }
        tx.run("hold", values)
        full = {scope_behind(gate): None for gate in gates if is_limit_gate(gate)}
        if full:
            # First the lanes: a gate without jobs of its own is closed as long as it has one.
            fair = ((head.aside, head.share) for head in heads if is_limit_gate(head.aside))
            lanes = ((scope_behind(gate), share) for gate, share in fair if share is not None)
            join_lanes(tx, self._want.queue, lanes)
            close_gates(tx, self._want.queue, list(full), self._limits)
        for job, gate in zip(jobs, gates, strict=True):
            if not is_limit_gate(gate):
                self._tell_held(job, gate)

    def _tell_held(self, job: Job, gate: str) -> None:
        tx = self._tx
        tx.record(Event(kind=EventKind.HELD, job_id=job.id, queue=job.queue, actor=self._worker, detail=gate))
        tx.has_news = True  # whoever may pass these gates should look
