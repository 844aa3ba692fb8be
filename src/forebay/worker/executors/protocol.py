"""What the coordinator asks of whatever runs calls."""

from __future__ import annotations

from typing import Protocol

from forebay.worker.slots import Assignment


class Executor(Protocol):
    """Takes assignments, runs each, and puts its outcome into the inbox."""

    def start(self) -> None: ...

    def submit(self, assignment: Assignment) -> None:
        """Run it as soon as there is a slot, unless somebody else takes its ticket first."""
        ...

    def interrupt(self, assignment: Assignment, reason: BaseException) -> None:
        """Ask a running assignment to stop; it may take its time, or never listen."""
        ...

    def close(self) -> None:
        """Start nothing more; does not wait for what runs."""
        ...
