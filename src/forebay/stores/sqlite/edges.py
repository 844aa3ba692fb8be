"""The edges of new jobs, and how edges stand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from forebay.domain.dependencies import (
    DependencyEvent,
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
from forebay.stores.contract.values import InsertResult
from forebay.stores.shared.rows import json_text
from forebay.stores.sqlite.transaction import ReadContext, Transaction, states_of

WIDTH: Final = 3  # values of one row in `edges_add`, after those that many share


def find_met_edges(
    context: ReadContext | Transaction, edges: Iterable[tuple[JobId, int, JobId]]
) -> set[tuple[JobId, int]]:
    """Which of these open edges (child, number, parent) are met: their parents have completed, and that many
    edges fewer block their children. A parent that is gone had completed, or the list would say otherwise;
    and while one is on the list, some of its children have not heard of it."""
    given = list(edges)
    parents = {parent for _, _, parent in given}
    if not parents:
        return set()
    states = states_of(context, parents)
    ended = {one for one in parents if states.get(one, JobState.COMPLETED) is JobState.COMPLETED}
    rows = context.all("outbox_for_jobs", {"job_ids": json_text(ended)}) if ended else []
    told = {parent: (child, number) for parent, child, number in rows}
    return {
        (child, number)
        for child, number, parent in given
        if parent in ended and (parent not in told or (child, number) <= told[parent])
    }


def reopen_edges(tx: Transaction, child: JobId, revived_ids: Collection[JobId], *, with_parent: bool) -> None:
    """Look at the parents of a job that is revived, and whose edges have failed or are open: those that have
    completed lowered a number that went when the job ended. `revived_ids` are jobs that are revived in the
    same
    call, so they are as good as alive."""
    rows = tx.all("edges_unchecked", {"child_id": child}) if tx.has_edges() else []
    failed = [(number, parent) for number, parent, state in rows if state == EdgeState.FAILED]
    states = tx.states(parent for _, parent in failed if parent not in revived_ids)
    numbers: defaultdict[EdgeState, list[int]] = defaultdict(list)
    for number, parent in failed:
        state = JobState.PENDING if parent in revived_ids else states.get(parent)
        numbers[reopen_edge_state(state, with_parent=with_parent)].append(number)
    still = ((child, number, parent) for number, parent, state in rows if state == EdgeState.OPEN)
    numbers[EdgeState.MET] += sorted(number for _, number in find_met_edges(tx, still))
    for into, some in numbers.items():
        tx.run("edges_set", {"child_id": child, "positions": json_text(some), "state": into.value})


class EdgeWriter:
    """The edges of one insert."""

    def __init__(self, tx: Transaction, flush: Callable[[], None]) -> None:
        self._tx = tx
        self._flush = flush  # writes the jobs that were gathered
        self._states: dict[JobId, JobState | None] = {}
        # By what the failure of a parent means and how an edge stands: most are alike.
        self._rows: defaultdict[tuple[OnFailure, EdgeState], list[object]] = defaultdict(list)
        self._failed_parents: dict[JobId, DependencyEvent] = {}

    def resolve_parents(
        self, job: NewJob, queue: Queue, earlier_results: Sequence[InsertResult]
    ) -> list[tuple[JobId, EdgeState]]:
        """The parents of a new job and how the edges to them stand; raises InvalidJob for one that is not
        there."""
        found = []
        for need in job.depends_on:
            parent, receipt = need.parent, None
            if isinstance(parent, int):
                receipt = earlier_results[-parent] if parent <= len(earlier_results) else None
                if receipt is None or receipt.id is None:
                    raise missing_batch_parent(job.task, parent)
                parent = receipt.id
            if receipt is not None and receipt.is_new:
                into = EdgeState.OPEN  # a new one is live, whatever it waits for
            else:
                into = self._resolve_state(job, queue, parent, need.on_failure)
            found.append((parent, into))
        return found

    def _resolve_state(self, job: NewJob, queue: Queue, parent: JobId, on_failure: OnFailure) -> EdgeState:
        state = self._find_state(parent)
        if state is not None:
            return starting_state(state, on_failure)
        if job.allow_missing and is_past_retention(parent, queue.settings.keep_finished_ms, self._tx.now):
            return EdgeState.MET
        raise missing_parent(job.task, parent, job.allow_missing)

    def add(self, child: JobId, job: NewJob, parents: Sequence[tuple[JobId, EdgeState]]) -> None:
        """Take note of the edges of a job that is written."""
        for number, (need, (parent, state)) in enumerate(zip(job.depends_on, parents, strict=True)):
            self._rows[need.on_failure, state] += (child, number, parent)
            known = self._states.get(parent) if self._states else None
            if state is EdgeState.OPEN and known is not None and is_final(known):
                self._failed_parents[parent] = DependencyEvent(known.value)

    def flush(self) -> None:
        """Write what has been gathered."""
        for (on_failure, state), rows in self._rows.items():
            self._tx.run_rows("edges_add", (on_failure.value, state.value), rows, WIDTH)
            self._tx.mark_has_edges()
        self._rows.clear()
        for parent, aftermath in self._failed_parents.items():
            self._tx.add_to_outbox([parent], aftermath)
        self._failed_parents = {}

    def _find_state(self, parent: JobId) -> JobState | None:
        if self._states.get(parent) is None:
            found = self._tx.locate(parent)
            if found is None:
                self._flush()  # it may be a job of this very batch
                found = self._tx.locate(parent)
            self._states[parent] = None if found is None else found[1]
        return self._states[parent]
