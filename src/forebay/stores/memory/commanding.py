"""What workers are asked to do, and what they answer."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from forebay.domain.job import QueueName, WorkerId
from forebay.domain.worker import Command, CommandKind, answer_as_kept
from forebay.stores.commanding import commands_to, sent
from forebay.stores.memory.state import State


def send(
    state: State,
    kind: CommandKind,
    workers: Sequence[WorkerId] | None,
    queue: QueueName | None,
    expires_ms: int,
    actor: str,
) -> list[Command]:
    commands = commands_to(workers, _by_start(state), kind, queue, actor, state.now, expires_ms)
    for command in commands:
        state.write(state.commands, command.id, command)
        state.record(sent(command))
        state.has_news = True
    return commands


def take(state: State, workers: Sequence[WorkerId]) -> list[Command]:
    waiting = [
        command
        for command in state.commands.values()
        if command.worker in workers and command.taken_at is None and command.expires_at > state.now
    ]
    taken = [replace(command, taken_at=state.now) for command in waiting]
    for command in taken:
        state.write(state.commands, command.id, command)
    return taken


def answer(state: State, command_id: str, text: str) -> None:
    command = state.commands.get(command_id)
    if command is not None:
        state.write(state.commands, command_id, replace(command, answer=answer_as_kept(text)))


def _by_start(state: State) -> list[WorkerId]:
    workers = sorted(state.workers.values(), key=lambda worker: (worker.started_at, worker.id))
    return [worker.id for worker in workers]
