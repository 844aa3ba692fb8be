"""Propagation of job ends along dependency edges, for engines without set-based statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from forebay.domain.dependencies import (
    AFFECTED_STATES,
    END_EVENTS,
    PROPAGATION_BATCH,
    DependencyEvent,
    Edge,
    EdgeState,
    edge_transition,
    parent_reason,
)
from forebay.domain.job import JobId
from forebay.domain.job_states import JobState
from forebay.errors import StoreBusy


class PropagationPending(StoreBusy):
    """A new job has the id of a removed one whose end is still in the outbox. The outbox has to be
    resolved first: by its id the new job would be taken for the old one."""

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"job id {job_id} was just deleted and its dependants are still being updated; retry in a moment"
        )


class OutboxEntry(NamedTuple):
    """Entry of the dependency outbox."""

    id: int
    job_id: JobId
    event: DependencyEvent


class DependencyTx(Protocol):
    """Transaction of an engine, as propagation uses it."""

    def next_entry(self) -> OutboxEntry | None:
        """Return the oldest outbox entry."""
        ...

    def drop_entry(self, entry: OutboxEntry) -> None: ...

    def add_to_outbox(self, job_id: JobId, event: DependencyEvent) -> None:
        """Add an outbox entry if the job has dependants."""
        ...

    def leave_sequence(self, job_id: JobId) -> None:
        """Remove a job that does not live any more from its sequence, and release the next one."""
        ...

    def edges_from_parent(self, parent: JobId, states: Sequence[EdgeState], limit: int) -> list[Edge]:
        """Return edges of a parent that are in one of these states, by child and position."""
        ...

    def set_edge(self, edge: Edge, state: EdgeState) -> None: ...

    def is_blocked(self, child: JobId) -> bool: ...

    def has_unmet(self, child: JobId) -> bool:
        """Return whether an edge of a child is open or held."""
        ...

    def release(self, child: JobId) -> None:
        """Let a blocked job wait like any other."""
        ...

    def end_blocked(self, child: JobId, state: JobState, reason: str) -> None:
        """End a blocked job because of a parent."""
        ...

    def revive_ended(self, child: JobId) -> None:
        """Revive a job that ended because of a parent, unless something forbids it."""
        ...


def propagate(engine: DependencyTx, limit: int = PROPAGATION_BATCH) -> int:
    """Resolve outbox entries; return how many edges were resolved, at most `limit`.

    The bound holds however many dependants a job has, and however deep a failure goes. The rest stays in the
    outbox, where the transaction that ended the job has put it.
    """
    resolved = 0
    while resolved < limit and (entry := engine.next_entry()) is not None:
        rest = limit - resolved
        if entry.event in END_EVENTS:
            engine.leave_sequence(entry.job_id)
        edges = engine.edges_from_parent(entry.job_id, AFFECTED_STATES[entry.event], rest)
        for edge in edges:
            _resolve_edge(engine, edge, entry.event)
        resolved += max(len(edges), 1)
        if len(edges) < rest:
            engine.drop_entry(entry)
    return resolved


def _resolve_edge(engine: DependencyTx, edge: Edge, event: DependencyEvent) -> None:
    edge_state, end_state = edge_transition(event, edge.on_failure)
    engine.set_edge(edge, edge_state)
    if event is DependencyEvent.CANCEL:
        # Before the outbox entry of its own end, which would apply `on_failure` of the edges.
        engine.add_to_outbox(edge.child, event)
    if event is DependencyEvent.REVIVE and edge.state is EdgeState.FAILED:
        engine.revive_ended(edge.child)
    elif not engine.is_blocked(edge.child):
        pass  # it has ended meanwhile; if it is revived, it finds its edges as they are now
    elif end_state is not None:
        engine.end_blocked(edge.child, end_state, parent_reason(event, edge.parent))
    elif edge_state is EdgeState.MET and not engine.has_unmet(edge.child):
        engine.release(edge.child)
