"""Edges between jobs: add, resolve, reopen, release."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from forebay.domain.dependencies import (
    UNMET_STATES,
    DependencyEvent,
    Edge,
    EdgeState,
    due_on_release,
    is_past_retention,
    missing_parent,
    reopen_edge_state,
    starting_state,
)
from forebay.domain.dependency_graph import missing_batch_parent
from forebay.domain.job import Dependency, JobId, NewJob
from forebay.domain.job_states import JobState
from forebay.stores.memory.state import State


def resolve_parents(state: State, new: NewJob, earlier_ids: Sequence[JobId | None]) -> list[Edge]:
    """Return the edges of a new job, whose id is not known yet. Raises InvalidJob for an unknown parent.
    `earlier_ids` are the jobs of the same insert before it."""
    return [
        _resolve_parent(state, new, dependency, position, earlier_ids)
        for position, dependency in enumerate(new.depends_on)
    ]


def add_edges(state: State, child: JobId, edges: Sequence[Edge]) -> bool:
    """Write the edges of a new job; return whether it is blocked."""
    for new in edges:
        edge = replace(new, child=child)
        state.write(state.edges.setdefault(child, {}), edge.position, edge)
        state.write(state.children.setdefault(edge.parent, {}), (child, edge.position), edge.position)
        parent = state.jobs.get(edge.parent)
        if edge.state is EdgeState.OPEN and parent is not None and parent.job.is_final:
            state.add_to_outbox(edge.parent, DependencyEvent(parent.job.state.value))
    return count_unmet(state, child) > 0


def count_unmet(state: State, child: JobId) -> int:
    """Recount what blocks a job: its edges, and the earlier jobs of its sequence as one."""
    unmet = sum(edge.state in UNMET_STATES for edge in state.edges.get(child, {}).values())
    unmet += state.is_sequence_blocked(child)
    state.write(state.unmet, child, unmet or None)
    return unmet


def reopen_edges(state: State, child: JobId, revived_ids: Collection[JobId], *, with_parent: bool) -> None:
    """Reopen the edges of a revived job whose parents failed. `revived_ids` are jobs that are revived in
    the same call, and count as live."""
    for edge in list(state.edges.get(child, {}).values()):
        if edge.state is EdgeState.FAILED:
            parent = state.jobs.get(edge.parent)
            parent_state = JobState.PENDING if edge.parent in revived_ids else parent and parent.job.state
            new_state = reopen_edge_state(parent_state, with_parent=with_parent)
            state.write(state.edges[child], edge.position, replace(edge, state=new_state))
    count_unmet(state, child)


def release(state: State, child: JobId) -> None:
    """Let a blocked job wait like any other."""
    job = state.jobs[child].job
    ready_at = due_on_release(job, state.now)
    state.put_new(replace(job, ready_at=ready_at, run_at=ready_at, updated_at=state.now))


def _resolve_parent(
    state: State, new: NewJob, dependency: Dependency, position: int, earlier_ids: Sequence[JobId | None]
) -> Edge:
    if isinstance(dependency.parent, int):
        parent = earlier_ids[-dependency.parent] if dependency.parent <= len(earlier_ids) else None
        if parent is None:
            raise missing_batch_parent(new.task, dependency.parent)
    else:
        parent = dependency.parent
    record = state.jobs.get(parent)
    if record is not None:
        edge_state = starting_state(record.job.state, dependency.on_failure)
    elif new.allow_missing and is_past_retention(parent, _keep_ms(state, new), state.now):
        edge_state = EdgeState.MET
    else:
        raise missing_parent(new.task, parent, new.allow_missing)
    return Edge(
        child=JobId(""), position=position, parent=parent, on_failure=dependency.on_failure, state=edge_state
    )


def _keep_ms(state: State, new: NewJob) -> int:
    return state.queue_or_default(new.queue).settings.keep_finished_ms
