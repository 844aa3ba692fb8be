"""The list of what the ends of jobs mean for others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from forebay.domain.history import Event, EventKind
from forebay.domain.job import JobId, QueueName
from forebay.domain.lifecycle import JobState, is_final
from forebay.domain.workflow import RELEASED_AT_ONCE, Aftermath, Edge, EdgeState
from forebay.stores import following
from forebay.stores.following import Entry
from forebay.stores.ids import seq_in_id
from forebay.stores.rows import Row, edge_from_row, json_text, share_in
from forebay.stores.sqlite.duties import CAP_WALK, end_waiting
from forebay.stores.sqlite.operating import revive
from forebay.stores.sqlite.sharing import join
from forebay.stores.sqlite.transaction import Transaction


class Blocked(NamedTuple):
    """What has to be known of a blocked job to release it."""

    seq: int
    queue: QueueName
    priority: int
    failures: int
    deadline_at: int | None
    run_at: int
    share: str | None


def _blocked(row: Row) -> Blocked:
    seq, queue, priority, failures, deadline_at, run_at, options = row
    return Blocked(seq, queue, priority, failures, deadline_at, run_at, share_in(options))


def follow(tx: Transaction) -> int:
    """Work on the list of what the ends of jobs mean for others."""
    if not tx.may_have_aftermaths():
        return 0
    if tx.has_new_jobs:
        tx.count_new()  # a job of this very insert may end because of a parent
    met = 0
    while met < RELEASED_AT_ONCE and (more := _met_at_once(tx, RELEASED_AT_ONCE - met)):
        met += more
    return met if met >= RELEASED_AT_ONCE else met + following.follow(_Following(tx))


def _met_at_once(tx: Transaction, room: int) -> int:
    """What most ends are, together: jobs that have completed. To do this one by one would take six statements
    for each edge; how many edges were settled."""
    lines = tx.all("aftermaths_completed", {"limit": room})
    if not lines:
        return 0
    parents = json_text([parent for _, parent in lines])
    met = tx.all("edges_met", {"parents": parents, "limit": room})
    _leave_sequences(tx, _Following(tx), [parent for _, parent in lines])
    _release_among(tx, sorted({child for (child,) in met}))
    if len(met) < room:
        tx.run("aftermaths_remove", {"number": lines[-1][0]})
    return max(len(met), 1)


def _release_among(tx: Transaction, children: Sequence[JobId]) -> None:
    """Release those that no edge blocks any more. Most are where their ids say, and found together."""
    seqs = {child: seq_in_id(child) for child in children}
    named = {seq: child for child, seq in seqs.items() if seq is not None}
    rows = tx.all("unblocked", {"children": json_text(named)}) if named else []
    _release(tx, [_blocked((row[0], *row[2:])) for row in rows])
    engine = _Following(tx)
    for child in sorted(seqs.keys() - {row[1] for row in rows}):
        if engine.is_blocked(child) and not engine.has_unmet(child):
            engine.release(child)


def _release(tx: Transaction, jobs: Sequence[Blocked]) -> None:
    """Let blocked jobs wait like any others, by one statement for those that are alike."""
    if not jobs:
        return
    (walked_to,) = tx.one("walked_to", {"name": CAP_WALK}) or (0,)
    alike: defaultdict[tuple[bool, Blocked], list[int]] = defaultdict(list)
    for job in jobs:
        kind = job._replace(seq=0, run_at=max(job.run_at, tx.now))
        alike[job.seq > walked_to, kind].append(job.seq)
    for (is_young, kind), seqs in alike.items():
        _, queue, priority, failures, deadline_at, ready_at, share = kind
        state = JobState.SCHEDULED if ready_at > tx.now else JobState.PENDING
        where = tx.place(queue, ready_at, priority, failures, deadline_at)
        # A young one is found by its number before its age is capped, as those are that were never blocked.
        rescores = state is JobState.PENDING and not (is_young and deadline_at is None)
        values = {
            "seqs": json_text(seqs),
            "state": state.value,
            "ready_at": ready_at,
            "rank": where.rank,
            "capped": where.capped and state is JobState.PENDING,
            "rescore_at": where.rescore_at if rescores else None,
            "now": tx.now,
        }
        tx.run("release", values)
        if state is JobState.PENDING:
            join(tx, queue, share, seqs)
        tx.move(queue, JobState.BLOCKED, state, len(seqs))
        tx.has_news = True


def _leave_sequences(tx: Transaction, engine: _Following, ids: Sequence[JobId]) -> None:
    """Jobs that do not live any more are out of their sequences, and the next ones may run."""
    for job_id, name, number in tx.all("sequences_of", {"ids": json_text(ids)}):
        found = tx.find(job_id)
        if found is not None and not is_final(found[1]):
            continue  # somebody has revived it meanwhile
        tx.run("sequence_leave", {"name": name, "number": number})
        first = tx.one("sequence_first", {"name": name, "number": number})
        if first is not None and engine.is_blocked(first[0]) and not engine.has_unmet(first[0]):
            engine.release(first[0])


class _Following:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._blocked: Row | None = None  # the child that was last looked at

    def next_entry(self) -> Entry | None:
        row = self._tx.one("aftermath_next", {})
        if row is None:
            self._tx.has_no_aftermaths()
            return None
        return Entry(row[0], row[1], Aftermath(row[2]))

    def drop_entry(self, entry: Entry) -> None:
        self._tx.run("aftermath_remove", {"number": entry.number})

    def list_aftermath(self, parent: JobId, aftermath: Aftermath) -> None:
        self._tx.list_aftermath([parent], aftermath)

    def leave_sequence(self, job_id: JobId) -> None:
        _leave_sequences(self._tx, self, [job_id])

    def edges_behind(self, parent: JobId, states: Sequence[EdgeState], limit: int) -> list[Edge]:
        values = {"parent": parent, "one": states[0].value, "other": states[-1].value, "limit": limit}
        return [edge_from_row(row) for row in self._tx.all("edges_behind", values)]

    def set_edge(self, edge: Edge, state: EdgeState) -> None:
        self._tx.run("edge_set", {"child": edge.child, "number": edge.number, "state": state.value})

    def is_blocked(self, child: JobId) -> bool:
        self._blocked = self._tx.one("blocked", {"seq": seq_in_id(child), "job_id": child})
        return self._blocked is not None

    def has_unmet(self, child: JobId) -> bool:
        return self._tx.one("unmet", {"child": child}) == (1,)

    def release(self, child: JobId) -> None:
        if self._blocked is not None:
            _release(self._tx, [_blocked(self._blocked)])

    def end_blocked(self, child: JobId, state: JobState, reason: str) -> None:
        if self._blocked is not None:
            queue = end_waiting(self._tx, self._blocked[0], child, state, reason)
            self._tx.record(Event(kind=EventKind.PARENT, job_id=child, queue=queue, detail=reason))

    def revive_ended(self, child: JobId) -> None:
        revive(self._tx, child, None, 0, "", reset=True, dependants=True, with_parent=True)
