"""Edges of new and revived jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from forebay.domain.dependencies import (
    UNMET_STATES,
    Edge,
    EdgeState,
    is_past_retention,
    missing_parent,
    reopen_edge_state,
    starting_state,
)
from forebay.domain.dependency_graph import missing_batch_parent
from forebay.domain.job import JobId, NewJob, OnFailure
from forebay.domain.job_states import JobState, is_final
from forebay.domain.queue import Queue
from forebay.errors import StoreBusy
from forebay.stores.contract.claims_and_results import InsertResult
from forebay.stores.postgres.transaction import UNCHECKED, QueryRunner, Transaction
from forebay.stores.shared.dependency_propagation import PropagationPending
from forebay.stores.shared.rows import STATES, Row, edge_from_row

CHECK: Final = "check"  # outbox event: a new job whose parents are not checked yet
Parents = Sequence[tuple[JobId, EdgeState]]


def lock_parent_states(tx: Transaction, ids: Collection[JobId]) -> tuple[dict[JobId, JobState], set[JobId]]:
    """Lock the parents of new jobs and return their states: live, or how they have ended.

    Live ones are marked `has_dependants`, and neither these nor failed ones change before the transaction
    ends. The second value has the jobs that an open caller transaction completes: their outcome is known only
    when that ends.

    A job may end just before it is locked; then a later statement finds it among the final ones. It may be
    revived just then; then a third query finds it live again.
    """
    states: dict[JobId, JobState] = {}
    busy: set[JobId] = set()
    for _ in range(3):
        left = sorted(set(ids) - states.keys() - busy)
        if not left:
            break
        rows = tx.all("parents_lock", {"ids": left})
        # Any live state will do here.
        states |= {row[0]: JobState.PENDING for row in rows if row[1]}
        busy.update(row[0] for row in rows if not row[1])
        left = sorted(set(left) - states.keys() - busy)
        if left:
            for name in ("dead_lock", "cancelled_lock", "completed_among"):
                states |= {row[0]: STATES[row[1]] for row in tx.all(name, {"ids": left})}
    return states, busy


def require_parent_states(tx: Transaction, ids: Collection[JobId]) -> dict[JobId, JobState]:
    """Lock parents as `lock_parent_states`; raise StoreBusy if one is being completed."""
    states, busy = lock_parent_states(tx, ids)
    for job_id in busy:
        raise busy_parent_error(job_id)
    return states


def busy_parent_error(job_id: JobId) -> StoreBusy:
    """Return the error for a parent that an open caller transaction completes, with the remedy."""
    return StoreBusy(
        f"job {job_id} is completed in an open transaction: try again once that is committed or rolled back"
    )


class MetEdges:
    """Open edges that are met: their parents have completed, and `unmet` of their children is lowered.

    A missing parent had completed: otherwise its deletion has an outbox entry. While a parent has an outbox
    entry, some of its edges are not resolved yet.
    """

    def __init__(
        self,
        states: Mapping[JobId, JobState],
        parents: Iterable[JobId],
        load_entries: Callable[[list[JobId]], list[Row]],
    ) -> None:
        self._completed = {
            parent for parent in parents if states.get(parent, JobState.COMPLETED) is JobState.COMPLETED
        }
        self.entries: list[Row] = load_entries(sorted(self._completed)) if self._completed else []
        # The oldest entry of each parent; later ones are not begun.
        self._resolved_up_to = {
            parent: (child, number) for _, parent, child, number in reversed(self.entries)
        }

    def is_met(self, child: JobId, number: int, parent: JobId) -> bool:
        resolved = self._resolved_up_to.get(parent)
        return parent in self._completed and (resolved is None or (child, number) <= resolved)


def resolve_edge_states(runner: QueryRunner, rows: Sequence[Row]) -> list[Edge]:
    """Return edges from rows of one snapshot, with met ones resolved."""
    parents = {row[2] for row in rows if row[4] == EdgeState.OPEN}
    rows_of_parents = runner.all("states", {"ids": sorted(parents)}) if parents else []
    states = {row[0]: STATES[row[1]] for row in rows_of_parents}
    met = MetEdges(states, parents, lambda ended: runner.all("outbox_for_jobs", {"job_ids": ended}))
    return [edge_from_row((*row[:4], _edge_state(row, met))) for row in rows]


def _edge_state(row: Row, met: MetEdges) -> str:
    child, number, parent, _, stored = row
    if stored == UNCHECKED:
        return EdgeState.OPEN.value
    is_met = stored == EdgeState.OPEN and met.is_met(child, number, parent)
    return EdgeState.MET.value if is_met else stored


def reopen_edges(tx: Transaction, ids: Sequence[JobId], *, with_parent: bool) -> Counter[JobId]:
    """Reopen the edges of jobs that are revived together, and count the edges that block each.

    The parents of failed and open edges are checked: some have completed since, and lowered an `unmet` that
    was deleted when the job ended.

    First the edges are locked: a concurrent settlement either committed before the count, or blocks on our
    row locks and then finds the job blocked. Then their parents are locked, as for new jobs: a live one ends
    after us, and finds the edge open. A transaction that deletes such a parent and the child may deadlock
    with this one; then the server ends one of the two, and it is retried. Last, the outbox entries of
    completed parents are locked: a transaction that processes one locks no edges, and may not see the job
    that is put back here. Either it is done, and the entry is gone or its cursor is behind the edge, which is
    met then; or it passes over the locked entry, and we process the entry afterwards.
    """
    rows = tx.all("edges_lock", {"child_ids": sorted(ids)}) if ids else []
    checked = {parent for _, _, parent, state, _ in rows if state in (EdgeState.FAILED, EdgeState.OPEN)}
    # These are revived in this transaction.
    parents = dict.fromkeys(checked.intersection(ids), JobState.PENDING)
    parents |= require_parent_states(tx, checked - parents.keys())
    met = MetEdges(parents, checked, lambda ended: tx.all("outbox_lock", {"job_ids": ended}))
    tx.outbox_ids += [entry[0] for entry in met.entries]
    unmet: Counter[JobId] = Counter()
    ctids: dict[EdgeState, list[str]] = {}
    for child, number, parent, stored, ctid in rows:
        state = EdgeState.OPEN if stored == UNCHECKED else EdgeState(stored)
        new_state = state
        if state is EdgeState.FAILED:
            new_state = reopen_edge_state(parents.get(parent), with_parent=with_parent)
        elif stored == EdgeState.OPEN and met.is_met(child, number, parent):
            new_state = EdgeState.MET  # stored, so that no transaction lowers the new `unmet` for it
        if new_state is not state:
            ctids.setdefault(new_state, []).append(ctid)
        unmet[child] += new_state in UNMET_STATES
    for state, rows_of_state in ctids.items():
        tx.run("edges_set", {"state": state.value, "ctids": rows_of_state})
    return unmet


class ReusedIds:
    """Ids of removed jobs that new jobs get: edges from the old jobs must not lead to the new ones.

    The queries run after the insert of the new jobs, so they see the outbox entries of the transaction that
    removed the old ones. They are sent before the next result is read, so they cost no round trip.
    """

    def __init__(self, tx: Transaction, ids: Sequence[JobId]) -> None:
        self._tx = tx
        self._entries = tx.run("outbox_lock", {"job_ids": ids})
        self._unchecked = tx.run("unchecked_among", {"parent_ids": ids})

    def detach(self, ids: Sequence[JobId]) -> None:
        """Detach the new jobs from edges of old ones; raise PropagationPending where that is too early.

        It is too early while an old job has an outbox entry or an unchecked edge: a later check would take
        the new job for the old one.
        """
        pending = [row[1] for row in self._entries.fetchall()] + [
            row[0] for row in self._unchecked.fetchall()
        ]
        for parent in pending:
            if parent in ids:
                raise PropagationPending(parent)
        self._tx.run("edges_mark_met", {"ids": ids})


class EdgeWriter:
    """Edges of one insert.

    A caller transaction locks no parents, since it may stay open for any time. Its edges to existing jobs are
    unchecked, and a promotion checks the parents after the commit. An edge to a completed parent is met at
    once: that never changes, and the record of the parent may be pruned before the check.
    """

    def __init__(
        self, tx: Transaction, jobs: Sequence[NewJob], holders: Iterable[JobId], *, is_caller_tx: bool
    ) -> None:
        self._tx = tx
        self._is_caller_tx = is_caller_tx
        # By failure rule and state of the edge: most are identical.
        self._rows: dict[tuple[OnFailure, str], tuple[list[JobId], list[int], list[JobId]]] = {}
        self._outbox_events: dict[JobId, str] = {}
        self._states: dict[JobId, JobState] = {}
        self._busy: set[JobId] = set()
        dependencies = [dependency for job in jobs for dependency in job.depends_on]
        self.is_used: bool = bool(dependencies)
        if dependencies:
            named = {
                dependency.parent for dependency in dependencies if not isinstance(dependency.parent, int)
            }
            wanted = named.union(holders)
            if is_caller_tx:
                self._states = tx.states(wanted)
            else:
                self._states, self._busy = lock_parent_states(tx, wanted)

    def resolve_parents(
        self, job: NewJob, queue: Queue, before: Sequence[InsertResult], new: Collection[JobId]
    ) -> list[tuple[JobId, EdgeState]]:
        """Return the parents of a new job with the states of its edges; raise InvalidJob for a missing one.

        `before` and `new` are the jobs of this insert that came before it.
        """
        resolved = []
        for dependency in job.depends_on:
            parent = (
                dependency.parent
                if not isinstance(dependency.parent, int)
                else _parent_at(job, dependency.parent, before)
            )
            state = EdgeState.OPEN
            if parent not in new:
                state = self._resolve_state(job, queue, parent, dependency.on_failure)
            resolved.append((parent, state))
        return resolved

    def _resolve_state(self, job: NewJob, queue: Queue, parent: JobId, on_failure: OnFailure) -> EdgeState:
        if parent in self._states:
            state = self._states[parent]
            is_unchecked = self._is_caller_tx and state is not JobState.COMPLETED
            return EdgeState.OPEN if is_unchecked else starting_state(state, on_failure)
        if parent in self._busy:
            raise busy_parent_error(parent)
        if job.allow_missing and is_past_retention(parent, queue.settings.keep_finished_ms, self._tx.now):
            return EdgeState.MET
        raise missing_parent(job.task, parent, job.allow_missing)

    def add(self, child: JobId, job: NewJob, parents: Parents) -> None:
        """Collect the edges of a new job."""
        for number, (dependency, (parent, state)) in enumerate(zip(job.depends_on, parents, strict=True)):
            # A parent of this very insert is marked and new: it needs no check.
            is_unchecked = self._is_caller_tx and state is EdgeState.OPEN and parent in self._states
            shape = dependency.on_failure, UNCHECKED if is_unchecked else state.value
            if (rows := self._rows.get(shape)) is None:
                rows = self._rows[shape] = ([], [], [])
            rows[0].append(child)
            rows[1].append(number)
            rows[2].append(parent)
            known = self._states.get(parent) if self._states else None
            if state is EdgeState.OPEN and known is not None and is_final(known) and not self._is_caller_tx:
                self._outbox_events[parent] = known.value
        if self._is_caller_tx and any(state is EdgeState.OPEN for _, state in parents):
            self._outbox_events[child] = CHECK

    def flush(self) -> None:
        """Store the collected edges."""
        for (on_failure, state), (children, numbers, parents) in self._rows.items():
            shape = {"on_failure": on_failure.value, "state": state}
            self._tx.run(
                "edges_add", {**shape, "child_ids": children, "positions": numbers, "parent_ids": parents}
            )
        if self._rows:
            self._tx.add_to_outbox(list(self._outbox_events.items()))


def _parent_at(job: NewJob, back: int, before: Sequence[InsertResult]) -> JobId:
    result = before[-back] if back <= len(before) else None
    if result is None or result.id is None:
        raise missing_batch_parent(job.task, back)
    return result.id
