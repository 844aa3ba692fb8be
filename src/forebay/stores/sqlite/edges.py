"""The edges of new jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from forebay.domain.job import JobId, NewJob
from forebay.domain.lifecycle import JobState, is_final
from forebay.domain.queue import Queue
from forebay.domain.workflow import (
    Aftermath,
    EdgeState,
    is_forgotten,
    missing_parent,
    missing_place,
    starting_state,
)
from forebay.stores.protocol import Receipt
from forebay.stores.sqlite.transaction import Transaction

WIDTH: Final = 5  # values of one row in `edges_add`


class Edges:
    """The edges of one insert."""

    def __init__(self, tx: Transaction, flush: Callable[[], None]) -> None:
        self._tx = tx
        self._flush = flush  # writes the jobs that were gathered
        self._states: dict[JobId, JobState | None] = {}
        self._rows: list[object] = []
        self._failed: dict[JobId, Aftermath] = {}

    def needed(self, job: NewJob, queue: Queue, before: Sequence[Receipt]) -> list[tuple[JobId, EdgeState]]:
        """The parents of a new job and how the edges to them stand; raises InvalidJob for one that is not
        there."""
        found = []
        for need in job.depends_on:
            parent, state = self._parent(job, need.parent, before)
            if state is not None:
                into = starting_state(state, need.on_failure)
            elif job.allow_missing and is_forgotten(parent, queue.settings.keep_finished_ms, self._tx.now):
                into = EdgeState.MET
            else:
                raise missing_parent(job.task, parent, job.allow_missing)
            found.append((parent, into))
        return found

    def add(self, child: JobId, job: NewJob, parents: Sequence[tuple[JobId, EdgeState]]) -> None:
        """Take note of the edges of a job that is written."""
        for number, (need, (parent, state)) in enumerate(zip(job.depends_on, parents, strict=True)):
            self._rows += (child, number, parent, need.on_failure.value, state.value)
            known = self._states.get(parent)
            if state is EdgeState.OPEN and known is not None and is_final(known):
                self._failed[parent] = Aftermath(known.value)

    def flush(self) -> None:
        """Write what has been gathered."""
        if self._rows:
            self._tx.run_rows("edges_add", (), self._rows, WIDTH)
            self._rows = []
            self._tx.now_has_edges()
        for parent, aftermath in self._failed.items():
            self._tx.list_aftermath([parent], aftermath)
        self._failed = {}

    def _parent(
        self, job: NewJob, parent: JobId | int, before: Sequence[Receipt]
    ) -> tuple[JobId, JobState | None]:
        if not isinstance(parent, int):
            return parent, self._state_of(parent)
        receipt = before[-parent] if parent <= len(before) else None
        if receipt is None or receipt.id is None:
            raise missing_place(job.task, parent)
        # A new one is live, whatever it waits for.
        return receipt.id, receipt.state if receipt.is_new else self._state_of(receipt.id)

    def _state_of(self, parent: JobId) -> JobState | None:
        if self._states.get(parent) is None:
            found = self._tx.find(parent)
            if found is None:
                self._flush()  # it may be a job of this very batch
                found = self._tx.find(parent)
            self._states[parent] = None if found is None else found[1]
        return self._states[parent]
