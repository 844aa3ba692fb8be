"""Settings and states of queues: save and drop a queue."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from forebay.domain.job import QueueName
from forebay.domain.job_history import Changes, Event, EventKind
from forebay.domain.job_states import LIVE, WAITING
from forebay.domain.job_validation import check_queue_name
from forebay.domain.operator_changes import queue_changes
from forebay.domain.queue import Queue, QueueState
from forebay.errors import QueueNotEmpty, QueueNotFound
from forebay.stores.memory.insert import get_or_create_queue
from forebay.stores.memory.maintenance import move_queue_to_dead
from forebay.stores.memory.state import State


def save_queue(
    state: State,
    name: QueueName,
    changes: Mapping[str, object] | None,
    new_state: QueueState | None,
    actor: str,
) -> Queue:
    check_queue_name(name)
    old = get_or_create_queue(state, name)
    reactivated = QueueState.ACTIVE if old.state is QueueState.DROPPED else None
    queue = old.with_settings(old.settings.with_changes(changes or {}), new_state or reactivated, state.now)
    if queue.scoring_version != old.scoring_version:
        state.write(state.rescored_to_seq, name, None)
    if not state.count(name, *LIVE):
        queue = replace(queue, is_rescoring=False)
    detail = "settings" if new_state is None else str(queue.state)
    _write_queue(state, queue, actor, detail, queue_changes(old, queue))
    return queue


def drop_queue(state: State, name: QueueName, force: bool, limit: int, actor: str) -> int:
    queue = state.queues.get(name)
    if queue is None:
        raise QueueNotFound(f"there is no queue {name}")
    live = state.count(name, *LIVE)
    if live and not force:
        raise QueueNotEmpty(f"queue {name} has {live} live jobs; empty it first, or drop it by force")
    if queue.state is not QueueState.DROPPED:
        dropped = queue.with_settings(queue.settings, QueueState.DROPPED, state.now)
        _write_queue(state, dropped, actor, "dropped", queue_changes(queue, dropped))
    move_queue_to_dead(state, name, limit)
    return state.count(name, *WAITING)


def _write_queue(state: State, queue: Queue, actor: str, detail: str, changes: Changes) -> None:
    state.write(state.queues, queue.name, queue)
    event = Event(kind=EventKind.QUEUE_CHANGED, queue=queue.name, actor=actor, detail=detail, changes=changes)
    state.record(event)
    state.needs_wakeup = True
