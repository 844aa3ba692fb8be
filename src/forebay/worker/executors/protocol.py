"""What the coordinator asks of whatever runs calls."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from forebay.domain.job import QueueName
from forebay.domain.outcome import Outcome
from forebay.worker.slots import Assignment, ExecutorKind

# Which kinds of tasks wait in a queue.
ExecutorKinds: TypeAlias = frozenset[ExecutorKind]


class Executor(Protocol):
    """Takes assignments, runs each, and puts its outcome into the inbox."""

    @property
    def kind(self) -> ExecutorKind:
        """Whose slots it uses."""
        ...

    def start(self) -> None: ...

    def submit(self, assignment: Assignment) -> None:
        """Run it as soon as there is a slot, unless somebody else takes its ticket first."""
        ...

    def interrupt(self, assignment: Assignment, reason: BaseException) -> None:
        """Ask a running assignment to stop; it may take its time, or never listen. Sets its `stopped_by`
        once it has been told; a request that comes too early or too late is dropped."""
        ...

    def abandon(self, assignment: Assignment, reason: BaseException) -> Outcome | None:
        """Give up a running assignment whose time is over, so that it can be settled: its outcome, or None if
        it tells one itself or has none yet. What its code does later is dropped."""
        ...

    def replace(self, assignment: Assignment) -> bool:
        """Let another thread take the place of an assignment that was given up; whether one could."""
        ...

    def close(self) -> None:
        """Start nothing more; does not wait for what runs."""
        ...


class Executors(Protocol):
    """Which executor runs what."""

    def executor(self, task: str) -> Executor: ...

    def queue_kinds(self, queue: QueueName) -> ExecutorKinds: ...

    def known_lanes(self) -> frozenset[str] | None:
        """The gates that jobs may come from; None for all, with tasks that nobody knows."""
        ...
