"""The edges of new jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol

from forebay.domain.job import JobId, NewJob, OnFailure
from forebay.domain.lifecycle import JobState, is_final
from forebay.domain.queue import Queue
from forebay.domain.workflow import (
    WAITS,
    Edge,
    EdgeState,
    is_forgotten,
    missing_parent,
    missing_place,
    reopened_state,
    starting_state,
)
from forebay.errors import StoreBusy
from forebay.stores.following import StillListed
from forebay.stores.postgres.connection import Values
from forebay.stores.postgres.transaction import UNSURE, Transaction
from forebay.stores.protocol import Receipt
from forebay.stores.rows import STATES, Row, edge_from_row

CHECK: Final = "check"  # in the list: a new job whose parents nobody has looked at
Parents = Sequence[tuple[JobId, EdgeState]]


def held_states(tx: Transaction, ids: Collection[JobId]) -> tuple[dict[JobId, JobState], set[JobId]]:
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
        rows = tx.all("parents_hold", {"ids": left})
        # Which of the live states it is does not matter here.
        states |= {row[0]: JobState.PENDING for row in rows if row[1]}
        busy.update(row[0] for row in rows if not row[1])
        left = sorted(set(left) - states.keys() - busy)
        if left:
            for name in ("dead_hold", "cancelled_hold", "completed_among"):
                states |= {row[0]: STATES[row[1]] for row in tx.all(name, {"ids": left})}
    return states, busy


def held_or_busy(tx: Transaction, ids: Collection[JobId]) -> dict[JobId, JobState]:
    """The same for callers that need all of them; raises StoreBusy if that cannot be."""
    states, busy = held_states(tx, ids)
    for job_id in busy:
        raise busy_parent(job_id)
    return states


def busy_parent(job_id: JobId) -> StoreBusy:
    """Tell that a caller's open transaction completes a job, and the way out."""
    return StoreBusy(
        f"job {job_id} is completed in an open transaction: try again once that is committed or rolled back"
    )


class Told:
    """Which open edges are met: their parents have completed, and that many edges fewer block their children.

    A parent that is gone had completed: else its deletion has put it on the list. While one is on the list,
    some of its children have not heard of it.
    """

    def __init__(
        self,
        states: Mapping[JobId, JobState],
        parents: Iterable[JobId],
        lines: Callable[[list[JobId]], list[Row]],
    ) -> None:
        self._ended = {one for one in parents if states.get(one, JobState.COMPLETED) is JobState.COMPLETED}
        self.lines: list[Row] = lines(sorted(self._ended)) if self._ended else []
        # The oldest of each; those after it are not begun.
        self._so_far = {parent: (child, number) for _, parent, child, number in reversed(self.lines)}

    def is_met(self, child: JobId, number: int, parent: JobId) -> bool:
        so_far = self._so_far.get(parent)
        return parent in self._ended and (so_far is None or (child, number) <= so_far)


class Asks(Protocol):
    """Whatever answers statements."""

    def all(self, name: str, values: Values | None = None) -> list[Row]: ...


def as_they_stand(look: Asks, rows: Sequence[Row]) -> list[Edge]:
    """Edges from rows, all of one moment."""
    parents = {row[2] for row in rows if row[4] == EdgeState.OPEN}
    found = look.all("states", {"ids": sorted(parents)}) if parents else []
    states = {row[0]: STATES[row[1]] for row in found}
    told = Told(states, parents, lambda ended: look.all("aftermaths_among", {"parents": ended}))
    return [edge_from_row((*row[:4], _stands(row, told))) for row in rows]


def _stands(row: Row, told: Told) -> str:
    child, number, parent, _, stored = row
    if stored == UNSURE:
        return EdgeState.OPEN.value
    is_met = stored == EdgeState.OPEN and told.is_met(child, number, parent)
    return EdgeState.MET.value if is_met else stored


def reopened(tx: Transaction, ids: Sequence[JobId], *, with_parent: bool) -> Counter[JobId]:
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
    rows = tx.all("edges_lock", {"children": sorted(ids)}) if ids else []
    asked = {parent for _, _, parent, state, _ in rows if state in (EdgeState.FAILED, EdgeState.OPEN)}
    # These are put back in this transaction.
    parents = dict.fromkeys(asked.intersection(ids), JobState.PENDING)
    parents |= held_or_busy(tx, asked - parents.keys())
    told = Told(parents, asked, lambda ended: tx.all("aftermaths_lock", {"parents": ended}))
    tx.listed += [line[0] for line in told.lines]
    unmet: Counter[JobId] = Counter()
    spots: dict[EdgeState, list[str]] = {}
    for child, number, parent, stored, spot in rows:
        state = EdgeState.OPEN if stored == UNSURE else EdgeState(stored)
        into = state
        if state is EdgeState.FAILED:
            into = reopened_state(parents.get(parent), with_parent=with_parent)
        elif stored == EdgeState.OPEN and told.is_met(child, number, parent):
            into = EdgeState.MET  # written, so that nobody lowers the new number for it
        if into is not state:
            spots.setdefault(into, []).append(spot)
        unmet[child] += into in WAITS
    for state, places in spots.items():
        tx.run("edges_set", {"state": state.value, "spots": places})
    return unmet


class Old:
    """Jobs that are gone, and whose ids new ones get: what led from those is none of the business of these.

    Asked after the new jobs are written, and so after whoever took the old ones away, with the lines of that;
    and before the next answer is looked at, so that it costs no round trip.
    """

    def __init__(self, tx: Transaction, ids: Sequence[JobId]) -> None:
        self._tx = tx
        self._lines = tx.run("aftermaths_lock", {"parents": ids})
        self._unsure = tx.run("unsure_among", {"parents": ids})

    def leave(self, ids: Sequence[JobId]) -> None:
        """Let the new jobs have these ids; raises StillListed where that is too early. Nobody has looked yet
        where an unsure edge leads from an old job: who did later would take the new one for it."""
        listed = [row[1] for row in self._lines.fetchall()] + [row[0] for row in self._unsure.fetchall()]
        for parent in listed:
            if parent in ids:
                raise StillListed(parent)
        self._tx.run("edges_renamed", {"ids": ids})


class Edges:
    """The edges of one insert.

    In a caller's transaction nobody is held: it may be open for as long as it likes. Then edges to jobs that
    were there before are open and unsure, and whoever promotes looks at the parents once it is committed. A
    parent that has completed is met at once: that stays so, and its record may go before anybody looks.
    """

    def __init__(
        self, tx: Transaction, jobs: Sequence[NewJob], holders: Iterable[JobId], *, is_borrowed: bool
    ) -> None:
        self._tx = tx
        self._is_borrowed = is_borrowed
        # By what the failure of a parent means and how an edge stands: most are alike.
        self._rows: dict[tuple[OnFailure, str], tuple[list[JobId], list[int], list[JobId]]] = {}
        self._aftermaths: dict[JobId, str] = {}
        self._states: dict[JobId, JobState] = {}
        self._busy: set[JobId] = set()
        needs = [need for job in jobs for need in job.depends_on]
        self.is_used: bool = bool(needs)
        if needs:
            named = {need.parent for need in needs if not isinstance(need.parent, int)}
            wanted = named.union(holders)
            if is_borrowed:
                self._states = tx.states(wanted)
            else:
                self._states, self._busy = held_states(tx, wanted)

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
            is_unsure = self._is_borrowed and state is not JobState.COMPLETED
            return EdgeState.OPEN if is_unsure else starting_state(state, on_failure)
        if parent in self._busy:
            raise busy_parent(parent)
        if job.allow_missing and is_forgotten(parent, queue.settings.keep_finished_ms, self._tx.now):
            return EdgeState.MET
        raise missing_parent(job.task, parent, job.allow_missing)

    def add(self, child: JobId, job: NewJob, parents: Parents) -> None:
        """Take note of the edges of a job that is written."""
        for number, (need, (parent, state)) in enumerate(zip(job.depends_on, parents, strict=True)):
            # One of this very insert is marked, and was not there before: nobody has to look at it.
            is_unsure = self._is_borrowed and state is EdgeState.OPEN and parent in self._states
            alike = need.on_failure, UNSURE if is_unsure else state.value
            if (rows := self._rows.get(alike)) is None:
                rows = self._rows[alike] = ([], [], [])
            rows[0].append(child)
            rows[1].append(number)
            rows[2].append(parent)
            known = self._states.get(parent) if self._states else None
            if state is EdgeState.OPEN and known is not None and is_final(known) and not self._is_borrowed:
                self._aftermaths[parent] = known.value
        if self._is_borrowed and any(state is EdgeState.OPEN for _, state in parents):
            self._aftermaths[child] = CHECK

    def flush(self) -> None:
        """Write what has been gathered."""
        for (on_failure, state), (children, numbers, parents) in self._rows.items():
            alike = {"on_failure": on_failure.value, "state": state}
            self._tx.run("edges_add", {**alike, "children": children, "numbers": numbers, "parents": parents})
        if self._rows:
            self._tx.list_aftermaths(list(self._aftermaths.items()))


def _at(job: NewJob, back: int, before: Sequence[Receipt]) -> JobId:
    receipt = before[-back] if back <= len(before) else None
    if receipt is None or receipt.id is None:
        raise missing_place(job.task, back)
    return receipt.id
