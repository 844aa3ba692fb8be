"""Edges of new and revived jobs, and the state of edges whose parents have completed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from forebay.domain.dependencies import (
    DependencyEvent,
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
from forebay.stores.contract.claims_and_results import InsertResult
from forebay.stores.shared.rows import json_text
from forebay.stores.sqlite.transaction import ReadContext, Transaction, states_of

WIDTH: Final = 3  # values of one row in `edges_add`, after those in common


def find_met_edges(
    context: ReadContext | Transaction, edges: Iterable[tuple[JobId, int, JobId]]
) -> set[tuple[JobId, int]]:
    """Return which of these open edges (child, position, parent) are met: their parents have completed, and
    their children count that many unmet edges fewer.

    A parent that is gone had completed, or the outbox would say otherwise. While a parent is in the outbox,
    some of its children still count its edges.
    """
    given = list(edges)
    parents = {parent for _, _, parent in given}
    if not parents:
        return set()
    states = states_of(context, parents)
    ended = {parent for parent in parents if states.get(parent, JobState.COMPLETED) is JobState.COMPLETED}
    rows = context.all("outbox_for_jobs", {"job_ids": json_text(ended)}) if ended else []
    cursor_of = {parent: (child, number) for parent, child, number in rows}
    return {
        (child, number)
        for child, number, parent in given
        if parent in ended and (parent not in cursor_of or (child, number) <= cursor_of[parent])
    }


def reopen_edges(tx: Transaction, child: JobId, revived_ids: Collection[JobId], *, with_parent: bool) -> None:
    """Reopen the edges of a revived job whose parents failed, and mark the open edges of completed parents as
    met: the count that these had lowered was lost when the job ended.

    `revived_ids` are jobs that are revived in the same call, and count as live.
    """
    rows = tx.all("edges_unchecked", {"child_id": child}) if tx.has_edges() else []
    failed = [(position, parent) for position, parent, state in rows if state == EdgeState.FAILED]
    states = tx.states(parent for _, parent in failed if parent not in revived_ids)
    positions_by_state: defaultdict[EdgeState, list[int]] = defaultdict(list)
    for position, parent in failed:
        state = JobState.PENDING if parent in revived_ids else states.get(parent)
        positions_by_state[reopen_edge_state(state, with_parent=with_parent)].append(position)
    open_edges = ((child, position, parent) for position, parent, state in rows if state == EdgeState.OPEN)
    positions_by_state[EdgeState.MET] += sorted(position for _, position in find_met_edges(tx, open_edges))
    for new_state, positions in positions_by_state.items():
        tx.run("edges_set", {"child_id": child, "positions": json_text(positions), "state": new_state.value})


class EdgeWriter:
    """Writer of the edges of one insert."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._states: dict[JobId, JobState | None] = {}
        # By `on_failure` and state: most edges have the same.
        self._rows: defaultdict[tuple[OnFailure, EdgeState], list[object]] = defaultdict(list)
        self._failed_parents: dict[JobId, DependencyEvent] = {}

    def resolve_parents(
        self,
        job: NewJob,
        queue: Queue,
        earlier_results: Sequence[InsertResult],
        flush: Callable[[], None],
    ) -> list[tuple[JobId, EdgeState]]:
        """Return the parents of a new job and the states of the edges to them. Raises InvalidJob for an
        unknown parent. `flush` writes the gathered jobs; it is not kept, which would be a reference cycle."""
        resolved = []
        for dependency in job.depends_on:
            parent, result = dependency.parent, None
            if isinstance(parent, int):
                result = earlier_results[-parent] if parent <= len(earlier_results) else None
                if result is None or result.id is None:
                    raise missing_batch_parent(job.task, parent)
                parent = result.id
            if result is not None and result.is_new:
                state = EdgeState.OPEN  # a new parent is live
            else:
                state = self._resolve_state(job, queue, parent, dependency.on_failure, flush)
            resolved.append((parent, state))
        return resolved

    def _resolve_state(
        self, job: NewJob, queue: Queue, parent: JobId, on_failure: OnFailure, flush: Callable[[], None]
    ) -> EdgeState:
        state = self._find_state(parent, flush)
        if state is not None:
            return starting_state(state, on_failure)
        if job.allow_missing and is_past_retention(parent, queue.settings.keep_finished_ms, self._tx.now):
            return EdgeState.MET
        raise missing_parent(job.task, parent, job.allow_missing)

    def add(self, child: JobId, job: NewJob, parents: Sequence[tuple[JobId, EdgeState]]) -> None:
        """Gather the edges of a job that is written."""
        for position, (dependency, (parent, state)) in enumerate(zip(job.depends_on, parents, strict=True)):
            self._rows[dependency.on_failure, state] += (child, position, parent)
            parent_state = self._states.get(parent) if self._states else None
            if state is EdgeState.OPEN and parent_state is not None and is_final(parent_state):
                self._failed_parents[parent] = DependencyEvent(parent_state.value)

    def flush(self) -> None:
        """Write the gathered edges."""
        for (on_failure, state), rows in self._rows.items():
            self._tx.run_rows("edges_add", (on_failure.value, state.value), rows, WIDTH)
            self._tx.mark_has_edges()
        self._rows.clear()
        for parent, event in self._failed_parents.items():
            self._tx.add_to_outbox([parent], event)
        self._failed_parents = {}

    def _find_state(self, parent: JobId, flush: Callable[[], None]) -> JobState | None:
        if self._states.get(parent) is None:
            location = self._tx.locate(parent)
            if location is None:
                flush()  # it may be a job of this very batch
                location = self._tx.locate(parent)
            self._states[parent] = None if location is None else location[1]
        return self._states[parent]
