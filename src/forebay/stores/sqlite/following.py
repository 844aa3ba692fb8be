"""The list of what the ends of jobs mean for others."""

from __future__ import annotations

from collections.abc import Sequence

from forebay.domain.history import Event, EventKind
from forebay.domain.job import JobId
from forebay.domain.lifecycle import JobState, is_final
from forebay.domain.workflow import RELEASED_AT_ONCE, Aftermath, Edge, EdgeState
from forebay.stores import following
from forebay.stores.following import Entry
from forebay.stores.ids import seq_in_id
from forebay.stores.rows import Row, edge_from_row, json_text, share_in
from forebay.stores.sqlite.duties import end_waiting
from forebay.stores.sqlite.operating import revive
from forebay.stores.sqlite.sharing import join
from forebay.stores.sqlite.transaction import Transaction


def follow(tx: Transaction) -> int:
    """Work on the list of what the ends of jobs mean for others."""
    if not tx.may_have_aftermaths():
        return 0
    if tx.has_new_jobs:
        tx.count_new()  # a job of this very insert may end because of a parent
    met = _met_at_once(tx)
    return met if met >= RELEASED_AT_ONCE else met + following.follow(_Following(tx))


def _met_at_once(tx: Transaction) -> int:
    """What most ends are, together: jobs that have completed. To do this one by one would take six statements
    for each edge; how many edges were settled."""
    lines = tx.all("aftermaths_completed", {"limit": RELEASED_AT_ONCE})
    if not lines:
        return 0
    parents = json_text([parent for _, parent in lines])
    met = tx.all("edges_met", {"parents": parents, "limit": RELEASED_AT_ONCE})
    engine = _Following(tx)
    _leave_sequences(tx, engine, [parent for _, parent in lines])
    for child in sorted({child for (child,) in met}):
        if engine.is_blocked(child) and not engine.has_unmet(child):
            engine.release(child)
    if len(met) < RELEASED_AT_ONCE:
        tx.run("aftermaths_remove", {"number": lines[-1][0]})
    return max(len(met), 1)


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
        if self._blocked is None:
            return
        tx = self._tx
        seq, queue, priority, failures, deadline_at, run_at, options = self._blocked
        ready_at = max(run_at, tx.now)
        state = JobState.SCHEDULED if ready_at > tx.now else JobState.PENDING
        where = tx.place(queue, ready_at, priority, failures, deadline_at)
        values = {
            "seq": seq,
            "state": state.value,
            "ready_at": ready_at,
            "rank": where.rank,
            "capped": where.capped and state is JobState.PENDING,
            "rescore_at": where.rescore_at if state is JobState.PENDING else None,
            "now": tx.now,
        }
        tx.run("release", values)
        if state is JobState.PENDING:
            join(tx, queue, share_in(options), [seq])
        tx.move(queue, JobState.BLOCKED, state)
        tx.has_news = True

    def end_blocked(self, child: JobId, state: JobState, reason: str) -> None:
        if self._blocked is not None:
            queue = end_waiting(self._tx, self._blocked[0], child, state, reason)
            self._tx.record(Event(kind=EventKind.PARENT, job_id=child, queue=queue, detail=reason))

    def revive_ended(self, child: JobId) -> None:
        revive(self._tx, child, None, 0, "", reset=True, dependants=True, with_parent=True)
