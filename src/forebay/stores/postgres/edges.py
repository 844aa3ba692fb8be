"""The edges of new jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from forebay.domain.job import JobId, NewJob, OnFailure
from forebay.domain.lifecycle import JobState, is_final
from forebay.domain.queue import Queue
from forebay.domain.workflow import (
    WAITS,
    EdgeState,
    is_forgotten,
    missing_parent,
    missing_place,
    reopened_state,
    starting_state,
)
from forebay.stores.postgres.transaction import Transaction
from forebay.stores.protocol import Receipt
from forebay.stores.rows import STATES

CHECK: Final = "check"  # in the list: a new job whose parents nobody has looked at
Parents = Sequence[tuple[JobId, EdgeState]]


def held_states(tx: Transaction, ids: Collection[JobId]) -> dict[JobId, JobState]:
    """The states of jobs that others are going to depend on: whether they live or how they have ended. Live
    ones are marked, and neither these nor failed ones change before the transaction ends.

    A job may end just before it would have been held; then a later statement finds it among those that
    ended. It may be revived just then; then a third look finds it alive again.
    """
    states: dict[JobId, JobState] = {}
    for _ in range(3):
        left = sorted(set(ids) - states.keys())
        if not left:
            break
        # Which of the live states it is does not matter here.
        states |= {row[0]: JobState.PENDING for row in tx.all("parents_hold", {"ids": left})}
        left = sorted(set(left) - states.keys())
        if left:
            for name in ("dead_hold", "cancelled_hold", "completed_among"):
                states |= {row[0]: STATES[row[1]] for row in tx.all(name, {"ids": left})}
    return states


def reopened(tx: Transaction, ids: Sequence[JobId], *, with_parent: bool) -> Counter[JobId]:
    """How many edges block jobs that are revived together, after a look at the parents of those that failed.

    The edges are held first: who settles one of them meanwhile has done so before we count, or waits for us
    and then finds the job blocked. Then their parents are held, as for new jobs: one that we find alive ends
    after us, and so finds the edge open. Who deletes such a parent and the child may wait for us while we
    wait for it; then the server ends one of the two, and its transaction is made again.
    """
    rows = tx.all("edges_lock", {"children": sorted(ids)}) if ids else []
    failed = {parent for _, parent, state, _ in rows if state == EdgeState.FAILED}
    # These are put back in this transaction.
    parents = dict.fromkeys(failed.intersection(ids), JobState.PENDING)
    parents |= held_states(tx, failed - parents.keys())
    unmet: Counter[JobId] = Counter()
    spots: dict[EdgeState, list[str]] = {}
    for child, parent, stored, spot in rows:
        state = EdgeState(stored)
        if state is EdgeState.FAILED:
            state = reopened_state(parents.get(parent), with_parent=with_parent)
            spots.setdefault(state, []).append(spot)
        unmet[child] += state in WAITS
    for state, places in spots.items():
        tx.run("edges_set", {"state": state.value, "spots": places})
    return unmet


class Edges:
    """The edges of one insert.

    In a caller's transaction nobody is held: it may be open for as long as it likes. Then all edges are open,
    and whoever promotes looks at the parents once it is committed.
    """

    def __init__(
        self, tx: Transaction, jobs: Sequence[NewJob], holders: Iterable[JobId], *, is_borrowed: bool
    ) -> None:
        self._tx = tx
        self._is_borrowed = is_borrowed
        # By what the failure of a parent means and how an edge stands: most are alike.
        self._rows: dict[tuple[OnFailure, EdgeState], tuple[list[JobId], list[int], list[JobId]]] = {}
        self._aftermaths: dict[JobId, str] = {}
        self._states: dict[JobId, JobState] = {}
        needs = [need for job in jobs for need in job.depends_on]
        self.is_used = bool(needs)
        if needs:
            named = {need.parent for need in needs if not isinstance(need.parent, int)}
            wanted = named.union(holders)
            self._states = tx.states(wanted) if is_borrowed else held_states(tx, wanted)

    def needed(
        self, job: NewJob, queue: Queue, before: Sequence[Receipt], new: Collection[JobId]
    ) -> list[tuple[JobId, EdgeState]]:
        """The parents of a new job and how the edges to them stand; raises InvalidJob for one that is not
        there. `before` and `new` are the jobs of this insert that came before it."""
        found = []
        for need in job.depends_on:
            parent = need.parent if not isinstance(need.parent, int) else _at(job, need.parent, before)
            into = EdgeState.OPEN
            if parent not in new:
                into = self._standing(job, queue, parent, need.on_failure)
            found.append((parent, into))
        return found

    def _standing(self, job: NewJob, queue: Queue, parent: JobId, on_failure: OnFailure) -> EdgeState:
        if parent in self._states:
            state = self._states[parent]
            return EdgeState.OPEN if self._is_borrowed else starting_state(state, on_failure)
        if job.allow_missing and is_forgotten(parent, queue.settings.keep_finished_ms, self._tx.now):
            return EdgeState.MET
        raise missing_parent(job.task, parent, job.allow_missing)

    def add(self, child: JobId, job: NewJob, parents: Parents) -> None:
        """Take note of the edges of a job that is written."""
        for number, (need, (parent, state)) in enumerate(zip(job.depends_on, parents, strict=True)):
            alike = need.on_failure, state
            if (rows := self._rows.get(alike)) is None:
                rows = self._rows[alike] = ([], [], [])
            rows[0].append(child)
            rows[1].append(number)
            rows[2].append(parent)
            known = self._states.get(parent) if self._states else None
            if state is EdgeState.OPEN and known is not None and is_final(known) and not self._is_borrowed:
                self._aftermaths[parent] = known.value
        if self._is_borrowed:
            self._aftermaths[child] = CHECK

    def flush(self) -> None:
        """Write what has been gathered."""
        for (on_failure, state), (children, numbers, parents) in self._rows.items():
            alike = {"on_failure": on_failure.value, "state": state.value}
            self._tx.run("edges_add", {**alike, "children": children, "numbers": numbers, "parents": parents})
        if self._rows:
            self._tx.list_aftermaths(list(self._aftermaths.items()))


def _at(job: NewJob, back: int, before: Sequence[Receipt]) -> JobId:
    receipt = before[-back] if back <= len(before) else None
    if receipt is None or receipt.id is None:
        raise missing_place(job.task, back)
    return receipt.id
