"""Ends of waiting jobs, and the removal of what deleted jobs leave behind."""

from __future__ import annotations

from forebay.domain.dependencies import DependencyEvent
from forebay.domain.job import JobId, QueueName
from forebay.domain.job_states import JobState
from forebay.stores.shared.rows import STATES
from forebay.stores.sqlite.transaction import Transaction


def end_waiting(tx: Transaction, seq: int, job_id: JobId, state: JobState, reason: str) -> QueueName | None:
    """Move a waiting job to the finished or the dead ones; return None if it does not wait."""
    values = {"seq": seq, "job_id": job_id, "reason": reason, "now": tx.now}
    tx.run("mark_dead_waiting" if state is JobState.DEAD else "finish_waiting", values)
    removed = tx.all("remove_waiting", {"seq": seq, "job_id": job_id})
    if not removed:
        return None
    queue, old_state, unique_key = removed[0]
    tx.release_key(queue, unique_key, job_id)
    tx.count_moved(queue, STATES[old_state], state)
    tx.add_to_outbox([job_id], DependencyEvent(state.value))
    return QueueName(queue)


def remove_history(tx: Transaction, job_id: JobId) -> None:
    """Remove a job's failed attempts and events."""
    tx.run("failed_attempts_remove", {"job_id": job_id})
    tx.run("events_remove", {"job_id": job_id})


def remove_edges(tx: Transaction, job_id: JobId, state: JobState) -> None:
    """Remove the edges to a job's parents. Its dependants learn of the removal, unless it has completed."""
    if tx.has_edges():
        tx.run("edges_remove", {"child_id": job_id})
        if state is not JobState.COMPLETED:
            tx.add_to_outbox([job_id], DependencyEvent.DELETED)
