"""Propagation of job ends from the dependency outbox."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from msgspec.structs import replace

from forebay.domain.dependencies import UNMET_STATES, DependencyEvent, Edge, EdgeState
from forebay.domain.job import JobId
from forebay.domain.job_history import EventKind
from forebay.domain.job_states import JobState
from forebay.stores.contract.revive_options import ReviveOptions
from forebay.stores.memory import sequential_jobs
from forebay.stores.memory.dependency_edges import release
from forebay.stores.memory.job_actions import revive_one
from forebay.stores.memory.state import State
from forebay.stores.shared import dependency_propagation
from forebay.stores.shared.dependency_propagation import OutboxEntry


def propagate(state: State) -> int:
    """Propagate job ends from the outbox; return how many edges were resolved."""
    return dependency_propagation.propagate(_MemoryDependencyTx(state)) if state.outbox else 0


class _MemoryDependencyTx:
    def __init__(self, state: State) -> None:
        self._state = state

    def next_entry(self) -> OutboxEntry | None:
        for entry_id, (job_id, event) in self._state.outbox.items():
            return OutboxEntry(entry_id, job_id, event)
        return None

    def drop_entry(self, entry: OutboxEntry) -> None:
        self._state.write(self._state.outbox, entry.id, None)

    def add_to_outbox(self, job_id: JobId, event: DependencyEvent) -> None:
        self._state.add_to_outbox(job_id, event)

    def leave_sequence(self, job_id: JobId) -> None:
        sequential_jobs.leave(self._state, job_id)

    def edges_from_parent(self, parent: JobId, states: Sequence[EdgeState], limit: int) -> list[Edge]:
        state = self._state
        edges = (state.edges[child][number] for child, number in sorted(state.children.get(parent, {})))
        return list(islice((edge for edge in edges if edge.state in states), limit))

    def set_edge(self, edge: Edge, state: EdgeState) -> None:
        # The state as of now: a child that was revived because of another edge to the same parent has
        # reopened this one too.
        was = self._state.edges[edge.child][edge.position].state
        self._state.write(self._state.edges[edge.child], edge.position, replace(edge, state=state))
        change = (state in UNMET_STATES) - (was in UNMET_STATES)
        if change:
            unmet = self._state.unmet.get(edge.child, 0) + change
            self._state.write(self._state.unmet, edge.child, unmet or None)

    def is_blocked(self, child: JobId) -> bool:
        return self._state.jobs[child].job.state is JobState.BLOCKED

    def has_unmet(self, child: JobId) -> bool:
        return child in self._state.unmet

    def release(self, child: JobId) -> None:
        release(self._state, child)

    def end_blocked(self, child: JobId, state: JobState, reason: str) -> None:
        job = self._state.jobs[child].job
        self._state.put_final(job, state, reason)
        self._state.record_job_event(EventKind.PARENT_FAILED, job, detail=reason)

    def revive_ended(self, child: JobId) -> None:
        revive_one(self._state, child, ReviveOptions(dependants=True), with_parent=True)
