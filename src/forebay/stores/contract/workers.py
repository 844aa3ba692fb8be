"""The part of the seam that knows the workers, and takes commands to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from forebay.domain.job import QueueName, WorkerId
from forebay.domain.worker import COMMAND_EXPIRES_MS, Command, CommandKind, WorkerInfo


class WorkerStore(Protocol):
    """The write side of workers and commands."""

    def heartbeat(self, worker: WorkerInfo) -> None:
        """Say that a worker is alive. From its first beat on, engines that can tell when the process dies
        do, unless it `is_remote` or its `supervisor` is another process: see `sweep`."""
        ...

    def remove_worker(self, worker: WorkerId) -> None:
        """Take a worker that has ended in order off the list."""
        ...

    def send_command(
        self,
        kind: CommandKind,
        workers: Sequence[WorkerId] | None = None,
        *,
        queue: QueueName | None = None,
        expires_ms: int = COMMAND_EXPIRES_MS,
        actor: str = "",
    ) -> list[Command]:
        """Ask workers to do something; all that are on the list if none is named. One command for each, in
        the order asked; a worker that is not on the list raises WorkerNotFound, and nobody is asked. Leaves a
        COMMAND event for each, and is worth a wake-up."""
        ...

    def take_commands(self, workers: Sequence[WorkerId]) -> list[Command]:
        """The commands for these workers that nobody has taken and that have not expired, oldest first.
        Each is given at most once: one whose answer is lost on its way is given to nobody."""
        ...

    def answer_command(self, command_id: str, text: str) -> None:
        """Say what came of a command, cut to 64 KiB. Nothing happens if the command is gone."""
        ...


class WorkerReader(Protocol):
    """The read side of workers and commands."""

    def workers(self, ids: Sequence[WorkerId] | None = None) -> list[WorkerInfo]:
        """Workers that have said they are alive and have not been forgotten, by start: all, or those of
        these."""
        ...

    def commands(self, ids: Sequence[str]) -> list[Command | None]:
        """Commands as they are now, in the order asked; None for unknown ones. They are kept until
        an hour after they have expired."""
        ...
