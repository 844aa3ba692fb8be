"""Executor protocol: the calls that the coordinator makes."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from forebay.domain.job import QueueName
from forebay.domain.outcome import Outcome
from forebay.worker.assigned_job import Assignment, ExecutorKind

# The kinds of tasks that wait in a queue.
ExecutorKinds: TypeAlias = frozenset[ExecutorKind]


class Executor(Protocol):
    """Takes assignments, runs each, and puts its outcome into the inbox."""

    @property
    def kind(self) -> ExecutorKind:
        """The kind whose slots it uses."""
        ...

    def start(self) -> None: ...

    def submit(self, assignment: Assignment) -> None:
        """Run it as soon as there is a slot, unless it is acquired by another thread first."""
        ...

    def interrupt(self, assignment: Assignment, reason: BaseException) -> None:
        """Ask a running assignment to stop; it may take its time, or never listen. Sets its `stopped_by` once
        it was interrupted; a request that comes too early or too late is dropped."""
        ...

    def abandon(self, assignment: Assignment, reason: BaseException) -> Outcome | None:
        """Abandon a running assignment whose time is over, so that it can be settled. Return its outcome, or
        None if it reports one itself or has none yet. Later results of its code are dropped."""
        ...

    def replace(self, assignment: Assignment) -> bool:
        """Replace the thread of an assignment that was abandoned; return whether that was possible."""
        ...

    def close(self) -> None:
        """Start nothing more; does not wait for running jobs."""
        ...


class Executors(Protocol):
    """The executors of a worker."""

    def executor(self, task: str) -> Executor: ...

    def queue_kinds(self, queue: QueueName) -> ExecutorKinds: ...

    def known_lanes(self) -> frozenset[str] | None:
        """Return the lanes to claim from; None for all, also with unknown tasks."""
        ...
