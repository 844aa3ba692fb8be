"""What workers are asked to do, and what they answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from forebay.domain.history import Event, EventKind
from forebay.domain.job import QueueName, WorkerId, check_queue_name
from forebay.domain.worker import Command, CommandKind, answer_as_kept
from forebay.errors import WorkerNotFound
from forebay.stores.ids import new_id
from forebay.stores.postgres.rows import command_from_row
from forebay.stores.postgres.transaction import Transaction

_KINDS: Final = [kind.value for kind in CommandKind]


def send(
    tx: Transaction,
    kind: CommandKind,
    workers: Sequence[WorkerId] | None,
    queue: QueueName | None,
    expires_ms: int,
    actor: str,
) -> list[Command]:
    """One command for each worker; nobody is asked if one of them is unknown."""
    if queue is not None:
        check_queue_name(queue)
    listed = [WorkerId(row[0]) for row in tx.all("workers")]
    names = listed if workers is None else workers
    unknown = next((name for name in names if name not in listed), None)
    if unknown is not None:
        raise WorkerNotFound(f"there is no worker {unknown}; see the list with `forebay workers`")
    return [_send_one(tx, kind, name, queue, expires_ms, actor) for name in names]


def take(tx: Transaction, workers: Sequence[WorkerId]) -> list[Command]:
    """What is there for these workers, oldest first; nobody else will get it."""
    rows = tx.all("commands_take", {"workers": list(workers), "kinds": _KINDS, "now": tx.now})
    return [command_from_row(row) for row in sorted(rows, key=lambda row: row[-1])]


def answer(tx: Transaction, command_id: str, text: str) -> None:
    tx.run("command_answer", {"id": command_id, "answer": answer_as_kept(text)})


def _send_one(
    tx: Transaction,
    kind: CommandKind,
    worker: WorkerId,
    queue: QueueName | None,
    expires_ms: int,
    actor: str,
) -> Command:
    command = Command(
        id=new_id(),
        worker=worker,
        kind=kind,
        queue=queue,
        actor=actor,
        sent_at=tx.now,
        expires_at=tx.now + expires_ms,
    )
    values = {
        "id": command.id,
        "worker": worker,
        "kind": kind.value,
        "queue": queue,
        "actor": actor,
        "now": tx.now,
        "expires_at": command.expires_at,
    }
    tx.run("command_add", values)
    tx.record(Event(kind=EventKind.COMMAND, queue=queue, actor=actor, detail=f"{kind} {worker}"))
    tx.has_news = True
    return command
