"""What the ends of jobs mean for those that depend on them, for engines that look at edges one by one."""

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
from forebay.domain.lifecycle import JobState
from forebay.errors import StoreBusy


class PropagationPending(StoreBusy):
    """A new job has the id of one that is gone, and the list still has to do with that one's end. By its id
    the new one would be taken for it, so the list comes first."""

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"the end of an earlier job {job_id} is still made known to its dependants; try again"
        )


class OutboxEntry(NamedTuple):
    """A line of the list of what has to be looked at."""

    id: int
    job_id: JobId
    event: DependencyEvent


class DependencyTx(Protocol):
    """What it takes of an engine, inside one of its transactions."""

    def next_entry(self) -> OutboxEntry | None:
        """The oldest line of the list."""
        ...

    def drop_entry(self, entry: OutboxEntry) -> None: ...

    def add_to_outbox(self, job_id: JobId, event: DependencyEvent) -> None:
        """Put a line on the list if any job depends on this one."""
        ...

    def leave_sequence(self, job_id: JobId) -> None:
        """A job that does not live any more is out of its sequence, and the next one may run."""
        ...

    def edges_from_parent(self, parent: JobId, states: Sequence[EdgeState], limit: int) -> list[Edge]:
        """Edges of a parent that are in one of these states, by child and number."""
        ...

    def set_edge(self, edge: Edge, state: EdgeState) -> None: ...

    def is_blocked(self, child: JobId) -> bool: ...

    def has_unmet(self, child: JobId) -> bool:
        """Whether an edge of a child is open or held."""
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
    """Work through the list; answers how many edges were looked at, at most so many.

    However many jobs depend on one, and however deep a failure goes, a transaction has this much to do and no
    more. What it leaves is on the list: it was put there in the transaction that ended the job.
    """
    looked_at = 0
    while looked_at < limit and (entry := engine.next_entry()) is not None:
        room = limit - looked_at
        if entry.event in END_EVENTS:
            engine.leave_sequence(entry.job_id)
        edges = engine.edges_from_parent(entry.job_id, AFFECTED_STATES[entry.event], room)
        for edge in edges:
            _resolve_edge(engine, edge, entry.event)
        looked_at += max(len(edges), 1)
        if len(edges) < room:
            engine.drop_entry(entry)
    return looked_at


def _resolve_edge(engine: DependencyTx, edge: Edge, event: DependencyEvent) -> None:
    into, end = edge_transition(event, edge.on_failure)
    engine.set_edge(edge, into)
    if event is DependencyEvent.CANCEL:
        # Before the line of its end, which would go by what the edges say.
        engine.add_to_outbox(edge.child, event)
    if event is DependencyEvent.REVIVE and edge.state is EdgeState.FAILED:
        engine.revive_ended(edge.child)
    elif not engine.is_blocked(edge.child):
        pass  # somebody has ended it meanwhile; if it is revived, it finds its edges as they are now
    elif end is not None:
        engine.end_blocked(edge.child, end, parent_reason(event, edge.parent))
    elif into is EdgeState.MET and not engine.has_unmet(edge.child):
        engine.release(edge.child)
