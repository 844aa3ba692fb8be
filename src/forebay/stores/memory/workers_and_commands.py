"""Workers: their heartbeats, and the commands to them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from forebay.domain.job import QueueName, WorkerId
from forebay.domain.worker import WorkerInfo
from forebay.domain.worker_command import Command, CommandKind, truncate_answer
from forebay.stores.memory.state import State
from forebay.stores.memory.text_check import check_writable
from forebay.stores.shared.worker_commands import build_commands, command_event


def send_command(
    state: State,
    kind: CommandKind,
    workers: Sequence[WorkerId] | None,
    queue: QueueName | None,
    expires_ms: int,
    actor: str,
) -> list[Command]:
    commands = build_commands(workers, _workers_by_start(state), kind, queue, actor, state.now, expires_ms)
    for command in commands:
        state.write(state.commands, command.id, command)
        state.record(command_event(command))
        state.needs_wakeup = True
    return commands


def take_commands(state: State, workers: Sequence[WorkerId]) -> list[Command]:
    undelivered = [
        command
        for command in state.commands.values()
        if command.worker in workers and command.delivered_at is None and command.expires_at > state.now
    ]
    delivered = [replace(command, delivered_at=state.now) for command in undelivered]
    for command in delivered:
        state.write(state.commands, command.id, command)
    return delivered


def answer_command(state: State, command_id: str, text: str) -> None:
    command = state.commands.get(command_id)
    if command is not None:
        state.write(state.commands, command_id, replace(command, response=truncate_answer(text)))


def _workers_by_start(state: State) -> list[WorkerId]:
    workers = sorted(state.workers.values(), key=lambda worker: (worker.started_at, worker.id))
    return [worker.id for worker in workers]


def heartbeat(state: State, worker: WorkerInfo) -> None:
    check_writable(worker.id, worker.host, *worker.queues, *worker.paused, *worker.running)
    stored = state.workers.get(worker.id)
    started_at = (worker.started_at or state.now) if stored is None else stored.started_at
    state.write(state.workers, worker.id, replace(worker, started_at=started_at, heartbeat_at=state.now))
