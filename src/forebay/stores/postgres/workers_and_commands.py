"""Workers: their heartbeats, and the commands to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from forebay.domain.job import QueueName, WorkerId
from forebay.domain.worker import WorkerInfo
from forebay.domain.worker_command import Command, CommandKind, truncate_answer
from forebay.stores.postgres.transaction import Transaction
from forebay.stores.shared.rows import Row, command_from_row, json_text, row_from_command, worker_details_json
from forebay.stores.shared.worker_commands import build_commands, command_event

KINDS: Final = [kind.value for kind in CommandKind]


def send_command(
    tx: Transaction,
    kind: CommandKind,
    workers: Sequence[WorkerId] | None,
    queue: QueueName | None,
    expires_ms: int,
    actor: str,
) -> list[Command]:
    worker_ids = [WorkerId(row[0]) for row in tx.all("workers")]
    commands = build_commands(workers, worker_ids, kind, queue, actor, tx.now, expires_ms)
    for command in commands:
        tx.run("command_add", row_from_command(command))
        tx.record(command_event(command))
        tx.needs_wakeup = True
    return commands


def take_commands(tx: Transaction, workers: Sequence[WorkerId]) -> list[Command]:
    return commands_from_rows(tx.all("commands_take", {"workers": list(workers), "kinds": KINDS}))


def commands_from_rows(rows: Sequence[Row]) -> list[Command]:
    """Return delivered commands, oldest first."""
    return [command_from_row(row) for row in sorted(rows, key=lambda row: row[-1])]


def answer_command(tx: Transaction, command_id: str, text: str) -> None:
    tx.run("command_answer", {"id": command_id, "response": truncate_answer(text)})


def heartbeat(tx: Transaction, worker: WorkerInfo) -> None:
    values = {
        "id": worker.id,
        "host": worker.host,
        "pid": worker.pid,
        "queues": json_text(worker.queues),
        "state": worker.state.value,
        "started_at": worker.started_at or tx.now,
        "now": tx.now,
        "details": worker_details_json(worker),
    }
    tx.run("heartbeat", values)
