"""Edges between jobs."""

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
    missing_batch_parent,
    missing_parent,
    reopen_edge_state,
    starting_state,
)
from forebay.domain.job import Dependency, JobId, NewJob
from forebay.domain.lifecycle import JobState
from forebay.stores.memory.state import State


def resolve_parents(state: State, new: NewJob, earlier_ids: Sequence[JobId | None]) -> list[Edge]:
    """The edges of a new job, whose id is not known yet; raises InvalidJob for a parent that is not there.
    `earlier_ids` are the jobs of the same insert that stand before it."""
    return [
        _resolve_parent(state, new, need, number, earlier_ids) for number, need in enumerate(new.depends_on)
    ]


def add_edges(state: State, child: JobId, edges: Sequence[Edge]) -> bool:
    """Write the edges of a new job; whether it is blocked."""
    for new in edges:
        edge = replace(new, child=child)
        state.write(state.edges.setdefault(child, {}), edge.position, edge)
        state.write(state.children.setdefault(edge.parent, {}), (child, edge.position), edge.position)
        parent = state.jobs.get(edge.parent)
        if edge.state is EdgeState.OPEN and parent is not None and parent.job.is_final:
            state.add_to_outbox(edge.parent, DependencyEvent(parent.job.state.value))
    return count_unmet(state, child) > 0


def count_unmet(state: State, child: JobId) -> int:
    """Count anew what blocks a job: edges, and the jobs before it in its sequence as one."""
    unmet = sum(edge.state in UNMET_STATES for edge in state.edges.get(child, {}).values())
    unmet += state.is_sequence_blocked(child)
    state.write(state.unmet, child, unmet or None)
    return unmet


def reopen_edges(state: State, child: JobId, revived_ids: Collection[JobId], *, with_parent: bool) -> None:
    """Look at the parents of a job that is revived, and whose edges have failed. `revived_ids` are jobs that
    are
    revived in the same call, so they are as good as alive."""
    for edge in list(state.edges.get(child, {}).values()):
        if edge.state is EdgeState.FAILED:
            parent = state.jobs.get(edge.parent)
            now = JobState.PENDING if edge.parent in revived_ids else parent and parent.job.state
            into = reopen_edge_state(now, with_parent=with_parent)
            state.write(state.edges[child], edge.position, replace(edge, state=into))
    count_unmet(state, child)


def release(state: State, child: JobId) -> None:
    """Let a blocked job wait like any other."""
    job = state.jobs[child].job
    ready_at = due_on_release(job, state.now)
    state.put_new(replace(job, ready_at=ready_at, run_at=ready_at, updated_at=state.now))


def _resolve_parent(
    state: State, new: NewJob, dependency: Dependency, number: int, earlier_ids: Sequence[JobId | None]
) -> Edge:
    if isinstance(dependency.parent, int):
        found = earlier_ids[-dependency.parent] if dependency.parent <= len(earlier_ids) else None
        if found is None:
            raise missing_batch_parent(new.task, dependency.parent)
    else:
        found = dependency.parent
    record = state.jobs.get(found)
    if record is not None:
        into = starting_state(record.job.state, dependency.on_failure)
    elif new.allow_missing and is_past_retention(found, _keep_ms(state, new), state.now):
        into = EdgeState.MET
    else:
        raise missing_parent(new.task, found, new.allow_missing)
    return Edge(child=JobId(""), position=number, parent=found, on_failure=dependency.on_failure, state=into)


def _keep_ms(state: State, new: NewJob) -> int:
    return state.queue_or_default(new.queue).settings.keep_finished_ms
