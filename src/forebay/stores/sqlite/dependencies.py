"""The list of what the ends of jobs mean for others."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from forebay.domain.dependencies import (
    PROPAGATION_BATCH,
    UNMET_STATES,
    DependencyEvent,
    Edge,
    EdgeState,
)
from forebay.domain.history import Event, EventKind
from forebay.domain.job import JobId
from forebay.domain.lifecycle import JobState, is_final
from forebay.stores.contract.revive_options import ReviveOptions
from forebay.stores.ids import seq_in_id
from forebay.stores.shared import dependencies
from forebay.stores.shared.dependencies import OutboxEntry
from forebay.stores.shared.rows import Row, edge_from_row, fairness_key_in, json_text
from forebay.stores.sqlite.admin import revive
from forebay.stores.sqlite.fairness import mark_pending
from forebay.stores.sqlite.maintenance import AGE_CAP_SCAN, end_waiting
from forebay.stores.sqlite.transaction import Transaction

# What it takes to release a blocked job: seq, queue, priority, failures, deadline_at, run_at, options.
BlockedRow: TypeAlias = Sequence[Any]


def propagate(tx: Transaction) -> int:
    """Do what the ends of jobs mean for others, as much as one transaction takes; how many edges that was
    about."""
    if tx.has_new_jobs and (tx.completed or tx.may_have_outbox_entries()):
        tx.count_new()  # a job of this very insert may end because of a parent
    looked_at = _resolve_inline(tx) if tx.completed else 0
    while looked_at < PROPAGATION_BATCH and tx.may_have_outbox_entries():
        room = PROPAGATION_BATCH - looked_at
        more = _resolve_from_outbox(tx, room) or dependencies.propagate(_SqliteDependencyTx(tx), room)
        if not more:
            tx.mark_outbox_empty()
        looked_at += more
    return looked_at


def _resolve_inline(tx: Transaction) -> int:
    """What most ends are: jobs of this transaction have completed, and nothing that happened before is left
    to be looked at. What is too much for one transaction is put on the list."""
    ids, tx.completed = tx.completed, []
    is_first = not tx.may_have_outbox_entries() or tx.one("outbox_next", {}) is None
    met = _count_met_edges(tx, ids, PROPAGATION_BATCH) if is_first else None
    if met is None:
        tx.add_to_outbox(ids, DependencyEvent.COMPLETED)
        return 0
    moved_up = _leave_sequences(tx, _SqliteDependencyTx(tx), ids)
    _decrement_unmet(tx, met)
    return sum(met.values()) + moved_up


def _resolve_from_outbox(tx: Transaction, room: int) -> int:
    """The same for jobs that are the oldest on the list; how many edges that was about.

    The edges stay as they are, and only the numbers of those that block a child are lowered: to change each
    edge and its place in an index would take half as long as the job. It is done once for each edge, because
    the line that asks for it goes, or moves behind the edge, in the same transaction.
    """
    lines = tx.all("outbox_completed", {"limit": room})
    if not lines:
        return 0
    parents = [parent for _, parent, _, _ in lines]
    _leave_sequences(tx, _SqliteDependencyTx(tx), parents)
    met: dict[JobId, int] | None = None
    # Half of them, and half of these, until they are not too many. One that was begun comes alone.
    while lines[0][2] == "" and (met := _count_met_edges(tx, parents, room)) is None and len(parents) > 1:
        parents = parents[: len(parents) // 2]
    if met is None:
        return _resolve_partially(tx, lines[0], room)
    _decrement_unmet(tx, met)
    tx.run("outbox_remove_all", {"id": lines[len(parents) - 1][0]})
    return max(sum(met.values()), 1)


def _count_met_edges(tx: Transaction, parents: Sequence[JobId], room: int) -> dict[JobId, int] | None:
    """How many edges to each child lead from these jobs; None if they are too many."""
    values = {"parent_ids": json_text(parents), "limit": room + 1}
    met: dict[JobId, int] = dict(tx.all("edges_completed_by_child", values))
    return met if sum(met.values()) <= room else None


def _resolve_partially(tx: Transaction, entry: Row, room: int) -> int:
    """The same for one job on which many depend, from the edge on up to which it is done."""
    number, parent, after_child, after_number = entry
    span = {"cursor_child_id": after_child, "cursor_position": after_number}
    rows = tx.all("edges_after", {"parent_id": parent, "limit": room, **span})
    _decrement_unmet(tx, Counter(child for child, _ in rows))
    if len(rows) < room:
        tx.run("outbox_remove_all", {"id": number})
    else:
        child, last = rows[-1]
        tx.run("outbox_set_cursor", {"id": number, "cursor_child_id": child, "cursor_position": last})
    return max(len(rows), 1)


def _decrement_unmet(tx: Transaction, met: Mapping[JobId, int]) -> None:
    """Fewer edges block some jobs; release those that nothing blocks any more. Most are where their ids say,
    and found together."""
    seqs = {child: seq_in_id(child) for child in met}
    named = {seq: child for child, seq in seqs.items() if seq is not None}
    rows = tx.all("blocked_among", {"children": json_text(named)}) if named else []
    found = {row[1] for row in rows}
    engine = _SqliteDependencyTx(tx)
    for child in sorted(met.keys() - found):
        if engine.is_blocked(child):
            rows.append((engine.unmet, child, engine.is_sequence_blocked(child), *engine.blocked))
    fewer: defaultdict[int, list[int]] = defaultdict(list)
    free = []
    for unmet, child, is_behind, *job in rows:
        if unmet > met[child] or is_behind:
            fewer[met[child]].append(job[0])
        else:
            free.append(job)
    for edges, some in fewer.items():
        tx.run("unmet_decrement", {"met": edges, "seqs": json_text(some)})
    _release(tx, free)


def _release(tx: Transaction, jobs: Sequence[BlockedRow]) -> None:
    """Let blocked jobs wait like any others, by one statement for those that are alike."""
    if not jobs:
        return
    (walked_to,) = tx.one("scan_position", {"name": AGE_CAP_SCAN}) or (0,)
    alike: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)
    for seq, queue, priority, failures, deadline_at, run_at, options in jobs:
        share = None if options is None else fairness_key_in(options)
        kind = (queue, priority, failures, deadline_at, max(run_at, tx.now), share)
        alike[seq > walked_to, *kind].append(seq)
    for (is_young, queue, priority, failures, deadline_at, ready_at, share), seqs in alike.items():
        state = JobState.SCHEDULED if ready_at > tx.now else JobState.PENDING
        where = tx.compute_rank(queue, ready_at, priority, failures, deadline_at)
        # A young one is found by its number before its age is capped, as those are that were never blocked.
        rescores = state is JobState.PENDING and not (is_young and deadline_at is None)
        values = {
            "seqs": json_text(seqs),
            "state": state.value,
            "ready_at": ready_at,
            "rank": where.rank,
            "age_capped": where.age_capped and state is JobState.PENDING,
            "rescore_at": where.rescore_at if rescores else None,
            "now": tx.now,
        }
        tx.run("release", values)
        if state is JobState.PENDING:
            mark_pending(tx, queue, share, seqs)
        tx.count_moved(queue, JobState.BLOCKED, state, len(seqs))
        tx.needs_wakeup = True


def _leave_sequences(tx: Transaction, engine: _SqliteDependencyTx, ids: Sequence[JobId]) -> int:
    """Jobs that do not live any more are out of their sequences, and the next ones may run; how many these
    are."""
    moved_up = 0
    for job_id, name, number in tx.all("sequences_of", {"ids": json_text(ids)}):
        found = tx.locate(job_id)
        if found is not None and not is_final(found[1]):
            continue  # somebody has revived it meanwhile
        tx.run("sequence_leave", {"name": name, "position": number})
        first = tx.one("sequence_first", {"name": name, "position": number})
        if first is not None and engine.is_blocked(first[0]) and not engine.has_unmet(first[0]):
            engine.release(first[0])
            moved_up += 1
    return moved_up


class _SqliteDependencyTx:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self.blocked: list[Any] = []  # the child that was last looked at, if it is blocked
        self.unmet = 0  # how many edges block it

    def next_entry(self) -> OutboxEntry | None:
        row = self._tx.one("outbox_next", {})
        # Jobs that have completed are gone through together.
        if row is None or row[2] == DependencyEvent.COMPLETED:
            return None
        return OutboxEntry(row[0], row[1], DependencyEvent(row[2]))

    def drop_entry(self, entry: OutboxEntry) -> None:
        self._tx.run("outbox_remove", {"id": entry.id})

    def add_to_outbox(self, job_id: JobId, event: DependencyEvent) -> None:
        self._tx.add_to_outbox([job_id], event)

    def leave_sequence(self, job_id: JobId) -> None:
        _leave_sequences(self._tx, self, [job_id])

    def edges_from_parent(self, parent: JobId, states: Sequence[EdgeState], limit: int) -> list[Edge]:
        values = {
            "parent_id": parent,
            "state": states[0].value,
            "other_state": states[-1].value,
            "limit": limit,
        }
        return [edge_from_row(row) for row in self._tx.all("edges_from_parents", values)]

    def set_edge(self, edge: Edge, state: EdgeState) -> None:
        values = {
            "child_id": edge.child,
            "position": edge.position,
            "old_state": edge.state.value,
            "state": state.value,
        }
        # A child that was revived because of another edge to this parent has reopened this one too.
        if not self._tx.run("edge_set", values).rowcount:
            return
        fewer = (edge.state in UNMET_STATES) - (state in UNMET_STATES)
        if fewer and self.is_blocked(edge.child):
            self._tx.run("unmet_decrement", {"met": fewer, "seqs": json_text([self.blocked[0]])})

    def is_blocked(self, child: JobId) -> bool:
        row = self._tx.one("blocked", {"seq": seq_in_id(child), "job_id": child})
        *self.blocked, self.unmet = row or (0,)
        return row is not None

    def is_sequence_blocked(self, child: JobId) -> bool:
        """Whether a job before it in its sequence blocks a child."""
        return self._tx.one("sequence_is_blocked", {"job_id": child}) == (1,)

    def has_unmet(self, child: JobId) -> bool:
        return self.unmet > 0 or self.is_sequence_blocked(child)

    def release(self, child: JobId) -> None:
        _release(self._tx, [self.blocked])

    def end_blocked(self, child: JobId, state: JobState, reason: str) -> None:
        queue = end_waiting(self._tx, self.blocked[0], child, state, reason)
        self._tx.record(Event(kind=EventKind.PARENT_FAILED, job_id=child, queue=queue, detail=reason))

    def revive_ended(self, child: JobId) -> None:
        revive(self._tx, child, ReviveOptions(dependants=True), with_parent=True)
