"""Graph of jobs that are enqueued together: parents before children, cycles refused, priorities inherited."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from msgspec.structs import replace

from forebay.domain.job import Dependency, JobId, NewJob, OnFailure, QueueName
from forebay.domain.queue import Queue
from forebay.errors import InvalidJob

MAX_WORKFLOW: Final = 10_000
_SHOWN_IN_CYCLE: Final = 10
T = TypeVar("T")


def missing_batch_parent(task: str, back: int) -> InvalidJob:
    """Return the refusal of a job whose parent would come before the first of its batch, or was refused."""
    return InvalidJob(
        f"{task} depends on the job {back} places before it, which was not stored", field="depends_on"
    )


def sort_parents_first(parents: Mapping[T, Sequence[T]], describe: Callable[[T], str] = str) -> list[T]:
    """Return the nodes of a graph, each after its parents, else in the order given (Kahn). Raises
    InvalidJob that names a cycle. Parents that are no nodes count as met."""
    unmet = {node: sum(parent in parents for parent in of) for node, of in parents.items()}
    children: dict[T, list[T]] = {node: [] for node in parents}
    for node, of in parents.items():
        for parent in of:
            if parent in children:
                children[parent].append(node)
    ordered = [node for node, count in unmet.items() if not count]
    for node in ordered:  # grows during the iteration
        for child in children[node]:
            unmet[child] -= 1
            if not unmet[child]:
                ordered.append(child)
    if len(ordered) < len(unmet):
        stuck = {node: parents[node] for node, count in unmet.items() if count}
        raise InvalidJob(f"jobs depend on each other: {_describe_cycle(stuck, describe)}", field="depends_on")
    return ordered


def _describe_cycle(stuck: Mapping[T, Sequence[T]], describe: Callable[[T], str]) -> str:
    """Describe a cycle, in the direction in which its jobs would run, from the first one in the order
    given."""
    path = [next(iter(stuck))]
    # Each of these has a parent among them, so following parents ends in a cycle.
    while (parent := next(node for node in stuck[path[-1]] if node in stuck)) not in path:
        path.append(parent)
    cycle = path[path.index(parent) :][::-1]
    start = cycle.index(next(node for node in stuck if node in cycle))
    round_trip = [*cycle[start:], *cycle[: start + 1]]
    if len(round_trip) > _SHOWN_IN_CYCLE:
        half = _SHOWN_IN_CYCLE // 2
        shown = [*map(describe, round_trip[:half]), "...", *map(describe, round_trip[-half:])]
    else:
        shown = list(map(describe, round_trip))
    return " -> ".join(shown)


def sort_topologically(jobs: Sequence[NewJob]) -> tuple[list[NewJob], list[int]]:
    """Return jobs in the order for a store, parents first and referred to by offset, and the new index of
    each job.

    Jobs may refer to each other by ids that their caller brought, in any order; raises InvalidJob that names
    a cycle. Offsets that are given already stay as they are, and so do those jobs.
    """
    if not any(job.depends_on for job in jobs):
        return list(jobs), list(range(len(jobs)))
    by_id = {job.id: index for index, job in enumerate(jobs) if job.id is not None}
    parents: dict[int | JobId, list[int | JobId]] = {
        index: [_resolve_parent(dependency.parent, index, by_id) for dependency in job.depends_on]
        for index, job in enumerate(jobs)
    }
    order = [
        index for index in sort_parents_first(parents, partial(_describe_job, jobs)) if isinstance(index, int)
    ]
    new_index: dict[int | JobId, int] = {index: position for position, index in enumerate(order)}
    sorted_jobs = [
        _with_parent_offsets(jobs[index], parents[index], new_index, new_index[index]) for index in order
    ]
    return sorted_jobs, [new_index[index] for index in range(len(jobs))]


def _describe_job(jobs: Sequence[NewJob], at: int | JobId) -> str:
    job = jobs[int(at)]
    return job.id or f"{job.task} ({int(at) + 1})"


def _resolve_parent(parent: JobId | int, at: int, by_id: Mapping[JobId, int]) -> int | JobId:
    return at - parent if isinstance(parent, int) else by_id.get(parent, parent)


def _with_parent_offsets(
    job: NewJob, parents: Iterable[int | JobId], new_index: Mapping[int | JobId, int], position: int
) -> NewJob:
    if not job.depends_on:
        return job
    dependencies = [
        replace(dependency, parent=position - new_index[parent]) if parent in new_index else dependency
        for dependency, parent in zip(job.depends_on, parents, strict=True)
    ]
    return replace(job, depends_on=tuple(dependencies))


def inherit_priorities(jobs: Sequence[NewJob], queues: Mapping[QueueName, Queue]) -> list[NewJob]:
    """Return jobs of one insert, each with the highest priority among its dependants, within the range of
    its queue. Else an urgent job would wait for a parent behind all others."""
    raised = list(jobs)
    for index in range(len(raised) - 1, -1, -1):
        child = raised[index]
        priority = _queue_or_default(queues, child.queue).priority_of(child.priority)
        for dependency in child.depends_on:
            if isinstance(dependency.parent, int) and dependency.parent <= index:
                raised[index - dependency.parent] = _raise_priority(
                    raised[index - dependency.parent], priority, queues
                )
    return raised


def _raise_priority(job: NewJob, target: int, queues: Mapping[QueueName, Queue]) -> NewJob:
    queue = _queue_or_default(queues, job.queue)
    target = min(target, queue.settings.max_priority)
    return replace(job, priority=target) if target > queue.priority_of(job.priority) else job


def _queue_or_default(queues: Mapping[QueueName, Queue], name: QueueName) -> Queue:
    return queues.get(name) or Queue(name=name)


def dependencies_of(
    parents: Iterable[JobId | int], on_failure: OnFailure = OnFailure.CANCEL
) -> tuple[Dependency, ...]:
    """Return a dependency on each of these parents."""
    return tuple(Dependency(parent, on_failure) for parent in parents)
