"""Settings and states of queues: save and drop a queue."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from forebay.domain.job import QueueName
from forebay.domain.job_history import Event, EventKind
from forebay.domain.job_states import LIVE, WAITING
from forebay.domain.job_validation import check_queue_name
from forebay.domain.operator_changes import queue_changes
from forebay.domain.queue import Queue, QueueState
from forebay.errors import QueueNotEmpty, QueueNotFound
from forebay.stores.sqlite.maintenance import move_queue_to_dead
from forebay.stores.sqlite.transaction import Transaction


def save_queue(
    tx: Transaction,
    name: QueueName,
    changes: Mapping[str, object],
    state: QueueState | None,
    actor: str,
) -> Queue:
    check_queue_name(name)
    queue = tx.queue(name) or tx.build_queue(name)
    new_state = QueueState.ACTIVE if state is None and queue.state is QueueState.DROPPED else state
    configured = queue.with_settings(queue.settings.with_changes(changes), new_state, tx.now)
    if configured.is_rescoring and not tx.count_jobs(name, *LIVE):
        configured = replace(configured, is_rescoring=False)
    saved = tx.save_queue(configured)
    detail = "settings" if state is None else state.value
    changes = queue_changes(queue, configured)
    tx.record(Event(kind=EventKind.QUEUE_CHANGED, queue=name, actor=actor, detail=detail, changes=changes))
    tx.needs_wakeup = True
    return saved


def drop_queue(tx: Transaction, name: QueueName, limit: int, actor: str, *, force: bool) -> int:
    queue = tx.queue(name)
    if queue is None:
        raise QueueNotFound(f"there is no queue {name}")
    live = tx.count_jobs(name, *LIVE)
    if live and not force:
        raise QueueNotEmpty(f"queue {name} has {live} live jobs; drain it, or drop it by force")
    if queue.state is not QueueState.DROPPED:
        dropped = tx.save_queue(queue.with_settings(queue.settings, QueueState.DROPPED, tx.now))
        changes = queue_changes(queue, dropped)
        tx.record(
            Event(kind=EventKind.QUEUE_CHANGED, queue=name, actor=actor, detail="dropped", changes=changes)
        )
    move_queue_to_dead(tx, name, limit)
    return tx.count_jobs(name, *WAITING)
