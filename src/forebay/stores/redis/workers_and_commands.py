"""Worker records and worker commands of the Redis engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from forebay.domain.job import QueueName, WorkerId
from forebay.domain.worker import WorkerInfo
from forebay.domain.worker_command import Command, CommandKind
from forebay.errors import StoreRefused
from forebay.stores.redis.connection import Connection
from forebay.stores.redis.insert import check_reply
from forebay.stores.redis.rows import command_from_packed, command_row, worker_from_packed, worker_row
from forebay.stores.shared.worker_commands import build_commands

_KINDS: Final = [kind.value for kind in CommandKind]


def worker_row_of(worker: WorkerInfo) -> list[Any]:
    try:
        return worker_row(worker)
    except UnicodeEncodeError as exc:
        raise StoreRefused(f"this text cannot be written as UTF-8: {exc.object!r:.60}") from exc


def load_workers(connection: Connection, ids: Sequence[WorkerId] | None = None) -> list[WorkerInfo]:
    """Return workers by start time: all, or those with these ids."""
    key, wanted = f"{connection.address.tag}:workers", dict.fromkeys(ids or ())
    if ids is None:
        rows = connection.execute("HVALS", key)
    else:
        rows = [row for row in connection.execute("HMGET", key, *wanted) if row is not None] if wanted else []
    return sorted(map(worker_from_packed, rows), key=lambda worker: (worker.started_at, worker.id))


def send_command(
    connection: Connection,
    kind: CommandKind,
    workers: Sequence[WorkerId] | None,
    queue: QueueName | None,
    expires_ms: int,
    actor: str,
) -> list[Command]:
    known = [worker.id for worker in load_workers(connection)]
    commands = build_commands(workers, known, kind, queue, actor, 0, 0)
    rows = [command_row(command, expires_ms) for command in commands]
    answer = connection.run("send_commands", {"commands": rows, "is_for_all": workers is None})
    now, sent = check_reply(answer)
    return [
        replace(command, sent_at=now, expires_at=now + expires_ms)
        for command, was_sent in zip(commands, sent, strict=True)
        if was_sent
    ]


def take_commands(connection: Connection, workers: Sequence[WorkerId]) -> list[Command]:
    packed = connection.run("take_commands", {"workers": list(dict.fromkeys(workers)), "kinds": _KINDS})
    commands = [command for command in map(command_from_packed, packed) if command is not None]
    return sorted(commands, key=lambda command: (command.sent_at, command.id))
