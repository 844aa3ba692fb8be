"""What workers say, what they are asked to do, and what they answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from forebay.domain.job import QueueName, WorkerId
from forebay.domain.worker import Command, CommandKind, WorkerInfo
from forebay.errors import StoreRefused
from forebay.stores.redis.connection import Connection
from forebay.stores.redis.insert import check_reply
from forebay.stores.redis.rows import command_from_packed, command_row, worker_from_packed, worker_row
from forebay.stores.shared.commands import build_commands

_KINDS: Final = [kind.value for kind in CommandKind]


def worker_row_of(worker: WorkerInfo) -> list[Any]:
    try:
        return worker_row(worker)
    except UnicodeEncodeError as exc:
        raise StoreRefused(f"this text cannot be written as UTF-8: {exc.object!r:.60}") from exc


def load_workers(connection: Connection, ids: Sequence[WorkerId] | None = None) -> list[WorkerInfo]:
    """Workers by start: all, or those of these."""
    key, named = f"{connection.address.tag}:workers", dict.fromkeys(ids or ())
    if ids is None:
        found = connection.execute("HVALS", key)
    else:
        found = [one for one in connection.execute("HMGET", key, *named) if one is not None] if named else []
    return sorted(map(worker_from_packed, found), key=lambda worker: (worker.started_at, worker.id))


def send_command(
    connection: Connection,
    kind: CommandKind,
    workers: Sequence[WorkerId] | None,
    queue: QueueName | None,
    expires_ms: int,
    actor: str,
) -> list[Command]:
    listed = [worker.id for worker in load_workers(connection)]
    commands = build_commands(workers, listed, kind, queue, actor, 0, 0)
    rows = [command_row(command, expires_ms) for command in commands]
    answer = connection.run("send_commands", {"commands": rows, "is_for_all": workers is None})
    now, sent = check_reply(answer)
    return [
        replace(command, sent_at=now, expires_at=now + expires_ms)
        for command, was_sent in zip(commands, sent, strict=True)
        if was_sent
    ]


def take_commands(connection: Connection, workers: Sequence[WorkerId]) -> list[Command]:
    found = connection.run("take_commands", {"workers": list(dict.fromkeys(workers)), "kinds": _KINDS})
    commands = [command for command in map(command_from_packed, found) if command is not None]
    return sorted(commands, key=lambda command: (command.sent_at, command.id))
