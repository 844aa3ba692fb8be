"""Commands to workers and their events, shared by all engines."""

from __future__ import annotations

from collections.abc import Sequence

from forebay.domain.job import QueueName, WorkerId
from forebay.domain.job_history import Event, EventKind
from forebay.domain.job_validation import check_queue_name
from forebay.domain.worker_command import Command, CommandKind
from forebay.errors import WorkerNotFound
from forebay.stores.id_generator import new_id


def build_commands(
    workers: Sequence[WorkerId] | None,
    known: Sequence[WorkerId],
    kind: CommandKind,
    queue: QueueName | None,
    actor: str,
    sent_at: int,
    expires_ms: int,
) -> list[Command]:
    """Build one command for each worker; none if one of the workers is unknown."""
    if queue is not None:
        check_queue_name(queue)
    targets = known if workers is None else workers
    unknown = next((name for name in targets if name not in known), None)
    if unknown is not None:
        raise WorkerNotFound(f"there is no worker {unknown}; see the list with `forebay workers`")
    return [
        Command(
            id=new_id(),
            worker=name,
            kind=kind,
            queue=queue,
            actor=actor,
            sent_at=sent_at,
            expires_at=sent_at + expires_ms,
        )
        for name in targets
    ]


def command_event(command: Command) -> Event:
    """Return the event of a command."""
    detail = f"{command.kind} {command.worker}"
    return Event(kind=EventKind.WORKER_COMMAND, queue=command.queue, actor=command.actor, detail=detail)
