"""Protocols of the store contract for workers and commands to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from forebay.domain.job import QueueName, WorkerId
from forebay.domain.worker import WorkerInfo
from forebay.domain.worker_command import COMMAND_EXPIRES_MS, Command, CommandKind


class WorkerStore(Protocol):
    """Write side of workers and commands."""

    def heartbeat(self, worker: WorkerInfo) -> None:
        """Record that a worker is alive. From the first heartbeat on, engines that can notice the death of
        a process do so (see `sweep`). Exceptions are a worker that `is_remote`, and one whose `supervisor`
        is another process."""
        ...

    def remove_worker(self, worker: WorkerId) -> None:
        """Remove a worker that has stopped normally from the list."""
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
        """Send a command to workers; to all that are on the list if none is named. Return one command for
        each, in the order given. A worker that is not on the list raises WorkerNotFound, and no command is
        sent. Leaves a WORKER_COMMAND event for each, and sends a wake-up.
        """
        ...

    def take_commands(self, workers: Sequence[WorkerId]) -> list[Command]:
        """Return commands for these workers that are neither delivered nor expired, oldest first. Each is
        delivered at most once: if the answer to this call is lost, so are its commands.
        """
        ...

    def answer_command(self, command_id: str, text: str) -> None:
        """Store the response to a command, cut to 64 KiB. Nothing happens if the command is gone."""
        ...


class WorkerReader(Protocol):
    """Read side of workers and commands."""

    def workers(self, ids: Sequence[WorkerId] | None = None) -> list[WorkerInfo]:
        """Return workers with a heartbeat that were not removed, by start: all, or those of these ids."""
        ...

    def commands(self, ids: Sequence[str]) -> list[Command | None]:
        """Return commands in their present state, in the order given; None for unknown ones. They are stored
        until an hour after they have expired.
        """
        ...
