"""Edges between jobs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from forebay.domain.job import JobId, Need, NewJob
from forebay.domain.lifecycle import JobState
from forebay.domain.workflow import (
    WAITS,
    Aftermath,
    Edge,
    EdgeState,
    due_on_release,
    is_forgotten,
    missing_parent,
    missing_place,
    reopened_state,
    starting_state,
)
from forebay.stores.memory.state import State


def edges_of(state: State, new: NewJob, before: Sequence[JobId | None]) -> list[Edge]:
    """The edges of a new job, whose id is not known yet; raises InvalidJob for a parent that is not there.
    `before` are the jobs of the same insert that stand before it."""
    return [_edge(state, new, need, number, before) for number, need in enumerate(new.depends_on)]


def add_edges(state: State, child: JobId, edges: Sequence[Edge]) -> bool:
    """Write the edges of a new job; whether it is blocked."""
    for new in edges:
        edge = replace(new, child=child)
        state.write(state.edges.setdefault(child, {}), edge.number, edge)
        state.write(state.behind.setdefault(edge.parent, {}), (child, edge.number), edge.number)
        parent = state.jobs.get(edge.parent)
        if edge.state is EdgeState.OPEN and parent is not None and parent.job.is_final:
            state.list_aftermath(edge.parent, Aftermath(parent.job.state.value))
    return count_unmet(state, child) > 0


def count_unmet(state: State, child: JobId) -> int:
    """Count anew what blocks a job: edges, and the jobs before it in its sequence as one."""
    unmet = sum(edge.state in WAITS for edge in state.edges.get(child, {}).values())
    unmet += state.waits_its_turn(child)
    state.write(state.unmet, child, unmet or None)
    return unmet


def reopen(state: State, child: JobId, together: Collection[JobId], *, with_parent: bool) -> None:
    """Look at the parents of a job that is revived, and whose edges have failed. `together` are jobs that are
    revived in the same call, so they are as good as alive."""
    for edge in list(state.edges.get(child, {}).values()):
        if edge.state is EdgeState.FAILED:
            parent = state.jobs.get(edge.parent)
            now = JobState.PENDING if edge.parent in together else parent and parent.job.state
            into = reopened_state(now, with_parent=with_parent)
            state.write(state.edges[child], edge.number, replace(edge, state=into))
    count_unmet(state, child)


def release(state: State, child: JobId) -> None:
    """Let a blocked job wait like any other."""
    job = state.jobs[child].job
    ready_at = due_on_release(job, state.now)
    state.put_new(replace(job, ready_at=ready_at, run_at=ready_at, updated_at=state.now))


def _edge(state: State, new: NewJob, need: Need, number: int, before: Sequence[JobId | None]) -> Edge:
    if isinstance(need.parent, int):
        found = before[-need.parent] if need.parent <= len(before) else None
        if found is None:
            raise missing_place(new.task, need.parent)
    else:
        found = need.parent
    record = state.jobs.get(found)
    if record is not None:
        into = starting_state(record.job.state, need.on_failure)
    elif new.allow_missing and is_forgotten(found, _keep_ms(state, new), state.now):
        into = EdgeState.MET
    else:
        raise missing_parent(new.task, found, new.allow_missing)
    return Edge(child=JobId(""), number=number, parent=found, on_failure=need.on_failure, state=into)


def _keep_ms(state: State, new: NewJob) -> int:
    return state.queue_or_fresh(new.queue).settings.keep_finished_ms
