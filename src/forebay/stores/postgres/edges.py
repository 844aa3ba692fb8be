"""The edges of new jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from forebay.domain.dependencies import (
    UNMET_STATES,
    Edge,
    EdgeState,
    is_past_retention,
    missing_batch_parent,
    missing_parent,
    reopen_edge_state,
    starting_state,
)
from forebay.domain.job import JobId, NewJob, OnFailure
from forebay.domain.lifecycle import JobState, is_final
from forebay.domain.queue import Queue
from forebay.errors import StoreBusy
from forebay.stores.contract.values import InsertResult
from forebay.stores.postgres.transaction import UNCHECKED, QueryRunner, Transaction
from forebay.stores.shared.dependencies import PropagationPending
from forebay.stores.shared.rows import STATES, Row, edge_from_row

CHECK: Final = "check"  # in the list: a new job whose parents nobody has looked at
Parents = Sequence[tuple[JobId, EdgeState]]


def lock_parent_states(tx: Transaction, ids: Collection[JobId]) -> tuple[dict[JobId, JobState], set[JobId]]:
    """The states of jobs that others are going to depend on: whether they live or how they have ended. Live
    ones are marked, and neither these nor failed ones change before the transaction ends. Second come the
    jobs that a caller's open transaction completes: how they end is known when that does.

    A job may end just before it would have been held; then a later statement finds it among those that
    ended. It may be revived just then; then a third look finds it alive again.
    """
    states: dict[JobId, JobState] = {}
    busy: set[JobId] = set()
    for _ in range(3):
        left = sorted(set(ids) - states.keys() - busy)
        if not left:
            break
        rows = tx.all("parents_lock", {"ids": left})
        # Which of the live states it is does not matter here.
        states |= {row[0]: JobState.PENDING for row in rows if row[1]}
        busy.update(row[0] for row in rows if not row[1])
        left = sorted(set(left) - states.keys() - busy)
        if left:
            for name in ("dead_lock", "cancelled_lock", "completed_among"):
                states |= {row[0]: STATES[row[1]] for row in tx.all(name, {"ids": left})}
    return states, busy


def require_parent_states(tx: Transaction, ids: Collection[JobId]) -> dict[JobId, JobState]:
    """The same for callers that need all of them; raises StoreBusy if that cannot be."""
    states, busy = lock_parent_states(tx, ids)
    for job_id in busy:
        raise busy_parent_error(job_id)
    return states


def busy_parent_error(job_id: JobId) -> StoreBusy:
    """Tell that a caller's open transaction completes a job, and the way out."""
    return StoreBusy(
        f"job {job_id} is completed in an open transaction: try again once that is committed or rolled back"
    )


class MetEdges:
    """Which open edges are met: their parents have completed, and that many edges fewer block their children.

    A parent that is gone had completed: else its deletion has put it on the list. While one is on the list,
    some of its children have not heard of it.
    """

    def __init__(
        self,
        states: Mapping[JobId, JobState],
        parents: Iterable[JobId],
        load_entries: Callable[[list[JobId]], list[Row]],
    ) -> None:
        self._completed = {
            one for one in parents if states.get(one, JobState.COMPLETED) is JobState.COMPLETED
        }
        self.entries: list[Row] = load_entries(sorted(self._completed)) if self._completed else []
        # The oldest of each; those after it are not begun.
        self._resolved_up_to = {
            parent: (child, number) for _, parent, child, number in reversed(self.entries)
        }

    def is_met(self, child: JobId, number: int, parent: JobId) -> bool:
        so_far = self._resolved_up_to.get(parent)
        return parent in self._completed and (so_far is None or (child, number) <= so_far)


def resolve_edge_states(runner: QueryRunner, rows: Sequence[Row]) -> list[Edge]:
    """Edges from rows, all of one moment."""
    parents = {row[2] for row in rows if row[4] == EdgeState.OPEN}
    found = runner.all("states", {"ids": sorted(parents)}) if parents else []
    states = {row[0]: STATES[row[1]] for row in found}
    told = MetEdges(states, parents, lambda ended: runner.all("outbox_for_jobs", {"job_ids": ended}))
    return [edge_from_row((*row[:4], _edge_state(row, told))) for row in rows]


def _edge_state(row: Row, met: MetEdges) -> str:
    child, number, parent, _, stored = row
    if stored == UNCHECKED:
        return EdgeState.OPEN.value
    is_met = stored == EdgeState.OPEN and met.is_met(child, number, parent)
    return EdgeState.MET.value if is_met else stored


def reopen_edges(tx: Transaction, ids: Sequence[JobId], *, with_parent: bool) -> Counter[JobId]:
    """How many edges block jobs that are revived together, after a look at the parents of those that failed
    and of those that are open: some of these have completed, and lowered a number that went when the job
    ended.

    The edges are held first: who settles one of them meanwhile has done so before we count, or waits for us
    and then finds the job blocked. Then their parents are held, as for new jobs: one that we find alive ends
    after us, and so finds the edge open. Who deletes such a parent and the child may wait for us while we
    wait for it; then the server ends one of the two, and its transaction is made again. Last, the lines of
    those that have completed are held: who works on one does not hold the edges, and may not see the job that
    we are about to put back. Either it has, and the line is gone or has passed the edge, which is met then;
    or it passes by the line until we are done, and so we work on it afterwards.
    """
    rows = tx.all("edges_lock", {"child_ids": sorted(ids)}) if ids else []
    asked = {parent for _, _, parent, state, _ in rows if state in (EdgeState.FAILED, EdgeState.OPEN)}
    # These are put back in this transaction.
    parents = dict.fromkeys(asked.intersection(ids), JobState.PENDING)
    parents |= require_parent_states(tx, asked - parents.keys())
    told = MetEdges(parents, asked, lambda ended: tx.all("outbox_lock", {"job_ids": ended}))
    tx.outbox_ids += [line[0] for line in told.entries]
    unmet: Counter[JobId] = Counter()
    spots: dict[EdgeState, list[str]] = {}
    for child, number, parent, stored, spot in rows:
        state = EdgeState.OPEN if stored == UNCHECKED else EdgeState(stored)
        into = state
        if state is EdgeState.FAILED:
            into = reopen_edge_state(parents.get(parent), with_parent=with_parent)
        elif stored == EdgeState.OPEN and told.is_met(child, number, parent):
            into = EdgeState.MET  # written, so that nobody lowers the new number for it
        if into is not state:
            spots.setdefault(into, []).append(spot)
        unmet[child] += into in UNMET_STATES
    for state, places in spots.items():
        tx.run("edges_set", {"state": state.value, "ctids": places})
    return unmet


class ReusedIds:
    """Jobs that are gone, and whose ids new ones get: what led from those is none of the business of these.

    Asked after the new jobs are written, and so after whoever took the old ones away, with the lines of that;
    and before the next answer is looked at, so that it costs no round trip.
    """

    def __init__(self, tx: Transaction, ids: Sequence[JobId]) -> None:
        self._tx = tx
        self._entries = tx.run("outbox_lock", {"job_ids": ids})
        self._unchecked = tx.run("unchecked_among", {"parent_ids": ids})

    def detach(self, ids: Sequence[JobId]) -> None:
        """Let the new jobs have these ids; raises PropagationPending where that is too early. Nobody has
        looked yet
        where an unsure edge leads from an old job: who did later would take the new one for it."""
        listed = [row[1] for row in self._entries.fetchall()] + [row[0] for row in self._unchecked.fetchall()]
        for parent in listed:
            if parent in ids:
                raise PropagationPending(parent)
        self._tx.run("edges_mark_met", {"ids": ids})


class EdgeWriter:
    """The edges of one insert.

    In a caller's transaction nobody is held: it may be open for as long as it likes. Then edges to jobs that
    were there before are open and unsure, and whoever promotes looks at the parents once it is committed. A
    parent that has completed is met at once: that stays so, and its record may go before anybody looks.
    """

    def __init__(
        self, tx: Transaction, jobs: Sequence[NewJob], holders: Iterable[JobId], *, is_caller_tx: bool
    ) -> None:
        self._tx = tx
        self._is_caller_tx = is_caller_tx
        # By what the failure of a parent means and how an edge stands: most are alike.
        self._rows: dict[tuple[OnFailure, str], tuple[list[JobId], list[int], list[JobId]]] = {}
        self._outbox_events: dict[JobId, str] = {}
        self._states: dict[JobId, JobState] = {}
        self._busy: set[JobId] = set()
        needs = [need for job in jobs for need in job.depends_on]
        self.is_used: bool = bool(needs)
        if needs:
            named = {need.parent for need in needs if not isinstance(need.parent, int)}
            wanted = named.union(holders)
            if is_caller_tx:
                self._states = tx.states(wanted)
            else:
                self._states, self._busy = lock_parent_states(tx, wanted)

    def resolve_parents(
        self, job: NewJob, queue: Queue, before: Sequence[InsertResult], new: Collection[JobId]
    ) -> list[tuple[JobId, EdgeState]]:
        """The parents of a new job and how the edges to them stand; raises InvalidJob for one that is not
        there. `before` and `new` are the jobs of this insert that came before it."""
        found = []
        for need in job.depends_on:
            parent = need.parent if not isinstance(need.parent, int) else _parent_at(job, need.parent, before)
            into = EdgeState.OPEN
            if parent not in new:
                into = self._resolve_state(job, queue, parent, need.on_failure)
            found.append((parent, into))
        return found

    def _resolve_state(self, job: NewJob, queue: Queue, parent: JobId, on_failure: OnFailure) -> EdgeState:
        if parent in self._states:
            state = self._states[parent]
            is_unsure = self._is_caller_tx and state is not JobState.COMPLETED
            return EdgeState.OPEN if is_unsure else starting_state(state, on_failure)
        if parent in self._busy:
            raise busy_parent_error(parent)
        if job.allow_missing and is_past_retention(parent, queue.settings.keep_finished_ms, self._tx.now):
            return EdgeState.MET
        raise missing_parent(job.task, parent, job.allow_missing)

    def add(self, child: JobId, job: NewJob, parents: Parents) -> None:
        """Take note of the edges of a job that is written."""
        for number, (need, (parent, state)) in enumerate(zip(job.depends_on, parents, strict=True)):
            # One of this very insert is marked, and was not there before: nobody has to look at it.
            is_unsure = self._is_caller_tx and state is EdgeState.OPEN and parent in self._states
            alike = need.on_failure, UNCHECKED if is_unsure else state.value
            if (rows := self._rows.get(alike)) is None:
                rows = self._rows[alike] = ([], [], [])
            rows[0].append(child)
            rows[1].append(number)
            rows[2].append(parent)
            known = self._states.get(parent) if self._states else None
            if state is EdgeState.OPEN and known is not None and is_final(known) and not self._is_caller_tx:
                self._outbox_events[parent] = known.value
        if self._is_caller_tx and any(state is EdgeState.OPEN for _, state in parents):
            self._outbox_events[child] = CHECK

    def flush(self) -> None:
        """Write what has been gathered."""
        for (on_failure, state), (children, numbers, parents) in self._rows.items():
            alike = {"on_failure": on_failure.value, "state": state}
            self._tx.run(
                "edges_add", {**alike, "child_ids": children, "positions": numbers, "parent_ids": parents}
            )
        if self._rows:
            self._tx.add_to_outbox(list(self._outbox_events.items()))


def _parent_at(job: NewJob, back: int, before: Sequence[InsertResult]) -> JobId:
    receipt = before[-back] if back <= len(before) else None
    if receipt is None or receipt.id is None:
        raise missing_batch_parent(job.task, back)
    return receipt.id
