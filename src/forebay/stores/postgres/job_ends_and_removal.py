"""Ends of waiting jobs, and the removal of what deleted jobs leave behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from forebay.domain.job import JobId, QueueName
from forebay.domain.job_states import JobState
from forebay.stores.postgres.transaction import Transaction
from forebay.stores.shared.rows import STATES, Row


def end_waiting(
    tx: Transaction, rows: Sequence[Row], state: JobState, reason: str
) -> Mapping[JobId, QueueName]:
    """Move jobs without narrow rows, given as (id, state), to `finished` or `dead`.

    Return their queues, in the same order.
    """
    if not rows:
        return {}
    old = {job_id: STATES[was] for job_id, was in rows}
    values = {"ids": sorted(old), "reason": reason, "now": tx.now}
    ended = tx.all("mark_dead_waiting" if state is JobState.DEAD else "finish_waiting", values)
    tx.release_keys((row[0], row[1], row[2]) for row in ended)
    tx.outbox_ids += (ended[0][3] or ()) if ended else ()
    queues = {row[0]: row[1] for row in ended}
    for job_id, before in old.items():
        tx.count_moved(queues[job_id], before, state)
    return {job_id: queues[job_id] for job_id in old}


def remove_history(tx: Transaction, ids: Sequence[JobId]) -> None:
    """Delete the attempts, events and progress of jobs, and the edges to their parents."""
    if ids:
        tx.run("history_remove", {"ids": list(ids)})
