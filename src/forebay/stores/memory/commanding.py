"""What workers are asked to do, and what they answer."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from forebay.domain.history import Event, EventKind
from forebay.domain.job import QueueName, WorkerId, check_queue_name
from forebay.domain.worker import Command, CommandKind, answer_as_kept
from forebay.errors import WorkerNotFound
from forebay.stores.ids import new_id
from forebay.stores.memory.state import State, check_writable


def send(
    state: State,
    kind: CommandKind,
    workers: Sequence[WorkerId] | None,
    queue: QueueName | None,
    expires_ms: int,
    actor: str,
) -> list[Command]:
    if queue is not None:
        check_queue_name(queue)
    names = _by_start(state) if workers is None else workers
    unknown = next((name for name in names if name not in state.workers), None)
    if unknown is not None:
        raise WorkerNotFound(f"there is no worker {unknown}; see the list with `forebay workers`")
    return [_send_one(state, kind, name, queue, expires_ms, actor) for name in names]


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


def _send_one(
    state: State, kind: CommandKind, worker: WorkerId, queue: QueueName | None, expires_ms: int, actor: str
) -> Command:
    check_writable(actor)
    command = Command(
        id=new_id(),
        worker=worker,
        kind=kind,
        queue=queue,
        actor=actor,
        sent_at=state.now,
        expires_at=state.now + expires_ms,
    )
    state.write(state.commands, command.id, command)
    state.record(Event(kind=EventKind.COMMAND, queue=queue, actor=actor, detail=f"{kind} {worker}"))
    state.has_news = True
    return command
