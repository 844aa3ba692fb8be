"""Propagation of job ends to dependants, inline or from the dependency outbox."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from forebay.domain.dependencies import PROPAGATION_BATCH, UNMET_STATES, DependencyEvent, Edge, EdgeState
from forebay.domain.job import JobId
from forebay.domain.job_history import Event, EventKind
from forebay.domain.job_states import JobState, is_final
from forebay.stores.contract.revive_options import ReviveOptions
from forebay.stores.id_generator import seq_in_id
from forebay.stores.shared import dependency_propagation
from forebay.stores.shared.dependency_propagation import OutboxEntry
from forebay.stores.shared.rows import Row, edge_from_row, fairness_key_in, json_text
from forebay.stores.sqlite.fairness import mark_pending
from forebay.stores.sqlite.job_actions import revive
from forebay.stores.sqlite.job_ends_and_removal import end_waiting
from forebay.stores.sqlite.maintenance import AGE_CAP_SCAN
from forebay.stores.sqlite.transaction import Transaction

# Values to release a blocked job: seq, queue, priority, failures, deadline_at, run_at, options.
BlockedRow: TypeAlias = Sequence[Any]


def propagate(tx: Transaction) -> int:
    """Propagate job ends, as many as one transaction takes. Return how many edges were resolved."""
    if tx.has_new_jobs and (tx.completed or tx.may_have_outbox_entries()):
        tx.count_new()  # a job of this very insert may end because of a parent
    resolved = _resolve_inline(tx) if tx.completed else 0
    while resolved < PROPAGATION_BATCH and tx.may_have_outbox_entries():
        limit = PROPAGATION_BATCH - resolved
        more = _resolve_from_outbox(tx, limit) or dependency_propagation.propagate(
            _SqliteDependencyTx(tx), limit
        )
        if not more:
            tx.mark_outbox_empty()
        resolved += more
    return resolved


def _resolve_inline(tx: Transaction) -> int:
    """Resolve the common case: jobs of this transaction have completed, and the outbox is empty. Ends that
    are too many for one transaction go into the outbox."""
    ids, tx.completed = tx.completed, []
    is_first = not tx.may_have_outbox_entries() or tx.one("outbox_next", {}) is None
    met = _count_met_edges(tx, ids, PROPAGATION_BATCH) if is_first else None
    if met is None:
        tx.add_to_outbox(ids, DependencyEvent.COMPLETED)
        return 0
    moved_up = _leave_sequences(tx, _SqliteDependencyTx(tx), ids)
    _decrement_unmet(tx, met)
    return sum(met.values()) + moved_up


def _resolve_from_outbox(tx: Transaction, limit: int) -> int:
    """Do the same for completed jobs that are the oldest outbox entries. Return how many edges were resolved.

    The edges keep their state, and only the `unmet` counts of their children are decremented: to change each
    edge and its index entry would take half as long as the job. Each edge is counted once, because its outbox
    entry is removed, or its cursor moves behind the edge, in the same transaction.
    """
    entries = tx.all("outbox_completed", {"limit": limit})
    if not entries:
        return 0
    parents = [parent for _, parent, _, _ in entries]
    _leave_sequences(tx, _SqliteDependencyTx(tx), parents)
    met: dict[JobId, int] | None = None
    # Halve the batch until its edges are few enough. An entry with a cursor is resolved alone.
    while entries[0][2] == "" and (met := _count_met_edges(tx, parents, limit)) is None and len(parents) > 1:
        parents = parents[: len(parents) // 2]
    if met is None:
        return _resolve_partially(tx, entries[0], limit)
    _decrement_unmet(tx, met)
    tx.run("outbox_remove_all", {"id": entries[len(parents) - 1][0]})
    return max(sum(met.values()), 1)


def _count_met_edges(tx: Transaction, parents: Sequence[JobId], limit: int) -> dict[JobId, int] | None:
    """Return how many edges lead from these jobs to each child; None if they are too many."""
    values = {"parent_ids": json_text(parents), "limit": limit + 1}
    met: dict[JobId, int] = dict(tx.all("edges_completed_by_child", values))
    return met if sum(met.values()) <= limit else None


def _resolve_partially(tx: Transaction, entry: Row, limit: int) -> int:
    """Do the same for one job with many dependants, from its cursor on."""
    entry_id, parent, cursor_child_id, cursor_position = entry
    cursor = {"cursor_child_id": cursor_child_id, "cursor_position": cursor_position}
    rows = tx.all("edges_after", {"parent_id": parent, "limit": limit, **cursor})
    _decrement_unmet(tx, Counter(child for child, _ in rows))
    if len(rows) < limit:
        tx.run("outbox_remove_all", {"id": entry_id})
    else:
        child, position = rows[-1]
        tx.run("outbox_set_cursor", {"id": entry_id, "cursor_child_id": child, "cursor_position": position})
    return max(len(rows), 1)


def _decrement_unmet(tx: Transaction, met: Mapping[JobId, int]) -> None:
    """Decrement the `unmet` counts of some jobs, and release those that nothing blocks any more. Most jobs
    are found together, by the seq in their ids."""
    seqs = {child: seq_in_id(child) for child in met}
    child_of_seq = {seq: child for child, seq in seqs.items() if seq is not None}
    rows = tx.all("blocked_among", {"children": json_text(child_of_seq)}) if child_of_seq else []
    found_ids = {row[1] for row in rows}
    dependency_tx = _SqliteDependencyTx(tx)
    for child in sorted(met.keys() - found_ids):
        if dependency_tx.is_blocked(child):
            rows.append(
                (dependency_tx.unmet, child, dependency_tx.is_sequence_blocked(child), *dependency_tx.blocked)
            )
    still_blocked: defaultdict[int, list[int]] = defaultdict(list)
    released = []
    for unmet, child, is_sequence_blocked, *job in rows:
        if unmet > met[child] or is_sequence_blocked:
            still_blocked[met[child]].append(job[0])
        else:
            released.append(job)
    for edges, seqs_of_count in still_blocked.items():
        tx.run("unmet_decrement", {"met": edges, "seqs": json_text(seqs_of_count)})
    _release(tx, released)


def _release(tx: Transaction, jobs: Sequence[BlockedRow]) -> None:
    """Let blocked jobs wait like any others, with one statement for those with the same values."""
    if not jobs:
        return
    (scanned_to,) = tx.one("scan_position", {"name": AGE_CAP_SCAN}) or (0,)
    groups: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)
    for seq, queue, priority, failures, deadline_at, run_at, options in jobs:
        fairness_key = None if options is None else fairness_key_in(options)
        group_key = (queue, priority, failures, deadline_at, max(run_at, tx.now), fairness_key)
        groups[seq > scanned_to, *group_key].append(seq)
    for (is_young, queue, priority, failures, deadline_at, ready_at, fairness_key), seqs in groups.items():
        state = JobState.SCHEDULED if ready_at > tx.now else JobState.PENDING
        queue_rank = tx.compute_rank(queue, ready_at, priority, failures, deadline_at)
        # The scan by seq finds a young job before its age is capped, like jobs that were never blocked.
        rescores = state is JobState.PENDING and not (is_young and deadline_at is None)
        values = {
            "seqs": json_text(seqs),
            "state": state.value,
            "ready_at": ready_at,
            "rank": queue_rank.rank,
            "age_capped": queue_rank.age_capped and state is JobState.PENDING,
            "rescore_at": queue_rank.rescore_at if rescores else None,
            "now": tx.now,
        }
        tx.run("release", values)
        if state is JobState.PENDING:
            mark_pending(tx, queue, fairness_key, seqs)
        tx.count_moved(queue, JobState.BLOCKED, state, len(seqs))
        tx.needs_wakeup = True


def _leave_sequences(tx: Transaction, dependency_tx: _SqliteDependencyTx, ids: Sequence[JobId]) -> int:
    """Remove final jobs from their sequences, and release the next ones. Return how many were released."""
    moved_up = 0
    for job_id, name, number in tx.all("sequences_of", {"ids": json_text(ids)}):
        location = tx.locate(job_id)
        if location is not None and not is_final(location[1]):
            continue  # it was revived meanwhile
        tx.run("sequence_leave", {"name": name, "position": number})
        first = tx.one("sequence_first", {"name": name, "position": number})
        if first is not None and dependency_tx.is_blocked(first[0]) and not dependency_tx.has_unmet(first[0]):
            dependency_tx.release(first[0])
            moved_up += 1
    return moved_up


class _SqliteDependencyTx:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self.blocked: list[Any] = []  # the child that was checked last, if it is blocked
        self.unmet = 0  # how many edges block it

    def next_entry(self) -> OutboxEntry | None:
        row = self._tx.one("outbox_next", {})
        # Entries of completed jobs are resolved in batches.
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
        change = (edge.state in UNMET_STATES) - (state in UNMET_STATES)
        if change and self.is_blocked(edge.child):
            self._tx.run("unmet_decrement", {"met": change, "seqs": json_text([self.blocked[0]])})

    def is_blocked(self, child: JobId) -> bool:
        row = self._tx.one("blocked", {"seq": seq_in_id(child), "job_id": child})
        *self.blocked, self.unmet = row or (0,)
        return row is not None

    def is_sequence_blocked(self, child: JobId) -> bool:
        """Return whether an earlier job of its sequence blocks a child."""
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
